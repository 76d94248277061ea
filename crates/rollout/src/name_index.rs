//! `session_index.jsonl`: the names of threads, appended; the last line of an id wins.

use std::collections::HashMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use threadkeep_record::{ThreadId, UtcMillis};

use crate::appender::{AppendError, Appender, Durability};
use crate::locks::{self, Holder};
use crate::name::Form;
use crate::records::{BUFFER, LineReader};
use crate::seam::{Disk, OpenMode, read_whole};
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

/// A line of the name index that belongs to one thread, with where it stood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameLine {
    /// Byte at which it stood when it was taken out.
    pub offset: u64,
    /// The line, without its end.
    pub line: String,
    /// It was the last, and had no end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
}

/// The whole file, read to be changed. The caller holds the [`NameLock`].
#[derive(Debug)]
pub struct NameFile {
    path: PathBuf,
    lines: Vec<Line>,
    /// Its length when it was read; `None` where it was not there.
    read: Option<u64>,
}

/// A line of the file, parsed once: thousands of threads may be taken out one after the other.
#[derive(Debug)]
struct Line {
    /// With its end, which the last may lack.
    bytes: Vec<u8>,
    /// The thread that it names.
    id: Option<ThreadId>,
}

impl Line {
    fn of(bytes: &[u8]) -> Self {
        let id = serde_json::from_slice::<Entry<'_>>(bytes.trim_ascii()).ok().map(|e| e.id);
        Self { bytes: bytes.to_owned(), id }
    }

    /// Without its end.
    fn text(&self) -> &[u8] {
        self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes)
    }

    fn is_open(&self) -> bool {
        self.text().len() == self.bytes.len()
    }
}

impl NameFile {
    /// Reads the file; a home without one has no names. A link is followed, so that what it leads to is changed and the
    /// link stays.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn read(disk: &dyn Disk, home: &Path) -> io::Result<Self> {
        let path = home.join(FILE);
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        match read_whole(disk, &path) {
            Ok(bytes) => {
                let lines = bytes.split_inclusive(|b| *b == b'\n').map(Line::of).collect();
                Ok(Self { path, lines, read: Some(bytes.len() as u64) })
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self { path, lines: vec![], read: None }),
            Err(e) => Err(e),
        }
    }

    /// Takes the lines of a thread out, in their order. Every other byte stays.
    pub fn take(&mut self, id: ThreadId) -> Vec<NameLine> {
        let mut taken = Vec::new();
        let mut offset = 0;
        self.lines.retain(|line| {
            let at = offset;
            offset += line.bytes.len() as u64;
            match std::str::from_utf8(line.text()) {
                Ok(text) if line.id == Some(id) => {
                    taken.push(NameLine { offset: at, line: text.to_owned(), open: line.is_open() });
                    false
                }
                _ => true,
            }
        });
        taken
    }

    /// Puts lines back where they stood, or, where other lines stand there now, at the nearest beginning of a line
    /// behind. Lines of this thread that are there already are not put twice.
    pub fn put(&mut self, id: ThreadId, lines: &[NameLine]) {
        let newer = self.entry_of(id);
        for NameLine { offset, line, open } in lines {
            if self.lines.iter().any(|l| l.text() == line.as_bytes()) {
                continue;
            }
            let mut begins = 0;
            let before = |l: &Line| {
                let at = begins;
                begins += l.bytes.len() as u64;
                at < *offset
            };
            let at = self.lines.iter().map(before).take_while(|before| *before).count();
            // As it was, where it is the last again.
            let end = if *open && at == self.lines.len() { "" } else { "\n" };
            self.close(at);
            self.lines.insert(at, Line { bytes: [line, end].concat().into_bytes(), id: Some(id) });
        }
        // A name that was given meanwhile is newer than all that come back, wherever they come to stand.
        if let Some(newer) = newer.filter(|n| self.entry_of(id).as_ref() != Some(n)) {
            let lines = self.take(id).into_iter().map(|l| l.line);
            let (old, new): (Vec<_>, Vec<_>) = lines.partition(|l| *l != newer);
            for line in old.into_iter().chain(new) {
                self.close(self.lines.len());
                self.lines.push(Line { bytes: (line + "\n").into_bytes(), id: Some(id) });
            }
        }
    }

    /// Ends the line before a place.
    fn close(&mut self, at: usize) {
        if let Some(before) = at.checked_sub(1).and_then(|i| self.lines.get_mut(i)).filter(|l| l.is_open()) {
            before.bytes.push(b'\n');
        }
    }

    /// The line that counts for a thread.
    fn entry_of(&self, id: ThreadId) -> Option<String> {
        let line = self.lines.iter().rev().find(|l| l.id == Some(id))?;
        std::str::from_utf8(line.text()).ok().map(str::to_owned)
    }

    /// Writes the file anew, in one step: whoever reads sees all of the old or all of the new one. A line that a
    /// program which knows no lock appended meanwhile is taken along. Without any change there is nothing to write.
    ///
    /// # Errors
    ///
    /// What the system says; then the file is as it was.
    pub fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let partial = folder.join(format!(".{FILE}.threadkeep"));
        match disk.remove(&partial) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
        let old = self.read.map(|size| Ok::<_, io::Error>((disk.open(&self.path, OpenMode::Existing)?, size)));
        let old = old.transpose()?;
        let mut new = disk.open(&partial, OpenMode::New)?;
        let bytes: Vec<u8> = self.lines.iter().flat_map(|l| &l.bytes).copied().collect();
        new.write_all_at(&bytes, 0)?;
        if old.is_some() {
            disk.copy_mode(&self.path, &partial)?;
        }
        new.sync_data()?;
        disk.rename(&partial, &self.path)?;
        if let Some((old, before)) = old {
            let late = usize::try_from(old.state()?.size.saturating_sub(before)).map_err(io::Error::other)?;
            if late > 0 {
                let mut bytes = vec![0; late];
                old.read_exact_at(&mut bytes, before)?;
                let end = new.state()?.size;
                new.write_all_at(&bytes, end)?;
                new.sync_data()?;
            }
        }
        disk.sync_dir(folder)
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
