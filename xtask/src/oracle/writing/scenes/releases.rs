//! Older releases: what is written here in the legacy mode is listed, read and resumed there, and goes on here.

use anyhow::Result;
use serde_json::{Value, json};
use threadkeep_record::HistoryMode;

use crate::oracle::writing::Extent;
use crate::oracle::writing::ours::{Context, Ours};
use crate::oracle::writing::stage::{Checks, Home, Stage};
use crate::oracle::writing::talk::{self, Talk};
use crate::oracle::writing::theirs::Theirs;

pub fn run(stage: &Stage, _: Extent, checks: &mut Checks) -> Result<()> {
    let version = &stage.codex.version;
    let home = Home::fresh(stage, &format!("release-{version}"))?;
    let ours = home.ours();
    let mut talks = Vec::new();
    for context in [Context::Written, Context::Left] {
        let (live, mut talk) = ours.create(HistoryMode::Legacy)?;
        for n in 1..=2 {
            ours.turn(&live, &mut talk, context, &format!("context {context:?}, question {n} größer 日本"))?;
        }
        ours.wait(live.shutdown())?;
        talks.push(talk);
    }
    let mut theirs = home.theirs()?;
    for talk in &mut talks {
        goes_on(&mut theirs, &ours, talk, "written here", checks);
    }
    // A thread of its own goes on here.
    let answer = theirs.server.request("thread/start", json!({"cwd": home.cwd}))?;
    let id = threadkeep_record::ThreadId::parse(answer["thread"]["id"].as_str().unwrap_or_default())?;
    let mode =
        if answer["thread"]["historyMode"] == "paginated" { HistoryMode::Paginated } else { HistoryMode::Legacy };
    let mut own = Talk::new(id, mode);
    theirs.turn(checks, "a thread of its own", &mut own, "made there")?;
    drop(theirs);
    talks.push(own);
    for round in 1..=2 {
        for talk in &mut talks {
            checks.works(format!("round {round}: {} here", talk.id), ours.continued(talk, "here again"));
            ours.check(checks, "continued here", talk);
        }
        let mut theirs = home.theirs()?;
        for talk in &mut talks {
            goes_on(&mut theirs, &ours, talk, &format!("round {round}"), checks);
        }
    }
    let paginated = paginated_there(&home, &ours, checks);
    checks.works("a paginated thread there", paginated);
    Ok(())
}

/// Listed, read, resumed, asked; and a name that is set here shows there, or it is told that it does not.
fn goes_on(theirs: &mut Theirs<'_>, ours: &Ours<'_>, talk: &mut Talk, when: &str, checks: &mut Checks) {
    let what = format!("{when}: {} there", talk.id);
    if let Some(row) = checks.works(format!("{what}, list"), row(theirs, talk)) {
        checks.same(format!("{what}, preview"), row["preview"].as_str(), talk.preview());
    }
    match theirs.server.request("thread/read", json!({"threadId": talk.id, "includeTurns": true})) {
        Ok(answer) if talk.mode == HistoryMode::Legacy => {
            let turns = talk::of_codex(&answer["thread"]["turns"]);
            checks.same(format!("{what}, read"), &turns, &talk.turns);
        }
        Ok(_) => {}
        Err(e) => checks.note(format!("thread/read: {}", without_id(&e, talk))),
    }
    if let Some(turns) = checks.works(format!("{what}, resume"), theirs.resume(talk.id)) {
        checks.same(format!("{what}, resume"), &turns, &talk.turns);
    }
    let turn = theirs.turn(checks, &what, talk, &format!("{when}, asked there"));
    checks.works(format!("{what}, turn"), turn);
    ours.check(checks, "after its turn", talk);
    let name = format!("Named {when}");
    checks.works(format!("{what}, rename here"), ours.rename(talk.id, Some(&name)).map_err(Into::into));
    if let Some(row) = checks.works(format!("{what}, list"), row(theirs, talk)) {
        let shown = row["name"].as_str() == Some(&name);
        checks.holds(format!("{what}, name"), shown || row["name"].is_null(), &row["name"]);
        checks.note(if shown { "it shows names set here" } else { "its thread/list shows no names" });
    }
}

/// What the release does with a paginated thread of ours, which it need not know.
fn paginated_there(home: &Home<'_>, ours: &Ours<'_>, checks: &mut Checks) -> Result<()> {
    let (live, mut talk) = ours.create(HistoryMode::Paginated)?;
    ours.turn(&live, &mut talk, Context::Written, "paginated")?;
    ours.wait(live.shutdown())?;
    let mut theirs = home.theirs()?;
    let listed = if row(&mut theirs, &talk).is_ok() { "listed" } else { "not listed" };
    let resumed = match theirs.resume(talk.id) {
        Ok(turns) if turns == talk.turns => "resumed".to_owned(),
        Ok(turns) => format!("resumed with {} of {} turns", turns.len(), talk.turns.len()),
        Err(e) => format!("not resumed: {}", without_id(&e, &talk)),
    };
    checks.note(format!("a paginated thread is {listed}, {resumed}"));
    drop(theirs);
    // Whatever it does, nothing is lost here.
    ours.check(checks, "a paginated thread after it was opened there", &talk);
    Ok(())
}

/// The thread's row in the list of what a person started, asked for as every release understands it.
fn row(theirs: &mut Theirs<'_>, talk: &Talk) -> Result<Value> {
    let rows = theirs.server.all_pages("thread/list", json!({"modelProviders": [], "limit": 50}))?;
    let id = talk.id.to_string();
    let mut rows: Vec<Value> = rows.into_iter().filter(|row| row["id"] == id.as_str()).collect();
    anyhow::ensure!(rows.len() == 1, "it lists {id} {} times", rows.len());
    Ok(rows.remove(0))
}

fn without_id(e: &anyhow::Error, talk: &Talk) -> String {
    format!("{e:#}").replace(&talk.id.to_string(), "ID").chars().take(200).collect()
}
