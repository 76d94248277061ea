//! Environments: what a handle declares, what becomes of its start-up, and what is told about it.

use std::fmt;
use std::sync::Arc;

use crate::{ContributedRoots, EnvironmentId};

/// A process-local handle on an environment: a connection, a client, the machine itself.
pub trait EnvironmentHandle {
    /// The environment that the other side declares to be; `None` as long as it has declared nothing (not connected).
    ///
    /// Asked when the handle is registered and again when its start-up is reported done. It is called without any lock.
    fn declared_id(&self) -> Option<&str>;
}

/// When the start-up of a remote environment begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Start {
    /// On registration.
    Now,
    /// When a step first asks for it.
    WhenAsked,
}

/// Names one handle that was ever given to a registry; a replaced handle has another. Not stable over processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandleId(pub(crate) u64);

/// What has become of the start-up of an environment's present handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentState {
    /// Nobody has asked for it yet ([`Start::WhenAsked`]).
    NotStarted,
    /// In progress.
    Starting,
    /// Done; a local environment always is.
    Ready,
    /// Failed. Resolution does not try again; [`crate::EnvironmentRegistry::start`] and a replaced handle do.
    Failed {
        /// Why.
        reason: Arc<str>,
    },
}

/// A change in a registry. Events come in the order of the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentEvent {
    /// The environment.
    pub environment_id: EnvironmentId,
    /// The handle that it is about.
    pub handle_id: HandleId,
    /// What happened.
    pub kind: EnvironmentEventKind,
}

/// What happened to an environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnvironmentEventKind {
    /// Its id is known from now on.
    Registered,
    /// Its handle was replaced.
    Replaced,
    /// The start-up of this handle is done.
    Ready,
    /// The start-up of this handle failed.
    Failed {
        /// Why.
        reason: Arc<str>,
    },
}

/// A handle whose start-up is done, with what it contributes: what a snapshot captures. Never changes.
pub struct ReadyEnvironment<H> {
    pub(crate) environment_id: EnvironmentId,
    pub(crate) handle_id: HandleId,
    pub(crate) handle: Arc<H>,
    pub(crate) contributed: ContributedRoots,
}

impl<H> ReadyEnvironment<H> {
    /// The environment.
    #[must_use]
    pub fn environment_id(&self) -> &EnvironmentId {
        &self.environment_id
    }

    /// Which of the handles it has had this is.
    #[must_use]
    pub fn handle_id(&self) -> HandleId {
        self.handle_id
    }

    /// The handle.
    #[must_use]
    pub fn handle(&self) -> &Arc<H> {
        &self.handle
    }

    /// The roots that the environment contributes itself.
    #[must_use]
    pub fn contributed(&self) -> &ContributedRoots {
        &self.contributed
    }
}

impl<H> fmt::Debug for ReadyEnvironment<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyEnvironment")
            .field("environment_id", &self.environment_id)
            .field("handle_id", &self.handle_id)
            .field("contributed", &self.contributed)
            .finish_non_exhaustive()
    }
}
