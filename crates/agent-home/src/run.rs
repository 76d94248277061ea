//! Running an agent in a prepared home: the locks that it holds, and what is saved when it ends.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use threadkeep_record::UtcMillis;

use crate::error::{Attempt as _, HomeError};
use crate::naming::{self, save_names};
use crate::reservation::{Hold, Reservation, lock_name};
use crate::sessions::{self, Leads, Stands};
use crate::shared::SharedHome;
use crate::store::Store;
use crate::task::TaskHome;
use crate::watch::Unwatched;

/// A home that an agent runs in.
#[derive(Debug)]
pub struct Running {
    task: TaskHome,
    shared: SharedHome,
    store: Option<(Store, Reservation)>,
}

impl Running {
    /// Reserves a prepared home and its store, with others who run in it.
    pub fn enter(task_home: &Path, shared_home: &Path, now: UtcMillis, patience: Duration) -> Result<Self, HomeError> {
        let shared = SharedHome::open(shared_home, Arc::new(Unwatched))?;
        let task = TaskHome::open(task_home, Arc::new(Unwatched), Hold::Shared, patience)?;
        let Some(record) = &task.record else {
            return Err(HomeError::Missing { what: "this home was not prepared", path: task.dir.path().to_owned() });
        };
        let store = match &record.key {
            None => None,
            Some(key) => {
                let locks = shared.locks()?;
                let held = Reservation::need(&locks, &lock_name(&key.path()), Hold::Shared, patience, "the store")?;
                let gone = || HomeError::Missing {
                    what: "the store of this home is gone; prepare the home again",
                    path: shared.dir.shown(format!("{}/{}", crate::shared::STORES, key.path())),
                };
                let store = Store::open(&shared, key)?.ok_or_else(gone)?;
                let own = store.rollouts("sessions")?;
                match sessions::look(&task.dir, "sessions", &shared, own.as_ref())? {
                    Stands::Link(Leads::OwnStore) if own.is_some() => {}
                    Stands::Folder(_) => {}
                    Stands::Link(Leads::OwnStore) => return Err(gone()),
                    Stands::Link(_) | Stands::Nothing | Stands::Other => {
                        return Err(HomeError::Refused {
                            why: "sessions is not what was prepared; prepare the home again".into(),
                            path: task.dir.shown("sessions"),
                        });
                    }
                }
                store.stamp(&store.editing()?, now)?;
                Some((store, held))
            }
        };
        Ok(Self { task, shared, store })
    }

    /// Lets every child started from now on hold the home and the store too.
    pub fn inherit(&self) -> Result<(), HomeError> {
        self.task.lock().inherit().attempt("let the agent hold", self.task.dir.path())?;
        match &self.store {
            Some((store, held)) => held.inherit().attempt("let the agent hold", store.dir.path()),
            None => Ok(()),
        }
    }

    /// Saves the names that were given in the home, puts those of the store into the database that Codex has made
    /// meanwhile, and stamps the store. What is held is free when this process and all
    /// that inherited it are gone. Tells what was saved.
    pub fn leave(mut self, now: UtcMillis) -> Result<Vec<String>, HomeError> {
        let Some((store, held)) = &self.store else { return Ok(vec![]) };
        let editing = store.editing()?;
        let mut record = crate::task::read_record(&self.task.dir)?.unwrap_or_default();
        let mut told = save_names(&self.task.dir, &self.shared, store, &editing, now, &mut record)?;
        if let Some(manifest) = store.manifest()? {
            let (there, names) = (crate::names::read(&self.task.dir)?, naming::of_store(&manifest));
            let (done, not_done) = naming::give_rows(&self.task.dir, &there, &names, &mut record);
            told.extend(done.into_iter().chain(not_done));
        }
        store.stamp(&editing, now)?;
        self.task.remember(record)?;
        let _ = held;
        Ok(told)
    }
}
