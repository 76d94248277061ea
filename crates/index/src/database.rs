//! The database that an index works with: its file where that can be used, otherwise memory.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use crate::connection::{self, Budget};
use crate::error::{Failure, IndexError, failure};
use crate::file::{self, Found, InWal};
use crate::place::{IndexPlace, Journal, Placed, WhyMemory};
use crate::platform::{self, FileSystem, Identity};
use crate::schema::{self, Mark, SchemaVersion, Step};

/// An open database.
#[derive(Debug)]
pub(crate) struct Database {
    pub connection: Connection,
    pub placed: Placed,
    identity: Option<Identity>,
}

/// Why a file is not used.
enum Stop {
    /// For good: memory is used instead.
    Memory(WhyMemory),
    /// For now: others hold it.
    Busy(&'static str),
    /// It was replaced while it was opened.
    Again,
}

impl Database {
    /// Opens the index of a home. Only a file that others hold, or a lack of memory, is an error.
    pub fn open(home: &Path, place: &IndexPlace, budget: Budget) -> Result<Self, IndexError> {
        /// How often a file that is replaced meanwhile is opened again.
        const TRIES: usize = 5;
        let path = match file::locate(home, place) {
            Ok(path) => path,
            Err(why) => return Self::in_memory(why),
        };
        for _ in 0..TRIES {
            match Self::in_file(&path, budget) {
                Ok(database) => return Ok(database),
                Err(Stop::Memory(why)) => return Self::in_memory(why),
                Err(Stop::Busy(action)) => return Err(IndexError::Busy { path, action, budget: budget.whole() }),
                Err(Stop::Again) => {}
            }
        }
        Self::in_memory(WhyMemory::NotWritable { path, problem: "it is replaced again and again".into() })
    }

    /// An empty one in memory.
    pub fn in_memory(why: WhyMemory) -> Result<Self, IndexError> {
        let made = Connection::open_in_memory().and_then(|mut connection| {
            let transaction = connection.transaction()?;
            schema::make(&transaction)?;
            transaction.commit()?;
            connection.set_prepared_statement_cache_capacity(64);
            Ok(connection)
        });
        match made {
            Ok(connection) => Ok(Self { connection, placed: Placed::Memory { why }, identity: None }),
            Err(source) => {
                Err(IndexError::Sqlite { path: PathBuf::from(":memory:"), action: "making it in memory", source })
            }
        }
    }

    fn in_file(path: &Path, budget: Budget) -> Result<Self, Stop> {
        let folder = path.parent().unwrap_or(path);
        let lock = || file::lock_folder(folder, budget).map_err(|_| Stop::Busy("waiting for others to make it"));
        let mut found = file::look(path).map_err(Stop::Memory)?;
        let mut guard = None;
        if found != (Found::Database { wal: InWal::Yes }) && found != (Found::Database { wal: InWal::No }) {
            guard = Some(lock()?);
            found = file::look(path).map_err(Stop::Memory)?;
            if found == Found::Nothing {
                file::make(path).map_err(|e| {
                    Stop::Memory(WhyMemory::NotWritable { path: path.to_owned(), problem: e.to_string() })
                })?;
            }
        }
        let in_wal = match found {
            Found::Nothing | Found::Empty => InWal::No,
            Found::Database { wal } => wal,
        };
        let stop = |action| move |e: rusqlite::Error| stop(path, action, &e);
        let on = platform::file_system(folder);
        let before = identity(path)?;
        let mut connection = connection::connect(path, in_wal, on, budget).map_err(stop("opening it"))?;
        if identity(path)? != before {
            return Err(Stop::Again);
        }
        if connection.is_readonly("main").map_err(stop("opening it"))? {
            let problem = "it is read-only for this user".to_owned();
            return Err(Stop::Memory(WhyMemory::NotWritable { path: path.to_owned(), problem }));
        }
        let mark = Mark::read(&connection).map_err(stop("reading its version"))?;
        match mark.step() {
            Step::Use => {}
            Step::Create | Step::Rebuild => {
                if guard.is_none() {
                    guard = Some(lock()?);
                }
                make(&mut connection, budget).map_err(stop("making its tables"))?;
            }
            Step::LeaveNewer => {
                let (found, known) = (mark.version, SchemaVersion::CURRENT);
                return Err(Stop::Memory(WhyMemory::TooNew { path: path.to_owned(), found, known }));
            }
            Step::LeaveForeign => return Err(Stop::Memory(WhyMemory::NotOurs { path: path.to_owned() })),
        }
        if let Some(problem) = schema::difference(&connection).map_err(stop("reading its tables"))? {
            return Err(Stop::Memory(WhyMemory::Damaged { path: path.to_owned(), problem }));
        }
        let journal = settle(&connection, on, budget).map_err(stop("settling its journal"))?;
        drop(guard);
        Ok(Self { connection, placed: Placed::File { path: path.to_owned(), journal }, identity: before })
    }

    /// The file, or `:memory:`.
    pub fn path(&self) -> &Path {
        match &self.placed {
            Placed::File { path, .. } => path,
            Placed::Memory { .. } => Path::new(":memory:"),
        }
    }

    /// Whether its file is no longer the one at its path: somebody removed or replaced it.
    pub fn is_gone(&self) -> bool {
        match &self.placed {
            Placed::File { path, .. } => {
                std::fs::symlink_metadata(path).map_or(true, |facts| platform::identity(&facts) != self.identity)
            }
            Placed::Memory { .. } => false,
        }
    }
}

fn identity(path: &Path) -> Result<Option<Identity>, Stop> {
    std::fs::symlink_metadata(path).map(|facts| platform::identity(&facts)).map_err(|_| Stop::Again)
}

/// Makes the tables where nobody else has meanwhile. A new file is in rollback mode, so its header says at once whose
/// it is.
fn make(connection: &mut Connection, budget: Budget) -> rusqlite::Result<()> {
    budget.apply(connection)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    match Mark::read(&transaction)?.step() {
        Step::Create | Step::Rebuild => schema::make(&transaction)?,
        Step::Use | Step::LeaveNewer | Step::LeaveForeign => {}
    }
    budget.apply(&transaction)?;
    transaction.commit()
}

fn settle(connection: &Connection, on: FileSystem, budget: Budget) -> rusqlite::Result<Journal> {
    let journal = connection::settle_journal(connection, on, budget)?;
    connection::trust(connection, journal)?;
    Ok(journal)
}

fn stop(path: &Path, action: &'static str, error: &rusqlite::Error) -> Stop {
    let (path, problem) = (path.to_owned(), error.to_string());
    match failure(error) {
        Failure::Busy => Stop::Busy(action),
        Failure::Damaged => Stop::Memory(WhyMemory::Damaged { path, problem }),
        Failure::Other if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) && !path.exists() => Stop::Again,
        Failure::Other => Stop::Memory(WhyMemory::NotWritable { path, problem }),
    }
}
