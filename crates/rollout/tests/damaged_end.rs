//! Continuing a rollout whose end is damaged: an ordinal that readers see is never given out again.

use std::path::Path;
use std::sync::Arc;

use threadkeep_rollout::appender::Durability;
use threadkeep_rollout::sim::SimDisk;
use threadkeep_rollout::writer::RolloutWriter;

const PATH: &str = "/home/sessions/2026/11/30/rollout-2026-11-30T12-00-00-01990000-0000-7000-8000-000000000001.jsonl";
const HEADER: &str = r#"{"timestamp":"2026-11-30T12:00:00.000Z","ordinal":0,"type":"session_meta","payload":{"id":"01990000-0000-7000-8000-000000000001","history_mode":"paginated"}}"#;

fn record(ordinal: u64) -> String {
    format!(
        r#"{{"timestamp":"2026-11-30T12:00:01.000Z","ordinal":{ordinal},"type":"event_msg","payload":{{"type":"x"}}}}"#
    )
}

#[test]
fn what_is_recovered_from_a_damaged_last_line_counts() {
    let (one, two) = (record(1), record(2));
    let cases = [
        // Where a write was lost, and the one behind it was not.
        (format!("{HEADER}\n{one}\n{}{two}\n", "\0".repeat(300)), 3),
        (format!("{HEADER}\n{}{one}", "\0".repeat(300)), 2),
        (format!("{HEADER}\n{one}{}", "\0".repeat(300)), 2),
        // Two records on one line.
        (format!("{HEADER}\n{one}{two}\n"), 3),
        // Behind the beginning of a torn one.
        (format!("{HEADER}\n{}{two}\n", &one[..60]), 3),
        // A record that is cut off is not seen, and its ordinal is free.
        (format!("{HEADER}\n{one}\n{}", &two[..60]), 2),
        (format!("{HEADER}\n{one}\n{}\n", "\0".repeat(300)), 2),
    ];
    for (bytes, next) in cases {
        let disk = SimDisk::default();
        disk.put(Path::new(PATH), Some(bytes.as_bytes()));
        let writer =
            RolloutWriter::resume(Arc::new(disk), Path::new(PATH), Path::new("/home"), Durability::OnFlush).unwrap();
        assert_eq!(writer.next_ordinal(), next, "{bytes:?}");
    }
}
