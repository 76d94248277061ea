//! What a thread store answers with (`thread-store.md` 3.2).

use std::path::PathBuf;

use serde::Serialize;
use serde_json::Value;
use threadkeep_record::{Envelope, GitInfo, HistoryMode, SessionMeta, Speaker, ThreadId, TokenUsage, UtcMillis};

use crate::ThreadStoreError;
use crate::turns::{Turn, TurnItem};

/// A thread as a store knows it. Facts that are not known are `None`; never guessed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoredThread {
    /// The thread.
    pub thread_id: ThreadId,
    /// The session.
    pub session_id: Option<ThreadId>,
    /// Its rollout in its plain form, where the store keeps files.
    pub rollout_path: Option<PathBuf>,
    /// The thread it was forked from.
    pub forked_from_id: Option<ThreadId>,
    /// The thread that spawned it.
    pub parent_thread_id: Option<ThreadId>,
    /// What stands for it in a list; empty where nothing was said.
    pub preview: String,
    /// The name that a person gave.
    pub name: Option<String>,
    /// The first message's text.
    pub title: Option<String>,
    /// The first message of a person with text.
    pub first_user_message: Option<String>,
    /// Model provider.
    pub model_provider: Option<String>,
    /// Model.
    pub model: Option<String>,
    /// Reasoning effort of the model.
    pub reasoning_effort: Option<String>,
    /// When it was created.
    pub created_at: UtcMillis,
    /// Last output.
    pub updated_at: UtcMillis,
    /// Start of the last turn; of a thread without turns its creation.
    pub recency_at: UtcMillis,
    /// When it was archived; `None` for an active thread, and where nobody kept it.
    pub archived_at: Option<UtcMillis>,
    /// Whether it is archived.
    pub archived: bool,
    /// Working directory.
    pub cwd: Option<String>,
    /// Version text of the writer.
    pub cli_version: Option<String>,
    /// `source` in its wire form.
    pub source: Value,
    /// How its history is kept.
    pub history_mode: HistoryMode,
    /// What kind of work started it.
    pub thread_source: Option<String>,
    /// Name of a spawned agent.
    pub agent_nickname: Option<String>,
    /// Role of a spawned agent.
    pub agent_role: Option<String>,
    /// Path of a spawned agent.
    pub agent_path: Option<String>,
    /// Git facts.
    pub git_info: Option<GitInfo>,
    /// Approval policy.
    pub approval_mode: Option<Value>,
    /// Permission profile.
    pub permission_profile: Option<Value>,
    /// Tokens used in all.
    pub token_usage: Option<TokenUsage>,
    /// `enabled` or `disabled`.
    pub memory_mode: Option<String>,
    /// Selected capability roots of the first header.
    pub selected_capability_roots: Vec<Value>,
    /// The history, where it was asked for.
    #[serde(skip)]
    pub history: Option<StoredHistory>,
}

/// A record of a history: its bytes, without the line feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRecord(pub Vec<u8>);

impl StoredRecord {
    /// The typed view.
    #[must_use]
    pub fn envelope(&self) -> Option<Envelope<'_>> {
        Envelope::parse(&self.0)
    }
}

/// A thread's records in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredHistory {
    /// The thread.
    pub thread_id: ThreadId,
    /// How it is kept.
    pub history_mode: HistoryMode,
    /// Its records.
    pub records: Vec<StoredRecord>,
    /// Records that could not be read and are left out.
    pub damaged: u64,
}

impl StoredHistory {
    /// The thread's own header: the first that carries its id, behind a prefix that it continues; else the first.
    #[must_use]
    pub fn header(&self) -> Option<SessionMeta> {
        self.own_header().map(|(_, header)| header)
    }

    /// The thread's own header with its index.
    #[must_use]
    pub fn own_header(&self) -> Option<(usize, SessionMeta)> {
        let mut headers = self.records.iter().enumerate().filter_map(|(i, r)| Some((i, SessionMeta::parse(&r.0)?)));
        let first = headers.next()?;
        if first.1.id == Some(self.thread_id) {
            return Some(first);
        }
        headers.find(|(_, h)| h.id == Some(self.thread_id)).or(Some(first))
    }
}

/// What an append did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Appended {
    /// For each item given: when its record was written; `None` for an item that this history mode does not keep.
    pub times: Vec<Option<UtcMillis>>,
}

impl Appended {
    /// When the last record was written, if any was.
    #[must_use]
    pub fn last(&self) -> Option<UtcMillis> {
        self.times.iter().rev().find_map(|t| *t)
    }
}

/// What a resume found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resumed {
    /// How the history is kept.
    pub history_mode: Option<HistoryMode>,
    /// The rollout ended in the middle of a record, which is closed off before the next append.
    pub torn_tail: bool,
}

/// What became of one thread of several that were to be changed.
#[derive(Debug)]
pub struct ThreadOutcome {
    /// The thread.
    pub thread_id: ThreadId,
    /// Whether it was changed; otherwise why not, and nothing of it was.
    pub result: Result<(), ThreadStoreError>,
}

/// A page of threads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadPage {
    /// The threads.
    pub threads: Vec<StoredThread>,
    /// Where the next page begins; `None` at the end.
    pub next_cursor: Option<String>,
}

/// A thread in which a text was said.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadHit {
    /// The thread.
    pub thread: StoredThread,
    /// Text around the first match.
    pub snippet: String,
}

/// A page of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadHitPage {
    /// The threads, each once.
    pub hits: Vec<ThreadHit>,
    /// Where the next page begins; `None` at the end.
    pub next_cursor: Option<String>,
}

/// A place in a thread where a text was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occurrence {
    /// The turn, where it has an id.
    pub turn_id: Option<String>,
    /// The turn's number, from 1; `None` where it is no longer part of the conversation.
    pub turn_number: Option<u64>,
    /// Who said it.
    pub speaker: Speaker,
    /// When.
    pub time: Option<UtcMillis>,
    /// Text around the match.
    pub snippet: String,
    /// The match in it, in Unicode scalar values.
    pub matched: [usize; 2],
}

/// A page of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OccurrencePage {
    /// The places, in the order of the thread.
    pub occurrences: Vec<Occurrence>,
    /// Where the next page begins; `None` at the end.
    pub next_cursor: Option<String>,
}

/// A page of turns.
#[derive(Debug, Clone, Default)]
pub struct TurnPage {
    /// The turns.
    pub turns: Vec<Turn>,
    /// Where the next page begins; `None` at the end.
    pub next_cursor: Option<String>,
}

/// An item with the turn it stands in.
#[derive(Debug, Clone)]
pub struct PlacedItem {
    /// The turn's id.
    pub turn_id: String,
    /// The turn's number, from 1, as in [`Turn::number`].
    pub turn_number: Option<u64>,
    /// The item.
    pub item: TurnItem,
}

/// A page of items.
#[derive(Debug, Clone, Default)]
pub struct ItemPage {
    /// The items.
    pub items: Vec<PlacedItem>,
    /// Where the next page begins; `None` at the end.
    pub next_cursor: Option<String>,
}

/// Whether a spawned thread still counts as running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeStatus {
    /// It does.
    Open,
    /// It does not.
    Closed,
}

/// A thread that another spawned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SpawnEdge {
    /// The thread that spawned.
    pub parent: ThreadId,
    /// The thread that was spawned.
    pub child: ThreadId,
    /// Its status.
    pub status: EdgeStatus,
}
