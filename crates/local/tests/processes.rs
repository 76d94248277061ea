//! Threads over several processes: a killed agent goes on where it was, and two writers exclude each other.
//!
//! The other processes are this test again, in the roles below.

#[path = "../examples/echo_agent.rs"]
mod echo_agent;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::ThreadId;
use threadkeep_store::{
    Archived, Direction, HostMetadata, ListTurns, ResumeThread, ThreadStore, ThreadStoreError, WithHistory,
};

/// The role of another process: the example agent on the home and thread that it is told.
#[test]
fn role_agent() {
    let Ok(home) = std::env::var("ECHO_AGENT_HOME") else { return };
    let thread = std::env::var("ECHO_AGENT_THREAD").ok();
    runtime().block_on(echo_agent::run(&home, thread.as_deref())).unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

struct Agent {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    thread: ThreadId,
}

impl Agent {
    fn command(home: &Path, thread: Option<ThreadId>) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["role_agent", "--exact", "--nocapture", "--test-threads=1"]).env("ECHO_AGENT_HOME", home);
        command.envs(thread.map(|id| ("ECHO_AGENT_THREAD", id.to_string())));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command
    }

    fn start(home: &Path, thread: Option<ThreadId>) -> Self {
        let mut child = Self::command(home, thread).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        // The test's own head line comes first, and may share a line with ours.
        let mut line = String::new();
        let thread = loop {
            line.clear();
            assert!(stdout.read_line(&mut line).unwrap() > 0, "the agent ended");
            if let Some((_, id)) = line.split_once("thread ")
                && let Ok(id) = ThreadId::parse(id.trim())
            {
                break id;
            }
        };
        Self { child, stdin, stdout, thread }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.stdin, "{line}").unwrap();
    }

    /// The next reply; `None` once the agent is dead.
    fn reply(&mut self) -> Option<String> {
        let mut line = String::new();
        let n = self.stdout.read_line(&mut line).unwrap();
        (n > 0 && line.ends_with('\n')).then(|| line.trim_end().to_owned())
    }

    fn kill(mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.reply()).collect()
    }
}

fn store(home: &Path) -> LocalThreadStore {
    LocalThreadStore::open(LocalOptions::new(home))
}

/// Question and answer of each turn, by the store.
fn turns(home: &Path, thread_id: ThreadId) -> Vec<String> {
    let store = store(home);
    let params = ListTurns {
        thread_id,
        page_size: 1_000,
        cursor: None,
        direction: Direction::Ascending,
        archived: Archived::Excluded,
    };
    let page = runtime().block_on(store.list_turns(params)).unwrap();
    page.turns.iter().map(|t| serde_json::to_string(t).unwrap()).collect()
}

#[test]
fn a_killed_agent_resumes_and_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut thread = None;
    let mut answered: Vec<String> = Vec::new();
    for round in 0..6 {
        let mut agent = Agent::start(home.path(), thread);
        assert!(thread.is_none_or(|id| id == agent.thread));
        thread = Some(agent.thread);
        for n in 0..5 {
            let line = format!("line {round}.{n}");
            agent.send(&line);
            assert_eq!(agent.reply().as_ref(), Some(&line));
            answered.push(line);
        }
        // In the middle of these it dies.
        for n in 5..200 {
            agent.send(&format!("line {round}.{n}"));
        }
        std::thread::sleep(Duration::from_micros(700 * round));
        answered.extend(agent.kill());

        let turns = turns(home.path(), thread.unwrap());
        for line in &answered {
            let word = format!("\"{line}\"");
            let there: Vec<&String> = turns.iter().filter(|t| t.contains(&word)).collect();
            assert_eq!(there.len(), 1, "{line:?} was answered and stands in {} turns", there.len());
            assert!(there[0].matches(&word).count() >= 2, "question and answer: {}", there[0]);
        }
    }
    // Closed in peace, it is an ordinary thread.
    let mut agent = Agent::start(home.path(), thread);
    agent.send("goodbye");
    assert_eq!(agent.reply().as_deref(), Some("goodbye"));
    drop(agent.stdin);
    assert!(agent.child.wait().unwrap().success());
    let id = thread.unwrap();
    let read = runtime().block_on(store(home.path()).read_thread(id, Archived::Excluded, WithHistory::No)).unwrap();
    assert_eq!((read.preview.as_str(), read.first_user_message.as_deref()), ("line 0.0", Some("line 0.0")));
}

#[test]
fn a_second_process_is_told_who_writes_until_that_one_is_dead() {
    let home = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(home.path(), None);
    let thread_id = agent.thread;
    agent.send("mine");
    assert_eq!(agent.reply().as_deref(), Some("mine"));

    let store = store(home.path());
    let params = || {
        let metadata = HostMetadata { cwd: Some("/".into()), ..HostMetadata::default() };
        ResumeThread { thread_id, rollout_path: None, archived: Archived::Excluded, metadata }
    };
    let Err(ThreadStoreError::Conflict { message }) = runtime().block_on(store.resume_thread(params())) else {
        panic!("not refused")
    };
    assert!(message.starts_with(&format!("thread {thread_id} already has an active writer")), "{message}");
    assert!(message.contains(&format!("pid {}", agent.child.id())), "{message}");
    // The refusal did not disturb the holder.
    agent.send("still mine");
    assert_eq!(agent.reply().as_deref(), Some("still mine"));
    // A refused store keeps nothing of it.
    assert!(matches!(runtime().block_on(store.resume_thread(params())), Err(ThreadStoreError::Conflict { .. })));

    agent.kill();
    runtime().block_on(store.resume_thread(params())).unwrap();
    // And now this process is named to the next one.
    let refused = Agent::command(home.path(), Some(thread_id)).stderr(Stdio::piped()).output().unwrap();
    let all = [refused.stdout, refused.stderr].concat();
    let all = String::from_utf8_lossy(&all);
    assert!(!refused.status.success() && all.contains("already has an active writer"), "{all}");
    assert!(all.contains(&format!("pid {}", std::process::id())), "{all}");
}
