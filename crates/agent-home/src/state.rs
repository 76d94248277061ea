//! What Codex derives from a home's sessions and has to be dropped when those change.

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::names::{TaskNames, databases};
use crate::platform::{Kind, Target};

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
