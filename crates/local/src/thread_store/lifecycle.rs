//! Putting threads away, taking them out again, removing them (`thread-store.md` 6.9).

use threadkeep_record::ThreadId;
use threadkeep_store::{StoreResult, StoredThread, ThreadStoreError};

use super::Inner;

impl Inner {
    pub fn archive(&self, _id: ThreadId) -> StoreResult<()> {
        Err(ThreadStoreError::Unsupported { operation: "archive_thread" })
    }

    pub fn unarchive(&self, _id: ThreadId) -> StoreResult<StoredThread> {
        Err(ThreadStoreError::Unsupported { operation: "unarchive_thread" })
    }

    pub fn delete(&self, _id: ThreadId) -> StoreResult<()> {
        Err(ThreadStoreError::Unsupported { operation: "delete_thread" })
    }
}
