//! Last pages and the latest model context of a large thread come from its end, and say the same as a whole reading.

use std::sync::Arc;

use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::{HistoryMode, ItemPlace, NewItem, ThreadId, UtcMillis};
use threadkeep_store::turns::Turn;
use threadkeep_store::{Archived, CreateThread, Direction, ListTurns, TestClock, ThreadStore};

const TURNS: usize = 60;

/// A thread of more than 16 MiB, with a compaction in its last turns.
async fn large(store: &LocalThreadStore, id: ThreadId, mode: HistoryMode) {
    let mut params = CreateThread::new(id, "/w", "test");
    params.history_mode = mode;
    store.create_thread(params).await.expect("created");
    let filler = "a long answer of a tool ".repeat(14_000);
    let at = UtcMillis(1_767_323_045_000);
    for n in 1..=TURNS {
        let turn = format!("t{n}");
        let item = format!("i{n}");
        let place = ItemPlace { thread_id: id, turn_id: &turn, item_id: &item, at };
        let context = NewItem::from_json("turn_context", r#"{"cwd":"/w","model":"m"}"#).expect("an item");
        let mut items = vec![NewItem::turn_started(&turn, at), context];
        items.push(NewItem::model_message("user", &format!("question {n}")));
        items.push(NewItem::user_message(mode, &place, &format!("question {n}")));
        items.push(NewItem::model_message("assistant", &filler));
        items.push(NewItem::agent_message(mode, &place, &format!("answer {n}")));
        items.push(NewItem::turn_completed(&turn, Some("done"), at));
        if n == TURNS - 2 {
            let compacted = r#"{"message":"so far","replacement_history":[],"window_number":1}"#;
            items.push(NewItem::from_json("compacted", compacted).expect("an item"));
        }
        store.append_items(id, &items).await.expect("appended");
    }
    store.shutdown_thread(id).await.expect("closed");
}

async fn pages(store: &LocalThreadStore, id: ThreadId, direction: Direction) -> Vec<Turn> {
    let mut params = ListTurns { thread_id: id, page_size: 7, cursor: None, direction, archived: Archived::Excluded };
    let mut all = Vec::new();
    loop {
        let page = store.list_turns(params.clone()).await.expect("a page");
        assert!(!page.turns.is_empty() && page.turns.len() <= 7);
        all.extend(page.turns);
        params.cursor = page.next_cursor;
        if params.cursor.is_none() {
            return all;
        }
    }
}

#[test]
fn the_end_of_a_large_thread_is_read_from_its_end() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
            let folder = tempfile::tempdir().expect("a folder");
            let clock = Arc::new(TestClock::new(UtcMillis(1_767_323_045_000)));
            let options = LocalOptions { index: None, ..LocalOptions::new(folder.path().join("home")) };
            let store = LocalThreadStore::open_with(options, clock);
            let id = ThreadId::new_v7();
            large(&store, id, mode).await;
            let forwards = pages(&store, id, Direction::Ascending).await;
            let mut backwards = pages(&store, id, Direction::Descending).await;
            backwards.reverse();
            assert_eq!((forwards.len(), backwards.len()), (TURNS, TURNS));
            assert_eq!(backwards[TURNS - 1].number, None, "the last page does not count what it did not read");
            assert_eq!(forwards[TURNS - 1].number, Some(TURNS as u64));
            for (whole, end) in forwards.iter().zip(&backwards) {
                assert_eq!((&whole.id, whole.status, whole.started_at), (&end.id, end.status, end.started_at));
                let said =
                    |t: &Turn| -> Vec<(String, u64)> { t.items.iter().map(|i| (i.text.clone(), i.offset)).collect() };
                assert_eq!(said(whole), said(end), "turn {}", whole.id);
            }
            // The context begins with the settings of the turn that the compaction stands in or behind.
            let context = store.load_latest_model_context(id, Archived::Excluded).await.expect("a context");
            let whole = store.load_history(id, Archived::Excluded).await.expect("a history");
            assert!(context.records.len() < 30 && whole.records.len() > 300, "{}", context.records.len());
            assert_eq!(context.records[0], whole.records[0], "the header first");
            let tail = &context.records[1..];
            assert_eq!(tail, &whole.records[whole.records.len() - tail.len()..]);
            assert!(tail.iter().any(|r| r.envelope().is_some_and(|e| e.type_name == "compacted")));
        }
    });
}
