//! The index's file before SQLite sees it: which one it is, whether it may be used, and how it is made.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use threadkeep_rollout::seam::{Disk, OpenMode, RealDisk};

use crate::connection::Budget;
use crate::place::{IndexPlace, WhyMemory};
use crate::platform::{self, Owner};
use crate::schema::{APPLICATION_ID, SchemaVersion};

/// The folder of the index in a home.
const FOLDER: &str = "threadkeep";

/// Its name there.
const NAME: &str = "index.sqlite";

/// Finds the file and makes its folder. Links are followed to the home and to a folder that the caller names, not below.
pub(crate) fn locate(home: &Path, place: &IndexPlace) -> Result<PathBuf, WhyMemory> {
    let (folder, name) = match place {
        IndexPlace::Memory => return Err(WhyMemory::Asked),
        IndexPlace::Home => (home_folder(home)?, NAME.to_owned()),
        IndexPlace::Dir(folder) => {
            let unusable = |e: io::Error| WhyMemory::Folder { folder: folder.clone(), problem: e.to_string() };
            RealDisk.create_dir_all(folder).map_err(unusable)?;
            (std::fs::canonicalize(folder).map_err(unusable)?, name_in_folder(home))
        }
    };
    Ok(folder.join(name))
}

/// Whether there is anything at the file's path. Nothing is made.
pub(crate) fn is_there(home: &Path, place: &IndexPlace) -> bool {
    let path = match place {
        IndexPlace::Memory => return false,
        IndexPlace::Home => home.join(FOLDER).join(NAME),
        IndexPlace::Dir(folder) => folder.join(name_in_folder(home)),
    };
    std::fs::symlink_metadata(path).is_ok()
}

/// In a folder that serves several homes. The name is only a key: a home that is moved gets a new file, and learns again.
fn name_in_folder(home: &Path) -> String {
    let real = std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
    format!("index-{:016x}.sqlite", fnv1a(real.as_os_str().as_encoded_bytes()))
}

fn home_folder(home: &Path) -> Result<PathBuf, WhyMemory> {
    let unusable = |folder: &Path, problem: String| WhyMemory::Folder { folder: folder.to_owned(), problem };
    let facts = match std::fs::metadata(home) {
        Ok(facts) => facts,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(WhyMemory::NoHome { home: home.to_owned() }),
        Err(e) => return Err(unusable(home, e.to_string())),
    };
    match platform::owner(&facts) {
        Owner::Us => {}
        Owner::Other(owner) => return Err(WhyMemory::ForeignHome { home: home.to_owned(), owner }),
    }
    let folder = std::fs::canonicalize(home).map_err(|e| unusable(home, e.to_string()))?.join(FOLDER);
    let is_there = |folder: &Path| std::fs::symlink_metadata(folder).map(|m| m.is_dir());
    let there = match is_there(&folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            RealDisk.create_dir_all(&folder).map_err(|e| unusable(&folder, e.to_string()))?;
            is_there(&folder)
        }
        other => other,
    };
    match there {
        Ok(true) => Ok(folder),
        Ok(false) => Err(unusable(&folder, "it is not a folder (links are not followed here)".into())),
        Err(e) => Err(unusable(&folder, e.to_string())),
    }
}

/// FNV-1a, 64 bits (RFC 9923): a short stable name for a path.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, b| (hash ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// What is at the file's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing.
    Nothing,
    /// A file without a byte: one that is just being made, or whose maker was killed.
    Empty,
    /// A database that may be ours.
    Database {
        /// Its journal, as the header says it.
        wal: InWal,
    },
}

/// Whether a database is in write-ahead mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InWal {
    Yes,
    No,
}

/// Looks at the file without SQLite, which would finish what is pending in it: one that must be left alone is not
/// touched at all.
pub(crate) fn look(path: &Path) -> Result<Found, WhyMemory> {
    let no_file = |problem| WhyMemory::NotAFile { path: path.to_owned(), problem };
    let unreadable = |e: io::Error| WhyMemory::NotWritable { path: path.to_owned(), problem: e.to_string() };
    let damaged = |problem: &str| WhyMemory::Damaged { path: path.to_owned(), problem: problem.into() };
    let facts = match std::fs::symlink_metadata(path) {
        Ok(facts) => facts,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(e) => return Err(unreadable(e)),
    };
    if facts.is_symlink() {
        return Err(no_file("it is a link"));
    }
    if !facts.is_file() {
        return Err(no_file("it is not a regular file"));
    }
    if !platform::has_one_name(&facts) {
        return Err(no_file("it has a second name, and SQLite would give each its own journal"));
    }
    let mut header = Vec::with_capacity(100);
    File::open(path).and_then(|f| f.take(100).read_to_end(&mut header)).map_err(unreadable)?;
    if header.is_empty() {
        return Ok(Found::Empty);
    }
    let number = |at: usize| Some(i32::from_be_bytes(header.get(at..at + 4)?.try_into().ok()?));
    let (Some(version), Some(application_id), true) =
        (number(60), number(68), header.starts_with(b"SQLite format 3\0"))
    else {
        return Err(damaged("it does not begin as a database"));
    };
    let version = SchemaVersion(version);
    match application_id {
        APPLICATION_ID if version > SchemaVersion::CURRENT => {
            Err(WhyMemory::TooNew { path: path.to_owned(), found: version, known: SchemaVersion::CURRENT })
        }
        // 0 also while its maker has not finished; SQLite will tell.
        APPLICATION_ID | 0 => {
            Ok(Found::Database { wal: if header.get(18) == Some(&2) { InWal::Yes } else { InWal::No } })
        }
        _ => Err(WhyMemory::NotOurs { path: path.to_owned() }),
    }
}

/// The name of what SQLite keeps beside the file.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes the file, empty and the user's own. What an earlier file of the name left beside it is removed first: SQLite
/// would take it for the new one's. To be called with the folder's lock.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    for suffix in ["-wal", "-shm", "-journal"] {
        match RealDisk.remove(&beside(path, suffix)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            Ok(()) | Err(_) => {}
        }
    }
    // SQLite gives what it makes beside a file the mode of the file.
    RealDisk.open(path, OpenMode::New).map(drop)
}

/// A folder that is held while the file in it is made. `None` where folders cannot be locked.
#[derive(Debug)]
pub(crate) struct FolderLock(#[allow(dead_code, reason = "it is held, not used")] Option<File>);

/// Nobody else made it in time.
#[derive(Debug)]
pub(crate) struct FolderIsBusy;

/// Holds the folder while its file is made, so that of many processes one makes it. Released when dropped, and by the
/// system when its holder dies.
pub(crate) fn lock_folder(folder: &Path, budget: Budget) -> Result<FolderLock, FolderIsBusy> {
    let Ok(Some(open)) = platform::open_folder(folder) else { return Ok(FolderLock(None)) };
    loop {
        match open.try_lock() {
            Ok(()) => return Ok(FolderLock(Some(open))),
            // Some network file systems lock no folders. SQLite's own locks then do, but for the rare moment in which
            // two processes replace a file that was removed while it was in use.
            Err(TryLockError::Error(_)) => return Ok(FolderLock(None)),
            Err(TryLockError::WouldBlock) if budget.left().is_zero() => return Err(FolderIsBusy),
            Err(TryLockError::WouldBlock) => std::thread::sleep(budget.left().min(Duration::from_millis(2))),
        }
    }
}
