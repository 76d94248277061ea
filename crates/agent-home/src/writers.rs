//! Who writes which thread now: Codex's writer locks in the shared home, looked at without touching them. What cannot be
//! looked at is an error here, never "nobody".

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::find::Scan;
use crate::id::ResumeId;
use crate::platform::{LockTable, flock_table};
use crate::shared::{ROLLOUT_FOLDERS, SharedHome, WRITER_LOCKS};
use crate::store::Store;

/// The writer locks of a shared home at one moment.
#[derive(Debug)]
pub struct Writers {
    folder: Option<Dir>,
    table: LockTable,
}

/// Whether a thread is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Writing {
    /// It is not.
    No,
    /// By these processes.
    By(Vec<u32>),
}

impl Writers {
    /// Looks at the lock table once. Fails where the folder of locks is there and cannot be read.
    pub fn read(shared: &SharedHome) -> Result<Self, HomeError> {
        let shown = shared.dir.shown(WRITER_LOCKS);
        // A person may keep this folder elsewhere and link it, as task homes do.
        let folder = crate::dir::absent(shared.dir.followed(WRITER_LOCKS)).attempt("open folder", &shown)?;
        Ok(Self { folder, table: flock_table() })
    }

    /// Whether someone writes a thread. Fails where that cannot be known.
    pub fn of(&self, id: &ResumeId) -> Result<Writing, HomeError> {
        // Locks are named by ids of threads, which others than UUIDs never were.
        let (Some(folder), Some(id)) = (&self.folder, id.thread()) else { return Ok(Writing::No) };
        let name = format!("{id}.lock");
        let shown = folder.shown(&name);
        let Some(stat) = folder.stat(&name).attempt("look at writer lock", &shown)? else { return Ok(Writing::No) };
        if let Some(why) = self.table.unreadable() {
            return Err(HomeError::Refused {
                why: format!("whether the thread is written is not known ({why})"),
                path: shown,
            });
        }
        let by = self.table.holders(&stat);
        Ok(if by.is_empty() { Writing::No } else { Writing::By(by) })
    }

    /// Refuses if one of these threads is written: their files are about to be moved.
    pub fn refuse<'f>(&self, ids: impl IntoIterator<Item = &'f ResumeId>) -> Result<(), HomeError> {
        for id in ids {
            if let (Writing::By(by), Some(folder), Some(thread)) = (self.of(id)?, &self.folder, id.thread()) {
                let path = folder.shown(format!("{thread}.lock"));
                return Err(HomeError::Held { what: "a thread of this conversation", path, by });
            }
        }
        Ok(())
    }
}

/// Refuses if a thread of a store is written.
pub fn refuse_written(shared: &SharedHome, store: &Store) -> Result<(), HomeError> {
    let mut found = Scan::default();
    for folder in ROLLOUT_FOLDERS {
        if let Some(dir) = store.rollouts(folder)? {
            crate::find::scan(&dir, folder.as_ref(), crate::find::Want::All, &mut found);
        }
    }
    if let Some((path, why)) = found.problems.into_iter().next() {
        return Err(HomeError::Refused { why: format!("cannot be looked into ({why})"), path: store.dir.shown(path) });
    }
    Writers::read(shared)?.refuse(found.found.iter().map(|f| &f.named.id))
}
