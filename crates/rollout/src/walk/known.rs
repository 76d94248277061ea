//! What is known of folders before a walk, so that only those that changed are read.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, OsStr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use threadkeep_record::ThreadId;

use super::entry::{entry, folder_hash};
use super::{FileEntry, Place, Walk, join, parse};
use crate::name::RolloutName;
use crate::packed::{self, Next, Spelt};
use crate::platform::{self, FileStat, FolderMark, KnownFolder};

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
    pub(super) fn is_sound(&self) -> bool {
        self.below().all(|name| name != b".." && name != b"." && !name.contains(&b'/'))
    }

    /// The names of folders.
    pub(super) fn below(&self) -> impl Iterator<Item = &[u8]> {
        self.folders.split(|b| *b == 0).filter(|name| !name.is_empty())
    }

    pub(super) fn note(&mut self, name: &OsStr, parsed: &RolloutName) {
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

impl Wanted<'_> {
    fn passes_over(&self, id: Option<ThreadId>) -> bool {
        id.is_some_and(|id| !self.ids.contains(&id) && (self.known)(id))
    }
}

/// What is known of folders before a walk.
#[derive(Clone, Copy)]
pub enum Remember<'k> {
    /// Nothing, and nothing is to be kept.
    Nothing,
    /// Names of earlier walks, by path in the home. Only folders that changed are read.
    Known(&'k HashMap<PathBuf, FolderNames>),
    /// The same; of files that were known, only those of some threads are looked at and told.
    Some(&'k HashMap<PathBuf, FolderNames>, Wanted<'k>),
}

/// A folder that has to be read in a walk for some threads: files that were in it before are passed over as in one that
/// stands as it was.
pub(super) struct AsBefore<'k> {
    names: HashSet<&'k [u8]>,
    wanted: Wanted<'k>,
}

impl<'k> AsBefore<'k> {
    pub fn of(home: &Path, path: &Path, remember: Remember<'k>) -> Option<Self> {
        let Remember::Some(known, wanted) = remember else { return None };
        let before = known.get(path)?;
        // Another folder of this name has other files.
        let now = platform::identity(&home.join(path)).ok()?;
        if (now.dev, now.ino) != (before.mark.dev, before.mark.ino) {
            return None;
        }
        let (mut list, mut names) = (before.files.as_slice(), HashSet::new());
        while let Next::Name(_, packed) = packed::next(&mut list) {
            names.insert(packed);
        }
        Some(Self { names, wanted })
    }

    pub fn passes_over(&self, name: &OsStr) -> bool {
        let Some(parsed) = parse(name).filter(|parsed| parsed.is_spelt(name.as_encoded_bytes())) else { return false };
        let mut bytes = [0; packed::MOST];
        let len = packed::put(&mut bytes, &parsed);
        self.wanted.passes_over(parsed.id) && self.names.contains(&bytes[..len])
    }
}

/// Looks at a folder that is known; `false` where it has to be read.
pub(super) fn known(
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
    let full = home.join(path);
    let open = || KnownFolder::open(&full, &names.mark).ok().flatten();
    let folder = OnceCell::new();
    // Most folders have none of a few threads, so they are only opened when one is found.
    let stands =
        if wanted.is_some() { platform::stands(&full, &names.mark) } else { folder.get_or_init(open).is_some() };
    if !stands {
        return false;
    }
    let stat = |name: &CStr| folder.get_or_init(open).as_ref()?.stat(name);
    let before = into.files.len();
    if !stat_all(&stat, &path.into(), place, &names.files, wanted, &mut into.files) {
        into.files.truncate(before);
        return false;
    }
    folders.extend(names.below().map(|name| (join(path, from_bytes(name)), place)));
    true
}

/// Looks at every file of a list of names, or those that are wanted; `false` where one is not there, or the list is none.
fn stat_all(
    stat: &dyn Fn(&CStr) -> Option<FileStat>,
    path: &Arc<Path>,
    place: Place,
    names: &[u8],
    wanted: Option<Wanted<'_>>,
    into: &mut Vec<FileEntry>,
) -> bool {
    let hashed = folder_hash(path);
    let mut spelt = Spelt::new();
    let mut names = names;
    loop {
        if let (Some(wanted), Some((id, length))) = (wanted, packed::peek(names))
            && wanted.passes_over(Some(id))
        {
            names = &names[length..];
            continue;
        }
        let (own_name, name, packed, stat) = match packed::next(&mut names) {
            Next::Name(name, packed) => {
                let stat = stat(spelt.spell(&name));
                (None, name, packed, stat)
            }
            Next::Text(text) => {
                let own = from_bytes(text.to_bytes());
                let Some(name) = parse(own).filter(|_| packed::is_plain(text)) else { return false };
                (Some(own.into()), name, &[][..], stat(text))
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

/// A name as it was remembered. Only systems whose names are bytes remember folders.
#[cfg(unix)]
pub(super) fn from_bytes(name: &[u8]) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

#[cfg(not(unix))]
pub(super) fn from_bytes(name: &[u8]) -> &OsStr {
    OsStr::new(std::str::from_utf8(name).unwrap_or(""))
}
