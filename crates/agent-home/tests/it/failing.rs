//! File systems that refuse: no hard links, no symbolic links, no room.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use threadkeep_agent_home::expose::{Exposure, How, Sharing};
use threadkeep_agent_home::find::Presence;
use threadkeep_agent_home::outcome::{Outcome, Report};
use threadkeep_agent_home::watch::{Change, Watch};
use threadkeep_agent_home::{HomeError, Options, World, prepare};

use crate::place::{NOW, Place, id, inode, log, mode, name};

type Rule = fn(&Change) -> Option<i32>;

/// Refuses some changes with an error of the system.
struct Refuses(Rule);

impl std::fmt::Debug for Refuses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Refuses")
    }
}

impl Watch for Refuses {
    fn before(&self, change: &Change) -> io::Result<()> {
        (self.0)(change).map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
    }
}

fn run(options: &Options, rule: Rule) -> Result<Report, HomeError> {
    prepare(options, &World { watch: Arc::new(Refuses(rule)), ..World::at(NOW) }).map(|p| p.report)
}

fn is_auth(path: &std::path::Path) -> bool {
    path.to_string_lossy().ends_with("auth.json")
}

fn no_auth_link(change: &Change) -> Option<i32> {
    matches!(change, Change::Symlink { path, .. } if is_auth(path)).then_some(1)
}

#[test]
fn b98_where_the_login_cannot_be_linked_it_is_copied_and_refreshed_or_the_preparation_fails() {
    let place = Place::new();
    let shared = place.write("shared/auth.json", "one");
    let options = place.options("one");
    let auth = place.task("one").join("auth.json");
    for text in ["one", "two", "three"] {
        fs::write(&shared, text).unwrap();
        let report = run(&options, no_auth_link).unwrap();
        assert_eq!(fs::read_to_string(&auth).unwrap(), text, "refreshed every time");
        assert!(report.copied.iter().any(|c| c.starts_with("auth.json")), "{report:?}");
        assert_eq!(mode(&auth), 0o600);
        let before = inode(&auth);
        run(&options, no_auth_link).unwrap();
        assert_eq!(inode(&auth), before, "written only where it changed");
        let told = format!("{:?}", report.repaired);
        assert!(!told.contains("aside"), "our own copy is not kept: {told}");
    }
    // Logged out: a copy is no login that outlives it.
    fs::remove_file(&shared).unwrap();
    run(&options, no_auth_link).unwrap();
    assert!(!auth.exists());
    // Neither a link nor a copy.
    fs::write(&shared, "four").unwrap();
    let nothing: Rule = |change| match change {
        Change::Symlink { path, .. } | Change::Write { path, .. } if is_auth(path) => Some(28),
        _ => None,
    };
    let error = run(&options, nothing).unwrap_err().to_string();
    assert!(error.contains("login") && error.contains("auth.json") && !error.contains("four"), "{error}");
}

#[test]
fn every_way_a_hard_link_fails_has_an_answer() {
    let rules: [(Rule, &str); 4] = [
        (|c| matches!(c, Change::HardLink { .. }).then_some(18), "EXDEV"),
        (|c| matches!(c, Change::HardLink { .. }).then_some(1), "EPERM"),
        (|c| matches!(c, Change::HardLink { .. }).then_some(31), "EMLINK"),
        (|c| matches!(c, Change::HardLink { .. }).then_some(13), "EACCES"),
    ];
    for (rule, what) in rules {
        let place = Place::new();
        let shared = place.rollout(1);
        let report = run(&Options { resume: Some(id(1)), ..place.issue("one", "i1") }, rule).unwrap();
        assert_eq!(report.outcome, Outcome::Resumed(Presence::Present), "{what}");
        assert_eq!(report.exposed[0].how, How::Symlink, "{what}");
        assert_eq!(inode(&place.task("one").join(&report.exposed[0].path)), inode(&shared), "{what}");
    }
    // Anything else is an error, not a guess.
    let place = Place::new();
    place.rollout(1);
    let full: Rule = |c| matches!(c, Change::HardLink { .. }).then_some(28);
    assert!(run(&Options { resume: Some(id(1)), ..place.issue("one", "i1") }, full).is_err());
}

#[test]
fn neither_link_means_a_copy_that_was_allowed_or_a_refusal() {
    let neither: Rule = |c| match c {
        Change::HardLink { .. } => Some(1),
        Change::Symlink { path, .. } if path.to_string_lossy().contains("rollout-") => Some(1),
        _ => None,
    };
    for (allow_copy, how) in [(0, None), (10, None), (1 << 20, Some(How::Copy))] {
        let place = Place::new();
        let shared = place.rollout(1);
        let exposure = Exposure { sharing: Sharing::Shared, allow_copy };
        let options = Options { exposure, resume: Some(id(1)), ..place.issue("one", "i1") };
        let report = run(&options, neither).unwrap();
        assert_eq!(report.exposed.first().map(|e| e.how), how);
        match how {
            Some(_) => {
                let copy = place.task("one").join(&report.exposed[0].path);
                assert_eq!(fs::read_to_string(&copy).unwrap(), log(1));
                assert_ne!(inode(&copy), inode(&shared));
                assert!(!report.exposed[0].shares_appends);
            }
            None => {
                let Outcome::Unavailable(why) = &report.outcome else { panic!("{report:?}") };
                assert_eq!(why.word(), "cannot_expose");
            }
        }
    }
}

#[test]
fn an_exposure_that_is_there_by_another_file_is_not_replaced() {
    let place = Place::new();
    place.rollout(1);
    drop(crate::place::run(&place.issue("one", "i1")));
    let own = place.write(format!("tasks/one/sessions/2026/11/29/{}", name(1)), "");
    let report = run(&Options { resume: Some(id(1)), ..place.issue("one", "i1") }, |_| None).unwrap();
    let Outcome::Unavailable(why) = &report.outcome else { panic!("{report:?}") };
    assert!(why.message().contains("another file of this name"), "{}", why.message());
    assert_eq!(fs::read_to_string(own).unwrap(), "");
}

#[test]
fn sessions_on_another_file_system_are_not_copied_into_the_store() {
    let moves: Rule = |c| match c {
        Change::Rename { from, .. } if from.to_string_lossy().contains("rollout-") => Some(18),
        _ => None,
    };
    let place = Place::new();
    let own: PathBuf = place.write(format!("tasks/one/sessions/{}", name(1)), log(1));
    let options = Options {
        work: threadkeep_agent_home::options::Work::LocalDirectory,
        resume: Some(id(1)),
        ..place.issue("one", "i1")
    };
    let error = run(&options, moves).unwrap_err();
    assert!(matches!(error, HomeError::Refused { .. }), "{error}");
    assert_eq!(fs::read_to_string(own).unwrap(), log(1));
}
