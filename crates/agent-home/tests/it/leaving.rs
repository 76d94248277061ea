//! Homes that go from one conversation to another: what the one left is not seen by the other, and is not lost.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use threadkeep_agent_home::find::Presence;
use threadkeep_agent_home::outcome::Outcome;
use threadkeep_agent_home::{Options, World, prepare};

use crate::place::{NOW, Place, id, key, log, name, run, t, visible};

const SECRET: &str = "left by the first";

/// Where the secret is found below a folder, links not followed.
fn secrets(place: &Place, below: &Path) -> BTreeSet<PathBuf> {
    place.snapshot(below).into_iter().filter(|(_, what)| what.contains(SECRET)).map(|(path, _)| path).collect()
}

#[test]
fn what_a_use_without_a_conversation_left_is_not_the_next_ones() {
    let place = Place::new();
    drop(run(&place.options("one")));
    place.write("tasks/one/memories/m.md", SECRET);
    let done = run(&place.issue("one", "i2"));
    assert!(secrets(&place, &place.task("one")).is_empty());
    assert_eq!(secrets(&place, &place.store(&key("", "a1", "i2"))).len(), 1, "{:?}", done.report.migrated);
    assert!(done.report.migrated.iter().any(|m| m.contains("memories")), "{:?}", done.report.migrated);
    // Sessions of its own come along into the conversation, and what is beside them is that conversation's.
    drop(run(&place.options("two")));
    place.write("tasks/two/memories/m.md", SECRET);
    place.write(format!("tasks/two/sessions/{}", name(1)), log(1));
    drop(run(&place.issue("two", "i3")));
    assert_eq!(secrets(&place, &place.task("two")).len(), 1);
}

#[test]
fn a_home_without_its_record_is_left_by_what_its_sessions_say() {
    let place = Place::new();
    drop(run(&place.issue("one", "i1")));
    place.write("tasks/one/memories/m.md", SECRET);
    place.write(format!("tasks/one/sessions/{}", name(1)), log(1));
    fs::remove_file(place.task("one").join("threadkeep-home.json")).unwrap();
    drop(run(&Options { resume: Some(id(1)), ..place.issue("one", "i1") }));
    assert_eq!(secrets(&place, &place.task("one")).len(), 1, "its own conversation");
    fs::remove_file(place.task("one").join("threadkeep-home.json")).unwrap();
    drop(run(&place.issue("one", "i2")));
    assert!(secrets(&place, &place.task("one")).is_empty());
    assert_eq!(secrets(&place, &place.store(&key("", "a1", "i1"))).len(), 1);
    // A store of an earlier system that is another conversation's.
    place.write("tasks/two/memories/m.md", SECRET);
    let old = place.write(format!("shared/multica-sessions/default/a1/i8/{}", name(8)), log(8));
    symlink(old.parent().unwrap(), place.task("two").join("sessions")).unwrap();
    drop(run(&place.issue("two", "i9")));
    assert!(secrets(&place, &place.task("two")).is_empty());
    // And of the same one.
    place.write("tasks/three/memories/m.md", SECRET);
    symlink(old.parent().unwrap(), place.task("three").join("sessions")).unwrap();
    drop(run(&place.issue("three", "i8")));
    assert_eq!(secrets(&place, &place.task("three")).len(), 1);
    assert!(old.exists());
}

#[test]
fn only_what_is_the_shared_homes_stays() {
    let place = Place::new();
    for (file, bytes) in [
        ("AGENTS.md", "agents"),
        ("instructions.md", "do"),
        ("prompts/p.md", "prompt"),
        ("skills/theirs/SKILL.md", "skill"),
        ("plugins/cache/c", "plugin"),
        ("config.toml", "model = \"m\"\n"),
    ] {
        place.write(format!("shared/{file}"), bytes);
    }
    drop(run(&place.issue("one", "i1")));
    let before: BTreeSet<PathBuf> = place.snapshot(&place.task("one")).into_keys().collect();
    let left =
        ["plugins/data/d", "plugins/cache2/x", "skills/mine/SKILL.md", "config.json", "other/x", "history.jsonl"];
    for file in left {
        place.write(format!("tasks/one/{file}"), SECRET);
    }
    for file in ["instructions.md", "AGENTS.md"] {
        fs::remove_file(place.task("one").join(file)).unwrap();
        place.write(format!("tasks/one/{file}"), SECRET);
    }
    drop(run(&place.issue("one", "i2")));
    assert!(secrets(&place, &place.task("one")).is_empty(), "{:?}", secrets(&place, &place.task("one")));
    let after: BTreeSet<PathBuf> = place.snapshot(&place.task("one")).into_keys().collect();
    assert_eq!(after, before, "as a home that was never another's");
    assert_eq!(fs::read_to_string(place.task("one").join("AGENTS.md")).unwrap(), "agents");
    // The changed copy of `instructions.md` was written over by the next preparation of its own conversation at the latest.
    assert_eq!(secrets(&place, &place.store(&key("", "a1", "i1"))).len(), left.len() + 2);
}

#[test]
fn a_refusal_over_file_systems_leaves_nothing_in_the_store() {
    let other = Path::new("/dev/shm");
    let place = Place::new();
    if !other.is_dir() || fs::metadata(other).unwrap().dev() == fs::metadata(place.dir.path()).unwrap().dev() {
        return;
    }
    let far = tempfile::tempdir_in(other).unwrap();
    let options = |issue: &str| Options { task_home: far.path().join("one"), ..place.issue("one", issue) };
    drop(run(&options("i1")));
    fs::create_dir(far.path().join("one/memories")).unwrap();
    let error = prepare(&options("i2"), &World::at(NOW)).unwrap_err();
    assert!(error.to_string().contains("file system"), "{error}");
    assert!(!place.store(&key("", "a1", "i1")).join("task-state").exists());
}

fn database(path: &Path, named: &[(u32, &str)]) {
    let db = Connection::open(path).unwrap();
    db.execute_batch("CREATE TABLE threads (id TEXT, title TEXT, history_mode TEXT, name TEXT)").unwrap();
    for (n, name) in named {
        db.execute("INSERT INTO threads VALUES (?1, '', 'paginated', ?2)", (t(*n), name)).unwrap();
    }
}

fn names(options: &Options) -> Vec<(String, String)> {
    run(options).report.names.iter().map(|n| (n.thread_id.clone(), n.name.clone())).collect()
}

/// The database was dropped with the only place that had the name.
#[test]
fn a_name_in_a_dropped_database_is_there_when_its_thread_is_resumed() {
    for keyed in [true, false] {
        let place = Place::new();
        place.rollout(1);
        fs::create_dir_all(place.task("one")).unwrap();
        symlink(place.shared().join("sessions"), place.task("one").join("sessions")).unwrap();
        database(&place.task("one").join("state_5.sqlite"), &[(1, "given"), (2, "another")]);
        drop(run(&if keyed { place.issue("one", "i1") } else { place.options("one") }));
        assert!(!place.task("one").join("state_5.sqlite").exists());
        let options = Options { resume: Some(id(1)), ..place.issue("one", "i1") };
        for _ in 0..2 {
            assert_eq!(names(&options), [(t(1), "given".to_owned())], "{keyed}");
        }
    }
}

#[test]
fn a_name_in_the_database_of_another_stores_home_goes_to_that_store() {
    let place = Place::new();
    drop(run(&place.issue("zero", "i1")));
    place.write(format!("tasks/zero/sessions/{}", name(1)), log(1));
    fs::create_dir_all(place.task("one")).unwrap();
    symlink(place.store(&key("", "a1", "i1")).join("sessions"), place.task("one").join("sessions")).unwrap();
    database(&place.task("one").join("state_5.sqlite"), &[(1, "given")]);
    drop(run(&place.issue("one", "i2")));
    assert!(visible(&place.task("one")).is_empty());
    assert_eq!(names(&place.issue("two", "i1")), [(t(1), "given".to_owned())]);
}

/// An older name in the index came back when the newer one's database was gone.
#[test]
fn the_older_name_of_the_index_does_not_come_back() {
    let place = Place::new();
    place.rollout(1);
    fs::create_dir_all(place.task("one")).unwrap();
    symlink(place.shared().join("sessions"), place.task("one").join("sessions")).unwrap();
    database(&place.task("one").join("state_5.sqlite"), &[(1, "new")]);
    let line = format!("{{\"id\":\"{}\",\"thread_name\":\"old\",\"updated_at\":\"2026-01-01T00:00:00Z\"}}\n", t(1));
    place.write("tasks/one/session_index.jsonl", line);
    let options = Options { resume: Some(id(1)), ..place.issue("one", "i1") };
    assert_eq!(names(&options), [(t(1), "new".to_owned())]);
    let before = place.snapshot(&place.task("one"));
    for _ in 0..2 {
        let done = run(&options);
        assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
        assert_eq!((done.report.names[0].name.as_str(), done.report.notes.len()), ("new", 0));
    }
    assert_eq!(place.snapshot(&place.task("one")), before);
}
