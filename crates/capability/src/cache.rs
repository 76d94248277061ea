//! What a caller derives from roots, kept over steps and over reconnects.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use crate::sync::Mutex;
use crate::{EnvironmentId, SelectedCapabilityRoot};

/// A cache of values derived from roots, keyed by environment id and root (its id and path).
///
/// An id names the same executor whatever handle reaches it, so what was derived through one handle holds after a
/// replacement. Nothing leaves by itself: whoever knows that a root has changed, or is done with it, removes it.
pub struct RootCache<V>(Mutex<HashMap<EnvironmentId, HashMap<SelectedCapabilityRoot, Arc<V>>>>);

impl<V> RootCache<V> {
    /// An empty cache.
    #[must_use]
    pub fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    /// What is kept for a root.
    #[must_use]
    pub fn get(&self, root: &SelectedCapabilityRoot) -> Option<Arc<V>> {
        self.0.lock().get(root.environment_id())?.get(root).cloned()
    }

    /// What is kept for a root, else what `derive` makes, which is kept from then on.
    ///
    /// `derive` runs without any lock. If several threads derive at once, all get the value that came first.
    ///
    /// # Errors
    ///
    /// Those of `derive`; nothing is kept then.
    pub fn get_or_try_derive<E>(
        &self,
        root: &SelectedCapabilityRoot,
        derive: impl FnOnce() -> Result<V, E>,
    ) -> Result<Arc<V>, E> {
        if let Some(kept) = self.get(root) {
            return Ok(kept);
        }
        let derived = Arc::new(derive()?);
        let mut roots = self.0.lock();
        let kept = match roots.entry(root.environment_id().clone()).or_default().entry(root.clone()) {
            Entry::Occupied(kept) => kept.get().clone(),
            Entry::Vacant(free) => free.insert(derived.clone()).clone(),
        };
        drop(roots);
        Ok(kept)
    }

    /// As [`Self::get_or_try_derive`], for what cannot fail.
    pub fn get_or_derive(&self, root: &SelectedCapabilityRoot, derive: impl FnOnce() -> V) -> Arc<V> {
        match self.get_or_try_derive(root, || Ok::<V, std::convert::Infallible>(derive())) {
            Ok(kept) => kept,
        }
    }

    /// Forgets a root; gives what was kept for it.
    pub fn remove(&self, root: &SelectedCapabilityRoot) -> Option<Arc<V>> {
        self.0.lock().get_mut(root.environment_id())?.remove(root)
    }

    /// Forgets all roots of an environment; says how many there were.
    pub fn remove_environment(&self, environment_id: &EnvironmentId) -> usize {
        // Dropped after the lock: a value's drop may take as long as it likes.
        let removed = self.0.lock().remove(environment_id);
        removed.map_or(0, |roots| roots.len())
    }

    /// How many roots something is kept for.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().values().map(HashMap::len).sum()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<V> Default for RootCache<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> fmt::Debug for RootCache<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RootCache").field("len", &self.len()).finish_non_exhaustive()
    }
}
