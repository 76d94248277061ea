//! What of a history a fork takes over (`thread-store.md` 7.1, 7.3), and what a revert takes back.

use serde_json::Value;
use threadkeep_record::turns::TurnStatus;
use threadkeep_record::{HistoryMode, Item, ItemBody, Kind, NewItem, Origin, ThreadId};

use crate::ThreadStoreError;
use crate::contract::StoreResult;
use crate::model_context;
use crate::params::ForkRange;
use crate::stored::{StoredHistory, StoredRecord};
use crate::turn_places::{TurnPlace, TurnPlaces};

/// A fork that a person asked for: a prefix of the history, and what is added behind it.
#[derive(Debug, Clone)]
pub struct Prefix {
    /// Records that are taken over, from the first.
    pub records: usize,
    /// The end of a turn that still runs.
    pub added: Vec<NewItem>,
}

/// The prefix of a history that a fork takes over; `None` for a sub-agent's fork, which is no prefix.
pub fn prefix(history: &StoredHistory, range: &ForkRange) -> StoreResult<Option<Prefix>> {
    let places = TurnPlaces::of(history);
    let only = |records| Ok(Some(Prefix { records, added: vec![] }));
    match range {
        ForkRange::Whole => {
            let last = places.turns.last().filter(|t| t.status == TurnStatus::InProgress && !t.taken_back);
            let added = last.map_or(vec![], |turn| interrupted(&turn.id).to_vec());
            Ok(Some(Prefix { records: history.records.len(), added }))
        }
        ForkRange::ThroughTurn(id) => {
            let turn = find(&places, LAST_TURN, id)?;
            if turn.status == TurnStatus::InProgress {
                return Err(in_progress(id));
            }
            only(places.next(turn).map_or(history.records.len(), |t| t.cut))
        }
        ForkRange::BeforeTurn(id) => only(find(&places, BEFORE_TURN, id)?.cut),
        ForkRange::Subagent { .. } => Ok(None),
    }
}

fn find<'p>(places: &'p TurnPlaces, parameter: &str, id: &str) -> StoreResult<&'p TurnPlace> {
    standing(places.turns.iter().filter(|t| t.id == id).map(|t| (t, t.taken_back)), parameter, id)
}

/// What a revert takes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenBack {
    /// So many turns.
    pub turns: u64,
    /// What a `thread_rolled_back` record has to say for it.
    pub num_turns: u64,
    /// Records that stay, from the first.
    pub records: usize,
    /// The last turn where it has no end: its id, and the index of its first record.
    pub unended: Option<(String, usize)>,
}

/// What is taken back if a turn no longer counts, and nothing behind it.
pub fn taken_back(history: &StoredHistory, before_turn: &str) -> StoreResult<TakenBack> {
    let places = TurnPlaces::of(history);
    let turn = find(&places, BEFORE_TURN, before_turn)?;
    let turns = places.alive().filter(|t| t.begin >= turn.begin).count() as u64;
    let last = places.turns.last().filter(|t| t.status == TurnStatus::InProgress && !t.taken_back);
    Ok(TakenBack {
        turns,
        num_turns: turns - u64::from(places.last_waits),
        records: turn.cut,
        unended: last.map(|t| (t.id.clone(), t.begin)),
    })
}

/// A thread is not reverted under a turn that runs.
#[must_use]
pub fn still_runs(thread_id: ThreadId, turn_id: &str) -> ThreadStoreError {
    let message = format!("thread {thread_id} cannot be reverted while its turn {turn_id} runs");
    ThreadStoreError::Conflict { message }
}

/// What clients call the turn that a fork ends with.
pub const LAST_TURN: &str = "lastTurnId";

/// What clients call the turn that a fork ends before, or that a revert takes back first.
pub const BEFORE_TURN: &str = "beforeTurnId";

/// Of the turns that have an id, the first that was not taken back; each comes with whether it was.
pub fn standing<T>(mut named: impl Iterator<Item = (T, bool)>, parameter: &str, id: &str) -> StoreResult<T> {
    let Some((first, taken_back)) = named.next() else {
        return Err(invalid(format!("{parameter} '{id}' was not found in the source thread")));
    };
    if !taken_back {
        return Ok(first);
    }
    let other = named.find(|(_, taken_back)| !taken_back).map(|(turn, _)| turn);
    other.ok_or_else(|| invalid(format!("{parameter} '{id}' is not a persisted canonical turn in the source thread")))
}

/// A fork cannot end with a turn that still runs.
#[must_use]
pub fn in_progress(id: &str) -> ThreadStoreError {
    invalid(format!("{LAST_TURN} '{id}' identifies an in-progress turn"))
}

/// Ends a turn that still ran in a fork, for the model and for readers.
#[must_use]
pub fn interrupted(turn_id: &str) -> [NewItem; 2] {
    let note = "<turn_aborted>\nThis turn was still running when the thread was forked.\n</turn_aborted>";
    [NewItem::model_message("user", note), NewItem::turn_aborted(turn_id, "interrupted")]
}

fn invalid(message: String) -> ThreadStoreError {
    ThreadStoreError::InvalidRequest { message }
}

/// The context of a spawned agent: indices of the parent's records, in order.
#[must_use]
pub fn subagent_context(history: &StoredHistory, last_turns: Option<u64>) -> Vec<usize> {
    let records = &history.records;
    let first = match history.history_mode {
        HistoryMode::Paginated => context_begin(history),
        HistoryMode::Legacy | HistoryMode::Unknown => 0,
    };
    // Boundaries are counted in everything; what is not kept is dropped afterwards.
    let from = match last_turns {
        None => Some(0),
        Some(0) => None,
        Some(n) => {
            let boundaries = boundaries(&records[first..]);
            let n = usize::try_from(n).unwrap_or(usize::MAX);
            boundaries.get(boundaries.len().saturating_sub(n)).map(|at| first + at)
        }
    };
    let Some(from) = from else { return vec![] };
    let bounded = last_turns.is_some();
    let header = history.own_header().map_or(0, |(index, _)| index);
    (0..records.len())
        .filter(|i| {
            (*i >= from.max(first) || *i == header && from == 0)
                && is_context(&records[*i], history.history_mode, bounded)
        })
        .collect()
}

/// Where the latest context of the model begins.
fn context_begin(history: &StoredHistory) -> usize {
    let kept = model_context::latest(history.clone()).records.len();
    let begin = history.records.len() - kept;
    // Behind the header, which is always kept.
    if begin == 0 { 0 } else { begin + 1 }
}

/// Records that begin a turn of the model: a person's message, or another agent's that asks for one. Turns that were
/// taken back do not count.
fn boundaries(records: &[StoredRecord]) -> Vec<usize> {
    let items: Vec<(usize, Kind, Item, bool)> = records
        .iter()
        .enumerate()
        .filter_map(|(i, r)| {
            let envelope = r.envelope()?;
            let agents = matches!(envelope.kind, Kind::InterAgent | Kind::InterAgentMetadata);
            let triggers = agents
                && serde_json::from_str::<Value>(envelope.payload)
                    .is_ok_and(|p| p["trigger_turn"] == Value::Bool(true));
            Some((i, envelope.kind, Item::parse(&envelope), triggers))
        })
        .collect();
    // A person's message stands in two accounts; the model's counts, where there is one.
    let in_response = items
        .iter()
        .any(|(_, _, item, _)| item.origin == Origin::Response && matches!(item.body, ItemBody::UserMessage { .. }));
    let mut found = Vec::new();
    for (i, _, item, triggers) in &items {
        match &item.body {
            ItemBody::UserMessage { .. } if (item.origin == Origin::Response) == in_response => found.push(*i),
            ItemBody::RolledBack { turns } => {
                let left = found.len().saturating_sub(usize::try_from(*turns).unwrap_or(usize::MAX));
                found.truncate(left);
            }
            _ if *triggers => found.push(*i),
            _ => {}
        }
    }
    found
}

/// Whether a spawned agent needs a record of its parent.
fn is_context(record: &StoredRecord, mode: HistoryMode, bounded: bool) -> bool {
    let Some(envelope) = record.envelope() else { return false };
    let payload_type = envelope.payload_type();
    let payload_type = payload_type.as_deref().unwrap_or("");
    match envelope.kind {
        Kind::SessionMeta | Kind::Compacted => true,
        Kind::TurnContext | Kind::WorldState => !bounded,
        Kind::EventMsg => {
            mode != HistoryMode::Paginated
                || !matches!(
                    payload_type,
                    "item_completed" | "token_count" | "thread_goal_updated" | "thread_settings_applied"
                )
        }
        Kind::ResponseItem if payload_type == "message" => {
            let Ok(payload) = serde_json::from_str::<Value>(envelope.payload) else { return false };
            match payload["role"].as_str() {
                Some("system" | "developer" | "user") => true,
                Some("assistant") => payload["phase"] == "final_answer",
                _ => false,
            }
        }
        Kind::ResponseItem
        | Kind::TokenUsageRecord
        | Kind::InterAgent
        | Kind::InterAgentMetadata
        | Kind::BareMeta
        | Kind::BareState
        | Kind::BareItem
        | Kind::Other => false,
    }
}

/// A record at another place of a paginated history: the same bytes but for its ordinal.
#[must_use]
pub fn with_ordinal(record: &StoredRecord, ordinal: u64) -> StoredRecord {
    #[derive(serde::Deserialize)]
    struct Place<'a> {
        #[serde(borrow)]
        ordinal: &'a serde_json::value::RawValue,
    }
    let text = &record.0[..];
    let number =
        std::str::from_utf8(text).ok().and_then(|t| serde_json::from_str::<Place<'_>>(t).ok()).map(|p| p.ordinal.get());
    if let Some(number) = number {
        let at = number.as_ptr() as usize - text.as_ptr() as usize;
        let mut moved = text[..at].to_vec();
        moved.extend(ordinal.to_string().bytes());
        moved.extend(&text[at + number.len()..]);
        return StoredRecord(moved);
    }
    let Some(brace) = text.iter().position(|b| *b == b'{') else { return record.clone() };
    let mut moved = text[..=brace].to_vec();
    moved.extend(format!("\"ordinal\":{ordinal}").bytes());
    if text[brace + 1..].iter().find(|b| !b.is_ascii_whitespace()) != Some(&b'}') {
        moved.push(b',');
    }
    moved.extend(&text[brace + 1..]);
    StoredRecord(moved)
}
