//! `fork`: the plan, what a fork holds and where it ends, and what is refused.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use crate::{
    db::{StateDb, text},
    home::{Home, Out, damage},
    log::{Log, Shape, t},
    write_run::{cells_changed, change, change_with, done, dry, dump, files, index_lines, plan, refused},
};

const AT: &str = "2026-03-01T10:00:00Z";
const LATER: &str = "2026-03-02T10:00:00Z";

/// Both ways of keeping a history.
const SHAPES: [Shape; 2] = [Shape::Legacy, Shape::Paginated];

/// Three turns.
fn three(shape: Shape, thread: &str) -> Log {
    Log::shaped(shape, thread, AT).meta().turn("q one", "a one").turn("q two", "a two").turn("q three", "a three")
}

/// The id of the thread that a fork made.
#[track_caller]
fn made(out: &Out) -> String {
    assert_eq!(out.code, 0, "{out:?}");
    out.json["results"][0]["thread_id"].as_str().expect("an id").to_owned()
}

/// The file that a plan says it makes.
#[track_caller]
fn file(out: &Out) -> PathBuf {
    PathBuf::from(out.json["plan"][0]["path"].as_str().expect("a path"))
}

/// The lines of a file, with their line ends.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|b| *b == b'\n').collect()
}

/// The header that a fork begins with, and what stands behind it.
#[track_caller]
fn split(out: &Out) -> (Value, Vec<u8>) {
    let bytes = fs::read(file(out)).expect("the fork");
    let header = lines(&bytes)[0];
    (serde_json::from_slice(header).expect("a header"), bytes[header.len()..].to_vec())
}

#[test]
fn the_plan_comes_first_and_a_dry_run_only_plans() {
    for shape in SHAPES {
        let home = Home::new();
        let log = three(shape, &t(1));
        home.put(&log);
        let out = dry(&home, &["fork", &t(1)]);
        let steps = plan(&home, &out);
        assert_eq!(steps.len(), 1);
        let (action, path) = &steps[0];
        let id = out.json["plan"][0]["thread_id"].as_str().expect("an id");
        assert_eq!(action, "create_fork");
        assert!(path.starts_with("sessions/20") && path.ends_with(&format!("-{id}.jsonl")), "{path}");
        let how = if shape == Shape::Legacy { "copies" } else { "refers to" };
        let because = out.json["plan"][0]["because"].as_str().expect("why");
        assert!(because.contains(how) && because.contains(&t(1)), "{because}");
        let out = dry(&home, &["fork", &t(1), "--name", "twin", "--through-turn", "2"]);
        let actions: Vec<String> = plan(&home, &out).into_iter().map(|(action, _)| action).collect();
        assert_eq!(actions, ["create_fork", "add_name"]);
    }
}

/// The fork is the one new file; the source and everything else of the home stays.
#[test]
fn only_the_new_rollout_is_made() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&three(shape, &t(1)));
        home.idx(&t(1), "source", AT);
        home.state().row(&t(1), &[("title", text("source")), ("name", text("source"))]).close();
        let (were, rows) = (files(&home), dump(&home.file("state_5.sqlite")));
        let out = done(&home, &["fork", &t(1)]);
        let path = plan(&home, &out)[0].1.clone();
        assert_eq!(were.made(&home), [path]);
        assert!(were.changed(&home).is_empty(), "{:?}", were.changed(&home));
        assert!(cells_changed(&rows, &home.file("state_5.sqlite")).is_empty());
        // With a name, the name index, too.
        let were = files(&home);
        let out = done(&home, &["fork", &t(1), "--name", " twin "]);
        assert_eq!(were.made(&home), [plan(&home, &out)[0].1.clone()]);
        assert_eq!(were.changed(&home), ["session_index.jsonl"]);
        assert_eq!(index_lines(&home).last().expect("a line"), &(made(&out), "twin".to_owned()));
        assert_eq!(home.show(&["twin"]).json["thread"]["id"], made(&out));
        assert_eq!(home.show(&["source"]).json["thread"]["id"], t(1));
    }
}

/// Whose the fork is: its own header first, what it took over, and what is its own.
#[test]
fn the_header_of_a_fork() {
    for shape in SHAPES {
        let home = Home::new();
        let log = Log::shaped(shape, &t(1), AT).meta_with(json!({
            "cwd": "/w/elsewhere", "source": "vscode", "thread_source": "user", "model_provider": "custom",
            "base_instructions": {"text": "be kind"}, "dynamic_tools": [{"name": "t", "inputSchema": {}}],
            "selected_capability_roots": [{"id": "r", "location": {"type": "environment", "environmentId": "local",
                "path": "/w"}}],
            "memory_mode": "disabled", "field_of_tomorrow": {"b": 1, "a": 2},
            "git": {"commit_hash": "abc", "branch": "main"},
        }));
        home.put(&log.turn("q", "a"));
        let out = done(&home, &["fork", &t(1)]);
        let (header, _) = split(&out);
        let meta = &header["payload"];
        assert_eq!(header["type"], "session_meta");
        assert_eq!((&meta["id"], &meta["forked_from_id"]), (&json!(made(&out)), &json!(t(1))));
        assert_eq!(meta["session_id"], meta["id"]);
        assert_eq!(meta["originator"], "threadkeep");
        for (key, want) in [
            ("cwd", json!("/w/elsewhere")),
            ("source", json!("vscode")),
            ("thread_source", json!("user")),
            ("model_provider", json!("custom")),
            ("base_instructions", json!({"text": "be kind"})),
            ("dynamic_tools", json!([{"name": "t", "inputSchema": {}}])),
            ("field_of_tomorrow", json!({"b": 1, "a": 2})),
        ] {
            assert_eq!(meta[key], want, "{key}");
        }
        assert_eq!(meta["selected_capability_roots"][0]["id"], "r");
        let mode = meta["history_mode"].as_str().unwrap_or("legacy");
        assert_eq!(mode, if shape == Shape::Legacy { "legacy" } else { "paginated" });
        let list = home.list(&[]);
        let row = list.thread(&made(&out));
        assert_eq!((&row["forked_from_id"], &row["archived"]), (&json!(t(1)), &json!(false)));
        assert_eq!(list.thread(&t(1))["forked_from_id"], Value::Null);
    }
}

/// A fork is a person's: that of a run or of a spawned agent is listed like any other.
#[test]
fn a_fork_of_a_program_s_thread_is_a_person_s() {
    for source in [
        json!("exec"),
        json!("mcp"),
        json!({"subagent": "review"}),
        json!({"subagent": {"thread_spawn": {"parent_thread_id": t(9), "depth": 1}}}),
        json!({"internal": "memory_consolidation"}),
    ] {
        let home = Home::new();
        home.put(&Log::new(&t(1), AT).meta_with(json!({"source": source, "parent_thread_id": t(9)})).turn("q", "a"));
        let out = done(&home, &["fork", &t(1)]);
        let list = home.list(&[]);
        assert_eq!(list.ids(), [made(&out)], "{source}");
        assert_eq!(list.thread(&made(&out))["parent_id"], Value::Null);
        assert_eq!(split(&out).0["payload"]["source"], "cli");
    }
    for source in [json!("cli"), json!("vscode"), json!({"custom": "atlas"})] {
        let home = Home::new();
        home.put(&Log::new(&t(1), AT).meta_with(json!({"source": source})).turn("q", "a"));
        assert_eq!(split(&done(&home, &["fork", &t(1)])).0["payload"]["source"], source);
    }
}

/// Behind its header a legacy fork is its source, byte for byte: unknown kinds, other spellings, damage; but no torn
/// tail, which is no record.
#[test]
fn b101_a_legacy_fork_is_its_source_byte_for_byte() {
    let odd = Log::new(&t(1), AT)
        .meta()
        .record_text("event_msg", "{\"type\": \"user_message\",  \"message\":\"h\\u00e9 \\/ 1.50e+01\", \"n\": 1.0}")
        .record_text("kind_of_tomorrow", "{\"z\":1,\"a\":[1e400,-0.0]}")
        .agent("x")
        .raw(b"  {\"type\":\"event_msg\" , \"timestamp\":\"2026-03-01T10:09:00Z\",\"payload\":{\"type\":\"agent_message\",\"message\":\"sp\"} }  \n")
        .raw(b"{\"torn\n")
        .raw(b"not json\r\n")
        .raw(&[&[0; 500][..], b"\n"].concat())
        .raw(b"\xff\xfe\xfd\n")
        .user("a\u{2028}b\u{2029}c\u{85}d")
        .out("c1", &"y".repeat(3 << 20))
        .meta_with(json!({"memory_mode": "disabled"}))
        .turn("later", "answer");
    let whole = odd.bytes();
    let crlf: Vec<u8> = String::from_utf8(Log::healthy(&t(1), AT).bytes()).expect("UTF-8").replace('\n', "\r\n").into();
    let bare = format!("{{\"id\":\"{}\",\"timestamp\":\"2026-03-01T10:00:00Z\",\"instructions\":null}}\n", t(1));
    let bare = [
        bare.as_bytes(),
        b"{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"old\"}]}\n",
    ]
    .concat();
    let no_header = Log::new(&t(1), AT).user("no header").agent("x").bytes();
    let cases: Vec<(&str, Vec<u8>, usize)> = vec![
        ("odd", whole.clone(), whole.len()),
        ("torn tail", [&whole[..], b"{\"timestamp\":\"2026-03"].concat(), whole.len()),
        ("NUL tail", [&whole[..], &[0; 140 << 10][..]].concat(), whole.len()),
        ("CRLF", crlf.clone(), crlf.len()),
        ("bare records", bare.clone(), bare.len()),
        ("no header", no_header.clone(), no_header.len()),
        ("header alone", Log::new(&t(1), AT).meta().bytes(), Log::new(&t(1), AT).meta().len()),
    ];
    for (what, bytes, kept) in cases {
        for packed in [false, true] {
            let home = Home::new();
            let log = Log::healthy(&t(1), AT);
            if packed {
                home.put_zst(&log, &zstd::encode_all(bytes.as_slice(), 3).expect("zstd"));
            } else {
                home.put_bytes(&log.active_path(), &bytes, log.last());
            }
            let were = files(&home);
            let out = done(&home, &["fork", &t(1)]);
            assert!(were.changed(&home).is_empty(), "{what}");
            assert_eq!(were.made(&home), [plan(&home, &out)[0].1.clone()], "{what}");
            let (header, copied) = split(&out);
            assert_eq!(header["payload"]["id"], made(&out), "{what}");
            assert!(copied == bytes[..kept], "{what}, packed {packed}: {} of {kept} bytes", copied.len());
        }
    }
    // A last record without a line end is a record.
    let home = Home::new();
    let log = Log::healthy(&t(1), AT);
    home.put_bytes(&log.active_path(), &log.bytes()[..log.len() - 1], log.last());
    assert_eq!(split(&done(&home, &["fork", &t(1)])).1, log.bytes());
}

/// A paginated fork holds nothing but its header, which says exactly where its source's records end for it.
#[test]
fn a_paginated_fork_refers_to_its_source() {
    for packed in [false, true] {
        for torn in [false, true] {
            let home = Home::new();
            let log = three(Shape::Paginated, &t(1));
            let bytes = if torn { [log.bytes(), b"{\"timestamp\":\"20".to_vec()].concat() } else { log.bytes() };
            if packed {
                home.put_zst(&log, &zstd::encode_all(bytes.as_slice(), 3).expect("zstd"));
            } else {
                home.put_bytes(&log.active_path(), &bytes, log.last());
            }
            let were = files(&home);
            let out = done(&home, &["fork", &t(1)]);
            assert!(were.changed(&home).is_empty());
            let (header, rest) = split(&out);
            assert!(rest.is_empty());
            let records = log.lines().len();
            let base = json!({"thread_id": t(1), "end_ordinal_exclusive": records, "end_byte_offset": log.len()});
            assert_eq!(header["payload"]["history_base"], base);
            assert_eq!(
                (&header["ordinal"], &header["payload"]["history_mode"]),
                (&json!(records), &json!("paginated"))
            );
            let said = home.show(&[&made(&out)]).said();
            assert!(said.contains("q one") && said.contains("a three"), "{said}");
        }
    }
}

/// Up to and with a turn, or up to it: by number and by id, in both modes.
#[test]
fn a_fork_ends_where_it_is_told() {
    let texts = ["one", "two", "three"];
    for shape in SHAPES {
        let home = Home::new();
        let log = three(shape, &t(1));
        home.put(&log);
        let shown = home.show(&[&t(1)]);
        for n in 1..=3 {
            let id = shown.turns()[n - 1]["id"].as_str().expect("an id").to_owned();
            for turn in [n.to_string(), id] {
                for (flag, kept) in [("--through-turn", n), ("--before-turn", n - 1)] {
                    dry(&home, &["fork", &t(1), flag, &turn]);
                    let out = done(&home, &["fork", &t(1), flag, &turn]);
                    let fork = home.show(&[&made(&out)]);
                    assert_eq!(fork.turns().len(), kept, "{shape:?} {flag} {turn} {fork:?}");
                    for (i, text) in texts.iter().enumerate() {
                        assert_eq!(fork.said().contains(&format!("q {text}")), i < kept, "{shape:?} {flag} {turn}");
                        assert_eq!(fork.said().contains(&format!("a {text}")), i < kept, "{shape:?} {flag} {turn}");
                    }
                    assert_eq!(damage(&fork.json["thread"]), 0);
                    let (header, copied) = split(&out);
                    // A turn is four records; the header is the one before.
                    let ends: usize = log.lines()[..1 + 4 * kept].iter().map(Vec::len).sum();
                    match shape {
                        Shape::Legacy => assert!(copied == log.bytes()[..ends], "{flag} {turn}"),
                        Shape::Paginated => {
                            let base = &header["payload"]["history_base"];
                            assert_eq!(base["end_byte_offset"], ends, "{flag} {turn}");
                            assert_eq!(base["end_ordinal_exclusive"], 1 + 4 * kept, "{flag} {turn}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_turn_that_is_not_there_or_has_not_ended() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&three(shape, &t(1)).task_started().user("q four"));
        for flag in ["--through-turn", "--before-turn"] {
            for turn in ["0", "5", "99", "-", "turn-99", "nonsense", ""] {
                refused(&home, &["fork", &t(1), flag, turn], 1, "not_found");
            }
        }
        for turn in ["4", "turn-4"] {
            let out = refused(&home, &["fork", &t(1), "--through-turn", turn], 2, "usage");
            assert!(out.stderr.contains("in-progress"), "{out:?}");
            let before = done(&home, &["fork", &t(1), "--before-turn", turn]);
            assert_eq!(home.show(&[&made(&before)]).turns().len(), 3);
        }
        let out = home.human(&["fork", &t(1), "--through-turn", "1", "--before-turn", "2"]);
        assert_eq!(out.code, 2, "{out:?}");
        // The whole thread: the turn that still runs is ended in the fork, and only there.
        let out = done(&home, &["fork", &t(1)]);
        let fork = home.show(&[&made(&out)]);
        assert_eq!(fork.turns().len(), 4);
        assert_eq!(fork.turns()[3]["status"], "interrupted");
        assert_eq!(home.show(&[&t(1)]).turns()[3]["status"], "in_progress");
        // And a further fork finds nothing that runs.
        let again = done(&home, &["fork", &made(&out), "--through-turn", "4"]);
        assert_eq!(home.show(&[&made(&again)]).turns().len(), 4);
    }
}

/// Turns that were taken back are no turns to end at, and stay taken back in the fork.
#[test]
fn turns_that_were_taken_back() {
    for shape in SHAPES {
        let home = Home::new();
        let log = three(shape, &t(1)).event(json!({"type": "thread_rolled_back", "num_turns": 1}));
        home.put(&log.turn("q instead", "a instead"));
        let out = done(&home, &["fork", &t(1)]);
        let said = home.show(&[&made(&out)]).said();
        assert!(said.contains("instead") && !said.contains("three"), "{said}");
        let out = done(&home, &["fork", &t(1), "--through-turn", "3"]);
        assert!(home.show(&[&made(&out)]).said().contains("instead"));
        let out = done(&home, &["fork", &t(1), "--before-turn", "3"]);
        let said = home.show(&[&made(&out)]).said();
        assert!(said.contains("two") && !said.contains("instead") && !said.contains("three"), "{said}");
        let out = refused(&home, &["fork", &t(1), "--through-turn", "turn-3"], 2, "usage");
        assert!(out.stderr.contains("not a persisted canonical turn"), "{out:?}");
    }
}

/// Turns without marks are told apart by their messages; what the model was given for a turn goes with it.
#[test]
fn turns_without_marks() {
    let home = Home::new();
    let mut log = Log::new(&t(1), AT).meta();
    for text in ["one", "two", "three"] {
        log = log.item("user", &format!("q {text}")).user(&format!("q {text}"));
        log = log.item("assistant", &format!("a {text}")).agent(&format!("a {text}"));
    }
    home.put(&log);
    for n in 1..=3_usize {
        for (flag, kept) in [("--through-turn", n), ("--before-turn", n - 1)] {
            let out = done(&home, &["fork", &t(1), flag, &n.to_string()]);
            let ends: usize = log.lines()[..1 + 4 * kept].iter().map(Vec::len).sum();
            assert!(split(&out).1 == log.bytes()[..ends], "{flag} {n}");
        }
    }
}

/// Forks of forks of forks, each with a turn of its own, and forks that end in what they inherited.
#[test]
fn a_fork_of_a_fork() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&three(shape, &t(1)));
        let mut chain = vec![t(1)];
        for n in 0..3 {
            let out = done(&home, &["fork", chain.last().expect("one"), "--through-turn", &(3 + n).to_string()]);
            let id = made(&out);
            let path = file(&out);
            // Another program continues it.
            let mut bytes = fs::read(&path).expect("the fork");
            let ordinal = split(&out).0["ordinal"].as_u64().unwrap_or(0) + 1;
            let own = Log::shaped(shape, &id, LATER).ordinal(ordinal).turn(&format!("own {n}"), "x");
            // Its turn needs an id of its own.
            let own = String::from_utf8(own.bytes()).expect("UTF-8").replace("turn-1", &format!("own-{n}"));
            bytes.extend_from_slice(own.as_bytes());
            fs::write(&path, bytes).expect("a turn");
            chain.push(id);
        }
        let leaf = chain.last().expect("one").clone();
        let whole = home.show(&[&leaf]);
        assert_eq!((whole.turns().len(), damage(&whole.json["thread"])), (6, 0), "{shape:?}");
        let out = done(&home, &["fork", &leaf]);
        assert_eq!(split(&out).0["payload"]["forked_from_id"], leaf);
        let texts = |out: &Out| -> Vec<String> {
            let items = out.turns().iter().flat_map(|turn| turn["items"].as_array().expect("items").clone());
            items.filter_map(|item| item["text"].as_str().map(str::to_owned)).collect()
        };
        assert_eq!(texts(&whole).len(), 12);
        assert_eq!(texts(&home.show(&[&made(&out)])), texts(&whole));
        for n in 1..=6 {
            let out = done(&home, &["fork", &leaf, "--through-turn", &n.to_string()]);
            let fork = home.show(&[&made(&out)]);
            assert_eq!(fork.turns().len(), n, "{shape:?}");
            assert_eq!(texts(&fork), texts(&whole)[..2 * n], "{shape:?} {n}");
            let (header, copied) = split(&out);
            if shape == Shape::Paginated {
                // It refers to the rollout in which the turn that it leaves out begins, or else to the last one.
                let holder = if n < 3 { 0 } else { (n - 2).min(3) };
                assert_eq!(header["payload"]["history_base"]["thread_id"], chain[holder], "{n}");
                assert!(copied.is_empty());
            }
        }
    }
}

/// A parent without turns, and one whose file is gone.
#[test]
fn b103_forks_of_empty_and_of_missing_parents() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&Log::shaped(shape, &t(1), AT).meta().set());
        let out = done(&home, &["fork", &t(1)]);
        assert_eq!(home.show(&[&made(&out)]).turns().len(), 0);
        refused(&home, &["fork", &t(1), "--through-turn", "1"], 1, "not_found");

        // The parent is gone: what the child has of its own is forked.
        let home = Home::new();
        let header = json!({"forked_from_id": t(1), "history_base":
            {"thread_id": t(1), "end_ordinal_exclusive": 7, "end_byte_offset": 1_000}});
        let header = if shape == Shape::Legacy { json!({"forked_from_id": t(1)}) } else { header };
        home.put(&Log::shaped(shape, &t(2), AT).ordinal(7).meta_with(header).turn("own question", "own answer"));
        for _ in 0..3 {
            let out = done(&home, &["fork", &t(2)]);
            let said = home.show(&[&made(&out)]).said();
            assert!(said.contains("own question"), "{said}");
        }
        done(&home, &["rename", &t(2), "orphan"]);
        assert_eq!(home.show(&["orphan"]).json["thread"]["id"], t(2));
    }
}

/// A copied history names its source in a second header; `session_id` may differ from `id`.
#[test]
fn b101_the_first_header_is_the_source() {
    let home = Home::new();
    let log = Log::new(&t(2), AT).meta_with(json!({"forked_from_id": t(1), "session_id": t(1)}));
    home.put(&log.meta_of(&t(1), json!({"cwd": "/parent"})).turn("copied", "x").turn("own", "y"));
    let out = done(&home, &["fork", &t(2)]);
    let meta = split(&out).0["payload"].clone();
    assert_eq!((&meta["forked_from_id"], &meta["cwd"]), (&json!(t(2)), &json!("/w/p")));
    assert_eq!(home.list(&[]).ids().len(), 2, "the fork is one thread, not three");
    done(&home, &["rename", &t(2), "child"]);
    assert_eq!(index_lines(&home), [(t(2), "child".into())]);
}

/// Wherever the source is, the fork is an active thread, and the source stays.
#[test]
fn archived_doubled_and_compressed_sources() {
    for shape in SHAPES {
        let home = Home::new();
        let log = three(shape, &t(1));
        home.put_archived(&log);
        home.put_at(&log.archived_path().replace(".jsonl", " (1).jsonl"), &log);
        home.put_zst(&three(shape, &t(2)), &zstd::encode_all(three(shape, &t(2)).bytes().as_slice(), 3).expect("zstd"));
        home.put(&three(shape, &t(3)));
        home.put_archived(&three(shape, &t(3)));
        for n in 1..=3 {
            let were = files(&home);
            let out = done(&home, &["fork", &t(n)]);
            assert!(were.changed(&home).is_empty());
            assert!(plan(&home, &out)[0].1.starts_with("sessions/"));
            assert_eq!(home.show(&[&made(&out)]).turns().len(), 3, "{shape:?} {n}");
            assert_eq!(home.list(&["--all"]).thread(&made(&out))["archived"], false);
        }
    }
}

/// A later segment of the same thread continues an earlier file.
#[test]
fn b64_a_thread_of_two_segments() {
    let home = Home::new();
    let old = three(Shape::Paginated, &t(1));
    home.put(&old);
    let (records, bytes) = (5, old.lines()[..5].iter().map(Vec::len).sum::<usize>());
    let base = json!({"history_base": {"thread_id": t(1), "end_ordinal_exclusive": records, "end_byte_offset": bytes}});
    let new = Log::paginated(&t(1), LATER).ordinal(records).meta_with(base);
    let new = String::from_utf8(new.turn("q new", "a new").bytes()).expect("UTF-8").replace("turn-1", "new-1");
    home.write(&format!("sessions/2026/03/02/rollout-2026-03-02T10-00-00-{}_{}.jsonl", t(1), t(50)), new);
    let whole = home.show(&[&t(1)]);
    assert!(whole.said().contains("q one") && whole.said().contains("q new"), "{}", whole.said());
    let were = files(&home);
    let out = done(&home, &["fork", &t(1)]);
    assert!(were.changed(&home).is_empty());
    assert_eq!(home.show(&[&made(&out)]).turns().len(), whole.turns().len());
    let out = done(&home, &["fork", &t(1), "--through-turn", "1"]);
    let said = home.show(&[&made(&out)]).said();
    assert!(said.contains("q one") && !said.contains("q new") && !said.contains("q two"), "{said}");
}

#[test]
fn what_cannot_be_forked_is_refused_with_nothing_made() {
    let home = Home::new();
    home.put(&Log::healthy(&t(1), AT));
    home.put(&Log::healthy(&t(2), AT));
    home.idx(&t(8), "dangling", AT);
    home.state().row(&t(7), &[("title", text("ghost"))]).close();
    home.put(&Log::paginated(&t(3), AT).meta_with(json!({"history_mode": "holographic"})).turn("q", "a"));
    let old = json!({"session": {"timestamp": "2025-04-20T10:00:00Z", "id": t(4), "instructions": ""}, "items": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "typed script"}]}]});
    home.write(
        &format!("sessions/rollout-2025-04-20-{}.json", t(4)),
        serde_json::to_string_pretty(&old).expect("JSON"),
    );
    for query in [t(9).as_str(), "nobody", "dangling", &t(7), "./no/such.jsonl", ""] {
        refused(&home, &["fork", query], 1, "not_found");
    }
    refused(&home, &["fork", "01990000"], 2, "ambiguous");
    let out = refused(&home, &["fork", &t(3)], 2, "usage");
    assert!(out.stderr.contains("history mode"), "{out:?}");
    let out = refused(&home, &["fork", &t(4)], 2, "usage");
    assert!(out.stderr.contains("TypeScript"), "{out:?}");
    for bad in ["", "  ", "two\nlines"] {
        refused(&home, &["fork", &t(1), "--name", bad], 2, "usage");
    }
    let outside = home.outside("rollout-2026-03-01T10-00-00-elsewhere.jsonl");
    fs::write(&outside, Log::healthy(&t(5), AT).bytes()).expect("a file");
    refused(&home, &["fork", outside.to_str().expect("UTF-8")], 2, "usage");
}

/// A failure leaves no half of a fork.
#[test]
fn a_home_that_cannot_take_it() {
    for shape in SHAPES {
        let home = Home::new();
        let log = three(shape, &t(1));
        home.put_archived(&log);
        home.write("sessions", "not a folder");
        let were = files(&home);
        let out = change(&home, &["fork", &t(1)]);
        assert_eq!((out.code, out.error()["kind"].as_str()), (5, Some("failed")), "{out:?}");
        assert!(out.stderr.contains("sessions"), "{out:?}");
        assert!(were.made(&home).is_empty() && were.changed(&home).is_empty());
    }
}

/// A thread that another program is writing can be forked: its records so far.
#[test]
fn a_live_source() {
    for shape in SHAPES {
        let home = Home::new();
        home.put(&three(shape, &t(1)));
        let lock = home.write(&format!("thread-writer-locks/{}.lock", t(1)), "");
        let held = fs::File::open(lock).expect("the lock file");
        held.try_lock().expect("the lock");
        let out = done(&home, &["fork", &t(1)]);
        assert_eq!(home.show(&[&made(&out)]).turns().len(), 3);
        done(&home, &["rename", &t(1), "while it runs"]);
        drop(held);
    }
}

/// The file's name is in the writer's zone, its header in UTC.
#[test]
fn the_file_is_named_in_local_time() {
    let home = Home::new();
    home.put(&three(Shape::Legacy, &t(1)));
    for (zone, hours) in [("Asia/Taipei", 8), ("Pacific/Kiritimati", 14), ("UTC", 0)] {
        let out = change_with(&home, &["fork", &t(1)], |command| {
            command.env("TZ", zone);
        });
        let (header, _) = split(&out);
        let at: jiff::Timestamp = header["payload"]["timestamp"].as_str().expect("a time").parse().expect("an instant");
        let local = jiff::tz::Offset::constant(hours).to_datetime(at);
        let name = file(&out);
        let stem = format!("rollout-{}-{}", local.strftime("%Y-%m-%dT%H-%M-%S"), made(&out));
        assert_eq!(name.file_stem().and_then(|s| s.to_str()), Some(stem.as_str()), "{zone}");
        assert!(name.parent().expect("a folder").ends_with(local.strftime("%Y/%m/%d").to_string()), "{zone}");
        assert!(now_is(at), "{at}");
    }
}

fn now_is(at: jiff::Timestamp) -> bool {
    jiff::Timestamp::now().duration_since(at).abs() < jiff::SignedDuration::from_secs(60)
}

/// Codex's database lists a fork when Codex next looks; nothing is put there.
#[test]
fn no_row_is_made() {
    let home = Home::new();
    home.put(&three(Shape::Paginated, &t(1)));
    StateDb::create(&home.file("state_5.sqlite")).close();
    let rows = dump(&home.file("state_5.sqlite"));
    done(&home, &["fork", &t(1), "--name", "twin"]);
    assert!(cells_changed(&rows, &home.file("state_5.sqlite")).is_empty());
}
