//! A walk that remembers folders tells the same as one that does not.
#![cfg(unix)]

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use threadkeep_record::ThreadId;
use threadkeep_rollout::walk::{FolderNames, Remember, Walk, Wanted, named, walk, walk_with};

fn name(n: u32) -> String {
    format!("rollout-2026-03-01T10-00-00-01990000-0000-7000-8000-{n:012x}.jsonl")
}

fn told(walk: &Walk) -> Vec<(PathBuf, u64, u64)> {
    let mut all: Vec<_> = walk.files.iter().map(|f| (f.path(), f.size, f.print())).collect();
    all.sort();
    all
}

/// Walks with what is known, checks it, and remembers what it found. Returns how many folders did not have to be read.
fn again(home: &Path, known: &mut HashMap<PathBuf, FolderNames>) -> u64 {
    let walked = walk_with(home, Remember::Known(known));
    let plain = walk(home);
    assert_eq!(told(&walked), told(&plain));
    assert_eq!(walked.links, plain.links);
    known.extend(walked.folders);
    walked.unchanged.len() as u64
}

#[test]
fn only_folders_that_changed_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    for (folder, n) in [("sessions/2026/03/01", 1), ("sessions/2026/03/02", 2), ("archived_sessions", 3)] {
        fs::create_dir_all(home.join(folder)).unwrap();
        fs::write(home.join(folder).join(name(n)), "x").unwrap();
    }
    let mut known = HashMap::new();
    assert_eq!(again(home, &mut known), 0);
    assert_eq!(again(home, &mut known), 6);
    // An append changes no folder.
    fs::write(home.join("sessions/2026/03/01").join(name(1)), "xyz").unwrap();
    assert_eq!(again(home, &mut known), 6);
    // A new file, a new folder, a move, a removal.
    fs::write(home.join("sessions/2026/03/01").join(name(4)), "x").unwrap();
    assert_eq!(again(home, &mut known), 5);
    fs::create_dir_all(home.join("sessions/2027/01/01")).unwrap();
    fs::write(home.join("sessions/2027/01/01").join(name(5)), "x").unwrap();
    assert_eq!(again(home, &mut known), 5, "the folder of the years changed, and three are new");
    fs::rename(home.join("sessions/2026/03/01").join(name(1)), home.join("archived_sessions").join(name(1))).unwrap();
    assert_eq!(again(home, &mut known), 7);
    fs::remove_file(home.join("sessions/2026/03/02").join(name(2))).unwrap();
    assert_eq!(again(home, &mut known), 8);
    assert_eq!(again(home, &mut known), 9);
}

#[test]
fn what_is_not_plain_is_read_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    fs::create_dir_all(home.join("sessions/2026")).unwrap();
    fs::write(home.join("sessions/2026").join(name(1)), "x").unwrap();
    std::os::unix::fs::symlink(home.join("sessions/2026").join(name(1)), home.join("sessions/2026").join(name(2)))
        .unwrap();
    let mut known = HashMap::new();
    again(home, &mut known);
    assert_eq!(again(home, &mut known), 1, "`sessions` alone");
    // A remembered folder that is now a link is not followed.
    fs::remove_file(home.join("sessions/2026").join(name(2))).unwrap();
    again(home, &mut known);
    assert_eq!(again(home, &mut known), 2);
    fs::rename(home.join("sessions/2026"), home.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(home.join("elsewhere"), home.join("sessions/2026")).unwrap();
    again(home, &mut known);
}

#[test]
fn names_that_lead_elsewhere_are_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    fs::create_dir_all(home.join("sessions")).unwrap();
    fs::write(dir.path().join(name(1)), "outside").unwrap();
    let mut known = HashMap::new();
    again(&home, &mut known);
    for (files, folders) in [
        (format!("\0../../{}\0", name(1)), String::new()),
        (String::new(), "..\0".into()),
        (String::new(), "11\0..\0".into()),
    ] {
        let mut spoilt = known.clone();
        let names = spoilt.get_mut(Path::new("sessions")).unwrap();
        names.files = files.into_bytes();
        names.folders = folders.into_bytes();
        again(&home, &mut spoilt);
    }
    // Names that are not there any more, bytes that are no names.
    for bytes in [
        b"\0rollout-x.jsonl\0".to_vec(),
        b"\0rollout-x.jsonl".to_vec(),
        b"rollout-x.jsonl\0".to_vec(),
        vec![0, 0, 0],
        vec![0xff; 9],
        // A name that could be spelt, and is nowhere.
        [[1; 8].as_slice(), &[7; 16]].concat(),
    ] {
        let mut spoilt = known.clone();
        spoilt.get_mut(Path::new("sessions")).unwrap().files = bytes;
        again(&home, &mut spoilt);
    }
}

#[test]
fn files_are_found_by_the_id_in_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    let mut known = HashMap::new();
    let id = |n: u32| format!("01990000-0000-7000-8000-{n:012x}");
    let find = |n: u32, known: &HashMap<PathBuf, FolderNames>| {
        let found = named(home, &id(n), known).unwrap();
        assert_eq!(found, named(home, &id(n), &HashMap::new()).unwrap(), "with names and without");
        found.len()
    };
    assert_eq!(find(1, &known), 0, "no folders at all");
    for (folder, n) in [("sessions/2026/03/01", 1), ("sessions/2026/03/02", 2), ("archived_sessions", 1)] {
        fs::create_dir_all(home.join(folder)).unwrap();
        fs::write(home.join(folder).join(name(n)), "x").unwrap();
    }
    assert_eq!((find(1, &known), find(2, &known), find(3, &known)), (2, 1, 0));
    again(home, &mut known);
    assert_eq!((find(1, &known), find(2, &known), find(3, &known)), (2, 1, 0));
    fs::write(home.join("sessions/2026/03/02").join(name(3)), "x").unwrap();
    fs::create_dir_all(home.join("sessions/2026/04")).unwrap();
    fs::write(home.join("sessions/2026/04").join(name(1)), "x").unwrap();
    fs::remove_file(home.join("sessions/2026/03/01").join(name(1))).unwrap();
    assert_eq!((find(1, &known), find(2, &known), find(3, &known)), (2, 1, 1));
}

/// A walk for some threads tells their files and those of threads that nobody knows, also where a folder changed.
#[test]
fn a_walk_for_some_threads_tells_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path();
    let id = |n: u32| ThreadId::parse(&format!("01990000-0000-7000-8000-{n:012x}")).unwrap();
    for (folder, numbers) in
        [("sessions/2026/03/01", 1..=4), ("sessions/2026/03/02", 5..=6), ("archived_sessions", 7..=8)]
    {
        fs::create_dir_all(home.join(folder)).unwrap();
        numbers.for_each(|n| fs::write(home.join(folder).join(name(n)), "x").unwrap());
    }
    let mut known = HashMap::new();
    again(home, &mut known);
    let wanted = HashSet::from([id(1), id(7)]);
    let all_but_six = |thread: ThreadId| thread != id(6) && thread != id(20);
    let some = || {
        let walked = walk_with(home, Remember::Some(&known, Wanted { ids: &wanted, known: &all_but_six }));
        let mut told: Vec<String> =
            walked.files.iter().map(|f| f.path().file_name().unwrap().to_string_lossy().into_owned()).collect();
        told.sort();
        told
    };
    assert_eq!(some(), [name(1), name(6), name(7)]);
    // A folder that changed: what is new in it is told, by whom it ever is, and what was in it as before.
    let day = home.join("sessions/2026/03/01");
    fs::write(day.join(name(20)), "x").unwrap();
    fs::write(day.join(name(5)), "x").unwrap();
    fs::write(day.join(format!("{}.zst", name(2))), "x").unwrap();
    fs::write(day.join("rollout-by hand.jsonl"), "x").unwrap();
    let zst = format!("{}.zst", name(2));
    assert_eq!(some(), [name(1), zst.clone(), name(5), name(6), name(7), name(20), "rollout-by hand.jsonl".into()]);
    // Another folder of the same name holds other files.
    fs::rename(&day, home.join("old")).unwrap();
    fs::create_dir(&day).unwrap();
    (1..=3).for_each(|n| fs::write(day.join(name(n)), "y").unwrap());
    assert_eq!(some(), [name(1), name(2), name(3), name(6), name(7)]);
}
