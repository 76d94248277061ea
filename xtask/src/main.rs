//! Chores of the project that need more than a shell: synthetic homes, whole-process benchmarks, and the released
//! Codex as an oracle. Run as `cargo xtask <command>`.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a tool for developers: its output is its purpose")]
#![allow(missing_docs, reason = "nothing uses this as a library")]

mod changes_bench;
mod codex;
mod crash;
mod fuzz;
mod gen_home;
mod homes;
mod homes_bench;
mod index_kill;
mod kill;
mod manifest;
mod oracle;
mod oracle_homes;
mod peers;
mod threadkeep;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Chores of the threadkeep project")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a synthetic Codex home, true to format, with `manifest.jsonl` as the truth about it
    GenHome(gen_home::Options),
    /// Write on a simulated disk, cut its power after every step, and look what is left
    Crash(crash::Options),
    /// Damage rollouts at random and read what is left
    Fuzz(fuzz::Options),
    /// Kill real writers with -9 and look for what they acknowledged
    Kill(kill::Options),
    /// A writer that is killed
    #[command(hide = true)]
    KillChild(kill::child::Options),
    /// Prepare, run, resume and clean up task homes with very many processes at once, some of them killed
    Homes(homes::Options),
    /// Time archiving and deleting in a large home, one thread and a thousand
    ChangesBench(changes_bench::Options),
    /// Time the preparation of a task home beside a large shared history
    HomesBench(homes_bench::Options),
    /// List, search and build the index of a changing home with many processes at once, some of them killed
    IndexKill(index_kill::Options),
    /// Compare what threadkeep and the released Codex list of the fixture homes
    Oracle(oracle::Options),
    /// Run the released Codex in task homes that threadkeep prepared
    OracleHomes(oracle_homes::Options),
    /// Time threadkeep's commands beside `find`, `rg` and the released Codex, and check their answers
    Peers(peers::Options),
}

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without the backtrace that `RUST_BACKTRACE` would add: these errors are about the world, not the code.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<()> {
    match command {
        Command::GenHome(options) => println!("{}", gen_home::run(&options)?),
        Command::Crash(options) => crash::run(&options)?,
        Command::Fuzz(options) => fuzz::run(&options)?,
        Command::Kill(options) => kill::run(&options)?,
        Command::KillChild(options) => kill::child::run(&options)?,
        Command::Homes(options) => homes::run(&options)?,
        Command::ChangesBench(options) => changes_bench::run(&options)?,
        Command::HomesBench(options) => homes_bench::run(&options)?,
        Command::IndexKill(options) => index_kill::run(&options)?,
        Command::Oracle(options) => oracle::run(&options)?,
        Command::OracleHomes(options) => oracle_homes::run(&options)?,
        Command::Peers(options) => peers::run(&options)?,
    }
    Ok(())
}

/// The directory of the workspace this tool was built from.
fn workspace_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}
