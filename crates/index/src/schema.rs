//! The tables of the index, their version, and what is done with a file of each version.

use std::fmt;

use rusqlite::{Connection, Transaction};

/// The version of the index's tables, kept as SQLite's `user_version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SchemaVersion(pub i32);

impl SchemaVersion {
    /// What this release writes.
    pub const CURRENT: Self = Self(3);
}

impl fmt::Display for SchemaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// SQLite's `application_id` of our files: `tkIX`.
pub(crate) const APPLICATION_ID: i32 = 0x746b_4958;

/// What a file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub application_id: i32,
    pub version: SchemaVersion,
    pub contents: Contents,
}

/// Whether a database has anything in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contents {
    Nothing,
    Tables,
}

/// What is done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// There is nothing in it yet: the tables are made.
    Create,
    /// It is used as it is.
    Use,
    /// An older release of ours made it: tables that are others now, or came since, are made anew. What was decided stays.
    Extend,
    /// It is ours and of no version that ever was: it is emptied and made anew.
    Rebuild,
    /// A newer release made it: it is left alone.
    LeaveNewer,
    /// It is somebody else's: it is left alone.
    LeaveForeign,
}

impl Mark {
    /// The matrix of old and new.
    pub fn step(self) -> Step {
        match (self.application_id, self.contents, self.version) {
            (APPLICATION_ID, _, v) if v > SchemaVersion::CURRENT => Step::LeaveNewer,
            (APPLICATION_ID, Contents::Tables, SchemaVersion::CURRENT) => Step::Use,
            (APPLICATION_ID, Contents::Tables, SchemaVersion(1 | 2)) => Step::Extend,
            (APPLICATION_ID, _, _) => Step::Rebuild,
            (0, Contents::Nothing, SchemaVersion(0)) => Step::Create,
            (_, _, _) => Step::LeaveForeign,
        }
    }

    /// Reads it through SQLite, so with all that is pending in a journal.
    pub fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let number = |name: &str| connection.pragma_query_value(None, name, |r| r.get(0));
        let tables: bool =
            connection.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |r| r.get::<_, bool>(0))?;
        Ok(Self {
            application_id: number("application_id")?,
            version: SchemaVersion(number("user_version")?),
            contents: if tables { Contents::Tables } else { Contents::Nothing },
        })
    }
}

/// Every object of the current version, by name, with the version since which it is as it is. All that are not of the
/// first are hints, which come back from the files. Ids are their 16 bytes, times
/// milliseconds, structured values JSON text, paths relative to the home where they are in it. `*_decided` is 1 where a
/// person's or program's patch named the column, so that nothing observed overwrites it (`thread-store.md` 6.8).
/// `docs/FORMAT.md` says what each table holds.
const OBJECTS: [(i32, &str, &str); 16] = [
    (
        3,
        "depends",
        "CREATE TABLE depends (row INTEGER NOT NULL, on_thread BLOB NOT NULL, PRIMARY KEY (on_thread, row)) STRICT, WITHOUT ROWID",
    ),
    (3, "depends_by_row", "CREATE INDEX depends_by_row ON depends (row)"),
    (3, "facets", "CREATE TABLE facets (id INTEGER PRIMARY KEY, facet TEXT NOT NULL UNIQUE) STRICT"),
    (
        3,
        "folders",
        "CREATE TABLE folders (path BLOB NOT NULL PRIMARY KEY, dev INTEGER NOT NULL, ino INTEGER NOT NULL, \
         mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL, hash INTEGER NOT NULL, files BLOB NOT NULL, folders BLOB NOT NULL) STRICT",
    ),
    (3, "listed", "CREATE TABLE listed (first BLOB NOT NULL PRIMARY KEY, threads BLOB NOT NULL) STRICT"),
    (3, "marks", "CREATE TABLE marks (mark TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID"),
    (3, "rows", "CREATE TABLE rows (row INTEGER PRIMARY KEY, thread TEXT NOT NULL) STRICT"),
    (
        1,
        "spawn_edges",
        "CREATE TABLE spawn_edges (child BLOB NOT NULL PRIMARY KEY, parent BLOB NOT NULL, status TEXT NOT NULL CHECK (status IN ('open', 'closed'))) STRICT, \
         WITHOUT ROWID",
    ),
    (1, "spawn_edges_by_parent", "CREATE INDEX spawn_edges_by_parent ON spawn_edges (parent, status, child)"),
    (3, "text_blocks", "CREATE TABLE text_blocks (block INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT"),
    (
        3,
        "text_files",
        "CREATE TABLE text_files (block INTEGER PRIMARY KEY, count INTEGER NOT NULL, files BLOB NOT NULL) STRICT",
    ),
    (
        3,
        "text_segments",
        "CREATE TABLE text_segments (segment INTEGER PRIMARY KEY, units INTEGER NOT NULL, bytes INTEGER NOT NULL) STRICT",
    ),
    (3, "texts", "CREATE TABLE texts (row INTEGER PRIMARY KEY, preview TEXT, cut INTEGER NOT NULL) STRICT"),
    (
        1,
        "threads",
        "CREATE TABLE threads (id BLOB NOT NULL PRIMARY KEY, name TEXT, name_decided INTEGER NOT NULL DEFAULT 0, \
         reasoning_effort TEXT, thread_source TEXT, agent_nickname TEXT, agent_role TEXT, agent_path TEXT, \
         rollout_path TEXT, preview TEXT, title TEXT, model_provider TEXT, model TEXT, created_at INTEGER, \
         updated_at INTEGER, source TEXT, cwd TEXT, cli_version TEXT, approval_mode TEXT, permission_profile TEXT, \
         token_usage TEXT, first_user_message TEXT, memory_mode TEXT, memory_mode_decided INTEGER NOT NULL DEFAULT 0, \
         git_sha TEXT, git_branch TEXT, git_origin_url TEXT, recency_at INTEGER) STRICT",
    ),
    (
        3,
        "touched",
        "CREATE TABLE touched (row INTEGER NOT NULL, path TEXT NOT NULL, PRIMARY KEY (path, row)) STRICT, WITHOUT ROWID",
    ),
    (3, "touched_by_row", "CREATE INDEX touched_by_row ON touched (row)"),
];

/// Makes the tables of the current version in an empty database, or in place of those of an older one.
pub(crate) fn make(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let old: Vec<(String, String)> = transaction
        .prepare("SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")?
        .query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (kind, name) in old {
        transaction.execute_batch(&format!("DROP {kind} \"{}\"", name.replace('"', "\"\"")))?;
    }
    for (_, _, sql) in OBJECTS {
        transaction.execute_batch(sql)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", SchemaVersion::CURRENT.0)
}

/// Makes the tables that are others since `version`, or came after it. Those that a later version gave up would go here,
/// too; so far none was.
pub(crate) fn extend(transaction: &Transaction<'_>, version: SchemaVersion) -> rusqlite::Result<()> {
    let newer = || OBJECTS.iter().filter(|(since, ..)| *since > version.0);
    for (_, name, sql) in newer() {
        if sql.starts_with("CREATE TABLE") {
            // With it goes what is said of it elsewhere: its indexes.
            transaction.execute_batch(&format!("DROP TABLE IF EXISTS {name}"))?;
        }
    }
    for (_, _, sql) in newer() {
        transaction.execute_batch(sql)?;
    }
    transaction.pragma_update(None, "user_version", SchemaVersion::CURRENT.0)
}

/// What differs from the current version's tables, in a file that says it has them.
pub(crate) fn difference(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let mut statement =
        connection.prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")?;
    let found: Vec<(String, String)> =
        statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?)))?.collect::<rusqlite::Result<_>>()?;
    let same = found.len() == OBJECTS.len()
        && found.iter().zip(OBJECTS).all(|(f, (_, name, sql))| (&*f.0, &*f.1) == (name, sql));
    Ok((!same).then(|| "its tables are not those of its version".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_has_its_step() {
        use Contents::{Nothing, Tables};
        let current = SchemaVersion::CURRENT.0;
        for (application_id, version, contents, want) in [
            (0, 0, Nothing, Step::Create),
            (APPLICATION_ID, current, Tables, Step::Use),
            (APPLICATION_ID, current, Nothing, Step::Rebuild),
            (APPLICATION_ID, 0, Nothing, Step::Rebuild),
            (APPLICATION_ID, 1, Tables, Step::Extend),
            (APPLICATION_ID, 2, Tables, Step::Extend),
            (APPLICATION_ID, 1, Nothing, Step::Rebuild),
            (APPLICATION_ID, -7, Tables, Step::Rebuild),
            (APPLICATION_ID, current + 1, Tables, Step::LeaveNewer),
            (APPLICATION_ID, i32::MAX, Nothing, Step::LeaveNewer),
            (0, 0, Tables, Step::LeaveForeign),
            (0, current, Nothing, Step::LeaveForeign),
            (7, current, Tables, Step::LeaveForeign),
        ] {
            let mark = Mark { application_id, version: SchemaVersion(version), contents };
            assert_eq!(mark.step(), want, "{mark:?}");
        }
    }

    #[test]
    fn tables_made_are_the_tables_looked_for() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert_eq!(Mark::read(&connection).unwrap().step(), Step::Create);
        connection.execute_batch("CREATE TABLE old (a); CREATE VIEW older AS SELECT a FROM old").unwrap();
        assert!(difference(&connection).unwrap().is_some());
        let transaction = connection.transaction().unwrap();
        make(&transaction).unwrap();
        transaction.commit().unwrap();
        assert_eq!(Mark::read(&connection).unwrap().step(), Step::Use);
        assert_eq!(difference(&connection).unwrap(), None);
    }
}
