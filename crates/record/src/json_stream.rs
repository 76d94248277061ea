//! Reading the strings of one very long record without holding it.
//!
//! The record is fed in chunks of any size; decoded text comes out in pieces, each with the keys above it. Memory is
//! the depth of the JSON, not its length.

/// What the walker meets.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A string value begins.
    Begin,
    /// A piece of its decoded text. Pieces end at character boundaries.
    Text(&'a str),
    /// It ended.
    End,
}

const MAX_DEPTH: usize = 64;
const MAX_KEY: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum In {
    Structure,
    Key,
    Value,
}

/// An incremental walker over one JSON value.
#[derive(Debug)]
pub struct StringWalker {
    /// For each open container its key so far (`None` in arrays); deeper levels share the last entry.
    keys: Vec<Option<String>>,
    depth: usize,
    place: In,
    expect_key: bool,
    escape: Option<Vec<u8>>,
    high_surrogate: Option<u16>,
    pending: Vec<u8>,
    key: Vec<u8>,
}

impl Default for StringWalker {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            depth: 0,
            place: In::Structure,
            expect_key: false,
            escape: None,
            high_surrogate: None,
            pending: Vec::new(),
            key: Vec::new(),
        }
    }
}

impl StringWalker {
    /// The keys above the current value, outermost first; arrays give none.
    pub fn path(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.keys.iter().filter_map(|k| k.as_deref())
    }

    /// Feeds the next bytes. `sink` gets the walker (for [`path`](Self::path)) and each event.
    pub fn feed(&mut self, mut chunk: &[u8], sink: &mut impl FnMut(&Self, Event<'_>)) {
        while !chunk.is_empty() {
            match self.place {
                In::Structure => {
                    let byte = chunk[0];
                    chunk = &chunk[1..];
                    self.structure(byte, sink);
                }
                In::Key | In::Value => chunk = self.string(chunk, sink),
            }
        }
    }

    fn structure(&mut self, byte: u8, sink: &mut impl FnMut(&Self, Event<'_>)) {
        match byte {
            b'"' if self.expect_key => {
                self.place = In::Key;
                self.key.clear();
            }
            b'"' => {
                self.place = In::Value;
                sink(self, Event::Begin);
            }
            b'{' => {
                self.depth += 1;
                if self.keys.len() < MAX_DEPTH {
                    self.keys.push(None);
                }
                self.expect_key = true;
            }
            b'[' => {
                self.depth += 1;
                if self.keys.len() < MAX_DEPTH {
                    self.keys.push(None);
                }
                self.expect_key = false;
            }
            b'}' | b']' => {
                self.depth = self.depth.saturating_sub(1);
                self.keys.truncate(self.depth.min(MAX_DEPTH));
                self.expect_key = false;
            }
            b':' => self.expect_key = false,
            // After a comma a key is due only inside an object, which is one whose key was seen.
            b',' => self.expect_key = self.keys.last().is_some_and(Option::is_some),
            _ => {}
        }
    }

    /// Takes bytes of the string under way; returns what is left of the chunk.
    fn string<'c>(&mut self, chunk: &'c [u8], sink: &mut impl FnMut(&Self, Event<'_>)) -> &'c [u8] {
        if self.escape.is_some() {
            self.unescape(chunk[0], sink);
            return &chunk[1..];
        }
        let end = memchr::memchr2(b'"', b'\\', chunk).unwrap_or(chunk.len());
        if end > 0 {
            self.lone_surrogate(sink);
            self.emit(&chunk[..end], sink);
        }
        match chunk.get(end) {
            Some(b'\\') => {
                self.escape = Some(Vec::with_capacity(5));
                &chunk[end + 1..]
            }
            Some(_) => {
                self.lone_surrogate(sink);
                self.close(sink);
                &chunk[end + 1..]
            }
            None => &[],
        }
    }

    fn unescape(&mut self, byte: u8, sink: &mut impl FnMut(&Self, Event<'_>)) {
        let Some(mut sofar) = self.escape.take() else { return };
        if sofar.is_empty() && byte != b'u' {
            let c = match byte {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'b' => 8,
                b'f' => 12,
                other => other,
            };
            self.lone_surrogate(sink);
            self.emit(&[c], sink);
            return;
        }
        sofar.push(byte);
        if sofar.len() < 5 {
            self.escape = Some(sofar);
            return;
        }
        let unit =
            std::str::from_utf8(&sofar[1..]).ok().and_then(|h| u16::from_str_radix(h, 16).ok()).unwrap_or(0xfffd);
        let decoded = match (self.high_surrogate.take(), unit) {
            (Some(high), 0xdc00..=0xdfff) => {
                char::from_u32(0x10000 + ((u32::from(high) - 0xd800) << 10) + (u32::from(unit) - 0xdc00))
            }
            (Some(_), _) => {
                self.emit("\u{fffd}".as_bytes(), sink);
                self.surrogate_or_char(unit)
            }
            (None, _) => self.surrogate_or_char(unit),
        };
        if let Some(c) = decoded {
            let mut buffer = [0; 4];
            self.emit(c.encode_utf8(&mut buffer).as_bytes(), sink);
        }
    }

    fn surrogate_or_char(&mut self, unit: u16) -> Option<char> {
        if (0xd800..0xdc00).contains(&unit) {
            self.high_surrogate = Some(unit);
            return None;
        }
        Some(char::from_u32(u32::from(unit)).unwrap_or('\u{fffd}'))
    }

    fn lone_surrogate(&mut self, sink: &mut impl FnMut(&Self, Event<'_>)) {
        if self.high_surrogate.take().is_some() {
            self.emit("\u{fffd}".as_bytes(), sink);
        }
    }

    fn emit(&mut self, bytes: &[u8], sink: &mut impl FnMut(&Self, Event<'_>)) {
        if self.place == In::Key {
            let room = MAX_KEY.saturating_sub(self.key.len());
            self.key.extend_from_slice(&bytes[..bytes.len().min(room)]);
            return;
        }
        let mut joined;
        let mut rest = bytes;
        if !self.pending.is_empty() {
            joined = std::mem::take(&mut self.pending);
            joined.extend_from_slice(bytes);
            rest = &joined;
        }
        // Invalid bytes become U+FFFD; a character cut by the chunk's end waits for the next chunk.
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(text) => {
                    sink(self, Event::Text(text));
                    return;
                }
                Err(e) => {
                    let (good, bad) = rest.split_at(e.valid_up_to());
                    if let Ok(text) = std::str::from_utf8(good)
                        && !text.is_empty()
                    {
                        sink(self, Event::Text(text));
                    }
                    match e.error_len() {
                        Some(n) => {
                            sink(self, Event::Text("\u{fffd}"));
                            rest = &bad[n..];
                        }
                        None => {
                            self.pending = bad.to_vec();
                            return;
                        }
                    }
                }
            }
        }
    }

    fn close(&mut self, sink: &mut impl FnMut(&Self, Event<'_>)) {
        if self.place == In::Key {
            if let Some(slot) = self.keys.last_mut() {
                *slot = Some(String::from_utf8_lossy(&self.key).into_owned());
            }
        } else {
            if !std::mem::take(&mut self.pending).is_empty() {
                sink(self, Event::Text("\u{fffd}"));
            }
            sink(self, Event::End);
        }
        self.place = In::Structure;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn walk(json: &[u8], step: usize) -> Vec<(String, String)> {
        let mut out: Vec<(String, String)> = Vec::new();
        let mut w = StringWalker::default();
        for chunk in json.chunks(step) {
            w.feed(chunk, &mut |w, e| match e {
                Event::Begin => out.push((w.path().collect::<Vec<_>>().join("."), String::new())),
                Event::Text(t) => out.last_mut().unwrap().1.push_str(t),
                Event::End => {}
            });
        }
        out
    }

    fn strings(v: &Value, path: &str, out: &mut Vec<(String, String)>) {
        match v {
            Value::String(s) => out.push((path.to_owned(), s.clone())),
            Value::Array(a) => a.iter().for_each(|v| strings(v, path, out)),
            Value::Object(o) => o
                .iter()
                .for_each(|(k, v)| strings(v, &if path.is_empty() { k.clone() } else { format!("{path}.{k}") }, out)),
            _ => {}
        }
    }

    #[test]
    fn paths_and_escapes() {
        let text = r#"{"a":{"b":"x\ny","c":[1,"z",{"d":"\u00e9\ud83c\udf0d\/"}]},"e":"\"q\\","f":["g"]}"#;
        let want: Vec<(String, String)> =
            [("a.b", "x\ny"), ("a.c", "z"), ("a.c.d", "é🌍/"), ("e", "\"q\\"), ("f", "g")]
                .iter()
                .map(|(a, b)| ((*a).into(), (*b).into()))
                .collect();
        for step in [1, 2, 3, 7, 1000] {
            assert_eq!(walk(text.as_bytes(), step), want, "step {step}");
        }
        assert_eq!(
            walk(br#"["\ud83c!","\ud83c"]"#, 1),
            [(String::new(), "\u{fffd}!".to_owned()), (String::new(), "\u{fffd}".to_owned())]
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            any::<i32>().prop_map(|n| json!(n)),
            "\\PC*".prop_map(|s| json!(s)),
            any::<String>().prop_map(|s| json!(s)),
            Just(Value::Null)
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
                proptest::collection::btree_map("[a-z]{1,6}", inner, 0..5)
                    .prop_map(|m| Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn agrees_with_a_whole_parse(v in value(), step in 1usize..9) {
            let mut want = Vec::new();
            strings(&v, "", &mut want);
            prop_assert_eq!(walk(v.to_string().as_bytes(), step), want);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), step in 1usize..9) {
            walk(&bytes, step);
        }
    }
}
