//! What can be asked of `threadkeep home`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use threadkeep_agent_home::shared::SharedHome;
use threadkeep_agent_home::watch::Unwatched;
use threadkeep_agent_home::{ConversationKind, StoreKey};

use crate::args::{Global, default_home};
use crate::fail::{Failure, Kind};

#[derive(Debug, Args)]
pub struct HomeArgs {
    #[command(subcommand)]
    pub command: HomeCommand,
}

#[derive(Debug, Subcommand)]
pub enum HomeCommand {
    /// Prepare a home for a task, and tell what came of it
    Prepare(PrepareArgs),
    /// Run a command in a prepared home and hold its store meanwhile
    Run(RunArgs),
    /// Tell whether a thread's rollout is in a task home
    Present(PresentArgs),
    /// List session stores
    List(ListArgs),
    /// Show one session store
    Show(KeyArgs),
    /// Remove session stores that nobody needs any more
    Prune(PruneArgs),
    /// Keep a session store whatever its age
    Pin(PinArgs),
    /// Take the pin off a session store
    Unpin(KeyArgs),
    /// Move a conversation from one key to another, whole
    Rekey(RekeyArgs),
}

/// Where stores are, and whose.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// The user's own Codex home. Default: --home, else CODEX_HOME, else ~/.codex
    #[arg(long, value_name = "DIR")]
    pub shared_home: Option<PathBuf>,
    /// Profile of the daemon; profiles have stores of their own
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
}

/// Which conversation.
#[derive(Debug, Clone, Default, Args)]
#[command(group = ArgGroup::new("conversation").multiple(false))]
pub struct Conversation {
    /// Agent; agents have stores of their own
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// Issue that the task works on
    #[arg(long, value_name = "ID", group = "conversation")]
    pub issue: Option<String>,
    /// Chat that the task answers in
    #[arg(long, value_name = "ID", group = "conversation")]
    pub chat: Option<String>,
    /// Quick request; its threads go along when an issue is made of it
    #[arg(long, value_name = "ID", group = "conversation")]
    pub quick: Option<String>,
    /// Run that nobody asked for by hand
    #[arg(long, value_name = "ID", group = "conversation")]
    pub autopilot: Option<String>,
}

#[derive(Debug, Args)]
pub struct PrepareArgs {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub conversation: Conversation,
    /// Home to prepare; made where it is not there
    #[arg(long, value_name = "DIR", required_unless_present = "stdin")]
    pub task_home: Option<PathBuf>,
    /// Thread to resume
    #[arg(long, value_name = "THREAD")]
    pub resume: Option<String>,
    /// The task runs in a person's directory: sessions of the home's own go into the store
    #[arg(long)]
    pub local_directory: bool,
    /// Whether what the task says is also the person's history
    #[arg(long, value_name = "HOW", value_enum)]
    pub expose: Option<Expose>,
    /// Copy a rollout of at most so many bytes where it can be exposed in no other way
    #[arg(long, value_name = "BYTES")]
    pub allow_copy: Option<u64>,
    /// Move the sessions of a multica-sessions store into the store
    #[arg(long)]
    pub adopt: bool,
    /// Set a value in the task's config.toml; may be given more than once
    #[arg(short = 'c', long = "config", value_name = "KEY=VALUE")]
    pub config: Vec<String>,
    /// Read the request as one JSON object from standard input; its names are those of the options
    #[arg(long, conflicts_with_all = ["task_home", "resume", "conversation", "agent", "local_directory", "expose", "allow_copy", "adopt", "config"])]
    pub stdin: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Expose {
    /// One file, seen from both sides
    Shared,
    /// A file of the task's own that shares blocks with the person's
    Isolated,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub place: Place,
    /// Home that was prepared
    #[arg(long, value_name = "DIR")]
    pub task_home: PathBuf,
    /// Command, with its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct PresentArgs {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub conversation: Conversation,
    /// Home to look in; without it, the store of the conversation
    #[arg(long, value_name = "DIR")]
    pub task_home: Option<PathBuf>,
    /// Thread
    #[arg(value_name = "THREAD", required_unless_present = "thread_option")]
    pub thread: Option<String>,
    /// Thread
    #[arg(long = "thread", alias = "resume", value_name = "THREAD", conflicts_with = "thread")]
    pub thread_option: Option<String>,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub place: Place,
}

#[derive(Debug, Args)]
pub struct KeyArgs {
    #[command(flatten)]
    pub place: Place,
    #[command(flatten)]
    pub conversation: Conversation,
}

#[derive(Debug, Args)]
pub struct PinArgs {
    #[command(flatten)]
    pub key: KeyArgs,
    /// Why, for whoever reads the plan of a clean-up
    #[arg(long, value_name = "TEXT")]
    pub why: Option<String>,
}

#[derive(Debug, Args)]
pub struct PruneArgs {
    #[command(flatten)]
    pub place: Place,
    /// Remove stores that were not used for so long (14d, 12h, 30m, 90s); 0 removes nothing
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub retention: Option<Duration>,
    /// Remove the least recently used until all take no more than this (bytes, or 500M, 20G); 0 removes nothing
    #[arg(long, value_name = "N", value_parser = bytes)]
    pub max_bytes: Option<u64>,
    /// Show what would be removed, and why the rest is kept
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct RekeyArgs {
    #[command(flatten)]
    pub place: Place,
    /// Agent of the conversation
    #[arg(long, value_name = "ID")]
    pub agent: Option<String>,
    /// Agent that it goes to, if another
    #[arg(long, value_name = "ID")]
    pub to_agent: Option<String>,
    /// Key that it has: issue:ID, chat:ID, quick:ID, autopilot:ID
    #[arg(long, value_name = "KIND:ID", value_parser = kind_and_id)]
    pub from: (ConversationKind, String),
    /// Key that it gets
    #[arg(long, value_name = "KIND:ID", value_parser = kind_and_id)]
    pub to: (ConversationKind, String),
}

impl HomeCommand {
    /// Where the command works, whichever it is.
    pub fn place_mut(&mut self) -> &mut Place {
        match self {
            Self::Prepare(a) => &mut a.place,
            Self::Run(a) => &mut a.place,
            Self::Present(a) => &mut a.place,
            Self::List(a) => &mut a.place,
            Self::Show(a) | Self::Unpin(a) => &mut a.place,
            Self::Prune(a) => &mut a.place,
            Self::Pin(a) => &mut a.key.place,
            Self::Rekey(a) => &mut a.place,
        }
    }
}

/// Whether two paths are one folder, as far as that can be told without making them.
fn is_same_folder(a: &Path, b: &Path) -> bool {
    let real = |p: &Path| std::fs::canonicalize(p).or_else(|_| std::path::absolute(p)).unwrap_or_else(|_| p.to_owned());
    real(a) == real(b)
}

impl Place {
    /// Takes the home that was given for any command as the shared one. An option that means nothing here is refused: what
    /// it was meant to protect or to choose would silently be another home.
    pub fn take_global(&mut self, global: &Global) -> Result<(), Failure> {
        if global.sqlite_home.is_some() {
            return Err(Failure::new(Kind::Usage, "--sqlite-home means nothing to home commands")
                .hint("they work on rollouts, which are in the shared home"));
        }
        match global.home.as_slice() {
            [] => Ok(()),
            [home] => self.take_shared(home, "--home"),
            _ => Err(Failure::new(Kind::Usage, "home commands work on one shared home, and several are given")
                .hint("give it once, with --shared-home DIR")),
        }
    }

    /// Takes a shared home that was given in another way. Two that differ are refused.
    pub fn take_shared(&mut self, home: &Path, given: &str) -> Result<(), Failure> {
        match &self.shared_home {
            Some(shared) if !is_same_folder(shared, home) => {
                let both = format!("{} and {}", shared.display(), home.display());
                Err(Failure::new(Kind::Usage, format!("two shared homes are given: {both}"))
                    .hint(format!("leave out {given}, or give the same folder")))
            }
            Some(_) => Ok(()),
            None => {
                self.shared_home = Some(home.to_owned());
                Ok(())
            }
        }
    }

    /// The shared home's folder.
    pub fn shared_path(&self) -> Result<PathBuf, Failure> {
        match &self.shared_home {
            Some(path) => Ok(path.clone()),
            None => default_home(),
        }
    }

    /// The shared home, which has to be there.
    pub fn shared(&self) -> Result<SharedHome, Failure> {
        Ok(SharedHome::open(&self.shared_path()?, Arc::new(Unwatched))?)
    }

    pub fn profile(&self) -> String {
        self.profile.clone().unwrap_or_default()
    }
}

impl Conversation {
    /// Its key, if one was given. An empty id is none.
    pub fn key(&self, profile: String) -> Option<StoreKey> {
        let given = [
            (ConversationKind::Issue, &self.issue),
            (ConversationKind::Chat, &self.chat),
            (ConversationKind::Quick, &self.quick),
            (ConversationKind::Autopilot, &self.autopilot),
        ];
        let (kind, id) =
            given.into_iter().find_map(|(kind, id)| Some((kind, id.clone().filter(|i| !i.is_empty())?)))?;
        Some(StoreKey { profile, agent: self.agent.clone().unwrap_or_default(), kind, id })
    }
}

impl KeyArgs {
    pub fn key(&self) -> Result<StoreKey, Failure> {
        self.conversation.key(self.place.profile()).ok_or_else(|| {
            Failure::new(Kind::Usage, "no conversation is given")
                .hint("give --issue, --chat, --quick or --autopilot, and --agent")
        })
    }
}

fn kind_and_id(text: &str) -> Result<(ConversationKind, String), String> {
    let (kind, id) = text.split_once(':').ok_or("not KIND:ID")?;
    let kind = ConversationKind::from_word(kind).ok_or("the kind is issue, chat, quick or autopilot")?;
    if id.is_empty() { Err("the id is empty".into()) } else { Ok((kind, id.to_owned())) }
}

/// `0`, or a whole number with a unit. Anything else is refused: a wrong retention must never be taken for a short one.
fn duration(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or("a number needs a unit: d, h, m or s")?;
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "not a time")?;
    let seconds = match unit {
        "d" => 86_400,
        "h" => 3_600,
        "m" => 60,
        "s" => 1,
        _ => return Err("the unit is d, h, m or s".into()),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| "too long".into())
}

fn bytes(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: u64 = number.parse().map_err(|_| "not a number of bytes")?;
    let factor = match unit {
        "" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        _ => return Err("the unit is K, M, G or T".into()),
    };
    number.checked_mul(factor).ok_or_else(|| "too many".into())
}
