//! Unix: every step is relative to an open directory; on Linux a path is resolved below it without links (`openat2`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};

use super::{Kind, Last, Stat, Target};

/// An open directory.
#[derive(Debug)]
pub struct Handle(OwnedFd);

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Opens a folder that the caller named: links are followed.
pub fn open_root(path: &Path) -> io::Result<Handle> {
    Ok(Handle(fs::open(path, FOLDER, Mode::empty())?))
}

/// Opens a folder below another. No link is followed on the way; of a single name it is where `last` says so.
pub fn open_folder(at: &Handle, path: &Path, last: Last) -> io::Result<Handle> {
    match last {
        Last::Followed => Ok(Handle(fs::openat(&at.0, path, FOLDER, Mode::empty())?)),
        Last::AsItIs => Ok(Handle(open_below(at, path, FOLDER, Mode::empty())?)),
    }
}

#[cfg(target_os = "linux")]
fn open_below(at: &Handle, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    use rustix::io::Errno;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    // AGAIN means that something was renamed while the kernel walked the path.
    for _ in 0..64 {
        match fs::openat2(&at.0, path, flags | OFlags::NOFOLLOW, mode, resolve) {
            Ok(fd) => return Ok(fd),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::PERM) => return open_stepwise(at, path, flags, mode),
            Err(e) => return Err(e.into()),
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

#[cfg(not(target_os = "linux"))]
fn open_below(at: &Handle, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    open_stepwise(at, path, flags, mode)
}

/// The same for systems (and sandboxes) without `openat2`: one component after the other, none of them a link.
fn open_stepwise(at: &Handle, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    use std::path::Component;
    let names: Vec<&OsStr> = path
        .components()
        .map(|c| match c {
            Component::Normal(name) => Ok(name),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
                Err(io::Error::from(io::ErrorKind::InvalidInput))
            }
        })
        .collect::<io::Result<_>>()?;
    let Some((last, before)) = names.split_last() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut here: Option<OwnedFd> = None;
    for name in before {
        let from = here.as_ref().map_or_else(|| at.0.as_fd(), AsFd::as_fd);
        here = Some(fs::openat(from, *name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?);
    }
    let from = here.as_ref().map_or_else(|| at.0.as_fd(), AsFd::as_fd);
    Ok(fs::openat(from, *last, flags | OFlags::NOFOLLOW, mode)?)
}

/// Makes a folder (0700).
pub fn make_folder(at: &Handle, name: &OsStr) -> io::Result<()> {
    Ok(fs::mkdirat(&at.0, name, Mode::RWXU)?)
}

/// The facts of a name.
pub fn stat(at: &Handle, name: &OsStr, last: Last) -> io::Result<Stat> {
    let flags = match last {
        Last::Followed => AtFlags::empty(),
        Last::AsItIs => AtFlags::SYMLINK_NOFOLLOW,
    };
    Ok(facts(&fs::statat(&at.0, name, flags)?))
}

/// The facts of an open folder.
pub fn stat_self(at: &Handle) -> io::Result<Stat> {
    Ok(facts(&fs::fstat(&at.0)?))
}

/// The facts of an open file.
pub fn stat_file(file: &File) -> io::Result<Stat> {
    Ok(facts(&fs::fstat(file)?))
}

#[allow(
    clippy::unnecessary_cast,
    clippy::useless_conversion,
    clippy::cast_lossless,
    reason = "the widths of these fields differ between systems"
)]
fn facts(s: &fs::Stat) -> Stat {
    let kind = match FileType::from_raw_mode(s.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Symlink => Kind::Link,
        _ => Kind::Other,
    };
    let mtime_ms = (s.st_mtime as i64).saturating_mul(1000).saturating_add(s.st_mtime_nsec as i64 / 1_000_000);
    Stat {
        kind,
        dev: s.st_dev as u64,
        ino: s.st_ino as u64,
        size: u64::try_from(s.st_size).unwrap_or(0),
        blocks: u64::try_from(s.st_blocks).unwrap_or(0).saturating_mul(512),
        links: s.st_nlink as u64,
        mtime_ms,
        mode: u32::from(s.st_mode) & 0o7777,
    }
}

/// Where a link points, as text.
pub fn read_link(at: &Handle, name: &OsStr) -> io::Result<OsString> {
    Ok(OsString::from_vec(fs::readlinkat(&at.0, name, Vec::new())?.into_bytes()))
}

/// The names in a folder with what they are.
pub fn entries(at: &Handle) -> io::Result<Vec<(OsString, Kind)>> {
    let mut found = Vec::new();
    for entry in fs::Dir::read_from(&at.0)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        let name = OsStr::from_bytes(name);
        let kind = match entry.file_type() {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Folder,
            FileType::Symlink => Kind::Link,
            FileType::Unknown => match stat(at, name, Last::AsItIs) {
                Ok(s) => s.kind,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(e),
            },
            _ => Kind::Other,
        };
        found.push((name.to_owned(), kind));
    }
    Ok(found)
}

/// Opens a file for reading. Only a regular file is opened; a pipe cannot hold us.
pub fn open_file(at: &Handle, path: &Path, last: Last) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fd = match last {
        Last::Followed => fs::openat(&at.0, path, flags, Mode::empty())?,
        Last::AsItIs => open_below(at, path, flags, Mode::empty())?,
    };
    let file = File::from(fd);
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// Opens a file of ours for reading and writing, making it (0600) where it is not there: a lock.
pub fn open_lock(at: &Handle, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(File::from(fs::openat(&at.0, name, flags, Mode::RUSR | Mode::WUSR)?))
}

/// Makes a file (0600, or tighter) that must not be there.
pub fn create_file(at: &Handle, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(File::from(fs::openat(&at.0, name, flags, Mode::RUSR | Mode::WUSR)?))
}

/// Sets the permission bits of an open file.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    #[allow(clippy::useless_conversion, reason = "16 bits on some systems")]
    let bits = (mode & 0o7777).try_into().map_err(io::Error::other)?;
    Ok(fs::fchmod(file, Mode::from_raw_mode(bits))?)
}

/// Sets the permission bits of an open folder.
pub fn set_folder_mode(at: &Handle, mode: u32) -> io::Result<()> {
    #[allow(clippy::useless_conversion, reason = "16 bits on some systems")]
    let bits = (mode & 0o7777).try_into().map_err(io::Error::other)?;
    Ok(fs::fchmod(&at.0, Mode::from_raw_mode(bits))?)
}

/// Makes a symbolic link.
pub fn symlink(target: &OsStr, at: &Handle, name: &OsStr, _to: Kind) -> io::Result<()> {
    Ok(fs::symlinkat(target, &at.0, name)?)
}

/// Gives a file a second name. A link is not followed.
pub fn hard_link(from: &Handle, name: &OsStr, to: &Handle, new: &OsStr) -> io::Result<()> {
    Ok(fs::linkat(&from.0, name, &to.0, new, AtFlags::empty())?)
}

/// Renames.
pub fn rename(from: &Handle, name: &OsStr, to: &Handle, new: &OsStr, target: Target) -> io::Result<()> {
    match target {
        Target::Replaced => Ok(fs::renameat(&from.0, name, &to.0, new)?),
        Target::Free => rename_free(from, name, to, new),
    }
}

#[cfg(any(target_os = "linux", target_vendor = "apple"))]
fn rename_free(from: &Handle, name: &OsStr, to: &Handle, new: &OsStr) -> io::Result<()> {
    use rustix::fs::{RenameFlags, renameat_with};
    match renameat_with(&from.0, name, &to.0, new, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(()),
        // Some network file systems do not know the flag.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => rename_checked(from, name, to, new),
        Err(e) => Err(e.into()),
    }
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn rename_free(from: &Handle, name: &OsStr, to: &Handle, new: &OsStr) -> io::Result<()> {
    rename_checked(from, name, to, new)
}

fn rename_checked(from: &Handle, name: &OsStr, to: &Handle, new: &OsStr) -> io::Result<()> {
    match stat(to, new, Last::AsItIs) {
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(fs::renameat(&from.0, name, &to.0, new)?),
        Err(e) => Err(e),
    }
}

/// Removes a name of something that is not a folder.
pub fn remove_file(at: &Handle, name: &OsStr) -> io::Result<()> {
    Ok(fs::unlinkat(&at.0, name, AtFlags::empty())?)
}

/// Removes an empty folder.
pub fn remove_folder(at: &Handle, name: &OsStr) -> io::Result<()> {
    Ok(fs::unlinkat(&at.0, name, AtFlags::REMOVEDIR)?)
}

/// Makes the names in a folder durable.
pub fn sync(at: &Handle) -> io::Result<()> {
    match fs::fsync(&at.0) {
        Ok(()) => Ok(()),
        // File systems that cannot sync a folder keep its names by themselves.
        Err(rustix::io::Errno::INVAL) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Shares the blocks of a file with a new one (copy on write).
#[cfg(target_os = "linux")]
pub fn reflink(from: &File, to: &File) -> io::Result<()> {
    Ok(fs::ioctl_ficlone(to, from)?)
}

/// Not built for this system: told as not supported, so that the caller refuses or copies.
#[cfg(not(target_os = "linux"))]
pub fn reflink(_from: &File, _to: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Lets a child that is started from now on inherit the open file, and with it the lock on it.
pub fn inherit(file: &File) -> io::Result<()> {
    let flags = rustix::io::fcntl_getfd(file)?;
    Ok(rustix::io::fcntl_setfd(file, flags.difference(rustix::io::FdFlags::CLOEXEC))?)
}

/// Whether a hard link failed for a reason for which a symbolic link is tried.
pub fn cannot_hard_link(e: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(e),
        Some(Errno::XDEV | Errno::PERM | Errno::ACCESS | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS)
    )
}

/// The rows of the system's table of `flock`s: device and inode of the file, and the process that took the lock. That
/// process may be gone while others that inherited the lock hold it.
#[cfg(target_os = "linux")]
pub fn lock_rows() -> io::Result<Vec<(u64, u64, u32)>> {
    Ok(std::fs::read_to_string("/proc/locks")?.lines().filter_map(flock_row).collect())
}

#[cfg(target_os = "linux")]
fn flock_row(line: &str) -> Option<(u64, u64, u32)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, "READ" | "WRITE", pid, file, ..] = words.as_slice() else { return None };
    let mut parts = file.split(':');
    let mut hex = || u32::from_str_radix(parts.next()?, 16).ok();
    let device = fs::makedev(hex()?, hex()?);
    Some((device, parts.next()?.parse().ok()?, pid.parse().ok()?))
}

/// Not known here.
#[cfg(not(target_os = "linux"))]
pub fn lock_rows() -> io::Result<Vec<(u64, u64, u32)>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The living processes that have a lock file (`*.lock`) open through which a `flock` is held, taken by them or
/// inherited: device and inode of the file, and the process. Processes whose files may not be looked at are left out.
#[cfg(target_os = "linux")]
pub fn lock_openers() -> Vec<(u64, u64, u32)> {
    let mut all = Vec::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        for open in std::fs::read_dir(process.path().join("fd")).into_iter().flatten().flatten() {
            let path = open.path();
            // Most open files are told by their names; only locks are looked at further.
            if !std::fs::read_link(&path).is_ok_and(|to| to.as_os_str().as_bytes().ends_with(b".lock")) {
                continue;
            }
            // Someone who waits for the lock has the file open too, but no lock through it.
            let info = std::fs::read_to_string(process.path().join("fdinfo").join(open.file_name()));
            if !info.is_ok_and(|i| i.lines().any(|l| l.starts_with("lock:") && l.contains("FLOCK"))) {
                continue;
            }
            if let Ok(stat) = fs::stat(&path) {
                let stat = facts(&stat);
                all.push((stat.dev, stat.ino, pid));
            }
        }
    }
    all
}

/// Not known here.
#[cfg(not(target_os = "linux"))]
pub fn lock_openers() -> Vec<(u64, u64, u32)> {
    vec![]
}

/// The program name of a living process.
pub fn program(pid: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|s| s.trim_end().to_owned())
}
