//! The text hint: what search would find lies in a unit that is named, whatever is looked for, and whatever became of
//! the segment.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use regex::RegexBuilder;
use serde_json::json;
use threadkeep_index::text::{
    Contents, MAX_UNITS, Query, ReadAt, ReadFrom, Segment, SegmentError, SegmentWriter, Unit, UnitBuilder, UnitPlace,
    read_units,
};
use threadkeep_record::{Envelope, Item, LineState, check_line, text};
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_rollout::source::Follow;

fn line(text: &str) -> String {
    let payload = json!({"type": "agent_message", "message": text});
    format!("{{\"timestamp\":\"2026-01-01T00:00:00.000Z\",\"type\":\"event_msg\",\"payload\":{payload}}}\n")
}

/// A segment with a unit for each text, and its units.
fn segment(texts: &[String]) -> (Vec<u8>, Vec<Unit>) {
    let (mut writer, mut builder, mut units) = (SegmentWriter::new(), UnitBuilder::new(), Vec::new());
    for (owner, text) in texts.iter().enumerate() {
        builder.begin(5);
        builder.lines(5, line(text).as_bytes());
        let unit = builder.finish().pop().unwrap();
        units.push(unit.clone());
        assert_eq!(writer.push(owner as u64 * 7, unit), Ok(owner));
    }
    (writer.finish(), units)
}

fn candidates(segment: &[u8], query: &Query) -> Result<Vec<usize>, SegmentError> {
    Ok(Segment::open(segment)?.candidates(query)?.iter().collect())
}

/// The text with the case of some of its characters changed, where that is one character for one.
fn recased(text: &str, seed: u64) -> String {
    let other = |(n, c): (usize, char)| {
        let (mut lower, mut upper) = (c.to_lowercase(), c.to_uppercase());
        match (seed >> (n % 60) & 3, c) {
            (0, 'k' | 'K') => '\u{212a}',
            (0, 's' | 'S') => '\u{17f}',
            (1, _) if lower.len() == 1 => lower.next().unwrap_or(c),
            (2, _) if upper.len() == 1 => upper.next().unwrap_or(c),
            _ => c,
        }
    };
    text.chars().enumerate().map(other).collect()
}

fn any_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-zA-Z ]{1,9}",
        "[ \\n\"/\\\\.,;:{}]{1,4}",
        "\\PC{1,5}",
        "[αβσςΣΩа-яА-Яéàßẞſİıǅῼ日本語한국🌍]{1,6}",
        Just("tasks K\u{212a}k\u{17f}s".to_owned()),
        any::<String>(),
    ];
    proptest::collection::vec(part, 1..5).prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_unit_with_a_match_is_a_candidate(
        texts in proptest::collection::vec(any_text(), 1..40),
        which: prop::sample::Index, from: prop::sample::Index, length in 1usize..12, seed: u64,
    ) {
        let (bytes, _) = segment(&texts);
        let text: Vec<char> = which.get(&texts).chars().collect();
        let from = from.index(text.len() + 1);
        let cut: String = text[from..].iter().take(length).collect();
        let term = recased(&cut, seed);
        let regex = RegexBuilder::new(&regex::escape(&term)).case_insensitive(true).build().unwrap();
        let Some(query) = Query::new(&term) else {
            prop_assert!(term.chars().count() < 3);
            return Ok(());
        };
        let found = candidates(&bytes, &query).unwrap();
        for (unit, text) in texts.iter().enumerate() {
            prop_assert!(!regex.is_match(text) || found.contains(&unit), "{:?} in {:?}", term, text);
        }
    }

    #[test]
    fn a_damaged_segment_names_everything_or_says_so(
        texts in proptest::collection::vec(any_text(), 1..20),
        which: prop::sample::Index, at: prop::sample::Index, with in 1u8.., cut: prop::sample::Index, how in 0..4,
    ) {
        let (mut bytes, units) = segment(&texts);
        match how {
            0 => bytes.truncate(cut.index(bytes.len())),
            1 => bytes.extend([with; 9]),
            2 => { let from = at.index(bytes.len()); let n = bytes.len(); bytes.copy_within(cut.index(n).min(n - 1)..n.min(cut.index(n) + 8), from.min(n - 8)); }
            _ => { let at = at.index(bytes.len()); bytes[at] ^= with; }
        }
        let Some(query) = Query::new(&texts[which.index(texts.len())]) else { return Ok(()) };
        if let Ok(found) = candidates(&bytes, &query) {
            prop_assert!(found.contains(&which.index(texts.len())));
        }
        if let Ok(segment) = Segment::open(bytes.as_slice()) {
            if let Ok(read) = segment.units() {
                prop_assert_eq!(read.into_iter().map(|(_, u)| u).collect::<Vec<_>>(), units);
            }
            let _ = segment.places();
        }
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), version in 0u32..3) {
        if bytes.len() > 12 {
            bytes[..8].copy_from_slice(b"tk-text\0");
            bytes[8..12].copy_from_slice(&version.to_le_bytes());
        }
        prop_assert!(candidates(&bytes, &Query::new("term").unwrap()).is_err());
    }

    #[test]
    fn units_come_back_from_a_segment(texts in proptest::collection::vec(any_text(), 0..70), unknown in 0usize..70) {
        let (_, mut units) = segment(&texts);
        if let Some(unit) = units.get_mut(unknown) {
            unit.contents = Contents::Unknown;
        }
        let mut writer = SegmentWriter::new();
        for (n, unit) in units.iter().enumerate() {
            writer.push(u64::MAX - n as u64 * 3, unit.clone()).unwrap();
        }
        let bytes = writer.finish();
        let segment = Segment::open(&bytes).unwrap();
        prop_assert_eq!(segment.len(), units.len());
        let read = segment.units().unwrap();
        let places: Vec<UnitPlace> = read.iter().map(|(owner, u)| UnitPlace { owner: *owner, start: u.start, end: u.end }).collect();
        prop_assert_eq!(segment.places().unwrap(), places);
        prop_assert!(read.iter().zip(&units).enumerate().all(|(n, (r, u))| r == &(u64::MAX - n as u64 * 3, u.clone())));
        if unknown < units.len() {
            let found = segment.candidates(&Query::new("\u{10ffff}").unwrap()).unwrap();
            prop_assert_eq!(found.iter().collect::<Vec<_>>(), [unknown]);
        }
    }
}

#[test]
fn a_full_segment_gives_the_unit_back() {
    let texts: Vec<String> = (0..MAX_UNITS).map(|n| format!("the text of unit {n}~")).collect();
    let (bytes, units) = segment(&texts);
    for n in [0, 1, 63, 64, 300, 511] {
        let found = candidates(&bytes, &Query::new(&format!("UNIT {n}~")).unwrap()).unwrap();
        assert!(found.contains(&n) && found.len() < 20, "{n}: {found:?}");
    }
    assert_eq!(candidates(&bytes, &Query::new("text of").unwrap()).unwrap().len(), MAX_UNITS);
    let mut writer = SegmentWriter::new();
    for unit in &units {
        writer.push(1, unit.clone()).unwrap();
    }
    assert_eq!(writer.push(1, units[0].clone()), Err(units[0].clone()));
}

#[test]
fn a_look_up_reads_a_small_part() {
    struct Counted<'a>(&'a [u8], std::cell::Cell<usize>);
    impl ReadAt for Counted<'_> {
        fn read_exact_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
            self.1.set(self.1.get() + into.len());
            self.0.read_exact_at(offset, into)
        }
        fn size(&self) -> std::io::Result<u64> {
            self.0.size()
        }
    }
    let word = |n: usize| format!("{:x} {:o} {}", n * 7919 % 65_521, n * 104_729, n * n);
    let texts: Vec<String> = (0..400).map(|n| (0..300).map(|w| word(n * 300 + w)).collect()).collect();
    let (bytes, _) = segment(&texts);
    let counted = Counted(&bytes, std::cell::Cell::new(0));
    let segment = Segment::open(&counted).unwrap();
    assert!(counted.1.get() * 20 < bytes.len(), "{} of {}", counted.1.get(), bytes.len());
    counted.1.set(0);
    segment.candidates(&Query::new("zebracorn").unwrap()).unwrap();
    assert!((1..=8192).contains(&counted.1.get()), "{}", counted.1.get());
}

fn rollouts(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            rollouts(&path, into);
        } else if name.starts_with("rollout-") {
            into.push(path);
        }
    }
}

/// Terms from all over each piece of each record of every fixture: the record lies in a candidate.
#[test]
fn the_fixtures_records_lie_in_candidates() {
    let mut files = Vec::new();
    rollouts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes"), &mut files);
    files.sort();
    let (mut builder, mut buffer, mut writer) = (UnitBuilder::new(), Vec::new(), SegmentWriter::new());
    let form = |path: &Path| match path.extension().and_then(|e| e.to_str()) {
        Some("zst") => Form::Zstd,
        Some("json") => Form::Json,
        _ => Form::Plain,
    };
    for (owner, path) in files.iter().enumerate() {
        let units =
            read_units(path, form(path), Follow::Nothing, ReadFrom::Start, &mut builder, &mut buffer).unwrap().units;
        assert!(units.windows(2).all(|w| w[0].end == w[1].start));
        // Going on behind a unit gives the same units.
        if let [first, rest @ ..] = units.as_slice()
            && form(path) != Form::Json
        {
            let from = ReadFrom::Offset(first.end);
            let again = read_units(path, form(path), Follow::Nothing, from, &mut builder, &mut buffer).unwrap().units;
            assert_eq!(again, rest);
        }
        for unit in units {
            writer.push(owner as u64, unit).unwrap();
        }
    }
    let bytes = writer.finish();
    let segment = Segment::open(&bytes).unwrap();
    let places = segment.places().unwrap();
    let mut terms = 0;
    for (owner, path) in files.iter().enumerate() {
        let mut lines = LineReader::open(path, form(path), Follow::Nothing, BUFFER).unwrap();
        while let Some(line) = lines.next_line() {
            let records = match check_line(line.bytes) {
                LineState::Record(r) => vec![r.to_vec()],
                LineState::Recovered(all, _) => all.into_iter().map(|r| r.into_owned()).collect(),
                LineState::Blank | LineState::Damaged(_) => vec![],
            };
            for record in records {
                let Some(envelope) = Envelope::parse(&record) else { continue };
                for (_, piece) in text::pieces(&Item::parse(&envelope)) {
                    let chars: Vec<char> = piece.chars().collect();
                    let step = (chars.len() / 8).max(1);
                    for (n, part) in chars.chunks(step).enumerate() {
                        let term: String = part.iter().take(3 + n * 2).collect();
                        let Some(query) = Query::new(&recased(&term, line.offset + n as u64 * 77)) else { continue };
                        terms += 1;
                        let at = line.offset;
                        let here = |u: &UnitPlace| u.owner == owner as u64 && (u.start..u.end).contains(&at);
                        let found = segment.candidates(&query).unwrap();
                        assert!(found.iter().any(|u| here(&places[u])), "{term:?} in {} at {at}", path.display());
                    }
                }
            }
        }
    }
    assert!(terms > 5000, "{terms}");
}
