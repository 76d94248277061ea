//! What the head of a very long record tells: its kind, and the beginning of its text.
//!
//! A record over the limit of what is held is never parsed. Its first bytes say what it is, and nearly always hold the
//! beginning of what a person reads.

use crate::item::{Item, ItemBody, Origin};
use crate::json_stream::{Event, StringWalker};
use crate::sniff;
use crate::turns::Signal;
use crate::{Accounts, Kind, Speaker};

/// The item of a long record, its text cut to what the head holds. `None` where the head does not say what it is.
///
/// The keys are found wherever they stand, in any order and spacing.
#[must_use]
pub fn item(head: &[u8]) -> Option<Item> {
    let mut texts = Texts::default();
    StringWalker::default().feed(crate::damage::trim(head), &mut |walker, event| texts.take(walker, &event));
    let Texts { text, name, role, call_id, turn_id, outer, inner, item, .. } = texts;
    let name = name.unwrap_or_else(|| "tool".into());
    let outer = outer?;
    // Of a bare record the outer type is that of the item.
    let wrapped = Kind::from_type(&outer) != Kind::Other;
    let (kind, payload_type) =
        if wrapped { (Kind::from_type(&outer), inner.unwrap_or_default()) } else { (Kind::BareItem, outer) };
    let origin = match kind {
        Kind::ResponseItem => Origin::Response,
        Kind::EventMsg if payload_type == "item_completed" => Origin::Completed,
        Kind::EventMsg | Kind::BareItem => Origin::Event,
        _ => Origin::Other,
    };
    let output = |text| ItemBody::ToolOutput { text, exit_code: None, images: vec![], command: None };
    let message = |text, user: bool| match user {
        true => ItemBody::UserMessage { text, images: vec![] },
        false => ItemBody::AgentMessage { text, phase: None },
    };
    let body = match (kind, payload_type.as_str()) {
        (Kind::EventMsg, "user_message") => message(text, true),
        (Kind::EventMsg, "agent_message") => message(text, false),
        (Kind::EventMsg, "agent_reasoning") => ItemBody::Reasoning { parts: vec![text] },
        (Kind::EventMsg, "exec_command_end" | "mcp_tool_call_end" | "dynamic_tool_call_response") => output(text),
        (Kind::EventMsg, "patch_apply_end") => ItemBody::Patch { changes: vec![], status: None },
        (Kind::EventMsg, "item_completed") => match item.as_deref() {
            Some("UserMessage") => message(text, true),
            Some("AgentMessage") => message(text, false),
            Some("Reasoning") => ItemBody::Reasoning { parts: vec![text] },
            Some("Plan") => ItemBody::Plan { text },
            Some("FileChange") => ItemBody::Patch { changes: vec![], status: None },
            Some("CommandExecution" | "McpToolCall" | "DynamicToolCall") => output(text),
            _ => ItemBody::Silent,
        },
        (Kind::ResponseItem | Kind::BareItem, "message") => match role.as_deref() {
            Some("user") if crate::preview::is_injected(&text) => ItemBody::Injected { role: "user".into(), text },
            Some("user") => message(text, true),
            Some("assistant") => message(text, false),
            _ => ItemBody::Injected { role: role.unwrap_or_default(), text },
        },
        (Kind::ResponseItem | Kind::BareItem, "reasoning") => ItemBody::Reasoning { parts: vec![text] },
        (Kind::ResponseItem | Kind::BareItem, "custom_tool_call") if name == "apply_patch" => {
            ItemBody::Patch { changes: vec![], status: None }
        }
        (Kind::ResponseItem | Kind::BareItem, "function_call" | "custom_tool_call" | "local_shell_call") => {
            ItemBody::ToolCall { name, values: vec![text.clone()], text }
        }
        (
            Kind::ResponseItem | Kind::BareItem,
            "function_call_output" | "custom_tool_call_output" | "tool_search_output" | "tool_result",
        ) => output(text),
        (Kind::Compacted, _) => ItemBody::Compaction { summary: None },
        _ => ItemBody::Silent,
    };
    Some(Item { origin, id: None, call_id, turn_id, body })
}

/// Who says the text of a long record, for search; `None` where there is none to look in.
#[must_use]
pub fn speaker(item: &Item) -> Option<Speaker> {
    match item.body {
        ItemBody::UserMessage { .. } => Some(Speaker::User),
        ItemBody::AgentMessage { .. } => Some(Speaker::Agent),
        ItemBody::Reasoning { .. } => Some(Speaker::Reasoning),
        ItemBody::Plan { .. } => Some(Speaker::Plan),
        ItemBody::Patch { .. } => Some(Speaker::Patch),
        ItemBody::ToolCall { .. } => Some(Speaker::ToolCall),
        ItemBody::ToolOutput { .. } => Some(Speaker::ToolOutput),
        _ => None,
    }
}

/// The `type` of a long record and that of its payload, as far as its head says them.
#[must_use]
pub fn types(head: &[u8]) -> (Option<String>, Option<String>) {
    let mut texts = Texts::default();
    StringWalker::default().feed(crate::damage::trim(head), &mut |walker, event| texts.take(walker, &event));
    (texts.outer, texts.inner)
}

/// Time and ordinal of a long record.
#[must_use]
pub fn envelope(head: &[u8]) -> (Option<crate::UtcMillis>, Option<u64>) {
    if let Some(s) = sniff::sniff(head) {
        return (std::str::from_utf8(s.timestamp).ok().and_then(crate::UtcMillis::parse), s.ordinal);
    }
    let mut time = None;
    let mut under_way = false;
    let mut text = String::new();
    StringWalker::default().feed(crate::damage::trim(head), &mut |walker, event| match event {
        Event::Begin => under_way = time.is_none() && walker.path().eq(["timestamp"]),
        Event::Text(t) if under_way => text.push_str(t),
        Event::End if under_way => {
            time = crate::UtcMillis::parse(&text);
            under_way = false;
        }
        Event::Text(_) | Event::End => {}
    });
    (time, None)
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
    /// Type of the record, of its payload, and of the item in that.
    outer: Option<String>,
    inner: Option<String>,
    item: Option<String>,
    /// The key of the string under way, and what was read of it.
    under_way: Option<(String, String)>,
}

impl Texts {
    fn take(&mut self, walker: &StringWalker, event: &Event<'_>) {
        match event {
            Event::Begin => {
                let path: Vec<&str> = walker.path().collect();
                let key = match path.as_slice() {
                    ["type"] => "outer",
                    ["payload", "type"] => "inner",
                    ["payload", "item", "type"] => "item",
                    [.., "type"] => "",
                    [.., key] => key,
                    [] => "",
                };
                let key = key.to_owned();
                self.under_way = Some((key, String::new()));
            }
            Event::Text(text) => {
                let Some((key, so_far)) = &mut self.under_way else { return };
                match key.as_str() {
                    "text" | "message" | "output" | "aggregated_output" | "arguments" | "input" | "summary_text" => {
                        // The head may end inside the string, so its text is taken as it comes.
                        let url = so_far.is_empty() && self.text.is_empty() && text.starts_with("data:");
                        if !url {
                            self.text.push_str(text);
                        }
                    }
                    "name" | "role" | "call_id" | "turn_id" | "outer" | "inner" | "item" => so_far.push_str(text),
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
                    "outer" => &mut self.outer,
                    "inner" => &mut self.inner,
                    "item" => &mut self.item,
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
