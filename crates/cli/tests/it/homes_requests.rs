//! Requests that make no sense: the caller's fault, said in a whole sentence.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::homes::{Operator, text};

fn from_stdin(op: &Operator, request: &Value) -> (i32, Value) {
    let mut child = op
        .command(&["--json", "prepare", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(request.to_string().as_bytes()).expect("the request");
    drop(stdin);
    let output = child.wait_with_output().expect("an answer");
    let value = serde_json::from_slice(&output.stdout).expect("JSON");
    (output.status.code().expect("a code"), value)
}

#[test]
fn empty_and_null_values_are_as_if_they_were_not_there() {
    let op = Operator::new();
    let (code, answer) = from_stdin(&op, &json!({"task_home": "", "issue": "i"}));
    assert_eq!((code, &answer["error"]["kind"]), (2, &json!("usage")), "{answer}");
    let home = op.task("one");
    let request = json!({
        "task_home": home, "shared_home": "", "issue": "i", "resume": null, "local_directory": null, "adopt": null,
        "config": null, "allow_copy": null, "expose": null,
    });
    let (code, answer) = from_stdin(&op, &request);
    assert_eq!((code, &answer["outcome"]), (0, &json!("fresh")), "{answer}");
}

#[test]
fn the_message_says_which_options_are_meant() {
    let op = Operator::new();
    let answer = op.json(2, &["prepare", "--stdin", "--task-home", "x"]);
    let said = text(&answer["error"]["message"]);
    assert!(said.contains("--stdin") && said.contains("--task-home") && !said.ends_with(':'), "{said}");
    let answer = op.json(2, &["prepare"]);
    assert!(text(&answer["error"]["message"]).contains("--task-home"), "{answer}");
}

#[test]
fn a_change_of_the_config_that_does_not_fit_is_the_callers() {
    let op = Operator::new();
    let home = op.task("one");
    let home = home.to_str().expect("text");
    let answer = op.json(2, &["prepare", "--task-home", home, "-c", "a.b=1", "-c", "a.b.c=2"]);
    assert_eq!(answer["error"]["kind"], "usage");
}
