//! Runs that end at any step, by kill or by power loss, and the next run.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use threadkeep_agent_home::find::Presence;
use threadkeep_agent_home::outcome::Outcome;
use threadkeep_agent_home::plan::Policy;
use threadkeep_agent_home::prepare::Work;
use threadkeep_agent_home::prune::{Carry, prune};
use threadkeep_agent_home::rekey::rekey;
use threadkeep_agent_home::shared::SharedHome;
use threadkeep_agent_home::store::Adopt;
use threadkeep_agent_home::watch::{Change, Watch};
use threadkeep_agent_home::{HomeError, Options, World, prepare};

use crate::place::{DAY, NOW, Place, fork, id, key, log, name, visible};

/// Notes each change; refuses all from the n-th on.
#[derive(Debug, Default)]
struct Tape {
    changes: Mutex<Vec<Change>>,
    end_at: Option<usize>,
}

impl Watch for Tape {
    fn before(&self, change: &Change) -> io::Result<()> {
        let mut changes = self.changes.lock().unwrap();
        if self.end_at.is_some_and(|n| changes.len() >= n) {
            return Err(io::Error::other("the run ended here"));
        }
        changes.push(change.clone());
        Ok(())
    }
}

fn run(options: &Options, end_at: Option<usize>) -> (Option<Outcome>, Vec<Change>) {
    let tape = Arc::new(Tape { end_at, ..Tape::default() });
    let world = World { watch: tape.clone(), ..World::at(NOW) };
    let outcome = prepare(options, &world).ok().map(|p| p.report.outcome);
    let changes = tape.changes.lock().unwrap().clone();
    (outcome, changes)
}

/// A copy with links and modes. No process is started for it: a child that is just being started holds every lock of this
/// process for a moment, which other tests would see.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_symlink() {
            symlink(fs::read_link(&path).unwrap(), to).unwrap();
        } else if meta.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, to).unwrap();
        }
    }
}

/// What must be the same at the end: names, kinds, contents and targets, not inodes and times.
fn end(place: &Place) -> Vec<(PathBuf, String)> {
    let mut all: Vec<(PathBuf, String)> = Vec::new();
    for (path, what) in place.snapshot(place.dir.path()) {
        let what = match what.split_once(' ') {
            Some(("file", rest)) => rest
                .splitn(4, ' ')
                .enumerate()
                .filter(|(i, _)| *i == 0 || *i == 3)
                .map(|(_, w)| w.to_owned())
                .collect::<Vec<_>>()
                .join(" "),
            _ => what,
        };
        // A lock that was left says nothing.
        if !path.starts_with("shared/threadkeep/locks") && !path.ends_with("session_index.jsonl.lock") {
            all.push((path, what));
        }
    }
    all
}

/// What a power loss leaves of some changes: those that were made durable, or all but what was not.
#[derive(Debug, Clone, Copy)]
enum Loss {
    /// Only names and contents that were synced.
    Unsynced,
    /// Every name, but contents only where they were synced: files are there and empty.
    Contents,
}

fn replay(changes: &[Change], loss: Loss) {
    let synced_later = |at: usize, folder: Option<&Path>| {
        changes[at..].iter().any(|c| matches!(c, Change::SyncFolder(f) if Some(f.as_path()) == folder))
    };
    for (at, change) in changes.iter().enumerate() {
        let keeps = |path: &Path| matches!(loss, Loss::Contents) || synced_later(at, path.parent());
        // A step whose folder was itself lost fails; that is the loss.
        let _ = match change {
            Change::MakeFolder(path) if keeps(path) => fs::DirBuilder::new().mode(0o700).create(path),
            Change::Write { path, bytes } => {
                // A staged file is found again by the rename that made it durable.
                let whole = changes[at..].iter().any(|c| matches!(c, Change::SyncFile(p) if p == path));
                fs::write(path, if whole { bytes.as_slice() } else { b"" })
                    .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o600)))
            }
            Change::Symlink { target, path } => symlink(target, path),
            Change::HardLink { from, to } if keeps(to) => fs::hard_link(from, to),
            Change::Copy { from, to } if keeps(to) => fs::copy(from, to).map(|_| ()),
            Change::Rename { from, to } if keeps(to) || keeps(from) => fs::rename(from, to),
            Change::RemoveFile(path) if keeps(path) => fs::remove_file(path),
            Change::RemoveFolder(path) if keeps(path) => fs::remove_dir(path),
            _ => Ok(()),
        };
    }
}

struct Story {
    name: &'static str,
    make: fn(&Place),
    options: fn(&Place) -> Options,
}

fn stories() -> Vec<Story> {
    fn shared(place: &Place) {
        let base = log(1);
        place.write(format!("shared/sessions/2026/11/29/{}", name(1)), &base);
        place.write(format!("shared/sessions/2026/11/30/{}", name(2)), fork(2, 1, base.len()));
        place.write("shared/auth.json", "login");
        place.write("shared/config.toml", "model = \"m\"\n");
        place.write("shared/skills/s/SKILL.md", "skill");
    }
    vec![
        Story {
            name: "a fresh home with a fork by reference",
            make: shared,
            options: |p| Options { resume: Some(id(2)), ..p.issue("one", "i1") },
        },
        Story {
            name: "a legacy link with a resume",
            make: |p| {
                shared(p);
                fs::create_dir_all(p.task("one")).unwrap();
                symlink(p.shared().join("sessions"), p.task("one").join("sessions")).unwrap();
                p.write("tasks/one/state_5.sqlite", "database");
                p.write("tasks/one/state_5.sqlite-wal", "journal");
                p.write("tasks/one/auth.json", "stale");
            },
            options: |p| Options { resume: Some(id(2)), ..p.issue("one", "i1") },
        },
        Story {
            name: "a legacy link with a name in the database alone",
            make: |p| {
                shared(p);
                fs::create_dir_all(p.task("one")).unwrap();
                symlink(p.shared().join("sessions"), p.task("one").join("sessions")).unwrap();
                let db = rusqlite::Connection::open(p.task("one").join("state_5.sqlite")).unwrap();
                db.execute_batch("CREATE TABLE threads (id TEXT, history_mode TEXT, name TEXT)").unwrap();
                for n in [2, 7] {
                    db.execute("INSERT INTO threads VALUES (?1, 'paginated', 'given')", [crate::place::t(n)]).unwrap();
                }
            },
            options: |p| Options { resume: Some(id(2)), ..p.issue("one", "i1") },
        },
        Story {
            name: "a person who went on in a file of its own",
            make: |p| {
                shared(p);
                drop(crate::place::run(&Options { resume: Some(id(2)), ..p.issue("zero", "i1") }));
                fs::remove_dir_all(p.task("zero")).unwrap();
                let path = p.shared().join(format!("sessions/2026/11/30/{}", name(2)));
                let longer = fs::read_to_string(&path).unwrap() + "{\"type\":\"event_msg\",\"payload\":{}}\n";
                fs::remove_file(&path).unwrap();
                fs::write(&path, longer).unwrap();
            },
            options: |p| Options { resume: Some(id(2)), ..p.issue("one", "i1") },
        },
        Story {
            name: "a home that was used without a conversation",
            make: |p| {
                shared(p);
                drop(crate::place::run(&p.options("one")));
                p.write("tasks/one/memories/raw_memories.md", "memory");
                p.write("tasks/one/plugins/data/x", "state");
            },
            options: |p| Options { resume: Some(id(2)), ..p.issue("one", "i1") },
        },
        Story {
            name: "a legacy link without one",
            make: |p| {
                shared(p);
                fs::create_dir_all(p.task("one")).unwrap();
                symlink(p.shared().join("sessions"), p.task("one").join("sessions")).unwrap();
            },
            options: |p| p.options("one"),
        },
        Story {
            name: "a local directory with rollouts of its own",
            make: |p| {
                shared(p);
                p.write(format!("tasks/one/sessions/2026/11/29/{}", name(3)), log(3));
                p.write(format!("tasks/one/sessions/2026/11/30/{}", name(4)), log(4));
                p.write(format!("tasks/one/archived_sessions/{}", name(5)), log(5));
            },
            options: |p| Options { work: Work::LocalDirectory, resume: Some(id(3)), ..p.issue("one", "i1") },
        },
        Story {
            name: "a home of another conversation",
            make: |p| {
                shared(p);
                drop(crate::place::run(&p.issue("one", "old")));
                p.write(format!("tasks/one/sessions/{}", name(3)), log(3));
                p.write("tasks/one/memories/raw_memories.md", "memory");
                p.write("tasks/one/goals_1.sqlite", "goals");
            },
            options: |p| Options { resume: Some(id(2)), ..p.issue("one", "new") },
        },
        Story {
            name: "a store of an earlier system that is adopted",
            make: |p| {
                shared(p);
                p.write(format!("shared/multica-sessions/default/a1/i1/2026/11/29/{}", name(3)), log(3));
                drop(crate::place::run(&p.issue("zero", "i1")));
                fs::remove_dir_all(p.task("zero")).unwrap();
            },
            options: |p| Options { adopt: Adopt::Move, resume: Some(id(3)), ..p.issue("one", "i1") },
        },
        Story {
            name: "a quick request that became an issue",
            make: |p| {
                shared(p);
                let mut quick = p.issue("zero", "q1");
                quick.key.as_mut().unwrap().kind = threadkeep_agent_home::ConversationKind::Quick;
                drop(crate::place::run(&quick));
                p.write(format!("tasks/zero/sessions/{}", name(3)), log(3));
                p.write(format!("tasks/zero/sessions/{}", name(4)), log(4));
                fs::remove_dir_all(p.task("zero")).unwrap();
            },
            options: |p| Options { resume: Some(id(3)), ..p.issue("one", "i1") },
        },
    ]
}

/// Every rollout that is anywhere, by the name that it has or had before it was moved aside, with its bytes.
fn rollouts(at: &Path) -> Vec<(String, String)> {
    let mut all: Vec<_> = end_of(at)
        .into_iter()
        .filter_map(|p| Some((p.file_name()?.to_string_lossy().into_owned(), fs::read_to_string(&p).ok()?)))
        .filter(|(n, _)| n.starts_with("rollout-"))
        .map(|(n, bytes)| (n.split(".aside-").next().unwrap_or_default().to_owned(), bytes))
        .collect();
    all.sort();
    all.dedup();
    all
}

fn end_of(at: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(at).into_iter().flatten() {
        let path = entry.unwrap().path();
        match fs::symlink_metadata(&path) {
            Ok(m) if m.is_dir() => all.extend(end_of(&path)),
            Ok(m) if m.is_file() => all.push(path),
            _ => {}
        }
    }
    all
}

fn restore(place: &Place, from: &Path) {
    for part in ["shared", "tasks"] {
        let _ = fs::remove_dir_all(place.dir.path().join(part));
        if from.join(part).exists() {
            copy(&from.join(part), &place.dir.path().join(part));
        }
    }
}

#[test]
fn invariants_1_and_3_every_crash_point_comes_to_the_same_end() {
    for story in stories() {
        let place = Place::quick();
        (story.make)(&place);
        let options = (story.options)(&place);
        let before = Place::quick();
        fs::remove_dir_all(before.shared()).unwrap();
        for part in ["shared", "tasks"] {
            if place.dir.path().join(part).exists() {
                copy(&place.dir.path().join(part), &before.dir.path().join(part));
            }
        }
        let history = place.snapshot(&place.shared().join("sessions"));
        let all = rollouts(place.dir.path());
        let (outcome, changes) = run(&options, None);
        let outcome = outcome.unwrap_or_else(|| panic!("{}: fails", story.name));
        let wanted = end(&place);
        assert!(changes.len() > 10, "{}: {changes:?}", story.name);
        for n in 0..changes.len() {
            for loss in [None, Some(Loss::Unsynced), Some(Loss::Contents)] {
                restore(&place, before.dir.path());
                match loss {
                    None => drop(run(&options, Some(n))),
                    Some(loss) => replay(&changes[..n], loss),
                }
                let at = format!("{}, before step {n} ({:?}), {loss:?}", story.name, changes[n]);
                assert_eq!(rollouts(place.dir.path()), all, "{at}: a rollout is lost");
                let (again, _) = run(&options, None);
                assert_eq!(again.as_ref(), Some(&outcome), "{at}");
                let mut got = end(&place);
                // Kept twice at worst: what a crash left aside.
                got.retain(|(p, _)| !p.to_string_lossy().contains(".threadkeep-stage-"));
                let differs: Vec<_> = got
                    .iter()
                    .filter(|e| !wanted.contains(e))
                    .chain(wanted.iter().filter(|e| !got.contains(e)))
                    .collect();
                assert!(differs.is_empty(), "{at}: {differs:#?}");
                assert_eq!(
                    place.snapshot(&place.shared().join("sessions")).keys().collect::<Vec<_>>(),
                    history.keys().collect::<Vec<_>>(),
                    "{at}: the shared history"
                );
            }
        }
    }
}

#[test]
fn a_failed_sync_is_told_and_the_next_run_is_whole() {
    // A kill in a run that resumes must leave the thread resumable.
    let place = Place::quick();
    place.rollout(1);
    let options = Options { resume: Some(id(1)), ..place.issue("one", "i1") };
    let (_, changes) = run(&options, None);
    let syncs: Vec<usize> =
        (0..changes.len()).filter(|i| matches!(changes[*i], Change::SyncFolder(_) | Change::SyncFile(_))).collect();
    assert!(!syncs.is_empty());
    for at in syncs {
        let place = Place::quick();
        place.rollout(1);
        let options = Options { resume: Some(id(1)), ..place.issue("one", "i1") };
        assert_eq!(run(&options, Some(at)).0, None, "not told");
        assert_eq!(run(&options, None).0, Some(Outcome::Resumed(Presence::Present)));
        assert_eq!(visible(&place.task("one")), [name(1)]);
    }
}

/// A conversation with threads 1 and 2, the one named.
fn conversation(place: &Place) {
    drop(crate::place::run(&place.issue("one", "old")));
    place.write(format!("tasks/one/sessions/2026/{}", name(1)), log(1));
    place.write(format!("tasks/one/archived_sessions/{}", name(2)), log(2));
    place.write("tasks/one/session_index.jsonl", format!("{{\"id\":\"{}\",\"thread_name\":\"mine\"}}\n", id(1)));
    drop(crate::place::run(&place.issue("one", "old")));
    fs::remove_dir_all(place.task("one")).unwrap();
}

#[test]
fn a_rekeying_that_ended_anywhere_is_finished_by_the_next() {
    for n in 0.. {
        let place = Place::quick();
        conversation(&place);
        let all = rollouts(place.dir.path());
        let rekeyed = |watch: Arc<dyn Watch>| {
            let shared = SharedHome::open(&place.shared(), watch)?;
            rekey(&shared, &key("", "a1", "old"), &key("", "a2", "new"), NOW, std::time::Duration::ZERO)
        };
        let whole = rekeyed(Arc::new(Tape { end_at: Some(n), ..Tape::default() })).is_ok();
        assert_eq!(rollouts(place.dir.path()), all, "before step {n}: a rollout is lost");
        match rekeyed(Arc::new(Tape::default())) {
            Ok(_) | Err(HomeError::Missing { .. }) => {}
            Err(e) => panic!("before step {n}: {e}"),
        }
        let done = crate::place::run(&Options {
            key: Some(key("", "a2", "new")),
            resume: Some(id(1)),
            ..place.options("two")
        });
        assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present), "before step {n}");
        assert_eq!(done.report.names[0].name, "mine", "before step {n}");
        assert!(place.task("two").join("archived_sessions").join(name(2)).exists(), "before step {n}");
        if whole {
            assert!(n > 10, "{n}");
            return;
        }
    }
}

#[test]
fn a_clean_up_that_ended_anywhere_is_finished_by_the_next() {
    for n in 0.. {
        let place = Place::quick();
        drop(crate::place::run(&place.issue("one", "idle")));
        place.write(format!("tasks/one/sessions/2026/{}", name(1)), log(1));
        crate::place::touch(&place.task("one").join("sessions/2026").join(name(1)), NOW);
        drop(crate::place::run_at(&place.issue("two", "used"), threadkeep_record::UtcMillis(NOW.0 + 30 * DAY)));
        place.write(format!("tasks/two/sessions/{}", name(2)), log(2));
        let cleaned = |watch: Arc<dyn Watch>| {
            let shared = SharedHome::open(&place.shared(), watch)?;
            let policy = Policy { retention: Some(std::time::Duration::from_secs(14 * 24 * 3600)), max_bytes: None };
            prune(&shared, "", policy, threadkeep_record::UtcMillis(NOW.0 + 30 * DAY), Carry::Through)
        };
        let tape = Arc::new(Tape { end_at: Some(n), ..Tape::default() });
        let whole = cleaned(tape.clone()).is_ok() && tape.changes.lock().unwrap().len() < n;
        let gone = place.store(&key("", "a1", "idle"));
        let left = gone.join("sessions/2026").join(name(1));
        assert!(left.exists() || !gone.exists(), "before step {n}: half a conversation");
        cleaned(Arc::new(Tape::default())).unwrap();
        assert!(!gone.exists(), "before step {n}");
        assert_eq!(fs::read_dir(place.shared().join("threadkeep/tombstones")).unwrap().count(), 0, "before step {n}");
        assert!(place.store(&key("", "a1", "used")).join("sessions").join(name(2)).exists());
        if whole {
            assert!(n > 5, "{n}");
            return;
        }
    }
}
