//! Which keys the common kinds of record have, and what is done with their values.

use super::is_silent;
use crate::envelope::Kind;
use crate::sniff::{self, Sniffed};

/// What is done with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rules {
    /// No record of its kind has text.
    Nothing,
    /// It is walked by its keys.
    Keys(Family),
    /// It is parsed.
    Parse,
}

/// Kinds of record that have the same keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// A message or a piece of reasoning, as an event.
    Event,
    /// A message of the model's input or output.
    Message,
    /// Reasoning of the model.
    Reasoning,
    /// A tool's answer.
    Output,
    /// An event that tells a command and its output.
    Command,
    /// The same as a completed item.
    CommandItem,
    /// A message as a completed item.
    MessageItem,
    /// Reasoning as a completed item.
    ReasoningItem,
    /// The end of a turn.
    TurnEnd,
}

/// What is done with the value of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing in it is searched.
    Ignore,
    /// Its strings are texts, each of its own. Objects in it go by their keys.
    Texts,
    /// Its strings are parts of one text. Objects in it go by their keys.
    Parts,
    /// A string that is a tool's answer.
    Answer,
    /// A string or list of words that is a command.
    Command,
    /// The role of a message.
    Role,
    /// Says what the object around it is: must not be said twice.
    Type,
    /// The object that a completed item is.
    Item,
    /// Has no text if it has no strings.
    NoStrings,
    /// Has no text if it is `null`.
    Null,
    /// Not known: the line is parsed.
    GiveUp,
}

impl Rules {
    pub(super) fn of(sniffed: &Sniffed<'_>, line: &[u8]) -> Self {
        if is_silent(sniffed.kind) {
            return Self::Nothing;
        }
        let family = match (sniffed.kind, sniffed.payload_type) {
            (_, b"token_count" | b"ghost_snapshot") => return Self::Nothing,
            (
                Kind::EventMsg,
                b"agent_message" | b"agent_reasoning" | b"agent_reasoning_raw_content" | b"user_message",
            ) => Family::Event,
            (Kind::EventMsg, b"task_complete" | b"turn_complete") => Family::TurnEnd,
            (Kind::EventMsg, b"exec_command_end") => Family::Command,
            (Kind::EventMsg, b"item_completed") => match sniff::item_type(&line[sniffed.payload_at..]) {
                Some(b"CommandExecution") => Family::CommandItem,
                Some(b"AgentMessage" | b"UserMessage") => Family::MessageItem,
                Some(b"Reasoning") => Family::ReasoningItem,
                _ => return Self::Parse,
            },
            (Kind::ResponseItem, b"message") => Family::Message,
            (Kind::ResponseItem, b"reasoning") => Family::Reasoning,
            (Kind::ResponseItem, b"function_call_output" | b"custom_tool_call_output") => Family::Output,
            _ => return Self::Parse,
        };
        Self::Keys(family)
    }
}

impl Family {
    /// What is done with the value of a key, wherever the key stands in the payload.
    pub(super) fn action(self, key: &str) -> Action {
        match key {
            "type" => return Action::Type,
            "id"
            | "turn_id"
            | "root_turn_id"
            | "thread_id"
            | "call_id"
            | "status"
            | "phase"
            | "internal_chat_message_metadata_passthrough" => return Action::Ignore,
            _ => {}
        }
        match (self, key) {
            (Self::Event, "message" | "text") => Action::Texts,
            (Self::Event, "images" | "local_images") => Action::NoStrings,
            (Self::Event, "text_elements" | "audio" | "local_audio" | "kind" | "memory_citation") => Action::Ignore,
            (Self::TurnEnd, "error") => Action::Null,
            (
                Self::TurnEnd,
                "last_agent_message" | "started_at" | "completed_at" | "duration_ms" | "time_to_first_token_ms",
            ) => Action::Ignore,
            (Self::Message, "role") => Action::Role,
            (Self::Message | Self::MessageItem, "content" | "text") => Action::Parts,
            (Self::Message, "end_turn" | "metadata") => Action::Ignore,
            (Self::MessageItem, "text_elements" | "memory_citation") => Action::Ignore,
            (Self::Reasoning, "summary" | "content" | "text") => Action::Texts,
            (Self::Reasoning, "encrypted_content") => Action::Ignore,
            (Self::ReasoningItem, "summary_text" | "raw_content" | "text") => Action::Texts,
            (Self::Output, "output") => Action::Answer,
            (Self::Output, "name" | "namespace") => Action::Ignore,
            (Self::Command | Self::CommandItem, "aggregated_output" | "formatted_output" | "stdout") => Action::Texts,
            (Self::Command | Self::CommandItem, "command") => Action::Command,
            (
                Self::Command | Self::CommandItem,
                "stderr" | "cwd" | "process_id" | "parsed_cmd" | "source" | "exit_code" | "duration"
                | "interaction_input",
            ) => Action::Ignore,
            (Self::CommandItem | Self::MessageItem | Self::ReasoningItem, "item") => Action::Item,
            (
                Self::CommandItem | Self::MessageItem | Self::ReasoningItem | Self::Command,
                "started_at_ms" | "completed_at_ms",
            ) => Action::Ignore,
            _ => Action::GiveUp,
        }
    }
}
