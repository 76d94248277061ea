//! What the text hint costs and how much it leaves to scan: build speed, size, and the share of bytes that terms name.
//!
//! On homes of real sizes: `cargo xtask gen-home DIR 2000`, then `TEXT_HOMES=DIR cargo bench -p threadkeep-index --bench
//! text`. Without that, on the fixture homes, which are too small to say much.
#![allow(missing_docs, clippy::print_stdout, reason = "a benchmark")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use threadkeep_index::text::{Contents, Query, ReadFrom, Segment, SegmentWriter, Unit, UnitBuilder, read_units};
use threadkeep_rollout::name::Form;
use threadkeep_rollout::source::Follow;

/// Characters of the terms that are cut out of the home's own text.
const LENGTHS: [usize; 5] = [4, 6, 8, 12, 20];

/// Terms of each length.
const TERMS: usize = 60;

fn rollouts(dir: &Path, into: &mut Vec<(PathBuf, Form, u64)>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            rollouts(&path, into);
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let form = match name.starts_with("rollout-") {
            true if name.ends_with(".jsonl") => Form::Plain,
            true if name.ends_with(".jsonl.zst") => Form::Zstd,
            _ => continue,
        };
        let size = entry.metadata().map_or(0, |m| m.len());
        into.push((path, form, size));
    }
}

struct Built {
    segments: Vec<Vec<u8>>,
    units: Vec<Unit>,
    reading: Duration,
    writing: Duration,
}

fn build(files: &[(PathBuf, Form, u64)]) -> Built {
    let (mut builder, mut buffer) = (UnitBuilder::new(), Vec::new());
    let mut writer = SegmentWriter::new();
    let mut built = Built { segments: vec![], units: vec![], reading: Duration::ZERO, writing: Duration::ZERO };
    for (owner, (path, form, _)) in files.iter().enumerate() {
        let begun = Instant::now();
        let units = read_units(path, *form, Follow::Nothing, ReadFrom::Start, &mut builder, &mut buffer).unwrap();
        built.reading += begun.elapsed();
        let begun = Instant::now();
        for unit in units.units {
            built.units.push(Unit { contents: Contents::Unknown, ..unit });
            if let Err(unit) = writer.push(owner as u64, unit) {
                built.segments.push(std::mem::take(&mut writer).finish());
                writer.push(owner as u64, unit).unwrap();
            }
        }
        built.writing += begun.elapsed();
    }
    let begun = Instant::now();
    built.segments.push(writer.finish());
    built.writing += begun.elapsed();
    built
}

/// Bytes of the decompressed home that have to be scanned for a term.
fn named(segments: &[Vec<u8>], term: &str) -> Option<u64> {
    let query = Query::new(term)?;
    let mut bytes = 0;
    for segment in segments {
        let segment = Segment::open(segment.as_slice()).unwrap();
        let found = segment.candidates(&query).unwrap();
        if !found.is_empty() {
            let places = segment.places().unwrap();
            bytes += found.iter().map(|u| places[u].end - places[u].start).sum::<u64>();
        }
    }
    Some(bytes)
}

/// Terms that stand in the home: stretches of its text at places spread over it.
fn terms(files: &[(PathBuf, Form, u64)], length: usize) -> Vec<String> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below.max(1)
    };
    let plain: Vec<_> = files.iter().filter(|f| f.1 == Form::Plain).collect();
    let mut terms = Vec::new();
    while terms.len() < TERMS {
        let Ok(text) = fs::read(&plain[random(plain.len())].0) else { continue };
        let lines: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
        let mut texts: Vec<String> = Vec::new();
        let mut scratch = threadkeep_record::visible::Scratch::default();
        for _ in 0..20 {
            threadkeep_record::visible::texts(lines[random(lines.len())], &mut scratch, &mut |t| texts.push(t.into()));
        }
        let Some(text) = texts.iter().find(|t| t.chars().count() > length) else { continue };
        let from = random(text.chars().count() - length);
        terms.push(text.chars().skip(from).take(length).collect());
    }
    terms
}

fn measure(home: &Path) {
    let mut files = Vec::new();
    for folder in ["sessions", "archived_sessions"] {
        rollouts(&home.join(folder), &mut files);
    }
    if files.is_empty() {
        rollouts(home, &mut files);
    }
    files.sort();
    let bytes: u64 = files.iter().map(|f| f.2).sum();
    let mb = |bytes: u64| bytes as f64 / 1e6;
    build(&files);
    let runs: Vec<Built> = (0..3).map(|_| build(&files)).collect();
    let best = runs.iter().min_by_key(|b| b.reading + b.writing).unwrap();
    let whole: u64 = best.units.iter().map(|u| u.end - u.start).sum();
    let size: u64 = best.segments.iter().map(|s| s.len() as u64).sum();
    let took = best.reading + best.writing;
    println!("{}", home.display());
    println!(
        "  rollouts {} of {:.1} MB; units {}; segments {}",
        files.len(),
        mb(bytes),
        best.units.len(),
        best.segments.len()
    );
    println!(
        "  built in {:.0} ms: {:.0} MB/s ({:.0} ms reading and trigrams, {:.0} ms segments)",
        took.as_secs_f64() * 1e3,
        mb(whole) / took.as_secs_f64(),
        best.reading.as_secs_f64() * 1e3,
        best.writing.as_secs_f64() * 1e3
    );
    println!("  size {:.2} MB: {:.2} % of the home", mb(size), 100.0 * size as f64 / bytes as f64);
    for length in LENGTHS {
        let mut shares: Vec<f64> = terms(&files, length)
            .iter()
            .filter_map(|t| Some(100.0 * named(&best.segments, t)? as f64 / whole as f64))
            .collect();
        shares.sort_by(f64::total_cmp);
        let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
        println!("  {length:2} characters: {mean:5.1} / {:5.1} % to scan (mean / median)", shares[shares.len() / 2]);
    }
    for term in ["zebracorn", "quuxalert", "ndl77q", "not in here"] {
        let begun = Instant::now();
        let share = named(&best.segments, term).map_or(100.0, |n| 100.0 * n as f64 / whole as f64);
        println!("  {term:11} {share:5.1} % to scan, told in {:.2} ms", begun.elapsed().as_secs_f64() * 1e3);
    }
}

fn main() {
    let homes = std::env::var_os("TEXT_HOMES");
    match homes {
        Some(homes) => std::env::split_paths(&homes).for_each(|home| measure(&home)),
        None => measure(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes")),
    }
}
