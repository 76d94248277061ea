//! What a list is asked for.

use serde::{Deserialize, Serialize};
use threadkeep_record::UtcMillis;

/// Which time orders a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SortKey {
    /// When the thread was created.
    Created,
    /// When it was last written to.
    #[default]
    Updated,
    /// When its last turn started.
    Recency,
}

/// Which end of the order comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Newest first.
    #[default]
    Descending,
    /// Oldest first.
    Ascending,
}

/// Kinds of threads that a list leaves out unless asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Include {
    /// Runs of `codex exec` and other programs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub exec: bool,
    /// Threads that another thread started.
    #[serde(default, skip_serializing_if = "is_false")]
    pub subagents: bool,
    /// Threads in which nothing was said or done.
    #[serde(default, skip_serializing_if = "is_false")]
    pub empty: bool,
    /// Archived threads.
    #[serde(default, skip_serializing_if = "is_false")]
    pub archived: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
fn is_false(value: &bool) -> bool {
    !value
}

impl Include {
    /// Everything.
    pub const ALL: Self = Self { exec: true, subagents: true, empty: true, archived: true };
}

/// Sort and filters of a list. Filters only narrow; each names what it must equal.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListQuery {
    /// Order.
    pub sort: SortKey,
    /// Direction.
    pub direction: Direction,
    /// Kinds to include.
    pub include: Include,
    /// Only archived threads.
    #[serde(skip_serializing_if = "is_false")]
    pub archived_only: bool,
    /// Exactly this directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// One of these sources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// One of these providers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<String>,
    /// One of these originators.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub originators: Vec<String>,
    /// One of these models.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Updated at or after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<UtcMillis>,
    /// Updated before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<UtcMillis>,
    /// Only threads with a name.
    #[serde(skip_serializing_if = "is_false")]
    pub named: bool,
    /// On this git branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Changed this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Name or preview holds this text, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matching: Option<String>,
}
