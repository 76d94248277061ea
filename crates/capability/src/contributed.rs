//! Roots that a ready environment brings along itself.

use std::collections::HashSet;
use std::sync::Arc;

use crate::{CapabilityError, EnvironmentId, SelectedCapabilityRoot};

/// How many roots one environment may contribute (`thread-store.md` 7.4).
pub const MAX_CONTRIBUTED_ROOTS: usize = 256;

/// The roots of one environment, checked: at most [`MAX_CONTRIBUTED_ROOTS`], ids unique and not empty, all of them in
/// the environment. They are never written to a thread. Cheap to clone; empty by default.
#[derive(Debug, Clone, Default)]
pub struct ContributedRoots(Option<Arc<[SelectedCapabilityRoot]>>);

impl ContributedRoots {
    /// Checks the roots that `environment_id` contributes; all are taken or none.
    pub(crate) fn check(
        environment_id: &EnvironmentId,
        roots: Vec<SelectedCapabilityRoot>,
    ) -> Result<Self, CapabilityError> {
        let environment = || environment_id.clone();
        if roots.len() > MAX_CONTRIBUTED_ROOTS {
            return Err(CapabilityError::TooManyRoots {
                environment_id: environment(),
                count: roots.len(),
                limit: MAX_CONTRIBUTED_ROOTS,
            });
        }
        let mut ids = HashSet::new();
        for (at, root) in roots.iter().enumerate() {
            if root.id().is_empty() {
                return Err(CapabilityError::EmptyRootId { environment_id: environment(), position: at + 1 });
            }
            let root_id = || root.id().to_owned();
            if root.environment_id() != environment_id {
                return Err(CapabilityError::ForeignRoot {
                    environment_id: environment(),
                    root_id: root_id(),
                    located_in: root.environment_id().clone(),
                });
            }
            if !ids.insert(root.id()) {
                return Err(CapabilityError::RepeatedRootId { environment_id: environment(), root_id: root_id() });
            }
        }
        Ok(Self((!roots.is_empty()).then(|| roots.into())))
    }

    /// The roots, in the environment's order.
    #[must_use]
    pub fn roots(&self) -> &[SelectedCapabilityRoot] {
        self.0.as_deref().unwrap_or_default()
    }
}
