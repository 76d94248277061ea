//! `item_completed` events: what a person saw in the paginated history mode.

use serde_json::Value;

use super::{Image, Item, ItemBody, Origin, owned, text_of, tool};

pub(super) fn read(p: &Value) -> Item {
    let Some(item) = p.get("item").filter(|i| i.is_object()) else {
        return Item {
            origin: Origin::Completed,
            id: None,
            call_id: None,
            turn_id: owned(p, "turn_id"),
            body: ItemBody::Unknown { kind: "item_completed".into(), reason: "no item" },
        };
    };
    let text = |key: &str| text_of(item, key).unwrap_or("").to_owned();
    let kind = text_of(item, "type").unwrap_or("");
    let body = match kind {
        "UserMessage" => {
            let parts = item.get("content").and_then(Value::as_array);
            let images = parts.into_iter().flatten().filter_map(tool::image).collect();
            ItemBody::UserMessage { text: tool::content_text(item.get("content")), images }
        }
        "AgentMessage" => {
            ItemBody::AgentMessage { text: tool::content_text(item.get("content")), phase: owned(item, "phase") }
        }
        "Reasoning" => {
            let mut parts = tool::texts(item.get("summary_text"));
            parts.extend(tool::texts(item.get("raw_content")));
            ItemBody::Reasoning { parts }
        }
        "Plan" => ItemBody::Plan { text: text("text") },
        "CommandExecution" => ItemBody::ToolOutput {
            text: owned(item, "aggregated_output")
                .or_else(|| owned(item, "formatted_output"))
                .unwrap_or_else(|| text("stdout")),
            exit_code: item.get("exit_code").and_then(Value::as_i64),
            images: vec![],
            command: item.get("command").and_then(tool::command_text),
        },
        "FileChange" => {
            ItemBody::Patch { changes: tool::file_changes(item.get("changes")), status: owned(item, "status") }
        }
        "McpToolCall" | "DynamicToolCall" => {
            let name = match text_of(item, "server") {
                Some(server) => format!("{server}.{}", text("tool")),
                None => text("tool"),
            };
            let there = |key: &str| item.get(key).filter(|v| !v.is_null());
            let answer = there("result").or_else(|| there("content_items")).or_else(|| there("error"));
            match answer {
                Some(r) => {
                    let inner = r.get("Ok").or_else(|| r.get("Err")).or_else(|| r.get("message")).unwrap_or(r);
                    tool::with_command(tool::output(Some(inner)), tool::call_line(&name, item.get("arguments")))
                }
                None => tool::call(&name, item.get("arguments")),
            }
        }
        "WebSearch" => tool::web_search(item),

        "CollabAgentToolCall" => ItemBody::SubAgent {
            action: text("tool").replace('_', " "),
            text: tool::joined(&text("prompt"), item.get("agents_states")),
            threads: tool::texts(item.get("receiver_thread_ids")),
        },
        "SubAgentActivity" => ItemBody::SubAgent {
            action: format!("agent {}", text("kind")),
            text: text("agent_path"),
            threads: owned(item, "agent_thread_id").into_iter().collect(),
        },
        "ImageView" => ItemBody::Picture { image: Image { label: text("path"), bytes: None }, prompt: None },
        "ImageGeneration" => ItemBody::Picture {
            image: Image {
                label: owned(item, "saved_path").unwrap_or_else(|| "generated image".into()),
                bytes: text_of(item, "result").map(|r| tool::decoded_len(r.len())),
            },
            prompt: owned(item, "revised_prompt"),
        },
        "EnteredReviewMode" => ItemBody::Review {
            finished: false,
            text: owned(item, "user_facing_hint").or_else(|| owned(item, "review")).unwrap_or_default(),
        },
        "ExitedReviewMode" => ItemBody::Review {
            finished: true,
            text: tool::review_text(item.get("review_output").or_else(|| item.get("review"))),
        },
        "ContextCompaction" => ItemBody::Compaction { summary: None },
        "HookPrompt" => ItemBody::Injected {
            role: "hook".into(),
            text: tool::content_text(item.get("fragments").or_else(|| item.get("content"))),
        },
        "Extension" => ItemBody::Silent,
        other => ItemBody::Unknown { kind: format!("item_completed/{other}"), reason: "unknown item" },
    };
    let id = owned(item, "id");
    let of_call = matches!(
        kind,
        "CommandExecution"
            | "FileChange"
            | "McpToolCall"
            | "DynamicToolCall"
            | "CollabAgentToolCall"
            | "WebSearch"
            | "ImageView"
            | "ImageGeneration"
    );
    Item {
        origin: Origin::Completed,
        call_id: if of_call { id.clone() } else { None },
        id,
        turn_id: owned(p, "turn_id"),
        body,
    }
}
