//! The envelope of a record: when, which ordinal, what kind, and the raw payload, borrowed from the line.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::UtcMillis;

/// What kind of record a line is (`thread-store.md` 1.2 and later additions).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A header: the first names the thread, later ones are copies or updates.
    SessionMeta,
    /// What the model saw or said.
    ResponseItem,
    /// What a person saw.
    EventMsg,
    /// Settings of a turn.
    TurnContext,
    /// A compaction of the model's context.
    Compacted,
    /// A snapshot of the world as told to the model.
    WorldState,
    /// Token usage of one response.
    TokenUsageRecord,
    /// A message between agents.
    InterAgent,
    /// Delivery facts of such a message.
    InterAgentMetadata,
    /// The header line of 2025: `{id, timestamp, instructions}` without a type.
    BareMeta,
    /// `{"record_type":"state"}` lines of 2025.
    BareState,
    /// A response item of 2025 without an envelope.
    BareItem,
    /// Any other object; its bytes are kept, its meaning is not known.
    Other,
}

/// How the record is wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `{timestamp, [ordinal,] type, payload}`.
    Wrapped,
    /// The line itself is the payload.
    Bare,
}

impl Kind {
    /// From the `type` of a wrapped record.
    #[must_use]
    pub fn from_type(name: &str) -> Self {
        match name {
            "session_meta" => Self::SessionMeta,
            "response_item" => Self::ResponseItem,
            "event_msg" => Self::EventMsg,
            "turn_context" => Self::TurnContext,
            "compacted" => Self::Compacted,
            "world_state" => Self::WorldState,
            "token_usage_record" => Self::TokenUsageRecord,
            "inter_agent_communication" => Self::InterAgent,
            "inter_agent_communication_metadata" => Self::InterAgentMetadata,
            _ => Self::Other,
        }
    }

    /// The `type` that a wrapped record of this kind has; `None` for bare records and for kinds that are not known.
    #[must_use]
    pub fn type_name(self) -> Option<&'static str> {
        Some(match self {
            Self::SessionMeta => "session_meta",
            Self::ResponseItem => "response_item",
            Self::EventMsg => "event_msg",
            Self::TurnContext => "turn_context",
            Self::Compacted => "compacted",
            Self::WorldState => "world_state",
            Self::TokenUsageRecord => "token_usage_record",
            Self::InterAgent => "inter_agent_communication",
            Self::InterAgentMetadata => "inter_agent_communication_metadata",
            Self::BareMeta | Self::BareState | Self::BareItem | Self::Other => return None,
        })
    }
}

/// An envelope, borrowed from its line.
#[derive(Debug, Clone)]
pub struct Envelope<'a> {
    /// The record's time, as spelt (`None` for bare records and where it is not a string).
    pub timestamp: Option<Cow<'a, str>>,
    /// Position in a paginated thread.
    pub ordinal: Option<u64>,
    /// The kind.
    pub kind: Kind,
    /// The `type` as spelt, empty for bare headers and states.
    pub type_name: Cow<'a, str>,
    /// How it is wrapped.
    pub shape: Shape,
    /// The payload's JSON text; for bare records the whole line.
    pub payload: &'a str,
}

#[derive(Deserialize)]
struct Probe<'a> {
    #[serde(borrow, default)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    ordinal: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "type")]
    type_name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default)]
    record_type: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
}

impl<'a> Envelope<'a> {
    /// Parses the envelope of a record. `None` only where the bytes are not a JSON object in UTF-8.
    ///
    /// The shape decides, never a date or a version: a `type` beside a `payload` is wrapped; an object with neither
    /// is a bare record.
    #[must_use]
    pub fn parse(record: &'a [u8]) -> Option<Self> {
        let text = std::str::from_utf8(record).ok()?;
        // The derived parser would also take an array's elements for the fields.
        if !text.trim_start().starts_with('{') {
            return None;
        }
        let Ok(probe) = serde_json::from_str::<Probe<'a>>(text) else {
            // A repeated key is valid JSON that the derived parser refuses; its meaning is not known.
            return serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text).ok().map(|_| Self {
                timestamp: None,
                ordinal: None,
                kind: Kind::Other,
                type_name: Cow::Borrowed(""),
                shape: Shape::Bare,
                payload: text,
            });
        };
        let timestamp = probe.timestamp.and_then(string);
        let type_name = probe.type_name.and_then(string);
        let ordinal = probe.ordinal.and_then(|r| r.get().parse().ok());
        Some(match (type_name, probe.payload) {
            (Some(name), Some(payload)) => Self {
                timestamp,
                ordinal,
                kind: Kind::from_type(&name),
                type_name: name,
                shape: Shape::Wrapped,
                payload: payload.get(),
            },
            (Some(name), None) => {
                Self { timestamp, ordinal, kind: Kind::BareItem, type_name: name, shape: Shape::Bare, payload: text }
            }
            (None, _) => {
                let kind = if probe.record_type.is_some() {
                    Kind::BareState
                } else if probe.id.is_some() && probe.timestamp.is_some() {
                    Kind::BareMeta
                } else {
                    Kind::Other
                };
                Self { timestamp, ordinal, kind, type_name: Cow::Borrowed(""), shape: Shape::Bare, payload: text }
            }
        })
    }

    /// The record's time.
    #[must_use]
    pub fn time(&self) -> Option<UtcMillis> {
        UtcMillis::parse(self.timestamp.as_deref()?)
    }

    /// The payload's own `type` (`user_message`, `function_call` …), where it has one.
    #[must_use]
    pub fn payload_type(&self) -> Option<Cow<'a, str>> {
        payload_type(self.payload)
    }
}

/// The `type` inside a payload.
#[must_use]
pub fn payload_type(payload: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct T<'a> {
        #[serde(borrow, default, rename = "type")]
        type_name: Option<&'a RawValue>,
    }
    string(serde_json::from_str::<T<'_>>(payload).ok()?.type_name?)
}

fn string(raw: &RawValue) -> Option<Cow<'_, str>> {
    let text = raw.get();
    if !text.starts_with('"') {
        return None;
    }
    let inner = &text[1..text.len() - 1];
    if inner.contains('\\') {
        serde_json::from_str::<String>(text).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_go_both_ways() {
        for name in ["session_meta", "response_item", "event_msg", "compacted", "inter_agent_communication_metadata"] {
            assert_eq!(Kind::from_type(name).type_name(), Some(name));
        }
        assert_eq!(Kind::from_type("later").type_name(), None);
    }

    #[test]
    fn chooses_by_shape() {
        let kind = |s: &str| Envelope::parse(s.as_bytes()).map(|e| (e.kind, e.shape));
        assert_eq!(
            kind(r#"{"timestamp":"t","type":"event_msg","payload":{}}"#),
            Some((Kind::EventMsg, Shape::Wrapped))
        );
        assert_eq!(kind(r#"{"payload":{},"type":"later","x":1}"#), Some((Kind::Other, Shape::Wrapped)));
        assert_eq!(kind(r#"{"id":"a","timestamp":"t","instructions":null}"#), Some((Kind::BareMeta, Shape::Bare)));
        assert_eq!(kind(r#"{"record_type":"state"}"#), Some((Kind::BareState, Shape::Bare)));
        assert_eq!(kind(r#"{"type":"message","role":"user"}"#), Some((Kind::BareItem, Shape::Bare)));
        assert_eq!(kind(r#"{"a":1,"a":2,"type":1,"type":2}"#), Some((Kind::Other, Shape::Bare)));
        assert_eq!(kind("[1]"), None);
    }

    #[test]
    fn odd_envelopes_keep_what_they_have() {
        let e = Envelope::parse(br#"{"timestamp":1756,"ordinal":"7","type":"event_msg","payload":[1]}"#).unwrap();
        assert_eq!((e.timestamp, e.ordinal, e.payload), (None, None, "[1]"));
    }
}
