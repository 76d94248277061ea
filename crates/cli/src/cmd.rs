//! The subcommands, one file each.

pub mod change;
pub mod fork;
pub mod generate;
pub mod home;
pub mod list;
pub mod rename;
pub mod resume;
pub mod search;
pub mod show;
pub mod stats;
pub mod why;

use threadkeep_record::UtcMillis;

use crate::human::shell_word;

/// The clock of this run.
pub fn now() -> UtcMillis {
    jiff::Timestamp::now().into()
}

/// The command that was given, with a cursor.
pub fn again(cursor: &str) -> String {
    let mut words = vec!["threadkeep".to_owned()];
    let mut given = std::env::args_os().skip(1).map(|w| w.to_string_lossy().into_owned());
    while let Some(word) = given.next() {
        if word == "--cursor" {
            given.next();
        } else if !word.starts_with("--cursor=") {
            words.push(shell_word(&word));
        }
    }
    format!("{} --cursor {cursor}", words.join(" "))
}
