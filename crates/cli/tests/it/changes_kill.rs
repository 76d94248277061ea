//! Commands that are killed at any moment: whatever they leave, the next change in the home ends it.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::home::Home;
use crate::log::{Log, t};
use crate::write_run::change;

const AT: &str = "2026-08-20T01:10:00Z";
const THREADS: u32 = 3;

/// Where each file of a thread is (its first folders), with its bytes.
fn places(home: &Home, n: u32) -> BTreeMap<Vec<u8>, String> {
    let mut found = BTreeMap::new();
    let mut todo = vec![home.path()];
    while let Some(folder) = todo.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()) {
            let rel = path.strip_prefix(home.path()).unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                todo.push(path);
            } else if rel.contains(&t(n)) && (rel.ends_with(".jsonl") || rel.ends_with(".zst")) {
                let place = rel.split('/').next().unwrap().to_owned();
                let twice = found.insert(fs::read(&path).unwrap(), place);
                assert_eq!(twice, None, "{rel} is at two places");
            }
        }
    }
    found
}

#[test]
fn a_command_that_is_killed_leaves_nothing_half_done() {
    let home = Home::new();
    let mut state = home.state();
    for n in 1..=THREADS {
        let log = Log::healthy(&t(n), AT);
        home.put(&log);
        home.put_zst(&log, &zstd::encode_all(&log.bytes()[..], 3).unwrap());
        home.idx(&t(n), &format!("name {n}"), AT);
        state = state.row(&t(n), &[]);
    }
    state.close();
    let begun: Vec<_> = (1..=THREADS).map(|n| places(&home, n).into_keys().collect::<Vec<_>>()).collect();
    let program = assert_cmd::cargo::cargo_bin("threadkeep");
    let mut unfinished = 0;
    // Numbers that look random and are the same in every run.
    let mut seed = 7_u64;
    let mut next = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    // How long a change takes differs from machine to machine, and from load to load.
    let begins = Instant::now();
    change(&home, &["archive", &t(1), &t(2), &t(3)]);
    change(&home, &["unarchive", &t(1), &t(2), &t(3)]);
    let whole = u64::try_from(begins.elapsed().as_micros() / 2).unwrap().max(1_000);
    for round in 0..600 {
        if round >= 80 && unfinished > 5 {
            break;
        }
        let command = [&["archive"][..], &["unarchive"], &["delete", "--yes"], &["restore"]][next(4) as usize];
        let mut child = Command::new(&program);
        child.arg("--home").arg(home.path()).args(command).env("THREADKEEP_NO_INDEX", "1");
        child.args((1..=THREADS).filter(|_| next(3) > 0).map(t)).arg(t(1));
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(next(whole + whole / 10)));
        child.kill().unwrap();
        child.wait().unwrap();
        let journals = |end: &str| {
            let names = fs::read_dir(home.file("threadkeep/journal")).into_iter().flatten();
            names.filter(|e| e.as_ref().is_ok_and(|e| e.file_name().to_string_lossy().ends_with(end))).count()
        };
        unfinished += journals(".json");
        // A change of something else.
        change(&home, &["archive", &t(77)]);
        assert_eq!((journals(".json"), journals(".part")), (0, 0), "round {round}: {command:?}");
        let sql = rusqlite::Connection::open(home.file("state_5.sqlite")).unwrap();
        let names = fs::read_to_string(home.file("session_index.jsonl")).unwrap();
        for n in 1..=THREADS {
            let files = places(&home, n);
            assert_eq!(files.keys().cloned().collect::<Vec<_>>(), begun[n as usize - 1], "round {round}: every byte");
            let mut at: Vec<&String> = files.values().collect();
            at.dedup();
            assert_eq!(at.len(), 1, "round {round}: {command:?} of thread {n}: {files:?}");
            let row = sql.query_row("SELECT archived FROM threads WHERE id = ?1", [t(n)], |r| r.get::<_, bool>(0)).ok();
            let there = match at[0].as_str() {
                "sessions" => (Some(false), true),
                "archived_sessions" => (Some(true), true),
                _ => (None, false),
            };
            assert_eq!((row, names.contains(&t(n))), there, "round {round}: {command:?} of thread {n} at {}", at[0]);
        }
    }
    assert!(unfinished > 5, "the kills come at the right time: {unfinished}");
}
