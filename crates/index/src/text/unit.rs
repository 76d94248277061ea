//! Cutting a rollout into units.

use threadkeep_record::visible::{self, Scratch};

use super::trigram::{Collector, Trigrams};

/// Searchable text of a unit, in bytes, at which the next one begins. Smaller units name less to scan and take more
/// room; the choice is in `docs/decisions/0005`.
pub const TEXT_OF_UNIT: usize = 64 << 10;

/// A unit with more trigrams than this is one long record of random data, which any term might stand in.
const MAX_TRIGRAMS: usize = 1 << 17;

/// A stretch of whole records of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Where it begins, in bytes of the decompressed rollout.
    pub start: u64,
    /// Where it ends. Every record that begins in `start..end` ends there, too.
    pub end: u64,
    /// What is known of its text.
    pub contents: Contents,
}

/// What is known of a unit's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// The trigrams of all of it.
    Trigrams(Trigrams),
    /// Nothing: it is scanned for every term.
    Unknown,
}

/// Makes units of the records of one rollout after the other. It keeps 2 MB of tables, so one is used for many files.
#[derive(Debug, Default)]
pub struct UnitBuilder {
    collector: Collector,
    scratch: Scratch,
    done: Vec<Unit>,
    /// Where the unit under way began, and up to where it goes so far.
    start: u64,
    end: u64,
    /// Bytes of text in it.
    text: usize,
}

impl UnitBuilder {
    /// A builder for a rollout that is read from its beginning.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins a rollout, or goes on with one, at `offset` in the decompressed stream, which must be the beginning of a
    /// line. What was under way is forgotten.
    pub fn begin(&mut self, offset: u64) {
        self.done.clear();
        if self.text > 0 {
            self.collector.take();
        }
        (self.start, self.end, self.text) = (offset, offset, 0);
    }

    /// Takes whole lines, which begin at `offset` and go on where the last ones ended. What stands behind the last
    /// line feed is left: it may be half of a record that is being written, and belongs to no unit.
    pub fn lines(&mut self, offset: u64, block: &[u8]) {
        let mut from = 0;
        for at in memchr::memchr_iter(b'\n', block) {
            self.record(offset + from as u64, &block[from..at], 1);
            from = at + 1;
        }
    }

    /// Takes one record, or one line without its line feed, that begins at `offset` and is followed by `between` bytes
    /// that are no record.
    pub fn record(&mut self, offset: u64, record: &[u8], between: u64) {
        let (collector, text) = (&mut self.collector, &mut self.text);
        visible::texts(record, &mut self.scratch, &mut |t| {
            *text += t.len();
            collector.add(t);
        });
        self.end = offset + record.len() as u64 + between;
        if self.text >= TEXT_OF_UNIT {
            self.close();
        }
    }

    /// Takes a record that is too long to look into: `length` bytes from `offset` on, its line feed included. It
    /// becomes a unit of its own that is scanned for every term.
    pub fn long_record(&mut self, offset: u64, length: u64) {
        self.close();
        self.end = offset + length;
        self.done.push(Unit { start: self.start, end: self.end, contents: Contents::Unknown });
        self.start = self.end;
    }

    /// The units of the rollout. They lie one behind the other from where it was begun to the end of its last whole
    /// record. The last one may have little text.
    pub fn finish(&mut self) -> Vec<Unit> {
        self.close();
        std::mem::take(&mut self.done)
    }

    fn close(&mut self) {
        if self.start == self.end {
            return;
        }
        let trigrams = self.collector.take();
        let contents = if trigrams.len() > MAX_TRIGRAMS { Contents::Unknown } else { Contents::Trigrams(trigrams) };
        self.done.push(Unit { start: self.start, end: self.end, contents });
        (self.start, self.text) = (self.end, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> String {
        format!(
            "{{\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"type\":\"event_msg\",\"payload\":{{\"type\":\"agent_message\",\"message\":\"{text}\"}}}}\n"
        )
    }

    fn places(units: &[Unit]) -> Vec<(u64, u64)> {
        units.iter().map(|u| (u.start, u.end)).collect()
    }

    #[test]
    fn units_are_whole_records_one_behind_the_other() {
        let long = line(&"word ".repeat(10_000));
        let all = [long.as_str(), &long, &long, &line("end"), "{\"torn"].concat();
        let (one, end) = (long.len() as u64, all.len() as u64 - 6);
        let mut builder = UnitBuilder::new();
        builder.lines(0, all.as_bytes());
        let units = builder.finish();
        assert_eq!(places(&units), [(0, 2 * one), (2 * one, end)]);
        // In two parts, and from the middle, it is the same.
        builder.begin(0);
        builder.lines(0, &all.as_bytes()[..long.len()]);
        builder.lines(one, &all.as_bytes()[long.len()..]);
        assert_eq!(builder.finish(), units);
        builder.begin(2 * one);
        builder.lines(2 * one, &all.as_bytes()[2 * long.len()..]);
        assert_eq!(builder.finish(), units[1..]);
        builder.begin(7);
        assert_eq!(builder.finish(), []);
    }

    #[test]
    fn a_record_that_is_too_long_is_a_unit_of_its_own() {
        let short = line("text");
        let n = short.len() as u64;
        let mut builder = UnitBuilder::new();
        builder.lines(0, short.as_bytes());
        builder.long_record(n, 1000);
        builder.lines(n + 1000, short.as_bytes());
        let units = builder.finish();
        assert_eq!(places(&units), [(0, n), (n, n + 1000), (n + 1000, 2 * n + 1000)]);
        assert_eq!(units[1].contents, Contents::Unknown);
        assert_eq!(units[0].contents, units[2].contents);
    }
}
