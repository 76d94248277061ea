//! The text hint in the database: segments in blocks, and which files their units are of.
//!
//! A segment never changes. The units of a file that changed are left in their segments, where nobody asks for them any
//! more, until those are written anew.

mod files;

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, OptionalExtension, Statement, Transaction, params};

use crate::listed::{mark, set_mark};
use crate::text::{Query, ReadAt, Segment};
use crate::{Index, IndexError};

pub use files::{TextFile, TextFiles};

/// Bytes of a segment that stand in one row.
const BLOCK: usize = 8 << 10;

/// Blocks that a segment may have: more than the largest has.
const BLOCKS: i64 = 1 << 24;

/// The mark that says how many segments there are: one that is lost must not look like text that nobody said.
const SEGMENTS: &str = "text_segments";

/// The mark that says which number the next file gets.
const NEXT_OWNER: &str = "next_text_owner";

/// Byte ranges of whole records in which a text may stand, by owner.
#[derive(Debug, Clone, Default)]
pub struct TextCandidates {
    ranges: HashMap<u64, Vec<(u64, u64)>>,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl TextCandidates {
    /// Where in a file it may stand.
    #[must_use]
    pub fn of(&self, owner: u64) -> &[(u64, u64)] {
        self.ranges.get(&owner).map_or(&[], Vec::as_slice)
    }
}

/// What is known of a term.
#[derive(Debug)]
pub struct TextHint {
    /// The files whose text is known.
    pub files: TextFiles,
    /// Where in them the term may stand.
    pub candidates: TextCandidates,
}

/// A finished segment.
#[derive(Debug, Clone, Copy)]
pub struct NewSegment<'s> {
    /// Its bytes.
    pub bytes: &'s [u8],
    /// How many units it has.
    pub units: usize,
}

impl Index {
    /// Where a term may stand. `None` where a segment is damaged: then everything has to be scanned.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn text_candidates(&self, query: &Query) -> Result<Option<TextCandidates>, IndexError> {
        self.with("asking where a text may stand", |connection, _| {
            candidates(&*connection.transaction()?, query, &AtomicBool::new(false))
        })
    }

    /// Where a term may stand, and the files of which that is known, both of one moment: of a file whose text was read
    /// between the two it would seem that it has the term nowhere. `None` where a segment is damaged, where more than
    /// `most` bytes are left to scan, and where `stop` was set meanwhile.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn text_hint(&self, query: &Query, most: u64, stop: &AtomicBool) -> Result<Option<TextHint>, IndexError> {
        self.with("asking where a text may stand", |connection, _| {
            let transaction = connection.transaction()?;
            let Some(candidates) = candidates(&transaction, query, stop)?.filter(|c| c.bytes <= most) else {
                return Ok(None);
            };
            Ok(Some(TextHint { files: files::read_all(&transaction)?, candidates }))
        })
    }

    /// Whether every segment can be opened and tells its units. Lists of single terms are only read when asked for.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn texts_are_sound(&self) -> Result<bool, IndexError> {
        self.run("looking at texts", |connection| {
            let Some(segments) = segments(connection)? else { return Ok(false) };
            for (segment, size) in segments {
                let blocks = Blocks::of(connection, segment, size)?;
                if Segment::open(blocks).and_then(|s| s.places()).is_err() {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Keeps a segment, the files whose units are all kept now, and forgets others, in one transaction.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says; then nothing was changed.
    pub fn keep_text(
        &self,
        segment: Option<NewSegment<'_>>,
        files: &[TextFile],
        forget: &[u64],
    ) -> Result<(), IndexError> {
        self.transact("keeping what is said", |transaction| {
            if let Some(segment) = segment {
                put_segment(transaction, segment)?;
                count_segments(transaction)?;
            }
            if let Some(highest) = files.iter().map(|f| f.owner).max() {
                let told = told_owner(transaction)?.unwrap_or(0);
                set_mark(transaction, NEXT_OWNER, &told.max(highest + 1).to_string())?;
            }
            files::keep(transaction, files, forget)
        })
    }

    /// Segments of fewer than `units` units, with their bytes: those worth putting together.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn small_text_segments(&self, units: usize) -> Result<Vec<(i64, Vec<u8>)>, IndexError> {
        self.run("reading small segments", |connection| {
            let mut statement = connection
                .prepare_cached("SELECT segment, bytes FROM text_segments WHERE units < ?1 ORDER BY segment")?;
            let small: Vec<(i64, i64)> = statement
                .query_map([i64::try_from(units).unwrap_or(i64::MAX)], |r| Ok((r.get(0)?, r.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?;
            let whole = |(segment, size): (i64, i64)| {
                let blocks = Blocks::of(connection, segment, size)?;
                let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
                // What cannot be read is damaged, and says so when it is opened.
                let _ = blocks.read_exact_at(0, &mut bytes);
                Ok((segment, bytes))
            };
            small.into_iter().map(whole).collect()
        })
    }

    /// Puts segments in the place of others, in one transaction.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says; then nothing was changed.
    pub fn replace_text_segments(&self, old: &[i64], new: &[NewSegment<'_>]) -> Result<(), IndexError> {
        self.transact("putting segments together", |transaction| {
            old.iter().try_for_each(|segment| drop_segment(transaction, *segment))?;
            new.iter().try_for_each(|segment| put_segment(transaction, *segment))?;
            count_segments(transaction)
        })
    }

    /// Forgets all that is known of texts.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says; then nothing was changed.
    pub fn forget_texts(&self) -> Result<(), IndexError> {
        self.transact("forgetting texts", |transaction| {
            transaction.execute_batch(
                "DELETE FROM text_files; DELETE FROM text_segments; DELETE FROM text_blocks; \
                 DELETE FROM marks WHERE mark = 'text_segments'",
            )
        })
    }

    /// How many segments there are, and their bytes.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn text_size(&self) -> Result<(u64, u64), IndexError> {
        self.run("measuring texts", |connection| {
            connection.query_row("SELECT count(*), coalesce(sum(bytes), 0) FROM text_segments", [], |r| {
                Ok((unsigned(r, 0)?, unsigned(r, 1)?))
            })
        })
    }
}

/// The first number that no file had when one was numbered last.
fn told_owner(connection: &Connection) -> rusqlite::Result<Option<u64>> {
    Ok(mark(connection, NEXT_OWNER)?.and_then(|text| text.parse().ok()))
}

fn unsigned(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get::<_, i64>(column).map(i64::cast_unsigned)
}

fn candidates(transaction: &Connection, query: &Query, stop: &AtomicBool) -> rusqlite::Result<Option<TextCandidates>> {
    let mut found = TextCandidates::default();
    let Some(segments) = segments(transaction)? else { return Ok(None) };
    for (segment, size) in segments {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let blocks = Blocks::of(transaction, segment, size)?;
        let Ok(open) = Segment::open(blocks) else { return Ok(None) };
        let Ok(units) = open.candidates(query) else { return Ok(None) };
        if units.is_empty() {
            continue;
        }
        let Ok(places) = open.places() else { return Ok(None) };
        for unit in units.iter() {
            let Some(place) = places.get(unit) else { return Ok(None) };
            found.bytes += place.end.saturating_sub(place.start);
            found.ranges.entry(place.owner).or_default().push((place.start, place.end));
        }
    }
    Ok(Some(found))
}

/// Numbers and sizes of all segments; `None` where some are lost.
fn segments(connection: &Connection) -> rusqlite::Result<Option<Vec<(i64, i64)>>> {
    let mut all = connection.prepare_cached("SELECT segment, bytes FROM text_segments ORDER BY segment")?;
    let found: Vec<(i64, i64)> = all.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    let told = mark(connection, SEGMENTS)?.unwrap_or_else(|| "0".into());
    Ok((told == found.len().to_string()).then_some(found))
}

fn count_segments(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let count: i64 = transaction.query_row("SELECT count(*) FROM text_segments", [], |r| r.get(0))?;
    set_mark(transaction, SEGMENTS, &count.to_string())
}

fn put_segment(transaction: &Transaction<'_>, segment: NewSegment<'_>) -> rusqlite::Result<()> {
    let number: i64 = transaction
        .query_row("SELECT max(segment) + 1 FROM text_segments", [], |r| r.get::<_, Option<i64>>(0))
        .optional()?
        .flatten()
        .unwrap_or(0);
    transaction.prepare_cached("INSERT INTO text_segments VALUES (?1, ?2, ?3)")?.execute(params![
        number,
        i64::try_from(segment.units).unwrap_or(i64::MAX),
        i64::try_from(segment.bytes.len()).unwrap_or(i64::MAX),
    ])?;
    let mut statement = transaction.prepare_cached("INSERT OR REPLACE INTO text_blocks VALUES (?1, ?2)")?;
    for (n, block) in (0i64..).zip(segment.bytes.chunks(BLOCK)) {
        statement.execute(params![number * BLOCKS + n, block])?;
    }
    Ok(())
}

fn drop_segment(transaction: &Transaction<'_>, segment: i64) -> rusqlite::Result<()> {
    transaction.prepare_cached("DELETE FROM text_segments WHERE segment = ?1")?.execute([segment])?;
    let range = params![segment * BLOCKS, (segment + 1) * BLOCKS];
    transaction.prepare_cached("DELETE FROM text_blocks WHERE block >= ?1 AND block < ?2")?.execute(range)?;
    Ok(())
}

/// The bytes of a segment, block by block.
struct Blocks<'c> {
    // One statement is asked again and again; nothing here is shared.
    statement: std::cell::RefCell<rusqlite::CachedStatement<'c>>,
    segment: i64,
    size: u64,
}

impl<'c> Blocks<'c> {
    fn of(connection: &'c Connection, segment: i64, size: i64) -> rusqlite::Result<Self> {
        let statement = connection.prepare_cached("SELECT bytes FROM text_blocks WHERE block = ?1")?;
        Ok(Self { statement: statement.into(), segment, size: u64::try_from(size).unwrap_or(0) })
    }
}

impl ReadAt for Blocks<'_> {
    fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut statement = self.statement.borrow_mut();
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let (block, from) = (at / BLOCK as u64, (at % BLOCK as u64) as usize);
            let number = i64::try_from(block).ok().filter(|b| *b < BLOCKS).ok_or(io::ErrorKind::UnexpectedEof)?;
            done +=
                copy(&mut statement, self.segment.wrapping_mul(BLOCKS).wrapping_add(number), from, &mut into[done..])?;
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }
}

/// Copies what a block has from a place on; at least one byte.
fn copy(statement: &mut Statement<'_>, block: i64, from: usize, into: &mut [u8]) -> io::Result<usize> {
    let copied = statement
        .query_row([block], |r| {
            let bytes = r.get_ref(0)?.as_blob()?;
            let part = bytes.get(from..).unwrap_or(&[]);
            let n = part.len().min(into.len());
            into[..n].copy_from_slice(&part[..n]);
            Ok(n)
        })
        .map_err(io::Error::other)?;
    if copied == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(copied) }
}
