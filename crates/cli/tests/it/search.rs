//! Where it was said: what is searched and what is not, each thing said is one hit, and a hit leads to its place.

use std::fs;

use serde_json::{Value, json};

use crate::{
    home::{Home, ids},
    log::{Log, Shape, t},
};

const AT: &str = "2026-03-01T10:00:00Z";

/// A hit says where it is: the line and byte of a record in a file, and a snippet with the match.
#[track_caller]
fn leads_to_its_place(home: &Home, hit: &Value, needle: &str) {
    let path = hit["path"].as_str().expect("a path");
    let bytes = fs::read(home.file(path)).unwrap_or_else(|error| panic!("{error}: {hit}"));
    let offset = usize::try_from(hit["offset"].as_u64().expect("an offset")).expect("a size");
    let line = bytes[..offset].iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    assert_eq!(hit["line"], line, "{hit}");
    let record = bytes[offset..].split(|byte| *byte == b'\n').next().expect("a record");
    assert!(serde_json::from_slice::<Value>(record).is_ok(), "the offset is that of a record: {hit}");
    let snippet: Vec<char> = hit["snippet"].as_str().expect("a snippet").chars().collect();
    let place = |n: usize| usize::try_from(hit["match"][n].as_u64().expect("a place")).expect("a size");
    let found: String = snippet[place(0)..place(1)].iter().collect();
    assert_eq!(found.to_lowercase(), needle.to_lowercase(), "{hit}");
}

/// A thread in which everything that can be said is said once.
fn everything(shape: Shape) -> Log {
    let log = Log::shaped(shape, &t(1), AT).meta_with(json!({"base_instructions": {"text": "zq-base zq-hidden"}}));
    let log = log
        .task_started()
        .item("developer", "zq-developer zq-hidden")
        .user("zq-user question")
        .item("user", "zq-user question");
    let log = log.response(json!({
        "type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "zq-thought"}],
        "encrypted_content": "gAAAAABzq-hidden",
    }));
    let log = log.response(json!({
        "type": "function_call", "name": "exec_command", "call_id": "c1", "arguments": "{\"cmd\":\"echo zq-call\"}",
    }));
    let log = log.out("c1", "Chunk ID: 6a76cc\nProcess exited with code 0\nOutput:\nzq-output\n");
    let log = log.response(json!({
        "type": "custom_tool_call", "name": "apply_patch", "call_id": "c2", "status": "completed",
        "input": "*** Begin Patch\n*** Add File: a.rs\n+zq-patch\n*** End Patch",
    }));
    let log = match shape {
        Shape::Legacy => log
            .event(json!({"type": "agent_reasoning", "text": "zq-thought"}))
            .event(json!({"type": "exec_command_end", "call_id": "c1", "aggregated_output": "zq-output\n", "exit_code": 0, "command": ["bash", "-lc", "echo zq-call"]}))
            .event(json!({"type": "patch_apply_end", "call_id": "c2", "success": true, "stdout": "", "stderr": "", "changes": {"a.rs": {"type": "add", "content": "zq-patch\n"}}})),
        Shape::Paginated => log
            .completed(json!({"type": "Reasoning", "id": "rs_1", "summary_text": ["zq-thought"], "raw_content": []}))
            .completed(json!({
                "type": "CommandExecution", "id": "c1", "command": ["/bin/bash", "-lc", "echo zq-call"], "status": "completed",
                "aggregated_output": "zq-output\n", "exit_code": 0, "cwd": "file:///w/p",
            }))
            .completed(json!({"type": "FileChange", "id": "c2", "status": "completed", "changes": {"a.rs": {"type": "add", "content": "zq-patch\n"}}})),
    };
    let log = log.completed(json!({"type": "Plan", "id": "plan-1", "text": "zq-plan first, then the rest"}));
    log.agent("zq-agent answer").item("assistant", "zq-agent answer").task_complete("zq-agent answer")
}

/// Each thing that was said is found once, with its speaker, however many records repeat it.
#[test]
fn each_thing_said_is_one_hit() {
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        home.put(&everything(shape));
        home.idx(&t(1), "zq-name of it", AT);
        for (needle, speaker) in [
            ("zq-user", "user"),
            ("zq-agent", "agent"),
            ("zq-thought", "reasoning"),
            ("zq-call", "tool_call"),
            ("zq-output", "tool_output"),
            ("zq-patch", "patch"),
            ("zq-plan", "plan"),
            ("zq-name", "name"),
        ] {
            let out = home.search(&[needle]);
            assert_eq!(out.speakers(), [speaker], "{shape:?} {needle}");
            let hit = &out.hits()[0];
            assert_eq!(hit["thread_id"], t(1));
            if speaker != "name" {
                leads_to_its_place(&home, hit, needle);
                assert_eq!(hit["turn_number"], 1, "{hit}");
                assert!(hit["time"].as_str().is_some_and(|time| time.starts_with("2026-03-01T10:00:")), "{hit}");
            }
            assert_eq!(home.search(&[needle, "--in", speaker]).hits().len(), 1);
            assert_eq!((&out.json["next_cursor"], &out.json["complete"]), (&Value::Null, &json!(true)));
        }
        let all = home.search(&["zq-", "--limit", "100", "--count"]);
        assert_eq!(all.hits().len(), 8, "{shape:?}: {:?}", all.speakers());
        assert_eq!(all.json["threads"], 1);
    }
}

/// Injected context, keys, ids, encrypted text and headers are not what somebody said.
#[test]
fn what_nobody_said_is_no_hit() {
    let context = "<environment_context>\n  <cwd>/w/zq-cwd</cwd>\n  <shell>zq-hidden</shell>\n</environment_context>";
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let log = everything(shape)
            .item("user", context)
            .record("turn_context", json!({"cwd": "/w/zq-hidden", "model": "zq-hidden"}));
        let log = log.item("user", "# AGENTS.md instructions for /w/p\n<INSTRUCTIONS>\nzq-hidden\n</INSTRUCTIONS>");
        let log = log.item("user", "<user_instructions>\nzq-hidden\n</user_instructions>");
        let log = log.record("world_state", json!({"full": true, "state": {"agents_md": "zq-hidden"}})).set();
        let log = log.response(json!({"type": "compaction", "encrypted_content": "zq-hidden"}));
        let log = log.comp(json!([
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "zq-hidden"}]},
            {"type": "compaction", "encrypted_content": "zq-hidden"},
        ]));
        home.put(&log);
        for needle in [
            "zq-hidden",
            "zq-developer",
            "zq-base",
            "zq-cwd",
            "environment_context",
            "aggregated_output",
            "call_id",
            "session_meta",
            "item_completed",
            "input_text",
            "codex_cli_rs",
            "task_started",
            &t(1),
        ] {
            let out = home.search(&[needle]);
            assert_eq!(out.code, 1, "{shape:?} {needle}: {out:?}");
            assert!(out.hits().is_empty());
        }
    }
}

/// Base64 is no text: pictures of the user, of a tool and of the model.
#[test]
fn base64_is_no_hit() {
    let home = Home::new();
    let data = format!("data:image/png;base64,{}zqneedle{}", "A".repeat(400), "B".repeat(400));
    let image = json!({"type": "input_image", "image_url": data});
    let message = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "zq-look at this"}, image]});
    let log = Log::new(&t(1), AT).meta().response(message.clone());
    let log = log.event(json!({"type": "user_message", "message": "zq-look at this", "images": [data]}));
    let log = log.call("c1", "shot").response(json!({
        "type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "zq-taken"}, image],
    }));
    let log = log.response(
        json!({"type": "image_generation_call", "id": "ig", "status": "completed", "result": "AAAAzqneedleBBBB"}),
    );
    home.put(&log.comp(json!([message])));
    assert_eq!(home.search(&["zqneedle"]).code, 1);
    assert_eq!(home.search(&["zq-look"]).speakers(), ["user"]);
    assert_eq!(home.search(&["zq-taken"]).speakers(), ["tool_output"]);
    let shown = home.human(&["show", &t(1)]);
    assert!(!shown.stdout.contains("AAAAAAAA"), "a picture is a line: {}", shown.stdout);
}

/// Search looks in every kind of thread, and filters only narrow.
#[test]
fn every_kind_of_thread_is_searched() {
    let home = Home::new();
    let say = |log: Log| log.user("the common needle").agent("ok");
    home.put(&say(Log::new(&t(1), "2026-03-01T10:00:00Z").meta()));
    home.put(&say(Log::new(&t(2), "2026-03-02T10:00:00Z").meta_with(json!({"source": "exec", "cwd": "/other"}))));
    home.put(&say(Log::new(&t(3), "2026-03-03T10:00:00Z").sub(&t(1))));
    home.put_archived(&say(Log::new(&t(4), "2026-03-04T10:00:00Z").meta_with(json!({"model_provider": "custom"}))));
    let packed = say(Log::paginated(&t(5), "2026-03-05T10:00:00Z").meta().task_started());
    home.put_zst(&packed, &zstd::encode_all(packed.bytes().as_slice(), 3).expect("zstd"));
    let out = home.search(&["common needle", "--count"]);
    assert_eq!(out.hit_threads(), [t(5), t(4), t(3), t(2), t(1)], "newest thread first");
    assert_eq!(out.json["threads"], 5);
    let narrowed: [(&[&str], &[u32]); 8] = [
        (&["--cwd", "/other"], &[2]),
        (&["--source", "exec"], &[2]),
        (&["--provider", "custom"], &[4]),
        (&["--archived"], &[4]),
        (&["--since", "2026-03-04T00:00:00Z"], &[5, 4]),
        (&["--until", "2026-03-02T00:00:00Z"], &[1]),
        (&["--thread", &t(3)], &[3]),
        (&["--in", "agent"], &[]),
    ];
    for (args, expected) in narrowed {
        let out = home.search(&[&["common needle"], args].concat());
        assert_eq!(out.hit_threads(), expected.iter().map(|n| t(*n)).collect::<Vec<_>>(), "{args:?}");
    }
}

/// `--in` with several speakers and with one that does not exist; `--thread` with a name and with no thread.
#[test]
fn speakers_and_threads_that_are_asked_for() {
    let home = Home::new();
    home.put(&everything(Shape::Legacy));
    home.put(&Log::new(&t(2), AT).meta().user("zq-other").agent("zq-other"));
    home.idx(&t(1), "the big one", AT);
    let mut both = home.search(&["zq-", "--in", "user,agent", "--thread", &t(1)]).speakers().join(" ");
    assert!(both == "user agent" || both == "agent user", "{both}");
    both = home.search(&["zq-", "--in", "patch,plan"]).speakers().join(" ");
    assert!(both == "patch plan", "{both}");
    assert_eq!(home.run(&["search", "zq-", "--in", "nobody"]).code, 2);
    let named = home.search(&["zq-user", "--thread", "the big one"]);
    assert_eq!(named.hit_threads(), ids([1]));
    let out = home.run(&["search", "zq-", "--thread", &t(7)]);
    assert_eq!((out.code, &out.error()["kind"]), (1, &json!("not_found")));
}

/// A search without a hit is an ordinary answer and exit 1; without a word it is wrong usage.
#[test]
fn no_hit_and_no_word() {
    let home = Home::new();
    home.put(&everything(Shape::Legacy));
    let out = home.search(&["not said by anybody", "--count"]);
    assert_eq!((out.code, &out.json["threads"], &out.json["complete"]), (1, &json!(0), &json!(true)));
    assert_eq!(home.run(&["search", ""]).code, 2);
    assert_eq!(home.human(&["search"]).code, 2);
    assert_eq!(home.human(&["search", "not said by anybody"]).code, 1);
}

/// Turn numbers of hits are those of `show`, and `--turn` leads to the text.
#[test]
fn hits_lead_to_their_turn() {
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let log = (1..=30).fold(Log::shaped(shape, &t(1), AT).meta(), |log, n| {
            let call = format!("c{n}");
            log.task_started()
                .user(&format!("ask-{n}-"))
                .call(&call, &format!("run-{n}-"))
                .out(&call, &format!("got-{n}-"))
                .agent("x")
        });
        home.put(&log);
        for n in [1, 2, 17, 30] {
            for word in ["ask", "run", "got"] {
                let needle = format!("{word}-{n}-");
                let out = home.search(&[&needle]);
                assert_eq!((out.hits().len(), &out.hits()[0]["turn_number"]), (1, &json!(n)), "{needle}");
                let shown = home.show(&[&t(1), "--turn", &n.to_string()]);
                assert_eq!(shown.turns().len(), 1);
                assert_eq!(shown.turns()[0]["id"], out.hits()[0]["turn_id"]);
                assert!(shown.said().contains(&needle));
            }
        }
        let latest = home.search(&["ask-", "--limit", "3"]);
        assert_eq!(latest.hits().len(), 3);
        assert!(latest.json["next_cursor"].is_string());
    }
}

/// Several matches in one message, and the readable forms of a compaction and of words between agents.
#[test]
fn summaries_and_messages_between_agents() {
    let home = Home::new();
    let log = Log::new(&t(1), AT).meta().user("ask").agent("answer");
    let log = log.response(json!({
        "type": "agent_message", "author": "/root", "recipient": "/root/ada", "content": [{"type": "input_text", "text": "zq-between agents"}],
    }));
    let log = log.event(json!({"type": "agent_reasoning_raw_content", "text": "zq-raw thought"}));
    let log = log.response(json!({"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "zq-content thought"}], "encrypted_content": null}));
    let log = log.response(json!({"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "zq-web query"}}));
    home.put(&log.response(json!({"type": "local_shell_call", "call_id": "l1", "status": "completed", "action": {"type": "exec", "command": ["echo", "zq-local shell"]}})));
    for (needle, speakers) in
        [("zq-raw", "reasoning"), ("zq-content", "reasoning"), ("zq-web", "tool_call"), ("zq-local", "tool_call")]
    {
        assert_eq!(home.search(&[needle]).speakers(), [speakers], "{needle}");
    }
    assert_eq!(home.search(&["zq-between"]).hits().len(), 1);
}

/// A compaction repeats what was said; it is said once.
#[test]
fn compactions_repeat_nothing() {
    let part = |role: &str, kind: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": kind, "text": text}]});
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let log = Log::shaped(shape, &t(1), AT).meta().turn("zq-asked", "zq-answered");
        let log =
            log.comp(json!([part("user", "input_text", "zq-asked"), part("assistant", "output_text", "zq-answered")]));
        let log = log.comp(json!([part("user", "input_text", "zq-asked")])).turn("zq-asked again", "yes");
        home.put(&log);
        assert_eq!(home.search(&["zq-answered"]).speakers(), ["agent"]);
        assert_eq!(home.search(&["zq-asked"]).hits().len(), 2);
        assert_eq!(home.search(&["zq-asked again"]).hits()[0]["turn_number"], 2);
        assert_eq!(home.show(&[&t(1)]).turns().len(), 2);
    }
}

/// A call of an MCP tool is told by several records: its words and its answer are found once each.
#[test]
fn tools_of_servers_are_searched() {
    let invocation = json!({"server": "s", "tool": "t", "arguments": {"q": "zq-mcp argument"}});
    let content = json!([{"type": "text", "text": "zq-mcp result"}]);
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let log = Log::shaped(shape, &t(1), AT).meta().task_started().user("ask").response(json!({
            "type": "function_call", "name": "mcp__s__t", "call_id": "m1", "arguments": "{\"q\":\"zq-mcp argument\"}",
        }));
        let log = match shape {
            Shape::Legacy => log.event(json!({
                "type": "mcp_tool_call_end", "call_id": "m1", "invocation": invocation, "result": {"Ok": {"content": content}},
            })),
            Shape::Paginated => log.completed(json!({
                "type": "McpToolCall", "id": "m1", "server": "s", "tool": "t", "status": "completed",
                "arguments": {"q": "zq-mcp argument"}, "result": {"content": content}, "error": null,
            })),
        };
        home.put(&log.out("m1", "Wall time: 0.1 seconds\nOutput:\nzq-mcp result").agent("done"));
        assert_eq!(home.search(&["zq-mcp argument"]).speakers(), ["tool_call"], "{shape:?}");
        assert_eq!(home.search(&["zq-mcp result"]).speakers(), ["tool_output"], "{shape:?}");
    }
}

/// Commands that the user ran are told by one record only.
#[test]
fn commands_of_the_user_are_searched() {
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let log = Log::shaped(shape, &t(1), AT).meta().task_started().user("ask");
        home.put(&match shape {
            Shape::Legacy => log.event(json!({
                "type": "exec_command_end", "call_id": "u1", "source": "user_shell", "command": ["/bin/bash", "-lc", "echo zq-typed"],
                "aggregated_output": "zq-printed\n", "exit_code": 0,
            })),
            Shape::Paginated => log.completed(json!({
                "type": "CommandExecution", "id": "u1", "source": "user_shell", "command": ["/bin/bash", "-lc", "echo zq-typed"],
                "status": "completed", "aggregated_output": "zq-printed\n", "exit_code": 0, "cwd": "file:///w/p",
            })),
        });
        assert_eq!(home.search(&["zq-typed"]).speakers(), ["tool_call"], "{shape:?}");
        assert_eq!(home.search(&["zq-printed"]).speakers(), ["tool_output"], "{shape:?}");
        let said = home.show(&[&t(1)]).said();
        assert!(said.contains("zq-typed") && said.contains("zq-printed"), "{said}");
    }
}
