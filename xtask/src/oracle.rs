//! `oracle`: the real Codex opens copies of the fixture homes, and threadkeep must list what it lists, and more; and
//! threads that the store writes go on in Codex, and Codex's in the store.
//!
//! Both get a copy of their own, because Codex writes into every home it opens.

mod compare;
mod home_copy;
mod writing;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use self::compare::Comparison;
use crate::codex::{self, AppServer, Codex, SOURCE_KINDS};
use crate::threadkeep::Threadkeep;

#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Released version to ask, from npm
    #[arg(long, default_value = "0.171.0")]
    codex: String,
    /// Only three homes: without databases, with one, and with both history modes
    #[arg(long)]
    short: bool,
    /// Only what is written, not what is listed: all scenes, or those with this text in their name
    #[arg(long, value_name = "SCENE", num_args = 0..=1, default_missing_value = "")]
    written: Option<String>,
    /// Only older releases, with what is written here: versions from npm, separated by commas
    #[arg(long, value_name = "VERSION", value_delimiter = ',', conflicts_with = "written")]
    versions: Vec<String>,
    /// threadkeep binary to test, instead of building the workspace's
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

/// A fixture home, how many threads are in it, and how many of them Codex 0.171 lists. The others have no user
/// message, and those of 0.20 are bare records, which it does not read. With the counts, the test cannot pass by
/// seeing nothing.
struct Fixture {
    name: &'static str,
    listed: usize,
    threads: usize,
    short: bool,
}

const FIXTURES: [Fixture; 8] = [
    Fixture { name: "0.20.0", listed: 0, threads: 19, short: false },
    Fixture { name: "0.44.0", listed: 19, threads: 19, short: false },
    Fixture { name: "0.63.0", listed: 23, threads: 24, short: false },
    Fixture { name: "0.98.0", listed: 33, threads: 36, short: true },
    Fixture { name: "0.118.0", listed: 26, threads: 26, short: false },
    Fixture { name: "0.142.0", listed: 25, threads: 26, short: true },
    Fixture { name: "0.156.0", listed: 27, threads: 27, short: false },
    Fixture { name: "0.171.0", listed: 27, threads: 28, short: true },
];

/// Prints a row for each home; an error if anything differs.
pub fn run(options: &Options) -> Result<()> {
    let fixtures = crate::workspace_root().join("fixtures/homes");
    check_fixtures(&fixtures)?;
    let work = codex::peer_dir()?.join(format!("oracle-{}", std::process::id()));
    if !options.versions.is_empty() {
        return with_older(&options.versions, &work, options.bin.as_deref());
    }
    let codex = Codex::install(&options.codex)?;
    if let Some(only) = &options.written {
        let extent = if options.short { writing::Extent::Short } else { writing::Extent::Full };
        writing::run(&codex, &work.join("written"), extent, only, options.bin.as_deref())?;
        return fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()));
    }
    let threadkeep = Threadkeep::find_or_build(options.bin.as_deref())?;

    println!("Codex {} beside {}", codex.version, threadkeep.version()?);
    println!();
    println!("| home | threads | listed by Codex | listed by threadkeep | times apart | differences |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let (mut failures, mut notes) = (Vec::new(), Vec::new());
    for fixture in FIXTURES.iter().filter(|f| f.short || !options.short) {
        let comparison = compare_home(fixture, &fixtures.join(fixture.name), &work, &codex, &threadkeep)
            .with_context(|| format!("home {}", fixture.name))?;
        println!(
            "| {} | {} | {} | {} | {} | {} |",
            fixture.name,
            comparison.threads,
            comparison.codex,
            comparison.threadkeep,
            comparison.notes.len(),
            comparison.failures.len(),
        );
        failures.extend(comparison.failures.into_iter().map(|f| format!("{}: {f}", fixture.name)));
        notes.extend(comparison.notes.into_iter().map(|n| format!("{}: {n}", fixture.name)));
    }
    println!();
    for note in &notes {
        println!("known: {note}");
    }
    if failures.is_empty() {
        println!("no differences");
        println!();
        let extent = if options.short { writing::Extent::Short } else { writing::Extent::Full };
        writing::run(&codex, &work.join("written"), extent, "", options.bin.as_deref())?;
        return fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()));
    }
    for failure in &failures {
        println!("DIFFERENT: {failure}");
    }
    bail!("{} differences from Codex {}; the copies are kept in {}", failures.len(), codex.version, work.display())
}

/// What is written here goes on in older releases. All are asked, whatever one of them says.
fn with_older(versions: &[String], work: &Path, bin: Option<&Path>) -> Result<()> {
    let mut failed = Vec::new();
    for version in versions {
        let played = Codex::install(version).and_then(|codex| writing::run_older(&codex, &work.join(version), bin));
        failed.extend(played.err().map(|e| format!("{version}: {e:#}")));
        println!();
    }
    if failed.is_empty() {
        return fs::remove_dir_all(work).with_context(|| format!("cannot remove {}", work.display()));
    }
    bail!("{}; the homes are kept in {}", failed.join("; "), work.display())
}

/// A new fixture home must come with its counts.
fn check_fixtures(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let name = entry?.file_name();
        if !FIXTURES.iter().any(|f| name == f.name) {
            bail!("the oracle knows no counts for the fixture home {}", name.display());
        }
    }
    Ok(())
}

fn compare_home(
    fixture: &Fixture,
    source: &Path,
    work: &Path,
    codex: &Codex,
    threadkeep: &Threadkeep,
) -> Result<Comparison> {
    let for_codex = work.join(fixture.name).join("codex");
    let for_threadkeep = work.join(fixture.name).join("threadkeep");
    home_copy::make(source, &for_codex)?;
    let ids = home_copy::make(source, &for_threadkeep)?;
    codex::write_config(&for_codex)?;

    let oracle = ask_codex(codex, &for_codex)?;
    let list = threadkeep.json(threadkeep.on(&for_threadkeep, &["list", "--all", "--limit", "1000"]), &[0])?;
    let mut comparison = compare::compare(&ids, &oracle, &list)?;
    if comparison.codex != fixture.listed || comparison.threads != fixture.threads {
        comparison.failures.push(format!(
            "Codex lists {} of {} threads; expected {} of {}",
            comparison.codex, comparison.threads, fixture.listed, fixture.threads
        ));
    }
    Ok(comparison)
}

/// All that Codex lists, of every source and provider, by id, each with `archived` added.
fn ask_codex(codex: &Codex, home: &Path) -> Result<BTreeMap<String, Value>> {
    let mut threads = BTreeMap::new();
    let mut server = AppServer::start(codex, home)?;
    for archived in [false, true] {
        let params = json!({
            "sourceKinds": SOURCE_KINDS, "modelProviders": [], "archived": archived, "limit": 100,
        });
        for mut thread in server.all_pages("thread/list", params)? {
            let id = thread["id"].as_str().context("a thread without an id")?.to_owned();
            thread["archived"] = archived.into();
            threads.insert(id, thread);
        }
    }
    Ok(threads)
}
