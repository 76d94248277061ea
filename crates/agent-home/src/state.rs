//! What Codex derives from a home's sessions and has to be dropped when those change, and what belongs to one
//! conversation and must not reach another.

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::key::digest;
use crate::names::{TaskNames, databases};
use crate::platform::{Kind, Target};
use crate::shared::WRITER_LOCKS;
use crate::task::{LOCK, RECORD};

/// Side files of a database.
const SIDES: [&str; 2] = ["-shm", "-wal"];

/// Drops the state databases, which Codex builds again from the sessions it sees. Everything else stays: the name index,
/// goals, logs and memories cannot be built again (`agent-homes.md` 2.5). A database whose names could not be read is
/// moved aside. Tells what was dropped.
pub fn reset(home: &Dir, names: &TaskNames) -> Result<Vec<String>, HomeError> {
    let mut done = Vec::new();
    for name in databases(home)? {
        // Side files first, so that no journal is ever without its database: that would be taken for a leftover.
        if let Some((_, why)) = names.unread.iter().find(|(n, _)| *n == name) {
            let aside = set_aside(home, &name)?;
            done.push(format!("{name}: kept as {aside}, its names cannot be read ({why})"));
        } else {
            for side in SIDES {
                remove(home, &format!("{name}{side}"))?;
            }
            remove(home, &name)?;
            done.push(format!("{name}: dropped, to be built again"));
        }
    }
    // Side files whose database is gone already: a run that ended in between.
    for (name, kind) in home.entries().attempt("read folder", home.path())? {
        let Some(name) = name.to_str().filter(|n| n.starts_with("state_") && kind == Kind::File) else { continue };
        if SIDES.iter().any(|s| name.strip_suffix(s).is_some_and(|stem| stem.ends_with(".sqlite"))) {
            remove(home, name)?;
        }
    }
    if !done.is_empty() {
        home.sync().attempt("sync", home.path())?;
    }
    Ok(done)
}

/// Moves a database out of Codex's way, its side files first. A run that ended in between is continued.
fn set_aside(home: &Dir, name: &str) -> Result<String, HomeError> {
    for n in 1..10_000u32 {
        let aside = format!("{name}.aside-{n}");
        if home.stat(&aside).attempt("look at", home.shown(&aside))?.is_some() {
            continue;
        }
        for side in SIDES {
            let (from, to) = (format!("{name}{side}"), format!("{aside}{side}"));
            if home.stat(&from).attempt("look at", home.shown(&from))?.is_some() {
                home.rename(&from, home, &to, Target::Free).attempt("move aside", home.shown(&from))?;
            }
        }
        home.rename(name, home, &aside, Target::Free).attempt("move aside", home.shown(name))?;
        return Ok(aside);
    }
    Err(HomeError::Refused { why: "too many things were moved aside here".into(), path: home.shown(name) })
}

fn remove(home: &Dir, name: &str) -> Result<(), HomeError> {
    match home.stat(name).attempt("look at", home.shown(name))?.map(|s| s.kind) {
        Some(Kind::File | Kind::Link) => home.remove_file(name).attempt("remove", home.shown(name)),
        Some(Kind::Folder | Kind::Other) | None => Ok(()),
    }
}

/// What of a task home is not of one conversation: shared items, what is copied again at every preparation, and what this
/// crate keeps there. Everything else is the conversation's.
const ANYONES: [&str; 13] = [
    "auth.json",
    "config.toml",
    "config.json",
    "instructions.md",
    "AGENTS.md",
    "prompts",
    "skills",
    "plugins",
    "sessions",
    "archived_sessions",
    WRITER_LOCKS,
    LOCK,
    RECORD,
];

/// Moves what belongs to another conversation into that one's store, where it is out of the next agent's sight and not
/// lost. Tells what was moved.
pub fn put_away(home: &Dir, store: &Dir) -> Result<Vec<String>, HomeError> {
    let mut moved = Vec::new();
    let entries = home.entries().attempt("read folder", home.path())?;
    let mine: Vec<_> = entries.into_iter().filter(|(n, _)| !ANYONES.iter().any(|a| n == *a)).collect();
    if mine.is_empty() {
        return Ok(moved);
    }
    let place = format!("task-state/{}", &digest(home.path().as_os_str().as_encoded_bytes())[..16]);
    let to = store.made(&place).attempt("make folder", store.shown(&place))?;
    for (name, _) in mine {
        let shown = home.shown(&name);
        let mut new = name.clone();
        let mut n = 0u32;
        loop {
            match home.rename(&name, &to, &new, Target::Free) {
                Ok(()) => break,
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && n < 10_000 => {
                    n += 1;
                    new = name.clone();
                    new.push(format!(".aside-{n}"));
                }
                Err(e) if e.kind() == std::io::ErrorKind::CrossesDevices => {
                    return Err(HomeError::Refused {
                        why: "this home holds what another conversation left, and is on another file system than its store; \
                              use a new task home"
                            .into(),
                        path: shown,
                    });
                }
                Err(source) => return Err(HomeError::Io { attempt: "move", path: shown, source }),
            }
        }
        moved.push(format!("{} to {}", name.to_string_lossy(), to.shown(&new).display()));
    }
    to.sync().attempt("sync", to.path())?;
    home.sync().attempt("sync", home.path())?;
    Ok(moved)
}
