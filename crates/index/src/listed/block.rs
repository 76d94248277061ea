//! Threads in blocks, each of a range of ids.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension, params};
use threadkeep_record::ThreadId;

use super::{Known, Listed};
use crate::packed::{open, put_from, seal, take_bytes, take_from};
use crate::text::bytes::{put, take};

/// Threads of a new block, and how many one may come to have.
pub(super) const THREADS: usize = 256;
const MOST: usize = 512;

/// Where the block begins that ids before all others are in.
fn lowest() -> ThreadId {
    ThreadId::from_bytes([0; 16])
}

const WHOLE: u8 = 1;
const PARENT: u8 = 2;

fn pack<'l>(threads: impl Iterator<Item = &'l Listed>) -> Vec<u8> {
    let mut entries = Vec::with_capacity(THREADS * 48);
    let mut mtime = 0;
    for l in threads {
        entries.extend_from_slice(l.thread.as_bytes());
        entries.extend_from_slice(&l.print.to_le_bytes());
        let whole = if l.known == Known::Whole { WHOLE } else { 0 };
        entries.push(whole | if l.parent.is_some() { PARENT } else { 0 });
        if let Some(parent) = &l.parent {
            entries.extend_from_slice(parent.as_bytes());
        }
        put(&mut entries, l.row.cast_unsigned());
        put(&mut entries, l.facet.cast_unsigned());
        put_from(&mut entries, mtime, l.mtime);
        for time in [l.updated_at, l.created_at, l.recency_at] {
            put_from(&mut entries, l.mtime, time);
        }
        mtime = l.mtime;
    }
    seal(&entries)
}

/// The id that a block begins with. One of another length is of no release, and its block is never asked for.
pub(super) fn first(bytes: &[u8]) -> Option<ThreadId> {
    bytes.try_into().ok().map(ThreadId::from_bytes)
}

/// Gives the threads of all blocks in the order of their ids.
pub(super) fn each(connection: &Connection, sink: impl FnMut(Listed)) -> rusqlite::Result<()> {
    within(connection, |_, _| true, sink)
}

/// The same of some threads, whose ids are in order. Blocks without any of them are not read.
pub(super) fn some(connection: &Connection, ids: &[ThreadId], mut sink: impl FnMut(Listed)) -> rusqlite::Result<()> {
    let any = |first: ThreadId, end: Option<ThreadId>| {
        let next = ids.get(ids.partition_point(|id| *id < first));
        next.is_some_and(|id| end.is_none_or(|end| *id < end))
    };
    within(connection, any, |l| {
        if ids.binary_search(&l.thread).is_ok() {
            sink(l);
        }
    })
}

/// Gives the threads of the blocks whose range of ids `wanted` takes: from an id up to another or without an end.
fn within(
    connection: &Connection,
    wanted: impl Fn(ThreadId, Option<ThreadId>) -> bool,
    mut sink: impl FnMut(Listed),
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("SELECT first FROM listed ORDER BY first")?;
    let firsts: Vec<Vec<u8>> = statement.query_map([], |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
    let firsts: Vec<ThreadId> = firsts.iter().filter_map(|bytes| first(bytes)).collect();
    let mut statement = connection.prepare_cached("SELECT threads FROM listed WHERE first = ?1")?;
    for (i, first) in firsts.iter().enumerate() {
        let end = firsts.get(i + 1).copied();
        if !wanted(*first, end) {
            continue;
        }
        let mut rows = statement.query([first.as_bytes()])?;
        let Some(r) = rows.next()? else { continue };
        let mut last = None;
        unpack(r.get_ref(0)?.as_blob().unwrap_or(&[]), &mut |l| {
            // Threads that belong to a block are in no other.
            if l.thread >= *first && end.is_none_or(|end| l.thread < end) && last < Some(l.thread) {
                last = Some(l.thread);
                sink(l);
            }
        });
    }
    Ok(())
}

/// Gives the threads of a block in their order. One that is damaged has none.
pub(super) fn unpack(block: &[u8], sink: &mut impl FnMut(Listed)) {
    let mut entries = open(block).unwrap_or(&[]);
    let mut mtime = 0;
    while let Some(listed) = entry(&mut entries, mtime) {
        mtime = listed.mtime;
        sink(listed);
    }
}

fn entry(from: &mut &[u8], mtime_before: i64) -> Option<Listed> {
    let thread = ThreadId::from_bytes(take_bytes(from)?);
    let print = u64::from_le_bytes(take_bytes(from)?);
    let [flags] = take_bytes(from)?;
    let parent = if flags & PARENT == 0 { None } else { Some(ThreadId::from_bytes(take_bytes(from)?)) };
    let row = take(from)?.cast_signed();
    let facet = take(from)?.cast_signed();
    let mtime = take_from(from, mtime_before)?;
    Some(Listed {
        thread,
        print,
        known: if flags & WHOLE == 0 { Known::Ends } else { Known::Whole },
        updated_at: take_from(from, mtime)?,
        created_at: take_from(from, mtime)?,
        recency_at: take_from(from, mtime)?,
        mtime,
        facet,
        row,
        parent,
    })
}

/// The blocks, for one who changes them within a transaction.
pub(super) struct Blocks<'c> {
    connection: &'c Connection,
    /// In the order of their first ids.
    blocks: Vec<Block>,
}

struct Block {
    /// Threads from this id up to that of the next block are in it.
    first: ThreadId,
    /// `None` until it is read.
    threads: Option<BTreeMap<ThreadId, Listed>>,
    changed: bool,
}

impl<'c> Blocks<'c> {
    pub fn open(connection: &'c Connection) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare_cached("SELECT first FROM listed ORDER BY first")?;
        let firsts: Vec<Vec<u8>> = statement.query_map([], |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
        let block = |first| Block { first, threads: None, changed: false };
        let mut blocks: Vec<Block> = firsts.iter().filter_map(|bytes| first(bytes)).map(block).collect();
        if blocks.first().is_none_or(|b| b.first != lowest()) {
            blocks.insert(0, block(lowest()));
        }
        Ok(Self { connection, blocks })
    }

    fn block(&mut self, thread: ThreadId) -> rusqlite::Result<(&mut bool, &mut BTreeMap<ThreadId, Listed>)> {
        let next = self.blocks.partition_point(|b| b.first <= thread);
        let end = self.blocks.get(next).map(|b| b.first);
        // The lowest id is not above any.
        let block = &mut self.blocks[next.saturating_sub(1)];
        let threads = match &mut block.threads {
            Some(threads) => threads,
            unread => {
                let mut statement = self.connection.prepare_cached("SELECT threads FROM listed WHERE first = ?1")?;
                let bytes: Option<Vec<u8>> = statement.query_row([block.first.as_bytes()], |r| r.get(0)).optional()?;
                let mut threads = BTreeMap::new();
                unpack(&bytes.unwrap_or_default(), &mut |l| {
                    // Threads that belong to another block are not looked for here.
                    if l.thread >= block.first && end.is_none_or(|end| l.thread < end) {
                        threads.insert(l.thread, l);
                    }
                });
                unread.insert(threads)
            }
        };
        Ok((&mut block.changed, threads))
    }

    pub fn get(&mut self, thread: ThreadId) -> rusqlite::Result<Option<Listed>> {
        Ok(self.block(thread)?.1.get(&thread).copied())
    }

    pub fn put(&mut self, listed: Listed) -> rusqlite::Result<()> {
        let (changed, threads) = self.block(listed.thread)?;
        *changed |= threads.insert(listed.thread, listed) != Some(listed);
        Ok(())
    }

    pub fn remove(&mut self, thread: ThreadId) -> rusqlite::Result<Option<Listed>> {
        let (changed, threads) = self.block(thread)?;
        let was = threads.remove(&thread);
        *changed |= was.is_some();
        Ok(was)
    }

    /// Writes what changed.
    pub fn write(self) -> rusqlite::Result<()> {
        let mut put = self.connection.prepare_cached("INSERT OR REPLACE INTO listed VALUES (?1, ?2)")?;
        for block in self.blocks {
            let Some(threads) = block.threads.filter(|_| block.changed) else { continue };
            let threads: Vec<Listed> = threads.into_values().collect();
            if threads.is_empty() {
                self.connection
                    .prepare_cached("DELETE FROM listed WHERE first = ?1")?
                    .execute([block.first.as_bytes()])?;
            } else if threads.len() <= MOST {
                put.execute(params![block.first.as_bytes(), pack(threads.iter())])?;
            } else {
                for (n, part) in threads.chunks(THREADS).enumerate() {
                    let first = if n == 0 { block.first } else { part[0].thread };
                    put.execute(params![first.as_bytes(), pack(part.iter())])?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(n: u32, seed: u64) -> Listed {
        let mut bytes = [0; 16];
        bytes[4..8].copy_from_slice(&n.to_be_bytes());
        let time = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (seed % 60)).cast_signed();
        Listed {
            thread: ThreadId::from_bytes(bytes),
            print: seed,
            known: if seed.is_multiple_of(3) { Known::Whole } else { Known::Ends },
            updated_at: time.wrapping_sub(5),
            created_at: -time,
            recency_at: time / 2,
            mtime: time,
            facet: i64::from(n % 7),
            row: i64::from(n),
            parent: seed.is_multiple_of(2).then(|| ThreadId::from_bytes([seed as u8; 16])),
        }
    }

    fn all(connection: &Connection) -> Vec<Listed> {
        let mut found = Vec::new();
        let mut statement = connection.prepare("SELECT threads FROM listed ORDER BY first").unwrap();
        let blocks: Vec<Vec<u8>> = statement.query_map([], |r| r.get(0)).unwrap().map(Result::unwrap).collect();
        for block in blocks {
            unpack(&block, &mut |l| found.push(l));
        }
        found
    }

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("CREATE TABLE listed (first BLOB NOT NULL PRIMARY KEY, threads BLOB NOT NULL)")
            .unwrap();
        connection
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// Whatever is put and removed in whatever order, the blocks hold what a map would.
        #[test]
        fn blocks_are_a_map(batches in proptest::collection::vec((0u32..3000, 1u32..900, any::<u64>(), any::<bool>()), 1..8)) {
            let connection = table();
            let mut model = BTreeMap::new();
            for (from, count, seed, put) in batches {
                let mut blocks = Blocks::open(&connection).unwrap();
                for n in (from..from + count).rev().step_by(1 + (seed % 3) as usize) {
                    let l = listed(n, seed.wrapping_add(n.into()));
                    prop_assert_eq!(blocks.get(l.thread).unwrap(), model.get(&l.thread).copied());
                    if put {
                        blocks.put(l).unwrap();
                        model.insert(l.thread, l);
                    } else {
                        prop_assert_eq!(blocks.remove(l.thread).unwrap(), model.remove(&l.thread));
                    }
                }
                blocks.write().unwrap();
                prop_assert_eq!(all(&connection), model.values().copied().collect::<Vec<_>>());
                let largest: Option<i64> =
                    connection.query_row("SELECT max(length(threads)) FROM listed", [], |r| r.get(0)).unwrap();
                prop_assert!(largest.unwrap_or(0) < 512 * 128, "{largest:?}");
            }
        }
    }

    #[test]
    fn a_damaged_block_takes_no_other_with_it() {
        let connection = table();
        let mut blocks = Blocks::open(&connection).unwrap();
        (0..2000).for_each(|n| blocks.put(listed(n, n.into())).unwrap());
        blocks.write().unwrap();
        let first: Vec<u8> =
            connection.query_row("SELECT first FROM listed ORDER BY first LIMIT 1 OFFSET 2", [], |r| r.get(0)).unwrap();
        for damage in ["x''", "x'00'", "substr(threads, 1, length(threads) - 1)", "CAST(threads || x'00' AS BLOB)"] {
            connection.execute(&format!("UPDATE listed SET threads = {damage} WHERE first = ?1"), [&first]).unwrap();
            assert_eq!(all(&connection).len(), 2000 - THREADS, "{damage}");
            let mut blocks = Blocks::open(&connection).unwrap();
            (0..2000).for_each(|n| blocks.put(listed(n, n.into())).unwrap());
            blocks.write().unwrap();
            assert_eq!(all(&connection), (0..2000).map(|n| listed(n, n.into())).collect::<Vec<_>>(), "{damage}");
        }
        // The block of the lowest ids is lost.
        connection.execute("DELETE FROM listed WHERE first = ?1", [lowest().as_bytes()]).unwrap();
        let mut blocks = Blocks::open(&connection).unwrap();
        blocks.put(listed(0, 9)).unwrap();
        blocks.write().unwrap();
        assert_eq!(all(&connection).len(), 2000 - THREADS + 1);
    }
}
