//! What is looked for.

use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::fold::fold;
use super::trigram;

/// More trigrams than this tell a long term from nothing else.
const MAX_TRIGRAMS: usize = 64;

/// A term, as what a unit must have to hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The rarest first.
    trigrams: Vec<u32>,
}

impl Query {
    /// Prepares a term, which is taken literally. The same query serves a search that heeds case and one that does
    /// not, by simple case folding.
    ///
    /// `None` where the hint cannot tell anything, so that everything has to be scanned: the term has fewer than three
    /// bytes, or a character whose case this build's regular expressions see otherwise than the hint does.
    #[must_use]
    pub fn new(term: &str) -> Option<Self> {
        if !term.chars().all(folds_as_expected) {
            return None;
        }
        let mut trigrams = trigram::of_term(term);
        trigrams.truncate(MAX_TRIGRAMS);
        (!trigrams.is_empty()).then_some(Self { trigrams })
    }

    pub(super) fn trigrams(&self) -> &[u32] {
        &self.trigrams
    }
}

/// Whether all characters that match this one have one form. The table of forms is that of a release of Unicode; the
/// regular expressions may be of a later one.
fn folds_as_expected(c: char) -> bool {
    if c.is_ascii() && !c.is_ascii_alphabetic() {
        return true;
    }
    let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
    class.try_case_fold_simple().is_ok()
        && class.ranges().iter().flat_map(|r| r.start()..=r.end()).all(|other| fold(other) == fold(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_terms_cannot_be_looked_for() {
        for term in ["", "a", "ab", "é", "\u{17f}k", "\u{212a}\u{212a}"] {
            assert_eq!(Query::new(term), None, "{term}");
        }
        for term in ["abc", "日", "éa", "\u{17f}kA"] {
            assert!(Query::new(term).is_some(), "{term}");
        }
    }

    #[test]
    fn case_does_not_matter() {
        assert_eq!(Query::new("TASKS é"), Query::new("ta\u{17f}\u{212a}s É"));
        assert_eq!(Query::new(&"abcdefghijklmnopqrstuvwxyz0123456789".repeat(9)).unwrap().trigrams().len(), 36);
    }
}
