//! The text that is looked for: how it is confirmed in decoded text, and how lines that cannot hold it are skipped.

use aho_corasick::AhoCorasick;
use regex::{Regex, RegexBuilder};
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use super::simd::{Finder, RawNeedle};

/// A prepared needle.
#[derive(Debug, Clone)]
pub struct Needle {
    regex: Regex,
    filter: RawFilter,
    /// Characters of the term.
    pub chars: usize,
}

/// Tells lines that may hold the needle from those that cannot, in raw JSON.
#[derive(Debug, Clone)]
enum RawFilter {
    /// A run of the needle stands in the raw text as it is.
    Run(Finder),
    /// One of these byte strings stands there.
    Any(AhoCorasick),
    /// Every line has to be decoded.
    Nothing,
}

impl Needle {
    /// Prepares a term, which is taken literally. `None` if it is empty.
    #[must_use]
    pub fn new(term: &str, case_sensitive: bool) -> Option<Self> {
        if term.is_empty() {
            return None;
        }
        let regex = RegexBuilder::new(&regex::escape(term))
            .case_insensitive(!case_sensitive)
            .size_limit(64 << 20)
            .build()
            .ok()?;
        Some(Self { regex, filter: raw_filter(term, !case_sensitive), chars: term.chars().count() })
    }

    /// The first match in a decoded text, in bytes.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<(usize, usize)> {
        self.regex.find(text).map(|m| (m.start(), m.end()))
    }

    /// The first place at or behind `from` whose line has to be decoded.
    #[must_use]
    pub fn candidate(&self, raw: &[u8], from: usize) -> Option<usize> {
        match &self.filter {
            RawFilter::Run(finder) => finder.find(raw, from),
            RawFilter::Any(set) => set.find(&raw[from..]).map(|m| from + m.start()),
            RawFilter::Nothing => (from < raw.len()).then_some(from),
        }
    }
}

/// Whether a byte stands in JSON as it is, at any depth of JSON within JSON.
fn is_plain(b: u8) -> bool {
    matches!(b, 0x20..=0x7e) && !matches!(b, b'"' | b'\\' | b'/')
}

fn raw_filter(term: &str, any_case: bool) -> RawFilter {
    let runs = term.as_bytes().split(|b| !is_plain(*b));
    let run = runs.max_by_key(|r| r.len()).unwrap_or(b"");
    let foreign: Option<char> = term.chars().filter(|c| !c.is_ascii()).max();
    match (run, foreign) {
        // A short run beside a character that is rare in itself is the worse filter.
        (run, Some(c)) if run.len() < 3 => any_of(c, any_case),
        ([], None) => RawFilter::Nothing,
        (run, _) => {
            let run = if any_case { run.to_ascii_lowercase() } else { run.to_vec() };
            let lookalikes = any_case && run.iter().any(|b| matches!(b, b'k' | b's'));
            RawFilter::Run(Finder::new(RawNeedle { run, any_case, lookalikes }))
        }
    }
}

/// Every spelling of a character in JSON: itself, and as `\u` escapes of one or two units.
fn any_of(c: char, any_case: bool) -> RawFilter {
    let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
    if any_case && class.try_case_fold_simple().is_err() {
        return RawFilter::Nothing;
    }
    let mut spellings: Vec<Vec<u8>> = Vec::new();
    for v in class.ranges().iter().flat_map(|r| r.start()..=r.end()) {
        if v.is_ascii() {
            // `k` for the Kelvin sign: too common to filter by.
            return RawFilter::Nothing;
        }
        spellings.push(v.to_string().into_bytes());
        let mut units = [0; 2];
        let escaped: String = v.encode_utf16(&mut units).iter().map(|u| format!("\\u{u:04x}")).collect();
        // Within JSON within JSON the backslash is doubled, so only what follows it is looked for.
        spellings.push(escaped.split('\\').nth(1).unwrap_or("").as_bytes().to_vec());
    }
    // Hexadecimal digits have either case; other bytes of these spellings have no case.
    AhoCorasick::builder().ascii_case_insensitive(true).build(spellings).map_or(RawFilter::Nothing, RawFilter::Any)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The filter must let every spelling of a matching text through.
    #[test]
    fn no_spelling_is_filtered_away() {
        for (term, raws) in [
            ("say \"hi\"", vec![r#"say \"hi\""#, r#"say \\\"hi\\\""#, r"\u0073ay \u0022hi\u0022"]),
            ("café", vec!["caf\u{e9}", r"caf\u00e9", r"CAF\\u00C9", "CAFÉ"]),
            ("日本", vec!["日本", r"\u65e5\u672c", r"\\u65E5\\u672C"]),
            ("🌍", vec!["🌍", r"\ud83c\udf0d", r"\uD83C\uDF0D"]),
            ("a/b", vec!["a/b", r"a\/b", r"a\u002fb"]),
            ("x\ny", vec![r"x\ny", r"x\\ny"]),
            ("\\", vec![r"\\", r"\\\\"]),
            ("task", vec!["TASK", "ta\u{17f}k", "tas\u{212a}", r"ta\u017Fk"]),
            ("ſ", vec!["s", "S", "ſ"]),
        ] {
            let needle = Needle::new(term, false).unwrap();
            for raw in raws {
                let line = format!("{{\"text\":\"{raw}\"}}");
                assert!(needle.candidate(line.as_bytes(), 0).is_some(), "{term} in {raw}");
            }
        }
    }

    #[test]
    fn case_folds_as_unicode_says() {
        let n = Needle::new("straße É K", false).unwrap();
        assert!(n.find("STRAßE é \u{212a}").is_some());
        assert!(n.find("STRASSE é k").is_none());
        assert!(Needle::new("É", true).unwrap().find("é").is_none());
    }
}
