//! What people see: nothing from a rollout reaches the terminal as a command, and the last line says what was left out.

use serde_json::{Value, json};

use crate::{
    home::{Home, ids},
    log::{Log, Shape, t},
};

const AT: &str = "2026-03-01T10:00:00Z";
const EVIL: &str = "evil\u{1b}[31m\u{1b}]0;title\u{7}\u{8}\u{9b}2J\u{7f}\r\n\u{202e}end";

#[track_caller]
fn harmless(text: &str) {
    for bad in ['\u{1b}', '\u{7}', '\u{8}', '\u{7f}', '\u{9b}', '\r', '\0'] {
        assert!(!text.contains(bad), "a raw {bad:?} in {text:?}");
    }
}

/// Control characters in names, messages, directories, tools and their output are made visible.
#[test]
fn control_characters_are_made_visible() {
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let meta =
            json!({"cwd": format!("/w/{EVIL}"), "originator": EVIL, "cli_version": EVIL, "model_provider": EVIL});
        let log = Log::shaped(shape, &t(1), AT).meta_with(meta).task_started().user(&format!("question {EVIL}"));
        let log = log.call("c1", &format!("echo {EVIL}")).out("c1", &format!("output {EVIL}"));
        let log = log.response(json!({"type": "function_call", "name": EVIL, "call_id": EVIL, "arguments": EVIL}));
        let log = log.response(
            json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": format!("thought {EVIL}")}]}),
        );
        home.put(&log.agent(&format!("answer {EVIL}")).task_complete("done"));
        home.put(&Log::healthy(&t(2), AT));
        home.idx(&t(1), &format!("name {EVIL}"), AT);
        let commands: [&[&str]; 11] = [
            &["list"],
            &["list", "--all"],
            &["search", "evil"],
            &["search", "question"],
            &["show", &t(1)],
            &["show", &t(1), "--full"],
            &["resume", &t(1)],
            &["show", EVIL],
            &["why", &t(1)],
            &["why", EVIL],
            &["stats"],
        ];
        for args in commands {
            let out = home.human(args);
            harmless(&out.stdout);
            harmless(&out.stderr);
        }
        let listed = home.human(&["list"]).stdout;
        assert_eq!(listed.lines().filter(|line| line.contains("evil")).count(), 1, "one line a thread: {listed}");
        assert!(home.human(&["show", &t(1)]).stdout.contains("question evil"));
        assert_eq!(home.list(&[]).thread(&t(1))["name"], format!("name {EVIL}"), "JSON has its own escapes");
        assert!(!home.run(&["list"]).stdout.contains('\u{1b}'));
    }
}

/// Two evil names of two threads: the candidates are harmless too.
#[test]
fn control_characters_in_errors() {
    let home = Home::new();
    for n in [1, 2] {
        home.put(&Log::healthy(&t(n), AT));
        home.idx(&t(n), EVIL, AT);
    }
    for command in ["show", "resume"] {
        let out = home.human(&[command, EVIL]);
        assert_eq!(out.code, 2);
        harmless(&out.stderr);
        harmless(&out.stdout);
    }
    harmless(&home.human(&["list", "--cursor", EVIL]).stderr);
    harmless(&home.human(&["search", EVIL]).stderr);
}

/// No colours without a terminal, nor with `NO_COLOR`; nothing but rows in a pipe.
#[test]
fn pipes_are_plain() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    for args in
        [&["list"][..], &["show", &t(1)], &["search", "hello"], &["resume", &t(1)], &["--help"], &["list", "--help"]]
    {
        let out = home.spawn(args, |command| {
            command.env_remove("NO_COLOR").env("TERM", "xterm-256color");
        });
        assert_eq!(out.code, 0, "{out:?}");
        assert!(!out.stdout.contains('\u{1b}') && !out.stderr.contains('\u{1b}'), "{out:?}");
        assert!(!out.stdout.is_empty());
    }
}

/// A list for people: the short id, what it is about, the marks, and what was left out.
#[test]
fn list_for_people() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::new(&t(2), AT).meta_with(json!({"source": "exec"})).user("run").agent("ok"));
    home.put_archived(&Log::healthy(&t(3), AT));
    home.put(&Log::new(&t(4), AT).meta());
    home.put(&Log::new(&t(5), AT).meta().user("broken thread").raw(b"%%%\n").agent("ok"));
    let out = home.human(&["list"]);
    assert!(out.stdout.contains("hello") && out.stdout.contains("01990000"), "{out:?}");
    let told = format!("{}{}", out.stdout, out.stderr);
    for word in ["exec", "archived", "empty"] {
        assert!(told.contains(word), "what was left out is told: {told}");
    }
    let row = out.stdout.lines().find(|line| line.contains("broken thread")).expect("a row");
    assert!(row.contains("damage"), "marked: {row}");
    let archived = home.human(&["list", "--archived"]).stdout;
    assert!(archived.contains("archived"), "{archived}");
}

/// A hit for people: who said it, where, and the words around it.
#[test]
fn search_for_people() {
    let home = Home::new();
    home.put(&Log::new(&t(1), AT).meta().turn("where is the needle now", "in the haystack"));
    let out = home.human(&["search", "needle"]);
    assert_eq!(out.code, 0);
    assert!(out.stdout.contains("where is the") && out.stdout.contains("user"), "{out:?}");
    assert!(out.stdout.contains("01990000"), "{out:?}");
}

/// `--jsonl` of `list` and `search`: one row a line, then the object with the same totals.
#[test]
fn jsonl_rows_and_totals() {
    let home = Home::new();
    for n in 1..=4 {
        home.put(&Log::healthy(&t(n), AT));
    }
    home.put_archived(&Log::healthy(&t(5), AT));
    let parse = |out: &crate::home::Out| -> Vec<Value> {
        out.stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
    };
    let lines = parse(&home.human(&["list", "--jsonl", "--limit", "3"]));
    let whole = home.list(&["--limit", "3"]);
    assert_eq!(lines.len(), 4);
    let rows: Vec<&Value> = lines[..3].iter().map(|row| &row["id"]).collect();
    assert_eq!(rows, whole.json["threads"].as_array().expect("rows").iter().map(|row| &row["id"]).collect::<Vec<_>>());
    for key in ["format", "home", "complete", "total", "hidden", "index"] {
        assert_eq!(lines[3][key], whole.json[key], "{key}");
    }
    assert!(lines[3]["next_cursor"].is_string());
    let lines = parse(&home.human(&["search", "hello", "--jsonl"]));
    assert_eq!(lines.len(), 6);
    assert!(lines[..5].iter().all(|hit| hit["speaker"] == "user"));
    assert_eq!((&lines[5]["format"], &lines[5]["complete"]), (&json!(1), &json!(true)));
    let lines = parse(&home.human(&["list", "--jsonl", "--match", "nothing like it"]));
    assert_eq!((lines.len(), &lines[0]["total"]), (1, &json!(0)));
}

/// The home by the environment, and several homes at once.
#[test]
fn homes_by_environment_and_several() {
    let (home, other) = (Home::new(), Home::new());
    home.put(&Log::healthy(&t(1), AT));
    other.put(&Log::healthy(&t(2), AT));
    let path = other.path();
    let both = home.human(&["--home".as_ref(), path.as_os_str(), "--json".as_ref(), "list".as_ref()]);
    for id in ids([1, 2]) {
        assert!(both.stdout.contains(&id), "{both:?}");
    }
    let mut command = assert_cmd::Command::cargo_bin("threadkeep").expect("the command is built");
    crate::home::clean(&mut command, &other.outside("nobody"));
    let output = command.env("CODEX_HOME", &path).args(["--json", "list"]).output().expect("it runs");
    let listed: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(listed["threads"][0]["id"], t(2));
    let mut command = assert_cmd::Command::cargo_bin("threadkeep").expect("the command is built");
    crate::home::clean(&mut command, &home.outside("user"));
    std::fs::create_dir_all(home.outside("user")).expect("a folder");
    std::fs::rename(home.path(), home.outside("user/.codex")).expect("the usual place");
    let output = command.args(["--json", "list"]).output().expect("it runs");
    let listed: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(listed["threads"][0]["id"], t(1));
}

/// A reader that goes away is no error.
#[test]
fn a_closed_pipe_is_success() {
    use std::process::{Command, Stdio};
    let home = Home::new();
    for n in 1..=300 {
        home.put(&Log::healthy(&t(n), AT));
    }
    let binary = assert_cmd::cargo::cargo_bin("threadkeep");
    for args in [&["list", "--limit", "300", "--jsonl"][..], &["list", "--limit", "300"], &["show", &t(1), "--raw"]] {
        let mut child = Command::new(&binary)
            .arg("--home")
            .arg(home.path())
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("it ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!stderr.contains("panicked") && !stderr.contains("pipe"), "{stderr}");
        assert_eq!(output.status.code(), Some(0), "{stderr}");
    }
}
