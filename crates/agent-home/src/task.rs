//! A task home: the folder that a task's Codex gets as its home, and what is remembered of how it was prepared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::key::StoreKey;
use crate::platform::Kind;
use crate::reservation::{Hold, Reservation};
use crate::watch::Watch;

/// What is remembered, in the task home.
pub const RECORD: &str = "threadkeep-home.json";
/// Held shared while an agent runs in the home, alone while it is prepared.
pub const LOCK: &str = ".threadkeep.lock";
const MAX_RECORD: u64 = 16 << 20;

/// `threadkeep-home.json`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Version of the file.
    pub format: u32,
    /// The conversation that the home is for.
    pub key: Option<StoreKey>,
    /// Files that were copied, with the digest of what was written.
    #[serde(default)]
    pub copied: BTreeMap<String, String>,
    /// Names of threads as the home had them when it was last prepared: others were given in a task.
    #[serde(default)]
    pub names: BTreeMap<String, String>,
    /// Names that a dropped database had of threads that no store of this home knows: whoever resumes such a thread here
    /// gets its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unclaimed: BTreeMap<String, String>,
}

/// A task home that is open, with the lock on it.
#[derive(Debug)]
pub struct TaskHome {
    /// Its folder.
    pub dir: Dir,
    /// What is remembered; `None` for a home that was never prepared here.
    pub record: Option<TaskRecord>,
    lock: Reservation,
}

impl TaskHome {
    /// Opens it, making it (0700) where it is not there. Folders above it are the caller's word.
    pub fn make(path: &Path, watch: Arc<dyn Watch>, patience: Duration) -> Result<Self, HomeError> {
        let path = std::path::absolute(path).attempt("resolve", path)?;
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path).attempt("make the task home", &path)?;
        Self::open_with(path, watch, Hold::Alone, patience)
    }

    /// Opens one that was prepared, for an agent to run in.
    pub fn open(path: &Path, watch: Arc<dyn Watch>, hold: Hold, patience: Duration) -> Result<Self, HomeError> {
        let path = std::path::absolute(path).attempt("resolve", path)?;
        if !path.is_dir() {
            return Err(HomeError::Missing { what: "the task home is not there", path });
        }
        Self::open_with(path, watch, hold, patience)
    }

    fn open_with(path: PathBuf, watch: Arc<dyn Watch>, hold: Hold, patience: Duration) -> Result<Self, HomeError> {
        let dir = Dir::open(&path, watch).attempt("open the task home", &path)?;
        for name in [LOCK, RECORD] {
            if dir.stat(name).attempt("look at", dir.shown(name))?.is_some_and(|s| s.kind != Kind::File) {
                return Err(HomeError::Refused {
                    why: "something that is no file stands where this home's own file belongs".into(),
                    path: dir.shown(name),
                });
            }
        }
        let lock = Reservation::need(&dir, LOCK, hold, patience, "the task home")?;
        let record = read_record(&dir)?;
        Ok(Self { dir, record, lock })
    }

    /// Writes what is to be remembered, if it is something else than before.
    pub fn remember(&mut self, record: TaskRecord) -> Result<(), HomeError> {
        if self.record.as_ref() != Some(&record) {
            let mut bytes = serde_json::to_vec_pretty(&record).unwrap_or_default();
            bytes.push(b'\n');
            self.dir.put(RECORD, &bytes, 0o600).attempt("write", self.dir.shown(RECORD))?;
            self.record = Some(record);
        }
        Ok(())
    }

    /// The lock.
    #[must_use]
    pub fn lock(&self) -> &Reservation {
        &self.lock
    }
}

/// Refuses a path that no task may have for a home: the shared home, what is inside it, and what it is inside of (`/` at
/// last). A task home may be deleted by whoever had it prepared, and nothing may be made in the shared home. Tells the
/// path, made absolute.
pub fn checked(task_home: &Path, shared: &Dir) -> Result<PathBuf, HomeError> {
    let wanted = std::path::absolute(task_home).attempt("resolve", task_home)?;
    let refuse = |what: &str| Err(HomeError::Usage { what: format!("the task home {what}: {}", wanted.display()) });
    let Some(real) = resolved(&wanted) else { return refuse("cannot be told from its path, which has .. in it") };
    let home = std::fs::canonicalize(shared.path()).attempt("resolve", shared.path())?;
    if real.parent().is_none() {
        return refuse("is the root of the file system");
    }
    if real.starts_with(&home) {
        return refuse("is the shared home or inside it");
    }
    if home.starts_with(&real) {
        return refuse("has the shared home inside it");
    }
    Ok(wanted)
}

/// A path whose end may not be there yet, resolved as far as it is. `None` where what is not there holds a `..`.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut there = path;
    loop {
        if let Ok(real) = std::fs::canonicalize(there) {
            let rest = path.strip_prefix(there).ok()?;
            let plain = rest.components().all(|c| matches!(c, std::path::Component::Normal(_)));
            return plain.then(|| real.join(rest));
        }
        there = there.parent()?;
    }
}

/// What is remembered of a task home.
pub fn read_record(dir: &Dir) -> Result<Option<TaskRecord>, HomeError> {
    let path = dir.shown(RECORD);
    let Some(bytes) = dir.read(RECORD, MAX_RECORD).attempt("read", &path)? else { return Ok(None) };
    serde_json::from_slice(&bytes).map(Some).map_err(|e| HomeError::Malformed { path, why: e.to_string() })
}
