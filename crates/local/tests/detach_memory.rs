//! Detaching holds a bounded part of a history, however large it and its records are. Alone in its process, whose peak
//! it reads.

#![cfg(target_os = "linux")]

use std::io::{BufWriter, Write};

use threadkeep_local::LocalStore;
use threadkeep_local::change::detach::{Subject, stage, verify};
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::home::Home;
use threadkeep_rollout::seam::RealDisk;
use threadkeep_store::TestClock;

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it");
    let line = status.lines().find(|l| l.starts_with("VmHWM")).expect("a peak");
    line.split_whitespace().nth(1).expect("a number").parse().expect("a number")
}

#[test]
fn memory_is_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = Home::new(folder.path());
    let day = folder.path().join("sessions/2026/03/01");
    std::fs::create_dir_all(&day).expect("a folder");
    let id = |n: u64| ThreadId::parse(&format!("01990000-0000-7000-8000-{n:012}")).expect("an id");
    let place = |n: u64| day.join(format!("rollout-2026-03-01T10-00-00-{}.jsonl", id(n)));
    let header = |n: u64, ordinal: u64, base: &str| {
        format!(
            r#"{{"timestamp":"2026-03-01T10:00:00.000Z","ordinal":{ordinal},"type":"session_meta","payload":{{"id":"{}","timestamp":"2026-03-01T10:00:00.000Z","cwd":"/w","originator":"o","cli_version":"0","source":"cli","model_provider":"p","history_mode":"paginated"{base}}}}}"#,
            id(n)
        )
    };
    // 60 MB in one record, 60 MB in many.
    let mut parent = BufWriter::new(std::fs::File::create(place(1)).expect("a file"));
    writeln!(parent, "{}", header(1, 0, "")).expect("written");
    let mut record = |ordinal: u64, size: usize| {
        let start = format!(
            r#"{{"timestamp":"2026-03-01T10:00:01.000Z","ordinal":{ordinal},"type":"event_msg","payload":{{"type":"m","t":""#
        );
        parent.write_all(start.as_bytes()).expect("written");
        for _ in 0..size / 1_000 {
            parent.write_all(&[b'x'; 1_000]).expect("written");
        }
        parent.write_all(b"\"}}\n").expect("written");
    };
    record(1, 60_000_000);
    for ordinal in 2..602 {
        record(ordinal, 100_000);
    }
    parent.flush().expect("written");
    let size = std::fs::metadata(place(1)).expect("it").len();
    let base =
        format!(r#","history_base":{{"thread_id":"{}","end_ordinal_exclusive":602,"end_byte_offset":{size}}}"#, id(1));
    std::fs::write(place(2), header(2, 602, &base) + "\n").expect("written");

    let open = LocalStore::new(vec![home.clone()], None).open_id(id(2), Depth::Head).expect("found");
    let subject = Subject::of(&open).expect("a thread");
    let before = peak_kib();
    let staged = stage(&RealDisk, &home, &subject, &TestClock::new(UtcMillis(0))).expect("staged");
    verify(&subject, &staged.temporary).expect("it says the same");
    assert!(staged.flattened.bytes > 119_000_000);
    let more = peak_kib().saturating_sub(before);
    assert!(more < 40 << 10, "{more} KiB");
}
