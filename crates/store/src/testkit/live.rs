//! Live threads: what they observe of what is appended.

use std::sync::Arc;

use serde_json::json;
use threadkeep_record::{Field, HistoryMode, MetadataPatch, NewItem, ThreadMetadata};

use super::StoreHarness;
use super::talk::{
    Refused, Store, again, begun, event, final_answer, history, id, later, new, no_rollout, payloads, refused, said,
    says, told, turn,
};
use crate::live::{COALESCE_MS, LiveThread};
use crate::params::{Archived, CreateThread, WithHistory};
use crate::stored::StoredThread;

async fn create(h: &dyn StoreHarness, store: &Store, params: CreateThread) -> LiveThread {
    LiveThread::create(Arc::clone(store), params, h.clock()).await.expect("created")
}

async fn resume(h: &dyn StoreHarness, store: &Store, n: u32) -> LiveThread {
    LiveThread::resume(Arc::clone(store), again(n), h.clock()).await.expect("resumed")
}

async fn read(live: &LiveThread) -> StoredThread {
    live.read(WithHistory::No).await.expect("read")
}

/// What is stored of the thread, if anything; `None` in a store that need not keep it.
async fn stored(h: &dyn StoreHarness, store: &Store, n: u32) -> Option<ThreadMetadata> {
    let stored = store.stored_metadata(id(n)).await.expect("an answer");
    stored.filter(|_| h.keeps_metadata())
}

/// What is stored of the thread, which has to be something in a store that keeps it.
async fn observed(h: &dyn StoreHarness, store: &Store, n: u32) -> Option<ThreadMetadata> {
    let stored = stored(h, store, n).await;
    assert_eq!(stored.is_some(), h.keeps_metadata());
    stored
}

/// What is appended is observed into metadata: title and first message are part of it.
pub async fn live_thread_observes_appended_items_into_metadata(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    assert_eq!((live.thread_id(), live.history_mode()), (id(1), mode));
    let usage = json!({"input_tokens": 7, "cached_input_tokens": 0, "output_tokens": 3, "reasoning_output_tokens": 0,
        "total_tokens": 10});
    let context = json!({"cwd": "/elsewhere", "model": "m1", "effort": "high", "approval_policy": "never",
        "sandbox_policy": {"type": "danger-full-access"}});
    let mut items = turn(mode, 1, "t1", "first message", "hi");
    items.push(NewItem::from_value("turn_context", &context).expect("an object"));
    items.push(event(json!({"type": "token_count", "info": {"total_token_usage": usage}, "rate_limits": null})));
    live.append(&items).await.expect("appended");
    live.flush().await.expect("flushed");
    if let Some(m) = observed(h, &store, 1).await {
        let text = Some("first message");
        assert_eq!((m.preview.as_deref(), m.title.as_deref(), m.first_user_message.as_deref()), (text, text, text));
        assert_eq!((m.model.as_deref(), m.reasoning_effort.as_deref()), (Some("m1"), Some("high")));
        assert_eq!((m.cwd.as_deref(), m.approval_mode.clone()), (Some(super::talk::CWD), Some(json!("never"))));
        assert_eq!((m.token_usage.map(|t| t.total), m.model_provider.as_deref()), (Some(10), Some("provider")));
        assert_eq!(m.source, Some(json!("cli")));
    }
    live.shutdown().await.expect("closed");
    for store in [store, h.reopen()] {
        let thread = store.read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("read");
        assert_eq!((thread.preview.as_str(), thread.title.as_deref()), ("first message", Some("first message")));
        assert_eq!((thread.model.as_deref(), thread.cwd.as_deref()), (Some("m1"), Some(super::talk::CWD)));
    }
}

/// What is stored says the same as what is read again from the records.
pub async fn observed_times_are_those_of_the_records(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    for n in 0..4 {
        later(&h.clock(), 3 * n);
        live.append(&turn(mode, 1, &format!("t{n}"), "a", "b")).await.expect("appended");
    }
    live.shutdown().await.expect("closed");
    let thread = h.reopen().read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("read");
    if let Some(m) = observed(h, &store, 1).await {
        assert_eq!((m.created_at, m.updated_at), (Some(thread.created_at), Some(thread.updated_at)));
        assert_eq!((m.recency_at, m.preview), (Some(thread.recency_at), Some(thread.preview)));
    }
}

/// Messages of the model's account set no title, preview or first message.
pub async fn response_item_user_messages_do_not_set_title(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    live.append(&[NewItem::model_message("user", "for the model"), final_answer("x")]).await.expect("appended");
    live.flush().await.expect("flushed");
    if let Some(m) = observed(h, &store, 1).await {
        assert_eq!((m.preview, m.title, m.first_user_message), (None, None, None));
    }
}

/// Context that a spawned agent inherits is not observed.
pub async fn live_thread_does_not_derive_metadata_from_inherited_items(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let inherited = [
        turn(mode, 1, "t1", "of the parent", "x"),
        vec![event(json!({"type": "exec_command_begin"}))],
        turn(mode, 1, "t2", "of the parent as well", "y"),
    ]
    .concat();
    let live = LiveThread::create_with_inherited(Arc::clone(&store), new(2, mode), &inherited, h.clock()).await;
    let live = live.expect("created");
    live.flush().await.expect("flushed");
    if let Some(m) = stored(h, &store, 2).await {
        assert_eq!((m.preview, m.title, m.first_user_message, m.recency_at), (None, None, None, None));
    }
    live.append(&turn(mode, 2, "own", "my own task", "done")).await.expect("appended");
    live.flush().await.expect("flushed");
    if let Some(m) = observed(h, &store, 2).await {
        assert_eq!((m.preview.as_deref(), m.title.as_deref()), (Some("my own task"), Some("my own task")));
    }
    if mode == HistoryMode::Paginated {
        let header = history(&store, 2).await.header().expect("a header");
        assert_eq!(header.subagent_history_start_ordinal, Some(13), "twelve are kept behind the header");
        assert_eq!(read(&live).await.preview, "my own task");
        let turns = super::talk::turns(&store, 2).await;
        assert_eq!(turns.len(), 1);
    }
}

/// Any output moves `updated_at`, only a turn's start moves `recency_at`.
pub async fn live_thread_output_advances_updated_at_but_not_recency_at(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    live.append(&begun(mode, 1, "t1", "a")).await.expect("appended");
    let mut last = read(&live).await;
    for item in [final_answer("c"), says(mode, 1, "d"), NewItem::turn_aborted("t1", "interrupted")] {
        later(&h.clock(), 60);
        let appended = live.append(&[item]).await.expect("appended");
        live.flush().await.expect("flushed");
        let now = read(&live).await;
        assert_eq!(Some(now.updated_at), appended.last());
        assert!(now.updated_at > last.updated_at);
        assert_eq!((now.recency_at, now.created_at), (last.recency_at, last.created_at));
        if let Some(m) = observed(h, &store, 1).await {
            assert_eq!((m.updated_at, m.recency_at), (Some(now.updated_at), Some(now.recency_at)));
        }
        last = now;
    }
    later(&h.clock(), 60);
    let started = live.append(&[NewItem::turn_started("t2", last.updated_at)]).await.expect("appended");
    let now = read(&live).await;
    assert_eq!((Some(now.updated_at), Some(now.recency_at)), (started.last(), started.last()));
    // The start of a turn does not wait.
    assert_eq!(observed(h, &store, 1).await.map(|m| m.recency_at), h.keeps_metadata().then_some(started.last()));
}

/// Mere touches are sent at most once in an interval; the next barrier sends what is pending.
pub async fn metadata_irrelevant_items_coalesce_updated_at_touches(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    let first = live.append(&[final_answer("a")]).await.expect("appended").last();
    let Some(_) = observed(h, &store, 1).await else { return };
    let updated = async || observed(h, &store, 1).await.and_then(|m| m.updated_at);
    assert_eq!(updated().await, first);
    h.clock().advance(COALESCE_MS - 1);
    let second = live.append(&[final_answer("b")]).await.expect("appended").last();
    assert_eq!(updated().await, first, "within the interval it waits");
    assert_eq!(Some(read(&live).await.updated_at), second, "the records tell it all the same");
    h.clock().advance(1);
    let third = live.append(&[final_answer("c")]).await.expect("appended").last();
    assert_eq!(updated().await, third);
    let fourth = live.append(&[final_answer("d")]).await.expect("appended").last();
    assert_eq!(updated().await, third);
    live.flush().await.expect("flushed");
    assert_eq!(updated().await, fourth);
}

/// An empty thread leaves no metadata either.
pub async fn live_thread_shutdown_does_not_materialize_empty_thread_metadata(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    live.append(&[event(json!({"type": "exec_command_begin"}))]).await.expect("an append of nothing");
    live.flush().await.expect("flushed");
    live.shutdown().await.expect("closed");
    assert_eq!(stored(h, &store, 1).await, None);
    assert_eq!(refused(store.read_thread(id(1), Archived::Included, WithHistory::No).await), no_rollout(1));
}

/// Persisting makes thread and metadata without any items.
pub async fn live_thread_persist_makes_thread_and_metadata(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    live.persist().await.expect("persisted");
    let thread = read(&live).await;
    assert_eq!((thread.preview.as_str(), thread.history_mode), ("", mode));
    if let Some(m) = observed(h, &store, 1).await {
        assert_eq!((m.created_at, m.model_provider.as_deref()), (Some(thread.created_at), Some("provider")));
    }
}

/// What was appended is there before metadata is read.
pub async fn live_thread_shutdown_materializes_before_metadata_is_read(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    let items = [says(mode, 1, "hello")];
    live.append(&items).await.expect("appended");
    live.shutdown().await.expect("closed");
    let thread = store.read_thread(id(1), Archived::Excluded, WithHistory::Yes).await.expect("read");
    assert_eq!((thread.preview.as_str(), thread.history.map(|h| payloads(&h))), ("hello", Some(said(&items))));
    assert_eq!(observed(h, &store, 1).await.and_then(|m| m.preview).as_deref(), h.keeps_metadata().then_some("hello"));
}

/// A decision before the first record makes the thread in its own mode.
pub async fn memory_mode_update_before_rollout_materializes_keeps_history_mode(
    h: &dyn StoreHarness,
    mode: HistoryMode,
) {
    if mode == HistoryMode::Paginated && !h.keeps_metadata() {
        return;
    }
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    let patch = MetadataPatch { memory_mode: Some("disabled".into()), ..MetadataPatch::default() };
    let thread = live.update_metadata(patch).await.expect("updated");
    assert_eq!((thread.history_mode, thread.memory_mode.as_deref()), (mode, Some("disabled")));
    live.append(&turn(mode, 1, "t1", "a", "b")).await.expect("appended");
    live.shutdown().await.expect("closed");
    let thread = h.reopen().read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("read");
    assert_eq!((thread.history_mode, thread.memory_mode.as_deref()), (mode, Some("disabled")));
}

/// A decision comes behind what was observed, and stays when more is.
pub async fn live_thread_decisions_stay_while_more_is_observed(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    live.append(&turn(mode, 1, "t1", "a", "b")).await.expect("appended");
    let name = |text: &str| MetadataPatch { name: Field::Set(text.into()), ..MetadataPatch::default() };
    assert_eq!(live.update_metadata(name("name")).await.expect("named").name.as_deref(), Some("name"));
    live.append(&turn(mode, 1, "t2", "c", "d")).await.expect("appended");
    live.shutdown().await.expect("closed");
    let live = resume(h, &store, 1).await;
    live.append(&turn(mode, 1, "t3", "e", "f")).await.expect("appended");
    live.shutdown().await.expect("closed");
    let thread = h.reopen().read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("read");
    assert_eq!((thread.name.as_deref(), thread.preview.as_str()), (Some("name"), "a"));
}

/// A resumed thread keeps its creation, provider and first message, and its metadata waits for an append.
pub async fn live_thread_resume_keeps_what_is_known(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    live.append(&turn(mode, 1, "t1", "first", "b")).await.expect("appended");
    live.shutdown().await.expect("closed");
    let before = store.read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("read");
    let kept = stored(h, &store, 1).await;
    drop((live, store));
    later(&h.clock(), 3600);
    let store = h.reopen();
    let live = resume(h, &store, 1).await;
    assert_eq!(live.history_mode(), mode);
    live.flush().await.expect("flushed");
    assert_eq!(stored(h, &store, 1).await, kept, "nothing is sent before an append");
    assert_eq!(read(&live).await, before, "resuming is no output");
    live.append(&turn(mode, 1, "t2", "second", "d")).await.expect("appended");
    live.shutdown().await.expect("closed");
    let after = store.read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("read");
    assert_eq!((after.created_at, &after.model_provider), (before.created_at, &before.model_provider));
    assert_eq!((after.preview.as_str(), after.first_user_message.as_deref()), ("first", Some("first")));
    assert!(after.updated_at > before.updated_at && after.recency_at > before.recency_at);
    if let Some(m) = observed(h, &store, 1).await {
        assert_eq!((m.created_at, m.title.as_deref()), (Some(before.created_at), Some("first")));
        assert_eq!((m.first_user_message.as_deref(), m.updated_at), (Some("first"), Some(after.updated_at)));
    }
}

/// A thread that nobody observed yet is known from its history once it is resumed and goes on.
pub async fn live_thread_resume_loads_history_before_observing(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("the first message", "b")]).await;
    let live = resume(h, &store, 1).await;
    live.append(&turn(mode, 1, "t2", "a later message", "d")).await.expect("appended");
    live.flush().await.expect("flushed");
    if let Some(m) = observed(h, &store, 1).await {
        let first = Some("the first message");
        assert_eq!((m.preview.as_deref(), m.first_user_message.as_deref()), (first, first));
        assert_eq!((m.model_provider.as_deref(), m.cwd.as_deref()), (Some("provider"), Some(super::talk::CWD)));
    }
    assert_eq!(read(&live).await.preview, "the first message");
}

/// A thread outside the store is resumed by its rollout, and keeps what it had.
pub async fn live_thread_resume_from_explicit_external_rollout_path(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("of another home", "b")]).await;
    let before = store.read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("read");
    let records = history(&store, 1).await.records.into_iter().map(|r| r.0);
    let text = |r: Vec<u8>| String::from_utf8(r).expect("UTF-8").replace(&id(1).to_string(), &id(2).to_string());
    let records: Vec<Vec<u8>> = records.map(|r| text(r).into_bytes()).collect();
    let Some(path) = h.outside(id(2), &records) else { return };
    later(&h.clock(), 60);
    let mut params = again(2);
    params.rollout_path = Some(path.clone());
    let live = LiveThread::resume(Arc::clone(&store), params, h.clock()).await.expect("resumed");
    live.append(&turn(mode, 2, "t2", "a later message", "d")).await.expect("appended");
    let thread = live.read(WithHistory::Yes).await.expect("read");
    assert_eq!((thread.created_at, thread.preview.as_str()), (before.created_at, "of another home"));
    assert_eq!(thread.model_provider.as_deref(), Some("provider"));
    assert_eq!(thread.history.map(|h| h.records.len()), Some(records.len() + 6));
    let at = thread.rollout_path.and_then(|p| p.canonicalize().ok());
    assert_eq!(at, path.canonicalize().ok());
    live.shutdown().await.expect("closed");
}

/// A thread that cannot be resumed leaves no writer.
pub async fn live_thread_resume_that_fails_leaves_no_writer(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let failed = LiveThread::resume(Arc::clone(&store), again(1), h.clock()).await;
    assert_eq!(refused(failed), no_rollout(1));
    assert_eq!(refused(store.flush_thread(id(1)).await), Refused::NotFound);
    let live = create(h, &store, new(1, mode)).await;
    live.append(&[says(mode, 1, "a")]).await.expect("appended");
    let already = LiveThread::resume(Arc::clone(&store), again(1), h.clock()).await;
    assert!(matches!(refused(already), Refused::Invalid(_)));
    live.append(&[says(mode, 1, "b")]).await.expect("the first writer is untouched");
}

/// First message, preview and title are set once.
pub async fn later_user_messages_do_not_replace_the_first(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    for text in ["first", "second", "third"] {
        live.append(&[says(mode, 1, text)]).await.expect("appended");
    }
    live.flush().await.expect("flushed");
    if let Some(m) = observed(h, &store, 1).await {
        assert_eq!((m.preview.as_deref(), m.title.as_deref()), (Some("first"), Some("first")));
    }
    assert_eq!(read(&live).await.first_user_message.as_deref(), Some("first"));
}

/// A goal stands for a thread in which nothing was said, and never for a message.
pub async fn goal_update_sets_preview_without_overriding_existing(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let goal = |n, text: &str| {
        event(json!({"type": "thread_goal_updated", "threadId": id(n), "goal": {"threadId": id(n),
            "objective": text, "status": "active", "tokensUsed": 0, "timeUsedSeconds": 0}}))
    };
    let live = create(h, &store, new(1, mode)).await;
    for item in [goal(1, "the goal"), goal(1, "another"), says(mode, 1, "a message")] {
        live.append(&[item]).await.expect("appended");
    }
    let other = create(h, &store, new(2, mode)).await;
    for item in [says(mode, 2, "a message"), goal(2, "the goal")] {
        other.append(&[item]).await.expect("appended");
    }
    for (live, n, want) in [(&live, 1, "the goal"), (&other, 2, "a message")] {
        live.flush().await.expect("flushed");
        assert_eq!(read(live).await.preview, want);
        if let Some(m) = observed(h, &store, n).await {
            assert_eq!((m.preview.as_deref(), m.title.as_deref()), (Some(want), Some("a message")));
        }
    }
}

/// Settings of the thread change model, provider, effort, directory and permissions.
pub async fn thread_settings_applied_updates_live_metadata(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    let settings = |s: serde_json::Value| event(json!({"type": "thread_settings_applied", "thread_settings": s}));
    let first = json!({"model": "m1", "model_provider_id": "p1", "reasoning_effort": "low", "cwd": "/new",
        "approval_policy": "never", "permission_profile": {"type": "disabled"}});
    live.append(&[says(mode, 1, "a"), settings(first)]).await.expect("appended");
    let second = json!({"model": "m2", "model_provider_id": "p2", "cwd": "/newer", "approval_policy": "on-request",
        "permission_profile": {"type": "managed"}});
    live.append(&[settings(second)]).await.expect("appended");
    live.flush().await.expect("flushed");
    if let Some(m) = observed(h, &store, 1).await {
        assert_eq!((m.model.as_deref(), m.model_provider.as_deref()), (Some("m2"), Some("p2")));
        assert_eq!((m.cwd.as_deref(), m.reasoning_effort), (Some("/newer"), None));
        assert_eq!(
            (m.approval_mode, m.permission_profile),
            (Some(json!("on-request")), Some(json!({"type": "managed"})))
        );
    }
}

/// A thread whose host fails while it is set up is discarded.
pub async fn an_init_guard_discards_on_drop(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let guard = create(h, &store, new(1, mode)).await.guard();
    drop(guard);
    // The discard runs as a task of its own.
    for _ in 0..1000 {
        if store.flush_thread(id(1)).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(refused(store.flush_thread(id(1)).await), Refused::NotFound);
    let guard = create(h, &store, new(1, mode)).await.guard();
    let live = guard.release().expect("the thread");
    live.append(&[says(mode, 1, "a")]).await.expect("a released thread lives on");
}

/// After its discard a live thread writes no more.
pub async fn live_thread_discard_closes_the_writer(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let live = create(h, &store, new(1, mode)).await;
    live.discard().await.expect("discarded");
    assert_eq!(refused(live.append(&[says(mode, 1, "a")]).await), Refused::NotFound);
    assert_eq!(refused(live.discard().await), Refused::NotFound);
    assert_eq!(stored(h, &store, 1).await, None);
}
