//! Other systems: the standard library alone. Compiled, never run; the lock table is not known there.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::{EntryKind, FileStat, FolderMark, LockRow};

/// See the Linux module.
pub fn read_folder(
    path: &Path,
    wanted: &dyn Fn(&OsStr) -> bool,
    sink: &mut dyn FnMut(&OsStr, EntryKind),
) -> io::Result<FolderMark> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = match entry.file_type() {
            Ok(t) if t.is_symlink() => EntryKind::Link,
            Ok(t) if t.is_dir() => EntryKind::Folder,
            Ok(t) if t.is_file() => {
                if !wanted(&name) {
                    continue;
                }
                match entry.metadata() {
                    Ok(m) => EntryKind::File(stat(&m)),
                    Err(e) => EntryKind::Unreadable(e),
                }
            }
            Ok(_) => continue,
            Err(e) => EntryKind::Unreadable(e),
        };
        sink(&name, kind);
    }
    Ok(FolderMark::default())
}

/// A folder's state is not told here: it is always read.
pub struct KnownFolder(());

impl KnownFolder {
    /// Never one.
    pub fn open(_path: &Path, _known: &FolderMark) -> io::Result<Option<Self>> {
        Ok(None)
    }

    /// See the Linux module.
    pub fn stat(&self, _name: &std::ffi::CStr) -> Option<FileStat> {
        let () = self.0;
        None
    }
}

/// Never known here.
pub fn stands(_path: &Path, _known: &FolderMark) -> bool {
    false
}

fn stat(m: &std::fs::Metadata) -> FileStat {
    let mtime_ns = m
        .modified()
        .ok()
        .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX));
    FileStat { size: m.len(), mtime_ns, ctime_ns: 0, dev: 0, ino: 0 }
}

/// See the Linux module. Device and inode are 0 here.
pub fn identity(path: &Path) -> io::Result<FileStat> {
    Ok(stat(&std::fs::metadata(path)?))
}

/// See the Linux module.
pub fn identity_here(path: &Path) -> io::Result<FileStat> {
    Ok(stat(&std::fs::symlink_metadata(path)?))
}

/// As the Linux module's second way: a second name, then the first goes. Where a file system has no second names this
/// fails and nothing is done.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

/// There is no such call here: whoever asks syncs file by file.
pub fn sync_file_system(_path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// See the Linux module.
pub fn identity_of(file: &std::fs::File) -> io::Result<FileStat> {
    Ok(stat(&file.metadata()?))
}

/// Not known here.
pub fn lock_table() -> Vec<LockRow> {
    vec![]
}

/// Not known here.
pub fn all_write_locks() -> Vec<LockRow> {
    vec![]
}

/// Not known here.
pub fn holder_facts(_pid: u32) -> Option<String> {
    None
}

/// Not known here.
pub fn host_name() -> Option<String> {
    None
}
