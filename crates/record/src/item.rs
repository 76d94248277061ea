//! What a record says, as a person would read it: a typed view made from the payload on demand.
//!
//! A kind that is not known, or does not fit its known shape, is [`ItemBody::Unknown`] with a reason: never an error,
//! never skipped. The record's bytes stay the truth.

mod completed;
mod event;
mod response;
pub mod tool;

use serde_json::Value;

use crate::envelope::{Envelope, Kind};
use crate::{TokenUsage, UtcMillis};

/// Which of the parallel accounts of a thread an item comes from. Releases write what a person saw (events, completed
/// items) beside what the model saw (response items); a reader shows one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An `event_msg` of the legacy mode.
    Event,
    /// An `item_completed` event.
    Completed,
    /// A response item: the model's input and output.
    Response,
    /// Anything else.
    Other,
}

/// An item of a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Which account it belongs to.
    pub origin: Origin,
    /// The item's own id, where it has one.
    pub id: Option<String>,
    /// The call it belongs to (tool calls, outputs, patches).
    pub call_id: Option<String>,
    /// The turn it says it belongs to.
    pub turn_id: Option<String>,
    /// What it says.
    pub body: ItemBody,
}

/// A picture in a message or an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Path, URL or media type; never the data itself.
    pub label: String,
    /// Size of the picture in bytes, where the record holds it.
    pub bytes: Option<u64>,
}

/// One file of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file.
    pub path: String,
    /// `add`, `update`, `delete` or `move`.
    pub kind: String,
    /// A unified diff, or for added and deleted files their text with `+` or `-` before each line.
    pub diff: String,
}

impl FileChange {
    /// The files that it names: two where one was moved.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.path.split(" -> ").filter(|path| !path.is_empty())
    }
}

/// What an item says.
#[derive(Debug, Clone, PartialEq)]
pub enum ItemBody {
    /// A person's message.
    UserMessage {
        /// Text as written; see [`crate::preview::strip_request_prefix`].
        text: String,
        /// Attached pictures.
        images: Vec<Image>,
    },
    /// The agent's message.
    AgentMessage {
        /// Text.
        text: String,
        /// `commentary` or `final_answer`.
        phase: Option<String>,
    },
    /// Readable reasoning; empty where only encrypted content is kept.
    Reasoning {
        /// Summary or raw parts.
        parts: Vec<String>,
    },
    /// A plan or to-do list.
    Plan {
        /// One step a line.
        text: String,
    },
    /// A call of a tool.
    ToolCall {
        /// Tool name.
        name: String,
        /// Arguments as a person reads them (for a shell, the command).
        text: String,
        /// Texts inside the arguments, decoded, for search.
        values: Vec<String>,
    },
    /// What a tool answered.
    ToolOutput {
        /// Text without the wrapper's header lines.
        text: String,
        /// Exit code, where told.
        exit_code: Option<i64>,
        /// Pictures.
        images: Vec<Image>,
        /// The command line, where the answer tells it too (a person's own command has no call record).
        command: Option<String>,
    },
    /// A change of files.
    Patch {
        /// The files.
        changes: Vec<FileChange>,
        /// `completed`, `failed`, …
        status: Option<String>,
    },
    /// Something done with another agent.
    SubAgent {
        /// What was done.
        action: String,
        /// Prompt or message.
        text: String,
        /// Thread ids of the agents.
        threads: Vec<String>,
    },
    /// A picture looked at or made.
    Picture {
        /// The picture.
        image: Image,
        /// Prompt it was made from.
        prompt: Option<String>,
    },
    /// The model's context was compacted here.
    Compaction {
        /// Readable summary, where there is one.
        summary: Option<String>,
    },
    /// The thread's goal.
    Goal {
        /// The objective.
        objective: String,
        /// `active`, `complete`, …
        status: String,
    },
    /// A review began or ended.
    Review {
        /// True at the end.
        finished: bool,
        /// Hint or verdict.
        text: String,
    },
    /// An error that was shown.
    Error {
        /// Message.
        message: String,
    },
    /// A turn begins.
    TurnStarted {
        /// Its id.
        turn_id: Option<String>,
        /// When, where told.
        started_at: Option<UtcMillis>,
    },
    /// A turn ended by itself.
    TurnCompleted {
        /// Its id.
        turn_id: Option<String>,
        /// Error message of a failed turn.
        error: Option<String>,
        /// When, where told.
        completed_at: Option<UtcMillis>,
    },
    /// A turn was ended from outside.
    TurnAborted {
        /// Its id.
        turn_id: Option<String>,
        /// Why.
        reason: String,
    },
    /// The last turns were taken back.
    RolledBack {
        /// How many.
        turns: u64,
    },
    /// Token counts so far; `None` where the record has only limits.
    Tokens(Option<TokenUsage>),
    /// Settings of a turn or thread.
    Settings {
        /// Model.
        model: Option<String>,
        /// Directory.
        cwd: Option<String>,
    },
    /// The thread got a name.
    Named {
        /// The name.
        name: String,
    },
    /// Text put into the model's input by a program.
    Injected {
        /// Role it was given.
        role: String,
        /// Text.
        text: String,
    },
    /// Known, and nothing for a person to read.
    Silent,
    /// Not known, or not of its known shape.
    Unknown {
        /// `type` of the record and of its payload.
        kind: String,
        /// What did not fit.
        reason: &'static str,
    },
}

impl Item {
    /// Reads the item of a record. Total: any record has an item.
    #[must_use]
    pub fn parse(envelope: &Envelope<'_>) -> Self {
        match envelope.kind {
            Kind::SessionMeta
            | Kind::BareMeta
            | Kind::BareState
            | Kind::WorldState
            | Kind::TokenUsageRecord
            | Kind::InterAgentMetadata => {
                return Self::other(ItemBody::Silent);
            }
            _ => {}
        }
        let Ok(payload) = serde_json::from_str::<Value>(envelope.payload) else {
            return Self::other(ItemBody::Unknown {
                kind: envelope.type_name.to_string(),
                reason: "payload cannot be read",
            });
        };
        Self::from_value(envelope.kind, &envelope.type_name, &payload)
    }

    /// Reads the item from an already parsed payload.
    #[must_use]
    pub fn from_value(kind: Kind, type_name: &str, payload: &Value) -> Self {
        if !payload.is_object() {
            return Self::other(ItemBody::Unknown { kind: type_name.to_owned(), reason: "payload is not an object" });
        }
        match kind {
            Kind::ResponseItem => response::read(payload),
            // Without an envelope there is no second account: this is what a person saw.
            Kind::BareItem => Self { origin: Origin::Event, ..response::read(payload) },
            Kind::EventMsg => event::read(payload),
            Kind::InterAgent => Self::other(ItemBody::SubAgent {
                action: format!("message from {}", text_of(payload, "author").unwrap_or("another agent")),
                text: tool::content_text(payload.get("content")),
                threads: vec![],
            }),
            Kind::Compacted => Self::other(ItemBody::Compaction {
                summary: text_of(payload, "message").filter(|s| !s.trim().is_empty()).map(str::to_owned),
            }),
            Kind::TurnContext => Self {
                origin: Origin::Other,
                id: None,
                call_id: None,
                turn_id: owned(payload, "turn_id"),
                body: ItemBody::Settings { model: owned(payload, "model"), cwd: owned(payload, "cwd") },
            },
            Kind::SessionMeta
            | Kind::BareMeta
            | Kind::BareState
            | Kind::WorldState
            | Kind::TokenUsageRecord
            | Kind::InterAgentMetadata => Self::other(ItemBody::Silent),
            // The TypeScript command's items have a role and no type; so have a few made by other tools.
            Kind::Other if payload.get("role").is_some() => {
                Self { origin: Origin::Event, ..response::read_message(payload) }
            }
            Kind::Other => Self::other(ItemBody::Unknown { kind: type_name.to_owned(), reason: "unknown record type" }),
        }
    }

    fn other(body: ItemBody) -> Self {
        Self { origin: Origin::Other, id: None, call_id: None, turn_id: None, body }
    }
}

pub(crate) fn text_of<'a>(v: &'a Value, key: &str) -> Option<&'a str> {
    v.get(key).and_then(Value::as_str)
}

pub(crate) fn owned(v: &Value, key: &str) -> Option<String> {
    text_of(v, key).filter(|s| !s.is_empty()).map(str::to_owned)
}

/// A time in seconds (or milliseconds, or as text) under `key`.
pub(crate) fn seconds(v: &Value, key: &str) -> Option<UtcMillis> {
    match v.get(key)? {
        Value::Number(n) => n.as_i64().map(UtcMillis::from_seconds_or_millis),
        Value::String(s) => UtcMillis::parse(s),
        _ => None,
    }
}
