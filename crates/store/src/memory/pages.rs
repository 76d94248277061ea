//! Turns and items by page.

use serde::{Deserialize, Serialize};
use threadkeep_record::ThreadId;

use super::{MemoryThreadStore, invalid};
use crate::contract::StoreResult;
use crate::cursor;
use crate::list::Direction;
use crate::params::ListTurns;
use crate::stored::{ItemPage, PlacedItem, StoredHistory, TurnPage};
use crate::turn_builder::Detail;
use crate::turn_places::TurnPlaces;

/// A place behind a row of a thread. Rows are told by where they stand in the history, which no append moves.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Behind {
    kind: String,
    thread: ThreadId,
    ascending: bool,
    /// What else the pages were asked for.
    asked: String,
    /// Where the last row stands: its record, and which of the record's rows it is.
    last: (u64, usize),
}

/// How a thread is paged.
pub(super) struct Paging<'p> {
    /// Which kind of rows.
    pub(super) kind: &'static str,
    pub(super) thread: ThreadId,
    pub(super) page_size: usize,
    pub(super) cursor: Option<&'p str>,
    pub(super) direction: Direction,
    pub(super) asked: &'p str,
}

impl Paging<'_> {
    /// Takes a page out of all rows, which come with their places and in the thread's order.
    pub(super) fn page<T>(&self, mut rows: Vec<((u64, usize), T)>) -> StoreResult<(Vec<T>, Option<String>)> {
        let mut ascending = self.direction == Direction::Ascending;
        let mut last = None;
        if let Some(text) = self.cursor {
            let fits = |b: &Behind| b.kind == self.kind && b.thread == self.thread && b.asked == self.asked;
            let behind = cursor::decode(text, fits).map_err(|e| invalid(e.to_string()))?;
            (ascending, last) = (behind.ascending, Some(behind.last));
        }
        if !ascending {
            rows.reverse();
        }
        rows.retain(|(at, _)| last.is_none_or(|last| if ascending { *at > last } else { *at < last }));
        let more = rows.len() > self.page_size;
        rows.truncate(self.page_size);
        let next = rows.last().filter(|_| more).map(|(last, _)| {
            let (kind, asked) = (self.kind.to_owned(), self.asked.to_owned());
            cursor::encode(&Behind { kind, thread: self.thread, ascending, asked, last: *last })
        });
        Ok((rows.into_iter().map(|(_, row)| row).collect(), next))
    }
}

impl MemoryThreadStore {
    fn paged<'p>(&self, params: &'p ListTurns, kind: &'static str) -> StoreResult<(StoredHistory, Paging<'p>)> {
        if params.page_size == 0 {
            return Err(invalid("page size must be positive"));
        }
        let kept = self.lock();
        kept.found(params.thread_id, params.archived)?;
        let paging = Paging {
            kind,
            thread: params.thread_id,
            page_size: params.page_size,
            cursor: params.cursor.as_deref(),
            direction: params.direction,
            asked: "",
        };
        Ok((kept.history(params.thread_id), paging))
    }

    pub(super) fn turns(&self, params: &ListTurns) -> StoreResult<TurnPage> {
        let (history, paging) = self.paged(params, "memory-turns1")?;
        let places = TurnPlaces::of(&history);
        let rows = places.alive().map(|t| ((t.begin as u64, 0), t)).collect();
        let (page, next_cursor) = paging.page(rows)?;
        let turns = page.into_iter().map(|t| places.read(&history, t, Detail::Readable)).collect();
        Ok(TurnPage { turns, next_cursor })
    }

    pub(super) fn items(&self, params: &ListTurns) -> StoreResult<ItemPage> {
        let (history, paging) = self.paged(params, "memory-items1")?;
        let places = TurnPlaces::of(&history);
        let mut rows: Vec<((u64, usize), PlacedItem)> = Vec::new();
        for turn in places.alive().map(|t| places.read(&history, t, Detail::Readable)) {
            for item in turn.items {
                // A record may tell several items.
                let nth = rows
                    .last()
                    .filter(|((line, _), _)| *line == item.line.unwrap_or(0))
                    .map_or(0, |((_, nth), _)| nth + 1);
                let placed = PlacedItem { turn_id: turn.id.clone(), turn_number: turn.number, item };
                rows.push(((placed.item.line.unwrap_or(0), nth), placed));
            }
        }
        let (items, next_cursor) = paging.page(rows)?;
        Ok(ItemPage { items, next_cursor })
    }
}
