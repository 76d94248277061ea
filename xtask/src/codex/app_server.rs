//! A client for `codex app-server`: JSON-RPC over stdio, one object a line.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::Codex;

/// Larger than the two minutes that 0.171 needs to index 50,000 rollouts before it answers its first request.
const TIMEOUT: Duration = Duration::from_secs(600);

/// A turn with the stand-in for the model takes well under a second.
const TURN: Duration = Duration::from_secs(60);

/// How long a server may take to end after its stdin is closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// A running server. Dropping it ends the process.
pub struct AppServer {
    child: Child,
    /// `None` once it is closed.
    stdin: Option<ChildStdin>,
    /// Lines with the moment of their arrival.
    lines: Receiver<(Instant, String)>,
    next_id: u64,
    spawned: Instant,
}

impl AppServer {
    /// Starts a server on `home` and shakes hands.
    pub fn start(codex: &Codex, home: &Path) -> Result<Self> {
        let stderr = File::create(&codex.log).with_context(|| format!("cannot write {}", codex.log.display()))?;
        let spawned = Instant::now();
        let mut child = codex
            .app_server_command(home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .with_context(|| format!("cannot start Codex {}", codex.version))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the server has no stdout")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send((Instant::now(), line)).is_err() {
                    break;
                }
            }
        });
        let mut server = Self { child, stdin, lines, next_id: 0, spawned };
        server.request(
            "initialize",
            json!({
                "clientInfo": {"name": "threadkeep_xtask", "title": "threadkeep xtask", "version": "0"},
                // thread/search is refused without it.
                "capabilities": {"experimentalApi": true},
            }),
        )?;
        server.send(&json!({"method": "initialized"}))?;
        Ok(server)
    }

    /// When the process was started.
    pub fn spawned(&self) -> Instant {
        self.spawned
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        self.timed(method, params).map(|(result, _)| result)
    }

    /// The result, and the time from sending the request to the arrival of the answer.
    pub fn timed(&mut self, method: &str, params: Value) -> Result<(Value, Duration)> {
        self.next_id += 1;
        let id = self.next_id;
        let sent = Instant::now();
        self.send(&json!({"id": id, "method": method, "params": params}))?;
        loop {
            let (arrived, line) = match self.lines.recv_timeout(TIMEOUT.saturating_sub(sent.elapsed())) {
                Ok(received) => received,
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{method}: no answer in {} s", TIMEOUT.as_secs())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{method}: the server ended ({:?})", self.child.try_wait())
                }
            };
            let mut message: Value =
                serde_json::from_str(&line).with_context(|| format!("{method}: the server wrote {line:?}"))?;
            if message.get("method").is_some() {
                // A request of the server (it has an id) waits for a decision; a notification needs nothing.
                if let Some(id) = message.get("id") {
                    self.send(&json!({"id": id, "result": {"decision": "accept"}}))?;
                }
                continue;
            }
            if message["id"] != id {
                continue;
            }
            if let Some(error) = message.get("error") {
                bail!("{method}: {error}");
            }
            return Ok((message["result"].take(), arrived - sent));
        }
    }

    /// Says something in a thread and waits for the turn to end.
    pub fn turn(&mut self, thread: &str, text: &str) -> Result<()> {
        let input = json!([{"type": "text", "text": text}]);
        self.request("turn/start", json!({"threadId": thread, "input": input}))?;
        let begun = Instant::now();
        loop {
            let left = TURN.saturating_sub(begun.elapsed());
            let Ok((_, line)) = self.lines.recv_timeout(left) else {
                bail!("the turn {text:?} did not end in {} s", TURN.as_secs())
            };
            let message: Value = serde_json::from_str(&line).with_context(|| format!("the server wrote {line:?}"))?;
            if message["method"] == "turn/completed" && message["params"]["threadId"] == thread {
                return match message["params"]["turn"]["status"].as_str() {
                    Some("completed") | None => Ok(()),
                    Some(_) => bail!("the turn {text:?} ended with {}", message["params"]["turn"]),
                };
            }
        }
    }

    /// All rows of `method` over its pages.
    pub fn all_pages(&mut self, method: &str, mut params: Value) -> Result<Vec<Value>> {
        let mut rows = Vec::new();
        loop {
            let mut page = self.request(method, params.clone())?;
            match page["data"].take() {
                Value::Array(data) => rows.extend(data),
                other => bail!("{method}: the page has no data but {other}"),
            }
            match page["nextCursor"].take() {
                Value::Null => return Ok(rows),
                cursor => params["cursor"] = cursor,
            }
        }
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        let stdin = self.stdin.as_mut().context("the server is closed")?;
        let mut line = message.to_string();
        line.push('\n');
        stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).context("cannot write to the server")
    }
}

impl Drop for AppServer {
    fn drop(&mut self) {
        self.stdin = None;
        let asked = Instant::now();
        while asked.elapsed() < FAREWELL {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // Both fail only if it has ended in the meantime.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
