//! One walk over the payload of a record, by the keys of its family.
//!
//! It is strict: what it does not know ends it, and the line is parsed instead. What it accepts is one object with the
//! structure that a parser would find, so no other record can hide in the line.

use serde_json::Value;

use super::answer;
use super::rules::{Action, Family};
use crate::item::tool;
use crate::preview::is_injected;

/// Payloads of the common kinds are much shallower.
const MAX_DEPTH: usize = 16;

/// Who a message is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A person: some parts are put there by programs.
    User,
    /// The agent.
    Assistant,
    /// A program: nothing is searched.
    Program,
}

pub(super) struct Walk<'a, 's, S> {
    /// What is left of the line from the payload on.
    rest: &'a str,
    family: Family,
    decoded: &'s mut String,
    sink: &'s mut S,
    role: Option<Role>,
    /// Parts of the one text that were given.
    parts: u32,
    /// `type` keys of the payload and of the item in it.
    types: [u32; 2],
    /// Where the walk is: in the payload, or in the item in it.
    in_item: Option<usize>,
    items: u32,
}

impl<'a, 's, S: FnMut(&str)> Walk<'a, 's, S> {
    /// `payload` is the line from the payload on, to its end.
    pub(super) fn new(payload: &'a str, family: Family, decoded: &'s mut String, sink: &'s mut S) -> Self {
        Self { rest: payload, family, decoded, sink, role: None, parts: 0, types: [0; 2], in_item: None, items: 0 }
    }

    /// Walks the line to its end. `None` where it has to be parsed; texts given before that are texts all the same.
    pub(super) fn run(mut self) -> Option<()> {
        if self.peek()? != b'{' {
            return None;
        }
        self.value(Action::Texts, 0)?;
        (self.rest == "}").then_some(())
    }

    fn peek(&self) -> Option<u8> {
        self.rest.as_bytes().first().copied()
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.rest = self.rest.get(bytes..)?;
        Some(())
    }

    fn value(&mut self, action: Action, depth: usize) -> Option<()> {
        match (action, self.peek()?) {
            (Action::GiveUp, _) => None,
            (Action::Command, b'"' | b'[') => self.command(),
            (Action::Null, _) => {
                self.rest = self.rest.strip_prefix("null")?;
                Some(())
            }
            (_, b'"') => self.string(action),
            (Action::Answer | Action::Command | Action::Role | Action::Type, b'{' | b'[') => None,
            (Action::Item, b'[') => None,
            (_, b'{') => self.object(action, depth),
            (_, b'[') => self.list(action, depth),
            // Numbers, `true`, `false` and `null` have no text in these kinds.
            (_, b'-' | b'0'..=b'9' | b'a'..=b'z') => {
                let plain = |b: &u8| matches!(b, b'-' | b'+' | b'.' | b'E' | b'0'..=b'9' | b'a'..=b'z');
                let length = self.rest.bytes().take_while(plain).count();
                self.skip(length)
            }
            _ => None,
        }
    }

    fn object(&mut self, action: Action, depth: usize) -> Option<()> {
        if depth >= MAX_DEPTH {
            return None;
        }
        self.skip(1)?;
        if self.peek()? == b'}' {
            return self.skip(1);
        }
        loop {
            let key = self.raw_string()?;
            if key.contains('\\') || key == "timestamp" {
                return None;
            }
            self.rest = self.rest.strip_prefix(':')?;
            let inner = match action {
                Action::Ignore | Action::NoStrings => action,
                _ => self.family.action(key),
            };
            match inner {
                // What an object of parts is called says nothing of the record.
                Action::Type if depth == 0 => self.types[0] += 1,
                Action::Type if self.in_item == Some(depth) => self.types[1] += 1,
                Action::Item => {
                    self.items += 1;
                    self.in_item = (depth == 0).then_some(1);
                    self.in_item?;
                }
                _ => {}
            }
            if self.types.iter().any(|n| *n > 1) || self.items > 1 {
                return None;
            }
            self.value(inner, depth + 1)?;
            if inner == Action::Item {
                self.in_item = None;
            }
            match self.peek()? {
                b',' => self.skip(1)?,
                b'}' => return self.skip(1),
                _ => return None,
            }
        }
    }

    fn list(&mut self, action: Action, depth: usize) -> Option<()> {
        if depth >= MAX_DEPTH {
            return None;
        }
        self.skip(1)?;
        if self.peek()? == b']' {
            return self.skip(1);
        }
        loop {
            self.value(action, depth + 1)?;
            match self.peek()? {
                b',' => self.skip(1)?,
                b']' => return self.skip(1),
                _ => return None,
            }
        }
    }

    /// The string that begins here, as it is spelt between its quotes.
    fn raw_string(&mut self) -> Option<&'a str> {
        let text = self.rest.strip_prefix('"')?;
        let mut from = 0;
        loop {
            let at = from + memchr::memchr2(b'"', b'\\', text.as_bytes().get(from..)?)?;
            if text.as_bytes().get(at) == Some(&b'"') {
                self.rest = text.get(at + 1..)?;
                return text.get(..at);
            }
            from = at + 2;
        }
    }

    fn string(&mut self, action: Action) -> Option<()> {
        let raw = self.raw_string()?;
        match action {
            Action::Ignore => return Some(()),
            Action::Type => {
                // A picture is one by its type alone, and has a label that stands nowhere in the line.
                let picture = matches!(raw, "image" | "local_image" | "input_image");
                return (!picture && !raw.contains('\\')).then_some(());
            }
            Action::NoStrings | Action::Null | Action::Command | Action::Item | Action::GiveUp => return None,
            Action::Role => {
                let role = match raw {
                    "user" => Role::User,
                    "assistant" => Role::Assistant,
                    "developer" | "system" => Role::Program,
                    _ => return None,
                };
                return self.role.replace(role).is_none().then_some(());
            }
            Action::Texts | Action::Parts | Action::Answer => {}
        }
        if action == Action::Parts && self.role == Some(Role::Program) {
            return Some(());
        }
        let text = if raw.contains('\\') {
            self.decoded.clear();
            unescape(raw, self.decoded)?;
            self.decoded.as_str()
        } else {
            raw
        };
        match action {
            Action::Answer => answer(text, self.sink),
            Action::Parts => {
                match (self.family, self.role) {
                    // A part is judged by the role, which stands before it.
                    (Family::Message, None) => return None,
                    (_, Some(Role::User)) if is_injected(text) => return Some(()),
                    _ => {}
                }
                // Parts are joined by a line feed, and a term may stand across it.
                self.parts += 1;
                if self.parts > 1 {
                    return None;
                }
                (self.sink)(text);
            }
            _ => (self.sink)(text),
        }
        Some(())
    }

    fn command(&mut self) -> Option<()> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Value>();
        let value = values.next()?.ok()?;
        let end = values.byte_offset();
        if let Some(text) = tool::command_text(&value) {
            (self.sink)(&text);
        }
        self.skip(end)
    }
}

/// Decodes the spelling of a JSON string. `None` where it is not one, or holds half of a surrogate pair.
fn unescape(raw: &str, into: &mut String) -> Option<()> {
    let mut rest = raw;
    into.reserve(raw.len());
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        into.push_str(rest.get(..at)?);
        let escape = *rest.as_bytes().get(at + 1)?;
        rest = rest.get(at + 2..)?;
        into.push(match escape {
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'"' | b'\\' | b'/' => char::from(escape),
            b'u' => {
                let unit = hex(rest)?;
                rest = rest.get(4..)?;
                match unit {
                    0xd800..=0xdbff => {
                        rest = rest.strip_prefix("\\u")?;
                        let low = hex(rest).filter(|low| (0xdc00..=0xdfff).contains(low))?;
                        rest = rest.get(4..)?;
                        char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00))?
                    }
                    _ => char::from_u32(unit)?,
                }
            }
            _ => return None,
        });
    }
    into.push_str(rest);
    Some(())
}

fn hex(text: &str) -> Option<u32> {
    let digits = text.get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}
