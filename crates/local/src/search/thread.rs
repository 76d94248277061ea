//! The hits of one thread.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use threadkeep_record::{SourceClass, Speaker};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::walk::FileEntry;
use threadkeep_store::snippet::snippet;

use super::found::{Found, drop_inherited, drop_second_accounts, is_plain_copy};
use super::hint::{Hints, Look};
use super::is_archived;
use super::scan::{RawHit, Scan};
use crate::catalog::Catalog;
use crate::key::Key;
use crate::list::Candidate;
use crate::row;

/// A thread with its place among the others.
pub(super) struct Placed {
    pub ms: i64,
    pub key: Key,
    pub candidate: Candidate,
}

/// Puts so many of the first in order before all others, and says how many there are.
pub(super) fn first_of(threads: &mut [Placed], count: usize, order: impl Fn(&Placed, &Placed) -> Ordering) -> usize {
    let count = count.min(threads.len());
    if count > 0 && count < threads.len() {
        threads.select_nth_unstable_by(count, &order);
    }
    threads[..count].sort_unstable_by(order);
    count
}

/// Whether anything has to be looked at to tell that a thread has no hit.
pub(super) fn may_hit(work: &Work<'_>, thread: &Placed) -> bool {
    !work.named.is_empty() && work.named.contains(&thread.key)
        || match thread.candidate {
            Candidate::Ghost { .. } => false,
            Candidate::Group { home, group } => {
                work.single(home, group).is_none_or(|entry| work.hints.look(home, entry) != Look::Nowhere)
            }
        }
}

/// Finds the hits of a thread that are to be given. Some are dropped after the scan (second accounts, inherited text),
/// so a scan that stopped at its limit with too few left is made again with a larger one.
pub(super) fn scan_thread(work: &Work<'_>, thread: &Placed, scan: &Scan<'_>, buffer: &mut Vec<u8>) -> Option<Found> {
    let mut want = scan.want;
    loop {
        let wider = Scan { want, ..*scan };
        let found = scan_once(work, thread, &wider, buffer);
        let enough = found.as_ref().is_none_or(|f| !f.stopped || f.hits.len() >= scan.want);
        if enough {
            return found;
        }
        want = want.saturating_mul(4);
    }
}

/// What one search works with.
pub(super) struct Work<'w> {
    pub catalogs: &'w [Catalog],
    pub names: &'w HashMap<Key, String>,
    /// Keys of threads whose name holds the text.
    pub named: HashSet<&'w Key>,
    /// The threads that are searched, where that is not all.
    pub searched: Option<&'w HashSet<Key>>,
    /// Threads were named, so each is searched through its whole history.
    pub explicit: bool,
    pub hints: Hints<'w>,
}

impl Work<'_> {
    /// The hit in a thread's name.
    fn name_hit(&self, key: &Key, scan: &Scan<'_>) -> Option<RawHit> {
        if !scan.speakers.is_empty() && !scan.speakers.contains(&Speaker::Name) {
            return None;
        }
        let name = self.names.get(key)?;
        let (start, end) = scan.needle.find(name)?;
        Some(name_hit(name, start, end))
    }

    /// The one file of a group that is told by it alone.
    fn single(&self, home: usize, group: usize) -> Option<&FileEntry> {
        let catalog = &self.catalogs[home];
        let g = &catalog.groups[group];
        (g.files.len() == 1 && !self.explicit).then(|| &catalog.files[g.files[0] as usize])
    }
}

fn scan_once(work: &Work<'_>, thread: &Placed, scan: &Scan<'_>, buffer: &mut Vec<u8>) -> Option<Found> {
    let &Work { catalogs, searched, explicit, .. } = work;
    let Placed { ms: order_ms, key, candidate: c } = thread;
    let (order_ms, c) = (*order_ms, *c);
    let hits: Vec<(Option<PathBuf>, RawHit)> = work.name_hit(key, scan).into_iter().map(|h| (None, h)).collect();
    let found = |home, id, archived, hits| Found {
        home,
        key: key.clone(),
        id,
        archived,
        order_ms,
        hits,
        history: None,
        stopped: false,
        problem: None,
        preview: None,
        class: SourceClass::Person,
    };
    let (home, group) = match c {
        Candidate::Group { home, group } => (home, group),
        Candidate::Ghost { home, id } => {
            return Some(found(home, Some(id), is_archived(catalogs, c), hits));
        }
    };
    let catalog = &catalogs[home];
    let g = &catalog.groups[group];
    let single = work.single(home, group);
    let look = single.map_or(Look::All, |entry| work.hints.look(home, entry));
    // Nearly all threads of a home end here, where there is a hint.
    if look == Look::Nowhere && hits.is_empty() {
        return None;
    }
    let mut found = found(home, g.id, g.archived, hits);
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
