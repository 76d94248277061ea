//! Reading one thread: from its files first, with what only the index knows beside them.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use threadkeep_record::observe::{Known, Observer};
use threadkeep_record::{
    Envelope, GitInfo, HistoryMode, Kind, LineState, MetadataPatch, SessionMeta, ThreadId, ThreadMetadata, UtcMillis,
    check_line, sniff,
};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::lineage::{History, Span};
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_rollout::reverse::ReverseReader;
use threadkeep_rollout::source::open_file;
use threadkeep_store::{Archived, CreateThread, StoreResult, StoredHistory, StoredRecord, StoredThread, WithHistory};

use super::model_context::header_record;
use super::writing::Live;
use super::{Inner, internal, invalid};
use crate::lookup::{LookupError, OpenThread};
use crate::row::Row;

/// A thread of up to so many bytes is read whole for its metadata; of a larger one the head and this much of its end.
const READ_WHOLE: u64 = 16 << 20;

impl Inner {
    /// Finds a thread by id.
    pub fn open(&self, id: ThreadId, archived: Archived, depth: Depth) -> StoreResult<OpenThread> {
        let open = self.read.open_id(id, depth).map_err(|e| match e {
            LookupError::NotFound { .. } | LookupError::Gone { .. } => {
                invalid(format!("no rollout found for thread id {id}"))
            }
            other => internal(format!("failed to locate thread id {id}: {other}")),
        })?;
        if archived == Archived::Excluded && open.row.thread.archived {
            return Err(invalid(format!("thread {id} is archived")));
        }
        Ok(open)
    }

    /// As [`open`](Self::open), but a live writer's rollout comes first, wherever it is. `None` for a thread whose
    /// file is not made yet.
    pub fn open_live_first(
        &self,
        id: ThreadId,
        archived: Archived,
        depth: Depth,
    ) -> StoreResult<(Option<Arc<Live>>, Option<OpenThread>)> {
        let Some(live) = self.live.get(id) else { return Ok((None, Some(self.open(id, archived, depth)?))) };
        if !live.lock().writer.is_made() {
            return Ok((Some(live), None));
        }
        let open = self.read.open_path(&live.path(), depth).map_err(internal)?;
        Ok((Some(live), Some(open)))
    }

    /// As [`open_live_first`](Self::open_live_first), for what needs a file.
    pub fn open_made(&self, id: ThreadId, archived: Archived, depth: Depth) -> StoreResult<OpenThread> {
        let (_, open) = self.open_live_first(id, archived, depth)?;
        open.ok_or_else(|| invalid(format!("no rollout found for thread id {id}")))
    }

    /// The catalog and row of a thread.
    pub fn find(&self, id: ThreadId, archived: Archived, depth: Depth) -> StoreResult<(crate::catalog::Catalog, Row)> {
        let mut open = self.open(id, archived, depth)?;
        Ok((open.catalogs.swap_remove(open.home), open.row))
    }

    pub fn read(&self, id: ThreadId, archived: Archived, history: WithHistory) -> StoreResult<StoredThread> {
        match self.open_live_first(id, archived, Depth::HeadAndTail)? {
            (_, Some(open)) => self.stored(id, &open, history),
            (Some(live), None) => match &live.created {
                Some((params, at)) => Ok(self.unmade(&live, params, *at, history)),
                None => Err(invalid(format!("no rollout found for thread id {id}"))),
            },
            (None, None) => Err(invalid(format!("no rollout found for thread id {id}"))),
        }
    }

    pub fn read_path(&self, path: &Path, history: WithHistory) -> StoreResult<StoredThread> {
        let open = self.read.open_path(&self.home.absolute(path), Depth::HeadAndTail).map_err(|e| match e {
            LookupError::Path { source, .. } => {
                invalid(format!("failed to resolve rollout path `{}`: {source}", path.display()))
            }
            other => internal(other),
        })?;
        let Some(id) = open.row.thread.id else {
            return Err(invalid(format!("failed to resolve rollout path `{}`: it names no thread", path.display())));
        };
        self.stored(id, &open, history)
    }

    fn stored(&self, id: ThreadId, open: &OpenThread, history: WithHistory) -> StoreResult<StoredThread> {
        let derived = derive(id, &open.history, open.row.thread.bytes);
        let mut thread = from_row(id, &open.row, &derived);
        thread.rollout_path = plain_path(open);
        if let Some(kept) = self.hint(id) {
            beside(&mut thread, &kept);
        }
        if history == WithHistory::Yes {
            thread.history = Some(whole_history(id, thread.history_mode, &open.history)?);
        }
        Ok(thread)
    }

    /// A thread whose file is not made yet.
    fn unmade(&self, live: &Live, p: &CreateThread, at: UtcMillis, history: WithHistory) -> StoredThread {
        let text = |v: Option<&Value>| v.and_then(Value::as_str).map(str::to_owned);
        let spawn = p.source.get("subagent").and_then(|s| s.get("thread_spawn"));
        let agent = |key: &str| text(spawn.and_then(|s| s.get(key)));
        let mut thread = StoredThread {
            thread_id: p.thread_id,
            session_id: Some(p.session_id),
            rollout_path: Some(live.path()),
            forked_from_id: p.forked_from_id,
            parent_thread_id: p.parent_thread_id,
            preview: String::new(),
            name: None,
            title: None,
            first_user_message: None,
            model_provider: p.metadata.model_provider.clone(),
            model: None,
            reasoning_effort: None,
            created_at: at,
            updated_at: at,
            recency_at: at,
            archived_at: None,
            archived: false,
            cwd: p.metadata.cwd.as_ref().map(|c| c.to_string_lossy().into_owned()),
            cli_version: Some(env!("CARGO_PKG_VERSION").into()),
            source: p.source.clone(),
            history_mode: p.history_mode,
            thread_source: p.thread_source.clone(),
            agent_nickname: agent("agent_nickname"),
            agent_role: agent("agent_role"),
            agent_path: agent("agent_path"),
            git_info: p.git.clone(),
            approval_mode: None,
            permission_profile: None,
            token_usage: None,
            memory_mode: p.metadata.memory_mode.clone(),
            selected_capability_roots: p.selected_capability_roots.clone(),
            history: None,
        };
        if let Some(kept) = self.hint(p.thread_id) {
            beside(&mut thread, &kept);
        }
        if history == WithHistory::Yes {
            let (thread_id, history_mode) = (p.thread_id, p.history_mode);
            thread.history = Some(StoredHistory { thread_id, history_mode, records: vec![], damaged: 0 });
        }
        thread
    }

    pub fn load_history(&self, id: ThreadId, archived: Archived) -> StoreResult<StoredHistory> {
        let open = self.open_made(id, archived, Depth::Head)?;
        let mode = open.row.thread.history_mode.unwrap_or(HistoryMode::Legacy);
        whole_history(id, mode, &open.history)
    }
}

/// The path of the plain form of the file that is written to.
pub fn plain_path(open: &OpenThread) -> Option<std::path::PathBuf> {
    let span = open.history.spans.last()?;
    Some(if span.form == Form::Zstd { span.path.with_extension("") } else { span.path.clone() })
}

/// What a list or read row says, with what was derived from the records.
pub fn from_row(id: ThreadId, row: &Row, derived: &ThreadMetadata) -> StoredThread {
    let t = &row.thread;
    let header = row.assembly.as_ref().and_then(|a| row.members.get(a.head)).and_then(|m| m.facts.header.as_ref());
    let of_header = |f: fn(&SessionMeta) -> Option<String>| header.and_then(f);
    StoredThread {
        thread_id: id,
        session_id: t.session_id,
        rollout_path: None,
        forked_from_id: t.forked_from_id,
        parent_thread_id: t.parent_id,
        preview: t.preview.clone().or_else(|| derived.preview.clone()).unwrap_or_default(),
        name: t.name.clone(),
        title: derived.title.clone().or_else(|| t.first_user_message.clone()),
        first_user_message: t.first_user_message.clone().or_else(|| derived.first_user_message.clone()),
        model_provider: derived.model_provider.clone().or_else(|| t.model_provider.clone()),
        model: derived.model.clone().or_else(|| t.model.clone()),
        reasoning_effort: derived.reasoning_effort.clone(),
        created_at: row.created(),
        updated_at: row.updated(),
        recency_at: t.recency_at.or(derived.recency_at).unwrap_or_else(|| row.created()),
        archived_at: t.archived_at,
        archived: t.archived,
        cwd: derived.cwd.clone().or_else(|| t.cwd.clone()),
        cli_version: t.cli_version.clone(),
        source: t.source.clone().unwrap_or_else(|| Value::from("vscode")),
        history_mode: t.history_mode.unwrap_or(HistoryMode::Legacy),
        thread_source: t.thread_source.clone(),
        agent_nickname: derived.agent_nickname.clone().or_else(|| of_header(|h| h.agent_nickname.clone())),
        agent_role: derived.agent_role.clone().or_else(|| of_header(|h| h.agent_role.clone())),
        agent_path: derived.agent_path.clone(),
        // Where the headers were read they tell all of it, also what was taken away again.
        git_info: if derived.cli_version.is_some() { git_of(derived) } else { t.git.clone() },
        approval_mode: derived.approval_mode.clone(),
        permission_profile: derived.permission_profile.clone(),
        token_usage: derived.token_usage.or(t.tokens),
        memory_mode: derived.memory_mode.clone(),
        selected_capability_roots: t.capability_roots.clone(),
        history: None,
    }
}

fn git_of(m: &ThreadMetadata) -> Option<GitInfo> {
    let git = GitInfo { sha: m.git_sha.clone(), branch: m.git_branch.clone(), origin_url: m.git_origin_url.clone() };
    (git != GitInfo::default()).then_some(git)
}

/// Adds what only the index knows: decisions about a paginated thread, whose rollout does not hold them.
fn beside(thread: &mut StoredThread, kept: &ThreadMetadata) {
    if thread.history_mode == HistoryMode::Paginated {
        let mut git = thread.git_info.clone().unwrap_or_default();
        // An empty text is a fact that was cleared.
        let facts = [
            (&mut git.sha, &kept.git_sha),
            (&mut git.branch, &kept.git_branch),
            (&mut git.origin_url, &kept.git_origin_url),
        ];
        for (fact, decided) in facts {
            if let Some(text) = decided {
                *fact = Some(text.clone()).filter(|t| !t.is_empty());
            }
        }
        thread.git_info = Some(git).filter(|g| *g != GitInfo::default());
        thread.memory_mode = kept.memory_mode.clone().or_else(|| thread.memory_mode.take());
    }
    let missing = |to: &mut Option<String>, from: &Option<String>| {
        if to.is_none() {
            to.clone_from(from);
        }
    };
    // Of a very large thread not everything was read just now.
    missing(&mut thread.reasoning_effort, &kept.reasoning_effort);
    missing(&mut thread.agent_nickname, &kept.agent_nickname);
    missing(&mut thread.agent_role, &kept.agent_role);
    missing(&mut thread.agent_path, &kept.agent_path);
    missing(&mut thread.memory_mode, &kept.memory_mode);
    thread.approval_mode = thread.approval_mode.take().or_else(|| kept.approval_mode.clone());
    thread.permission_profile = thread.permission_profile.take().or_else(|| kept.permission_profile.clone());
    thread.token_usage = thread.token_usage.or(kept.token_usage);
    missing(&mut thread.model, &kept.model);
    missing(&mut thread.first_user_message, &kept.first_user_message);
    missing(&mut thread.title, &kept.title);
    if thread.preview.is_empty() {
        thread.preview = kept.preview.clone().unwrap_or_default();
    }
    thread.recency_at = thread.recency_at.max(kept.recency_at.unwrap_or(thread.recency_at));
}

/// What the records of a thread say of it, by the rules of a live thread.
pub fn derive(id: ThreadId, history: &History, bytes: u64) -> ThreadMetadata {
    let mut known = ThreadMetadata::default();
    let mut observer = Observer::new(id, Known::default());
    let own: Vec<&Span> = history.spans.iter().filter(|s| !s.inherited).collect();
    if bytes > READ_WHOLE {
        if let Some(first) = own.first().or(history.spans.last().as_ref())
            && let Ok(mut lines) = LineReader::open(&first.path, first.form, first.follow, 64 << 10)
            && let Some(line) = lines.next_line()
            && let Some((patch, _)) = say(&mut observer, line.bytes)
        {
            known.apply(patch);
        }
        let mut patches = own.last().map(|s| end_of(&mut observer, s)).unwrap_or_default();
        patches.reverse();
        patches.into_iter().for_each(|p| known.apply(p));
        return known;
    }
    for span in own {
        let Ok(mut lines) = LineReader::open(&span.path, span.form, span.follow, BUFFER) else { continue };
        while let Some(line) = lines.next_line() {
            if span.is_past(&line) {
                break;
            }
            if let Some((patch, _)) = (!line.long).then(|| say(&mut observer, line.bytes)).flatten() {
                known.apply(patch);
            }
        }
    }
    known
}

/// What one line says, if its kind says anything.
fn say(observer: &mut Observer, line: &[u8]) -> Option<(MetadataPatch, Kind)> {
    let quick = sniff::sniff(line);
    if let Some(s) = &quick {
        let tells = match s.kind {
            Kind::SessionMeta | Kind::TurnContext => true,
            Kind::EventMsg => match s.payload_type {
                b"item_completed" => sniff::item_type(&line[s.payload_at..]) == Some(b"UserMessage"),
                other => matches!(
                    other,
                    b"user_message"
                        | b"task_started"
                        | b"turn_started"
                        | b"token_count"
                        | b"thread_goal_updated"
                        | b"thread_settings_applied"
                ),
            },
            _ => false,
        };
        if !tells {
            return None;
        }
    }
    let LineState::Record(record) = check_line(line) else { return None };
    let envelope = Envelope::parse(record)?;
    let payload: Value = serde_json::from_str(envelope.payload).ok()?;
    Some((observer.observe(envelope.kind, &payload, envelope.time().unwrap_or(UtcMillis(0))), envelope.kind))
}

/// What the end of a large rollout says, newest first.
fn end_of(observer: &mut Observer, span: &Span) -> Vec<MetadataPatch> {
    let mut said = Vec::new();
    let Ok(file) = open_file(&span.path, span.follow) else { return said };
    let Ok(size) = file.metadata().map(|m| m.len()) else { return said };
    if span.form != Form::Plain {
        return said;
    }
    let mut reader = ReverseReader::new(&file, size, 64 << 10);
    while let Ok(Some(line)) = reader.next_line() {
        if size - line.offset > READ_WHOLE {
            break;
        }
        if !line.long
            && let Some((mut patch, _)) = say(observer, line.bytes)
        {
            // First things are not found from the end.
            (patch.preview, patch.title, patch.first_user_message) = (None, None, None);
            said.push(patch);
        }
    }
    said
}

/// All records of a history.
pub fn whole_history(id: ThreadId, mode: HistoryMode, history: &History) -> StoreResult<StoredHistory> {
    let mut all = StoredHistory { thread_id: id, history_mode: mode, records: vec![], damaged: 0 };
    // The first header names the thread: where the history begins in another thread's rollout, its own goes first.
    let begins_elsewhere = history.spans.first().is_some_and(|s| s.inherited);
    let own = history.spans.iter().position(|s| !s.inherited).filter(|_| begins_elsewhere);
    let own_header = own.and_then(|i| header_record(&history.spans[i]));
    all.records.extend(own_header.clone().map(StoredRecord));
    for (i, span) in history.spans.iter().enumerate() {
        let mut given = own_header.as_ref().filter(|_| own == Some(i));
        let mut lines = LineReader::open(&span.path, span.form, span.follow, BUFFER)
            .map_err(|e| internal(format!("failed to load thread history {}: {e}", span.path.display())))?
            .with_limit(usize::MAX);
        while let Some(line) = lines.next_line() {
            if span.is_past(&line) {
                break;
            }
            match check_line(line.bytes) {
                LineState::Blank => {}
                LineState::Record(record) if given.is_some_and(|h| h == record) => given = None,
                LineState::Record(record) => all.records.push(StoredRecord(record.to_vec())),
                LineState::Recovered(records, _) => {
                    all.damaged += 1;
                    all.records.extend(records.into_iter().map(|r| StoredRecord(r.into_owned())));
                }
                LineState::Damaged(_) => all.damaged += 1,
            }
        }
        if let Some(e) = lines.error() {
            return Err(internal(format!("failed to load thread history {}: {e}", span.path.display())));
        }
    }
    Ok(all)
}
