//! Clean-up: the plan, carried out store by store.
//!
//! A store is reserved alone, looked at again, renamed to a tombstone, and its lock let go; then it is deleted. A crash
//! leaves a tombstone, which the next clean-up sweeps. Nothing waits for a deletion.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::time::Duration;

use threadkeep_record::UtcMillis;

use crate::dir::{Dir, absent};
use crate::error::{Attempt as _, HomeError};
use crate::inventory::{Look, StoreFacts, facts, namespaces, stores};
use crate::key::StoreKey;
use crate::plan::{Action, Because, Decision, Policy, last_use, plan, protection};
use crate::platform::{Kind, Target, flock_table};
use crate::reservation::{Hold, Reservation, lock_name};
use crate::shared::{STORES, SharedHome, TOMBSTONES};
use crate::store::{STAMP, Store, read_manifest};
use crate::survey::{only_here, survey};

/// Whether the plan is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carry {
    /// It is only shown.
    Out,
    /// It is carried out.
    Through,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pruned {
    /// What was decided of each store; where the execution came to another end, that.
    pub plan: Vec<Decision>,
    /// Whether it was carried out.
    pub applied: bool,
    /// Stores removed.
    pub removed: u64,
    /// Bytes of blocks that were really freed.
    pub freed_bytes: u64,
    /// Namespaces of other profiles, which are not looked at.
    pub out_of_scope: Vec<String>,
    /// Leftovers of earlier clean-ups that were deleted.
    pub swept: Vec<String>,
    /// What is left of removed stores because the system refused to delete it, with why.
    pub left: Vec<String>,
}

/// Cleans up the stores of a profile.
pub fn prune(
    shared: &SharedHome,
    profile: &str,
    policy: Policy,
    now: UtcMillis,
    carry: Carry,
) -> Result<Pruned, HomeError> {
    let namespace = StoreKey::namespace_of(profile);
    let mut list = stores(shared, &namespace, Look::Closely)?;
    // Heads of the whole shared home are read only for stores that would go.
    let first = plan(&list, policy, now);
    if first.iter().any(|d| d.action == Action::Remove) {
        refer(shared, &mut list)?;
    }
    let mut out = Pruned {
        plan: plan(&list, policy, now),
        applied: carry == Carry::Through,
        removed: 0,
        freed_bytes: 0,
        out_of_scope: namespaces(shared)?.into_iter().filter(|n| *n != namespace).collect(),
        swept: vec![],
        left: vec![],
    };
    if carry == Carry::Out {
        return Ok(out);
    }
    sweep(shared, &mut out)?;
    for i in 0..out.plan.len() {
        match (out.plan[i].action, &out.plan[i].because) {
            (Action::Remove, _) => match bury(shared, &out.plan[i].clone(), now, &mut out) {
                Ok(None) => {}
                Ok(Some(because)) => {
                    out.plan[i].action = Action::Keep;
                    out.plan[i].because = because;
                }
                Err(e) => {
                    out.plan[i].action = Action::Keep;
                    out.plan[i].because = Because::Uncertain(e.to_string());
                }
            },
            (Action::Keep, Because::ClockStarts) => start_clock(shared, &out.plan[i].store, now)?,
            (Action::Keep, _) => {}
        }
    }
    Ok(out)
}

/// Notes which stores hold a thread that is archived, or that another thread elsewhere needs or may need.
fn refer(shared: &SharedHome, list: &mut [StoreFacts]) -> Result<(), HomeError> {
    let survey = survey(shared);
    let doubt = survey.doubt();
    // All of them: what these references keep may make a budget choose others.
    for facts in list.iter_mut() {
        let Some(dir) = shared.part(&format!("{STORES}/{}", facts.path))? else { continue };
        let only: BTreeSet<String> = only_here(&survey, &dir);
        facts.referenced = survey
            .references
            .iter()
            .filter(|r| r.store.as_ref() != Some(&facts.path) && only.contains(&r.to))
            .map(|r| (r.by.clone(), r.to.clone()))
            .collect();
        if !only.is_empty() {
            facts.problems.extend(doubt.clone());
        }
    }
    Ok(())
}

/// Removes one store, if it still is as it was planned on, or tells why it is kept. Once the store has become a tombstone
/// it is removed, whatever comes of deleting that.
fn bury(
    shared: &SharedHome,
    decision: &Decision,
    now: UtcMillis,
    out: &mut Pruned,
) -> Result<Option<Because>, HomeError> {
    let locks = shared.locks()?;
    let name = lock_name(&decision.store);
    let Some(alone) = Reservation::take(&locks, &name, Hold::Alone, Duration::ZERO)? else {
        return Ok(Some(Because::Held(crate::reservation::holders(&locks, &name))));
    };
    let path = format!("{STORES}/{}", decision.store);
    let Some(dir) = shared.part(&path)? else { return Ok(Some(Because::Changed)) };
    let mut again = facts(shared, &dir, decision.store.clone(), Look::Closely, &flock_table());
    // That is us.
    again.held_by.clear();
    if let Some(because) = protection(&again) {
        return Ok(Some(because));
    }
    if last_use(&again, now) != decision.idle_since {
        return Ok(Some(Because::Changed));
    }
    let reflinked: BTreeSet<String> =
        read_manifest(&dir)?.map(|m| m.shares_blocks).unwrap_or_default().into_iter().collect();
    drop(dir);
    let (above, conversation) = decision.store.rsplit_once('/').unwrap_or(("", &decision.store));
    let Some(agent) = shared.part(&format!("{STORES}/{above}"))? else { return Ok(Some(Because::Changed)) };
    let graves = shared.dir.made(TOMBSTONES).attempt("make folder", shared.dir.shown(TOMBSTONES))?;
    let grave = dig(&agent, conversation, &graves, name.trim_end_matches(".lock"), now)?;
    out.removed += 1;
    // From here on nothing brings the store back; what fails is told, and the next clean-up sweeps.
    if let Err(e) = agent.sync().and_then(|()| graves.sync()) {
        out.left.push(format!("cannot sync {}: {e}", graves.path().display()));
    }
    // A folder of an agent that holds nothing goes too; a store that is made in it right now makes it again.
    if let Some((namespace, agent)) = above.rsplit_once('/')
        && let Ok(Some(namespace)) = shared.part(&format!("{STORES}/{namespace}"))
    {
        let _ = namespace.remove_folder(agent);
    }
    if let Err(e) = alone.retire(&locks) {
        out.left.push(e.to_string());
    }
    if let Err(e) = delete(&graves, OsStr::new(&grave), Path::new(""), &reflinked, &mut out.freed_bytes) {
        out.left.push(undeleted(&graves, &grave, &e));
    }
    Ok(None)
}

fn undeleted(graves: &Dir, grave: &str, e: &io::Error) -> String {
    format!("cannot delete {}, the next clean-up tries again: {e}", graves.shown(grave).display())
}

fn dig(agent: &Dir, conversation: &str, graves: &Dir, stem: &str, now: UtcMillis) -> Result<String, HomeError> {
    for n in 0..1000u32 {
        let grave = format!("{stem}-{}-{n}", now.0);
        match agent.rename(conversation, graves, &grave, Target::Free) {
            Ok(()) => return Ok(grave),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(HomeError::Io { attempt: "remove", path: agent.shown(conversation), source }),
        }
    }
    Err(HomeError::Refused { why: "too many tombstones of this store".into(), path: graves.path().to_owned() })
}

/// Deletes a tree. No link is followed. Counts the blocks of files whose last name went.
fn delete(at: &Dir, name: &OsStr, path: &Path, reflinked: &BTreeSet<String>, freed: &mut u64) -> io::Result<()> {
    let Some(dir) = at.folder_if_there(name)? else { return Ok(()) };
    for (entry, kind) in dir.entries()? {
        let below = path.join(&entry);
        if kind == Kind::Folder {
            delete(&dir, &entry, &below, reflinked, freed)?;
            continue;
        }
        let stat = dir.stat(&entry)?;
        if absent(dir.remove_file(&entry))?.is_some()
            && let Some(stat) = stat
            && stat.kind == Kind::File
            && stat.links <= 1
            && !reflinked.contains(&*below.to_string_lossy())
        {
            *freed += stat.blocks;
        }
    }
    absent(at.remove_folder(name)).map(|_| ())
}

/// Deletes what earlier clean-ups left.
fn sweep(shared: &SharedHome, out: &mut Pruned) -> Result<(), HomeError> {
    let Some(graves) = shared.part(TOMBSTONES)? else { return Ok(()) };
    for (grave, kind) in graves.entries().attempt("read folder", graves.path())? {
        if kind != Kind::Folder {
            continue;
        }
        let reflinked = graves
            .folder(&grave)
            .ok()
            .and_then(|d| read_manifest(&d).ok().flatten())
            .map(|m| m.shares_blocks.into_iter().collect())
            .unwrap_or_default();
        let shown = grave.to_string_lossy().into_owned();
        match delete(&graves, &grave, Path::new(""), &reflinked, &mut out.freed_bytes) {
            Ok(()) => out.swept.push(shown),
            // Another clean-up may be at it; the next one looks again.
            Err(e) => out.left.push(undeleted(&graves, &shown, &e)),
        }
    }
    Ok(())
}

/// Gives a store whose times say nothing one that does, unless someone is at it.
fn start_clock(shared: &SharedHome, path: &str, now: UtcMillis) -> Result<(), HomeError> {
    let locks = shared.locks()?;
    let Some(_alone) = Reservation::take(&locks, &lock_name(path), Hold::Alone, Duration::ZERO)? else { return Ok(()) };
    // Another clean-up may have removed it since it was looked at.
    let Some(dir) = shared.part(&format!("{STORES}/{path}"))? else { return Ok(()) };
    dir.put(STAMP, format!("{now}\n").as_bytes(), 0o600).attempt("write", dir.shown(STAMP))
}

/// Pins a store, or takes the pin off. Tells whether anything changed.
pub fn pin(
    shared: &SharedHome,
    key: &StoreKey,
    pin: Option<crate::manifest::Pin>,
    now: UtcMillis,
    patience: Duration,
) -> Result<bool, HomeError> {
    let locks = shared.locks()?;
    let _held = Reservation::need(&locks, &lock_name(&key.path()), Hold::Shared, patience, "the store")?;
    let Some(store) = Store::open(shared, key)? else {
        return Err(HomeError::Missing {
            what: "there is no store of this key",
            path: shared.dir.shown(format!("{STORES}/{}", key.path())),
        });
    };
    let mut changed = false;
    store.edit(&store.editing()?, now, |m| {
        changed = m.pin.as_ref().map(|p| &p.why) != pin.as_ref().map(|p| &p.why);
        if changed {
            m.pin = pin;
        }
        changed
    })?;
    Ok(changed)
}
