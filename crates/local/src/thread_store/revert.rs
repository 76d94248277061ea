//! Taking turns back (`thread-store.md` 9.1, `codex-0.171.md` 1): a legacy rollout gets a record that says so, a
//! paginated thread goes on in another rollout, whose header names the records that it continues.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use threadkeep_record::turns::TurnStatus;
use threadkeep_record::{HistoryBase, HistoryMode, NewItem, SessionMeta, ThreadId, UtcMillis, continued_header};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::lineage::Member;
use threadkeep_rollout::locks::WriterLocks;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::new_file::NewFile;
use threadkeep_rollout::writer::RolloutWriter;
use threadkeep_store::fork::{BEFORE_TURN, standing, still_runs};
use threadkeep_store::{
    Archived, HostMetadata, ResumeThread, StoreResult, StoredThread, ThreadStoreError, WithHistory, stamp_after,
};

use super::convert::plain_path;
use super::fork::{Cut, base, before, turn_id};
use super::model_context::header_record;
use super::update::codex_error;
use super::writing::{Live, held, write_error};
use super::{Inner, internal, invalid};
use crate::lookup::OpenThread;

/// A live writer's thread is looked at again if something was written meanwhile, so many times.
const TRIES: usize = 32;

/// What a revert will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevertPlan {
    /// The thread.
    pub thread_id: ThreadId,
    /// The id of the first turn that is taken back.
    pub before_turn: String,
    /// Turns that are taken back, that one included.
    pub turns: u64,
    /// The file that is written.
    pub file: RevertedFile,
    /// Codex's database, where it names the file that a thread goes on in.
    pub database: Option<PathBuf>,
}

/// The file that a revert writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RevertedFile {
    /// This rollout gets another record.
    Appended(PathBuf),
    /// This rollout is made.
    Made(PathBuf),
}

/// What a thread is when it is to be reverted.
struct Found {
    open: OpenThread,
    mode: HistoryMode,
    /// Turns that are taken back, and what a record has to say for it.
    turns: u64,
    num_turns: u64,
    /// The last turn where it has no end: its id, and the span and offset that it begins at.
    unended: Option<(String, usize, u64)>,
    /// How a paginated thread goes on.
    next: Option<Next>,
}

/// The header of a paginated thread's next rollout, and what stands before it.
struct Next {
    header: Vec<u8>,
    cut: Cut,
    base: HistoryBase,
    /// Later than everything that any of the thread's records says.
    at: UtcMillis,
}

impl Inner {
    /// What a revert would do, or why it would be refused; nothing is changed.
    pub fn plan_revert(&self, id: ThreadId, before_turn: &str) -> StoreResult<RevertPlan> {
        let found = self.find_revert(id, before_turn)?;
        match self.live.get(id) {
            Some(live) => not_running(id, &found, &live)?,
            None => {
                if let Some(holder) = WriterLocks::read(self.home.path()).holder(id) {
                    return Err(held(id, Some(holder)));
                }
            }
        }
        let no_file = || internal(format!("thread {id} has no rollout"));
        let (file, database) = match found.mode {
            HistoryMode::Paginated => {
                let made = self.segment_path(id, ThreadId::new_v7(), &found.open.row.members);
                (RevertedFile::Made(made), self.codex().rollout_path(id).map(|(database, _)| database))
            }
            HistoryMode::Legacy | HistoryMode::Unknown => {
                (RevertedFile::Appended(plain_path(&found.open).ok_or_else(no_file)?), None)
            }
        };
        Ok(RevertPlan { thread_id: id, before_turn: before_turn.to_owned(), turns: found.turns, file, database })
    }

    /// Reverts a thread as it was planned. What was planned for is looked at again under the thread's lock.
    pub fn revert(&self, plan: &RevertPlan) -> StoreResult<StoredThread> {
        let id = plan.thread_id;
        match (&plan.file, self.live.get(id)) {
            (_, Some(live)) => self.revert_live(plan, &live)?,
            (RevertedFile::Made(path), None) => {
                let _reservation = self.reserve(id)?;
                let _lock = self.take_lock(id)?;
                let found = self.find_revert(id, &plan.before_turn)?;
                self.make_segment(id, found.next(id)?, &found.open, path)?;
            }
            (RevertedFile::Appended(_), None) => {
                let metadata = HostMetadata { cwd: Some("/".into()), ..HostMetadata::default() };
                let archived = Archived::Excluded;
                self.resume(&ResumeThread { thread_id: id, rollout_path: None, archived, metadata })?;
                let done = self.live(id).and_then(|live| self.revert_live(plan, &live));
                self.discard(id)?;
                done?;
            }
        }
        self.read(id, Archived::Excluded, WithHistory::No)
    }

    /// Reverts a thread that this store writes.
    fn revert_live(&self, plan: &RevertPlan, live: &Arc<Live>) -> StoreResult<()> {
        let id = plan.thread_id;
        for _ in 0..TRIES {
            // What was accepted stands before the revert.
            self.flush(id)?;
            let seen = live.lock().place();
            let found = self.find_revert(id, &plan.before_turn)?;
            not_running(id, &found, live)?;
            let mut state = live.lock();
            self.hold(id, &mut state)?;
            if state.place() != seen || state.writer.queued() > 0 {
                continue;
            }
            if found.mode != HistoryMode::Paginated {
                let item = NewItem::rolled_back(found.num_turns);
                let now = self.clock.now();
                let done = state.writer.append_or_drop(&[item], now).and_then(|_| state.writer.flush(now));
                return done.map_err(write_error);
            }
            let RevertedFile::Made(path) = &plan.file else {
                return Err(internal(format!("thread {id} changed its history mode")));
            };
            let next = found.next(id)?;
            self.make_segment(id, next, &found.open, path)?;
            let opened = RolloutWriter::resume(Arc::clone(&self.disk), path, self.home.path(), self.durability);
            return match opened {
                Ok(writer) => {
                    state.go_on_with(writer.behind(next.at));
                    Ok(())
                }
                Err(e) => {
                    drop(state);
                    // The former writer would write where nobody reads any more.
                    self.close(id, live);
                    Err(internal(format!("thread {id} was reverted, and its writer was closed: {e}")))
                }
            };
        }
        Err(ThreadStoreError::Conflict {
            message: format!("thread {id} is being written all the time; it was not reverted"),
        })
    }

    fn find_revert(&self, id: ThreadId, before_turn: &str) -> StoreResult<Found> {
        let open = self.open_made(id, Archived::Excluded, Depth::HeadAndTail)?;
        if open.row.thread.archived {
            // A live writer's rollout is found wherever it is.
            return Err(invalid(format!("thread {id} is archived")));
        }
        if let Some(span) = open.history.spans.iter().find(|s| s.form == Form::Json) {
            let path = span.path.display();
            return Err(invalid(format!("{path} is a file of the TypeScript command, which is only read")));
        }
        let header = open.history.spans.iter().rfind(|s| !s.inherited).and_then(header_record);
        let meta = header.as_deref().and_then(SessionMeta::parse);
        let mode = meta.as_ref().and_then(|h| h.history_mode).unwrap_or(HistoryMode::Legacy);
        if mode == HistoryMode::Unknown {
            return Err(invalid(format!(
                "thread {id} is kept in a history mode that this version does not know; it is not reverted"
            )));
        }
        let index = open.turn_index();
        let named = index.turns.iter().enumerate().filter(|(_, t)| turn_id(t) == before_turn);
        let at = standing(named.map(|(i, t)| (i, t.taken_back)), BEFORE_TURN, before_turn)?;
        let turn = &index.turns[at];
        let turns = index.turns[at..].iter().filter(|t| !t.taken_back).count() as u64;
        let last = index.turns.last().filter(|t| t.status == TurnStatus::InProgress && !t.taken_back);
        let unended = last.map(|t| (turn_id(t), t.span, t.offset));
        let next = match (mode, header) {
            (HistoryMode::Paginated, Some(header)) => {
                let mut cut = Cut { at: Some(before(&open, turn)), running: None };
                let (mut prefix, mut last) = base(&open, &cut)?;
                let context_end = meta.and_then(|h| h.subagent_history_start_ordinal);
                if context_end.is_some_and(|end| prefix.end_ordinal_exclusive < end) {
                    // What the model was given before the first turn is context that is not taken back with it.
                    cut.at = Some((turn.span, turn.offset));
                    (prefix, last) = base(&open, &cut)?;
                }
                let of_header = |h: &SessionMeta| h.record_time.or(h.created_at);
                let times = open.row.members.iter().map(|m| &m.facts);
                let times = times.flat_map(|f| [f.last_time, f.header.as_ref().and_then(of_header)]);
                let last = times.flatten().fold(last, UtcMillis::max);
                let at = self.clock.now().max(UtcMillis(last.0.saturating_add(1)));
                Some(Next { header, cut, base: prefix, at })
            }
            _ => None,
        };
        let num_turns = turns - u64::from(index.last_waits);
        Ok(Found { mode, turns, num_turns, unended, next, open })
    }

    /// Where another rollout of a thread goes. Its name is later than those of the others, by whatever clock they were
    /// made: of a thread that it has no row of, Codex goes on in the rollout with the latest name, and in any of two
    /// that are named with the same second.
    fn segment_path(&self, id: ThreadId, segment: ThreadId, others: &[Member]) -> PathBuf {
        let others = others.iter().filter_map(|m| m.entry.name.stamp.as_ref());
        let latest = others.max().and_then(|s| stamp_after(std::str::from_utf8(s).ok()?));
        let stamp = self.clock.local_stamp(self.clock.now());
        let mut path = self.stamped_path(id, &latest.map_or(stamp.clone(), |l| l.max(stamp)));
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        path.set_file_name(format!("{stem}_{segment}.jsonl"));
        path
    }

    /// Makes the rollout that a paginated thread goes on in, and tells Codex's database of it: both or neither. The
    /// caller holds the thread's lock.
    fn make_segment(&self, id: ThreadId, next: &Next, open: &OpenThread, path: &Path) -> StoreResult<()> {
        if open.history.spans.last().is_some_and(|s| !s.path.starts_with(self.home.path())) {
            return Err(invalid(format!("thread {id} is written outside the home; it is not reverted")));
        }
        let header = continued_header(&next.header, &next.base, next.at)
            .ok_or_else(|| internal(format!("thread {id} has no header that can be continued")))?;
        let mut record = header.record(next.at, Some(next.base.end_ordinal_exclusive));
        record.push(b'\n');
        self.sync_bases(open, &next.cut)?;
        let temporary = format!(".threadkeep-{}.tmp", ThreadId::new_v7());
        let file = NewFile::write(&*self.disk, path, &temporary, self.home.path(), &record).map_err(internal)?;
        let codex = self.codex();
        let named = codex.rollout_path(id).map(|(_, old)| self.as_codex_spells(&old, path));
        let mut made = false;
        let publish = || file.publish().map(|()| made = true);
        let done = match named {
            None => publish().map_err(internal),
            Some(named) => match codex.set_rollout_path(id, &named, publish) {
                Ok(done) => done.map(|_| ()).map_err(internal),
                Err(e) => Err(codex_error(e)),
            },
        };
        if done.is_err() && made {
            // The database did not take it in the end: Codex would go on in the former rollout.
            let _ = self.disk.remove(path);
        }
        done
    }

    /// A path of the home as Codex's database has it: in the spelling of the home that is there.
    pub(super) fn as_codex_spells(&self, old: &str, path: &Path) -> String {
        let relative = self.home.relative(path);
        let home = std::fs::canonicalize(self.home.path()).unwrap_or_else(|_| self.home.path().to_owned());
        let mut above = Path::new(old).ancestors().skip(1);
        let spelt = above.find(|p| std::fs::canonicalize(p).is_ok_and(|p| p == home));
        spelt.unwrap_or(&home).join(relative).to_string_lossy().into_owned()
    }
}

impl Found {
    fn next(&self, id: ThreadId) -> StoreResult<&Next> {
        self.next.as_ref().ok_or_else(|| internal(format!("thread {id} has no header that can be continued")))
    }
}

/// Refuses while a turn runs that began through a live writer.
fn not_running(id: ThreadId, found: &Found, live: &Live) -> StoreResult<()> {
    let Some((turn, span, offset)) = &found.unended else { return Ok(()) };
    let in_head = *span + 1 == found.open.history.spans.len();
    if in_head && *offset >= live.lock().opened_at { Err(still_runs(id, turn)) } else { Ok(()) }
}
