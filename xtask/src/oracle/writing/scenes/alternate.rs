//! Threads that released Codexes wrote, continued here and there in turns; and new threads beside them.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde_json::Value;
use threadkeep_record::HistoryMode;

use crate::oracle::writing::Extent;
use crate::oracle::writing::ours::Context;
use crate::oracle::writing::stage::{Checks, Home, Stage};
use crate::oracle::writing::talk::Talk;
use crate::oracle::writing::theirs::Theirs;

/// A fixture home, and how many of its threads Codex 0.171 can go on with: the active ones that it lists.
const FIXTURES: [(&str, usize, Extent); 7] = [
    ("0.171.0", 25, Extent::Short),
    ("0.142.0", 23, Extent::Short),
    ("0.156.0", 25, Extent::Full),
    ("0.118.0", 25, Extent::Full),
    ("0.98.0", 31, Extent::Full),
    ("0.63.0", 23, Extent::Full),
    ("0.44.0", 18, Extent::Full),
];

/// A thread of 0.44 that filled its context: Codex compacts it before its next turn, and the model gets a summary.
const COMPACTED_NEXT: &str = "01a22c08-003b-70e2-af30-564507a5688a";

pub fn run(stage: &Stage, extent: Extent, checks: &mut Checks) -> Result<()> {
    for (fixture, threads, played) in FIXTURES {
        if played == Extent::Short || extent == Extent::Full {
            let home = Home::of_fixture(stage, &format!("alternate-{fixture}"), fixture)?;
            let rounds = if extent == Extent::Full { 4 } else { 2 };
            play(&home, fixture, threads, rounds, checks).with_context(|| format!("fixture home {fixture}"))?;
        }
    }
    Ok(())
}

fn play(home: &Home<'_>, fixture: &str, threads: usize, rounds: usize, checks: &mut Checks) -> Result<()> {
    let ours = home.ours();
    let mut theirs = home.theirs()?;
    let mut talks = adopt_all(&mut theirs, fixture, checks)?;
    checks.same(format!("{fixture}: threads that Codex goes on with"), talks.len(), threads);
    talks.retain(|talk| talk.id.to_string() != COMPACTED_NEXT);
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        talks.push(theirs.create(checks, mode, &home.cwd, &format!("made there, {mode:?}"))?);
    }
    drop(theirs);
    for talk in &mut talks {
        if checks.works(format!("{fixture}: adopt {} here", talk.id), ours.adopt(talk)) == Some(false) {
            checks.note(format!("{fixture}: old turns of {} are told in other words", talk.id));
        }
    }
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        let (live, mut talk) = ours.create(mode)?;
        ours.turn(&live, &mut talk, Context::Written, &format!("made here, {mode:?}"))?;
        ours.wait(live.shutdown())?;
        talks.push(talk);
    }
    for round in 1..=rounds {
        let when = format!("{fixture}, round {round}");
        let before = home.databases()?;
        for talk in &mut talks {
            ours.check(checks, &format!("{when}, before"), talk);
            let text = format!("round {round} here");
            checks.works(format!("{when}: {} continued here", talk.id), ours.continued(talk, &text));
            ours.check(checks, &format!("{when}, here"), talk);
        }
        let changes = before.changes(&home.databases()?);
        checks.same(format!("{when}: changes of Codex's databases"), changes, BTreeSet::new());
        let mut theirs = home.theirs()?;
        for talk in &mut talks {
            theirs.check(checks, &when, talk);
            let turn = theirs.turn(checks, &when, talk, &format!("round {round} there"));
            checks.works(format!("{when}: {} continued there", talk.id), turn);
            ours.check(checks, &format!("{when}, there"), talk);
        }
        drop(theirs);
        for talk in &talks {
            ours.check(checks, &format!("{when}, when Codex ended"), talk);
        }
    }
    home.databases()?;
    Ok(())
}

fn adopt_all(theirs: &mut Theirs<'_>, fixture: &str, checks: &mut Checks) -> Result<Vec<Talk>> {
    let rows: Vec<Value> = theirs.list(false)?;
    let adopt = |row: &Value| checks.works(format!("{fixture}: adopt {}", row["id"]), theirs.adopt(row));
    Ok(rows.iter().filter_map(adopt).collect())
}
