//! The trash of a home: threads that were deleted, each in a folder of its own with a manifest of everything that went.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use threadkeep_index::saved::SavedRow;
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::RolloutName;
use threadkeep_rollout::name_index::NameLine;
use threadkeep_rollout::seam::{Disk, read_whole};

use super::journal::{make_folder_soon, sync_many, write_soon};

/// The folder of the trash, in a home.
pub const FOLDER: &str = "threadkeep/trash";

/// What an entry says of itself.
pub const MANIFEST: &str = "manifest.json";

/// An entry that is being emptied: what was its manifest.
const EMPTYING: &str = "emptying.json";

/// The newest form of a manifest that is known.
pub const FORMAT: u32 = 1;

/// What went with a thread, and where it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Its form.
    pub format: u32,
    /// The entry: the name of its folder.
    pub entry: String,
    /// The thread.
    pub thread_id: ThreadId,
    /// Its name.
    pub name: Option<String>,
    /// How it began.
    pub preview: Option<String>,
    /// When it was deleted.
    pub deleted_at: UtcMillis,
    /// Its place among those that were deleted at one moment: what was taken out last goes back first.
    pub number: u64,
    /// Its files.
    pub files: Vec<TrashedFile>,
    /// Its lines in the name index.
    pub names: Vec<NameLine>,
    /// Its rows in Codex's database, with the rows that go with them there.
    pub codex: Vec<SavedRow>,
    /// What our own index alone had of it.
    pub index: Vec<SavedRow>,
    /// For a thread that was detached: what took the place of its files.
    #[serde(default)]
    pub replaced: Option<Replaced>,
    /// Its goals in Codex's database of goals, which stay there: for whoever wants to read them.
    pub goals: Vec<SavedRow>,
}

/// The rollout that took the place of others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// Where it is, relative to the home.
    pub path: PathBuf,
    /// Bytes that it was made with: a longer one was written to since.
    pub bytes: u64,
    /// Where Codex looked for the thread before.
    pub rollout_path: Option<String>,
}

/// A file in the trash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrashedFile {
    /// Where it was, relative to the home.
    pub path: PathBuf,
    /// Bytes.
    pub bytes: u64,
}

impl Manifest {
    /// Bytes of all its files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|f| f.bytes).sum()
    }

    /// Where a file of it is, relative to the home.
    #[must_use]
    pub fn place(&self, file: &TrashedFile) -> PathBuf {
        Path::new(FOLDER).join(&self.entry).join("files").join(&file.path)
    }
}

/// The folder of an entry.
#[must_use]
pub fn folder(home: &Path, entry: &str) -> PathBuf {
    home.join(FOLDER).join(entry)
}

/// What is in the trash.
#[derive(Debug, Default)]
pub struct Trash {
    /// What can be restored, newest first.
    pub entries: Vec<Manifest>,
    /// What is there and cannot be told: the folder, and why.
    pub odd: Vec<(PathBuf, String)>,
    /// Folders that are being emptied.
    pub emptying: Vec<PathBuf>,
    /// Every name in its folder: none of these is free for another entry.
    names: BTreeSet<OsString>,
}

impl Trash {
    /// Reads the trash of a home.
    ///
    /// # Errors
    ///
    /// What the system says of its folder.
    pub fn read(disk: &dyn Disk, home: &Path) -> io::Result<Self> {
        let mut trash = Self::default();
        // What is emptied is in this home and nowhere else.
        if disk.is_link(&home.join(FOLDER))? {
            return Err(io::Error::other(format!("{FOLDER} is a link, and it is not followed")));
        }
        for name in disk.names_in(&home.join(FOLDER))? {
            let path = home.join(FOLDER).join(&name);
            trash.names.insert(name.clone());
            if disk.is_link(&path)? {
                trash.odd.push((path, "it is a link".to_owned()));
                continue;
            }
            match read_manifest(disk, &path.join(MANIFEST)) {
                Ok(manifest) if Path::new(&name) == Path::new(&manifest.entry) => trash.entries.push(manifest),
                Ok(manifest) => trash.odd.push((path, format!("its manifest is that of {}", manifest.entry))),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let emptying = disk.look(&path.join(EMPTYING))?.is_some();
                    // Another file beside the entries is nobody's business.
                    if emptying {
                        trash.emptying.push(path);
                    } else if path.is_dir() {
                        trash.odd.push((path, "it has no manifest".to_owned()));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::NotADirectory => {}
                Err(e) => trash.odd.push((path, e.to_string())),
            }
        }
        trash.entries.sort_by(|a, b| (b.deleted_at, b.number, &b.entry).cmp(&(a.deleted_at, a.number, &a.entry)));
        trash.odd.sort();
        Ok(trash)
    }

    /// The entry that a text means, by its name, thread or unique beginning, where one does; of those of one thread the
    /// newest.
    #[must_use]
    pub fn find(&self, query: &str) -> Option<&Manifest> {
        let query = query.trim();
        let id = ThreadId::parse(query).ok();
        let exact = |e: &&Manifest| id == Some(e.thread_id) || e.entry == query || e.name.as_deref() == Some(query);
        let prefix = query.to_ascii_lowercase();
        let begins = |e: &&Manifest| prefix.len() >= 4 && e.entry.starts_with(&prefix);
        let mut found: Vec<&Manifest> = self.entries.iter().filter(exact).collect();
        if found.is_empty() {
            found = self.entries.iter().filter(begins).collect();
        }
        let first = *found.first()?;
        found.iter().all(|e| e.thread_id == first.thread_id).then_some(first)
    }

    /// A name for the entry of a thread that no other has.
    #[must_use]
    pub fn free_entry(&self, id: ThreadId, taken: &BTreeSet<String>) -> String {
        let there = |name: &str| self.names.contains(OsStr::new(name)) || taken.contains(name);
        let name = id.to_string();
        if !there(&name) {
            return name;
        }
        (2..).map(|n| format!("{id}-{n}")).find(|name| !there(name)).unwrap_or(name)
    }
}

/// Reads the manifest of an entry.
///
/// # Errors
///
/// What the system says, and where it is not what a manifest should be.
pub(super) fn read_manifest(disk: &dyn Disk, path: &Path) -> io::Result<Manifest> {
    let manifest: Manifest = serde_json::from_slice(&read_whole(disk, path)?).map_err(io::Error::other)?;
    if manifest.format > FORMAT {
        return Err(io::Error::other(format!("it has the form {}, which this release does not know", manifest.format)));
    }
    // What comes back goes into the home and nowhere else, and nothing outside goes when it comes.
    let outside = |p: &&PathBuf| p.as_os_str().is_empty() || !p.components().all(|c| matches!(c, Component::Normal(_)));
    let named = manifest.files.iter().map(|f| &f.path).chain(manifest.replaced.iter().map(|r| &r.path));
    if let Some(path) = named.clone().find(outside) {
        return Err(io::Error::other(format!("it names a file outside the home: {}", path.display())));
    }
    if let Some(path) = named.clone().find(|p| !is_rollout(p)) {
        return Err(io::Error::other(format!("it names a file that is no rollout: {}", path.display())));
    }
    Ok(manifest)
}

/// Whether a path of the home may be that of a rollout.
pub(super) fn is_rollout(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy()).unwrap_or_default();
    (path.starts_with("sessions") || path.starts_with("archived_sessions")) && RolloutName::parse(&name).is_some()
}

/// Writes the manifest of an entry. It is not durable yet: its file and folders are told.
///
/// # Errors
///
/// What the system says.
pub fn write(
    disk: &dyn Disk,
    home: &Path,
    manifest: &Manifest,
    (files, folders): (&mut Vec<PathBuf>, &mut BTreeSet<PathBuf>),
) -> io::Result<()> {
    make_folder_soon(disk, home, &Path::new(FOLDER).join(&manifest.entry), folders)?;
    let text = serde_json::to_vec_pretty(manifest).map_err(io::Error::other)?;
    let path = folder(home, &manifest.entry).join(MANIFEST);
    write_soon(disk, &path, &text)?;
    folders.extend(path.parent().map(Path::to_owned));
    files.push(path);
    Ok(())
}

/// Takes an entry away that holds no file.
///
/// # Errors
///
/// What the system says; then it may still be told as an entry without files.
pub fn drop_entry(disk: &dyn Disk, home: &Path, manifest: &Manifest) -> io::Result<()> {
    let mut folders = BTreeSet::new();
    drop_entry_soon(disk, home, manifest, &mut folders)?;
    sync_many(disk, home, &[], &folders)
}

/// The same, not durable yet: the folders are told in which a name went.
///
/// # Errors
///
/// What the system says.
pub fn drop_entry_soon(
    disk: &dyn Disk,
    home: &Path,
    manifest: &Manifest,
    dirty: &mut BTreeSet<PathBuf>,
) -> io::Result<()> {
    let entry = folder(home, &manifest.entry);
    match disk.remove(&entry.join(MANIFEST)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let mut folders: BTreeSet<PathBuf> = BTreeSet::from([entry.clone()]);
    for file in &manifest.files {
        let whole = home.join(manifest.place(file));
        folders.extend(whole.ancestors().skip(1).take_while(|p| p.starts_with(&entry)).map(Path::to_owned));
    }
    // The deepest first; one that is not empty has something that somebody else put there.
    for folder in folders.iter().rev() {
        let _ = disk.remove_dir(folder);
    }
    dirty.extend([entry, home.join(FOLDER)]);
    Ok(())
}

/// Empties an entry for good: first it is no entry any more, then its files go. Tells how many bytes.
///
/// # Errors
///
/// What the system says; then it can be emptied again.
pub(super) fn empty(disk: &dyn Disk, home: &Path, entry: &Manifest) -> io::Result<u64> {
    let path = folder(home, &entry.entry);
    disk.rename(&path.join(MANIFEST), &path.join(EMPTYING))?;
    disk.sync_dir(&path)?;
    go_on_emptying(disk, home, &path)
}

/// Goes on with an entry that was being emptied.
///
/// # Errors
///
/// What the system says.
pub fn go_on_emptying(disk: &dyn Disk, home: &Path, path: &Path) -> io::Result<u64> {
    let freed = remove_below(disk, path, &[EMPTYING])?;
    disk.remove(&path.join(EMPTYING))?;
    disk.remove_dir(path)?;
    disk.sync_dir(&home.join(FOLDER))?;
    Ok(freed)
}

/// Removes everything in a folder but some names. No link is followed.
fn remove_below(disk: &dyn Disk, path: &Path, but: &[&str]) -> io::Result<u64> {
    let mut freed = 0;
    for name in disk.names_in(path)? {
        if but.iter().any(|b| name == *b) {
            continue;
        }
        let below = path.join(&name);
        let facts = std::fs::symlink_metadata(&below)?;
        if facts.is_dir() {
            freed += remove_below(disk, &below, &[])?;
            disk.remove_dir(&below)?;
        } else {
            freed += facts.len();
            disk.remove(&below)?;
        }
    }
    Ok(freed)
}

/// What the trash of a home takes: how many threads can be restored, and the bytes of everything in it. No link is
/// followed; what cannot be read is not counted.
#[must_use]
pub fn size(disk: &dyn Disk, home: &Path) -> (u64, u64) {
    let threads = Trash::read(disk, home).map_or(0, |trash| trash.entries.len() as u64);
    let mut bytes = 0;
    let mut todo = vec![home.join(FOLDER)];
    while let Some(path) = todo.pop() {
        match std::fs::symlink_metadata(&path) {
            Ok(facts) if facts.is_dir() => {
                todo.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
            }
            Ok(facts) => bytes += facts.len(),
            Err(_) => {}
        }
    }
    (threads, bytes)
}
