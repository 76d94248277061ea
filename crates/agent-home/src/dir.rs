//! A folder held by a handle, and the steps that can be made in it.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crate::platform::{self, Handle, Kind, Last, Stat, Target};
use crate::watch::{Change, Watch};

/// An open folder. Clones are the same folder. Its path is for messages and for the texts of links; no step uses it.
#[derive(Clone)]
pub struct Dir {
    handle: Arc<Handle>,
    path: PathBuf,
    watch: Arc<dyn Watch>,
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dir").field(&self.path).finish()
    }
}

/// How files are copied when a copy is allowed.
const COPY_BUFFER: usize = 1 << 20;

impl Dir {
    /// Opens a folder that the caller named; links in that path are the caller's word.
    pub fn open(path: &Path, watch: Arc<dyn Watch>) -> io::Result<Self> {
        Ok(Self { handle: Arc::new(platform::open_root(path)?), path: path.to_owned(), watch })
    }

    /// Where it is, as the caller spelt it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name in it, for messages.
    #[must_use]
    pub fn shown(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    fn tell(&self, change: Change) -> io::Result<()> {
        self.watch.before(&change)
    }

    fn below(&self, path: &Path, last: Last) -> io::Result<Self> {
        let handle = Arc::new(platform::open_folder(&self.handle, path, last)?);
        Ok(Self { handle, path: self.path.join(path), watch: Arc::clone(&self.watch) })
    }

    /// Opens a folder below it. No component may be a link.
    pub fn folder(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        self.below(path.as_ref(), Last::AsItIs)
    }

    /// The same; `None` where it is not there.
    pub fn folder_if_there(&self, path: impl AsRef<Path>) -> io::Result<Option<Self>> {
        absent(self.folder(path))
    }

    /// Opens one of the known links of a home, or the folder that stands in its place.
    pub fn followed(&self, name: &str) -> io::Result<Self> {
        self.below(Path::new(name), Last::Followed)
    }

    /// Opens a folder, making it (0700) where it is not there, with those on the way. No component may be a link.
    pub fn made(&self, path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        if let Some(dir) = self.folder_if_there(path)? {
            return Ok(dir);
        }
        let mut here = self.clone();
        for component in path.components() {
            let Component::Normal(name) = component else { return Err(io::ErrorKind::InvalidInput.into()) };
            here = match here.folder_if_there(name)? {
                Some(dir) => dir,
                None => {
                    here.tell(Change::MakeFolder(here.shown(name)))?;
                    match platform::make_folder(&here.handle, name) {
                        Ok(()) => here.sync()?,
                        // Someone else made it in between.
                        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                        Err(e) => return Err(e),
                    }
                    here.folder(name)?
                }
            };
        }
        Ok(here)
    }

    /// The facts of a name, a link not followed; `None` where it is not there.
    pub fn stat(&self, name: impl AsRef<OsStr>) -> io::Result<Option<Stat>> {
        absent(platform::stat(&self.handle, name.as_ref(), Last::AsItIs))
    }

    /// The facts of what a name resolves to; `None` where that is not there.
    pub fn stat_followed(&self, name: impl AsRef<OsStr>) -> io::Result<Option<Stat>> {
        absent(platform::stat(&self.handle, name.as_ref(), Last::Followed))
    }

    /// The facts of the folder itself.
    pub fn stat_self(&self) -> io::Result<Stat> {
        platform::stat_self(&self.handle)
    }

    /// Takes the folder's own mode from group and others. Tells the mode that it had, if that was another.
    pub fn tighten(&self) -> io::Result<Option<u32>> {
        let mode = self.stat_self()?.mode;
        if mode & 0o077 == 0 {
            return Ok(None);
        }
        platform::set_folder_mode(&self.handle, mode & 0o7700)?;
        Ok(Some(mode))
    }

    /// Where a link points, as text.
    pub fn read_link(&self, name: impl AsRef<OsStr>) -> io::Result<PathBuf> {
        platform::read_link(&self.handle, name.as_ref()).map(PathBuf::from)
    }

    /// The names in it, in order.
    pub fn entries(&self) -> io::Result<Vec<(OsString, Kind)>> {
        let mut found = self.entries_as_they_come()?;
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// The names in it, in the order in which the system tells them.
    pub fn entries_as_they_come(&self) -> io::Result<Vec<(OsString, Kind)>> {
        // A handle of its own: the position in a folder is shared by all who use one.
        let fresh = platform::open_folder(&self.handle, Path::new("."), Last::Followed)?;
        platform::entries(&fresh)
    }

    /// Opens a regular file below it for reading. No component may be a link.
    pub fn file(&self, path: impl AsRef<Path>) -> io::Result<File> {
        platform::open_file(&self.handle, path.as_ref(), Last::AsItIs)
    }

    /// Opens a regular file for reading, a link being followed: the caller has looked at where it goes.
    pub fn file_followed(&self, name: impl AsRef<Path>) -> io::Result<File> {
        platform::open_file(&self.handle, name.as_ref(), Last::Followed)
    }

    /// Reads a small regular file; `None` where it is not there.
    pub fn read(&self, path: impl AsRef<Path>, limit: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(file) = absent(self.file(path))? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(io::Error::other(format!("larger than {limit} bytes")));
        }
        Ok(Some(bytes))
    }

    /// Opens a lock file, making it where it is not there.
    pub fn lock_file(&self, name: &str) -> io::Result<File> {
        platform::open_lock(&self.handle, OsStr::new(name))
    }

    /// Makes a file with these bytes under a staging name and renames it into its place, durable before that. `mode` is
    /// a permission of the file.
    pub fn put(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let stage = stage_name(OsStr::new(name));
        self.remove_file_if_there(&stage)?;
        self.tell(Change::Write { path: self.shown(&stage), bytes: bytes.to_owned() })?;
        let mut file = platform::create_file(&self.handle, &stage)?;
        file.write_all(bytes)?;
        platform::set_mode(&file, mode)?;
        self.tell(Change::SyncFile(self.shown(&stage)))?;
        file.sync_all()?;
        self.rename(&stage, self, name, Target::Replaced)?;
        self.sync()
    }

    /// Makes a symbolic link under a staging name and renames it into its place, which may hold a file or a link.
    pub fn put_link(&self, name: impl AsRef<OsStr>, target: &Path, to: Kind) -> io::Result<()> {
        let stage = stage_name(name.as_ref());
        self.remove_file_if_there(&stage)?;
        self.symlink(&stage, target, to)?;
        self.rename(&stage, self, name, Target::Replaced)?;
        self.sync()
    }

    /// Makes a symbolic link. `to` is what it points to, which some systems want to know.
    pub fn symlink(&self, name: impl AsRef<OsStr>, target: &Path, to: Kind) -> io::Result<()> {
        self.tell(Change::Symlink { target: target.to_owned(), path: self.shown(name.as_ref()) })?;
        platform::symlink(target.as_os_str(), &self.handle, name.as_ref(), to)
    }

    /// Gives a file of this folder a second name.
    pub fn hard_link(&self, name: impl AsRef<OsStr>, to: &Self, new: impl AsRef<OsStr>) -> io::Result<()> {
        to.tell(Change::HardLink { from: self.shown(name.as_ref()), to: to.shown(new.as_ref()) })?;
        platform::hard_link(&self.handle, name.as_ref(), &to.handle, new.as_ref())
    }

    /// Makes a file that shares the blocks of another, with its mode, under a staging name, which is told. It is whole and
    /// durable, and has its place once the caller renames it.
    pub fn reflink_from(&self, from: &Path, source: &File, name: &OsStr) -> io::Result<OsString> {
        self.made_from(from, source, name, &mut |to| platform::reflink(source, to))
    }

    /// The same, with a copy of all bytes.
    pub fn copy_from(&self, from: &Path, source: &File, name: &OsStr) -> io::Result<OsString> {
        self.made_from(from, source, name, &mut |to| {
            let mut reader = source.try_clone()?;
            let mut to = to.try_clone()?;
            let mut buffer = vec![0; COPY_BUFFER];
            loop {
                match reader.read(&mut buffer) {
                    Ok(0) => return Ok(()),
                    Ok(n) => to.write_all(&buffer[..n])?,
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(e),
                }
            }
        })
    }

    fn made_from(
        &self,
        from: &Path,
        source: &File,
        name: &OsStr,
        fill: &mut dyn FnMut(&File) -> io::Result<()>,
    ) -> io::Result<OsString> {
        let stage = stage_name(name);
        self.remove_file_if_there(&stage)?;
        self.tell(Change::Copy { from: from.to_owned(), to: self.shown(&stage) })?;
        let to = platform::create_file(&self.handle, &stage)?;
        let filled = fill(&to).and_then(|()| platform::set_mode(&to, platform::stat_file(source)?.mode));
        if let Err(e) = filled {
            drop(to);
            self.remove_file_if_there(&stage)?;
            return Err(e);
        }
        self.tell(Change::SyncFile(self.shown(&stage)))?;
        to.sync_all()?;
        Ok(stage)
    }

    /// Moves a name to another folder.
    pub fn rename(&self, name: impl AsRef<OsStr>, to: &Self, new: impl AsRef<OsStr>, target: Target) -> io::Result<()> {
        self.tell(Change::Rename { from: self.shown(name.as_ref()), to: to.shown(new.as_ref()) })?;
        platform::rename(&self.handle, name.as_ref(), &to.handle, new.as_ref(), target)
    }

    /// Moves a name out of the way, beside itself. Tells its new name.
    pub fn move_aside(&self, name: &str) -> io::Result<String> {
        for n in 1..10_000u32 {
            let aside = format!("{name}.aside-{n}");
            match self.rename(name, self, &aside, Target::Free) {
                Ok(()) => {
                    self.sync()?;
                    return Ok(aside);
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::Error::other("too many things were moved aside here"))
    }

    /// Removes a name that is not a folder's.
    pub fn remove_file(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        self.tell(Change::RemoveFile(self.shown(name.as_ref())))?;
        platform::remove_file(&self.handle, name.as_ref())
    }

    /// The same, where it is there.
    pub fn remove_file_if_there(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        if self.stat(name.as_ref())?.is_none() {
            return Ok(());
        }
        absent(self.remove_file(name)).map(|_| ())
    }

    /// Removes an empty folder.
    pub fn remove_folder(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        self.tell(Change::RemoveFolder(self.shown(name.as_ref())))?;
        platform::remove_folder(&self.handle, name.as_ref())
    }

    /// Removes the folders below a name that hold nothing, and itself if nothing is left. Tells whether it is gone.
    pub fn remove_empty(&self, name: &OsStr) -> io::Result<bool> {
        let Some(dir) = self.folder_if_there(name)? else { return Ok(true) };
        let mut empty = true;
        for (entry, kind) in dir.entries()? {
            empty &= kind == Kind::Folder && dir.remove_empty(&entry)?;
        }
        if empty {
            self.remove_folder(name)?;
        }
        Ok(empty)
    }

    /// Makes the names in it durable.
    pub fn sync(&self) -> io::Result<()> {
        self.tell(Change::SyncFolder(self.path.clone()))?;
        platform::sync(&self.handle)
    }
}

/// The name under which something is made before it is renamed into its place.
fn stage_name(name: &OsStr) -> OsString {
    let mut stage = OsString::from(".threadkeep-stage-");
    stage.push(name);
    stage
}

/// Turns "not there" into `None`.
pub fn absent<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
