//! Who spawned whom.

use std::collections::BTreeSet;

use super::Kept;
use crate::params::Relation;
use crate::stored::{EdgeStatus, SpawnEdge};

impl Kept {
    /// Spawned threads: children by id, descendants breadth first and then by id. An edge that is left out hides what is
    /// below it.
    pub(super) fn spawned(&self, relation: Relation, status: Option<EdgeStatus>) -> Vec<SpawnEdge> {
        let below = |parents: &BTreeSet<_>| -> Vec<SpawnEdge> {
            let wanted = |e: &&SpawnEdge| parents.contains(&e.parent) && status.is_none_or(|s| s == e.status);
            self.edges.values().filter(wanted).copied().collect()
        };
        match relation {
            Relation::ChildrenOf(parent) => below(&BTreeSet::from([parent])),
            Relation::DescendantsOf(ancestor) => {
                let mut seen = BTreeSet::from([ancestor]);
                let mut level = seen.clone();
                let mut found = Vec::new();
                // Each thread is met once, so that a cycle ends.
                while !level.is_empty() {
                    let edges: Vec<_> = below(&level).into_iter().filter(|e| seen.insert(e.child)).collect();
                    level = edges.iter().map(|e| e.child).collect();
                    found.extend(edges);
                }
                found
            }
        }
    }
}
