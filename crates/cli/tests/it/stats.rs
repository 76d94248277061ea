//! `stats`: what a home holds, compared with a plain reading of its lines.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    db::text,
    home::Home,
    log::{Log, t},
};

const AT: &str = "2026-03-01T10:00:00Z";
const VERSIONS: [&str; 8] = ["0.20.0", "0.44.0", "0.63.0", "0.98.0", "0.118.0", "0.142.0", "0.156.0", "0.171.0"];

#[track_caller]
fn stats(home: &Home) -> Value {
    let out = home.run(&["stats"]);
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!(home.human(&["stats"]).code, 0);
    out.json
}

fn fixture(version: &str) -> Home {
    Home::copy_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes").join(version))
}

/// The rollouts below a folder, decompressed, with their names.
fn rollouts(dir: &Path, all: &mut Vec<(String, PathBuf, Vec<u8>)>) {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8").to_owned();
        if path.is_dir() {
            rollouts(&path, all);
        } else if name.starts_with("rollout-") {
            let bytes = fs::read(&path).expect("a rollout");
            let plain = if name.ends_with(".zst") { zstd::decode_all(bytes.as_slice()).expect("zstd") } else { bytes };
            all.push((name[8..27].to_owned(), path, plain));
        }
    }
}

/// Kind and content of a record, from its parsed line.
fn kind(line: &str) -> (String, String) {
    let value: Value = serde_json::from_str(line).expect("a record");
    let own = value["type"].as_str().map(str::to_owned);
    if value.get("payload").is_none() {
        let bare = match own {
            Some(own) => format!("bare_item/{own}"),
            None if value.get("record_type").is_some() => "bare_state".into(),
            None => "bare_header".into(),
        };
        return (bare, line.to_owned());
    }
    let own = own.expect("a type");
    let inner = value["payload"]["type"].as_str().map_or_else(String::new, |inner| format!("/{inner}"));
    let at = line.find("\"payload\":").expect("a payload") + 10;
    (own + &inner, line[at..].to_owned())
}

/// What a plain reading says: kinds, and bytes and records that an earlier file has too.
fn truth(home: &Path) -> (BTreeMap<String, (u64, u64)>, u64, u64) {
    let mut files = Vec::new();
    rollouts(home, &mut files);
    files.sort();
    let mut kinds: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut first: HashMap<String, usize> = HashMap::new();
    let (mut bytes, mut records) = (0, 0);
    for (n, (_, _, text)) in files.iter().enumerate() {
        for line in std::str::from_utf8(text).expect("UTF-8").lines() {
            let (kind, content) = kind(line);
            let tally = kinds.entry(kind).or_default();
            *tally = (tally.0 + 1, tally.1 + line.len() as u64 + 1);
            let size = content.len() as u64;
            if *first.entry(content).or_insert(n) != n {
                bytes += size;
                records += 1;
            }
        }
    }
    (kinds, bytes, records)
}

/// Homes of released binaries: kinds and repeats as a plain reading counts them, the rest as the list has it.
#[test]
fn fixture_homes_are_counted_as_they_are() {
    for version in VERSIONS {
        let home = fixture(version);
        let told = stats(&home);
        let (kinds, bytes, records) = truth(&home.path());
        let by_kind: BTreeMap<String, (u64, u64)> = told["by_kind"]
            .as_object()
            .expect("kinds")
            .iter()
            .map(|(k, v)| (k.clone(), (v["records"].as_u64().expect("n"), v["bytes"].as_u64().expect("n"))))
            .collect();
        assert_eq!(by_kind, kinds, "{version}");
        assert_eq!(told["records"], kinds.values().map(|k| k.0).sum::<u64>(), "{version}");
        assert_eq!(told["record_bytes"], kinds.values().map(|k| k.1).sum::<u64>(), "{version}");
        assert_eq!(
            (&told["repeated_bytes"], &told["repeated"]["records"]),
            (&json!(bytes), &json!(records)),
            "{version}"
        );
        assert_eq!(told["damage"], json!({"threads": 0, "files": 0, "records": 0}), "{version}");
        as_the_list_has_it(&home, &told, version);
    }
}

#[track_caller]
fn as_the_list_has_it(home: &Home, told: &Value, version: &str) {
    let listed = home.list(&["--all", "--count", "--limit", "500"]);
    let mut rows: Vec<&Value> =
        listed.json["threads"].as_array().expect("rows").iter().filter(|row| row["files"] != json!([])).collect();
    let sum = |of: &dyn Fn(&Value) -> u64| rows.iter().map(|row| of(row)).sum::<u64>();
    assert_eq!(told["threads"], rows.len(), "{version}");
    assert_eq!(told["archived"], sum(&|row| u64::from(row["archived"] == true)), "{version}");
    assert_eq!(told["files"], sum(&|row| row["files"].as_array().map_or(0, Vec::len) as u64), "{version}");
    assert_eq!(told["bytes"], sum(&|row| row["bytes"].as_u64().expect("bytes")), "{version}");
    let total = |row: &Value| row["tokens"]["total"].as_u64().unwrap_or(0);
    assert_eq!(told["tokens"]["total"], sum(&total), "{version}");
    type Of<'o> = &'o dyn Fn(&Value) -> Option<String>;
    let groups: [(&str, Of<'_>); 3] = [
        ("by_version", &|row| row["cli_version"].as_str().map(str::to_owned)),
        ("by_model", &|row| row["model"].as_str().map(str::to_owned)),
        ("by_month", &|row| row["created_at"].as_str().map(|at| at[..7].to_owned())),
    ];
    for (name, of) in groups {
        let mut expected: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
        for row in &rows {
            let group = expected.entry(of(row).unwrap_or_else(|| "(none)".into())).or_default();
            *group = (group.0 + 1, group.1 + row["bytes"].as_u64().expect("bytes"), group.2 + total(row));
        }
        let expected: BTreeMap<String, Value> =
            expected.into_iter().map(|(k, (n, b, t))| (k, json!({"threads": n, "bytes": b, "tokens": t}))).collect();
        assert_eq!(told[name], json!(expected), "{version} {name}");
    }
    for (word, group) in told["by_source"].as_object().expect("sources").iter().filter(|(word, _)| *word != "(none)") {
        let by_word = home.list(&["--all", "--source", word, "--limit", "500"]);
        let absent = |row: &&Value| !row["source"].is_null() && row["files"] != json!([]);
        let count = by_word.json["threads"].as_array().expect("rows").iter().filter(absent).count();
        assert_eq!(group["threads"], count, "{version} {word}");
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row["bytes"].as_u64()));
    let largest: Vec<&Value> = told["largest"].as_array().expect("largest").iter().map(|l| &l["bytes"]).collect();
    assert_eq!(largest, rows.iter().take(10).map(|row| &row["bytes"]).collect::<Vec<_>>(), "{version}");
    for large in told["largest"].as_array().expect("largest") {
        let row = listed.thread(large["id"].as_str().expect("an id"));
        for key in ["name", "preview", "bytes", "records", "updated_at", "archived"] {
            assert_eq!(large[key], row[key], "{version} {key}");
        }
        assert_eq!(large["path"], row["files"][0]["path"], "{version}");
    }
}

/// A fork that copies its parent, with times of its own: what it copied is repeated, and its tokens are not its own.
#[test]
fn b104_what_a_fork_copied_is_repeated() {
    let home = Home::new();
    let parent = Log::new(&t(1), AT).meta().turn("question", "answer").tok(100).out("c1", &"x".repeat(5_000));
    home.put(&parent);
    let mut fork = Log::new(&t(2), "2026-03-05T10:00:00Z").meta_with(json!({"forked_from_id": t(1)}));
    let mut expected = 0;
    let lines: Vec<String> = parent.lines().iter().map(|l| String::from_utf8(l.clone()).expect("UTF-8")).collect();
    for line in &lines {
        let at = line.find("\"payload\":").expect("a payload") + 10;
        let kind: Value = serde_json::from_str(line).expect("a record");
        let payload = line[at..].trim_end().strip_suffix('}').expect("an end");
        fork = fork.record_text(kind["type"].as_str().expect("a type"), payload);
        expected += payload.len() as u64 + 1;
    }
    home.put(&fork.turn("of its own", "another answer").tok(160));
    let told = stats(&home);
    // Of the fork's own turn nothing is the parent's, word for word.
    assert_eq!((&told["repeated_bytes"], &told["repeated"]["records"]), (&json!(expected), &json!(lines.len())));
    assert_eq!(told["repeated"]["least_bytes"], 0);
    assert_eq!(told["tokens"]["total"], 160, "100 of the parent and 60 of the fork");
}

/// Damage of every kind is counted where it stands, and every byte is counted once.
#[test]
fn damage_and_every_byte() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    let log = Log::new(&t(2), AT).meta().user("a").raw(b"%%% no\n").raw(b"\n \n").agent("b");
    home.put(&log.raw(&[0; 300]).raw(b"\n").user("c").raw(b"{\"torn"));
    let glued = Log::new(&t(3), AT).meta().user("d");
    let two = Log::new(&t(3), AT).user("e").agent("f").bytes();
    home.put(&glued.raw(&two.into_iter().filter(|b| *b != b'\n').collect::<Vec<_>>()).raw(b"\n"));
    let told = stats(&home);
    assert_eq!(told["damage"], json!({"threads": 2, "files": 2, "records": 4}));
    assert_eq!(told["by_kind"]["(damaged)"]["records"], 3);
    assert_eq!(told["by_kind"]["(between)"], json!({"records": 0, "bytes": 3}));
    assert_eq!(told["record_bytes"], told["bytes"], "plain files are counted to the last byte");
    assert_eq!(told["records"], 3 + 4 + 4);
    let listed = home.list(&["--all", "--count"]);
    let records: u64 = (1..=3).map(|n| listed.thread(&t(n))["records"].as_u64().expect("records")).sum();
    assert_eq!(told["records"], records);
}

/// Compressed files, the TypeScript command's JSON, and records too long to be held.
#[test]
fn every_form_is_counted() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    home.put_zst(&log, &zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd"));
    let ts = json!({"session": {"timestamp": AT, "id": t(2), "instructions": ""},
        "items": [{"role": "user", "type": "message", "content": [{"type": "input_text", "text": "hi"}]}]})
    .to_string();
    home.write(&format!("sessions/rollout-2026-03-01-{}.json", t(2)), &ts);
    let long = "z".repeat(9 << 20);
    home.put(&Log::new(&t(3), AT).meta().out("c1", &long));
    home.put(&Log::new(&t(4), "2026-03-02T10:00:00Z").meta().out("c1", &long).out("c2", &long));
    let told = stats(&home);
    let kinds = &told["by_kind"];
    assert_eq!(kinds["response_item/function_call_output"]["records"], 3);
    assert!(kinds["response_item/function_call_output"]["bytes"].as_u64().is_some_and(|b| b > 27 << 20));
    assert_eq!((&kinds["bare_header"]["records"], &kinds["bare_item/message"]["records"]), (&json!(1), &json!(1)));
    assert_eq!(told["repeated"]["records"], 1, "the long output of c1: {told}");
    assert!(told["repeated_bytes"].as_u64().is_some_and(|b| b > 9 << 20 && b < 10 << 20));
    let packed = home.file(&format!("{}.zst", log.active_path())).metadata().expect("a file").len();
    assert_eq!(told["record_bytes"], told["bytes"].as_u64().expect("bytes") - packed + log.len() as u64);
    assert_eq!(told["largest"][0]["id"], t(4));
}

/// The same image in every compaction of a thread, and in its forks.
#[test]
fn b104_repeats_within_a_thread_and_across() {
    let home = Home::new();
    let image = json!([{"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": format!("data:image/png;base64,{}", "A".repeat(200_000))}]}]);
    let talk = |n: u32| {
        Log::new(&t(n), &format!("2026-03-0{n}T10:00:00Z"))
            .meta()
            .comp(image.clone())
            .comp(image.clone())
            .comp(image.clone())
    };
    for n in 1..=3 {
        home.put(&talk(n));
    }
    let told = stats(&home);
    let one = told["by_kind"]["compacted"]["bytes"].as_u64().expect("bytes") / 9;
    let near = |value: &Value, times: u64| value.as_u64().is_some_and(|b| b > times * (one - 100) && b < times * one);
    assert!(near(&told["repeated_bytes"], 6), "both forks repeat all three: {told}");
    assert!(near(&told["repeated"]["in_same_file_bytes"], 2), "{told}");
}

/// Threads without a file, and no threads at all.
#[test]
fn rows_without_a_file_and_an_empty_home() {
    let home = Home::new();
    let told = stats(&home);
    assert_eq!((&told["threads"], &told["bytes"], &told["by_kind"]), (&json!(0), &json!(0), &json!({})));
    home.put(&Log::healthy(&t(1), AT));
    home.state().row(&t(1), &[]).row(&t(2), &[("title", text("ghost"))]).row(&t(3), &[]).close();
    let told = stats(&home);
    assert_eq!((&told["threads"], &told["without_file"], &told["complete"]), (&json!(1), &json!(2), &json!(true)));
}

/// A rollout that two homes show is one thread and one file.
#[test]
fn a_rollout_in_two_homes_counts_once() {
    let (home, other) = (Home::new(), Home::new());
    let log = Log::healthy(&t(1), AT).raw(b"%%%\n");
    let path = home.put(&log);
    other.put(&Log::healthy(&t(2), AT));
    fs::hard_link(path, other.file(&log.active_path())).expect("a link");
    let second = other.path();
    let out = home.human(&["--json".as_ref(), "--home".as_ref(), second.as_os_str(), "stats".as_ref()]);
    let told: Value = serde_json::from_str(&out.stdout).expect("one object");
    let bytes = log.len() + Log::healthy(&t(2), AT).len();
    assert_eq!((&told["threads"], &told["files"], &told["bytes"]), (&json!(2), &json!(2), &json!(bytes)));
    assert_eq!(told["damage"], json!({"threads": 1, "files": 1, "records": 1}));
    assert_eq!(told["homes"].as_array().map(Vec::len), Some(2));
}

/// What a person reads, word for word.
#[test]
fn for_people() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT).tok(1_234));
    home.put_archived(&Log::new(&t(2), AT).meta_with(json!({"source": "exec"})).out("c1", &"x".repeat(3_000)));
    let out = home.human(&["stats"]);
    let until_largest = out.stdout.split("LARGEST").next().expect("a beginning");
    let expected = "\
threads   2 · 1 archived
files     2 · 4.3 KB on disk · 4.3 KB in 6 records
tokens    1,234 · input 1,234 (0 cached) · output 0
repeated  0 B (0 %) in 0 records that an earlier file has too
damage    none
";
    assert!(until_largest.starts_with(expected), "{}", out.stdout);
    assert!(until_largest.contains("\nKIND "), "{}", out.stdout);
    assert!(out.stdout.contains(&format!("{}   3.4 KB", t(2))), "{}", out.stdout);
}
