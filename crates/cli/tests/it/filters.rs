//! Filters only narrow, each is asked for, and the answer says how many threads it left out.

use std::{fs, os::unix::fs::symlink};

use serde_json::{Value, json};

use crate::{
    home::{Home, ids},
    log::{Log, t},
};

const AT: &str = "2026-03-01T10:00:00Z";

fn with(n: u32, fields: Value) -> Log {
    Log::new(&t(n), AT).meta_with(fields).user(&format!("hello {n}")).agent("ok")
}

fn providers() -> Home {
    let home = Home::new();
    home.put(&with(1, json!({"model_provider": "openai"})));
    home.put(&with(2, json!({"model_provider": "custom"})));
    home.put(&with(3, json!({"model_provider": null})));
    home.write("config.toml", "model_provider = \"custom\"\n");
    home
}

/// The list showed only threads of the configured provider, and nothing told that others were there.
#[test]
fn b10_the_configured_provider_is_no_filter() {
    let home = providers();
    let out = home.list(&[]);
    assert_eq!(out.set(), ids([1, 2, 3]));
    assert_eq!(out.thread(&t(3))["model_provider"], Value::Null);
}

/// A provider filter is opt-in and counted.
#[test]
fn b10_provider_filter_is_counted() {
    let home = providers();
    let out = home.list(&["--provider", "custom"]);
    assert_eq!(out.ids(), ids([2]));
    assert_eq!(out.hidden("provider"), 2);
    let both = home.list(&["--provider", "openai", "--provider", "custom"]);
    assert_eq!(both.set(), ids([1, 2]));
    assert_eq!(both.hidden("provider"), 1);
    let none = home.list(&["--provider", "nobody"]);
    assert!(none.ids().is_empty());
    assert_eq!(none.hidden("provider"), 3);
}

/// A provider that is no longer defined kept a thread from being read.
#[test]
fn b11_undefined_provider_does_not_matter() {
    for config in ["", "model_provider = \"openai\"\n[model_providers.other]\nname = \"x\"\n", "this is = = not toml"] {
        let home = Home::new();
        home.put(&with(1, json!({"model_provider": "gone"})));
        home.write("config.toml", config);
        assert_eq!(home.list(&[]).ids(), ids([1]));
        assert!(home.show(&[&t(1)]).said().contains("hello 1"));
        assert_eq!(home.search(&["hello 1"]).hit_threads(), ids([1]));
        assert_eq!(home.run(&["resume", &t(1)]).code, 0);
    }
}

/// A directory reached by a link and the real one were two projects.
#[test]
fn b12_cwd_through_a_link_is_the_same_directory() {
    let home = Home::new();
    let real = home.outside("real/p");
    fs::create_dir_all(real.join("deeper")).expect("folders");
    symlink(home.outside("real"), home.outside("link")).expect("a link");
    let linked = home.outside("link/p");
    home.put(&with(1, json!({"cwd": linked})));
    home.put(&with(2, json!({"cwd": real})));
    home.put(&with(3, json!({"cwd": real.join("deeper")})));
    home.put(&with(4, json!({"cwd": home.outside("real")})));
    let shown = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let slashes = shown(&real).replace("/real/", "//real/./");
    for cwd in
        [shown(&real), shown(&linked), shown(&real) + "/", shown(&linked) + "/.", slashes, shown(&real) + "/../p"]
    {
        let out = home.list(&["--cwd", &cwd]);
        assert_eq!(out.set(), ids([1, 2]), "{cwd}");
        assert_eq!(out.hidden("cwd"), 2);
        assert_eq!(out.thread(&t(1))["cwd"], shown(&linked), "the row keeps what the file says");
    }
    let here = home.spawn(&["--json", "list", "--cwd", "."], |command| {
        command.current_dir(&real);
    });
    let here: Value = serde_json::from_str(&here.stdout).expect("one object");
    assert_eq!(here["threads"].as_array().map(Vec::len), Some(2), "a relative path is meant from here");
}

/// A directory that is gone is compared by its spelling.
#[test]
fn b12_cwd_that_is_gone_is_compared_by_spelling() {
    let home = Home::new();
    home.put(&with(1, json!({"cwd": "/gone/away/p"})));
    home.put(&with(2, json!({"cwd": "/gone/away/p/"})));
    home.put(&with(3, json!({"cwd": "/gone/away/pq"})));
    for cwd in ["/gone/away/p", "/gone/away/p/", "/gone//away/./p"] {
        assert_eq!(home.list(&["--cwd", cwd]).set(), ids([1, 2]), "{cwd}");
    }
    assert!(home.list(&["--cwd", "/gone/away"]).ids().is_empty(), "exactly that directory, not what is below");
}

fn sources() -> Home {
    let home = Home::new();
    home.put(&with(1, json!({"source": "cli"})));
    home.put(&with(2, json!({"source": "exec"})));
    home.put(&with(3, json!({"source": "vscode"})));
    home.put(&Log::new(&t(4), AT).sub(&t(1)).user("hello 4").agent("ok"));
    home.put(&with(5, json!({"source": "unknown"})));
    home.put(&with(6, json!({"source": null})));
    home
}

/// "No filter" and "everything" were one meaning, so exec threads could not be shown at all.
#[test]
fn b15_default_sources_and_includes() {
    let home = sources();
    let out = home.list(&[]);
    assert_eq!(out.set(), ids([1, 3, 5, 6]));
    assert_eq!((out.hidden("exec"), out.hidden("subagents")), (1, 1));
    assert_eq!(home.list(&["--include", "exec"]).set(), ids([1, 2, 3, 5, 6]));
    assert_eq!(home.list(&["--include", "subagents"]).set(), ids([1, 3, 4, 5, 6]));
    assert_eq!(home.list(&["--include", "exec,subagents"]).set(), ids(1..=6));
    assert_eq!(home.list(&["--all"]).set(), ids(1..=6));
}

/// Asked for by its source, an exec thread needs no other word.
#[test]
fn b15_source_filter() {
    let home = sources();
    assert_eq!(home.list(&["--source", "exec"]).ids(), ids([2]));
    let out = home.list(&["--source", "cli"]);
    assert_eq!(out.ids(), ids([1]));
    assert_eq!(out.hidden("source"), 5);
    assert!(home.list(&["--source", "vscode"]).set().contains(&t(3)));
}

/// Sources that other programs write: a person started these, and a kind of sub-agent from the future is one.
#[test]
fn b15_sources_of_other_programs() {
    let home = Home::new();
    home.put(&with(1, json!({"source": {"custom": "atlas"}})));
    home.put(&with(2, json!({"source": "some_new_editor"})));
    home.put(&with(3, json!({"source": {"subagent": {"from_the_future": {"x": 1}}}})));
    home.put(&with(4, json!({"source": {"subagent": {"other": "guardian"}}})));
    home.put(&with(5, json!({"source": 7})));
    let out = home.list(&[]);
    let listed = out.set();
    assert!(listed.contains(&t(1)) && listed.contains(&t(2)), "{out:?}");
    assert!(!listed.contains(&t(3)) && !listed.contains(&t(4)), "{out:?}");
    assert_eq!(out.hidden("subagents"), 2);
    let all = home.list(&["--all"]);
    assert_eq!(all.set(), ids(1..=5));
    assert_eq!(all.thread(&t(1))["source"], json!({"custom": "atlas"}), "as in the file");
    assert_eq!(all.thread(&t(3))["source"]["subagent"]["from_the_future"]["x"], 1);
}

/// Children of a thread were listed as chats of their own.
#[test]
fn b16_sub_agents_are_hidden_and_counted_under_their_parent() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    for n in 2..10 {
        home.put(&Log::new(&t(n), AT).sub(&t(1)).user("do a part").agent("did it"));
    }
    home.put(&with(10, json!({"source": {"subagent": "review"}})));
    home.put(&with(11, json!({"source": {"subagent": {"other": "guardian"}}, "parent_thread_id": t(1)})));
    let out = home.list(&["--count"]);
    assert_eq!(out.ids(), ids([1]));
    assert_eq!(out.hidden("subagents"), 10);
    let children = out.thread(&t(1))["children"].as_u64().expect("a count");
    assert!(children == 8 || children == 9, "{children}");
    let all = home.list(&["--include", "subagents"]);
    assert_eq!(all.set(), ids(1..=11));
    assert_eq!(all.thread(&t(2))["parent_id"], t(1));
    assert_eq!(all.thread(&t(11))["parent_id"], t(1));
    assert_eq!(all.thread(&t(10))["source"], json!({"subagent": "review"}));
}

/// A window of 50 filled with runs of an automation left no room for the chats of the person.
#[test]
fn b17_the_window_is_applied_after_the_filter() {
    let home = Home::new();
    for n in 10..110 {
        let at = format!("2026-03-02T{:02}:{:02}:00Z", n / 60, n % 60);
        let meta = json!({"originator": "multica-agent-sdk", "source": "vscode"});
        home.put(&Log::new(&t(n), &at).meta_with(meta).user("run").agent("ok"));
    }
    for n in 1..=5 {
        home.put(&with(n, json!({"originator": "codex_vscode", "source": "vscode"})));
    }
    let out = home.list(&["--originator", "codex_vscode", "--limit", "50"]);
    assert_eq!(out.set(), ids(1..=5));
    assert_eq!(out.hidden("originator"), 100);
    assert_eq!((&out.json["next_cursor"], &out.json["complete"]), (&Value::Null, &json!(true)));
    assert_eq!(home.list(&["--limit", "50"]).ids().len(), 50);
}

/// Strings of another machine are no paths of this one: they are compared and shown as they are.
#[test]
fn b78_foreign_directories_are_opaque() {
    let home = Home::new();
    let cwds = [
        "/mnt/e/test",
        "C:\\mnt\\e\\test",
        "\\\\wsl.localhost\\U\\home\\me\\p",
        "\\\\?\\UNC\\wsl.localhost\\U\\home\\me\\p",
    ];
    for (n, cwd) in (1..).zip(cwds) {
        home.put(&with(n, json!({"cwd": cwd})));
    }
    for (n, cwd) in (1..).zip(cwds) {
        let out = home.list(&["--cwd", cwd]);
        assert_eq!(out.ids(), ids([n]), "{cwd}");
        assert_eq!(out.thread(&t(n))["cwd"], cwd);
        assert_eq!(home.run(&["resume", &t(n)]).json["cwd"], cwd);
        assert_eq!(home.show(&[&t(n)]).json["thread"]["cwd"], cwd);
    }
}

/// `--model`, `--since`, `--until`, `--named` and `--match`, each with its count.
#[test]
fn the_other_filters_and_their_counts() {
    let home = Home::new();
    let context = |model: &str| json!({"turn_id": "x", "cwd": "/w/p", "approval_policy": "never", "model": model, "summary": "auto"});
    let model = |n: u32, at: &str, name: &str| {
        Log::new(&t(n), at).meta().record("turn_context", context(name)).user(&format!("question {n}")).agent("ok")
    };
    home.put(&model(1, "2026-03-01T10:00:00Z", "gpt-a"));
    home.put(&model(2, "2026-03-02T10:00:00Z", "gpt-b"));
    home.put(&model(3, "2026-03-03T10:00:00Z", "gpt-b"));
    home.idx(&t(1), "Lexer work", "2026-03-01T11:00:00Z");
    let out = home.list(&["--model", "gpt-b"]);
    assert_eq!(out.set(), ids([2, 3]));
    assert_eq!(out.thread(&t(2))["model"], "gpt-b");
    assert_eq!(out.hidden("model"), 1);
    let out = home.list(&["--since", "2026-03-02T00:00:00Z"]);
    assert_eq!((out.set(), out.hidden("since")), (ids([2, 3]), 1));
    let out = home.list(&["--until", "2026-03-02T12:00:00Z"]);
    assert_eq!((out.set(), out.hidden("until")), (ids([1, 2]), 1));
    assert_eq!(home.list(&["--since", "2026-03-02", "--until", "2026-03-02T23:59:59Z"]).ids(), ids([2]));
    let out = home.list(&["--named"]);
    assert_eq!((out.ids(), out.hidden("named")), (ids([1]), 2));
    let out = home.list(&["--match", "question 3"]);
    assert_eq!((out.ids(), out.hidden("match")), (ids([3]), 2));
    assert_eq!(home.list(&["--match", "Lexer"]).ids(), ids([1]), "a name is matched too");
    assert_eq!(home.run(&["list", "--since", "yesteryear"]).code, 2);
    assert_eq!(home.run(&["list", "--sort", "colour"]).code, 2);
}

/// Each hidden thread is counted once: the archive first, then the filters, then the defaults.
#[test]
fn hidden_threads_are_counted_once() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&with(2, json!({"source": "exec"})));
    home.put(&with(3, json!({"source": "exec", "cwd": "/other"})));
    home.put(&with(4, json!({"cwd": "/other"})));
    home.put_archived(&with(5, json!({"source": "exec", "cwd": "/other"})));
    home.put(&Log::new(&t(6), AT).meta());
    let out = home.list(&["--cwd", "/w/p"]);
    assert_eq!(out.ids(), ids([1]));
    let told: Vec<u64> = ["archived", "cwd", "exec", "empty"].iter().map(|key| out.hidden(key)).collect();
    assert_eq!(told, [1, 2, 1, 1]);
    let all: u64 = out.json["hidden"].as_object().expect("counts").values().filter_map(Value::as_u64).sum();
    assert_eq!(all, 5);
    assert_eq!(out.json["total"], 1);
    assert_eq!(home.list(&["--all"]).set(), ids(1..=6));
    assert_eq!(home.list(&["--include", "archived,exec"]).set(), ids(1..=5));
    let archived = home.list(&["--archived", "--include", "exec"]);
    assert_eq!(archived.ids(), ids([5]));
    assert!(archived.hidden("not_archived") > 0);
}
