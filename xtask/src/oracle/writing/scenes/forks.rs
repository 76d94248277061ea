//! Forks that are made here: Codex reads and resumes them, and their sources stay as they were.

use std::collections::BTreeSet;
use std::fs;

use anyhow::Result;
use threadkeep_record::{HistoryMode, ThreadId};
use threadkeep_store::ForkRange;

use crate::oracle::writing::Extent;
use crate::oracle::writing::ours::{Context, Ours};
use crate::oracle::writing::stage::{Checks, Home, Stage};
use crate::oracle::writing::talk::Talk;

/// Threads of Codex 0.171 to fork: a legacy one, a paginated one, a fork, one of two segments (of a revert).
const OF_CODEX: [&str; 4] = [
    "01a22c6c-8e85-7d30-9683-62f7285fc43c",
    "01a22c6c-9098-7ae3-8f62-627928199782",
    "01a22c6c-8554-7553-b768-5cd145db85fb",
    "01a22c6c-9309-71c0-a353-e00ef6691e22",
];

pub fn run(stage: &Stage, _: Extent, checks: &mut Checks) -> Result<()> {
    let home = Home::of_fixture(stage, "forks", "0.171.0")?;
    let ours = home.ours();
    let mut sources = Vec::new();
    let mut theirs = home.theirs()?;
    for id in OF_CODEX {
        let id = ThreadId::parse(id)?;
        let row = theirs.row(id, false)?;
        let talk = theirs.adopt(&row)?;
        checks.holds("a source has turns", !talk.turns.is_empty(), &talk);
        sources.push(talk);
    }
    drop(theirs);
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        let (live, mut talk) = ours.create(mode)?;
        for n in 1..=3 {
            ours.turn(&live, &mut talk, Context::Written, &format!("{mode:?} source, question {n}"))?;
        }
        ours.wait(live.shutdown())?;
        sources.push(talk);
    }

    let before = home.databases()?;
    let bytes = |talk: &Talk| -> Result<Vec<u8>> {
        let path = ours.read(talk.id)?.rollout_path.unwrap_or_default();
        Ok(fs::read(path)?)
    };
    let mut forks = Vec::new();
    for source in &sources {
        let original = bytes(source)?;
        fork_all_ways(&ours, source, checks, &mut forks)?;
        checks.holds("forking leaves the source as it was", bytes(source)? == original, source.id);
    }
    // Forks of forks, and of a thread that went on here since.
    let firsts: Vec<Talk> = forks.iter().step_by(3).cloned().collect();
    for mut fork in firsts {
        ours.continued(&mut fork, "the fork went on")?;
        let place = forks.iter().position(|f| f.id == fork.id);
        fork_all_ways(&ours, &fork, checks, &mut forks)?;
        if let Some(place) = place {
            forks[place] = fork;
        }
    }
    checks.same("changes of Codex's databases by forking", before.changes(&home.databases()?), BTreeSet::new());

    for round in 1..=2 {
        let when = format!("forks, round {round}");
        let mut theirs = home.theirs()?;
        // Codex shows what a fork refers to once it has taken that itself into its database.
        for talk in &sources {
            theirs.resume(talk.id)?;
        }
        for talk in forks.iter_mut().chain(&mut sources) {
            theirs.check(checks, &when, talk);
            let turn = theirs.turn(checks, &when, talk, &format!("a fork asks there, {round}"));
            checks.works(format!("{when}: turn of {} there", talk.id), turn);
            if talk.own_from + 1 == talk.turns.len() {
                // Of a fork in which nothing was said before, it keeps what stands first in the whole history.
                talk.own_from = 0;
            }
        }
        drop(theirs);
        for talk in forks.iter_mut().chain(&mut sources) {
            ours.check(checks, &when, talk);
            checks.works(format!("{when}: {} goes on here", talk.id), ours.continued(talk, "and here"));
            ours.check(checks, &when, talk);
        }
    }
    of_an_unknown_source(&home, &ours, checks)
}

/// A paginated fork whose source Codex never opened: it goes on with the whole context, and shows what is inherited
/// only once the source was opened, too.
fn of_an_unknown_source(home: &Home<'_>, ours: &Ours<'_>, checks: &mut Checks) -> Result<()> {
    let (live, mut source) = ours.create(HistoryMode::Paginated)?;
    ours.turn(&live, &mut source, Context::Written, "said before the fork")?;
    ours.wait(live.shutdown())?;
    let id = ours.fork(source.id, ForkRange::Whole)?;
    let mut fork = Talk { own_from: 1, ..source.fork(id, 1) };
    let mut theirs = home.theirs()?;
    checks.same("inherited turns of a fork whose source was never opened there", theirs.resume(id)?, vec![]);
    checks.note("0.171 shows the inherited turns of a fork by reference only after its source was opened there");
    theirs.turn(checks, "a fork of an unknown source", &mut fork, "asked in the fork")?;
    drop(theirs);
    ours.check(checks, "a fork of an unknown source", &fork);
    Ok(())
}

/// Forks of a thread: whole, through its first turn, before its last.
fn fork_all_ways(ours: &Ours<'_>, source: &Talk, checks: &mut Checks, forks: &mut Vec<Talk>) -> Result<()> {
    let ids = ours.turn_ids(source.id)?;
    checks.same(format!("turns of {} here", source.id), ids.len(), source.turns.len());
    let last = ids.len() - 1;
    for (range, turns) in [
        (ForkRange::Whole, ids.len()),
        (ForkRange::ThroughTurn(ids[0].clone()), 1),
        (ForkRange::BeforeTurn(ids[last].clone()), last),
    ] {
        if turns == 0 {
            continue;
        }
        let what = format!("fork here of {} ({:?}), {range:?}", source.id, source.mode);
        if let Some(id) = checks.works(&what, ours.fork(source.id, range)) {
            let own_from = if source.mode == HistoryMode::Paginated { turns } else { 0 };
            let fork = Talk { own_from, ..source.fork(id, turns) };
            ours.check(checks, &what, &fork);
            checks.same(format!("{what}, origin"), ours.read(id)?.forked_from_id, Some(source.id));
            forks.push(fork);
        }
    }
    Ok(())
}
