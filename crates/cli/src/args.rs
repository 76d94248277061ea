//! What can be asked on the command line.

mod change;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use threadkeep_local::{IndexPlace, LocalStore};
use threadkeep_record::UtcMillis;
use threadkeep_rollout::Home;
use threadkeep_store::{Direction, Include, ListQuery, SortKey};

use crate::fail::{Failure, Kind};
use crate::time_arg;
pub use change::{ChangeArgs, EmptyArgs, RestoreArgs, RevertArgs, TrashArgs, TrashCommand};

/// Find, read and keep the threads of coding agents.
///
/// Works on the homes that Codex writes (~/.codex), of any version, healthy or damaged, beside a running Codex. Reading
/// commands take no lock of Codex's and write nothing but their own index.
#[derive(Debug, Parser)]
#[command(
    name = "threadkeep",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Args)]
pub struct Global {
    /// Home to work on; may be given more than once. Default: CODEX_HOME, else ~/.codex
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long = "json", global = true)]
    json: bool,
    /// Print one JSON object a row (list, search, show)
    #[arg(long = "jsonl", global = true, conflicts_with = "json")]
    pub jsonl: bool,
    /// Folder of Codex's databases, where it is not the home
    #[arg(long, global = true, value_name = "DIR")]
    pub sqlite_home: Option<PathBuf>,
    /// Folder of the indexes, where they are not to be in the homes
    #[arg(long, global = true, value_name = "DIR", env = "THREADKEEP_INDEX_DIR")]
    pub index_dir: Option<PathBuf>,
    /// Neither use nor write an index
    #[arg(long, global = true, env = "THREADKEEP_NO_INDEX", value_parser = clap::builder::FalseyValueParser::new())]
    pub no_index: bool,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// List threads, newest first
    List(ListArgs),
    /// Find where something was said
    Search(SearchArgs),
    /// Read a conversation
    Show(ShowArgs),
    /// Tell where a thread is, what each source says of it, what hides it and what is damaged
    Why(WhyArgs),
    /// Tell what a home holds: bytes by kind of record, repeated content, the largest threads, damage
    Stats,
    /// Tell what to run to continue a thread
    Resume(ResumeArgs),
    /// Give a thread a name, or take it away
    Rename(RenameArgs),
    /// Make a thread with the history of another
    Fork(ForkArgs),
    /// Put threads into the archive
    Archive(ChangeArgs),
    /// Take threads out of the archive
    Unarchive(ChangeArgs),
    /// Put threads into the trash, from which they can be restored
    Delete(ChangeArgs),
    /// Write forks as threads that need no other, so that the threads they were forked from can go
    Detach(ChangeArgs),
    /// Take threads out of the trash, as they were
    Restore(RestoreArgs),
    /// What is in the trash, and emptying it
    Trash(TrashArgs),
    /// Take the last turns of a thread back
    Revert(RevertArgs),
    /// Build the index anew from the files, and tell what changed; nothing ever needs it
    Reindex(ReindexArgs),
    /// Homes of agent tasks: prepare, run, resume, clean up
    Home(crate::cmd::home::args::HomeArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Print the man page
    Man,
}

#[derive(Debug, Args)]
pub struct ReindexArgs {
    /// Only tell what would change
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct RenameArgs {
    /// The thread: id, unique prefix of one, or name
    pub thread: String,
    /// The new name
    #[arg(required_unless_present = "clear", conflicts_with = "clear")]
    pub name: Option<String>,
    /// Take the name away
    #[arg(long)]
    pub clear: bool,
    /// Only show what would be done
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct ForkArgs {
    /// The thread: id, unique prefix of one, or name
    pub thread: String,
    /// Take the history up to and with this turn (number or id)
    #[arg(long, value_name = "TURN", conflicts_with = "before_turn")]
    pub through_turn: Option<String>,
    /// Take the history up to this turn, without it (number or id)
    #[arg(long, value_name = "TURN")]
    pub before_turn: Option<String>,
    /// Give the fork a name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Only show what would be done
    #[arg(long)]
    pub dry_run: bool,
}

/// Which threads.
#[derive(Debug, Args)]
pub struct FilterArgs {
    /// Only threads of exactly this directory (links are resolved)
    #[arg(long, value_name = "PATH")]
    pub cwd: Option<PathBuf>,
    /// Only threads of this source: cli, vscode, exec, mcp, subagent, review, …
    #[arg(long, value_name = "SOURCE", value_delimiter = ',')]
    pub source: Vec<String>,
    /// Only threads of this model provider
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub provider: Vec<String>,
    /// Only threads that this program asked for
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub originator: Vec<String>,
    /// Only threads whose last model is this one
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub model: Vec<String>,
    /// Only threads updated at or after this time: 2026-11-30, 2026-11-30T12:00:00Z, or 3d for three days ago
    #[arg(long, value_name = "TIME", value_parser = time_arg::parse)]
    pub since: Option<UtcMillis>,
    /// Only threads updated before this time
    #[arg(long, value_name = "TIME", value_parser = time_arg::parse)]
    pub until: Option<UtcMillis>,
    /// Only threads with a name
    #[arg(long)]
    pub named: bool,
    /// Only archived threads
    #[arg(long)]
    pub archived: bool,
    /// Only threads on this git branch
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// Only threads that changed this file: an absolute path, or the end of one (src/main.rs)
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// Only threads whose name or preview holds this text
    #[arg(long = "match", value_name = "TEXT")]
    pub matching: Option<String>,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Also show these kinds
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum)]
    pub include: Vec<Kind4>,
    /// Show every kind
    #[arg(long)]
    pub all: bool,
    /// Order by this time
    #[arg(long, value_enum, default_value = "updated")]
    pub sort: Sort,
    /// Oldest first
    #[arg(long)]
    pub asc: bool,
    /// Threads a page
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = page_size)]
    pub limit: usize,
    /// Continue behind a page
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Read the end of every file, so that the order is exact whatever the files' times say
    #[arg(long)]
    pub exact: bool,
    /// Also tell what needs every file, or whole large ones: totals, turns, tokens
    #[arg(long)]
    pub count: bool,
}

#[derive(Debug, Args)]
pub struct SearchArgs {
    /// The text, taken literally; letters match in any case
    #[arg(value_name = "TERM")]
    pub term: Option<String>,
    /// Only what these said: user, agent, reasoning, tool_call, tool_output, patch, plan, name
    #[arg(long = "in", value_name = "SPEAKERS", value_delimiter = ',')]
    pub speakers: Vec<String>,
    /// Only this thread (id, prefix, name or path); may be given more than once
    #[arg(long, value_name = "ID")]
    pub thread: Vec<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Also given to list; a search always looks in every kind
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum, hide = true)]
    pub include: Vec<Kind4>,
    /// Also given to list; a search always looks in every kind
    #[arg(long, hide = true)]
    pub all: bool,
    /// Letters must have the same case
    #[arg(long)]
    pub case_sensitive: bool,
    /// Hits a page
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = page_size)]
    pub limit: usize,
    /// Continue behind a page
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
    /// Also count the threads with a hit, which scans everything
    #[arg(long)]
    pub count: bool,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Id, unique prefix of an id, name, or path of a rollout
    #[arg(value_name = "ID|NAME|PREFIX|PATH")]
    pub thread: String,
    /// Only this turn
    #[arg(long, value_name = "N", conflicts_with_all = ["last", "cursor", "raw"])]
    pub turn: Option<u64>,
    /// Only the last turns
    #[arg(long, value_name = "N", conflicts_with_all = ["cursor", "raw"])]
    pub last: Option<usize>,
    /// Whole outputs, and what programs put into the conversation
    #[arg(long)]
    pub full: bool,
    /// The exact bytes of the thread's own files (decompressed)
    #[arg(long, conflicts_with = "full")]
    pub raw: bool,
    /// Turns a page (with --json; 50 there)
    #[arg(long, value_name = "N", value_parser = page_size)]
    pub limit: Option<usize>,
    /// Continue behind a page
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// Id, unique prefix of an id, name, or path of a rollout
    #[arg(value_name = "ID|NAME|PREFIX|PATH")]
    pub thread: String,
    /// Damaged places to tell one by one; all are counted
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = page_size)]
    pub limit: usize,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Id, unique prefix of an id, name, or path of a rollout
    #[arg(value_name = "ID")]
    pub thread: String,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Kinds that a list leaves out by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Kind4 {
    /// Runs of codex exec and other programs
    Exec,
    /// Threads that another thread started, and reviews
    #[value(alias = "subagent")]
    Subagents,
    /// Threads in which nothing was said or done
    Empty,
    /// Archived threads
    Archived,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// When it was created
    #[value(alias = "created_at")]
    Created,
    /// When it was last written to
    #[value(alias = "updated_at")]
    Updated,
    /// When its last turn started
    #[value(alias = "recency_at")]
    Recency,
}

impl Global {
    /// Whether answers and failures are JSON.
    pub fn json(&self) -> bool {
        self.json || self.jsonl
    }

    /// The homes, as absolute paths. One that does not exist is a failure that names it.
    pub fn homes(&self) -> Result<Vec<Home>, Failure> {
        let given: Vec<PathBuf> = if self.home.is_empty() { vec![default_home()?] } else { self.home.clone() };
        let mut homes = Vec::new();
        for dir in given {
            let path = std::path::absolute(&dir).unwrap_or(dir);
            match std::fs::metadata(&path) {
                Ok(m) if m.is_dir() => homes.push(Home::new(path)),
                Ok(_) => return Err(Failure::new(Kind::Failed, "the home is not a directory").path(&path)),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                    return Err(Failure::new(Kind::NotFound, "there is no Codex home here")
                        .path(&path)
                        .hint("give its directory with --home, or set CODEX_HOME"));
                }
                Err(e) => return Err(Failure::new(Kind::Failed, format!("cannot read the home: {e}")).path(&path)),
            }
        }
        Ok(homes)
    }

    /// A store over the homes.
    pub fn store(&self) -> Result<LocalStore, Failure> {
        Ok(LocalStore::new(self.homes()?, self.sqlite_home.clone()))
    }

    /// The same with the indexes of the homes.
    pub fn indexed_store(&self) -> Result<LocalStore, Failure> {
        let store = self.store()?;
        Ok(if self.no_index { store } else { store.with_index(self.index_place()) })
    }

    /// Where the indexes are.
    pub fn index_place(&self) -> IndexPlace {
        self.index_dir.clone().map_or(IndexPlace::Home, IndexPlace::Dir)
    }
}

/// A page has at least one row.
fn page_size(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a page has at least 1".into()),
        Ok(n) if n > 1_000_000 => Err("at most 1000000".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("not a number of rows".into()),
    }
}

/// CODEX_HOME, else ~/.codex.
pub fn default_home() -> Result<PathBuf, Failure> {
    if let Some(home) = std::env::var_os("CODEX_HOME").filter(|v| !v.is_empty()) {
        return Ok(home.into());
    }
    match std::env::home_dir() {
        Some(dir) => Ok(dir.join(".codex")),
        None => Err(Failure::new(Kind::Usage, "no home directory is known").hint("give a home with --home DIR")),
    }
}

impl FilterArgs {
    /// As a query.
    pub fn query(&self) -> ListQuery {
        let cwd = self.cwd.as_ref().map(|p| {
            // A path of another system stands for itself; a relative one is meant from here.
            let text = p.to_string_lossy().into_owned();
            let foreign = text.contains('\\') || text.as_bytes().get(1) == Some(&b':');
            if foreign { text } else { std::path::absolute(p).map_or(text, |a| a.to_string_lossy().into_owned()) }
        });
        ListQuery {
            archived_only: self.archived,
            cwd,
            sources: self.source.clone(),
            providers: self.provider.clone(),
            originators: self.originator.clone(),
            models: self.model.clone(),
            since: self.since,
            until: self.until,
            named: self.named,
            matching: self.matching.clone(),
            branch: self.branch.clone(),
            file: self.file.as_ref().map(|p| p.to_string_lossy().into_owned()),
            ..ListQuery::default()
        }
    }
}

pub(crate) fn include(all: bool, kinds: &[Kind4]) -> Include {
    let has = |k: Kind4| all || kinds.contains(&k);
    Include {
        exec: has(Kind4::Exec),
        subagents: has(Kind4::Subagents),
        empty: has(Kind4::Empty),
        archived: has(Kind4::Archived),
    }
}

impl ListArgs {
    /// As a query.
    pub fn query(&self) -> ListQuery {
        ListQuery {
            sort: match self.sort {
                Sort::Created => SortKey::Created,
                Sort::Updated => SortKey::Updated,
                Sort::Recency => SortKey::Recency,
            },
            direction: if self.asc { Direction::Ascending } else { Direction::Descending },
            include: include(self.all, &self.include),
            ..self.filter.query()
        }
    }
}
