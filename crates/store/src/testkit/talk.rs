//! Threads and conversations for the behaviours.

use std::sync::Arc;

use serde_json::{Value, json};
use threadkeep_record::{Envelope, HistoryMode, ItemPlace, Kind, NewItem, ThreadId, UtcMillis};

use crate::ThreadStoreError;
use crate::contract::{StoreResult, ThreadStore};
use crate::params::{Archived, CreateThread, HostMetadata, ListTurns, ResumeThread};
use crate::stored::{StoredHistory, StoredRecord};
use crate::{Direction, TestClock};

/// A store under test.
pub(super) type Store = Arc<dyn ThreadStore>;

/// Where the threads work.
pub(super) const CWD: &str = "/work/project";

/// The n-th thread.
pub(super) fn id(n: u32) -> ThreadId {
    ThreadId::parse(&format!("01990000-0000-7000-8000-{n:012}")).expect("an id")
}

/// A thread that is to be made.
pub(super) fn new(n: u32, mode: HistoryMode) -> CreateThread {
    let mut params = CreateThread::new(id(n), CWD, "testkit");
    params.history_mode = mode;
    params.metadata.model_provider = Some("provider".into());
    params
}

/// A thread that is to be continued.
pub(super) fn again(n: u32) -> ResumeThread {
    let metadata = HostMetadata { cwd: Some(CWD.into()), ..HostMetadata::default() };
    ResumeThread { thread_id: id(n), rollout_path: None, archived: Archived::Excluded, metadata }
}

/// An event.
pub(super) fn event(payload: Value) -> NewItem {
    NewItem::from_value("event_msg", &payload).expect("an object")
}

/// A person's message, as the mode keeps it.
pub(super) fn says(mode: HistoryMode, n: u32, text: &str) -> NewItem {
    NewItem::user_message(mode, &place(n, "t"), text)
}

fn place(n: u32, turn_id: &str) -> ItemPlace<'_> {
    ItemPlace { thread_id: id(n), turn_id, item_id: "item", at: UtcMillis(0) }
}

/// A whole turn: what the person says, and what the agent answers.
pub(super) fn turn(mode: HistoryMode, n: u32, turn_id: &str, asked: &str, answered: &str) -> Vec<NewItem> {
    let mut items = begun(mode, n, turn_id, asked);
    items.extend([
        final_answer(answered),
        NewItem::agent_message(mode, &place(n, turn_id), answered),
        NewItem::turn_completed(turn_id, Some(answered), UtcMillis(0)),
    ]);
    items
}

/// A turn that still runs.
pub(super) fn begun(mode: HistoryMode, n: u32, turn_id: &str, asked: &str) -> Vec<NewItem> {
    vec![
        NewItem::turn_started(turn_id, UtcMillis(0)),
        NewItem::model_message("user", asked),
        NewItem::user_message(mode, &place(n, turn_id), asked),
    ]
}

/// The agent's last message of a turn, for the model.
pub(super) fn final_answer(text: &str) -> NewItem {
    let content = json!([{"type": "output_text", "text": text}]);
    let payload = json!({"type": "message", "role": "assistant", "phase": "final_answer", "content": content});
    NewItem::from_value("response_item", &payload).expect("an object")
}

/// Takes the last turns back.
pub(super) fn roll_back(turns: u64) -> NewItem {
    event(json!({"type": "thread_rolled_back", "num_turns": turns}))
}

/// A thread with these turns (their ids are `t1`, `t2`, …), closed again.
pub(super) async fn told(store: &Store, mode: HistoryMode, n: u32, turns: &[(&str, &str)]) {
    store.create_thread(new(n, mode)).await.expect("created");
    for (i, (asked, answered)) in turns.iter().enumerate() {
        let items = turn(mode, n, &format!("t{}", i + 1), asked, answered);
        store.append_items(id(n), &items).await.expect("appended");
    }
    store.shutdown_thread(id(n)).await.expect("closed");
}

/// A thread's whole history.
pub(super) async fn history(store: &Store, n: u32) -> StoredHistory {
    let history = store.load_history(id(n), Archived::Excluded).await.expect("a history");
    assert_eq!((history.thread_id, history.damaged), (id(n), 0));
    history
}

/// The payloads behind the header, as JSON texts, and the headers left out.
pub(super) fn payloads(history: &StoredHistory) -> Vec<String> {
    let records = history.records.iter().map(|r| envelope(r));
    records.filter(|e| e.kind != Kind::SessionMeta).map(|e| e.payload.to_owned()).collect()
}

/// The payloads of items.
pub(super) fn said(items: &[NewItem]) -> Vec<String> {
    items.iter().map(|i| i.payload().to_owned()).collect()
}

/// The records that are no headers, in their bytes.
pub(super) fn bodies(history: &StoredHistory) -> Vec<StoredRecord> {
    history.records.iter().filter(|r| envelope(r).kind != Kind::SessionMeta).cloned().collect()
}

pub(super) fn envelope(record: &StoredRecord) -> Envelope<'_> {
    record.envelope().expect("a record")
}

/// The times of all records.
pub(super) fn times(history: &StoredHistory) -> Vec<UtcMillis> {
    history.records.iter().map(|r| envelope(r).time().expect("a time")).collect()
}

/// A page of turns or items, oldest first.
pub(super) fn all_of(n: u32) -> ListTurns {
    let direction = Direction::Ascending;
    ListTurns { thread_id: id(n), page_size: 1000, cursor: None, direction, archived: Archived::Excluded }
}

/// What was said by person and agent, turn by turn: the id and the texts.
pub(super) async fn turns(store: &Store, n: u32) -> Vec<(String, Vec<String>)> {
    let page = store.list_turns(all_of(n)).await.expect("turns");
    assert_eq!(page.next_cursor, None);
    let turn = |t: crate::turns::Turn| (t.id, t.items.into_iter().map(|i| i.text).collect());
    page.turns.into_iter().map(turn).collect()
}

/// The kinds of refusal that the contract tells apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// With the text.
    Invalid(String),
    NotFound,
    /// With the text.
    Conflict(String),
    Other(String),
}

/// How an operation was refused.
pub(super) fn refused<T: std::fmt::Debug>(result: StoreResult<T>) -> Refused {
    match result.expect_err("a refusal") {
        ThreadStoreError::InvalidRequest { message } => Refused::Invalid(message),
        ThreadStoreError::ThreadNotFound { .. } => Refused::NotFound,
        ThreadStoreError::Conflict { message } => Refused::Conflict(message),
        e @ (ThreadStoreError::Unsupported { .. } | ThreadStoreError::Internal { .. }) => Refused::Other(e.to_string()),
    }
}

/// A refusal that every read of a thread that is not there gives.
pub(super) fn no_rollout(n: u32) -> Refused {
    Refused::Invalid(format!("no rollout found for thread id {}", id(n)))
}

/// Puts a clock forwards by so many seconds.
pub(super) fn later(clock: &TestClock, seconds: i64) {
    clock.advance(seconds * 1000);
}
