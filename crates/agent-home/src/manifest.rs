//! What a store says of itself: `store.json` and the stamp of its last use.

use serde::{Deserialize, Serialize};
use threadkeep_record::UtcMillis;

use crate::key::StoreKey;

/// The version of the file that this code writes. Others are read as far as they can be, and never removed.
pub const FORMAT: u32 = 1;

/// `store.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the file.
    pub format: u32,
    /// Whose store it is.
    pub key: StoreKey,
    /// When it was made.
    pub created_at: UtcMillis,
    /// Set while clean-up must not take it.
    #[serde(default)]
    pub pin: Option<Pin>,
    /// Threads that are or were in it, by id.
    #[serde(default)]
    pub threads: Vec<ThreadEntry>,
    /// Keys that it had before.
    #[serde(default)]
    pub earlier_keys: Vec<StoreKey>,
    /// Files whose blocks are shared with others (reflinks), by path: removing them may free nothing.
    #[serde(default)]
    pub shares_blocks: Vec<String>,
}

/// Why and since when a store is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// When it was pinned.
    pub at: UtcMillis,
    /// The person's words, if any.
    pub why: Option<String>,
}

/// A thread of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadEntry {
    /// Its id.
    pub id: String,
    /// The name a person gave it.
    pub name: Option<String>,
}

impl Manifest {
    /// That of a new store.
    #[must_use]
    pub fn new(key: StoreKey, now: UtcMillis) -> Self {
        Self {
            format: FORMAT,
            key,
            created_at: now,
            pin: None,
            threads: vec![],
            earlier_keys: vec![],
            shares_blocks: vec![],
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        // A struct of texts and numbers always is JSON.
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Notes a thread, and its name where one is given. Tells whether anything changed.
    pub fn note(&mut self, id: &str, name: Option<&str>) -> bool {
        match self.threads.iter_mut().find(|t| t.id == id) {
            Some(entry) => {
                let changed = name.is_some_and(|n| entry.name.as_deref().unwrap_or("") != n);
                if changed {
                    entry.name = name.filter(|n| !n.is_empty()).map(str::to_owned);
                }
                changed
            }
            None => {
                let name = name.filter(|n| !n.is_empty()).map(str::to_owned);
                self.threads.push(ThreadEntry { id: id.to_owned(), name });
                self.threads.sort_by(|a, b| a.id.cmp(&b.id));
                true
            }
        }
    }

    /// Takes over what another store knew.
    pub fn absorb(&mut self, other: &Self) {
        for thread in &other.threads {
            let known = self.threads.iter().any(|t| t.id == thread.id && t.name.is_some());
            self.note(&thread.id, thread.name.as_deref().filter(|_| !known));
        }
        self.shares_blocks.extend(other.shares_blocks.iter().cloned());
        self.shares_blocks.sort();
        self.shares_blocks.dedup();
        self.pin = self.pin.take().or_else(|| other.pin.clone());
        for key in other.earlier_keys.iter().chain([&other.key]) {
            if *key != self.key && !self.earlier_keys.contains(key) {
                self.earlier_keys.push(key.clone());
            }
        }
    }
}
