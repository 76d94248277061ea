//! The records of a rollout in order: each line with its place, its state, and nothing lost.

use std::io;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use threadkeep_record::fold::FoldLine;

use crate::block::{Block, BlockReader};
use crate::name::Form;
use crate::source::{Follow, Stream, open_stream};

/// A line of a rollout, without its line feed.
#[derive(Debug, Clone, Copy)]
pub struct RawLine<'a> {
    /// Its bytes; for a long line its head.
    pub bytes: &'a [u8],
    /// Where it begins; in a compressed file, in the decompressed stream.
    pub offset: u64,
    /// Its number in the file, from 1.
    pub number: u64,
    /// Whether a line feed ends it.
    pub terminated: bool,
    /// Whether it is longer than what is held, so that `bytes` is only its head.
    pub long: bool,
}

impl<'a> From<RawLine<'a>> for FoldLine<'a> {
    fn from(line: RawLine<'a>) -> Self {
        let RawLine { bytes, offset, number, terminated, long } = line;
        Self { bytes, offset, number, terminated, long }
    }
}

/// The largest file of the TypeScript command that is read. It is one JSON object, so it is held whole.
const MAX_JSON_FILE: u64 = 1 << 30;

/// A reader of lines.
pub struct LineReader {
    inner: Inner,
}

enum Inner {
    /// `rest` of the block is not given yet; `last` is where the line given last begins in it.
    Blocks {
        reader: BlockReader<Stream>,
        rest: Range<usize>,
        number: u64,
        last: usize,
    },
    Items {
        data: Vec<u8>,
        ranges: Vec<Range<usize>>,
        next: usize,
        number: u64,
        error: Option<io::Error>,
    },
}

impl LineReader {
    /// Opens a rollout. `buffer` is the read size: small for heads, [`crate::records::BUFFER`] for whole files.
    pub fn open(path: &Path, form: Form, follow: Follow, buffer: usize) -> io::Result<Self> {
        let mut stream = open_stream(path, form, follow)?;
        if form == Form::Json {
            let mut data = Vec::new();
            io::Read::read_to_end(&mut io::Read::take(&mut stream, MAX_JSON_FILE), &mut data)?;
            let (ranges, error) = json_items(&data);
            return Ok(Self { inner: Inner::Items { data, ranges, next: 0, number: 0, error } });
        }
        Ok(Self::over(stream, buffer))
    }

    /// Opens a rollout at the line that begins at `offset` and has the number `number`. In a plain file nothing before
    /// it is read.
    pub fn open_at(
        path: &Path,
        form: Form,
        follow: Follow,
        buffer: usize,
        offset: u64,
        number: u64,
    ) -> io::Result<Self> {
        if form == Form::Plain {
            use std::io::{Seek, SeekFrom};
            let mut file = crate::source::open_file(path, follow)?;
            file.seek(SeekFrom::Start(offset))?;
            let reader = BlockReader::new(Box::new(file) as Stream, buffer).at(offset);
            return Ok(Self { inner: Inner::Blocks { reader, rest: 0..0, number: number.saturating_sub(1), last: 0 } });
        }
        let mut lines = Self::open(path, form, follow, buffer)?;
        for _ in 1..number {
            if lines.next_line().is_none() {
                break;
            }
        }
        Ok(lines)
    }

    /// Reads lines from any stream.
    #[must_use]
    pub fn over(stream: Stream, buffer: usize) -> Self {
        Self { inner: Inner::Blocks { reader: BlockReader::new(stream, buffer), rest: 0..0, number: 0, last: 0 } }
    }

    /// Holds lines of up to `limit` bytes whole.
    #[must_use]
    pub fn with_limit(self, limit: usize) -> Self {
        match self.inner {
            Inner::Blocks { reader, rest, number, last } => {
                Self { inner: Inner::Blocks { reader: reader.with_limit(limit), rest, number, last } }
            }
            items @ Inner::Items { .. } => Self { inner: items },
        }
    }

    /// The next line, `None` at the end.
    pub fn next_line(&mut self) -> Option<RawLine<'_>> {
        match &mut self.inner {
            Inner::Items { data, ranges, next, number, .. } => {
                let range = ranges.get(*next)?.clone();
                *next += 1;
                *number += 1;
                Some(RawLine {
                    bytes: &data[range.clone()],
                    offset: range.start as u64,
                    number: *number,
                    terminated: true,
                    long: false,
                })
            }
            Inner::Blocks { reader, rest, number, last } => {
                if rest.start >= rest.end {
                    match reader.next_block()? {
                        Block::Lines(range) => *rest = range,
                        Block::LongHead(range) => {
                            *number += 1;
                            let offset = reader.offset(range.start);
                            return Some(RawLine {
                                bytes: reader.bytes(range),
                                offset,
                                number: *number,
                                terminated: true,
                                long: true,
                            });
                        }
                    }
                }
                let start = rest.start;
                *last = start;
                let end = memchr::memchr(b'\n', reader.bytes(rest.clone()));
                *number += 1;
                let (line, terminated) = match end {
                    Some(n) => {
                        rest.start += n + 1;
                        (start..start + n, true)
                    }
                    None => {
                        let line = rest.clone();
                        rest.start = rest.end;
                        (line, false)
                    }
                };
                let offset = reader.offset(start);
                Some(RawLine { bytes: reader.bytes(line), offset, number: *number, terminated, long: false })
            }
        }
    }

    /// Gives the last line again on the next call. Not for long lines, and only once.
    pub fn step_back(&mut self) {
        match &mut self.inner {
            Inner::Blocks { rest, number, last, .. } => {
                rest.start = *last;
                *number -= 1;
            }
            Inner::Items { next, number, .. } => {
                *next -= 1;
                *number -= 1;
            }
        }
    }

    /// After a long line: streams all its bytes. Returns its length and whether a line feed ended it.
    pub fn stream_long(&mut self, sink: impl FnMut(&[u8])) -> (u64, bool) {
        match &mut self.inner {
            Inner::Blocks { reader, .. } => reader.stream_long(sink),
            Inner::Items { .. } => (0, true),
        }
    }

    /// Why the stream ended early, if it did.
    #[must_use]
    pub fn error(&self) -> Option<&io::Error> {
        match &self.inner {
            Inner::Blocks { reader, .. } => reader.error(),
            Inner::Items { error, .. } => error.as_ref(),
        }
    }
}

/// A read size that stays in a core's second-level cache.
pub const BUFFER: usize = 128 << 10;

/// The header and the items of a TypeScript command's file, as ranges of its text. A damaged file gives what stands
/// before the damage.
fn json_items(data: &[u8]) -> (Vec<Range<usize>>, Option<io::Error>) {
    #[derive(Deserialize)]
    struct Whole<'a> {
        #[serde(borrow)]
        session: &'a RawValue,
        #[serde(borrow)]
        items: Vec<&'a RawValue>,
    }
    let range = |raw: &str| {
        let at = raw.as_ptr() as usize - data.as_ptr() as usize;
        at..at + raw.len()
    };
    let error = match serde_json::from_slice::<Whole<'_>>(data) {
        Ok(whole) => {
            return (std::iter::once(whole.session).chain(whole.items).map(|r| range(r.get())).collect(), None);
        }
        Err(e) => io::Error::new(io::ErrorKind::InvalidData, e),
    };
    let mut ranges = Vec::new();
    let value_at = |at: usize| {
        let mut values = serde_json::Deserializer::from_slice(&data[at..]).into_iter::<&RawValue>();
        values.next()?.ok().map(|r| range(r.get()))
    };
    let after = |key: &[u8]| {
        Some(memchr::memmem::find(data, key)? + key.len())
            .map(|at| at + data[at..].iter().take_while(|b| b.is_ascii_whitespace() || **b == b':').count())
    };
    ranges.extend(after(b"\"session\"").and_then(value_at));
    if let Some(mut at) = after(b"\"items\"").filter(|at| data.get(*at) == Some(&b'[')) {
        at += 1;
        while let Some(item) = value_at(at) {
            at = item.end + data[item.end..].iter().take_while(|b| b.is_ascii_whitespace() || **b == b',').count();
            ranges.push(item);
        }
    }
    (ranges, Some(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_json_file_gives_what_is_whole() {
        let whole = br#"{"session":{"id":"a"},"items":[{"role":"user"},{"role":"assistant"}]}"#;
        let (ranges, error) = json_items(whole);
        assert_eq!((ranges.len(), error.is_none()), (3, true));
        let (ranges, error) = json_items(&whole[..whole.len() - 8]);
        assert_eq!((ranges.len(), error.is_some()), (2, true));
        assert_eq!(&whole[ranges[1].clone()], br#"{"role":"user"}"#);
        assert_eq!(json_items(b"nonsense").0.len(), 0);
    }
}
