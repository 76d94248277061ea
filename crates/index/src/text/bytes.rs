//! The bytes of a segment: where they are read from, numbers of varying length, checksums.

use std::io;

/// Something whose bytes can be read at any place: a blob, a file, a slice.
pub trait ReadAt {
    /// Fills `into` with the bytes from `offset` on. It is an error if there are fewer.
    fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// How many bytes there are.
    fn size(&self) -> io::Result<u64>;
}

impl ReadAt for [u8] {
    fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let part = usize::try_from(offset).ok().and_then(|at| self.get(at..at.checked_add(into.len())?));
        into.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.as_slice().read_exact_at(offset, into)
    }

    fn size(&self) -> io::Result<u64> {
        self.as_slice().size()
    }
}

impl<R: ReadAt + ?Sized> ReadAt for &R {
    fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        (**self).read_exact_at(offset, into)
    }

    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }
}

/// Appends a number, seven bits a byte, lowest first.
pub(crate) fn put(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Takes a number from the front. `None` where there is none that fits.
pub(crate) fn take(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// The four bytes at `at` as a number, lowest first.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// A checksum against chance damage, not against a forger: every change of up to eight neighbouring bytes shows but
/// for one in 2^32. It takes eight bytes a step, since a search sums every block that it reads.
pub(super) fn checksum(bytes: &[u8]) -> u32 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |sum: u64, word: u64| {
        let mixed = (sum ^ word).wrapping_mul(MIX);
        mixed ^ (mixed >> 29)
    };
    let mut words = bytes.chunks_exact(8);
    let mut sum = step(MIX, bytes.len() as u64);
    for word in words.by_ref() {
        sum = step(sum, word.try_into().map_or(0, u64::from_le_bytes));
    }
    let rest = words.remainder().iter().rev().fold(0, |all, b| (all << 8) | u64::from(*b));
    let sum = step(sum, rest);
    (sum ^ (sum >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(numbers in proptest::collection::vec(any::<u64>(), 0..20), small in 0u64..300) {
            let mut bytes = Vec::new();
            numbers.iter().chain([&small]).for_each(|n| put(&mut bytes, *n));
            let mut rest = bytes.as_slice();
            for n in numbers.iter().chain([&small]) {
                prop_assert_eq!(take(&mut rest), Some(*n));
            }
            prop_assert_eq!(take(&mut rest), None);
        }

        #[test]
        fn any_changed_byte_changes_the_sum(mut bytes in proptest::collection::vec(any::<u8>(), 1..100), at: usize, with in 1u8..) {
            let before = checksum(&bytes);
            let at = at % bytes.len();
            bytes[at] ^= with;
            prop_assert_ne!(checksum(&bytes), before);
            bytes[at] ^= with;
            bytes.push(0);
            prop_assert_ne!(checksum(&bytes), before);
        }
    }

    #[test]
    fn numbers_that_are_too_long_are_refused() {
        assert_eq!(take(&mut [0xff; 12].as_slice()), None);
        assert_eq!(take(&mut [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02].as_slice()), None);
        assert_eq!(take(&mut [].as_slice()), None);
    }
}
