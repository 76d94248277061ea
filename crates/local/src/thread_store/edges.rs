//! The spawn graph: the index's edges, completed from the headers of the threads (`thread-store.md` 6.11).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use threadkeep_record::ThreadId;
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::par;
use threadkeep_store::{EdgeStatus, Relation, SpawnEdge, StoreResult};

use super::{Inner, internal};
use crate::catalog::Catalog;
use crate::list::{candidates, load};

impl Inner {
    pub fn upsert_edge(&self, edge: SpawnEdge) -> StoreResult<()> {
        self.needed_index()?.upsert_edge(edge.parent, edge.child, to_index(edge.status)).map_err(internal)
    }

    pub fn set_edge_status(&self, child: ThreadId, status: EdgeStatus) -> StoreResult<()> {
        self.needed_index()?.set_edge_status(child, to_index(status)).map_err(internal)
    }

    pub fn edges(&self, relation: Relation, status: Option<EdgeStatus>) -> StoreResult<Vec<SpawnEdge>> {
        let (root, deep) = match relation {
            Relation::ChildrenOf(id) => (id, false),
            Relation::DescendantsOf(id) => (id, true),
        };
        let all = self.all_edges();
        let mut by_parent: BTreeMap<ThreadId, BTreeSet<SpawnEdge>> = BTreeMap::new();
        for edge in all.values().filter(|e| status.is_none_or(|s| s == e.status)) {
            by_parent.entry(edge.parent).or_default().insert(*edge);
        }
        let mut found = Vec::new();
        let mut seen = BTreeSet::from([root]);
        let mut level = VecDeque::from([root]);
        while !level.is_empty() {
            let mut next: Vec<SpawnEdge> =
                level.drain(..).filter_map(|id| by_parent.get(&id)).flatten().copied().collect();
            next.retain(|e| seen.insert(e.child));
            next.sort_by_key(|e| e.child);
            level.extend(next.iter().map(|e| e.child));
            found.extend(next);
            if !deep {
                break;
            }
        }
        Ok(found)
    }

    /// Every edge that is known, by child: what a header says, replaced by what was set.
    fn all_edges(&self) -> BTreeMap<ThreadId, SpawnEdge> {
        let catalogs = self.read.catalogs();
        let rows = par::map(&candidates(&catalogs), |c| {
            let (_, row) = load(&catalogs, *c, Depth::Head)?;
            Some((row.thread.id?, row.thread.parent_id?))
        });
        // A thread that was deleted here is nobody's parent any more, whatever the headers of those that it started say.
        let stands = |parent: ThreadId| {
            let there = |c: &Catalog| c.group(parent).is_some() || c.ghosts.contains_key(&parent);
            catalogs.iter().any(there) || !catalogs.iter().any(|c| c.apart.contains(&parent))
        };
        let open = |(child, parent)| (child, SpawnEdge { parent, child, status: EdgeStatus::Open });
        let told = rows.into_iter().flatten().filter(|(_, parent)| stands(*parent));
        let mut all: BTreeMap<ThreadId, SpawnEdge> = told.map(open).collect();
        for (parent, child) in catalogs.iter().flat_map(Catalog::db_edges) {
            all.entry(child).or_insert(SpawnEdge { parent, child, status: EdgeStatus::Open });
        }
        // The index is a hint: what it cannot tell now, the headers tell.
        for edge in self.index().and_then(|index| index.all_edges().ok()).unwrap_or_default() {
            all.insert(
                edge.child,
                SpawnEdge { parent: edge.parent, child: edge.child, status: from_index(edge.status) },
            );
        }
        all
    }
}

fn to_index(status: EdgeStatus) -> threadkeep_index::EdgeStatus {
    match status {
        EdgeStatus::Open => threadkeep_index::EdgeStatus::Open,
        EdgeStatus::Closed => threadkeep_index::EdgeStatus::Closed,
    }
}

fn from_index(status: threadkeep_index::EdgeStatus) -> EdgeStatus {
    match status {
        threadkeep_index::EdgeStatus::Open => EdgeStatus::Open,
        threadkeep_index::EdgeStatus::Closed => EdgeStatus::Closed,
    }
}
