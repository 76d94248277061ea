//! Putting threads away, taking them out again, removing them (`thread-store.md` 6.9). Done by [`Changer`]: journalled,
//! under the locks of the threads, deleted ones into the trash.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use threadkeep_record::ThreadId;
use threadkeep_rollout::writer_lock::LockError;
use threadkeep_store::{Archived, StoreResult, StoredThread, ThreadOutcome, ThreadStoreError, WithHistory};

use super::writing::lock_error;
use super::{Inner, internal, invalid};
use crate::change::moves::MoveError;
use crate::change::{ChangeError, ChangeKind, Changer, LastLook};

/// A change that was not done, as the contract tells it.
fn change_error(e: ChangeError) -> ThreadStoreError {
    match e {
        ChangeError::Lock(e @ LockError::Held { .. }) => lock_error(e),
        ChangeError::Moves(e @ (MoveError::Exists { .. } | MoveError::Link { .. })) => {
            ThreadStoreError::Conflict { message: e.to_string() }
        }
        ChangeError::Codex(e) if e.is_busy() => ThreadStoreError::Conflict { message: e.to_string() },
        ChangeError::Names(e @ threadkeep_rollout::name_index::NameError::Busy { .. }) => {
            ThreadStoreError::Conflict { message: e.to_string() }
        }
        ChangeError::Needed { id, .. } => {
            invalid(format!("cannot delete thread {id}: forked history still references it"))
        }
        ChangeError::NotFound { .. }
        | ChangeError::NotArchived { .. }
        | ChangeError::TranscriptGone { .. }
        | ChangeError::OtherName { .. }
        | ChangeError::NoTime { .. }
        | ChangeError::Outside { .. } => invalid(e.to_string()),
        other => internal(other),
    }
}

impl Inner {
    /// Who moves threads of this store.
    pub fn changer(&self) -> Changer {
        Changer {
            home: self.home.clone(),
            sqlite_home: self.sqlite_home.clone(),
            index: self.index.clone(),
            disk: Arc::clone(&self.disk),
            clock: Arc::clone(&self.clock),
            patience: self.patience,
            entries: BTreeMap::new(),
            last: LastLook::default(),
        }
    }

    /// What became of each thread, in the order given. One that is named twice is tried twice.
    fn change(&self, kind: ChangeKind, ids: &[ThreadId]) -> Vec<ThreadOutcome> {
        let told = |o: crate::change::Outcome| ThreadOutcome {
            thread_id: o.id,
            result: o.result.map(|_| ()).map_err(change_error),
        };
        let mut seen = HashSet::new();
        let mut outcomes: Vec<ThreadOutcome> = self.changer().apply(kind, ids).into_iter().map(told).collect();
        for (place, id) in ids.iter().enumerate() {
            if !seen.insert(*id) {
                let again = self.changer().apply(kind, &[*id]).into_iter().map(told);
                outcomes.splice(place..place, again);
            }
        }
        outcomes
    }

    fn change_one(&self, kind: ChangeKind, id: ThreadId) -> StoreResult<()> {
        self.change(kind, &[id]).pop().map_or_else(|| Err(internal("nothing was done")), |outcome| outcome.result)
    }

    pub fn archive(&self, id: ThreadId) -> StoreResult<()> {
        self.change_one(ChangeKind::Archive, id)
    }

    pub fn archive_all(&self, ids: &[ThreadId]) -> Vec<ThreadOutcome> {
        self.change(ChangeKind::Archive, ids)
    }

    pub fn unarchive(&self, id: ThreadId) -> StoreResult<StoredThread> {
        self.change_one(ChangeKind::Unarchive, id)?;
        self.read(id, Archived::Excluded, WithHistory::No)
    }

    pub fn unarchive_all(&self, ids: &[ThreadId]) -> Vec<ThreadOutcome> {
        self.change(ChangeKind::Unarchive, ids)
    }

    pub fn delete(&self, id: ThreadId) -> StoreResult<()> {
        self.delete_all(&[id]).pop().map_or_else(|| Err(internal("nothing was done")), |outcome| outcome.result)
    }

    /// Live writers of this store are dropped with what they have not written, unless their thread has to stay.
    pub fn delete_all(&self, ids: &[ThreadId]) -> Vec<ThreadOutcome> {
        let live: Vec<ThreadId> = ids.iter().copied().filter(|id| self.live.get(*id).is_some()).collect();
        let kept: Vec<ThreadId> = if live.is_empty() { vec![] } else { self.changer().needed(ids) };
        let dropped: Vec<ThreadId> = live.into_iter().filter(|id| !kept.contains(id)).collect();
        for id in &dropped {
            let _ = self.discard(*id);
        }
        let mut outcomes = self.change(ChangeKind::Delete, ids);
        for outcome in &mut outcomes {
            let gone = matches!(&outcome.result, Err(ThreadStoreError::InvalidRequest { message }) if message.starts_with("no rollout"));
            match gone {
                // Of a thread that was not there yet only the writer was to be dropped.
                true if dropped.contains(&outcome.thread_id) => outcome.result = Ok(()),
                true => outcome.result = Err(ThreadStoreError::ThreadNotFound { thread_id: outcome.thread_id }),
                false => {}
            }
        }
        outcomes
    }
}
