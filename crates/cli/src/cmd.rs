//! The subcommands, one file each.

pub mod change;
pub mod fork;
pub mod generate;
pub mod home;
pub mod list;
pub mod reindex;
pub mod rename;
pub mod resume;
pub mod search;
pub mod show;
pub mod stats;
pub mod why;

use std::time::{Duration, Instant};

use threadkeep_local::catalog::Catalog;
use threadkeep_local::fill::{Begin, Until, Whole, fill};
use threadkeep_record::UtcMillis;

use crate::fail::Failure;
use crate::human::shell_word;
use crate::out::Out;
use crate::progress::Progress;

/// How long a command goes on with the index when its answer is written.
const BEHIND: Duration = Duration::from_secs(2);

/// Brings the indexes up to what was just seen, behind the answer: whoever reads that through a pipe has all of it.
pub fn index_behind(catalogs: &[Catalog], whole: Whole<'_>, out: &mut Out) -> Result<(), Failure> {
    out.close()?;
    let until = Until::Then(Instant::now() + BEHIND);
    let _progress = Progress::start("indexing");
    for catalog in catalogs {
        // Whatever keeps the index from being written costs time, never an answer; `reindex` says why.
        let _ = fill(catalog, Begin::IfWorth, whole, until);
    }
    Ok(())
}

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
