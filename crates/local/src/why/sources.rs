//! What each source says of a thread, and where they disagree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::name_index::{self, NameIndex};
use threadkeep_store::thread::Thread;

use crate::catalog::Catalog;
use crate::codex_state::DbRow;
use crate::filter::resolve;
use crate::row::{Row, shown};

/// What each source says. A fact that a source does not have is `None`.
#[derive(Debug, Clone, Serialize)]
pub struct Sources {
    /// The rollout files: the truth.
    pub files: FilesSay,
    /// The index of threadkeep.
    pub index: IndexSays,
    /// Codex's database.
    pub codex_state: CodexStateSays,
    /// `session_index.jsonl`.
    pub name_index: NameIndexSays,
}

/// What the files say.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FilesSay {
    /// `present` or `missing`.
    pub state: &'static str,
    /// The file that a writer appends to.
    pub path: Option<String>,
    /// Whether that file stands in the archive.
    pub archived: Option<bool>,
    /// Time in the header.
    pub created_at: Option<UtcMillis>,
    /// Time of the last record.
    pub updated_at: Option<UtcMillis>,
    /// Newest modification time.
    pub modified_at: Option<UtcMillis>,
    /// First words, or what stands for them.
    pub preview: Option<String>,
    /// Directory.
    pub cwd: Option<String>,
    /// Provider.
    pub model_provider: Option<String>,
}

/// What the index says. A row that is not fresh is not used by any list.
#[derive(Debug, Clone, Serialize)]
pub struct IndexSays {
    /// `fresh`: made from the files as they are; `stale`: from what they were; `no_row`; `none` where there is no index.
    pub state: &'static str,
    /// Why.
    pub reason: String,
    /// The file that it takes for the one that is written to.
    pub path: Option<String>,
    /// Whether the thread is archived.
    pub archived: Option<bool>,
    /// Time of the last record.
    pub updated_at: Option<UtcMillis>,
    /// Preview.
    pub preview: Option<String>,
}

impl IndexSays {
    pub(super) fn of(catalog: &Catalog, id: Option<ThreadId>) -> Self {
        let said = |state, reason: &str| Self {
            state,
            reason: reason.into(),
            path: None,
            archived: None,
            updated_at: None,
            preview: None,
        };
        if let Some(why) = catalog.kept.why_none() {
            return said("none", why);
        }
        let Some((row, is_fresh)) = id.and_then(|id| catalog.kept.find(catalog, id)) else {
            return said("no_row", "it was not read into the index, or does not stand for itself there");
        };
        let (state, reason) = if is_fresh {
            ("fresh", "its files are as they were when they were read")
        } else {
            ("stale", "its files changed since they were read, so lists read them again")
        };
        let t = row.thread;
        Self {
            path: t.files.into_iter().find(|f| f.role == "head").map(|f| f.path),
            archived: Some(t.archived),
            updated_at: t.updated_at,
            preview: t.preview,
            ..said(state, reason)
        }
    }
}

/// What Codex's database says.
#[derive(Debug, Clone, Default, Serialize)]
pub struct CodexStateSays {
    /// `present`; `no_row`; `none` where there is no database; `unreadable`.
    pub state: &'static str,
    /// The database that was read, or that could not be.
    pub database: Option<String>,
    /// Where it thinks the file is.
    pub path: Option<String>,
    /// Whether a file is there.
    pub path_exists: Option<bool>,
    /// Name column.
    pub name: Option<String>,
    /// Title column: the first message, or a name that an older release gave.
    pub title: Option<String>,
    /// Preview column.
    pub preview: Option<String>,
    /// Its flag.
    pub archived: Option<bool>,
    /// When it was archived.
    pub archived_at: Option<UtcMillis>,
    /// Creation.
    pub created_at: Option<UtcMillis>,
    /// Last update.
    pub updated_at: Option<UtcMillis>,
    /// Directory.
    pub cwd: Option<String>,
    /// Provider.
    pub model_provider: Option<String>,
}

/// What the name index says.
#[derive(Debug, Clone, Default, Serialize)]
pub struct NameIndexSays {
    /// `present`; `cleared` (the last entry takes the name away); `no_entry`; `none` where there is no file;
    /// `unreadable`.
    pub state: &'static str,
    /// The file.
    pub path: String,
    /// The name.
    pub name: Option<String>,
    /// The line that says it, from 1.
    pub line: Option<u64>,
    /// Why it cannot be read.
    pub reason: Option<String>,
}

/// A fact that two sources tell differently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disagreement {
    /// `path`, `archived`, `name`, `created_at`, `updated_at`, `preview`, `cwd` or `model_provider`.
    pub fact: &'static str,
    /// Each source with what it says.
    pub says: BTreeMap<&'static str, String>,
    /// The source that counts.
    pub counts: &'static str,
    /// Why that one does.
    pub because: &'static str,
}

/// The sources' words on a thread of which a file is there. `files` is the thread before names were added.
pub(super) fn of(catalogs: &[Catalog], home: usize, row: &Row, files: &Thread) -> (Sources, Vec<Disagreement>) {
    let catalog = &catalogs[home];
    let head = row.assembly.as_ref().and_then(|a| row.members.get(a.head));
    let says = FilesSay {
        state: "present",
        path: head.map(|m| shown(&m.entry.path())),
        archived: Some(files.archived),
        created_at: files.created_at,
        updated_at: files.updated_at,
        modified_at: Some(row.mtime),
        preview: files.preview.clone(),
        cwd: files.cwd.clone(),
        model_provider: files.model_provider.clone(),
    };
    let db = row.thread.id.and_then(|id| catalog.db_rows(&[id]).remove(&id));
    let sources = Sources {
        files: says,
        index: IndexSays::of(catalog, row.thread.id),
        codex_state: codex_state(catalog, db.as_ref()),
        name_index: name_index(catalog, row.thread.id),
    };
    let disagreements = disagreements(catalog, row, files, &sources, db.as_ref());
    (sources, disagreements)
}

/// The sources' words on a thread without a file.
pub(super) fn without_file(catalog: &Catalog, id: Option<ThreadId>) -> Sources {
    let db = id.and_then(|id| catalog.db_rows(&[id]).remove(&id));
    Sources {
        files: FilesSay { state: "missing", ..FilesSay::default() },
        index: IndexSays::of(catalog, id),
        codex_state: codex_state(catalog, db.as_ref()),
        name_index: name_index(catalog, id),
    }
}

fn codex_state(catalog: &Catalog, row: Option<&DbRow>) -> CodexStateSays {
    let (path, looked) = {
        let db = catalog.db.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (db.path.clone(), db.looked.first().map(|l| l.path.clone()))
    };
    let database = path.as_ref().or(looked.as_ref()).map(|p| shown(catalog.home.relative(p)));
    let state = match (&path, row) {
        (Some(_), Some(_)) => "present",
        (Some(_), None) => "no_row",
        (None, _) if looked.is_some() => "unreadable",
        (None, _) => "none",
    };
    let Some(row) = row else { return CodexStateSays { state, database, ..CodexStateSays::default() } };
    let some = |s: &str| Some(s.to_owned()).filter(|s| !s.trim().is_empty());
    let noted = some(&row.rollout_path).map(|p| catalog.home.absolute(Path::new(&p)));
    CodexStateSays {
        state,
        database,
        path_exists: noted.as_ref().map(|p| p.exists() || packed(p).exists()),
        path: some(&row.rollout_path),
        name: row.name.as_deref().and_then(some),
        title: some(&row.title),
        preview: some(&row.preview),
        archived: Some(row.archived),
        archived_at: row.archived_at,
        created_at: row.created_at,
        updated_at: row.updated_at,
        cwd: some(&row.cwd),
        model_provider: some(&row.model_provider),
    }
}

/// The compressed form of a plain rollout; Codex keeps the plain form's path.
fn packed(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".zst");
    name.into()
}

fn name_index(catalog: &Catalog, id: Option<ThreadId>) -> NameIndexSays {
    let file = catalog.home.path().join(name_index::FILE);
    let mut says = NameIndexSays { state: "no_entry", path: name_index::FILE.into(), ..NameIndexSays::default() };
    if !file.exists() {
        says.state = "none";
    } else if let Err(e) = NameIndex::read(catalog.home.path()) {
        says.state = "unreadable";
        says.reason = Some(e.to_string());
    } else if let Some((id, name)) = id.and_then(|id| Some((id, catalog.names.entry(id)?))) {
        says.state = if name.is_empty() { "cleared" } else { "present" };
        says.name = Some(name.to_owned()).filter(|n| !n.is_empty());
        says.line = catalog.names.line(id);
    }
    says
}

/// Times of a database may be whole seconds, and Codex's own update is written some time after the last record.
const CLOSE_MS: i64 = 60_000;

fn disagreements(
    catalog: &Catalog,
    row: &Row,
    files: &Thread,
    sources: &Sources,
    db: Option<&DbRow>,
) -> Vec<Disagreement> {
    let mut found = Vec::new();
    if let Some(says) = named_differently(row, files, sources, db) {
        found.push(says);
    }
    if db.is_none() {
        return found;
    }
    let (f, s) = (&sources.files, &sources.codex_state);
    let mut add = |fact, file: String, state: String, because| {
        let says = [("files", file), ("codex_state", state)].into();
        found.push(Disagreement { fact, says, counts: "files", because });
    };
    if let Some(path) = &s.path
        && !row
            .members
            .iter()
            .any(|m| is_same(&m.entry.path_in(catalog.home.path()), &catalog.home.absolute(Path::new(path))))
    {
        add("path", f.path.clone().unwrap_or_default(), path.clone(), "a thread is looked up by its id in the home");
    }
    if let (Some(place), Some(flag)) = (f.archived, s.archived)
        && place != flag
    {
        add("archived", place.to_string(), flag.to_string(), "the place of the file counts, not the flag");
    }
    let times = [("created_at", f.created_at, s.created_at), ("updated_at", f.updated_at, s.updated_at)];
    for (fact, file, state) in times {
        if let (Some(file), Some(state)) = (file, state)
            && (file.0 - state.0).abs() >= CLOSE_MS
        {
            add(fact, file.to_string(), state.to_string(), "the records' own times count");
        }
    }
    if let (Some(file), Some(state)) = (&f.cwd, &s.cwd)
        && resolve(file) != resolve(state)
    {
        add("cwd", file.clone(), state.clone(), "the header says where the thread ran");
    }
    if let (Some(file), Some(state)) = (&f.model_provider, &s.model_provider)
        && file != state
    {
        add("model_provider", file.clone(), state.clone(), "the header says what the thread ran on");
    }
    if let (Some(file), Some(state)) = (&f.preview, &s.preview)
        && !same_words(file, state)
    {
        let own = row.thread.preview.as_ref() == Some(file);
        let says = [("files", file.clone()), ("codex_state", state.clone())].into();
        found.push(if own {
            Disagreement { fact: "preview", says, counts: "files", because: "the first message counts" }
        } else {
            Disagreement {
                fact: "preview",
                says,
                counts: "codex_state",
                because: "the preview of a fork by reference is kept by Codex alone",
            }
        });
    }
    found
}

/// The two sources of names, where both say something or one takes back what the other says.
fn named_differently(row: &Row, files: &Thread, sources: &Sources, db: Option<&DbRow>) -> Option<Disagreement> {
    let first = files.first_user_message.as_deref().or(files.preview.as_deref());
    let state = db?.explicit_name(first)?;
    let index = match sources.name_index.state {
        "present" => sources.name_index.name.as_deref()?,
        "cleared" => "",
        _ => return None,
    };
    if state == index {
        return None;
    }
    let by_state = row.thread.name.as_deref() == Some(state);
    Some(Disagreement {
        fact: "name",
        says: [("codex_state", state.to_owned()), ("name_index", index.to_owned())].into(),
        counts: if by_state { "codex_state" } else { "name_index" },
        because: if by_state {
            "Codex reads the name of a paginated thread from its own column alone"
        } else {
            "the name index is what Codex reads first"
        },
    })
}

/// Whether two paths are one file, or the plain and the compressed form of one.
fn is_same(own: &Path, noted: &Path) -> bool {
    let full = |p: &Path| std::fs::canonicalize(p).ok();
    let own_full = full(own);
    own == noted
        || own_full.is_some() && (own_full == full(noted) || own_full == full(&packed(noted)))
        || packed(noted) == own
}

/// The same words, or the beginning of them.
fn same_words(a: &str, b: &str) -> bool {
    let words = |s: &str| s.split_whitespace().collect::<Vec<_>>().join(" ");
    let (a, b) = (words(a), words(b));
    a.starts_with(b.trim_end_matches('…')) || b.starts_with(a.trim_end_matches('…'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_that_was_cut_or_spaced_says_the_same() {
        assert!(same_words("hello\n there", "hello there"));
        assert!(same_words("hello there and on", "hello there…"));
        assert!(!same_words("hello there", "goodbye"));
    }

    #[test]
    fn a_path_is_known_in_every_spelling() {
        let folder = tempfile::tempdir().unwrap();
        let plain = folder.path().join("a.jsonl");
        std::fs::write(packed(&plain), b"").unwrap();
        assert!(is_same(&packed(&plain), &plain), "Codex keeps the plain form's path");
        assert!(is_same(
            &packed(&plain),
            &folder.path().join("./../").join(folder.path().file_name().unwrap()).join("a.jsonl.zst")
        ));
        assert!(!is_same(&packed(&plain), &folder.path().join("b.jsonl")));
    }
}
