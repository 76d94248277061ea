//! Forks.

use serde_json::json;
use threadkeep_record::turns::TurnStatus;
use threadkeep_record::{HistoryMode, NewItem};

use super::StoreHarness;
use super::talk::{
    Refused, Store, again, all_of, begun, bodies, envelope, event, history, id, later, new, no_rollout, payloads,
    refused, roll_back, said, told, turn, turns,
};
use crate::params::{Archived, ForkRange, ForkThread, WithHistory};

fn fork(source: u32, child: u32, mode: HistoryMode, range: ForkRange) -> ForkThread {
    ForkThread { source: id(source), archived: Archived::Excluded, range, child: new(child, mode) }
}

fn through(turn: &str) -> ForkRange {
    ForkRange::ThroughTurn(turn.into())
}

fn before(turn: &str) -> ForkRange {
    ForkRange::BeforeTurn(turn.into())
}

async fn turn_ids(store: &Store, n: u32) -> Vec<String> {
    turns(store, n).await.into_iter().map(|(id, _)| id).collect()
}

const THREE: [(&str, &str); 3] = [("one", "first"), ("two", "second"), ("three", "third")];

/// A whole fork has all records of its source byte for byte, its own header first, and goes on by itself.
pub async fn a_whole_fork_has_every_record(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    let source = history(&store, 1).await;
    later(&h.clock(), 60);
    // The source's mode counts, whatever is asked for.
    store.fork_thread(fork(1, 2, HistoryMode::Legacy, ForkRange::Whole)).await.expect("forked");
    for store in [store.clone(), h.reopen()] {
        let copy = history(&store, 2).await;
        let header = copy.header().expect("a header");
        assert_eq!((header.id, header.forked_from_id, header.history_mode), (Some(id(2)), Some(id(1)), Some(mode)));
        assert_eq!((bodies(&copy), copy.history_mode), (bodies(&source), mode));
        assert_eq!(turns(&store, 2).await, turns(&store, 1).await);
    }
    let thread = store.read_thread(id(2), Archived::Excluded, WithHistory::No).await.expect("read");
    assert_eq!((thread.forked_from_id, thread.preview.as_str()), (Some(id(1)), "one"));
    store.append_items(id(2), &turn(mode, 2, "t4", "four", "fourth")).await.expect("it has a live writer");
    store.shutdown_thread(id(2)).await.expect("closed");
    assert_eq!(turn_ids(&h.reopen(), 2).await, ["t1", "t2", "t3", "t4"]);
    assert_eq!(history(&store, 1).await, source, "the source is as it was");
}

/// Source and fork go on without each other.
pub async fn forks_do_not_see_what_comes_later(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE[..1]).await;
    store.fork_thread(fork(1, 2, mode, ForkRange::Whole)).await.expect("forked");
    store.resume_thread(again(1)).await.expect("resumed");
    store.append_items(id(1), &turn(mode, 1, "of the source", "x", "y")).await.expect("appended");
    store.append_items(id(2), &turn(mode, 2, "of the fork", "x", "y")).await.expect("appended");
    for store in [store, h.reopen()] {
        assert_eq!(turn_ids(&store, 1).await, ["t1", "of the source"]);
        assert_eq!(turn_ids(&store, 2).await, ["t1", "of the fork"]);
    }
}

/// Through a turn, and before one.
pub async fn forks_end_at_turns(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    let whole = bodies(&history(&store, 1).await);
    for (n, range, turns) in [
        (11, through("t1"), 1),
        (12, through("t2"), 2),
        (13, through("t3"), 3),
        (14, before("t1"), 0),
        (15, before("t2"), 1),
        (16, before("t3"), 2),
    ] {
        store.fork_thread(fork(1, n, mode, range)).await.expect("forked");
        assert_eq!(turn_ids(&store, n).await, &["t1", "t2", "t3"][..turns]);
        assert_eq!(bodies(&history(&store, n).await), whole[..6 * turns]);
        let after = turn(mode, n, "next", "a", "b");
        store.append_items(id(n), &after).await.expect("appended");
        store.shutdown_thread(id(n)).await.expect("closed");
        assert_eq!(bodies(&history(&h.reopen(), n).await).len(), 6 * turns + after.len());
    }
}

/// A fork of a fork, at every turn of both.
pub async fn forks_of_forks_end_at_turns(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    store.fork_thread(fork(1, 2, mode, through("t2"))).await.expect("forked");
    for (turn_id, asked) in [("f1", "five"), ("f2", "six")] {
        store.append_items(id(2), &turn(mode, 2, turn_id, asked, "x")).await.expect("appended");
    }
    let whole = bodies(&history(&store, 2).await);
    for (i, last) in ["t1", "t2", "f1", "f2"].into_iter().enumerate() {
        let n = 10 + u32::try_from(i).expect("small");
        store.fork_thread(fork(2, n, mode, through(last))).await.expect("forked");
        assert_eq!(turn_ids(&store, n).await, &["t1", "t2", "f1", "f2"][..=i]);
        assert_eq!(bodies(&history(&store, n).await), whole[..6 * (i + 1)]);
        store.append_items(id(n), &turn(mode, n, "next", "a", "b")).await.expect("appended");
        store.shutdown_thread(id(n)).await.expect("closed");
        let header = history(&h.reopen(), n).await.header().expect("a header");
        assert_eq!((header.id, header.forked_from_id), (Some(id(n)), Some(id(2))));
        assert_eq!(turn_ids(&h.reopen(), n).await.len(), i + 2);
    }
}

/// Turns that cannot be the last of a fork.
pub async fn forks_refuse_turns_that_are_none(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    store.resume_thread(again(1)).await.expect("resumed");
    store.append_items(id(1), &[roll_back(1)]).await.expect("appended");
    store.append_items(id(1), &begun(mode, 1, "t4", "four")).await.expect("appended");
    for (range, text) in [
        (through("nothing"), "lastTurnId 'nothing' was not found in the source thread"),
        (through("t3"), "lastTurnId 't3' is not a persisted canonical turn in the source thread"),
        (through("t4"), "lastTurnId 't4' identifies an in-progress turn"),
        (before("nothing"), "beforeTurnId 'nothing' was not found in the source thread"),
    ] {
        let refusal = refused(store.fork_thread(fork(1, 2, mode, range)).await);
        assert_eq!(refusal, Refused::Invalid(text.into()));
        assert_eq!(refused(store.load_history(id(2), Archived::Included).await), no_rollout(2));
        assert_eq!(refused(store.flush_thread(id(2)).await), Refused::NotFound, "no writer was left behind");
    }
    store.fork_thread(fork(1, 2, mode, before("t4"))).await.expect("what runs can be left out");
    assert_eq!(turn_ids(&store, 2).await, ["t1", "t2"]);
}

/// Of a turn that still runs, the fork has an end; the source has not.
pub async fn a_fork_ends_the_turn_that_still_runs(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    store.append_items(id(1), &begun(mode, 1, "t1", "one")).await.expect("appended");
    let source = history(&store, 1).await;
    store.fork_thread(fork(1, 2, mode, ForkRange::Whole)).await.expect("forked");
    let copy = history(&store, 2).await;
    assert_eq!(bodies(&copy)[..3], bodies(&source));
    let last = payloads(&copy).pop().expect("a record");
    let last: serde_json::Value = serde_json::from_str(&last).expect("JSON");
    assert_eq!((&last["type"], &last["turn_id"]), (&json!("turn_aborted"), &json!("t1")));
    for (n, status) in [(1, TurnStatus::InProgress), (2, TurnStatus::Interrupted)] {
        let page = store.list_turns(all_of(n)).await.expect("turns");
        assert_eq!(page.turns.iter().map(|t| t.status).collect::<Vec<_>>(), [status]);
    }
    assert_eq!(history(&store, 1).await, source);
}

/// A thread that is being written and is not there yet is made before it is forked.
pub async fn a_fork_materializes_its_source(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    store.fork_thread(fork(1, 2, mode, ForkRange::Whole)).await.expect("forked");
    assert_eq!(history(&store, 1).await.records.len(), 1);
    store.append_items(id(2), &turn(mode, 2, "t1", "a", "b")).await.expect("appended");
    assert_eq!(history(&store, 2).await.header().and_then(|h| h.forked_from_id), Some(id(1)));
}

/// What a fork is refused for.
pub async fn forks_follow_the_rules_of_new_threads(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    assert_eq!(refused(store.fork_thread(fork(1, 2, mode, ForkRange::Whole)).await), no_rollout(1));
    told(&store, mode, 1, &THREE).await;
    let mut params = fork(1, 2, mode, ForkRange::Whole);
    params.child.metadata.cwd = None;
    let refusal = refused(store.fork_thread(params).await);
    assert_eq!(refusal, Refused::Invalid("local thread store requires a cwd".into()));
    store.create_thread(new(2, mode)).await.expect("created");
    let refusal = refused(store.fork_thread(fork(1, 2, mode, ForkRange::Whole)).await);
    assert_eq!(refusal, Refused::Invalid(format!("thread {} already has a live local writer", id(2))));
    drop(store);
    h.archive(id(1)).await;
    let store = h.reopen();
    let refusal = refused(store.fork_thread(fork(1, 3, mode, ForkRange::Whole)).await);
    assert_eq!(refusal, Refused::Invalid(format!("thread {} is archived", id(1))));
    let params = ForkThread { archived: Archived::Included, ..fork(1, 3, mode, ForkRange::Whole) };
    store.fork_thread(params).await.expect("forked where archived ones count");
    assert_eq!(turn_ids(&store, 3).await, ["t1", "t2", "t3"]);
    let thread = store.read_thread(id(3), Archived::Excluded, WithHistory::No).await.expect("an active thread");
    assert!(!thread.archived);
}

/// Capability roots come from the source's first header, before anything is cut; an explicit list wins.
pub async fn forks_take_the_capability_roots_of_the_first_header(h: &dyn StoreHarness, mode: HistoryMode) {
    let root = |name: &str| json!({"id": name, "location": {"type": "environment", "environmentId": "e", "path": "file:///r"}});
    let store = h.open();
    let mut params = new(1, mode);
    params.selected_capability_roots = vec![root("of the source")];
    store.create_thread(params).await.expect("created");
    for (turn_id, asked) in [("t1", "one"), ("t2", "two")] {
        store.append_items(id(1), &turn(mode, 1, turn_id, asked, "x")).await.expect("appended");
    }
    let ranges = [
        ForkRange::Whole,
        through("t1"),
        before("t1"),
        ForkRange::Subagent { last_turns: None },
        ForkRange::Subagent { last_turns: Some(1) },
        ForkRange::Subagent { last_turns: Some(0) },
    ];
    for (n, range) in (10..).zip(ranges) {
        store.fork_thread(fork(1, n, mode, range.clone())).await.expect("forked");
        store.persist_thread(id(n)).await.expect("persisted");
        let thread = store.read_thread(id(n), Archived::Excluded, WithHistory::No).await.expect("read");
        assert_eq!(thread.selected_capability_roots, [root("of the source")], "{range:?}");
    }
    let mut params = fork(1, 2, mode, ForkRange::Whole);
    params.child.selected_capability_roots = vec![root("its own")];
    store.fork_thread(params).await.expect("forked");
    let thread = store.read_thread(id(2), Archived::Excluded, WithHistory::No).await.expect("read");
    assert_eq!(thread.selected_capability_roots, [root("its own")]);
    store.fork_thread(fork(2, 3, mode, ForkRange::Whole)).await.expect("forked");
    let thread = store.read_thread(id(3), Archived::Excluded, WithHistory::No).await.expect("read");
    assert_eq!(thread.selected_capability_roots, [root("its own")], "the nearest one's");
}

/// The texts of the model's messages in a history.
fn model_texts(history: &crate::StoredHistory) -> Vec<String> {
    let text = |payload: &str| {
        let v: serde_json::Value = serde_json::from_str(payload).ok()?;
        Some(v["content"][0]["text"].as_str()?.to_owned())
    };
    let responses = history.records.iter().map(|r| envelope(r)).filter(|e| e.type_name == "response_item");
    responses.filter_map(|e| text(e.payload)).collect()
}

/// A parent with two turns, one of which was taken back, and with what a sub-agent does not need.
async fn parent(store: &Store, mode: HistoryMode) {
    let response = |v| NewItem::from_value("response_item", &v).expect("an object");
    store.create_thread(new(1, mode)).await.expect("created");
    let commentary = json!({"type": "message", "role": "assistant", "phase": "commentary",
        "content": [{"type": "output_text", "text": "thinking aloud"}]});
    let call = json!({"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"});
    let context = NewItem::from_value("turn_context", &json!({"cwd": "/w", "model": "m"})).expect("an object");
    let tokens = event(json!({"type": "token_count", "info": null}));
    let pieces = [
        vec![NewItem::model_message("developer", "be kind"), context],
        turn(mode, 1, "t1", "one", "first"),
        vec![response(commentary), response(call), tokens],
        turn(mode, 1, "t2", "taken back", "never"),
        vec![roll_back(1)],
        turn(mode, 1, "t3", "three", "third"),
    ];
    store.append_items(id(1), &pieces.concat()).await.expect("appended");
}

/// A sub-agent gets the model's messages of its parent, of all turns or of the last ones.
pub async fn subagent_forks_take_the_context_of_the_last_turns(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    parent(&store, mode).await;
    // What was taken back may be left out, or be there with the mark that takes it back.
    let taken_back = ["taken back", "never"];
    let everything = ["be kind", "one", "first", "three", "third"];
    for (n, last_turns, want) in [
        (10, None, &everything[..]),
        (11, Some(0), &[]),
        (12, Some(1), &everything[3..]),
        (13, Some(2), &everything[1..]),
        // The beginning belongs to no turn.
        (14, Some(9), &everything[1..]),
    ] {
        store.fork_thread(fork(1, n, mode, ForkRange::Subagent { last_turns })).await.expect("forked");
        store.persist_thread(id(n)).await.expect("persisted");
        let copy = history(&store, n).await;
        let mut texts = model_texts(&copy);
        texts.retain(|t| !taken_back.contains(&t.as_str()));
        assert_eq!(texts, want, "{last_turns:?}");
        let header = copy.header().expect("a header");
        assert_eq!((header.id, header.parent(), header.history_mode), (Some(id(n)), Some(id(1)), Some(mode)));
        let kinds: Vec<String> = copy.records.iter().map(|r| envelope(r).type_name.into_owned()).collect();
        assert_eq!(kinds.iter().any(|k| k == "turn_context"), last_turns.is_none(), "settings only of a full fork");
        let names = |kind: &str| payloads(&copy).iter().any(|p| p.contains(&format!("\"type\":\"{kind}\"")));
        assert!(!names("function_call"));
        if mode == HistoryMode::Paginated {
            assert!(!names("item_completed") && !names("token_count"));
        }
    }
}

/// In a paginated thread the inherited context is no visible history, and ordinals go on behind it.
pub async fn inherited_context_is_not_visible_history(h: &dyn StoreHarness, mode: HistoryMode) {
    if mode != HistoryMode::Paginated {
        return;
    }
    let store = h.open();
    parent(&store, mode).await;
    store.fork_thread(fork(1, 2, mode, ForkRange::Subagent { last_turns: None })).await.expect("forked");
    assert_eq!(turn_ids(&store, 2).await, [""; 0]);
    store.append_items(id(2), &turn(mode, 2, "own", "my task", "done")).await.expect("appended");
    for store in [store, h.reopen()] {
        let history = history(&store, 2).await;
        let ordinals: Vec<Option<u64>> = history.records.iter().map(|r| envelope(r).ordinal).collect();
        assert_eq!(ordinals, (0..ordinals.len() as u64).map(Some).collect::<Vec<_>>());
        let inherited = history.records.len() as u64 - 1 - 6;
        assert_eq!(history.header().and_then(|h| h.subagent_history_start_ordinal), Some(inherited + 1));
        assert_eq!(turn_ids(&store, 2).await, ["own"]);
        let thread = store.read_thread(id(2), Archived::Excluded, WithHistory::No).await.expect("read");
        assert_eq!(thread.preview, "my task");
        let context = store.load_latest_model_context(id(2), Archived::Excluded).await.expect("a context");
        assert!(model_texts(&context).contains(&"first".to_owned()), "the model sees it");
    }
}

/// Forks of threads whose turns are not marked end before a message in both accounts.
pub async fn forks_end_at_unmarked_turns(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    let exchange = |asked: &str, answered: &str| {
        let all = turn(mode, 1, "unmarked", asked, answered);
        all[1..5].to_vec()
    };
    let items = [exchange("one", "first"), exchange("two", "second")].concat();
    store.append_items(id(1), &items).await.expect("appended");
    let found = store.list_turns(all_of(1)).await.expect("turns").turns;
    assert_eq!(found.len(), 2);
    // In the paginated mode both say that they are of one turn.
    if mode == HistoryMode::Legacy {
        store.fork_thread(fork(1, 2, mode, through(&found[0].id))).await.expect("forked");
        store.fork_thread(fork(1, 3, mode, before(&found[1].id))).await.expect("forked");
        for n in [2, 3] {
            assert_eq!(payloads(&history(&store, n).await), said(&items[..4]));
        }
    }
}
