//! What is done with the hits of one thread: those that say the same are dropped, the others get their place.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use threadkeep_record::{Origin, SourceClass, Speaker, ThreadId};
use threadkeep_rollout::lineage::{self, History, Relation, Role};
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_store::SearchHit;

use super::scan::RawHit;
use crate::catalog::Catalog;
use crate::inherited;
use crate::key::Key;
use crate::row::{Row, shown};
use crate::turn_index::TurnIndex;

/// Where hits of a thread come from.
pub(super) struct Found {
    pub(super) home: usize,
    pub(super) key: Key,
    pub(super) id: Option<ThreadId>,
    pub(super) archived: bool,
    pub(super) order_ms: i64,
    /// Each with the file it stands in; a name has none.
    pub(super) hits: Vec<(Option<PathBuf>, RawHit)>,
    /// Why some file could not be scanned to its end.
    pub(super) problem: Option<String>,
    /// Its preview, where it was looked at.
    pub(super) preview: Option<String>,
    /// Who started it.
    pub(super) class: SourceClass,
    /// Some file was not scanned to its end, having hits enough.
    pub(super) stopped: bool,
    pub(super) history: Option<History>,
}

/// Whether a file only repeats what the thread's head says.
pub(super) fn is_plain_copy(catalog: &Catalog, row: &Row, path: &std::path::Path) -> bool {
    let Some(assembly) = &row.assembly else { return false };
    let copy = row
        .members
        .iter()
        .zip(&assembly.roles)
        .any(|(m, role)| *role == Role::Copy && m.entry.path_in(catalog.home.path()) == path);
    copy && matches!(
        lineage::compare(&row.members[assembly.head].entry.path_in(catalog.home.path()), path),
        Relation::Equal | Relation::Extends
    )
}

/// Messages of the model's account are left out where events tell the same. What only that account has is kept: an
/// agent's message always; a person's where its turn has no event of one, since beside events it was put there by a
/// program.
pub(super) fn drop_second_accounts(history: &History, hits: &mut Vec<(Option<PathBuf>, RawHit)>, stopped: bool) {
    let second = |h: &RawHit| h.message && h.origin == Origin::Response;
    if !hits.iter().any(|(_, h)| second(h)) {
        return;
    }
    // The event of the last message may stand behind the place where the scan stopped.
    if stopped && hits.last().is_some_and(|(_, h)| second(h)) {
        hits.pop();
    }
    let told: HashSet<(Speaker, u64)> =
        hits.iter().filter(|(_, h)| h.origin != Origin::Response).map(|(_, h)| (h.speaker, h.text)).collect();
    hits.retain(|(_, h)| !(second(h) && told.contains(&(h.speaker, h.text))));
    let alone = |h: &RawHit| second(h) && h.speaker == Speaker::User;
    if hits.iter().any(|(_, h)| alone(h)) && crate::turn_index::accounts(history).user_events {
        let index = TurnIndex::build(history);
        hits.retain(|(path, h)| {
            let span = history.spans.iter().position(|s| Some(&s.path) == path.as_ref());
            !alone(h) || span.is_some_and(|s| !index.has_user_event(history, s, h.offset))
        });
    }
}

/// What a fork or a spawned agent copied from its parent is found in the parent, if that is here.
pub(super) fn drop_inherited(
    catalog: &Catalog,
    row: &Row,
    hits: &mut Vec<(Option<PathBuf>, RawHit)>,
    searched: Option<&HashSet<Key>>,
) {
    let Some(member) = row.assembly.as_ref().map(|a| &row.members[a.head]) else { return };
    let Some(header) = &member.facts.header else { return };
    let Some(parent) = header.forked_from_id.or_else(|| header.parent()) else { return };
    // A parent that a filter leaves out is not searched, so the copy is the only place.
    if searched.is_some_and(|keys| !keys.contains(&Key::Id(parent))) {
        return;
    }
    if catalog.group(parent).is_none() {
        return;
    }
    if let Some(start) = header.subagent_history_start_ordinal {
        hits.retain(|(_, h)| h.ordinal.is_none_or(|o| o >= start));
    }
    if let Some(prefix) = inherited::copied_from(catalog, member, parent) {
        let own = member.entry.path_in(catalog.home.path());
        hits.retain(|(path, h)| path.as_ref() != Some(&own) || h.offset >= prefix.end);
    }
}

/// Gives hits their place in the thread: turn, line and path.
pub(super) fn place(catalogs: &[Catalog], found: &Found, skip: usize, take: usize) -> Vec<SearchHit> {
    let catalog = &catalogs[found.home];
    let chosen = &found.hits[skip..skip + take];
    let index = found.history.as_ref().filter(|_| chosen.iter().any(|(p, _)| p.is_some())).map(TurnIndex::build);
    let mut lines: HashMap<&PathBuf, HashMap<u64, u64>> = HashMap::new();
    for (path, hit) in chosen {
        if let Some(path) = path {
            lines.entry(path).or_default().insert(hit.offset, 0);
        }
    }
    for (path, offsets) in &mut lines {
        number_lines(path, offsets);
    }
    chosen
        .iter()
        .map(|(path, h)| {
            let spans = found.history.as_ref().map_or(&[][..], |h| &h.spans);
            let span = path.as_ref().and_then(|p| spans.iter().position(|s| s.path == *p));
            let past = span.is_some_and(|s| {
                spans[s].end.is_some_and(|e| h.ordinal.map_or(h.offset >= e.offset && e.offset > 0, |o| o >= e.ordinal))
            });
            let turn = span.filter(|_| !past).and_then(|s| index.as_ref()?.at(s, h.offset));
            SearchHit {
                thread_id: found.id,
                turn_id: turn
                    .map(|t| t.id.clone().unwrap_or_else(|| format!("rollout-{}", t.record)))
                    .or_else(|| h.turn_id.clone()),
                turn_number: turn.filter(|t| !t.taken_back).map(|t| t.number),
                speaker: h.speaker,
                time: h.time,
                snippet: h.snippet.clone(),
                matched: h.matched,
                path: path.as_ref().map(|p| shown(catalog.home.relative(p))),
                line: path.as_ref().and_then(|p| lines.get(p)?.get(&h.offset).copied()),
                offset: path.as_ref().map(|_| h.offset),
            }
        })
        .collect()
}

/// Line numbers of some offsets of a file.
fn number_lines(path: &std::path::Path, offsets: &mut HashMap<u64, u64>) {
    let text = path.to_string_lossy();
    let form = threadkeep_rollout::RolloutName::parse(text.rsplit('/').next().unwrap_or(""))
        .map_or(threadkeep_rollout::Form::Plain, |n| n.form);
    let mut left = offsets.len();
    let Ok(mut lines) = LineReader::open(path, form, threadkeep_rollout::source::Follow::Links, BUFFER) else { return };
    while let Some(line) = lines.next_line() {
        if let Some(number) = offsets.get_mut(&line.offset) {
            *number = line.number;
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}
