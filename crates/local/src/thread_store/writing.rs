//! Live writers: opening, appending, making durable, closing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use threadkeep_record::{HistoryMode, NewHeader, NewItem, SessionMeta, ThreadId, UtcMillis};
use threadkeep_rollout::appender::AppendError;
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::lineage::{Relation, compare};
use threadkeep_rollout::locks::Holder;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::unpack::unpack;
use threadkeep_rollout::writer::{NewRollout, RolloutWriter, WriteError};
use threadkeep_rollout::writer_lock::{LockError, WriterLock};
use threadkeep_store::{Appended, Archived, CreateThread, ResumeThread, Resumed, StoreResult, ThreadStoreError};

use super::{Inner, internal, invalid};
use crate::change::Changer;

/// A live writer of a thread.
#[derive(Debug)]
pub struct Live {
    /// What the thread was created with, for reading it before its file is there.
    pub created: Option<(CreateThread, UtcMillis)>,
    state: Mutex<Writing>,
}

#[derive(Debug)]
pub struct Writing {
    pub writer: RolloutWriter,
    /// Where its rollout ended when it was opened: a turn that begins behind that began through it.
    pub opened_at: u64,
    /// Held from the first write on; a thread that is not made yet is known to nobody else.
    lock: Option<WriterLock>,
    closed: bool,
}

impl Live {
    pub fn lock(&self) -> MutexGuard<'_, Writing> {
        // Every step of a writer leaves it usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rollout that it writes: a revert may give it another.
    pub fn path(&self) -> PathBuf {
        self.lock().writer.path().to_owned()
    }
}

impl Writing {
    /// Where the next record will stand.
    pub fn place(&self) -> (PathBuf, u64) {
        (self.writer.path().to_owned(), self.writer.end())
    }

    /// Goes on in another rollout.
    pub fn go_on_with(&mut self, writer: RolloutWriter) {
        (self.opened_at, self.writer) = (writer.end(), writer);
    }
}

/// What a lock file says of its holder.
pub(crate) fn lock_note(now: UtcMillis) -> String {
    format!("threadkeep {} pid {} since {now}\n", env!("CARGO_PKG_VERSION"), std::process::id())
}

/// A failed write as the contract tells it.
pub fn write_error(e: WriteError) -> ThreadStoreError {
    match e {
        WriteError::Append(e @ AppendError::Conflict { .. }) => ThreadStoreError::Conflict { message: e.to_string() },
        other => internal(other),
    }
}

pub fn lock_error(e: LockError) -> ThreadStoreError {
    match e {
        LockError::Held { id, holder } => held(id, holder),
        LockError::Io { .. } => internal(e),
    }
}

/// Someone else writes a thread.
pub fn held(id: ThreadId, holder: Option<Holder>) -> ThreadStoreError {
    let who = holder.map(|h| format!(" ({h})")).unwrap_or_default();
    ThreadStoreError::Conflict { message: format!("thread {id} already has an active writer{who}") }
}

fn shorter(id: ThreadId, packed: &Path) -> ThreadStoreError {
    ThreadStoreError::Conflict {
        message: format!(
            "thread {id} has a plain rollout that is shorter than its compressed one, {}; nothing was changed",
            packed.display()
        ),
    }
}

impl Inner {
    pub fn reserve(&self, id: ThreadId) -> StoreResult<super::registry::Reservation<'_, Live>> {
        self.live.reserve(id).ok_or_else(|| invalid(format!("thread {id} already has a live local writer")))
    }

    pub fn live(&self, id: ThreadId) -> StoreResult<Arc<Live>> {
        self.live.get(id).ok_or(ThreadStoreError::ThreadNotFound { thread_id: id })
    }

    pub fn take_lock(&self, id: ThreadId) -> StoreResult<WriterLock> {
        // Whoever takes a lock finishes what a crash left halfway: the thread may be between two places.
        if Changer::unfinished(&*self.disk, self.home.path()) {
            drop(self.changer().finish());
        }
        WriterLock::acquire(self.home.path(), id, &lock_note(self.clock.now())).map_err(lock_error)
    }

    /// Where a new rollout goes: by the writer's local time.
    pub fn new_path(&self, id: ThreadId, at: UtcMillis) -> PathBuf {
        self.stamped_path(id, &self.clock.local_stamp(at))
    }

    /// The same with the time as a name has it.
    pub fn stamped_path(&self, id: ThreadId, stamp: &str) -> PathBuf {
        let mut path = self.home.path().join("sessions");
        path.extend([stamp.get(..4), stamp.get(5..7), stamp.get(8..10)].into_iter().flatten());
        path.join(format!("rollout-{stamp}-{id}.jsonl"))
    }

    /// Whether a thread is there already. An id that was made just now can only be in the folder where it goes; for
    /// others the whole home is looked at.
    fn exists(&self, id: ThreadId, path: &Path) -> bool {
        const JUST_NOW_MS: i64 = 60_000;
        let age = id.v7_millis().map(|made| self.clock.now().0.saturating_sub(made));
        if age.is_some_and(|age| (0..JUST_NOW_MS).contains(&age)) {
            let text = id.to_string();
            let here = path.parent().and_then(|p| std::fs::read_dir(p).ok());
            return here
                .is_some_and(|mut d| d.any(|e| e.is_ok_and(|e| e.file_name().to_string_lossy().contains(&text))));
        }
        threadkeep_rollout::walk::walk(self.home.path()).files.iter().any(|f| f.name.id == Some(id))
    }

    pub fn create(&self, params: CreateThread) -> StoreResult<()> {
        self.create_at(params, None)
    }

    /// Creates a thread; `base` is where a fork's history continues another rollout, and the time of the last record
    /// there.
    pub fn create_at(
        &self,
        params: CreateThread,
        base: Option<(threadkeep_record::HistoryBase, UtcMillis)>,
    ) -> StoreResult<()> {
        let Some(cwd) = &params.metadata.cwd else { return Err(invalid("local thread store requires a cwd")) };
        if params.history_mode == HistoryMode::Unknown {
            return Err(invalid("history_mode must be legacy or paginated"));
        }
        let reservation = self.reserve(params.thread_id)?;
        let at = params.created_at.unwrap_or_else(|| self.clock.now());
        let path = self.new_path(params.thread_id, at);
        if self.exists(params.thread_id, &path) {
            return Err(invalid(format!("thread {} exists already", params.thread_id)));
        }
        let header = NewHeader {
            session_id: params.session_id,
            thread_id: params.thread_id,
            forked_from_id: params.forked_from_id,
            parent_thread_id: params.parent_thread_id,
            created_at: at,
            cwd: cwd.to_string_lossy().into_owned(),
            originator: params.originator.clone(),
            cli_version: env!("CARGO_PKG_VERSION").into(),
            source: params.source.clone(),
            thread_source: params.thread_source.clone(),
            model_provider: params.metadata.model_provider.clone(),
            base_instructions: params.base_instructions.clone(),
            dynamic_tools: params.dynamic_tools.clone(),
            capability_roots: params.selected_capability_roots.clone(),
            memory_mode: params.metadata.memory_mode.clone(),
            history_mode: params.history_mode,
            history_base: base.as_ref().map(|(b, _)| b.clone()),
            subagent_history_start_ordinal: params.subagent_history_start_ordinal,
            multi_agent_version: params.multi_agent_version.clone(),
            initial_window_id: params.initial_window_id.clone(),
            git: params.git.clone(),
            extra: params.extra.clone(),
        };
        let new = NewRollout {
            path,
            root: self.home.path().to_owned(),
            mode: params.history_mode,
            header: header.item(),
            first_ordinal: base.as_ref().map_or(0, |(b, _)| b.end_ordinal_exclusive),
        };
        let after = base.map_or(UtcMillis(0), |(_, last)| last);
        let writer = RolloutWriter::create(Arc::clone(&self.disk), new, self.durability).behind(after);
        let state = Mutex::new(Writing { writer, opened_at: 0, lock: None, closed: false });
        reservation.fill(Live { created: Some((params, at)), state });
        Ok(())
    }

    pub fn resume(&self, params: &ResumeThread) -> StoreResult<Resumed> {
        let id = params.thread_id;
        if params.metadata.cwd.is_none() {
            return Err(invalid("local thread store requires a cwd"));
        }
        let reservation = self.reserve(id)?;
        // The lock comes before the look at the files: what is found then stays so.
        let lock = self.take_lock(id)?;
        let (path, form) = match &params.rollout_path {
            Some(path) => self.given_path(id, path)?,
            None => self.rollout_of(id, params.archived)?,
        };
        let path = match form {
            Form::Zstd => {
                // What will be refused is not written out first.
                self.check_owner(&path, form, id)?;
                unpack(&*self.disk, &path).map_err(internal)?
            }
            Form::Plain => path,
            Form::Json => {
                return Err(invalid(format!(
                    "{} is a file of the TypeScript command, which is only read",
                    path.display()
                )));
            }
        };
        self.check_owner(&path, Form::Plain, id)?;
        let writer = RolloutWriter::resume(Arc::clone(&self.disk), &path, self.home.path(), self.durability)
            .map_err(write_error)?;
        let resumed = Resumed { history_mode: Some(writer.mode()), torn_tail: writer.found_torn() };
        let opened_at = writer.end();
        let state = Mutex::new(Writing { writer, opened_at, lock: Some(lock), closed: false });
        reservation.fill(Live { created: None, state });
        Ok(resumed)
    }

    /// A path that the caller gave, with the form of what is there.
    fn given_path(&self, id: ThreadId, path: &Path) -> StoreResult<(PathBuf, Form)> {
        let full = self.home.absolute(path);
        let failed = |why: &str| invalid(format!("failed to resolve rollout path `{}`: {why}", path.display()));
        let plain = if full.extension().is_some_and(|e| e == "zst") { full.with_extension("") } else { full.clone() };
        let packed = PathBuf::from(format!("{}.zst", plain.display()));
        match (plain.is_file(), packed.is_file()) {
            // As where the thread is looked for by id: the plain form counts, unless it was cut.
            (true, true) if compare(&plain, &packed) == Relation::Shorter => Err(shorter(id, &packed)),
            (true, true) => Ok((plain, Form::Plain)),
            (true, false) if plain == full => Ok((plain, Form::Plain)),
            (false, true) => Ok((packed, Form::Zstd)),
            _ if full.is_dir() => Err(failed("path is a directory")),
            _ if full.exists() => Err(failed("not a file")),
            _ => Err(failed("file does not exist")),
        }
    }

    /// The rollout that a writer of the thread appends to.
    fn rollout_of(&self, id: ThreadId, archived: Archived) -> StoreResult<(PathBuf, Form)> {
        let (catalog, row) = self.find(id, archived, Depth::HeadAndTail)?;
        let head = row.assembly.as_ref().map_or(0, |a| a.head);
        let Some(member) = row.members.get(head) else {
            return Err(invalid(format!("no rollout found for thread id {id}")));
        };
        let plain_is_shorter = row.assembly.iter().flat_map(|a| &a.notes).any(|(i, reason)| {
            let twin = row.members.get(*i).is_some_and(|m| m.entry.name.form == Form::Plain);
            twin && reason.to_string().contains("compressed form")
        });
        if member.entry.name.form == Form::Zstd && plain_is_shorter {
            return Err(shorter(id, &member.entry.path()));
        }
        Ok((member.entry.path_in(catalog.home.path()), member.entry.name.form))
    }

    /// A rollout belongs to the thread that its first header names.
    fn check_owner(&self, path: &Path, form: Form, id: ThreadId) -> StoreResult<()> {
        let facts =
            threadkeep_rollout::facts::read(path, form, 1, threadkeep_rollout::source::Follow::Links, Depth::Head);
        match facts.header.as_ref().and_then(|h: &SessionMeta| h.id) {
            Some(found) if found != id => {
                Err(internal(format!("rollout at {} belongs to thread {found}, not {id}", path.display())))
            }
            None if form == Form::Zstd => {
                Err(internal(format!("rollout at {} does not start with session metadata", path.display())))
            }
            // Without a header the writer tells what is wrong with the file.
            Some(_) | None => Ok(()),
        }
    }

    pub fn append(&self, id: ThreadId, items: &[NewItem]) -> StoreResult<Appended> {
        let live = self.live(id)?;
        let mut state = live.lock();
        match self.hold(id, &mut state) {
            // As with any append that fails but is not refused: the items are not lost and not to be given again.
            Err(e @ ThreadStoreError::Internal { .. }) => {
                state.writer.accept(items, self.clock.now());
                return Err(e);
            }
            held => held?,
        }
        let times = state.writer.append(items, self.clock.now()).map_err(write_error)?;
        Ok(Appended { times })
    }

    /// Takes the thread's lock, if the writer does not hold it yet.
    pub fn hold(&self, id: ThreadId, state: &mut Writing) -> StoreResult<()> {
        if state.closed {
            return Err(ThreadStoreError::ThreadNotFound { thread_id: id });
        }
        if state.lock.is_none() {
            state.lock = Some(self.take_lock(id)?);
        }
        Ok(())
    }

    /// Runs a step of a writer, with the thread's lock held.
    pub fn with_writer<R>(
        &self,
        id: ThreadId,
        live: &Live,
        step: impl FnOnce(&mut RolloutWriter, UtcMillis) -> Result<R, WriteError>,
    ) -> StoreResult<R> {
        let mut state = live.lock();
        self.hold(id, &mut state)?;
        step(&mut state.writer, self.clock.now()).map_err(write_error)
    }

    pub fn persist(&self, id: ThreadId) -> StoreResult<()> {
        let live = self.live(id)?;
        self.with_writer(id, &live, RolloutWriter::persist)
    }

    pub fn flush(&self, id: ThreadId) -> StoreResult<()> {
        let live = self.live(id)?;
        let idle = {
            let state = live.lock();
            !state.writer.is_made() && state.writer.queued() == 0
        };
        if idle { Ok(()) } else { self.with_writer(id, &live, RolloutWriter::flush) }
    }

    pub fn shutdown(&self, id: ThreadId) -> StoreResult<()> {
        let live = self.live(id)?;
        self.flush(id)?;
        self.close(id, &live);
        Ok(())
    }

    pub fn discard(&self, id: ThreadId) -> StoreResult<()> {
        let live = self.live(id)?;
        self.close(id, &live);
        Ok(())
    }

    /// Closes a writer. Its lock goes first, so that whoever finds the thread free can open it.
    pub fn close(&self, id: ThreadId, live: &Arc<Live>) {
        let mut state = live.lock();
        state.closed = true;
        state.lock = None;
        drop(state);
        self.live.remove(id, live);
    }

    pub fn live_path(&self, id: ThreadId) -> StoreResult<PathBuf> {
        Ok(self.live(id)?.path())
    }
}
