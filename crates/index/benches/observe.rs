//! What keeping observations costs: one coalesced transaction, in the file. The goal is well under a millisecond.
#![allow(missing_docs, reason = "a benchmark")]

use std::time::Duration;

use divan::{Bencher, main as divan_main};
use serde_json::json;
use threadkeep_index::{Index, IndexOptions, IndexPlace};
use threadkeep_record::{Field, MetadataPatch, ThreadId, TokenUsage, UtcMillis};
use threadkeep_rollout::Home;

fn main() {
    divan_main();
}

/// How many threads the index knows already.
const KNOWN: u64 = 50_000;

fn id(n: u64) -> ThreadId {
    ThreadId::from_bytes((0x0199_0000_0000_7000_8000_0000_0000_0000 | u128::from(n)).to_be_bytes())
}

fn whole(at: i64) -> MetadataPatch {
    MetadataPatch {
        reasoning_effort: Field::Set("high".into()),
        preview: Some("make the tests of the index pass on every system".into()),
        first_user_message: Some("make the tests of the index pass on every system, and say what you did".into()),
        rollout_path: Some("sessions/2026/01/02/rollout-2026-01-02T03-04-05-01990000.jsonl".into()),
        model: Some("a-model".into()),
        model_provider: Some("a-provider".into()),
        cwd: Some("/home/somebody/work/project".into()),
        source: Some(json!("cli")),
        token_usage: Some(TokenUsage { total: at, ..TokenUsage::default() }),
        created_at: Some(UtcMillis(at)),
        advance_recency_at: Some(UtcMillis(at)),
        ..MetadataPatch::touch(UtcMillis(at))
    }
}

fn filled() -> (tempfile::TempDir, Index) {
    let home = tempfile::tempdir().unwrap();
    let options = IndexOptions { home: Home::new(home.path()), place: IndexPlace::Home, busy: Duration::from_secs(5) };
    let index = Index::open(options).unwrap();
    for chunk in (0..KNOWN).collect::<Vec<_>>().chunks(1000) {
        index.observe(&chunk.iter().map(|n| (id(*n), whole(1))).collect::<Vec<_>>()).unwrap();
    }
    (home, index)
}

/// One transaction of a store with so many live threads.
#[divan::bench(args = [1, 8, 64])]
fn observe(bencher: Bencher, threads: u64) {
    let (_home, index) = filled();
    let mut at = 1;
    bencher
        .with_inputs(|| {
            at += 1;
            (0..threads).map(|n| (id((n * 7919 + at) % KNOWN), whole(at.cast_signed()))).collect::<Vec<_>>()
        })
        .bench_local_refs(|patches| index.observe(patches).unwrap());
}

/// Only "there was output".
#[divan::bench]
fn observe_touches_of_8(bencher: Bencher) {
    let (_home, index) = filled();
    let mut at = 1;
    bencher
        .with_inputs(|| {
            at += 1;
            (0..8).map(|n| (id((n * 7919) % KNOWN), MetadataPatch::touch(UtcMillis(at)))).collect::<Vec<_>>()
        })
        .bench_local_refs(|patches| index.observe(patches).unwrap());
}

#[divan::bench]
fn get(bencher: Bencher) {
    let (_home, index) = filled();
    let mut n = 0;
    bencher.bench_local(|| {
        n = (n + 7919) % KNOWN;
        index.get(id(n)).unwrap()
    });
}
