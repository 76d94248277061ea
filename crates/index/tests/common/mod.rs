//! What the tests share.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use threadkeep_index::{Index, IndexError, IndexOptions, IndexPlace, Placed};
use threadkeep_record::ThreadId;
use threadkeep_rollout::Home;

/// The n-th thread; ids grow with n.
pub fn id(n: u8) -> ThreadId {
    ThreadId::parse(&format!("01990000-0000-7000-8000-0000000000{n:02x}")).unwrap()
}

pub fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

pub fn options(home: &Path, place: IndexPlace) -> IndexOptions {
    IndexOptions { home: Home::new(home), place, busy: Duration::from_secs(20) }
}

/// Opens the index in the home, where it has to be in its file.
pub fn open(home: &Path) -> Index {
    let index = Index::open(options(home, IndexPlace::Home)).unwrap();
    assert!(matches!(index.place(), Placed::File { .. }), "{:?}", index.place());
    index
}

pub fn try_open(home: &Path, busy: Duration) -> Result<Index, IndexError> {
    Index::open(IndexOptions { busy, ..options(home, IndexPlace::Home) })
}

pub fn memory(home: &str) -> Index {
    Index::open(options(Path::new(home), IndexPlace::Memory)).unwrap()
}

/// A connection of somebody else.
pub fn raw(path: &Path) -> Connection {
    Connection::open(path).unwrap()
}
