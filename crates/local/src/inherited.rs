//! The part of a copied fork that is its parent's.
//!
//! Until references came, a fork copied its parent's records after its own header, with the time of the copy. Text and
//! tokens in that part are the parent's and must not count twice.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use threadkeep_record::fold::{Check, Fold};
use threadkeep_record::{Envelope, Kind, SessionMeta, ThreadId, TokenUsage, UtcMillis, damage, sniff};
use threadkeep_rollout::lineage::Member;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_rollout::source::Follow;

use crate::catalog::Catalog;

/// Where the copied part ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopiedPrefix {
    /// Offset of the first record that is the fork's own.
    pub end: u64,
    /// Token counts at that place.
    pub tokens: TokenUsage,
}

/// Records of a copy are written in one go; a longer pause than this between two is the person's.
const BURST_MS: i64 = 5;

/// A copy leaves records of the parent out at times; a match is looked for this far ahead.
const LOOK_AHEAD: usize = 64;

/// Finds the copied part of a fork. With the parent's file it ends at the first record whose payload the parent does
/// not have next; without it, where turns begin that were started after the fork was made or after a pause.
#[must_use]
pub fn copied_prefix(own: &Path, form: Form, parent: Option<(&Path, Form)>) -> Option<CopiedPrefix> {
    let mut lines = LineReader::open(own, form, Follow::Links, BUFFER).ok()?;
    let first = SessionMeta::parse(damage::trim(lines.next_line()?.bytes))?;
    let made = first.created_at.or(first.record_time);
    let second = lines.next_line()?;
    let copied = SessionMeta::parse(damage::trim(second.bytes))?;
    if copied.id.is_none() || copied.id == first.id {
        return None;
    }
    let mut last_time = copied.record_time;
    let mut original = parent.and_then(|(path, form)| Original::open(path, form, copied.id));
    let mut fold = Fold::new(Check::Ends);
    let mut end = 0;
    while let Some(line) = lines.next_line() {
        let text = damage::trim(line.bytes);
        if text.is_empty() {
            continue;
        }
        let belongs = match &mut original {
            Some(original) => original.has_next(text, line.long),
            None => {
                let (time, turn_made) = times(text);
                let pause = matches!((last_time, time), (Some(a), Some(b)) if b.0 - a.0 > BURST_MS);
                last_time = time.or(last_time);
                match (turn_made, made) {
                    (Some(turn), Some(made)) => turn < made,
                    _ => !pause,
                }
            }
        };
        if !belongs {
            return Some(CopiedPrefix { end: line.offset, tokens: fold.tokens().unwrap_or_default() });
        }
        end = line.offset + line.bytes.len() as u64 + 1;
        fold.line(line.into());
    }
    Some(CopiedPrefix { end, tokens: fold.tokens().unwrap_or_default() })
}

/// The part of a file of a home that was copied from `parent`, whose own file is compared where it is in the home.
#[must_use]
pub fn copied_from(catalog: &Catalog, own: &Member, parent: ThreadId) -> Option<CopiedPrefix> {
    let parent = catalog.group(parent).and_then(|g| g.files.first()).map(|i| &catalog.files[*i as usize]);
    let parent = parent.map(|f| (f.path_in(catalog.home.path()), f.name.form));
    let path = own.entry.path_in(catalog.home.path());
    copied_prefix(&path, own.entry.name.form, parent.as_ref().map(|(p, form)| (p.as_path(), *form)))
}

/// The record's time, and for the start of a turn when that turn was made (its id is a v7 UUID).
fn times(record: &[u8]) -> (Option<UtcMillis>, Option<UtcMillis>) {
    let Some(s) = sniff::sniff(record) else { return (None, None) };
    let time = std::str::from_utf8(s.timestamp).ok().and_then(UtcMillis::parse);
    let turn = (s.payload_type == b"task_started")
        .then(|| {
            let payload: serde_json::Value = serde_json::from_str(Envelope::parse(record)?.payload).ok()?;
            ThreadId::parse(payload.get("turn_id")?.as_str()?).ok()?.v7_millis().map(UtcMillis)
        })
        .flatten();
    (time, turn)
}

/// The parent's records, in order.
struct Original {
    lines: LineReader,
    waiting: std::collections::VecDeque<Content>,
}

impl Original {
    fn open(path: &Path, form: Form, id: Option<ThreadId>) -> Option<Self> {
        let mut lines = LineReader::open(path, form, Follow::Nothing, BUFFER).ok()?;
        let header = SessionMeta::parse(damage::trim(lines.next_line()?.bytes))?;
        (header.id == id).then(|| Self { lines, waiting: std::collections::VecDeque::new() })
    }

    fn has_next(&mut self, record: &[u8], long: bool) -> bool {
        let wanted = content(record, long);
        while self.waiting.len() < LOOK_AHEAD {
            let Some(line) = self.lines.next_line() else { break };
            let text = damage::trim(line.bytes);
            if !text.is_empty() {
                self.waiting.push_back(content(text, line.long));
            }
        }
        match self.waiting.iter().position(|w| *w == wanted) {
            Some(at) => {
                self.waiting.drain(..=at);
                true
            }
            // A header that was repeated in the copy is no sign of the end.
            None => Envelope::parse(record).is_some_and(|e| e.kind == Kind::SessionMeta),
        }
    }
}

/// A record without its time, as length and hash of its payload: some records are megabytes long.
type Content = (usize, u64);

fn content(record: &[u8], long: bool) -> Content {
    let envelope;
    let payload = match sniff::sniff(record) {
        Some(s) => &record[s.payload_at..],
        None if long => record,
        None => {
            envelope = Envelope::parse(record);
            envelope.as_ref().map_or(record, |e| e.payload.as_bytes())
        }
    };
    let mut hasher = DefaultHasher::new();
    payload.hash(&mut hasher);
    (payload.len(), hasher.finish())
}
