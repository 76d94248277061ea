//! Spawn edges against a plain map.
#![allow(missing_docs, reason = "tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{id, memory};
use proptest::prelude::*;
use threadkeep_index::{EdgeStatus, SpawnEdge};
use threadkeep_record::ThreadId;

/// Child to parent and status.
type Model = BTreeMap<ThreadId, (ThreadId, EdgeStatus)>;

fn children(model: &Model, parent: ThreadId, status: Option<EdgeStatus>) -> Vec<SpawnEdge> {
    model
        .iter()
        .filter(|(_, (p, s))| *p == parent && status.is_none_or(|want| want == *s))
        .map(|(child, (parent, status))| SpawnEdge { parent: *parent, child: *child, status: *status })
        .collect()
}

/// Level by level, each level by id, nobody twice.
fn descendants(model: &Model, ancestor: ThreadId, status: Option<EdgeStatus>) -> Vec<SpawnEdge> {
    let mut seen = BTreeSet::from([ancestor]);
    let mut level = vec![ancestor];
    let mut all = Vec::new();
    while !level.is_empty() {
        let mut next: Vec<SpawnEdge> = level.iter().flat_map(|p| children(model, *p, status)).collect();
        next.retain(|edge| seen.insert(edge.child));
        next.sort_by_key(|edge| edge.child);
        level = next.iter().map(|edge| edge.child).collect();
        all.extend(next);
    }
    all
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Upsert(u8, u8, EdgeStatus),
    Status(u8, EdgeStatus),
    Remove(u8),
}

fn status() -> impl Strategy<Value = EdgeStatus> {
    prop_oneof![3 => Just(EdgeStatus::Open), 1 => Just(EdgeStatus::Closed)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u8..8, 0u8..8, status()).prop_map(|(p, c, s)| Step::Upsert(p, c, s)),
        2 => (0u8..8, status()).prop_map(|(c, s)| Step::Status(c, s)),
        1 => (0u8..8).prop_map(Step::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn edges_are_those_of_a_map_and_cycles_end(steps in proptest::collection::vec(step(), 1..25)) {
        let index = memory("/h");
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Upsert(parent, child, status) => {
                    index.upsert_edge(id(parent), id(child), status).unwrap();
                    model.insert(id(child), (id(parent), status));
                }
                Step::Status(child, status) => {
                    index.set_edge_status(id(child), status).unwrap();
                    model.entry(id(child)).and_modify(|(_, s)| *s = status);
                }
                Step::Remove(thread) => {
                    index.remove(id(thread)).unwrap();
                    model.retain(|child, (parent, _)| *child != id(thread) && *parent != id(thread));
                }
            }
        }
        for n in 0..8 {
            for status in [None, Some(EdgeStatus::Open), Some(EdgeStatus::Closed)] {
                assert_eq!(index.children(id(n), status).unwrap(), children(&model, id(n), status));
                assert_eq!(index.descendants(id(n), status).unwrap(), descendants(&model, id(n), status));
            }
        }
    }
}

#[test]
fn a_closed_edge_hides_what_is_below_it_and_a_cycle_ends() {
    let index = memory("/h");
    for (parent, child) in [(1, 5), (1, 3), (3, 9), (5, 2), (2, 1)] {
        index.upsert_edge(id(parent), id(child), EdgeStatus::Open).unwrap();
    }
    index.set_edge_status(id(5), EdgeStatus::Closed).unwrap();
    let below = |status| -> Vec<ThreadId> {
        index.descendants(id(1), status).unwrap().into_iter().map(|edge| edge.child).collect()
    };
    assert_eq!(below(None), [id(3), id(5), id(2), id(9)]);
    assert_eq!(below(Some(EdgeStatus::Open)), [id(3), id(9)]);
    assert_eq!(below(Some(EdgeStatus::Closed)), [id(5)]);
}

#[test]
fn a_long_chain_and_a_wide_level_are_listed_whole() {
    let index = memory("/h");
    let far = |n: u16| ThreadId::parse(&format!("01990000-0000-7000-8000-00000001{n:04x}")).unwrap();
    for n in 0..3000 {
        index.upsert_edge(far(n), far(n + 1), EdgeStatus::Open).unwrap();
        index.upsert_edge(id(0), ThreadId::from_bytes(u128::from(n).to_be_bytes()), EdgeStatus::Open).unwrap();
    }
    let chain: Vec<ThreadId> = index.descendants(far(0), None).unwrap().into_iter().map(|edge| edge.child).collect();
    assert_eq!(chain, (1..=3000).map(far).collect::<Vec<_>>());
    assert_eq!(index.descendants(id(0), None).unwrap().len(), 3000);
}
