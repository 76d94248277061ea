//! Searching what was said.

use std::collections::HashSet;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use threadkeep_record::{Item, ItemBody, Origin, Speaker, text};

use super::pages::Paging;
use super::{MemoryThreadStore, invalid};
use crate::contract::StoreResult;
use crate::cursor::{self, Given};
use crate::list::Direction;
use crate::params::{Archived, SearchOccurrences, SearchThreads};
use crate::snippet::snippet;
use crate::stored::{Occurrence, OccurrencePage, StoredHistory, StoredThread, ThreadHit, ThreadHitPage};
use crate::turn_places::{TurnPlaces, visible_from};

/// A place behind a page of threads.
#[derive(Debug, Serialize, Deserialize)]
struct Place {
    kind: String,
    term: String,
    archived: bool,
    given: Given,
}

const KIND: &str = "memory-search1";

/// A text that is looked for, literally and in any case.
fn needle(term: &str) -> StoreResult<Regex> {
    let regex = RegexBuilder::new(&regex::escape(term)).case_insensitive(true).build();
    regex.map_err(|e| invalid(format!("search_term cannot be looked for: {e}")))
}

impl MemoryThreadStore {
    pub(super) fn search(&self, params: SearchThreads) -> StoreResult<ThreadHitPage> {
        let mut place = match &params.cursor {
            None => Place {
                kind: KIND.into(),
                term: params.search_term,
                archived: params.archived,
                given: Given::default(),
            },
            Some(text) => cursor::decode(text, |p: &Place| p.kind == KIND).map_err(|e| invalid(e.to_string()))?,
        };
        if place.term.is_empty() {
            return Err(invalid("thread/search requires search_term"));
        }
        let needle = needle(&place.term)?;
        let kept = self.lock();
        let mut threads: Vec<StoredThread> =
            kept.all().filter(|t| t.archived == place.archived && !place.given.has(&t.thread_id.to_string())).collect();
        threads.sort_by_key(|t| std::cmp::Reverse((t.updated_at, t.thread_id)));
        let mut hits = Vec::new();
        for thread in threads {
            let id = thread.thread_id;
            let history = kept.history(id);
            // What a fork took over is found where it was said.
            let copied = kept.thread(id)?.copied;
            let inherited: Vec<bool> = kept
                .lineage(id)
                .iter()
                .map(|p| p.owner != id || p.rollout == id && (1..=copied).contains(&p.index))
                .collect();
            let name = thread.name.as_ref().and_then(|n| needle.find(n).map(|m| snippet(n, m.start(), m.end())));
            let said = || said(&history, &needle).into_iter().find(|f| !inherited[f.record]);
            let found = name.map(|(snippet, _)| snippet).or_else(|| said().map(|f| f.occurrence.snippet));
            hits.extend(found.map(|snippet| ThreadHit { thread, snippet }));
            if hits.len() > params.page_size.max(1) {
                break;
            }
        }
        let more = hits.len() > params.page_size.max(1);
        hits.truncate(params.page_size.max(1));
        hits.iter().for_each(|h| place.given.add(&h.thread.thread_id.to_string()));
        Ok(ThreadHitPage { hits, next_cursor: more.then(|| cursor::encode(&place)) })
    }

    pub(super) fn occurrences(&self, params: &SearchOccurrences) -> StoreResult<OccurrencePage> {
        if params.search_term.is_empty() {
            return Err(invalid("thread/searchOccurrences requires search_term"));
        }
        if params.page_size == 0 {
            return Err(invalid("thread/searchOccurrences requires page_size greater than zero"));
        }
        let history = {
            let kept = self.lock();
            kept.found(params.thread_id, Archived::Included)?;
            kept.history(params.thread_id)
        };
        let mut rows: Vec<((u64, usize), Occurrence)> = Vec::new();
        for found in said(&history, &needle(&params.search_term)?) {
            let record = found.record as u64;
            let nth = rows.last().filter(|((r, _), _)| *r == record).map_or(0, |((_, nth), _)| nth + 1);
            rows.push(((record, nth), found.occurrence));
        }
        let paging = Paging {
            kind: "memory-occurrences1",
            thread: params.thread_id,
            page_size: params.page_size,
            cursor: params.cursor.as_deref(),
            direction: Direction::Ascending,
            asked: &params.search_term,
        };
        let (occurrences, next_cursor) = paging.page(rows)?;
        Ok(OccurrencePage { occurrences, next_cursor })
    }
}

struct Found {
    record: usize,
    occurrence: Occurrence,
    /// The whole text that the match stands in.
    text: String,
    /// It is a message of the model's account.
    second: bool,
}

/// Where a text was said, once for each speaker of a record.
fn said(history: &StoredHistory, needle: &Regex) -> Vec<Found> {
    let places = TurnPlaces::of(history);
    let mut found: Vec<Found> = Vec::new();
    // Turns, by where they begin, in which a person's message stands in an event.
    let mut by_person = HashSet::new();
    for (index, record) in history.records.iter().enumerate().skip(visible_from(history)) {
        let Some(envelope) = record.envelope() else { continue };
        let item = Item::parse(&envelope);
        let is_message = matches!(item.body, ItemBody::UserMessage { .. } | ItemBody::AgentMessage { .. });
        let turn = places.at(index);
        if item.origin != Origin::Response && matches!(item.body, ItemBody::UserMessage { .. }) {
            by_person.insert(turn.map(|t| t.begin));
        }
        let mut speakers = HashSet::new();
        for (speaker, text) in text::pieces(&item) {
            let Some(m) = needle.find(&text).filter(|_| speakers.insert(speaker)) else { continue };
            let (snippet, matched) = snippet(&text, m.start(), m.end());
            let occurrence = Occurrence {
                turn_id: turn.map(|t| t.id.clone()),
                turn_number: turn.filter(|t| !t.taken_back).map(|t| t.number),
                speaker,
                time: envelope.time(),
                snippet,
                matched,
            };
            let second = is_message && item.origin == Origin::Response;
            found.push(Found { record: index, occurrence, text: text.into_owned(), second });
        }
    }
    // What an event tells is not told again by the model's copy; beside events, a person's message that only the model
    // got was put there by a program.
    let told: HashSet<(Speaker, String)> =
        found.iter().filter(|f| !f.second).map(|f| (f.occurrence.speaker, f.text.trim().to_owned())).collect();
    found.retain(|f| {
        let speaker = f.occurrence.speaker;
        let turn = places.at(f.record).map(|t| t.begin);
        let program = speaker == Speaker::User && places.accounts.user_events && by_person.contains(&turn);
        !(f.second && (program || told.contains(&(speaker, f.text.trim().to_owned()))))
    });
    found
}
