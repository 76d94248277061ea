//! Any page of any list: every thread is told from the index where that knows its files as they are, and from its
//! files where it does not.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use threadkeep_index::listed::{Known, Listed};
use threadkeep_record::fold::Check;
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::par;
use threadkeep_store::{Cursor, Direction, ListQuery, SortKey};

use super::{Candidate, ListOptions, ListPage, RowsFrom, add_names, first_depth, load, sort_ms};
use crate::as_of;
use crate::catalog::Catalog;
use crate::filter::{Filter, Reason};
use crate::kept_filter::{KeptFilter, Verdict};
use crate::key::Key;
use crate::page::{children, merge_by_header};
use crate::row::Row;

/// What is asked for.
pub(super) struct Request<'r> {
    pub catalogs: &'r [Catalog],
    pub query: &'r ListQuery,
    pub filter: &'r Filter<'r>,
    pub cursor: Option<&'r Cursor>,
    pub options: ListOptions,
    /// So few threads that every file is read whole.
    pub small: bool,
    pub now: UtcMillis,
}

/// A thread that the index tells: its home, its group, what is kept.
type KeptThread<'c> = (usize, usize, &'c Listed);

/// A thread on its way to a page.
enum Found<'c> {
    /// Told by the index.
    Kept { home: usize, group: usize, listed: &'c Listed },
    /// Read from its files.
    Read { home: usize, row: Box<Row> },
}

/// A thread with its place in the order.
type Keyed<'c> = (i64, Key, Found<'c>);

/// So many threads are filtered on one core at once.
const FILTERED_AT_ONCE: usize = 8192;

/// What the query says to threads that the index tells.
#[derive(Default)]
struct Kept<'c> {
    /// Threads that it keeps.
    total: u64,
    hidden: HashMap<Reason, u64>,
    /// Of those that it keeps, the first that were not given before.
    keyed: Vec<Keyed<'c>>,
    /// Threads whose rows have to be looked at.
    unclear: Vec<Candidate>,
}

impl<'c> Kept<'c> {
    fn take(&mut self, other: Self) {
        self.total += other.total;
        for (reason, count) in other.hidden {
            *self.hidden.entry(reason).or_default() += count;
        }
        self.keyed.extend(other.keyed);
        self.unclear.extend(other.unclear);
    }
}

impl Request<'_> {
    fn needs_whole(&self) -> bool {
        self.query.sort == SortKey::Recency || !self.query.models.is_empty() || self.query.file.is_some()
    }

    /// How much the index must know of a thread for its row to be that of the files.
    fn enough(&self) -> Known {
        if self.small || self.needs_whole() || self.options.count { Known::Whole } else { Known::Ends }
    }

    fn depth(&self, c: Candidate) -> Depth {
        // Changed files are only told by a close look.
        if self.query.file.is_some() {
            return Depth::Whole(Check::Whole);
        }
        match first_depth(self.catalogs, c, self.small) {
            Depth::HeadAndTail if self.needs_whole() => Depth::Whole(Check::Ends),
            // The facts of a whole small file come with its head; in a large home that would read everything.
            Depth::Whole(_) if !self.small && !self.needs_whole() => Depth::HeadAndTail,
            other => other,
        }
    }

    /// Candidates that have to be read from their files.
    pub(super) fn unread(&self, all: &[Candidate]) -> usize {
        let enough = self.enough();
        all.iter().filter(|c| self.kept(**c, enough).is_none()).count()
    }

    fn kept(&self, c: Candidate, enough: Known) -> Option<&Listed> {
        let Candidate::Group { home, group } = c else { return None };
        self.catalogs[home].kept.get(group, enough)
    }

    fn read(&self, candidates: &[Candidate]) -> Vec<(usize, Row)> {
        let light = |c: &Candidate| {
            let (home, mut row) = load(self.catalogs, *c, self.depth(*c))?;
            row.preview_matches = self.filter.preview_matches(&row);
            row.touches = self.filter.touches(&row);
            row.touched = vec![];
            row.lighten();
            Some((home, row))
        };
        let mut rows: Vec<(usize, Row)> = par::map(candidates, light).into_iter().flatten().collect();
        add_names(self.catalogs, &mut rows);
        rows
    }

    pub(super) fn page(&self, all: &[Candidate]) -> ListPage {
        let (odd, mut rows) = self.split(all);
        merge_by_header(self.catalogs, &mut rows);
        let read_now = rows.len();
        let of_rows = rows.iter().filter_map(|(_, r)| Some((r.thread.id?, r.thread.parent_id)));
        let of_kept = all.iter().filter_map(|c| self.told(*c, &odd)).map(|(_, _, l)| (l.thread, l.parent));
        let children = children(self.catalogs, of_kept.chain(of_rows));
        let as_of = self.cursor.map_or(self.now.0, |c| c.as_of_ms);
        let filter = KeptFilter::new(self.catalogs, self.query, self.filter);
        let parts: Vec<&[Candidate]> = all.chunks(FILTERED_AT_ONCE).collect();
        let mut kept = Kept::default();
        for part in par::map(&parts, |part| self.filter_kept(part, &odd, &filter, as_of)) {
            kept.take(part);
            self.only_the_page(&mut kept.keyed);
        }
        rows.extend(self.read(&kept.unclear));
        for (home, row) in rows {
            match self.filter.leaves_out(&row) {
                Some(reason) => *kept.hidden.entry(reason).or_default() += 1,
                None => {
                    kept.total += 1;
                    kept.keyed.extend(self.placed(Found::Read { home, row: Box::new(row) }, as_of));
                }
            }
        }
        let Kept { total, hidden, mut keyed, .. } = kept;
        self.only_the_page(&mut keyed);
        let limit = self.options.limit.max(1);
        let more = keyed.len() > limit;
        keyed.sort_unstable_by(|a, b| self.order((a.0, &a.1), (b.0, &b.1)));
        keyed.truncate(limit);
        let next_cursor = more.then(|| self.next_cursor(&keyed, as_of)).flatten();
        let mut page = self.rows(keyed);
        for (_, row) in &mut page {
            let started = row.thread.id.and_then(|id| children.get(&id));
            row.thread.children = Some(started.map_or(0, |c| c.len() as u64));
        }
        let hidden =
            self.filter.reasons().into_iter().map(|r| (r, Some(hidden.get(&r).copied().unwrap_or(0)))).collect();
        ListPage {
            rows: page,
            next_cursor,
            total: Some(total),
            hidden,
            index: super::IndexUse::of(self.catalogs, read_now, "read from the files"),
            complete: false,
            notes: vec![],
            short_id: 8,
            catalogs: vec![],
        }
    }

    /// What the index tells of a thread, where it may: `odd` are those of which it may not.
    fn told(&self, c: Candidate, odd: &HashSet<ThreadId>) -> Option<KeptThread<'_>> {
        let Candidate::Group { home, group } = c else { return None };
        let listed = self.kept(c, self.enough())?;
        (odd.is_empty() || !odd.contains(&listed.thread)).then_some((home, group, listed))
    }

    /// The rows of what the index does not tell, and the threads of which it must not be asked, because files of other
    /// names belong to them.
    fn split(&self, all: &[Candidate]) -> (HashSet<ThreadId>, Vec<(usize, Row)>) {
        let nothing = HashSet::new();
        let unread: Vec<Candidate> = all.iter().copied().filter(|c| self.told(*c, &nothing).is_none()).collect();
        let mut rows = self.read(&unread);
        // A file whose header names another thread than its name belongs to that thread, which then is read with it.
        let named: HashSet<ThreadId> = rows.iter().filter_map(|(_, row)| row.thread.id).collect();
        if named.is_empty() {
            return (named, rows);
        }
        let is_odd = |c: &Candidate| self.told(*c, &nothing).is_some_and(|(_, _, l)| named.contains(&l.thread));
        let again: Vec<Candidate> = all.iter().copied().filter(is_odd).collect();
        if !again.is_empty() {
            // In the order of candidates: the first of a thread takes the others in.
            let mut first = self.read(&again);
            first.append(&mut rows);
            rows = first;
        }
        (named, rows)
    }

    /// Keeps what the query keeps of what the index tells of some threads, and counts the rest.
    fn filter_kept(
        &self,
        part: &[Candidate],
        odd: &HashSet<ThreadId>,
        filter: &KeptFilter<'_>,
        as_of: i64,
    ) -> Kept<'_> {
        let mut kept = Kept::default();
        for c in part {
            let Some((home, group, listed)) = self.told(*c, odd) else { continue };
            match filter.verdict(home, listed) {
                Verdict::In => {
                    kept.total += 1;
                    kept.keyed.extend(self.placed(Found::Kept { home, group, listed }, as_of));
                    // Never more than a few pages: what is kept of every thread has to be kept somewhere.
                    if kept.keyed.len() > self.options.limit.saturating_add(64).saturating_mul(4) {
                        self.only_the_page(&mut kept.keyed);
                    }
                }
                Verdict::Out(reason) => *kept.hidden.entry(reason).or_default() += 1,
                Verdict::Unclear => kept.unclear.push(Candidate::Group { home, group }),
            }
        }
        kept
    }

    /// Drops threads behind the page and the one that tells that there is another.
    fn only_the_page(&self, keyed: &mut Vec<Keyed<'_>>) {
        let most = self.options.limit.max(1).saturating_add(1);
        if keyed.len() > most {
            keyed.select_nth_unstable_by(most, |a, b| self.order((a.0, &a.1), (b.0, &b.1)));
            keyed.truncate(most);
        }
    }

    fn order(&self, a: (i64, &Key), b: (i64, &Key)) -> Ordering {
        if self.query.direction == Direction::Descending { b.cmp(&a) } else { a.cmp(&b) }
    }

    /// A thread with its place in the order; `None` for one that was given before.
    fn placed<'c>(&self, found: Found<'c>, as_of: i64) -> Option<Keyed<'c>> {
        let (mut ms, mtime) = match &found {
            Found::Kept { listed, .. } => (kept_ms(listed, self.query.sort), listed.mtime),
            Found::Read { row, .. } => (sort_ms(row, self.query.sort), row.mtime.0),
        };
        let mut found = found;
        if self.cursor.is_some() && mtime > as_of {
            // It was written to since the walk began: it keeps the place that it had.
            if let Found::Kept { home, group, .. } = found {
                let (home, row) = load(self.catalogs, Candidate::Group { home, group }, Depth::HeadAndTail)?;
                found = Found::Read { home, row: Box::new(row) };
            }
            if let Found::Read { home, row } = &found {
                ms = as_of::key(&self.catalogs[*home], row, self.query.sort, UtcMillis(as_of), ms)?;
            }
        }
        let key = match &found {
            Found::Kept { listed, .. } => Key::Id(listed.thread),
            Found::Read { row, .. } => Key::of(row),
        };
        let here = match self.cursor {
            None => true,
            Some(Cursor { given: Some(given), .. }) => !given.has(&key.text()),
            Some(c) => self.is_behind((ms, &key), mtime, c),
        };
        here.then_some((ms, key, found))
    }

    /// Whether a thread comes behind the page that a cursor ended.
    fn is_behind(&self, here: (i64, &Key), mtime: i64, c: &Cursor) -> bool {
        let last_key = Key::parse(&c.last_id);
        let last = (c.last_ms, &last_key);
        // A first page by modification time did not look at files older than its floor, whatever their records say.
        let (rest, restart) = match (c.floor_mtime_ms, c.first_ms, &c.first_id) {
            (Some(floor), Some(first), Some(id)) => {
                (self.order(here, (first, &Key::parse(id))).is_gt() || mtime < floor, last.0 == first && last.1.is(id))
            }
            _ => (true, false),
        };
        rest && (restart || self.order(here, last).is_gt())
    }

    fn next_cursor(&self, page: &[Keyed<'_>], as_of: i64) -> Option<String> {
        let (last_ms, last, _) = page.last()?;
        let mut c = Cursor::new(self.query.clone(), as_of, *last_ms, last.text());
        if let Some(before) = self.cursor {
            c.floor_mtime_ms = before.floor_mtime_ms;
            c.first_ms = before.first_ms;
            c.first_id = before.first_id.clone();
        }
        if self.small && self.cursor.is_none_or(|c| c.given.is_some()) {
            let mut given = self.cursor.and_then(|c| c.given.clone()).unwrap_or_default();
            page.iter().for_each(|(_, key, _)| given.add(&key.text()));
            c.given = Some(given);
        }
        Some(c.encode())
    }

    /// The rows of a page, whole.
    fn rows(&self, page: Vec<Keyed<'_>>) -> Vec<(usize, Row)> {
        let mut rows: Vec<Option<(usize, Row)>> = page.iter().map(|_| None).collect();
        for (home, catalog) in self.catalogs.iter().enumerate() {
            let mine: Vec<(usize, usize, &Listed)> = page
                .iter()
                .enumerate()
                .filter_map(|(i, (_, _, f))| match f {
                    Found::Kept { home: h, group, listed } if *h == home => Some((i, *group, *listed)),
                    Found::Kept { .. } | Found::Read { .. } => None,
                })
                .collect();
            let listed: Vec<&Listed> = mine.iter().map(|(_, _, l)| *l).collect();
            let kept = match self.options.rows {
                RowsFrom::Index => catalog.kept.rows(&listed),
                RowsFrom::Files => listed.iter().map(|_| None).collect(),
            };
            let mut given: Vec<(usize, Row)> = mine
                .iter()
                .zip(kept)
                .filter_map(|((_, group, _), row)| {
                    // A cut text, or a row that was dropped meanwhile, is read again.
                    let c = Candidate::Group { home, group: *group };
                    row.filter(|r| !r.lightened)
                        .map(|row| (home, row))
                        .or_else(|| load(self.catalogs, c, self.depth(c)))
                })
                .collect();
            add_names(self.catalogs, &mut given);
            for ((i, _, _), row) in mine.iter().zip(given) {
                rows[*i] = Some(row);
            }
        }
        for ((_, _, f), place) in page.into_iter().zip(&mut rows) {
            if let Found::Read { home, row } = f {
                *place = Some((home, self.unlighten(home, *row)));
            }
        }
        rows.into_iter().flatten().collect()
    }

    /// Reads again what was cut while the page was chosen.
    fn unlighten(&self, home: usize, row: Row) -> Row {
        // Where whole files are looked at anyway, that is done for all rows of the page together.
        if !row.lightened || self.small || self.options.count || row.members.is_empty() {
            return row;
        }
        let depth = if self.needs_whole() { Depth::Whole(Check::Ends) } else { Depth::HeadAndTail };
        let catalog = &self.catalogs[home];
        let members = row.members.iter().map(|m| crate::row::member(catalog, &m.entry, depth)).collect();
        let mut again = [(home, crate::row::build(catalog, row.thread.id, members, depth))];
        add_names(self.catalogs, &mut again);
        let [(_, again)] = again;
        again
    }
}

fn kept_ms(listed: &Listed, sort: SortKey) -> i64 {
    match sort {
        SortKey::Created => listed.created_at,
        SortKey::Updated => listed.updated_at,
        SortKey::Recency => listed.recency_at,
    }
}
