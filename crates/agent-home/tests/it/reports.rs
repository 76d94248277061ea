//! Public bug reports of other systems that keep task homes, by number.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use threadkeep_agent_home::find::Presence;
use threadkeep_agent_home::outcome::Outcome;
use threadkeep_agent_home::plan::Policy;
use threadkeep_agent_home::prepare::Work;
use threadkeep_agent_home::prune::{Carry, prune};
use threadkeep_agent_home::rekey::rekey;
use threadkeep_agent_home::shared::SharedHome;
use threadkeep_agent_home::store::Adopt;
use threadkeep_agent_home::watch::Unwatched;
use threadkeep_agent_home::{ConversationKind, HomeError, Options, StoreKey};
use threadkeep_record::UtcMillis;

use crate::place::{DAY, NOW, Place, fork, id, inode, key, log, name, run, run_at, t, visible};

fn shared(place: &Place) -> SharedHome {
    SharedHome::open(&place.shared(), Arc::new(Unwatched)).unwrap()
}

#[test]
fn b92_a_store_outlives_its_task_home() {
    let place = Place::new();
    drop(run_at(&place.issue("one", "i1"), UtcMillis(NOW.0 - 2 * DAY)));
    place.write(format!("tasks/one/sessions/{}", name(1)), log(1));
    fs::remove_dir_all(place.task("one")).unwrap();
    threadkeep_agent_home::prune::pin(
        &shared(&place),
        &key("", "a1", "i1"),
        Some(threadkeep_agent_home::manifest::Pin { at: NOW, why: None }),
        NOW,
        Duration::ZERO,
    )
    .unwrap();
    let policy = Policy { retention: Some(Duration::from_secs(24 * 3600)), max_bytes: None };
    let done = prune(&shared(&place), "", policy, UtcMillis(NOW.0 + 9 * DAY), Carry::Through).unwrap();
    assert_eq!((done.removed, done.plan[0].because.text().as_str()), (0, "pinned"));
    let next = run(&Options { resume: Some(id(1)), ..place.issue("two", "i1") });
    assert_eq!(next.report.outcome, Outcome::Resumed(Presence::Present));
}

#[test]
fn b94_an_id_is_resumable_once_its_rollout_is_there() {
    let place = Place::new();
    drop(run(&place.issue("one", "i1")));
    let options = Options { resume: Some(id(1)), ..place.issue("two", "i1") };
    let done = run(&options);
    let Outcome::Unavailable(why) = &done.report.outcome else { panic!("{:?}", done.report.outcome) };
    assert_eq!(why.word(), "not_found");
    assert!(why.message().contains("forget the id"));
    drop(done);
    // Not even a file that nothing was flushed to.
    let file = place.write(format!("tasks/two/sessions/{}", name(1)), "");
    assert!(matches!(run(&options).report.outcome, Outcome::Unavailable(_)));
    fs::write(file, log(1)).unwrap();
    assert_eq!(run(&options).report.outcome, Outcome::Resumed(Presence::Present));
}

#[test]
fn b95_a_quick_request_that_became_an_issue_takes_its_threads_along() {
    let place = Place::new();
    let quick = StoreKey { kind: ConversationKind::Quick, ..key("", "a1", "Q1") };
    let base = log(2);
    drop(run(&Options { key: Some(quick.clone()), ..place.options("one") }));
    place.write(format!("tasks/one/sessions/2026/{}", name(2)), &base);
    let own = place.write(format!("tasks/one/sessions/2026/{}", name(1)), fork(1, 2, base.len()));
    place.write(format!("tasks/one/sessions/2026/{}", name(3)), log(3));
    let ino = inode(&own);
    // While a task still holds it, it is linked and left.
    let held = run(&Options { key: Some(quick.clone()), ..place.options("one") });
    let next = |task: &str| Options { resume: Some(id(1)), ..place.issue(task, "I1") };
    let done = run(&next("two"));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!(done.report.bases, [id(2)]);
    assert!(place.store(&quick).join("sessions/2026").join(name(1)).exists());
    drop((held, done));
    // Another issue: everything goes there, and the request's store is empty.
    let done = run(&Options { key: Some(key("", "a1", "I2")), ..next("three") });
    assert_eq!(visible(&place.task("three")), [name(1), name(2), name(3)]);
    assert_eq!(inode(&place.task("three").join("sessions/2026").join(name(1))), ino);
    assert!(!place.store(&quick).join("sessions/2026").join(name(1)).exists());
    drop(done);
}

#[test]
fn rekey_moves_a_conversation_whole() {
    let place = Place::new();
    let (from, to) = (key("", "a1", "old"), StoreKey { kind: ConversationKind::Chat, ..key("", "a2", "new") });
    drop(run(&place.issue("one", "old")));
    place.write(format!("tasks/one/sessions/2026/{}", name(1)), log(1));
    place.write("tasks/one/session_index.jsonl", format!("{{\"id\":\"{}\",\"thread_name\":\"mine\"}}\n", t(1)));
    let held = run(&place.issue("one", "old"));
    let error = rekey(&shared(&place), &from, &to, NOW, Duration::ZERO).unwrap_err();
    assert!(matches!(error, HomeError::Held { .. }), "{error}");
    drop(held);
    rekey(&shared(&place), &from, &to, NOW, Duration::ZERO).unwrap();
    assert!(!place.store(&from).exists());
    let done = run(&Options { key: Some(to.clone()), resume: Some(id(1)), ..place.options("two") });
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!(done.report.names[0].name, "mine");
    drop(done);
    // Whoever did not hear of the end asks again.
    let again = rekey(&shared(&place), &from, &to, NOW, Duration::ZERO).unwrap();
    assert_eq!((again.moved.len(), &*again.notes), (0, &["it was moved by an earlier call".to_owned()][..]));
    // The home of the old key goes on under the new one, with what is its own.
    place.write("tasks/one/memories/m.md", "the conversation's");
    let done = run(&Options { key: Some(to.clone()), resume: Some(id(1)), ..place.options("one") });
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert!(place.task("one").join("memories/m.md").exists());
    assert!(!place.store(&from).exists());
    drop(done);
    // Into a store that has something else under the same name: whole or not at all, and nothing is overwritten.
    drop(run(&place.issue("three", "old")));
    place.write(format!("tasks/three/sessions/2026/{}", name(1)), "another");
    place.write(format!("tasks/three/sessions/2026/{}", name(2)), log(2));
    let error = rekey(&shared(&place), &from, &to, NOW, Duration::ZERO).unwrap_err();
    assert!(matches!(error, HomeError::Refused { .. }), "{error}");
    let (old, new) = (place.store(&from).join("sessions/2026"), place.store(&to).join("sessions/2026"));
    assert_eq!(fs::read_to_string(new.join(name(1))).unwrap(), log(1));
    assert_eq!(fs::read_to_string(old.join(name(1))).unwrap(), "another");
    assert_eq!((fs::read_to_string(old.join(name(2))).unwrap(), new.join(name(2)).exists()), (log(2), false));
    fs::remove_file(old.join(name(1))).unwrap();
    rekey(&shared(&place), &from, &to, NOW, Duration::ZERO).unwrap();
    assert_eq!(fs::read_to_string(new.join(name(2))).unwrap(), log(2));
}

#[test]
fn b96_what_one_issue_left_is_not_seen_by_the_next() {
    let place = Place::new();
    drop(run(&place.issue("one", "I1")));
    let mine = [
        ("memories/raw_memories.md", "I1-SECRET"),
        ("memories_1.sqlite", "I1-SECRET"),
        ("goals_1.sqlite", "I1-SECRET"),
        ("history.jsonl", "I1-SECRET"),
        ("something/new", "I1-SECRET"),
    ];
    for (file, bytes) in mine {
        place.write(format!("tasks/one/{file}"), bytes);
    }
    place.write(format!("tasks/one/sessions/{}", name(1)), log(1));
    drop(run(&place.issue("one", "I1")));
    assert!(place.task("one").join("memories/raw_memories.md").exists(), "its own issue keeps it");
    let done = run(&place.issue("one", "I2"));
    assert_eq!(done.report.outcome, Outcome::Fresh);
    assert!(visible(&place.task("one")).is_empty());
    for (path, what) in place.snapshot(&place.task("one")) {
        assert!(!what.contains("I1-SECRET"), "{}", path.display());
    }
    let kept = place.snapshot(&place.store(&key("", "a1", "I1")));
    assert_eq!(kept.values().filter(|w| w.contains("I1-SECRET")).count(), mine.len(), "and nothing is lost");
}

#[test]
fn b97_a_home_sees_its_own_threads_and_no_other() {
    let place = Place::new();
    for n in 0..2000 {
        place.rollout(n);
    }
    let fresh = run(&place.options("one"));
    assert!(visible(&place.task("one")).is_empty());
    let resumed = run(&Options { resume: Some(id(7)), work: Work::LocalDirectory, ..place.issue("two", "i1") });
    assert_eq!(visible(&place.task("two")), [name(7)]);
    drop((fresh, resumed));
}

#[test]
fn stores_of_an_earlier_system_are_used_where_they_are() {
    let place = Place::new();
    let old = format!("shared/multica-sessions/default/a1/i1/2026/11/29/{}", name(1));
    let file = place.write(&old, log(1));
    let options = Options { resume: Some(id(1)), ..place.issue("one", "i1") };
    let done = run(&options);
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!(
        fs::canonicalize(place.task("one").join("sessions")).unwrap(),
        fs::canonicalize(place.shared().join("multica-sessions/default/a1/i1")).unwrap()
    );
    drop(done);
    let later = UtcMillis(NOW.0 + 400 * DAY);
    let policy = Policy { retention: Some(Duration::from_secs(86_400)), max_bytes: None };
    assert_eq!(prune(&shared(&place), "", policy, later, Carry::Through).unwrap().removed, 1, "our own side of it");
    assert!(file.exists(), "theirs stays");
    drop(run(&options));
    // Adopted, when the operator says so.
    let done = run(&Options { adopt: Adopt::Move, ..options.clone() });
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert!(!file.exists());
    assert!(place.store(&key("", "a1", "i1")).join("sessions/2026/11/29").join(name(1)).exists());
    // An id whose name there could mean another is not looked for.
    place.write(format!("shared/multica-sessions/default/a1/ab/{}", name(2)), log(2));
    drop(run(&place.issue("two", "a.b")));
    assert!(visible(&place.task("two")).is_empty());
}
