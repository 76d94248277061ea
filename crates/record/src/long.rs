//! What the head of a very long record tells: its kind, and the beginning of its text.
//!
//! A record over the limit of what is held is never parsed. Its first bytes say what it is, and nearly always hold the
//! beginning of what a person reads.

use crate::item::{Item, ItemBody, Origin};
use crate::json_stream::{Event, StringWalker};
use crate::sniff;
use crate::turns::Signal;
use crate::{Accounts, Kind};

/// The item of a long record, its text cut to what the head holds. `None` where the prefix has another form.
#[must_use]
pub fn item(head: &[u8]) -> Option<Item> {
    let s = sniff::sniff(head)?;
    let payload = &head[s.payload_at..];
    let mut texts = Texts::default();
    StringWalker::default().feed(payload, &mut |walker, event| texts.take(walker, &event));
    let Texts { text, name, role, call_id, turn_id, .. } = texts;
    let name = name.unwrap_or_else(|| "tool".into());
    let origin = match s.kind {
        Kind::ResponseItem => Origin::Response,
        Kind::EventMsg if s.payload_type == b"item_completed" => Origin::Completed,
        Kind::EventMsg => Origin::Event,
        _ => Origin::Other,
    };
    let output = |text| ItemBody::ToolOutput { text, exit_code: None, images: vec![], command: None };
    let call = |text: String| ItemBody::ToolCall { name, values: vec![text.clone()], text };
    let message = |text, user: bool| match user {
        true => ItemBody::UserMessage { text, images: vec![] },
        false => ItemBody::AgentMessage { text, phase: None },
    };
    let body = match (s.kind, s.payload_type) {
        (Kind::EventMsg, b"user_message") => message(text, true),
        (Kind::EventMsg, b"agent_message") => message(text, false),
        (Kind::EventMsg, b"agent_reasoning") | (Kind::ResponseItem, b"reasoning") => {
            ItemBody::Reasoning { parts: vec![text] }
        }
        (Kind::EventMsg, b"exec_command_end" | b"mcp_tool_call_end") => output(text),
        (Kind::EventMsg, b"patch_apply_end") => ItemBody::Patch { changes: vec![], status: None },
        (Kind::EventMsg, b"item_completed") => match sniff::item_type(payload) {
            Some(b"UserMessage") => message(text, true),
            Some(b"AgentMessage") => message(text, false),
            Some(b"Reasoning") => ItemBody::Reasoning { parts: vec![text] },
            Some(b"Plan") => ItemBody::Plan { text },
            Some(b"FileChange") => ItemBody::Patch { changes: vec![], status: None },
            Some(b"CommandExecution" | b"McpToolCall" | b"DynamicToolCall") => output(text),
            _ => ItemBody::Silent,
        },
        (Kind::ResponseItem, b"message") => match role.as_deref() {
            Some("user") if crate::preview::is_injected(&text) => ItemBody::Injected { role: "user".into(), text },
            Some("user") => message(text, true),
            Some("assistant") => message(text, false),
            _ => ItemBody::Injected { role: role.unwrap_or_default(), text },
        },
        (Kind::ResponseItem, b"function_call" | b"custom_tool_call" | b"local_shell_call") => call(text),
        (Kind::ResponseItem, b"function_call_output" | b"custom_tool_call_output") => output(text),
        (Kind::Compacted, _) => ItemBody::Compaction { summary: None },
        _ => ItemBody::Silent,
    };
    Some(Item { origin, id: None, call_id, turn_id, body })
}

/// The meaning of a long record for turns.
#[must_use]
pub fn signal(head: &[u8], accounts: Accounts) -> Signal {
    item(head).map_or(Signal::Content, |item| accounts.signal(&item))
}

/// The strings of a payload's head that matter.
#[derive(Default)]
struct Texts {
    text: String,
    name: Option<String>,
    role: Option<String>,
    call_id: Option<String>,
    turn_id: Option<String>,
    /// The key of the string under way, and what was read of it.
    under_way: Option<(String, String)>,
}

impl Texts {
    fn take(&mut self, walker: &StringWalker, event: &Event<'_>) {
        match event {
            Event::Begin => {
                let key = walker.path().next_back().unwrap_or("").to_owned();
                self.under_way = Some((key, String::new()));
            }
            Event::Text(text) => {
                let Some((key, so_far)) = &mut self.under_way else { return };
                match key.as_str() {
                    "text" | "message" | "output" | "aggregated_output" | "arguments" | "input" => {
                        // The head may end inside the string, so its text is taken as it comes.
                        let url = so_far.is_empty() && self.text.is_empty() && text.starts_with("data:");
                        if !url {
                            self.text.push_str(text);
                        }
                    }
                    "name" | "role" | "call_id" | "turn_id" => so_far.push_str(text),
                    _ => {}
                }
            }
            Event::End => {
                let Some((key, value)) = self.under_way.take() else { return };
                let slot = match key.as_str() {
                    "name" => &mut self.name,
                    "role" => &mut self.role,
                    "call_id" => &mut self.call_id,
                    "turn_id" => &mut self.turn_id,
                    _ => return,
                };
                slot.get_or_insert(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_message_is_a_message() {
        let head = br#"{"timestamp":"2026-01-01T00:00:00.000Z","type":"event_msg","payload":{"type":"user_message","message":"read this \u00e9: aaaa"#;
        let item = item(head).unwrap();
        assert_eq!(item.body, ItemBody::UserMessage { text: "read this é: aaaa".into(), images: vec![] });
        assert_eq!(signal(head, Accounts::default()), Signal::UserMessage);
        let head = br#"{"timestamp":"2026-01-01T00:00:00.000Z","type":"response_item","payload":{"type":"function_call_output","call_id":"c1","output":"AAAA"#;
        assert!(
            matches!(super::item(head).unwrap(), Item { call_id: Some(c), body: ItemBody::ToolOutput { .. }, .. } if c == "c1")
        );
    }
}
