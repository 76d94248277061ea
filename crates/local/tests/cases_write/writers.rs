//! B82, B85: other writers of the same rollout. A second one is refused or noticed; what it wrote stays.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use threadkeep_record::HistoryMode;
use threadkeep_store::{ThreadStore as _, ThreadStoreError, WithHistory};

use crate::home::{Home, MODES, id, message, one_more, record, resume_params, rollout};

fn theirs(path: &Path, bytes: &[u8]) {
    OpenOptions::new().append(true).open(path).and_then(|mut f| f.write_all(bytes)).expect("the other writer");
}

/// A program that takes no lock writes a part of a record, a record, several, or cuts the file, between two appends:
/// nothing is written into it, it is told, and the next append goes on behind it.
#[tokio::test]
async fn b82_a_foreign_write_is_noticed_and_left_whole() {
    for mode in MODES {
        let foreign = record(mode, 9, 7, "event_msg", "{\"type\":\"token_count\",\"info\":null,\"rate_limits\":null}");
        for (what, bytes, next) in [
            ("half a record", foreign[..foreign.len() / 2].to_vec(), 4),
            ("a record", foreign.clone(), 8),
            ("a record and a half", [&foreign[..], &foreign[..30]].concat(), 8),
            ("one byte", b"{".to_vec(), 4),
            ("NUL bytes", vec![0; 4_096], 4),
        ] {
            let home = Home::new();
            let path = home.put(id(1), &rollout(mode, id(1), 2).concat());
            let live = home.resume(id(1)).await.expect("it is resumed");
            live.append(&[message(mode, "ours one")]).await.expect("appended");
            theirs(&path, &bytes);
            let was = fs::read(&path).expect("it");
            match live.append(&[message(mode, "ours lost")]).await {
                Err(ThreadStoreError::Conflict { message }) => {
                    assert!(message.contains("another program"), "{what}: {message}");
                }
                other => panic!("{what}: {other:?}"),
            }
            assert!(fs::read(&path).expect("it") == was, "{what}: nothing was written");
            live.append(&[message(mode, "ours two")]).await.expect("appended behind it");
            live.flush().await.expect("flushed");
            let written = one_more(&path, &was, "ours two");
            assert_eq!(written["ordinal"].as_u64(), (mode == HistoryMode::Paginated).then_some(next), "{what}");
            live.append(&[message(mode, "ours three")]).await.expect("appended");
            live.shutdown().await.expect("closed");
            let all = String::from_utf8_lossy(&fs::read(&path).expect("it")).into_owned();
            assert!(!all.contains("ours lost"), "{what}");
            let (records, _) = home.history(id(1)).await;
            for text in ["ours one", "ours two", "ours three"] {
                let has = |r: &&Vec<u8>| String::from_utf8_lossy(r).contains(text);
                assert_eq!(records.iter().filter(has).count(), 1, "{what}: {text}");
            }
        }
    }
}

/// The file is cut shorter, replaced by another of the same name, or gone.
#[tokio::test]
async fn b82_a_file_that_is_cut_replaced_or_removed() {
    for mode in MODES {
        let home = Home::new();
        let lines = rollout(mode, id(1), 4);
        let path = home.put(id(1), &lines.concat());
        let live = home.resume(id(1)).await.expect("it is resumed");
        fs::write(&path, lines[..3].concat()).expect("cut");
        let error = live.append(&[message(mode, "lost")]).await.expect_err("noticed");
        assert!(matches!(error, ThreadStoreError::Conflict { .. }), "{error}");
        live.append(&[message(mode, "behind it")]).await.expect("appended");
        live.shutdown().await.expect("closed");
        let written = one_more(&path, &lines[..3].concat(), "behind it");
        assert_eq!(written["ordinal"].as_u64(), (mode == HistoryMode::Paginated).then_some(3));

        let live = home.resume(id(1)).await.expect("it is resumed");
        let other = home.outside("other");
        fs::write(&other, lines.concat()).and_then(|()| fs::rename(&other, &path)).expect("replaced");
        let error = live.append(&[message(mode, "lost")]).await.expect_err("noticed").to_string();
        assert!(error.contains("removed"), "{error}");
        assert!(fs::read(&path).expect("it") == lines.concat(), "the new file is as it was put there");
        live.discard().await.expect("closed");
        let live = home.resume(id(1)).await.expect("the new file");
        live.append(&[message(mode, "in the new one")]).await.expect("appended");
        live.shutdown().await.expect("closed");
        one_more(&path, &lines.concat(), "in the new one");
    }
}

/// In one store, in another store, in another process: refused with the words that clients look for and with the holder,
/// nothing changed; free at once when the holder is gone.
#[tokio::test]
async fn b82_a_second_writer_is_refused() {
    for mode in MODES {
        let home = Home::new();
        home.put(id(1), &rollout(mode, id(1), 2).concat());
        let store = home.store();
        let live = home.resume_in(&store, id(1), None).await.expect("it is resumed");
        let were = home.files();
        match store.resume_thread(resume_params(id(1), None)).await {
            Err(ThreadStoreError::InvalidRequest { message }) => {
                assert!(message.contains("already has a live local writer"), "{message}");
            }
            other => panic!("{other:?}"),
        }
        let second = home.store();
        for _ in 0..2 {
            match second.resume_thread(resume_params(id(1), None)).await {
                Err(ThreadStoreError::Conflict { message }) => {
                    assert!(
                        message.starts_with(&format!("thread {} already has an active writer", id(1))),
                        "{message}"
                    );
                    if cfg!(target_os = "linux") {
                        assert!(message.contains(&format!("pid {}", std::process::id())), "{message}");
                    }
                }
                other => panic!("{other:?}"),
            }
            second.append_items(id(1), &[message(mode, "x")]).await.expect_err("no writer here");
        }
        assert!(were == home.files());
        live.append(&[message(mode, "the first goes on")]).await.expect("appended");
        live.shutdown().await.expect("closed");
        let live = home.resume_in(&second, id(1), None).await.expect("free");
        live.append(&[message(mode, "the second")]).await.expect("appended");
        live.shutdown().await.expect("closed");
        assert_eq!(home.history(id(1)).await.0.len(), 5);
    }
}

/// Another process with the lock, killed without a chance to tidy up.
#[tokio::test]
#[cfg(target_os = "linux")]
async fn b82_a_killed_holder_blocks_nobody() {
    let mode = HistoryMode::Legacy;
    let home = Home::new();
    let was = rollout(mode, id(1), 2).concat();
    let path = home.put(id(1), &was);
    let lock = home.path().join(format!("thread-writer-locks/{}.lock", id(1)));
    fs::create_dir_all(lock.parent().expect("a folder")).expect("the folder");
    let mut holder = hold(&lock);
    match home.resume(id(1)).await {
        Err(ThreadStoreError::Conflict { message }) => {
            assert!(message.contains(&format!("pid {}", holder.id())) && message.contains("since"), "{message}");
        }
        other => panic!("{other:?}"),
    }
    // Reading does not ask.
    home.store().read_thread(id(1), threadkeep_store::Archived::Excluded, WithHistory::Yes).await.expect("read");
    holder.kill().and_then(|()| holder.wait()).expect("killed");
    let live = home.resume(id(1)).await.expect("free at once");
    live.append(&[message(mode, "after it")]).await.expect("appended");
    live.shutdown().await.expect("closed");
    one_more(&path, &was, "after it");
    assert!(!lock.exists(), "the file that it left goes with our lock");
}

/// Takes a lock in another process.
#[allow(clippy::zombie_processes, reason = "the caller ends it")]
fn hold(lock: &Path) -> Child {
    let child = Command::new("flock").args(["--exclusive", "--no-fork"]).arg(lock).args(["sleep", "600"]).spawn();
    let child = child.expect("flock starts");
    let begun = Instant::now();
    loop {
        if let Ok(file) = fs::File::open(lock)
            && file.try_lock().is_err()
        {
            return child;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "the lock is not taken");
        std::thread::sleep(Duration::from_millis(20));
    }
}
