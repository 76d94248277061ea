//! Random operations against a plain model of threads.

mod step;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;
use threadkeep_record::{Field, HistoryMode, MetadataPatch, NewItem, UtcMillis};

pub use step::Step;

use super::StoreHarness;
use super::listing::{everything, number};
use super::talk::{
    Refused, Store, again, all_of, begun, envelope, event, id, new, no_rollout, payloads, refused, roll_back, said,
    times, turn,
};
use crate::contract::StoreResult;
use crate::params::{Archived, ForkRange, ForkThread, ListThreads, ListTurns, WithHistory};

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
    archived: bool,
    name: Option<String>,
    records: Vec<(String, Mark)>,
    /// Records that were there when its writer was opened.
    found: usize,
    /// Of a paginated thread: whose rollouts its history is made of, and how many records stand before each.
    rollouts: Vec<(u32, usize)>,
    /// The other threads whose rollouts any of its own rollouts continued.
    continued: BTreeSet<u32>,
}

impl Thread {
    fn new(n: u32, mode: HistoryMode) -> Self {
        let (name, records, continued) = (None, vec![], BTreeSet::new());
        let rollouts = vec![(n, 0)];
        Self { mode, exists: false, live: true, archived: false, name, records, found: 0, rollouts, continued }
    }

    /// The rollouts of a prefix that ends before a record, or of everything.
    fn prefix(&self, cut: Option<usize>) -> Vec<(u32, usize)> {
        self.rollouts.iter().copied().filter(|(_, begin)| cut.is_none_or(|cut| *begin <= cut)).collect()
    }
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

    fn archived(&self, n: u32) -> bool {
        self.threads.get(&n).is_some_and(|t| t.archived)
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
                    self.threads.insert(n, Thread::new(n, mode));
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
                } else if self.archived(n) {
                    assert_eq!(refused(resumed), is_archived(n));
                } else if self.exists(n) {
                    assert_eq!(resumed.expect("it is there").history_mode, Some(self.mode(n)));
                    self.threads.entry(n).and_modify(|t| (t.live, t.found) = (true, t.records.len()));
                } else {
                    assert_eq!(refused(resumed), no_rollout(n));
                }
            }
            Step::Intrude(n) => {
                let other = self.h.reopen();
                let resumed = other.resume_thread(again(n)).await;
                match (self.exists(n), self.live(n)) {
                    (true, false) if self.archived(n) => assert_eq!(refused(resumed), is_archived(n)),
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
                if self.archived(n) {
                    assert_eq!(refused(updated), is_archived(n));
                } else if self.threads.contains_key(&n) {
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
            Step::Revert(n, which) => self.revert(n, which).await,
            Step::Archive(n) => {
                let archived = store.archive_thread(id(n)).await;
                if !self.exists(n) || self.archived(n) {
                    let unmade = self.live(n);
                    let refusal = refused(archived);
                    assert!(
                        refusal == no_rollout(n) || unmade && matches!(refusal, Refused::Conflict(_)),
                        "{refusal:?}"
                    );
                } else if self.live(n) {
                    assert!(matches!(refused(archived), Refused::Conflict(_)));
                } else {
                    archived.expect("it is there");
                    self.threads.entry(n).and_modify(|t| t.archived = true);
                }
            }
            Step::Unarchive(n) => {
                let unarchived = store.unarchive_thread(id(n)).await;
                if self.archived(n) {
                    let thread = unarchived.expect("it is archived");
                    assert_eq!((thread.thread_id, thread.archived), (id(n), false));
                    self.threads.entry(n).and_modify(|t| t.archived = false);
                } else {
                    assert!(matches!(refused(unarchived), Refused::Invalid(_)));
                }
            }
            Step::Delete(n) => {
                let deleted = store.delete_thread(id(n)).await;
                let others = || self.threads.iter().filter(|(other, _)| **other != n).map(|(_, t)| t);
                if !self.threads.contains_key(&n) {
                    assert_eq!(refused(deleted), Refused::NotFound);
                } else if others().any(|t| t.rollouts.iter().any(|(of, _)| *of == n)) {
                    let text = format!("cannot delete thread {}: forked history still references it", id(n));
                    assert_eq!(refused(deleted), Refused::Invalid(text));
                } else if deleted.is_ok() {
                    self.threads.remove(&n);
                } else {
                    // A store may also keep what only a rollout continues that was itself left behind.
                    let left_behind = others().any(|t| t.continued.contains(&n));
                    assert!(left_behind && matches!(refused(deleted), Refused::Invalid(_)));
                }
            }
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

    async fn append(&mut self, n: u32, items: &[NewItem], marks: &[Mark]) {
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
        let Some(source) = source.filter(|s| !taken && !impossible && !s.archived) else {
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
        let mut child = Thread { exists: true, ..Thread::new(to, source.mode) };
        if source.mode == HistoryMode::Paginated {
            child.rollouts = source.prefix(Some(cut).filter(|cut| *cut < source.records.len()));
            child.continued = child.rollouts.iter().map(|(of, _)| *of).collect();
            child.rollouts.push((to, cut));
        }
        let mut records = source.records[..cut].to_vec();
        if which.is_none() && turns.last().is_some_and(|t| t.3) {
            // An end is added, in the store's own words.
            let history = self.store.load_history(id(to), Archived::Excluded).await.expect("the fork");
            let added: Vec<String> = payloads(&history).into_iter().skip(cut).collect();
            assert!(added.last().is_some_and(|a| a.contains("\"turn_aborted\"")), "{added:?}");
            records.extend(added.into_iter().map(|a| (a, Mark::Other)));
            records.last_mut().expect("an end").1 = Mark::Ends;
        }
        (child.found, child.records) = (cut, records);
        self.threads.insert(to, child);
    }

    async fn revert(&mut self, n: u32, which: usize) {
        let thread = self.threads.get(&n).filter(|t| t.exists).cloned();
        let turns = thread.as_ref().map(|t| turns_of(&t.records)).unwrap_or_default();
        let standing: Vec<_> = turns.iter().filter(|t| t.2).collect();
        let chosen = which.checked_rem(standing.len()).map(|i| (i, standing[i]));
        let named = chosen.map_or("nothing".to_owned(), |(_, t)| t.0.clone());
        let reverted = self.store.revert_thread(id(n), named).await;
        let Some(mut thread) = thread else {
            assert_eq!(refused(reverted), no_rollout(n));
            return;
        };
        if thread.archived {
            assert_eq!(refused(reverted), is_archived(n));
            return;
        }
        let Some((i, turn)) = chosen else {
            assert!(matches!(refused(reverted), Refused::Invalid(_)));
            return;
        };
        if thread.live && turns.last().is_some_and(|t| t.2 && t.3 && t.1 >= thread.found) {
            assert!(matches!(refused(reverted), Refused::Conflict(_)));
            return;
        }
        assert_eq!(reverted.expect("a turn that stands").name, thread.name);
        if thread.mode == HistoryMode::Paginated {
            thread.rollouts = thread.prefix(Some(turn.1));
            thread.continued.extend(thread.rollouts.iter().map(|(of, _)| *of).filter(|of| *of != n));
            thread.rollouts.push((n, turn.1));
            thread.records.truncate(turn.1);
            thread.found = turn.1;
        } else {
            let back = standing.len() - i;
            let item = NewItem::rolled_back(back as u64);
            thread.records.push((item.payload().to_owned(), Mark::TakesBack(back)));
        }
        self.threads.insert(n, thread);
    }

    async fn check(&self, when: &str) {
        for n in 1..=4 {
            let thread = self.threads.get(&n).filter(|t| t.exists);
            let loaded = self.store.load_history(id(n), Archived::Excluded).await;
            let Some(thread) = thread else {
                assert_eq!(refused(loaded), no_rollout(n), "{when}");
                continue;
            };
            let (loaded, archived) = if thread.archived {
                assert_eq!(refused(loaded), is_archived(n), "{when}");
                (self.store.load_history(id(n), Archived::Included).await, Archived::Included)
            } else {
                (loaded, Archived::Excluded)
            };
            let history = loaded.expect("a history");
            let want: Vec<&String> = thread.records.iter().map(|(payload, _)| payload).collect();
            assert_eq!(payloads(&history).iter().collect::<Vec<_>>(), want, "thread {n} {when}");
            assert_eq!((history.history_mode, history.damaged), (thread.mode, 0), "thread {n} {when}");
            assert_eq!(history.header().and_then(|h| h.id), Some(id(n)), "thread {n} {when}");
            check_places(&history, n, when);
            let read = self.store.read_thread(id(n), archived, WithHistory::No).await.expect("read");
            assert_eq!((read.name, read.archived), (thread.name.clone(), thread.archived), "thread {n} {when}");
            let standing: Vec<String> =
                turns_of(&thread.records).into_iter().filter(|t| t.2).map(|(id, ..)| id).collect();
            let page = self.store.list_turns(ListTurns { archived, ..all_of(n) }).await.expect("turns");
            let found: Vec<String> = page.turns.into_iter().map(|t| t.id).collect();
            assert_eq!(found, standing, "turns of thread {n} {when}");
        }
        for archived in [false, true] {
            let page = self.store.list_threads(ListThreads { archived, ..everything() }).await.expect("a list");
            let mut listed: Vec<u32> = page.threads.iter().map(|t| number(t.thread_id)).collect();
            listed.sort_unstable();
            let there = self.threads.iter().filter(|(_, t)| t.exists && t.archived == archived);
            assert_eq!(listed, there.map(|(n, _)| *n).collect::<Vec<u32>>(), "archived {archived} {when}");
        }
    }
}

fn is_archived(n: u32) -> Refused {
    Refused::Invalid(format!("thread {} is archived", id(n)))
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
