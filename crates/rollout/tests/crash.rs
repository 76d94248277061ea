//! Crash images and failing calls over whole sequences of writing: create, append, flush, resume, write out a
//! compressed rollout, set a name.
//!
//! After every step the disk is rebuilt as a power loss may leave it, opened again, and compared with what was
//! acknowledged and what was made durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use threadkeep_record::{Envelope, HistoryMode, NewItem, SessionMeta, ThreadId, UtcMillis};
use threadkeep_rollout::appender::Durability;
use threadkeep_rollout::name_index;
use threadkeep_rollout::seam::{Disk, OpenMode};
use threadkeep_rollout::sim::{Crash, Failure, SimDisk};
use threadkeep_rollout::unpack::unpack;
use threadkeep_rollout::writer::{NewRollout, RolloutWriter};

const HOME: &str = "/home";
const ID: &str = "01990000-0000-7000-8000-000000000001";

fn path() -> PathBuf {
    PathBuf::from(format!("{HOME}/sessions/2026/11/30/rollout-2026-11-30T12-00-00-{ID}.jsonl"))
}

fn item(n: u64) -> NewItem {
    NewItem::from_json("response_item", &format!("{{\"type\":\"message\",\"n\":{n}}}")).unwrap()
}

fn header(mode: HistoryMode) -> NewItem {
    let mode = if mode == HistoryMode::Paginated { "paginated" } else { "legacy" };
    NewItem::from_json("session_meta", &format!("{{\"id\":\"{ID}\",\"history_mode\":\"{mode}\",\"cwd\":\"/\"}}"))
        .unwrap()
}

fn create(disk: &SimDisk, mode: HistoryMode, durability: Durability) -> RolloutWriter {
    let new = NewRollout { path: path(), root: HOME.into(), mode, header: header(mode), first_ordinal: 0 };
    RolloutWriter::create(Arc::new(disk.clone()), new, durability)
}

fn resume(disk: &SimDisk, durability: Durability) -> Option<RolloutWriter> {
    RolloutWriter::resume(Arc::new(disk.clone()), &path(), Path::new(HOME), durability).ok()
}

/// The numbers of the items in a rollout, in order. Fails when a record is torn elsewhere than where a crash may tear
/// it, or when ordinals are not 0, 1, 2, …
fn numbers(disk: &SimDisk, mode: HistoryMode) -> Vec<u64> {
    let bytes = disk.contents(&path()).unwrap_or_default();
    let mut found = Vec::new();
    let mut ordinals = Vec::new();
    for (i, line) in bytes.split(|b| *b == b'\n').enumerate() {
        let Some(envelope) = Envelope::parse(line) else { continue };
        ordinals.extend(envelope.ordinal);
        if i == 0 {
            assert!(SessionMeta::parse(line).is_some(), "the first record is the header");
            continue;
        }
        let payload: serde_json::Value = serde_json::from_str(envelope.payload).unwrap();
        found.push(payload["n"].as_u64().expect("a whole item"));
    }
    if mode == HistoryMode::Paginated {
        let want: Vec<u64> = (0..ordinals.len() as u64).collect();
        assert_eq!(ordinals, want, "every ordinal once, in order");
    }
    found
}

/// Every number once and in order, none skipped.
fn is_prefix(found: &[u64]) -> bool {
    found.iter().copied().eq(0..found.len() as u64)
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Append(u64),
    Flush,
    Persist,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1u64..4).prop_map(Step::Append),
        2 => Just(Step::Flush),
        1 => Just(Step::Persist),
        2 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..12)
}

/// What was promised so far.
#[derive(Debug, Clone, Copy, Default)]
struct Promised {
    /// Items given to a writer.
    given: u64,
    /// Items whose append returned without an error.
    acknowledged: u64,
    /// Items behind which a flush returned.
    durable: u64,
}

/// Opens what a crash left and goes on writing there.
fn check_image(image: &SimDisk, promised: Promised, mode: HistoryMode) {
    let found = numbers(image, mode);
    assert!(is_prefix(&found), "{found:?} is no prefix");
    assert!(found.len() as u64 >= promised.durable, "{found:?} lost what was durable: {promised:?}");
    assert!(found.len() as u64 <= promised.given, "{found:?} has what nobody gave");
    let kept = found.len() as u64;
    // A file whose header was not durable yet is no thread: its writer begins again with it.
    let Some(mut writer) = resume(image, Durability::OnFlush) else {
        assert_eq!(promised.durable, 0, "a durable thread can be resumed");
        return;
    };
    writer.append(&[item(kept), item(kept + 1)], UtcMillis(9)).unwrap();
    writer.flush(UtcMillis(9)).unwrap();
    assert_eq!(numbers(image, mode), (0..kept + 2).collect::<Vec<_>>(), "writing goes on behind it");
}

fn run(all: &[Step], mode: HistoryMode, durability: Durability, failure: Option<(usize, Failure)>) {
    let disk = SimDisk::default();
    if let Some((at, failure)) = failure {
        disk.fail_call(at, failure);
    }
    let mut writer = create(&disk, mode, durability);
    let mut promised = Promised::default();
    let mut now = 0;
    for step in all {
        now += 1;
        match step {
            Step::Append(n) => {
                let items: Vec<NewItem> = (promised.given..promised.given + n).map(item).collect();
                let result = writer.append(&items, UtcMillis(now));
                promised.given += n;
                if result.is_ok() {
                    promised.acknowledged = promised.given;
                    if durability == Durability::EachAppend {
                        promised.durable = promised.given;
                    }
                }
            }
            Step::Flush | Step::Persist => {
                let result = match step {
                    Step::Flush => writer.flush(UtcMillis(now)),
                    _ => writer.persist(UtcMillis(now)),
                };
                if result.is_ok() {
                    promised.acknowledged = promised.given;
                    promised.durable = promised.given;
                }
            }
            Step::Reopen => {
                // What a writer still holds goes with it; only what is in the file was kept.
                if let Some(again) = resume(&disk, durability) {
                    let there = numbers(&disk, mode).len() as u64;
                    assert!(there >= promised.acknowledged, "acknowledged is kept over the death of a process");
                    promised.given = there;
                    promised.acknowledged = promised.acknowledged.min(there);
                    writer = again;
                }
            }
        }
        let visible = numbers(&disk, mode);
        assert!(is_prefix(&visible), "{visible:?}");
        assert!(visible.len() as u64 >= promised.acknowledged, "{visible:?} {promised:?}");
        for crash in Crash::ALL {
            check_image(&disk.crashed(crash), promised, mode);
        }
    }
}

proptest! {
    #[test]
    fn any_crash_keeps_what_was_promised(all in steps(), paginated: bool, each: bool) {
        let mode = if paginated { HistoryMode::Paginated } else { HistoryMode::Legacy };
        run(&all, mode, if each { Durability::EachAppend } else { Durability::OnFlush }, None);
    }

    #[test]
    fn any_failing_call_and_then_any_crash(all in steps(), paginated: bool, at in 0usize..40, how in 0usize..3) {
        let mode = if paginated { HistoryMode::Paginated } else { HistoryMode::Legacy };
        let failure = [Failure::Clean, Failure::Torn, Failure::Dropped][how];
        run(&all, mode, Durability::OnFlush, Some((at, failure)));
    }
}

/// Every call of one fixed sequence fails once.
#[test]
fn the_nth_call_fails_for_all_n() {
    let all = [Step::Append(2), Step::Flush, Step::Append(1), Step::Reopen, Step::Append(3), Step::Persist];
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        for failure in [Failure::Clean, Failure::Torn, Failure::Dropped] {
            for durability in [Durability::OnFlush, Durability::EachAppend] {
                for at in 0..40 {
                    run(&all, mode, durability, Some((at, failure)));
                }
            }
        }
    }
}

fn put(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let mut file = disk.open(path, OpenMode::New).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(path.parent().unwrap()).unwrap();
}

/// Writing out a compressed rollout: at every crash point and after every failure one form has everything.
#[test]
fn a_compressed_rollout_is_never_lost_while_it_is_written_out() {
    let disk = SimDisk::default();
    let mut writer = create(&disk, HistoryMode::Legacy, Durability::OnFlush);
    writer.append(&(0..50).map(item).collect::<Vec<_>>(), UtcMillis(1)).unwrap();
    let plain = disk.contents(&path()).unwrap();
    let packed_bytes = zstd::encode_all(&plain[..], 3).unwrap();
    let packed = path().with_extension("jsonl.zst");
    let whole = |disk: &SimDisk| {
        let from_plain = disk.contents(&path()).is_some_and(|b| b == plain);
        let from_packed = disk.contents(&packed).is_some_and(|b| b == packed_bytes);
        from_plain || from_packed
    };
    for failure in [None, Some(Failure::Clean), Some(Failure::Torn), Some(Failure::Dropped)] {
        for at in 0..16 {
            let disk = SimDisk::default();
            put(&disk, &packed, &packed_bytes);
            if let Some(failure) = failure {
                disk.fail_call(at, failure);
            }
            let result = unpack(&disk, &packed);
            for crash in Crash::ALL {
                let image = disk.crashed(crash);
                assert!(whole(&image), "{failure:?} at {at}: {crash:?} left {:?}", image.names());
                // Whoever comes next finishes it.
                unpack(&image, &packed)
                    .or_else(|e| if image.contents(&path()).is_some() { Ok(path()) } else { Err(e) })
                    .unwrap();
                assert_eq!(image.contents(&path()).as_deref(), Some(&plain[..]));
            }
            if result.is_ok() {
                assert_eq!(disk.names(), [path()], "nothing is left behind");
            }
        }
    }
}

/// Names: what was reported as set survives any crash, and a torn line harms no other.
#[test]
fn a_name_that_was_set_is_kept() {
    let id = ThreadId::parse(ID).unwrap();
    let names = |disk: &SimDisk| -> Vec<String> {
        let bytes = disk.contents(Path::new("/home/session_index.jsonl")).unwrap_or_default();
        let lines = bytes.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice::<serde_json::Value>(l).ok());
        lines.filter_map(|v| Some(v["thread_name"].as_str()?.to_owned())).collect()
    };
    for failure in [Failure::Clean, Failure::Torn, Failure::Dropped] {
        for at in 0..20 {
            let disk = SimDisk::default();
            disk.fail_call(at, failure);
            let mut set = Vec::new();
            for name in ["one", "two", "three"] {
                if name_index::append(&disk, Path::new(HOME), id, name, UtcMillis(1)).is_ok() {
                    set.push(name.to_owned());
                }
                for crash in Crash::ALL {
                    let found = names(&disk.crashed(crash));
                    assert!(
                        set.iter().all(|n| found.contains(n)),
                        "{failure:?} at {at}, {crash:?}: {found:?} of {set:?}"
                    );
                    assert!(found.last() >= set.last() || !set.is_empty() || found.is_empty() || found.len() <= 3);
                }
            }
            assert!(set.len() >= 2, "one failure costs at most one name: {set:?}");
        }
    }
}
