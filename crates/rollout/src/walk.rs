//! Finding every rollout of a home, with the facts that tell whether it changed.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use threadkeep_record::{ThreadId, UtcMillis};
use twox_hash::XxHash3_64;

use crate::name::{Form, RolloutName};
use crate::packed::{self, Next, Spelt};
use crate::par;
pub use crate::platform::FolderMark;
use crate::platform::{self, EntryKind, FileStat, KnownFolder};

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
    print: u64,
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
    fn print_of(&self, folder: u64, name: &[u8]) -> u64 {
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
            print: 0,
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
    /// Names of rollouts, packed (`docs/FORMAT.md`).
    pub files: Vec<u8>,
    /// Names of folders, each ended by a zero byte.
    pub folders: Vec<u8>,
}

impl FolderNames {
    /// Whether every name is one in the folder itself.
    fn is_sound(&self) -> bool {
        self.below().all(|name| name != b".." && name != b"." && !name.contains(&b'/'))
    }

    /// The names of folders.
    fn below(&self) -> impl Iterator<Item = &[u8]> {
        self.folders.split(|b| *b == 0).filter(|name| !name.is_empty())
    }

    fn note(&mut self, name: &OsStr, parsed: &RolloutName) {
        if parsed.is_spelt(name.as_encoded_bytes()) {
            packed::push(&mut self.files, parsed);
        } else {
            packed::push_text(&mut self.files, name);
        }
    }
}

/// The threads that a walk is for.
#[derive(Clone, Copy)]
pub struct Wanted<'k> {
    /// These.
    pub ids: &'k HashSet<ThreadId>,
    /// Of which nothing has to be told now. Whatever neither is wanted nor known is looked at.
    pub known: &'k (dyn Fn(ThreadId) -> bool + Sync),
}

/// What is known of folders before a walk.
#[derive(Clone, Copy)]
pub enum Remember<'k> {
    /// Nothing, and nothing is to be kept.
    Nothing,
    /// Names of earlier walks, by path in the home. Only folders that changed are read.
    Known(&'k HashMap<PathBuf, FolderNames>),
    /// The same; in folders that stand as they are known, only files of some threads are looked at and told.
    Some(&'k HashMap<PathBuf, FolderNames>, Wanted<'k>),
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
            // Folder by folder, so that the memory of a home's files is touched once: for what is new the system has to
            // find and clear pages, which costs as much as a third of the looks at the files.
            if mine.files.len() >= TOGETHER {
                total.lock().unwrap_or_else(PoisonError::into_inner).files.append(&mut mine.files);
            }
        }
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
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

/// So many files are handed over at once.
const TOGETHER: usize = 64;

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
    let (known, wanted) = match remember {
        Remember::Nothing => return false,
        Remember::Known(known) => (known, None),
        Remember::Some(known, wanted) => (known, Some(wanted)),
    };
    let Some(names) = known.get(path).filter(|n| n.is_sound()) else { return false };
    let Ok(Some(folder)) = KnownFolder::open(&home.join(path), &names.mark) else { return false };
    let before = into.files.len();
    if !stat_all(&folder, &path.into(), place, &names.files, wanted, &mut into.files) {
        into.files.truncate(before);
        return false;
    }
    folders.extend(names.below().map(|name| (join(path, from_bytes(name)), place)));
    into.unchanged += 1;
    true
}

/// Looks at every file of a list of names, or those that are wanted; `false` where one is not there, or the list is none.
fn stat_all(
    folder: &KnownFolder,
    path: &Arc<Path>,
    place: Place,
    names: &[u8],
    wanted: Option<Wanted<'_>>,
    into: &mut Vec<FileEntry>,
) -> bool {
    let skips = |id: Option<ThreadId>| match (wanted, id) {
        (Some(wanted), Some(id)) => !wanted.ids.contains(&id) && (wanted.known)(id),
        _ => false,
    };
    let hashed = folder_hash(path);
    let mut spelt = Spelt::new();
    let mut names = names;
    loop {
        let (own_name, name, packed, stat) = match packed::next(&mut names) {
            Next::Name(name, _) if skips(name.id) => continue,
            Next::Name(name, packed) => {
                let stat = folder.stat(spelt.spell(&name));
                (None, name, packed, stat)
            }
            Next::Text(text) => {
                let own = from_bytes(text.to_bytes());
                let Some(name) = parse(own).filter(|_| packed::is_plain(text)) else { return false };
                (Some(own.into()), name, &[][..], folder.stat(text))
            }
            Next::End => return true,
            Next::Broken => return false,
        };
        let Some(stat) = stat else { return false };
        let mut file = entry(path, own_name, name, place, stat, None);
        file.print = file.print_of(hashed, packed);
        into.push(file);
    }
}

fn folder_hash(folder: &Path) -> u64 {
    hash(folder.as_os_str().as_encoded_bytes())
}

fn entry(
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
    let mut plain = !matches!(remember, Remember::Nothing);
    let wanted = |name: &OsStr| RolloutName::may_be(name.as_encoded_bytes());
    let result = platform::read_folder(&home.join(path), &wanted, &mut |name, kind| {
        let (stat, problem) = match kind {
            EntryKind::Folder => {
                if plain {
                    names.folders.extend_from_slice(name.as_encoded_bytes());
                    names.folders.push(0);
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
                names.note(name, &parsed);
            }
            let folder = shared.get_or_insert_with(|| path.into());
            let own_name = (!parsed.is_spelt(name.as_encoded_bytes())).then(|| name.into());
            into.files.push(entry(folder, own_name, parsed, place, stat, problem));
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
    // An id stands in a packed list as its bytes.
    let id = ThreadId::parse(text).ok().filter(|id| id.to_string() == text);
    let may_hold = |list: &[u8]| id.is_none_or(|id| memchr::memmem::find(list, id.as_bytes()).is_some() || holds(list));
    while let Some(path) = todo.pop() {
        let names = known.get(&path).filter(|n| n.is_sound() && platform::stands(&home.join(&path), &n.mark));
        if let Some(names) = names
            && let Some(here) = if may_hold(&names.files) { spelt(&names.files) } else { Some(vec![]) }
        {
            todo.extend(names.below().map(|name| join(&path, from_bytes(name))));
            found.extend(here.iter().filter(|name| holds(name)).map(|name| join(&path, from_bytes(name))));
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

/// The names of a list as they are spelt; `None` where it is none.
fn spelt(mut list: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut spelt = Spelt::new();
    let mut all = Vec::new();
    loop {
        match packed::next(&mut list) {
            Next::Name(name, _) => all.push(spelt.spell(&name).to_bytes().to_vec()),
            Next::Text(text) if packed::is_plain(text) => all.push(text.to_bytes().to_vec()),
            Next::End => return Some(all),
            Next::Text(_) | Next::Broken => return None,
        }
    }
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
