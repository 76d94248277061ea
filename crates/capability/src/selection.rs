//! The list of roots that a thread has selected.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::on_one_line;
use crate::{CapabilityError, EnvironmentId, SelectedCapabilityRoot};

/// One place of a selection.
#[derive(Debug, Clone)]
pub enum SelectionEntry {
    /// A root.
    Root(SelectedCapabilityRoot),
    /// Something that is not understood here, perhaps of a newer program. Kept, written again as it is, never resolved.
    Unread(UnreadRoot),
}

/// A member of a stored list of roots that could not be read as one.
#[derive(Debug, Clone)]
pub struct UnreadRoot {
    raw: Arc<RawValue>,
    reason: CapabilityError,
}

impl UnreadRoot {
    /// Its JSON.
    #[must_use]
    pub fn json(&self) -> &str {
        self.raw.get()
    }

    /// Why it could not be read.
    #[must_use]
    pub fn reason(&self) -> &CapabilityError {
        &self.reason
    }
}

/// The roots that a thread has selected, in order, repeats included. Never changes, whatever becomes of the
/// environments; cheap to clone.
///
/// In JSON a list. Read leniently: one member that cannot be read is kept as [`SelectionEntry::Unread`] and costs no
/// other (what a *request* may hold is stricter: [`crate::selection_from_request`]).
#[derive(Clone)]
pub struct CapabilityRootSelection(Arc<Inner>);

struct Inner {
    entries: Vec<SelectionEntry>,
    /// Of each root, in order: its place in `entries`, and in `environments`.
    roots: Vec<(u32, u32)>,
    /// The environments of the roots, each once, by first use: readiness is decided once for each.
    environments: Vec<EnvironmentId>,
    /// The first root with an id, as its place in `entries`.
    by_id: HashMap<Arc<str>, usize>,
}

impl CapabilityRootSelection {
    fn from_entries(entries: Vec<SelectionEntry>) -> Self {
        let mut inner = Inner { entries, roots: Vec::new(), environments: Vec::new(), by_id: HashMap::new() };
        let mut places: HashMap<EnvironmentId, u32> = HashMap::new();
        for (at, entry) in inner.entries.iter().enumerate() {
            let SelectionEntry::Root(root) = entry else { continue };
            let environment = *places.entry(root.environment_id().clone()).or_insert_with(|| {
                inner.environments.push(root.environment_id().clone());
                index(inner.environments.len() - 1)
            });
            inner.roots.push((index(at), environment));
            inner.by_id.entry(root.shared_id().clone()).or_insert(at);
        }
        Self(Arc::new(inner))
    }

    /// The places of the list, with those that could not be read.
    #[must_use]
    pub fn entries(&self) -> &[SelectionEntry] {
        &self.0.entries
    }

    /// The roots, in order.
    pub fn roots(&self) -> impl Iterator<Item = &SelectedCapabilityRoot> {
        self.placed_roots().map(|(root, _)| root)
    }

    /// What could not be read.
    pub fn unread(&self) -> impl Iterator<Item = &UnreadRoot> {
        self.0.entries.iter().filter_map(|entry| match entry {
            SelectionEntry::Unread(unread) => Some(unread),
            SelectionEntry::Root(_) => None,
        })
    }

    /// The environments that the roots are in, each once, in order of first use.
    #[must_use]
    pub fn environments(&self) -> &[EnvironmentId] {
        &self.0.environments
    }

    /// Whether the list holds nothing at all; such a list is not written to a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.entries.is_empty()
    }

    /// The first root with this id.
    #[must_use]
    pub fn get(&self, root_id: &str) -> Option<&SelectedCapabilityRoot> {
        match self.0.entries.get(*self.0.by_id.get(root_id)?)? {
            SelectionEntry::Root(root) => Some(root),
            SelectionEntry::Unread(_) => None,
        }
    }

    /// Each root with the place of its environment in [`Self::environments`].
    pub(crate) fn placed_roots(&self) -> impl Iterator<Item = (&SelectedCapabilityRoot, usize)> {
        self.0.roots.iter().filter_map(|&(at, environment)| match &self.0.entries[at as usize] {
            SelectionEntry::Root(root) => Some((root, environment as usize)),
            SelectionEntry::Unread(_) => None,
        })
    }
}

/// Lists beyond 2³² members do not fit into memory.
fn index(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

impl Default for CapabilityRootSelection {
    fn default() -> Self {
        Self::from_entries(Vec::new())
    }
}

impl FromIterator<SelectedCapabilityRoot> for CapabilityRootSelection {
    fn from_iter<I: IntoIterator<Item = SelectedCapabilityRoot>>(roots: I) -> Self {
        Self::from_entries(roots.into_iter().map(SelectionEntry::Root).collect())
    }
}

impl From<Vec<SelectedCapabilityRoot>> for CapabilityRootSelection {
    fn from(roots: Vec<SelectedCapabilityRoot>) -> Self {
        roots.into_iter().collect()
    }
}

/// Equal if the same is selected, in the same order; members that could not be read are compared by their spelling.
impl PartialEq for CapabilityRootSelection {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&SelectionEntry, &SelectionEntry)| match (a, b) {
            (SelectionEntry::Root(a), SelectionEntry::Root(b)) => a == b,
            (SelectionEntry::Unread(a), SelectionEntry::Unread(b)) => a.json() == b.json(),
            (SelectionEntry::Root(_), SelectionEntry::Unread(_))
            | (SelectionEntry::Unread(_), SelectionEntry::Root(_)) => false,
        };
        self.entries().len() == other.entries().len() && self.entries().iter().zip(other.entries()).all(same)
    }
}

impl Eq for CapabilityRootSelection {}

impl fmt::Debug for CapabilityRootSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries()).finish()
    }
}

impl Serialize for SelectionEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Root(root) => root.serialize(serializer),
            Self::Unread(unread) => unread.raw.serialize(serializer),
        }
    }
}

impl Serialize for CapabilityRootSelection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.entries())
    }
}

/// From JSON only (`serde_json`), because what is not known is kept as it is spelt.
impl<'de> Deserialize<'de> for CapabilityRootSelection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = Vec::<Box<RawValue>>::deserialize(deserializer)?;
        let entry = |raw: Box<RawValue>| match SelectedCapabilityRoot::from_json(raw.get()) {
            Ok(root) => SelectionEntry::Root(root),
            Err(reason) => SelectionEntry::Unread(UnreadRoot { raw: on_one_line(raw).into(), reason }),
        };
        Ok(Self::from_entries(members.into_iter().map(entry).collect()))
    }
}
