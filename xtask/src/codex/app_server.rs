//! A client for `codex app-server`: JSON-RPC over stdio, one object a line.

use std::collections::VecDeque;
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

/// A turn with the stand-in model takes well under a second.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a server may take to end after its stdin is closed.
const FAREWELL: Duration = Duration::from_secs(5);

/// How a request was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub code: i64,
    pub message: String,
}

/// A running server. Dropping it ends the process.
pub struct AppServer {
    child: Child,
    /// `None` once it is closed.
    stdin: Option<ChildStdin>,
    /// Lines with the moment of their arrival.
    lines: Receiver<(Instant, String)>,
    next_id: u64,
    spawned: Instant,
    /// Turns whose end was told and not waited for yet: `turn/completed` with its parameters.
    ended_turns: VecDeque<Value>,
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
        let mut server = Self { child, stdin, lines, next_id: 0, spawned, ended_turns: VecDeque::new() };
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

    /// Ends the process as `kill -9` does.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill().and_then(|()| self.child.wait()).context("cannot kill the server")?;
        Ok(())
    }

    pub fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        self.timed(method, params).map(|(result, _)| result)
    }

    /// The result, and the time from sending the request to the arrival of the answer.
    pub fn timed(&mut self, method: &str, params: Value) -> Result<(Value, Duration)> {
        let (answer, time) = self.exchange(method, params)?;
        match answer {
            Ok(result) => Ok((result, time)),
            Err(refusal) => bail!("{method}: {} ({})", refusal.message, refusal.code),
        }
    }

    /// The refusal of a request that must not succeed.
    pub fn refused(&mut self, method: &str, params: Value) -> Result<Refusal> {
        match self.exchange(method, params)?.0 {
            Ok(result) => bail!("{method} was not refused: {result}"),
            Err(refusal) => Ok(refusal),
        }
    }

    /// A whole turn with one text of a person's: its final state.
    pub fn turn(&mut self, thread: &str, text: &str) -> Result<Value> {
        let input = json!([{"type": "text", "text": text}]);
        let started = self.request("turn/start", json!({"threadId": thread, "input": input}))?;
        let turn = started["turn"]["id"].clone();
        let asked = Instant::now();
        loop {
            while let Some(mut ended) = self.ended_turns.pop_front() {
                if ended["turn"]["id"] == turn {
                    return Ok(ended["turn"].take());
                }
            }
            let (_, message) = self.next_message("turn/completed", asked + TURN_TIMEOUT)?;
            self.notified(message)?;
        }
    }

    fn exchange(&mut self, method: &str, params: Value) -> Result<(Result<Value, Refusal>, Duration)> {
        self.next_id += 1;
        let id = self.next_id;
        let sent = Instant::now();
        self.send(&json!({"id": id, "method": method, "params": params}))?;
        loop {
            let (arrived, mut message) = self.next_message(method, sent + TIMEOUT)?;
            if message.get("method").is_some() {
                self.notified(message)?;
                continue;
            }
            if message["id"] != id {
                continue;
            }
            let answer = match message.get("error") {
                Some(error) => Err(Refusal {
                    code: error["code"].as_i64().unwrap_or_default(),
                    message: error["message"].as_str().unwrap_or_default().to_owned(),
                }),
                None => Ok(message["result"].take()),
            };
            return Ok((answer, arrived - sent));
        }
    }

    fn next_message(&mut self, waiting_for: &str, until: Instant) -> Result<(Instant, Value)> {
        let left = until.saturating_duration_since(Instant::now());
        let (arrived, line) = match self.lines.recv_timeout(left) {
            Ok(received) => received,
            Err(RecvTimeoutError::Timeout) => bail!("{waiting_for}: it did not come in time"),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("{waiting_for}: the server ended ({:?})", self.child.try_wait())
            }
        };
        let message =
            serde_json::from_str(&line).with_context(|| format!("{waiting_for}: the server wrote {line:?}"))?;
        Ok((arrived, message))
    }

    /// A request of the server (it has an id) waits for a decision; of notifications only the ends of turns matter.
    fn notified(&mut self, mut message: Value) -> Result<()> {
        if let Some(id) = message.get("id") {
            self.send(&json!({"id": id, "result": {"decision": "accept"}}))?;
        } else if message["method"] == "turn/completed" {
            self.ended_turns.push_back(message["params"].take());
        }
        Ok(())
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
