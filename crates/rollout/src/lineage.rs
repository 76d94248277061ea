//! Which files make up a thread, and in what order they tell its history.
//!
//! A thread may be several files: segments that continue an earlier rollout of the same thread (`history_base` naming
//! itself), compressed and plain forms of one rollout, and copies that someone made. Its history is the chain of
//! prefixes below its newest segment, which for a fork by reference reaches into the files of other threads.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use threadkeep_record::damage::DamageReason;
use threadkeep_record::{Envelope, ThreadId, sniff};

use crate::facts::FileFacts;
use crate::home::Home;
use crate::name::Form;
use crate::records::RawLine;
use crate::source::{Follow, open_stream};
use crate::walk::{FileEntry, Place};

/// A file of a thread with what was read of it.
#[derive(Debug, Clone)]
pub struct Member {
    /// The file.
    pub entry: FileEntry,
    /// What it tells.
    pub facts: FileFacts,
}

/// What a file is to its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The newest part, which a writer appends to.
    Head,
    /// An earlier part.
    Segment,
    /// Another file that says the same, or an older form of it.
    Copy,
}

/// The files of one thread, sorted out.
#[derive(Debug, Clone)]
pub struct Assembly {
    /// Index of the head in the members.
    pub head: usize,
    /// Role of each member.
    pub roles: Vec<Role>,
    /// What is wrong with some of them.
    pub notes: Vec<(usize, DamageReason)>,
}

fn continues_itself(m: &Member, id: Option<ThreadId>) -> bool {
    m.entry.name.segment.is_some()
        || m.facts.header.as_ref().and_then(|h| h.history_base.as_ref()).is_some_and(|b| Some(b.thread_id) == id)
}

/// Sorts out the files that carry one thread id. `home` is only needed to compare files that say they are the same.
#[must_use]
pub fn assemble(home: &Home, id: Option<ThreadId>, members: &[Member]) -> Assembly {
    let mut roles = vec![Role::Copy; members.len()];
    let mut notes = Vec::new();
    let mut roots: Vec<usize> = (0..members.len()).filter(|i| !continues_itself(&members[*i], id)).collect();
    let mut later: Vec<usize> = (0..members.len()).filter(|i| continues_itself(&members[*i], id)).collect();
    // The best first: a header before none, an active place before an archived one, Codex's spelling before others,
    // then the one that was written last.
    let worth = |i: &usize| {
        let m = &members[*i];
        (
            m.facts.header.is_some(),
            m.entry.place != Place::Archived,
            m.entry.name.canonical,
            m.facts.last_time,
            m.entry.size,
        )
    };
    roots.sort_by(|a, b| worth(b).cmp(&worth(a)).then_with(|| members[*a].entry.path().cmp(&members[*b].entry.path())));
    if let Some(best) = roots.first().copied() {
        let best = settle_twins(home, members, &roots, best, &mut notes);
        for other in roots.iter().filter(|i| **i != best) {
            // The compressed form of a plain file that has all of it is no damage.
            let twin = logical(&members[*other]) == logical(&members[best]);
            if !twin && !notes.iter().any(|(i, _)| i == other) {
                notes.push((
                    *other,
                    DamageReason::Duplicate(format!(
                        "another file of the same thread: {}",
                        members[best].entry.path().display()
                    )),
                ));
            }
        }
        roles[best] = if later.is_empty() { Role::Head } else { Role::Segment };
    }
    // Newest segment last, by when it was made.
    let made = |i: &usize| {
        let m = &members[*i];
        let header = m.facts.header.as_ref();
        (
            header.and_then(|h| h.record_time.or(h.created_at)),
            m.entry.name.segment.and_then(|s| s.v7_millis()),
            m.entry.path(),
        )
    };
    later.sort_by_key(made);
    for i in &later {
        roles[*i] = Role::Segment;
    }
    let head = later.last().copied().or_else(|| roles.iter().position(|r| *r == Role::Head)).unwrap_or(0);
    if let Some(role) = roles.get_mut(head) {
        *role = Role::Head;
    }
    Assembly { head, roles, notes }
}

/// The path of the plain form.
fn logical(m: &Member) -> String {
    m.entry.path().to_string_lossy().trim_end_matches(".zst").to_owned()
}

/// Where a plain file and its compressed form both stand, the plain one counts if it extends the other. If it is the
/// shorter one it was cut while it was written out, and the compressed one has everything.
fn settle_twins(
    home: &Home,
    members: &[Member],
    roots: &[usize],
    best: usize,
    notes: &mut Vec<(usize, DamageReason)>,
) -> usize {
    let twin = roots.iter().copied().find(|i| *i != best && logical(&members[*i]) == logical(&members[best]));
    let Some(twin) = twin else { return best };
    let (plain, packed) = if members[best].entry.name.form == Form::Zstd { (twin, best) } else { (best, twin) };
    if members[plain].facts.header.is_none() {
        notes.push((
            plain,
            DamageReason::Duplicate(
                "a plain file without a header beside its compressed form; the compressed form is read".into(),
            ),
        ));
        return packed;
    }
    match compare(&members[plain].entry.path_in(home.path()), &members[packed].entry.path_in(home.path())) {
        Relation::Equal | Relation::Extends => plain,
        Relation::Shorter => {
            notes.push((
                plain,
                DamageReason::Duplicate("shorter than its compressed form, which is read instead".into()),
            ));
            packed
        }
        Relation::Differs => {
            notes.push((
                packed,
                DamageReason::Duplicate(
                    "the compressed form differs from its plain file; the plain file is read".into(),
                ),
            ));
            plain
        }
    }
}

/// How one file's records relate to another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// The same bytes.
    Equal,
    /// The first begins with all of the second.
    Extends,
    /// The second begins with all of the first.
    Shorter,
    /// Neither.
    Differs,
}

/// Compares the decoded bytes of a plain and a compressed file (or any two, by their names).
#[must_use]
pub fn compare(first: &Path, second: &Path) -> Relation {
    let form = |p: &Path| if p.to_string_lossy().ends_with(".zst") { Form::Zstd } else { Form::Plain };
    let open = |p: &Path| open_stream(p, form(p), Follow::Links);
    let (Ok(mut a), Ok(mut b)) = (open(first), open(second)) else { return Relation::Differs };
    let (mut x, mut y) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let n = fill(&mut a, &mut x);
        let m = fill(&mut b, &mut y);
        let (Some(n), Some(m)) = (n, m) else { return Relation::Differs };
        let common = n.min(m);
        if x[..common] != y[..common] {
            return Relation::Differs;
        }
        match n.cmp(&m) {
            std::cmp::Ordering::Equal if n == 0 => return Relation::Equal,
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Greater => return Relation::Extends,
            std::cmp::Ordering::Less => return Relation::Shorter,
        }
    }
}

/// Reads until the buffer is full or the stream ends.
fn fill(stream: &mut impl Read, into: &mut [u8]) -> Option<usize> {
    let mut n = 0;
    while n < into.len() {
        match stream.read(&mut into[n..]) {
            Ok(0) => break,
            Ok(k) => n += k,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(n)
}

/// A part of a history: one file, up to a point.
#[derive(Debug, Clone)]
pub struct Span {
    /// The file, as it can be opened.
    pub path: PathBuf,
    /// The file, as it is shown.
    pub shown: PathBuf,
    /// Its form.
    pub form: Form,
    /// Whether a link is followed to it.
    pub follow: Follow,
    /// The thread it belongs to.
    pub thread_id: Option<ThreadId>,
    /// What a `history_base` names it with: the segment's own id, for a thread's first rollout the thread's.
    pub rollout_id: Option<ThreadId>,
    /// Where the prefix ends; `None` for the newest part.
    pub end: Option<SpanEnd>,
    /// Whether it belongs to another thread.
    pub inherited: bool,
}

/// The end of a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanEnd {
    /// Records from this ordinal on are not part of it.
    pub ordinal: u64,
    /// Bytes from here on are not part of it, where the records have no ordinals.
    pub offset: u64,
}

impl Span {
    /// Whether a line lies behind the end of this span.
    #[must_use]
    pub fn is_past(&self, line: &RawLine<'_>) -> bool {
        let Some(end) = self.end else { return false };
        let ordinal = match sniff::sniff(line.bytes) {
            Some(s) => s.ordinal,
            None if line.long => None,
            None => Envelope::parse(line.bytes).and_then(|e| e.ordinal),
        };
        match ordinal {
            Some(n) => n >= end.ordinal,
            // Records without ordinals, and damaged lines, are told by their place.
            None => end.offset > 0 && line.offset >= end.offset,
        }
    }
}

/// The history of a thread, oldest part first, and what is missing of it.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// Its parts.
    pub spans: Vec<Span>,
    /// Why it is not whole.
    pub missing: Vec<DamageReason>,
    /// The rollouts of other threads that it refers to, whether they are there or not.
    pub asked: Vec<ThreadId>,
}

/// Chains are no longer than this; a longer one is a loop or not a history.
const MAX_CHAIN: usize = 512;

/// Follows the chain of bases from a thread's head. `find` gives the files of a thread by its id or that of one of its
/// segments: a base names a rollout, which only for a thread's first one is the thread (as 0.171 writes it).
pub fn history(
    home: &Home,
    id: Option<ThreadId>,
    members: &[Member],
    head: usize,
    find: &mut dyn FnMut(ThreadId) -> Vec<Member>,
) -> History {
    let mut out = History::default();
    let Some(mut current) = members.get(head).cloned() else { return out };
    let mut owner = id;
    let mut end = None;
    for _ in 0..MAX_CHAIN {
        out.spans.push(span(home, &current, owner, end, owner != id));
        let Some(base) = current.facts.header.as_ref().and_then(|h| h.history_base.clone()) else {
            out.spans.reverse();
            return out;
        };
        let seen: Vec<PathBuf> = out.spans.iter().map(|s| s.path.clone()).collect();
        let is_named = |m: &Member| m.entry.name.segment == Some(base.thread_id);
        let own = Some(base.thread_id) == id || members.iter().any(is_named);
        if !own {
            out.asked.push(base.thread_id);
        }
        let mut candidates: Vec<Member> = if own { members.to_vec() } else { find(base.thread_id) };
        if candidates.iter().any(is_named) {
            candidates.retain(is_named);
        }
        candidates.retain(|m| !seen.contains(&m.entry.path_in(home.path())));
        end = Some(SpanEnd { ordinal: base.end_ordinal_exclusive, offset: base.end_byte_offset });
        match choose_base(home, &candidates, base.end_ordinal_exclusive, base.end_byte_offset) {
            Some(next) => {
                owner = if own {
                    id
                } else if is_named(&next) {
                    next.facts.header.as_ref().and_then(|h| h.id).or(next.entry.name.id)
                } else {
                    Some(base.thread_id)
                };
                current = next;
            }
            None => {
                let what = if own { "an earlier segment of this thread" } else { "the thread it was forked from" };
                out.missing.push(DamageReason::BaseMissing(format!(
                    "{what} ({}, up to ordinal {}) is not in the home",
                    base.thread_id, base.end_ordinal_exclusive
                )));
                break;
            }
        }
    }
    out.spans.reverse();
    out
}

fn span(home: &Home, m: &Member, owner: Option<ThreadId>, end: Option<SpanEnd>, inherited: bool) -> Span {
    let follow =
        if m.entry.place == Place::Outside || m.entry.path().is_absolute() { Follow::Links } else { Follow::Nothing };
    Span {
        path: m.entry.path_in(home.path()),
        shown: m.entry.path(),
        form: m.entry.name.form,
        follow,
        thread_id: owner,
        rollout_id: m.entry.name.segment.or(owner),
        end,
        inherited,
    }
}

/// The file that a prefix ends in: the latest one that begins before the end and reaches it, a record boundary at the
/// recorded offset counting most.
fn choose_base(home: &Home, candidates: &[Member], ordinal: u64, offset: u64) -> Option<Member> {
    let begins = |m: &Member| m.facts.header.as_ref().and_then(|h| h.ordinal).unwrap_or(0);
    let score = |m: &Member| {
        let plain = m.entry.name.form == Form::Plain;
        let reaches = !plain || m.entry.size >= offset;
        let boundary = plain && offset > 0 && ends_record(&m.entry.path_in(home.path()), offset);
        (
            m.facts.header.is_some(),
            begins(m) < ordinal,
            boundary,
            reaches,
            begins(m),
            m.entry.name.canonical,
            m.entry.place != Place::Archived,
        )
    };
    candidates.iter().filter(|m| begins(m) < ordinal).max_by_key(|m| score(m)).cloned()
}

#[cfg(unix)]
fn ends_record(path: &Path, offset: u64) -> bool {
    let mut byte = [0];
    File::open(path).is_ok_and(|f| std::os::unix::fs::FileExt::read_exact_at(&f, &mut byte, offset - 1).is_ok())
        && byte[0] == b'\n'
}

#[cfg(not(unix))]
fn ends_record(path: &Path, offset: u64) -> bool {
    use std::io::{Seek, SeekFrom};
    let mut byte = [0];
    let Ok(mut f) = File::open(path) else { return false };
    f.seek(SeekFrom::Start(offset - 1)).is_ok() && f.read_exact(&mut byte).is_ok() && byte[0] == b'\n'
}
