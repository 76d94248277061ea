//! Case folding, one character at a time, as the search's regular expression folds.

use super::fold_table::RUNS;

/// Blocks of 256 characters in which some have another form: most text has to ask no further.
const BLOCKS: [bool; 0x200] = {
    let mut blocks = [false; 0x200];
    let mut run = 0;
    while run < RUNS.len() {
        let (first, last, ..) = RUNS[run];
        let mut block = first >> 8;
        while block <= last >> 8 {
            blocks[block as usize] = true;
            block += 1;
        }
        run += 1;
    }
    blocks
};

/// The character that stands for all that are the same when case is ignored.
pub(super) fn fold(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let code = u32::from(c);
    if !BLOCKS.get((code >> 8) as usize).is_some_and(|b| *b) {
        return c;
    }
    let at = RUNS.partition_point(|run| run.0 <= code);
    match at.checked_sub(1).and_then(|at| RUNS.get(at)) {
        Some((first, last, step, to)) if code <= *last && (code - first) % step == 0 => {
            char::from_u32(to + (code - first)).unwrap_or(c)
        }
        _ => c,
    }
}

/// Appends the folded text, but for ASCII, which is left in its case.
pub(super) fn fold_into(text: &str, into: &mut String) {
    into.reserve(text.len());
    let mut rest = text;
    while let Some((ascii, c, behind)) = next_beyond_ascii(rest) {
        into.push_str(ascii);
        into.push(fold(c));
        rest = behind;
    }
    into.push_str(rest);
}

/// Whether [`fold_into`] would change nothing: so for most text that is not of letters with case.
pub(super) fn is_folded(text: &str) -> bool {
    let mut rest = text;
    while let Some((_, c, behind)) = next_beyond_ascii(rest) {
        if fold(c) != c {
            return false;
        }
        rest = behind;
    }
    true
}

/// The first character that is not ASCII, with what stands before and behind it.
fn next_beyond_ascii(text: &str) -> Option<(&str, char, &str)> {
    let bytes = text.as_bytes();
    let words = bytes.chunks_exact(8).take_while(|word| {
        let word: [u8; 8] = (*word).try_into().unwrap_or([0xff; 8]);
        u64::from_ne_bytes(word) & 0x8080_8080_8080_8080 == 0
    });
    let from = 8 * words.count();
    let at = from + bytes.get(from..)?.iter().position(|b| !b.is_ascii())?;
    let (ascii, rest) = text.split_at_checked(at)?;
    let mut chars = rest.chars();
    Some((ascii, chars.next()?, chars.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

    #[test]
    fn every_character_folds_as_the_regular_expressions_do() {
        for c in '\0'..=char::MAX {
            let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
            class.try_case_fold_simple().unwrap();
            let mut all = class.ranges().iter().flat_map(|r| r.start()..=r.end());
            let least = all.clone().next().unwrap();
            assert_eq!(fold(c), all.find(char::is_ascii_lowercase).unwrap_or(least), "{c:?}");
        }
    }

    #[test]
    fn folded_forms_are_of_any_length() {
        let mut folded = String::new();
        fold_into("\u{212a}\u{17f} ÀÉ ΣΣς ß ẞ İ ǅ", &mut folded);
        assert_eq!(folded, "ks ÀÉ ΣΣΣ ß ß İ Ǆ");
        assert!(is_folded("plain, 日本 — ÀÉ") && !is_folded("a long plain text, and é"));
    }
}
