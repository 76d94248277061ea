//! What is resumed, and what is said where it is not: nothing half there, nothing stale without a word, and no id forgotten
//! because something could not be looked at.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use threadkeep_agent_home::expose::{Exposure, How, Sharing};
use threadkeep_agent_home::find::Presence;
use threadkeep_agent_home::outcome::{Outcome, Report};
use threadkeep_agent_home::present::present;
use threadkeep_agent_home::{Options, Prepared};

use crate::place::{Place, fork, id, inode, key, log, name, record, run, t, touch, visible};

fn resume(place: &Place, task: &str, n: u32) -> Options {
    Options { resume: Some(id(n)), ..place.issue(task, "i1") }
}

fn isolated(allow_copy: u64, options: Options) -> Options {
    Options { exposure: Exposure { sharing: Sharing::Isolated, allow_copy }, ..options }
}

fn why(done: &Prepared) -> &'static str {
    match &done.report.outcome {
        Outcome::Unavailable(why) => why.word(),
        Outcome::Fresh => "fresh",
        Outcome::Resumed(_) => "resumed",
    }
}

fn message(report: &Report) -> String {
    match &report.outcome {
        Outcome::Unavailable(why) => why.message(),
        _ => String::new(),
    }
}

fn in_store(place: &Place, path: &str) -> PathBuf {
    place.store(&key("", "a1", "i1")).join(path)
}

/// As Codex and people do that write a file anew: another file of that name.
fn replace(path: &Path, text: &str) {
    fs::remove_file(path).unwrap();
    fs::write(path, text).unwrap();
}

fn turn(text: &str) -> String {
    format!(
        "{{\"timestamp\":\"2026-11-30T10:00:00.000Z\",\"type\":\"event_msg\",\"payload\":{{\"said\":\"{text}\"}}}}\n"
    )
}

/// A thread that was resumed shared was given to a task that asked to be isolated, without a word.
#[test]
fn isolated_makes_a_file_of_its_own_of_one_that_was_shared() {
    let place = Place::new();
    let shared = place.rollout(1);
    drop(run(&resume(&place, "one", 1)));
    let path = in_store(&place, &format!("sessions/2026/11/29/{}", name(1)));
    assert_eq!(inode(&path), inode(&shared));
    let done = run(&isolated(0, resume(&place, "two", 1)));
    if let Outcome::Resumed(_) = done.report.outcome {
        assert_eq!(done.report.exposed[0].how, How::Reflink);
        return;
    }
    assert_eq!(why(&done), "cannot_expose");
    assert_eq!(inode(&path), inode(&shared), "a refusal changes nothing");
    // Another task may have it open, and would go on in a file that nobody sees any more.
    let done = (done, run(&isolated(1 << 20, resume(&place, "two", 1))));
    assert_eq!(why(&done.1), "cannot_expose");
    assert!(message(&done.1.report).contains("in use"), "{}", message(&done.1.report));
    drop(done);
    let done = run(&isolated(1 << 20, resume(&place, "two", 1)));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!((done.report.exposed[0].how, done.report.exposed[0].shares_appends), (How::Copy, false));
    assert_ne!(inode(&path), inode(&shared));
    assert_eq!(fs::read_to_string(&path).unwrap(), log(1));
    drop(done);
    let own = inode(&path);
    assert!(run(&isolated(1 << 20, resume(&place, "two", 1))).report.exposed.is_empty());
    assert_eq!(inode(&path), own, "once");
}

/// A fork of which the base was too large for a copy stayed in the store alone, and was called present.
#[test]
fn a_refused_exposure_leaves_nothing_of_itself() {
    let place = Place::new();
    let base = log(1) + &" ".repeat(5000);
    place.write(format!("shared/sessions/2026/11/29/{}", name(1)), &base);
    place.write(format!("shared/sessions/2026/11/30/{}", name(2)), fork(2, 1, base.len()));
    let options = isolated(2000, resume(&place, "one", 2));
    let done = run(&options);
    if let Outcome::Resumed(_) = done.report.outcome {
        return;
    }
    assert_eq!(why(&done), "cannot_expose");
    assert!(done.report.exposed.is_empty() && visible(&place.task("one")).is_empty(), "{:?}", done.report);
    assert_eq!(present(&place.task("one"), &place.shared(), &id(2)).unwrap().state, Presence::Absent);
    drop(done);
    // Nor does it touch a folder of the store at every run.
    let day = in_store(&place, "sessions/2026/11/30");
    fs::create_dir_all(&day).unwrap();
    let time = || fs::metadata(&day).unwrap().modified().unwrap();
    let before = time();
    drop(run(&options));
    assert_eq!(time(), before);
    // Another file of a base's name stands in the way: the same holds where files are shared.
    place.write(in_store(&place, &format!("sessions/2026/11/29/{}", name(1))), "");
    assert_eq!(why(&run(&resume(&place, "one", 2))), "cannot_expose");
    assert_eq!(visible(&place.task("one")), [name(1)], "that one");
}

#[test]
fn what_cannot_be_looked_at_does_not_make_an_id_forgotten() {
    let place = Place::new();
    place.write(format!("elsewhere/11/29/{}", name(1)), log(1));
    fs::create_dir_all(place.shared().join("sessions")).unwrap();
    symlink(place.dir.path().join("elsewhere"), place.shared().join("sessions/2026")).unwrap();
    let done = run(&resume(&place, "one", 1));
    assert_eq!(why(&done), "cannot_look");
    let said = message(&done.report);
    assert!(said.contains("sessions/2026") && said.contains("link") && !said.contains("forget"), "{said}");
    assert!(done.report.notes.iter().any(|n| n.contains("sessions/2026")), "{:?}", done.report.notes);
    // The same of a base that may be there.
    place.write(format!("shared/sessions/{}", name(2)), fork(2, 1, log(1).len()));
    assert_eq!(why(&run(&resume(&place, "two", 2))), "cannot_look");
    // What is found elsewhere is resumed all the same.
    place.write(format!("shared/sessions/{}", name(3)), log(3));
    assert_eq!(why(&run(&resume(&place, "three", 3))), "resumed");
}

#[test]
fn a_folder_that_counts_has_to_have_the_bases_too() {
    let place = Place::new();
    place.rollout(1);
    for keyed in [true, false] {
        let task = format!("one-{keyed}");
        let own = format!("tasks/{task}/sessions/2026/11/30/{}", name(2));
        place.write(&own, fork(2, 1, log(1).len()));
        let options = Options { key: resume(&place, &task, 2).key.filter(|_| keyed), ..resume(&place, &task, 2) };
        assert_eq!(why(&run(&options)), "base_missing");
        place.write(format!("tasks/{task}/sessions/2026/11/29/{}", name(1)), log(1));
        let done = run(&options);
        assert_eq!((why(&done), &done.report.bases), ("resumed", &vec![id(1)]));
    }
}

#[test]
fn bases_without_a_beginning_are_refused() {
    for base in ["../../x", "*", "", t(2).as_str(), t(3).as_str()] {
        let place = Place::new();
        let more = |of: &str| {
            format!(",\"history_base\":{{\"thread_id\":\"{of}\",\"end_ordinal_exclusive\":1,\"end_byte_offset\":9}}")
        };
        place.write(format!("shared/sessions/{}", name(2)), record(2, "2026-11-29T11:00:00.000Z", &more(base)));
        // Where 2 refers to 3, 3 refers to 2.
        place.write(format!("shared/sessions/{}", name(3)), record(3, "2026-11-29T11:00:00.000Z", &more(&t(2))));
        let done = run(&resume(&place, "one", 2));
        assert_eq!(why(&done), "base_missing", "{base:?}: {:?}", done.report);
        assert!(visible(&place.task("one")).is_empty());
    }
}

/// What is left of a thread without its newest segment is its history from before it was reverted.
#[test]
fn a_thread_without_its_newest_segment_is_not_resumed() {
    let segment = format!("rollout-2026-11-29T12-00-00-{}_{}.jsonl", t(1), t(99));
    let more = format!(
        ",\"history_base\":{{\"thread_id\":\"{}\",\"end_ordinal_exclusive\":2,\"end_byte_offset\":{}}}",
        t(1),
        log(1).len()
    );
    let whole = record(1, "2026-11-29T12:00:00.000Z", &more);
    for (at, text, said) in [
        ("sessions", "", "unusable"),
        ("archived_sessions", whole.as_str(), "archived"),
        ("sessions", &whole, "resumed"),
    ] {
        let place = Place::new();
        place.write(format!("shared/sessions/{}", name(1)), log(1));
        place.write(format!("shared/{at}/{segment}"), text);
        assert_eq!(why(&run(&resume(&place, "one", 1))), said, "{at} {text}");
    }
}

#[test]
fn a_person_who_went_on_in_another_file_is_not_left_behind() {
    let place = Place::new();
    let shared = place.rollout(1);
    drop(run(&resume(&place, "one", 1)));
    let path = in_store(&place, &format!("sessions/2026/11/29/{}", name(1)));
    replace(&shared, &(log(1) + &turn("the person went on")));
    let done = run(&resume(&place, "one", 1));
    assert_eq!(why(&done), "resumed");
    assert_eq!(inode(&path), inode(&shared), "one file again");
    drop(done);
    assert_eq!(fs::read_to_string(format!("{}.aside-1", path.display())).unwrap(), log(1), "and nothing is lost");
    let before = place.snapshot(&place.store(&key("", "a1", "i1")).join("sessions"));
    assert!(run(&resume(&place, "one", 1)).report.notes.is_empty(), "once");
    assert_eq!(place.snapshot(&place.store(&key("", "a1", "i1")).join("sessions")), before);
    // Both went on: nothing can be put together, and that is said.
    replace(&shared, &(log(1) + &turn("one way")));
    let own = log(1) + &turn("another way");
    replace(&path, &own);
    let done = run(&resume(&place, "one", 1));
    assert_eq!((why(&done), done.report.exposed.len()), ("resumed", 0));
    assert!(done.report.notes.iter().any(|n| n.contains(&name(1))), "{:?}", done.report.notes);
    assert_eq!(fs::read_to_string(&path).unwrap(), own);
    drop(done);
    // The task alone went on, in a file that the person does not have.
    replace(&shared, &log(1));
    assert!(!run(&resume(&place, "one", 1)).report.notes.is_empty());
    assert_eq!(fs::read_to_string(&path).unwrap(), own);
}

#[test]
fn a_file_that_changed_hands_is_taken_when_nobody_has_it_open() {
    let place = Place::new();
    let shared = place.rollout(1);
    let held = run(&resume(&place, "one", 1));
    replace(&shared, &(log(1) + &turn("the person went on")));
    let done = run(&resume(&place, "two", 1));
    assert_eq!((why(&done), done.report.exposed.len()), ("resumed", 0));
    assert!(done.report.notes.iter().any(|n| n.contains("in use")), "{:?}", done.report.notes);
    drop((held, done));
    assert_eq!(run(&resume(&place, "two", 1)).report.exposed.len(), 1);
}

/// Codex compresses what rests and unpacks what goes on.
#[test]
fn a_compressed_file_is_followed_by_the_unpacked_one() {
    let place = Place::new();
    let zst = place
        .write(format!("shared/sessions/2026/11/29/{}.zst", name(1)), zstd::encode_all(log(1).as_bytes(), 1).unwrap());
    drop(run(&resume(&place, "one", 1)));
    fs::remove_file(&zst).unwrap();
    let plain = place.write(format!("shared/sessions/2026/11/29/{}", name(1)), log(1) + &turn("on"));
    assert_eq!(why(&run(&resume(&place, "one", 1))), "resumed");
    assert_eq!(inode(&in_store(&place, &format!("sessions/2026/11/29/{}", name(1)))), inode(&plain));
}

/// A thread that was archived in the conversation was linked once more, and was then both.
#[test]
fn what_was_archived_in_the_task_is_archived() {
    let place = Place::new();
    place.rollout(1);
    drop(run(&resume(&place, "one", 1)));
    let home = place.task("one");
    let active = home.join(format!("sessions/2026/11/29/{}", name(1)));
    fs::rename(&active, home.join("archived_sessions").join(name(1))).unwrap();
    let done = run(&resume(&place, "one", 1));
    assert_eq!(why(&done), "archived");
    assert!(visible(&home).is_empty());
    drop(done);
    fs::rename(home.join("archived_sessions").join(name(1)), &active).unwrap();
    assert_eq!(why(&run(&resume(&place, "one", 1))), "resumed", "unarchived there");
}

#[test]
fn an_earlier_systems_store_is_looked_into_beside_ours() {
    let place = Place::new();
    drop(run(&place.issue("one", "i1")));
    place.write(format!("tasks/one/sessions/{}", name(2)), log(2));
    let old = place.write(format!("shared/multica-sessions/default/a1/i1/2026/11/29/{}", name(1)), log(1));
    let done = run(&resume(&place, "one", 1));
    assert_eq!(why(&done), "resumed");
    assert_eq!(inode(&in_store(&place, &format!("sessions/2026/11/29/{}", name(1)))), inode(&old), "and left there");
}

#[test]
fn an_earlier_systems_store_that_another_conversation_uses_is_looked_into() {
    let place = Place::new();
    let old = place.write(format!("shared/multica-sessions/default/a1/i2/2026/11/29/{}", name(1)), log(1));
    drop(run(&place.issue("two", "i2")));
    let done = run(&resume(&place, "one", 1));
    assert_eq!(why(&done), "resumed", "{:?}", done.report);
    assert_eq!(inode(&in_store(&place, &format!("sessions/2026/11/29/{}", name(1)))), inode(&old));
}

#[test]
fn something_of_the_right_name_that_is_no_file_is_told() {
    let place = Place::new();
    fs::create_dir_all(place.shared().join("sessions").join(name(1))).unwrap();
    let fifo = place.shared().join("sessions").join(name(2));
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for n in [1, 2] {
        let done = run(&resume(&place, "one", n));
        assert_eq!(why(&done), "unusable");
        assert!(message(&done.report).contains(&name(n)), "{}", message(&done.report));
    }
}

/// Appends of a task to a file of its own must not be taken for a person's.
#[test]
fn what_only_the_task_has_is_left_alone() {
    let place = Place::new();
    drop(run(&place.issue("one", "i1")));
    let own = place.write(format!("tasks/one/sessions/2026/11/29/{}", name(1)), log(1));
    fs::File::options().append(true).open(&own).unwrap().write_all(turn("more").as_bytes()).unwrap();
    touch(&own, crate::place::NOW);
    let done = run(&resume(&place, "one", 1));
    assert!(done.report.notes.is_empty() && done.report.exposed.is_empty(), "{:?}", done.report);
}
