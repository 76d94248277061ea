//! What has to be done to a thread: which files go where, which lines and rows with them.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::name_index::NameFile;
use threadkeep_rollout::walk::{FileEntry, Place};
use threadkeep_store::Archived;

use super::codex::{CodexRows, goals};
use super::journal::{Codex, Move, Names, Step};
use super::plan::PlannedFile;
use super::trash::{FORMAT, Manifest, Trash, TrashedFile};
use super::{ChangeError, ChangeKind, Changer};
use crate::catalog::Catalog;
use crate::row;

/// One look at a home and its trash.
pub(super) struct Look<'l> {
    pub changer: &'l Changer,
    pub catalog: &'l Catalog,
    /// The trash, or why it cannot be read.
    pub trash: Result<&'l Trash, String>,
}

/// What a change of one thread takes.
#[derive(Debug)]
pub(super) struct Planned {
    pub files: Vec<PlannedFile>,
    /// Lines of the name index.
    pub names: usize,
    /// The rollout that Codex is to look for, relative to the home and in its plain form.
    pub head: Option<PathBuf>,
}

impl Look<'_> {
    /// The entry of the trash that holds a thread: the one that was deleted last.
    pub fn entry(&self, id: ThreadId) -> Option<&Manifest> {
        self.trash.as_ref().ok()?.entries.iter().find(|e| e.thread_id == id)
    }

    /// Which files of a thread a change takes, and where they go.
    pub fn planned(&self, kind: ChangeKind, id: ThreadId) -> Result<Planned, ChangeError> {
        match kind {
            ChangeKind::Archive => self.place(id, Place::Active),
            ChangeKind::Unarchive => self.place(id, Place::Archived),
            ChangeKind::Delete => self.delete(id),
            ChangeKind::Restore => self.restore(id),
            // Made by its own hand.
            ChangeKind::Detach => Err(ChangeError::NotFound { id, archived: Archived::Excluded }),
        }
    }

    /// The files of a thread, its head's plain form, and whether its name is theirs.
    fn files(&self, id: ThreadId) -> (Vec<&FileEntry>, Option<PathBuf>) {
        let Some(group) = self.catalog.group(id) else { return (vec![], None) };
        let mut files: Vec<&FileEntry> = group.files.iter().map(|f| &self.catalog.files[*f as usize]).collect();
        files.sort_by_cached_key(|f| f.path());
        let head = if let [one] = files.as_slice() {
            one.path()
        } else {
            let row = row::row(self.catalog, group, Depth::Head);
            row.assembly.and_then(|a| row.members.get(a.head).map(|m| m.entry.path())).unwrap_or_default()
        };
        (files, Some(plain(&head)))
    }

    /// Between the two folders.
    fn place(&self, id: ThreadId, from: Place) -> Result<Planned, ChangeError> {
        let (files, head) = self.files(id);
        let mine: Vec<&&FileEntry> = files.iter().filter(|f| f.place == from).collect();
        if mine.is_empty() {
            return Err(self.nothing(id, from, !files.is_empty()));
        }
        let mut planned = Vec::new();
        for file in &mine {
            let path = file.path();
            if !path.to_string_lossy().contains(&id.to_string()) {
                return Err(ChangeError::OtherName { path, id });
            }
            let to = match from {
                Place::Active => Path::new(ARCHIVE).join(path.file_name().unwrap_or_default()),
                Place::Archived | Place::Outside => active(file)?,
            };
            planned.push(self.planned_file(file, Some(to))?);
        }
        // What stays where it belongs already is told, too: afterwards all of it is at one place.
        for file in files.iter().filter(|f| f.place != from) {
            planned.push(PlannedFile { from: file.path(), to: None, bytes: file.size });
        }
        let head = head.and_then(|head| {
            let moved = planned.iter().find(|f| plain(&f.from) == head)?;
            Some(plain(moved.to.as_ref().unwrap_or(&moved.from)))
        });
        Ok(Planned { files: planned, names: 0, head })
    }

    /// Why there is nothing to move.
    fn nothing(&self, id: ThreadId, from: Place, elsewhere: bool) -> ChangeError {
        match from {
            _ if !elsewhere && self.catalog.ghosts.contains_key(&id) => {
                ChangeError::TranscriptGone { id, left: "Codex's database" }
            }
            Place::Archived => ChangeError::NotArchived { id },
            Place::Active | Place::Outside => {
                let archived = if elsewhere { Archived::Included } else { Archived::Excluded };
                ChangeError::NotFound { id, archived }
            }
        }
    }

    fn planned_file(&self, file: &FileEntry, to: Option<PathBuf>) -> Result<PlannedFile, ChangeError> {
        let from = file.path();
        if !from.components().all(|c| matches!(c, Component::Normal(_))) {
            return Err(ChangeError::Outside { path: from });
        }
        if from.to_str().is_none() {
            return Err(ChangeError::NotText { path: from });
        }
        // Told before anything is done; whoever puts a file there in between is met when it is moved.
        if let Some(to) = &to {
            let disk = &self.changer.disk;
            let whole = |p: &Path| disk.look(&self.changer.home.absolute(p)).ok().flatten();
            if let Some(there) = whole(to)
                && !whole(&from).is_some_and(|here| here.is_same(&there))
            {
                return Err(super::moves::MoveError::Exists { to: to.clone() }.into());
            }
        }
        Ok(PlannedFile { from, to, bytes: file.size })
    }

    fn delete(&self, id: ThreadId) -> Result<Planned, ChangeError> {
        let (files, head) = self.files(id);
        let names = usize::from(self.catalog.names.line(id).is_some());
        if files.is_empty() && names == 0 && !self.catalog.ghosts.contains_key(&id) {
            return Err(ChangeError::NotFound { id, archived: Archived::Excluded });
        }
        let files = files.into_iter().map(|f| self.planned_file(f, None)).collect::<Result<Vec<_>, _>>()?;
        Ok(Planned { files, names, head })
    }

    fn restore(&self, id: ThreadId) -> Result<Planned, ChangeError> {
        if let Err(e) = &self.trash {
            let path = self.changer.home.absolute(Path::new(super::trash::FOLDER));
            return Err(ChangeError::Trash { path, source: std::io::Error::other(e.clone()) });
        }
        let Some(entry) = self.entry(id) else { return Err(ChangeError::NotInTrash { id }) };
        match (&entry.replaced, self.catalog.group(id)) {
            // The rollout that took the place of these files goes when they come back, if it says nothing else.
            (Some(new), Some(group)) => {
                let there = group.files.iter().map(|f| &self.catalog.files[*f as usize]);
                if there.clone().any(|f| f.path() == new.path && f.size != new.bytes) || there.count() > 1 {
                    return Err(ChangeError::WentOn { id });
                }
            }
            (None, Some(_)) if !entry.files.is_empty() => return Err(ChangeError::IsThere { id }),
            _ => {}
        }
        let file = |f: &TrashedFile| PlannedFile { from: entry.place(f), to: Some(f.path.clone()), bytes: f.bytes };
        Ok(Planned { files: entry.files.iter().map(file).collect(), names: entry.names.len(), head: None })
    }
}

const ARCHIVE: &str = "archived_sessions";

/// The plain form of a rollout's path.
pub(super) fn plain(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|e| e == "zst") { path.with_extension("") } else { path.to_owned() }
}

/// Where a rollout stands that is not archived: in the folder of the day in its name, whatever zone the reader is in.
fn active(file: &FileEntry) -> Result<PathBuf, ChangeError> {
    let path = file.path();
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut to = PathBuf::from("sessions");
    // The TypeScript command keeps its files in one folder.
    if file.name.form != Form::Json {
        let day = name.get(8..18).filter(|d| {
            let digits = |r: std::ops::Range<usize>| d.as_bytes()[r].iter().all(u8::is_ascii_digit);
            digits(0..4) && digits(5..7) && digits(8..10) && d.as_bytes()[4] == b'-' && d.as_bytes()[7] == b'-'
        });
        let Some(day) = day else { return Err(ChangeError::NoTime { path }) };
        to.extend([&day[..4], &day[5..7], &day[8..]]);
    }
    Ok(to.join(path.file_name().unwrap_or_default()))
}

/// What several steps of one change share.
pub(super) struct Making<'m> {
    pub look: &'m Look<'m>,
    pub kind: ChangeKind,
    pub at: UtcMillis,
    pub codex: Option<&'m CodexRows>,
    /// The name index, under its lock; lines of deleted threads leave it one after the other.
    pub names: Option<NameFile>,
    /// Names of entries that are taken.
    pub entries: BTreeSet<String>,
}

impl Making<'_> {
    /// The step of a thread.
    pub fn step(&mut self, id: ThreadId, number: u64) -> Result<Step, ChangeError> {
        let planned = self.look.planned(self.kind, id)?;
        let moved = |f: &PlannedFile| Some(Move { from: f.from.clone(), to: f.to.clone()? });
        let moves = planned.files.iter().filter_map(moved).collect();
        match self.kind {
            ChangeKind::Archive | ChangeKind::Unarchive => {
                let archived_at = (self.kind == ChangeKind::Archive).then_some(self.at.0.div_euclid(1000));
                let codex = match &planned.head {
                    Some(head) => Codex::Place { archived_at, rollout_path: self.absolute(head) },
                    None => Codex::Stay,
                };
                Ok(Step {
                    thread_id: id,
                    moves,
                    removes: vec![],
                    made_from: vec![],
                    trash: None,
                    names: Names::Stay,
                    codex,
                })
            }
            ChangeKind::Delete => {
                let manifest = self.manifest(id, number, &planned)?;
                let file = |f: &TrashedFile| Move { from: f.path.clone(), to: manifest.place(f) };
                let moves = manifest.files.iter().map(file).collect();
                let (names, codex) = (Names::Take, Codex::Delete);
                Ok(Step {
                    thread_id: id,
                    moves,
                    removes: vec![],
                    made_from: vec![],
                    trash: Some(manifest),
                    names,
                    codex,
                })
            }
            ChangeKind::Restore => {
                let manifest = self.look.entry(id).cloned().ok_or(ChangeError::NotInTrash { id })?;
                let names = Names::Put(manifest.names.clone());
                let codex = match manifest.replaced.as_ref().map(|r| &r.rollout_path) {
                    None => Codex::Put(manifest.codex.clone()),
                    Some(Some(path)) => Codex::Path { rollout_path: path.clone() },
                    Some(None) => Codex::Stay,
                };
                let removes = manifest.replaced.iter().map(|r| r.path.clone()).collect();
                Ok(Step { thread_id: id, moves, removes, made_from: vec![], trash: Some(manifest), names, codex })
            }
            ChangeKind::Detach => Err(ChangeError::NotFound { id, archived: Archived::Excluded }),
        }
    }

    /// Everything that goes with a thread.
    pub fn manifest(&mut self, id: ThreadId, number: u64, planned: &Planned) -> Result<Manifest, ChangeError> {
        let home = self.look.changer.home.path();
        let none = Trash::default();
        let trash = self.look.trash.as_ref().map_or(&none, |t| *t);
        let entry = trash.free_entry(id, &self.entries);
        self.entries.insert(entry.clone());
        let (name, preview) = self.look.facts(id).unwrap_or_default();
        let index = self.look.catalog.kept.index().and_then(|index| index.saved(id).ok());
        Ok(Manifest {
            format: FORMAT,
            entry,
            thread_id: id,
            name: name.or_else(|| self.look.catalog.names.entry(id).map(str::to_owned)),
            preview,
            deleted_at: self.at,
            number,
            files: planned.files.iter().map(|f| TrashedFile { path: f.from.clone(), bytes: f.bytes }).collect(),
            names: self.names.as_mut().map(|names| names.take(id)).unwrap_or_default(),
            codex: self.codex.map_or(Ok(vec![]), |codex| codex.rows_of(id))?,
            index: index.unwrap_or_default(),
            replaced: None,
            goals: goals(home, id),
        })
    }

    /// A path as Codex writes it: below the home without links, which the two folders may be.
    pub fn absolute(&self, below: &Path) -> String {
        let home = self.look.changer.home.path();
        let real = std::fs::canonicalize(home).unwrap_or_else(|_| home.to_owned());
        real.join(below).to_string_lossy().into_owned()
    }
}
