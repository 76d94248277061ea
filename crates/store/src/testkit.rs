//! The contract of a thread store as a test suite that any store runs.
//!
//! A store's own tests say how it is opened ([`StoreHarness`]) and call [`suite!`](crate::testkit::suite!), which makes
//! one `#[test]` of every behaviour in every history mode, [`lifecycle_suite!`](crate::testkit::lifecycle_suite!), which
//! does so for what moves and removes threads, and [`machine!`](crate::testkit::machine!), which runs random
//! operations against a model (it needs `proptest` among the caller's dependencies).

pub mod forking;
pub mod graph;
pub mod lifecycle;
pub mod listing;
pub mod live;
pub mod machine;
pub mod metadata;
pub mod paging;
pub mod reading;
pub mod reverting;
pub mod searching;
mod suite;
mod talk;
pub mod writing;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
pub use threadkeep_record::HistoryMode;
use threadkeep_record::ThreadId;

use crate::clock::TestClock;
use crate::contract::ThreadStore;

pub use crate::{testkit_lifecycle_suite as lifecycle_suite, testkit_machine as machine, testkit_suite as suite};

/// How a store under test is opened. Each test makes its own harness, without threads.
#[async_trait]
pub trait StoreHarness: Send + Sync {
    /// The store. It uses [`clock`](Self::clock), and new threads are in the directory that their parameters say.
    fn open(&self) -> Arc<dyn ThreadStore>;

    /// Another store on the same threads, as another process would open it: it knows what is kept and nothing else. The
    /// first one may still be open.
    fn reopen(&self) -> Arc<dyn ThreadStore>;

    /// The clock of all its stores.
    fn clock(&self) -> Arc<TestClock>;

    /// Archives a thread that nobody writes, as another process would.
    async fn archive(&self, thread_id: ThreadId) {
        self.reopen().archive_thread(thread_id).await.expect("a thread to archive");
    }

    /// Puts a rollout of these records (without line feeds) where the store does not look by itself, and gives its
    /// path; `None` for a store without files.
    fn outside(&self, thread_id: ThreadId, records: &[Vec<u8>]) -> Option<PathBuf>;

    /// Whether the store keeps what was observed for every store on the same threads. One without any index need not,
    /// and is not asked for it.
    fn keeps_metadata(&self) -> bool {
        true
    }
}

/// Runs a behaviour to its end.
pub fn run(behaviour: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime for one thread").block_on(behaviour);
}
