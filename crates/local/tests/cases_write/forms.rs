//! B65, B66, B73: a thread that is compressed, in two forms, in two places, outside the home, or not where a database
//! says.

use std::fs;
use std::path::{Path, PathBuf};

use threadkeep_record::{HistoryMode, ThreadId};
use threadkeep_store::{Archived, ThreadStore as _, ThreadStoreError, WithHistory};

use crate::home::{Home, MODES, header, id, message, one_more, resume_params, rollout, write};

fn packed(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.zst", path.display()))
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).expect("zstd")
}

/// Several frames, as other writers make them.
fn frames(lines: &[Vec<u8>]) -> Vec<u8> {
    lines.iter().flat_map(|line| zstd(line)).collect()
}

/// A compressed thread is continued as a plain one: the same records, the new one behind them, one file.
#[tokio::test]
async fn b65_a_compressed_thread_is_written_out_and_continued() {
    for mode in MODES {
        for (what, by_path, several) in
            [("id", None, false), ("plain path", Some(false), false), ("packed path", Some(true), true)]
        {
            let home = Home::new();
            let lines = rollout(mode, id(1), 3);
            let was = lines.concat();
            let plain = home.place(id(1));
            let source = write(&packed(&plain), &if several { frames(&lines) } else { zstd(&was) });
            let records = home.history(id(1)).await;
            let path = by_path.map(|p| if p { source.clone() } else { plain.clone() });
            let live = home.resume_in(&home.store(), id(1), path.as_deref()).await.expect(what);
            assert!(fs::read(&plain).expect("written out") == was, "{what}");
            assert!(!source.exists(), "{what}: one form is left");
            live.append(&[message(mode, "fresh")]).await.expect("appended");
            live.shutdown().await.expect("closed");
            one_more(&plain, &was, "fresh");
            let (after, damaged) = home.history(id(1)).await;
            assert_eq!((after.len(), damaged), (records.0.len() + 1, 0));
            let left: Vec<_> = home.files().into_keys().collect();
            assert_eq!(left, [plain], "{what}: no temporary file");
        }
    }
}

/// A compressed rollout that is damaged, or of another thread, is not lost by the try.
#[tokio::test]
async fn b65_what_cannot_be_written_out_stays() {
    let mode = HistoryMode::Legacy;
    let whole = zstd(&rollout(mode, id(1), 200).concat());
    for (what, bytes) in [
        ("cut", whole[..whole.len() / 2].to_vec()),
        ("no zstd", b"not compressed".to_vec()),
        ("empty", vec![]),
        ("of another thread", zstd(&rollout(mode, id(2), 2).concat())),
        ("without a header", zstd(&rollout(mode, id(1), 2)[1..].concat())),
    ] {
        let home = Home::new();
        write(&packed(&home.place(id(1))), &bytes);
        let were = home.files();
        home.resume(id(1)).await.expect_err(what);
        assert!(were == home.files(), "{what}: {:?}", home.files().keys());
    }
}

/// Both forms: the plain one counts where it holds all of the other, and the other stays until someone tidies up.
#[tokio::test]
async fn b66_the_plain_form_counts_where_it_is_longer() {
    for mode in MODES {
        for more in [0, 3] {
            let home = Home::new();
            let lines = rollout(mode, id(1), 6);
            let shared: usize = lines.len() - more;
            let was = lines.concat();
            let plain = home.put(id(1), &was);
            write(&packed(&plain), &zstd(&lines[..shared].concat()));
            for path in [None, Some(plain.as_path())] {
                let was = fs::read(&plain).expect("it");
                let live = home.resume_in(&home.store(), id(1), path).await.expect("it is resumed");
                live.append(&[message(mode, "fresh")]).await.expect("appended");
                live.shutdown().await.expect("closed");
                one_more(&plain, &was, "fresh");
            }
            let params = threadkeep_store::ListThreads { page_size: 9, ..Default::default() };
            let page = home.store().list_threads(params).await.expect("a list");
            assert_eq!(page.threads.len(), 1, "one thread");
        }
    }
}

/// A plain form that is shorter, or says something else, is not continued: refused, however it is asked for, with
/// nothing changed.
#[tokio::test]
async fn b66_a_shorter_plain_form_is_a_conflict() {
    for mode in MODES {
        let lines = rollout(mode, id(1), 6);
        for (what, plain) in [
            ("shorter by records", lines[..4].concat()),
            ("cut in a record", lines.concat()[..lines.concat().len() - 30].to_vec()),
            ("a header alone", header(mode, id(1))),
        ] {
            let home = Home::new();
            let path = home.put(id(1), &plain);
            let zst = write(&packed(&path), &zstd(&lines.concat()));
            let were = home.files();
            for given in [None, Some(path.as_path()), Some(zst.as_path())] {
                match home.resume_in(&home.store(), id(1), given).await {
                    Err(ThreadStoreError::Conflict { message }) => {
                        assert!(message.contains("shorter"), "{what} {given:?}: {message}");
                    }
                    other => panic!("{mode:?} {what} {given:?}: {other:?}"),
                }
                assert!(were == home.files(), "{mode:?} {what} {given:?}: changed");
            }
            // It is still one thread, read from the longer form.
            let (records, _) = home.history(id(1)).await;
            assert_eq!(records.len(), 7, "{what}");
        }
    }
}

/// Archived threads are continued where they are, if that is allowed; a thread in both places in the active one.
#[tokio::test]
async fn archived_and_doubled_threads() {
    let mode = HistoryMode::Legacy;
    let home = Home::new();
    let was = rollout(mode, id(1), 2).concat();
    let name = home.place(id(1)).file_name().expect("a name").to_owned();
    let archived = write(&home.path().join("archived_sessions").join(&name), &was);
    let were = home.files();
    let mut params = resume_params(id(1), None);
    params.archived = Archived::Excluded;
    let error = home.store().resume_thread(params).await.expect_err("archived").to_string();
    assert!(error.contains("archived"), "{error}");
    assert!(were == home.files());
    let live = home.resume(id(1)).await.expect("where it is");
    live.append(&[message(mode, "in the archive")]).await.expect("appended");
    live.shutdown().await.expect("closed");
    one_more(&archived, &was, "in the archive");

    let active = home.put(id(1), &was);
    write(&active.with_file_name(format!("{} (1).jsonl", active.file_stem().expect("one").to_string_lossy())), &was);
    let before = fs::read(&archived).expect("it");
    let live = home.resume(id(1)).await.expect("the active one");
    live.append(&[message(mode, "active")]).await.expect("appended");
    live.shutdown().await.expect("closed");
    one_more(&active, &was, "active");
    assert!(fs::read(&archived).expect("it") == before);
    assert_eq!(home.files().len(), 3);
}

/// A rollout outside the home, under any name, is continued where it is; a path that leads nowhere is told as that.
#[tokio::test]
async fn a_rollout_outside_the_home() {
    for mode in MODES {
        let home = Home::new();
        let was = rollout(mode, id(1), 2).concat();
        for name in ["any name.jsonl", "rollout-2026-03-01T10-00-00-x.jsonl", "no-ending"] {
            let path = write(&home.outside(name), &was);
            let live = home.resume_in(&home.store(), id(1), Some(&path)).await.expect(name);
            live.append(&[message(mode, "outside")]).await.expect("appended");
            let read = live.read(WithHistory::Yes).await.expect("read where it is");
            assert_eq!(read.history.map(|h| h.records.len()), Some(4), "{name}");
            assert_eq!(
                (read.model_provider.as_deref(), read.first_user_message.as_deref()),
                (Some("openai"), Some("said 1"))
            );
            live.shutdown().await.expect("closed");
            one_more(&path, &was, "outside");
            // Of another thread.
            let error = home.resume_in(&home.store(), id(2), Some(&path)).await.expect_err("another's").to_string();
            assert!(error.contains("belongs to thread"), "{error}");
        }
        for (path, why) in [("nowhere.jsonl", "file does not exist"), ("", "path is a directory")] {
            let path = home.outside(path);
            let error = home.resume_in(&home.store(), id(1), Some(&path)).await.expect_err("nowhere").to_string();
            assert!(error.contains("failed to resolve rollout path") && error.contains(why), "{error}");
        }
        assert!(home.files().is_empty(), "{:?}", home.files().keys());
    }
}

/// Codex's database has the path of another machine, or is held for ever: the thread is found by id, and continued.
#[tokio::test]
async fn b73_b81_no_database_is_needed_to_continue() {
    for mode in MODES {
        for stale in ["/home/a/.codex/sessions/x.jsonl", "/nowhere", ""] {
            let home = Home::new();
            let was = rollout(mode, id(1), 2).concat();
            let path = home.put(id(1), &was);
            let held: Vec<rusqlite::Connection> =
                ["state_5.sqlite", "logs_2.sqlite"].iter().map(|name| database(&home, name, id(1), stale)).collect();
            let bytes = fs::read(home.path().join("state_5.sqlite")).expect("it");
            let begun = std::time::Instant::now();
            let live = home.resume(id(1)).await.expect("it is resumed");
            live.append(&[message(mode, "fresh")]).await.expect("appended");
            live.flush().await.expect("flushed");
            let thread = live.read(WithHistory::No).await.expect("read");
            assert_eq!(thread.rollout_path.as_deref(), Some(path.as_path()));
            live.shutdown().await.expect("closed");
            assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
            one_more(&path, &was, "fresh");
            assert!(fs::read(home.path().join("state_5.sqlite")).expect("it") == bytes, "it is not ours to repair");
            drop(held);
        }
    }
}

/// A database with a row of a thread, held exclusively.
fn database(home: &Home, name: &str, thread: ThreadId, path: &str) -> rusqlite::Connection {
    let conn = rusqlite::Connection::open(home.path().join(name)).expect("a database");
    conn.execute_batch(&format!(
        "PRAGMA journal_mode = wal; CREATE TABLE threads (id TEXT PRIMARY KEY, rollout_path TEXT, title TEXT,
         first_user_message TEXT); INSERT INTO threads VALUES ('{thread}', '{path}', 'said 1', 'said 1');
         PRAGMA wal_checkpoint(truncate); BEGIN EXCLUSIVE"
    ))
    .expect("held");
    conn
}
