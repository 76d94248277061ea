//! Who spawned whom.

use threadkeep_record::HistoryMode;

use super::StoreHarness;
use super::listing::number;
use super::talk::{Store, id, told};
use crate::params::Relation;
use crate::stored::{EdgeStatus, SpawnEdge};

async fn spawn(store: &Store, parent: u32, child: u32, status: EdgeStatus) {
    store.upsert_spawn_edge(SpawnEdge { parent: id(parent), child: id(child), status }).await.expect("kept");
}

/// Parent, child and status of the edges of a relation.
async fn edges(store: &Store, relation: Relation, status: Option<EdgeStatus>) -> Vec<(u32, u32, EdgeStatus)> {
    let edges = store.list_spawn_edges(relation, status).await.expect("edges");
    edges.into_iter().map(|e| (number(e.parent), number(e.child), e.status)).collect()
}

/// Threads for all the numbers, so that a store that looks for them finds them.
async fn store_of(h: &dyn StoreHarness, mode: HistoryMode, threads: u32) -> Option<Store> {
    // A store without any index has nowhere to keep who spawned whom.
    if !h.keeps_metadata() {
        return None;
    }
    let store = h.open();
    for n in 1..=threads {
        told(&store, mode, n, &[("a", "b")]).await;
    }
    Some(store)
}

/// Children by id, with a filter by status; also for another process.
pub async fn spawn_edges_list_direct_children_with_status_filters(h: &dyn StoreHarness, mode: HistoryMode) {
    use EdgeStatus::{Closed, Open};
    let Some(store) = store_of(h, mode, 4).await else { return };
    for (child, status) in [(4, Open), (2, Closed), (3, Open)] {
        spawn(&store, 1, child, status).await;
    }
    for store in [store, h.reopen()] {
        let children = Relation::ChildrenOf(id(1));
        assert_eq!(edges(&store, children, None).await, [(1, 2, Closed), (1, 3, Open), (1, 4, Open)]);
        assert_eq!(edges(&store, children, Some(Open)).await, [(1, 3, Open), (1, 4, Open)]);
        assert_eq!(edges(&store, children, Some(Closed)).await, [(1, 2, Closed)]);
        assert_eq!(edges(&store, Relation::ChildrenOf(id(2)), None).await, []);
    }
}

/// The status changes; of a thread that is not known it does not.
pub async fn spawn_edge_status_is_updated(h: &dyn StoreHarness, mode: HistoryMode) {
    use EdgeStatus::{Closed, Open};
    let Some(store) = store_of(h, mode, 2).await else { return };
    spawn(&store, 1, 2, Open).await;
    store.set_spawn_edge_status(id(2), Closed).await.expect("set");
    assert_eq!(edges(&store, Relation::ChildrenOf(id(1)), None).await, [(1, 2, Closed)]);
    store.set_spawn_edge_status(id(9), Closed).await.expect("nothing to do");
    assert_eq!(edges(&store, Relation::DescendantsOf(id(1)), None).await, [(1, 2, Closed)]);
    store.set_spawn_edge_status(id(2), Open).await.expect("set");
    assert_eq!(edges(&store, Relation::ChildrenOf(id(1)), Some(Open)).await, [(1, 2, Open)]);
}

/// A thread has one parent; another replaces it.
pub async fn spawn_edges_have_one_parent_per_child(h: &dyn StoreHarness, mode: HistoryMode) {
    use EdgeStatus::{Closed, Open};
    let Some(store) = store_of(h, mode, 3).await else { return };
    spawn(&store, 1, 3, Open).await;
    spawn(&store, 2, 3, Closed).await;
    assert_eq!(edges(&store, Relation::ChildrenOf(id(1)), None).await, []);
    assert_eq!(edges(&store, Relation::ChildrenOf(id(2)), None).await, [(2, 3, Closed)]);
}

/// Breadth first, then by id; an edge that is left out hides what is below it.
pub async fn spawn_edges_list_descendants_breadth_first(h: &dyn StoreHarness, mode: HistoryMode) {
    use EdgeStatus::{Closed, Open};
    let Some(store) = store_of(h, mode, 7).await else { return };
    for (parent, child, status) in
        [(1, 3, Open), (1, 2, Closed), (2, 7, Open), (3, 6, Open), (3, 5, Closed), (6, 4, Open)]
    {
        spawn(&store, parent, child, status).await;
    }
    let below = Relation::DescendantsOf(id(1));
    let all: Vec<u32> = edges(&store, below, None).await.into_iter().map(|(_, child, _)| child).collect();
    assert_eq!(all, [2, 3, 5, 6, 7, 4]);
    assert_eq!(edges(&store, below, Some(Open)).await, [(1, 3, Open), (3, 6, Open), (6, 4, Open)]);
    assert_eq!(edges(&store, below, Some(Closed)).await, [(1, 2, Closed)]);
}

/// A cycle ends, and leaves out the thread that is asked about.
pub async fn spawn_edge_cycles_end(h: &dyn StoreHarness, mode: HistoryMode) {
    use EdgeStatus::Open;
    let Some(store) = store_of(h, mode, 3).await else { return };
    for (parent, child) in [(1, 2), (2, 3), (3, 1)] {
        spawn(&store, parent, child, Open).await;
    }
    let below = edges(&store, Relation::DescendantsOf(id(1)), None).await;
    assert_eq!(below, [(1, 2, Open), (2, 3, Open)]);
    spawn(&store, 1, 1, Open).await;
    assert_eq!(edges(&store, Relation::DescendantsOf(id(1)), None).await, [(1, 2, Open), (2, 3, Open)]);
}
