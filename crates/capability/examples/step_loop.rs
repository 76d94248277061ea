//! A thread whose capability root comes and goes with its environment, step by step.
//!
//! `cargo run -p threadkeep-capability --example step_loop`
#![allow(clippy::print_stdout, reason = "an example shows")]

use std::error::Error;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use threadkeep_capability::{
    EnvironmentHandle, EnvironmentId, EnvironmentRegistry, RootCache, Start, StartupAttempt, StepRoots,
    selection_from_session_meta,
};

/// What a real program would have here: a connection to a machine.
struct Connection {
    to: &'static str,
    number: u32,
    answers: Answers,
}

#[derive(PartialEq)]
enum Answers {
    Soon,
    Never,
}

impl EnvironmentHandle for Connection {
    fn declared_id(&self) -> Option<&str> {
        Some(self.to)
    }
}

fn worker(number: u32, answers: Answers) -> Connection {
    Connection { to: "worker", number, answers }
}

/// Connects in the background. A program with an async runtime would spawn a task here.
fn connect(attempt: StartupAttempt<Connection>) {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        let reported = match attempt.handle().answers {
            Answers::Soon => attempt.ready(),
            Answers::Never => Ok(attempt.failed("connection refused")),
        };
        if let Err(error) = reported {
            println!("        ({error})");
        }
    });
}

fn main() -> Result<(), Box<dyn Error>> {
    // All that a thread keeps of its choice is in its header.
    let header = r#"{"id": "01990000-0000-7000-8000-000000000001", "selected_capability_roots": [
        {"id": "notes", "location": {"type": "environment", "environmentId": "local", "path": "file:///home/me/notes"}},
        {"id": "build", "location": {"type": "environment", "environmentId": "worker", "path": "C:\\build"}}]}"#;
    let selection = selection_from_session_meta(header)?;

    let (told, events) = mpsc::channel();
    let registry = EnvironmentRegistry::with_observer(connect, move |event| {
        // Nobody listens any more at the end.
        let _ = told.send(event.kind.clone());
    });
    let turn: Vec<EnvironmentId> = vec!["local".into(), "worker".into()];
    let derived = RootCache::new();
    let mut number = 0;
    let mut step = |what: &str| {
        number += 1;
        let snapshot = registry.snapshot(&turn);
        let step = StepRoots::resolve(&selection, &snapshot, &registry);
        println!("step {number}: {what}");
        for resolved in step.roots() {
            let connection = resolved.environment.handle();
            let path = resolved.root.path();
            let listing =
                derived.get_or_derive(resolved.root, || format!("read through connection {}", connection.number));
            println!("    has {:5} {path}, through connection {} ({listing})", resolved.root.id(), connection.number);
        }
        for warning in step.warnings() {
            println!("    {warning}");
        }
        step
    };
    // The next event of the worker's start-up; what is told at once is passed over.
    let settled = || {
        use threadkeep_capability::EnvironmentEventKind::{Failed, Ready, Registered, Replaced};
        loop {
            match events.recv_timeout(Duration::from_secs(5)) {
                Ok(Ready | Failed { .. }) => return Ok(()),
                Ok(Registered | Replaced) => {}
                Err(error) => return Err(error),
            }
        }
    };

    registry.register_local("local", Connection { to: "local", number: 1, answers: Answers::Soon })?;
    settled()?;
    step("the worker is not registered yet");
    registry.register_remote("worker", worker(2, Answers::Soon), Start::WhenAsked)?;
    step("registered; this step asks for it, and it starts");
    settled()?;
    let pinned = step("it is ready");
    registry.replace(&turn[1], worker(3, Answers::Soon))?;
    let through: Vec<u32> = pinned.roots().map(|resolved| resolved.environment.handle().number).collect();
    println!("    its connection is replaced; this step keeps connections {through:?}");
    step("the new connection is not ready because the old one was");
    settled()?;
    step("now it is; what was derived from the root still holds");
    registry.replace(&turn[1], worker(4, Answers::Never))?;
    settled()?;
    step("a connection failed; no step tries again by itself");
    registry.replace(&turn[1], worker(5, Answers::Soon))?;
    settled()?;
    step("back, and nobody selected anything again");
    println!("the thread keeps: {}", serde_json::to_string(&selection)?);
    Ok(())
}
