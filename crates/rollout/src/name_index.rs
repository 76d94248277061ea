//! `session_index.jsonl`: the names of threads, appended; the last line of an id wins.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use serde::Deserialize;
use threadkeep_record::ThreadId;

use crate::name::Form;
use crate::records::{BUFFER, LineReader};
use crate::source::Follow;

/// The names of a home.
#[derive(Debug, Default, Clone)]
pub struct NameIndex {
    /// For each id its newest name and the line it stands on; an empty name was cleared.
    names: HashMap<ThreadId, (String, u64)>,
    /// Lines that could not be read, with number and offset.
    pub bad_lines: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
struct Entry<'a> {
    id: ThreadId,
    #[serde(borrow)]
    thread_name: std::borrow::Cow<'a, str>,
}

impl NameIndex {
    /// Reads the file; a home without one has no names. The file may be a link (task homes link it).
    pub fn read(home: &Path) -> io::Result<Self> {
        let mut index = Self::default();
        let mut lines = match LineReader::open(&home.join("session_index.jsonl"), Form::Plain, Follow::Links, BUFFER) {
            Ok(lines) => lines,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(index),
            Err(e) => return Err(e),
        };
        while let Some(line) = lines.next_line() {
            let text = line.bytes.trim_ascii();
            if text.is_empty() {
                continue;
            }
            match serde_json::from_slice::<Entry<'_>>(text) {
                Ok(e) => {
                    index.names.insert(e.id, (e.thread_name.trim().to_owned(), line.number));
                }
                Err(_) => index.bad_lines.push((line.number, line.offset)),
            }
        }
        match lines.error() {
            Some(e) => Err(io::Error::new(e.kind(), e.to_string())),
            None => Ok(index),
        }
    }

    /// What the index says of a thread: `None` nothing, `Some("")` that its name was cleared.
    #[must_use]
    pub fn entry(&self, id: ThreadId) -> Option<&str> {
        self.names.get(&id).map(|(name, _)| name.as_str())
    }

    /// All ids with a name, newest entry first.
    #[must_use]
    pub fn named(&self) -> Vec<(ThreadId, &str)> {
        let mut all: Vec<_> = self.names.iter().filter(|(_, (name, _))| !name.is_empty()).collect();
        all.sort_by_key(|(id, (_, line))| (std::cmp::Reverse(*line), **id));
        all.into_iter().map(|(id, (name, _))| (*id, name.as_str())).collect()
    }
}
