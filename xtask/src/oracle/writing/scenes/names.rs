//! Names that are set here show there, and the other way round; and nothing else of Codex's databases changes.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::json;
use threadkeep_record::HistoryMode;

use crate::oracle::writing::Extent;
use crate::oracle::writing::ours::{Context, Ours};
use crate::oracle::writing::stage::{Checks, Home, Stage};
use crate::oracle::writing::talk::Talk;
use crate::oracle::writing::theirs::Theirs;

pub fn run(stage: &Stage, _: Extent, checks: &mut Checks) -> Result<()> {
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        let home = Home::fresh(stage, &format!("names-{mode:?}"))?;
        let ours = home.ours();
        // Named before Codex ever saw the home; a paginated thread's name is known to it only once it has a row.
        let (live, mut early) = ours.create(mode)?;
        ours.turn(&live, &mut early, Context::Left, "named before Codex knows it")?;
        ours.wait(live.shutdown())?;
        ours.rename(early.id, Some("Early name"))?;
        let mut theirs = home.theirs()?;
        let of_codex = theirs.create(checks, mode, &home.cwd, "made there")?;
        let row = theirs.row(early.id, false)?;
        if mode == HistoryMode::Legacy {
            checks.same("name set before Codex had a row", row["name"].as_str(), Some("Early name"));
        } else {
            checks.same("name set before Codex had a row, paginated", row["name"].as_str(), None);
            checks.note("0.171 does not show the name of a paginated thread that was set before it had a row");
        }
        // While Codex runs.
        renamed(&ours, &mut theirs, &early, "Named while Codex runs", checks)?;
        renamed(&ours, &mut theirs, &of_codex, "Theirs, named here", checks)?;
        for talk in [&early, &of_codex] {
            theirs.server.request("thread/name/set", json!({"threadId": talk.id, "name": "Named there"}))?;
            checks.same("named there, here", ours.read(talk.id)?.name.as_deref(), Some("Named there"));
            renamed(&ours, &mut theirs, talk, "Named here again", checks)?;
        }
        drop(theirs);
        // While it does not.
        let column = if mode == HistoryMode::Legacy { "title" } else { "name" };
        for (talk, name) in [(&early, "Ünïcode 名前 'quoted' \"twice\""), (&of_codex, "x")] {
            let before = home.databases()?;
            let rollouts = home.rollouts()?;
            ours.rename(talk.id, Some(name))?;
            let changes = before.changes(&home.databases()?);
            let expected = BTreeSet::from([format!("state_5.sqlite threads.{column}")]);
            checks.same(format!("{mode:?}: changes of Codex's databases by a rename"), changes, expected);
            checks.same("rollouts after a rename", home.rollouts()?, rollouts);
            let mut theirs = home.theirs()?;
            shows(&ours, &mut theirs, talk, Some(name), checks)?;
            theirs.check(checks, "renamed", talk);
        }
        // Taken away again.
        ours.rename(early.id, Some("For a moment"))?;
        let before = home.databases()?;
        ours.rename(early.id, None)?;
        let changes = before.changes(&home.databases()?);
        let expected = BTreeSet::from([format!("state_5.sqlite threads.{column}")]);
        checks.same(format!("{mode:?}: changes of Codex's databases by clearing a name"), changes, expected);
        let mut theirs = home.theirs()?;
        checks.same("a name that was cleared, here", ours.read(early.id)?.name, None);
        let there = theirs.row(early.id, false)?["name"].as_str().map(str::to_owned);
        if mode == HistoryMode::Legacy {
            // It has no way to clear a name, and passes over an empty one in the name index.
            checks.same("a name that was cleared, there", there.as_deref(), Some("For a moment"));
            checks.note("0.171 goes on showing the name of a legacy thread that was cleared here");
        } else {
            checks.same("a name that was cleared, there", there, None);
        }
        theirs.check(checks, "name cleared", &early);
        theirs.turn(checks, "name cleared", &mut early, "it goes on")?;
    }
    Ok(())
}

fn renamed(ours: &Ours<'_>, theirs: &mut Theirs<'_>, talk: &Talk, name: &str, checks: &mut Checks) -> Result<()> {
    ours.rename(talk.id, Some(name))?;
    shows(ours, theirs, talk, Some(name), checks)
}

fn shows(ours: &Ours<'_>, theirs: &mut Theirs<'_>, talk: &Talk, name: Option<&str>, checks: &mut Checks) -> Result<()> {
    let what = format!("name of {} ({:?})", talk.id, talk.mode);
    checks.same(format!("{what} here"), ours.read(talk.id)?.name.as_deref(), name);
    checks.same(format!("{what} in thread/list"), theirs.row(talk.id, false)?["name"].as_str(), name);
    let read = theirs.server.request("thread/read", json!({"threadId": talk.id}))?;
    checks.same(format!("{what} in thread/read"), read["thread"]["name"].as_str(), name);
    Ok(())
}
