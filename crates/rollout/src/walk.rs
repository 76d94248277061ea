//! Finding every rollout of a home, with the facts that tell whether it changed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::hash::Hasher as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use threadkeep_record::UtcMillis;
use twox_hash::XxHash3_64;

use crate::name::{Form, RolloutName};
use crate::par;
pub use crate::platform::FolderMark;
use crate::platform::{self, EntryKind, FileStat};

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
        let mut hash = XxHash3_64::with_seed(0);
        hash.write(self.folder.as_os_str().as_encoded_bytes());
        hash.write_u8(0);
        match &self.own_name {
            Some(own) => hash.write(own.as_encoded_bytes()),
            None => {
                hash.write(self.name.stamp.as_ref().map_or(&[], <[u8; 19]>::as_slice));
                for id in [self.name.id, self.name.segment].into_iter().flatten() {
                    hash.write(id.as_bytes());
                }
                hash.write(self.name.form.ending().as_bytes());
            }
        }
        hash.write_u8(0);
        let (device, inode) = self.identity;
        for number in [self.size, self.mtime_ns.cast_unsigned(), self.ctime_ns.cast_unsigned(), device, inode] {
            hash.write(&number.to_le_bytes());
        }
        hash.finish()
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
        Ok(Self {
            folder: path.parent().unwrap_or(Path::new("")).into(),
            own_name: path.file_name().map(Into::into),
            name,
            place,
            size: stat.size,
            mtime_ns: stat.mtime_ns,
            ctime_ns: stat.ctime_ns,
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
    /// The folders that were read, where they are to be remembered; those that were known already are not among them.
    pub folders: Vec<(PathBuf, FolderNames)>,
    /// The folders that stood as they were known.
    pub unchanged: u64,
}

/// The names in a folder of rollouts at one moment. While the folder stands as `mark` says, they are the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FolderNames {
    /// How the folder stood before it was read.
    pub mark: FolderMark,
    /// Names of rollouts, each ended by a zero byte.
    pub files: Vec<u8>,
    /// Names of folders, each ended by a zero byte.
    pub folders: Vec<u8>,
}

impl FolderNames {
    /// Whether every name is one in the folder itself.
    fn is_sound(&self) -> bool {
        let lists = [&self.files, &self.folders];
        // Hardly any list has a name with a dot in front, and only such a one may be a folder's own or the one above.
        let dotted = |list: &[u8]| list.starts_with(b".") || memchr::memmem::find(list, b"\0.").is_some();
        let own = |list: &[u8]| dotted(list) && list.split(|b| *b == 0).any(|name| name == b".." || name == b".");
        !lists.iter().any(|list| memchr::memchr(b'/', list).is_some() || own(list))
    }
}

/// What is known of folders before a walk.
#[derive(Debug, Clone, Copy)]
pub enum Remember<'k> {
    /// Nothing, and nothing is to be kept.
    Nothing,
    /// Names of earlier walks, by path in the home. Only folders that changed are read.
    Known(&'k HashMap<PathBuf, FolderNames>),
}

/// Walks `sessions` and `archived_sessions` of a home. The two may themselves be links; below them none is followed.
pub fn walk(home: &Path) -> Walk {
    walk_with(home, Remember::Nothing)
}

/// As [`walk`]; files of folders that stand as they are known are looked at by name.
pub fn walk_with(home: &Path, remember: Remember<'_>) -> Walk {
    let roots = [("sessions", Place::Active), ("archived_sessions", Place::Archived)];
    let todo = Todo::default();
    todo.add(roots.iter().filter(|(name, _)| home.join(name).is_dir()).map(|(name, place)| (name.into(), *place)));
    let total = Mutex::new(Walk::default());
    par::on_all(|| {
        let mut mine = Walk::default();
        let mut folders = Vec::new();
        while let Some((path, place)) = todo.take() {
            if !known(home, &path, place, remember, &mut mine, &mut folders) {
                read(home, &path, place, remember, &mut mine, &mut folders);
            }
            todo.done(folders.drain(..));
        }
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        if total.files.is_empty() {
            std::mem::swap(&mut total.files, &mut mine.files);
        }
        total.files.append(&mut mine.files);
        total.problems.append(&mut mine.problems);
        total.links.append(&mut mine.links);
        total.folders.append(&mut mine.folders);
        total.unchanged += mine.unchanged;
    });
    let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    total.problems.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    total.links.sort_unstable();
    total
}

/// Folders that are still to be read. Reading one may add others, so there is an end only when nobody reads any more.
#[derive(Default)]
struct Todo {
    inner: Mutex<(Vec<(PathBuf, Place)>, usize)>,
}

impl Todo {
    fn lock(&self) -> MutexGuard<'_, (Vec<(PathBuf, Place)>, usize)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, folders: impl Iterator<Item = (PathBuf, Place)>) {
        self.lock().0.extend(folders);
    }

    /// A folder to read, waiting for one while others are being read.
    fn take(&self) -> Option<(PathBuf, Place)> {
        loop {
            let mut inner = self.lock();
            if let Some(folder) = inner.0.pop() {
                inner.1 += 1;
                return Some(folder);
            }
            if inner.1 == 0 {
                return None;
            }
            drop(inner);
            std::thread::yield_now();
        }
    }

    /// A taken folder was read; these were found in it.
    fn done(&self, found: impl Iterator<Item = (PathBuf, Place)>) {
        let mut inner = self.lock();
        inner.0.extend(found);
        inner.1 -= 1;
    }
}

/// Looks at a folder that is known; `false` where it has to be read.
fn known(
    home: &Path,
    path: &Path,
    place: Place,
    remember: Remember<'_>,
    into: &mut Walk,
    folders: &mut Vec<(PathBuf, Place)>,
) -> bool {
    let Remember::Known(known) = remember else { return false };
    let Some(names) = known.get(path).filter(|n| n.is_sound()) else { return false };
    let shared: Arc<Path> = path.into();
    let before = into.files.len();
    let told = platform::stat_known(&home.join(path), &names.mark, &names.files, &mut |name, stat| {
        into.files.extend(parse(name).map(|parsed| entry(&shared, name, parsed, place, stat, None)));
    });
    if !matches!(told, Ok(Some(()))) {
        into.files.truncate(before);
        return false;
    }
    let below = names.folders.split(|b| *b == 0).filter(|n| !n.is_empty());
    folders.extend(below.map(|name| (join(path, from_bytes(name)), place)));
    into.unchanged += 1;
    true
}

fn entry(
    folder: &Arc<Path>,
    name: &OsStr,
    parsed: RolloutName,
    place: Place,
    stat: FileStat,
    problem: Option<Box<str>>,
) -> FileEntry {
    FileEntry {
        folder: Arc::clone(folder),
        own_name: (!parsed.is_spelt(name.as_encoded_bytes())).then(|| name.into()),
        name: parsed,
        place,
        size: stat.size,
        mtime_ns: stat.mtime_ns,
        ctime_ns: stat.ctime_ns,
        identity: (stat.dev, stat.ino),
        problem,
    }
}

fn read(
    home: &Path,
    path: &Path,
    place: Place,
    remember: Remember<'_>,
    into: &mut Walk,
    folders: &mut Vec<(PathBuf, Place)>,
) {
    let mut shared: Option<Arc<Path>> = None;
    let mut names = FolderNames::default();
    // Only folders in which everything is plain are remembered.
    let mut plain = matches!(remember, Remember::Known(_));
    let note = |list: &mut Vec<u8>, name: &OsStr| {
        list.extend_from_slice(name.as_encoded_bytes());
        list.push(0);
    };
    let wanted = |name: &OsStr| RolloutName::may_be(name.as_encoded_bytes());
    let result = platform::read_folder(&home.join(path), &wanted, &mut |name, kind| {
        let (stat, problem) = match kind {
            EntryKind::Folder => {
                if plain {
                    note(&mut names.folders, name);
                }
                return folders.push((join(path, name), place));
            }
            EntryKind::Link => {
                plain = false;
                return into.links.push(join(path, name));
            }
            EntryKind::File(stat) => (stat, None),
            EntryKind::Unreadable(error) => {
                plain = false;
                (FileStat::default(), Some(error.to_string().into()))
            }
        };
        if let Some(parsed) = parse(name) {
            if plain {
                note(&mut names.files, name);
            }
            let folder = shared.get_or_insert_with(|| path.into());
            into.files.push(entry(folder, name, parsed, place, stat, problem));
        }
    });
    match result {
        Ok(mark) if plain => {
            names.mark = mark;
            into.folders.push((path.to_owned(), names));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            into.problems.push(WalkProblem { path: path.to_owned(), error });
        }
        Ok(_) | Err(_) => {}
    }
}

fn parse(name: &OsStr) -> Option<RolloutName> {
    match name.to_str() {
        Some(text) => RolloutName::parse(text),
        // A name that is not UTF-8 was not written by Codex; what can be read of it still may hold an id.
        None => RolloutName::parse(&name.to_string_lossy()).map(|n| RolloutName { canonical: false, ..n }),
    }
}

fn join(folder: &Path, name: &OsStr) -> PathBuf {
    let mut path = PathBuf::with_capacity(folder.as_os_str().len() + name.len() + 1);
    path.push(folder);
    path.push(name);
    path
}

/// The files of a home whose names hold a text, an id say, by their paths in it. Folders that stand as they are known
/// are not read, and no file is looked at. `None` where a folder could not be read.
#[must_use]
pub fn named(home: &Path, text: &str, known: &HashMap<PathBuf, FolderNames>) -> Option<Vec<PathBuf>> {
    let mut todo: Vec<PathBuf> =
        ["sessions", "archived_sessions"].iter().filter(|r| home.join(r).is_dir()).map(PathBuf::from).collect();
    let mut found = Vec::new();
    let holds = |name: &[u8]| memchr::memmem::find(name, text.as_bytes()).is_some();
    while let Some(path) = todo.pop() {
        let names = known.get(&path).filter(|n| n.is_sound());
        let same = names.map(|n| platform::stat_known(&home.join(&path), &n.mark, &[], &mut |_, _| {}));
        if let (Some(names), Some(Ok(Some(())))) = (names, same) {
            let each = |list: &'_ [u8], take: &mut dyn FnMut(&[u8])| {
                list.split(|b| *b == 0).filter(|n| !n.is_empty()).for_each(take);
            };
            each(&names.folders, &mut |name| todo.push(join(&path, from_bytes(name))));
            if holds(&names.files) {
                each(&names.files, &mut |name| found.extend(holds(name).then(|| join(&path, from_bytes(name)))));
            }
            continue;
        }
        let wanted = |name: &OsStr| RolloutName::may_be(name.as_encoded_bytes()) && holds(name.as_encoded_bytes());
        let read = platform::read_folder(&home.join(&path), &wanted, &mut |name, kind| match kind {
            EntryKind::Folder => todo.push(join(&path, name)),
            EntryKind::File(_) | EntryKind::Unreadable(_) => found.push(join(&path, name)),
            // A link may be an exposed file: whoever asks decides.
            EntryKind::Link if wanted(name) => found.push(join(&path, name)),
            EntryKind::Link => {}
        });
        match read {
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(_) => return None,
        }
    }
    found.sort_unstable();
    Some(found)
}

/// A name as it was remembered. Only systems whose names are bytes remember folders.
#[cfg(unix)]
fn from_bytes(name: &[u8]) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

#[cfg(not(unix))]
fn from_bytes(name: &[u8]) -> &OsStr {
    OsStr::new(std::str::from_utf8(name).unwrap_or(""))
}
