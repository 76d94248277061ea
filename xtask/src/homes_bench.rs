//! `homes-bench`: what preparing a task home costs beside a large shared history, with and without an index of that, and
//! what linking all of it would.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::threadkeep::Threadkeep;

#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Rollouts of the shared home
    #[arg(long, default_value_t = 50_000)]
    rollouts: u32,
    /// Bytes of the one that is resumed (a hole but for its head)
    #[arg(long, default_value_t = 4 << 30)]
    bytes: u64,
    /// Where; default: the system's temporary folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// threadkeep binary to time, instead of building the workspace's
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

const RUNS: usize = 7;

pub fn run(options: &Options) -> Result<()> {
    let threadkeep = Threadkeep::find_or_build(options.bin.as_deref())?;
    let base = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let work = base.join(format!("threadkeep-homes-bench-{}", std::process::id()));
    let shared = work.join("shared");
    let id = |n: u32| format!("01990000-0000-7000-8000-{n:012}");
    for n in 0..options.rollouts {
        let day = format!("2026/{:02}/{:02}", n % 12 + 1, n / 12 % 28 + 1);
        let folder = shared.join("sessions").join(&day);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let time = "2026-11-29T10:00:00.000Z";
        let head = format!(
            "{{\"timestamp\":\"{time}\",\"type\":\"session_meta\",\"payload\":{{\"id\":\"{}\",\"timestamp\":\"{time}\",\
             \"cwd\":\"/w\",\"originator\":\"x\",\"cli_version\":\"1\"}}}}\n",
            id(n)
        );
        let path = folder.join(format!("rollout-{}T10-00-00-{}.jsonl", day.replace('/', "-"), id(n)));
        fs::write(&path, head).with_context(|| format!("cannot write {}", path.display()))?;
        if n == options.rollouts / 2 {
            fs::File::options().write(true).open(&path)?.set_len(options.bytes)?;
        }
    }
    let target = id(options.rollouts / 2);
    let prepare = |run: usize, resume: Option<&str>| -> Result<Duration> {
        // An index, where there is one, stays.
        for folder in ["stores", "locks", "tombstones"] {
            let _ = fs::remove_dir_all(shared.join("threadkeep").join(folder));
        }
        let mut command = threadkeep.command();
        command.args(["--json", "home", "prepare", "--issue", "i"]).stdout(Stdio::piped());
        command.arg("--task-home").arg(work.join(format!("t{run}-{}", resume.is_some())));
        command.arg("--shared-home").arg(&shared);
        command.args(resume.iter().flat_map(|id| ["--resume", id]));
        let begun = Instant::now();
        let output = command.output().context("cannot run threadkeep")?;
        let taken = begun.elapsed();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() || resume.is_some() && !text.contains("\"resumed\"") {
            bail!("not prepared: {text}");
        }
        Ok(taken)
    };
    let median = |mut times: Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    let find = |_: usize| -> Result<Duration> {
        let begun = Instant::now();
        let found = Command::new("find").arg(shared.join("sessions")).args(["-name", "*no-such*"]).output()?;
        if !found.status.success() {
            bail!("find failed");
        }
        Ok(begun.elapsed())
    };
    println!("| what | median of {RUNS}, ms |");
    println!("| --- | ---: |");
    let row = |what: &str, time: Duration| println!("| {what} | {:.1} |", time.as_secs_f64() * 1000.0);
    find(0)?;
    row("`find -name`, a walk over the names", median((0..RUNS).map(find).collect::<Result<_>>()?));
    row("a fresh home", median((0..RUNS).map(|n| prepare(n, None)).collect::<Result<_>>()?));
    row("a home that resumes", median((0..RUNS).map(|n| prepare(n, Some(&target))).collect::<Result<_>>()?));
    // The first makes the index, the second has it remember the folders.
    for _ in 0..2 {
        let listed = threadkeep.command().arg("--home").arg(&shared).arg("list").output()?;
        if !listed.status.success() {
            bail!("not listed: {}", String::from_utf8_lossy(&listed.stderr));
        }
    }
    let later = |n: usize| prepare(RUNS + n, Some(&target));
    row("a home that resumes, with an index of the shared home", median((0..RUNS).map(later).collect::<Result<_>>()?));
    row("linking every rollout instead", link_all(&shared.join("sessions"), &work.join("all"))?);
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))
}

fn link_all(from: &Path, to: &Path) -> Result<Duration> {
    fn go(from: &Path, to: &Path) -> Result<()> {
        fs::create_dir(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let to = to.join(entry.file_name());
            if entry.file_type()?.is_dir() { go(&entry.path(), &to)? } else { fs::hard_link(entry.path(), to)? }
        }
        Ok(())
    }
    let begun = Instant::now();
    go(from, to)?;
    Ok(begun.elapsed())
}
