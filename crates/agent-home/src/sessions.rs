//! What stands where a task home's `sessions` and `archived_sessions` should be, and putting the right thing there.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use crate::dir::{Dir, absent};
use crate::error::{Attempt as _, HomeError};
use crate::platform::{Kind, Stat, Target};
use crate::shared::{MULTICA, STORES, SharedHome};
use crate::store::same_text;

/// What a link leads to. Told by what it resolves to; by its text only where it leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leads {
    /// To the store of this conversation.
    OwnStore,
    /// Into the shared home's own history: what earlier systems did.
    SharedSessions,
    /// To the store of another conversation.
    OtherStore(PathBuf),
    /// Anywhere else, or nowhere.
    Foreign(PathBuf),
}

/// What stands at a name of the task home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stands {
    /// Nothing.
    Nothing,
    /// A real folder. `Contents` tells whether anything but empty folders is in it.
    Folder(Contents),
    /// A link.
    Link(Leads),
    /// A file, or something stranger.
    Other,
}

/// Whether a folder holds anything but empty folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    /// It does not.
    Empty,
    /// It does.
    Some,
}

/// Looks at a name of the task home. `own` is the folder of the store that it should lead to.
pub fn look(home: &Dir, name: &'static str, shared: &SharedHome, own: Option<&Dir>) -> Result<Stands, HomeError> {
    let shown = home.shown(name);
    let Some(stat) = home.stat(name).attempt("look at", &shown)? else { return Ok(Stands::Nothing) };
    match stat.kind {
        Kind::Folder => {
            let dir = home.folder(name).attempt("open folder", &shown)?;
            let empty = holds_nothing(&dir, 0).attempt("read folder", &shown)?;
            Ok(Stands::Folder(if empty { Contents::Empty } else { Contents::Some }))
        }
        Kind::Link => leads(home, name, shared, own).map(Stands::Link),
        Kind::File | Kind::Other => Ok(Stands::Other),
    }
}

fn holds_nothing(dir: &Dir, depth: usize) -> io::Result<bool> {
    for (name, kind) in dir.entries()? {
        if kind != Kind::Folder || depth > 12 || !holds_nothing(&dir.folder(&name)?, depth + 1)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn leads(home: &Dir, name: &'static str, shared: &SharedHome, own: Option<&Dir>) -> Result<Leads, HomeError> {
    let shown = home.shown(name);
    let text = home.read_link(name).attempt("read link", &shown)?;
    let target = if text.is_absolute() { text } else { home.path().join(text) };
    let same = |dir: Option<&Dir>, stat: &Stat| -> Result<bool, HomeError> {
        let Some(dir) = dir else { return Ok(false) };
        Ok(dir.stat_self().attempt("look at", dir.path())?.is_same(stat))
    };
    // A loop of links and a folder that may not be entered count as leading nowhere.
    let Some(stat) = home.stat_followed(name).ok().flatten() else {
        return Ok(match own {
            Some(own) if same_text(&target, own.path()) => Leads::OwnStore,
            _ if in_stores(&target, shared) => Leads::OtherStore(target),
            _ => Leads::Foreign(target),
        });
    };
    if same(own, &stat)? {
        return Ok(Leads::OwnStore);
    }
    for folder in crate::shared::ROLLOUT_FOLDERS {
        if same(shared.rollouts(folder)?.as_ref(), &stat)? {
            return Ok(Leads::SharedSessions);
        }
    }
    let real = std::fs::canonicalize(&shown).attempt("resolve", &shown)?;
    Ok(if in_stores(&real, shared) { Leads::OtherStore(real) } else { Leads::Foreign(real) })
}

fn in_stores(path: &Path, shared: &SharedHome) -> bool {
    [STORES, MULTICA].iter().any(|stores| {
        let stores = shared.dir.shown(stores);
        path.starts_with(&stores) || std::fs::canonicalize(&stores).is_ok_and(|real| path.starts_with(real))
    })
}

/// What became of the thing that stood there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// It was right already.
    Already,
    /// The link was made where nothing stood.
    Made,
    /// A link took the place of another; a foreign one is kept under the name given.
    Replaced(Option<String>),
    /// The folder's contents were moved into the store: so many files. What had no place there is kept under the name
    /// given.
    Merged(usize, Option<String>),
}

/// Makes a name of the task home a link to a folder of the store.
pub fn link(home: &Dir, name: &'static str, stands: &Stands, to: &Dir) -> Result<Placed, HomeError> {
    let shown = home.shown(name);
    match stands {
        Stands::Nothing => {
            home.put_link(name, to.path(), Kind::Folder).attempt("link", &shown)?;
            Ok(Placed::Made)
        }
        Stands::Link(Leads::OwnStore) => Ok(Placed::Already),
        Stands::Link(Leads::SharedSessions | Leads::OtherStore(_)) => {
            home.put_link(name, to.path(), Kind::Folder).attempt("link", &shown)?;
            Ok(Placed::Replaced(None))
        }
        Stands::Link(Leads::Foreign(_)) => {
            let aside = keep_link(home, name)?;
            home.put_link(name, to.path(), Kind::Folder).attempt("link", &shown)?;
            Ok(Placed::Replaced(Some(aside)))
        }
        Stands::Folder(_) => {
            let from = home.folder(name).attempt("open folder", &shown)?;
            let moved = merge(&from, to)?;
            let gone = home.remove_empty(OsStr::new(name)).attempt("remove empty folder", &shown)?;
            let aside = if gone { None } else { Some(home.move_aside(name).attempt("move aside", &shown)?) };
            home.put_link(name, to.path(), Kind::Folder).attempt("link", &shown)?;
            Ok(Placed::Merged(moved, aside))
        }
        Stands::Other => Err(not_a_folder(shown)),
    }
}

/// Makes a name of the task home a real folder.
pub fn real_folder(home: &Dir, name: &'static str, stands: &Stands) -> Result<Placed, HomeError> {
    let shown = home.shown(name);
    let make = || home.made(name).attempt("make folder", &shown);
    match stands {
        Stands::Nothing => {
            make()?;
            Ok(Placed::Made)
        }
        Stands::Folder(_) => Ok(Placed::Already),
        Stands::Link(Leads::Foreign(_)) => {
            let aside = keep_link(home, name)?;
            home.remove_file(name).attempt("remove link", &shown)?;
            make()?;
            Ok(Placed::Replaced(Some(aside)))
        }
        Stands::Link(_) => {
            // A crash from here to the next step leaves nothing there, from which the next run comes to the same end.
            home.remove_file(name).attempt("remove link", &shown)?;
            make()?;
            Ok(Placed::Replaced(None))
        }
        Stands::Other => Err(not_a_folder(shown)),
    }
}

fn not_a_folder(path: PathBuf) -> HomeError {
    HomeError::Refused { why: "something that is neither a folder nor a link stands here".into(), path }
}

/// Keeps a link that nobody here made under another name; it may be the only thing that says where its target is.
fn keep_link(home: &Dir, name: &'static str) -> Result<String, HomeError> {
    let shown = home.shown(name);
    let text = home.read_link(name).attempt("read link", &shown)?;
    for n in 1..10_000u32 {
        let aside = format!("{name}.aside-{n}");
        match home.symlink(&aside, &text, Kind::Folder) {
            Ok(()) => return Ok(aside),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                // Left by a run that ended before it replaced the link.
                if home.read_link(&aside).is_ok_and(|t| t == text) {
                    return Ok(aside);
                }
            }
            Err(source) => return Err(HomeError::Io { attempt: "keep link", path: home.shown(aside), source }),
        }
    }
    Err(HomeError::Refused { why: "too many things were moved aside here".into(), path: shown })
}

/// Moves all files below a folder into another, by rename, folder by folder; never over one that is there. Tells how many
/// were moved. What could not be moved stays.
pub fn merge(from: &Dir, to: &Dir) -> Result<usize, HomeError> {
    let mut moved = 0;
    for (name, kind) in from.entries().attempt("read folder", from.path())? {
        if kind == Kind::Folder {
            let below = from.folder(&name).attempt("open folder", from.shown(&name))?;
            if to.stat(&name).attempt("look at", to.shown(&name))?.is_none_or(|s| s.kind == Kind::Folder) {
                let into = to.made(&name).attempt("make folder", to.shown(&name))?;
                moved += merge(&below, &into)?;
            }
            continue;
        }
        match from.rename(&name, to, &name, Target::Free) {
            Ok(()) => moved += 1,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                let there = to.stat(&name).attempt("look at", to.shown(&name))?;
                let here = from.stat(&name).attempt("look at", from.shown(&name))?;
                // A second name of the same file: nothing is lost with it.
                if let (Some(a), Some(b)) = (there, here)
                    && a.is_same(&b)
                {
                    from.remove_file(&name).attempt("remove second name", from.shown(&name))?;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
                return Err(HomeError::Refused {
                    why:
                        "the task home is on another file system than the shared home, so its rollouts cannot be moved \
                          into the store"
                            .into(),
                    path: from.shown(&name),
                });
            }
            Err(source) => return Err(HomeError::Io { attempt: "move", path: from.shown(&name), source }),
        }
    }
    if moved > 0 {
        to.sync().attempt("sync", to.path())?;
        from.sync().attempt("sync", from.path())?;
    }
    Ok(moved)
}

/// Opens what stands at a name of the task home as a folder, a link followed once.
pub fn open(home: &Dir, name: &'static str) -> Result<Option<Dir>, HomeError> {
    absent(home.followed(name)).attempt("open folder", home.shown(name))
}
