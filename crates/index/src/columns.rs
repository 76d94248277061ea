//! A patch as columns of the `threads` table, and a row of it as metadata.

use std::fmt::Write;

use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Row, params_from_iter};
use threadkeep_record::{Field, GitPatch, MetadataPatch, ThreadId, ThreadMetadata, UtcMillis};

use crate::paths::Paths;

/// Who says a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// A person or program: it holds.
    Decided,
    /// The records: a name or memory mode that was decided stays (`thread-store.md` 6.8).
    Observed,
}

/// How a column takes its new value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// As it is.
    Plainly,
    /// Unless somebody decided otherwise.
    IfNotDecided,
    /// Moved forwards: the later of what is asked for and just behind what is stored (`thread-store.md` 5.4).
    Forwards,
}

type Change<'p> = (&'static str, Takes, ToSqlOutput<'p>);

/// The columns that a patch names, with their new values.
fn changes<'p>(patch: &'p MetadataPatch, paths: &Paths) -> Vec<Change<'p>> {
    // Taken apart by name, so that a new field cannot be forgotten.
    let MetadataPatch {
        name,
        reasoning_effort,
        thread_source,
        agent_nickname,
        agent_role,
        agent_path,
        rollout_path,
        preview,
        title,
        model_provider,
        model,
        created_at,
        updated_at,
        source,
        cwd,
        cli_version,
        approval_mode,
        permission_profile,
        token_usage,
        first_user_message,
        memory_mode,
        git: GitPatch { sha, branch, origin_url },
        advance_recency_at,
    } = patch;
    let mut all: Vec<Change<'p>> = Vec::new();
    let clearable = [
        ("name", Takes::IfNotDecided, name),
        ("reasoning_effort", Takes::Plainly, reasoning_effort),
        ("thread_source", Takes::Plainly, thread_source),
        ("agent_nickname", Takes::Plainly, agent_nickname),
        ("agent_role", Takes::Plainly, agent_role),
        ("agent_path", Takes::Plainly, agent_path),
        ("git_sha", Takes::Plainly, sha),
        ("git_branch", Takes::Plainly, branch),
        ("git_origin_url", Takes::Plainly, origin_url),
    ];
    for (column, takes, field) in clearable {
        match field {
            Field::Keep => {}
            Field::Clear => all.push((column, takes, ToSqlOutput::Owned(Value::Null))),
            Field::Set(value) => all.push((column, takes, text(value))),
        }
    }
    let texts = [
        ("preview", Takes::Plainly, preview),
        ("title", Takes::Plainly, title),
        ("model_provider", Takes::Plainly, model_provider),
        ("model", Takes::Plainly, model),
        ("cwd", Takes::Plainly, cwd),
        ("cli_version", Takes::Plainly, cli_version),
        ("first_user_message", Takes::Plainly, first_user_message),
        ("memory_mode", Takes::IfNotDecided, memory_mode),
    ];
    all.extend(texts.into_iter().filter_map(|(c, takes, t)| Some((c, takes, text(t.as_deref()?)))));
    let owned = |value: String| ToSqlOutput::Owned(Value::Text(value));
    all.extend(rollout_path.as_deref().map(|p| ("rollout_path", Takes::Plainly, owned(paths.kept(p)))));
    let values = [("source", source), ("approval_mode", approval_mode), ("permission_profile", permission_profile)];
    all.extend(values.into_iter().filter_map(|(c, v)| Some((c, Takes::Plainly, owned(v.as_ref()?.to_string())))));
    all.extend(token_usage.map(|t| ("token_usage", Takes::Plainly, owned(serde_json::json!(t).to_string()))));
    let times = [
        ("created_at", Takes::Plainly, created_at),
        ("updated_at", Takes::Plainly, updated_at),
        ("recency_at", Takes::Forwards, advance_recency_at),
    ];
    all.extend(
        times.into_iter().filter_map(|(c, takes, t)| Some((c, takes, ToSqlOutput::Owned(Value::Integer((*t)?.0))))),
    );
    all
}

fn text(value: &str) -> ToSqlOutput<'_> {
    ToSqlOutput::Borrowed(ValueRef::Text(value.as_bytes()))
}

/// Applies a patch in one statement, which makes the row where there is none. A patch that names nothing makes none.
pub(crate) fn upsert(
    connection: &Connection,
    thread: ThreadId,
    patch: &MetadataPatch,
    said: Said,
    paths: &Paths,
) -> rusqlite::Result<()> {
    let changes = changes(patch, paths);
    if changes.is_empty() {
        return Ok(());
    }
    let (mut columns, mut marks, mut sets) = (String::from("id"), String::from("?1"), String::new());
    for (i, (column, takes, _)) in changes.iter().enumerate() {
        // Writing to a `String` cannot fail.
        let _ = write!(columns, ", {column}");
        let _ = write!(marks, ", ?{}", i + 2);
        let comma = if i == 0 { "" } else { ", " };
        let _ = match (takes, said) {
            (Takes::Plainly, _) => write!(sets, "{comma}{column} = excluded.{column}"),
            (Takes::IfNotDecided, Said::Decided) => {
                let _ = write!(columns, ", {column}_decided");
                marks.push_str(", 1");
                write!(sets, "{comma}{column} = excluded.{column}, {column}_decided = 1")
            }
            (Takes::IfNotDecided, Said::Observed) => write!(
                sets,
                "{comma}{column} = CASE threads.{column}_decided WHEN 0 THEN excluded.{column} ELSE threads.{column} END"
            ),
            // The last instant there is has none behind it; `+` would make it a real number.
            (Takes::Forwards, _) => write!(
                sets,
                "{comma}{column} = max(excluded.{column}, coalesce(min(threads.{column}, 9223372036854775806) + 1, \
                 excluded.{column}))"
            ),
        };
    }
    let sql = format!("INSERT INTO threads ({columns}) VALUES ({marks}) ON CONFLICT (id) DO UPDATE SET {sets}");
    let id = ToSqlOutput::Borrowed(ValueRef::Blob(thread.as_bytes()));
    let values = std::iter::once(&id).chain(changes.iter().map(|(_, _, value)| value));
    connection.prepare_cached(&sql)?.execute(params_from_iter(values)).map(drop)
}

/// What [`read`] reads, in its order.
pub(crate) const SELECT: &str = "SELECT name, reasoning_effort, thread_source, agent_nickname, agent_role, agent_path, \
     rollout_path, preview, title, model_provider, model, created_at, updated_at, cwd, cli_version, \
     first_user_message, memory_mode, git_sha, git_branch, git_origin_url, recency_at, source, approval_mode, \
     permission_profile, token_usage FROM threads WHERE id = ?1";

/// The columns that hold JSON, as text.
#[derive(Debug, Default)]
pub(crate) struct Structured {
    pub source: Option<String>,
    pub approval_mode: Option<String>,
    pub permission_profile: Option<String>,
    pub token_usage: Option<String>,
}

/// A row; what is structured in it is still to be parsed.
pub(crate) fn read(row: &Row<'_>, paths: &Paths) -> rusqlite::Result<(ThreadMetadata, Structured)> {
    let time = |at: usize| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(at)?.map(UtcMillis));
    let plain = ThreadMetadata {
        name: row.get(0)?,
        reasoning_effort: row.get(1)?,
        thread_source: row.get(2)?,
        agent_nickname: row.get(3)?,
        agent_role: row.get(4)?,
        agent_path: row.get(5)?,
        rollout_path: row.get::<_, Option<String>>(6)?.map(|kept| paths.whole(kept)),
        preview: row.get(7)?,
        title: row.get(8)?,
        model_provider: row.get(9)?,
        model: row.get(10)?,
        created_at: time(11)?,
        updated_at: time(12)?,
        cwd: row.get(13)?,
        cli_version: row.get(14)?,
        first_user_message: row.get(15)?,
        memory_mode: row.get(16)?,
        git_sha: row.get(17)?,
        git_branch: row.get(18)?,
        git_origin_url: row.get(19)?,
        recency_at: time(20)?,
        source: None,
        approval_mode: None,
        permission_profile: None,
        token_usage: None,
    };
    let structured = Structured {
        source: row.get(21)?,
        approval_mode: row.get(22)?,
        permission_profile: row.get(23)?,
        token_usage: row.get(24)?,
    };
    Ok((plain, structured))
}
