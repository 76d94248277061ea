//! `session_index.jsonl`: the names of threads, appended; the last line of an id wins.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;
use threadkeep_record::{ThreadId, UtcMillis};

use crate::appender::{AppendError, Appender, Durability};
use crate::locks::{self, Holder};
use crate::name::Form;
use crate::records::{BUFFER, LineReader};
use crate::seam::{Disk, OpenMode};
use crate::source::Follow;

/// The file in a home.
pub const FILE: &str = "session_index.jsonl";

/// The names of a home.
#[derive(Debug, Default, Clone)]
pub struct NameIndex {
    /// For each id its newest name and the line it stands on; an empty name was cleared.
    names: HashMap<ThreadId, (String, u64)>,
    /// Lines that could not be read, with number and offset.
    pub bad_lines: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
struct Entry<'a> {
    id: ThreadId,
    #[serde(borrow)]
    thread_name: std::borrow::Cow<'a, str>,
}

impl NameIndex {
    /// Reads the file; a home without one has no names. The file may be a link (task homes link it).
    pub fn read(home: &Path) -> io::Result<Self> {
        let mut index = Self::default();
        let mut lines = match LineReader::open(&home.join(FILE), Form::Plain, Follow::Links, BUFFER) {
            Ok(lines) => lines,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(index),
            Err(e) => return Err(e),
        };
        while let Some(line) = lines.next_line() {
            let text = line.bytes.trim_ascii();
            if text.is_empty() {
                continue;
            }
            match serde_json::from_slice::<Entry<'_>>(text) {
                Ok(e) => {
                    index.names.insert(e.id, (e.thread_name.trim().to_owned(), line.number));
                }
                Err(_) => index.bad_lines.push((line.number, line.offset)),
            }
        }
        match lines.error() {
            Some(e) => Err(io::Error::new(e.kind(), e.to_string())),
            None => Ok(index),
        }
    }

    /// What the index says of a thread: `None` nothing, `Some("")` that its name was cleared.
    #[must_use]
    pub fn entry(&self, id: ThreadId) -> Option<&str> {
        self.names.get(&id).map(|(name, _)| name.as_str())
    }

    /// The line of the index that says it, from 1.
    #[must_use]
    pub fn line(&self, id: ThreadId) -> Option<u64> {
        self.names.get(&id).map(|(_, line)| *line)
    }

    /// All ids with a name, newest entry first.
    #[must_use]
    pub fn named(&self) -> Vec<(ThreadId, &str)> {
        let mut all: Vec<_> = self.names.iter().filter(|(_, (name, _))| !name.is_empty()).collect();
        all.sort_by_key(|(id, (_, line))| (std::cmp::Reverse(*line), **id));
        all.into_iter().map(|(id, (name, _))| (*id, name.as_str())).collect()
    }
}

/// Why a name was not written.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// Another program holds the lock of the name index for longer than was to be waited.
    #[error("the name index is being changed by another program: {} is held by {}", path.display(), whom(.holder))]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// Who, as far as the system tells.
        holder: Option<Holder>,
    },
    /// The lock file cannot be used.
    #[error("cannot lock {}: {source}", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The name cannot be written.
    #[error(transparent)]
    Append(#[from] AppendError),
}

fn whom(holder: &Option<Holder>) -> String {
    holder.as_ref().map_or_else(|| "a process that the system does not name".to_owned(), ToString::to_string)
}

/// The lock that Codex takes around changes of the name index, and waits for.
#[derive(Debug)]
pub struct NameLock(#[allow(dead_code, reason = "the lock goes with the file")] File);

impl NameLock {
    /// Takes the lock, waiting up to `patience` for another program.
    pub fn acquire(home: &Path, patience: Duration) -> Result<Self, NameError> {
        let path = home.join("session_index.jsonl.lock");
        let failed = |source| NameError::Lock { path: path.clone(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path).map_err(failed)?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self(file)),
                Err(TryLockError::WouldBlock) if begun.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(TryLockError::WouldBlock) => {
                    let holder = locks::holder_of(&[&path]);
                    return Err(NameError::Busy { path, holder });
                }
                Err(TryLockError::Error(e)) => return Err(failed(e)),
            }
        }
    }
}

/// Writes a thread's name durably behind all others; an empty one clears it. The caller holds the [`NameLock`], so an
/// ill-timed crash leaves at most a part of the last line, which readers pass over and the next writer closes off.
pub fn append(disk: &dyn Disk, home: &Path, id: ThreadId, name: &str, at: UtcMillis) -> Result<(), AppendError> {
    let line = serde_json::json!({"id": id, "thread_name": name, "updated_at": at}).to_string();
    let mut file = Appender::open(disk, &home.join(FILE), OpenMode::Any, Durability::OnFlush)?;
    file.append(&[line.as_bytes()])?;
    file.flush()?;
    disk.sync_dir(home).map_err(|source| AppendError::Sync { path: home.to_owned(), source })
}
