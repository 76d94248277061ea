//! Bringing a thread into a store with all that it needs: its segments, and the threads that its history refers to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};

use threadkeep_record::SessionMeta;
use threadkeep_record::ThreadId;
use threadkeep_rollout::name::Form;

use crate::beside::{self, Beside};
use crate::dir::Dir;
use crate::error::HomeError;
use crate::expose::{ARCHIVED, Exposure, How, Incoming, Over, Sharing, Target, expose_all};
use crate::find::{Found, Head, Presence, Scan, Want, scan};
use crate::id::ResumeId;
use crate::platform::{self, Kind};

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
    /// No rollout of it is anywhere.
    NotFound,
    /// No rollout of it was found, and not everything could be looked at: where, and why.
    CannotLook(PathBuf, String),
    /// It is archived.
    Archived(PathBuf),
    /// Files of its name hold nothing, or another thread, or may not be opened.
    Unusable(PathBuf, String),
    /// Something that its history refers to is missing.
    BaseMissing(String),
    /// It cannot be exposed as asked.
    CannotExpose(PathBuf, String),
}

/// What was brought.
#[derive(Debug, Default)]
pub struct Brought {
    /// Why nothing was; `None` where the thread is there.
    pub lost: Option<Lost>,
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
    /// What could not be looked at.
    pub problems: Vec<(PathBuf, String)>,
}

/// How rollouts are brought.
pub struct Rules<'a> {
    /// Where to. `None` where the first source is all there is, and nothing may come in.
    pub to: Option<&'a Target>,
    /// How.
    pub exposure: Exposure,
    /// Where links may lead.
    pub within: &'a [PathBuf],
    /// The person's active rollouts: what the store has may have gone on there.
    pub person: Option<&'a Dir>,
    /// Says why a thread's file may not give way to another now: someone is at it.
    pub busy: &'a dyn Fn(&ResumeId) -> Option<String>,
}

/// A file that counts, with its header where that could be read.
struct Usable {
    found: Found,
    meta: Option<Box<SessionMeta>>,
    size: u64,
    mtime: i64,
    links: u64,
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

/// Brings a thread to where the rules say, from the first source that has it. The first source is the store itself, or
/// the folder of a home that counts. Everything is looked at before anything is exposed.
pub fn bring(id: &ResumeId, sources: &[Source], rules: &Rules<'_>) -> Result<Brought, HomeError> {
    let mut out = Brought::default();
    let incoming = match gather(id, sources, rules, &mut out) {
        Ok(incoming) => incoming,
        Err(lost) => {
            tidy(&mut out);
            let unseen = out.problems.first().cloned();
            out.lost = Some(match (lost, unseen) {
                // What is not seen may be there, so that nobody may say that it is not.
                (Lost::NotFound, Some((path, why))) => Lost::CannotLook(path, why),
                (lost, _) => lost,
            });
            return Ok(out);
        }
    };
    if let Some(to) = rules.to {
        match expose_all(&incoming, to, rules.exposure, rules.within)? {
            Ok(done) => {
                out.exposed = done.made;
                out.notes.extend(done.aside.into_iter().map(|(path, aside)| {
                    let at = path.display();
                    format!("{at}: the person went on in a file of its own, which is used now; the store's is {aside}")
                }));
            }
            Err((path, why)) => out.lost = Some(Lost::CannotExpose(path, why)),
        }
    }
    tidy(&mut out);
    Ok(out)
}

fn tidy(out: &mut Brought) {
    out.bases.sort();
    out.problems.sort();
    out.problems.dedup();
}

/// Finds the files of a thread and of all that its history refers to, and tells those that have to come in.
fn gather(id: &ResumeId, sources: &[Source], rules: &Rules<'_>, out: &mut Brought) -> Result<Vec<Incoming>, Lost> {
    // With the rollout that the history names, and how many bytes of a plain one it needs.
    let mut todo: VecDeque<(ResumeId, Option<(ThreadId, u64)>)> = [(id.clone(), None)].into();
    let mut seen: BTreeSet<ResumeId> = [id.clone()].into();
    let mut edges: Vec<(ResumeId, ResumeId)> = Vec::new();
    let mut files: Vec<Incoming> = Vec::new();
    while let Some((wanted, needed)) = todo.pop_front() {
        let own = wanted == *id;
        let (usable, place) = match locate(&wanted, sources, rules.within, out) {
            Ok(found) => found,
            Err(lost) if own => return Err(lost),
            Err(Lost::NotFound) if !out.problems.is_empty() => return Err(Lost::NotFound),
            Err(lost) => return Err(Lost::BaseMissing(format!("thread {wanted}: {}", short(&lost)))),
        };
        if own {
            let verified = usable.iter().any(|u| u.meta.is_some());
            out.presence = Some(if verified { Presence::Present } else { Presence::PresentUnverified });
            out.from = (place > 0).then(|| sources[place].name.clone());
        } else {
            if let Some((rollout, bytes)) = needed
                && !meant(&usable, rollout).any(|u| u.reaches(bytes))
            {
                return Err(Lost::BaseMissing(format!(
                    "thread {wanted}: its rollout {rollout} is shorter than {bytes} bytes"
                )));
            }
            out.bases.push(wanted.clone());
        }
        if let Some(file) = usable.iter().find(|u| u.meta.as_ref().is_some_and(|m| m.base_is_unread)) {
            return Err(Lost::BaseMissing(format!(
                "{} names a base that cannot be understood",
                file.found.path.display()
            )));
        }
        for (by, base) in usable.iter().filter_map(|u| Some((u, u.meta.as_ref()?.history_base.as_ref()?))) {
            // A base names a rollout: a later segment by its own id, a thread's first one by the thread's.
            let own_segment = usable.iter().any(|u| u.found.named.segment == Some(base.thread_id));
            let base_id = if own_segment { wanted.clone() } else { owner(base.thread_id, sources, out) };
            if base_id == wanted {
                // An earlier segment of the same thread, which has to be among its files.
                let reached = meant(&usable, base.thread_id).filter(|u| u.found.path != by.found.path).any(|u| {
                    u.meta.as_ref().is_none_or(|m| m.ordinal.unwrap_or(0) < base.end_ordinal_exclusive)
                        && u.reaches(base.end_byte_offset)
                });
                if !reached {
                    return Err(Lost::BaseMissing(format!("an earlier segment of thread {wanted}")));
                }
                continue;
            }
            edges.push((wanted.clone(), base_id.clone()));
            if seen.insert(base_id.clone()) {
                todo.push_back((base_id, Some((base.thread_id, base.end_byte_offset))));
            }
        }
        for file in usable {
            match place {
                0 => files.extend(again(file, rules, out)?),
                _ => files.push(Incoming { size: file.size, found: file.found, over: Over::Nothing }),
            }
        }
    }
    if let Some(thread) = circle(&edges) {
        return Err(Lost::BaseMissing(format!(
            "the history of thread {thread} refers to itself, so it has no beginning"
        )));
    }
    // Bases first: a thread that is there has what it needs, whenever one looks.
    files.reverse();
    Ok(files)
}

/// A thread that refers to itself over others, if one does.
fn circle(edges: &[(ResumeId, ResumeId)]) -> Option<&ResumeId> {
    edges.iter().map(|(from, _)| from).find(|from| {
        let mut reached: BTreeSet<&ResumeId> = BTreeSet::new();
        let mut todo = vec![*from];
        while let Some(at) = todo.pop() {
            for (_, to) in edges.iter().filter(|(by, _)| by == at) {
                if to == *from {
                    return true;
                }
                if reached.insert(to) {
                    todo.push(to);
                }
            }
        }
        false
    })
}

/// What of a file that the store has already has to come in once more: where it is shared and was asked to be isolated,
/// and where the person's of the same path has gone on.
fn again(file: Usable, rules: &Rules<'_>, out: &mut Brought) -> Result<Option<Incoming>, Lost> {
    if rules.to.is_none() {
        return Ok(None);
    }
    let found = &file.found;
    let busy = || (rules.busy)(&found.named.id);
    if rules.exposure.sharing == Sharing::Isolated && (found.kind == Kind::Link || file.links > 1) {
        return match busy() {
            Some(why) => Err(Lost::CannotExpose(found.path.clone(), format!("it is shared with others, and {why}"))),
            None => Ok(Some(Incoming { size: file.size, found: file.found, over: Over::Itself })),
        };
    }
    let Some(theirs) = rules.person.and_then(|sessions| beside::persons(sessions, found)) else { return Ok(None) };
    let at = found.path.display();
    let (Ok(here), Ok(there)) = (found.open(rules.within), theirs.open(&[])) else {
        out.notes.push(format!("{at}: cannot be compared with the person's of the same name"));
        return Ok(None);
    };
    let same = |s: &File, t: &File| {
        let (s, t) = (platform::stat_file(s).ok()?, platform::stat_file(t).ok()?);
        Some(s.is_same(&t))
    };
    if same(&here, &there) == Some(true) {
        return Ok(None);
    }
    let size = there.metadata().map_or(0, |m| m.len());
    if found.named.form == Form::Zstd {
        // Codex unpacks a thread that goes on, beside or in place of the compressed file.
        let unpacked = found.dir.stat(&theirs.name).ok().flatten().is_some();
        let alike = !unpacked && beside::begins_alike(here, &there).unwrap_or(false);
        return Ok(alike.then_some(Incoming { found: theirs, over: Over::Nothing, size }));
    }
    let isolated = rules.exposure.sharing == Sharing::Isolated;
    let said = match beside::compare(&here, &there) {
        Ok(Beside::PersonAhead) if isolated => "the person went on since; that is not in it, as asked",
        Ok(Beside::PersonAhead) => match busy() {
            None => return Ok(Some(Incoming { found: theirs, over: Over::Earlier, size })),
            Some(why) => {
                out.notes.push(format!("{at}: the person went on in a file of its own, which is not taken now: {why}"));
                return Ok(None);
            }
        },
        Ok(Beside::StoreAhead) if !isolated => "the person's file of this name is another one, and behind this",
        Ok(Beside::Apart) => "the person's file of this name went on in another way; this is the store's",
        Ok(Beside::Same | Beside::StoreAhead) => return Ok(None),
        Err(_) => "cannot be compared with the person's of the same name",
    };
    out.notes.push(format!("{at}: {said}"));
    Ok(None)
}

fn short(lost: &Lost) -> String {
    match lost {
        Lost::NotFound => "its rollout is not there".into(),
        Lost::Archived(path) => format!("archived: {}", path.display()),
        Lost::Unusable(path, why) | Lost::CannotExpose(path, why) | Lost::CannotLook(path, why) => {
            format!("{}: {why}", path.display())
        }
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
    let own = !place_of_bases(out);
    for (place, source) in sources.iter().enumerate() {
        let found = files_of(source, id, out);
        let (active, archived): (Vec<_>, Vec<_>) = found.into_iter().partition(|f| !f.path.starts_with(ARCHIVED));
        // A base may be archived, and is found there by Codex; a thread that is resumed may not.
        let (candidates, archived) = if active.is_empty() && !own { (archived, vec![]) } else { (active, archived) };
        let (usable, bad) = judge(candidates, within);
        let (put_away, _) = judge(archived, within);
        if !usable.is_empty() {
            if own {
                whole(&usable, &bad, &put_away)?;
            }
            out.notes.extend(bad.iter().map(|(f, why)| format!("left out: {}: {why}", f.path.display())));
            return Ok((choose(usable, out), place));
        }
        match (bad.into_iter().next_back(), put_away.first().map(|u| shown(&u.found))) {
            // The conversation's own word counts: the thread was archived in it, and stays one file.
            (_, Some(path)) if own && place == 0 => return Err(Lost::Archived(path)),
            (Some((found, why)), _) => worst = Lost::Unusable(shown(&found), why),
            (None, Some(path)) if worst == Lost::NotFound => worst = Lost::Archived(path),
            (None, _) => {}
        }
    }
    Err(worst)
}

fn shown(found: &Found) -> PathBuf {
    found.dir.shown(&found.name)
}

/// Refuses a thread whose newest segment is archived or cannot be used: what is left is its history from before it was
/// reverted, which nobody asked for.
fn whole(usable: &[Usable], bad: &[(Found, String)], put_away: &[Usable]) -> Result<(), Lost> {
    let newest = usable.iter().map(|u| &u.found.name).max();
    let newer = |f: &Found| {
        let known = usable.iter().any(|u| u.found.named.segment == f.named.segment);
        f.named.segment.is_some() && !known && Some(&f.name) > newest
    };
    if let Some((found, why)) = bad.iter().find(|(f, _)| newer(f)) {
        return Err(Lost::Unusable(shown(found), format!("the newest part of the thread: {why}")));
    }
    match put_away.iter().find(|u| newer(&u.found)) {
        Some(segment) => Err(Lost::Archived(shown(&segment.found))),
        None => Ok(()),
    }
}

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
        // Several homes and stores are looked into: which one is meant has to be told.
        let shown = |path: &Path| dir.shown(path.strip_prefix(at).unwrap_or(path));
        out.problems.extend(found.problems.drain(..).map(|(path, why)| (shown(&path), why)));
    }
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

/// Files that can be used, and those that cannot, with why.
fn judge(candidates: Vec<Found>, within: &[PathBuf]) -> (Vec<Usable>, Vec<(Found, String)>) {
    let mut usable = Vec::new();
    let mut bad = Vec::new();
    for found in candidates {
        let stat = found.stat().ok().flatten();
        let (size, mtime, links) = stat.map_or((0, 0, 0), |s| (s.size, s.mtime_ms, s.links));
        let mut take = |found, meta| usable.push(Usable { found, meta, size, mtime, links });
        match found.head(within) {
            Head::Carries(meta) => take(found, Some(meta)),
            Head::Unverified(_) => take(found, None),
            Head::Another(id) => bad.push((found, format!("its header names thread {id}"))),
            Head::Closed(why) => bad.push((found, format!("cannot be opened: {why}"))),
            Head::Nothing(why) => bad.push((found, why.into())),
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
