//! A set of the units of a segment.

use super::writer::MAX_UNITS;

const WORDS: usize = MAX_UNITS / 64;

/// Units of a segment, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UnitSet([u64; WORDS]);

impl UnitSet {
    /// The first `count` units; at most as many as a segment can have.
    #[must_use]
    pub fn first(count: usize) -> Self {
        let mut all = Self::default();
        for (at, word) in all.0.iter_mut().enumerate() {
            *word = match count.saturating_sub(at * 64) {
                0 => 0,
                left @ 1..64 => (1 << left) - 1,
                _ => u64::MAX,
            };
        }
        all
    }

    /// Whether the unit is in it.
    #[must_use]
    pub fn contains(&self, unit: usize) -> bool {
        self.0.get(unit / 64).is_some_and(|word| word >> (unit % 64) & 1 == 1)
    }

    /// The units, rising.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let units = |(at, word): (usize, &u64)| {
            let mut bits = *word;
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits.checked_sub(1)?;
                Some(at * 64 + bit)
            })
        };
        self.0.iter().enumerate().flat_map(units)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Adds a unit. False where a segment has no such unit.
    #[must_use]
    pub(super) fn insert(&mut self, unit: usize) -> bool {
        match self.0.get_mut(unit / 64) {
            Some(word) => {
                *word |= 1 << (unit % 64);
                true
            }
            None => false,
        }
    }

    pub(super) fn intersect(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word &= other);
    }

    pub(super) fn unite(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, other)| *word |= other);
    }

    /// As bytes, for `count` units: unit 0 is the lowest bit of the first byte.
    pub(super) fn to_bytes(self, count: usize) -> impl Iterator<Item = u8> {
        self.0.into_iter().flat_map(u64::to_le_bytes).take(count.div_ceil(8))
    }

    /// From such bytes. `None` where they name units from `count` on.
    pub(super) fn from_bytes(bytes: &[u8], count: usize) -> Option<Self> {
        let mut all = Self::default();
        for (at, byte) in bytes.iter().enumerate() {
            *all.0.get_mut(at / 8)? |= u64::from(*byte) << (at % 8 * 8);
        }
        let mut known = all;
        known.intersect(&Self::first(count));
        (known == all).then_some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(units in proptest::collection::btree_set(0..MAX_UNITS, 0..40), count in 0..=MAX_UNITS) {
            let mut set = UnitSet::default();
            prop_assert!(units.iter().all(|u| set.insert(*u)));
            prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), units.clone());
            prop_assert_eq!((set.len(), set.is_empty()), (units.len(), units.is_empty()));
            prop_assert!((0..MAX_UNITS + 9).all(|u| set.contains(u) == units.contains(&u)));
            let bytes: Vec<u8> = set.to_bytes(MAX_UNITS).collect();
            let fits = units.last().is_none_or(|u| *u < count);
            prop_assert_eq!(UnitSet::from_bytes(&bytes, count), fits.then_some(set));
            prop_assert_eq!(UnitSet::first(count).len(), count);
            set.intersect(&UnitSet::first(count));
            prop_assert_eq!(set.len(), units.range(..count).count());
        }
    }
}
