//! `revert --undo`: what comes back, and what is refused.

use std::{fs, io::Write as _, path::Path};

use serde_json::{Value, json};

use crate::{
    db::text,
    home::{Home, damage},
    log::{Log, Shape, t},
    write_run::{cells_changed, done, dry, dump, files, plan, refused},
};

const AT: &str = "2026-03-01T10:00:00Z";
const SHAPES: [Shape; 2] = [Shape::Legacy, Shape::Paginated];

fn three(shape: Shape, thread: &str) -> Log {
    Log::shaped(shape, thread, AT).meta().turn("q one", "a one").turn("q two", "a two").turn("q three", "a three")
}

/// A home with such a thread, which Codex's database knows by its path.
fn known(shape: Shape) -> (Home, Log) {
    let home = Home::new();
    let log = three(shape, &t(1));
    home.put(&log);
    home.put(&Log::healthy(&t(2), AT));
    home.idx(&t(1), "the name", AT);
    let path = home.file(&log.active_path()).to_string_lossy().into_owned();
    home.state().row(&t(1), &[("rollout_path", text(&path))]).row(&t(2), &[]).close();
    (home, log)
}

fn revert(home: &Home, thread: &str, turn: &str) {
    done(home, &["revert", thread, "--before-turn", turn, "--yes"]);
}

#[track_caller]
fn shown(home: &Home, thread: &str) -> (usize, String) {
    let out = home.show(&[thread]);
    assert_eq!(damage(&out.json["thread"]), 0, "{out:?}");
    (out.turns().len(), out.said())
}

/// Every byte, name and column is as it was before the revert.
#[test]
fn an_undone_revert_leaves_everything_as_it_was() {
    for shape in SHAPES {
        for (turn, back) in [("1", 3), ("2", 2), ("3", 1)] {
            let (home, log) = known(shape);
            let (were, rows, said) = (files(&home), dump(&home.file("state_5.sqlite")), shown(&home, &t(1)));
            revert(&home, &t(1), turn);
            assert_eq!(shown(&home, &t(1)).0, 3 - back);
            let out = dry(&home, &["revert", &t(1), "--undo"]);
            let steps = plan(&home, &out);
            let count = if back == 1 { "1 turn counts again".to_owned() } else { format!("{back} turns count again") };
            let because = out.json["plan"][0]["because"].as_str().expect("why");
            assert!(because.starts_with(&count), "{because}");
            assert_eq!(shown(&home, &t(1)).0, 3 - back, "a dry run changes nothing");
            done(&home, &["revert", "the name", "--undo"]);
            if shape == Shape::Legacy {
                assert_eq!(steps, [("remove_revert".to_owned(), log.active_path())]);
                assert_eq!(fs::read(home.file(&log.active_path())).expect("the rollout"), log.bytes());
            } else {
                assert_eq!((steps[0].0.as_str(), steps[1].0.as_str()), ("remove_segment", "set_codex_rollout_path"));
                assert_eq!(were.changed(&home), Vec::<String>::new());
            }
            assert_eq!(were.made(&home), Vec::<String>::new());
            assert_eq!(cells_changed(&rows, &home.file("state_5.sqlite")), vec![]);
            assert_eq!(shown(&home, &t(1)), said);
            refused(&home, &["revert", &t(1), "--undo"], 2, "usage");
            // And again, as often as one likes.
            revert(&home, &t(1), turn);
            assert_eq!(shown(&home, &t(1)).0, 3 - back);
        }
    }
}

/// Each undo takes the last one back.
#[test]
fn several_reverts_are_undone_one_by_one() {
    for shape in SHAPES {
        let (home, _) = known(shape);
        for turn in ["3", "2", "1"] {
            revert(&home, &t(1), turn);
        }
        for turns in 1..=3 {
            done(&home, &["revert", &t(1), "--undo"]);
            assert_eq!(shown(&home, &t(1)).0, turns);
        }
        refused(&home, &["revert", &t(1), "--undo"], 2, "usage");
    }
}

/// What was said behind a revert would be lost or would stand in another place.
#[test]
fn a_thread_that_went_on_is_left_alone() {
    for shape in SHAPES {
        let (home, log) = known(shape);
        done(&home, &["revert", &t(1), "--before-turn", "2"]);
        let head = home.list(&["--all"]).thread(&t(1))["files"]
            .as_array()
            .expect("files")
            .iter()
            .find_map(|f| (f["role"] == "head").then(|| f["path"].as_str().expect("a path").to_owned()));
        let more = Log::shaped(shape, &t(1), "2027-03-01T10:00:00Z").ordinal(6).turn("q new", "a new");
        let mut file =
            fs::OpenOptions::new().append(true).open(home.file(&head.expect("a head"))).expect("the rollout");
        file.write_all(&more.bytes()).expect("written");
        let were = files(&home);
        refused(&home, &["revert", &t(1), "--undo"], 2, "usage");
        assert_eq!(were.changed(&home), Vec::<String>::new());
        let (turns, said) = shown(&home, &t(1));
        assert!(turns == 2 && said.contains("a new"), "{said}");
        drop(log);
    }
}

/// A fork of what stood after the revert keeps its history, whatever becomes of the undo.
#[test]
fn forks_keep_their_history() {
    for shape in SHAPES {
        let (home, _) = known(shape);
        revert(&home, &t(1), "2");
        let fork = done(&home, &["fork", &t(1)]).json["results"][0]["thread_id"].as_str().expect("an id").to_owned();
        let was = shown(&home, &fork);
        let _either = crate::write_run::change(&home, &["revert", &t(1), "--undo"]);
        assert_eq!(shown(&home, &fork), was);
    }
}

#[test]
fn others_are_left_alone() {
    for shape in SHAPES {
        let (home, _) = known(shape);
        home.put_archived(&three(shape, &t(3)));
        refused(&home, &["revert", &t(9), "--undo"], 1, "not_found");
        refused(&home, &["revert", &t(2), "--undo"], 2, "usage");
        refused(&home, &["revert", &t(3), "--undo"], 2, "usage");
        let both = crate::write_run::told(&home, &["revert", &t(1), "--undo", "--before-turn", "1"], |_| ());
        assert_eq!(both.code, 2, "{both:?}");
        revert(&home, &t(1), "2");
        let were = files(&home);
        let lock = home.write(&format!("thread-writer-locks/{}.lock", t(1)), "");
        let held = fs::File::open(&lock).expect("the lock file");
        held.try_lock().expect("the lock");
        refused(&home, &["revert", &t(1), "--undo"], 3, "refused");
        drop(held);
        fs::remove_file(lock).expect("removed");
        if shape == Shape::Paginated {
            let database = rusqlite::Connection::open(home.file("state_5.sqlite")).expect("the database");
            database.execute_batch("BEGIN IMMEDIATE").expect("locked");
            let out = crate::write_run::change(&home, &["revert", &t(1), "--undo"]);
            assert_eq!(out.code, 3, "{out:?}");
            database.execute_batch("ROLLBACK").expect("free");
        }
        assert_eq!((were.made(&home), were.changed(&home)), (vec![], vec![]));
        assert_eq!(shown(&home, &t(1)).0, 1);
        assert_eq!(
            done(&home, &["revert", &t(1), "--undo"]).json["results"],
            json!([{"thread_id": t(1), "ok": true, "error": null}])
        );
    }
}

/// Threads that released binaries wrote: reverted and undone, each has its bytes again.
#[test]
fn threads_of_released_binaries_come_back() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes");
    for (version, at_least) in [("0.44.0", 1), ("0.98.0", 1), ("0.142.0", 5), ("0.171.0", 5)] {
        let home = Home::copy_of(&fixtures.join(version));
        let list = home.list(&["--all", "--limit", "1000"]);
        let mut undone = 0;
        for row in list.json["threads"].as_array().expect("threads") {
            let files = row["files"].as_array().expect("files");
            let plain = |f: &Value| f["path"].as_str().is_some_and(|p| p.ends_with(".jsonl"));
            if row["archived"] != false || files.is_empty() || !files.iter().all(plain) {
                continue;
            }
            let id = row["id"].as_str().expect("an id");
            let read = || -> Vec<Vec<u8>> {
                let path = |f: &Value| home.file(f["path"].as_str().expect("a path"));
                files.iter().map(|f| fs::read(path(f)).expect("a rollout")).collect()
            };
            let (before, shown) = (read(), home.show(&[id]));
            let Some(last) = shown.turns().last().and_then(|turn| turn["id"].as_str().map(str::to_owned)) else {
                continue;
            };
            done(&home, &["revert", id, "--before-turn", &last]);
            done(&home, &["revert", id, "--undo"]);
            assert!(read() == before, "{version} {id}");
            let again = home.show(&[id]);
            assert_eq!(
                (again.turns(), &again.json["thread"]["files"]),
                (shown.turns(), &row["files"]),
                "{version} {id}"
            );
            undone += 1;
        }
        assert!(undone >= at_least, "{version}: {undone}");
    }
}
