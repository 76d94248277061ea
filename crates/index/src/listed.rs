//! What lists need of every thread: where it stands in each order, what filters ask, and the row that is shown.
//!
//! The row is the caller's text and is only kept here. `print` tells the files it was made from; whoever reads compares
//! it with the files as they are now, so that a row is never older than what it says.

use std::collections::HashMap;
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use threadkeep_record::ThreadId;

use crate::place::Placed;
use crate::{Index, IndexError};

/// The row of a thread as it was given, and its preview.
pub type RowText = (String, Option<String>);

/// How much of a thread's files was read for its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// Heads and tails: all that the usual order and filters need.
    Ends,
    /// Every record.
    Whole,
}

impl Known {
    fn number(self) -> i64 {
        match self {
            Self::Ends => 1,
            Self::Whole => 2,
        }
    }

    fn of(number: i64) -> Self {
        if number >= 2 { Self::Whole } else { Self::Ends }
    }
}

/// A thread as lists order and filter it. Times are milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listed {
    /// The thread.
    pub thread: ThreadId,
    /// Of the files that it was made from; 0 is never that of a file as it is.
    pub print: u64,
    /// How much of them was read.
    pub known: Known,
    /// Time of the last record.
    pub updated_at: i64,
    /// Creation.
    pub created_at: i64,
    /// Start of the last turn.
    pub recency_at: i64,
    /// Newest modification time of its files.
    pub mtime: i64,
    /// What filters ask, in [`Listing::facets`].
    pub facet: i64,
    /// Number of its row, for [`Index::rows`].
    pub row: i64,
    /// The thread that started it.
    pub parent: Option<ThreadId>,
}

/// All that is kept for lists, of one moment.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// The threads, in the order of their ids.
    pub threads: Vec<Listed>,
    /// What filters ask, by number. Few: many threads share each.
    pub facets: HashMap<i64, String>,
    /// The whole home was read once, so a thread that is not here is new.
    pub whole: bool,
}

/// A thread to keep.
#[derive(Debug, Clone)]
pub struct Keep {
    /// The thread. `facet` and `row` in it are not used.
    pub listed: Listed,
    /// What filters ask.
    pub facet: String,
    /// The row.
    pub row: String,
    /// The preview, which is kept beside the row because lists also search in it.
    pub preview: Option<String>,
    /// The preview is only the beginning of one.
    pub cut: Cut,
    /// Threads and rollouts that the row says something of: if their files change, it is made again.
    pub depends: Vec<ThreadId>,
    /// Files that it changed, as its records name them.
    pub touched: Vec<String>,
}

/// Whether a text is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It is.
    No,
    /// Only its beginning is kept.
    Yes,
}

/// What keeping changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Changed {
    /// Threads that were not there before.
    pub added: u64,
    /// Threads of which something else was said before.
    pub fixed: u64,
    /// Threads that are no longer there.
    pub dropped: u64,
}

impl std::ops::AddAssign for Changed {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.fixed += other.fixed;
        self.dropped += other.dropped;
    }
}

/// The mark that the whole home was read once.
const WHOLE: &str = "whole";

impl Index {
    /// Everything that lists order and filter by.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn listing(&self) -> Result<Listing, IndexError> {
        self.with("reading what lists need", |connection, _| {
            // One moment: the threads and their facets belong together.
            let transaction = connection.transaction()?;
            let whole = mark(&transaction, WHOLE)?.is_some();
            let mut statement = transaction.prepare_cached("SELECT id, facet FROM facets")?;
            let facets = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<Result<_, _>>()?;
            let mut statement = transaction.prepare_cached(
                "SELECT thread, print, depth, row, facet, updated_at, created_at, recency_at, mtime, parent FROM listed \
                 ORDER BY thread",
            )?;
            let mut threads = Vec::new();
            let mut rows = statement.query([])?;
            while let Some(r) = rows.next()? {
                let id = |i| r.get_ref(i).ok().and_then(|v| v.as_blob().ok()?.try_into().ok()).map(ThreadId::from_bytes);
                // An id of another length is of no release; its thread counts as not kept.
                let Some(thread) = id(0) else { continue };
                threads.push(Listed {
                    thread,
                    print: r.get::<_, i64>(1)?.cast_unsigned(),
                    known: Known::of(r.get(2)?),
                    row: r.get(3)?,
                    facet: r.get(4)?,
                    updated_at: r.get(5)?,
                    created_at: r.get(6)?,
                    recency_at: r.get(7)?,
                    mtime: r.get(8)?,
                    parent: id(9),
                });
            }
            Ok(Listing { threads, facets, whole })
        })
    }

    /// Rows by number, with their previews, in the order asked for. `None` where a row was dropped meanwhile.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn rows(&self, numbers: &[i64]) -> Result<Vec<Option<RowText>>, IndexError> {
        self.run("reading rows", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT rows.thread, texts.preview FROM rows LEFT JOIN texts ON texts.row = rows.row WHERE rows.row = ?1",
            )?;
            numbers.iter().map(|n| statement.query_row([n], |r| Ok((r.get(0)?, r.get(1)?))).optional()).collect()
        })
    }

    /// Gives every preview that is kept, with the number of its row, and whether it is whole.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn previews(&self, mut sink: impl FnMut(i64, &str, Cut)) -> Result<(), IndexError> {
        self.run("reading previews", |connection| {
            let mut statement = connection
                .prepare_cached("SELECT row, preview, cut FROM texts WHERE preview IS NOT NULL ORDER BY row")?;
            let mut rows = statement.query([])?;
            while let Some(r) = rows.next()? {
                let text = r.get_ref(1)?.as_bytes()?;
                let cut = if r.get::<_, i64>(2)? == 0 { Cut::No } else { Cut::Yes };
                sink(r.get(0)?, &String::from_utf8_lossy(text), cut);
            }
            Ok(())
        })
    }

    /// Numbers of the rows that say something of one of these threads or rollouts.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn dependents(&self, on: &[ThreadId]) -> Result<Vec<i64>, IndexError> {
        self.run("looking for rows that depend on others", |connection| {
            let mut statement = connection.prepare_cached("SELECT row FROM depends WHERE on_thread = ?1")?;
            let mut found = Vec::new();
            for id in on {
                let rows = statement.query_map([id.as_bytes()], |r| r.get(0))?;
                found.extend(rows.collect::<Result<Vec<i64>, _>>()?);
            }
            Ok(found)
        })
    }

    /// Numbers of the rows whose threads changed a file that `wanted` takes.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn touching(&self, mut wanted: impl FnMut(&str) -> bool) -> Result<Vec<i64>, IndexError> {
        self.run("looking for threads that changed a file", |connection| {
            let mut statement = connection.prepare_cached("SELECT path, row FROM touched ORDER BY path")?;
            let mut rows = statement.query([])?;
            let (mut found, mut last) = (Vec::new(), None::<(String, bool)>);
            while let Some(r) = rows.next()? {
                let path = String::from_utf8_lossy(r.get_ref(0)?.as_bytes()?).into_owned();
                let fits = match &last {
                    Some((same, fits)) if *same == path => *fits,
                    _ => wanted(&path),
                };
                if fits {
                    found.push(r.get(1)?);
                }
                last = Some((path, fits));
            }
            Ok(found)
        })
    }

    /// Keeps threads and forgets others, in one transaction. `finished` also says that the whole home was read.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says; then nothing was changed.
    pub fn keep(&self, keep: &[Keep], forget: &[ThreadId], finished: Finished) -> Result<Changed, IndexError> {
        self.transact("keeping what lists need", |transaction| {
            let mut changed = Changed::default();
            let mut facets: HashMap<&str, i64> = HashMap::new();
            for k in keep {
                let facet = match facets.get(&*k.facet) {
                    Some(facet) => *facet,
                    None => *facets.entry(&k.facet).or_insert(facet(transaction, &k.facet)?),
                };
                changed += put(transaction, k, facet)?;
            }
            for thread in forget {
                changed.dropped += u64::from(drop_listed(transaction, *thread)?);
            }
            match finished {
                Finished::Yes => {
                    transaction.execute("DELETE FROM facets WHERE id NOT IN (SELECT facet FROM listed)", [])?;
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
            let mut statement = connection.prepare_cached("SELECT 1 FROM listed WHERE thread = ?1")?;
            let mut count = 0;
            for thread in threads {
                count += u64::from(statement.exists([thread.as_bytes()])?);
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
            for k in keep {
                match before(connection, k.listed.thread)? {
                    Some(b) => changed.fixed += u64::from(b.differs(k)),
                    None => changed.added += 1,
                }
            }
            Ok(changed)
        })
    }

    /// Forgets all that is kept for lists. What was decided and observed of threads stays.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says; then nothing was changed.
    pub fn forget_listing(&self) -> Result<(), IndexError> {
        self.transact("forgetting what lists need", |transaction| {
            transaction.execute_batch(
                "DELETE FROM listed; DELETE FROM rows; DELETE FROM texts; DELETE FROM depends; DELETE FROM touched; \
                 DELETE FROM facets; DELETE FROM folders; DELETE FROM marks WHERE mark = 'whole'",
            )
        })
    }

    /// The file that tells who writes what lists need: held by at most one process. `None` where the index has no file.
    #[must_use]
    pub fn writer_lock_path(&self) -> Option<PathBuf> {
        match self.place() {
            Placed::File { path, .. } => Some(path.with_extension("lock")),
            Placed::Memory { .. } => None,
        }
    }
}

/// Whether the whole home was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    /// It was.
    Yes,
    /// Not that we know of.
    NotYet,
}

pub(crate) fn mark(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection.prepare_cached("SELECT value FROM marks WHERE mark = ?1")?.query_row([name], |r| r.get(0)).optional()
}

pub(crate) fn set_mark(transaction: &Transaction<'_>, name: &str, value: &str) -> rusqlite::Result<()> {
    transaction.prepare_cached("INSERT OR REPLACE INTO marks VALUES (?1, ?2)")?.execute([name, value]).map(drop)
}

fn facet(transaction: &Transaction<'_>, text: &str) -> rusqlite::Result<i64> {
    let mut find = transaction.prepare_cached("SELECT id FROM facets WHERE facet = ?1")?;
    if let Some(id) = find.query_row([text], |r| r.get(0)).optional()? {
        return Ok(id);
    }
    transaction.prepare_cached("INSERT INTO facets (facet) VALUES (?1)")?.execute([text])?;
    Ok(transaction.last_insert_rowid())
}

/// What was said of a thread before.
struct Before {
    number: i64,
    known: Known,
    facet: String,
    row: String,
    preview: Option<String>,
}

impl Before {
    /// Whether something else was said. What was not read then was not said.
    fn differs(&self, k: &Keep) -> bool {
        self.known >= k.listed.known && (self.facet != k.facet || self.row != k.row || self.preview != k.preview)
    }
}

fn before(connection: &Connection, thread: ThreadId) -> rusqlite::Result<Option<Before>> {
    connection
        .prepare_cached(
            "SELECT listed.row, depth, facets.facet, rows.thread, preview FROM listed JOIN rows USING (row) \
             JOIN facets ON facets.id = listed.facet LEFT JOIN texts USING (row) WHERE listed.thread = ?1",
        )?
        .query_row([thread.as_bytes()], |r| {
            Ok(Before {
                number: r.get(0)?,
                known: Known::of(r.get(1)?),
                facet: r.get(2)?,
                row: r.get(3)?,
                preview: r.get(4)?,
            })
        })
        .optional()
}

fn put(transaction: &Transaction<'_>, k: &Keep, facet: i64) -> rusqlite::Result<Changed> {
    let l = &k.listed;
    let before = before(transaction, l.thread)?;
    let mut changed = Changed::default();
    let row = match &before {
        Some(b) => {
            changed.fixed = u64::from(b.differs(k));
            let row = params![b.number];
            transaction
                .prepare_cached("UPDATE rows SET thread = ?2 WHERE row = ?1")?
                .execute(params![b.number, k.row])?;
            transaction.prepare_cached("DELETE FROM depends WHERE row = ?1")?.execute(row)?;
            transaction.prepare_cached("DELETE FROM touched WHERE row = ?1")?.execute(row)?;
            b.number
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
    transaction
        .prepare_cached("INSERT OR REPLACE INTO listed VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?
        .execute(params![
            l.thread.as_bytes(),
            l.print.cast_signed(),
            l.known.number(),
            row,
            facet,
            l.updated_at,
            l.created_at,
            l.recency_at,
            l.mtime,
            l.parent.as_ref().map(ThreadId::as_bytes),
        ])?;
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

fn drop_listed(transaction: &Transaction<'_>, thread: ThreadId) -> rusqlite::Result<bool> {
    let row: Option<i64> = transaction
        .prepare_cached("SELECT row FROM listed WHERE thread = ?1")?
        .query_row([thread.as_bytes()], |r| r.get(0))
        .optional()?;
    let Some(row) = row else { return Ok(false) };
    for sql in [
        "DELETE FROM rows WHERE row = ?1",
        "DELETE FROM texts WHERE row = ?1",
        "DELETE FROM depends WHERE row = ?1",
        "DELETE FROM touched WHERE row = ?1",
    ] {
        transaction.prepare_cached(sql)?.execute([row])?;
    }
    transaction.prepare_cached("DELETE FROM listed WHERE thread = ?1")?.execute([thread.as_bytes()])?;
    Ok(true)
}
