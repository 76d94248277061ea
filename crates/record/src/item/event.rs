//! Events: what a person saw in the legacy history mode, and the marks of turns in both.

use serde_json::Value;

use super::{Image, Item, ItemBody, Origin, completed, owned, seconds, text_of, tool};
use crate::TokenUsage;

pub(super) fn read(p: &Value) -> Item {
    let kind = text_of(p, "type").unwrap_or("");
    let text = |key: &str| text_of(p, key).unwrap_or("").to_owned();
    let body = match kind {
        "item_completed" => return completed::read(p),
        "user_message" => ItemBody::UserMessage { text: text("message"), images: message_images(p) },
        "agent_message" => ItemBody::AgentMessage { text: text("message"), phase: owned(p, "phase") },
        "agent_reasoning" | "agent_reasoning_raw_content" => ItemBody::Reasoning { parts: vec![text("text")] },
        "token_count" => ItemBody::Tokens(TokenUsage::from_token_count(p)),
        "task_started" | "turn_started" => {
            ItemBody::TurnStarted { turn_id: owned(p, "turn_id"), started_at: seconds(p, "started_at") }
        }
        "task_complete" | "turn_complete" => ItemBody::TurnCompleted {
            turn_id: owned(p, "turn_id"),
            error: p
                .get("error")
                .filter(|e| !e.is_null())
                .map(|e| text_of(e, "message").map_or_else(|| e.to_string(), str::to_owned)),
            completed_at: seconds(p, "completed_at"),
        },
        "turn_aborted" => ItemBody::TurnAborted { turn_id: owned(p, "turn_id"), reason: text("reason") },
        "thread_rolled_back" => ItemBody::RolledBack { turns: p.get("num_turns").and_then(Value::as_u64).unwrap_or(0) },
        "thread_goal_updated" => match p.get("goal") {
            Some(goal) => ItemBody::Goal {
                objective: text_of(goal, "objective").unwrap_or("").to_owned(),
                status: text_of(goal, "status").unwrap_or("").to_owned(),
            },
            // Made by hand or by other tools: the objective beside the type.
            None => ItemBody::Goal { objective: text("objective"), status: text("status") },
        },
        "thread_settings_applied" => {
            let s = p.get("thread_settings").unwrap_or(p);
            ItemBody::Settings { model: owned(s, "model"), cwd: owned(s, "cwd") }
        }
        "thread_name_updated" => ItemBody::Named { name: text("thread_name") },
        "context_compacted" => ItemBody::Compaction { summary: None },
        "entered_review_mode" => ItemBody::Review {
            finished: false,
            text: owned(p, "user_facing_hint").or_else(|| owned(p, "prompt")).unwrap_or_default(),
        },
        "exited_review_mode" => ItemBody::Review { finished: true, text: tool::review_text(p.get("review_output")) },
        "patch_apply_end" => {
            ItemBody::Patch { changes: tool::file_changes(p.get("changes")), status: owned(p, "status") }
        }
        "exec_command_end" => ItemBody::ToolOutput {
            text: owned(p, "aggregated_output")
                .or_else(|| owned(p, "formatted_output"))
                .unwrap_or_else(|| text("stdout")),
            exit_code: p.get("exit_code").and_then(Value::as_i64),
            images: vec![],
            command: p.get("command").and_then(tool::command_text),
        },
        "mcp_tool_call_end" | "dynamic_tool_call_response" => {
            let result = p
                .get("result")
                .map(|r| r.get("Ok").or_else(|| r.get("Err")).unwrap_or(r))
                .or_else(|| p.get("content_items"));
            let invocation = p.get("invocation").unwrap_or(p);
            let name = text_of(invocation, "tool").unwrap_or("tool");
            tool::with_command(tool::output(result), tool::call_line(name, invocation.get("arguments")))
        }
        "dynamic_tool_call_request" => tool::call(text_of(p, "tool").unwrap_or("tool"), p.get("arguments")),
        "tool_call" => tool::call(text_of(p, "name").unwrap_or("tool"), p.get("input")),
        "web_search_end" => tool::web_search(p),

        "view_image_tool_call" => ItemBody::Picture { image: Image { label: text("path"), bytes: None }, prompt: None },
        "image_generation_end" => ItemBody::Picture {
            image: Image {
                label: owned(p, "saved_path").unwrap_or_else(|| "generated image".into()),
                bytes: text_of(p, "result").map(|r| tool::decoded_len(r.len())),
            },
            prompt: owned(p, "revised_prompt"),
        },
        "error" | "stream_error" | "warning" => {
            let message = owned(p, "message").or_else(|| p.get("error").and_then(|e| owned(e, "message")));
            ItemBody::Error { message: message.unwrap_or_default() }
        }
        "sub_agent_activity" => ItemBody::SubAgent {
            action: format!("agent {}", text("kind")),
            text: text("agent_path"),
            threads: owned(p, "agent_thread_id").into_iter().collect(),
        },
        k if k.starts_with("collab_") && k.ends_with("_end") => ItemBody::SubAgent {
            action: k
                .trim_start_matches("collab_")
                .trim_start_matches("agent_")
                .trim_end_matches("_end")
                .replace('_', " "),
            text: tool::joined(&text("prompt"), p.get("statuses")),
            threads: owned(p, "new_thread_id").or_else(|| owned(p, "receiver_thread_id")).into_iter().collect(),
        },
        "guardian_assessment"
        | "undo_completed"
        | "injected_message"
        | "turn_diff"
        | "plan_update"
        | "background_event" => ItemBody::Silent,
        other => ItemBody::Unknown { kind: format!("event_msg/{other}"), reason: "unknown event" },
    };
    let call_id = owned(p, "call_id").or_else(|| owned(p, "callId"));
    Item { origin: Origin::Event, id: None, call_id, turn_id: owned(p, "turn_id"), body }
}

fn message_images(p: &Value) -> Vec<Image> {
    let mut images = Vec::new();
    for key in ["images", "local_images"] {
        for v in p.get(key).and_then(Value::as_array).into_iter().flatten() {
            match v {
                Value::String(s) => images.push(tool::image_from_url(s)),
                Value::Object(_) => images.extend(tool::image(v)),
                _ => {}
            }
        }
    }
    images
}
