//! Doing a change: under the locks of its threads, with a journal, all of a thread or nothing.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use threadkeep_index::Index;
use threadkeep_record::ThreadId;
use threadkeep_rollout::locks::WriterLocks;
use threadkeep_rollout::name_index::{FILE, NameFile, NameLock};
use threadkeep_rollout::seam::Disk;
use threadkeep_rollout::writer_lock::{LockError, WriterLock};

use super::apart;
use super::codex::{CodexRows, Told};
use super::journal::{Codex, FORMAT, Journal, Names, Step, sync_many};
use super::moves::{self, OnFailure};
use super::plan::kept_by_others;
use super::relations::{Needing, Relations};
use super::steps::{Look, Making, Planned};
use super::trash::{self, Trash};
use super::{ChangeError, ChangeKind, Changer};
use crate::catalog::Catalog;
use crate::kept;
use crate::thread_store::{CodexDb, lock_note};

/// So many threads are changed with one journal: each takes an open lock file.
const TOGETHER: usize = 200;

/// What became of a thread.
#[derive(Debug)]
pub struct Outcome {
    /// The thread.
    pub id: ThreadId,
    /// What came of it in Codex's database, or why the thread was not changed.
    pub result: Result<Told, ChangeError>,
}

/// A change that another process began and did not finish.
#[derive(Debug)]
pub struct Unfinished {
    /// Its journal.
    pub path: PathBuf,
    /// What was done with it now: the outcomes of its threads; or why nothing was.
    pub outcome: Result<Vec<Outcome>, ChangeError>,
}

/// What a change holds while it is done.
pub(super) struct Held {
    pub codex: Option<CodexRows>,
    pub names: Option<(NameLock, NameFile)>,
}

impl Changer {
    /// Changes threads, each whole or not at all, and tells what became of each, in the order given. A thread that
    /// someone writes is left as it is.
    #[must_use]
    pub fn apply(&self, kind: ChangeKind, ids: &[ThreadId]) -> Vec<Outcome> {
        // What another left halfway comes first: it may be about these threads.
        drop(self.finish());
        if kind == ChangeKind::Detach {
            return ids.iter().map(|id| Outcome { id: *id, result: self.detach(*id) }).collect();
        }
        let mut seen = HashSet::new();
        let mut ids: Vec<ThreadId> = ids.iter().copied().filter(|id| seen.insert(*id)).collect();
        let given = ids.clone();
        if kind == ChangeKind::Delete && ids.len() > 1 {
            ids = self.needing_first(ids);
        }
        let mut outcomes: Vec<Outcome> = ids.chunks(TOGETHER).flat_map(|part| self.part(kind, part)).collect();
        let place: BTreeMap<ThreadId, usize> = given.into_iter().zip(0..).collect();
        outcomes.sort_by_key(|o| place.get(&o.id).copied());
        outcomes
    }

    /// Threads in such an order that each comes before those whose files its history needs.
    fn needing_first(&self, ids: Vec<ThreadId>) -> Vec<ThreadId> {
        let catalog = self.look_for(&ids);
        let relations = Relations::of(&catalog);
        let mut by = relations.needing_each(&ids);
        let mut ordered = Vec::with_capacity(ids.len());
        let mut left = ids;
        while !left.is_empty() {
            let waiting: BTreeSet<ThreadId> = left.iter().copied().collect();
            let free = |id: &ThreadId| by.get(id).is_none_or(|needing| needing.is_disjoint(&waiting));
            let (now, later): (Vec<_>, Vec<_>) = left.iter().copied().partition(free);
            // Histories that need each other have no order.
            if now.is_empty() {
                ordered.extend(later);
                break;
            }
            now.iter().for_each(|id| drop(by.remove(id)));
            ordered.extend(now);
            left = later;
        }
        ordered
    }

    /// Which of these threads have to stay, because the history of one that is not among them needs them.
    #[must_use]
    pub fn needed(&self, ids: &[ThreadId]) -> Vec<ThreadId> {
        let catalog = self.look_for(ids);
        kept_by_others(ids, &Relations::of(&catalog).needing_each(ids)).into_iter().map(|(id, _)| id).collect()
    }

    /// A look at the home for some threads.
    pub(super) fn look_for(&self, ids: &[ThreadId]) -> Catalog {
        Catalog::open_for(&self.home, self.sqlite_home.as_ref(), self.index.as_ref(), ids)
    }

    /// A look at the home for what is done to some threads. A thread that no file is named after may be one that only a
    /// header names, and that takes all files.
    pub(super) fn look_at(&self, kind: ChangeKind, ids: &[ThreadId]) -> Catalog {
        if let Some(mut last) = self.last.take(ids)
            && last.stands(self.sqlite_home.as_ref())
        {
            return last;
        }
        let catalog = self.look_for(ids);
        if kind == ChangeKind::Restore || ids.iter().all(|id| catalog.group(*id).is_some()) {
            return catalog;
        }
        Catalog::open(&self.home, self.sqlite_home.as_ref(), self.index.as_ref())
    }

    fn part(&self, kind: ChangeKind, ids: &[ThreadId]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        let mut fail = |id: ThreadId, e: ChangeError| outcomes.push(Outcome { id, result: Err(e) });
        let mut locks: Vec<WriterLock> = Vec::new();
        let mut locked = Vec::new();
        let mut held = Vec::new();
        for id in ids {
            match self.lock(*id) {
                Ok(lock) => {
                    locks.push(lock);
                    locked.push(*id);
                }
                Err(e) => held.push((*id, e)),
            }
        }
        // The look comes behind the locks: what is found then stays so.
        let mut catalog = self.look_at(kind, ids);
        // We are who holds them; to be told so costs more than the rest of the change.
        catalog.locks = WriterLocks::default();
        let trash = Trash::read(&*self.disk, self.home.path());
        let look = Look::new(self, &catalog, trash.as_ref().map_err(ToString::to_string));
        let needing = match kind {
            ChangeKind::Delete => Relations::of(&catalog).needing_each(ids),
            _ => Needing::new(),
        };
        let needed = kept_by_others(ids, &needing);
        for (id, e) in held {
            // That there is nothing to do, or that it may not be done, is told before that it could not be done now.
            let needed =
                needed.iter().find(|(n, _)| *n == id).map(|(_, by)| ChangeError::Needed { id, by: by.clone() });
            fail(id, look.planned(kind, id).err().or(needed).unwrap_or(e.into()));
        }
        for (id, by) in kept_by_others(&locked, &needing) {
            locked.retain(|l| *l != id);
            fail(id, ChangeError::Needed { id, by });
        }
        // A thread that cannot be changed at all is told so before anything is opened for it.
        let mut planned = Vec::with_capacity(locked.len());
        for id in locked {
            match look.planned(kind, id) {
                Ok(found) => planned.push((id, found)),
                Err(e) => fail(id, e),
            }
        }
        let locked: Vec<ThreadId> = planned.iter().map(|(id, _)| *id).collect();
        if locked.is_empty() {
            return outcomes;
        }
        let (journal, held) = match self.prepare(kind, planned, &look, &mut fail) {
            Ok(prepared) => prepared,
            Err(e) => {
                outcomes.extend(not_done(&locked, e));
                return outcomes;
            }
        };
        let name = format!("{}-{}", journal.at.0, uuid(&locked));
        match journal.write(&*self.disk, self.home.path(), &name) {
            Ok(path) => outcomes.extend(self.carry_out(&journal, &path, held, OnFailure::Back, &needing)),
            Err(e) => {
                let ids: Vec<ThreadId> = journal.steps.iter().map(|step| step.thread_id).collect();
                outcomes.extend(not_done(&ids, e.into()));
            }
        }
        drop(locks);
        outcomes
    }

    pub(super) fn lock(&self, id: ThreadId) -> Result<WriterLock, LockError> {
        WriterLock::acquire(self.home.path(), id, &lock_note(self.clock.now()))
    }

    /// Opens what a change needs, and makes its journal.
    fn prepare(
        &self,
        kind: ChangeKind,
        planned: Vec<(ThreadId, Planned)>,
        look: &Look<'_>,
        fail: &mut dyn FnMut(ThreadId, ChangeError),
    ) -> Result<(Journal, Held), ChangeError> {
        let codex = self.codex()?;
        let names = self.names(kind)?;
        let at = self.clock.now();
        let (lock, file) = names.map_or((None, None), |(lock, file)| (Some(lock), Some(file)));
        let mut making = Making { look, kind, at, codex: codex.as_ref(), names: file, entries: BTreeSet::new() };
        let mut steps = Vec::new();
        for ((id, planned), number) in planned.into_iter().zip(0..) {
            let step = making.step(id, number, &planned).and_then(|step| {
                // What Codex's database would refuse is known before anything is done.
                let tried = codex.as_ref().map_or(Ok(Told::NoRow), |codex| codex.attempt(id, &step.codex));
                tried.map(|_| step).map_err(ChangeError::from)
            });
            match step {
                Ok(step) => steps.push(step),
                Err(e) => fail(id, e),
            }
        }
        // The lines were taken out of it while the steps were made; they are taken out again when the files have moved.
        let names = lock.map(|lock| Ok::<_, ChangeError>((lock, self.name_file()?))).transpose()?;
        Ok((Journal { format: FORMAT, kind, at, steps }, Held { codex, names }))
    }

    pub(super) fn codex(&self) -> Result<Option<CodexRows>, ChangeError> {
        let home = self.home.path();
        let db = CodexDb { home, sqlite_home: self.sqlite_home.as_deref(), patience: self.patience };
        Ok(CodexRows::begin(&db)?)
    }

    /// The name index under its lock, where a change may concern it.
    fn names(&self, kind: ChangeKind) -> Result<Option<(NameLock, NameFile)>, ChangeError> {
        match kind {
            ChangeKind::Delete | ChangeKind::Restore => {
                let lock = NameLock::acquire(self.home.path(), self.patience)?;
                Ok(Some((lock, self.name_file()?)))
            }
            ChangeKind::Archive | ChangeKind::Unarchive | ChangeKind::Detach => Ok(None),
        }
    }

    fn name_file(&self) -> Result<NameFile, ChangeError> {
        let failed = |source| ChangeError::NameFile { path: self.home.absolute(Path::new(FILE)), source };
        NameFile::read(&*self.disk, self.home.path()).map_err(failed)
    }

    /// Does what a journal says, and takes the journal away when all of it is done.
    pub(super) fn carry_out(
        &self,
        journal: &Journal,
        path: &Path,
        held: Held,
        on_failure: OnFailure,
        needs: &Needing,
    ) -> Vec<Outcome> {
        let mut settled = true;
        let mut moved: Vec<&Step> = Vec::new();
        let mut outcomes: Vec<Outcome> = Vec::new();
        let mut failed: BTreeSet<ThreadId> = BTreeSet::new();
        let made = self.make_ready(journal, on_failure);
        settled &= made.is_ok() || on_failure == OnFailure::Back;
        for step in &journal.steps {
            let id = step.thread_id;
            let ready = made.as_ref().map_err(|why| ChangeError::NotDone { why: why.clone() });
            match ready.map(|_| ()).and_then(|()| self.move_step(journal.kind, step, on_failure, needs, &failed)) {
                Ok(()) => moved.push(step),
                Err(e) => {
                    failed.insert(id);
                    settled &= !matches!(&e, ChangeError::Moves(m) if !m.is_settled());
                    outcomes.push(Outcome { id, result: Err(e) });
                }
            }
        }
        let rest = self.behind(journal.kind, &moved, held);
        match rest {
            Ok(told) => outcomes.extend(moved.iter().map(|step| Outcome {
                id: step.thread_id,
                result: Ok(told.get(&step.thread_id).copied().unwrap_or(Told::NoRow)),
            })),
            Err(remains) => {
                settled = false;
                let result = || Err(ChangeError::Remains { remains: remains.clone() });
                outcomes.extend(moved.iter().map(|step| Outcome { id: step.thread_id, result: result() }));
            }
        }
        if settled {
            // One that stays is found to be done by whoever comes next.
            let folder = path.parent().unwrap_or(path);
            let _ = self.disk.remove(path).and_then(|()| self.disk.sync_dir(folder));
        }
        outcomes
    }

    /// Makes what the files go to: folders, and what the trash says of them. All of it is durable before the first file
    /// moves.
    fn make_ready(&self, journal: &Journal, on_failure: OnFailure) -> Result<(), String> {
        let (disk, home) = (&*self.disk, self.home.path());
        let (mut files, mut folders) = (Vec::new(), BTreeSet::new());
        let mut make = || {
            for step in &journal.steps {
                let manifest = step.trash.as_ref().filter(|_| journal.kind != ChangeKind::Restore);
                if let Some(manifest) = manifest {
                    trash::write(disk, home, manifest, (&mut files, &mut folders))?;
                }
                moves::make_folders(disk, home, step, &mut folders)?;
            }
            sync_many(disk, home, &files, &folders)
        };
        make().map_err(|e| {
            // After a crash files may be there already.
            let ours = journal.kind != ChangeKind::Restore && on_failure == OnFailure::Back;
            for manifest in journal.steps.iter().filter_map(|step| step.trash.as_ref()).filter(|_| ours) {
                let _ = trash::drop_entry(disk, home, manifest);
            }
            format!("what the files were to go to cannot be made: {e}")
        })
    }

    fn move_step(
        &self,
        kind: ChangeKind,
        step: &Step,
        on_failure: OnFailure,
        needs: &Needing,
        failed: &BTreeSet<ThreadId>,
    ) -> Result<(), ChangeError> {
        let (disk, home) = (&*self.disk, self.home.path());
        let id = step.thread_id;
        let by: Vec<ThreadId> = needs.get(&id).map(|n| n.intersection(failed).copied().collect()).unwrap_or_default();
        if !by.is_empty() {
            return Err(ChangeError::Needed { id, by });
        }
        if kind == ChangeKind::Detach && on_failure == OnFailure::Forward && self.is_overtaken(step) {
            self.take_back(step);
            return Err(ChangeError::Overtaken { id });
        }
        match moves::files(disk, home, step, on_failure) {
            Ok(()) => Ok(()),
            Err(e) => {
                if let Some(manifest) = step.trash.as_ref().filter(|_| kind != ChangeKind::Restore && e.is_settled()) {
                    let _ = trash::drop_entry(disk, home, manifest);
                    self.drop_staged(kind, step);
                }
                Err(e.into())
            }
        }
    }

    /// What comes behind the moves: durable folders, names, Codex's rows, the index. What is left to be done is told.
    fn behind(&self, kind: ChangeKind, moved: &[&Step], held: Held) -> Result<BTreeMap<ThreadId, Told>, String> {
        let (disk, home) = (&*self.disk, self.home.path());
        let mut told = BTreeMap::new();
        if moved.is_empty() {
            return Ok(told);
        }
        moves::sync(disk, home, moved.iter().copied()).map_err(|e| e.to_string())?;
        for path in moved.iter().flat_map(|step| &step.removes) {
            match disk.remove(&home.join(path)) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("{} is still there: {e}", path.display()));
                }
                Ok(()) | Err(_) => {}
            }
        }
        let Held { codex, names } = held;
        if let Some((_lock, mut file)) = names {
            let mut changed = false;
            let mut back: Vec<&&Step> = moved.iter().filter(|step| matches!(step.names, Names::Put(_))).collect();
            // What was taken out last comes back first, so that everything stands where it stood.
            back.sort_by_key(|step| std::cmp::Reverse(step.trash.as_ref().map(|m| (m.deleted_at, m.number))));
            for step in back {
                if let Names::Put(lines) = &step.names {
                    file.put(step.thread_id, lines);
                    changed |= !lines.is_empty();
                }
            }
            for step in moved.iter().filter(|step| step.names == Names::Take) {
                changed |= !file.take(step.thread_id).is_empty();
            }
            if changed {
                file.write(disk).map_err(|e| format!("the name index could not be written: {e}"))?;
            }
        }
        if let Some(mut codex) = codex {
            let left = |e: crate::thread_store::CodexWriteError| format!("Codex's database was not changed: {e}");
            for step in moved.iter().filter(|step| step.codex != Codex::Stay) {
                told.insert(step.thread_id, codex.apply(step.thread_id, &step.codex).map_err(left)?);
            }
            codex.commit().map_err(left)?;
        }
        if matches!(kind, ChangeKind::Archive | ChangeKind::Delete) {
            let ids: Vec<ThreadId> = moved.iter().map(|step| step.thread_id).collect();
            // Without it the threads that these started are listed as started by another, as before.
            let _ = apart::add(disk, home, &ids);
        }
        self.index_behind(kind, moved);
        if kind == ChangeKind::Restore {
            let mut dirty = BTreeSet::new();
            let mut entries = moved.iter().filter_map(|step| step.trash.as_ref());
            let dropped = entries.try_for_each(|entry| trash::drop_entry_soon(disk, home, entry, &mut dirty));
            let dropped = dropped.and_then(|()| sync_many(disk, home, &[], &dirty));
            dropped.map_err(|e| format!("its entry in the trash is still there: {e}"))?;
        }
        Ok(told)
    }

    /// What the index alone keeps of a thread goes into the trash and comes back with it. What is not in the manifest stays.
    fn index_behind(&self, kind: ChangeKind, moved: &[&Step]) {
        let both_ways = matches!(kind, ChangeKind::Delete | ChangeKind::Restore);
        let kept = moved.iter().filter_map(|step| step.trash.as_ref()).filter(|m| both_ways && !m.index.is_empty());
        let kept: Vec<&trash::Manifest> = kept.collect();
        if kept.is_empty() {
            return;
        }
        let Some(place) = self.index.as_ref().filter(|place| Index::is_there(&self.home, place)) else { return };
        let Ok(index) = kept::open(&self.home, place, self.patience) else { return };
        for manifest in kept {
            let _ = match kind {
                ChangeKind::Delete => index.remove(manifest.thread_id),
                _ => index.put_saved(&manifest.index),
            };
        }
    }

    /// Finishes what others began and did not finish. What is being done right now is left to whoever does it.
    pub fn finish(&self) -> Vec<Unfinished> {
        let (disk, home) = (&*self.disk, self.home.path());
        for (id, path) in Journal::partial(disk, home).unwrap_or_default() {
            // Who begins one holds this lock.
            if let Ok(_lock) = self.lock(id) {
                let _ = disk.remove(&path);
            }
        }
        let journals = Journal::all(disk, home).unwrap_or_default();
        let finished = journals.into_iter().filter_map(|path| {
            let outcome = self.finish_one(&path).transpose()?;
            Some(Unfinished { path, outcome })
        });
        finished.collect()
    }

    fn finish_one(&self, path: &Path) -> Result<Option<Vec<Outcome>>, ChangeError> {
        let disk = &*self.disk;
        let Some(journal) = Journal::read(disk, path)? else { return Ok(None) };
        let mut locks = Vec::new();
        for step in &journal.steps {
            locks.push(self.lock(step.thread_id)?);
        }
        // Whoever held the locks may have finished.
        let Some(journal) = Journal::read(disk, path)? else { return Ok(None) };
        let held = Held { codex: self.codex()?, names: self.names(journal.kind)? };
        let outcomes = self.carry_out(&journal, path, held, OnFailure::Forward, &Needing::new());
        drop(locks);
        Ok(Some(outcomes))
    }

    /// Whether a change waits to be finished. Costs one look at a folder.
    #[must_use]
    pub fn unfinished(disk: &dyn Disk, home: &Path) -> bool {
        Journal::all(disk, home).is_ok_and(|all| !all.is_empty())
    }
}

/// Threads of which nothing was done, for one reason.
fn not_done(ids: &[ThreadId], e: ChangeError) -> Vec<Outcome> {
    let why = e.to_string();
    let mut first = Some(e);
    let reason = |_: &ThreadId| first.take().unwrap_or_else(|| ChangeError::NotDone { why: why.clone() });
    let reasons: Vec<ChangeError> = ids.iter().map(reason).collect();
    ids.iter().zip(reasons).map(|(id, e)| Outcome { id: *id, result: Err(e) }).collect()
}

/// A word for a journal that no other process takes at the same moment: the locks of its threads are held.
pub(super) fn uuid(ids: &[ThreadId]) -> String {
    ids.first().map(ToString::to_string).unwrap_or_default()
}
