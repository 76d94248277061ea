//! Putting threads away, taking them out again, removing them.

use threadkeep_record::ThreadId;

use super::{Kept, MemoryThreadStore, invalid, live, no_rollout};
use crate::ThreadStoreError;
use crate::contract::StoreResult;
use crate::params::{Archived, WithHistory};
use crate::stored::StoredThread;

impl MemoryThreadStore {
    pub(super) fn archive(&self, thread_id: ThreadId) -> StoreResult<()> {
        let now = self.clock.now();
        let mut kept = self.lock();
        if kept.thread(thread_id)?.archived.is_some() {
            return Err(no_rollout(thread_id));
        }
        kept.nobody_writes(thread_id)?;
        kept.thread_mut(thread_id)?.archived = Some(now);
        Ok(())
    }

    pub(super) fn unarchive(&self, thread_id: ThreadId) -> StoreResult<StoredThread> {
        let mut kept = self.lock();
        if kept.threads.get(&thread_id).is_none_or(|t| t.archived.is_none()) {
            return Err(invalid(format!("no archived rollout found for thread id {thread_id}")));
        }
        kept.nobody_writes(thread_id)?;
        kept.thread_mut(thread_id)?.archived = None;
        kept.read(thread_id, Archived::Excluded, WithHistory::No)
    }

    pub(super) fn delete(&self, thread_id: ThreadId) -> StoreResult<()> {
        let mut kept = self.lock();
        let writer = kept.writers.get(&thread_id).map(|w| w.owner == self.owner);
        match (kept.threads.contains_key(&thread_id), writer) {
            (false, None | Some(false)) => return Err(ThreadStoreError::ThreadNotFound { thread_id }),
            (true, Some(false)) => return Err(live::written(thread_id)),
            (true, _) if kept.is_continued(thread_id) => {
                return Err(invalid(format!("cannot delete thread {thread_id}: forked history still references it")));
            }
            (true, None | Some(true)) | (false, Some(true)) => {}
        }
        kept.writers.remove(&thread_id);
        kept.threads.remove(&thread_id);
        kept.rollouts.retain(|_, rollout| rollout.owner != thread_id);
        kept.edges.retain(|child, edge| *child != thread_id && edge.parent != thread_id);
        Ok(())
    }
}

impl Kept {
    /// Refuses where any store writes a thread.
    fn nobody_writes(&self, thread_id: ThreadId) -> StoreResult<()> {
        if self.writers.contains_key(&thread_id) { Err(live::written(thread_id)) } else { Ok(()) }
    }

    /// Whether a rollout of another thread continues one of this thread's.
    fn is_continued(&self, thread_id: ThreadId) -> bool {
        let is_own = |rollout| self.rollouts.get(&rollout).is_some_and(|r| r.owner == thread_id);
        self.rollouts.values().filter(|r| r.owner != thread_id).filter_map(|r| r.base).any(|(of, _)| is_own(of))
    }
}
