//! `show`: found by id, prefix, name or path, and read as a person reads it.

use std::fs;

use serde_json::{Value, json};

use crate::{
    home::{Home, ids, said},
    log::{Log, Shape, t},
};

const AT: &str = "2026-03-01T10:00:00Z";
const ODD: &str = "02abcdef-0000-7000-8000-000000000001";
const SHAPES: [Shape; 2] = [Shape::Legacy, Shape::Paginated];

fn two() -> Home {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::healthy(&t(2), AT));
    home.put(&Log::healthy(ODD, AT));
    home.idx(&t(1), "my thread", AT);
    home
}

/// By whole id, by upper case, by a prefix that only one thread has, by name.
#[test]
fn by_id_prefix_and_name() {
    let home = two();
    for query in [ODD, &ODD.to_uppercase(), "02abcdef", "02a", "02abcdef-0000-7"] {
        assert_eq!(home.show(&[query]).json["thread"]["id"], ODD, "{query}");
    }
    assert_eq!(home.show(&[&t(1)]).json["thread"]["id"], t(1));
    assert_eq!(home.show(&["my thread"]).json["thread"]["id"], t(1));
    assert_eq!(home.show(&["my thread"]).json["thread"]["name"], "my thread");
}

/// A prefix of several threads lists them and chooses none.
#[test]
fn ambiguous_prefixes_list_the_candidates() {
    let home = two();
    for command in ["show", "resume"] {
        let out = home.run(&[command, "01990000"]);
        assert_eq!(out.code, 2, "{out:?}");
        assert_eq!(out.error()["kind"], "ambiguous");
        let candidates = out.error()["candidates"].as_array().expect("candidates");
        assert_eq!(candidates.len(), 2, "{candidates:?}");
        let told = out.error()["candidates"].to_string();
        assert!(told.contains(&t(1)) && told.contains(&t(2)), "{told}");
    }
}

/// What is not there is not found, in one way for every kind of query.
#[test]
fn not_found() {
    let home = two();
    for query in ["nobody", "ffff", &t(7), "/no/such/file.jsonl", "sessions/none.jsonl", "100%", "é"] {
        let out = home.run(&["show", query]);
        assert_eq!(out.code, 1, "{out:?}");
        assert_eq!(out.error()["kind"], "not_found");
        assert!(out.stderr.contains(query), "it says what was looked for: {out:?}");
    }
    assert_eq!(home.human(&["show"]).code, 2);
    assert_eq!(home.human(&["show", &t(1), "--no-such-flag"]).code, 2);
    assert_eq!(home.human(&["no-such-command"]).code, 2);
}

/// By path: in the home, relative to it, outside of it, with a name that is no rollout's.
#[test]
fn by_path() {
    let home = two();
    let log = Log::healthy(&t(5), AT);
    let outside = home.outside("elsewhere.jsonl");
    fs::write(&outside, log.bytes()).expect("a file");
    let shown = home.show(&[outside.to_str().expect("UTF-8")]);
    assert_eq!(shown.json["thread"]["id"], t(5));
    assert!(shown.said().contains(&format!("hello {}", t(5))));
    assert_eq!(home.list(&["--all"]).set().len(), 3, "it is no thread of the home by that");
    let inside = home.file(&Log::healthy(&t(2), AT).active_path());
    assert_eq!(home.show(&[inside.to_str().expect("UTF-8")]).json["thread"]["id"], t(2));
    let link = home.outside("a link.jsonl");
    std::os::unix::fs::symlink(&outside, &link).expect("a link");
    assert_eq!(home.show(&[link.to_str().expect("UTF-8")]).json["thread"]["id"], t(5));
    let packed = home.outside("packed.jsonl.zst");
    fs::write(&packed, zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd")).expect("a file");
    assert_eq!(home.show(&[packed.to_str().expect("UTF-8")]).json["thread"]["id"], t(5));
    let folder = home.path();
    assert_ne!(home.run(&["show", folder.to_str().expect("UTF-8")]).code, 0);
}

fn talk(shape: Shape) -> Log {
    (1..=9).fold(Log::shaped(shape, &t(1), AT).meta(), |log, n| {
        let call = format!("c{n}");
        let log = log
            .task_started()
            .user(&format!("ask-{n}-"))
            .call(&call, &format!("run-{n}-"))
            .out(&call, &format!("got-{n}-"));
        log.agent(&format!("tell-{n}-")).task_complete(&format!("tell-{n}-"))
    })
}

/// Turns with their numbers, ids, times and states; items in order with their speakers and places.
#[test]
fn turns_and_items() {
    for shape in SHAPES {
        let home = Home::new();
        let log = talk(shape);
        let bytes = log.bytes();
        let path = log.active_path();
        home.put(&log);
        let shown = home.show(&[&t(1)]);
        assert_eq!(shown.turns().len(), 9);
        assert_eq!(shown.json["next_cursor"], Value::Null);
        for (n, turn) in (1..).zip(shown.turns()) {
            assert_eq!((&turn["number"], &turn["status"]), (&json!(n), &json!("completed")), "{turn}");
            assert_eq!(turn["id"], format!("turn-{n}"));
            assert!(turn["started_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{turn}");
            assert!(turn["completed_at"].is_string(), "{turn}");
            let items = turn["items"].as_array().expect("items");
            assert!(items[0]["text"].as_str().is_some_and(|text| text.contains(&format!("ask-{n}-"))), "{turn}");
            assert_eq!(items[0]["speaker"], "user");
            let last = items.last().expect("an item");
            assert_eq!((&last["speaker"], &last["text"]), (&json!("agent"), &json!(format!("tell-{n}-"))));
            let said = said(turn);
            assert!(said.contains(&format!("run-{n}-")) && said.contains(&format!("got-{n}-")), "{said}");
            assert_eq!(said.matches(&format!("ask-{n}-")).count(), 1, "once: {said}");
            for item in items {
                let offset = usize::try_from(item["offset"].as_u64().expect("an offset")).expect("a size");
                assert!(offset == 0 || bytes[offset - 1] == b'\n', "{item}");
                assert_eq!(item["line"], bytes[..offset].iter().filter(|byte| **byte == b'\n').count() + 1, "{item}");
                assert_eq!(item["path"], path);
            }
        }
    }
}

/// `--turn` and `--last`, and numbers that are not there.
#[test]
fn some_turns_only() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&talk(shape));
        let one = home.show(&[&t(1), "--turn", "4"]);
        assert_eq!((one.turns().len(), &one.turns()[0]["number"]), (1, &json!(4)));
        assert!(one.said().contains("ask-4-") && !one.said().contains("ask-5-"));
        let last = home.show(&[&t(1), "--last", "2"]);
        let numbers: Vec<&Value> = last.turns().iter().map(|turn| &turn["number"]).collect();
        assert_eq!(numbers, [8, 9]);
        assert_eq!(home.show(&[&t(1), "--last", "100"]).turns().len(), 9);
        assert_eq!(home.run(&["show", &t(1), "--turn", "10"]).code, 1);
        assert_eq!(
            home.human(&["show", &t(1), "--turn", "0"]).code.min(2),
            home.human(&["show", &t(1), "--turn", "0"]).code
        );
        assert_eq!(home.human(&["show", &t(1), "--turn", "x"]).code, 2);
        let human = home.human(&["show", &t(1), "--turn", "4"]).stdout;
        assert!(human.contains("tell-4-") && !human.contains("tell-5-"), "{human}");
        let human = home.human(&["show", &t(1), "--last", "1"]).stdout;
        assert!(human.contains("tell-9-") && !human.contains("tell-8-"), "{human}");
    }
}

/// A turn that was interrupted, one that failed, and one that still runs.
#[test]
fn states_of_turns() {
    for shape in SHAPES {
        let home = Home::new();
        let log = Log::shaped(shape, &t(1), AT).meta().task_started().user("one").agent("so far");
        let log = log.event(json!({"type": "turn_aborted", "turn_id": "turn-1", "reason": "interrupted"}));
        let log = log.task_started().user("two").event(json!({
            "type": "task_complete", "turn_id": "turn-2", "last_agent_message": null, "error": {"message": "no model"},
        }));
        home.put(&log.turn("three", "done").task_started().user("four"));
        let shown = home.show(&[&t(1)]);
        let states: Vec<&str> = shown.turns().iter().filter_map(|turn| turn["status"].as_str()).collect();
        assert_eq!(states, ["interrupted", "failed", "completed", "in_progress"], "{shape:?}");
        assert_eq!(shown.turns()[3]["completed_at"], Value::Null);
    }
}

/// A conversation of before `task_started`: a message of the user begins a turn.
#[test]
fn turns_without_boundaries() {
    let home = Home::new();
    let log = Log::new(&t(1), AT).meta().user("one").agent("first").agent("and more").user("two").agent("second");
    home.put(&log);
    let shown = home.show(&[&t(1)]);
    assert_eq!(shown.turns().len(), 2);
    assert!(said(&shown.turns()[0]).contains("and more"));
    assert!(said(&shown.turns()[1]).contains("second"));
}

/// `--raw` gives the bytes of the file, whatever they are.
#[test]
fn raw_is_the_bytes() {
    let home = Home::new();
    let odd = Log::new(&t(1), AT)
        .meta()
        .record_text("x", "{\"b\" : 1.50e2, \"a\":\"\\u00e9\\/\"}")
        .raw(b"\xff\xfe\0\0\n\n{}\r\n");
    let odd = odd.user("after").raw(b"{\"torn");
    home.put(&odd);
    let packed = Log::healthy(&t(2), AT);
    home.put_zst(&packed, &zstd::encode_all(packed.bytes().as_slice(), 3).expect("zstd"));
    assert_eq!(home.human(&["show", &t(1), "--raw"]).bytes, odd.bytes());
    assert_eq!(home.human(&["show", &t(2), "--raw"]).bytes, packed.bytes());
}

/// A long outcome of a tool is folded to a few lines, and whole with `--full`.
#[test]
fn outputs_are_folded() {
    for shape in SHAPES {
        let home = Home::new();
        let lines: String = (1..=200).map(|n| format!("line {n} of it\n")).collect();
        let log =
            Log::shaped(shape, &t(1), AT).meta().task_started().user("run it").call("c1", "seq").out("c1", &lines);
        home.put(&log.agent("done").task_complete("done"));
        let folded = home.human(&["show", &t(1)]).stdout;
        assert!(folded.contains("run it") && folded.contains("done") && folded.contains("seq"), "{folded}");
        assert!(folded.lines().count() < 60 && !folded.contains("line 100 of it"), "{folded}");
        let full = home.human(&["show", &t(1), "--full"]).stdout;
        assert!((1..=200).all(|n| full.contains(&format!("line {n} of it"))), "{full}");
    }
}

/// A patch is shown as a diff, a picture as a line, a sub-agent as a line, a thought as text.
#[test]
fn items_of_every_kind_are_readable() {
    let home = Home::new();
    let diff = "@@ -1 +1 @@\n-old line\n+new line\n";
    let data = format!("data:image/png;base64,{}", "A".repeat(4_000));
    let log = Log::paginated(&t(1), AT).meta().task_started().completed(json!({
        "type": "UserMessage", "id": "u1",
        "content": [{"type": "text", "text": "look at this", "text_elements": []}, {"type": "image", "image_url": data}],
    }));
    let log = log
        .completed(json!({"type": "Reasoning", "id": "r1", "summary_text": ["a readable thought"], "raw_content": []}));
    let log = log.completed(json!({
        "type": "FileChange", "id": "f1", "status": "completed",
        "changes": {"/w/p/a.rs": {"type": "update", "unified_diff": diff, "move_path": null}},
    }));
    let log = log.completed(json!({
        "type": "CollabAgentToolCall", "id": "a1", "tool": "spawnAgent", "status": "completed", "sender_thread_id": t(1),
        "receiver_thread_ids": [t(2)], "prompt": "do the part",
    }));
    let log = log.completed(json!({"type": "KindOfTheFuture", "id": "k1", "text": "future words"}));
    home.put(&log.agent("done").task_complete("done"));
    let human = home.human(&["show", &t(1)]).stdout;
    for text in ["look at this", "a readable thought", "-old line", "+new line", "a.rs", "done"] {
        assert!(human.contains(text), "{text}: {human}");
    }
    assert!(!human.contains("AAAAAAAA"), "a picture is a line: {human}");
    assert!(home.show(&[&t(1)]).said().contains("a readable thought"));
}

/// `--jsonl`: one turn a line and a closing object.
#[test]
fn jsonl_streams_turns() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&talk(shape));
        let out = home.human(&["show", &t(1), "--jsonl"]);
        let lines: Vec<Value> = out.stdout.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        let (last, rows) = lines.split_last().expect("a closing object");
        assert_eq!(last["format"], 1);
        let turns: Vec<&Value> = rows.iter().filter(|row| row["number"].is_u64()).collect();
        assert_eq!(turns.len(), 9, "{out:?}");
        assert!(said(turns[8]).contains("tell-9-"));
    }
}

/// The same thread by every way of naming it is the same answer, and that of the list.
#[test]
fn list_and_show_agree() {
    let home = two();
    let listed = home.list(&["--count"]);
    for id in [t(1), t(2), ODD.to_owned()] {
        assert_eq!(&home.show(&[&id]).json["thread"], listed.thread(&id));
    }
    assert_eq!(listed.set().len(), ids([1, 2]).len() + 1);
}
