//! Who refers to whom: the heads of all rollouts that can be seen from the shared home, read so that clean-up takes no
//! thread that another one's history needs. A place, a link or a head that could not be looked at may hold such a
//! reference, and is told.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use threadkeep_record::SessionMeta;

use crate::dir::Dir;
use crate::find::{Found, Scan, Unfollowed, Want, header, scan};
use crate::platform::{Kind, Stat};
use crate::shared::{MULTICA, ROLLOUT_FOLDERS, STORES, SharedHome};

/// A thread whose history needs another one's, or that another one spawned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The store that it is in, by path below the folder of stores; `None` anywhere else.
    pub store: Option<String>,
    /// The referring thread.
    pub by: String,
    /// The thread or segment referred to.
    pub to: String,
}

/// What all rollouts say.
#[derive(Debug, Default)]
pub struct Survey {
    /// Every reference that was found.
    pub references: Vec<Reference>,
    /// What could not be looked at, with why. A reference may stand there.
    pub problems: Vec<String>,
    /// Files of the shared home's own history, by device and inode: what is among them is not only in a store.
    shared: BTreeSet<(u64, u64)>,
    /// Folders that are looked into: a link into one of them hides nothing.
    roots: Vec<PathBuf>,
}

/// Looks at the shared home's history, the stores of all profiles, and those of earlier systems.
#[must_use]
pub fn survey(shared: &SharedHome) -> Survey {
    let mut out = Survey { roots: roots(shared), ..Survey::default() };
    for folder in ROLLOUT_FOLDERS {
        match shared.rollouts(folder) {
            Ok(Some(dir)) => out.read(&dir, &shared.dir.shown(folder), None, Files::Shared),
            Ok(None) if shared.dir.stat(folder).is_ok_and(|s| s.is_none()) => {}
            Ok(None) => out.problems.push(format!("{}: a link that leads nowhere", shared.dir.shown(folder).display())),
            Err(e) => out.problems.push(e.to_string()),
        }
    }
    if let Some(stores) = out.open(&shared.dir, STORES) {
        out.stores(&stores);
    }
    if let Some(multica) = out.open(&shared.dir, MULTICA) {
        out.read(&multica, multica.path(), None, Files::Elsewhere);
    }
    out
}

/// The places that a survey looks into, as they are spelt and resolved.
#[must_use]
pub fn roots(shared: &SharedHome) -> Vec<PathBuf> {
    let places = || ROLLOUT_FOLDERS.iter().chain(&[STORES, MULTICA]).map(|p| shared.dir.shown(p));
    places().chain(places().filter_map(|p| std::fs::canonicalize(p).ok())).collect()
}

/// Whose files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    /// The shared home's own.
    Shared,
    /// Others.
    Elsewhere,
}

impl Survey {
    /// Whether a file of a store has no name in the shared home's history.
    #[must_use]
    pub fn is_only_here(&self, stat: &Stat) -> bool {
        stat.ino == 0 || !self.shared.contains(&(stat.dev, stat.ino))
    }

    /// What could not be looked at, in one line.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        let more = self.problems.len().checked_sub(1)?;
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        Some(format!("whether a thread elsewhere needs it is not known: {}{more}", self.problems[0]))
    }

    /// Opens a folder; tells what keeps it from being looked into.
    fn open(&mut self, at: &Dir, path: &str) -> Option<Dir> {
        match at.folder_if_there(path) {
            Ok(dir) => dir,
            Err(e) => {
                self.problems.push(format!("{}: {e}", at.shown(path).display()));
                None
            }
        }
    }

    /// The folders in a folder; a link among them is a place that is not looked into.
    fn folders(&mut self, dir: &Dir) -> Vec<(String, Dir)> {
        let entries = match dir.entries() {
            Ok(entries) => entries,
            Err(e) => {
                self.problems.push(format!("{}: {e}", dir.path().display()));
                return vec![];
            }
        };
        let mut all = Vec::new();
        for (name, kind) in entries {
            match (kind, name.to_str()) {
                (Kind::Folder, Some(text)) => all.extend(self.open(dir, text).map(|d| (text.to_owned(), d))),
                // Ours have plain names; what else may be below is not looked into.
                (Kind::Folder, None) => {
                    self.problems.push(format!("{}: not a name of ours", dir.shown(&name).display()))
                }
                (Kind::Link, _) => self.link(&Unfollowed { dir: dir.clone(), path: dir.shown(&name), name }),
                (Kind::File | Kind::Other, _) => {}
            }
        }
        all
    }

    fn stores(&mut self, stores: &Dir) {
        for (namespace, dir) in self.folders(stores) {
            for (agent, dir) in self.folders(&dir) {
                for (conversation, store) in self.folders(&dir) {
                    let path = format!("{namespace}/{agent}/{conversation}");
                    for folder in ROLLOUT_FOLDERS {
                        // Sessions of an earlier system are behind a link, and looked into where they are.
                        if store.stat(folder).is_ok_and(|s| s.is_some_and(|s| s.kind == Kind::Link)) {
                            let (at, name) = (store.shown(folder), folder.into());
                            self.link(&Unfollowed { dir: store.clone(), path: at, name });
                        } else if let Some(dir) = self.open(&store, folder) {
                            self.read(&dir, &store.shown(folder), Some(&path), Files::Elsewhere);
                        }
                    }
                }
            }
        }
    }

    /// Reads the heads below a folder.
    fn read(&mut self, dir: &Dir, at: &Path, store: Option<&str>, files: Files) {
        let mut found = Scan::default();
        scan(dir, at, Want::All, &mut found);
        self.problems.extend(found.problems.iter().map(|(path, why)| format!("{}: {why}", path.display())));
        self.problems.extend(found.strange.iter().map(|path| format!("{}: not a regular file", path.display())));
        for link in &found.links {
            self.link(link);
        }
        for file in &found.found {
            if let (Files::Shared, Ok(Some(stat))) = (files, file.stat()) {
                self.shared.insert((stat.dev, stat.ino));
            }
            match self.meta(file) {
                Ok(None) => {}
                Ok(Some(meta)) => {
                    let base = meta.history_base.as_ref().map(|b| b.thread_id);
                    let named = base.into_iter().chain(meta.parent());
                    self.references.extend(named.map(|to| Reference {
                        store: store.map(str::to_owned),
                        by: file.named.id.to_string(),
                        to: to.to_string(),
                    }));
                }
                Err(why) => self.problems.push(format!("{}: {why}", file.path.display())),
            }
        }
    }

    /// The header of a file, whatever thread it names. `None` where there is nothing that could refer: an empty file, and
    /// a link that leads to a place that is looked into and where nothing is.
    fn meta(&self, file: &Found) -> Result<Option<SessionMeta>, String> {
        let open = match file.kind {
            Kind::Link => {
                let link = Unfollowed { dir: file.dir.clone(), path: file.path.clone(), name: file.name.clone() };
                match leads(&link, &self.roots) {
                    Leads::Seen => file.dir.file_followed(&file.name),
                    Leads::Nowhere => return Ok(None),
                    Leads::Unseen(why) => return Err(why),
                }
            }
            Kind::File | Kind::Folder | Kind::Other => file.dir.file(&file.name),
        };
        // One that went in between may be under another name by now.
        let open = open.map_err(|e| e.to_string())?;
        if open.metadata().map_err(|e| e.to_string())?.len() == 0 {
            return Ok(None);
        }
        match header(open, file.named.form) {
            Ok(Some(meta)) => Ok(Some(meta)),
            Ok(None) => Err("it has no header that says what it refers to".into()),
            Err(e) => Err(format!("its header cannot be read: {e}")),
        }
    }

    fn link(&mut self, link: &Unfollowed) {
        self.problems.extend(hides(link, &self.roots));
    }
}

/// What a link leads to.
enum Leads {
    /// Into a place that is looked into.
    Seen,
    /// Into such a place, where nothing is: what an exposure over file systems leaves.
    Nowhere,
    /// Anywhere else.
    Unseen(String),
}

fn leads(link: &Unfollowed, roots: &[PathBuf]) -> Leads {
    let within = |path: &Path| roots.iter().any(|r| path.starts_with(r));
    match std::fs::canonicalize(link.dir.shown(&link.name)) {
        Ok(real) if within(&real) => Leads::Seen,
        Ok(real) => Leads::Unseen(format!("a link to {}, which is not followed", real.display())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => match link.dir.read_link(&link.name) {
            Ok(text) if text.is_absolute() && within(&text) && text.components().all(|c| c.as_os_str() != "..") => {
                Leads::Nowhere
            }
            Ok(text) => Leads::Unseen(format!("a link to {}, where nothing is", text.display())),
            Err(e) => Leads::Unseen(e.to_string()),
        },
        Err(e) => Leads::Unseen(format!("a link that leads nowhere: {e}")),
    }
}

/// Why rollouts that are not looked at may be behind a link, if that is so.
#[must_use]
pub fn hides(link: &Unfollowed, roots: &[PathBuf]) -> Option<String> {
    match leads(link, roots) {
        Leads::Seen | Leads::Nowhere => None,
        Leads::Unseen(_)
            if link.dir.stat_followed(&link.name).is_ok_and(|s| s.is_some_and(|s| s.kind == Kind::File)) =>
        {
            None
        }
        Leads::Unseen(why) => Some(format!("{}: {why}", link.path.display())),
    }
}

/// The threads whose files are only in a store, not in the shared home's history, and the segments among these files:
/// others refer to a segment by its own id.
#[must_use]
pub fn only_here(survey: &Survey, store: &Dir) -> BTreeSet<String> {
    let mut found = Scan::default();
    for folder in ROLLOUT_FOLDERS {
        if let Ok(Some(dir)) = store.folder_if_there(folder) {
            scan(&dir, Path::new(folder), Want::All, &mut found);
        }
    }
    let mut all = BTreeSet::new();
    for file in found.found.iter().filter(|f| f.kind == Kind::File) {
        // One that cannot be looked at counts as being here alone.
        if file.dir.stat(&file.name).ok().flatten().is_none_or(|s| survey.is_only_here(&s)) {
            all.insert(file.named.id.to_string());
            all.extend(file.named.segment.map(|s| s.to_string()));
        }
    }
    all
}
