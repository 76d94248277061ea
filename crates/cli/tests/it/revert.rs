//! `revert`: the plan, what is written, what stands afterwards, and what is refused.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    db::text,
    home::{Home, Out, damage},
    log::{Log, Shape, t},
    write_run::{cells_changed, change, done, dry, dump, files, plan, refused, told},
};

const AT: &str = "2026-03-01T10:00:00Z";

/// Both ways of keeping a history.
const SHAPES: [Shape; 2] = [Shape::Legacy, Shape::Paginated];

/// Three turns.
fn three(shape: Shape, thread: &str) -> Log {
    Log::shaped(shape, thread, AT).meta().turn("q one", "a one").turn("q two", "a two").turn("q three", "a three")
}

#[track_caller]
fn revert(home: &Home, thread: &str, turn: &str) -> Out {
    done(home, &["revert", thread, "--before-turn", turn, "--yes"])
}

/// What a thread's turns say: the numbers, and all texts.
#[track_caller]
fn stands(home: &Home, thread: &str) -> (Vec<u64>, String) {
    let out = home.show(&[thread]);
    assert_eq!(damage(&out.json["thread"]), 0, "{out:?}");
    (out.turns().iter().map(|turn| turn["number"].as_u64().expect("a number")).collect(), out.said())
}

#[track_caller]
fn because(out: &Out, step: usize) -> String {
    out.json["plan"][step]["because"].as_str().expect("why").to_owned()
}

#[test]
fn the_plan_comes_first_and_a_dry_run_only_plans() {
    for shape in SHAPES {
        let home = Home::new();
        let log = three(shape, &t(1));
        home.put(&log);
        home.state().row(&t(1), &[]).close();
        let out = dry(&home, &["revert", &t(1), "--before-turn", "2"]);
        let steps = plan(&home, &out);
        assert!(because(&out, 0).contains("2 turns are taken back from number 2 on"), "{out:?}");
        if shape == Shape::Legacy {
            assert_eq!(steps, [("append_revert".to_owned(), log.active_path())]);
        } else {
            let [(action, path), (column, database)] = &steps[..] else { panic!("two steps: {steps:?}") };
            assert_eq!((action.as_str(), column.as_str()), ("create_segment", "set_codex_rollout_path"));
            assert!(path.starts_with("sessions/20") && path.contains(&format!("-{}_", t(1))), "{path}");
            assert_eq!(database, "state_5.sqlite");
        }
        let out = dry(&home, &["revert", &t(1), "--before-turn", "3"]);
        assert!(because(&out, 0).starts_with("1 turn is taken back"), "{out:?}");
        // Every record stays, so nothing is asked.
        done(&home, &["revert", &t(1), "--before-turn", "2"]);
    }
}

/// A legacy rollout gets one record, and nothing else of the home moves.
#[test]
fn a_legacy_thread_gets_one_record() {
    for (turn, back, left) in [("1", 3, 0), ("2", 2, 1), ("3", 1, 2)] {
        let home = Home::new();
        let log = three(Shape::Legacy, &t(1));
        home.put(&log);
        home.put(&Log::healthy(&t(2), AT));
        home.state().row(&t(1), &[]).close();
        home.idx(&t(1), "the name", AT);
        let (were, rows) = (files(&home), dump(&home.file("state_5.sqlite")));
        revert(&home, "the name", turn);
        assert_eq!((were.made(&home), were.changed(&home)), (vec![], vec![log.active_path()]));
        assert!(cells_changed(&rows, &home.file("state_5.sqlite")).is_empty());
        let bytes = fs::read(home.file(&log.active_path())).expect("the rollout");
        let added = bytes.strip_prefix(log.bytes().as_slice()).expect("every record stays");
        let record: Value = serde_json::from_slice(added).expect("one record");
        assert!(added.ends_with(b"\n") && record["timestamp"].as_str() > Some(AT));
        assert_eq!(record["type"], "event_msg");
        assert_eq!(record["payload"], json!({"type": "thread_rolled_back", "num_turns": back}));
        let (numbers, said) = stands(&home, &t(1));
        assert_eq!(numbers, (1..=left).collect::<Vec<_>>());
        assert_eq!(
            (said.contains("q one"), said.contains("q two"), said.contains("q three")),
            (left > 0, left > 1, false)
        );
        let row = home.list(&["--all", "--count"]);
        assert_eq!((&row.thread(&t(1))["turns"], &row.thread(&t(1))["name"]), (&json!(left), &json!("the name")));
    }
}

/// A paginated thread goes on in one more file, whose header says where its history ends; the file before it and the
/// rest of the home stay as they are, but for the column that names the file.
#[test]
fn a_paginated_thread_gets_one_file() {
    for (turn, left) in [("1", 0usize), ("2", 1), ("3", 2)] {
        let home = Home::new();
        let meta = json!({"cwd": "/w", "base_instructions": {"text": "be kind"}, "field_of_tomorrow": {"b": 1, "a": 2},
            "git": {"branch": "main"}});
        let log = Log::paginated(&t(1), AT).meta_with(meta);
        let log = log.turn("q one", "a one").turn("q two", "a two").turn("q three", "a three");
        home.put(&log);
        home.put(&Log::healthy(&t(2), AT));
        let old = home.file(&log.active_path()).to_string_lossy().into_owned();
        home.state().row(&t(1), &[("rollout_path", text(&old))]).row(&t(2), &[]).close();
        let (were, rows) = (files(&home), dump(&home.file("state_5.sqlite")));
        let out = revert(&home, &t(1), turn);
        let path = plan(&home, &out)[0].1.clone();
        assert_eq!((were.made(&home), were.changed(&home)), (vec![path.clone()], vec![]));
        let cells = cells_changed(&rows, &home.file("state_5.sqlite"));
        let [(was, is)] = &cells[..] else { panic!("one cell: {cells:?}") };
        assert!(was.contains(" rollout_path = ") && was.contains(&old), "{was}");
        let full = home.file(&path).to_string_lossy().into_owned();
        assert!(is.contains(" rollout_path = ") && is.contains(&format!("\"{full}\"")) && is.contains(&t(1)), "{is}");
        let bytes = fs::read(home.file(&path)).expect("the new file");
        assert_eq!(bytes.iter().filter(|b| **b == b'\n').count(), 1);
        let header: Value = serde_json::from_slice(&bytes).expect("a header");
        let first: Value = serde_json::from_slice(&log.lines()[0]).expect("the first header");
        let base = header["payload"]["history_base"].clone();
        let end = base["end_ordinal_exclusive"].as_u64().expect("an ordinal");
        assert_eq!(header["ordinal"], end);
        let prefix: usize = log.lines()[..usize::try_from(end).expect("few")].iter().map(Vec::len).sum();
        assert_eq!(base, json!({"thread_id": t(1), "end_ordinal_exclusive": end, "end_byte_offset": prefix}));
        let mut same = header["payload"].clone();
        same.as_object_mut().expect("an object").remove("history_base");
        same["timestamp"] = first["payload"]["timestamp"].clone();
        assert_eq!(same, first["payload"]);
        assert_eq!(header["payload"]["timestamp"], header["timestamp"]);
        let (numbers, said) = stands(&home, &t(1));
        assert_eq!(numbers.len(), left);
        assert_eq!(
            (said.contains("q one"), said.contains("q two"), said.contains("q three")),
            (left > 0, left > 1, false)
        );
        let listed = home.list(&["--all", "--count"]);
        let row = listed.thread(&t(1));
        assert_eq!(
            (&row["turns"], &row["created_at"]),
            (&json!(left), &home.list(&["--all"]).thread(&t(1))["created_at"])
        );
        assert_eq!(row["files"].as_array().map(Vec::len), Some(2));
        assert_eq!(listed.ids().len(), 2);
    }
}

/// Each rollout of a thread is named later than the ones before it, also within one second and by a clock that went
/// back: where Codex has no row of the thread, it goes on in the one with the latest name.
#[test]
fn later_rollouts_have_later_names() {
    for at in [AT, "2099-12-31T23:59:58Z"] {
        let home = Home::new();
        let log =
            Log::paginated(&t(1), at).meta().turn("q one", "a one").turn("q two", "a two").turn("q three", "a three");
        home.put(&log);
        let mut names = vec![log.active_path()];
        for turn in ["3", "2", "1"] {
            let out = revert(&home, &t(1), turn);
            names.push(plan(&home, &out)[0].1.clone());
        }
        let stamps = names.iter().map(|n| n[n.rfind("rollout-").expect("a rollout")..][8..27].to_owned());
        let stamps: Vec<_> = stamps.collect();
        assert!(stamps.is_sorted_by(|a, b| a < b), "{stamps:?}");
        assert!(at == AT || stamps[3] == "2100-01-01T00-00-01" && names[3].contains("/2100/01/01/"), "{names:?}");
        assert_eq!(home.list(&["--all"]).ids().len(), 1);
    }
}

/// Twice, then a fork of what stands; the fork keeps what a third revert takes back.
#[test]
fn reverted_threads_are_reverted_and_forked() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&three(shape, &t(1)));
        let created = home.list(&["--all"]).thread(&t(1))["created_at"].clone();
        revert(&home, &t(1), "3");
        let fork = done(&home, &["fork", &t(1)]).json["results"][0]["thread_id"].as_str().expect("an id").to_owned();
        revert(&home, &t(1), "2");
        assert_eq!(stands(&home, &t(1)).0, [1]);
        let (numbers, said) = stands(&home, &fork);
        assert!(numbers == [1, 2] && said.contains("a two") && !said.contains("q three"), "{said}");
        revert(&home, &fork, "2");
        revert(&home, &fork, "1");
        assert_eq!((stands(&home, &fork).0, stands(&home, &t(1)).0), (vec![], vec![1]));
        assert_eq!(home.list(&["--all"]).thread(&t(1))["created_at"], created);
        let hits = home.search(&["q one"]);
        assert!(hits.hit_threads().contains(&t(1)), "{hits:?}");
        for hit in home.search(&["q three"]).hits() {
            assert_eq!(hit["turn_number"], Value::Null, "{hit}");
        }
    }
}

/// A file with no turn marks, a compressed one, and one that ends in the middle of a record.
#[test]
fn odd_rollouts_are_reverted() {
    for shape in SHAPES {
        let log = three(shape, &t(1));
        // Compressed: a record needs the plain form, a next file does not.
        let home = Home::new();
        home.put_zst(&log, &zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd"));
        revert(&home, &t(1), "2");
        let (numbers, said) = stands(&home, &t(1));
        assert!(numbers == [1] && said.contains("a one") && !said.contains("q two"), "{said}");
        // Torn.
        let home = Home::new();
        home.put_bytes(&log.active_path(), &[&log.bytes()[..], b"{\"timestamp\":\"2026"].concat(), log.last());
        revert(&home, &t(1), "3");
        assert_eq!(home.show(&[&t(1)]).turns().len(), 2);
    }
    let home = Home::new();
    let log = Log::new(&t(1), AT).meta().item("user", "q one").item("assistant", "a one").item("user", "q two");
    home.put(&log);
    revert(&home, &t(1), "2");
    let (numbers, said) = stands(&home, &t(1));
    assert!(numbers == [1] && said.contains("a one") && !said.contains("q two"), "{said}");
}

#[test]
fn what_is_refused() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&three(shape, &t(1)));
        home.put_archived(&three(shape, &t(2)));
        let args = |thread: &str, turn: &str| ["revert", thread, "--before-turn", turn, "--yes"].map(str::to_owned);
        refused(&home, &args(&t(9), "1"), 1, "not_found");
        for turn in ["0", "4", "nothing", ""] {
            let out = refused(&home, &args(&t(1), turn), 1, "not_found");
            assert!(out.error()["message"].as_str().expect("why").contains("no turn"), "{out:?}");
        }
        let out = refused(&home, &args(&t(2), "1"), 2, "usage");
        assert!(out.error()["message"].as_str().expect("why").contains("is archived"), "{out:?}");
        // A turn that was taken back has no number, and its id is known only where its records still are.
        let id = home.show(&[&t(1)]).turns()[2]["id"].as_str().expect("an id").to_owned();
        revert(&home, &t(1), &id);
        refused(&home, &args(&t(1), "3"), 1, "not_found");
        let (code, kind) = if shape == Shape::Legacy { (2, "usage") } else { (1, "not_found") };
        refused(&home, &args(&t(1), &id), code, kind);
        let none = told(&home, &["revert", &t(1)], |_| ());
        assert_eq!(none.code, 2, "{none:?}");
    }
}

/// Another program writes the thread: who it is, is said.
#[test]
fn a_thread_that_is_written_is_left_alone() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&three(shape, &t(1)).task_started().user("still running"));
        home.state().row(&t(1), &[]).close();
        let lock = home.write(&format!("thread-writer-locks/{}.lock", t(1)), "");
        let held = fs::File::open(lock).expect("the lock file");
        held.try_lock().expect("the lock");
        let out = refused(&home, &["revert", &t(1), "--before-turn", "2", "--yes"], 3, "refused");
        let message = out.error()["message"].as_str().expect("why");
        assert!(message.contains("already has an active writer"), "{message}");
        if cfg!(target_os = "linux") {
            assert!(message.contains(&std::process::id().to_string()), "{message}");
        }
        drop(held);
        // Its writer is gone, so the turn does not run any more.
        revert(&home, &t(1), "4");
        assert_eq!(stands(&home, &t(1)).0, [1, 2, 3]);
    }
}

/// Codex has its database locked: neither the file nor the column is there in the end.
#[test]
fn a_locked_database_keeps_the_thread_as_it_is() {
    let home = Home::new();
    home.put(&three(Shape::Paginated, &t(1)));
    home.state().row(&t(1), &[]).close();
    let writer = rusqlite::Connection::open(home.file("state_5.sqlite")).expect("opens");
    writer.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let (were, rows) = (files(&home), dump(&home.file("state_5.sqlite")));
    let out = change(&home, &["revert", &t(1), "--before-turn", "2", "--yes"]);
    assert_eq!((out.code, out.error()["kind"].as_str()), (3, Some("refused")), "{out:?}");
    assert!(out.error()["message"].as_str().expect("why").contains("state_5.sqlite"), "{out:?}");
    assert_eq!((were.made(&home), were.changed(&home)), (vec![], vec![]));
    assert!(cells_changed(&rows, &home.file("state_5.sqlite")).is_empty());
    assert_eq!(stands(&home, &t(1)).0, [1, 2, 3]);
    drop(writer);
    revert(&home, &t(1), "2");
    assert_eq!(stands(&home, &t(1)).0, [1]);
}

/// Threads that released binaries wrote, reverted ones among them: each loses its last turn and nothing else.
#[test]
fn threads_of_released_binaries_are_reverted() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes");
    for (version, at_least) in [("0.44.0", 1), ("0.98.0", 1), ("0.142.0", 5), ("0.156.0", 5), ("0.171.0", 5)] {
        let home = Home::copy_of(&fixtures.join(version));
        let list = home.list(&["--all", "--limit", "1000"]);
        // Those whose file is gone are known to the database alone.
        let is_there = |row: &Value| row["archived"] == false && row["files"].as_array().is_some_and(|f| !f.is_empty());
        let ids: Vec<String> = list.ids().into_iter().filter(|id| is_there(list.thread(id))).collect();
        let mut reverted = 0;
        for id in ids {
            let was = home.show(&[&id]);
            let Some(last) = was.turns().last().filter(|_| was.turns().len() > 1) else { continue };
            let turns: Vec<Value> = was.turns()[..was.turns().len() - 1].iter().map(|t| t["id"].clone()).collect();
            let out = revert(&home, &id, last["id"].as_str().expect("an id"));
            reverted += 1;
            let now = home.show(&[&id]);
            assert_eq!(now.turns().iter().map(|t| t["id"].clone()).collect::<Vec<_>>(), turns, "{version} {id}");
            for key in ["name", "preview", "cwd", "created_at", "forked_from_id", "source", "archived", "children"] {
                assert_eq!(now.json["thread"][key], was.json["thread"][key], "{version} {id} {key}");
            }
            assert_eq!(damage(&now.json["thread"]), damage(&was.json["thread"]), "{version} {id}");
            let steps = plan(&home, &out);
            if let Some((_, path)) = steps.iter().find(|(action, _)| action == "create_segment") {
                assert!(version != "0.142.0" && steps.len() == 2, "{version} has a database with every thread");
                let conn = rusqlite::Connection::open(home.file("state_5.sqlite")).expect("opens");
                let column: String = conn
                    .query_row("SELECT rollout_path FROM threads WHERE id = ?1", [&id], |row| row.get(0))
                    .expect("the row");
                assert_eq!(Path::new(&column), fs::canonicalize(home.file(path)).expect("the file"), "{version} {id}");
            }
        }
        assert!(reverted >= at_least, "{version}: {reverted}");
    }
}
