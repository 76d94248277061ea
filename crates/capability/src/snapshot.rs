//! The environments of one model step, as one look at the registry found them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::registry::Look;
use crate::{EnvironmentId, ReadyEnvironment};

/// Which environments of the turn were ready when a step began, and through which handle. Later changes of the registry
/// do not change it; cheap to clone. An environment that had failed or was not known does not stand in it.
pub struct EnvironmentSnapshot<H>(Arc<Inner<H>>);

struct Inner<H> {
    /// In the turn's order, each once.
    entries: Vec<(EnvironmentId, Option<Arc<ReadyEnvironment<H>>>)>,
    places: HashMap<EnvironmentId, usize>,
    /// Places of ready ones that contribute roots.
    contributing: Vec<usize>,
}

impl<H> EnvironmentSnapshot<H> {
    pub(crate) fn new(looks: impl Iterator<Item = (EnvironmentId, Look<H>)>) -> Self {
        let mut inner = Inner { entries: Vec::new(), places: HashMap::new(), contributing: Vec::new() };
        for (id, look) in looks {
            let ready = match look {
                Look::Ready(ready) => Some(ready),
                Look::Starting => None,
                Look::Unknown | Look::NotStarted | Look::Failed(_) => continue,
            };
            let place = inner.entries.len();
            // All looks are from one moment, so a repeated id says nothing new.
            if *inner.places.entry(id.clone()).or_insert(place) != place {
                continue;
            }
            if ready.as_ref().is_some_and(|ready| !ready.contributed().roots().is_empty()) {
                inner.contributing.push(place);
            }
            inner.entries.push((id, ready));
        }
        Self(Arc::new(inner))
    }

    /// What the snapshot says of an environment: `None` if it does not stand in it, `Some(None)` if it was still
    /// starting, `Some(Some(…))` if it was ready.
    #[must_use]
    pub fn get(&self, environment_id: &EnvironmentId) -> Option<Option<&Arc<ReadyEnvironment<H>>>> {
        let place = *self.0.places.get(environment_id)?;
        Some(self.0.entries.get(place)?.1.as_ref())
    }

    /// All environments of the snapshot in the turn's order; `None` is one that was still starting.
    pub fn iter(&self) -> impl Iterator<Item = (&EnvironmentId, Option<&Arc<ReadyEnvironment<H>>>)> {
        self.0.entries.iter().map(|(id, ready)| (id, ready.as_ref()))
    }

    /// The ready ones that contribute roots.
    pub(crate) fn contributing(&self) -> impl Iterator<Item = &Arc<ReadyEnvironment<H>>> {
        self.0.contributing.iter().filter_map(|&place| self.0.entries[place].1.as_ref())
    }
}

impl<H> Clone for EnvironmentSnapshot<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H> fmt::Debug for EnvironmentSnapshot<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(id, ready)| (id, ready.map(|ready| ready.handle_id())))).finish()
    }
}
