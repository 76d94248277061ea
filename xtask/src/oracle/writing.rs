//! Both directions with the real Codex: threads written here go on there, and threads written there go on here.

mod databases;
mod ours;
mod scenes;
mod stage;
mod talk;
mod theirs;

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, bail};

use self::stage::{Checks, Stage};
use crate::codex::Codex;

/// How much is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// A part of the fixture homes, few rounds.
    Short,
    /// All of it.
    Full,
}

type Scene = (&'static str, fn(&Stage, Extent, &mut Checks) -> Result<()>);

/// Scenes with the release whose formats and locks the store writes for.
const SCENES: [Scene; 11] = [
    ("threads written here", scenes::written::run),
    ("names", scenes::names::run),
    ("writer locks", scenes::locks::run),
    ("compressed rollouts", scenes::compressed::run),
    ("forks made here", scenes::forks::run),
    ("detached threads", scenes::detached::run),
    ("reverts", scenes::reverts::run),
    ("changed places", scenes::changes::run),
    ("changes of held threads", scenes::held::run),
    ("capability roots", scenes::roots::run),
    ("alternate writers", scenes::alternate::run),
];

/// With an older release.
const OLDER: [Scene; 2] = [("an older release", scenes::releases::run), ("changed places", scenes::changes::run_older)];

/// Plays all scenes, or those with a text in their name, and prints a row for each; an error if anything differs.
///
/// `bin` is the command to test; without it the workspace's is built when a scene asks for it.
pub fn run(codex: &Codex, work: &Path, extent: Extent, only: &str, bin: Option<&Path>) -> Result<()> {
    play(&SCENES, Stage::new(codex.clone(), work.to_owned(), bin)?, extent, only)
}

/// Plays what an older release must be able to do with what is written here.
pub fn run_older(codex: &Codex, work: &Path, bin: Option<&Path>) -> Result<()> {
    play(&OLDER, Stage::new(codex.clone(), work.to_owned(), bin)?, Extent::Full, "")
}

fn play(scenes: &[Scene], stage: Stage, extent: Extent, only: &str) -> Result<()> {
    println!("Written beside Codex {}", stage.codex.version);
    println!();
    println!("| scene | compared | different | s |");
    println!("| --- | ---: | ---: | ---: |");
    let (mut failures, mut notes) = (Vec::new(), Vec::new());
    for (name, scene) in scenes.iter().filter(|(name, _)| name.contains(only)) {
        let (mut checks, begun) = (Checks::default(), Instant::now());
        if let Err(e) = scene(&stage, extent, &mut checks) {
            // What came after it was not compared.
            checks.failures.push(format!("broke off: {e:#}"));
        }
        let (done, different) = (checks.done, checks.failures.len());
        println!("| {name} | {done} | {different} | {:.1} |", begun.elapsed().as_secs_f64());
        if done == 0 && different == 0 {
            bail!("scene {name:?} compared nothing");
        }
        failures.extend(checks.failures.into_iter().map(|f| format!("{name}: {f}")));
        notes.extend(checks.notes.into_iter().map(|n| format!("{name}: {n}")));
    }
    println!();
    for note in &notes {
        println!("known: {note}");
    }
    for failure in &failures {
        println!("DIFFERENT: {failure}");
    }
    if failures.is_empty() { Ok(()) } else { bail!("{} differences in what was written", failures.len()) }
}
