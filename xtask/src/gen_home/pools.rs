//! The texts that sessions are put together from, made once per home. Choosing from a pool instead of writing new
//! text is what makes the generator fast; the pools are large enough that text indexes do not profit much from it.

use crate::gen_home::rng::Rng;

/// Plain words from made-up syllables, and a few dozen English ones of the trade that come up in nearly every thread.
const WORDS: &str = include_str!("../../words.txt");

/// All text in here, apart from `users`, is already escaped for a JSON string.
pub struct Pools {
    pub words: Vec<&'static str>,
    /// User messages, not escaped: the start of one becomes the first message of a thread and stands in the manifest.
    pub users: Vec<String>,
    pub users_json: Vec<String>,
    pub answers: Vec<String>,
    pub outputs: Vec<String>,
    pub encrypted: Vec<String>,
    pub base_instructions: String,
    pub developer: String,
    pub cwds: Vec<String>,
}

impl Pools {
    pub fn new(rng: &mut Rng, cwds: usize, small_base: bool) -> Self {
        let words: Vec<&'static str> = WORDS.split_whitespace().collect();
        let soup = |rng: &mut Rng, low, high| {
            let n = rng.range(low, high);
            text(rng, &words, n as usize)
        };
        let users: Vec<String> = (0..400).map(|_| soup(rng, 30, 700)).collect();
        let answers = (0..400).map(|_| escape(&soup(rng, 100, 3000))).collect();
        let outputs = (0..400)
            .map(|_| {
                let n = rng.log_normal(6.9, 1.4).min(60_000.0) as usize;
                escape(&text(rng, &words, n))
            })
            .collect();
        let encrypted = (0..60).map(|_| encrypted(rng)).collect();
        let header = text(rng, &words, if small_base { 800 } else { 15_000 });
        let developer = text(rng, &words, 2500);
        let cwds = (0..cwds)
            .map(|i| format!("/home/dev/{}/{}{i}", rng.pick::<str>(&["src", "work", "code"]), rng.pick::<str>(&words)))
            .collect();
        Self {
            users_json: users.iter().map(|u| escape(u)).collect(),
            users,
            answers,
            outputs,
            encrypted,
            base_instructions: escape_ascii(&format!("You are a coding agent running in the Codex CLI. {header}")),
            developer: escape(&format!("<permissions instructions>{developer}</permissions instructions>")),
            cwds,
            words,
        }
    }
}

/// `n` characters of words, with some that look like code and some that are not ASCII.
fn text(rng: &mut Rng, words: &[&str], n: usize) -> String {
    let mut out = String::with_capacity(n + 64);
    let mut chars = 0;
    while chars < n {
        if chars > 0 {
            out.push(' ');
        }
        let start = out.len();
        let word = rng.pick::<str>(words);
        let kind = rng.unit();
        if kind < 0.02 {
            let file = rng.pick::<str>(words);
            out.push_str(&format!("`src/{word}/{file}.rs:{}`", rng.below(900)));
        } else {
            out.push_str(word);
            if kind < 0.03 {
                match rng.below(4) {
                    0 => out.push_str("\n\n"),
                    1 => out.push_str(" — "),
                    2 => out.push_str(&format!(" “{word}” ")),
                    _ => out.push_str(&format!("\n```rust\nfn {word}() {{\n\treturn;\n}}\n```\n")),
                }
            }
        }
        chars += out[start..].chars().count() + 1;
    }
    if let Some((end, _)) = out.char_indices().nth(n) {
        out.truncate(end);
    }
    out
}

/// Looks like the model's encrypted reasoning: a fixed start, then base64 in its URL alphabet.
fn encrypted(rng: &mut Rng) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let n = rng.range(300, 2500);
    let body = (0..n).map(|_| ALPHABET[rng.below(64) as usize] as char);
    "gAAAAAB".chars().chain(body).collect()
}

/// The inside of a JSON string.
pub fn escape(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// The same with `\uXXXX` for all that is not ASCII, as some writers do it.
fn escape_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in escape(text).chars() {
        if c.is_ascii() {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}
