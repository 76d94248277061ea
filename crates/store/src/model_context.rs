//! Which records of a history the model's context is rebuilt from (`thread-store.md` 6.3).

use serde_json::Value;
use threadkeep_record::{Envelope, HistoryMode, Item, ItemBody, Kind};

use crate::stored::StoredHistory;

/// What a reader that comes from the end has met.
#[derive(Debug, Default)]
struct Met {
    compaction: bool,
    /// A person's message, or another agent's.
    message: bool,
    /// The settings of a turn.
    settings: bool,
}

/// The history without what the model's context does not need: the first header, and everything from the last
/// compaction that carries its replacement on, or from further back until a turn with its settings is there.
///
/// Without such a compaction, and where turns were taken back behind it, everything is needed.
#[must_use]
pub fn latest(mut history: StoredHistory) -> StoredHistory {
    let header = history.own_header().map_or(0, |(index, _)| index);
    if let Some(begin) = begin(&history, header) {
        history.records.swap(0, header);
        history.records.drain(1..begin);
    }
    history
}

/// Index of the first record that is needed behind the header; `None` where everything is.
fn begin(history: &StoredHistory, header: usize) -> Option<usize> {
    let mut met = Met::default();
    for (index, record) in history.records.iter().enumerate().rev() {
        if index == header {
            return None;
        }
        let Some(envelope) = record.envelope() else { continue };
        match envelope.kind {
            Kind::Compacted if !met.compaction => {
                met.compaction = Some(replaces(&envelope, history.history_mode)).filter(|whole| *whole)?;
            }
            Kind::TurnContext => met.settings = true,
            Kind::InterAgent => met.message = true,
            Kind::ResponseItem => met.message |= envelope.payload_type().as_deref() == Some("agent_message"),
            Kind::EventMsg => match Item::parse(&envelope).body {
                ItemBody::RolledBack { .. } => return None,
                ItemBody::UserMessage { .. } => met.message = true,
                _ => {}
            },
            Kind::SessionMeta
            | Kind::Compacted
            | Kind::WorldState
            | Kind::TokenUsageRecord
            | Kind::InterAgentMetadata
            | Kind::BareMeta
            | Kind::BareState
            | Kind::BareItem
            | Kind::Other => {}
        }
        if met.compaction && met.message && met.settings {
            return Some(index);
        }
    }
    None
}

/// Whether a compaction carries what stands for the history before it, and in the paginated mode its window's number.
fn replaces(compaction: &Envelope<'_>, mode: HistoryMode) -> bool {
    let Ok(payload) = serde_json::from_str::<Value>(compaction.payload) else { return false };
    // Older records have the number where later ones have an id.
    let number = payload.get("window_number").or_else(|| payload.get("window_id"));
    let numbered = mode == HistoryMode::Legacy || number.is_some_and(|n| n.as_u64().is_some());
    numbered && payload.get("replacement_history").is_some_and(Value::is_array)
}
