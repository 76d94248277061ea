//! Reading threads and their histories.

use std::path::Path;

use serde_json::json;
use threadkeep_record::{HistoryMode, NewItem};

use super::StoreHarness;
use super::talk::{
    CWD, Refused, Store, again, bodies, history, id, later, new, no_rollout, payloads, refused, roll_back, said, says,
    times, told, turn,
};
use crate::params::{Archived, WithHistory};
use crate::stored::{StoredHistory, StoredThread};

async fn read(store: &Store, n: u32) -> StoredThread {
    store.read_thread(id(n), Archived::Excluded, WithHistory::No).await.expect("read")
}

/// A read tells what the records tell.
pub async fn read_thread_returns_active_summary(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("first question", "an answer"), ("second question", "another")]).await;
    for store in [store, h.reopen()] {
        let thread = read(&store, 1).await;
        assert_eq!((thread.thread_id, thread.history_mode, thread.archived), (id(1), mode, false));
        assert_eq!(thread.preview, "first question");
        assert_eq!(thread.first_user_message.as_deref(), Some("first question"));
        assert_eq!((thread.cwd.as_deref(), thread.model_provider.as_deref()), (Some(CWD), Some("provider")));
        assert_eq!((thread.source, thread.name), (json!("cli"), None));
        assert!(thread.cli_version.is_some_and(|v| !v.is_empty()));
        assert_eq!(thread.history, None, "a history only where it is asked for");
        assert_eq!(thread.archived_at, None);
    }
}

/// Creation stays, `updated_at` is the last record's time, `recency_at` the last turn's start.
pub async fn times_of_a_thread_are_those_of_its_records(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let mut params = new(1, mode);
    let created = crate::Clock::now(&*h.clock());
    params.created_at = Some(created);
    store.create_thread(params).await.expect("created");
    later(&h.clock(), 10);
    store.persist_thread(id(1)).await.expect("persisted");
    let thread = read(&store, 1).await;
    assert_eq!((thread.created_at, thread.recency_at), (created, created), "without a turn recency is the creation");
    later(&h.clock(), 10);
    let first = store.append_items(id(1), &turn(mode, 1, "t1", "a", "b")).await.expect("appended").times;
    later(&h.clock(), 10);
    let late = store.append_items(id(1), &[NewItem::model_message("assistant", "c")]).await.expect("appended");
    for store in [store, h.reopen()] {
        let thread = read(&store, 1).await;
        assert_eq!((thread.created_at, Some(thread.updated_at)), (created, late.last()));
        assert_eq!(Some(thread.recency_at), first[0]);
        assert_eq!(times(&history(&store, 1).await).last().copied(), late.last());
    }
}

/// The history of a read is the whole history.
pub async fn read_thread_includes_history_where_asked(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("a", "b")]).await;
    let thread = store.read_thread(id(1), Archived::Excluded, WithHistory::Yes).await.expect("read");
    assert_eq!(thread.history, Some(history(&store, 1).await));
}

/// Archived threads are read, loaded and paged only where they count.
pub async fn archived_threads_are_read_when_requested(h: &dyn StoreHarness, mode: HistoryMode) {
    told(&h.open(), mode, 1, &[("a", "b")]).await;
    h.archive(id(1)).await;
    let store = h.reopen();
    let archived = Refused::Invalid(format!("thread {} is archived", id(1)));
    assert_eq!(refused(store.read_thread(id(1), Archived::Excluded, WithHistory::No).await), archived);
    assert_eq!(refused(store.load_history(id(1), Archived::Excluded).await), archived);
    assert_eq!(refused(store.load_latest_model_context(id(1), Archived::Excluded).await), archived);
    assert_eq!(refused(store.list_turns(super::talk::all_of(1)).await), archived);
    let thread = store.read_thread(id(1), Archived::Included, WithHistory::Yes).await.expect("read");
    assert!(thread.archived);
    assert_eq!((thread.preview.as_str(), thread.history.map(|h| payloads(&h).len())), ("a", Some(6)));
    store.load_history(id(1), Archived::Included).await.expect("a history");
    let turns = crate::params::ListTurns { archived: Archived::Included, ..super::talk::all_of(1) };
    assert_eq!(store.list_turns(turns).await.expect("turns").turns.len(), 1);
}

/// A thread that is not there.
pub async fn read_thread_fails_without_rollout(h: &dyn StoreHarness, _mode: HistoryMode) {
    let store = h.open();
    for archived in [Archived::Excluded, Archived::Included] {
        assert_eq!(refused(store.read_thread(id(1), archived, WithHistory::Yes).await), no_rollout(1));
        assert_eq!(refused(store.load_history(id(1), archived).await), no_rollout(1));
        assert_eq!(refused(store.load_latest_model_context(id(1), archived).await), no_rollout(1));
    }
    assert_eq!(refused(store.resume_thread(again(1)).await), no_rollout(1));
    match refused(store.read_thread_by_rollout_path(Path::new("/nowhere/at/all.jsonl"), WithHistory::No).await) {
        Refused::Invalid(message) => assert!(message.starts_with("failed to resolve rollout path `"), "{message}"),
        refusal => panic!("{refusal:?}"),
    }
    assert_eq!(refused(store.live_rollout_path(id(1)).await), Refused::NotFound);
}

/// Where a store has files, the live writer's path is known before the file is there, and the file is read by it.
pub async fn live_rollout_path_comes_before_the_file(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    let Some(path) = store.live_rollout_path(id(1)).await.expect("a live writer") else { return };
    assert!(!path.exists(), "an empty thread leaves nothing: {}", path.display());
    let items = [says(mode, 1, "hello")];
    store.append_items(id(1), &items).await.expect("appended");
    assert!(path.exists());
    store.shutdown_thread(id(1)).await.expect("closed");
    let thread = store.read_thread_by_rollout_path(&path, WithHistory::Yes).await.expect("read");
    assert_eq!((thread.thread_id, thread.preview.as_str()), (id(1), "hello"));
    assert_eq!(thread.history.map(|h| payloads(&h)), Some(said(&items)));
    assert_eq!(read(&store, 1).await.rollout_path.map(|p| p.canonicalize().ok()), Some(path.canonicalize().ok()));
}

/// While a thread is written outside the store, its writer's rollout answers for it.
pub async fn load_history_uses_live_writer_rollout_path(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("a", "b")]).await;
    let records = history(&store, 1).await.records.into_iter().map(|r| r.0);
    let text = |r: Vec<u8>| String::from_utf8(r).expect("UTF-8").replace(&id(1).to_string(), &id(2).to_string());
    let records: Vec<Vec<u8>> = records.map(|r| text(r).into_bytes()).collect();
    let Some(path) = h.outside(id(2), &records) else { return };
    assert_eq!(refused(store.load_history(id(2), Archived::Included).await), no_rollout(2));
    let mut params = again(2);
    params.rollout_path = Some(path.clone());
    store.resume_thread(params).await.expect("resumed");
    let items = [says(mode, 2, "outside")];
    store.append_items(id(2), &items).await.expect("appended");
    let loaded = history(&store, 2).await;
    assert_eq!(loaded.records.len(), records.len() + 1);
    assert_eq!(payloads(&loaded).last(), said(&items).last());
    let thread = store.read_thread(id(2), Archived::Excluded, WithHistory::Yes).await.expect("read");
    assert_eq!((thread.preview.as_str(), thread.history), ("a", Some(loaded)));
    store.shutdown_thread(id(2)).await.expect("closed");
    let by_path = store.read_thread_by_rollout_path(&path, WithHistory::Yes).await.expect("read");
    assert_eq!(by_path.history.map(|h| h.records.len()), Some(records.len() + 1));
}

fn compacted(with: serde_json::Value) -> NewItem {
    let mut payload = json!({"message": "summary"});
    payload.as_object_mut().expect("an object").extend(with.as_object().expect("an object").clone());
    NewItem::from_value("compacted", &payload).expect("an object")
}

fn replaced() -> NewItem {
    let message = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "so far"}]});
    compacted(json!({"replacement_history": [message], "window_number": 2, "window_id": "w"}))
}

/// A whole turn with its settings.
fn settled(mode: HistoryMode, turn_id: &str, asked: &str) -> Vec<NewItem> {
    let settings = json!({"turn_id": turn_id, "cwd": CWD, "model": "m", "approval_policy": "never",
        "sandbox_policy": {"type": "danger-full-access"}, "summary": "auto"});
    let mut items = turn(mode, 1, turn_id, asked, "answered");
    items.insert(1, NewItem::from_value("turn_context", &settings).expect("an object"));
    items
}

async fn context(store: &Store) -> StoredHistory {
    let context = store.load_latest_model_context(id(1), Archived::Excluded).await.expect("a context");
    assert_eq!(context.header().and_then(|h| h.id), Some(id(1)));
    context
}

/// The model's context begins with the last compaction that carries its replacement.
pub async fn model_context_begins_with_the_last_checkpoint(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    for n in 0..2 {
        store.append_items(id(1), &settled(mode, &format!("before {n}"), "a")).await.expect("appended");
        let after = [vec![replaced()], settled(mode, &format!("after {n}"), "b")].concat();
        store.append_items(id(1), &after).await.expect("appended");
        let (context, whole) = (bodies(&context(&store).await), bodies(&history(&store, 1).await));
        assert_eq!(context, whole[whole.len() - after.len()..], "the same records in both");
    }
}

/// It reaches further back where no turn with its settings stands behind the compaction.
pub async fn model_context_reaches_back_to_a_turn_with_its_settings(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    for turn_id in ["t1", "t2"] {
        store.append_items(id(1), &settled(mode, turn_id, "a")).await.expect("appended");
    }
    let after = [replaced(), NewItem::model_message("assistant", "more")];
    store.append_items(id(1), &after).await.expect("appended");
    let (context, whole) = (payloads(&context(&store).await), payloads(&history(&store, 1).await));
    assert!(whole.ends_with(&context));
    assert!((after.len() + 2..whole.len()).contains(&context.len()), "{context:?}");
    assert!(context.iter().any(|p| p.contains("\"model\":\"m\"")), "{context:?}");
}

/// Without such a compaction the context is the whole history.
pub async fn model_context_is_everything_without_a_checkpoint(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    for item in [says(mode, 1, "a"), compacted(json!({})), compacted(json!({"window_number": 1})), says(mode, 1, "b")] {
        store.append_items(id(1), &[item]).await.expect("appended");
        assert_eq!(context(&store).await, history(&store, 1).await);
    }
}

/// Turns that were taken back may reach behind a compaction, so that everything is needed.
pub async fn model_context_is_everything_where_turns_were_taken_back(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    let items = [vec![says(mode, 1, "a"), replaced()], settled(mode, "t1", "b"), vec![roll_back(1)]].concat();
    store.append_items(id(1), &items).await.expect("appended");
    assert_eq!(context(&store).await, history(&store, 1).await);
    // Those before it do not matter.
    let more = [vec![replaced()], settled(mode, "t2", "c")].concat();
    store.append_items(id(1), &more).await.expect("appended");
    assert_eq!(payloads(&context(&store).await), said(&more));
}

/// Unknown kinds of records are part of a history.
pub async fn unknown_records_are_kept_and_read(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    let unknown = NewItem::from_json("retained_context", r#"{"of":"a newer program","n":1.0e2}"#).expect("an object");
    let items = [says(mode, 1, "a"), unknown, says(mode, 1, "b")];
    store.append_items(id(1), &items).await.expect("appended");
    store.shutdown_thread(id(1)).await.expect("closed");
    assert_eq!(payloads(&history(&h.reopen(), 1).await), said(&items));
}
