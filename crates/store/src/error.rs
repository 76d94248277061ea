//! What a thread store answers when it cannot do what was asked.

use threadkeep_record::ThreadId;

/// The error kinds of a thread store, with the texts that clients match on (`thread-store.md` 3.1).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadStoreError {
    /// No such thread.
    #[error("thread {thread_id} not found")]
    ThreadNotFound {
        /// The id that was asked for.
        thread_id: ThreadId,
    },
    /// The request itself cannot be answered.
    #[error("invalid thread-store request: {message}")]
    InvalidRequest {
        /// Why.
        message: String,
    },
    /// Someone else is at it.
    #[error("thread-store conflict: {message}")]
    Conflict {
        /// Who, as far as known.
        message: String,
    },
    /// Not offered by this store.
    #[error("thread-store unsupported operation: {operation}")]
    Unsupported {
        /// The operation.
        operation: &'static str,
    },
    /// The store failed.
    #[error("thread-store internal error: {message}")]
    Internal {
        /// What happened, on which file.
        message: String,
    },
}
