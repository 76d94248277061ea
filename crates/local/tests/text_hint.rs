//! The text hint beside the search itself: every record that a scan finds lies in a unit that the hint names.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use threadkeep_index::text::{Contents, Query, ReadFrom, Segment, SegmentWriter, UnitBuilder, UnitPlace, read_units};
use threadkeep_local::search::needle::Needle;
use threadkeep_local::search::scan::Scan;
use threadkeep_record::visible;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_rollout::source::Follow;

fn form(path: &Path) -> Form {
    match path.extension().and_then(|e| e.to_str()) {
        Some("zst") => Form::Zstd,
        Some("json") => Form::Json,
        _ => Form::Plain,
    }
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

/// Files with all that a scan can find, indexed into one segment.
struct Indexed {
    files: Vec<PathBuf>,
    segment: Segment<Vec<u8>>,
    places: Vec<UnitPlace>,
}

impl Indexed {
    fn of(files: Vec<PathBuf>) -> Self {
        let (mut builder, mut buffer, mut writer) = (UnitBuilder::new(), Vec::new(), SegmentWriter::new());
        for (owner, path) in files.iter().enumerate() {
            let units =
                read_units(path, form(path), Follow::Nothing, ReadFrom::Start, &mut builder, &mut buffer).unwrap();
            for unit in units.units {
                writer.push(owner as u64, unit).unwrap();
            }
        }
        let segment = Segment::open(writer.finish()).unwrap();
        let places = segment.places().unwrap();
        Self { files, segment, places }
    }

    /// Compares hint and scan for a term in some of the files; returns how many hits there were.
    fn check(&self, term: &str, owners: std::ops::Range<usize>) -> usize {
        let Some(query) = Query::new(term) else { return 0 };
        let found = self.segment.candidates(&query).unwrap();
        let mut count = 0;
        for case_sensitive in [false, true] {
            let needle = Needle::new(term, case_sensitive).unwrap();
            let scan = Scan { needle: &needle, speakers: &[], want: usize::MAX };
            for (owner, path) in self.files.iter().enumerate().take(owners.end).skip(owners.start) {
                let size = fs::metadata(path).unwrap().len();
                let (hits, problem) = scan.file(path, form(path), size, Follow::Nothing, &mut Vec::new());
                assert_eq!(problem, None);
                for hit in hits {
                    let at = hit.offset;
                    let here = |u: &UnitPlace| u.owner == owner as u64 && (u.start..u.end).contains(&at);
                    assert!(found.iter().any(|u| here(&self.places[u])), "{term:?} in {} at {at}", path.display());
                    count += 1;
                }
            }
        }
        count
    }
}

#[test]
fn every_hit_in_the_fixtures_lies_in_a_candidate() {
    let mut files = Vec::new();
    rollouts(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes"), &mut files);
    files.sort();
    let mut terms = Vec::new();
    for (owner, path) in files.iter().enumerate() {
        let mut lines = LineReader::open(path, form(path), Follow::Nothing, BUFFER).unwrap();
        let mut of_file = Vec::new();
        while let Some(line) = lines.next_line() {
            visible::texts(line.bytes, &mut visible::Scratch::default(), &mut |text| of_file.push(text.to_owned()));
        }
        // A few of each file, looked for there and in its neighbours: scanning takes its time.
        let step = of_file.len().div_ceil(3).max(1);
        for (n, text) in of_file.iter().step_by(step).enumerate() {
            let chars: Vec<char> = text.chars().collect();
            let from = chars.len() / (n + 2);
            let term: String = chars[from..].iter().take(4 + terms.len() % 9).collect();
            terms.push((owner, if terms.len() % 2 == 0 { term.to_uppercase() } else { term }));
        }
    }
    let indexed = Indexed::of(files);
    let hits: usize = terms.iter().map(|(owner, t)| indexed.check(t, *owner..owner + 2)).sum();
    assert!(hits > 500, "{hits}");
}

#[test]
fn hits_in_odd_records_lie_in_candidates() {
    let dir = tempfile::tempdir().unwrap();
    let wrap =
        |payload: &str| format!(r#"{{"timestamp":"2026-01-01T00:00:00.000Z","type":"event_msg","payload":{payload}}}"#);
    let said = |text: &str| wrap(&json!({"type": "agent_message", "message": text}).to_string());
    let filler = said(&"filler words ".repeat(8000));
    let long = said(&format!("{}needleinlong{}", "long ".repeat(1_000_000), "long ".repeat(900_000)));
    let mut lines: Vec<Vec<u8>> = vec![
        filler.clone().into_bytes(),
        [b"\0\0\0".as_slice(), said("needleinnul").as_bytes()].concat(),
        filler.clone().into_bytes(),
        [said("needlebefore \u{20ac}").as_bytes(), said("needleglued").as_bytes()].concat(),
        filler.clone().into_bytes(),
        format!("{}{}", &said("torn")[..70], said("needlebehind")).into_bytes(),
        filler.clone().into_bytes(),
        long.into_bytes(),
        wrap(r#"{"type":"agent_message","message":"\u006eeedle\u0065scaped \/slash"}"#).into_bytes(),
        filler.clone().into_bytes(),
        said("neeDLE\u{17f}\u{212a} folded").into_bytes(),
        filler.into_bytes(),
    ];
    let mut invalid = said("needleinvalid @ bytes").into_bytes();
    let at = invalid.iter().position(|b| *b == b'@').unwrap();
    invalid[at] = 0xff;
    lines.push(invalid);
    let plain = dir.path().join("rollout-a.jsonl");
    fs::write(&plain, lines.iter().flat_map(|l| [l.as_slice(), b"\r\n"].concat()).collect::<Vec<_>>()).unwrap();
    let object = dir.path().join("rollout-b.json");
    let items: Vec<_> = ["needleinitem", "other"]
        .map(|t| json!({"type":"message","role":"user","content":[{"type":"input_text","text":t}]}))
        .to_vec();
    fs::write(&object, json!({"session": {"id": "x"}, "items": items}).to_string()).unwrap();

    let indexed = Indexed::of(vec![plain, object]);
    let terms = [
        "needleinnul",
        "needlebefore",
        "needleglued",
        "needlebehind",
        "needleinlong",
        "needleescaped /slash",
        "NEEDLESK FOLDED",
        "needleinvalid \u{fffd}",
        "needleinitem",
        "filler",
    ];
    for term in terms {
        assert!(indexed.check(term, 0..2) > 0, "{term}");
    }
    let unknown = indexed.segment.units().unwrap().into_iter().filter(|(_, u)| u.contents == Contents::Unknown);
    assert_eq!(unknown.count(), 1);
    // Each of the odd ones stands in a unit of its own, so few are named.
    let found = indexed.segment.candidates(&Query::new("needleglued").unwrap()).unwrap();
    assert!(found.len() <= 2, "{found:?}");
}
