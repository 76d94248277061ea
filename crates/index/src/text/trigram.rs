//! Trigrams: three neighbouring bytes of folded text, and the set of them in a text.
//!
//! Bytes rather than characters, so that a term of two Chinese characters can be looked for, too.

use super::fold::{fold_into, is_folded};

/// The bytes that most text is made of, roughly the most common first. Trigrams of these alone are the numbers below
/// 2^18, which makes their set small enough for a core's first cache.
const COMMON: &[u8; 64] = b" etaoinsrlcdupmhfg\nby_/.vkw-\",x01:=2()j3q845679z';{}*[]#<>|\\+!&@";

/// Trigrams of common bytes are below this.
pub(super) const HOT: u32 = 1 << 18;

/// Trigrams are below this.
pub(super) const ALL: u32 = 1 << 24;

/// The number of a byte among all: the common ones first. Capitals have that of the small letter, so ASCII needs no
/// folding of its own.
pub(super) const CODES: [u8; 256] = {
    let mut codes = [u8::MAX; 256];
    let mut n = 0;
    while n < COMMON.len() {
        codes[COMMON[n] as usize] = n as u8;
        n += 1;
    }
    let mut byte = 0;
    while byte < 256 {
        if codes[byte] == u8::MAX && !(byte as u8).is_ascii_uppercase() {
            codes[byte] = n as u8;
            n += 1;
        }
        byte += 1;
    }
    let mut byte = b'A';
    while byte <= b'Z' {
        codes[byte as usize] = codes[byte.to_ascii_lowercase() as usize];
        byte += 1;
    }
    codes
};

/// What the first, second and third byte give to a trigram's number: the high two bits of the three codes above, the
/// low six below.
const PARTS: [[u32; 256]; 3] = {
    let mut parts = [[0; 256]; 3];
    let mut place = 0;
    while place < 3 {
        let mut byte = 0;
        while byte < 256 {
            let code = CODES[byte] as u32;
            let up = 2 - place as u32;
            parts[place][byte] = (code >> 6) << (18 + 2 * up) | (code & 63) << (6 * up);
            byte += 1;
        }
        place += 1;
    }
    parts
};

fn number(window: [u8; 3]) -> u32 {
    let [a, b, c] = window;
    PARTS[0][usize::from(a)] | PARTS[1][usize::from(b)] | PARTS[2][usize::from(c)]
}

/// How rare a trigram is, roughly.
fn rarity(trigram: u32) -> u32 {
    let code = |up: u32| (trigram >> (18 + 2 * up) & 3) << 6 | (trigram >> (6 * up) & 63);
    code(0) + code(1) + code(2)
}

/// A set of trigrams, as rising numbers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trigrams(Vec<u32>);

impl Trigrams {
    /// From numbers, which must rise.
    pub(super) fn from_rising(numbers: Vec<u32>) -> Self {
        debug_assert!(numbers.is_sorted_by(|a, b| a < b));
        Self(numbers)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_numbers(self) -> Vec<u32> {
        self.0
    }

    #[cfg(test)]
    fn numbers(&self) -> &[u32] {
        &self.0
    }
}

/// The trigrams of a term, the rarest first.
pub(super) fn of_term(term: &str) -> Vec<u32> {
    let mut folded = String::new();
    fold_into(term, &mut folded);
    let mut all: Vec<u32> = folded.as_bytes().array_windows().map(|w| number(*w)).collect();
    all.sort_unstable_by_key(|t| (std::cmp::Reverse(rarity(*t)), *t));
    all.dedup();
    all
}

/// Collects the trigrams of many texts.
#[derive(Debug)]
pub(super) struct Collector {
    /// One bit for each trigram of common bytes.
    hot: Vec<u64>,
    /// One bit for each trigram, used for the others.
    cold: Vec<u64>,
    /// The others, as they came.
    found: Vec<u32>,
    folded: String,
}

impl Default for Collector {
    fn default() -> Self {
        let words = |bits: u32| vec![0; bits as usize / 64];
        Self { hot: words(HOT), cold: words(ALL), found: Vec::new(), folded: String::new() }
    }
}

impl Collector {
    /// Adds those of a text. None is made across two texts.
    pub(super) fn add(&mut self, text: &str) {
        if is_folded(text) {
            self.add_folded(text.as_bytes());
            return;
        }
        let mut folded = std::mem::take(&mut self.folded);
        folded.clear();
        fold_into(text, &mut folded);
        self.add_folded(folded.as_bytes());
        self.folded = folded;
    }

    fn add_folded(&mut self, text: &[u8]) {
        for window in text.array_windows() {
            let trigram = number(*window);
            let (word, bit) = ((trigram >> 6) as usize, 1 << (trigram & 63));
            if let Some(word) = self.hot.get_mut(word) {
                *word |= bit;
            } else if let Some(word) = self.cold.get_mut(word)
                && *word & bit == 0
            {
                *word |= bit;
                self.found.push(trigram);
            }
        }
    }

    /// Those of all that was added, which is forgotten.
    pub(super) fn take(&mut self) -> Trigrams {
        let mut all = Vec::with_capacity(self.found.len() + 4096);
        for (at, word) in self.hot.iter_mut().enumerate() {
            let mut bits = std::mem::take(word);
            while bits != 0 {
                all.push((at as u32) << 6 | bits.trailing_zeros());
                bits &= bits - 1;
            }
        }
        self.found.sort_unstable();
        for trigram in &self.found {
            if let Some(word) = self.cold.get_mut((trigram >> 6) as usize) {
                *word = 0;
            }
        }
        all.append(&mut self.found);
        all.shrink_to_fit();
        Trigrams(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn collected(texts: &[&str]) -> Trigrams {
        let mut collector = Collector::default();
        texts.iter().for_each(|t| collector.add(t));
        collector.take()
    }

    #[test]
    fn numbers_are_one_for_each_trigram() {
        let distinct: BTreeSet<u8> = COMMON.iter().copied().collect();
        assert_eq!(distinct.len(), 64);
        assert!(COMMON.iter().all(|b| !b.is_ascii_uppercase()));
        let folded: Vec<u8> = (0..=255u8).filter(|b| !b.is_ascii_uppercase()).collect();
        for (place, parts) in PARTS.iter().enumerate() {
            let of_place: BTreeSet<u32> = folded.iter().map(|b| parts[usize::from(*b)]).collect();
            assert_eq!(of_place.len(), folded.len());
            let others = PARTS.iter().enumerate().filter(|(p, _)| *p != place).flat_map(|(_, p)| p);
            let bits = others.fold(0, |all, part| all | part);
            assert!(of_place.iter().all(|part| part & bits == 0 && *part < ALL));
        }
        assert!(number(*b"zq@") < HOT && number(*b"z~@") >= HOT);
    }

    #[test]
    fn rare_ones_come_first() {
        assert_eq!(of_term("the~"), [number(*b"he~"), number(*b"the")]);
        assert_eq!(of_term("aaaa").len(), 1);
        assert!(of_term("ab").is_empty());
        assert_eq!(of_term("日").len(), 1);
    }

    #[test]
    fn none_stands_across_two_texts_and_none_is_left_over() {
        let mut collector = Collector::default();
        collector.add("ab~");
        collector.add("日本");
        assert_eq!(collector.take().len(), 1 + 4);
        assert!(collector.take().is_empty());
        assert_eq!(collected(&["ab", "cd"]).len(), 0);
    }

    proptest! {
        #[test]
        fn a_part_has_no_trigram_that_the_whole_has_not(text in "\\PC{0,80}", from in 0usize..80, length in 0usize..20) {
            let part: String = text.chars().skip(from).take(length).collect();
            let all = collected(&[&text]);
            prop_assert!(all.numbers().is_sorted());
            for case in [part.to_lowercase(), part.to_uppercase(), part.clone()] {
                // Lower and upper case may be of another length, and then they are not the same text.
                if case.chars().map(super::super::fold::fold).eq(part.chars().map(super::super::fold::fold)) {
                    prop_assert!(of_term(&case).iter().all(|t| all.numbers().binary_search(t).is_ok()));
                }
            }
        }
    }
}
