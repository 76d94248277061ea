//! One pass over a history: every line that a detached rollout is made of, in order, in bounded memory.

use std::io::{self, Write};

use threadkeep_record::{Envelope, HistoryMode, Kind, LineState, SessionMeta, ThreadId, UtcMillis, check_line, sniff};
use threadkeep_rollout::lineage::Span;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::{BUFFER, LineReader, RawLine};

use super::header::{Changes, beginning, placeholder};
use super::{DetachError, Flattened, Subject};

/// Headers are held whole up to here: released writers make at most some hundred KB.
const LONGEST_HEADER: usize = 64 << 20;

/// Writes a history as one rollout.
pub fn write(subject: &Subject<'_>, into: &mut dyn Write) -> Result<Flattened, DetachError> {
    let history = subject.history;
    let header = checked_header(subject)?;
    let mut out = Out { into, done: Flattened::default() };
    out.line(&header)?;
    for (i, span) in history.spans.iter().enumerate() {
        out.span(span, i == 0)?;
    }
    out.into.flush().map_err(|source| DetachError::Write { source })?;
    Ok(out.done)
}

/// The header of the rollout, when the history can be written as one.
fn checked_header(subject: &Subject<'_>) -> Result<Vec<u8>, DetachError> {
    let (id, history) = (subject.id, subject.history);
    if !history.missing.is_empty() {
        return Err(DetachError::Missing { id, what: history.missing.iter().map(ToString::to_string).collect() });
    }
    let mut records = Vec::with_capacity(history.spans.len());
    for span in &history.spans {
        let record = header_record(span)?;
        let meta = SessionMeta::parse(&record).unwrap_or_default();
        records.push((span, record, meta));
    }
    let (Some((first, _, root)), Some((last, record, own))) = (records.first(), records.last()) else {
        return Err(DetachError::NoFiles { id });
    };
    let refused = |span: &Span, why: String| DetachError::Refused { path: span.path.clone(), why };
    if own.id != Some(id) {
        return Err(refused(last, format!("its header is not that of thread {id}")));
    }
    let mode = |meta: &SessionMeta| meta.history_mode.unwrap_or(HistoryMode::Legacy);
    if mode(own) == HistoryMode::Unknown {
        return Err(refused(last, "it is kept in a history mode that this version does not know".into()));
    }
    for (span, _, meta) in &records {
        if mode(meta) != mode(own) {
            return Err(refused(span, "its records are kept in another mode than the thread's".into()));
        }
        if meta.base_is_unread {
            return Err(refused(span, "where its history begins cannot be understood".into()));
        }
    }
    // A chain that is longer than what is followed ends early without anything that is missing.
    if root.history_base.is_some() {
        return Err(refused(first, "its history begins in yet another file".into()));
    }
    // The context of a parent agent at the beginning stays context, also in a fork of the agent's thread.
    let context_end = root.subagent_history_start_ordinal.filter(|_| own.subagent_history_start_ordinal.is_none());
    let ordinal = own.ordinal.map(|_| root.ordinal.unwrap_or(0));
    // A later rollout of a thread is dated when it was reverted, and the thread was made with its first one.
    let made = first_made(subject).filter(|made| Some(*made) != own.created_at);
    beginning(record, &Changes { ordinal, context_end, made })
        .ok_or_else(|| refused(last, "its header has another form".into()))
}

/// When the thread was made, by its first rollout.
fn first_made(subject: &Subject<'_>) -> Option<UtcMillis> {
    let first = subject.members.iter().filter(|m| m.entry.name.segment.is_none());
    first.filter_map(|m| m.facts.header.as_ref().filter(|h| h.id == Some(subject.id))?.created_at).min()
}

/// The first header of a rollout, as its bytes.
fn header_record(span: &Span) -> Result<Vec<u8>, DetachError> {
    let refused = |why: &str| DetachError::Refused { path: span.path.clone(), why: why.into() };
    if span.form == Form::Json {
        return Err(refused("it is a file of the TypeScript command, which is only read"));
    }
    let mut lines = open(span, 64 << 10)?.with_limit(LONGEST_HEADER);
    while let Some(line) = lines.next_line() {
        if line.long {
            return Err(refused("its header is too long"));
        }
        if let LineState::Record(record) = check_line(line.bytes)
            && SessionMeta::parse(record).is_some()
        {
            return Ok(record.to_vec());
        }
    }
    match lines.error() {
        Some(e) => Err(unreadable(span, io::Error::new(e.kind(), e.to_string()))),
        None => Err(refused("it has no header")),
    }
}

fn open(span: &Span, buffer: usize) -> Result<LineReader, DetachError> {
    LineReader::open(&span.path, span.form, span.follow, buffer).map_err(|e| unreadable(span, e))
}

fn unreadable(span: &Span, source: io::Error) -> DetachError {
    DetachError::Read { path: span.path.clone(), source }
}

struct Out<'w> {
    into: &'w mut dyn Write,
    done: Flattened,
}

impl Out<'_> {
    fn line(&mut self, bytes: &[u8]) -> Result<(), DetachError> {
        let done = self.into.write_all(bytes).and_then(|()| self.into.write_all(b"\n"));
        done.map_err(|source| DetachError::Write { source })?;
        self.done.lines += 1;
        self.done.bytes += bytes.len() as u64 + 1;
        Ok(())
    }

    /// Writes the lines of a span up to its end. The very first header is the one that was written already.
    fn span(&mut self, span: &Span, first: bool) -> Result<(), DetachError> {
        let mut lines = open(span, BUFFER)?;
        let (mut headers, mut reached) = (0, Reached::default());
        while let Some(line) = lines.next_line() {
            if span.is_past(&line) {
                reached.past = true;
                break;
            }
            let place = Place::of(&line);
            if let Some(owner) = header_of(&line, span, headers == 0) {
                if !first || headers > 0 {
                    let held = placeholder(line.bytes, owner);
                    self.line(&held)?;
                    self.done.headers += 1;
                }
                headers += 1;
                reached.at(place);
            } else if line.long {
                if self.long(&mut lines)? {
                    reached.at(place);
                }
            } else if line.terminated
                || matches!(check_line(line.bytes), LineState::Record(_) | LineState::Recovered(..))
            {
                self.line(line.bytes)?;
                reached.at(place);
            } else if !line.bytes.is_empty() {
                self.done.torn += 1;
            }
        }
        if let Some(e) = lines.error() {
            return Err(unreadable(span, io::Error::new(e.kind(), e.to_string())));
        }
        match span.end {
            Some(end) if !reached.is_at(end.ordinal, end.offset) => Err(DetachError::Refused {
                path: span.path.clone(),
                why: format!(
                    "it ends at ordinal {}, and the history goes on from {}",
                    reached.next.unwrap_or(0),
                    end.ordinal
                ),
            }),
            _ => Ok(()),
        }
    }

    /// A line that is not held: written as it comes. Returns whether a line feed ended it.
    fn long(&mut self, lines: &mut LineReader) -> Result<bool, DetachError> {
        let mut failed = None;
        let (length, terminated) = lines.stream_long(|part| {
            if failed.is_none() {
                failed = self.into.write_all(part).err();
            }
        });
        let end = failed.map_or_else(|| self.into.write_all(b"\n"), Err);
        end.map_err(|source| DetachError::Write { source })?;
        self.done.lines += 1;
        self.done.bytes += length + 1;
        Ok(terminated)
    }
}

/// Whose header a line is; `None` for all other lines. Damaged lines are none: no reader takes them for a header.
fn header_of(line: &RawLine<'_>, span: &Span, is_first: bool) -> Option<Option<ThreadId>> {
    let quick = sniff::sniff(line.bytes);
    if quick.is_some_and(|s| s.kind != Kind::SessionMeta) || quick.is_none() && line.long {
        return None;
    }
    if line.long {
        return Some(span.thread_id.filter(|_| is_first));
    }
    let LineState::Record(record) = check_line(line.bytes) else { return None };
    SessionMeta::parse(record).map(|meta| meta.id)
}

/// Where a line stands.
#[derive(Clone, Copy)]
struct Place {
    ordinal: Option<u64>,
    /// The offset behind it; of a long line, behind its head.
    end: u64,
}

impl Place {
    fn of(line: &RawLine<'_>) -> Self {
        let parsed = || (!line.long).then(|| Envelope::parse(line.bytes).and_then(|e| e.ordinal)).flatten();
        let ordinal = sniff::sniff(line.bytes).map_or_else(parsed, |s| s.ordinal);
        Self { ordinal, end: line.offset + line.bytes.len() as u64 + u64::from(line.terminated && !line.long) }
    }
}

/// How far a span was read, in whole lines.
#[derive(Default)]
struct Reached {
    /// The line behind the end was met.
    past: bool,
    /// The ordinal behind the highest one.
    next: Option<u64>,
    /// The offset behind the last line.
    end: u64,
}

impl Reached {
    fn at(&mut self, place: Place) {
        self.next = self.next.max(place.ordinal.and_then(|n| n.checked_add(1)));
        self.end = place.end;
    }

    /// Whether that is where the history goes on. A file that was cut or replaced has neither the ordinals nor the
    /// bytes that the next one relies on.
    fn is_at(&self, ordinal: u64, offset: u64) -> bool {
        self.past || self.next.is_some_and(|n| n >= ordinal) || offset > 0 && self.end >= offset
    }
}
