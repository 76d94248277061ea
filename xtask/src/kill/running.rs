//! A child process whose lines are read as they come.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Longer than this no child is silent.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    /// What it said so far.
    pub said: Vec<String>,
}

impl Running {
    pub fn start(args: &[String]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("kill-child").args(args).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot start a writer")?;
        let out = child.stdout.take().context("no pipe")?;
        let (send, lines) = channel();
        std::thread::spawn(move || {
            // A line that the death cut off says nothing.
            let mut reader = BufReader::new(out);
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|n| n > 0) && line.ends_with('\n') {
                if send.send(line.trim_end().to_owned()).is_err() {
                    break;
                }
                line.clear();
            }
        });
        Ok(Self { child, lines, said: vec![] })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that begins so.
    pub fn wait_for(&mut self, begin: &str) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let is = line.starts_with(begin);
                    self.said.push(line);
                    if is {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("a writer said nothing for {PATIENCE:?}: {:?}", self.said.last())
                }
                Err(RecvTimeoutError::Disconnected) => bail!("a writer ended: {:?}", self.said.last()),
            }
        }
    }

    /// Takes in what it said meanwhile.
    pub fn listen(&mut self) {
        self.said.extend(self.lines.try_iter());
    }

    /// Kills it with -9 and waits until it is gone; returns everything it said. That it ended by itself is an error.
    pub fn kill(mut self) -> Result<Vec<String>> {
        let ended = self.child.try_wait()?;
        self.child.kill()?;
        self.child.wait()?;
        // Until the pipe is empty.
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.said.push(line);
        }
        if let Some(status) = ended {
            bail!("a writer ended by itself with {status}: {:?}", self.said.last());
        }
        Ok(self.said)
    }
}
