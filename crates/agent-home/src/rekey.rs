//! A conversation moves from one key to another, whole.

use std::time::Duration;

use threadkeep_record::UtcMillis;

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::key::StoreKey;
use crate::platform::Target;
use crate::reservation::{Hold, Reservation, lock_name};
use crate::sessions::merge;
use crate::shared::{ROLLOUT_FOLDERS, STORES, SharedHome, TOMBSTONES};
use crate::store::{Adopt, Editing, MANIFEST, STAMP, Store};

/// What a re-keying did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rekeyed {
    /// What was moved.
    pub moved: Vec<String>,
    /// The store now.
    pub store: std::path::PathBuf,
}

/// Moves the conversation of one key to another. Both stores must be free. A crash leaves it under one key, the other, or
/// in part under both; the same call again finishes it.
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
    let Some(old) = Store::open(shared, from)? else {
        return Err(HomeError::Missing {
            what: "there is no store of this key",
            path: shared.dir.shown(format!("{STORES}/{}", from.path())),
        });
    };
    let (new, _, editing) = Store::make(shared, to, now, Adopt::Leave)?;
    let moved = merge_stores(&old, &new, &editing, now)?;
    bury_empty(shared, &old, from)?;
    from_lock.retire(&locks)?;
    Ok(Rekeyed { moved, store: new.dir.path().to_owned() })
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

/// Removes a store that holds nothing any more.
fn bury_empty(shared: &SharedHome, store: &Store, key: &StoreKey) -> Result<(), HomeError> {
    for folder in ["sessions", "archived_sessions", "task-state"] {
        let gone = match store.dir.stat(folder).attempt("look at", store.dir.shown(folder))? {
            Some(s) if s.kind == crate::platform::Kind::Folder => {
                store.dir.remove_empty(folder.as_ref()).attempt("remove empty folder", store.dir.shown(folder))?
            }
            Some(_) => false,
            None => true,
        };
        if !gone {
            return Ok(());
        }
    }
    let [namespace, agent, conversation] = key.segments();
    let Some(above) = shared.part(&format!("{STORES}/{namespace}/{agent}"))? else { return Ok(()) };
    let graves = shared.dir.made(TOMBSTONES).attempt("make folder", shared.dir.shown(TOMBSTONES))?;
    let grave = format!("{}-rekeyed", lock_name(&key.path()).trim_end_matches(".lock"));
    match above.rename(&conversation, &graves, &grave, Target::Free) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        Err(source) => return Err(HomeError::Io { attempt: "remove", path: above.shown(conversation), source }),
    }
    above.sync().attempt("sync", above.path())?;
    let dead = graves.folder(&grave).attempt("open folder", graves.shown(&grave))?;
    // Three small files of ours; anything else leaves the grave for clean-up to sweep.
    for name in [MANIFEST, STAMP, ".edit.lock"] {
        dead.remove_file_if_there(name).attempt("remove", dead.shown(name))?;
    }
    graves.remove_empty(grave.as_ref()).attempt("remove empty folder", graves.shown(&grave)).map(|_| ())
}
