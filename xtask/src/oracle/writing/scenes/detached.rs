//! Threads that are detached here: Codex goes on with them as before, with their ancestors and all databases gone.

use anyhow::{Context as _, Result};
use serde_json::json;
use threadkeep_record::HistoryMode;

use crate::oracle::writing::Extent;
use crate::oracle::writing::databases::How;
use crate::oracle::writing::stage::{Checks, Home, Stage};
use crate::oracle::writing::talk::Talk;
use crate::oracle::writing::theirs::Theirs;

/// What Codex still knows of the threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Databases {
    Kept,
    Lost,
}

pub fn run(play: &Stage, _: Extent, checks: &mut Checks) -> Result<()> {
    for databases in [Databases::Kept, Databases::Lost] {
        let home = Home::fresh(play, &format!("detached-{databases:?}"))?;
        let mut theirs = home.theirs()?;
        let mut first = theirs.create(checks, HistoryMode::Paginated, &home.cwd, "first, one")?;
        theirs.turn(checks, "made", &mut first, "first, two")?;
        let mut second = theirs.fork(&first, None)?;
        theirs.turn(checks, "made", &mut second, "second, one")?;
        let mut third = theirs.fork(&second, None)?;
        theirs.turn(checks, "made", &mut third, "third, one")?;
        let mut reverted = theirs.fork(&second, None)?;
        for text in ["reverted, one", "reverted, taken back"] {
            theirs.turn(checks, "made", &mut reverted, text)?;
        }
        revert(&mut theirs, &mut reverted)?;
        theirs.turn(checks, "made", &mut reverted, "reverted, two")?;
        drop(theirs);

        let threadkeep = play.threadkeep()?;
        let change = |words: &[&str]| threadkeep.json(threadkeep.on(&home.path, words), &[0]);
        for talk in [&third, &reverted] {
            let before = home.databases()?;
            change(&["detach", &talk.id.to_string(), "-y"])?;
            let changed: Vec<_> =
                before.differences(&home.databases()?).into_iter().map(|d| (d.place, d.row, d.how)).collect();
            let path = ("state_5.sqlite threads.rollout_path".to_owned(), format!("'{}'", talk.id), How::Changed);
            checks.same(format!("changes of Codex's databases by detaching {}", talk.id), changed, vec![path]);
        }
        if databases == Databases::Lost {
            home.lose_databases()?;
        }
        let when = format!("detached, databases {databases:?}");
        // They go by the command, or by Codex.
        if databases == Databases::Kept {
            let [first, second] = [&first, &second].map(|t| t.id.to_string());
            checks.works(format!("{when}: the ancestors can go"), change(&["delete", &first, &second, "-y"]));
        } else {
            let mut theirs = home.theirs()?;
            for ancestor in [&second, &first] {
                let deleted = theirs.server.request("thread/delete", json!({"threadId": ancestor.id}));
                checks.works(format!("{when}: an ancestor can go"), deleted);
            }
        }
        let left = home.rollouts()?.len();
        checks.same(format!("{when}: rollouts"), left, 2);

        for talk in [&mut third, &mut reverted] {
            let mut theirs = home.theirs()?;
            theirs.check(checks, &when, talk);
            theirs.turn(checks, &when, talk, "asked there since")?;
            let mut fork = theirs.fork(talk, None)?;
            theirs.turn(checks, &when, &mut fork, "asked in a fork")?;
            theirs.check(checks, &when, &fork);
            for step in ["thread/archive", "thread/unarchive"] {
                theirs.server.request(step, json!({"threadId": talk.id}))?;
            }
            theirs.check(checks, &format!("{when}, archived and back"), talk);
            drop(theirs);
            let ours = home.ours();
            ours.check(checks, &when, talk);
            ours.continued(talk, "and here")?;
            let mut theirs = home.theirs()?;
            theirs.check(checks, &format!("{when}, gone on here"), talk);
            theirs.turn(checks, &when, talk, "and there once more")?;
        }
    }
    checks.note("0.171 shows no turns of a detached thread before it is resumed: its database knows rollouts by id");
    Ok(())
}

/// Takes back the last turn.
fn revert(theirs: &mut Theirs<'_>, talk: &mut Talk) -> Result<()> {
    let params = json!({"threadId": talk.id, "sortDirection": "asc", "limit": 100});
    let turns = theirs.server.all_pages("thread/turns/list", params)?;
    let last = turns.last().and_then(|t| t["id"].as_str()).context("a turn without an id")?;
    theirs.server.request("thread/revert", json!({"threadId": talk.id, "beforeTurnId": last}))?;
    talk.turns.pop();
    Ok(())
}
