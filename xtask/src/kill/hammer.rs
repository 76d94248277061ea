//! Two processes fight for one thread: they never interleave, the loser is told who holds it, and a killed holder is
//! no obstacle.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use threadkeep_record::{HistoryMode, ThreadId};
use threadkeep_store::{CreateThread, LiveThread, SystemClock};

use super::running::Running;
use super::{Options, mode_of, store, strict};
use crate::gen_home::rng::Rng;

#[derive(Debug, Default)]
struct Tally {
    sessions: u64,
    records: u64,
    refusals: u64,
    by_name: u64,
}

pub fn run(scratch: &Path, options: &Options) -> Result<String> {
    let home = scratch.join("fights");
    let mut rng = Rng::stream(options.seed, 3);
    let mut tally = Tally::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    for round in 0..options.fights {
        runtime
            .block_on(one(&home, mode_of(round), &mut rng, &mut tally))
            .with_context(|| format!("fight {round} of seed {}; its home is kept: {}", options.seed, home.display()))?;
    }
    let Tally { sessions, records, refusals, by_name } = tally;
    Ok(format!(
        "{} fights of two writers for one thread, each with one killed while the other went on: {sessions} sessions of \
         {records} records, none interleaved, none lost\n{refusals} refusals, {by_name} of them with the holder's pid",
        options.fights
    ))
}

async fn one(home: &Path, mode: HistoryMode, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    let id = ThreadId::new_v7();
    let mut params = CreateThread::new(id, "/", "threadkeep_kill");
    params.history_mode = mode;
    let live = LiveThread::create(Arc::new(store(home)), params, Arc::new(SystemClock)).await?;
    live.persist().await?;
    live.shutdown().await?;

    let start = |who: u64, seed: u64| {
        let mut args: Vec<String> =
            ["--work", "fight", "--thread", &id.to_string(), "--home"].iter().map(|s| (*s).into()).collect();
        args.push(home.to_string_lossy().into_owned());
        args.extend([format!("--first={who}"), format!("--seed={seed}")]);
        Running::start(&args)
    };
    let (mut one, mut two) = (start(1, rng.next())?, start(2, rng.next())?);
    one.wait_for("a ")?;
    two.wait_for("a ")?;
    std::thread::sleep(Duration::from_millis(rng.range(50, 250)));
    let pids = [one.pid(), two.pid()];
    let killed = one.kill()?;
    // Everything that comes from here on, and what is behind it in the pipe already, is read before more is awaited.
    two.listen();
    for _ in 0..3 {
        two.wait_for("a ")?;
    }
    std::thread::sleep(Duration::from_millis(rng.range(20, 60)));
    let rest = two.kill()?;
    check(home, id, mode, [&killed, &rest], pids, tally)
}

/// Compares the file with what the two said.
fn check(
    home: &Path,
    id: ThreadId,
    mode: HistoryMode,
    said: [&[String]; 2],
    pids: [u32; 2],
    tally: &mut Tally,
) -> Result<()> {
    let lines = strict(home, id, mode)?.context("the thread is gone")?;
    // Who, session, and how many records of it stand together.
    let mut runs: Vec<(u64, u64, u64)> = Vec::new();
    for record in &lines.records[1..] {
        let number = |key: &str| record["payload"][key].as_u64().context("a record that nobody wrote");
        let (who, session, i) = (number("who")?, number("session")?, number("i")?);
        match runs.last_mut() {
            Some(run) if (run.0, run.1) == (who, session) => {
                ensure!(run.2 == i, "record {i} of a session stands where {} is due", run.2);
                run.2 += 1;
            }
            _ => {
                ensure!(i == 0, "session {session} of writer {who} is interleaved");
                runs.push((who, session, 1));
            }
        }
    }
    let found: BTreeMap<(u64, u64), u64> = runs.iter().map(|(who, session, n)| ((*who, *session), *n)).collect();
    ensure!(found.len() == runs.len(), "a session stands in two places");
    for (who, said) in (1u64..).zip(said) {
        let acknowledged = said.iter().filter_map(|l| l.strip_prefix("a ")?.split_once(' '));
        for (session, n) in acknowledged {
            let (session, n): (u64, u64) = (session.parse()?, n.parse()?);
            let there = found.get(&(who, session)).copied().unwrap_or(0);
            ensure!(there >= n, "{there} records of session {session} of writer {who} are left of {n}");
        }
        let other = pids[if who == 1 { 1 } else { 0 }];
        for message in said.iter().filter_map(|l| l.strip_prefix("c ")) {
            tally.refusals += 1;
            ensure!(
                message.contains(&format!("thread {id} already has an active writer")),
                "refused otherwise: {message}"
            );
            if let Some((_, rest)) = message.split_once("pid ") {
                let pid: String = rest.chars().take_while(char::is_ascii_digit).collect();
                ensure!(pid == other.to_string(), "the holder is {other}, not {pid}: {message}");
                tally.by_name += 1;
            }
        }
        ensure!(runs.iter().any(|(w, ..)| *w == who), "writer {who} never got the thread");
    }
    tally.sessions += runs.len() as u64;
    tally.records += lines.records.len() as u64 - 1;
    Ok(())
}
