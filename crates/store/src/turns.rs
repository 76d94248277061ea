//! A thread's turns, as a read gives them.

use serde::Serialize;
use serde_json::{Map, Value};
use threadkeep_record::turns::TurnStatus;
use threadkeep_record::{Speaker, UtcMillis};

/// A turn.
#[derive(Debug, Clone, Serialize)]
pub struct Turn {
    /// Its id, or `rollout-<record index>` where the file gives none.
    pub id: String,
    /// Its number in the thread, from 1; `None` on the last pages of a very large thread, which are read from its end.
    pub number: Option<u64>,
    /// How it stands.
    pub status: TurnStatus,
    /// When it began.
    pub started_at: Option<UtcMillis>,
    /// When it ended.
    pub completed_at: Option<UtcMillis>,
    /// What was said and done in it.
    pub items: Vec<TurnItem>,
}

/// Something said or done in a turn.
#[derive(Debug, Clone, Serialize)]
pub struct TurnItem {
    /// The item's or the call's id.
    pub id: Option<String>,
    /// `user_message`, `agent_message`, `reasoning`, `plan`, `tool_call`, `tool_output`, `patch`, …
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Who said it; `None` for marks such as a compaction.
    pub speaker: Option<Speaker>,
    /// Its text, cut where it is very long (see `text_bytes` then).
    pub text: String,
    /// When.
    pub time: Option<UtcMillis>,
    /// Facts of its kind: `name`, `exit_code`, `changes`, `images`, …
    #[serde(flatten)]
    pub extra: Map<String, Value>,
    /// The file, relative to the home where under it.
    pub path: String,
    /// Line number, from 1; `None` where the file was read from its end.
    pub line: Option<u64>,
    /// Offset of the record in the (decompressed) file.
    pub offset: u64,
}
