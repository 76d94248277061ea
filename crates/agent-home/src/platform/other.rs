//! Systems without directory handles in the standard library: everything goes by path. Written to compile, never run; a
//! folder that is swapped while it is worked on is not noticed here.
//!
//! On Windows the standard library counts junctions as links, which is what is wanted; it makes none, so that a link to a
//! folder needs the right to make symbolic links.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::{Kind, Last, Stat, Target};

/// A folder, by its path.
#[derive(Debug)]
pub struct Handle(PathBuf);

/// See the Unix module.
pub fn open_root(path: &Path) -> io::Result<Handle> {
    folder(path.to_owned())
}

fn folder(path: PathBuf) -> io::Result<Handle> {
    if fs::metadata(&path)?.is_dir() { Ok(Handle(path)) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// See the Unix module. Links on the way are looked for before, not while the path is resolved.
pub fn open_folder(at: &Handle, path: &Path, last: Last) -> io::Result<Handle> {
    if last == Last::AsItIs {
        no_links(at, path)?;
    }
    folder(at.0.join(path))
}

fn no_links(at: &Handle, path: &Path) -> io::Result<()> {
    let mut here = at.0.clone();
    for part in path.components() {
        here.push(part);
        if fs::symlink_metadata(&here)?.file_type().is_symlink() {
            return Err(io::Error::other("a link below the home is not followed"));
        }
    }
    Ok(())
}

/// See the Unix module.
pub fn make_folder(at: &Handle, name: &OsStr) -> io::Result<()> {
    fs::create_dir(at.0.join(name))
}

/// See the Unix module.
pub fn stat(at: &Handle, name: &OsStr, last: Last) -> io::Result<Stat> {
    let path = at.0.join(name);
    match last {
        Last::Followed => Ok(facts(&fs::metadata(path)?)),
        Last::AsItIs => Ok(facts(&fs::symlink_metadata(path)?)),
    }
}

/// See the Unix module.
pub fn stat_self(at: &Handle) -> io::Result<Stat> {
    Ok(facts(&fs::metadata(&at.0)?))
}

/// See the Unix module.
pub fn stat_file(file: &File) -> io::Result<Stat> {
    Ok(facts(&file.metadata()?))
}

fn facts(m: &fs::Metadata) -> Stat {
    let kind = match m.file_type() {
        t if t.is_symlink() => Kind::Link,
        t if t.is_dir() => Kind::Folder,
        t if t.is_file() => Kind::File,
        _ => Kind::Other,
    };
    let mtime = m.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
    let mtime_ms = mtime.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
    Stat { kind, dev: 0, ino: 0, size: m.len(), blocks: m.len(), links: 1, mtime_ms, mode: 0 }
}

/// See the Unix module.
pub fn read_link(at: &Handle, name: &OsStr) -> io::Result<OsString> {
    fs::read_link(at.0.join(name)).map(PathBuf::into_os_string)
}

/// See the Unix module.
pub fn entries(at: &Handle) -> io::Result<Vec<(OsString, Kind)>> {
    fs::read_dir(&at.0)?
        .map(|entry| {
            let entry = entry?;
            let kind = match entry.file_type()? {
                t if t.is_symlink() => Kind::Link,
                t if t.is_dir() => Kind::Folder,
                t if t.is_file() => Kind::File,
                _ => Kind::Other,
            };
            Ok((entry.file_name(), kind))
        })
        .collect()
}

/// See the Unix module.
pub fn open_file(at: &Handle, path: &Path, last: Last) -> io::Result<File> {
    if last == Last::AsItIs {
        no_links(at, path)?;
    }
    let file = File::open(at.0.join(path))?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// See the Unix module.
pub fn open_lock(at: &Handle, name: &OsStr) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(at.0.join(name))
}

/// See the Unix module.
pub fn create_file(at: &Handle, name: &OsStr) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(at.0.join(name))
}

/// There are no such bits here.
pub fn set_mode(_file: &File, _mode: u32) -> io::Result<()> {
    Ok(())
}

/// There are no such bits here.
pub fn set_folder_mode(_at: &Handle, _mode: u32) -> io::Result<()> {
    Ok(())
}

/// See the Unix module.
#[cfg(windows)]
pub fn symlink(target: &OsStr, at: &Handle, name: &OsStr, to: Kind) -> io::Result<()> {
    let link = at.0.join(name);
    match to {
        Kind::Folder => std::os::windows::fs::symlink_dir(target, link),
        Kind::File | Kind::Link | Kind::Other => std::os::windows::fs::symlink_file(target, link),
    }
}

/// Not known here.
#[cfg(not(windows))]
pub fn symlink(_target: &OsStr, _at: &Handle, _name: &OsStr, _to: Kind) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// See the Unix module.
pub fn hard_link(from: &Handle, name: &OsStr, to: &Handle, new: &OsStr) -> io::Result<()> {
    fs::hard_link(from.0.join(name), to.0.join(new))
}

/// See the Unix module. That the name is free is looked at before.
pub fn rename(from: &Handle, name: &OsStr, to: &Handle, new: &OsStr, target: Target) -> io::Result<()> {
    let new = to.0.join(new);
    if target == Target::Free && fs::symlink_metadata(&new).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    fs::rename(from.0.join(name), new)
}

/// See the Unix module. A link to a folder is removed as what it is.
pub fn remove_file(at: &Handle, name: &OsStr) -> io::Result<()> {
    let path = at.0.join(name);
    fs::remove_file(&path).or_else(|e| match fs::symlink_metadata(&path) {
        Ok(m) if m.file_type().is_symlink() => fs::remove_dir(&path),
        _ => Err(e),
    })
}

/// See the Unix module.
pub fn remove_folder(at: &Handle, name: &OsStr) -> io::Result<()> {
    fs::remove_dir(at.0.join(name))
}

/// Such file systems keep names by themselves.
pub fn sync(_at: &Handle) -> io::Result<()> {
    Ok(())
}

/// Not built for this system: told as not supported, so that the caller refuses or copies.
pub fn reflink(_from: &File, _to: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Not built for this system.
pub fn inherit(_file: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Any failure: the reasons are not told apart here.
pub fn cannot_hard_link(e: &io::Error) -> bool {
    e.kind() != io::ErrorKind::AlreadyExists
}

/// Not known here.
pub fn lock_rows() -> io::Result<Vec<(u64, u64, u32)>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Not known here.
pub fn lock_openers() -> Vec<(u64, u64, u32)> {
    vec![]
}

/// Not known here.
pub fn program(_pid: u32) -> Option<String> {
    None
}
