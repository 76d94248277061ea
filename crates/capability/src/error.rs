//! What can be wrong with a root, a selection or an environment.

use crate::EnvironmentId;

/// Why a root, a selection or a change of an environment was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapabilityError {
    /// A path that is neither a `file:` URI nor absolute on any system (the text Codex 0.171 answers with).
    #[error("path `{path}` is not absolute")]
    PathNotAbsolute {
        /// The path as given.
        path: String,
    },
    /// A path of a Windows share that lacks the share's name (the text Codex 0.171 answers with).
    #[error("path `{path}` is not absolute using Windows path syntax")]
    ShareNotNamed {
        /// The path as given.
        path: String,
    },
    /// JSON that is not a selected capability root.
    #[error("not a selected capability root: {reason}")]
    InvalidRoot {
        /// What is missing or of another type.
        reason: String,
    },
    /// A list of roots, or what holds it, that is not of the type it should be.
    #[error("invalid `{field}`: {reason}")]
    InvalidList {
        /// The field that was read.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A handle that declares to belong to another environment.
    #[error("a handle given for environment `{environment_id}` declares to be `{declared}`")]
    IdentityMismatch {
        /// The environment it was given for.
        environment_id: EnvironmentId,
        /// What it declares.
        declared: String,
    },
    /// An environment that is registered already; its handle can be replaced.
    #[error("environment `{environment_id}` is already registered")]
    AlreadyRegistered {
        /// The environment.
        environment_id: EnvironmentId,
    },
    /// An environment that nobody registered.
    #[error("environment `{environment_id}` is not registered")]
    UnknownEnvironment {
        /// The environment.
        environment_id: EnvironmentId,
    },
    /// More roots than an environment may contribute.
    #[error("environment `{environment_id}` contributes {count} capability roots, at most {limit} are taken")]
    TooManyRoots {
        /// The environment.
        environment_id: EnvironmentId,
        /// How many it contributes.
        count: usize,
        /// How many it may.
        limit: usize,
    },
    /// A contributed root without an id.
    #[error("environment `{environment_id}` contributes a capability root with an empty id, at place {position}")]
    EmptyRootId {
        /// The environment.
        environment_id: EnvironmentId,
        /// Place in the list, counted from 1.
        position: usize,
    },
    /// Two contributed roots with one id.
    #[error("environment `{environment_id}` contributes two capability roots with the id `{root_id}`")]
    RepeatedRootId {
        /// The environment.
        environment_id: EnvironmentId,
        /// The id.
        root_id: String,
    },
    /// A contributed root in another environment.
    #[error("environment `{environment_id}` contributes root `{root_id}`, which is in environment `{located_in}`")]
    ForeignRoot {
        /// The environment that contributes it.
        environment_id: EnvironmentId,
        /// The root.
        root_id: String,
        /// The environment of the root's location.
        located_in: EnvironmentId,
    },
}
