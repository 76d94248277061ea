//! `homes`: very many processes prepare, run, resume and clean up at once, some are killed, and nothing may be lost.
//!
//! Three daemons (two of one profile, one of another) work on 20 conversations each. Half of these are pinned: what was
//! written in them must be there at the end. The others are cleaned up with a retention of a second, which must never
//! take a store that an agent works in: each agent looks at the end whether its rollout still is there.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::gen_home::rng::Rng;
use crate::threadkeep::Threadkeep;

#[derive(Debug, Clone, Args)]
pub struct Options {
    /// For how long
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Processes at a time
    #[arg(long, default_value_t = 200)]
    processes: usize,
    /// Conversations of a profile
    #[arg(long, default_value_t = 20)]
    conversations: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where; memory, where the system has such a place
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// threadkeep binary to test, instead of building the workspace's
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

/// No process may take longer, however many there are: one that does waits for something that never comes.
const STUCK: Duration = Duration::from_secs(120);

const DAEMONS: [&str; 3] = ["one", "one", "two"];

/// What an agent does: it begins a rollout, works, and looks whether that still is there. A line in the ledger says that
/// the rollout was written before.
const AGENT: &str = r#"
folder="$CODEX_HOME/sessions/2026/11/30"
mkdir -p "$folder" || { echo "no sessions: $KEY" >> "$WORK/broken"; exit 0; }
file="$folder/rollout-2026-11-30T10-00-00-$THREAD.jsonl"
printf '{"timestamp":"2026-11-30T10:00:00.000Z","type":"session_meta","payload":{"id":"%s","timestamp":"2026-11-30T10:00:00.000Z","cwd":"/w","originator":"x","cli_version":"1"}}\n' "$THREAD" > "$file"
echo "$KEY $THREAD" >> "$WORK/ledger"
sleep "$PAUSE"
printf '{"timestamp":"2026-11-30T10:00:01.000Z","type":"event_msg","payload":{"type":"user_message","message":"hello"}}\n' >> "$file"
[ "$(wc -l < "$file")" = 2 ] || echo "a rollout went while it was written: $KEY $THREAD" >> "$WORK/broken"
"#;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Job {
    Prepare { resume: bool },
    Run { thread: String },
    Prune,
    List,
    Rekey,
}

struct Slot {
    child: Child,
    job: Job,
    daemon: usize,
    conversation: u64,
    home: PathBuf,
    /// What it prints: a pipe would fill up while nobody reads it.
    output: PathBuf,
    started: Instant,
    killed: bool,
    kill_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct Counts {
    done: BTreeMap<&'static str, u64>,
}

impl Counts {
    fn add(&mut self, what: &'static str, n: u64) {
        *self.done.entry(what).or_default() += n;
    }

    fn of(&self, what: &str) -> u64 {
        self.done.get(what).copied().unwrap_or(0)
    }
}

struct Campaign<'o> {
    options: &'o Options,
    threadkeep: Threadkeep,
    work: PathBuf,
    rng: Rng,
    counts: Counts,
    /// Threads whose agent ended well, by daemon's profile and conversation.
    known: BTreeMap<(&'static str, u64), Vec<String>>,
    homes: u64,
    threads: u64,
    outputs: u64,
    failures: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let threadkeep = Threadkeep::find_or_build(options.bin.as_deref())?;
    let base = options.dir.clone().unwrap_or_else(|| {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() }
    });
    let work = base.join(format!("threadkeep-homes-{}", std::process::id()));
    fs::create_dir_all(work.join("shared/sessions")).with_context(|| format!("cannot make {}", work.display()))?;
    let mut campaign = Campaign {
        options,
        threadkeep,
        work: work.clone(),
        rng: Rng::stream(options.seed, 0),
        counts: Counts::default(),
        known: BTreeMap::new(),
        homes: 0,
        threads: 0,
        outputs: 0,
        failures: vec![],
    };
    campaign.pin_half()?;
    campaign.go()?;
    campaign.check()?;
    for (what, n) in &campaign.counts.done {
        println!("{n:>8} {what}");
    }
    if !campaign.failures.is_empty() {
        for failure in campaign.failures.iter().take(20) {
            println!("WRONG: {failure}");
        }
        bail!("{} things went wrong; everything is kept in {}", campaign.failures.len(), work.display());
    }
    for what in ["prepared", "resumed", "agents", "stores removed", "killed"] {
        if campaign.counts.of(what) == 0 && options.seconds >= 10 {
            bail!("nothing was {what}: the campaign proves nothing");
        }
    }
    println!("nothing lost, nothing held was removed, nobody waited for ever");
    fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))
}

fn pinned(conversation: u64) -> bool {
    conversation.is_multiple_of(2)
}

impl Campaign<'_> {
    fn home_command(&self, words: &[&str]) -> std::process::Command {
        let mut command = self.threadkeep.command();
        command.arg("home").arg("--json").args(words).stdin(Stdio::null());
        command
    }

    fn pin_half(&mut self) -> Result<()> {
        for profile in ["one", "two"] {
            for conversation in (0..self.options.conversations).filter(|c| pinned(*c)) {
                let issue = format!("i{conversation}");
                let home = self.work.join("setup").join(profile).join(&issue);
                let (home, shared) = (home.to_string_lossy().into_owned(), self.shared());
                let key = ["--shared-home", &shared, "--profile", profile, "--issue", &issue];
                for words in [vec!["prepare", "--task-home", &home], vec!["pin"]] {
                    let output = self.home_command(&words).args(key).output().context("cannot run threadkeep")?;
                    if !output.status.success() {
                        bail!("{words:?}: {}", String::from_utf8_lossy(&output.stderr));
                    }
                }
            }
        }
        Ok(())
    }

    fn shared(&self) -> String {
        self.work.join("shared").to_string_lossy().into_owned()
    }

    fn go(&mut self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(self.options.seconds);
        let mut slots: Vec<Slot> = Vec::new();
        while Instant::now() < end || !slots.is_empty() {
            while slots.len() < self.options.processes && Instant::now() < end {
                let slot = self.start(None)?;
                slots.push(slot);
            }
            let mut next = Vec::new();
            let mut i = 0;
            while i < slots.len() {
                let now = Instant::now();
                let slot = &mut slots[i];
                if slot.kill_at.is_some_and(|at| at <= now) && !slot.killed {
                    slot.killed = true;
                    self.counts.add("killed", 1);
                    slot.child.kill().context("cannot kill")?;
                }
                if let Some(status) = slot.child.try_wait()? {
                    let mut slot = slots.swap_remove(i);
                    let code = status.code();
                    if let Some(follow) = self.finished(&mut slot, code)? {
                        next.push(follow);
                    }
                    continue;
                }
                if slot.started.elapsed() > STUCK {
                    self.failures.push(format!("{:?} of conversation {} did not end", slot.job, slot.conversation));
                    slot.child.kill().context("cannot kill")?;
                    slot.child.wait()?;
                    slots.swap_remove(i);
                    continue;
                }
                i += 1;
            }
            for (job, daemon, conversation, home) in next {
                if Instant::now() < end {
                    slots.push(self.start(Some((job, daemon, conversation, home)))?);
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn start(&mut self, follow: Option<(Job, usize, u64, PathBuf)>) -> Result<Slot> {
        let (job, daemon, conversation, home) = match follow {
            Some(follow) => follow,
            None => {
                let daemon = self.rng.below(DAEMONS.len() as u64) as usize;
                let conversation = self.rng.below(self.options.conversations);
                let job = match self.rng.below(20) {
                    0..=8 => Job::Prepare { resume: false },
                    9..=15 => Job::Prepare { resume: true },
                    16..=17 => Job::Prune,
                    18 => Job::List,
                    _ => Job::Rekey,
                };
                self.homes += 1;
                (job, daemon, conversation, self.work.join(format!("daemon-{daemon}/t{}", self.homes)))
            }
        };
        let (shared, profile) = (self.shared(), DAEMONS[daemon]);
        let (issue, home_text) = (format!("i{conversation}"), home.to_string_lossy().into_owned());
        let mut words: Vec<String> = Vec::new();
        let mut say = |all: &[&str]| words.extend(all.iter().map(|w| (*w).to_owned()));
        let place = ["--shared-home", &*shared, "--profile", profile];
        match &job {
            Job::Prepare { resume } => {
                say(&["prepare", "--task-home", &home_text, "--issue", &issue]);
                say(&place);
                let known = self.known.get(&(profile, conversation));
                if let Some(known) = known.filter(|k| *resume && !k.is_empty()) {
                    let id = &known[self.rng.below(known.len() as u64) as usize];
                    say(&["--resume", id]);
                }
            }
            Job::Run { .. } => {
                say(&["run", "--task-home", &home_text]);
                say(&place);
                say(&["--", "sh", "-c", AGENT]);
            }
            Job::Prune => {
                say(&["prune", "--retention", "1s", "--yes"]);
                say(&place);
            }
            Job::List => {
                say(&["list"]);
                say(&place);
            }
            Job::Rekey => {
                // A conversation that nobody pinned goes to another key and back by name: both are cleaned up.
                let odd = conversation | 1;
                let (from, to) = (format!("issue:i{odd}"), format!("chat:c{odd}"));
                say(&["rekey", "--from", &from, "--to", &to]);
                say(&place);
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = self.home_command(&words);
        self.outputs += 1;
        let output = self.work.join(format!("output-{}", self.outputs));
        let file = |end: &str| fs::File::create(output.with_extension(end)).context("cannot keep what is printed");
        command
            .stdout(file("out")?)
            .stderr(file("err")?)
            .env("WORK", &self.work)
            .env("KEY", format!("{profile} {conversation}"));
        if let Job::Run { thread } = &job {
            // Some work for longer than the retention, and are then kept by nothing but the lock.
            let long = if self.rng.below(4) == 0 { 1 + self.rng.below(2) } else { 0 };
            let pause = format!("{long}.{:02}", self.rng.below(40));
            command.env("THREAD", thread).env("PAUSE", pause).stdout(Stdio::null()).stderr(Stdio::null());
        }
        let kill_at = (self.rng.below(12) == 0).then(|| Instant::now() + Duration::from_millis(self.rng.below(400)));
        let child = command.spawn().context("cannot start threadkeep")?;
        Ok(Slot { child, job, daemon, conversation, home, output, started: Instant::now(), killed: false, kill_at })
    }

    fn finished(&mut self, slot: &mut Slot, code: Option<i32>) -> Result<Option<(Job, usize, u64, PathBuf)>> {
        let read = |end: &str| -> Result<String> {
            let path = slot.output.with_extension(end);
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            fs::remove_file(path)?;
            Ok(text)
        };
        let (text, errors) = (read("out")?, read("err")?);
        if slot.killed {
            return Ok(None);
        }
        let key = (DAEMONS[slot.daemon], slot.conversation);
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let what = format!("{:?} of {key:?} ended with {code:?}: {errors}", slot.job);
        match (&slot.job, code) {
            (Job::Prepare { .. }, Some(0)) => {
                self.counts.add("prepared", 1);
                match (answer["outcome"].as_str(), answer["thread_id"].is_string()) {
                    (Some("resumed"), true) => self.counts.add("resumed", 1),
                    (Some("fresh"), false) => {}
                    (Some("resume_unavailable"), true) if !pinned(slot.conversation) => {
                        self.counts.add("not resumable, cleaned up before", 1);
                    }
                    _ => self.failures.push(format!("{what}: {answer}")),
                }
                self.threads += 1;
                let thread = format!("01990000-0000-7000-8000-{:012}", self.threads);
                return Ok(Some((Job::Run { thread }, slot.daemon, slot.conversation, slot.home.clone())));
            }
            (Job::Run { thread }, Some(0)) => {
                self.counts.add("agents", 1);
                self.known.entry(key).or_default().push(thread.clone());
            }
            (Job::Run { .. }, Some(1 | 3)) if !pinned(slot.conversation) => {
                self.counts.add("runs told that the store is gone", 1);
            }
            (Job::Prune, Some(0)) => {
                self.counts.add("clean-ups", 1);
                self.counts.add("stores removed", answer["removed"].as_u64().unwrap_or(0));
                self.counts.add("kept because held", held(&answer));
            }
            (Job::List, Some(0)) => self.counts.add("lists", 1),
            (Job::Rekey, Some(0)) => self.counts.add("re-keyed", 1),
            (Job::Rekey, Some(1 | 3)) => self.counts.add("re-keyings refused", 1),
            (Job::Prepare { .. } | Job::Prune, Some(3)) => self.counts.add("refused, in use", 1),
            _ => self.failures.push(what),
        }
        Ok(None)
    }

    fn check(&mut self) -> Result<()> {
        // Agents whose wrapper was killed may still be at it.
        std::thread::sleep(Duration::from_secs(4));
        if let Ok(text) = fs::read_to_string(self.work.join("broken")) {
            self.failures.extend(text.lines().map(str::to_owned));
        }
        let ledger = fs::read_to_string(self.work.join("ledger")).unwrap_or_default();
        for line in ledger.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [profile, conversation, thread] = words.as_slice() else { continue };
            if !conversation.parse().is_ok_and(pinned) {
                continue;
            }
            let path = self.work.join(format!(
                "shared/threadkeep/stores/p-{profile}/none/issue-i{conversation}/sessions/2026/11/30/rollout-2026-11-30T10-00-00-{thread}.jsonl"
            ));
            match fs::read_to_string(&path) {
                Ok(text) if text.contains(thread) => self.counts.add("rollouts of pinned stores checked", 1),
                Ok(_) => self.failures.push(format!("cut: {}", path.display())),
                Err(e) => self.failures.push(format!("lost: {}: {e}", path.display())),
            }
        }
        let mut log = OpenOptions::new().create(true).append(true).open(self.work.join("counts"))?;
        writeln!(log, "{:?}", self.counts)?;
        Ok(())
    }
}

fn held(answer: &Value) -> u64 {
    let plan = answer["plan"].as_array();
    plan.map_or(0, |p| p.iter().filter(|d| d["because"].as_str().is_some_and(|b| b.starts_with("held"))).count() as u64)
}
