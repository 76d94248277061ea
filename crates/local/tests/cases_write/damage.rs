//! B30, B31, B33, B34, B35: a damaged rollout is continued; the damage stays alone on its line.

use std::fs;

use threadkeep_record::HistoryMode;
use threadkeep_store::{Archived, ThreadStore as _, WithHistory};

use crate::home::{Home, MODES, header, id, message, one_more, resume_params, rollout, said, time};

/// Lines that are no whole record, without a line end, and how many records can still be had from each.
fn damages(mode: HistoryMode) -> Vec<(&'static str, Vec<u8>, usize)> {
    let whole = said(mode, 4, "in the damaged line");
    let whole = &whole[..whole.len() - 1];
    vec![
        ("a cut record", whole[..whole.len() - 20].to_vec(), 0),
        ("the beginning of one", b"{\"a\":".to_vec(), 0),
        ("one brace", b"{".to_vec(), 0),
        ("the end of one", b"\"x\"}}".to_vec(), 0),
        ("no JSON", b"Segmentation fault (core dumped)".to_vec(), 0),
        ("NUL bytes", vec![0; 500], 0),
        ("many NUL bytes", vec![0; 140 << 10], 0),
        ("a record and NUL bytes", [whole, &[0; 9_000][..]].concat(), 1),
        ("no UTF-8", b"\xff\xfe\xfd{".to_vec(), 0),
        ("a record with a byte that is no UTF-8", with_bad_byte(whole), 1),
        ("a cut character", [&whole[..20], b"\xe2\x82"].concat(), 0),
        ("a long cut record", [&whole[..whole.len() - 20], &vec![b'y'; 3 << 20][..]].concat(), 0),
        ("deep nesting", vec![b'['; 100_000], 0),
    ]
}

/// The record with one byte of its text spoilt.
fn with_bad_byte(record: &[u8]) -> Vec<u8> {
    let at = record.windows(5).position(|w| w == b" line").expect("its text");
    [&record[..at], b"\xff", &record[at + 1..]].concat()
}

/// Behind the header, in the middle, as the last line with and without its line end: appended behind it, twice, each
/// time one new line, readable; every other byte stays; nothing that was readable is missing.
#[tokio::test]
async fn b30_b31_b33_b34_damage_anywhere_costs_what_is_damaged() {
    for mode in MODES {
        for (what, damage, had) in damages(mode) {
            for (place, at, ended) in
                [("behind the header", 1, true), ("the middle", 4, true), ("the end", 6, true), ("torn", 6, false)]
            {
                let context = format!("{mode:?}, {what}, {place}");
                let home = Home::new();
                let mut lines = rollout(mode, id(1), 5);
                let line = if ended { [&damage[..], b"\n"].concat() } else { damage.clone() };
                lines.insert(at, line);
                let was = lines.concat();
                let path = home.put(id(1), &was);
                let (records, damaged) = home.history(id(1)).await;
                assert_eq!((records.len(), damaged), (6 + had, 1), "{context}");

                let store = home.store();
                let resumed = store.resume_thread(resume_params(id(1), None)).await.expect("it is resumed");
                assert_eq!((resumed.torn_tail, resumed.history_mode), (!ended, Some(mode)), "{context}");
                store.discard_thread(id(1)).await.expect("closed");
                assert!(fs::read(&path).expect("it") == was, "{context}: a resume alone changes nothing");

                let live = home.resume(id(1)).await.expect("it is resumed");
                live.append(&[message(mode, "fresh words")]).await.expect("appended");
                live.shutdown().await.expect("closed");
                let record = one_more(&path, &was, "fresh words");
                // The highest ordinal that any readable record has, and one.
                let ordinal = if mode == HistoryMode::Paginated { Some(6) } else { None };
                assert_eq!(record["ordinal"].as_u64(), ordinal, "{context}");
                assert_eq!(record["timestamp"], "2026-03-05T10:00:00.000Z", "{context}");
                let (after, still) = home.history(id(1)).await;
                assert_eq!((after.len(), still), (records.len() + 1, 1), "{context}");
                assert!(after.starts_with(&records), "{context}");

                let was = fs::read(&path).expect("it");
                let live = home.resume(id(1)).await.expect("it is resumed again");
                live.append(&[message(mode, "and more")]).await.expect("appended");
                live.shutdown().await.expect("closed");
                let record = one_more(&path, &was, "and more");
                assert_eq!(record["ordinal"].as_u64(), ordinal.map(|n| n + 1), "{context}");
                let thread = home.store().read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("it");
                assert_eq!(thread.updated_at, time("2026-03-05T10:00:00.001Z"), "{context}");
                // What can still be had from a damaged line counts like any other.
                let first = if had == 1 && at == 1 { "in the damaged" } else { "said 1" };
                assert!(thread.first_user_message.is_some_and(|m| m.starts_with(first)), "{context}");
            }
        }
    }
}

/// Without a header nothing says how the history is kept: nothing is written, the thread is still listed and read, and
/// nobody is kept out afterwards.
#[tokio::test]
async fn a_header_that_cannot_be_read_is_not_continued() {
    for mode in MODES {
        for (what, damage, _) in damages(mode) {
            let home = Home::new();
            let mut lines = rollout(mode, id(1), 3);
            lines[0] = [&damage[..], b"\n"].concat();
            home.put(id(1), &lines.concat());
            let were = home.files();
            for _ in 0..2 {
                let error = home.resume(id(1)).await.expect_err("it is refused").to_string();
                assert!(error.contains("rollout"), "{what}: {error}");
                assert!(were == home.files(), "{what}: changed");
            }
            let (records, damaged) = home.history(id(1)).await;
            assert!(records.len() >= 3 && damaged == 1, "{what}: {} {damaged}", records.len());
        }
    }
}

/// A rollout of nothing but its header, or of nothing at all, which is a thread whose writer died.
#[tokio::test]
async fn b45_headers_alone_and_empty_files() {
    for mode in MODES {
        let home = Home::new();
        let was = header(mode, id(1));
        let path = home.put(id(1), &was);
        let live = home.resume(id(1)).await.expect("it is resumed");
        live.append(&[message(mode, "first words")]).await.expect("appended");
        live.shutdown().await.expect("closed");
        let record = one_more(&path, &was, "first words");
        assert_eq!(record["ordinal"].as_u64(), (mode == HistoryMode::Paginated).then_some(1));
    }
    let home = Home::new();
    home.put(id(1), b"");
    let were = home.files();
    let error = home.resume(id(1)).await.expect_err("there is nothing to continue").to_string();
    assert!(error.contains("empty session file") || error.contains("no rollout found"), "{error}");
    assert!(were == home.files());
}

/// Texts with other line ends than LF stay one record and come back as they were; so do records of a file with CRLF.
#[tokio::test]
async fn b35_only_a_line_feed_ends_a_record() {
    let texts = [
        "a\u{2028}b\u{2029}c\u{85}d",
        "one\ntwo\r\nthree\rfour",
        "\u{0}\u{1}\u{b}\u{c}\u{1b}\u{7f}\u{feff}",
        "\u{10ffff}\u{d7ff}\u{e000}👩‍👩‍👧",
        "\\u2028 \\n \" \\",
    ];
    for mode in MODES {
        for ends in ["\n", "\r\n"] {
            let home = Home::new();
            let was = String::from_utf8(rollout(mode, id(1), 2).concat()).expect("UTF-8").replace('\n', ends);
            let path = home.put(id(1), was.as_bytes());
            let live = home.resume(id(1)).await.expect("it is resumed");
            let mut was = was.into_bytes();
            for text in texts {
                live.append(&[message(mode, text)]).await.expect("appended");
                one_more(&path, &was, text);
                was = fs::read(&path).expect("it");
            }
            live.shutdown().await.expect("closed");
            let raw = String::from_utf8(was).expect("UTF-8");
            assert!(raw.contains("a\u{2028}b\u{2029}c\u{85}d"), "not escaped");
            let (records, damaged) = home.history(id(1)).await;
            assert_eq!((records.len(), damaged), (3 + texts.len(), 0), "{mode:?} {ends:?}");
        }
    }
}

/// The payload of another program with line ends between its tokens is made one line.
#[tokio::test]
async fn b35_a_payload_on_several_lines_becomes_one() {
    let home = Home::new();
    let store = home.store();
    let live = home.create(&store, id(1), HistoryMode::Legacy).await;
    let payload = "{\n  \"type\": \"user_message\",\r\n  \"message\": \"on several lines\"\n}";
    let item = threadkeep_record::NewItem::from_json("event_msg", payload).expect("an item");
    live.append(&[item]).await.expect("appended");
    live.shutdown().await.expect("closed");
    let (records, damaged) = home.history(id(1)).await;
    assert_eq!((records.len(), damaged), (2, 0));
    let thread = home.store().read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("it");
    assert_eq!(thread.first_user_message.as_deref(), Some("on several lines"));
}
