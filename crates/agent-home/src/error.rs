//! Why a task home cannot be worked on.

use std::io;
use std::path::{Path, PathBuf};

use crate::id::InvalidResumeId;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// The request makes no sense.
    #[error("{what}")]
    Usage {
        /// What is wrong with it.
        what: String,
    },
    /// A thread id of the wrong form.
    #[error(transparent)]
    Id(#[from] InvalidResumeId),
    /// Something that has to be there is not.
    #[error("{what}: {}", path.display())]
    Missing {
        /// What.
        what: &'static str,
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Someone else is at it.
    #[error("{what} is in use{}: {}", holders(by), path.display())]
    Held {
        /// What.
        what: &'static str,
        /// The lock.
        path: PathBuf,
        /// Processes that hold it, as far as the system tells.
        by: Vec<u32>,
    },
    /// Something stands in the way that this crate did not make and will not remove.
    #[error("{why}: {}", path.display())]
    Refused {
        /// Why.
        why: String,
        /// What.
        path: PathBuf,
    },
    /// A file that has to be read cannot be understood.
    #[error("{}: {why}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The system refused a step.
    #[error("cannot {attempt} {}: {source}", path.display())]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn holders(by: &[u32]) -> String {
    if by.is_empty() {
        return String::new();
    }
    let list: Vec<String> = by.iter().map(ToString::to_string).collect();
    format!(" by process {}", list.join(", "))
}

/// Adds what was attempted to an error of the system.
pub trait Attempt<T> {
    /// `attempt` is a verb with its object's kind: "read folder".
    fn attempt(self, attempt: &'static str, path: impl AsRef<Path>) -> Result<T, HomeError>;
}

impl<T> Attempt<T> for io::Result<T> {
    fn attempt(self, attempt: &'static str, path: impl AsRef<Path>) -> Result<T, HomeError> {
        self.map_err(|source| HomeError::Io { attempt, path: path.as_ref().to_owned(), source })
    }
}
