//! Conversations that move to another key or out of an earlier system's store, while someone is at them.

use std::fs;
use std::time::Duration;

use threadkeep_agent_home::plan::Policy;
use threadkeep_agent_home::prune::{Carry, prune};
use threadkeep_agent_home::rekey::rekey;
use threadkeep_agent_home::run::Running;
use threadkeep_agent_home::store::Adopt;
use threadkeep_agent_home::{ConversationKind, HomeError, Options, StoreKey, World, prepare};
use threadkeep_rollout::writer_lock::WriterLock;

use crate::place::{NOW, Place, id, key, log, name, record, run, t};
use crate::pruning::shared;

fn writer(place: &Place, n: u32) -> WriterLock {
    let thread = threadkeep_record::ThreadId::parse(&t(n)).unwrap();
    WriterLock::acquire(&place.shared(), thread, "test").unwrap()
}

fn held(error: &HomeError) -> bool {
    matches!(error, HomeError::Held { by, .. } if *by == [std::process::id()])
}

/// A store with one rollout.
fn store(place: &Place, key: &StoreKey, n: u32) -> std::path::PathBuf {
    let task = format!("of-{}", key.id);
    drop(run(&Options { key: Some(key.clone()), ..place.options(&task) }));
    place.write(format!("tasks/{task}/sessions/{}", name(n)), log(n));
    place.store(key).join("sessions").join(name(n))
}

#[test]
fn a_store_is_not_adopted_from_under_an_agent() {
    let place = Place::new();
    let old = place.write(format!("shared/multica-sessions/default/a1/i1/{}", name(1)), log(1));
    let resume = |task: &str| Options { resume: Some(id(1)), patience: Duration::ZERO, ..place.issue(task, "i1") };
    let adopt = Options { adopt: Adopt::Move, ..resume("two") };
    drop(run(&resume("one")));
    let running = Running::enter(&place.task("one"), &place.shared(), NOW, Duration::ZERO).unwrap();
    let error = prepare(&adopt, &World::at(NOW)).unwrap_err();
    assert!(held(&error), "{error}");
    assert!(place.task("one").join("sessions").join(name(1)).exists());
    drop(running);
    // An agent that runs without us is known by its writer lock.
    let lock = writer(&place, 1);
    let error = prepare(&adopt, &World::at(NOW)).unwrap_err();
    assert!(held(&error), "{error}");
    assert!(old.exists());
    drop(lock);
    let done = run(&adopt);
    assert!(!old.exists());
    assert!(done.report.migrated.iter().any(|m| m.starts_with("sessions moved from")), "{:?}", done.report);
}

#[test]
fn a_conversation_that_is_written_gets_no_other_key() {
    let place = Place::new();
    let (from, to) = (key("", "a1", "i1"), key("", "a1", "i2"));
    let file = store(&place, &from, 1);
    let lock = writer(&place, 1);
    let move_it = || rekey(&shared(&place), &from, &to, NOW, Duration::ZERO);
    let error = move_it().unwrap_err();
    assert!(held(&error), "{error}");
    assert!(file.exists() && !place.store(&to).exists());
    drop(lock);
    assert_eq!(move_it().unwrap().moved.len(), 1);
    assert!(!file.exists());
}

#[test]
fn a_quick_request_that_is_written_keeps_its_threads_until_the_next_preparation() {
    let place = Place::new();
    let quick = StoreKey { kind: ConversationKind::Quick, ..key("", "a1", "q") };
    let (one, two) = (store(&place, &quick, 1), store(&place, &quick, 2));
    let lock = writer(&place, 1);
    let resume = Options { resume: Some(id(1)), ..place.issue("next", "i1") };
    let done = run(&resume);
    assert!(one.exists() && two.exists());
    assert!(done.report.notes.iter().any(|n| n.contains("quick q") && n.contains("in use by")), "{:?}", done.report);
    drop((lock, done));
    run(&resume);
    assert!(!one.exists() && !two.exists());
}

#[test]
fn a_name_that_is_taken_is_told_before_anything_moves() {
    for (what, other) in
        [("another", record(1, "2026-11-29T10:00:00.000Z", ",\"x\":1")), ("a longer one", log(1) + "{}\n")]
    {
        let place = Place::new();
        let (from, to) = (key("", "a1", "i1"), key("", "a1", "i2"));
        let file = store(&place, &from, 1);
        let free = store(&place, &from, 2);
        let there = store(&place, &to, 1);
        fs::write(&there, &other).unwrap();
        let before = place.snapshot(&place.shared().join("threadkeep/stores"));
        let error = rekey(&shared(&place), &from, &to, NOW, Duration::ZERO).unwrap_err();
        assert!(matches!(&error, HomeError::Refused { path, .. } if *path == file), "{what}: {error}");
        assert!(error.to_string().starts_with("nothing was moved: issue i2 of agent a1 has"), "{error}");
        let mut after = place.snapshot(&place.shared().join("threadkeep/stores"));
        after.retain(|path, _| before.contains_key(path));
        assert_eq!(after, before, "{what}");
        // A second name of the same file stands in nobody's way.
        fs::remove_file(&there).unwrap();
        fs::hard_link(&file, &there).unwrap();
        let done = rekey(&shared(&place), &from, &to, NOW, Duration::ZERO).unwrap();
        assert!(done.notes.is_empty() && !free.exists() && there.exists(), "{done:?}");
        assert!(!place.store(&from).exists());
    }
}

#[test]
fn sessions_that_stay_where_they_are_get_no_other_key() {
    let place = Place::new();
    let old = place.write(format!("shared/multica-sessions/default/a1/i1/{}", name(1)), log(1));
    drop(run(&place.issue("one", "i1")));
    let error = rekey(&shared(&place), &key("", "a1", "i1"), &key("", "a1", "i2"), NOW, Duration::ZERO)
        .unwrap_err()
        .to_string();
    assert!(error.contains("--adopt") && old.exists(), "{error}");
}

#[test]
fn a_move_that_ended_at_its_last_step_is_finished_by_the_same_call() {
    let place = Place::new();
    let (from, to) = (key("", "a1", "i1"), key("", "a1", "i2"));
    store(&place, &from, 1);
    let dead = place.store(&from);
    let manifest = fs::read(dead.join("store.json")).unwrap();
    let move_it = || rekey(&shared(&place), &from, &to, NOW, Duration::ZERO);
    move_it().unwrap();
    // Killed between the rename to a tombstone and the removal of its files.
    let stem = threadkeep_agent_home::reservation::lock_name(&from.path());
    let grave = place.shared().join("threadkeep/tombstones").join(format!("{}-rekeyed", &stem[..stem.len() - 5]));
    fs::create_dir_all(&grave).unwrap();
    fs::write(grave.join("store.json"), manifest).unwrap();
    let done = move_it().unwrap();
    assert_eq!((done.moved.len(), done.notes.len(), grave.exists()), (0, 1, false), "{done:?}");
    // One of other keys is not taken for that.
    let error = rekey(&shared(&place), &key("", "a1", "i3"), &to, NOW, Duration::ZERO).unwrap_err();
    assert!(matches!(error, HomeError::Missing { .. }), "{error}");
}

#[test]
fn clean_up_that_sweeps_at_the_same_time_does_not_fail_a_move() {
    let place = Place::quick();
    let (one, two) = (key("", "a1", "i1"), key("", "a1", "i2"));
    store(&place, &one, 1);
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                prune(&shared(&place), "", Policy::default(), NOW, Carry::Through).unwrap();
            }
        });
        for round in 0..300 {
            let (from, to) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
            let moved = rekey(&shared(&place), from, to, NOW, Duration::from_secs(20));
            if moved.is_err() {
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            moved.unwrap_or_else(|e| panic!("{round}: {e}"));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
