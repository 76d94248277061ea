//! Compressed rollouts, which are written out when a thread goes on: here, and then there.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result};
use threadkeep_record::{HistoryMode, ThreadId};

use crate::oracle::writing::Extent;
use crate::oracle::writing::ours::Context;
use crate::oracle::writing::stage::{Checks, Home, Stage};

/// A compressed rollout of each of two releases: a legacy one and a paginated one.
const OF_CODEX: [(&str, &str, HistoryMode); 2] = [
    ("0.142.0", "01a22c22-92ea-7043-962c-ed9223e79fe1", HistoryMode::Legacy),
    ("0.171.0", "01a22c6c-80c8-77b0-9c52-706fc5a92037", HistoryMode::Paginated),
];

pub fn run(stage: &Stage, _: Extent, checks: &mut Checks) -> Result<()> {
    for (fixture, id, mode) in OF_CODEX {
        let home = Home::of_fixture(stage, &format!("compressed-{fixture}"), fixture)?;
        let id = ThreadId::parse(id)?;
        checks.same("forms before", forms(&home, id)?, vec!["jsonl.zst"]);
        // What was said is learnt from a copy: a resume there would write the rollout out.
        let copy = Home::of_fixture(stage, &format!("compressed-{fixture}-copy"), fixture)?;
        let mut theirs = copy.theirs()?;
        let row = theirs.row(id, false)?;
        let mut talk = theirs.adopt(&row)?;
        drop(theirs);
        checks.same("history mode", talk.mode, mode);
        checks.holds("it has turns", !talk.turns.is_empty(), &talk);

        let ours = home.ours();
        ours.check(checks, "compressed", &talk);
        let before = home.databases()?;
        checks.works("continued here", ours.continued(&mut talk, "out of a compressed rollout"));
        checks.same("forms after", forms(&home, id)?, vec!["jsonl"]);
        checks.same("changes of Codex's databases", before.changes(&home.databases()?), BTreeSet::new());
        let mut theirs = home.theirs()?;
        theirs.check(checks, "written out here", &talk);
        theirs.turn(checks, "written out here", &mut talk, "and on there")?;
        theirs.check(checks, "written out here, then there", &talk);
        drop(theirs);
        ours.check(checks, "at the end", &talk);
    }
    ours_compressed(stage, checks)
}

/// A thread of ours that was compressed as Codex does it goes on there, and then here.
fn ours_compressed(stage: &Stage, checks: &mut Checks) -> Result<()> {
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        let home = Home::fresh(stage, &format!("compressed-{mode:?}"))?;
        let ours = home.ours();
        let (live, mut talk) = ours.create(mode)?;
        ours.turn(&live, &mut talk, Context::Written, "compressed later")?;
        ours.wait(live.shutdown())?;
        let plain = ours.read(talk.id)?.rollout_path.context("a thread without a rollout")?;
        let packed = zstd::bulk::compress(&fs::read(&plain)?, 3)?;
        fs::write(plain.with_extension("jsonl.zst"), packed)?;
        fs::remove_file(&plain)?;
        ours.check(checks, "compressed", &talk);
        let mut theirs = home.theirs()?;
        theirs.check(checks, "compressed", &talk);
        theirs.turn(checks, "compressed", &mut talk, "written out there")?;
        drop(theirs);
        checks.same("forms after Codex's turn", forms(&home, talk.id)?, vec!["jsonl"]);
        checks.works("continued here", ours.continued(&mut talk, "and here"));
        let mut theirs = home.theirs()?;
        theirs.check(checks, "compressed, there, here", &talk);
    }
    Ok(())
}

/// The forms in which the thread's rollout is there.
fn forms(home: &Home<'_>, id: ThreadId) -> Result<Vec<&'static str>> {
    let id = id.to_string();
    let names: Vec<String> = home.rollouts()?.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    let of_thread = names.iter().filter(|name| name.contains(&id));
    Ok(of_thread.map(|name| if name.ends_with(".zst") { "jsonl.zst" } else { "jsonl" }).collect())
}
