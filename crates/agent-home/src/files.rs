//! The files of a task home other than its rollouts: what is linked, what is copied, and what is left out.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::config::{self, Need, Patch, Strength};
use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::key::digest;
use crate::platform::{Kind, Stat};
use crate::shared::SharedHome;

/// The largest config, and the largest file that a config names.
const MAX_COPIED: u64 = 64 << 20;

/// What was done to files.
#[derive(Debug, Default)]
pub struct Done {
    /// Links made.
    pub linked: Vec<String>,
    /// Copies made.
    pub copied: Vec<String>,
    /// What was wrong and is right now.
    pub repaired: Vec<String>,
    /// Left as they were, with why.
    pub kept: Vec<String>,
    /// Digests of the copies that are there now.
    pub digests: BTreeMap<String, String>,
}

/// Places all of them. `before` are the digests of the last preparation.
pub fn place(
    shared: &SharedHome,
    home: &Dir,
    patches: &[Patch],
    before: &BTreeMap<String, String>,
) -> Result<Done, HomeError> {
    let mut done = Done::default();
    auth(shared, home, before, &mut done)?;
    copies(shared, home, patches, before, &mut done)?;
    for (name, kind) in [("AGENTS.md", Kind::File), ("prompts", Kind::Folder)] {
        link_item(&shared.dir, home, name, kind, &mut done)?;
    }
    skills(shared, home, &mut done)?;
    let plugins = home.stat("plugins").attempt("look at", home.shown("plugins"))?;
    if plugins.is_some_and(|s| s.kind != Kind::Folder) {
        done.kept.push("plugins: the task home's own".into());
    } else if shared.part("plugins/cache")?.is_some() {
        let plugins = home.made("plugins").attempt("make folder", home.shown("plugins"))?;
        let from = shared.dir.folder("plugins").attempt("open folder", shared.dir.shown("plugins"))?;
        link_item(&from, &plugins, "cache", Kind::Folder, &mut done)?;
    }
    Ok(done)
}

/// `auth.json` is a link, so that a token refreshed on either side is the token of both. Where no link can be made it is a
/// copy, refreshed at every preparation, and where that fails too, it is an error: an agent without it would only fail
/// later.
fn auth(shared: &SharedHome, home: &Dir, before: &BTreeMap<String, String>, done: &mut Done) -> Result<(), HomeError> {
    const AUTH: &str = "auth.json";
    let shown = home.shown(AUTH);
    let source = shared.dir.stat_followed(AUTH).attempt("look at", shared.dir.shown(AUTH))?;
    let there = home.stat(AUTH).attempt("look at", &shown)?;
    let Some(source) = source else {
        if shared.dir.stat(AUTH).attempt("look at", shared.dir.shown(AUTH))?.is_some() {
            return Err(HomeError::Refused {
                why: "the login of the shared home is a link that leads nowhere; mend it, or log in again".into(),
                path: shared.dir.shown(AUTH),
            });
        }
        // The person logged out: what we put there would be a login that nobody has any more.
        let ours = match there {
            Some(s) if s.kind == Kind::Link => true,
            Some(s) if s.kind == Kind::File => is_ours(home, AUTH, before)?,
            Some(_) | None => false,
        };
        if ours {
            home.remove_file(AUTH).attempt("remove", &shown)?;
            done.repaired.push(format!("{AUTH}: removed, the shared home has none"));
        } else if there.is_some() {
            done.kept.push(format!("{AUTH}: the task home's own, the shared home has none"));
        }
        return Ok(());
    };
    if source.kind != Kind::File {
        return Err(HomeError::Refused { why: "not a file".into(), path: shared.dir.shown(AUTH) });
    }
    if there.is_some_and(|s| s.kind == Kind::Link)
        && home.stat_followed(AUTH).ok().flatten().is_some_and(|t| t.is_same(&source))
    {
        return Ok(());
    }
    let what = clear(home, AUTH, there, before, &shared.dir)?;
    let target = shared.dir.shown(AUTH);
    match home.put_link(AUTH, &target, Kind::File) {
        Ok(()) => done.linked.push(AUTH.into()),
        Err(link_error) => {
            let bytes = shared.dir.file_followed(AUTH).and_then(read_all).attempt("read", &target)?;
            done.digests.insert(AUTH.into(), digest(&bytes));
            if home.read(AUTH, MAX_COPIED).attempt("read", &shown)?.is_some_and(|b| b == bytes) {
                return Ok(());
            }
            home.put(AUTH, &bytes, tightened(&source)).map_err(|source| HomeError::Io {
                attempt: "place a link or a copy of the login (it cannot be linked either)",
                path: shown.clone(),
                source,
            })?;
            done.copied.push(format!("{AUTH}: cannot be linked ({link_error})"));
        }
    }
    if let Some(what) = what {
        done.repaired.push(what);
    }
    Ok(())
}

fn read_all(mut file: std::fs::File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut file, &mut bytes)?;
    Ok(bytes)
}

/// Makes way for a link: a link and a copy of ours are replaced by it; anything else is moved aside. Tells what was there.
fn clear(
    home: &Dir,
    name: &str,
    there: Option<Stat>,
    before: &BTreeMap<String, String>,
    shared: &Dir,
) -> Result<Option<String>, HomeError> {
    let Some(stat) = there else { return Ok(None) };
    let facts = format!("{} bytes, modified {}", stat.size, threadkeep_record::UtcMillis(stat.mtime_ms));
    Ok(Some(match stat.kind {
        Kind::Link => {
            format!("{name}: was a link to elsewhere ({})", home.read_link(name).unwrap_or_default().display())
        }
        Kind::File if is_ours(home, name, before)? || same_bytes(home, shared, name)? => {
            format!("{name}: was a copy ({facts})")
        }
        Kind::File | Kind::Folder | Kind::Other => {
            let aside = home.move_aside(name).attempt("move aside", home.shown(name))?;
            format!("{name}: was something of its own ({facts}), kept as {aside}")
        }
    }))
}

/// Whether a file is as we copied it.
pub(crate) fn is_ours(home: &Dir, name: &str, before: &BTreeMap<String, String>) -> Result<bool, HomeError> {
    let Some(wanted) = before.get(name) else { return Ok(false) };
    let bytes = home.read(name, MAX_COPIED).attempt("read", home.shown(name))?;
    Ok(bytes.is_some_and(|b| digest(&b) == *wanted))
}

fn same_bytes(home: &Dir, shared: &Dir, name: &str) -> Result<bool, HomeError> {
    let here = home.read(name, MAX_COPIED).attempt("read", home.shown(name))?;
    let there = shared.file_followed(name).and_then(read_all).attempt("read", shared.shown(name))?;
    Ok(here.is_some_and(|h| h == there))
}

/// The user's own bits of a mode.
fn tightened(stat: &Stat) -> u32 {
    if stat.mode == 0 { 0o600 } else { stat.mode & 0o700 }
}

fn copies(
    shared: &SharedHome,
    home: &Dir,
    patches: &[Patch],
    before: &BTreeMap<String, String>,
    done: &mut Done,
) -> Result<(), HomeError> {
    let mut wanted: Vec<String> = Vec::new();
    for name in ["config.json", "instructions.md"] {
        if copy_file(&shared.dir, home, name, done)? {
            wanted.push(name.into());
        }
    }
    let path = shared.dir.shown("config.toml");
    let stat = shared.dir.stat_followed("config.toml").attempt("look at", &path)?;
    let text = match stat {
        Some(_) => {
            let bytes = shared.dir.file_followed("config.toml").and_then(read_all).attempt("read", &path)?;
            String::from_utf8(bytes).map_err(|e| HomeError::Malformed { path: path.clone(), why: e.to_string() })?
        }
        None => String::new(),
    };
    let made = config::make(&text, patches).map_err(|why| {
        // The caller's own changes are to blame where the config is right without them.
        match patches.is_empty() || config::make(&text, &[]).is_err() {
            true => HomeError::Malformed { path: path.clone(), why },
            false => HomeError::Usage { what: format!("a change to the config cannot be made: {why}") },
        }
    })?;
    let mode = stat.as_ref().map_or(0o600, tightened);
    put_copy(home, "config.toml", made.text.as_bytes(), mode, done)?;
    wanted.push("config.toml".into());
    done.repaired.extend(made.dropped);
    for need in made.needs {
        if refer(shared, home, &need, done)? == Referred::Copied {
            wanted.push(need.path.to_string_lossy().into_owned());
        }
    }
    // What was copied once and has no source any more.
    for name in before.keys().filter(|n| !wanted.contains(n) && *n != "auth.json") {
        let path = Path::new(name);
        let (Some(parent), Some(file)) = (path.parent(), path.file_name().and_then(|f| f.to_str())) else { continue };
        let dir = if parent.as_os_str().is_empty() {
            Some(home.clone())
        } else {
            home.folder_if_there(parent).attempt("open folder", home.shown(parent))?
        };
        let Some(dir) = dir else { continue };
        if dir.read(file, MAX_COPIED).ok().flatten().is_some_and(|b| before.get(name) == Some(&digest(&b))) {
            dir.remove_file(file).attempt("remove", dir.shown(file))?;
            done.repaired.push(format!("{name}: removed, the shared home has none"));
        }
    }
    Ok(())
}

fn copy_file(shared: &Dir, home: &Dir, name: &str, done: &mut Done) -> Result<bool, HomeError> {
    let path = shared.shown(name);
    let Some(stat) = shared.stat_followed(name).attempt("look at", &path)? else { return Ok(false) };
    let bytes = shared.file_followed(name).and_then(read_all).attempt("read", &path)?;
    put_copy(home, name, &bytes, tightened(&stat), done)?;
    Ok(true)
}

fn put_copy(home: &Dir, name: &str, bytes: &[u8], mode: u32, done: &mut Done) -> Result<(), HomeError> {
    done.digests.insert(name.into(), digest(bytes));
    let shown = home.shown(name);
    let there = home.stat(name).attempt("look at", &shown)?;
    match there {
        Some(s) if s.kind == Kind::Folder || s.kind == Kind::Other => {
            let aside = home.move_aside(name).attempt("move aside", &shown)?;
            done.repaired.push(format!("{name}: was no file, kept as {aside}"));
        }
        Some(s) if s.kind == Kind::Link => {
            let to = home.read_link(name).unwrap_or_default();
            done.repaired.push(format!("{name}: was a link to elsewhere ({})", to.display()));
        }
        Some(s) if s.kind == Kind::File && (s.mode == mode || s.mode == 0) => {
            if home.read(name, MAX_COPIED).attempt("read", &shown)?.is_some_and(|b| b == bytes) {
                return Ok(());
            }
        }
        Some(_) | None => {}
    }
    home.put(name, bytes, mode).attempt("write", &shown)?;
    done.copied.push(name.into());
    Ok(())
}

/// What became of a file that the config names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Referred {
    Copied,
    /// It is placed in another way, is none that a task may have, or is not there and may be missing.
    Left,
}

/// What of a home is placed in the task's by itself.
const PLACED: [&str; 8] =
    ["auth.json", "config.toml", "config.json", "instructions.md", "AGENTS.md", "prompts", "skills", "plugins/cache"];
/// What of a home is never copied, whatever a config says.
const NEVER: [&str; 11] = [
    "sessions",
    "archived_sessions",
    crate::shared::WRITER_LOCKS,
    crate::shared::OWN,
    crate::shared::MULTICA,
    "memories",
    "history.jsonl",
    "session_index.jsonl",
    ".credentials.json",
    crate::task::RECORD,
    crate::task::LOCK,
];

fn is_one_of(path: &Path, all: &[&str]) -> bool {
    let text = path.to_string_lossy().to_ascii_lowercase();
    all.iter().map(|one| one.to_ascii_lowercase()).any(|one| Path::new(&text).starts_with(&one))
}

fn is_never_copied(path: &Path) -> bool {
    is_one_of(path, &NEVER) || path.to_string_lossy().to_ascii_lowercase().contains(".sqlite")
}

/// Copies a file that the config names, to the same place below the task home. A link is followed within the shared home.
fn refer(shared: &SharedHome, home: &Dir, need: &Need, done: &mut Done) -> Result<Referred, HomeError> {
    let (path, source) = (&need.path, shared.dir.shown(&need.path));
    if is_one_of(path, &PLACED) {
        return Ok(Referred::Left);
    }
    let real = match (std::fs::canonicalize(&source), need.strength) {
        (Err(e), Strength::May) if e.kind() == io::ErrorKind::NotFound => return Ok(Referred::Left),
        (real, _) => real.attempt("find what the config names:", &source)?,
    };
    let root = std::fs::canonicalize(shared.dir.path()).attempt("resolve", shared.dir.path())?;
    let Ok(real) = real.strip_prefix(&root) else {
        return Err(HomeError::Refused {
            why: "the config names a link that leaves the shared home; give the absolute path of what it leads to"
                .into(),
            path: source,
        });
    };
    let private = real != path && is_one_of(real, &["auth.json"]);
    if private || is_never_copied(path) || is_never_copied(real) {
        let shown = path.display();
        done.kept.push(format!("{shown}: named by config.toml, not copied: a home's own login, history or database"));
        return Ok(Referred::Left);
    }
    let file = shared.dir.file(real).attempt("open what the config names:", &source)?;
    let stat = crate::platform::stat_file(&file).attempt("look at", &source)?;
    if stat.size > MAX_COPIED {
        return Err(HomeError::Refused { why: "too large for a file that a config names".into(), path: source });
    }
    let bytes = read_all(file).attempt("read", &source)?;
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str())) else {
        return Err(HomeError::Malformed { path: source, why: "not a name that can be copied".into() });
    };
    let dir = if parent.as_os_str().is_empty() {
        home.clone()
    } else {
        home.made(parent).attempt("make folder", home.shown(parent))?
    };
    let mut here = Done::default();
    put_copy(&dir, name, &bytes, tightened(&stat), &mut here)?;
    let shown = path.to_string_lossy().into_owned();
    if !here.copied.is_empty() {
        done.copied.push(shown.clone());
    }
    done.repaired.extend(here.repaired);
    done.digests.insert(shown, digest(&bytes));
    Ok(Referred::Copied)
}

/// Links an item of the shared home, unless the task home has one of its own.
fn link_item(from: &Dir, home: &Dir, name: &str, kind: Kind, done: &mut Done) -> Result<(), HomeError> {
    let target = from.shown(name);
    let shown = home.shown(name);
    let source = from.stat_followed(name).attempt("look at", &target)?;
    let there = home.stat(name).attempt("look at", &shown)?;
    let named = ["skills", "plugins"]
        .iter()
        .find(|folder| home.path().ends_with(folder))
        .map_or_else(|| name.to_owned(), |folder| format!("{folder}/{name}"));
    match (source, there) {
        (None, Some(t)) if t.kind == Kind::Link && home.read_link(name).is_ok_and(|text| text == target) => {
            home.remove_file(name).attempt("remove link", &shown)?;
            done.repaired.push(format!("{named}: link removed, the shared home has none"));
        }
        (None, _) => {}
        (Some(s), Some(t)) if t.kind == Kind::Link => {
            if home.stat_followed(name).ok().flatten().is_some_and(|x| x.is_same(&s)) {
                return Ok(());
            }
            home.put_link(name, &target, kind).attempt("link", &shown)?;
            done.repaired.push(format!("{named}: was a link to elsewhere"));
        }
        (Some(_), Some(_)) => done.kept.push(format!("{named}: the task home's own")),
        (Some(_), None) => {
            home.put_link(name, &target, kind).attempt("link", &shown)?;
            done.linked.push(named);
        }
    }
    Ok(())
}

/// Each skill of the user is linked beside those that the caller puts there; a name that is taken stays the caller's.
fn skills(shared: &SharedHome, home: &Dir, done: &mut Done) -> Result<(), HomeError> {
    // `skills` may itself be a link that the person made; it is opened once.
    let from = crate::dir::absent(shared.dir.followed("skills")).attempt("open folder", shared.dir.shown("skills"))?;
    let shown = home.shown("skills");
    let there = home.stat("skills").attempt("look at", &shown)?;
    if there.is_some_and(|s| s.kind != Kind::Folder) {
        done.kept.push("skills: the task home's own".into());
        return Ok(());
    }
    if from.is_none() && there.is_none() {
        return Ok(());
    }
    let entries = match &from {
        Some(from) => from.entries().attempt("read folder", from.path())?,
        None => vec![],
    };
    let visible = |n: &std::ffi::OsStr| !n.as_encoded_bytes().starts_with(b".");
    let to = home.made("skills").attempt("make folder", &shown)?;
    if let Some(from) = &from {
        for (name, _) in &entries {
            let folder = from.stat_followed(name).ok().flatten().is_some_and(|s| s.kind == Kind::Folder);
            if visible(name)
                && folder
                && let Some(name) = name.to_str()
            {
                link_item(from, &to, name, Kind::Folder, done)?;
            }
        }
    }
    // Links to skills that the user has no more.
    for (name, kind) in to.entries().attempt("read folder", to.path())? {
        let gone = kind == Kind::Link
            && to.stat_followed(&name).ok().flatten().is_none()
            && to.read_link(&name).is_ok_and(|t| t == shared.dir.shown("skills").join(&name));
        if gone {
            to.remove_file(&name).attempt("remove link", to.shown(&name))?;
            done.repaired.push(format!("skills/{}: link removed, the shared home has none", name.to_string_lossy()));
        }
    }
    Ok(())
}
