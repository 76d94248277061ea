//! Lists: complete, in a total order, whatever the index knows.

mod exact;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use threadkeep_index::IndexPlace;
use threadkeep_index::listed::Known;
use threadkeep_record::fold::Check;
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::home::Home;
use threadkeep_rollout::par;
use threadkeep_store::cursor::Given;
use threadkeep_store::{Cursor, Direction, InvalidCursor, ListQuery, SortKey};

use crate::catalog::Catalog;
use crate::filter::{Filter, Reason};
use crate::page::{enrich, merge_by_header, place_notes, short_id};
use crate::row::{self, Row};
use exact::Request;

/// Up to so many rollouts every head and tail is read, and everything is told exactly.
pub const SMALL_HOME: usize = 500;

/// How a list is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct ListOptions {
    /// Rows of a page.
    pub limit: usize,
    /// Read every tail, also of a large home.
    pub exact: bool,
    /// Also tell the facts that need every file, or whole large files.
    pub count: bool,
    /// Where the rows of the page come from.
    pub rows: RowsFrom,
}

/// Where the rows of a page come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RowsFrom {
    /// The index, where it has them.
    #[default]
    Index,
    /// Their files, with all that those say.
    Files,
}

/// What the index had to do with an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexUse {
    /// How much of the answer it told.
    pub state: IndexState,
    /// Why it was not more, or how the answer was made.
    pub reason: String,
}

/// How much of an answer the index told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexState {
    /// All of it, or all but threads that changed since and were read from their files.
    Fresh,
    /// Some of it: it is not finished. The rest was read from the files.
    Partial,
    /// Nothing of it.
    None,
}

impl IndexState {
    /// The word for it (`cli-json.md`).
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Partial => "partial",
            Self::None => "none",
        }
    }
}

impl IndexUse {
    /// Of an answer for which so many threads were read from their files. `otherwise` says how it was made without.
    pub(crate) fn of(catalogs: &[Catalog], read: usize, otherwise: &str) -> Self {
        let why = catalogs.iter().find_map(|c| c.kept.why_none());
        let (state, reason) = match why {
            Some(why) => {
                (IndexState::None, if why.is_empty() { otherwise.to_owned() } else { format!("{otherwise}: {why}") })
            }
            None if read == usize::MAX => (IndexState::Partial, format!("{otherwise}: the index is not finished")),
            None if catalogs.iter().all(|c| c.kept.is_whole()) => match read {
                0 => (IndexState::Fresh, "every thread is as it was read".into()),
                1 => (IndexState::Fresh, "1 thread was read from its files".into()),
                n => (IndexState::Fresh, format!("{n} threads were read from their files")),
            },
            None => {
                (IndexState::Partial, format!("the index is not finished: {read} threads were read from their files"))
            }
        };
        Self { state, reason }
    }

    /// Of a search: hits are always read from the files; the index only chose which.
    pub(crate) fn of_search(catalogs: &[Catalog], made: &str) -> Self {
        let unread = |c: &Catalog| (0..c.groups.len()).filter(|i| c.kept.get(*i, Known::Ends).is_none()).count();
        Self::of(catalogs, catalogs.iter().map(unread).sum(), made)
    }
}

/// A page of threads.
pub struct ListPage {
    /// The threads, each with the index of its home.
    pub rows: Vec<(usize, Row)>,
    /// Where the next page begins; `None` at the end.
    pub next_cursor: Option<String>,
    /// Threads that the query keeps, where all were looked at.
    pub total: Option<u64>,
    /// Threads that it leaves out, by reason.
    pub hidden: Vec<(Reason, Option<u64>)>,
    /// What the index had to do with the answer, and why it may not be exact.
    pub index: IndexUse,
    /// Every folder was read.
    pub complete: bool,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Length of the shortest id prefix, at least 8, that tells all threads apart.
    pub short_id: usize,
    /// What the page was made from. Taking it apart costs as much as a page, so that is left to the caller's end.
    pub catalogs: Vec<Catalog>,
}

/// A store over one or more local homes.
#[derive(Debug, Clone)]
pub struct LocalStore {
    homes: Vec<Home>,
    sqlite_home: Option<PathBuf>,
    index: Option<IndexPlace>,
}

/// A candidate for a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Candidate {
    Group { home: usize, group: usize },
    Ghost { home: usize, id: ThreadId },
}

impl LocalStore {
    /// A store over `homes`; the first is where a thread is looked for first.
    #[must_use]
    pub fn new(homes: Vec<Home>, sqlite_home: Option<PathBuf>) -> Self {
        Self { homes, sqlite_home, index: None }
    }

    /// The same with an index of each home, kept there. It only saves time: answers are those of the files.
    #[must_use]
    pub fn with_index(self, place: IndexPlace) -> Self {
        Self { index: Some(place), ..self }
    }

    /// Its homes.
    #[must_use]
    pub fn homes(&self) -> &[Home] {
        &self.homes
    }

    /// A short text that tells these homes from others.
    pub(crate) fn tag(&self) -> String {
        Given::tag(self.homes.iter().map(|h| h.path().to_string_lossy()))
    }

    /// Looks at every home once.
    #[must_use]
    pub fn catalogs(&self) -> Vec<Catalog> {
        // A session store of task homes is small, and holds nothing but what it is made of.
        let index = |home: &Home| self.index.as_ref().filter(|_| !home.path().join("store.json").exists());
        self.homes.iter().map(|h| Catalog::open(h, self.sqlite_home.as_ref(), index(h))).collect()
    }

    /// The first page of a query, or the page behind a cursor (which carries its own query). `now` is the caller's
    /// clock.
    pub fn list(
        &self,
        query: &ListQuery,
        cursor: Option<&str>,
        options: ListOptions,
        now: UtcMillis,
    ) -> Result<ListPage, InvalidCursor> {
        let cursor = cursor.map(Cursor::decode).transpose()?;
        if cursor.as_ref().is_some_and(|c| c.homes != self.tag()) {
            return Err(InvalidCursor("it belongs to another home".into()));
        }
        let query = cursor.as_ref().map_or(query, |c| &c.query);
        let catalogs = self.catalogs();
        let mut page = page(&catalogs, query, cursor.as_ref(), options, now);
        // A cursor is of use only where it was made.
        if let Some(mut next) = page.next_cursor.as_deref().map(Cursor::decode).transpose()? {
            next.homes = self.tag();
            page.next_cursor = Some(next.encode());
        }
        page.catalogs = catalogs;
        Ok(page)
    }
}

/// Every thread of the catalogs once.
pub(crate) fn candidates(catalogs: &[Catalog]) -> Vec<Candidate> {
    let mut all = Vec::with_capacity(catalogs.iter().map(|c| c.groups.len()).sum());
    let several = catalogs.len() > 1;
    // Of a thread that several homes show, the file that was written last is the thread.
    let mut newest: HashMap<ThreadId, (i64, usize)> = HashMap::new();
    for (home, catalog) in catalogs.iter().enumerate().filter(|_| several) {
        for g in &catalog.groups {
            if let Some(id) = g.id
                && newest.get(&id).is_none_or(|(mtime, _)| g.mtime_ns > *mtime)
            {
                newest.insert(id, (g.mtime_ns, home));
            }
        }
    }
    let mut seen: HashSet<ThreadId> = newest.keys().copied().collect();
    for (home, catalog) in catalogs.iter().enumerate() {
        for (group, g) in catalog.groups.iter().enumerate() {
            if !several || g.id.is_none_or(|id| newest.get(&id).is_some_and(|(_, h)| *h == home)) {
                all.push(Candidate::Group { home, group });
            }
        }
    }
    for (home, catalog) in catalogs.iter().enumerate() {
        for (id, row) in &catalog.ghosts {
            let named = row.explicit_name(None).is_some()
                || !row.title.trim().is_empty()
                || catalog.names.entry(*id).is_some_and(|n| !n.is_empty());
            if named && (!several || seen.insert(*id)) {
                all.push(Candidate::Ghost { home, id: *id });
            }
        }
    }
    all
}

pub(crate) fn load(catalogs: &[Catalog], candidate: Candidate, depth: Depth) -> Option<(usize, Row)> {
    match candidate {
        Candidate::Group { home, group } => {
            Some((home, row::row(&catalogs[home], &catalogs[home].groups[group], depth)))
        }
        Candidate::Ghost { home, id } => catalogs[home].ghosts.get(&id).map(|db| (home, row::ghost(id, db))),
    }
}

/// How deeply a thread is read while a page is chosen: small files are read whole at once, since a second reading for
/// the page would cost more than the bytes.
pub(crate) fn first_depth(catalogs: &[Catalog], candidate: Candidate, small_home: bool) -> Depth {
    let Candidate::Group { home, group } = candidate else { return Depth::Head };
    let catalog = &catalogs[home];
    let size: u64 = catalog.groups[group].files.iter().map(|i| catalog.files[*i as usize].size).sum();
    match (small_home, size) {
        (true, 0..=0x0040_0000) => Depth::Whole(Check::Whole),
        (false, 0..=0x8000) => Depth::Whole(Check::Ends),
        _ => Depth::HeadAndTail,
    }
}

/// Adds names and other facts from beside the files.
pub(crate) fn add_names(catalogs: &[Catalog], rows: &mut [(usize, Row)]) {
    for (home, catalog) in catalogs.iter().enumerate() {
        let ids: Vec<ThreadId> = rows.iter().filter(|(h, _)| *h == home).filter_map(|(_, r)| r.thread.id).collect();
        let db = catalog.db_rows(&ids);
        for (_, row) in rows.iter_mut().filter(|(h, _)| *h == home) {
            let found = row.thread.id.and_then(|id| db.get(&id));
            row::add_names(catalog, row, found);
        }
    }
}

fn sort_ms(row: &Row, sort: SortKey) -> i64 {
    match sort {
        SortKey::Created => row.created().0,
        SortKey::Updated => row.updated().0,
        SortKey::Recency => row.recency().0,
    }
}

fn page(
    catalogs: &[Catalog],
    query: &ListQuery,
    cursor: Option<&Cursor>,
    options: ListOptions,
    now: UtcMillis,
) -> ListPage {
    let filter = Filter::new(query);
    let all = candidates(catalogs);
    let small = all.len() <= SMALL_HOME;
    let limit = options.limit.max(1);
    let by_mtime = !small
        && !options.exact
        && !options.count
        && cursor.is_none()
        && query.sort == SortKey::Updated
        && query.direction == Direction::Descending
        && query.models.is_empty()
        && query.file.is_none();
    let request = Request { catalogs, query, filter: &filter, cursor, options, small, now };
    // Where the index knows nearly all threads, an exact page costs less than one by modification time.
    let mut page = if by_mtime && request.unread(&all) > SMALL_HOME {
        by_modification(catalogs, query, &filter, all, limit, now)
    } else {
        request.page(&all)
    };
    if small || options.count {
        enrich(catalogs, &mut page.rows, small, options.count);
    }
    page.notes = catalogs.iter().flat_map(|c| c.notes.iter().cloned().chain(c.late_notes())).collect();
    page.notes.extend(place_notes(catalogs, &page.rows));
    page.complete = page.next_cursor.is_none() && catalogs.iter().all(|c| c.complete);
    page.short_id = short_id(catalogs);
    page
}

/// The first page of a large home. Files are taken by modification time, newest first; no later file can belong on the
/// page once its modification time is older than the last row's update, as long as no file is older than its records.
fn by_modification(
    catalogs: &[Catalog],
    query: &ListQuery,
    filter: &Filter<'_>,
    all: Vec<Candidate>,
    limit: usize,
    now: UtcMillis,
) -> ListPage {
    let mtime = |c: &Candidate| match c {
        Candidate::Group { home, group } => UtcMillis::from_nanos(catalogs[*home].groups[*group].mtime_ns.into()),
        Candidate::Ghost { home, id } => {
            catalogs[*home].ghosts.get(id).and_then(|r| r.updated_at).unwrap_or(UtcMillis(0))
        }
    };
    let total = all.len();
    let mut archived: u64 = 0;
    // The times stand beside the candidates: looking each up again while they are put in order costs more than the order.
    let candidates = all;
    let mut all: Vec<(UtcMillis, Candidate)> = Vec::with_capacity(candidates.len());
    for c in candidates {
        if let Candidate::Group { home, group } = c {
            let group = &catalogs[home].groups[group];
            archived += u64::from(group.archived);
            if filter.place(group.archived).is_some() && group.files.len() == 1 {
                continue;
            }
        }
        all.push((mtime(&c), c));
    }
    let mut hidden: HashMap<Reason, u64> = HashMap::new();
    let mut rows: Vec<(usize, Row)> = Vec::new();
    let mut sorted = 0;
    let mut looked_at = 0;
    let mut floor = i64::MAX;
    loop {
        let batch = limit.saturating_add(limit / 8 + 8).max(looked_at).min(all.len() - looked_at);
        if batch == 0 {
            break;
        }
        // Only as much of the order is made as is looked at.
        if looked_at + batch > sorted {
            let end = (looked_at + batch * 2).min(all.len());
            if end < all.len() {
                all[sorted..].select_nth_unstable_by_key(end - sorted, |(time, _)| std::cmp::Reverse(*time));
            }
            all[sorted..end].sort_unstable_by_key(|(time, _)| std::cmp::Reverse(*time));
            sorted = end;
        }
        // Files of one moment belong together: where the look stops must lie between two moments.
        let last = all[looked_at + batch - 1].0;
        let first_behind = looked_at + batch;
        let mut end = first_behind;
        for i in first_behind..all.len() {
            if all[i].0 == last {
                all.swap(i, end);
                end += 1;
            }
        }
        if end > looked_at + batch {
            sorted = sorted.min(end);
        }
        let batch = end - looked_at;
        let next = &all[looked_at..looked_at + batch];
        let mut loaded: Vec<(usize, Row)> =
            par::map(next, |(_, c)| load(catalogs, *c, first_depth(catalogs, *c, false)))
                .into_iter()
                .flatten()
                .collect();
        add_names(catalogs, &mut loaded);
        for (home, row) in loaded {
            match filter.leaves_out(&row) {
                Some(reason) => *hidden.entry(reason).or_default() += 1,
                None => rows.push((home, row)),
            }
        }
        merge_by_header(catalogs, &mut rows);
        looked_at += batch;
        floor = all.get(looked_at - 1).map_or(i64::MIN, |(time, _)| time.0);
        rows.sort_by(|(_, a), (_, b)| (b.updated(), &b.key).cmp(&(a.updated(), &a.key)));
        let next_mtime = all.get(looked_at).map(|(time, _)| *time);
        match (rows.get(limit), next_mtime) {
            (_, None) => break,
            // One row more than the page tells that there is a next page.
            (Some((_, last)), Some(next)) if last.updated() > next => break,
            _ => {}
        }
    }
    let saw_all = looked_at == all.len();
    let more = rows.len() > limit;
    let kept = rows.len() as u64;
    let mut cursor = None;
    if more {
        let last = &rows[limit - 1].1;
        let mut c = Cursor::new(query.clone(), now.0, last.updated().0, last.key.clone());
        c.floor_mtime_ms = (!saw_all).then_some(floor);
        c.first_ms = (!saw_all).then_some(last.updated().0);
        c.first_id = (!saw_all).then(|| last.key.clone());
        cursor = Some(c.encode());
        rows.truncate(limit);
    }
    let place = if query.archived_only {
        ("not_archived", total as u64 - archived)
    } else {
        ("archived", if query.include.archived { 0 } else { archived })
    };
    let hidden = filter
        .reasons()
        .into_iter()
        .map(|r| {
            let counted = hidden.get(r).copied().unwrap_or(0);
            if r == place.0 { (r, Some(place.1)) } else { (r, saw_all.then_some(counted)) }
        })
        .collect();
    let reason = if saw_all { "read from the files" } else { "ordered by modification time" };
    let index = IndexUse::of(catalogs, usize::MAX, reason);
    ListPage {
        rows,
        next_cursor: cursor,
        total: saw_all.then_some(kept),
        hidden,
        index,
        complete: false,
        notes: vec![],
        short_id: 8,
        catalogs: vec![],
    }
}
