//! Taking turns back: a legacy thread gets a record that says so, a paginated one another rollout.

use threadkeep_record::{HistoryMode, ThreadId, UtcMillis, continued_header};

use super::{MemoryThreadStore, Rollout, fork, invalid, live};
use crate::ThreadStoreError;
use crate::contract::StoreResult;
use crate::fork::{still_runs, taken_back};
use crate::params::{Archived, WithHistory};
use crate::stored::StoredThread;

impl MemoryThreadStore {
    pub(super) fn revert(&self, thread_id: ThreadId, before_turn: &str) -> StoreResult<StoredThread> {
        let now = self.clock.now();
        let mut kept = self.lock();
        let mode = kept.found(thread_id, Archived::Excluded)?.history_mode;
        let found = match kept.writers.get(&thread_id) {
            Some(w) if w.owner != self.owner => return Err(live::written(thread_id)),
            Some(w) => Some(w.found),
            None => None,
        };
        let back = taken_back(&kept.history(thread_id), before_turn)?;
        if let (Some((turn, begin)), Some(found)) = (&back.unended, found)
            && *begin >= found
        {
            return Err(still_runs(thread_id, turn));
        }
        match mode {
            HistoryMode::Legacy => {
                let item = threadkeep_record::NewItem::rolled_back(back.num_turns);
                kept.push(thread_id, &item, now)?;
            }
            HistoryMode::Paginated => {
                let base = back.records.checked_sub(1).and_then(|last| fork::base(&kept.lineage(thread_id), last));
                let thread = kept.thread(thread_id)?;
                let at = now.max(UtcMillis(thread.last_time.0.saturating_add(1)));
                let last = kept.rollouts.get(&thread.head).and_then(|head| head.records.first());
                let header = base.as_ref().zip(last).and_then(|(base, last)| continued_header(&last.0, base, at));
                let (Some(base), Some(header)) = (base, header) else {
                    let message = format!("thread {thread_id} has no header that can be continued");
                    return Err(ThreadStoreError::Internal { message });
                };
                let head = ThreadId::new_v7();
                let end = base.end_ordinal_exclusive;
                let rollout = Rollout { owner: thread_id, records: vec![], base: Some((base.thread_id, end)) };
                kept.rollouts.insert(head, rollout);
                let thread = kept.thread_mut(thread_id)?;
                (thread.head, thread.next_ordinal) = (head, Some(end));
                kept.push(thread_id, &header, at)?;
                let length = kept.lineage(thread_id).len();
                if let Some(writer) = kept.writers.get_mut(&thread_id) {
                    writer.found = length;
                }
            }
            HistoryMode::Unknown => {
                return Err(invalid(format!(
                    "thread {thread_id} is kept in an unknown history mode; it is not reverted"
                )));
            }
        }
        kept.read(thread_id, Archived::Excluded, WithHistory::No)
    }
}
