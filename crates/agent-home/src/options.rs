//! What is asked of a preparation, and what comes in from outside.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use threadkeep_record::UtcMillis;

use crate::config::Patch;
use crate::expose::Exposure;
use crate::id::ResumeId;
use crate::key::StoreKey;
use crate::reservation::PATIENCE;
use crate::store::Adopt;
use crate::watch::{Unwatched, Watch};

/// Where the agent works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Work {
    /// In a place that the caller manages and may use again: a real `sessions` folder counts.
    #[default]
    Managed,
    /// In a person's own directory, with a home that is new for every task: sessions belong into the store.
    LocalDirectory,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Options {
    /// The home to prepare, made where it is not there.
    pub task_home: PathBuf,
    /// The user's own home.
    pub shared_home: PathBuf,
    /// The conversation. Without one the home gets an empty `sessions` of its own.
    pub key: Option<StoreKey>,
    /// The thread to resume.
    pub resume: Option<ResumeId>,
    /// Where the agent works.
    pub work: Work,
    /// How a rollout is exposed.
    pub exposure: Exposure,
    /// What is done with a store of an earlier system.
    pub adopt: Adopt,
    /// Changes to the config.
    pub config: Vec<Patch>,
    /// How long to wait for someone who is at the same home or store.
    pub patience: Duration,
}

impl Options {
    /// Options with nothing asked for.
    pub fn new(task_home: impl Into<PathBuf>, shared_home: impl Into<PathBuf>) -> Self {
        Self {
            task_home: task_home.into(),
            shared_home: shared_home.into(),
            key: None,
            resume: None,
            work: Work::default(),
            exposure: Exposure::default(),
            adopt: Adopt::default(),
            config: vec![],
            patience: PATIENCE,
        }
    }
}

/// From the id of a thread to the paths of its rollouts below the shared home (`sessions/…`): what an index may know. Paths
/// that are not there, or whose names say another thread, are ignored.
pub type LookUp<'a> = &'a dyn Fn(&ResumeId) -> Option<Vec<PathBuf>>;

/// What comes in from outside.
pub struct World<'a> {
    /// The time now.
    pub now: UtcMillis,
    /// An index, if there is one.
    pub look_up: Option<LookUp<'a>>,
    /// Who is told of each change.
    pub watch: Arc<dyn Watch>,
}

impl World<'_> {
    /// The world at a time, without an index.
    #[must_use]
    pub fn at(now: UtcMillis) -> Self {
        Self { now, look_up: None, watch: Arc::new(Unwatched) }
    }
}
