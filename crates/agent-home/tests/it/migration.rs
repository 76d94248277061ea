//! Homes whose `sessions` is a link to somewhere else.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use rusqlite::Connection;
use threadkeep_agent_home::Options;
use threadkeep_agent_home::find::Presence;
use threadkeep_agent_home::outcome::Outcome;

use crate::place::{Place, id, inode, key, log, name, run, t, visible};

/// A home as earlier systems made it: all of the shared history, a database over it, and what cannot be built again.
fn legacy(place: &Place, task: &str) {
    fs::create_dir_all(place.task(task)).unwrap();
    symlink(place.shared().join("sessions"), place.task(task).join("sessions")).unwrap();
    for (file, bytes) in KEPT {
        place.write(format!("tasks/{task}/{file}"), bytes);
    }
    database(&place.task(task).join("state_5.sqlite"), &[(2, "unrelated"), (1, "from the database")]);
    place.write(format!("tasks/{task}/state_5.sqlite-shm"), "");
    place.write(format!("tasks/{task}/state_5.sqlite-wal"), "");
    place.write(format!("tasks/{task}/state_4.sqlite"), "no database at all");
}

const KEPT: [(&str, &str); 4] = [
    ("session_index.jsonl", "{\"id\":\"x\",\"thread_name\":\"n\",\"updated_at\":\"t\"}\n"),
    ("goals_1.sqlite", "goals"),
    ("logs_2.sqlite", "logs"),
    ("memories_1.sqlite", "memories"),
];

fn database(path: &Path, names: &[(u32, &str)]) {
    let db = Connection::open(path).unwrap();
    db.execute_batch("CREATE TABLE threads (id TEXT, rollout_path TEXT, name TEXT)").unwrap();
    for (n, name) in names {
        db.execute("INSERT INTO threads VALUES (?1, '', ?2)", (t(*n), name)).unwrap();
    }
}

fn states(home: &Path) -> Vec<String> {
    let mut all: Vec<String> = fs::read_dir(home)
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|n| n.starts_with("state_"))
        .collect();
    all.sort();
    all
}

#[test]
fn migrates_legacy_symlink_no_resume() {
    for keyed in [false, true] {
        let place = Place::new();
        place.rollout(1);
        let before = place.snapshot(&place.shared().join("sessions"));
        legacy(&place, "one");
        let done = run(&if keyed { place.issue("one", "i1") } else { place.options("one") });
        assert_eq!(done.report.outcome, Outcome::Fresh);
        assert!(visible(&place.task("one")).is_empty(), "nothing pulled in");
        assert_eq!(place.task("one").join("sessions").symlink_metadata().unwrap().is_symlink(), keyed);
        assert_eq!(place.snapshot(&place.shared().join("sessions")), before, "the shared history is as it was");
        assert!(done.report.migrated.iter().any(|m| m.contains("shared home's history")), "{:?}", done.report.migrated);
    }
}

#[test]
fn migrate_with_resume_routes_through_store() {
    let place = Place::new();
    let shared = place.rollout(1);
    place.rollout(2);
    legacy(&place, "one");
    let done = run(&Options { resume: Some(id(1)), ..place.issue("one", "i1") });
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!(visible(&place.task("one")), [name(1)], "its own rollout and no other");
    let store = place.store(&key("", "a1", "i1"));
    assert_eq!(inode(&store.join(format!("sessions/2026/11/29/{}", name(1)))), inode(&shared), "without a copy");
    assert_eq!(fs::read_link(place.task("one").join("sessions")).unwrap(), store.join("sessions"));
    assert_eq!(states(&place.task("one")), ["state_4.sqlite.aside-1"]);
    let names: Vec<_> = done.report.names.iter().map(|n| (n.thread_id.as_str(), n.name.as_str())).collect();
    assert_eq!(names, [(&*t(1), "from the database")], "only names of this conversation");
}

#[test]
fn migrate_preserves_session_index() {
    let place = Place::new();
    place.rollout(1);
    legacy(&place, "one");
    run(&place.issue("one", "i1"));
    assert_eq!(fs::read_to_string(place.task("one").join("session_index.jsonl")).unwrap(), KEPT[0].1);
}

#[test]
fn reset_codex_session_state_only_removes_session_derived() {
    let place = Place::new();
    place.rollout(1);
    legacy(&place, "one");
    run(&place.options("one"));
    for (file, bytes) in KEPT {
        assert_eq!(fs::read_to_string(place.task("one").join(file)).unwrap(), bytes, "{file}");
    }
    // What is no database is not ours to judge: kept, out of Codex's way.
    assert_eq!(states(&place.task("one")), ["state_4.sqlite.aside-1"]);
    assert_eq!(fs::read_to_string(place.task("one").join("state_4.sqlite.aside-1")).unwrap(), "no database at all");
}

#[test]
fn a_link_to_another_store_keeps_the_conversation() {
    let place = Place::new();
    drop(run(&place.issue("one", "old")));
    place.write(format!("tasks/one/sessions/{}", name(1)), log(1));
    fs::remove_file(place.task("one").join("threadkeep-home.json")).unwrap();
    let done = run(&Options { resume: Some(id(1)), ..place.issue("one", "new") });
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!(visible(&place.task("one")), [name(1)]);
    assert!(
        place.store(&key("", "a1", "old")).join("sessions").join(name(1)).exists(),
        "the other store keeps it, too"
    );
}

#[test]
fn foreign_and_dangling_links_are_kept_aside() {
    for (target, resumed) in [("elsewhere", true), ("nowhere", false)] {
        let place = Place::new();
        place.write(format!("elsewhere/2026/{}", name(1)), log(1));
        fs::create_dir_all(place.task("one")).unwrap();
        let target = place.dir.path().join(target);
        symlink(&target, place.task("one").join("sessions")).unwrap();
        let done = run(&Options { resume: Some(id(1)), ..place.issue("one", "i1") });
        assert_eq!(matches!(done.report.outcome, Outcome::Resumed(_)), resumed, "{:?}", done.report);
        assert_eq!(fs::read_link(place.task("one").join("sessions.aside-1")).unwrap(), target);
        assert!(place.dir.path().join("elsewhere/2026").join(name(1)).exists());
        // Once and no more.
        drop(done);
        run(&Options { resume: Some(id(1)), ..place.issue("one", "i1") });
        assert!(!place.task("one").join("sessions.aside-2").exists());
    }
}

#[test]
fn names_given_in_a_task_are_told_in_the_next() {
    let place = Place::new();
    drop(run(&place.issue("one", "i1")));
    place.write(format!("tasks/one/sessions/{}", name(1)), log(1));
    place.write(format!("tasks/one/sessions/{}", name(2)), log(2));
    let line =
        |n: u32, name: &str| format!("{{\"id\":\"{}\",\"thread_name\":\"{name}\",\"updated_at\":\"t\"}}\n", t(n));
    place.write("tasks/one/session_index.jsonl", line(1, "first") + &line(1, "second") + &line(7, "not ours"));
    database(&place.task("one").join("state_5.sqlite"), &[(2, "paginated")]);
    let running = threadkeep_agent_home::run::Running::enter(
        &place.task("one"),
        &place.shared(),
        crate::place::NOW,
        std::time::Duration::ZERO,
    )
    .unwrap();
    running.leave(crate::place::NOW).unwrap();
    fs::remove_dir_all(place.task("one")).unwrap();
    let told = |done: &threadkeep_agent_home::Prepared| {
        done.report.names.iter().map(|n| (n.thread_id.clone(), n.name.clone())).collect::<Vec<_>>()
    };
    let done = run(&place.issue("two", "i1"));
    assert_eq!(told(&done), [(t(1), "second".into()), (t(2), "paginated".into())]);
    drop(done);
    let index = fs::read_to_string(place.task("two").join("session_index.jsonl")).unwrap();
    assert!(index.contains("second") && !index.contains("not ours"), "{index}");
    // A rename in the second home wins; the first home's older name does not come back from a third.
    let renamed = index + &line(1, "third");
    place.write("tasks/two/session_index.jsonl", &renamed);
    drop(run(&place.issue("two", "i1")));
    let done = run(&place.issue("three", "i1"));
    assert!(told(&done).contains(&(t(1), "third".into())), "{:?}", done.report.names);
}
