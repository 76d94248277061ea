//! The writer lock of a thread, taken as Codex takes it, so that Codex and threadkeep exclude each other.
//!
//! Codex from 0.147 holds `flock(LOCK_EX)` on `thread-writer-locks/<thread id>.lock` while it writes, takes and removes
//! the file under `.coordination.lock` there, and checks after locking that the name still is the locked file. A lock
//! of a dead process is free at once, since the system drops it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use threadkeep_record::ThreadId;

use crate::locks::{Holder, WriterLocks};
use crate::platform;

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Someone else writes the thread.
    #[error("thread {id} already has an active writer")]
    Held {
        /// The thread.
        id: ThreadId,
        /// Who, as far as the system tells.
        holder: Option<Holder>,
    },
    /// The lock files cannot be used.
    #[error("cannot lock thread {id} with {}: {source}", path.display())]
    Io {
        /// The thread.
        id: ThreadId,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// A held lock. Dropping it frees the thread and removes the lock file.
#[derive(Debug)]
pub struct WriterLock {
    file: Option<File>,
    path: PathBuf,
    folder: PathBuf,
}

/// The coordination lock is held for a few calls only; one that is not free within this time belongs to something stuck.
const COORDINATION_TRIES: u32 = 400;
const COORDINATION_PAUSE: Duration = Duration::from_millis(5);

impl WriterLock {
    /// Takes the lock of a thread in a home. `note` is written into the lock file for whoever looks at it; Codex
    /// tolerates text there.
    pub fn acquire(home: &Path, id: ThreadId, note: &str) -> Result<Self, LockError> {
        let folder = home.join("thread-writer-locks");
        let path = folder.join(format!("{id}.lock"));
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| LockError::Io { id, path, source }
        };
        create_folder(&folder).map_err(failed(&folder))?;
        let _coordination = coordination(&folder).map_err(failed(&folder.join(COORDINATION)))?;
        let mut file = open(&path).map_err(failed(&path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LockError::Held { id, holder: WriterLocks::read(home).holder(id) });
            }
            Err(TryLockError::Error(e)) => return Err(failed(&path)(e)),
        }
        // The file is made and removed under the coordination lock alone, so its name still is this file. Programs
        // that do not know that lock may have removed it in between; then it protects nothing.
        if !is_same(&file, &path) {
            return Err(failed(&path)(io::Error::other("the lock file was replaced while it was taken")));
        }
        // The note is a courtesy. A full disk has no room for it, and the lock is held without it.
        let _ = file.set_len(0).and_then(|()| file.write_all(note.as_bytes()));
        Ok(Self { file: Some(file), path, folder })
    }

    /// The lock file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        // Without the coordination lock the name stays behind, which does no harm: the lock itself goes with the file.
        if let Ok(_coordination) = coordination(&self.folder)
            && is_same(&file, &self.path)
        {
            let _ = std::fs::remove_file(&self.path);
        }
        drop(file);
    }
}

const COORDINATION: &str = ".coordination.lock";

fn coordination(folder: &Path) -> io::Result<File> {
    let file = open(&folder.join(COORDINATION))?;
    for _ in 0..COORDINATION_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => std::thread::sleep(COORDINATION_PAUSE),
            Err(TryLockError::Error(e)) => return Err(e),
        }
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "another program holds it"))
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

fn is_same(file: &File, path: &Path) -> bool {
    let held = platform::identity_of(file);
    let named = platform::identity(path);
    matches!((held, named), (Ok(a), Ok(b)) if (a.dev, a.ino) == (b.dev, b.ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01990000-0000-7000-8000-000000000001";

    #[test]
    fn a_second_writer_is_refused_and_told_who_holds_the_lock() {
        let home = tempfile::tempdir().unwrap();
        let id = ThreadId::parse(ID).unwrap();
        let first = WriterLock::acquire(home.path(), id, "threadkeep test\n").unwrap();
        let Err(LockError::Held { holder: Some(holder), .. }) = WriterLock::acquire(home.path(), id, "") else {
            panic!("not refused")
        };
        assert_eq!(holder.pid, Some(std::process::id()));
        // Another thread of the home is free.
        let other = ThreadId::parse("01990000-0000-7000-8000-000000000002").unwrap();
        drop(WriterLock::acquire(home.path(), other, "").unwrap());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists(), "the file goes with the lock");
        drop(WriterLock::acquire(home.path(), id, "").unwrap());
    }

    #[test]
    fn a_lock_file_left_behind_blocks_nobody() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("thread-writer-locks");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join(format!("{ID}.lock")), "pid 1\n").unwrap();
        let lock = WriterLock::acquire(home.path(), ThreadId::parse(ID).unwrap(), "new\n").unwrap();
        assert_eq!(std::fs::read_to_string(lock.path()).unwrap(), "new\n");
    }
}
