//! Appends on a disk that is full: an error that is told, nothing acknowledged lost, no torn record, and once there is
//! room again everything is written, once.
//!
//! The disk is a small `tmpfs`. Where that cannot be mounted the tests say so and do nothing.

#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::{HistoryMode, NewItem, ThreadId};
use threadkeep_rollout::appender::Durability;
use threadkeep_store::{Archived, CreateThread, HostMetadata, LiveThread, ResumeThread, SystemClock, ThreadStore};

/// A small disk. Dropping it takes it away again.
struct SmallDisk {
    folder: tempfile::TempDir,
    balloon: PathBuf,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let output =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"]).arg(folder.path()).output();
        let refused = match output {
            Ok(output) if output.status.success() => {
                let balloon = folder.path().join("balloon");
                return Some(Self { folder, balloon });
            }
            Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(e) => e.to_string(),
        };
        eprintln!("SKIPPED: a tmpfs cannot be mounted here ({refused}), so no full disk was tried");
        None
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Takes all room but so many bytes (in whole pages).
    fn fill(&self, left: u64) {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.balloon).unwrap();
        let page = [0; 4096];
        loop {
            match file.write_all(&page) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::StorageFull => break,
                Err(e) => panic!("{e}"),
            }
        }
        let size = file.metadata().unwrap().len();
        file.set_len(size.saturating_sub(left)).unwrap();
    }

    fn free(&self) {
        File::create(&self.balloon).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

/// An item with a number, `length` bytes long.
fn item(n: u64, length: usize) -> NewItem {
    NewItem::model_message("user", &format!("<{n}>{}", "x".repeat(length)))
}

/// Gives out items with numbers that go up.
#[derive(Default)]
struct Giver {
    given: u64,
}

impl Giver {
    fn items(&mut self, count: u64, length: usize) -> Vec<NewItem> {
        let first = self.given;
        self.given += count;
        (first..self.given).map(|n| item(n, length)).collect()
    }
}

/// The numbers in a rollout. Every line has to be a whole record, and ordinals count from 0.
fn numbers(path: &Path, mode: HistoryMode) -> Vec<u64> {
    let Ok(bytes) = std::fs::read(path) else { return vec![] };
    assert!(bytes.is_empty() || bytes.ends_with(b"\n"), "a torn record");
    let text = String::from_utf8(bytes).unwrap();
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let record: serde_json::Value = serde_json::from_str(line).expect("a whole record");
        assert_eq!(record["type"] == "session_meta", i == 0);
        if mode == HistoryMode::Paginated {
            assert_eq!(record["ordinal"], i as u64);
        }
        let said = record["payload"]["content"][0]["text"].as_str();
        let number = said.and_then(|t| t.strip_prefix('<')?.split_once('>')?.0.parse::<u64>().ok());
        found.extend(number);
    }
    found
}

async fn create(home: &Path, mode: HistoryMode, durability: Durability) -> LiveThread {
    let mut options = LocalOptions::new(home);
    options.durability = durability;
    let mut params = CreateThread::new(ThreadId::new_v7(), "/", "test");
    params.history_mode = mode;
    LiveThread::create(Arc::new(LocalThreadStore::open(options)), params, Arc::new(SystemClock)).await.unwrap()
}

/// How the writer goes on once there is room.
#[derive(Debug, Clone, Copy)]
enum Then {
    Append,
    Flush,
    Persist,
    Shutdown,
}

/// When the disk is full.
#[derive(Debug, Clone, Copy)]
enum Full {
    /// Before the thread's first record: nothing of it is there yet.
    AtCreation,
    /// After a few records.
    Midway,
}

async fn case(disk: &SmallDisk, mode: HistoryMode, durability: Durability, full: Full, left: u64, then: Then) {
    let home = disk.home();
    let live = create(&home, mode, durability).await;
    let path = live.store().live_rollout_path(live.thread_id()).await.unwrap().unwrap();
    let mut give = Giver::default();
    let mut acknowledged = 0;
    if matches!(full, Full::Midway) {
        live.append(&give.items(3, 100)).await.unwrap();
        live.flush().await.unwrap();
        acknowledged = 3;
    }
    disk.fill(left);
    // Appends until the disk is full: the failed one is larger than what is left.
    let mut failures = 0;
    for length in [50, 700, 40_000, 10] {
        match live.append(&give.items(2, length)).await {
            Ok(_) => {
                assert_eq!(failures, 0, "an append behind a failed one is not acknowledged before that one is written");
                acknowledged = give.given;
            }
            Err(e) => {
                failures += 1;
                assert!(e.to_string().contains("No space left"), "{e}");
            }
        }
        let found = numbers(&path, mode);
        assert!(found.iter().copied().eq(0..found.len() as u64), "{found:?}");
        assert!(found.len() as u64 >= acknowledged, "{found:?} of {acknowledged}");
    }
    assert!(failures >= 2, "the disk was full");
    assert!(live.flush().await.is_err(), "what is not in the file is not flushed");
    assert!(live.shutdown().await.is_err(), "nor is the writer closed over it");

    disk.free();
    match then {
        Then::Append => drop(live.append(&give.items(1, 100)).await.unwrap()),
        Then::Flush => live.flush().await.unwrap(),
        Then::Persist => live.persist().await.unwrap(),
        Then::Shutdown => live.shutdown().await.unwrap(),
    }
    let all = |n: u64| (0..n).collect::<Vec<_>>();
    assert_eq!(numbers(&path, mode), all(give.given), "everything once, in order");
    if !matches!(then, Then::Shutdown) {
        live.append(&give.items(2, 100)).await.unwrap();
        live.flush().await.unwrap();
        live.shutdown().await.unwrap();
    }
    let count = give.given;
    assert_eq!(numbers(&path, mode), all(count));

    // An ordinary thread for whoever comes next.
    let metadata = HostMetadata { cwd: Some("/".into()), ..HostMetadata::default() };
    let thread_id = live.thread_id();
    let params = ResumeThread { thread_id, rollout_path: None, archived: Archived::Excluded, metadata };
    let store: Arc<dyn ThreadStore> = Arc::new(LocalThreadStore::open(LocalOptions::new(&home)));
    let live = LiveThread::resume(store, params, Arc::new(SystemClock)).await.unwrap();
    live.append(&[item(count, 1)]).await.unwrap();
    live.shutdown().await.unwrap();
    assert_eq!(numbers(&path, mode), all(count + 1));
    std::fs::remove_dir_all(&home).unwrap();
}

#[test]
fn a_full_disk_loses_nothing_acknowledged_and_recovers() {
    let Some(disk) = SmallDisk::mount() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        for durability in [Durability::None, Durability::OnFlush, Durability::EachAppend] {
            for full in [Full::AtCreation, Full::Midway] {
                for left in [0, 4096, 8192, 20_480] {
                    for then in [Then::Append, Then::Flush, Then::Persist, Then::Shutdown] {
                        runtime.block_on(case(&disk, mode, durability, full, left, then));
                    }
                }
            }
        }
    }
}
