//! Clean-up.

use std::fs;
use std::time::Duration;

use threadkeep_agent_home::inventory::{Look, stores};
use threadkeep_agent_home::manifest::Pin;
use threadkeep_agent_home::plan::{Action, Policy};
use threadkeep_agent_home::prune::{Carry, Pruned, pin, prune};
use threadkeep_agent_home::shared::SharedHome;
use threadkeep_agent_home::watch::Unwatched;
use threadkeep_agent_home::{HomeError, Options, StoreKey, World, prepare};
use threadkeep_record::UtcMillis;

use crate::place::{DAY, NOW, Place, fork, key, log, name, record, run_at, touch};

pub fn shared(place: &Place) -> SharedHome {
    SharedHome::open(&place.shared(), std::sync::Arc::new(Unwatched)).unwrap()
}

pub fn days(n: i64) -> UtcMillis {
    UtcMillis(NOW.0 - n * DAY)
}

/// A store that was last used so many days ago, with one rollout of that time.
pub fn store(place: &Place, key: &StoreKey, n: u32, ago: i64) -> std::path::PathBuf {
    let task = format!("made-{n}");
    let options = threadkeep_agent_home::Options { key: Some(key.clone()), ..place.options(&task) };
    drop(run_at(&options, days(ago)));
    let file = place.write(format!("tasks/{task}/sessions/2026/{}", name(n)), record(n, &days(ago).to_string(), ""));
    touch(&file, days(ago));
    fs::remove_dir_all(place.task(&task)).unwrap();
    place.store(key)
}

pub fn policy(days: u64) -> Policy {
    Policy { retention: Some(Duration::from_secs(days * 24 * 3600)), max_bytes: None }
}

pub fn clean(place: &Place, profile: &str, policy: Policy) -> Pruned {
    let dry = prune(&shared(place), profile, policy, NOW, Carry::Out).unwrap();
    let done = prune(&shared(place), profile, policy, NOW, Carry::Through).unwrap();
    assert_eq!(dry.plan, done.plan, "a dry run shows what a real one does");
    assert_eq!(done.removed, done.plan.iter().filter(|d| d.action == Action::Remove).count() as u64);
    done
}

pub fn because(done: &Pruned, key: &StoreKey) -> String {
    done.plan.iter().find(|d| d.store == key.path()).map(|d| d.because.text()).unwrap_or_default()
}

#[test]
fn prune_codex_session_stores() {
    let place = Place::new();
    let idle = store(&place, &key("", "a1", "idle"), 1, 20);
    let fresh = store(&place, &key("", "a1", "fresh"), 2, 2);
    let other = store(&place, &key("", "a2", "other"), 3, 3);
    for zero in [Policy::default(), policy(0), Policy { max_bytes: Some(0), retention: Some(Duration::ZERO) }] {
        assert_eq!(clean(&place, "", zero).removed, 0);
        assert!(idle.exists(), "nothing asked for removes nothing");
    }
    let done = clean(&place, "", policy(14));
    assert_eq!((done.removed, idle.exists(), fresh.exists(), other.exists()), (1, false, true, true));
    assert!(done.freed_bytes > 0);
    assert_eq!(fs::read_dir(place.shared().join("threadkeep/tombstones")).unwrap().count(), 0);
}

#[test]
fn prune_reopened_store_not_reclaimed() {
    let place = Place::new();
    let reopened = store(&place, &key("", "a1", "i1"), 1, 20);
    // Mounted again, nothing written yet.
    drop(run_at(&place.issue("again", "i1"), days(0)));
    assert_eq!(clean(&place, "", policy(14)).removed, 0);
    assert!(reopened.exists());
}

#[test]
fn prune_active_store_not_reclaimed() {
    let place = Place::new();
    let held = store(&place, &key("", "a1", "i1"), 1, 20);
    let prepared = run_at(&place.issue("long", "i1"), days(19));
    let done = prune(&shared(&place), "", policy(14), NOW, Carry::Through).unwrap();
    assert_eq!(done.removed, 0);
    assert!(held.exists());
    assert!(because(&done, &key("", "a1", "i1")).contains(&std::process::id().to_string()), "{done:?}");
    drop(prepared);
    assert_eq!(clean(&place, "", policy(14)).removed, 1);
    assert!(!held.exists());
}

#[test]
fn prune_isolates_profiles_and_names_them() {
    let place = Place::new();
    let mine = store(&place, &key("one", "a1", "i1"), 1, 20);
    let theirs = store(&place, &key("two", "a1", "i1"), 2, 20);
    let default = store(&place, &key("", "a1", "i1"), 3, 20);
    let done = clean(&place, "one", policy(14));
    assert_eq!((done.removed, mine.exists(), theirs.exists(), default.exists()), (1, false, true, true));
    assert_eq!(done.out_of_scope, ["default", "p-two"]);
}

#[test]
fn prune_no_cross_profile_collision() {
    let place = Place::new();
    let pairs = [("", "default"), ("a.b", "ab"), ("prod", "Prod"), ("a-b", "a_b"), ("x", "x ")];
    for (n, (a, b)) in pairs.into_iter().enumerate() {
        let n = u32::try_from(n).unwrap() * 2;
        let (one, two) = (store(&place, &key(a, "g", "i"), n, 20), store(&place, &key(b, "g", "i"), n + 1, 20));
        assert_eq!(clean(&place, a, policy(14)).removed, 1, "{a:?}");
        assert!(!one.exists() && two.exists(), "{a:?} {b:?}");
    }
}

#[test]
fn prune_removes_empty_agent_dir() {
    let place = Place::new();
    let gone = store(&place, &key("", "a1", "i1"), 1, 20);
    let stays = store(&place, &key("", "a2", "i1"), 2, 20);
    fs::write(stays.parent().unwrap().join("stray"), "unknown").unwrap();
    clean(&place, "", policy(14));
    assert!(!gone.parent().unwrap().exists());
    assert_eq!(fs::read_to_string(stays.parent().unwrap().join("stray")).unwrap(), "unknown");
    // And is made again.
    drop(run_at(&place.issue("again", "i1"), NOW));
    assert!(gone.exists());
}

#[test]
fn pinned_named_referenced_and_recent_are_kept_with_reasons() {
    let place = Place::new();
    let k = |issue: &str| key("", "a1", issue);
    store(&place, &k("idle"), 1, 40);
    store(&place, &k("pinned"), 2, 40);
    store(&place, &k("named"), 3, 40);
    store(&place, &k("base"), 4, 40);
    store(&place, &k("parent"), 5, 40);
    let active = store(&place, &k("active"), 6, 40);
    store(&place, &k("child"), 7, 1);
    // Archived in a task: put away to be kept. Archived by the person and here as a base: theirs stays.
    let archived = store(&place, &k("archived"), 10, 40);
    fs::rename(archived.join("sessions/2026").join(name(10)), archived.join("archived_sessions").join(name(10)))
        .unwrap();
    let old = record(11, &days(40).to_string(), "");
    let theirs = place.write(format!("shared/archived_sessions/{}", name(11)), old);
    touch(&theirs, days(40));
    let exposed = store(&place, &k("exposed"), 12, 40).join("archived_sessions").join(name(11));
    fs::hard_link(theirs, exposed).unwrap();
    pin(&shared(&place), &k("pinned"), Some(Pin { at: NOW, why: Some("release".into()) }), NOW, Duration::ZERO)
        .unwrap();
    // A name given by a person.
    let task = run_at(&place.issue("n", "named"), days(40));
    drop(task);
    place.write(
        "tasks/n/session_index.jsonl",
        format!("{{\"id\":\"{}\",\"thread_name\":\"mine\"}}\n", crate::place::t(3)),
    );
    drop(run_at(&place.issue("n", "named"), days(40)));
    // A fork by reference in the shared home, and a spawned agent in another store.
    place.write(format!("shared/sessions/{}", name(8)), fork(8, 4, 10));
    let spawned = format!(
        ",\"parent_thread_id\":\"{}\",\"source\":{{\"subagent\":{{\"thread_spawn\":{{\"parent_thread_id\":\"{}\",\"depth\":1}}}}}}",
        crate::place::t(5),
        crate::place::t(5)
    );
    fs::write(place.store(&k("child")).join("sessions").join(name(9)), record(9, &days(1).to_string(), &spawned))
        .unwrap();
    // Made long ago, written yesterday, by its records; its file says 1970.
    let file = active.join("sessions/2026").join(name(6));
    fs::write(&file, record(6, &days(40).to_string(), "") + &record(6, &days(1).to_string(), "")).unwrap();
    touch(&file, UtcMillis(0));
    let done = clean(&place, "", policy(30));
    let why: Vec<String> =
        ["pinned", "named", "base", "parent", "active", "child"].map(|i| because(&done, &k(i))).into();
    assert_eq!(why[0], "pinned: release");
    assert_eq!(why[1], "named: mine");
    assert!(why[2].contains("refers to"), "{why:?}");
    assert!(why[3].contains("refers to"), "{why:?}");
    assert_eq!((&*why[4], &*why[5]), ("used recently", "used recently"));
    assert_eq!(because(&done, &k("archived")), format!("archived: {}", crate::place::t(10)));
    assert_eq!(done.removed, 2);
    assert!(!place.store(&k("idle")).exists() && !place.store(&k("exposed")).exists());
}

#[test]
fn a_time_in_the_future_keeps_nothing_for_ever() {
    let place = Place::new();
    let ahead = store(&place, &key("", "a1", "ahead"), 1, 20);
    touch(&ahead.join("sessions/2026").join(name(1)), UtcMillis(NOW.0 + 400 * DAY));
    assert_eq!(clean(&place, "", policy(14)).removed, 1, "its other times count");
    assert!(!ahead.exists());
    // Nothing but future times: the clock starts, once.
    let all = store(&place, &key("", "a1", "all"), 2, -300);
    let first = prune(&shared(&place), "", policy(14), NOW, Carry::Through).unwrap();
    assert_eq!((first.removed, because(&first, &key("", "a1", "all")).contains("clock starts")), (0, true));
    let soon = UtcMillis(NOW.0 + 10 * DAY);
    assert_eq!(prune(&shared(&place), "", policy(14), soon, Carry::Through).unwrap().removed, 0);
    let later = UtcMillis(NOW.0 + 15 * DAY);
    assert_eq!(prune(&shared(&place), "", policy(14), later, Carry::Through).unwrap().removed, 1);
    assert!(!all.exists());
}

#[test]
fn the_least_recently_used_go_first_until_the_budget_holds() {
    let place = Place::new();
    for (n, ago) in [(1, 5), (2, 9), (3, 7), (4, 0)] {
        let dir = store(&place, &key("", "a1", &format!("i{n}")), n, ago);
        fs::write(dir.join("sessions/big"), vec![1u8; 1 << 20]).unwrap();
    }
    let sizes: u64 = stores(&shared(&place), "default", Look::List).unwrap().iter().map(|s| s.bytes).sum();
    let budget = Policy { retention: None, max_bytes: Some(sizes - (1 << 20)) };
    let done = clean(&place, "", budget);
    assert_eq!(done.removed, 1);
    assert!(!place.store(&key("", "a1", "i2")).exists(), "the oldest");
    let done = clean(&place, "", Policy { retention: None, max_bytes: Some(1) });
    assert_eq!(done.removed, 2);
    assert!(place.store(&key("", "a1", "i4")).exists(), "just used");
}

#[test]
fn a_budget_that_a_reference_diverts_does_not_take_another_base() {
    let place = Place::new();
    let k = |issue: &str| key("", "a1", issue);
    for (n, ago) in [(1, 9), (2, 8), (3, 7)] {
        let dir = store(&place, &k(&format!("i{n}")), n, ago);
        fs::write(dir.join("sessions/big"), vec![1u8; 1 << 20]).unwrap();
    }
    // The two oldest are bases of the person's forks.
    for (fork_of, n) in [(1, 11), (2, 12)] {
        place.write(format!("shared/sessions/{}", name(n)), fork(n, fork_of, 10));
    }
    let done = clean(&place, "", Policy { retention: None, max_bytes: Some((5 << 20) / 2) });
    assert_eq!(done.removed, 1);
    assert!(!place.store(&k("i3")).exists() && place.store(&k("i1")).exists() && place.store(&k("i2")).exists());
}

#[test]
fn invariant_9_freed_bytes_are_blocks_really_freed() {
    let place = Place::new();
    let dir = store(&place, &key("", "a1", "i1"), 1, 20);
    let linked = place
        .write(format!("shared/sessions/{}", name(2)), record(2, &days(20).to_string(), "") + &" ".repeat(1 << 20));
    fs::hard_link(&linked, dir.join("sessions").join(name(2))).unwrap();
    let sparse = fs::File::create(dir.join("sessions/hole")).unwrap();
    sparse.set_len(1 << 30).unwrap();
    let planned = prune(&shared(&place), "", policy(14), NOW, Carry::Out).unwrap().plan[0].bytes;
    let done = clean(&place, "", policy(14));
    assert_eq!(done.removed, 1);
    assert!(done.freed_bytes <= planned && done.freed_bytes < 1 << 20, "{}", done.freed_bytes);
    assert!(linked.exists());
}

#[test]
fn invariant_10_any_doubt_means_keep() {
    for doubt in ["manifest", "newer", "foreign", "unreadable"] {
        let place = Place::new();
        let dir = store(&place, &key("", "a1", "i1"), 1, 40);
        let manifest = dir.join("store.json");
        let text = fs::read_to_string(&manifest).unwrap();
        match doubt {
            "manifest" => fs::write(&manifest, "{").unwrap(),
            "newer" => fs::write(&manifest, text.replace("\"format\": 1", "\"format\": 2")).unwrap(),
            "foreign" => fs::write(&manifest, text.replace("i1", "i2")).unwrap(),
            _ => {
                // Deeper than anything of ours: nobody knows what is down there.
                let mut deep = dir.join("sessions");
                for n in 0..20 {
                    deep = deep.join(n.to_string());
                }
                fs::create_dir_all(&deep).unwrap();
            }
        }
        let done = clean(&place, "", policy(14));
        assert_eq!(done.removed, 0, "{doubt}");
        assert!(because(&done, &key("", "a1", "i1")).starts_with("not certain"), "{doubt}: {done:?}");
        assert!(dir.exists());
    }
}

#[test]
fn a_store_without_a_manifest_waits_and_one_that_holds_something_stays() {
    let place = Place::new();
    let k = |issue: &str| key("", "a1", issue);
    // Nothing was ever put into this one: a preparation ended while it was made.
    let empty = store(&place, &k("empty"), 1, 2);
    fs::remove_dir_all(empty.join("sessions/2026")).unwrap();
    // This one was even pinned, as nobody can tell any more.
    let lost = store(&place, &k("lost"), 2, 2);
    pin(&shared(&place), &k("lost"), Some(Pin { at: days(2), why: None }), days(2), Duration::ZERO).unwrap();
    for dir in [&empty, &lost] {
        fs::remove_file(dir.join("store.json")).unwrap();
    }
    assert_eq!(clean(&place, "", policy(1)).removed, 0, "it may be one that is being made");
    let later = UtcMillis(NOW.0 + 40 * DAY);
    let done = prune(&shared(&place), "", policy(1), later, Carry::Through).unwrap();
    assert_eq!((done.removed, empty.exists(), lost.join("sessions/2026").join(name(2)).exists()), (1, false, true));
    assert!(because(&done, &k("lost")).contains("store.json is missing"), "{done:?}");
}

#[test]
fn a_store_of_which_nothing_is_known_waits_and_goes() {
    let place = Place::new();
    let dir = place.store(&key("", "a1", "i1"));
    fs::create_dir_all(dir.join("sessions")).unwrap();
    let at = |days: i64| prune(&shared(&place), "", policy(14), UtcMillis(NOW.0 + days * DAY), Carry::Through).unwrap();
    assert!(because(&at(0), &key("", "a1", "i1")).contains("clock starts"));
    assert_eq!(at(13).removed, 0);
    assert_eq!(at(15).removed, 1);
    assert!(!dir.exists());
}

#[test]
fn leftovers_of_a_clean_up_that_died_are_swept() {
    let place = Place::new();
    let dir = store(&place, &key("", "a1", "i1"), 1, 1);
    let grave = place.shared().join("threadkeep/tombstones/dead-1-0");
    fs::create_dir_all(grave.parent().unwrap()).unwrap();
    fs::rename(&dir, &grave).unwrap();
    let dry = prune(&shared(&place), "", policy(14), NOW, Carry::Out).unwrap();
    assert!(dry.swept.is_empty() && grave.exists());
    let done = prune(&shared(&place), "", policy(14), NOW, Carry::Through).unwrap();
    assert_eq!(done.swept, ["dead-1-0"]);
    assert!(!grave.exists());
}

#[test]
fn a_link_in_a_store_is_removed_and_not_followed() {
    let place = Place::new();
    let dir = store(&place, &key("", "a1", "i1"), 1, 20);
    let kept = place.write("elsewhere/file", "kept");
    // Below `sessions` it would be a place that is not looked into, and keep the store.
    fs::create_dir_all(dir.join("task-state/t")).unwrap();
    std::os::unix::fs::symlink(kept.parent().unwrap(), dir.join("task-state/t/link")).unwrap();
    std::os::unix::fs::symlink(&kept, dir.join("sessions/link")).unwrap();
    assert_eq!(clean(&place, "", policy(14)).removed, 1);
    assert_eq!(fs::read_to_string(kept).unwrap(), "kept");
}

#[test]
fn a_thread_that_is_written_keeps_its_store() {
    let place = Place::new();
    let dir = store(&place, &key("", "a1", "i1"), 1, 20);
    let lock = threadkeep_rollout::writer_lock::WriterLock::acquire(
        &place.shared(),
        threadkeep_record::ThreadId::parse(&crate::place::t(1)).unwrap(),
        "test",
    )
    .unwrap();
    let done = clean(&place, "", policy(14));
    assert!(because(&done, &key("", "a1", "i1")).starts_with("being written"), "{done:?}");
    drop(lock);
    assert_eq!(clean(&place, "", policy(14)).removed, 1);
    assert!(!dir.exists());
}

/// The other order of `prune_active_store_not_reclaimed`: who comes while a store is being removed waits, and has a new one.
#[test]
fn a_task_that_comes_while_its_store_is_removed_waits_for_the_end_of_it() {
    let place = Place::new();
    let dir = store(&place, &key("", "a1", "i1"), 1, 20);
    let locks = place.shared().join("threadkeep/locks");
    let lock = fs::read_dir(&locks).unwrap().next().unwrap().unwrap().path();
    let removing = fs::File::options().write(true).open(&lock).unwrap();
    removing.lock().unwrap();
    let soon = Options { patience: Duration::ZERO, ..place.issue("two", "i1") };
    assert!(matches!(prepare(&soon, &World::at(NOW)), Err(HomeError::Held { .. })), "nobody waits who will not");
    assert!(!clean(&place, "", policy(14)).plan.iter().any(|d| d.action == Action::Remove), "no second removal");
    std::thread::scope(|scope| {
        let task = scope.spawn(|| prepare(&place.issue("one", "i1"), &World::at(NOW)));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!task.is_finished(), "it took a store that is being removed");
        fs::remove_dir_all(&dir).unwrap();
        fs::remove_file(&lock).unwrap();
        drop(removing);
        let _held = task.join().unwrap().unwrap();
        assert!(dir.join("sessions").is_dir() && lock.exists(), "a new store, under a lock that has a name");
        assert_eq!(clean(&place, "", policy(14)).removed, 0);
    });
}

#[test]
fn a_thread_that_is_written_in_an_earlier_systems_store_keeps_our_side_of_it() {
    let place = Place::new();
    place.write(format!("shared/multica-sessions/default/a1/i1/{}", name(1)), log(1));
    let resume = Some(crate::place::id(1));
    drop(run_at(&threadkeep_agent_home::Options { resume, ..place.issue("one", "i1") }, days(20)));
    let thread = threadkeep_record::ThreadId::parse(&crate::place::t(1)).unwrap();
    let lock = threadkeep_rollout::writer_lock::WriterLock::acquire(&place.shared(), thread, "test").unwrap();
    let done = clean(&place, "", policy(14));
    assert!(because(&done, &key("", "a1", "i1")).starts_with("being written"), "{done:?}");
    drop(lock);
    assert_eq!(clean(&place, "", policy(14)).removed, 1);
}

#[test]
fn invariant_5_a_store_that_is_taken_between_plan_and_removal_is_kept() {
    // Tasks prepare and let go in a loop while clean-up, to which everything looks old, runs in another.
    let place = Place::new();
    let ahead = UtcMillis(NOW.0 + 100 * DAY);
    std::thread::scope(|scope| {
        let tasks: Vec<_> = (0..3)
            .map(|n| {
                let place = &place;
                scope.spawn(move || {
                    for round in 0..30 {
                        let options = place.issue(&format!("t{n}"), "i1");
                        let held = prepare(&options, &World::at(NOW)).unwrap();
                        let file = place.task(&format!("t{n}")).join("sessions").join(name(n * 100 + round));
                        fs::write(&file, log(n * 100 + round)).unwrap();
                        std::thread::yield_now();
                        assert!(file.exists(), "removed while it was held");
                        drop(held);
                    }
                })
            })
            .collect();
        while !tasks.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            prune(&shared(&place), "", policy(14), ahead, Carry::Through).unwrap();
        }
    });
}
