//! B39, B41, B42: where ordinals and records go on, whatever stands before.

use std::fs;

use threadkeep_record::{HistoryMode, NewItem};
use threadkeep_store::{Archived, ThreadStore as _, WithHistory};

use crate::home::{Home, header, header_with, id, message, one_more, record, rollout, said};

const PAGED: HistoryMode = HistoryMode::Paginated;

/// Appends one message and gives the ordinal of its record.
async fn appended(what: &str, lines: &[Vec<u8>]) -> u64 {
    let home = Home::new();
    let was = lines.concat();
    let path = home.put(id(1), &was);
    let live = home.resume(id(1)).await.unwrap_or_else(|e| panic!("{what}: {e}"));
    live.append(&[message(PAGED, "next")]).await.expect("appended");
    live.shutdown().await.expect("closed");
    let ordinal = one_more(&path, &was, "next")["ordinal"].as_u64().expect("an ordinal");
    let (records, _) = home.history(id(1)).await;
    assert!(records.last().is_some_and(|r| r.windows(6).any(|w| w == b"\"next\"")), "{what}");
    // A further writer goes on from there.
    let was = fs::read(&path).expect("it");
    let live = home.resume(id(1)).await.expect("it is resumed");
    live.append(&[message(PAGED, "a"), message(PAGED, "b")]).await.expect("appended");
    live.shutdown().await.expect("closed");
    let added = fs::read(&path).expect("it")[was.len()..].to_vec();
    let ordinals: Vec<u64> = added
        .split(|b| *b == b'\n')
        .filter(|l| !l.is_empty())
        .map(|l| serde_json::from_slice::<serde_json::Value>(l).expect("a record")["ordinal"].as_u64().expect("one"))
        .collect();
    assert_eq!(ordinals, [ordinal + 1, ordinal + 2], "{what}");
    ordinal
}

/// A header and records with these ordinals.
fn with(ordinals: &[u64]) -> Vec<Vec<u8>> {
    let payload = "{\"type\":\"token_count\",\"info\":null,\"rate_limits\":null}";
    let records = ordinals.iter().map(|n| record(PAGED, 1, *n, "event_msg", payload));
    std::iter::once(header(PAGED, id(1))).chain(records).collect()
}

#[tokio::test]
async fn b39_repeated_and_missing_ordinals() {
    for (ordinals, next) in [
        (&[1, 2, 3][..], 4),
        (&[1, 2, 2, 3], 4),
        (&[1, 2, 2], 3),
        (&[1, 2, 3, 2], 4),
        (&[1, 2, 7, 3, 4, 5], 8),
        (&[1, 2, 0, 0, 0], 3),
        (&[5, 9, 40], 41),
        (&[], 1),
        (&[0], 1),
        (&[u64::MAX - 10], u64::MAX - 9),
    ] {
        assert_eq!(appended(&format!("{ordinals:?}"), &with(ordinals)).await, next, "{ordinals:?}");
    }
    // Many records after the one that was written twice.
    let twice: Vec<u64> = (1..=30).chain(11..=30).collect();
    assert_eq!(appended("a range twice", &with(&twice)).await, 31);
}

#[tokio::test]
async fn b39_ordinals_that_end_write_nothing() {
    for (what, mut lines, text) in [
        ("the largest", with(&[1, u64::MAX]), "ordinal overflow"),
        ("none on any record", vec![header(HistoryMode::Legacy, id(1))], "missing an ordinal"),
    ] {
        if what == "none on any record" {
            let paged = String::from_utf8(lines[0].clone()).expect("UTF-8");
            lines[0] = paged.replace("\"source\":\"cli\"", "\"source\":\"cli\",\"history_mode\":\"paginated\"").into();
        }
        let home = Home::new();
        home.put(id(1), &lines.concat());
        let were = home.files();
        let error = home.resume(id(1)).await.expect_err(what).to_string();
        assert!(error.contains(text), "{what}: {error}");
        assert!(were == home.files(), "{what}");
    }
}

/// A record counts whether or not anything of it is understood.
#[tokio::test]
async fn b41_an_ordinal_counts_whatever_its_record_says() {
    let usage = "{\"type\":\"token_count\",\"input_tokens\":1,\"rate_limits\":{\"primary\":{\"used_percent\":1.5},\
                 \"credits\":{\"has_credits\":true,\"balance\":\"0\"}},\"credits\":{\"x\":[1,{\"y\":null}]},\"new\":1e400}";
    let long =
        format!("{{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"{}\"}}", "y".repeat(5 << 20));
    let plain = |kind: &str, payload: &str| record(PAGED, 1, 9, kind, payload);
    let text = |line: &str| format!("{line}\n").into_bytes();
    for (what, line) in [
        ("flattened token_count", plain("event_msg", usage)),
        ("an unknown event", plain("event_msg", "{\"type\":\"event_of_tomorrow\",\"turn_id\":5}")),
        ("an unknown kind", plain("kind_of_tomorrow", "{\"ordinal\":77,\"type\":\"x\"}")),
        ("a known kind in another shape", plain("response_item", "[1,2,3]")),
        ("no object", plain("event_msg", "null")),
        ("a long record", plain("response_item", &long)),
        (
            "other key order",
            text(
                "{\"payload\":{\"type\":\"x\",\"ordinal\":50},\"type\":\"event_msg\",\"ordinal\":9,\"timestamp\":\"2026-03-01T10:00:01Z\"}",
            ),
        ),
        (
            "spaces",
            text(
                " { \"timestamp\" : \"2026-03-01T10:00:01Z\" , \"ordinal\" : 9 , \"type\" : \"event_msg\" , \"payload\" : { } } ",
            ),
        ),
        (
            "further fields",
            text(
                "{\"timestamp\":\"2026-03-01T10:00:01Z\",\"metadata\":{\"ordinal\":80},\"ordinal\":9,\"type\":\"event_msg\",\"payload\":{\"type\":\"x\"},\"z\":1}",
            ),
        ),
        ("no time", text("{\"ordinal\":9,\"type\":\"event_msg\",\"payload\":{\"type\":\"x\"}}")),
        (
            "escaped key",
            text(
                "{\"timestamp\":\"2026-03-01T10:00:01Z\",\"\\u006frdinal\":9,\"type\":\"event_msg\",\"payload\":{\"type\":\"x\"}}",
            ),
        ),
        (
            "NUL bytes behind it",
            [&plain("event_msg", usage)[..plain("event_msg", usage).len() - 1], &[0; 900], b"\n"].concat(),
        ),
    ] {
        let mut lines = with(&[1, 2, 3]);
        lines.push(line);
        assert_eq!(appended(what, &lines).await, 10, "{what}");
    }
}

/// Kinds that are not known are kept byte for byte when they are appended, too.
#[tokio::test]
async fn b41_what_is_not_understood_is_kept_as_it_is_given() {
    let home = Home::new();
    let path = home.put(id(1), &rollout(HistoryMode::Legacy, id(1), 1).concat());
    let live = home.resume(id(1)).await.expect("it is resumed");
    let payload = "{\"type\" : \"message\",  \"role\":\"user\", \"content\":[], \"n\":1.50e+01,\"u\":\"\\u00e9\\/\"}";
    let item = NewItem::from_json("response_item", payload).expect("an item");
    live.append(&[item]).await.expect("appended");
    live.shutdown().await.expect("closed");
    let bytes = fs::read(path).expect("it");
    assert!(bytes.windows(payload.len()).any(|w| w == payload.as_bytes()), "{}", String::from_utf8_lossy(&bytes));
}

/// Headers of 2025 are continued; a file that begins with something else is not, and neither changes what is there.
#[tokio::test]
async fn b42_older_and_missing_headers() {
    let legacy = HistoryMode::Legacy;
    let bare = format!("{{\"id\":\"{}\",\"timestamp\":\"2025-08-01T10:00:00Z\",\"instructions\":null}}\n", id(1));
    let state = b"{\"record_type\":\"state\"}\n".to_vec();
    let old =
        b"{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"old\"}]}\n".to_vec();

    let home = Home::new();
    let was = [bare.clone().into_bytes(), old.clone(), state.clone()].concat();
    let path = home.put(id(1), &was);
    let live = home.resume(id(1)).await.expect("it is resumed");
    live.append(&[message(legacy, "a year later")]).await.expect("appended");
    live.shutdown().await.expect("closed");
    one_more(&path, &was, "a year later");
    let thread = home.store().read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("it");
    assert_eq!((thread.thread_id, thread.preview.as_str()), (id(1), "old"));

    for lines in [
        vec![said(legacy, 1, "no header"), said(legacy, 2, "none")],
        vec![state.clone(), state.clone(), header(legacy, id(1)), said(legacy, 1, "late header")],
        vec![old],
    ] {
        let home = Home::new();
        home.put(id(1), &lines.concat());
        let were = home.files();
        let error = home.resume(id(1)).await.expect_err("it is refused").to_string();
        assert!(error.contains("does not start with session metadata") || error.contains("failed to parse"), "{error}");
        assert!(were == home.files());
        home.store().read_thread(id(1), Archived::Excluded, WithHistory::No).await.expect("it is still read");
    }
    // Blank lines before the header are nothing.
    let home = Home::new();
    let was = [b"\n \n".to_vec(), header(legacy, id(1))].concat();
    let path = home.put(id(1), &was);
    let live = home.resume(id(1)).await.expect("it is resumed");
    live.append(&[message(legacy, "x")]).await.expect("appended");
    live.shutdown().await.expect("closed");
    one_more(&path, &was, "x");
}

/// A history that is kept in a way of tomorrow is not written to.
#[tokio::test]
async fn an_unknown_history_mode_is_left_alone() {
    let home = Home::new();
    home.put(id(1), &header_with(HistoryMode::Legacy, id(1), "\"history_mode\":\"holographic\","));
    let were = home.files();
    let error = home.resume(id(1)).await.expect_err("it is refused").to_string();
    assert!(error.contains("history_mode"), "{error}");
    assert!(were == home.files());
}
