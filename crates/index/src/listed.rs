//! What lists need of every thread: where it stands in each order, what filters ask, and the row that is shown.
//!
//! The row is the caller's text and is only kept here. `print` tells the files it was made from; whoever reads compares
//! it with the files as they are now, so that a row is never older than what it says.

mod block;
mod keep;

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;
use std::path::PathBuf;

use rusqlite::{Connection, OptionalExtension, Transaction};
use threadkeep_record::ThreadId;

use crate::place::Placed;
use crate::{Index, IndexError};

/// How much of a thread's files was read for its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Known {
    /// Heads and tails: all that the usual order and filters need.
    Ends,
    /// Every record.
    Whole,
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

/// Who is known, and who started whom: what the relations of a few threads need of all.
#[derive(Debug, Default)]
pub struct Outline<S> {
    /// The threads.
    pub ids: HashSet<ThreadId, S>,
    /// Those that another started, with that one.
    pub parents: Vec<(ThreadId, ThreadId)>,
    /// The whole home was read once.
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

/// A row and its preview.
pub type KeptText = (String, Option<String>);

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

/// Above so many threads, all that depend on any are gone through.
const MANY: usize = 500;

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
            let facets = facets(&transaction)?;
            let mut threads: Vec<Listed> = Vec::with_capacity(about(&transaction)?);
            block::each(&transaction, |l| threads.push(l))?;
            Ok(Listing { threads, facets, whole })
        })
    }

    /// Of all threads only who they are and who started them: a tenth of the memory, which costs more than the reading.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn outline<S: BuildHasher + Default>(&self) -> Result<Outline<S>, IndexError> {
        self.with("reading who is known", |connection, _| {
            let transaction = connection.transaction()?;
            let whole = mark(&transaction, WHOLE)?.is_some();
            let mut ids = HashSet::with_capacity_and_hasher(about(&transaction)?, S::default());
            let mut parents = Vec::new();
            block::each(&transaction, |l| {
                ids.insert(l.thread);
                parents.extend(l.parent.map(|parent| (l.thread, parent)));
            })?;
            Ok(Outline { ids, parents, whole })
        })
    }

    /// As [`listing`](Self::listing), of some threads, whose ids are in order.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn listing_of(&self, ids: &[ThreadId]) -> Result<Listing, IndexError> {
        self.with("reading what lists need of some threads", |connection, _| {
            let transaction = connection.transaction()?;
            let whole = mark(&transaction, WHOLE)?.is_some();
            let mut threads: Vec<Listed> = Vec::new();
            block::some(&transaction, ids, |l| threads.push(l))?;
            let wanted: HashSet<i64> = threads.iter().map(|l| l.facet).collect();
            let mut statement = transaction.prepare_cached("SELECT facet FROM facets WHERE id = ?1")?;
            let mut facets = HashMap::new();
            for id in wanted {
                let facet: Option<String> = statement.query_row([id], |r| r.get(0)).optional()?;
                facets.extend(facet.map(|facet| (id, facet)));
            }
            Ok(Listing { threads, facets, whole })
        })
    }

    /// Rows by number, with their previews, in the order asked for. `None` where a row was dropped meanwhile.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn rows(&self, numbers: &[i64]) -> Result<Vec<Option<KeptText>>, IndexError> {
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
            let mut found = Vec::new();
            if on.len() > MANY {
                // Few rows depend on others, so going through them is less than asking for each of very many.
                let on: HashSet<&[u8]> = on.iter().map(|id| id.as_bytes().as_slice()).collect();
                let mut statement = connection.prepare_cached("SELECT on_thread, row FROM depends")?;
                let mut rows = statement.query([])?;
                while let Some(r) = rows.next()? {
                    if r.get_ref(0)?.as_blob().is_ok_and(|id| on.contains(id)) {
                        found.push(r.get(1)?);
                    }
                }
                return Ok(found);
            }
            let mut statement = connection.prepare_cached("SELECT row FROM depends WHERE on_thread = ?1")?;
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

/// How many threads are kept, about. Memory that is not touched costs nothing, and a table that grows touches it twice.
fn about(connection: &Connection) -> rusqlite::Result<usize> {
    let blocks: u32 = connection.query_row("SELECT count(*) FROM listed", [], |r| r.get(0))?;
    Ok(usize::try_from(blocks).unwrap_or(0).saturating_mul(block::THREADS / 8 * 7).min(1 << 20))
}

fn facets(connection: &Connection) -> rusqlite::Result<HashMap<i64, String>> {
    let mut statement = connection.prepare_cached("SELECT id, facet FROM facets")?;
    let facets = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?;
    facets.collect()
}

pub(crate) fn mark(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection.prepare_cached("SELECT value FROM marks WHERE mark = ?1")?.query_row([name], |r| r.get(0)).optional()
}

pub(crate) fn set_mark(transaction: &Transaction<'_>, name: &str, value: &str) -> rusqlite::Result<()> {
    transaction.prepare_cached("INSERT OR REPLACE INTO marks VALUES (?1, ?2)")?.execute([name, value]).map(drop)
}
