//! Codex's own database, read for what is only there: names and git edits of paginated threads, spawn edges, and rows
//! whose file is gone. Never written, never waited for, and never a condition: without it the files still answer.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, params_from_iter};
use threadkeep_record::{GitInfo, ThreadId, UtcMillis};

/// The newest generation of the database whose tables are known.
const KNOWN_GENERATION: u32 = 5;

/// A row of `threads`, as far as its columns exist.
#[derive(Debug, Clone, Default)]
pub struct DbRow {
    /// The thread.
    pub id: Option<ThreadId>,
    /// Where Codex thinks its file is: only a hint.
    pub rollout_path: String,
    /// Name column (newer releases).
    pub name: Option<String>,
    /// Title column: the first message, or a name given in older releases.
    pub title: String,
    /// First message.
    pub first_user_message: String,
    /// Preview.
    pub preview: String,
    /// Flag.
    pub archived: bool,
    /// When.
    pub archived_at: Option<UtcMillis>,
    /// Creation.
    pub created_at: Option<UtcMillis>,
    /// Last update.
    pub updated_at: Option<UtcMillis>,
    /// Source text, as stored.
    pub source: String,
    /// Provider.
    pub model_provider: String,
    /// Directory.
    pub cwd: String,
    /// Version.
    pub cli_version: String,
    /// Git facts.
    pub git: GitInfo,
}

impl DbRow {
    /// The name that the row holds, if a person gave one: the name column, or a title that is not the first message.
    #[must_use]
    pub fn explicit_name(&self, first_message: Option<&str>) -> Option<&str> {
        if let Some(name) = self.name.as_deref().map(str::trim).filter(|n| !n.is_empty()) {
            return Some(name);
        }
        let title = self.title.trim();
        let same = |text: &str| same_text(title, text);
        let derived = same(&self.first_user_message) || same(&self.preview) || first_message.is_some_and(same);
        (!title.is_empty() && !derived).then_some(title)
    }
}

/// Whether a title is the text it was derived from: the same words, or the beginning of them.
fn same_text(title: &str, text: &str) -> bool {
    let mut words = text.split_whitespace();
    let mut title_words = title.split_whitespace().peekable();
    if text.trim().is_empty() {
        return false;
    }
    while let Some(word) = title_words.next() {
        match words.next() {
            Some(w) if w == word => {}
            Some(w) => {
                return title_words.peek().is_none() && title.len() >= 40 && w.starts_with(word.trim_end_matches('…'));
            }
            None => return false,
        }
    }
    words.next().is_none() || title.len() >= 40
}

/// A database that was found.
#[derive(Debug, Clone, serde::Serialize)]
pub struct DatabaseLook {
    /// The file.
    pub path: PathBuf,
    /// `read`, `unreadable`, or `not_read` where a better one is read.
    pub state: &'static str,
    /// Why it is not read.
    pub reason: Option<String>,
}

/// Codex's database of one home.
#[derive(Debug, Default)]
pub struct CodexState {
    connection: Option<Connection>,
    columns: Vec<String>,
    /// The file that is read.
    pub path: Option<PathBuf>,
    /// The folders that were looked in, in order.
    pub folders: Vec<PathBuf>,
    /// The databases found there, each with what became of it, the one that is read first among them.
    pub looked: Vec<DatabaseLook>,
    /// What is odd about the databases, for the person.
    pub notes: Vec<String>,
    /// Holds a private copy alive while it is read.
    copy: Option<tempfile::TempDir>,
}

impl CodexState {
    /// Looks for the database in the given folder, `CODEX_SQLITE_HOME`, the `sqlite_home` of the home's config, the
    /// home and `sqlite` in it, and opens the newest that can be read.
    #[must_use]
    pub fn open(home: &Path, sqlite_home: Option<&Path>) -> Self {
        let mut state = Self::default();
        state.folders = state.folders(home, sqlite_home);
        let found = databases_in(&state.folders);
        for path in &found {
            let look = |state, reason| DatabaseLook { path: path.clone(), state, reason };
            if state.path.is_some() {
                state.looked.push(look("not_read", Some("another one is read".into())));
                state.notes.push(format!("another Codex database is there and not read: {}", path.display()));
                continue;
            }
            match state.try_open(path) {
                Ok(()) => {
                    state.looked.push(look("read", None));
                    state.path = Some(path.clone());
                }
                Err(why) => {
                    state.looked.push(look("unreadable", Some(why.clone())));
                    state.connection = None;
                    state.notes.push(format!(
                        "Codex's database cannot be read, so the files answer alone: {}: {why}",
                        path.display()
                    ));
                }
            }
        }
        state
    }

    /// The databases of a home, in the order in which they are tried.
    #[must_use]
    pub fn databases(home: &Path, sqlite_home: Option<&Path>) -> Vec<PathBuf> {
        databases_in(&Self::default().folders(home, sqlite_home))
    }

    fn folders(&mut self, home: &Path, sqlite_home: Option<&Path>) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = sqlite_home.map(Path::to_owned).into_iter().collect();
        folders.extend(std::env::var_os("CODEX_SQLITE_HOME").filter(|v| !v.is_empty()).map(PathBuf::from));
        let config = home.join("config.toml");
        match std::fs::read_to_string(&config) {
            Ok(text) => match text.parse::<toml_edit::DocumentMut>() {
                Ok(doc) => folders.extend(doc.get("sqlite_home").and_then(|v| v.as_str()).map(|p| home.join(p))),
                Err(e) => self.notes.push(format!("cannot read {}: {}", config.display(), e.message())),
            },
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => self.notes.push(format!("cannot read {}: {e}", config.display())),
        }
        folders.push(home.to_owned());
        folders.push(home.join("sqlite"));
        folders
    }

    fn try_open(&mut self, path: &Path) -> Result<(), String> {
        let text = |e: rusqlite::Error| e.to_string();
        let (connection, copy) = open_to_read(path)?;
        self.copy = copy;
        let mut columns = Vec::new();
        {
            let mut statement = connection.prepare("select name from pragma_table_info('threads')").map_err(text)?;
            let mut rows = statement.query([]).map_err(text)?;
            while let Some(row) = rows.next().map_err(text)? {
                columns.push(row.get::<_, String>(0).map_err(text)?);
            }
        }
        if !columns.iter().any(|c| c == "id") {
            return Err("it has no table of threads".into());
        }
        connection.query_row("select count(*) from (select 1 from threads limit 1)", [], |_| Ok(())).map_err(text)?;
        self.columns = columns;
        self.connection = Some(connection);
        Ok(())
    }

    /// The columns of its table of threads.
    #[must_use]
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The ids of all rows.
    #[must_use]
    pub fn ids(&mut self) -> Vec<ThreadId> {
        let result = (|| {
            let Some(c) = &self.connection else { return Ok(vec![]) };
            let mut statement = c.prepare("select id from threads")?;
            let rows = statement.query_map([], |r| r.get::<_, String>(0))?;
            Ok(rows.flatten().filter_map(|id| ThreadId::parse(&id).ok()).collect())
        })();
        self.or_note(result)
    }

    /// The rows of some threads.
    #[must_use]
    pub fn rows(&mut self, ids: &[ThreadId]) -> HashMap<ThreadId, DbRow> {
        let mut all = HashMap::new();
        for chunk in ids.chunks(500) {
            let marks = vec!["?"; chunk.len()].join(",");
            let sql = format!("select {} from threads where id in ({marks})", self.select_list());
            let texts: Vec<String> = chunk.iter().map(ToString::to_string).collect();
            let result = (|| {
                let Some(c) = &self.connection else { return Ok(HashMap::new()) };
                let mut statement = c.prepare_cached(&sql)?;
                let rows = statement.query_map(params_from_iter(texts.iter()), read_row)?;
                Ok(rows.flatten().filter_map(|r| Some((r.id?, r))).collect::<HashMap<_, _>>())
            })();
            all.extend(self.or_note(result));
        }
        all
    }

    /// The rows that may hold a name: a name column, or a title that is not the first message.
    #[must_use]
    pub fn named(&mut self) -> Vec<(ThreadId, DbRow)> {
        let has = |c: &str| self.columns.iter().any(|h| h == c);
        let name = if has("name") { "name is not null" } else { "0" };
        let title = if has("title") && has("first_user_message") {
            "title <> first_user_message"
        } else if has("title") {
            "1"
        } else {
            "0"
        };
        let sql = format!("select {} from threads where {name} or {title}", self.select_list());
        let result = (|| {
            let Some(c) = &self.connection else { return Ok(vec![]) };
            let mut statement = c.prepare(&sql)?;
            let rows = statement.query_map([], read_row)?;
            Ok(rows.flatten().filter_map(|r| Some((r.id?, r))).collect())
        })();
        self.or_note(result)
    }

    /// Spawn edges, as (parent, child).
    #[must_use]
    pub fn edges(&mut self) -> Vec<(ThreadId, ThreadId)> {
        let result = (|| {
            let Some(c) = &self.connection else { return Ok(vec![]) };
            let table: i64 =
                c.query_row("select count(*) from sqlite_master where name='thread_spawn_edges'", [], |r| r.get(0))?;
            if table == 0 {
                return Ok(vec![]);
            }
            let mut statement = c.prepare("select parent_thread_id, child_thread_id from thread_spawn_edges")?;
            let rows = statement.query_map([], |r| Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?)))?;
            Ok(rows
                .flatten()
                .filter_map(|(p, c)| Some((ThreadId::parse(&p).ok()?, ThreadId::parse(&c).ok()?)))
                .collect())
        })();
        self.or_note(result)
    }

    fn or_note<T: Default>(&mut self, result: rusqlite::Result<T>) -> T {
        result.unwrap_or_else(|e| {
            let path = self.path.as_deref().unwrap_or(Path::new("state")).display().to_string();
            let note = format!("Codex's database cannot be read, so the files answer alone: {path}: {e}");
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
            T::default()
        })
    }

    /// The columns that this generation has; the others read as null.
    fn select_list(&self) -> String {
        let wanted = [
            "id",
            "rollout_path",
            "name",
            "title",
            "first_user_message",
            "preview",
            "archived",
            "archived_at",
            "created_at_ms",
            "created_at",
            "updated_at_ms",
            "updated_at",
            "source",
            "model_provider",
            "cwd",
            "cli_version",
            "git_sha",
            "git_branch",
            "git_origin_url",
        ];
        wanted
            .iter()
            .map(|w| if self.columns.iter().any(|c| c == w) { (*w).to_owned() } else { format!("null as {w}") })
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn databases_in(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found: Vec<(u32, std::time::SystemTime, PathBuf)> = Vec::new();
    for folder in folders {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let generation =
                name.strip_prefix("state_").and_then(|n| n.strip_suffix(".sqlite")).and_then(|n| n.parse().ok());
            let modified = entry.metadata().and_then(|m| m.modified()).unwrap_or(std::time::UNIX_EPOCH);
            if let Some(generation) = generation
                && !found.iter().any(|(_, _, p)| *p == entry.path())
            {
                found.push((generation, modified, entry.path()));
            }
        }
    }
    // Known generations first, newest first; a newer one is only read when nothing known can be.
    found.sort_by_key(|(generation, modified, _)| {
        std::cmp::Reverse((*generation <= KNOWN_GENERATION, *generation, *modified))
    });
    found.into_iter().map(|(_, _, path)| path).collect()
}

/// Opens a database of Codex's without writing to it or to anything beside it, and without waiting. The folder that may
/// come with it holds a private copy and has to live as long as the connection.
pub(crate) fn open_to_read(path: &Path) -> Result<(Connection, Option<tempfile::TempDir>), String> {
    let text = |e: rusqlite::Error| e.to_string();
    let pending = |suffix: &str| std::fs::metadata(with_suffix(path, suffix)).is_ok_and(|m| m.len() > 0);
    if pending("-wal") || pending("-journal") {
        // Opening such a database would write to its shared-memory file, and wait for its locks. A private copy
        // does neither.
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let copy = snapshot(path, folder.path())?;
        return Ok((Connection::open(&copy).map_err(text)?, Some(folder)));
    }
    // Nothing is pending, so the file alone is the whole truth; `immutable` takes no lock and makes no file.
    let uri = format!("file:{}?mode=ro&immutable=1", uri_path(path));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok((Connection::open_with_flags(uri, flags).map_err(text)?, None))
}

fn read_row(r: &rusqlite::Row<'_>) -> rusqlite::Result<DbRow> {
    let text = |i: usize| r.get::<_, Option<String>>(i).ok().flatten();
    let number = |i: usize| r.get::<_, Option<i64>>(i).ok().flatten();
    let time = |ms: usize, s: usize| {
        number(ms).or_else(|| number(s)).filter(|n| *n > 0).map(UtcMillis::from_seconds_or_millis)
    };
    Ok(DbRow {
        id: text(0).and_then(|t| ThreadId::parse(&t).ok()),
        rollout_path: text(1).unwrap_or_default(),
        name: text(2),
        title: text(3).unwrap_or_default(),
        first_user_message: text(4).unwrap_or_default(),
        preview: text(5).unwrap_or_default(),
        archived: number(6).unwrap_or(0) != 0,
        archived_at: number(7).filter(|n| *n > 0).map(UtcMillis::from_seconds_or_millis),
        created_at: time(8, 9),
        updated_at: time(10, 11),
        source: text(12).unwrap_or_default(),
        model_provider: text(13).unwrap_or_default(),
        cwd: text(14).unwrap_or_default(),
        cli_version: text(15).unwrap_or_default(),
        git: GitInfo { sha: text(16), branch: text(17), origin_url: text(18) },
    })
}

/// Copies a database with what is pending for it. A copy during which the original changed is made again.
fn snapshot(path: &Path, folder: &Path) -> Result<PathBuf, String> {
    const TRIES: usize = 4;
    let parts: Vec<PathBuf> = ["", "-wal", "-journal"].iter().map(|s| with_suffix(path, s)).collect();
    let state = || -> Vec<Option<(u64, std::time::SystemTime)>> {
        parts.iter().map(|p| std::fs::metadata(p).ok().and_then(|m| Some((m.len(), m.modified().ok()?)))).collect()
    };
    let copy = folder.join("state.sqlite");
    for _ in 0..TRIES {
        let before = state();
        for (part, suffix) in parts.iter().zip(["", "-wal", "-journal"]) {
            let to = with_suffix(&copy, suffix);
            match std::fs::copy(part, &to) {
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::NotFound && !suffix.is_empty() => {
                    let _ = std::fs::remove_file(&to);
                }
                Err(e) => return Err(e.to_string()),
            }
        }
        if state() == before {
            return Ok(copy);
        }
    }
    Err("it changes too quickly to be copied".into())
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// A path inside a `file:` URI: `%`, `?` and `#` would end or change it.
fn uri_path(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_a_name_only_when_it_is_not_the_first_message() {
        let row = |title: &str, first: &str| DbRow {
            title: title.into(),
            first_user_message: first.into(),
            ..DbRow::default()
        };
        assert_eq!(row("hello\n there", "hello there").explicit_name(None), None);
        assert_eq!(row("My name", "hello").explicit_name(None), Some("My name"));
        assert_eq!(row("hello", "").explicit_name(Some("hello")), None);
        assert_eq!(row("hell", "hello").explicit_name(None), Some("hell"));
        assert_eq!(row("", "hello").explicit_name(None), None);
    }
}
