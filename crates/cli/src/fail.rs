//! Failures: what was attempted, on which file, why, and what to do; once for a person, once as JSON.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use threadkeep_agent_home::HomeError;
use threadkeep_local::LookupError;
use threadkeep_local::change::ChangeError;
use threadkeep_local::change::moves::MoveError;
use threadkeep_rollout::name_index::NameError;
use threadkeep_rollout::writer_lock::LockError;
use threadkeep_store::ThreadStoreError;

use crate::human::visible_line;
use crate::out::Out;

/// The kinds of failure, with their exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    NotFound,
    Ambiguous,
    Usage,
    Refused,
    Failed,
}

#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    path: Option<String>,
    hint: Option<String>,
    candidates: Vec<(String, String)>,
    broken_pipe: bool,
}

pub type Done = Result<u8, Failure>;

impl Failure {
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), path: None, hint: None, candidates: vec![], broken_pipe: false }
    }

    pub fn path(mut self, path: &Path) -> Self {
        self.path = Some(path.to_string_lossy().into_owned());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says first what was done before it failed.
    pub fn behind(mut self, done: &str) -> Self {
        self.message = format!("{done}: {}", self.message);
        self
    }

    /// What went wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn is_broken_pipe(&self) -> bool {
        self.broken_pipe
    }

    fn word(&self) -> (&'static str, u8) {
        match self.kind {
            Kind::NotFound => ("not_found", 1),
            Kind::Ambiguous => ("ambiguous", 2),
            Kind::Usage => ("usage", 2),
            Kind::Refused => ("refused", 3),
            Kind::Failed => ("failed", 5),
        }
    }

    /// Tells the failure and gives its exit code.
    pub fn report(&self, out: &mut Out) -> ExitCode {
        let (word, code) = self.word();
        if out.is_json() {
            let candidates: Vec<Value> =
                self.candidates.iter().map(|(id, what)| json!({"id": id, "what": what})).collect();
            let error = json!({"kind": word, "message": self.message, "path": self.path, "line": null, "offset": null, "hint": self.hint, "candidates": candidates});
            let _ = out.json(&json!({"format": 1, "error": error}));
            let _ = out.finish();
        }
        let mut text = format!("threadkeep: {}", visible_line(&self.message));
        if let Some(path) = &self.path {
            text.push_str(&format!(": {}", visible_line(path)));
        }
        const SHOWN: usize = 20;
        for (id, what) in self.candidates.iter().take(SHOWN) {
            text.push_str(&format!("\n  {id}  {}", human_cut(what)));
        }
        if self.candidates.len() > SHOWN {
            text.push_str(&format!("\n  … and {} more", self.candidates.len() - SHOWN));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("\n  hint: {hint}"));
        }
        crate::out::say(&text);
        ExitCode::from(code)
    }
}

fn human_cut(text: &str) -> String {
    visible_line(text).chars().take(70).collect()
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        let broken_pipe = e.kind() == std::io::ErrorKind::BrokenPipe;
        Self { broken_pipe, ..Self::new(Kind::Failed, format!("cannot write the answer: {e}")) }
    }
}

impl From<ThreadStoreError> for Failure {
    fn from(e: ThreadStoreError) -> Self {
        let kind = match &e {
            ThreadStoreError::ThreadNotFound { .. } => Kind::NotFound,
            ThreadStoreError::InvalidRequest { .. } => Kind::Usage,
            ThreadStoreError::Conflict { .. } => Kind::Refused,
            _ => Kind::Failed,
        };
        // The kind says what the text's first words say.
        let message = match e {
            ThreadStoreError::InvalidRequest { message }
            | ThreadStoreError::Conflict { message }
            | ThreadStoreError::Internal { message } => message,
            other => other.to_string(),
        };
        Self::new(kind, message)
    }
}

impl From<HomeError> for Failure {
    fn from(e: HomeError) -> Self {
        let message = e.to_string();
        match e {
            HomeError::Usage { .. } | HomeError::Id(_) => Self::new(Kind::Usage, message),
            HomeError::Missing { .. } => Self::new(Kind::NotFound, message),
            HomeError::Held { .. } => {
                Self::new(Kind::Refused, message).hint("wait for that process, or end it; the lock goes with it")
            }
            HomeError::Refused { .. } => Self::new(Kind::Refused, message),
            HomeError::Malformed { .. } | HomeError::Io { .. } => Self::new(Kind::Failed, message),
        }
    }
}

/// The kind of failure that a thread which was not changed is.
pub fn kind_of(e: &ChangeError) -> Kind {
    match e {
        ChangeError::NotFound { .. }
        | ChangeError::NotArchived { .. }
        | ChangeError::TranscriptGone { .. }
        | ChangeError::NotInTrash { .. } => Kind::NotFound,
        ChangeError::IsThere { .. }
        | ChangeError::WentOn { .. }
        | ChangeError::Overtaken { .. }
        | ChangeError::Needed { .. }
        | ChangeError::OtherName { .. }
        | ChangeError::NoTime { .. }
        | ChangeError::Outside { .. }
        | ChangeError::Lock(LockError::Held { .. })
        | ChangeError::Moves(MoveError::Exists { .. } | MoveError::Link { .. })
        | ChangeError::Names(NameError::Busy { .. }) => Kind::Refused,
        ChangeError::Codex(e) if e.is_busy() => Kind::Refused,
        _ => Kind::Failed,
    }
}

impl Kind {
    /// The exit code.
    pub fn code(self) -> u8 {
        Failure::new(self, "").word().1
    }
}

impl From<LookupError> for Failure {
    fn from(e: LookupError) -> Self {
        let message = e.to_string();
        match e {
            LookupError::NotFound { dangling, .. } if !dangling.is_empty() => {
                Self::new(Kind::NotFound, message).hint(format!(
                    "the name index has this name for {}, whose file is not here",
                    dangling.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                ))
            }
            LookupError::NotFound { .. } => Self::new(Kind::NotFound, message)
                .hint("`threadkeep list --all` shows every thread; other homes are given with --home"),
            LookupError::Ambiguous { candidates, .. } => {
                Self { candidates, ..Self::new(Kind::Ambiguous, message).hint("give more of the id") }
            }
            LookupError::Gone { .. } => Self::new(Kind::NotFound, message)
                .hint("a backup of the file, put back in its place, brings the thread back"),
            LookupError::NoId { .. } => Self::new(Kind::Failed, message),
            LookupError::Outside { .. } => Self::new(Kind::Usage, message)
                .hint("`threadkeep show PATH` reads a file anywhere; a search looks in homes"),
            LookupError::Path { source, .. } => Self::new(
                if source.kind() == std::io::ErrorKind::NotFound { Kind::NotFound } else { Kind::Failed },
                message,
            ),
        }
    }
}
