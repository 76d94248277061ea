//! A connection to the index's file: how long it waits, and which journal it uses.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::{Failure, failure};
use crate::file::{self, InWal};
use crate::place::Journal;
use crate::platform::FileSystem;

/// How long one call may wait in all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    whole: Duration,
    /// `None`: so long that the clock cannot say it.
    end: Option<Instant>,
}

impl Budget {
    pub fn new(whole: Duration) -> Self {
        Self { whole, end: Instant::now().checked_add(whole) }
    }

    pub fn whole(self) -> Duration {
        self.whole
    }

    pub fn left(self) -> Duration {
        self.end.map_or(self.whole, |end| end.saturating_duration_since(Instant::now()))
    }

    /// Has SQLite wait no longer than what is left. To be said again before each step that may wait.
    pub fn apply(self, connection: &Connection) -> rusqlite::Result<()> {
        // SQLite counts milliseconds in 32 bits.
        connection.busy_timeout(self.left().min(Duration::from_secs(1_000_000)))
    }
}

/// Opens an existing file. Until [`trust`] is called, closing the connection changes nothing in it.
pub(crate) fn connect(path: &Path, in_wal: InWal, on: FileSystem, budget: Budget) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    budget.apply(&connection)?;
    if (in_wal, on) == (InWal::Yes, FileSystem::Shared) {
        // A copied home: only an exclusive connection reads a write-ahead log without shared memory.
        set(&connection, "locking_mode", "EXCLUSIVE")?;
    }
    Ok(connection)
}

/// The file is ours and is worked with from now on.
pub(crate) fn trust(connection: &Connection, journal: Journal) -> rusqlite::Result<()> {
    // With a write-ahead log a commit is not synced: a power loss may take back the last hints, and damages nothing.
    // A rollback journal that is not synced might.
    set(
        connection,
        "synchronous",
        match journal {
            Journal::Wal => "NORMAL",
            Journal::Rollback => "FULL",
        },
    )?;
    set(connection, "journal_size_limit", "4194304")?;
    // Each writing back of the log is synced twice; while a home is read for the first time, that was most of the time.
    set(connection, "wal_autocheckpoint", "8192")?;
    set(connection, "cache_size", READING)?;
    set(connection, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(64);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map(drop)
}

/// Room for pages, in KiB with a minus sign. Whoever reads goes through most of them once, so the same memory is used
/// again: what is touched for the first time costs more than reading a page.
const READING: &str = "-256";
/// Whoever writes comes back to many of them.
const WRITING: &str = "-16384";

/// Makes room for a transaction that writes.
pub(crate) fn make_room(connection: &Connection) -> rusqlite::Result<()> {
    set(connection, "cache_size", WRITING).map(drop)
}

/// Closes a file that is left alone. Where nothing is pending in its log, the empty log that opening it made goes too;
/// where something is, all stays for whoever knows it.
pub(crate) fn leave(connection: Connection, path: &Path) {
    let pending = std::fs::metadata(file::beside(path, "-wal")).is_ok_and(|facts| facts.len() > 0);
    if !pending {
        // Where this fails, an empty file stays.
        let _ = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false);
    }
}

/// Settles which journal is used: write-ahead where it can be, found by trying.
pub(crate) fn settle_journal(connection: &Connection, on: FileSystem, budget: Budget) -> rusqlite::Result<Journal> {
    if on == FileSystem::Local {
        loop {
            budget.apply(connection)?;
            let tried = set(connection, "journal_mode", "WAL").and_then(|mode| touch(connection).map(|()| mode));
            match tried {
                Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(Journal::Wal),
                Ok(_) => break,
                // Changing the mode does not wait by itself for others that do the same.
                Err(e) if failure(&e) == Failure::Busy => {
                    if budget.left().is_zero() {
                        return Err(e);
                    }
                    std::thread::sleep(budget.left().min(Duration::from_millis(2)));
                }
                Err(e) if failure(&e) == Failure::Damaged => return Err(e),
                Err(_) => break,
            }
        }
    }
    budget.apply(connection)?;
    let mode: String = connection.pragma_query_value(None, "journal_mode", |r| r.get(0))?;
    if mode.eq_ignore_ascii_case("wal") {
        set(connection, "locking_mode", "EXCLUSIVE")?;
        set(connection, "journal_mode", "DELETE")?;
        set(connection, "locking_mode", "NORMAL")?;
    }
    touch(connection)?;
    Ok(Journal::Rollback)
}

/// Reads something, so that what cannot work fails here.
fn touch(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// Sets a pragma, and returns what it then is (nothing for those that do not answer).
fn set(connection: &Connection, pragma: &str, value: &str) -> rusqlite::Result<String> {
    let mut statement = connection.prepare(&format!("PRAGMA {pragma}={value}"))?;
    let mut rows = statement.query([])?;
    let mut answer = String::new();
    while let Some(row) = rows.next()? {
        answer = match row.get_ref(0)? {
            rusqlite::types::ValueRef::Text(t) => String::from_utf8_lossy(t).into_owned(),
            _ => String::new(),
        };
    }
    Ok(answer)
}
