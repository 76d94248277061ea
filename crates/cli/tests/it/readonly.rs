//! Reading leaves no trace: nothing is written to a home, no lock is taken, and memory does not follow the size of a file.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    db::{StateDb, text},
    home::{Home, ids},
    log::{Log, Shape, t},
};

const AT: &str = "2026-03-01T10:00:00Z";

/// A home with something of everything.
fn rich() -> Home {
    let home = Home::new();
    let first = home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::paginated(&t(2), AT).meta().turn("paginated question", "answer").raw(b"{\"torn"));
    let packed = Log::healthy(&t(3), AT);
    home.put_zst(&packed, &zstd::encode_all(packed.bytes().as_slice(), 3).expect("zstd"));
    home.put_archived(&Log::healthy(&t(4), AT));
    home.put(&Log::new(&t(5), AT).meta());
    home.state()
        .row(&t(1), &[("title", text("T")), ("rollout_path", text(first.to_str().expect("UTF-8")))])
        .row(&t(6), &[("title", text("ghost"))])
        .close();
    StateDb::create(&home.file("thread_history_1.sqlite")).close();
    home.write("config.toml", "model = \"x\"\n");
    home.write("history.jsonl", "{}\n");
    home.write("thread-writer-locks/.coordination.lock", "");
    home
}

const READING: [&[&str]; 16] = [
    &["list"],
    &["list", "--all", "--count"],
    &["list", "--exact", "--sort", "created"],
    &["list", "--archived"],
    &["search", "hello"],
    &["search", "question", "--count"],
    &["search", "nobody said this"],
    &["show", "T"],
    &["show", "nobody"],
    &["resume", "T"],
    &["resume", "ghost"],
    &["list", "--cursor", "garbage"],
    &["why", "T"],
    &["why", "ghost"],
    &["why", "nobody"],
    &["stats"],
];

/// Without a name index a title was read as a rename to nothing, and each run wrote.
#[test]
fn b27_reading_writes_nothing() {
    let home = rich();
    let before = home.snapshot();
    assert_eq!(home.list(&[]).thread(&t(1))["name"], "T", "no entry in the name index says nothing");
    for _ in 0..2 {
        for args in READING {
            home.human(args);
            home.human(&[&["--json"], args].concat());
            assert!(before == home.snapshot(), "{args:?} wrote to the home");
        }
        for n in 1..=6 {
            for args in
                [&["show", &t(n)][..], &["show", &t(n), "--raw"], &["show", &t(n), "--full"], &["resume", &t(n)]]
            {
                home.human(args);
                assert!(before == home.snapshot(), "{args:?} wrote to the home");
            }
        }
    }
}

/// The same with a name index, and with a database that has a `-wal` from elsewhere.
#[test]
fn b27_nor_to_a_copied_database() {
    let from = rich();
    let home = rich();
    let state = rusqlite::Connection::open(from.file("state_5.sqlite")).expect("the database");
    state.execute("UPDATE threads SET title = 'T2' WHERE title = 'T'", []).expect("a change");
    for file in ["state_5.sqlite", "state_5.sqlite-wal"] {
        home.write(file, fs::read(from.file(file)).expect("the database"));
    }
    home.idx(&t(2), "indexed", AT);
    let before = home.snapshot();
    for _ in 0..2 {
        assert_eq!(home.list(&[]).thread(&t(1))["name"], "T2");
        assert_eq!(home.show(&["indexed"]).json["thread"]["id"], t(2));
        for args in READING {
            home.human(args);
        }
    }
    assert!(before == home.snapshot());
}

/// A home on a read-only file system, or of another user.
#[test]
fn b105_a_home_that_cannot_be_written() {
    let home = rich();
    fn close(path: &Path, mode: u32) {
        for entry in fs::read_dir(path).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                close(&path, mode);
            } else {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o644)).expect("a mode");
            }
        }
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    }
    close(&home.path(), 0o555);
    let out = home.list(&["--all"]);
    assert_eq!(out.set(), ids(1..=6));
    assert_eq!(out.thread(&t(1))["name"], "T");
    assert_eq!(home.search(&["hello"]).hits().len(), 3);
    assert_eq!(home.show(&["T"]).turns().len(), 1);
    close(&home.path(), 0o755);
}

/// Whether a writer is at work is read from the system's table of locks; no lock is taken and none is tried.
#[test]
#[cfg(target_os = "linux")]
fn a_live_writer_is_seen_and_left_alone() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::healthy(&t(2), AT));
    let lock = home.write(&format!("thread-writer-locks/{}.lock", t(1)), "");
    home.write(&format!("thread-writer-locks/{}.lock", t(2)), "");
    assert_eq!(home.list(&[]).thread(&t(1))["live"], Value::Null, "a lock file that nobody holds");
    let held = fs::File::open(lock).expect("the lock file");
    held.try_lock().expect("the lock");
    let out = home.list(&[]);
    assert_eq!(out.thread(&t(1))["live"]["pid"], std::process::id());
    assert_eq!(out.thread(&t(2))["live"], Value::Null);
    assert_eq!(home.show(&[&t(1)]).json["thread"]["live"]["pid"], std::process::id());
    drop(held);
    assert_eq!(home.list(&[]).thread(&t(1))["live"], Value::Null);
}

/// The most memory that a run of the command used, in kB. Seen from outside, so it may miss the very last moment.
#[cfg(target_os = "linux")]
fn peak(home: &Home, args: &[&str]) -> u64 {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("threadkeep"))
        .arg("--home")
        .arg(home.path())
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    crate::write_run::watch(&mut child).0
}

/// One record of 60 MB, and a thread of 60 MB in many: neither is held whole.
#[test]
#[cfg(target_os = "linux")]
fn b37_memory_does_not_follow_the_size_of_a_record() {
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let log = Log::shaped(shape, &t(1), AT).meta().task_started().user("before").call("c1", "cat");
        let log = log.out("c1", &"x".repeat(60 << 20)).response(json!({
            "type": "reasoning", "summary": [], "encrypted_content": "A".repeat(20 << 20),
        }));
        home.put(&log.agent("after"));
        let mut log = Log::shaped(shape, &t(2), AT).meta();
        for n in 0..60 {
            log = log.task_started().user(&format!("question {n}")).out("c", &"y".repeat(1 << 20)).agent("ok");
        }
        home.put(&log);
        for args in [&["list"][..], &["list", "--count"], &["search", "nobody said this"], &["search", "after"]] {
            let kb = peak(&home, args);
            assert!(kb < 48 << 10, "{args:?} used {kb} kB");
        }
        for args in [&["stats"][..], &["why", &t(1)], &["why", &t(2)]] {
            let kb = peak(&home, args);
            assert!(kb < 64 << 10, "{args:?} used {kb} kB");
        }
        for args in [
            &["show", &t(2)][..],
            &["show", &t(2), "--jsonl"],
            &["show", &t(2), "--last", "1"],
            &["show", &t(2), "--turn", "2"],
            &["show", &t(2), "--raw"],
            &["resume", &t(2)],
        ] {
            let kb = peak(&home, args);
            assert!(kb < 64 << 10, "{args:?} used {kb} kB");
        }
    }
}

/// The same threads compressed, in one frame and in many.
#[test]
#[cfg(target_os = "linux")]
fn b65_memory_does_not_follow_the_size_of_a_compressed_thread() {
    let home = Home::new();
    let make = |thread: &str| {
        (0..60).fold(Log::new(thread, AT).meta(), |log, n| {
            let output = format!("{n}-").repeat(300_000);
            log.task_started().user(&format!("question {n}")).out("c", &output).agent("ok")
        })
    };
    let one = make(&t(1));
    home.put_zst(&one, &zstd::encode_all(one.bytes().as_slice(), 3).expect("zstd"));
    let many = make(&t(2));
    let frames = many.lines().iter().flat_map(|line| zstd::encode_all(line.as_slice(), 3).expect("zstd"));
    home.put_zst(&many, &frames.collect::<Vec<u8>>());
    for args in [
        &["list"][..],
        &["list", "--count"],
        &["search", "nobody said this"],
        &["show", &t(1), "--last", "1"],
        &["stats"],
        &["why", &t(1)],
        &["why", &t(2)],
    ] {
        let kb = peak(&home, args);
        assert!(kb < 64 << 10, "{args:?} used {kb} kB");
    }
    assert_eq!(home.search(&["question 59"]).hits().len(), 2);
}
