//! Rollouts in the notation of the bug reports: `META`, `USER`, `AGENT`, `ITEM`, `CALL`, `OUT`, `TOK`, `COMP`, `SET`, `SUB`.

use jiff::{Timestamp, ToSpan};
use serde_json::{Value, json};

/// The id of thread `n`: `T(1)` is `T1` of the reports.
pub fn t(n: u32) -> String {
    format!("01990000-0000-7000-8000-{n:012}")
}

/// How a rollout tells what was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `user_message` and `agent_message` events, no ordinals.
    Legacy,
    /// `item_completed` events and an ordinal on every record.
    Paginated,
}

/// A rollout being written: one record a line, a clock that moves a second with each record.
#[derive(Clone)]
pub struct Log {
    pub thread: String,
    pub shape: Shape,
    started: Timestamp,
    clock: Timestamp,
    last: Timestamp,
    ordinal: u64,
    turn: u32,
    lines: Vec<Vec<u8>>,
}

impl Log {
    /// An empty legacy rollout of `thread` whose first record is written at `at` (RFC 3339).
    pub fn new(thread: &str, at: &str) -> Log {
        let at: Timestamp = at.parse().expect("a start time");
        Log {
            thread: thread.to_owned(),
            shape: Shape::Legacy,
            started: at,
            clock: at,
            last: at,
            ordinal: 0,
            turn: 0,
            lines: Vec::new(),
        }
    }

    /// An empty paginated rollout.
    pub fn paginated(thread: &str, at: &str) -> Log {
        Log { shape: Shape::Paginated, ..Log::new(thread, at) }
    }

    pub fn shaped(shape: Shape, thread: &str, at: &str) -> Log {
        Log { shape, ..Log::new(thread, at) }
    }

    /// The healthy thread of the reports: `META(T)`, `USER("hello T")`, `AGENT("ok")`.
    pub fn healthy(thread: &str, at: &str) -> Log {
        Log::new(thread, at).meta().user(&format!("hello {thread}")).agent("ok")
    }

    /// Moves the clock: the next record is written at `at`.
    pub fn at(mut self, at: &str) -> Log {
        self.clock = at.parse().expect("a time");
        self
    }

    /// Sets the ordinal of the next record.
    pub fn ordinal(mut self, next: u64) -> Log {
        self.ordinal = next;
        self
    }

    /// One record, wrapped as this shape wraps it.
    pub fn record(mut self, kind: &str, payload: Value) -> Log {
        let line = self.wrap(kind, &payload.to_string());
        self.lines.push(line);
        self
    }

    /// One record whose payload is spelt exactly as given (escapes, key order, numbers).
    pub fn record_text(mut self, kind: &str, payload: &str) -> Log {
        let line = self.wrap(kind, payload);
        self.lines.push(line);
        self
    }

    fn wrap(&mut self, kind: &str, payload: &str) -> Vec<u8> {
        let at = self.clock;
        self.last = at;
        self.clock = at + 1.second();
        let ordinal = match self.shape {
            Shape::Legacy => String::new(),
            Shape::Paginated => {
                self.ordinal += 1;
                format!("\"ordinal\":{},", self.ordinal - 1)
            }
        };
        format!("{{\"timestamp\":\"{}\",{ordinal}\"type\":\"{kind}\",\"payload\":{payload}}}\n", rfc3339(at))
            .into_bytes()
    }

    /// Bytes put in as they are; a line end only if they hold one.
    pub fn raw(mut self, bytes: &[u8]) -> Log {
        self.lines.push(bytes.to_vec());
        self
    }

    /// `META(T)` with the defaults.
    pub fn meta(self) -> Log {
        self.meta_with(json!({}))
    }

    /// `META(T, k=v..)`: a `null` takes the field away.
    pub fn meta_with(self, fields: Value) -> Log {
        let payload = self.meta_payload(&self.thread, fields);
        self.record("session_meta", payload)
    }

    /// `META(other)`: the header of another thread, as copied history has it.
    pub fn meta_of(self, other: &str, fields: Value) -> Log {
        let payload = self.meta_payload(other, fields);
        self.record("session_meta", payload)
    }

    fn meta_payload(&self, id: &str, fields: Value) -> Value {
        let mut payload = json!({
            "id": id,
            "timestamp": rfc3339(self.clock),
            "cwd": "/w/p",
            "originator": "codex_cli_rs",
            "cli_version": "0.142.0",
            "source": "cli",
            "model_provider": "openai",
        });
        if self.shape == Shape::Paginated {
            payload["cli_version"] = json!("0.171.0");
            payload["history_mode"] = json!("paginated");
        }
        let object = payload.as_object_mut().expect("an object");
        for (key, value) in fields.as_object().expect("fields") {
            if value.is_null() {
                object.remove(key);
            } else {
                object.insert(key.clone(), value.clone());
            }
        }
        payload
    }

    /// `SUB(T, P)`.
    pub fn sub(self, parent: &str) -> Log {
        self.meta_with(json!({
            "source": {"subagent": {"thread_spawn": {"parent_thread_id": parent, "depth": 1}}},
        }))
    }

    pub fn event(self, payload: Value) -> Log {
        self.record("event_msg", payload)
    }

    pub fn response(self, payload: Value) -> Log {
        self.record("response_item", payload)
    }

    /// `item_completed` of the current turn.
    pub fn completed(self, item: Value) -> Log {
        let at = self.clock.as_millisecond();
        let payload = json!({
            "type": "item_completed", "thread_id": self.thread, "turn_id": self.turn_id(), "item": item,
            "started_at_ms": at, "completed_at_ms": at,
        });
        self.event(payload)
    }

    fn turn_id(&self) -> String {
        format!("turn-{}", self.turn)
    }

    /// `USER(x)`, in the way of the shape.
    pub fn user(self, text: &str) -> Log {
        match self.shape {
            Shape::Legacy => self.event(json!({"type": "user_message", "message": text})),
            Shape::Paginated => {
                let id = format!("item-{}", self.ordinal);
                self.completed(json!({
                    "type": "UserMessage", "id": id,
                    "content": [{"type": "text", "text": text, "text_elements": []}],
                }))
            }
        }
    }

    /// `AGENT(x)`, in the way of the shape.
    pub fn agent(self, text: &str) -> Log {
        match self.shape {
            Shape::Legacy => self.event(json!({"type": "agent_message", "message": text})),
            Shape::Paginated => {
                let id = format!("msg_{}", self.ordinal);
                self.completed(json!({
                    "type": "AgentMessage", "id": id, "content": [{"type": "Text", "text": text}],
                }))
            }
        }
    }

    /// `ITEM(role, x)`.
    pub fn item(self, role: &str, text: &str) -> Log {
        let kind = if role == "assistant" { "output_text" } else { "input_text" };
        self.response(json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]}))
    }

    /// `CALL(id, cmd)`.
    pub fn call(self, id: &str, cmd: &str) -> Log {
        self.response(json!({
            "type": "function_call", "name": "exec_command", "call_id": id,
            "arguments": json!({"cmd": cmd}).to_string(),
        }))
    }

    /// `OUT(id, x)`.
    pub fn out(self, id: &str, text: &str) -> Log {
        self.response(json!({"type": "function_call_output", "call_id": id, "output": text}))
    }

    /// `TOK(n)`: cumulative total `n`.
    pub fn tok(self, total: u64) -> Log {
        let usage = |n: u64| {
            json!({
                "input_tokens": n, "cached_input_tokens": 0, "output_tokens": 0, "reasoning_output_tokens": 0,
                "total_tokens": n,
            })
        };
        self.event(json!({
            "type": "token_count", "rate_limits": null,
            "info": {"total_token_usage": usage(total), "last_token_usage": usage(1), "model_context_window": 258400},
        }))
    }

    /// `COMP(items)`.
    pub fn comp(self, items: Value) -> Log {
        self.record("compacted", json!({"message": "", "replacement_history": items, "window_number": 1}))
    }

    /// `SET`.
    pub fn set(self) -> Log {
        self.event(json!({
            "type": "thread_settings_applied",
            "thread_settings": {"model": "gpt-5", "approval_policy": "never"},
        }))
    }

    pub fn task_started(mut self) -> Log {
        self.turn += 1;
        let payload = json!({
            "type": "task_started", "turn_id": self.turn_id(), "started_at": self.clock.as_second(),
            "model_context_window": 258400, "collaboration_mode_kind": "default",
        });
        self.event(payload)
    }

    pub fn task_complete(self, last: &str) -> Log {
        let payload = json!({
            "type": "task_complete", "turn_id": self.turn_id(), "last_agent_message": last,
            "completed_at": self.clock.as_second(),
        });
        self.event(payload)
    }

    /// A whole turn: started, said, answered, complete.
    pub fn turn(self, user: &str, agent: &str) -> Log {
        self.task_started().user(user).agent(agent).task_complete(agent)
    }

    /// The lines so far, each with its line end.
    pub fn lines(&self) -> &[Vec<u8>] {
        &self.lines
    }

    /// The same rollout from here on, without the lines so far.
    pub fn forget(mut self) -> Log {
        self.lines.clear();
        self
    }

    /// The number of bytes so far.
    pub fn len(&self) -> usize {
        self.lines.iter().map(Vec::len).sum()
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.lines.concat()
    }

    /// The instant of the last record.
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// `rollout-<start>-<thread>`, without an ending.
    pub fn stem(&self) -> String {
        format!("rollout-{}-{}", self.started.strftime("%Y-%m-%dT%H-%M-%S"), self.thread)
    }

    /// `R(T, ts)`, relative to the home.
    pub fn active_path(&self) -> String {
        format!("sessions/{}/{}.jsonl", self.started.strftime("%Y/%m/%d"), self.stem())
    }

    /// `A(T, ts)`, relative to the home.
    pub fn archived_path(&self) -> String {
        format!("archived_sessions/{}.jsonl", self.stem())
    }
}

/// The written form of an instant: UTC with milliseconds.
pub fn rfc3339(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}
