//! `LocalThreadStore`: the thread store contract on the files of a home that Codex goes on using.
//!
//! The rollout is the truth. What is observed goes into the index behind it and is never a condition.

mod codex_write;
mod convert;
mod edges;
mod fork;
mod lifecycle;
mod model_context;
mod pages;
mod registry;
mod revert;
mod unrevert;
mod update;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use threadkeep_index::{Index, IndexOptions, IndexPlace};
use threadkeep_record::{MetadataPatch, NewItem, ThreadId, ThreadMetadata, UtcMillis};
use threadkeep_rollout::Home;
use threadkeep_rollout::appender::Durability;
use threadkeep_rollout::seam::{Disk, RealDisk};
use threadkeep_store::{
    Appended, Archived, Clock, CreateThread, EdgeStatus, ForkRange, ForkThread, ItemPage, ListThreads, ListTurns,
    OccurrencePage, Relation, ResumeThread, Resumed, SearchOccurrences, SearchThreads, SpawnEdge, StoreResult,
    StoredHistory, StoredThread, SystemClock, ThreadHitPage, ThreadOutcome, ThreadPage, ThreadStore, ThreadStoreError,
    TurnPage, WithHistory,
};

use crate::list::LocalStore;
pub(crate) use codex_write::{CodexDb, CodexWriteError};
use registry::Registry;
pub use revert::{RevertPlan, RevertedFile};
pub use unrevert::{UnrevertPlan, UnrevertedFile};
use writing::Live;
pub(crate) use writing::lock_note;

/// How a local store is opened.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// The home.
    pub home: PathBuf,
    /// Where Codex's databases are, if not in their usual places.
    pub sqlite_home: Option<PathBuf>,
    /// When appended records are made durable.
    pub durability: Durability,
    /// Where the index is kept; `None` works without any database of our own.
    pub index: Option<IndexPlace>,
    /// How long a write waits for another program's lock of a database or of the name index.
    pub patience: Duration,
}

impl LocalOptions {
    /// The usual: durable on flush, the index in the home.
    #[must_use]
    pub fn new(home: impl Into<PathBuf>) -> Self {
        Self {
            home: home.into(),
            sqlite_home: None,
            durability: Durability::default(),
            index: Some(IndexPlace::Home),
            patience: Duration::from_secs(3),
        }
    }
}

/// A place that holds a thread's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePlace {
    /// The file.
    pub path: PathBuf,
    /// The column of a database.
    pub column: Option<&'static str>,
}

/// The thread store over one home.
#[derive(Debug, Clone)]
pub struct LocalThreadStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    home: Home,
    sqlite_home: Option<PathBuf>,
    read: LocalStore,
    index: Option<IndexPlace>,
    opened_index: OnceLock<Option<Index>>,
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    durability: Durability,
    patience: Duration,
    live: Registry<Live>,
    /// The index is being filled behind a list.
    filling: Arc<AtomicBool>,
}

impl LocalThreadStore {
    /// Opens a store. The home need not exist yet; it is made with the first thread.
    #[must_use]
    pub fn open(options: LocalOptions) -> Self {
        Self::open_with(options, Arc::new(SystemClock))
    }

    /// As [`open`](Self::open), with a clock of the caller's.
    #[must_use]
    pub fn open_with(options: LocalOptions, clock: Arc<dyn Clock>) -> Self {
        let LocalOptions { home, sqlite_home, durability, index, patience } = options;
        let home = Home::new(home);
        let read = LocalStore::new(vec![home.clone()], sqlite_home.clone());
        let read = match &index {
            Some(place) => read.with_index(place.clone()),
            None => read,
        };
        let filling = Arc::new(AtomicBool::new(false));
        let disk = Arc::new(RealDisk);
        let live = Registry::default();
        let opened_index = OnceLock::new();
        let inner =
            Inner { home, sqlite_home, read, index, opened_index, disk, clock, durability, patience, live, filling };
        Self { inner: Arc::new(inner) }
    }

    /// The home.
    #[must_use]
    pub fn home(&self) -> &Home {
        &self.inner.home
    }

    /// The reading half, as lists and searches of a person use it.
    #[must_use]
    pub fn reader(&self) -> &LocalStore {
        &self.inner.read
    }

    /// The index beside the files; `None` while there is no home to keep it in, or where it cannot be had at all.
    #[must_use]
    pub fn index(&self) -> Option<&Index> {
        self.inner.index()
    }

    /// Where the rollout of a thread that is created at `at` goes.
    #[must_use]
    pub fn new_rollout_path(&self, id: ThreadId, at: UtcMillis) -> PathBuf {
        self.inner.new_path(id, at)
    }

    /// What setting a thread's name would change: the name index, and where Codex has a row of the thread, the column
    /// that holds the name there.
    pub fn name_places(&self, id: ThreadId) -> StoreResult<Vec<NamePlace>> {
        let thread = self.inner.read(id, Archived::Included, WithHistory::No)?;
        let mut places = vec![NamePlace { path: self.name_index_path(), column: None }];
        let in_codex = self.inner.codex().name_column(id, thread.history_mode);
        places.extend(in_codex.map(|(path, column)| NamePlace { path, column: Some(column) }));
        Ok(places)
    }

    /// The file that holds the names of a home.
    #[must_use]
    pub fn name_index_path(&self) -> PathBuf {
        self.inner.home.path().join(threadkeep_rollout::name_index::FILE)
    }

    /// A name as it would be kept, or why it cannot be a name.
    pub fn check_name(name: &str) -> StoreResult<&str> {
        update::checked_name(name)
    }

    /// Whether a fork of this range can be made, without making anything: the thread can be read, and the turn is there
    /// and has ended.
    pub fn check_fork(&self, source: ThreadId, archived: Archived, range: &ForkRange) -> StoreResult<()> {
        self.inner.check_fork(source, archived, range)
    }

    /// What [`revert_thread`](ThreadStore::revert_thread) would do, or why it would be refused; nothing is changed.
    pub fn plan_revert(&self, thread_id: ThreadId, before_turn: &str) -> StoreResult<RevertPlan> {
        self.inner.plan_revert(thread_id, before_turn)
    }

    /// Reverts a thread as planned, into the file that the plan names. Whether it still can be is looked at again.
    pub async fn revert_as_planned(&self, plan: RevertPlan) -> StoreResult<StoredThread> {
        self.blocking(move |inner| inner.revert(&plan)).await
    }

    /// What taking back the last revert of a thread would do; nothing is changed. Refused where anything was said behind
    /// it, where a fork refers to it, and where someone writes the thread.
    ///
    /// # Errors
    ///
    /// `InvalidRequest` with the reason.
    pub fn plan_unrevert(&self, thread_id: ThreadId) -> StoreResult<UnrevertPlan> {
        self.inner.plan_unrevert(thread_id)
    }

    /// Takes back a revert as planned. Whether it still can be is looked at again.
    ///
    /// # Errors
    ///
    /// As [`plan_unrevert`](Self::plan_unrevert); where a file or Codex's database cannot be changed, the thread is as
    /// it was.
    pub async fn unrevert_as_planned(&self, plan: UnrevertPlan) -> StoreResult<StoredThread> {
        self.blocking(move |inner| inner.unrevert(&plan)).await
    }

    /// Runs work on files beside the runtime's own threads.
    async fn blocking<R: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> StoreResult<R> + Send + 'static,
    ) -> StoreResult<R> {
        let inner = Arc::clone(&self.inner);
        tokio::task::spawn_blocking(move || work(&inner)).await.unwrap_or_else(|e| Err(internal(e)))
    }

    /// Does the same to several threads, and tells what became of each.
    async fn together(
        &self,
        thread_ids: &[ThreadId],
        work: impl FnOnce(&Inner, &[ThreadId]) -> Vec<ThreadOutcome> + Send + 'static,
    ) -> Vec<ThreadOutcome> {
        let ids = thread_ids.to_vec();
        let done = self.blocking(move |inner| Ok(work(inner, &ids))).await;
        done.unwrap_or_else(|e| {
            let failed = |thread_id: &ThreadId| ThreadOutcome { thread_id: *thread_id, result: Err(internal(&e)) };
            thread_ids.iter().map(failed).collect()
        })
    }
}

impl Inner {
    /// The index, opened when it is first needed: a store over a home that is not there yet makes nothing.
    fn index(&self) -> Option<&Index> {
        let place = self.index.as_ref()?;
        if self.opened_index.get().is_none() && *place == IndexPlace::Home && !self.home.path().is_dir() {
            return None;
        }
        let open = || {
            let options = |place| IndexOptions { home: self.home.clone(), place, busy: self.patience };
            // Whatever keeps its file from being used costs hints, never answers.
            Index::open(options(place.clone())).or_else(|_| Index::open(options(IndexPlace::Memory))).ok()
        };
        self.opened_index.get_or_init(open).as_ref()
    }

    /// What the index knows of a thread. It is a hint: where it cannot tell, there is none.
    fn hint(&self, id: ThreadId) -> Option<ThreadMetadata> {
        self.index()?.get(id).ok().flatten()
    }
}

/// What went wrong inside, as the contract tells it.
fn internal(e: impl std::fmt::Display) -> ThreadStoreError {
    ThreadStoreError::Internal { message: e.to_string() }
}

fn invalid(message: impl Into<String>) -> ThreadStoreError {
    ThreadStoreError::InvalidRequest { message: message.into() }
}

#[async_trait]
impl ThreadStore for LocalThreadStore {
    async fn create_thread(&self, params: CreateThread) -> StoreResult<()> {
        self.inner.create(params)
    }

    async fn resume_thread(&self, params: ResumeThread) -> StoreResult<Resumed> {
        self.blocking(move |inner| inner.resume(&params)).await
    }

    async fn append_items(&self, thread_id: ThreadId, items: &[NewItem]) -> StoreResult<Appended> {
        // A write into the page cache takes microseconds: less than handing it to another thread.
        if self.inner.durability == Durability::EachAppend {
            let items = items.to_vec();
            return self.blocking(move |inner| inner.append(thread_id, &items)).await;
        }
        self.inner.append(thread_id, items)
    }

    async fn persist_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        self.blocking(move |inner| inner.persist(thread_id)).await
    }

    async fn flush_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        self.blocking(move |inner| inner.flush(thread_id)).await
    }

    async fn shutdown_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        self.blocking(move |inner| inner.shutdown(thread_id)).await
    }

    async fn discard_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        self.inner.discard(thread_id)
    }

    async fn live_rollout_path(&self, thread_id: ThreadId) -> StoreResult<Option<PathBuf>> {
        self.inner.live_path(thread_id).map(Some)
    }

    async fn load_history(&self, thread_id: ThreadId, archived: Archived) -> StoreResult<StoredHistory> {
        self.blocking(move |inner| inner.load_history(thread_id, archived)).await
    }

    async fn load_latest_model_context(&self, thread_id: ThreadId, archived: Archived) -> StoreResult<StoredHistory> {
        self.blocking(move |inner| inner.latest_model_context(thread_id, archived)).await
    }

    async fn read_thread(
        &self,
        thread_id: ThreadId,
        archived: Archived,
        history: WithHistory,
    ) -> StoreResult<StoredThread> {
        self.blocking(move |inner| inner.read(thread_id, archived, history)).await
    }

    async fn read_thread_by_rollout_path(&self, path: &Path, history: WithHistory) -> StoreResult<StoredThread> {
        let path = path.to_owned();
        self.blocking(move |inner| inner.read_path(&path, history)).await
    }

    async fn list_threads(&self, params: ListThreads) -> StoreResult<ThreadPage> {
        self.blocking(move |inner| inner.list(&params)).await
    }

    async fn search_threads(&self, params: SearchThreads) -> StoreResult<ThreadHitPage> {
        self.blocking(move |inner| inner.search(&params)).await
    }

    async fn search_thread_occurrences(&self, params: SearchOccurrences) -> StoreResult<OccurrencePage> {
        self.blocking(move |inner| inner.occurrences(&params)).await
    }

    async fn list_turns(&self, params: ListTurns) -> StoreResult<TurnPage> {
        self.blocking(move |inner| inner.turns(&params)).await
    }

    async fn list_items(&self, params: ListTurns) -> StoreResult<ItemPage> {
        self.blocking(move |inner| inner.items(&params)).await
    }

    async fn update_thread_metadata(
        &self,
        thread_id: ThreadId,
        patch: MetadataPatch,
        archived: Archived,
    ) -> StoreResult<StoredThread> {
        self.blocking(move |inner| inner.update(thread_id, &patch, archived)).await
    }

    async fn observe_metadata(&self, thread_id: ThreadId, patch: MetadataPatch) -> StoreResult<()> {
        self.blocking(move |inner| inner.observe(thread_id, patch)).await
    }

    async fn stored_metadata(&self, thread_id: ThreadId) -> StoreResult<Option<ThreadMetadata>> {
        self.blocking(move |inner| inner.index().map_or(Ok(None), |index| index.get(thread_id).map_err(internal))).await
    }

    async fn upsert_spawn_edge(&self, edge: SpawnEdge) -> StoreResult<()> {
        self.blocking(move |inner| inner.upsert_edge(edge)).await
    }

    async fn set_spawn_edge_status(&self, child: ThreadId, status: EdgeStatus) -> StoreResult<()> {
        self.blocking(move |inner| inner.set_edge_status(child, status)).await
    }

    async fn list_spawn_edges(&self, relation: Relation, status: Option<EdgeStatus>) -> StoreResult<Vec<SpawnEdge>> {
        self.blocking(move |inner| inner.edges(relation, status)).await
    }

    async fn fork_thread(&self, params: ForkThread) -> StoreResult<()> {
        self.blocking(move |inner| inner.fork(params)).await
    }

    async fn revert_thread(&self, thread_id: ThreadId, before_turn: String) -> StoreResult<StoredThread> {
        let work = move |inner: &Inner| inner.plan_revert(thread_id, &before_turn).and_then(|plan| inner.revert(&plan));
        self.blocking(work).await
    }

    async fn archive_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        self.blocking(move |inner| inner.archive(thread_id)).await
    }

    async fn unarchive_thread(&self, thread_id: ThreadId) -> StoreResult<StoredThread> {
        self.blocking(move |inner| inner.unarchive(thread_id)).await
    }

    async fn delete_thread(&self, thread_id: ThreadId) -> StoreResult<()> {
        self.blocking(move |inner| inner.delete(thread_id)).await
    }

    async fn archive_threads(&self, thread_ids: &[ThreadId]) -> Vec<ThreadOutcome> {
        self.together(thread_ids, Inner::archive_all).await
    }

    async fn unarchive_threads(&self, thread_ids: &[ThreadId]) -> Vec<ThreadOutcome> {
        self.together(thread_ids, Inner::unarchive_all).await
    }

    async fn delete_threads(&self, thread_ids: &[ThreadId]) -> Vec<ThreadOutcome> {
        self.together(thread_ids, Inner::delete_all).await
    }
}
