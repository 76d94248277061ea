//! Live writers: create, resume, append, and how a thread comes to be.

use std::path::Path;

use threadkeep_record::{HistoryBase, HistoryMode, MetadataPatch, NewHeader, NewItem, ThreadId, UtcMillis};

use super::{Kept, MemoryThreadStore, Rollout, Thread, Unmade, Writer, invalid, no_file, no_rollout};
use crate::ThreadStoreError;
use crate::contract::StoreResult;
use crate::params::{CreateThread, ResumeThread};
use crate::stored::{Appended, EdgeStatus, Resumed, SpawnEdge, StoredRecord};

/// The directory that every thread needs.
pub(super) fn cwd(given: Option<&Path>) -> StoreResult<String> {
    match given {
        Some(path) if !path.as_os_str().is_empty() => Ok(path.to_string_lossy().into_owned()),
        Some(_) | None => Err(invalid("local thread store requires a cwd")),
    }
}

/// The header of a thread that is to be made.
pub(super) fn header(params: CreateThread, now: UtcMillis) -> StoreResult<NewHeader> {
    let cwd = cwd(params.metadata.cwd.as_deref())?;
    if params.history_mode == HistoryMode::Unknown {
        return Err(invalid("a thread cannot be made in an unknown history mode"));
    }
    Ok(NewHeader {
        session_id: params.session_id,
        thread_id: params.thread_id,
        forked_from_id: params.forked_from_id,
        parent_thread_id: params.parent_thread_id,
        created_at: params.created_at.unwrap_or(now),
        cwd,
        originator: params.originator,
        cli_version: env!("CARGO_PKG_VERSION").into(),
        source: params.source,
        thread_source: params.thread_source,
        model_provider: params.metadata.model_provider,
        base_instructions: params.base_instructions,
        dynamic_tools: params.dynamic_tools,
        capability_roots: params.selected_capability_roots,
        memory_mode: params.metadata.memory_mode,
        history_mode: params.history_mode,
        history_base: None,
        subagent_history_start_ordinal: params.subagent_history_start_ordinal,
        multi_agent_version: params.multi_agent_version,
        initial_window_id: params.initial_window_id,
        git: params.git,
        extra: params.extra,
    })
}

/// Refuses what needs a thread that nobody else writes.
pub(super) fn written(thread_id: ThreadId) -> ThreadStoreError {
    ThreadStoreError::Conflict { message: format!("thread {thread_id} already has an active writer") }
}

impl MemoryThreadStore {
    pub(super) fn create(&self, params: CreateThread) -> StoreResult<()> {
        let header = header(params, self.clock.now())?;
        self.lock().open_new(self.owner, header)
    }

    pub(super) fn resume(&self, params: &ResumeThread) -> StoreResult<Resumed> {
        cwd(params.metadata.cwd.as_deref())?;
        if let Some(path) = &params.rollout_path {
            return Err(no_file(path));
        }
        let mut kept = self.lock();
        kept.no_writer(self.owner, params.thread_id)?;
        let history_mode = kept.found(params.thread_id, params.archived)?.history_mode;
        let found = kept.lineage(params.thread_id).len();
        kept.writers.insert(params.thread_id, Writer { owner: self.owner, history_mode, unmade: None, found });
        Ok(Resumed { history_mode: Some(history_mode), torn_tail: false })
    }

    pub(super) fn append(&self, thread_id: ThreadId, items: &[NewItem]) -> StoreResult<Appended> {
        let mut kept = self.lock();
        let mode = kept.writer(self.owner, thread_id)?.history_mode;
        let wanted: Vec<bool> = items.iter().map(|i| i.is_kept(mode)).collect();
        if !wanted.contains(&true) {
            return Ok(Appended { times: vec![None; items.len()] });
        }
        kept.make(thread_id, self.clock.now())?;
        let thread = kept.thread(thread_id)?;
        let new = wanted.iter().filter(|w| **w).count() as u64;
        if thread.next_ordinal.is_some_and(|n| n.checked_add(new).is_none()) {
            let message = format!("thread {thread_id} has no ordinals left; nothing was appended");
            return Err(ThreadStoreError::Internal { message });
        }
        let mut write =
            |(item, wanted): (&NewItem, bool)| wanted.then(|| kept.push(thread_id, item, self.clock.now())).transpose();
        Ok(Appended { times: items.iter().zip(wanted).map(&mut write).collect::<StoreResult<_>>()? })
    }

    pub(super) fn persist(&self, thread_id: ThreadId) -> StoreResult<()> {
        let mut kept = self.lock();
        kept.writer(self.owner, thread_id)?;
        kept.make(thread_id, self.clock.now())
    }

    pub(super) fn close(&self, thread_id: ThreadId) -> StoreResult<()> {
        let mut kept = self.lock();
        kept.writer(self.owner, thread_id)?;
        kept.writers.remove(&thread_id);
        Ok(())
    }
}

impl Kept {
    /// A store's live writer of a thread.
    pub(super) fn writer(&self, owner: u64, thread_id: ThreadId) -> StoreResult<&Writer> {
        let writer = self.writers.get(&thread_id).filter(|w| w.owner == owner);
        writer.ok_or(ThreadStoreError::ThreadNotFound { thread_id })
    }

    /// Refuses where a thread is being written.
    pub(super) fn no_writer(&self, owner: u64, thread_id: ThreadId) -> StoreResult<()> {
        match self.writers.get(&thread_id) {
            None => Ok(()),
            Some(w) if w.owner == owner => Err(invalid(format!("thread {thread_id} already has a live local writer"))),
            Some(_) => Err(written(thread_id)),
        }
    }

    /// Opens a live writer for a thread that is not there.
    pub(super) fn open_new(&mut self, owner: u64, header: NewHeader) -> StoreResult<()> {
        let thread_id = header.thread_id;
        self.no_writer(owner, thread_id)?;
        if self.threads.contains_key(&thread_id) {
            return Err(invalid(format!("thread {thread_id} is already there")));
        }
        let history_mode = header.history_mode;
        let unmade = Some(Unmade { header, patches: vec![] });
        self.writers.insert(thread_id, Writer { owner, history_mode, unmade, found: 0 });
        Ok(())
    }

    /// Writes the header of a thread that is being written and has none yet.
    pub(super) fn make(&mut self, thread_id: ThreadId, now: UtcMillis) -> StoreResult<()> {
        let Some(unmade) = self.writers.get_mut(&thread_id).and_then(|w| w.unmade.take()) else { return Ok(()) };
        let header = unmade.header;
        let base = header.history_base.as_ref().map(|b: &HistoryBase| (b.thread_id, b.end_ordinal_exclusive));
        let paginated = header.history_mode == HistoryMode::Paginated;
        // Later than everything that the history continues.
        let continued = base.map(|(of, end)| self.last_time_below(of, end));
        let thread = Thread {
            history_mode: header.history_mode,
            head: thread_id,
            copied: 0,
            last_time: UtcMillis(header.created_at.0.saturating_sub(1)).max(continued.unwrap_or(UtcMillis(i64::MIN))),
            // The ordinals of a history that continues another go on.
            next_ordinal: paginated.then(|| base.map_or(0, |(_, end)| end)),
            stored: None,
            decided: MetadataPatch::default(),
            archived: None,
        };
        self.threads.insert(thread_id, thread);
        self.rollouts.insert(thread_id, Rollout { owner: thread_id, records: vec![], base });
        self.push(thread_id, &header.item(), now)?;
        if let Some(parent) = header.parent_thread_id {
            let edge = SpawnEdge { parent, child: thread_id, status: EdgeStatus::Open };
            self.edges.entry(thread_id).or_insert(edge);
        }
        unmade.patches.into_iter().try_for_each(|patch| self.observe(thread_id, patch))
    }
}

impl Kept {
    /// The latest time of the records of a history, which ends in a rollout, below an ordinal.
    fn last_time_below(&self, rollout: ThreadId, end: u64) -> UtcMillis {
        let lineage = self.lineage_of(rollout);
        let below = lineage.iter().filter_map(|p| p.record.envelope()).filter(|e| e.ordinal.is_some_and(|n| n < end));
        below.filter_map(|e| e.time()).max().unwrap_or(UtcMillis(i64::MIN))
    }

    /// Writes a record of a thread behind the last one, later than it.
    pub(super) fn push(&mut self, thread_id: ThreadId, item: &NewItem, now: UtcMillis) -> StoreResult<UtcMillis> {
        let thread = self.threads.get_mut(&thread_id).ok_or_else(|| no_rollout(thread_id))?;
        let rollout = self.rollouts.get_mut(&thread.head).ok_or_else(|| no_rollout(thread_id))?;
        let time = now.max(UtcMillis(thread.last_time.0.saturating_add(1)));
        rollout.records.push(StoredRecord(item.record(time, thread.next_ordinal)));
        thread.next_ordinal = thread.next_ordinal.map(|n| n.saturating_add(1));
        thread.last_time = time;
        Ok(time)
    }
}
