//! Finding the rollouts of threads below a home or a store, by their names alone, and reading who they say they are.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use threadkeep_record::SessionMeta;
use threadkeep_record::fold::{Check, Fold};
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::LineReader;

use crate::dir::Dir;
use crate::id::{NamedRollout, ResumeId};
use crate::platform::{Kind, Stat};

/// Folders below `sessions` are not looked into deeper than this.
const MAX_DEPTH: usize = 12;

/// A header is looked for in so many lines and bytes; heads of 45 MB exist, and a plain file may be a hole.
const HEAD_LINES: usize = 16;
const HEAD_LINE: usize = 64 << 20;
const HEAD_BUFFER: usize = 32 << 10;

/// A rollout as its name tells.
#[derive(Debug, Clone)]
pub struct Found {
    /// The folder it is in.
    pub dir: Dir,
    /// Its path below the place that was scanned, that place's own folders included (`sessions/2026/…`).
    pub path: PathBuf,
    /// Its file name.
    pub name: OsString,
    /// What that says.
    pub named: NamedRollout,
    /// File or link.
    pub kind: Kind,
}

/// What a scan found.
#[derive(Debug, Default)]
pub struct Scan {
    /// Rollouts that were wanted.
    pub found: Vec<Found>,
    /// Folders that were not read, with why. What is in them is not known.
    pub problems: Vec<(PathBuf, String)>,
    /// Links that have no rollout's name. A folder of rollouts may be behind one; none is followed.
    pub links: Vec<Unfollowed>,
    /// What has a rollout's name and is neither a file, a folder nor a link, by path.
    pub strange: Vec<PathBuf>,
}

/// A link that a scan did not follow.
#[derive(Debug, Clone)]
pub struct Unfollowed {
    /// The folder it is in.
    pub dir: Dir,
    /// Its path below the place that was scanned, that place's own folders included.
    pub path: PathBuf,
    /// Its name.
    pub name: OsString,
}

/// Which rollouts are wanted.
#[derive(Debug, Clone, Copy)]
pub enum Want<'a> {
    /// All.
    All,
    /// Those of a thread.
    Thread(&'a ResumeId),
}

/// Where the id stands in a name, behind `rollout-`, the time and a dash.
const ID_AT: usize = 28;

impl Want<'_> {
    /// What the name of something that is no file says, where one thread is wanted.
    fn names(self, name: &OsStr) -> Option<NamedRollout> {
        match self {
            Self::All => None,
            Self::Thread(_) => self.parse(name.to_str()?),
        }
    }

    /// Parses a name, if it is wanted. A home has very many names and one of them is meant, so that most are told by
    /// their bytes.
    fn parse(self, name: &str) -> Option<NamedRollout> {
        match self {
            Self::All => NamedRollout::parse(name),
            Self::Thread(id) => {
                let at = name.as_bytes().get(ID_AT..ID_AT + id.as_str().len())?;
                if !at.eq_ignore_ascii_case(id.as_str().as_bytes()) {
                    return None;
                }
                NamedRollout::parse(name).filter(|named| named.id == *id)
            }
        }
    }
}

/// Walks over the names below a folder once. No link to a folder is followed; where a thread is looked for, it is a
/// problem, since the thread may be behind it. Links in the place of files are found.
pub fn scan(root: &Dir, at: &Path, want: Want<'_>, into: &mut Scan) {
    let before = into.found.len();
    descend(root, at, want, into, 0);
    into.found[before..].sort_by(|a, b| a.path.cmp(&b.path));
}

fn descend(dir: &Dir, at: &Path, want: Want<'_>, into: &mut Scan, depth: usize) {
    let entries = match dir.entries_as_they_come() {
        Ok(entries) => entries,
        Err(e) => return into.problems.push((at.to_owned(), e.to_string())),
    };
    for (name, kind) in entries {
        match kind {
            // Not a rollout, but the caller asked for this name and is told what stands there.
            Kind::Folder | Kind::Other if want.names(&name).is_some() => {
                let Some(named) = want.names(&name) else { continue };
                into.found.push(Found { dir: dir.clone(), path: at.join(&name), name, named, kind });
            }
            Kind::Folder if depth < MAX_DEPTH => match dir.folder_if_there(&name) {
                Ok(Some(below)) => descend(&below, &at.join(&name), want, into, depth + 1),
                Ok(None) => {}
                Err(e) => into.problems.push((at.join(&name), e.to_string())),
            },
            Kind::Folder => into.problems.push((at.join(&name), "too deep".into())),
            Kind::File | Kind::Link => {
                if let Some(named) = name.to_str().and_then(|n| want.parse(n)) {
                    into.found.push(Found { dir: dir.clone(), path: at.join(&name), name, named, kind });
                } else if kind == Kind::Link {
                    match want {
                        Want::All if !is_rollout(&name) => {
                            into.links.push(Unfollowed { dir: dir.clone(), path: at.join(&name), name });
                        }
                        Want::Thread(_)
                            if dir.stat_followed(&name).ok().flatten().is_some_and(|s| s.kind == Kind::Folder) =>
                        {
                            into.problems.push((at.join(&name), "a link to a folder, which is not followed".into()));
                        }
                        Want::All | Want::Thread(_) => {}
                    }
                }
            }
            Kind::Other if is_rollout(&name) => into.strange.push(at.join(&name)),
            Kind::Other => {}
        }
    }
}

fn is_rollout(name: &OsStr) -> bool {
    name.to_str().is_some_and(|n| NamedRollout::parse(n).is_some())
}

/// What the beginning of a rollout says of whose it is.
#[derive(Debug, Clone)]
pub enum Head {
    /// The first header carries the id that the name carries.
    Carries(Box<SessionMeta>),
    /// The first header carries another id, so this is not that thread's file.
    Another(String),
    /// Right name, no header that could be read.
    Unverified(String),
    /// Right name, but it may not be opened.
    Closed(String),
    /// No file that a thread could be resumed from: not a regular file, or an empty one.
    Nothing(&'static str),
}

impl Found {
    /// Opens the file. A link is followed where it leads to a regular file within `within` (the shared sessions), which
    /// is what an exposure over file systems makes.
    pub fn open(&self, within: &[PathBuf]) -> io::Result<File> {
        match self.kind {
            Kind::Link => {
                let target = std::fs::canonicalize(self.dir.shown(&self.name))?;
                if !within.iter().any(|w| target.starts_with(w)) {
                    return Err(io::Error::other("a link that leaves the shared sessions"));
                }
                self.dir.file_followed(&self.name)
            }
            Kind::File | Kind::Folder | Kind::Other => self.dir.file(&self.name),
        }
    }

    /// Its facts, a link followed.
    pub fn stat(&self) -> io::Result<Option<Stat>> {
        self.dir.stat_followed(&self.name)
    }

    /// Reads the head.
    #[must_use]
    pub fn head(&self, within: &[PathBuf]) -> Head {
        let file = match self.open(within) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Head::Nothing("the link leads nowhere"),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Head::Closed(e.to_string()),
            Err(_) if self.kind == Kind::Link => return Head::Nothing("the link does not lead to a shared rollout"),
            Err(e) if e.kind() == io::ErrorKind::Other => return Head::Nothing("not a regular file"),
            Err(e) => return Head::Closed(e.to_string()),
        };
        if file.metadata().map_or(0, |m| m.len()) == 0 {
            return Head::Nothing("an empty file");
        }
        match header(file, self.named.form) {
            Ok(Some(meta)) => match meta.id {
                Some(id) if ResumeId::from(id) == self.named.id => Head::Carries(Box::new(meta)),
                Some(id) => Head::Another(id.to_string()),
                None => Head::Unverified("the header carries no id".into()),
            },
            Ok(None) => Head::Unverified("no header".into()),
            Err(e) => Head::Unverified(e.to_string()),
        }
    }
}

/// The first header of a rollout. Reads no further than it.
pub fn header(file: File, form: Form) -> io::Result<Option<SessionMeta>> {
    let stream: threadkeep_rollout::source::Stream = match form {
        Form::Plain | Form::Json => Box::new(Arc::new(file)),
        Form::Zstd => Box::new(zstd::stream::read::Decoder::new(file)?),
    };
    let mut lines = LineReader::over(stream, HEAD_BUFFER).with_limit(HEAD_LINE);
    let mut fold = Fold::new(Check::Ends);
    for _ in 0..HEAD_LINES {
        let Some(line) = lines.next_line() else { break };
        let long = line.long;
        fold.line(line.into());
        if fold.header.is_some() || long {
            break;
        }
    }
    match (fold.header, lines.error()) {
        (Some(header), _) => Ok(Some(header)),
        (None, Some(e)) => Err(io::Error::new(e.kind(), e.to_string())),
        (None, None) => Ok(None),
    }
}

/// Whether a thread's rollout is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// It is not.
    Absent,
    /// A file of the right name whose header could not be read.
    PresentUnverified,
    /// A regular file that is not empty and whose first header carries the id.
    Present,
}

/// How present a thread is among these files, and by which of them.
#[must_use]
pub fn presence<'f>(files: &'f [Found], within: &[PathBuf]) -> (Presence, Option<&'f Found>) {
    let mut best = (Presence::Absent, None);
    for file in files {
        let state = match file.head(within) {
            Head::Carries(_) => Presence::Present,
            Head::Unverified(_) => Presence::PresentUnverified,
            Head::Another(_) | Head::Closed(_) | Head::Nothing(_) => Presence::Absent,
        };
        if state > best.0 {
            best = (state, Some(file));
        }
    }
    best
}
