//! The index: it begins by itself where it is worth it, tells what the files tell, and can be lost, spoilt, held or
//! forbidden at any time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use assert_cmd::Command;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::home::{Home, clean, ids};
use crate::log::{Log, t};

const AT: &str = "2026-03-01T10:00:00Z";

/// Exit code and what was printed.
fn run(home: &Home, args: &[&str]) -> (i32, Value) {
    let mut command = Command::cargo_bin("threadkeep").expect("the command is built");
    command.arg("--home").arg(home.path()).arg("--json").args(args).timeout(Duration::from_secs(60));
    clean(&mut command, &home.outside(""));
    let output = command.output().expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!stderr.contains("panicked"), "{args:?}: {stderr}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let answer = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {args:?}: {text}\n{stderr}"));
    (output.status.code().unwrap_or(-1), answer)
}

fn list(home: &Home, args: &[&str]) -> Value {
    let (code, answer) = run(home, &[&["list"], args].concat());
    assert_eq!(code, 0, "{answer}");
    answer
}

fn threads(answer: &Value) -> Vec<String> {
    let rows = answer["threads"].as_array().unwrap_or_else(|| panic!("no threads: {answer}"));
    rows.iter().map(|row| row["id"].as_str().unwrap_or("").to_owned()).collect()
}

fn state(answer: &Value) -> &str {
    answer["index"]["state"].as_str().unwrap_or("")
}

/// So long that files written before are trusted to stay as they are.
fn settle() {
    std::thread::sleep(Duration::from_millis(30));
}

fn reindexed(home: &Home) -> Value {
    settle();
    let (code, report) = run(home, &["reindex"]);
    assert_eq!(code, 0, "{report}");
    report
}

fn file(home: &Home) -> PathBuf {
    home.file("threadkeep/index.sqlite")
}

/// Rows as they are with an index and without are the same, to the last field.
#[track_caller]
fn agrees(home: &Home) -> Value {
    let with = list(home, &["--all", "--count"]);
    let without = list(home, &["--all", "--count", "--no-index"]);
    assert_eq!(with["threads"], without["threads"]);
    assert_eq!((&with["total"], &with["hidden"]), (&without["total"], &without["hidden"]));
    with
}

fn three() -> Home {
    let home = Home::new();
    for n in 1..=3 {
        home.put(&Log::healthy(&t(n), AT));
    }
    home
}

#[test]
fn a_small_home_gets_none_by_itself() {
    let home = three();
    let answer = list(&home, &[]);
    assert_eq!((threads(&answer).len(), state(&answer)), (3, "none"));
    assert!(!home.file("threadkeep").exists());
}

#[test]
fn a_larger_home_gets_one_behind_the_first_page() {
    let home = Home::new();
    for n in 1..=120 {
        home.put(&Log::healthy(&t(n), AT));
    }
    settle();
    assert_eq!(state(&list(&home, &[])), "none");
    assert!(file(&home).exists());
    let answer = agrees(&home);
    assert_eq!(answer["index"], json!({"state": "fresh", "reason": "every thread is as it was read"}));
    // The files that it makes are the user's own.
    use std::os::unix::fs::PermissionsExt;
    let mode = |rel: &str| fs::metadata(home.file(rel)).expect("made").permissions().mode() & 0o777;
    assert_eq!((mode("threadkeep"), mode("threadkeep/index.sqlite")), (0o700, 0o600));
}

#[test]
fn reindex_says_what_it_changed() {
    let home = three();
    home.put(&Log::new(&t(4), AT).meta().user("x").raw(b"{\"torn"));
    settle();
    let report = |added, fixed, dropped, damaged, applied| {
        json!({"format": 1, "home": home.path(), "added": added, "fixed": fixed, "dropped": dropped, "damaged": damaged,
               "applied": applied})
    };
    assert_eq!(run(&home, &["reindex", "--dry-run"]), (0, report(4, 0, 0, 1, false)));
    assert!(!home.file("threadkeep").exists(), "a dry run makes nothing");
    assert_eq!(reindexed(&home), report(4, 0, 0, 1, true));
    assert_eq!(reindexed(&home), report(0, 0, 0, 1, true));
    home.put(&Log::new(&t(1), AT).meta().turn("something else", "was said"));
    fs::remove_file(home.file(&Log::healthy(&t(2), AT).active_path())).expect("removed");
    home.put(&Log::healthy(&t(5), AT));
    settle();
    let before = fs::read(file(&home)).expect("the index");
    assert_eq!(run(&home, &["reindex", "--dry-run"]), (0, report(1, 1, 1, 1, false)));
    assert_eq!(fs::read(file(&home)).expect("the index"), before);
    assert_eq!(reindexed(&home), report(1, 1, 1, 1, true));
    agrees(&home);
}

/// Whatever is done to the files shows in the next list.
#[test]
fn every_change_of_the_files_shows() {
    let home = three();
    reindexed(&home);
    let log = Log::healthy(&t(1), AT);
    let path = home.file(&log.active_path());
    let check = |what: &str| {
        let answer = agrees(&home);
        assert_eq!(state(&answer), "fresh", "{what}");
        settle();
        agrees(&home)
    };
    // Appended to.
    home.put(&log.clone().at("2026-03-05T10:00:00Z").turn("more", "said"));
    assert_eq!(check("appended")["threads"][0]["id"], t(1).as_str());
    // Rewritten with the same size and modification time.
    let bytes = fs::read(&path).expect("a rollout");
    let text = String::from_utf8_lossy(&bytes).replace("more", "less");
    home.put_bytes(&log.active_path(), text.as_bytes(), log.clone().at("2026-03-05T10:00:00Z").last());
    settle();
    check("rewritten");
    // Archived.
    let archived = home.file(&log.archived_path());
    fs::create_dir_all(archived.parent().expect("a parent")).expect("folders");
    fs::rename(&path, &archived).expect("moved");
    let answer = check("archived");
    let row =
        |id: &str, answer: &Value| answer["threads"].as_array().and_then(|a| a.iter().find(|r| r["id"] == id).cloned());
    assert_eq!(row(&t(1), &answer).expect("listed")["archived"], true);
    // Compressed, removed, new in a folder that is new, a second file of the same thread.
    let two = Log::healthy(&t(2), AT);
    home.put_zst(&two, &zstd::encode_all(two.bytes().as_slice(), 3).expect("zstd"));
    fs::remove_file(home.file(&two.active_path())).expect("removed");
    check("compressed");
    fs::remove_file(home.file(&Log::healthy(&t(3), AT).active_path())).expect("removed");
    home.put(&Log::healthy(&t(4), "2027-01-01T10:00:00Z"));
    assert_eq!(threads(&check("removed and new")).len(), 3);
    home.put_at(&format!("sessions/2020/copy/{}.jsonl", Log::healthy(&t(4), AT).stem()), &Log::healthy(&t(4), AT));
    check("twice");
    // A header of another id than the name.
    home.put_at(&format!("sessions/2020/odd/rollout-2026-03-01T10-00-00-{}.jsonl", t(8)), &Log::healthy(&t(9), AT));
    check("odd");
    // A folder that is replaced by a link is not followed any more.
    fs::rename(home.file("sessions/2020"), home.outside("elsewhere")).expect("moved");
    std::os::unix::fs::symlink(home.outside("elsewhere"), home.file("sessions/2020")).expect("a link");
    check("linked");
}

/// A fork that refers to its parent says what the parent says.
#[test]
fn a_fork_is_told_anew_when_its_parent_changes() {
    let home = Home::new();
    let parent = Log::paginated(&t(1), AT).meta().turn("first question", "answer");
    let end = parent.len();
    home.put(&parent);
    let base = json!({"history_mode": "paginated", "forked_from_id": t(1),
        "history_base": {"thread_id": t(1), "end_ordinal_exclusive": end, "end_byte_offset": parent.bytes().len()}});
    home.put(
        &Log::paginated(&t(2), "2026-03-02T10:00:00Z").ordinal(end as u64).meta_with(base).turn("second", "answer"),
    );
    reindexed(&home);
    let preview = |answer: &Value| {
        let rows = answer["threads"].as_array().expect("threads");
        rows.iter().find(|r| r["id"] == t(2).as_str()).expect("the fork")["damage"]["records"].clone()
    };
    assert_eq!(preview(&agrees(&home)), 0);
    fs::remove_file(home.file(&parent.active_path())).expect("removed");
    assert_ne!(preview(&agrees(&home)), 0, "its base is missing");
}

#[test]
fn a_home_that_moves_keeps_its_index() {
    let home = three();
    reindexed(&home);
    let moved = home.outside("moved");
    fs::rename(home.path(), &moved).expect("moved");
    let mut command = Command::cargo_bin("threadkeep").expect("the command is built");
    clean(&mut command, &home.outside(""));
    let output = command.arg("--home").arg(&moved).args(["--json", "list"]).output().expect("starts");
    let answer: Value = serde_json::from_slice(&output.stdout).expect("an answer");
    assert_eq!(answer["index"]["reason"], "every thread is as it was read");
    assert_eq!(threads(&answer).len(), 3);
}

#[test]
fn an_index_that_is_removed_comes_back() {
    let home = three();
    reindexed(&home);
    let before = agrees(&home)["threads"].clone();
    fs::remove_dir_all(home.file("threadkeep")).expect("removed");
    assert_eq!(agrees(&home)["threads"], before);
    reindexed(&home);
    assert_eq!(agrees(&home)["threads"], before);
}

#[test]
fn a_damaged_index_costs_no_answer_and_is_set_aside() {
    for garbage in [&b"not a database at all"[..], &[0; 4096], b"SQLite format 3\0 and then nothing of the kind"] {
        let home = three();
        reindexed(&home);
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(home.file(&format!("threadkeep/index.sqlite{suffix}")));
        }
        fs::write(file(&home), garbage).expect("spoilt");
        let answer = agrees(&home);
        assert_eq!((threads(&answer).len(), state(&answer)), (3, "none"), "{answer}");
        assert_eq!(fs::read(file(&home)).expect("left"), garbage, "it is left for whoever wants to look at it");
        reindexed(&home);
        assert_eq!(fs::read(home.file("threadkeep/index.sqlite.damaged-1")).expect("set aside"), garbage);
        assert_eq!(state(&agrees(&home)), "fresh");
    }
}

/// Pages in the middle of the file that are wrong are found when they are read.
#[test]
fn an_index_that_is_damaged_inside_costs_no_answer() {
    let home = Home::new();
    for n in 1..=200 {
        home.put(&Log::healthy(&t(n), AT));
    }
    reindexed(&home);
    Connection::open(file(&home))
        .expect("the index")
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .expect("one file");
    let whole = fs::read(file(&home)).expect("the index");
    let plain = list(&home, &["--all", "--count", "--no-index"]);
    for page in 1..whole.len() / 4096 {
        let mut bytes = whole.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0xa5);
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(home.file(&format!("threadkeep/index.sqlite{suffix}")));
        }
        fs::write(file(&home), bytes).expect("spoilt");
        let answer = list(&home, &["--all", "--count"]);
        assert_eq!(answer["threads"], plain["threads"], "page {page}");
    }
}

/// Commands end without closing the index: a long log that stayed would be read by each one after.
#[test]
fn no_long_log_stays() {
    let home = Home::new();
    for n in 1..=1500 {
        home.put(&Log::healthy(&t(n), AT));
    }
    settle();
    list(&home, &["--limit", "3"]);
    let length = |name: &str| fs::metadata(home.file(name)).map_or(0, |facts| facts.len());
    let (whole, log) = (length("threadkeep/index.sqlite"), length("threadkeep/index.sqlite-wal"));
    assert!(whole > 1 << 20 && log <= 1 << 20, "{whole}, {log}");
}

/// Whatever of the blocks is damaged, lost, torn, of other threads or another moment: the answers are those of the files,
/// and the next command has an index that is whole again.
#[test]
fn damaged_blocks_cost_no_answer() {
    let home = Home::new();
    for n in 1..=600 {
        home.put(&Log::healthy(&t(n), AT));
    }
    reindexed(&home);
    let plain = list(&home, &["--all", "--count", "--no-index", "--limit", "1000"]);
    assert_eq!(threads(&plain).len(), 600);
    let connection = Connection::open(file(&home)).expect("the index");
    let blocks: i64 = connection.query_row("SELECT count(*) FROM listed", [], |r| r.get(0)).expect("blocks");
    assert!(blocks > 1, "{blocks}");
    drop(connection);
    for sql in [
        "UPDATE listed SET threads = zeroblob(length(threads))",
        "UPDATE listed SET threads = substr(threads, 1, length(threads) / 2)",
        "UPDATE listed SET threads = CAST(threads || x'00' AS BLOB)",
        "DELETE FROM listed WHERE first = (SELECT max(first) FROM listed)",
        "DELETE FROM listed WHERE first = (SELECT min(first) FROM listed)",
        "UPDATE listed SET first = x'ff' WHERE first = (SELECT max(first) FROM listed)",
        "UPDATE OR REPLACE listed SET first = zeroblob(16)",
        "UPDATE listed SET threads = (SELECT threads FROM listed ORDER BY first LIMIT 1)",
        "DELETE FROM facets WHERE id = (SELECT max(id) FROM facets)",
        "UPDATE folders SET files = zeroblob(length(files))",
        "UPDATE folders SET files = substr(files, 25) WHERE length(files) > 24",
        "UPDATE folders SET files = x'', folders = x''",
        "UPDATE folders SET folders = x''",
    ] {
        Connection::open(file(&home)).expect("the index").execute_batch(sql).expect("spoilt");
        for _ in 0..2 {
            let answer = list(&home, &["--all", "--count", "--limit", "1000"]);
            assert_eq!(answer["threads"], plain["threads"], "{sql}");
            assert_eq!(answer["total"], plain["total"], "{sql}");
        }
        let again = list(&home, &["--all", "--limit", "3"]);
        assert_eq!(again["index"]["reason"], "every thread is as it was read", "{sql}");
    }
}

#[test]
fn an_index_of_a_newer_release_is_left_alone() {
    let home = three();
    reindexed(&home);
    let connection = Connection::open(file(&home)).expect("the index");
    connection.execute_batch("PRAGMA user_version = 99; PRAGMA wal_checkpoint(TRUNCATE)").expect("a version");
    drop(connection);
    let before = fs::read(file(&home)).expect("the index");
    let answer = agrees(&home);
    assert_eq!(state(&answer), "none");
    assert!(answer["index"]["reason"].as_str().is_some_and(|r| r.contains("99")), "{answer}");
    let (code, failure) = run(&home, &["reindex"]);
    assert_eq!((code, &failure["error"]["kind"]), (5, &json!("failed")));
    assert_eq!(fs::read(file(&home)).expect("the index"), before);
}

/// Where the folder cannot be, there is no index.
#[test]
fn a_home_that_cannot_hold_one_is_listed_without() {
    let home = three();
    home.write("threadkeep", "a file of somebody's");
    let answer = agrees(&home);
    assert_eq!((threads(&answer).len(), state(&answer)), (3, "none"));
    let (code, failure) = run(&home, &["reindex"]);
    assert_eq!((code, &failure["error"]["kind"]), (5, &json!("failed")));
    let folder = home.outside("indexes");
    settle();
    let place = folder.to_str().expect("UTF-8");
    assert_eq!(run(&home, &["reindex", "--index-dir", place]).0, 0);
    assert_eq!(state(&list(&home, &["--index-dir", place])), "fresh");
}

/// Another process that holds the file, or the right to write it, is not waited for.
#[test]
fn nobody_who_holds_it_is_waited_for() {
    let home = three();
    reindexed(&home);
    home.put(&Log::healthy(&t(4), AT));
    let connection = Connection::open(file(&home)).expect("the index");
    connection.execute_batch("BEGIN EXCLUSIVE; UPDATE listed SET threads = x'00'").expect("held");
    let began = Instant::now();
    assert_eq!(threads(&list(&home, &["--all"])).len(), 4);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    connection.execute_batch("ROLLBACK").expect("let go");
    let lock = fs::File::options().write(true).open(home.file("threadkeep/index.lock")).expect("the lock");
    lock.lock().expect("held");
    assert_eq!(threads(&list(&home, &["--all"])).len(), 4);
    let (code, failure) = run(&home, &["reindex"]);
    assert_eq!((code, &failure["error"]["kind"]), (3, &json!("refused")));
    lock.unlock().expect("let go");
    reindexed(&home);
    agrees(&home);
}

#[test]
fn branches_and_changed_files() {
    let home = Home::new();
    let patch = |path: &str| {
        json!({"type": "custom_tool_call", "name": "apply_patch", "call_id": "c", "status": "completed",
            "input": format!("*** Begin Patch\n*** Update File: {path}\n@@\n-a\n+b\n*** End Patch\n")})
    };
    let git = |branch: &str| json!({"cwd": "/work/app", "git": {"branch": branch, "commit_hash": "abc"}});
    home.put(&Log::new(&t(1), AT).meta_with(git("main")).turn("one", "ok").response(patch("src/main.rs")));
    home.put(&Log::new(&t(2), AT).meta_with(git("wip")).turn("two", "ok").response(patch("/work/app/src/main.rs")));
    home.put(&Log::new(&t(3), AT).meta_with(git("main")).turn("three", "ok").response(patch("src/../docs/a.md")));
    home.put(&Log::new(&t(4), AT).meta().turn("four says src/main.rs", "ok"));
    let moved = "old.rs\n*** Move to: new.rs";
    home.put(&Log::new(&t(5), AT).meta_with(git("wip")).turn("five", "ok").response(patch(moved)));
    let ask = |args: &[&str]| {
        // `Home::list` asks with an index, too.
        let mut found = home.list(args).ids();
        found.sort();
        found
    };
    assert_eq!(ask(&["--branch", "main"]), ids([1, 3]));
    assert_eq!(ask(&["--branch", "none"]), ids([]));
    assert_eq!(ask(&["--file", "/work/app/src/main.rs"]), ids([1, 2]));
    assert_eq!(ask(&["--file", "src/main.rs"]), ids([1, 2]));
    assert_eq!(ask(&["--file", "ain.rs"]), ids([]), "the end of a path, not of a name");
    assert_eq!(ask(&["--file", "/work/app/docs/a.md"]), ids([3]));
    assert_eq!(ask(&["--file", "old.rs"]), ids([5]));
    assert_eq!(ask(&["--file", "new.rs", "--branch", "wip"]), ids([5]));
    let out = home.list(&["--branch", "main", "--file", "src/main.rs"]);
    assert_eq!((out.ids(), out.hidden("branch"), out.hidden("file")), (ids([1]), 3, 1));
}

/// A killed writer blocks nobody, and what it had kept is kept.
#[test]
fn killed_at_any_moment() {
    let home = Home::new();
    for n in 1..=700 {
        home.put(&Log::healthy(&t(n), AT));
    }
    settle();
    let without = list(&home, &["--all", "--count", "--no-index"]);
    for wait in [0, 5, 20, 60, 150, 400] {
        let bin = assert_cmd::cargo::cargo_bin("threadkeep");
        let mut command = std::process::Command::new(bin);
        command.arg("--home").arg(home.path()).args(["--json", "reindex"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("starts");
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().expect("killed");
        child.wait().expect("gone");
        let with = list(&home, &["--all", "--count"]);
        assert_eq!(with["threads"], without["threads"], "killed after {wait} ms");
    }
    reindexed(&home);
    assert_eq!(state(&agrees(&home)), "fresh");
}

/// The images that a power loss may leave of the index: its file as it was at the last checkpoint, and any beginning of
/// what was written to the log since.
#[test]
fn any_beginning_of_the_log() {
    let home = Home::new();
    for n in 1..=150 {
        home.put(&Log::healthy(&t(n), AT));
    }
    reindexed(&home);
    // A reader that stays keeps the log from being written back.
    let reader = Connection::open(file(&home)).expect("the index");
    reader.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); BEGIN; SELECT count(*) FROM listed").expect("reading");
    for n in 100..=300 {
        home.put(&Log::new(&t(n), AT).meta().turn("again", "and anew"));
    }
    fs::remove_file(home.file(&Log::healthy(&t(1), AT).active_path())).expect("removed");
    settle();
    list(&home, &[]);
    let plain = list(&home, &["--all", "--count", "--no-index"]);
    let (base, log) =
        (fs::read(file(&home)).expect("base"), fs::read(home.file("threadkeep/index.sqlite-wal")).expect("log"));
    assert!(log.len() > 20 * 4096, "{}", log.len());
    drop(reader);
    let frame = 24 + 4096;
    let ends =
        (0..=log.len().saturating_sub(32) / frame).step_by(3).flat_map(|n| [32 + n * frame, 32 + n * frame + 1_000]);
    let folder = home.outside("image");
    for end in ends.filter(|end| *end <= log.len()) {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder");
        let name = index_name(&home, &folder);
        fs::write(&name, &base).expect("base");
        fs::write(
            name.with_file_name(format!("{}-wal", name.file_name().expect("a name").to_string_lossy())),
            &log[..end],
        )
        .expect("log");
        let answer = list(&home, &["--all", "--count", "--index-dir", folder.to_str().expect("UTF-8")]);
        assert_eq!(answer["threads"], plain["threads"], "the first {end} bytes of the log");
    }
}

/// The name that a home's index has in a folder of indexes.
fn index_name(home: &Home, folder: &Path) -> PathBuf {
    let probe = home.outside("probe");
    run(home, &["reindex", "--index-dir", probe.to_str().expect("UTF-8")]);
    let mut names = fs::read_dir(&probe).expect("made").map(|e| e.expect("an entry").file_name());
    let name = names.find(|n| Path::new(n).extension().is_some_and(|e| e == "sqlite")).expect("an index");
    folder.join(name)
}

/// Hits with an index are those without.
#[track_caller]
fn finds(home: &Home, term: &str) -> usize {
    let with = run(home, &["search", term]).1;
    let without = run(home, &["search", term, "--no-index"]).1;
    assert_eq!(with["hits"], without["hits"], "{term}");
    assert_eq!(with["threads"], without["threads"], "{term}");
    with["hits"].as_array().map_or(0, Vec::len)
}

/// A home of which a term is in one thread, so that the hint is asked.
fn many() -> Home {
    let home = Home::new();
    for n in 1..=60 {
        let words: String = (0..400).map(|i| format!("word{} ", n * 1_000 + i)).collect();
        home.put(&Log::new(&t(n), AT).meta().turn(&format!("thread{n}x {words}"), "an answer"));
    }
    home
}

#[test]
fn searches_follow_the_files() {
    let home = many();
    reindexed(&home);
    assert_eq!((finds(&home, "thread17x"), finds(&home, "THREAD17X"), finds(&home, "nowhere")), (1, 1, 0));
    assert_eq!(finds(&home, "word17005"), 1);
    let seventeen = home.file(&Log::healthy(&t(17), AT).active_path());
    // Behind what is known: a record, a last line without its end, and the rest of it later.
    let more = Log::new(&t(17), "2026-03-02T10:00:00Z").user("and a narwhal");
    let line = more.lines()[0].clone();
    let mut file = fs::File::options().append(true).open(&seventeen).expect("a rollout");
    std::io::Write::write_all(&mut file, &line).expect("a record");
    assert_eq!(finds(&home, "narwhal"), 1);
    let torn = String::from_utf8_lossy(&line).replace("narwhal", "pangolin");
    std::io::Write::write_all(&mut file, torn.trim_end().as_bytes()).expect("a record without its end");
    assert_eq!(finds(&home, "pangolin"), 1);
    reindexed(&home);
    assert_eq!((finds(&home, "narwhal"), finds(&home, "pangolin")), (1, 1));
    std::io::Write::write_all(&mut file, b"\n").expect("its end");
    std::io::Write::write_all(&mut file, torn.replace("pangolin", "axolotl").as_bytes()).expect("one more");
    settle();
    assert_eq!((finds(&home, "pangolin"), finds(&home, "axolotl")), (1, 1));
    reindexed(&home);
    assert_eq!((finds(&home, "narwhal"), finds(&home, "pangolin"), finds(&home, "axolotl")), (1, 1, 1));
    // Written anew, in place and as another file; compressed; archived; removed.
    let text = fs::read_to_string(&seventeen).expect("a rollout").replace("narwhal", "wombats");
    fs::write(&seventeen, &text).expect("in place");
    assert_eq!((finds(&home, "narwhal"), finds(&home, "wombats")), (0, 1));
    reindexed(&home);
    assert_eq!((finds(&home, "narwhal"), finds(&home, "wombats")), (0, 1));
    fs::remove_file(&seventeen).expect("removed");
    fs::write(seventeen.with_extension("jsonl.zst"), zstd::encode_all(text.as_bytes(), 3).expect("zstd"))
        .expect("packed");
    assert_eq!(finds(&home, "wombats"), 1);
    reindexed(&home);
    assert_eq!((finds(&home, "wombats"), finds(&home, "nowhere")), (1, 0));
    let archived = home.file(&format!("archived_sessions/{}.jsonl.zst", Log::healthy(&t(17), AT).stem()));
    fs::create_dir_all(archived.parent().expect("a parent")).expect("folders");
    fs::rename(seventeen.with_extension("jsonl.zst"), &archived).expect("moved");
    assert_eq!(finds(&home, "wombats"), 1);
    fs::remove_file(&archived).expect("removed");
    assert_eq!(finds(&home, "wombats"), 0);
    reindexed(&home);
    assert_eq!((finds(&home, "wombats"), finds(&home, "thread18x")), (0, 1));
    // A name of a file's second life, with the text of another.
    fs::copy(home.file(&Log::healthy(&t(18), AT).active_path()), &seventeen).expect("copied");
    finds(&home, "thread18x");
}

/// Whatever of the text hint is damaged, everything is found; building anew mends it.
#[test]
fn a_damaged_text_hint_hides_nothing() {
    for sql in [
        "UPDATE text_blocks SET bytes = zeroblob(length(bytes))",
        "UPDATE text_blocks SET bytes = substr(bytes, 1, 40)",
        "DELETE FROM text_blocks",
        "DELETE FROM text_segments",
        "DELETE FROM text_files",
        "UPDATE text_files SET files = zeroblob(length(files))",
        "UPDATE text_files SET files = substr(files, 1, length(files) / 2)",
        "UPDATE text_files SET files = x''",
        "UPDATE text_segments SET bytes = bytes + 9",
    ] {
        let home = many();
        reindexed(&home);
        Connection::open(file(&home)).expect("the index").execute_batch(sql).expect("spoilt");
        assert_eq!((finds(&home, "thread30x"), finds(&home, "nowhere")), (1, 0), "{sql}");
        reindexed(&home);
        assert_eq!(finds(&home, "thread31x"), 1, "{sql}");
    }
}
