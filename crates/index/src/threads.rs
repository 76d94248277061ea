//! Metadata rows of threads: read, patched, observed, removed.

use rusqlite::{OptionalExtension, params};
use threadkeep_record::{MetadataPatch, ThreadId, ThreadMetadata};

use crate::columns::{self, Said};
use crate::{Index, IndexError};

impl Index {
    /// What is known of a thread; `None` where nothing was said of it. A rollout in the home comes back under the home
    /// as it was given to [`Index::open`].
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says; `Row` where this row alone cannot be read.
    pub fn get(&self, thread: ThreadId) -> Result<Option<ThreadMetadata>, IndexError> {
        let row = self.run("reading a thread's metadata", |connection| {
            connection
                .prepare_cached(columns::SELECT)?
                .query_row(params![thread.as_bytes()], |row| columns::read(row, &self.paths))
                .optional()
        })?;
        let Some((mut metadata, structured)) = row else { return Ok(None) };
        let bad = |column| move |source| IndexError::Row { path: self.shown_path(), thread, column, source };
        metadata.source = parse(structured.source).map_err(bad("source"))?;
        metadata.approval_mode = parse(structured.approval_mode).map_err(bad("approval_mode"))?;
        metadata.permission_profile = parse(structured.permission_profile).map_err(bad("permission_profile"))?;
        metadata.token_usage = parse(structured.token_usage).map_err(bad("token_usage"))?;
        Ok(Some(metadata))
    }

    /// Applies a patch literally: exactly the columns that it names, in one statement (`thread-store.md` 5.4, 6.8). A name or
    /// memory mode that it names, also by clearing it, counts as decided from then on. The recency moves to the later of
    /// what is asked for and 1 ms behind what is stored. A relative `rollout_path` is one in the home.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn patch(&self, thread: ThreadId, patch: &MetadataPatch) -> Result<(), IndexError> {
        self.run("changing a thread's metadata", |connection| {
            columns::upsert(connection, thread, patch, Said::Decided, &self.paths)
        })
    }

    /// Applies what was observed of threads, in order, in one transaction. A name or memory mode that was decided by
    /// [`Index::patch`] stays as it is.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says; then none of them is applied.
    pub fn observe(&self, observed: &[(ThreadId, MetadataPatch)]) -> Result<(), IndexError> {
        if observed.is_empty() {
            return Ok(());
        }
        self.transact("keeping what was observed", |transaction| {
            for (thread, patch) in observed {
                columns::upsert(transaction, *thread, patch, Said::Observed, &self.paths)?;
            }
            Ok(())
        })
    }

    /// Forgets a thread: its row, and its spawn edges in both directions (`thread-store.md` 5.4). One that is not known is
    /// already forgotten.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says; then nothing is removed.
    pub fn remove(&self, thread: ThreadId) -> Result<(), IndexError> {
        self.transact("forgetting a thread", |transaction| {
            let id = params![thread.as_bytes()];
            transaction.prepare_cached("DELETE FROM spawn_edges WHERE child = ?1 OR parent = ?1")?.execute(id)?;
            transaction.prepare_cached("DELETE FROM threads WHERE id = ?1")?.execute(id)?;
            Ok(())
        })
    }
}

fn parse<T: serde::de::DeserializeOwned>(text: Option<String>) -> Result<Option<T>, serde_json::Error> {
    text.as_deref().map(serde_json::from_str).transpose()
}
