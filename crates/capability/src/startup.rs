//! The start-up of a handle: who is to report how it went, and for which attempt.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::environment::HandleId;
use crate::registry::{Outcome, Shared};
use crate::{CapabilityError, ContributedRoots, EnvironmentHandle, EnvironmentId, SelectedCapabilityRoot};

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Completion {
    /// It counts.
    Recorded,
    /// It does not: the attempt is over, its handle was replaced or the registry is gone. Nothing was changed.
    Stale,
}

/// One attempt to start one handle, given to the registry's starter. Whoever runs the start-up, on whatever thread or
/// runtime, reports its end here.
///
/// It belongs to that handle and that attempt: a late report cannot make a newer handle ready. An attempt dropped
/// without a report counts as failed, so no environment starts for ever.
pub struct StartupAttempt<H> {
    pub(crate) shared: Weak<Shared<H>>,
    pub(crate) environment_id: EnvironmentId,
    pub(crate) handle_id: HandleId,
    pub(crate) handle: Arc<H>,
    pub(crate) number: u64,
}

impl<H> StartupAttempt<H> {
    /// The environment.
    #[must_use]
    pub fn environment_id(&self) -> &EnvironmentId {
        &self.environment_id
    }

    /// The handle to start.
    #[must_use]
    pub fn handle(&self) -> &Arc<H> {
        &self.handle
    }

    /// Which handle it is.
    #[must_use]
    pub fn handle_id(&self) -> HandleId {
        self.handle_id
    }

    /// Whether a report would still count; if not, the start-up may as well be given up.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.shared.upgrade().is_some_and(|shared| shared.is_current(&self.environment_id, self.number))
    }

    /// Reports that the start-up failed. The reason is shown in warnings and events.
    pub fn failed(&self, reason: impl Into<Arc<str>>) -> Completion {
        self.finish(Outcome::Failed(reason.into()))
    }

    fn finish(&self, outcome: Outcome) -> Completion {
        match self.shared.upgrade() {
            Some(shared) => shared.finish(self, outcome),
            None => Completion::Stale,
        }
    }
}

impl<H: EnvironmentHandle> StartupAttempt<H> {
    /// Reports that the handle is ready.
    ///
    /// # Errors
    ///
    /// [`CapabilityError::IdentityMismatch`] if the handle now declares another environment; the start-up has then
    /// failed.
    pub fn ready(&self) -> Result<Completion, CapabilityError> {
        self.ready_with(Vec::new())
    }

    /// Reports that the handle is ready, and which roots the environment contributes; no step sees one without the
    /// other.
    ///
    /// # Errors
    ///
    /// As [`Self::ready`]; what is wrong with the roots ([`ContributedRoots`]), and then nothing is reported yet: the
    /// start-up goes on until this token says how it ended.
    pub fn ready_with(&self, contributed: Vec<SelectedCapabilityRoot>) -> Result<Completion, CapabilityError> {
        let contributed = ContributedRoots::check(&self.environment_id, contributed)?;
        if let Err(mismatch) = check_identity(&self.environment_id, &*self.handle) {
            let _ = self.failed(mismatch.to_string());
            return Err(mismatch);
        }
        Ok(self.finish(Outcome::Ready(contributed)))
    }
}

impl<H> Drop for StartupAttempt<H> {
    fn drop(&mut self) {
        // Stale, and so without effect, where something was reported.
        let _ = self.failed("its start-up ended without a report");
    }
}

impl<H> fmt::Debug for StartupAttempt<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StartupAttempt")
            .field("environment_id", &self.environment_id)
            .field("handle_id", &self.handle_id)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// A handle that has declared nothing is believed; one that declares another id is not.
pub(crate) fn check_identity<H: EnvironmentHandle>(
    environment_id: &EnvironmentId,
    handle: &H,
) -> Result<(), CapabilityError> {
    match handle.declared_id() {
        Some(declared) if declared != environment_id.as_str() => Err(CapabilityError::IdentityMismatch {
            environment_id: environment_id.clone(),
            declared: declared.to_owned(),
        }),
        Some(_) | None => Ok(()),
    }
}
