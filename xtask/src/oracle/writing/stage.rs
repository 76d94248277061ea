//! Where the scenes play: homes with the real Codex on one side and the store on the other, and what was found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use tokio::runtime::Runtime;

use super::databases::Databases;
use super::ours::Ours;
use super::theirs::Theirs;
use crate::codex::{self, Codex, Model};
use crate::oracle::home_copy;
use crate::threadkeep::Threadkeep;

/// What all scenes share.
pub struct Stage {
    pub codex: Codex,
    pub model: Model,
    pub runtime: Runtime,
    /// Homes are made in here.
    pub work: PathBuf,
    /// The command to test, where it is not the workspace's.
    bin: Option<PathBuf>,
}

impl Stage {
    pub fn new(codex: Codex, work: PathBuf, bin: Option<&Path>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        Ok(Self { codex, model: Model::start()?, runtime, work, bin: bin.map(Path::to_owned) })
    }

    /// The command under test.
    pub fn threadkeep(&self) -> Result<Threadkeep> {
        Threadkeep::find_or_build(self.bin.as_deref())
    }
}

/// A home on the stage.
pub struct Home<'s> {
    pub stage: &'s Stage,
    pub path: PathBuf,
    /// A directory that is there, for agents to work in.
    pub cwd: PathBuf,
}

impl<'s> Home<'s> {
    /// An empty one.
    pub fn fresh(stage: &'s Stage, name: &str) -> Result<Self> {
        let path = stage.work.join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Self::ready(stage, path)
    }

    /// A copy of a fixture home.
    pub fn of_fixture(stage: &'s Stage, name: &str, fixture: &str) -> Result<Self> {
        let path = stage.work.join(name);
        home_copy::make(&crate::workspace_root().join("fixtures/homes").join(fixture), &path)?;
        Self::ready(stage, path)
    }

    fn ready(stage: &'s Stage, path: PathBuf) -> Result<Self> {
        codex::write_config_for(&path, &stage.model.base_url())?;
        let cwd = stage.work.join("project");
        fs::create_dir_all(&cwd).with_context(|| format!("cannot make {}", cwd.display()))?;
        Ok(Self { stage, path, cwd })
    }

    pub fn ours(&self) -> Ours<'s> {
        Ours::open(self.stage, &self.path, &self.cwd)
    }

    pub fn theirs(&self) -> Result<Theirs<'s>> {
        Theirs::start(self.stage, &self.path)
    }

    /// Codex's databases as they are now. No server may be running on the home.
    pub fn databases(&self) -> Result<Databases> {
        Databases::read(&self.path, &self.stage.work.join("databases"))
    }

    /// Removes Codex's databases, which it then makes again. No server may be running on the home.
    pub fn lose_databases(&self) -> Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|n| n.to_string_lossy().contains(".sqlite")) {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// What each file of the home says, relative to it, and when it was changed last, but for databases, locks and what
    /// threadkeep keeps there.
    pub fn files(&self) -> Result<BTreeMap<PathBuf, (Vec<u8>, SystemTime)>> {
        let mut found = BTreeSet::new();
        walk(&self.path, &self.path, &mut found)?;
        let told = |path: &PathBuf| {
            let text = path.to_string_lossy();
            let own = path.starts_with("threadkeep") || path.starts_with("thread-writer-locks");
            !own && !text.contains(".sqlite") && !text.ends_with(".lock")
        };
        let read = |path: PathBuf| {
            let whole = self.path.join(&path);
            let data = fs::read(&whole).with_context(|| format!("cannot read {}", whole.display()))?;
            Ok((path, (data, fs::metadata(&whole)?.modified()?)))
        };
        found.into_iter().filter(told).map(read).collect()
    }

    /// The rollouts of the home, relative to it.
    pub fn rollouts(&self) -> Result<BTreeSet<PathBuf>> {
        let mut found = BTreeSet::new();
        for folder in ["sessions", "archived_sessions"] {
            walk(&self.path, &self.path.join(folder), &mut found)?;
        }
        Ok(found)
    }
}

fn walk(home: &Path, folder: &Path, found: &mut BTreeSet<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            walk(home, &path, found)?;
        } else {
            found.insert(path.strip_prefix(home)?.to_owned());
        }
    }
    Ok(())
}

/// What was compared in a scene, and what was different.
#[derive(Debug, Default)]
pub struct Checks {
    pub done: usize,
    pub failures: Vec<String>,
    /// What a release does in its own way, told in the table of results.
    pub notes: BTreeSet<String>,
}

impl Checks {
    /// Both are the same.
    pub fn same<T: PartialEq + Debug>(&mut self, what: impl AsRef<str>, found: T, expected: T) -> bool {
        self.done += 1;
        let same = found == expected;
        if !same {
            let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
            let (found, expected) = from_the_difference(&found, &expected);
            self.failures.push(format!("{}: found {found}, expected {expected}", what.as_ref()));
        }
        same
    }

    /// It is so; `otherwise` is what was found instead.
    pub fn holds(&mut self, what: impl AsRef<str>, holds: bool, otherwise: impl Debug) -> bool {
        self.done += 1;
        if !holds {
            self.failures.push(format!("{}: {otherwise:?}", what.as_ref()));
        }
        holds
    }

    /// It can be done; the failure of one thread must not hide the others'.
    pub fn works<T>(&mut self, what: impl AsRef<str>, result: Result<T>) -> Option<T> {
        self.done += 1;
        result.map_err(|e| self.failures.push(format!("{}: {e:#}", what.as_ref()))).ok()
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.insert(note.into());
    }
}

/// Two different texts, without most of what is the same before and long after the difference.
fn from_the_difference(found: &str, expected: &str) -> (String, String) {
    const BEFORE: usize = 60;
    const SHOWN: usize = 240;
    let same = found.chars().zip(expected.chars()).take_while(|(a, b)| a == b).count();
    let skipped = same.saturating_sub(BEFORE);
    let cut = |text: &str| {
        let mark = if skipped > 0 { "…" } else { "" };
        let rest = if text.chars().count() > skipped + SHOWN { "…" } else { "" };
        format!("{mark}{}{rest}", text.chars().skip(skipped).take(SHOWN).collect::<String>())
    };
    (cut(found), cut(expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_told_and_counted() {
        let mut checks = Checks::default();
        checks.same("a", 1, 1);
        checks.holds("b", true, "");
        checks.works("c", Ok(()));
        assert_eq!((checks.done, checks.failures.len()), (3, 0));
        checks.same("d", "x".repeat(500) + "1", "x".repeat(500) + "2");
        checks.holds("e", false, "seen");
        checks.works::<()>("f", Err(anyhow::anyhow!("broken")));
        assert_eq!(checks.done, 6);
        let tail = "x".repeat(60);
        assert_eq!(checks.failures[0], format!("d: found …{tail}1\", expected …{tail}2\""));
        assert_eq!(checks.failures[1..], ["e: \"seen\"", "f: broken"]);
    }
}
