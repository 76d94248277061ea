//! Nothing is lost between pages, in large homes, in very long records, or for the way a record is spelt.

use std::path::Path;

use serde_json::Value;

use crate::{
    home::{Home, damage},
    log::{Log, t},
};

/// All hits of a search, page by page.
fn walk_hits(home: &Home, term: &str, limit: &str) -> Vec<Value> {
    let mut hits = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..500 {
        let mut args = vec![term, "--limit", limit];
        if let Some(cursor) = &cursor {
            args.extend(["--cursor", cursor.as_str()]);
        }
        let out = home.run(&[&["search"][..], &args].concat());
        hits.extend(out.json["hits"].as_array().expect("hits").iter().cloned());
        cursor = out.json["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            assert_eq!(out.json["complete"], true, "{out:?}");
            return hits;
        }
    }
    panic!("the walk does not end");
}

/// A page was filled from hits that were dropped afterwards, and the rest of the thread was never looked at.
#[test]
fn pages_of_any_size_give_the_hits_of_one_page() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes");
    for version in ["0.44.0", "0.98.0", "0.171.0"] {
        let home = Home::copy_of(&fixtures.join(version));
        for term in ["turn", "mock answer", "echo"] {
            let whole = walk_hits(&home, term, "100000");
            assert!(!whole.is_empty(), "{version} {term}");
            for limit in ["1", "3", "7"] {
                assert_eq!(walk_hits(&home, term, limit), whole, "{version} {term} in pages of {limit}");
            }
        }
    }
}

#[test]
fn both_accounts_of_many_messages_fill_no_page_twice() {
    let home = Home::new();
    let mut log = Log::new(&t(1), "2026-03-01T10:00:00Z").meta();
    for n in 0..59 {
        log = log.item("user", &format!("zebra {n}")).user(&format!("zebra {n}")).agent("ok");
    }
    home.put(&log);
    assert_eq!(home.search(&["zebra", "--limit", "100"]).hits().len(), 59);
    let first = home.search(&["zebra"]);
    assert_eq!(first.hits().len(), 20);
    assert!(first.json["next_cursor"].is_string(), "{first:?}");
    assert_eq!(walk_hits(&home, "zebra", "20").len(), 59);
}

/// A restored backup whose files all have one time, older than their records, lost all but the first page.
#[test]
fn large_homes_with_equal_or_old_times_are_walked_whole() {
    for times in [1u32, 7] {
        let home = Home::new();
        for n in 1..=620 {
            let log = Log::healthy(&t(n), "2026-03-01T10:00:00Z");
            let mtime = jiff::Timestamp::from_second(i64::from(n % times)).expect("a time");
            home.put_bytes(&log.active_path(), &log.bytes(), mtime);
        }
        let mut walked = home.walk(&["--limit", "50"]);
        let pages = walked.len();
        walked.sort();
        walked.dedup();
        assert_eq!((pages, walked.len()), (620, 620), "{times} different times");
    }
}

/// A first message with large pictures made the thread look empty, and could not be read.
#[test]
fn a_message_over_the_limit_is_listed_shown_and_found() {
    let long = format!("look at this {}zebrafish at the end", "A B ".repeat(2_300_000));
    for spelling in 0..3 {
        let home = Home::new();
        let log = Log::new(&t(1), "2026-03-01T10:00:00Z").meta();
        let log = match spelling {
            0 => log.user(&long).agent("seen").turn("second question", "second answer"),
            1 => log.item("user", &long).item("assistant", "seen"),
            _ => {
                // Another order of keys, and spaces, as other tools write them.
                let payload = format!("{{ \"type\": \"user_message\", \"message\": {long:?} }}");
                log.raw(format!("{{ \"type\": \"event_msg\", \"timestamp\": \"2026-03-01T10:00:01.000Z\", \"payload\": {payload} }}\n").as_bytes())
            }
        };
        home.put(&log);
        let out = home.list(&[]);
        let thread = out.thread(&t(1));
        assert!(thread["preview"].as_str().is_some_and(|p| p.starts_with("look at this A B")), "{spelling}");
        assert!(home.show(&[&t(1)]).said().contains("look at this A B"), "{spelling}");
        let found = home.search(&["zebrafish at"]);
        assert_eq!(found.hits().len(), 1, "{spelling}");
        assert_eq!(found.hits()[0]["speaker"], "user");
        assert_eq!(found.hits()[0]["turn_number"], 1);
        if spelling == 0 {
            assert_eq!(home.list(&["--count"]).thread(&t(1))["turns"], 2);
        }
    }
}

/// Releases before July 2026 appended onto a torn last line: the healthy record behind it was lost with it.
#[test]
fn records_glued_onto_one_line_are_all_read() {
    let log = Log::new(&t(1), "2026-03-01T10:00:00Z").meta().turn("first", "answer one").turn("zebra", "answer two");
    let lines = log.lines();
    let at = |text: &str| lines.iter().position(|l| String::from_utf8_lossy(l).contains(text)).expect("a line");
    let (first, zebra) = (&lines[at("first")], &lines[at("zebra")]);
    let whole = &first[..first.len() - usize::from(first.ends_with(b"\n"))];
    for glued in [[whole, zebra].concat(), [&whole[..whole.len() / 2], zebra].concat()] {
        let home = Home::new();
        home.put_bytes(&log.active_path(), &[&lines[0][..], &glued].concat(), log.last());
        assert_eq!(home.search(&["zebra"]).hits().len(), 1);
        assert!(home.show(&[&t(1)]).said().contains("zebra"));
        assert_eq!(damage(home.list(&[]).thread(&t(1))), 1);
    }
}

/// The event of a message is torn or was never written; the model's account has it.
#[test]
fn a_message_of_one_account_alone_is_not_lost() {
    let start = Log::new(&t(1), "2026-03-01T10:00:00Z").meta().item("user", "one").user("one").agent("fine");
    let torn = start
        .clone()
        .item("user", "zebra question")
        .raw(b"{\"timestamp\":\"2026-03-01T10:00:09.000Z\",\"type\":\"event_msg\",\"payl\n")
        .agent("zebra answer");
    let never = start.item("user", "zebra question").item("assistant", "zebra answer");
    for log in [torn, never] {
        let home = Home::new();
        home.put(&log);
        assert_eq!(home.list(&[]).thread(&t(1))["turns"], 2);
        let said = home.show(&[&t(1)]).said();
        assert!(said.contains("zebra question") && said.contains("zebra answer"), "{said}");
        let found = home.search(&["zebra"]);
        assert_eq!(found.speakers(), ["user", "agent"]);
        assert_eq!(found.hits()[0]["turn_number"], 2);
    }
}

/// A cursor of one home was taken in another and answered from there.
#[test]
fn a_cursor_is_of_use_only_in_its_home() {
    let (one, other) = (Home::new(), Home::new());
    for home in [&one, &other] {
        for n in 1..=3 {
            home.put(&Log::healthy(&t(n), "2026-03-01T10:00:00Z"));
        }
    }
    let cursor = one.list(&["--limit", "1"]).json["next_cursor"].as_str().expect("more").to_owned();
    assert_eq!(one.list(&["--cursor", &cursor]).ids().len(), 2);
    assert_eq!(other.run(&["list", "--cursor", &cursor]).code, 2);
}

#[test]
fn sizes_of_pages_are_checked() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), "2026-03-01T10:00:00Z"));
    for limit in ["0", "-1", "18446744073709551615", "x"] {
        assert_eq!(home.run(&["search", "hello", "--limit", limit]).code, 2, "{limit}");
    }
}

/// A name with a slash, or one that ends like a file, was taken for a path.
#[test]
fn names_that_look_like_paths_are_names() {
    let home = Home::new();
    for (n, name) in [(1, "feat/login"), (2, "fix package.json")] {
        home.put(&Log::healthy(&t(n), "2026-03-01T10:00:00Z"));
        home.idx(&t(n), name, "2026-03-01T10:00:00Z");
        assert_eq!(home.show(&[name]).json["thread"]["id"], t(n));
    }
}
