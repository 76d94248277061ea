//! `manifest.jsonl` of a generated home: what is in it, as the generator knows it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// One thread. The field names are the file's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    pub seq: usize,
    pub id: String,
    /// Relative to the home.
    pub path: String,
    pub cwd: String,
    /// Size of the file, compressed or not.
    pub bytes: u64,
    pub turns: usize,
    pub format: String,
    pub ver: String,
    pub source: String,
    pub archived: bool,
    pub name: Option<String>,
    /// The first 60 characters of the first user message.
    pub first: String,
    pub needle: String,
    pub zebracorn: bool,
    /// The size in MB that was asked for with `--exact`.
    pub exact: Option<f64>,
    pub created_ms: u64,
    /// Unix seconds of the last record, which is also the file's modification time.
    pub mtime: f64,
}

impl Entry {
    /// Whether a list shows the thread without being asked for more: a person started it and it is not archived.
    pub fn listed_by_default(&self) -> bool {
        !self.archived && matches!(self.source.as_str(), "cli" | "vscode")
    }

    pub fn mtime_ms(&self) -> i64 {
        (self.mtime * 1000.0).round() as i64
    }
}

pub fn read(home: &Path) -> Result<Vec<Entry>> {
    let path = home.join("manifest.jsonl");
    let text = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}; make the home with `cargo xtask gen-home`", path.display()))?;
    text.lines()
        .enumerate()
        .map(|(i, line)| {
            serde_json::from_str(line).with_context(|| format!("{}:{} is not a manifest entry", path.display(), i + 1))
        })
        .collect()
}
