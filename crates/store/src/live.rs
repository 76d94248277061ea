//! A thread that is being written: appends to its store and observes what is appended into its metadata
//! (`thread-store.md` 3.3).

use std::sync::Arc;

use serde_json::Value;
use threadkeep_record::observe::{Fact, Known, Observer};
use threadkeep_record::{Field, GitPatch, HistoryMode, MetadataPatch, NewItem, ThreadId, UtcMillis};
use tokio::sync::Mutex;

use crate::clock::Clock;
use crate::contract::{StoreResult, ThreadStore};
use crate::params::{Archived, CreateThread, ResumeThread, WithHistory};
use crate::stored::{Appended, StoredThread};

/// Observed metadata is sent at most once in so many milliseconds; barriers and the start of a turn do not wait.
pub const COALESCE_MS: i64 = 5_000;

/// A thread that is being written.
#[derive(Debug)]
pub struct LiveThread {
    store: Arc<dyn ThreadStore>,
    clock: Arc<dyn Clock>,
    thread_id: ThreadId,
    history_mode: HistoryMode,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    observer: Observer,
    /// What was observed and not sent yet.
    pending: MetadataPatch,
    /// Nothing is sent before the thread has a history of its own.
    held: bool,
    sent_at: Option<UtcMillis>,
}

/// When pending metadata is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Send {
    /// If the last time is long enough ago.
    IfDue,
    /// Now.
    Now,
}

impl LiveThread {
    /// Creates a thread. Nothing is kept before the first append or [`persist`](Self::persist).
    pub async fn create(
        store: Arc<dyn ThreadStore>,
        mut params: CreateThread,
        clock: Arc<dyn Clock>,
    ) -> StoreResult<Self> {
        let now = *params.created_at.get_or_insert_with(|| clock.now());
        let (thread_id, history_mode) = (params.thread_id, params.history_mode);
        let pending = first_patch(&params, now);
        let cwd = if params.metadata.cwd.is_some() { Fact::Yes } else { Fact::No };
        store.create_thread(params).await?;
        let observer = Observer::new(thread_id, Known { cwd, ..Known::default() });
        let state = State { observer, pending, held: true, sent_at: None };
        Ok(Self { store, clock, thread_id, history_mode, state: Mutex::new(state) })
    }

    /// Creates a thread of a spawned agent that begins with context from its parent. The inherited items are no
    /// output of this thread and are not observed; in the paginated mode they are no visible history either.
    pub async fn create_with_inherited(
        store: Arc<dyn ThreadStore>,
        mut params: CreateThread,
        inherited: &[NewItem],
        clock: Arc<dyn Clock>,
    ) -> StoreResult<Self> {
        if params.history_mode == HistoryMode::Paginated {
            let kept = inherited.iter().filter(|item| item.is_kept(HistoryMode::Paginated)).count();
            params.subagent_history_start_ordinal = Some(kept as u64 + 1);
        }
        let live = Self::create(store, params, clock).await?;
        if let Err(e) = live.store.append_items(live.thread_id, inherited).await {
            // The first failure is the one to tell.
            let _ = live.discard().await;
            return Err(e);
        }
        Ok(live)
    }

    /// Continues a thread. What is known of it stays: creation, provider, first message. A thread that cannot be read
    /// is closed again.
    pub async fn resume(store: Arc<dyn ThreadStore>, params: ResumeThread, clock: Arc<dyn Clock>) -> StoreResult<Self> {
        let thread_id = params.thread_id;
        store.resume_thread(params).await?;
        match store.read_thread(thread_id, Archived::Included, WithHistory::No).await {
            Ok(thread) => {
                let is = |there: bool| if there { Fact::Yes } else { Fact::No };
                let known = Known {
                    preview: is(!thread.preview.is_empty()),
                    first_message: is(thread.first_user_message.is_some()),
                    cwd: is(thread.cwd.is_some()),
                };
                let state = State {
                    observer: Observer::new(thread_id, known),
                    pending: resumed_patch(&thread),
                    held: true,
                    sent_at: None,
                };
                let history_mode = thread.history_mode;
                Ok(Self { store, clock, thread_id, history_mode, state: Mutex::new(state) })
            }
            Err(e) => {
                // The first failure is the one to tell.
                let _ = store.discard_thread(thread_id).await;
                Err(e)
            }
        }
    }

    /// The thread.
    #[must_use]
    pub fn thread_id(&self) -> ThreadId {
        self.thread_id
    }

    /// How its history is kept.
    #[must_use]
    pub fn history_mode(&self) -> HistoryMode {
        self.history_mode
    }

    /// Its store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn ThreadStore> {
        &self.store
    }

    /// Appends items and observes them. Metadata that cannot be kept now waits for the next append or barrier; that
    /// never fails an append. For errors see [`ThreadStore::append_items`].
    pub async fn append(&self, items: &[NewItem]) -> StoreResult<Appended> {
        let mut state = self.state.lock().await;
        let appended = self.store.append_items(self.thread_id, items).await?;
        let Some(last) = appended.last() else { return Ok(appended) };
        state.held = false;
        for (item, time) in items.iter().zip(&appended.times) {
            // A payload is a JSON object by construction.
            if let Some(time) = time
                && Observer::listens_to(item.kind())
                && let Ok(payload) = serde_json::from_str::<Value>(item.payload())
            {
                let patch = state.observer.observe(item.kind(), &payload, *time);
                state.pending.merge(patch);
            }
        }
        state.pending.merge(MetadataPatch::touch(last));
        let turn_started = state.pending.advance_recency_at.is_some();
        // What cannot be kept now stays pending.
        let _ = self.send(&mut state, if turn_started { Send::Now } else { Send::IfDue }).await;
        Ok(appended)
    }

    async fn send(&self, state: &mut State, when: Send) -> StoreResult<()> {
        if state.held || state.pending == MetadataPatch::default() {
            return Ok(());
        }
        let now = self.clock.now();
        let due = state.sent_at.is_none_or(|at| now.0.saturating_sub(at.0) >= COALESCE_MS || now < at);
        if when == Send::IfDue && !due {
            return Ok(());
        }
        self.store.observe_metadata(self.thread_id, state.pending.clone()).await?;
        state.pending = MetadataPatch::default();
        state.sent_at = Some(now);
        Ok(())
    }

    /// Makes the thread exist and durable, even without items.
    pub async fn persist(&self) -> StoreResult<()> {
        let mut state = self.state.lock().await;
        self.store.persist_thread(self.thread_id).await?;
        state.held = false;
        let _ = self.send(&mut state, Send::Now).await;
        Ok(())
    }

    /// Makes what was appended durable.
    pub async fn flush(&self) -> StoreResult<()> {
        let mut state = self.state.lock().await;
        self.store.flush_thread(self.thread_id).await?;
        let _ = self.send(&mut state, Send::Now).await;
        Ok(())
    }

    /// Makes everything durable and closes the thread. If that fails it stays open and can be tried again.
    pub async fn shutdown(&self) -> StoreResult<()> {
        self.flush().await?;
        self.store.shutdown_thread(self.thread_id).await
    }

    /// Closes the thread without writing what is still held back.
    pub async fn discard(&self) -> StoreResult<()> {
        self.store.discard_thread(self.thread_id).await
    }

    /// Changes metadata by a person's or program's decision, behind what was observed so far.
    pub async fn update_metadata(&self, patch: MetadataPatch) -> StoreResult<StoredThread> {
        let mut state = self.state.lock().await;
        let _ = self.send(&mut state, Send::Now).await;
        self.store.update_thread_metadata(self.thread_id, patch, Archived::Included).await
    }

    /// The thread as its store knows it.
    pub async fn read(&self, history: WithHistory) -> StoreResult<StoredThread> {
        self.store.read_thread(self.thread_id, Archived::Included, history).await
    }

    /// Holds the thread while its host is being set up: unless the guard is released, dropping it discards the thread.
    #[must_use]
    pub fn guard(self) -> InitGuard {
        InitGuard(Some(self))
    }
}

/// A live thread whose host is not ready yet. Dropping it discards the thread.
#[derive(Debug)]
pub struct InitGuard(Option<LiveThread>);

impl InitGuard {
    /// The thread, once its host is ready.
    #[must_use]
    pub fn release(mut self) -> Option<LiveThread> {
        self.0.take()
    }
}

impl std::ops::Deref for InitGuard {
    type Target = Option<LiveThread>;
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for InitGuard {
    fn drop(&mut self) {
        let Some(live) = self.0.take() else { return };
        let discard = async move {
            // Nobody is left to be told; a thread that was closed already needs nothing.
            let _ = live.discard().await;
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(discard);
            }
            // Dropped outside a runtime: do it here.
            Err(_) => {
                if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() {
                    runtime.block_on(discard);
                }
            }
        }
    }
}

fn first_patch(p: &CreateThread, now: UtcMillis) -> MetadataPatch {
    let set = |text: Option<String>| text.map_or(Field::Keep, Field::Set);
    let spawn = p.source.get("subagent").and_then(|s| s.get("thread_spawn"));
    let agent = |key: &str| set(spawn.and_then(|s| s.get(key)).and_then(Value::as_str).map(str::to_owned));
    let git = p.git.clone().unwrap_or_default();
    MetadataPatch {
        created_at: Some(now),
        updated_at: Some(now),
        model_provider: p.metadata.model_provider.clone(),
        source: Some(p.source.clone()),
        thread_source: set(p.thread_source.clone()),
        agent_nickname: agent("agent_nickname"),
        agent_role: agent("agent_role"),
        agent_path: agent("agent_path"),
        cwd: p.metadata.cwd.as_ref().map(|c| c.to_string_lossy().into_owned()),
        cli_version: Some(env!("CARGO_PKG_VERSION").into()),
        memory_mode: p.metadata.memory_mode.clone(),
        git: GitPatch { sha: set(git.sha), branch: set(git.branch), origin_url: set(git.origin_url) },
        ..MetadataPatch::default()
    }
}

/// What is known of a resumed thread; without a time of output, since there was none yet.
fn resumed_patch(t: &StoredThread) -> MetadataPatch {
    let set = |text: &Option<String>| text.clone().map_or(Field::Keep, Field::Set);
    MetadataPatch {
        created_at: Some(t.created_at),
        source: Some(t.source.clone()),
        thread_source: set(&t.thread_source),
        agent_nickname: set(&t.agent_nickname),
        agent_role: set(&t.agent_role),
        agent_path: set(&t.agent_path),
        model_provider: t.model_provider.clone(),
        model: t.model.clone(),
        cwd: t.cwd.clone(),
        cli_version: t.cli_version.clone(),
        memory_mode: t.memory_mode.clone(),
        preview: Some(t.preview.clone()).filter(|p| !p.is_empty()),
        title: t.title.clone(),
        first_user_message: t.first_user_message.clone(),
        ..MetadataPatch::default()
    }
}
