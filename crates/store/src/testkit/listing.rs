//! Lists of threads.

use serde_json::json;
use threadkeep_record::{Field, HistoryMode, MetadataPatch};

use super::StoreHarness;
use super::talk::{Refused, Store, again, id, later, new, refused, says, told, turn};
use crate::params::{Archived, ListThreads, Relation};
use crate::stored::{EdgeStatus, SpawnEdge};
use crate::{Direction, SortKey};

/// A list of everything that is not archived.
pub(super) fn everything() -> ListThreads {
    ListThreads { page_size: 100, ..ListThreads::default() }
}

/// The numbers of the threads that a list gives, over all pages.
async fn listed(store: &Store, mut params: ListThreads) -> Vec<u32> {
    let mut found = Vec::new();
    for _ in 0..1000 {
        let page = store.list_threads(params.clone()).await.expect("a page");
        assert!(page.threads.len() <= params.page_size.max(1));
        assert!(page.next_cursor.is_none() || !page.threads.is_empty(), "a page before the end has threads");
        found.extend(page.threads.iter().map(|t| number(t.thread_id)));
        params.cursor = page.next_cursor;
        if params.cursor.is_none() {
            return found;
        }
    }
    panic!("a list without an end");
}

pub(super) fn number(thread_id: threadkeep_record::ThreadId) -> u32 {
    let text = thread_id.to_string();
    text.rsplit('-').next().and_then(|n| n.parse().ok()).expect("one of our ids")
}

/// Five threads, a second apart: made 1 to 5, last turn begun in 2, 1, 5, 4, 3, last written 3, 5, 1, 2, 4.
async fn five(h: &dyn StoreHarness, mode: HistoryMode) -> Store {
    let store = h.open();
    for n in 1..=5 {
        later(&h.clock(), 1);
        let mut params = new(n, mode);
        params.created_at = Some(crate::Clock::now(&*h.clock()));
        store.create_thread(params).await.expect("created");
        store.append_items(id(n), &[says(mode, n, &format!("thread {n}"))]).await.expect("appended");
    }
    for n in [2, 1, 5, 4, 3] {
        later(&h.clock(), 1);
        store.append_items(id(n), &turn(mode, n, "t", "a", "b")).await.expect("appended");
    }
    for n in [3, 5, 1, 2, 4] {
        later(&h.clock(), 1);
        let output = threadkeep_record::NewItem::model_message("assistant", "more");
        store.append_items(id(n), &[output]).await.expect("appended");
        store.shutdown_thread(id(n)).await.expect("closed");
    }
    store
}

/// Each order, from both ends, whole and by page.
pub async fn list_threads_orders_and_pages(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = five(h, mode).await;
    for (sort_key, oldest_first) in
        [(SortKey::Created, [1, 2, 3, 4, 5]), (SortKey::Recency, [2, 1, 5, 4, 3]), (SortKey::Updated, [3, 5, 1, 2, 4])]
    {
        for page_size in [0, 1, 2, 3, 5, 100] {
            let list = |direction| ListThreads { sort_key, direction, page_size, ..everything() };
            assert_eq!(listed(&store, list(Direction::Ascending)).await, oldest_first, "{sort_key:?} {page_size}");
            let mut newest_first = oldest_first;
            newest_first.reverse();
            assert_eq!(listed(&store, list(Direction::Descending)).await, newest_first, "{sort_key:?} {page_size}");
        }
    }
}

/// Threads of one time are ordered by id, and none is lost between two pages.
pub async fn cursors_include_the_thread_id_as_tie_breaker(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let created = crate::Clock::now(&*h.clock());
    for n in [4, 2, 5, 1, 3] {
        let mut params = new(n, mode);
        params.created_at = Some(created);
        store.create_thread(params).await.expect("created");
        store.append_items(id(n), &[says(mode, n, "hello")]).await.expect("appended");
        store.shutdown_thread(id(n)).await.expect("closed");
    }
    let list = |page_size| ListThreads { sort_key: SortKey::Created, page_size, ..everything() };
    let whole = listed(&store, list(100)).await;
    let mut sorted = whole.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [1, 2, 3, 4, 5]);
    for page_size in 1..=4 {
        assert_eq!(listed(&store, list(page_size)).await, whole, "pages of {page_size}");
    }
}

/// A cursor carries sort and filters: it goes on as it began.
pub async fn cursors_carry_their_sort_and_filters(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = five(h, mode).await;
    let first = ListThreads {
        sort_key: SortKey::Created,
        direction: Direction::Ascending,
        page_size: 2,
        search_term: Some("thread".into()),
        ..everything()
    };
    let page = store.list_threads(first).await.expect("a page");
    let on = ListThreads { cursor: page.next_cursor, page_size: 2, ..ListThreads::default() };
    assert_eq!(listed(&store, on).await, [3, 4, 5]);
}

/// A text that is no cursor is refused as such.
pub async fn list_threads_rejects_invalid_cursor(h: &dyn StoreHarness, _mode: HistoryMode) {
    let store = h.open();
    for bad in ["garbage", "", "e30"] {
        let params = ListThreads { cursor: Some(bad.into()), ..everything() };
        match refused(store.list_threads(params).await) {
            Refused::Invalid(message) => assert!(message.starts_with("invalid cursor: "), "{message}"),
            refusal => panic!("{refusal:?}"),
        }
    }
}

/// Threads that are written to while a list is paged are still given, and once.
pub async fn threads_that_move_between_pages_are_given_once(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = five(h, mode).await;
    for direction in [Direction::Descending, Direction::Ascending] {
        let list = ListThreads { page_size: 2, direction, ..everything() };
        let first = store.list_threads(list.clone()).await.expect("a page");
        let mut given: Vec<u32> = first.threads.iter().map(|t| number(t.thread_id)).collect();
        // One that was given and one that was not.
        let not_given = (1..=5).find(|n| !given.contains(n)).expect("another");
        for n in [given[0], not_given] {
            later(&h.clock(), 1);
            store.resume_thread(again(n)).await.expect("resumed");
            store.append_items(id(n), &[says(mode, n, "again")]).await.expect("appended");
            store.shutdown_thread(id(n)).await.expect("closed");
        }
        given.extend(listed(&store, ListThreads { cursor: first.next_cursor, ..list }).await);
        given.sort_unstable();
        assert_eq!(given, [1, 2, 3, 4, 5], "{direction:?}");
    }
}

/// Active threads or archived ones.
pub async fn list_threads_selects_active_or_archived(h: &dyn StoreHarness, mode: HistoryMode) {
    drop(five(h, mode).await);
    h.archive(id(2)).await;
    h.archive(id(4)).await;
    let store = h.reopen();
    let list = |archived| ListThreads { archived, sort_key: SortKey::Created, ..everything() };
    assert_eq!(listed(&store, list(false)).await, [5, 3, 1]);
    assert_eq!(listed(&store, list(true)).await, [4, 2]);
    let page = store.list_threads(list(true)).await.expect("a page");
    assert!(page.threads.iter().all(|t| t.archived));
}

/// By source, provider and directory, each alone.
pub async fn list_threads_filters_by_facts(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    let sources = [json!("cli"), json!("exec"), json!({"subagent": "review"}), json!("vscode")];
    for (n, source) in (1..).zip(sources) {
        let mut params = new(n, mode);
        params.source = source;
        params.metadata.model_provider = Some(if n < 3 { "one" } else { "two" }.into());
        params.metadata.cwd = Some(if n % 2 == 0 { "/work/even" } else { "/work/odd" }.into());
        later(&h.clock(), 1);
        store.create_thread(params).await.expect("created");
        store.append_items(id(n), &[says(mode, n, "hello")]).await.expect("appended");
        store.shutdown_thread(id(n)).await.expect("closed");
    }
    let texts = |t: &[&str]| t.iter().map(|t| (*t).to_owned()).collect::<Vec<String>>();
    let sources = |s: &[&str]| ListThreads { allowed_sources: texts(s), ..everything() };
    let providers = |p: &[&str]| ListThreads { model_providers: Some(texts(p)), ..everything() };
    let dirs = |d: &[&str]| ListThreads { cwd_filters: Some(d.iter().map(Into::into).collect()), ..everything() };
    for (params, want) in [
        (everything(), vec![4, 3, 2, 1]),
        (sources(&["cli"]), vec![1]),
        (sources(&["exec", "vscode"]), vec![4, 2]),
        (sources(&["subagent"]), vec![3]),
        (sources(&["nothing"]), vec![]),
        (providers(&["two"]), vec![4, 3]),
        (providers(&["one", "two"]), vec![4, 3, 2, 1]),
        (providers(&[]), vec![4, 3, 2, 1]),
        (providers(&["three"]), vec![]),
        (dirs(&["/work/even"]), vec![4, 2]),
        (dirs(&["/work/even/", "/work/./odd"]), vec![4, 3, 2, 1]),
        (dirs(&["/work"]), vec![]),
        (dirs(&[]), vec![]),
        (ListThreads { cwd_filters: Some(vec!["/work/odd".into()]), ..providers(&["two"]) }, vec![3]),
    ] {
        assert_eq!(listed(&store, params.clone()).await, want, "{params:?}");
    }
}

/// A term is looked for in names and previews, not in what else was said.
pub async fn list_threads_searches_names_and_previews(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &[("find the needle", "yes"), ("and more", "needle-free")]).await;
    later(&h.clock(), 1);
    told(&store, mode, 2, &[("hay", "the needle is in the answer only")]).await;
    later(&h.clock(), 1);
    told(&store, mode, 3, &[("stack", "no")]).await;
    let name = MetadataPatch { name: Field::Set("named needle".into()), ..MetadataPatch::default() };
    store.update_thread_metadata(id(3), name, Archived::Excluded).await.expect("named");
    let list = |term: &str| ListThreads { search_term: Some(term.into()), ..everything() };
    assert_eq!(listed(&store, list("needle")).await, [3, 1]);
    assert_eq!(listed(&store, list("absent")).await, [0u32; 0]);
}

/// A goal stands for a thread in which nothing was said.
pub async fn list_threads_uses_goal_objective_as_preview(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(1, mode)).await.expect("created");
    let goal = json!({"threadId": id(1), "objective": "win the race", "status": "active"});
    let goal = super::talk::event(json!({"type": "thread_goal_updated", "threadId": id(1), "goal": goal}));
    store.append_items(id(1), &[goal]).await.expect("appended");
    store.shutdown_thread(id(1)).await.expect("closed");
    let page = store.list_threads(everything()).await.expect("a page");
    assert_eq!(page.threads.iter().map(|t| t.preview.as_str()).collect::<Vec<_>>(), ["win the race"]);
}

/// The rows of a list say what a read says.
pub async fn list_rows_are_as_complete_as_reads(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = five(h, mode).await;
    let name = MetadataPatch { name: Field::Set("name".into()), ..MetadataPatch::default() };
    store.update_thread_metadata(id(2), name, Archived::Excluded).await.expect("named");
    for row in store.list_threads(everything()).await.expect("a page").threads {
        let read = store.read_thread(row.thread_id, Archived::Excluded, crate::WithHistory::No).await.expect("read");
        assert_eq!(row, read);
    }
}

/// Children and descendants of a thread, by page.
pub async fn list_threads_by_relation_pages_the_spawn_graph(h: &dyn StoreHarness, mode: HistoryMode) {
    // A store without any index has nowhere to keep edges that no header tells.
    if !h.keeps_metadata() {
        return;
    }
    let store = five(h, mode).await;
    for (parent, child) in [(1, 2), (1, 4), (2, 3), (3, 5), (5, 1)] {
        let edge = SpawnEdge { parent: id(parent), child: id(child), status: EdgeStatus::Open };
        store.upsert_spawn_edge(edge).await.expect("kept");
    }
    for page_size in [1, 2, 100] {
        let list = |relation| ListThreads {
            relation: Some(relation),
            sort_key: SortKey::Created,
            direction: Direction::Ascending,
            page_size,
            ..everything()
        };
        assert_eq!(listed(&store, list(Relation::ChildrenOf(id(1)))).await, [2, 4]);
        assert_eq!(listed(&store, list(Relation::DescendantsOf(id(1)))).await, [2, 3, 4, 5], "a cycle ends");
        assert_eq!(listed(&store, list(Relation::DescendantsOf(id(3)))).await, [1, 2, 4, 5]);
        assert_eq!(listed(&store, list(Relation::ChildrenOf(id(4)))).await, [0u32; 0]);
    }
}
