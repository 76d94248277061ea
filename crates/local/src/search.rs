//! Searches: where something was said, newest thread first, by scanning the files.

mod found;
mod hint;
pub mod needle;
pub mod scan;
mod simd;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use threadkeep_index::listed::Known;
use threadkeep_record::fold::Check;
use threadkeep_record::{SourceClass, Speaker, UtcMillis};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::par;
use threadkeep_rollout::tail;
use threadkeep_store::cursor::SearchCursor;
use threadkeep_store::snippet::snippet;
use threadkeep_store::{Include, InvalidCursor, ListQuery, SearchHit, SearchQuery};

use crate::catalog::Catalog;
use crate::filter::Filter;
use crate::kept_filter::{KeptFilter, Verdict};
use crate::list::{Candidate, IndexState, IndexUse, LocalStore, SMALL_HOME, add_names, candidates, load};
use crate::row::{self, shown};
use found::{Found, drop_inherited, drop_second_accounts, is_plain_copy, place};
use hint::{Hints, Look};
use needle::Needle;
use scan::{RawHit, Scan};

/// So many threads are scanned first.
const FIRST_BATCH: usize = 32;

/// How a search is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct SearchOptions {
    /// Hits of a page.
    pub limit: usize,
    /// Also count the threads with a hit.
    pub count: bool,
    /// Which hits of a thread are given.
    pub of_each: OfEach,
}

/// Which hits of a thread a search gives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OfEach {
    /// All.
    #[default]
    All,
    /// The first.
    First,
}

/// A page of hits.
pub struct SearchPage {
    /// The hits.
    pub hits: Vec<HitRow>,
    /// Threads with a hit, where all were scanned.
    pub threads: Option<u64>,
    /// Where the next page begins; `None` at the end.
    pub next_cursor: Option<String>,
    /// Nothing was left out.
    pub complete: bool,
    /// What the index had to do with the answer.
    pub index: IndexUse,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Name and preview of each thread with a hit, by its id.
    pub titles: HashMap<String, (Option<String>, Option<String>)>,
    /// The index knows the text of every file that was asked about.
    pub text_is_known: bool,
    /// What the page was made from. Taking it apart costs as much as a page, so that is left to the caller's end.
    pub catalogs: Vec<Catalog>,
}

/// A hit with what is to be known of its thread.
#[derive(Debug)]
pub struct HitRow {
    /// Index of its home.
    pub home: usize,
    /// The thread is archived.
    pub archived: bool,
    /// Who started the thread.
    pub class: SourceClass,
    /// The hit.
    pub hit: SearchHit,
}

/// Why a search cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// Nothing to look for.
    #[error("thread/search requires search_term")]
    EmptyTerm,
    /// Not a cursor of a search.
    #[error(transparent)]
    Cursor(#[from] InvalidCursor),
    /// Not a speaker.
    #[error("{0}")]
    Speaker(String),
}

impl LocalStore {
    /// Searches every thread that the query keeps. `now` is the caller's clock.
    pub fn search(
        &self,
        query: &ListQuery,
        search: &SearchQuery,
        cursor: Option<&str>,
        options: SearchOptions,
        now: UtcMillis,
    ) -> Result<SearchPage, SearchError> {
        let cursor = cursor.map(SearchCursor::decode).transpose()?;
        if cursor.as_ref().is_some_and(|c| c.homes != self.tag()) {
            return Err(InvalidCursor("it belongs to another home".into()).into());
        }
        let (mut query, search) = match &cursor {
            Some(c) => (c.query.clone(), c.search.clone()),
            None => (query.clone(), search.clone()),
        };
        // A search looks everywhere; a filter only narrows.
        query.include = Include::ALL;
        let needle = Needle::new(&search.term, search.case_sensitive).ok_or(SearchError::EmptyTerm)?;
        let speakers: Vec<Speaker> =
            search.speakers.iter().map(|s| s.parse().map_err(SearchError::Speaker)).collect::<Result<_, _>>()?;
        let catalogs = self.catalogs();
        let filter = Filter::new(&query);
        let all = candidates(&catalogs);
        let small = all.len() <= SMALL_HOME;
        let narrowed =
            query != ListQuery { include: Include::ALL, archived_only: query.archived_only, ..ListQuery::default() };
        let wanted: HashSet<&str> = search.threads.iter().map(String::as_str).collect();
        let names = names(&catalogs);
        let by_header = keys_by_header(&catalogs, &all, &wanted);
        let mut ordered: Vec<(i64, String, Candidate)> = par::map(&all, |c| order(&catalogs, *c, small))
            .into_iter()
            .zip(&all)
            .map(|((ms, key), c)| (ms, by_header.get(&key).cloned().unwrap_or(key), *c))
            .filter(|(_, key, c)| {
                (wanted.is_empty() || wanted.contains(key.as_str()))
                    && filter.place(is_archived(&catalogs, *c)).is_none()
            })
            .collect();
        if narrowed {
            let whole = !query.models.is_empty() || query.file.is_some();
            let kept = KeptFilter::new(&catalogs, &query, &filter);
            let enough = if whole { Known::Whole } else { Known::Ends };
            let keep = par::map(&ordered, |(_, _, c)| {
                if let Candidate::Group { home, group } = *c
                    && let Some(listed) = catalogs[home].kept.get(group, enough)
                {
                    match kept.verdict(home, listed) {
                        Verdict::In => return true,
                        Verdict::Out(_) => return false,
                        Verdict::Unclear => {}
                    }
                }
                let depth = if query.file.is_some() {
                    Depth::Whole(Check::Whole)
                } else if whole {
                    Depth::Whole(Check::Ends)
                } else {
                    Depth::HeadAndTail
                };
                let Some((home, row)) = load(&catalogs, *c, depth) else { return false };
                let mut rows = [(home, row)];
                add_names(&catalogs, &mut rows);
                filter.leaves_out(&rows[0].1).is_none()
            });
            let mut keep = keep.into_iter();
            ordered.retain(|_| keep.next().unwrap_or(true));
        }
        let searched: Option<HashSet<String>> =
            narrowed.then(|| ordered.iter().map(|(_, key, _)| key.clone()).collect());
        ordered.sort_unstable_by(|a, b| (b.0, &b.1).cmp(&(a.0, &a.1)));
        if let Some(c) = &cursor {
            // A thread that was written to since the first page moved to the front. It is still looked at, unless its
            // hits were given. (In a small home the order is not by modification time, so all such threads are.)
            let given = |key: &str| c.given.as_ref().is_some_and(|g| g.has(key));
            ordered.retain(|(ms, key, _)| {
                let behind = (*ms, key) <= (c.thread_ms, &c.thread);
                *key == c.thread || !given(key) && (behind || small || *ms > c.as_of_ms)
            });
            if let Some(at) = ordered.iter().position(|(_, key, _)| *key == c.thread) {
                let reached = ordered.remove(at);
                ordered.insert(0, reached);
            }
        }
        let limit = options.limit.max(1);
        let skip = |key: &str| {
            cursor
                .as_ref()
                .filter(|c| c.thread == key)
                .map_or(0, |c| usize::try_from(c.hits_given).unwrap_or(usize::MAX))
        };
        let want = if options.count { usize::MAX } else { limit + 1 };
        let scanner = Scan { needle: &needle, speakers: &speakers, want };
        let mut page = SearchPage {
            hits: vec![],
            threads: None,
            next_cursor: None,
            complete: false,
            index: IndexUse { state: IndexState::None, reason: String::new() },
            notes: vec![],
            titles: HashMap::new(),
            text_is_known: false,
            catalogs: vec![],
        };
        let mut work = Work {
            catalogs: &catalogs,
            names: &names,
            searched: searched.as_ref(),
            explicit: !wanted.is_empty(),
            hints: Hints::unasked(&catalogs),
        };
        let mut threads = 0;
        let mut given_keys = cursor.as_ref().and_then(|c| c.given.clone()).unwrap_or_default();
        let mut problems = Vec::new();
        let mut next = 0;
        let mut batch = if want == usize::MAX { 4096 } else { FIRST_BATCH };
        'pages: while next < ordered.len() {
            let part = &ordered[next..(next + batch).min(ordered.len())];
            // A common text fills its page from the first threads, before a hint could be asked.
            if next > 0 || part.len() > FIRST_BATCH {
                work.hints.ask(&catalogs, &search.term);
            }
            let found = par::map_with(part, Vec::new, |buffer: &mut Vec<u8>, thread| {
                let already = skip(&thread.1);
                let scanner = Scan { want: scanner.want.saturating_add(already), ..scanner };
                scan_thread(&work, thread, &scanner, buffer)
            });
            for mut f in found.into_iter().flatten() {
                problems.extend(f.problem.clone());
                if options.of_each == OfEach::First {
                    f.hits.truncate(1);
                }
                if f.hits.is_empty() {
                    continue;
                }
                threads += 1;
                let already = skip(&f.key);
                let room = limit - page.hits.len();
                let fresh = f.hits.len().saturating_sub(already);
                let take = fresh.min(room);
                if take > 0 {
                    page.titles.insert(f.key.clone(), (names.get(&f.key).cloned(), f.preview.clone()));
                    let placed = place(&catalogs, &f, already, take);
                    let row = |hit| HitRow { home: f.home, archived: f.archived, class: f.class, hit };
                    page.hits.extend(placed.into_iter().map(row));
                }
                if fresh == take && page.next_cursor.is_none() {
                    given_keys.add(&f.key);
                }
                if fresh > take && page.next_cursor.is_none() {
                    let given = (f.order_ms, f.key.clone(), (already + take) as u64);
                    let mut next = SearchCursor::new(
                        query.clone(),
                        search.clone(),
                        cursor.as_ref().map_or(now.0, |c| c.as_of_ms),
                        given.0,
                        given.1,
                        given.2,
                    );
                    next.given = Some(given_keys.clone());
                    next.homes = self.tag();
                    page.next_cursor = Some(next.encode());
                    if !options.count {
                        break 'pages;
                    }
                }
            }
            next += part.len();
            batch = (batch * 4).min(8192);
        }
        let all_scanned = next >= ordered.len() && cursor.is_none();
        page.threads = (all_scanned || options.count && cursor.is_none()).then_some(threads);
        page.complete = page.next_cursor.is_none() && problems.is_empty() && catalogs.iter().all(|c| c.complete);
        let made = if small { "read from the files" } else { "threads ordered by modification time" };
        page.index = IndexUse::of_search(&catalogs, made);
        page.notes =
            catalogs.iter().flat_map(|c| c.notes.iter().cloned().chain(c.late_notes())).chain(problems).collect();
        page.text_is_known = work.hints.is_full();
        page.catalogs = catalogs;
        Ok(page)
    }
}

/// Keys by header of files whose names hold another id, where a thread is asked for that no file name has.
fn keys_by_header(catalogs: &[Catalog], all: &[Candidate], wanted: &HashSet<&str>) -> HashMap<String, String> {
    let here: HashSet<String> =
        all.iter().map(|c| name_key(catalogs, *c)).filter(|k| wanted.contains(k.as_str())).collect();
    if here.len() == wanted.len() {
        return HashMap::new();
    }
    let keys = par::map(all, |c| load(catalogs, *c, Depth::Head).map(|(_, row)| (name_key(catalogs, *c), row.key)));
    keys.into_iter().flatten().filter(|(name, header)| name != header && wanted.contains(header.as_str())).collect()
}

/// The key that a thread has by its file's name.
fn name_key(catalogs: &[Catalog], c: Candidate) -> String {
    match c {
        Candidate::Ghost { id, .. } => id.to_string(),
        Candidate::Group { home, group } => {
            let catalog = &catalogs[home];
            let g = &catalog.groups[group];
            g.id.map_or_else(|| shown(&catalog.files[g.files[0] as usize].path()), |id| id.to_string())
        }
    }
}

/// Names of all threads, by key: from the name index, and from Codex's database where that is the only place.
fn names(catalogs: &[Catalog]) -> HashMap<String, String> {
    let mut names = HashMap::new();
    for catalog in catalogs {
        for (id, row) in catalog.db_named() {
            if catalog.names.entry(id).is_none()
                && let Some(name) = row.explicit_name(None)
            {
                names.insert(id.to_string(), name.to_owned());
            }
        }
        for (id, name) in catalog.names.named() {
            names.insert(id.to_string(), name.to_owned());
        }
    }
    names
}

fn is_archived(catalogs: &[Catalog], c: Candidate) -> bool {
    match c {
        Candidate::Group { home, group } => catalogs[home].groups[group].archived,
        Candidate::Ghost { home, id } => catalogs[home].ghosts.get(&id).is_some_and(|r| r.archived),
    }
}

/// The time and key that order a thread among the others.
fn order(catalogs: &[Catalog], c: Candidate, exact: bool) -> (i64, String) {
    match c {
        Candidate::Ghost { home, id } => {
            (catalogs[home].ghosts.get(&id).and_then(|r| r.updated_at).map_or(0, |t| t.0), name_key(catalogs, c))
        }
        Candidate::Group { home, group } => {
            let catalog = &catalogs[home];
            let g = &catalog.groups[group];
            let mut ms = UtcMillis::from_nanos(g.mtime_ns.into()).0;
            if exact {
                let times = g.files.iter().filter_map(|i| {
                    let f = &catalog.files[*i as usize];
                    tail::tail(&f.path_in(catalog.home.path()), f.name.form, row::follow(f)).ok()??.last_time
                });
                ms = times.max().map_or(ms, |t| t.0);
            }
            (ms, name_key(catalogs, c))
        }
    }
}

/// Finds the hits of a thread that are to be given. Some are dropped after the scan (second accounts, inherited text),
/// so a scan that stopped at its limit with too few left is made again with a larger one.
fn scan_thread(
    work: &Work<'_>,
    (order_ms, key, c): &(i64, String, Candidate),
    scan: &Scan<'_>,
    buffer: &mut Vec<u8>,
) -> Option<Found> {
    let mut want = scan.want;
    loop {
        let wider = Scan { want, ..*scan };
        let found = scan_once(work, *c, key, *order_ms, &wider, buffer);
        let enough = found.as_ref().is_none_or(|f| !f.stopped || f.hits.len() >= scan.want);
        if enough {
            return found;
        }
        want = want.saturating_mul(4);
    }
}

/// What one search works with.
struct Work<'w> {
    catalogs: &'w [Catalog],
    /// Names by key.
    names: &'w HashMap<String, String>,
    /// The threads that are searched, where that is not all.
    searched: Option<&'w HashSet<String>>,
    /// Threads were named, so each is searched through its whole history.
    explicit: bool,
    hints: Hints<'w>,
}

fn scan_once(
    work: &Work<'_>,
    c: Candidate,
    key: &str,
    order_ms: i64,
    scan: &Scan<'_>,
    buffer: &mut Vec<u8>,
) -> Option<Found> {
    let &Work { catalogs, names, searched, explicit, .. } = work;
    let mut hits: Vec<(Option<PathBuf>, RawHit)> = Vec::new();
    if (scan.speakers.is_empty() || scan.speakers.contains(&Speaker::Name))
        && let Some(name) = names.get(key)
        && let Some((start, end)) = scan.needle.find(name)
    {
        hits.push((None, name_hit(name, start, end)));
    }
    let (home, group) = match c {
        Candidate::Group { home, group } => (home, group),
        Candidate::Ghost { home, id } => {
            return Some(Found {
                home,
                key: key.to_owned(),
                id: Some(id),
                archived: is_archived(catalogs, c),
                order_ms,
                hits,
                history: None,
                stopped: false,
                problem: None,
                preview: None,
                class: SourceClass::Person,
            });
        }
    };
    let catalog = &catalogs[home];
    let g = &catalog.groups[group];
    let single = (g.files.len() == 1 && !explicit).then(|| &catalog.files[g.files[0] as usize]);
    let look = single.map_or(Look::All, |entry| work.hints.look(home, entry));
    // Nearly all threads of a home end here, where there is a hint.
    if look == Look::Nowhere && hits.is_empty() {
        return None;
    }
    let mut found = Found {
        home,
        key: key.to_owned(),
        id: g.id,
        archived: g.archived,
        order_ms,
        hits,
        history: None,
        stopped: false,
        problem: None,
        preview: None,
        class: SourceClass::Person,
    };
    if let Some(entry) = single {
        let path = entry.path_in(catalog.home.path());
        let here = match look {
            Look::All => true,
            Look::Nowhere => false,
            // A hit is looked for first; where there is one, the file is scanned as any other.
            Look::Ranges(ranges) => scan.any_in(&path, row::follow(entry), &ranges, buffer).unwrap_or(true),
        };
        let (raw, problem) = if here {
            scan.file(&path, entry.name.form, entry.size, row::follow(entry), buffer)
        } else {
            (vec![], None)
        };
        found.stopped = raw.len() >= scan.want;
        found.problem = problem;
        found.hits.extend(raw.into_iter().map(|h| (Some(path.clone()), h)));
        if found.hits.is_empty() {
            return found.problem.is_some().then_some(found);
        }
    }
    // From here on only threads with a hit, or with several files, are looked at.
    // Which of several files is the head is told by their ends, too.
    let depth = if g.files.len() > 1 { Depth::HeadAndTail } else { Depth::Head };
    let row = row::row(catalog, g, depth);
    found.id = row.thread.id;
    found.preview = row.thread.preview.clone();
    found.class = row.class;
    found.archived = row.thread.archived;
    let head = row.assembly.as_ref().map_or(0, |a| a.head);
    let history = row::history(catalog, row.thread.id, &row.members, head);
    if g.files.len() > 1 || explicit {
        let mut paths: Vec<_> = history
            .spans
            .iter()
            .filter(|s| explicit || !s.inherited)
            .map(|s| (s.path.clone(), s.form, s.follow))
            .collect();
        for m in &row.members {
            let path = m.entry.path_in(catalog.home.path());
            if !paths.iter().any(|(p, ..)| *p == path) {
                paths.push((path, m.entry.name.form, row::follow(&m.entry)));
            }
        }
        for (path, form, follow) in paths {
            let (mut raw, problem) = scan.file(&path, form, u64::MAX, follow, buffer);
            found.problem = found.problem.take().or(problem);
            found.stopped |= raw.len() >= scan.want;
            if !raw.is_empty() && is_plain_copy(catalog, &row, &path) {
                continue;
            }
            // Of another thread's file only the prefix belongs here.
            if let Some(span) = history.spans.iter().find(|s| s.path == path && s.inherited) {
                raw.retain(|h| span.end.is_none_or(|e| h.ordinal.map_or(h.offset < e.offset, |o| o < e.ordinal)));
            }
            found.hits.extend(raw.into_iter().map(|h| (Some(path.clone()), h)));
        }
    }
    drop_second_accounts(&history, &mut found.hits, found.stopped);
    if !explicit {
        drop_inherited(catalog, &row, &mut found.hits, searched);
    }
    found.history = Some(history);
    Some(found)
}

fn name_hit(name: &str, start: usize, end: usize) -> RawHit {
    let (snippet, matched) = snippet(name, start, end);
    RawHit {
        offset: 0,
        speaker: Speaker::Name,
        time: None,
        origin: threadkeep_record::Origin::Other,
        message: false,
        call_id: None,
        turn_id: None,
        ordinal: None,
        snippet,
        matched,
        text: 0,
    }
}
