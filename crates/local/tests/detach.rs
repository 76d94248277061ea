//! B63, B64: a thread that refers to others' rollouts is written as one file that needs none, with every record of its
//! history as it was; its ancestors may go then.

#[path = "detach/staging.rs"]
mod staging;
#[path = "detach/world.rs"]
mod world;

use std::fs;
use std::sync::Arc;

use threadkeep_local::change::detach::{DetachError, Standing, flatten, verify};
use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::{HistoryMode, ItemPlace, NewItem, ThreadId, UtcMillis};
use threadkeep_rollout::home::Home;
use threadkeep_store::{
    Archived, Clock, CreateThread, ForkRange, ForkThread, HostMetadata, ResumeThread, TestClock, ThreadStore as _,
};

use world::{World, chain, header, held, id, joined, line, of, turn};

fn standing(world: &World, thread: ThreadId) -> Standing {
    of(&world.open(thread)).standing()
}

fn refusal(world: &World, thread: ThreadId) -> String {
    let before = world.names();
    let error = world.stage(thread).expect_err("it is refused").to_string();
    assert_eq!(world.names(), before, "nothing is left: {error}");
    error
}

#[test]
fn b63_a_chain_becomes_one_file_and_its_ancestors_go() {
    let world = World::new();
    let expected = chain(&world);
    let before = world.told(id(3));
    assert_eq!(before.1.len(), 3);
    assert_eq!(standing(&world, id(3)), Standing::OtherThreads);
    let path = world.detach(id(3));
    for ancestor in [1, 2] {
        world.trash(&world.place(id(ancestor), None));
    }
    let found = fs::read(&path).expect("it");
    assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&joined(&expected)));
    assert!(found == joined(&expected));
    assert_eq!(world.told(id(3)), before);
    let row = world.open(id(3)).row.thread;
    assert_eq!((row.first_user_message.as_deref(), row.damage.records), (Some("one"), 4), "{:?}", row.damage);
    assert_eq!(standing(&world, id(3)), Standing::SelfContained);
    // Once more changes nothing but the file's name.
    let again = world.detach(id(3));
    assert!(fs::read(again).expect("it") == found);
}

/// A fork that was made before refers to the old rollout, and has its history as long as that stays.
#[test]
fn an_older_fork_keeps_its_history_while_the_old_rollout_stays() {
    let world = World::new();
    chain(&world);
    let old = world.place(id(3), None);
    let size = fs::metadata(&old).expect("it").len();
    let fork = [vec![header(id(4), 17, Some((id(3), 17, size)), "")], turn(18, id(4), "four")].concat();
    world.put(id(4), None, &joined(&fork));
    let before = (world.told(id(3)), world.told(id(4)));
    let staged = world.stage(id(3)).expect("staged");
    fs::rename(&staged.temporary, &staged.target).expect("the swap");
    assert_eq!((world.told(id(3)), world.told(id(4))), before);
    let open = world.open(id(3));
    let spans: Vec<_> = open.history.spans.iter().map(|s| s.path.clone()).collect();
    assert_eq!(spans, [staged.target], "the newest rollout has everything");
    // The old one keeps the ancestors needed; the fork itself can be detached, and everything else goes.
    assert_eq!(standing(&world, id(3)), Standing::OtherThreads);
    world.detach(id(4));
    for path in [old, world.place(id(2), None), world.place(id(1), None)] {
        world.trash(&path);
    }
    assert_eq!((world.told(id(3)), world.told(id(4))), before);
}

/// Forks by the store, in a row, continued after the ancestors are gone.
#[tokio::test]
async fn b63_forks_of_the_store_go_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("home");
    let clock = Arc::new(TestClock::new(UtcMillis(1_767_323_045_000)));
    let open_store = || {
        let options = LocalOptions { index: None, ..LocalOptions::new(home.clone()) };
        LocalThreadStore::open_with(options, Arc::clone(&clock) as Arc<dyn Clock>)
    };
    let store = open_store();
    let say = |thread: u64, n: u64| {
        let (turn, item, at) = (format!("t{n}"), format!("i{n}"), clock.now());
        let place = ItemPlace { thread_id: id(thread), turn_id: &turn, item_id: &item, at };
        let mode = HistoryMode::Paginated;
        [
            NewItem::turn_started(&turn, at),
            NewItem::user_message(mode, &place, &format!("question {n}")),
            NewItem::agent_message(mode, &place, &format!("answer {n}")),
            NewItem::turn_completed(&turn, Some("done"), at),
        ]
    };
    let mut params = CreateThread::new(id(1), "/w", "test");
    params.history_mode = HistoryMode::Paginated;
    store.create_thread(params).await.expect("created");
    for n in 1..=3 {
        if n > 1 {
            let child = CreateThread::new(id(n), "/w", "test");
            let fork = ForkThread { source: id(n - 1), archived: Archived::Excluded, range: ForkRange::Whole, child };
            store.fork_thread(fork).await.expect("forked");
        }
        clock.advance(1_000);
        store.append_items(id(n), &say(n, n)).await.expect("appended");
        store.shutdown_thread(id(n)).await.expect("closed");
    }
    let before = store.load_history(id(3), Archived::Excluded).await.expect("a history");

    let reader = threadkeep_local::LocalStore::new(vec![Home::new(&home)], None);
    let depth = threadkeep_rollout::facts::Depth::Head;
    let opened: Vec<_> = (1..=3).map(|n| reader.open_id(id(n), depth).expect("found")).collect();
    let subject = of(&opened[2]);
    let disk = threadkeep_rollout::seam::RealDisk;
    let staged = threadkeep_local::change::detach::stage(&disk, &Home::new(&home), &subject, &*clock).expect("staged");
    verify(&subject, &staged.temporary).expect("it says the same");
    for open in &opened {
        for member in &open.row.members {
            fs::remove_file(member.entry.path_in(&home)).expect("removed");
        }
    }
    fs::rename(&staged.temporary, &staged.target).expect("the swap");

    let store = open_store();
    let after = store.load_history(id(3), Archived::Excluded).await.expect("a history");
    let kinds = |h: &threadkeep_store::StoredHistory| {
        let records = h.records.iter().map(|r| String::from_utf8_lossy(&r.0).into_owned());
        records.filter(|r| !r.contains("session_meta") && !r.contains("header_of")).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&after), kinds(&before));
    let metadata = HostMetadata { cwd: Some("/w".into()), ..HostMetadata::default() };
    let resume = ResumeThread { thread_id: id(3), rollout_path: None, archived: Archived::Excluded, metadata };
    store.resume_thread(resume).await.expect("resumed");
    clock.advance(1_000);
    store.append_items(id(3), &say(3, 4)).await.expect("appended");
    let child = CreateThread::new(id(4), "/w", "test");
    let fork = ForkThread { source: id(3), archived: Archived::Excluded, range: ForkRange::Whole, child };
    store.fork_thread(fork).await.expect("forked");
    for n in [3, 4] {
        store.shutdown_thread(id(n)).await.expect("closed");
        let all = store.load_history(id(n), Archived::Excluded).await.expect("a history");
        assert_eq!(all.damaged, 0, "ordinals go on without a gap");
        let text: String = all.records.iter().map(|r| String::from_utf8_lossy(&r.0).into_owned()).collect();
        for question in 1..=4 {
            assert_eq!(text.matches(&format!("question {question}\"")).count(), 1, "{n}: {question}");
        }
    }
}

/// B64: a thread of several rollouts of its own, behind another's segment.
#[test]
fn b64_reverted_threads_are_one_file_then() {
    let world = World::new();
    // The parent was reverted, and its second rollout is the base.
    let first = [vec![header(id(1), 0, None, "")], turn(1, id(1), "one"), turn(4, id(1), "taken back")].concat();
    world.put(id(1), None, &joined(&first));
    let cut = joined(&first[..4]).len() as u64;
    let second = [vec![header(id(1), 4, Some((id(1), 4, cut)), "")], turn(5, id(1), "another")].concat();
    world.put(id(1), Some(id(11)), &joined(&second));
    let end = joined(&second).len() as u64;
    assert_eq!(standing(&world, id(1)), Standing::OwnRollouts);
    // The fork was reverted, too, twice.
    let own =
        [vec![header(id(2), 8, Some((id(11), 8, end)), "")], turn(9, id(2), "own"), turn(12, id(2), "gone")].concat();
    world.put(id(2), None, &joined(&own));
    let cut = joined(&own[..4]).len() as u64;
    let segment = [vec![header(id(2), 12, Some((id(2), 12, cut)), "")], turn(13, id(2), "gone, too")].concat();
    world.put(id(2), Some(id(21)), &joined(&segment));
    let head =
        [vec![header(id(2), 12, Some((id(2), 12, cut)), "\"git\":{\"branch\":\"b\"},")], turn(13, id(2), "last")]
            .concat();
    world.put(id(2), Some(id(22)), &joined(&head));

    let before = world.told(id(2));
    let path = world.detach(id(2));
    for segment in [None, Some(id(11))] {
        world.trash(&world.place(id(1), segment));
    }
    let expected = [
        vec![header(id(2), 0, None, "\"git\":{\"branch\":\"b\"},")],
        first[1..4].to_vec(),
        vec![held(4, id(1))],
        second[1..].to_vec(),
        vec![held(8, id(2))],
        own[1..4].to_vec(),
        vec![held(12, id(2))],
        head[1..].to_vec(),
    ]
    .concat();
    let found = fs::read_to_string(&path).expect("it");
    let found = found.replacen("10:00:12.000Z", "10:00:00.000Z", 1);
    assert_eq!(found, String::from_utf8_lossy(&joined(&expected)));
    assert_eq!(world.told(id(2)).1, before.1);
}

#[test]
fn compressed_bases_are_unpacked() {
    let world = World::new();
    let expected = chain(&world);
    let before = world.told(id(3));
    for n in [1, 3] {
        let plain = world.place(id(n), None);
        let packed = zstd::encode_all(&*fs::read(&plain).expect("it"), 3).expect("packed");
        fs::write(plain.with_extension("jsonl.zst"), packed).expect("written");
        fs::remove_file(plain).expect("removed");
    }
    let path = world.detach(id(3));
    assert!(fs::read(&path).expect("it") == joined(&expected));
    assert_eq!(path.extension().and_then(|e| e.to_str()), Some("jsonl"));
    assert_eq!(world.told(id(3)), before);
}

#[test]
fn what_is_missing_is_named_and_nothing_is_written() {
    let world = World::new();
    chain(&world);
    let whole = fs::read(world.place(id(1), None)).expect("it");
    // Gone.
    fs::remove_file(world.place(id(1), None)).expect("removed");
    let error = refusal(&world, id(3));
    assert!(error.contains(&id(1).to_string()) && error.contains("ordinal 9"), "{error}");
    // Cut before the part's end: also inside of a record.
    let end = whole.windows(9).position(|w| w == b"\"type\":\"y").expect("the last inherited record");
    for cut in [end - 60, end] {
        world.put(id(1), None, &whole[..cut]);
        let error = refusal(&world, id(3));
        assert!(error.contains("ends at ordinal") && error.contains(&id(1).to_string()), "{error}");
    }
    // Compressed, and cut.
    fs::remove_file(world.place(id(1), None)).expect("removed");
    let packed = zstd::encode_all(&*whole, 3).expect("packed");
    let place = world.place(id(1), None).with_extension("jsonl.zst");
    fs::write(&place, &packed[..packed.len() - 20]).expect("written");
    refusal(&world, id(3));
    fs::remove_file(&place).expect("removed");
    // A base that is told in a way that is not understood, in the oldest part.
    let odd = String::from_utf8_lossy(&whole).replacen("\"cwd\"", "\"history_base\":{\"novel\":1},\"cwd\"", 1);
    world.put(id(1), None, odd.as_bytes());
    refusal(&world, id(3));
    // Another mode, and none that is known.
    for mode in ["legacy", "novel"] {
        let other = String::from_utf8_lossy(&whole).replacen("paginated", mode, 1);
        world.put(id(1), None, other.as_bytes());
        refusal(&world, id(3));
    }
    // As it was.
    world.put(id(1), None, &whole);
    world.detach(id(3));
}

/// A torn tail of the head is no record; the end of a part never was one.
#[test]
fn torn_tails_are_left_out_and_whole_ones_ended() {
    for (tail, lines, torn) in
        [(&b"{\"timestamp\":\"2026-03-01T10"[..], 0, 1), (&line(17, "event_msg", "{}")[..], 1, 0)]
    {
        let world = World::new();
        let mut expected = joined(&chain(&world));
        let mut own = fs::read(world.place(id(3), None)).expect("it");
        own.extend_from_slice(tail);
        world.put(id(3), None, &own);
        let staged = world.stage(id(3)).expect("staged");
        assert_eq!((staged.flattened.torn, staged.flattened.headers), (torn, 2));
        if lines > 0 {
            expected.extend_from_slice(tail);
            expected.push(b'\n');
        }
        assert!(fs::read(&staged.temporary).expect("it") == expected);
        verify(&of(&world.open(id(3))), &staged.temporary).expect("it says the same");
    }
}

/// What a spawned agent got from its parent is not its conversation, and not that of its forks.
#[test]
fn context_of_a_parent_agent_stays_context() {
    let world = World::new();
    let agent = [
        vec![header(id(1), 0, None, "\"subagent_history_start_ordinal\":4,")],
        turn(1, id(9), "of the parent"),
        turn(4, id(1), "task"),
    ]
    .concat();
    world.put(id(1), None, &joined(&agent));
    let base = (id(1), 7, joined(&agent).len() as u64);
    let fork = [vec![header(id(2), 7, Some(base), "")], turn(8, id(2), "fork")].concat();
    world.put(id(2), None, &joined(&fork));
    let path = world.detach(id(2));
    let text = fs::read_to_string(path).expect("it");
    assert!(text.lines().next().expect("a header").contains("\"subagent_history_start_ordinal\":4"), "{text}");
    assert!(text.contains("of the parent"), "its bytes are kept");
    let (_, turns) = world.told(id(2));
    assert_eq!(turns.len(), 2, "{turns:?}");
    // A header that says it itself is not changed.
    let own = [vec![header(id(3), 7, Some(base), "\"subagent_history_start_ordinal\":8,")], turn(8, id(3), "own task")]
        .concat();
    world.put(id(3), None, &joined(&own));
    let text = fs::read_to_string(world.detach(id(3))).expect("it");
    assert!(text.lines().next().expect("a header").contains("\"subagent_history_start_ordinal\":8"));
}

#[test]
fn long_chains_and_long_records_keep_every_byte() {
    let world = World::new();
    let mut expected: Vec<Vec<u8>> = Vec::new();
    let mut base = None;
    let mut ordinal = 0;
    // 30 threads with 100 records each; one record is longer than what readers hold, one is long and damaged.
    for n in 1..=30 {
        let mut lines = vec![header(id(n), ordinal, base, "")];
        if n > 1 {
            expected.push(held(ordinal, id(n)));
        }
        for k in 1..100 {
            let text = match (n, k) {
                (2, 50) => "x".repeat(9 << 20),
                _ => format!("{n} {k}"),
            };
            let mut record = line(ordinal + k, "event_msg", &format!("{{\"type\":\"m\",\"text\":\"{text}\"}}"));
            if (n, k) == (3, 7) {
                record = [b"<<<".to_vec(), vec![b'y'; 9 << 20]].concat();
            }
            expected.push(record.clone());
            lines.push(record);
        }
        let bytes = joined(&lines);
        world.put(id(n), None, &bytes);
        ordinal += 100;
        base = Some((id(n), ordinal, bytes.len() as u64));
    }
    let open = world.open(id(30));
    let mut found = Vec::new();
    let done = flatten(&of(&open), &mut found).expect("flattened");
    assert_eq!((done.lines, done.headers, done.torn, done.bytes), (3_000, 29, 0, found.len() as u64));
    let rest = memchr::memchr(b'\n', &found).expect("a header") + 1;
    assert!(found[rest..] == joined(&expected));
    let path = world.detach(id(30));
    assert!(fs::read(path).expect("it") == found);
}

#[test]
fn a_file_that_differs_is_told() {
    let world = World::new();
    chain(&world);
    let staged = world.stage(id(3)).expect("staged");
    let open = world.open(id(3));
    let whole = fs::read(&staged.temporary).expect("it");
    let mut flipped = whole.clone();
    let last = flipped.len() - 20;
    flipped[last] ^= 1;
    let cases = [flipped, whole[..whole.len() - 1].to_vec(), [&whole[..], b"\n"].concat(), Vec::new()];
    for wrong in cases {
        fs::write(&staged.temporary, wrong).expect("written");
        let error = verify(&of(&open), &staged.temporary).expect_err("it differs");
        assert!(matches!(error, DetachError::Differs { .. }), "{error}");
    }
    fs::write(&staged.temporary, &whole).expect("written");
    verify(&of(&open), &staged.temporary).expect("it says the same");
    // The history went on meanwhile.
    let more = [fs::read(world.place(id(3), None)).expect("it"), joined(&turn(17, id(3), "late"))].concat();
    world.put(id(3), None, &more);
    verify(&of(&world.open(id(3))), &staged.temporary).expect_err("a turn is missing");
}

#[test]
fn what_needs_no_other_thread_says_so() {
    let world = World::new();
    world.put(id(1), None, &joined(&[vec![header(id(1), 0, None, "")], turn(1, id(1), "one")].concat()));
    assert_eq!(standing(&world, id(1)), Standing::SelfContained);
    // A legacy fork copied its parent, header included.
    let legacy = |h: Vec<u8>| String::from_utf8_lossy(&h).replace("paginated", "legacy").into_bytes();
    let forked = format!("\"forked_from_id\":\"{}\",", id(1));
    let copy =
        [vec![legacy(header(id(2), 0, None, &forked)), legacy(header(id(1), 0, None, ""))], turn(1, id(1), "one")];
    world.put(id(2), None, &joined(&copy.concat()));
    assert_eq!(standing(&world, id(2)), Standing::SelfContained);
    // Its history begins in its own newest rollout, and an older one refers to another thread still.
    let end = fs::metadata(world.place(id(1), None)).expect("it").len();
    world.put(id(3), None, &joined(&[vec![header(id(3), 4, Some((id(1), 4, end)), "")], turn(5, id(3), "x")].concat()));
    world.put(id(3), Some(id(31)), &joined(&[vec![header(id(3), 0, None, "")], turn(1, id(3), "new")].concat()));
    assert_eq!(standing(&world, id(3)), Standing::OtherThreads);
}

/// Forks by reference and reverted threads that released Codex wrote.
#[test]
fn forks_of_released_versions() {
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes");
    let mut done = 0;
    for version in ["0.156.0", "0.171.0"] {
        let world = World::new();
        for folder in ["sessions", "archived_sessions"] {
            copy(&fixtures.join(version).join(folder), &world.home.path().join(folder));
        }
        let ids: Vec<ThreadId> = world.reader().catalogs()[0].groups.iter().filter_map(|g| g.id).collect();
        for thread in ids {
            if standing(&world, thread) == Standing::SelfContained {
                continue;
            }
            let before = world.told(thread);
            let path = world.detach(thread);
            assert_eq!(world.told(thread), before, "{}", path.display());
            done += 1;
        }
    }
    assert!(done >= 6, "{done}");
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).into_iter().flatten() {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}
