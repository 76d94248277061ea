//! What a rename stores is found: by every command, whatever is written later, and whatever other names there are.

use std::{fs, io::Write as _};

use serde_json::Value;

use crate::{
    db::text,
    home::Home,
    log::{Log, Shape, t},
    write_run::{done, files, index_lines, refused},
};

const AT: &str = "2026-03-01T10:00:00Z";

#[track_caller]
fn found(home: &Home, name: &str, thread: &str) {
    assert_eq!(home.list(&["--all"]).thread(thread)["name"], name);
    assert_eq!(home.list(&["--named", "--match", name, "--all"]).ids(), [thread]);
    assert!(home.search(&[name]).hits().iter().any(|hit| hit["speaker"] == "name" && hit["thread_id"] == thread));
    assert_eq!(home.show(&[name]).json["thread"]["id"], thread);
    assert_eq!(home.run(&["resume", name]).json["thread_id"], thread);
}

/// A new name is found by every command, with and without a database that says otherwise.
#[test]
fn b22_every_command_finds_the_new_name() {
    for with_row in [false, true] {
        let home = Home::new();
        home.put(&Log::healthy(&t(1), AT));
        home.put(&Log::healthy(&t(2), AT));
        if with_row {
            let hello = format!("hello {}", t(1));
            home.state().row(&t(1), &[("title", text(&hello)), ("first_user_message", text(&hello))]).close();
        }
        done(&home, &["rename", &t(1), "FooBar"]);
        found(&home, "FooBar", &t(1));
        // The old name is no name any more; the thread is still found by what was first said.
        done(&home, &["rename", "FooBar", "Second"]);
        found(&home, "Second", &t(1));
        assert_eq!(home.run(&["show", "FooBar"]).code, 1);
        assert_eq!(home.show(&[&format!("hello {}", t(1))]).json["thread"]["id"], t(1));
        // Exactly this name: not another case, not a part.
        for other in ["second", "SECOND", "Secon", "Second "] {
            let code = home.run(&["show", other]).code;
            assert_eq!(code, i32::from(other.trim() != "Second"), "{other}");
        }
    }
}

/// A name that also stands for a thread without a file goes to the one that is there.
#[test]
fn b23_names_of_threads_that_are_gone_stand_in_nobody_s_way() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.idx(&t(1), "work", AT);
    home.idx(&t(2), "work", "2026-03-02T10:00:00Z");
    home.idx(&t(3), "gone", "2026-03-03T10:00:00Z");
    done(&home, &["rename", "work", "gone"]);
    found(&home, "gone", &t(1));
    let out = refused(&home, &["rename", "work", "x"], 1, "not_found");
    assert!(out.error()["hint"].as_str().is_some_and(|hint| hint.contains(&t(2))), "{out:?}");
    assert_eq!(index_lines(&home).len(), 4, "the lines of others stay");
    let out = done(&home, &["fork", "gone"]);
    assert_eq!(home.list(&[]).ids().len(), 2, "{out:?}");
}

/// No entry in the name index is no signal: reading, forking and naming other threads write nothing for this one.
#[test]
fn b27_a_title_alone_is_never_written_back() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::healthy(&t(2), AT));
    home.state().row(&t(1), &[("title", text("T"))]).close();
    let were = files(&home);
    for _ in 0..2 {
        assert_eq!(home.list(&[]).thread(&t(1))["name"], "T");
        done(&home, &["fork", &t(1)]);
        assert!(were.changed(&home).is_empty());
        assert!(!home.file("session_index.jsonl").exists());
    }
    done(&home, &["rename", &t(2), "other"]);
    assert_eq!(index_lines(&home), [(t(2), "other".into())]);
    assert_eq!(home.list(&[]).thread(&t(1))["name"], "T");
}

/// A name is kept wherever the thread goes on afterwards: hundreds of records later, moved, and beside many others.
#[test]
fn b28_later_records_do_not_bury_a_name() {
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let log = Log::shaped(shape, &t(1), AT).meta().turn("q", "a");
        let path = home.put(&log);
        done(&home, &["rename", &t(1), "early name"]);
        let mut longer = log.clone();
        for n in 0..500 {
            longer = longer.agent(&format!("record {n}"));
        }
        let mut file = fs::File::options().append(true).open(&path).expect("the rollout");
        file.write_all(&longer.bytes()[log.len()..]).expect("500 records");
        found(&home, "early name", &t(1));
        let mut index = String::new();
        for n in 100..3_000 {
            index += &format!("{{\"id\":\"{}\",\"thread_name\":\"name {n}\",\"updated_at\":\"{AT}\"}}\n", t(n));
        }
        let was = fs::read_to_string(home.file("session_index.jsonl")).expect("the index");
        home.write("session_index.jsonl", was + &index);
        found(&home, "early name", &t(1));
        fs::create_dir_all(home.file("archived_sessions")).expect("a folder");
        fs::rename(&path, home.file(&log.archived_path())).expect("a move");
        found(&home, "early name", &t(1));
        done(&home, &["rename", "early name", "late name"]);
        found(&home, "late name", &t(1));
        assert_eq!(home.list(&["--all"]).thread(&t(1))["name"], "late name");
        assert_ne!(home.list(&["--all"]).thread(&t(1))["archived"], Value::from(false));
    }
}
