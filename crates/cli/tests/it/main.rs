//! The `threadkeep` command seen from outside: homes are built record by record, the command is run on them, and what it
//! prints is compared with what a person who made that home would expect. Every test is named after the public bug report
//! (`b01_…`) or the rule it guards.

mod agree;
mod db;
mod home;
mod log;

mod changes;
mod changes_index;
mod changes_kill;
mod changes_odd;
mod changes_trash;
mod completeness;
mod cursor;
mod damage;
mod detach;
mod filters;
mod fixtures;
mod foreign;
mod fork;
mod forks;
mod formats;
#[cfg(unix)]
mod homes;
#[cfg(target_os = "linux")]
mod homes_doubt;
#[cfg(unix)]
mod homes_requests;
#[cfg(unix)]
mod homes_unseen;
mod index;
mod lineage;
mod listing;
mod matching;
mod names;
mod output;
mod readonly;
mod rename;
mod resume;
mod revert;
mod search;
mod show;
mod state;
mod stats;
mod times;
mod unrevert;
mod why;
mod write_db;
mod write_disk;
mod write_modes;
mod write_names;
mod write_run;
