//! What must never happen: something made, changed or removed outside, a thread lost, a difference where nothing changed.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use threadkeep_agent_home::find::Presence;
use threadkeep_agent_home::outcome::Outcome;
use threadkeep_agent_home::shared::SharedHome;
use threadkeep_agent_home::task::checked;
use threadkeep_agent_home::watch::Unwatched;
use threadkeep_agent_home::{Options, World, prepare};

use crate::place::{DAY, NOW, Place, id, key, log, mode, name, run, run_at, visible};

#[test]
fn invariant_2_nothing_is_made_outside() {
    let place = Place::new();
    place.rollout(1);
    place.write("shared/auth.json", "login");
    place.write("beside/file", "x");
    let before = place.snapshot(place.dir.path());
    run(&Options { resume: Some(id(1)), ..place.issue("one", "i1") });
    for path in place.snapshot(place.dir.path()).into_keys() {
        let allowed = ["tasks", "shared/threadkeep", "shared/thread-writer-locks"].iter().any(|a| path.starts_with(a));
        assert!(allowed || before.contains_key(&path), "{}", path.display());
    }
}

#[test]
fn invariant_7_a_second_preparation_changes_nothing_but_the_stamp() {
    let place = Place::new();
    place.rollout(1);
    for (file, bytes) in [
        ("auth.json", "login"),
        ("config.toml", "model = 1"),
        ("AGENTS.md", "a"),
        ("skills/s/SKILL.md", "s"),
        ("prompts/p", "p"),
        ("plugins/cache/c", "c"),
    ] {
        place.write(format!("shared/{file}"), bytes);
    }
    let keyless = place.options("two");
    let options = Options { resume: Some(id(1)), ..place.issue("one", "i1") };
    let first = run(&options);
    run(&keyless);
    drop(first);
    let before = place.snapshot(place.dir.path());
    let second = run_at(&options, threadkeep_record::UtcMillis(NOW.0 + DAY));
    run(&keyless);
    let mut after = place.snapshot(place.dir.path());
    let stamp = Path::new("shared/threadkeep/stores").join(key("", "a1", "i1").path()).join("last-used");
    assert_ne!(after[&stamp], before[&stamp]);
    after.insert(stamp.clone(), before[&stamp].clone());
    assert_eq!(after, before);
    let report = &second.report;
    assert_eq!(report.outcome, Outcome::Resumed(Presence::Present));
    for told in [&report.linked, &report.copied, &report.repaired, &report.migrated] {
        assert!(told.is_empty(), "{report:?}");
    }
}

#[test]
fn invariant_4_and_6_what_is_told_resumable_is_and_was_not_read() {
    let place = Place::new();
    for n in 1..=6 {
        let bytes = match n {
            1 => log(1),
            2 => String::new(),
            3 => log(9),
            4 => "garbage".into(),
            _ => log(n),
        };
        place.write(format!("shared/sessions/{}", name(n)), bytes);
        let options = Options { resume: Some(id(n)), ..place.issue(&format!("t{n}"), &format!("i{n}")) };
        if let Outcome::Resumed(Presence::Present) = run(&options).report.outcome {
            let path = place.task(&format!("t{n}")).join("sessions").join(name(n));
            assert!(fs::metadata(&path).unwrap().is_file());
            assert!(fs::read_to_string(&path).unwrap().lines().next().unwrap().contains(id(n).as_str()));
        }
    }
}

#[test]
fn the_shared_home_is_no_task_home() {
    let place = Place::new();
    place.rollout(1);
    let alias = place.dir.path().join("alias");
    symlink(place.shared(), &alias).unwrap();
    let winding = place.dir.path().join("new/../shared/x");
    let inside = ["sessions", "threadkeep/x", "sub", "sub/of/sub"].map(|n| place.shared().join(n));
    // The last: whoever deletes that task home deletes the shared home with it.
    let outside = [place.shared(), alias.clone(), alias.join("sub/x"), winding, place.dir.path().to_owned()];
    for bad in inside.into_iter().chain(outside) {
        let before = place.snapshot(&place.shared());
        let error = prepare(&Options::new(&bad, place.shared()), &World::at(NOW)).unwrap_err();
        assert!(matches!(error, threadkeep_agent_home::HomeError::Usage { .. }), "{}: {error}", bad.display());
        assert!(error.to_string().starts_with("the task home "), "{error}");
        assert_eq!(place.snapshot(&place.shared()), before);
        assert!(!place.dir.path().join("new").exists());
    } // Looked at alone, for a mistake here would prepare it.
    let shared = SharedHome::open(&place.shared(), std::sync::Arc::new(Unwatched)).unwrap();
    let error = checked(Path::new("/"), &shared.dir).unwrap_err().to_string();
    assert_eq!(error, "the task home is the root of the file system: /");
}

#[test]
fn a_planted_link_in_the_stores_leads_nowhere() {
    let place = Place::new();
    place.rollout(1);
    let victim = place.dir.path().join("victim");
    fs::create_dir_all(&victim).unwrap();
    let [namespace, agent, conversation] = key("", "a1", "i1").segments();
    let stores = place.shared().join("threadkeep/stores");
    for planted in [
        place.shared().join("threadkeep"),
        stores.clone(),
        stores.join(&namespace),
        stores.join(&namespace).join(&agent),
        stores.join(&namespace).join(&agent).join(&conversation),
        stores.join(&namespace).join(&agent).join(&conversation).join("archived_sessions"),
    ] {
        let _ = fs::remove_dir_all(place.shared().join("threadkeep"));
        let _ = fs::remove_file(place.shared().join("threadkeep"));
        fs::create_dir_all(planted.parent().unwrap()).unwrap();
        symlink(&victim, &planted).unwrap();
        let options = Options { resume: Some(id(1)), ..place.issue("one", "i1") };
        prepare(&options, &World::at(NOW)).unwrap_err();
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{}", planted.display());
    }
}

#[test]
fn a_folder_that_is_swapped_while_it_is_worked_on_lets_nothing_out() {
    let place = Place::new();
    for n in 0..20 {
        place.rollout(n);
    }
    let victim = place.dir.path().join("victim");
    fs::create_dir_all(&victim).unwrap();
    drop(run(&place.issue("one", "i1")));
    let folder = place.store(&key("", "a1", "i1")).join("sessions/2026");
    fs::create_dir_all(&folder).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let away = folder.with_file_name("away");
            while !done.load(Ordering::Relaxed) {
                // A process that was left over swaps a folder for a link and back.
                if fs::rename(&folder, &away).is_ok() {
                    let _ = symlink(&victim, &folder);
                    std::thread::yield_now();
                    let _ = fs::remove_file(&folder);
                    let _ = fs::rename(&away, &folder);
                }
            }
        });
        for round in 0..60 {
            let options = Options { resume: Some(id(round % 20)), ..place.issue("one", "i1") };
            // Either end is right; what is not is a file in the victim.
            let _ = prepare(&options, &World::at(NOW));
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0);
}

#[test]
fn two_tasks_of_one_conversation_at_once() {
    let place = Place::new();
    place.rollout(1);
    std::thread::scope(|scope| {
        for n in 0..8 {
            let place = &place;
            scope.spawn(move || {
                for _ in 0..5 {
                    let options = Options { resume: Some(id(1)), ..place.issue(&format!("t{n}"), "i1") };
                    let done = run(&options);
                    assert_eq!(done.report.outcome, Outcome::Resumed(Presence::Present));
                    assert_eq!(visible(&place.task(&format!("t{n}"))), [name(1)]);
                }
            });
        }
    });
}

#[test]
fn a_home_that_an_agent_runs_in_is_not_prepared_under_it() {
    let place = Place::new();
    let options = Options { patience: std::time::Duration::ZERO, ..place.issue("one", "i1") };
    drop(run(&options));
    let running =
        threadkeep_agent_home::run::Running::enter(&place.task("one"), &place.shared(), NOW, options.patience).unwrap();
    let error = prepare(&options, &World::at(NOW)).unwrap_err().to_string();
    assert!(error.contains("in use") && error.contains(&std::process::id().to_string()), "{error}");
    drop(running);
    run(&options);
}

#[test]
fn everything_that_is_made_is_the_users_own() {
    let place = Place::new();
    place.rollout(1);
    for file in ["auth.json", "config.json", "instructions.md"] {
        let path = place.write(format!("shared/{file}"), "x");
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    place.write("shared/config.toml", "model = \"m\"\n");
    run(&Options { resume: Some(id(1)), ..place.issue("one", "i1") });
    for (root, skip) in [(place.task("one"), "-"), (place.shared().join("threadkeep"), "rollout-")] {
        for (path, what) in place.snapshot(&root) {
            if what.starts_with("link") || path.to_string_lossy().contains(skip) {
                continue;
            }
            assert_eq!(mode(&root.join(&path)) & 0o077, 0, "{} {what}", path.display());
        }
    }
}
