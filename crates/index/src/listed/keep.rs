//! Keeping what lists need.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use threadkeep_record::ThreadId;

use super::block::Blocks;
use super::{Changed, Cut, Finished, Keep, Listed, WHOLE, set_mark};
use crate::{Index, IndexError};

impl Index {
    /// Keeps threads and forgets others, in one transaction. `finished` also says that the whole home was read.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says; then nothing was changed.
    pub fn keep(&self, keep: &[Keep], forget: &[ThreadId], finished: Finished) -> Result<Changed, IndexError> {
        self.transact("keeping what lists need", |transaction| {
            let mut changed = Changed::default();
            let mut blocks = Blocks::open(transaction)?;
            let mut facets: HashMap<&str, i64> = HashMap::new();
            for k in keep {
                let facet = match facets.get(&*k.facet) {
                    Some(facet) => *facet,
                    None => *facets.entry(&k.facet).or_insert(facet(transaction, &k.facet)?),
                };
                changed += put(transaction, &mut blocks, k, facet)?;
            }
            for thread in forget {
                if let Some(was) = blocks.remove(*thread)? {
                    drop_row(transaction, was.row)?;
                    changed.dropped += 1;
                }
            }
            blocks.write()?;
            match finished {
                Finished::Yes => {
                    drop_facets(transaction)?;
                    set_mark(transaction, WHOLE, "1")?;
                }
                Finished::NotYet => {}
            }
            Ok(changed)
        })
    }

    /// How many of these threads are kept.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn count_listed(&self, threads: &[ThreadId]) -> Result<u64, IndexError> {
        self.run("counting threads", |connection| {
            let mut blocks = Blocks::open(connection)?;
            let mut count = 0;
            for thread in threads {
                count += u64::from(blocks.get(*thread)?.is_some());
            }
            Ok(count)
        })
    }

    /// What [`keep`](Self::keep) would change. Nothing is written.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn compare(&self, keep: &[Keep]) -> Result<Changed, IndexError> {
        self.run("comparing what lists need", |connection| {
            let mut changed = Changed::default();
            let mut blocks = Blocks::open(connection)?;
            for k in keep {
                match blocks.get(k.listed.thread)? {
                    Some(was) => changed.fixed += u64::from(differs(connection, &was, k)?),
                    None => changed.added += 1,
                }
            }
            Ok(changed)
        })
    }
}

fn facet(transaction: &Transaction<'_>, text: &str) -> rusqlite::Result<i64> {
    let mut find = transaction.prepare_cached("SELECT id FROM facets WHERE facet = ?1")?;
    if let Some(id) = find.query_row([text], |r| r.get(0)).optional()? {
        return Ok(id);
    }
    transaction.prepare_cached("INSERT INTO facets (facet) VALUES (?1)")?.execute([text])?;
    Ok(transaction.last_insert_rowid())
}

/// Drops the facets that no thread has.
fn drop_facets(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let mut used = std::collections::HashSet::new();
    let mut statement = transaction.prepare_cached("SELECT threads FROM listed")?;
    let mut rows = statement.query([])?;
    while let Some(r) = rows.next()? {
        super::block::unpack(r.get_ref(0)?.as_blob().unwrap_or(&[]), &mut |l| {
            used.insert(l.facet);
        });
    }
    let mut statement = transaction.prepare_cached("SELECT id FROM facets")?;
    let all: Vec<i64> = statement.query_map([], |r| r.get(0))?.collect::<rusqlite::Result<_>>()?;
    for id in all.into_iter().filter(|id| !used.contains(id)) {
        transaction.prepare_cached("DELETE FROM facets WHERE id = ?1")?.execute([id])?;
    }
    Ok(())
}

/// Whether something else was said of a thread. What was not read then was not said.
fn differs(connection: &Connection, was: &Listed, k: &Keep) -> rusqlite::Result<bool> {
    if was.known < k.listed.known {
        return Ok(false);
    }
    let said: Option<(Option<String>, String, Option<String>)> = connection
        .prepare_cached(
            "SELECT (SELECT facet FROM facets WHERE id = ?2), rows.thread, texts.preview FROM rows \
             LEFT JOIN texts USING (row) WHERE rows.row = ?1",
        )?
        .query_row([was.row, was.facet], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
        .optional()?;
    Ok(said
        .is_some_and(|(facet, row, preview)| facet.as_ref() != Some(&k.facet) || row != k.row || preview != k.preview))
}

fn put(transaction: &Transaction<'_>, blocks: &mut Blocks<'_>, k: &Keep, facet: i64) -> rusqlite::Result<Changed> {
    let mut changed = Changed::default();
    let row = match blocks.get(k.listed.thread)? {
        Some(was) => {
            changed.fixed = u64::from(differs(transaction, &was, k)?);
            transaction
                .prepare_cached("INSERT OR REPLACE INTO rows VALUES (?1, ?2)")?
                .execute(params![was.row, k.row])?;
            transaction.prepare_cached("DELETE FROM depends WHERE row = ?1")?.execute([was.row])?;
            transaction.prepare_cached("DELETE FROM touched WHERE row = ?1")?.execute([was.row])?;
            was.row
        }
        None => {
            changed.added = 1;
            transaction.prepare_cached("INSERT INTO rows (thread) VALUES (?1)")?.execute([&k.row])?;
            transaction.last_insert_rowid()
        }
    };
    transaction.prepare_cached("INSERT OR REPLACE INTO texts VALUES (?1, ?2, ?3)")?.execute(params![
        row,
        k.preview,
        i64::from(k.cut == Cut::Yes)
    ])?;
    blocks.put(Listed { row, facet, ..k.listed })?;
    for on in &k.depends {
        transaction
            .prepare_cached("INSERT OR IGNORE INTO depends VALUES (?1, ?2)")?
            .execute(params![row, on.as_bytes()])?;
    }
    for path in &k.touched {
        transaction.prepare_cached("INSERT OR IGNORE INTO touched VALUES (?1, ?2)")?.execute(params![row, path])?;
    }
    Ok(changed)
}

fn drop_row(transaction: &Transaction<'_>, row: i64) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM rows WHERE row = ?1",
        "DELETE FROM texts WHERE row = ?1",
        "DELETE FROM depends WHERE row = ?1",
        "DELETE FROM touched WHERE row = ?1",
    ] {
        transaction.prepare_cached(sql)?.execute([row])?;
    }
    Ok(())
}
