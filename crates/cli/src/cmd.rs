//! The subcommands, one file each.

pub mod archive;
pub mod change;
pub mod change_many;
pub mod confirm;
pub mod delete;
pub mod detach;
pub mod fork;
pub mod generate;
pub mod home;
pub mod list;
pub mod reindex;
pub mod rename;
pub mod restore;
pub mod resume;
pub mod revert;
pub mod search;
pub mod show;
pub mod stats;
pub mod trash;
pub mod unarchive;
pub mod why;

use std::time::{Duration, Instant};

use threadkeep_local::catalog::Catalog;
use threadkeep_local::change::trash::Trash;
use threadkeep_local::fill::{Begin, Until, Whole, fill, fill_text};
use threadkeep_local::{LocalStore, LookupError, OpenThread};
use threadkeep_record::UtcMillis;
use threadkeep_rollout::Home;
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::seam::RealDisk;

use crate::fail::Failure;
use crate::human::shell_word;
use crate::out::Out;
use crate::progress::Progress;

/// Opens the thread that a query means. Where there is none, and one of the trash is meant, that is said.
pub fn open_thread(store: &LocalStore, query: &str, depth: Depth) -> Result<OpenThread, Failure> {
    store.open_thread(query, depth).map_err(|e| {
        let gone = matches!(e, LookupError::NotFound { .. } | LookupError::Gone { .. });
        let failure = Failure::from(e);
        match trash_hint(store.homes(), query) {
            Some(hint) if gone => failure.hint(hint),
            _ => failure,
        }
    })
}

/// What to do about a query that means a thread of the trash.
pub fn trash_hint<'h>(homes: impl IntoIterator<Item = &'h Home>, query: &str) -> Option<String> {
    homes.into_iter().find_map(|home| {
        let trash = Trash::read(&RealDisk, home.path()).ok()?;
        let id = trash.find(query)?.thread_id;
        let elsewhere = shell_word(&home.path().to_string_lossy());
        Some(format!("it is in the trash; `threadkeep --home {elsewhere} restore {id}` brings it back"))
    })
}

/// How much more is done of the index behind an answer.
#[derive(Debug, Clone, Copy)]
pub enum Behind<'t> {
    /// What lists need.
    List(Whole<'t>),
    /// That, and what searches need, for as long as the search took; `None` where all of that is known.
    Search(Option<Duration>),
}

/// How long a command goes on with the index when its answer is written.
const BEHIND: Duration = Duration::from_secs(2);

/// The least and the most time that a search goes on with what searches need.
const LEAST: Duration = Duration::from_millis(100);
const MOST: Duration = Duration::from_secs(5);

/// Brings the indexes up to what was just seen, behind the answer: whoever reads that through a pipe has all of it.
pub fn index_behind(catalogs: &[Catalog], what: Behind<'_>, out: &mut Out) -> Result<(), Failure> {
    out.close()?;
    let until = Until::Then(Instant::now() + BEHIND);
    let _progress = Progress::start("indexing");
    for catalog in catalogs {
        // Whatever keeps the index from being written costs time, never an answer; `reindex` says why.
        match what {
            Behind::List(whole) => drop(fill(catalog, Begin::IfWorth, whole, until)),
            Behind::Search(took) => {
                let known = fill(catalog, Begin::IfWorth, Whole::These(&[]), until);
                if let (Ok(known), Some(took)) = (known, took)
                    && known.finished
                {
                    let until = Until::Then(Instant::now() + took.clamp(LEAST, MOST));
                    let _ = fill_text(catalog, Begin::IfWorth, until);
                }
            }
        }
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
