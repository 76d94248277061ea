//! A second view of a home for Codex to write its databases into.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::codex;

/// Removed when it is dropped.
pub struct Twin {
    pub home: PathBuf,
}

impl Twin {
    /// The rollouts are hard links where the file system has them: Codex only reads them for lists and searches.
    pub fn make(source: &Path, home: PathBuf) -> Result<Self> {
        let twin = Self { home };
        for dir in ["sessions", "archived_sessions"] {
            link_dir(&source.join(dir), &twin.home.join(dir))?;
        }
        let names = source.join("session_index.jsonl");
        fs::copy(&names, twin.home.join("session_index.jsonl"))
            .with_context(|| format!("cannot copy {}", names.display()))?;
        codex::write_config(&twin.home)?;
        Ok(twin)
    }

    /// Makes the next start of Codex a cold one.
    pub fn remove_databases(&self) -> Result<()> {
        for entry in fs::read_dir(&self.home)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().contains(".sqlite") {
                fs::remove_file(entry.path()).with_context(|| format!("cannot remove {}", entry.path().display()))?;
            }
        }
        Ok(())
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.home) {
            eprintln!("cannot remove {}: {error}", self.home.display());
        }
    }
}

fn link_dir(source: &Path, target: &Path) -> Result<()> {
    fs::create_dir_all(target).with_context(|| format!("cannot make {}", target.display()))?;
    for entry in fs::read_dir(source).with_context(|| format!("cannot read {}", source.display()))? {
        let entry = entry?;
        let (from, to) = (entry.path(), target.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            link_dir(&from, &to)?;
        } else if fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
            File::options().write(true).open(&to)?.set_modified(entry.metadata()?.modified()?)?;
        }
    }
    Ok(())
}
