//! A thread as lists and reads give it.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use threadkeep_record::{GitInfo, HistoryMode, ThreadId, TokenUsage, UtcMillis};

/// A thread. Facts that are not known, or were not read, are `None`; never guessed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Id; `None` for a file that names none.
    pub id: Option<ThreadId>,
    /// The session: the root of its tree.
    pub session_id: Option<ThreadId>,
    /// The name that a person gave it.
    pub name: Option<String>,
    /// What stands for it in a list.
    pub preview: Option<String>,
    /// First message with text in its own files.
    pub first_user_message: Option<String>,
    /// Working directory, as in the file.
    pub cwd: Option<String>,
    /// `source` as in the file.
    pub source: Option<Value>,
    /// `thread_source` as in the file.
    pub thread_source: Option<String>,
    /// Program that asked for it.
    pub originator: Option<String>,
    /// Model provider.
    pub model_provider: Option<String>,
    /// The last model it ran on.
    pub model: Option<String>,
    /// Version text of the writer.
    pub cli_version: Option<String>,
    /// When it was created.
    pub created_at: Option<UtcMillis>,
    /// Time of the last record.
    pub updated_at: Option<UtcMillis>,
    /// Start of the last turn.
    pub recency_at: Option<UtcMillis>,
    /// Whether it is archived, told by where its file stands.
    pub archived: bool,
    /// When it was archived, where Codex's database says it.
    pub archived_at: Option<UtcMillis>,
    /// The thread that started it.
    pub parent_id: Option<ThreadId>,
    /// The thread it was forked from.
    pub forked_from_id: Option<ThreadId>,
    /// Threads that it started.
    pub children: Option<u64>,
    /// How its history is kept.
    pub history_mode: Option<HistoryMode>,
    /// Turns, those taken back not counted.
    pub turns: Option<u64>,
    /// Records in its own files.
    pub records: Option<u64>,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Its files; none where only a database row is left.
    pub files: Vec<ThreadFile>,
    /// Git facts.
    pub git: Option<GitInfo>,
    /// Tokens used, without what a fork repeats.
    pub tokens: Option<TokenUsage>,
    /// Selected capability roots, as in the file.
    pub capability_roots: Vec<Value>,
    /// Who writes it now.
    pub live: Option<Value>,
    /// What is damaged.
    pub damage: DamageReport,
}

/// One of a few words.
pub type Word = &'static str;

/// A file of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadFile {
    /// Path, relative to the home where under it.
    pub path: String,
    /// `plain`, `zstd` or `json`.
    #[serde(deserialize_with = "word")]
    pub kind: Word,
    /// `head`, `segment` or `copy`.
    #[serde(deserialize_with = "word")]
    pub role: Word,
    /// Bytes on disk.
    pub bytes: u64,
    /// Records, where the whole file was read.
    pub records: Option<u64>,
}

/// Damage in a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageReport {
    /// Damaged places.
    pub records: u64,
    /// The first of them.
    pub first: Vec<DamageEntry>,
}

/// A damaged place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageEntry {
    /// The file.
    pub path: String,
    /// Line number, from 1.
    pub line: Option<u64>,
    /// Offset of the line.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
}

/// One of the words that a file's kind and role are told with.
fn word<'de, D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
    let known = ["plain", "zstd", "json", "head", "segment", "copy"];
    known
        .into_iter()
        .find(|w| *w == text)
        .ok_or_else(|| serde::de::Error::custom(format!("not a word of a file: {text}")))
}
