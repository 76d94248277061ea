//! The command under test.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// A `threadkeep` binary.
#[derive(Debug, Clone)]
pub struct Threadkeep {
    binary: PathBuf,
}

impl Threadkeep {
    /// The binary at `path`, else the workspace's own, built for release first.
    pub fn find_or_build(path: Option<&Path>) -> Result<Self> {
        if let Some(path) = path {
            let binary = path.canonicalize().with_context(|| format!("no binary at {}", path.display()))?;
            return Ok(Self { binary });
        }
        let root = crate::workspace_root();
        // The cargo that runs this tool, so that a toolchain chosen for it is the one that builds the command.
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--release", "--quiet", "--package", "threadkeep"])
            .current_dir(&root)
            .status()
            .context("cannot run cargo")?;
        if !status.success() {
            bail!("`cargo build --release --package threadkeep` failed ({status})");
        }
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir));
        let binary = target.join("release").join(format!("threadkeep{}", std::env::consts::EXE_SUFFIX));
        if !binary.is_file() {
            bail!("cargo built no binary at {}", binary.display());
        }
        Ok(Self { binary })
    }

    /// What `--version` prints.
    pub fn version(&self) -> Result<String> {
        let output = self.command().arg("--version").output().context("cannot run threadkeep")?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        // A caller's own choices must not change what is measured or compared.
        for name in ["THREADKEEP_INDEX_DIR", "THREADKEEP_NO_INDEX", "CODEX_HOME", "CODEX_SQLITE_HOME"] {
            command.env_remove(name);
        }
        command
    }

    /// `threadkeep --home HOME ARGS… --json`.
    pub fn on(&self, home: &Path, args: &[&str]) -> Command {
        let mut command = self.command();
        command.arg("--home").arg(home).args(args).arg("--json");
        command
    }

    /// Runs it and parses the object it prints. Any exit code but those in `expected` is an error.
    pub fn json(&self, mut command: Command, expected: &[i32]) -> Result<Value> {
        let output = command.output().context("cannot run threadkeep")?;
        parse(&command, &output, expected)
    }
}

fn parse(command: &Command, output: &Output, expected: &[i32]) -> Result<Value> {
    if !output.status.code().is_some_and(|code| expected.contains(&code)) {
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let said = if stderr.trim().is_empty() { stdout } else { stderr };
        bail!("{command:?} ended with {}: {}", output.status, said.trim());
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("{command:?} printed no JSON object"))
}
