//! Lists of threads.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use threadkeep_record::{ThreadId, meta};

use super::{Kept, MemoryThreadStore, invalid};
use crate::contract::StoreResult;
use crate::cursor::{self, Given};
use crate::list::{Direction, SortKey};
use crate::params::{Archived, ListThreads, Relation, WithHistory};
use crate::stored::{StoredThread, ThreadPage};

/// Sort and filters, as a cursor carries them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Query {
    sort_key: SortKey,
    direction: Direction,
    allowed_sources: Vec<String>,
    model_providers: Option<Vec<String>>,
    cwd_filters: Option<Vec<String>>,
    archived: bool,
    search_term: Option<String>,
    /// The thread that is asked about, and whether all below it count.
    relation: Option<(ThreadId, bool)>,
}

/// A place behind a page: what was given so far, so that each thread is given once however threads move meanwhile.
#[derive(Debug, Serialize, Deserialize)]
struct Place {
    kind: String,
    query: Query,
    /// When the first page was made: threads made later are not part of the list.
    as_of_ms: i64,
    given: Given,
}

const KIND: &str = "memory-threads1";

impl Query {
    fn new(p: &ListThreads) -> Self {
        Self {
            sort_key: p.sort_key,
            direction: p.direction,
            allowed_sources: p.allowed_sources.clone(),
            model_providers: p.model_providers.clone(),
            cwd_filters: p.cwd_filters.as_ref().map(|c| c.iter().map(|p| p.to_string_lossy().into_owned()).collect()),
            archived: p.archived,
            search_term: p.search_term.clone(),
            relation: p.relation.map(|r| match r {
                Relation::ChildrenOf(id) => (id, false),
                Relation::DescendantsOf(id) => (id, true),
            }),
        }
    }

    fn keeps(&self, t: &StoredThread) -> bool {
        let provider = t.model_provider.as_deref().unwrap_or("unknown");
        let holds = |text: &str, term: &str| text.to_lowercase().contains(&term.to_lowercase());
        t.archived == self.archived
            && (self.allowed_sources.is_empty() || self.allowed_sources.iter().any(|w| is_source(w, &t.source)))
            && self.model_providers.as_ref().is_none_or(|p| p.is_empty() || p.iter().any(|p| p == provider))
            && self.cwd_filters.as_ref().is_none_or(|dirs| {
                t.cwd.as_ref().is_some_and(|cwd| dirs.iter().any(|d| tidy(Path::new(d)) == tidy(Path::new(cwd))))
            })
            && self
                .search_term
                .as_ref()
                .is_none_or(|term| holds(&t.preview, term) || t.name.as_ref().is_some_and(|name| holds(name, term)))
    }

    fn order(&self, t: &StoredThread) -> (i64, ThreadId) {
        let time = match self.sort_key {
            SortKey::Created => t.created_at,
            SortKey::Updated => t.updated_at,
            SortKey::Recency => t.recency_at,
        };
        (time.0, t.thread_id)
    }
}

/// Whether a source is meant by a word: its own text, or the outer or the inner word of an object form.
fn is_source(word: &str, source: &Value) -> bool {
    let inner = source.as_object().and_then(|o| o.values().next());
    word == meta::source_word(Some(source)) || inner.and_then(Value::as_str) == Some(word)
}

/// A directory as it is compared: as text, without its detours.
fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                tidy.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => tidy.push(part),
        }
    }
    tidy
}

impl MemoryThreadStore {
    pub(super) fn list(&self, params: ListThreads) -> StoreResult<ThreadPage> {
        let mut place = match &params.cursor {
            None => Place {
                kind: KIND.into(),
                query: Query::new(&params),
                as_of_ms: self.clock.now().0,
                given: Given::default(),
            },
            Some(text) => cursor::decode(text, |p: &Place| p.kind == KIND).map_err(|e| invalid(e.to_string()))?,
        };
        let kept = self.lock();
        let related: Option<Vec<ThreadId>> = place.query.relation.map(|(id, all)| {
            let relation = if all { Relation::DescendantsOf(id) } else { Relation::ChildrenOf(id) };
            kept.spawned(relation, None).into_iter().map(|e| e.child).collect()
        });
        let mut rows: Vec<StoredThread> = kept
            .all()
            .filter(|t| related.as_ref().is_none_or(|r| r.contains(&t.thread_id)))
            .filter(|t| params.cursor.is_none() || t.created_at.0 <= place.as_of_ms)
            .filter(|t| place.query.keeps(t) && !place.given.has(&t.thread_id.to_string()))
            .collect();
        rows.sort_by_cached_key(|t| place.query.order(t));
        if place.query.direction == Direction::Descending {
            rows.reverse();
        }
        let more = rows.len() > params.page_size.max(1);
        rows.truncate(params.page_size.max(1));
        rows.iter().for_each(|t| place.given.add(&t.thread_id.to_string()));
        Ok(ThreadPage { threads: rows, next_cursor: more.then(|| cursor::encode(&place)) })
    }
}

impl Kept {
    /// Every thread.
    pub(super) fn all(&self) -> impl Iterator<Item = StoredThread> {
        self.threads.keys().filter_map(|id| self.read(*id, Archived::Included, WithHistory::No).ok())
    }
}
