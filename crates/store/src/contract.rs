//! The contract of a thread store (`thread-store.md` section 3).

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use threadkeep_record::{HistoryMode, MetadataPatch, NewItem, ThreadId, ThreadMetadata};

use crate::ThreadStoreError;
use crate::params::{
    Archived, CreateThread, ForkThread, ListThreads, ListTurns, Relation, ResumeThread, SearchOccurrences,
    SearchThreads, WithHistory,
};
use crate::stored::{
    Appended, EdgeStatus, ItemPage, OccurrencePage, Resumed, SpawnEdge, StoredHistory, StoredThread, ThreadHitPage,
    ThreadOutcome, ThreadPage, TurnPage,
};

/// What an operation answers.
pub type StoreResult<T> = Result<T, ThreadStoreError>;

/// A durable store of threads. Operations of one thread take effect in call order; nothing is said about the order
/// between threads.
///
/// A thread that is being written has a *live writer* in the store, from `create_thread` or `resume_thread` to
/// `shutdown_thread` or `discard_thread`. There is at most one in a store
/// ([`InvalidRequest`](ThreadStoreError::InvalidRequest), `already has a live local writer`), and at most one over all
/// processes ([`Conflict`](ThreadStoreError::Conflict), `already has an active writer`).
#[async_trait]
pub trait ThreadStore: Debug + Send + Sync {
    /// How new threads are kept unless asked otherwise.
    fn default_history_mode(&self) -> HistoryMode {
        HistoryMode::Legacy
    }

    /// Opens a live writer for a new thread. Nothing is kept yet: an empty thread leaves nothing behind.
    async fn create_thread(&self, params: CreateThread) -> StoreResult<()>;

    /// Opens a live writer for a thread that is there. A compressed rollout is written out first, and a record that
    /// was cut off at its end is closed off before the next append.
    async fn resume_thread(&self, params: ResumeThread) -> StoreResult<Resumed>;

    /// Appends items. Those that the history mode does not keep are passed over. Metadata does not change.
    ///
    /// Returns once the bytes are with the system, so that they survive the death of this process. After an error the
    /// items are *not lost and not to be given again*: those that are not in the rollout yet are written by the next
    /// append, `flush_thread`, `persist_thread` or `shutdown_thread`, in order and once. The exception is
    /// [`Conflict`](ThreadStoreError::Conflict): then nothing of them is kept, since another program wrote to the
    /// rollout, and the caller has to look at what it wrote.
    async fn append_items(&self, thread_id: ThreadId, items: &[NewItem]) -> StoreResult<Appended>;

    /// Makes the thread exist and durable, even without items.
    async fn persist_thread(&self, thread_id: ThreadId) -> StoreResult<()>;

    /// Makes durable what was appended. A thread without items stays unmade.
    async fn flush_thread(&self, thread_id: ThreadId) -> StoreResult<()>;

    /// As `flush_thread`, and closes the writer. If that fails the writer stays, so that it can be tried again.
    async fn shutdown_thread(&self, thread_id: ThreadId) -> StoreResult<()>;

    /// Closes the writer without writing what it still holds.
    async fn discard_thread(&self, thread_id: ThreadId) -> StoreResult<()>;

    /// Where the live writer writes, also before the file is there. `ThreadNotFound` without a live writer; `None` in a
    /// store without files.
    async fn live_rollout_path(&self, thread_id: ThreadId) -> StoreResult<Option<PathBuf>>;

    /// All records, through the lineage. A live writer's rollout comes first, wherever it is.
    async fn load_history(&self, thread_id: ThreadId, archived: Archived) -> StoreResult<StoredHistory>;

    /// The records that the model's context is rebuilt from: the first header, and everything from the last compaction
    /// that carries its replacement on; without one, everything.
    async fn load_latest_model_context(&self, thread_id: ThreadId, archived: Archived) -> StoreResult<StoredHistory>;

    /// One thread.
    async fn read_thread(
        &self,
        thread_id: ThreadId,
        archived: Archived,
        history: WithHistory,
    ) -> StoreResult<StoredThread>;

    /// One thread by its rollout, also outside the store.
    async fn read_thread_by_rollout_path(&self, path: &Path, history: WithHistory) -> StoreResult<StoredThread>;

    /// A page of threads, each once over all pages.
    async fn list_threads(&self, params: ListThreads) -> StoreResult<ThreadPage>;

    /// The threads in which a text was said, newest first.
    async fn search_threads(&self, params: SearchThreads) -> StoreResult<ThreadHitPage>;

    /// The places of one thread where a text was said.
    async fn search_thread_occurrences(&self, params: SearchOccurrences) -> StoreResult<OccurrencePage>;

    /// Turns, those taken back left out.
    async fn list_turns(&self, params: ListTurns) -> StoreResult<TurnPage>;

    /// Items of all turns, in order.
    async fn list_items(&self, params: ListTurns) -> StoreResult<ItemPage>;

    /// Changes metadata; the only way to do so. An observed patch (one with derived facts) is kept as a hint and never
    /// fails the thread; an explicit one is kept durably or fails. An empty patch is a plain read.
    async fn update_thread_metadata(
        &self,
        thread_id: ThreadId,
        patch: MetadataPatch,
        archived: Archived,
    ) -> StoreResult<StoredThread>;

    /// Keeps an observed patch without reading the thread back: what a live thread sends while it runs.
    async fn observe_metadata(&self, thread_id: ThreadId, patch: MetadataPatch) -> StoreResult<()>;

    /// What was observed of a thread or set, without looking at its history; `None` where nothing was, or the store
    /// keeps none.
    async fn stored_metadata(&self, thread_id: ThreadId) -> StoreResult<Option<ThreadMetadata>>;

    /// Sets who spawned a thread. A thread has one parent; another replaces it.
    async fn upsert_spawn_edge(&self, edge: SpawnEdge) -> StoreResult<()>;

    /// Sets the status of a spawned thread. For one that is not known this does nothing.
    async fn set_spawn_edge_status(&self, child: ThreadId, status: EdgeStatus) -> StoreResult<()>;

    /// Spawned threads: children by id, descendants breadth first and then by id. A status keeps only edges that have
    /// it; an edge that is left out hides what is below it.
    async fn list_spawn_edges(&self, relation: Relation, status: Option<EdgeStatus>) -> StoreResult<Vec<SpawnEdge>>;

    /// Makes a thread with the history of another, and leaves it with a live writer.
    async fn fork_thread(&self, params: ForkThread) -> StoreResult<()>;

    /// Takes a turn back and everything behind it. Of a legacy thread the records stay, and a record says how many turns
    /// no longer count; a paginated thread goes on in another rollout, which continues the records before the turn.
    /// Forks keep what they took over, and what is kept beside the history (name, facts, edges) stays.
    ///
    /// `before_turn` is the id of a turn that stands; others are refused as forks refuse them
    /// ([`InvalidRequest`](ThreadStoreError::InvalidRequest)), and so is an archived thread.
    ///
    /// A live writer of this store may stay open: the next append goes on behind the revert, and what it has accepted
    /// and not written is written first. While a turn runs that began through it, the thread is not reverted
    /// ([`Conflict`](ThreadStoreError::Conflict)); a turn that an earlier writer left without an end does not run.
    /// Neither is a thread that another store writes (`Conflict`, `already has an active writer`).
    async fn revert_thread(&self, thread_id: ThreadId, before_turn: String) -> StoreResult<StoredThread>;

    /// Puts a thread away: it is read, listed and continued only where archived threads are asked for. Its name, its
    /// facts and its edges stay.
    ///
    /// [`InvalidRequest`](ThreadStoreError::InvalidRequest), `no rollout found for thread id {id}`, for a thread that
    /// is not there or is archived already; [`Conflict`](ThreadStoreError::Conflict), `thread {id} already has an active
    /// writer`, for one that this or another store writes.
    async fn archive_thread(&self, thread_id: ThreadId) -> StoreResult<()>;

    /// Takes an archived thread out again: everything is as it was before.
    ///
    /// [`InvalidRequest`](ThreadStoreError::InvalidRequest), `no archived rollout found for thread id {id}`, for a
    /// thread that is not archived; [`Conflict`](ThreadStoreError::Conflict) as for `archive_thread`.
    async fn unarchive_thread(&self, thread_id: ThreadId) -> StoreResult<StoredThread>;

    /// Removes a thread, archived or not, with everything that is known of it: records, name, facts, and edges in both
    /// directions. Threads that it spawned stay. A live writer of this store is dropped with what it has not written,
    /// also that of a thread which is not there yet.
    ///
    /// [`ThreadNotFound`](ThreadStoreError::ThreadNotFound) where there is nothing to remove;
    /// [`Conflict`](ThreadStoreError::Conflict), `thread {id} already has an active writer`, where another store writes
    /// it; [`InvalidRequest`](ThreadStoreError::InvalidRequest), `cannot delete thread {id}: forked history still
    /// references it`, while the history of another thread continues its records. A thread that is refused stays as it
    /// is, and so does its writer.
    async fn delete_thread(&self, thread_id: ThreadId) -> StoreResult<()>;

    /// Archives threads, each by itself: one that is refused keeps no other from being archived. The outcomes are in the
    /// order of the ids.
    async fn archive_threads(&self, thread_ids: &[ThreadId]) -> Vec<ThreadOutcome> {
        let mut outcomes = Vec::with_capacity(thread_ids.len());
        for thread_id in thread_ids.iter().copied() {
            outcomes.push(ThreadOutcome { thread_id, result: self.archive_thread(thread_id).await });
        }
        outcomes
    }

    /// As [`archive_threads`](Self::archive_threads), for `unarchive_thread`.
    async fn unarchive_threads(&self, thread_ids: &[ThreadId]) -> Vec<ThreadOutcome> {
        let mut outcomes = Vec::with_capacity(thread_ids.len());
        for thread_id in thread_ids.iter().copied() {
            let result = self.unarchive_thread(thread_id).await.map(|_| ());
            outcomes.push(ThreadOutcome { thread_id, result });
        }
        outcomes
    }

    /// As [`archive_threads`](Self::archive_threads), for `delete_thread`. A thread that only the histories of threads
    /// of the same call need goes with them, in whatever order they are given.
    async fn delete_threads(&self, thread_ids: &[ThreadId]) -> Vec<ThreadOutcome> {
        let mut results: Vec<Option<StoreResult<()>>> = thread_ids.iter().map(|_| None).collect();
        let first = |place: usize| !thread_ids[..place].contains(&thread_ids[place]);
        let needed = |r: &Option<StoreResult<()>>| match r {
            None => true,
            Some(Err(ThreadStoreError::InvalidRequest { message })) => message.starts_with("cannot delete thread"),
            Some(_) => false,
        };
        // Each round may free threads that were needed before it.
        loop {
            let mut gone = 0;
            for (place, result) in results.iter_mut().enumerate().filter(|(place, _)| first(*place)) {
                if needed(result) {
                    let done = self.delete_thread(thread_ids[place]).await;
                    gone += usize::from(done.is_ok());
                    *result = Some(done);
                }
            }
            if gone == 0 {
                break;
            }
        }
        // What is named again is tried again.
        for (place, result) in results.iter_mut().enumerate().filter(|(place, _)| !first(*place)) {
            *result = Some(self.delete_thread(thread_ids[place]).await);
        }
        let told = |(thread_id, result): (&ThreadId, Option<StoreResult<()>>)| ThreadOutcome {
            thread_id: *thread_id,
            result: result.unwrap_or(Err(ThreadStoreError::ThreadNotFound { thread_id: *thread_id })),
        };
        thread_ids.iter().zip(results).map(told).collect()
    }
}
