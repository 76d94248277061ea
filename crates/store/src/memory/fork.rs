//! Forks: a legacy thread's records are copied byte for byte, a paginated thread's prefix is referred to.

use threadkeep_record::{HistoryBase, HistoryMode, NewHeader, UtcMillis};

use super::read::{Placed, ordinal};
use super::{Kept, MemoryThreadStore, live};
use crate::contract::StoreResult;
use crate::fork::{self, Prefix};
use crate::params::{ForkRange, ForkThread, selected_roots};
use crate::stored::StoredRecord;

impl MemoryThreadStore {
    pub(super) fn fork(&self, params: ForkThread) -> StoreResult<()> {
        let ForkThread { source, archived, range, mut child } = params;
        let now = self.clock.now();
        let mut kept = self.lock();
        kept.no_writer(self.owner, child.thread_id)?;
        live::cwd(child.metadata.cwd.as_deref())?;
        // A thread that is being written and is not there yet has to be.
        kept.make(source, now)?;
        child.history_mode = kept.found(source, archived)?.history_mode;
        let history = kept.history(source);
        let first = history.header();
        // Before anything is cut, so that a bounded fork has them as well.
        let explicit = Some(std::mem::take(&mut child.selected_capability_roots)).filter(|roots| !roots.is_empty());
        child.selected_capability_roots = selected_roots(explicit, first.as_ref());
        match range {
            ForkRange::Subagent { last_turns } => {
                child.parent_thread_id = child.parent_thread_id.or(Some(source));
                let picked = fork::subagent_context(&history, last_turns);
                let mut copied: Vec<StoredRecord> = picked.iter().map(|i| history.records[*i].clone()).collect();
                if child.history_mode == HistoryMode::Paginated {
                    // The header has the first ordinal.
                    copied = (1..).zip(&copied).map(|(n, r)| fork::with_ordinal(r, n)).collect();
                    child.subagent_history_start_ordinal = Some(copied.len() as u64 + 1).filter(|_| !copied.is_empty());
                }
                let header = live::header(child, now)?;
                match copied[..] {
                    // As any other thread it is made with its first record.
                    [] => kept.open_new(self.owner, header),
                    [..] => kept.open_copy(self.owner, header, &copied, now),
                }
            }
            ForkRange::Whole | ForkRange::ThroughTurn(_) | ForkRange::BeforeTurn(_) => {
                child.forked_from_id = Some(source);
                let Some(Prefix { records, added }) = fork::prefix(&history, &range)? else { return Ok(()) };
                let mut header = live::header(child, now)?;
                let child = header.thread_id;
                if header.history_mode == HistoryMode::Paginated {
                    let lineage = kept.lineage(source);
                    header.history_base = records.checked_sub(1).and_then(|last| base(&lineage, last));
                    // Context that the source does not show its fork does not show either.
                    header.subagent_history_start_ordinal = first.and_then(|h| h.subagent_history_start_ordinal);
                    kept.open_copy(self.owner, header, &[], now)?;
                } else {
                    kept.open_copy(self.owner, header, &history.records[..records], now)?;
                }
                for item in &added {
                    kept.push(child, item, now)?;
                }
                Ok(())
            }
        }
    }
}

/// What a fork or a revert refers to: the rollout in which the last record that it takes over was written, and where it
/// stands there.
pub(super) fn base(lineage: &[Placed<'_>], last: usize) -> Option<HistoryBase> {
    let placed = lineage.get(last)?;
    let of_owner = lineage.iter().filter(|p| p.rollout == placed.rollout && p.index <= placed.index);
    Some(HistoryBase {
        thread_id: placed.rollout,
        end_ordinal_exclusive: ordinal(placed.record)?.saturating_add(1),
        end_byte_offset: of_owner.map(|p| p.record.0.len() as u64 + 1).sum(),
    })
}

impl Kept {
    /// Makes a thread with records of another behind its header, and a live writer for it.
    fn open_copy(&mut self, owner: u64, header: NewHeader, copied: &[StoredRecord], now: UtcMillis) -> StoreResult<()> {
        let thread_id = header.thread_id;
        self.open_new(owner, header)?;
        self.make(thread_id, now)?;
        if let Some(rollout) = self.rollouts.get_mut(&thread_id) {
            rollout.records.extend_from_slice(copied);
        }
        let found = self.lineage(thread_id).len();
        if let Some(writer) = self.writers.get_mut(&thread_id) {
            // What was taken over did not begin through this writer.
            writer.found = found;
        }
        let thread = self.thread_mut(thread_id)?;
        thread.copied = copied.len();
        let last = copied.iter().filter_map(|r| r.envelope()?.time()).max();
        thread.last_time = last.unwrap_or(thread.last_time).max(thread.last_time);
        thread.next_ordinal = thread.next_ordinal.map(|n| n.saturating_add(copied.len() as u64));
        Ok(())
    }
}
