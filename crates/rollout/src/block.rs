//! Reading a stream in blocks of whole lines.
//!
//! One buffer, reused: a block is every complete line that the last read brought. A line longer than the limit is
//! never held; its head is given and the rest can be streamed or skipped.

use std::io::{self, Read};
use std::ops::Range;

/// A record longer than this is read from its head and streamed, never held whole.
pub const LONG_LINE: usize = 8 << 20;

/// Bytes of a long line that are given at once.
pub const LONG_HEAD: usize = 64 << 10;

/// What the reader has next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    /// Whole lines, each with its line feed; the last block of a torn file ends without one.
    Lines(Range<usize>),
    /// The first bytes of a line that is longer than the limit.
    LongHead(Range<usize>),
}

/// A reader of line blocks.
pub struct BlockReader<R> {
    stream: R,
    buffer: Vec<u8>,
    /// Consumed and filled parts of the buffer.
    start: usize,
    end: usize,
    /// Offset in the stream of `buffer[0]`.
    base: u64,
    eof: bool,
    in_long: bool,
    limit: usize,
    error: Option<io::Error>,
    /// A read that stops short at or behind this offset ends the stream.
    expected: u64,
}

impl<R: Read> BlockReader<R> {
    /// A reader with a buffer of `size` bytes that holds lines of up to [`LONG_LINE`].
    pub fn new(stream: R, size: usize) -> Self {
        Self::with_buffer(stream, take_spare(size.max(256)))
    }

    /// A reader that uses a buffer from before: for many files, making one each time costs more than reading.
    pub fn with_buffer(stream: R, mut buffer: Vec<u8>) -> Self {
        if buffer.len() < 256 {
            buffer.resize(256, 0);
        }
        Self {
            stream,
            buffer,
            start: 0,
            end: 0,
            base: 0,
            eof: false,
            in_long: false,
            limit: LONG_LINE,
            error: None,
            expected: u64::MAX,
        }
    }

    /// The stream is a regular file that had `size` bytes a moment ago: a read that stops short there found its end,
    /// and asking again, which for many small files is half of all reads, tells nothing.
    #[must_use]
    pub fn expecting(mut self, size: u64) -> Self {
        self.expected = size;
        self
    }

    /// The buffer, for the next file.
    #[must_use]
    pub fn into_buffer(mut self) -> Vec<u8> {
        std::mem::take(&mut self.buffer)
    }

    /// Counts offsets from `base`: the stream begins there.
    #[must_use]
    pub fn at(mut self, base: u64) -> Self {
        self.base = base;
        self
    }

    /// Another limit for lines that are held (for tests, and for callers that want whole records).
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit.max(256);
        self
    }

    /// The bytes of a block. Valid until the next call of [`next_block`](Self::next_block).
    #[must_use]
    pub fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Offset in the stream of a place in the buffer.
    #[must_use]
    pub fn offset(&self, at: usize) -> u64 {
        self.base + at as u64
    }

    /// Why the stream ended early, if it did. What was read before it has been given.
    #[must_use]
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// The next block, `None` at the end.
    pub fn next_block(&mut self) -> Option<Block> {
        if self.in_long {
            self.skip_long();
        }
        // What is left of the last read is the beginning of a line.
        self.buffer.copy_within(self.start..self.end, 0);
        self.base += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        let mut searched = 0;
        loop {
            if let Some(at) = memchr::memrchr(b'\n', &self.buffer[searched..self.end]) {
                self.start = searched + at + 1;
                return Some(Block::Lines(0..self.start));
            }
            searched = self.end;
            if self.eof {
                self.start = self.end;
                return (self.end > 0).then_some(Block::Lines(0..self.end));
            }
            if self.end == self.buffer.len() {
                if self.buffer.len() >= self.limit {
                    self.in_long = true;
                    self.start = self.end;
                    return Some(Block::LongHead(0..self.end.min(LONG_HEAD)));
                }
                let larger = (self.buffer.len() * 2).min(self.limit);
                self.buffer.resize(larger, 0);
            }
            self.fill();
        }
    }

    /// Streams the long line whose head was just given, from its first byte to its line feed (not included).
    /// Returns its length and whether it had a line feed.
    pub fn stream_long(&mut self, mut sink: impl FnMut(&[u8])) -> (u64, bool) {
        let mut length = 0;
        if !self.in_long {
            return (0, true);
        }
        self.in_long = false;
        self.start = 0;
        loop {
            let part = &self.buffer[self.start..self.end];
            if let Some(at) = memchr::memchr(b'\n', part) {
                sink(&part[..at]);
                self.start += at + 1;
                return (length + at as u64, true);
            }
            sink(part);
            length += part.len() as u64;
            self.base += self.end as u64;
            self.start = 0;
            self.end = 0;
            if self.eof {
                return (length, false);
            }
            self.fill();
        }
    }

    fn skip_long(&mut self) {
        self.stream_long(|_| {});
    }

    fn fill(&mut self) {
        loop {
            let room = self.buffer.len() - self.end;
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => self.eof = true,
                Ok(n) => {
                    self.end += n;
                    self.eof = n < room && self.base + self.end as u64 >= self.expected;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    self.error = Some(e);
                    self.eof = true;
                }
            }
            return;
        }
    }
}

/// Buffers of this thread that no reader uses just now: fresh memory costs more than reading a small file into it.
const SPARES: usize = 4;
/// A buffer that grew for a long line is given back to the system.
const SPARE_SIZE: usize = 256 << 10;

thread_local! {
    static SPARE: std::cell::RefCell<Vec<Vec<u8>>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn take_spare(size: usize) -> Vec<u8> {
    let found = SPARE.with_borrow_mut(|spares| {
        let at = spares.iter().position(|b| b.len() == size)?;
        Some(spares.swap_remove(at))
    });
    found.unwrap_or_else(|| vec![0; size])
}

impl<R> Drop for BlockReader<R> {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        if (4096..=SPARE_SIZE).contains(&buffer.len()) {
            let _ = SPARE.try_with(|spares| {
                let mut spares = spares.borrow_mut();
                if spares.len() < SPARES {
                    spares.push(buffer);
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A stream that gives its bytes in small, uneven reads.
    struct Dribble<'a>(&'a [u8], usize);
    impl Read for Dribble<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.1 = self.1 * 7 % 13 + 1;
            let n = self.1.min(into.len()).min(self.0.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    proptest! {
        #[test]
        fn blocks_give_back_every_byte_in_place(lines in proptest::collection::vec("[a-z\n]{0,600}", 0..20), stream_long in any::<bool>()) {
            let data = lines.join("\n").into_bytes();
            let mut r = BlockReader::new(Dribble(&data, 3), 256).with_limit(300);
            let mut got = Vec::new();
            while let Some(block) = r.next_block() {
                match block {
                    Block::Lines(range) => {
                        prop_assert_eq!(r.offset(range.start), got.len() as u64);
                        got.extend_from_slice(r.bytes(range));
                    }
                    Block::LongHead(range) => {
                        let at = r.offset(range.start);
                        prop_assert_eq!(at, got.len() as u64);
                        if stream_long {
                            let (n, terminated) = r.stream_long(|part| got.extend_from_slice(part));
                            prop_assert_eq!(at + n, got.len() as u64);
                            if terminated { got.push(b'\n'); }
                        } else {
                            let rest = &data[got.len()..];
                            let end = rest.iter().position(|b| *b == b'\n').map_or(rest.len(), |i| i + 1);
                            got.extend_from_slice(&rest[..end]);
                        }
                    }
                }
            }
            prop_assert_eq!(&got, &data);
        }
    }
}
