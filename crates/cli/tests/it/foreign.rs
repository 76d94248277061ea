//! Foreign and damaged homes, row by row as the released binary was measured on them: here no row panics or hangs, the
//! healthy neighbour is listed and found, and whatever is left of the thread itself is there too.

use crate::{
    home::{Home, damage, ids},
    log::{Log, Shape, t},
};

/// What is expected of the thread whose file was changed.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    /// As if nothing had happened.
    Whole,
    /// Listed, its text found, the damage told.
    Marked,
    /// Listed with everything but damage marks left open.
    Listed,
    /// Listed when asked for everything; nothing is left to be found.
    Bare,
    /// No thread at all.
    Ignored,
}

fn sample(shape: Shape) -> Log {
    let call = |log: Log, n: u32| log.call(&format!("c{n}"), "ls src").out(&format!("c{n}"), "a.rs\nb.rs\n");
    let log = Log::shaped(shape, &t(1), "2026-01-02T03:04:05Z").meta().item("developer", "be kind");
    let log = log.task_started().user("the needle question").item("user", "the needle question");
    let log = call(log, 1).agent("first answer").item("assistant", "first answer").task_complete("first answer");
    let log = call(log.task_started().user("second question"), 2).tok(100);
    log.agent("the last answer").task_complete("the last answer")
}

/// Puts `bytes` at `rel` beside a healthy neighbour and looks at both.
#[track_caller]
fn check(rel: &str, bytes: &[u8], then: Then) {
    let home = Home::new();
    home.put(&Log::healthy(&t(2), "2026-01-02T03:00:00Z"));
    home.put_bytes(rel, bytes, "2026-01-02T03:10:00Z".parse().expect("a time"));
    verify(&home, then);
}

#[track_caller]
fn verify(home: &Home, then: Then) {
    let out = home.list(&["--all"]);
    assert!(home.list(&[]).ids().contains(&t(2)), "the neighbour is listed: {out:?}");
    assert_eq!(home.search(&[&format!("hello {}", t(2))]).hit_threads(), ids([2]));
    assert_eq!(home.show(&[&t(2)]).turns().len(), 1);
    let found = home.search(&["needle question"]);
    let shown = home.run(&["show", &t(1)]);
    let why = home.run(&["why", &t(1)]);
    assert_eq!(why.json["found"], then != Then::Ignored, "{why:?}");
    match then {
        Then::Whole => assert_eq!(why.code, 0, "{why:?}"),
        Then::Marked => assert_eq!(why.code, 4, "{why:?}"),
        // A file of that name lies somewhere, and why says what keeps it from being the thread's.
        Then::Ignored => {
            assert_eq!((why.code, why.json["similar"].as_array().map(Vec::len)), (1, Some(1)), "{why:?}");
        }
        Then::Listed | Then::Bare => assert_eq!(why.code == 4, why.json["damage_total"] != 0, "{why:?}"),
    }
    let stats = home.run(&["stats"]);
    assert_eq!((stats.code, &stats.json["threads"]), (0, &serde_json::json!(out.ids().len())), "{stats:?}");
    if then == Then::Ignored {
        assert_eq!(out.ids(), ids([2]));
        assert_eq!((found.code, shown.code), (1, 1));
        return;
    }
    assert_eq!(out.set(), ids([1, 2]));
    let row = out.thread(&t(1));
    if then == Then::Bare {
        return;
    }
    assert_eq!(home.run(&["resume", &t(1)]).code, 0);
    assert_eq!(found.hit_threads(), ids([1]));
    assert_eq!(shown.code, 0);
    assert!(shown.said().contains("first answer"), "{shown:?}");
    assert!(home.list(&[]).ids().contains(&t(1)));
    match then {
        Then::Whole => {
            assert_eq!(damage(row), 0, "{row}");
            assert!(shown.said().contains("the last answer"));
        }
        Then::Marked => assert!(damage(row) > 0, "the damage is told: {row}"),
        Then::Listed | Then::Bare | Then::Ignored => (),
    }
}

/// One test a row and shape: the bytes of the rollout after something happened to them.
macro_rules! rows {
    ($($name:ident: $then:expr, $change:expr;)*) => {
        mod legacy { use super::*; $(#[test] fn $name() { changed(Shape::Legacy, $then, $change); })* }
        mod paginated { use super::*; $(#[test] fn $name() { changed(Shape::Paginated, $then, $change); })* }
    };
}

#[track_caller]
fn changed(shape: Shape, then: Then, change: impl Fn(Vec<u8>) -> Vec<u8>) {
    let log = sample(shape);
    check(&log.active_path(), &change(log.bytes()), then);
}

/// Puts a line behind the sixth.
fn insert(bytes: &[u8], line: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let line = [line, b"\n"].concat();
    lines.insert(6, &line);
    lines.concat()
}

/// Puts bytes into the directory that the header tells.
fn in_the_header(bytes: &[u8], what: &[u8]) -> Vec<u8> {
    let at = bytes.windows(4).position(|part| part == b"/w/p").expect("the directory");
    [&bytes[..at], what, &bytes[at..]].concat()
}

fn without_first_line(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == b'\n').expect("a line end");
    bytes[end + 1..].to_vec()
}

fn first_line(bytes: &[u8]) -> &[u8] {
    &bytes[..=bytes.iter().position(|byte| *byte == b'\n').expect("a line end")]
}

fn without_user(bytes: &[u8]) -> Vec<u8> {
    let user =
        |line: &[u8]| [&b"\"role\":\"user\""[..], b"user_message", b"UserMessage"].iter().any(|word| has(line, word));
    bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| !user(line)).collect::<Vec<_>>().concat()
}

fn has(line: &[u8], word: &[u8]) -> bool {
    line.windows(word.len()).any(|part| part == word)
}

const UNKNOWN_KIND: &[u8] = br#"{"timestamp":"2026-01-02T03:04:20.000Z","type":"future_kind","payload":{"x":1}}"#;
const UNKNOWN_EVENT: &[u8] =
    br#"{"timestamp":"2026-01-02T03:04:20.000Z","type":"event_msg","payload":{"type":"future_event","x":1}}"#;
const BAD_UTF8: &[u8] = b"{\"timestamp\":\"2026-01-02T03:04:20.000Z\",\"type\":\"event_msg\",\"payload\":{\"type\":\"agent_message\",\"message\":\"bad \xff\xfe\xc3 bytes\"}}";

rows! {
    copied_in_by_hand: Then::Whole, |bytes| bytes;
    truncated_last_line: Then::Marked, |bytes| bytes[..bytes.len() - 40].to_vec();
    no_final_newline: Then::Whole, |bytes| bytes[..bytes.len() - 1].to_vec();
    invalid_utf8_line: Then::Marked, |bytes| insert(&bytes, BAD_UTF8);
    garbage_line: Then::Marked, |bytes| insert(&bytes, b"%%% not json");
    nul_line: Then::Listed, |bytes| insert(&bytes, &[0; 500]);
    blank_lines: Then::Listed, |bytes| insert(&bytes, b"\n\n");
    unknown_type: Then::Listed, |bytes| insert(&bytes, UNKNOWN_KIND);
    unknown_event: Then::Listed, |bytes| insert(&bytes, UNKNOWN_EVENT);
    empty_file: Then::Bare, |_| Vec::new();
    only_meta: Then::Bare, |bytes| first_line(&bytes).to_vec();
    garbage_before_meta: Then::Marked, |bytes| [b"garbage\n", bytes.as_slice()].concat();
    invalid_utf8_in_the_header: Then::Marked, |bytes| in_the_header(&bytes, b"\xff");
    control_character_in_the_header: Then::Marked, |bytes| in_the_header(&bytes, b"\x01");
    quote_in_the_header: Then::Marked, |bytes| in_the_header(&bytes, b"\"");
    meta_missing: Then::Marked, |bytes| without_first_line(&bytes);
    byte_order_mark: Then::Listed, |bytes| [b"\xef\xbb\xbf", bytes.as_slice()].concat();
    carriage_returns: Then::Whole, |bytes| String::from_utf8(bytes).expect("UTF-8").replace('\n', "\r\n").into_bytes();
    cut_in_the_first_line: Then::Bare, |bytes| bytes[..100].to_vec();
    line_of_30_mb: Then::Listed, |bytes| insert(&bytes, &long_line());
}

/// 30 MB in one record.
fn long_line() -> Vec<u8> {
    let output = "A".repeat(30_000_000);
    format!("{{\"timestamp\":\"2026-01-02T03:04:20.000Z\",\"type\":\"response_item\",\"payload\":{{\"type\":\"function_call_output\",\"call_id\":\"call_x\",\"output\":\"{output}\"}}}}")
        .into_bytes()
}

const SHAPES: [Shape; 2] = [Shape::Legacy, Shape::Paginated];

/// Without a user message a thread is still one in which something was said.
#[test]
fn no_user_message() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&Log::healthy(&t(2), "2026-01-02T03:00:00Z"));
        let log = sample(shape);
        home.put_bytes(&log.active_path(), &without_user(&log.bytes()), log.last());
        assert_eq!(home.list(&[]).set(), ids([1, 2]));
        assert_eq!(home.search(&["the last answer"]).hits().len(), 1);
        assert!(home.show(&[&t(1)]).said().contains("first answer"));
    }
}

/// The id in the header wins over that of the name, and the difference is told.
#[test]
fn header_of_another_id_than_the_name() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&Log::healthy(&t(2), "2026-01-02T03:00:00Z"));
        let log = sample(shape);
        let text = String::from_utf8(log.bytes()).expect("UTF-8").replacen(&t(1), &t(9), 1);
        home.put_bytes(&log.active_path(), text.as_bytes(), log.last());
        let out = home.list(&["--all"]);
        assert_eq!(out.set(), ids([2, 9]));
        assert!(damage(out.thread(&t(9))) > 0, "{out:?}");
        assert!(home.show(&[&t(9)]).said().contains("first answer"));
        assert_eq!(home.search(&["needle question"]).hit_threads(), ids([9]));
        assert_eq!(home.search(&["needle question", "--thread", &t(9)]).hit_threads(), ids([9]));
    }
}

/// The same with something in front of the header: whatever id the list tells, `show` finds it.
#[test]
fn ids_of_the_list_are_found_by_every_command() {
    for shape in SHAPES {
        for front in
            [&b"garbage\n"[..], b"\xef\xbb\xbf", b"{\"record_type\":\"state\"}\n", b"\n\n", &[0; 300], b"{\"id\":7}\n"]
        {
            let home = Home::new();
            let log = sample(shape);
            let text = String::from_utf8(log.bytes()).expect("UTF-8").replacen(&t(1), &t(9), 1);
            home.put_bytes(&log.active_path(), &[front, text.as_bytes()].concat(), log.last());
            let listed = home.list(&["--all"]).ids();
            assert_eq!(listed.len(), 1);
            let shown = home.show(&[&listed[0]]);
            assert_eq!(shown.json["thread"]["id"], listed[0], "{shape:?} {}", front.escape_ascii());
            assert!(shown.said().contains("first answer"));
            assert_eq!(home.search(&["needle question"]).hit_threads(), listed);
            assert_eq!(home.run(&["resume", &listed[0]]).json["thread_id"], listed[0]);
        }
    }
}

/// A rollout in another place or under another date is the same rollout.
#[test]
fn rollouts_in_other_places() {
    for shape in SHAPES {
        let log = sample(shape);
        let name = format!("{}.jsonl", log.stem());
        for rel in [
            format!("sessions/1999/01/01/{name}"),
            format!("sessions/{name}"),
            format!("sessions/2026/01/02/x/{name}"),
            format!("sessions/2026/01/02/x/y/z/{name}"),
            format!("sessions/2099/01/02/rollout-2099-01-02T03-04-05-{}.jsonl", t(1)),
            format!("sessions/1970/01/01/rollout-1970-01-01T00-00-00-{}.jsonl", t(1)),
            format!("sessions/2026/13/45/rollout-2026-13-45T99-00-00-{}.jsonl", t(1)),
            format!("archived_sessions/2026/01/{name}"),
        ] {
            if rel.starts_with("archived") {
                let home = Home::new();
                home.put_at(&rel, &log);
                assert_eq!(home.list(&["--archived"]).ids(), ids([1]));
                continue;
            }
            check(&rel, &log.bytes(), Then::Whole);
        }
    }
}

/// Names that are no rollouts, and places that are not `sessions`.
#[test]
fn files_that_are_no_rollouts() {
    for shape in SHAPES {
        let log = sample(shape);
        let name = format!("{}.jsonl", log.stem());
        for rel in [
            format!("sessions/2026/01/02/foo-{}.jsonl", t(1)),
            format!("sessions/2026/01/02/{name}.bak"),
            format!("sessions/2026/01/02/{name}.swp"),
            format!("threadkeep/{name}"),
            format!("trash/sessions/2026/01/02/{name}"),
            name.clone(),
        ] {
            check(&rel, &log.bytes(), Then::Ignored);
        }
    }
}

/// Compressed only, and beside the plain file.
#[test]
fn compressed_rollouts() {
    for shape in SHAPES {
        let log = sample(shape);
        let packed = zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd");
        check(&format!("{}.zst", log.active_path()), &packed, Then::Whole);
        let home = Home::new();
        home.put(&Log::healthy(&t(2), "2026-01-02T03:00:00Z"));
        home.put(&log);
        home.put_zst(&log, &packed);
        verify(&home, Then::Listed);
    }
}

/// A compressed file with a flipped byte, cut, empty, and one that is not compressed at all.
#[test]
fn broken_compressed_rollouts() {
    for shape in SHAPES {
        let log = sample(shape);
        let packed = zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd");
        let mut flipped = packed.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 255;
        for bytes in [&flipped[..], &packed[..packed.len() / 2], b"", b"\x28\xb5\x2f\xfd", b"not compressed\n"] {
            check(&format!("{}.zst", log.active_path()), bytes, Then::Bare);
        }
    }
}

/// A file moved by hand after Codex had noted its place.
#[test]
fn moved_and_deleted_behind_the_database() {
    use crate::db::text;
    for shape in SHAPES {
        let log = sample(shape);
        let name = format!("{}.jsonl", log.stem());
        for (rel, archived) in [(format!("sessions/2026/03/04/{name}"), false), (log.archived_path(), true)] {
            let home = Home::new();
            home.put(&Log::healthy(&t(2), "2026-01-02T03:00:00Z"));
            let noted = home.file(&log.active_path());
            home.state().row(&t(1), &[("rollout_path", text(noted.to_str().expect("UTF-8")))]).close();
            home.put_at(&rel, &log);
            let out = home.list(&["--all"]);
            assert_eq!(out.set(), ids([1, 2]));
            assert_eq!(out.thread(&t(1))["archived"], archived);
            assert_eq!(out.thread(&t(1))["files"][0]["path"], rel);
            assert_eq!(home.run(&["resume", &t(1)]).json["archived"], archived);
            assert_eq!(home.search(&["needle question"]).hit_threads(), ids([1]));
            std::fs::remove_file(home.file(&rel)).expect("gone");
            assert_eq!(home.list(&["--all"]).ids(), ids([2]), "a row without a file, a name and a title");
            assert_eq!(home.run(&["show", &t(1)]).code, 1);
        }
    }
}

/// What is appended by hand, or by a program that keeps no index, is found at once.
#[test]
fn appended_by_hand() {
    for shape in SHAPES {
        let home = Home::new();
        let log = sample(shape);
        home.put(&log);
        assert_eq!(home.search(&["appended by hand"]).code, 1);
        home.put(&log.user("appended by hand"));
        assert_eq!(home.search(&["appended by hand"]).hit_threads(), ids([1]));
        assert!(home.show(&[&t(1)]).said().contains("appended by hand"));
    }
}

/// One big thread among small ones: the whole run failed each time.
#[test]
fn b109_a_big_thread_among_small_ones() {
    for shape in SHAPES {
        let home = Home::new();
        let mut log = Log::shaped(shape, &t(1), "2026-01-02T03:04:05Z").meta();
        for n in 0..60 {
            let call = format!("c{n}");
            log = log
                .task_started()
                .user(&format!("big question {n}"))
                .call(&call, "cat")
                .out(&call, &"z".repeat(330_000));
            log = log.agent(&format!("big answer {n}")).task_complete("done");
        }
        home.put(&log.turn("the needle question", "first answer"));
        for n in 3..20 {
            home.put(&Log::healthy(&t(n), "2026-01-02T03:00:00Z"));
        }
        let out = home.list(&["--count"]);
        assert_eq!(out.set(), ids((1..20).filter(|n| *n != 2)));
        assert_eq!(out.thread(&t(1))["turns"], 61);
        assert_eq!(home.search(&["needle question"]).hit_threads(), ids([1]));
        assert_eq!(home.search(&["big answer 31"]).hit_threads(), ids([1]));
        assert!(home.show(&[&t(1), "--last", "1"]).said().contains("first answer"));
        assert!(home.human(&["show", &t(1), "--turn", "30"]).stdout.contains("big question 29"));
    }
}

/// What else may lie where rollouts are: pipes (which must not be waited for), sockets, folders, files in place of folders.
#[test]
fn odd_things_in_the_tree() {
    let home = Home::new();
    home.put(&Log::healthy(&t(2), "2026-01-02T03:00:00Z"));
    let day = home.file("sessions/2026/01/02");
    let pipe = day.join(format!("{}.jsonl", sample(Shape::Legacy).stem()));
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.is_ok_and(|status| status.success()), "a pipe");
    let _socket = std::os::unix::net::UnixListener::bind(day.join("rollout-socket.jsonl")).expect("a socket");
    std::fs::create_dir_all(day.join(format!("{}.jsonl", Log::healthy(&t(3), "2026-01-02T03:00:00Z").stem())))
        .expect("a folder");
    home.write("sessions/2025", "a file in place of a folder");
    home.write("archived_sessions", "a file in place of a folder");
    let started = std::time::Instant::now();
    let out = home.list(&["--all"]);
    assert!(out.ids().contains(&t(2)) && !out.ids().contains(&t(3)), "{out:?}");
    assert_eq!(home.search(&["hello"]).hit_threads(), ids([2]));
    assert_eq!(home.show(&[&t(2)]).turns().len(), 1);
    home.run(&["show", &t(1)]);
    assert!(started.elapsed().as_secs() < 10);
}

/// A file in place of `sessions`: what is left is listed.
#[test]
fn a_file_in_place_of_sessions() {
    let home = Home::new();
    home.write("sessions", "");
    home.put_archived(&Log::healthy(&t(2), "2026-01-02T03:00:00Z"));
    assert_eq!(home.list(&["--all"]).ids(), ids([2]));
    assert_eq!(home.search(&["hello"]).hit_threads(), ids([2]));
}
