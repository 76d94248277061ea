//! What commands that change something share: a plan before, a result after (`cli-json.md`).

use std::path::Path;

use serde::Serialize;
use threadkeep_local::{LocalOptions, LocalThreadStore, OpenThread};
use threadkeep_record::ThreadId;
use threadkeep_rollout::{Depth, Home};

use crate::args::Global;
use crate::fail::{Failure, Kind};
use crate::human::visible_line;
use crate::out::{Out, dim};

/// One step of a plan.
#[derive(Debug, Serialize)]
pub struct Planned {
    pub thread_id: ThreadId,
    pub action: &'static str,
    pub path: String,
    pub because: String,
}

#[derive(Debug, Serialize)]
pub struct Outcome {
    pub thread_id: ThreadId,
    pub ok: bool,
    pub error: Option<String>,
}

/// A plan and what became of it.
#[derive(Debug, Serialize)]
pub struct Change {
    format: u32,
    pub plan: Vec<Planned>,
    pub applied: bool,
    pub results: Vec<Outcome>,
}

impl Change {
    pub fn new(plan: Vec<Planned>) -> Self {
        Self { format: 1, plan, applied: false, results: vec![] }
    }

    /// Shows the plan to a person, before anything is done.
    pub fn show(&self, home: &Home, out: &mut Out) -> Result<(), Failure> {
        if out.is_json() {
            return Ok(());
        }
        for step in &self.plan {
            let shown = home.relative(Path::new(&step.path)).display().to_string();
            out.line(&format!("{}: {}  {}", step.action, visible_line(&shown), dim(&visible_line(&step.because))))?;
        }
        Ok(out.flush()?)
    }

    pub fn applied(&mut self, thread_id: ThreadId) {
        self.applied = true;
        self.results.push(Outcome { thread_id, ok: true, error: None });
    }
}

/// Finds the thread that a query means, and the store of its home. The store keeps no index of its own: these commands
/// leave nothing behind but what their plan says.
pub fn target(global: &Global, query: &str) -> Result<(LocalThreadStore, OpenThread, ThreadId), Failure> {
    let reader = global.store()?;
    let open = super::open_thread(&reader, query, Depth::Head)?;
    let Some(id) = open.row.thread.id else {
        return Err(Failure::new(Kind::Failed, "the thread has no id, so it can only be read"));
    };
    if let Some(m) = open.row.members.iter().find(|m| m.entry.path().is_absolute()) {
        return Err(Failure::new(Kind::Usage, "the file is in no home").path(&m.entry.path()));
    }
    let options = LocalOptions {
        sqlite_home: global.sqlite_home.clone(),
        index: None,
        ..LocalOptions::new(reader.homes()[open.home].path())
    };
    Ok((LocalThreadStore::open(options), open, id))
}

/// Runs the store's operations to their end.
pub fn wait<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    Ok(runtime.map_err(|e| Failure::new(Kind::Failed, format!("cannot start: {e}")))?.block_on(work))
}
