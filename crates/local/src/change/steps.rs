//! What has to be done to a thread: which files go where, which lines and rows with them.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Component, Path, PathBuf};

use threadkeep_index::listed::Known;
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::name_index::NameFile;
use threadkeep_rollout::par;
use threadkeep_rollout::walk::{FileEntry, Place};
use threadkeep_store::Archived;

use super::codex::{CodexRows, goals};
use super::journal::{Codex, Move, Names, Step};
use super::moves::{self, MoveError};
use super::plan::PlannedFile;
use super::trash::{FORMAT, Manifest, Trash, TrashedFile};
use super::{ChangeError, ChangeKind, Changer};
use crate::catalog::{Catalog, Group};
use crate::row;

/// One look at a home and its trash.
pub(super) struct Look<'l> {
    pub changer: &'l Changer,
    pub catalog: &'l Catalog,
    /// The trash, or why it cannot be read.
    pub trash: Result<&'l Trash, String>,
    /// Groups of files whose headers name another thread than their names do, by that thread; read when one is asked for.
    renamed: OnceCell<HashMap<ThreadId, Vec<usize>>>,
}

impl<'l> Look<'l> {
    pub fn new(changer: &'l Changer, catalog: &'l Catalog, trash: Result<&'l Trash, String>) -> Self {
        Self { changer, catalog, trash, renamed: OnceCell::new() }
    }
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
    /// The entry of the trash that holds a thread: the one that is meant, or the one that was deleted last.
    pub fn entry(&self, id: ThreadId) -> Option<&Manifest> {
        let meant = self.changer.entries.get(&id);
        let fits = |e: &&Manifest| e.thread_id == id && meant.is_none_or(|meant| e.entry == *meant);
        self.trash.as_ref().ok()?.entries.iter().find(fits)
    }

    /// The files of a thread by their names, or else those whose headers say that they are its.
    pub fn groups(&self, id: ThreadId) -> Vec<&Group> {
        if let Some(group) = self.catalog.group(id) {
            return vec![group];
        }
        let renamed = self.renamed.get_or_init(|| {
            // What the index knows goes by its name.
            let unknown: Vec<usize> =
                (0..self.catalog.groups.len()).filter(|i| self.catalog.kept.get(*i, Known::Ends).is_none()).collect();
            let header = |i: &usize| {
                let group = &self.catalog.groups[*i];
                let row = row::row(self.catalog, group, Depth::Head);
                row.thread.id.filter(|id| group.id != Some(*id)).map(|id| (id, *i))
            };
            let mut by: HashMap<ThreadId, Vec<usize>> = HashMap::new();
            for (id, i) in par::map(&unknown, header).into_iter().flatten() {
                by.entry(id).or_default().push(i);
            }
            by
        });
        renamed.get(&id).into_iter().flatten().map(|i| &self.catalog.groups[*i]).collect()
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
        let groups = self.groups(id);
        let Some(group) = groups.first() else { return (vec![], None) };
        let each = groups.iter().flat_map(|g| g.files.iter());
        let mut files: Vec<&FileEntry> = each.map(|f| &self.catalog.files[*f as usize]).collect();
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
        let mut planned: Vec<PlannedFile> = Vec::new();
        for file in &mine {
            let path = file.path();
            if !path.to_string_lossy().contains(&id.to_string()) {
                return Err(ChangeError::OtherName { path, id });
            }
            let to = match from {
                Place::Active => {
                    // What could not come back does not go.
                    active(file)?;
                    Path::new(ARCHIVE).join(path.file_name().unwrap_or_default())
                }
                Place::Archived | Place::Outside => active(file)?,
            };
            let file = self.planned_file(file, Some(to))?;
            // Two files of one name in two folders would come to one place; two names of one file may.
            if let Some(other) = planned.iter().find(|p| p.to == file.to)
                && !self.are_same(&other.from, &file.from)
            {
                return Err(MoveError::Exists { to: file.to.unwrap_or_default() }.into());
            }
            planned.push(file);
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
        if let Some(to) = &to {
            self.check_free(&from, to)?;
        }
        Ok(PlannedFile { from, to, bytes: file.size })
    }

    /// Whether a file can go to a place. Told before anything is done; whoever puts another file there in between is met
    /// when it is moved.
    fn check_free(&self, from: &Path, to: &Path) -> Result<(), MoveError> {
        let (disk, home) = (&*self.changer.disk, self.changer.home.path());
        moves::check_links(disk, home, from)?;
        moves::check_links(disk, home, to.parent().unwrap_or(Path::new("")))?;
        let is_there = |p: &Path| disk.look(&home.join(p)).ok().flatten().is_some();
        // One that is not where it was went there already.
        let taken = is_there(from) && is_there(to) && !self.are_same(from, to);
        if taken { Err(MoveError::Exists { to: to.to_owned() }) } else { Ok(()) }
    }

    /// Whether two paths of the home lead to one file.
    fn are_same(&self, a: &Path, b: &Path) -> bool {
        let look = |p: &Path| self.changer.disk.look(&self.changer.home.absolute(p)).ok().flatten();
        matches!((look(a), look(b)), (Some(a), Some(b)) if a.is_same(&b))
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
        match (&entry.replaced, self.groups(id).first()) {
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
        let file = |f: &TrashedFile| {
            let from = entry.place(f);
            self.check_free(&from, &f.path)?;
            Ok::<_, ChangeError>(PlannedFile { from, to: Some(f.path.clone()), bytes: f.bytes })
        };
        let files = entry.files.iter().map(file).collect::<Result<Vec<_>, _>>()?;
        Ok(Planned { files, names: entry.names.len(), head: None })
    }

    /// The rollout that took the place of detached files, where it is there and still is what it was: it goes when they
    /// come back. Only a file of the thread itself goes, whatever an entry says.
    fn replaced(&self, entry: &Manifest) -> Option<PathBuf> {
        let new = entry.replaced.as_ref()?;
        let mut files = self.groups(entry.thread_id).into_iter().flat_map(|g| g.files.iter());
        let same = |f: &FileEntry| f.path() == new.path && f.size == new.bytes;
        files.any(|f| same(&self.catalog.files[*f as usize])).then(|| new.path.clone())
    }
}

const ARCHIVE: &str = "archived_sessions";

/// The plain form of a rollout's path.
pub(crate) fn plain(path: &Path) -> PathBuf {
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
    pub fn step(&mut self, id: ThreadId, number: u64, planned: &Planned) -> Result<Step, ChangeError> {
        let moved = |f: &PlannedFile| Some(Move { from: f.from.clone(), to: f.to.clone()? });
        let moves = planned.files.iter().filter_map(moved).collect();
        match self.kind {
            ChangeKind::Archive | ChangeKind::Unarchive => {
                let archived_at = (self.kind == ChangeKind::Archive).then_some(self.at.0.div_euclid(1000));
                let codex = match &planned.head {
                    Some(head) => Codex::Place { archived_at, rollout_path: self.absolute(head) },
                    None => Codex::Stay,
                };
                Ok(Step { codex, ..Step::new(id, moves) })
            }
            ChangeKind::Delete => {
                let manifest = self.manifest(id, number, planned)?;
                let file = |f: &TrashedFile| Move { from: f.path.clone(), to: manifest.place(f) };
                let moves = manifest.files.iter().map(file).collect();
                let (names, codex) = (Names::Take, Codex::Delete);
                Ok(Step { trash: Some(manifest), names, codex, ..Step::new(id, moves) })
            }
            ChangeKind::Restore => {
                let manifest = self.look.entry(id).cloned().ok_or(ChangeError::NotInTrash { id })?;
                let names = Names::Put(manifest.names.clone());
                let codex = match manifest.replaced.as_ref().map(|r| &r.rollout_path) {
                    None => Codex::Put(manifest.codex.clone()),
                    Some(Some(path)) => Codex::Path { rollout_path: path.clone() },
                    Some(None) => Codex::Stay,
                };
                let removes = self.look.replaced(&manifest).into_iter().collect();
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
            codex: self.codex.map_or(Ok(vec![]), |codex| match codex.rows_of(id) {
                // A damaged database holds nothing that Codex would read, either.
                Err(e) if e.is_damaged() => Ok(vec![]),
                rows => rows,
            })?,
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
