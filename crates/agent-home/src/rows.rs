//! Names in Codex's state database of a task home. For a paginated thread Codex reads `threads.name` and nothing else, and
//! does not fill it from the name index when it makes the database: a name from an earlier task is put into the row once
//! Codex has made that (DESIGN, index). The database itself is never made here.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::dir::Dir;
use crate::names::Names;
use crate::platform::Kind;
use crate::watch::Unwatched;

/// A thread in a database.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    id: String,
    /// As it stands there.
    name: Option<String>,
    /// Whether Codex takes the thread's name from here.
    named_here: bool,
}

/// What a state database says of names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    database: String,
    rows: Vec<Row>,
}

impl Rows {
    /// Reads a private copy, so that not even a lock is taken on Codex's file.
    pub(crate) fn read(home: &Dir, database: &str) -> Result<Self, String> {
        let text = |e: &dyn std::fmt::Display| e.to_string();
        let copy = tempfile::tempdir().map_err(|e| text(&e))?;
        for end in ["", "-wal"] {
            let file = format!("{database}{end}");
            let Some(mut from) = crate::dir::absent(home.file(&file)).map_err(|e| text(&e))? else { continue };
            let mut to = std::fs::File::create(copy.path().join(&file)).map_err(|e| text(&e))?;
            std::io::copy(&mut from, &mut to).and_then(|_| to.flush()).map_err(|e| text(&e))?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let db = Connection::open_with_flags(copy.path().join(database), flags).map_err(|e| text(&e))?;
        let rows = select(&db).map_err(|e| text(&e))?;
        Ok(Self { database: database.to_owned(), rows })
    }

    /// The names that it has.
    pub fn names(&self) -> impl Iterator<Item = (String, String)> + '_ {
        self.rows.iter().filter_map(|row| {
            let name = row.name.as_deref()?.trim();
            (!name.is_empty()).then(|| (row.id.clone(), name.to_owned()))
        })
    }

    /// Puts other names into rows that are there and still say what was read, in one transaction that waits for nobody.
    /// Tells the database, the threads that got a name, and why others did not.
    pub(crate) fn give(&self, home: &Dir, names: &Names) -> Given {
        let wanted: Vec<(&Row, &str)> = self
            .rows
            .iter()
            .filter(|row| row.named_here || row.name.is_some())
            .filter_map(|row| Some((row, names.get(&row.id)?.as_str())))
            .filter(|(row, name)| row.name.as_deref().map(str::trim) != Some(name))
            .collect();
        let mut given = Given { database: self.database.clone(), done: vec![], not_done: None };
        if wanted.is_empty() {
            return given;
        }
        match write(home, &self.database, &wanted) {
            Ok(done) => given.done = done,
            Err(why) => given.not_done = Some(why),
        }
        given
    }
}

/// What came of [`Rows::give`].
#[derive(Debug)]
pub(crate) struct Given {
    pub database: String,
    /// Threads whose row has the name now.
    pub done: Vec<String>,
    /// Why nothing was written where something should have been.
    pub not_done: Option<String>,
}

fn select(db: &Connection) -> rusqlite::Result<Vec<Row>> {
    let has = |column: &str| {
        let sql = "SELECT count(*) FROM pragma_table_info('threads') WHERE name = ?1";
        db.query_row(sql, [column], |r| r.get::<_, i64>(0)).map(|n| n > 0)
    };
    // Releases before that column keep names elsewhere.
    if !has("id")? || !has("name")? {
        return Ok(vec![]);
    }
    let mode = if has("history_mode")? { "history_mode = 'paginated'" } else { "0" };
    let mut rows = db.prepare(&format!("SELECT id, name, {mode} FROM threads"))?;
    let rows = rows.query_map([], |r| Ok(Row { id: r.get(0)?, name: r.get(1)?, named_here: r.get(2)? }))?;
    rows.collect()
}

fn write(home: &Dir, database: &str, wanted: &[(&Row, &str)]) -> Result<Vec<String>, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let stat = home.stat(database).map_err(|e| text(&e))?;
    if !stat.is_some_and(|s| s.kind == Kind::File && s.links == 1) {
        return Err("it is not a file of this home alone".into());
    }
    // SQLite opens by path: it must be this folder's, and lead over no link.
    let real = std::fs::canonicalize(home.path()).map_err(|e| text(&e))?;
    let there = Dir::open(&real, Arc::new(Unwatched)).and_then(|d| d.stat_self()).map_err(|e| text(&e))?;
    if !home.stat_self().map_err(|e| text(&e))?.is_same(&there) {
        return Err("the folder was replaced".into());
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let changed = || {
        let mut db = Connection::open_with_flags(real.join(database), flags)?;
        db.busy_timeout(Duration::ZERO)?;
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut done = Vec::new();
        for (row, name) in wanted {
            // What an agent said in between counts.
            let sql = "UPDATE threads SET name = ?2 WHERE id = ?1 AND name IS ?3";
            if transaction.execute(sql, (&row.id, name, &row.name))? > 0 {
                done.push(row.id.clone());
            }
        }
        transaction.commit()?;
        Ok::<_, rusqlite::Error>(done)
    };
    changed().map_err(|e| text(&e))
}
