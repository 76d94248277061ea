//! The subcommands, one file each.

pub mod generate;
pub mod list;
pub mod resume;
pub mod search;
pub mod show;

use threadkeep_record::UtcMillis;

/// The clock of this run.
pub fn now() -> UtcMillis {
    jiff::Timestamp::now().into()
}
