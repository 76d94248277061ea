//! Linux: `getdents` with a large buffer and `statx` relative to the open folder, and `/proc`.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, StatxFlags, makedev, open, statx};

use super::{EntryKind, FileStat, LockRow};

/// Reads a folder: names, kinds, and for files whose name passes `wanted` their facts. Links are told, not followed;
/// `path` itself is opened as it is.
pub fn read_folder(
    path: &Path,
    wanted: &dyn Fn(&OsStr) -> bool,
    sink: &mut dyn FnMut(&OsStr, EntryKind),
) -> io::Result<()> {
    let fd = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
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
            let mask = StatxFlags::SIZE
                | StatxFlags::MTIME
                | StatxFlags::CTIME
                | StatxFlags::INO
                | StatxFlags::TYPE;
            match statx(&fd, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW, mask) {
                Ok(s) => {
                    kind = FileType::from_raw_mode(s.stx_mode.into());
                    stat = Some(FileStat {
                        size: s.stx_size,
                        mtime_ns: nanos(s.stx_mtime.tv_sec, s.stx_mtime.tv_nsec.into()),
                        ctime_ns: nanos(s.stx_ctime.tv_sec, s.stx_ctime.tv_nsec.into()),
                        dev: makedev(s.stx_dev_major, s.stx_dev_minor),
                        ino: s.stx_ino,
                    });
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
    Ok(())
}

/// Device and inode of a file, following links.
pub fn identity(path: &Path) -> io::Result<FileStat> {
    std::fs::metadata(path).map(|m| stat(&m))
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
