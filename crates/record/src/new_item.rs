//! Items that are to be appended, and which of them a rollout keeps.

use std::fmt::Write as _;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::{HistoryMode, Kind, UtcMillis};

/// An item before it has a time and a place: the `type` and the `payload` of its record.
#[derive(Debug, Clone)]
pub struct NewItem {
    type_name: String,
    payload: Box<RawValue>,
}

/// A payload that cannot be one.
#[derive(Debug, thiserror::Error)]
#[error("the payload of a {type_name:?} item is not a JSON object: {why}")]
pub struct InvalidPayload {
    /// Type of the item.
    pub type_name: String,
    /// What is wrong.
    pub why: String,
}

impl NewItem {
    /// An item from the JSON text of its payload, which is kept byte for byte. Line ends between its tokens, which
    /// would end the record, are made spaces.
    pub fn from_json(type_name: impl Into<String>, payload: &str) -> Result<Self, InvalidPayload> {
        let type_name = type_name.into();
        let failed = |why: String| InvalidPayload { type_name: type_name.clone(), why };
        // In valid JSON a line end is never part of a string.
        let one_line = if payload.contains(['\n', '\r']) { payload.replace(['\n', '\r'], " ") } else { payload.into() };
        let raw = RawValue::from_string(one_line).map_err(|e| failed(e.to_string()))?;
        if !raw.get().starts_with('{') {
            return Err(failed("it is another value".into()));
        }
        Ok(Self { type_name, payload: raw })
    }

    /// An item from a JSON value.
    pub fn from_value(type_name: impl Into<String>, payload: &Value) -> Result<Self, InvalidPayload> {
        Self::from_json(type_name, &payload.to_string())
    }

    fn event(payload: Value) -> Self {
        Self::own("event_msg", &payload)
    }

    /// An item with a payload of our own making, which is an object.
    pub(crate) fn own(type_name: &str, payload: &Value) -> Self {
        // A value always has a JSON text.
        let raw = serde_json::value::to_raw_value(payload).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self { type_name: type_name.into(), payload: raw }
    }

    /// A person's message, as the given history mode keeps what a person saw.
    #[must_use]
    pub fn user_message(mode: HistoryMode, turn: &ItemPlace<'_>, text: &str) -> Self {
        match mode {
            HistoryMode::Paginated => Self::completed(
                turn,
                &json!({"type": "UserMessage", "id": turn.item_id,
                    "content": [{"type": "text", "text": text, "text_elements": []}]}),
            ),
            HistoryMode::Legacy | HistoryMode::Unknown => Self::event(
                json!({"type": "user_message", "message": text, "images": [], "local_images": [], "text_elements": []}),
            ),
        }
    }

    /// The agent's final answer of a turn.
    #[must_use]
    pub fn agent_message(mode: HistoryMode, turn: &ItemPlace<'_>, text: &str) -> Self {
        match mode {
            HistoryMode::Paginated => Self::completed(
                turn,
                &json!({"type": "AgentMessage", "id": turn.item_id, "content": [{"type": "Text", "text": text}]}),
            ),
            HistoryMode::Legacy | HistoryMode::Unknown => {
                Self::event(json!({"type": "agent_message", "message": text, "phase": null, "memory_citation": null}))
            }
        }
    }

    fn completed(turn: &ItemPlace<'_>, item: &Value) -> Self {
        Self::event(json!({"type": "item_completed", "thread_id": turn.thread_id, "turn_id": turn.turn_id,
            "item": item, "started_at_ms": turn.at.0, "completed_at_ms": turn.at.0}))
    }

    /// The same message for the model: what a resumed agent reads back as its context.
    #[must_use]
    pub fn model_message(role: &str, text: &str) -> Self {
        let part = if role == "assistant" { "output_text" } else { "input_text" };
        let payload = json!({"type": "message", "role": role, "content": [{"type": part, "text": text}]});
        Self::own("response_item", &payload)
    }

    /// A turn begins.
    #[must_use]
    pub fn turn_started(turn_id: &str, at: UtcMillis) -> Self {
        Self::event(json!({"type": "task_started", "turn_id": turn_id, "started_at": at.0.div_euclid(1000),
            "model_context_window": null, "collaboration_mode_kind": "default"}))
    }

    /// A turn ended by itself.
    #[must_use]
    pub fn turn_completed(turn_id: &str, last_message: Option<&str>, at: UtcMillis) -> Self {
        Self::event(json!({"type": "task_complete", "turn_id": turn_id, "last_agent_message": last_message,
            "completed_at": at.0.div_euclid(1000)}))
    }

    /// A turn was ended from outside.
    #[must_use]
    pub fn turn_aborted(turn_id: &str, reason: &str) -> Self {
        Self::event(json!({"type": "turn_aborted", "turn_id": turn_id, "reason": reason}))
    }

    /// The last turns no longer count; their records stay.
    #[must_use]
    pub fn rolled_back(num_turns: u64) -> Self {
        Self::event(json!({"type": "thread_rolled_back", "num_turns": num_turns}))
    }

    /// The record's `type`.
    #[must_use]
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    /// The payload's JSON text.
    #[must_use]
    pub fn payload(&self) -> &str {
        self.payload.get()
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        Kind::from_type(&self.type_name)
    }

    /// The record: without its line feed, keys in the order that Codex writes them.
    #[must_use]
    pub fn record(&self, time: UtcMillis, ordinal: Option<u64>) -> Vec<u8> {
        let mut text = String::with_capacity(self.payload().len() + self.type_name.len() + 96);
        let _ = write!(text, "{{\"timestamp\":\"{time}\"");
        if let Some(ordinal) = ordinal {
            let _ = write!(text, ",\"ordinal\":{ordinal}");
        }
        let _ = write!(text, ",\"type\":{},\"payload\":{}}}", Value::from(self.type_name()), self.payload());
        text.into_bytes()
    }

    /// Whether a rollout of this history mode keeps the item (`thread-store.md` 1.8, 4.7).
    #[must_use]
    pub fn is_kept(&self, mode: HistoryMode) -> bool {
        let payload_type = crate::envelope::payload_type(self.payload());
        is_kept(self.kind(), payload_type.as_deref().unwrap_or(""), self.payload(), mode)
    }
}

/// Where an item stands in a conversation.
#[derive(Debug, Clone, Copy)]
pub struct ItemPlace<'a> {
    /// The thread.
    pub thread_id: crate::ThreadId,
    /// The turn.
    pub turn_id: &'a str,
    /// The item's own id.
    pub item_id: &'a str,
    /// When it was said.
    pub at: UtcMillis,
}

/// Events that only the legacy mode keeps: in the other the same is told by completed items.
const LEGACY_EVENTS: &[&str] = &[
    "user_message",
    "agent_message",
    "agent_reasoning",
    "agent_reasoning_raw_content",
    "entered_review_mode",
    "exited_review_mode",
    "patch_apply_end",
    "context_compacted",
    "mcp_tool_call_end",
    "web_search_end",
    "image_generation_end",
    "sub_agent_activity",
];

/// Events that both modes keep.
const EVENTS: &[&str] = &[
    "token_count",
    "thread_goal_updated",
    "thread_rolled_back",
    "turn_aborted",
    "task_started",
    "turn_started",
    "task_complete",
    "turn_complete",
    "thread_settings_applied",
];

fn is_kept(kind: Kind, payload_type: &str, payload: &str, mode: HistoryMode) -> bool {
    let paginated = mode == HistoryMode::Paginated;
    match kind {
        Kind::ResponseItem => !matches!(payload_type, "additional_tools" | "compaction_trigger" | "other"),
        Kind::EventMsg if payload_type == "item_completed" => paginated || is_legacy_item(payload),
        Kind::EventMsg => EVENTS.contains(&payload_type) || !paginated && LEGACY_EVENTS.contains(&payload_type),
        Kind::SessionMeta
        | Kind::Compacted
        | Kind::TurnContext
        | Kind::WorldState
        | Kind::InterAgent
        | Kind::InterAgentMetadata
        | Kind::TokenUsageRecord
        // What a newer program wants kept is its own affair.
        | Kind::Other => true,
        Kind::BareMeta | Kind::BareState | Kind::BareItem => false,
    }
}

/// Completed items that the legacy mode keeps, too: it has no event for them.
fn is_legacy_item(payload: &str) -> bool {
    let Ok(v) = serde_json::from_str::<Value>(payload) else { return false };
    let item = v.get("item");
    let kind = item.and_then(|i| i.get("type")).and_then(Value::as_str);
    match kind {
        Some("Plan") => true,
        Some("Extension") => item.is_some_and(|i| i.to_string().contains("sleep")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Envelope, ThreadId};

    fn item(type_name: &str, payload: &str) -> NewItem {
        NewItem::from_json(type_name, payload).unwrap()
    }

    #[test]
    fn a_payload_is_kept_byte_for_byte_on_one_line() {
        let odd = r#"{"type":"token_count", "n":1.50e+3,"s":"\u0041\/","type2":null,"unknown":{"b":1,"a":2}}"#;
        let record = item("event_msg", odd).record(UtcMillis(0), Some(7));
        let text = String::from_utf8(record.clone()).unwrap();
        assert_eq!(
            text,
            format!(r#"{{"timestamp":"1970-01-01T00:00:00.000Z","ordinal":7,"type":"event_msg","payload":{odd}}}"#)
        );
        assert_eq!(Envelope::parse(&record).unwrap().payload, odd);
        let lines = item("event_msg", "{\n \"type\":\r\n\"x\"}").record(UtcMillis(0), None);
        assert!(!lines.contains(&b'\n') && Envelope::parse(&lines).unwrap().payload_type().as_deref() == Some("x"));
    }

    #[test]
    fn only_objects_are_payloads() {
        for bad in ["", "1", "[]", "null", "{", "{} {}", "\"x\""] {
            assert!(NewItem::from_json("event_msg", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn each_mode_keeps_its_account() {
        let (l, p) = (HistoryMode::Legacy, HistoryMode::Paginated);
        for (type_name, payload, want) in [
            ("event_msg", r#"{"type":"user_message"}"#, (true, false)),
            ("event_msg", r#"{"type":"agent_message"}"#, (true, false)),
            ("event_msg", r#"{"type":"item_completed","item":{"type":"UserMessage"}}"#, (false, true)),
            ("event_msg", r#"{"type":"item_completed","item":{"type":"Plan"}}"#, (true, true)),
            ("event_msg", r#"{"type":"task_started"}"#, (true, true)),
            ("event_msg", r#"{"type":"exec_command_begin"}"#, (false, false)),
            ("event_msg", r#"{"type":"agent_message_delta"}"#, (false, false)),
            ("response_item", r#"{"type":"message"}"#, (true, true)),
            ("response_item", r#"{"type":"compaction_trigger"}"#, (false, false)),
            ("response_item", r#"{"type":"other"}"#, (false, false)),
            ("compacted", r#"{"message":""}"#, (true, true)),
            ("turn_context", "{}", (true, true)),
            ("someday", "{}", (true, true)),
        ] {
            let item = item(type_name, payload);
            assert_eq!((item.is_kept(l), item.is_kept(p)), want, "{payload}");
        }
    }

    #[test]
    fn ready_made_items_are_kept_in_their_mode() {
        let id = ThreadId::parse("01990000-0000-7000-8000-000000000001").unwrap();
        let place = ItemPlace { thread_id: id, turn_id: "t", item_id: "i", at: UtcMillis(5) };
        for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
            for item in [
                NewItem::user_message(mode, &place, "hi"),
                NewItem::agent_message(mode, &place, "yes"),
                NewItem::model_message("user", "hi"),
                NewItem::turn_started("t", UtcMillis(5)),
                NewItem::turn_completed("t", Some("yes"), UtcMillis(5)),
                NewItem::turn_aborted("t", "interrupted"),
            ] {
                assert!(item.is_kept(mode), "{item:?}");
            }
        }
    }
}
