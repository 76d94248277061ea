//! Who writes a thread just now: the writer locks that Codex takes, read without touching them.
//!
//! Codex from 0.147 holds a `flock` on `thread-writer-locks/<thread id>.lock` while it writes. A reader must not take
//! even a shared lock (Codex would be refused), so the system's lock table is asked by device and inode.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Serialize;
use threadkeep_record::{ThreadId, UtcMillis};

use crate::platform::{self, LockRow};

/// A process that writes a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Process id, where the system says it.
    pub pid: Option<u32>,
    /// Program name.
    pub program: Option<String>,
    /// Machine.
    pub host: Option<String>,
    /// When the lock file was made, which is when the lock was taken.
    pub since: Option<UtcMillis>,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.pid, &self.program) {
            (Some(pid), Some(program)) => write!(f, "{program}, pid {pid}")?,
            (Some(pid), None) => write!(f, "pid {pid}")?,
            (None, _) => f.write_str("a process that the system does not name")?,
        }
        if let Some(host) = &self.host {
            write!(f, " on {host}")?;
        }
        if let Some(since) = self.since {
            write!(f, ", since {since}")?;
        }
        Ok(())
    }
}

/// The writer locks of a home.
///
/// The system's lock table is read when a thread is asked for that has a lock file, and then once: Linux waits for all
/// of its processors before it tells it, 7 to 10 ms, which is more than all else that some commands do.
#[derive(Debug, Default)]
pub struct WriterLocks {
    folder: PathBuf,
    /// There is a thread's lock file.
    any: bool,
    held: OnceLock<HashMap<(u64, u64), LockRow>>,
}

impl WriterLocks {
    /// Looks whether any thread has a lock file.
    #[must_use]
    pub fn read(home: &Path) -> Self {
        let folder = home.join("thread-writer-locks");
        let of_thread = |name: &str| name.strip_suffix(".lock").is_some_and(|id| ThreadId::parse(id).is_ok());
        let any = std::fs::read_dir(&folder)
            .is_ok_and(|mut d| d.any(|e| e.is_ok_and(|e| of_thread(&e.file_name().to_string_lossy()))));
        Self { folder, any, held: OnceLock::new() }
    }

    /// The process that writes the thread now.
    #[must_use]
    pub fn holder(&self, id: ThreadId) -> Option<Holder> {
        if !self.any {
            return None;
        }
        let path = self.folder.join(format!("{id}.lock"));
        let stat = platform::identity(&path).ok()?;
        let table = || platform::lock_table().into_iter().map(|r| ((device(r.major, r.minor), r.ino), r)).collect();
        let row = self.held.get_or_init(table).get(&(stat.dev, stat.ino))?;
        Some(Holder {
            pid: row.pid,
            program: row.pid.and_then(platform::holder_facts),
            host: platform::host_name(),
            since: Some(UtcMillis::from_nanos(stat.mtime_ns.into())),
        })
    }
}

/// The process that has one of these files locked for writing, or a part of it as databases do, so that a refusal can
/// name it. A file that is not there is passed over. Since when is not known: such lock files stay.
#[must_use]
pub fn holder_of(files: &[&Path]) -> Option<Holder> {
    let rows = platform::all_write_locks();
    let row = files.iter().filter_map(|path| platform::identity(path).ok()).find_map(|stat| {
        rows.iter().find(|r| (device(r.major, r.minor), r.ino) == (stat.dev, stat.ino) && stat.ino != 0)
    })?;
    let program = row.pid.and_then(platform::holder_facts);
    Some(Holder { pid: row.pid, program, host: platform::host_name(), since: None })
}

#[cfg(target_os = "linux")]
fn device(major: u32, minor: u32) -> u64 {
    rustix::fs::makedev(major, minor)
}

#[cfg(not(target_os = "linux"))]
fn device(_major: u32, _minor: u32) -> u64 {
    0
}
