//! A session store: the rollouts of one conversation, which outlive the homes of its tasks.
//!
//! ```text
//! <shared>/threadkeep/stores/<namespace>/<agent>/<conversation>/
//!     store.json          whose it is, its threads with their names, its pin
//!     last-used           when a task was last prepared or run on it
//!     sessions/           what a task home's `sessions` links to
//!     archived_sessions/  the same
//! ```
//!
//! Laid out like a home, so that whatever reads a home reads a store. A crash while one is made leaves some of these out;
//! the next preparation makes the rest.

use std::io;
use std::path::Path;
use std::time::Duration;

use threadkeep_record::UtcMillis;

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::find::{Scan, Want, scan};
use crate::key::StoreKey;
use crate::manifest::{FORMAT, Manifest};
use crate::platform::{Kind, Target};
use crate::reservation::{Hold, Reservation, lock_name};
use crate::shared::{MULTICA, STORES, SharedHome};
use crate::writers::Writers;

/// The manifest.
pub const MANIFEST: &str = "store.json";
/// The stamp.
pub const STAMP: &str = "last-used";
/// Held while the store is changed.
pub(crate) const EDIT_LOCK: &str = ".edit.lock";
const MAX_MANIFEST: u64 = 64 << 20;
const EDIT_PATIENCE: Duration = Duration::from_secs(20);

/// An open store.
#[derive(Debug, Clone)]
pub struct Store {
    /// Its folder.
    pub dir: Dir,
    /// Whose it is.
    pub key: StoreKey,
    /// The store of an earlier system that holds its sessions, if one does.
    pub borrowed: Option<Dir>,
}

/// What is done with a store of an earlier system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Adopt {
    /// It is used where it is.
    #[default]
    Leave,
    /// Its sessions are moved into ours.
    Move,
}

/// What was done while a store was opened.
#[derive(Debug, Default)]
pub struct Opened {
    /// Sessions of an earlier system that were moved in.
    pub adopted: Option<String>,
    /// What was wrong and is right now.
    pub repaired: Vec<String>,
}

impl Store {
    /// Opens the store of a key; `None` where there is none.
    pub fn open(shared: &SharedHome, key: &StoreKey) -> Result<Option<Self>, HomeError> {
        let Some(dir) = shared.part(&format!("{STORES}/{}", key.path()))? else { return Ok(None) };
        let borrowed = shared.multica_store(key)?;
        Ok(Some(Self { dir, key: key.clone(), borrowed }))
    }

    /// Opens the store of a key, making what is missing of it. The caller holds its reservation.
    pub fn make(
        shared: &SharedHome,
        key: &StoreKey,
        now: UtcMillis,
        adopt: Adopt,
    ) -> Result<(Self, Opened, Editing), HomeError> {
        let mut opened = Opened::default();
        let path = format!("{STORES}/{}", key.path());
        let shown = shared.dir.shown(&path);
        // Clean-up removes the folder of an agent when it holds nothing; then it is made again.
        let mut tries = 0;
        let dir = loop {
            match shared.dir.made(&path) {
                Ok(dir) => break dir,
                Err(e) if e.kind() == io::ErrorKind::NotFound && tries < 64 => tries += 1,
                Err(source) => return Err(HomeError::Io { attempt: "make store", path: shown, source }),
            }
        };
        let mut store = Self { dir, key: key.clone(), borrowed: shared.multica_store(key)? };
        let editing = store.editing()?;
        match (store.borrowed.clone(), adopt) {
            (Some(old), Adopt::Move) => {
                opened.adopted = Some(old.path().display().to_string());
                store.adopt(shared, key)?;
                store.borrowed = None;
            }
            (Some(old), Adopt::Leave) => store.lend(&old)?,
            (None, Adopt::Leave | Adopt::Move) => store.own_sessions(&mut opened)?,
        }
        store.dir.made("archived_sessions").attempt("make folder", store.dir.shown("archived_sessions"))?;
        match store.manifest()? {
            Some(found) if found.key == *key => {}
            Some(_) => {
                store.edit(&editing, now, |_| true)?;
                opened.repaired.push(format!("{MANIFEST}: it named another key"));
            }
            None => store.edit(&editing, now, |_| true)?,
        }
        Ok((store, opened, editing))
    }

    /// Makes `sessions` a folder of its own.
    fn own_sessions(&self, opened: &mut Opened) -> Result<(), HomeError> {
        let shown = self.dir.shown("sessions");
        if self.dir.stat("sessions").attempt("look at", &shown)?.is_some_and(|s| s.kind == Kind::Link) {
            // A link that a store of an earlier system was behind, which is gone.
            let aside = self.dir.move_aside("sessions").attempt("move aside", &shown)?;
            opened.repaired.push(format!("sessions: the linked folder is gone, link kept as {aside}"));
        }
        self.dir.made("sessions").attempt("make folder", &shown).map(|_| ())
    }

    /// Makes `sessions` a link to a store of an earlier system. What is in a folder of our own stays in use.
    fn lend(&mut self, old: &Dir) -> Result<(), HomeError> {
        let shown = self.dir.shown("sessions");
        match self.dir.stat("sessions").attempt("look at", &shown)? {
            None => self.dir.put_link("sessions", old.path(), Kind::Folder).attempt("link", &shown),
            Some(s) if s.kind == Kind::Link => {
                let target = self.dir.stat_followed("sessions").attempt("look at", &shown)?;
                let wanted = old.stat_self().attempt("look at", old.path())?;
                if target.is_some_and(|t| t.is_same(&wanted)) {
                    return Ok(());
                }
                Err(HomeError::Refused {
                    why: "the sessions of this store are a link to elsewhere".into(),
                    path: shown,
                })
            }
            Some(_) => {
                self.borrowed = None;
                Ok(())
            }
        }
    }

    /// Moves the sessions of a store of an earlier system into this one.
    fn adopt(&self, shared: &SharedHome, key: &StoreKey) -> Result<(), HomeError> {
        let shown = self.dir.shown("sessions");
        let Some([namespace, agent, conversation]) = key.multica_path() else { return Ok(()) };
        let above = format!("{MULTICA}/{namespace}/{agent}");
        let Some(above) = shared.part(&above)? else { return Ok(()) };
        if self.dir.stat("sessions").attempt("look at", &shown)?.is_some_and(|s| s.kind == Kind::Link) {
            self.dir.remove_file("sessions").attempt("remove link", &shown)?;
        }
        match above.rename(&conversation, &self.dir, "sessions", Target::Free) {
            Ok(()) => {
                above.sync().attempt("sync", above.path())?;
                self.dir.sync().attempt("sync", self.dir.path())
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(HomeError::Refused {
                why: "this store has sessions of its own; move those of the earlier store by hand".into(),
                path: above.shown(&conversation),
            }),
            Err(source) => Err(HomeError::Io { attempt: "adopt", path: above.shown(&conversation), source }),
        }
    }

    /// The folder that a task home's link of that name leads to.
    pub fn rollouts(&self, folder: &'static str) -> Result<Option<Dir>, HomeError> {
        if folder == "sessions"
            && let Some(borrowed) = &self.borrowed
            && self
                .dir
                .stat("sessions")
                .attempt("look at", self.dir.shown("sessions"))?
                .is_some_and(|s| s.kind == Kind::Link)
        {
            return Ok(Some(borrowed.clone()));
        }
        self.dir.folder_if_there(folder).attempt("open folder", self.dir.shown(folder))
    }

    /// The manifest; `None` where there is none yet.
    pub fn manifest(&self) -> Result<Option<Manifest>, HomeError> {
        read_manifest(&self.dir)
    }

    /// Takes the lock under which the store is changed, so that two tasks of one conversation do not meet.
    pub fn editing(&self) -> Result<Editing, HomeError> {
        Reservation::need(&self.dir, EDIT_LOCK, Hold::Alone, EDIT_PATIENCE, "the store").map(Editing)
    }

    /// Changes the manifest; `change` tells whether it did anything.
    pub fn edit(
        &self,
        _editing: &Editing,
        now: UtcMillis,
        change: impl FnOnce(&mut Manifest) -> bool,
    ) -> Result<(), HomeError> {
        let found = self.manifest()?;
        let fresh = found.is_none();
        let mut manifest = found.unwrap_or_else(|| Manifest::new(self.key.clone(), now));
        if manifest.format > FORMAT {
            return Err(HomeError::Refused {
                why: format!("written by a newer version (format {})", manifest.format),
                path: self.dir.shown(MANIFEST),
            });
        }
        let moved = manifest.key != self.key;
        if moved {
            let old = std::mem::replace(&mut manifest.key, self.key.clone());
            if !manifest.earlier_keys.contains(&old) {
                manifest.earlier_keys.push(old);
            }
        }
        if change(&mut manifest) || fresh || moved {
            self.dir.put(MANIFEST, &manifest.bytes(), 0o600).attempt("write", self.dir.shown(MANIFEST))?;
        }
        Ok(())
    }

    /// Notes that the store is used now.
    pub fn stamp(&self, _editing: &Editing, now: UtcMillis) -> Result<(), HomeError> {
        let path = self.dir.shown(STAMP);
        self.dir.put(STAMP, format!("{now}\n").as_bytes(), 0o600).attempt("write", path)
    }
}

/// Moves the sessions of an earlier system's store into the store of a key, while nobody else is at either: an agent that
/// runs there would lose its history from under itself. Tells from where they were moved; `None` where there are none.
pub fn adopt(
    shared: &SharedHome,
    key: &StoreKey,
    now: UtcMillis,
    patience: Duration,
) -> Result<Option<String>, HomeError> {
    let Some(old) = shared.multica_store(key)? else { return Ok(None) };
    let locks = shared.locks()?;
    let alone = Reservation::need(&locks, &lock_name(&key.path()), Hold::Alone, patience, "the store")?;
    let mut found = Scan::default();
    scan(&old, Path::new(""), Want::All, &mut found);
    if let Some((path, why)) = found.problems.into_iter().next() {
        return Err(HomeError::Refused { why: format!("cannot be looked into ({why})"), path: old.shown(path) });
    }
    Writers::read(shared)?.refuse(found.found.iter().map(|f| &f.named.id))?;
    let (_, opened, _) = Store::make(shared, key, now, Adopt::Move)?;
    drop(alone);
    Ok(opened.adopted)
}

/// The right to change a store.
#[derive(Debug)]
pub struct Editing(#[allow(dead_code, reason = "held, never read")] Reservation);

/// The manifest in a folder of a store.
pub fn read_manifest(dir: &Dir) -> Result<Option<Manifest>, HomeError> {
    let path = dir.shown(MANIFEST);
    let Some(bytes) = dir.read(MANIFEST, MAX_MANIFEST).attempt("read", &path)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| HomeError::Malformed { path, why: e.to_string() })
}

/// Reads the stamp; `None` where there is none that says a time.
pub fn read_stamp(dir: &Dir) -> io::Result<Option<UtcMillis>> {
    let bytes = match dir.read(STAMP, 64) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    Ok(bytes.and_then(|b| UtcMillis::parse(String::from_utf8_lossy(&b).trim())))
}

/// Whether two paths are the same text after cleaning: all that can be said of a link that leads nowhere.
#[must_use]
pub fn same_text(a: &Path, b: &Path) -> bool {
    let clean = |p: &Path| p.components().collect::<std::path::PathBuf>();
    clean(a) == clean(b)
}
