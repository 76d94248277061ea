//! Changes of homes that are odd: links, names that say little, headers that say something else, databases of any kind.

use std::fs;
use std::os::unix::fs::symlink;

use rusqlite::Connection;
use serde_json::json;

use crate::db::text;
use crate::home::{Home, ids};
use crate::log::{Log, t};
use crate::write_run::{change, done_all as done, dump, files, refused};

const AT: &str = "2026-08-20T01:10:00Z";

#[track_caller]
fn all(home: &Home) -> Vec<String> {
    home.list(&["--all"]).set()
}

/// A link below the two folders leads out of the home, and no list follows it: a thread that went there was lost.
#[test]
fn no_thread_goes_through_a_link_below_sessions() {
    for (there, back) in [("archive", "unarchive"), ("delete", "restore")] {
        let home = Home::new();
        let log = Log::healthy(&t(1), AT);
        home.put(&log);
        done(&home, &[there, &t(1), "--yes"]);
        let outside = home.outside("elsewhere");
        fs::create_dir(&outside).unwrap();
        fs::remove_dir(home.file("sessions/2026/08/20")).unwrap();
        symlink(&outside, home.file("sessions/2026/08/20")).unwrap();
        let out = refused(&home, &[back, &t(1)], 3, "refused");
        assert!(
            out.error()["message"].as_str().is_some_and(|m| m.contains("sessions/2026/08/20 is a link")),
            "{out:?}"
        );
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        fs::remove_file(home.file("sessions/2026/08/20")).unwrap();
        done(&home, &[back, &t(1)]);
        assert_eq!(all(&home), ids([1]));
    }
}

/// The folders themselves may be links, and so may the name index, which stays one.
#[test]
fn the_folders_of_a_home_may_be_links() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.idx(&t(1), "named", AT);
    fs::create_dir(home.file("archived_sessions")).unwrap();
    for name in ["sessions", "archived_sessions", "session_index.jsonl"] {
        fs::rename(home.file(name), home.outside(name)).unwrap();
        symlink(home.outside(name), home.file(name)).unwrap();
    }
    let index = fs::read(home.outside("session_index.jsonl")).unwrap();
    for (there, back) in [("archive", "unarchive"), ("delete", "restore")] {
        done(&home, &[there, "named", "--yes"]);
        done(&home, &[back, &t(1)]);
        assert_eq!(all(&home), ids([1]));
    }
    assert!(fs::symlink_metadata(home.file("session_index.jsonl")).unwrap().is_symlink());
    assert_eq!(fs::read(home.outside("session_index.jsonl")).unwrap(), index);
}

/// What could not come back out of the archive does not go there.
#[test]
fn a_name_without_a_time_is_not_archived() {
    let home = Home::new();
    let path = format!("sessions/2026/08/20/rollout-{}.jsonl", t(1));
    home.put_at(&path, &Log::healthy(&t(1), AT));
    refused(&home, &["archive", &t(1)], 3, "refused");
    let was = files(&home).without("threadkeep/");
    done(&home, &["delete", &t(1), "--yes"]);
    done(&home, &["restore", &t(1)]);
    assert!(was.changed(&home).is_empty());
}

/// A thread is named by its header: that id deletes it, whatever its file is called.
#[test]
fn a_thread_whose_file_has_another_name_can_be_deleted() {
    for name in [format!("rollout-2026-08-20T01-10-00-{}.jsonl", t(1)), "rollout-2026-08-20T01-10-00.jsonl".to_owned()]
    {
        let home = Home::new();
        home.put_at(&format!("sessions/2026/08/20/{name}"), &Log::healthy(&t(9), AT));
        home.put(&Log::healthy(&t(2), AT));
        assert_eq!(all(&home), ids([2, 9]), "{name}");
        let out = refused(&home, &["archive", &t(9)], 3, "refused");
        assert!(out.error()["message"].as_str().is_some_and(|m| m.contains("does not match")), "{out:?}");
        let was = files(&home).without("threadkeep/");
        done(&home, &["delete", &t(9), "--yes"]);
        assert_eq!(all(&home), ids([2]), "{name}");
        done(&home, &["restore", &t(9)]);
        assert!(was.changed(&home).is_empty());
        assert_eq!(all(&home), ids([2, 9]), "{name}");
    }
}

/// Two files of one name in two folders would come to one place: the plan says so, too. Two names of one file may.
#[test]
fn two_files_that_would_come_to_one_place_stay() {
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    home.put(&log);
    let copy = log.active_path().replace("/20/", "/21/");
    home.put_at(&copy, &log);
    refused(&home, &["archive", &t(1)], 3, "refused");
    fs::remove_file(home.file(&copy)).unwrap();
    fs::hard_link(home.file(&log.active_path()), home.file(&copy)).unwrap();
    done(&home, &["archive", &t(1)]);
    assert!(home.file(&log.archived_path()).is_file());
    assert!(!home.file(&log.active_path()).exists() && !home.file(&copy).exists());
}

/// Files of ids as other systems write them: a byte order mark, line ends with a carriage return, ids twice, capitals.
#[test]
fn a_file_of_ids_may_come_from_anywhere() {
    let home = Home::new();
    let other = "019aabcd-0000-7000-8000-00000000000a";
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::healthy(other, AT));
    let list = home.outside("ids");
    fs::write(&list, format!("\u{feff}{}\r\n{}\r\n\r\n# more\r\n{} \r\n", t(1), t(1), other.to_uppercase())).unwrap();
    let out = done(&home, &["archive", "--ids-file", &list.to_string_lossy()]);
    assert_eq!(out.json["results"].as_array().map(Vec::len), Some(2), "{out:?}");
    done(&home, &["unarchive", &other.to_uppercase()]);
    done(&home, &["unarchive", &t(1)]);
}

/// A name index whose last line has no end comes back byte for byte.
#[test]
fn the_last_line_of_the_name_index_may_have_no_end() {
    let line = |n: u32, name: &str| json!({"id": t(n), "thread_name": name, "updated_at": AT}).to_string();
    for before in [
        line(1, "a"),
        format!("{}\n{}", line(2, "b"), line(1, "a")),
        format!("{}\r\n{}\r\n{}", line(1, "x"), line(2, "b"), &line(1, "torn")[..30]),
        format!("\0\0{}\n\n{}\n\0\0\n{}\n", line(1, "nul"), line(1, "x"), line(2, "b")),
    ] {
        let home = Home::new();
        home.put(&Log::healthy(&t(1), AT));
        home.write("session_index.jsonl", &before);
        done(&home, &["delete", &t(1), "--yes"]);
        assert_eq!(all(&home), Vec::<String>::new());
        done(&home, &["restore", &t(1)]);
        assert_eq!(fs::read_to_string(home.file("session_index.jsonl")).unwrap(), before);
    }
}

fn journals(home: &Home) -> usize {
    fs::read_dir(home.file("threadkeep/journal")).map_or(0, Iterator::count)
}

/// What is called like Codex's database and is none, or damaged, is no reason to leave a thread where it is.
#[test]
fn no_database_of_codex_is_a_condition() {
    for what in ["folder", "link to nothing", "empty", "garbage", "damaged page", "columns"] {
        let home = Home::new();
        home.put(&Log::healthy(&t(1), AT));
        home.idx(&t(1), "named", AT);
        let db = home.file("state_5.sqlite");
        match what {
            "folder" => fs::create_dir(&db).unwrap(),
            "link to nothing" => symlink("/nowhere/at/all", &db).unwrap(),
            "empty" => drop(home.write("state_5.sqlite", "")),
            "garbage" => drop(home.write("state_5.sqlite", [7; 9_000])),
            "damaged page" => {
                home.state().row(&t(1), &[]).close();
                let mut bytes = fs::read(&db).unwrap();
                bytes[4_096..].fill(0xa5);
                fs::write(&db, bytes).unwrap();
            }
            _ => {
                home.state().row(&t(1), &[]).close();
                let sql = Connection::open(&db).unwrap();
                sql.execute_batch("ALTER TABLE threads DROP COLUMN archived_at; DROP TABLE thread_spawn_edges; CREATE TABLE thread_spawn_edges (parent_thread_id TEXT);").unwrap();
                sql.execute("INSERT INTO thread_spawn_edges VALUES (?1)", [t(1)]).unwrap();
            }
        }
        let was = files(&home).without("threadkeep/");
        for (there, back) in [("archive", "unarchive"), ("delete", "restore")] {
            let out = done(&home, &[there, &t(1), "--yes"]);
            let told = out.stderr.contains("Codex settles it from the files");
            assert_eq!(told, what == "damaged page" || (what, there) == ("columns", "archive"), "{what}: {out:?}");
            assert_eq!(journals(&home), 0, "{what}");
            done(&home, &[back, &t(1)]);
        }
        assert!(was.changed(&home).iter().all(|f| f == "session_index.jsonl"), "{what}");
    }
}

/// What the database would refuse is known before any file moves.
#[test]
fn a_rule_of_the_database_is_met_before_anything_is_done() {
    for rule in [
        "CREATE TRIGGER no BEFORE UPDATE ON threads BEGIN SELECT raise(ABORT, 'not this'); END;
         CREATE TRIGGER nor BEFORE DELETE ON threads BEGIN SELECT raise(ABORT, 'not this'); END;",
        "CREATE TABLE pins (thread_id TEXT REFERENCES threads(id) ON DELETE RESTRICT);
         INSERT INTO pins SELECT id FROM threads;",
    ] {
        let home = Home::new();
        home.put(&Log::healthy(&t(1), AT));
        home.idx(&t(1), "named", AT);
        home.state().row(&t(1), &[]).close();
        let db = home.file("state_5.sqlite");
        Connection::open(&db).unwrap().execute_batch(rule).unwrap();
        let (was, before) = (files(&home).without("threadkeep/"), dump(&db));
        let commands: &[&str] = if rule.contains("TRIGGER") { &["archive", "delete"] } else { &["delete"] };
        for &command in commands {
            let out = change(&home, &[command, t(1).as_str(), "--yes"]);
            assert_eq!((out.code, out.error()["kind"].as_str()), (5, Some("failed")), "{out:?}");
            assert!(was.changed(&home).is_empty() && dump(&db) == before && journals(&home) == 0, "{command}");
        }
    }
}

/// The schema may have changed since a thread was deleted: its files come back all the same.
#[test]
fn a_row_that_fits_no_more_keeps_no_thread_in_the_trash() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.state().row(&t(1), &[("title", text("x"))]).close();
    done(&home, &["delete", &t(1), "--yes"]);
    let sql = Connection::open(home.file("state_5.sqlite")).unwrap();
    sql.execute_batch("DROP TABLE threads; CREATE TABLE threads (id TEXT PRIMARY KEY, must TEXT NOT NULL);").unwrap();
    drop(sql);
    let out = done(&home, &["restore", &t(1)]);
    assert!(out.stderr.contains("Codex settles it from the files"), "{out:?}");
    assert_eq!((all(&home), journals(&home)), (ids([1]), 0));
}
