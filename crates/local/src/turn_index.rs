//! Where each turn of a history begins, so that one can be numbered, and reached without reading those before it.

use threadkeep_record::damage;
use threadkeep_record::turns::{Accounts, Signal, Step, TurnStatus, TurnTracker, signal_of_line};
use threadkeep_record::{Envelope, Item, ItemBody, LineState, UtcMillis, check_line, sniff};
use threadkeep_rollout::lineage::History;
use threadkeep_rollout::records::{BUFFER, LineReader};

/// A turn's place.
#[derive(Debug, Clone)]
pub struct TurnEntry {
    /// Its id, where the file gives one.
    pub id: Option<String>,
    /// Index of the first record, over all spans: names a turn without an id.
    pub record: u64,
    /// Its number, from 1; of a turn that was taken back, the number it had.
    pub number: u64,
    /// Index of the span it begins in.
    pub span: usize,
    /// Offset of its first record.
    pub offset: u64,
    /// Line number of its first record.
    pub line: u64,
    /// How it stands.
    pub status: TurnStatus,
    /// Time of its first record.
    pub started_at: Option<UtcMillis>,
    /// Time of the record that ended it.
    pub completed_at: Option<UtcMillis>,
    /// It was taken back by a roll-back.
    pub taken_back: bool,
}

/// The turns of a history in order.
#[derive(Debug, Clone, Default)]
pub struct TurnIndex {
    /// All turns, those taken back included.
    pub turns: Vec<TurnEntry>,
    /// Which accounts the history has.
    pub accounts: Accounts,
}

impl TurnIndex {
    /// Reads a history once.
    #[must_use]
    pub fn build(history: &History) -> Self {
        let accounts = accounts(history);
        let mut turns: Vec<TurnEntry> = Vec::new();
        let mut alive: Vec<usize> = Vec::new();
        let mut tracker = TurnTracker::default();
        let mut record = 0;
        for (span_index, span) in history.spans.iter().enumerate() {
            let Ok(mut lines) = LineReader::open(&span.path, span.form, span.follow, BUFFER) else { continue };
            while let Some(line) = lines.next() {
                if span.is_past(&line) {
                    break;
                }
                let text = damage::trim(line.bytes);
                if text.is_empty() {
                    continue;
                }
                record += 1;
                let (signal, id) = if line.long {
                    (Signal::Content, None)
                } else if text.ends_with(b"}") {
                    signal_of_line(text, accounts)
                } else {
                    (Signal::None, None)
                };
                // The prefix of a broken record must not begin or end a turn.
                let matters = !matches!(signal, Signal::None | Signal::Content);
                let signal = if matters && !line.long && matches!(check_line(line.bytes), LineState::Damaged(_)) {
                    Signal::None
                } else {
                    signal
                };
                let running = tracker.is_running();
                match tracker.step(signal) {
                    Step::Stay => {}
                    Step::Begin(ended) => {
                        if let (Some(status), true, Some(last)) = (ended, running, turns.last_mut()) {
                            last.status = status;
                        }
                        alive.push(turns.len());
                        turns.push(TurnEntry {
                            id,
                            record: record - 1,
                            number: alive.len() as u64,
                            span: span_index,
                            offset: line.offset,
                            line: line.number,
                            status: TurnStatus::Completed,
                            started_at: time(text),
                            completed_at: None,
                            taken_back: false,
                        });
                    }
                    Step::End(status) => {
                        // Whether it failed stands inside the record, which the prefix does not show.
                        if let Some(last) = turns.last_mut() {
                            last.status = if failed(text) { TurnStatus::Failed } else { status };
                            last.completed_at = time(text);
                        }
                    }
                    Step::RollBack(n) => {
                        for _ in 0..n {
                            let Some(i) = alive.pop() else { break };
                            turns[i].taken_back = true;
                        }
                    }
                }
            }
        }
        if let (true, Some(last)) = (tracker.is_running(), turns.last_mut()) {
            last.status = tracker.final_status();
        }
        Self { turns, accounts }
    }

    /// The turn that a record belongs to.
    #[must_use]
    pub fn at(&self, span: usize, offset: u64) -> Option<&TurnEntry> {
        let after = self.turns.partition_point(|t| (t.span, t.offset) <= (span, offset));
        self.turns.get(after.checked_sub(1)?)
    }
}

fn time(record: &[u8]) -> Option<UtcMillis> {
    match sniff::sniff(record) {
        Some(s) => UtcMillis::parse(std::str::from_utf8(s.timestamp).ok()?),
        None => Envelope::parse(record)?.time(),
    }
}

fn failed(record: &[u8]) -> bool {
    memchr::memmem::find(record, b"\"error\"").is_some()
        && Envelope::parse(record)
            .is_some_and(|e| matches!(Item::parse(&e).body, ItemBody::TurnCompleted { error: Some(_), .. }))
}

/// Which accounts a history has: told by its first user and agent message in an event.
#[must_use]
pub fn accounts(history: &History) -> Accounts {
    let mut found = Accounts::default();
    for span in &history.spans {
        let Ok(mut lines) = LineReader::open(&span.path, span.form, span.follow, BUFFER) else { continue };
        while let Some(line) = lines.next() {
            if line.long {
                continue;
            }
            let text = damage::trim(line.bytes);
            if sniff::sniff(text).is_some_and(|s| s.kind != threadkeep_record::Kind::EventMsg) {
                continue;
            }
            // The tokens cannot stand inside a string: their quotes would be escaped there.
            let may = |token: &[u8]| memchr::memmem::find(text, token).is_some();
            if !(may(b"\"user_message\"")
                || may(b"\"agent_message\"")
                || may(b"\"UserMessage\"")
                || may(b"\"AgentMessage\""))
            {
                continue;
            }
            let Some(item) = Envelope::parse(text).map(|e| Item::parse(&e)) else { continue };
            let event = item.origin != threadkeep_record::Origin::Response;
            found.user_events |= event && matches!(item.body, ItemBody::UserMessage { .. });
            found.agent_events |= event && matches!(item.body, ItemBody::AgentMessage { .. });
            if found.user_events && found.agent_events {
                return found;
            }
        }
    }
    found
}
