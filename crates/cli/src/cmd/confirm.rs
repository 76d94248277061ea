//! Asking before something goes.

use std::io::{BufRead as _, IsTerminal as _};

use crate::fail::{Failure, Kind};
use crate::out::say;

/// Shows what would be done and asks whether to do it. Where nobody can be asked, it is not done.
pub fn ask(plan: &[String], question: &str, would: &str, not_done: &str) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() {
        let message = format!("{would}, and nobody can be asked: standard input is no terminal; {not_done}");
        return Err(
            Failure::new(Kind::Refused, message).hint("--dry-run shows the plan, --yes carries it out without asking")
        );
    }
    plan.iter().for_each(|line| say(line));
    say(&format!("{question} [y/N]"));
    let mut answer = String::new();
    let _ = std::io::stdin().lock().read_line(&mut answer);
    if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(Failure::new(Kind::Refused, not_done)) }
}
