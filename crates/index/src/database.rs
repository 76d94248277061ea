//! The database that an index works with: its file where that can be used, otherwise memory.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};

use crate::connection::{self, Budget};
use crate::error::{Failure, IndexError, failure};
use crate::file::{self, FolderLock, Found, InWal};
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
        let on = platform::file_system(path.parent().unwrap_or(&path));
        for _ in 0..TRIES {
            match Self::in_file(&path, on, budget) {
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

    fn in_file(path: &Path, on: FileSystem, budget: Budget) -> Result<Self, Stop> {
        let mut found = file::look(path).map_err(Stop::Memory)?;
        let mut guard = None;
        match found {
            Found::Database { .. } => {}
            Found::Nothing | Found::Empty => {
                guard = Some(lock(path, budget)?);
                found = file::look(path).map_err(Stop::Memory)?;
                if found == Found::Nothing {
                    file::make(path).map_err(|e| {
                        Stop::Memory(WhyMemory::NotWritable { path: path.to_owned(), problem: e.to_string() })
                    })?;
                }
            }
        }
        let in_wal = match found {
            Found::Nothing | Found::Empty => InWal::No,
            Found::Database { wal } => wal,
        };
        let stop = |action| move |e: rusqlite::Error| stop(path, action, &e);
        let before = identity(path)?;
        let mut connection = connection::connect(path, in_wal, on, budget).map_err(stop("opening it"))?;
        if identity(path)? != before {
            return Err(Stop::Again);
        }
        if connection.is_readonly("main").map_err(stop("opening it"))? {
            let problem = "it is read-only for this user".to_owned();
            return Err(Stop::Memory(WhyMemory::NotWritable { path: path.to_owned(), problem }));
        }
        match Self::settle(&mut connection, path, on, guard, budget) {
            Ok(journal) => {
                Ok(Self { connection, placed: Placed::File { path: path.to_owned(), journal }, identity: before })
            }
            Err(stop) => {
                connection::leave(connection, path);
                Err(stop)
            }
        }
    }

    /// Brings an open file to the current version, or finds out why it must be left alone. `guard` is the folder's lock
    /// where it is held already.
    fn settle(
        connection: &mut Connection,
        path: &Path,
        on: FileSystem,
        mut guard: Option<FolderLock>,
        budget: Budget,
    ) -> Result<Journal, Stop> {
        let stop = |action| move |e: rusqlite::Error| stop(path, action, &e);
        let mark = Mark::read(connection).map_err(stop("reading its version"))?;
        match mark.step() {
            Step::Use => {}
            Step::Create | Step::Rebuild | Step::Extend => {
                if guard.is_none() {
                    guard = Some(lock(path, budget)?);
                }
                make(connection, budget).map_err(stop("making its tables"))?;
            }
            Step::LeaveNewer => {
                let (found, known) = (mark.version, SchemaVersion::CURRENT);
                return Err(Stop::Memory(WhyMemory::TooNew { path: path.to_owned(), found, known }));
            }
            Step::LeaveForeign => return Err(Stop::Memory(WhyMemory::NotOurs { path: path.to_owned() })),
        }
        if let Some(problem) = schema::difference(connection).map_err(stop("reading its tables"))? {
            return Err(Stop::Memory(WhyMemory::Damaged { path: path.to_owned(), problem }));
        }
        let journal = connection::settle_journal(connection, on, budget)
            .and_then(|journal| connection::trust(connection, journal).map(|()| journal))
            .map_err(stop("settling its journal"))?;
        drop(guard);
        Ok(journal)
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
    let mark = Mark::read(&transaction)?;
    match mark.step() {
        Step::Create | Step::Rebuild => schema::make(&transaction)?,
        Step::Extend => schema::extend(&transaction, mark.version)?,
        Step::Use | Step::LeaveNewer | Step::LeaveForeign => {}
    }
    budget.apply(&transaction)?;
    transaction.commit()
}

fn lock(path: &Path, budget: Budget) -> Result<FolderLock, Stop> {
    file::lock_folder(path.parent().unwrap_or(path), budget).map_err(|_| Stop::Busy("waiting for others to make it"))
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn open(path: &Path, on: FileSystem) -> Database {
        match Database::in_file(path, on, Budget::new(Duration::from_secs(5))) {
            Ok(database) => database,
            Err(Stop::Memory(why)) => panic!("{why}"),
            Err(Stop::Busy(action)) => panic!("busy: {action}"),
            Err(Stop::Again) => panic!("replaced"),
        }
    }

    fn journal(database: &Database) -> Journal {
        match &database.placed {
            Placed::File { journal, .. } => *journal,
            Placed::Memory { why } => panic!("{why}"),
        }
    }

    fn rows(database: &Database) -> i64 {
        database.connection.query_row("SELECT count(*) FROM threads", [], |r| r.get(0)).unwrap()
    }

    #[test]
    fn on_a_shared_file_system_nothing_needs_shared_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap().join("index.sqlite");
        let add = |database: &Database, id: u8| {
            database.connection.execute("INSERT INTO threads (id) VALUES (?1)", [[id]]).unwrap();
        };
        // Several at once, from the first on.
        let (one, two) = (open(&path, FileSystem::Shared), open(&path, FileSystem::Shared));
        assert_eq!((journal(&one), journal(&two)), (Journal::Rollback, Journal::Rollback));
        add(&one, 1);
        add(&two, 2);
        assert_eq!((rows(&one), rows(&two)), (2, 2));
        assert!(!file::beside(&path, "-shm").exists());
        drop((one, two));
        // On a local one it gets its log; a copy taken with the log still pending is read whole, and gives it up.
        let local = open(&path, FileSystem::Local);
        assert_eq!(journal(&local), Journal::Wal);
        add(&local, 3);
        let copied = path.with_file_name("copy.sqlite");
        for suffix in ["", "-wal"] {
            std::fs::copy(file::beside(&path, suffix), file::beside(&copied, suffix)).unwrap();
        }
        assert!(std::fs::metadata(file::beside(&copied, "-wal")).unwrap().len() > 0);
        let shared = open(&copied, FileSystem::Shared);
        assert_eq!((journal(&shared), rows(&shared)), (Journal::Rollback, 3));
        let other = open(&copied, FileSystem::Shared);
        add(&other, 4);
        assert_eq!(rows(&shared), 4);
        assert!(!file::beside(&copied, "-shm").exists() && !file::beside(&copied, "-wal").exists());
    }
}
