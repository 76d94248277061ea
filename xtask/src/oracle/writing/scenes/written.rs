//! Threads that are written here, and then listed, read, resumed, forked, renamed and archived by Codex.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::json;
use threadkeep_record::HistoryMode;

use crate::oracle::writing::Extent;
use crate::oracle::writing::ours::Context;
use crate::oracle::writing::stage::{Checks, Home, Stage};

pub fn run(stage: &Stage, _: Extent, checks: &mut Checks) -> Result<()> {
    let home = Home::fresh(stage, "written")?;
    let ours = home.ours();
    let mut talks = Vec::new();
    for (mode, context) in [
        (HistoryMode::Legacy, Context::Written),
        (HistoryMode::Legacy, Context::Left),
        (HistoryMode::Paginated, Context::Written),
        (HistoryMode::Paginated, Context::Left),
    ] {
        let (live, mut talk) = ours.create(mode)?;
        let place = format!("{mode:?}, context {context:?}");
        for n in 1..=3 {
            let text = format!("{place}, question {n}: größer als 日本 \"quoted\" \\ and\na second line");
            ours.turn(&live, &mut talk, context, &text)?;
        }
        ours.wait(live.shutdown())?;
        ours.check(checks, "written", &talk);
        talks.push(talk);
    }
    let mut theirs = home.theirs()?;
    checks.same("threads that Codex lists", theirs.list(false)?.len(), talks.len());
    for talk in &mut talks {
        theirs.check(checks, "written here", talk);
        theirs.turn(checks, "written here", talk, "and now Codex asks")?;
        theirs.check(checks, "after a turn", talk);
    }
    drop(theirs);

    // Forked, renamed and archived there, each must show here.
    let mut theirs = home.theirs()?;
    let mut forks = Vec::new();
    for (n, talk) in talks.iter().enumerate() {
        let what = format!("{} of {:?}", talk.id, talk.mode);
        ours.check(checks, "after Codex's turn", talk);
        let second = ours.turn_ids(talk.id)?[1].clone();
        for through in [None, Some((second.as_str(), 2))] {
            if let Some(mut fork) = checks.works(format!("fork there of {what}"), theirs.fork(talk, through)) {
                theirs.turn(checks, "a fork there", &mut fork, &format!("asked in a fork, {n}"))?;
                theirs.check(checks, "a fork there", &fork);
                ours.check(checks, "a fork there", &fork);
                forks.push(fork);
            }
        }
        let name = format!("Renamed there {n}");
        checks.works(
            format!("rename there of {what}"),
            theirs.server.request("thread/name/set", json!({"threadId": talk.id, "name": name})),
        );
        checks.same(format!("name here of {what}"), ours.read(talk.id)?.name, Some(name));
    }
    for talk in &talks {
        let what = format!("{} of {:?}", talk.id, talk.mode);
        for (method, archived) in [("thread/archive", true), ("thread/unarchive", false)] {
            // A thread that a fork refers to can be archived all the same.
            checks.works(format!("{method} of {what}"), theirs.server.request(method, json!({"threadId": talk.id})));
            checks.same(format!("{method} of {what}, archived here"), ours.read(talk.id)?.archived, archived);
            let (active, stored) = (ours.listed(false)?.contains(&talk.id), ours.listed(true)?.contains(&talk.id));
            checks.same(format!("{method} of {what}, listed here"), (active, stored), (!archived, archived));
            checks.works(format!("{method} of {what}, list there"), theirs.row(talk.id, archived));
        }
    }
    drop(theirs);

    // And on again, here and there.
    let before = home.databases()?;
    checks.holds("Codex made its databases", before.count() >= 2, before.count());
    for talk in talks.iter_mut().chain(&mut forks) {
        ours.check(checks, "at the end", talk);
        checks.works(format!("continued here: {}", talk.id), ours.continued(talk, "and we go on"));
        ours.check(checks, "continued here", talk);
    }
    checks.same("changes of Codex's databases by going on", before.changes(&home.databases()?), BTreeSet::new());
    let mut theirs = home.theirs()?;
    for talk in talks.iter_mut().chain(&mut forks) {
        theirs.check(checks, "continued here", talk);
        theirs.turn(checks, "continued here", talk, "the last question")?;
    }
    drop(theirs);
    home.databases()?;
    Ok(())
}
