//! One look at a home: its rollout files grouped by thread, its names, and Codex's database beside them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Mutex;

use threadkeep_index::listed::Outline;
use threadkeep_index::{IndexPlace, IndexVersion};
use threadkeep_record::ThreadId;
use threadkeep_rollout::home::Home;
use threadkeep_rollout::locks::WriterLocks;
use threadkeep_rollout::name_index::{FILE, NameIndex};
use threadkeep_rollout::par;
use threadkeep_rollout::sight::{Beside, Sight};
use threadkeep_rollout::walk::{FileEntry, Place, Remember, Walk, WalkProblem, Wanted, walk_with};

use crate::codex_state::{CodexState, DbRow, with_suffix};
use crate::kept::{IdHashing, Kept};

/// The files that carry one thread id in their names.
#[derive(Debug, Clone)]
pub struct Group {
    /// The id; `None` for a file whose name holds none.
    pub id: Option<ThreadId>,
    /// Indexes into the catalog's files.
    pub files: Files,
    /// The newest modification time, in nanoseconds.
    pub mtime_ns: i64,
    /// All of its files are in the archive.
    pub archived: bool,
}

/// The files of a group: nearly always one.
#[derive(Debug, Clone)]
pub enum Files {
    /// One file.
    One(u32),
    /// Several.
    Many(Box<Vec<u32>>),
}

impl std::ops::Deref for Files {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        match self {
            Self::One(file) => std::slice::from_ref(file),
            Self::Many(files) => files,
        }
    }
}

impl Files {
    fn push(&mut self, file: u32) {
        match self {
            Self::One(first) => *self = Self::Many(Box::new(vec![*first, file])),
            Self::Many(files) => files.push(file),
        }
    }
}

/// What is in a home.
pub struct Catalog {
    /// The home.
    pub home: Home,
    /// Its rollout files.
    pub files: Vec<FileEntry>,
    /// The threads, by id; those without one last.
    pub groups: Vec<Group>,
    /// Names from the name index.
    pub names: NameIndex,
    /// Writer locks.
    pub locks: WriterLocks,
    /// Codex's database. Behind a lock, because its connection is not for several threads at once.
    pub db: Mutex<CodexState>,
    /// What the index keeps of the threads whose files are as they were.
    pub kept: Kept,
    /// When the look began, nanoseconds since the Unix epoch by the system's clock.
    pub looked_ns: i64,
    /// Threads that were archived or deleted here, which the threads they started may have outlived.
    pub apart: HashSet<ThreadId>,
    /// The threads that were looked for, where not all were; only threads that the index did not know are told beside.
    pub(crate) partial: Option<HashSet<ThreadId>>,
    /// What the look rested on, where that can be told.
    sight: Option<(Sight, IndexVersion)>,
    /// Threads of which only a row is left.
    pub ghosts: HashMap<ThreadId, DbRow>,
    /// What a person should know.
    pub notes: Vec<String>,
    /// Folders that could not be read.
    pub unreadable: Vec<WalkProblem>,
    /// Links below the two folders, which are not followed; relative to the home.
    pub links: Vec<PathBuf>,
    /// Whether every folder could be read.
    pub complete: bool,
}

/// What a look found.
struct Found {
    walked: Walk,
    names: std::io::Result<NameIndex>,
    db: CodexState,
    /// Threads that may have a row in Codex's database.
    ids: Vec<ThreadId>,
    looked_ns: i64,
    partial: Option<HashSet<ThreadId>>,
}

impl Catalog {
    /// As [`open`](Self::open), for some threads, those that they started, and those whose history may need their files.
    /// Where the index knows the whole home, other threads are not looked at and not told; every thread that it does not
    /// know is. Only who refers to whom is taken from headers as they were when they were read: a program that changes
    /// the first record of a rollout in place, and leaves its folder as it is, is not noticed.
    #[must_use]
    pub fn open_for(home: &Home, sqlite_home: Option<&PathBuf>, index: Option<&IndexPlace>, ids: &[ThreadId]) -> Self {
        Self::try_open_for(home, sqlite_home, index, ids).unwrap_or_else(|| Self::open(home, sqlite_home, index))
    }

    fn try_open_for(
        home: &Home,
        sqlite_home: Option<&PathBuf>,
        index: Option<&IndexPlace>,
        ids: &[ThreadId],
    ) -> Option<Self> {
        let path = home.path();
        let looked_ns = now_ns();
        let mut kept = Kept::open(home, index?);
        let beside = beside(home, sqlite_home);
        let version = kept.index()?.version().ok()?;
        // What is asked of the index comes one after the other: two that ask it at once would wait for each other.
        let ((outline, known), (mut db, names)) = par::both(
            || (kept.index().and_then(|index| index.outline::<IdHashing>().ok()), kept.folders()),
            || (CodexState::open(path, sqlite_home.map(PathBuf::as_path)), NameIndex::read(path)),
        );
        let Outline { ids: there, mut parents, .. } = outline.filter(|o| o.whole)?;
        let known = known?;
        let mut wanted: HashSet<ThreadId> = ids.iter().copied().collect();
        let edges = db.edges().into_iter().map(|(parent, child)| (child, parent));
        let set = kept.index().and_then(|index| index.all_edges().ok()).unwrap_or_default();
        let set = set.iter().map(|edge| (edge.child, edge.parent));
        let all: Vec<(ThreadId, ThreadId)> = parents.iter().copied().chain(edges).chain(set).collect();
        // Most threads started none.
        if all.iter().any(|(_, parent)| wanted.contains(parent)) {
            let mut children: HashMap<ThreadId, Vec<ThreadId>> = HashMap::new();
            all.iter().for_each(|(child, parent)| children.entry(*parent).or_default().push(*child));
            let mut level = ids.to_vec();
            while let Some(parent) = level.pop() {
                let new = children.get(&parent).into_iter().flatten().filter(|child| wanted.insert(**child));
                level.extend(new);
            }
        }
        let family: Vec<ThreadId> = wanted.iter().copied().collect();
        wanted.extend(kept.dependents(&family)?);
        parents.retain(|(child, parent)| wanted.contains(child) || wanted.contains(parent));
        let has = |id: ThreadId| there.contains(&id);
        let some = Wanted { ids: &wanted, known: &has };
        let walked = walk_with(path, Remember::Some(&known, some));
        let sight = Sight::of(path, &known, &walked, beside, looked_ns).map(|sight| (sight, version));
        let told = wanted.iter().copied().chain(walked.files.iter().filter_map(|f| f.name.id));
        let told: BTreeSet<ThreadId> = told.collect();
        kept.load_some(&told.into_iter().collect::<Vec<_>>(), parents);
        if !kept.is_whole() {
            return None;
        }
        let found = Found { walked, names, db, ids: family, looked_ns, partial: Some(wanted) };
        Some(Self { sight, ..Self::of(home, kept, found) })
    }

    /// Whether it can be told at all that another look would find the same.
    pub(crate) fn may_stand(&self) -> bool {
        self.sight.is_some()
    }

    /// Whether another look would find the same; what stands for itself is read again then.
    pub(crate) fn stands(&mut self, sqlite_home: Option<&PathBuf>) -> bool {
        let version = self.kept.index().and_then(|index| index.version().ok());
        let now = beside(&self.home, sqlite_home);
        let stands =
            self.sight.as_ref().is_some_and(|(sight, then)| version.as_ref() == Some(then) && sight.stands(&now));
        if stands {
            self.locks = WriterLocks::read(self.home.path());
            self.apart = crate::change::apart::read(self.home.path());
        }
        stands
    }

    /// Looks at a home: files, names, locks, Codex's database and the index side by side.
    #[must_use]
    pub fn open(home: &Home, sqlite_home: Option<&PathBuf>, index: Option<&IndexPlace>) -> Self {
        let path = home.path();
        let looked_ns = now_ns();
        let mut kept = index.map_or_else(|| Kept::none("no index was asked for"), |place| Kept::open(home, place));
        // What the walk needs of the index comes first: two that ask it at once would wait for each other.
        let known = kept.folders();
        let ((db, ids, loaded, names), walked) = par::both(
            || {
                let loaded = kept.listing();
                let mut db = CodexState::open(path, sqlite_home.map(PathBuf::as_path));
                let ids = db.ids();
                (db, ids, loaded, NameIndex::read(path))
            },
            // Whoever is done with the rest helps with the walk.
            || walk_with(path, known.as_ref().map_or(Remember::Nothing, Remember::Known)),
        );
        kept.load(loaded);
        Self::of(home, kept, Found { walked, names, db, ids, looked_ns, partial: None })
    }

    fn of(home: &Home, mut kept: Kept, found: Found) -> Self {
        let Found { walked, names, mut db, ids, looked_ns, partial } = found;
        let path = home.path();
        let Walk { files, problems, links, folders, .. } = walked;
        let mut notes: Vec<String> = problems
            .iter()
            .map(|p| {
                format!(
                    "cannot read {}: {}; threads below it are missing here",
                    home.absolute(&p.path).display(),
                    p.error
                )
            })
            .collect();
        if !links.is_empty() {
            notes.push(format!(
                "{} links below sessions are not followed, the first is {}",
                links.len(),
                links[0].display()
            ));
        }
        let names = names.unwrap_or_else(|e| {
            notes
                .push(format!("cannot read {}: {e}; names may be missing", path.join("session_index.jsonl").display()));
            NameIndex::default()
        });
        if let Some((line, offset)) = names.bad_lines.first() {
            notes.push(format!(
                "{} unreadable lines in session_index.jsonl, the first is line {line} at byte {offset}",
                names.bad_lines.len()
            ));
        }
        let groups = group(&files);
        match partial {
            None => {
                kept.settle(&groups, &files);
                kept.new_folders = folders;
            }
            Some(_) => kept.settle_some(&groups, &files),
        }
        let known = |id: &ThreadId| groups.binary_search_by(|g| order(g.id).cmp(&order(Some(*id)))).is_ok();
        let gone: Vec<ThreadId> = ids.into_iter().filter(|id| !known(id)).collect();
        let ghosts = if gone.is_empty() { HashMap::new() } else { db.rows(&gone) };
        notes.append(&mut db.notes);
        Self {
            home: home.clone(),
            complete: problems.is_empty(),
            unreadable: problems,
            links,
            files,
            groups,
            names,
            locks: WriterLocks::read(path),
            kept,
            looked_ns,
            apart: crate::change::apart::read(path),
            db: Mutex::new(db),
            partial,
            sight: None,
            ghosts,
            notes,
        }
    }

    /// The group of a thread.
    #[must_use]
    pub fn group(&self, id: ThreadId) -> Option<&Group> {
        self.group_index(id).map(|i| &self.groups[i])
    }

    /// Whether a thread was archived or deleted here and is still away: those that it started stand for themselves.
    #[must_use]
    pub fn stands_apart(&self, parent: ThreadId) -> bool {
        self.apart.contains(&parent) && self.group(parent).is_none_or(|g| g.archived)
    }

    /// The place of a thread's group.
    pub(crate) fn group_index(&self, id: ThreadId) -> Option<usize> {
        self.groups.binary_search_by(|g| order(g.id).cmp(&order(Some(id)))).ok()
    }

    /// The group that holds a rollout: that of a thread, or the one with a segment of this id.
    #[must_use]
    pub fn group_of_rollout(&self, id: ThreadId) -> Option<&Group> {
        let by_segment = || self.files.iter().find(|f| f.name.segment == Some(id)).and_then(|f| self.group(f.name.id?));
        self.group(id).or_else(by_segment)
    }

    /// Rows of Codex's database.
    #[must_use]
    pub fn db_rows(&self, ids: &[ThreadId]) -> HashMap<ThreadId, DbRow> {
        self.db.lock().unwrap_or_else(std::sync::PoisonError::into_inner).rows(ids)
    }

    /// Rows of Codex's database that may hold a name.
    #[must_use]
    pub fn db_named(&self) -> Vec<(ThreadId, DbRow)> {
        self.db.lock().unwrap_or_else(std::sync::PoisonError::into_inner).named()
    }

    /// Whether Codex has a database that can be read.
    #[must_use]
    pub fn has_db(&self) -> bool {
        self.db.lock().unwrap_or_else(std::sync::PoisonError::into_inner).path.is_some()
    }

    /// Spawn edges of Codex's database.
    #[must_use]
    pub fn db_edges(&self) -> Vec<(ThreadId, ThreadId)> {
        self.db.lock().unwrap_or_else(std::sync::PoisonError::into_inner).edges()
    }

    /// Notes that reading the database made since the catalog was opened.
    #[must_use]
    pub fn late_notes(&self) -> Vec<String> {
        std::mem::take(&mut self.db.lock().unwrap_or_else(std::sync::PoisonError::into_inner).notes)
    }
}

/// The files that a look reads beside the rollouts and the index.
fn beside(home: &Home, sqlite_home: Option<&PathBuf>) -> Beside {
    let databases = CodexState::databases(home.path(), sqlite_home.map(PathBuf::as_path));
    let logged =
        databases.into_iter().flat_map(|path| [with_suffix(&path, "-wal"), with_suffix(&path, "-journal"), path]);
    Beside::look(logged.chain([home.path().join(FILE)]))
}

fn now_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.ok().and_then(|d| i64::try_from(d.as_nanos()).ok()).unwrap_or(0)
}

/// Ids in order, no id last.
fn order(id: Option<ThreadId>) -> (bool, Option<ThreadId>) {
    (id.is_none(), id)
}

fn group(files: &[FileEntry]) -> Vec<Group> {
    // Numbers sort several times faster than what they stand for. No id comes last: no UUID is all ones.
    let number = |f: &FileEntry| f.name.id.map_or(u128::MAX, |id| u128::from_be_bytes(*id.as_bytes()));
    let mut by_id: Vec<(u128, u32)> = files.iter().map(number).zip(0..).collect();
    par::sort(&mut by_id);
    let mut groups: Vec<Group> = Vec::with_capacity(files.len());
    for (_, i) in by_id {
        let f = &files[i as usize];
        match groups.last_mut() {
            Some(g) if g.id.is_some() && g.id == f.name.id => {
                g.files.push(i);
                g.mtime_ns = g.mtime_ns.max(f.mtime_ns);
                g.archived &= f.place == Place::Archived;
            }
            _ => groups.push(Group {
                id: f.name.id,
                files: Files::One(i),
                mtime_ns: f.mtime_ns,
                archived: f.place == Place::Archived,
            }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use threadkeep_index::{Index, IndexOptions};

    use super::*;
    use crate::fill::{Apply, rebuild};

    /// What was looked at for some threads stands until something of it changes.
    #[test]
    fn a_look_stands_while_nothing_changes() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::new(dir.path().to_owned());
        let id = |n: u32| ThreadId::parse(&format!("01990000-0000-7000-8000-{n:012x}")).unwrap();
        let path = |n: u32| format!("sessions/2026/08/20/rollout-2026-08-20T01-10-00-{}.jsonl", id(n));
        std::fs::create_dir_all(dir.path().join("sessions/2026/08/20")).unwrap();
        for n in 1..5 {
            let text = format!(r#"{{"id":"{}","timestamp":"2026-08-20T01:10:00Z","instructions":null}}"#, id(n));
            std::fs::write(dir.path().join(path(n)), text + "\n").unwrap();
        }
        // What changed just before may change again without a trace.
        let settle = || std::thread::sleep(Duration::from_millis(40));
        let place = IndexPlace::Home;
        let look = || Catalog::open_for(&home, None, Some(&place), &[id(1)]);
        settle();
        assert!(!look().stands(None), "there is no index");
        let options = IndexOptions { home: home.clone(), place: place.clone(), busy: Duration::from_secs(5) };
        let index = Index::open(options).unwrap();
        rebuild(&Catalog::open(&home, None, Some(&place)), Apply::Yes).unwrap();
        settle();
        let known = look();
        assert!(known.partial.is_some() && known.files.len() == 1, "{:?}", known.files);
        type Change<'c> = (&'c str, Box<dyn Fn() + 'c>);
        let write = |path: &str, text: &str| std::fs::write(dir.path().join(path), text).unwrap();
        let changes: [Change<'_>; 6] = [
            ("the file", Box::new(|| write(&path(1), "longer than it was\n"))),
            ("a new file", Box::new(|| write(&path(9), "new\n"))),
            ("a root", Box::new(|| std::fs::create_dir(dir.path().join("archived_sessions")).unwrap())),
            ("names", Box::new(|| write(FILE, "{}\n"))),
            ("a database", Box::new(|| write("state_5.sqlite", "not one"))),
            ("the index", Box::new(|| index.upsert_edge(id(1), id(2), threadkeep_index::EdgeStatus::Open).unwrap())),
        ];
        for (what, change) in changes {
            let mut before = look();
            assert!(before.stands(None) && before.stands(None), "before {what}");
            change();
            assert!(!before.stands(None), "{what}");
            settle();
        }
    }
}
