//! Threads that are detached here: Codex goes on with them as before, with their ancestors and all databases gone.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::json;
use threadkeep_local::LocalStore;
use threadkeep_local::change::detach::{Subject, stage, verify};
use threadkeep_record::{HistoryMode, ThreadId};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::seam::RealDisk;
use threadkeep_store::SystemClock;

use crate::oracle::writing::Extent;
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

        for talk in [&third, &reverted] {
            detach(&home, talk.id)?;
        }
        if databases == Databases::Lost {
            for entry in fs::read_dir(&home.path)? {
                let path = entry?.path();
                if path.file_name().is_some_and(|n| n.to_string_lossy().contains(".sqlite")) {
                    fs::remove_file(path)?;
                }
            }
        }
        let when = format!("detached, databases {databases:?}");
        let mut theirs = home.theirs()?;
        for ancestor in [&second, &first] {
            let deleted = theirs.server.request("thread/delete", json!({"threadId": ancestor.id}));
            checks.works(format!("{when}: an ancestor can go"), deleted);
        }
        drop(theirs);
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

/// The swap: the old rollouts leave the home, the new one gets its name, and Codex's row its path.
fn detach(home: &Home<'_>, id: ThreadId) -> Result<()> {
    let kept = threadkeep_rollout::home::Home::new(&home.path);
    let open = LocalStore::new(vec![kept.clone()], None).open_id(id, Depth::Head)?;
    let subject = Subject::of(&open).context("a thread without an id")?;
    let staged = stage(&RealDisk, &kept, &subject, &SystemClock)?;
    verify(&subject, &staged.temporary)?;
    for member in &open.row.members {
        fs::remove_file(member.entry.path_in(&home.path))?;
    }
    fs::rename(&staged.temporary, &staged.target)?;
    set_path(&home.path.join("state_5.sqlite"), id, &staged.target)
}

fn set_path(database: &Path, id: ThreadId, path: &Path) -> Result<()> {
    let db = rusqlite::Connection::open(database)?;
    let rows = db.execute(
        "update threads set rollout_path = ?1 where id = ?2",
        [path.to_string_lossy().into_owned(), id.to_string()],
    )?;
    anyhow::ensure!(rows == 1, "{} has {rows} rows of {id}", database.display());
    Ok(())
}
