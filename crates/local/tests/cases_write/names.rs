//! B22, B23, B27, B28, B100: names of threads that are being written, and what is made beside them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use threadkeep_record::{Field, HistoryMode, MetadataPatch, ThreadId};
use threadkeep_rollout::Depth;
use threadkeep_rollout::name_index::NameIndex;
use threadkeep_store::{Archived, Clock, CreateThread, ForkRange, ForkThread, ThreadStore as _, ThreadStoreError};

use crate::home::{Home, MODES, id, message, rollout, write};

fn named(name: &str) -> MetadataPatch {
    MetadataPatch { name: Field::Set(name.into()), ..MetadataPatch::default() }
}

/// The thread that a name leads to in a new store.
fn found(home: &Home, name: &str) -> Option<ThreadId> {
    home.store().reader().open_thread(name, Depth::Head).ok().and_then(|open| open.row.thread.id)
}

/// Named before there is a file, while it is written, and after: stored each time, and not buried by what comes later.
#[tokio::test]
async fn b28_a_live_thread_keeps_its_name() {
    for mode in MODES {
        let home = Home::new();
        let store = home.store();
        let live = home.create(&store, id(1), mode).await;
        let thread = live.update_metadata(named("before the file")).await.expect("named");
        assert_eq!(thread.name.as_deref(), Some("before the file"));
        assert!(live.store().live_rollout_path(id(1)).await.expect("a path").is_some_and(|p| p.is_file()));
        assert_eq!(found(&home, "before the file"), Some(id(1)));
        for n in 0..500 {
            live.append(&[message(mode, &format!("record {n}"))]).await.expect("appended");
            if n == 250 {
                live.update_metadata(named("in the middle")).await.expect("named");
            }
        }
        live.shutdown().await.expect("closed");
        assert_eq!((found(&home, "in the middle"), found(&home, "before the file")), (Some(id(1)), None));
        let (records, damaged) = home.history(id(1)).await;
        assert_eq!((records.len(), damaged), (501, 0), "a name is no record");
        let cleared = MetadataPatch { name: Field::Clear, ..MetadataPatch::default() };
        let thread = home.store().update_thread_metadata(id(1), cleared, Archived::Excluded).await.expect("cleared");
        assert_eq!((thread.name, found(&home, "in the middle")), (None, None));
    }
}

/// A name that cannot be kept is told, and nothing of it is kept.
#[tokio::test]
async fn b28_a_name_is_stored_or_refused() {
    let home = Home::new();
    home.put(id(1), &rollout(HistoryMode::Legacy, id(1), 2).concat());
    let store = home.store_with(|o| o.patience = std::time::Duration::from_millis(200));
    let were = home.files();
    for bad in ["", " \t", "a\nb", "a\rb"] {
        let error = store.update_thread_metadata(id(1), named(bad), Archived::Excluded).await.expect_err("refused");
        assert!(matches!(error, ThreadStoreError::InvalidRequest { .. }), "{bad:?}: {error}");
    }
    let error = store.update_thread_metadata(id(9), named("x"), Archived::Excluded).await.expect_err("nobody");
    assert!(error.to_string().contains("thread not found"), "{error}");
    assert!(were == home.files());
    // The name index is a folder.
    fs::create_dir(home.path().join("session_index.jsonl")).expect("a folder");
    let error = store.update_thread_metadata(id(1), named("x"), Archived::Excluded).await.expect_err("no place");
    assert!(matches!(&error, ThreadStoreError::Internal { message } if message.contains("session_index")), "{error}");
    fs::remove_dir(home.path().join("session_index.jsonl")).expect("gone");
    // Another writer of names.
    let lock = fs::File::create(home.path().join("session_index.jsonl.lock")).expect("the lock file");
    lock.lock().expect("the lock");
    let error = store.update_thread_metadata(id(1), named("x"), Archived::Excluded).await.expect_err("held");
    assert!(matches!(&error, ThreadStoreError::Conflict { message } if message.contains("lock")), "{error}");
    assert_eq!(found(&home, "x"), None);
    drop(lock);
    store.update_thread_metadata(id(1), named("x"), Archived::Excluded).await.expect("free again");
    assert_eq!(found(&home, "x"), Some(id(1)));
}

/// Writing a thread names nothing: what the name index and Codex's database say or do not say stays.
#[tokio::test]
async fn b22_b27_writing_touches_no_name() {
    for mode in MODES {
        for indexed in [false, true] {
            let home = Home::new();
            home.put(id(1), &rollout(mode, id(1), 2).concat());
            let index = home.path().join("session_index.jsonl");
            let line = format!(
                "{{\"id\":\"{}\",\"thread_name\":\"FooBar\",\"updated_at\":\"2026-03-01T10:00:00Z\"}}\n",
                id(1)
            );
            if indexed {
                write(&index, line.as_bytes());
            }
            let db = home.path().join("state_5.sqlite");
            let conn = rusqlite::Connection::open(&db).expect("a database");
            conn.execute_batch(&format!(
                "CREATE TABLE threads (id TEXT PRIMARY KEY, rollout_path TEXT, title TEXT, first_user_message TEXT,
                 name TEXT); INSERT INTO threads VALUES ('{}', '', 'T', 'said 1', NULL)",
                id(1)
            ))
            .expect("a row");
            drop(conn);
            let bytes = fs::read(&db).expect("it");
            for _ in 0..2 {
                let live = home.resume(id(1)).await.expect("it is resumed");
                live.append(&[message(mode, "more")]).await.expect("appended");
                live.flush().await.expect("flushed");
                live.shutdown().await.expect("closed");
                assert!(fs::read(&db).expect("it") == bytes);
                assert_eq!(fs::read_to_string(&index).ok(), indexed.then(|| line.clone()));
                assert_eq!(found(&home, if indexed { "FooBar" } else { "T" }), Some(id(1)), "{mode:?} {indexed}");
            }
        }
    }
}

/// The newest name that has a rollout, whoever else had it.
#[tokio::test]
async fn b23_a_name_of_a_thread_that_is_gone() {
    let home = Home::new();
    home.put(id(1), &rollout(HistoryMode::Legacy, id(1), 1).concat());
    let store = home.store();
    for (n, name) in [(1, "work"), (2, "work"), (3, "next")] {
        let line =
            format!("{{\"id\":\"{}\",\"thread_name\":\"{name}\",\"updated_at\":\"2026-03-0{n}T10:00:00Z\"}}\n", id(n));
        let index = home.path().join("session_index.jsonl");
        let all = [fs::read(&index).unwrap_or_default(), line.into_bytes()].concat();
        write(&index, &all);
    }
    assert_eq!(found(&home, "work"), Some(id(1)));
    store.update_thread_metadata(id(1), named("next"), Archived::Excluded).await.expect("named");
    assert_eq!((found(&home, "next"), found(&home, "work")), (Some(id(1)), None));
    let names = NameIndex::read(&home.path()).expect("the index");
    assert_eq!((names.entry(id(2)), names.entry(id(3))), (Some("work"), Some("next")), "the lines of others stay");
}

/// Everything that a store makes is its owner's alone; what was there keeps its mode.
#[tokio::test]
async fn b100_what_is_made_is_its_owner_s_alone() {
    for mode in MODES {
        let home = Home::new();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
        let loose = home.put(id(1), &rollout(mode, id(1), 2).concat());
        let packed = home.outside("packed");
        fs::write(&packed, zstd::encode_all(rollout(mode, id(2), 2).concat().as_slice(), 3).expect("zstd"))
            .expect("it");
        let place = std::path::PathBuf::from(format!("{}.zst", home.place(id(2)).display()));
        fs::rename(&packed, &place).expect("in its place");
        for path in [&loose, &place] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o644)).expect("a mode");
        }
        let mut before = Vec::new();
        walk(&home.path(), &mut before);

        let store = home.store();
        for n in [1, 2] {
            let live = home.resume_in(&store, id(n), None).await.expect("it is resumed");
            live.append(&[message(mode, "more")]).await.expect("appended");
            live.flush().await.expect("flushed");
            let mut now = Vec::new();
            walk(&home.path(), &mut now);
            check(&before, &now);
            live.shutdown().await.expect("closed");
        }
        let live = home.create(&store, id(3), mode).await;
        live.append(&[message(mode, "new")]).await.expect("appended");
        live.update_metadata(named("three")).await.expect("named");
        live.shutdown().await.expect("closed");
        let child = CreateThread::new(id(4), "/w/p", "test");
        let fork = ForkThread { source: id(3), archived: Archived::Included, range: ForkRange::Whole, child };
        store.fork_thread(fork).await.expect("forked");
        store.shutdown_thread(id(4)).await.expect("closed");
        let mut now = Vec::new();
        walk(&home.path(), &mut now);
        check(&before, &now);
        assert!(now.iter().any(|(path, ..)| path.contains("/threadkeep/")), "the index is among them");
        drop((store, Arc::clone(&home.clock) as Arc<dyn Clock>));
    }
}

fn walk(dir: &Path, all: &mut Vec<(String, bool, u32)>) {
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        let meta = fs::metadata(&path).expect("it");
        all.push((path.to_string_lossy().into_owned(), meta.is_dir(), meta.permissions().mode() & 0o777));
        if meta.is_dir() {
            walk(&path, all);
        }
    }
}

#[track_caller]
fn check(before: &[(String, bool, u32)], now: &[(String, bool, u32)]) {
    for (path, folder, mode) in now {
        match before.iter().find(|(p, ..)| p == path) {
            Some((.., was)) => assert_eq!(mode, was, "{path}: was there before"),
            None => assert_eq!(*mode, if *folder { 0o700 } else { 0o600 }, "{path}: was made"),
        }
    }
}
