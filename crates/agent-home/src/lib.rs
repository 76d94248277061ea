//! A Codex home of its own for every agent task: prepared, resumed from a store of its conversation, cleaned up.
//!
//! [`prepare::prepare`] is the way in; [`store`] says where conversations are kept, [`plan`] and [`prune`] how they end.

mod beside;
pub mod bring;
pub mod config;
pub mod dir;
pub mod error;
pub mod expose;
pub mod files;
pub mod find;
pub mod id;
pub mod inventory;
pub mod key;
mod leaving;
pub mod manifest;
pub mod names;
mod naming;
pub mod options;
pub mod outcome;
pub mod plan;
pub mod platform;
pub mod prepare;
pub mod present;
pub mod prune;
pub mod rekey;
pub mod reservation;
mod resume;
pub mod rows;
pub mod run;
pub mod sessions;
pub mod shared;
pub mod state;
pub mod store;
pub mod survey;
pub mod task;
pub mod watch;
pub mod writers;

pub use error::HomeError;
pub use id::ResumeId;
pub use key::{ConversationKind, StoreKey};
pub use options::{Options, World};
pub use prepare::{Prepared, prepare};
