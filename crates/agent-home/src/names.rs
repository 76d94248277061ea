//! Names of threads: read from a task home before anything there goes, kept in the store, given to the next home.

use std::collections::BTreeMap;
use std::io::Write as _;

use rusqlite::{Connection, OpenFlags};
use serde::Deserialize;
use serde_json::json;
use threadkeep_record::{ThreadId, UtcMillis};

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::platform::Kind;
use crate::reservation::{Hold, Reservation};

/// The name index of a home.
pub const NAME_INDEX: &str = "session_index.jsonl";
const MAX_INDEX: u64 = 256 << 20;

/// Names by thread. An empty one was taken away.
pub type Names = BTreeMap<String, String>;

/// What a task home knows of names.
#[derive(Debug, Default)]
pub struct TaskNames {
    /// By thread.
    pub names: Names,
    /// Databases that could not be read, with why: what they hold is not known to be saved.
    pub unread: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Line {
    id: ThreadId,
    thread_name: String,
}

/// Reads the names that a home has: the name index and, for paginated threads, the state database, whose word counts
/// where it has one.
pub fn read(home: &Dir) -> Result<TaskNames, HomeError> {
    let mut out = TaskNames { names: read_index(home)?, unread: vec![] };
    for name in databases(home)? {
        match read_database(home, &name) {
            Ok(names) => out.names.extend(names),
            Err(why) => out.unread.push((name, why)),
        }
    }
    Ok(out)
}

fn read_index(home: &Dir) -> Result<Names, HomeError> {
    let shown = home.shown(NAME_INDEX);
    let mut names = Names::new();
    // A linked index is the shared home's: nothing in it was said in this task.
    if home.stat(NAME_INDEX).attempt("look at", &shown)?.is_none_or(|s| s.kind != Kind::File) {
        return Ok(names);
    }
    let bytes = home.read(NAME_INDEX, MAX_INDEX).attempt("read", &shown)?.unwrap_or_default();
    for line in bytes.split(|b| *b == b'\n') {
        if let Ok(line) = serde_json::from_slice::<Line>(line) {
            names.insert(line.id.to_string(), line.thread_name.trim().to_owned());
        }
    }
    Ok(names)
}

/// The state databases of a home, without their side files.
pub fn databases(home: &Dir) -> Result<Vec<String>, HomeError> {
    let entries = home.entries().attempt("read folder", home.path())?;
    Ok(entries
        .into_iter()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|n| n.starts_with("state_") && n.ends_with(".sqlite"))
        .collect())
}

/// Reads names from a private copy, so that not even a lock is taken on Codex's file.
fn read_database(home: &Dir, name: &str) -> Result<Names, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let copy = tempfile::tempdir().map_err(|e| text(&e))?;
    for end in ["", "-wal"] {
        let file = format!("{name}{end}");
        let Some(mut from) = crate::dir::absent(home.file(&file)).map_err(|e| text(&e))? else { continue };
        let mut to = std::fs::File::create(copy.path().join(&file)).map_err(|e| text(&e))?;
        std::io::copy(&mut from, &mut to).and_then(|_| to.flush()).map_err(|e| text(&e))?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(copy.path().join(name), flags).map_err(|e| text(&e))?;
    let named: i64 = db
        .query_row("SELECT count(*) FROM pragma_table_info('threads') WHERE name IN ('id', 'name')", [], |r| r.get(0))
        .map_err(|e| text(&e))?;
    let mut names = Names::new();
    if named < 2 {
        return Ok(names);
    }
    let mut rows = db.prepare("SELECT id, name FROM threads WHERE name IS NOT NULL").map_err(|e| text(&e))?;
    let rows = rows.query_map([], |r| Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?))).map_err(|e| text(&e))?;
    for row in rows {
        let (id, name) = row.map_err(|e| text(&e))?;
        if !name.trim().is_empty() {
            names.insert(id, name.trim().to_owned());
        }
    }
    Ok(names)
}

/// Adds names to a task home's index. An index that is a link stays as it is.
pub fn add(home: &Dir, names: &Names, now: UtcMillis) -> Result<(), HomeError> {
    let shown = home.shown(NAME_INDEX);
    let there = home.stat(NAME_INDEX).attempt("look at", &shown)?;
    if names.is_empty() || there.is_some_and(|s| s.kind != Kind::File) {
        return Ok(());
    }
    // Codex waits for this lock while it writes names.
    let _lock = Reservation::need(
        home,
        "session_index.jsonl.lock",
        Hold::Alone,
        crate::reservation::PATIENCE,
        "the name index of the task home",
    )?;
    let mut bytes = home.read(NAME_INDEX, MAX_INDEX).attempt("read", &shown)?.unwrap_or_default();
    if bytes.last().is_some_and(|b| *b != b'\n') {
        bytes.push(b'\n');
    }
    for (id, name) in names {
        bytes.extend(json!({"id": id, "thread_name": name, "updated_at": now}).to_string().into_bytes());
        bytes.push(b'\n');
    }
    let mode = there.map_or(0o600, |s| s.mode & 0o700 | 0o600);
    home.put(NAME_INDEX, &bytes, mode).attempt("write", &shown)
}
