//! Who writes a thread just now: the writer locks that Codex takes, read without touching them.
//!
//! Codex from 0.147 holds a `flock` on `thread-writer-locks/<thread id>.lock` while it writes. A reader must not take
//! even a shared lock (Codex would be refused), so the system's lock table is asked by device and inode.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

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

/// The writer locks of a home at one moment.
#[derive(Debug, Default)]
pub struct WriterLocks {
    folder: PathBuf,
    held: HashMap<(u64, u64), LockRow>,
}

impl WriterLocks {
    /// Looks at the lock table once. Costs one directory look-up where the home has no lock folder.
    #[must_use]
    pub fn read(home: &Path) -> Self {
        let folder = home.join("thread-writer-locks");
        let any = std::fs::read_dir(&folder)
            .is_ok_and(|mut d| d.any(|e| e.is_ok_and(|e| e.file_name().to_string_lossy().ends_with(".lock"))));
        let rows = if any { platform::lock_table() } else { vec![] };
        Self { folder, held: rows.into_iter().map(|r| ((device(r.major, r.minor), r.ino), r)).collect() }
    }

    /// The process that writes the thread now.
    #[must_use]
    pub fn holder(&self, id: ThreadId) -> Option<Holder> {
        if self.held.is_empty() {
            return None;
        }
        let path = self.folder.join(format!("{id}.lock"));
        let stat = platform::identity(&path).ok()?;
        let row = self.held.get(&(stat.dev, stat.ino))?;
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
