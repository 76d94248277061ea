//! A new file that appears whole: written under another name, made durable, and then linked to its own, which is never
//! taken from a file that has it.
//!
//! What a crash may leave: a file whose name no reader takes for a rollout, or the new one with all of its bytes.

use std::io;
use std::path::{Path, PathBuf};

use crate::seam::{Disk, OpenMode};

/// Why a file was not made.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}", path.display())]
pub struct NewFileError {
    /// What was tried.
    pub what: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// A file that is written and has not its name yet. Dropping it removes it.
#[derive(Debug)]
pub struct NewFile<'d> {
    disk: &'d dyn Disk,
    temporary: PathBuf,
    path: PathBuf,
    /// Folders whose names have to be durable, the file's own last.
    folders: Vec<PathBuf>,
}

fn failed<'p>(what: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> NewFileError + 'p {
    move |source| NewFileError { what, path: path.to_owned(), source }
}

impl<'d> NewFile<'d> {
    /// Writes the bytes of a file that is to be at `path`. `temporary` is the name in the same folder that they have until
    /// then: one that no reader looks at, and no other writer uses. Folders are made as needed; those up to `root` (the
    /// home) will be made durable.
    pub fn write(
        disk: &'d dyn Disk,
        path: &Path,
        temporary: &str,
        root: &Path,
        bytes: &[u8],
    ) -> Result<Self, NewFileError> {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        disk.create_dir_all(&folder).map_err(failed("make", &folder))?;
        let within = |p: &&Path| p.starts_with(root);
        let mut folders = vec![folder.clone()];
        folders.extend(path.ancestors().skip(2).take_while(within).map(Path::to_owned));
        folders.reverse();
        let new = Self { disk, temporary: folder.join(temporary), path: path.to_owned(), folders };
        let mut file = match disk.open(&new.temporary, OpenMode::New) {
            Ok(file) => file,
            Err(e) => {
                let e = failed("make", &new.temporary)(e);
                // What has this name is not ours.
                std::mem::forget(new);
                return Err(e);
            }
        };
        file.write_all_at(bytes, 0).map_err(failed("write", &new.temporary))?;
        file.sync_data().map_err(failed("make durable", &new.temporary))?;
        Ok(new)
    }

    /// Gives the file its name, durably. If that fails nothing has the name: a file that was there before keeps it.
    pub fn publish(self) -> Result<(), NewFileError> {
        match self.disk.link(&self.temporary, &self.path) {
            Ok(()) => {}
            // Some file systems know no second names. The look before makes up for a rename's replacing what is there.
            Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
                match self.disk.open(&self.path, OpenMode::Existing) {
                    Err(none) if none.kind() == io::ErrorKind::NotFound => {
                        self.disk.rename(&self.temporary, &self.path).map_err(failed("name", &self.path))?;
                    }
                    _ => return Err(failed("name", &self.path)(e)),
                }
            }
            Err(e) => return Err(failed("name", &self.path)(e)),
        }
        for folder in &self.folders {
            if let Err(e) = self.disk.sync_dir(folder) {
                // It may be gone after a crash, so it was not made.
                let _ = self.disk.remove(&self.path);
                return Err(failed("make durable", folder)(e));
            }
        }
        Ok(())
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        // Behind a rename there is none.
        let _ = self.disk.remove(&self.temporary);
    }
}
