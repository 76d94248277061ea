//! What the end of a rollout tells: when it was last written to.

use std::fs::File;
use std::io;
use std::path::Path;

use threadkeep_record::{DamageReason, Envelope, LineState, UtcMillis, check_line, sniff};

use crate::name::Form;
use crate::reverse::ReverseReader;
use crate::source::{Follow, open_file};

/// What the last lines tell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TailFacts {
    /// The time of the last record that has one, if such a record stands after the first line.
    pub last_time: Option<UtcMillis>,
    /// Damage met on the way back to it.
    pub damage: Vec<(u64, DamageReason)>,
}

/// How far back a time is looked for: files of 2025 have none after their header, and reading all of a large one
/// would tell nothing.
const MAX_LINES: usize = 2000;

/// Reads the end of a plain rollout. For other forms the end is only reached through the whole file.
pub fn tail(path: &Path, form: Form, follow: Follow) -> io::Result<Option<TailFacts>> {
    if form != Form::Plain {
        return Ok(None);
    }
    tail_of(&open_file(path, follow)?).map(Some)
}

/// Reads the end of a plain rollout that is open.
pub fn tail_of(file: &File) -> io::Result<TailFacts> {
    let size = file.metadata()?.len();
    let mut reader = ReverseReader::new(file, size, 4096);
    let mut facts = TailFacts::default();
    for _ in 0..MAX_LINES {
        let Some(line) = reader.next_line()? else { break };
        if line.offset == 0 {
            break;
        }
        if let Some(time) = line_time(line.bytes, line.long, line.terminated, line.offset, &mut facts.damage) {
            facts.last_time = Some(time);
            break;
        }
    }
    Ok(facts)
}

fn line_time(
    bytes: &[u8],
    long: bool,
    terminated: bool,
    offset: u64,
    damage: &mut Vec<(u64, DamageReason)>,
) -> Option<UtcMillis> {
    if long {
        let s = sniff::sniff(bytes)?;
        return UtcMillis::parse(std::str::from_utf8(s.timestamp).ok()?);
    }
    let (record, reason) = match check_line(bytes) {
        LineState::Blank => return None,
        LineState::Record(r) => (std::borrow::Cow::Borrowed(r), None),
        LineState::Recovered(mut all, why) => match all.pop() {
            Some(last) => (last, Some(why)),
            None => return None,
        },
        LineState::Damaged(why) => {
            damage.push((offset, if terminated { why } else { DamageReason::TornTail }));
            return None;
        }
    };
    damage.extend(reason.map(|why| (offset, why)));
    Envelope::parse(&record)?.time()
}
