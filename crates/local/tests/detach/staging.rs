//! Where the new rollout goes, and what a failing disk or a power cut leaves of it.

use std::fs;
use std::time::{Duration, SystemTime};

use threadkeep_local::change::detach::{stage, verify};
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::name::RolloutName;
use threadkeep_rollout::sim::{Crash, Failure, SimDisk};
use threadkeep_store::TestClock;

use crate::world::{World, chain, header, id, joined, of, turn};

fn clock() -> TestClock {
    TestClock::new(UtcMillis(1_772_400_000_000))
}

/// The history is read from the real disk, the new file goes to a simulated one.
#[test]
fn no_failure_leaves_anything_that_is_taken_for_a_rollout() {
    let world = World::new();
    let expected = joined(&chain(&world));
    let open = world.open(id(3));
    let subject = of(&open);
    let disk = SimDisk::default();
    let staged = stage(&disk, &world.home, &subject, &clock()).expect("staged");
    assert!(disk.contents(&staged.temporary) == Some(expected.clone()));
    assert_eq!(disk.names(), std::slice::from_ref(&staged.temporary), "nothing has its name yet");
    // It lasts, whatever a crash does.
    for crash in Crash::ALL {
        assert!(disk.crashed(crash).contents(&staged.temporary).as_ref() == Some(&expected), "{crash:?}");
    }
    let calls = disk.calls();
    for n in 0..calls {
        for failure in [Failure::Clean, Failure::Torn, Failure::Dropped, Failure::Evicted] {
            let disk = SimDisk::default();
            disk.fail_call(n, failure);
            stage(&disk, &world.home, &subject, &clock()).expect_err("it fails");
            assert!(disk.names().is_empty(), "call {n}, {failure:?}: {:?}", disk.names());
        }
        let disk = SimDisk::default();
        disk.power_off_at(n);
        stage(&disk, &world.home, &subject, &clock()).expect_err("it fails");
        for crash in Crash::ALL {
            for name in disk.crashed(crash).names() {
                let text = name.file_name().expect("a name").to_string_lossy().into_owned();
                assert!(RolloutName::parse(&text).is_none() && !RolloutName::may_be(text.as_bytes()), "{text}");
                assert!(!text.contains(&id(3).to_string()) && !text.contains("jsonl"), "{text}");
            }
        }
    }
    assert!(calls >= 6, "{calls}");
}

#[test]
fn it_stands_where_the_head_stood_and_is_newer() {
    let world = World::new();
    chain(&world);
    let old = world.place(id(3), None);
    let when = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    fs::File::options().write(true).open(&old).expect("it").set_modified(when).expect("set");
    let staged = world.stage(id(3)).expect("staged");
    let name = format!("rollout-2026-03-01T10-00-00-{}_{}.jsonl", id(3), staged.rollout_id);
    assert_eq!(staged.target, world.day().join(name));
    assert_eq!(staged.temporary.parent(), staged.target.parent(), "one file system");
    assert_eq!(fs::metadata(&staged.temporary).expect("it").modified().expect("a time"), when);
    // The temporary file is in nobody's way.
    let before = world.told(id(3));
    assert_eq!(world.told(id(3)), before);
    assert!(staged.rollout_id.v7_millis().is_some());
}

#[test]
fn archived_threads_stay_archived() {
    let world = World::new();
    chain(&world);
    let archive = world.home.path().join("archived_sessions");
    fs::create_dir_all(&archive).expect("a folder");
    let old = world.place(id(3), None);
    fs::rename(&old, archive.join(old.file_name().expect("a name"))).expect("archived");
    let before = world.told(id(3));
    assert_eq!(before.0["archived"], true);
    let path = world.detach(id(3));
    assert_eq!(path.parent(), Some(&*archive));
    assert_eq!(world.told(id(3)), before);
}

/// A rollout in an odd place, with a name that has no time.
#[test]
fn an_odd_place_is_put_right() {
    for name in ["rollout-2026-13-45T99-00-00", "rollout-x"] {
        let world = World::new();
        chain(&world);
        let odd = world.home.path().join("sessions").join(format!("{name}-{}.jsonl", id(3)));
        fs::rename(world.place(id(3), None), &odd).expect("moved");
        let path = world.detach(id(3));
        // By the thread's creation.
        assert_eq!(path.parent(), Some(&*world.day()), "{}", path.display());
    }
}

/// The clock was set back since the thread was reverted: the new rollout is its newest all the same.
#[test]
fn the_new_rollout_is_the_head_whatever_the_clock_says() {
    let world = World::new();
    chain(&world);
    let mut future = *ThreadId::new_v7().as_bytes();
    future[0] = 0x70;
    let future = ThreadId::from_bytes(future);
    let old = fs::read(world.place(id(3), None)).expect("it");
    let base = (id(3), 17, old.len() as u64);
    let lines = [vec![header(id(3), 17, Some(base), "")], turn(18, id(3), "later")].concat();
    let segment = world.put(id(3), Some(future), &joined(&lines));
    let before = world.told(id(3)).1;
    let staged = world.stage(id(3)).expect("staged");
    verify(&of(&world.open(id(3))), &staged.temporary).expect("it says the same");
    fs::rename(&staged.temporary, &staged.target).expect("the swap");
    // The old ones stay here, as where a fork needs them.
    assert!(segment.exists());
    let open = world.open(id(3));
    let spans: Vec<_> = open.history.spans.iter().map(|s| s.path.clone()).collect();
    assert_eq!(spans, [staged.target]);
    assert_eq!(world.told(id(3)).1, before);
}
