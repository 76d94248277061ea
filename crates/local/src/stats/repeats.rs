//! Finding content that is stored more than once.
//!
//! Every record's content (its payload; a copy has a time of its own, so the time is left out) is known by a hash of
//! 128 bits. A table keeps for each content its size and where it was first; at the end it tells how much of what was
//! read stands in an earlier file too. When the table is full, small contents are given up: what is told then is at
//! least what is there.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// Contents that are known at once: about 45 MB.
const MOST: usize = 900_000;

/// What is given up first.
const FIRST_LEAST: u64 = 128;

/// What is stored more than once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Repeated {
    /// Bytes of payloads that an earlier file has too, byte for byte.
    pub bytes: u64,
    /// Their records.
    pub records: u64,
    /// Bytes of payloads that stand earlier in the same file and in no earlier one.
    pub in_same_file_bytes: u64,
    /// Payloads below so many bytes were not compared: 0 where all were. Then `bytes` is at least what is there.
    pub least_bytes: u64,
}

/// A content that was seen.
pub(super) struct Seen {
    /// Its hash.
    pub key: (u64, u64),
    /// Its bytes.
    pub size: u64,
}

/// A hash of 128 bits, made part by part.
pub(super) struct ContentHash(DefaultHasher, DefaultHasher);

impl Default for ContentHash {
    fn default() -> Self {
        let mut second = DefaultHasher::new();
        // The same hash of another text: as good as another hash.
        second.write(b"second");
        Self(DefaultHasher::new(), second)
    }
}

impl ContentHash {
    /// Takes the next bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
        self.1.write(bytes);
    }

    /// The hash of all bytes so far.
    pub(super) fn finish(&self) -> (u64, u64) {
        (self.0.finish(), self.1.finish())
    }
}

/// Where a content stands.
#[derive(Clone, Copy)]
struct Known {
    size: u64,
    /// The first file that has it, in the order of all.
    first: u32,
    /// How often it stands there.
    in_first: u32,
    /// How often it stands anywhere.
    times: u32,
}

impl Known {
    fn add_to(self, sum: &mut Repeated) {
        let later = u64::from(self.times.saturating_sub(self.in_first));
        sum.records += later;
        sum.bytes += later * self.size;
        sum.in_same_file_bytes += u64::from(self.in_first.saturating_sub(1)) * self.size;
    }
}

/// All contents that were seen. What it tells does not depend on the order in which files were read.
pub(super) struct Repeats {
    least: AtomicU64,
    most: usize,
    inner: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    known: HashMap<(u64, u64), Known>,
    /// What contents told that were given up.
    given_up: Repeated,
}

impl Default for Repeats {
    fn default() -> Self {
        Self::with_room(MOST)
    }
}

impl Repeats {
    fn with_room(most: usize) -> Self {
        Self { least: AtomicU64::new(0), most, inner: Mutex::default() }
    }

    /// Contents below so many bytes are not wanted.
    pub(super) fn least(&self) -> u64 {
        self.least.load(Ordering::Relaxed)
    }

    /// Adds what was seen in a file, and empties the list.
    pub(super) fn add(&self, file: u32, seen: &mut Vec<Seen>) {
        let mut table = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Table { known, given_up } = &mut *table;
        for Seen { key, size } in seen.drain(..) {
            if size < self.least() {
                continue;
            }
            let at = known.entry(key).or_insert(Known { size, first: file, in_first: 0, times: 0 });
            at.times = at.times.saturating_add(1);
            if file < at.first {
                at.first = file;
                at.in_first = 0;
            }
            at.in_first += u32::from(file == at.first);
            while known.len() >= self.most {
                let least = (self.least() * 2).max(FIRST_LEAST);
                self.least.store(least, Ordering::Relaxed);
                known.retain(|_, k| {
                    if k.size < least {
                        k.add_to(given_up);
                    }
                    k.size >= least
                });
            }
        }
    }

    /// What is stored more than once.
    pub(super) fn finish(self) -> Repeated {
        let least_bytes = self.least();
        let Table { known, given_up: mut sum } = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        known.values().for_each(|k| k.add_to(&mut sum));
        Repeated { least_bytes, ..sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(contents: &[&str]) -> Vec<Seen> {
        let key = |c: &str| {
            let mut hash = ContentHash::default();
            hash.write(c.as_bytes());
            hash.finish()
        };
        contents.iter().map(|c| Seen { key: key(c), size: c.len() as u64 }).collect()
    }

    #[test]
    fn the_order_of_reading_does_not_matter() {
        let files: [(u32, &[&str]); 3] =
            [(0, &["abc", "abc", "de"]), (1, &["abc", "xyz", "xyz"]), (2, &["abc", "de", "de", "q"])];
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let repeats = Repeats::default();
            for i in order {
                // In parts, as a large file comes.
                for content in files[i].1 {
                    repeats.add(files[i].0, &mut seen(&[*content]));
                }
            }
            let told = repeats.finish();
            assert_eq!((told.bytes, told.records), (3 + 3 + 2 + 2, 4), "{order:?}");
            assert_eq!((told.in_same_file_bytes, told.least_bytes), (3 + 3, 0), "{order:?}");
        }
    }

    #[test]
    fn a_full_table_gives_up_what_is_small() {
        let repeats = Repeats::with_room(50);
        let large = "x".repeat(1000);
        for file in 0..40 {
            let small: Vec<String> = (0..40).map(|n| format!("small {file} {n}")).collect();
            let all: Vec<&str> = small.iter().map(String::as_str).chain([large.as_str()]).collect();
            repeats.add(file, &mut seen(&all));
        }
        let told = repeats.finish();
        assert_eq!((told.bytes, told.records), (39_000, 39));
        assert!(told.least_bytes >= FIRST_LEAST);
    }

    #[test]
    fn parts_hash_as_the_whole() {
        let mut parts = ContentHash::default();
        parts.write(b"ab");
        parts.write(b"");
        parts.write(b"c");
        let mut whole = ContentHash::default();
        whole.write(b"abc");
        assert_eq!(parts.finish(), whole.finish());
        assert_ne!(whole.finish().0, whole.finish().1);
    }
}
