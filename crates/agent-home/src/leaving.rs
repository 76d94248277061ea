//! A home that goes from one conversation to another: what the one left in it does not reach the other, and is not lost.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::files::is_ours;
use crate::key::{StoreKey, digest};
use crate::platform::{Kind, Target};
use crate::prepare::Run;
use crate::reservation::{Hold, Reservation, lock_name};
use crate::sessions::{self, Contents, Leads, Stands};
use crate::shared::{ROLLOUT_FOLDERS, STORES, SharedHome, WRITER_LOCKS};
use crate::store::{Adopt, Store, read_manifest};
use crate::task::{LOCK, RECORD, TaskRecord};

/// The conversation that a home is leaving, if it is one of ours: the one that its record says, or, where there is none,
/// the one to whose store its sessions lead.
pub(crate) fn left(
    home: &Dir,
    shared: &SharedHome,
    record: Option<&TaskRecord>,
    new: Option<&StoreKey>,
) -> Result<Option<StoreKey>, HomeError> {
    let old = match record.and_then(|r| r.key.clone()) {
        Some(key) => Some(key),
        None => led_to(home, shared)?,
    };
    let Some(old) = old.filter(|old| new != Some(old)) else { return Ok(None) };
    // A conversation that was given another key goes on under that one.
    let store = new.map(|new| Store::open(shared, new)).transpose()?.flatten();
    let earlier = store.map(|s| s.manifest()).transpose()?.flatten().map(|m| m.earlier_keys);
    Ok(Some(old).filter(|old| !earlier.is_some_and(|keys| keys.contains(old))))
}

fn led_to(home: &Dir, shared: &SharedHome) -> Result<Option<StoreKey>, HomeError> {
    let Stands::Link(Leads::OtherStore(path)) = sessions::look(home, "sessions", shared, None)? else {
        return Ok(None);
    };
    let stores = shared.dir.shown(STORES);
    let real = std::fs::canonicalize(&stores).unwrap_or_else(|_| stores.clone());
    let Some(below) = path.strip_prefix(&stores).or_else(|_| path.strip_prefix(&real)).ok().and_then(Path::parent)
    else {
        return Ok(None);
    };
    let Some(store) = below.to_str().map(|b| shared.part(&format!("{STORES}/{b}"))).transpose()?.flatten() else {
        return Ok(None);
    };
    Ok(read_manifest(&store)?.map(|m| m.key).filter(|key| below == Path::new(&key.path())))
}

impl Run<'_> {
    /// The home was another conversation's: what that one left goes into its store, names first.
    pub(crate) fn leave_conversation(&mut self, old: &StoreKey, record: &mut TaskRecord) -> Result<(), HomeError> {
        let locks = self.shared.locks()?;
        let name = lock_name(&old.path());
        let _held = Reservation::need(&locks, &name, Hold::Shared, self.options.patience, "the store")?;
        let (store, _, editing) = Store::make(self.shared, old, self.world.now, Adopt::Leave)?;
        self.save_names(&store, &editing, record)?;
        for folder in ROLLOUT_FOLDERS {
            let Some(to) = store.rollouts(folder)? else { continue };
            let stands = sessions::look(&self.home, folder, self.shared, Some(&to))?;
            if stands == Stands::Folder(Contents::Some) {
                sessions::link(&self.home, folder, &stands, &to)?;
                self.report.migrated.push(format!("{folder}: moved into the store of {}", old.shown()));
            }
        }
        for moved in put_away(&self.home, self.shared, &record.copied, &store.dir)? {
            self.report.migrated.push(format!("left by {}: {moved}", old.shown()));
        }
        record.names.clear();
        Ok(())
    }

    /// The home was in use without a conversation, or for one of another system whose sessions it led to: there is no
    /// store of that, so what it left goes out of sight into the one that begins. Sessions of the home's own come along
    /// into this conversation, and so does what is beside them.
    pub(crate) fn leave_unknown(
        &mut self,
        store: &Store,
        stands: &Stands,
        record: &mut TaskRecord,
    ) -> Result<(), HomeError> {
        let without = self.task.record.as_ref().is_some_and(|r| r.key.is_none());
        let unknown = match stands {
            Stands::Link(Leads::OtherStore(path)) => !self.is_earlier_system_of(store, path)? && record.key.is_none(),
            Stands::Folder(Contents::Some) => false,
            Stands::Nothing | Stands::Folder(Contents::Empty) | Stands::Link(_) | Stands::Other => without,
        };
        if unknown {
            // Who resumes a thread of that use gets its name.
            let names = crate::names::read(&self.home)?.all();
            record.unclaimed.extend(names.into_iter().filter(|(_, name)| !name.is_empty()));
            self.task.remember(record.clone())?;
            for moved in put_away(&self.home, self.shared, &record.copied, &store.dir)? {
                self.report.migrated.push(format!("left by an earlier use of this home: {moved}"));
            }
        }
        Ok(())
    }

    fn is_earlier_system_of(&self, store: &Store, path: &Path) -> Result<bool, HomeError> {
        let Some(old) = self.shared.multica_store(&store.key)? else { return Ok(false) };
        Ok(std::fs::canonicalize(old.path()).is_ok_and(|real| real == path))
    }
}

/// What every preparation makes anew, or what is judged for itself.
const ANYONES: [&str; 7] = ["auth.json", "config.toml", "sessions", "archived_sessions", WRITER_LOCKS, LOCK, RECORD];

/// Moves what belongs to another conversation into a store, where it is out of the next agent's sight and not lost: all
/// but what is the shared home's. Tells what was moved.
fn put_away(
    home: &Dir,
    shared: &SharedHome,
    copied: &BTreeMap<String, String>,
    store: &Dir,
) -> Result<Vec<String>, HomeError> {
    let mut mine: Vec<(Dir, &str, OsString)> = Vec::new();
    for (name, kind) in home.entries().attempt("read folder", home.path())? {
        let text = name.to_str().unwrap_or_default();
        match (text, kind) {
            _ if ANYONES.contains(&text) => {}
            ("AGENTS.md" | "prompts", Kind::Link) => {}
            ("config.json" | "instructions.md", Kind::File) if is_ours(home, text, copied)? => {}
            ("skills" | "plugins", Kind::Folder) => {
                let place = if text == "skills" { "skills" } else { "plugins" };
                let dir = home.folder(place).attempt("open folder", home.shown(place))?;
                for (name, kind) in dir.entries().attempt("read folder", dir.path())? {
                    let theirs = shared.dir.shown(place).join(&name);
                    if kind != Kind::Link || dir.read_link(&name).attempt("read link", dir.shown(&name))? != theirs {
                        mine.push((dir.clone(), place, name));
                    }
                }
            }
            _ => mine.push((home.clone(), "", name)),
        }
    }
    if mine.is_empty() {
        return Ok(vec![]);
    }
    let dev = |dir: &Dir| dir.stat_self().attempt("look at", dir.path()).map(|s| s.dev);
    if dev(home)? != dev(store)? {
        return Err(elsewhere(home, &mine[0].2));
    }
    let place = format!("task-state/{}", &digest(home.path().as_os_str().as_encoded_bytes())[..16]);
    let mut moved = Vec::new();
    for (from, below, name) in mine {
        let place = if below.is_empty() { place.clone() } else { format!("{place}/{below}") };
        let to = store.made(&place).attempt("make folder", store.shown(&place))?;
        let new = move_free(&from, &name, &to)?;
        to.sync().attempt("sync", to.path())?;
        from.sync().attempt("sync", from.path())?;
        moved.push(format!("{} to {}", Path::new(below).join(&name).display(), to.shown(&new).display()));
    }
    Ok(moved)
}

fn elsewhere(home: &Dir, name: &OsStr) -> HomeError {
    HomeError::Refused {
        why: "this home holds what another conversation left, and is on another file system than its store; use a new \
              task home"
            .into(),
        path: home.shown(name),
    }
}

/// Moves a name into a folder, under another one where that is taken.
fn move_free(from: &Dir, name: &OsStr, to: &Dir) -> Result<OsString, HomeError> {
    let mut new = name.to_owned();
    let mut n = 0u32;
    loop {
        match from.rename(name, to, &new, Target::Free) {
            Ok(()) => return Ok(new),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && n < 10_000 => {
                n += 1;
                new = name.to_owned();
                new.push(format!(".aside-{n}"));
            }
            // A mount below the home.
            Err(e) if e.kind() == std::io::ErrorKind::CrossesDevices => return Err(elsewhere(from, name)),
            Err(source) => return Err(HomeError::Io { attempt: "move", path: from.shown(name), source }),
        }
    }
}
