//! Searches: where something was said, newest thread first, by scanning the files.

mod found;
mod hint;
pub mod needle;
pub mod scan;
mod simd;
mod thread;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;

use threadkeep_index::listed::Known;
use threadkeep_record::fold::Check;
use threadkeep_record::{SourceClass, Speaker, UtcMillis};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::par;
use threadkeep_rollout::tail;
use threadkeep_store::cursor::SearchCursor;
use threadkeep_store::{Include, InvalidCursor, ListQuery, SearchHit, SearchQuery};

use crate::catalog::Catalog;
use crate::filter::Filter;
use crate::kept_filter::{KeptFilter, Verdict};
use crate::key::Key;
use crate::list::{Candidate, IndexState, IndexUse, LocalStore, SMALL_HOME, add_names, candidates, load};
use crate::row::{self, shown};
use found::place;
use hint::Hints;
use needle::Needle;
use scan::Scan;
use thread::{Placed, Work, first_of, may_hit, scan_thread};

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
        let wanted_keys: HashSet<Key> = wanted.iter().map(|text| Key::parse(text)).collect();
        let mut ordered: Vec<Placed> = all
            .iter()
            .filter(|c| filter.place(is_archived(&catalogs, **c)).is_none())
            .filter_map(|c| {
                let key = name_key(&catalogs, *c);
                let key = by_header.get(&key).cloned().unwrap_or(key);
                (wanted.is_empty() || wanted_keys.contains(&key)).then_some(Placed { ms: 0, key, candidate: *c })
            })
            .collect();
        // In a small home the times are read from the files' ends.
        let times = if small {
            par::map(&ordered, |t| time(&catalogs, t.candidate, Times::Records))
        } else {
            par::map_light(&ordered, |t| time(&catalogs, t.candidate, Times::Files))
        };
        ordered.iter_mut().zip(times).for_each(|(t, ms)| t.ms = ms);
        if narrowed {
            let whole = !query.models.is_empty() || query.file.is_some();
            let kept = KeptFilter::new(&catalogs, &query, &filter);
            let enough = if whole { Known::Whole } else { Known::Ends };
            let keep = par::map(&ordered, |thread| {
                if let Candidate::Group { home, group } = thread.candidate
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
                let Some((home, row)) = load(&catalogs, thread.candidate, depth) else { return false };
                let mut rows = [(home, row)];
                add_names(&catalogs, &mut rows);
                filter.leaves_out(&rows[0].1).is_none()
            });
            let mut keep = keep.into_iter();
            ordered.retain(|_| keep.next().unwrap_or(true));
        }
        let searched: Option<HashSet<Key>> = narrowed.then(|| ordered.iter().map(|t| t.key.clone()).collect());
        let reached = cursor.as_ref().map(|c| Key::parse(&c.thread));
        if let (Some(c), Some(reached)) = (&cursor, &reached) {
            // A thread that was written to since the first page moved to the front. It is still looked at, unless its
            // hits were given. (In a small home the order is not by modification time, so all such threads are.)
            let given = |key: &Key| c.given.as_ref().is_some_and(|g| g.has(&key.text()));
            ordered.retain(|t| {
                let behind = (t.ms, &t.key) <= (c.thread_ms, reached);
                t.key == *reached || (behind || small || t.ms > c.as_of_ms) && !given(&t.key)
            });
        }
        let limit = options.limit.max(1);
        let skip = |key: &Key| {
            let here = cursor.as_ref().filter(|_| reached.as_ref() == Some(key));
            here.map_or(0, |c| usize::try_from(c.hits_given).unwrap_or(usize::MAX))
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
            named: names.iter().filter(|(_, name)| needle.find(name).is_some()).map(|(key, _)| key).collect(),
            searched: searched.as_ref(),
            explicit: !wanted.is_empty(),
            hints: Hints::unasked(&catalogs),
        };
        let scan = |work: &Work<'_>, part: &[Placed]| {
            par::map_with(part, Vec::new, |buffer: &mut Vec<u8>, thread| {
                let already = skip(&thread.key);
                let scanner = Scan { want: scanner.want.saturating_add(already), ..scanner };
                scan_thread(work, thread, &scanner, buffer)
            })
        };
        let mut threads = 0;
        let mut given_keys = cursor.as_ref().and_then(|c| c.given.clone()).unwrap_or_default();
        let mut problems = Vec::new();
        // Newest first; the thread in which the page before ended comes before all.
        let order = |a: &Placed, b: &Placed| {
            let is_first = |t: &Placed| reached.as_ref() == Some(&t.key);
            (is_first(b), b.ms, &b.key).cmp(&(is_first(a), a.ms, &a.key))
        };
        let first = first_of(&mut ordered, if want == usize::MAX { 0 } else { FIRST_BATCH }, order);
        let mut rest = ordered.split_off(first);
        // A common text fills its page from the first threads; the hint is asked beside that, in case it does not.
        let enough = AtomicBool::new(false);
        let scan_first = || {
            let found = scan(&work, &ordered);
            let hits: usize = found.iter().flatten().map(|f| f.hits.len()).sum();
            enough.store(hits > limit, std::sync::atomic::Ordering::Relaxed);
            found
        };
        let (mut found, hints) = if rest.is_empty() {
            (scan_first(), None)
        } else {
            par::both(scan_first, || Some(Hints::ask(&catalogs, &search.term, &enough)))
        };
        work.hints = hints.unwrap_or_else(|| Hints::unasked(&catalogs));
        let mut batch = FIRST_BATCH;
        let mut sorted = false;
        let mut cut_off = false;
        'pages: loop {
            for mut f in found.drain(..).flatten() {
                problems.extend(f.problem.clone());
                if options.of_each == OfEach::First {
                    f.hits.truncate(1);
                }
                if f.hits.is_empty() {
                    continue;
                }
                threads += 1;
                let key = f.key.text();
                let already = skip(&f.key);
                let room = limit - page.hits.len();
                let fresh = f.hits.len().saturating_sub(already);
                let take = fresh.min(room);
                if take > 0 {
                    page.titles.insert(key.clone(), (names.get(&f.key).cloned(), f.preview.clone()));
                    let placed = place(&catalogs, &f, already, take);
                    let row = |hit| HitRow { home: f.home, archived: f.archived, class: f.class, hit };
                    page.hits.extend(placed.into_iter().map(row));
                }
                if fresh == take && page.next_cursor.is_none() {
                    given_keys.add(&key);
                }
                if fresh > take && page.next_cursor.is_none() {
                    let given = (f.order_ms, key, (already + take) as u64);
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
                        cut_off = true;
                        break 'pages;
                    }
                }
            }
            if rest.is_empty() {
                break;
            }
            if !sorted {
                sorted = true;
                if enough.load(std::sync::atomic::Ordering::Relaxed) {
                    // It was not enough after all: hits were dropped, or given before.
                    work.hints = Hints::ask(&catalogs, &search.term, &AtomicBool::new(false));
                }
                // Only threads that may have a hit are put in order, the newest last.
                let mut may = par::map_light(&rest, |t| may_hit(&work, t)).into_iter();
                rest.retain(|_| may.next().unwrap_or(true));
                par::sort_by(&mut rest, |a, b| order(b, a));
            }
            batch = if want == usize::MAX { 4096 } else { (batch * 4).min(8192) };
            let mut part = rest.split_off(rest.len().saturating_sub(batch));
            part.reverse();
            found = scan(&work, &part);
        }
        let all_scanned = !cut_off && cursor.is_none();
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
fn keys_by_header(catalogs: &[Catalog], all: &[Candidate], wanted: &HashSet<&str>) -> HashMap<Key, Key> {
    if wanted.is_empty() {
        return HashMap::new();
    }
    let here: HashSet<String> =
        all.iter().map(|c| name_key(catalogs, *c).text()).filter(|k| wanted.contains(k.as_str())).collect();
    if here.len() == wanted.len() {
        return HashMap::new();
    }
    let keys = par::map(all, |c| load(catalogs, *c, Depth::Head).map(|(_, row)| (name_key(catalogs, *c), row.key)));
    let other = keys.into_iter().flatten().map(|(name, header)| (name, Key::parse(&header)));
    other.filter(|(name, header)| name != header && wanted.contains(header.text().as_str())).collect()
}

/// The key that a thread has by its file's name.
fn name_key(catalogs: &[Catalog], c: Candidate) -> Key {
    match c {
        Candidate::Ghost { id, .. } => Key::Id(id),
        Candidate::Group { home, group } => {
            let catalog = &catalogs[home];
            let g = &catalog.groups[group];
            g.id.map_or_else(|| Key::Text(shown(&catalog.files[g.files[0] as usize].path())), Key::Id)
        }
    }
}

/// Names of all threads, by key: from the name index, and from Codex's database where that is the only place.
fn names(catalogs: &[Catalog]) -> HashMap<Key, String> {
    let mut names = HashMap::new();
    for catalog in catalogs {
        for (id, row) in catalog.db_named() {
            if catalog.names.entry(id).is_none()
                && let Some(name) = row.explicit_name(None)
            {
                names.insert(Key::Id(id), name.to_owned());
            }
        }
        for (id, name) in catalog.names.named() {
            names.insert(Key::Id(id), name.to_owned());
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

/// Which time of a thread's files orders it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Times {
    /// That of the last record.
    Records,
    /// Of modification.
    Files,
}

/// The time that orders a thread among the others.
fn time(catalogs: &[Catalog], c: Candidate, times: Times) -> i64 {
    match c {
        Candidate::Ghost { home, id } => catalogs[home].ghosts.get(&id).and_then(|r| r.updated_at).map_or(0, |t| t.0),
        Candidate::Group { home, group } => {
            let catalog = &catalogs[home];
            let g = &catalog.groups[group];
            let ms = UtcMillis::from_nanos(g.mtime_ns.into()).0;
            if times == Times::Files {
                return ms;
            }
            let times = g.files.iter().filter_map(|i| {
                let f = &catalog.files[*i as usize];
                tail::tail(&f.path_in(catalog.home.path()), f.name.form, row::follow(f)).ok()??.last_time
            });
            times.max().map_or(ms, |t| t.0)
        }
    }
}
