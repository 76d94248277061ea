//! What the operations of a thread store are asked with (`thread-store.md` 3.2).

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use threadkeep_capability::{SESSION_META_FIELD, selection_for_fork};
use threadkeep_record::{GitInfo, HistoryMode, SessionMeta, ThreadId, UtcMillis};

use crate::list::{Direction, SortKey};

/// Facts of a thread that its host decides.
#[derive(Debug, Clone, Default)]
pub struct HostMetadata {
    /// Working directory. A store that keeps files refuses a thread without one.
    pub cwd: Option<PathBuf>,
    /// Model provider.
    pub model_provider: Option<String>,
    /// `enabled` or `disabled`.
    pub memory_mode: Option<String>,
}

/// A thread that is to be made.
#[derive(Debug, Clone)]
pub struct CreateThread {
    /// The session: for a root thread its own id.
    pub session_id: ThreadId,
    /// The thread.
    pub thread_id: ThreadId,
    /// The thread it was forked from.
    pub forked_from_id: Option<ThreadId>,
    /// The thread that spawned it.
    pub parent_thread_id: Option<ThreadId>,
    /// `source` in its wire form.
    pub source: Value,
    /// What kind of work started it.
    pub thread_source: Option<String>,
    /// The program that makes it.
    pub originator: String,
    /// The prompt it starts with.
    pub base_instructions: Option<String>,
    /// Tools that its client adds, in their wire form.
    pub dynamic_tools: Vec<Value>,
    /// Selected capability roots, in their wire form.
    pub selected_capability_roots: Vec<Value>,
    /// `disabled`, `v1` or `v2`.
    pub multi_agent_version: Option<String>,
    /// How its history is kept, for good.
    pub history_mode: HistoryMode,
    /// Records below this ordinal will be context copied from a parent agent.
    pub subagent_history_start_ordinal: Option<u64>,
    /// Id of the first context window.
    pub initial_window_id: Option<String>,
    /// Git facts, where the host collected them.
    pub git: Option<GitInfo>,
    /// When the thread is created; `None` is now, by the store's clock.
    pub created_at: Option<UtcMillis>,
    /// Further fields of the header, as they are.
    pub extra: Map<String, Value>,
    /// What the host decides.
    pub metadata: HostMetadata,
}

impl CreateThread {
    /// A root thread of a person, kept as every release reads it.
    #[must_use]
    pub fn new(thread_id: ThreadId, cwd: impl Into<PathBuf>, originator: impl Into<String>) -> Self {
        Self {
            session_id: thread_id,
            thread_id,
            forked_from_id: None,
            parent_thread_id: None,
            source: Value::from("cli"),
            thread_source: None,
            originator: originator.into(),
            base_instructions: None,
            dynamic_tools: vec![],
            selected_capability_roots: vec![],
            multi_agent_version: None,
            history_mode: HistoryMode::Legacy,
            subagent_history_start_ordinal: None,
            initial_window_id: None,
            git: None,
            created_at: None,
            extra: Map::new(),
            metadata: HostMetadata { cwd: Some(cwd.into()), ..HostMetadata::default() },
        }
    }
}

/// A thread that is to be continued.
#[derive(Debug, Clone)]
pub struct ResumeThread {
    /// The thread.
    pub thread_id: ThreadId,
    /// Its rollout, also outside the store; without it the thread is looked for by id.
    pub rollout_path: Option<PathBuf>,
    /// Whether an archived thread may be continued where it is.
    pub archived: Archived,
    /// What the host decides.
    pub metadata: HostMetadata,
}

/// Whether archived threads count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Archived {
    /// Only active threads.
    #[default]
    Excluded,
    /// Both; an active one comes first.
    Included,
}

/// Whether a read brings the history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WithHistory {
    /// It does not.
    #[default]
    No,
    /// It does.
    Yes,
}

/// A page of threads that is asked for.
#[derive(Debug, Clone, Default)]
pub struct ListThreads {
    /// Threads of a page; at least 1 is given.
    pub page_size: usize,
    /// Where the page begins.
    pub cursor: Option<String>,
    /// Order.
    pub sort_key: SortKey,
    /// Direction.
    pub direction: Direction,
    /// Only these sources (words as in the wire form); empty is all.
    pub allowed_sources: Vec<String>,
    /// Only these providers; `None` and empty are all.
    pub model_providers: Option<Vec<String>>,
    /// Only exactly these directories; an empty list matches nothing.
    pub cwd_filters: Option<Vec<PathBuf>>,
    /// Archived threads instead of active ones.
    pub archived: bool,
    /// Name or preview holds this text.
    pub search_term: Option<String>,
    /// Only threads in this relation.
    pub relation: Option<Relation>,
}

/// A relation in the spawn graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// Spawned by this thread itself.
    ChildrenOf(ThreadId),
    /// Spawned by this thread or by one below it.
    DescendantsOf(ThreadId),
}

/// A search in what was said.
#[derive(Debug, Clone, Default)]
pub struct SearchThreads {
    /// The text, taken literally, in any case.
    pub search_term: String,
    /// Threads of a page.
    pub page_size: usize,
    /// Where the page begins.
    pub cursor: Option<String>,
    /// Archived threads instead of active ones.
    pub archived: bool,
}

/// A search in one thread.
#[derive(Debug, Clone)]
pub struct SearchOccurrences {
    /// The thread.
    pub thread_id: ThreadId,
    /// The text, taken literally, in any case.
    pub search_term: String,
    /// Hits of a page.
    pub page_size: usize,
    /// Where the page begins.
    pub cursor: Option<String>,
}

/// A page of turns or items that is asked for.
#[derive(Debug, Clone)]
pub struct ListTurns {
    /// The thread.
    pub thread_id: ThreadId,
    /// Turns (or items) of a page.
    pub page_size: usize,
    /// Where the page begins.
    pub cursor: Option<String>,
    /// Oldest or newest first.
    pub direction: Direction,
    /// Whether archived threads count.
    pub archived: Archived,
}

/// What of a history a fork takes over (`thread-store.md` 7.1, 7.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForkRange {
    /// Everything. Of a turn that still runs, an end is added.
    Whole,
    /// Up to and with this turn, which must have ended.
    ThroughTurn(String),
    /// Up to this turn, which is left out.
    BeforeTurn(String),
    /// The context of a spawned agent: what the model needs, of the last turns or of all.
    Subagent {
        /// How many turns; `None` is all.
        last_turns: Option<u64>,
    },
}

/// A fork that is to be made.
#[derive(Debug, Clone)]
pub struct ForkThread {
    /// The thread it is made from.
    pub source: ThreadId,
    /// Whether an archived thread may be forked.
    pub archived: Archived,
    /// What it takes over.
    pub range: ForkRange,
    /// The new thread. Its history mode and, unless they are given, its capability roots become the source's.
    pub child: CreateThread,
}

/// How a session's selected capability roots come to a resumed or forked thread: an explicit list wins, else the first
/// header's (`thread-store.md` 7.2). What is not known in a root, and what is no root, stays as it is; a legacy absolute
/// path becomes a URI.
#[must_use]
pub fn selected_roots(explicit: Option<Vec<Value>>, first_header: Option<&SessionMeta>) -> Vec<Value> {
    let of_header = first_header.map(|h| h.capability_roots.as_slice());
    decided(explicit.as_deref(), of_header)
        // Only lists nested deeper than JSON is read: they are kept as they are.
        .unwrap_or_else(|_| explicit.unwrap_or_else(|| of_header.unwrap_or_default().to_vec()))
}

fn decided(explicit: Option<&[Value]>, of_header: Option<&[Value]>) -> Result<Vec<Value>, serde_json::Error> {
    let explicit = explicit.map(|roots| serde_json::from_value(roots.into())).transpose()?;
    let header = of_header.map(|roots| json!({ SESSION_META_FIELD: roots }).to_string());
    let selection = selection_for_fork(explicit, header.as_deref()).map_err(serde::de::Error::custom)?;
    selection.entries().iter().map(serde_json::to_value).collect()
}
