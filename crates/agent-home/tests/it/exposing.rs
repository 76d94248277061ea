//! Making one rollout visible in a store: where it is found, how it comes in, and what comes with it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use threadkeep_agent_home::bring::Lost;
use threadkeep_agent_home::expose::{Exposure, How, Sharing};
use threadkeep_agent_home::find::Presence;
use threadkeep_agent_home::outcome::{Outcome, Report, Unavailable};
use threadkeep_agent_home::{Options, ResumeId, World, prepare};

use crate::place::{NOW, Place, fork, id, inode, key, log, mode, name, record, run, t, visible};

fn resume(place: &Place, task: &str, n: u32) -> Options {
    Options { resume: Some(id(n)), ..place.issue(task, task) }
}

fn why(report: &Report) -> &'static str {
    match &report.outcome {
        Outcome::Unavailable(why) => why.word(),
        Outcome::Fresh => "fresh",
        Outcome::Resumed(_) => "resumed",
    }
}

#[test]
fn expose_resume_rollout_no_match_returns_error() {
    let place = Place::new();
    place.rollout(2);
    let done = run(&resume(&place, "one", 1));
    assert_eq!(done.report.outcome, Outcome::Unavailable(Unavailable::Lost(Lost::NotFound)));
    assert!(visible(&place.task("one")).is_empty());
}

#[test]
fn expose_resume_rollout_links_large_file_without_copying() {
    let place = Place::new();
    let shared = place.rollout(1);
    let mut file = fs::File::options().append(true).open(&shared).unwrap();
    file.write_all(&vec![b' '; 4 << 20]).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o640)).unwrap();
    let done = run(&resume(&place, "one", 1));
    let exposed = &done.report.exposed[0];
    assert_eq!((exposed.how, exposed.shares_appends), (How::HardLink, true));
    let there = place.task("one").join(&exposed.path);
    assert_eq!(inode(&there), inode(&shared));
    assert_eq!(mode(&there), 0o640, "an exposed file keeps its mode");
}

#[test]
fn expose_resume_rollout_finds_compressed_and_flat_layouts() {
    let zst = zstd::encode_all(log(1).as_bytes(), 3).unwrap();
    for (path, bytes) in [
        (format!("sessions/{}", name(1)), log(1).into_bytes()),
        (format!("sessions/2026/11/29/{}.zst", name(1)), zst.clone()),
        (format!("sessions/{}.zst", name(1)), zst.clone()),
        (format!("sessions/a/b/c/d/{}", name(1)), log(1).into_bytes()),
    ] {
        let place = Place::new();
        let shared = place.write(format!("shared/{path}"), bytes);
        let done = run(&resume(&place, "one", 1));
        assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present), "{path}");
        assert_eq!(inode(&place.task("one").join(&path)), inode(&shared), "{path}");
    }
}

#[test]
fn a_folder_with_letters_that_mean_something_to_globs() {
    let place = Place::new();
    let odd = place.dir.path().join("work [x]*?");
    fs::create_dir(&odd).unwrap();
    fs::rename(place.shared(), odd.join("shared")).unwrap();
    let rollout = odd.join("shared/sessions").join(name(1));
    fs::create_dir_all(rollout.parent().unwrap()).unwrap();
    fs::write(&rollout, log(1)).unwrap();
    let options = Options {
        key: Some(key("", "", "i")),
        resume: Some(id(1)),
        ..Options::new(odd.join("task"), odd.join("shared"))
    };
    assert_eq!(run(&options).report.outcome, Outcome::Resumed(Presence::Present));
}

#[test]
fn ids_are_compared_whole_and_never_leave_the_sessions() {
    let place = Place::new();
    place.write("shared/sessions/rollout-2026-11-29T10-00-00-aaa-bbb.jsonl", "{\"x\":1}\n");
    place.write("shared/secret.jsonl", "secret");
    let options = Options { resume: Some(ResumeId::parse("bbb").unwrap()), ..place.issue("one", "i1") };
    assert_eq!(why(&run(&options).report), "not_found");
    for bad in ["*", "x/../../secret", "..", "a*", ""] {
        assert!(ResumeId::parse(bad).is_err(), "{bad}");
    }
    let options = Options { resume: Some(ResumeId::parse("aaa-bbb").unwrap()), ..place.issue("two", "i2") };
    assert_eq!(run(&options).report.outcome, Outcome::Resumed(Presence::PresentUnverified));
}

#[test]
fn a_right_name_with_an_unreadable_header_is_exposed_and_told() {
    let place = Place::new();
    place.write(format!("shared/sessions/{}", name(1)), "\0\0\0\0\n{\"type\":\"x\"}\n");
    let done = run(&resume(&place, "one", 1));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::PresentUnverified));
    assert_eq!(visible(&place.task("one")), [name(1)]);
}

#[test]
fn files_that_hold_nothing_or_another_thread_are_not_resumed() {
    for (bytes, word) in [(String::new(), "unusable"), (log(2), "unusable")] {
        let place = Place::new();
        place.write(format!("shared/sessions/{}", name(1)), bytes);
        let done = run(&resume(&place, "one", 1));
        assert_eq!(why(&done.report), word);
        assert!(visible(&place.task("one")).is_empty());
    }
}

#[test]
fn of_several_copies_the_one_with_most_is_taken_and_twins_stay_together() {
    let place = Place::new();
    place.write(format!("shared/sessions/2026/11/28/{}", name(1)), log(1));
    let longer = log(1) + "{\"timestamp\":\"2026-11-30T10:00:00.000Z\",\"type\":\"event_msg\",\"payload\":{}}\n";
    place.write(format!("shared/sessions/2026/11/29/{}", name(1)), &longer);
    place.write(format!("shared/sessions/2026/11/29/{}.zst", name(1)), zstd::encode_all(log(1).as_bytes(), 1).unwrap());
    let done = run(&resume(&place, "one", 1));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!(done.report.exposed.len(), 2, "{:?}", done.report.exposed);
    let exposed = place.task("one").join(format!("sessions/2026/11/29/{}", name(1)));
    assert_eq!(fs::read_to_string(exposed).unwrap(), longer);
    assert!(done.report.notes.iter().any(|n| n.contains("left out")), "{:?}", done.report.notes);
}

#[test]
fn all_segments_of_a_thread_come() {
    let place = Place::new();
    let first = log(1);
    place.write(format!("shared/sessions/{}", name(1)), &first);
    let second = format!("rollout-2026-11-29T12-00-00-{}_{}.jsonl", t(1), t(99));
    let more = format!(
        ",\"history_base\":{{\"thread_id\":\"{}\",\"end_ordinal_exclusive\":2,\"end_byte_offset\":{}}}",
        t(1),
        first.len()
    );
    place.write(format!("shared/sessions/{second}"), record(1, "2026-11-29T12:00:00.000Z", &more));
    let done = run(&resume(&place, "one", 1));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!(visible(&place.task("one")), [name(1), second]);
    // Without its first segment the thread is not whole.
    drop(done);
    fs::remove_dir_all(place.shared().join("threadkeep")).unwrap();
    fs::remove_file(place.shared().join("sessions").join(name(1))).unwrap();
    assert_eq!(why(&run(&resume(&place, "two", 1)).report), "base_missing");
}

#[test]
fn a_fork_by_reference_comes_with_its_bases_or_not_at_all() {
    let place = Place::new();
    let base = log(1);
    let middle = fork(2, 1, base.len());
    place.write(format!("shared/sessions/2026/11/29/{}", name(1)), &base);
    place.write(format!("shared/archived_sessions/{}", name(2)), &middle);
    place.write(format!("shared/sessions/2026/11/30/{}", name(3)), fork(3, 2, middle.len()));
    let done = run(&resume(&place, "one", 3));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!(done.report.bases, [id(1), id(2)]);
    let store = place.store(&key("", "a1", "one"));
    for path in [
        format!("sessions/2026/11/29/{}", name(1)),
        format!("archived_sessions/{}", name(2)),
        format!("sessions/2026/11/30/{}", name(3)),
    ] {
        assert!(store.join(&path).exists(), "{path}");
    }
    drop(done);
    assert_eq!(run(&resume(&place, "one", 3)).report.bases, [id(1), id(2)], "told again");
    // A base that was cut, and one that is gone, and no store that still has it.
    for damage in ["cut", "gone"] {
        fs::remove_dir_all(place.shared().join("threadkeep")).unwrap();
        let base = place.shared().join(format!("sessions/2026/11/29/{}", name(1)));
        match damage {
            "cut" => {
                let short = &log(1)[..log(1).len() / 2];
                fs::remove_file(&base).unwrap();
                fs::write(&base, short).unwrap();
            }
            _ => fs::remove_file(&base).unwrap(),
        }
        let done = run(&resume(&place, damage, 3));
        assert_eq!(why(&done.report), "base_missing", "{damage}");
        assert!(visible(&place.task(damage)).is_empty(), "nothing half exposed");
    }
}

/// A base names a rollout: where a thread was reverted, a segment by its own id.
#[test]
fn a_fork_of_a_reverted_thread_comes_with_that_thread() {
    let place = Place::new();
    let first = log(1);
    place.write(format!("shared/sessions/{}", name(1)), &first);
    let base = |of: String, bytes: usize| {
        format!(",\"history_base\":{{\"thread_id\":\"{of}\",\"end_ordinal_exclusive\":2,\"end_byte_offset\":{bytes}}}")
    };
    let segment = |n: u32| format!("rollout-2026-11-29T12-00-0{}-{}_{}.jsonl", n % 10, t(1), t(n));
    let second = record(1, "2026-11-29T12:00:00.000Z", &base(t(1).to_string(), first.len()));
    place.write(format!("shared/sessions/{}", segment(98)), &second);
    // Reverted twice: the third part continues the second.
    let third = record(1, "2026-11-29T12:00:01.000Z", &base(t(98).to_string(), second.len()));
    place.write(format!("shared/sessions/{}", segment(99)), &third);
    let fork = record(2, "2026-11-30T12:00:00.000Z", &base(t(99).to_string(), third.len()));
    place.write(format!("shared/sessions/{}", name(2)), fork);
    let done = run(&resume(&place, "one", 1));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    let done = run(&resume(&place, "two", 2));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present), "{:?}", done.report);
    assert_eq!(done.report.bases, [id(1)]);
    drop(done);
    // The segment that is meant was cut. Others of the thread are long enough, and do not stand in for it.
    for (cut, whole, resumed) in [(99, &third, 2), (98, &second, 1)] {
        fs::remove_dir_all(place.shared().join("threadkeep")).unwrap();
        let path = format!("shared/sessions/{}", segment(cut));
        let text = whole.lines().next().unwrap().to_owned() + "\n";
        fs::remove_file(place.dir.path().join(&path)).unwrap();
        place.write(&path, text);
        place.write(format!("shared/sessions/{}", name(1)), first.clone() + &" ".repeat(whole.len()));
        assert_eq!(why(&run(&resume(&place, &format!("cut-{cut}"), resumed)).report), "base_missing", "{cut}");
    }
}

#[test]
fn archived_threads_are_told() {
    let place = Place::new();
    place.write(format!("shared/archived_sessions/{}", name(1)), log(1));
    assert_eq!(why(&run(&resume(&place, "one", 1)).report), "archived");
}

#[test]
fn isolated_is_a_file_of_its_own_or_a_refusal() {
    let place = Place::new();
    let shared = place.rollout(1);
    let size = fs::metadata(&shared).unwrap().len();
    let with = |task: &str, allow_copy: u64| Options {
        exposure: Exposure { sharing: Sharing::Isolated, allow_copy },
        ..resume(&place, task, 1)
    };
    // Whether blocks can be shared here depends on the file system; both ends are right.
    let done = run(&with("one", size - 1));
    match &done.report.outcome {
        Outcome::Resumed(_) => assert_eq!(done.report.exposed[0].how, How::Reflink),
        _ => {
            assert_eq!(why(&done.report), "cannot_expose");
            assert!(visible(&place.task("one")).is_empty());
            let done = run(&with("two", size));
            assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
            assert_eq!(done.report.exposed[0].how, How::Copy);
            let copy = place.task("two").join(&done.report.exposed[0].path);
            assert_ne!(inode(&copy), inode(&shared));
            assert_eq!(mode(&copy), mode(&shared));
            fs::File::options().append(true).open(&copy).unwrap().write_all(b"{}\n").unwrap();
            assert_eq!(fs::metadata(&shared).unwrap().len(), size, "the person's history is as it was");
        }
    }
}

#[test]
fn over_file_systems_a_link_is_made_and_repaired() {
    // /dev/shm is another file system than the temporary folder wherever both exist.
    let other = Path::new("/dev/shm");
    let place = Place::new();
    if !other.is_dir() || fs::metadata(other).unwrap().dev() == fs::metadata(place.dir.path()).unwrap().dev() {
        return;
    }
    let far = tempfile::tempdir_in(other).unwrap();
    let rollout = far.path().join(name(1));
    fs::write(&rollout, log(1)).unwrap();
    // The person's sessions are a link to another disk.
    std::os::unix::fs::symlink(far.path(), place.shared().join("sessions")).unwrap();
    let done = run(&resume(&place, "one", 1));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    assert_eq!((done.report.exposed[0].how, done.report.exposed[0].shares_appends), (How::Symlink, true));
    drop(done);
    assert!(run(&resume(&place, "one", 1)).report.exposed.is_empty(), "there already");
    // The person compressed it: the link leads nowhere, and the thread is found again.
    fs::remove_file(&rollout).unwrap();
    fs::write(far.path().join(format!("{}.zst", name(1))), zstd::encode_all(log(1).as_bytes(), 1).unwrap()).unwrap();
    let done = run(&resume(&place, "one", 1));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    drop(done);
    fs::remove_file(far.path().join(format!("{}.zst", name(1)))).unwrap();
    assert_eq!(why(&run(&resume(&place, "one", 1)).report), "unusable", "a link that leads nowhere is not a rollout");
}

#[test]
fn an_index_saves_the_walk_and_is_not_believed() {
    let place = Place::new();
    place.rollout(1);
    let asked = std::cell::Cell::new(0);
    for (answer, found) in [
        (format!("sessions/2026/11/29/{}", name(1)), true),
        (format!("sessions/2026/11/29/../../../../secret/{}", name(1)), true),
        (format!("sessions/2026/11/28/{}", name(1)), true),
        ("auth.json".into(), true),
    ] {
        let look_up = |_: &ResumeId| {
            asked.set(asked.get() + 1);
            Some(vec![answer.clone().into()])
        };
        let world = World { look_up: Some(&look_up), ..World::at(NOW) };
        let options = resume(&place, &format!("t{}", asked.get()), 1);
        let done = prepare(&options, &world).unwrap();
        assert_eq!(matches!(done.report.outcome, Outcome::Resumed(_)), found, "{answer}");
    }
    assert_eq!(asked.get(), 4);
}

#[test]
fn a_head_is_all_that_is_read_of_a_huge_rollout() {
    let place = Place::new();
    let shared = place.rollout(1);
    // A hole of 4 GB behind the head: read whole, this test would take seconds and show in the counter.
    fs::File::options().write(true).open(&shared).unwrap().set_len(4 << 30).unwrap();
    let before = read_bytes();
    let done = run(&resume(&place, "one", 1));
    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
    if let (Some(before), Some(after)) = (before, read_bytes()) {
        // Other tests of this process read as well; none of them reads this much.
        assert!(after - before < 256 << 20, "{} bytes read", after - before);
    }
}

/// Bytes that this process has read, where the system counts them.
fn read_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|l| l.strip_prefix("rchar: ")?.trim().parse().ok())
}
