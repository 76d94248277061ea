//! Names of rollouts in a third of the bytes that they are spelt with: what a folder is remembered by.
//!
//! A name that can be spelt again from what it says is one byte for its form (1 to 3, and 3 more with a segment), its
//! time as two digits a byte, and its ids. Any other is a zero byte, its own bytes, and a zero byte.

use std::ffi::{CStr, OsStr};

use threadkeep_record::ThreadId;

use crate::name::{Form, RolloutName};

/// Bytes of a time: 14 digits.
const TIME: usize = 7;

/// Where the digits of a time stand in its text.
const DIGITS: [usize; 14] = [0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18];

/// The longest name that can be spelt, packed.
pub(crate) const MOST: usize = 1 + TIME + 16 + 16;

/// The usual one: without a segment.
pub(crate) const USUAL: usize = 1 + TIME + 16;

/// Appends a name that [`RolloutName::is_spelt`] says can be spelt again.
pub(crate) fn push(list: &mut Vec<u8>, name: &RolloutName) {
    let mut bytes = [0; MOST];
    let len = put(&mut bytes, name);
    list.extend_from_slice(&bytes[..len]);
}

/// Appends any other name.
pub(crate) fn push_text(list: &mut Vec<u8>, name: &OsStr) {
    list.push(0);
    list.extend_from_slice(name.as_encoded_bytes());
    list.push(0);
}

/// Writes a name that can be spelt again; says how long it is.
pub(crate) fn put(into: &mut [u8; MOST], name: &RolloutName) -> usize {
    into[0] = match name.form {
        Form::Plain => 1,
        Form::Zstd => 2,
        Form::Json => 3,
    } + if name.segment.is_some() { 3 } else { 0 };
    if let Some(stamp) = &name.stamp {
        for (byte, at) in into[1..].iter_mut().zip(DIGITS.chunks_exact(2)) {
            *byte = (stamp[at[0]] & 15) << 4 | stamp[at[1]] & 15;
        }
    }
    let mut len = 1 + TIME;
    for id in [name.id, name.segment].into_iter().flatten() {
        into[len..len + 16].copy_from_slice(id.as_bytes());
        len += 16;
    }
    len
}

/// A name of a list.
pub(crate) enum Next<'l> {
    /// One that can be spelt again, and as it is packed.
    Name(RolloutName, &'l [u8]),
    /// Another.
    Text(&'l CStr),
    /// There are no more.
    End,
    /// What follows was not written as names.
    Broken,
}

/// Takes the next name off a list.
pub(crate) fn next<'l>(list: &mut &'l [u8]) -> Next<'l> {
    let whole = *list;
    let Some((tag, rest)) = whole.split_first() else { return Next::End };
    if *tag == 0 {
        let Ok(text) = CStr::from_bytes_until_nul(rest) else { return Next::Broken };
        *list = &rest[text.to_bytes_with_nul().len()..];
        return Next::Text(text);
    }
    let form = match (tag - 1) % 3 {
        0 => Form::Plain,
        1 => Form::Zstd,
        _ => Form::Json,
    };
    let has_segment = *tag > 3;
    let Some((name, rest)) = rest.split_at_checked(TIME + if has_segment { 32 } else { 16 }) else {
        return Next::Broken;
    };
    let mut stamp = *b"0000-00-00T00-00-00";
    for (byte, at) in name.iter().zip(DIGITS.chunks_exact(2)) {
        if *tag > 6 || byte >> 4 > 9 || byte & 15 > 9 {
            return Next::Broken;
        }
        stamp[at[0]] += byte >> 4;
        stamp[at[1]] += byte & 15;
    }
    *list = rest;
    let id = |at: usize| name.get(at..at + 16)?.try_into().ok().map(ThreadId::from_bytes);
    let segment = if has_segment { id(TIME + 16) } else { None };
    let name = RolloutName { id: id(TIME), segment, form, stamp: Some(stamp), canonical: true };
    Next::Name(name, &whole[..whole.len() - list.len()])
}

/// The thread of the next name, if it is one that can be spelt again, and its length; for those who pass over most names.
pub(crate) fn peek(list: &[u8]) -> Option<(ThreadId, usize)> {
    let length = 1
        + TIME
        + match list.first()? {
            1..=3 => 16,
            4..=6 => 32,
            _ => return None,
        };
    let id = list.get(..length)?[1 + TIME..].first_chunk::<16>()?;
    Some((ThreadId::from_bytes(*id), length))
}

/// Whether a name is one in the folder itself. Those that are spelt again always are.
pub(crate) fn is_plain(name: &CStr) -> bool {
    let name = name.to_bytes();
    !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/')
}

/// Room for a name as it is spelt.
pub(crate) struct Spelt([u8; 128]);

impl Spelt {
    pub fn new() -> Self {
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(b"rollout-");
        Self(bytes)
    }

    /// Spells a name that was packed by [`push`].
    pub fn spell(&mut self, name: &RolloutName) -> &CStr {
        let mut at = 8;
        let mut put = |bytes: &[u8]| {
            self.0[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        put(name.stamp.as_ref().map_or(&[], <[u8; 19]>::as_slice));
        for (between, id) in [(b"-", name.id), (b"_", name.segment)] {
            if let Some(id) = id {
                put(between);
                put(&text_of(id));
            }
        }
        put(name.form.ending().as_bytes());
        put(b"\0");
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

/// The text of an id.
fn text_of(id: ThreadId) -> [u8; 36] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (i, byte) in id.as_bytes().iter().enumerate() {
        at += usize::from(matches!(i, 4 | 6 | 8 | 10));
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 15)];
        at += 2;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01990000-0000-7000-8000-00000000abcd";

    fn read(mut list: &[u8]) -> Option<Vec<String>> {
        let mut spelt = Spelt::new();
        let mut all = Vec::new();
        loop {
            match next(&mut list) {
                Next::Name(name, packed) => {
                    let mut again = [0; MOST];
                    let len = put(&mut again, &name);
                    assert_eq!(packed, &again[..len]);
                    let text = spelt.spell(&name).to_str().unwrap().to_owned();
                    assert_eq!(RolloutName::parse(&text).as_ref(), Some(&name));
                    assert_eq!(name.file_name().as_ref(), Some(&text));
                    all.push(text);
                }
                Next::Text(text) if is_plain(text) => all.push(text.to_str().unwrap().to_owned()),
                Next::Text(_) => return None,
                Next::End => return Some(all),
                Next::Broken => return None,
            }
        }
    }

    #[test]
    fn names_come_back_as_they_were() {
        let names = [
            format!("rollout-2026-11-30T12-27-18-{ID}.jsonl"),
            format!("rollout-2026-11-30T12-27-18-{ID}_{ID}.jsonl.zst"),
            format!("rollout-9999-99-99T99-99-99-{ID}.json"),
            format!("rollout-2026-11-30T12-27-18-{ID} (1).jsonl"),
            format!("rollout-2025-08-01-{ID}.json"),
            format!("rollout-2026-11-30T12-27-18-{ID}.jsonl.zst"),
            format!("rollout-2026-11-30T12-27-18-{ID}_{ID}.jsonl"),
        ];
        let mut list = Vec::new();
        for name in &names {
            let parsed = RolloutName::parse(name).unwrap();
            if parsed.is_spelt(name.as_bytes()) {
                push(&mut list, &parsed);
            } else {
                push_text(&mut list, OsStr::new(name));
            }
        }
        assert!(list.len() < 4 * 24 + 2 * 40 + 2 * 90);
        assert_eq!(read(&list).as_deref(), Some(&names[..]));
        // Cut anywhere, it never reads as other names than the first of these.
        for end in 0..list.len() {
            if let Some(part) = read(&list[..end]) {
                assert_eq!(part, names[..part.len()], "{end}");
            }
        }
    }

    #[test]
    fn what_is_no_list_is_told() {
        let time = [0x20, 0x26, 0x11, 0x30, 0x12, 0x27, 0x18];
        let with = |tag: u8, time: [u8; 7], ids: usize| [&[tag][..], &time, &[7; 32][..ids]].concat();
        assert!(read(&with(1, time, 16)).is_some() && read(&with(6, time, 32)).is_some() && read(b"").is_some());
        let wrong = [0xa0, 0x26, 0x11, 0x30, 0x12, 0x27, 0x18];
        let last = [0x20, 0x26, 0x11, 0x30, 0x12, 0x27, 0x1f];
        for list in [
            with(7, time, 32),
            with(255, time, 32),
            with(1, wrong, 16),
            with(1, last, 16),
            with(1, time, 15),
            with(4, time, 31),
            vec![0, 0, 0],
            vec![0, b'a'],
            b"\0../rollout-a.jsonl\0".to_vec(),
            b"\0..\0".to_vec(),
            b"\0.\0".to_vec(),
        ] {
            assert!(read(&list).is_none(), "{list:?}");
        }
    }
}
