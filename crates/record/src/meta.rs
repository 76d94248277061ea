//! The header record: who a thread is and where its history begins.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::envelope::{Envelope, Kind};
use crate::{ThreadId, UtcMillis};

/// How a thread's history is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryMode {
    /// Records without ordinals.
    Legacy,
    /// Records with ordinals; visible items are `item_completed` events.
    Paginated,
    /// A mode written by a newer program; read as it is, not written to.
    Unknown,
}

/// The prefix of another rollout that a history continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryBase {
    /// The thread that owns the prefix.
    pub thread_id: ThreadId,
    /// Records below this ordinal belong to the prefix.
    pub end_ordinal_exclusive: u64,
    /// Bytes of the base file that belong to the prefix.
    pub end_byte_offset: u64,
}

/// Git facts at the time the file was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitInfo {
    /// Commit hash.
    pub sha: Option<String>,
    /// Branch name.
    pub branch: Option<String>,
    /// URL of the remote.
    pub origin_url: Option<String>,
}

/// Who started a thread, coarsely: what the default list shows and hides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceClass {
    /// A person, at a terminal, in an editor or a desktop program, or not known.
    Person,
    /// A program: `codex exec`, an MCP client.
    Exec,
    /// Another thread: spawned agents, reviews, compactions, internal work.
    Subagent,
}

/// A typed view of the first header of a rollout. Fields that the file does not have are `None` or empty.
#[derive(Debug, Clone, Default)]
pub struct SessionMeta {
    /// The thread.
    pub id: Option<ThreadId>,
    /// The session: the root of the tree this thread is in.
    pub session_id: Option<ThreadId>,
    /// The thread this one was forked from.
    pub forked_from_id: Option<ThreadId>,
    /// The thread that spawned this one.
    pub parent_thread_id: Option<ThreadId>,
    /// When the thread was created.
    pub created_at: Option<UtcMillis>,
    /// Working directory, as written.
    pub cwd: Option<String>,
    /// The program that asked for the thread.
    pub originator: Option<String>,
    /// Version text of the writer; free text, not to be ordered.
    pub cli_version: Option<String>,
    /// `source` as in the file.
    pub source: Option<Value>,
    /// `thread_source` as in the file.
    pub thread_source: Option<String>,
    /// Name of a spawned agent.
    pub agent_nickname: Option<String>,
    /// Role of a spawned agent.
    pub agent_role: Option<String>,
    /// Model provider; `None` is "unknown", never the configured default.
    pub model_provider: Option<String>,
    /// History mode; `None` where the file does not say (legacy).
    pub history_mode: Option<HistoryMode>,
    /// Where the history begins.
    pub history_base: Option<HistoryBase>,
    /// Whether the header names a base that cannot be understood, so that where the history begins is not known.
    pub base_is_unread: bool,
    /// Records below this ordinal are context copied from a parent agent.
    pub subagent_history_start_ordinal: Option<u64>,
    /// Selected capability roots, as in the file.
    pub capability_roots: Vec<Value>,
    /// Git facts.
    pub git: Option<GitInfo>,
    /// Ordinal of the header record.
    pub ordinal: Option<u64>,
    /// The record's own timestamp.
    pub record_time: Option<UtcMillis>,
}

/// The payload as released binaries write it, read in one pass; strings borrow, the prompt text is skipped.
#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    session_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    forked_from_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    parent_thread_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    cwd: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    originator: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    cli_version: Option<Cow<'a, str>>,
    #[serde(default)]
    source: Option<Value>,
    #[serde(borrow, default)]
    thread_source: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    agent_nickname: Option<Cow<'a, str>>,
    #[serde(borrow, default, alias = "agent_type")]
    agent_role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    model_provider: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    history_mode: Option<Cow<'a, str>>,
    #[serde(default)]
    history_base: Option<Value>,
    #[serde(default)]
    subagent_history_start_ordinal: Option<u64>,
    #[serde(default)]
    selected_capability_roots: Option<Vec<Value>>,
    #[serde(default)]
    git: Option<Value>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, default)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(default)]
    ordinal: Option<u64>,
    #[serde(borrow)]
    payload: Payload<'a>,
}

impl SessionMeta {
    /// Reads a header record: a wrapped `session_meta` or the bare header of 2025. `None` for any other record.
    /// A field of an unexpected type is left out; it never makes the header unusable.
    #[must_use]
    pub fn parse(record: &[u8]) -> Option<Self> {
        if crate::sniff::sniff(record).is_some_and(|s| s.kind == Kind::SessionMeta)
            && let Ok(line) = serde_json::from_slice::<Line<'_>>(record)
        {
            return Some(Self::from_line(line));
        }
        let envelope = Envelope::parse(record)?;
        if !matches!(envelope.kind, Kind::SessionMeta | Kind::BareMeta) {
            return None;
        }
        let payload: Value = serde_json::from_str(envelope.payload).ok()?;
        let mut meta = Self::from_value(&payload);
        meta.ordinal = envelope.ordinal;
        meta.record_time = envelope.time();
        if envelope.kind == Kind::BareMeta {
            meta.record_time = meta.created_at;
        }
        Some(meta)
    }

    fn from_line(line: Line<'_>) -> Self {
        let p = line.payload;
        let id = |s: Option<Cow<'_, str>>| s.and_then(|s| ThreadId::parse(&s).ok());
        let own = |s: Option<Cow<'_, str>>| s.map(Cow::into_owned).filter(|s| !s.is_empty());
        Self {
            id: id(p.id),
            session_id: id(p.session_id),
            forked_from_id: id(p.forked_from_id),
            parent_thread_id: id(p.parent_thread_id),
            created_at: p.timestamp.as_deref().and_then(UtcMillis::parse),
            cwd: own(p.cwd),
            originator: own(p.originator),
            cli_version: own(p.cli_version),
            source: p.source.filter(|v| !v.is_null()),
            thread_source: own(p.thread_source),
            agent_nickname: own(p.agent_nickname),
            agent_role: own(p.agent_role),
            model_provider: own(p.model_provider),
            history_mode: p.history_mode.as_deref().map(mode),
            history_base: p.history_base.as_ref().and_then(base),
            base_is_unread: p.history_base.as_ref().is_some_and(unread),
            subagent_history_start_ordinal: p.subagent_history_start_ordinal,
            capability_roots: p.selected_capability_roots.unwrap_or_default(),
            git: p.git.as_ref().and_then(git),
            ordinal: line.ordinal,
            record_time: line.timestamp.as_deref().and_then(UtcMillis::parse),
        }
    }

    /// Reads the payload of a header from an already parsed value.
    #[must_use]
    pub fn from_value(v: &Value) -> Self {
        let text = |key: &str| v.get(key).and_then(Value::as_str).filter(|s| !s.is_empty()).map(str::to_owned);
        let id = |key: &str| v.get(key).and_then(Value::as_str).and_then(|s| ThreadId::parse(s).ok());
        Self {
            id: id("id"),
            session_id: id("session_id"),
            forked_from_id: id("forked_from_id"),
            parent_thread_id: id("parent_thread_id"),
            created_at: v.get("timestamp").and_then(Value::as_str).and_then(UtcMillis::parse),
            cwd: text("cwd"),
            originator: text("originator"),
            cli_version: text("cli_version"),
            source: v.get("source").filter(|s| !s.is_null()).cloned(),
            thread_source: text("thread_source"),
            agent_nickname: text("agent_nickname"),
            agent_role: text("agent_role").or_else(|| text("agent_type")),
            model_provider: text("model_provider"),
            history_mode: v.get("history_mode").and_then(Value::as_str).map(mode),
            history_base: v.get("history_base").and_then(base),
            base_is_unread: v.get("history_base").is_some_and(unread),
            subagent_history_start_ordinal: v.get("subagent_history_start_ordinal").and_then(Value::as_u64),
            capability_roots: v.get("selected_capability_roots").and_then(Value::as_array).cloned().unwrap_or_default(),
            git: v.get("git").and_then(git),
            ordinal: None,
            record_time: None,
        }
    }

    /// The thread that spawned this one: the explicit field, else the one inside `source`.
    #[must_use]
    pub fn parent(&self) -> Option<ThreadId> {
        self.parent_thread_id.or_else(|| {
            let spawn = self.source.as_ref()?.get("subagent")?.get("thread_spawn")?;
            ThreadId::parse(spawn.get("parent_thread_id")?.as_str()?).ok()
        })
    }

    /// Who started the thread.
    #[must_use]
    pub fn source_class(&self) -> SourceClass {
        source_class(self.source.as_ref(), self.thread_source.as_deref())
    }
}

/// Who started a thread, from `source` and `thread_source` (`thread-store.md` 1.4). A missing source counts as an
/// editor, an unknown text as a person; of the object forms only `custom` is a person.
#[must_use]
pub fn source_class(source: Option<&Value>, thread_source: Option<&str>) -> SourceClass {
    if matches!(thread_source, Some("subagent" | "memory_consolidation")) {
        return SourceClass::Subagent;
    }
    match source {
        Some(Value::String(s)) if s == "exec" || s == "mcp" => SourceClass::Exec,
        Some(Value::String(s)) if s == "subagent" || s == "internal" => SourceClass::Subagent,
        Some(Value::Object(o)) if !o.contains_key("custom") => SourceClass::Subagent,
        _ => SourceClass::Person,
    }
}

/// A short word for a source, as `--source` takes it: the text itself, or the first key of an object
/// (`subagent`, `custom`, `internal`).
#[must_use]
pub fn source_word(source: Option<&Value>) -> String {
    match source {
        Some(Value::String(s)) => s.clone(),
        Some(Value::Object(o)) => o.keys().next().cloned().unwrap_or_else(|| "unknown".into()),
        _ => "vscode".into(),
    }
}

fn mode(text: &str) -> HistoryMode {
    match text {
        "legacy" | "default" => HistoryMode::Legacy,
        "paginated" => HistoryMode::Paginated,
        _ => HistoryMode::Unknown,
    }
}

fn base(v: &Value) -> Option<HistoryBase> {
    Some(HistoryBase {
        thread_id: ThreadId::parse(v.get("thread_id")?.as_str()?).ok()?,
        end_ordinal_exclusive: v.get("end_ordinal_exclusive")?.as_u64()?,
        end_byte_offset: v.get("end_byte_offset").and_then(Value::as_u64).unwrap_or(0),
    })
}

fn unread(v: &Value) -> bool {
    !v.is_null() && base(v).is_none()
}

fn git(v: &Value) -> Option<GitInfo> {
    let text = |key: &str| v.get(key).and_then(Value::as_str).map(str::to_owned);
    let info = GitInfo { sha: text("commit_hash"), branch: text("branch"), origin_url: text("repository_url") };
    (info != GitInfo::default()).then_some(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn one_field_of_another_type_does_not_cost_the_header() {
        let line = br#"{"timestamp":"2026-01-01T00:00:00.000Z","type":"session_meta","payload":{"id":"01990000-0000-7000-8000-000000000001","cwd":["/a"],"dynamic_tools":{},"subagent_history_start_ordinal":"x","source":{"novel":{"a":1}}}}"#;
        let m = SessionMeta::parse(line).unwrap();
        assert_eq!(m.id.unwrap().to_string(), "01990000-0000-7000-8000-000000000001");
        assert_eq!((m.cwd.as_deref(), m.source_class()), (None, SourceClass::Subagent));
    }

    #[test]
    fn sources_in_both_forms() {
        for (source, want) in [
            (json!("cli"), SourceClass::Person),
            (json!("unknown"), SourceClass::Person),
            (json!("someday"), SourceClass::Person),
            (json!({"custom":"atlas"}), SourceClass::Person),
            (json!("exec"), SourceClass::Exec),
            (json!("mcp"), SourceClass::Exec),
            (json!({"subagent":"review"}), SourceClass::Subagent),
            (json!({"subagent":{"other":"guardian"}}), SourceClass::Subagent),
            (json!({"internal":"memory_consolidation"}), SourceClass::Subagent),
        ] {
            assert_eq!(source_class(Some(&source), None), want, "{source}");
        }
        assert_eq!(source_class(None, None), SourceClass::Person);
        assert_eq!(source_class(Some(&json!("vscode")), Some("subagent")), SourceClass::Subagent);
    }
}
