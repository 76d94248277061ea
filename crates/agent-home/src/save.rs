//! Saving what a task home knows and its store does not.

use std::path::Path;

use threadkeep_record::UtcMillis;

use crate::dir::Dir;
use crate::error::HomeError;
use crate::find::{Scan, Want, scan};
use crate::names;
use crate::sessions::{self, Stands};
use crate::shared::SharedHome;
use crate::store::{Editing, Store};
use crate::task::TaskRecord;

/// Copies the names that were given in a task home since `record` was written into the store: for threads of the store and
/// of the home. Tells what should be known.
pub(crate) fn save_names(
    home: &Dir,
    shared: &SharedHome,
    store: &Store,
    editing: &Editing,
    now: UtcMillis,
    record: &mut TaskRecord,
) -> Result<Vec<String>, HomeError> {
    let task = names::read(home)?;
    let news: names::Names = task
        .names
        .iter()
        .filter(|(id, name)| record.names.get(*id) != Some(*name))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let mut ours = Scan::default();
    let known = store.manifest()?.map(|m| m.threads).unwrap_or_default();
    for folder in crate::shared::ROLLOUT_FOLDERS {
        let stands = sessions::look(home, folder, shared, store.rollouts(folder)?.as_ref())?;
        // A real folder of the home holds this conversation's; a legacy link shows everybody's.
        let mine = matches!(stands, Stands::Folder(_)).then(|| home.folder(folder).ok()).flatten();
        for dir in [store.rollouts(folder)?, mine].into_iter().flatten() {
            scan(&dir, Path::new(folder), Want::All, &mut ours);
        }
    }
    let is_ours = |id: &str| known.iter().any(|t| t.id == id) || ours.found.iter().any(|f| f.named.id.as_str() == id);
    let news: names::Names = news.into_iter().filter(|(id, _)| is_ours(id)).collect();
    let threads: std::collections::BTreeSet<String> = ours.found.iter().map(|f| f.named.id.to_string()).collect();
    store.edit(editing, now, |m| {
        let mut changed = false;
        for id in &threads {
            changed |= m.note(id, None);
        }
        for (id, name) in &news {
            changed |= m.note(id, Some(name));
        }
        changed
    })?;
    record.names.extend(news.iter().map(|(k, v)| (k.clone(), v.clone())));
    Ok(news.iter().map(|(id, name)| format!("thread {id} was named {name:?} in this home")).collect())
}
