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
        instant.to_zoned(zone).strftime("%Y-%m-%dT%H-%M-%S").to_string()
    }
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
        instant.to_zoned(jiff::tz::TimeZone::UTC).strftime("%Y-%m-%dT%H-%M-%S").to_string()
    }
}
