//! A fast wrong answer is worth nothing: what is measured is checked against the manifest first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::manifest::Entry;
use crate::peers::Terms;

/// Runs `threadkeep --home HOME ARGS… --json` and gives the object; the second argument is the exit code to expect.
pub type Ask<'a> = &'a dyn Fn(&[&str], i32) -> Result<Value>;

pub fn all(home: &Path, manifest: &[Entry], terms: &Terms, ask: Ask<'_>) -> Result<()> {
    first_page(manifest, &ask(&["list"], 0)?).context("list")?;
    first_page(manifest, &ask(&["list", "--exact"], 0)?).context("list --exact")?;

    let rare: BTreeSet<&str> = manifest.iter().filter(|e| e.needle == terms.rare).map(|e| e.id.as_str()).collect();
    threads_found(&terms.rare, &rare, ask)?;
    // Case does not matter by default.
    threads_found(&terms.rare.to_uppercase(), &rare, ask)?;
    let one_percent = manifest.iter().filter(|e| e.zebracorn).map(|e| e.id.as_str()).collect();
    threads_found(Terms::ONE_PERCENT, &one_percent, ask)?;

    common_word(home, manifest, &ask(&["search", Terms::COMMON], 0)?).context("search for a common word")?;
    let none = ask(&["search", Terms::ABSENT], 1)?;
    ensure!(hits(&none)?.is_empty(), "search {} has hits, but no thread says it: {none}", Terms::ABSENT);
    Ok(())
}

/// The newest 50 of what is shown by default, newest first. Times are compared, so that two threads of the same
/// moment may stand in either order.
fn first_page(manifest: &[Entry], page: &Value) -> Result<()> {
    let shown: BTreeMap<&str, i64> =
        manifest.iter().filter(|e| e.listed_by_default()).map(|e| (e.id.as_str(), e.mtime_ms())).collect();
    let mut expected: Vec<i64> = shown.values().copied().collect();
    expected.sort_unstable_by(|a, b| b.cmp(a));
    expected.truncate(50);

    let rows = page["threads"].as_array().context("the object has no threads")?;
    let mut seen = BTreeSet::new();
    let mut times = Vec::new();
    for row in rows {
        let id = row["id"].as_str().context("a thread without an id")?;
        let time = shown.get(id).with_context(|| format!("{id} should not be shown by default"))?;
        ensure!(seen.insert(id), "{id} is listed twice");
        times.push(*time);
    }
    if let Some(at) = (0..expected.len().max(times.len())).find(|&i| expected.get(i) != times.get(i)) {
        bail!("row {} should be of time {:?}, but is of {:?}", at + 1, expected.get(at), times.get(at));
    }
    Ok(())
}

fn hits(page: &Value) -> Result<&Vec<Value>> {
    page["hits"].as_array().context("the object has no hits")
}

fn thread_id(hit: &Value) -> Result<&str> {
    hit["thread_id"].as_str().context("a hit without a thread_id")
}

/// Exactly these threads, over all pages.
fn threads_found(term: &str, expected: &BTreeSet<&str>, ask: Ask<'_>) -> Result<()> {
    let mut found = BTreeSet::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut args = vec!["search", term, "--limit", "1000"];
        if let Some(cursor) = &cursor {
            args.extend(["--cursor", cursor]);
        }
        let page = ask(&args, 0)?;
        for hit in hits(&page)? {
            found.insert(thread_id(hit)?.to_owned());
        }
        match page["next_cursor"].as_str() {
            Some(next) if cursor.as_deref() != Some(next) => cursor = Some(next.to_owned()),
            Some(next) => bail!("search {term}: the cursor {next} leads to itself"),
            None => break,
        }
    }
    let missing: Vec<_> = expected.iter().filter(|id| !found.contains(**id)).take(3).collect();
    let surplus: Vec<_> = found.iter().filter(|id| !expected.contains(id.as_str())).take(3).collect();
    ensure!(
        missing.is_empty() && surplus.is_empty(),
        "search {term} finds {} threads instead of {}; missing {missing:?}…, too many {surplus:?}…",
        found.len(),
        expected.len()
    );
    Ok(())
}

/// The manifest does not say who uses the common word, so this looks at what was found: it says the word, its rollout
/// does, and the newest thread is first.
fn common_word(home: &Path, manifest: &[Entry], page: &Value) -> Result<()> {
    let by_id: BTreeMap<&str, &Entry> = manifest.iter().map(|e| (e.id.as_str(), e)).collect();
    let hits = hits(page)?;
    ensure!(!hits.is_empty(), "nothing is found");
    let mut last = i64::MAX;
    for hit in hits {
        let id = thread_id(hit)?;
        let entry = by_id.get(id).with_context(|| format!("{id} is not in the home"))?;
        let snippet = hit["snippet"].as_str().context("a hit without a snippet")?;
        ensure!(snippet.to_lowercase().contains(Terms::COMMON), "the snippet of {id} does not say it: {snippet:?}");
        ensure!(entry.mtime_ms() <= last, "{id} is newer than the hit before it");
        last = entry.mtime_ms();
        if !entry.path.ends_with(".zst") {
            let rollout = std::fs::read(home.join(&entry.path)).with_context(|| entry.path.clone())?;
            // Any thread names the record kind `function_call`; the word itself must be there as well.
            let text = String::from_utf8_lossy(&rollout).to_lowercase().replace("function_call", "");
            ensure!(text.contains(Terms::COMMON), "{id} does not say it");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest() -> Vec<Entry> {
        (0..60)
            .map(|seq| Entry {
                seq,
                id: format!("id{seq}"),
                path: format!("sessions/{seq}.jsonl.zst"),
                cwd: String::new(),
                bytes: 0,
                turns: 1,
                format: "legacy".to_owned(),
                ver: String::new(),
                source: if seq == 58 { "exec" } else { "cli" }.to_owned(),
                archived: seq == 59,
                name: None,
                first: String::new(),
                needle: format!("ndl{seq}q"),
                zebracorn: seq % 20 == 7,
                exact: None,
                created_ms: 0,
                mtime: 1000.0 + seq as f64,
            })
            .collect()
    }

    /// What a right command prints, two threads to a page of hits.
    fn right(args: &[&str]) -> Value {
        let threads: Vec<Value> = (8..58).rev().map(|seq| json!({"id": format!("id{seq}")})).collect();
        let hit = |seq: usize| json!({"thread_id": format!("id{seq}"), "snippet": "a Function"});
        match args {
            ["list", ..] => json!({"threads": threads}),
            ["search", "ndl5q" | "NDL5Q", ..] => json!({"hits": [hit(5)], "next_cursor": null}),
            ["search", "zebracorn", "--limit", "1000"] => {
                json!({"hits": [hit(47), hit(27)], "next_cursor": "c"})
            }
            ["search", "zebracorn", .., "--cursor", "c"] => {
                json!({"hits": [hit(7)], "next_cursor": null})
            }
            ["search", "function"] => json!({"hits": [hit(9), hit(9), hit(8)], "next_cursor": "c"}),
            ["search", "zq"] => json!({"hits": [], "next_cursor": null}),
            other => panic!("unexpected {other:?}"),
        }
    }

    fn check(change: impl Fn(&[&str], &mut Value)) -> Result<()> {
        let ask = |args: &[&str], code: i32| -> Result<Value> {
            assert_eq!(code, i32::from(args[1..].contains(&"zq")));
            let mut answer = right(args);
            change(args, &mut answer);
            Ok(answer)
        };
        let terms = Terms { rare: "ndl5q".to_owned(), rare_cwd: String::new() };
        all(Path::new("."), &manifest(), &terms, &ask)
    }

    #[test]
    fn right_answers_pass() {
        check(|_, _| ()).unwrap();
    }

    #[test]
    fn wrong_lists_fail() {
        let on_exact_list = |change: fn(&mut Vec<Value>)| {
            check(move |args, answer| {
                if args.contains(&"--exact") {
                    change(answer["threads"].as_array_mut().unwrap());
                }
            })
        };
        on_exact_list(|rows| rows.swap(3, 4)).unwrap_err();
        on_exact_list(|rows| rows.truncate(49)).unwrap_err();
        on_exact_list(|rows| rows.push(json!({"id": "id7"}))).unwrap_err();
        on_exact_list(|rows| rows[0] = json!({"id": "id58"})).unwrap_err();
        on_exact_list(|rows| rows[1] = rows[0].clone()).unwrap_err();
    }

    #[test]
    fn wrong_hits_fail() {
        for (term, hits) in [
            ("ndl5q", json!([])),
            ("NDL5Q", json!([{"thread_id": "id6"}])),
            ("zebracorn", json!([{"thread_id": "id47"}])),
            ("function", json!([])),
            (
                "function",
                json!([{"thread_id": "id8", "snippet": "functional"}, {"thread_id": "id9", "snippet": "function"}]),
            ),
            ("function", json!([{"thread_id": "id8", "snippet": "fn"}])),
            ("zq", json!([{"thread_id": "id8"}])),
        ] {
            let result = check(|args, answer| {
                if args.get(1) == Some(&term) {
                    answer["hits"] = hits.clone();
                }
            });
            assert!(result.is_err(), "{term}: {hits}");
        }
    }
}
