//! Damaging rollouts at random, and reading what is left.
//!
//! Every round takes a rollout of a fixture home, damages it, puts it beside a healthy thread and lists, searches and
//! shows the home. Nothing may panic or hang, and the healthy thread must be listed and found each time.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use threadkeep_local::show::Detail;
use threadkeep_local::{ListOptions, LocalStore, SearchOptions};
use threadkeep_record::UtcMillis;
use threadkeep_rollout::Home;
use threadkeep_rollout::facts::Depth;
use threadkeep_store::{Include, ListQuery, SearchQuery};

use crate::gen_home::rng::Rng;

#[derive(Args)]
pub struct Options {
    /// How long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Where the rounds begin; each round can be repeated by its own number
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

const HEALTHY: &str = "01990000-0000-7000-8000-0000000000aa";
/// One round works on files under a megabyte: a longer one hangs.
const HANG: Duration = Duration::from_secs(20);

pub fn run(options: &Options) -> Result<()> {
    let rollouts = fixtures()?;
    let scratch = std::env::temp_dir().join(format!("threadkeep-fuzz-{}", std::process::id()));
    let begun = Instant::now();
    let mut rounds = 0;
    // The messages of caught panics are told once, with the round that made them.
    std::panic::set_hook(Box::new(|_| {}));
    while begun.elapsed() < Duration::from_secs(options.seconds) {
        let seed = options.seed + rounds;
        let mut rng = Rng::stream(seed, 0);
        let (name, bytes) = &rollouts[rng.below(rollouts.len() as u64) as usize];
        let damaged = damage(bytes.clone(), &mut rng);
        let home = prepare(&scratch, name, &damaged)?;
        let round = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| read(&home)));
        let failure = match result {
            Err(panic) => Some(format!("panicked: {:?}", panic.downcast_ref::<String>())),
            Ok(Err(error)) => Some(format!("{error:#}")),
            Ok(Ok(())) if round.elapsed() > HANG => Some(format!("took {:?}", round.elapsed())),
            Ok(Ok(())) => None,
        };
        if let Some(failure) = failure {
            bail!("round {seed} on {name}: {failure}; its home is kept: {}", home.display());
        }
        rounds += 1;
    }
    fs::remove_dir_all(&scratch).ok();
    println!("{rounds} rounds from seed {}, nothing lost, nothing broken", options.seed);
    Ok(())
}

fn fixtures() -> Result<Vec<(String, Vec<u8>)>> {
    let mut found = Vec::new();
    for home in fs::read_dir(crate::workspace_root().join("fixtures/homes"))? {
        let home = home?.path();
        for entry in threadkeep_rollout::walk::walk(&home).files {
            if entry.size < 1 << 20 {
                let name = entry.path().file_name().context("a file name")?.to_string_lossy().into_owned();
                found.push((name, fs::read(entry.path_in(&home))?));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// One to six wounds.
fn damage(mut bytes: Vec<u8>, rng: &mut Rng) -> Vec<u8> {
    for _ in 0..=rng.below(6) {
        if bytes.is_empty() {
            return bytes;
        }
        let at = rng.below(bytes.len() as u64) as usize;
        let length = (rng.below(400) as usize).min(bytes.len() - at);
        match rng.below(10) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..at + length)),
            2 => bytes[at..at + length].fill(0),
            3 => bytes[at] = rng.below(256) as u8,
            4 => {
                let copy = bytes[at..at + length].to_vec();
                let to = rng.below(bytes.len() as u64) as usize;
                bytes.splice(to..to, copy);
            }
            5 => drop(bytes.splice(at..at, vec![0; length])),
            6 => drop(bytes.splice(at..at, b"\n".repeat(1 + length % 3))),
            7 => drop(bytes.splice(at..at, b"\xff\xfe\xc3".iter().copied())),
            8 => bytes.iter_mut().skip(at).take(length).filter(|b| **b == b'\n').for_each(|b| *b = b' '),
            _ => bytes.iter_mut().skip(at).take(length).filter(|b| b.is_ascii_digit()).for_each(|b| *b = b'9'),
        }
    }
    bytes
}

fn prepare(scratch: &Path, name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let home = scratch.join("home");
    fs::remove_dir_all(&home).ok();
    let day = home.join("sessions/2026/01/02");
    fs::create_dir_all(&day)?;
    fs::write(day.join(name), bytes)?;
    let healthy = format!(
        "{{\"timestamp\":\"2026-01-02T00:00:00.000Z\",\"type\":\"session_meta\",\"payload\":{{\"id\":\"{HEALTHY}\",\
         \"timestamp\":\"2026-01-02T00:00:00.000Z\",\"cwd\":\"/w\",\"originator\":\"x\",\"cli_version\":\"1\"}}}}\n\
         {{\"timestamp\":\"2026-01-02T00:00:01.000Z\",\"type\":\"event_msg\",\"payload\":{{\"type\":\"user_message\",\
         \"message\":\"the healthy neighbour\"}}}}\n"
    );
    fs::write(day.join(format!("rollout-2026-01-02T00-00-00-{HEALTHY}.jsonl")), healthy)?;
    Ok(home)
}

fn read(home: &Path) -> Result<()> {
    let store = LocalStore::new(vec![Home::new(home)], None);
    let now = UtcMillis(1_800_000_000_000);
    let query = ListQuery { include: Include::ALL, ..ListQuery::default() };
    let page =
        store.list(&query, None, ListOptions { limit: 50, exact: true, count: true, ..ListOptions::default() }, now)?;
    let listed = |id: &str| page.rows.iter().any(|(_, r)| r.thread.id.is_some_and(|i| i.to_string() == id));
    if !listed(HEALTHY) {
        bail!("the healthy thread is not listed");
    }
    if page.rows.len() != 2 {
        bail!("{} threads are listed, not 2", page.rows.len());
    }
    for term in ["the healthy neighbour", "Mock answer", "zq"] {
        let search = SearchQuery { term: term.into(), ..SearchQuery::default() };
        let options = SearchOptions { limit: 20, count: true, ..SearchOptions::default() };
        let hits = store.search(&ListQuery::default(), &search, None, options, now)?;
        if term.starts_with("the") && hits.hits.len() != 1 {
            bail!("the healthy thread is found {} times", hits.hits.len());
        }
    }
    for (_, row) in &page.rows {
        let open = store.open_thread(&row.key, Depth::Head)?;
        let mut turns = 0;
        open.stream_turns(Detail::Full, &mut |turn| {
            turns += turn.items.len();
            true
        });
        let index = open.turn_index();
        let all: Vec<usize> = (0..index.turns.len()).collect();
        open.read_turns(&index, &all, Detail::Readable, &mut |_| true);
    }
    Ok(())
}
