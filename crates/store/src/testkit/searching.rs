//! Searches in what was said.

use threadkeep_record::{Field, HistoryMode, MetadataPatch, NewItem, Speaker};

use super::StoreHarness;
use super::listing::number;
use super::talk::{Refused, Store, again, id, later, new, no_rollout, refused, roll_back, told, turn};
use crate::params::{Archived, ForkRange, ForkThread, SearchOccurrences, SearchThreads};
use crate::stored::Occurrence;

fn search(term: &str) -> SearchThreads {
    SearchThreads { search_term: term.into(), page_size: 100, cursor: None, archived: false }
}

/// The numbers of the threads that a search finds, over all pages, with their snippets.
async fn found(store: &Store, mut params: SearchThreads) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for _ in 0..1000 {
        let page = store.search_threads(params.clone()).await.expect("a page");
        assert!(page.hits.len() <= params.page_size);
        found.extend(page.hits.into_iter().map(|h| (number(h.thread.thread_id), h.snippet)));
        params.cursor = page.next_cursor;
        if params.cursor.is_none() {
            return found;
        }
    }
    panic!("a search without an end");
}

async fn numbers(store: &Store, params: SearchThreads) -> Vec<u32> {
    found(store, params).await.into_iter().map(|(n, _)| n).collect()
}

fn occurrences(n: u32, term: &str, page_size: usize) -> SearchOccurrences {
    SearchOccurrences { thread_id: id(n), search_term: term.into(), page_size, cursor: None }
}

/// Every place of a thread, over all pages.
async fn places(store: &Store, mut params: SearchOccurrences) -> Vec<Occurrence> {
    let mut found = Vec::new();
    for _ in 0..1000 {
        let page = store.search_thread_occurrences(params.clone()).await.expect("a page");
        assert!(page.occurrences.len() <= params.page_size);
        found.extend(page.occurrences);
        params.cursor = page.next_cursor;
        if params.cursor.is_none() {
            return found;
        }
    }
    panic!("a search without an end");
}

/// What persons and agents said, in any case, newest thread first, each thread once, whole and by page.
pub async fn search_threads_finds_what_was_said(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    for (n, asked, answered) in [
        (1, "Where is the NEEDLE?", "nowhere"),
        (2, "no", "a needle is here"),
        (3, "hay", "stack"),
        (4, "needle, needle", "needle again"),
    ] {
        later(&h.clock(), 1);
        told(&store, mode, n, &[(asked, answered)]).await;
    }
    for page_size in [1, 2, 100] {
        let params = SearchThreads { page_size, ..search("needle") };
        assert_eq!(numbers(&store, params).await, [4, 2, 1], "pages of {page_size}");
    }
    for (_, snippet) in found(&store, search("nEEdle")).await {
        assert!(snippet.to_lowercase().contains("needle"), "{snippet}");
    }
    assert_eq!(numbers(&store, search("needle?")).await, [1], "taken literally");
    assert_eq!(numbers(&store, search("absent")).await, [0u32; 0]);
    let name = MetadataPatch { name: Field::Set("The Needlework".into()), ..MetadataPatch::default() };
    store.update_thread_metadata(id(3), name, Archived::Excluded).await.expect("named");
    let mut named = numbers(&store, search("needle")).await;
    named.sort_unstable();
    assert_eq!(named, [1, 2, 3, 4], "a name is looked at, too");
}

/// Keys of JSON and what programs put into the model's input are not what was said.
pub async fn search_looks_in_what_was_said_only(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    let context = NewItem::model_message("user", "<environment_context>\nsecret\n</environment_context>");
    store.append_items(id(1), &[context]).await.expect("appended");
    store.append_items(id(1), &turn(mode, 1, "t1", "a \"quoted\" \\ text\nof lines", "b")).await.expect("appended");
    for (term, want) in [
        ("payload", vec![]),
        ("secret", vec![]),
        ("task_started", vec![]),
        ("\"quoted\"", vec![1]),
        ("\\ text", vec![1]),
        ("text\nof", vec![1]),
    ] {
        assert_eq!(numbers(&store, search(term)).await, want, "{term}");
    }
}

/// Active threads or archived ones.
pub async fn search_threads_selects_active_or_archived(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("needle", "x")]).await;
    told(&store, mode, 2, &[("needle", "x")]).await;
    drop(store);
    h.archive(id(2)).await;
    let store = h.reopen();
    assert_eq!(numbers(&store, search("needle")).await, [1]);
    assert_eq!(numbers(&store, SearchThreads { archived: true, ..search("needle") }).await, [2]);
}

/// What a fork took over is found in the thread where it was said.
pub async fn search_finds_inherited_text_where_it_was_said(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("needle", "x")]).await;
    later(&h.clock(), 1);
    let fork =
        |n| ForkThread { source: id(1), archived: Archived::Excluded, range: ForkRange::Whole, child: new(n, mode) };
    store.fork_thread(fork(2)).await.expect("forked");
    store.append_items(id(2), &turn(mode, 2, "t2", "thread", "y")).await.expect("appended");
    assert_eq!(numbers(&store, search("needle")).await, [1]);
    assert_eq!(numbers(&store, search("thread")).await, [2]);
    assert_eq!(places(&store, occurrences(2, "needle", 10)).await.len(), 1, "of one thread everything is searched");
}

/// What cannot be looked for is refused.
pub async fn searches_need_a_term_and_a_page(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("a", "b")]).await;
    let invalid = |text: &str| Refused::Invalid(text.into());
    assert_eq!(refused(store.search_threads(search("")).await), invalid("thread/search requires search_term"));
    let asked = store.search_thread_occurrences(occurrences(1, "", 1)).await;
    assert_eq!(refused(asked), invalid("thread/searchOccurrences requires search_term"));
    let asked = store.search_thread_occurrences(occurrences(1, "a", 0)).await;
    assert_eq!(refused(asked), invalid("thread/searchOccurrences requires page_size greater than zero"));
    assert_eq!(refused(store.search_thread_occurrences(occurrences(2, "a", 1)).await), no_rollout(2));
    for cursor in ["garbage", ""] {
        let bad = SearchThreads { cursor: Some(cursor.into()), ..search("a") };
        assert!(matches!(refused(store.search_threads(bad).await), Refused::Invalid(_)));
        let bad = SearchOccurrences { cursor: Some(cursor.into()), ..occurrences(1, "a", 1) };
        assert!(matches!(refused(store.search_thread_occurrences(bad).await), Refused::Invalid(_)));
    }
}

/// The places of one thread, in its order, each told once, with turn and speaker.
pub async fn occurrences_come_in_order_and_once(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let turns = [("the first needle", "no"), ("hay", "a NEEDLE at last"), ("needle?", "needle!")];
    told(&store, mode, 1, &turns).await;
    let want =
        [("t1", 1, Speaker::User), ("t2", 2, Speaker::Agent), ("t3", 3, Speaker::User), ("t3", 3, Speaker::Agent)];
    for page_size in [1, 2, 3, 100] {
        let found = places(&store, occurrences(1, "needle", page_size)).await;
        let told: Vec<_> =
            found.iter().map(|o| (o.turn_id.as_deref().unwrap_or(""), o.turn_number.unwrap_or(0), o.speaker)).collect();
        assert_eq!(told, want, "pages of {page_size}");
        for o in &found {
            let [from, to] = o.matched;
            let text: String = o.snippet.chars().skip(from).take(to - from).collect();
            assert_eq!(text.to_lowercase(), "needle");
            assert!(o.time.is_some());
        }
    }
}

/// What was said in a turn that was taken back is found, and has no number.
pub async fn occurrences_in_turns_taken_back_have_no_number(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("first needle", "x"), ("second needle", "y")]).await;
    store.resume_thread(again(1)).await.expect("resumed");
    store.append_items(id(1), &[roll_back(1)]).await.expect("appended");
    store.append_items(id(1), &turn(mode, 1, "t3", "third needle", "z")).await.expect("appended");
    let found = places(&store, occurrences(1, "needle", 2)).await;
    assert_eq!(found.iter().map(|o| o.turn_number).collect::<Vec<_>>(), [Some(1), None, Some(2)]);
}
