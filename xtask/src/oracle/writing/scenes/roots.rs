//! Selected capability roots: those of a thread made there are read here, and those of a thread made here are kept
//! there when it goes on and when it is forked.

use std::fs;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::{HistoryMode, ThreadId};
use threadkeep_store::clock::new_thread_id;
use threadkeep_store::{ForkRange, LiveThread, SystemClock};

use crate::oracle::writing::Extent;
use crate::oracle::writing::ours::{Context, Ours};
use crate::oracle::writing::stage::{Checks, Home, Stage};
use crate::oracle::writing::talk::Talk;
use crate::oracle::writing::theirs::Theirs;
use crate::threadkeep::Threadkeep;

/// The two sides of one home.
struct Both<'s> {
    home: Home<'s>,
    ours: Ours<'s>,
    threadkeep: Threadkeep,
}

pub fn run(stage: &Stage, _: Extent, checks: &mut Checks) -> Result<()> {
    let threadkeep = stage.threadkeep()?;
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        let home = Home::fresh(stage, &format!("roots-{mode:?}"))?;
        let both = Both { ours: home.ours(), home, threadkeep: threadkeep.clone() };
        made_there(&both, mode, checks).with_context(|| format!("{mode:?}, made there"))?;
        made_here(&both, mode, checks).with_context(|| format!("{mode:?}, made here"))?;
    }
    Ok(())
}

fn root(id: &str, environment: &str, path: &str) -> Value {
    json!({"id": id, "location": {"type": "environment", "environmentId": environment, "path": path}})
}

/// In environments that are not there, one of them of another system; and an id twice.
fn plain() -> Vec<Value> {
    vec![
        root("tools", "worker", "file:///C:/build%20it"),
        root("docs", "local", "file:///srv/d%C3%B6cs"),
        root("tools", "other", "file:///srv/tools"),
    ]
}

fn made_there(both: &Both<'_>, mode: HistoryMode, checks: &mut Checks) -> Result<()> {
    let word = if mode == HistoryMode::Paginated { "paginated" } else { "legacy" };
    let mut asked = plain();
    // As older clients say it.
    asked[2]["location"]["path"] = "/srv/tools".into();
    let mut theirs = both.home.theirs()?;
    let mut talks = vec![];
    for (asked, expected) in [(Some(asked), plain()), (Some(vec![]), vec![]), (None, vec![])] {
        let params = json!({"cwd": both.home.cwd, "historyMode": word, "selectedCapabilityRoots": asked});
        let answer = theirs.server.request("thread/start", params)?;
        let id = answer["thread"]["id"].as_str().context("a thread without an id")?;
        let mut talk = Talk::new(ThreadId::parse(id)?, mode);
        for user in ["first", "second"] {
            theirs.turn(checks, "roots", &mut talk, user)?;
        }
        has(both, &talk, "made there", &expected, checks)?;
        talks.push((talk, expected));
    }
    drop(theirs);
    for (talk, expected) in &mut talks {
        let first = header_line(both, talk.id)?;
        both.ours.continued(talk, "it goes on here")?;
        checks.same("a header after going on here", header_line(both, talk.id)?, first);
        has(both, talk, "made there, gone on here", expected, checks)?;
        forked_here(both, talk, expected, checks)?;
    }
    Ok(())
}

fn made_here(both: &Both<'_>, mode: HistoryMode, checks: &mut Checks) -> Result<()> {
    let mut roots = plain();
    roots[0]["of_tomorrow"] = json!({"b": [1.5, null], "a": "ü"});
    roots[1]["location"]["pinned"] = true.into();
    for roots in [plain(), roots] {
        let known = roots == plain();
        let mut params = both.ours.params(new_thread_id(), mode);
        params.selected_capability_roots = roots.clone();
        let mut talk = Talk::new(params.thread_id, mode);
        let store = Arc::new(LocalThreadStore::open(LocalOptions::new(&both.home.path)));
        let live = both.ours.wait(LiveThread::create(store, params, Arc::new(SystemClock)))?;
        for user in ["first", "second"] {
            both.ours.turn(&live, &mut talk, Context::Written, user)?;
        }
        both.ours.wait(live.shutdown())?;
        has(both, &talk, "made here", &roots, checks)?;
        let first = header_line(both, talk.id)?;

        let mut theirs = both.home.theirs()?;
        theirs.resume(talk.id)?;
        theirs.turn(checks, "roots, resumed there", &mut talk, "asked there")?;
        checks.same("a header after a resume there", header_line(both, talk.id)?, first.clone());
        let mut forks = vec![theirs.fork(&talk, None)?];
        let turns = both.ours.turn_ids(talk.id)?;
        forks.push(theirs.fork(&talk, Some((&turns[0], 1)))?);
        forks.push(fork_with_a_list(&mut theirs, &talk)?);
        for fork in &mut forks {
            theirs.turn(checks, "roots, forked there", fork, "asked in the fork")?;
            has(both, fork, "forked there", &plain(), checks)?;
        }
        // Once more, by the roots that the fork's own file says.
        let mut again = theirs.fork(&forks[0], None)?;
        theirs.turn(checks, "roots, forked there again", &mut again, "asked in the fork of the fork")?;
        has(both, &again, "forked there again", &plain(), checks)?;
        drop(theirs);
        checks.note("0.171 gives a fork the roots of its source, also where the request has a list of its own");
        if !known {
            checks.note("0.171 leaves out of a fork's header what it does not know in a root");
        }

        both.ours.continued(&mut talk, "and here again")?;
        checks.same("a header after both went on", header_line(both, talk.id)?, first);
        has(both, &talk, "gone on in both", &roots, checks)?;
        forked_here(both, &talk, &roots, checks)?;
        both.ours.continued(&mut forks[0], "the fork goes on here")?;
        has(both, &forks[0], "forked there, gone on here", &plain(), checks)?;
    }
    Ok(())
}

/// A fork there that asks for roots of its own.
fn fork_with_a_list(theirs: &mut Theirs<'_>, talk: &Talk) -> Result<Talk> {
    let own = [root("its own", "worker", "file:///own")];
    let params = json!({"threadId": talk.id, "selectedCapabilityRoots": own});
    let answer = theirs.server.request("thread/fork", params)?;
    let id = answer["thread"]["id"].as_str().context("a fork without an id")?;
    Ok(talk.fork(ThreadId::parse(id)?, talk.turns.len()))
}

/// Forks here have the roots, whatever they take over; and Codex goes on with them.
fn forked_here(both: &Both<'_>, talk: &Talk, expected: &[Value], checks: &mut Checks) -> Result<()> {
    let turns = both.ours.turn_ids(talk.id)?;
    for range in
        [ForkRange::Whole, ForkRange::ThroughTurn(turns[0].clone()), ForkRange::Subagent { last_turns: Some(1) }]
    {
        let what = format!("forked here, {range:?}");
        let id = both.ours.fork(talk.id, range)?;
        has(both, &Talk::new(id, talk.mode), &what, expected, checks)?;
        let first = header_line(both, id)?;
        let mut theirs = both.home.theirs()?;
        theirs.resume(id)?;
        let turn = theirs.server.turn(&id.to_string(), "asked in a fork of ours")?;
        checks.same(format!("{what}, a turn there"), turn["status"].as_str(), Some("completed"));
        drop(theirs);
        checks.same(format!("{what}, the header after a turn there"), header_line(both, id)?, first);
    }
    Ok(())
}

/// The thread has these roots: in its file, in the store, and by the command.
fn has(both: &Both<'_>, talk: &Talk, when: &str, expected: &[Value], checks: &mut Checks) -> Result<()> {
    let what = format!("{:?}, {when}: roots of {}", talk.mode, talk.id);
    let header: Value = serde_json::from_str(&header_line(both, talk.id)?)?;
    let written = header["payload"]["selected_capability_roots"].as_array().cloned().unwrap_or_default();
    checks.same(format!("{what} in its file"), written.as_slice(), expected);
    let read = both.ours.read(talk.id)?;
    checks.same(format!("{what} in the store"), read.selected_capability_roots.as_slice(), expected);
    let show = both.threadkeep.on(&both.home.path, &["show", &talk.id.to_string()]);
    let shown = both.threadkeep.json(show, &[0])?;
    checks.same(format!("{what} by the command"), &shown["thread"]["capability_roots"], &json!(expected));
    Ok(())
}

/// The first line of the thread's own file.
fn header_line(both: &Both<'_>, id: ThreadId) -> Result<String> {
    let path = both.ours.read(id)?.rollout_path.with_context(|| format!("no file of {id}"))?;
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.lines().next().map(str::to_owned).with_context(|| format!("{} is empty", path.display()))
}
