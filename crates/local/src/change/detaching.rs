//! The swap of a detached thread: the new rollout gets its name, the old ones go to the trash, Codex looks at the new one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use threadkeep_record::ThreadId;
use threadkeep_rollout::facts::Depth;
use threadkeep_store::Archived;

use super::apply::{Held, uuid};
use super::codex::Told;
use super::detach::{self, Standing, Subject};
use super::journal::{Codex, FORMAT, Journal, Move, Step};
use super::moves::OnFailure;
use super::relations::{Needing, Relations};
use super::steps::{Look, Making, Planned};
use super::trash::{Manifest, Replaced, Trash, TrashedFile};
use super::{ChangeError, ChangeKind, Changer};
use crate::catalog::Catalog;
use crate::list::LocalStore;
use crate::lookup::{LookupError, OpenThread};

/// What detaching a thread comes to.
pub(super) struct Detaching {
    /// What its files refer to.
    pub standing: Standing,
    /// The files that go; none where another thread needs one of them.
    pub files: Vec<TrashedFile>,
    /// All its files.
    made_from: Vec<TrashedFile>,
}

impl Changer {
    fn opened(&self, id: ThreadId) -> Result<OpenThread, ChangeError> {
        let store = LocalStore::new(vec![self.home.clone()], self.sqlite_home.clone());
        store.open_id(id, Depth::HeadAndTail).map_err(|e| match e {
            LookupError::Gone { .. } => ChangeError::TranscriptGone { id, left: "Codex's database" },
            _ => ChangeError::NotFound { id, archived: Archived::Excluded },
        })
    }

    /// What detaching a thread would come to.
    pub(super) fn plan_detach(&self, id: ThreadId, relations: &Relations<'_>) -> Result<Detaching, ChangeError> {
        self.detaching(id, &self.opened(id)?, relations)
    }

    fn detaching(&self, id: ThreadId, open: &OpenThread, relations: &Relations<'_>) -> Result<Detaching, ChangeError> {
        let Some(subject) = Subject::of(open) else {
            return Err(ChangeError::NotFound { id, archived: Archived::Excluded });
        };
        // Another fork names these files and places in them: they stay beside the new one.
        let needed = !relations.needing(id).is_empty();
        let file = |m: &threadkeep_rollout::lineage::Member| TrashedFile { path: m.entry.path(), bytes: m.entry.size };
        let made_from: Vec<TrashedFile> = open.row.members.iter().map(file).collect();
        let files = if needed { vec![] } else { made_from.clone() };
        Ok(Detaching { standing: subject.standing(), files, made_from })
    }

    /// Makes a thread self-contained.
    pub(super) fn detach(&self, id: ThreadId) -> Result<Told, ChangeError> {
        let lock = self.lock(id);
        let open = self.opened(id)?;
        let lock = lock?;
        let catalog = self.look_for(&[id]);
        let detaching = self.detaching(id, &open, &Relations::of(&catalog))?;
        if detaching.standing != Standing::OtherThreads {
            return Ok(Told::NoRow);
        }
        let Some(subject) = Subject::of(&open) else {
            return Err(ChangeError::NotFound { id, archived: Archived::Excluded });
        };
        let staged = detach::stage(&*self.disk, &self.home, &subject, &*self.clock)?;
        let made = detach::verify(&subject, &staged.temporary)
            .map_err(ChangeError::from)
            .and_then(|written| self.swap(id, &catalog, detaching, (&staged.temporary, &staged.target), written.bytes));
        drop(lock);
        if made.is_err() {
            // Gone where the swap was begun.
            let _ = self.disk.remove(&staged.temporary);
        }
        made
    }

    fn swap(
        &self,
        id: ThreadId,
        catalog: &Catalog,
        detaching: Detaching,
        (temporary, target): (&Path, &Path),
        bytes: u64,
    ) -> Result<Told, ChangeError> {
        let below = |path: &Path| self.home.relative(path).to_owned();
        let trash = Trash::read(&*self.disk, self.home.path());
        let look = Look::new(self, catalog, trash.as_ref().map_err(ToString::to_string));
        let codex = self.codex()?;
        let rollout_path = codex.as_ref().map_or(Ok(None), |c| c.rollout_path(id))?;
        let at = self.clock.now();
        let mut making =
            Making { look: &look, kind: ChangeKind::Detach, at, codex: None, names: None, entries: BTreeSet::new() };
        let manifest = making.manifest(id, 0, &Planned { files: vec![], names: 0, head: None })?;
        let replaced = Some(Replaced { path: below(target), bytes, rollout_path });
        let Detaching { files, made_from, .. } = detaching;
        let manifest = Manifest { files, replaced, index: vec![], ..manifest };
        // The new one comes first, so that there is no moment without a rollout.
        let mut moves = vec![Move { from: below(temporary), to: below(target) }];
        moves.extend(manifest.files.iter().map(|f| Move { from: f.path.clone(), to: manifest.place(f) }));
        let codex_step = Codex::Path { rollout_path: making.absolute(&below(target)) };
        let trash = (!manifest.files.is_empty()).then_some(manifest);
        let step = Step { made_from, trash, codex: codex_step, ..Step::new(id, moves) };
        let journal = Journal { format: FORMAT, kind: ChangeKind::Detach, at, steps: vec![step] };
        let path = journal.write(&*self.disk, self.home.path(), &format!("{}-{}", at.0, uuid(&[id])))?;
        let held = Held { codex, names: None };
        let outcome = self.carry_out(&journal, &path, held, OnFailure::Back, &Needing::new()).pop();
        outcome.map_or(Err(ChangeError::NotDone { why: "nothing was done".into() }), |o| o.result)
    }

    /// Whether a thread whose detaching was not finished was written to since: then the new rollout lacks something.
    pub(super) fn is_overtaken(&self, step: &Step) -> bool {
        let grown = |f: &TrashedFile| {
            let there = self.disk.look(&self.home.absolute(&f.path)).ok().flatten();
            there.is_some_and(|there| there.size != f.bytes)
        };
        step.made_from.iter().any(grown)
    }

    /// Puts a thread back whose detaching was overtaken.
    pub(super) fn take_back(&self, step: &Step) {
        let whole = |p: &PathBuf| self.home.absolute(p);
        for m in step.moves.iter().rev() {
            let (from, to) = (whole(&m.from), whole(&m.to));
            if self.disk.look(&from).ok().flatten().is_none() {
                let _ = self.disk.rename_new(&to, &from);
            }
        }
        let _ = super::moves::sync(&*self.disk, self.home.path(), std::iter::once(step));
        self.drop_staged(ChangeKind::Detach, step);
        if let Some(manifest) = &step.trash {
            let _ = super::trash::drop_entry(&*self.disk, self.home.path(), manifest);
        }
    }

    /// Removes the new rollout that got no name.
    pub(super) fn drop_staged(&self, kind: ChangeKind, step: &Step) {
        if let Some(m) = step.moves.first().filter(|_| kind == ChangeKind::Detach) {
            let staged = self.home.absolute(&m.from);
            let _ = self.disk.remove(&staged).and_then(|()| self.disk.sync_dir(staged.parent().unwrap_or(&staged)));
        }
    }
}
