//! Linux: `getdents` with a large buffer and `statx` relative to the open folder, and `/proc`.

use std::ffi::{CStr, OsStr};
use std::fs::{File, Metadata};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, Statx, StatxFlags, makedev, open, renameat_with, statx,
};

use super::{EntryKind, FileStat, FolderMark, LockRow};

/// Reads a folder: names, kinds, and for files whose name passes `wanted` their facts. Links are told, not followed;
/// `path` itself is opened as it is. Returns how the folder stood before.
pub fn read_folder(
    path: &Path,
    wanted: &dyn Fn(&OsStr) -> bool,
    sink: &mut dyn FnMut(&OsStr, EntryKind),
) -> io::Result<FolderMark> {
    let fd = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mark = mark(&fd)?;
    let mut buffer = [MaybeUninit::uninit(); 64 * 1024];
    let mut entries = RawDir::new(&fd, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let bytes = entry.file_name().to_bytes();
        if bytes == b"." || bytes == b".." {
            continue;
        }
        let name = OsStr::from_bytes(bytes);
        let mut kind = entry.file_type();
        if kind == FileType::RegularFile && !wanted(name) {
            continue;
        }
        let mut stat = None;
        if kind == FileType::RegularFile || kind == FileType::Unknown {
            match statx(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW, FACTS) {
                Ok(s) => {
                    kind = FileType::from_raw_mode(s.stx_mode.into());
                    stat = Some(facts(&s));
                }
                // Gone between the two calls: as if it had not been there.
                Err(rustix::io::Errno::NOENT) => continue,
                Err(e) => {
                    sink(name, EntryKind::Unreadable(e.into()));
                    continue;
                }
            }
        }
        let kind = match (kind, stat) {
            (FileType::Directory, _) => EntryKind::Folder,
            (FileType::RegularFile, Some(s)) => EntryKind::File(s),
            (FileType::Symlink, _) => EntryKind::Link,
            _ => continue,
        };
        sink(name, kind);
    }
    Ok(mark)
}

/// What is asked of every file.
const FACTS: StatxFlags =
    StatxFlags::SIZE.union(StatxFlags::MTIME).union(StatxFlags::CTIME).union(StatxFlags::INO).union(StatxFlags::TYPE);

fn facts(s: &Statx) -> FileStat {
    FileStat {
        size: s.stx_size,
        mtime_ns: nanos(s.stx_mtime.tv_sec, s.stx_mtime.tv_nsec.into()),
        ctime_ns: nanos(s.stx_ctime.tv_sec, s.stx_ctime.tv_nsec.into()),
        dev: makedev(s.stx_dev_major, s.stx_dev_minor),
        ino: s.stx_ino,
    }
}

fn mark(fd: &OwnedFd) -> io::Result<FolderMark> {
    let s = facts(&statx(fd, c"", AtFlags::EMPTY_PATH, FACTS)?);
    Ok(FolderMark { dev: s.dev, ino: s.ino, mtime_ns: s.mtime_ns, ctime_ns: s.ctime_ns })
}

/// A folder that stands as it was known.
pub struct KnownFolder(OwnedFd);

impl KnownFolder {
    /// Opens a folder; `None` where it does not stand as `known` says and has to be read.
    pub fn open(path: &Path, known: &FolderMark) -> io::Result<Option<Self>> {
        let fd = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok((mark(&fd)? == *known).then_some(Self(fd)))
    }

    /// The facts of a file in it; `None` where there is none of this name, or it is something else.
    pub fn stat(&self, name: &CStr) -> Option<FileStat> {
        let s = statx(&self.0, name, AtFlags::SYMLINK_NOFOLLOW, FACTS).ok()?;
        (FileType::from_raw_mode(s.stx_mode.into()) == FileType::RegularFile).then(|| facts(&s))
    }
}

/// Whether a folder stands as it was known.
pub fn stands(path: &Path, known: &FolderMark) -> bool {
    let flags = AtFlags::empty();
    statx(rustix::fs::CWD, path, flags, FACTS).is_ok_and(|s| {
        let f = facts(&s);
        let now = FolderMark { dev: f.dev, ino: f.ino, mtime_ns: f.mtime_ns, ctime_ns: f.ctime_ns };
        FileType::from_raw_mode(s.stx_mode.into()) == FileType::Directory && now == *known
    })
}

/// Device and inode of a file, following links.
pub fn identity(path: &Path) -> io::Result<FileStat> {
    std::fs::metadata(path).map(|m| stat(&m))
}

/// The same without following a link at the name itself.
pub fn identity_here(path: &Path) -> io::Result<FileStat> {
    std::fs::symlink_metadata(path).map(|m| stat(&m))
}

/// Renames without ever replacing what stands at `to`. File systems that cannot do so in one step get a second name and
/// lose the first: a crash in between leaves two names of one file.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            std::fs::hard_link(from, to)?;
            std::fs::remove_file(from)
        }
        done => Ok(done?),
    }
}

/// Writes out everything that waits on the file system of a folder, and waits for it.
pub fn sync_file_system(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}

/// The same of an open file.
pub fn identity_of(file: &File) -> io::Result<FileStat> {
    file.metadata().map(|m| stat(&m))
}

/// Nanoseconds since the epoch; times before 1677 or after 2262 read as the nearest that fits.
fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

fn stat(m: &Metadata) -> FileStat {
    FileStat {
        size: m.size(),
        mtime_ns: nanos(m.mtime(), m.mtime_nsec()),
        ctime_ns: nanos(m.ctime(), m.ctime_nsec()),
        dev: m.dev(),
        ino: m.ino(),
    }
}

/// The held `flock` locks of the system. Empty where `/proc` is not there.
pub fn lock_table() -> Vec<LockRow> {
    let Ok(text) = std::fs::read_to_string("/proc/locks") else { return vec![] };
    text.lines().filter_map(|line| parse_lock(line, &["FLOCK"])).collect()
}

/// The held write locks of every kind, also those of a part of a file.
pub fn all_write_locks() -> Vec<LockRow> {
    let Ok(text) = std::fs::read_to_string("/proc/locks") else { return vec![] };
    text.lines().filter_map(|line| parse_lock(line, &["FLOCK", "POSIX", "OFDLCK"])).collect()
}

fn parse_lock(line: &str, kinds: &[&str]) -> Option<LockRow> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, kind, _, "WRITE", pid, file, ..] = words.as_slice() else { return None };
    if !kinds.contains(kind) {
        return None;
    }
    let mut parts = file.split(':');
    Some(LockRow {
        major: u32::from_str_radix(parts.next()?, 16).ok()?,
        minor: u32::from_str_radix(parts.next()?, 16).ok()?,
        ino: parts.next()?.parse().ok()?,
        pid: pid.parse().ok().filter(|p| *p != 0),
    })
}

/// The program name of a process.
pub fn holder_facts(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|s| s.trim_end().to_owned())
}

/// This machine's name.
pub fn host_name() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|s| s.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_rows() {
        assert_eq!(
            parse_lock("12: FLOCK  ADVISORY  WRITE 4711 fe:01:1234567 0 EOF", &["FLOCK"]),
            Some(LockRow { major: 0xfe, minor: 1, ino: 1_234_567, pid: Some(4711) })
        );
        assert_eq!(parse_lock("12: -> FLOCK  ADVISORY  WRITE 4711 fe:01:1234567 0 EOF", &["FLOCK"]), None);
        assert_eq!(parse_lock("1: POSIX  ADVISORY  WRITE 1 00:1a:2 0 EOF", &["FLOCK"]), None);
        assert!(parse_lock("1: POSIX  ADVISORY  WRITE 1 00:1a:2 120 120", &["FLOCK", "POSIX"]).is_some());
        assert_eq!(parse_lock("", &["FLOCK"]), None);
    }
}
