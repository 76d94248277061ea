//! Response items: what the model was given and what it produced.

use serde_json::Value;

use super::{Image, Item, ItemBody, Origin, owned, text_of, tool};
use crate::preview::is_injected;

pub(super) fn read(p: &Value) -> Item {
    let kind = text_of(p, "type").unwrap_or("");
    let body = match kind {
        "message" | "" => return read_message(p),
        "reasoning" => {
            let mut parts = tool::texts(p.get("summary"));
            parts.extend(tool::texts(p.get("content")));
            ItemBody::Reasoning { parts }
        }
        "function_call" => tool::call(text_of(p, "name").unwrap_or("tool"), p.get("arguments")),
        "custom_tool_call" => {
            tool::custom_call(text_of(p, "name").unwrap_or("tool"), text_of(p, "input").unwrap_or(""))
        }
        "local_shell_call" => tool::call("shell", p.get("action")),
        "tool_search_call" => tool::call("tool_search", p.get("arguments")),
        "tool_call" => {
            let function = p.get("function").unwrap_or(p);
            tool::call(
                text_of(function, "name").unwrap_or("tool"),
                function.get("arguments").or_else(|| p.get("arguments")),
            )
        }
        "web_search_call" => tool::call("web_search", p.get("action")),
        "function_call_output" | "custom_tool_call_output" => tool::output(p.get("output")),
        "tool_result" => tool::output(p.get("result")),
        "tool_search_output" => tool::output(p.get("tools")),
        "image_generation_call" => ItemBody::Picture {
            image: Image {
                label: "generated image".into(),
                bytes: text_of(p, "result").map(|r| tool::decoded_len(r.len())),
            },
            prompt: owned(p, "revised_prompt"),
        },
        "agent_message" => ItemBody::SubAgent {
            action: format!(
                "message from {} to {}",
                text_of(p, "author").unwrap_or("an agent"),
                text_of(p, "recipient").unwrap_or("an agent")
            ),
            text: tool::content_text(p.get("content")),
            threads: vec![],
        },
        "ghost_snapshot" | "compaction" | "compaction_summary" | "context_compaction" | "compaction_trigger"
        | "additional_tools" => ItemBody::Silent,
        other => ItemBody::Unknown { kind: format!("response_item/{other}"), reason: "unknown response item" },
    };
    Item { origin: Origin::Response, id: owned(p, "id"), call_id: owned(p, "call_id"), turn_id: turn(p), body }
}

/// A `message`: by role, with the parts that programs put there told apart from those that a person typed.
pub(super) fn read_message(p: &Value) -> Item {
    let role = text_of(p, "role").unwrap_or("");
    let mut typed = Vec::new();
    let mut injected = Vec::new();
    let mut images = Vec::new();
    match p.get("content") {
        Some(Value::String(s)) if role == "user" && is_injected(s) => injected.push(s.clone()),
        Some(Value::String(s)) => typed.push(s.clone()),
        Some(Value::Array(parts)) => {
            for part in parts {
                if let Some(image) = tool::image(part) {
                    images.push(image);
                } else if let Some(text) = text_of(part, "text") {
                    if role == "user" && (is_injected(text) || (text.trim() == "</image>")) {
                        injected.push(text.to_owned());
                    } else {
                        typed.push(text.to_owned());
                    }
                }
            }
        }
        _ => {}
    }
    let text = typed.join("\n");
    let body = match role {
        "user" if !text.trim().is_empty() || !images.is_empty() => ItemBody::UserMessage { text, images },
        "user" => ItemBody::Injected { role: role.to_owned(), text: injected.join("\n") },
        "assistant" => return chat_message(p, &text),
        "tool" | "function" => {
            let body = tool::output(p.get("content"));
            return Item {
                origin: Origin::Response,
                id: owned(p, "id"),
                call_id: owned(p, "tool_call_id"),
                turn_id: turn(p),
                body,
            };
        }
        "system" | "developer" => ItemBody::Injected { role: role.to_owned(), text },
        _ => ItemBody::Unknown { kind: format!("message/{role}"), reason: "unknown role" },
    };
    Item { origin: Origin::Response, id: owned(p, "id"), call_id: None, turn_id: turn(p), body }
}

/// An agent's message, which in the chat-completions form may call tools and reason as well.
fn chat_message(p: &Value, text: &str) -> Item {
    let calls: Vec<&Value> = p.get("tool_calls").and_then(Value::as_array).into_iter().flatten().collect();
    let reasoning = owned(p, "reasoning").or_else(|| owned(p, "reasoning_content"));
    let mut call_id = None;
    let body = match (text.is_empty(), calls.as_slice(), reasoning) {
        (true, [], Some(reasoning)) => ItemBody::Reasoning { parts: vec![reasoning] },
        (false, [], None) | (true, [], None) => {
            ItemBody::AgentMessage { text: text.to_owned(), phase: owned(p, "phase") }
        }
        (true, [call], None) => {
            call_id = owned(call, "id");
            let function = call.get("function").unwrap_or(call);
            tool::call(text_of(function, "name").unwrap_or("tool"), function.get("arguments"))
        }
        // Several things in one record: told one below the other, so that none is lost.
        (_, calls, reasoning) => {
            let mut lines: Vec<String> =
                reasoning.into_iter().chain(Some(text.to_owned()).filter(|t| !t.is_empty())).collect();
            for call in calls {
                let function = call.get("function").unwrap_or(call);
                let name = text_of(function, "name").unwrap_or("tool");
                match tool::call(name, function.get("arguments")) {
                    ItemBody::ToolCall { text, .. } | ItemBody::Plan { text } => lines.push(format!("[{name}] {text}")),
                    _ => lines.push(format!("[{name}]")),
                }
            }
            ItemBody::AgentMessage { text: lines.join("\n"), phase: owned(p, "phase") }
        }
    };
    Item { origin: Origin::Response, id: owned(p, "id"), call_id, turn_id: turn(p), body }
}

fn turn(p: &Value) -> Option<String> {
    owned(p.get("internal_chat_message_metadata_passthrough")?, "turn_id")
}
