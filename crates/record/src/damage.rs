//! Judging a single line: is it a record, and if not, why.

use std::borrow::Cow;
use std::fmt;

use serde::de::IgnoredAny;

/// Why a line, or a whole file, does not say what a record should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DamageReason {
    /// The file ends in the middle of a record.
    TornTail,
    /// Not JSON; the text is the parser's reason.
    NotJson(String),
    /// Several records on one line, or one behind the beginning of another: an append was glued onto what was there.
    Glued,
    /// JSON, but not an object.
    NotAnObject,
    /// Bytes that are not UTF-8, at this place in the line.
    InvalidUtf8(usize),
    /// The line holds only NUL bytes.
    NulRun(usize),
    /// NUL bytes before or after a record that is otherwise whole; the record was kept.
    NulPadding(usize),
    /// A paginated record whose ordinal was there before.
    OrdinalRepeated(u64),
    /// A paginated record whose ordinal is not the next one.
    OrdinalGap {
        /// The ordinal that was due.
        expected: u64,
        /// The ordinal that came.
        found: u64,
    },
    /// The file has no usable header record.
    NoHeader,
    /// The header names another thread than the file name.
    IdMismatch {
        /// Id in the file name.
        name: String,
        /// Id in the header.
        header: String,
    },
    /// The file is empty.
    Empty,
    /// A compressed file that cannot be read on from here.
    Compressed(String),
    /// The file could not be read.
    Unreadable(String),
    /// Another file of the same thread says something else.
    Duplicate(String),
    /// A file that this history continues is not there.
    BaseMissing(String),
}

impl fmt::Display for DamageReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TornTail => write!(f, "the file ends in the middle of a record"),
            Self::NotJson(why) => write!(f, "not JSON: {why}"),
            Self::Glued => write!(f, "several records on one line, or one behind a torn one; the whole ones were kept"),
            Self::NotAnObject => write!(f, "not a JSON object"),
            Self::InvalidUtf8(at) => write!(f, "invalid UTF-8 at byte {at} of the record"),
            Self::NulRun(n) => write!(f, "{n} NUL bytes"),
            Self::NulPadding(n) => write!(f, "{n} NUL bytes beside a record, which was kept"),
            Self::OrdinalRepeated(n) => write!(f, "ordinal {n} is repeated"),
            Self::OrdinalGap { expected, found } => write!(f, "ordinal {found} where {expected} was due"),
            Self::NoHeader => write!(f, "no header record (session_meta)"),
            Self::IdMismatch { name, header } => {
                write!(f, "the file name says thread {name}, its header says {header}")
            }
            Self::Empty => write!(f, "the file is empty"),
            Self::Compressed(why) => write!(f, "compressed data cannot be read: {why}"),
            Self::Unreadable(why) => write!(f, "cannot be read: {why}"),
            Self::Duplicate(why) => write!(f, "{why}"),
            Self::BaseMissing(why) => write!(f, "{why}"),
        }
    }
}

/// What a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LineState<'a> {
    /// White space only; not a record and not damage.
    Blank,
    /// A whole record.
    Record(&'a [u8]),
    /// Records that could be recovered, and what was wrong with their line.
    Recovered(Vec<Cow<'a, [u8]>>, DamageReason),
    /// No record.
    Damaged(DamageReason),
}

/// Judges one line (without its line feed). A carriage return at the end is tolerated (files passed through tools
/// that write CRLF), as is a byte order mark at the start of a file.
#[must_use]
pub fn check_line(line: &[u8]) -> LineState<'_> {
    let text = trim(line);
    if text.is_empty() {
        return LineState::Blank;
    }
    if text[0] == b'{' && text[text.len() - 1] == b'}' {
        match serde_json::from_slice::<IgnoredAny>(text) {
            // The parser skips strings without looking at their encoding, so that is judged apart.
            Ok(IgnoredAny) => {
                return match std::str::from_utf8(text) {
                    Ok(_) => LineState::Record(text),
                    Err(e) => lossy(text, e.valid_up_to()),
                };
            }
            Err(e) if std::str::from_utf8(text).is_ok() => return glued(text).unwrap_or_else(|| damaged(&e)),
            Err(_) => {}
        }
    }
    if text.contains(&0) {
        let kept: &[u8] = trim_nul(text);
        let dropped = text.len() - kept.len();
        if kept.is_empty() {
            return LineState::Damaged(DamageReason::NulRun(dropped));
        }
        if dropped > 0
            && let LineState::Record(r) = check_line(kept)
        {
            return LineState::Recovered(vec![Cow::Borrowed(r)], DamageReason::NulPadding(dropped));
        }
    }
    if let Err(e) = std::str::from_utf8(text) {
        return lossy(text, e.valid_up_to());
    }
    match serde_json::from_slice::<IgnoredAny>(text) {
        Ok(_) => LineState::Damaged(DamageReason::NotAnObject),
        Err(e) => LineState::Damaged(DamageReason::NotJson(short_reason(&e))),
    }
}

fn damaged(e: &serde_json::Error) -> LineState<'static> {
    LineState::Damaged(DamageReason::NotJson(short_reason(e)))
}

/// Whole records that stand one behind the other on a line, or behind the beginning of a torn one.
fn glued(text: &[u8]) -> Option<LineState<'_>> {
    let mut found: Vec<Cow<'_, [u8]>> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let mut values = serde_json::Deserializer::from_slice(&text[at..]).into_iter::<IgnoredAny>();
        if text[at] == b'{' && matches!(values.next(), Some(Ok(IgnoredAny))) {
            let end = at + values.byte_offset();
            found.push(Cow::Borrowed(&text[at..end]));
            at = end + text[end..].iter().take_while(|b| b.is_ascii_whitespace()).count();
            continue;
        }
        at = next_record(text, at + 1)?;
        if found.len() > 1000 {
            return None;
        }
    }
    (!found.is_empty()).then_some(LineState::Recovered(found, DamageReason::Glued))
}

/// Where a record may begin, from `from` on. It begins with its time, or with the keys of older releases; inside a
/// string the quotes are escaped.
fn next_record(text: &[u8], from: usize) -> Option<usize> {
    const BEGINS: [&[u8]; 3] = [b"{\"timestamp\"", b"{\"type\"", b"{\"record_type\""];
    // A payload is not a record of its own, whole though it is where the record around it was cut off behind it.
    let is_part = |at: usize| {
        let before = text[..at].trim_ascii_end().last();
        !text[at..].starts_with(BEGINS[0]) && matches!(before, Some(b':' | b',' | b'['))
    };
    let first =
        |begin: &&[u8]| memchr::memmem::find_iter(&text[from..], *begin).map(|i| from + i).find(|i| !is_part(*i));
    BEGINS.iter().filter_map(first).min()
}

fn lossy(text: &[u8], at: usize) -> LineState<'_> {
    let repaired = String::from_utf8_lossy(text).into_owned().into_bytes();
    let whole = repaired.first() == Some(&b'{') && serde_json::from_slice::<IgnoredAny>(&repaired).is_ok();
    let reason = DamageReason::InvalidUtf8(at);
    if whole { LineState::Recovered(vec![Cow::Owned(repaired)], reason) } else { LineState::Damaged(reason) }
}

fn short_reason(e: &serde_json::Error) -> String {
    // The parser always says "line 1" here; only the column tells something.
    let text = e.to_string();
    match text.find(" at line ") {
        Some(i) => format!("{} at byte {}", &text[..i], e.column()),
        None => text,
    }
}

/// The line without surrounding white space and byte order mark.
#[must_use]
pub fn trim(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
    line.trim_ascii()
}

fn trim_nul(mut text: &[u8]) -> &[u8] {
    while let [0, rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., 0] = text {
        text = rest;
    }
    trim(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_among_nul_bytes_is_recovered() {
        let mut line = br#"{"a":1}"#.to_vec();
        line.extend([0u8; 9000]);
        assert_eq!(
            check_line(&line),
            LineState::Recovered(vec![Cow::Borrowed(br#"{"a":1}"#)], DamageReason::NulPadding(9000))
        );
        assert_eq!(check_line(&[0u8; 500]), LineState::Damaged(DamageReason::NulRun(500)));
    }

    #[test]
    fn invalid_utf8_costs_the_bytes_not_the_record() {
        let LineState::Recovered(text, DamageReason::InvalidUtf8(6)) = check_line(b"{\"a\":\"\xff\xfe\"}") else {
            panic!()
        };
        assert_eq!(&*text[0], "{\"a\":\"\u{fffd}\u{fffd}\"}".as_bytes());
        assert!(matches!(check_line(b"{\"a\":\"\xff"), LineState::Damaged(DamageReason::InvalidUtf8(6))));
    }

    #[test]
    fn torn_and_foreign_lines_say_why() {
        assert!(matches!(check_line(br#"{"a":"#), LineState::Damaged(DamageReason::NotJson(_))));
        assert!(matches!(check_line(b"%%% not json"), LineState::Damaged(DamageReason::NotJson(_))));
        assert_eq!(check_line(b"[1,2]"), LineState::Damaged(DamageReason::NotAnObject));
        assert_eq!(check_line(b" \r"), LineState::Blank);
        assert!(matches!(check_line(b"\xef\xbb\xbf{}\r"), LineState::Record(b"{}")));
    }

    #[test]
    fn records_glued_together_are_told_apart() {
        let whole = br#"{"timestamp":"a"}{"timestamp":"b","x":{"y":1}}"#;
        let LineState::Recovered(found, DamageReason::Glued) = check_line(whole) else { panic!() };
        assert_eq!(found.iter().map(|r| r.len()).collect::<Vec<_>>(), [17, 29]);
        let torn = br#"{"timestamp":"a","payload":{"type":"user_mes{"timestamp":"b","type":"c"}"#;
        let LineState::Recovered(found, DamageReason::Glued) = check_line(torn) else { panic!() };
        assert_eq!(&*found[0], br#"{"timestamp":"b","type":"c"}"#);
        assert!(matches!(check_line(br#"{"a":1}}"#), LineState::Damaged(_)));
    }

    #[test]
    fn the_payload_of_a_cut_off_record_is_no_record() {
        let whole = br#"{"timestamp":"a","type":"b","payload":{"type":"c","list":[{"type":"d"},{"type":"e"}]}}"#;
        let next = br#"{"timestamp":"z","type":"y","payload":{}}"#;
        for length in 1..whole.len() {
            let cut = &whole[..length];
            assert!(matches!(check_line(cut), LineState::Damaged(_)), "{}", String::from_utf8_lossy(cut));
            let glued = [cut, next].concat();
            let LineState::Recovered(found, DamageReason::Glued) = check_line(&glued) else {
                panic!("{}", String::from_utf8_lossy(&glued))
            };
            assert_eq!(found, [Cow::Borrowed(&next[..])], "{}", String::from_utf8_lossy(&glued));
        }
    }
}
