//! The index of one home, shared by threads.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use threadkeep_rollout::Home;
use threadkeep_rollout::seam::{Disk as _, RealDisk};

use crate::connection::{self, Budget};
use crate::database::Database;
use crate::error::{Failure, IndexError, failure};
use crate::file;
use crate::paths::Paths;
use crate::place::{IndexPlace, Journal, Placed, WhyMemory};

/// How an index is opened.
#[derive(Debug, Clone)]
pub struct IndexOptions {
    /// The home it is of.
    pub home: Home,
    /// Where it is kept.
    pub place: IndexPlace,
    /// How long one call may wait for others, in all: other processes at the file, and other threads at this handle.
    /// A few hundred milliseconds are plenty; zero never waits.
    pub busy: Duration,
}

/// The index of a home: one row for each thread of which something was observed or set, and spawn edges.
///
/// All calls are synchronous and may come from several threads at once. Any error is about the index alone. A file that is
/// removed or replaced while it is open is noticed at the next call, which begins a new one.
#[derive(Debug)]
pub struct Index {
    pub(crate) paths: Paths,
    options: IndexOptions,
    /// `None` while its file has to be opened again.
    state: Mutex<Option<Database>>,
    /// Beside `state`, so that asking waits for nobody.
    placed: Mutex<Placed>,
    /// How often another database was opened in the place of one that was gone or damaged.
    reopened: AtomicU64,
}

/// Tells one state of an index from others, as one handle sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexVersion {
    reopened: u64,
    /// SQLite changes it when another connection has committed.
    data: i64,
}

impl Index {
    /// Opens the index of a home, or begins it. What makes its file unusable (not writable, damaged, of a newer release,
    /// of another program) puts it in memory: see [`Index::place`].
    ///
    /// # Errors
    ///
    /// `Busy` where others hold the file for longer than `busy`; `Sqlite` where not even memory can be had.
    pub fn open(options: IndexOptions) -> Result<Self, IndexError> {
        let home = std::path::absolute(options.home.path()).unwrap_or_else(|_| options.home.path().to_owned());
        let options = IndexOptions { home: Home::new(home), ..options };
        let database = Database::open(options.home.path(), &options.place, Budget::new(options.busy))?;
        Ok(Self {
            paths: Paths::new(options.home.path()),
            placed: Mutex::new(database.placed.clone()),
            state: Mutex::new(Some(database)),
            reopened: AtomicU64::new(0),
            options,
        })
    }

    /// Whether a home has an index at a place, usable or not. Nothing is made or opened.
    #[must_use]
    pub fn is_there(home: &Home, place: &IndexPlace) -> bool {
        file::is_there(home.path(), place)
    }

    /// Gives the file of a damaged index another name, with what SQLite keeps beside it, so that a new one can be begun.
    /// Returns the new name.
    ///
    /// # Errors
    ///
    /// What the system says; then some of the files may have their new names.
    pub fn set_aside(path: &std::path::Path) -> std::io::Result<PathBuf> {
        let aside =
            (1..).map(|n| file::beside(path, &format!(".damaged-{n}"))).find(|p| std::fs::symlink_metadata(p).is_err());
        let aside = aside.unwrap_or_else(|| file::beside(path, ".damaged"));
        RealDisk.rename(path, &aside)?;
        for suffix in ["-wal", "-shm", "-journal"] {
            match RealDisk.rename(&file::beside(path, suffix), &file::beside(&aside, suffix)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(aside)
    }

    /// Writes a long log back into the file. A command ends without closing the index, so the log would stay, and each
    /// one after it would read it from end to end to find out what is in it.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says. Where others read the file just now, the log stays for the next time.
    pub fn write_back(&self) -> Result<(), IndexError> {
        /// Up to so many bytes, reading it costs less than writing it back.
        const SHORT: u64 = 1 << 20;
        let Placed::File { path, journal: Journal::Wal } = self.place() else { return Ok(()) };
        if std::fs::metadata(file::beside(&path, "-wal")).map_or(0, |log| log.len()) <= SHORT {
            return Ok(());
        }
        self.run("writing back the log", |connection| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        })
    }

    /// While it is the same, nobody else wrote anything.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn version(&self) -> Result<IndexVersion, IndexError> {
        let data = self.run("asking whether it changed", |connection| {
            connection.query_row("PRAGMA data_version", [], |r| r.get(0))
        })?;
        Ok(IndexVersion { reopened: self.reopened.load(Ordering::Relaxed), data })
    }

    /// Where it is, and if in memory, why. May change when its file is removed, replaced or found to be damaged.
    #[must_use]
    pub fn place(&self) -> Placed {
        self.placed.lock().clone()
    }

    /// The file, or `:memory:`.
    pub(crate) fn shown_path(&self) -> PathBuf {
        match self.place() {
            Placed::File { path, .. } => path,
            Placed::Memory { .. } => PathBuf::from(":memory:"),
        }
    }

    /// Runs one statement, or several that only read.
    pub(crate) fn run<T>(
        &self,
        action: &'static str,
        run: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, IndexError> {
        self.with(action, |connection, _| run(connection))
    }

    /// Runs statements of which all or none count.
    pub(crate) fn transact<T>(
        &self,
        action: &'static str,
        run: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, IndexError> {
        self.with(action, |connection, budget| {
            connection::make_room(connection)?;
            // The write lock comes first: a transaction that reads and then writes may find that it cannot.
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let result = run(&transaction)?;
            // With a rollback journal a commit waits for readers.
            budget.apply(&transaction)?;
            transaction.commit()?;
            Ok(result)
        })
    }

    pub(crate) fn with<T>(
        &self,
        action: &'static str,
        run: impl FnOnce(&mut Connection, Budget) -> rusqlite::Result<T>,
    ) -> Result<T, IndexError> {
        let budget = Budget::new(self.options.busy);
        let busy = |path: PathBuf| IndexError::Busy { path, action, budget: budget.whole() };
        let Some(mut state) = self.state.try_lock_for(budget.whole()) else {
            return Err(busy(self.shown_path()));
        };
        if state.as_ref().is_some_and(Database::is_gone) {
            // Closed before a new one is made: closing tidies up by name.
            *state = None;
        }
        let database = match &mut *state {
            Some(database) => database,
            none => {
                let opened = Database::open(self.options.home.path(), &self.options.place, budget)?;
                *self.placed.lock() = opened.placed.clone();
                self.reopened.fetch_add(1, Ordering::Relaxed);
                none.insert(opened)
            }
        };
        let result = budget.apply(&database.connection).and_then(|()| run(&mut database.connection, budget));
        let source = match result {
            Ok(value) => return Ok(value),
            Err(source) => source,
        };
        let path = database.path().to_owned();
        match failure(&source) {
            Failure::Busy => Err(busy(path)),
            Failure::Damaged => {
                let why = WhyMemory::Damaged { path: path.clone(), problem: source.to_string() };
                *database = Database::in_memory(why)?;
                *self.placed.lock() = database.placed.clone();
                self.reopened.fetch_add(1, Ordering::Relaxed);
                Err(IndexError::Damaged { path, action, source })
            }
            Failure::Other => Err(IndexError::Sqlite { path, action, source }),
        }
    }
}
