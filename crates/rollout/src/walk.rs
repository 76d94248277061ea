//! Finding every rollout of a home, with the facts that tell whether it changed.

mod entry;
mod known;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use threadkeep_record::ThreadId;

pub use self::entry::{FileEntry, Place, hash};
pub use self::known::{FolderNames, Remember, Wanted};
use crate::name::RolloutName;
use crate::packed::{self, Next, Spelt};
use crate::par;
pub use crate::platform::FolderMark;
use crate::platform::{self, EntryKind, FileStat};
use entry::entry;
use known::{AsBefore, from_bytes, known};

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
    /// The folders that were read, where they are to be remembered; those that were known already are not among them. In a
    /// walk for some threads they hold not all names.
    pub folders: Vec<(PathBuf, FolderNames)>,
    /// The folders that stood as they were known.
    pub unchanged: Vec<PathBuf>,
    /// Some folder holds what is neither a plain file nor a folder, or is there no more.
    pub odd: bool,
}

/// The folders of a home that hold rollouts.
pub(crate) const ROOTS: [(&str, Place); 2] = [("sessions", Place::Active), ("archived_sessions", Place::Archived)];

/// Walks `sessions` and `archived_sessions` of a home. The two may themselves be links; below them none is followed.
pub fn walk(home: &Path) -> Walk {
    walk_with(home, Remember::Nothing)
}

/// As [`walk`]; files of folders that stand as they are known are looked at by name.
pub fn walk_with(home: &Path, remember: Remember<'_>) -> Walk {
    let todo = Todo::default();
    todo.add(ROOTS.iter().filter(|(name, _)| home.join(name).is_dir()).map(|(name, place)| (name.into(), *place)));
    let mut total = Walk::default();
    if let Remember::Known(known) = remember {
        // Nearly all names are packed to the same length. A table that grows touches its memory twice.
        let bytes: usize = known.values().map(|names| names.files.len()).sum();
        total.files.reserve(bytes / packed::USUAL + bytes / 256);
    }
    let total = Mutex::new(total);
    par::on_all(|| {
        let mut mine = Walk::default();
        let mut folders = Vec::new();
        while let Some((path, place)) = todo.take() {
            if known(home, &path, place, remember, &mut mine, &mut folders) {
                mine.unchanged.push(path);
            } else {
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
        total.unchanged.append(&mut mine.unchanged);
        total.odd |= mine.odd;
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
    let before = AsBefore::of(home, path, remember);
    let wanted = |name: &OsStr| {
        RolloutName::may_be(name.as_encoded_bytes()) && !before.as_ref().is_some_and(|before| before.passes_over(name))
    };
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
            into.odd = true;
            into.problems.push(WalkProblem { path: path.to_owned(), error });
        }
        Ok(_) | Err(_) => into.odd = true,
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
        ROOTS.iter().filter(|(r, _)| home.join(r).is_dir()).map(|(r, _)| PathBuf::from(r)).collect();
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
