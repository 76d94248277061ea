//! The released Codex from npm, as a peer and as an oracle. Nothing here lets it reach beyond this machine.

mod app_server;
mod model;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

pub use self::app_server::AppServer;
pub use self::model::{Given, Model, reply_to};

/// A provider on a port where nobody listens: Codex needs one to start, and lists and searches never call it.
const CONFIG: &str = r#"model = "gpt-5.1-codex"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.mock]
name = "mock"
base_url = "http://127.0.0.1:9/v1"
wire_api = "responses"
env_key = "MOCK_KEY"
requires_openai_auth = false
request_max_retries = 0
stream_max_retries = 0

[analytics]
enabled = false

[otel]
exporter = "none"
"#;

/// Where nobody listens.
const NOBODY: &str = "http://127.0.0.1:9/v1";

/// Every `sourceKinds` value that 0.171 knows: without them it lists only what a person started.
pub const SOURCE_KINDS: [&str; 10] = [
    "cli",
    "vscode",
    "exec",
    "appServer",
    "subAgent",
    "subAgentReview",
    "subAgentCompact",
    "subAgentThreadSpawn",
    "subAgentOther",
    "unknown",
];

pub fn write_config(home: &Path) -> Result<()> {
    write_config_for(home, NOBODY)
}

/// As [`write_config`], with a provider that answers.
pub fn write_config_for(home: &Path, base_url: &str) -> Result<()> {
    let path = home.join("config.toml");
    fs::write(&path, CONFIG.replace(NOBODY, base_url)).with_context(|| format!("cannot write {}", path.display()))
}

/// Where binaries and homes are kept: `THREADKEEP_PEER`, else `target/peer`. Not under the system's temporary
/// directory: Codex warns about a home there.
pub fn peer_dir() -> Result<PathBuf> {
    let dir =
        std::env::var_os("THREADKEEP_PEER").map_or_else(|| crate::workspace_root().join("target/peer"), PathBuf::from);
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    dir.canonicalize().with_context(|| format!("cannot resolve {}", dir.display()))
}

/// A released version that is installed.
#[derive(Debug, Clone)]
pub struct Codex {
    pub version: String,
    binary: PathBuf,
    /// What its servers write to stderr goes here.
    log: PathBuf,
}

impl Codex {
    /// Installs `@openai/codex@version` from npm unless it is there already.
    pub fn install(version: &str) -> Result<Self> {
        let peer = peer_dir()?;
        let dir = peer.join(format!("codex-{version}"));
        let log = peer.join("app-server.stderr");
        if let Some(binary) = native_binary(&dir) {
            return Ok(Self { version: version.to_owned(), binary, log });
        }
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        // Without one, npm would take a package.json of a directory above as the project to install into.
        let package = dir.join("package.json");
        fs::write(&package, "{\"private\":true}\n").with_context(|| format!("cannot write {}", package.display()))?;
        let spec = format!("@openai/codex@{version}");
        let status = Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund", &spec])
            .current_dir(&dir)
            .status()
            .context("cannot run npm, which installs the peer; is Node.js there?")?;
        if !status.success() {
            bail!("`npm install {spec}` failed ({status}) in {}", dir.display());
        }
        match native_binary(&dir) {
            Some(binary) => Ok(Self { version: version.to_owned(), binary, log }),
            None => bail!("{spec} was installed into {}, but it has no native binary for this platform", dir.display()),
        }
    }

    /// `codex app-server` on that home, with the environment that keeps it offline.
    pub fn app_server_command(&self, home: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        command.arg("app-server").env("CODEX_HOME", home).env("MOCK_KEY", "x").env("RUST_LOG", "warn");
        for name in ["OPENAI_API_KEY", "CODEX_API_KEY", "OPENAI_BASE_URL", "CODEX_SQLITE_HOME"] {
            command.env_remove(name);
        }
        // At start Codex looks for plugins on the network. A proxy on a closed port makes such attempts fail at once.
        for name in ["http_proxy", "https_proxy", "all_proxy"] {
            command.env(name, "http://127.0.0.1:9").env(name.to_uppercase(), "http://127.0.0.1:9");
        }
        command.env("no_proxy", "127.0.0.1,localhost").env("NO_PROXY", "127.0.0.1,localhost");
        command
    }
}

/// The npm package's `codex` is a Node.js wrapper that costs a third of a second; the binary is in a package for the
/// platform, at a place that has moved over versions.
fn native_binary(dir: &Path) -> Option<PathBuf> {
    let entries = |dir: PathBuf| {
        let mut paths: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
        paths.sort_unstable();
        paths
    };
    let name = OsString::from(format!("codex{}", std::env::consts::EXE_SUFFIX));
    entries(dir.join("node_modules/@openai"))
        .into_iter()
        .flat_map(|package| entries(package.join("vendor")))
        .filter(|target| is_for_this_platform(&target.file_name().unwrap_or_default().to_string_lossy()))
        .flat_map(|target| ["bin", "codex"].map(|sub| target.join(sub).join(&name)))
        .find(|path| path.is_file())
}

/// Whether a target triple is this machine's: the packages of old releases hold those of every platform.
fn is_for_this_platform(triple: &str) -> bool {
    let system = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    triple.starts_with(std::env::consts::ARCH) && triple.contains(system)
}
