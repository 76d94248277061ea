//! The live writers of a store: at most one for each thread.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;

use threadkeep_record::ThreadId;

#[cfg(not(test))]
use std::sync::{Arc, Mutex};

// In its own tests the registry runs under a model checker, which decides who goes on at each lock.
#[cfg(test)]
use shuttle::sync::{Arc, Mutex};

/// The live writers. A thread is reserved while its writer is being opened, so that two callers never open it both.
#[derive(Debug)]
pub struct Registry<T> {
    slots: Mutex<HashMap<ThreadId, Option<Arc<T>>>>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Self { slots: Mutex::new(HashMap::new()) }
    }
}

/// A thread that is being opened. Dropping it frees the thread again.
#[derive(Debug)]
pub struct Reservation<'r, T> {
    registry: &'r Registry<T>,
    id: ThreadId,
    done: bool,
}

impl<T> Registry<T> {
    fn with<R>(&self, f: impl FnOnce(&mut HashMap<ThreadId, Option<Arc<T>>>) -> R) -> R {
        let mut slots = match self.slots.lock() {
            Ok(slots) => slots,
            // The map is whole between any two calls on it.
            Err(poisoned) => poisoned.into_inner(),
        };
        f(&mut slots)
    }

    /// Reserves a thread; `None` if it has a writer or is being opened.
    pub fn reserve(&self, id: ThreadId) -> Option<Reservation<'_, T>> {
        self.with(|slots| match slots.entry(id) {
            Entry::Occupied(_) => None,
            Entry::Vacant(slot) => {
                slot.insert(None);
                Some(())
            }
        })
        .map(|()| Reservation { registry: self, id, done: false })
    }

    /// The writer of a thread.
    pub fn get(&self, id: ThreadId) -> Option<Arc<T>> {
        self.with(|slots| slots.get(&id).cloned().flatten())
    }

    /// Takes a writer out, if it still is the one that the caller knows.
    pub fn remove(&self, id: ThreadId, writer: &Arc<T>) -> bool {
        self.with(|slots| match slots.get(&id) {
            Some(Some(there)) if Arc::ptr_eq(there, writer) => slots.remove(&id).is_some(),
            _ => false,
        })
    }
}

impl<T> Reservation<'_, T> {
    /// Puts the opened writer in.
    pub fn fill(mut self, writer: T) -> Arc<T> {
        let writer = Arc::new(writer);
        self.registry.with(|slots| slots.insert(self.id, Some(Arc::clone(&writer))));
        self.done = true;
        writer
    }
}

impl<T> Drop for Reservation<'_, T> {
    fn drop(&mut self) {
        if !self.done {
            self.registry.with(|slots| slots.remove(&self.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::sync::atomic::{AtomicUsize, Ordering};
    use shuttle::thread;

    #[test]
    fn a_thread_has_one_writer_at_a_time() {
        shuttle::check_random(one_writer_at_a_time, 1);
    }

    fn one_writer_at_a_time() {
        let registry = Registry::default();
        let id = ThreadId::new_v7();
        let reservation = registry.reserve(id).unwrap();
        assert!(registry.reserve(id).is_none() && registry.get(id).is_none());
        drop(reservation);
        let first = registry.reserve(id).unwrap().fill(1);
        assert!(registry.reserve(id).is_none());
        assert!(registry.remove(id, &first) && !registry.remove(id, &first));
        let second = registry.reserve(id).unwrap().fill(2);
        assert!(!registry.remove(id, &first), "someone else's writer is not taken out");
        assert_eq!(registry.get(id).as_deref(), Some(&2));
        assert!(registry.remove(id, &second));
    }

    /// Threads open, use and close the same thread's writer: never are two open at once, and no reservation is lost.
    #[test]
    fn never_two_writers() {
        shuttle::check_random(
            || {
                let registry = Arc::new(Registry::<usize>::default());
                let open = Arc::new(AtomicUsize::new(0));
                let id = ThreadId::parse("01990000-0000-7000-8000-000000000001").unwrap();
                let workers: Vec<_> = (0..3)
                    .map(|n| {
                        let (registry, open) = (Arc::clone(&registry), Arc::clone(&open));
                        thread::spawn(move || {
                            for round in 0..2 {
                                let Some(reservation) = registry.reserve(id) else { continue };
                                thread::yield_now();
                                if (n + round) % 3 == 0 {
                                    // Opening failed.
                                    continue;
                                }
                                assert_eq!(open.fetch_add(1, Ordering::SeqCst), 0, "two writers");
                                let writer = reservation.fill(n);
                                thread::yield_now();
                                assert_eq!(registry.get(id).as_deref(), Some(&n));
                                open.fetch_sub(1, Ordering::SeqCst);
                                assert!(registry.remove(id, &writer));
                            }
                        })
                    })
                    .collect();
                workers.into_iter().for_each(|w| w.join().unwrap());
                assert!(registry.reserve(id).is_some(), "nothing stays reserved");
            },
            2_000,
        );
    }
}
