//! Which records of a history the model's context is rebuilt from (`thread-store.md` 6.3).

use serde_json::Value;
use threadkeep_record::{Item, ItemBody, Kind};

use crate::stored::{StoredHistory, StoredRecord};

/// What a record means to a reader that comes from the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromTheEnd {
    /// It is part of the context, as what stands before it may be.
    On,
    /// A compaction that carries its replacement and its window's number: what stands before it is not needed.
    Begins,
    /// A compaction without them, or turns taken back: everything is needed.
    Everything,
}

/// What a record means to a reader that comes from the end.
#[must_use]
pub fn from_the_end(record: &StoredRecord) -> FromTheEnd {
    let Some(envelope) = record.envelope() else { return FromTheEnd::On };
    match envelope.kind {
        Kind::Compacted => {
            let Ok(payload) = serde_json::from_str::<Value>(envelope.payload) else { return FromTheEnd::Everything };
            // Older records have the number where later ones have an id.
            let number = payload.get("window_number").or_else(|| payload.get("window_id"));
            let whole = payload.get("replacement_history").is_some_and(Value::is_array)
                && number.is_some_and(|n| n.as_u64().is_some());
            if whole { FromTheEnd::Begins } else { FromTheEnd::Everything }
        }
        Kind::EventMsg if matches!(Item::parse(&envelope).body, ItemBody::RolledBack { .. }) => FromTheEnd::Everything,
        _ => FromTheEnd::On,
    }
}

/// The history without what the model's context does not need: the first header, and everything from the last
/// compaction that carries its replacement on.
#[must_use]
pub fn latest(mut history: StoredHistory) -> StoredHistory {
    let mut begin = 0;
    for (index, record) in history.records.iter().enumerate().rev() {
        match from_the_end(record) {
            FromTheEnd::On => {}
            FromTheEnd::Begins => {
                begin = index;
                break;
            }
            FromTheEnd::Everything => break,
        }
    }
    if begin > 1 {
        history.records.drain(1..begin);
    }
    history
}
