//! Pages: a total order, each thread exactly once, an explicit end, and cursors that cannot be mistaken for others.

use std::fs::OpenOptions;
use std::io::Write;

use serde_json::{Value, json};

use crate::{
    home::{Home, Out, ids},
    log::{Log, t},
};

const SORTS: [&str; 3] = ["created", "updated", "recency"];

/// Twelve threads, some of them with one and the same time in every respect.
fn twelve() -> Home {
    let home = Home::new();
    for n in 1..=12 {
        let at = format!("2026-03-{:02}T10:00:00Z", 1 + n / 4);
        home.put(&Log::new(&t(n), &at).meta().turn(&format!("hello {n}"), "ok"));
    }
    home
}

/// Equal times made pages skip or repeat threads.
#[test]
fn every_sort_and_direction_walks_each_thread_once() {
    let home = twelve();
    for sort in SORTS {
        let mut walks = Vec::new();
        for direction in [&[][..], &["--asc"]] {
            let whole = home.list(&[&["--sort", sort, "--limit", "50"], direction].concat()).ids();
            for limit in ["1", "2", "5", "12"] {
                let walked = home.walk(&[&["--sort", sort, "--limit", limit], direction].concat());
                assert_eq!(walked, whole, "{sort} {direction:?} {limit}");
            }
            let mut sorted = whole.clone();
            sorted.sort();
            assert_eq!(sorted, ids(1..=12));
            walks.push(whole);
        }
        walks[1].reverse();
        assert_eq!(walks[0], walks[1], "a total order reads the same from both ends: {sort}");
    }
}

/// Threads without the key of the sort (no turn, no last record) have their place too.
#[test]
fn threads_without_the_key_are_walked_too() {
    let home = twelve();
    home.put(&Log::new(&t(13), "2026-03-02T10:00:00Z").meta());
    home.put(&Log::new(&t(14), "2026-03-02T10:00:00Z").meta());
    home.put_archived(&Log::healthy(&t(15), "2026-03-02T10:00:00Z"));
    for sort in SORTS {
        for direction in [&[][..], &["--asc"]] {
            let mut walked = home.walk(&[&["--all", "--sort", sort, "--limit", "2"], direction].concat());
            walked.sort();
            assert_eq!(walked, ids(1..=15), "{sort} {direction:?}");
        }
    }
}

/// A filter stays in force over all pages.
#[test]
fn filters_hold_over_pages() {
    let home = twelve();
    for n in 20..27 {
        let log = Log::new(&t(n), "2026-03-02T10:00:00Z").meta_with(json!({"cwd": "/other"}));
        home.put(&log.user("elsewhere").agent("ok"));
    }
    let mut walked = home.walk(&["--cwd", "/other", "--limit", "2"]);
    walked.sort();
    assert_eq!(walked, ids(20..27));
}

fn append(home: &Home, log: &Log, more: &Log) {
    let mut file = OpenOptions::new().append(true).open(home.file(&log.active_path())).expect("the rollout");
    file.write_all(&more.bytes()).expect("an append");
}

/// Walks six threads two by two; after the first page one thread is made and `touched` goes on.
fn walk_while_it_changes(flags: &[&str], touched: u32) -> Vec<String> {
    let home = Home::new();
    let logs: Vec<Log> = (1..=6).map(|n| Log::healthy(&t(n), &format!("2026-03-0{n}T10:00:00Z"))).collect();
    logs.iter().for_each(|log| _ = home.put(log));
    let first = home.list(&[&["--limit", "2"], flags].concat());
    let mut ids = first.ids();
    let log = logs.iter().find(|log| log.thread == t(touched)).expect("one of the six");
    home.put(&Log::healthy(&t(7), "2026-03-20T10:00:00Z"));
    append(&home, log, &Log::new(&t(touched), "2026-03-21T10:00:00Z").task_started().user("more").agent("more"));
    let mut cursor = first.json["next_cursor"].as_str().expect("there is more").to_owned();
    for _ in 0..20 {
        let page = home.list(&[&["--limit", "2", "--cursor", &cursor], flags].concat());
        ids.extend(page.ids());
        match page.json["next_cursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => {
                assert_eq!(page.json["complete"], true, "an explicit end: {page:?}");
                return ids;
            }
        }
    }
    panic!("the pages do not end: {ids:?}");
}

fn six_once(walked: &[String]) {
    for n in 1..=6 {
        let times = walked.iter().filter(|id| **id == t(n)).count();
        assert_eq!(times, 1, "T{n} came {times} times: {walked:?}");
    }
    assert!(walked.iter().filter(|id| **id == t(7)).count() <= 1, "{walked:?}");
}

/// Appends and new threads between pages made the walk skip or double threads.
#[test]
fn b21_walk_while_threads_move() {
    for touched in [5, 6] {
        six_once(&walk_while_it_changes(&[], touched));
    }
    six_once(&walk_while_it_changes(&["--cwd", "/w/p"], 5));
}

/// A thread that was not yet shown moves in front of the cursor.
#[test]
fn b21_a_thread_that_is_still_to_come_moves() {
    for touched in [1, 2, 4] {
        six_once(&walk_while_it_changes(&[], touched));
        six_once(&walk_while_it_changes(&["--sort", "recency"], touched));
    }
}

/// Ascending, a thread that was shown moves to the end and would come again.
#[test]
fn b21_ascending_and_by_creation() {
    for touched in [1, 2, 5] {
        six_once(&walk_while_it_changes(&["--sort", "updated", "--asc"], touched));
        six_once(&walk_while_it_changes(&["--sort", "created"], touched));
        six_once(&walk_while_it_changes(&["--sort", "created", "--asc"], touched));
    }
}

fn refused_cursor(out: &Out) {
    assert_eq!(out.code, 2, "{out:?}");
    assert_eq!(out.error()["kind"], "usage");
}

/// Text that is no cursor of ours is wrong usage, not an empty page.
#[test]
fn garbage_cursors_are_wrong_usage() {
    let home = twelve();
    let real = home.list(&["--limit", "2"]).json["next_cursor"].as_str().expect("more").to_owned();
    let cut = &real[..real.len() / 2];
    for cursor in ["garbage", "2026-03-01T10:00:00Z", "{}", "AAAA", "é", cut] {
        refused_cursor(&home.run(&["list", "--cursor", cursor]));
        refused_cursor(&home.run(&["search", "hello", "--cursor", cursor]));
    }
    refused_cursor(&home.run(&["search", "hello", "--cursor", &real]));
    let hits = home.search(&["hello", "--limit", "2"]).json["next_cursor"].as_str().expect("more").to_owned();
    refused_cursor(&home.run(&["list", "--cursor", &hits]));
}

/// A cursor carries its order and filters: it is continued as begun, or the contradiction is refused.
#[test]
fn cursor_with_other_flags_never_mixes_two_lists() {
    let home = twelve();
    for n in 20..24 {
        let log = Log::new(&t(n), "2026-03-02T10:00:00Z").meta_with(json!({"cwd": "/other"}));
        home.put(&log.user("elsewhere").agent("ok"));
    }
    let flags = ["--cwd", "/w/p", "--sort", "created", "--asc", "--limit", "5"];
    let whole = home.walk(&flags);
    let cursor = home.list(&flags).json["next_cursor"].as_str().expect("more").to_owned();
    let other: [&[&str]; 4] = [
        &["--limit", "5", "--cursor", &cursor],
        &["--cwd", "/other", "--limit", "5", "--cursor", &cursor],
        &["--sort", "updated", "--limit", "5", "--cursor", &cursor],
        &["--cwd", "/w/p", "--sort", "created", "--limit", "5", "--cursor", &cursor],
    ];
    for args in other {
        let out = home.run(&[&["list"], args].concat());
        if out.code == 2 {
            refused_cursor(&out);
        } else {
            assert_eq!(out.ids(), whole[5..10], "continued as it was begun: {args:?}");
        }
    }
}

/// All hits of a search, page by page.
fn walk_hits(home: &Home, args: &[&str]) -> Vec<Value> {
    let mut hits = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..200 {
        let mut page: Vec<&str> = args.to_vec();
        if let Some(cursor) = &cursor {
            page.extend(["--cursor", cursor]);
        }
        let out = home.run(&[&["search"], page.as_slice()].concat());
        assert!(out.code <= 1, "{out:?}");
        hits.extend(out.hits().iter().cloned());
        cursor = out.json["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            assert_eq!(out.json["complete"], true, "{out:?}");
            return hits;
        }
    }
    panic!("the pages do not end");
}

/// Pages of a search give every hit once: several in one thread, in one turn, and over many threads.
#[test]
fn search_pages_give_every_hit_once() {
    let home = Home::new();
    for n in 1..=9 {
        let at = format!("2026-03-0{}T10:00:00Z", 1 + n / 3);
        let mut log = Log::new(&t(n), &at).meta();
        for turn in 0..n {
            log = log.turn(&format!("needle question {turn}"), &format!("answer {turn} with a needle"));
        }
        if n % 4 == 0 {
            home.put_archived(&log)
        } else {
            home.put(&log)
        };
    }
    let whole = walk_hits(&home, &["needle", "--limit", "500"]);
    assert_eq!(whole.len(), 2 * 45);
    for limit in ["1", "3", "20", "100"] {
        assert_eq!(walk_hits(&home, &["needle", "--limit", limit]), whole, "{limit}");
    }
    let mut threads: Vec<String> =
        whole.iter().map(|hit| hit["thread_id"].as_str().expect("an id").to_owned()).collect();
    threads.dedup();
    assert_eq!(threads[0], t(9), "newest thread first");
    assert_eq!(threads.len(), 9, "the hits of a thread come together");
    assert_eq!(walk_hits(&home, &["needle", "--limit", "4", "--in", "user"]).len(), 45);
    assert_eq!(walk_hits(&home, &["needle", "--limit", "4", "--thread", &t(6)]).len(), 12);
}

/// Pages of `show` give every turn once.
#[test]
fn show_pages_give_every_turn_once() {
    let home = Home::new();
    for make in [Log::new, Log::paginated] {
        let mut log = make(&t(1), "2026-03-01T10:00:00Z").meta();
        for turn in 1..=123 {
            log = log.turn(&format!("question {turn}"), "ok");
        }
        home.put(&log);
        let mut numbers = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut args = vec![t(1)];
            if let Some(cursor) = cursor {
                args.extend(["--cursor".to_owned(), cursor]);
            }
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let out = home.show(&args);
            numbers.extend(out.turns().iter().map(|turn| turn["number"].as_u64().expect("a number")));
            cursor = out.json["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
            assert_eq!(out.turns().len(), 50);
        }
        assert_eq!(numbers, (1..=123).collect::<Vec<u64>>());
    }
    assert_eq!(home.show(&[&t(1), "--limit", "7"]).turns().len(), 7);
    refused_cursor(&home.run(&["show", &t(1), "--cursor", "garbage"]));
}
