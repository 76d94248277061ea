//! Reading the lines of a plain rollout from its end.

use std::io;

use crate::block::{LONG_HEAD, LONG_LINE};
use crate::seam::ReadAt;

/// A line found from the end.
#[derive(Debug, Clone, Copy)]
pub struct ReverseLine<'a> {
    /// Its bytes without the line feed; for a long line its head.
    pub bytes: &'a [u8],
    /// Where it begins.
    pub offset: u64,
    /// Whether a line feed ends it.
    pub terminated: bool,
    /// Whether it is longer than what is held.
    pub long: bool,
}

/// A reader of lines from the end of a file.
pub struct ReverseReader<'f> {
    file: &'f dyn ReadAt,
    /// `held[..live]` is the part of the file that begins at `base` and was not given yet.
    held: Vec<u8>,
    live: usize,
    base: u64,
    step: usize,
    at_end: bool,
    limit: usize,
}

impl<'f> ReverseReader<'f> {
    /// Reads `file`, whose length is `size`, backwards; the first read takes `first` bytes.
    #[must_use]
    pub fn new(file: &'f dyn ReadAt, size: u64, first: usize) -> Self {
        Self { file, held: Vec::new(), live: 0, base: size, step: first.max(16), at_end: true, limit: LONG_LINE }
    }

    /// The line before the last one given; `None` at the beginning of the file.
    pub fn next_line(&mut self) -> io::Result<Option<ReverseLine<'_>>> {
        if self.base == 0 && self.live == 0 {
            return Ok(None);
        }
        // The byte before a line's beginning is the feed of the line before it. Only the first call may find none.
        let mut terminated = true;
        if self.live == 0 {
            self.grow()?;
        }
        if self.at_end {
            self.at_end = false;
            terminated = self.held[self.live - 1] == b'\n';
        }
        let end = self.live - usize::from(terminated);
        let mut end = end;
        let mut unsearched = end;
        loop {
            if let Some(at) = memchr::memrchr(b'\n', &self.held[..unsearched]) {
                self.live = at + 1;
                let offset = self.base + at as u64 + 1;
                return Ok(Some(ReverseLine { bytes: &self.held[at + 1..end], offset, terminated, long: false }));
            }
            if self.base == 0 {
                self.live = 0;
                return Ok(Some(ReverseLine { bytes: &self.held[..end], offset: 0, terminated, long: false }));
            }
            if end > self.limit {
                return self.long_line(terminated);
            }
            let grown = self.grow()?;
            end += grown;
            unsearched = grown;
        }
    }

    /// Puts the bytes before the held ones in front of them; returns how many.
    fn grow(&mut self) -> io::Result<usize> {
        let n = (self.step as u64).min(self.base) as usize;
        // Each step doubles, so a long line is copied a constant number of times.
        self.step = (self.step * 2).min(4 << 20);
        let mut grown = vec![0; n + self.live];
        self.file.read_exact_at(&mut grown[..n], self.base - n as u64)?;
        grown[n..].copy_from_slice(&self.held[..self.live]);
        self.base -= n as u64;
        self.live += n;
        self.held = grown;
        Ok(n)
    }

    /// Looks for the beginning of a line that is too long to hold, then reads its head.
    fn long_line(&mut self, terminated: bool) -> io::Result<Option<ReverseLine<'_>>> {
        let mut part = vec![0; 1 << 20];
        let mut offset = 0;
        while self.base > 0 {
            let n = (part.len() as u64).min(self.base) as usize;
            self.file.read_exact_at(&mut part[..n], self.base - n as u64)?;
            if let Some(at) = memchr::memrchr(b'\n', &part[..n]) {
                offset = self.base - n as u64 + at as u64 + 1;
                break;
            }
            self.base -= n as u64;
        }
        self.base = offset;
        self.live = 0;
        self.held = vec![0; LONG_HEAD];
        self.file.read_exact_at(&mut self.held, offset)?;
        Ok(Some(ReverseLine { bytes: &self.held, offset, terminated, long: true }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    proptest! {
        #[test]
        fn gives_the_lines_of_a_forward_reading_in_reverse(text in "[a-c\n]{0,400}", first in 1usize..40, limit in 16usize..200) {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(text.as_bytes()).unwrap();
            let mut reader = ReverseReader::new(&file, text.len() as u64, first);
            reader.limit = limit;
            let mut got = Vec::new();
            let mut offsets = Vec::new();
            while let Some(line) = reader.next_line().unwrap() {
                offsets.push(line.offset as usize);
                if !line.long { prop_assert_eq!(&text.as_bytes()[line.offset as usize..][..line.bytes.len()], line.bytes); }
                got.push(line.long);
            }
            let mut want: Vec<usize> = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1).filter(|i| *i < text.len()).collect();
            if !text.is_empty() { want.insert(0, 0); }
            want.reverse();
            prop_assert_eq!(offsets, want);
        }
    }
}
