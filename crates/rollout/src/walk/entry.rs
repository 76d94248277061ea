//! A rollout file as a walk finds it.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use threadkeep_record::UtcMillis;
use twox_hash::XxHash3_64;

use crate::name::{Form, RolloutName};
use crate::packed;
use crate::platform::{self, FileStat};

/// Which of the two folders a rollout stands in. This, not a flag in a database, tells whether it is archived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// `sessions`.
    Active,
    /// `archived_sessions`.
    Archived,
    /// A path that the caller gave.
    Outside,
}

/// A rollout file.
#[derive(Debug, Clone)]
pub struct FileEntry {
    /// The folder it is in, relative to the home (absolute for [`Place::Outside`]); shared by the files of a folder.
    folder: Arc<Path>,
    /// The file name, where it is not what `name` spells: a home has very many files, and nearly all names can be
    /// written down again from what they say.
    own_name: Option<Box<OsStr>>,
    /// What the name says.
    pub name: RolloutName,
    /// Where it stands.
    pub place: Place,
    /// Bytes.
    pub size: u64,
    /// Modification time, nanoseconds since the Unix epoch.
    pub mtime_ns: i64,
    /// Time of the last change of the file or of what the system keeps about it, nanoseconds; 0 where there is none.
    pub ctime_ns: i64,
    /// Device and inode.
    pub identity: (u64, u64),
    /// Why its facts could not be read, if so.
    pub problem: Option<Box<str>>,
    /// Its print where that was made already; else 0.
    pub(super) print: u64,
}

/// A number for bytes, the same on every machine and release.
#[must_use]
pub fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

impl FileEntry {
    /// Path relative to the home (absolute for [`Place::Outside`]).
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.path_in(Path::new(""))
    }

    /// Its path as one that can be opened; `home` is the folder of its home.
    #[must_use]
    pub fn path_in(&self, home: &Path) -> PathBuf {
        match &self.own_name {
            Some(own) => home.join(&self.folder).join(&**own),
            None => self.name.path_below(home, &self.folder),
        }
    }

    /// A number that changes when the file does, or another takes its place or name: of its path in the home, device,
    /// inode, size and times. The same on every machine and release.
    #[must_use]
    pub fn print(&self) -> u64 {
        if self.print != 0 {
            return self.print;
        }
        let mut name = [0; packed::MOST];
        let len = packed::put(&mut name, &self.name);
        self.print_of(folder_hash(&self.folder), &name[..len])
    }

    /// The same where the hash of the folder and the packed name are known (the latter only counts where there is no
    /// other name); never 0.
    pub(super) fn print_of(&self, folder: u64, name: &[u8]) -> u64 {
        let mut bytes = [0; 8 + packed::MOST + 5 * 8];
        let mut at = 0;
        let mut put = |part: &[u8]| {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        };
        put(&folder.to_le_bytes());
        match &self.own_name {
            // No packed name is so short.
            Some(own) => put(&hash(own.as_encoded_bytes()).to_le_bytes()),
            None => put(name),
        }
        let (device, inode) = self.identity;
        for number in [self.size, self.mtime_ns.cast_unsigned(), self.ctime_ns.cast_unsigned(), device, inode] {
            put(&number.to_le_bytes());
        }
        hash(&bytes[..at]).max(1)
    }

    /// The facts that the walk found.
    pub(crate) fn stat(&self) -> FileStat {
        let (dev, ino) = self.identity;
        FileStat { size: self.size, mtime_ns: self.mtime_ns, ctime_ns: self.ctime_ns, dev, ino }
    }

    /// Modification time in milliseconds.
    #[must_use]
    pub fn mtime(&self) -> UtcMillis {
        UtcMillis::from_nanos(self.mtime_ns.into())
    }

    /// A file that the caller named.
    pub fn outside(path: &Path) -> io::Result<Self> {
        let stat = platform::identity(path)?;
        let text = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let name = RolloutName::parse(&text).unwrap_or_else(|| {
            let form = if text.ends_with(".zst") {
                Form::Zstd
            } else if text.ends_with(".json") {
                Form::Json
            } else {
                Form::Plain
            };
            RolloutName { id: None, segment: None, form, stamp: None, canonical: false }
        });
        let archived = path.components().any(|c| c.as_os_str() == "archived_sessions");
        let place = if archived { Place::Archived } else { Place::Outside };
        let folder = path.parent().unwrap_or(Path::new("")).into();
        Ok(entry(&folder, path.file_name().map(Into::into), name, place, stat, None))
    }
}

pub(super) fn folder_hash(folder: &Path) -> u64 {
    hash(folder.as_os_str().as_encoded_bytes())
}

pub(super) fn entry(
    folder: &Arc<Path>,
    own_name: Option<Box<OsStr>>,
    name: RolloutName,
    place: Place,
    stat: FileStat,
    problem: Option<Box<str>>,
) -> FileEntry {
    FileEntry {
        folder: Arc::clone(folder),
        own_name,
        name,
        place,
        size: stat.size,
        mtime_ns: stat.mtime_ns,
        ctime_ns: stat.ctime_ns,
        identity: (stat.dev, stat.ino),
        problem,
        print: 0,
    }
}
