//! Instants as they stand in records: UTC, in milliseconds.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant: milliseconds since the Unix epoch, UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UtcMillis(pub i64);

impl UtcMillis {
    /// Parses the forms that rollouts hold: RFC 3339 (any fraction, any offset) and the old header's
    /// `YYYY-MM-DDTHH-MM-SS`, which is UTC. Anything else is `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(fast) = parse_fixed(text.as_bytes()) {
            return Some(fast);
        }
        let b = text.as_bytes();
        if b.len() == 19 && b[10] == b'T' && b[13] == b'-' && b[16] == b'-' {
            let colons = format!("{}:{}:{}Z", text.get(..13)?, text.get(14..16)?, text.get(17..19)?);
            return colons.parse::<Timestamp>().ok().map(Self::from);
        }
        text.parse::<Timestamp>().ok().map(Self::from)
    }

    /// A time given in whole seconds, or in milliseconds when it is too large to be seconds
    /// (`thread-store.md` 5.2: values below 1 577 836 800 000 are seconds).
    #[must_use]
    pub fn from_seconds_or_millis(value: i64) -> Self {
        if value.unsigned_abs() < 1_577_836_800_000 { Self(value.saturating_mul(1000)) } else { Self(value) }
    }

    /// From a Unix time in nanoseconds, cut to milliseconds (rounded towards the past).
    #[must_use]
    pub fn from_nanos(nanos: i128) -> Self {
        // Nearly all fit in a word, whose division is many times faster; lists ask this for every file.
        if let Ok(nanos) = i64::try_from(nanos) {
            return Self(nanos.div_euclid(1_000_000));
        }
        let millis = nanos.div_euclid(1_000_000).clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        Self(i64::try_from(millis).unwrap_or(0))
    }
}

/// The fixed form that Codex writes: `YYYY-MM-DDTHH:MM:SS.mmmZ`, without going through a general parser.
fn parse_fixed(b: &[u8]) -> Option<UtcMillis> {
    if b.len() != 24
        || b[4] != b'-'
        || b[7] != b'-'
        || b[10] != b'T'
        || b[13] != b':'
        || b[16] != b':'
        || b[19] != b'.'
        || b[23] != b'Z'
    {
        return None;
    }
    let num = |from: usize, to: usize| -> Option<i64> {
        b[from..to].iter().try_fold(0i64, |n, c| c.is_ascii_digit().then(|| n * 10 + i64::from(c - b'0')))
    };
    let (y, mo, d) = (num(0, 4)?, num(5, 7)?, num(8, 10)?);
    let (h, mi, s, ms) = (num(11, 13)?, num(14, 16)?, num(17, 19)?, num(20, 23)?);
    // Day numbers that only some months have, and leap seconds, are left to the general parser.
    if !(1..=12).contains(&mo) || !(1..=28).contains(&d) || h > 23 || mi > 59 || s > 59 {
        return None;
    }
    let (yy, mm) = if mo <= 2 { (y - 1, mo + 9) } else { (y, mo - 3) };
    let era = yy.div_euclid(400);
    let yoe = yy - era * 400;
    let doy = (153 * mm + 2) / 5 + d - 1;
    let days = era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468;
    Some(UtcMillis(((days * 24 + h) * 60 + mi) * 60_000 + s * 1000 + ms))
}

impl From<Timestamp> for UtcMillis {
    fn from(t: Timestamp) -> Self {
        Self::from_nanos(t.as_nanosecond())
    }
}

impl fmt::Display for UtcMillis {
    /// RFC 3339, UTC, with milliseconds. A value outside the years that format can hold is shown as its number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}

impl fmt::Debug for UtcMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for UtcMillis {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for UtcMillis {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(d)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a time"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_form_that_rollouts_hold() {
        let want = UtcMillis(1_796_035_575_319);
        assert_eq!(UtcMillis::parse("2026-11-30T10:46:15.319Z"), Some(want));
        assert_eq!(UtcMillis::parse("2026-11-30T10:46:15.319000123Z"), Some(want));
        assert_eq!(UtcMillis::parse("2026-11-30T18:46:15.319+08:00"), Some(want));
        assert_eq!(UtcMillis::parse("2026-11-30T10-46-15"), Some(UtcMillis(1_796_035_575_000)));
        assert_eq!(UtcMillis::parse("yesterday"), None);
        assert_eq!(UtcMillis::parse("2026-13-30T10:46:15.319Z"), None);
        assert_eq!(UtcMillis::parse("2026-02-30T10:46:15.319Z"), None);
    }

    #[test]
    fn the_fixed_form_agrees_with_the_general_parser_over_the_calendar() {
        let mut ms = -2_208_988_800_000i64;
        while ms < 4_102_444_800_000 {
            let text = UtcMillis(ms).to_string();
            assert_eq!(UtcMillis::parse(&text), Some(UtcMillis(ms)), "{text}");
            ms += 86_400_000 * 13 + 3_723_004;
        }
    }
}
