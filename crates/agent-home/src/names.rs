//! Names of threads: read from a task home before anything there goes, kept in the store, given to the next home.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;
use threadkeep_record::{ThreadId, UtcMillis};

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::platform::Kind;
use crate::reservation::{Hold, Reservation};
use crate::rows::Rows;

/// The name index of a home.
pub const NAME_INDEX: &str = "session_index.jsonl";
const MAX_INDEX: u64 = 256 << 20;

/// Names by thread. An empty one was taken away.
pub type Names = BTreeMap<String, String>;

/// What a task home knows of names.
#[derive(Debug, Default)]
pub struct TaskNames {
    /// By the name index.
    pub index: Names,
    /// By the state databases.
    pub in_databases: Names,
    /// The newest database, if it could be read: the one that Codex uses.
    pub rows: Option<Rows>,
    /// Databases that could not be read, with why: what they hold is not known to be saved.
    pub unread: Vec<(String, String)>,
}

impl TaskNames {
    /// The names of the home: for paginated threads the database has them, and its word counts where it has one.
    #[must_use]
    pub fn all(&self) -> Names {
        let mut all = self.index.clone();
        all.extend(self.in_databases.clone());
        all
    }
}

#[derive(Deserialize)]
struct Line {
    id: ThreadId,
    thread_name: String,
}

/// Reads the names that a home has, in the name index and in the state databases.
pub fn read(home: &Dir) -> Result<TaskNames, HomeError> {
    let mut out = TaskNames { index: read_index(home)?, ..TaskNames::default() };
    for name in databases(home)? {
        match Rows::read(home, &name) {
            Ok(rows) => {
                out.in_databases.extend(rows.names());
                out.rows = Some(rows);
            }
            Err(why) => {
                out.rows = None;
                out.unread.push((name, why));
            }
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

/// The state databases of a home, without their side files, oldest version first.
pub fn databases(home: &Dir) -> Result<Vec<String>, HomeError> {
    let entries = home.entries().attempt("read folder", home.path())?;
    let mut found: Vec<(Option<u32>, String)> = entries
        .into_iter()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter_map(|name| {
            let version = name.strip_prefix("state_")?.strip_suffix(".sqlite")?.parse().ok();
            Some((version, name))
        })
        .collect();
    found.sort();
    Ok(found.into_iter().map(|(_, name)| name).collect())
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
