//! Databases as Codex 0.171 leaves them: `ROW(T, ..)` of the reports is a row of `threads` in `state_5.sqlite`.

use std::path::Path;

use rusqlite::{Connection, params_from_iter, types::Value};

const SCHEMA: &str = "
CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL, checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL);
CREATE TABLE thread_sections (id TEXT PRIMARY KEY);
CREATE TABLE projects (id TEXT PRIMARY KEY);
CREATE TABLE threads (id TEXT PRIMARY KEY, rollout_path TEXT NOT NULL, created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL, source TEXT NOT NULL, model_provider TEXT NOT NULL, cwd TEXT NOT NULL,
    title TEXT NOT NULL, sandbox_policy TEXT NOT NULL, approval_mode TEXT NOT NULL,
    tokens_used INTEGER NOT NULL DEFAULT 0, has_user_event INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0, archived_at INTEGER, git_sha TEXT, git_branch TEXT, git_origin_url TEXT,
    cli_version TEXT NOT NULL DEFAULT '', first_user_message TEXT NOT NULL DEFAULT '', agent_nickname TEXT,
    agent_role TEXT, memory_mode TEXT NOT NULL DEFAULT 'enabled', model TEXT, reasoning_effort TEXT, agent_path TEXT,
    created_at_ms INTEGER, updated_at_ms INTEGER, thread_source TEXT, preview TEXT NOT NULL DEFAULT '',
    recency_at INTEGER NOT NULL DEFAULT 0, recency_at_ms INTEGER NOT NULL DEFAULT 0,
    history_mode TEXT NOT NULL DEFAULT 'legacy', name TEXT, is_pinned INTEGER NOT NULL DEFAULT 0,
    thread_section_id TEXT REFERENCES thread_sections(id) ON DELETE SET NULL, section_position INTEGER,
    section_entered_at_ms INTEGER, project_id TEXT REFERENCES projects(id) ON DELETE SET NULL, originator TEXT,
    daybreak_enabled BOOLEAN, creator_user_id TEXT, creator_account_id TEXT, attached_thread_parent_id TEXT);
CREATE TABLE thread_spawn_edges (parent_thread_id TEXT NOT NULL, child_thread_id TEXT NOT NULL PRIMARY KEY,
    status TEXT NOT NULL);
CREATE TABLE backfill_state (id INTEGER PRIMARY KEY CHECK (id = 1), status TEXT NOT NULL, last_watermark TEXT,
    last_success_at INTEGER, updated_at INTEGER NOT NULL);
INSERT INTO backfill_state VALUES (1, 'complete', NULL, 1790000000, 1790000000);
CREATE INDEX idx_threads_updated_at_ms ON threads(updated_at_ms DESC, id DESC);
";

/// An open `state_5.sqlite`. While it lives the file is in use, as with a running Codex.
pub struct StateDb {
    conn: Connection,
}

impl StateDb {
    /// A new database with the 0.171 schema, in WAL mode as Codex leaves it.
    pub fn create(path: &Path) -> StateDb {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("the folder of the database");
        let conn = Connection::open(path).expect("a database");
        conn.pragma_update(None, "journal_mode", "wal").expect("WAL");
        conn.execute_batch(SCHEMA).expect("the schema");
        for version in 1..=64 {
            conn.execute(
                "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                 VALUES (?1, 'made for a test', 1, x'00', 0)",
                [version],
            )
            .expect("a migration");
        }
        StateDb { conn }
    }

    /// `ROW(T, ..)`: columns that are not given have the values that Codex gives to a fresh legacy thread.
    pub fn row(self, id: &str, columns: &[(&str, Value)]) -> StateDb {
        let mut all: Vec<(&str, Value)> = vec![
            ("id", text(id)),
            ("rollout_path", text("/nowhere/rollout.jsonl")),
            ("created_at", Value::Integer(1_772_359_200)),
            ("updated_at", Value::Integer(1_772_359_210)),
            ("source", text("cli")),
            ("model_provider", text("openai")),
            ("cwd", text("/w/p")),
            ("title", text("")),
            ("sandbox_policy", text("{\"type\":\"disabled\"}")),
            ("approval_mode", text("never")),
        ];
        for (key, value) in columns {
            match all.iter_mut().find(|(known, _)| known == key) {
                Some(slot) => slot.1 = value.clone(),
                None => all.push((key, value.clone())),
            }
        }
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        let marks = vec!["?"; all.len()].join(",");
        let sql = format!("INSERT INTO threads ({}) VALUES ({marks})", names.join(","));
        self.conn.execute(&sql, params_from_iter(all.into_iter().map(|(_, value)| value))).expect("a row");
        self
    }

    /// Closes the file in the way of a clean shutdown: no `-wal` stays.
    pub fn close(self) {
        self.conn.close().map_err(|(_, error)| error).expect("a clean close");
    }
}

/// A text column.
pub fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// A whole-number column.
pub fn int(value: i64) -> Value {
    Value::Integer(value)
}
