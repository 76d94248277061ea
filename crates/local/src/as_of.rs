//! How a thread stood when the first page of a walk was made.
//!
//! Rollouts are append-only, so the past is still in them: the last record that is not newer than the mark tells when
//! a thread had been updated then.

use threadkeep_record::UtcMillis;
use threadkeep_record::fold::{Check, Fold};
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_store::SortKey;

use crate::catalog::Catalog;
use crate::row::{self, Row};

/// The sort key that a thread had at `mark`, given its key now; `None` if it did not exist then.
pub fn key(catalog: &Catalog, row: &Row, sort: SortKey, mark: UtcMillis, now: i64) -> Option<i64> {
    let head = row.assembly.as_ref().map(|a| &row.members[a.head])?;
    let path = head.entry.path_in(catalog.home.path());
    if row.members.len() == 1 && made_after(&path, mark) {
        return None;
    }
    if sort == SortKey::Created || now <= mark.0 {
        return Some(now);
    }
    let Ok(mut lines) = LineReader::open(&path, head.entry.name.form, row::follow(&head.entry), BUFFER) else {
        return Some(now);
    };
    let mut fold = Fold::new(Check::Ends);
    let mut last = None;
    while let Some(line) = lines.next_line() {
        fold.line(line.into());
        let key = if sort == SortKey::Recency { fold.turn_started() } else { fold.last_time };
        match key {
            Some(t) if t > mark => break,
            Some(t) => last = Some(t.0),
            None => {}
        }
    }
    // Records from the future of the mark alone: their clock is another one, so their own order is kept.
    Some(last.unwrap_or(now))
}

/// Whether the file was made after the mark, where the file system keeps that.
fn made_after(path: &std::path::Path, mark: UtcMillis) -> bool {
    let made = std::fs::metadata(path)
        .and_then(|m| m.created())
        .ok()
        .and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    made.is_some_and(|d| i64::try_from(d.as_millis()).is_ok_and(|ms| ms > mark.0))
}
