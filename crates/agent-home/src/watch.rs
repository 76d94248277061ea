//! The seam: every change that this crate makes to a disk is told before it is made.
//!
//! Tests stand on it: they end a run before any step, and play the steps that a power loss would leave onto a copy of
//! the disk.

use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

/// A change that is about to be made. Paths are as the caller spelt the homes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A folder is made.
    MakeFolder(PathBuf),
    /// A file is made with these bytes and this mode.
    Write {
        /// The file.
        path: PathBuf,
        /// Its contents.
        bytes: Vec<u8>,
    },
    /// The contents of a file are made durable.
    SyncFile(PathBuf),
    /// The names in a folder are made durable.
    SyncFolder(PathBuf),
    /// A symbolic link is made.
    Symlink {
        /// Its text.
        target: PathBuf,
        /// The link.
        path: PathBuf,
    },
    /// A file gets a second name.
    HardLink {
        /// The first.
        from: PathBuf,
        /// The second.
        to: PathBuf,
    },
    /// A file is made that holds what another holds (reflink or copy).
    Copy {
        /// The other.
        from: PathBuf,
        /// The new one.
        to: PathBuf,
    },
    /// A name is moved.
    Rename {
        /// From here.
        from: PathBuf,
        /// To here; what stood there is replaced, unless the call needed a free name.
        to: PathBuf,
    },
    /// A name that is not a folder's is removed.
    RemoveFile(PathBuf),
    /// An empty folder is removed.
    RemoveFolder(PathBuf),
}

/// Someone who is told of each change, and may stop it.
pub trait Watch: Send + Sync + Debug {
    /// Called before the change. An error keeps it from being made and is what its caller gets.
    fn before(&self, change: &Change) -> io::Result<()>;
}

/// Nobody.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unwatched;

impl Watch for Unwatched {
    fn before(&self, _change: &Change) -> io::Result<()> {
        Ok(())
    }
}
