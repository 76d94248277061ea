//! Codex's database is elsewhere, out of date, busy or broken, and the name index is held by another program: a name is
//! written everywhere or nowhere, within a time, and files answer meanwhile.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{
    db::{StateDb, text},
    home::Home,
    log::{Log, t},
    write_run::{cells_changed, change, change_with, done, dump, files, index_lines, plan},
};

const AT: &str = "2026-03-01T10:00:00Z";

/// A thread in a home whose database at `rel` has a row of it.
fn with_row(home: &Home, rel: &str, title: &str) -> PathBuf {
    let path = home.file(rel);
    StateDb::create(&path).row(&t(1), &[("title", text(title)), ("first_user_message", text(title))]).close();
    path
}

#[track_caller]
fn title(path: &Path) -> String {
    let rows = dump(path);
    let row = rows.iter().find(|r| r.contains(" title = ")).unwrap_or_else(|| panic!("no row: {rows:?}"));
    row.split("Text(\"").last().expect("a text").trim_end_matches("\")").to_owned()
}

/// Wherever Codex keeps its database, the name goes to the one that is read, and to no other.
#[test]
fn b69_the_database_that_is_read_is_the_one_that_is_written() {
    // In `sqlite` alone.
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    let db = with_row(&home, "sqlite/state_5.sqlite", "x");
    let out = done(&home, &["rename", &t(1), "given"]);
    assert_eq!(plan(&home, &out)[1], ("set_codex_name".to_owned(), "sqlite/state_5.sqlite".to_owned()));
    assert_eq!(title(&db), "given");

    // Several: by option, environment, configuration; an older generation beside; a newer one.
    for place in ["--sqlite-home", "CODEX_SQLITE_HOME", "config", "older", "newer", "both"] {
        let home = Home::new();
        home.put(&Log::healthy(&t(1), AT));
        let elsewhere = home.outside("elsewhere");
        let (mut chosen, mut other) = (elsewhere.join("state_5.sqlite"), with_row(&home, "state_5.sqlite", "x"));
        match place {
            "older" => {
                (chosen, other) = (other, with_row(&home, "state_4.sqlite", "x"));
            }
            "newer" => {
                (chosen, other) = (other, with_row(&home, "state_6.sqlite", "x"));
            }
            "both" => {
                // Of two of one generation the one that was changed last.
                std::thread::sleep(Duration::from_millis(20));
                chosen = with_row(&home, "sqlite/state_5.sqlite", "x");
            }
            _ => {
                let options = [("title", text("x")), ("first_user_message", text("x"))];
                StateDb::create(&chosen).row(&t(1), &options).close();
                let old = std::time::SystemTime::now() + Duration::from_secs(5);
                let file = fs::File::options().append(true).open(&chosen).expect("it");
                file.set_times(fs::FileTimes::new().set_modified(old)).expect("a time");
            }
        }
        if place == "config" {
            home.write("config.toml", format!("sqlite_home = {:?}\n", elsewhere.to_str().expect("UTF-8")));
        }
        let rows = dump(&other);
        let out = change_with(&home, &["rename", &t(1), "given"], |command| match place {
            "--sqlite-home" => drop(command.arg("--sqlite-home").arg(&elsewhere)),
            "CODEX_SQLITE_HOME" => drop(command.env("CODEX_SQLITE_HOME", &elsewhere)),
            _ => (),
        });
        assert_eq!(out.code, 0, "{place} {out:?}");
        assert_eq!(title(&chosen), "given", "{place}");
        assert!(cells_changed(&rows, &other).is_empty(), "{place}: another database was written");
        assert_eq!(index_lines(&home), [(t(1), "given".into())]);
    }
}

/// A row with the path of another machine is no place to look, and is not put right in passing.
#[test]
fn b73_a_stale_path_is_no_condition() {
    for paged in [false, true] {
        let home = Home::new();
        let log = if paged { Log::paginated(&t(1), AT).meta().turn("q", "a") } else { Log::healthy(&t(1), AT) };
        let path = home.put(&log);
        let stale = "/home/a/.codex/sessions/2026/03/01/rollout-2026-03-01T10-00-00-x.jsonl";
        let mode = text(if paged { "paginated" } else { "legacy" });
        home.state().row(&t(1), &[("rollout_path", text(stale)), ("history_mode", mode), ("title", text("q"))]).close();
        let db = home.file("state_5.sqlite");
        let (rows, bytes) = (dump(&db), fs::read(&path).expect("it"));
        done(&home, &["rename", &t(1), "given"]);
        let changed = cells_changed(&rows, &db);
        assert_eq!(changed.len(), 1, "{changed:?}");
        assert!(!changed[0].1.contains("rollout_path"), "{changed:?}");
        let out = done(&home, &["fork", "given"]);
        assert_eq!(home.show(&[out.json["results"][0]["thread_id"].as_str().expect("an id")]).turns().len(), 1);
        assert!(fs::read(&path).expect("it") == bytes);
        assert!(!Path::new("/home/a/.codex").exists());
    }
}

/// A database with a row of the thread and some of its bytes overwritten.
fn noisy(range: std::ops::Range<usize>) -> Vec<u8> {
    let home = Home::new();
    let mut bytes = fs::read(with_row(&home, "state_5.sqlite", "x")).expect("it");
    let end = range.end.min(bytes.len());
    bytes[range.start..end].fill(0xa5);
    bytes
}

/// Databases that are none, or damaged: the files have the name, and the database stays as it is.
#[test]
fn b47_a_database_that_cannot_be_read() {
    for (what, bytes) in [
        ("empty", vec![]),
        ("text", b"not a database\n".repeat(100)),
        ("noise at its head", noisy(0..8_192)),
        ("noise in its second page", noisy(4_096..8_192)),
        ("noise in most of it", noisy(100..60_000)),
    ] {
        let home = Home::new();
        home.put(&Log::healthy(&t(1), AT));
        let db = home.write("state_5.sqlite", &bytes);
        done(&home, &["rename", &t(1), "given"]);
        // Where the thread's row can still be reached, it is written as any program that uses the database would.
        let reached = what == "noise in its second page";
        assert!(reached || fs::read(&db).expect("it") == bytes, "{what}");
        assert_eq!(home.list(&[]).thread(&t(1))["name"], "given", "{what}");
        done(&home, &["fork", &t(1)]);
    }
}

/// A schema without the columns: nothing of it is written.
#[test]
fn a_schema_without_the_columns() {
    for columns in ["id TEXT PRIMARY KEY", "id TEXT PRIMARY KEY, title TEXT", "id TEXT PRIMARY KEY, name TEXT"] {
        let home = Home::new();
        home.put(&Log::healthy(&t(1), AT));
        let conn = Connection::open(home.file("state_5.sqlite")).expect("a database");
        conn.execute_batch(&format!("CREATE TABLE threads ({columns}); INSERT INTO threads (id) VALUES ('{}')", t(1)))
            .expect("a row");
        drop(conn);
        let rows = dump(&home.file("state_5.sqlite"));
        let out = done(&home, &["rename", &t(1), "given"]);
        assert_eq!(plan(&home, &out).len(), 1, "{columns}");
        assert!(cells_changed(&rows, &home.file("state_5.sqlite")).is_empty(), "{columns}");
        assert_eq!(home.list(&[]).thread(&t(1))["name"], "given");
    }
}

/// How another program holds the database.
#[derive(Clone, Copy, Debug)]
enum Held {
    /// `BEGIN EXCLUSIVE`, write-ahead log.
    Log,
    /// `BEGIN EXCLUSIVE`, rollback journal.
    Journal,
    /// Rows being written, rollback journal.
    JournalWriter,
    /// Rows being read, rollback journal.
    JournalReader,
}

const HELD: [Held; 4] = [Held::Log, Held::Journal, Held::JournalWriter, Held::JournalReader];

fn hold(db: &Path, how: Held) -> Connection {
    let conn = Connection::open(db).expect("the database");
    let mode = if matches!(how, Held::Log) { "wal" } else { "delete" };
    conn.pragma_update(None, "journal_mode", mode).expect("a mode");
    let begin = match how {
        Held::Log | Held::Journal => "BEGIN EXCLUSIVE",
        Held::JournalWriter => "BEGIN IMMEDIATE; UPDATE threads SET tokens_used = 7",
        Held::JournalReader => "BEGIN; SELECT * FROM threads",
    };
    conn.execute_batch(begin).expect("the lock");
    conn
}

/// Another program holds the database for long: the rename gives up in time, names the database and who has it, and
/// has written nothing anywhere. Reading goes on.
#[test]
fn b81_a_busy_database_is_named_and_nothing_is_changed() {
    for how in HELD {
        let home = Home::new();
        home.put(&Log::healthy(&t(1), AT));
        home.idx(&t(1), "kept", AT);
        let db = with_row(&home, "state_5.sqlite", "kept");
        StateDb::create(&home.file("logs_2.sqlite")).close();
        let logs = hold(&home.file("logs_2.sqlite"), Held::Log);
        let held = hold(&db, how);
        let were = files(&home);
        for words in [&["rename", &t(1), "new"][..], &["rename", &t(1), "--clear"]] {
            let begun = Instant::now();
            let out = change(&home, words);
            assert!(begun.elapsed() < Duration::from_secs(15), "{how:?} took {:?}", begun.elapsed());
            assert_eq!((out.code, out.error()["kind"].as_str()), (3, Some("refused")), "{how:?} {out:?}");
            let message = out.error()["message"].as_str().expect("a text");
            assert!(message.contains("state_5.sqlite"), "{how:?} {message}");
            if cfg!(target_os = "linux") && !matches!(how, Held::JournalReader) {
                let pid = format!("pid {}", std::process::id());
                assert!(message.contains(&pid), "{how:?} {message}");
            }
            assert!(were.made(&home).is_empty() && were.changed(&home).is_empty(), "{how:?}");
        }
        // Reading and forking ask nobody.
        let begun = Instant::now();
        assert_eq!(home.list(&[]).thread(&t(1))["name"], "kept", "{how:?}");
        assert_eq!(home.show(&["kept"]).turns().len(), 1);
        done(&home, &["fork", &t(1)]);
        assert!(begun.elapsed() < Duration::from_secs(10), "{how:?} took {:?}", begun.elapsed());
        held.execute_batch("ROLLBACK").expect("the end");
        drop((held, logs));
        assert_eq!(title(&db), "kept", "{how:?}");
        done(&home, &["rename", &t(1), "new"]);
        assert_eq!(title(&db), "new", "{how:?}");
    }
}

/// Held for a moment, it is waited for.
#[test]
fn b81_a_database_that_is_free_again_soon() {
    for how in HELD {
        let home = Home::new();
        home.put(&Log::healthy(&t(1), AT));
        let db = with_row(&home, "state_5.sqlite", "kept");
        let held = hold(&db, how);
        let free = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(900));
            held.execute_batch("ROLLBACK").expect("the end");
        });
        done(&home, &["rename", &t(1), "new"]);
        free.join().expect("it ends");
        assert_eq!((title(&db), index_lines(&home)), ("new".to_owned(), vec![(t(1), "new".to_owned())]), "{how:?}");
    }
}

/// Another process that holds a lock file until it is ended.
struct Holder(Child);

impl Holder {
    fn of(path: &Path) -> Self {
        let child = Command::new("flock")
            .args(["--exclusive", "--no-fork"])
            .arg(path)
            .args(["sleep", "600"])
            .stdin(Stdio::null())
            .spawn()
            .expect("flock starts");
        let holder = Self(child);
        let begun = Instant::now();
        loop {
            let file = fs::File::options().read(true).append(true).create(true).open(path).expect("the lock file");
            if file.try_lock().is_err() {
                return holder;
            }
            drop(file);
            assert!(begun.elapsed() < Duration::from_secs(10), "the lock is not taken");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The name index is held by another program: refused in time, with who holds it; a fork with a name says what it made.
#[test]
fn a_held_name_index_refuses_and_names_the_holder() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.idx(&t(1), "kept", AT);
    let db = with_row(&home, "state_5.sqlite", "kept");
    let holder = Holder::of(&home.file("session_index.jsonl.lock"));
    let (were, rows) = (files(&home), dump(&db));
    let begun = Instant::now();
    let out = change(&home, &["rename", &t(1), "new"]);
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert_eq!((out.code, out.error()["kind"].as_str()), (3, Some("refused")), "{out:?}");
    let message = out.error()["message"].as_str().expect("a text").to_owned();
    assert!(message.contains("session_index.jsonl.lock"), "{message}");
    if cfg!(target_os = "linux") {
        assert!(message.contains(&format!("pid {}", holder.0.id())), "{message}");
    }
    assert!(were.made(&home).is_empty() && were.changed(&home).is_empty());
    assert!(cells_changed(&rows, &db).is_empty(), "both or neither");
    // Reading takes no part in it, and a fork without a name needs no name index.
    assert_eq!(home.list(&[]).thread(&t(1))["name"], "kept");
    done(&home, &["fork", &t(1)]);
    let were = files(&home);
    let out = change(&home, &["fork", &t(1), "--name", "twin"]);
    assert_eq!(out.code, 3, "{out:?}");
    let made = were.made(&home);
    assert_eq!(made.len(), 1, "{made:?}");
    let id = &made[0][made[0].len() - 42..made[0].len() - 6];
    assert!(out.error()["message"].as_str().is_some_and(|m| m.contains(id)), "it says what was made: {out:?}");
    // Its end, however it came, frees the name index at once.
    drop(holder);
    done(&home, &["rename", &t(1), "new"]);
    done(&home, &["rename", id, "twin"]);
}

/// Many at once: every name is a whole line, and the last word on each thread is one that was given.
#[test]
fn renames_at_once() {
    let home = Home::new();
    let hello = |n: u32| format!("hello {}", t(n));
    let mut state = home.state();
    for n in 1..=4 {
        home.put(&Log::healthy(&t(n), AT));
        state = state.row(&t(n), &[("title", text(&hello(n))), ("first_user_message", text(&hello(n)))]);
    }
    state.close();
    std::thread::scope(|scope| {
        for n in 1..=4 {
            for round in 0..3 {
                let home = &home;
                scope.spawn(move || done(home, &["rename", &t(n), &format!("name {n}.{round}")]));
            }
        }
    });
    let lines = index_lines(&home);
    assert_eq!(lines.len(), 12, "{lines:?}");
    let rows = dump(&home.file("state_5.sqlite"));
    for n in 1..=4 {
        let last = &lines.iter().rfind(|(id, _)| *id == t(n)).expect("a line").1;
        assert_eq!(home.list(&[]).thread(&t(n))["name"], json!(last));
        let cell = format!(" title = Text({last:?})");
        let codex = rows.iter().find(|r| r.contains(&t(n)) && r.contains(" title = ")).expect("a row");
        assert!(codex.ends_with(&cell), "Codex and the name index say the same: {codex}, {last}");
    }
}

/// A legacy thread whose row has a name of its own there, as releases since 0.148 write it.
#[test]
fn a_name_column_of_a_legacy_thread_does_not_hide_the_new_name() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.state()
        .row(&t(1), &[("title", text("x")), ("first_user_message", text("x")), ("name", text("old name"))])
        .close();
    assert_eq!(home.list(&[]).thread(&t(1))["name"], "old name");
    done(&home, &["rename", "old name", "new name"]);
    assert_eq!(home.list(&[]).thread(&t(1))["name"], "new name");
    assert_eq!(home.run(&["show", "old name"]).code, 1);
    assert_eq!(home.show(&["new name"]).json["thread"]["id"], t(1));
    done(&home, &["rename", "new name", "--clear"]);
    assert_eq!(home.list(&[]).thread(&t(1))["name"], Value::Null);
}
