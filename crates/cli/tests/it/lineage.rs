//! One thread over several files: its history is the chain of bases and its own records.

use std::fs;

use serde_json::{Value, json};

use crate::{
    home::{Home, damage, ids},
    log::{Log, t},
};

const AT: &str = "2026-03-01T10:00:00Z";
const LATER: &str = "2026-03-05T10:00:00Z";

/// Where a base ends: behind the first `records` of `log`.
fn base(log: &Log, records: usize) -> Value {
    let bytes: usize = log.lines()[..records].iter().map(Vec::len).sum();
    json!({"thread_id": log.thread, "end_ordinal_exclusive": records, "end_byte_offset": bytes})
}

/// The name of a later segment of T1.
fn segment(day: u32, n: u32) -> String {
    format!("sessions/2026/03/{day:02}/rollout-2026-03-{day:02}T10-00-00-{}_{}.jsonl", t(1), t(900 + n))
}

/// T1: a header, three turns of four records each.
fn three_turns() -> Log {
    let log = Log::paginated(&t(1), AT).meta();
    (1..=3).fold(log, |log, n| log.turn(&format!("question-{n}-"), &format!("answer-{n}-")))
}

/// A later file of T1 that goes on behind `base`.
fn go_on(log: &Log, records: usize, at: &str, turn: u32) -> Log {
    let next = Log::paginated(&t(1), at).ordinal(records as u64).meta_with(json!({"history_base": base(log, records)}));
    next.turn(&format!("question-{turn}-"), &format!("answer-{turn}-"))
}

#[track_caller]
fn turns_are(home: &Home, thread: &str, expected: &[u32]) {
    let shown = home.show(&[thread]);
    let said = shown.said();
    assert_eq!(shown.turns().len(), expected.len(), "{said}");
    for (turn, n) in shown.turns().iter().zip(expected) {
        assert!(crate::home::said(turn).contains(&format!("question-{n}-")), "{expected:?}: {said}");
    }
    let numbers: Vec<u64> = shown.turns().iter().filter_map(|turn| turn["number"].as_u64()).collect();
    assert_eq!(numbers, (1..=expected.len() as u64).collect::<Vec<_>>());
}

/// Two files of one id: the older was taken for a copy or an orphan, or the thread came twice.
#[test]
fn b64_two_files_are_one_thread() {
    let home = Home::new();
    let old = three_turns();
    home.put(&old);
    let new = go_on(&old, 5, LATER, 9);
    home.put(&new);
    let out = home.list(&["--all", "--count"]);
    assert_eq!(out.ids(), ids([1]));
    let row = out.thread(&t(1));
    assert_eq!(row["preview"], "question-1-");
    assert_eq!(row["turns"], 2);
    assert_eq!(row["bytes"], old.len() + new.len());
    assert_eq!(row["created_at"], "2026-03-01T10:00:00.000Z");
    assert_eq!(row["updated_at"], crate::log::rfc3339(new.last()));
    let roles: Vec<&str> =
        row["files"].as_array().expect("files").iter().filter_map(|file| file["role"].as_str()).collect();
    assert_eq!(roles, ["head", "segment"]);
    assert_eq!(damage(row), 0);
    turns_are(&home, &t(1), &[1, 9]);
    for text in ["answer-1-", "answer-9-"] {
        assert_eq!(home.search(&[text]).hit_threads(), ids([1]), "{text}");
    }
}

/// The whole old file is the base; named as a segment, in another day, the old one in the archive or compressed.
#[test]
fn b64_segments_in_other_places() {
    let old = three_turns();
    let new = go_on(&old, 13, LATER, 9);
    let packed = zstd::encode_all(old.bytes().as_slice(), 3).expect("zstd");
    for place in 0..3 {
        let home = Home::new();
        match place {
            0 => home.put(&old),
            1 => home.put_zst(&old, &packed),
            _ => home.put_archived(&old),
        };
        home.put_at(&segment(5, 1), &new);
        let out = home.list(&["--all", "--count"]);
        assert_eq!(out.ids(), ids([1]), "{place}");
        assert_eq!(out.thread(&t(1))["turns"], 4, "{place}");
        turns_are(&home, &t(1), &[1, 2, 3, 9]);
        assert_eq!(home.search(&["answer-2-"]).hits().len(), 1);
    }
}

/// Three files, each going on behind a part of the one before.
#[test]
fn b64_a_chain_of_three() {
    let home = Home::new();
    let first = three_turns();
    home.put(&first);
    let second = go_on(&first, 9, "2026-03-04T10:00:00Z", 5).turn("question-6-", "answer-6-");
    home.put_at(&segment(4, 1), &second);
    // The base of the third ends in the second file: five records of its own behind the nine of the first.
    let bytes: usize = second.lines()[..5].iter().map(Vec::len).sum();
    let base = json!({"thread_id": t(1), "end_ordinal_exclusive": 14, "end_byte_offset": bytes});
    let third = Log::paginated(&t(1), "2026-03-06T10:00:00Z").ordinal(14).meta_with(json!({"history_base": base}));
    home.put_at(&segment(6, 2), &third.turn("question-7-", "answer-7-"));
    assert_eq!(home.list(&["--all", "--count"]).thread(&t(1))["turns"], 4);
    turns_are(&home, &t(1), &[1, 2, 5, 7]);
    // And a fourth that goes back into the first file, over the heads of the others.
    home.put_at(&segment(7, 3), &go_on(&first, 5, "2026-03-07T10:00:00Z", 8));
    turns_are(&home, &t(1), &[1, 8]);
    assert_eq!(home.list(&["--all"]).thread(&t(1))["files"].as_array().map(Vec::len), Some(4));
}

/// Codex 0.171 names a segment by its own id where it is the base of a second revert or of a fork; only a thread's
/// first rollout has the thread's id. Both were shown as damaged, without their turns.
#[test]
fn b64_a_base_names_a_segment_by_its_own_id() {
    for packed in [false, true] {
        let home = Home::new();
        let first = three_turns();
        home.put(&first);
        let second = go_on(&first, 9, "2026-03-04T10:00:00Z", 5).turn("question-6-", "answer-6-");
        let place = segment(4, 1);
        if packed {
            let bytes = zstd::encode_all(second.bytes().as_slice(), 3).expect("zstd");
            home.put_bytes(&format!("{place}.zst"), &bytes, second.last());
        } else {
            home.put_at(&place, &second);
        }
        let bytes: usize = second.lines()[..5].iter().map(Vec::len).sum();
        let base = json!({"thread_id": t(901), "end_ordinal_exclusive": 14, "end_byte_offset": bytes});
        let third = Log::paginated(&t(1), "2026-03-06T10:00:00Z").ordinal(14).meta_with(json!({"history_base": base}));
        let fork = Log::paginated(&t(2), "2026-03-05T10:00:00Z")
            .ordinal(14)
            .meta_with(json!({"history_base": base, "forked_from_id": t(1)}));
        home.put(&fork.turn("question-8-", "answer-8-"));
        turns_are(&home, &t(2), &[1, 2, 5, 8]);
        home.put_at(&segment(6, 2), &third.turn("question-7-", "answer-7-"));
        turns_are(&home, &t(1), &[1, 2, 5, 7]);
        // What the third file took back is still what the fork refers to.
        turns_are(&home, &t(2), &[1, 2, 5, 8]);
        let out = home.list(&["--all", "--count"]);
        assert_eq!((out.thread(&t(1))["turns"].as_u64(), out.thread(&t(2))["turns"].as_u64()), (Some(4), Some(4)));
        assert_eq!((damage(out.thread(&t(1))), damage(out.thread(&t(2)))), (0, 0), "{packed}");
    }
}

/// The older file is gone: the rest is shown, and what is missing is told.
#[test]
fn b64_a_segment_without_its_base() {
    let home = Home::new();
    let old = three_turns();
    home.put_at(&segment(5, 1), &go_on(&old, 5, LATER, 9));
    home.put(&Log::healthy(&t(2), AT));
    let out = home.list(&["--all"]);
    assert_eq!(out.set(), ids([1, 2]));
    assert!(damage(out.thread(&t(1))) > 0, "{out:?}");
    assert!(home.show(&[&t(1)]).said().contains("answer-9-"));
    assert_eq!(home.search(&["answer-9-"]).hit_threads(), ids([1]));
}

/// Bases that end beyond the file, inside a record, before the header, at nonsense.
#[test]
fn b64_bases_that_do_not_fit() {
    let old = three_turns();
    let wrong = [
        json!({"thread_id": t(1), "end_ordinal_exclusive": 500, "end_byte_offset": 9_999_999}),
        json!({"thread_id": t(1), "end_ordinal_exclusive": 5, "end_byte_offset": 17}),
        json!({"thread_id": t(1), "end_ordinal_exclusive": 0, "end_byte_offset": 0}),
        json!({"thread_id": t(1), "end_ordinal_exclusive": "x"}),
        json!({"thread_id": "nobody"}),
        json!([]),
    ];
    for base in wrong {
        let home = Home::new();
        home.put(&old);
        let new = Log::paginated(&t(1), LATER).ordinal(13).meta_with(json!({"history_base": base}));
        home.put_at(&segment(5, 1), &new.turn("question-9-", "answer-9-"));
        home.put(&Log::healthy(&t(2), AT));
        assert_eq!(home.list(&["--all"]).set(), ids([1, 2]), "{base}");
        assert!(home.show(&[&t(1)]).said().contains("answer-9-"), "{base}");
        assert_eq!(home.search(&["answer-9-"]).hit_threads(), ids([1]), "{base}");
        assert_eq!(home.search(&["answer-1-"]).hit_threads(), ids([1]), "{base}");
    }
}

/// A fork of T1 by reference: it holds only its own records.
fn fork(parent: &Log, records: usize, id: u32, at: &str) -> Log {
    let fields = json!({
        "forked_from_id": parent.thread, "forked_from_ordinal_exclusive": records, "history_base": base(parent, records),
    });
    let turn = |n: u32| format!("question-{n}-");
    Log::paginated(&t(id), at)
        .ordinal(records as u64)
        .meta_with(fields)
        .turn(&turn(id * 10), &format!("answer-{}-", id * 10))
}

/// A fork read without its parent's part lost what it was about.
#[test]
fn b64_a_fork_by_reference_reads_its_parent() {
    let home = Home::new();
    let parent = three_turns();
    home.put(&parent);
    let child = fork(&parent, 9, 2, LATER);
    home.put(&child);
    home.put(&fork(&parent, 5, 3, LATER));
    let out = home.list(&["--count"]);
    assert_eq!(out.set(), ids([1, 2, 3]));
    let row = out.thread(&t(2));
    assert_eq!(row["forked_from_id"], t(1));
    assert_eq!((&row["turns"], damage(row)), (&json!(3), 0));
    assert_eq!(row["bytes"], child.len(), "its own files");
    turns_are(&home, &t(1), &[1, 2, 3]);
    turns_are(&home, &t(2), &[1, 2, 20]);
    turns_are(&home, &t(3), &[1, 30]);
    assert_eq!(home.search(&["answer-1-"]).hit_threads(), ids([1]), "what the parent said is the parent's hit");
    assert_eq!(home.search(&["answer-20-"]).hit_threads(), ids([2]));
}

/// A fork of a fork, its middle in the archive.
#[test]
fn b64_a_fork_of_a_fork() {
    let home = Home::new();
    let first = three_turns();
    home.put(&first);
    let second = fork(&first, 9, 2, "2026-03-04T10:00:00Z");
    home.put_archived(&second);
    let fields = json!({
        "forked_from_id": t(2), "forked_from_ordinal_exclusive": 14,
        "history_base": {"thread_id": t(2), "end_ordinal_exclusive": 14, "end_byte_offset": second.len()},
    });
    let third = Log::paginated(&t(3), LATER).ordinal(14).meta_with(fields).turn("question-30-", "answer-30-");
    home.put(&third);
    assert_eq!(home.list(&["--all"]).set(), ids([1, 2, 3]));
    turns_are(&home, &t(3), &[1, 2, 20, 30]);
}

/// The parent was deleted by hand: the fork could not be read at all.
#[test]
fn b103_a_fork_by_reference_without_its_parent() {
    let home = Home::new();
    let parent = three_turns();
    home.put(&fork(&parent, 9, 2, LATER));
    home.put(&Log::healthy(&t(4), AT));
    for _ in 0..3 {
        let out = home.list(&[]);
        assert_eq!(out.set(), ids([2, 4]));
        let row = out.thread(&t(2));
        assert_eq!(row["forked_from_id"], t(1));
        assert!(damage(row) > 0, "the parent that is missing is told: {row}");
        let shown = home.show(&[&t(2)]);
        assert!(shown.said().contains("answer-20-"));
        assert_eq!(
            shown.json["thread"]["turns"],
            home.list(&["--count"]).thread(&t(2))["turns"],
            "one answer everywhere"
        );
        assert_eq!(home.search(&["answer-20-"]).hit_threads(), ids([2]));
        assert_eq!(home.run(&["resume", &t(2)]).json["thread_id"], t(2));
    }
}

/// Bases that go in a circle, or to themselves, end.
#[test]
fn b64_circles_of_bases_end() {
    let home = Home::new();
    let to = |id: u32| json!({"forked_from_id": t(id), "history_base": {"thread_id": t(id), "end_ordinal_exclusive": 5, "end_byte_offset": 900}});
    for (n, base) in [(1, 2), (2, 3), (3, 1), (4, 4)] {
        let log = Log::paginated(&t(n), AT).ordinal(5).meta_with(to(base));
        home.put(&log.turn(&format!("question-{n}-"), &format!("answer-{n}-")));
    }
    let out = home.list(&["--all"]);
    assert_eq!(out.set(), ids(1..=4));
    for n in 1..=4 {
        assert!(home.show(&[&t(n)]).said().contains(&format!("answer-{n}-")));
        assert_eq!(home.search(&[&format!("answer-{n}-")]).hit_threads(), ids([n]));
    }
}

/// Base and segment both compressed, the segment in many frames; and the raw bytes of one file by its path.
#[test]
fn b64_compressed_segments() {
    let home = Home::new();
    let old = three_turns();
    home.put_zst(&old, &zstd::encode_all(old.bytes().as_slice(), 3).expect("zstd"));
    let new = go_on(&old, 5, LATER, 9);
    let frames: Vec<u8> =
        new.lines().iter().flat_map(|line| zstd::encode_all(line.as_slice(), 3).expect("zstd")).collect();
    home.put_bytes(&format!("{}.zst", segment(5, 1)), &frames, new.last());
    assert_eq!(home.list(&["--all"]).ids(), ids([1]));
    turns_are(&home, &t(1), &[1, 9]);
    let path = home.file(&format!("{}.zst", segment(5, 1)));
    assert_eq!(home.show(&[path.to_str().expect("UTF-8")]).json["thread"]["id"], t(1));
    fs::remove_file(path).expect("gone");
    turns_are(&home, &t(1), &[1, 2, 3]);
}
