//! Which files the text hint knows: blocks of 256 numbers each.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rusqlite::{Connection, OptionalExtension, params};

use super::unsigned;
use crate::packed::{open, put_from, seal, take_bytes, take_from};
use crate::text::bytes::{put, take};
use crate::{Index, IndexError};

/// Numbers of a block.
const NUMBERS: u64 = 256;

/// A file whose text is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextFile {
    /// What its units are called.
    pub owner: u64,
    /// Of the file as it was read.
    pub print: u64,
    /// Device and inode.
    pub identity: (u64, u64),
    /// Up to where its units go, in bytes of the decompressed rollout.
    pub read_to: u64,
    /// Of a plain file a hash of its beginning and of what stands before `read_to`, which one that was only appended to
    /// still has; of others 1 where nothing stands behind `read_to`, else 0.
    pub check: u64,
}

/// What is known of the text of a home's files, of one moment.
#[derive(Debug, Default)]
pub struct TextFiles {
    files: Vec<TextFile>,
    /// Places of files by the highest bits of their prints, each at the first place that was free; `FREE` elsewhere.
    by_print: Vec<u32>,
    /// Places of files in the order of identities, once that is asked for.
    by_identity: OnceLock<Vec<u32>>,
}

const FREE: u32 = u32::MAX;

impl TextFiles {
    fn new(files: Vec<TextFile>) -> Self {
        // At most half full, so a file that is not there is told by a step or two.
        let mut by_print = vec![FREE; (files.len() * 2).next_power_of_two().max(2)];
        for (file, at) in files.iter().zip(0..FREE) {
            let mut slot = slot(file.print, by_print.len());
            while by_print[slot] != FREE {
                slot = (slot + 1) % by_print.len();
            }
            by_print[slot] = at;
        }
        Self { files, by_print, by_identity: OnceLock::new() }
    }

    /// A file that is as it was read.
    #[must_use]
    pub fn get(&self, print: u64) -> Option<&TextFile> {
        if self.by_print.is_empty() {
            return None;
        }
        let mut slot = slot(print, self.by_print.len());
        loop {
            // A free slot is no place of a file.
            let file = self.files.get(self.by_print[slot] as usize)?;
            if file.print == print {
                return Some(file);
            }
            slot = (slot + 1) % self.by_print.len();
        }
    }

    /// The files with this identity: what is left of one that was appended to, or moved.
    pub fn of(&self, identity: (u64, u64)) -> impl Iterator<Item = &TextFile> {
        let order = self.by_identity.get_or_init(|| {
            let mut order: Vec<u32> = (0..FREE).take(self.files.len()).collect();
            order.sort_unstable_by_key(|at| self.files[*at as usize].identity);
            order
        });
        let from = order.partition_point(|at| self.files[*at as usize].identity < identity);
        order[from..].iter().map(|at| &self.files[*at as usize]).take_while(move |f| f.identity == identity)
    }

    /// All files.
    pub fn iter(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter()
    }

    /// How many files are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// Where a print is looked for first; `slots` is a power of two above 1.
fn slot(print: u64, slots: usize) -> usize {
    (print >> (64 - slots.trailing_zeros().clamp(1, 63))) as usize & (slots - 1)
}

impl Index {
    /// The files whose text is known.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn text_files(&self) -> Result<TextFiles, IndexError> {
        self.run("reading which texts are known", read_all)
    }

    /// The first number that no file has.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn next_text_owner(&self) -> Result<u64, IndexError> {
        self.run("numbering texts", |connection| {
            // A number is never given twice: units of the file that had it may still be there.
            let told = super::told_owner(connection)?.unwrap_or(1);
            let block: Option<i64> = connection.query_row("SELECT max(block) FROM text_files", [], |r| r.get(0))?;
            let Some(block) = block.map(i64::cast_unsigned) else { return Ok(told) };
            let last = read(connection, block)?.into_keys().next_back();
            // Of a damaged block it is not known how many it had.
            Ok(told.max(last.map_or(block.saturating_add(1).saturating_mul(NUMBERS), |last| last + 1)))
        })
    }

    /// How many files are known.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn count_text_files(&self) -> Result<u64, IndexError> {
        self.run("counting texts", |connection| {
            connection.query_row("SELECT coalesce(sum(count), 0) FROM text_files", [], |r| unsigned(r, 0))
        })
    }
}

pub(super) fn read_all(connection: &Connection) -> rusqlite::Result<TextFiles> {
    let mut statement = connection.prepare_cached("SELECT block, files FROM text_files ORDER BY block")?;
    let mut rows = statement.query([])?;
    let mut files = Vec::new();
    while let Some(r) = rows.next()? {
        unpack(unsigned(r, 0)?, r.get_ref(1)?.as_blob().unwrap_or(&[]), &mut |f| files.push(f));
    }
    Ok(TextFiles::new(files))
}

/// Keeps files and forgets others.
pub(super) fn keep(connection: &Connection, files: &[TextFile], forget: &[u64]) -> rusqlite::Result<()> {
    let mut changes: BTreeMap<u64, (Vec<&TextFile>, Vec<u64>)> = BTreeMap::new();
    for file in files {
        changes.entry(file.owner / NUMBERS).or_default().0.push(file);
    }
    for owner in forget {
        changes.entry(owner / NUMBERS).or_default().1.push(*owner);
    }
    for (block, (keep, forget)) in changes {
        let mut all = read(connection, block)?;
        all.retain(|owner, _| !forget.contains(owner));
        all.extend(keep.into_iter().map(|f| (f.owner, f.clone())));
        if all.is_empty() {
            connection.prepare_cached("DELETE FROM text_files WHERE block = ?1")?.execute([block.cast_signed()])?;
        } else {
            connection.prepare_cached("INSERT OR REPLACE INTO text_files VALUES (?1, ?2, ?3)")?.execute(params![
                block.cast_signed(),
                i64::try_from(all.len()).unwrap_or(i64::MAX),
                pack(block, all.values()),
            ])?;
        }
    }
    Ok(())
}

fn read(connection: &Connection, block: u64) -> rusqlite::Result<BTreeMap<u64, TextFile>> {
    let bytes: Option<Vec<u8>> = connection
        .prepare_cached("SELECT files FROM text_files WHERE block = ?1")?
        .query_row([block.cast_signed()], |r| r.get(0))
        .optional()?;
    let mut all = BTreeMap::new();
    unpack(block, &bytes.unwrap_or_default(), &mut |f| {
        all.insert(f.owner, f);
    });
    Ok(all)
}

fn pack<'f>(block: u64, files: impl Iterator<Item = &'f TextFile>) -> Vec<u8> {
    let mut entries = Vec::with_capacity(NUMBERS as usize * 28);
    let (mut owner, mut ino) = (block * NUMBERS, 0);
    for f in files {
        put(&mut entries, f.owner - owner);
        entries.extend_from_slice(&f.print.to_le_bytes());
        put(&mut entries, f.identity.0);
        put_from(&mut entries, ino, f.identity.1.cast_signed());
        put(&mut entries, f.read_to);
        entries.extend_from_slice(&f.check.to_le_bytes());
        (owner, ino) = (f.owner, f.identity.1.cast_signed());
    }
    seal(&entries)
}

/// Gives the files of a block in the order of their numbers. One that is damaged has none.
fn unpack(block: u64, bytes: &[u8], sink: &mut impl FnMut(TextFile)) {
    let mut entries = open(bytes).unwrap_or(&[]);
    let (mut owner, mut ino) = (block.wrapping_mul(NUMBERS), 0);
    while let Some(file) = entry(&mut entries, owner, ino) {
        (owner, ino) = (file.owner, file.identity.1.cast_signed());
        sink(file);
    }
}

fn entry(from: &mut &[u8], owner: u64, ino: i64) -> Option<TextFile> {
    Some(TextFile {
        owner: owner.checked_add(take(from)?)?,
        print: u64::from_le_bytes(take_bytes(from)?),
        identity: (take(from)?, take_from(from, ino)?.cast_unsigned()),
        read_to: take(from)?,
        check: u64::from_le_bytes(take_bytes(from)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file(owner: u64, seed: u64) -> TextFile {
        let mixed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        TextFile { owner, print: mixed, identity: (seed % 3, mixed >> 7), read_to: seed, check: !mixed }
    }

    fn table() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        let sql = "CREATE TABLE text_files (block INTEGER PRIMARY KEY, count INTEGER NOT NULL, files BLOB NOT NULL)";
        connection.execute_batch(sql).unwrap();
        connection
    }

    fn all(connection: &Connection) -> Vec<TextFile> {
        let mut statement = connection.prepare("SELECT block FROM text_files ORDER BY block").unwrap();
        let blocks: Vec<i64> = statement.query_map([], |r| r.get(0)).unwrap().map(Result::unwrap).collect();
        blocks.into_iter().flat_map(|b| read(connection, b.cast_unsigned()).unwrap().into_values()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        /// Whatever is kept and forgotten in whatever order, the blocks hold what a map would.
        #[test]
        fn blocks_are_a_map(batches in proptest::collection::vec((1u64..2000, 0u64..600, any::<u32>(), any::<bool>()), 1..8)) {
            let connection = table();
            let mut model: BTreeMap<u64, TextFile> = BTreeMap::new();
            for (from, count, seed, forgotten) in batches {
                let numbers = || from..from + count;
                if forgotten {
                    model.retain(|owner, _| !numbers().contains(owner));
                    keep(&connection, &[], &numbers().collect::<Vec<_>>()).unwrap();
                } else {
                    let files: Vec<TextFile> = numbers().map(|n| file(n, n ^ u64::from(seed))).collect();
                    model.extend(files.iter().map(|f| (f.owner, f.clone())));
                    keep(&connection, &files, &[]).unwrap();
                }
                prop_assert_eq!(&all(&connection), &model.values().cloned().collect::<Vec<_>>());
                let known = TextFiles::new(all(&connection));
                for f in model.values() {
                    prop_assert_eq!(known.get(f.print).map(|k| k.print), Some(f.print));
                    prop_assert!(known.of(f.identity).any(|k| k == f));
                    prop_assert!(known.get(f.print ^ 1).is_none_or(|k| k.print == f.print ^ 1));
                }
            }
        }
    }

    #[test]
    fn prints_that_begin_alike_are_told_apart() {
        for n in 0..70u64 {
            let files: Vec<TextFile> = (0..n).map(|i| TextFile { print: u64::MAX - i, ..file(i + 1, i) }).collect();
            let known = TextFiles::new(files);
            for i in 0..n {
                assert_eq!(known.get(u64::MAX - i).map(|f| f.owner), Some(i + 1));
            }
            assert_eq!((known.get(u64::MAX - n), known.get(0), known.of((9, 9)).count()), (None, None, 0));
        }
        assert_eq!(TextFiles::default().get(0), None);
    }

    #[test]
    fn a_damaged_block_takes_no_other_with_it() {
        let connection = table();
        let files: Vec<TextFile> = (1..1000).map(|n| file(n, n)).collect();
        keep(&connection, &files, &[]).unwrap();
        connection.execute("UPDATE text_files SET files = substr(files, 1, 100) WHERE block = 1", []).unwrap();
        let left = || files.iter().filter(|f| f.owner / NUMBERS != 1).cloned();
        assert_eq!(all(&connection), left().collect::<Vec<_>>());
        keep(&connection, &[file(256, 7)], &[]).unwrap();
        assert_eq!(all(&connection).len(), left().count() + 1);
    }
}
