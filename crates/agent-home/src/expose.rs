//! Exposure: making rollouts visible in another folder of rollouts without reading them.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::find::Found;
use crate::platform::{self, Kind};

/// Whether what a task appends is also the person's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// It is: one file, by a hard link, or else a symbolic one.
    #[default]
    Shared,
    /// It is not: a file of its own on shared blocks (reflink), or a refusal.
    Isolated,
}

/// How a rollout is exposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exposure {
    /// Whether appends are shared.
    pub sharing: Sharing,
    /// Bytes that may be copied for one rollout where nothing else is possible; 0 allows no copy.
    pub allow_copy: u64,
}

/// The way a rollout came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Shared blocks, own file.
    Reflink,
    /// A second name of the same file.
    HardLink,
    /// A link to the other name.
    Symlink,
    /// A copy, which the caller allowed.
    Copy,
}

impl How {
    /// Whether an append on one side is seen on the other.
    #[must_use]
    pub fn shares_appends(self) -> bool {
        match self {
            Self::HardLink | Self::Symlink => true,
            Self::Reflink | Self::Copy => false,
        }
    }
}

/// What came of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Exposed {
    /// It is there now.
    Made(How),
    /// The same file was there.
    Already,
    /// It cannot be done as asked.
    Cannot(String),
}

/// A file that is to stand in a store under its own path.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// The file.
    pub found: Found,
    /// What it comes over.
    pub over: Over,
    /// Its size in bytes.
    pub size: u64,
}

/// What an incoming file comes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Nothing, as far as is known; something else of that name is left, and the file cannot come in.
    Nothing,
    /// An earlier state of the same history, which is moved aside.
    Earlier,
    /// Itself, which is shared with others: it becomes a file of the store's own.
    Itself,
}

/// Where rollouts are brought to.
#[derive(Debug, Clone)]
pub struct Target {
    /// The folder of active rollouts.
    pub sessions: Dir,
    /// That of archived ones.
    pub archived: Dir,
    /// Where files are made before they have their place: the store.
    pub scratch: Dir,
}

/// The folder of archived rollouts in a home.
pub const ARCHIVED: &str = "archived_sessions";

impl Target {
    fn parts<'p>(&self, path: &'p Path) -> (&Dir, &'p Path) {
        let parent = path.parent().unwrap_or(Path::new(""));
        match parent.strip_prefix(ARCHIVED) {
            Ok(rest) => (&self.archived, rest),
            Err(_) => (&self.sessions, parent.strip_prefix("sessions").unwrap_or(parent)),
        }
    }

    /// The folder that a file with this path below a home belongs into, made where it is not there.
    fn folder(&self, path: &Path) -> Result<Dir, HomeError> {
        let (root, rest) = self.parts(path);
        if rest.as_os_str().is_empty() {
            return Ok(root.clone());
        }
        root.made(rest).attempt("make folder", root.shown(rest))
    }

    /// The same; `None` where it is not there.
    fn folder_if_there(&self, path: &Path) -> Result<Option<Dir>, HomeError> {
        let (root, rest) = self.parts(path);
        if rest.as_os_str().is_empty() {
            return Ok(Some(root.clone()));
        }
        root.folder_if_there(rest).attempt("open folder", root.shown(rest))
    }

    /// A folder on the file system of the sessions, whose modification time says nothing.
    fn stage(&self) -> Result<&Dir, HomeError> {
        let dev = |dir: &Dir| dir.stat_self().attempt("look at", dir.path()).map(|s| s.dev);
        Ok(if dev(&self.scratch)? == dev(&self.sessions)? { &self.scratch } else { &self.sessions })
    }
}

/// What came of [`expose_all`].
#[derive(Debug, Default)]
pub struct AllExposed {
    /// Files that came in, by path below the store.
    pub made: Vec<(PathBuf, How)>,
    /// Earlier states that were moved aside: the path, and the new name beside it.
    pub aside: Vec<(PathBuf, String)>,
}

/// Exposes files in a store, all of them or none: where one cannot come in as asked, its path and why are told, and what
/// came in before it is taken back.
pub fn expose_all(
    files: &[Incoming],
    to: &Target,
    exposure: Exposure,
    within: &[PathBuf],
) -> Result<Result<AllExposed, (PathBuf, String)>, HomeError> {
    let mut done = AllExposed::default();
    let mut came = Vec::new();
    let result = match exposure.sharing {
        Sharing::Shared => share_all(files, to, exposure, within, &mut done, &mut came),
        Sharing::Isolated => isolate_all(files, to, exposure, within, &mut done, &mut came),
    };
    if let Ok(None) = &result {
        return Ok(Ok(done));
    }
    // The refusal or error is what counts, whatever taking back meets.
    for (dir, name) in came.into_iter().rev() {
        let _ = dir.remove_file_if_there(&name);
    }
    for (path, aside) in done.aside.iter().rev() {
        if let (Ok(Some(dir)), Some(name)) = (to.folder_if_there(path), path.file_name()) {
            let _ = dir.rename(aside, &dir, name, platform::Target::Free);
        }
    }
    match result? {
        Some(refused) => Ok(Err(refused)),
        None => Ok(Ok(done)),
    }
}

type Refused = Option<(PathBuf, String)>;

fn share_all(
    files: &[Incoming],
    to: &Target,
    exposure: Exposure,
    within: &[PathBuf],
    done: &mut AllExposed,
    came: &mut Vec<(Dir, OsString)>,
) -> Result<Refused, HomeError> {
    for file in files {
        let found = &file.found;
        if let Some(why) = other_file(found, to)?.filter(|_| file.over == Over::Nothing) {
            return Ok(Some((found.path.clone(), why)));
        }
    }
    for file in files {
        let found = &file.found;
        let dir = to.folder(&found.path)?;
        if file.over == Over::Earlier {
            done.aside.push((found.path.clone(), aside(&dir, found)?));
        }
        match expose(found, &dir, exposure, within)? {
            Exposed::Made(how) => {
                came.push((dir, found.name.clone()));
                done.made.push((found.path.clone(), how));
            }
            Exposed::Already => {}
            Exposed::Cannot(why) => return Ok(Some((found.path.clone(), why))),
        }
    }
    Ok(None)
}

/// Everything is made before anything gets its place, the largest first: that is the one that may be too large for a copy.
fn isolate_all(
    files: &[Incoming],
    to: &Target,
    exposure: Exposure,
    within: &[PathBuf],
    done: &mut AllExposed,
    came: &mut Vec<(Dir, OsString)>,
) -> Result<Refused, HomeError> {
    let scratch = to.stage()?;
    let mut order: Vec<&Incoming> = files.iter().collect();
    order.sort_by_key(|f| std::cmp::Reverse(f.size));
    let mut staged: Vec<(&Incoming, OsString, How)> = Vec::new();
    let mut refused = None;
    for file in order {
        let found = &file.found;
        if file.over == Over::Nothing {
            if let Some(why) = other_file(found, to)? {
                refused = Some((found.path.clone(), why));
                break;
            }
            if is_there(found, to)? {
                continue;
            }
        }
        match isolated(found, scratch, exposure.allow_copy, within)? {
            Ok((stage, how)) => staged.push((file, stage, how)),
            Err(why) => {
                refused = Some((found.path.clone(), why));
                break;
            }
        }
    }
    if refused.is_some() {
        for (_, stage, _) in staged {
            scratch.remove_file_if_there(&stage).attempt("remove", scratch.shown(&stage))?;
        }
        return Ok(refused);
    }
    for (file, stage, how) in staged {
        let found = &file.found;
        let dir = to.folder(&found.path)?;
        let shown = dir.shown(&found.name);
        let target = match file.over {
            Over::Nothing => platform::Target::Free,
            Over::Itself => platform::Target::Replaced,
            Over::Earlier => {
                done.aside.push((found.path.clone(), aside(&dir, found)?));
                platform::Target::Free
            }
        };
        clear_dangling(found, &dir)?;
        match scratch.rename(&stage, &dir, &found.name, target) {
            Ok(()) => {}
            // Another task of this conversation was quicker.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                scratch.remove_file_if_there(&stage).attempt("remove", scratch.shown(&stage))?;
                continue;
            }
            Err(source) => return Err(HomeError::Io { attempt: "move into its place", path: shown, source }),
        }
        dir.sync().attempt("sync", dir.path())?;
        if file.over != Over::Itself {
            came.push((dir, found.name.clone()));
        }
        done.made.push((found.path.clone(), how));
    }
    Ok(None)
}

fn aside(dir: &Dir, found: &Found) -> Result<String, HomeError> {
    let shown = dir.shown(&found.name);
    let Some(name) = found.name.to_str() else {
        return Err(HomeError::Refused { why: "not a name that can be moved aside".into(), path: shown });
    };
    dir.move_aside(name).attempt("move aside", &shown)
}

/// Why a file cannot have its name in the store: another one has it.
fn other_file(found: &Found, to: &Target) -> Result<Option<String>, HomeError> {
    let Some(dir) = to.folder_if_there(&found.path)? else { return Ok(None) };
    let shown = dir.shown(&found.name);
    if dir.stat(&found.name).attempt("look at", &shown)?.is_none() {
        return Ok(None);
    }
    if dir.stat_followed(&found.name).attempt("look at", &shown)?.is_none() {
        return Ok(None);
    }
    match already(found, &dir, &shown)? {
        Exposed::Cannot(why) => Ok(Some(why)),
        Exposed::Made(_) | Exposed::Already => Ok(None),
    }
}

fn is_there(found: &Found, to: &Target) -> Result<bool, HomeError> {
    let Some(dir) = to.folder_if_there(&found.path)? else { return Ok(false) };
    Ok(dir.stat_followed(&found.name).attempt("look at", dir.shown(&found.name))?.is_some())
}

/// Removes what an exposure over file systems left behind when the person removed theirs.
fn clear_dangling(found: &Found, to: &Dir) -> Result<(), HomeError> {
    let shown = to.shown(&found.name);
    let there = to.stat(&found.name).attempt("look at", &shown)?;
    if there.is_some_and(|s| s.kind == Kind::Link)
        && to.stat_followed(&found.name).attempt("look at", &shown)?.is_none()
    {
        to.remove_file(&found.name).attempt("remove link", &shown)?;
    }
    Ok(())
}

/// Exposes a file in a folder, under its own name and shared with whoever has it.
fn expose(found: &Found, to: &Dir, exposure: Exposure, within: &[PathBuf]) -> Result<Exposed, HomeError> {
    let shown = to.shown(&found.name);
    clear_dangling(found, to)?;
    match to.stat(&found.name).attempt("look at", &shown)? {
        None => shared(found, to, &shown, exposure.allow_copy, within),
        Some(_) => already(found, to, &shown),
    }
}

fn already(found: &Found, to: &Dir, shown: &Path) -> Result<Exposed, HomeError> {
    let here = to.stat_followed(&found.name).attempt("look at", shown)?;
    let there = found.stat().attempt("look at", found.dir.shown(&found.name))?;
    Ok(match (here, there) {
        (Some(a), Some(b)) if a.is_same(&b) => Exposed::Already,
        _ => Exposed::Cannot(format!("another file of this name is there: {}", shown.display())),
    })
}

fn shared(found: &Found, to: &Dir, shown: &Path, allow_copy: u64, within: &[PathBuf]) -> Result<Exposed, HomeError> {
    // A link of a link would hang on both: the second one leads to where the first does.
    if found.kind == Kind::Link {
        let target =
            std::fs::canonicalize(found.dir.shown(&found.name)).attempt("resolve", found.dir.shown(&found.name))?;
        return symlink(found, to, shown, &target, allow_copy, within);
    }
    match found.dir.hard_link(&found.name, to, &found.name) {
        Ok(()) => {
            to.sync().attempt("sync", to.path())?;
            Ok(Exposed::Made(How::HardLink))
        }
        // Another task of this conversation was quicker.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => already(found, to, shown),
        Err(e) if platform::cannot_hard_link(&e) => {
            let source = std::path::absolute(found.dir.shown(&found.name)).attempt("resolve", shown)?;
            symlink(found, to, shown, &source, allow_copy, within)
        }
        Err(source) => Err(HomeError::Io { attempt: "link", path: shown.to_owned(), source }),
    }
}

fn symlink(
    found: &Found,
    to: &Dir,
    shown: &Path,
    target: &Path,
    allow_copy: u64,
    within: &[PathBuf],
) -> Result<Exposed, HomeError> {
    // Readers follow links into the shared sessions alone, so one to elsewhere would not be read.
    let real = std::fs::canonicalize(target).attempt("resolve", target)?;
    if !within.iter().any(|w| real.starts_with(w)) {
        return copy(found, to, shown, allow_copy, within, "it can be neither hard-linked nor reached by a link");
    }
    match to.symlink(&found.name, &real, Kind::File) {
        Ok(()) => {
            to.sync().attempt("sync", to.path())?;
            Ok(Exposed::Made(How::Symlink))
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => already(found, to, shown),
        Err(e) => copy(found, to, shown, allow_copy, within, &format!("it cannot be linked ({e})")),
    }
}

/// Makes a file of its own in a folder for staging. Tells its name there, or why that cannot be.
fn isolated(
    found: &Found,
    scratch: &Dir,
    allow_copy: u64,
    within: &[PathBuf],
) -> Result<Result<(OsString, How), String>, HomeError> {
    let from = found.dir.shown(&found.name);
    let file = found.open(within).attempt("open", &from)?;
    let why = match scratch.reflink_from(&from, &file, &found.name) {
        Ok(stage) => return Ok(Ok((stage, How::Reflink))),
        Err(e) => e,
    };
    let size = file.metadata().attempt("look at", &from)?.len();
    if size > allow_copy {
        return Ok(Err(format!("its blocks cannot be shared ({why}), and a copy of {size} bytes is not allowed")));
    }
    let stage = scratch.copy_from(&from, &file, &found.name).attempt("copy", &from)?;
    Ok(Ok((stage, How::Copy)))
}

fn copy(
    found: &Found,
    to: &Dir,
    shown: &Path,
    allow_copy: u64,
    within: &[PathBuf],
    why: &str,
) -> Result<Exposed, HomeError> {
    let file = found.open(within).attempt("open", found.dir.shown(&found.name))?;
    let size = file.metadata().attempt("look at", found.dir.shown(&found.name))?.len();
    if size > allow_copy {
        return Ok(Exposed::Cannot(format!("{why}, and a copy of {size} bytes is not allowed")));
    }
    let stage = to.copy_from(&found.dir.shown(&found.name), &file, &found.name).attempt("copy", shown)?;
    match to.rename(&stage, to, &found.name, platform::Target::Free).and_then(|()| to.sync()) {
        Ok(()) => Ok(Exposed::Made(How::Copy)),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            to.remove_file_if_there(&stage).attempt("remove", to.shown(&stage))?;
            already(found, to, shown)
        }
        Err(source) => Err(HomeError::Io { attempt: "copy", path: shown.to_owned(), source }),
    }
}
