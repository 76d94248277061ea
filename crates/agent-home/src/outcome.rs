//! What came of a preparation, in words that a program can act on.

use std::path::PathBuf;

use serde::Serialize;

use crate::bring::Lost;
use crate::expose::How;
use crate::find::Presence;
use crate::id::ResumeId;

/// The state of the home for its next turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// No thread was asked for; the agent starts a new one.
    Fresh,
    /// The thread is there and can be resumed.
    Resumed(Presence),
    /// The home is ready, the thread is not in it; the agent starts a new one.
    Unavailable(Unavailable),
}

/// Why a thread cannot be resumed in a home that is ready otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unavailable {
    /// It was not found, not usable, or not whole.
    Lost(Lost),
    /// The caller gave no conversation, so nothing was pulled into this home.
    NoConversation,
    /// The home's own `sessions` counts, and the thread is not in it.
    NotInTaskSessions,
}

impl Unavailable {
    /// A word for programs.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Lost(Lost::NotFound) => "not_found",
            Self::Lost(Lost::CannotLook(..)) => "cannot_look",
            Self::Lost(Lost::Archived(_)) => "archived",
            Self::Lost(Lost::Unusable(..)) => "unusable",
            Self::Lost(Lost::BaseMissing(_)) => "base_missing",
            Self::Lost(Lost::CannotExpose(..)) => "cannot_expose",
            Self::NoConversation => "no_conversation",
            Self::NotInTaskSessions => "not_in_task_sessions",
        }
    }

    /// The same for a person.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Lost(Lost::NotFound) => {
                "no rollout of this thread is in the store or in the shared home (an id is resumable once its rollout is \
                 written); forget the id and start a new thread"
                    .into()
            }
            Self::Lost(Lost::CannotLook(path, why)) => format!(
                "no rollout of it was found, but not everything could be looked at, so keep the id: {}: {why}",
                path.display()
            ),
            Self::Lost(Lost::Archived(path)) => {
                format!("the thread is archived ({}); unarchive it first", path.display())
            }
            Self::Lost(Lost::Unusable(path, why)) => format!("{}: {why}", path.display()),
            Self::Lost(Lost::BaseMissing(what)) => format!("its history refers to what is not there: {what}"),
            Self::Lost(Lost::CannotExpose(path, why)) => format!("{}: {why}", path.display()),
            Self::NoConversation => "no issue or chat was given, so the home has no store to resume from".into(),
            Self::NotInTaskSessions => "the home has a sessions folder of its own, and the thread is not in it".into(),
        }
    }
}

/// A file that was exposed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExposedFile {
    /// Its path in the task home.
    pub path: PathBuf,
    /// The way it came in.
    pub how: How,
    /// Whether what the task appends is seen in the shared home too.
    pub shares_appends: bool,
}

/// A name that a person or an agent gave a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedThread {
    /// The thread.
    pub thread_id: String,
    /// The name.
    pub name: String,
}

/// Everything that a preparation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The task home.
    pub task_home: PathBuf,
    /// The store, where the conversation has one.
    pub store: Option<PathBuf>,
    /// What came of it.
    pub outcome: Outcome,
    /// The thread that was asked for.
    pub thread_id: Option<ResumeId>,
    /// Rollouts exposed in this run.
    pub exposed: Vec<ExposedFile>,
    /// Threads that came along because the thread refers to them.
    pub bases: Vec<ResumeId>,
    /// What was moved, or left behind by other systems and replaced.
    pub migrated: Vec<String>,
    /// What was wrong and is right now.
    pub repaired: Vec<String>,
    /// Links made.
    pub linked: Vec<String>,
    /// Copies made.
    pub copied: Vec<String>,
    /// What stands where something of ours would, and was left.
    pub kept: Vec<String>,
    /// Names of the conversation's threads.
    pub names: Vec<NamedThread>,
    /// What should be known beside that.
    pub notes: Vec<String>,
}
