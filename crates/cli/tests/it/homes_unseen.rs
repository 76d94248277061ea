//! Task homes where the system does not let everything be looked at.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::homes::{Operator, name, text};
use crate::log::t;

/// Someone with no rights of his own: the administrator sees everything, and most tests run as that in a container.
const NOBODY: u32 = 65534;

/// Runs the command with the rights of anybody. `None` where that cannot be done, or the command is not to be reached.
fn as_anybody(op: &Operator, words: &[&str]) -> Option<(i32, Value)> {
    let mut command = op.command(words);
    if administrator() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let output = command.output().ok()?;
    let value = serde_json::from_slice(&output.stdout).ok()?;
    Some((output.status.code()?, value))
}

fn administrator() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

fn give(path: &Path, uid: u32) {
    chown(path, Some(uid), Some(uid)).expect("another owner");
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("a folder") {
            give(&entry.expect("an entry").path(), uid);
        }
    }
}

fn forbid(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn prepared(op: &Operator, task: &str, id: &str) -> Option<(i32, Value)> {
    let task = op.task(task);
    let words = ["--json", "prepare", "--task-home", task.to_str().expect("text"), "--issue", "i1", "--resume", id];
    as_anybody(op, &words)
}

/// The place of an operator who is nobody.
fn place() -> Operator {
    let op = Operator::new();
    op.rollout(1);
    if administrator() {
        let above = op.shared();
        give(above.parent().expect("a folder"), NOBODY);
    }
    op
}

#[test]
fn a_folder_that_may_not_be_read_does_not_make_an_id_forgotten() {
    let op = place();
    let day = op.shared().join("sessions/2026/11/29");
    forbid(&day, 0);
    let answer = prepared(&op, "one", &t(1));
    let shared = op.shared().join("sessions");
    forbid(&shared, 0);
    let closed = prepared(&op, "two", &t(1));
    forbid(&shared, 0o700);
    forbid(&day, 0o700);
    let Some((code, answer)) = answer else { return };
    assert_eq!((code, &answer["reason"]), (0, &json!("cannot_look")), "{answer}");
    assert!(text(&answer["message"]).contains("2026/11/29"), "{answer}");
    assert!(answer["notes"].to_string().contains("2026/11/29"), "{answer}");
    let (code, closed) = closed.expect("as before");
    assert_eq!((code, &closed["error"]["kind"]), (5, &json!("failed")), "{closed}");
}

#[test]
fn another_conversations_store_that_may_not_be_read_is_told_too() {
    let op = place();
    let task = op.task("zero");
    let words = ["--json", "prepare", "--task-home", task.to_str().expect("text"), "--issue", "i0"];
    let Some((0, zero)) = as_anybody(&op, &words) else { return };
    let sessions = Path::new(text(&zero["store"])).join("sessions");
    forbid(&sessions, 0);
    let lost = prepared(&op, "one", &t(9));
    let found = prepared(&op, "one", &t(1));
    forbid(&sessions, 0o700);
    assert_eq!(lost.expect("as before").1["reason"], "cannot_look");
    assert_eq!(found.expect("as before").1["outcome"], "resumed");
}

/// A rollout that is told resumable opens.
#[test]
fn a_rollout_that_may_not_be_opened_is_not_resumed() {
    let op = place();
    let file = op.shared().join(format!("sessions/2026/11/29/{}", name(1)));
    if administrator() {
        chown(&file, Some(0), Some(0)).expect("another owner");
        forbid(&file, 0o600);
    } else {
        forbid(&file, 0);
    }
    let Some((code, answer)) = prepared(&op, "one", &t(1)) else { return };
    assert_eq!((code, &answer["reason"]), (0, &json!("unusable")), "{answer}");
    assert!(text(&answer["message"]).contains(&name(1)) && text(&answer["message"]).contains("opened"), "{answer}");
    assert_eq!(answer["exposed"], json!([]));
}
