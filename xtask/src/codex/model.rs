//! A stand-in for a model (Responses API with server-sent events, on the loopback address): it answers with what a
//! person said last, and keeps what it was given, so that a test can see which history Codex restored.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};
use tiny_http::{Header, Request, Response, Server};

/// What a request to the model brings of the conversation: the texts of its messages, in order.
pub type Given = Vec<Said>;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub role: String,
    pub text: String,
}

/// A running stand-in. Dropping it ends it.
pub struct Model {
    server: Arc<Server>,
    port: u16,
    given: Arc<Mutex<Vec<Given>>>,
    worker: Option<JoinHandle<()>>,
}

/// What the stand-in answers to a message.
pub fn reply_to(text: &str) -> String {
    format!("Reply to: {text}")
}

impl Model {
    pub fn start() -> Result<Self> {
        let server = Server::http("127.0.0.1:0").map_err(|e| anyhow!("the stand-in model has no port: {e}"))?;
        let port = server.server_addr().to_ip().context("the stand-in model has no port")?.port();
        let (server, given) = (Arc::new(server), Arc::new(Mutex::new(Vec::new())));
        let worker = thread::spawn({
            let (server, given) = (Arc::clone(&server), Arc::clone(&given));
            move || {
                let made = AtomicU64::new(0);
                while let Ok(request) = server.recv() {
                    // A client that went away needs no answer.
                    let _ = answer(request, &given, made.fetch_add(1, Ordering::Relaxed));
                }
            }
        });
        Ok(Self { server, port, given, worker: Some(worker) })
    }

    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// What it was given since the last look, a request each.
    pub fn take(&self) -> Vec<Given> {
        std::mem::take(&mut self.given.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(worker) = self.worker.take() {
            // It only ends by panicking if a test failed already.
            let _ = worker.join();
        }
    }
}

fn answer(mut request: Request, given: &Mutex<Vec<Given>>, number: u64) -> Result<()> {
    let path = request.url().split('?').next().unwrap_or_default().to_owned();
    if !path.ends_with("/responses") {
        let body = if path.ends_with("/models") { r#"{"object":"list","data":[],"models":[]}"# } else { "{}" };
        return Ok(request.respond(Response::from_string(body).with_header(content_type("application/json")?))?);
    }
    let packed = request.headers().iter().any(|h| h.field.equiv("content-encoding") && h.value == "zstd");
    let mut body = Vec::new();
    request.as_reader().read_to_end(&mut body)?;
    let body = if packed { zstd::decode_all(&body[..])? } else { body };
    let conversation = messages(&serde_json::from_slice(&body)?);
    let asked = conversation.iter().rfind(|m| m.role == "user").map(|m| m.text.clone()).unwrap_or_default();
    given.lock().unwrap_or_else(PoisonError::into_inner).push(conversation);
    let events = events(&reply_to(&asked), number);
    Ok(request.respond(Response::from_string(events).with_header(content_type("text/event-stream")?))?)
}

fn content_type(value: &str) -> Result<Header> {
    Header::from_bytes("content-type", value).map_err(|()| anyhow!("not a header: {value}"))
}

fn messages(request: &Value) -> Given {
    let items = request["input"].as_array().into_iter().flatten();
    items
        .filter(|item| item["type"] == "message" || item["type"].is_null())
        .map(|item| {
            let parts = item["content"].as_array().into_iter().flatten();
            let text: Vec<&str> = parts.filter_map(|part| part["text"].as_str()).collect();
            Said { role: item["role"].as_str().unwrap_or_default().to_owned(), text: text.join("\n") }
        })
        .collect()
}

fn events(text: &str, number: u64) -> String {
    let (id, response) = (format!("msg_{number:032x}"), format!("resp_{number:032x}"));
    let item = json!({"type": "message", "id": id, "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}]});
    let mut begun = item.clone();
    begun["content"] = json!([]);
    let usage = json!({"input_tokens": 1200, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 64,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 1264});
    let events = [
        json!({"type": "response.created", "response": {"id": response, "object": "response",
            "status": "in_progress", "output": []}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": begun}),
        json!({"type": "response.output_text.delta", "item_id": id, "output_index": 0, "content_index": 0,
            "delta": text}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": {"id": response, "object": "response",
            "status": "completed", "output": [item], "usage": usage}}),
    ];
    let event = |e: &Value| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap_or_default());
    events.iter().map(event).collect()
}
