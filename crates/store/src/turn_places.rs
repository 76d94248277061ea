//! Where the turns of a history stand, told from its records in memory.

use threadkeep_record::fold::FoldLine;
use threadkeep_record::turns::{Accounts, Signal, Step, TurnStatus, TurnTracker};
use threadkeep_record::{Item, ItemBody, Origin, UtcMillis};

use crate::stored::{StoredHistory, StoredRecord};
use crate::turn_builder::{Detail, TurnBuilder};
use crate::turns::Turn;

/// A turn's place in a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnPlace {
    /// Its id, or `rollout-<record index>` where the history gives none.
    pub id: String,
    /// Its number, from 1; of a turn that was taken back, the number it had.
    pub number: u64,
    /// Index of its first record.
    pub begin: usize,
    /// Index of the first record that belongs to it in the model's account as well: a person's message may stand there
    /// before the event that begins the turn.
    pub cut: usize,
    /// How it stands.
    pub status: TurnStatus,
    /// Time of its first record.
    pub started_at: Option<UtcMillis>,
    /// Time of the record that ended it.
    pub completed_at: Option<UtcMillis>,
    /// It was taken back by a roll-back.
    pub taken_back: bool,
}

/// The turns of a history.
#[derive(Debug, Clone, Default)]
pub struct TurnPlaces {
    /// All turns in order, those taken back included.
    pub turns: Vec<TurnPlace>,
    /// Which accounts the history has.
    pub accounts: Accounts,
    /// Records below this index are the header and context from a parent agent: no part of the conversation.
    pub begin: usize,
    /// The last turn is a message of the model's account alone, which waits for its event: a record that comes behind it
    /// may make it no turn.
    pub last_waits: bool,
}

/// Which accounts hold the messages of some records.
#[must_use]
pub fn accounts(records: &[StoredRecord]) -> Accounts {
    let mut found = Accounts::default();
    for item in records.iter().filter_map(|r| Some(Item::parse(&r.envelope()?))) {
        if item.origin != Origin::Response {
            found.user_events |= matches!(item.body, ItemBody::UserMessage { .. });
            found.agent_events |= matches!(item.body, ItemBody::AgentMessage { .. });
        }
    }
    found
}

impl TurnPlaces {
    /// Finds the turns of a history.
    #[must_use]
    pub fn of(history: &StoredHistory) -> Self {
        let begin = visible_from(history);
        let mut places = Self { accounts: accounts(&history.records), begin, ..Self::default() };
        let mut finder = Finder::default();
        for (index, record) in history.records.iter().enumerate().skip(begin) {
            let Some(envelope) = record.envelope() else { continue };
            let item = Item::parse(&envelope);
            finder.record(&mut places, index, &item, envelope.time());
        }
        finder.finish(&mut places);
        places
    }

    /// The turns that were not taken back.
    pub fn alive(&self) -> impl DoubleEndedIterator<Item = &TurnPlace> {
        self.turns.iter().filter(|t| !t.taken_back)
    }

    /// The turn that a record belongs to.
    #[must_use]
    pub fn at(&self, record: usize) -> Option<&TurnPlace> {
        let after = self.turns.partition_point(|t| t.begin <= record);
        self.turns.get(after.checked_sub(1)?)
    }

    /// The turn behind another.
    #[must_use]
    pub fn next(&self, turn: &TurnPlace) -> Option<&TurnPlace> {
        self.turns.get(self.turns.partition_point(|t| t.begin <= turn.begin))
    }

    /// Reads a turn.
    #[must_use]
    pub fn read(&self, history: &StoredHistory, turn: &TurnPlace, detail: Detail) -> Turn {
        let end = self.next(turn).map_or(history.records.len(), |t| t.begin);
        let mut builder = TurnBuilder::new(self.accounts, detail);
        let mut offset = 0;
        for (index, record) in history.records.iter().enumerate().take(end) {
            let bytes = &record.0[..];
            if index >= turn.begin {
                let number = index as u64 + 1;
                builder.line(&FoldLine { bytes, offset, number, terminated: true, long: false }, "");
            }
            offset += bytes.len() as u64 + 1;
        }
        Turn {
            id: turn.id.clone(),
            number: Some(turn.number),
            status: turn.status,
            started_at: turn.started_at,
            completed_at: turn.completed_at,
            items: builder.finish(),
        }
    }
}

/// Index of the first record that is part of the conversation.
#[must_use]
pub fn visible_from(history: &StoredHistory) -> usize {
    let Some(end) = history.header().and_then(|h| h.subagent_history_start_ordinal) else { return 0 };
    let is_context = |r: &StoredRecord| r.envelope().and_then(|e| e.ordinal).is_some_and(|n| n < end);
    history.records.iter().rposition(is_context).map_or(0, |last| last + 1)
}

#[derive(Default)]
struct Finder {
    tracker: TurnTracker,
    /// Places of the turns that stand.
    alive: Vec<usize>,
    /// Where a message of the model's account stands that waits for its event.
    held: Option<(usize, Option<UtcMillis>)>,
}

impl Finder {
    fn record(&mut self, places: &mut TurnPlaces, index: usize, item: &Item, time: Option<UtcMillis>) {
        let signal = places.accounts.signal(item);
        let running = self.tracker.is_running();
        let step = self.tracker.step(signal);
        let id = match &item.body {
            ItemBody::TurnStarted { turn_id, .. } => turn_id.clone(),
            _ => item.turn_id.clone().filter(|_| signal == Signal::UserMessage),
        };
        match step {
            Step::Hold => self.held = Some((index, time)),
            Step::Stay => {}
            Step::Begin(ended) => {
                end_running(places, running, ended);
                let cut = self.held.take().map_or(index, |(held, _)| held);
                self.begin(places, index, cut, id, time);
            }
            Step::BeginHeld(ended) => {
                end_running(places, running, ended);
                if let Some((held, time)) = self.held.take() {
                    self.begin(places, held, held, None, time);
                }
            }
            Step::End(status) => {
                self.held = None;
                if let Some(last) = places.turns.last_mut() {
                    (last.status, last.completed_at) = (status, time);
                }
            }
            Step::RollBack(n) => {
                self.held = None;
                for _ in 0..n {
                    let Some(turn) = self.alive.pop() else { break };
                    places.turns[turn].taken_back = true;
                }
            }
        }
    }

    fn begin(
        &mut self,
        places: &mut TurnPlaces,
        begin: usize,
        cut: usize,
        id: Option<String>,
        time: Option<UtcMillis>,
    ) {
        self.alive.push(places.turns.len());
        places.turns.push(TurnPlace {
            id: id.unwrap_or_else(|| format!("rollout-{begin}")),
            number: self.alive.len() as u64,
            begin,
            cut,
            status: TurnStatus::Completed,
            started_at: time,
            completed_at: None,
            taken_back: false,
        });
    }

    fn finish(&mut self, places: &mut TurnPlaces) {
        if let (Step::BeginHeld(ended), Some((held, time))) = (self.tracker.finish(), self.held.take()) {
            end_running(places, ended.is_some(), ended);
            self.begin(places, held, held, None, time);
            places.last_waits = true;
        }
        if let (true, Some(last)) = (self.tracker.is_running(), places.turns.last_mut()) {
            last.status = self.tracker.final_status();
        }
    }
}

fn end_running(places: &mut TurnPlaces, running: bool, ended: Option<TurnStatus>) {
    if let (Some(status), true, Some(last)) = (ended, running, places.turns.last_mut()) {
        last.status = status;
    }
}
