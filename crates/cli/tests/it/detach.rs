//! Detach: a fork by reference becomes a thread that needs no other, and what it was comes back from the trash.

use serde_json::{Value, json};

use crate::db::text;
use crate::home::{Home, ids};
use crate::log::{Log, t};
use crate::write_run::{change, done_all as done, dump, files_of_codex as files, refused};

const AT: &str = "2026-08-20T01:10:00Z";

/// T1 <- T2 <- T3 by reference; gives the third's log.
fn chain(home: &Home) -> Log {
    let first = Log::paginated(&t(1), AT).meta().turn("one", "two");
    home.put(&first);
    let base = |of: u32, ordinal: usize, bytes: usize| json!({"forked_from_id": t(of), "history_base": {"thread_id": t(of), "end_ordinal_exclusive": ordinal, "end_byte_offset": bytes}});
    let ordinal = first.lines().len();
    let second = Log::paginated(&t(2), AT)
        .ordinal(ordinal as u64)
        .meta_with(base(1, ordinal, first.bytes().len()))
        .turn("three", "four");
    home.put(&second);
    let end = ordinal + second.lines().len();
    let third =
        Log::paginated(&t(3), AT).ordinal(end as u64).meta_with(base(2, end, second.bytes().len())).turn("five", "six");
    home.put(&third);
    third
}

fn told(home: &Home, thread: &str) -> Vec<String> {
    let texts = |turn: &Value| {
        let items = turn["items"].as_array().expect("items").iter();
        items.map(|i| format!("{}: {}", i["speaker"], i["text"])).collect::<Vec<_>>().join("; ")
    };
    home.show(&[thread]).turns().iter().map(texts).collect()
}

/// B63: detach T3, then T1 and T2 may go, and T3 has everything.
#[test]
fn b63_a_detached_fork_needs_nobody() {
    let home = Home::new();
    let third = chain(&home);
    home.idx(&t(3), "the third", AT);
    home.state()
        .row(&t(3), &[("rollout_path", text(&home.path().join(third.active_path()).to_string_lossy()))])
        .close();
    let (was, rows, turns) = (files(&home), dump(&home.file("state_5.sqlite")), told(&home, &t(3)));
    assert_eq!(turns.len(), 3);
    let plan = home.run(&["detach", &t(3), "--dry-run"]);
    assert_eq!((plan.code, &plan.json["plan"][0]["action"]), (0, &json!("detach")), "{plan:?}");
    assert!(was.changed(&home).is_empty() && was.made(&home).is_empty());
    let before = home.list(&[]).thread(&t(3)).clone();
    done(&home, &["detach", &t(3)]);
    assert_eq!(told(&home, &t(3)), turns);
    assert_eq!(was.changed(&home), [third.active_path()], "its old rollout is in the trash");
    let made = was.made(&home);
    assert!(made.len() == 1 && made[0].contains(&format!("{}_", t(3))), "{made:?}");
    let list = home.list(&[]);
    let after = list.thread(&t(3));
    for fact in ["name", "preview", "cwd", "created_at", "updated_at", "archived", "forked_from_id"] {
        assert_eq!(before[fact], after[fact], "{fact}");
    }
    let differs: Vec<_> =
        rows.iter().zip(dump(&home.file("state_5.sqlite"))).filter(|(a, b)| *a != b).map(|(a, _)| a.clone()).collect();
    assert!(differs.len() == 1 && differs[0].contains("rollout_path"), "{differs:?}");
    done(&home, &["delete", &t(1), &t(2), "--yes"]);
    assert_eq!(home.list(&["--all"]).set(), ids([3]));
    assert_eq!(told(&home, &t(3)), turns);
    assert_eq!(home.search(&["three"]).hit_threads(), ids([3]));
    // Again: there is nothing to do.
    let is = files(&home);
    let again = change(&home, &["detach", &t(3)]);
    assert_eq!((again.code, &again.json["plan"][0]["action"]), (0, &json!("keep")), "{again:?}");
    assert!(is.changed(&home).is_empty() && is.made(&home).is_empty());
    // Everything comes back as it was.
    done(&home, &["restore", "--all"]);
    assert!(
        was.changed(&home).is_empty() && was.made(&home).is_empty(),
        "{:?} {:?}",
        was.changed(&home),
        was.made(&home)
    );
    assert_eq!(dump(&home.file("state_5.sqlite")), rows);
    assert_eq!(told(&home, &t(3)), turns);
}

/// The old rollout of a thread that another fork continues stays beside the new one.
#[test]
fn what_another_fork_needs_stays() {
    let home = Home::new();
    chain(&home);
    let was = files(&home);
    let turns = (told(&home, &t(2)), told(&home, &t(3)));
    done(&home, &["detach", &t(2)]);
    assert!(was.changed(&home).is_empty() && was.made(&home).len() == 1);
    assert_eq!((told(&home, &t(2)), told(&home, &t(3))), turns);
    assert_eq!(home.list(&[]).set(), ids([1, 2, 3]), "each thread once");
    // The third still goes through the old rollouts of the second and the first.
    refused(&home, &["delete", &t(1), "--yes"], 3, "refused");
    done(&home, &["detach", &t(3)]);
    assert_eq!(told(&home, &t(3)), turns.1);
}

#[test]
fn what_cannot_be_detached_is_left_as_it_is() {
    let home = Home::new();
    chain(&home);
    // A thread that copied its parent, or has none, is whole already.
    home.put(&Log::healthy(&t(4), AT));
    let was = files(&home);
    let out = change(&home, &["detach", &t(4)]);
    assert_eq!((out.code, &out.json["plan"][0]["action"]), (0, &json!("keep")), "{out:?}");
    refused(&home, &["detach", &t(9)], 1, "not_found");
    std::fs::remove_file(home.file(&Log::new(&t(1), AT).active_path())).unwrap();
    let was_without = files(&home);
    let out = change(&home, &["detach", &t(3)]);
    assert!(out.code == 5 && out.error()["message"].as_str().is_some_and(|m| m.contains(&t(1))), "{out:?}");
    assert!(was_without.changed(&home).is_empty() && was_without.made(&home).is_empty());
    assert_eq!(was.changed(&home).len(), 1);
}

/// A thread that went on is not put back to where it was.
#[test]
fn a_thread_that_went_on_is_not_put_back() {
    let home = Home::new();
    chain(&home);
    let was = files(&home);
    done(&home, &["detach", &t(3)]);
    let made = was.made(&home);
    let path = home.file(&made[0]);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"timestamp\":\"2026-08-20T03:00:00.000Z\",\"ordinal\":99,\"type\":\"event_msg\",\"payload\":{\"type\":\"x\"}}\n");
    std::fs::write(&path, bytes).unwrap();
    let is = files(&home);
    refused(&home, &["restore", &t(3)], 3, "refused");
    assert!(is.changed(&home).is_empty() && is.made(&home).is_empty());
}
