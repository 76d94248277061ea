//! How fast candidate places are found in raw rollouts, beside the finders of well-kept libraries.
#![allow(missing_docs, reason = "a benchmark")]

use std::hint::black_box;
use std::io::Read;
use std::path::Path;

use divan::counter::BytesCount;
use divan::{Bencher, main as divan_main};
use threadkeep_local::search::needle::Needle;
use threadkeep_rollout::source::{Follow, open_stream};
use threadkeep_rollout::walk::walk;

fn main() {
    divan_main();
}

/// A mebibyte of the fixture rollouts: it stays in the core's cache, as the blocks of a scan do.
fn rollouts() -> Vec<u8> {
    let homes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes");
    let mut once = Vec::new();
    for home in homes.read_dir().unwrap() {
        let home = home.unwrap().path();
        for f in walk(&home).files {
            open_stream(&f.path_in(home.as_ref()), f.name.form, Follow::Nothing)
                .unwrap()
                .read_to_end(&mut once)
                .unwrap();
        }
    }
    once.truncate(1 << 20);
    once
}

const RARE: &[&str] = &["zebracorn", "ndl3341q", "tasksandkeys", "no such text here"];

#[divan::bench(args = RARE, sample_count = 10)]
fn threadkeep(bencher: Bencher, term: &str) {
    let data = rollouts();
    let needle = Needle::new(term, false).unwrap();
    bencher.counter(BytesCount::new(data.len())).bench(|| black_box(needle.candidate(&data, 0)));
}

#[divan::bench(args = RARE, sample_count = 10)]
fn aho_corasick(bencher: Bencher, term: &str) {
    let data = rollouts();
    let finder = aho_corasick::AhoCorasick::builder().ascii_case_insensitive(true).build([term]).unwrap();
    bencher.counter(BytesCount::new(data.len())).bench(|| black_box(finder.find(&data)));
}

#[divan::bench(args = RARE, sample_count = 10)]
fn regex_bytes(bencher: Bencher, term: &str) {
    let data = rollouts();
    let finder = regex::bytes::RegexBuilder::new(&regex::escape(term)).case_insensitive(true).build().unwrap();
    bencher.counter(BytesCount::new(data.len())).bench(|| black_box(finder.find(&data)));
}

/// Only the exact spelling: what a case-sensitive search would cost.
#[divan::bench(args = RARE, sample_count = 10)]
fn memmem_exact(bencher: Bencher, term: &str) {
    let data = rollouts();
    bencher.counter(BytesCount::new(data.len())).bench(|| black_box(memchr::memmem::find(&data, term.as_bytes())));
}
