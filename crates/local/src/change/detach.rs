//! Detaching: a thread whose history refers to rollouts of other threads is written as one file that has all of it, so
//! that those threads can go. See `docs/decisions/0007-detach.md` for the form and why Codex takes it.
//!
//! Nothing of the thread changes here. [`stage`] writes the new file under a name that is no rollout's, [`verify`]
//! reads it back; whoever calls holds the thread's writer lock from before its files were looked at until the staged
//! file has its name, and makes the swap.

mod header;
mod walk;

use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use threadkeep_record::turns::TurnStatus;
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::facts::{self, Depth};
use threadkeep_rollout::home::Home;
use threadkeep_rollout::lineage::{History, Member, Span};
use threadkeep_rollout::name::{Form, RolloutName};
use threadkeep_rollout::seam::{Disk, DiskFile, OpenMode};
use threadkeep_rollout::source::Follow;
use threadkeep_rollout::walk::Place;
use threadkeep_store::Clock;

use crate::lookup::OpenThread;
use crate::turn_index::{TurnEntry, TurnIndex};

/// Why a thread is not detached. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    /// A part of its history is not there, so a file without it would lose it for good.
    #[error("thread {id} cannot be detached: {}", what.join("; "))]
    Missing {
        /// The thread.
        id: ThreadId,
        /// What is missing, each with its id and ordinal.
        what: Vec<String>,
    },
    /// It has no file, or no id.
    #[error("thread {id} has no rollout")]
    NoFiles {
        /// The thread.
        id: ThreadId,
    },
    /// A file of its history cannot be taken over.
    #[error("{} cannot be taken over: {why}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A file of its history cannot be read, or not to its end.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The new rollout cannot be written.
    #[error("cannot write the detached rollout: {source}")]
    Write {
        /// What the system said.
        source: io::Error,
    },
    /// The new rollout cannot be put down.
    #[error("cannot {what} {}: {source}", path.display())]
    Disk {
        /// What was tried.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The new rollout does not say what the history says.
    #[error("{} differs from the history it was made from: {what}", path.display())]
    Differs {
        /// The new file.
        path: PathBuf,
        /// Where or in what.
        what: String,
    },
}

/// What a history was written as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flattened {
    /// Lines, the header included.
    pub lines: u64,
    /// Bytes.
    pub bytes: u64,
    /// Places of other headers that a placeholder holds.
    pub headers: u64,
    /// Torn tails that were left out.
    pub torn: u64,
}

/// What a thread's files refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// One rollout has all of its history: there is nothing to do. Forks that copied their parent are so, too.
    SelfContained,
    /// Several rollouts, all its own (it was reverted): no other thread is needed.
    OwnRollouts,
    /// Rollouts of other threads: its history goes through them, or an abandoned rollout of it does.
    OtherThreads,
}

/// A thread that is to be detached.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Its id.
    pub id: ThreadId,
    /// Its files.
    pub members: &'a [Member],
    /// Index of its head in them.
    pub head: usize,
    /// Its history.
    pub history: &'a History,
}

impl<'a> Subject<'a> {
    /// A thread that was opened; `None` for files without an id.
    #[must_use]
    pub fn of(open: &'a OpenThread) -> Option<Self> {
        let head = open.row.assembly.as_ref().map_or(0, |a| a.head);
        Some(Self { id: open.row.thread.id?, members: &open.row.members, head, history: &open.history })
    }

    /// What its files refer to.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let own = |base: ThreadId| base == self.id || self.members.iter().any(|m| m.entry.name.segment == Some(base));
        let refers = |m: &Member| {
            let header = m.facts.header.as_ref();
            header.is_some_and(|h| h.base_is_unread || h.history_base.as_ref().is_some_and(|b| !own(b.thread_id)))
        };
        let inherited = self.history.spans.iter().any(|s| s.inherited);
        if inherited || !self.history.missing.is_empty() || self.members.iter().any(refers) {
            Standing::OtherThreads
        } else if self.history.spans.len() > 1 {
            Standing::OwnRollouts
        } else {
            Standing::SelfContained
        }
    }
}

/// Writes a history as one self-contained rollout: the header of its newest rollout, without a base, at ordinal 0 and
/// with the time at which the thread was made; and every other line of every part with its bytes, up to where each part
/// ends. Other headers become token counts without counts, since a second header in a file hides what is before it from
/// the model; a torn tail of a part is left out. Memory is bounded: long records are streamed.
///
/// # Errors
///
/// Where a part is missing, cut, unreadable, or kept in another way than the thread. Something may have been written.
pub fn flatten(subject: &Subject<'_>, into: &mut dyn Write) -> Result<Flattened, DetachError> {
    walk::write(subject, into)
}

/// Checks a detached rollout against the history it was made from: every byte; then, as a reader sees it, the header,
/// damage, and the turns.
///
/// # Errors
///
/// [`DetachError::Differs`], and those of [`flatten`].
pub fn verify(subject: &Subject<'_>, written: &Path) -> Result<Flattened, DetachError> {
    let id = subject.id;
    let differs = |what: String| DetachError::Differs { path: written.to_owned(), what };
    let unreadable = |source| DetachError::Read { path: written.to_owned(), source };
    let file = std::fs::File::open(written).map_err(unreadable)?;
    let mut comparer = Comparer { file: BufReader::with_capacity(1 << 20, file), at: 0, part: Vec::new() };
    let flattened = flatten(subject, &mut comparer).map_err(|e| match e {
        DetachError::Write { source } => differs(source.to_string()),
        other => other,
    })?;
    if comparer.file.read(&mut [0]).map_err(unreadable)? != 0 {
        return Err(differs(format!("it goes on behind byte {}", flattened.bytes)));
    }

    let read = |depth| facts::read(written, Form::Plain, flattened.bytes, Follow::Nothing, depth);
    let facts = read(Depth::Head);
    let header = facts.header.as_ref();
    if header.and_then(|h| h.id) != Some(id) || header.is_some_and(|h| h.history_base.is_some()) {
        return Err(differs("its header".into()));
    }
    let span = Span {
        path: written.to_owned(),
        shown: written.to_owned(),
        form: Form::Plain,
        follow: Follow::Nothing,
        thread_id: Some(id),
        rollout_id: Some(id),
        end: None,
        inherited: false,
    };
    let alone = History { spans: vec![span], ..History::default() };
    let (was, is) = (turns(subject.history), turns(&alone));
    // Turns in the context of a parent agent are no turns of the thread; as a part of another thread's they were told.
    let context = header.is_some_and(|h| h.subagent_history_start_ordinal.is_some());
    if was.ends_with(&is) && (context || was.len() == is.len()) {
        Ok(flattened)
    } else {
        Err(differs(format!("it has {} turns in place of {}, or others", is.len(), was.len())))
    }
}

/// What is the same of a turn wherever it stands.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    id: Option<String>,
    status: TurnStatus,
    times: [Option<UtcMillis>; 2],
    taken_back: bool,
}

fn turns(history: &History) -> Vec<Told> {
    let told = |t: TurnEntry| Told {
        id: t.id,
        status: t.status,
        times: [t.started_at, t.completed_at],
        taken_back: t.taken_back,
    };
    TurnIndex::build(history).turns.into_iter().map(told).collect()
}

/// Takes what would be written, and compares it with a file.
struct Comparer<R> {
    file: R,
    at: u64,
    part: Vec<u8>,
}

impl<R: Read> Write for Comparer<R> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(1 << 20);
        self.part.resize(n, 0);
        self.file.read_exact(&mut self.part)?;
        if let Some(i) = self.part.iter().zip(bytes).position(|(a, b)| a != b) {
            return Err(io::Error::other(format!("at byte {}", self.at + i as u64)));
        }
        self.at += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A detached rollout that has everything but its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Staged {
    /// Where it is: beside its place, under a name that no reader takes for a rollout.
    pub temporary: PathBuf,
    /// Its name, which nothing has yet.
    pub target: PathBuf,
    /// The id of the new rollout, which a later fork of the thread names as its base.
    pub rollout_id: ThreadId,
    /// What was written.
    pub flattened: Flattened,
}

/// Writes the detached rollout of a thread and makes it durable under a temporary name. It has the head's modification
/// time, so that lists by that time stay as they are. After an error nothing is left.
///
/// # Errors
///
/// Those of [`flatten`], and of the disk.
pub fn stage(disk: &dyn Disk, home: &Home, subject: &Subject<'_>, clock: &dyn Clock) -> Result<Staged, DetachError> {
    let Some(head) = subject.members.get(subject.head) else { return Err(DetachError::NoFiles { id: subject.id }) };
    if head.entry.place == Place::Outside {
        return Err(DetachError::Refused { path: head.entry.path(), why: "it is not in the home".into() });
    }
    let rollout_id = newest_id(subject.members);
    let target = target(home, subject.id, head, rollout_id, clock);
    let folder = target.parent().unwrap_or(home.path()).to_owned();
    // Searches for a thread by its id look for names that contain it.
    let temporary = folder.join(format!("detach-{rollout_id}.tmp"));
    let failed = |what: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| DetachError::Disk { what, path, source }
    };
    disk.create_dir_all(&folder).map_err(failed("make", &folder))?;
    let file = disk.open(&temporary, OpenMode::New).map_err(failed("make", &temporary))?;
    let mut into = BufWriter::with_capacity(1 << 20, Appending { file, at: 0 });
    let done = flatten(subject, &mut into).and_then(|flattened| {
        let file = &mut into.get_mut().file;
        let modified = SystemTime::UNIX_EPOCH + Duration::from_nanos(u64::try_from(head.entry.mtime_ns).unwrap_or(0));
        // Only a sign for lists: where it cannot be set, the thread looks changed.
        let _ = file.set_modified(modified);
        file.sync_data().map_err(failed("make durable", &temporary))?;
        for folder in folder.ancestors().take_while(|f| f.starts_with(home.path())) {
            disk.sync_dir(folder).map_err(failed("make durable", folder))?;
        }
        Ok(flattened)
    });
    // What is still buffered after a failure is not to be written.
    drop(into.into_parts());
    match done {
        Ok(flattened) => Ok(Staged { temporary, target, rollout_id, flattened }),
        Err(e) => {
            let _ = disk.remove(&temporary);
            Err(e)
        }
    }
}

/// A new id that is behind those of all rollouts of the thread, also where the clock was set back: the newest rollout is
/// the head.
fn newest_id(members: &[Member]) -> ThreadId {
    let new = ThreadId::new_v7();
    let last = members.iter().filter_map(|m| m.entry.name.segment?.v7_millis()).max();
    match (last, new.v7_millis()) {
        (Some(last), Some(now)) if now <= last => {
            let mut bytes = *new.as_bytes();
            bytes[..6].copy_from_slice(&(last + 1).to_be_bytes()[2..]);
            ThreadId::from_bytes(bytes)
        }
        _ => new,
    }
}

/// Where the rollout goes: into the archive if the thread is there, otherwise into the folder of its day. It keeps the
/// time in the head's name, by which lists are sorted; where that is no time, the thread's creation counts.
fn target(home: &Home, id: ThreadId, head: &Member, rollout_id: ThreadId, clock: &dyn Clock) -> PathBuf {
    let named = head.entry.name.stamp.filter(|stamp| {
        let text = String::from_utf8_lossy(stamp);
        let (day, time) = text.split_at_checked(10).unwrap_or_default();
        UtcMillis::parse(&format!("{day}{}.000Z", time.replace('-', ":"))).is_some()
    });
    let made = || {
        let header = head.facts.header.as_ref();
        let at = header.and_then(|h| h.created_at.or(h.record_time)).or_else(|| id.v7_millis().map(UtcMillis));
        clock.local_stamp(at.unwrap_or_else(|| clock.now())).into_bytes().try_into().ok()
    };
    let stamp: [u8; 19] = named.or_else(made).unwrap_or(*b"1970-01-01T00-00-00");
    let name =
        RolloutName { id: Some(id), segment: Some(rollout_id), form: Form::Plain, stamp: Some(stamp), canonical: true };
    let mut path = home.path().to_owned();
    if head.entry.place == Place::Archived {
        path.push("archived_sessions");
    } else {
        path.push("sessions");
        let text = String::from_utf8_lossy(&stamp);
        path.extend([text.get(..4), text.get(5..7), text.get(8..10)].into_iter().flatten());
    }
    path.join(name.file_name().unwrap_or_default())
}

/// Writes at the end of a new file.
struct Appending {
    file: Box<dyn DiskFile>,
    at: u64,
}

impl Write for Appending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write_at(bytes, self.at)?;
        self.at += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
