//! Names between a task home and its store: what is said in the one is kept in the other and told to the next.

use std::path::Path;

use threadkeep_record::UtcMillis;

use crate::dir::Dir;
use crate::error::HomeError;
use crate::find::{Scan, Want, scan};
use crate::manifest::Manifest;
use crate::names::{self, Names, TaskNames};
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
    let mut news = names::read(home)?.all();
    // Said before the database was dropped, so only where nothing was said since.
    let earlier: Names = record.unclaimed.iter().filter(|(id, _)| !news.contains_key(*id)).map(owned).collect();
    news.retain(|id, name| record.names.get(id) != Some(name));
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
    news.retain(|id, _| is_ours(id));
    let named = |id: &str| known.iter().any(|t| t.id == id && t.name.is_some());
    news.extend(earlier.into_iter().filter(|(id, _)| is_ours(id) && !named(id)));
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
    record.names.extend(news.iter().map(owned));
    record.unclaimed.retain(|id, _| !is_ours(id));
    Ok(news.iter().map(|(id, name)| format!("thread {id} was named {name:?} in this home")).collect())
}

fn owned((id, name): (&String, &String)) -> (String, String) {
    (id.clone(), name.clone())
}

/// Notes the names that only the databases of a home have, before these are dropped. Tells whether there are any.
pub(crate) fn keep_unclaimed(there: &TaskNames, record: &mut TaskRecord) -> bool {
    let only = |id: &String, name: &String| !record.names.contains_key(id) && there.index.get(id) != Some(name);
    let names: Names = there.in_databases.iter().filter(|(id, name)| only(id, name)).map(owned).collect();
    let any = !names.is_empty();
    record.unclaimed.extend(names);
    any
}

/// The names that a store knows.
pub(crate) fn of_store(manifest: &Manifest) -> Names {
    manifest.threads.iter().filter_map(|t| Some((t.id.clone(), t.name.clone()?))).collect()
}

/// Gives a home the names that its store knows and the home does not, and notes which it has. Tells what was written into
/// Codex's database, and what was not.
pub(crate) fn give_names(
    home: &Dir,
    names: &Names,
    now: UtcMillis,
    record: &mut TaskRecord,
) -> Result<(Vec<String>, Vec<String>), HomeError> {
    let there = names::read(home)?;
    let mut missing = names.clone();
    // An older name in the index comes back when the database is dropped, whatever that says now.
    missing.retain(|id, name| match there.index.get(id) {
        Some(said) => said != name,
        None => there.in_databases.get(id) != Some(name),
    });
    names::add(home, &missing, now)?;
    for (id, name) in names {
        // A database that goes on saying something older must not be taken for one where that was said anew.
        record.names.insert(id.clone(), there.in_databases.get(id).unwrap_or(name).clone());
    }
    Ok(give_rows(home, &there, names, record))
}

/// Puts the names of a store into the rows of Codex's database, as far as there is one.
pub(crate) fn give_rows(
    home: &Dir,
    there: &TaskNames,
    names: &Names,
    record: &mut TaskRecord,
) -> (Vec<String>, Vec<String>) {
    let Some(given) = there.rows.as_ref().map(|rows| rows.give(home, names)) else { return (vec![], vec![]) };
    let mut told = Vec::new();
    for id in given.done {
        let Some(name) = names.get(&id) else { continue };
        told.push(format!("{}: thread {id} is called {name:?} there now", given.database));
        record.names.insert(id, name.clone());
    }
    let not_done = given.not_done.map(|why| format!("{}: names could not be put into it: {why}", given.database));
    (told, not_done.into_iter().collect())
}
