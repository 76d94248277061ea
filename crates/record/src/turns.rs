//! Where turns begin and end, told from the stream of records alone.
//!
//! Releases from 0.105 on mark turns (`task_started`, `task_complete`, `turn_aborted`). Before that a person's message
//! begins a turn. A roll-back takes the last turns away again; nothing is erased in the file.

use crate::envelope::{Envelope, Kind};
use crate::item::{Item, ItemBody, Origin};
use crate::sniff;

/// What a record means for turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// A turn is marked as started.
    Started,
    /// The running turn is marked as complete, or as failed.
    Completed {
        /// It ended with an error.
        failed: bool,
    },
    /// The running turn was ended from outside.
    Aborted,
    /// A person's message.
    UserMessage,
    /// A person's message in the model's account, beside which an event should stand.
    MaybeUserMessage,
    /// Anything else that is part of a turn.
    Content,
    /// The last turns are taken back.
    RolledBack(u64),
    /// Nothing for turns.
    None,
}

/// How a turn stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// It ended by itself.
    Completed,
    /// It was ended from outside.
    Interrupted,
    /// It ended with an error.
    Failed,
    /// It was started and no end is recorded.
    InProgress,
}

/// What a signal does to the sequence of turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The record belongs to the running turn, or to none.
    Stay,
    /// A turn begins with this record; if one was running, it ended with the status.
    Begin(Option<TurnStatus>),
    /// A turn may begin with this record: the caller remembers it.
    Hold,
    /// A turn began with the record that was held; if one was running, it ended with the status.
    BeginHeld(Option<TurnStatus>),
    /// The running turn ends with this record.
    End(TurnStatus),
    /// So many turns are taken back, the running one counted first.
    RollBack(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Running {
    No,
    Marked,
    Unmarked { has_user: bool },
}

/// Follows the turns of one thread. Feed it every record in order.
#[derive(Debug, Clone)]
pub struct TurnTracker {
    running: Running,
    count: u64,
    /// Turns are marked in this thread, so messages do not begin them.
    marked: bool,
    /// A message of the model's account waits for its event.
    held: bool,
}

impl Default for TurnTracker {
    fn default() -> Self {
        Self { running: Running::No, count: 0, marked: false, held: false }
    }
}

impl TurnTracker {
    /// Turns so far, those taken back not counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether turns are marked in this thread.
    #[must_use]
    pub fn is_marked(&self) -> bool {
        self.marked
    }

    /// Whether a turn is running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running != Running::No
    }

    /// The status of the running turn if the file ends here: without marks a turn counts as completed.
    #[must_use]
    pub fn final_status(&self) -> TurnStatus {
        if self.running == Running::Marked { TurnStatus::InProgress } else { TurnStatus::Completed }
    }

    /// The file ends here: a message that still waits for its event begins a turn.
    pub fn finish(&mut self) -> Step {
        if std::mem::take(&mut self.held) { self.begin_held() } else { Step::Stay }
    }

    fn begin_held(&mut self) -> Step {
        let ended = (self.running != Running::No).then_some(TurnStatus::Completed);
        self.begin(Running::Unmarked { has_user: true });
        Step::BeginHeld(ended)
    }

    /// Takes one record's signal.
    pub fn step(&mut self, signal: Signal) -> Step {
        self.marked |= matches!(signal, Signal::Started | Signal::Completed { .. } | Signal::Aborted);
        match signal {
            Signal::MaybeUserMessage if self.marked => return Step::Stay,
            Signal::MaybeUserMessage => {
                self.held = true;
                return Step::Hold;
            }
            // Its event is damaged or was never written: the message itself begins the turn.
            Signal::Content if std::mem::take(&mut self.held) => return self.begin_held(),
            Signal::None => {}
            _ => self.held = false,
        }
        match (signal, self.running) {
            (Signal::None | Signal::MaybeUserMessage, _) => Step::Stay,
            (Signal::Started, running) => {
                // A marked turn without an end was cut off: the program died or was killed.
                let ended = match running {
                    Running::No => None,
                    Running::Marked => Some(TurnStatus::Interrupted),
                    Running::Unmarked { .. } => Some(TurnStatus::Completed),
                };
                self.begin(Running::Marked);
                Step::Begin(ended)
            }
            (Signal::UserMessage, Running::Marked) => Step::Stay,
            (Signal::UserMessage, Running::Unmarked { has_user: false }) => {
                self.running = Running::Unmarked { has_user: true };
                Step::Stay
            }
            (Signal::UserMessage, running) => {
                let ended = (running != Running::No).then_some(TurnStatus::Completed);
                self.begin(Running::Unmarked { has_user: true });
                Step::Begin(ended)
            }
            (Signal::Content, Running::No) => {
                self.begin(Running::Unmarked { has_user: false });
                Step::Begin(None)
            }
            (Signal::Content, _) => Step::Stay,
            (Signal::Completed { .. } | Signal::Aborted, Running::No) => Step::Stay,
            (Signal::Completed { failed }, _) => {
                self.running = Running::No;
                Step::End(if failed { TurnStatus::Failed } else { TurnStatus::Completed })
            }
            (Signal::Aborted, _) => {
                self.running = Running::No;
                Step::End(TurnStatus::Interrupted)
            }
            (Signal::RolledBack(n), _) => {
                self.running = Running::No;
                self.count = self.count.saturating_sub(n);
                Step::RollBack(n)
            }
        }
    }

    fn begin(&mut self, running: Running) {
        self.running = running;
        self.count += 1;
    }
}

/// Which accounts of a thread hold its messages. Where events tell what a person saw, the model's copies of the same
/// messages are left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accounts {
    /// User messages stand in events.
    pub user_events: bool,
    /// Agent messages stand in events.
    pub agent_events: bool,
}

impl Accounts {
    /// Whether the item is a second account of what an event tells, so that a reader leaves it out.
    #[must_use]
    pub fn is_second_account(self, item: &Item) -> bool {
        item.origin == Origin::Response
            && match item.body {
                ItemBody::UserMessage { .. } => self.user_events,
                ItemBody::AgentMessage { .. } => self.agent_events,
                _ => false,
            }
    }

    /// The item's meaning for turns, in a thread with these accounts.
    #[must_use]
    pub fn signal(self, item: &Item) -> Signal {
        match &item.body {
            ItemBody::TurnStarted { .. } => Signal::Started,
            ItemBody::TurnCompleted { error, .. } => Signal::Completed { failed: error.is_some() },
            ItemBody::TurnAborted { .. } => Signal::Aborted,
            ItemBody::RolledBack { turns } => Signal::RolledBack(*turns),
            ItemBody::UserMessage { .. } if self.is_second_account(item) => Signal::MaybeUserMessage,
            ItemBody::UserMessage { .. } => Signal::UserMessage,
            // A message of the model's copy that comes before the event of its turn must not open one.
            ItemBody::AgentMessage { .. } if self.is_second_account(item) => Signal::None,
            ItemBody::AgentMessage { .. }
            | ItemBody::Reasoning { .. }
            | ItemBody::ToolCall { .. }
            | ItemBody::ToolOutput { .. }
            | ItemBody::Patch { .. }
            | ItemBody::Plan { .. } => Signal::Content,
            ItemBody::SubAgent { .. }
            | ItemBody::Picture { .. }
            | ItemBody::Compaction { .. }
            | ItemBody::Goal { .. }
            | ItemBody::Review { .. }
            | ItemBody::Error { .. }
            | ItemBody::Tokens(_)
            | ItemBody::Settings { .. }
            | ItemBody::Named { .. }
            | ItemBody::Injected { .. }
            | ItemBody::Silent
            | ItemBody::Unknown { .. } => Signal::None,
        }
    }
}

/// Whether a message is a person's, as its role says near its front.
fn is_user(record: &[u8]) -> bool {
    let head = &record[..record.len().min(400)];
    memchr::memmem::find(head, b"\"role\":\"user\"").is_some()
}

/// The meaning of a record for turns, told from its prefix where that is enough. The id is that of a started turn.
#[must_use]
pub fn signal_of_line(record: &[u8], accounts: Accounts) -> (Signal, Option<String>) {
    let quick = sniff::sniff(record).and_then(|s| match (s.kind, s.payload_type) {
        (Kind::ResponseItem, b"message") if accounts.user_events && accounts.agent_events && !is_user(record) => {
            Some(Signal::None)
        }
        (
            Kind::ResponseItem,
            b"function_call"
            | b"custom_tool_call"
            | b"function_call_output"
            | b"custom_tool_call_output"
            | b"reasoning"
            | b"local_shell_call",
        ) => Some(Signal::Content),
        (Kind::EventMsg, b"user_message") => Some(Signal::UserMessage),
        (Kind::EventMsg, b"agent_message" | b"agent_reasoning") => Some(Signal::Content),
        (Kind::EventMsg, b"token_count" | b"context_compacted" | b"thread_settings_applied") => Some(Signal::None),
        (Kind::EventMsg, b"item_completed") => match sniff::item_type(&record[s.payload_at..]) {
            Some(b"UserMessage") => Some(Signal::UserMessage),
            Some(b"AgentMessage" | b"Reasoning" | b"CommandExecution" | b"FileChange" | b"McpToolCall") => {
                Some(Signal::Content)
            }
            _ => None,
        },
        (Kind::ResponseItem | Kind::EventMsg, _) => None,
        _ => Some(Signal::None),
    });
    if let Some(signal) = quick {
        return (signal, None);
    }
    let Some(envelope) = Envelope::parse(record) else { return (Signal::None, None) };
    let item = Item::parse(&envelope);
    let signal = accounts.signal(&item);
    match item.body {
        ItemBody::TurnStarted { turn_id, .. } => (signal, turn_id),
        _ => (signal, item.turn_id.filter(|_| signal == Signal::UserMessage)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Signal::{Aborted, Completed, Content, RolledBack, Started, UserMessage};

    fn run(signals: &[Signal]) -> (Vec<Step>, u64) {
        let mut t = TurnTracker::default();
        (signals.iter().map(|s| t.step(*s)).filter(|s| *s != Step::Stay).collect(), t.count())
    }

    #[test]
    fn marked_turns_take_later_messages_in() {
        let (steps, n) =
            run(&[Started, UserMessage, Content, UserMessage, Completed { failed: false }, Started, Aborted]);
        assert_eq!(
            steps,
            [
                Step::Begin(None),
                Step::End(TurnStatus::Completed),
                Step::Begin(None),
                Step::End(TurnStatus::Interrupted)
            ]
        );
        assert_eq!(n, 2);
    }

    #[test]
    fn unmarked_turns_begin_with_a_message() {
        let (steps, n) = run(&[UserMessage, Content, UserMessage, Content]);
        assert_eq!(steps, [Step::Begin(None), Step::Begin(Some(TurnStatus::Completed))]);
        assert_eq!(n, 2);
        // What stands before the first message is not a turn of its own.
        assert_eq!(run(&[Content, UserMessage, Content]).1, 1);
    }

    #[test]
    fn a_roll_back_takes_turns_away_and_never_more_than_there_are() {
        assert_eq!(run(&[UserMessage, UserMessage, RolledBack(1), UserMessage]).1, 2);
        assert_eq!(run(&[UserMessage, RolledBack(9), UserMessage]).1, 1);
    }
}
