//! Copies of a fixture home as Codex must find it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use rusqlite::Connection;
use serde_json::Value;

/// Copies `source` to `target` and makes up for what a home loses in git and on its way: each rollout's modification
/// time is that of its last record again, and the paths in Codex's database lead into the copy. Returns the ids of
/// all threads that have a rollout.
pub fn make(source: &Path, target: &Path) -> Result<BTreeSet<String>> {
    let mut ids = BTreeSet::new();
    copy_dir(source, target, &mut ids)?;
    relocate_database(target)?;
    Ok(ids)
}

fn copy_dir(source: &Path, target: &Path, ids: &mut BTreeSet<String>) -> Result<()> {
    fs::create_dir_all(target).with_context(|| format!("cannot make {}", target.display()))?;
    for entry in fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))? {
        let entry = entry?;
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy_dir(&from, &to, ids)?;
            continue;
        }
        // Read and written, not `fs::copy`: that would also copy the mode of a fixture in a read-only checkout.
        let data = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        fs::write(&to, &data).with_context(|| format!("cannot write {}", to.display()))?;
        if entry.file_name().to_string_lossy().starts_with("rollout-") {
            let (id, last) = facts(&from, data).with_context(|| format!("{}", from.display()))?;
            ids.insert(id);
            if let Some(last) = last {
                let file = File::options().write(true).open(&to)?;
                file.set_modified(last).with_context(|| format!("cannot set the time of {}", to.display()))?;
            }
        }
    }
    Ok(())
}

/// The id of a rollout's thread and the time of its last record that has one.
fn facts(path: &Path, data: Vec<u8>) -> Result<(String, Option<SystemTime>)> {
    let plain = if path.extension().is_some_and(|e| e == "zst") { zstd::decode_all(&data[..])? } else { data };
    let records: Vec<Value> = plain
        .split(|&b| b == b'\n')
        .filter(|line| !line.trim_ascii().is_empty())
        .map(serde_json::from_slice)
        .collect::<Result<_, _>>()?;
    let first = records.first().context("the rollout is empty")?;
    // Before 0.35 the first line is the header itself.
    let id = first.get("payload").unwrap_or(first)["id"].as_str().context("the header has no id")?.to_owned();
    let last = records.iter().rev().find_map(|record| record["timestamp"].as_str());
    let last = last.map(str::parse::<Timestamp>).transpose().context("a record's time")?;
    Ok((id, last.map(SystemTime::from)))
}

/// `threads.rollout_path` is absolute and leads into the home that the fixture was recorded in.
fn relocate_database(home: &Path) -> Result<()> {
    let path = home.join("state_5.sqlite");
    if !path.exists() {
        return Ok(());
    }
    let mut db = Connection::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
    let change = db.transaction()?;
    let stored: Vec<String> = change
        .prepare("SELECT rollout_path FROM threads")?
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for old in stored {
        let Some(start) = ["/archived_sessions/", "/sessions/"].iter().find_map(|part| old.find(part)) else {
            continue;
        };
        let new = format!("{}{}", home.display(), &old[start..]);
        change.execute("UPDATE threads SET rollout_path = ?1 WHERE rollout_path = ?2", (&new, &old))?;
    }
    change.commit().with_context(|| format!("cannot rewrite the paths in {}", path.display()))
}
