//! Killing writers: real processes that append to real homes, are killed with -9 at random moments, and what they
//! acknowledged is looked for; and pairs of processes that fight for one thread.

pub mod child;
mod hammer;
mod rounds;
mod running;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::{HistoryMode, ThreadId};
use threadkeep_store::HostMetadata;

#[derive(Args)]
pub struct Options {
    /// How often a writer is killed
    #[arg(long, default_value_t = 100)]
    rounds: u64,
    /// How often two writers fight for one thread, and are killed
    #[arg(long, default_value_t = 10)]
    fights: u64,
    /// Where the random choices begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the homes go; without it the system's temporary folder
    #[arg(long)]
    scratch: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    let begun = Instant::now();
    let scratch = options
        .scratch
        .clone()
        .unwrap_or_else(std::env::temp_dir)
        .join(format!("threadkeep-kill-{}", std::process::id()));
    fs::create_dir_all(&scratch)?;
    println!("{}", rounds::run(&scratch, options)?);
    println!("{}", hammer::run(&scratch, options)?);
    fs::remove_dir_all(&scratch).ok();
    println!("seed {}, {:.1} s", options.seed, begun.elapsed().as_secs_f64());
    Ok(())
}

/// The settings that rounds take turns in.
fn mode_of(n: u64) -> HistoryMode {
    if n.is_multiple_of(2) { HistoryMode::Legacy } else { HistoryMode::Paginated }
}

fn store(home: &std::path::Path) -> LocalThreadStore {
    LocalThreadStore::open(LocalOptions::new(home))
}

fn host() -> HostMetadata {
    HostMetadata { cwd: Some(PathBuf::from("/")), ..HostMetadata::default() }
}

/// Times that are told at the end.
#[derive(Debug, Default)]
struct Times(Vec<Duration>);

impl Times {
    /// Median and longest.
    fn text(&self) -> String {
        let mut all = self.0.clone();
        all.sort();
        let ms = |d: Option<&Duration>| d.map_or(0.0, |d| d.as_secs_f64() * 1e3);
        format!("median {:.1} ms, longest {:.1} ms", ms(all.get(all.len() / 2)), ms(all.last()))
    }
}

/// The rollout of a thread, line by line: whole records, and whether the last one is torn.
struct Lines {
    records: Vec<serde_json::Value>,
    torn: bool,
}

/// Reads a rollout strictly: no line but the last may be anything but a whole record, and ordinals count from 0.
fn strict(home: &std::path::Path, id: ThreadId, mode: HistoryMode) -> Result<Option<Lines>> {
    use anyhow::{Context as _, ensure};
    let files = threadkeep_rollout::walk::walk(home).files;
    let mine: Vec<PathBuf> =
        files.iter().map(|f| f.path_in(home)).filter(|p| p.to_string_lossy().contains(&id.to_string())).collect();
    ensure!(mine.len() <= 1, "one thread in {} files", mine.len());
    let Some(path) = mine.first() else { return Ok(None) };
    let bytes = fs::read(path)?;
    let torn = bytes.last().is_some_and(|b| *b != b'\n');
    let mut lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').collect();
    let last = lines.pop();
    ensure!(torn == last.is_some_and(|l| !l.is_empty()), "the last line");
    let mut records = Vec::new();
    let mut torn_before = 0;
    for (n, line) in lines.iter().enumerate() {
        match serde_json::from_slice::<serde_json::Value>(line) {
            Ok(record) => {
                if mode == HistoryMode::Paginated {
                    ensure!(record["ordinal"] == records.len() as u64, "line {}: ordinal {}", n + 1, record["ordinal"]);
                }
                records.push(record);
            }
            // What a killed writer left torn was closed off by the next one.
            Err(e) => {
                torn_before += 1;
                let head = String::from_utf8_lossy(&line[..line.len().min(60)]).into_owned();
                ensure!(e.is_eof(), "line {} is no cut-off record: {e}: {head}", n + 1);
            }
        }
    }
    let context = || format!("{}: {} records, {torn_before} cut off", path.display(), records.len());
    ensure!(records.first().is_none_or(|r| r["type"] == "session_meta"), context());
    anyhow::Ok(Some(Lines { records, torn })).with_context(|| path.display().to_string())
}
