//! Taking back the last revert of a thread behind which nothing was said: the record that says it goes from a legacy
//! rollout, and of a paginated thread the rollout that it began, which holds nothing but its header.

use std::path::{Path, PathBuf};

use threadkeep_record::{Envelope, HistoryMode, Item, ItemBody, Kind, SessionMeta, ThreadId};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::lineage::{Member, assemble};
use threadkeep_rollout::locks::WriterLocks;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::LineReader;
use threadkeep_rollout::reverse::ReverseReader;
use threadkeep_rollout::seam::OpenMode;
use threadkeep_rollout::source::Follow;
use threadkeep_store::{Archived, StoreResult, StoredThread, WithHistory};

use super::model_context::header_record;
use super::update::codex_error;
use super::writing::held;
use super::{Inner, internal, invalid};
use crate::change::{plain, relations::Relations};
use crate::lookup::OpenThread;
use crate::row;
use crate::turn_index::TurnIndex;

/// What taking back a revert will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnrevertPlan {
    /// The thread.
    pub thread_id: ThreadId,
    /// Turns that count again.
    pub turns: u64,
    /// What happens to which file.
    pub file: UnrevertedFile,
    /// Codex's database, where it names the file that a thread goes on in, and the file that it is to name.
    pub database: Option<(PathBuf, PathBuf)>,
}

/// The file of a revert that is taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnrevertedFile {
    /// This rollout loses its last record.
    Shortened {
        /// The rollout.
        path: PathBuf,
        /// Its size, bytes.
        from: u64,
        /// Its size then: where that record begins.
        to: u64,
    },
    /// This rollout goes.
    Removed(PathBuf),
}

impl Inner {
    /// What taking back the last revert would do, or why it would be refused; nothing is changed.
    pub fn plan_unrevert(&self, id: ThreadId) -> StoreResult<UnrevertPlan> {
        if self.live.get(id).is_some() {
            return Err(invalid(format!("thread {id} is being written; its revert is not taken back")));
        }
        if let Some(holder) = WriterLocks::read(self.home.path()).holder(id) {
            return Err(held(id, Some(holder)));
        }
        self.find_unrevert(id)
    }

    /// Takes back a revert as it was planned. What was planned for is looked at again under the thread's lock.
    pub fn unrevert(&self, plan: &UnrevertPlan) -> StoreResult<StoredThread> {
        let id = plan.thread_id;
        {
            let _reservation = self.reserve(id)?;
            let _lock = self.take_lock(id)?;
            if self.find_unrevert(id)? != *plan {
                return Err(invalid(format!("thread {id} changed meanwhile; its revert was not taken back")));
            }
            match &plan.file {
                UnrevertedFile::Shortened { path, from, to } => {
                    let mut file = self.disk.open(path, OpenMode::Existing).map_err(internal)?;
                    // Older releases of Codex take no lock; what they just wrote is not cut off.
                    if file.state().map_err(internal)?.size != *from {
                        return Err(invalid(format!("thread {id} is being written; its revert was not taken back")));
                    }
                    file.set_size(*to).and_then(|()| file.sync_data()).map_err(internal)?;
                }
                UnrevertedFile::Removed(path) => self.remove_segment(id, path, plan.database.as_ref())?,
            }
        }
        self.read(id, Archived::Excluded, WithHistory::No)
    }

    fn find_unrevert(&self, id: ThreadId) -> StoreResult<UnrevertPlan> {
        let open = self.open_made(id, Archived::Excluded, Depth::HeadAndTail)?;
        if open.row.thread.archived {
            return Err(invalid(format!("thread {id} is archived")));
        }
        let own = open.history.spans.iter().rfind(|s| !s.inherited);
        let header = own.and_then(header_record);
        let mode = header.as_deref().and_then(SessionMeta::parse).and_then(|h| h.history_mode);
        match mode.unwrap_or(HistoryMode::Legacy) {
            HistoryMode::Paginated => self.find_segment(id, &open),
            HistoryMode::Legacy => find_record(id, &open),
            HistoryMode::Unknown => Err(invalid(format!(
                "thread {id} is kept in a history mode that this version does not know; nothing is taken back"
            ))),
        }
    }

    /// The rollout that a revert began.
    fn find_segment(&self, id: ThreadId, open: &OpenThread) -> StoreResult<UnrevertPlan> {
        let row = &open.row;
        let head = row.assembly.as_ref().and_then(|a| row.members.get(a.head));
        let Some((head, segment)) = head.and_then(|m| Some((m, m.entry.name.segment?))) else {
            return Err(not_reverted(id));
        };
        let path = head.entry.path_in(self.home.path());
        if !path.starts_with(self.home.path()) {
            return Err(invalid(format!("thread {id} is written outside the home; nothing is taken back")));
        }
        if !says_nothing(&path, head.entry.name.form)? {
            return Err(went_on(id));
        }
        let catalog = &open.catalogs[open.home];
        let relations = Relations::of(catalog);
        let needing = relations.needing(id);
        if needing.iter().any(|other| relations.continues(*other, segment)) {
            return Err(invalid(format!("a fork of thread {id} refers to its revert; it is not taken back")));
        }
        let before: Vec<Member> = row.members.iter().filter(|m| m.entry.path() != head.entry.path()).cloned().collect();
        let former = assemble(&catalog.home, Some(id), &before).head;
        let history = row::history(catalog, Some(id), &before, former);
        let standing = |index: &TurnIndex| index.turns.iter().filter(|t| !t.taken_back).count() as u64;
        let turns = standing(&TurnIndex::build(&history)).saturating_sub(standing(&open.turn_index()));
        let former = before.get(former).ok_or_else(|| not_reverted(id))?.entry.path_in(self.home.path());
        // Codex knows a rollout by its plain name.
        let former = plain(&former);
        let database = self.codex().rollout_path(id).map(|(database, _)| (database, former));
        Ok(UnrevertPlan { thread_id: id, turns, file: UnrevertedFile::Removed(path), database })
    }

    /// Takes a rollout that says nothing away, and tells Codex's database where the thread goes on: both or neither.
    fn remove_segment(&self, id: ThreadId, path: &Path, database: Option<&(PathBuf, PathBuf)>) -> StoreResult<()> {
        let folder = path.parent().unwrap_or(path);
        let aside = folder.join(format!(".threadkeep-{}.tmp", ThreadId::new_v7()));
        let disk = &*self.disk;
        let mut moved = false;
        let mut hide = || {
            disk.rename_new(path, &aside)?;
            moved = true;
            disk.sync_dir(folder)
        };
        let codex = self.codex();
        let named = database.and_then(|(_, former)| Some((codex.rollout_path(id)?.1, former)));
        let done = match named {
            None => hide().map_err(internal),
            Some((old, former)) => match codex.set_rollout_path(id, &self.as_codex_spells(&old, former), &mut hide) {
                Ok(done) => done.map(|_| ()).map_err(internal),
                Err(e) => Err(codex_error(e)),
            },
        };
        match done {
            Ok(()) => disk.remove(&aside).and_then(|()| disk.sync_dir(folder)).map_err(internal),
            Err(e) => {
                if moved {
                    let _ = disk.rename_new(&aside, path).and_then(|()| disk.sync_dir(folder));
                }
                Err(e)
            }
        }
    }
}

/// The record of a revert at the end of a legacy rollout.
fn find_record(id: ThreadId, open: &OpenThread) -> StoreResult<UnrevertPlan> {
    let Some(span) = open.history.spans.last().filter(|s| !s.inherited) else { return Err(not_reverted(id)) };
    if span.form != Form::Plain {
        let path = span.path.display();
        return Err(invalid(format!("{path} is compressed; nothing is taken back before the thread went on")));
    }
    let file = std::fs::File::open(&span.path).map_err(internal)?;
    let size = file.metadata().map_err(internal)?.len();
    let mut lines = ReverseReader::new(&file, size, 4096);
    let Some(line) = lines.next_line().map_err(internal)?.filter(|l| l.terminated && !l.long) else {
        return Err(not_reverted(id));
    };
    let record = Envelope::parse(line.bytes).ok_or_else(|| not_reverted(id))?;
    match Item::parse(&record).body {
        // A record that takes no turn back is none of a revert's.
        ItemBody::RolledBack { turns } if turns > 0 => {
            let file = UnrevertedFile::Shortened { path: span.path.clone(), from: size, to: line.offset };
            Ok(UnrevertPlan { thread_id: id, turns, file, database: None })
        }
        _ => Err(not_reverted(id)),
    }
}

/// Whether a rollout holds nothing but headers and settings.
fn says_nothing(path: &Path, form: Form) -> StoreResult<bool> {
    const BUFFER: usize = 64 << 10;
    let mut lines = LineReader::open(path, form, Follow::Nothing, BUFFER).map_err(internal)?;
    while let Some(line) = lines.next_line() {
        let silent = Envelope::parse(line.bytes).is_some_and(|e| {
            e.kind == Kind::SessionMeta || e.payload_type().is_some_and(|t| t == "thread_settings_applied")
        });
        if line.long || !silent {
            return Ok(false);
        }
    }
    lines.error().map_or(Ok(true), |e| Err(internal(e)))
}

fn not_reverted(id: ThreadId) -> threadkeep_store::ThreadStoreError {
    invalid(format!("thread {id} does not end in a revert; nothing is taken back"))
}

fn went_on(id: ThreadId) -> threadkeep_store::ThreadStoreError {
    invalid(format!("thread {id} went on after its revert; nothing is taken back"))
}
