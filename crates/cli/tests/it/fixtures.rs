//! The homes in `fixtures/homes`, written by released binaries: exactly the threads that are there, as a plain reading of
//! their lines says.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    home::{Home, damage},
    log::rfc3339,
};

const VERSIONS: [(&str, usize); 8] = [
    ("0.20.0", 19),
    ("0.44.0", 19),
    ("0.63.0", 24),
    ("0.98.0", 36),
    ("0.118.0", 26),
    ("0.142.0", 26),
    ("0.156.0", 27),
    ("0.171.0", 28),
];

/// What a plain reading of a thread's files says.
struct Truth {
    files: Vec<String>,
    header: Value,
    last: Option<Timestamp>,
    bytes: usize,
    records: usize,
}

fn fixture(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes").join(version)
}

/// The rollouts below `dir` with their lines, oldest name first.
fn rollouts(root: &Path, dir: &Path, all: &mut Vec<(String, Vec<Value>, usize)>) {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(dir).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
        if path.is_dir() {
            rollouts(root, &path, all);
        } else if name.starts_with("rollout-") {
            let bytes = fs::read(&path).expect("a rollout");
            let text =
                if name.ends_with(".zst") { zstd::decode_all(bytes.as_slice()).expect("zstd") } else { bytes.clone() };
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let lines = lines.map(|line| serde_json::from_slice(line).expect("a record")).collect();
            all.push((path.strip_prefix(root).expect("below").to_str().expect("UTF-8").to_owned(), lines, bytes.len()));
        }
    }
}

fn truth(home: &Path) -> BTreeMap<String, Truth> {
    let mut all = Vec::new();
    rollouts(home, home, &mut all);
    let mut threads: BTreeMap<String, Truth> = BTreeMap::new();
    for (path, lines, bytes) in all {
        let header = lines[0].get("payload").unwrap_or(&lines[0]).clone();
        let last = lines.last().and_then(|line| line["timestamp"].as_str()).filter(|_| lines.len() > 1);
        let last = last.map(|time| time.parse().expect("a time"));
        let id = header["id"].as_str().expect("an id").to_owned();
        let thread = threads.entry(id).or_insert(Truth { files: Vec::new(), header, last: None, bytes: 0, records: 0 });
        thread.files.push(path);
        thread.last = thread.last.max(last);
        thread.bytes += bytes;
        thread.records += lines.len();
    }
    threads
}

/// Every thread of every version, with lineage, place, times and sizes.
#[test]
fn every_fixture_home_is_listed_as_it_is() {
    for (version, count) in VERSIONS {
        let home = Home::copy_of(&fixture(version));
        let truth = truth(&home.path());
        assert_eq!(truth.len(), count, "{version}");
        let out = home.list(&["--all", "--count", "--limit", "500"]);
        let listed: Vec<&Value> =
            out.json["threads"].as_array().expect("threads").iter().filter(|row| row["files"] != json!([])).collect();
        assert_eq!(listed.len(), count, "{version}: {:?}", out.ids());
        for (id, truth) in &truth {
            let row = out.thread(id);
            let context = format!("{version} {row}");
            assert_eq!(damage(row), 0, "{context}");
            for key in ["cwd", "originator", "cli_version", "forked_from_id", "thread_source", "source"] {
                if let Some(value) = truth.header.get(key) {
                    assert_eq!(&row[key], value, "{key} {context}");
                }
            }
            let created: Timestamp = truth.header["timestamp"].as_str().expect("a time").parse().expect("a time");
            assert_eq!(row["created_at"], rfc3339(created), "{context}");
            if let Some(last) = truth.last {
                assert_eq!(row["updated_at"], rfc3339(last), "{context}");
            }
            assert_eq!((&row["bytes"], &row["records"]), (&json!(truth.bytes), &json!(truth.records)), "{context}");
            assert_eq!(row["archived"], truth.files[0].starts_with("archived"), "{context}");
            let mut files: Vec<&str> =
                row["files"].as_array().expect("files").iter().filter_map(|file| file["path"].as_str()).collect();
            files.sort_unstable();
            let mut expected: Vec<&str> = truth.files.iter().map(String::as_str).collect();
            expected.sort_unstable();
            assert_eq!(files, expected, "{context}");
        }
    }
}

/// Every thread can be shown and its bytes given back.
#[test]
fn every_fixture_thread_is_shown() {
    for (version, _) in VERSIONS {
        let home = Home::copy_of(&fixture(version));
        for (id, truth) in truth(&home.path()) {
            let shown = home.show(&[&id]);
            assert_eq!(shown.json["thread"]["id"], id, "{version}");
            assert_eq!(home.human(&["show", &id]).code, 0);
            if let [path] = truth.files.as_slice()
                && truth.header.get("history_base").is_none()
            {
                let bytes = fs::read(home.file(path)).expect("a rollout");
                let bytes =
                    if path.ends_with(".zst") { zstd::decode_all(bytes.as_slice()).expect("zstd") } else { bytes };
                assert_eq!(home.human(&["show", &id, "--raw"]).bytes, bytes, "{version} {path}");
            }
        }
    }
}

/// What was said in them is found, each time with its thread.
#[test]
fn what_was_said_in_the_fixture_homes_is_found() {
    for (version, _) in VERSIONS {
        let home = Home::copy_of(&fixture(version));
        let out = home.search(&["plain hello", "--limit", "500"]);
        assert!(!out.hits().is_empty(), "{version}");
        assert!(out.speakers().contains(&"user"), "{version}");
        for hit in out.hits() {
            let id = hit["thread_id"].as_str().expect("a thread");
            if let Some(number) = hit["turn_number"].as_u64() {
                let shown = home.show(&[id, "--turn", &number.to_string()]);
                assert!(shown.said().to_lowercase().contains("plain hello"), "{version} {hit}");
            }
        }
    }
}
