//! The shared home: where its history is, and where stores and their locks stand in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::key::StoreKey;
use crate::watch::Watch;

/// The folder of everything that this crate keeps in the shared home.
pub const OWN: &str = "threadkeep";
/// Stores, in it.
pub const STORES: &str = "threadkeep/stores";
/// Locks of stores, in it. Never renamed.
pub const LOCKS: &str = "threadkeep/locks";
/// Stores that are being removed, in it.
pub const TOMBSTONES: &str = "threadkeep/tombstones";
/// Stores of an earlier system, used where they are.
pub const MULTICA: &str = "multica-sessions";
/// Codex's writer locks.
pub const WRITER_LOCKS: &str = "thread-writer-locks";
/// The two folders of rollouts.
pub const ROLLOUT_FOLDERS: [&str; 2] = ["sessions", "archived_sessions"];

/// The shared home of a user.
#[derive(Debug, Clone)]
pub struct SharedHome {
    /// Its folder.
    pub dir: Dir,
}

impl SharedHome {
    /// Opens it. It has to be there; nothing is made.
    pub fn open(path: &Path, watch: Arc<dyn Watch>) -> Result<Self, HomeError> {
        let path = std::path::absolute(path).attempt("resolve", path)?;
        match Dir::open(&path, watch) {
            Ok(dir) => Ok(Self { dir }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                Err(HomeError::Missing { what: "the shared home is not there", path })
            }
            Err(source) => Err(HomeError::Io { attempt: "open the shared home", path, source }),
        }
    }

    /// The folder of locks, made where it is not there.
    pub fn locks(&self) -> Result<Dir, HomeError> {
        self.dir.made(LOCKS).attempt("make folder", self.dir.shown(LOCKS))
    }

    /// A folder of it, if it is there.
    pub fn part(&self, path: &str) -> Result<Option<Dir>, HomeError> {
        self.dir.folder_if_there(path).attempt("open folder", self.dir.shown(path))
    }

    /// One of the two folders of rollouts, which may be a link. `None` where it is not there.
    pub fn rollouts(&self, folder: &'static str) -> Result<Option<Dir>, HomeError> {
        crate::dir::absent(self.dir.followed(folder)).attempt("open folder", self.dir.shown(folder))
    }

    /// Where the shared rollouts really are: a link in a store may lead there and nowhere else.
    #[must_use]
    pub fn within(&self) -> Vec<PathBuf> {
        ROLLOUT_FOLDERS.iter().filter_map(|f| std::fs::canonicalize(self.dir.shown(f)).ok()).collect()
    }

    /// The store of an earlier system that the key names, if it is there.
    pub fn multica_store(&self, key: &StoreKey) -> Result<Option<Dir>, HomeError> {
        match key.multica_path() {
            Some(segments) => self.part(&format!("{MULTICA}/{}", segments.join("/"))),
            None => Ok(None),
        }
    }
}
