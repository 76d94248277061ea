//! A Codex home: the folder that holds its rollouts and databases.

use std::path::{Path, PathBuf};

/// A home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    path: PathBuf,
}

impl Home {
    /// A home at `path`, which need not exist yet.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Its folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path of the home, absolute or relative to it, as a path that can be opened.
    #[must_use]
    pub fn absolute(&self, relative: &Path) -> PathBuf {
        self.path.join(relative)
    }

    /// A path as it is shown: relative to the home where it is under it.
    #[must_use]
    pub fn relative<'p>(&self, path: &'p Path) -> &'p Path {
        path.strip_prefix(&self.path).unwrap_or(path)
    }
}
