//! What lists and searches read of every thread and file stands in blocks of some hundred entries: 50,000 rows of a
//! table cost more to step through than all that is done with them.
//!
//! A block is the hash of its entries and the entries. One that is not as it was written says nothing: what stood in it
//! counts as not known.

use threadkeep_rollout::walk::hash;

use crate::text::bytes::{put, take};

/// Puts the hash in front of entries.
pub(crate) fn seal(entries: &[u8]) -> Vec<u8> {
    let mut block = Vec::with_capacity(8 + entries.len());
    block.extend_from_slice(&hash(entries).to_le_bytes());
    block.extend_from_slice(entries);
    block
}

/// The entries of a block that is as it was written.
pub(crate) fn open(block: &[u8]) -> Option<&[u8]> {
    let (sum, entries) = block.split_first_chunk::<8>()?;
    (u64::from_le_bytes(*sum) == hash(entries)).then_some(entries)
}

/// Appends how far a number is from another, in few bytes where that is near.
pub(crate) fn put_from(into: &mut Vec<u8>, base: i64, number: i64) {
    let far = number.wrapping_sub(base);
    put(into, ((far << 1) ^ (far >> 63)).cast_unsigned());
}

/// Takes such a number from the front.
pub(crate) fn take_from(from: &mut &[u8], base: i64) -> Option<i64> {
    let far = take(from)?;
    Some(base.wrapping_add((far >> 1).cast_signed() ^ -(far & 1).cast_signed()))
}

/// Takes so many bytes from the front.
pub(crate) fn take_bytes<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back_from_any_base(base: i64, number: i64) {
            let mut bytes = Vec::new();
            put_from(&mut bytes, base, number);
            let mut rest = bytes.as_slice();
            prop_assert_eq!(take_from(&mut rest, base), Some(number));
            prop_assert!(rest.is_empty());
        }
    }

    #[test]
    fn a_block_that_changed_says_nothing() {
        let block = seal(b"entries");
        assert_eq!(open(&block), Some(b"entries".as_slice()));
        for i in 0..block.len() {
            let mut other = block.clone();
            other[i] ^= 4;
            assert_eq!(open(&other), None, "{i}");
            assert_eq!(open(&block[..i]), None, "{i}");
        }
    }
}
