//! Exposure: making one rollout visible in another folder of rollouts without reading it.

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::find::Found;
use crate::platform::{self, Kind};

/// Whether what a task appends is also the person's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// It is: one file, by a hard link, or else a symbolic one.
    #[default]
    Shared,
    /// It is not: a file of its own on shared blocks (reflink), or a refusal.
    Isolated,
}

/// How a rollout is exposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exposure {
    /// Whether appends are shared.
    pub sharing: Sharing,
    /// Bytes that may be copied for one rollout where nothing else is possible; 0 allows no copy.
    pub allow_copy: u64,
}

/// The way a rollout came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Shared blocks, own file.
    Reflink,
    /// A second name of the same file.
    HardLink,
    /// A link to the other name.
    Symlink,
    /// A copy, which the caller allowed.
    Copy,
}

impl How {
    /// Whether an append on one side is seen on the other.
    #[must_use]
    pub fn shares_appends(self) -> bool {
        match self {
            Self::HardLink | Self::Symlink => true,
            Self::Reflink | Self::Copy => false,
        }
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exposed {
    /// It is there now.
    Made(How),
    /// The same file was there.
    Already,
    /// It cannot be done as asked.
    Cannot(String),
}

/// Exposes a file in a folder, under its own name.
pub fn expose(found: &Found, to: &Dir, exposure: Exposure, within: &[PathBuf]) -> Result<Exposed, HomeError> {
    let shown = to.shown(&found.name);
    match to.stat(&found.name).attempt("look at", &shown)? {
        None => {}
        // What an exposure over file systems left behind when the person removed theirs.
        Some(s) if s.kind == Kind::Link && to.stat_followed(&found.name).attempt("look at", &shown)?.is_none() => {
            to.remove_file(&found.name).attempt("remove link", &shown)?;
        }
        Some(_) => return already(found, to, &shown),
    }
    match exposure.sharing {
        Sharing::Shared => shared(found, to, &shown, exposure.allow_copy, within),
        Sharing::Isolated => isolated(found, to, &shown, exposure.allow_copy, within),
    }
}

fn already(found: &Found, to: &Dir, shown: &Path) -> Result<Exposed, HomeError> {
    let here = to.stat_followed(&found.name).attempt("look at", shown)?;
    let there = found.stat().attempt("look at", found.dir.shown(&found.name))?;
    Ok(match (here, there) {
        (Some(a), Some(b)) if a.is_same(&b) => Exposed::Already,
        _ => Exposed::Cannot(format!("another file of this name is there: {}", shown.display())),
    })
}

fn shared(found: &Found, to: &Dir, shown: &Path, allow_copy: u64, within: &[PathBuf]) -> Result<Exposed, HomeError> {
    // A link of a link would hang on both: the second one leads to where the first does.
    if found.kind == Kind::Link {
        let target =
            std::fs::canonicalize(found.dir.shown(&found.name)).attempt("resolve", found.dir.shown(&found.name))?;
        return symlink(found, to, shown, &target, allow_copy, within);
    }
    match found.dir.hard_link(&found.name, to, &found.name) {
        Ok(()) => {
            to.sync().attempt("sync", to.path())?;
            Ok(Exposed::Made(How::HardLink))
        }
        // Another task of this conversation was quicker.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => already(found, to, shown),
        Err(e) if platform::cannot_hard_link(&e) => {
            let source = std::path::absolute(found.dir.shown(&found.name)).attempt("resolve", shown)?;
            symlink(found, to, shown, &source, allow_copy, within)
        }
        Err(source) => Err(HomeError::Io { attempt: "link", path: shown.to_owned(), source }),
    }
}

fn symlink(
    found: &Found,
    to: &Dir,
    shown: &Path,
    target: &Path,
    allow_copy: u64,
    within: &[PathBuf],
) -> Result<Exposed, HomeError> {
    // Readers follow links into the shared sessions alone, so one to elsewhere would not be read.
    let real = std::fs::canonicalize(target).attempt("resolve", target)?;
    if !within.iter().any(|w| real.starts_with(w)) {
        return copy(found, to, shown, allow_copy, within, "it can be neither hard-linked nor reached by a link");
    }
    match to.symlink(&found.name, &real, Kind::File) {
        Ok(()) => {
            to.sync().attempt("sync", to.path())?;
            Ok(Exposed::Made(How::Symlink))
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => already(found, to, shown),
        Err(e) => copy(found, to, shown, allow_copy, within, &format!("it cannot be linked ({e})")),
    }
}

fn isolated(found: &Found, to: &Dir, shown: &Path, allow_copy: u64, within: &[PathBuf]) -> Result<Exposed, HomeError> {
    let file = found.open(within).attempt("open", found.dir.shown(&found.name))?;
    match to.reflink_from(&found.dir.shown(&found.name), &file, &found.name) {
        Ok(()) => Ok(Exposed::Made(How::Reflink)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => already(found, to, shown),
        Err(e) => copy(found, to, shown, allow_copy, within, &format!("its blocks cannot be shared ({e})")),
    }
}

fn copy(
    found: &Found,
    to: &Dir,
    shown: &Path,
    allow_copy: u64,
    within: &[PathBuf],
    why: &str,
) -> Result<Exposed, HomeError> {
    let file = found.open(within).attempt("open", found.dir.shown(&found.name))?;
    let size = file.metadata().attempt("look at", found.dir.shown(&found.name))?.len();
    if size > allow_copy {
        return Ok(Exposed::Cannot(format!("{why}, and a copy of {size} bytes is not allowed")));
    }
    match to.copy_from(&found.dir.shown(&found.name), &file, &found.name) {
        Ok(()) => Ok(Exposed::Made(How::Copy)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => already(found, to, shown),
        Err(source) => Err(HomeError::Io { attempt: "copy", path: shown.to_owned(), source }),
    }
}
