//! The one lock this crate uses: the standard one, and in this crate's own unit tests the one of `shuttle`, which runs
//! threads in every order that it is asked to try. Tests in `tests/` use the standard one.

#[cfg(test)]
use shuttle::sync as imp;
#[cfg(not(test))]
use std::sync as imp;

use std::sync::PoisonError;

/// A mutex that ignores poisoning: whatever is changed under it is changed in one assignment, so a panic of some
/// holder leaves nothing half done.
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> imp::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
