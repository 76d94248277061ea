//! Emptying the trash: each entry under the lock of its thread, so that nothing goes that is on its way back or there.

use super::journal::Journal;
use super::trash::{self, MANIFEST, Manifest};
use super::{ChangeError, Changer};

impl Changer {
    /// Removes an entry of the trash for good, and tells how many bytes. Ends first what another process began and did
    /// not end: the files of an entry may be on their way.
    ///
    /// # Errors
    ///
    /// Where the thread is in use, a change of it waits to be finished, the entry is not there any more, or the system
    /// refuses; in the last case the entry can be emptied again.
    pub fn empty(&self, entry: &Manifest) -> Result<u64, ChangeError> {
        let (disk, home, id) = (&*self.disk, self.home.path(), entry.thread_id);
        drop(self.finish());
        let lock = self.lock(id)?;
        let path = trash::folder(home, &entry.entry);
        let failed = |source| ChangeError::Trash { path: path.clone(), source };
        match trash::read_manifest(disk, &path.join(MANIFEST)) {
            Ok(there) if there == *entry => {}
            // It came back meanwhile, or is another's.
            Ok(_) => return Err(ChangeError::NotInTrash { id }),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(ChangeError::NotInTrash { id }),
            Err(e) => return Err(failed(e)),
        }
        // With its lock held, a journal that speaks of the thread is one that could not be finished.
        for path in Journal::all(disk, home).map_err(failed)? {
            let concerns = |journal: &Journal| journal.steps.iter().any(|step| step.thread_id == id);
            if matches!(Journal::read(disk, &path), Ok(Some(journal)) if concerns(&journal)) {
                return Err(ChangeError::NotDone {
                    why: format!("a change of it is not finished yet: {}", path.display()),
                });
            }
        }
        let freed = trash::empty(disk, home, entry).map_err(failed);
        drop(lock);
        freed
    }
}
