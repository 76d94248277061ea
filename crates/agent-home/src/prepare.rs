//! Preparing a task home.
//!
//! The order of the steps is what makes a crash harmless: the store and what is exposed in it come first, names are saved
//! before databases are dropped, these are dropped before the link that made them stale is replaced, and every step that
//! was done is found done by the next run.

use std::sync::Arc;

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::expose::Target;
use crate::files;
use crate::key::StoreKey;
use crate::leaving;
use crate::manifest::FORMAT;
use crate::names;
use crate::naming::{self, save_names};
pub use crate::options::{LookUp, Options, Work, World};
use crate::outcome::{NamedThread, Outcome, Report, Unavailable};
use crate::platform::Kind;
use crate::reservation::{Hold, Reservation, lock_name};
use crate::sessions::{self, Contents, Leads, Placed, Stands};
use crate::shared::{SharedHome, WRITER_LOCKS};
use crate::state;
use crate::store::{Adopt, Editing, Store, adopt};
use crate::task::{TaskHome, TaskRecord, checked};

/// A home that is ready.
#[derive(Debug)]
pub struct Prepared {
    /// What was done.
    pub report: Report,
    /// Keeps clean-up away from the store; held as long as this lives.
    pub reservation: Option<Reservation>,
}

/// Prepares a task home. Nothing is made outside it, `<shared>/threadkeep` and `<shared>/thread-writer-locks`.
pub fn prepare(options: &Options, world: &World<'_>) -> Result<Prepared, HomeError> {
    if options.key.as_ref().is_some_and(|k| k.id.is_empty()) {
        return Err(HomeError::Usage { what: "the id of the conversation is empty".into() });
    }
    if options.task_home.as_os_str().is_empty() {
        return Err(HomeError::Usage { what: "no task home is given: its path is empty".into() });
    }
    let shared = SharedHome::open(&options.shared_home, Arc::clone(&world.watch))?;
    let mut task = open_task(options, &shared, world)?;
    let home = task.dir.clone();
    let before = task.record.clone();
    let mut run = Run {
        options,
        world,
        shared: &shared,
        home: home.clone(),
        task: &mut task,
        report: Report {
            task_home: home.path().to_owned(),
            store: None,
            outcome: Outcome::Fresh,
            thread_id: options.resume.clone(),
            exposed: vec![],
            bases: vec![],
            migrated: vec![],
            repaired: vec![],
            linked: vec![],
            copied: vec![],
            kept: vec![],
            names: vec![],
            notes: vec![],
        },
    };
    match home.tighten() {
        Ok(None) => {}
        Ok(Some(mode)) => run
            .report
            .repaired
            .push(format!("the task home: its mode was {:o}, now others see nothing of it", mode & 0o777)),
        Err(e) => {
            run.report.notes.push(format!("the task home is open to others, and its mode cannot be changed: {e}"))
        }
    }
    let mut record = before.clone().unwrap_or_default();
    record.format = FORMAT;
    if let Some(old) = leaving::left(&home, &shared, before.as_ref(), options.key.as_ref())? {
        run.leave_conversation(&old, &mut record)?;
        // Said at once: what was put away must not be taken for the new conversation's by a run after a crash.
        record.key = options.key.clone();
        run.task.remember(record.clone())?;
    }
    run.writer_locks()?;
    let reservation = match &options.key {
        Some(key) => {
            if options.adopt == Adopt::Move
                && let Some(from) = adopt(&shared, key, world.now, options.patience)?
            {
                run.report.migrated.push(format!("sessions moved from {from}"));
            }
            let locks = shared.locks()?;
            let name = lock_name(&key.path());
            let held = Reservation::need(&locks, &name, Hold::Shared, options.patience, "the store")?;
            run.with_store(key, &mut record)?;
            Some(held)
        }
        None => {
            run.without_store(&mut record)?;
            None
        }
    };
    let done = files::place(&shared, &home, &options.config, &record.copied)?;
    run.report.linked.extend(done.linked);
    run.report.copied.extend(done.copied);
    run.report.repaired.extend(done.repaired);
    run.report.kept.extend(done.kept);
    record.copied = done.digests;
    record.key.clone_from(&options.key);
    let report = run.report;
    task.remember(record)?;
    Ok(Prepared { report, reservation })
}

fn open_task(options: &Options, shared: &SharedHome, world: &World<'_>) -> Result<TaskHome, HomeError> {
    let wanted = checked(&options.task_home, &shared.dir)?;
    TaskHome::make(&wanted, Arc::clone(&world.watch), options.patience)
}

/// A preparation on its way.
pub(crate) struct Run<'r> {
    pub options: &'r Options,
    pub world: &'r World<'r>,
    pub shared: &'r SharedHome,
    pub home: Dir,
    pub task: &'r mut TaskHome,
    pub report: Report,
}

impl Run<'_> {
    /// One writer over homes: the locks of a task home are the shared home's.
    fn writer_locks(&mut self) -> Result<(), HomeError> {
        let shown = self.home.shown(WRITER_LOCKS);
        let to = self.shared.dir.made(WRITER_LOCKS).attempt("make folder", self.shared.dir.shown(WRITER_LOCKS))?;
        let wanted = to.stat_self().attempt("look at", to.path())?;
        match self.home.stat(WRITER_LOCKS).attempt("look at", &shown)?.map(|s| s.kind) {
            None => {
                self.home.put_link(WRITER_LOCKS, to.path(), Kind::Folder).attempt("link", &shown)?;
                self.report.linked.push(WRITER_LOCKS.into());
            }
            Some(Kind::Link) => {
                if self.home.stat_followed(WRITER_LOCKS).ok().flatten().is_some_and(|s| s.is_same(&wanted)) {
                    return Ok(());
                }
                self.home.put_link(WRITER_LOCKS, to.path(), Kind::Folder).attempt("link", &shown)?;
                self.report.repaired.push(format!("{WRITER_LOCKS}: was a link to elsewhere"));
            }
            Some(Kind::Folder) => {
                let own = self.home.folder(WRITER_LOCKS).attempt("open folder", &shown)?;
                let table = crate::platform::flock_table();
                for (name, _) in own.entries().attempt("read folder", &shown)? {
                    let by = crate::reservation::holders_in(&own, &name.to_string_lossy(), &table);
                    if !by.is_empty() {
                        return Err(HomeError::Held { what: "a thread of this home", path: own.shown(name), by });
                    }
                }
                let aside = self.home.move_aside(WRITER_LOCKS).attempt("move aside", &shown)?;
                self.home.put_link(WRITER_LOCKS, to.path(), Kind::Folder).attempt("link", &shown)?;
                self.report.repaired.push(format!("{WRITER_LOCKS}: was a folder of its own, kept as {aside}"));
            }
            Some(Kind::File | Kind::Other) => {
                return Err(HomeError::Refused {
                    why: "something stands where the writer locks belong".into(),
                    path: shown,
                });
            }
        }
        Ok(())
    }

    fn without_store(&mut self, record: &mut TaskRecord) -> Result<(), HomeError> {
        for folder in crate::shared::ROLLOUT_FOLDERS {
            let stands = sessions::look(&self.home, folder, self.shared, None)?;
            // Codex makes the folder of archived ones when it needs it.
            if folder == "archived_sessions" && !matches!(stands, Stands::Link(_)) {
                continue;
            }
            if folder == "sessions" && matches!(stands, Stands::Link(_)) {
                self.drop_databases(record)?;
            }
            let placed = sessions::real_folder(&self.home, folder, &stands)?;
            self.told(folder, &stands, &placed);
        }
        if let Some(id) = &self.options.resume.clone() {
            self.report.outcome = self.in_task_sessions(id, Unavailable::NoConversation)?;
        }
        Ok(())
    }

    fn told(&mut self, folder: &str, stands: &Stands, placed: &Placed) {
        let text = match (placed, stands) {
            (Placed::Already, _) | (Placed::Made, _) => return,
            (Placed::Replaced(aside), Stands::Link(leads)) => {
                let was = match leads {
                    Leads::OwnStore => "this conversation's store".to_owned(),
                    Leads::SharedSessions => "the shared home's history".to_owned(),
                    Leads::OtherStore(path) => format!("another store, {}", path.display()),
                    Leads::Foreign(path) => format!("elsewhere, {}", path.display()),
                };
                let kept = aside.as_ref().map_or_else(String::new, |a| format!(", kept as {a}"));
                format!("{folder}: was a link to {was}{kept}")
            }
            (Placed::Replaced(_), _) => format!("{folder}: replaced"),
            (Placed::Merged(0, None), _) => return self.report.linked.push(folder.to_owned()),
            (Placed::Merged(n, aside), _) => {
                let kept = aside.as_ref().map_or_else(String::new, |a| format!("; the rest is kept as {a}"));
                format!("{folder}: {n} files of the home's own folder moved into the store{kept}")
            }
        };
        self.report.migrated.push(text);
    }

    fn with_store(&mut self, key: &StoreKey, record: &mut TaskRecord) -> Result<(), HomeError> {
        let (store, opened, editing) = Store::make(self.shared, key, self.world.now, Adopt::Leave)?;
        self.report.store = Some(store.dir.path().to_owned());
        self.report.repaired.extend(opened.repaired);
        let own = self.need(&store, "sessions")?;
        let stands = sessions::look(&self.home, "sessions", self.shared, Some(&own))?;
        self.leave_unknown(&store, &stands, record)?;
        let counts = self.options.work == Work::Managed && stands == Stands::Folder(Contents::Some);
        if stands == Stands::Other {
            return Err(HomeError::Refused {
                why: "something that is neither a folder nor a link stands here".into(),
                path: self.home.shown("sessions"),
            });
        }
        if counts {
            self.save_names(&store, &editing, record)?;
            if let Some(id) = &self.options.resume {
                self.report.outcome = self.in_task_sessions(id, Unavailable::NotInTaskSessions)?;
            }
            self.report.kept.push("sessions: the task home's own folder, which counts".into());
        } else {
            self.link_store(&store, &editing, &own, &stands, record)?;
        }
        self.give_names(&store, record)?;
        store.stamp(&editing, self.world.now)
    }

    fn need(&self, store: &Store, folder: &'static str) -> Result<Dir, HomeError> {
        store
            .rollouts(folder)?
            .ok_or_else(|| HomeError::Missing { what: "the store has lost a folder", path: store.dir.shown(folder) })
    }

    fn link_store(
        &mut self,
        store: &Store,
        editing: &Editing,
        own: &Dir,
        stands: &Stands,
        record: &mut TaskRecord,
    ) -> Result<(), HomeError> {
        let archived = self.need(store, "archived_sessions")?;
        let archived_stands = sessions::look(&self.home, "archived_sessions", self.shared, Some(&archived))?;
        // What is merged from the home's own folder is in the store before the thread is looked for there.
        let merging = matches!(stands, Stands::Folder(_));
        if merging {
            let placed = sessions::link(&self.home, "sessions", stands, own)?;
            self.told("sessions", stands, &placed);
        }
        if let Some(id) = self.options.resume.clone() {
            let target = Target { sessions: own.clone(), archived: archived.clone(), scratch: store.dir.clone() };
            self.resume(&id, store, editing, stands, &target)?;
        }
        self.save_names(store, editing, record)?;
        if let Stands::Link(leads) = stands
            && *leads != Leads::OwnStore
        {
            self.drop_databases(record)?;
        }
        if !merging {
            let placed = sessions::link(&self.home, "sessions", stands, own)?;
            if placed == Placed::Made {
                self.report.linked.push("sessions".into());
            }
            self.told("sessions", stands, &placed);
        }
        let placed = sessions::link(&self.home, "archived_sessions", &archived_stands, &archived)?;
        if placed == Placed::Made {
            self.report.linked.push("archived_sessions".into());
        }
        self.told("archived_sessions", &archived_stands, &placed);
        Ok(())
    }

    /// Drops the databases over a history that this home does not show any more. Names that only they have are kept first.
    fn drop_databases(&mut self, record: &mut TaskRecord) -> Result<(), HomeError> {
        let names = names::read(&self.home)?;
        if naming::keep_unclaimed(&names, record) {
            // A home without a record is this conversation's from here on: with a record of none, the next run after a
            // crash would take it for one that was used without a conversation.
            if self.task.record.is_none() {
                record.key.clone_from(&self.options.key);
            }
            self.task.remember(record.clone())?;
        }
        self.report.migrated.extend(state::reset(&self.home, &names)?);
        Ok(())
    }

    /// Copies names that were given in this home since it was last prepared into the store.
    pub(crate) fn save_names(
        &mut self,
        store: &Store,
        editing: &Editing,
        record: &mut TaskRecord,
    ) -> Result<(), HomeError> {
        let told = save_names(&self.home, self.shared, store, editing, self.world.now, record)?;
        self.report.notes.extend(told);
        Ok(())
    }

    /// Gives the home the names that the store knows and the home does not, and tells all of them.
    fn give_names(&mut self, store: &Store, record: &mut TaskRecord) -> Result<(), HomeError> {
        let Some(manifest) = store.manifest()? else { return Ok(()) };
        let names = naming::of_store(&manifest);
        let (done, not_done) = naming::give_names(&self.home, &names, self.world.now, record)?;
        self.report.repaired.extend(done);
        self.report.notes.extend(not_done);
        self.report.names.extend(names.into_iter().map(|(thread_id, name)| NamedThread { thread_id, name }));
        Ok(())
    }
}
