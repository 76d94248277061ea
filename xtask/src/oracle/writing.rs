//! Both directions with the real Codex: threads written here go on there, and threads written there go on here.

mod databases;
mod ours;
mod scenes;
mod stage;
mod talk;
mod theirs;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

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
const SCENES: [Scene; 1] = [("threads written here", scenes::written::run)];

/// Plays all scenes and prints a row for each; an error if anything differs.
pub fn run(codex: &Codex, work: &Path, extent: Extent) -> Result<()> {
    let stage = Stage::new(codex.clone(), work.to_owned())?;
    println!("Written beside Codex {}", codex.version);
    println!();
    println!("| scene | compared | different | s |");
    println!("| --- | ---: | ---: | ---: |");
    let (mut failures, mut notes) = (Vec::new(), Vec::new());
    for (name, scene) in SCENES {
        let (mut checks, begun) = (Checks::default(), Instant::now());
        scene(&stage, extent, &mut checks).with_context(|| format!("scene {name:?}"))?;
        let (done, different) = (checks.done, checks.failures.len());
        println!("| {name} | {done} | {different} | {:.1} |", begun.elapsed().as_secs_f64());
        if done == 0 {
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
