//! The local store keeps the contract: with an index in the home, and without any database.

use std::path::PathBuf;
use std::sync::Arc;

use threadkeep_index::IndexPlace;
use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_store::testkit::{self, StoreHarness};
use threadkeep_store::{TestClock, ThreadStore};

struct Local {
    folder: tempfile::TempDir,
    index: Option<IndexPlace>,
    clock: Arc<TestClock>,
}

impl Local {
    fn new(index: Option<IndexPlace>) -> Self {
        let clock = Arc::new(TestClock::new(UtcMillis(1_767_323_045_000)));
        Self { folder: tempfile::tempdir().expect("a folder"), index, clock }
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }
}

#[async_trait::async_trait]
impl StoreHarness for Local {
    fn open(&self) -> Arc<dyn ThreadStore> {
        let options = LocalOptions { index: self.index.clone(), ..LocalOptions::new(self.home()) };
        Arc::new(LocalThreadStore::open_with(options, self.clock.clone()))
    }

    fn reopen(&self) -> Arc<dyn ThreadStore> {
        self.open()
    }

    fn clock(&self) -> Arc<TestClock> {
        Arc::clone(&self.clock)
    }

    fn outside(&self, thread_id: ThreadId, records: &[Vec<u8>]) -> Option<PathBuf> {
        let path = self.folder.path().join(format!("outside-{thread_id}.jsonl"));
        let mut bytes = records.join(&b'\n');
        bytes.push(b'\n');
        std::fs::write(&path, bytes).expect("a file");
        Some(path)
    }

    fn keeps_metadata(&self) -> bool {
        self.index.is_some()
    }
}

mod with_an_index {
    use super::*;
    testkit::suite!(Local::new(Some(IndexPlace::Home)));
    testkit::lifecycle_suite!(Local::new(Some(IndexPlace::Home)));
    testkit::machine!(Local::new(Some(IndexPlace::Home)));
}

mod without_a_database {
    use super::*;
    testkit::suite!(Local::new(None));
    testkit::lifecycle_suite!(Local::new(None));
    testkit::machine!(Local::new(None));
}
