//! The generator's promises: the same home for the same seed, and a manifest that tells the truth.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::*;
use crate::manifest;

fn make(dir: &Path, change: impl FnOnce(&mut Options)) -> Vec<Entry> {
    let mut options = Options::with_defaults(dir.to_owned(), 60);
    options.archived = 0.2;
    options.small_base = true;
    change(&mut options);
    run(&options).unwrap();
    manifest::read(dir).unwrap()
}

fn rollout(home: &Path, entry: &Entry) -> String {
    let data = fs::read(home.join(&entry.path)).unwrap();
    let data = if entry.path.ends_with(".zst") { zstd::decode_all(&data[..]).unwrap() } else { data };
    String::from_utf8(data).unwrap()
}

fn files(home: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = manifest::read(home).unwrap();
    let names = ["manifest.jsonl", "session_index.jsonl", "config.toml"].map(str::to_owned);
    let paths = entries.into_iter().map(|e| e.path).chain(names);
    paths.map(|path| (path.clone(), fs::read(home.join(path)).unwrap())).collect()
}

#[test]
fn a_seed_gives_one_home() {
    let dir = tempfile::tempdir().unwrap();
    let [one, same, other] = ["one", "same", "other"].map(|name| dir.path().join(name));
    make(&one, |_| ());
    make(&same, |_| ());
    make(&other, |options| options.seed = 2);
    assert_eq!(files(&one), files(&same));
    assert_ne!(files(&one), files(&other));
}

#[test]
fn the_manifest_is_true() {
    let dir = tempfile::tempdir().unwrap();
    let entries = make(dir.path(), |options| options.zst = 0.2);
    assert_eq!(entries.len(), 60);
    assert!(entries.iter().any(|e| e.archived));
    assert!(entries.iter().any(|e| e.path.ends_with(".zst")));
    assert!(entries.iter().any(|e| e.format == "paginated"));
    for entry in &entries {
        let text = rollout(dir.path(), entry);
        let records: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let meta = &records[0]["payload"];
        assert_eq!(meta["id"], entry.id.as_str());
        assert_eq!(meta["cwd"], entry.cwd.as_str());
        assert_eq!(meta["cli_version"], entry.ver.as_str());
        assert_eq!(meta["source"], entry.source.as_str());
        assert_eq!(entry.path.starts_with("archived_sessions/"), entry.archived);
        assert_eq!(text.contains(" zebracorn"), entry.zebracorn);

        let metadata = fs::metadata(dir.path().join(&entry.path)).unwrap();
        assert_eq!(metadata.len(), entry.bytes);
        let mtime = metadata.modified().unwrap().duration_since(UNIX_EPOCH).unwrap();
        assert_eq!(mtime.as_millis() as i64, entry.mtime_ms());
        let last = records.last().unwrap()["timestamp"].as_str().unwrap();
        assert_eq!(last, format!("{:.3}", timestamp(entry.mtime_ms() as u64)));

        let messages = records.iter().filter_map(|record| {
            let payload = &record["payload"];
            let paginated = &payload["item"]["content"][0]["text"];
            match payload["type"].as_str()? {
                "user_message" => payload["message"].as_str(),
                "item_completed" if payload["item"]["type"] == "UserMessage" => paginated.as_str(),
                _ => None,
            }
        });
        let messages: Vec<&str> = messages.collect();
        assert_eq!(messages.len(), entry.turns);
        assert!(messages[0].starts_with(&entry.first));
        for other in &entries {
            assert_eq!(messages[0].ends_with(&other.needle), other.id == entry.id);
        }
        if entry.format == "paginated" {
            let ordinals: Vec<u64> = records.iter().map(|r| r["ordinal"].as_u64().unwrap()).collect();
            assert!(ordinals.iter().copied().eq(0..records.len() as u64));
        }
    }
}

#[test]
fn exact_sizes_are_further_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let entries = make(dir.path(), |options| options.exact = vec![0.5, 1.0]);
    assert_eq!(entries.len(), 62);
    let mut exact: Vec<(f64, u64)> = entries.iter().filter_map(|e| Some((e.exact?, e.bytes))).collect();
    exact.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(exact.iter().map(|e| e.0).collect::<Vec<_>>(), [0.5, 1.0]);
    for (mb, bytes) in exact {
        assert!(bytes as f64 >= mb * 1e6 && (bytes as f64) < mb * 1e6 + 400_000.0, "{mb} MB: {bytes}");
    }
}

#[test]
fn a_home_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("config.toml"), "").unwrap();
    let error = run(&Options::with_defaults(dir.path().to_owned(), 1)).unwrap_err();
    assert!(error.to_string().contains("is not empty"), "{error}");
}

/// What is read of a made home can be written again byte for byte, plain and compressed.
#[test]
fn every_record_survives_reading() {
    use threadkeep_record::{Envelope, LineState, check_line};
    use threadkeep_rollout::records::{BUFFER, LineReader};
    use threadkeep_rollout::source::Follow;

    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    for entry in make(&home, |options| options.zst = 0.3) {
        let form = threadkeep_rollout::RolloutName::parse(entry.path.rsplit('/').next().unwrap()).unwrap().form;
        let mut again = Vec::new();
        let mut lines = LineReader::open(&home.join(&entry.path), form, Follow::Nothing, BUFFER).unwrap();
        while let Some(line) = lines.next_line() {
            let LineState::Record(record) = check_line(line.bytes) else {
                panic!("line {} of {}", line.number, entry.path)
            };
            let payload = Envelope::parse(record).unwrap().payload.as_bytes().as_ptr_range();
            assert!(record.as_ptr_range().contains(&payload.start) && payload.end <= record.as_ptr_range().end);
            again.extend_from_slice(line.bytes);
            again.push(b'\n');
        }
        assert!(again == rollout(&home, &entry).into_bytes(), "{}", entry.path);
    }
}
