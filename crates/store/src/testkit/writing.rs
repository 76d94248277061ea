//! Live writers.

use serde_json::json;
use threadkeep_record::{HistoryMode, Kind, NewItem, SessionMeta};

use super::StoreHarness;
use super::talk::{
    Refused, again, envelope, event, history, id, later, new, no_rollout, payloads, refused, said, says, times, told,
    turn,
};
use crate::params::{Archived, WithHistory};

/// Create, append, flush, close: what was appended is there, and the writer is gone.
pub async fn live_writer_lifecycle_writes_and_closes(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    let items = turn(mode, 1, "t1", "hello", "hi");
    let appended = store.append_items(id(1), &items).await.expect("appended");
    assert!(appended.times.iter().all(Option::is_some));
    store.flush_thread(id(1)).await.expect("flushed");
    store.shutdown_thread(id(1)).await.expect("closed");
    assert_eq!(payloads(&history(&store, 1).await), said(&items));
    for refusal in [
        refused(store.append_items(id(1), &items).await),
        refused(store.persist_thread(id(1)).await),
        refused(store.flush_thread(id(1)).await),
        refused(store.shutdown_thread(id(1)).await),
        refused(store.discard_thread(id(1)).await),
        refused(store.live_rollout_path(id(1)).await),
    ] {
        assert_eq!(refusal, Refused::NotFound);
    }
    assert_eq!(payloads(&history(&store, 1).await), said(&items), "refused operations change nothing");
}

/// The header has what the thread was made with, and comes back.
pub async fn header_fields_come_back(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let root = json!({"id": "r", "location": {"type": "environment", "environmentId": "e", "path": "file:///r"}});
    let mut params = new(1, mode);
    params.source = json!({"subagent": {"thread_spawn": {"parent_thread_id": id(9), "depth": 1, "agent_path": "/a",
        "agent_nickname": "Ada", "agent_role": "scout"}}});
    params.thread_source = Some("subagent".into());
    params.parent_thread_id = Some(id(9));
    params.session_id = id(9);
    params.forked_from_id = Some(id(8));
    params.base_instructions = Some("be\n\"kind\"".into());
    params.dynamic_tools =
        vec![json!({"type": "function", "name": "f", "description": "", "inputSchema": {"type": "object"}})];
    params.selected_capability_roots = vec![root.clone()];
    params.multi_agent_version = Some("v2".into());
    params.initial_window_id = Some("w".into());
    params.metadata.memory_mode = Some("disabled".into());
    params.extra.insert("creator_user_id".into(), json!("u"));
    store.create_thread(params.clone()).await.expect("created");
    store.append_items(id(1), &[says(mode, 1, "hello")]).await.expect("appended");
    store.shutdown_thread(id(1)).await.expect("closed");
    let history = history(&h.reopen(), 1).await;
    assert_eq!(history.history_mode, mode);
    let header = history.header().expect("a header");
    assert_eq!((header.id, header.session_id, header.parent()), (Some(id(1)), Some(id(9)), Some(id(9))));
    assert_eq!((header.forked_from_id, header.history_mode), (Some(id(8)), Some(mode)));
    assert_eq!((header.originator.as_deref(), header.capability_roots), (Some("testkit"), vec![root]));
    let payload: serde_json::Value = serde_json::from_str(envelope(&history.records[0]).payload).expect("JSON");
    assert_eq!(payload["dynamic_tools"], json!(params.dynamic_tools));
    assert_eq!(payload["base_instructions"]["text"], "be\n\"kind\"");
    assert_eq!((&payload["memory_mode"], &payload["creator_user_id"]), (&json!("disabled"), &json!("u")));
    assert_eq!((&payload["multi_agent_version"], &payload["context_window"]["window_id"]), (&json!("v2"), &json!("w")));
    let thread = store.read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("read");
    assert_eq!((thread.agent_nickname.as_deref(), thread.agent_role.as_deref()), (Some("Ada"), Some("scout")));
    assert_eq!((thread.source, thread.thread_source.as_deref()), (params.source, Some("subagent")));
    assert_eq!((thread.parent_thread_id, thread.forked_from_id), (Some(id(9)), Some(id(8))));
    assert_eq!((thread.history_mode, thread.memory_mode.as_deref()), (mode, Some("disabled")));
}

/// What the mode does not keep is passed over, and only that.
pub async fn items_are_kept_by_history_mode(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let other = if mode == HistoryMode::Legacy { HistoryMode::Paginated } else { HistoryMode::Legacy };
    let items = [
        event(json!({"type": "exec_command_begin", "call_id": "c"})),
        says(mode, 1, "kept"),
        says(other, 1, "of the other mode"),
        event(json!({"type": "agent_message_delta", "delta": "x"})),
        NewItem::model_message("user", "kept too"),
        NewItem::from_value("response_item", &json!({"type": "compaction_trigger"})).expect("an object"),
        NewItem::from_value("someday", &json!({"of": "a newer program"})).expect("an object"),
    ];
    store.create_thread(new(1, mode)).await.expect("created");
    let appended = store.append_items(id(1), &items).await.expect("appended");
    let kept: Vec<bool> = appended.times.iter().map(Option::is_some).collect();
    assert_eq!(kept, [false, true, false, false, true, false, true]);
    let want: Vec<String> = said(&items).into_iter().zip(kept).filter(|(_, k)| *k).map(|(p, _)| p).collect();
    assert_eq!(payloads(&history(&store, 1).await), want);
    let none = store.append_items(id(1), &items[..1]).await.expect("an append of nothing");
    assert_eq!(none.times, [None]);
    assert_eq!(payloads(&history(&store, 1).await), want);
}

/// Payloads come back byte for byte: spelling of numbers, escapes, order of keys, unknown fields.
pub async fn retained_items_are_byte_identical(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let odd = [
        r#"{"type":"token_count", "info":null,"n":1.50e+3,"big":123456789012345678901234567890}"#,
        r#"{"type":"task_started","turn_id":"\u0041\/","b":{"z":1,"a":[ ]},"unknown":"é🌍\u00e9"}"#,
    ];
    let items = odd.map(|payload| NewItem::from_json("event_msg", payload).expect("an object"));
    store.create_thread(new(1, mode)).await.expect("created");
    store.append_items(id(1), &items).await.expect("appended");
    store.shutdown_thread(id(1)).await.expect("closed");
    assert_eq!(payloads(&history(&h.reopen(), 1).await), odd);
}

/// Each record is later than the one before, also while the clock stands or goes back, and says so to the caller.
pub async fn timestamps_strictly_increase(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    let mut told = Vec::new();
    for step in [0, 0, 60, -3600, 0, 7200] {
        later(&h.clock(), step);
        let appended = store.append_items(id(1), &turn(mode, 1, "t", "a", "b")).await.expect("appended");
        told.extend(appended.times.into_iter().flatten());
    }
    store.shutdown_thread(id(1)).await.expect("closed");
    later(&h.clock(), -7200);
    let store = h.reopen();
    store.resume_thread(again(1)).await.expect("resumed");
    let appended = store.append_items(id(1), &[says(mode, 1, "c")]).await.expect("appended");
    told.extend(appended.times.into_iter().flatten());
    let times = times(&history(&store, 1).await);
    assert!(times.windows(2).all(|t| t[0] < t[1]), "{times:?}");
    assert_eq!(times[1..], told);
}

/// Paginated threads have an ordinal in each record, from 0 for the header; legacy ones have none.
pub async fn ordinals_belong_to_paginated_threads(h: &dyn StoreHarness, mode: HistoryMode) {
    told(&h.open(), mode, 1, &[("a", "b"), ("c", "d")]).await;
    let store = h.reopen();
    store.resume_thread(again(1)).await.expect("resumed");
    store.append_items(id(1), &turn(mode, 1, "t3", "e", "f")).await.expect("appended");
    let history = history(&store, 1).await;
    let ordinals: Vec<Option<u64>> = history.records.iter().map(|r| envelope(r).ordinal).collect();
    let want = |i: u64| (mode == HistoryMode::Paginated).then_some(i);
    assert_eq!(ordinals, (0..history.records.len() as u64).map(want).collect::<Vec<_>>());
}

/// A thread without items leaves nothing behind.
pub async fn shutdown_does_not_materialize_an_empty_thread(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    store.append_items(id(1), &[event(json!({"type": "exec_command_begin"}))]).await.expect("an append of nothing");
    store.flush_thread(id(1)).await.expect("flushed");
    store.shutdown_thread(id(1)).await.expect("closed");
    for store in [store, h.reopen()] {
        assert_eq!(refused(store.load_history(id(1), Archived::Included).await), no_rollout(1));
        let read = store.read_thread(id(1), Archived::Included, WithHistory::No).await;
        assert_eq!(refused(read), no_rollout(1));
        assert_eq!(refused(store.resume_thread(again(1)).await), no_rollout(1));
        assert_eq!(store.stored_metadata(id(1)).await.expect("an answer"), None);
        assert!(store.list_threads(super::listing::everything()).await.expect("a list").threads.is_empty());
    }
}

/// `persist_thread` makes a thread without items, once.
pub async fn persist_makes_an_empty_thread(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    store.persist_thread(id(1)).await.expect("persisted");
    store.persist_thread(id(1)).await.expect("persisted again");
    let history = history(&h.reopen(), 1).await;
    assert_eq!(history.records.len(), 1);
    assert_eq!(SessionMeta::parse(&history.records[0].0).and_then(|h| h.id), Some(id(1)));
    assert_eq!(envelope(&history.records[0]).kind, Kind::SessionMeta);
    store.append_items(id(1), &[says(mode, 1, "hello")]).await.expect("appended");
    assert_eq!(super::talk::history(&store, 1).await.records.len(), 2);
}

/// Items that were appended are there for every reader at once, in this process and in others.
pub async fn appended_items_are_read_at_once(h: &dyn StoreHarness, mode: HistoryMode) {
    let (store, other) = (h.open(), h.reopen());
    store.create_thread(new(1, mode)).await.expect("created");
    let mut want = Vec::new();
    for text in ["one", "two", "three"] {
        let items = [says(mode, 1, text)];
        store.append_items(id(1), &items).await.expect("appended");
        want.extend(said(&items));
        for store in [&store, &other] {
            assert_eq!(payloads(&history(store, 1).await), want);
        }
    }
}

/// No thread without a directory.
pub async fn create_thread_rejects_missing_cwd(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let mut params = new(1, mode);
    params.metadata.cwd = None;
    let refusal = refused(store.create_thread(params).await);
    assert_eq!(refusal, Refused::Invalid("local thread store requires a cwd".into()));
    assert_eq!(refused(store.flush_thread(id(1)).await), Refused::NotFound);
}

/// Nor is one continued without.
pub async fn resume_thread_rejects_missing_cwd(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("a", "b")]).await;
    let mut params = again(1);
    params.metadata.cwd = None;
    let refusal = refused(store.resume_thread(params).await);
    assert_eq!(refusal, Refused::Invalid("local thread store requires a cwd".into()));
    store.resume_thread(again(1)).await.expect("no writer was left behind");
}

/// One live writer of a thread in a store.
pub async fn duplicate_live_writers_are_rejected(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let already = Refused::Invalid(format!("thread {} already has a live local writer", id(1)));
    store.create_thread(new(1, mode)).await.expect("created");
    assert_eq!(refused(store.create_thread(new(1, mode)).await), already);
    assert_eq!(refused(store.resume_thread(again(1)).await), already);
    store.append_items(id(1), &[says(mode, 1, "a")]).await.expect("appended");
    assert_eq!(refused(store.create_thread(new(1, mode)).await), already);
    assert_eq!(refused(store.resume_thread(again(1)).await), already);
    store.shutdown_thread(id(1)).await.expect("closed");
    store.resume_thread(again(1)).await.expect("resumed");
    assert_eq!(refused(store.resume_thread(again(1)).await), already);
    store.append_items(id(1), &[says(mode, 1, "b")]).await.expect("the writer still works");
}

/// And one over all processes. It is free when its holder closes it, or ends.
pub async fn writers_exclude_each_other_over_stores(h: &dyn StoreHarness, mode: HistoryMode) {
    let (store, other) = (h.open(), h.reopen());
    store.create_thread(new(1, mode)).await.expect("created");
    store.append_items(id(1), &[says(mode, 1, "a")]).await.expect("appended");
    let text = format!("thread {} already has an active writer", id(1));
    match refused(other.resume_thread(again(1)).await) {
        Refused::Conflict(message) => assert!(message.starts_with(&text), "{message}"),
        refusal => panic!("{refusal:?}"),
    }
    store.shutdown_thread(id(1)).await.expect("closed");
    other.resume_thread(again(1)).await.expect("resumed once it is free");
    assert!(matches!(refused(store.resume_thread(again(1)).await), Refused::Conflict(_)));
    drop(other);
    store.resume_thread(again(1)).await.expect("resumed once its holder is gone");
    store.append_items(id(1), &[says(mode, 1, "b")]).await.expect("appended");
    assert_eq!(payloads(&history(&store, 1).await).len(), 2);
}

/// Discarding drops a thread that is not there yet, and keeps what was appended to one that is.
pub async fn discard_thread_drops_unmaterialized_live_writer(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    store.discard_thread(id(1)).await.expect("discarded");
    assert_eq!(refused(store.load_history(id(1), Archived::Included).await), no_rollout(1));
    assert_eq!(refused(store.discard_thread(id(1)).await), Refused::NotFound);
    store.create_thread(new(1, mode)).await.expect("the id is free again");
    let items = [says(mode, 1, "a")];
    store.append_items(id(1), &items).await.expect("appended");
    store.discard_thread(id(1)).await.expect("discarded");
    assert_eq!(payloads(&history(&store, 1).await), said(&items));
}

/// A thread that is there is not made a second time.
pub async fn create_thread_rejects_an_existing_thread(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("a", "b")]).await;
    let before = history(&store, 1).await;
    assert!(matches!(refused(store.create_thread(new(1, mode)).await), Refused::Invalid(_)));
    assert_eq!(history(&store, 1).await, before);
    store.resume_thread(again(1)).await.expect("no writer was left behind");
}

/// A resumed thread goes on where it was, in the mode it has.
pub async fn resume_thread_reopens_live_writer_and_appends(h: &dyn StoreHarness, mode: HistoryMode) {
    told(&h.open(), mode, 1, &[("a", "b")]).await;
    let store = h.reopen();
    let before = history(&store, 1).await;
    let resumed = store.resume_thread(again(1)).await.expect("resumed");
    assert_eq!((resumed.history_mode, resumed.torn_tail), (Some(mode), false));
    assert_eq!(history(&store, 1).await, before, "resuming writes nothing");
    let items = turn(mode, 1, "t2", "c", "d");
    store.append_items(id(1), &items).await.expect("appended");
    store.shutdown_thread(id(1)).await.expect("closed");
    let after = history(&h.reopen(), 1).await;
    assert_eq!(after.records[..before.records.len()], before.records);
    assert_eq!(payloads(&after)[payloads(&before).len()..], said(&items));
}

/// An archived thread is continued only if that is asked for, and stays archived.
pub async fn resume_of_an_archived_thread_is_asked_for(h: &dyn StoreHarness, mode: HistoryMode) {
    told(&h.open(), mode, 1, &[("a", "b")]).await;
    h.archive(id(1)).await;
    let store = h.reopen();
    let refusal = refused(store.resume_thread(again(1)).await);
    assert_eq!(refusal, Refused::Invalid(format!("thread {} is archived", id(1))));
    let mut params = again(1);
    params.archived = Archived::Included;
    store.resume_thread(params).await.expect("resumed");
    store.append_items(id(1), &[says(mode, 1, "c")]).await.expect("appended");
    store.shutdown_thread(id(1)).await.expect("closed");
    let thread = store.read_thread(id(1), Archived::Included, WithHistory::Yes).await.expect("read");
    assert!(thread.archived);
    assert_eq!(thread.history.map(|h| payloads(&h).len()), Some(7));
}

/// Threads are written at the same time without touching each other.
pub async fn threads_are_written_side_by_side(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    for n in 1..=3 {
        store.create_thread(new(n, mode)).await.expect("created");
    }
    for round in 0..5 {
        for n in 1..=3 {
            let items = [says(mode, n, &format!("{n} {round}"))];
            store.append_items(id(n), &items).await.expect("appended");
        }
    }
    store.shutdown_thread(id(2)).await.expect("closed");
    for n in 1..=3 {
        let texts = payloads(&history(&store, n).await);
        assert_eq!(texts.len(), 5);
        assert!(texts.iter().enumerate().all(|(round, t)| t.contains(&format!("\"{n} {round}\""))), "{texts:?}");
    }
}
