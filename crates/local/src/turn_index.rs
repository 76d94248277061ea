//! Where each turn of a history begins, so that one can be numbered, and reached without reading those before it.

use threadkeep_record::damage;
use threadkeep_record::turns::{Accounts, Signal, Step, TurnStatus, TurnTracker, signal_of_line};
use threadkeep_record::{Envelope, Item, ItemBody, Kind, LineState, SessionMeta, UtcMillis, check_line, long, sniff};
use threadkeep_rollout::block::{Block, BlockReader};
use threadkeep_rollout::lineage::History;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::{BUFFER, LineReader, RawLine};
use threadkeep_rollout::reverse::ReverseReader;
use threadkeep_rollout::source::{open_file, open_stream};

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
    /// Numbers and lines were counted from the beginning.
    pub counted: bool,
    /// Where the last turn ends, if not at the end of the history: span and offset.
    pub end: Option<(usize, u64)>,
    /// The last turn is a message of the model's account alone, which waits for its event: a record that comes behind it
    /// may make it no turn.
    pub last_waits: bool,
}

impl TurnIndex {
    /// Reads a history once.
    #[must_use]
    pub fn build(history: &History) -> Self {
        let mut indexer = TurnIndexer::new(history);
        indexer.run(usize::MAX);
        indexer.index
    }

    /// The last turns before `end` in the last file of a history, found from there backwards; for threads that are too
    /// large to be read for a page. `None` where that does not tell them: turns that are not marked or were taken
    /// back, context of a parent agent, another form of file, or fewer turns than asked for in the last file.
    #[must_use]
    pub fn tail(history: &History, turns: usize, end: Option<u64>) -> Option<Self> {
        let span = history.spans.last().filter(|s| s.form == Form::Plain && !s.inherited)?;
        let file = open_file(&span.path, span.follow).ok()?;
        let end = end.map_or_else(|| file.metadata().map(|m| m.len()), Ok).ok()?;
        let mut reader = ReverseReader::new(&file, end, 256 << 10);
        let (mut found, mut begin) = (0, 0);
        while found < turns {
            let line = reader.next_line().ok()??;
            if line.long {
                continue;
            }
            let text = damage::trim(line.bytes);
            match sniff::sniff(text).map(|s| (s.kind, s.payload_type)) {
                Some((Kind::EventMsg, b"task_started" | b"turn_started"))
                    if matches!(check_line(line.bytes), LineState::Record(_)) =>
                {
                    (found, begin) = (found + 1, line.offset);
                }
                Some((Kind::EventMsg, b"thread_rolled_back")) => return None,
                Some(_) => {}
                // Another spelling, or damage: what it says of turns is only told by reading on from the beginning.
                None if memchr::memmem::find(text, b"thread_rolled_back").is_some() => return None,
                None => {}
            }
        }
        let header = LineReader::open(&span.path, span.form, span.follow, 64 << 10).ok()?.next_line()?.bytes.to_vec();
        if SessionMeta::parse(&header)?.subagent_history_start_ordinal.is_some() {
            return None;
        }
        let mut indexer = TurnIndexer::new(history);
        indexer.index.counted = false;
        indexer.index.end = Some((history.spans.len() - 1, end));
        indexer.span = history.spans.len() - 1;
        indexer.lines = LineReader::open_at(&span.path, span.form, span.follow, BUFFER, begin, 1).ok();
        indexer.end = end;
        indexer.run(usize::MAX);
        Some(indexer.index)
    }

    /// Whether the turn of a record has an event with a person's message.
    #[must_use]
    pub fn has_user_event(&self, history: &History, span: usize, offset: u64) -> bool {
        let after = self.turns.partition_point(|t| (t.span, t.offset) <= (span, offset));
        let Some(turn) = after.checked_sub(1).and_then(|i| self.turns.get(i)) else { return false };
        let Some(s) = history.spans.get(turn.span) else { return false };
        let Ok(mut lines) = LineReader::open_at(&s.path, s.form, s.follow, BUFFER, turn.offset, turn.line) else {
            return false;
        };
        let end = self.turns.get(after).filter(|t| t.span == turn.span).map_or(u64::MAX, |t| t.offset);
        while let Some(line) = lines.next_line().filter(|l| l.offset < end && !s.is_past(l)) {
            let text = damage::trim(line.bytes);
            let response = sniff::sniff(text).is_some_and(|s| s.kind == threadkeep_record::Kind::ResponseItem);
            if !response && signal_of_line(text, self.accounts).0 == Signal::UserMessage {
                return true;
            }
        }
        false
    }

    /// The turn that a record belongs to.
    #[must_use]
    pub fn at(&self, span: usize, offset: u64) -> Option<&TurnEntry> {
        let after = self.turns.partition_point(|t| (t.span, t.offset) <= (span, offset));
        self.turns.get(after.checked_sub(1)?)
    }
}

/// Builds an index step by step, so that the first turns of a large thread can be shown at once.
pub struct TurnIndexer<'h> {
    history: &'h History,
    /// The turns so far. The last one may still change.
    pub index: TurnIndex,
    alive: Vec<usize>,
    tracker: TurnTracker,
    record: u64,
    span: usize,
    lines: Option<LineReader>,
    /// Records below this ordinal are context from a parent agent.
    context_end: Option<u64>,
    /// Where a turn begins that is not certain yet.
    held: Option<TurnEntry>,
    /// Where reading stops in the last file.
    end: u64,
    /// Everything was read.
    pub done: bool,
}

impl<'h> TurnIndexer<'h> {
    /// Begins at the start of a history.
    #[must_use]
    pub fn new(history: &'h History) -> Self {
        let index = TurnIndex { accounts: accounts(history), counted: true, ..TurnIndex::default() };
        Self {
            history,
            index,
            alive: Vec::new(),
            tracker: TurnTracker::default(),
            record: 0,
            span: 0,
            lines: None,
            context_end: None,
            held: None,
            end: u64::MAX,
            done: false,
        }
    }

    /// Reads on until so many turns are known, or to the end.
    pub fn run(&mut self, turns: usize) {
        while self.index.turns.len() < turns && !self.done {
            let Some(span) = self.history.spans.get(self.span) else {
                self.done = true;
                if let (Step::BeginHeld(_), Some(held)) = (self.tracker.finish(), self.held.take()) {
                    self.alive.push(self.index.turns.len());
                    self.index.turns.push(TurnEntry { number: self.alive.len() as u64, ..held });
                    self.index.last_waits = true;
                }
                if let (true, Some(last)) = (self.tracker.is_running(), self.index.turns.last_mut()) {
                    last.status = self.tracker.final_status();
                }
                return;
            };
            let opened =
                self.lines.take().or_else(|| LineReader::open(&span.path, span.form, span.follow, BUFFER).ok());
            let Some(mut lines) = opened else {
                self.span += 1;
                continue;
            };
            loop {
                let Some(line) = lines.next_line().filter(|line| !span.is_past(line) && line.offset < self.end) else {
                    self.span += 1;
                    break;
                };
                self.line(&line);
                if self.index.turns.len() >= turns {
                    self.lines = Some(lines);
                    break;
                }
            }
        }
    }

    fn line(&mut self, line: &RawLine<'_>) {
        let text = damage::trim(line.bytes);
        if text.is_empty() {
            return;
        }
        self.record += 1;
        if self.is_context(text, line) {
            return;
        }
        if line.long {
            return self.step(long::signal(line.bytes, self.index.accounts), None, text, line);
        }
        // The prefix of a broken record must not begin or end a turn, and a recovered one may.
        let (signal, id) = signal_of_line(text, self.index.accounts);
        if matches!(signal, Signal::None | Signal::Content) && text.ends_with(b"}") && sniff::sniff(text).is_some() {
            return self.step(signal, id, text, line);
        }
        match check_line(line.bytes) {
            LineState::Record(_) => self.step(signal, id, text, line),
            LineState::Recovered(records, _) => {
                for record in &records {
                    let (signal, id) = signal_of_line(record, self.index.accounts);
                    self.step(signal, id, record, line);
                }
            }
            LineState::Blank | LineState::Damaged(_) => {}
        }
    }

    /// Whether a record is context that a spawned agent got from its parent, which is no part of its conversation.
    fn is_context(&mut self, text: &[u8], line: &RawLine<'_>) -> bool {
        let Some(s) = sniff::sniff(text) else { return false };
        let own = self.history.spans.get(self.span).is_some_and(|s| !s.inherited);
        if s.kind == threadkeep_record::Kind::SessionMeta && own && line.number == 1 {
            self.context_end = SessionMeta::parse(text).and_then(|h| h.subagent_history_start_ordinal);
        }
        own && matches!((self.context_end, s.ordinal), (Some(end), Some(n)) if n < end)
    }

    fn step(&mut self, signal: Signal, id: Option<String>, text: &[u8], line: &RawLine<'_>) {
        let running = self.tracker.is_running();
        let turns = &mut self.index.turns;
        let entry = |number: usize, record: u64| TurnEntry {
            id,
            record,
            number: number as u64,
            span: self.span,
            offset: line.offset,
            line: line.number,
            status: TurnStatus::Completed,
            started_at: time(text),
            completed_at: None,
            taken_back: false,
        };
        match self.tracker.step(signal) {
            Step::Hold => self.held = Some(entry(0, self.record - 1)),
            Step::Stay => {}
            Step::Begin(ended) => {
                if let (Some(status), true, Some(last)) = (ended, running, turns.last_mut()) {
                    last.status = status;
                }
                self.alive.push(turns.len());
                turns.push(entry(self.alive.len(), self.record - 1));
            }
            Step::BeginHeld(ended) => {
                if let (Some(status), true, Some(last)) = (ended, running, turns.last_mut()) {
                    last.status = status;
                }
                if let Some(held) = self.held.take() {
                    self.alive.push(turns.len());
                    turns.push(TurnEntry { number: self.alive.len() as u64, ..held });
                }
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
                    let Some(i) = self.alive.pop() else { break };
                    turns[i].taken_back = true;
                }
            }
        }
    }
}

/// Whether turns of a history were taken back, so that the first turns cannot be told without reading all of it.
#[must_use]
pub fn has_roll_back(history: &History) -> bool {
    history.spans.iter().any(|span| {
        let Ok(stream) = open_stream(&span.path, span.form, span.follow) else { return false };
        let mut blocks = BlockReader::new(stream, BUFFER);
        while let Some(block) = blocks.next_block() {
            if let Block::Lines(range) = block
                && memchr::memmem::find(blocks.bytes(range), b"\"thread_rolled_back\"").is_some()
            {
                return true;
            }
        }
        false
    })
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
        while let Some(line) = lines.next_line() {
            if line.long {
                let item = long::item(line.bytes);
                let event = item.as_ref().is_some_and(|i| i.origin != threadkeep_record::Origin::Response);
                found.user_events |=
                    event && item.as_ref().is_some_and(|i| matches!(i.body, ItemBody::UserMessage { .. }));
                found.agent_events |= event && item.is_some_and(|i| matches!(i.body, ItemBody::AgentMessage { .. }));
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
            let record = match check_line(line.bytes) {
                LineState::Record(record) => std::borrow::Cow::Borrowed(record),
                LineState::Recovered(mut all, _) => match all.pop() {
                    Some(last) => last,
                    None => continue,
                },
                LineState::Blank | LineState::Damaged(_) => continue,
            };
            let Some(item) = Envelope::parse(&record).map(|e| Item::parse(&e)) else { continue };
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
