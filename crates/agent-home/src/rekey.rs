//! A conversation moves from one key to another, whole.

use std::path::PathBuf;
use std::time::Duration;

use threadkeep_record::UtcMillis;

use crate::dir::{Dir, absent};
use crate::error::{Attempt as _, HomeError};
use crate::key::StoreKey;
use crate::platform::{Kind, Target};
use crate::reservation::{Hold, Reservation, lock_name};
use crate::sessions::merge;
use crate::shared::{ROLLOUT_FOLDERS, STORES, SharedHome, TOMBSTONES};
use crate::store::{Adopt, EDIT_LOCK, Editing, MANIFEST, STAMP, Store};
use crate::writers::refuse_written;

/// What a re-keying did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekeyed {
    /// What was moved.
    pub moved: Vec<String>,
    /// What should be known beside that.
    pub notes: Vec<String>,
    /// The store now.
    pub store: std::path::PathBuf,
}

/// Moves the conversation of one key to another. Both stores must be free, none of its threads may be written, and no file
/// of it may have its name taken in the other store: then nothing is moved. A crash leaves it under one key, the other,
/// or in part under both; the same call again finishes it.
pub fn rekey(
    shared: &SharedHome,
    from: &StoreKey,
    to: &StoreKey,
    now: UtcMillis,
    patience: Duration,
) -> Result<Rekeyed, HomeError> {
    if from == to {
        return Err(HomeError::Usage { what: "the two keys are the same".into() });
    }
    if to.id.is_empty() {
        return Err(HomeError::Usage { what: "the id of the conversation is empty".into() });
    }
    let locks = shared.locks()?;
    let (from_name, to_name) = (lock_name(&from.path()), lock_name(&to.path()));
    let take = |name: &str| Reservation::need(&locks, name, Hold::Alone, patience, "the store");
    // In one order for everyone, so that two of these cannot wait for each other.
    let (first, second) = if from_name < to_name { (&from_name, &to_name) } else { (&to_name, &from_name) };
    let (first, second) = (take(first)?, take(second)?);
    let from_lock = if from_name < to_name { first } else { second };
    let Some(old) = Store::open(shared, from)? else { return finished_before(shared, from, to, from_lock) };
    refuse_written(shared, &old)?;
    if let Some(borrowed) = old.borrowed.as_ref().filter(|b| is_lent(&old, b)) {
        return Err(HomeError::Refused {
            why: "this conversation's sessions are in the store of an earlier system, which stays where it is; prepare a \
                  home for it with --adopt first"
                .into(),
            path: borrowed.path().to_owned(),
        });
    }
    if let Some(there) = Store::open(shared, to)? {
        for folder in ROLLOUT_FOLDERS {
            let (Some(old), Some(new)) = (old.rollouts(folder)?, there.rollouts(folder)?) else { continue };
            if let Some(path) = in_the_way(&old, &new)? {
                return Err(HomeError::Refused {
                    why: format!(
                        "nothing was moved: {} has something else under this name, and which of them counts is not known",
                        to.shown()
                    ),
                    path,
                });
            }
        }
    }
    let (new, _, editing) = Store::make(shared, to, now, Adopt::Leave)?;
    let moved = merge_stores(&old, &new, &editing, now)?;
    let mut notes = Vec::new();
    if !bury_empty(shared, &old, from)? {
        notes.push(format!("{} is still there: something in it could not be moved", old.dir.path().display()));
    }
    from_lock.retire(&locks)?;
    Ok(Rekeyed { moved, notes, store: new.dir.path().to_owned() })
}

/// There is no store of the old key: an earlier call may have ended when all was moved.
fn finished_before(
    shared: &SharedHome,
    from: &StoreKey,
    to: &StoreKey,
    from_lock: Reservation,
) -> Result<Rekeyed, HomeError> {
    let new = Store::open(shared, to)?;
    let Some(new) = new.filter(|n| n.manifest().is_ok_and(|m| m.is_some_and(|m| m.earlier_keys.contains(from)))) else {
        return Err(HomeError::Missing {
            what: "there is no store of this key",
            path: shared.dir.shown(format!("{STORES}/{}", from.path())),
        });
    };
    if let Some(graves) = shared.part(TOMBSTONES)? {
        clear_grave(&graves, &grave_of(from))?;
    }
    from_lock.retire(&shared.locks()?)?;
    let notes = vec!["it was moved by an earlier call".to_owned()];
    Ok(Rekeyed { moved: vec![], notes, store: new.dir.path().to_owned() })
}

/// Whether a store's sessions are those of an earlier system.
fn is_lent(store: &Store, borrowed: &Dir) -> bool {
    store.rollouts("sessions").is_ok_and(|d| d.is_some_and(|d| d.path() == borrowed.path()))
}

/// The first file below a folder whose name stands for something else in another one.
fn in_the_way(from: &Dir, to: &Dir) -> Result<Option<PathBuf>, HomeError> {
    for (name, kind) in from.entries().attempt("read folder", from.path())? {
        let Some(there) = to.stat(&name).attempt("look at", to.shown(&name))? else { continue };
        if kind == Kind::Folder && there.kind == Kind::Folder {
            let below = from.folder(&name).attempt("open folder", from.shown(&name))?;
            let other = to.folder(&name).attempt("open folder", to.shown(&name))?;
            if let Some(path) = in_the_way(&below, &other)? {
                return Ok(Some(path));
            }
            continue;
        }
        let here = from.stat(&name).attempt("look at", from.shown(&name))?;
        // A second name of the same file is no loss.
        if kind == Kind::Folder || here.is_some_and(|here| !here.is_same(&there)) {
            return Ok(Some(from.shown(&name)));
        }
    }
    Ok(None)
}

/// Moves all that a store holds into another: rollouts by rename, then what its manifest knows. What stands in the way of
/// something else stays where it is.
pub(crate) fn merge_stores(
    from: &Store,
    to: &Store,
    editing: &Editing,
    now: UtcMillis,
) -> Result<Vec<String>, HomeError> {
    let mut moved = Vec::new();
    let manifest = from.manifest()?;
    // First what is known, so that a name is never without its thread's store.
    if let Some(manifest) = &manifest {
        to.edit(editing, now, |m| {
            let before = m.clone();
            m.absorb(manifest);
            *m != before
        })?;
    }
    for folder in ROLLOUT_FOLDERS {
        let (Some(old), Some(new)) = (from.rollouts(folder)?, to.rollouts(folder)?) else { continue };
        // Sessions of an earlier system stay there.
        if from.borrowed.as_ref().is_some_and(|b| b.path() == old.path()) {
            continue;
        }
        let n = merge(&old, &new)?;
        if n > 0 {
            moved.push(format!("{folder}: {n} files from the store of {}", from.key.shown()));
        }
    }
    if let Some(kept) = from.dir.folder_if_there("task-state").attempt("open folder", from.dir.shown("task-state"))? {
        let new: Dir = to.dir.made("task-state").attempt("make folder", to.dir.shown("task-state"))?;
        merge(&kept, &new)?;
    }
    // The names are the new store's now.
    from.edit(&from.editing()?, now, |m| {
        let changed = !m.threads.is_empty() || m.pin.is_some();
        m.threads.clear();
        m.pin = None;
        changed
    })?;
    to.stamp(editing, now)?;
    Ok(moved)
}

/// Removes a store that holds nothing any more. Tells whether it is gone.
fn bury_empty(shared: &SharedHome, store: &Store, key: &StoreKey) -> Result<bool, HomeError> {
    for folder in ["sessions", "archived_sessions", "task-state"] {
        let gone = match store.dir.stat(folder).attempt("look at", store.dir.shown(folder))? {
            Some(s) if s.kind == Kind::Folder => {
                store.dir.remove_empty(folder.as_ref()).attempt("remove empty folder", store.dir.shown(folder))?
            }
            Some(_) => false,
            None => true,
        };
        if !gone {
            return Ok(false);
        }
    }
    let [namespace, agent, conversation] = key.segments();
    let Some(above) = shared.part(&format!("{STORES}/{namespace}/{agent}"))? else { return Ok(true) };
    let graves = shared.dir.made(TOMBSTONES).attempt("make folder", shared.dir.shown(TOMBSTONES))?;
    let grave = grave_of(key);
    // Left by a call that ended here; what it holds beside files of ours is clean-up's.
    clear_grave(&graves, &grave)?;
    match above.rename(&conversation, &graves, &grave, Target::Free) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Ok(false),
        Err(source) => return Err(HomeError::Io { attempt: "remove", path: above.shown(conversation), source }),
    }
    above.sync().attempt("sync", above.path())?;
    clear_grave(&graves, &grave)?;
    Ok(true)
}

fn grave_of(key: &StoreKey) -> String {
    format!("{}-rekeyed", lock_name(&key.path()).trim_end_matches(".lock"))
}

/// Deletes a tombstone that holds nothing but three small files of ours; anything else leaves it for clean-up to sweep.
/// Clean-up may be at it at the same time, so that each step may find its work done.
fn clear_grave(graves: &Dir, grave: &str) -> Result<(), HomeError> {
    let Some(dead) = graves.folder_if_there(grave).attempt("open folder", graves.shown(grave))? else { return Ok(()) };
    for name in [MANIFEST, STAMP, EDIT_LOCK] {
        dead.remove_file_if_there(name).attempt("remove", dead.shown(name))?;
    }
    absent(graves.remove_empty(grave.as_ref())).attempt("remove empty folder", graves.shown(grave)).map(|_| ())
}
