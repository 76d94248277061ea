//! Finding every rollout of a home, with the facts that tell whether it changed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use threadkeep_record::UtcMillis;

use crate::name::{Form, RolloutName};
use crate::par;
use crate::platform::{self, EntryKind};

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
    /// Path relative to the home (absolute for [`Place::Outside`]).
    pub path: PathBuf,
    /// What the name says.
    pub name: RolloutName,
    /// Where it stands.
    pub place: Place,
    /// Bytes.
    pub size: u64,
    /// Modification time, nanoseconds since the Unix epoch.
    pub mtime_ns: i128,
    /// Device and inode.
    pub identity: (u64, u64),
    /// Why its facts could not be read, if so.
    pub problem: Option<String>,
}

impl FileEntry {
    /// Modification time in milliseconds.
    #[must_use]
    pub fn mtime(&self) -> UtcMillis {
        UtcMillis::from_nanos(self.mtime_ns)
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
            RolloutName { id: None, segment: None, form, canonical: false }
        });
        let archived = path.components().any(|c| c.as_os_str() == "archived_sessions");
        let place = if archived { Place::Archived } else { Place::Outside };
        Ok(Self {
            path: path.to_owned(),
            name,
            place,
            size: stat.size,
            mtime_ns: stat.mtime_ns,
            identity: (stat.dev, stat.ino),
            problem: None,
        })
    }
}

/// Something below the two folders that could not be read.
#[derive(Debug)]
pub struct WalkProblem {
    /// Path relative to the home.
    pub path: PathBuf,
    /// What the system said.
    pub error: io::Error,
}

/// What a walk found.
#[derive(Debug, Default)]
pub struct Walk {
    /// The rollouts, in no order.
    pub files: Vec<FileEntry>,
    /// Folders that could not be read. Their threads are missing from `files`, so a list built on it is not complete.
    pub problems: Vec<WalkProblem>,
    /// Links below the folders, which are not followed.
    pub links: Vec<PathBuf>,
}

/// Walks `sessions` and `archived_sessions` of a home. The two may themselves be links; below them none is followed.
pub fn walk(home: &Path) -> Walk {
    let mut total = Walk::default();
    let roots = [("sessions", Place::Active), ("archived_sessions", Place::Archived)];
    let mut level: Vec<(PathBuf, Place)> =
        roots.iter().filter(|(name, _)| home.join(name).is_dir()).map(|(name, place)| (name.into(), *place)).collect();
    // Level by level: the folders of one level are shared out among the cores without a lock. The upper levels are few.
    while !level.is_empty() {
        if level.len() < 24 {
            level = level.into_iter().flat_map(|(path, place)| read(home, &path, place, &mut total)).collect();
            continue;
        }
        let size = level.len().div_ceil(par::threads() * 8);
        let chunks: Vec<&[(PathBuf, Place)]> = level.chunks(size).collect();
        let parts = par::map(&chunks, |chunk| {
            let mut mine = Walk::default();
            let folders: Vec<_> = chunk.iter().flat_map(|(path, place)| read(home, path, *place, &mut mine)).collect();
            (mine, folders)
        });
        let mut next = Vec::new();
        total.files.reserve(parts.iter().map(|(mine, _)| mine.files.len()).sum());
        for (mut mine, mut folders) in parts {
            total.files.append(&mut mine.files);
            total.problems.append(&mut mine.problems);
            total.links.append(&mut mine.links);
            next.append(&mut folders);
        }
        level = next;
    }
    total
}

fn read(home: &Path, path: &Path, place: Place, into: &mut Walk) -> Vec<(PathBuf, Place)> {
    let mut folders = Vec::new();
    let wanted = |name: &OsStr| RolloutName::may_be(name.as_encoded_bytes());
    let result = platform::read_folder(&home.join(path), &wanted, &mut |entry| {
        let full = || join(path, &entry.name);
        match entry.kind {
            EntryKind::Folder => folders.push((full(), place)),
            EntryKind::Link => into.links.push(full()),
            EntryKind::File(stat) => {
                if let Some(name) = parse(&entry.name) {
                    into.files.push(FileEntry {
                        path: full(),
                        name,
                        place,
                        size: stat.size,
                        mtime_ns: stat.mtime_ns,
                        identity: (stat.dev, stat.ino),
                        problem: None,
                    });
                }
            }
            EntryKind::Unreadable(error) => {
                if let Some(name) = parse(&entry.name) {
                    into.files.push(FileEntry {
                        path: full(),
                        name,
                        place,
                        size: 0,
                        mtime_ns: 0,
                        identity: (0, 0),
                        problem: Some(error.to_string()),
                    });
                }
            }
        }
    });
    if let Err(error) = result
        && error.kind() != io::ErrorKind::NotFound
    {
        into.problems.push(WalkProblem { path: path.to_owned(), error });
    }
    folders
}

fn parse(name: &OsStr) -> Option<RolloutName> {
    match name.to_str() {
        Some(text) => RolloutName::parse(text),
        // A name that is not UTF-8 was not written by Codex; what can be read of it still may hold an id.
        None => RolloutName::parse(&name.to_string_lossy()).map(|n| RolloutName { canonical: false, ..n }),
    }
}

fn join(folder: &Path, name: &OsString) -> PathBuf {
    let mut path = PathBuf::with_capacity(folder.as_os_str().len() + name.len() + 1);
    path.push(folder);
    path.push(name);
    path
}
