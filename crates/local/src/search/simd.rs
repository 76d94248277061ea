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
    /// Where in the run the pair of bytes stands that is looked for. A run of one byte has any byte behind it.
    pair: usize,
    /// Another rare byte of the run, which most places with the pair alone do not have.
    third: usize,
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
        let run = &needle.run;
        // The rarest pair of neighbours: the places of escapes are neighbours, too, so both are seen with two loads.
        let rarity = |at: &usize| (u16::from(commonness(run[*at])) + u16::from(commonness(run[*at + 1])), *at);
        let pair = (0..run.len().saturating_sub(1)).min_by_key(rarity).unwrap_or(0);
        let others = (0..run.len()).filter(|at| *at != pair && *at != pair + 1);
        let third = others.min_by_key(|at| (commonness(run[*at]), *at)).unwrap_or(pair);
        Self { needle, pair, third }
    }

    /// The first place at or behind `from` where the needle may stand.
    #[must_use]
    pub fn find(&self, hay: &[u8], from: usize) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("avx512bw") {
                // SAFETY: the processor has AVX-512BW.
                return self.find_with(hay, from, |hay, at| unsafe {
                    if self.needle.lookalikes { self.avx512::<true>(hay, at) } else { self.avx512::<false>(hay, at) }
                });
            }
            if std::arch::is_x86_feature_detected!("avx2") {
                return self.find_with(hay, from, |hay, at| self.with_avx2(hay, at));
            }
        }
        self.find_scalar(hay, from, hay.len())
    }

    /// The first place in `from..to`.
    fn find_scalar(&self, hay: &[u8], from: usize, to: usize) -> Option<usize> {
        (from..to).find(|at| self.needle.is_at(hay, *at) || self.needle.may_hide(hay, *at))
    }

    /// Looks at the places that `marked` gives: the next at or behind one, as 64 places and a mask of them, or where
    /// it stopped for want of room.
    fn find_with(
        &self,
        hay: &[u8],
        from: usize,
        marked: impl Fn(&[u8], usize) -> (usize, Option<u64>),
    ) -> Option<usize> {
        let mut at = (from + self.pair).min(hay.len());
        if let Some(found) = self.find_scalar(hay, from, at) {
            return Some(found);
        }
        loop {
            match marked(hay, at) {
                (here, Some(mask)) => {
                    if let Some(found) = self.judge(hay, here, mask) {
                        return Some(found);
                    }
                    at = here + 64;
                }
                (end, None) => {
                    return self.find_scalar(hay, end.saturating_sub(self.pair).max(from), hay.len());
                }
            }
        }
    }

    /// Looks closely at the marked pairs behind `at`. A pair may be the needle's, which then began before it, or hide
    /// something itself.
    fn judge(&self, hay: &[u8], at: usize, mut mask: u64) -> Option<usize> {
        while mask != 0 {
            let pair = at + mask.trailing_zeros() as usize;
            let start = pair - self.pair;
            if self.needle.is_at(hay, start) {
                return Some(start);
            }
            if self.needle.may_hide(hay, pair) {
                // A needle whose pair comes later may still begin before.
                return self.find_scalar(hay, start, pair).or(Some(pair));
            }
            mask &= mask - 1;
        }
        None
    }

    /// A byte of the run with the bit that makes its case not matter, and that bit.
    fn wanted(&self, place: usize) -> (u8, u8) {
        let Some(byte) = self.needle.run.get(place) else { return (0xff, 0xff) };
        let bit = if self.needle.any_case && byte.is_ascii_alphabetic() { 0x20 } else { 0 };
        (byte | bit, bit)
    }

    /// How far behind a place of 64 bytes the loads of a step reach at most.
    fn reach(&self) -> usize {
        self.third.saturating_sub(self.pair).max(1)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512bw")]
    #[inline(never)]
    fn avx512<const LOOKALIKES: bool>(&self, hay: &[u8], from: usize) -> (usize, Option<u64>) {
        use std::arch::x86_64::{
            __m512i, _mm512_loadu_si512, _mm512_min_epu8, _mm512_or_si512, _mm512_set1_epi8, _mm512_testn_epi8_mask,
            _mm512_xor_si512,
        };
        const WIDTH: usize = 64;
        let splat = |byte: u8| _mm512_set1_epi8(byte.cast_signed());
        let [(a, bit_a), (b, bit_b), (c, bit_c)] =
            [self.pair, self.pair + 1, self.third].map(|at| self.wanted(at)).map(|(x, bit)| (splat(x), splat(bit)));
        let (slash, u) = (splat(b'\\'), splat(b'u'));
        let (e2, x84, c5, bf) = (splat(0xe2), splat(0x84), splat(0xc5), splat(0xbf));
        // SAFETY: every call loads at most `reach` bytes behind one of the two vectors at the loop's `at`, whose
        // condition leaves room for that; `third` may stand before `pair`, and `at >= pair` throughout.
        let load = |at: usize| unsafe { _mm512_loadu_si512(hay.as_ptr().add(at).cast()) };
        // A byte of the result is zero where both bytes of a pair are as wanted.
        let differs = |x: __m512i, y: __m512i, a: __m512i, b: __m512i| {
            _mm512_or_si512(_mm512_xor_si512(x, a), _mm512_xor_si512(y, b))
        };
        let step = |at: usize| {
            let (x, y) = (load(at), load(at + 1));
            let run = differs(_mm512_or_si512(x, bit_a), _mm512_or_si512(y, bit_b), a, b);
            let mut other = differs(x, y, slash, u);
            if LOOKALIKES {
                other = _mm512_min_epu8(other, _mm512_min_epu8(differs(x, y, e2, x84), differs(x, y, c5, bf)));
            }
            (run, other)
        };
        let mut at = from;
        while at + 2 * WIDTH + self.reach() <= hay.len() {
            let (one, two) = (step(at), step(at + WIDTH));
            let both = _mm512_min_epu8(_mm512_min_epu8(one.0, one.1), _mm512_min_epu8(two.0, two.1));
            if _mm512_testn_epi8_mask(both, both) != 0 {
                for (i, (run, other)) in [one, two].into_iter().enumerate() {
                    let here = at + i * WIDTH;
                    let rest = _mm512_xor_si512(_mm512_or_si512(load(here - self.pair + self.third), bit_c), c);
                    let run = _mm512_or_si512(run, rest);
                    let mask = _mm512_testn_epi8_mask(run, run) | _mm512_testn_epi8_mask(other, other);
                    if mask != 0 {
                        return (here, Some(mask));
                    }
                }
            }
            at += 2 * WIDTH;
        }
        (at, None)
    }

    #[cfg(target_arch = "x86_64")]
    fn with_avx2(&self, hay: &[u8], at: usize) -> (usize, Option<u64>) {
        // SAFETY: only called where the processor has AVX2.
        unsafe { if self.needle.lookalikes { self.avx2::<true>(hay, at) } else { self.avx2::<false>(hay, at) } }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    #[inline(never)]
    fn avx2<const LOOKALIKES: bool>(&self, hay: &[u8], from: usize) -> (usize, Option<u64>) {
        use std::arch::x86_64::{
            __m256i, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_or_si256,
            _mm256_set1_epi8,
        };
        const WIDTH: usize = 32;
        let splat = |byte: u8| _mm256_set1_epi8(byte.cast_signed());
        let [(a, bit_a), (b, bit_b), (c, bit_c)] =
            [self.pair, self.pair + 1, self.third].map(|at| self.wanted(at)).map(|(x, bit)| (splat(x), splat(bit)));
        let (slash, u) = (splat(b'\\'), splat(b'u'));
        let (e2, x84, c5, bf) = (splat(0xe2), splat(0x84), splat(0xc5), splat(0xbf));
        // SAFETY: as in `avx512`.
        let load = |at: usize| unsafe { _mm256_loadu_si256(hay.as_ptr().add(at).cast()) };
        let same = |x: __m256i, y: __m256i, a: __m256i, b: __m256i| {
            _mm256_and_si256(_mm256_cmpeq_epi8(x, a), _mm256_cmpeq_epi8(y, b))
        };
        let step = |at: usize| {
            let (x, y) = (load(at), load(at + 1));
            let run = same(_mm256_or_si256(x, bit_a), _mm256_or_si256(y, bit_b), a, b);
            let mut other = same(x, y, slash, u);
            if LOOKALIKES {
                other = _mm256_or_si256(other, _mm256_or_si256(same(x, y, e2, x84), same(x, y, c5, bf)));
            }
            (run, other)
        };
        let bits = |v: __m256i| u64::from(_mm256_movemask_epi8(v).cast_unsigned());
        let mut at = from;
        while at + 2 * WIDTH + self.reach() <= hay.len() {
            let (one, two) = (step(at), step(at + WIDTH));
            let both = _mm256_or_si256(_mm256_or_si256(one.0, one.1), _mm256_or_si256(two.0, two.1));
            if bits(both) != 0 {
                let mut mask = 0;
                for (i, (run, other)) in [one, two].into_iter().enumerate() {
                    let rest = load(at + i * WIDTH - self.pair + self.third);
                    let run = _mm256_and_si256(run, _mm256_cmpeq_epi8(_mm256_or_si256(rest, bit_c), c));
                    mask |= bits(_mm256_or_si256(run, other)) << (i * WIDTH);
                }
                if mask != 0 {
                    return (at, Some(mask));
                }
            }
            at += 2 * WIDTH;
        }
        (at, None)
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
        fn agrees_with_the_plain_search(hay in "[abkKsS\\\\u0267é\u{17f}\u{212a}]{0,400}", run in "[abks]{1,9}", from in 0usize..200, any_case: bool, lookalikes: bool) {
            let f = Finder::new(RawNeedle { run: run.into_bytes(), any_case, lookalikes });
            let want = f.find_scalar(hay.as_bytes(), from, hay.len());
            prop_assert_eq!(f.find(hay.as_bytes(), from), want);
            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                prop_assert_eq!(f.find_with(hay.as_bytes(), from, |hay, at| f.with_avx2(hay, at)), want);
            }
        }
    }
}
