//! Changes of metadata: observed ones go to the index as hints, decided ones where they last (`thread-store.md` 6.8).

use serde_json::{Map, Value, json};
use threadkeep_index::Index;
use threadkeep_record::new_header::git_json;
use threadkeep_record::{
    Field, GitInfo, GitPatch, HistoryMode, MetadataPatch, NewItem, PatchKind, SessionMeta, ThreadId, UtcMillis,
};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::name_index::{self, NameError, NameLock};
use threadkeep_store::{
    Archived, HostMetadata, ResumeThread, StoreResult, StoredThread, ThreadStoreError, WithHistory,
};

use super::codex_write::{CodexDb, CodexUpdate, CodexWriteError};
use super::{Inner, internal, invalid};

/// A name as it is kept: without white space around it, on one line, not empty.
pub fn checked_name(name: &str) -> StoreResult<&str> {
    match name.trim() {
        "" => Err(invalid("thread name must not be empty")),
        name if name.contains(['\n', '\r']) => Err(invalid(format!("thread name must be one line: {name:?}"))),
        name => Ok(name),
    }
}

/// Another program at the database is a conflict; anything else is a failure.
pub fn codex_error(e: CodexWriteError) -> ThreadStoreError {
    if e.is_busy() { ThreadStoreError::Conflict { message: e.to_string() } } else { internal(e) }
}

fn name_error(e: NameError) -> ThreadStoreError {
    match e {
        NameError::Busy { .. } => ThreadStoreError::Conflict { message: e.to_string() },
        NameError::Lock { .. } | NameError::Append(_) => internal(e),
    }
}

impl Inner {
    pub fn observe(&self, id: ThreadId, mut patch: MetadataPatch) -> StoreResult<()> {
        if self.live.get(id).is_none() {
            self.known(id, Archived::Included)?;
        }
        patch.rollout_path = patch.rollout_path.or_else(|| self.relative_path(id));
        // Without an index nothing is kept beside the records, which say the same.
        self.index().map_or(Ok(()), |index| index.observe(&[(id, patch)]).map_err(internal))
    }

    pub fn needed_index(&self) -> StoreResult<&Index> {
        self.index().ok_or_else(|| internal(format!("there is no index for {}", self.home.path().display())))
    }

    fn relative_path(&self, id: ThreadId) -> Option<String> {
        let path = self.live.get(id)?.path();
        Some(self.home.relative(&path).to_string_lossy().into_owned())
    }

    pub fn update(&self, id: ThreadId, patch: &MetadataPatch, archived: Archived) -> StoreResult<StoredThread> {
        match patch.kind() {
            PatchKind::Empty => {}
            PatchKind::Touch | PatchKind::Observed => {
                // Unknown threads are refused; beyond that the index is a hint, and its failure no failure.
                self.known(id, archived)?;
                let _ = self.observe(id, patch.clone());
            }
            PatchKind::Explicit => self.decide(id, patch, archived)?,
        }
        self.read(id, archived, WithHistory::No)
    }

    /// A thread that is to be changed.
    fn known(&self, id: ThreadId, archived: Archived) -> StoreResult<StoredThread> {
        self.read(id, archived, WithHistory::No).map_err(|e| match e {
            ThreadStoreError::InvalidRequest { message } if message.starts_with("no rollout found") => {
                invalid(format!("thread not found: {id}"))
            }
            other => other,
        })
    }

    fn decide(&self, id: ThreadId, patch: &MetadataPatch, archived: Archived) -> StoreResult<()> {
        if let Some(live) = self.live.get(id)
            && !live.lock().writer.is_made()
        {
            self.persist(id)?;
        }
        let thread = self.known(id, archived)?;
        if !patch.name.is_keep() {
            self.set_name(id, &thread, patch.name.value().map(String::as_str))?;
        }
        if patch.git.is_empty() && patch.memory_mode.is_none() {
            return Ok(());
        }
        match thread.history_mode {
            HistoryMode::Paginated => {
                // A paginated rollout holds none of it. A fact that was cleared is kept as an empty text, so that the
                // header's does not come back.
                let literal = |f: &Field<String>| match f {
                    Field::Clear => Field::Set(String::new()),
                    other => other.clone(),
                };
                let git = GitPatch {
                    sha: literal(&patch.git.sha),
                    branch: literal(&patch.git.branch),
                    origin_url: literal(&patch.git.origin_url),
                };
                if !patch.git.is_empty() {
                    self.codex().set_git(id, &patch.git).map_err(codex_error)?;
                }
                let memory_mode = patch.memory_mode.clone();
                let patch = MetadataPatch { git, memory_mode, ..MetadataPatch::default() };
                let index =
                    self.index().ok_or_else(|| internal(format!("sqlite state db unavailable for thread {id}")))?;
                index.patch(id, &patch).map_err(internal)
            }
            HistoryMode::Legacy => {
                self.append_header(id, &thread, patch, archived)?;
                if !patch.git.is_empty() {
                    self.codex().set_git(id, &patch.git).map_err(codex_error)?;
                }
                let hint = MetadataPatch { name: Field::Keep, ..patch.clone() };
                let _ = self.index().map(|index| index.patch(id, &hint));
                Ok(())
            }
            HistoryMode::Unknown => Err(invalid(format!(
                "thread {id} is kept in a history mode that this version does not know; it is not written to"
            ))),
        }
    }

    pub fn codex(&self) -> CodexDb<'_> {
        CodexDb { home: self.home.path(), sqlite_home: self.sqlite_home.as_deref(), patience: self.patience }
    }

    /// Sets or clears a thread's name: in the name index, and where Codex has a row of the thread, in its column. Both
    /// or neither.
    pub fn set_name(&self, id: ThreadId, thread: &StoredThread, name: Option<&str>) -> StoreResult<CodexUpdate> {
        let name = name.map(checked_name).transpose()?;
        let at = self.clock.now();
        let update = self.codex().set_name(id, thread.history_mode, name, || self.append_name(id, name, at));
        let done = update.map_err(codex_error)?.map_err(name_error)?;
        let patch = MetadataPatch { name: name.map(str::to_owned).into(), ..MetadataPatch::default() };
        // A hint: the name index has it.
        let _ = self.index().map(|index| index.patch(id, &patch));
        Ok(done)
    }

    fn append_name(&self, id: ThreadId, name: Option<&str>, at: UtcMillis) -> Result<(), NameError> {
        let _lock = NameLock::acquire(self.home.path(), self.patience)?;
        Ok(name_index::append(&*self.disk, self.home.path(), id, name.unwrap_or(""), at)?)
    }

    /// Writes another header into a legacy rollout, which holds what was decided (`thread-store.md` 6.8).
    fn append_header(
        &self,
        id: ThreadId,
        thread: &StoredThread,
        patch: &MetadataPatch,
        archived: Archived,
    ) -> StoreResult<()> {
        let open = self.open_made(id, archived, Depth::Head)?;
        let first = open
            .history
            .spans
            .first()
            .and_then(|s| threadkeep_rollout::records::LineReader::open(&s.path, s.form, s.follow, 64 << 10).ok());
        let record = first.and_then(|mut lines| lines.next_line().map(|l| l.bytes.to_vec())).unwrap_or_default();
        let envelope = threadkeep_record::Envelope::parse(&record);
        let payload = envelope.and_then(|e| serde_json::from_str::<Map<String, Value>>(e.payload).ok());
        let Some(mut payload) = payload else { return Err(internal("the thread has no header that can be read")) };
        let found = SessionMeta::from_value(&Value::Object(payload.clone())).id;
        if found != Some(id) {
            let found = found.map(|f| f.to_string()).unwrap_or_default();
            return Err(internal(format!("rollout session metadata id mismatch: expected {id}, found {found}")));
        }
        if let Some(mode) = patch.memory_mode.clone().or_else(|| thread.memory_mode.clone()) {
            payload.insert("memory_mode".into(), json!(mode));
        }
        payload.remove("git");
        if !patch.git.is_empty() {
            let mut git: GitInfo = thread.git_info.clone().unwrap_or_default();
            patch.git.sha.clone().apply(&mut git.sha);
            patch.git.branch.clone().apply(&mut git.branch);
            patch.git.origin_url.clone().apply(&mut git.origin_url);
            payload.insert("git".into(), git_json(&git));
        }
        // The prompt is in the first header.
        payload.remove("base_instructions");
        let item = NewItem::from_value("session_meta", &Value::Object(payload)).map_err(internal)?;
        self.append_once(id, &item, archived)
    }

    /// Appends one item, through the live writer or one that is opened for it.
    fn append_once(&self, id: ThreadId, item: &NewItem, archived: Archived) -> StoreResult<()> {
        let items = std::slice::from_ref(item);
        if self.live.get(id).is_some() {
            self.append(id, items)?;
            return self.flush(id);
        }
        let host = HostMetadata { cwd: Some("/".into()), ..HostMetadata::default() };
        self.resume(&ResumeThread { thread_id: id, rollout_path: None, archived, metadata: host })?;
        let result = self.append(id, items).and_then(|_| self.flush(id));
        self.discard(id)?;
        result
    }
}
