//! The latest model context: the records from the last compaction on, found from the end (`thread-store.md` 6.3).

use threadkeep_record::{HistoryMode, Kind, LineState, SessionMeta, ThreadId, check_line, sniff};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::lineage::Span;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::LineReader;
use threadkeep_rollout::reverse::ReverseReader;
use threadkeep_rollout::source::open_file;
use threadkeep_store::model_context::{FromTheEnd, from_the_end};
use threadkeep_store::{Archived, StoreResult, StoredHistory, StoredRecord};

use super::convert::whole_history;
use super::{Inner, invalid};

impl Inner {
    pub fn latest_model_context(&self, id: ThreadId, archived: Archived) -> StoreResult<StoredHistory> {
        let (_, open) = self.open_live_first(id, archived, Depth::Head)?;
        let open = open.ok_or_else(|| invalid(format!("no rollout found for thread id {id}")))?;
        let mode = open.row.thread.history_mode.unwrap_or(HistoryMode::Legacy);
        if let Some(span) = open.history.spans.last().filter(|s| s.form == Form::Plain)
            && let Some(records) = suffix(span)
            && let Some(header) = header_record(open.history.spans.iter().find(|s| !s.inherited).unwrap_or(span))
        {
            let records = std::iter::once(StoredRecord(header)).chain(records).collect();
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

/// The records that the context begins anew with, or `None` where all of the history is needed.
fn suffix(span: &Span) -> Option<Vec<StoredRecord>> {
    let file = open_file(&span.path, span.follow).ok()?;
    let size = file.metadata().ok()?.len();
    let mut reader = ReverseReader::new(&file, size, 64 << 10);
    let mut found = Vec::new();
    while let Some(line) = reader.next_line().ok()? {
        // A record that is not held whole may be what is looked for.
        if line.long || line.offset == 0 {
            return None;
        }
        let LineState::Record(record) = check_line(line.bytes) else { continue };
        // Only two kinds of records mean something here; telling them apart from the rest must not cost a parse each.
        let tells = sniff::sniff(record).is_none_or(|s| {
            s.kind == Kind::Compacted || s.kind == Kind::EventMsg && s.payload_type == b"thread_rolled_back"
        });
        let record = StoredRecord(record.to_vec());
        let meaning = if tells { from_the_end(&record) } else { FromTheEnd::On };
        found.push(record);
        match meaning {
            FromTheEnd::On => {}
            FromTheEnd::Begins => {
                found.reverse();
                return Some(found);
            }
            FromTheEnd::Everything => return None,
        }
    }
    None
}
