//! A change of a person's that must show in Codex: exactly the columns concerned, of a row that is there, in one short
//! transaction; and nothing else (DESIGN, index). What Codex's database does not have is left to Codex's own repair.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, params};
use threadkeep_record::{Field, GitPatch, HistoryMode, ThreadId};
use threadkeep_rollout::locks::{self, Holder};

use crate::codex_state::CodexState;

/// What was done in Codex's database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CodexUpdate {
    /// The columns of the thread's row were set.
    Done(PathBuf),
    /// There is no database, or no row, or no such column.
    NothingThere(&'static str),
}

/// Codex's database cannot be written just now.
#[derive(Debug, thiserror::Error)]
#[error("cannot update Codex's database {}: {source}{}", path.display(), whom(.holder))]
pub struct CodexWriteError {
    /// The database.
    pub path: PathBuf,
    /// What SQLite said.
    pub source: rusqlite::Error,
    /// Who has it locked, as far as the system tells.
    pub holder: Option<Box<Holder>>,
}

impl CodexWriteError {
    pub(crate) fn new(path: &Path, source: rusqlite::Error) -> Self {
        let mut e = Self { path: path.to_owned(), source, holder: None };
        if e.is_busy() {
            let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
            e.holder = locks::holder_of(&[path, &beside("-shm"), &beside("-wal")]).map(Box::new);
        }
        e
    }

    /// Whether SQLite says that the file is damaged, or no database.
    pub(crate) fn is_damage(e: &rusqlite::Error) -> bool {
        is_damaged(e)
    }

    /// Whether what it says is damage.
    pub(crate) fn is_damaged(&self) -> bool {
        is_damaged(&self.source)
    }

    /// Whether SQLite would say the same again: damage, a rule of the schema, a statement that does not fit it. Another
    /// program's lock, a full disk, a failing one may pass.
    pub(crate) fn is_lasting(e: &rusqlite::Error) -> bool {
        is_damaged(e)
            || matches!(e.sqlite_error_code(), Some(ErrorCode::ConstraintViolation | ErrorCode::Unknown) | None)
    }

    /// Whether another program had it locked for longer than was to be waited.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.source.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
    }
}

fn is_damaged(e: &rusqlite::Error) -> bool {
    matches!(e.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

fn whom(holder: &Option<Box<Holder>>) -> String {
    holder.as_ref().map(|h| format!(" (held by {h})")).unwrap_or_default()
}

/// Where to look, and how long to wait for another program.
#[derive(Debug, Clone, Copy)]
pub struct CodexDb<'a> {
    /// The home.
    pub home: &'a Path,
    /// Where the databases are, if not in their usual places.
    pub sqlite_home: Option<&'a Path>,
    /// How long to wait for a lock.
    pub patience: Duration,
}

/// Chooses a statement by which columns there are.
type Choose<'c, 's> = &'c dyn Fn(&dyn Fn(&str) -> bool) -> Option<&'s str>;

impl CodexDb<'_> {
    /// Which column of which database holds a thread's name, if it has a row there.
    #[must_use]
    pub fn name_column(&self, id: ThreadId, mode: HistoryMode) -> Option<(PathBuf, &'static str)> {
        let mut found = CodexState::open(self.home, self.sqlite_home);
        let columns = found.columns().to_vec();
        let has = |column: &str| columns.iter().any(|c| c == column);
        let column = match mode {
            HistoryMode::Paginated if has("name") => "name",
            _ if has("title") && has("first_user_message") => "title",
            _ => return None,
        };
        let there = found.rows(&[id]).contains_key(&id);
        found.path.clone().filter(|_| there).map(|path| (path, column))
    }

    /// Sets a thread's name as the release that made the database keeps it, and then runs `then`, which writes the
    /// name elsewhere: if that fails the database stays as it was.
    pub fn set_name<E>(
        &self,
        id: ThreadId,
        mode: HistoryMode,
        name: Option<&str>,
        then: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<CodexUpdate, E>, CodexWriteError> {
        let statement =
            |has: &dyn Fn(&str) -> bool| match (mode, has("name"), has("title") && has("first_user_message")) {
                (HistoryMode::Paginated, true, _) => Some("update threads set name = ?2 where id = ?1"),
                // Without a name the title of a legacy thread is its first message. A name that stands beside it
                // must not go on saying something else.
                (_, true, true) => Some(
                    "update threads set title = coalesce(?2, first_user_message), \
                     name = case when name is null then null else ?2 end where id = ?1",
                ),
                (_, false, true) => Some("update threads set title = coalesce(?2, first_user_message) where id = ?1"),
                _ => None,
            };
        self.update(&statement, |transaction, sql| transaction.execute(sql, params![id.to_string(), name]), then)
    }

    /// The database that has a row of a thread, and where that says its rollout is.
    #[must_use]
    pub fn rollout_path(&self, id: ThreadId) -> Option<(PathBuf, String)> {
        let mut found = CodexState::open(self.home, self.sqlite_home);
        let row = found.rows(&[id]).remove(&id)?;
        Some((found.path.clone()?, row.rollout_path))
    }

    /// Sets the rollout that a thread goes on in, once `then` has made it: if that fails the database stays as it was.
    pub fn set_rollout_path<E>(
        &self,
        id: ThreadId,
        path: &str,
        then: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<CodexUpdate, E>, CodexWriteError> {
        let statement = |has: &dyn Fn(&str) -> bool| {
            has("rollout_path").then_some("update threads set rollout_path = ?2 where id = ?1")
        };
        self.update(&statement, |transaction, sql| transaction.execute(sql, params![id.to_string(), path]), then)
    }

    /// Sets git facts of a thread.
    pub fn set_git(&self, id: ThreadId, patch: &GitPatch) -> Result<CodexUpdate, CodexWriteError> {
        let facts = [("git_sha", &patch.sha), ("git_branch", &patch.branch), ("git_origin_url", &patch.origin_url)];
        let changed: Vec<_> = facts.iter().filter(|(_, f)| !f.is_keep()).collect();
        let sets: Vec<String> = changed.iter().enumerate().map(|(i, (c, _))| format!("{c} = ?{}", i + 2)).collect();
        let sql = format!("update threads set {} where id = ?1", sets.join(", "));
        let sql = sql.as_str();
        let statement = |has: &dyn Fn(&str) -> bool| changed.iter().all(|(c, _)| has(c)).then_some(sql);
        let mut values = vec![Some(id.to_string())];
        values.extend(changed.iter().map(|(_, f)| match f {
            Field::Set(text) => Some(text.clone()),
            Field::Clear | Field::Keep => None,
        }));
        let run = |transaction: &rusqlite::Transaction<'_>, sql: &str| {
            transaction.execute(sql, rusqlite::params_from_iter(values.iter()))
        };
        self.update(&statement, run, || Ok::<(), std::convert::Infallible>(())).map(|r| match r {
            Ok(update) => update,
            Err(never) => match never {},
        })
    }

    fn update<'s, E>(
        &self,
        statement: Choose<'_, 's>,
        run: impl FnOnce(&rusqlite::Transaction<'_>, &str) -> rusqlite::Result<usize>,
        then: impl FnOnce() -> Result<(), E>,
    ) -> Result<Result<CodexUpdate, E>, CodexWriteError> {
        // Found and checked as for reading; that connection is closed before this one writes.
        let found = CodexState::open(self.home, self.sqlite_home);
        let columns = found.columns().to_vec();
        let Some(path) = found.path.clone() else {
            return Ok(then().map(|()| CodexUpdate::NothingThere("no database")));
        };
        drop(found);
        let has = |column: &str| columns.iter().any(|c| c == column);
        let Some(sql) = statement(&has) else {
            return Ok(then().map(|()| CodexUpdate::NothingThere("no such column")));
        };
        let failed = |source| CodexWriteError::new(&path, source);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&path, flags).map_err(failed)?;
        connection.busy_timeout(self.patience).map_err(failed)?;
        // Readers of a database with a rollback journal would let the change begin and not end, when the name already
        // stands elsewhere. With a write-ahead log this is an ordinary writer, whom readers do not mind.
        let begun = connection.transaction_with_behavior(TransactionBehavior::Exclusive);
        let ran = begun.and_then(|transaction| Ok((run(&transaction, sql)?, transaction)));
        let (rows, transaction) = match ran {
            // Codex puts such a database aside and makes another from the files; until then it holds nothing.
            Err(e) if is_damaged(&e) => return Ok(then().map(|()| CodexUpdate::NothingThere("a damaged database"))),
            ran => ran.map_err(failed)?,
        };
        if let Err(e) = then() {
            // Dropping the transaction takes the change back.
            return Ok(Err(e));
        }
        transaction.commit().map_err(failed)?;
        Ok(Ok(if rows == 0 { CodexUpdate::NothingThere("no row of the thread") } else { CodexUpdate::Done(path) }))
    }
}
