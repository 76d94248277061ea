//! Reservations: locks of the system that hold over processes and go with them.
//!
//! A task holds the lock of its store shared, clean-up and re-keying take it exclusively. The lock files stand in a folder
//! beside the stores that is never renamed. Whoever locked one looks whether its name still is the locked file, because
//! clean-up removes the file with its store.

use std::fs::{File, TryLockError};
use std::io;
use std::time::{Duration, Instant};

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::key::digest;
use crate::platform::{self, LockTable};

/// A held lock. It is free when this and every process that inherited it are gone.
#[derive(Debug)]
pub struct Reservation {
    file: File,
    name: String,
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// With others: a task.
    Shared,
    /// Alone: clean-up, re-keying, preparation of a task home.
    Alone,
}

/// How long a task waits for clean-up, which holds a lock only while it looks at one store and renames it.
pub const PATIENCE: Duration = Duration::from_secs(20);

const PAUSE: Duration = Duration::from_millis(3);

/// The name of the lock file of a store.
#[must_use]
pub fn lock_name(store_path: &str) -> String {
    format!("{}.lock", digest(store_path.as_bytes()))
}

impl Reservation {
    /// Takes a lock, waiting for it no longer than `patience`. `None` where someone else holds it still.
    pub fn take(folder: &Dir, name: &str, hold: Hold, patience: Duration) -> Result<Option<Self>, HomeError> {
        let until = Instant::now() + patience;
        loop {
            let file = folder.lock_file(name).attempt("open lock", folder.shown(name))?;
            let tried = match hold {
                Hold::Shared => file.try_lock_shared(),
                Hold::Alone => file.try_lock(),
            };
            match tried {
                Ok(()) => {
                    // Removed, or removed and made again, between opening and locking: this lock protects nothing.
                    let held = platform::stat_file(&file).attempt("look at lock", folder.shown(name))?;
                    let named = folder.stat(name).attempt("look at lock", folder.shown(name))?;
                    if named.is_some_and(|n| n.is_same(&held) || held.ino == 0) {
                        return Ok(Some(Self { file, name: name.to_owned() }));
                    }
                }
                Err(TryLockError::WouldBlock) => {
                    if Instant::now() >= until {
                        return Ok(None);
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(TryLockError::Error(source)) => {
                    return Err(HomeError::Io { attempt: "take lock", path: folder.shown(name), source });
                }
            }
        }
    }

    /// The same, with a refusal that names the holders.
    pub fn need(
        folder: &Dir,
        name: &str,
        hold: Hold,
        patience: Duration,
        what: &'static str,
    ) -> Result<Self, HomeError> {
        Self::take(folder, name, hold, patience)?.ok_or_else(|| HomeError::Held {
            what,
            path: folder.shown(name),
            by: holders(folder, name),
        })
    }

    /// Lets every child that is started from now on hold it too, so that it stays held when this process dies before its
    /// child. Where the system has no such thing, this is an error.
    pub fn inherit(&self) -> io::Result<()> {
        platform::inherit(&self.file)
    }

    /// Removes the lock file, which only its sole holder may do, and frees the lock.
    pub(crate) fn retire(self, folder: &Dir) -> Result<(), HomeError> {
        folder.remove_file_if_there(&*self.name).attempt("remove lock", folder.shown(&*self.name))
    }
}

/// The living processes that hold a lock, as far as the system tells. Takes and tries no lock.
#[must_use]
pub fn holders(folder: &Dir, name: &str) -> Vec<u32> {
    holders_in(folder, name, &platform::flock_table())
}

/// The same from a table that was read before.
#[must_use]
pub fn holders_in(folder: &Dir, name: &str, table: &LockTable) -> Vec<u32> {
    let Ok(Some(stat)) = folder.stat(name) else { return vec![] };
    table.holders(&stat)
}

/// Who holds a lock beside this process, which holds it once. `None` where that cannot be known.
#[must_use]
pub fn others(folder: &Dir, name: &str) -> Option<Vec<u32>> {
    platform::flock_table().others(&folder.stat(name).ok()??)
}
