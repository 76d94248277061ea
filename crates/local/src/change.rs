//! Changes of where threads are: archive, unarchive, delete, restore. Whole, crash-atomic, with a plan before and an
//! undo after.
//!
//! A change is planned from one look at the home ([`Changer::plan`]) and done from another, under the locks of its
//! threads ([`Changer::apply`]): what was asked for in between does not change what is done. How a crash is survived is in
//! [`journal`]; what goes where, in [`steps`](self).

pub mod apart;
mod apply;
pub mod codex;
pub mod detach;
mod detaching;
mod emptying;
pub mod journal;
pub mod moves;
mod plan;
pub(crate) mod relations;
mod steps;
pub mod trash;

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use threadkeep_index::IndexPlace;
use threadkeep_record::ThreadId;
use threadkeep_rollout::Home;
use threadkeep_rollout::locks::Holder;
use threadkeep_rollout::name_index::NameError;
use threadkeep_rollout::seam::{Disk, RealDisk};
use threadkeep_rollout::writer_lock::LockError;
use threadkeep_store::{Archived, Clock, SystemClock};

pub use apply::{Outcome, Unfinished};
pub use plan::{Decision, Plan, PlannedFile, PlannedThread};
pub(crate) use steps::plain;

use crate::catalog::Catalog;
use crate::thread_store::CodexWriteError;

/// What is done to threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// Into the archive.
    Archive,
    /// Out of the archive.
    Unarchive,
    /// Into the trash.
    Delete,
    /// Out of the trash.
    Restore,
    /// Files that a thread does not need any more, into the trash; a new one in their place.
    Detach,
}

/// Whether the threads that a thread started go with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cascade {
    /// They do.
    Descendants,
    /// They stay, and stand for themselves.
    Alone,
}

/// Why a thread was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// There is no such thread, or none that is not archived.
    #[error("no rollout found for thread id {id}")]
    NotFound {
        /// The thread.
        id: ThreadId,
        /// Whether it is there, and archived.
        archived: Archived,
    },
    /// There is no such thread in the archive.
    #[error("no archived rollout found for thread id {id}")]
    NotArchived {
        /// The thread.
        id: ThreadId,
    },
    /// Only a row or a name is left of it.
    #[error("the transcript of thread {id} is gone: only {left} knows it")]
    TranscriptGone {
        /// The thread.
        id: ThreadId,
        /// What is left.
        left: &'static str,
    },
    /// Nothing of this name is in the trash.
    #[error("nothing of thread {id} is in the trash")]
    NotInTrash {
        /// The thread.
        id: ThreadId,
    },
    /// The thread is in the home, so it cannot come back from the trash.
    #[error("thread {id} is in the home again; nothing of it was restored")]
    IsThere {
        /// The thread.
        id: ThreadId,
    },
    /// The thread was written to since it was detached, so its old files would not have all of it.
    #[error("thread {id} went on since it was detached; its old files stay in the trash")]
    WentOn {
        /// The thread.
        id: ThreadId,
    },
    /// The thread was written to between a crash and the end of its detaching, which was taken back.
    #[error("thread {id} was written to while it was detached; it is as it was")]
    Overtaken {
        /// The thread.
        id: ThreadId,
    },
    /// A self-contained form of the thread cannot be made.
    #[error(transparent)]
    Detach(#[from] detach::DetachError),
    /// Another thread's history needs its files.
    #[error("cannot delete thread {id}: forked history still references it ({} {})", by.len(), if by.len() == 1 { "thread" } else { "threads" })]
    Needed {
        /// The thread.
        id: ThreadId,
        /// Those that need it.
        by: Vec<ThreadId>,
    },
    /// A file's name says that it is of another thread.
    #[error("rollout path `{}` does not match thread id {id}", path.display())]
    OtherName {
        /// The file.
        path: PathBuf,
        /// The thread.
        id: ThreadId,
    },
    /// A file's name does not say when it was made, so its folder is not known.
    #[error("rollout path `{}` missing filename timestamp", path.display())]
    NoTime {
        /// The file.
        path: PathBuf,
    },
    /// A file that is no rollout of the home.
    #[error("rollout path `{}` must be in sessions directory", path.display())]
    Outside {
        /// The file.
        path: PathBuf,
    },
    /// A file name that is no text cannot be written down.
    #[error("the name of {} is not text; nothing was changed", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// Someone writes it.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// Its files did not move.
    #[error(transparent)]
    Moves(#[from] moves::MoveError),
    /// The name index.
    #[error(transparent)]
    Names(#[from] NameError),
    /// The name index could not be read or written.
    #[error("cannot change the name index {}: {source}", path.display())]
    NameFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Codex's database.
    #[error(transparent)]
    Codex(#[from] CodexWriteError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] journal::JournalError),
    /// The trash.
    #[error("cannot use the trash at {}: {source}", path.display())]
    Trash {
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Nothing was done, for the same reason as with another thread of the same change.
    #[error("not done: {why}")]
    NotDone {
        /// The reason.
        why: String,
    },
    /// It was done, and something of it is still to be done.
    #[error("done, but {remains}; the next change in this home goes on with it")]
    Remains {
        /// What.
        remains: String,
    },
}

impl ChangeError {
    /// Who holds the thread, if that is why.
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        match self {
            Self::Lock(LockError::Held { holder, .. }) => holder.as_ref(),
            _ => None,
        }
    }
}

/// Changes the threads of a home.
#[derive(Debug, Clone)]
pub struct Changer {
    /// The home.
    pub home: Home,
    /// Where Codex's databases are, if not in their usual places.
    pub sqlite_home: Option<PathBuf>,
    /// The index beside the files, if one is used.
    pub index: Option<IndexPlace>,
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// How long a change waits for another program's lock of a database or of the name index.
    pub patience: Duration,
    /// Entries of the trash that are meant, for threads of which it holds several; of others the newest is restored.
    pub entries: BTreeMap<ThreadId, String>,
    /// The look that a plan was made from.
    pub last: LastLook,
}

/// The last look at a home and the threads that it was for: what is planned may be done from it, if all that it rested on
/// is as it was then.
#[derive(Clone, Default)]
pub struct LastLook(Arc<Mutex<Option<Looked>>>);

type Looked = (HashSet<ThreadId>, Catalog);

impl std::fmt::Debug for LastLook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LastLook")
    }
}

impl LastLook {
    fn put(&self, ids: impl Iterator<Item = ThreadId>, catalog: Catalog) {
        // One that never stands is only memory.
        *self.lock() = catalog.may_stand().then(|| (ids.collect(), catalog));
    }

    /// Takes it, if it was for these threads.
    fn take(&self, ids: &[ThreadId]) -> Option<Catalog> {
        let (of, catalog) = self.lock().take()?;
        ids.iter().all(|id| of.contains(id)).then_some(catalog)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Looked>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changer {
    /// For a home, on the system's disk and by its clock.
    #[must_use]
    pub fn new(home: Home, sqlite_home: Option<PathBuf>, index: Option<IndexPlace>) -> Self {
        let patience = Duration::from_secs(3);
        let (disk, clock) = (Arc::new(RealDisk), Arc::new(SystemClock));
        Self { home, sqlite_home, index, disk, clock, patience, entries: BTreeMap::new(), last: LastLook::default() }
    }
}
