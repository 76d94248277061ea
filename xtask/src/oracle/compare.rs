//! What two lists of the same home say about each thread.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::Value;

/// Codex may tell an `updatedAt` out of its database that is minutes from the last record's time; more is an error.
const UPDATED_TOLERANCE_S: i64 = 600;

#[derive(Debug, Default)]
pub struct Comparison {
    /// Threads that have a rollout.
    pub threads: usize,
    /// Of these, those that Codex lists.
    pub codex: usize,
    /// Rows that threadkeep prints.
    pub threadkeep: usize,
    pub failures: Vec<String>,
    /// Differences that are known and allowed.
    pub notes: Vec<String>,
}

/// Compares Codex's threads by id with the object that `threadkeep list --json` prints.
pub fn compare(ids: &BTreeSet<String>, oracle: &BTreeMap<String, Value>, list: &Value) -> Result<Comparison> {
    let rows = list["threads"].as_array().context("threadkeep's object has no threads")?;
    let mut result = Comparison {
        threads: ids.len(),
        codex: oracle.keys().filter(|id| ids.contains(*id)).count(),
        threadkeep: rows.len(),
        ..Comparison::default()
    };
    let mut ours = BTreeMap::new();
    for row in rows {
        let id = row["id"].as_str().context("a row of threadkeep without an id")?;
        if ours.insert(id, row).is_some() {
            result.failures.push(format!("threadkeep lists {id} more than once"));
        }
        // A row of Codex's database whose file is gone is listed while it has a name; it says so by having no files.
        let only_a_row = row["files"].as_array().is_some_and(Vec::is_empty) && row["name"].is_string();
        if !ids.contains(id) && only_a_row {
            result.notes.push(format!("{id}: a named row of Codex's database without a file"));
        } else if !ids.contains(id) {
            result.failures.push(format!("threadkeep lists {id}, which has no rollout"));
        }
    }
    for id in ids.iter().filter(|id| !ours.contains_key(id.as_str())) {
        result.failures.push(format!("threadkeep does not list {id}"));
    }
    for (id, theirs) in oracle {
        if !ids.contains(id) {
            result.failures.push(format!("Codex lists {id}, which has no rollout"));
        }
        if let Some(row) = ours.get(id.as_str()) {
            compare_thread(id, theirs, row, &mut result);
        }
    }
    Ok(result)
}

fn compare_thread(id: &str, theirs: &Value, ours: &Value, result: &mut Comparison) {
    for (their_name, our_name) in [
        ("archived", "archived"),
        ("preview", "preview"),
        ("cwd", "cwd"),
        ("name", "name"),
        ("historyMode", "history_mode"),
    ] {
        let (their, our) = (&theirs[their_name], &ours[our_name]);
        // Codex derives a title from the second message where the first is only an image, then takes it for a name.
        let derived = our_name == "name" && our.is_null() && theirs["preview"] == "[Image]";
        if their != our && !derived {
            result.failures.push(format!("{id}: {our_name} is {our}, Codex has {their}"));
        }
    }
    let (their, our) = (theirs["createdAt"].as_i64(), seconds(&ours["created_at"]));
    // Codex's database keeps the moment before it wrote the header, which may fall into the second before.
    let apart = their.zip(our).map(|(t, o)| (t - o).abs());
    if apart == Some(1) {
        result.notes.push(format!("{id}: created_at is 1 s beside Codex's"));
    } else if their != our {
        result.failures.push(format!("{id}: created_at is {our:?}, Codex has {their:?}"));
    }
    match (theirs["updatedAt"].as_i64(), seconds(&ours["updated_at"])) {
        (Some(their), Some(our)) if their == our => {}
        (Some(their), Some(our)) => {
            let text = format!("{id}: updated_at is {} s after Codex's", our - their);
            let known = (our - their).abs() <= UPDATED_TOLERANCE_S;
            if known { &mut result.notes } else { &mut result.failures }.push(text);
        }
        (their, our) => result.failures.push(format!("{id}: updated_at is {our:?}, Codex has {their:?}")),
    }
}

/// Whole Unix seconds, as Codex tells times.
fn seconds(time: &Value) -> Option<i64> {
    time.as_str()?.parse::<Timestamp>().ok().map(Timestamp::as_second)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn oracle() -> BTreeMap<String, Value> {
        let thread = json!({
            "archived": false, "preview": "hello", "cwd": "/w", "name": null, "historyMode": "legacy",
            "createdAt": 1_764_504_000, "updatedAt": 1_764_504_060,
        });
        BTreeMap::from([("a".to_owned(), thread)])
    }

    fn row(id: &str) -> Value {
        json!({
            "id": id, "archived": false, "preview": "hello", "cwd": "/w", "name": null, "history_mode": "legacy",
            "created_at": "2025-11-30T12:00:00.900Z", "updated_at": "2025-11-30T12:01:00.000Z",
        })
    }

    fn compare_rows(rows: &[Value]) -> Comparison {
        let ids = ["a", "b"].map(str::to_owned).into();
        compare(&ids, &oracle(), &json!({ "threads": rows })).unwrap()
    }

    #[test]
    fn what_agrees_passes() {
        let result = compare_rows(&[row("a"), row("b")]);
        assert_eq!(result.failures, [""; 0]);
        assert_eq!(result.notes, [""; 0]);
        assert_eq!((result.threads, result.codex, result.threadkeep), (2, 1, 2));
    }

    #[test]
    fn a_thread_must_be_there_once() {
        assert_eq!(compare_rows(&[row("a")]).failures, ["threadkeep does not list b"]);
        let twice = compare_rows(&[row("a"), row("b"), row("a")]);
        assert_eq!(twice.failures, ["threadkeep lists a more than once"]);
        let unknown = compare_rows(&[row("a"), row("b"), row("c")]);
        assert_eq!(unknown.failures, ["threadkeep lists c, which has no rollout"]);
    }

    #[test]
    fn every_field_is_compared() {
        for (field, value) in [
            ("archived", json!(true)),
            ("preview", json!("hello!")),
            ("cwd", json!("/v")),
            ("name", json!("n")),
            ("history_mode", Value::Null),
            ("created_at", json!("2025-11-30T12:00:02.000Z")),
            ("updated_at", Value::Null),
        ] {
            let mut changed = row("a");
            changed[field] = value;
            let failures = compare_rows(&[changed, row("b")]).failures;
            assert!(failures.len() == 1 && failures[0].contains(field), "{field}: {failures:?}");
        }
    }

    #[test]
    fn minutes_between_times_are_told_but_allowed() {
        let mut late = row("a");
        late["updated_at"] = json!("2025-11-30T12:11:00.000Z");
        let result = compare_rows(&[late.clone(), row("b")]);
        assert_eq!((result.notes.len(), result.failures.len()), (1, 0));
        late["updated_at"] = json!("2025-11-30T12:11:01.000Z");
        let result = compare_rows(&[late, row("b")]);
        assert_eq!((result.notes.len(), result.failures.len()), (0, 1));
    }
}
