//! A thread's selected capability roots over its life (`thread-store.md` 7.2).

use std::sync::Arc;

use serde_json::{Value, json};
use threadkeep_record::{Envelope, HistoryMode, ItemPlace, NewItem, SessionMeta, ThreadId, UtcMillis};
use threadkeep_store::{
    Archived, CreateThread, ForkRange, ForkThread, HostMetadata, MemoryThreadStore, ResumeThread, StoredHistory,
    TestClock, ThreadStore, WithHistory, selected_roots,
};

const MODES: [HistoryMode; 2] = [HistoryMode::Legacy, HistoryMode::Paginated];

/// Roots as a newer program may write them: fields that are not known, in any order, at both levels, a system of
/// another kind, a repeat, and a member that is no root here.
const ROOTS: &str = concat!(
    r#"[{"zeta":{"b":[1.5,null,-0.0,18446744073709551615],"a":"\u001b é \" \\ 名"},"id":"build","location":{"pin":true,"#,
    r#""path":"file:///C:/build%20it","environmentId":"worker","type":"environment","":{}},"alpha":[]},"#,
    r#"{"id":"build","location":{"type":"environment","environmentId":"other","path":"file:///build"}},"#,
    r#"{"id":"later","location":{"type":"registry","name":"x"}},{"of":"tomorrow"},7]"#,
);

fn id(n: u32) -> ThreadId {
    ThreadId::parse(&format!("01990000-0000-7000-8000-{n:012}")).expect("an id")
}

fn new(n: u32, mode: HistoryMode, roots: Vec<Value>) -> CreateThread {
    CreateThread {
        history_mode: mode,
        selected_capability_roots: roots,
        ..CreateThread::new(id(n), "/work/project", "roots")
    }
}

fn roots() -> Vec<Value> {
    serde_json::from_str(ROOTS).expect("a list")
}

fn root(name: &str) -> Value {
    json!({"id": name, "location": {"type": "environment", "environmentId": "e", "path": "file:///r"}})
}

fn store() -> MemoryThreadStore {
    MemoryThreadStore::new(Arc::new(TestClock::new(UtcMillis(1_767_323_045_000))))
}

/// A thread with three turns, t1 to t3.
async fn told(store: &MemoryThreadStore, n: u32, mode: HistoryMode, roots: Vec<Value>) {
    store.create_thread(new(n, mode, roots)).await.expect("created");
    for turn_id in ["t1", "t2", "t3"] {
        let place = ItemPlace { thread_id: id(n), turn_id, item_id: turn_id, at: UtcMillis(0) };
        let items = [
            NewItem::turn_started(turn_id, UtcMillis(0)),
            NewItem::model_message("user", turn_id),
            NewItem::user_message(mode, &place, turn_id),
            NewItem::turn_completed(turn_id, None, UtcMillis(0)),
        ];
        store.append_items(id(n), &items).await.expect("appended");
    }
}

async fn fork(store: &MemoryThreadStore, source: u32, n: u32, range: &ForkRange, roots: Vec<Value>) {
    // The mode that is asked for is not the one that counts.
    let child = new(n, HistoryMode::Legacy, roots);
    let params = ForkThread { source: id(source), archived: Archived::Excluded, range: range.clone(), child };
    store.fork_thread(params).await.expect("forked");
    store.persist_thread(id(n)).await.expect("persisted");
}

async fn read(store: &MemoryThreadStore, n: u32) -> Vec<Value> {
    let thread = store.read_thread(id(n), Archived::Excluded, WithHistory::No).await.expect("read");
    thread.selected_capability_roots
}

async fn history(store: &MemoryThreadStore, n: u32) -> StoredHistory {
    store.load_history(id(n), Archived::Excluded).await.expect("loaded")
}

/// The record of the first header, as it is kept.
async fn header(store: &MemoryThreadStore, n: u32) -> String {
    let history = history(store, n).await;
    String::from_utf8(history.records[0].0.clone()).expect("a text")
}

fn ranges() -> Vec<ForkRange> {
    let turn = |id: &str| id.to_owned();
    vec![
        ForkRange::Whole,
        ForkRange::ThroughTurn(turn("t1")),
        ForkRange::ThroughTurn(turn("t3")),
        ForkRange::BeforeTurn(turn("t1")),
        ForkRange::BeforeTurn(turn("t3")),
        ForkRange::Subagent { last_turns: None },
        ForkRange::Subagent { last_turns: Some(2) },
        ForkRange::Subagent { last_turns: Some(1) },
        ForkRange::Subagent { last_turns: Some(0) },
    ]
}

fn run(behaviour: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(behaviour);
}

#[test]
fn forks_inherit_before_anything_is_cut() {
    for mode in MODES {
        run(async {
            let store = store();
            told(&store, 1, mode, roots()).await;
            for (n, range) in (10..).zip(ranges()) {
                fork(&store, 1, n, &range, vec![]).await;
                assert_eq!(read(&store, n).await, roots(), "{mode:?} {range:?}");
                assert!(header(&store, n).await.contains(ROOTS), "{mode:?} {range:?}");
                // And what is forked from that: its own first header counts, not a copied one.
                fork(&store, n, n + 100, &ForkRange::Whole, vec![]).await;
                assert!(header(&store, n + 100).await.contains(ROOTS), "{mode:?} {range:?}");
            }
        });
    }
}

#[test]
fn an_explicit_list_wins() {
    for mode in MODES {
        run(async {
            let store = store();
            told(&store, 1, mode, roots()).await;
            for (n, range) in (10..).zip(ranges()) {
                fork(&store, 1, n, &range, vec![root("its own")]).await;
                assert_eq!(read(&store, n).await, [root("its own")], "{mode:?} {range:?}");
                // A copied header of the source, with the source's roots, stands behind the fork's.
                fork(&store, n, n + 100, &ForkRange::Whole, vec![]).await;
                assert_eq!(read(&store, n + 100).await, [root("its own")], "{mode:?} {range:?}");
            }
            assert_eq!(read(&store, 1).await, roots(), "the source keeps its own");
        });
    }
}

#[test]
fn a_resumed_thread_keeps_its_roots() {
    for mode in MODES {
        run(async {
            let first = store();
            told(&first, 1, mode, roots()).await;
            first.shutdown_thread(id(1)).await.expect("closed");
            let before = header(&first, 1).await;
            let store = first.reopen();
            let metadata = HostMetadata { cwd: Some("/elsewhere".into()), ..HostMetadata::default() };
            let params = ResumeThread { thread_id: id(1), rollout_path: None, archived: Archived::Excluded, metadata };
            store.resume_thread(params).await.expect("resumed");
            store.append_items(id(1), &[NewItem::model_message("user", "more")]).await.expect("appended");
            assert_eq!((read(&store, 1).await, header(&store, 1).await), (roots(), before));
            let of_session = selected_roots(None, history(&store, 1).await.header().as_ref());
            assert_eq!(serde_json::to_string(&of_session).expect("JSON"), ROOTS);
        });
    }
}

#[test]
fn without_the_field_there_are_none() {
    for mode in MODES {
        run(async {
            let store = store();
            told(&store, 1, mode, vec![]).await;
            assert!(!header(&store, 1).await.contains("selected_capability_roots"), "an empty list is not written");
            for (n, range) in (10..).zip(ranges()) {
                fork(&store, 1, n, &range, vec![]).await;
                assert_eq!(read(&store, n).await, Vec::<Value>::new(), "{mode:?} {range:?}");
                assert!(!header(&store, n).await.contains("selected_capability_roots"), "{mode:?} {range:?}");
            }
        });
    }
}

#[test]
fn what_decides() {
    let header = |field: &str| {
        let line = format!(
            r#"{{"timestamp":"2026-01-02T03:04:05.000Z","type":"session_meta","payload":{{"id":"{}"{field}}}}}"#,
            id(1)
        );
        assert!(Envelope::parse(line.as_bytes()).is_some(), "{line}");
        SessionMeta::parse(line.as_bytes()).expect("a header")
    };
    for absent in ["", r#","selected_capability_roots":null"#, r#","selected_capability_roots":[]"#] {
        assert_eq!(selected_roots(None, Some(&header(absent))), Vec::<Value>::new(), "{absent}");
        assert_eq!(selected_roots(Some(roots()), Some(&header(absent))), roots(), "{absent}");
    }
    let of_header = header(&format!(r#","selected_capability_roots":[{}]"#, root("of the header")));
    assert_eq!(selected_roots(None, Some(&of_header)), [root("of the header")]);
    assert_eq!(selected_roots(Some(roots()), Some(&of_header)), roots());
    assert_eq!(selected_roots(Some(vec![]), Some(&of_header)), Vec::<Value>::new(), "an empty list is explicit, too");
    assert_eq!(selected_roots(None, None), Vec::<Value>::new());
    // A list deeper than JSON is read stays what it is.
    let deep = (0..500).fold(json!(1), |inner, _| json!([inner]));
    assert_eq!(selected_roots(Some(vec![deep.clone(), root("r")]), None), [deep, root("r")]);
}

#[test]
fn a_legacy_absolute_path_becomes_a_uri() {
    let at = |path: &str| json!({"id": "r", "x": 1, "location": {"type": "environment", "environmentId": "e", "path": path}});
    for (path, uri) in [("/srv/build", "file:///srv/build"), (r"C:\build", "file:///C:/build")] {
        assert_eq!(selected_roots(Some(vec![at(path)]), None), [at(uri)]);
    }
}
