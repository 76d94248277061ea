//! What a change writes down before it begins, so that whoever comes after a crash can finish it.
//!
//! A journal is a file of its own in `threadkeep/journal/`, written whole and durable before the first file moves and
//! removed when everything is done. Each step can be done again: a file that moved already, a line that is gone already,
//! are as they should be. The locks of its threads are held from before it is written until it is gone, so a journal
//! whose threads can be locked belongs to nobody who is alive.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use threadkeep_index::saved::SavedRow;
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::name_index::NameLine;
use threadkeep_rollout::seam::{Disk, DiskFile, OpenMode, read_whole};

use super::ChangeKind;
use super::trash::{Manifest, TrashedFile, is_rollout};

/// The folder of journals, in a home.
pub const FOLDER: &str = "threadkeep/journal";

/// The newest form of a journal that is known.
pub const FORMAT: u32 = 1;

/// A change that was begun.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    /// Its form.
    pub format: u32,
    /// What is done.
    pub kind: ChangeKind,
    /// When it was begun.
    pub at: UtcMillis,
    /// What is done to each thread.
    pub steps: Vec<Step>,
}

/// What is done to one thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The thread.
    pub thread_id: ThreadId,
    /// Its files: all or none.
    pub moves: Vec<Move>,
    /// Files that go when the others have come: what took their place; relative to the home.
    #[serde(default)]
    pub removes: Vec<PathBuf>,
    /// Files with so many bytes that the change was made from: where one has others after a crash, it is taken back.
    #[serde(default)]
    pub made_from: Vec<TrashedFile>,
    /// What the trash says of it; for a thread that goes there or comes from there.
    pub trash: Option<Manifest>,
    /// What becomes of its lines in the name index.
    pub names: Names,
    /// What becomes of its row in Codex's database.
    pub codex: Codex,
}

impl Step {
    /// A thread whose files move, and nothing else.
    #[must_use]
    pub fn new(thread_id: ThreadId, moves: Vec<Move>) -> Self {
        let (names, codex) = (Names::Stay, Codex::Stay);
        Self { thread_id, moves, removes: vec![], made_from: vec![], trash: None, names, codex }
    }
}

/// A file that goes from one place to another; paths relative to the home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Where it is.
    pub from: PathBuf,
    /// Where it goes. What stands there is never replaced.
    pub to: PathBuf,
}

/// Lines of the name index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Names {
    /// They stay.
    Stay,
    /// They are taken out.
    Take,
    /// They are put back.
    Put(Vec<NameLine>),
}

/// Columns of Codex's database.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Codex {
    /// Nothing changes there.
    Stay,
    /// The flag, its time (whole seconds) and the path go together: without the path Codex refuses to resume.
    Place {
        /// When it was archived; `None` for a thread that is not.
        archived_at: Option<i64>,
        /// The rollout, as an absolute path.
        rollout_path: String,
    },
    /// Only where its rollout is.
    Path {
        /// The rollout, as an absolute path.
        rollout_path: String,
    },
    /// Its rows go.
    Delete,
    /// Its rows come back.
    Put(Vec<SavedRow>),
}

/// What is wrong with a journal that was found.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("cannot use the journal {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not what a journal should be.
    #[error("the journal {} is not one that this release can finish: {why}", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
}

impl Journal {
    /// Writes it durably under a name of its own, and tells that.
    ///
    /// # Errors
    ///
    /// What the system says; then there is no journal.
    pub fn write(&self, disk: &dyn Disk, home: &Path, name: &str) -> Result<PathBuf, JournalError> {
        let folder = home.join(FOLDER);
        let path = folder.join(format!("{name}.json"));
        let failed = |source| JournalError::Io { path: path.clone(), source };
        let text = serde_json::to_vec(self).map_err(|e| failed(io::Error::other(e)))?;
        make_folder(disk, home, Path::new(FOLDER)).map_err(failed)?;
        match write_whole(disk, &path, &text) {
            Ok(()) => Ok(path),
            Err(e) => {
                // Nothing was begun, so what may stand there must not begin anything later.
                let _ = disk.remove(&path).and_then(|()| disk.sync_dir(&folder));
                Err(failed(e))
            }
        }
    }

    /// Reads a journal; `None` for one that is gone.
    ///
    /// # Errors
    ///
    /// Where it cannot be read, or says what this release does not know.
    pub fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Self>, JournalError> {
        let bytes = match read_whole(disk, path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(JournalError::Io { path: path.to_owned(), source }),
        };
        let unknown = |why: String| JournalError::Unknown { path: path.to_owned(), why };
        let journal: Self = serde_json::from_slice(&bytes).map_err(|e| unknown(e.to_string()))?;
        if journal.format > FORMAT {
            return Err(unknown(format!("its form is {}", journal.format)));
        }
        // A journal moves files of its home and nothing else.
        let inside = |p: &Path| p.components().all(|c| matches!(c, std::path::Component::Normal(_)));
        let entries = journal.steps.iter().filter_map(|s| s.trash.as_ref()).map(|m| Path::new(&m.entry));
        if let Some(entry) = entries.into_iter().find(|e| !inside(e) || e.components().count() != 1) {
            return Err(unknown(format!("it names an entry of the trash {:?}", entry)));
        }
        let removed = journal.steps.iter().flat_map(|s| &s.removes);
        if let Some(path) = removed.into_iter().find(|p| !inside(p) || !is_rollout(p)) {
            return Err(unknown(format!("it removes {}", path.display())));
        }
        match journal.steps.iter().flat_map(|s| &s.moves).find(|m| !inside(&m.from) || !inside(&m.to)) {
            Some(m) => Err(unknown(format!("it moves {} to {}", m.from.display(), m.to.display()))),
            None => Ok(Some(journal)),
        }
    }

    /// The threads whose journals were begun to be written, with what there is of each: the first of a change, whose
    /// lock is held while it is written. Nothing was done for such a journal yet.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn partial(disk: &dyn Disk, home: &Path) -> io::Result<Vec<(ThreadId, PathBuf)>> {
        let folder = home.join(FOLDER);
        let first = |name: &std::ffi::OsString| {
            let (_, id) = name.to_str()?.strip_suffix(".part")?.split_once('-')?;
            Some((ThreadId::parse(id).ok()?, folder.join(name)))
        };
        Ok(disk.names_in(&folder)?.iter().filter_map(first).collect())
    }

    /// The journals of a home.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn all(disk: &dyn Disk, home: &Path) -> io::Result<Vec<PathBuf>> {
        let folder = home.join(FOLDER);
        let names = disk.names_in(&folder)?;
        let mut all: Vec<PathBuf> =
            names.iter().map(|name| folder.join(name)).filter(|p| p.extension().is_some_and(|e| e == "json")).collect();
        all.sort();
        Ok(all)
    }
}

/// Makes a folder of a home, and those above it, durable.
pub fn make_folder(disk: &dyn Disk, home: &Path, below: &Path) -> io::Result<()> {
    let whole = home.join(below);
    if disk.look(&whole)?.is_some() {
        return Ok(());
    }
    disk.create_dir_all(&whole)?;
    let mut folder = home.to_owned();
    for part in below.components() {
        disk.sync_dir(&folder)?;
        folder.push(part);
    }
    Ok(())
}

/// Makes a folder of a home, without making it durable, and tells the folders in which names may be new.
pub fn make_folder_soon(disk: &dyn Disk, home: &Path, below: &Path, dirty: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    let whole = home.join(below);
    if dirty.contains(&whole) || disk.look(&whole)?.is_some() {
        return Ok(());
    }
    disk.create_dir_all(&whole)?;
    dirty.extend(whole.ancestors().take_while(|p| p.starts_with(home)).map(Path::to_owned));
    Ok(())
}

/// Above so many, files and folders are made durable together.
const ONE_BY_ONE: usize = 24;

/// Makes files and the names in folders durable: one by one, or, where they are many, all that waits.
pub fn sync_many(disk: &dyn Disk, home: &Path, files: &[PathBuf], folders: &BTreeSet<PathBuf>) -> io::Result<()> {
    if files.len() + folders.len() > ONE_BY_ONE {
        match disk.sync_all(home) {
            Err(e) if e.kind() == io::ErrorKind::Unsupported => {}
            synced => return synced,
        }
    }
    for file in files {
        disk.open(file, OpenMode::Existing)?.sync_data()?;
    }
    for folder in folders {
        match disk.sync_dir(folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            synced => synced?,
        }
    }
    Ok(())
}

/// Writes a file under another name, from which it is renamed. What an earlier try left there goes.
fn write_partial(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<(PathBuf, Box<dyn DiskFile>)> {
    let partial = path.with_extension("part");
    match disk.remove(&partial) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let mut file = disk.open(&partial, OpenMode::New)?;
    match file.write_all_at(bytes, 0) {
        Ok(()) => Ok((partial, file)),
        Err(e) => {
            // On a full disk it would keep the room.
            let _ = disk.remove(&partial);
            Err(e)
        }
    }
}

/// Writes a file without making it durable: under another name first, then its own.
pub fn write_soon(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (partial, _) = write_partial(disk, path, bytes)?;
    disk.rename(&partial, path)
}

/// Writes a file in one step: under another name first, synced, then its own.
pub fn write_whole(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (partial, mut file) = write_partial(disk, path, bytes)?;
    if let Err(e) = file.sync_data().and_then(|()| disk.rename(&partial, path)) {
        let _ = disk.remove(&partial);
        return Err(e);
    }
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
}
