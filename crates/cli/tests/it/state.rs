//! Codex's databases beside the files: the files are the truth, whatever a row says or a database has become.

use std::{fs, time::Instant};

use serde_json::{Value, json};

use crate::{
    db::{StateDb, int, text},
    home::{Home, ids},
    log::{Log, t},
};

const AT: &str = "2026-03-01T10:00:00Z";

/// Ten threads, one archived, two named in the name index, and a database that knows them all.
fn ten() -> Home {
    let home = Home::new();
    let mut state = home.state();
    for n in 1..=10 {
        let log = Log::healthy(&t(n), AT);
        let path = if n == 10 { home.put_archived(&log) } else { home.put(&log) };
        let path = path.to_str().expect("UTF-8");
        state = state.row(&t(n), &[("rollout_path", text(path)), ("archived", int(i64::from(n == 10)))]);
    }
    state.close();
    home.idx(&t(3), "third", AT);
    home.idx(&t(10), "tenth", AT);
    home
}

#[track_caller]
fn all_ten(home: &Home) {
    let out = home.list(&[]);
    assert_eq!(out.set(), ids(1..=9));
    assert_eq!(out.hidden("archived"), 1);
    assert_eq!(out.thread(&t(3))["name"], "third");
    assert_eq!(out.thread(&t(1))["preview"], format!("hello {}", t(1)));
    assert_eq!(home.list(&["--archived"]).ids(), ids([10]));
    assert_eq!(home.show(&["tenth"]).json["thread"]["archived"], true);
    assert_eq!(home.search(&[&format!("hello {}", t(5))]).hit_threads(), ids([5]));
    assert_eq!(home.run(&["resume", "third"]).json["thread_id"], t(3));
}

/// A page of noise in the database: no threads, or no start.
#[test]
fn b47_noise_in_the_database() {
    let home = ten();
    let path = home.file("state_5.sqlite");
    let mut bytes = fs::read(&path).expect("the database");
    for (n, byte) in bytes.iter_mut().enumerate().skip(4_096).take(4_096) {
        *byte = u8::try_from(n * 2_654_435_761 % 251).expect("a byte");
    }
    home.write("state_5.sqlite", bytes);
    all_ten(&home);
}

/// What else may be found under the name of the database.
#[test]
fn b47_no_database_under_its_name() {
    let home = ten();
    let good = fs::read(home.file("state_5.sqlite")).expect("the database");
    let mut future = good.clone();
    future[18] = 9; // a write version that no SQLite knows
    future[19] = 9;
    let variants: [&[u8]; 7] = [
        b"",
        b"this is text, not a database\n",
        b"SQLite format 3\0",
        &good[..100],
        &good[..5_000],
        &[0; 8_192],
        &future,
    ];
    for bytes in variants {
        home.write("state_5.sqlite", bytes);
        all_ten(&home);
    }
    fs::remove_file(home.file("state_5.sqlite")).expect("gone");
    all_ten(&home);
    fs::create_dir(home.file("state_5.sqlite")).expect("a folder of that name");
    all_ten(&home);
}

/// Databases of other schemas: no `threads`, other columns, a `-wal` of garbage, migrations that are not known.
#[test]
fn b47_other_schemas_and_companions() {
    let home = ten();
    home.write("state_5.sqlite-wal", [7; 9_000]);
    all_ten(&home);
    fs::remove_file(home.file("state_5.sqlite-wal")).expect("gone");
    let changes = [
        "INSERT INTO _sqlx_migrations VALUES (999, 'future', '2027-01-01', 1, x'00', 0)",
        "INSERT INTO _sqlx_migrations VALUES (1000, 'failed', '2027-01-01', 0, x'00', 0)",
        "DROP INDEX idx_threads_updated_at_ms; ALTER TABLE threads DROP COLUMN name",
        "ALTER TABLE threads DROP COLUMN title",
        "ALTER TABLE threads RENAME TO threads_of_old",
        "CREATE VIEW threads AS SELECT 1 AS id, x'ff' AS rollout_path",
    ];
    for sql in changes {
        let conn = rusqlite::Connection::open(home.file("state_5.sqlite")).expect("the database");
        conn.execute_batch(sql).expect("a change");
        conn.close().map_err(|(_, error)| error).expect("a clean close");
        all_ten(&home);
    }
}

/// Rows of the wrong type or with text that is not UTF-8 spoil only themselves.
#[test]
fn b47_rows_of_nonsense() {
    let home = ten();
    let state = StateDb::create(&home.file("sqlite/state_5.sqlite"));
    state.row(&t(11), &[("title", text("kept"))]).close();
    let conn = rusqlite::Connection::open(home.file("state_5.sqlite")).expect("the database");
    conn.execute_batch(
        "UPDATE threads SET title = CAST(x'fffe' AS TEXT), created_at = 'soon', updated_at = 9e99 WHERE rowid = 2;
         UPDATE threads SET source = '{', rollout_path = CAST(x'2fff' AS TEXT), archived = 'yes' WHERE rowid = 4;",
    )
    .expect("nonsense");
    conn.close().map_err(|(_, error)| error).expect("a clean close");
    let out = home.list(&[]);
    assert!(ids(1..=9).iter().all(|id| out.ids().contains(id)), "{out:?}");
}

/// Start was refused while another process held the database; it is neither written nor waited for.
#[test]
fn b81_a_locked_database_is_not_waited_for() {
    let home = ten();
    let held = rusqlite::Connection::open(home.file("state_5.sqlite")).expect("the database");
    held.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; UPDATE threads SET title = 'x';")
        .expect("a lock");
    let begin = Instant::now();
    all_ten(&home);
    assert!(begin.elapsed().as_secs() < 15, "a dozen commands, none of them waiting");
    held.execute_batch("ROLLBACK").expect("the end");
}

/// An unrelated file that could not be read was reported as damaged history, with the advice to delete it.
#[test]
fn b48_unreadable_neighbours_are_no_damage() {
    use std::os::unix::fs::PermissionsExt;
    let home = ten();
    let config = home.write("config.toml", "model = \"x\"\n");
    fs::set_permissions(&config, fs::Permissions::from_mode(0o000)).expect("a mode");
    let history = home.write("history.jsonl", "nonsense\n");
    fs::set_permissions(&history, fs::Permissions::from_mode(0o000)).expect("a mode");
    all_ten(&home);
    fs::remove_file(&config).expect("gone");
    fs::create_dir(&config).expect("a folder of that name");
    fs::create_dir(home.file("auth.json")).expect("a folder");
    all_ten(&home);
    let out = home.human(&["list"]);
    let told = (out.stdout + &out.stderr).to_lowercase();
    for advice in ["corrupt", "clear", "delete", "remove"] {
        assert!(!told.contains(advice), "{told}");
    }
}

/// A rollout that may not be read is named, with its error, and the others are there.
#[test]
fn b48_unreadable_rollout_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let home = ten();
    let closed = home.put(&Log::healthy(&t(11), AT));
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).expect("a mode");
    if fs::read(&closed).is_ok() {
        return; // a user who may read everything
    }
    let out = home.list(&["--all"]);
    assert!(ids(1..=10).iter().all(|id| out.ids().contains(id)));
    let shown = home.run(&["show", &t(11)]);
    assert_ne!(shown.code, 0);
    assert!(shown.stderr.contains(&t(11)) && shown.stderr.to_lowercase().contains("permission"), "{shown:?}");
}

/// The flag in the database and the place of the file differ: the place wins, in every list.
#[test]
fn b54_the_place_decides_about_the_archive() {
    let home = Home::new();
    let active = home.put(&Log::healthy(&t(1), AT));
    let archived = home.put_archived(&Log::healthy(&t(2), AT));
    let agreed = home.put_archived(&Log::healthy(&t(3), AT));
    let path = |path: std::path::PathBuf| text(path.to_str().expect("UTF-8"));
    let since = int(1_772_500_000);
    home.state()
        .row(&t(1), &[("rollout_path", path(active)), ("archived", int(1)), ("archived_at", since.clone())])
        .row(&t(2), &[("rollout_path", path(archived)), ("archived", int(0))])
        .row(&t(3), &[("rollout_path", path(agreed)), ("archived", int(1)), ("archived_at", since)])
        .close();
    for _ in 0..2 {
        let out = home.list(&[]);
        assert_eq!((out.ids(), out.hidden("archived")), (ids([1]), 2));
        assert_eq!(out.thread(&t(1))["archived"], false);
        let out = home.list(&["--archived"]);
        assert_eq!((out.set(), out.hidden("not_archived")), (ids([2, 3]), 1));
        assert_eq!(out.thread(&t(3))["archived_at"], "2026-03-03T01:06:40.000Z");
        assert_eq!(home.list(&["--include", "archived"]).set(), ids([1, 2, 3]));
        assert_eq!(home.run(&["resume", &t(1)]).json["archived"], false);
        assert_eq!(home.run(&["resume", &t(2)]).json["archived"], true);
    }
}

/// A compressed, a segmented and a nested file in the archive are archived too.
#[test]
fn b54_every_representation_in_the_archive() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    let packed = Log::healthy(&t(2), AT);
    let bytes = zstd::encode_all(packed.bytes().as_slice(), 3).expect("zstd");
    home.put_bytes(&format!("{}.zst", packed.archived_path()), &bytes, packed.last());
    let nested = Log::healthy(&t(3), AT);
    home.put_at(&format!("archived_sessions/2026/03/01/{}.jsonl", nested.stem()), &nested);
    assert_eq!(home.list(&[]).ids(), ids([1]));
    assert_eq!(home.list(&["--archived"]).set(), ids([2, 3]));
}

/// A thread of which only the database knows could neither be seen nor explained.
#[test]
fn b56_ghost_threads_are_listed_and_explained() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.state()
        .row(&t(2), &[("title", text("Ghost title")), ("cwd", text("/w/ghost"))])
        .row(&t(3), &[("name", text("Ghost name")), ("history_mode", text("paginated"))])
        .row(&t(4), &[])
        .close();
    home.idx(&t(2), "Ghost title", AT);
    home.idx(&t(5), "only a name", AT);
    let out = home.list(&[]);
    assert_eq!(out.set(), ids([1, 2, 3]), "a row without a name or title, and a name without a row, are not listed");
    let ghost = out.thread(&t(2));
    assert_eq!(ghost["files"], json!([]));
    assert_eq!(ghost["name"], "Ghost title");
    assert_eq!(out.thread(&t(3))["name"], "Ghost name");
    for args in [["resume", &t(2)], ["resume", "Ghost name"]] {
        let out = home.run(&args);
        assert_eq!(out.code, 1, "{out:?}");
        let told = out.error()["message"].as_str().expect("a message").to_lowercase();
        assert!(
            ["missing", "gone", "no file", "no rollout", "no longer"].iter().any(|word| told.contains(word)),
            "{told}"
        );
    }
    assert!(home.run(&["show", &t(2)]).code <= 1);
}

/// A restored or moved home: the database holds the paths of another machine.
#[test]
fn b73_stale_absolute_paths() {
    let home = Home::new();
    let legacy = Log::healthy(&t(1), AT);
    let paginated = Log::paginated(&t(2), AT).meta().turn("a question", "an answer");
    let archived = Log::healthy(&t(3), AT);
    home.put(&legacy);
    home.put(&paginated);
    home.put_archived(&archived);
    let path = |rel: String| ("rollout_path", text(&format!("/home/a/.codex/{rel}")));
    home.state()
        .row(&t(1), &[path(legacy.active_path())])
        .row(&t(2), &[path(paginated.active_path()), ("name", text("moved")), ("history_mode", text("paginated"))])
        .row(&t(3), &[path(archived.active_path())])
        .close();
    let out = home.list(&["--all"]);
    assert_eq!(out.set(), ids([1, 2, 3]));
    assert_eq!(out.thread(&t(1))["files"][0]["path"], legacy.active_path());
    assert_eq!(out.thread(&t(2))["name"], "moved");
    assert_eq!(out.thread(&t(3))["archived"], true);
    for n in [1, 2] {
        let resume = home.run(&["resume", &t(n)]);
        assert_eq!(resume.code, 0);
        assert!(!resume.stdout.contains("/home/a"), "{resume:?}");
        assert!(!home.show(&[&t(n)]).turns().is_empty());
    }
    assert!(!out.stdout.contains("/home/a/.codex"), "{out:?}");
}

/// Rollouts copied into a home whose database does not know them were missing.
#[test]
fn b74_restored_rollouts_are_listed_at_once() {
    let home = Home::new();
    let known = home.put(&Log::healthy(&t(1), AT));
    home.state().row(&t(1), &[("rollout_path", text(known.to_str().expect("UTF-8")))]).close();
    for n in 2..=9 {
        home.put(&Log::healthy(&t(n), AT));
    }
    for n in 10..=17 {
        home.put(&Log::paginated(&t(n), AT).meta().turn(&format!("hello {}", t(n)), "an answer"));
    }
    let out = home.list(&[]);
    assert_eq!(out.set(), ids(1..=17));
    assert_eq!(out.json["total"], 17);
    assert_eq!(home.search(&[&format!("hello {}", t(17))]).hit_threads(), ids([17]));
    assert_eq!(home.show(&[&t(12)]).turns().len(), 1);
}

/// A thread whose row tells another thread's path, and two rows of one file: files decide.
#[test]
fn rows_that_point_at_other_files() {
    let home = Home::new();
    let first = home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::healthy(&t(2), AT));
    let path = text(first.to_str().expect("UTF-8"));
    home.state().row(&t(1), &[("rollout_path", path.clone())]).row(&t(2), &[("rollout_path", path)]).close();
    let out = home.list(&[]);
    assert_eq!(out.set(), ids([1, 2]));
    assert_eq!(out.thread(&t(2))["preview"], format!("hello {}", t(2)));
    assert_eq!(out.json["next_cursor"], Value::Null);
}
