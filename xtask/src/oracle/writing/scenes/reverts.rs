//! Threads that are reverted here, which Codex reads and continues; and threads that Codex reverted, which go on here.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use serde_json::json;
use threadkeep_record::{HistoryMode, ThreadId};
use threadkeep_store::ForkRange;

use crate::oracle::writing::Extent;
use crate::oracle::writing::ours::{Context, Ours};
use crate::oracle::writing::stage::{Checks, Home, Stage};
use crate::oracle::writing::talk::Talk;
use crate::oracle::writing::theirs::Theirs;

/// Threads of Codex 0.171: a legacy one, a paginated one, one of two segments (of a revert).
const OF_CODEX: [&str; 3] = [
    "01a22c6c-8e85-7d30-9683-62f7285fc43c",
    "01a22c6c-9098-7ae3-8f62-627928199782",
    "01a22c6c-9309-71c0-a353-e00ef6691e22",
];

pub fn run(stage: &Stage, _: Extent, checks: &mut Checks) -> Result<()> {
    let home = Home::of_fixture(stage, "reverts", "0.171.0")?;
    let ours = home.ours();
    let mut talks = Vec::new();
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        let (live, mut talk) = ours.create(mode)?;
        for n in 1..=4 {
            ours.turn(&live, &mut talk, Context::Written, &format!("{mode:?} to revert, question {n}"))?;
        }
        ours.wait(live.shutdown())?;
        talks.push(talk);
    }
    let mut theirs = home.theirs()?;
    for talk in &talks {
        theirs.check(checks, "before a revert", talk);
    }
    for id in OF_CODEX {
        let row = theirs.row(ThreadId::parse(id)?, false)?;
        let mut talk = theirs.adopt(&row)?;
        // Something of its own words, so that what the model is given can be compared.
        for n in 1..=2 {
            theirs.turn(checks, "before a revert", &mut talk, &format!("more to revert, {n}"))?;
        }
        talks.push(talk);
    }
    drop(theirs);
    // A fork by reference, reverted into what it refers to.
    if let Some(source) = talks.iter().find(|t| t.mode == HistoryMode::Paginated).cloned() {
        let id = ours.fork(source.id, ForkRange::Whole)?;
        let mut fork = Talk { own_from: source.turns.len(), ..source.fork(id, source.turns.len()) };
        ours.continued(&mut fork, "said in the fork")?;
        let mut theirs = home.theirs()?;
        theirs.resume(source.id)?;
        theirs.check(checks, "a fork before it is reverted", &fork);
        drop(theirs);
        talks.push(fork);
    }

    undone_here(&home, &ours, checks, &mut talks)?;
    for round in 1..=2 {
        let when = format!("reverted here, round {round}");
        let before = home.databases()?;
        for talk in &mut talks {
            let back = if round == 1 { 2 } else { 1 };
            reverted_here(&ours, checks, &when, talk, back)?;
        }
        let changed = BTreeSet::from(["state_5.sqlite threads.rollout_path".to_owned()]);
        checks.same(format!("{when}: changes of Codex's databases"), before.changes(&home.databases()?), changed);
        let mut theirs = home.theirs()?;
        for talk in &mut talks {
            theirs.check(checks, &when, talk);
            let turn = theirs.turn(checks, &when, talk, &format!("asked behind a revert, {round}"));
            checks.works(format!("{when}: turn of {} there", talk.id), turn);
            theirs.check(checks, &when, talk);
        }
        drop(theirs);
        for talk in &mut talks {
            ours.check(checks, &when, talk);
            checks.works(format!("{when}: {} goes on here", talk.id), ours.continued(talk, "and here"));
            ours.check(checks, &when, talk);
        }
    }

    let mut theirs = home.theirs()?;
    for talk in talks.iter_mut().filter(|t| t.mode == HistoryMode::Paginated) {
        checks.works(format!("revert of {} there", talk.id), reverted_there(&mut theirs, talk));
        theirs.turn(checks, "reverted there", talk, "asked behind its revert")?;
    }
    drop(theirs);
    for talk in talks.iter_mut().filter(|t| t.mode == HistoryMode::Paginated) {
        ours.check(checks, "reverted there", talk);
        reverted_here(&ours, checks, "reverted there, and again here", talk, 1)?;
        ours.continued(talk, "said at last")?;
    }
    let mut theirs = home.theirs()?;
    for talk in &talks {
        theirs.check(checks, "in the end", talk);
    }
    drop(theirs);
    // All turns of a thread.
    for talk in &mut talks {
        let all = ours.turn_ids(talk.id)?.len();
        reverted_here(&ours, checks, "all taken back", talk, all)?;
    }
    let mut theirs = home.theirs()?;
    for talk in &mut talks {
        checks.same(format!("turns of {} when all were taken back", talk.id), theirs.resume(talk.id)?, vec![]);
        theirs.turn(checks, "all taken back", talk, "begun again")?;
        theirs.check(checks, "begun again", talk);
    }
    drop(theirs);
    talks.iter().for_each(|talk| ours.check(checks, "begun again", talk));
    never_opened_there(&home, &ours, checks)
}

/// Reverts that are taken back leave nothing that Codex could notice.
fn undone_here(home: &Home<'_>, ours: &Ours<'_>, checks: &mut Checks, talks: &mut [Talk]) -> Result<()> {
    const WHEN: &str = "reverted here and undone";
    let before = home.databases()?;
    for talk in &mut *talks {
        let whole = talk.clone();
        reverted_here(ours, checks, WHEN, talk, 2)?;
        checks.works(format!("{WHEN}: {}", talk.id), ours.unrevert(talk.id).map_err(Into::into));
        *talk = whole;
        ours.check(checks, WHEN, talk);
    }
    checks.same(format!("{WHEN}: changes of Codex's databases"), before.changes(&home.databases()?), BTreeSet::new());
    let mut theirs = home.theirs()?;
    for talk in &mut *talks {
        theirs.check(checks, WHEN, talk);
        let turn = theirs.turn(checks, WHEN, talk, "asked behind an undone revert");
        checks.works(format!("{WHEN}: turn of {} there", talk.id), turn);
        theirs.check(checks, WHEN, talk);
    }
    drop(theirs);
    talks.iter().for_each(|talk| ours.check(checks, WHEN, talk));
    Ok(())
}

/// Threads that Codex never saw before they were reverted: it has no row of them. It goes on with the whole context, and
/// of a paginated one shows what stands in its last rollout, as of a fork whose source it never opened.
fn never_opened_there(home: &Home<'_>, ours: &Ours<'_>, checks: &mut Checks) -> Result<()> {
    let mut talks = Vec::new();
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        let (live, mut talk) = ours.create(mode)?;
        for n in 1..=3 {
            ours.turn(&live, &mut talk, Context::Written, &format!("{mode:?} never opened, question {n}"))?;
        }
        ours.wait(live.shutdown())?;
        reverted_here(ours, checks, "never opened there", &mut talk, 1)?;
        ours.continued(&mut talk, "and on")?;
        talks.push(talk);
    }
    let mut theirs = home.theirs()?;
    for talk in &mut talks {
        let id = talk.id.to_string();
        let rows = theirs.list(false)?.iter().filter(|row| row["id"] == id.as_str()).count();
        if talk.mode == HistoryMode::Paginated && rows == 2 {
            checks.note("0.171 lists a reverted thread twice that it has not opened yet");
        } else {
            checks.same(format!("rows of {id}"), rows, 1);
        }
        let shown = if talk.mode == HistoryMode::Paginated { 2 } else { 0 };
        if shown > 0 {
            checks.note("0.171 shows the turns before a revert only of threads that it opened before the revert");
        }
        checks.same(
            format!("turns of {id}, never opened there"),
            theirs.resume(talk.id)?,
            talk.turns[shown..].to_vec(),
        );
        theirs.turn(checks, "never opened there", talk, "opened at last")?;
        checks.same(format!("turns of {id}, opened"), theirs.turns(talk.id)?, talk.turns[shown..].to_vec());
    }
    drop(theirs);
    talks.iter().for_each(|talk| ours.check(checks, "opened at last", talk));
    Ok(())
}

/// Takes so many turns back here.
fn reverted_here(ours: &Ours<'_>, checks: &mut Checks, when: &str, talk: &mut Talk, back: usize) -> Result<()> {
    let ids = ours.turn_ids(talk.id)?;
    let left = ids.len().checked_sub(back).context("more turns than there are")?;
    checks.works(format!("{when}: revert of {}", talk.id), ours.revert(talk.id, &ids[left]).map_err(Into::into));
    talk.take_back(back);
    ours.check(checks, when, talk);
    Ok(())
}

/// Takes the last two turns back there.
fn reverted_there(theirs: &mut Theirs<'_>, talk: &mut Talk) -> Result<()> {
    theirs.resume(talk.id)?;
    let params = json!({"threadId": talk.id, "itemsView": "summary", "sortDirection": "asc", "limit": 100});
    let rows = theirs.server.all_pages("thread/turns/list", params)?;
    let turn = rows.iter().rev().nth(1).context("two turns")?["id"].clone();
    theirs.server.request("thread/revert", json!({"threadId": talk.id, "beforeTurnId": turn}))?;
    talk.take_back(2);
    Ok(())
}
