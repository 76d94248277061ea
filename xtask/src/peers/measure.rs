//! Timing whole commands so that the numbers can be compared with each other: the samples of all variants of a piece
//! of work are interleaved, after one round that warms the page cache, each when the machine is idle if it becomes so.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::codex::AppServer;

/// What a variant does once.
pub enum Work<'a> {
    /// A process from spawn to exit, its output read. The closure makes the command anew each time, and may prepare
    /// what it needs; that is not timed.
    Process(Box<dyn Fn() -> Result<Command> + 'a>),
    /// The same for a pipeline of the shell, which throws its output away itself.
    Shell { home: &'a Path, script: &'static str },
    /// A request inside a running server.
    Request { server: &'a RefCell<AppServer>, method: &'static str, params: Value },
    /// Something that measures itself.
    Timed(Box<dyn Fn() -> Result<Duration> + 'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// What threadkeep is compared with.
    Reference,
    Subject,
}

pub struct Variant<'a> {
    pub role: Role,
    /// The command as a reader of the table would type it.
    pub name: String,
    /// How a ratio calls it.
    pub short: &'static str,
    pub work: Work<'a>,
}

/// Variants of the same piece of work.
pub struct Group<'a> {
    pub title: String,
    pub variants: Vec<Variant<'a>>,
}

/// A variant with its samples.
pub struct Row {
    pub role: Role,
    pub name: String,
    pub short: &'static str,
    /// Milliseconds, ascending, never empty.
    pub samples: Vec<f64>,
    pub peak_kb: Option<u64>,
}

impl Row {
    pub fn median(&self) -> f64 {
        let (n, middle) = (self.samples.len(), self.samples.len() / 2);
        if n % 2 == 1 { self.samples[middle] } else { f64::midpoint(self.samples[middle - 1], self.samples[middle]) }
    }

    pub fn min(&self) -> f64 {
        self.samples[0]
    }

    pub fn max(&self) -> f64 {
        self.samples[self.samples.len() - 1]
    }
}

/// Counts over a whole run how often the machine was not idle.
#[derive(Debug, Default)]
pub struct Noise {
    pub samples: usize,
    pub busy: usize,
}

/// Whether each sample gets an untimed run right before it. A cold start of Codex takes too long for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WarmUp {
    Each,
    No,
}

pub fn measure(group: &Group<'_>, runs: usize, warm_up: WarmUp, noise: &mut Noise) -> Result<Vec<Row>> {
    let mut samples = vec![Vec::with_capacity(runs); group.variants.len()];
    for _ in 0..runs {
        for (variant, samples) in group.variants.iter().zip(&mut samples) {
            noise.samples += 1;
            noise.busy += usize::from(!wait_until_idle());
            // Waiting lets the cores sleep and other programs take the caches: the run before the timed one wakes them.
            if warm_up == WarmUp::Each {
                once(variant)?;
            }
            samples.push(once(variant)?.as_secs_f64() * 1000.0);
        }
    }
    let rows = group.variants.iter().zip(samples).map(|(variant, mut samples)| {
        samples.sort_unstable_by(f64::total_cmp);
        Row {
            role: variant.role,
            name: variant.name.clone(),
            short: variant.short,
            samples,
            peak_kb: peak_kb(&variant.work),
        }
    });
    Ok(rows.collect())
}

fn once(variant: &Variant<'_>) -> Result<Duration> {
    match &variant.work {
        Work::Process(prepare) => time_process(prepare()?),
        Work::Shell { home, script } => {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(script).current_dir(home);
            time_process(shell)
        }
        Work::Request { server, method, params } => {
            server.borrow_mut().timed(method, params.clone()).map(|(_, time)| time)
        }
        Work::Timed(run) => run(),
    }
    .with_context(|| variant.name.clone())
}

fn time_process(mut command: Command) -> Result<Duration> {
    command.stdin(Stdio::null());
    let begun = Instant::now();
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    let time = begun.elapsed();
    // 1 is "nothing found" for threadkeep and rg alike.
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(time)
}

/// The largest resident set, in a run of its own so that watching it is in no sample; `None` where there is no way to
/// tell.
fn peak_kb(work: &Work<'_>) -> Option<u64> {
    match work {
        Work::Process(prepare) => {
            let command = prepare().ok()?;
            let mut timed = Command::new("/usr/bin/time");
            timed.args(["-q", "-f", "%M"]).arg(command.get_program()).args(command.get_args());
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => timed.env(name, value),
                    None => timed.env_remove(name),
                };
            }
            if let Some(dir) = command.get_current_dir() {
                timed.current_dir(dir);
            }
            let output = timed.stdin(Stdio::null()).stdout(Stdio::null()).output().ok()?;
            // The command's own warnings come before it.
            String::from_utf8_lossy(&output.stderr).lines().last()?.trim().parse().ok()
        }
        Work::Request { server, .. } => {
            let status = fs::read_to_string(format!("/proc/{}/status", server.borrow().pid())).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            line.trim().strip_suffix("kB")?.trim().parse().ok()
        }
        Work::Shell { .. } | Work::Timed(_) => None,
    }
}

/// Waits a little for other programs to pause, and says whether they did. Where load cannot be read it says yes.
fn wait_until_idle() -> bool {
    const WINDOW: Duration = Duration::from_millis(20);
    const PATIENCE: Duration = Duration::from_millis(400);
    let begun = Instant::now();
    loop {
        let Some(before) = cpu_ticks() else {
            return true;
        };
        thread::sleep(WINDOW);
        let Some(after) = cpu_ticks() else {
            return true;
        };
        // A tick is 10 ms, so in this window one is the least that can be seen, and may be our own.
        if after.saturating_sub(before) <= 1 {
            return true;
        }
        if begun.elapsed() > PATIENCE {
            return false;
        }
    }
}

/// Ticks in which any core has been busy since boot.
fn cpu_ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let fields: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>().ok()?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is in user already.
    Some(fields.iter().take(8).enumerate().filter(|(i, _)| !matches!(i, 3 | 4)).map(|(_, ticks)| ticks).sum())
}
