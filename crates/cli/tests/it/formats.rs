//! Every shape that a rollout has had: bare records, one JSON object, compressed frames, links, odd names.

use std::{ffi::OsStr, fs, io::Write, os::unix::ffi::OsStrExt, os::unix::fs::symlink};

use serde_json::{Value, json};

use crate::{
    home::{Home, damage, ids, touch},
    log::{Log, Shape, t},
};

const AT: &str = "2026-03-01T10:00:00Z";

/// A rollout as 0.20 wrote it: no envelope, no times, no directory but the one in the injected context.
fn bare(thread: &str, user: &str, agent: &str) -> Vec<u8> {
    let line = |value: Value| format!("{value}\n");
    let message = |role: &str, kind: &str, text: &str| {
        line(json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]}))
    };
    let state = || line(json!({"record_type": "state"}));
    let context = "<environment_context>\n  <cwd>/w/bare</cwd>\n  <shell>bash</shell>\n</environment_context>";
    [
        line(json!({"id": thread, "timestamp": "2025-08-19T10:00:00.000Z", "instructions": null})),
        state(),
        message("user", "input_text", context),
        state(),
        message("user", "input_text", user),
        line(json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "bare thought"}], "encrypted_content": null})),
        line(json!({"type": "function_call", "name": "shell", "arguments": "{\"command\":[\"ls\",\"-l\"]}", "call_id": "c1"})),
        line(json!({"type": "function_call_output", "call_id": "c1", "output": "{\"output\":\"bare output\\n\",\"metadata\":{\"exit_code\":0}}"})),
        message("assistant", "output_text", agent),
        state(),
    ]
    .concat()
    .into_bytes()
}

fn bare_path(thread: &str) -> String {
    format!("sessions/2025/08/19/rollout-2025-08-19T10-00-00-{thread}.jsonl")
}

/// Headers of an older kind, none at all, or one behind other records: dropped as unusable.
#[test]
fn b42_older_missing_and_late_headers() {
    let home = Home::new();
    home.put_bytes(&bare_path(&t(1)), &bare(&t(1), "old question", "old answer"), AT.parse().expect("a time"));
    let headless = Log::new(&t(2), AT).item("user", "headless question").item("assistant", "headless answer");
    home.put(&headless);
    let state = b"{\"record_type\":\"state\"}\n";
    let late = Log::new(&t(3), AT).raw(state).raw(state).meta_with(json!({"cwd": "/w/late"}));
    home.put(&late.user("late question").agent("late answer"));
    let out = home.list(&[]);
    assert_eq!(out.set(), ids([1, 2, 3]));
    assert_eq!(out.thread(&t(1))["preview"], "old question");
    assert_eq!(out.thread(&t(1))["created_at"], "2025-08-19T10:00:00.000Z");
    assert_eq!(damage(out.thread(&t(1))), 0);
    assert_eq!(out.thread(&t(2))["preview"], "headless question");
    assert!(damage(out.thread(&t(2))) > 0, "no header is told: {out:?}");
    assert_eq!(out.thread(&t(3))["cwd"], "/w/late");
    for (n, answer) in [(1, "old answer"), (2, "headless answer"), (3, "late answer")] {
        assert!(home.show(&[&t(n)]).said().contains(answer));
        assert_eq!(home.search(&[answer]).hit_threads(), ids([n]));
    }
}

/// Everything that a bare rollout says, and the time that only the file system knows.
#[test]
fn b42_bare_records_are_a_conversation() {
    let home = Home::new();
    let v4 = "6f0d1d5e-8a3c-4b7a-9c1d-2e3f4a5b6c7d";
    home.put_bytes(
        &bare_path(v4),
        &bare(v4, "old question", "old answer"),
        "2025-08-19T11:30:00Z".parse().expect("a time"),
    );
    let out = home.list(&["--count"]);
    let row = out.thread(v4);
    assert_eq!(row["updated_at"], "2025-08-19T11:30:00.000Z", "no record after the header has a time");
    assert_eq!((&row["turns"], &row["records"]), (&json!(1), &json!(10)));
    let shown = home.show(&[v4]);
    for text in ["old question", "bare thought", "bare output", "old answer"] {
        assert!(shown.said().contains(text), "{text}: {shown:?}");
        assert_eq!(home.search(&[text]).hit_threads(), [v4]);
    }
    assert_eq!(home.search(&["environment_context"]).code, 1);
    let nuls = [
        &bare(v4, "old question", "old answer"),
        &b"{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"and then\"}]}"[..],
        &[0; 131],
    ];
    let whole = fs::read(home.file(&bare_path(v4))).expect("the rollout");
    home.put_bytes(&bare_path(v4), &nuls.concat(), AT.parse().expect("a time"));
    assert!(home.show(&[v4]).said().contains("and then"));
    assert_eq!(home.list(&["--count"]).thread(v4)["turns"], home.show(&[v4]).turns().len());
    home.write(&bare_path(v4), whole);
    assert_eq!(home.human(&["show", v4, "--raw"]).bytes, bare(v4, "old question", "old answer"));
}

/// A header without an id, with one that is no id, and a file that is not JSON at all.
#[test]
fn b42_headers_without_a_usable_id() {
    let home = Home::new();
    home.put(&Log::healthy(&t(9), AT));
    home.put(&Log::new(&t(1), AT).meta_with(json!({"id": null})).user("one").agent("ok"));
    home.put(&Log::new(&t(2), AT).meta_with(json!({"id": "not-an-id"})).user("two").agent("ok"));
    home.put(
        &Log::new(&t(3), AT).meta_with(json!({"id": 7, "cwd": [1], "source": {"x": null}})).user("three").agent("ok"),
    );
    home.put(&Log::new(&t(4), AT).raw(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n"));
    let all = home.list(&["--all"]);
    assert!([1, 2, 3, 4, 9].iter().all(|n| all.ids().contains(&t(*n))), "the id is that of the name: {all:?}");
    assert_eq!(home.show(&[&t(2)]).json["thread"]["preview"], "two");
}

/// Bytes that are no UTF-8 in what the user said: counted, shown and listed in one way, in every shape.
#[test]
fn invalid_utf8_in_the_words_of_the_user() {
    let spoil = |bytes: &[u8]| {
        let at = bytes.windows(7).position(|part| part == b"spoiled").expect("the place");
        [&bytes[..at], b"sp\xff\xfeiled", &bytes[at + 7..]].concat()
    };
    let legacy =
        |shape| Log::shaped(shape, &t(1), AT).meta().user("spoiled question").agent("one").user("second").agent("two");
    let (plain, paginated) = (legacy(Shape::Legacy), legacy(Shape::Paginated));
    let item = Log::new(&t(1), AT).meta().item("user", "spoiled question").user("spoilt question").agent("one");
    let home = Home::new();
    for (rel, bytes) in [
        (plain.active_path(), plain.bytes()),
        (paginated.active_path(), paginated.bytes()),
        (item.active_path(), item.bytes()),
        (bare_path(&t(1)), bare(&t(1), "spoiled question", "one")),
    ] {
        let path = home.put_bytes(&rel, &spoil(&bytes), AT.parse().expect("a time"));
        let out = home.list(&["--count", "--all"]);
        let row = out.thread(&t(1));
        let shown = home.show(&[&t(1)]);
        assert!(damage(row) > 0, "{row}");
        assert_eq!(shown.json["thread"]["turns"], row["turns"], "{}", spoil(&bytes).escape_ascii());
        assert_eq!(shown.turns().len(), row["turns"], "{shown:?}");
        assert!(shown.said().contains("one"));
        assert_eq!(home.search(&["one", "--in", "agent"]).hit_threads(), ids([1]));
        fs::remove_file(path).expect("gone");
    }
}

/// The TypeScript CLI wrote one pretty-printed object a session.
#[test]
fn typescript_sessions() {
    let home = Home::new();
    let id = "0b8f8b0e-2d4c-4b43-9a55-0f6a3b5c7d11";
    let object = json!({
        "session": {"timestamp": "2025-08-02T09:00:00.000Z", "id": id, "instructions": ""},
        "items": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "typed question"}]},
            {"role": "assistant", "content": "", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "shell", "arguments": "{\"cmd\":[\"ls\"]}"}},
            ]},
            {"role": "tool", "tool_call_id": "call_1", "content": "typed output"},
            {"role": "assistant", "content": "typed answer", "reasoning": "typed thought"},
        ],
    });
    let rel = format!("sessions/rollout-2025-08-02-{id}.json");
    let text = serde_json::to_string_pretty(&object).expect("JSON");
    home.put_bytes(&rel, text.as_bytes(), "2025-08-02T09:10:00Z".parse().expect("a time"));
    home.put(&Log::healthy(&t(1), AT));
    let out = home.list(&[]);
    assert_eq!(out.ids(), [t(1), id.to_owned()]);
    let row = out.thread(id);
    assert_eq!(row["preview"], "typed question");
    assert_eq!(row["created_at"], "2025-08-02T09:00:00.000Z");
    assert_eq!(row["updated_at"], "2025-08-02T09:10:00.000Z");
    assert_eq!((&row["files"][0]["kind"], &row["files"][0]["path"]), (&json!("json"), &json!(rel)));
    assert_eq!(damage(row), 0);
    let shown = home.show(&[id]);
    assert!(shown.said().contains("typed question") && shown.said().contains("typed answer"), "{shown:?}");
    for (text, speaker) in [("typed question", "user"), ("typed answer", "agent"), ("typed output", "tool_output")] {
        assert_eq!(home.search(&[text]).speakers(), [speaker]);
    }
    assert_eq!(home.human(&["show", id, "--raw"]).bytes, text.as_bytes());
}

/// Such a session that is cut, empty or something else: the others are listed.
#[test]
fn typescript_sessions_with_damage() {
    let id = "0b8f8b0e-2d4c-4b43-9a55-0f6a3b5c7d11";
    for text in
        ["", "{", "[]", "{\"session\":{\"id\":7},\"items\":{}}", "{\"session\":null}", "{\n \"session\": {\"id\":"]
    {
        let home = Home::new();
        home.write(&format!("sessions/rollout-2025-08-02-{id}.json"), text);
        home.put(&Log::healthy(&t(1), AT));
        assert!(home.list(&["--all"]).ids().contains(&t(1)), "{text:?}");
        assert_eq!(home.search(&["hello"]).hit_threads(), ids([1]));
        home.run(&["show", id]);
    }
}

/// Only the compressed file is there: missing, or garbage line by line.
#[test]
fn b65_compressed_only() {
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let log = Log::shaped(shape, &t(1), AT).meta().turn("packed question", "packed answer");
        home.put_zst(&log, &zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd"));
        packed(&home, &log);
    }
}

#[track_caller]
fn packed(home: &Home, log: &Log) {
    let out = home.list(&["--count"]);
    let row = out.thread(&t(1));
    assert_eq!(row["preview"], "packed question");
    assert_eq!((&row["turns"], &row["records"], damage(row)), (&json!(1), &json!(5), 0));
    assert_eq!((&row["files"][0]["kind"], row["files"].as_array().map(Vec::len)), (&json!("zstd"), Some(1)));
    assert_eq!(row["updated_at"], crate::log::rfc3339(log.last()));
    assert_eq!(home.search(&["packed answer"]).hit_threads(), ids([1]));
    assert!(home.show(&[&t(1)]).said().contains("packed answer"));
    assert_eq!(home.run(&["resume", &t(1)]).json["thread_id"], t(1));
    assert_eq!(home.human(&["show", &t(1), "--raw"]).bytes, log.bytes());
    let path = home.file(&format!("{}.zst", log.active_path()));
    assert_eq!(home.show(&[path.to_str().expect("UTF-8")]).json["thread"]["id"], t(1));
}

/// Other ways to compress: many frames, one a record, frames that are to be skipped, a checksum, no size, a large window.
#[test]
fn b65_frames_of_every_kind() {
    let log = Log::new(&t(1), AT).meta().turn("packed question", "packed answer");
    let frame = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("zstd");
    let bytes = log.bytes();
    let per_record = log.lines().iter().flat_map(|line| frame(line)).collect::<Vec<u8>>();
    let in_the_middle = [frame(&bytes[..77]), frame(b""), frame(&bytes[77..])].concat();
    let skipped = |data: &[u8]| {
        [&b"\x50\x2a\x4d\x18"[..], &u32::try_from(data.len()).expect("short").to_le_bytes(), data].concat()
    };
    let with_table = [skipped(b"before"), per_record.clone(), skipped(&[0; 90])].concat();
    let mut encoder = zstd::Encoder::new(Vec::new(), 19).expect("zstd");
    encoder.include_checksum(true).expect("a checksum");
    encoder.window_log(27).expect("a window");
    encoder.write_all(&bytes).expect("written");
    let checked = encoder.finish().expect("a frame");
    for content in [per_record, in_the_middle, with_table, checked] {
        let home = Home::new();
        home.put_zst(&log, &content);
        packed(&home, &log);
    }
}

/// Whole frames and then damage: what the whole frames hold is read, and the damage told.
#[test]
fn b65_compressed_with_a_corrupt_tail() {
    let log = Log::new(&t(1), AT).meta().turn("packed question", "packed answer");
    let frame = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("zstd");
    let whole = frame(&log.bytes());
    let more = frame(&log.clone().turn("lost question", "lost answer").bytes()[log.len()..]);
    for tail in [&more[..more.len() / 2], &b"\0\0\0\0\0\0\0\0"[..], b"garbage behind the frames", &more[..3]] {
        let home = Home::new();
        home.put_zst(&log, &[&whole, tail].concat());
        home.put(&Log::healthy(&t(2), AT));
        let out = home.list(&["--count"]);
        assert_eq!(out.set(), ids([1, 2]));
        assert!(damage(out.thread(&t(1))) > 0, "{out:?}");
        assert!(home.show(&[&t(1)]).said().contains("packed answer"));
        assert_eq!(home.search(&["packed answer"]).hit_threads(), ids([1]));
    }
}

/// Plain and compressed together were two threads, or the older one won.
#[test]
fn b66_plain_beside_compressed() {
    let home = Home::new();
    let log = Log::new(&t(1), AT).meta().turn("packed question", "packed answer");
    home.put_zst(&log, &zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd"));
    home.put(&log.clone().user("newer question").agent("newer answer").tok(5));
    let out = home.list(&["--all", "--count"]);
    assert_eq!(out.ids(), ids([1]));
    assert_eq!(out.thread(&t(1))["records"], 8);
    assert!(home.show(&[&t(1)]).said().contains("newer answer"));
    for text in ["packed answer", "newer answer"] {
        assert_eq!(home.search(&[text]).hits().len(), 1, "{text}");
    }
}

/// The plain file is shorter, or says something else: one thread, and the conflict is told.
#[test]
fn b66_plain_that_does_not_extend_the_compressed() {
    let log = Log::new(&t(1), AT).meta().turn("packed question", "packed answer");
    let packed = zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd");
    let short: Vec<u8> = log.lines()[..3].concat();
    let other = Log::new(&t(1), AT).meta().turn("packed question", "quite another answer").bytes();
    for plain in [short, other.clone(), log.bytes()[..log.len() - 30].to_vec()] {
        let home = Home::new();
        home.put_zst(&log, &packed);
        home.put_bytes(&log.active_path(), &plain, log.last());
        let out = home.list(&["--all", "--count"]);
        assert_eq!(out.ids(), ids([1]));
        assert!(damage(out.thread(&t(1))) > 0, "{out:?}");
        assert!(home.show(&[&t(1)]).said().contains("packed question"));
        let hits = home.search(&["packed question"]);
        let mut threads = hits.hit_threads();
        threads.dedup();
        assert_eq!(threads, ids([1]));
        assert!(plain == other || hits.hits().len() == 1, "what both files hold is said once: {hits:?}");
    }
}

/// A compressed file that cannot be read beside a healthy plain one: the plain one is the thread.
#[test]
fn b66_plain_beside_a_broken_compressed() {
    let log = Log::new(&t(1), AT).meta().turn("packed question", "packed answer");
    let packed = zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd");
    for broken in [&b""[..], b"not compressed", &packed[..9], &packed[..packed.len() / 2]] {
        let home = Home::new();
        home.put_zst(&log, broken);
        home.put(&log);
        let out = home.list(&["--count"]);
        let row = out.thread(&t(1));
        assert_eq!((out.ids().len(), &row["turns"], &row["preview"]), (1, &json!(1), &json!("packed question")));
        let hits = home.search(&["packed answer"]);
        assert_eq!((hits.hits().len(), &hits.hits()[0]["turn_number"]), (1, &json!(1)));
        assert!(home.show(&[&t(1)]).said().contains("packed answer"));
        assert_eq!(home.human(&["show", &t(1), "--raw"]).bytes, log.bytes());
    }
}

/// A link to a rollout below `sessions` is not followed, nor one to a folder, nor a circle.
#[test]
fn links_below_sessions_are_not_followed() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    let secret = home.outside("elsewhere").join("secret.jsonl");
    fs::create_dir_all(home.outside("elsewhere/2026")).expect("folders");
    fs::write(&secret, Log::healthy(&t(2), AT).bytes()).expect("a file");
    let inside = home.outside(&format!("elsewhere/2026/{}.jsonl", Log::healthy(&t(3), AT).stem()));
    fs::write(&inside, Log::healthy(&t(3), AT).bytes()).expect("a file");
    symlink(&secret, home.file(&Log::healthy(&t(2), AT).active_path())).expect("a link");
    symlink(home.outside("elsewhere"), home.file("sessions/linked")).expect("a link");
    symlink(home.file("sessions"), home.file("sessions/2026/circle")).expect("a link");
    symlink("nowhere", home.file(&Log::healthy(&t(4), AT).active_path())).expect("a dangling link");
    let out = home.list(&["--all"]);
    assert_eq!(out.ids(), ids([1]));
    assert_eq!(home.search(&["hello"]).hit_threads(), ids([1]));
    let by_path = home.show(&[secret.to_str().expect("UTF-8")]);
    assert_eq!(by_path.json["thread"]["id"], t(2), "a path that is given is the caller's word");
}

/// `sessions` and `archived_sessions` themselves may be links.
#[test]
fn linked_trees_are_followed_once() {
    let home = Home::new();
    fs::create_dir_all(home.outside("store/sessions/2026/03/01")).expect("folders");
    fs::create_dir_all(home.outside("store/archive")).expect("folders");
    let (active, archived) = (Log::healthy(&t(1), AT), Log::healthy(&t(2), AT));
    fs::write(home.outside("store").join(active.active_path()), active.bytes()).expect("a file");
    fs::write(home.outside("store/archive").join(format!("{}.jsonl", archived.stem())), archived.bytes())
        .expect("a file");
    symlink(home.outside("store/sessions"), home.file("sessions")).expect("a link");
    symlink(home.outside("store/archive"), home.file("archived_sessions")).expect("a link");
    let out = home.list(&["--include", "archived"]);
    assert_eq!(out.set(), ids([1, 2]));
    assert_eq!(out.thread(&t(1))["files"][0]["path"], active.active_path());
    assert_eq!(out.thread(&t(2))["archived"], true);
    assert_eq!(home.search(&["hello"]).hits().len(), 2);
    fs::remove_file(home.file("archived_sessions")).expect("gone");
    symlink("archived_sessions", home.file("archived_sessions")).expect("a link to itself");
    assert_eq!(home.list(&["--all"]).ids(), ids([1]));
}

/// Names that are not UTF-8, of files and of folders.
#[test]
fn names_that_are_not_utf8() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    let path = home.put(&log);
    let bad = |bytes: &[u8]| path.with_file_name(OsStr::from_bytes(bytes));
    fs::write(bad(b"rollout-\xff.jsonl"), b"x").expect("a file");
    let name = [b"rollout-2026-03-01T10-00-00-".as_slice(), t(2).as_bytes(), b"\xff.jsonl"].concat();
    fs::write(bad(&name), Log::healthy(&t(2), AT).bytes()).expect("a file");
    let folder = home.file("sessions").join(OsStr::from_bytes(b"f\xffolder"));
    fs::create_dir(&folder).expect("a folder");
    let third = Log::healthy(&t(3), AT);
    fs::write(folder.join(format!("{}.jsonl", third.stem())), third.bytes()).expect("a file");
    touch(&folder.join(format!("{}.jsonl", third.stem())), third.last());
    let out = home.list(&["--all"]);
    let rows = out.json["threads"].as_array().expect("threads");
    let listed: Vec<&Value> = rows.iter().map(|row| &row["id"]).collect();
    assert!(listed.contains(&&json!(t(1))) && listed.contains(&&json!(t(3))), "{listed:?}");
    assert!(home.search(&["hello"]).hit_threads().contains(&t(3)));
    assert_eq!(home.show(&[&t(3)]).turns().len(), 1);
    assert_eq!(home.human(&["show", &t(3)]).code, 0);
    assert_eq!(home.human(&["list", "--all"]).code, 0);
}
