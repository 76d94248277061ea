//! The names in the folders of a home, so that a later walk reads only folders that changed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rusqlite::params;
use threadkeep_rollout::walk::{FolderMark, FolderNames, hash};

use crate::{Index, IndexError};

impl Index {
    /// The folders that are remembered, by path in the home.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn folders(&self) -> Result<HashMap<PathBuf, FolderNames>, IndexError> {
        self.run("reading the names of folders", |connection| {
            let mut statement = connection
                .prepare_cached("SELECT path, dev, ino, mtime_ns, ctime_ns, files, folders, hash FROM folders")?;
            let mut rows = statement.query([])?;
            let mut all = HashMap::new();
            while let Some(r) = rows.next()? {
                let Some(path) = path(r.get_ref(0)?.as_bytes()?) else { continue };
                let names = FolderNames {
                    mark: FolderMark {
                        dev: r.get::<_, i64>(1)?.cast_unsigned(),
                        ino: r.get::<_, i64>(2)?.cast_unsigned(),
                        mtime_ns: r.get(3)?,
                        ctime_ns: r.get(4)?,
                    },
                    files: r.get(5)?,
                    folders: r.get(6)?,
                };
                // A name that is lost here would hide its thread, so the names are only believed as they were kept.
                if r.get::<_, i64>(7)? == sum(&names) {
                    all.insert(path, names);
                }
            }
            Ok(all)
        })
    }

    /// Remembers folders.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says; then nothing was changed.
    pub fn keep_folders<'f>(
        &self,
        folders: impl Iterator<Item = &'f (PathBuf, FolderNames)>,
    ) -> Result<(), IndexError> {
        self.transact("remembering the names of folders", |transaction| {
            let mut statement =
                transaction.prepare_cached("INSERT OR REPLACE INTO folders VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?;
            for (path, names) in folders {
                let mark = &names.mark;
                statement.execute(params![
                    path.as_os_str().as_encoded_bytes(),
                    mark.dev.cast_signed(),
                    mark.ino.cast_signed(),
                    mark.mtime_ns,
                    mark.ctime_ns,
                    sum(names),
                    names.files,
                    names.folders,
                ])?;
            }
            Ok(())
        })
    }
}

/// A number that tells names from others.
fn sum(names: &FolderNames) -> i64 {
    hash(&names.files).wrapping_mul(3).wrapping_add(hash(&names.folders)).cast_signed()
}

/// A path as it was kept; `None` for one that is none in a home.
fn path(bytes: &[u8]) -> Option<PathBuf> {
    #[cfg(unix)]
    let path: &Path = Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes));
    #[cfg(not(unix))]
    let path: &Path = Path::new(std::str::from_utf8(bytes).ok()?);
    path.is_relative().then(|| path.to_owned())
}
