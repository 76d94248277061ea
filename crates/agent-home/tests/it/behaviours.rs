//! Fresh homes, real folders, local directories, reuse, presence.

use std::fs;

use threadkeep_agent_home::find::Presence;
use threadkeep_agent_home::outcome::{Outcome, Unavailable};
use threadkeep_agent_home::prepare::Work;
use threadkeep_agent_home::present::present;
use threadkeep_agent_home::{Options, ResumeId};

use crate::place::{NOW, Place, id, inode, key, log, name, run, t, visible};

#[test]
fn fresh_creates_empty_local_dir() {
    let place = Place::new();
    place.rollout(1);
    let done = run(&place.options("one"));
    assert_eq!(done.report.outcome, Outcome::Fresh);
    let sessions = place.task("one").join("sessions");
    assert!(sessions.symlink_metadata().unwrap().is_dir() && visible(&place.task("one")).is_empty());
    assert!(done.report.store.is_none() && done.reservation.is_none());
}

#[test]
fn a_fresh_home_of_a_conversation_links_to_its_empty_store() {
    let place = Place::new();
    place.rollout(1);
    let done = run(&place.issue("one", "i1"));
    assert_eq!(done.report.outcome, Outcome::Fresh);
    let store = place.store(&key("", "a1", "i1"));
    assert_eq!(done.report.store.as_deref(), Some(&*store));
    for (link, to) in [
        ("sessions", store.join("sessions")),
        ("archived_sessions", store.join("archived_sessions")),
        ("thread-writer-locks", place.shared().join("thread-writer-locks")),
    ] {
        assert_eq!(fs::read_link(place.task("one").join(link)).unwrap(), to, "{link}");
    }
    assert!(visible(&place.task("one")).is_empty());
}

#[test]
fn real_dir_is_authoritative() {
    let place = Place::new();
    place.rollout(2);
    let own = place.write(format!("tasks/one/sessions/2026/11/29/{}", name(1)), log(1));
    let before = place.snapshot(&place.task("one").join("sessions"));
    for resume in [None, Some(1), Some(2)] {
        let options = Options { resume: resume.map(id), ..place.issue("one", "i1") };
        let done = run(&options);
        let expected = match resume {
            None => Outcome::Fresh,
            Some(1) => Outcome::Resumed(Presence::Present),
            Some(_) => Outcome::Unavailable(Unavailable::NotInTaskSessions),
        };
        assert_eq!(done.report.outcome, expected);
        assert_eq!(place.snapshot(&place.task("one").join("sessions")), before, "untouched");
    }
    assert!(own.exists());
}

#[test]
fn a_file_in_the_place_of_sessions_is_refused_and_kept() {
    let place = Place::new();
    for (n, options) in [place.options("one"), place.issue("two", "i1")].into_iter().enumerate() {
        let file = place.write(format!("tasks/{}/sessions", ["one", "two"][n]), "mine");
        let error = threadkeep_agent_home::prepare(&options, &threadkeep_agent_home::World::at(NOW)).unwrap_err();
        assert!(error.to_string().contains("neither a folder nor a link"), "{error}");
        assert_eq!(fs::read_to_string(file).unwrap(), "mine");
    }
}

#[test]
fn local_directory_uses_per_issue_store() {
    let place = Place::new();
    let local = |task: &str, issue: &str| Options { work: Work::LocalDirectory, ..place.issue(task, issue) };
    run(&local("one", "i1"));
    place.write(format!("tasks/one/sessions/{}", name(1)), log(1));
    run(&local("two", "i2"));
    assert!(visible(&place.task("two")).is_empty(), "another issue");
    run(&local("three", "i1"));
    assert_eq!(visible(&place.task("three")), [name(1)]);
}

#[test]
fn local_directory_no_key_falls_back_to_empty_dir() {
    let place = Place::new();
    place.rollout(1);
    let done = run(&Options { work: Work::LocalDirectory, resume: Some(id(1)), ..place.options("one") });
    assert_eq!(done.report.outcome, Outcome::Unavailable(Unavailable::NoConversation));
    assert!(place.task("one").join("sessions").symlink_metadata().unwrap().is_dir());
    assert!(visible(&place.task("one")).is_empty());
}

#[test]
fn local_directory_resume_across_task_ids() {
    let place = Place::new();
    let local = |task: &str| Options { work: Work::LocalDirectory, resume: Some(id(1)), ..place.issue(task, "i1") };
    let first = run(&Options { resume: None, ..local("one") });
    drop(first);
    place.write(format!("tasks/one/sessions/2026/11/30/{}", name(1)), log(1));
    fs::remove_dir_all(place.task("one")).unwrap();
    let done = run(&local("two"));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!(visible(&place.task("two")), [name(1)]);
}

#[test]
fn a_local_directory_with_rollouts_of_its_own_gives_them_to_the_store() {
    let place = Place::new();
    let own = place.write(format!("tasks/one/sessions/2026/11/29/{}", name(1)), log(1));
    place.write("tasks/one/sessions/2026/notes.txt", "unknown");
    let ino = inode(&own);
    let done = run(&Options { work: Work::LocalDirectory, resume: Some(id(1)), ..place.issue("one", "i1") });
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    let store = place.store(&key("", "a1", "i1"));
    assert_eq!(inode(&store.join(format!("sessions/2026/11/29/{}", name(1)))), ino, "moved, not copied");
    assert_eq!(fs::read_to_string(store.join("sessions/2026/notes.txt")).unwrap(), "unknown");
    assert!(place.task("one").join("sessions").symlink_metadata().unwrap().is_symlink());
}

#[test]
fn what_has_no_place_in_the_store_is_moved_aside() {
    let place = Place::new();
    run(&place.issue("zero", "i1"));
    place.write(format!("tasks/zero/sessions/{}", name(1)), log(1));
    place.write(format!("tasks/one/sessions/{}", name(1)), "other bytes");
    run(&Options { work: Work::LocalDirectory, ..place.issue("one", "i1") });
    let aside = place.task("one").join("sessions.aside-1").join(name(1));
    assert_eq!(fs::read_to_string(aside).unwrap(), "other bytes");
    assert_eq!(fs::read_to_string(place.task("one").join("sessions").join(name(1))).unwrap(), log(1));
}

#[test]
fn reused_store_link_is_authoritative() {
    let place = Place::new();
    let options = Options { resume: Some(id(1)), ..place.issue("one", "i1") };
    place.rollout(1);
    drop(run(&options));
    let state = place.write("tasks/one/state_5.sqlite", "database");
    let done = run(&options);
    assert!(done.report.migrated.is_empty() && done.report.linked.is_empty(), "{:?}", done.report);
    assert_eq!(fs::read_to_string(&state).unwrap(), "database", "no reset");
    // Dangling: the store is made again, and the thread is brought again.
    drop(done);
    fs::remove_dir_all(place.store(&key("", "a1", "i1"))).unwrap();
    let done = run(&options);
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!(visible(&place.task("one")), [name(1)]);
    assert!(state.exists());
}

#[test]
fn a_second_spelling_of_the_store_is_the_store() {
    let place = Place::new();
    drop(run(&place.issue("one", "i1")));
    place.write(format!("tasks/one/sessions/{}", name(1)), log(1));
    // The same shared home by another path, and the link spelt by it.
    let alias = place.dir.path().join("alias");
    std::os::unix::fs::symlink(place.shared(), &alias).unwrap();
    let link = place.task("one").join("sessions");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(
        alias.join("threadkeep/stores").join(key("", "a1", "i1").path()).join("sessions"),
        &link,
    )
    .unwrap();
    let done = run(&Options { resume: Some(id(1)), ..place.issue("one", "i1") });
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert!(done.report.migrated.is_empty());
}

#[test]
fn codex_resume_rollout_present() {
    let place = Place::new();
    let home = place.task("one");
    let state = |id: &str| present(&home, &place.shared(), &ResumeId::parse(id).unwrap()).unwrap().state;
    assert_eq!(state(&t(1)), Presence::Absent, "no home");
    let at = |n: u32| format!("tasks/one/sessions/2026/11/29/{}", name(n));
    place.write(at(1), log(1));
    place.write(at(2), "{\"not\": \"a header\"}\n");
    place.write(at(3), "");
    place.write(at(4), log(5));
    fs::create_dir(place.dir.path().join(at(6))).unwrap();
    std::os::unix::fs::symlink("nowhere", place.dir.path().join(at(7))).unwrap();
    place.write(format!("{}.zst.partial", at(8)), log(8));
    place.write(format!("{}.zst", at(9)), zstd::encode_all(log(9).as_bytes(), 1).unwrap());
    place.write(format!("{}.zst", at(10)), "not zstd");
    place.write(format!("tasks/one/sessions/{}", name(11)), log(11));
    std::os::unix::fs::symlink("/etc/hostname", place.dir.path().join(at(12))).unwrap();
    let expected = [
        (1, Presence::Present),
        (2, Presence::PresentUnverified),
        (3, Presence::Absent),
        (4, Presence::Absent),
        (5, Presence::Absent),
        (6, Presence::Absent),
        (7, Presence::Absent),
        (8, Presence::Absent),
        (9, Presence::Present),
        (10, Presence::PresentUnverified),
        (11, Presence::Present),
        (12, Presence::Absent),
    ];
    for (n, wanted) in expected {
        assert_eq!(state(&t(n)), wanted, "thread {n}");
    }
    place.write("tasks/one/sessions/2026/11/29/rollout-2026-11-29T10-00-00-aaa-bbb.jsonl", log(1));
    assert_eq!(state("bbb"), Presence::Absent, "the end of another id");
}
