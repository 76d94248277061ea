//! From an id to the files whose names hold it, without a walk over the home.

use std::path::PathBuf;

use threadkeep_index::{Index, IndexPlace};
use threadkeep_rollout::home::Home;
use threadkeep_rollout::walk::named;

use crate::kept;

/// The rollouts of a home whose names hold an id, of a thread or a segment, by their paths in the home. Told by the
/// names that the index remembers of folders that stand as they did, and by those in folders that changed since; so it
/// is what a walk would find. `None` where there is no index to ask, or a folder cannot be read.
#[must_use]
pub fn rollouts_named(home: &Home, place: &IndexPlace, id: &str) -> Option<Vec<PathBuf>> {
    if !Index::is_there(home, place) {
        return None;
    }
    let index = kept::open(home, place, kept::PATIENCE).ok()?;
    named(home.path(), id, &index.folders().ok()?)
}
