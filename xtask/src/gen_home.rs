//! `gen-home`: a synthetic Codex home that is true to format, without the binary, and with the truth beside it.
//!
//! It writes `sessions/YYYY/MM/DD/rollout-….jsonl`, `archived_sessions/`, `session_index.jsonl`, a `config.toml` that
//! lets the real Codex open it offline, and `manifest.jsonl`. For tests of search every session has a word of its own
//! (`ndl<seq>q`, in its first user message), 1 % hold `zebracorn` in an answer of the agent (those whose seq ends in
//! 07), and 5 % of all tool outputs, and nothing else, hold `quuxalert`.

mod pools;
pub mod rng;
mod session;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde_json::json;

use self::pools::Pools;
use self::rng::Rng;
use self::session::{Format, Plan, timestamp};
use crate::codex;
use crate::manifest::Entry;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatChoice {
    /// The newest fifth of the sessions paginated, the others legacy.
    Mix,
    Legacy,
    Paginated,
}

#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Directory to make; must be empty or missing
    home: PathBuf,
    /// Number of sessions
    n: usize,
    /// The same seed and options give the same home, byte for byte
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, value_enum, default_value_t = FormatChoice::Mix)]
    format: FormatChoice,
    /// Further sessions of these sizes, in MB
    #[arg(long, value_name = "MB,MB", value_delimiter = ',')]
    exact: Vec<f64>,
    /// Median size of what is aimed at; the header of about 20 KB and a whole last turn come on top
    #[arg(long, default_value_t = 30.0)]
    median_kb: f64,
    /// Spread of the sizes (of their logarithm); 1.35 gives a heavier tail
    #[arg(long, default_value_t = 1.2)]
    sigma: f64,
    #[arg(long, default_value_t = 50.0)]
    max_mb: f64,
    /// Share of archived sessions
    #[arg(long, default_value_t = 0.03)]
    archived: f64,
    /// Share of named sessions
    #[arg(long, default_value_t = 0.05)]
    named: f64,
    /// Number of working directories; a few of them have most of the sessions
    #[arg(long, default_value_t = 40)]
    cwds: usize,
    /// Share of compressed rollouts
    #[arg(long, default_value_t = 0.0)]
    zst: f64,
    /// Day of the oldest session
    #[arg(long, default_value = "2025-09-01")]
    start: Date,
    /// Days over which the sessions are spread, ever more of them towards the end
    #[arg(long, default_value_t = 420)]
    days: u64,
    /// Short base instructions, so that the header has about 5 KB
    #[arg(long)]
    small_base: bool,
    #[arg(long, default_value = "mock")]
    provider: String,
}

impl Options {
    /// A home of `n` sessions with everything else as by default.
    pub fn with_defaults(home: PathBuf, n: usize) -> Self {
        Self {
            home,
            n,
            seed: 1,
            format: FormatChoice::Mix,
            exact: Vec::new(),
            median_kb: 30.0,
            sigma: 1.2,
            max_mb: 50.0,
            archived: 0.03,
            named: 0.05,
            cwds: 40,
            zst: 0.0,
            start: jiff::civil::date(2025, 9, 1),
            days: 420,
            small_base: false,
            provider: "mock".to_owned(),
        }
    }
}

/// A session with the facts about its file.
struct Job {
    plan: Plan,
    archived: bool,
    compressed: bool,
    name: Option<String>,
    exact: Option<f64>,
}

/// Streams of the seed below this number are not for sessions.
const FIRST_SESSION_STREAM: u64 = 16;

/// Makes the home and says how large it is.
pub fn run(options: &Options) -> Result<String> {
    let begun = Instant::now();
    let home = &options.home;
    if fs::read_dir(home).is_ok_and(|mut entries| entries.next().is_some()) {
        bail!("{} is not empty; sessions of two runs must not mix, so remove it or choose another", home.display());
    }
    if options.cwds == 0 {
        bail!("--cwds must be at least 1");
    }
    fs::create_dir_all(home.join("archived_sessions")).with_context(|| format!("cannot make {}", home.display()))?;
    codex::write_config(home)?;

    let pools = Pools::new(&mut Rng::stream(options.seed, 0), options.cwds, options.small_base);
    let jobs = plan(options, &pools)?;
    let entries = write_all(options, &pools, &jobs)?;
    write_indexes(home, &entries)?;

    let bytes: u64 = entries.iter().map(|e| e.bytes).sum();
    let seconds = begun.elapsed().as_secs_f64();
    Ok(json!({
        "home": home, "n": entries.len(), "bytes": bytes,
        "seconds": (seconds * 100.0).round() / 100.0,
        "mb_per_second": (bytes as f64 / 1e6 / seconds).round(),
    })
    .to_string())
}

fn plan(options: &Options, pools: &Pools) -> Result<Vec<Job>> {
    let mut rng = Rng::stream(options.seed, 1);
    let first_ms = options.start.to_zoned(TimeZone::UTC).context("--start")?.timestamp().as_millisecond();
    let first_ms = u64::try_from(first_ms).context("--start is before 1970")?;
    let span_ms = (options.days * 86_400_000) as f64;
    let total = options.n + options.exact.len();
    let mut starts: Vec<u64> = (0..total).map(|_| first_ms + (span_ms * rng.unit().powf(0.7)) as u64).collect();
    starts.sort_unstable();

    let mut exact_at = BTreeMap::new();
    for mb in &options.exact {
        let mut at = rng.below(total as u64) as usize;
        while exact_at.contains_key(&at) {
            at = (at + 1) % total;
        }
        exact_at.insert(at, *mb);
    }

    let jobs = starts.into_iter().enumerate().map(|(seq, start_ms)| {
        let format = match options.format {
            FormatChoice::Legacy => Format::Legacy,
            FormatChoice::Paginated => Format::Paginated,
            FormatChoice::Mix if seq * 5 > total * 4 => Format::Paginated,
            FormatChoice::Mix => Format::Legacy,
        };
        let exact = exact_at.get(&seq).copied();
        // Drawn for exact sessions too, so that they do not change what comes after them.
        let usual = (options.median_kb * 1000.0 * rng.log_normal(0.0, options.sigma)).min(options.max_mb * 1e6);
        let cwd = (rng.exponential(0.15) as usize).min(pools.cwds.len() - 1);
        let source =
            ["cli", "cli", "cli", "cli", "cli", "cli", "vscode", "vscode", "vscode", "exec"][rng.below(10) as usize];
        let first: String = rng.pick::<str>(&pools.users).chars().take(200).collect();
        let archived = rng.chance(options.archived) && exact.is_none();
        let compressed = rng.chance(options.zst);
        let name = rng.chance(options.named).then(|| format!("Name {} {seq}", rng.pick::<str>(&pools.words)));
        let plan = Plan {
            seq,
            start_ms,
            format,
            target_bytes: exact.map_or(usual, |mb| mb * 1e6) as u64,
            cwd: pools.cwds[cwd].clone(),
            source,
            provider: options.provider.clone(),
            first,
        };
        Job { plan, archived, compressed, name, exact }
    });
    Ok(jobs.collect())
}

/// Sessions do not depend on each other, so the cores share them; the entries come back in the order of the jobs.
fn write_all(options: &Options, pools: &Pools, jobs: &[Job]) -> Result<Vec<Entry>> {
    let workers = thread::available_parallelism().map_or(1, |n| n.get()).min(jobs.len().max(1));
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done = Mutex::new(Vec::with_capacity(jobs.len()));
    let work = || -> Result<()> {
        let (mut buffer, mut known, mut mine) = (Vec::new(), HashSet::new(), Vec::new());
        while !failed.load(Ordering::Relaxed) {
            let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            match write_session(options, pools, job, &mut buffer, &mut known) {
                Ok(entry) => mine.push(entry),
                Err(error) => {
                    failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        done.lock().expect("no worker panics while it holds this").extend(mine);
        Ok(())
    };
    thread::scope(|scope| -> Result<()> {
        let handles: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        for handle in handles {
            handle.join().expect("a worker panicked")?;
        }
        Ok(())
    })?;
    let mut entries = done.into_inner().expect("the workers are gone");
    entries.sort_unstable_by_key(|e: &Entry| e.seq);
    Ok(entries)
}

fn write_session(
    options: &Options,
    pools: &Pools,
    job: &Job,
    buffer: &mut Vec<u8>,
    known: &mut HashSet<String>,
) -> Result<Entry> {
    let plan = &job.plan;
    buffer.clear();
    let rng = Rng::stream(options.seed, FIRST_SESSION_STREAM + plan.seq as u64);
    let written = session::write(buffer, rng, pools, plan);

    let start = timestamp(plan.start_ms).to_zoned(TimeZone::UTC);
    let dir =
        if job.archived { "archived_sessions".to_owned() } else { start.strftime("sessions/%Y/%m/%d").to_string() };
    let compressed;
    let (data, suffix): (&[u8], _) = if job.compressed {
        compressed = zstd::bulk::compress(buffer, 3).context("cannot compress a session")?;
        (&compressed, ".zst")
    } else {
        (buffer, "")
    };
    let path = format!("{dir}/rollout-{}-{}.jsonl{suffix}", start.strftime("%Y-%m-%dT%H-%M-%S"), written.id);
    if !known.contains(&dir) {
        fs::create_dir_all(options.home.join(&dir)).with_context(|| format!("cannot make {dir}"))?;
        known.insert(dir);
    }
    let full = options.home.join(&path);
    let save = || -> std::io::Result<()> {
        let mut file = File::create(&full)?;
        file.write_all(data)?;
        file.set_modified(UNIX_EPOCH + Duration::from_millis(written.end_ms))
    };
    save().with_context(|| format!("cannot write {}", full.display()))?;

    Ok(Entry {
        seq: plan.seq,
        id: written.id,
        path,
        cwd: plan.cwd.clone(),
        bytes: data.len() as u64,
        turns: written.turns,
        format: plan.format.name().to_owned(),
        ver: written.version.to_owned(),
        source: plan.source.to_owned(),
        archived: job.archived,
        name: job.name.clone(),
        first: plan.first.chars().take(60).collect(),
        needle: plan.needle(),
        zebracorn: plan.has_zebracorn(),
        exact: job.exact,
        created_ms: plan.start_ms,
        mtime: written.end_ms as f64 / 1000.0,
    })
}

fn write_indexes(home: &Path, entries: &[Entry]) -> Result<()> {
    let (mut manifest, mut names) = (Vec::new(), Vec::new());
    for entry in entries {
        serde_json::to_writer(&mut manifest, entry)?;
        manifest.push(b'\n');
        if let Some(name) = &entry.name {
            let updated_at = format!("{:.3}", timestamp(entry.mtime_ms() as u64));
            let line = json!({"id": entry.id, "thread_name": name, "updated_at": updated_at});
            writeln!(names, "{line}")?;
        }
    }
    fs::write(home.join("session_index.jsonl"), names).context("cannot write session_index.jsonl")?;
    fs::write(home.join("manifest.jsonl"), manifest).context("cannot write manifest.jsonl")
}
