//! `threadkeep home`: what an operator's program sees.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::home::Home;
use crate::log::{Log, t};

/// A shared home with task homes beside it.
pub struct Operator {
    pub home: Home,
}

impl Operator {
    pub fn new() -> Self {
        Self { home: Home::new() }
    }

    pub fn shared(&self) -> PathBuf {
        self.home.path()
    }

    pub fn task(&self, name: &str) -> PathBuf {
        self.home.outside(name)
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let split = words.iter().position(|w| *w == "--").map_or(words.len(), |i| i);
        let mut all: Vec<std::ffi::OsString> = words[..split].iter().map(Into::into).collect();
        if !words[..split].iter().any(|w| w.starts_with("--home")) {
            all.extend(["--shared-home".into(), self.shared().into()]);
        }
        all.extend(words[split..].iter().map(Into::into));
        let mut command = Command::new(env!("CARGO_BIN_EXE_threadkeep"));
        command.arg("home").args(all).env_remove("CODEX_HOME").stdin(Stdio::null());
        command
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().expect("the command")
    }

    pub fn json(&self, code: i32, words: &[&str]) -> Value {
        let mut all = vec!["--json"];
        all.extend(words);
        let output = self.run(&all);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {text} {errors}");
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{words:?}: {e}: {text}"));
        assert_eq!(value["format"], 1);
        value
    }

    pub fn prepare(&self, task: &str, words: &[&str]) -> Value {
        let task = self.task(task);
        let mut all = vec!["prepare", "--task-home", task.to_str().expect("text")];
        all.extend(words);
        self.json(0, &all)
    }

    /// A rollout in the shared home.
    pub fn rollout(&self, n: u32) -> PathBuf {
        self.home.put_at(&format!("sessions/2026/11/29/{}", name(n)), &Log::healthy(&t(n), "2026-11-29T10:00:00.000Z"))
    }
}

pub fn name(n: u32) -> String {
    format!("rollout-2026-11-29T10-00-00-{}.jsonl", t(n))
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

#[test]
fn the_life_of_a_conversation() {
    let op = Operator::new();
    let shared = op.rollout(1);
    let fresh = op.prepare("one", &["--issue", "i1", "--agent", "a"]);
    assert_eq!((&fresh["outcome"], &fresh["thread_id"]), (&json!("fresh"), &Value::Null));
    for list in ["exposed", "bases", "migrated", "repaired", "linked", "copied"] {
        assert!(fresh[list].is_array(), "{list}");
    }
    let resumed = op.prepare("two", &["--issue", "i1", "--agent", "a", "--resume", &t(1)]);
    assert_eq!((&resumed["outcome"], &resumed["reason"]), (&json!("resumed"), &Value::Null));
    let exposed = &resumed["exposed"][0];
    assert_eq!((&exposed["how"], &exposed["shares_appends"]), (&json!("hard_link"), &json!(true)));
    let there = op.task("two").join(text(&exposed["path"]));
    assert_eq!(fs::metadata(there).expect("exposed").ino(), fs::metadata(shared).expect("shared").ino());
    assert_eq!(resumed["store"], fresh["store"]);
    let lost = op.prepare("three", &["--issue", "i2", "--resume", &t(9)]);
    assert_eq!((&lost["outcome"], &lost["reason"]), (&json!("resume_unavailable"), &json!("not_found")));

    let task = op.task("two");
    let task = task.to_str().expect("text");
    let present = op.json(0, &["present", "--task-home", task, &t(1)]);
    assert_eq!(present["state"], "present");
    assert_eq!(present["path"], format!("sessions/2026/11/29/{}", name(1)));
    assert_eq!(op.json(1, &["present", "--task-home", task, &t(2)])["state"], "absent");
    assert_eq!(op.json(0, &["present", "--issue", "i1", "--agent", "a", &t(1)])["state"], "present");

    // A store is laid out like a home, and is read like one.
    let output = Command::new(env!("CARGO_BIN_EXE_threadkeep"))
        .args(["--json", "list", "--all", "--home", text(&resumed["store"])])
        .output()
        .expect("the command");
    let threads: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(threads["threads"][0]["id"], t(1));

    let list = op.json(0, &["list"]);
    let stores = list["stores"].as_array().expect("stores");
    assert_eq!(stores.len(), 2);
    let one = stores.iter().find(|s| s["id"] == "i1").expect("i1");
    assert_eq!((&one["kind"], &one["agent"], &one["profile"]), (&json!("issue"), &json!("a"), &json!("")));
    assert_eq!((&one["pinned"], &one["held_by"]), (&json!(false), &json!([])));
    assert_eq!(one["threads"][0]["id"], t(1));
    assert_eq!(op.json(0, &["show", "--issue", "i1", "--agent", "a"])["stores"][0]["store"], one["store"]);
    assert_eq!(op.json(0, &["list", "--profile", "other"])["stores"], json!([]));

    op.json(0, &["pin", "--issue", "i1", "--agent", "a", "--why", "release"]);
    assert_eq!(op.json(0, &["show", "--issue", "i1", "--agent", "a"])["stores"][0]["pinned"], true);
    op.json(0, &["unpin", "--issue", "i1", "--agent", "a"]);
    op.json(0, &["rekey", "--agent", "a", "--from", "issue:i1", "--to", "chat:c1"]);
    let moved = op.prepare("four", &["--chat", "c1", "--agent", "a", "--resume", &t(1)]);
    assert_eq!(moved["outcome"], "resumed");
    assert!(op.shared().join("sessions/2026/11/29").join(name(1)).exists());
}

#[test]
fn a_request_as_json_is_the_same_as_options() {
    let op = Operator::new();
    op.rollout(1);
    let request = json!({
        "task_home": op.task("one"), "shared_home": op.shared(), "profile": "p", "agent": "a", "chat": "", "issue": "i1",
        "resume": t(1), "local_directory": true, "config": {"model": "x", "a.b": [1, {"c": true}]},
    });
    let run = |request: &str| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_threadkeep"));
        command.args(["home", "prepare", "--stdin", "--json"]).write_stdin(request).output().expect("the command")
    };
    let output = run(&request.to_string());
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&answer["outcome"], output.status.code()), (&json!("resumed"), Some(0)));
    assert!(text(&answer["store"]).ends_with("stores/p-p/a-a/issue-i1"));
    let config = fs::read_to_string(op.task("one").join("config.toml")).expect("the config");
    assert!(config.contains("model = \"x\"") && config.contains("b = [1, { \"c\" = true }]"), "{config}");
    for bad in ["", "{}", "{\"task_home\": \"x\", \"surprise\": 1}", "[1]"] {
        let output = run(bad);
        let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((output.status.code(), &answer["error"]["kind"]), (Some(2), &json!("usage")), "{bad}");
    }
}

#[test]
fn failures_have_their_codes_and_change_nothing() {
    let op = Operator::new();
    let task = op.task("one");
    let task = task.to_str().expect("text");
    for id in ["*", "x/../../secret", "a b", "é"] {
        let error = op.json(2, &["prepare", "--task-home", task, "--issue", "i", "--resume", id]);
        assert_eq!(error["error"]["kind"], "usage", "{id}");
    }
    assert!(!op.task("one").exists(), "nothing was made");
    for words in [
        vec!["prepare"],
        vec!["prepare", "--task-home", task, "--issue", "a", "--chat", "b"],
        vec!["prune", "--retention", "99999 days"],
        vec!["prune", "--retention", "1Y"],
        vec!["prune", "--retention=-1"],
        vec!["prune", "--retention", "14"],
        vec!["prune", "--max-bytes", "lots"],
        vec!["rekey", "--from", "issue:", "--to", "chat:x"],
        vec!["pin"],
        vec!["run", "--task-home", task],
    ] {
        assert_eq!(op.json(2, &words)["error"]["kind"], "usage", "{words:?}");
    }
    // What may be deleted with a task is neither the shared home, nor in it, nor around it.
    let shared = op.shared();
    let inside = shared.join("sub");
    for bad in [&*shared, &inside, shared.parent().expect("a folder")] {
        let error = op.json(2, &["prepare", "--task-home", bad.to_str().expect("text"), "--issue", "i"]);
        assert_eq!(error["error"]["kind"], "usage", "{}", bad.display());
    }
    assert!(!inside.exists());
    fs::write(op.task("file"), "x").expect("a file");
    let file = op.task("file");
    let code = op.json(5, &["prepare", "--task-home", file.to_str().expect("text")]);
    assert_eq!(code["error"]["kind"], "failed");
    assert_eq!(op.json(1, &["show", "--issue", "none"])["error"]["kind"], "not_found");
    assert_eq!(op.json(1, &["run", "--task-home", task, "--", "true"])["error"]["kind"], "not_found");
    let output = Command::new(env!("CARGO_BIN_EXE_threadkeep"))
        .args(["home", "list", "--json", "--shared-home", "/nowhere/at/all"])
        .output()
        .expect("the command");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_home_of_all_commands_is_the_shared_one_here() {
    let op = Operator::new();
    op.prepare("one", &["--issue", "i1"]);
    let shared = op.shared();
    let shared = shared.to_str().expect("text");
    let (task, wrong) = (op.task("two"), op.task("wrong"));
    let (task, wrong) = (task.to_str().expect("text"), wrong.to_str().expect("text"));
    for words in [
        vec!["list", "--home", shared],
        vec!["show", "--home", shared, "--issue", "i1"],
        vec!["prune", "--home", shared, "--dry-run"],
        vec!["pin", "--home", shared, "--issue", "i1"],
        vec!["unpin", "--home", shared, "--issue", "i1"],
        vec!["rekey", "--home", shared, "--from", "issue:i1", "--to", "issue:i2"],
        vec!["prepare", "--home", shared, "--issue", "i2", "--task-home", task],
        vec!["list", "--home", shared, "--shared-home", shared],
    ] {
        op.json(0, &words);
    }
    assert_eq!(op.json(1, &["present", "--home", shared, "--issue", "i2", &t(1)])["state"], "absent");
    let run = op.run(&["run", "--home", shared, "--task-home", task, "--", "true"]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    assert_eq!(op.json(0, &["list", "--home", shared])["stores"][0]["id"], "i2");
    // Before the command's name it is the same.
    let output = Command::new(env!("CARGO_BIN_EXE_threadkeep"))
        .args(["--json", "--home", shared, "home", "list"])
        .output()
        .expect("the command");
    assert!(String::from_utf8_lossy(&output.stdout).contains("\"i2\""), "{output:?}");
    for words in [
        vec!["list", "--home", shared, "--shared-home", wrong],
        vec!["list", "--home", shared, "--home", shared],
        vec!["list", "--sqlite-home", wrong],
    ] {
        let error = op.json(2, &words);
        assert_eq!(error["error"]["kind"], "usage", "{words:?}");
    }
    let request = json!({"task_home": op.task("three"), "shared_home": wrong}).to_string();
    let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_threadkeep"));
    command.args(["--home", shared, "home", "prepare", "--stdin", "--json"]).write_stdin(request);
    assert_eq!(command.output().expect("the command").status.code(), Some(2));
    assert!(!op.task("three").exists());
}

#[test]
fn run_gives_the_home_and_passes_the_end_on() {
    let op = Operator::new();
    op.prepare("one", &["--issue", "i1"]);
    let task = op.task("one");
    let task = task.to_str().expect("text");
    let output = op
        .command(&[
            "run",
            "--task-home",
            task,
            "--",
            "sh",
            "-c",
            "printf %s \"$CODEX_HOME:$CODEX_SQLITE_HOME\"; exit 7",
        ])
        .env("CODEX_SQLITE_HOME", "/somewhere")
        .output()
        .expect("the command");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{task}:"));
    let output = op.run(&["run", "--task-home", task, "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(output.status.code(), Some(137));
    assert_eq!(op.run(&["run", "--task-home", task, "--", "/no/such/program"]).status.code(), Some(1));
}

pub fn until(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn an_agent_that_is_left_over_keeps_its_store() {
    let op = Operator::new();
    op.prepare("one", &["--issue", "i1"]);
    let task = op.task("one");
    let task = task.to_str().expect("text");
    let pid_file = op.task("pid");
    let script = format!("echo $$ > {}.new && mv {0}.new {0} && exec sleep 60", pid_file.display());
    let mut run = op.command(&["run", "--task-home", task, "--", "sh", "-c", &script]).spawn().expect("the command");
    until("the agent starts", || pid_file.exists());
    let agent: i32 = fs::read_to_string(&pid_file).expect("a pid").trim().parse().expect("a number");
    let held = || op.json(0, &["show", "--issue", "i1"])["stores"][0]["held_by"].as_array().expect("holders").len();
    // The wrapper and the agent, each once.
    assert_eq!(held(), if cfg!(target_os = "linux") { 2 } else { 1 });
    // The wrapper is killed; the agent lives on.
    run.kill().and_then(|()| run.wait()).expect("killed");
    let plan = op.json(0, &["prune", "--retention", "1s", "--yes"]);
    assert_eq!(plan["removed"], 0);
    if cfg!(target_os = "linux") {
        // The one that took the lock is gone; who holds it now is named, once.
        assert_eq!(plan["plan"][0]["because"], format!("held by process {agent}"));
        let shown = op.json(0, &["show", "--issue", "i1"])["stores"][0]["held_by"].clone();
        assert_eq!(shown, json!([{"pid": agent, "program": "sleep"}]));
    }
    let refused = op.command(&["--json", "present", "--task-home", task, &t(1)]).output().expect("the command");
    assert_eq!(refused.status.code(), Some(1), "reading is still possible");
    rustix_kill(agent);
    until("the lock goes with the agent", || held() == 0);
    std::thread::sleep(Duration::from_millis(1100));
    until("then it may go", || op.json(0, &["prune", "--retention", "1s", "--yes"])["removed"] == 1);
}

fn rustix_kill(pid: i32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill").success());
}

#[test]
fn a_termination_reaches_the_agent() {
    let op = Operator::new();
    op.prepare("one", &["--issue", "i1"]);
    let task = op.task("one");
    let started = op.task("started");
    let script = format!("trap 'exit 9' TERM; touch {}; while :; do sleep 0.05; done", started.display());
    let words = ["run", "--task-home", task.to_str().expect("text"), "--", "sh", "-c", &script];
    let mut run = op.command(&words).spawn().expect("the command");
    until("the agent starts", || started.exists());
    assert!(Command::new("kill").args(["-TERM", &run.id().to_string()]).status().expect("kill").success());
    assert_eq!(run.wait().expect("its end").code(), Some(9));
}

#[test]
fn names_given_in_a_run_are_told_by_the_next_preparation() {
    let op = Operator::new();
    op.rollout(1);
    op.prepare("one", &["--issue", "i1", "--resume", &t(1)]);
    let task = op.task("one");
    let line =
        format!("{{\\\"id\\\":\\\"{}\\\",\\\"thread_name\\\":\\\"the release\\\",\\\"updated_at\\\":\\\"t\\\"}}", t(1));
    let script = format!("echo \"{line}\" >> \"$CODEX_HOME/session_index.jsonl\"");
    let output = op.run(&["run", "--task-home", task.to_str().expect("text"), "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::remove_dir_all(&task).expect("the task is over");
    let next = op.prepare("two", &["--issue", "i1", "--resume", &t(1)]);
    assert_eq!(next["names"], json!([{"thread_id": t(1), "name": "the release"}]));
    // A named conversation is kept by clean-up.
    std::thread::sleep(Duration::from_millis(1100));
    let plan = op.json(0, &["prune", "--retention", "1s", "--yes"]);
    assert_eq!(plan["plan"][0]["because"], "named: the release");
}

#[test]
fn b87_b89_what_prune_shows_is_what_it_does_and_nothing_asked_is_nothing_done() {
    let op = Operator::new();
    for n in 1..=3 {
        op.prepare(&format!("t{n}"), &["--issue", &format!("i{n}")]);
    }
    op.json(0, &["pin", "--issue", "i2"]);
    std::thread::sleep(Duration::from_millis(1100));
    for words in [
        vec!["prune"],
        vec!["prune", "--retention", "0"],
        vec!["prune", "--max-bytes", "0"],
        vec!["prune", "--retention", "99999d"],
    ] {
        assert_eq!(op.json(0, &words)["removed"], 0, "{words:?}");
    }
    // Nobody can be asked here, and nobody said yes.
    for words in [["prune", "--retention", "1s"], ["prune", "--max-bytes", "1"]] {
        // The budget spares what was used within the hour.
        let code = if words[1] == "--max-bytes" { 0 } else { 3 };
        let answer = op.json(code, &words);
        assert!(code == 0 || text(&answer["error"]["hint"]).contains("--yes"), "{answer}");
        assert_eq!(op.json(0, &["list"])["stores"].as_array().map(Vec::len), Some(3), "{words:?}");
    }
    let dry = op.json(0, &["prune", "--retention", "1s", "--dry-run"]);
    assert_eq!((&dry["applied"], &dry["removed"]), (&json!(false), &json!(0)));
    let done = op.json(0, &["prune", "--retention", "1s", "--yes"]);
    assert_eq!((&done["applied"], &done["removed"], &done["plan"]), (&json!(true), &json!(2), &dry["plan"]));
    assert!(dry["plan"].as_array().expect("a plan").iter().all(|d| !text(&d["because"]).is_empty()));
    let left = op.json(0, &["list"]);
    assert_eq!(left["stores"].as_array().map(Vec::len), Some(1));
    assert_eq!(op.json(0, &["prune", "--retention", "1s", "--yes"])["removed"], 0, "again");
}

#[test]
fn b91_other_profiles_are_named_and_left() {
    let op = Operator::new();
    op.prepare("one", &["--issue", "i1", "--profile", "old"]);
    op.prepare("two", &["--issue", "i1", "--profile", "new"]);
    std::thread::sleep(Duration::from_millis(1100));
    let done = op.json(0, &["prune", "--profile", "new", "--retention", "1s", "--yes"]);
    assert_eq!((&done["removed"], &done["out_of_scope"]), (&json!(1), &json!(["p-old"])));
    assert_eq!(op.json(0, &["list"])["stores"][0]["profile"], "old");
}

#[test]
fn a_person_reads_the_same() {
    let op = Operator::new();
    op.rollout(1);
    let task = op.task("one");
    let task = task.to_str().expect("text");
    let say = |words: &[&str]| String::from_utf8_lossy(&op.run(words).stdout).into_owned();
    let prepared = say(&["prepare", "--task-home", task, "--issue", "i1", "--resume", &t(1)]);
    assert!(prepared.starts_with(&format!("resumed  {}", t(1))) && prepared.contains("(hard link)"), "{prepared}");
    assert!(say(&["present", "--task-home", task, &t(1)]).starts_with("present  sessions/"));
    assert!(say(&["list"]).starts_with("issue i1  1 threads"), "{}", say(&["list"]));
    assert!(say(&["prune", "--retention", "14d", "--dry-run"]).contains("used recently"));
    let lost = say(&["prepare", "--task-home", task, "--issue", "i1", "--resume", &t(2)]);
    assert!(lost.starts_with("resume unavailable (not_found)") && lost.contains("start a new thread"), "{lost}");
}

/// The homes that released versions wrote: every thread of theirs that can be resumed is, alone.
#[test]
fn threads_of_every_release_are_resumed() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes");
    let mut resumed = 0;
    for version in ["0.44.0", "0.63.0", "0.98.0", "0.118.0", "0.142.0", "0.156.0", "0.171.0"] {
        let home = Home::copy_of(&fixtures.join(version));
        let op = Operator { home };
        let mut ids: Vec<String> = Vec::new();
        for entry in walk(&op.shared().join("sessions")) {
            let name = entry.file_name().expect("a name").to_string_lossy().into_owned();
            if let Some(id) = name.strip_prefix("rollout-").and_then(|n| n.get(20..56)) {
                ids.push(id.to_owned());
            }
        }
        ids.sort();
        ids.dedup();
        assert!(ids.len() > 15, "{version}");
        // Every sixth: each is a process.
        for (n, id) in ids.iter().enumerate().filter(|(n, _)| n % 6 == 0) {
            let task = format!("t{n}");
            let answer = op.prepare(&task, &["--issue", &task, "--resume", id]);
            assert_eq!(answer["outcome"], "resumed", "{version} {id}: {answer}");
            let wanted = 1 + answer["bases"].as_array().expect("bases").len();
            let there: std::collections::BTreeSet<String> = walk(&op.task(&task).join("sessions"))
                .iter()
                .chain(&walk(&op.task(&task).join("archived_sessions")))
                .filter_map(|p| Some(p.file_name()?.to_str()?.get(28..64)?.to_owned()))
                .collect();
            assert_eq!(there.len(), wanted, "{version} {id}: {there:?}");
            resumed += 1;
        }
    }
    assert!(resumed > 20, "{resumed}");
}

fn walk(at: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(at).into_iter().flatten() {
        let path = entry.expect("an entry").path();
        if path.is_dir() { all.extend(walk(&path)) } else { all.push(path) }
    }
    all
}
