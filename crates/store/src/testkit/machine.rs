//! Random operations against a plain model of threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use threadkeep_record::{Field, HistoryMode, MetadataPatch, UtcMillis};

use super::StoreHarness;
use super::listing::{everything, number};
use super::talk::{
    Refused, Store, again, begun, envelope, event, id, new, no_rollout, payloads, refused, roll_back, said, times,
    turn, turns,
};
use crate::contract::StoreResult;
use crate::params::{Archived, ForkRange, ForkThread, WithHistory};

/// A step of the machine. It is decoded from bytes, so that whoever makes random steps needs nothing of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Makes a thread.
    Create(u32, HistoryMode),
    /// Appends a whole turn.
    Turn(u32),
    /// Appends a turn that still runs.
    Begin(u32),
    /// Appends only what is not kept.
    Nothing(u32),
    /// Takes turns back.
    RollBack(u32, u64),
    /// Makes durable.
    Flush(u32),
    /// Makes a thread without items.
    Persist(u32),
    /// Closes.
    Shutdown(u32),
    /// Closes without writing.
    Discard(u32),
    /// Continues.
    Resume(u32),
    /// Another process tries to continue it.
    Intrude(u32),
    /// Gives a name, or takes it away.
    Rename(u32, Option<u8>),
    /// Observes something.
    Observe(u32),
    /// Forks one thread into another.
    Fork(u32, u32),
    /// Forks through one of its turns.
    ForkThrough(u32, u32, usize),
    /// Forks before one of its turns.
    ForkBefore(u32, u32, usize),
    /// The process ends and another begins.
    Reopen,
    /// The clock moves, in either direction.
    Clock(i8),
}

impl Step {
    /// The step that four bytes stand for: what, on which thread, and with what.
    #[must_use]
    pub fn decode([what, on, with, and]: [u8; 4]) -> Self {
        let n = u32::from(on % 4) + 1;
        let other = u32::from(with % 4) + 1;
        match what % 24 {
            0 | 1 => Self::Create(n, if with % 2 == 0 { HistoryMode::Legacy } else { HistoryMode::Paginated }),
            2..=6 => Self::Turn(n),
            7 => Self::Begin(n),
            8 => Self::Nothing(n),
            9 => Self::RollBack(n, u64::from(with % 3)),
            10 => Self::Flush(n),
            11 => Self::Persist(n),
            12 => Self::Shutdown(n),
            13 => Self::Discard(n),
            14 | 15 => Self::Resume(n),
            16 => Self::Intrude(n),
            17 => Self::Rename(n, (with % 4 != 0).then_some(and)),
            18 => Self::Observe(n),
            19 => Self::Fork(n, other),
            20 => Self::ForkThrough(n, other, usize::from(and)),
            21 => Self::ForkBefore(n, other, usize::from(and)),
            22 => Self::Reopen,
            _ => Self::Clock(with.cast_signed()),
        }
    }
}

/// What a record means to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Mark {
    Begins(String),
    Ends,
    TakesBack(usize),
    Other,
}

/// A thread of the model.
#[derive(Debug, Clone)]
struct Thread {
    mode: HistoryMode,
    /// It is there; otherwise it only has a writer.
    exists: bool,
    live: bool,
    name: Option<String>,
    records: Vec<(String, Mark)>,
}

/// The turns of some records: id, where it begins, whether it stands, whether it runs.
fn turns_of(records: &[(String, Mark)]) -> Vec<(String, usize, bool, bool)> {
    let mut turns: Vec<(String, usize, bool, bool)> = Vec::new();
    for (i, (_, mark)) in records.iter().enumerate() {
        match mark {
            Mark::Begins(id) => {
                turns.iter_mut().for_each(|t| t.3 = false);
                turns.push((id.clone(), i, true, true));
            }
            Mark::Ends => turns.iter_mut().for_each(|t| t.3 = false),
            Mark::TakesBack(n) => {
                turns.iter_mut().for_each(|t| t.3 = false);
                turns.iter_mut().rev().filter(|t| t.2).take(*n).for_each(|t| t.2 = false);
            }
            Mark::Other => {}
        }
    }
    turns
}

struct Machine<'h> {
    h: &'h dyn StoreHarness,
    store: Store,
    threads: BTreeMap<u32, Thread>,
    turns: u32,
}

/// Plays steps, each of four bytes, on a store and on the model, and compares what both say.
pub async fn play(h: &dyn StoreHarness, steps: &[[u8; 4]]) {
    let mut machine = Machine { h, store: h.open(), threads: BTreeMap::new(), turns: 0 };
    for (i, step) in steps.iter().map(|bytes| Step::decode(*bytes)).enumerate() {
        machine.step(step).await;
        machine.check(&format!("after step {i}, {step:?}")).await;
    }
    machine.step(Step::Reopen).await;
    machine.check("in the end").await;
}

impl Machine<'_> {
    fn live(&self, n: u32) -> bool {
        self.threads.get(&n).is_some_and(|t| t.live)
    }

    fn exists(&self, n: u32) -> bool {
        self.threads.get(&n).is_some_and(|t| t.exists)
    }

    fn mode(&self, n: u32) -> HistoryMode {
        self.threads.get(&n).map_or(HistoryMode::Legacy, |t| t.mode)
    }

    /// Closes the model's writer; a thread that was never made is gone.
    fn close(&mut self, n: u32) {
        self.threads.retain(|k, t| *k != n || t.exists);
        self.threads.entry(n).and_modify(|t| t.live = false);
    }

    /// A result that is good with a live writer and `ThreadNotFound` without.
    fn with_writer<T: std::fmt::Debug>(&self, n: u32, result: StoreResult<T>) -> bool {
        if self.live(n) {
            result.expect("there is a live writer");
            true
        } else {
            assert_eq!(refused(result), Refused::NotFound);
            false
        }
    }

    async fn step(&mut self, step: Step) {
        let store = Arc::clone(&self.store);
        match step {
            Step::Create(n, mode) => {
                let created = store.create_thread(new(n, mode)).await;
                if self.live(n) || self.exists(n) {
                    assert!(matches!(refused(created), Refused::Invalid(_)));
                } else {
                    created.expect("a new thread");
                    let thread = Thread { mode, exists: false, live: true, name: None, records: vec![] };
                    self.threads.insert(n, thread);
                }
            }
            Step::Turn(n) => {
                self.turns += 1;
                let (mode, turn_id) = (self.mode(n), format!("turn-{}", self.turns));
                let items = turn(mode, n, &turn_id, &format!("asked {turn_id}"), "answered");
                let marks = [Mark::Begins(turn_id), Mark::Other, Mark::Other, Mark::Other, Mark::Other, Mark::Ends];
                self.append(n, &items, &marks).await;
            }
            Step::Begin(n) => {
                self.turns += 1;
                let (mode, turn_id) = (self.mode(n), format!("turn-{}", self.turns));
                let items = begun(mode, n, &turn_id, &format!("asked {turn_id}"));
                self.append(n, &items, &[Mark::Begins(turn_id), Mark::Other, Mark::Other]).await;
            }
            Step::RollBack(n, turns) => {
                let mark = Mark::TakesBack(usize::try_from(turns).expect("few"));
                self.append(n, &[roll_back(turns)], &[mark]).await;
            }
            Step::Nothing(n) => {
                let dropped = [event(json!({"type": "exec_command_begin"})), event(json!({"type": "warning"}))];
                self.with_writer(n, store.append_items(id(n), &dropped).await);
            }
            Step::Flush(n) => {
                self.with_writer(n, store.flush_thread(id(n)).await);
            }
            Step::Persist(n) => {
                if self.with_writer(n, store.persist_thread(id(n)).await) {
                    self.threads.entry(n).and_modify(|t| t.exists = true);
                }
            }
            Step::Shutdown(n) => {
                if self.with_writer(n, store.shutdown_thread(id(n)).await) {
                    self.close(n);
                }
            }
            Step::Discard(n) => {
                if self.with_writer(n, store.discard_thread(id(n)).await) {
                    self.close(n);
                }
            }
            Step::Resume(n) => {
                let resumed = store.resume_thread(again(n)).await;
                if self.live(n) {
                    assert!(matches!(refused(resumed), Refused::Invalid(_)));
                } else if self.exists(n) {
                    assert_eq!(resumed.expect("it is there").history_mode, Some(self.mode(n)));
                    self.threads.entry(n).and_modify(|t| t.live = true);
                } else {
                    assert_eq!(refused(resumed), no_rollout(n));
                }
            }
            Step::Intrude(n) => {
                let other = self.h.reopen();
                let resumed = other.resume_thread(again(n)).await;
                match (self.exists(n), self.live(n)) {
                    (true, true) => assert!(matches!(refused(resumed), Refused::Conflict(_))),
                    (true, false) => {
                        resumed.expect("it is free");
                    }
                    // A store may see the writer or only that nothing is there.
                    (false, _) => assert!(matches!(refused(resumed), Refused::Conflict(_) | Refused::Invalid(_))),
                }
            }
            Step::Rename(n, name) => {
                let name = name.map(|b| format!("name {b}"));
                let patch = MetadataPatch { name: Field::from(name.clone()), ..MetadataPatch::default() };
                let updated = store.update_thread_metadata(id(n), patch, Archived::Excluded).await;
                if self.threads.contains_key(&n) {
                    assert_eq!(updated.expect("it is there").name, name);
                    self.threads.entry(n).and_modify(|t| (t.exists, t.name) = (true, name));
                } else {
                    assert_eq!(refused(updated), Refused::Invalid(format!("thread not found: {}", id(n))));
                }
            }
            Step::Observe(n) => {
                let patch = MetadataPatch { model: Some("observed".into()), ..MetadataPatch::default() };
                let observed = store.observe_metadata(id(n), patch).await;
                if self.threads.contains_key(&n) {
                    observed.expect("it is there");
                } else {
                    assert!(matches!(refused(observed), Refused::Invalid(_)));
                }
            }
            Step::Fork(from, to) => self.fork(from, to, None, true).await,
            Step::ForkThrough(from, to, which) => self.fork(from, to, Some(which), true).await,
            Step::ForkBefore(from, to, which) => self.fork(from, to, Some(which), false).await,
            Step::Reopen => {
                drop(store);
                // The process has to be gone before another begins.
                self.store = self.h.reopen();
                for n in self.threads.keys().copied().collect::<Vec<_>>() {
                    self.close(n);
                }
            }
            Step::Clock(by) => self.h.clock().advance(i64::from(by) * 100),
        }
    }

    async fn append(&mut self, n: u32, items: &[threadkeep_record::NewItem], marks: &[Mark]) {
        let appended = self.store.append_items(id(n), items).await;
        if self.with_writer(n, appended.as_ref().map(|_| ()).map_err(copy)) {
            assert!(appended.is_ok_and(|a| a.times.iter().all(Option::is_some) && a.times.len() == items.len()));
            self.threads.entry(n).and_modify(|t| {
                t.exists = true;
                t.records.extend(said(items).into_iter().zip(marks.iter().cloned()));
            });
        }
    }

    async fn fork(&mut self, from: u32, to: u32, which: Option<usize>, through: bool) {
        let source = self.threads.get(&from).cloned();
        let turns = source.as_ref().map(|s| turns_of(&s.records)).unwrap_or_default();
        let standing: Vec<_> = turns.iter().filter(|t| t.2).collect();
        let chosen = which.and_then(|i| standing.get(i.checked_rem(standing.len())?));
        let named = || chosen.map_or("nothing".to_owned(), |t| t.0.clone());
        let range = match which {
            None => ForkRange::Whole,
            Some(_) if through => ForkRange::ThroughTurn(named()),
            Some(_) => ForkRange::BeforeTurn(named()),
        };
        let child = new(to, HistoryMode::Legacy);
        let params = ForkThread { source: id(from), archived: Archived::Excluded, range, child };
        let forked = self.store.fork_thread(params).await;
        let taken = self.live(to) || self.exists(to);
        let impossible = which.is_some() && (chosen.is_none() || through && chosen.is_some_and(|t| t.3));
        let Some(source) = source.filter(|_| !taken && !impossible) else {
            assert!(matches!(refused(forked), Refused::Invalid(_)));
            // A source that was not there yet may have been made for it.
            if let Some(t) = self.threads.get_mut(&from) {
                t.exists |= self.store.load_history(id(from), Archived::Excluded).await.is_ok();
            }
            return;
        };
        forked.expect("a fork");
        self.threads.entry(from).and_modify(|t| t.exists = true);
        let next = |at: usize| turns.iter().find(|t| t.1 > at).map_or(source.records.len(), |t| t.1);
        let cut = match chosen {
            None => source.records.len(),
            Some(t) if through => next(t.1),
            Some(t) => t.1,
        };
        let mut records = source.records[..cut].to_vec();
        if which.is_none() && turns.last().is_some_and(|t| t.3) {
            // An end is added, in the store's own words.
            let history = self.store.load_history(id(to), Archived::Excluded).await.expect("the fork");
            let added: Vec<String> = payloads(&history).into_iter().skip(cut).collect();
            assert!(added.last().is_some_and(|a| a.contains("\"turn_aborted\"")), "{added:?}");
            records.extend(added.into_iter().map(|a| (a, Mark::Other)));
            records.last_mut().expect("an end").1 = Mark::Ends;
        }
        self.threads.insert(to, Thread { mode: source.mode, exists: true, live: true, name: None, records });
    }

    async fn check(&self, when: &str) {
        for n in 1..=4 {
            let thread = self.threads.get(&n).filter(|t| t.exists);
            let loaded = self.store.load_history(id(n), Archived::Excluded).await;
            let Some(thread) = thread else {
                assert_eq!(refused(loaded), no_rollout(n), "{when}");
                continue;
            };
            let history = loaded.expect("a history");
            let want: Vec<&String> = thread.records.iter().map(|(payload, _)| payload).collect();
            assert_eq!(payloads(&history).iter().collect::<Vec<_>>(), want, "thread {n} {when}");
            assert_eq!((history.history_mode, history.damaged), (thread.mode, 0), "thread {n} {when}");
            assert_eq!(history.header().and_then(|h| h.id), Some(id(n)), "thread {n} {when}");
            check_places(&history, n, when);
            let read = self.store.read_thread(id(n), Archived::Excluded, WithHistory::No).await.expect("read");
            assert_eq!(read.name, thread.name, "thread {n} {when}");
            let standing: Vec<String> =
                turns_of(&thread.records).into_iter().filter(|t| t.2).map(|(id, ..)| id).collect();
            let found: Vec<String> = turns(&self.store, n).await.into_iter().map(|(id, _)| id).collect();
            assert_eq!(found, standing, "turns of thread {n} {when}");
        }
        let page = self.store.list_threads(everything()).await.expect("a list");
        let mut listed: Vec<u32> = page.threads.iter().map(|t| number(t.thread_id)).collect();
        listed.sort_unstable();
        let there: Vec<u32> = self.threads.iter().filter(|(_, t)| t.exists).map(|(n, _)| *n).collect();
        assert_eq!(listed, there, "{when}");
    }
}

/// Own records are in the order of their times, and of their ordinals where they have them.
fn check_places(history: &crate::StoredHistory, n: u32, when: &str) {
    let ordinals: Vec<Option<u64>> = history.records.iter().map(|r| envelope(r).ordinal).collect();
    match history.history_mode {
        HistoryMode::Paginated => {
            let mut all: Vec<u64> = ordinals.iter().map(|o| o.expect("an ordinal")).collect();
            all.sort_unstable();
            assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>(), "ordinals of thread {n} {when}");
        }
        HistoryMode::Legacy | HistoryMode::Unknown => assert!(ordinals.iter().all(Option::is_none)),
    }
    // A prefix keeps its own times, so only what stands behind the last header counts; and where a fork refers to its
    // prefix, nothing tells where that ends.
    if history.header().is_some_and(|h| h.history_base.is_some()) {
        return;
    }
    let own = history.records.iter().rposition(|r| envelope(r).type_name == "session_meta").unwrap_or(0);
    let times: Vec<UtcMillis> = times(history).split_off(own);
    assert!(times.windows(2).all(|t| t[0] < t[1]), "times of thread {n} {when}: {times:?}");
}

/// The same refusal again, since errors are not cloned.
fn copy(e: &crate::ThreadStoreError) -> crate::ThreadStoreError {
    use crate::ThreadStoreError as E;
    match e {
        E::ThreadNotFound { thread_id } => E::ThreadNotFound { thread_id: *thread_id },
        E::InvalidRequest { message } => E::InvalidRequest { message: message.clone() },
        E::Conflict { message } => E::Conflict { message: message.clone() },
        E::Unsupported { operation } => E::Unsupported { operation },
        E::Internal { message } => E::Internal { message: message.clone() },
    }
}

/// Makes a `#[test]` that plays random steps. The argument is an expression that makes a new
/// [`StoreHarness`](crate::testkit::StoreHarness); it is evaluated for each case.
#[macro_export]
macro_rules! testkit_machine {
    ($harness:expr) => {
        #[test]
        fn random_operations_agree_with_the_model() {
            let steps = ::proptest::collection::vec(::proptest::arbitrary::any::<[u8; 4]>(), 1..60);
            ::proptest::proptest!(|(steps in steps)| {
                let harness = $harness;
                $crate::testkit::run($crate::testkit::machine::play(&harness, &steps));
            });
        }
    };
}
