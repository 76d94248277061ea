//! Reading a thread: its history, and what it says of itself together with what is kept beside it.

use threadkeep_record::fold::{Check, Fold, FoldLine};
use threadkeep_record::observe::{Known, Observer};
use threadkeep_record::{GitInfo, MetadataPatch, SessionMeta, ThreadId, ThreadMetadata, UtcMillis};

use super::{Kept, Rollout, Thread};
use crate::contract::StoreResult;
use crate::params::{Archived, WithHistory};
use crate::stored::{StoredHistory, StoredRecord, StoredThread};
use crate::turn_places::visible_from;

/// Chains of forks are no longer than this; a longer one is a loop.
const MAX_CHAIN: usize = 512;

/// A record and where it stands.
#[derive(Clone, Copy)]
pub(super) struct Placed<'k> {
    /// The thread that it was written in.
    pub(super) owner: ThreadId,
    /// The rollout.
    pub(super) rollout: ThreadId,
    /// Index in that rollout.
    pub(super) index: usize,
    /// The record.
    pub(super) record: &'k StoredRecord,
}

impl Kept {
    /// All records of a thread: the prefix that it continues, and its own.
    pub(super) fn lineage(&self, thread_id: ThreadId) -> Vec<Placed<'_>> {
        self.threads.get(&thread_id).map_or(vec![], |thread| self.lineage_of(thread.head))
    }

    /// All records of a history that ends in a rollout.
    pub(super) fn lineage_of(&self, rollout: ThreadId) -> Vec<Placed<'_>> {
        let mut chain: Vec<(ThreadId, &Rollout, u64)> = Vec::new();
        let mut at = Some((rollout, u64::MAX));
        while let Some((id, end)) = at.filter(|_| chain.len() < MAX_CHAIN) {
            let Some(rollout) = self.rollouts.get(&id) else { break };
            chain.push((id, rollout, end));
            at = rollout.base;
        }
        let mut placed = Vec::new();
        for (id, rollout, end) in chain.iter().rev() {
            let place = |(index, record)| Placed { owner: rollout.owner, rollout: *id, index, record };
            let records = rollout.records.iter().enumerate().map(place);
            placed.extend(records.filter(|p| *end == u64::MAX || ordinal(p.record).is_some_and(|n| n < *end)));
        }
        placed
    }

    pub(super) fn history(&self, thread_id: ThreadId) -> StoredHistory {
        let history_mode = self.threads.get(&thread_id).map(|t| t.history_mode);
        StoredHistory {
            thread_id,
            history_mode: history_mode.unwrap_or(threadkeep_record::HistoryMode::Unknown),
            records: self.lineage(thread_id).into_iter().map(|p| p.record.clone()).collect(),
            damaged: 0,
        }
    }

    pub(super) fn read(
        &self,
        thread_id: ThreadId,
        archived: Archived,
        history: WithHistory,
    ) -> StoreResult<StoredThread> {
        let thread = self.found(thread_id, archived)?;
        let records = self.history(thread_id);
        let mut read = stored_thread(thread, &records);
        // A revert into what a fork took over leaves its first header behind, which still says when it was made.
        let first = self.rollouts.get(&thread_id).and_then(|r| SessionMeta::parse(&r.records.first()?.0));
        read.created_at = first.and_then(|h| h.created_at).unwrap_or(read.created_at);
        read.history = (history == WithHistory::Yes).then_some(records);
        Ok(read)
    }
}

pub(super) fn ordinal(record: &StoredRecord) -> Option<u64> {
    record.envelope().and_then(|e| e.ordinal)
}

/// What the records say of their thread, by the rules by which a live thread observes them.
fn observed(history: &StoredHistory) -> ThreadMetadata {
    let mut observer = Observer::new(history.thread_id, Known::default());
    let mut known = ThreadMetadata::default();
    let (own, visible) = (history.own_header().map_or(0, |(index, _)| index), visible_from(history));
    for (index, record) in history.records.iter().enumerate() {
        let Some(envelope) = record.envelope().filter(|_| index >= visible || index == own) else { continue };
        let Ok(payload) = serde_json::from_str(envelope.payload) else { continue };
        let time = envelope.time().unwrap_or(UtcMillis(0));
        known.apply(observer.observe(envelope.kind, &payload, time));
    }
    known
}

/// The records are the truth; what they do not tell comes from what was observed; what was decided counts first.
fn stored_thread(thread: &Thread, history: &StoredHistory) -> StoredThread {
    let mut fold = Fold::new(Check::Whole);
    // What is only context is told by the thread's own header, so that comes first.
    let own = history.own_header().map_or(0, |(index, _)| index);
    let others = history.records.iter().enumerate().filter(|(index, _)| *index != own);
    for (index, record) in history.records.get(own).map(|r| (own, r)).into_iter().chain(others) {
        let number = index as u64 + 1;
        fold.line(FoldLine { bytes: &record.0, offset: 0, number, terminated: true, long: false });
    }
    let own = observed(history);
    let kept = thread.stored.clone().unwrap_or_default();
    let header = history.header().unwrap_or_default();
    let begun = header.record_time.unwrap_or(UtcMillis(0));
    let created_at = header.created_at.unwrap_or(begun);
    let mut git =
        [own.git_sha.or(kept.git_sha), own.git_branch.or(kept.git_branch), own.git_origin_url.or(kept.git_origin_url)];
    let mut memory_mode = own.memory_mode.or(kept.memory_mode);
    let mut name = None;
    decide(&thread.decided, &mut name, &mut memory_mode, &mut git);
    let [sha, branch, origin_url] = git;
    let git = GitInfo { sha, branch, origin_url };
    StoredThread {
        thread_id: history.thread_id,
        session_id: header.session_id.or(Some(history.thread_id)),
        rollout_path: None,
        forked_from_id: header.forked_from_id,
        parent_thread_id: header.parent(),
        preview: fold.preview().map(str::to_owned).or(kept.preview).unwrap_or_default(),
        name,
        title: own.title.or(kept.title),
        first_user_message: fold.first_user_message().map(str::to_owned).or(kept.first_user_message),
        model_provider: own.model_provider.or(kept.model_provider),
        model: own.model.or(kept.model),
        reasoning_effort: own.reasoning_effort.or(kept.reasoning_effort),
        created_at,
        updated_at: fold.last_time.or(kept.updated_at).unwrap_or(begun),
        recency_at: fold.turn_started().or(kept.recency_at).unwrap_or(created_at),
        archived_at: thread.archived,
        archived: thread.archived.is_some(),
        cwd: own.cwd.or(kept.cwd),
        cli_version: own.cli_version.or(kept.cli_version),
        source: header.source.clone().unwrap_or_else(|| "vscode".into()),
        history_mode: thread.history_mode,
        thread_source: own.thread_source.or(kept.thread_source),
        agent_nickname: own.agent_nickname.or(kept.agent_nickname),
        agent_role: own.agent_role.or(kept.agent_role),
        agent_path: own.agent_path.or(kept.agent_path),
        git_info: Some(git).filter(|g| *g != GitInfo::default()),
        approval_mode: own.approval_mode.or(kept.approval_mode),
        permission_profile: own.permission_profile.or(kept.permission_profile),
        token_usage: own.token_usage.or(kept.token_usage),
        memory_mode,
        selected_capability_roots: header.capability_roots,
        history: None,
    }
}

fn decide(
    decided: &MetadataPatch,
    name: &mut Option<String>,
    memory_mode: &mut Option<String>,
    [sha, branch, origin_url]: &mut [Option<String>; 3],
) {
    decided.name.clone().apply(name);
    *memory_mode = decided.memory_mode.clone().or(memory_mode.take());
    decided.git.sha.clone().apply(sha);
    decided.git.branch.clone().apply(branch);
    decided.git.origin_url.clone().apply(origin_url);
}
