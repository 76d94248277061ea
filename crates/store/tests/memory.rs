//! The store in memory keeps the contract.

use std::path::PathBuf;
use std::sync::Arc;

use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_store::testkit::{self, StoreHarness};
use threadkeep_store::{MemoryThreadStore, TestClock, ThreadStore};

struct Memory {
    /// Keeps what the stores share, and writes nothing itself.
    base: MemoryThreadStore,
    clock: Arc<TestClock>,
}

impl Memory {
    fn new() -> Self {
        let clock = Arc::new(TestClock::new(UtcMillis(1_767_323_045_000)));
        Self { base: MemoryThreadStore::new(clock.clone()), clock }
    }
}

impl StoreHarness for Memory {
    fn open(&self) -> Arc<dyn ThreadStore> {
        Arc::new(self.base.reopen())
    }

    fn reopen(&self) -> Arc<dyn ThreadStore> {
        Arc::new(self.base.reopen())
    }

    fn clock(&self) -> Arc<TestClock> {
        Arc::clone(&self.clock)
    }

    fn outside(&self, _thread_id: ThreadId, _records: &[Vec<u8>]) -> Option<PathBuf> {
        None
    }
}

testkit::suite!(Memory::new());
testkit::lifecycle_suite!(Memory::new());
testkit::machine!(Memory::new());
