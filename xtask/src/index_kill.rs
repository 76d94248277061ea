//! `index-kill`: many processes list, search and build the index of one home at once, while its rollouts are appended
//! to, made, archived and removed, and some are killed. At the end the index must say what the files say; and while it
//! goes on, every answer must be whole.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use serde_json::Value;

use crate::gen_home::{self, rng::Rng};
use crate::threadkeep::Threadkeep;

#[derive(Debug, Clone, Args)]
pub struct Options {
    /// For how long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Processes at a time
    #[arg(long, default_value_t = 8)]
    processes: usize,
    /// Threads of the home at first
    #[arg(long, default_value_t = 1_000)]
    threads: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the home goes; without it the system's temporary folder
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,
    /// threadkeep binary to test, instead of building the workspace's
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

/// No process may take longer: one that does waits for something that never comes.
const STUCK: Duration = Duration::from_secs(120);

/// What the processes do, in turns of chance.
const COMMANDS: [&[&str]; 7] = [
    &["list"],
    &["list", "--all", "--count"],
    &["list", "--sort", "recency", "--limit", "5"],
    &["list", "--match", "the", "--all"],
    &["search", "zebracorn"],
    &["search", "appended"],
    &["reindex"],
];

#[derive(Debug, Default)]
struct Tally {
    ended: u64,
    killed: u64,
    refused: u64,
    appended: u64,
    made: u64,
    moved: u64,
    removed: u64,
    checks: u64,
}

struct Slot {
    child: Child,
    args: &'static [&'static str],
    begun: Instant,
    kill_after: Option<Duration>,
}

pub fn run(options: &Options) -> Result<()> {
    let threadkeep = Threadkeep::find_or_build(options.bin.as_deref())?;
    let scratch = options.scratch.clone().unwrap_or_else(std::env::temp_dir);
    let home = scratch.join(format!("threadkeep-index-kill-{}", std::process::id()));
    gen_home::run(&gen_home::Options::with_defaults(home.clone(), options.threads))?;
    let tally = campaign(&threadkeep, &home, options)?;
    fs::remove_dir_all(&home).with_context(|| format!("cannot remove {}", home.display()))?;
    println!(
        "{} processes at a time for {} s over {} threads, seed {}: {} ended, {} killed, {} refused (another wrote the index)",
        options.processes, options.seconds, options.threads, options.seed, tally.ended, tally.killed, tally.refused
    );
    println!(
        "{} appends, {} threads made, {} archived or brought back, {} removed; {} answers compared with the files': the same",
        tally.appended, tally.made, tally.moved, tally.removed, tally.checks
    );
    Ok(())
}

fn campaign(threadkeep: &Threadkeep, home: &Path, options: &Options) -> Result<Tally> {
    let mut rng = Rng::stream(options.seed, 0);
    let mut tally = Tally::default();
    let mut slots: Vec<Slot> = Vec::new();
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut next_check = Instant::now() + Duration::from_secs(5);
    let mut serial = 0;
    while Instant::now() < end {
        while slots.len() < options.processes {
            slots.push(start(threadkeep, home, &mut rng)?);
        }
        for _ in 0..rng.below(20) {
            change(home, &mut rng, &mut serial, &mut tally)?;
        }
        reap(&mut slots, &mut tally)?;
        if Instant::now() >= next_check {
            // With nobody who changes a file, an answer beside all the others is that of the files.
            same(threadkeep, home, &mut tally)?;
            next_check = Instant::now() + Duration::from_secs(5);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    while !slots.is_empty() {
        reap(&mut slots, &mut tally)?;
        std::thread::sleep(Duration::from_millis(5));
    }
    same(threadkeep, home, &mut tally)?;
    std::thread::sleep(Duration::from_millis(50));
    let report = answer(threadkeep, home, &["reindex"])?;
    ensure!(report["applied"] == true, "the index could not be built at the end: {report}");
    same(threadkeep, home, &mut tally)?;
    let again = answer(threadkeep, home, &["reindex", "--dry-run"])?;
    ensure!(again["added"] == 0 && again["fixed"] == 0 && again["dropped"] == 0, "built twice, it differs: {again}");
    Ok(tally)
}

fn start(threadkeep: &Threadkeep, home: &Path, rng: &mut Rng) -> Result<Slot> {
    let args = COMMANDS[rng.below(COMMANDS.len() as u64) as usize];
    let mut command = threadkeep.on(home, args);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("cannot start threadkeep")?;
    let kill_after = (rng.below(3) == 0).then(|| Duration::from_millis(rng.below(400)));
    Ok(Slot { child, args, begun: Instant::now(), kill_after })
}

fn reap(slots: &mut Vec<Slot>, tally: &mut Tally) -> Result<()> {
    let mut i = 0;
    while i < slots.len() {
        let slot = &mut slots[i];
        if slot.kill_after.is_some_and(|after| slot.begun.elapsed() >= after) {
            slot.child.kill().ok();
        }
        ensure!(slot.begun.elapsed() < STUCK, "{:?} hangs", slot.args);
        // A full pipe would stop the process, and what it says is only of use where it ends by itself.
        if slot.child.try_wait()?.is_none() && slot.begun.elapsed() < Duration::from_millis(20) {
            i += 1;
            continue;
        }
        let slot = slots.swap_remove(i);
        finish(slot, tally)?;
    }
    Ok(())
}

fn finish(mut slot: Slot, tally: &mut Tally) -> Result<()> {
    if let Some(after) = slot.kill_after {
        std::thread::sleep(after.saturating_sub(slot.begun.elapsed()));
        slot.child.kill().ok();
    }
    let output = slot.child.wait_with_output()?;
    match output.status.code() {
        None => tally.killed += 1,
        Some(3) if slot.args == ["reindex"] => tally.refused += 1,
        Some(0 | 1) => {
            let value: Value = serde_json::from_slice(&output.stdout)
                .with_context(|| format!("{:?} printed no whole answer", slot.args))?;
            ensure!(value["error"].is_null(), "{:?}: {value}", slot.args);
            tally.ended += 1;
        }
        Some(code) => bail!("{:?} ended with {code}: {}", slot.args, String::from_utf8_lossy(&output.stdout)),
    }
    Ok(())
}

/// One change of the home's files.
fn change(home: &Path, rng: &mut Rng, serial: &mut u64, tally: &mut Tally) -> Result<()> {
    let mut files = Vec::new();
    for folder in ["sessions", "archived_sessions"] {
        rollouts(&home.join(folder), &mut files)?;
    }
    let pick = files.get(rng.below(files.len().max(1) as u64) as usize);
    match (rng.below(10), pick) {
        (0, _) => {
            *serial += 1;
            let id = format!("01a2ffff-0000-7000-8000-{serial:012x}");
            let folder = home.join(format!("sessions/2026/12/{:02}", 1 + rng.below(28)));
            fs::create_dir_all(&folder)?;
            let header = format!(
                r#"{{"timestamp":"2026-12-01T10:00:00.000Z","type":"session_meta","payload":{{"id":"{id}","timestamp":"2026-12-01T10:00:00.000Z","cwd":"/made","originator":"x","cli_version":"1","source":"cli"}}}}"#
            );
            fs::write(
                folder.join(format!("rollout-2026-12-01T10-00-00-{id}.jsonl")),
                format!("{header}\n{}", line("made")),
            )?;
            tally.made += 1;
        }
        (1, Some(path)) => {
            let name = path.file_name().context("a rollout has a name")?;
            let to = if path.starts_with(home.join("sessions")) { "archived_sessions" } else { "sessions/2026/11/30" };
            fs::create_dir_all(home.join(to))?;
            fs::rename(path, home.join(to).join(name))?;
            tally.moved += 1;
        }
        (2, Some(path)) if files.len() > 100 => {
            fs::remove_file(path)?;
            tally.removed += 1;
        }
        (_, Some(path)) => {
            OpenOptions::new().append(true).open(path)?.write_all(line("appended").as_bytes())?;
            tally.appended += 1;
        }
        (_, None) => {}
    }
    Ok(())
}

fn line(text: &str) -> String {
    format!(
        r#"{{"timestamp":"2026-12-01T10:00:01.000Z","type":"event_msg","payload":{{"type":"user_message","message":"{text}"}}}}"#
    ) + "\n"
}

fn rollouts(folder: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            rollouts(&path, into)?;
        } else if path.extension().is_some_and(|e| e == "jsonl") {
            into.push(path);
        }
    }
    // A folder is read in no order, and the same seed should do the same.
    into.sort();
    Ok(())
}

/// Compares all rows with an index and without.
fn same(threadkeep: &Threadkeep, home: &Path, tally: &mut Tally) -> Result<()> {
    for args in [&["list", "--all", "--count", "--limit", "100000"][..], &["search", "appended", "--limit", "100000"]] {
        let with = answer(threadkeep, home, args)?;
        let without = answer(threadkeep, home, &[args, &["--no-index"]].concat())?;
        for key in ["threads", "total", "hidden", "hits", "complete"] {
            ensure!(
                with[key] == without[key],
                "{args:?}: {key} with an index and without differ: {}",
                differ(&with[key], &without[key])
            );
        }
        tally.checks += 1;
    }
    Ok(())
}

/// The first row that differs.
fn differ(with: &Value, without: &Value) -> String {
    match (with, without) {
        (Value::Array(a), Value::Array(b)) => {
            let first = a.iter().zip(b).find(|(a, b)| a != b);
            first.map_or_else(|| format!("{} and {} rows", a.len(), b.len()), |(a, b)| format!("{a}\nand\n{b}"))
        }
        (a, b) => format!("{a}\nand\n{b}"),
    }
}

fn answer(threadkeep: &Threadkeep, home: &Path, args: &[&str]) -> Result<Value> {
    let output = threadkeep.on(home, args).output().context("cannot start threadkeep")?;
    let value: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)))?;
    ensure!(value["error"].is_null(), "{args:?}: {value}");
    Ok(value)
}
