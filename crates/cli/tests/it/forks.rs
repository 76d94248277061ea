//! Forks that copy: the first header says whose file it is, and what was copied is not said, found or spent twice.

use serde_json::{Value, json};

use crate::{
    home::{Home, damage, ids},
    log::{Log, t},
};

const AT: &str = "2026-03-01T10:00:00Z";
const LATER: &str = "2026-03-05T10:00:00Z";

fn parent() -> Log {
    let log = Log::new(&t(1), AT).meta().task_started().user("parent question").agent("parent answer");
    log.tok(1_000)
        .tok(1_000)
        .tok(1_000)
        .task_complete("parent answer")
        .turn("second question", "second answer")
        .tok(3_300)
}

/// T2: its own header, then T1's records with the time of the copy.
fn copy(fields: Value) -> Log {
    let mut log = Log::new(&t(2), LATER).meta_with(fields);
    for line in parent().lines() {
        let record: Value = serde_json::from_slice(line).expect("a record");
        let kind = record["type"].as_str().expect("a type").to_owned();
        log = log.at(LATER).record(&kind, record["payload"].clone());
    }
    log.at("2026-03-05T10:05:00Z")
}

fn forked(home: &Home) -> Log {
    let log = copy(json!({"forked_from_id": t(1)})).turn("own question", "own answer").tok(3_900);
    home.put(&log);
    log
}

/// The last header won: the fork was stored as its parent.
#[test]
fn b101_the_first_header_is_the_identity() {
    let home = Home::new();
    home.put(&parent());
    forked(&home);
    let out = home.list(&["--count"]);
    assert_eq!(out.ids(), [t(2), t(1)]);
    let row = out.thread(&t(2));
    assert_eq!((&row["forked_from_id"], damage(row)), (&json!(t(1)), 0));
    assert_eq!(row["created_at"], "2026-03-05T10:00:00.000Z");
    assert_eq!(out.thread(&t(1))["forked_from_id"], Value::Null);
    let said = home.show(&[&t(2)]).said();
    assert!(said.contains("own answer"), "{said}");
}

/// What a fork repeats was found twice.
#[test]
fn b101_copied_text_is_the_parents_hit() {
    let home = Home::new();
    home.put(&parent());
    forked(&home);
    assert_eq!(home.search(&["parent answer"]).hit_threads(), ids([1]));
    assert_eq!(home.search(&["second question"]).hit_threads(), ids([1]));
    assert_eq!(home.search(&["own answer"]).hit_threads(), ids([2]));
    assert_eq!(home.search(&["parent answer", "--thread", &t(2)]).hit_threads(), ids([2]));
    let alone = Home::new();
    forked(&alone);
    assert_eq!(alone.search(&["parent answer"]).hit_threads(), ids([2]), "without the parent the fork is all there is");
    assert_eq!(alone.search(&["own answer"]).hit_threads(), ids([2]));
}

/// A session id that is another thread's, and headers of the same id again and again, change nothing.
#[test]
fn b101_session_ids_and_repeated_headers() {
    let home = Home::new();
    home.put(&Log::new(&t(2), AT).meta_with(json!({"session_id": t(1)})).user("hello").agent("ok"));
    let repeat = |log: Log| log.meta_with(json!({"memory_mode": "disabled", "timestamp": "2020-01-01T00:00:00.000Z"}));
    let log = Log::new(&t(3), AT).meta_with(json!({"timestamp": "2026-03-01T10:00:00.000Z"}));
    let log = repeat(repeat(log).user("first").agent("one")).user("again").agent("two");
    home.put(&log);
    let out = home.list(&["--count"]);
    assert_eq!(out.set(), ids([2, 3]));
    assert_eq!((&out.thread(&t(2))["session_id"], &out.thread(&t(2))["id"]), (&json!(t(1)), &json!(t(2))));
    let row = out.thread(&t(3));
    assert_eq!((&row["turns"], &row["forked_from_id"], damage(row)), (&json!(2), &Value::Null, 0));
    assert_eq!(row["created_at"], "2026-03-01T10:00:00.000Z");
    let shown = home.show(&[&t(3)]);
    assert_eq!(shown.turns().len(), 2);
}

/// A spawned sub-agent that copies its parent's history is the sub-agent, and the parent's child.
#[test]
fn b101_a_sub_agent_with_copied_history() {
    let home = Home::new();
    home.put(&parent());
    let source = json!({"subagent": {"thread_spawn": {"parent_thread_id": t(1), "depth": 1, "agent_nickname": "Ada"}}});
    let log = copy(json!({"forked_from_id": t(1), "source": source, "parent_thread_id": t(1)}));
    home.put(&log.turn("a part of the work", "the part is done"));
    let out = home.list(&["--count"]);
    assert_eq!((out.ids(), out.hidden("subagents")), (ids([1]), 1));
    assert_eq!(out.thread(&t(1))["children"], 1);
    let all = home.list(&["--all"]);
    assert_eq!(all.thread(&t(2))["parent_id"], t(1));
    assert_eq!(home.search(&["the part is done"]).hit_threads(), ids([2]), "search looks in all of them");
    assert_eq!(home.search(&["parent answer"]).hit_threads(), ids([1]));
}

/// Repeated counts and the counts of the parent were added up.
#[test]
fn b102_tokens_are_the_threads_own() {
    let home = Home::new();
    home.put(&parent());
    forked(&home);
    let out = home.list(&["--count"]);
    assert_eq!(out.thread(&t(1))["tokens"]["total"], 3_300);
    assert_eq!(out.thread(&t(1))["tokens"]["input"], 3_300);
    assert_eq!(out.thread(&t(2))["tokens"]["total"], 600);
    assert_eq!(home.show(&[&t(2)]).json["thread"]["tokens"]["total"], 600);
}

/// Counts without information, before any, in paginated threads and in forks by reference.
#[test]
fn b102_tokens_of_other_shapes() {
    let home = Home::new();
    let empty = json!({"type": "token_count", "info": null, "rate_limits": {"primary": null}});
    home.put(&Log::new(&t(1), AT).meta().user("q").agent("a").tok(500).event(empty.clone()));
    home.put(&Log::new(&t(2), AT).meta().user("q").agent("a").event(empty));
    home.put(&Log::new(&t(3), AT).meta().user("q").agent("a"));
    let base = Log::paginated(&t(4), AT).meta().turn("q", "a").tok(3_300);
    home.put(&base);
    let fields = json!({
        "forked_from_id": t(4), "forked_from_ordinal_exclusive": 6,
        "history_base": {"thread_id": t(4), "end_ordinal_exclusive": 6, "end_byte_offset": base.len()},
    });
    home.put(&Log::paginated(&t(5), LATER).ordinal(6).meta_with(fields).turn("more", "yes").tok(3_900));
    let out = home.list(&["--count"]);
    let total = |n: u32| out.thread(&t(n))["tokens"]["total"].clone();
    assert_eq!(total(1), 500, "a count without information takes nothing away");
    assert_eq!((total(2), total(3)), (Value::Null, Value::Null), "no count is no zero");
    assert_eq!((total(4), total(5)), (json!(3_300), json!(600)));
}

/// A parent in which nothing happened was looked for again and again.
#[test]
fn b103_a_parent_without_a_turn() {
    let home = Home::new();
    home.put(&Log::new(&t(1), AT).meta().set());
    let log = Log::new(&t(2), LATER).meta_with(json!({"forked_from_id": t(1)})).meta_of(&t(1), json!({})).set();
    home.put(&log.turn("child question", "child answer"));
    for _ in 0..3 {
        let out = home.list(&["--count"]);
        assert_eq!((out.ids(), out.hidden("empty")), (ids([2]), 1));
        let row = out.thread(&t(2));
        assert_eq!((&row["turns"], damage(row)), (&json!(1), 0), "an empty parent is a parent");
        assert_eq!(row["preview"], "child question");
        assert_eq!(home.search(&["child answer"]).hit_threads(), ids([2]));
    }
}

/// The parent of a fork that copies is gone: the copy is complete, and still named a fork.
#[test]
fn b103_a_copying_fork_without_its_parent() {
    let home = Home::new();
    forked(&home);
    for _ in 0..3 {
        let out = home.list(&["--count"]);
        assert_eq!(out.ids(), ids([2]));
        assert_eq!(out.thread(&t(2))["forked_from_id"], t(1));
        let said = home.show(&[&t(2)]).said();
        assert!(said.contains("own answer") && said.contains("parent answer"), "{said}");
    }
}

/// The fork's own header is damaged, the copied one is not: it is still the fork, and not a second copy of its parent.
#[test]
fn b101_a_copying_fork_whose_own_header_is_damaged() {
    let log = copy(json!({"forked_from_id": t(1), "base_instructions": {"text": "be kind"}}));
    let log = log.turn("own question", "own answer");
    let header = &log.lines()[0];
    let spoilt = |byte: &[u8]| {
        let at = header.windows(4).position(|part| part == b"kind").expect("the instructions");
        [&header[..at], byte, &header[at..]].concat()
    };
    let cut = [&header[..60], b"\n"].concat();
    for damaged in
        [b"%%% not a header\n".to_vec(), cut, spoilt(b"\xff"), spoilt(b"\x01"), spoilt(b"\""), spoilt(&[0; 50])]
    {
        let home = Home::new();
        home.put(&parent());
        let bytes = [&damaged, &log.bytes()[header.len()..]].concat();
        home.put_bytes(&log.active_path(), &bytes, log.last());
        let out = home.list(&["--all"]);
        assert_eq!(out.set(), ids([1, 2]), "{}", damaged.escape_ascii());
        assert!(damage(out.thread(&t(2))) > 0);
        assert_eq!(home.search(&["own answer"]).hit_threads(), ids([2]));
        assert!(home.show(&[&t(2)]).said().contains("own answer"));
        let alone = Home::new();
        alone.put_bytes(&log.active_path(), &bytes, log.last());
        for text in ["own answer", "parent answer"] {
            assert_eq!(alone.search(&[text]).hit_threads(), ids([2]), "{text} {}", damaged.escape_ascii());
            assert_eq!(alone.search(&[text, "--thread", &t(2)]).hit_threads(), ids([2]), "{text}");
        }
    }
}

/// Turns that were taken back do not count, and later ones have the numbers that a reader sees.
#[test]
fn rolled_back_turns_do_not_count() {
    let home = Home::new();
    let back = |turns: u32| json!({"type": "thread_rolled_back", "num_turns": turns});
    let log = Log::new(&t(1), AT).meta().turn("kept question", "kept answer").turn("taken back", "and its answer");
    home.put(&log.event(back(1)).turn("instead of it", "a better answer"));
    let log = Log::new(&t(2), AT).meta().turn("one", "two").turn("three", "four");
    home.put(&log.event(back(9)).turn("a fresh start", "yes"));
    let out = home.list(&["--count"]);
    assert_eq!(out.thread(&t(1))["turns"], 2);
    assert_eq!(out.thread(&t(2))["turns"], 1);
    let shown = home.show(&[&t(1)]);
    assert_eq!(shown.json["thread"]["turns"], 2);
    let hits = home.search(&["a better answer"]);
    let number = hits.hits()[0]["turn_number"].as_u64().expect("a turn").to_string();
    assert!(home.show(&[&t(1), "--turn", &number]).said().contains("a better answer"));
    let last = home.show(&[&t(1), "--last", "1"]);
    assert!(last.said().contains("a better answer") && !last.said().contains("taken back"));
}
