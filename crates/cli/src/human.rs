//! Texts, sizes and times as a person reads them.

use std::fmt::Write;

use threadkeep_record::UtcMillis;
use unicode_width::UnicodeWidthChar;

/// Text from a rollout made safe for a terminal: every control and direction character is made visible; line feeds and
/// tabs stay.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            _ => push_visible(&mut out, c),
        }
    }
    out
}

/// The same on one line: white space collapses to single spaces.
pub fn visible_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_whitespace() {
            if !out.ends_with(' ') && !out.is_empty() {
                out.push(' ');
            }
        } else {
            push_visible(&mut out, c);
        }
    }
    out.truncate(out.trim_end().len());
    out
}

fn push_visible(out: &mut String, c: char) {
    match c {
        '\0'..='\x1f' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('?')),
        '\x7f' => out.push('\u{2421}'),
        '\u{80}'..='\u{9f}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}'
        | '\u{feff}' => {
            let _ = write!(out, "<U+{:04X}>", c as u32);
        }
        _ => out.push(c),
    }
}

/// Cuts to a width in terminal columns, with an ellipsis.
pub fn fit(text: &str, width: usize) -> String {
    let mut used = 0;
    let mut out = String::new();
    for c in text.chars() {
        let w = c.width().unwrap_or(0);
        if used + w > width {
            while used + 1 > width {
                let Some(last) = out.pop() else { break };
                used -= last.width().unwrap_or(0);
            }
            out.push('…');
            return out;
        }
        used += w;
        out.push(c);
    }
    out
}

/// Pads to a width in terminal columns.
pub fn pad(text: &str, width: usize) -> String {
    let used: usize = text.chars().map(|c| c.width().unwrap_or(0)).sum();
    format!("{text}{}", " ".repeat(width.saturating_sub(used)))
}

/// Bytes in the largest unit that leaves a number below 1000.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KB", "MB", "GB", "TB"] {
        if value < 999.5 {
            return if unit == "B" || value >= 9.95 {
                format!("{value:.0} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.0} PB")
}

/// A number with its digits in groups of three.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of things, in words.
pub fn many(n: u64, one: &str, several: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { several })
}

/// How long ago, in one unit.
pub fn age(then: UtcMillis, now: UtcMillis) -> String {
    let s = (now.0 - then.0) / 1000;
    match s {
        i64::MIN..=-60 => "future".into(),
        -59..=59 => "now".into(),
        60..=3599 => format!("{}m", s / 60),
        3600..=86_399 => format!("{}h", s / 3600),
        86_400..=1_209_599 => format!("{}d", s / 86_400),
        1_209_600..=7_775_999 => format!("{}w", s / 604_800),
        7_776_000..=62_207_999 => format!("{}mo", s / 2_592_000),
        _ => format!("{}y", s / 31_536_000),
    }
}

/// An instant in the reader's zone, to the minute.
pub fn when(t: UtcMillis) -> String {
    match jiff::Timestamp::from_millisecond(t.0) {
        Ok(ts) => ts.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M").to_string(),
        Err(_) => t.to_string(),
    }
}

/// A directory with the person's own home as `~`.
pub fn directory(path: &str) -> String {
    if let Some(rest) = std::env::home_dir().and_then(|h| path.strip_prefix(&*h.to_string_lossy()).map(str::to_owned))
        && (rest.is_empty() || rest.starts_with('/'))
    {
        return visible_line(&format!("~{rest}"));
    }
    visible_line(path)
}

/// Cuts from the left to a width in terminal columns: of a path that is the part that tells least.
pub fn fit_left(text: &str, width: usize) -> String {
    let columns = |s: &str| -> usize { s.chars().map(|c| c.width().unwrap_or(0)).sum() };
    if columns(text) <= width {
        return text.to_owned();
    }
    let start = text.char_indices().map(|(i, _)| i).find(|i| columns(&text[*i..]) < width).unwrap_or(text.len());
    format!("…{}", &text[start..])
}

/// A word a shell takes as one. Control characters are spelt, so that the line can be printed as it is.
pub fn shell_word(text: &str) -> String {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./=:@%+,~".contains(&b));
    if plain {
        return text.to_owned();
    }
    if visible(text) == text && !text.contains(['\n', '\t']) {
        return format!("'{}'", text.replace('\'', "'\\''"));
    }
    let mut out = String::from("$'");
    for c in text.chars() {
        match c {
            '\'' | '\\' => out.extend(['\\', c]),
            ' '..='~' => out.push(c),
            other => {
                let mut bytes = [0; 4];
                out.extend(other.encode_utf8(&mut bytes).bytes().map(|b| format!("\\x{b:02x}")));
            }
        }
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_seen_not_obeyed() {
        assert_eq!(visible("a\x1b[31mb\u{9b}\u{202e}\r\n\tc"), "a␛[31mb<U+009B><U+202E>␍\n\tc");
        assert_eq!(visible_line("  a \n b\u{2028}c\x07"), "a b c␇");
    }

    #[test]
    fn widths_and_sizes() {
        assert_eq!(fit("日本語", 5), "日本…");
        assert_eq!(fit("日本語", 4), "日…");
        assert_eq!(
            (size(0), size(1499), size(54_000), size(1_200_000_000)),
            ("0 B".into(), "1.5 KB".into(), "54 KB".into(), "1.2 GB".into())
        );
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(shell_word("it's"), "'it'\\''s'");
    }
}
