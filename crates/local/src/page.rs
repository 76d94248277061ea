//! What is added to the rows of a page once they are chosen.

use std::collections::{HashMap, HashSet};

use threadkeep_record::ThreadId;
use threadkeep_record::fold::Check;
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::par;

use crate::catalog::Catalog;
use crate::list::add_names;
use crate::row::{self, Row};

/// Files whose names hold different ids, or none, may still be one thread by their headers.
pub(crate) fn merge_by_header(catalogs: &[Catalog], rows: &mut Vec<(usize, Row)>) {
    let mut by_id: HashMap<(usize, ThreadId), usize> = HashMap::new();
    let mut doubled = Vec::new();
    for (i, (home, row)) in rows.iter().enumerate() {
        let Some(id) = row.thread.id else { continue };
        match by_id.get(&(*home, id)) {
            Some(first) => doubled.push((*first, i)),
            None => {
                by_id.insert((*home, id), i);
            }
        }
    }
    for (first, again) in &doubled {
        let (home, other) = rows[*again].clone();
        let mut members = rows[*first].1.members.clone();
        members.extend(other.members);
        if members.is_empty() {
            continue;
        }
        let id = rows[*first].1.thread.id;
        rows[*first] = (home, row::build(&catalogs[home], id, members, Depth::HeadAndTail));
        add_names(catalogs, &mut rows[*first..=*first]);
    }
    for (_, again) in doubled.iter().rev() {
        rows.remove(*again);
    }
}

/// The threads that each thread started, from the files and from Codex's edges. `threads` are those that are here, each
/// with the thread that started it as its own files say it.
pub(crate) fn children(
    catalogs: &[Catalog],
    threads: impl Iterator<Item = (ThreadId, Option<ThreadId>)> + Clone,
) -> HashMap<ThreadId, HashSet<ThreadId>> {
    let mut children: HashMap<ThreadId, HashSet<ThreadId>> = HashMap::new();
    for (id, parent) in threads.clone().filter_map(|(id, parent)| Some((id, parent?))) {
        children.entry(parent).or_default().insert(id);
    }
    let edges: Vec<_> = catalogs.iter().flat_map(Catalog::db_edges).collect();
    if !edges.is_empty() {
        let here: HashSet<ThreadId> = threads.map(|(id, _)| id).collect();
        for (parent, child) in edges.into_iter().filter(|(_, child)| here.contains(child)) {
            children.entry(parent).or_default().insert(child);
        }
    }
    children
}

/// Facts of whole files for the rows of a page, within what a page may cost.
pub(crate) fn enrich(catalogs: &[Catalog], rows: &mut [(usize, Row)], small: bool, count: bool) {
    let check = if small || count { Check::Whole } else { Check::Ends };
    let mut budget: u64 = if small { 256 << 20 } else { 16 << 20 };
    let wanted: Vec<usize> = rows
        .iter()
        .enumerate()
        .filter(|(_, (_, row))| {
            let partial = row.is_partial();
            let fits = count || row.thread.bytes <= budget;
            if partial && fits {
                budget = budget.saturating_sub(row.thread.bytes);
            }
            partial && fits
        })
        .map(|(i, _)| i)
        .collect();
    let deeper = par::map(&wanted, |i| {
        let (home, row) = &rows[*i];
        let catalog = &catalogs[*home];
        let members = row.members.iter().map(|m| row::member(catalog, &m.entry, Depth::Whole(check))).collect();
        row::build(catalog, row.thread.id, members, Depth::Whole(check))
    });
    for (i, mut new) in wanted.into_iter().zip(deeper) {
        let old = &rows[i].1.thread;
        new.thread.children = old.children;
        // Codex's own additions stay.
        new.thread.name = old.name.clone();
        new.thread.archived_at = old.archived_at;
        new.thread.live = old.live.clone();
        new.thread.git = old.git.clone();
        if old.forked_from_id.is_some() && !rows[i].1.lightened {
            new.thread.preview = old.preview.clone();
        }
        rows[i].1 = new;
    }
}

/// Codex's flag and the place of a file may disagree; the place counts, and it is said.
pub(crate) fn place_notes(catalogs: &[Catalog], rows: &[(usize, Row)]) -> Vec<String> {
    let mut notes = Vec::new();
    for (home, catalog) in catalogs.iter().enumerate() {
        let ids: Vec<ThreadId> =
            rows.iter().filter(|(h, r)| *h == home && !r.is_ghost()).filter_map(|(_, r)| r.thread.id).collect();
        let db = catalog.db_rows(&ids);
        for (_, row) in rows.iter().filter(|(h, _)| *h == home) {
            if let Some(d) = row.thread.id.and_then(|id| db.get(&id))
                && !row.is_ghost()
                && d.archived != row.thread.archived
            {
                let (flag, place) =
                    if d.archived { ("archived", "sessions") } else { ("not archived", "archived_sessions") };
                notes.push(format!(
                    "thread {}: Codex's database says {flag}, its file is in {place}; the place counts",
                    row.key
                ));
            }
        }
    }
    notes
}

/// How many characters of an id tell all threads of the catalogs apart.
pub(crate) fn short_id(catalogs: &[Catalog]) -> usize {
    let mut longest = 7;
    for catalog in catalogs {
        // The groups are in the order of their ids, so only neighbours can share a beginning.
        for pair in catalog.groups.windows(2) {
            if let [Some(a), Some(b)] = [pair[0].id, pair[1].id] {
                let common = a.as_bytes().iter().zip(b.as_bytes()).position(|(x, y)| x != y).unwrap_or(15);
                let digits = common * 2 + usize::from(a.as_bytes()[common] >> 4 == b.as_bytes()[common] >> 4);
                let hyphens = [8, 12, 16, 20].iter().filter(|h| digits >= **h).count();
                longest = longest.max(digits + hyphens);
            }
        }
    }
    (longest + 1).clamp(8, 36)
}
