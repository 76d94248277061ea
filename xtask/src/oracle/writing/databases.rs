//! What Codex's databases hold, and what changed in them between two looks.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use threadkeep_record::ThreadId;

/// All databases of a home, by file name.
#[derive(Debug, Default)]
pub struct Databases(BTreeMap<String, Database>);

#[derive(Debug, Default)]
struct Database {
    /// The SQL of everything in it.
    schema: BTreeSet<String>,
    /// By table and row, where a row is known by its `id`, else by all that it says.
    rows: BTreeMap<(String, String), BTreeMap<String, String>>,
    /// Tables of threads, their spawn edges, and what the schema ties to threads.
    tied: BTreeSet<String>,
}

impl Databases {
    /// Reads copies, which are made in `scratch`: looking must change nothing. An error if one is damaged.
    pub fn read(home: &Path, scratch: &Path) -> Result<Self> {
        if scratch.exists() {
            fs::remove_dir_all(scratch)?;
        }
        fs::create_dir_all(scratch)?;
        let mut names = Vec::new();
        for entry in fs::read_dir(home)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            // Without the shared memory SQLite reads the log from its beginning.
            if name.ends_with(".sqlite") || name.ends_with(".sqlite-wal") {
                fs::copy(home.join(&name), scratch.join(&name))?;
                names.extend(name.ends_with(".sqlite").then_some(name));
            }
        }
        let read = |name: String| {
            let database = read_one(&scratch.join(&name)).with_context(|| format!("database {name}"))?;
            Ok((name, database))
        };
        names.into_iter().map(read).collect::<Result<_>>().map(Self)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// What is different in `later`: `FILE TABLE.COLUMN`, `FILE TABLE row`, `FILE schema`, or `FILE`.
    pub fn changes(&self, later: &Self) -> BTreeSet<String> {
        self.differences(later).into_iter().map(|d| d.place).collect()
    }

    /// The same, row by row.
    pub fn differences(&self, later: &Self) -> Vec<Difference> {
        let mut found = Vec::new();
        let mut differs = |place: String, row: &str, how| found.push(Difference { place, row: row.to_owned(), how });
        let names: BTreeSet<&String> = self.0.keys().chain(later.0.keys()).collect();
        for name in names {
            let (Some(old), Some(new)) = (self.0.get(name), later.0.get(name)) else {
                let how = if self.0.contains_key(name) { How::Gone } else { How::Came };
                differs(name.clone(), "", how);
                continue;
            };
            if old.schema != new.schema {
                differs(format!("{name} schema"), "", How::Changed);
            }
            let keys: BTreeSet<_> = old.rows.keys().chain(new.rows.keys()).collect();
            for key in keys {
                let (table, row) = key;
                match (old.rows.get(key), new.rows.get(key)) {
                    (Some(old), Some(new)) => {
                        for (c, _) in new.iter().filter(|(c, v)| old.get(*c) != Some(v)) {
                            differs(format!("{name} {table}.{c}"), row, How::Changed);
                        }
                    }
                    (Some(_), None) => differs(format!("{name} {table} row"), row, How::Gone),
                    (None, _) => differs(format!("{name} {table} row"), row, How::Came),
                }
            }
        }
        found
    }

    /// The rows that go when a thread is deleted: its own, those that the schema ties to it, its spawn edges.
    pub fn rows_of(&self, id: ThreadId) -> Vec<Difference> {
        let id = format!("'{id}'");
        let mut found = Vec::new();
        for (name, database) in &self.0 {
            for ((table, row), values) in database.rows.iter().filter(|((table, _), _)| database.tied.contains(table)) {
                // A thread's own row is known by its id; another's may name it, too.
                if if table == "threads" { *row == id } else { values.values().any(|v| *v == id) } {
                    let place = format!("{name} {table} row");
                    found.push(Difference { place, row: row.clone(), how: How::Gone });
                }
            }
        }
        found
    }
}

/// A difference between two looks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// As [`Databases::changes`] tells it.
    pub place: String,
    /// The row's `id`, else all that it says.
    pub row: String,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    Changed,
    Gone,
    Came,
}

fn read_one(path: &Path) -> Result<Database> {
    let db = Connection::open(path)?;
    let verdict: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if verdict != "ok" {
        bail!("{verdict}");
    }
    let mut found = Database::default();
    let mut objects = db.prepare("SELECT type, name, sql FROM sqlite_schema")?;
    let objects: Vec<(String, String, Option<String>)> =
        objects.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?.collect::<Result<_, _>>()?;
    for (kind, name, sql) in objects {
        if kind == "table" {
            read_table(&db, &name, &mut found).with_context(|| format!("table {name}"))?;
            let ties = "SELECT count(*) FROM pragma_foreign_key_list(?1) \
                        WHERE \"table\" = 'threads' AND on_delete = 'CASCADE'";
            let ties: i64 = db.query_row(ties, [&name], |row| row.get(0))?;
            if ties > 0 || name == "threads" || name == "thread_spawn_edges" {
                found.tied.insert(name.clone());
            }
        }
        found.schema.insert(format!("{kind} {name} {}", sql.unwrap_or_default()));
    }
    Ok(found)
}

fn read_table(db: &Connection, name: &str, found: &mut Database) -> Result<()> {
    let mut select = db.prepare(&format!("SELECT * FROM \"{name}\""))?;
    let columns: Vec<String> = select.column_names().map(str::to_owned).collect();
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let row = columns.iter().enumerate().map(|(i, c)| Ok((c.clone(), text(row, i)?))).collect::<Result<_>>()?;
        let row: BTreeMap<String, String> = row;
        let key = row.get("id").cloned().unwrap_or_else(|| format!("{row:?}"));
        found.rows.insert((name.to_owned(), key), row);
    }
    Ok(())
}

fn text(row: &Row<'_>, column: usize) -> Result<String> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(i) => i.to_string(),
        ValueRef::Real(r) => r.to_string(),
        ValueRef::Text(t) => format!("'{}'", String::from_utf8_lossy(t)),
        ValueRef::Blob(b) => format!("{b:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_seen() {
        let (home, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let db = Connection::open(home.path().join("a.sqlite")).unwrap();
        db.execute_batch("PRAGMA journal_mode=wal; CREATE TABLE threads(id TEXT, title TEXT); CREATE TABLE n(v);")
            .unwrap();
        db.execute_batch("INSERT INTO threads VALUES ('1', 'one'), ('2', 'two'); INSERT INTO n VALUES (1);").unwrap();
        let read = || Databases::read(home.path(), scratch.path()).unwrap();
        let mut before = read();
        for (sql, change) in [
            ("SELECT 1", None),
            ("UPDATE threads SET title = 'three' WHERE id = '2'", Some("a.sqlite threads.title")),
            ("INSERT INTO threads VALUES ('3', 'x')", Some("a.sqlite threads row")),
            ("UPDATE n SET v = 2", Some("a.sqlite n row")),
            ("DELETE FROM n", Some("a.sqlite n row")),
            ("CREATE INDEX i ON n(v)", Some("a.sqlite schema")),
        ] {
            db.execute_batch(sql).unwrap();
            let after = read();
            assert_eq!(before.changes(&after).into_iter().collect::<Vec<_>>(), change.into_iter().collect::<Vec<_>>());
            before = after;
        }
    }

    #[test]
    fn the_rows_that_go_with_a_thread_are_known() {
        let (home, scratch) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let db = Connection::open(home.path().join("a.sqlite")).unwrap();
        let [a, b] = ["01a22c6c-8e85-7d30-9683-62f7285fc43c", "01a22c6c-9098-7ae3-8f62-627928199782"];
        db.execute_batch(&format!(
            "PRAGMA foreign_keys = on; CREATE TABLE threads(id TEXT PRIMARY KEY, source TEXT);
             CREATE TABLE tied(thread_id TEXT REFERENCES threads(id) ON DELETE CASCADE, v);
             CREATE TABLE loose(thread_id TEXT); CREATE TABLE thread_spawn_edges(parent TEXT, child TEXT);
             INSERT INTO threads VALUES ('{a}', 'x'), ('{b}', '{a}');
             INSERT INTO tied VALUES ('{a}', 1), ('{a}', 2), ('{b}', 3); INSERT INTO loose VALUES ('{a}');
             INSERT INTO thread_spawn_edges VALUES ('{a}', '{b}');"
        ))
        .unwrap();
        let before = Databases::read(home.path(), scratch.path()).unwrap();
        let a_id = ThreadId::parse(a).unwrap();
        let expected = before.rows_of(a_id);
        assert_eq!(expected.len(), 4, "{expected:?}");
        db.execute_batch(&format!("DELETE FROM threads WHERE id = '{a}'; DELETE FROM thread_spawn_edges;")).unwrap();
        let after = Databases::read(home.path(), scratch.path()).unwrap();
        assert_eq!(before.differences(&after), expected);
        db.execute_batch("DELETE FROM loose").unwrap();
        let after = Databases::read(home.path(), scratch.path()).unwrap();
        assert_ne!(before.differences(&after), expected);
    }
}
