//! Turns and items by page.

use threadkeep_record::turns::TurnStatus;
use threadkeep_record::{HistoryMode, NewItem, UtcMillis};

use super::StoreHarness;
use super::talk::{Refused, Store, again, all_of, begun, id, new, no_rollout, refused, roll_back, told, turn, turns};
use crate::Direction;
use crate::params::ListTurns;

fn paged(n: u32, page_size: usize, direction: Direction) -> ListTurns {
    ListTurns { page_size, direction, ..all_of(n) }
}

/// The ids of the turns over all pages.
async fn ids(store: &Store, mut params: ListTurns) -> Vec<String> {
    let mut found = Vec::new();
    for _ in 0..1000 {
        let page = store.list_turns(params.clone()).await.expect("a page");
        assert!(page.turns.len() <= params.page_size);
        found.extend(page.turns.into_iter().map(|t| t.id));
        params.cursor = page.next_cursor;
        if params.cursor.is_none() {
            return found;
        }
    }
    panic!("turns without an end");
}

/// Turn, kind and text of the items over all pages.
async fn items(store: &Store, mut params: ListTurns) -> Vec<(String, &'static str, String)> {
    let mut found = Vec::new();
    for _ in 0..1000 {
        let page = store.list_items(params.clone()).await.expect("a page");
        assert!(page.items.len() <= params.page_size);
        found.extend(page.items.into_iter().map(|i| (i.turn_id, i.item.kind, i.item.text)));
        params.cursor = page.next_cursor;
        if params.cursor.is_none() {
            return found;
        }
    }
    panic!("items without an end");
}

const THREE: [(&str, &str); 3] = [("one", "first"), ("two", "second"), ("three", "third")];

/// Turns with what was said in them, from both ends, whole and by page.
pub async fn list_turns_pages_in_both_directions(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    for store in [store, h.reopen()] {
        let said: Vec<Vec<String>> = turns(&store, 1).await.into_iter().map(|(_, texts)| texts).collect();
        assert_eq!(said, THREE.map(|(asked, answered)| vec![asked.to_owned(), answered.to_owned()]));
        for page_size in [1, 2, 3, 100] {
            let forwards = ids(&store, paged(1, page_size, Direction::Ascending)).await;
            assert_eq!(forwards, ["t1", "t2", "t3"], "pages of {page_size}");
            let backwards = ids(&store, paged(1, page_size, Direction::Descending)).await;
            assert_eq!(backwards, ["t3", "t2", "t1"], "pages of {page_size}");
        }
    }
}

/// Items of all turns, each once.
pub async fn list_items_pages_in_both_directions(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    let item = |turn: &str, kind, text: &str| (turn.to_owned(), kind, text.to_owned());
    let mut want = Vec::new();
    for (n, (asked, answered)) in (1..).zip(THREE) {
        want.push(item(&format!("t{n}"), "user_message", asked));
        want.push(item(&format!("t{n}"), "agent_message", answered));
    }
    for page_size in [1, 2, 5, 100] {
        assert_eq!(items(&store, paged(1, page_size, Direction::Ascending)).await, want, "pages of {page_size}");
    }
    want.reverse();
    for page_size in [1, 2, 5, 100] {
        assert_eq!(items(&store, paged(1, page_size, Direction::Descending)).await, want, "pages of {page_size}");
    }
}

/// How turns stand, and their numbers and times.
pub async fn turns_tell_how_they_stand(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    let failed = serde_json::json!({"type": "task_complete", "turn_id": "t2", "last_agent_message": null,
        "error": {"message": "out of luck"}});
    let pieces = [
        turn(mode, 1, "t1", "a", "b"),
        begun(mode, 1, "t2", "c"),
        vec![super::talk::event(failed)],
        begun(mode, 1, "t3", "d"),
        vec![NewItem::turn_aborted("t3", "interrupted")],
        begun(mode, 1, "t4", "e"),
    ];
    for items in pieces {
        store.append_items(id(1), &items).await.expect("appended");
    }
    let page = store.list_turns(all_of(1)).await.expect("turns");
    let told: Vec<_> = page.turns.iter().map(|t| (t.id.as_str(), t.number.unwrap_or(0), t.status)).collect();
    let want = [
        ("t1", 1, TurnStatus::Completed),
        ("t2", 2, TurnStatus::Failed),
        ("t3", 3, TurnStatus::Interrupted),
        ("t4", 4, TurnStatus::InProgress),
    ];
    assert_eq!(told, want);
    let time = |t: Option<UtcMillis>| t.expect("a time");
    for t in &page.turns[..3] {
        assert!(time(t.started_at) < time(t.completed_at));
    }
    assert!(page.turns[3].started_at.is_some() && page.turns[3].completed_at.is_none());
}

/// Turns that were taken back are no part of the conversation.
pub async fn turns_taken_back_are_left_out(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    store.resume_thread(again(1)).await.expect("resumed");
    store.append_items(id(1), &[roll_back(2)]).await.expect("appended");
    store.append_items(id(1), &turn(mode, 1, "t4", "four", "fourth")).await.expect("appended");
    assert_eq!(ids(&store, paged(1, 1, Direction::Ascending)).await, ["t1", "t4"]);
    let page = store.list_turns(all_of(1)).await.expect("turns");
    assert_eq!(page.turns.iter().filter_map(|t| t.number).collect::<Vec<_>>(), [1, 2]);
    let texts: Vec<String> = items(&store, all_of(1)).await.into_iter().map(|(_, _, text)| text).collect();
    assert_eq!(texts, ["one", "first", "four", "fourth"]);
    store.append_items(id(1), &[roll_back(100)]).await.expect("appended");
    assert_eq!(ids(&store, paged(1, 10, Direction::Ascending)).await, [""; 0]);
}

/// Pages go on while the thread does.
pub async fn turns_appended_between_pages_come_at_the_end(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    let forwards = store.list_turns(paged(1, 2, Direction::Ascending)).await.expect("a page");
    let backwards = store.list_turns(paged(1, 2, Direction::Descending)).await.expect("a page");
    store.resume_thread(again(1)).await.expect("resumed");
    store.append_items(id(1), &turn(mode, 1, "t4", "four", "fourth")).await.expect("appended");
    let on = |cursor, direction| ListTurns { cursor, ..paged(1, 10, direction) };
    assert_eq!(ids(&store, on(forwards.next_cursor, Direction::Ascending)).await, ["t3", "t4"]);
    assert_eq!(ids(&store, on(backwards.next_cursor, Direction::Descending)).await, ["t1"]);
}

/// What cannot be paged is refused.
pub async fn pages_of_turns_refuse_what_they_cannot_answer(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &THREE).await;
    told(&store, mode, 2, &THREE).await;
    let positive = Refused::Invalid("page size must be positive".into());
    assert_eq!(refused(store.list_turns(ListTurns { page_size: 0, ..all_of(1) }).await), positive);
    assert_eq!(refused(store.list_items(ListTurns { page_size: 0, ..all_of(1) }).await), positive);
    assert_eq!(refused(store.list_turns(all_of(3)).await), no_rollout(3));
    assert_eq!(refused(store.list_items(all_of(3)).await), no_rollout(3));
    let page = store.list_turns(paged(2, 1, Direction::Ascending)).await.expect("a page");
    for cursor in ["garbage", "", page.next_cursor.as_deref().expect("more")] {
        let bad = ListTurns { cursor: Some(cursor.into()), ..all_of(1) };
        match refused(store.list_turns(bad).await) {
            Refused::Invalid(message) => assert!(message.starts_with("invalid cursor"), "{message}"),
            refusal => panic!("{refusal:?}"),
        }
    }
}

/// A thread without turns has none.
pub async fn a_thread_without_turns_has_an_empty_page(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    store.persist_thread(id(1)).await.expect("persisted");
    assert_eq!(ids(&store, all_of(1)).await, [""; 0]);
    assert_eq!(items(&store, all_of(1)).await.len(), 0);
}
