//! Who was started by whom in a home, and whose history needs whose files.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use threadkeep_index::listed::Known;
use threadkeep_record::ThreadId;
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::par;

use crate::catalog::{Catalog, Group};
use crate::row;

/// A thread that was read for this, because the index does not tell it.
#[derive(Debug, Clone, Default)]
struct Told {
    id: Option<ThreadId>,
    parent: Option<ThreadId>,
    bases: Vec<ThreadId>,
}

impl Told {
    /// Notes a thread beside the rollouts that its history continues.
    fn note_bases(self, id: ThreadId, by_base: &mut HashMap<ThreadId, Vec<ThreadId>>) {
        self.bases.into_iter().for_each(|base| by_base.entry(base).or_default().push(id));
    }
}

/// Threads with those whose history continues a rollout of theirs.
pub type Needing = BTreeMap<ThreadId, BTreeSet<ThreadId>>;

/// The relations between the threads of a home, by its files, Codex's database and the index.
pub struct Relations<'c> {
    catalog: &'c Catalog,
    /// Threads by the one that started them.
    children: BTreeMap<ThreadId, BTreeSet<ThreadId>>,
    /// Threads that were read, by a rollout that their history continues.
    needing: HashMap<ThreadId, Vec<ThreadId>>,
    /// All threads by such a rollout, where the index failed when it was asked.
    read: OnceCell<HashMap<ThreadId, Vec<ThreadId>>>,
}

impl<'c> Relations<'c> {
    /// Looks at the threads of a home: at their heads, where the index does not know them.
    #[must_use]
    pub fn of(catalog: &'c Catalog) -> Self {
        let mut parents: BTreeMap<ThreadId, ThreadId> = catalog.kept.parents().collect();
        let unread: Vec<&Group> = catalog
            .groups
            .iter()
            .enumerate()
            .filter(|(i, _)| catalog.kept.get(*i, Known::Ends).is_none())
            .map(|(_, group)| group)
            .collect();
        let mut needing: HashMap<ThreadId, Vec<ThreadId>> = HashMap::new();
        for told in par::map(&unread, |group| tell(catalog, group)) {
            let Some(id) = told.id else { continue };
            match told.parent {
                Some(parent) => parents.insert(id, parent),
                None => parents.remove(&id),
            };
            told.note_bases(id, &mut needing);
        }
        // What was set counts before what a header says; Codex's edges only complete it.
        for (parent, child) in catalog.db_edges() {
            parents.entry(child).or_insert(parent);
        }
        for edge in catalog.kept.index().and_then(|index| index.all_edges().ok()).unwrap_or_default() {
            parents.insert(edge.child, edge.parent);
        }
        let mut children: BTreeMap<ThreadId, BTreeSet<ThreadId>> = BTreeMap::new();
        parents.into_iter().for_each(|(child, parent)| {
            children.entry(parent).or_default().insert(child);
        });
        Self { catalog, children, needing, read: OnceCell::new() }
    }

    /// All threads below a thread, the nearest first, itself left out; only those that are in the home.
    #[must_use]
    pub fn descendants(&self, id: ThreadId) -> Vec<ThreadId> {
        let mut seen = HashSet::from([id]);
        let mut level = VecDeque::from([id]);
        let mut found = Vec::new();
        while let Some(parent) = level.pop_front() {
            for child in self.children.get(&parent).into_iter().flatten().filter(|c| seen.insert(**c)) {
                level.push_back(*child);
                // A thread between two that are there may be gone.
                if self.catalog.group(*child).is_some() || self.catalog.ghosts.contains_key(child) {
                    found.push(*child);
                }
            }
        }
        found
    }

    /// For each of these threads, those whose history continues a rollout of it.
    #[must_use]
    pub fn needing_each(&self, ids: &[ThreadId]) -> Needing {
        ids.iter().map(|id| (*id, self.needing(*id))).collect()
    }

    /// The threads whose history continues a rollout of this one, itself left out.
    #[must_use]
    pub fn needing(&self, id: ThreadId) -> BTreeSet<ThreadId> {
        let files = self.catalog.group(id).map(|g| g.files.to_vec()).unwrap_or_default();
        let segments = files.iter().filter_map(|f| self.catalog.files[*f as usize].name.segment);
        let rollouts: HashSet<ThreadId> = segments.chain([id]).collect();
        let read = rollouts.iter().filter_map(|r| self.needing.get(r)).flatten().copied();
        let mut all: BTreeSet<ThreadId> = read.filter(|other| *other != id).collect();
        // The index tells who says anything of this thread; whether it is their history, their headers tell.
        let asked: Vec<ThreadId> = rollouts.iter().copied().collect();
        let Some(hinted) = self.catalog.kept.dependents(&asked) else {
            // Where it cannot tell, they all are asked.
            let others = rollouts.iter().filter_map(|r| self.by_base().get(r)).flatten();
            all.extend(others.filter(|other| **other != id));
            return all;
        };
        for other in hinted.into_iter().filter(|other| *other != id) {
            let Some(group) = self.catalog.group(other) else {
                // One that was not looked for says something of a segment, which only a history does.
                if self.catalog.partial.as_ref().is_some_and(|wanted| !wanted.contains(&other)) {
                    all.insert(other);
                }
                continue;
            };
            if tell(self.catalog, group).bases.iter().any(|base| rollouts.contains(base)) {
                all.insert(other);
            }
        }
        all
    }

    /// Whether the history of a thread continues this very rollout.
    #[must_use]
    pub fn continues(&self, other: ThreadId, rollout: ThreadId) -> bool {
        // One that cannot be looked at may.
        self.catalog.group(other).is_none_or(|group| tell(self.catalog, group).bases.contains(&rollout))
    }

    /// All threads of the look by the rollouts that their histories continue; read once.
    fn by_base(&self) -> &HashMap<ThreadId, Vec<ThreadId>> {
        self.read.get_or_init(|| {
            let groups: Vec<&Group> = self.catalog.groups.iter().collect();
            let mut by: HashMap<ThreadId, Vec<ThreadId>> = HashMap::new();
            for told in par::map(&groups, |group| tell(self.catalog, group)) {
                let Some(id) = told.id else { continue };
                told.note_bases(id, &mut by);
            }
            by
        })
    }
}

/// Reads the heads of a thread's files.
fn tell(catalog: &Catalog, group: &Group) -> Told {
    let mut told = Told { id: group.id, ..Told::default() };
    for member in row::members(catalog, group, Depth::Head) {
        let Some(header) = member.facts.header else { continue };
        told.id = told.id.or(header.id);
        told.parent = told.parent.or_else(|| header.parent());
        told.bases.extend(header.history_base.map(|base| base.thread_id));
    }
    told
}
