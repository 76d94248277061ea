//! What is kept for lists and searches, and what changes when it is kept again.

mod common;

use std::path::PathBuf;

use common::{home, id, memory};
use threadkeep_index::listed::{Changed, Cut, Finished, Keep, Known, Listed};
use threadkeep_index::text::{Query, SegmentWriter, UnitBuilder};
use threadkeep_index::texts::{NewSegment, TextFile};
use threadkeep_index::{Index, IndexOptions, IndexPlace};
use threadkeep_rollout::Home;
use threadkeep_rollout::walk::{FolderMark, FolderNames};

fn keep(n: u8, row: &str) -> Keep {
    Keep {
        listed: Listed {
            thread: id(n),
            print: u64::MAX - u64::from(n),
            known: Known::Ends,
            updated_at: i64::from(n) * 10,
            created_at: -1,
            recency_at: 0,
            mtime: i64::MAX,
            facet: 0,
            row: 0,
            parent: (n > 1).then(|| id(1)),
        },
        facet: format!("facet {}", n % 2),
        row: row.into(),
        preview: (n != 3).then(|| format!("preview {n}")),
        cut: if n == 2 { Cut::Yes } else { Cut::No },
        depends: vec![id(n + 100)],
        touched: vec![format!("/w/{n}.rs"), "/w/all.rs".into()],
    }
}

fn changed(added: u64, fixed: u64, dropped: u64) -> Changed {
    Changed { added, fixed, dropped }
}

#[test]
fn what_was_kept_is_read_again() {
    let index = memory("/nowhere");
    let all: Vec<Keep> = (1..=4).rev().map(|n| keep(n, "row")).collect();
    assert_eq!(index.compare(&all).unwrap(), changed(4, 0, 0));
    assert_eq!(index.keep(&all, &[], Finished::NotYet).unwrap(), changed(4, 0, 0));
    let listing = index.listing().unwrap();
    assert!(!listing.whole);
    assert_eq!(listing.threads.iter().map(|l| l.thread).collect::<Vec<_>>(), [id(1), id(2), id(3), id(4)]);
    for (l, n) in listing.threads.iter().zip(1..) {
        let k = keep(n, "");
        assert_eq!(*l, Listed { facet: l.facet, row: l.row, ..k.listed });
        assert_eq!(listing.facets[&l.facet], k.facet);
    }
    assert_eq!(listing.facets.len(), 2, "threads share what filters ask");
    let numbers: Vec<i64> = listing.threads.iter().map(|l| l.row).chain([999]).collect();
    let rows = index.rows(&numbers).unwrap();
    assert_eq!(rows[0], Some(("row".into(), Some("preview 1".into()))));
    assert_eq!(rows[2], Some(("row".into(), None)));
    assert_eq!(rows[4], None);
    let mut previews = Vec::new();
    index.previews(|row, text, cut| previews.push((row, text.to_owned(), cut))).unwrap();
    previews.sort_by(|a, b| a.1.cmp(&b.1));
    assert_eq!(
        previews.iter().map(|p| (p.1.as_str(), p.2)).collect::<Vec<_>>(),
        [("preview 1", Cut::No), ("preview 2", Cut::Yes), ("preview 4", Cut::No)]
    );
    assert_eq!(index.dependents(&[id(102), id(7)]).unwrap(), [numbers[1]]);
    let mut touching = index.touching(|path| path.ends_with("all.rs") || path == "/w/2.rs").unwrap();
    touching.sort_unstable();
    touching.dedup();
    let mut expected = numbers[..4].to_vec();
    expected.sort_unstable();
    assert_eq!(touching, expected);
    assert_eq!(index.touching(|path| path == "/w/2.rs").unwrap(), [numbers[1]]);
}

#[test]
fn keeping_again_tells_what_is_different() {
    let index = memory("/nowhere");
    index.keep(&[keep(1, "a"), keep(2, "b")], &[], Finished::Yes).unwrap();
    assert!(index.listing().unwrap().whole);
    assert_eq!(index.keep(&[keep(1, "a")], &[], Finished::NotYet).unwrap(), changed(0, 0, 0));
    // Another print alone is no other word of the thread.
    let mut moved = keep(1, "a");
    moved.listed.print = 5;
    moved.touched = vec!["/w/new.rs".into()];
    moved.depends.clear();
    assert_eq!(index.keep(&[moved], &[], Finished::NotYet).unwrap(), changed(0, 0, 0));
    assert_eq!(index.listing().unwrap().threads[0].print, 5);
    assert!(index.touching(|path| path == "/w/1.rs").unwrap().is_empty());
    assert!(index.dependents(&[id(101)]).unwrap().is_empty());
    assert_eq!(index.compare(&[keep(1, "other")]).unwrap(), changed(0, 1, 0));
    assert_eq!(index.keep(&[keep(1, "other")], &[id(2), id(9)], Finished::NotYet).unwrap(), changed(0, 1, 1));
    // More of it was read: that is no correction.
    let mut whole = keep(1, "with turns");
    whole.listed.known = Known::Whole;
    assert_eq!(index.keep(&[whole], &[], Finished::NotYet).unwrap(), changed(0, 0, 0));
    let listing = index.listing().unwrap();
    assert_eq!((listing.threads.len(), listing.threads[0].known, listing.whole), (1, Known::Whole, true));
    assert_eq!(index.count_listed(&[id(1), id(2)]).unwrap(), 1);
    index.forget_listing().unwrap();
    let listing = index.listing().unwrap();
    assert!(listing.threads.is_empty() && !listing.whole);
}

#[test]
fn folders_are_remembered() {
    let index = memory("/nowhere");
    let names = |ino| FolderNames {
        mark: FolderMark { dev: u64::MAX, ino, mtime_ns: -5, ctime_ns: i64::MIN },
        files: b"rollout-a.jsonl\0".to_vec(),
        folders: vec![0xff, 0],
    };
    let folders = [(PathBuf::from("sessions"), names(1)), (PathBuf::from("sessions/2026"), names(2))];
    index.keep_folders(folders.iter()).unwrap();
    let again = [(PathBuf::from("sessions"), names(3)), (PathBuf::from("/etc"), names(4))];
    index.keep_folders(again.iter()).unwrap();
    let read = index.folders().unwrap();
    assert_eq!(read.len(), 2, "what is not in the home is not believed");
    assert_eq!((&read[&again[0].0], &read[&folders[1].0]), (&names(3), &names(2)));
}

/// A segment about one file with one message.
fn segment(owner: u64, text: &str) -> (Vec<u8>, u64) {
    let line = format!(
        r#"{{"timestamp":"2026-03-01T10:00:00.000Z","type":"event_msg","payload":{{"type":"user_message","message":"{text}"}}}}"#
    ) + "\n";
    let mut builder = UnitBuilder::new();
    builder.begin(0);
    builder.lines(0, line.as_bytes());
    let mut writer = SegmentWriter::new();
    for unit in builder.finish() {
        writer.push(owner, unit).unwrap();
    }
    (writer.finish(), line.len() as u64)
}

fn file(owner: u64, print: u64, read_to: u64) -> TextFile {
    TextFile { owner, print, identity: (1, owner * 7), read_to, check: u64::MAX }
}

#[test]
fn texts_are_kept_in_segments() {
    let dir = home();
    let place = IndexPlace::Home;
    let open = || {
        Index::open(IndexOptions {
            home: Home::new(dir.path()),
            place: place.clone(),
            busy: std::time::Duration::from_secs(5),
        })
        .unwrap()
    };
    let index = open();
    let query = |text: &str| Query::new(text).unwrap();
    assert_eq!(index.next_text_owner().unwrap(), 1);
    for (owner, text) in [(1, "narwhals sing"), (2, "zebras run")] {
        let (bytes, end) = segment(owner, text);
        let new = NewSegment { bytes: &bytes, units: 1 };
        index.keep_text(Some(new), &[file(owner, owner + 50, end)], &[]).unwrap();
    }
    let index = {
        drop(index);
        open()
    };
    let found = index.text_candidates(&query("ZEBRA")).unwrap().unwrap();
    assert!(found.of(1).is_empty() && found.of(2).len() == 1 && found.bytes > 0);
    assert!(index.text_candidates(&query("unheard of")).unwrap().unwrap().bytes == 0);
    let files = index.text_files().unwrap();
    assert_eq!((files.len(), files.get(51).map(|f| f.owner), files.get(1)), (2, Some(1), None));
    assert_eq!(files.of((1, 14)).collect::<Vec<_>>(), [&file(2, 52, files.get(52).unwrap().read_to)]);
    // A number is not given again, even where its file is forgotten.
    index.keep_text(None, &[], &[2]).unwrap();
    assert_eq!((index.count_text_files().unwrap(), index.next_text_owner().unwrap()), (1, 3));
    // Put together.
    let small = index.small_text_segments(100).unwrap();
    assert_eq!(small.len(), 2);
    let (bytes, _) = segment(1, "narwhals sing");
    let old: Vec<i64> = small.iter().map(|s| s.0).collect();
    index.replace_text_segments(&old, &[NewSegment { bytes: &bytes, units: 1 }]).unwrap();
    assert_eq!(index.text_size().unwrap(), (1, bytes.len() as u64));
    assert!(index.text_candidates(&query("zebra")).unwrap().unwrap().bytes == 0);
    // A segment that is damaged, or of which blocks are missing, says so: everything is scanned.
    for sql in ["UPDATE text_blocks SET bytes = x'00'", "DELETE FROM text_blocks"] {
        let path = dir.path().join("threadkeep/index.sqlite");
        rusqlite::Connection::open(path).unwrap().execute_batch(sql).unwrap();
        assert!(index.text_candidates(&query("narwhal")).unwrap().is_none(), "{sql}");
    }
    index.forget_texts().unwrap();
    assert!(index.text_files().unwrap().is_empty());
}
