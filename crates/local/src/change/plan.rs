//! What a change would do, before anything is done.

use std::collections::{BTreeSet, HashSet};
use std::path::PathBuf;

use threadkeep_record::ThreadId;
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::writer_lock::LockError;

use super::detach::Standing;
use super::relations::{Needing, Relations};
use super::steps::{Look, Planned};
use super::trash::Trash;
use super::{Cascade, ChangeError, ChangeKind, Changer};
use crate::row;

/// What is to be done with a thread.
#[derive(Debug)]
pub enum Decision {
    /// It is changed.
    Take,
    /// It stays, though the thread that started it goes.
    Stay,
    /// It cannot be changed.
    Refuse(ChangeError),
}

/// A file of a plan; paths relative to the home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedFile {
    /// Where it is.
    pub from: PathBuf,
    /// Where it goes; `None` for one that stays.
    pub to: Option<PathBuf>,
    /// Bytes.
    pub bytes: u64,
}

/// A thread of a plan.
#[derive(Debug)]
pub struct PlannedThread {
    /// The thread.
    pub id: ThreadId,
    /// Its name, or how it began.
    pub title: Option<String>,
    /// What is to be done with it.
    pub decision: Decision,
    /// The thread that it comes along with, as a descendant; `None` where it was asked for.
    pub because_of: Option<ThreadId>,
    /// Its files.
    pub files: Vec<PlannedFile>,
    /// Lines of the name index that go or come back.
    pub names: usize,
}

/// A plan.
#[derive(Debug)]
pub struct Plan {
    /// What is to be done.
    pub kind: ChangeKind,
    /// To which threads: those that were asked for, in their order, each before its descendants.
    pub threads: Vec<PlannedThread>,
    /// What a person should know.
    pub notes: Vec<String>,
}

impl Plan {
    /// The threads that would be changed.
    pub fn taken(&self) -> impl Iterator<Item = &PlannedThread> {
        self.threads.iter().filter(|t| matches!(t.decision, Decision::Take))
    }
}

impl Changer {
    /// Looks at the home, and tells what a change of these threads would do.
    #[must_use]
    pub fn plan(&self, kind: ChangeKind, ids: &[ThreadId], cascade: Cascade) -> Plan {
        if kind == ChangeKind::Detach {
            return self.plan_detached(ids);
        }
        let catalog = self.look_at(kind, ids);
        let trash = Trash::read(&*self.disk, self.home.path());
        let look = Look::new(self, &catalog, trash.as_ref().map_err(ToString::to_string));
        let relations = (kind != ChangeKind::Restore).then(|| Relations::of(&catalog));
        let mut threads: Vec<PlannedThread> = Vec::new();
        let mut seen: HashSet<ThreadId> = HashSet::new();
        let asked: HashSet<ThreadId> = ids.iter().copied().collect();
        for id in ids {
            if seen.insert(*id) {
                threads.push(look.thread(kind, *id, None));
            }
            let below = relations.as_ref().map(|r| r.descendants(*id)).unwrap_or_default();
            for child in below.into_iter().filter(|c| !asked.contains(c)) {
                if !seen.insert(child) {
                    continue;
                }
                let mut planned = look.thread(kind, child, Some(*id));
                match (&planned.decision, cascade) {
                    // A descendant that is where it should be already is none of this change's business.
                    (Decision::Refuse(ChangeError::NotFound { .. } | ChangeError::NotArchived { .. }), _) => continue,
                    (_, Cascade::Alone) => {
                        planned.decision = Decision::Stay;
                        planned.files.iter_mut().for_each(|f| f.to = None);
                    }
                    (_, Cascade::Descendants) => {}
                }
                threads.push(planned);
            }
        }
        if let Some(relations) = relations.filter(|_| kind == ChangeKind::Delete) {
            protect(&mut threads, &relations);
        }
        let mut notes = catalog.notes.clone();
        notes.extend(catalog.late_notes());
        if let (Err(e), ChangeKind::Delete | ChangeKind::Restore) = (&trash, kind) {
            notes.push(format!("cannot read the trash: {e}"));
        }
        // Descendants were looked at as what was asked for.
        self.last.put(threads.iter().map(|t| t.id), catalog);
        Plan { kind, threads, notes }
    }
}

impl Changer {
    fn plan_detached(&self, ids: &[ThreadId]) -> Plan {
        let catalog = self.look_for(ids);
        let look = Look::new(self, &catalog, Err(String::new()));
        let relations = Relations::of(&catalog);
        let one = |id: &ThreadId| {
            let planned = self.plan_detach(*id, &relations);
            let held = catalog.locks.holder(*id);
            let (decision, files) = match (planned, held) {
                (Err(e), _) => (Decision::Refuse(e), vec![]),
                (Ok(d), _) if d.standing != Standing::OtherThreads => (Decision::Stay, vec![]),
                (Ok(_), Some(holder)) => {
                    (Decision::Refuse(LockError::Held { id: *id, holder: Some(holder) }.into()), vec![])
                }
                (Ok(d), None) => (Decision::Take, d.files),
            };
            let file = |f: super::trash::TrashedFile| PlannedFile { from: f.path, to: None, bytes: f.bytes };
            let title = look.facts(*id).and_then(|(name, preview)| name.or(preview));
            let files = files.into_iter().map(file).collect();
            PlannedThread { id: *id, title, decision, because_of: None, files, names: 0 }
        };
        let mut seen = HashSet::new();
        let threads = ids.iter().filter(|id| seen.insert(**id)).map(one).collect();
        let mut notes = catalog.notes.clone();
        notes.extend(catalog.late_notes());
        Plan { kind: ChangeKind::Detach, threads, notes }
    }
}

/// Refuses what another thread's history needs, if that thread stays.
fn protect(threads: &mut [PlannedThread], relations: &Relations<'_>) {
    let takes = |t: &&PlannedThread| matches!(t.decision, Decision::Take);
    let ids: Vec<ThreadId> = threads.iter().filter(takes).map(|t| t.id).collect();
    for (id, by) in kept_by_others(&ids, &relations.needing_each(&ids)) {
        for t in threads.iter_mut().filter(|t| t.id == id) {
            t.decision = Decision::Refuse(ChangeError::Needed { id, by: by.clone() });
        }
    }
}

/// Which of these threads have to stay, because the history of one that stays needs them.
pub(super) fn kept_by_others(ids: &[ThreadId], needing: &Needing) -> Vec<(ThreadId, Vec<ThreadId>)> {
    let needing: Vec<(ThreadId, &BTreeSet<ThreadId>)> =
        ids.iter().filter_map(|id| Some((*id, needing.get(id)?))).collect();
    let mut go: HashSet<ThreadId> = ids.iter().copied().collect();
    loop {
        let stay =
            |(id, by): &&(ThreadId, &BTreeSet<ThreadId>)| go.contains(id) && by.iter().any(|other| !go.contains(other));
        let staying: Vec<ThreadId> = needing.iter().filter(stay).map(|(id, _)| *id).collect();
        if staying.is_empty() {
            break;
        }
        staying.iter().for_each(|id| {
            go.remove(id);
        });
    }
    let kept = needing.into_iter().filter(|(id, _)| !go.contains(id));
    kept.map(|(id, by)| (id, by.iter().copied().filter(|b| !go.contains(b)).collect())).collect()
}

impl Look<'_> {
    fn thread(&self, kind: ChangeKind, id: ThreadId, because_of: Option<ThreadId>) -> PlannedThread {
        let (decision, files, names) = match self.planned(kind, id) {
            Ok(Planned { files, names, .. }) => (Decision::Take, files, names),
            Err(e) => (Decision::Refuse(e), vec![], 0),
        };
        let live = self.catalog.locks.holder(id);
        let decision = match (decision, live) {
            // It would be refused when its lock is tried; a plan takes none.
            (Decision::Take, Some(holder)) => Decision::Refuse(LockError::Held { id, holder: Some(holder) }.into()),
            (decision, _) => decision,
        };
        PlannedThread { id, title: self.title(kind, id), decision, because_of, files, names }
    }

    /// The name of a thread, or how it began.
    fn title(&self, kind: ChangeKind, id: ThreadId) -> Option<String> {
        if kind == ChangeKind::Restore {
            let entry = self.entry(id)?;
            return entry.name.clone().or_else(|| entry.preview.clone());
        }
        let facts = self.facts(id)?;
        facts.0.or(facts.1)
    }

    /// Name and preview of a thread.
    pub(super) fn facts(&self, id: ThreadId) -> Option<(Option<String>, Option<String>)> {
        let kept = self.catalog.kept.find(self.catalog, id).filter(|(_, fresh)| *fresh);
        let mut row = match self.groups(id).first() {
            Some(_) if kept.is_some() => kept?.0,
            Some(group) => row::row(self.catalog, group, Depth::Head),
            None => row::ghost(id, self.catalog.ghosts.get(&id)?),
        };
        row::add_names(self.catalog, &mut row, self.catalog.db_rows(&[id]).get(&id));
        Some((row.thread.name, row.thread.preview))
    }
}
