//! Time and new ids, as parameters, so that tests are exact.

use std::fmt::Debug;

use threadkeep_record::{ThreadId, UtcMillis};

/// A clock with the writer's time zone.
pub trait Clock: Debug + Send + Sync {
    /// Now.
    fn now(&self) -> UtcMillis;
    /// An instant as the writer's local time, in the form of rollout names (`YYYY-MM-DDTHH-MM-SS`).
    fn local_stamp(&self, at: UtcMillis) -> String;
}

/// The system's clock and zone.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> UtcMillis {
        UtcMillis(jiff::Timestamp::now().as_millisecond())
    }

    fn local_stamp(&self, at: UtcMillis) -> String {
        let zone = jiff::tz::TimeZone::system();
        let instant = jiff::Timestamp::from_millisecond(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        instant.to_zoned(zone).strftime(STAMP).to_string()
    }
}

/// The form of the time in rollout names.
const STAMP: &str = "%Y-%m-%dT%H-%M-%S";

/// The time in a rollout's name that is a second later than another's, whatever the zone; `None` if that is no time
/// (`2026-13-45T99-00-00` is in use) or the last there is.
#[must_use]
pub fn stamp_after(stamp: &str) -> Option<String> {
    let time = jiff::civil::DateTime::strptime(STAMP, stamp).ok()?;
    Some(time.checked_add(jiff::SignedDuration::from_secs(1)).ok()?.strftime(STAMP).to_string())
}

/// A new thread id: a UUID v7, so that ids order by time.
#[must_use]
pub fn new_thread_id() -> ThreadId {
    ThreadId::new_v7()
}

/// A clock that stands where it is put, for tests.
#[derive(Debug)]
pub struct TestClock(std::sync::atomic::AtomicI64);

impl TestClock {
    /// A clock that shows `at`.
    #[must_use]
    pub fn new(at: UtcMillis) -> Self {
        Self(at.0.into())
    }

    /// Puts it forwards.
    pub fn advance(&self, millis: i64) {
        self.0.fetch_add(millis, std::sync::atomic::Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now(&self) -> UtcMillis {
        UtcMillis(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn local_stamp(&self, at: UtcMillis) -> String {
        let instant = jiff::Timestamp::from_millisecond(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        instant.to_zoned(jiff::tz::TimeZone::UTC).strftime(STAMP).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::stamp_after;

    #[test]
    fn a_name_a_second_later() {
        assert_eq!(stamp_after("2026-11-30T23-59-59").as_deref(), Some("2026-12-01T00-00-00"));
        assert_eq!(stamp_after("2024-02-28T23-59-59").as_deref(), Some("2024-02-29T00-00-00"));
        for none in ["2026-13-45T99-00-00", "9999-12-31T23-59-59", "", "2026-11-30"] {
            assert_eq!(stamp_after(none), None, "{none}");
        }
    }
}
