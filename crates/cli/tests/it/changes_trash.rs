//! The trash: what is done by hand in it harms nothing outside, several entries of one thread, several homes, what the
//! reading commands say of it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::home::{Home, ids};
use crate::log::{Log, t};
use crate::write_run::{change, change_with, done_all as done, files, refused, told};

const AT: &str = "2026-08-20T01:10:00Z";

fn entry(home: &Home, n: u32) -> PathBuf {
    home.file(&format!("threadkeep/trash/{}", t(n)))
}

fn entries(home: &Home) -> Vec<String> {
    let out = home.run(&["trash", "list"]);
    out.json["entries"].as_array().unwrap().iter().map(|e| e["id"].as_str().unwrap().to_owned()).collect()
}

/// A manifest that was changed by hand, or damaged: nothing outside the home, and nothing in it but the thread's own
/// rollouts, is moved, replaced or removed.
#[test]
fn no_manifest_reaches_beyond_the_threads_own_files() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::healthy(&t(2), AT));
    home.write("auth.json", "secret");
    let outside = home.outside("precious");
    fs::write(&outside, "x").unwrap();
    done(&home, &["delete", &t(1), "--yes"]);
    let manifest = entry(&home, 1).join("manifest.json");
    let whole: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    let replaced = |path: &str| json!({"replaced": {"path": path, "bytes": 1, "rollout_path": null}});
    let of = |path: &str| json!({"files": [{"path": path, "bytes": 1}]});
    let absolute = outside.to_string_lossy().into_owned();
    let was = files(&home).without("threadkeep/");
    for change_of in [
        of("../../precious"),
        of(&absolute),
        of("auth.json"),
        of(""),
        replaced("../precious"),
        replaced(&absolute),
        replaced("auth.json"),
        json!({"entry": "../x"}),
        json!({"format": 99}),
        json!({"files": 7}),
    ] {
        let mut new = whole.clone();
        for (key, value) in change_of.as_object().unwrap() {
            new[key] = value.clone();
        }
        fs::write(&manifest, new.to_string()).unwrap();
        for command in [&["restore", "--all"][..], &["trash", "empty", "--yes"]] {
            let out = done(&home, command);
            assert!(out.stderr.contains("is left alone"), "{change_of}: {out:?}");
        }
        assert!(was.changed(&home).is_empty() && was.made(&home).is_empty(), "{change_of}");
        assert_eq!(fs::read(&outside).unwrap(), b"x", "{change_of}");
    }
    // The rollout of another thread is none that took the place of this one's files.
    let mut new = whole.clone();
    new["replaced"] = json!({"path": Log::healthy(&t(2), AT).active_path(), "bytes": Log::healthy(&t(2), AT).bytes().len(), "rollout_path": null});
    fs::write(&manifest, new.to_string()).unwrap();
    done(&home, &["restore", &t(1)]);
    assert_eq!(home.list(&["--all"]).set(), ids([1, 2]));
    assert!(was.changed(&home).is_empty());
}

/// Links in the trash lead somewhere else, and nothing there is taken or removed.
#[test]
fn no_link_in_the_trash_is_followed() {
    let precious = |home: &Home| fs::read(home.outside("elsewhere/precious")).is_ok_and(|b| b == b"x");
    for what in ["entry", "files", "trash"] {
        let home = Home::new();
        home.put(&Log::healthy(&t(1), AT));
        done(&home, &["delete", &t(1), "--yes"]);
        let link = match what {
            "entry" => entry(&home, 1),
            "files" => entry(&home, 1).join("files"),
            _ => home.file("threadkeep/trash"),
        };
        fs::rename(&link, home.outside("elsewhere")).unwrap();
        fs::write(home.outside("elsewhere/precious"), "x").unwrap();
        symlink(home.outside("elsewhere"), &link).unwrap();
        let before = fs::read_dir(home.outside("elsewhere")).unwrap().count();
        let out = change(&home, &["restore", &t(1)]);
        assert!(out.code != 0 && home.list(&["--all"]).ids().is_empty(), "{what}: {out:?}");
        change(&home, &["trash", "empty", "--yes"]);
        assert!(precious(&home), "{what}");
        assert_eq!(fs::read_dir(home.outside("elsewhere")).unwrap().count(), before, "{what}");
    }
}

/// A thread that was deleted twice has two entries: the newest comes back, and each can be emptied by its own name.
#[test]
fn entries_of_one_thread_are_told_apart() {
    let twice = || {
        let home = Home::new();
        for text in ["older words", "newer words"] {
            home.put(&Log::healthy(&t(1), AT).user(text));
            done(&home, &["delete", &t(1), "--yes"]);
        }
        assert_eq!(entries(&home), [format!("{}-2", t(1)), t(1)]);
        home
    };
    let says = |home: &Home| ["older", "newer"].map(|w| !home.search(&[w, "--all"]).hits().is_empty());
    let home = twice();
    done(&home, &["trash", "empty", &t(1), &t(1), "--yes"]);
    assert_eq!(entries(&home), [format!("{}-2", t(1))]);
    done(&home, &["restore", &t(1)]);
    assert_eq!(says(&home), [false, true]);
    // A newer one takes the free name; the other can still be named.
    done(&home, &["delete", &t(1), "--yes"]);
    home.put(&Log::healthy(&t(1), AT).user("older words"));
    done(&home, &["delete", &t(1), "--yes"]);
    let [newest, other] = <[String; 2]>::try_from(entries(&home)).unwrap();
    assert_eq!((newest.as_str(), other.as_str()), (format!("{}-2", t(1)).as_str(), t(1).as_str()));
    done(&home, &["restore", &newest]);
    assert_eq!(says(&home), [true, false]);
    let home = twice();
    let out = done(&home, &["restore", "--all"]);
    assert!(out.stderr.contains("stays in the trash"), "{out:?}");
    assert_eq!((says(&home), entries(&home)), ([false, true], vec![t(1)]));
}

/// A thread that several homes have is restored in each that it was deleted from.
#[test]
fn every_home_gets_its_own_back() {
    let (one, two) = (Home::new(), Home::new());
    for home in [&one, &two] {
        home.put(&Log::healthy(&t(1), AT));
        done(home, &["delete", &t(1), "--yes"]);
    }
    let other = two.path().to_string_lossy().into_owned();
    let out = change_with(&one, &["--home", &other, "restore", "--all"], |_| ());
    assert_eq!(out.code, 0, "{out:?}");
    assert_eq!((one.list(&["--all"]).set(), two.list(&["--all"]).set()), (ids([1]), ids([1])));
}

/// Something stands where the thread's file was, or where its entry would be.
#[test]
fn what_stands_in_the_way_stays() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    home.put(&log);
    done(&home, &["delete", &t(1), "--yes"]);
    fs::create_dir(home.file(&log.active_path())).unwrap();
    refused(&home, &["restore", &t(1)], 3, "refused");
    fs::remove_dir(home.file(&log.active_path())).unwrap();
    done(&home, &["restore", &t(1)]);
    home.write(&format!("threadkeep/trash/{}", t(1)), "a file");
    done(&home, &["delete", &t(1), "--yes"]);
    done(&home, &["restore", &t(1)]);
    assert_eq!(fs::read(home.file(&format!("threadkeep/trash/{}", t(1)))).unwrap(), b"a file");
}

/// A deletion that was killed halfway is ended before the trash is emptied: no half of a thread goes for good.
#[test]
fn emptying_ends_first_what_was_begun() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    home.put(&log);
    home.put_zst(&log, &zstd::encode_all(&log.bytes()[..], 3).unwrap());
    home.idx(&t(1), "named", AT);
    let was = files(&home).without("threadkeep/");
    done(&home, &["delete", &t(1), "--yes"]);
    // As a kill leaves it: the journal is there, one file has moved and the other has not.
    let manifest: Value = serde_json::from_slice(&fs::read(entry(&home, 1).join("manifest.json")).unwrap()).unwrap();
    let path = log.active_path();
    let place = |p: &str| format!("threadkeep/trash/{}/files/{p}", t(1));
    let moves: Vec<Value> =
        [path.clone(), format!("{path}.zst")].iter().map(|p| json!({"from": p, "to": place(p)})).collect();
    let step = json!({"thread_id": t(1), "moves": moves, "trash": manifest, "names": "take", "codex": "delete"});
    let journal = json!({"format": 1, "kind": "delete", "at": manifest["deleted_at"], "steps": [step]});
    fs::rename(home.file(&place(&path)), home.file(&path)).unwrap();
    home.write(&format!("threadkeep/journal/1-{}.json", t(1)), journal.to_string());
    // Somebody writes the thread, so the deletion cannot be ended: nothing of it is emptied.
    let lock = home.write(&format!("thread-writer-locks/{}.lock", t(1)), "");
    let held = fs::File::open(&lock).unwrap();
    held.try_lock().unwrap();
    let out = change(&home, &["trash", "empty", "--yes"]);
    assert_eq!((out.code, out.error()["kind"].as_str()), (3, Some("refused")), "{out:?}");
    assert!(home.file(&place(&format!("{path}.zst"))).is_file() && home.file(&path).is_file());
    drop(held);
    // The next change in the home ends it, and plans from what is then.
    let out = change(&home, &["delete", &t(1), "--yes"]);
    assert_eq!((out.code, out.error()["kind"].as_str()), (1, Some("not_found")), "{out:?}");
    assert!(out.error()["hint"].as_str().is_some_and(|h| h.contains("restore")), "{out:?}");
    done(&home, &["restore", &t(1)]);
    let changed = was.changed(&home);
    assert!(changed.iter().all(|f| f == "session_index.jsonl"), "{changed:?}");
}

/// A journal that says something else than moves of rollouts is not followed, and is told.
#[test]
fn a_journal_of_another_hand_is_told_and_left() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.write("auth.json", "secret");
    fs::write(home.outside("x"), "x").unwrap();
    let step = |from: &str, to: &str, removes: Value| json!({"thread_id": t(2), "moves": [{"from": from, "to": to}], "removes": removes, "trash": null, "names": "stay", "codex": "stay"});
    for steps in [
        json!("garbage"),
        json!([step("../x", "sessions/x", json!([]))]),
        json!([step("a", "b", json!(["auth.json"]))]),
        json!([step("a", "b", json!(["../x"]))]),
    ] {
        let text = json!({"format": 1, "kind": "archive", "at": AT, "steps": steps}).to_string();
        let journal = home.write("threadkeep/journal/1-x.json", &text);
        let out = done(&home, &["archive", &t(1)]);
        assert!(out.stderr.contains("an earlier change was not finished"), "{out:?}");
        assert_eq!(fs::read_to_string(&journal).unwrap(), text);
        assert!(home.file("auth.json").exists() && home.outside("x").exists());
        done(&home, &["unarchive", &t(1)]);
    }
}

/// Who looks for a deleted thread is told where it is, and how large all of the trash is.
#[test]
fn the_reading_commands_tell_of_the_trash() {
    let home = Home::new();
    for n in 1..=2 {
        home.put(&Log::healthy(&t(n), AT));
    }
    home.idx(&t(1), "a name", AT);
    assert_eq!(home.run(&["stats"]).json["trash"], json!({"threads": 0, "bytes": 0}));
    assert!(!home.human(&["stats"]).stdout.contains("trash"));
    done(&home, &["delete", &t(1), "--yes"]);
    let trash = home.run(&["stats"]).json["trash"].clone();
    let least = Log::healthy(&t(1), AT).bytes().len() as u64;
    assert!(trash["threads"] == 1 && trash["bytes"].as_u64().is_some_and(|b| b > least), "{trash}");
    assert!(home.human(&["stats"]).stdout.lines().any(|l| l.starts_with("trash") && l.contains("1 thread ")));
    for query in [t(1), t(1).to_uppercase(), "a name".to_owned()] {
        for command in ["show", "resume", "rename"] {
            let args = [&[command, &query][..], if command == "rename" { &["new"] } else { &[] }].concat();
            let out = home.run(&args);
            assert_eq!(out.code, 1, "{out:?}");
            let hint = out.error()["hint"].as_str().unwrap_or_default().to_owned();
            assert!(hint.contains(&format!("restore {}", t(1))), "{query}: {out:?}");
        }
        let out = home.run(&["why", &query]);
        let held = &out.json["trash"][0];
        assert_eq!((out.code, &held["thread_id"], &held["name"]), (1, &json!(t(1)), &json!("a name")), "{out:?}");
        let human = home.human(&["why", &query]).stdout;
        assert!(human.contains("in the trash") && human.contains(&format!("restore {}", t(1))), "{human}");
    }
    // One that nobody knows is not said to be there, and neither is one that is only in the home.
    assert!(!home.run(&["show", &t(9)]).error()["hint"].as_str().is_some_and(|h| h.contains("restore")));
    assert_eq!(home.run(&["why", &t(2)]).json["trash"], json!([]));
    let out = told(&home, &["archive", &t(1)], |_| ());
    assert!(out.code == 1 && out.stderr.contains("restore"), "{out:?}");
}
