//! The table, and the facts without which its numbers mean nothing.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result};
use jiff::Timestamp;

use crate::peers::measure::{Noise, Role, Row};

/// One piece of work on one home.
pub struct Section {
    pub home: String,
    pub title: String,
    pub rows: Vec<Row>,
}

const HEAD: &str = "| home | work | command | ratio | median ms | min | max | peak MB |\n\
                    | --- | --- | --- | --- | ---: | ---: | ---: | ---: |\n";

pub fn table(sections: &[Section]) -> String {
    let mut out = HEAD.to_owned();
    for section in sections {
        for row in &section.rows {
            // A reference has no ratio, and a pipe inside a command would end its cell.
            let ratio = if row.role == Role::Subject { ratios(row, &section.rows) } else { String::new() };
            let peak = row.peak_kb.map_or_else(String::new, |kb| format!("{:.1}", kb as f64 / 1024.0));
            let _ = writeln!(
                out,
                "| {} | {} | `{}` | {ratio} | {:.1} | {:.1} | {:.1} | {peak} |",
                section.home,
                section.title,
                row.name.replace('|', "\\|"),
                row.median(),
                row.min(),
                row.max(),
            );
        }
    }
    out
}

fn ratios(row: &Row, rows: &[Row]) -> String {
    let references = rows.iter().filter(|r| r.role == Role::Reference);
    let ratios: Vec<String> = references
        .map(|reference| {
            let ratio = row.median() / reference.median();
            let digits = if ratio < 0.1 { 4 } else { 2 };
            format!("{ratio:.digits$} × {}", reference.short)
        })
        .collect();
    ratios.join(", ")
}

/// The table with date, versions and machine around it.
pub fn document(sections: &[Section], homes: &[String], versions: &[String], runs: usize, noise: &Noise) -> String {
    let mut out = format!("# Whole commands beside their references, {}\n\n", today());
    out.push_str(
        "Made by `cargo xtask peers`. Each row is a whole process from spawn to exit, except `thread/…`, which is a\n",
    );
    out.push_str("request inside a running Codex server. Samples of the commands of one piece of work are interleaved, the page\n");
    out.push_str("cache is warm, and every answer was checked against the home's manifest first. Compare ratios, not milliseconds.\n\n");
    for home in homes {
        let _ = writeln!(out, "- {home}");
    }
    for fact in machine() {
        let _ = writeln!(out, "- {fact}");
    }
    for version in versions {
        let _ = writeln!(out, "- {version}");
    }
    let _ = writeln!(
        out,
        "- {runs} runs of each (3 of a cold start of Codex); the machine was busy with something else before {} of {} samples\n",
        noise.busy, noise.samples
    );
    out.push_str(&table(sections));
    out
}

/// `out` itself, or a dated file in it if it is a directory.
pub fn file_name(out: &Path) -> PathBuf {
    if out.is_dir() { out.join(format!("{}-peers.md", today())) } else { out.to_owned() }
}

pub fn save(path: &Path, document: &str) -> Result<()> {
    fs::write(path, document).with_context(|| format!("cannot write {}", path.display()))
}

fn today() -> String {
    Timestamp::now().strftime("%Y-%m-%d").to_string()
}

/// The first line that a program prints about its version.
pub fn version_of(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
}

fn machine() -> Vec<String> {
    let proc_value = |file: &str, key: &str| {
        let text = fs::read_to_string(file).ok()?;
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let mut facts = Vec::new();
    let cores = thread::available_parallelism().map_or(1, |n| n.get());
    let model = proc_value("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    facts.push(format!("{cores} cores, {model}"));
    if let Some(kb) = proc_value("/proc/meminfo", "MemTotal").and_then(|v| v.strip_suffix(" kB")?.parse::<u64>().ok()) {
        facts.push(format!("{:.1} GB of memory", kb as f64 / 1e6));
    }
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    facts.push(format!("{} {}", std::env::consts::OS, kernel.trim()));
    facts.extend(version_of("rustc"));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_medians_and_to_every_reference() {
        let row = |role, name: &str, short, samples: &[f64]| Row {
            role,
            name: name.to_owned(),
            short,
            samples: samples.to_vec(),
            peak_kb: (role == Role::Subject).then_some(2048),
        };
        let rows = vec![
            row(Role::Reference, "a | b", "pipe", &[9.0, 10.0, 30.0]),
            row(Role::Reference, "codex", "Codex", &[900.0, 1100.0]),
            row(Role::Subject, "threadkeep list", "threadkeep", &[4.0, 5.0, 8.0]),
        ];
        let sections = [Section { home: "n1".to_owned(), title: "list".to_owned(), rows }];
        let table = table(&sections);
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(
            lines,
            [
                "| n1 | list | `a \\| b` |  | 10.0 | 9.0 | 30.0 |  |",
                "| n1 | list | `codex` |  | 1000.0 | 900.0 | 1100.0 |  |",
                "| n1 | list | `threadkeep list` | 0.50 × pipe, 0.0050 × Codex | 5.0 | 4.0 | 8.0 | 2.0 |",
            ]
        );
    }
}
