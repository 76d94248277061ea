//! A thread that is not there: what was looked at, and what still speaks of it.

use std::path::{Path, PathBuf};

use serde::Serialize;
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::name_index::{self, NameIndex};
use threadkeep_rollout::seam::RealDisk;
use threadkeep_rollout::walk::Place;
use threadkeep_rollout::{RolloutName, par};

use super::places::{PlaceReport, row_without_file};
use super::{Why, hidden, sources};
use crate::catalog::Catalog;
use crate::change::trash::{self, Trash};
use crate::codex_state::DatabaseLook;
use crate::list::{candidates, load};
use crate::row::{self, shown};

/// What was looked at in one home.
#[derive(Debug, Clone, Serialize)]
pub struct LookedAt {
    /// The home.
    pub home: String,
    /// The folders of rollouts, and what was found in each.
    pub folders: Vec<FolderLook>,
    /// Threads that have a file.
    pub threads: u64,
    /// Rows of Codex's database whose thread has no file.
    pub rows_without_file: u64,
    /// The name index.
    pub name_index: NameIndexLook,
    /// Folders that were searched for Codex's databases.
    pub database_folders: Vec<PathBuf>,
    /// Codex's databases that were found.
    pub databases: Vec<DatabaseLook>,
    /// Folders that could not be read; threads below them are missing.
    pub unreadable: Vec<UnreadableFolder>,
    /// Links below the folders, which are not followed: how many.
    pub links_not_followed: u64,
    /// The first of them.
    pub links: Vec<String>,
}

/// A folder of rollouts.
#[derive(Debug, Clone, Serialize)]
pub struct FolderLook {
    /// `sessions` or `archived_sessions`.
    pub path: &'static str,
    /// `read`; `incomplete` where something below it could not be read; `missing`.
    pub state: &'static str,
    /// Rollout files below it.
    pub files: u64,
}

/// The name index of a home.
#[derive(Debug, Clone, Serialize)]
pub struct NameIndexLook {
    /// `read`, `missing` or `unreadable`.
    pub state: &'static str,
    /// Threads to which it gives a name.
    pub names: u64,
    /// Lines that could not be read.
    pub bad_lines: u64,
}

/// A folder that could not be read.
#[derive(Debug, Clone, Serialize)]
pub struct UnreadableFolder {
    /// Path, relative to the home.
    pub path: String,
    /// What the system said.
    pub reason: String,
}

/// A file whose name holds the id and that is no rollout of the home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Similar {
    /// Path, relative to the home.
    pub path: String,
    /// Why it is not taken for the thread's file.
    pub because: &'static str,
}

/// An entry of the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trashed {
    /// Its home.
    pub home: String,
    /// Its name, by which it is restored or emptied.
    pub id: String,
    /// The thread.
    pub thread_id: ThreadId,
    /// The thread's name.
    pub name: Option<String>,
    /// How it began.
    pub preview: Option<String>,
    /// When it was deleted.
    pub deleted_at: UtcMillis,
    /// Bytes of its files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
}

/// What the trash of the homes holds of a thread, newest first.
pub(super) fn trashed(catalogs: &[Catalog], id: ThreadId) -> Vec<Trashed> {
    let mut all = Vec::new();
    for home in catalogs.iter().map(|c| c.home.path()) {
        let trash = Trash::read(&RealDisk, home).unwrap_or_default();
        all.extend(trash.entries.into_iter().filter(|e| e.thread_id == id).map(|e| Trashed {
            home: shown(home),
            bytes: e.bytes(),
            files: e.files.len() as u64,
            id: e.entry,
            thread_id: e.thread_id,
            name: e.name,
            preview: e.preview,
            deleted_at: e.deleted_at,
        }));
    }
    all.sort_by_key(|t| std::cmp::Reverse(t.deleted_at));
    all
}

/// The thread in the trash that a query means.
fn in_trash(catalogs: &[Catalog], query: &str) -> Option<ThreadId> {
    let read = |c: &Catalog| Some(Trash::read(&RealDisk, c.home.path()).ok()?.find(query)?.thread_id);
    catalogs.iter().find_map(read)
}

/// A thread that speaks of the missing one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mention {
    /// The thread; `None` for a file without an id.
    pub thread_id: Option<ThreadId>,
    /// Its file; `None` where Codex's database says it.
    pub path: Option<String>,
    /// `history_base`, `forked_from`, `parent`, `session` or `child`.
    pub says: &'static str,
}

/// At most so many links, similar files and mentions are told.
const SHOWN: usize = 20;
/// A home is searched for similar names until so many entries were seen.
const MOST_ENTRIES: usize = 1_000_000;
/// And so deep.
const MOST_FOLDERS_DOWN: usize = 16;

/// The answer for a thread without a file.
pub(super) fn not_there(catalogs: &[Catalog], query: &str, id: Option<ThreadId>, dangling: &[ThreadId]) -> Why {
    let id = id
        .or_else(|| dangling.first().copied())
        .or_else(|| by_prefix(catalogs, query))
        .or_else(|| in_trash(catalogs, query));
    let ghost = id.and_then(|id| {
        catalogs.iter().enumerate().find_map(|(home, c)| Some((home, row::ghost(id, c.ghosts.get(&id)?))))
    });
    let named = |c: &Catalog| id.is_some_and(|id| c.names.entry(id).is_some());
    // The home that says something of it; where none does, the first.
    let home = ghost.as_ref().map_or_else(|| catalogs.iter().position(named).unwrap_or(0), |(home, _)| *home);
    let sources = sources::without_file(&catalogs[home], id);
    let mut notes = super::notes(catalogs);
    for other in dangling.iter().skip(1) {
        notes.push(format!("the same name stands for thread {other}, whose file is not here either"));
    }
    let mut rows: Vec<_> = ghost.into_iter().collect();
    for (home, row) in &mut rows {
        row::add_names(&catalogs[*home], row, None);
    }
    let hidden_by = rows.first().map(|(home, row)| hidden::by(catalogs, *home, row, query)).unwrap_or_default();
    Why {
        query: query.to_owned(),
        found: false,
        home: (!rows.is_empty() || catalogs.iter().any(named)).then(|| shown(catalogs[home].home.path())),
        thread: rows.into_iter().next().map(|(_, row)| row.thread),
        places: row_without_file(&sources.codex_state).into_iter().collect::<Vec<PlaceReport>>(),
        lineage: vec![],
        sources,
        disagreements: vec![],
        hidden_by,
        list_filters: hidden::kinds().map(|(kind, _)| kind),
        damage: vec![],
        damage_total: 0,
        looked_at: catalogs.iter().map(looked_at).collect(),
        trash: id.map(|id| trashed(catalogs, id)).unwrap_or_default(),
        similar: id.map(|id| similar(catalogs, id)).unwrap_or_default(),
        mentions: id.map(|id| mentions(catalogs, id)).unwrap_or_default(),
        notes,
    }
}

/// The one id of the name index that begins so. (Files and rows were searched by prefix before.)
fn by_prefix(catalogs: &[Catalog], query: &str) -> Option<ThreadId> {
    const SHORTEST: usize = 4;
    let prefix = query.trim().to_ascii_lowercase();
    let mut ids: Vec<ThreadId> = catalogs
        .iter()
        .flat_map(|c| c.names.named())
        .map(|(id, _)| id)
        .filter(|id| prefix.len() >= SHORTEST && id.to_string().starts_with(&prefix))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    (ids.len() == 1).then(|| ids[0])
}

/// What was looked at in a home.
pub(super) fn looked_at(catalog: &Catalog) -> LookedAt {
    let home = catalog.home.path();
    let folder = |path: &'static str, place| FolderLook {
        path,
        state: match home.join(path).is_dir() {
            false => "missing",
            true if catalog.unreadable.iter().any(|p| p.path.starts_with(path)) => "incomplete",
            true => "read",
        },
        files: catalog.files.iter().filter(|f| f.place == place).count() as u64,
    };
    let names = if home.join(name_index::FILE).exists() {
        NameIndex::read(home).map_or("unreadable", |_| "read")
    } else {
        "missing"
    };
    let (databases, database_folders) = {
        let db = catalog.db.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        (db.looked.clone(), db.folders.clone())
    };
    LookedAt {
        home: shown(home),
        folders: vec![folder("sessions", Place::Active), folder("archived_sessions", Place::Archived)],
        threads: catalog.groups.len() as u64,
        rows_without_file: catalog.ghosts.len() as u64,
        name_index: NameIndexLook {
            state: names,
            names: catalog.names.named().len() as u64,
            bad_lines: catalog.names.bad_lines.len() as u64,
        },
        database_folders,
        databases,
        unreadable: catalog
            .unreadable
            .iter()
            .map(|p| UnreadableFolder { path: shown(&p.path), reason: p.error.to_string() })
            .collect(),
        links_not_followed: catalog.links.len() as u64,
        links: catalog.links.iter().take(SHOWN).map(|l| shown(l)).collect(),
    }
}

/// Files of the homes whose name holds the id.
fn similar(catalogs: &[Catalog], id: ThreadId) -> Vec<Similar> {
    let id = id.to_string();
    let mut found = Vec::new();
    for catalog in catalogs {
        let home = catalog.home.path();
        let mut folders = vec![(PathBuf::new(), 0)];
        let mut seen = 0;
        while let Some((folder, depth)) = folders.pop() {
            for entry in std::fs::read_dir(home.join(&folder)).into_iter().flatten().flatten() {
                seen += 1;
                let Ok(kind) = entry.file_type() else { continue };
                let name = entry.file_name().to_string_lossy().to_ascii_lowercase();
                let path = folder.join(entry.file_name());
                // The two folders of rollouts may be links themselves.
                let root = depth == 0 && matches!(name.as_str(), "sessions" | "archived_sessions");
                if kind.is_dir() || root && home.join(&path).is_dir() {
                    if depth < MOST_FOLDERS_DOWN {
                        folders.push((path, depth + 1));
                    }
                } else if name.contains(&id) {
                    found.push(Similar { because: no_rollout(&path, kind), path: shown(&path) });
                }
            }
            if seen > MOST_ENTRIES {
                break;
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.truncate(SHOWN);
    found
}

fn no_rollout(path: &Path, kind: std::fs::FileType) -> &'static str {
    let below = path.starts_with("sessions") || path.starts_with("archived_sessions");
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    if path.starts_with("thread-writer-locks") {
        "Codex's writer lock of the thread"
    } else if path.starts_with(trash::FOLDER) {
        "deleted, and in the trash"
    } else if !below {
        "not below sessions or archived_sessions"
    } else if kind.is_symlink() {
        "a link, and below sessions and archived_sessions none is followed"
    } else if !kind.is_file() {
        "not a file"
    } else {
        match RolloutName::parse(&name) {
            None => "its name is not a rollout's (rollout-….jsonl, .jsonl.zst or .json)",
            Some(_) => "a rollout of another thread",
        }
    }
}

/// Threads that speak of the missing one.
fn mentions(catalogs: &[Catalog], id: ThreadId) -> Vec<Mention> {
    let loaded = par::map(&candidates(catalogs), |c| {
        let (_, row) = load(catalogs, *c, Depth::Head)?;
        let says = row.members.iter().find_map(|m| {
            let header = m.facts.header.as_ref()?;
            let says = if header.history_base.as_ref().is_some_and(|b| b.thread_id == id) {
                "history_base"
            } else if header.forked_from_id == Some(id) {
                "forked_from"
            } else if header.parent() == Some(id) {
                "parent"
            } else if header.session_id == Some(id) {
                "session"
            } else {
                return None;
            };
            Some((says, shown(&m.entry.path())))
        })?;
        Some(Mention { thread_id: row.thread.id, path: Some(says.1), says: says.0 })
    });
    let mut found: Vec<Mention> = loaded.into_iter().flatten().collect();
    for (parent, child) in catalogs.iter().flat_map(Catalog::db_edges) {
        let (other, says) = match (parent == id, child == id) {
            (true, _) => (child, "parent"),
            (false, true) => (parent, "child"),
            (false, false) => continue,
        };
        if !found.iter().any(|m| m.thread_id == Some(other) && m.says == says) {
            found.push(Mention { thread_id: Some(other), path: None, says });
        }
    }
    found.sort_by(|a, b| (a.thread_id, a.says).cmp(&(b.thread_id, b.says)));
    found.truncate(SHOWN);
    found
}
