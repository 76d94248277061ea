//! The SQLite index over a Codex home: what was observed of its threads, and who spawned whom.
//!
//! The rollout files are the truth; everything here is a hint that comes back from them. So the index is never a
//! condition: it waits no longer than it is told to, and where its file cannot be used it works in memory and says why.

mod columns;
mod connection;
mod database;
pub mod edges;
pub mod error;
mod file;
mod folders;
mod index;
pub mod listed;
mod packed;
mod paths;
pub mod place;
mod platform;
pub mod saved;
pub mod schema;
pub mod text;
pub mod texts;
mod threads;

pub use edges::{EdgeStatus, SpawnEdge};
pub use error::IndexError;
pub use index::{Index, IndexOptions, IndexVersion};
pub use place::{IndexPlace, Journal, Placed, WhyMemory};
pub use schema::SchemaVersion;
