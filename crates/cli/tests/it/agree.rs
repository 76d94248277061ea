//! Every list, search, `show` and `stats` of these tests is asked again with an index, with half of one, and with one that is out of date:
//! the answers must be those of the files.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;
use threadkeep_index::listed::{Cut, Finished, Keep, Listed};
use threadkeep_index::{Index, IndexOptions, IndexPlace};

use crate::home::{Home, Out, clean};

/// An answer is asked for again in these ways.
const WAYS: [&str; 3] = ["whole", "half", "old"];

static NEXT: AtomicUsize = AtomicUsize::new(0);

pub fn with_an_index(home: &Home, plain: &Out) {
    let asks = plain.args.iter().any(|a| ["list", "search", "show", "stats"].contains(&a.as_str())) && plain.code <= 1;
    // What says itself how it wants its index is another test's.
    let own = plain.args.iter().any(|a| a.starts_with("--index-dir") || a == "--no-index");
    // An order by modification time says of itself that it may not be the right one.
    let inexact = plain.json["index"]["reason"].as_str().is_some_and(|r| r.starts_with("ordered by modification"));
    if !asks || own || inexact || plain.json.get("error").is_some() || !home.path().is_dir() {
        return;
    }
    // A build for tests reads large homes slowly.
    if size(&home.path()) > 20 << 20 {
        return;
    }
    let folder = TempDir::new().expect("a temporary folder");
    // Files that were written this moment are not trusted to stay as they are.
    std::thread::sleep(Duration::from_millis(25));
    let before = home.stamps();
    run(home, folder.path(), &["reindex".into()]);
    // One of the ways each time, for there are very many tests.
    let way = WAYS[NEXT.fetch_add(1, Ordering::Relaxed) % WAYS.len()];
    spoil(home, folder.path(), way);
    let with = run(home, folder.path(), &plain.args);
    let answer: Value = serde_json::from_slice(&with).unwrap_or_else(|e| panic!("{e}: {with:?}"));
    same(&plain.json, &answer, &format!("{way} index, {:?}", plain.args));
    assert!(before == home.stamps(), "an index elsewhere changed the home: {:?}", plain.args);
}

fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |path: &Path| match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => size(path),
        Ok(meta) => meta.len(),
        Err(_) => 0,
    };
    entries.map(|entry| of(&entry.path())).sum()
}

fn run(home: &Home, folder: &Path, args: &[String]) -> Vec<u8> {
    let mut command = Command::cargo_bin("threadkeep").expect("the command is built");
    command.arg("--home").arg(home.path()).arg("--index-dir").arg(folder).args(args).timeout(Duration::from_secs(60));
    clean(&mut command, folder);
    let output = command.output().expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|c| c <= 1) && !stderr.contains("panicked"), "{args:?}: {stderr}");
    output.stdout
}

/// Makes the index one that is not finished, or that speaks of other files.
fn spoil(home: &Home, folder: &Path, way: &str) {
    if way == "whole" {
        return;
    }
    let options = IndexOptions {
        home: threadkeep_rollout::Home::new(home.path()),
        place: IndexPlace::Dir(folder.to_owned()),
        busy: Duration::from_secs(20),
    };
    let index = Index::open(options).expect("the index");
    let listing = index.listing().expect("what is kept");
    if way == "half" {
        let half: Vec<_> = listing.threads.iter().map(|l| l.thread).step_by(2).collect();
        index.keep(&[], &half, Finished::NotYet).expect("forgotten");
        for entry in fs::read_dir(folder).expect("the folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "sqlite") {
                let connection = rusqlite::Connection::open(&path).expect("the index");
                connection.execute_batch("DELETE FROM marks WHERE mark = 'whole'").expect("its tables");
            }
        }
        return;
    }
    let facet = listing.facets.values().min().cloned().unwrap_or_default();
    let old = |l: &Listed| Keep {
        listed: Listed { print: l.print.wrapping_add(1), updated_at: 7, ..*l },
        facet: facet.clone(),
        row: "{}".into(),
        preview: None,
        cut: Cut::No,
        depends: vec![],
        touched: vec![],
    };
    let old: Vec<Keep> = listing.threads.iter().map(old).collect();
    index.keep(&old, &[], Finished::NotYet).expect("kept");
}

/// What one answer does not know, the other may; what both know must be the same.
fn same(plain: &Value, with: &Value, way: &str) {
    match (plain, with) {
        (Value::Null, _) | (_, Value::Null) => {}
        (Value::Object(a), Value::Object(b)) => {
            for (key, value) in a {
                // Cursors hold marks of their own, reasons and notes say how it was done.
                if !matches!(key.as_str(), "index" | "next_cursor" | "notes" | "live" | "capability_roots" | "source") {
                    same(value, b.get(key).unwrap_or(&Value::Null), &format!("{way}: {key}"));
                }
            }
            let more = |o: &Value| o.get("next_cursor").is_some_and(Value::is_string);
            assert_eq!(more(plain), more(with), "{way}: next_cursor");
        }
        (Value::Array(a), Value::Array(b)) => {
            let ids =
                |rows: &[Value]| rows.iter().map(|r| r.get("id").or(r.get("thread_id")).cloned()).collect::<Vec<_>>();
            assert_eq!(ids(a), ids(b), "{way}");
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                same(a, b, &format!("{way}: {i}"));
            }
        }
        (a, b) => assert_eq!(a, b, "{way}"),
    }
}
