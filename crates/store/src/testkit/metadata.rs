//! Metadata beside the history.

use serde_json::json;
use threadkeep_record::{Field, GitInfo, GitPatch, HistoryMode, MetadataPatch, TokenUsage};

use super::StoreHarness;
use super::talk::{Refused, Store, bodies, history, id, later, new, payloads, refused, said, says, told, turn};
use crate::params::{Archived, WithHistory};
use crate::stored::StoredThread;

async fn update(store: &Store, patch: MetadataPatch) -> StoredThread {
    let updated = store.update_thread_metadata(id(1), patch, Archived::Included).await.expect("updated");
    let read = store.read_thread(id(1), Archived::Included, WithHistory::No).await.expect("read");
    assert_eq!(updated, read, "an update answers with what a read tells");
    updated
}

fn set(text: &str) -> Field<String> {
    Field::Set(text.into())
}

fn named(name: Field<String>) -> MetadataPatch {
    MetadataPatch { name, ..MetadataPatch::default() }
}

/// Whether what is decided about a thread can be kept: a paginated rollout holds no changes of its metadata, so that a
/// store without any other place for them refuses.
fn keeps_decisions(h: &dyn StoreHarness, mode: HistoryMode) -> bool {
    mode == HistoryMode::Legacy || h.keeps_metadata()
}

/// Records that are appended do not change what is stored beside them.
pub async fn raw_append_items_does_not_update_stored_metadata(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    store.append_items(id(1), &turn(mode, 1, "t1", "a", "b")).await.expect("appended");
    let nothing = store.stored_metadata(id(1)).await.expect("an answer");
    assert!(nothing.is_none_or(|m| m.preview.is_none() && m.first_user_message.is_none()));
    let patch = MetadataPatch { preview: Some("observed".into()), ..MetadataPatch::default() };
    store.observe_metadata(id(1), patch).await.expect("observed");
    let before = store.stored_metadata(id(1)).await.expect("an answer");
    let preview = before.as_ref().and_then(|m| m.preview.as_deref());
    assert!(preview == Some("observed") || !h.keeps_metadata(), "{preview:?}");
    store.append_items(id(1), &turn(mode, 1, "t2", "c", "d")).await.expect("appended");
    assert_eq!(store.stored_metadata(id(1)).await.expect("an answer"), before);
}

/// A name is set, replaced and cleared, and is there for others.
pub async fn names_are_set_replaced_and_cleared(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("a", "b")]).await;
    for name in [set("first"), set("zweiter Name 🌍"), Field::Clear, set("last")] {
        let want = name.value().cloned();
        assert_eq!(update(&store, named(name)).await.name, want);
        let other = h.reopen();
        let read = other.read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("read");
        assert_eq!(read.name, want);
    }
    assert_eq!(update(&store, MetadataPatch::default()).await.name.as_deref(), Some("last"), "an empty patch reads");
}

/// A rename is no output.
pub async fn a_rename_moves_no_time_and_no_record(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("a", "b")]).await;
    let before = store.read_thread(id(1), Archived::Excluded, WithHistory::Yes).await.expect("read");
    later(&h.clock(), 100);
    update(&store, named(set("name"))).await;
    let after = store.read_thread(id(1), Archived::Excluded, WithHistory::Yes).await.expect("read");
    assert_eq!(after, StoredThread { name: Some("name".into()), ..before });
}

/// Git facts change one by one, and are cleared literally.
pub async fn git_facts_change_one_by_one(h: &dyn StoreHarness, mode: HistoryMode) {
    if !keeps_decisions(h, mode) {
        return;
    }
    let store = h.open();
    let mut params = new(1, mode);
    let text = |text: &str| Some(text.to_owned());
    params.git = Some(GitInfo { sha: text("s1"), branch: text("b1"), origin_url: text("u1") });
    store.create_thread(params).await.expect("created");
    store.append_items(id(1), &[says(mode, 1, "a")]).await.expect("appended");
    store.shutdown_thread(id(1)).await.expect("closed");
    let git = |sha, branch, origin_url| MetadataPatch {
        git: GitPatch { sha, branch, origin_url },
        ..MetadataPatch::default()
    };
    for (patch, want) in [
        (git(Field::Keep, set("b2"), Field::Keep), [text("s1"), text("b2"), text("u1")]),
        (git(Field::Clear, Field::Keep, set("u2")), [None, text("b2"), text("u2")]),
        (git(set("s3"), Field::Clear, Field::Keep), [text("s3"), None, text("u2")]),
        (git(Field::Clear, Field::Keep, Field::Clear), [None, None, None]),
    ] {
        let [sha, branch, origin_url] = want;
        let want = Some(GitInfo { sha, branch, origin_url }).filter(|g| *g != GitInfo::default());
        assert_eq!(update(&store, patch).await.git_info.filter(|g| *g != GitInfo::default()), want);
        let other = h.reopen().read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("read");
        assert_eq!(other.git_info.filter(|g| *g != GitInfo::default()), want);
    }
}

/// Memory mode, and that git facts leave it alone; several decisions at once.
pub async fn decisions_of_several_kinds_keep_each_other(h: &dyn StoreHarness, mode: HistoryMode) {
    if !keeps_decisions(h, mode) {
        return;
    }
    let store = h.open();
    told(&store, mode, 1, &[("a", "b")]).await;
    let memory = MetadataPatch { memory_mode: Some("disabled".into()), ..MetadataPatch::default() };
    assert_eq!(update(&store, memory).await.memory_mode.as_deref(), Some("disabled"));
    let branch = GitPatch { branch: set("b"), ..GitPatch::default() };
    let thread = update(&store, MetadataPatch { git: branch, ..MetadataPatch::default() }).await;
    assert_eq!(thread.memory_mode.as_deref(), Some("disabled"));
    let all = MetadataPatch {
        name: set("name"),
        memory_mode: Some("enabled".into()),
        git: GitPatch { sha: set("s"), ..GitPatch::default() },
        ..MetadataPatch::default()
    };
    update(&store, all).await;
    let thread = h.reopen().read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("read");
    assert_eq!((thread.name.as_deref(), thread.memory_mode.as_deref()), (Some("name"), Some("enabled")));
    let git = thread.git_info.expect("git facts");
    assert_eq!((git.sha.as_deref(), git.branch.as_deref(), git.origin_url), (Some("s"), Some("b"), None));
    assert_eq!((thread.preview.as_str(), thread.history_mode), ("a", mode));
}

/// A decision about a thread that is not there yet makes it, in its own mode.
pub async fn a_decision_materializes_a_live_thread(h: &dyn StoreHarness, mode: HistoryMode) {
    if !keeps_decisions(h, mode) {
        return;
    }
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    let memory = MetadataPatch { memory_mode: Some("disabled".into()), ..MetadataPatch::default() };
    let thread = update(&store, memory).await;
    assert_eq!((thread.history_mode, thread.memory_mode.as_deref()), (mode, Some("disabled")));
    let items = [says(mode, 1, "a")];
    store.append_items(id(1), &items).await.expect("appended");
    store.shutdown_thread(id(1)).await.expect("closed");
    let history = history(&h.reopen(), 1).await;
    assert_eq!((history.history_mode, payloads(&history)), (mode, said(&items)));
}

/// What was observed is stored field by field: left, cleared or set.
pub async fn observed_patches_are_stored_literally(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("a", "b")]).await;
    let usage = TokenUsage { input: 1, output: 2, total: 3, ..TokenUsage::default() };
    let first = MetadataPatch {
        model: Some("m".into()),
        reasoning_effort: set("high"),
        agent_role: set("scout"),
        approval_mode: Some(json!("never")),
        token_usage: Some(usage),
        ..MetadataPatch::default()
    };
    store.observe_metadata(id(1), first).await.expect("observed");
    let second = MetadataPatch { reasoning_effort: Field::Clear, model: Some("n".into()), ..MetadataPatch::default() };
    store.observe_metadata(id(1), second).await.expect("observed");
    for store in [store, h.reopen()] {
        let stored = store.stored_metadata(id(1)).await.expect("an answer");
        assert!(stored.is_some() || !h.keeps_metadata());
        let Some(stored) = stored.filter(|_| h.keeps_metadata()) else { continue };
        assert_eq!((stored.model.as_deref(), stored.reasoning_effort), (Some("n"), None));
        assert_eq!((stored.agent_role.as_deref(), stored.token_usage), (Some("scout"), Some(usage)));
        assert_eq!(stored.approval_mode, Some(json!("never")));
    }
}

/// What was observed fills in what the records do not tell, and never replaces what they do.
pub async fn observed_metadata_is_a_hint(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("told by a record", "b")]).await;
    let before = history(&store, 1).await;
    let patch = MetadataPatch {
        preview: Some("observed".into()),
        cwd: Some("/elsewhere".into()),
        permission_profile: Some(json!({"type": "disabled"})),
        ..MetadataPatch::default()
    };
    let thread = update(&store, patch).await;
    assert_eq!((thread.preview.as_str(), thread.cwd.as_deref()), ("told by a record", Some(super::talk::CWD)));
    if h.keeps_metadata() {
        assert_eq!(thread.permission_profile, Some(json!({"type": "disabled"})));
    }
    assert_eq!(history(&store, 1).await, before, "a hint is no record");
}

/// Nothing is kept of threads that are not there.
pub async fn metadata_of_an_unknown_thread_is_refused(h: &dyn StoreHarness, _mode: HistoryMode) {
    let store = h.open();
    let unknown = Refused::Invalid(format!("thread not found: {}", id(1)));
    let observed = MetadataPatch { preview: Some("p".into()), ..MetadataPatch::default() };
    for patch in [named(set("name")), observed.clone()] {
        assert_eq!(refused(store.update_thread_metadata(id(1), patch, Archived::Included).await), unknown);
    }
    assert_eq!(refused(store.observe_metadata(id(1), observed).await), unknown);
    assert_eq!(store.stored_metadata(id(1)).await.expect("an answer"), None);
}

/// An archived thread is changed only where archived ones count, and stays archived.
pub async fn archived_threads_stay_archived_when_changed(h: &dyn StoreHarness, mode: HistoryMode) {
    told(&h.open(), mode, 1, &[("a", "b")]).await;
    h.archive(id(1)).await;
    let store = h.reopen();
    let refusal = refused(store.update_thread_metadata(id(1), named(set("n")), Archived::Excluded).await);
    assert_eq!(refusal, Refused::Invalid(format!("thread {} is archived", id(1))));
    let thread = update(&store, named(set("name"))).await;
    assert_eq!((thread.archived, thread.name.as_deref()), (true, Some("name")));
    let patch = MetadataPatch { model: Some("m".into()), ..MetadataPatch::default() };
    assert!(update(&store, patch).await.archived);
}

/// The history stays the same bytes whatever is decided, but for headers that a store adds to tell it.
pub async fn metadata_leaves_the_history_alone(h: &dyn StoreHarness, mode: HistoryMode) {
    if !keeps_decisions(h, mode) {
        return;
    }
    let store = h.open();
    told(&store, mode, 1, &[("a", "b")]).await;
    let before = history(&store, 1).await;
    let patch = MetadataPatch {
        name: set("name"),
        memory_mode: Some("disabled".into()),
        git: GitPatch { branch: set("b"), ..GitPatch::default() },
        ..MetadataPatch::default()
    };
    update(&store, patch).await;
    let after = history(&store, 1).await;
    assert_eq!((bodies(&after), &after.records[0]), (bodies(&before), &before.records[0]));
    if mode == HistoryMode::Paginated {
        assert_eq!(after, before, "a paginated rollout holds no changes of its metadata");
    }
}
