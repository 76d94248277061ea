//! `threadkeep home`: homes of agent tasks, one file for each subcommand.

pub mod args;
mod list;
mod pin;
mod prepare;
mod present;
mod prune;
mod rekey;
mod run;

use crate::args::Global;
use crate::fail::Done;
use crate::out::Out;

use self::args::{HomeArgs, HomeCommand};

pub fn run(global: &Global, args: &mut HomeArgs, out: &mut Out) -> Done {
    args.command.place_mut().take_global(global)?;
    match &args.command {
        HomeCommand::Prepare(a) => prepare::run(a, out),
        HomeCommand::Run(a) => run::run(a, out),
        HomeCommand::Present(a) => present::run(a, out),
        HomeCommand::List(a) => list::run(a, out),
        HomeCommand::Show(a) => list::show(a, out),
        HomeCommand::Prune(a) => prune::run(a, out),
        HomeCommand::Pin(a) => pin::pin(a, out),
        HomeCommand::Unpin(a) => pin::unpin(a, out),
        HomeCommand::Rekey(a) => rekey::run(a, out),
    }
}
