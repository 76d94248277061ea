//! `peers`: threadkeep's commands as whole processes beside the tools a person would otherwise use, and beside the
//! released Codex, on synthetic homes.

mod checks;
mod measure;
mod report;
mod suite;
mod twin;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use self::measure::Noise;
use self::report::Section;
use crate::codex::{self, Codex};
use crate::threadkeep::Threadkeep;
use crate::{gen_home, manifest};

#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Directory with the homes n1000, n10000, …; those that are missing are made
    #[arg(long, value_name = "DIR")]
    homes: Option<PathBuf>,
    /// Threads in the homes to measure
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    sizes: Vec<usize>,
    /// Released Codex to compare with, from npm; `none` for none
    #[arg(long, value_name = "VERSION|none", default_value = "0.171.0")]
    codex: String,
    #[arg(long, default_value_t = 7)]
    runs: usize,
    /// Write the table with the facts about the machine here too (in a directory: to a dated file)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// threadkeep binary to measure, instead of building the workspace's
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

/// What is searched for.
pub struct Terms {
    /// In one thread, a third of the way from the oldest to the newest.
    rare: String,
    /// The directory of the fewest threads.
    rare_cwd: String,
}

impl Terms {
    /// In an answer of every hundredth thread.
    const ONE_PERCENT: &str = "zebracorn";
    /// In nearly every thread, and in the name of a record kind.
    const COMMON: &str = "function";
    /// In no text, though in encoded reasoning; too short for most indexes.
    const ABSENT: &str = "zq";
}

/// A directory for indexes and the homes that Codex opens, removed when it is dropped. It is on the same disk as the
/// homes by default, which a temporary directory may not be.
struct Scratch(PathBuf);

impl Scratch {
    fn make(dir: PathBuf) -> Result<Self> {
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Prints the table; an error if an answer is wrong.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.runs > 0, "--runs must be at least 1");
    let peer = codex::peer_dir()?;
    let homes_dir = options.homes.clone().unwrap_or_else(|| peer.join("homes"));
    let threadkeep = Threadkeep::find_or_build(options.bin.as_deref())?;
    let codex = match options.codex.as_str() {
        "none" => None,
        version => Some(Codex::install(version)?),
    };
    let scratch = Scratch::make(peer.join(format!("peers-{}", std::process::id())))?;

    let (mut sections, mut homes): (Vec<Section>, Vec<String>) = (Vec::new(), Vec::new());
    let mut noise = Noise::default();
    for &n in &options.sizes {
        let name = format!("n{n}");
        let home = homes_dir.join(&name);
        if !home.join("manifest.jsonl").exists() {
            eprintln!("{name}: making the home");
            gen_home::run(&gen_home::Options::with_defaults(home.clone(), n))?;
        }
        let home = home.canonicalize().with_context(|| format!("cannot resolve {}", home.display()))?;
        let manifest = manifest::read(&home)?;
        let bytes: u64 = manifest.iter().map(|e| e.bytes).sum();
        homes.push(format!("{name}: {} threads, {:.0} MB", manifest.len(), bytes as f64 / 1e6));
        let suite = suite::Suite {
            home: &home,
            name: &name,
            manifest: &manifest,
            threadkeep: &threadkeep,
            codex: codex.as_ref(),
            scratch: &scratch.0,
            runs: options.runs,
        };
        sections.extend(suite.run(&mut noise).with_context(|| format!("home {name}"))?);
    }
    println!("{}", report::table(&sections));
    println!("busy before {} of {} samples", noise.busy, noise.samples);
    if let Some(out) = &options.out {
        let mut versions = vec![threadkeep.version()?];
        versions.extend(codex.map(|codex| format!("Codex {}", codex.version)));
        versions.extend(report::version_of("rg"));
        let path = report::file_name(out);
        report::save(&path, &report::document(&sections, &homes, &versions, options.runs, &noise))?;
        eprintln!("written to {}", path.display());
    }
    Ok(())
}
