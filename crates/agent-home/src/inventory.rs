//! Looking at stores: what a list shows and what clean-up decides on. Takes and tries no lock, and writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use threadkeep_record::UtcMillis;
use threadkeep_rollout::name::Form;

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::find::{Found, Scan, Unfollowed, Want, scan};
use crate::id::ResumeId;
use crate::key::StoreKey;
use crate::manifest::{FORMAT, Manifest, Pin};
use crate::platform::{Kind, LockTable, flock_table};
use crate::reservation::{holders_in, lock_name};
use crate::shared::{LOCKS, ROLLOUT_FOLDERS, STORES, SharedHome};
use crate::store::{EDIT_LOCK, MANIFEST, STAMP, read_manifest, read_stamp};
use crate::survey::{hides, roots};
use crate::writers::{Writers, Writing};

/// A modification time before this (2020) says that it was not kept, rather than when.
const UNBELIEVABLE: i64 = 1_577_836_800_000;

const ARCHIVED: &str = "archived_sessions";

/// What is known of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFacts {
    /// Its path below the folder of stores.
    pub path: String,
    /// Where it is.
    pub shown: PathBuf,
    /// Whose it is, if it says so.
    pub key: Option<StoreKey>,
    /// Bytes of the blocks that go when it goes: those of files that have no name elsewhere.
    pub bytes: u64,
    /// Its threads, by id, with their names.
    pub threads: BTreeMap<String, Option<String>>,
    /// When a task was last prepared or run on it.
    pub last_used: Option<UtcMillis>,
    /// Every time that speaks of use: the stamp, modification times, times of last records.
    pub times: Vec<UtcMillis>,
    /// Whether it is pinned.
    pub pin: Option<Pin>,
    /// Processes that hold it.
    pub held_by: Vec<u32>,
    /// Threads of it that a Codex writes now.
    pub written: Vec<String>,
    /// Threads of it that were archived and whose files are only here: put away to be kept.
    pub archived: Vec<String>,
    /// Threads elsewhere whose history refers to one that is only here: by, and to.
    pub referenced: Vec<(String, String)>,
    /// What could not be looked at. While there is any, nothing is removed.
    pub problems: Vec<String>,
}

/// How closely stores are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// What a list shows.
    List,
    /// Also what tells whether it may go: heads and tails of rollouts.
    Closely,
}

/// The namespaces that have stores.
pub fn namespaces(shared: &SharedHome) -> Result<Vec<String>, HomeError> {
    let Some(stores) = shared.part(STORES)? else { return Ok(vec![]) };
    let entries = stores.entries().attempt("read folder", stores.path())?;
    Ok(entries.into_iter().filter(|(_, k)| *k == Kind::Folder).filter_map(|(n, _)| n.into_string().ok()).collect())
}

/// The stores of a namespace, in order of their paths.
pub fn stores(shared: &SharedHome, namespace: &str, look: Look) -> Result<Vec<StoreFacts>, HomeError> {
    let at = format!("{STORES}/{namespace}");
    let Some(dir) = shared.part(&at)? else { return Ok(vec![]) };
    let table = flock_table();
    let mut all = Vec::new();
    for (agent, kind) in dir.entries().attempt("read folder", dir.path())? {
        let (Kind::Folder, Some(agent)) = (kind, agent.to_str()) else { continue };
        let Some(agent_dir) = dir.folder_if_there(agent).attempt("open folder", dir.shown(agent))? else { continue };
        for (name, kind) in agent_dir.entries().attempt("read folder", agent_dir.path())? {
            let (Kind::Folder, Some(name)) = (kind, name.to_str()) else { continue };
            let Some(store) = agent_dir.folder_if_there(name).attempt("open folder", agent_dir.shown(name))? else {
                continue;
            };
            all.push(facts(shared, &store, format!("{namespace}/{agent}/{name}"), look, &table));
        }
    }
    Ok(all)
}

/// Looks at one store.
#[must_use]
pub fn facts(shared: &SharedHome, store: &Dir, path: String, look: Look, table: &LockTable) -> StoreFacts {
    let mut out = StoreFacts {
        shown: store.path().to_owned(),
        key: None,
        bytes: 0,
        threads: BTreeMap::new(),
        last_used: None,
        times: vec![],
        pin: None,
        held_by: vec![],
        written: vec![],
        archived: vec![],
        referenced: vec![],
        problems: vec![],
        path,
    };
    let manifest = match read_manifest(store) {
        Ok(None) if holds_something(store) => {
            out.problems.push(format!("{MANIFEST} is missing: whose it is and whether it is pinned is not known"));
            None
        }
        Ok(manifest) => manifest,
        Err(e) => {
            out.problems.push(e.to_string());
            None
        }
    };
    if let Some(manifest) = &manifest {
        told(manifest, &mut out);
    }
    match read_stamp(store) {
        Ok(stamp) => {
            out.last_used = stamp;
            out.times.extend(stamp);
        }
        Err(e) => out.problems.push(format!("{}: {e}", store.shown(STAMP).display())),
    }
    let reflinked: BTreeSet<&str> = manifest.iter().flat_map(|m| m.shares_blocks.iter().map(String::as_str)).collect();
    measure(store, Path::new(""), &reflinked, &mut out, 0);
    match shared.part(LOCKS) {
        Ok(Some(locks)) => out.held_by = holders_in(&locks, &lock_name(&out.path), table),
        Ok(None) => {}
        Err(e) => out.problems.push(e.to_string()),
    }
    if look == Look::Closely {
        closely(shared, store, &mut out);
    } else {
        for found in rollouts(shared, store, &mut out) {
            out.threads.entry(found.named.id.to_string()).or_default();
        }
    }
    out
}

/// Whether a store holds more than a preparation that ended early leaves. Any doubt means that it does.
fn holds_something(store: &Dir) -> bool {
    fn files(dir: &Dir, depth: usize) -> io::Result<bool> {
        for (name, kind) in dir.entries()? {
            if kind != Kind::Folder || depth > 12 || files(&dir.folder(&name)?, depth + 1)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
    let ours = |name: &std::ffi::OsStr| {
        [STAMP, EDIT_LOCK].iter().any(|n| name == *n) || name.as_encoded_bytes().starts_with(b".threadkeep-stage-")
    };
    let Ok(entries) = store.entries() else { return true };
    entries.into_iter().filter(|(name, _)| !ours(name)).any(|(name, kind)| {
        kind != Kind::Folder || store.folder(&name).map_or(true, |dir| files(&dir, 0).unwrap_or(true))
    })
}

fn told(manifest: &Manifest, out: &mut StoreFacts) {
    if manifest.format > FORMAT {
        out.problems.push(format!("written by a newer version (format {})", manifest.format));
    }
    if manifest.key.path() != out.path {
        out.problems.push("its manifest names another store".into());
    }
    out.key = Some(manifest.key.clone());
    out.pin.clone_from(&manifest.pin);
    out.times.push(manifest.created_at);
    out.threads.extend(manifest.threads.iter().map(|t| (t.id.clone(), t.name.clone())));
}

/// Adds up blocks and collects times.
fn measure(dir: &Dir, at: &Path, reflinked: &BTreeSet<&str>, out: &mut StoreFacts, depth: usize) {
    let entries = match dir.entries() {
        Ok(entries) => entries,
        Err(e) => return out.problems.push(format!("{}: {e}", dir.path().display())),
    };
    for (name, kind) in entries {
        let path = at.join(&name);
        match dir.stat(&name) {
            Ok(Some(stat)) if kind == Kind::File => {
                if stat.links <= 1 && !reflinked.contains(&*path.to_string_lossy()) {
                    out.bytes += stat.blocks;
                }
                let rollout = name.to_str().and_then(crate::id::NamedRollout::parse);
                if let Some(rollout) = rollout {
                    if stat.mtime_ms >= UNBELIEVABLE {
                        out.times.push(UtcMillis(stat.mtime_ms));
                    } else if rollout.form == Form::Zstd {
                        out.problems.push(format!("{}: when it was last written is not known", path.display()));
                    }
                }
            }
            Ok(Some(_)) if kind == Kind::Folder && depth < 16 => match dir.folder(&name) {
                Ok(below) => measure(&below, &path, reflinked, out, depth + 1),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => out.problems.push(format!("{}: {e}", path.display())),
            },
            Ok(Some(_) | None) => {}
            Err(e) => out.problems.push(format!("{}: {e}", path.display())),
        }
    }
}

/// The rollouts of a store, and what is among them or in their place that cannot be looked into.
fn rollouts(shared: &SharedHome, store: &Dir, out: &mut StoreFacts) -> Vec<Found> {
    let mut found = Scan::default();
    for folder in ROLLOUT_FOLDERS {
        match store.folder_if_there(folder) {
            Ok(Some(dir)) => scan(&dir, Path::new(folder), Want::All, &mut found),
            Ok(None) => {}
            // Sessions of an earlier system are behind a link, and never ours to remove.
            Err(_) if store.stat(folder).is_ok_and(|s| s.is_some_and(|s| s.kind == Kind::Link)) => {
                let (path, name) = (Path::new(folder).to_owned(), folder.into());
                found.links.push(Unfollowed { dir: store.clone(), path, name });
            }
            Err(e) => out.problems.push(format!("{folder}: {e}")),
        }
    }
    out.problems.extend(found.problems.into_iter().map(|(p, why)| format!("{}: {why}", p.display())));
    out.problems.extend(found.strange.iter().map(|p| format!("{}: not a regular file", p.display())));
    if !found.links.is_empty() {
        let roots = roots(shared);
        out.problems.extend(found.links.iter().filter_map(|link| hides(link, &roots)));
    }
    found.found
}

fn closely(shared: &SharedHome, store: &Dir, out: &mut StoreFacts) {
    let all = rollouts(shared, store, out);
    // Those that the manifest knows too: sessions of an earlier system are elsewhere, and their agents use this store.
    let known = out.threads.keys().filter_map(|id| ResumeId::parse(id).ok());
    let ids: BTreeSet<ResumeId> = known.chain(all.iter().map(|f| f.named.id.clone())).collect();
    match Writers::read(shared) {
        Ok(writers) => {
            for id in &ids {
                match writers.of(id) {
                    Ok(Writing::By(_)) => out.written.push(id.to_string()),
                    Ok(Writing::No) => {}
                    Err(e) => out.problems.push(e.to_string()),
                }
            }
        }
        Err(e) if !ids.is_empty() => out.problems.push(format!("whether its threads are written is not known: {e}")),
        Err(_) => {}
    }
    for found in all {
        let id = found.named.id.to_string();
        if found.path.starts_with(ARCHIVED) && found.kind == Kind::File && !out.archived.contains(&id) {
            match found.stat() {
                // One with another name is not lost with this one: what came along as a base, for one.
                Ok(stat) if stat.is_some_and(|s| s.links > 1) => {}
                Ok(_) => out.archived.push(id.clone()),
                Err(e) => out.problems.push(format!("{}: {e}", found.path.display())),
            }
        }
        out.threads.entry(id).or_default();
        if found.kind == Kind::File && found.named.form == Form::Plain {
            match found.open(&[]).and_then(|file| threadkeep_rollout::tail::tail_of(&file)) {
                Ok(tail) => out.times.extend(tail.last_time),
                Err(e) => out.problems.push(format!("{}: {e}", found.path.display())),
            }
        }
    }
}
