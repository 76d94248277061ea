//! `resume`: what to run to go on, in the right directory and home.

use std::fs;

use serde_json::{Value, json};

use crate::{
    home::Home,
    log::{Log, t},
};

const AT: &str = "2026-03-01T10:00:00Z";

fn words(out: &crate::home::Out) -> Vec<String> {
    let command = out.json["command"].as_array().unwrap_or_else(|| panic!("a command: {out:?}"));
    command.iter().map(|word| word.as_str().expect("a word").to_owned()).collect()
}

/// Directory, home and command of a thread that can be gone on with.
#[test]
fn what_to_run() {
    let home = Home::new();
    let cwd = home.outside("work dir");
    fs::create_dir(&cwd).expect("a folder");
    home.put(&Log::new(&t(1), AT).meta_with(json!({"cwd": cwd})).user("hello").agent("ok"));
    let out = home.run(&["resume", &t(1)]);
    assert_eq!(out.code, 0);
    assert_eq!((&out.json["thread_id"], &out.json["archived"]), (&json!(t(1)), &json!(false)));
    assert_eq!(out.json["cwd"], json!(cwd));
    let told = fs::canonicalize(out.json["home"].as_str().expect("a home")).expect("the home is there");
    assert_eq!(told, fs::canonicalize(home.path()).expect("the home is there"));
    let words = words(&out);
    assert_eq!(words[0], "codex");
    assert!(words.contains(&"resume".to_owned()) && words.contains(&t(1)), "{words:?}");
    let human = home.human(&["resume", &t(1)]);
    assert_eq!(human.code, 0);
    assert!(human.stdout.contains(&t(1)) && human.stdout.contains("work dir"), "{human:?}");
}

/// By prefix and by name, the same.
#[test]
fn by_prefix_and_name() {
    let home = Home::new();
    home.put(&Log::healthy("0abc0000-0000-7000-8000-000000000001", AT));
    home.put(&Log::healthy(&t(1), AT));
    home.idx(&t(1), "the name", AT);
    assert_eq!(home.run(&["resume", "0abc"]).json["thread_id"], "0abc0000-0000-7000-8000-000000000001");
    assert_eq!(home.run(&["resume", "the name"]).json["thread_id"], t(1));
    assert_eq!(words(&home.run(&["resume", "the name"])).last(), Some(&t(1)), "by its id, which cannot be mistaken");
}

/// An archived thread says so first.
#[test]
fn archived_threads_say_so() {
    let home = Home::new();
    home.put_archived(&Log::healthy(&t(1), AT));
    let out = home.run(&["resume", &t(1)]);
    assert_eq!((out.code, &out.json["archived"]), (0, &json!(true)));
    let human = home.human(&["resume", &t(1)]);
    let told = format!("{}{}", human.stdout, human.stderr).to_lowercase();
    assert!(told.contains("archive"), "{told}");
}

/// A directory that is gone, and a thread that never had one.
#[test]
fn directories_that_are_gone() {
    let home = Home::new();
    home.put(&Log::new(&t(1), AT).meta_with(json!({"cwd": "/gone/away"})).user("hello").agent("ok"));
    home.put(&Log::new(&t(2), AT).item("user", "headless").item("assistant", "ok"));
    assert_eq!(home.run(&["resume", &t(1)]).json["cwd"], "/gone/away");
    let out = home.run(&["resume", &t(2)]);
    assert_eq!((out.code, &out.json["cwd"]), (0, &Value::Null));
}

/// What is not there, and what could be several.
#[test]
fn refusals() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::healthy(&t(2), AT));
    let out = home.run(&["resume", &t(9)]);
    assert_eq!((out.code, &out.error()["kind"]), (1, &json!("not_found")));
    assert_eq!(home.run(&["resume", "0199"]).code, 2);
    assert_eq!(home.human(&["resume"]).code, 2);
}

/// What is printed can be pasted into a shell, whatever the names of the directory and the home hold.
#[test]
fn what_is_printed_can_be_pasted() {
    use std::os::unix::fs::PermissionsExt;
    for name in ["plain", "with a space", "it's $(touch pwned) `x` \"q\" \\ ; # & ü"] {
        let home = Home::new();
        let (cwd, bin) = (home.outside(name), home.outside("bin"));
        fs::create_dir(&cwd).expect("a folder");
        fs::create_dir(&bin).expect("a folder");
        let stub = bin.join("codex");
        fs::write(&stub, "#!/bin/sh\nprintf '%s|%s|%s' \"$PWD\" \"$CODEX_HOME\" \"$*\"\n").expect("a stand-in");
        fs::set_permissions(&stub, fs::Permissions::from_mode(0o755)).expect("a mode");
        home.put(
            &Log::new(&t(1), AT).meta_with(json!({"cwd": cwd})).user("hello'; $(touch pwned)\nsecond").agent("ok"),
        );
        let printed = home.human(&["resume", &t(1)]).stdout;
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let output = std::process::Command::new("sh")
            .args(["-c", &printed])
            .current_dir(home.outside(""))
            .env("PATH", path)
            .output()
            .expect("a shell");
        let ran = String::from_utf8_lossy(&output.stdout).into_owned();
        let parts: Vec<&str> = ran.split('|').collect();
        assert_eq!(parts.len(), 3, "{printed} gave {output:?}");
        assert_eq!(fs::canonicalize(parts[0]).ok(), fs::canonicalize(&cwd).ok(), "{printed}");
        assert_eq!(fs::canonicalize(parts[1]).ok(), fs::canonicalize(home.path()).ok(), "{printed}");
        assert_eq!(parts[2], format!("resume {}", t(1)));
        assert!(!cwd.join("pwned").exists() && !home.outside("pwned").exists(), "{printed}");
    }
}
