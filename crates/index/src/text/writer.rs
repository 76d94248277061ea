//! Writing a segment. The format is in `docs/FORMAT.md`.

use super::bytes::{checksum, put};
use super::segment::{BLOCK_ENTRY, HEADER, MAGIC, UnitPlace, VERSION};
use super::trigram::HOT;
use super::unit::{Contents, Unit};
use super::unit_set::UnitSet;

/// Units of a segment, at most.
pub const MAX_UNITS: usize = 512;

/// Trigrams of all units of a segment, at most: what bounds the memory that one takes to make (about 50 MB).
const MAX_POSTINGS: usize = 4 << 20;

/// A block is closed when it has so many bytes. It is what one look-up reads.
const BLOCK: usize = 4 << 10;

/// Collects units and makes a segment of them.
#[derive(Debug, Default)]
pub struct SegmentWriter {
    places: Vec<UnitPlace>,
    /// Trigrams of each unit; none for those that are always scanned.
    trigrams: Vec<Vec<u32>>,
    postings: usize,
    always: UnitSet,
}

impl SegmentWriter {
    /// A segment without units.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many units it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Adds a unit of the rollout that the caller calls `owner`, and returns its number.
    ///
    /// # Errors
    ///
    /// The segment is full; the unit is given back for the next one.
    pub fn push(&mut self, owner: u64, unit: Unit) -> Result<usize, Unit> {
        let number = self.places.len();
        let more = match &unit.contents {
            Contents::Trigrams(trigrams) => trigrams.len(),
            Contents::Unknown => 0,
        };
        if number >= MAX_UNITS || number > 0 && self.postings + more > MAX_POSTINGS {
            return Err(unit);
        }
        self.places.push(UnitPlace { owner, start: unit.start, end: unit.end });
        self.postings += more;
        self.trigrams.push(match unit.contents {
            Contents::Trigrams(trigrams) => trigrams.into_numbers(),
            Contents::Unknown => {
                debug_assert!(number < MAX_UNITS);
                let _ = self.always.insert(number);
                Vec::new()
            }
        });
        Ok(number)
    }

    /// The segment's bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let count = self.places.len();
        let mut blocks = Blocks::new(count);
        self.each_list(|trigram, units| blocks.push(trigram, units));
        let Blocks { starts, bytes, .. } = blocks;

        let mut table = Vec::new();
        let mut before = UnitPlace { owner: 0, start: 0, end: 0 };
        for place in &self.places {
            put(&mut table, place.owner.wrapping_sub(before.owner));
            put(&mut table, place.start.wrapping_sub(before.end));
            put(&mut table, place.end.wrapping_sub(place.start));
            before = *place;
        }

        let base = HEADER + MAX_UNITS / 8 + starts.len() * BLOCK_ENTRY + table.len();
        let mut head: Vec<u8> = self.always.to_bytes(MAX_UNITS).collect();
        let ends = starts.iter().skip(1).map(|s| s.1).chain([bytes.len()]);
        for ((trigram, start), end) in starts.iter().zip(ends) {
            head.extend(trigram.to_le_bytes());
            head.extend(((base + start) as u32).to_le_bytes());
            head.extend(checksum(bytes.get(*start..end).unwrap_or_default()).to_le_bytes());
        }

        let mut all = Vec::with_capacity(base + bytes.len());
        all.extend(MAGIC);
        for number in [VERSION, count as u32, starts.len() as u32, table.len() as u32] {
            all.extend(number.to_le_bytes());
        }
        all.extend(((base + bytes.len()) as u64).to_le_bytes());
        all.extend(checksum(&head).to_le_bytes());
        all.extend(checksum(&table).to_le_bytes());
        all.extend(checksum(&all).to_le_bytes());
        all.extend(head);
        all.extend(table);
        all.extend(bytes);
        all
    }

    /// Each trigram with the units that have it, both rising.
    fn each_list(&self, mut give: impl FnMut(u32, &[u16])) {
        // The common ones are sorted by counting, which takes one step for each; the rest is small in most text.
        let split = |all: &Vec<u32>| all.partition_point(|t| *t < HOT);
        let mut ends = vec![0u32; HOT as usize];
        for all in &self.trigrams {
            for trigram in all.iter().take(split(all)) {
                if let Some(n) = ends.get_mut(*trigram as usize) {
                    *n += 1;
                }
            }
        }
        let mut sum = 0;
        for n in &mut ends {
            sum += std::mem::replace(n, sum);
        }
        let mut units = vec![0u16; sum as usize];
        for (unit, all) in self.trigrams.iter().enumerate() {
            for trigram in all.iter().take(split(all)) {
                if let Some(end) = ends.get_mut(*trigram as usize)
                    && let Some(slot) = units.get_mut(*end as usize)
                {
                    *slot = unit as u16;
                    *end += 1;
                }
            }
        }
        let mut start = 0;
        for (trigram, end) in (0..).zip(ends) {
            if let Some(list) = units.get(start..end as usize).filter(|l| !l.is_empty()) {
                give(trigram, list);
            }
            start = end as usize;
        }

        let rare = self
            .trigrams
            .iter()
            .enumerate()
            .flat_map(|(unit, all)| all.iter().skip(split(all)).map(move |t| u64::from(*t) << 16 | unit as u64));
        let mut rare: Vec<u64> = rare.collect();
        rare.sort_unstable();
        for same in rare.chunk_by(|a, b| a >> 16 == b >> 16) {
            units.clear();
            units.extend(same.iter().map(|pair| *pair as u16));
            give(same.first().map_or(0, |pair| (pair >> 16) as u32), &units);
        }
    }
}

/// The blocks of lists as they are made.
struct Blocks {
    count: usize,
    /// First trigram and place of each block.
    starts: Vec<(u32, usize)>,
    bytes: Vec<u8>,
    before: u32,
    list: Vec<u8>,
}

impl Blocks {
    fn new(count: usize) -> Self {
        Self { count, starts: Vec::new(), bytes: Vec::new(), before: 0, list: Vec::new() }
    }

    fn push(&mut self, trigram: u32, units: &[u16]) {
        if self.starts.last().is_none_or(|(_, start)| self.bytes.len() - start >= BLOCK) {
            self.starts.push((trigram, self.bytes.len()));
            self.before = trigram;
        }
        put(&mut self.bytes, u64::from(trigram - self.before));
        self.before = trigram;

        let bitmap = self.count.div_ceil(8);
        self.list.clear();
        if units.len() < bitmap {
            let mut due = 0;
            for unit in units {
                put(&mut self.list, u64::from(unit - due));
                due = unit + 1;
            }
        }
        // Whichever is shorter; its length tells which it is.
        if self.list.is_empty() || self.list.len() >= bitmap {
            let mut set = UnitSet::default();
            for unit in units {
                let _ = set.insert(usize::from(*unit));
            }
            self.list.clear();
            self.list.extend(set.to_bytes(self.count));
        }
        put(&mut self.bytes, self.list.len() as u64);
        self.bytes.extend_from_slice(&self.list);
    }
}
