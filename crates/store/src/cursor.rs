//! Opaque cursors: a place in an order, together with the order and the filters it belongs to.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::list::ListQuery;
use crate::search::SearchQuery;

/// A text that is not a cursor of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid cursor: {0}")]
pub struct InvalidCursor(pub String);

/// A place behind a row, in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cursor {
    /// What kind of page and which version of the form.
    kind: String,
    /// The sort and filters of the pages.
    pub query: ListQuery,
    /// When the first page was made: pages show each thread as it stood then.
    pub as_of_ms: i64,
    /// Sort time of the last row, in milliseconds.
    pub last_ms: i64,
    /// Its id, which orders rows of one time.
    pub last_id: String,
    /// The homes it belongs to, as [`Given::tag`] of their paths.
    #[serde(default)]
    pub homes: String,
    /// For a first page that went by modification times: no file older than this was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor_mtime_ms: Option<i64>,
    /// The first row that was left out by such a page, if it went by modification times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_ms: Option<i64>,
    /// Id of that row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_id: Option<String>,
    /// In a small home: the rows given so far, each by a hash, so that none is lost or doubled however threads move.
    pub given: Option<Given>,
}

/// A place behind a hit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SearchCursor {
    kind: String,
    /// The filters of the pages.
    pub query: ListQuery,
    /// What is looked for.
    pub search: SearchQuery,
    /// Order time of the thread that was reached, in milliseconds.
    pub thread_ms: i64,
    /// Its key.
    pub thread: String,
    /// Hits of it that were given.
    pub hits_given: u64,
    /// When the first page was made.
    pub as_of_ms: i64,
    /// The threads whose hits were given.
    pub given: Option<Given>,
    /// The homes it belongs to, as [`Given::tag`] of their paths.
    #[serde(default)]
    pub homes: String,
}

/// Keys of rows, each by a hash of 48 bits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given(String);

impl Given {
    /// Adds a key.
    pub fn add(&mut self, key: &str) {
        self.0.push_str(&URL_SAFE_NO_PAD.encode(&hash(key).to_be_bytes()[2..]));
    }

    /// A short text that tells sets of texts apart.
    #[must_use]
    pub fn tag<'t>(texts: impl IntoIterator<Item = std::borrow::Cow<'t, str>>) -> String {
        let mut given = Self::default();
        texts.into_iter().for_each(|t| given.add(&t));
        given.0
    }

    /// Whether a key was added.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        let want = URL_SAFE_NO_PAD.encode(&hash(key).to_be_bytes()[2..]);
        self.0.as_bytes().chunks(8).any(|c| c == want.as_bytes())
    }
}

/// FNV-1a, which is the same on every machine and in every version.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// A place behind a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnCursor {
    kind: String,
    /// The thread.
    pub thread: String,
    /// Number of the next turn; 0 where it is told by its place.
    pub next: u64,
    /// In a very large thread that is read from its end: where what was given begins in its last file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

impl TurnCursor {
    /// A cursor before what was given from the end of a very large thread, which begins at an offset.
    #[must_use]
    pub fn before(thread: String, offset: u64) -> Self {
        Self { kind: TURNS.into(), thread, next: 0, before: Some(offset) }
    }

    /// A cursor before turn `next`.
    #[must_use]
    pub fn new(thread: String, next: u64) -> Self {
        Self { kind: TURNS.into(), thread, next, before: None }
    }

    /// The text for a caller.
    #[must_use]
    pub fn encode(&self) -> String {
        encode(self)
    }

    /// Reads the text of a caller.
    pub fn decode(text: &str) -> Result<Self, InvalidCursor> {
        decode(text, |c: &Self| c.kind == TURNS)
    }
}

/// A place behind an item of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemCursor {
    kind: String,
    /// The thread.
    pub thread: String,
    /// Number of the turn, from 1.
    pub turn: u64,
    /// Index of the next item in the turn, in the direction of the pages.
    pub item: u64,
}

impl ItemCursor {
    /// A cursor before an item.
    #[must_use]
    pub fn new(thread: String, turn: u64, item: u64) -> Self {
        Self { kind: ITEMS.into(), thread, turn, item }
    }

    /// The text for a caller.
    #[must_use]
    pub fn encode(&self) -> String {
        encode(self)
    }

    /// Reads the text of a caller.
    pub fn decode(text: &str) -> Result<Self, InvalidCursor> {
        decode(text, |c: &Self| c.kind == ITEMS)
    }
}

const ITEMS: &str = "items1";
const TURNS: &str = "turns1";
const LIST: &str = "list1";
const SEARCH: &str = "search1";

impl Cursor {
    /// A cursor behind a row.
    #[must_use]
    pub fn new(query: ListQuery, as_of_ms: i64, last_ms: i64, last_id: String) -> Self {
        Self {
            kind: LIST.into(),
            query,
            as_of_ms,
            last_ms,
            last_id,
            homes: String::new(),
            floor_mtime_ms: None,
            first_ms: None,
            first_id: None,
            given: None,
        }
    }

    /// The text for a caller.
    #[must_use]
    pub fn encode(&self) -> String {
        encode(self)
    }

    /// Reads the text of a caller.
    pub fn decode(text: &str) -> Result<Self, InvalidCursor> {
        decode(text, |c: &Self| c.kind == LIST)
    }
}

impl SearchCursor {
    /// A cursor behind a hit.
    #[must_use]
    pub fn new(
        query: ListQuery,
        search: SearchQuery,
        as_of_ms: i64,
        thread_ms: i64,
        thread: String,
        hits_given: u64,
    ) -> Self {
        Self {
            kind: SEARCH.into(),
            query,
            search,
            thread_ms,
            thread,
            hits_given,
            as_of_ms,
            given: None,
            homes: String::new(),
        }
    }

    /// The text for a caller.
    #[must_use]
    pub fn encode(&self) -> String {
        encode(self)
    }

    /// Reads the text of a caller.
    pub fn decode(text: &str) -> Result<Self, InvalidCursor> {
        decode(text, |c: &Self| c.kind == SEARCH)
    }
}

pub(crate) fn encode(cursor: &impl Serialize) -> String {
    // Plain values of our own: they always have a JSON form.
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(cursor).unwrap_or_default())
}

pub(crate) fn decode<T: DeserializeOwned>(text: &str, right_kind: impl Fn(&T) -> bool) -> Result<T, InvalidCursor> {
    let shown = || InvalidCursor(text.chars().take(60).collect());
    let bytes = URL_SAFE_NO_PAD.decode(text.trim()).map_err(|_| shown())?;
    let cursor: T = serde_json::from_slice(&bytes).map_err(|_| shown())?;
    if right_kind(&cursor) { Ok(cursor) } else { Err(shown()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_refusal() {
        let c = Cursor::new(ListQuery::default(), 1, 2, "x".into());
        assert_eq!(Cursor::decode(&c.encode()).unwrap(), c);
        for bad in ["", "garbage", "2026-01-01T00:00:00Z", &c.encode()[..10]] {
            assert!(Cursor::decode(bad).is_err(), "{bad}");
        }
        assert!(SearchCursor::decode(&c.encode()).is_err());
    }
}
