//! Archiving, unarchiving and deleting.

use threadkeep_record::{Field, HistoryMode, MetadataPatch};

use super::StoreHarness;
use super::listing::{everything, number};
use super::talk::{Refused, Store, again, begun, history, id, later, new, no_rollout, refused, told, turn, turns};
use crate::params::{Archived, ForkRange, ForkThread, ListThreads, Relation, SearchThreads, WithHistory};
use crate::stored::{EdgeStatus, SpawnEdge, StoredThread, ThreadOutcome};

const TWO: [(&str, &str); 2] = [("the needle", "first"), ("two", "second")];

/// The numbers of the threads that a list gives, smallest first.
async fn listed(store: &Store, archived: bool) -> Vec<u32> {
    let page = store.list_threads(ListThreads { archived, ..everything() }).await.expect("a list");
    let mut found: Vec<u32> = page.threads.iter().map(|t| number(t.thread_id)).collect();
    found.sort_unstable();
    found
}

/// The numbers of the threads in which the needle was said.
async fn hits(store: &Store, archived: bool) -> Vec<u32> {
    let params = SearchThreads { search_term: "needle".into(), page_size: 100, cursor: None, archived };
    let page = store.search_threads(params).await.expect("a search");
    let mut found: Vec<u32> = page.hits.iter().map(|h| number(h.thread.thread_id)).collect();
    found.sort_unstable();
    found
}

/// What a read says, but for where the rollout is and since when it is archived.
async fn read(store: &Store, n: u32, archived: Archived) -> StoredThread {
    let mut thread = store.read_thread(id(n), archived, WithHistory::Yes).await.expect("a thread");
    thread.rollout_path = None;
    thread.archived_at = None;
    thread
}

async fn name(store: &Store, n: u32, name: &str) {
    let patch = MetadataPatch { name: Field::Set(name.into()), ..MetadataPatch::default() };
    store.update_thread_metadata(id(n), patch, Archived::Excluded).await.expect("named");
}

async fn spawn(store: &Store, parent: u32, child: u32) {
    let edge = SpawnEdge { parent: id(parent), child: id(child), status: EdgeStatus::Open };
    store.upsert_spawn_edge(edge).await.expect("kept");
}

/// The children of a thread.
async fn children(store: &Store, n: u32) -> Vec<u32> {
    let edges = store.list_spawn_edges(Relation::ChildrenOf(id(n)), None).await.expect("edges");
    edges.into_iter().map(|e| number(e.child)).collect()
}

async fn fork(store: &Store, mode: HistoryMode, source: u32, child: u32) {
    let (archived, range) = (Archived::Included, ForkRange::Whole);
    let params = ForkThread { source: id(source), archived, range, child: new(child, mode) };
    store.fork_thread(params).await.expect("forked");
    store.shutdown_thread(id(child)).await.expect("closed");
}

fn not_archived(n: u32) -> Refused {
    Refused::Invalid(format!("no archived rollout found for thread id {}", id(n)))
}

#[track_caller]
fn is_written<T: std::fmt::Debug>(result: crate::contract::StoreResult<T>, n: u32) {
    let Refused::Conflict(text) = refused(result) else { panic!("no conflict") };
    assert!(text.starts_with(&format!("thread {} already has an active writer", id(n))), "{text}");
}

fn still_referred(n: u32) -> Refused {
    Refused::Invalid(format!("cannot delete thread {}: forked history still references it", id(n)))
}

/// A thread is put away with all that is kept of it, and comes back the same.
pub async fn archive_and_unarchive_move_a_thread(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    for n in 1..=2 {
        told(&store, mode, n, &TWO).await;
    }
    name(&store, 1, "the name").await;
    let (was, other) = (read(&store, 1, Archived::Excluded).await, read(&store, 2, Archived::Excluded).await);
    later(&h.clock(), 60);
    store.archive_thread(id(1)).await.expect("archived");
    for store in [store.clone(), h.reopen()] {
        let archived = Refused::Invalid(format!("thread {} is archived", id(1)));
        assert_eq!(refused(store.read_thread(id(1), Archived::Excluded, WithHistory::No).await), archived);
        assert_eq!(refused(store.load_history(id(1), Archived::Excluded).await), archived);
        assert_eq!(refused(store.resume_thread(again(1)).await), archived);
        assert_eq!(read(&store, 1, Archived::Included).await, StoredThread { archived: true, ..was.clone() });
        assert_eq!((listed(&store, false).await, listed(&store, true).await), (vec![2], vec![1]));
        assert_eq!((hits(&store, false).await, hits(&store, true).await), (vec![2], vec![1]));
        assert_eq!(read(&store, 2, Archived::Excluded).await, other);
    }
    later(&h.clock(), 60);
    let mut back = store.unarchive_thread(id(1)).await.expect("unarchived");
    (back.rollout_path, back.history) = (None, was.history.clone());
    assert_eq!(back, was);
    for store in [store.clone(), h.reopen()] {
        assert_eq!(read(&store, 1, Archived::Excluded).await, was);
        assert_eq!((listed(&store, false).await, listed(&store, true).await), (vec![1, 2], vec![]));
        assert_eq!((hits(&store, false).await, hits(&store, true).await), (vec![1, 2], vec![]));
    }
    store.resume_thread(again(1)).await.expect("resumed");
    store.append_items(id(1), &turn(mode, 1, "t3", "three", "third")).await.expect("appended");
    store.shutdown_thread(id(1)).await.expect("closed");
    assert_eq!(turns(&h.reopen(), 1).await.len(), 3);
}

/// A thread that is not there, and one that is where it should go.
pub async fn archive_and_unarchive_refuse_threads_that_are_elsewhere(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    assert_eq!(refused(store.archive_thread(id(1)).await), no_rollout(1));
    assert_eq!(refused(store.unarchive_thread(id(1)).await), not_archived(1));
    told(&store, mode, 1, &TWO).await;
    assert_eq!(refused(store.unarchive_thread(id(1)).await), not_archived(1));
    store.archive_thread(id(1)).await.expect("archived");
    for store in [store.clone(), h.reopen()] {
        assert_eq!(refused(store.archive_thread(id(1)).await), no_rollout(1));
    }
    store.unarchive_thread(id(1)).await.expect("unarchived");
    assert_eq!(refused(h.reopen().unarchive_thread(id(1)).await), not_archived(1));
    assert_eq!(listed(&store, false).await, [1]);
}

/// A thread that anyone writes stays where it is.
pub async fn archive_and_unarchive_refuse_threads_that_are_written(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    store.create_thread(new(2, mode)).await.expect("created");
    let unmade = refused(store.archive_thread(id(2)).await);
    assert!(matches!(unmade, Refused::Invalid(_) | Refused::Conflict(_)), "{unmade:?}");
    assert_eq!(refused(store.unarchive_thread(id(2)).await), not_archived(2));
    told(&store, mode, 1, &TWO).await;
    store.resume_thread(again(1)).await.expect("resumed");
    for store in [store.clone(), h.reopen()] {
        is_written(store.archive_thread(id(1)).await, 1);
        assert_eq!(listed(&store, false).await, [1]);
    }
    store.append_items(id(1), &turn(mode, 1, "t3", "three", "third")).await.expect("the writer is still there");
    store.shutdown_thread(id(1)).await.expect("closed");
    store.archive_thread(id(1)).await.expect("archived");
    let params = crate::params::ResumeThread { archived: Archived::Included, ..again(1) };
    store.resume_thread(params).await.expect("continued where it is");
    for store in [store.clone(), h.reopen()] {
        is_written(store.unarchive_thread(id(1)).await, 1);
        assert_eq!(listed(&store, true).await, [1]);
    }
    store.shutdown_thread(id(1)).await.expect("closed");
    h.reopen().unarchive_thread(id(1)).await.expect("unarchived");
    assert_eq!(turns(&store, 1).await.len(), 3);
}

/// Nothing is left of a deleted thread, and others are as they were.
pub async fn delete_removes_all_of_a_thread(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    for n in 1..=3 {
        told(&store, mode, n, &TWO).await;
        name(&store, n, &format!("the name {n}")).await;
    }
    store.archive_thread(id(2)).await.expect("archived");
    let other = read(&store, 3, Archived::Excluded).await;
    for n in [1, 2] {
        store.delete_thread(id(n)).await.expect("deleted");
        for store in [store.clone(), h.reopen()] {
            for archived in [Archived::Excluded, Archived::Included] {
                assert_eq!(refused(store.read_thread(id(n), archived, WithHistory::No).await), no_rollout(n));
                assert_eq!(refused(store.load_history(id(n), archived).await), no_rollout(n));
            }
            let renamed = store.update_thread_metadata(
                id(n),
                MetadataPatch { name: Field::Set("again".into()), ..MetadataPatch::default() },
                Archived::Included,
            );
            assert_eq!(refused(renamed.await), Refused::Invalid(format!("thread not found: {}", id(n))));
            assert_eq!(refused(store.resume_thread(again(n)).await), no_rollout(n));
            assert_eq!(store.stored_metadata(id(n)).await.expect("an answer"), None);
            assert_eq!(refused(store.delete_thread(id(n)).await), Refused::NotFound);
            assert_eq!(refused(store.archive_thread(id(n)).await), no_rollout(n));
            assert_eq!(refused(store.unarchive_thread(id(n)).await), not_archived(n));
        }
    }
    for store in [store.clone(), h.reopen()] {
        assert_eq!((listed(&store, false).await, listed(&store, true).await), (vec![3], vec![]));
        assert_eq!((hits(&store, false).await, hits(&store, true).await), (vec![3], vec![]));
        assert_eq!(read(&store, 3, Archived::Excluded).await, other);
    }
    // Another thread of the same id has nothing of it.
    told(&store, mode, 1, &[("anew", "x")]).await;
    for store in [store, h.reopen()] {
        let thread = read(&store, 1, Archived::Excluded).await;
        assert_eq!((thread.name, thread.preview.as_str()), (None, "anew"));
        assert_eq!(hits(&store, false).await, [3]);
    }
}

/// What was never there cannot be deleted.
pub async fn delete_thread_reports_missing_thread(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &TWO).await;
    assert_eq!(refused(store.delete_thread(id(2)).await), Refused::NotFound);
    assert_eq!(listed(&store, false).await, [1]);
}

/// A writer of the same store goes with its thread; one of another store keeps it.
pub async fn delete_drops_the_own_writer(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &TWO).await;
    store.resume_thread(again(1)).await.expect("resumed");
    store.append_items(id(1), &begun(mode, 1, "t3", "three")).await.expect("appended");
    is_written(h.reopen().delete_thread(id(1)).await, 1);
    store.append_items(id(1), &begun(mode, 1, "t4", "four")).await.expect("it is still written");
    assert_eq!(turns(&h.reopen(), 1).await.len(), 4);
    store.delete_thread(id(1)).await.expect("deleted");
    assert_eq!(refused(store.append_items(id(1), &begun(mode, 1, "t5", "five")).await), Refused::NotFound);
    assert_eq!(refused(store.flush_thread(id(1)).await), Refused::NotFound);
    assert_eq!(refused(h.reopen().load_history(id(1), Archived::Included).await), no_rollout(1));
    // One that is not there yet is only a writer.
    store.create_thread(new(2, mode)).await.expect("created");
    assert_eq!(refused(h.reopen().delete_thread(id(2)).await), Refused::NotFound);
    store.delete_thread(id(2)).await.expect("deleted");
    assert_eq!(refused(store.persist_thread(id(2)).await), Refused::NotFound);
    assert_eq!(refused(store.delete_thread(id(2)).await), Refused::NotFound);
    assert_eq!(listed(&h.reopen(), false).await, [0u32; 0]);
    store.create_thread(new(1, mode)).await.expect("the id is free");
}

/// A thread whose records another history continues cannot be deleted; one whose records were copied can.
pub async fn delete_refuses_what_forks_need(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &TWO).await;
    fork(&store, mode, 1, 2).await;
    fork(&store, mode, 2, 3).await;
    let (second, third) = (history(&store, 2).await, history(&store, 3).await);
    if mode == HistoryMode::Legacy {
        for n in [1, 2] {
            store.delete_thread(id(n)).await.expect("deleted");
        }
        assert_eq!(history(&h.reopen(), 3).await, third, "it has copies");
        return;
    }
    // Archived or not, the fork needs it, and so does the fork of the fork.
    store.archive_thread(id(2)).await.expect("archived");
    store.resume_thread(again(1)).await.expect("resumed");
    for n in [1, 2] {
        assert_eq!(refused(store.delete_thread(id(n)).await), still_referred(n));
    }
    store.append_items(id(1), &turn(mode, 1, "t3", "x", "y")).await.expect("its writer is still there");
    store.shutdown_thread(id(1)).await.expect("closed");
    let loaded = h.reopen().load_history(id(2), Archived::Included).await.expect("a history");
    assert_eq!((loaded, history(&h.reopen(), 3).await), (second, third.clone()));
    assert_eq!((listed(&store, false).await, listed(&store, true).await), (vec![1, 3], vec![2]));
    // An archived source still serves its forks.
    store.archive_thread(id(1)).await.expect("archived");
    assert_eq!(history(&h.reopen(), 3).await, third);
    for n in [3, 2, 1] {
        store.delete_thread(id(n)).await.expect("nobody needs it any more");
    }
    assert_eq!((listed(&h.reopen(), false).await, listed(&h.reopen(), true).await), (vec![], vec![]));
}

/// All rollouts of a reverted thread are moved and removed together.
pub async fn reverted_threads_are_moved_whole(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    told(&store, mode, 1, &TWO).await;
    fork(&store, mode, 1, 2).await;
    let taken_over = history(&store, 2).await;
    store.revert_thread(id(1), "t2".into()).await.expect("reverted");
    let was = read(&store, 1, Archived::Excluded).await;
    store.archive_thread(id(1)).await.expect("archived");
    assert_eq!(read(&h.reopen(), 1, Archived::Included).await, StoredThread { archived: true, ..was.clone() });
    assert_eq!((listed(&h.reopen(), false).await, listed(&h.reopen(), true).await), (vec![2], vec![1]));
    assert_eq!(history(&h.reopen(), 2).await, taken_over);
    store.unarchive_thread(id(1)).await.expect("unarchived");
    assert_eq!(read(&h.reopen(), 1, Archived::Excluded).await, was);
    if mode == HistoryMode::Paginated {
        // The fork needs the rollout that the thread itself has left behind.
        assert_eq!(refused(store.delete_thread(id(1)).await), still_referred(1));
    }
    store.delete_thread(id(2)).await.expect("deleted");
    store.delete_thread(id(1)).await.expect("its own rollouts need it, no other");
    assert_eq!(listed(&h.reopen(), false).await, [0u32; 0]);
    told(&store, mode, 1, &[("anew", "x")]).await;
    assert_eq!(turns(&h.reopen(), 1).await.len(), 1);
}

/// Threads that were spawned stay when their parent goes; edges stay with threads that are archived, and go with those
/// that are deleted.
pub async fn children_outlive_their_parents(h: &dyn StoreHarness, mode: HistoryMode) {
    // A store without any index has nowhere to keep who spawned whom.
    if !h.keeps_metadata() {
        return;
    }
    let store = h.open();
    for n in 1..=5 {
        let mut params = new(n, mode);
        // One edge is told by the header alone.
        params.parent_thread_id = (n == 2).then(|| id(1));
        store.create_thread(params).await.expect("created");
        store.append_items(id(n), &turn(mode, n, "t1", "a", "b")).await.expect("appended");
        store.shutdown_thread(id(n)).await.expect("closed");
    }
    for (parent, child) in [(1, 3), (3, 4), (4, 5)] {
        spawn(&store, parent, child).await;
    }
    store.archive_thread(id(1)).await.expect("archived");
    store.archive_thread(id(3)).await.expect("archived");
    for store in [store.clone(), h.reopen()] {
        assert_eq!((children(&store, 1).await, children(&store, 3).await), (vec![2, 3], vec![4]));
    }
    for n in [1, 3] {
        store.unarchive_thread(id(n)).await.expect("unarchived");
    }
    assert_eq!((children(&store, 1).await, children(&store, 3).await), (vec![2, 3], vec![4]));
    store.delete_thread(id(3)).await.expect("deleted");
    for store in [store.clone(), h.reopen()] {
        assert_eq!((children(&store, 1).await, children(&store, 3).await), (vec![2], vec![]));
        assert_eq!(children(&store, 4).await, [5]);
        let below = store.list_spawn_edges(Relation::DescendantsOf(id(1)), None).await.expect("edges");
        assert_eq!(below.into_iter().map(|e| number(e.child)).collect::<Vec<_>>(), [2]);
    }
    store.delete_thread(id(1)).await.expect("deleted");
    for store in [store.clone(), h.reopen()] {
        assert_eq!(children(&store, 1).await, [0u32; 0]);
        assert_eq!(listed(&store, false).await, [2, 4, 5]);
        let child = read(&store, 2, Archived::Excluded).await;
        assert_eq!(child.parent_thread_id, Some(id(1)), "its records say the same as before");
    }
}

/// What another store on the same threads did is seen at once.
pub async fn two_stores_see_each_other_s_moves(h: &dyn StoreHarness, mode: HistoryMode) {
    let (one, other) = (h.open(), h.reopen());
    told(&one, mode, 1, &TWO).await;
    assert_eq!(listed(&other, false).await, [1]);
    one.archive_thread(id(1)).await.expect("archived");
    assert_eq!((listed(&other, false).await, listed(&other, true).await), (vec![], vec![1]));
    assert_eq!(refused(other.archive_thread(id(1)).await), no_rollout(1));
    other.unarchive_thread(id(1)).await.expect("unarchived");
    one.resume_thread(again(1)).await.expect("resumed");
    one.append_items(id(1), &turn(mode, 1, "t3", "x", "y")).await.expect("appended");
    one.shutdown_thread(id(1)).await.expect("closed");
    other.revert_thread(id(1), "t2".into()).await.expect("reverted");
    assert_eq!(turns(&one, 1).await.len(), 1);
    one.resume_thread(again(1)).await.expect("resumed");
    one.append_items(id(1), &turn(mode, 1, "t4", "x", "y")).await.expect("appended");
    one.shutdown_thread(id(1)).await.expect("closed");
    assert_eq!(turns(&other, 1).await.len(), 2);
    other.delete_thread(id(1)).await.expect("deleted");
    assert_eq!(refused(one.read_thread(id(1), Archived::Included, WithHistory::No).await), no_rollout(1));
    assert_eq!(refused(one.delete_thread(id(1)).await), Refused::NotFound);
    assert_eq!(listed(&one, false).await, [0u32; 0]);
}

/// The outcomes of several threads: which they are, and how each was refused.
fn outcomes(outcomes: Vec<ThreadOutcome>) -> Vec<(u32, Option<Refused>)> {
    let one = |o: ThreadOutcome| (number(o.thread_id), o.result.is_err().then(|| refused(o.result)));
    outcomes.into_iter().map(one).collect()
}

/// Several threads at once: each by itself, whatever becomes of the others.
pub async fn several_threads_are_changed_one_by_one(h: &dyn StoreHarness, mode: HistoryMode) {
    let store = h.open();
    assert_eq!(outcomes(store.archive_threads(&[]).await), []);
    for n in 1..=4 {
        told(&store, mode, n, &TWO).await;
    }
    store.resume_thread(again(3)).await.expect("resumed");
    let ids = [1, 9, 3, 2, 1].map(id);
    let done = outcomes(store.archive_threads(&ids).await);
    assert_eq!(done.iter().map(|(n, _)| *n).collect::<Vec<_>>(), [1, 9, 3, 2, 1]);
    assert_eq!((&done[0].1, &done[1].1), (&None, &Some(no_rollout(9))));
    assert!(matches!(done[2].1, Some(Refused::Conflict(_))), "{done:?}");
    assert_eq!((&done[3].1, &done[4].1), (&None, &Some(no_rollout(1))));
    for store in [store.clone(), h.reopen()] {
        assert_eq!((listed(&store, false).await, listed(&store, true).await), (vec![3, 4], vec![1, 2]));
    }
    let done = outcomes(store.unarchive_threads(&[4, 2].map(id)).await);
    assert_eq!(done, [(4, Some(not_archived(4))), (2, None)]);
    store.shutdown_thread(id(3)).await.expect("closed");
    fork(&store, mode, 4, 5).await;
    let done = outcomes(store.delete_threads(&[4, 9, 5, 4, 1].map(id)).await);
    // The fork goes with its source, in whatever order they are named; what is named again is gone.
    assert_eq!(done, [(4, None), (9, Some(Refused::NotFound)), (5, None), (4, Some(Refused::NotFound)), (1, None)]);
    for store in [store, h.reopen()] {
        assert_eq!((listed(&store, false).await, listed(&store, true).await), (vec![2, 3], vec![]));
    }
}
