//! The thread store contract: parameters, pages and errors that every store shares.

pub mod cursor;
pub mod error;
pub mod list;
pub mod search;
pub mod thread;
pub mod turns;

pub use cursor::{Cursor, InvalidCursor};
pub use error::ThreadStoreError;
pub use list::{Direction, Include, ListQuery, SortKey};
pub use search::{SearchHit, SearchQuery};
pub use thread::{DamageEntry, DamageReport, Thread, ThreadFile};
