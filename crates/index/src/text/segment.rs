//! Reading a segment. The format is in `docs/FORMAT.md`.

use std::io;

use super::bytes::{ReadAt, checksum, take, u32_at};
use super::query::Query;
use super::trigram::{ALL, Trigrams};
use super::unit::{Contents, Unit};
use super::unit_set::UnitSet;
use super::writer::MAX_UNITS;

pub(super) const MAGIC: &[u8; 8] = b"tk-text\0";

/// Another one for every change of the layout, of what a trigram's number is, or of how case is folded.
pub(super) const VERSION: u32 = 1;

/// Bytes of the header.
pub(super) const HEADER: usize = 44;

/// Bytes of a block's entry in the directory.
pub(super) const BLOCK_ENTRY: usize = 12;

/// No segment is larger: one of 512 units has a few megabytes.
const MAX_SIZE: u64 = 1 << 30;

/// Why a segment cannot be asked. Its units have to be scanned then, and it can be thrown away.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// Of another version, which may be right for another release.
    #[error("text index of version {0}, this one is {VERSION}")]
    Version(u32),
    /// Not what was written.
    #[error("text index is damaged: {0}")]
    Damaged(&'static str),
    /// It could not be read.
    #[error("text index cannot be read: {0}")]
    Read(#[from] io::Error),
}

use SegmentError::Damaged;

/// What a unit is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnitPlace {
    /// The rollout, as the caller calls it.
    pub owner: u64,
    /// Where the unit begins, in bytes of the decompressed rollout.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
}

/// A segment that can be asked. It holds the directory (some ten kilobytes); lists are read as they are needed.
#[derive(Debug)]
pub struct Segment<R> {
    from: R,
    count: usize,
    size: u64,
    /// Units that every term might stand in.
    always: UnitSet,
    /// For each block its first trigram, its place, and its checksum.
    directory: Vec<u8>,
    table: usize,
    table_sum: u32,
}

impl<R: ReadAt> Segment<R> {
    /// Opens a segment: reads its header and directory.
    ///
    /// # Errors
    ///
    /// It cannot be read, is damaged, or of another version.
    pub fn open(from: R) -> Result<Self, SegmentError> {
        let size = from.size()?;
        let mut header = [0; HEADER];
        if size < HEADER as u64 || size > MAX_SIZE {
            return Err(Damaged("size"));
        }
        from.read_exact_at(0, &mut header)?;
        let number = |at: usize| u32_at(&header, at).ok_or(Damaged("header"));
        if !header.starts_with(MAGIC) {
            return Err(Damaged("not one"));
        }
        // Another version may have another header.
        let version = number(8)?;
        if version != VERSION {
            return Err(SegmentError::Version(version));
        }
        if header.get(..HEADER - 4).map(checksum) != Some(number(HEADER - 4)?) {
            return Err(Damaged("checksum of the header"));
        }
        let (count, blocks, table) = (number(12)? as usize, number(16)? as usize, number(20)? as usize);
        let told = u64::from(number(24)?) | u64::from(number(28)?) << 32;
        let head = blocks.checked_mul(BLOCK_ENTRY).and_then(|n| n.checked_add(MAX_UNITS / 8)).ok_or(Damaged("size"))?;
        let front = head.checked_add(table).and_then(|n| n.checked_add(HEADER)).ok_or(Damaged("size"))?;
        if told != size || count > MAX_UNITS || front as u64 > size {
            return Err(Damaged("size"));
        }
        let mut directory = vec![0; head];
        from.read_exact_at(HEADER as u64, &mut directory)?;
        if checksum(&directory) != number(32)? {
            return Err(Damaged("checksum of the directory"));
        }
        let always = directory.get(..MAX_UNITS / 8).and_then(|b| UnitSet::from_bytes(b, count));
        let always = always.ok_or(Damaged("units"))?;
        directory.drain(..MAX_UNITS / 8);
        Ok(Self { from, count, size, always, directory, table, table_sum: number(36)? })
    }

    /// How many units it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The units that may hold the term: all that do, and some that do not. Reads about 4 KB for each trigram until no
    /// unit is left.
    ///
    /// # Errors
    ///
    /// What has to be read cannot be, or is damaged: all units have to be scanned.
    pub fn candidates(&self, query: &Query) -> Result<UnitSet, SegmentError> {
        let mut left = UnitSet::first(self.count);
        let mut buffer = Vec::new();
        for trigram in query.trigrams() {
            left.intersect(&self.units_with(*trigram, &mut buffer)?);
            if left.is_empty() {
                break;
            }
        }
        left.unite(&self.always);
        Ok(left)
    }

    /// What each unit is of, by number.
    ///
    /// # Errors
    ///
    /// The table cannot be read or is damaged.
    pub fn places(&self) -> Result<Vec<UnitPlace>, SegmentError> {
        let mut table = vec![0; self.table];
        self.from.read_exact_at((HEADER + MAX_UNITS / 8 + self.directory.len()) as u64, &mut table)?;
        if checksum(&table) != self.table_sum {
            return Err(Damaged("checksum of the units"));
        }
        let mut rest = table.as_slice();
        let mut places = Vec::with_capacity(self.count);
        let mut before = UnitPlace { owner: 0, start: 0, end: 0 };
        for _ in 0..self.count {
            let mut next = || take(&mut rest).ok_or(Damaged("units"));
            let owner = before.owner.wrapping_add(next()?);
            let start = before.end.wrapping_add(next()?);
            before = UnitPlace { owner, start, end: start.wrapping_add(next()?) };
            places.push(before);
        }
        Ok(places)
    }

    /// All units with their trigrams, to be written again into another segment.
    ///
    /// # Errors
    ///
    /// Any part cannot be read or is damaged.
    pub fn units(&self) -> Result<Vec<(u64, Unit)>, SegmentError> {
        let places = self.places()?;
        let mut trigrams: Vec<Vec<u32>> = vec![Vec::new(); self.count];
        let mut buffer = Vec::new();
        for block in 0..self.blocks() {
            for entry in self.block(block, &mut buffer)? {
                let (trigram, list) = entry?;
                for unit in self.list(list)?.iter() {
                    trigrams.get_mut(unit).ok_or(Damaged("list"))?.push(trigram);
                }
            }
        }
        let mut units = Vec::with_capacity(self.count);
        for (number, (place, trigrams)) in places.into_iter().zip(trigrams).enumerate() {
            let contents = match self.always.contains(number) {
                true => Contents::Unknown,
                false if trigrams.is_sorted_by(|a, b| a < b) => Contents::Trigrams(Trigrams::from_rising(trigrams)),
                false => return Err(Damaged("order")),
            };
            units.push((place.owner, Unit { start: place.start, end: place.end, contents }));
        }
        Ok(units)
    }

    fn blocks(&self) -> usize {
        self.directory.len() / BLOCK_ENTRY
    }

    /// A number of a block's entry: 0 its first trigram, 1 its place, 2 its checksum.
    fn entry(&self, block: usize, field: usize) -> Option<u32> {
        u32_at(&self.directory, block.checked_mul(BLOCK_ENTRY)?.checked_add(field * 4)?)
    }

    /// The units that have a trigram.
    fn units_with(&self, trigram: u32, buffer: &mut Vec<u8>) -> Result<UnitSet, SegmentError> {
        let (mut low, mut high) = (0, self.blocks());
        while low < high {
            let middle = low.midpoint(high);
            match self.entry(middle, 0).ok_or(Damaged("directory"))? <= trigram {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let Some(block) = low.checked_sub(1) else { return Ok(UnitSet::default()) };
        for entry in self.block(block, buffer)? {
            let (found, list) = entry?;
            if found == trigram {
                return self.list(list);
            }
            if found > trigram {
                break;
            }
        }
        Ok(UnitSet::default())
    }

    /// The trigrams of a block with their lists.
    fn block<'b>(&self, block: usize, buffer: &'b mut Vec<u8>) -> Result<Entries<'b>, SegmentError> {
        let at = |block: usize| self.entry(block, 1).map(u64::from);
        let start = at(block).ok_or(Damaged("directory"))?;
        let end = if block + 1 < self.blocks() { at(block + 1) } else { Some(self.size) };
        let length = end.filter(|end| *end <= self.size).and_then(|end| end.checked_sub(start));
        buffer.resize(length.ok_or(Damaged("directory"))? as usize, 0);
        self.from.read_exact_at(start, buffer)?;
        if Some(checksum(buffer)) != self.entry(block, 2) {
            return Err(Damaged("checksum of a list"));
        }
        Ok(Entries { rest: buffer, trigram: self.entry(block, 0).unwrap_or(0) })
    }

    fn list(&self, list: &[u8]) -> Result<UnitSet, SegmentError> {
        if list.len() == self.count.div_ceil(8) {
            return UnitSet::from_bytes(list, self.count).ok_or(Damaged("list"));
        }
        let mut units = UnitSet::default();
        let mut rest = list;
        let mut due = 0u64;
        while !rest.is_empty() {
            let unit = take(&mut rest).and_then(|gap| gap.checked_add(due)).ok_or(Damaged("list"))?;
            let known = usize::try_from(unit).ok().filter(|unit| *unit < self.count);
            if !known.is_some_and(|unit| units.insert(unit)) {
                return Err(Damaged("list"));
            }
            due = unit + 1;
        }
        Ok(units)
    }
}

/// The lists of a block.
struct Entries<'b> {
    rest: &'b [u8],
    trigram: u32,
}

impl<'b> Entries<'b> {
    fn entry(&mut self) -> Option<(u32, &'b [u8])> {
        let step = u32::try_from(take(&mut self.rest)?).ok()?;
        self.trigram = self.trigram.checked_add(step).filter(|t| *t < ALL)?;
        let length = usize::try_from(take(&mut self.rest)?).ok()?;
        let (list, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some((self.trigram, list))
    }
}

impl<'b> Iterator for Entries<'b> {
    type Item = Result<(u32, &'b [u8]), SegmentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_none() {
            self.rest = &[];
        }
        Some(entry.ok_or(Damaged("list")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SegmentWriter, fold_table::RUNS, unit::UnitBuilder};
    use super::*;
    use proptest::prelude::*;

    /// Makes all checksums right again.
    fn reseal(bytes: &mut [u8]) {
        let number = |bytes: &[u8], at| u32_at(bytes, at).unwrap() as usize;
        let (blocks, table) = (number(bytes, 16).min(1000), number(bytes, 20).min(bytes.len()));
        let directory = HEADER + MAX_UNITS / 8;
        for block in 0..blocks {
            let at = directory + block * BLOCK_ENTRY;
            let next = if block + 1 < blocks { u32_at(bytes, at + BLOCK_ENTRY + 4) } else { None };
            let Some(start) = u32_at(bytes, at + 4) else { return };
            let end = next.map_or(bytes.len(), |n| n as usize);
            let Some(sum) = bytes.get(start as usize..end).map(checksum) else { continue };
            bytes[at + 8..at + 12].copy_from_slice(&sum.to_le_bytes());
        }
        let head = directory + blocks * BLOCK_ENTRY;
        for (range, at) in [(HEADER..head, 32), (head..head + table, 36), (0..HEADER - 4, 40)] {
            let Some(sum) = bytes.get(range).map(checksum) else { continue };
            bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        }
    }

    proptest! {
        /// Whatever a segment says that is whole by its checksums, reading it ends, and in no panic.
        #[test]
        fn a_forged_segment_is_survived(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
            let (mut writer, mut builder) = (SegmentWriter::new(), UnitBuilder::new());
            for n in 0..20u64 {
                let line = format!("{{\"timestamp\":\"t\",\"type\":\"event_msg\",\"payload\":{{\"type\":\"agent_message\",\"message\":\"text {n}\"}}}}\n");
                builder.begin(0);
                builder.lines(0, line.as_bytes());
                writer.push(n, builder.finish().pop().unwrap()).unwrap();
            }
            let mut bytes = writer.finish();
            reseal(&mut bytes);
            prop_assert_eq!(Segment::open(&bytes).unwrap().candidates(&Query::new("text 7").unwrap()).unwrap().len(), 1);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            reseal(&mut bytes);
            if let Ok(segment) = Segment::open(&bytes) {
                let _ = (segment.candidates(&Query::new("text 7").unwrap()), segment.places(), segment.units());
            }
        }
    }

    /// A segment is only as good as the rules that it was made by. When this fails, so does what was written before:
    /// give the format another version.
    #[test]
    fn the_version_changes_with_the_rules() {
        let mut rules = Vec::new();
        RUNS.iter().for_each(|r| [r.0, r.1, r.2, r.3].iter().for_each(|n| rules.extend(n.to_le_bytes())));
        rules.extend(super::super::trigram::CODES);
        assert_eq!((VERSION, checksum(&rules)), (1, 0x6aa3_5821));
    }
}
