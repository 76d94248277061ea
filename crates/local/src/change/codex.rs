//! What a change of a thread's place changes in Codex's database: the columns that tell the place, or the thread's rows.
//!
//! One transaction, begun before the files move and ended behind it: another program at the database refuses the change
//! while nothing was done yet.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, params};
use threadkeep_index::saved::{self, SavedRow};
use threadkeep_record::ThreadId;

use super::journal::Codex;
use crate::codex_state::{CodexState, open_to_read};
use crate::thread_store::{CodexDb, CodexWriteError};

/// Codex's database, with a transaction that was begun.
#[derive(Debug)]
pub struct CodexRows {
    connection: Connection,
    path: PathBuf,
    columns: Vec<String>,
    changed: bool,
}

/// What came of a step in Codex's database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// It was changed.
    Changed,
    /// There is no row of the thread, so nothing had to be.
    NoRow,
    /// The database lacks a column that this needs; Codex settles it when it looks at the files.
    NoColumn,
    /// The database is damaged, or does not take what it should; Codex settles it when it looks at the files.
    NotTaken,
}

impl CodexRows {
    /// Opens the database that Codex uses, and begins. `None` where there is none that can be used.
    ///
    /// # Errors
    ///
    /// Where another program has it locked, or it cannot be written.
    pub fn begin(db: &CodexDb<'_>) -> Result<Option<Self>, CodexWriteError> {
        for path in CodexState::databases(db.home, db.sqlite_home) {
            // A folder of that name, or a link to nothing, is no database.
            if std::fs::metadata(&path).is_ok_and(|m| !m.is_file()) || !path.exists() {
                continue;
            }
            match Self::try_begin(&path, db) {
                Ok(rows) => return Ok(Some(rows)),
                // Codex puts such a database aside and makes another from the files.
                Err(e) if CodexWriteError::is_damage(&e) => {}
                Err(e) => return Err(CodexWriteError::new(&path, e)),
            }
        }
        Ok(None)
    }

    fn try_begin(path: &Path, db: &CodexDb<'_>) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(db.patience)?;
        // As Codex has it: what belongs to a row goes with it, or the schema's next change would stumble over it.
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.execute_batch("BEGIN EXCLUSIVE")?;
        let columns = saved::columns(&connection, "threads")?;
        if !columns.iter().any(|c| c == "id") {
            // An empty file, or one of something else.
            return Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOTADB),
                Some("it has no table of threads".to_owned()),
            ));
        }
        Ok(Self { connection, path: path.to_owned(), columns, changed: false })
    }

    fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|c| c == column)
    }

    fn failed(&self) -> impl Fn(rusqlite::Error) -> CodexWriteError + '_ {
        |e| CodexWriteError::new(&self.path, e)
    }

    /// Every row of a thread that a deletion takes: its own, those that the schema ties to it, and its spawn edges.
    ///
    /// # Errors
    ///
    /// As SQLite says.
    pub fn rows_of(&self, id: ThreadId) -> Result<Vec<SavedRow>, CodexWriteError> {
        let id = id.to_string();
        let all = || {
            let mut all = saved::rows(&self.connection, "threads", "id", &id)?;
            for (table, column) in self.tied()? {
                all.extend(saved::rows(&self.connection, &table, &column, &id)?);
            }
            for column in ["child_thread_id", "parent_thread_id"] {
                all.extend(saved::rows(&self.connection, EDGES, column, &id)?);
            }
            Ok(all)
        };
        all().map_err(self.failed())
    }

    /// Tables whose rows go with those of `threads`, and their column.
    fn tied(&self) -> rusqlite::Result<Vec<(String, String)>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT t.name, f.\"from\" FROM sqlite_master AS t, pragma_foreign_key_list(t.name) AS f \
             WHERE t.type = 'table' AND f.\"table\" = 'threads' AND f.on_delete = 'CASCADE' ORDER BY t.name",
        )?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    }

    /// The path of a thread's rollout as Codex has it.
    ///
    /// # Errors
    ///
    /// As SQLite says.
    pub fn rollout_path(&self, id: ThreadId) -> Result<Option<String>, CodexWriteError> {
        if !self.has("rollout_path") {
            return Ok(None);
        }
        let rows = saved::rows(&self.connection, "threads", "id", &id.to_string()).map_err(self.failed())?;
        Ok(rows.first().and_then(|row| match row.columns.get("rollout_path") {
            Some(saved::SavedValue::Text(path)) => Some(path.clone()),
            _ => None,
        }))
    }

    /// Does what a journal says of a thread.
    ///
    /// # Errors
    ///
    /// As SQLite says.
    pub fn apply(&mut self, id: ThreadId, step: &Codex) -> Result<Told, CodexWriteError> {
        let told = match self.aside(id, step, "RELEASE step") {
            // The files have moved, and no later try would do better.
            Err(e) if CodexWriteError::is_lasting(&e) => Told::NotTaken,
            told => told.map_err(self.failed())?,
        };
        self.changed |= told == Told::Changed;
        Ok(told)
    }

    /// Tries what a journal says of a thread and takes it back: so it is known before any file moves.
    ///
    /// # Errors
    ///
    /// As SQLite says. What comes back from the trash, and what is for a damaged database, needs nothing there.
    pub fn attempt(&self, id: ThreadId, step: &Codex) -> Result<Told, CodexWriteError> {
        match self.aside(id, step, "ROLLBACK TO step; RELEASE step") {
            Err(e) if CodexWriteError::is_damage(&e) => Ok(Told::NotTaken),
            Err(e) if matches!(step, Codex::Put(_)) && CodexWriteError::is_lasting(&e) => Ok(Told::NotTaken),
            told => told.map_err(self.failed()),
        }
    }

    /// Does a step, ending it as told; one that fails leaves nothing.
    fn aside(&self, id: ThreadId, step: &Codex, end: &str) -> rusqlite::Result<Told> {
        self.connection.execute_batch("SAVEPOINT step")?;
        match self.run(id, step) {
            Ok(told) => self.connection.execute_batch(end).map(|()| told),
            Err(e) if self.connection.is_autocommit() => {
                // A full disk ends the whole transaction; what may still come has to have one.
                self.connection.execute_batch("BEGIN EXCLUSIVE")?;
                Err(e)
            }
            Err(e) => {
                self.connection.execute_batch("ROLLBACK TO step; RELEASE step")?;
                Err(e)
            }
        }
    }

    fn run(&self, id: ThreadId, step: &Codex) -> rusqlite::Result<Told> {
        let c = &self.connection;
        let id = id.to_string();
        let told = |rows: usize| if rows == 0 { Told::NoRow } else { Told::Changed };
        match step {
            Codex::Stay => Ok(Told::NoRow),
            Codex::Place { .. } if !["archived", "archived_at", "rollout_path"].iter().all(|c| self.has(c)) => {
                Ok(Told::NoColumn)
            }
            Codex::Place { archived_at, rollout_path } => c
                .prepare_cached("UPDATE threads SET archived = ?2, archived_at = ?3, rollout_path = ?4 WHERE id = ?1")?
                .execute(params![id, archived_at.is_some(), archived_at, rollout_path])
                .map(told),
            Codex::Path { .. } if !self.has("rollout_path") => Ok(Told::NoColumn),
            Codex::Path { rollout_path } => c
                .prepare_cached("UPDATE threads SET rollout_path = ?2 WHERE id = ?1")?
                .execute(params![id, rollout_path])
                .map(told),
            Codex::Delete => {
                let mut rows = c.prepare_cached("DELETE FROM threads WHERE id = ?1")?.execute([&id])?;
                let there = saved::columns(c, EDGES)?;
                for column in ["child_thread_id", "parent_thread_id"].iter().filter(|c| there.iter().any(|t| t == *c)) {
                    let sql = format!("DELETE FROM {EDGES} WHERE {column} = ?1");
                    rows += c.prepare_cached(&sql)?.execute([&id])?;
                }
                Ok(told(rows))
            }
            Codex::Put(rows) => {
                let mut put = 0;
                for row in rows {
                    let key: &[&str] = match row.table.as_str() {
                        "threads" => &["id"],
                        EDGES => &["child_thread_id"],
                        _ => &[],
                    };
                    put += usize::from(saved::put(c, row, key)?);
                }
                // A row that the table would not have is passed over there.
                let own = rows.iter().any(|row| row.table == "threads");
                if own && saved::rows(c, "threads", "id", &id)?.is_empty() {
                    return Ok(Told::NotTaken);
                }
                Ok(told(put))
            }
        }
    }

    /// Ends the transaction. Without a change the database is left as it was.
    ///
    /// # Errors
    ///
    /// As SQLite says.
    pub fn commit(self) -> Result<(), CodexWriteError> {
        let end = if self.changed { "COMMIT" } else { "ROLLBACK" };
        self.connection.execute_batch(end).map_err(self.failed())
    }
}

const EDGES: &str = "thread_spawn_edges";

/// A thread's goals, as Codex keeps them beside: they are only read.
#[must_use]
pub fn goals(home: &Path, id: ThreadId) -> Vec<SavedRow> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(home).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !(name.starts_with("goals_") && name.ends_with(".sqlite")) {
            continue;
        }
        let Ok((c, _copy)) = open_to_read(&entry.path()) else { continue };
        let read = || -> rusqlite::Result<Vec<SavedRow>> {
            let mut tables = c.prepare("SELECT name FROM sqlite_master WHERE type = 'table'")?;
            let tables: Vec<String> = tables.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
            let mut found = Vec::new();
            for table in tables {
                found.extend(saved::rows(&c, &table, "thread_id", &id.to_string())?);
            }
            Ok(found)
        };
        all.extend(read().unwrap_or_default());
    }
    all
}
