//! What tells a thread from all others, and has the last word in every order.

use std::cmp::Ordering;

use threadkeep_record::ThreadId;

use crate::row::Row;

/// The thread's id, or the path of a file without one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    Id(ThreadId),
    Text(String),
}

impl Key {
    pub fn of(row: &Row) -> Self {
        row.thread.id.map_or_else(|| Self::Text(row.key.clone()), Self::Id)
    }

    /// The key of this text.
    pub fn parse(text: &str) -> Self {
        let id = ThreadId::parse(text).ok().filter(|id| id.to_string() == text);
        id.map_or_else(|| Self::Text(text.to_owned()), Self::Id)
    }

    pub fn text(&self) -> String {
        match self {
            Self::Id(id) => id.to_string(),
            Self::Text(text) => text.clone(),
        }
    }

    pub fn is(&self, text: &str) -> bool {
        match self {
            Self::Id(id) => ThreadId::parse(text).is_ok_and(|t| t == *id),
            Self::Text(own) => own == text,
        }
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            // The text of an id orders as its bytes do.
            (Self::Id(a), Self::Id(b)) => a.cmp(b),
            (a, b) => a.text().cmp(&b.text()),
        }
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
