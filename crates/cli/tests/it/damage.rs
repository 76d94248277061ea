//! One bad record costs one record: everything else of the thread is listed, read and found, and the damage is told.

use std::fs;

use serde_json::{Value, json};

use crate::{
    home::{Home, damage, ids},
    log::{Log, Shape, rfc3339, t},
};

const AT: &str = "2026-03-01T10:00:00Z";
const SHAPES: [Shape; 2] = [Shape::Legacy, Shape::Paginated];

/// `count` messages, the user's and the agent's in turn, each with its number.
fn talk(log: Log, numbers: std::ops::RangeInclusive<u32>) -> Log {
    numbers
        .fold(log, |log, n| if n % 2 == 1 { log.user(&format!("said-{n}-")) } else { log.agent(&format!("said-{n}-")) })
}

#[track_caller]
fn says(home: &Home, numbers: impl IntoIterator<Item = u32>) {
    let said = home.show(&[&t(1)]).said();
    for n in numbers {
        assert!(said.contains(&format!("said-{n}-")), "message {n} is lost: {said}");
    }
}

/// The first damaged place that the row of T1 tells: how many, line and byte.
#[track_caller]
fn first_damage(home: &Home) -> (u64, Value, Value) {
    let out = home.list(&["--all"]);
    let row = out.thread(&t(1));
    let first = &row["damage"]["first"][0];
    assert!(first["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{row}");
    assert_eq!(first["path"], row["files"][0]["path"]);
    assert_eq!(home.show(&[&t(1)]).json["thread"]["damage"], row["damage"], "list and show agree");
    (damage(row), first["line"].clone(), first["offset"].clone())
}

/// A record that was written by halves, and then whole: the thread disappeared.
#[test]
fn b30_half_a_record_in_the_middle() {
    for shape in SHAPES {
        let home = Home::new();
        let log = talk(Log::shaped(shape, &t(1), AT).meta(), 1..=9);
        let offset = log.len();
        let record = log.clone().agent(&format!("said-10-{}", "x".repeat(300))).lines()[10].clone();
        let log = log.raw(&record[..200]).raw(b"\n").raw(&record).ordinal(11);
        home.put(&talk(log, 11..=14));
        assert_eq!(first_damage(&home), (1, json!(11), json!(offset)), "{shape:?}");
        says(&home, 1..=14);
        assert_eq!(home.search(&["said-10-"]).hit_threads(), ids([1]));
    }
}

/// Other lines that are no records, in several places: each costs itself.
#[test]
fn b30_other_lines_that_are_no_records() {
    let bad: [&[u8]; 8] = [
        b"%%% not json\n", b"{}\n", b"[1,2]\n", b"null\n", b"\"text\"\n", b"{\"timestamp\":\"x\",\"type\":\"event_msg\"\n",
        b"{\"timestamp\":\"2026-03-01T10:00:00.000Z\",\"type\":\"event_msg\",\"payload\":{\"type\":\"agent_message\",\"message\":\"\xff\xc3\"}}\n",
        b"{\"timestamp\":\"2026-03-01T10:00:00.000Z\",\"type\":\"event_msg\",\"payload\":{}}}}\n",
    ];
    for bad in bad {
        let home = Home::new();
        let log = talk(Log::new(&t(1), AT).meta(), 1..=4).raw(bad);
        home.put(&talk(talk(log, 5..=6).raw(bad), 7..=8));
        home.put(&Log::healthy(&t(2), AT));
        assert_eq!(home.list(&[]).set(), ids([1, 2]), "{}", bad.escape_ascii());
        says(&home, 1..=8);
        assert_eq!(home.search(&["said-7-"]).hit_threads(), ids([1]));
    }
}

/// A file cut in its last record: nothing was loaded.
#[test]
fn b31_torn_tail() {
    for shape in SHAPES {
        let log = talk(Log::shaped(shape, &t(1), AT).meta(), 1..=4);
        let start = log.len();
        let whole = log.clone().agent("said-5-ééé").bytes();
        for cut in [start + 1, start + 60, whole.len() - 6, whole.len() - 2] {
            let home = Home::new();
            home.put_bytes(&log.active_path(), &whole[..cut], log.last());
            let (records, line, offset) = first_damage(&home);
            assert_eq!((records, line, offset), (1, json!(6), json!(start)), "{shape:?} cut at {cut}");
            says(&home, 1..=4);
            let out = home.list(&[]);
            assert_eq!(out.thread(&t(1))["updated_at"], rfc3339(log.last()));
        }
    }
}

/// A last record that only lacks its line end is a whole record.
#[test]
fn b31_no_final_line_end_is_no_damage() {
    for shape in SHAPES {
        let home = Home::new();
        let log = talk(Log::shaped(shape, &t(1), AT).meta(), 1..=4);
        let bytes = log.bytes();
        home.put_bytes(&log.active_path(), &bytes[..bytes.len() - 1], log.last());
        let out = home.list(&["--count"]);
        let row = out.thread(&t(1));
        assert_eq!((damage(row), &row["records"]), (0, &json!(5)));
        assert_eq!(row["updated_at"], rfc3339(log.last()));
        says(&home, 1..=4);
    }
}

/// History ended at a bad line in the middle, and the age was that line's.
#[test]
fn b33_bad_line_in_the_middle_of_a_long_thread() {
    let home = Home::new();
    let log = talk(Log::new(&t(1), AT).meta(), 1..=38);
    let offset = log.len();
    let log = talk(log.raw(b"{\"a\":\n"), 40..=98).at("2026-03-04T10:00:00Z");
    home.put(&talk(log, 99..=99));
    assert_eq!(first_damage(&home), (1, json!(40), json!(offset)));
    let out = home.list(&["--count"]);
    let row = out.thread(&t(1));
    assert_eq!(row["records"], 99);
    assert_eq!(row["updated_at"], "2026-03-04T10:00:00.000Z");
    says(&home, (1..=38).chain(40..=99));
}

/// NUL bytes after a crash: the session was hidden, or read to there only.
#[test]
fn b34_nul_runs() {
    for shape in SHAPES {
        let home = Home::new();
        let log = talk(Log::shaped(shape, &t(1), AT).meta(), 1..=18);
        let mut twentieth = log.clone().user("said-19-").lines()[19].clone();
        twentieth.pop();
        twentieth.extend_from_slice(&[0; 9_000]);
        twentieth.push(b'\n');
        let log = talk(log.raw(&twentieth), 20..=22);
        home.put(&log.clone().raw(&vec![0; 140_000]));
        says(&home, 1..=22);
        assert_eq!(home.search(&["said-19-"]).hit_threads(), ids([1]));
        let out = home.list(&[]);
        let row = out.thread(&t(1));
        assert_eq!(row["preview"], "said-1-");
        assert_eq!(row["updated_at"], rfc3339(log.last()));
    }
}

/// A line of NULs only, and NULs in front of a record, as after an append behind a hole.
#[test]
fn b34_nul_lines_and_holes() {
    let home = Home::new();
    let log = talk(Log::new(&t(1), AT).meta(), 1..=4).raw(&[0; 500]).raw(b"\n");
    let log = talk(log, 5..=6).raw(&[0; 700]);
    home.put(&talk(log, 7..=9));
    says(&home, 1..=9);
    for n in [6, 7, 9] {
        assert_eq!(home.search(&[&format!("said-{n}-")]).hit_threads(), ids([1]));
    }
    assert_eq!(home.list(&[]).thread(&t(1))["preview"], "said-1-");
}

/// A whole last record and NULs behind it, as a crash leaves a file that had grown: the record is kept by every reader.
#[test]
fn b34_nuls_behind_the_last_record() {
    for shape in SHAPES {
        for (before, after) in
            [(&b""[..], &[0; 131][..]), (b"\n", &[0; 131]), (b"", b"\0"), (b"\0\0", b"\0\n"), (b"", &[0; 70_000])]
        {
            let home = Home::new();
            let log = talk(Log::shaped(shape, &t(1), AT).meta(), 1..=3);
            let mut bytes = log.bytes();
            bytes.pop();
            home.put_bytes(&log.active_path(), &[&bytes, before, after].concat(), log.last());
            says(&home, 1..=3);
            assert_eq!(home.search(&["said-3-"]).hit_threads(), ids([1]));
            let out = home.list(&["--count"]);
            let row = out.thread(&t(1));
            assert_eq!((&row["records"], &row["turns"]), (&json!(4), &json!(2)), "{shape:?}");
            assert_eq!(row["updated_at"], rfc3339(log.last()));
            assert_eq!(home.show(&[&t(1)]).turns().len(), 2, "{shape:?} {} {}", before.escape_ascii(), after.len());
        }
    }
}

/// Unicode's line separators ended a record; only a line feed does.
#[test]
fn b35_only_a_line_feed_ends_a_record() {
    for shape in SHAPES {
        let home = Home::new();
        let text = "a\u{2028}b\u{2029}c\u{85}d";
        let log = Log::shaped(shape, &t(1), AT).meta().user(text).agent("x\u{b}y\u{c}z");
        assert!(log.lines()[1].windows(3).any(|bytes| bytes == "\u{2028}".as_bytes()), "raw, not escaped");
        home.put(&log);
        let out = home.list(&["--count"]);
        let row = out.thread(&t(1));
        assert_eq!((damage(row), &row["records"]), (0, &json!(3)));
        assert_eq!(row["first_user_message"], text);
        assert!(home.show(&[&t(1)]).said().contains(text));
        assert_eq!(home.search(&["b\u{2029}c"]).hit_threads(), ids([1]));
    }
}

/// CRLF line ends are tolerated.
#[test]
fn b35_carriage_returns() {
    for shape in SHAPES {
        let home = Home::new();
        let log = talk(Log::shaped(shape, &t(1), AT).meta(), 1..=4);
        let bytes = String::from_utf8(log.bytes()).expect("UTF-8").replace('\n', "\r\n");
        home.put_bytes(&log.active_path(), bytes.as_bytes(), log.last());
        let out = home.list(&["--count"]);
        let row = out.thread(&t(1));
        assert_eq!((damage(row), &row["records"]), (0, &json!(5)));
        says(&home, 1..=4);
    }
}

/// A very long line stopped the reader without a word.
#[test]
fn b37_long_lines() {
    for size in [1_048_577, 5_000_000, 45_000_000] {
        let home = Home::new();
        let long = format!("{}tail-of-output", "y".repeat(size - 14));
        let log = Log::new(&t(1), AT).meta().user("before").call("c1", "cat big").out("c1", &long);
        home.put(&log.agent("after the long line"));
        let out = home.list(&[]);
        let row = out.thread(&t(1));
        assert_eq!((damage(row), &row["preview"]), (0, &json!("before")));
        assert_eq!(home.search(&["after the long line"]).hit_threads(), ids([1]));
        assert_eq!(home.search(&["tail-of-output"]).speakers(), ["tool_output"]);
        let shown = home.show(&[&t(1), "--last", "1"]);
        assert!(shown.said().contains("after the long line"));
        let human = home.human(&["show", &t(1)]);
        assert!(
            human.stdout.contains("after the long line") && human.stdout.len() < 100_000,
            "folded: {}",
            human.stdout.len()
        );
    }
}

/// A repeated ordinal froze everything that followed.
#[test]
fn b39_repeated_ordinals() {
    let home = Home::new();
    let log = Log::paginated(&t(1), AT).meta().task_started().tok(5).ordinal(2).set();
    home.put(&log.task_started().user("new").agent("x answer"));
    let shown = home.show(&[&t(1)]);
    assert!(shown.said().contains("new") && shown.said().contains("x answer"));
    assert_eq!(home.search(&["x answer"]).hit_threads(), ids([1]));
    let out = home.list(&[]);
    let row = out.thread(&t(1));
    assert_eq!(row["preview"], "new");
    assert_eq!(row["damage"]["first"][0]["line"], 4, "the repeat is told: {row}");
}

/// Ordinals with gaps, going back, missing and beyond every number.
#[test]
fn b39_other_broken_ordinals() {
    let home = Home::new();
    let log = Log::paginated(&t(1), AT).meta().task_started().user("said-1-").ordinal(900).agent("said-2-");
    let log = log.ordinal(4).user("said-3-").raw(
        b"{\"timestamp\":\"2026-03-01T10:01:00.000Z\",\"ordinal\":\"x\",\"type\":\"event_msg\",\"payload\":{\"type\":\"agent_message\",\"message\":\"said-4-\"}}\n",
    );
    let log = log.raw(
        b"{\"timestamp\":\"2026-03-01T10:01:00.000Z\",\"ordinal\":99999999999999999999,\"type\":\"event_msg\",\"payload\":{\"type\":\"agent_message\",\"message\":\"said-5-\"}}\n",
    );
    home.put(&log.raw(
        b"{\"timestamp\":\"2026-03-01T10:01:01.000Z\",\"type\":\"event_msg\",\"payload\":{\"type\":\"agent_message\",\"message\":\"said-6-\"}}\n",
    ));
    says(&home, [1, 2, 3, 6]);
    assert_eq!(home.list(&[]).thread(&t(1))["preview"], "said-1-");
}

/// A record that the reader does not understand took its ordinal, and its bytes, with it.
#[test]
fn b41_records_of_unknown_shape_are_kept() {
    let home = Home::new();
    let log = Log::paginated(&t(1), AT).meta().turn("question", "answer").event(json!({
        "type": "token_count", "total_token_usage": {"total_tokens": 5}, "unknown": {"deep": [1, 2.50, "\u{e9}"]},
        "rate_limits": {"primary": {"used_percent": 1.0}, "credits": {"has_credits": true, "balance": null}},
    }));
    let log =
        log.record_text("from_the_future", "{\"b\":1e3,\"a\":\"\\u00e9\\/\"}").event(json!({"type": "new_event"}));
    home.put(&log);
    let out = home.list(&["--count"]);
    let row = out.thread(&t(1));
    assert_eq!((damage(row), &row["records"]), (0, &json!(8)), "not understood is not damaged");
    assert_eq!(row["updated_at"], rfc3339(log.last()));
    assert!(home.show(&[&t(1)]).said().contains("answer"));
    assert_eq!(home.human(&["show", &t(1), "--raw"]).bytes, log.bytes());
}

/// Copies made by a file manager gave one thread twice, one row without content.
#[test]
fn b44_copies_are_one_thread() {
    let home = Home::new();
    let first = Log::healthy(&t(1), AT);
    home.put(&first);
    home.write(&first.active_path().replace(".jsonl", " (1).jsonl"), "");
    let second = Log::healthy(&t(2), AT);
    home.put_archived(&second);
    home.put_at(&second.archived_path().replace(".jsonl", " (1).jsonl"), &second);
    let out = home.list(&["--include", "archived"]);
    assert_eq!(out.set(), ids([1, 2]));
    assert_eq!(out.thread(&t(1))["preview"], format!("hello {}", t(1)));
    assert_eq!(out.thread(&t(2))["archived"], true);
    for n in [1, 2] {
        let row = out.thread(&t(n));
        let copies = row["files"].as_array().expect("files").iter().filter(|file| file["role"] == "copy").count();
        assert!(copies == 1 || damage(row) > 0, "the copy is told: {row}");
        assert_eq!(home.show(&[&t(n)]).turns().len(), 1);
        assert_eq!(home.search(&[&format!("hello {}", t(n))]).hits().len(), 1, "what a copy repeats is one hit");
    }
}

/// Other ways to two files of one id: another day, both trees, a copy beside it, other endings.
#[test]
fn b44_other_copies() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    home.put(&log);
    home.put_at(&format!("sessions/2026/02/03/rollout-2026-02-03T01-02-03-{}.jsonl", t(1)), &log);
    home.put_at(&log.active_path().replace(".jsonl", " - Copy.jsonl"), &log);
    home.put_at(&log.active_path().replace(".jsonl", ".jsonl.bak"), &log);
    home.put_at(&log.active_path().replace(".jsonl", ".jsonl.tmp"), &log);
    let both = Log::healthy(&t(2), AT);
    home.put(&both);
    home.put_archived(&both);
    home.put(&Log::healthy(&t(3), AT));
    assert_eq!(home.list(&["--all"]).set(), ids([1, 2, 3]));
    let (active, archived) = (home.list(&[]).ids(), home.list(&["--archived"]).ids());
    assert_eq!(active.len() + archived.len(), 3, "in one of both lists: {active:?} {archived:?}");
    assert_eq!(home.search(&[&format!("hello {}", t(1))]).hits().len(), 1);
    for n in 1..=3 {
        assert_eq!(home.show(&[&t(n)]).turns().len(), 1);
    }
    assert_eq!(fs::read_dir(home.file("sessions/2026/03/01")).expect("a folder").count(), 6, "nothing is tidied up");
}

/// A record that is lost begins no turn and ends none: every command counts the same turns.
#[test]
fn b30_damage_is_no_turn() {
    for shape in SHAPES {
        let log = talk(Log::shaped(shape, &t(1), AT).meta(), 1..=2);
        let next = log.clone().user("said-3-").lines()[3].clone();
        let half = &next[..next.len() - 20];
        let middle = [half, b"\n", &next, &log.clone().ordinal(4).agent("said-4-").lines()[3]].concat();
        let garbled =
            [&next, &b"{\"type\":\"event_msg\",\"payload\":{\"type\":\"user_message\",\"mess\x01\n"[..]].concat();
        for (bytes, turns) in [(middle, 2), (half.to_vec(), 1), (garbled, 2), (vec![0; 500], 1)] {
            let home = Home::new();
            home.put(&log.clone().raw(&bytes));
            let listed = home.list(&["--count"]).thread(&t(1))["turns"].clone();
            let shown = home.show(&[&t(1)]);
            assert_eq!(
                (&listed, &shown.json["thread"]["turns"]),
                (&json!(turns), &json!(turns)),
                "{shape:?} {}",
                bytes.escape_ascii()
            );
            assert_eq!(shown.turns().len(), turns);
        }
        let home = Home::new();
        let broken = talk(Log::shaped(shape, &t(1), AT).meta().task_started(), 1..=1).raw(b"{\"broken\n");
        home.put(&talk(broken.raw(&[0; 90]).raw(b"\n"), 2..=2).task_complete("said-2-"));
        let shown = home.show(&[&t(1)]);
        assert_eq!(shown.turns().len(), 1, "{shown:?}");
        assert_eq!(home.list(&["--count"]).thread(&t(1))["turns"], 1);
    }
}
