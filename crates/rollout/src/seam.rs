//! The seam through which every change of a file goes: open, read, write, sync, rename, link, remove.
//!
//! Two implementations: [`RealDisk`], the system's; and [`crate::sim::SimDisk`], which knows of each byte and each name
//! whether it would survive a power loss, and can fail any call. Nothing above this module changes a file by itself.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::platform;

/// How a file is opened for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// It has to exist.
    Existing,
    /// It must not exist.
    New,
    /// Either.
    Any,
}

/// A disk.
pub trait Disk: Send + Sync + Debug {
    /// Opens a file for reading and writing. Files that are made are the user's own (0600).
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>>;
    /// Makes a folder and those above it (0700).
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Gives a file another name in one step. An existing target is replaced.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name. An existing target is an error.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file another name. An existing target is an error (`AlreadyExists`), and nothing is done. Where the two
    /// names are on different file systems the file is copied, made durable with its times and mode, and then removed.
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a name.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder that is empty.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// What a name leads to; `None` where there is no such name. Links are followed above it, not at it.
    fn look(&self, path: &Path) -> io::Result<Option<Looked>>;
    /// Whether a name is a link to another place. A disk without links has none.
    fn is_link(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }
    /// The names in a folder; none where there is no folder.
    fn names_in(&self, path: &Path) -> io::Result<Vec<OsString>>;
    /// Gives a file the mode of another.
    fn copy_mode(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes everything on the file system of a folder durable, contents and names: for many files at once cheaper than
    /// one after the other.
    fn sync_all(&self, path: &Path) -> io::Result<()>;
}

/// What a name leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Looked {
    /// Device and inode; zeros where the system tells none.
    pub identity: (u64, u64),
    /// Bytes.
    pub size: u64,
}

impl Looked {
    /// Whether two names lead to one file, as far as the system tells.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.identity != (0, 0) && self.identity == other.identity
    }
}

/// Something that is read from anywhere.
pub trait ReadAt {
    /// Reads up to `into.len()` bytes from `offset`; fewer only at the end.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads exactly `into.len()` bytes from `offset`.
    fn read_exact_at(&self, mut into: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !into.is_empty() {
            match self.read_at(into, offset) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    into = &mut into[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// A file in passing: how long it is, and whether it still has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileState {
    /// Bytes.
    pub size: u64,
    /// Whether some name leads to it. Without one it goes when it is closed.
    pub linked: bool,
}

/// An open file.
pub trait DiskFile: ReadAt + Send + Debug {
    /// Bytes of the file, and whether it has a name.
    fn state(&self) -> io::Result<FileState>;
    /// Writes at `offset`, possibly only some of the bytes, as `write(2)` does.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Writes all bytes at `offset`; after an error some of them may be there.
    fn write_all_at(&mut self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    bytes = &bytes[n..];
                    offset += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
    /// Cuts or extends the file.
    fn set_size(&mut self, size: u64) -> io::Result<()>;
    /// Makes the contents durable.
    fn sync_data(&mut self) -> io::Result<()>;
    /// Sets when the file was last changed. A disk without such times does nothing.
    fn set_modified(&mut self, _at: SystemTime) -> io::Result<()> {
        Ok(())
    }
}

/// Reads a file whole.
///
/// # Errors
///
/// What the system says.
pub fn read_whole(disk: &dyn Disk, path: &Path) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Existing)?;
    let mut bytes = vec![0; usize::try_from(file.state()?.size).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The system's disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match mode {
            OpenMode::Existing => {}
            OpenMode::New => {
                options.create_new(true);
            }
            OpenMode::Any => {
                options.create(true).truncate(false);
            }
        }
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        Ok(Box::new(RealFile(options.open(path)?)))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match platform::rename_new(from, to) {
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => move_across(from, to),
            done => done,
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn look(&self, path: &Path) -> io::Result<Option<Looked>> {
        match platform::identity_here(path) {
            Ok(found) => Ok(Some(Looked { identity: (found.dev, found.ino), size: found.size })),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn is_link(&self, path: &Path) -> io::Result<bool> {
        match std::fs::symlink_metadata(path) {
            Ok(facts) => Ok(facts.file_type().is_symlink()),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(e) => Err(e),
        }
    }

    fn names_in(&self, path: &Path) -> io::Result<Vec<OsString>> {
        match std::fs::read_dir(path) {
            Ok(entries) => entries.map(|e| e.map(|e| e.file_name())).collect(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(vec![]),
            Err(e) => Err(e),
        }
    }

    fn copy_mode(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::set_permissions(to, std::fs::metadata(from)?.permissions())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        // Windows has no such call for folders; its file systems keep names by themselves.
        if cfg!(windows) { Ok(()) } else { File::open(path)?.sync_all() }
    }

    fn sync_all(&self, path: &Path) -> io::Result<()> {
        platform::sync_file_system(path)
    }
}

/// How a file is called while it is copied to another file system: a name that no reader takes for a rollout's.
const MOVING: &str = ".threadkeep-moving";

/// Moves a file to another file system. A crash leaves it where it was, or at both places with the same bytes; a copy
/// that was begun is begun again. One that fails leaves nothing behind: on a full disk its part would keep the room.
fn move_across(from: &Path, to: &Path) -> io::Result<()> {
    let mut name = to.as_os_str().to_owned();
    name.push(MOVING);
    let partial = PathBuf::from(name);
    match std::fs::remove_file(&partial) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let copied = copy_whole(from, &partial).and_then(|()| platform::rename_new(&partial, to));
    if let Err(e) = copied {
        let _ = std::fs::remove_file(&partial);
        return Err(e);
    }
    if let Some(folder) = to.parent() {
        RealDisk.sync_dir(folder)?;
    }
    std::fs::remove_file(from)
}

/// Copies a file with its times and mode, durably, to a name that nothing has.
fn copy_whole(from: &Path, to: &Path) -> io::Result<()> {
    let mut source = File::open(from)?;
    let facts = source.metadata()?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    // Nobody else reads along while it is copied.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut target = options.open(to)?;
    let copied = io::copy(&mut source, &mut target)?;
    if copied != source.metadata()?.len() {
        return Err(io::Error::other(format!("{} changed while it was moved", from.display())));
    }
    target.set_permissions(facts.permissions())?;
    let times = std::fs::FileTimes::new().set_modified(facts.modified()?);
    target.set_times(facts.accessed().map_or(times, |at| times.set_accessed(at)))?;
    target.sync_all()
}

#[derive(Debug)]
struct RealFile(File);

impl ReadAt for File {
    #[cfg(unix)]
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(self, into, offset)
    }

    #[cfg(windows)]
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(self, into, offset)
    }
}

impl ReadAt for RealFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        ReadAt::read_at(&self.0, into, offset)
    }
}

impl DiskFile for RealFile {
    fn state(&self) -> io::Result<FileState> {
        let metadata = self.0.metadata()?;
        #[cfg(unix)]
        let linked = std::os::unix::fs::MetadataExt::nlink(&metadata) > 0;
        // An open file cannot lose its name there.
        #[cfg(not(unix))]
        let linked = true;
        Ok(FileState { size: metadata.len(), linked })
    }

    #[cfg(unix)]
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        std::os::unix::fs::FileExt::write_at(&self.0, bytes, offset)
    }

    #[cfg(windows)]
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_write(&self.0, bytes, offset)
    }

    fn set_size(&mut self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn set_modified(&mut self, at: SystemTime) -> io::Result<()> {
        self.0.set_modified(at)
    }
}
