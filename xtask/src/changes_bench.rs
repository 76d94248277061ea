//! `changes-bench`: what archiving and deleting cost in a large home, one thread and a thousand, with an index and without,
//! beside the walk that looks at every file once. The home is a copy whose rollouts are second names of those given.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::threadkeep::Threadkeep;

#[derive(Debug, Clone, Args)]
pub struct Options {
    /// A home made by `gen-home`, on the file system of `--dir`
    #[arg(long, value_name = "DIR")]
    home: PathBuf,
    /// Where the copy is made; default: beside the home
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// threadkeep binary to time, instead of building the workspace's
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

const RUNS: usize = 7;
const MANY: usize = 1000;
/// Between two commands.
const PAUSE: Duration = Duration::from_millis(50);

struct Bench {
    threadkeep: Threadkeep,
    home: PathBuf,
    work: PathBuf,
    /// Threads that are not archived and that no other refers to.
    ids: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let threadkeep = Threadkeep::find_or_build(options.bin.as_deref())?;
    let beside = options.home.parent().context("the home has no folder above it")?.to_owned();
    let work = options.dir.clone().unwrap_or(beside).join(format!("threadkeep-changes-bench-{}", std::process::id()));
    let home = work.join("home");
    for folder in ["sessions", "archived_sessions"] {
        link_all(&options.home.join(folder), &home.join(folder))?;
    }
    let bench = Bench { ids: ids(&threadkeep, &home)?, threadkeep, home, work };
    let measured = bench.measure();
    fs::remove_dir_all(&bench.work).with_context(|| format!("cannot remove {}", bench.work.display()))?;
    measured
}

/// Threads without forks or children, newest first.
fn ids(threadkeep: &Threadkeep, home: &Path) -> Result<Vec<String>> {
    let output = threadkeep.on(home, &["--no-index", "list", "--limit", "1000000", "--exact"]).output()?;
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).context("no list")?;
    let threads = list["threads"].as_array().context("no threads")?;
    let plain = threads.iter().filter(|t| t["children"] == 0 && t["history_mode"] != "paginated");
    Ok(plain.filter_map(|t| t["id"].as_str().map(str::to_owned)).collect())
}

impl Bench {
    fn measure(&self) -> Result<()> {
        println!("| what | index | median of {RUNS}, ms | min | × the walk |");
        println!("| --- | --- | ---: | ---: | ---: |");
        self.walk()?;
        let walk = median((0..RUNS).map(|_| self.walk()).collect::<Result<_>>()?).0;
        println!("| `find -printf '%s%T@%i'` | | {:.1} | | 1 |", ms(walk));
        for index in [true, false] {
            if index {
                let built = self.threadkeep.on(&self.home, &["reindex"]).stdout(Stdio::null()).status()?;
                if !built.success() {
                    bail!("no index");
                }
                // What a later list settles is settled.
                self.run(&["list"], true)?;
                self.run(&["list"], true)?;
            }
            self.one_at_a_time(index, walk)?;
            self.a_thousand(index, walk)?;
        }
        Ok(())
    }

    fn one_at_a_time(&self, index: bool, walk: Duration) -> Result<()> {
        let step = self.ids.len() / (RUNS + 1);
        for (there, back) in [("archive", "unarchive"), ("delete", "restore")] {
            let mut times = (vec![], vec![]);
            for n in 0..RUNS {
                let id = self.ids[(n + 1) * step].as_str();
                times.0.push(self.run(&[there, id, "--yes"], index)?);
                times.1.push(self.run(&[back, id, "--yes"], index)?);
            }
            self.row(&format!("`{there}` one"), index, times.0, walk);
            self.row(&format!("`{back}` one"), index, times.1, walk);
        }
        Ok(())
    }

    fn a_thousand(&self, index: bool, walk: Duration) -> Result<()> {
        let file = self.work.join("ids");
        let many = &self.ids[..MANY.min(self.ids.len())];
        fs::write(&file, many.join("\n"))?;
        let file = file.to_string_lossy().into_owned();
        for (there, back) in [("archive", "unarchive"), ("delete", "restore")] {
            let mut times = (vec![], vec![]);
            for _ in 0..3 {
                times.0.push(self.run(&[there, "--ids-file", &file, "--yes"], index)?);
                times.1.push(self.run(&[back, "--ids-file", &file, "--yes"], index)?);
            }
            self.row(&format!("`{there}` {}", many.len()), index, times.0, walk);
            self.row(&format!("`{back}` {}", many.len()), index, times.1, walk);
        }
        Ok(())
    }

    fn row(&self, what: &str, index: bool, times: Vec<Duration>, walk: Duration) {
        let (median, min) = median(times);
        let index = if index { "whole" } else { "none" };
        let ratio = median.as_secs_f64() / walk.as_secs_f64();
        println!("| {what} | {index} | {:.1} | {:.1} | {ratio:.2} |", ms(median), ms(min));
    }

    /// Runs the command and checks that it did what it was to do.
    fn run(&self, args: &[&str], index: bool) -> Result<Duration> {
        let args: Vec<&str> = if index { args.to_vec() } else { [&["--no-index"], args].concat() };
        // Files that changed just before cannot be told from such that change again, which costs another look. People do
        // not type so fast.
        std::thread::sleep(PAUSE);
        let mut command = self.threadkeep.on(&self.home, &args);
        let begun = Instant::now();
        let output = command.output().context("cannot run threadkeep")?;
        let taken = begun.elapsed();
        if !output.status.success() {
            bail!("{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(taken)
    }

    fn walk(&self) -> Result<Duration> {
        let begun = Instant::now();
        let found = Command::new("find")
            .args(["sessions", "archived_sessions", "-type", "f", "-printf", "%s%T@%i"])
            .current_dir(&self.home)
            .output()?;
        if !found.status.success() {
            bail!("find failed");
        }
        Ok(begun.elapsed())
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn median(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    (times[times.len() / 2], times[0])
}

fn link_all(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            link_all(&entry.path(), &to)?;
        } else {
            fs::hard_link(entry.path(), to)?;
        }
    }
    Ok(())
}
