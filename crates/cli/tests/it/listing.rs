//! What is listed: nothing that a person said may keep its thread out of the list, and what is left out is counted.

use serde_json::{Value, json};

use crate::{
    home::{Home, ids},
    log::{Log, Shape, t},
};

const AT: &str = "2026-03-01T10:00:00Z";

fn goal(objective: &str) -> Value {
    json!({
        "type": "thread_goal_updated", "threadId": t(1),
        "goal": {
            "threadId": t(1), "objective": objective, "status": "active", "tokensUsed": 0, "timeUsedSeconds": 0,
            "createdAt": 1_772_359_200, "updatedAt": 1_772_359_200,
        },
    })
}

/// A scan of the first few records found no user message behind hundreds of token counts, and the thread was in no list.
#[test]
fn b01_late_first_user_message_is_listed() {
    let home = Home::new();
    let late = (0..423).fold(Log::new(&t(1), AT).meta(), |log, n| log.tok(n)).user("late prompt").agent("done");
    home.put(&late);
    home.put(&Log::healthy(&t(2), AT));
    for args in [&[][..], &["--cwd", "/w/p"], &["--provider", "openai"], &["--source", "cli", "--limit", "10"]] {
        let out = home.list(args);
        assert_eq!(out.set(), ids([1, 2]), "{args:?}");
        assert_eq!(out.thread(&t(1))["preview"], "late prompt");
        assert_eq!(out.thread(&t(1))["first_user_message"], "late prompt");
    }
    let shown = home.show(&[&t(1)]);
    assert!(shown.said().contains("late prompt"));
}

/// The same in the paginated shape, and with megabytes instead of many records before the first word of the user.
#[test]
fn b01_late_first_user_message_in_other_shapes() {
    let home = Home::new();
    let many = (0..2_000).fold(Log::paginated(&t(1), AT).meta().task_started(), |log, n| log.tok(n));
    home.put(&many.user("late prompt").agent("done"));
    let bulk = (0..6).fold(Log::new(&t(2), AT).meta(), |log, n| {
        log.call(&format!("c{n}"), "cat big").out(&format!("c{n}"), &"x".repeat(700_000))
    });
    home.put(&bulk.user("after the bulk").agent("done"));
    let base = json!({"base_instructions": {"text": "You are an agent. ".repeat(20_000)}});
    home.put(&Log::new(&t(3), AT).meta_with(base).user("after a long header").agent("ok"));
    for args in [&[][..], &["--cwd", "/w/p"], &["--named", "--all"], &["--match", "late"]] {
        let out = home.list(args);
        match args {
            ["--named", ..] => assert!(out.ids().is_empty()),
            ["--match", ..] => assert_eq!(out.set(), ids([1])),
            _ => assert_eq!(out.set(), ids([1, 2, 3]), "{args:?}"),
        }
    }
    let out = home.list(&[]);
    assert_eq!(out.thread(&t(1))["preview"], "late prompt");
    assert_eq!(out.thread(&t(3))["preview"], "after a long header");
}

/// A thread begun with `/goal` has no user message: it was saved and never listed.
#[test]
fn b03_goal_as_first_message_is_listed() {
    let home = Home::new();
    home.put(&Log::new(&t(1), AT).meta().event(goal("G")).item("developer", "be kind").agent("done"));
    let out = home.list(&[]);
    assert_eq!(out.ids(), ids([1]));
    let row = out.thread(&t(1));
    assert!(row["preview"] == "G" || row["preview"] == "done", "{row}");
    assert_eq!(row["first_user_message"], Value::Null);
    assert_eq!(home.run(&["resume", &t(1)]).code, 0);
    assert!(home.show(&[&t(1)]).said().contains("done"));
}

/// Other threads without a user message in which something happened: only a goal, only an answer, only a tool call.
#[test]
fn b03_threads_without_a_user_message_are_not_empty() {
    let home = Home::new();
    home.put(&Log::new(&t(1), AT).meta().event(goal("ship the parser")));
    home.put(&Log::new(&t(2), AT).meta().event(goal("  ")).agent("answer without a question"));
    home.put(&Log::new(&t(3), AT).meta().call("c1", "ls").out("c1", "a\nb"));
    home.put(&Log::paginated(&t(4), AT).meta().task_started().agent("paginated answer"));
    home.put(&Log::new(&t(5), AT).meta().event(json!({"type": "thread_goal_updated", "objective": "G"})).agent("flat"));
    home.put(&Log::new(&t(6), AT).meta().item("assistant", "only as an item"));
    let out = home.list(&[]);
    assert_eq!(out.set(), ids(1..=6));
    assert_eq!(out.thread(&t(1))["preview"], "ship the parser");
    assert_eq!(out.thread(&t(2))["preview"], "answer without a question");
    for n in 1..=6 {
        assert_eq!(home.run(&["resume", &t(n)]).code, 0, "{n}");
    }
}

/// The wrapper around the request was all the first message held; stripped it was empty and the thread was skipped.
#[test]
fn b04_empty_request_wrapper_is_passed_over() {
    let home = Home::new();
    let wrapped = Log::new(&t(1), AT).meta().user("## My request for Codex:\n\n").agent("what do you need?");
    home.put(&wrapped.user("real text"));
    let out = home.list(&[]);
    assert_eq!(out.thread(&t(1))["preview"], "real text");
}

/// The wrapper in other places and shapes: text before it goes, blank messages are passed over, images have a word.
#[test]
fn b04_wrapper_variants() {
    let home = Home::new();
    let context = "# Context from my IDE setup:\n\n## Active file: a.rs\n\n## My request for Codex:\nfix the lexer\n";
    home.put(&Log::new(&t(1), AT).meta().user(context).agent("ok"));
    home.put(&Log::new(&t(2), AT).meta().user("   \n\t").agent("hm").user("  trimmed text \n"));
    let paginated =
        Log::paginated(&t(3), AT).meta().task_started().user("## My request for Codex:\n \n").agent("what?");
    home.put(&paginated.task_started().user("## My request for Codex: second try"));
    let image = json!({"type": "user_message", "message": "", "images": ["data:image/png;base64,AAAA"]});
    home.put(&Log::new(&t(4), AT).meta().event(image).agent("a picture"));
    let local = json!({"type": "user_message", "message": "  ", "local_images": ["/w/p/shot.png"]});
    home.put(&Log::new(&t(5), AT).meta().event(local).agent("a picture"));
    let out = home.list(&[]);
    for (n, preview) in [(1, "fix the lexer"), (2, "trimmed text"), (3, "second try"), (4, "[Image]"), (5, "[Image]")] {
        assert_eq!(out.thread(&t(n))["preview"], preview);
    }
}

/// Beyond 10,000 newer files the scan stopped and said that this was the end.
#[test]
fn b05_old_thread_behind_ten_thousand_files() {
    let home = Home::new();
    let newest: jiff::Timestamp = "2026-03-05T00:00:00Z".parse().expect("a time");
    for n in 10..10_012_u32 {
        let at = newest + jiff::SignedDuration::from_secs(i64::from(n));
        let log = Log::new(&t(n), &at.to_string()).meta_with(json!({"cwd": "/other"})).user("hello").agent("ok");
        home.put(&log);
    }
    home.put(&Log::healthy(&t(1), AT));
    let out = home.list(&["--cwd", "/w/p", "--limit", "25"]);
    assert_eq!(out.ids(), ids([1]));
    assert_eq!(out.json["next_cursor"], Value::Null);
    assert_eq!(out.json["complete"], true);
    let first = home.list(&["--limit", "25"]);
    assert_eq!(first.ids().len(), 25);
    assert_eq!(first.ids()[0], t(10_011));
    assert!(first.json["next_cursor"].is_string(), "there is more");
    assert_eq!(home.show(&[&t(1)]).json["thread"]["id"], t(1));
}

/// The walk over all pages of a large home gives each thread once.
#[test]
fn b05_every_page_of_a_large_home() {
    let home = Home::new();
    for n in 1..=1_203 {
        home.put(&Log::healthy(&t(n), "2026-03-05T00:00:00Z"));
    }
    let mut walked = home.walk(&["--limit", "500"]);
    walked.sort();
    assert_eq!(walked, ids(1..=1_203));
}

/// Empty rollouts broke statistics or were shown as empty chats.
#[test]
fn b45_header_only_is_hidden_and_counted() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::new(&t(2), AT).meta());
    let out = home.list(&[]);
    assert_eq!(out.ids(), ids([1]));
    assert_eq!(out.hidden("empty"), 1);
    let all = home.list(&["--include", "empty"]);
    assert_eq!(all.set(), ids([1, 2]));
    assert_eq!(all.thread(&t(2))["preview"], Value::Null);
    let shown = home.show(&[&t(2)]);
    assert!(shown.turns().is_empty(), "{shown:?}");
}

/// Other rollouts in which nobody said anything: settings, counts, injected context, an unused turn.
#[test]
fn b45_kinds_of_empty_threads() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::new(&t(2), AT).meta().set().tok(0));
    let injected =
        Log::new(&t(3), AT).meta().item("developer", "<permissions instructions>no</permissions instructions>");
    home.put(&injected.item("user", "<environment_context>\n  <cwd>/w/p</cwd>\n</environment_context>"));
    home.put(&Log::paginated(&t(4), AT).meta());
    let out = home.list(&[]);
    assert_eq!(out.ids(), ids([1]));
    assert_eq!(out.hidden("empty"), 3);
    assert_eq!(home.list(&["--include", "empty"]).set(), ids(1..=4));
    assert_eq!(home.list(&["--all"]).set(), ids(1..=4));
    for n in 2..=4 {
        assert_eq!(home.show(&[&t(n)]).json["thread"]["id"], t(n));
        assert_eq!(home.run(&["resume", &t(n)]).json["thread_id"], t(n));
    }
}

/// Instructions that the harness injects were taken for the first message.
#[test]
fn b19_injected_context_is_no_title() {
    let home = Home::new();
    let log = Log::new(&t(1), AT)
        .meta()
        .item("developer", "<skills>\nmany skills\n</skills>")
        .item("user", "# AGENTS.md instructions for /w/p\n<INSTRUCTIONS>\nuse tabs\n</INSTRUCTIONS>")
        .item("user", "<environment_context>\n  <cwd>/w/p</cwd>\n</environment_context>")
        .item("user", "fix the parser");
    home.put(&log);
    let out = home.list(&[]);
    assert_eq!(out.thread(&t(1))["preview"], "fix the parser");
    assert_eq!(out.thread(&t(1))["first_user_message"], "fix the parser");
}

/// Injected blocks of other versions, several in one message, and threads that hold nothing else.
#[test]
fn b19_injected_context_variants() {
    let home = Home::new();
    let old = "<user_instructions>\nuse tabs\n</user_instructions>";
    let context = "<environment_context>\n  <cwd>/w/p</cwd>\n  <shell>bash</shell>\n</environment_context>";
    home.put(&Log::new(&t(1), AT).meta().item("user", old).item("user", context).item("user", "older shape"));
    let both = json!({"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "# AGENTS.md instructions for /w/p\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>"},
        {"type": "input_text", "text": context},
    ]});
    home.put(&Log::new(&t(2), AT).meta().response(both).item("user", "newer shape"));
    for n in [3, 4] {
        let log = Log::new(&t(n), AT)
            .meta()
            .item("user", "# AGENTS.md instructions for /w/p\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>");
        home.put(&log.item("user", context).item("assistant", "waiting"));
    }
    let out = home.list(&[]);
    assert_eq!(out.set(), ids(1..=4), "two threads of nothing but injected blocks stay two");
    assert_eq!(out.thread(&t(1))["preview"], "older shape");
    assert_eq!(out.thread(&t(2))["preview"], "newer shape");
    for n in [3, 4] {
        let row = out.thread(&t(n));
        assert_eq!(row["first_user_message"], Value::Null);
        assert!(row["preview"] == Value::Null || row["preview"] == "waiting", "{row}");
    }
}

/// One line a thread, the facts of the contract, in both shapes.
#[test]
fn thread_fields_of_both_shapes() {
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let git = json!({"commit_hash": "abc", "branch": "main", "repository_url": "https://example.invalid/r.git"});
        let log = Log::shaped(shape, &t(1), AT).meta_with(json!({"git": git, "originator": "codex_vscode"}));
        let log = log.turn("first question", "first answer").turn("second question", "second answer");
        home.put(&log);
        let out = home.list(&["--count"]);
        let row = out.thread(&t(1));
        assert_eq!(row["session_id"], t(1));
        assert_eq!(row["cwd"], "/w/p");
        assert_eq!(row["source"], "cli");
        assert_eq!(row["originator"], "codex_vscode");
        assert_eq!(row["model_provider"], "openai");
        assert_eq!(row["created_at"], "2026-03-01T10:00:00.000Z");
        assert_eq!(row["updated_at"], "2026-03-01T10:00:08.000Z");
        assert_eq!(row["recency_at"], "2026-03-01T10:00:05.000Z");
        assert_eq!(row["archived"], false);
        assert_eq!(row["archived_at"], Value::Null);
        assert_eq!(row["parent_id"], Value::Null);
        assert_eq!(row["forked_from_id"], Value::Null);
        assert_eq!(row["children"], 0);
        assert_eq!(row["history_mode"], if shape == Shape::Legacy { "legacy" } else { "paginated" });
        assert_eq!(row["turns"], 2);
        assert_eq!(row["records"], 9);
        assert_eq!(row["bytes"], log.len());
        assert_eq!(row["git"], json!({"sha": "abc", "branch": "main", "origin_url": "https://example.invalid/r.git"}));
        assert_eq!(row["files"].as_array().map(Vec::len), Some(1));
        let file = &row["files"][0];
        assert_eq!(file["path"], log.active_path());
        assert_eq!((&file["kind"], &file["role"]), (&json!("plain"), &json!("head")));
        assert_eq!((&file["bytes"], &file["records"]), (&json!(log.len()), &json!(9)));
        assert_eq!(row["live"], Value::Null);
        assert_eq!(out.json["total"], 1);
        assert_eq!(out.json["complete"], true);
    }
}

/// A missing home is a failure that says so; an empty one is an empty list.
#[test]
fn missing_and_empty_homes() {
    let home = Home::new();
    let out = home.list(&[]);
    assert!(out.ids().is_empty());
    assert_eq!(out.json["complete"], true);
    assert_eq!(home.search(&["word"]).json["complete"], true);
    let gone = home.outside("no-such-home");
    let out = home.spawn(&["--json", "list"], |command| {
        *command = assert_cmd::Command::cargo_bin("threadkeep").expect("the command is built");
        crate::home::clean(command, &home.outside("nobody"));
        command.arg("--home").arg(&gone).args(["--json", "list"]);
    });
    assert_ne!(out.code, 0, "{out:?}");
    let error: Value = serde_json::from_str(&out.stdout).expect("one object");
    assert!(error["error"]["kind"].is_string(), "{out:?}");
    assert!(out.stderr.contains("no-such-home"), "the failure names the place: {out:?}");
}
