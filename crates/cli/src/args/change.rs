//! What can be asked of the commands that change where threads are.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use threadkeep_record::UtcMillis;
use threadkeep_store::ListQuery;

use super::{FilterArgs, Kind4, include};
use crate::time_arg;

#[derive(Debug, Args)]
pub struct RevertArgs {
    /// The thread: id, unique prefix of one, or name
    pub thread: String,
    /// The first turn that is taken back (number or id); all behind it are, too
    #[arg(long, value_name = "TURN", required_unless_present = "undo")]
    pub before_turn: Option<String>,
    /// Instead take the last revert back: its turns count again. Only while nothing was said behind it
    #[arg(long, conflicts_with = "before_turn")]
    pub undo: bool,
    /// Only show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Accepted as elsewhere; every record stays, so nothing is asked
    #[arg(long, short = 'y', hide = true)]
    pub yes: bool,
}

/// Threads that are changed, and how.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Threads: ids, unique prefixes, or names
    #[arg(value_name = "THREAD")]
    pub threads: Vec<String>,
    /// A file with one thread a line; - for standard input
    #[arg(long, value_name = "FILE")]
    pub ids_file: Option<PathBuf>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// With a filter: also these kinds
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum)]
    pub include: Vec<Kind4>,
    /// With a filter, or alone: threads of every kind
    #[arg(long)]
    pub all: bool,
    /// Also the threads that they started
    #[arg(long, conflicts_with = "no_cascade")]
    pub cascade: bool,
    /// Leave the threads that they started where they are (the default)
    #[arg(long)]
    pub no_cascade: bool,
    /// Only show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Threads in the trash: ids, unique prefixes, names, or entries of `trash list`
    #[arg(value_name = "THREAD")]
    pub threads: Vec<String>,
    /// A file with one thread a line; - for standard input
    #[arg(long, value_name = "FILE")]
    pub ids_file: Option<PathBuf>,
    /// Everything that is in the trash
    #[arg(long, conflicts_with_all = ["threads", "ids_file"])]
    pub all: bool,
    /// Only show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Accepted as elsewhere; restoring never asks
    #[arg(long, short = 'y', hide = true)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct TrashArgs {
    #[command(subcommand)]
    pub command: TrashCommand,
}

#[derive(Debug, Subcommand)]
pub enum TrashCommand {
    /// What is in the trash, newest first
    List,
    /// Remove what is in the trash for good
    Empty(EmptyArgs),
}

#[derive(Debug, Args)]
pub struct EmptyArgs {
    /// Only these: ids, unique prefixes, names, or entries of `trash list`
    #[arg(value_name = "THREAD")]
    pub threads: Vec<String>,
    /// Only what was deleted before this time: 2026-11-30, 2026-11-30T12:00:00Z, or 30d for thirty days ago
    #[arg(long, value_name = "TIME", value_parser = time_arg::parse)]
    pub older_than: Option<UtcMillis>,
    /// Only show what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub yes: bool,
}

impl ChangeArgs {
    /// Whether filters choose the threads.
    pub fn is_filtered(&self) -> bool {
        let f = &self.filter;
        let lists = [&f.source, &f.provider, &f.originator, &f.model];
        let texts = [&f.branch, &f.matching];
        self.all
            || !self.include.is_empty()
            || f.named
            || f.archived
            || lists.iter().any(|l| !l.is_empty())
            || texts.iter().any(|t| t.is_some())
            || f.cwd.is_some()
            || f.file.is_some()
            || f.since.is_some()
            || f.until.is_some()
    }

    /// As a query of a list.
    pub fn query(&self) -> ListQuery {
        ListQuery { include: include(self.all, &self.include), ..self.filter.query() }
    }
}
