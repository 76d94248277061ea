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
    ThreadPage, TurnPage,
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
}
