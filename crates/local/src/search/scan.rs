//! Scanning one rollout for a needle.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use threadkeep_record::json_stream::{Event, StringWalker};
use threadkeep_record::{
    Envelope, Item, ItemBody, Kind, LineState, Origin, Speaker, UtcMillis, check_line, damage, long, sniff, text,
};
use threadkeep_rollout::block::{Block, BlockReader};
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_rollout::source::{Follow, open_file, open_stream};
use threadkeep_store::snippet::snippet;

use super::needle::Needle;

/// A hit before it is placed in its thread.
#[derive(Debug, Clone)]
pub struct RawHit {
    /// Offset of the record.
    pub offset: u64,
    /// Who said it.
    pub speaker: Speaker,
    /// When.
    pub time: Option<UtcMillis>,
    /// Which account it stands in.
    pub origin: Origin,
    /// A message, which may stand in both accounts.
    pub message: bool,
    /// The call it belongs to.
    pub call_id: Option<String>,
    /// The turn it says it belongs to.
    pub turn_id: Option<String>,
    /// Ordinal of the record.
    pub ordinal: Option<u64>,
    /// The text around it.
    pub snippet: String,
    /// Place of the match in it, in characters.
    pub matched: [usize; 2],
    /// Hash of the whole text, to tell a second account.
    pub text: u64,
}

/// Longer ranges, which hold records that are not held whole, are left to the scan of the file.
const RANGE: usize = 4 << 20;

/// What a scan looks for.
#[derive(Clone, Copy)]
pub struct Scan<'n> {
    /// The needle.
    pub needle: &'n Needle,
    /// Only these speakers; empty is all.
    pub speakers: &'n [Speaker],
    /// Stop after so many hits.
    pub want: usize,
}

impl Scan<'_> {
    fn wants(&self, speaker: Speaker) -> bool {
        self.speakers.is_empty() || self.speakers.contains(&speaker)
    }

    /// Scans a file; `buffer` is reused over files.
    /// Beside the hits it tells why the file could not be read to its end, if so.
    pub fn file(
        &self,
        path: &Path,
        form: Form,
        size: u64,
        follow: Follow,
        buffer: &mut Vec<u8>,
    ) -> (Vec<RawHit>, Option<String>) {
        let mut hits = Vec::new();
        let told = |e: &std::io::Error| Some(format!("cannot search all of {}: {e}", path.display()));
        if form == Form::Json {
            let mut lines = match LineReader::open(path, form, follow, BUFFER) {
                Ok(lines) => lines,
                Err(e) => return (hits, told(&e)),
            };
            while let Some(line) = lines.next_line() {
                self.line(line.bytes, line.offset, &mut hits);
            }
            return (hits, lines.error().and_then(told));
        }
        let stream = match open_stream(path, form, follow) {
            Ok(stream) => stream,
            // Gone since the walk: archived or removed by someone else.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return (hits, None),
            Err(e) => return (hits, told(&e)),
        };
        if buffer.len() < BUFFER {
            buffer.resize(BUFFER, 0);
        }
        let mut blocks = BlockReader::with_buffer(stream, std::mem::take(buffer));
        if form == Form::Plain {
            blocks = blocks.expecting(size);
        }
        while let Some(block) = blocks.next_block() {
            match block {
                Block::Lines(range) => {
                    let base = blocks.offset(range.start);
                    self.lines(blocks.bytes(range), base, &mut hits);
                }
                Block::LongHead(range) => {
                    let offset = blocks.offset(range.start);
                    let head = blocks.bytes(range).to_vec();
                    self.long(&head, offset, &mut blocks, &mut hits);
                }
            }
            if hits.len() >= self.want {
                break;
            }
        }
        let problem = blocks.error().and_then(told);
        *buffer = blocks.into_buffer();
        (hits, problem)
    }

    /// Whether one of some byte ranges of whole records holds a hit. `None` where that cannot be told without a scan of
    /// the whole file.
    pub fn any_in(&self, path: &Path, follow: Follow, ranges: &[(u64, u64)], buffer: &mut Vec<u8>) -> Option<bool> {
        let mut file = open_file(path, follow).ok()?;
        let first = Scan { want: 1, ..*self };
        let mut hits = Vec::new();
        for (start, end) in ranges {
            let length = end.checked_sub(*start).and_then(|n| usize::try_from(n).ok()).filter(|n| *n <= RANGE)?;
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            let bytes = &mut buffer[..length];
            file.seek(SeekFrom::Start(*start)).ok()?;
            file.read_exact(bytes).ok()?;
            first.lines(bytes, *start, &mut hits);
            if !hits.is_empty() {
                return Some(true);
            }
        }
        Some(false)
    }

    /// Scans a block of whole lines.
    fn lines(&self, block: &[u8], base: u64, hits: &mut Vec<RawHit>) {
        let mut from = 0;
        while let Some(at) = self.needle.candidate(block, from) {
            let start = memchr::memrchr(b'\n', &block[..at]).map_or(0, |i| i + 1);
            let end = memchr::memchr(b'\n', &block[at..]).map_or(block.len(), |i| at + i);
            self.line(&block[start..end], base + start as u64, hits);
            from = end + 1;
            if from >= block.len() || hits.len() >= self.want {
                return;
            }
        }
    }

    fn line(&self, line: &[u8], offset: u64, hits: &mut Vec<RawHit>) {
        let trimmed = damage::trim(line);
        let sniffed = sniff::sniff(trimmed);
        if let Some(s) = &sniffed {
            let silent = matches!(
                s.kind,
                Kind::SessionMeta
                    | Kind::TurnContext
                    | Kind::WorldState
                    | Kind::TokenUsageRecord
                    | Kind::Compacted
                    | Kind::InterAgentMetadata
            );
            if silent || s.payload_type == b"token_count" || s.payload_type == b"ghost_snapshot" {
                return;
            }
        }
        match check_line(line) {
            LineState::Record(record) => self.record(record, offset, hits),
            LineState::Recovered(records, _) => records.iter().for_each(|r| self.record(r, offset, hits)),
            LineState::Blank | LineState::Damaged(_) => {}
        }
    }

    fn record(&self, record: &[u8], offset: u64, hits: &mut Vec<RawHit>) {
        let Some(envelope) = Envelope::parse(record) else { return };
        let item = Item::parse(&envelope);
        let mut found: Vec<Speaker> = Vec::new();
        for (speaker, piece) in text::pieces(&item) {
            // One hit for each speaker of a record, however often the text stands in it.
            if !self.wants(speaker) || found.contains(&speaker) {
                continue;
            }
            let Some((start, end)) = self.needle.find(&piece) else { continue };
            found.push(speaker);
            let (snippet, matched) = snippet(&piece, start, end);
            let message = matches!(item.body, ItemBody::UserMessage { .. } | ItemBody::AgentMessage { .. });
            push(
                hits,
                RawHit {
                    offset,
                    speaker,
                    time: envelope.time(),
                    origin: item.origin,
                    message,
                    call_id: item.call_id.clone(),
                    turn_id: item.turn_id.clone(),
                    ordinal: envelope.ordinal,
                    snippet,
                    matched,
                    text: hash(&piece),
                },
            );
        }
    }

    /// A record that is too long to hold: its strings are streamed through a window.
    fn long<R: std::io::Read>(&self, head: &[u8], offset: u64, blocks: &mut BlockReader<R>, hits: &mut Vec<RawHit>) {
        let Some(item) = long::item(head) else { return };
        let Some(speaker) = long::speaker(&item).filter(|k| self.wants(*k)) else { return };
        let (time, ordinal) = long::envelope(head);
        let hit = RawHit {
            offset,
            speaker,
            time,
            origin: item.origin,
            message: matches!(speaker, Speaker::User | Speaker::Agent),
            call_id: item.call_id,
            turn_id: item.turn_id,
            ordinal,
            snippet: String::new(),
            matched: [0, 0],
            text: offset,
        };
        let mut window = Window::new(self.needle);
        let mut inner: Option<(StringWalker, Window<'_>)> = None;
        let mut outer = StringWalker::default();
        blocks.stream_long(|part| {
            if window.found.is_some() {
                return;
            }
            outer.feed(part, &mut |walker, event| {
                let mut keys = walker.path().rev();
                let key = keys.next().unwrap_or("");
                if !is_readable_key(key) || keys.any(|k| k == "encrypted_content") {
                    return;
                }
                // A tool's arguments are JSON of their own inside the string.
                if key == "arguments" {
                    match event {
                        Event::Begin => inner = Some((StringWalker::default(), Window::new(self.needle))),
                        Event::Text(text) => {
                            if let Some((w, found)) = &mut inner {
                                w.feed(text.as_bytes(), &mut |_, e| found.take(&e));
                            }
                        }
                        Event::End => {
                            if let Some((_, found)) = inner.take() {
                                window.found = window.found.take().or(found.found);
                            }
                        }
                    }
                    return;
                }
                window.take(&event);
            });
        });
        if let Some((snippet, matched)) = window.found {
            push(hits, RawHit { snippet, matched, ..hit });
        }
    }
}

/// The last stretch of a streamed text, long enough for a match and what is shown before it.
struct Window<'n> {
    needle: &'n Needle,
    held: String,
    found: Option<(String, [usize; 2])>,
    skip: bool,
    /// Bytes at the front that were searched before and are kept for what is shown.
    searched: usize,
}

impl<'n> Window<'n> {
    fn new(needle: &'n Needle) -> Self {
        Self { needle, held: String::new(), found: None, skip: false, searched: 0 }
    }

    fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Begin => {
                self.held.clear();
                self.searched = 0;
                self.skip = false;
            }
            Event::Text(text) => {
                // A picture as a data URL is no text, wherever it stands.
                if self.held.is_empty() && text.starts_with("data:") && text.contains(";base64") {
                    self.skip = true;
                }
                if self.skip || self.found.is_some() {
                    return;
                }
                self.held.push_str(text);
                if self.held.len() > 64 << 10 {
                    self.search(false);
                }
            }
            Event::End => self.search(true),
        }
    }

    fn search(&mut self, at_end: bool) {
        if self.found.is_some() || self.skip {
            return;
        }
        let from = (0..=self.searched).rev().find(|i| self.held.is_char_boundary(*i)).unwrap_or(0);
        if let Some((start, end)) = self.needle.find(&self.held[from..]) {
            let (start, end) = (from + start, from + end);
            // Wait for the text behind the match, which is shown too.
            if at_end || self.held.len() - end > 1024 {
                self.found = Some(snippet(&self.held, start, end));
            }
            return;
        }
        // A match may begin in the last bytes; some more are kept for what stands before it.
        let keep = self.needle.chars * 4 + 1024;
        if self.held.len() > keep {
            let cut = (0..=self.held.len() - keep).rev().find(|i| self.held.is_char_boundary(*i)).unwrap_or(0);
            self.held.drain(..cut);
            self.searched = 1024.min(self.held.len()).saturating_sub(self.needle.chars * 4).min(self.held.len());
        }
    }
}

fn is_readable_key(key: &str) -> bool {
    matches!(
        key,
        "text"
            | "message"
            | "output"
            | "aggregated_output"
            | "content"
            | "input"
            | "arguments"
            | "unified_diff"
            | "objective"
            | "summary_text"
            | "raw_content"
            | "prompt"
            | "query"
    )
}

/// Adds a hit unless an earlier record told the same: the other account of a call, or of a piece of reasoning.
fn push(hits: &mut Vec<RawHit>, hit: RawHit) {
    let same_call = |h: &RawHit| {
        h.call_id.is_some() && h.call_id == hit.call_id && h.speaker == hit.speaker && h.origin != hit.origin
    };
    let same_text =
        |h: &RawHit| h.speaker == hit.speaker && h.text == hit.text && h.origin != hit.origin && !hit.message;
    let recent = hits.iter().rev().take(64);
    if recent.clone().any(same_call) || recent.take(8).any(same_text) {
        return;
    }
    hits.push(hit);
}

fn hash(text: &str) -> u64 {
    let mut h = DefaultHasher::new();
    text.trim().hash(&mut h);
    h.finish()
}
