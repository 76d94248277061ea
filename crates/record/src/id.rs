//! The thread id: a UUID, the only durable handle of a thread.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The id of a thread (any UUID; released binaries write v4 up to 0.20 and v7 since).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(uuid::Uuid);

/// A text that is not a UUID in its hyphenated form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a thread id: {0:?}")]
pub struct InvalidThreadId(pub String);

impl ThreadId {
    /// Parses the hyphenated 36-character form, in either case. Other spellings of a UUID are refused, because file
    /// names and records never hold them.
    pub fn parse(text: &str) -> Result<Self, InvalidThreadId> {
        Self::from_text(text.as_bytes()).ok_or_else(|| InvalidThreadId(text.chars().take(80).collect()))
    }

    /// Reads the text digit by digit: a walk does this for every file name.
    fn from_text(text: &[u8]) -> Option<Self> {
        if text.len() != 36 {
            return None;
        }
        let mut bytes = [0u8; 16];
        let mut at = 0;
        for (i, byte) in bytes.iter_mut().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                if text[at] != b'-' {
                    return None;
                }
                at += 1;
            }
            let digit = |c: u8| char::from(c).to_digit(16);
            *byte = u8::try_from(digit(text[at])? << 4 | digit(text[at + 1])?).ok()?;
            at += 2;
        }
        Some(Self(uuid::Uuid::from_bytes(bytes)))
    }

    /// The 16 bytes of the id.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id with these 16 bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(uuid::Uuid::from_bytes(bytes))
    }

    /// A new id, ordered by time, from the system's clock and randomness.
    #[must_use]
    pub fn new_v7() -> Self {
        Self(uuid::Uuid::now_v7())
    }

    /// Appends the hyphenated lower-case form to a text.
    pub fn push_to(&self, text: &mut String) {
        text.push_str(self.0.as_hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()));
    }

    /// The Unix time in milliseconds that a v7 id carries, or `None` for other versions.
    #[must_use]
    pub fn v7_millis(&self) -> Option<i64> {
        (self.0.get_version_num() == 7).then(|| {
            let b = self.0.as_bytes();
            i64::from_be_bytes([0, 0, b[0], b[1], b[2], b[3], b[4], b[5]])
        })
    }
}

impl fmt::Display for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for ThreadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ThreadId {
    type Err = InvalidThreadId;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::parse(s)
    }
}

impl Serialize for ThreadId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ThreadId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_the_hyphenated_form_in_either_case_and_shows_it_lower() {
        let id = ThreadId::parse("01990000-0000-7000-8000-00000000000A").unwrap();
        assert_eq!(id.to_string(), "01990000-0000-7000-8000-00000000000a");
        assert_eq!(id.v7_millis(), Some(0x0199_0000_0000));
    }

    #[test]
    fn refuses_other_spellings() {
        for bad in [
            "",
            "01990000000070008000000000000001",
            "{01990000-0000-7000-8000-000000000001}",
            "01990000-0000-7000-8000-00000000000g",
            "é1990000-0000-7000-8000-0000000000",
        ] {
            assert!(ThreadId::parse(bad).is_err(), "{bad}");
        }
    }
}
