//! Reverts.

use serde_json::{Value, json};
use threadkeep_record::{Field, GitPatch, HistoryMode, MetadataPatch, NewItem, ThreadId};

use super::StoreHarness;
use super::listing::{everything, number};
use super::talk::{
    Refused, Store, again, all_of, begun, bodies, envelope, final_answer, history, id, later, new, no_rollout,
    payloads, refused, roll_back, said, told, turn, turns,
};
use crate::contract::StoreResult;
use crate::params::{Archived, ForkRange, ForkThread, Relation, SearchOccurrences, SearchThreads, WithHistory};
use crate::stored::{EdgeStatus, SpawnEdge, StoredThread};

const THREE: [(&str, &str); 3] = [("one", "first"), ("two", "second"), ("three", "third")];

async fn revert(store: &Store, n: u32, before: &str) -> StoreResult<StoredThread> {
    store.revert_thread(id(n), before.into()).await
}

async fn turn_ids(store: &Store, n: u32) -> Vec<String> {
    turns(store, n).await.into_iter().map(|(id, _)| id).collect()
}

async fn read(store: &Store, n: u32) -> StoredThread {
    store.read_thread(id(n), Archived::Excluded, WithHistory::No).await.expect("a thread")
}

/// Continues a thread by a turn, and closes it.
async fn go_on(store: &Store, mode: HistoryMode, n: u32, turn_id: &str) {
    store.resume_thread(again(n)).await.expect("resumed");
    let items = turn(mode, n, turn_id, &format!("asked {turn_id}"), &format!("answered {turn_id}"));
    store.append_items(id(n), &items).await.expect("appended");
    store.shutdown_thread(id(n)).await.expect("closed");
}

async fn fork(store: &Store, mode: HistoryMode, source: u32, child: u32, range: ForkRange) {
    let params = ForkThread { source: id(source), archived: Archived::Excluded, range, child: new(child, mode) };
    store.fork_thread(params).await.expect("forked");
    store.shutdown_thread(id(child)).await.expect("closed");
}

fn taken_back(turns: u64) -> Value {
    json!({"type": "thread_rolled_back", "num_turns": turns})
}

fn parsed(payload: &str) -> Value {
    serde_json::from_str(payload).expect("JSON")
}

/// Ordinals of a history have no gap, and times grow.
async fn is_in_order(store: &Store, mode: HistoryMode, n: u32) {
    let history = history(store, n).await;
    let ordinals: Vec<Option<u64>> = history.records.iter().map(|r| envelope(r).ordinal).collect();
    if mode == HistoryMode::Paginated {
        assert_eq!(ordinals, (0..ordinals.len() as u64).map(Some).collect::<Vec<_>>());
    }
    let times = super::talk::times(&history);
    assert!(times.windows(2).all(|t| t[0] < t[1]), "{times:?}");
}

/// A turn and all behind it are taken back, wherever it stands, and the thread goes on there.
pub async fn reverts_end_before_turns(h: &dyn StoreHarness, mode: HistoryMode) {
    for (n, before, standing) in [(1, "t1", 0), (2, "t2", 1), (3, "t3", 2)] {
        let store = h.open();
        told(&store, mode, n, &THREE).await;
        let (was, whole) = (read(&store, n).await, bodies(&history(&store, n).await));
        later(&h.clock(), 60);
        let now = h.clock();
        let thread = revert(&store, n, before).await.expect("reverted");
        assert_eq!((thread.thread_id, thread.created_at, thread.archived), (id(n), was.created_at, false));
        assert_eq!((thread.session_id, thread.history_mode), (was.session_id, mode));
        assert!(thread.updated_at > was.updated_at, "{} {}", thread.updated_at, crate::Clock::now(&*now));
        for store in [store, h.reopen()] {
            assert_eq!(turn_ids(&store, n).await, &["t1", "t2", "t3"][..standing]);
            is_in_order(&store, mode, n).await;
            let now = bodies(&history(&store, n).await);
            if mode == HistoryMode::Legacy {
                assert_eq!(now[..18], whole, "the records stay");
                assert_eq!(now.len(), 19);
                assert_eq!(parsed(envelope(&now[18]).payload), taken_back(3 - standing as u64));
            } else {
                assert_eq!(now, whole[..6 * standing], "the history ends before the turn");
            }
        }
        let store = h.reopen();
        go_on(&store, mode, n, "next").await;
        for store in [store, h.reopen()] {
            assert_eq!(turn_ids(&store, n).await, [&["t1", "t2", "t3"][..standing], &["next"]].concat());
            is_in_order(&store, mode, n).await;
            let listed = store.list_threads(everything()).await.expect("a list").threads;
            assert_eq!(listed.iter().filter(|t| t.thread_id == id(n)).count(), 1, "one thread");
        }
    }
}

/// The header of a paginated thread's next rollout says what the thread's says, and where it goes on.
pub async fn reverts_take_the_header_over(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let mut params = new(1, mode);
    params.base_instructions = Some("be kind".into());
    params.extra = json!({"of_tomorrow": {"b": 1, "a": [2]}}).as_object().expect("an object").clone();
    store.create_thread(params).await.expect("created");
    for (turn_id, asked) in [("t1", "one"), ("t2", "two")] {
        store.append_items(id(1), &turn(mode, 1, turn_id, asked, "x")).await.expect("appended");
    }
    store.shutdown_thread(id(1)).await.expect("closed");
    let headers = |history: &crate::StoredHistory| -> Vec<Value> {
        let headers = history.records.iter().map(|r| envelope(r)).filter(|e| e.type_name == "session_meta");
        headers.map(|e| parsed(e.payload)).collect()
    };
    let first = headers(&history(&store, 1).await).remove(0);
    later(&h.clock(), 60);
    revert(&store, 1, "t2").await.expect("reverted");
    let all = headers(&history(&store, 1).await);
    assert_eq!(all[0], first);
    if mode == HistoryMode::Legacy {
        assert_eq!(all.len(), 1);
        return;
    }
    let [_, last] = &all[..] else { panic!("two headers: {all:?}") };
    let base = &last["history_base"];
    assert_eq!((&base["thread_id"], &base["end_ordinal_exclusive"]), (&json!(id(1)), &json!(7)));
    assert!(base["end_byte_offset"].as_u64().is_some_and(|n| n > 0));
    assert!(last["timestamp"].as_str() > first["timestamp"].as_str());
    let mut same = last.as_object().expect("an object").clone();
    same.remove("history_base");
    same["timestamp"] = first["timestamp"].clone();
    assert_eq!(Value::from(same), first);
}

/// Turns that cannot be taken back; nothing is changed then.
pub async fn reverts_refuse_turns_that_are_none(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    assert_eq!(refused(revert(&store, 1, "t1").await), no_rollout(1));
    store.create_thread(new(1, mode)).await.expect("created");
    assert_eq!(refused(revert(&store, 1, "t1").await), no_rollout(1), "it is not there yet");
    store.discard_thread(id(1)).await.expect("closed");
    told(&store, mode, 1, &THREE).await;
    store.resume_thread(again(1)).await.expect("resumed");
    store.append_items(id(1), &[roll_back(1)]).await.expect("appended");
    store.shutdown_thread(id(1)).await.expect("closed");
    let was = history(&store, 1).await;
    for (before, text) in [
        ("nothing", "beforeTurnId 'nothing' was not found in the source thread"),
        ("", "beforeTurnId '' was not found in the source thread"),
        ("t3", "beforeTurnId 't3' is not a persisted canonical turn in the source thread"),
    ] {
        assert_eq!(refused(revert(&store, 1, before).await), Refused::Invalid(text.into()));
        assert_eq!(history(&store, 1).await, was);
    }
    revert(&store, 1, "t2").await.expect("reverted");
    let again = match mode {
        HistoryMode::Legacy => "is not a persisted canonical turn",
        // It is no part of the history any more.
        HistoryMode::Paginated | HistoryMode::Unknown => "was not found",
    };
    let again = format!("beforeTurnId 't2' {again} in the source thread");
    assert_eq!(refused(revert(&store, 1, "t2").await), Refused::Invalid(again));
    assert_eq!(turn_ids(&store, 1).await, ["t1"]);
    drop(store);
    h.archive(id(1)).await;
    let refusal = refused(revert(&h.reopen(), 1, "t1").await);
    assert_eq!(refusal, Refused::Invalid(format!("thread {} is archived", id(1))));
}

/// One revert behind another, before, in and behind what the last one left.
pub async fn a_thread_is_reverted_again(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    for (before, next, standing) in [
        ("t3", Some("u1"), &["t1", "t2", "u1"][..]),
        ("u1", None, &["t1", "t2"]),
        ("t2", Some("u2"), &["t1", "u2"]),
        ("u2", Some("u3"), &["t1", "u3"]),
        ("t1", None, &[]),
    ] {
        // Segments of one thread are told apart by their times, whatever the clock does.
        h.clock().advance(-5_000);
        revert(&store, 1, before).await.expect("reverted");
        if let Some(next) = next {
            go_on(&store, mode, 1, next).await;
        }
        for store in [store.clone(), h.reopen()] {
            assert_eq!(turn_ids(&store, 1).await, standing, "before {before}");
            is_in_order(&store, mode, 1).await;
        }
    }
    go_on(&store, mode, 1, "last").await;
    assert_eq!(turn_ids(&h.reopen(), 1).await, ["last"]);
}

/// What a fork took over stays with it, and a fork of a reverted thread has what stands.
pub async fn reverts_leave_forks_alone(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    fork(&store, mode, 1, 2, ForkRange::Whole).await;
    fork(&store, mode, 1, 3, ForkRange::ThroughTurn("t2".into())).await;
    let (whole, part) = (history(&store, 2).await, history(&store, 3).await);
    revert(&store, 1, "t2").await.expect("reverted");
    go_on(&store, mode, 1, "u").await;
    fork(&store, mode, 1, 4, ForkRange::Whole).await;
    fork(&store, mode, 1, 5, ForkRange::BeforeTurn("u".into())).await;
    for store in [store, h.reopen()] {
        assert_eq!((history(&store, 2).await, history(&store, 3).await), (whole.clone(), part.clone()));
        assert_eq!(turn_ids(&store, 2).await, ["t1", "t2", "t3"]);
        assert_eq!(turn_ids(&store, 3).await, ["t1", "t2"]);
        assert_eq!(turn_ids(&store, 4).await, ["t1", "u"]);
        assert_eq!(turn_ids(&store, 5).await, ["t1"]);
        for n in [2, 3, 4, 5] {
            assert_eq!(read(&store, n).await.forked_from_id, Some(id(1)));
        }
    }
    let store = h.reopen();
    revert(&store, 4, "u").await.expect("reverted");
    go_on(&store, mode, 4, "v").await;
    assert_eq!(turn_ids(&h.reopen(), 4).await, ["t1", "v"]);
    assert_eq!(turn_ids(&h.reopen(), 1).await, ["t1", "u"]);
}

/// A fork can be reverted to before where it began; its source is as it was.
pub async fn forks_are_reverted_into_what_they_took_over(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    later(&h.clock(), 60);
    fork(&store, mode, 1, 2, ForkRange::Whole).await;
    go_on(&store, mode, 2, "f").await;
    let (source, made) = (history(&store, 1).await, read(&store, 2).await);
    later(&h.clock(), 60);
    let thread = revert(&store, 2, "t2").await.expect("reverted");
    assert_eq!((thread.created_at, thread.forked_from_id), (made.created_at, Some(id(1))));
    go_on(&store, mode, 2, "g").await;
    fork(&store, mode, 2, 3, ForkRange::Whole).await;
    for store in [store.clone(), h.reopen()] {
        assert_eq!(turn_ids(&store, 2).await, ["t1", "g"]);
        assert_eq!(turn_ids(&store, 3).await, ["t1", "g"]);
        assert_eq!(history(&store, 1).await, source);
        let thread = read(&store, 2).await;
        assert_eq!((thread.created_at, thread.forked_from_id), (made.created_at, Some(id(1))));
        let listed = store.list_threads(everything()).await.expect("a list").threads;
        let row = listed.iter().find(|t| t.thread_id == id(2)).expect("listed");
        assert_eq!((row.created_at, row.forked_from_id), (made.created_at, Some(id(1))));
    }
    revert(&store, 2, "t1").await.expect("reverted");
    assert_eq!(turn_ids(&h.reopen(), 2).await, [""; 0]);
    assert_eq!(turn_ids(&h.reopen(), 3).await, ["t1", "g"]);
}

/// A live writer of the same store goes on behind a revert, but for a turn that runs; one of another store forbids it.
pub async fn reverts_of_threads_that_are_written(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    store.resume_thread(again(1)).await.expect("resumed");
    store.append_items(id(1), &begun(mode, 1, "t4", "four")).await.expect("appended");
    let was = history(&store, 1).await;
    for before in ["t4", "t2"] {
        let Refused::Conflict(text) = refused(revert(&store, 1, before).await) else { panic!("no conflict") };
        assert!(text.contains("t4") && text.contains("runs"), "{text}");
        // Only in the store of the writer can it be known that the turn runs.
        let Refused::Conflict(text) = refused(revert(&h.reopen(), 1, before).await) else { panic!("no conflict") };
        assert!(text.contains(&format!("thread {} already has an active writer", id(1))), "{text}");
        assert_eq!(history(&store, 1).await, was);
    }
    let end = [final_answer("fourth"), NewItem::turn_completed("t4", None, threadkeep_record::UtcMillis(0))];
    store.append_items(id(1), &end).await.expect("appended");
    revert(&store, 1, "t2").await.expect("reverted");
    assert_eq!(turn_ids(&store, 1).await, ["t1"]);
    store.append_items(id(1), &turn(mode, 1, "t5", "five", "fifth")).await.expect("the writer is still there");
    let Refused::Conflict(_) = refused(revert(&h.reopen(), 1, "t5").await) else { panic!("no conflict") };
    revert(&store, 1, "t5").await.expect("reverted again");
    store.append_items(id(1), &turn(mode, 1, "t6", "six", "sixth")).await.expect("appended");
    store.flush_thread(id(1)).await.expect("flushed");
    for store in [store.clone(), h.reopen()] {
        assert_eq!(turn_ids(&store, 1).await, ["t1", "t6"]);
        is_in_order(&store, mode, 1).await;
    }
    assert_eq!(
        store.live_rollout_path(id(1)).await.expect("a writer"),
        read(&h.reopen(), 1).await.rollout_path,
        "the writer says where it writes now"
    );
    store.shutdown_thread(id(1)).await.expect("closed");
    revert(&h.reopen(), 1, "t6").await.expect("nobody writes it");
    assert_eq!(turn_ids(&h.reopen(), 1).await, ["t1"]);
}

/// A turn without an end that an earlier writer left does not run.
pub async fn a_turn_that_was_cut_off_is_reverted(h: &dyn StoreHarness, mode: HistoryMode) {
    for (n, resumed) in [(1, false), (2, true)] {
        let store = h.open();
        told(&store, mode, n, &THREE[..1]).await;
        store.resume_thread(again(n)).await.expect("resumed");
        store.append_items(id(n), &begun(mode, n, "t2", "two")).await.expect("appended");
        drop(store);
        let store = h.reopen();
        if resumed {
            store.resume_thread(again(n)).await.expect("resumed");
        }
        revert(&store, n, "t2").await.expect("reverted");
        assert_eq!(turn_ids(&store, n).await, ["t1"]);
        // What a fork took over without its end does not run in the fork, either.
        let child = n + 10;
        let params = ForkThread {
            source: id(n),
            archived: Archived::Excluded,
            range: ForkRange::Whole,
            child: new(child, mode),
        };
        store.fork_thread(params).await.expect("forked");
        revert(&store, child, "t1").await.expect("reverted");
        assert_eq!(turn_ids(&store, child).await, [""; 0]);
    }
}

/// Name, facts and edges are no part of the history.
pub async fn reverts_leave_what_is_kept_beside_the_history(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    let git = GitPatch { branch: Field::Set("main".into()), ..GitPatch::default() };
    let patch = MetadataPatch { name: Field::Set("the name".into()), git, ..MetadataPatch::default() };
    // A store without an index has nowhere to keep git facts of a paginated thread.
    let patch = if h.keeps_metadata() { patch } else { MetadataPatch { git: GitPatch::default(), ..patch } };
    store.update_thread_metadata(id(1), patch, Archived::Excluded).await.expect("decided");
    if h.keeps_metadata() {
        told(&store, mode, 2, &THREE).await;
        let edge = SpawnEdge { parent: id(1), child: id(2), status: EdgeStatus::Open };
        store.upsert_spawn_edge(edge).await.expect("kept");
    }
    let was = read(&store, 1).await;
    let thread = revert(&store, 1, "t2").await.expect("reverted");
    for thread in [thread, read(&h.reopen(), 1).await] {
        assert_eq!((thread.name.as_deref(), thread.git_info), (Some("the name"), was.git_info.clone()));
        assert_eq!((thread.preview.as_str(), thread.cwd, thread.source), ("one", was.cwd.clone(), was.source.clone()));
    }
    if h.keeps_metadata() {
        let edges = h.reopen().list_spawn_edges(Relation::ChildrenOf(id(1)), None).await.expect("edges");
        assert_eq!(edges.iter().map(|e| number(e.child)).collect::<Vec<_>>(), [2]);
    }
}

/// A search finds what stands; what was taken back is no turn of the conversation.
pub async fn searches_know_what_was_reverted(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("the heron", "x"), ("the okapi", "y")]).await;
    revert(&store, 1, "t2").await.expect("reverted");
    go_on(&store, mode, 1, "u").await;
    for store in [store, h.reopen()] {
        let places = async |term: &str| {
            let params = SearchOccurrences { thread_id: id(1), search_term: term.into(), page_size: 10, cursor: None };
            let page = store.search_thread_occurrences(params).await.expect("a page");
            page.occurrences.into_iter().map(|o| (o.turn_id, o.turn_number)).collect::<Vec<_>>()
        };
        assert_eq!(places("heron").await, [(Some("t1".into()), Some(1))]);
        assert_eq!(places("asked u").await, [(Some("u".into()), Some(2))]);
        assert!(places("okapi").await.iter().all(|(_, number)| number.is_none()));
        let found = async |term: &str| {
            let params = SearchThreads { search_term: term.into(), page_size: 10, ..SearchThreads::default() };
            let hits = store.search_threads(params).await.expect("a page").hits;
            hits.into_iter().map(|h| number(h.thread.thread_id)).collect::<Vec<_>>()
        };
        assert_eq!((found("heron").await, found("asked u").await), (vec![1], vec![1]));
        // What was taken back is still kept, and a store may look there, too.
        assert!(found("okapi").await.len() <= 1);
    }
}

/// The model's context after a revert has nothing of a checkpoint that was taken back.
pub async fn reverts_take_checkpoints_back(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE[..1]).await;
    store.resume_thread(again(1)).await.expect("resumed");
    store.append_items(id(1), &begun(mode, 1, "t2", "two")).await.expect("appended");
    let compacted = json!({"message": "summary", "replacement_history": [], "window_number": 1, "window_id": "w"});
    let rest = [
        NewItem::from_value("compacted", &compacted).expect("an object"),
        NewItem::from_value("turn_context", &json!({"cwd": "/w", "model": "m"})).expect("an object"),
        NewItem::turn_completed("t2", None, threadkeep_record::UtcMillis(0)),
    ];
    store.append_items(id(1), &rest).await.expect("appended");
    store.shutdown_thread(id(1)).await.expect("closed");
    revert(&store, 1, "t2").await.expect("reverted");
    go_on(&store, mode, 1, "u").await;
    for store in [store, h.reopen()] {
        let context = store.load_latest_model_context(id(1), Archived::Excluded).await.expect("a context");
        let whole = payloads(&history(&store, 1).await);
        assert_eq!(payloads(&context), whole, "everything is needed");
        assert_eq!(whole.iter().any(|p| p.contains("summary")), mode == HistoryMode::Legacy);
    }
}

/// Context that a spawned agent got from its parent is not taken back with its first turn.
pub async fn reverts_leave_inherited_context(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    let range = ForkRange::Subagent { last_turns: Some(2) };
    let params = ForkThread { source: id(1), archived: Archived::Excluded, range, child: new(2, mode) };
    store.fork_thread(params).await.expect("forked");
    store.persist_thread(id(2)).await.expect("made");
    let inherited = said_of(&store, 2).await;
    store.append_items(id(2), &turn(mode, 2, "own", "my task", "done")).await.expect("appended");
    store.shutdown_thread(id(2)).await.expect("closed");
    revert(&store, 2, "own").await.expect("reverted");
    go_on(&store, mode, 2, "next").await;
    for store in [store, h.reopen()] {
        let ids = turn_ids(&store, 2).await;
        assert!(ids.ends_with(&["next".into()]) && !ids.contains(&"own".into()), "{ids:?}");
        let now = said_of(&store, 2).await;
        assert_eq!(now[..inherited.len()], inherited);
        if mode == HistoryMode::Paginated {
            assert_eq!((ids.len(), now.len()), (1, inherited.len() + 6));
            let start = history(&store, 2).await.header().and_then(|h| h.subagent_history_start_ordinal);
            assert_eq!(start, Some(inherited.len() as u64 + 1));
        }
        assert_eq!(read(&store, 2).await.parent_thread_id, Some(id(1)));
    }
}

async fn said_of(store: &Store, n: u32) -> Vec<String> {
    payloads(&history(store, n).await)
}

/// Where turns are not marked, a revert takes back what the model was given for them, too.
pub async fn reverts_end_at_unmarked_turns(h: &dyn StoreHarness, mode: HistoryMode) {
    if mode != HistoryMode::Legacy {
        // There both turns say that they are of one.
        return;
    }
    let exchange = |n: u32, asked: &str, answered: &str| turn(mode, n, "unmarked", asked, answered)[1..5].to_vec();
    for (n, which, left) in [(1, 0, 0), (2, 1, 1), (3, 2, 2)] {
        let store = h.open();
        store.create_thread(new(n, mode)).await.expect("created");
        let mut items = [exchange(n, "one", "first"), exchange(n, "two", "second")].concat();
        // A message whose event was never written begins a turn only if nothing else comes.
        items.push(NewItem::model_message("user", "three"));
        store.append_items(id(n), &items).await.expect("appended");
        store.shutdown_thread(id(n)).await.expect("closed");
        let found = store.list_turns(all_of(n)).await.expect("turns").turns;
        assert_eq!(found.len(), 3);
        revert(&store, n, &found[which].id).await.expect("reverted");
        for store in [store, h.reopen()] {
            let standing = store.list_turns(all_of(n)).await.expect("turns").turns;
            let ids = |turns: &[crate::turns::Turn]| turns.iter().map(|t| t.id.clone()).collect::<Vec<_>>();
            assert_eq!(ids(&standing), ids(&found[..left]), "before turn {which}");
            assert_eq!(payloads(&history(&store, n).await)[..items.len()], said(&items));
        }
    }
}

/// Ids of later rollouts are no threads.
pub async fn rollouts_of_a_thread_are_no_threads(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    revert(&store, 1, "t2").await.expect("reverted");
    go_on(&store, mode, 1, "u").await;
    fork(&store, mode, 1, 2, ForkRange::Whole).await;
    let header = history(&store, 2).await.header().expect("a header");
    if let Some(rollout) = header.history_base.map(|b| b.thread_id) {
        assert_ne!(rollout, id(1), "a fork refers to the rollout that its prefix ends in");
        let read = store.read_thread(rollout, Archived::Included, WithHistory::No).await;
        let want = |id: ThreadId| Refused::Invalid(format!("no rollout found for thread id {id}"));
        assert_eq!(refused(read), want(rollout));
    }
}
