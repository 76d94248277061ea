//! The latest model context: the records from the last compaction on, found from the end (`thread-store.md` 6.3).

use serde_json::Value;
use threadkeep_record::{Envelope, HistoryMode, Kind, LineState, SessionMeta, ThreadId, check_line, sniff};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::lineage::Span;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::LineReader;
use threadkeep_rollout::reverse::ReverseReader;
use threadkeep_rollout::source::open_file;
use threadkeep_store::{Archived, StoreResult, StoredHistory, StoredRecord};

use super::Inner;
use super::convert::whole_history;

impl Inner {
    pub fn latest_model_context(&self, id: ThreadId, archived: Archived) -> StoreResult<StoredHistory> {
        let open = self.open_made(id, archived, Depth::Head)?;
        let mode = open.row.thread.history_mode.unwrap_or(HistoryMode::Legacy);
        if let Some(span) = open.history.spans.last().filter(|s| s.form == Form::Plain)
            && let Some(records) = suffix(span, mode)
            && let Some(header) = header_record(open.history.spans.iter().find(|s| !s.inherited).unwrap_or(span))
        {
            let records = std::iter::once(header).chain(records).map(StoredRecord).collect();
            return Ok(StoredHistory { thread_id: id, history_mode: mode, records, damaged: 0 });
        }
        whole_history(id, mode, &open.history)
    }
}

/// The first header of a rollout, as its bytes.
pub fn header_record(span: &Span) -> Option<Vec<u8>> {
    let mut lines = LineReader::open(&span.path, span.form, span.follow, 64 << 10).ok()?;
    while let Some(line) = lines.next_line() {
        if let LineState::Record(record) = check_line(line.bytes)
            && SessionMeta::parse(record).is_some()
        {
            return Some(record.to_vec());
        }
    }
    None
}

/// The records behind which the context begins anew, or `None` where all of the history is needed: no compaction that
/// carries its replacement, or turns that were taken back behind it.
fn suffix(span: &Span, mode: HistoryMode) -> Option<Vec<Vec<u8>>> {
    let file = open_file(&span.path, span.follow).ok()?;
    let size = file.metadata().ok()?.len();
    let mut reader = ReverseReader::new(&file, size, 64 << 10);
    let mut found = Vec::new();
    let (mut compaction, mut message, mut settings) = (false, false, false);
    while let Some(line) = reader.next_line().ok()? {
        if line.long {
            return None;
        }
        if line.offset == 0 {
            break;
        }
        let LineState::Record(record) = check_line(line.bytes) else { continue };
        let kind = sniff::sniff(record).map(|s| (s.kind, s.payload_type));
        match kind {
            Some((Kind::EventMsg, b"thread_rolled_back")) => return None,
            Some((Kind::Compacted, _)) if !compaction => {
                if !replaces(record, mode) {
                    return None;
                }
                compaction = true;
            }
            Some((Kind::TurnContext, _)) => settings = true,
            Some((Kind::EventMsg, b"user_message")) | Some((Kind::InterAgent, _)) => message = true,
            Some((Kind::EventMsg, b"item_completed")) => {
                message |= sniff::sniff(record)
                    .is_some_and(|s| sniff::item_type(&record[s.payload_at..]) == Some(b"UserMessage"));
            }
            Some((Kind::ResponseItem, b"agent_message")) => message = true,
            // Another spelling: read all, rather than miss what it says.
            None if Envelope::parse(record).is_none() => continue,
            None => return None,
            Some(_) => {}
        }
        found.push(record.to_vec());
        if compaction && message && settings {
            found.reverse();
            return Some(found);
        }
    }
    None
}

/// Whether a compaction carries what stands for the history before it.
fn replaces(record: &[u8], mode: HistoryMode) -> bool {
    let Some(envelope) = Envelope::parse(record) else { return false };
    let Ok(payload) = serde_json::from_str::<Value>(envelope.payload) else { return false };
    // Older records have the number where later ones have an id.
    let number = payload.get("window_number").or_else(|| payload.get("window_id"));
    let numbered = number.is_some_and(Value::is_u64);
    payload.get("replacement_history").is_some_and(Value::is_array) && (numbered || mode == HistoryMode::Legacy)
}
