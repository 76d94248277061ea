//! The part of a preparation that finds the thread to go on with, wherever it is, and brings it into the store.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bring::{Lost, Rules, Source, bring, source};
use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::expose::Target;
use crate::find::{Found, Presence, Scan, Want, scan};
use crate::id::{NamedRollout, ResumeId};
use crate::key::{ConversationKind, StoreKey};
use crate::outcome::{ExposedFile, Outcome, Unavailable};
use crate::platform::Kind;
use crate::prepare::Run;
use crate::reservation::{Hold, Reservation, lock_name};
use crate::sessions::{self, Leads, Stands};
use crate::shared::{MULTICA, STORES, SharedHome};
use crate::store::{Editing, Store};
use crate::writers::{Writers, Writing, refuse_written};

impl Run<'_> {
    /// Looks for the thread in the store, where the home's `sessions` led before, in other stores and in the shared home,
    /// and says in the report what came of it.
    pub(crate) fn resume(
        &mut self,
        id: &ResumeId,
        store: &Store,
        editing: &Editing,
        stands: &Stands,
        target: &Target,
    ) -> Result<(), HomeError> {
        let mut sources =
            vec![source("the store".into(), Some(target.sessions.clone()), Some(target.archived.clone()))];
        if let Stands::Link(Leads::OtherStore(_) | Leads::Foreign(_)) = stands
            && let Ok(Some(old)) = sessions::open(&self.home, "sessions")
        {
            let archived = sessions::open(&self.home, "archived_sessions").ok().flatten();
            sources.push(source("the folder that sessions led to".into(), Some(old), archived));
        }
        let mut unseen = Vec::new();
        let quick = self.other_stores(store, id, &mut sources, &mut unseen)?;
        self.earlier_system(store, &mut sources)?;
        let mut known = source(
            "the shared home".into(),
            self.shared.rollouts("sessions")?,
            self.shared.rollouts("archived_sessions")?,
        );
        known.known = self.world.look_up.and_then(|look_up| look_up(id)).map(|paths| self.known(id, &paths));
        sources.push(known);
        let (within, person) = (self.shared.within(), self.shared.rollouts("sessions")?);
        let busy = |thread: &ResumeId| self.busy(store, thread);
        let rules = Rules {
            to: Some(target),
            exposure: self.options.exposure,
            within: &within,
            person: person.as_ref(),
            busy: &busy,
        };
        let mut brought = bring(id, &sources, &rules)?;
        // Where the thread is, nothing else needs to be seen.
        if let Some(Lost::NotFound) = brought.lost
            && let Some((path, why)) = unseen.first().cloned()
        {
            brought.lost = Some(Lost::CannotLook(path, why));
        }
        if brought.lost.is_some() {
            brought.problems.append(&mut unseen);
        }
        self.report.notes.extend(brought.notes);
        self.problems(brought.problems);
        match brought.lost {
            None => {
                self.report.outcome = Outcome::Resumed(brought.presence.unwrap_or(Presence::PresentUnverified));
                self.report.exposed = brought
                    .exposed
                    .into_iter()
                    .map(|(path, how)| ExposedFile { path, how, shares_appends: how.shares_appends() })
                    .collect();
                self.report.bases = brought.bases;
                if let Some(from) = brought.from.filter(|f| f != "the shared home") {
                    self.report.migrated.push(format!("thread {id}: from {from}"));
                }
                if let Some(quick) = quick {
                    self.take_over(&quick, store, editing)?;
                }
                self.finish_take_overs(store, editing)?;
                let reflinked: Vec<String> = self
                    .report
                    .exposed
                    .iter()
                    .filter(|e| e.how == crate::expose::How::Reflink)
                    .map(|e| e.path.to_string_lossy().into_owned())
                    .collect();
                store.edit(editing, self.world.now, |m| {
                    let changed = m.note(id.as_str(), None) | !reflinked.is_empty();
                    m.shares_blocks.extend(reflinked);
                    changed
                })?;
            }
            Some(lost) => self.report.outcome = Outcome::Unavailable(Unavailable::Lost(lost)),
        }
        Ok(())
    }

    /// Whether a thread is in a home's own folder, whole: that folder counts, so nothing comes in from elsewhere. Tells
    /// why where it is not.
    pub(crate) fn in_task_sessions(&mut self, id: &ResumeId, absent: Unavailable) -> Result<Outcome, HomeError> {
        let own = |folder| sessions::open(&self.home, folder);
        let sources = [source("the home's own folder".into(), own("sessions")?, own("archived_sessions")?)];
        let within = self.shared.within();
        let rules = Rules { to: None, exposure: self.options.exposure, within: &within, person: None, busy: &|_| None };
        let brought = bring(id, &sources, &rules)?;
        self.report.notes.extend(brought.notes);
        self.report.bases = if brought.lost.is_none() { brought.bases } else { vec![] };
        self.problems(brought.problems);
        Ok(match brought.lost {
            None => Outcome::Resumed(brought.presence.unwrap_or(Presence::PresentUnverified)),
            Some(Lost::NotFound) => Outcome::Unavailable(absent),
            Some(lost) => Outcome::Unavailable(Unavailable::Lost(lost)),
        })
    }

    /// Why a file of a thread in the store may not be replaced now: a Codex writes it, or another task holds the store
    /// and may have it open.
    fn busy(&self, store: &Store, id: &ResumeId) -> Option<String> {
        match Writers::read(self.shared).and_then(|writers| writers.of(id)) {
            Ok(Writing::No) => {}
            Ok(Writing::By(by)) => {
                let by: Vec<String> = by.iter().map(ToString::to_string).collect();
                return Some(format!("it is being written by process {}", by.join(", ")));
            }
            Err(e) => return Some(format!("whether it is being written is not known: {e}")),
        }
        let Ok(locks) = self.shared.locks() else { return Some("it is not known who is at it".into()) };
        let Some(others) = crate::reservation::others(&locks, &lock_name(&store.key.path())) else {
            return Some("it is not known who is at it".into());
        };
        let list: Vec<String> = others.iter().map(ToString::to_string).collect();
        (!list.is_empty()).then(|| format!("its store is in use by process {}", list.join(", ")))
    }

    /// The store of an earlier system of the same conversation, where ours has a folder of its own beside it.
    fn earlier_system(&self, own: &Store, sources: &mut Vec<Source>) -> Result<(), HomeError> {
        if own.borrowed.is_none()
            && let Some(old) = self.shared.multica_store(&own.key)?
        {
            sources.push(source("the multica-sessions store of this conversation".into(), Some(old), None));
        }
        Ok(())
    }

    fn problems(&mut self, problems: Vec<(PathBuf, String)>) {
        self.report
            .notes
            .extend(problems.into_iter().map(|(p, why)| format!("could not be looked into: {}: {why}", p.display())));
    }

    /// Files that an index knows, as far as they are there.
    fn known(&self, id: &ResumeId, paths: &[PathBuf]) -> Vec<Found> {
        let mut found = Vec::new();
        for path in paths {
            let mut parts = path.components();
            let folder = match parts.next().and_then(|c| c.as_os_str().to_str()) {
                Some("sessions") => "sessions",
                Some("archived_sessions") => "archived_sessions",
                Some(_) | None => continue,
            };
            let rest = parts.as_path();
            let (Ok(Some(root)), Some(parent), Some(name)) =
                (self.shared.rollouts(folder), rest.parent(), rest.file_name())
            else {
                continue;
            };
            let dir = if parent.as_os_str().is_empty() { Ok(root) } else { root.folder(parent) };
            let (Ok(dir), Some(named)) = (dir, name.to_str().and_then(NamedRollout::parse)) else { continue };
            if named.id == *id
                && let Ok(Some(stat)) = dir.stat(name)
            {
                found.push(Found { dir, path: path.clone(), name: name.to_owned(), named, kind: stat.kind });
            }
        }
        found
    }

    /// Stores of other conversations of this profile that have the thread. Tells the one that is taken over: a quick
    /// request's.
    fn other_stores(
        &self,
        own: &Store,
        id: &ResumeId,
        sources: &mut Vec<Source>,
        unseen: &mut Vec<(PathBuf, String)>,
    ) -> Result<Option<StoreKey>, HomeError> {
        let namespace = format!("{STORES}/{}", StoreKey::namespace_of(&own.key.profile));
        let Some(namespace) = self.shared.part(&namespace)? else { return Ok(None) };
        let mine = own.dir.stat_self().attempt("look at", own.dir.path())?;
        let mut quick = None;
        for (agent, kind) in namespace.entries().attempt("read folder", namespace.path())? {
            let Some(agent) = looked(namespace.folder_if_there(&agent), kind, namespace.shown(&agent), unseen) else {
                continue;
            };
            let entries = looked(agent.entries().map(Some), Kind::Folder, agent.path().to_owned(), unseen);
            for (name, kind) in entries.unwrap_or_default() {
                let Some(dir) = looked(agent.folder_if_there(&name), kind, agent.shown(&name), unseen) else {
                    continue;
                };
                if dir.stat_self().is_ok_and(|s| s.is_same(&mine)) {
                    continue;
                }
                let mut part = |folder: &str| {
                    let kind = dir.stat(folder).ok().flatten().map_or(Kind::Folder, |s| s.kind);
                    match kind {
                        // What such a store uses where it is, is found like what it has.
                        Kind::Link => self.of_earlier_system(&dir, folder),
                        _ => looked(dir.folder_if_there(folder), kind, dir.shown(folder), unseen),
                    }
                };
                let (sessions, archived) = (part("sessions"), part("archived_sessions"));
                let mut found = Scan::default();
                for folder in sessions.iter().chain(&archived) {
                    scan(folder, Path::new(""), Want::Thread(id), &mut found);
                }
                unseen.extend(found.problems.drain(..).map(|(p, why)| (dir.shown(p), why)));
                if found.found.is_empty() {
                    continue;
                }
                let key = crate::store::read_manifest(&dir).ok().flatten().map(|m| m.key);
                let shown = key.as_ref().map_or_else(|| dir.path().display().to_string(), StoreKey::shown);
                quick = quick.or_else(|| {
                    key.filter(|k| k.kind == ConversationKind::Quick && k.path() == relative(&dir, self.shared))
                });
                sources.push(source(format!("the store of {shown}"), sessions, archived));
            }
        }
        Ok(quick)
    }

    /// What a link in a store leads to, where that is in the stores of an earlier system.
    fn of_earlier_system(&self, store: &Dir, folder: &str) -> Option<Dir> {
        let stores = std::fs::canonicalize(self.shared.dir.shown(MULTICA)).ok()?;
        let real = std::fs::canonicalize(store.shown(folder)).ok()?;
        if real.starts_with(stores) { store.followed(folder).ok() } else { None }
    }

    /// Moves what is left in a quick request's store into this one. If a task still holds that store, what was linked is
    /// enough, and the next preparation may do it.
    fn take_over(&mut self, quick: &StoreKey, store: &Store, editing: &Editing) -> Result<(), HomeError> {
        let locks = self.shared.locks()?;
        match Reservation::take(&locks, &lock_name(&quick.path()), Hold::Alone, Duration::ZERO)? {
            Some(alone) => {
                if let Some(from) = Store::open(self.shared, quick)? {
                    match refuse_written(self.shared, &from) {
                        Ok(()) => {}
                        Err(e @ (HomeError::Held { .. } | HomeError::Refused { .. })) => {
                            self.report.notes.push(format!("the store of {} was left as it is: {e}", quick.shown()));
                            return Ok(());
                        }
                        Err(e) => return Err(e),
                    }
                    let moved = crate::rekey::merge_stores(&from, store, editing, self.world.now)?;
                    self.report.migrated.extend(moved);
                    alone.retire(&locks)?;
                }
            }
            None => self.report.notes.push(format!("the store of {} is in use and was left as it is", quick.shown())),
        }
        Ok(())
    }

    /// Finishes what a run that ended in the middle of a take-over left: its manifest says from where.
    fn finish_take_overs(&mut self, store: &Store, editing: &Editing) -> Result<(), HomeError> {
        let earlier = store.manifest()?.map(|m| m.earlier_keys).unwrap_or_default();
        for key in earlier.iter().filter(|k| k.kind == ConversationKind::Quick) {
            let Some(from) = Store::open(self.shared, key)? else { continue };
            let mut left = Scan::default();
            for folder in crate::shared::ROLLOUT_FOLDERS {
                if let Some(dir) = from.rollouts(folder)? {
                    scan(&dir, Path::new(folder), Want::All, &mut left);
                }
            }
            if !left.found.is_empty() || from.manifest()?.is_some_and(|m| !m.threads.is_empty()) {
                self.take_over(key, store, editing)?;
            }
        }
        Ok(())
    }
}

/// What was opened. Something that is no folder is not meant; an error is told, since what is behind it is not known.
fn looked<T>(
    opened: std::io::Result<Option<T>>,
    kind: Kind,
    at: PathBuf,
    unseen: &mut Vec<(PathBuf, String)>,
) -> Option<T> {
    match opened {
        Ok(opened) => opened,
        Err(e) => {
            if kind == Kind::Folder {
                unseen.push((at, e.to_string()));
            }
            None
        }
    }
}

/// The path of a store below the folder of stores.
fn relative(dir: &Dir, shared: &SharedHome) -> String {
    dir.path().strip_prefix(shared.dir.shown(STORES)).map(|p| p.to_string_lossy().into_owned()).unwrap_or_default()
}
