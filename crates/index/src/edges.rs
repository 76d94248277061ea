//! Spawn edges: which thread spawned which (`thread-store.md` 6.11).

use rusqlite::{Connection, params};
use threadkeep_record::ThreadId;

use crate::{Index, IndexError};

/// Whether a spawned thread still counts as running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EdgeStatus {
    /// It does.
    Open,
    /// It does not.
    Closed,
}

impl EdgeStatus {
    /// The word that is stored.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
    }
}

/// A thread that another spawned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpawnEdge {
    /// The thread that spawned.
    pub parent: ThreadId,
    /// The thread that was spawned.
    pub child: ThreadId,
    /// Its status.
    pub status: EdgeStatus,
}

/// Children, by id.
const CHILDREN: &str = "SELECT parent, child, status FROM spawn_edges \
     WHERE parent = ?1 AND (?2 IS NULL OR status = ?2) ORDER BY child";

/// Descendants, by depth and then by id. A child has one parent, so each is reached once, and the only cycle that can be
/// reached is one through the ancestor itself: leaving that out ends every cycle.
const DESCENDANTS: &str = "WITH RECURSIVE below (parent, child, status, depth) AS ( \
     SELECT parent, child, status, 1 FROM spawn_edges \
       WHERE parent = ?1 AND child <> ?1 AND (?2 IS NULL OR status = ?2) \
     UNION ALL \
     SELECT e.parent, e.child, e.status, below.depth + 1 FROM below JOIN spawn_edges AS e ON e.parent = below.child \
       WHERE e.child <> ?1 AND (?2 IS NULL OR e.status = ?2)) \
     SELECT parent, child, status FROM below ORDER BY depth, child";

impl Index {
    /// Sets who spawned a thread. A thread has one parent; another replaces it, with its status.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn upsert_edge(&self, parent: ThreadId, child: ThreadId, status: EdgeStatus) -> Result<(), IndexError> {
        self.run("keeping a spawn edge", |connection| {
            connection
                .prepare_cached(
                    "INSERT INTO spawn_edges (child, parent, status) VALUES (?1, ?2, ?3) \
                     ON CONFLICT (child) DO UPDATE SET parent = excluded.parent, status = excluded.status",
                )?
                .execute(params![child.as_bytes(), parent.as_bytes(), status.as_str()])
                .map(drop)
        })
    }

    /// Sets the status of a spawned thread. For one that is not known this does nothing.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn set_edge_status(&self, child: ThreadId, status: EdgeStatus) -> Result<(), IndexError> {
        self.run("changing a spawn edge", |connection| {
            connection
                .prepare_cached("UPDATE spawn_edges SET status = ?2 WHERE child = ?1")?
                .execute(params![child.as_bytes(), status.as_str()])
                .map(drop)
        })
    }

    /// Every edge, by child.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn all_edges(&self) -> Result<Vec<SpawnEdge>, IndexError> {
        self.run("listing all spawned threads", |connection| {
            let mut statement =
                connection.prepare_cached("SELECT parent, child, status FROM spawn_edges ORDER BY child")?;
            let rows = statement.query_map([], read_edge)?;
            rows.collect()
        })
    }

    /// The threads that a thread spawned, by id; with a status, only those that have it.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn children(&self, parent: ThreadId, status: Option<EdgeStatus>) -> Result<Vec<SpawnEdge>, IndexError> {
        self.run("listing spawned threads", |connection| edges(connection, CHILDREN, parent, status))
    }

    /// All threads below a thread, breadth first by depth and then by id, itself left out. With a status, only edges that
    /// have it are followed: another one hides what is below it.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn descendants(&self, ancestor: ThreadId, status: Option<EdgeStatus>) -> Result<Vec<SpawnEdge>, IndexError> {
        self.run("listing spawned threads", |connection| edges(connection, DESCENDANTS, ancestor, status))
    }
}

fn edges(
    connection: &Connection,
    sql: &str,
    of: ThreadId,
    status: Option<EdgeStatus>,
) -> rusqlite::Result<Vec<SpawnEdge>> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![of.as_bytes(), status.map(EdgeStatus::as_str)], read_edge)?;
    rows.collect()
}

fn read_edge(row: &rusqlite::Row<'_>) -> rusqlite::Result<SpawnEdge> {
    Ok(SpawnEdge {
        parent: ThreadId::from_bytes(row.get(0)?),
        child: ThreadId::from_bytes(row.get(1)?),
        status: if row.get_ref(2)?.as_str()? == EdgeStatus::Open.as_str() {
            EdgeStatus::Open
        } else {
            EdgeStatus::Closed
        },
    })
}
