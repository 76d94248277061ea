//! A stand-in for the model: answers every request of the Responses API with one message, on this machine alone.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Starts it. It answers as long as this process lives. Gives the port.
pub fn serve() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    let port = listener.local_addr().context("cannot listen")?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || {
                // A client that goes away is no failure of ours.
                let _ = answer(stream);
            });
        }
    });
    Ok(port)
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut request = String::new();
    reader.read_line(&mut request)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    reader.take(length).read_to_end(&mut Vec::new())?;
    let (kind, body) = if request.starts_with("POST") && request.contains("/responses") {
        ("text/event-stream", events())
    } else {
        ("application/json", json!({"object": "list", "data": [], "models": []}).to_string())
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )?;
    stream.flush()
}

fn events() -> String {
    let text = "An answer.";
    let content = json!([{"type": "output_text", "text": text, "annotations": []}]);
    let message = |content: Value| json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content});
    let usage = json!({
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 103,
    });
    let all = [
        json!({"type": "response.created", "response": {"id": "resp_1", "object": "response", "status": "in_progress", "output": []}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": message(json!([]))}),
        json!({"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": text}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": message(content.clone())}),
        json!({"type": "response.completed", "response": {"id": "resp_1", "object": "response", "status": "completed", "output": [message(content)], "usage": usage}}),
    ];
    all.iter().map(|e| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap_or(""))).collect()
}
