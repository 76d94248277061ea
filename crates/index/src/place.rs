//! Where an index is kept, and why it is not where it was asked for.

use std::path::PathBuf;

use crate::SchemaVersion;

/// Where an index is asked to be (DESIGN section 6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexPlace {
    /// `threadkeep/index.sqlite` in the home. The home must be there and be the user's own; it is never made here.
    Home,
    /// A folder that the caller names, which is made where it is not there. Each home has its own file in it, so one
    /// folder may serve several.
    Dir(PathBuf),
    /// In memory: nothing of it stays.
    Memory,
}

/// How SQLite keeps a change whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Journal {
    /// Write-ahead log: readers and a writer do not wait for each other. Needs shared memory, so a local file system.
    Wal,
    /// Rollback journal: works on network file systems too.
    Rollback,
}

/// Where an index is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// In a file.
    File {
        /// The file.
        path: PathBuf,
        /// Its journal.
        journal: Journal,
    },
    /// In memory, empty at first.
    Memory {
        /// Why.
        why: WhyMemory,
    },
}

/// Why an index is in memory. The file, where there is one, is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WhyMemory {
    /// It was asked for.
    #[error("the index was asked to be in memory")]
    Asked,
    /// There is no home yet.
    #[error("there is no home at {home}")]
    NoHome {
        /// Where it was looked for.
        home: PathBuf,
    },
    /// The home belongs to another user.
    #[error("the home {home} belongs to another user (uid {owner})")]
    ForeignHome {
        /// The home.
        home: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The folder cannot be made or used.
    #[error("the index folder {folder} cannot be used: {problem}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What is in the way.
        problem: String,
    },
    /// Something else than a file of one name has its name: a folder, a link, a file with a second name (which SQLite
    /// would give two journals).
    #[error("{path} is not used as an index: {problem}")]
    NotAFile {
        /// The path.
        path: PathBuf,
        /// What it is.
        problem: &'static str,
    },
    /// The file cannot be written.
    #[error("the index {path} cannot be written: {problem}")]
    NotWritable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        problem: String,
    },
    /// A newer release made it.
    #[error("the index {path} was made by a newer release (version {found}; this one knows {known})")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: SchemaVersion,
        /// The newest that is known.
        known: SchemaVersion,
    },
    /// It is a database of something else.
    #[error("{path} is a database of another program")]
    NotOurs {
        /// The file.
        path: PathBuf,
    },
    /// It is damaged.
    #[error("the index {path} is damaged: {problem}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
}
