//! Finding places in raw JSON lines where a text may stand, faster than the page cache can be read.
//!
//! This is the one module with `unsafe`: the vector loads read `WIDTH` bytes from a slice whose bounds are checked
//! just before, and the functions that need AVX2 or AVX-512 are called only after the processor was asked for it. The portable
//! finders in well-kept libraries are half as fast for case-insensitive needles (see the decision on the scanner).
#![allow(unsafe_code)]

/// What to look for: a run of bytes that stands in the raw text as it is, plus places that only decoding can judge.
#[derive(Debug, Clone)]
pub struct RawNeedle {
    /// The run, lower-cased when letters may have either case.
    pub run: Vec<u8>,
    /// Letters may have either case.
    pub any_case: bool,
    /// Also stop at the two characters that fold to `k` and `s` though they are not ASCII.
    pub lookalikes: bool,
}

impl RawNeedle {
    /// Whether the run stands at `at`.
    fn is_at(&self, hay: &[u8], at: usize) -> bool {
        hay.get(at..at + self.run.len())
            .is_some_and(|h| if self.any_case { h.eq_ignore_ascii_case(&self.run) } else { h == self.run })
    }

    /// Whether a place that is not the run itself may still hide it: an escaped printable ASCII character, or a
    /// look-alike.
    fn may_hide(&self, hay: &[u8], at: usize) -> bool {
        match hay.get(at) {
            Some(b'\\') => {
                matches!(hay.get(at + 1..at + 5), Some([b'u', b'0', b'0', b'2'..=b'7']))
                    || self.lookalikes && is_escaped_lookalike(hay, at)
            }
            Some(0xe2) => self.lookalikes && hay.get(at + 1..at + 3) == Some(&[0x84, 0xaa]),
            Some(0xc5) => self.lookalikes && hay.get(at + 1) == Some(&0xbf),
            _ => false,
        }
    }
}

fn is_escaped_lookalike(hay: &[u8], at: usize) -> bool {
    hay.get(at + 1..at + 6).is_some_and(|h| h.eq_ignore_ascii_case(b"u212a") || h.eq_ignore_ascii_case(b"u017f"))
}

/// A finder for one needle.
#[derive(Debug, Clone)]
pub struct Finder {
    needle: RawNeedle,
    first: usize,
    second: usize,
}

/// How common a byte is in rollouts, from measured homes: 255 is the most common.
fn commonness(byte: u8) -> u8 {
    const ORDER: &[u8] = b" etaoinrslcdu\"mp,:-_.01h2fg4y3b5w687v9kx/{}qjz()=<>#'`;[]*+|&$@!?%~^";
    let lower = byte.to_ascii_lowercase();
    ORDER.iter().position(|b| *b == lower).map_or(0, |i| 255 - u8::try_from(i).unwrap_or(255) * 3)
}

impl Finder {
    /// A finder for a needle with at least one byte.
    #[must_use]
    pub fn new(needle: RawNeedle) -> Self {
        // The two rarest bytes, at different places where there are two.
        let mut places: Vec<usize> = (0..needle.run.len()).collect();
        places.sort_by_key(|i| (commonness(needle.run[*i]), *i));
        let first = places.first().copied().unwrap_or(0);
        let second = places
            .iter()
            .copied()
            .find(|i| needle.run[*i] != needle.run[first])
            .or(places.get(1).copied())
            .unwrap_or(first);
        Self { needle, first, second }
    }

    /// The first place at or behind `from` where the needle may stand.
    #[must_use]
    pub fn find(&self, hay: &[u8], from: usize) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx512bw") {
                // SAFETY: the processor has AVX-512BW.
                return unsafe { self.find_avx512(hay, from) };
            }
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                return unsafe { self.find_avx2(hay, from) };
            }
        }
        self.find_scalar(hay, from)
    }

    fn find_scalar(&self, hay: &[u8], from: usize) -> Option<usize> {
        (from..hay.len()).find(|at| self.needle.is_at(hay, *at) || self.needle.may_hide(hay, *at))
    }

    /// Looks closely at the marked places behind `at`.
    fn judge(&self, hay: &[u8], at: usize, mut mask: u64) -> Option<usize> {
        while mask != 0 {
            let place = at + mask.trailing_zeros() as usize;
            if self.needle.is_at(hay, place) || self.needle.may_hide(hay, place) {
                return Some(place);
            }
            mask &= mask - 1;
        }
        None
    }

    /// The byte at a place of the run with the bit that makes its case not matter, and that bit.
    fn wanted(&self, place: usize) -> (u8, u8) {
        let byte = self.needle.run[place];
        let bit = if self.needle.any_case && byte.is_ascii_alphabetic() { 0x20 } else { 0 };
        (byte | bit, bit)
    }

    /// How far behind a place the loads of a step begin at most.
    fn reach(&self) -> usize {
        self.first.max(self.second).max(1)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512bw")]
    fn find_avx512(&self, hay: &[u8], from: usize) -> Option<usize> {
        use std::arch::x86_64::{
            _mm512_cmpeq_epi8_mask, _mm512_loadu_si512, _mm512_mask_cmpeq_epi8_mask, _mm512_or_si512, _mm512_set1_epi8,
        };
        const WIDTH: usize = 64;
        let splat = |byte: u8| _mm512_set1_epi8(byte.cast_signed());
        let ((a, bit_a), (b, bit_b)) = (self.wanted(self.first), self.wanted(self.second));
        let (a, bit_a, b, bit_b) = (splat(a), splat(bit_a), splat(b), splat(bit_b));
        let (slash, u) = (splat(b'\\'), splat(b'u'));
        let (e2, x84, c5, bf) = (splat(0xe2), splat(0x84), splat(0xc5), splat(0xbf));
        let mut at = from;
        while at + self.reach() + WIDTH <= hay.len() {
            // SAFETY: `at + reach + WIDTH <= hay.len()`, and each offset is at most `reach`.
            let load = |offset: usize| unsafe { _mm512_loadu_si512(hay.as_ptr().add(at + offset).cast()) };
            let x = _mm512_cmpeq_epi8_mask(_mm512_or_si512(load(self.first), bit_a), a);
            let (here, next) = (load(0), load(1));
            let mut mask = _mm512_mask_cmpeq_epi8_mask(x, _mm512_or_si512(load(self.second), bit_b), b)
                | _mm512_mask_cmpeq_epi8_mask(_mm512_cmpeq_epi8_mask(here, slash), next, u);
            if self.needle.lookalikes {
                mask |= _mm512_mask_cmpeq_epi8_mask(_mm512_cmpeq_epi8_mask(here, e2), next, x84)
                    | _mm512_mask_cmpeq_epi8_mask(_mm512_cmpeq_epi8_mask(here, c5), next, bf);
            }
            if let Some(found) = self.judge(hay, at, mask) {
                return Some(found);
            }
            at += WIDTH;
        }
        self.find_scalar(hay, at)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn find_avx2(&self, hay: &[u8], from: usize) -> Option<usize> {
        use std::arch::x86_64::{
            _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256,
            _mm256_set1_epi8,
        };
        const WIDTH: usize = 32;
        let splat = |byte: u8| _mm256_set1_epi8(byte.cast_signed());
        let ((a, bit_a), (b, bit_b)) = (self.wanted(self.first), self.wanted(self.second));
        let (a, bit_a, b, bit_b) = (splat(a), splat(bit_a), splat(b), splat(bit_b));
        let (slash, u) = (splat(b'\\'), splat(b'u'));
        let (e2, x84, c5, bf) = (splat(0xe2), splat(0x84), splat(0xc5), splat(0xbf));
        let mut at = from;
        while at + self.reach() + WIDTH <= hay.len() {
            // SAFETY: `at + reach + WIDTH <= hay.len()`, and each offset is at most `reach`.
            let load = |offset: usize| unsafe { _mm256_loadu_si256(hay.as_ptr().add(at + offset).cast()) };
            let x = _mm256_cmpeq_epi8(_mm256_or_si256(load(self.first), bit_a), a);
            let y = _mm256_cmpeq_epi8(_mm256_or_si256(load(self.second), bit_b), b);
            let (here, next) = (load(0), load(1));
            let escape = _mm256_and_si256(_mm256_cmpeq_epi8(here, slash), _mm256_cmpeq_epi8(next, u));
            let mut hit = _mm256_or_si256(_mm256_and_si256(x, y), escape);
            if self.needle.lookalikes {
                let kelvin = _mm256_and_si256(_mm256_cmpeq_epi8(here, e2), _mm256_cmpeq_epi8(next, x84));
                let long_s = _mm256_and_si256(_mm256_cmpeq_epi8(here, c5), _mm256_cmpeq_epi8(next, bf));
                hit = _mm256_or_si256(hit, _mm256_or_si256(kelvin, long_s));
            }
            if let Some(found) = self.judge(hay, at, _mm256_movemask_epi8(hit).cast_unsigned().into()) {
                return Some(found);
            }
            at += WIDTH;
        }
        self.find_scalar(hay, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn finds_escapes_and_lookalikes() {
        let f = Finder::new(RawNeedle { run: b"task".to_vec(), any_case: true, lookalikes: true });
        for (hay, at) in [
            ("xx TASK", Some(3)),
            (r"\u0074ask", Some(0)),
            (r"\u001btask", Some(6)),
            ("ta\u{17f}k", Some(2)),
            ("tas\u{212a}", Some(3)),
            (r"ta\u017Fk", Some(2)),
            ("tas", None),
        ] {
            assert_eq!(f.find(hay.as_bytes(), 0), at, "{hay}");
            let padded = format!("{}{hay}{}", "z".repeat(50), "z".repeat(90));
            assert_eq!(f.find(padded.as_bytes(), 0), at.map(|a| a + 50), "{padded}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_plain_search(hay in "[abkKsS\\\\u0267é\u{17f}\u{212a}]{0,200}", run in "[abks]{1,5}", from in 0usize..40, any_case: bool, lookalikes: bool) {
            let f = Finder::new(RawNeedle { run: run.into_bytes(), any_case, lookalikes });
            let want = f.find_scalar(hay.as_bytes(), from);
            prop_assert_eq!(f.find(hay.as_bytes(), from), want);
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2.
                prop_assert_eq!(unsafe { f.find_avx2(hay.as_bytes(), from) }, want);
            }
        }
    }
}
