//! The `threadkeep` command: find and read the threads of coding agents.

mod args;
mod cmd;
mod fail;
mod human;
mod out;
mod progress;
mod time_arg;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::fail::{Failure, Kind};
use crate::out::Out;

fn main() -> ExitCode {
    threadkeep_rollout::par::use_this_thread();
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let mut cli = match Cli::try_parse_from(&words) {
        Ok(cli) => cli,
        Err(e) => {
            let json = words.iter().any(|w| w == "--json" || w == "--jsonl");
            if !e.use_stderr() {
                // Help and version are answers, not failures.
                let _ = e.print();
                return ExitCode::SUCCESS;
            }
            if json {
                let text = e.render().to_string();
                // The options that are meant stand in lines of their own below a first one that ends in a colon.
                let mut lines = text.lines().take_while(|l| !l.trim().is_empty()).map(str::trim);
                let first = lines.next().unwrap_or("wrong usage").trim_start_matches("error: ").to_owned();
                let rest = lines.collect::<Vec<_>>().join(", ");
                let line = if rest.is_empty() { first } else { format!("{first} {rest}") };
                return Failure::new(Kind::Usage, line).hint("see threadkeep --help").report(&mut Out::stdout(true));
            }
            let _ = e.print();
            return ExitCode::from(2);
        }
    };
    let mut out = Out::stdout(cli.global.json());
    let done = match &mut cli.command {
        Command::List(a) => cmd::list::run(&cli.global, a, &mut out),
        Command::Search(a) => cmd::search::run(&cli.global, a, &mut out),
        Command::Show(a) => cmd::show::run(&cli.global, a, &mut out),
        Command::Why(a) => cmd::why::run(&cli.global, a, &mut out),
        Command::Stats => cmd::stats::run(&cli.global, &mut out),
        Command::Resume(a) => cmd::resume::run(&cli.global, a, &mut out),
        Command::Rename(a) => cmd::rename::run(&cli.global, a, &mut out),
        Command::Fork(a) => cmd::fork::run(&cli.global, a, &mut out),
        Command::Archive(a) => cmd::archive::run(&cli.global, a, &mut out),
        Command::Unarchive(a) => cmd::unarchive::run(&cli.global, a, &mut out),
        Command::Delete(a) => cmd::delete::run(&cli.global, a, &mut out),
        Command::Detach(a) => cmd::detach::run(&cli.global, a, &mut out),
        Command::Restore(a) => cmd::restore::run(&cli.global, a, &mut out),
        Command::Revert(a) => cmd::revert::run(&cli.global, a, &mut out),
        Command::Trash(a) => cmd::trash::run(&cli.global, a, &mut out),
        Command::Reindex(a) => cmd::reindex::run(&cli.global, a, &mut out),
        Command::Home(a) => cmd::home::run(&cli.global, a, &mut out),
        Command::Completions(a) => cmd::generate::completions(a, &mut out),
        Command::Man => cmd::generate::man(&mut out),
    };
    let done = done.and_then(|code| out.finish().map(|()| code));
    match done {
        // Everything is written; the system takes the memory back faster than we could.
        Ok(code) => std::process::exit(code.into()),
        // The reader has seen enough; that is not our failure.
        Err(f) if f.is_broken_pipe() => ExitCode::SUCCESS,
        Err(f) => f.report(&mut out),
    }
}
