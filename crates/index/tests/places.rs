//! Where the index is kept: modes, and every kind of thing in its place. What cannot be used is left as it is.
#![cfg(unix)]
#![allow(missing_docs, reason = "tests")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{home, id, memory, open, options, raw, try_open};
use threadkeep_index::{Index, IndexError, IndexPlace, Journal, Placed, SchemaVersion, WhyMemory};
use threadkeep_record::{Field, MetadataPatch};

fn named(name: &str) -> MetadataPatch {
    MetadataPatch { name: Field::Set(name.into()), ..MetadataPatch::default() }
}

fn file_of(home: &Path) -> PathBuf {
    home.join("threadkeep/index.sqlite")
}

/// Everything below a folder, with contents.
fn below(folder: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return all };
    for entry in entries {
        let path = entry.unwrap().path();
        all.push((path.clone(), fs::read(&path).ok()));
        if path.is_dir() && !path.is_symlink() {
            all.extend(below(&path));
        }
    }
    all.sort();
    all
}

/// It is in memory and works; what was in the home is as before.
fn in_memory(home: &Path) -> WhyMemory {
    let before = below(home);
    let why = {
        let index = Index::open(options(home, IndexPlace::Home)).unwrap();
        let Placed::Memory { why } = index.place() else { panic!("{:?}", index.place()) };
        index.patch(id(1), &named("n")).unwrap();
        assert_eq!(index.get(id(1)).unwrap().unwrap().name.as_deref(), Some("n"));
        why
    };
    assert!(below(home) == before, "something in the home changed: {why}");
    why
}

#[test]
fn in_memory_as_asked() {
    let index = memory("/nowhere");
    assert_eq!(index.place(), Placed::Memory { why: WhyMemory::Asked });
}

#[test]
fn a_home_that_is_not_there_is_not_made() {
    let above = home();
    let home = above.path().join("none");
    assert_eq!(in_memory(&home), WhyMemory::NoHome { home: home.clone() });
    assert!(!home.exists());
}

#[test]
fn files_and_folders_in_the_way() {
    type Make = fn(&Path);
    let cases: [(&str, Make); 7] = [
        ("a file where the folder should be", |home| fs::write(home.join("threadkeep"), "x").unwrap()),
        ("a folder where the file should be", |home| fs::create_dir_all(file_of(home)).unwrap()),
        ("a link to a folder", |home| {
            fs::create_dir(home.join("other")).unwrap();
            std::os::unix::fs::symlink(home.join("other"), home.join("threadkeep")).unwrap();
        }),
        ("a link that leads nowhere", |home| {
            std::os::unix::fs::symlink("/nowhere/at/all", home.join("threadkeep")).unwrap();
        }),
        ("a link to an index", |home| {
            drop(open(home));
            fs::rename(file_of(home), home.join("elsewhere.sqlite")).unwrap();
            std::os::unix::fs::symlink(home.join("elsewhere.sqlite"), file_of(home)).unwrap();
        }),
        ("an index with a second name", |home| {
            drop(open(home));
            fs::hard_link(file_of(home), home.join("second.sqlite")).unwrap();
        }),
        ("a socket", |home| {
            fs::create_dir(home.join("threadkeep")).unwrap();
            drop(std::os::unix::net::UnixListener::bind(file_of(home)).unwrap());
        }),
    ];
    for (case, make) in cases {
        let home = home();
        make(home.path());
        let why = in_memory(home.path());
        assert!(matches!(why, WhyMemory::Folder { .. } | WhyMemory::NotAFile { .. }), "{case}: {why}");
    }
}

#[test]
fn a_home_that_is_a_file() {
    let above = home();
    let home = above.path().join("file");
    fs::write(&home, "x").unwrap();
    assert!(matches!(in_memory(&home), WhyMemory::Folder { .. }));
}

/// Changes a made index while it is closed.
fn made(home: &Path, sql: &str) {
    let index = open(home);
    index.patch(id(1), &named("kept")).unwrap();
    drop(index);
    let other = raw(&file_of(home));
    other.execute_batch(sql).unwrap();
}

#[test]
fn a_newer_version_is_left_alone() {
    for version in [SchemaVersion::CURRENT.0 + 1, 9, i32::MAX] {
        let home = home();
        made(home.path(), &format!("PRAGMA user_version = {version}"));
        let (path, found) = (file_of(&home.path().canonicalize().unwrap()), SchemaVersion(version));
        assert_eq!(in_memory(home.path()), WhyMemory::TooNew { path, found, known: SchemaVersion::CURRENT });
    }
}

#[test]
fn a_newer_version_that_stands_only_in_the_log_is_left_alone() {
    let home = home();
    drop(open(home.path()));
    let newer = raw(&file_of(home.path()));
    newer.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 9").unwrap();
    let main = fs::read(file_of(home.path())).unwrap();
    let log = fs::read(home.path().join("threadkeep/index.sqlite-wal")).unwrap();
    assert!(!log.is_empty());
    let index = Index::open(options(home.path(), IndexPlace::Home)).unwrap();
    assert!(matches!(index.place(), Placed::Memory { why: WhyMemory::TooNew { found: SchemaVersion(9), .. } }));
    drop(index);
    assert!(fs::read(file_of(home.path())).unwrap() == main);
    assert!(fs::read(home.path().join("threadkeep/index.sqlite-wal")).unwrap() == log);
}

/// What a release before lists were kept had decided stays.
#[test]
fn the_first_version_gets_the_tables_that_came_since() {
    let home = home();
    let index = open(home.path());
    index.patch(id(1), &named("decided")).unwrap();
    drop(index);
    let old = raw(&file_of(home.path()));
    let newer: Vec<(String, String)> = old
        .prepare("SELECT type, name FROM sqlite_schema WHERE name NOT IN ('threads', 'spawn_edges', 'spawn_edges_by_parent') AND sql IS NOT NULL ORDER BY type = 'table'")
        .unwrap()
        .query_map([], |r| Ok((r.get(0)?, r.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for (kind, name) in newer {
        old.execute_batch(&format!("DROP {kind} {name}")).unwrap();
    }
    old.execute_batch("PRAGMA user_version = 1").unwrap();
    drop(old);
    let index = open(home.path());
    assert!(matches!(index.place(), Placed::File { .. }), "{:?}", index.place());
    assert_eq!(index.get(id(1)).unwrap().unwrap().name.as_deref(), Some("decided"));
    assert!(index.listing().unwrap().threads.is_empty());
}

/// Lists and texts of the second version stood in other tables of the same names: they are read again from the files.
#[test]
fn the_second_version_loses_its_hints_and_nothing_else() {
    let home = home();
    let index = open(home.path());
    index.patch(id(1), &named("decided")).unwrap();
    drop(index);
    let old = raw(&file_of(home.path()));
    old.execute_batch(
        "DROP TABLE listed; CREATE TABLE listed (thread BLOB NOT NULL PRIMARY KEY, print INTEGER NOT NULL) STRICT, WITHOUT ROWID; \
         INSERT INTO listed VALUES (x'00', 1); INSERT INTO marks VALUES ('whole', '1'), ('text_segments', '0'); \
         INSERT INTO folders VALUES (x'73657373696f6e73', 1, 2, 3, 4, 5, x'', x''); \
         DROP TABLE text_files; CREATE TABLE text_files (owner INTEGER PRIMARY KEY, ino INTEGER NOT NULL) STRICT; \
         CREATE INDEX text_files_by_ino ON text_files (ino); INSERT INTO text_files VALUES (1, 2); PRAGMA user_version = 2",
    )
    .unwrap();
    drop(old);
    let index = open(home.path());
    assert!(matches!(index.place(), Placed::File { .. }), "{:?}", index.place());
    assert_eq!(index.get(id(1)).unwrap().unwrap().name.as_deref(), Some("decided"));
    let listing = index.listing().unwrap();
    assert!(listing.threads.is_empty() && !listing.whole);
    assert!(index.folders().unwrap().is_empty() && index.text_files().unwrap().is_empty());
    drop(index);
    let new: i64 = raw(&file_of(home.path())).pragma_query_value(None, "user_version", |r| r.get(0)).unwrap();
    assert_eq!(new, 3);
}

#[test]
fn an_older_version_is_made_anew() {
    for version in [0, -1] {
        let home = home();
        made(home.path(), &format!("DROP TABLE threads; CREATE TABLE threads (x); PRAGMA user_version = {version}"));
        let index = open(home.path());
        assert_eq!(index.get(id(1)).unwrap(), None);
        index.patch(id(1), &named("again")).unwrap();
        drop(index);
        assert!(open(home.path()).get(id(1)).unwrap().is_some());
    }
}

#[test]
fn a_database_of_another_program_is_left_alone() {
    for sql in ["PRAGMA application_id = 77", "PRAGMA application_id = 0"] {
        let home = home();
        made(home.path(), sql);
        assert!(matches!(in_memory(home.path()), WhyMemory::NotOurs { .. }), "{sql}");
    }
}

#[test]
fn other_tables_than_those_of_its_version_are_damage() {
    for sql in ["DROP TABLE spawn_edges", "ALTER TABLE threads ADD COLUMN more TEXT", "CREATE TABLE extra (x)"] {
        let home = home();
        made(home.path(), sql);
        assert!(matches!(in_memory(home.path()), WhyMemory::Damaged { .. }), "{sql}");
    }
}

type Change = Box<dyn Fn(&mut Vec<u8>)>;

#[test]
fn damage_of_every_page_and_every_length_is_told_or_harmless() {
    let sound = home();
    made(sound.path(), "PRAGMA journal_mode = DELETE");
    let bytes = fs::read(file_of(sound.path())).unwrap();
    let with = |change: &Change| {
        let home = home();
        fs::create_dir(home.path().join("threadkeep")).unwrap();
        let mut bytes = bytes.clone();
        change(&mut bytes);
        fs::write(file_of(home.path()), &bytes).unwrap();
        (home, bytes)
    };
    // Where it is seen at once, nothing is touched.
    let mut seen: Vec<Change> =
        vec![Box::new(|b| b.fill(0)), Box::new(|b| b.fill(b'x')), Box::new(|b| b[100..4096].fill(0xff))];
    for length in [1, 15, 16, 99] {
        seen.push(Box::new(move |b| b.truncate(length)));
    }
    for change in &seen {
        let (home, _) = with(change);
        assert!(matches!(in_memory(home.path()), WhyMemory::Damaged { .. }));
    }
    // Where it is found later, the call says so, and the next ones work in memory.
    let mut found = 0;
    for page in 1..bytes.len() / 4096 {
        for fill in [0, 0xff] {
            let change: Change = Box::new(move |b| b[page * 4096..(page + 1) * 4096].fill(fill));
            let (home, broken) = with(&change);
            let index = Index::open(options(home.path(), IndexPlace::Home)).unwrap();
            let read = index.get(id(1)).and_then(|_| index.children(id(1), None));
            let read_failed = read.is_err();
            let results = [
                read.map(drop),
                index.upsert_edge(id(1), id(2), threadkeep_index::EdgeStatus::Open),
                index.patch(id(1), &named("x")),
            ];
            let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
            assert!(errors.len() <= 1 && errors.iter().all(|e| matches!(e, IndexError::Damaged { .. })), "{errors:?}");
            assert_eq!(index.get(id(1)).unwrap().unwrap().name.as_deref(), Some("x"));
            if !errors.is_empty() {
                assert!(matches!(index.place(), Placed::Memory { why: WhyMemory::Damaged { .. } }), "page {page}");
                drop(index);
                found += 1;
            }
            if read_failed {
                // The journal's mode stands on the first page.
                assert!(fs::read(file_of(home.path())).unwrap()[4096..] == broken[4096..], "page {page} was changed");
            }
        }
    }
    assert!(found > 2, "damage was found {found} times");
}

#[test]
fn an_empty_file_is_one_that_its_maker_did_not_finish() {
    let home = home();
    fs::create_dir(home.path().join("threadkeep")).unwrap();
    fs::write(file_of(home.path()), "").unwrap();
    open(home.path()).patch(id(1), &named("n")).unwrap();
    assert!(open(home.path()).get(id(1)).unwrap().is_some());
}

#[test]
fn removing_the_file_loses_only_hints() {
    let home = home();
    for whole_folder in [None, Some(())] {
        let (one, two) = (open(home.path()), open(home.path()));
        one.patch(id(1), &named("n")).unwrap();
        assert!(two.get(id(1)).unwrap().is_some());
        match whole_folder {
            None => fs::remove_file(file_of(home.path())).unwrap(),
            Some(()) => fs::remove_dir_all(home.path().join("threadkeep")).unwrap(),
        }
        assert_eq!(one.get(id(1)).unwrap(), None);
        one.patch(id(2), &named("m")).unwrap();
        assert!(two.get(id(2)).unwrap().is_some());
        two.patch(id(1), &named("n")).unwrap();
        drop(two);
        assert!(one.get(id(1)).unwrap().is_some());
        drop(one);
        let after = open(home.path());
        assert!(after.get(id(1)).unwrap().is_some() && after.get(id(2)).unwrap().is_some());
        after.remove(id(1)).unwrap();
    }
}

#[test]
fn a_new_file_shares_nothing_with_a_removed_one_that_others_still_write() {
    let home = home();
    let index = open(home.path());
    index.patch(id(1), &named("old")).unwrap();
    let unaware = raw(&file_of(home.path()));
    let write = |n: u8| {
        let name = "of the old file ".repeat(400);
        unaware.execute("INSERT INTO threads (id, name) VALUES (?1, ?2)", (id(n).as_bytes(), name)).unwrap();
    };
    write(100);
    fs::remove_file(file_of(home.path())).unwrap();
    for n in 2..40 {
        index.patch(id(n), &named("new")).unwrap();
        write(100 + n);
        assert_eq!(index.get(id(n)).unwrap().unwrap().name.as_deref(), Some("new"));
        assert_eq!(index.get(id(100 + n)).unwrap(), None);
    }
    let check: String = raw(&file_of(home.path())).query_row("PRAGMA integrity_check", [], |r| r.get(0)).unwrap();
    assert_eq!(check, "ok");
    assert!(matches!(index.place(), Placed::File { .. }));
}

#[test]
fn each_home_has_its_own_file_in_a_given_folder() {
    let (a, b, folder) = (home(), home(), home());
    let folder = folder.path().join("made/by/it");
    let at = |home: &Path| Index::open(options(home, IndexPlace::Dir(folder.clone()))).unwrap();
    at(a.path()).patch(id(1), &named("a")).unwrap();
    assert_eq!(at(b.path()).get(id(1)).unwrap(), None);
    assert_eq!(at(a.path()).get(id(1)).unwrap().unwrap().name.as_deref(), Some("a"));
    let Placed::File { path, .. } = at(a.path()).place() else { panic!("in memory") };
    assert!(path.starts_with(folder.canonicalize().unwrap()));
    assert_eq!((below(a.path()), below(b.path())), (vec![], vec![]));
    fs::write(folder.join("file"), "").unwrap();
    let index = Index::open(options(a.path(), IndexPlace::Dir(folder.join("file")))).unwrap();
    assert!(matches!(index.place(), Placed::Memory { why: WhyMemory::Folder { .. } }));
}

#[test]
fn a_foreign_home_is_not_written_to() {
    let home = home();
    if std::os::unix::fs::chown(home.path(), Some(12345), None).is_err() {
        return; // Only root may give a folder away.
    }
    assert_eq!(in_memory(home.path()), WhyMemory::ForeignHome { home: home.path().into(), owner: 12345 });
    let folder = common::home();
    let index = Index::open(options(home.path(), IndexPlace::Dir(folder.path().into()))).unwrap();
    assert!(matches!(index.place(), Placed::File { .. }));
}

#[test]
fn locked_by_another_is_an_error_within_the_budget() {
    let home = home();
    drop(open(home.path()));
    for busy in [Duration::ZERO, Duration::from_millis(150)] {
        // Whoever keeps only others from writing does not keep anybody from opening or reading.
        let writer = raw(&file_of(home.path()));
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        let index = try_open(home.path(), busy).unwrap();
        assert_eq!(index.get(id(1)).unwrap(), None);
        type Call = fn(&Index) -> Result<(), IndexError>;
        let calls: [Call; 4] = [
            |index| index.patch(id(1), &named("x")),
            |index| index.observe(&[(id(1), named("x"))]),
            |index| index.remove(id(1)),
            |index| index.upsert_edge(id(1), id(2), threadkeep_index::EdgeStatus::Open),
        ];
        for call in calls {
            within(busy, || call(&index));
        }
        // Several threads at one handle wait at the same time, not one after another.
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| within(busy, || index.patch(id(1), &named("x"))));
            }
        });
        drop(writer);
        index.patch(id(1), &named("x")).unwrap();
        index.remove(id(1)).unwrap();
        drop(index);
        // Nor can it be opened while somebody has it alone.
        let alone = raw(&file_of(home.path()));
        alone.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
        within(busy, || try_open(home.path(), busy));
        drop(alone);
        // While somebody makes the file, others wait for it no longer either.
        fs::remove_file(file_of(home.path())).unwrap();
        let maker = fs::File::open(home.path().join("threadkeep")).unwrap();
        maker.lock().unwrap();
        within(busy, || try_open(home.path(), busy));
        drop(maker);
        drop(open(home.path()));
    }
}

fn within<T: std::fmt::Debug>(busy: Duration, call: impl FnOnce() -> Result<T, IndexError>) {
    let begin = Instant::now();
    let error = call().unwrap_err();
    let took = begin.elapsed();
    assert!(matches!(&error, IndexError::Busy { budget, .. } if *budget == busy), "{error}");
    assert!(error.to_string().contains("index.sqlite"), "{error}");
    // The rest is the machine's, which others use too.
    assert!(took >= busy.mul_f32(0.9) && took < busy + Duration::from_millis(300), "{took:?} of {busy:?}");
}

#[test]
fn the_log_is_used_on_a_local_file_system() {
    let home = home();
    let index = open(home.path());
    let Placed::File { path, journal } = index.place() else { panic!("in memory") };
    assert_eq!(journal, Journal::Wal);
    let mode: String = raw(&path).pragma_query_value(None, "journal_mode", |r| r.get(0)).unwrap();
    assert_eq!(mode, "wal");
}
