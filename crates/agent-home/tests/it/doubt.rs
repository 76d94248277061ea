//! Clean-up where something cannot be looked at: a reference to a base may stand there, so the base stays.

use std::fs;
use std::os::unix::fs::symlink;

use threadkeep_agent_home::shared::SharedHome;
use threadkeep_agent_home::survey::survey;
use threadkeep_agent_home::watch::Unwatched;

use crate::place::{Place, fork, key, name, run, t};
use crate::pruning::{because, clean, policy, store};

/// A place with a store that would go, whose only thread is 1.
fn idle() -> Place {
    let place = Place::new();
    store(&place, &key("", "a1", "i1"), 1, 20);
    place
}

fn base(place: &Place) -> std::path::PathBuf {
    place.store(&key("", "a1", "i1")).join("sessions/2026").join(name(1))
}

#[test]
fn a_fork_in_a_store_of_an_earlier_system_keeps_its_base() {
    for in_use in [false, true] {
        let place = idle();
        place.write(format!("shared/multica-sessions/default/a1/i2/2026/11/20/{}", name(9)), fork(9, 1, 10));
        if in_use {
            drop(run(&place.issue("two", "i2")));
        }
        let done = clean(&place, "", policy(14));
        assert_eq!((done.removed, base(&place).exists()), (0, true), "{done:?}");
        assert!(because(&done, &key("", "a1", "i1")).contains(&format!("{} elsewhere refers to", t(9))), "{done:?}");
    }
}

/// Puts something into the place that keeps a reference out of sight.
type Hide = fn(&Place);

#[test]
fn a_reference_that_cannot_be_seen_keeps_every_store_that_may_be_meant() {
    let day = "shared/sessions/2026/11/20";
    let cases: [(&str, Hide); 13] = [
        ("a torn compressed head", |p| {
            let whole = zstd::encode_all(fork(9, 1, 10).as_bytes(), 1).unwrap();
            p.write(format!("shared/sessions/2026/11/20/{}.zst", name(9)), &whole[..20]);
        }),
        ("a damaged head", |p| {
            p.write(format!("shared/sessions/2026/11/20/{}", name(9)), &fork(9, 1, 10)[..80]);
        }),
        ("a head that is no text", |p| {
            p.write(format!("shared/archived_sessions/{}", name(9)), [0u8; 100]);
        }),
        ("a linked year", |p| {
            p.write(format!("disk/2026/11/20/{}", name(9)), fork(9, 1, 10));
            fs::create_dir_all(p.shared().join("sessions")).unwrap();
            symlink(p.dir.path().join("disk/2026"), p.shared().join("sessions/2026")).unwrap();
        }),
        ("a linked rollout", |p| {
            let file = p.write(format!("disk/{}", name(9)), fork(9, 1, 10));
            fs::create_dir_all(p.shared().join("sessions")).unwrap();
            symlink(file, p.shared().join("sessions").join(name(9))).unwrap();
        }),
        ("a linked rollout on a disk that is not there", |p| {
            fs::create_dir_all(p.shared().join("sessions")).unwrap();
            symlink(p.dir.path().join("disk").join(name(9)), p.shared().join("sessions").join(name(9))).unwrap();
        }),
        ("sessions on a disk that is not there", |p| {
            symlink(p.dir.path().join("disk"), p.shared().join("sessions")).unwrap();
        }),
        ("a loop of links", |p| {
            fs::create_dir_all(p.shared().join("sessions")).unwrap();
            symlink("2026", p.shared().join("sessions/2026")).unwrap();
        }),
        ("a pipe with a rollout's name", |p| {
            let pipe = p.shared().join("sessions").join(name(9));
            fs::create_dir_all(pipe.parent().unwrap()).unwrap();
            assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
        }),
        ("folders that are too deep", |p| {
            p.write(format!("shared/sessions/{}{}", "d/".repeat(20), name(9)), fork(9, 1, 10));
        }),
        ("a linked store", |p| {
            p.write(format!("disk/sessions/{}", name(9)), fork(9, 1, 10));
            let agent = p.shared().join("threadkeep/stores/p-other/a-a1");
            fs::create_dir_all(&agent).unwrap();
            symlink(p.dir.path().join("disk"), agent.join("issue-i9")).unwrap();
        }),
        ("linked sessions of another store", |p| {
            let other = store(p, &key("other", "a1", "i9"), 9, 1);
            fs::rename(other.join("sessions"), p.dir.path().join("disk")).unwrap();
            symlink(p.dir.path().join("disk"), other.join("sessions")).unwrap();
        }),
        ("linked stores of an earlier system", |p| {
            p.write(format!("disk/default/a/i/{}", name(9)), fork(9, 1, 10));
            symlink(p.dir.path().join("disk"), p.shared().join("multica-sessions")).unwrap();
        }),
    ];
    for (what, hide) in cases {
        let place = idle();
        fs::create_dir_all(place.dir.path().join(day)).unwrap();
        if what.contains("sessions on a disk") || what.contains("year") || what.contains("loop") {
            fs::remove_dir_all(place.shared().join("sessions")).unwrap();
        }
        hide(&place);
        let done = clean(&place, "", policy(14));
        assert!(base(&place).exists(), "{what}");
        let why = because(&done, &key("", "a1", "i1"));
        assert!(why.starts_with("not certain: whether a thread elsewhere needs it is not known: "), "{what}: {why}");
        assert!(why.contains("shared/"), "the place is named: {what}: {why}");
    }
}

#[test]
fn what_can_hide_no_reference_keeps_nothing() {
    let place = idle();
    let shared_rollout = place.rollout(5);
    place.write(format!("shared/sessions/{}", name(6)), "");
    place.write("shared/sessions/notes.txt", "x");
    symlink("notes.txt", place.shared().join("sessions/link-to-notes")).unwrap();
    // What exposures over file systems make, and what is left of one when the person removes theirs.
    let other = store(&place, &key("", "a1", "i2"), 2, 1);
    symlink(&shared_rollout, other.join("sessions").join(name(5))).unwrap();
    symlink(place.shared().join("sessions").join(name(7)), other.join("sessions").join(name(7))).unwrap();
    // A folder that is looked into under its own name.
    symlink(place.shared().join("sessions/2026"), other.join("sessions/again")).unwrap();
    let done = clean(&place, "", policy(14));
    assert_eq!((done.removed, base(&place).exists()), (1, false), "{done:?}");
}

#[test]
fn a_store_that_holds_nothing_of_its_own_goes_whatever_is_not_known() {
    let place = idle();
    let shared_rollout = place.rollout(5);
    fs::remove_file(base(&place)).unwrap();
    fs::hard_link(&shared_rollout, base(&place).with_file_name(name(5))).unwrap();
    crate::place::touch(&shared_rollout, crate::pruning::days(20));
    fs::write(&shared_rollout, crate::place::record(5, &crate::pruning::days(20).to_string(), "")).unwrap();
    crate::place::touch(&shared_rollout, crate::pruning::days(20));
    place.write(format!("shared/sessions/{}", name(9)), "no header");
    assert_eq!(clean(&place, "", policy(14)).removed, 1);
    assert!(shared_rollout.exists());
}

#[test]
fn a_base_in_two_stores_is_not_lost_with_both() {
    let place = idle();
    let other = store(&place, &key("", "a1", "i2"), 2, 20);
    fs::hard_link(base(&place), other.join("sessions").join(name(1))).unwrap();
    place.write(format!("shared/sessions/{}", name(9)), fork(9, 1, 10));
    let done = clean(&place, "", policy(14));
    assert_eq!((done.removed, base(&place).exists()), (0, true), "{done:?}");
}

#[test]
fn b89_an_archived_thread_that_is_only_here_keeps_its_store() {
    let place = idle();
    let archived = place.store(&key("", "a1", "i1")).join("archived_sessions").join(name(1));
    fs::rename(base(&place), &archived).unwrap();
    let done = clean(&place, "", policy(14));
    assert_eq!(because(&done, &key("", "a1", "i1")), format!("archived: {}", t(1)));
    assert!(archived.exists());
    // The person has it too: nothing is lost with the store.
    fs::create_dir_all(place.shared().join("archived_sessions")).unwrap();
    fs::hard_link(&archived, place.shared().join("archived_sessions").join(name(1))).unwrap();
    assert_eq!(clean(&place, "", policy(14)).removed, 1);
}

#[test]
fn writer_locks_that_cannot_be_looked_at_keep_a_store() {
    let place = idle();
    let locks = place.shared().join("thread-writer-locks");
    let _ = fs::remove_dir_all(&locks);
    fs::write(&locks, "no folder").unwrap();
    let done = clean(&place, "", policy(14));
    assert!(because(&done, &key("", "a1", "i1")).contains("written is not known"), "{done:?}");
    assert!(base(&place).exists());
}

#[test]
fn the_heads_that_every_release_wrote_are_read() {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes");
    let mut homes = 0;
    for home in fs::read_dir(fixtures).unwrap() {
        let path = home.unwrap().path();
        if !path.join("sessions").is_dir() {
            continue;
        }
        let home = SharedHome::open(&path, std::sync::Arc::new(Unwatched)).unwrap();
        let found = survey(&home);
        assert!(found.problems.is_empty(), "{}: {:?}", path.display(), found.problems);
        homes += 1;
    }
    assert!(homes > 5, "{homes}");
}
