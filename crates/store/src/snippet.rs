//! Text around a match.

/// Text around a match, white space collapsed, with the place of the match in it in characters: 48 characters before,
/// 96 behind, as Codex cuts them (`thread-store.md` 6.4).
#[must_use]
pub fn snippet(text: &str, start: usize, end: usize) -> (String, [usize; 2]) {
    const BEFORE: usize = 48;
    const AFTER: usize = 96;
    let (head, cut_head) = last_chars(&text[..start], BEFORE);
    let matched = collapse(&text[start..end]);
    let (tail, cut_tail) = first_chars(&text[end..], AFTER);
    let mut out = String::new();
    if cut_head {
        out.push_str("... ");
    }
    out.push_str(head.trim_start());
    let from = out.chars().count();
    out.push_str(&matched);
    let to = out.chars().count();
    out.push_str(tail.trim_end());
    if cut_tail {
        out.push_str(" ...");
    }
    (out, [from, to])
}

fn collapse(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if !c.is_whitespace() {
            out.push(c);
        } else if !out.ends_with(' ') {
            out.push(' ');
        }
    }
    out
}

fn last_chars(text: &str, n: usize) -> (String, bool) {
    // White space collapses, so some more characters than wanted are looked at.
    let start = text.char_indices().rev().take(n * 4).last().map_or(text.len(), |(i, _)| i);
    let collapsed = collapse(&text[start..]);
    let count = collapsed.chars().count();
    let cut = count > n || start > 0;
    (collapsed.chars().skip(count.saturating_sub(n)).collect(), cut)
}

fn first_chars(text: &str, n: usize) -> (String, bool) {
    let end = text.char_indices().nth(n * 4).map_or(text.len(), |(i, _)| i);
    let collapsed = collapse(&text[..end]);
    let cut = collapsed.trim_end().chars().count() > n || end < text.len();
    (collapsed.chars().take(n).collect(), cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snippets_mark_the_match_in_characters() {
        let (s, [a, b]) = snippet("né  wörld\n\nneedle after", 13, 19);
        assert_eq!(
            (s.as_str(), s.chars().skip(a).take(b - a).collect::<String>().as_str()),
            ("né wörld needle after", "needle")
        );
        let long = format!("{} needle {}", "x".repeat(100), "y".repeat(200));
        let (s, [a, b]) = snippet(&long, 101, 107);
        assert!(s.starts_with("... x") && s.ends_with("y ..."));
        assert_eq!(s.chars().skip(a).take(b - a).collect::<String>(), "needle");
    }
}
