//! What an index answers when it cannot do what was asked.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::ErrorCode;
use threadkeep_record::ThreadId;

/// Why a call of the index failed. No thread depends on it: the files go on answering (DESIGN's promise that an index is
/// never a condition). `path` is the file, or `:memory:`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// Others held the file, or this handle, for the whole time that the caller was ready to wait.
    #[error("index {path} is in use by others: {action} was given up after {budget:?}")]
    Busy {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// How long it was tried.
        budget: Duration,
    },
    /// The file is damaged. It is left alone, and from the next call on this handle works in memory.
    #[error("index {path} is damaged and is not used any more: {action}: {source}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// A row holds something that cannot be read. Others are not affected.
    #[error("index {path}: the row of thread {thread} cannot be read: {column}: {source}")]
    Row {
        /// The file.
        path: PathBuf,
        /// The thread.
        thread: ThreadId,
        /// The column.
        column: &'static str,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// SQLite failed in another way: a full disk, a failed read or write.
    #[error("index {path}: {action}: {source}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What SQLite says.
        source: rusqlite::Error,
    },
}

/// The kinds of failure that are answered differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Somebody else holds it.
    Busy,
    /// The file is damaged or no database.
    Damaged,
    /// Anything else.
    Other,
}

/// What kind of failure an error of SQLite is (`thread-store.md` 5.6: codes 11 and 26 are damage, a lock is not).
pub(crate) fn failure(error: &rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed) => {
            Failure::Busy
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Failure::Damaged,
        // A value of another type than the column was declared with: the schema was looked at when the file was
        // opened, and strict tables keep it, so the file has been changed below SQLite.
        None if matches!(
            error,
            rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::Utf8Error(..)
        ) =>
        {
            Failure::Damaged
        }
        Some(_) | None => Failure::Other,
    }
}
