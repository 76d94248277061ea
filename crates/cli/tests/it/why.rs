//! `why`: where a thread is, what each source says of it, what hides it, what is damaged; and for one that is not there,
//! what was looked at.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    db::{StateDb, int, text},
    home::{Home, Out, ids},
    log::{Log, t},
};

const AT: &str = "2026-03-01T10:00:00Z";

#[track_caller]
fn why(home: &Home, query: &str, code: i32) -> Out {
    let out = home.run(&["why", query]);
    assert_eq!(out.code, code, "{out:?}");
    assert_eq!(out.json["query"], query);
    assert_eq!(home.human(&["why", query]).code, code, "people get the same");
    out
}

/// The values of one key of a list of objects.
#[track_caller]
fn each<'v>(list: &'v Value, key: &str) -> Vec<&'v str> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    list.iter().map(|one| one[key].as_str().unwrap_or("-")).collect()
}

/// A healthy thread: one file, no quarrel, shown by the default list.
#[test]
fn a_healthy_thread() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    home.put(&log);
    home.idx(&t(1), "first", AT);
    for query in [t(1), "first".into(), log.active_path(), home.file(&log.active_path()).display().to_string()] {
        let out = why(&home, &query, 0);
        assert_eq!(out.json["found"], true);
        assert_eq!((&out.json["thread"]["id"], &out.json["thread"]["name"]), (&json!(t(1)), &json!("first")));
        let place = &out.json["places"][0];
        assert_eq!((&place["path"], &place["state"]), (&json!(log.active_path()), &json!("healthy")));
        assert_eq!((&place["records"], &place["bytes"]), (&json!(3), &json!(log.len())));
        assert_eq!(out.json["lineage"].as_array().map(Vec::len), Some(1));
        assert_eq!(out.json["lineage"][0]["until_ordinal"], Value::Null);
        for key in ["hidden_by", "damage", "disagreements", "similar", "mentions"] {
            assert_eq!(out.json[key], json!([]), "{key}");
        }
        assert_eq!(out.json["damage_total"], 0);
        let sources = &out.json["sources"];
        assert_eq!((&sources["index"]["state"], &sources["codex_state"]["state"]), (&json!("none"), &json!("none")));
        assert_eq!((&sources["name_index"]["name"], &sources["name_index"]["line"]), (&json!("first"), &json!(1)));
        assert_eq!((&sources["files"]["archived"], &sources["files"]["state"]), (&json!(false), &json!("present")));
    }
}

/// Every reason that hides a thread, and several at once.
#[test]
fn what_hides_a_thread() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::new(&t(2), AT).meta_with(json!({"source": "exec"})).user("hi"));
    home.put(&Log::new(&t(3), AT).sub(&t(1)).user("hi"));
    home.put(&Log::new(&t(4), AT).meta());
    home.put_archived(&Log::new(&t(5), AT).meta_with(json!({"source": "exec"})));
    home.put_archived(&Log::healthy(&t(6), AT));
    let expected: [(u32, &[&str]); 6] = [
        (1, &[]),
        (2, &["exec"]),
        (3, &["subagents"]),
        (4, &["empty"]),
        (5, &["archived", "exec", "empty"]),
        (6, &["archived"]),
    ];
    for (n, filters) in expected {
        let out = why(&home, &t(n), 0);
        assert_eq!(each(&out.json["hidden_by"], "filter"), filters, "{n}");
        assert_eq!(out.json["list_filters"], json!(["archived", "subagents", "exec", "empty"]));
        for hidden in out.json["hidden_by"].as_array().expect("reasons") {
            assert!(hidden["because"].as_str().is_some_and(|b| !b.is_empty()));
            assert_eq!(hidden["shown_with"], format!("--include {}", hidden["filter"].as_str().expect("a filter")));
        }
        let human = home.human(&["why", &t(n)]).stdout;
        assert_eq!(human.contains("\n  shows it\n"), filters.is_empty(), "{human}");
    }
    let out = why(&home, &t(3), 0);
    assert!(out.json["hidden_by"][0]["because"].as_str().is_some_and(|b| b.contains(&t(1))), "{out:?}");
}

/// On homes of released binaries `why` and the default list agree about every thread, and nothing is damaged.
#[test]
fn why_and_the_list_agree_on_fixture_homes() {
    for version in ["0.20.0", "0.98.0", "0.142.0", "0.171.0"] {
        let home = Home::copy_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes").join(version));
        let shown = home.list(&["--limit", "500"]).ids();
        let all = home.list(&["--all", "--limit", "500", "--count"]);
        for id in all.ids() {
            let out = home.run(&["why", &id]);
            let row = all.thread(&id);
            if row["files"] == json!([]) {
                assert_eq!((out.code, &out.json["found"]), (1, &json!(false)));
                continue;
            }
            assert_eq!(out.code, 0, "{version} {out:?}");
            assert_eq!(out.json["hidden_by"] == json!([]), shown.contains(&id), "{version} {out:?}");
            for key in ["name", "preview", "turns", "records", "bytes", "tokens", "files", "updated_at"] {
                assert_eq!(out.json["thread"][key], row[key], "{version} {id} {key}");
            }
            let mut files = each(&row["files"], "path");
            let mut places = each(&out.json["places"], "path");
            places.retain(|p| !p.starts_with('/'));
            files.sort_unstable();
            places.sort_unstable();
            assert_eq!(places, files, "{version} {id}");
        }
    }
}

/// All damage is counted and told with line and byte, beyond the five places that a list shows.
#[test]
fn all_damage_is_told() {
    let home = Home::new();
    let mut log = Log::new(&t(1), AT).meta();
    let mut expected = Vec::new();
    for n in 0..12 {
        log = log.user(&format!("said {n}"));
        expected.push((json!(log.lines().len() + 1), json!(log.len())));
        log = log.raw(b"%%% not json\n");
    }
    home.put(&log.agent("last").raw(b"{\"timestamp\":\"2026-"));
    let out = why(&home, &t(1), 4);
    assert_eq!(out.json["damage_total"], 13);
    let damage = out.json["damage"].as_array().expect("damage");
    assert_eq!(damage.len(), 13);
    for (one, (line, offset)) in damage.iter().zip(&expected) {
        assert_eq!((&one["line"], &one["offset"]), (line, offset));
        assert_eq!(one["path"], out.json["places"][0]["path"]);
    }
    assert_eq!(damage[12]["reason"], "the file ends in the middle of a record");
    assert_eq!((&out.json["places"][0]["state"], &out.json["places"][0]["damaged"]), (&json!("damaged"), &json!(13)));
    let few = home.run(&["why", &t(1), "--limit", "3"]);
    assert_eq!((few.json["damage"].as_array().map(Vec::len), &few.json["damage_total"]), (Some(3), &json!(13)));
    let human = home.human(&["why", &t(1), "--limit", "3"]).stdout;
    assert!(human.contains("13 damaged places") && human.contains("and 10 more"), "{human}");
    assert_eq!(home.list(&[]).thread(&t(1))["damage"]["records"], 13, "a list only marks it");
}

/// The states of places, one file each.
#[test]
fn places_have_a_state() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    let packed = zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd");
    home.put_zst(&log, &packed);
    let out = why(&home, &t(1), 0);
    assert_eq!(each(&out.json["places"], "state"), ["compressed"]);
    home.put_zst(&log, &packed[..packed.len() / 2]);
    assert_eq!(each(&why(&home, &t(1), 4).json["places"], "state"), ["damaged"]);
    let empty = Log::healthy(&t(2), AT);
    home.put_bytes(&empty.active_path(), b"", empty.last());
    let out = why(&home, &t(2), 4);
    assert_eq!(each(&out.json["places"], "state"), ["empty"]);
    assert_eq!(each(&out.json["hidden_by"], "filter"), ["empty"]);
    let twice = Log::healthy(&t(3), AT);
    home.put(&twice);
    home.put_at(&twice.active_path().replace(".jsonl", " (1).jsonl"), &twice);
    let out = why(&home, &t(3), 4);
    assert_eq!(each(&out.json["places"], "state"), ["healthy", "duplicate"]);
    assert_eq!(each(&out.json["places"], "role"), ["head", "copy"]);
}

/// A fork by reference: its lineage, damage in the part of the base that it has, and a base that is gone.
#[test]
fn the_base_of_a_fork_belongs_to_its_history() {
    let home = Home::new();
    let kept = Log::paginated(&t(1), AT).meta().turn("kept question", "kept answer");
    let base = kept.clone().turn("later question", "later answer");
    let fork = Log::paginated(&t(2), "2026-03-01T11:00:00Z").ordinal(5).meta_with(json!({
        "forked_from_id": t(1),
        "history_base": {"thread_id": t(1), "end_ordinal_exclusive": 5, "end_byte_offset": kept.len()},
    }));
    home.put(&base);
    home.put(&fork.turn("fork question", "fork answer"));
    let out = why(&home, &t(2), 0);
    let lineage = &out.json["lineage"];
    assert_eq!(each(lineage, "thread_id"), [t(1), t(2)]);
    assert_eq!((&lineage[0]["until_ordinal"], &lineage[0]["until_offset"]), (&json!(5), &json!(kept.len())));
    assert_eq!((&lineage[0]["inherited"], &lineage[1]["inherited"]), (&json!(true), &json!(false)));
    // Behind the end of the prefix damage is the base's own affair.
    home.put(&base.clone().raw(b"%%%\n"));
    why(&home, &t(2), 0);
    why(&home, &t(1), 4);
    let bytes = String::from_utf8(base.bytes()).expect("UTF-8").replace("kept answer\"", "kept answer\u{1}\"");
    home.put_bytes(&base.active_path(), bytes.as_bytes(), base.last());
    let out = why(&home, &t(2), 4);
    assert_eq!(each(&out.json["damage"], "thread_id")[0], t(1));
    assert_eq!(each(&out.json["damage"], "path")[0], base.active_path());
    // Cut before the end of the prefix.
    home.put_bytes(&base.active_path(), &kept.bytes()[..kept.lines()[..3].concat().len()], base.last());
    let out = why(&home, &t(2), 4);
    assert!(out.json["damage"][0]["reason"].as_str().is_some_and(|r| r.contains("ends with ordinal 2")), "{out:?}");
    fs::remove_file(home.file(&base.active_path())).expect("gone");
    let out = why(&home, &t(2), 4);
    assert_eq!(each(&out.json["lineage"], "state"), ["missing", "there"]);
    assert_eq!(out.json["lineage"][0]["thread_id"], t(1));
    let out = why(&home, &t(1), 1);
    assert_eq!(out.json["mentions"][0]["thread_id"], t(2));
    assert_eq!(out.json["mentions"][0]["says"], "history_base");
}

/// Codex's database and the name index say other things than the files: each is told with the one that counts.
#[test]
fn b54_b73_sources_that_disagree() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    home.put(&log);
    home.idx(&t(1), "indexed", AT);
    let columns = [
        ("rollout_path", text("/home/a/.codex/sessions/x.jsonl")),
        ("archived", int(1)),
        ("cwd", text("/elsewhere")),
        ("model_provider", text("custom")),
        ("title", text("titled")),
        ("first_user_message", text(&format!("hello {}", t(1)))),
        ("updated_at", int(1_700_000_000)),
    ];
    home.state().row(&t(1), &columns).close();
    let out = why(&home, &t(1), 0);
    let mut facts = each(&out.json["disagreements"], "fact");
    facts.sort_unstable();
    assert_eq!(facts, ["archived", "cwd", "model_provider", "name", "path", "updated_at"]);
    for one in out.json["disagreements"].as_array().expect("a list") {
        assert_eq!(one["counts"], if one["fact"] == "name" { "name_index" } else { "files" }, "{one}");
        assert_eq!(one["says"].as_object().map(serde_json::Map::len), Some(2), "{one}");
    }
    assert_eq!(out.json["thread"]["name"], "indexed");
    assert_eq!(out.json["hidden_by"], json!([]), "the flag hides nothing");
    let state = &out.json["sources"]["codex_state"];
    assert_eq!(
        (&state["state"], &state["path_exists"], &state["archived"]),
        (&json!("present"), &json!(false), &json!(true))
    );
    assert_eq!(each(&out.json["places"], "state"), ["healthy", "missing"]);
    // The same place under another spelling, and as the plain form of what is compressed, is no quarrel.
    let spelt = home.file("sessions/../sessions/./").join(log.active_path().trim_start_matches("sessions/"));
    fs::remove_file(home.file("state_5.sqlite")).expect("gone");
    let row = [
        ("rollout_path", text(spelt.to_str().expect("UTF-8"))),
        ("title", text("")),
        ("created_at", int(1_772_359_200)),
    ];
    home.state().row(&t(1), &row).close();
    assert_eq!(why(&home, &t(1), 0).json["disagreements"], json!([]));
    fs::remove_file(home.file(&log.active_path())).expect("gone");
    home.put_zst(&log, &zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd"));
    assert_eq!(why(&home, &t(1), 0).json["disagreements"], json!([]));
}

/// A row and a name without a file: told as gone, with what still speaks of it.
#[test]
fn b56_only_a_row_is_left() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.state()
        .row(&t(2), &[("title", text("ghost title")), ("rollout_path", text("/gone/x.jsonl"))])
        .row(&t(3), &[])
        .close();
    home.idx(&t(2), "ghost", AT);
    home.idx(&t(4), "dangling", AT);
    for query in [t(2), "ghost".into()] {
        let out = why(&home, &query, 1);
        assert_eq!((&out.json["found"], &out.json["thread"]["id"]), (&json!(false), &json!(t(2))));
        assert_eq!(out.json["thread"]["name"], "ghost");
        assert_eq!(
            (&out.json["places"][0]["path"], &out.json["places"][0]["state"]),
            (&json!("/gone/x.jsonl"), &json!("missing"))
        );
        assert_eq!(out.json["sources"]["codex_state"]["title"], "ghost title");
        assert_eq!(out.json["sources"]["name_index"]["state"], "present");
        assert_eq!(out.json["hidden_by"], json!([]), "listed as a thread whose transcript is missing");
    }
    assert_eq!(each(&why(&home, &t(3), 1).json["hidden_by"], "filter"), ["unnamed"]);
    for query in [t(4), "dangling".into()] {
        let out = why(&home, &query, 1);
        assert_eq!(
            (&out.json["thread"], &out.json["sources"]["name_index"]["name"]),
            (&Value::Null, &json!("dangling"))
        );
    }
    let out = why(&home, &t(9), 1);
    assert_eq!(out.json["sources"]["name_index"]["state"], "no_entry");
    let looked = &out.json["looked_at"][0];
    assert_eq!(looked["folders"][0], json!({"path": "sessions", "state": "read", "files": 1}));
    assert_eq!(looked["folders"][1]["state"], "missing");
    assert_eq!((&looked["threads"], &looked["rows_without_file"]), (&json!(1), &json!(2)));
    assert_eq!(looked["name_index"], json!({"state": "read", "names": 2, "bad_lines": 0}));
    assert_eq!(each(&looked["databases"], "state"), ["read"]);
}

/// Databases in several places, of newer generations, and damaged ones: all are told.
#[test]
fn b47_b69_databases_that_were_looked_at() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.write("state_5.sqlite", "not a database at all, but a text");
    StateDb::create(&home.file("sqlite/state_4.sqlite")).row(&t(1), &[]).close();
    StateDb::create(&home.file("sqlite/state_6.sqlite")).close();
    let out = why(&home, &t(1), 0);
    let looked = &out.json["looked_at"][0]["databases"];
    assert_eq!(each(looked, "state"), ["unreadable", "read", "not_read"]);
    assert!(looked[0]["reason"].as_str().is_some_and(|r| !r.is_empty()));
    assert_eq!(out.json["sources"]["codex_state"]["database"], "sqlite/state_4.sqlite");
    assert_eq!(out.json["sources"]["codex_state"]["state"], "present");
    fs::remove_dir_all(home.file("sqlite")).expect("gone");
    assert_eq!(why(&home, &t(1), 0).json["sources"]["codex_state"]["state"], "unreadable");
}

/// Files that a list does not take: other names, links, other folders; by their id and by their path.
#[test]
fn files_that_no_list_takes() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    let odd = format!("sessions/2026/03/01/foo-{}.jsonl", t(1));
    home.put_at(&odd, &log);
    home.put_at(&format!("trash/{}.jsonl", log.stem()), &log);
    std::os::unix::fs::symlink(home.file(&odd), home.file(&log.active_path())).expect("a link");
    home.write(&format!("thread-writer-locks/{}.lock", t(1)), "");
    let out = why(&home, &t(1), 1);
    let because = each(&out.json["similar"], "because");
    assert_eq!(because.len(), 4, "{out:?}");
    for word in ["its name is not a rollout's", "a link", "not below sessions", "writer lock"] {
        assert!(because.iter().any(|b| b.contains(word)), "{word}: {because:?}");
    }
    assert_eq!(out.json["looked_at"][0]["links_not_followed"], 1);
    let by_path = |rel: &str| {
        let out = why(&home, home.file(rel).to_str().expect("UTF-8"), 0);
        each(&out.json["hidden_by"], "filter").join(" ")
    };
    assert_eq!(by_path(&odd), "name");
    assert_eq!(by_path(&format!("trash/{}.jsonl", log.stem())), "place");
    assert_eq!(by_path(&log.active_path()), "link name");
}

/// A path where nothing is any more: the thread is known by the id in the name.
#[test]
fn a_path_of_before() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    home.put_archived(&log);
    let before = home.file(&log.active_path()).display().to_string();
    let out = why(&home, &before, 0);
    assert_eq!(out.json["thread"]["id"], t(1));
    assert_eq!(each(&out.json["places"], "state"), ["healthy", "missing"]);
    let nobody = before.replace(&t(1), &t(7));
    let out = why(&home, &nobody, 1);
    assert_eq!((&out.json["places"][0]["path"], &out.json["places"][0]["state"]), (&json!(nobody), &json!("missing")));
    assert_eq!(home.run(&["why", home.path().to_str().expect("UTF-8")]).error()["kind"], "failed");
}

/// A prefix or name of several threads lists them.
#[test]
fn several_threads_fit() {
    let home = Home::new();
    for n in [1, 2] {
        home.put(&Log::healthy(&t(n), AT));
        home.idx(&t(n), "same", AT);
    }
    for query in ["same", "01990000"] {
        let out = home.run(&["why", query]);
        assert_eq!((out.code, &out.error()["kind"]), (2, &json!("ambiguous")));
        let mut candidates = each(&out.error()["candidates"], "id");
        candidates.sort_unstable();
        assert_eq!(candidates, ids([1, 2]));
    }
}

/// In several homes the newest file stands for a thread, and the others are told.
#[test]
fn a_thread_in_two_homes() {
    let (home, other) = (Home::new(), Home::new());
    home.put(&Log::healthy(&t(1), AT));
    other.put(&Log::healthy(&t(1), AT).at("2026-03-02T10:00:00Z").user("more"));
    let second = other.path();
    let out = home.human(&["--json".as_ref(), "--home".as_ref(), second.as_os_str(), "why".as_ref(), t(1).as_ref()]);
    let json: Value = serde_json::from_str(&out.stdout).expect("one object");
    assert_eq!(json["looked_at"].as_array().map(Vec::len), Some(2));
    assert_eq!(each(&json["hidden_by"], "filter"), ["other_home"]);
    assert_eq!(json["places"][1]["home"], second.to_str().expect("UTF-8"));
}

/// What a person reads, word for word.
#[test]
fn for_people() {
    let home = Home::new();
    let log = Log::new(&t(1), AT).meta_with(json!({"source": "exec"})).user("hello there").raw(b"%%%\n");
    home.put_archived(&log.agent("ok"));
    home.idx(&t(1), "a name", AT);
    let out = home.human(&["why", &t(1)]);
    let expected = "\
01990000-0000-7000-8000-000000000001  a name
home ~/codex · /w/p · codex 0.142.0 · 1 turn · 497 B

where it is
  damaged     archived_sessions/rollout-2026-03-01T10-00-00-01990000-0000-7000-8000-000000000001.jsonl  head · 3 records · 497 B · 1 damaged

what each source says
  files        present · archived · created 2026-03-01 10:00 · updated 2026-03-01 10:00
  index        none · no index was asked for
  codex_state  not there
  name_index   present · name a name · line 1 of session_index.jsonl

the default list
  leaves it out: archived: its file is in archived_sessions  list --include archived shows it
  leaves it out: exec: its source is \"exec\": a program started it  list --include exec shows it
  it leaves out nothing but archived, subagents, exec, empty

damage
  1 damaged place
  archived_sessions/rollout-2026-03-01T10-00-00-01990000-0000-7000-8000-000000000001.jsonl: line 3, byte 383: not JSON: expected value at byte 1
";
    assert_eq!(out.stdout, expected);
    assert_eq!(out.code, 4);
}
