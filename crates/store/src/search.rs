//! What a search is asked for, and what it finds.

use serde::{Deserialize, Serialize};
use threadkeep_record::{Speaker, ThreadId, UtcMillis};

/// What is looked for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SearchQuery {
    /// The text, taken literally.
    pub term: String,
    /// Only what these speakers said; empty is all. As words of [`Speaker::word`].
    pub speakers: Vec<String>,
    /// Only these threads (ids or, for files without one, paths).
    pub threads: Vec<String>,
    /// Letters must have the same case.
    pub case_sensitive: bool,
}

/// A place where the text was said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SearchHit {
    /// The thread.
    pub thread_id: Option<ThreadId>,
    /// The turn's id.
    pub turn_id: Option<String>,
    /// The turn's number in the thread, from 1; `None` where it is no longer part of the conversation.
    pub turn_number: Option<u64>,
    /// Who said it.
    pub speaker: Speaker,
    /// When.
    pub time: Option<UtcMillis>,
    /// Text around the match, white space collapsed.
    pub snippet: String,
    /// Begin and end of the match in `snippet`, in Unicode scalar values.
    #[serde(rename = "match")]
    pub matched: [usize; 2],
    /// The file, relative to the home where under it.
    pub path: Option<String>,
    /// Line number, from 1.
    pub line: Option<u64>,
    /// Offset of the record in the (decompressed) file.
    pub offset: Option<u64>,
}
