//! Archive, unarchive, delete, restore: whole, told before, undone after.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

use serde_json::json;

use crate::db::{int, text};
use crate::home::{Home, Out, ids};
use crate::log::{Log, t};
use crate::write_run::{
    change, change_with, done_all as done, dump, files_of_codex as files, index_lines, refused, told,
};

const AT: &str = "2026-08-20T01:10:00Z";

/// The threads of a plan with what is to be done with each, each once.
fn planned(out: &Out) -> BTreeMap<String, String> {
    let rows = out.json["plan"].as_array().unwrap_or_else(|| panic!("no plan: {out:?}"));
    rows.iter().map(|r| (r["thread_id"].as_str().unwrap().into(), r["action"].as_str().unwrap().into())).collect()
}

#[track_caller]
fn archived(home: &Home) -> Vec<String> {
    home.list(&["--archived", "--all"]).set()
}

#[track_caller]
fn active(home: &Home) -> Vec<String> {
    home.list(&["--include", "exec,subagents,empty"]).set()
}

/// Rows of Codex's database, by id: archived, archived_at is set, rollout_path.
fn rows(home: &Home) -> BTreeMap<String, (i64, bool, String)> {
    let db = rusqlite::Connection::open(home.file("state_5.sqlite")).expect("the database");
    let mut all = db.prepare("SELECT id, archived, archived_at, rollout_path FROM threads").expect("threads");
    let row = |r: &rusqlite::Row<'_>| Ok((r.get(0)?, (r.get(1)?, r.get::<_, Option<i64>>(2)?.is_some(), r.get(3)?)));
    all.query_map([], row).expect("rows").map(Result::unwrap).collect()
}

#[test]
fn a_thread_goes_into_the_archive_and_back() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    home.put(&log);
    home.put(&Log::healthy(&t(2), AT));
    home.state().row(&t(1), &[("rollout_path", text("/old/place"))]).row(&t(2), &[]).close();
    let (was, before) = (files(&home), dump(&home.file("state_5.sqlite")));
    let out = done(&home, &["archive", &t(1)]);
    assert_eq!(out.json["plan"].as_array().map(Vec::len), Some(1), "{out:?}");
    assert_eq!(was.changed(&home), [log.active_path()]);
    assert_eq!(was.made(&home), [log.archived_path()]);
    assert_eq!((archived(&home), active(&home)), (ids([1]), ids([2])));
    let home_path = fs::canonicalize(home.path()).unwrap();
    let at = |path: &str| home_path.join(path).to_string_lossy().into_owned();
    assert_eq!(rows(&home)[&t(1)], (1, true, at(&log.archived_path())));
    assert_eq!(rows(&home)[&t(2)], (0, false, "/nowhere/rollout.jsonl".into()));
    done(&home, &["unarchive", &t(1)]);
    assert!(was.changed(&home).is_empty() && was.made(&home).is_empty(), "bytes, mode and time are as they were");
    assert_eq!(rows(&home)[&t(1)], (0, false, at(&log.active_path())));
    let differs: Vec<_> = before
        .iter()
        .zip(dump(&home.file("state_5.sqlite")))
        .filter(|(a, b)| *a != b)
        .map(|(a, _)| a.clone())
        .collect();
    assert_eq!(differs.len(), 1, "only where its rollout is: {differs:?}");
    assert_eq!(active(&home), ids([1, 2]));
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put_archived(&Log::healthy(&t(2), AT));
    refused(&home, &["archive", &t(2)], 1, "not_found");
    refused(&home, &["unarchive", &t(1)], 1, "not_found");
    for command in ["archive", "unarchive", "delete", "restore"] {
        let out = refused(&home, &[command, &t(9)], 1, "not_found");
        assert!(out.error()["message"].as_str().is_some_and(|m| m.contains(&t(9)) || command == "restore"), "{out:?}");
        refused(&home, &[command], 2, "usage");
    }
    // Nobody can be asked.
    let out = home.run(&["delete", &t(1)]);
    assert_eq!((out.code, out.error()["kind"].as_str()), (3, Some("refused")), "{out:?}");
    assert_eq!(home.list(&["--all"]).set(), ids([1, 2]));
}

#[test]
fn a_thread_in_use_is_refused_and_its_holder_named() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::healthy(&t(2), AT));
    let lock = home.write(&format!("thread-writer-locks/{}.lock", t(1)), "");
    let held = fs::File::open(&lock).unwrap();
    held.try_lock().unwrap();
    for command in ["archive", "delete"] {
        let out = refused(&home, &[command, &t(1), "--yes"], 3, "refused");
        let holder = std::process::id().to_string();
        assert!(out.error()["message"].as_str().is_some_and(|m| m.contains(&holder)), "{out:?}");
    }
    // The others are done; what remains is told.
    let out = change(&home, &["archive", &t(1), &t(2)]);
    assert_eq!(out.code, 5, "{out:?}");
    let ok: Vec<_> =
        out.json["results"].as_array().unwrap().iter().map(|r| (r["thread_id"].clone(), r["ok"].clone())).collect();
    assert_eq!(ok, [(json!(t(1)), json!(false)), (json!(t(2)), json!(true))]);
    assert_eq!((archived(&home), active(&home)), (ids([2]), ids([1])));
    drop(held);
    done(&home, &["archive", &t(1)]);
}

/// B50: one file under two spellings is one file: the path of the row is an alias, the folder is reached by a link.
#[test]
fn b50_two_spellings_of_one_file_are_one_file() {
    for alias in ["linked", "dots", "slashes"] {
        let home = Home::new();
        let log = Log::healthy(&t(1), AT);
        home.put(&log);
        let link = home.outside("link");
        symlink(home.path(), &link).unwrap();
        let path = match alias {
            "linked" => link.join(log.active_path()),
            "dots" => home.path().join("sessions/./2026/../2026/08/20").join(log.stem() + ".jsonl"),
            _ => format!("{}//{}", home.path().display(), log.active_path()).into(),
        };
        home.state().row(&t(1), &[("rollout_path", text(&path.to_string_lossy()))]).close();
        let was = files(&home);
        done(&home, &["archive", &t(1)]);
        let real = fs::canonicalize(home.path()).unwrap();
        assert_eq!(rows(&home)[&t(1)].2, real.join(log.archived_path()).to_string_lossy(), "{alias}");
        done(&home, &["unarchive", &t(1)]);
        assert!(was.changed(&home).is_empty() && was.made(&home).is_empty(), "{alias}");
        assert_eq!(rows(&home)[&t(1)].2, real.join(log.active_path()).to_string_lossy(), "{alias}");
    }
    // The same home under another name.
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    let link = home.outside("link");
    symlink(home.path(), &link).unwrap();
    let linked = link.to_string_lossy().into_owned();
    let out = told(&home, &["archive", &t(1), "--home", &linked], |_| ());
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!(archived(&home), ids([1]));
}

/// B51: the folder is the one of the day in the name, whatever zone writer and reader are in.
#[test]
fn b51_the_day_in_the_name_counts() {
    for zone in ["Asia/Taipei", "America/Los_Angeles", "Europe/Paris", "UTC"] {
        let home = Home::new();
        let log = Log::new(&t(1), "2026-08-19T17:10:00.123Z").meta().user("hello").agent("hi");
        let name = format!("rollout-2026-08-20T01-10-00-{}.jsonl", t(1));
        let active = format!("sessions/2026/08/20/{name}");
        home.put_at(&active, &log);
        let was = files(&home);
        for command in ["archive", "unarchive"] {
            let out = change_with(&home, &[command, &t(1)], |c| {
                c.env("TZ", zone);
            });
            assert_eq!(out.code, 0, "{zone}: {out:?}");
            let there = if command == "archive" { format!("archived_sessions/{name}") } else { active.clone() };
            assert!(home.file(&there).is_file(), "{zone}: {there}");
        }
        assert!(was.changed(&home).is_empty() && was.made(&home).is_empty(), "{zone}");
    }
}

/// B53: a path that was right before is only a hint.
#[test]
fn b53_a_path_of_before_is_a_hint() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    home.put(&log);
    done(&home, &["archive", &t(1)]);
    let path = home.path().join(log.archived_path());
    home.state().row(&t(1), &[("rollout_path", text(&path.to_string_lossy())), ("archived", int(1))]).close();
    done(&home, &["unarchive", &t(1)]);
    let out = home.run(&["resume", &t(1)]);
    assert_eq!((out.code, &out.json["archived"]), (0, &json!(false)), "{out:?}");
    assert_eq!(home.show(&[&t(1)]).code, 0);
    done(&home, &["archive", &t(1)]);
    done(&home, &["unarchive", &t(1)]);
}

/// B54: where a flag and a place disagree the place counts, and a change settles the flag.
#[test]
fn b54_the_place_counts() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put_archived(&Log::healthy(&t(2), AT));
    home.state().row(&t(1), &[("archived", int(1)), ("archived_at", int(5))]).row(&t(2), &[]).close();
    assert_eq!((active(&home), archived(&home)), (ids([1]), ids([2])));
    refused(&home, &["unarchive", &t(1)], 1, "not_found");
    refused(&home, &["archive", &t(2)], 1, "not_found");
    done(&home, &["archive", &t(1)]);
    done(&home, &["unarchive", &t(2)]);
    assert_eq!((active(&home), archived(&home)), (ids([2]), ids([1])));
    let rows = rows(&home);
    assert_eq!((rows[&t(1)].0, rows[&t(2)].0), (1, 0));
}

/// B56: a thread of which only a row and a name are left can be forgotten, and comes back.
#[test]
fn b56_a_thread_without_a_transcript_can_be_forgotten() {
    let home = Home::new();
    home.put(&Log::healthy(&t(2), AT));
    home.idx(&t(1), "a ghost", AT);
    home.state().row(&t(1), &[("title", text("a ghost"))]).close();
    // A third of which only the name is left.
    home.idx(&t(3), "only a name", AT);
    assert!(home.list(&["--all"]).set().contains(&t(1)));
    for command in ["archive", "unarchive"] {
        let out = refused(&home, &[command, &t(1)], 1, "not_found");
        assert!(out.error()["message"].as_str().is_some_and(|m| m.contains("is gone")), "{out:?}");
    }
    let (lines, before) = (index_lines(&home), dump(&home.file("state_5.sqlite")));
    done(&home, &["delete", "a ghost", &t(3), "--yes"]);
    assert_eq!(home.list(&["--all"]).set(), ids([2]));
    assert!(index_lines(&home).is_empty() && rows(&home).is_empty());
    done(&home, &["restore", "--all"]);
    assert_eq!(index_lines(&home), lines);
    assert!(dump(&home.file("state_5.sqlite")) == before);
}

fn family(home: &Home) {
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::new(&t(2), AT).sub(&t(1)).user("a").agent("b"));
    home.put(&Log::new(&t(3), AT).sub(&t(2)).user("a").agent("b"));
    home.put(&Log::healthy(&t(4), AT));
}

/// B58: with --cascade a thread's descendants go with it and come back; without, they stay and stand for themselves.
#[test]
fn b58_descendants_go_along_when_that_is_asked_for() {
    let home = Home::new();
    family(&home);
    let out = done(&home, &["archive", &t(1), "--cascade", "--yes"]);
    assert_eq!(planned(&out).len(), 3, "{out:?}");
    assert_eq!((archived(&home), active(&home)), (ids([1, 2, 3]), ids([4])));
    done(&home, &["unarchive", &t(1), "--cascade", "--yes"]);
    assert_eq!((archived(&home), active(&home)), (vec![], ids([1, 2, 3, 4])));
    for flags in [&["--no-cascade"][..], &[]] {
        let out = done(&home, &[&["archive", &t(1)], flags].concat());
        assert_eq!(
            planned(&out),
            BTreeMap::from([(t(1), "archive".into()), (t(2), "keep".into()), (t(3), "keep".into())])
        );
        assert_eq!(archived(&home), ids([1]));
        // The one whose parent went is listed as a root; the one below it belongs to that.
        assert_eq!(home.list(&[]).set(), ids([2, 4]));
        done(&home, &["unarchive", &t(1)]);
        assert_eq!(home.list(&[]).set(), ids([1, 4]));
    }
}

/// B59: 67 descendants: the plan tells 68 threads, nothing goes without a word, and without --cascade they stay.
#[test]
fn b59_what_a_deletion_takes_is_said_first() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    for n in 2..=68 {
        let parent = if n < 5 { 1 } else { 2 + (n - 5) % 3 };
        let parent = if n > 40 { n - 30 } else { parent };
        home.put(&Log::new(&t(n), AT).sub(&t(parent)).user("a").agent("b"));
    }
    let was = files(&home);
    let out = home.run(&["delete", &t(1), "--cascade", "--dry-run"]);
    assert_eq!((out.code, planned(&out).len()), (0, 68), "{out:?}");
    assert!(planned(&out).values().all(|a| a == "delete"));
    let out = home.human(&["delete", &t(1), "--cascade", "--dry-run"]);
    assert!((1..=68).all(|n| out.stdout.contains(&t(n))) && out.stdout.contains("68 threads"), "{out:?}");
    let out = home.run(&["delete", &t(1), "--cascade"]);
    assert_eq!(out.code, 3, "nobody can be asked: {out:?}");
    assert!(was.changed(&home).is_empty());
    let out = done(&home, &["delete", &t(1), "--yes"]);
    assert_eq!(planned(&out).len(), 68, "those that stay are told, too");
    assert_eq!(home.list(&["--all", "--limit", "100"]).ids().len(), 67);
    assert_eq!(home.list(&[]).set(), ids([2, 3, 4]), "the children of what is gone are roots");
    done(&home, &["restore", &t(1)]);
    done(&home, &["delete", &t(1), "--cascade", "--yes"]);
    assert!(home.list(&["--all"]).ids().is_empty());
    done(&home, &["restore", "--all"]);
    assert!(was.changed(&home).is_empty(), "{:?}", was.changed(&home));
}

/// B61: a deleted thread is gone from every surface, and a restore brings every byte and row back.
#[test]
fn b61_a_deleted_thread_is_gone_everywhere_and_comes_back_whole() {
    let home = Home::new();
    family(&home);
    home.put_zst(&Log::healthy(&t(5), AT), &zstd::encode_all(&Log::healthy(&t(5), AT).bytes()[..], 3).unwrap());
    home.write("session_index.jsonl", "");
    for (n, name) in [(4, "other"), (1, "first"), (2, "second"), (4, "other again"), (1, "first again"), (5, "packed")]
    {
        home.idx(&t(n), name, AT);
    }
    let mut state = home.state();
    for n in 1..=5 {
        state = state.row(&t(n), &[("recency_at_ms", int(0)), ("title", text("x")), ("tokens_used", int(7))]);
    }
    state.close();
    let db = home.file("state_5.sqlite");
    let sql = rusqlite::Connection::open(&db).unwrap();
    for (parent, child) in [(1, 2), (2, 3)] {
        sql.execute("INSERT INTO thread_spawn_edges VALUES (?1, ?2, 'open')", [t(parent), t(child)]).unwrap();
    }
    // What the schema ties to a thread goes and comes with it.
    sql.execute_batch(
        "CREATE TABLE tied (id INTEGER PRIMARY KEY, thread_id TEXT NOT NULL REFERENCES threads(id) ON DELETE CASCADE, b BLOB);",
    )
    .unwrap();
    sql.execute("INSERT INTO tied VALUES (1, ?1, x'00ff'), (2, ?2, NULL)", [t(1), t(4)]).unwrap();
    sql.close().unwrap();
    let (was, before, lines) = (files(&home), dump(&db), fs::read(home.file("session_index.jsonl")).unwrap());
    for (threads, gone) in
        [(vec![t(1)], vec![1]), (vec![t(5), t(2)], vec![5, 2]), (vec![t(3), t(1), t(2)], vec![1, 2, 3])]
    {
        let mut args = vec!["delete", "--yes"];
        args.extend(threads.iter().map(String::as_str));
        done(&home, &args);
        let left = home.list(&["--all"]).set();
        for n in &gone {
            let id = t(*n);
            assert!(!left.contains(&id) && !rows(&home).contains_key(&id), "{n}");
            assert!(index_lines(&home).iter().all(|(line, _)| *line != id), "{n}");
            assert!(!dump(&db).iter().any(|cell| cell.contains(&id) && !cell.starts_with("threads")), "{n}");
            assert_eq!(home.run(&["show", &id]).code, 1);
        }
        assert!(!home.search(&["hello", "--all"]).hit_threads().iter().any(|hit| threads.contains(hit)));
        let trash = home.run(&["trash", "list"]);
        assert_eq!(trash.json["entries"].as_array().map(Vec::len), Some(gone.len()), "{trash:?}");
        done(&home, &["restore", "--all"]);
        let changed = was.changed(&home);
        assert!(changed.iter().all(|f| f == "session_index.jsonl"), "{changed:?}");
        assert_eq!(fs::read(home.file("session_index.jsonl")).unwrap(), lines, "every byte of the name index");
        assert_eq!(dump(&db), before, "every row");
        assert!(home.run(&["trash", "list"]).json["entries"].as_array().is_some_and(Vec::is_empty));
        assert!(was.made(&home).iter().all(|f| !f.contains("trash")), "{:?}", was.made(&home));
    }
}

/// B63: an ancestor goes only when nobody needs it.
#[test]
fn b63_what_a_fork_needs_is_kept_and_said() {
    let home = Home::new();
    let first = Log::paginated(&t(1), AT).meta().turn("one", "two");
    home.put(&first);
    let (ordinal, bytes) = (first.lines().len(), first.bytes().len());
    let base = |of: u32, ordinal: usize, bytes: usize| json!({"forked_from_id": t(of), "history_base": {"thread_id": t(of), "end_ordinal_exclusive": ordinal, "end_byte_offset": bytes}});
    let second =
        Log::paginated(&t(2), AT).ordinal(ordinal as u64).meta_with(base(1, ordinal, bytes)).turn("three", "four");
    home.put(&second);
    let end = ordinal + second.lines().len();
    home.put(
        &Log::paginated(&t(3), AT)
            .ordinal(end as u64)
            .meta_with(base(2, end, second.bytes().len()))
            .turn("five", "six"),
    );
    let out = refused(&home, &["delete", &t(1), "--yes"], 3, "refused");
    assert!(out.error()["message"].as_str().is_some_and(|m| m.contains(&t(2))), "{out:?}");
    let out = change(&home, &["delete", &t(1), &t(2), "--yes"]);
    assert_eq!(out.code, 3, "both stay: {out:?}");
    // An archive is no obstacle: what refers to it finds it there.
    done(&home, &["archive", &t(1)]);
    assert_eq!(home.show(&[&t(3)]).turns().len(), 3);
    done(&home, &["unarchive", &t(1)]);
    // All of them at once may go, in whatever order they are named.
    let was = files(&home);
    done(&home, &["delete", &t(1), &t(2), &t(3), "--yes"]);
    assert!(home.list(&["--all"]).ids().is_empty());
    done(&home, &["restore", &t(2), &t(1), &t(3)]);
    assert!(was.changed(&home).is_empty());
    assert_eq!(home.show(&[&t(3)]).turns().len(), 3);
}

/// B64: two files of one thread, one the other's base, move together.
#[test]
fn b64_segments_move_together() {
    let home = Home::new();
    let first = Log::paginated(&t(1), AT).meta().turn("one", "two");
    home.put(&first);
    let base = json!({"history_base": {"thread_id": t(1), "end_ordinal_exclusive": first.lines().len(), "end_byte_offset": first.bytes().len()}});
    let second = Log::paginated(&t(1), "2026-08-21T01:10:00Z")
        .ordinal(first.lines().len() as u64)
        .meta_with(base)
        .turn("three", "four");
    home.put_at(&format!("sessions/2026/08/21/rollout-2026-08-21T01-10-00-{}.jsonl", t(1)), &second);
    let was = files(&home);
    for (there, back) in [("archive", "unarchive"), ("delete", "restore")] {
        done(&home, &[there, &t(1), "--yes"]);
        assert_eq!(was.changed(&home).len(), 2, "{there}");
        done(&home, &[back, &t(1), "--yes"]);
        assert!(was.changed(&home).is_empty(), "{back}");
        assert_eq!(home.show(&[&t(1)]).turns().len(), 2);
    }
}

/// B66: plain and compressed form of one rollout move together; nothing that stands at the other place is replaced.
#[test]
fn b66_both_forms_move_and_nothing_is_replaced() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT).user("more");
    let shorter = Log::healthy(&t(1), AT);
    home.put(&log);
    home.put_zst(&shorter, &zstd::encode_all(&shorter.bytes()[..], 3).unwrap());
    let was = files(&home);
    done(&home, &["archive", &t(1)]);
    assert_eq!(fs::read_dir(home.file("archived_sessions")).unwrap().count(), 2);
    done(&home, &["unarchive", &t(1)]);
    assert!(was.changed(&home).is_empty());
    // A file of the same name stands in the archive, and is another one.
    home.put_at(&log.archived_path(), &Log::healthy(&t(1), AT).user("something else"));
    let was = files(&home);
    refused(&home, &["archive", &t(1)], 3, "refused");
    refused(&home, &["unarchive", &t(1)], 3, "refused");
    assert!(was.changed(&home).is_empty());
    // A deletion takes all of them, and brings all of them back.
    done(&home, &["delete", &t(1), "--yes"]);
    assert_eq!(was.changed(&home).len(), 3);
    done(&home, &["restore", &t(1)]);
    assert!(was.changed(&home).is_empty());
}

#[test]
fn threads_are_chosen_by_file_or_by_filter() {
    let home = Home::new();
    for n in 1..=6 {
        home.put(&Log::healthy(&t(n), AT));
    }
    home.idx(&t(6), "named", AT);
    let list = home.outside("ids");
    fs::write(&list, format!("# some\n{}\n\n  {}\n", t(1), t(2))).unwrap();
    done(&home, &["archive", "--ids-file", &list.to_string_lossy()]);
    assert_eq!(archived(&home), ids([1, 2]));
    let out = home.run(&["archive", "--named"]);
    assert_eq!(out.code, 3, "a filter asks: {out:?}");
    done(&home, &["archive", "--named", "--yes"]);
    assert_eq!(archived(&home), ids([1, 2, 6]));
    done(&home, &["unarchive", "--all", "--yes"]);
    assert!(archived(&home).is_empty());
    let out = home.run(&["archive", "--named", &t(1)]);
    assert_eq!((out.code, out.error()["kind"].as_str()), (2, Some("usage")), "{out:?}");
    // A name, a prefix, and one that is nothing: the others are done.
    let out = change(&home, &["archive", "named", &t(3), "nothing of this name"]);
    assert_eq!(out.code, 5, "{out:?}");
    assert_eq!(archived(&home), ids([3, 6]));
}

#[test]
fn the_trash_is_only_emptied_when_that_is_asked_for() {
    let home = Home::new();
    for n in 1..=3 {
        home.put(&Log::healthy(&t(n), AT));
    }
    done(&home, &["delete", &t(1), &t(2), "--yes"]);
    let entries = home.run(&["trash", "list"]).json["entries"].clone();
    assert_eq!(entries.as_array().map(Vec::len), Some(2), "{entries}");
    assert!(entries[0]["bytes"].as_u64().is_some_and(|b| b > 0) && entries[0]["files"] == 1, "{entries}");
    let out = home.run(&["trash", "empty"]);
    assert_eq!(out.code, 3, "nobody can be asked: {out:?}");
    done(&home, &["trash", "empty", "--older-than", "1d", "--yes"]);
    assert_eq!(home.run(&["trash", "list"]).json["entries"].as_array().map(Vec::len), Some(2));
    let out = done(&home, &["trash", "empty", &t(1), "--yes"]);
    assert!(out.json["freed_bytes"].as_u64().is_some_and(|b| b > 0), "{out:?}");
    refused(&home, &["restore", &t(1)], 1, "not_found");
    done(&home, &["restore", &t(2)]);
    assert_eq!(home.list(&["--all"]).set(), ids([2, 3]));
    // Deleted twice: both stand in the trash, and the newer comes back first.
    done(&home, &["delete", &t(2), "--yes"]);
    home.put(&Log::healthy(&t(2), AT).user("again"));
    done(&home, &["delete", &t(2), "--yes"]);
    assert_eq!(home.run(&["trash", "list"]).json["entries"].as_array().map(Vec::len), Some(2));
    done(&home, &["restore", &t(2)]);
    assert_eq!(home.search(&["again"]).hit_threads(), ids([2]));
    refused(&home, &["restore", &t(2)], 3, "refused");
}
