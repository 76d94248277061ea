//! The thread store over a local Codex home: lists, searches and shows its threads from their files.

mod as_of;
pub mod catalog;
pub mod change;
pub mod codex_state;
pub mod fill;
pub mod filter;
pub mod inherited;
pub mod kept;
mod kept_filter;
mod key;
pub mod list;
pub mod look_up;
pub mod lookup;
mod page;
pub mod row;
pub mod search;
pub mod show;
pub mod stats;
mod text_fill;
mod thread_store;
pub mod turn_index;
pub mod why;

pub use list::{IndexState, IndexUse, ListOptions, ListPage, LocalStore, RowsFrom};
pub use lookup::{LookupError, OpenThread};
pub use search::{OfEach, SearchError, SearchOptions, SearchPage};
pub use stats::Stats;
pub use thread_store::{
    LocalOptions, LocalThreadStore, NamePlace, RevertPlan, RevertedFile, UnrevertPlan, UnrevertedFile,
};
pub use threadkeep_index::IndexPlace;
pub use why::{Why, WhyOptions};
