//! Pages: threads, hits, turns and items.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use threadkeep_record::{Speaker, ThreadMetadata, UtcMillis};
use threadkeep_rollout::facts::Depth;
use threadkeep_store::cursor::{Cursor, ItemCursor, TurnCursor};
use threadkeep_store::turns::Turn;
use threadkeep_store::{
    Clock as _, Direction, Include, InvalidCursor, ItemPage, ListQuery, ListThreads, ListTurns, Occurrence,
    OccurrencePage, PlacedItem, SearchOccurrences, SearchQuery, SearchThreads, SortKey, StoreResult, StoredThread,
    SystemClock, ThreadHit, ThreadHitPage, ThreadPage, ThreadStoreError, TurnPage,
};

use super::convert::from_row;
use super::{Inner, internal, invalid};
use crate::catalog::Catalog;
use crate::fill::{Begin, Until, Whole, fill};
use crate::list::{ListOptions, RowsFrom};
use crate::lookup::{OpenThread, row_by_id};
use crate::row::Row;
use crate::search::{OfEach, SearchError, SearchOptions};
use crate::show::Detail;
use crate::turn_index::TurnIndex;

/// How long the index is filled behind a list.
const BEHIND: Duration = Duration::from_secs(2);

fn bad_cursor(e: InvalidCursor) -> ThreadStoreError {
    invalid(e.to_string())
}

impl Inner {
    /// When a first page is made, by the clock that file times are of: cursors compare the two.
    fn mark(&self) -> UtcMillis {
        SystemClock.now()
    }

    pub fn list(&self, p: &ListThreads) -> StoreResult<ThreadPage> {
        let limit = p.page_size.max(1);
        let mut cwds = match p.cwd_filters.as_deref() {
            None => vec![None],
            // No directory at all matches nothing.
            Some([]) => return Ok(ThreadPage::default()),
            Some(all) => all.iter().map(|c| Some(c.to_string_lossy().into_owned())).collect(),
        };
        let base = ListQuery {
            sort: p.sort_key,
            direction: p.direction,
            // A store hides no kind of thread; empty ones are there once they are made.
            include: Include { archived: p.archived, ..Include::ALL },
            archived_only: p.archived,
            sources: p.allowed_sources.clone(),
            providers: p.model_providers.clone().unwrap_or_default(),
            matching: p.search_term.clone(),
            ..ListQuery::default()
        };
        // A cursor carries its own sort and filters.
        if p.relation.is_none() && cwds.len() == 1 {
            let query = ListQuery { cwd: cwds.swap_remove(0), ..base };
            let options = ListOptions { limit, exact: true, count: false, rows: RowsFrom::Files };
            let page = self.read.list(&query, p.cursor.as_deref(), options, self.mark()).map_err(bad_cursor)?;
            let threads = page.rows.iter().filter_map(|(_, row)| self.listed(row)).collect();
            self.index_behind(page.catalogs);
            return Ok(ThreadPage { threads, next_cursor: page.next_cursor });
        }
        self.list_chosen(p, base, &cwds, limit)
    }

    /// Lists that a single query does not say: several directories, or a relation.
    fn list_chosen(
        &self,
        p: &ListThreads,
        base: ListQuery,
        cwds: &[Option<String>],
        limit: usize,
    ) -> StoreResult<ThreadPage> {
        let related = match p.relation {
            None => None,
            Some(relation) => Some(self.edges(relation, None)?),
        };
        let mut rows: Vec<Row> = Vec::new();
        for cwd in cwds {
            let query = ListQuery { cwd: cwd.clone(), ..base.clone() };
            let options = ListOptions { limit: usize::MAX, exact: true, count: false, rows: RowsFrom::Files };
            let page = self.read.list(&query, None, options, self.mark()).map_err(bad_cursor)?;
            rows.extend(page.rows.into_iter().map(|(_, row)| row));
        }
        rows.retain(|r| related.as_ref().is_none_or(|edges| edges.iter().any(|e| Some(e.child) == r.thread.id)));
        let time = |row: &Row| match p.sort_key {
            SortKey::Created => row.created().0,
            SortKey::Updated => row.updated().0,
            SortKey::Recency => row.recency().0,
        };
        rows.sort_by(|a, b| {
            let order = (time(a), &a.key).cmp(&(time(b), &b.key));
            if p.direction == Direction::Descending { order.reverse() } else { order }
        });
        rows.dedup_by(|a, b| a.key == b.key);
        if let Some(text) = &p.cursor {
            let cursor = Cursor::decode(text).map_err(bad_cursor)?;
            if cursor.query != base {
                return Err(invalid(format!("invalid cursor: {text}")));
            }
            let last = (cursor.last_ms, cursor.last_id.as_str());
            rows.retain(|row| {
                let here = (time(row), row.key.as_str());
                if p.direction == Direction::Descending { here < last } else { here > last }
            });
        }
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows
            .last()
            .filter(|_| more)
            .map(|row| Cursor::new(base, self.mark().0, time(row), row.key.clone()).encode());
        Ok(ThreadPage { threads: rows.iter().filter_map(|row| self.listed(row)).collect(), next_cursor })
    }

    /// Brings the index up to what was just seen, beside whatever the caller does next. One at a time: the next list
    /// goes on where this one ended.
    fn index_behind(&self, catalogs: Vec<Catalog>) {
        if self.filling.swap(true, Ordering::AcqRel) {
            return;
        }
        let filling = Arc::clone(&self.filling);
        let work = move || {
            for catalog in &catalogs {
                // Whatever keeps the index from being written costs time, never an answer.
                let _ = fill(catalog, Begin::IfWorth, Whole::These(&[]), Until::Then(Instant::now() + BEHIND));
            }
            filling.store(false, Ordering::Release);
        };
        if std::thread::Builder::new().name("threadkeep-index".into()).spawn(work).is_err() {
            self.filling.store(false, Ordering::Release);
        }
    }

    /// A row of a list as a thread of the store.
    fn listed(&self, row: &Row) -> Option<StoredThread> {
        let id = row.thread.id?;
        let mut thread = from_row(id, row, &ThreadMetadata::default());
        let head = row.assembly.as_ref().and_then(|a| row.members.get(a.head))?;
        let path = head.entry.path_in(self.home.path());
        thread.rollout_path =
            Some(if path.extension().is_some_and(|e| e == "zst") { path.with_extension("") } else { path });
        Some(thread)
    }

    pub fn search(&self, p: &SearchThreads) -> StoreResult<ThreadHitPage> {
        let query = ListQuery { archived_only: p.archived, ..ListQuery::default() };
        let search = SearchQuery { term: p.search_term.clone(), ..SearchQuery::default() };
        let options = SearchOptions { limit: p.page_size.max(1), count: false, of_each: OfEach::First };
        let page = self.searched(&query, &search, p.cursor.as_deref(), options)?;
        let mut hits = Vec::new();
        let catalogs = self.read.catalogs();
        for row in page.hits.iter().filter(|row| p.archived || !row.archived) {
            let Some(id) = row.hit.thread_id else { continue };
            let (_, found) = row_by_id(&catalogs, id, Depth::HeadAndTail).map_err(internal)?;
            if let Some(thread) = self.listed(&found) {
                hits.push(ThreadHit { thread, snippet: row.hit.snippet.clone() });
            }
        }
        Ok(ThreadHitPage { hits, next_cursor: page.next_cursor })
    }

    fn searched(
        &self,
        query: &ListQuery,
        search: &SearchQuery,
        cursor: Option<&str>,
        options: SearchOptions,
    ) -> StoreResult<crate::SearchPage> {
        self.read.search(query, search, cursor, options, self.mark()).map_err(|e| match e {
            SearchError::EmptyTerm => invalid(e.to_string()),
            SearchError::Cursor(c) => bad_cursor(c),
            SearchError::Speaker(s) => internal(s),
        })
    }

    pub fn occurrences(&self, p: &SearchOccurrences) -> StoreResult<OccurrencePage> {
        if p.search_term.is_empty() {
            return Err(invalid("thread/searchOccurrences requires search_term"));
        }
        if p.page_size == 0 {
            return Err(invalid("thread/searchOccurrences requires page_size greater than zero"));
        }
        // Asked of a thread that is not there, a search would only find nothing.
        self.open(p.thread_id, threadkeep_store::Archived::Included, Depth::Head)?;
        let search = SearchQuery {
            term: p.search_term.clone(),
            threads: vec![p.thread_id.to_string()],
            speakers: [Speaker::User, Speaker::Agent].map(|s| s.word().to_owned()).to_vec(),
            case_sensitive: false,
        };
        let options = SearchOptions { limit: p.page_size, count: false, of_each: OfEach::All };
        let page = self.searched(&ListQuery::default(), &search, p.cursor.as_deref(), options)?;
        let place = |row: crate::search::HitRow| Occurrence {
            turn_id: row.hit.turn_id,
            turn_number: row.hit.turn_number,
            speaker: row.hit.speaker,
            time: row.hit.time,
            snippet: row.hit.snippet,
            matched: row.hit.matched,
        };
        Ok(OccurrencePage { occurrences: page.hits.into_iter().map(place).collect(), next_cursor: page.next_cursor })
    }

    /// The thread whose turns are asked for.
    fn paged(&self, p: &ListTurns) -> StoreResult<OpenThread> {
        if p.page_size == 0 {
            return Err(invalid("page size must be positive"));
        }
        self.open_made(p.thread_id, p.archived, Depth::Head)
    }

    pub fn turns(&self, p: &ListTurns) -> StoreResult<TurnPage> {
        let cursor = p.cursor.as_deref().map(TurnCursor::decode).transpose().map_err(bad_cursor)?;
        let before = cursor.as_ref().and_then(|c| c.before);
        let open = self.paged(p)?;
        if p.direction == Direction::Descending && (cursor.is_none() || before.is_some()) {
            if let (Some(cursor), Some(text)) = (&cursor, &p.cursor) {
                check_thread(&cursor.thread, p, text)?;
            }
            if let Some(page) = last_turns(&open, p, before) {
                return Ok(page);
            }
        }
        let index = open.turn_index();
        let alive = alive(&index, p.direction);
        let number = |i: &usize| index.turns[*i].number;
        let from = match (&cursor, &p.cursor) {
            (Some(cursor), Some(text)) => {
                check_thread(&cursor.thread, p, text)?;
                let last = open.history.spans.len().saturating_sub(1);
                let is_next = |i: &usize| match cursor.before {
                    Some(offset) => (index.turns[*i].span, index.turns[*i].offset) < (last, offset),
                    None => number(i) == cursor.next,
                };
                alive.iter().position(is_next).unwrap_or(alive.len())
            }
            _ => 0,
        };
        let to = (from + p.page_size).min(alive.len());
        let turns = read(&open, &index, &alive[from..to]);
        let next_cursor = alive.get(to).map(|i| TurnCursor::new(p.thread_id.to_string(), number(i)).encode());
        Ok(TurnPage { turns, next_cursor })
    }

    pub fn items(&self, p: &ListTurns) -> StoreResult<ItemPage> {
        let open = self.paged(p)?;
        let index = open.turn_index();
        let alive = alive(&index, p.direction);
        let (mut from, mut skip) = (0, 0);
        if let Some(text) = &p.cursor {
            let cursor = ItemCursor::decode(text).map_err(bad_cursor)?;
            check_thread(&cursor.thread, p, text)?;
            from = alive.iter().position(|i| index.turns[*i].number == cursor.turn).unwrap_or(alive.len());
            skip = usize::try_from(cursor.item).unwrap_or(usize::MAX);
        }
        let mut page = ItemPage::default();
        for place in &alive[from..] {
            let Some(mut turn) = read(&open, &index, std::slice::from_ref(place)).pop() else { continue };
            if p.direction == Direction::Descending {
                turn.items.reverse();
            }
            for (i, item) in turn.items.into_iter().enumerate().skip(std::mem::take(&mut skip)) {
                if page.items.len() == p.page_size {
                    let cursor = ItemCursor::new(p.thread_id.to_string(), turn.number.unwrap_or(0), i as u64);
                    page.next_cursor = Some(cursor.encode());
                    return Ok(page);
                }
                page.items.push(PlacedItem { turn_id: turn.id.clone(), turn_number: turn.number, item });
            }
        }
        Ok(page)
    }
}

/// The places of the turns that are still part of a thread.
fn alive(index: &TurnIndex, direction: Direction) -> Vec<usize> {
    let mut alive: Vec<usize> = (0..index.turns.len()).filter(|i| !index.turns[*i].taken_back).collect();
    if direction == Direction::Descending {
        alive.reverse();
    }
    alive
}

/// A page from the end of a very large thread, without reading what stands before it.
fn last_turns(open: &OpenThread, p: &ListTurns, before: Option<u64>) -> Option<TurnPage> {
    /// Smaller threads are read whole, so that their turns have numbers.
    const LARGE: u64 = 16 << 20;
    if open.row.thread.bytes <= LARGE {
        return None;
    }
    // One turn more than the page tells that there is a next page.
    let index = TurnIndex::tail(&open.history, p.page_size.saturating_add(1), before)?;
    let places: Vec<usize> = (1..index.turns.len()).rev().collect();
    let begin = places.last().map(|i| index.turns[*i].offset);
    let next_cursor = begin.map(|offset| TurnCursor::before(p.thread_id.to_string(), offset).encode());
    Some(TurnPage { turns: read(open, &index, &places), next_cursor })
}

/// Reads turns in the order of their places.
fn read(open: &OpenThread, index: &TurnIndex, places: &[usize]) -> Vec<Turn> {
    let mut turns = Vec::with_capacity(places.len());
    for place in places {
        open.read_turns(index, std::slice::from_ref(place), Detail::Full, &mut |turn| {
            turns.push(turn);
            true
        });
    }
    turns
}

fn check_thread(of: &str, p: &ListTurns, cursor: &str) -> StoreResult<()> {
    if of == p.thread_id.to_string() { Ok(()) } else { Err(invalid(format!("invalid cursor: {cursor}"))) }
}
