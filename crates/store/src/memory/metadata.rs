//! Metadata beside the history.

use threadkeep_record::{MetadataPatch, PatchKind, ThreadId};

use super::{Kept, MemoryThreadStore, invalid};
use crate::contract::StoreResult;
use crate::params::{Archived, WithHistory};
use crate::stored::StoredThread;

impl MemoryThreadStore {
    pub(super) fn update(
        &self,
        thread_id: ThreadId,
        patch: MetadataPatch,
        archived: Archived,
    ) -> StoreResult<StoredThread> {
        let mut kept = self.lock();
        if patch.kind() != PatchKind::Empty {
            // Someone wants something of this thread kept, so it has to be there.
            kept.make(thread_id, self.clock.now())?;
            if kept.threads.contains_key(&thread_id) {
                kept.found(thread_id, archived)?;
            }
            kept.observe(thread_id, patch)?;
        }
        kept.read(thread_id, archived, WithHistory::No)
    }
}

impl Kept {
    /// Keeps a patch: all of it with what was observed, what it decides apart from that.
    pub(super) fn observe(&mut self, thread_id: ThreadId, patch: MetadataPatch) -> StoreResult<()> {
        if let Some(unmade) = self.writers.get_mut(&thread_id).and_then(|w| w.unmade.as_mut()) {
            unmade.patches.push(patch);
            return Ok(());
        }
        let Some(thread) = self.threads.get_mut(&thread_id) else {
            return Err(invalid(format!("thread not found: {thread_id}")));
        };
        let mut decided = MetadataPatch { name: patch.name.clone(), ..MetadataPatch::default() };
        if patch.kind() == PatchKind::Explicit {
            decided = patch.clone();
        }
        thread.decided.merge(decided);
        thread.stored.get_or_insert_default().apply(patch);
        Ok(())
    }
}
