//! B100: what is made is its owner's alone, what was there keeps its mode; and memory that does not follow a file's size.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    db::text,
    home::Home,
    log::{Log, Shape, t},
    write_run::{ALLOWED, done, watch},
};

const AT: &str = "2026-03-01T10:00:00Z";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o777
}

/// Every file and folder below with its mode.
fn modes(dir: &Path, all: &mut Vec<(String, u32)>) {
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        all.push((path.to_string_lossy().into_owned(), mode(&path)));
        if path.is_dir() {
            modes(&path, all);
        }
    }
}

/// Under any umask that takes nothing of the owner's: files 0600, folders 0700, and nothing that was there changes.
#[test]
fn b100_what_is_made_is_its_owner_s_alone() {
    for umask in ["022", "000", "002", "077"] {
        for shape in [Shape::Legacy, Shape::Paginated] {
            let home = Home::new();
            let log = Log::shaped(shape, &t(1), AT).meta().turn("q", "a");
            home.put_archived(&log);
            home.state().row(&t(1), &[("title", text("q")), ("first_user_message", text("q"))]).close();
            fs::set_permissions(home.file("state_5.sqlite"), fs::Permissions::from_mode(0o644)).expect("a mode");
            fs::set_permissions(home.file(&log.archived_path()), fs::Permissions::from_mode(0o644)).expect("a mode");
            fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
            let mut before = Vec::new();
            modes(&home.path(), &mut before);
            for words in [format!("rename {} given", t(1)), format!("fork {} --name twin", t(1))] {
                let binary = assert_cmd::cargo::cargo_bin("threadkeep");
                let script =
                    format!("umask {umask}; exec {} --home {} {words}", binary.display(), home.path().display());
                let status = Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).status().expect("it runs");
                assert!(status.success(), "{script}");
            }
            let mut after = Vec::new();
            modes(&home.path(), &mut after);
            assert_eq!(mode(&home.path()), 0o755);
            let made: Vec<_> = after.iter().filter(|(path, _)| !before.iter().any(|(p, _)| p == path)).collect();
            assert!(made.iter().any(|(path, _)| path.ends_with(".jsonl")), "{made:?}");
            for (path, is) in &made {
                let want = if Path::new(path).is_dir() { 0o700 } else { 0o600 };
                assert_eq!(*is, want, "{path} under umask {umask}");
            }
            for was in &before {
                assert!(after.contains(was), "{was:?} under umask {umask}");
            }
            for allowed in ALLOWED.iter().filter(|a| home.file(a).exists()) {
                assert_eq!(mode(&home.file(allowed)), 0o600, "{allowed}");
            }
        }
    }
}

/// The most memory that a run used, in kB.
#[cfg(target_os = "linux")]
fn peak(home: &Home, args: &[&str]) -> u64 {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin("threadkeep"))
        .arg("--home")
        .arg(home.path())
        .args(args)
        .stdout(Stdio::null())
        .spawn()
        .expect("it starts");
    let (peak, code) = watch(&mut child);
    assert!(code.success(), "{args:?}");
    assert!(peak > 1_000, "{args:?} was not seen");
    peak
}

/// A thread of 200 MB in a thousand turns, one of its records 30 MB long.
#[test]
#[cfg(target_os = "linux")]
fn memory_does_not_follow_the_size_of_a_source() {
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let log = Log::shaped(shape, &t(1), AT);
        let path = home.put(&log.clone().meta());
        let mut file = std::io::BufWriter::new(fs::File::options().append(true).open(&path).expect("the rollout"));
        let output = "y".repeat(165 << 10);
        let mut turn = log.meta();
        let mut written = turn.lines().len();
        for n in 0..1_000 {
            turn = turn.task_started().user(&format!("question {n}"));
            turn = if n == 500 { turn.out("c", &"z".repeat(30 << 20)) } else { turn.out("c", &output) };
            turn = turn.agent("ok").task_complete("ok");
            for line in &turn.lines()[written..] {
                file.write_all(line).expect("a record");
            }
            // What is written is not kept here either.
            turn = turn.forget();
            written = 0;
        }
        file.flush().expect("all of it");
        drop(file);
        let size = fs::metadata(&path).expect("it").len();
        assert!(size > 190 << 20, "{size}");
        for args in [
            &["fork", &t(1)][..],
            &["fork", &t(1), "--through-turn", "900"],
            &["fork", &t(1), "--before-turn", "turn-1000"],
            &["fork", &t(1), "--dry-run"],
            &["rename", &t(1), "large"],
        ] {
            let kb = peak(&home, args);
            // The 30 MB record is copied whole, in one piece beside the one it is read in.
            let most = if shape == Shape::Legacy && args[0] == "fork" { 170 << 10 } else { 64 << 10 };
            assert!(kb < most, "{shape:?} {args:?} used {kb} kB");
        }
        assert_eq!(home.list(&[]).thread(&t(1))["name"], "large");
        done(&home, &["rename", "large", "--clear"]);
    }
}
