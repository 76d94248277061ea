//! The thread store contract: operations, parameters, pages and errors that every store shares.

pub mod clock;
pub mod contract;
pub mod cursor;
pub mod error;
pub mod fork;
pub mod list;
pub mod live;
pub mod memory;
pub mod model_context;
pub mod params;
pub mod search;
pub mod snippet;
pub mod stored;
pub mod testkit;
pub mod thread;
pub mod turn_builder;
pub mod turn_places;
pub mod turns;

pub use clock::{Clock, SystemClock, TestClock, stamp_after};
pub use contract::{StoreResult, ThreadStore};
pub use cursor::{Cursor, InvalidCursor};
pub use error::ThreadStoreError;
pub use list::{Direction, Include, ListQuery, SortKey};
pub use live::{InitGuard, LiveThread};
pub use memory::MemoryThreadStore;
pub use params::*;
pub use search::{SearchHit, SearchQuery};
pub use stored::*;
pub use thread::{DamageEntry, DamageReport, Thread, ThreadFile};
