//! What a look at a home rests on: while all of it stands as it was, another look would find the same.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::par;
use crate::platform::{self, FileStat, FolderMark};
use crate::walk::{FolderNames, ROOTS, Walk};

/// Whether something that changed at these times, nanoseconds, may have changed again after it was looked at without
/// other times: the system's clock for files goes in ticks of up to 10 ms, and some file systems keep whole or even
/// seconds only.
#[must_use]
pub fn is_racy(mtime_ns: i64, ctime_ns: i64, looked_ns: i64) -> bool {
    const SECOND: i64 = 1_000_000_000;
    let coarse = mtime_ns % SECOND == 0 && ctime_ns % SECOND == 0;
    let window = if coarse { 2 * SECOND } else { SECOND / 50 };
    mtime_ns.max(ctime_ns) > looked_ns - window
}

/// How files stand that are read beside the rollouts; empty ones count as missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beside(Vec<(PathBuf, Option<FileStat>)>);

impl Beside {
    /// Looks at them; to be done before they are read.
    #[must_use]
    pub fn look(paths: impl Iterator<Item = PathBuf>) -> Self {
        let look = |path: PathBuf| {
            let stat = platform::identity(&path).ok().filter(|stat| stat.size > 0);
            (path, stat)
        };
        Self(paths.map(look).collect())
    }

    fn is_racy(&self, looked_ns: i64) -> bool {
        self.0.iter().filter_map(|(_, stat)| *stat).any(|s| is_racy(s.mtime_ns, s.ctime_ns, looked_ns))
    }
}

/// All that a look rested on.
#[derive(Debug)]
pub struct Sight {
    folders: Vec<(PathBuf, FolderMark)>,
    files: Vec<(PathBuf, FileStat)>,
    /// Roots that were not there.
    missing: Vec<PathBuf>,
    beside: Beside,
}

impl Sight {
    /// Of a walk that began at `looked_ns`, with what was known before it; `beside` was looked at before that. `None` where
    /// another look may find something else without any sign of it: something changed just before, or is no plain
    /// folder or file.
    #[must_use]
    pub fn of(
        home: &Path,
        known: &HashMap<PathBuf, FolderNames>,
        walk: &Walk,
        beside: Beside,
        looked_ns: i64,
    ) -> Option<Self> {
        if walk.odd || walk.files.iter().any(|f| f.problem.is_some()) || beside.is_racy(looked_ns) {
            return None;
        }
        let new = walk.folders.iter().map(|(path, names)| (path, &names.mark));
        let same = walk.unchanged.iter().map(|path| Some((path, &known.get(path)?.mark)));
        let all: Option<Vec<_>> = new.map(Some).chain(same).collect();
        let folders: Vec<(PathBuf, FolderMark)> = all?.into_iter().map(|(p, mark)| (home.join(p), *mark)).collect();
        if folders.iter().any(|(_, mark)| is_racy(mark.mtime_ns, mark.ctime_ns, looked_ns)) {
            return None;
        }
        let files = walk.files.iter().map(|f| (f.path_in(home), f.stat())).collect();
        let roots = ROOTS.iter().map(|(name, _)| home.join(name));
        let missing = roots.filter(|root| folders.iter().all(|(path, _)| path != root)).collect();
        Some(Self { folders, files, missing, beside })
    }

    /// Whether all of it is as it was; `beside` is how the files beside the rollouts stand now.
    #[must_use]
    pub fn stands(&self, beside: &Beside) -> bool {
        let parts: Vec<&[(PathBuf, FolderMark)]> = self.folders.chunks(64).collect();
        self.beside == *beside
            && !self.missing.iter().any(|root| root.is_dir())
            && par::map(&parts, |part| part.iter().all(|(path, mark)| platform::stands(path, mark))).iter().all(|s| *s)
            && self.files.iter().all(|(path, stat)| platform::identity_here(path).is_ok_and(|now| now == *stat))
    }
}
