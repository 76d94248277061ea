//! Names of paginated threads, which Codex reads from its database alone: a new task home has none yet, and when Codex makes
//! it, the names are not in it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use threadkeep_agent_home::Prepared;
use threadkeep_agent_home::run::Running;

use crate::place::{NOW, Place, log, name, run, t};

/// A database as Codex 0.171 makes it from the rollouts it sees, as far as names go.
fn database(path: &Path, rows: &[(u32, Option<&str>, &str)]) {
    let db = Connection::open(path).unwrap();
    db.pragma_update(None, "journal_mode", "wal").unwrap();
    db.execute_batch(
        "CREATE TABLE threads (id TEXT PRIMARY KEY, title TEXT NOT NULL, history_mode TEXT NOT NULL, name TEXT)",
    )
    .unwrap();
    for (n, name, mode) in rows {
        db.execute("INSERT INTO threads VALUES (?1, 'hello', ?2, ?3)", (t(*n), mode, name)).unwrap();
    }
}

fn rows(path: &Path) -> Vec<(String, String, Option<String>)> {
    let db = Connection::open(path).unwrap();
    let mut rows = db.prepare("SELECT id, title, name FROM threads ORDER BY id").unwrap();
    let rows = rows.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

fn row(n: u32, name: Option<&str>) -> (String, String, Option<String>) {
    (t(n), "hello".into(), name.map(str::to_owned))
}

fn told(done: &Prepared) -> Vec<(String, String)> {
    done.report.names.iter().map(|n| (n.thread_id.clone(), n.name.clone())).collect()
}

fn say(place: &Place, task: &str, n: u32, name: &str) {
    let path = place.task(task).join("session_index.jsonl");
    let old = fs::read_to_string(&path).unwrap_or_default();
    let line = format!("{{\"id\":\"{}\",\"thread_name\":\"{name}\",\"updated_at\":\"t\"}}\n", t(n));
    fs::write(path, old + &line).unwrap();
}

/// A conversation with threads 1 and 2, of which 1 was named in a first task.
fn named(place: &Place) {
    drop(run(&place.issue("one", "i1")));
    for n in [1, 2] {
        place.write(format!("tasks/one/sessions/{}", name(n)), log(n));
    }
    database(&place.task("one").join("state_5.sqlite"), &[(1, Some("first"), "paginated")]);
    say(place, "one", 1, "first");
    drop(run(&place.issue("one", "i1")));
}

#[test]
fn a_name_reaches_the_row_that_codex_made_meanwhile_and_nothing_else_does() {
    let place = Place::new();
    named(&place);
    drop(run(&place.issue("two", "i1")));
    let path = place.task("two").join("state_5.sqlite");
    assert!(!path.exists(), "Codex makes its databases");
    database(&path, &[(1, None, "paginated"), (2, None, "paginated"), (3, None, "legacy")]);
    let done = run(&place.issue("two", "i1"));
    assert!(done.report.repaired.iter().any(|r| r.contains("state_5.sqlite") && r.contains(&t(1))), "{done:?}");
    assert_eq!(rows(&path), [row(1, Some("first")), row(2, None), row(3, None)]);
    drop(done);
    let before = place.snapshot(&place.task("two"));
    let done = run(&place.issue("two", "i1"));
    assert!(done.report.repaired.is_empty() && done.report.notes.is_empty(), "{done:?}");
    assert_eq!(place.snapshot(&place.task("two")), before);
}

#[test]
fn the_end_of_a_run_gives_names_to_the_database_that_it_made() {
    let place = Place::new();
    named(&place);
    drop(run(&place.issue("two", "i1")));
    let running = Running::enter(&place.task("two"), &place.shared(), NOW, Duration::ZERO).unwrap();
    let path = place.task("two").join("state_5.sqlite");
    database(&path, &[(1, None, "paginated"), (2, Some("said in this run"), "paginated")]);
    let told = running.leave(NOW).unwrap();
    assert!(told.iter().any(|t| t.contains("state_5.sqlite")), "{told:?}");
    assert_eq!(rows(&path), [row(1, Some("first")), row(2, Some("said in this run"))]);
}

#[test]
fn a_database_in_use_is_not_waited_for() {
    let place = Place::new();
    named(&place);
    drop(run(&place.issue("two", "i1")));
    let path = place.task("two").join("state_5.sqlite");
    database(&path, &[(1, None, "paginated")]);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let begun = Instant::now();
    let done = run(&place.issue("two", "i1"));
    assert!(begun.elapsed() < Duration::from_secs(2));
    assert!(done.report.notes.iter().any(|n| n.contains("locked")), "{:?}", done.report.notes);
    drop(done);
    other.execute_batch("ROLLBACK").unwrap();
    drop(run(&place.issue("two", "i1")));
    assert_eq!(rows(&path), [row(1, Some("first"))]);
}

/// A thread that was named in one home and renamed in another got its old name back: the first home's database still said
/// it, and that was taken for a name that had just been given there.
#[test]
fn an_older_name_in_a_database_does_not_come_back() {
    for locked in [false, true] {
        let place = Place::new();
        named(&place);
        drop(run(&place.issue("two", "i1")));
        database(&place.task("two").join("state_5.sqlite"), &[(1, Some("second"), "paginated")]);
        drop(run(&place.issue("two", "i1")));
        let path = place.task("one").join("state_5.sqlite");
        let other = Connection::open(&path).unwrap();
        if locked {
            other.execute_batch("BEGIN IMMEDIATE").unwrap();
        }
        for _ in 0..3 {
            assert_eq!(told(&run(&place.issue("one", "i1"))), [(t(1), "second".into())], "{locked}");
        }
        let index = fs::read_to_string(place.task("one").join("session_index.jsonl")).unwrap();
        assert_eq!(index.matches("second").count(), 1, "given once: {index}");
        drop(other);
        drop(run(&place.issue("one", "i1")));
        assert_eq!(rows(&path), [row(1, Some("second"))]);
        // And what is said there later counts again.
        Connection::open(&path).unwrap().execute("UPDATE threads SET name = 'third'", []).unwrap();
        assert_eq!(told(&run(&place.issue("one", "i1"))), [(t(1), "third".into())]);
    }
}

#[test]
fn a_database_that_is_not_this_homes_alone_or_has_no_such_column_is_left() {
    let place = Place::new();
    named(&place);
    let theirs = place.shared().join("state_5.sqlite");
    database(&theirs, &[(1, None, "paginated")]);
    for hard in [true, false] {
        let task = format!("linked-{hard}");
        drop(run(&place.issue(&task, "i1")));
        let path = place.task(&task).join("state_5.sqlite");
        if hard { fs::hard_link(&theirs, &path) } else { std::os::unix::fs::symlink(&theirs, &path) }.unwrap();
        let done = run(&place.issue(&task, "i1"));
        assert!(done.report.repaired.is_empty(), "{done:?}");
        assert_eq!(rows(&theirs), [row(1, None)]);
    }
    // As releases before paginated threads made them.
    drop(run(&place.issue("old", "i1")));
    let path = place.task("old").join("state_5.sqlite");
    let db = Connection::open(&path).unwrap();
    db.execute_batch("CREATE TABLE threads (id TEXT, title TEXT)").unwrap();
    db.execute("INSERT INTO threads VALUES (?1, 'hello')", [t(1)]).unwrap();
    drop(db);
    let before = fs::read(&path).unwrap();
    run(&place.issue("old", "i1"));
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// By name, `state_10` comes before `state_9`.
#[test]
fn the_newest_database_counts() {
    let place = Place::new();
    named(&place);
    drop(run(&place.issue("two", "i1")));
    database(&place.task("two").join("state_9.sqlite"), &[(2, Some("old"), "paginated"), (1, None, "paginated")]);
    let path = place.task("two").join("state_10.sqlite");
    database(&path, &[(2, Some("new"), "paginated"), (1, None, "paginated")]);
    let done = run(&place.issue("two", "i1"));
    assert_eq!(told(&done), [(t(1), "first".into()), (t(2), "new".into())]);
    assert_eq!(rows(&path), [row(1, Some("first")), row(2, Some("new"))]);
}
