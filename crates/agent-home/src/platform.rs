//! What differs between systems: handles of directories, links, reflinks, the system's lock table.
//!
//! Linux was run. Other Unix systems share its code except where said; on the rest (`other.rs`) everything goes by
//! path, so that the promises about swapped directories do not hold there.

use std::collections::BTreeSet;
use std::io;
use std::sync::OnceLock;

#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub use unix::*;

#[cfg(not(unix))]
mod other;
#[cfg(not(unix))]
pub use other::*;

/// What a name stands for. A Windows junction is a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link or a junction.
    Link,
    /// A pipe, socket, device, or something the system does not tell.
    Other,
}

/// The facts of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Device; 0 where the system does not tell.
    pub dev: u64,
    /// Inode; 0 where the system does not tell.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Bytes of the blocks that it takes.
    pub blocks: u64,
    /// Names that it has.
    pub links: u64,
    /// Modification time, milliseconds since the Unix epoch.
    pub mtime_ms: i64,
    /// Permission bits; 0 where the system has none.
    pub mode: u32,
}

impl Stat {
    /// Whether two names are the same thing, as far as the system tells.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.ino != 0 && (self.dev, self.ino) == (other.dev, other.ino)
    }
}

/// Whether a link as the last component is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// It is: the two known links of a home, and what the caller named.
    Followed,
    /// It is refused.
    AsItIs,
}

/// Whether a rename may take the place of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// It may.
    Replaced,
    /// It must be free.
    Free,
}

/// The system's locks at one moment: when they are first asked for. Linux waits for all of its processors before it tells
/// them, some 10 ms, so a file that is not there is not asked for.
#[derive(Debug)]
pub struct LockTable {
    rows: OnceLock<io::Result<Vec<(u64, u64, u32)>>>,
    /// Asked for only when something is held: it means looking at the open files of every process.
    openers: OnceLock<Vec<(u64, u64, u32)>>,
}

/// The table of locks.
#[must_use]
pub fn flock_table() -> LockTable {
    LockTable { rows: OnceLock::new(), openers: OnceLock::new() }
}

impl LockTable {
    fn rows(&self) -> &io::Result<Vec<(u64, u64, u32)>> {
        self.rows.get_or_init(lock_rows)
    }

    /// The processes that hold a lock on a file: those that live and have it open, each once. Where the system shows none
    /// of them (another user's, another container's), the process that took the lock, which may be gone.
    #[must_use]
    pub fn holders(&self, file: &Stat) -> Vec<u32> {
        let took: BTreeSet<u32> = self.rows().iter().flatten().filter_map(of(file)).collect();
        if file.ino == 0 || took.is_empty() {
            return vec![];
        }
        let living = self.living(file);
        if living.is_empty() { took } else { living }.into_iter().collect()
    }

    /// Those that hold it beside one lock of this process. `None` where that one is not shown, so that others may not be
    /// either.
    #[must_use]
    pub fn others(&self, file: &Stat) -> Option<Vec<u32>> {
        let own = std::process::id();
        let mut took: Vec<u32> = self.rows().iter().flatten().filter_map(of(file)).collect();
        took.swap_remove(took.iter().position(|pid| *pid == own).filter(|_| file.ino != 0)?);
        let mut living = self.living(file);
        living.remove(&own);
        // A lock that was taken by one who is gone, or whose files are not shown, still counts.
        let took: BTreeSet<u32> = took.into_iter().collect();
        Some(if living.is_empty() { took } else { living }.into_iter().collect())
    }

    fn living(&self, file: &Stat) -> BTreeSet<u32> {
        self.openers.get_or_init(lock_openers).iter().filter_map(of(file)).collect()
    }

    /// Why nothing is known of locks, if that is so.
    #[must_use]
    pub fn unreadable(&self) -> Option<String> {
        self.rows().as_ref().err().map(|e| format!("the system's table of locks cannot be read: {e}"))
    }
}

fn of(file: &Stat) -> impl Fn(&(u64, u64, u32)) -> Option<u32> {
    let file = (file.dev, file.ino);
    move |(dev, ino, pid)| ((*dev, *ino) == file).then_some(*pid)
}
