//! Times on the command line.

use jiff::civil::Date;
use jiff::{Timestamp, Zoned};
use threadkeep_record::UtcMillis;

/// RFC 3339; a date, which begins at midnight here; or so long ago: `90m`, `12h`, `3d`, `2w`.
pub fn parse(text: &str) -> Result<UtcMillis, String> {
    let failed = || format!("not a time: {text}; use 2026-11-30, 2026-11-30T12:00:00Z or 3d");
    if let Some(number) = text.strip_suffix(['m', 'h', 'd', 'w'])
        && let Ok(n) = number.parse::<i64>()
    {
        let unit = match text.as_bytes()[text.len() - 1] {
            b'm' => 60_000,
            b'h' => 3_600_000,
            b'd' => 86_400_000,
            _ => 604_800_000,
        };
        return Ok(UtcMillis(Timestamp::now().as_millisecond().saturating_sub(n.saturating_mul(unit))));
    }
    if let Ok(date) = text.parse::<Date>()
        && text.len() == 10
    {
        let midnight: Zoned = date.to_zoned(jiff::tz::TimeZone::system()).map_err(|_| failed())?;
        return Ok(midnight.timestamp().into());
    }
    UtcMillis::parse(text).ok_or_else(failed)
}
