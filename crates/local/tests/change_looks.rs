//! A change that is done from the look that it was planned from: whatever happened in between is noticed, so that what
//! comes of it is the same as without that look.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use threadkeep_index::{Index, IndexOptions, IndexPlace};
use threadkeep_local::catalog::Catalog;
use threadkeep_local::change::{Cascade, ChangeKind, Changer};
use threadkeep_local::fill::{Apply, rebuild};
use threadkeep_record::ThreadId;
use threadkeep_rollout::Home;

fn id(n: u32) -> ThreadId {
    ThreadId::parse(&format!("01990000-0000-7000-8000-{n:012x}")).unwrap()
}

fn rollout(n: u32) -> PathBuf {
    format!("sessions/2026/08/{:02}/rollout-2026-08-20T01-10-00-{}.jsonl", 20 + n % 3, id(n)).into()
}

fn header(n: u32, more: &str) -> String {
    let id = id(n);
    format!(
        r#"{{"timestamp":"2026-08-20T01:10:00.000Z","ordinal":0,"type":"session_meta","payload":{{"id":"{id}","cwd":"/w","originator":"t","cli_version":"0","source":"cli","timestamp":"2026-08-20T01:10:00.000Z","history_mode":"paginated"{more}}}}}"#
    ) + "\n"
}

/// The header of a fork of the first thread by reference.
fn fork(n: u32) -> String {
    header(n, &format!(r#","history_base":{{"thread_id":"{}","end_ordinal_exclusive":1,"end_byte_offset":9}}"#, id(1)))
}

fn put(home: &Path, path: impl AsRef<Path>, text: &str) {
    let path = home.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A home with an index, in which everything stood for a while.
fn home() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for n in 1..=9 {
        put(dir.path(), rollout(n), &header(n, ""));
    }
    put(dir.path(), "session_index.jsonl", &name(1, "a name"));
    put(dir.path(), "archived_sessions/rollout-2026-08-20T01-10-00-x.jsonl", "");
    std::thread::sleep(Duration::from_millis(40));
    let home = Home::new(dir.path().to_owned());
    drop(Index::open(IndexOptions { home: home.clone(), place: IndexPlace::Home, busy: Duration::from_secs(5) }));
    rebuild(&Catalog::open(&home, None, Some(&IndexPlace::Home)), Apply::Yes).unwrap();
    std::thread::sleep(Duration::from_millis(40));
    dir
}

fn name(n: u32, name: &str) -> String {
    format!(r#"{{"id":"{}","thread_name":"{name}","updated_at":"2026-08-20T01:10:00Z"}}"#, id(n)) + "\n"
}

fn changer(home: &Path) -> Changer {
    Changer::new(Home::new(home.to_owned()), None, Some(IndexPlace::Home))
}

/// What came of a change, and where all rollouts and names are then.
fn outcome(changer: &Changer, kind: ChangeKind) -> (Vec<String>, BTreeMap<PathBuf, Vec<u8>>) {
    let told = changer.apply(kind, &[id(1)]).into_iter().map(|o| format!("{:?}", o.result.map_err(|e| e.to_string())));
    let told = told.collect();
    let mut files = BTreeMap::new();
    let home = changer.home.path();
    for root in ["sessions", "archived_sessions", "threadkeep/trash", "session_index.jsonl"] {
        collect(home, &home.join(root), &mut files);
    }
    // When it was done stands in it.
    files.retain(|path, _| !path.ends_with("manifest.json"));
    (told, files)
}

fn collect(home: &Path, path: &Path, into: &mut BTreeMap<PathBuf, Vec<u8>>) {
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|e| collect(home, &e.unwrap().path(), into));
    } else if let Ok(bytes) = fs::read(path) {
        into.insert(path.strip_prefix(home).unwrap().to_owned(), bytes);
    }
}

type Meanwhile = (&'static str, fn(&Path), Option<&'static str>);

/// What others do between plan and change, and what is said of it when the first thread is deleted.
const MEANWHILE: [Meanwhile; 9] = [
    ("nothing", |_| {}, None),
    (
        "a fork in a new folder",
        |home| {
            put(
                home,
                "sessions/2027/01/01/rollout-2027-01-01T00-00-00-01990000-0000-7000-8000-00000000000a.jsonl",
                &fork(10),
            )
        },
        Some("still references it"),
    ),
    ("a fork in a folder that is there", |home| put(home, rollout(10), &fork(10)), Some("still references it")),
    (
        "a fork in the archive",
        |home| {
            put(
                home,
                "archived_sessions/rollout-2027-01-01T00-00-00-01990000-0000-7000-8000-00000000000a.jsonl",
                &fork(10),
            )
        },
        Some("still references it"),
    ),
    (
        "it went on",
        |home| {
            use std::io::Write as _;
            let mut file = fs::OpenOptions::new().append(true).open(home.join(rollout(1))).unwrap();
            file.write_all(b"{\"timestamp\":\"2026-08-20T01:10:01.000Z\",\"ordinal\":1,\"type\":\"event_msg\",\"payload\":{\"type\":\"x\"}}\n").unwrap();
        },
        None,
    ),
    (
        "it has another rollout",
        |home| {
            let base =
                format!(r#","history_base":{{"thread_id":"{}","end_ordinal_exclusive":1,"end_byte_offset":9}}"#, id(1));
            let path = format!("sessions/2026/09/01/rollout-2026-09-01T00-00-00-{}_{}.jsonl", id(1), id(77));
            put(home, path, &header(1, &base));
        },
        None,
    ),
    (
        "it was archived",
        |home| {
            let from = home.join(rollout(1));
            fs::rename(&from, home.join("archived_sessions").join(from.file_name().unwrap())).unwrap();
        },
        None,
    ),
    ("it is gone", |home| fs::remove_file(home.join(rollout(1))).unwrap(), None),
    ("it was renamed", |home| put(home, "session_index.jsonl", &(name(1, "a name") + &name(1, "another"))), None),
];

#[test]
fn whatever_happened_since_the_plan_is_noticed() {
    for kind in [ChangeKind::Archive, ChangeKind::Delete] {
        for (what, meanwhile, refusal) in MEANWHILE {
            // Without a plan, on another home of the same files.
            let other = home();
            meanwhile(other.path());
            let expected = outcome(&changer(other.path()), kind);
            let dir = home();
            let changer = changer(dir.path());
            let plan = changer.plan(kind, &[id(1)], Cascade::Alone);
            assert_eq!(plan.taken().count(), 1, "{what}: {plan:?}");
            meanwhile(dir.path());
            let found = outcome(&changer, kind);
            assert!(found == expected, "{kind:?}, {what}:\n{found:#?}\n{expected:#?}");
            if let (ChangeKind::Delete, Some(refusal)) = (kind, refusal) {
                assert!(found.0[0].contains(refusal), "{what}: {:?}", found.0);
            }
        }
    }
}

/// Another connection of the index says something new: who started whom is decided there, too.
#[test]
fn an_edge_that_was_set_since_the_plan_is_noticed() {
    let dir = home();
    let changer = changer(dir.path());
    let plan = changer.plan(ChangeKind::Archive, &[id(1)], Cascade::Descendants);
    assert_eq!(plan.taken().count(), 1);
    let home = Home::new(dir.path().to_owned());
    let index = Index::open(IndexOptions { home, place: IndexPlace::Home, busy: Duration::from_secs(5) }).unwrap();
    index.upsert_edge(id(1), id(2), threadkeep_index::EdgeStatus::Open).unwrap();
    let plan = changer.plan(ChangeKind::Archive, &[id(1)], Cascade::Descendants);
    assert_eq!(plan.taken().map(|t| t.id).collect::<Vec<_>>(), [id(1), id(2)]);
}
