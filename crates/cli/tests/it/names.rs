//! A name leads to its thread in every command, wherever the name is kept.

use serde_json::Value;

use crate::{
    db::{int, text},
    home::{Home, ids},
    log::{Log, t},
};

const AT: &str = "2026-03-01T10:00:00Z";
const LATER: &str = "2026-03-02T10:00:00Z";

/// A thread with a name, in the list, the filter, the search and by `show` and `resume`.
#[track_caller]
fn found_by_name(home: &Home, name: &str, thread: &str) {
    assert_eq!(home.list(&[]).thread(thread)["name"], name);
    assert_eq!(home.list(&["--match", name]).ids(), [thread]);
    assert_eq!(home.list(&["--named", "--match", name]).ids(), [thread]);
    let hits = home.search(&[name]);
    let named = hits.hits().iter().find(|hit| hit["speaker"] == "name").expect("the name is a hit");
    assert_eq!(named["thread_id"], thread);
    assert_eq!(home.show(&[name]).json["thread"]["id"], thread);
    let resume = home.run(&["resume", name]);
    assert_eq!((resume.code, &resume.json["thread_id"]), (0, &Value::from(thread)));
}

/// The list showed the first message and search and resume by name found nothing.
#[test]
fn b22_name_from_the_index() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::healthy(&t(2), AT));
    home.idx(&t(1), "FooBar", LATER);
    let title = format!("hello {}", t(1));
    home.state().row(&t(1), &[("title", text(&title)), ("first_user_message", text(&title))]).close();
    found_by_name(&home, "FooBar", &t(1));
    assert_eq!(home.list(&[]).thread(&t(2))["name"], Value::Null);
}

/// Names that only Codex's database holds: a title of a legacy thread, the name of a paginated one.
#[test]
fn b22_name_from_the_database() {
    let home = Home::new();
    let paginated = Log::paginated(&t(1), AT).meta().turn("a question", "an answer");
    home.put(&paginated);
    home.put(&Log::healthy(&t(2), AT));
    let hello = format!("hello {}", t(2));
    home.state()
        .row(&t(1), &[("name", text("Paged name")), ("history_mode", text("paginated")), ("title", text("a question"))])
        .row(&t(2), &[("title", text("Given title")), ("first_user_message", text(&hello))])
        .close();
    found_by_name(&home, "Paged name", &t(1));
    found_by_name(&home, "Given title", &t(2));
}

/// A title that is only the first message again is no name.
#[test]
fn b22_a_title_that_repeats_the_message_is_no_name() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    let hello = format!("hello {}", t(1));
    home.state().row(&t(1), &[("title", text(&hello)), ("first_user_message", text(&hello))]).close();
    assert_eq!(home.list(&[]).thread(&t(1))["name"], Value::Null);
    assert!(home.list(&["--named"]).ids().is_empty());
}

/// The last line of an id counts: renamed, and cleared.
#[test]
fn b22_renamed_and_cleared_names() {
    let home = Home::new();
    for n in 1..=3 {
        home.put(&Log::healthy(&t(n), AT));
    }
    home.idx(&t(1), "old name", AT);
    home.idx(&t(2), "to be cleared", AT);
    home.idx(&t(3), "kept", AT);
    home.idx(&t(1), "new name", LATER);
    home.idx(&t(2), "", LATER);
    found_by_name(&home, "new name", &t(1));
    assert_eq!(home.run(&["show", "old name"]).code, 1);
    assert_eq!(home.run(&["show", "to be cleared"]).code, 1);
    assert_eq!(home.list(&[]).thread(&t(2))["name"], Value::Null);
    assert_eq!(home.list(&["--named"]).set(), ids([1, 3]));
}

/// The name index as other programs leave it: bad lines, more fields, no line end, another order of fields.
#[test]
fn b22_name_index_with_bad_lines() {
    let home = Home::new();
    for n in 1..=3 {
        home.put(&Log::healthy(&t(n), AT));
    }
    let mut index =
        format!("{{\"thread_name\":\"first\",\"id\":\"{}\",\"updated_at\":\"{AT}\",\"extra\":[1]}}\r\n", t(1))
            .into_bytes();
    index.extend_from_slice(b"not json\n\n{\"id\":7,\"thread_name\":null}\n\0\0\0\n{\"id\":\"\xff\"}\n");
    index.extend_from_slice(format!("{{\"id\":\"{}\",\"thread_name\":\"second\"}}\n", t(2)).as_bytes());
    index.extend_from_slice(
        format!("{{\"id\":\"{}\",\"thread_name\":\"third\",\"updated_at\":\"{AT}\"}}", t(3)).as_bytes(),
    );
    home.write("session_index.jsonl", index);
    found_by_name(&home, "first", &t(1));
    found_by_name(&home, "second", &t(2));
    found_by_name(&home, "third", &t(3));
}

/// A newer entry of that name without a rollout won the look-up, and resume failed.
#[test]
fn b23_stale_name_entries_are_passed_over() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.idx(&t(1), "work", AT);
    home.idx(&t(2), "work", LATER);
    found_by_name(&home, "work", &t(1));
    for n in 3..30 {
        home.idx(&t(n), "work", LATER);
    }
    found_by_name(&home, "work", &t(1));
}

/// Only stale entries, or a name that the thread no longer has: nothing is found, and it says so.
#[test]
fn b23_only_stale_entries() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.idx(&t(1), "work", AT);
    home.idx(&t(1), "play", LATER);
    home.idx(&t(2), "gone", LATER);
    for name in ["work", "gone"] {
        for command in ["show", "resume"] {
            let out = home.run(&[command, name]);
            assert_eq!(out.code, 1, "{out:?}");
            assert_eq!(out.error()["kind"], "not_found");
        }
    }
    assert_eq!(home.list(&["--all"]).ids(), ids([1]));
}

/// A name on the third page of the list was not found.
#[test]
fn b25_names_are_found_at_any_position() {
    let home = Home::new();
    for n in 1..=60 {
        home.put(&Log::healthy(&t(n), &format!("2026-03-01T10:{:02}:00Z", n - 1)));
        home.idx(&t(n), &format!("name-{n}-end"), LATER);
    }
    home.put_archived(&Log::healthy(&t(61), AT));
    home.idx(&t(61), "in the archive", LATER);
    for n in [1, 2, 5, 9, 10, 35, 36, 59, 60] {
        let name = format!("name-{n}-end");
        assert_eq!(home.show(&[&name]).json["thread"]["id"], t(n));
        assert_eq!(home.run(&["resume", &name]).json["thread_id"], t(n));
        assert_eq!(home.list(&["--match", &name, "--limit", "25"]).ids(), [t(n)]);
        assert_eq!(home.search(&[&name, "--in", "name"]).hit_threads(), [t(n)]);
    }
    assert_eq!(home.show(&["in the archive"]).json["thread"]["id"], t(61));
}

/// Two living threads of one name: the candidates are told and nothing is guessed.
#[test]
fn two_threads_of_one_name_are_told() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put_archived(&Log::healthy(&t(2), AT));
    home.put(&Log::healthy(&t(3), AT));
    home.idx(&t(1), "twins", AT);
    home.idx(&t(2), "twins", LATER);
    for command in ["show", "resume"] {
        let out = home.run(&[command, "twins"]);
        assert_eq!(out.code, 2, "{out:?}");
        assert_eq!(out.error()["kind"], "ambiguous");
        let candidates = out.error()["candidates"].to_string();
        assert!(candidates.contains(&t(1)) && candidates.contains(&t(2)), "{candidates}");
        assert!(!candidates.contains(&t(3)), "{candidates}");
        assert!(out.stderr.contains(&t(1)) || out.stderr.contains("01990000"), "people see them too: {out:?}");
    }
}

/// A database that is in use holds its newest rows in the `-wal` file only.
#[test]
fn names_in_a_database_in_use() {
    let home = Home::new();
    home.put(&Log::paginated(&t(1), AT).meta().turn("a question", "an answer"));
    let state = home.state().row(&t(1), &[("name", text("fresh name")), ("history_mode", text("paginated"))]);
    assert!(home.file("state_5.sqlite-wal").exists());
    found_by_name(&home, "fresh name", &t(1));
    drop(state);
}

/// A home copied while Codex ran: the database and its `-wal`, without the `-shm`.
#[test]
fn names_in_a_copied_wal() {
    let from = Home::new();
    let state = from.state().row(&t(1), &[("name", text("copied name")), ("history_mode", text("paginated"))]);
    let home = Home::new();
    home.put(&Log::paginated(&t(1), AT).meta().turn("a question", "an answer"));
    for file in ["state_5.sqlite", "state_5.sqlite-wal"] {
        home.write(file, std::fs::read(from.file(file)).expect("the database"));
    }
    drop(state);
    found_by_name(&home, "copied name", &t(1));
}

/// A copy with all three files, of a moment when the database was in use: the names are read and nothing is touched.
#[test]
fn names_in_a_copied_wal_with_its_index() {
    let from = Home::new();
    let state = from.state().row(&t(1), &[("name", text("copied name")), ("history_mode", text("paginated"))]);
    let home = Home::new();
    home.put(&Log::paginated(&t(1), AT).meta().turn("a question", "an answer"));
    for file in ["state_5.sqlite", "state_5.sqlite-wal", "state_5.sqlite-shm"] {
        home.write(file, std::fs::read(from.file(file)).expect("the database"));
    }
    drop(state);
    found_by_name(&home, "copied name", &t(1));
}

/// The database in other places: only in `sqlite/`, where the configuration or the environment says.
#[test]
fn b69_the_database_in_other_places() {
    let paginated = Log::paginated(&t(1), AT).meta().turn("a question", "an answer");
    let row = [("name", text("elsewhere")), ("history_mode", text("paginated"))];
    let home = Home::new();
    home.put(&paginated);
    crate::db::StateDb::create(&home.file("sqlite/state_5.sqlite")).row(&t(1), &row).close();
    found_by_name(&home, "elsewhere", &t(1));

    let home = Home::new();
    home.put(&paginated);
    crate::db::StateDb::create(&home.outside("dbs/state_5.sqlite")).row(&t(1), &row).close();
    let dbs = home.outside("dbs");
    assert_eq!(home.list(&[]).thread(&t(1))["name"], Value::Null);
    let out = home.spawn(&["--json", "list"], |command| {
        command.env("CODEX_SQLITE_HOME", &dbs);
    });
    assert!(out.stdout.contains("elsewhere"), "{out:?}");
    home.write("config.toml", format!("sqlite_home = {:?}\n", dbs.to_str().expect("UTF-8")));
    found_by_name(&home, "elsewhere", &t(1));
}

/// Databases at both places, a newer generation beside the known one, and none that can be read.
#[test]
fn b69_several_databases() {
    let home = Home::new();
    for n in 1..=3 {
        home.put(&Log::paginated(&t(n), AT).meta().turn(&format!("question {n}"), "an answer"));
    }
    let row =
        |name: &str| [("name", text(name)), ("history_mode", text("paginated")), ("updated_at", int(1_772_359_300))];
    home.state().row(&t(1), &row("in the home")).close();
    crate::db::StateDb::create(&home.file("sqlite/state_5.sqlite")).row(&t(2), &row("in sqlite")).close();
    let out = home.list(&[]);
    assert_eq!(out.set(), ids(1..=3));
    let named = (&out.thread(&t(1))["name"], &out.thread(&t(2))["name"]);
    assert!(*named.0 == "in the home" || *named.1 == "in sqlite", "one of them is read: {named:?}");
    crate::db::StateDb::create(&home.file("state_6.sqlite")).row(&t(3), &row("of a new kind")).close();
    assert_eq!(home.list(&[]).set(), ids(1..=3));
    home.write("state_7.sqlite", "not a database");
    home.write("state_4.sqlite", "");
    assert_eq!(home.list(&[]).set(), ids(1..=3));
    assert_eq!(home.show(&[&t(3)]).turns().len(), 1);
}
