//! Promise 2: what is read can be written again byte for byte. Every line of every fixture home, through the line
//! reader and through the envelope, forwards and backwards.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use threadkeep_record::{Envelope, LineState, Shape, check_line, sniff};
use threadkeep_rollout::records::LineReader;
use threadkeep_rollout::reverse::ReverseReader;
use threadkeep_rollout::source::{Follow, open_stream};
use threadkeep_rollout::walk::walk;
use threadkeep_rollout::{Form, Home};

fn fixture_homes() -> Vec<Home> {
    let homes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes");
    let mut homes: Vec<Home> = homes.read_dir().unwrap().map(|e| Home::new(e.unwrap().path())).collect();
    homes.sort_by(|a, b| a.path().cmp(b.path()));
    assert_eq!(homes.len(), 8, "one home for each release");
    homes
}

#[test]
fn every_record_of_every_fixture_survives() {
    let mut files = 0;
    let mut records = 0;
    for home in fixture_homes() {
        let found = walk(home.path());
        assert!(found.problems.is_empty());
        for entry in found.files {
            let path = home.absolute(&entry.path());
            let mut whole = Vec::new();
            open_stream(&path, entry.name.form, Follow::Nothing).unwrap().read_to_end(&mut whole).unwrap();
            // A small and a large buffer cut the file in different places.
            for buffer in [300, 128 << 10] {
                let mut again = Vec::new();
                let mut lines = LineReader::open(&path, entry.name.form, Follow::Nothing, buffer).unwrap();
                while let Some(line) = lines.next_line() {
                    assert_eq!(line.offset, again.len() as u64);
                    again.extend_from_slice(line.bytes);
                    if line.terminated {
                        again.push(b'\n');
                    }
                    records += 1;
                    check_record(line.bytes);
                }
                assert!(again == whole, "{}", path.display());
            }
            if entry.name.form == Form::Plain {
                let file = File::open(&path).unwrap();
                let mut reader = ReverseReader::new(&file, entry.size, 700);
                let mut backwards = Vec::new();
                while let Some(line) = reader.next_line().unwrap() {
                    backwards.push([line.bytes, if line.terminated { b"\n" } else { b"" }].concat());
                }
                backwards.reverse();
                assert!(backwards.concat() == whole, "{} backwards", path.display());
            }
            files += 1;
        }
    }
    assert_eq!((files, records > 5000), (207, true), "all fixtures were read: {files} files, {records} records");
}

/// The envelope borrows its payload from the line, whatever its kind: nothing is re-spelt on the way.
fn check_record(line: &[u8]) {
    let LineState::Record(record) = check_line(line) else { panic!("a damaged line in a fixture") };
    let envelope = Envelope::parse(record).expect("an envelope");
    let payload = envelope.payload.as_bytes();
    let at = payload.as_ptr() as usize - record.as_ptr() as usize;
    assert_eq!(&record[at..at + payload.len()], payload);
    if let Some(s) = sniff::sniff(record) {
        assert_eq!(
            (s.kind, s.ordinal, s.payload_at),
            (envelope.kind, envelope.ordinal, at),
            "the prefix tells the same"
        );
        assert_eq!(Some(s.timestamp), envelope.timestamp.as_deref().map(str::as_bytes));
    } else {
        assert_eq!(envelope.shape, Shape::Bare, "wrapped records of released binaries are told by their prefix");
    }
}
