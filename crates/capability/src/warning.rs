//! What a step tells about roots that it does without.

use std::sync::Arc;

use crate::{CapabilityError, EnvironmentId};

/// Why something that is selected or contributed is not used in a step. None of it changes the selection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapabilityWarning {
    /// The root's environment is not known (text of `thread-store.md` 7.4).
    #[error("selected capability root `{root_id}` references unavailable environment `{environment_id}`")]
    UnavailableEnvironment {
        /// The root.
        root_id: String,
        /// Its environment.
        environment_id: EnvironmentId,
    },
    /// The environment of some roots is known and not ready (text of `thread-store.md` 7.4). Once for each environment.
    #[error("selected capability environment `{environment_id}` is unavailable: {reason}")]
    EnvironmentNotReady {
        /// The environment.
        environment_id: EnvironmentId,
        /// Why its start-up failed, or that it is not done.
        reason: Arc<str>,
    },
    /// An environment contributes a root with the id of another that goes before it.
    #[error(
        "capability root `{root_id}` that environment `{environment_id}` contributes is ignored: \
         the id is taken by a root in environment `{kept_in}`"
    )]
    ContributedRootIgnored {
        /// The id of both.
        root_id: String,
        /// The environment that contributes it.
        environment_id: EnvironmentId,
        /// The environment of the root that is used.
        kept_in: EnvironmentId,
    },
    /// A stored root that could not be read as one.
    #[error("selected capability root number {position} is not understood and not used: {reason}")]
    UnreadRoot {
        /// Place in the selection, counted from 1.
        position: usize,
        /// Why.
        reason: CapabilityError,
    },
}
