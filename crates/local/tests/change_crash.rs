//! Archive, unarchive, delete and restore at every crash point and with every call failing once: afterwards a thread is
//! at one place with every byte, or the next change finishes the step.
//!
//! The home is looked at where it really is; every change goes to a simulated disk that holds the same files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use threadkeep_local::change::journal::{Codex, Journal, Move, Names, Step};
use threadkeep_local::change::trash::{MANIFEST, Manifest, Replaced, Trash, TrashedFile};
use threadkeep_local::change::{Cascade, ChangeKind, Changer, Decision};
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::Home;
use threadkeep_rollout::sim::{Crash, Failure, SimDisk};

const ONE: &str = "01990000-0000-7000-8000-000000000001";
const TWO: &str = "01990000-0000-7000-8000-000000000002";
const OTHER: &str = "01990000-0000-7000-8000-000000000003";
const SEGMENT: &str = "01990000-0000-7000-8000-00000000000a";

fn id(text: &str) -> ThreadId {
    ThreadId::parse(text).unwrap()
}

fn header(id: &str, base: Option<&str>) -> String {
    let base = base.map(|b| format!(r#","history_base":{b}"#)).unwrap_or_default();
    let ordinal = if base.is_empty() { 0 } else { 2 };
    format!(
        r#"{{"timestamp":"2026-08-20T01:10:00.000Z","ordinal":{ordinal},"type":"session_meta","payload":{{"id":"{id}","cwd":"/w","originator":"t","cli_version":"0","source":"cli","timestamp":"2026-08-20T01:10:00.000Z","history_mode":"paginated"{base}}}}}"#
    ) + "\n"
}

/// The files of the home, active.
fn files() -> BTreeMap<PathBuf, Vec<u8>> {
    let day = "sessions/2026/08/20";
    let first = header(ONE, None)
        + r#"{"timestamp":"2026-08-20T01:10:01.000Z","ordinal":1,"type":"event_msg","payload":{"type":"x"}}"#
        + "\n";
    let base = format!(r#"{{"thread_id":"{ONE}","end_ordinal_exclusive":2,"end_byte_offset":{}}}"#, first.len());
    let packed = zstd::encode_all(first.as_bytes(), 3).unwrap();
    let second = header(ONE, Some(&base));
    BTreeMap::from([
        (format!("{day}/rollout-2026-08-20T01-10-00-{ONE}.jsonl").into(), first.into_bytes()),
        (format!("{day}/rollout-2026-08-20T01-10-00-{ONE}.jsonl.zst").into(), packed),
        (format!("sessions/2026/08/21/rollout-2026-08-21T01-10-00-{ONE}_{SEGMENT}.jsonl").into(), second.into_bytes()),
        (format!("{day}/rollout-2026-08-20T02-10-00-{TWO}.jsonl").into(), header(TWO, None).into_bytes()),
        (format!("{day}/rollout-2026-08-20T03-10-00-{OTHER}.jsonl").into(), header(OTHER, None).into_bytes()),
    ])
}

fn names() -> String {
    let line =
        |id: &str, name: &str| format!(r#"{{"id":"{id}","thread_name":"{name}","updated_at":"2026-08-20T01:10:00Z"}}"#);
    [line(ONE, "a"), line(OTHER, "b"), "not a line".into(), line(ONE, "c"), line(TWO, "d"), line(OTHER, "e")].join("\n")
        + "\n"
}

const INDEX: &str = "session_index.jsonl";

fn archived(path: &Path) -> PathBuf {
    Path::new("archived_sessions").join(path.file_name().unwrap())
}

/// A home on the real disk, for looking, and on the simulated one, for changing.
struct World {
    real: tempfile::TempDir,
    sim: SimDisk,
    kind: ChangeKind,
}

impl World {
    /// A home in which a change of this kind has something to do.
    fn new(kind: ChangeKind) -> Self {
        let real = tempfile::tempdir().unwrap();
        let home = std::fs::canonicalize(real.path()).unwrap();
        let sim = SimDisk::default();
        let put = |path: &Path, bytes: &[u8]| {
            let whole = home.join(path);
            std::fs::create_dir_all(whole.parent().unwrap()).unwrap();
            std::fs::write(&whole, bytes).unwrap();
            sim.put(&whole, Some(bytes));
        };
        for (path, bytes) in files() {
            let mine = !path.to_string_lossy().contains(OTHER);
            put(&if mine && kind == ChangeKind::Unarchive { archived(&path) } else { path }, &bytes);
        }
        put(Path::new(INDEX), names().as_bytes());
        let world = Self { real, sim, kind };
        if kind == ChangeKind::Restore {
            let outcomes = world.changer(&world.sim).apply(ChangeKind::Delete, &[id(ONE), id(TWO)]);
            assert!(outcomes.iter().all(|o| o.result.is_ok()), "{outcomes:?}");
            // As the simulated disk has it now, so that the look sees what is there.
            for path in files().keys().filter(|p| !p.to_string_lossy().contains(OTHER)) {
                std::fs::remove_file(home.join(path)).unwrap();
            }
            // Everything so far is on the disk.
            return Self { sim: world.sim.crashed(Crash::Everything), ..world };
        }
        world
    }

    fn home(&self) -> PathBuf {
        std::fs::canonicalize(self.real.path()).unwrap()
    }

    fn changer(&self, sim: &SimDisk) -> Changer {
        Changer { disk: Arc::new(sim.clone()), ..Changer::new(Home::new(self.home()), None, None) }
    }

    fn run(&self) -> Vec<threadkeep_local::change::Outcome> {
        self.changer(&self.sim).apply(self.kind, &[id(ONE), id(TWO)])
    }

    /// Where a file may be: before and after.
    fn places(&self, path: &Path) -> [PathBuf; 2] {
        let thread = if path.to_string_lossy().contains(ONE) { ONE } else { TWO };
        let trashed = Path::new("threadkeep/trash").join(thread).join("files").join(path);
        let [from, to] = match self.kind {
            ChangeKind::Archive => [path.to_owned(), archived(path)],
            ChangeKind::Unarchive => [archived(path), path.to_owned()],
            ChangeKind::Delete => [path.to_owned(), trashed],
            _ => [trashed, path.to_owned()],
        };
        [self.home().join(from), self.home().join(to)]
    }

    /// Which side a thread is on: 0 before, 1 after. Fails when it is on both or on neither.
    fn side(&self, sim: &SimDisk, thread: &str, what: &str) -> usize {
        let mut sides = Vec::new();
        for (path, bytes) in files().iter().filter(|(p, _)| p.to_string_lossy().contains(thread)) {
            let at: Vec<usize> = (0..2).filter(|i| sim.contents(&self.places(path)[*i]).is_some()).collect();
            assert_eq!(at.len(), 1, "{what}: {} is at {at:?} of {:?}", path.display(), sim.names());
            assert_eq!(sim.contents(&self.places(path)[at[0]]).as_ref(), Some(bytes), "{what}: every byte");
            sides.push(at[0]);
        }
        sides.dedup();
        assert_eq!(sides.len(), 1, "{what}: thread {thread} is at two places: {:?}", sim.names());
        sides[0]
    }

    /// After everything that was begun is finished: each thread is whole on one side, and its names with it.
    fn check_settled(&self, sim: &SimDisk, what: &str) {
        let left: Vec<PathBuf> = sim
            .names()
            .into_iter()
            .filter(|n| {
                n.parent() == Some(&self.home().join("threadkeep/journal"))
                    && n.extension().is_some_and(|e| e == "json")
            })
            .collect();
        assert!(left.is_empty(), "{what}: {left:?} is still there");
        let index = String::from_utf8(sim.contents(&self.home().join(INDEX)).expect("the name index")).unwrap();
        let trash = Trash::read(sim, &self.home()).unwrap();
        for thread in [ONE, TWO] {
            let side = self.side(sim, thread, what);
            let lines = |text: &str| text.lines().filter(|l| l.contains(thread)).map(str::to_owned).collect::<Vec<_>>();
            let gone = matches!((self.kind, side), (ChangeKind::Delete, 1) | (ChangeKind::Restore, 0));
            assert_eq!(lines(&index), if gone { vec![] } else { lines(&names()) }, "{what}");
            assert_eq!(trash.entries.iter().any(|e| e.thread_id == id(thread)), gone, "{what}: {:?}", sim.names());
        }
        let others = |text: &str| {
            text.lines().filter(|l| !l.contains(ONE) && !l.contains(TWO)).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(others(&index), others(&names()), "{what}");
    }
}

const KINDS: [ChangeKind; 4] = [ChangeKind::Archive, ChangeKind::Unarchive, ChangeKind::Delete, ChangeKind::Restore];

/// Calls of the longest change; one more than that changes nothing.
const CALLS: usize = 150;

#[test]
fn a_change_is_whole() {
    for kind in KINDS {
        let world = World::new(kind);
        let plan = world.changer(&world.sim).plan(kind, &[id(ONE), id(TWO)], Cascade::Alone);
        assert!(plan.threads.iter().all(|t| matches!(t.decision, Decision::Take)), "{plan:?}");
        let before = world.sim.calls();
        let outcomes = world.run();
        assert!(outcomes.iter().all(|o| o.result.is_ok()), "{kind:?}: {outcomes:?}");
        assert!(world.sim.calls() - before < CALLS, "{} calls", world.sim.calls() - before);
        world.check_settled(&world.sim, &format!("{kind:?}"));
        for thread in [ONE, TWO] {
            assert_eq!(world.side(&world.sim, thread, ""), 1);
        }
        // What is acknowledged survives the power.
        let image = world.sim.crashed(Crash::Durable);
        world.changer(&image).finish();
        world.check_settled(&image, &format!("{kind:?}, then the power went"));
        for thread in [ONE, TWO] {
            assert_eq!(world.side(&image, thread, "durable"), 1, "{kind:?}");
        }
        if kind == ChangeKind::Restore {
            assert_eq!(world.sim.contents(&world.home().join(INDEX)).unwrap(), names().into_bytes(), "byte for byte");
            assert!(!world.sim.names().iter().any(|n| n.ends_with(MANIFEST)), "nothing is left in the trash");
        }
    }
}

#[test]
fn any_crash_leaves_a_thread_at_one_place_or_something_to_finish() {
    let mut images = 0;
    for kind in KINDS {
        for at in 0..CALLS {
            let world = World::new(kind);
            world.sim.power_off_at(at);
            drop(world.run());
            if !world.sim.is_off() {
                break;
            }
            let seeds = (0..6).flat_map(|n| [Crash::InOrder(n), Crash::AnyOrder(n)]);
            for crash in Crash::ALL.into_iter().chain(seeds) {
                images += 1;
                let what = format!("{kind:?}, off at call {at}, {crash:?}");
                let image = world.sim.crashed(crash);
                // Before anything is finished every file is there, once or under two names.
                for (path, bytes) in files().iter().filter(|(p, _)| !p.to_string_lossy().contains(OTHER)) {
                    let there = world.places(path).iter().filter_map(|p| image.contents(p)).any(|b| b == *bytes);
                    assert!(there, "{what}: {} is lost: {:?}", path.display(), image.names());
                }
                let finished = world.changer(&image).finish();
                assert!(finished.iter().all(|f| f.outcome.is_ok()), "{what}: {finished:?}");
                world.check_settled(&image, &what);
            }
        }
    }
    assert!(images > 2_000, "{images}");
}

#[test]
fn any_failing_call_leaves_a_thread_at_one_place_or_something_to_finish() {
    for kind in KINDS {
        for failure in [Failure::Clean, Failure::Torn, Failure::Dropped] {
            for at in 0..CALLS {
                let world = World::new(kind);
                let before = world.sim.calls();
                world.sim.fail_call(at, failure);
                let outcomes = world.run();
                if world.sim.calls() - before <= at {
                    break;
                }
                let what = format!("{kind:?}, {failure:?} at call {at}: {outcomes:?}");
                let unfinished = Changer::unfinished(&world.sim, &world.home());
                for crash in Crash::ALL.into_iter().chain([Crash::InOrder(1), Crash::AnyOrder(1), Crash::AnyOrder(2)]) {
                    let image = world.sim.crashed(crash);
                    drop(world.changer(&image).finish());
                    world.check_settled(&image, &format!("{what}, then {crash:?}"));
                }
                if !unfinished {
                    for (outcome, thread) in outcomes.iter().zip([ONE, TWO]) {
                        let side = world.side(&world.sim, thread, &what);
                        // A thread that is told to be changed is; one that is told not to be is where it was.
                        assert_eq!(side == 1, outcome.result.is_ok(), "{what}");
                    }
                }
                drop(world.changer(&world.sim).finish());
                world.check_settled(&world.sim, &what);
            }
        }
    }
}

/// The swap of a detached thread, begun and cut off at every call: afterwards the new rollout stands and the old one is in
/// the trash; and where the old one was written to meanwhile, everything is as it was.
#[test]
fn a_detached_thread_is_swapped_whole_or_not_at_all() {
    let day = "sessions/2026/08/20";
    let (old, new) = (
        format!("{day}/rollout-2026-08-20T01-10-00-{ONE}.jsonl"),
        format!("{day}/rollout-2026-08-20T01-10-00-{ONE}_{SEGMENT}.jsonl"),
    );
    let temporary = format!("{day}/detach-{SEGMENT}.tmp");
    for overtaken in [false, true] {
        let mut ended = false;
        for at in 0..CALLS {
            let real = tempfile::tempdir().unwrap();
            let home = std::fs::canonicalize(real.path()).unwrap();
            let sim = SimDisk::default();
            let was: &[u8] = if overtaken { b"the old one, and more\n" } else { b"the old one\n" };
            sim.put(&home.join(&old), Some(was));
            sim.put(&home.join(&temporary), Some(b"the new one\n"));
            let trashed = TrashedFile { path: old.clone().into(), bytes: 12 };
            let manifest = Manifest {
                format: 1,
                entry: ONE.into(),
                thread_id: id(ONE),
                name: None,
                preview: None,
                deleted_at: UtcMillis(1),
                number: 0,
                files: vec![trashed.clone()],
                names: vec![],
                codex: vec![],
                index: vec![],
                replaced: Some(Replaced { path: new.clone().into(), bytes: 12, rollout_path: None }),
                goals: vec![],
            };
            let place = manifest.place(&trashed);
            let step = Step {
                thread_id: id(ONE),
                moves: vec![
                    Move { from: temporary.clone().into(), to: new.clone().into() },
                    Move { from: old.clone().into(), to: place.clone() },
                ],
                removes: vec![],
                made_from: vec![trashed],
                trash: Some(manifest),
                names: Names::Stay,
                codex: Codex::Stay,
            };
            let journal = Journal { format: 1, kind: ChangeKind::Detach, at: UtcMillis(1), steps: vec![step] };
            journal.write(&sim, &home, "1").unwrap();
            let changer = |sim: &SimDisk| Changer {
                disk: Arc::new(sim.clone()),
                ..Changer::new(Home::new(home.clone()), None, None)
            };
            sim.power_off_at(at);
            drop(changer(&sim).finish());
            ended = !sim.is_off();
            let seeds = (0..6).flat_map(|n| [Crash::InOrder(n), Crash::AnyOrder(n)]);
            for crash in Crash::ALL.into_iter().chain(seeds) {
                let image = sim.crashed(crash);
                drop(changer(&image).finish());
                let has = |path: &Path| image.contents(&home.join(path));
                let what = format!("off at {at}, {crash:?}, overtaken {overtaken}: {:?}", image.names());
                assert!(has(Path::new(&temporary)).is_none(), "{what}");
                assert!(!Changer::unfinished(&image, &home), "{what}");
                if overtaken {
                    assert_eq!(has(Path::new(&old)).as_deref(), Some(was), "{what}");
                    assert!(has(Path::new(&new)).is_none() && has(&place).is_none(), "{what}");
                } else {
                    assert_eq!(has(Path::new(&new)).as_deref(), Some(&b"the new one\n"[..]), "{what}");
                    assert_eq!(has(&place).as_deref(), Some(was), "{what}");
                    assert!(has(Path::new(&old)).is_none(), "{what}");
                    assert_eq!(Trash::read(&image, &home).unwrap().entries.len(), 1, "{what}");
                }
            }
            if ended {
                break;
            }
        }
        assert!(ended, "more than {CALLS} calls");
    }
}

/// Someone put a file where one was still to go, between the crash and the next change: what had moved goes back.
#[test]
fn what_cannot_be_finished_is_taken_back() {
    let mut halves = 0;
    for kind in [ChangeKind::Archive, ChangeKind::Unarchive, ChangeKind::Restore] {
        for at in 0..CALLS {
            let world = World::new(kind);
            world.sim.power_off_at(at);
            drop(world.run());
            if !world.sim.is_off() {
                break;
            }
            let image = world.sim.crashed(Crash::Everything);
            let mine = files().into_keys().filter(|p| p.to_string_lossy().contains(ONE));
            let mine: Vec<[PathBuf; 2]> = mine.map(|p| world.places(&p)).collect();
            let (moved, left): (Vec<_>, Vec<_>) = mine.iter().partition(|[from, _]| image.contents(from).is_none());
            let (Some(_), Some([_, to])) = (moved.first(), left.last()) else { continue };
            halves += 1;
            image.put(to, Some(b"another"));
            let what = format!("{kind:?}, off at call {at}");
            let finished = world.changer(&image).finish();
            let outcomes = finished.into_iter().flat_map(|f| f.outcome.unwrap()).collect::<Vec<_>>();
            assert!(outcomes.iter().any(|o| o.id == id(ONE) && o.result.is_err()), "{what}: {outcomes:?}");
            for [from, _] in &mine {
                assert!(image.contents(from).is_some(), "{what}: {} is not back: {:?}", from.display(), image.names());
            }
            assert_eq!(image.contents(to).as_deref(), Some(&b"another"[..]), "{what}");
            assert!(!Changer::unfinished(&image, &world.home()), "{what}");
            if kind == ChangeKind::Restore {
                let trash = Trash::read(&image, &world.home()).unwrap();
                assert!(trash.entries.iter().any(|e| e.thread_id == id(ONE)), "{what}: its entry stays");
            }
        }
    }
    assert!(halves > 5, "{halves}");
}

/// Someone took a file away between the crash and the next change: the others go where they were to go.
#[test]
fn a_file_that_is_gone_keeps_no_other_back() {
    let mut halves = 0;
    for at in 0..CALLS {
        let world = World::new(ChangeKind::Archive);
        world.sim.power_off_at(at);
        drop(world.run());
        if !world.sim.is_off() {
            break;
        }
        let image = world.sim.crashed(Crash::Everything);
        let mine = files().into_keys().filter(|p| p.to_string_lossy().contains(ONE));
        let mine: Vec<[PathBuf; 2]> = mine.map(|p| world.places(&p)).collect();
        if !Changer::unfinished(&image, &world.home()) || mine.iter().any(|[from, _]| image.contents(from).is_none()) {
            continue;
        }
        halves += 1;
        image.put(&mine[0][0], None);
        drop(world.changer(&image).finish());
        for [from, to] in &mine[1..] {
            assert!(image.contents(from).is_none() && image.contents(to).is_some(), "{at}: {:?}", image.names());
        }
    }
    assert!(halves > 0);
}
