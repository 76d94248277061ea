//! Moving the files of threads: all of a thread's or none, never over another file, and again after a crash.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use threadkeep_rollout::seam::Disk;

use super::journal::{Move, Step, make_folder_soon, sync_many};
use super::trash;

/// Why the files of a thread did not all move.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// Another file stands where one was to go.
    #[error("{} exists already and is another file; nothing was moved", to.display())]
    Exists {
        /// Where.
        to: PathBuf,
    },
    /// A file is at neither place.
    #[error("{} is gone", from.display())]
    Gone {
        /// The file.
        from: PathBuf,
    },
    /// A link stands in the way below the two folders of rollouts, where none is followed.
    #[error("{} is a link, and links below sessions are not followed; nothing was moved", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// The system refused; what had moved was moved back.
    #[error("cannot move {} to {}: {source}", from.display(), to.display())]
    Io {
        /// The file.
        from: PathBuf,
        /// Where it was to go.
        to: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused, and again when what had moved was to be moved back.
    #[error("cannot move {} to {}: {source}; {} stays where it went: {back}", from.display(), to.display(), stays.display())]
    Halfway {
        /// The file.
        from: PathBuf,
        /// Where it was to go.
        to: PathBuf,
        /// What the system said.
        source: io::Error,
        /// A file that had moved.
        stays: PathBuf,
        /// What the system said when it was to go back.
        back: io::Error,
    },
    /// Everything moved, and may not last over a power loss.
    #[error("moved, but the folders cannot be made durable: {source}")]
    Sync {
        /// What the system said.
        source: io::Error,
    },
}

impl MoveError {
    /// Whether the thread is at one place, so that nothing is left to be finished.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::Exists { .. } | Self::Gone { .. } | Self::Link { .. } | Self::Io { .. })
    }
}

/// What becomes of the files of a thread when one of them is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// What moved goes back.
    Back,
    /// The rest goes where it was to go: this is the end of a change that was decided before a crash.
    Forward,
}

/// Moves the files of a thread: all of them, or none.
///
/// # Errors
///
/// As [`MoveError`] says; what can be undone is.
pub fn files(disk: &dyn Disk, home: &Path, step: &Step, on_failure: OnFailure) -> Result<(), MoveError> {
    let mut done: Vec<&Move> = Vec::new();
    for m in &step.moves {
        match one(disk, home, m) {
            Ok(true) => done.push(m),
            // What moved before a crash goes back with the rest.
            Ok(false) if on_failure == OnFailure::Forward => done.push(m),
            Ok(false) => {}
            // Someone took it away meanwhile; what is left of the thread goes where it was to go.
            Err(MoveError::Gone { .. }) if on_failure == OnFailure::Forward => {}
            // It went there before the crash, and something stands again where it was: neither way is open.
            Err(MoveError::Exists { to }) if on_failure == OnFailure::Forward && to.starts_with(trash::FOLDER) => {
                let there = || io::Error::new(io::ErrorKind::AlreadyExists, "another file stands there again");
                let (from, stays) = (m.from.clone(), to.clone());
                return Err(MoveError::Halfway { from, to, source: there(), stays, back: there() });
            }
            Err(e) => {
                back(disk, home, &done, &e)?;
                // A power loss must not show half of what was taken back, when nothing tells of it any more.
                if !done.is_empty() {
                    sync(disk, home, std::iter::once(step))?;
                }
                return Err(e);
            }
        }
    }
    Ok(())
}

/// Moves files back where they came from, because of an error.
fn back(disk: &dyn Disk, home: &Path, done: &[&Move], because: &MoveError) -> Result<(), MoveError> {
    for Move { from, to } in done.iter().rev() {
        if let Err(back) = disk.rename_new(&home.join(to), &home.join(from)) {
            let source = io::Error::other(because.to_string());
            let (from, to, stays) = (from.clone(), to.clone(), to.clone());
            return Err(MoveError::Halfway { from, to, source, stays, back });
        }
    }
    Ok(())
}

/// A link on the way of a path of the home; the first folder may be one, for people keep theirs elsewhere.
///
/// # Errors
///
/// [`MoveError::Link`], and what the system says.
pub fn check_links(disk: &dyn Disk, home: &Path, path: &Path) -> Result<(), MoveError> {
    let mut below = PathBuf::new();
    for (part, depth) in path.components().zip(0..) {
        below.push(part);
        if depth == 0 {
            continue;
        }
        match disk.is_link(&home.join(&below)) {
            Ok(false) => {}
            Ok(true) => return Err(MoveError::Link { path: below }),
            Err(source) => return Err(MoveError::Io { from: path.to_owned(), to: below, source }),
        }
    }
    Ok(())
}

/// Moves a file; `false` where it had moved already.
fn one(disk: &dyn Disk, home: &Path, m: &Move) -> Result<bool, MoveError> {
    let (from, to) = (home.join(&m.from), home.join(&m.to));
    let failed = |source| MoveError::Io { from: m.from.clone(), to: m.to.clone(), source };
    check_links(disk, home, &m.from)?;
    check_links(disk, home, m.to.parent().unwrap_or(Path::new("")))?;
    let here = disk.look(&from).map_err(failed)?;
    let there = disk.look(&to).map_err(failed)?;
    match (here, there) {
        (Some(_), None) => match disk.rename_new(&from, &to) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(MoveError::Exists { to: m.to.clone() }),
            moved => moved.map(|()| true).map_err(failed),
        },
        // Two names of one file: between the two steps of a file system without a single one.
        (Some(a), Some(b)) if a.is_same(&b) => disk.remove(&from).map(|()| true).map_err(failed),
        (Some(_), Some(_)) => Err(MoveError::Exists { to: m.to.clone() }),
        (None, Some(_)) => Ok(false),
        (None, None) => Err(MoveError::Gone { from: m.from.clone() }),
    }
}

/// Makes the names of moved files durable, at both ends.
///
/// # Errors
///
/// What the system says.
pub fn sync<'s>(disk: &dyn Disk, home: &Path, steps: impl Iterator<Item = &'s Step> + Clone) -> Result<(), MoveError> {
    let folders = |end: fn(&Move) -> &Path| -> BTreeSet<PathBuf> {
        let all = steps.clone().flat_map(|s| &s.moves);
        all.filter_map(|m| end(m).parent().map(|p| home.join(p))).collect()
    };
    let mut all = folders(|m| &m.to);
    all.extend(folders(|m| &m.from));
    sync_many(disk, home, &[], &all).map_err(|source| MoveError::Sync { source })
}

/// Makes the folders that files go to, and tells those in which names are new.
///
/// # Errors
///
/// What the system says.
pub fn make_folders(disk: &dyn Disk, home: &Path, step: &Step, dirty: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    step.moves.iter().filter_map(|m| m.to.parent()).try_for_each(|below| make_folder_soon(disk, home, below, dirty))
}
