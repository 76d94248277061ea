//! Finding one thread by id, unique prefix, name or path.

use std::path::{Path, PathBuf};

use threadkeep_record::ThreadId;
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::lineage::{History, Member};
use threadkeep_rollout::walk::FileEntry;

use crate::catalog::Catalog;
use crate::list::{LocalStore, add_names, candidates, load};
use crate::row::{self, Row};

/// Why one thread was not found.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// Nothing fits.
    #[error("no thread with the id, id prefix or name {query:?}")]
    NotFound {
        /// What was asked for.
        query: String,
        /// Names that point to a thread without a file.
        dangling: Vec<ThreadId>,
    },
    /// Several fit.
    #[error("{query:?} fits {} threads", candidates.len())]
    Ambiguous {
        /// What was asked for.
        query: String,
        /// Their ids, with name or preview.
        candidates: Vec<(String, String)>,
    },
    /// Codex's database knows the thread, but its file is gone.
    #[error("the transcript of thread {id} is gone: only Codex's database knows it, at {path}")]
    Gone {
        /// The thread.
        id: ThreadId,
        /// Where its file was.
        path: String,
    },
    /// A thread without an id can only be read.
    #[error("the thread that {query:?} means has no id, so it can only be read")]
    NoId {
        /// What was asked for.
        query: String,
    },
    /// A file outside the homes, where only files of homes are looked at.
    #[error("{} is not in a home", path.display())]
    Outside {
        /// The file.
        path: PathBuf,
    },
    /// A path that cannot be read.
    #[error("failed to resolve rollout path `{}`: {source}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A thread that was found, with what is needed to read it.
pub struct OpenThread {
    /// All homes; the thread is of the one at `home`.
    pub catalogs: Vec<Catalog>,
    /// Index of its home.
    pub home: usize,
    /// Its row.
    pub row: Row,
    /// Its history.
    pub history: History,
}

impl LocalStore {
    /// Finds a thread: an id; a path to a rollout; an exact name; an id prefix; last, an exact preview.
    pub fn open_thread(&self, query: &str, depth: Depth) -> Result<OpenThread, LookupError> {
        let catalogs = self.catalogs();
        let (home, row) = find(&catalogs, query, depth)?;
        Ok(Self::opened(catalogs, home, row))
    }

    /// A thread by its id alone.
    pub fn open_id(&self, id: ThreadId, depth: Depth) -> Result<OpenThread, LookupError> {
        let catalogs = self.catalogs();
        let (home, row) = row_by_id(&catalogs, id, depth)?;
        Ok(Self::opened(catalogs, home, row))
    }

    /// A thread by the path of one of its files, also outside the homes.
    pub fn open_path(&self, path: &Path, depth: Depth) -> Result<OpenThread, LookupError> {
        let catalogs = self.catalogs();
        let (home, row) = by_path(&catalogs, path, depth)?;
        Ok(Self::opened(catalogs, home, row))
    }

    /// The threads that queries mean, each with the index of its home, from one look at the homes. A thread without a
    /// transcript counts, as long as a row or a name is left of it; an id that nothing is known of is one of the first
    /// home.
    pub fn resolve(&self, queries: &[String]) -> Vec<Result<(usize, ThreadId), LookupError>> {
        let ids: Option<Vec<ThreadId>> = queries.iter().map(|q| ThreadId::parse(q.trim()).ok()).collect();
        if let (Some(ids), 1) = (ids, self.homes().len()) {
            return ids.into_iter().map(|id| Ok((0, id))).collect();
        }
        let catalogs = self.catalogs();
        let home_of = |id: ThreadId| {
            let has = |c: &Catalog| c.group(id).is_some() || c.ghosts.contains_key(&id) || c.names.line(id).is_some();
            catalogs.iter().position(has).unwrap_or(0)
        };
        let one = |query: &String| match find(&catalogs, query, Depth::Head) {
            Ok((home, Row { thread, .. })) => match thread.id {
                Some(id) => Ok((home, id)),
                None => Err(LookupError::NoId { query: query.clone() }),
            },
            Err(LookupError::Gone { id, .. }) => Ok((home_of(id), id)),
            Err(LookupError::NotFound { query, dangling }) => {
                match (ThreadId::parse(query.trim()), dangling.as_slice()) {
                    (Ok(id), _) => Ok((home_of(id), id)),
                    (Err(_), [one]) => Ok((home_of(*one), *one)),
                    _ => Err(LookupError::NotFound { query, dangling }),
                }
            }
            Err(other) => Err(other),
        };
        queries.iter().map(one).collect()
    }

    fn opened(catalogs: Vec<Catalog>, home: usize, row: Row) -> OpenThread {
        let head = row.assembly.as_ref().map_or(0, |a| a.head);
        let history = row::history(&catalogs[home], row.thread.id, &row.members, head);
        OpenThread { catalogs, home, row, history }
    }

    /// The key of the thread that a query means, as searches take it. A search looks in homes, so a file outside them
    /// is refused.
    pub fn thread_key(&self, query: &str) -> Result<String, LookupError> {
        let (_, row) = find(&self.catalogs(), query, Depth::Head)?;
        match row.members.iter().find(|m| m.entry.path().is_absolute()) {
            Some(m) => Err(LookupError::Outside { path: m.entry.path() }),
            None => Ok(row.key),
        }
    }
}

/// The row that a query means, with the index of its home.
pub(crate) fn find(catalogs: &[Catalog], query: &str, depth: Depth) -> Result<(usize, Row), LookupError> {
    let query = query.trim();
    let not_found = |dangling| LookupError::NotFound { query: query.to_owned(), dangling };
    if query.is_empty() {
        return Err(not_found(vec![]));
    }
    if let Ok(id) = ThreadId::parse(query) {
        return by_id(catalogs, id, depth).unwrap_or_else(|| Err(not_found(vec![])));
    }
    let looks_like_path =
        query.contains(['/', '\\']) || [".jsonl", ".jsonl.zst", ".json"].iter().any(|e| query.ends_with(e));
    // A name may look like a path (`feat/login`); a file that is there comes first.
    let exists = |p: &Path| p.exists() || catalogs.iter().any(|c| c.home.absolute(p).exists());
    if looks_like_path && (exists(Path::new(query)) || by_name(catalogs, query).0.is_empty()) {
        return by_path(catalogs, Path::new(query), depth);
    }
    let (named, dangling) = by_name(catalogs, query);
    match named.as_slice() {
        [] => {}
        [one] => return by_id(catalogs, *one, depth).unwrap_or_else(|| Err(not_found(dangling))),
        several => return Err(ambiguous(catalogs, query, several)),
    }
    let prefixed = by_prefix(catalogs, query);
    match prefixed.as_slice() {
        [] => {}
        [one] => return by_id(catalogs, *one, depth).unwrap_or_else(|| Err(not_found(dangling))),
        several => return Err(ambiguous(catalogs, query, several)),
    }
    by_preview(catalogs, query, depth).unwrap_or_else(|| Err(not_found(dangling)))
}

/// The row of a thread, with the index of its home.
pub(crate) fn row_by_id(catalogs: &[Catalog], id: ThreadId, depth: Depth) -> Result<(usize, Row), LookupError> {
    let not_found = || LookupError::NotFound { query: id.to_string(), dangling: vec![] };
    by_id(catalogs, id, depth).unwrap_or_else(|| Err(not_found()))
}

fn by_id(catalogs: &[Catalog], id: ThreadId, depth: Depth) -> Option<Result<(usize, Row), LookupError>> {
    let done = |home: usize, row: Row| {
        let mut rows = [(home, row)];
        add_names(catalogs, &mut rows);
        let [row] = rows;
        Some(Ok(row))
    };
    for (home, catalog) in catalogs.iter().enumerate() {
        if let Some(group) = catalog.group(id) {
            return done(home, row::row(catalog, group, depth));
        }
    }
    // A header may name another thread than its file's name does.
    let by_header = threadkeep_rollout::par::map(&candidates(catalogs), |c| {
        let (home, row) = load(catalogs, *c, Depth::Head)?;
        (row.thread.id == Some(id) && !row.members.is_empty()).then_some((home, row))
    });
    let mut found = by_header.into_iter().flatten();
    if let Some((home, first)) = found.next() {
        let catalog = &catalogs[home];
        let same_home = found.filter(|(h, _)| *h == home).flat_map(|(_, row)| row.members);
        let all: Vec<Member> = first.members.into_iter().chain(same_home).collect();
        let members = all.iter().map(|m| row::member(catalog, &m.entry, depth)).collect();
        return done(home, row::build(catalog, all[0].entry.name.id, members, depth));
    }
    for catalog in catalogs {
        if let Some(db) = catalog.ghosts.get(&id) {
            return Some(Err(LookupError::Gone { id, path: db.rollout_path.clone() }));
        }
    }
    None
}

impl OpenThread {
    /// How many threads this one started; `None` in a large home, where it would take reading every head.
    #[must_use]
    pub fn children(&self) -> Option<u64> {
        let id = self.row.thread.id?;
        let all = candidates(&self.catalogs);
        if all.len() > crate::list::SMALL_HOME {
            return None;
        }
        let rows: Vec<(usize, Row)> = threadkeep_rollout::par::map(&all, |c| load(&self.catalogs, *c, Depth::Head))
            .into_iter()
            .flatten()
            .collect();
        let threads = rows.iter().filter_map(|(_, r)| Some((r.thread.id?, r.thread.parent_id)));
        Some(crate::page::children(&self.catalogs, threads).get(&id).map_or(0, |c| c.len() as u64))
    }
}

fn by_path(catalogs: &[Catalog], path: &Path, depth: Depth) -> Result<(usize, Row), LookupError> {
    let failed = |source| LookupError::Path { path: path.to_owned(), source };
    // A rollout that was compressed keeps the name of its plain form.
    let packed = PathBuf::from(format!("{}.zst", path.display()));
    let path = if !path.exists() && packed.exists() { packed.as_path() } else { path };
    let in_home = catalogs.iter().flat_map(|c| [c.home.absolute(path), c.home.absolute(&packed)]).find(|p| p.exists());
    let found = if path.exists() { path.to_owned() } else { in_home.unwrap_or_else(|| path.to_owned()) };
    let full = std::fs::canonicalize(&found).map_err(|e| {
        failed(if e.kind() == std::io::ErrorKind::NotFound {
            std::io::Error::new(e.kind(), "file does not exist")
        } else {
            e
        })
    })?;
    if full.is_dir() {
        return Err(failed(std::io::Error::other("path is a directory")));
    }
    if !full.is_file() {
        return Err(failed(std::io::Error::other("path is not a file")));
    }
    // A file of a home is its thread, with all that belongs to it.
    for (home, catalog) in catalogs.iter().enumerate() {
        let place = catalog
            .groups
            .iter()
            .find(|g| g.files.iter().any(|i| is_same(catalog, &catalog.files[*i as usize], &full)));
        if let Some(group) = place {
            let mut rows = [(home, row::row(catalog, group, depth))];
            add_names(catalogs, &mut rows);
            let [row] = rows;
            return Ok(row);
        }
    }
    let entry = FileEntry::outside(&full).map_err(failed)?;
    let catalog = &catalogs[0];
    let member: Member = row::member(catalog, &entry, depth);
    Ok((0, row::build(catalog, entry.name.id, vec![member], depth)))
}

fn is_same(catalog: &Catalog, entry: &FileEntry, full: &Path) -> bool {
    full.file_name() == entry.path().file_name()
        && std::fs::canonicalize(entry.path_in(catalog.home.path())).is_ok_and(|p| p == full)
}

/// Threads whose name is the query, and the ids of such names that have no file.
fn by_name(catalogs: &[Catalog], query: &str) -> (Vec<ThreadId>, Vec<ThreadId>) {
    let mut found = Vec::new();
    let mut dangling = Vec::new();
    for catalog in catalogs {
        for (id, name) in catalog.names.named() {
            if name == query && !found.contains(&id) {
                if catalog.group(id).is_some() {
                    found.push(id);
                } else if !dangling.contains(&id) {
                    dangling.push(id);
                }
            }
        }
        let rows = catalog.db.lock().unwrap_or_else(std::sync::PoisonError::into_inner).named();
        for (id, row) in rows {
            let only_there = catalog.names.entry(id).is_none() || row.name.is_some();
            if only_there && row.explicit_name(None) == Some(query) && !found.contains(&id) {
                if catalog.group(id).is_some() {
                    found.push(id);
                } else if !dangling.contains(&id) {
                    dangling.push(id);
                }
            }
        }
    }
    if found.is_empty() {
        // A name whose only thread lost its file is still that thread's name.
        found.extend(dangling.iter().copied().filter(|id| catalogs.iter().any(|c| c.ghosts.contains_key(id))));
    }
    (found, dangling)
}

fn by_prefix(catalogs: &[Catalog], query: &str) -> Vec<ThreadId> {
    let prefix = query.to_ascii_lowercase();
    if !prefix.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') {
        return vec![];
    }
    let mut ids: Vec<ThreadId> = catalogs
        .iter()
        .flat_map(|c| c.groups.iter().filter_map(|g| g.id).chain(c.ghosts.keys().copied()))
        .filter(|id| id.to_string().starts_with(&prefix))
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn by_preview(catalogs: &[Catalog], query: &str, depth: Depth) -> Option<Result<(usize, Row), LookupError>> {
    let rows: Vec<(usize, Row)> =
        threadkeep_rollout::par::map(&candidates(catalogs), |c| load(catalogs, *c, Depth::Head))
            .into_iter()
            .flatten()
            .filter(|(_, r)| r.thread.preview.as_deref() == Some(query))
            .collect();
    match rows.as_slice() {
        [] => None,
        [(_, row)] => by_id(catalogs, row.thread.id?, depth),
        several => {
            Some(Err(ambiguous(catalogs, query, &several.iter().filter_map(|(_, r)| r.thread.id).collect::<Vec<_>>())))
        }
    }
}

fn ambiguous(catalogs: &[Catalog], query: &str, ids: &[ThreadId]) -> LookupError {
    const SHOWN: usize = 20;
    let describe = |id: &ThreadId| {
        let row = by_id(catalogs, *id, Depth::Head).and_then(Result::ok).map(|(_, r)| r.thread);
        (id.to_string(), row.and_then(|t| t.name.or(t.preview)).unwrap_or_default())
    };
    let mut candidates: Vec<(String, String)> = ids.iter().take(SHOWN).map(describe).collect();
    candidates.extend(ids.iter().skip(SHOWN).map(|id| (id.to_string(), String::new())));
    LookupError::Ambiguous { query: query.to_owned(), candidates }
}
