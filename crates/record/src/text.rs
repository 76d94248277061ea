//! The text of a record that search looks in: what a person saw or would look for.
//!
//! Never injected context, JSON keys, base64 data or encrypted content.

use std::borrow::Cow;

use serde::Serialize;

use crate::item::{Item, ItemBody};
use crate::preview::strip_request_prefix;

/// Who, or what, said a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// A person.
    User,
    /// The agent.
    Agent,
    /// The agent's readable reasoning.
    Reasoning,
    /// A call of a tool.
    ToolCall,
    /// A tool's answer.
    ToolOutput,
    /// A change of files.
    Patch,
    /// A plan.
    Plan,
    /// The thread's name.
    Name,
}

impl Speaker {
    /// All speakers, in the order that help texts list them.
    pub const ALL: [Self; 8] = [
        Self::User,
        Self::Agent,
        Self::Reasoning,
        Self::ToolCall,
        Self::ToolOutput,
        Self::Patch,
        Self::Plan,
        Self::Name,
    ];

    /// The word used on the command line and in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Agent => "agent",
            Self::Reasoning => "reasoning",
            Self::ToolCall => "tool_call",
            Self::ToolOutput => "tool_output",
            Self::Patch => "patch",
            Self::Plan => "plan",
            Self::Name => "name",
        }
    }
}

impl std::str::FromStr for Speaker {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let word = s.replace('-', "_");
        Self::ALL.into_iter().find(|k| k.word() == word).ok_or_else(|| format!("no such speaker: {s}"))
    }
}

/// The searchable pieces of an item, each with its speaker.
#[must_use]
pub fn pieces(item: &Item) -> Vec<(Speaker, Cow<'_, str>)> {
    let one = |speaker, text: &'_ str| -> Vec<(Speaker, Cow<'_, str>)> {
        if text.is_empty() { vec![] } else { vec![(speaker, Cow::Owned(text.to_owned()))] }
    };
    match &item.body {
        ItemBody::UserMessage { text, images } => {
            let mut all = one(Speaker::User, strip_request_prefix(text));
            all.extend(images.iter().flat_map(|i| one(Speaker::User, &i.label)));
            all
        }
        ItemBody::AgentMessage { text, .. } => one(Speaker::Agent, text),
        ItemBody::Reasoning { parts } => {
            parts.iter().filter(|p| !p.is_empty()).map(|p| (Speaker::Reasoning, Cow::Borrowed(p.as_str()))).collect()
        }
        ItemBody::Plan { text } => one(Speaker::Plan, text),
        ItemBody::ToolCall { values, name, .. } => {
            let texts = values.iter().chain([name]).filter(|v| !v.is_empty());
            texts.map(|v| (Speaker::ToolCall, Cow::Borrowed(v.as_str()))).collect()
        }
        ItemBody::ToolOutput { text, command, .. } => {
            let mut both = one(Speaker::ToolCall, command.as_deref().unwrap_or(""));
            both.extend(one(Speaker::ToolOutput, text));
            both
        }
        ItemBody::Patch { changes, .. } => changes
            .iter()
            .flat_map(|c| [&c.path, &c.diff])
            .filter(|t| !t.is_empty())
            .map(|t| (Speaker::Patch, Cow::Borrowed(t.as_str())))
            .collect(),
        ItemBody::SubAgent { text, .. } => one(Speaker::Agent, text),
        ItemBody::Picture { prompt, image } => one(Speaker::ToolCall, prompt.as_deref().unwrap_or(&image.label)),
        ItemBody::Goal { objective, .. } => one(Speaker::User, objective),
        ItemBody::Review { finished, text } => one(if *finished { Speaker::Agent } else { Speaker::User }, text),
        ItemBody::Error { message } => one(Speaker::Agent, message),
        ItemBody::TurnCompleted { error: Some(message), .. } => one(Speaker::Agent, message),
        ItemBody::Named { name } => one(Speaker::Name, name),
        ItemBody::Compaction { .. }
        | ItemBody::TurnStarted { .. }
        | ItemBody::TurnCompleted { .. }
        | ItemBody::TurnAborted { .. }
        | ItemBody::RolledBack { .. }
        | ItemBody::Tokens(_)
        | ItemBody::Settings { .. }
        | ItemBody::Injected { .. }
        | ItemBody::Silent
        | ItemBody::Unknown { .. } => vec![],
    }
}
