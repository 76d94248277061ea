//! Several processes at one file, and one that is killed. The processes are this test binary, started again.
#![cfg(unix)]
#![allow(missing_docs, reason = "tests")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{home, id, open, options, raw};
use threadkeep_index::{EdgeStatus, Index, IndexError, IndexPlace, Placed};
use threadkeep_record::{Field, MetadataPatch, UtcMillis};

const HOME: &str = "THREADKEEP_INDEX_TEST_HOME";
const JOB: &str = "THREADKEEP_INDEX_TEST_JOB";
const ROUNDS: u32 = 150;

fn start(job: &str, home: &Path) -> Child {
    Command::new("sh")
        .args(["-c", "umask 022; exec \"$0\" --exact the_other_process --ignored --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .envs([(HOME, home.as_os_str()), (JOB, job.as_ref())])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What a started process does; nothing by itself.
#[test]
#[ignore = "started by the other tests"]
fn the_other_process() {
    let Some(home) = std::env::var_os(HOME).map(PathBuf::from) else { return };
    match std::env::var(JOB).unwrap().as_str() {
        "touch" => touch(&home),
        "write" => write(&home),
        "make" => {
            open(&home).patch(id(1), &MetadataPatch::touch(UtcMillis(1))).unwrap();
            // Ended without closing, so that what is beside the file stays.
            let index = open(&home);
            index.patch(id(1), &MetadataPatch::touch(UtcMillis(2))).unwrap();
            std::process::exit(0);
        }
        other => panic!("no such job: {other}"),
    }
}

/// Moves the recency of one thread by one, again and again. Busy is the only error there may be.
fn touch(home: &Path) {
    let index = loop {
        match Index::open(options(home, IndexPlace::Home)) {
            Ok(index) => break index,
            Err(IndexError::Busy { .. }) => {}
            Err(e) => panic!("{e}"),
        }
    };
    assert!(matches!(index.place(), Placed::File { .. }), "{:?}", index.place());
    let patch = MetadataPatch { advance_recency_at: Some(UtcMillis(0)), ..MetadataPatch::default() };
    let mut done = 0;
    while done < ROUNDS {
        let result = if done % 2 == 0 {
            index.patch(id(1), &patch)
        } else {
            index.observe(&[(id(1), patch.clone()), (id(2), patch.clone())])
        };
        match result {
            Ok(()) => done += 1,
            Err(IndexError::Busy { .. }) => {}
            Err(e) => panic!("{e}"),
        }
        index.get(id(1)).unwrap();
    }
}

/// Writes ever higher numbers into four threads and edges, and says each number that was acknowledged.
fn write(home: &Path) {
    let index = open(home);
    let mut out = std::io::stdout();
    let first = index.get(id(1)).unwrap().and_then(|m| m.updated_at).map_or(0, |t| t.0);
    for n in first + 1.. {
        let patch = MetadataPatch {
            preview: Some(format!("{n} ").repeat(500)),
            name: Field::Set(n.to_string()),
            ..MetadataPatch::touch(UtcMillis(n))
        };
        index.observe(&[1, 2, 3, 4].map(|t| (id(t), patch.clone()))).unwrap();
        index.upsert_edge(id(1), id(u8::try_from(n % 200).unwrap()), EdgeStatus::Open).unwrap();
        writeln!(out, "done {n}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn many_processes_and_threads_lose_nothing_of_each_other() {
    let home = home();
    // None is there yet: they also make the file together.
    let mut children: Vec<Child> = (0..6).map(|_| start("touch", home.path())).collect();
    let shared = open(home.path());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| touch(home.path()));
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    shared
                        .patch(
                            id(3),
                            &MetadataPatch { advance_recency_at: Some(UtcMillis(0)), ..MetadataPatch::default() },
                        )
                        .unwrap();
                }
            });
        }
    });
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let recency = |n| shared.get(id(n)).unwrap().unwrap().recency_at.unwrap().0;
    let rounds = i64::from(ROUNDS);
    assert_eq!((recency(1), recency(2), recency(3)), (8 * rounds - 1, 8 * rounds / 2 - 1, 2 * rounds - 1));
}

#[test]
fn a_writer_killed_at_any_moment_leaves_a_usable_file_with_what_it_acknowledged() {
    let home = home();
    let mut last = 0;
    for round in 0..12u64 {
        let mut child = start("write", home.path());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut acknowledged = last;
        // Early rounds are killed while the file is being made.
        if round >= 3 {
            for _ in 0..round * 5 {
                let line = lines.next().unwrap().unwrap();
                if let Some(n) = line.strip_prefix("done ") {
                    acknowledged = n.parse().unwrap();
                }
            }
        }
        std::thread::sleep(Duration::from_micros(round * 700));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            if let Some(n) = line.strip_prefix("done ") {
                acknowledged = n.parse().unwrap();
            }
        }
        let index = open(home.path());
        let all = [1, 2, 3, 4].map(|n| index.get(id(n)).unwrap());
        assert!(all.iter().all(|row| *row == all[0]), "half of a transaction");
        let found = all[0].as_ref().and_then(|m| m.updated_at).map_or(0, |t| t.0);
        assert!(found >= acknowledged, "{acknowledged} was acknowledged, {found} is there");
        let Placed::File { path, .. } = index.place() else { panic!("in memory") };
        let check: String = raw(&path).query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
        assert_eq!(check, "ok");
        last = found;
    }
    assert!(last > 50);
}

#[test]
fn files_are_the_users_own_whatever_the_mask() {
    use std::os::unix::fs::PermissionsExt;
    let home = home();
    assert!(start("make", home.path()).wait().unwrap().success());
    let folder = home.path().join("threadkeep");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&folder), 0o700);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        names.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    names.sort();
    assert_eq!(names, ["index.sqlite", "index.sqlite-shm", "index.sqlite-wal"]);
}
