//! Times mean what they say: the last record, not the file; the file's own zone, not the reader's.

use serde_json::{Value, json};

use crate::{
    home::{Home, ids, touch},
    log::{Log, t},
};

/// The cursor held the time in the file and the order came from modification times: some threads never came.
#[test]
fn b07_order_and_cursor_use_one_key() {
    let home = Home::new();
    for n in 1..=5 {
        let path = home.put(&Log::healthy(&t(n), &format!("2026-03-0{n}T10:00:00Z")));
        touch(&path, format!("2026-04-0{}T10:00:00Z", 6 - n).parse().expect("a time"));
    }
    let newest_first: Vec<String> = (1..=5).rev().map(t).collect();
    assert_eq!(home.walk(&["--sort", "updated", "--limit", "2"]), newest_first);
    assert_eq!(home.walk(&["--limit", "1"]), newest_first);
    assert_eq!(home.walk(&["--sort", "created", "--limit", "2"]), newest_first);
    let oldest_first: Vec<String> = (1..=5).map(t).collect();
    assert_eq!(home.walk(&["--sort", "updated", "--asc", "--limit", "2"]), oldest_first);
    assert_eq!(home.list(&[]).thread(&t(1))["updated_at"], "2026-03-01T10:00:02.000Z");
}

/// All files touched by a copy or a restore at one instant: the modification time says nothing.
#[test]
fn b07_all_modification_times_equal() {
    let home = Home::new();
    for n in 1..=7 {
        let path = home.put(&Log::healthy(&t(n), &format!("2026-03-0{n}T10:00:00Z")));
        touch(&path, "2026-05-01T00:00:00Z".parse().expect("a time"));
    }
    let expected: Vec<String> = (1..=7).rev().map(t).collect();
    assert_eq!(home.walk(&["--limit", "3"]), expected);
}

/// Above 500 rollouts a first page may go by modification time; `--exact` and every further page may not.
#[test]
fn b07_exact_order_in_a_large_home() {
    let home = Home::new();
    for n in 1..=520 {
        let at = format!("2026-03-{:02}T{:02}:{:02}:00Z", 1 + n / 100, (n % 100) / 10, n % 10);
        let path = home.put(&Log::healthy(&t(n), &at));
        touch(&path, format!("2026-04-01T00:00:{:02}Z", n % 60).parse().expect("a time"));
    }
    let expected: Vec<String> = (1..=520).rev().map(t).collect();
    let exact = home.list(&["--exact", "--limit", "10"]);
    assert_eq!(exact.ids(), expected[..10]);
    assert_eq!(home.walk(&["--exact", "--limit", "200"]), expected);
    let mut quick = home.walk(&["--limit", "200"]);
    quick.sort();
    assert_eq!(quick, ids(1..=520), "each thread once, whatever the first page went by");
    assert_eq!(home.list(&[]).json["index"]["state"], "none");
}

/// A thread that was made last stood above one that was used last, under the label "updated".
#[test]
fn b09_sorted_by_what_the_column_says() {
    let home = Home::new();
    let first = Log::healthy(&t(1), "2026-03-01T10:00:00Z");
    home.put(&first.at("2026-03-09T10:00:00Z").user("again").agent("still here"));
    home.put(&Log::healthy(&t(2), "2026-03-05T10:00:00Z"));
    assert_eq!(home.list(&[]).ids(), [t(1), t(2)]);
    assert_eq!(home.list(&["--sort", "updated"]).ids(), [t(1), t(2)]);
    assert_eq!(home.list(&["--sort", "created"]).ids(), [t(2), t(1)]);
    assert_eq!(home.list(&["--sort", "recency"]).ids(), [t(1), t(2)]);
    assert_eq!(home.list(&["--sort", "created", "--asc"]).ids(), [t(1), t(2)]);
    let out = home.list(&[]);
    assert_eq!(out.thread(&t(1))["created_at"], "2026-03-01T10:00:00.000Z");
    assert_eq!(out.thread(&t(1))["updated_at"], "2026-03-09T10:00:01.000Z");
}

/// Output moves `updated_at`, only a turn that starts moves `recency_at`.
#[test]
fn b09_updated_and_recency_are_two_things() {
    let home = Home::new();
    let log = Log::new(&t(1), "2026-03-01T10:00:00Z").meta().turn("one", "two");
    home.put(&log.at("2026-03-08T10:00:00Z").tok(5));
    let other = Log::paginated(&t(2), "2026-03-01T10:00:00Z").meta().turn("one", "two");
    home.put(&other.at("2026-03-07T10:00:00Z").turn("three", "four"));
    home.put(&Log::new(&t(3), "2026-03-06T10:00:00Z").meta());
    let out = home.list(&["--all"]);
    assert_eq!(out.thread(&t(1))["recency_at"], "2026-03-01T10:00:01.000Z");
    assert_eq!(out.thread(&t(1))["updated_at"], "2026-03-08T10:00:00.000Z");
    assert_eq!(out.thread(&t(2))["recency_at"], "2026-03-07T10:00:00.000Z");
    assert_eq!(out.thread(&t(3))["recency_at"], Value::Null, "no turn, no start of one");
    assert_eq!(home.list(&["--sort", "recency"]).ids()[..2], [t(2), t(1)]);
    assert_eq!(home.list(&["--sort", "updated"]).ids()[..2], [t(1), t(2)]);
}

/// A long-lived thread in an old day's folder was not reached by a walk over the newest folders.
#[test]
fn b18_old_folder_with_a_new_last_record() {
    let home = Home::new();
    let old = Log::healthy(&t(1), "2025-01-02T10:00:00Z");
    home.put(&old.at("2026-03-10T12:00:00Z").user("today").agent("yes"));
    for n in 10..60 {
        home.put(&Log::healthy(&t(n), &format!("2026-03-09T10:{:02}:00Z", n % 60)));
    }
    let out = home.list(&["--sort", "updated", "--limit", "10"]);
    assert_eq!(out.ids()[0], t(1));
    assert_eq!(out.ids().len(), 10);
    assert_eq!(out.thread(&t(1))["created_at"], "2025-01-02T10:00:00.000Z");
}

/// The same in a home where the first page goes by modification times, and by a filter.
#[test]
fn b18_old_folder_in_a_large_home() {
    let home = Home::new();
    let old = Log::healthy(&t(1), "2025-01-02T10:00:00Z");
    home.put(&old.at("2026-03-10T12:00:00Z").user("today").agent("yes"));
    for n in 10..570 {
        home.put(&Log::healthy(&t(n), &format!("2026-03-09T{:02}:{:02}:00Z", n / 60, n % 60)));
    }
    assert_eq!(home.list(&["--limit", "10"]).ids()[0], t(1));
    assert_eq!(home.list(&["--since", "2026-03-10T00:00:00Z"]).ids(), [t(1)]);
}

/// File names are local time of the writer and records are UTC: neither is made from the other, nor read in our zone.
#[test]
fn b51_the_zone_of_the_reader_does_not_matter() {
    let home = Home::new();
    let log = Log::new(&t(1), "2026-08-19T17:10:00.123Z").meta().user("taipei").agent("ok");
    let rel = format!("sessions/2026/08/20/rollout-2026-08-20T01-10-00-{}.jsonl", t(1));
    home.put_at(&rel, &log);
    let mut seen = Vec::new();
    for zone in ["UTC", "Asia/Taipei", "America/Los_Angeles", "Europe/Paris"] {
        let out = home.spawn(&["--json", "list"], |command| {
            command.env("TZ", zone);
        });
        seen.push(serde_json::from_str::<Value>(&out.stdout).expect("one object"));
    }
    assert_eq!(seen[0]["threads"][0]["created_at"], "2026-08-19T17:10:00.123Z");
    assert_eq!(seen[0]["threads"][0]["updated_at"], "2026-08-19T17:10:02.123Z");
    assert_eq!(seen[0]["threads"][0]["files"][0]["path"], rel);
    assert!(seen.iter().all(|out| out["threads"] == seen[0]["threads"]), "{seen:?}");
}

/// The header's own time is when the thread was made, also where it was written late or in the old spelling.
#[test]
fn created_is_the_time_in_the_header() {
    let home = Home::new();
    let late = Log::new(&t(1), "2026-03-01T10:00:05Z").meta_with(json!({"timestamp": "2026-03-01T10:00:00.250Z"}));
    home.put(&late.user("late").agent("ok"));
    let old = Log::new(&t(2), "2026-03-01T10:00:05Z").meta_with(json!({"timestamp": "2026-03-01T10-00-00"}));
    home.put(&old.user("old spelling").agent("ok"));
    let rel = format!("sessions/2099/01/02/rollout-2099-01-02T03-04-05-{}.jsonl", t(3));
    home.put_at(&rel, &Log::healthy(&t(3), "2026-03-01T10:00:00Z"));
    let out = home.list(&[]);
    assert_eq!(out.thread(&t(1))["created_at"], "2026-03-01T10:00:00.250Z");
    assert!(out.thread(&t(2))["created_at"].is_string());
    assert_eq!(out.thread(&t(3))["created_at"], "2026-03-01T10:00:00.000Z");
}

/// A compression or a restore gives the file a new modification time; the thread is not newer for it.
#[test]
fn compression_does_not_move_times() {
    let home = Home::new();
    let log = Log::healthy(&t(1), "2026-03-01T10:00:00Z");
    let path = home.put_zst(&log, &zstd::encode_all(log.bytes().as_slice(), 3).expect("zstd"));
    touch(&path, "2026-06-01T00:00:00Z".parse().expect("a time"));
    home.put(&Log::healthy(&t(2), "2026-03-02T10:00:00Z"));
    let out = home.list(&[]);
    assert_eq!(out.ids(), [t(2), t(1)]);
    assert_eq!(out.thread(&t(1))["updated_at"], "2026-03-01T10:00:02.000Z");
}
