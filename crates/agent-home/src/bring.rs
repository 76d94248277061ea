//! Bringing a thread into a store with all that it needs: its segments, and the threads that its history refers to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use threadkeep_record::SessionMeta;
use threadkeep_record::ThreadId;
use threadkeep_rollout::name::Form;

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::expose::{Exposed, Exposure, How, expose};
use crate::find::{Found, Head, Presence, Scan, Want, scan};
use crate::id::ResumeId;

/// A place in which rollouts are looked for.
#[derive(Debug, Clone)]
pub struct Source {
    /// What it is, for the outcome.
    pub name: String,
    /// Its folder of rollouts and, for messages and targets, how that is called: `sessions` or `archived_sessions`.
    pub folders: Vec<(Dir, PathBuf)>,
    /// Files that a look-up already knows, by path below the first folder's home. `None` means that names are walked.
    pub known: Option<Vec<Found>>,
}

/// Why a thread cannot be resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lost {
    /// No rollout of it was found.
    NotFound,
    /// Only an archived one was found.
    Archived(PathBuf),
    /// Files of its name hold nothing, or another thread.
    Unusable(PathBuf, String),
    /// Something that its history refers to is missing.
    BaseMissing(String),
    /// It cannot be exposed as asked.
    CannotExpose(PathBuf, String),
}

/// What was brought.
#[derive(Debug, Default)]
pub struct Brought {
    /// How certain the thread's own files are.
    pub presence: Option<Presence>,
    /// Files exposed in this run, by path below the store.
    pub exposed: Vec<(PathBuf, How)>,
    /// Other threads that are there because the thread needs them.
    pub bases: Vec<ResumeId>,
    /// Where the thread's files were found, if not in the store itself.
    pub from: Option<String>,
    /// What should be known: files that were left out, headers that could not be read.
    pub notes: Vec<String>,
    /// Folders that could not be read while looking.
    pub problems: Vec<(PathBuf, String)>,
}

/// A file that counts, with its header where that could be read.
struct Usable {
    found: Found,
    meta: Option<Box<SessionMeta>>,
    size: u64,
    mtime: i64,
}

impl Usable {
    /// Whether a history may take that many bytes of it, as far as its length tells.
    fn reaches(&self, bytes: u64) -> bool {
        self.found.named.form != Form::Plain || self.size >= bytes
    }
}

/// The files that a base means: the segment of that id, else any, since a thread's own id is not the name of one file.
fn meant(files: &[Usable], rollout: ThreadId) -> impl Iterator<Item = &Usable> {
    let is_segment = move |u: &Usable| u.found.named.segment == Some(rollout);
    let named = files.iter().any(is_segment);
    files.iter().filter(move |u| !named || is_segment(u))
}

/// Where rollouts are brought to.
#[derive(Debug, Clone)]
pub struct Target {
    /// The folder of active rollouts.
    pub sessions: Dir,
    /// That of archived ones.
    pub archived: Dir,
}

impl Target {
    /// The folder for a path below a home (`sessions/2026/01/02`), made where it is not there.
    fn folder(&self, path: &Path) -> Result<Dir, HomeError> {
        let (root, rest) = match path.strip_prefix(ARCHIVED) {
            Ok(rest) => (&self.archived, rest),
            Err(_) => (&self.sessions, path.strip_prefix("sessions").unwrap_or(path)),
        };
        if rest.as_os_str().is_empty() {
            return Ok(root.clone());
        }
        root.made(rest).attempt("make folder", root.shown(rest))
    }
}

/// Brings a thread into `to`, from the first source that has it. The first source is the store itself. Everything is
/// looked at before anything is exposed.
pub fn bring(
    id: &ResumeId,
    sources: &[Source],
    to: &Target,
    exposure: Exposure,
    within: &[PathBuf],
) -> Result<Result<Brought, Lost>, HomeError> {
    let mut out = Brought::default();
    // With the rollout that the history names, and how many bytes of a plain one it needs.
    let mut todo: VecDeque<(ResumeId, Option<(ThreadId, u64)>)> = [(id.clone(), None)].into();
    let mut seen: BTreeSet<ResumeId> = [id.clone()].into();
    let mut files: Vec<Found> = Vec::new();
    while let Some((wanted, needed)) = todo.pop_front() {
        let own = wanted == *id;
        let (usable, place) = match locate(&wanted, sources, within, &mut out) {
            Ok(found) => found,
            Err(lost) if own => return Ok(Err(lost)),
            Err(lost) => return Ok(Err(Lost::BaseMissing(format!("thread {wanted}: {}", short(&lost))))),
        };
        if own {
            let verified = usable.iter().any(|u| u.meta.is_some());
            out.presence = Some(if verified { Presence::Present } else { Presence::PresentUnverified });
            out.from = (place > 0).then(|| sources[place].name.clone());
        } else {
            if let Some((rollout, bytes)) = needed
                && !meant(&usable, rollout).any(|u| u.reaches(bytes))
            {
                return Ok(Err(Lost::BaseMissing(format!(
                    "thread {wanted}: its rollout {rollout} is shorter than {bytes} bytes"
                ))));
            }
            out.bases.push(wanted.clone());
        }
        for (by, base) in usable.iter().filter_map(|u| Some((u, u.meta.as_ref()?.history_base.as_ref()?))) {
            // A base names a rollout: a later segment by its own id, a thread's first one by the thread's.
            let own_segment = usable.iter().any(|u| u.found.named.segment == Some(base.thread_id));
            let base_id = if own_segment { wanted.clone() } else { owner(base.thread_id, sources, &mut out) };
            if base_id == wanted {
                // An earlier segment of the same thread, which has to be among its files.
                let reached = meant(&usable, base.thread_id).filter(|u| u.found.path != by.found.path).any(|u| {
                    u.meta.as_ref().is_none_or(|m| m.ordinal.unwrap_or(0) < base.end_ordinal_exclusive)
                        && u.reaches(base.end_byte_offset)
                });
                if !reached {
                    return Ok(Err(Lost::BaseMissing(format!("an earlier segment of thread {wanted}"))));
                }
            } else if seen.insert(base_id.clone()) {
                todo.push_back((base_id, Some((base.thread_id, base.end_byte_offset))));
            }
        }
        if place > 0 {
            files.extend(usable.into_iter().map(|u| u.found));
        }
    }
    for found in &files {
        let Some(parent) = found.path.parent() else { continue };
        let dir = to.folder(parent)?;
        match expose(found, &dir, exposure, within)? {
            Exposed::Made(how) => out.exposed.push((found.path.clone(), how)),
            Exposed::Already => {}
            Exposed::Cannot(why) => return Ok(Err(Lost::CannotExpose(found.path.clone(), why))),
        }
    }
    out.bases.sort();
    Ok(Ok(out))
}

fn short(lost: &Lost) -> String {
    match lost {
        Lost::NotFound => "its rollout is not there".into(),
        Lost::Archived(path) => format!("archived: {}", path.display()),
        Lost::Unusable(path, why) | Lost::CannotExpose(path, why) => format!("{}: {why}", path.display()),
        Lost::BaseMissing(what) => what.clone(),
    }
}

/// The files of a thread in the first source that has usable ones.
fn locate(
    id: &ResumeId,
    sources: &[Source],
    within: &[PathBuf],
    out: &mut Brought,
) -> Result<(Vec<Usable>, usize), Lost> {
    let mut worst = Lost::NotFound;
    for (place, source) in sources.iter().enumerate() {
        let found = files_of(source, id, out);
        let (active, archived): (Vec<_>, Vec<_>) = found.into_iter().partition(|f| !f.path.starts_with(ARCHIVED));
        let archived_path = archived.first().map(|f| f.path.clone());
        // A base may be archived, and is found there by Codex; a thread that is resumed may not.
        let candidates = if active.is_empty() && place_of_bases(out) { archived } else { active };
        let (usable, bad) = judge(candidates, within);
        if !usable.is_empty() {
            return Ok((choose(usable, out), place));
        }
        match (bad, archived_path) {
            (Some((path, why)), _) => worst = Lost::Unusable(path, why),
            (None, Some(path)) if worst == Lost::NotFound => worst = Lost::Archived(path),
            (None, _) => {}
        }
    }
    Err(worst)
}

const ARCHIVED: &str = "archived_sessions";

/// Whether the thread itself is settled, so that what is looked for now is a base.
fn place_of_bases(out: &Brought) -> bool {
    out.presence.is_some()
}

fn files_of(source: &Source, id: &ResumeId, out: &mut Brought) -> Vec<Found> {
    if let Some(known) = &source.known {
        let mine: Vec<Found> = known.iter().filter(|f| f.named.id == *id).cloned().collect();
        if !mine.is_empty() {
            return mine;
        }
    }
    let mut found = Scan::default();
    for (dir, at) in &source.folders {
        scan(dir, at, Want::Thread(id), &mut found);
    }
    out.problems.append(&mut found.problems);
    found.found
}

/// The thread that a rollout belongs to, by the id that a base names it with.
fn owner(rollout: ThreadId, sources: &[Source], out: &mut Brought) -> ResumeId {
    let id = ResumeId::from(rollout);
    if sources.iter().any(|source| !files_of(source, &id, out).is_empty()) {
        return id;
    }
    for source in sources {
        let mut found = Scan::default();
        for (dir, at) in &source.folders {
            scan(dir, at, Want::All, &mut found);
        }
        let known = source.known.iter().flatten();
        if let Some(file) = known.chain(&found.found).find(|f| f.named.segment == Some(rollout)) {
            return file.named.id.clone();
        }
    }
    id
}

fn judge(candidates: Vec<Found>, within: &[PathBuf]) -> (Vec<Usable>, Option<(PathBuf, String)>) {
    let mut usable = Vec::new();
    let mut bad = None;
    for found in candidates {
        let stat = found.stat().ok().flatten();
        let (size, mtime) = stat.map_or((0, 0), |s| (s.size, s.mtime_ms));
        match found.head(within) {
            Head::Carries(meta) => usable.push(Usable { found, meta: Some(meta), size, mtime }),
            Head::Unverified(_) => usable.push(Usable { found, meta: None, size, mtime }),
            Head::Another(id) => bad = Some((found.path, format!("its header names thread {id}"))),
            Head::Nothing(why) => bad = Some((found.path, why.into())),
        }
    }
    (usable, bad)
}

/// Of several files that are the same part of a thread, the one that is most likely whole; a plain file and its
/// compressed form beside each other count as one. Segments are all kept.
fn choose(usable: Vec<Usable>, out: &mut Brought) -> Vec<Usable> {
    let mut parts: BTreeMap<_, BTreeMap<String, Vec<Usable>>> = BTreeMap::new();
    for file in usable {
        let continues =
            file.meta.as_ref().and_then(|m| m.history_base.as_ref()).map(|b| (b.thread_id, b.end_ordinal_exclusive));
        let stem = file.found.path.to_string_lossy().trim_end_matches(".zst").to_owned();
        parts.entry((file.found.named.segment, continues)).or_default().entry(stem).or_default().push(file);
    }
    let mut chosen = Vec::new();
    for copies in parts.into_values() {
        let worth = |files: &Vec<Usable>| {
            files.iter().map(|f| (f.meta.is_some(), f.size, f.mtime)).max().unwrap_or((false, 0, 0))
        };
        let Some(best) = copies
            .iter()
            .max_by_key(|(stem, files)| (worth(files), std::cmp::Reverse((*stem).clone())))
            .map(|(s, _)| s.clone())
        else {
            continue;
        };
        for (stem, files) in copies {
            if stem == best {
                chosen.extend(files);
            } else {
                out.notes.extend(
                    files
                        .iter()
                        .map(|f| format!("left out, another copy is larger or newer: {}", f.found.path.display())),
                );
            }
        }
    }
    chosen
}

/// A store or home as a source.
pub fn source(name: String, sessions: Option<Dir>, archived: Option<Dir>) -> Source {
    let folders = [(sessions, "sessions"), (archived, ARCHIVED)];
    let folders = folders.into_iter().filter_map(|(dir, at)| Some((dir?, Path::new(at).to_owned()))).collect();
    Source { name, folders, known: None }
}
