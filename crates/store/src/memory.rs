//! A thread store in memory: the whole contract, with records in the bytes that a rollout would hold, and without files.

mod edges;
mod fork;
mod lifecycle;
mod list;
mod live;
mod metadata;
mod pages;
mod read;
mod revert;
mod search;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use threadkeep_record::{MetadataPatch, NewHeader, NewItem, ThreadId, ThreadMetadata, UtcMillis};

use crate::ThreadStoreError;
use crate::clock::Clock;
use crate::contract::{StoreResult, ThreadStore};
use crate::params::{
    Archived, CreateThread, ForkThread, ListThreads, ListTurns, Relation, ResumeThread, SearchOccurrences,
    SearchThreads, WithHistory,
};
use crate::stored::{
    Appended, EdgeStatus, ItemPage, OccurrencePage, Resumed, SpawnEdge, StoredHistory, StoredRecord, StoredThread,
    ThreadHitPage, ThreadPage, TurnPage,
};

/// A thread store in memory.
///
/// Several stores may be opened on the same threads ([`reopen`](Self::reopen)), as several processes open one home: each
/// has its own live writers, and a thread has one writer over all of them. Dropping a store closes its writers.
#[derive(Debug)]
pub struct MemoryThreadStore {
    kept: Arc<Mutex<Kept>>,
    clock: Arc<dyn Clock>,
    /// Tells this store's writers from those of others.
    owner: u64,
}

/// What all stores on the same threads share.
#[derive(Debug, Default)]
struct Kept {
    threads: BTreeMap<ThreadId, Thread>,
    /// By their own ids: a thread's first one has the thread's, later ones have one of their own.
    rollouts: BTreeMap<ThreadId, Rollout>,
    writers: BTreeMap<ThreadId, Writer>,
    /// Who spawned a thread, by the spawned one.
    edges: BTreeMap<ThreadId, SpawnEdge>,
    stores: u64,
}

/// A thread that exists.
#[derive(Debug)]
struct Thread {
    history_mode: threadkeep_record::HistoryMode,
    /// The rollout that it goes on in.
    head: ThreadId,
    /// How many records behind the header of its first rollout were copied from another thread.
    copied: usize,
    /// When its last record was written.
    last_time: UtcMillis,
    /// The next record's ordinal, in a paginated thread.
    next_ordinal: Option<u64>,
    /// Everything that was observed and set.
    stored: Option<ThreadMetadata>,
    /// What was decided and counts before what the records say.
    decided: MetadataPatch,
    /// It is archived, since when.
    archived: Option<UtcMillis>,
}

/// Records of a thread in one piece.
#[derive(Debug)]
struct Rollout {
    /// The thread.
    owner: ThreadId,
    /// The header first.
    records: Vec<StoredRecord>,
    /// The prefix of another rollout that they continue: which, and the first ordinal that is left out.
    base: Option<(ThreadId, u64)>,
}

/// A live writer.
#[derive(Debug)]
struct Writer {
    owner: u64,
    history_mode: threadkeep_record::HistoryMode,
    /// The thread that is not there yet.
    unmade: Option<Unmade>,
    /// Records of the whole history when it was opened: a turn that begins behind them began through it.
    found: usize,
}

/// A thread before its first record.
#[derive(Debug)]
struct Unmade {
    header: NewHeader,
    /// What was observed of it.
    patches: Vec<MetadataPatch>,
}

impl MemoryThreadStore {
    /// A store without threads.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::over(Arc::default(), clock)
    }

    /// Another store on the same threads.
    #[must_use]
    pub fn reopen(&self) -> Self {
        Self::over(Arc::clone(&self.kept), Arc::clone(&self.clock))
    }

    fn over(kept: Arc<Mutex<Kept>>, clock: Arc<dyn Clock>) -> Self {
        let store = Self { kept, clock, owner: 0 };
        let owner = {
            let mut kept = store.lock();
            kept.stores += 1;
            kept.stores
        };
        Self { owner, kept: Arc::clone(&store.kept), clock: Arc::clone(&store.clock) }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        // No step under the lock leaves half of a change, so what another thread's panic left is whole.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for MemoryThreadStore {
    fn drop(&mut self) {
        let owner = self.owner;
        self.lock().writers.retain(|_, w| w.owner != owner);
    }
}

fn invalid(message: impl Into<String>) -> ThreadStoreError {
    ThreadStoreError::InvalidRequest { message: message.into() }
}

fn no_rollout(thread_id: ThreadId) -> ThreadStoreError {
    invalid(format!("no rollout found for thread id {thread_id}"))
}

/// A store without files finds none.
fn no_file(path: &Path) -> ThreadStoreError {
    invalid(format!("failed to resolve rollout path `{}`: file does not exist", path.display()))
}

impl Kept {
    fn thread(&self, thread_id: ThreadId) -> StoreResult<&Thread> {
        self.threads.get(&thread_id).ok_or_else(|| no_rollout(thread_id))
    }

    fn thread_mut(&mut self, thread_id: ThreadId) -> StoreResult<&mut Thread> {
        self.threads.get_mut(&thread_id).ok_or_else(|| no_rollout(thread_id))
    }

    /// A thread, unless it is archived and archived ones do not count.
    fn found(&self, thread_id: ThreadId, archived: Archived) -> StoreResult<&Thread> {
        let thread = self.thread(thread_id)?;
        match (thread.archived, archived) {
            (Some(_), Archived::Excluded) => Err(invalid(format!("thread {thread_id} is archived"))),
            (None, _) | (_, Archived::Included) => Ok(thread),
        }
    }
}

#[async_trait]
impl ThreadStore for MemoryThreadStore {
    async fn create_thread(&self, params: CreateThread) -> StoreResult<()> {
        self.create(params)
    }

    async fn resume_thread(&self, params: ResumeThread) -> StoreResult<Resumed> {
        self.resume(&params)
    }

    async fn append_items(&self, thread_id: ThreadId, items: &[NewItem]) -> StoreResult<Appended> {
        self.append(thread_id, items)
    }

    async fn persist_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        self.persist(thread_id)
    }

    async fn flush_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        // Memory has nothing that is written and not kept.
        self.lock().writer(self.owner, thread_id).map(|_| ())
    }

    async fn shutdown_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        self.close(thread_id)
    }

    async fn discard_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        self.close(thread_id)
    }

    async fn live_rollout_path(&self, thread_id: ThreadId) -> StoreResult<Option<PathBuf>> {
        self.lock().writer(self.owner, thread_id).map(|_| None)
    }

    async fn load_history(&self, thread_id: ThreadId, archived: Archived) -> StoreResult<StoredHistory> {
        let kept = self.lock();
        kept.found(thread_id, archived)?;
        Ok(kept.history(thread_id))
    }

    async fn load_latest_model_context(&self, thread_id: ThreadId, archived: Archived) -> StoreResult<StoredHistory> {
        let kept = self.lock();
        kept.found(thread_id, archived)?;
        Ok(crate::model_context::latest(kept.history(thread_id)))
    }

    async fn read_thread(
        &self,
        thread_id: ThreadId,
        archived: Archived,
        history: WithHistory,
    ) -> StoreResult<StoredThread> {
        self.lock().read(thread_id, archived, history)
    }

    async fn read_thread_by_rollout_path(&self, path: &Path, _history: WithHistory) -> StoreResult<StoredThread> {
        Err(no_file(path))
    }

    async fn list_threads(&self, params: ListThreads) -> StoreResult<ThreadPage> {
        self.list(params)
    }

    async fn search_threads(&self, params: SearchThreads) -> StoreResult<ThreadHitPage> {
        self.search(params)
    }

    async fn search_thread_occurrences(&self, params: SearchOccurrences) -> StoreResult<OccurrencePage> {
        self.occurrences(&params)
    }

    async fn list_turns(&self, params: ListTurns) -> StoreResult<TurnPage> {
        self.turns(&params)
    }

    async fn list_items(&self, params: ListTurns) -> StoreResult<ItemPage> {
        self.items(&params)
    }

    async fn update_thread_metadata(
        &self,
        thread_id: ThreadId,
        patch: MetadataPatch,
        archived: Archived,
    ) -> StoreResult<StoredThread> {
        self.update(thread_id, patch, archived)
    }

    async fn observe_metadata(&self, thread_id: ThreadId, patch: MetadataPatch) -> StoreResult<()> {
        self.lock().observe(thread_id, patch)
    }

    async fn stored_metadata(&self, thread_id: ThreadId) -> StoreResult<Option<ThreadMetadata>> {
        Ok(self.lock().threads.get(&thread_id).and_then(|t| t.stored.clone()))
    }

    async fn upsert_spawn_edge(&self, edge: SpawnEdge) -> StoreResult<()> {
        self.lock().edges.insert(edge.child, edge);
        Ok(())
    }

    async fn set_spawn_edge_status(&self, child: ThreadId, status: EdgeStatus) -> StoreResult<()> {
        if let Some(edge) = self.lock().edges.get_mut(&child) {
            edge.status = status;
        }
        Ok(())
    }

    async fn list_spawn_edges(&self, relation: Relation, status: Option<EdgeStatus>) -> StoreResult<Vec<SpawnEdge>> {
        Ok(self.lock().spawned(relation, status))
    }

    async fn fork_thread(&self, params: ForkThread) -> StoreResult<()> {
        self.fork(params)
    }

    async fn revert_thread(&self, thread_id: ThreadId, before_turn: String) -> StoreResult<StoredThread> {
        self.revert(thread_id, &before_turn)
    }

    async fn archive_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        self.archive(thread_id)
    }

    async fn unarchive_thread(&self, thread_id: ThreadId) -> StoreResult<StoredThread> {
        self.unarchive(thread_id)
    }

    async fn delete_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        self.delete(thread_id)
    }
}
