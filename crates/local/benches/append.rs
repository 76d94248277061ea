//! What an append costs: at the appender and at the trait, beside bare system calls in the same run.
//!
//! `cargo bench -p threadkeep-local --bench append`; `--test` runs each once.
#![allow(clippy::print_stdout, reason = "the table is what it is run for")]

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use threadkeep_index::IndexPlace;
use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::{NewItem, ThreadId};
use threadkeep_rollout::appender::{Appender, Durability};
use threadkeep_rollout::seam::{OpenMode, RealDisk};
use threadkeep_store::{CreateThread, LiveThread, SystemClock, ThreadStore as _};

struct Series {
    name: &'static str,
    times: Vec<Duration>,
}

impl Series {
    fn at(&self, share: f64) -> f64 {
        let i = ((self.times.len() - 1) as f64 * share).round() as usize;
        self.times[i].as_nanos() as f64 / 1000.0
    }
}

fn measure(name: &'static str, rounds: usize, mut step: impl FnMut(usize)) -> Series {
    let warm = (rounds / 10).min(200);
    (0..warm).for_each(&mut step);
    let mut times: Vec<Duration> = (warm..warm + rounds)
        .map(|i| {
            let begun = Instant::now();
            step(i);
            begun.elapsed()
        })
        .collect();
    times.sort_unstable();
    Series { name, times }
}

fn bare(folder: &Path, name: &str) -> std::fs::File {
    OpenOptions::new().create(true).append(true).open(folder.join(name)).expect("a file")
}

fn main() {
    let quick = std::env::args().any(|a| a == "--test");
    let (many, few) = if quick { (20, 3) } else { (20_000, 400) };
    // Beside the build, not in memory: a sync has to reach a disk.
    let base = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp");
    std::fs::create_dir_all(&base).expect("a folder");
    let folder = tempfile::tempdir_in(&base).expect("a folder");
    let text = "x".repeat(1024 - 110);
    let item = NewItem::from_json(
        "response_item",
        &format!(r#"{{"type":"message","role":"assistant","content":[{{"type":"output_text","text":"{text}"}}]}}"#),
    )
    .expect("an item");
    let record = item.record(threadkeep_record::UtcMillis(0), None);
    let mut line = record.clone();
    line.push(b'\n');
    let mut all = Vec::new();

    let mut file = bare(folder.path(), "bare");
    all.push(measure("write(2) of a 1 KiB record", many, |_| file.write_all(&line).expect("a write")));
    let open = |durability| {
        let path = folder.path().join(format!("{durability:?}.jsonl"));
        Appender::open(&RealDisk, &path, OpenMode::New, durability).expect("an appender")
    };
    let mut appender = open(Durability::OnFlush);
    all.push(measure("appender: length and link checked, then write", many, |_| {
        appender.append(&[&record]).expect("an append");
    }));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = |name: &str, durability| {
        let options =
            LocalOptions { durability, index: Some(IndexPlace::Home), ..LocalOptions::new(folder.path().join(name)) };
        std::sync::Arc::new(LocalThreadStore::open(options))
    };
    let plain = store("plain", Durability::OnFlush);
    let id = ThreadId::new_v7();
    let items = std::slice::from_ref(&item);
    runtime.block_on(plain.create_thread(CreateThread::new(id, "/w", "bench"))).expect("a thread");
    all.push(measure("ThreadStore::append_items, lock held", many, |_| {
        runtime.block_on(plain.append_items(id, items)).expect("an append");
    }));
    let live = runtime
        .block_on(LiveThread::create(
            plain.clone(),
            CreateThread::new(ThreadId::new_v7(), "/w", "bench"),
            std::sync::Arc::new(SystemClock),
        ))
        .expect("a thread");
    all.push(measure("LiveThread::append, observed into the index", many, |_| {
        runtime.block_on(live.append(items)).expect("an append");
    }));

    let mut file = bare(folder.path(), "synced");
    all.push(measure("write(2) + fdatasync", few, |_| {
        file.write_all(&line).expect("a write");
        file.sync_data().expect("a sync");
    }));
    let mut synced = open(Durability::EachAppend);
    all.push(measure("appender, synced each time", few, |_| {
        synced.append(&[&record]).expect("an append");
    }));
    let each = store("each", Durability::EachAppend);
    let id = ThreadId::new_v7();
    runtime.block_on(each.create_thread(CreateThread::new(id, "/w", "bench"))).expect("a thread");
    all.push(measure("ThreadStore::append_items, synced each time", few, |_| {
        runtime.block_on(each.append_items(id, items)).expect("an append");
    }));

    println!("| append of 1 KiB | p50 µs | p99 µs | p99.9 µs | ratio of p50 |");
    println!("| --- | ---: | ---: | ---: | --- |");
    let (written, durable) = (all[0].at(0.5), all[4].at(0.5));
    for s in &all {
        let ratio = if s.name.contains("sync") { s.at(0.5) / durable } else { s.at(0.5) / written };
        let of = if s.name.contains("sync") { "write + fdatasync" } else { "write" };
        println!("| {} | {:.1} | {:.1} | {:.1} | {ratio:.2} × {of} |", s.name, s.at(0.5), s.at(0.99), s.at(0.999));
    }
}
