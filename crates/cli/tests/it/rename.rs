//! `rename`: the plan, what becomes of it, and what it refuses.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use crate::{
    db::text,
    home::Home,
    log::{Log, t},
    write_run::{cells_changed, change, done, dry, dump, files, index_lines, plan, refused, told},
};

const AT: &str = "2026-03-01T10:00:00Z";
const LATER: &str = "2026-03-02T10:00:00Z";

fn step(action: &str, path: &str) -> (String, String) {
    (action.to_owned(), path.to_owned())
}

/// The name of a thread as a list tells it.
#[track_caller]
fn name(home: &Home, thread: &str) -> Value {
    home.list(&["--all"]).thread(thread)["name"].clone()
}

#[test]
fn the_plan_comes_first_and_a_dry_run_only_plans() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    let out = dry(&home, &["rename", &t(1), "a name"]);
    assert_eq!(plan(&home, &out), [step("add_name", "session_index.jsonl")]);
    assert_eq!(out.json["plan"][0]["thread_id"], t(1));

    let told = told(&home, &["rename", &t(1), "a name"], |_| ());
    assert_eq!(told.code, 0, "{told:?}");
    let lines: Vec<&str> = told.stdout.lines().collect();
    assert!(lines[0].starts_with("add_name: session_index.jsonl"), "{told:?}");
    assert!(lines.last().is_some_and(|l| l.contains(&t(1)) && l.contains("a name")), "{told:?}");

    let out = dry(&home, &["rename", &t(1), "another"]);
    assert!(out.json["plan"][0]["because"].as_str().is_some_and(|b| b.contains("a name")), "{out:?}");
    let out = done(&home, &["rename", &t(1), "another"]);
    assert_eq!(out.json["results"], json!([{"thread_id": t(1), "ok": true, "error": null}]));
    assert_eq!(name(&home, &t(1)), "another");
}

/// A rename is a line of the name index, and nothing else of the home moves: no rollout, no time, no lock left.
#[test]
fn only_the_name_index_changes() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::paginated(&t(2), AT).meta().turn("q", "a"));
    home.write("config.toml", "model = \"x\"\n");
    let before = home.list(&["--all"]);
    let were = files(&home);
    for thread in [t(1), t(2)] {
        done(&home, &["rename", &thread, "given"]);
        assert_eq!(were.made(&home), ["session_index.jsonl"]);
        assert!(were.changed(&home).is_empty(), "{:?}", were.changed(&home));
        let (was, list) = (before.thread(&thread), home.list(&["--all"]));
        let is = list.thread(&thread);
        for fact in ["updated_at", "recency_at", "created_at", "records", "bytes", "preview", "live", "damage"] {
            assert_eq!(was[fact], is[fact], "{fact}");
        }
        assert_eq!(is["name"], "given");
    }
    assert_eq!(index_lines(&home), [(t(1), "given".into()), (t(2), "given".into())]);
    let mode = fs::metadata(home.file("session_index.jsonl")).expect("the index").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Of Codex's database exactly the one column, in the release's way: the title of a legacy thread, the name of a
/// paginated one. The names of other threads stay.
#[test]
fn codex_sees_the_name_in_its_own_column() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::paginated(&t(2), AT).meta().turn("a question", "an answer"));
    home.put(&Log::healthy(&t(3), AT));
    let hello = format!("hello {}", t(1));
    let mut state = home.state();
    for n in [1, 3] {
        state = state.row(&t(n), &[("title", text(&hello)), ("first_user_message", text(&hello))]);
    }
    let question = [
        ("title", text("a question")),
        ("first_user_message", text("a question")),
        ("history_mode", text("paginated")),
    ];
    state.row(&t(2), &question).close();
    let db = home.file("state_5.sqlite");
    for (thread, column) in [(t(1), "title"), (t(2), "name")] {
        let before = dump(&db);
        let were = files(&home);
        let out = dry(&home, &["rename", &thread, "given"]);
        assert_eq!(
            plan(&home, &out),
            [step("add_name", "session_index.jsonl"), step("set_codex_name", "state_5.sqlite")]
        );
        assert!(out.json["plan"][1]["because"].as_str().is_some_and(|b| b.contains(&format!("threads.{column}"))));
        assert!(cells_changed(&before, &db).is_empty());
        done(&home, &["rename", &thread, "given"]);
        let changed = cells_changed(&before, &db);
        assert_eq!(changed.len(), 1, "{changed:?}");
        assert!(changed[0].1.contains(&format!(" {column} = Text(\"given\")")), "{changed:?}");
        assert!(changed[0].1.contains(&thread), "{changed:?}");
        assert!(were.made(&home).iter().all(|f| f == "session_index.jsonl"), "{:?}", were.made(&home));
        assert_eq!(name(&home, &thread), "given");
    }
    assert_eq!(name(&home, &t(3)), Value::Null);

    // Cleared: as if it had never been given.
    for thread in [t(1), t(2)] {
        let out = dry(&home, &["rename", &thread, "--clear"]);
        let actions: Vec<String> = plan(&home, &out).into_iter().map(|(action, _)| action).collect();
        assert_eq!(actions, ["add_cleared_name", "clear_codex_name"]);
        done(&home, &["rename", &thread, "--clear"]);
        assert_eq!(name(&home, &thread), Value::Null);
        // Again: there is nothing to lose.
        done(&home, &["rename", &thread, "--clear"]);
        assert_eq!(name(&home, &thread), Value::Null);
    }
    let rows = dump(&db).join("\n");
    assert!(!rows.contains("given"), "{rows}");
}

/// A row of another thread is no reason to write, and a thread without a row gets none.
#[test]
fn a_database_without_the_thread_stays_as_it_is() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.state().row(&t(9), &[("title", text("other"))]).close();
    let before = dump(&home.file("state_5.sqlite"));
    let out = dry(&home, &["rename", &t(1), "given"]);
    assert_eq!(plan(&home, &out), [step("add_name", "session_index.jsonl")]);
    let were = files(&home);
    done(&home, &["rename", &t(1), "given"]);
    assert_eq!(were.made(&home), ["session_index.jsonl"]);
    assert!(cells_changed(&before, &home.file("state_5.sqlite")).is_empty());
    assert_eq!(name(&home, &t(1)), "given");
}

/// Names as people and programs give them come back as they are, in every place and by every command.
#[test]
fn names_of_every_kind_come_back() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::paginated(&t(2), AT).meta().turn("a question", "an answer"));
    home.state()
        .row(&t(1), &[("title", text("x")), ("first_user_message", text("x"))])
        .row(&t(2), &[("history_mode", text("paginated"))])
        .close();
    let long = "long ".repeat(20_000);
    let names = [
        "plain",
        "Größe 大きさ размер",
        "👩‍👩‍👧 e\u{301} \u{202e}turned\u{202c}",
        "line\u{2028}separator\u{2029}and\u{85}next",
        "tab\there",
        "\u{1b}[31mred\u{1b}[0m bell\u{7} back\u{8} del\u{7f}",
        "quote \" backslash \\ slash / brace {\"a\":1}",
        "'; DROP TABLE threads; --",
        "%s %_ ?1 $1 `x`",
        "sessions/2026/03/01/x.jsonl",
        "feat/login",
        "01990000",
        "null",
        "0",
        "\u{feff}mark",
        "\u{0}".trim_matches('\0'),
        &long,
    ];
    for given in names.iter().filter(|n| !n.is_empty()) {
        for thread in [t(1), t(2)] {
            done(&home, &["rename", &thread, given]);
            let want = given.trim();
            assert_eq!(name(&home, &thread), want);
            let out = home.human(&["list", "--all"]);
            assert!(!out.stdout.contains(['\u{1b}', '\u{7}', '\u{202e}']), "{out:?}");
        }
        // Both have it now: the command does not choose.
        let out = home.run(&["show", given.trim()]);
        let is_prefix = *given == "01990000";
        assert_eq!((out.code, out.error()["kind"].as_str()), (2, Some("ambiguous")), "{is_prefix} {out:?}");
        let what = told(&home, &["rename", &t(2), given], |_| ());
        assert!(!what.stdout.contains(['\u{1b}', '\u{7}', '\u{8}']), "{what:?}");
        done(&home, &["rename", &t(2), "--clear"]);
        let shown = home.show(&[given.trim()]);
        assert_eq!(shown.json["thread"]["id"], t(1));
    }
    // One that looks like an option.
    done(&home, &["rename", "--", &t(1), "--clear"]);
    assert_eq!(name(&home, &t(1)), "--clear");
    // White space around it is no part of it.
    done(&home, &["rename", &t(1), " \t inner  space \u{3000} "]);
    assert_eq!(name(&home, &t(1)), "inner  space");
}

#[test]
fn a_name_that_is_none_is_refused() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.idx(&t(1), "kept", AT);
    home.state().row(&t(1), &[("title", text("kept"))]).close();
    for bad in ["", " ", "\t", "\u{3000}\u{a0}", "two\nlines", "two\r\nlines", "a\rb", "\n\nx\ny"] {
        refused(&home, &["rename", &t(1), bad], 2, "usage");
    }
    for words in [&["rename", &t(1)][..], &["rename"], &["rename", &t(1), "x", "--clear"], &["rename", &t(1), "x", "y"]]
    {
        let out = home.human(words);
        assert_eq!(out.code, 2, "{out:?}");
    }
    assert_eq!(name(&home, &t(1)), "kept");
    // A line end at its end is white space.
    done(&home, &["rename", &t(1), "from a pipe\n"]);
    assert_eq!(name(&home, &t(1)), "from a pipe");
}

#[test]
fn a_thread_that_is_not_there() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.idx(&t(8), "dangling", AT);
    home.state().row(&t(7), &[("title", text("ghost")), ("first_user_message", text("x"))]).close();
    for query in [t(9).as_str(), "nobody", "0199ffff", "./no/such.jsonl", ""] {
        refused(&home, &["rename", query, "new"], 1, "not_found");
    }
    let out = refused(&home, &["rename", "dangling", "new"], 1, "not_found");
    assert!(out.error()["hint"].as_str().is_some_and(|hint| hint.contains(&t(8))), "{out:?}");
    let out = refused(&home, &["rename", &t(7), "new"], 1, "not_found");
    assert!(out.error()["message"].as_str().is_some_and(|m| m.contains("gone")), "{out:?}");
    let nowhere = told(&home, &["--home", "/no/such/home", "rename", &t(1), "new"], |_| ());
    assert!(nowhere.code == 1 || nowhere.code == 0, "{nowhere:?}");
}

#[test]
fn two_threads_that_fit_are_both_told() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::healthy(&t(2), AT));
    home.idx(&t(1), "same", AT);
    home.idx(&t(2), "same", LATER);
    for query in ["same", "01990000"] {
        let out = refused(&home, &["rename", query, "new"], 2, "ambiguous");
        let mut ids: Vec<&str> = out.error()["candidates"]
            .as_array()
            .expect("candidates")
            .iter()
            .map(|c| c["id"].as_str().expect("an id"))
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, [t(1), t(2)]);
    }
    done(&home, &["rename", &t(2), "other"]);
    done(&home, &["rename", "same", "new"]);
    assert_eq!((name(&home, &t(1)), name(&home, &t(2))), (json!("new"), json!("other")));
}

/// Whatever form a thread has, its name is set and its files are not touched.
#[test]
fn every_form_of_thread_has_a_name() {
    let home = Home::new();
    let archived = Log::healthy(&t(1), AT);
    home.put_archived(&archived);
    let packed = Log::healthy(&t(2), AT);
    home.put_zst(&packed, &zstd::encode_all(packed.bytes().as_slice(), 3).expect("zstd"));
    // Two copies of one thread, one of them under another name, and one empty.
    let twice = Log::healthy(&t(3), AT);
    home.put(&twice);
    home.put_at(&twice.active_path().replace(".jsonl", " (1).jsonl"), &twice);
    home.put_bytes(&twice.active_path().replace(".jsonl", " (2).jsonl"), b"", twice.last());
    // Active and archived at once.
    let both = Log::healthy(&t(4), AT);
    home.put(&both);
    home.put_archived(&both);
    // Without a header; with one of 2025; with the header on the third line; damaged at head and end.
    home.put(&Log::new(&t(5), AT).user("no header").agent("x"));
    let bare = format!("{{\"id\":\"{}\",\"timestamp\":\"2026-03-01T10:00:00Z\",\"instructions\":null}}\n", t(6));
    home.put(&Log::new(&t(6), AT).raw(bare.as_bytes()).user("bare"));
    home.put(
        &Log::new(&t(7), AT).raw(b"{\"record_type\":\"state\"}\n{\"record_type\":\"state\"}\n").meta().user("late"),
    );
    home.put(&Log::new(&t(8), AT).raw(b"{\"torn\n").meta().user("x").raw(&[0; 500]).raw(b"{\"torn"));
    // In both forms, the plain one shorter.
    let short = Log::new(&t(9), AT).meta();
    home.put(&short);
    let whole = Log::healthy(&t(9), AT);
    home.put_zst(&whole, &zstd::encode_all(whole.bytes().as_slice(), 3).expect("zstd"));
    for n in 1..=9 {
        let were = files(&home);
        let given = format!("name {n}");
        let out = done(&home, &["rename", &t(n), &given]);
        assert_eq!(plan(&home, &out), [step("add_name", "session_index.jsonl")]);
        assert_eq!(name(&home, &t(n)), given, "{n}");
        let changed: Vec<String> = were.changed(&home).into_iter().filter(|f| f != "session_index.jsonl").collect();
        assert!(changed.is_empty(), "{n}: {changed:?}");
        assert!(were.made(&home).iter().all(|f| f == "session_index.jsonl"), "{n}: {:?}", were.made(&home));
    }
    for n in 1..=9 {
        done(&home, &["rename", &format!("name {n}"), "--clear"]);
        assert_eq!(name(&home, &t(n)), Value::Null, "{n}");
    }
}

/// A file that is in no home has nowhere to keep a name.
#[test]
fn a_file_outside_the_home_is_refused() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    let log = Log::healthy(&t(2), AT);
    let outside = home.outside(&format!("{}.jsonl", log.stem()));
    fs::write(&outside, log.bytes()).expect("a file");
    let out = refused(&home, &["rename", outside.to_str().expect("UTF-8"), "new"], 2, "usage");
    assert!(out.stderr.contains("in no home"), "{out:?}");
    // By the path of a file of the home, in any spelling, it is that thread.
    let inside = home.file(&Log::healthy(&t(1), AT).active_path());
    done(&home, &["rename", inside.to_str().expect("UTF-8"), "by path"]);
    assert_eq!(name(&home, &t(1)), "by path");
}

/// With several homes the name goes to the home of the thread.
#[test]
fn the_home_of_the_thread() {
    let (one, two) = (Home::new(), Home::new());
    one.put(&Log::healthy(&t(1), AT));
    two.put(&Log::healthy(&t(2), AT));
    let (was, second) = (one.snapshot(), two.path());
    let out = change(&one, &["--home".as_ref(), second.as_os_str(), "rename".as_ref(), t(2).as_ref(), "far".as_ref()]);
    assert_eq!(out.code, 0, "{out:?}");
    assert!(was == one.snapshot(), "the other home stays");
    assert_eq!(name(&two, &t(2)), "far");
}

/// The name index as other programs left it: no byte of it changes, a torn line stays alone, its mode stays, and a link
/// stays a link.
#[test]
fn what_stands_in_the_name_index_stays() {
    let good = format!("{{\"id\":\"{}\",\"thread_name\":\"old\",\"updated_at\":\"{AT}\"}}", t(1));
    for (content, torn) in [
        (String::new(), false),
        (format!("{good}\n"), false),
        (good.clone(), true),
        (format!("{good}\n{{\"id\":\"{}\",\"thread_na", t(2)), true),
        (format!("{good}\r\n\r\nnot json\n"), false),
        (format!("{good}\n{}", "\0".repeat(4_096)), true),
    ] {
        for link in [false, true] {
            let home = Home::new();
            home.put(&Log::healthy(&t(1), AT));
            let place = if link { home.outside("shared.jsonl") } else { home.file("session_index.jsonl") };
            fs::write(&place, &content).expect("the index");
            fs::set_permissions(&place, fs::Permissions::from_mode(0o644)).expect("a mode");
            if link {
                std::os::unix::fs::symlink(&place, home.file("session_index.jsonl")).expect("a link");
            }
            done(&home, &["rename", &t(1), "new"]);
            let bytes = fs::read(&place).expect("the index");
            let end = if torn { format!("{content}\n") } else { content.clone() };
            assert!(bytes.starts_with(end.as_bytes()), "{}", String::from_utf8_lossy(&bytes));
            let added = &bytes[end.len()..];
            assert_eq!(added.iter().filter(|b| **b == b'\n').count(), 1, "one line");
            let line: Value = serde_json::from_slice(added).expect("a line");
            assert_eq!((&line["id"], &line["thread_name"]), (&json!(t(1)), &json!("new")));
            assert!(line["updated_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{line}");
            assert_eq!(name(&home, &t(1)), "new");
            assert_eq!(fs::metadata(&place).expect("it").permissions().mode() & 0o777, 0o644);
            assert_eq!(fs::symlink_metadata(home.file("session_index.jsonl")).expect("it").is_symlink(), link);
        }
    }
}
