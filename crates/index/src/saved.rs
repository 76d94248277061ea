//! Rows of any table as they can be kept elsewhere and put back: every column by name, every value exactly.

use std::collections::BTreeMap;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, ToSql, params_from_iter};
use serde::{Deserialize, Serialize};
use threadkeep_record::ThreadId;

use crate::{Index, IndexError};

/// A value of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SavedValue {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number, by its bits: its text would not bring back every one.
    Real(u64),
    /// A text.
    Text(String),
    /// Bytes as hexadecimal digits.
    Blob(String),
    /// A text that is not UTF-8, as hexadecimal digits.
    TextBytes(String),
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedRow {
    /// The table.
    pub table: String,
    /// Its columns.
    pub columns: BTreeMap<String, SavedValue>,
}

impl From<ValueRef<'_>> for SavedValue {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(n) => Self::Integer(n),
            ValueRef::Real(n) => Self::Real(n.to_bits()),
            ValueRef::Text(t) => match std::str::from_utf8(t) {
                Ok(text) => Self::Text(text.to_owned()),
                Err(_) => Self::TextBytes(hex(t)),
            },
            ValueRef::Blob(b) => Self::Blob(hex(b)),
        }
    }
}

impl ToSql for SavedValue {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        use rusqlite::types::ToSqlOutput::{Borrowed, Owned};
        Ok(match self {
            Self::Null => Owned(Value::Null),
            Self::Integer(n) => Owned(Value::Integer(*n)),
            Self::Real(bits) => Owned(Value::Real(f64::from_bits(*bits))),
            Self::Text(text) => Borrowed(ValueRef::Text(text.as_bytes())),
            // A text that is not UTF-8 cannot be owned as one; the same bytes come back, of another kind.
            Self::Blob(digits) | Self::TextBytes(digits) => Owned(Value::Blob(bytes(digits))),
        })
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |n: u8| char::from(DIGITS[usize::from(n)]);
    bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    let value = |d: &u8| char::from(*d).to_digit(16).and_then(|d| u8::try_from(d).ok()).unwrap_or(0);
    digits.as_bytes().chunks(2).map(|pair| pair.iter().fold(0, |n, d| (n << 4) | value(d))).collect()
}

/// A name inside a statement.
#[must_use]
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The columns of a table, in order; none where there is no such table. Those that SQLite computes are left out.
///
/// # Errors
///
/// As SQLite says.
pub fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached("SELECT name FROM pragma_table_info(?1)")?;
    let names = statement.query_map([table], |row| row.get(0))?;
    names.collect()
}

/// The rows of a table whose column has a value.
///
/// # Errors
///
/// As SQLite says.
pub fn rows(connection: &Connection, table: &str, column: &str, value: &dyn ToSql) -> rusqlite::Result<Vec<SavedRow>> {
    let names = columns(connection, table)?;
    if !names.iter().any(|n| n == column) {
        return Ok(vec![]);
    }
    let list: Vec<String> = names.iter().map(|n| quoted(n)).collect();
    let sql = format!("SELECT {} FROM {} WHERE {} = ?1", list.join(", "), quoted(table), quoted(column));
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_map([value], |row| {
        let value = |(i, name): (usize, &String)| Ok((name.clone(), row.get_ref(i)?.into()));
        let columns = names.iter().enumerate().map(value).collect::<rusqlite::Result<_>>()?;
        Ok(SavedRow { table: table.to_owned(), columns })
    })?;
    found.collect()
}

/// Puts a row back, unless one with its key is there. Columns that the table has no more are left out; those that are new
/// take their defaults. Triggers that fill columns in when a row is inserted do not change it. Tells whether it was put.
///
/// # Errors
///
/// As SQLite says.
pub fn put(connection: &Connection, row: &SavedRow, key: &[&str]) -> rusqlite::Result<bool> {
    let there = columns(connection, &row.table)?;
    let mine: Vec<(&String, &SavedValue)> = row.columns.iter().filter(|(name, _)| there.contains(name)).collect();
    if mine.is_empty() {
        return Ok(false);
    }
    let names: Vec<String> = mine.iter().map(|(name, _)| quoted(name)).collect();
    let marks: Vec<String> = (1..=mine.len()).map(|n| format!("?{n}")).collect();
    let table = quoted(&row.table);
    let sql = format!("INSERT OR IGNORE INTO {table} ({}) VALUES ({})", names.join(", "), marks.join(", "));
    let values = || params_from_iter(mine.iter().map(|(_, value)| *value));
    if connection.prepare_cached(&sql)?.execute(values())? == 0 {
        return Ok(false);
    }
    let sets: Vec<String> = names.iter().zip(&marks).map(|(name, mark)| format!("{name} = {mark}")).collect();
    let keyed = |(i, (name, _)): (usize, &(&String, &SavedValue))| {
        key.contains(&name.as_str()).then(|| format!("{} = ?{}", quoted(name), i + 1))
    };
    let wheres: Vec<String> = mine.iter().enumerate().filter_map(keyed).collect();
    if !wheres.is_empty() {
        let sql = format!("UPDATE {table} SET {} WHERE {}", sets.join(", "), wheres.join(" AND "));
        connection.prepare_cached(&sql)?.execute(values())?;
    }
    Ok(true)
}

impl Index {
    /// What the index alone keeps of a thread: its metadata, and its spawn edges in both directions.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says.
    pub fn saved(&self, thread: ThreadId) -> Result<Vec<SavedRow>, IndexError> {
        self.run("reading what is kept of a thread", |connection| {
            let id: &[u8] = thread.as_bytes();
            let mut all = rows(connection, "threads", "id", &id)?;
            all.extend(rows(connection, "spawn_edges", "child", &id)?);
            all.extend(rows(connection, "spawn_edges", "parent", &id)?);
            Ok(all)
        })
    }

    /// Puts back what [`Index::saved`] told; rows that are there already stay as they are.
    ///
    /// # Errors
    ///
    /// As [`IndexError`] says; then nothing is put.
    pub fn put_saved(&self, saved: &[SavedRow]) -> Result<(), IndexError> {
        self.transact("putting back what is kept of a thread", |transaction| {
            for row in saved.iter().filter(|row| matches!(row.table.as_str(), "threads" | "spawn_edges")) {
                put(transaction, row, if row.table == "threads" { &["id"] } else { &["child"] })?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_value_comes_back_as_it_was() {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE t (id TEXT PRIMARY KEY, a, \"odd \"\"name\", c REAL);
                 CREATE TRIGGER fill AFTER INSERT ON t WHEN NEW.a IS NULL BEGIN UPDATE t SET a = 7 WHERE id = NEW.id; END;
                 INSERT INTO t VALUES ('x', 1, x'00ff', 0.1), ('y', -9223372036854775808, 'é', 1e308);
                 INSERT INTO t VALUES ('z', 5, NULL, NULL); UPDATE t SET a = NULL WHERE id = 'z';",
            )
            .unwrap();
        let all = |id: &str| rows(&connection, "t", "id", &id).unwrap();
        for id in ["x", "y", "z"] {
            let before = all(id);
            let text = serde_json::to_string(&before).unwrap();
            connection.execute("DELETE FROM t WHERE id = ?1", [id]).unwrap();
            for row in serde_json::from_str::<Vec<SavedRow>>(&text).unwrap() {
                assert!(put(&connection, &row, &["id"]).unwrap());
                assert!(!put(&connection, &row, &["id"]).unwrap(), "a row that is there stays");
            }
            assert_eq!(all(id), before);
        }
        assert_eq!(rows(&connection, "nowhere", "id", &"x").unwrap(), vec![]);
    }
}
