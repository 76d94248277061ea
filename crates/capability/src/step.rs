//! The capability roots of one model step: a thread's choice paired with the handles of one moment.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::registry::{Ask, Look};
use crate::selection::SelectionEntry;
use crate::sync::Mutex;
use crate::{
    CapabilityRootSelection, CapabilityWarning, EnvironmentHandle, EnvironmentId, EnvironmentRegistry,
    EnvironmentSnapshot, ReadyEnvironment, SelectedCapabilityRoot,
};

/// Which selected roots a step has, and through which handle (`thread-store.md` 7.4).
///
/// | the root's environment | this step |
/// | --- | --- |
/// | in the snapshot, ready | has it, through the captured handle |
/// | in the snapshot, starting | does without |
/// | outside, not known | does without |
/// | outside, ready | has it, through the registry's handle |
/// | outside, starting or failed | does without; nothing is retried |
/// | outside, waiting to be asked for | does without; the start-up begins |
///
/// It is decided once for each environment and never again in the step. Nothing scans files, and the selection is never
/// changed: a root that is left out now may be back in the next step.
pub struct StepRoots<H> {
    snapshot: EnvironmentSnapshot<H>,
    outside: Arc<Outside<H>>,
    selection: CapabilityRootSelection,
    /// For each of the selection's environments.
    decisions: Vec<Decision<H>>,
    /// Roots that ready environments of the snapshot contribute: which environment, which of its roots.
    contributed: Vec<(Arc<ReadyEnvironment<H>>, usize)>,
    ignored: Vec<CapabilityWarning>,
    ask: Ask,
}

/// What the step's first look at each environment outside the snapshot found; later ones are answered from here.
type Outside<H> = Mutex<HashMap<EnvironmentId, Decision<H>>>;

enum Decision<H> {
    Ready(Arc<ReadyEnvironment<H>>),
    Without(Omission),
}

/// Why a step does without a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Omission {
    /// Its environment is starting, perhaps because this step asked for it.
    Starting,
    /// Nobody has asked for its environment yet, and a passive look does not.
    NotStarted,
    /// Its environment is not known.
    Unknown,
    /// The start-up of its environment failed.
    Failed {
        /// Why.
        reason: Arc<str>,
    },
}

/// Who brought a root into a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootOrigin {
    /// The thread's selection.
    Thread,
    /// The environment contributes it.
    Environment,
}

/// A root of a step, with the environment it is read through.
#[derive(Debug)]
pub struct ResolvedRoot<'a, H> {
    /// The root.
    pub root: &'a SelectedCapabilityRoot,
    /// Its environment, with the handle that was ready.
    pub environment: &'a Arc<ReadyEnvironment<H>>,
    /// Who brought it.
    pub origin: RootOrigin,
}

/// A selected root that a step does without.
#[derive(Debug, PartialEq, Eq)]
pub struct OmittedRoot<'a> {
    /// The root.
    pub root: &'a SelectedCapabilityRoot,
    /// Why.
    pub reason: &'a Omission,
}

impl<H: EnvironmentHandle> StepRoots<H> {
    /// Resolves a selection at the beginning of a step. What stands in the snapshot is decided by it alone; all other
    /// environments of the selection are looked at once, together, and those among them that wait to be asked for
    /// start.
    #[must_use]
    pub fn resolve(
        selection: &CapabilityRootSelection,
        snapshot: &EnvironmentSnapshot<H>,
        registry: &EnvironmentRegistry<H>,
    ) -> Self {
        Self::decide(selection, snapshot, Arc::new(Mutex::new(HashMap::new())), registry, Ask::Start)
    }

    /// As [`Self::resolve`], but only looks: nothing is started. For showing what a step would have and
    /// [`Self::warnings`].
    #[must_use]
    pub fn inspect(
        selection: &CapabilityRootSelection,
        snapshot: &EnvironmentSnapshot<H>,
        registry: &EnvironmentRegistry<H>,
    ) -> Self {
        Self::decide(selection, snapshot, Arc::new(Mutex::new(HashMap::new())), registry, Ask::Passive)
    }

    /// Resolves another selection within the same step: same snapshot, and what this step has looked at outside of it
    /// is as it was found then. After [`Self::inspect`] nothing is started here either.
    #[must_use]
    pub fn with_selection(&self, selection: &CapabilityRootSelection, registry: &EnvironmentRegistry<H>) -> Self {
        Self::decide(selection, &self.snapshot, self.outside.clone(), registry, self.ask)
    }

    fn decide(
        selection: &CapabilityRootSelection,
        snapshot: &EnvironmentSnapshot<H>,
        outside: Arc<Outside<H>>,
        registry: &EnvironmentRegistry<H>,
        ask: Ask,
    ) -> Self {
        let mut open: Vec<(usize, &EnvironmentId)> = Vec::new();
        let mut decisions: Vec<Decision<H>> = Vec::with_capacity(selection.environments().len());
        for (place, id) in selection.environments().iter().enumerate() {
            decisions.push(match snapshot.get(id) {
                Some(Some(ready)) => Decision::Ready(ready.clone()),
                Some(None) => Decision::Without(Omission::Starting),
                None => {
                    open.push((place, id));
                    Decision::Without(Omission::Unknown)
                }
            });
        }
        if !open.is_empty() {
            look_outside(&open, &outside, registry, ask, &mut decisions);
        }
        let (contributed, ignored) = contributed(selection, snapshot);
        Self { snapshot: snapshot.clone(), outside, selection: selection.clone(), decisions, contributed, ignored, ask }
    }
}

/// Decides the environments that do not stand in the snapshot: from the step's record, else by one look that is
/// recorded.
fn look_outside<H: EnvironmentHandle>(
    open: &[(usize, &EnvironmentId)],
    outside: &Outside<H>,
    registry: &EnvironmentRegistry<H>,
    ask: Ask,
    decisions: &mut [Decision<H>],
) {
    // The record stays locked during the look, so that two threads of one step cannot record different ones. The
    // registry never takes this lock.
    let mut record = outside.lock();
    let new: Vec<&EnvironmentId> = open.iter().map(|&(_, id)| id).filter(|id| !record.contains_key(*id)).collect();
    let mut after = None;
    if !new.is_empty() {
        let (looks, then) = registry.look(&new, ask);
        after = Some(then);
        record.extend(new.into_iter().cloned().zip(looks.into_iter().map(Decision::from_look)));
    }
    for &(place, id) in open {
        if let Some(decision) = record.get(id) {
            decisions[place] = decision.clone();
        }
    }
    drop(record);
    if let Some(after) = after {
        registry.run(after);
    }
}

type Contributed<H> = (Vec<(Arc<ReadyEnvironment<H>>, usize)>, Vec<CapabilityWarning>);

/// What the snapshot's ready environments contribute, in its order. An id that the thread has selected stays the
/// thread's, whether its own root is there in this step or not; among environments the first has it.
fn contributed<H>(selection: &CapabilityRootSelection, snapshot: &EnvironmentSnapshot<H>) -> Contributed<H> {
    let (mut taken, mut ignored) = (Vec::new(), Vec::new());
    let mut ids: HashMap<&str, &SelectedCapabilityRoot> = HashMap::new();
    for environment in snapshot.contributing() {
        for (at, root) in environment.contributed().roots().iter().enumerate() {
            match selection.get(root.id()).or_else(|| ids.get(root.id()).copied()) {
                None => {
                    ids.insert(root.id(), root);
                    taken.push((environment.clone(), at));
                }
                // A thread may well have selected what its environment contributes.
                Some(kept) if kept.location() == root.location() => {}
                Some(kept) => ignored.push(CapabilityWarning::ContributedRootIgnored {
                    root_id: root.id().to_owned(),
                    environment_id: environment.environment_id().clone(),
                    kept_in: kept.environment_id().clone(),
                }),
            }
        }
    }
    (taken, ignored)
}

impl<H> StepRoots<H> {
    /// The roots that the step has: the thread's in selection order, then what environments contribute, in the
    /// snapshot's order and theirs.
    pub fn roots(&self) -> impl Iterator<Item = ResolvedRoot<'_, H>> {
        let own = self.selection.placed_roots().filter_map(|(root, place)| match &self.decisions[place] {
            Decision::Ready(environment) => Some(ResolvedRoot { root, environment, origin: RootOrigin::Thread }),
            Decision::Without(_) => None,
        });
        own.chain(self.contributed.iter().map(|(environment, at)| ResolvedRoot {
            root: &environment.contributed().roots()[*at],
            environment,
            origin: RootOrigin::Environment,
        }))
    }

    /// The selected roots that the step does without, in selection order.
    pub fn omitted(&self) -> impl Iterator<Item = OmittedRoot<'_>> {
        self.selection.placed_roots().filter_map(|(root, place)| match &self.decisions[place] {
            Decision::Ready(_) => None,
            Decision::Without(reason) => Some(OmittedRoot { root, reason }),
        })
    }

    /// What is worth telling of what the step does without: in selection order, environments that are not ready once
    /// each; then ignored contributions. Looks at nothing again.
    #[must_use]
    pub fn warnings(&self) -> Vec<CapabilityWarning> {
        let mut warnings = Vec::new();
        let mut told = vec![Told::No; self.decisions.len()];
        let mut roots = self.selection.placed_roots();
        for (at, entry) in self.selection.entries().iter().enumerate() {
            let unread = match entry {
                SelectionEntry::Root(_) => None,
                SelectionEntry::Unread(unread) => Some(unread),
            };
            if let Some(unread) = unread {
                let reason = unread.reason().clone();
                warnings.push(CapabilityWarning::UnreadRoot { position: at + 1, reason });
                continue;
            }
            let Some((root, place)) = roots.next() else { continue };
            let Decision::Without(omission) = &self.decisions[place] else { continue };
            let environment_id = root.environment_id().clone();
            let reason: Arc<str> = match omission {
                Omission::Unknown => {
                    let root_id = root.id().to_owned();
                    warnings.push(CapabilityWarning::UnavailableEnvironment { root_id, environment_id });
                    continue;
                }
                Omission::Starting => "its start-up is in progress".into(),
                Omission::NotStarted => "its start-up has not begun".into(),
                Omission::Failed { reason } => reason.clone(),
            };
            if std::mem::replace(&mut told[place], Told::Yes) == Told::No {
                warnings.push(CapabilityWarning::EnvironmentNotReady { environment_id, reason });
            }
        }
        warnings.extend(self.ignored.iter().cloned());
        warnings
    }

    /// The snapshot of the step.
    #[must_use]
    pub fn snapshot(&self) -> &EnvironmentSnapshot<H> {
        &self.snapshot
    }

    /// What was resolved.
    #[must_use]
    pub fn selection(&self) -> &CapabilityRootSelection {
        &self.selection
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    No,
    Yes,
}

impl<H> Decision<H> {
    fn from_look(look: Look<H>) -> Self {
        Self::Without(match look {
            Look::Ready(ready) => return Self::Ready(ready),
            Look::Unknown => Omission::Unknown,
            Look::NotStarted => Omission::NotStarted,
            Look::Starting => Omission::Starting,
            Look::Failed(reason) => Omission::Failed { reason },
        })
    }
}

impl<H> Clone for Decision<H> {
    fn clone(&self) -> Self {
        match self {
            Self::Ready(ready) => Self::Ready(ready.clone()),
            Self::Without(omission) => Self::Without(omission.clone()),
        }
    }
}

impl<H> fmt::Debug for StepRoots<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let roots = self.roots().map(|r| (r.root.clone(), r.environment.handle_id()));
        f.debug_struct("StepRoots")
            .field("roots", &roots.collect::<Vec<_>>())
            .field("omitted", &self.omitted().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
