//! A thread that started another: together and alone.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::json;

use super::Place;
use super::cast::Actor;
use crate::oracle::writing::stage::Checks;

pub fn play(place: &mut Place<'_>, actors: &mut [Actor], checks: &mut Checks) -> Result<()> {
    let child = actors.iter().position(|a| a.parent.is_some()).context("no child")?;
    let parent = actors.iter().position(|a| Some(a.talk.id) == actors[child].parent).context("no parent")?;
    let what = place.place.clone();
    // Without a word about it, the child stays.
    for (words, both) in [(vec!["delete"], false), (vec!["delete", "--cascade"], true)] {
        let how = format!("{what}: {}", words.join(" "));
        let (rows, files) = (place.databases()?, place.home.files()?);
        let mut theirs = place.then_there(|| {
            let rows = place.databases()?;
            checks.works(&how, place.command(&words, &[&actors[parent]]));
            let mut expected = rows.rows_of(actors[parent].talk.id);
            if both {
                expected.extend(rows.rows_of(actors[child].talk.id));
            }
            expected.sort();
            expected.dedup();
            let mut gone = place.differences(&rows, &place.databases()?);
            gone.sort();
            checks.same(format!("{how}, rows"), gone, expected);
            Ok(())
        })?;
        place.gone_there(&mut theirs, &actors[parent], checks)?;
        if both {
            place.gone_there(&mut theirs, &actors[child], checks)?;
        } else {
            checks.works(format!("{how}, the child is listed"), theirs.row(actors[child].talk.id, false));
        }
        drop(theirs);
        // Back again; what Codex wrote meanwhile about the child is its own.
        place.threadkeep.json(place.threadkeep.on(&place.home.path, &["restore", "--all"]), &[0])?;
        let edge = |d: &&crate::oracle::writing::databases::Difference| d.place.contains("thread_spawn_edges");
        let edges = |all: Vec<_>| all.iter().filter(edge).count();
        if place.when != super::When::NoDatabases {
            let now = place.databases()?;
            checks.same(format!("{how}, edges afterwards"), edges(place.differences(&rows, &now)), 0);
        }
        let now = place.home.files()?;
        let same = files.iter().all(|(path, data)| !super::is_rollout(path) || now.get(path) == Some(data));
        checks.holds(format!("{how}, rollouts afterwards"), same, "not as before");
        let mut theirs = place.home.theirs()?;
        for actor in [parent, child] {
            place.active_there(&mut theirs, &mut actors[actor], checks)?;
        }
    }
    let mut theirs = place.then_there(|| {
        checks
            .works(format!("{what}: archive --cascade"), place.command(&["archive", "--cascade"], &[&actors[parent]]));
        Ok(())
    })?;
    for actor in [parent, child] {
        place.archived_there(&mut theirs, &actors[actor], checks)?;
    }
    drop(theirs);
    let mut theirs = place.then_there(|| {
        let whole = place.command(&["unarchive", "--cascade"], &[&actors[parent]]);
        checks.works(format!("{what}: unarchive --cascade"), whole);
        Ok(())
    })?;
    for actor in [parent, child] {
        place.active_there(&mut theirs, &mut actors[actor], checks)?;
    }
    drop(theirs);
    of_codex(place, &actors[parent], &actors[child], checks)?;
    let named: Vec<&Actor> = actors.iter().filter(|a| a.name.is_some() && !a.needed).collect();
    names(place, &named, checks)
}

/// What Codex itself does with the threads that a thread started, which is told and not judged.
fn of_codex(place: &Place<'_>, parent: &Actor, child: &Actor, checks: &mut Checks) -> Result<()> {
    for (method, archived) in [("thread/archive", true), ("thread/unarchive", false)] {
        let mut theirs = place.home.theirs()?;
        theirs.server.request(method, json!({"threadId": parent.talk.id}))?;
        let with_it = theirs.row(child.talk.id, archived).is_ok();
        drop(theirs);
        let what = format!("{}: the child here after {method} of its parent there", place.place);
        checks.same(what, place.home.ours().read(child.talk.id)?.archived, archived == with_it);
        checks.note(format!(
            "{method} of a thread {} the threads that it started",
            if with_it { "moves" } else { "leaves" }
        ));
        // Both where the parent is.
        if !with_it {
            place.command(&[if archived { "archive" } else { "unarchive" }], &[child])?;
        }
    }
    let mut theirs = place.home.theirs()?;
    theirs.server.request("thread/delete", json!({"threadId": parent.talk.id}))?;
    let with_it = theirs.row(child.talk.id, false).is_err();
    checks.note(format!(
        "thread/delete deletes {}",
        if with_it { "the threads that it started, too" } else { "one thread" }
    ));
    drop(theirs);
    checks.same(format!("{}: the child here", place.place), place.home.ours().read(child.talk.id).is_err(), with_it);
    Ok(())
}

/// Codex takes a name out of the name index as we do.
fn names(place: &Place<'_>, named: &[&Actor], checks: &mut Checks) -> Result<()> {
    let file = place.home.path.join("session_index.jsonl");
    for actor in named {
        let what = format!("{}: name of {} after thread/delete there", place.place, actor.talk.id);
        let before = fs::read_to_string(&file)?;
        let id = actor.talk.id.to_string();
        let mut theirs = place.home.theirs()?;
        theirs.server.request("thread/delete", json!({"threadId": actor.talk.id}))?;
        drop(theirs);
        let expected: String = before.lines().filter(|l| !l.contains(&id)).map(|l| format!("{l}\n")).collect();
        checks.same(what, fs::read_to_string(&file)?, expected);
    }
    Ok(())
}
