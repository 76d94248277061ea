//! Plans of changes with an index and without.

use serde_json::json;

use crate::home::Home;
use crate::log::{Log, t};
use crate::write_run::{change, change_with, told};

const AT: &str = "2026-08-20T01:10:00Z";

/// What an index tells of relations is what the files tell: each plan is the same with a whole index, an outdated one, and
/// without any.
#[test]
fn a_plan_is_the_same_with_and_without_an_index() {
    for version in ["0.142.0", "0.156.0", "0.171.0"] {
        let home =
            Home::copy_of(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes").join(version));
        let all = home.list(&["--all", "--limit", "1000"]);
        home.put(&Log::healthy(&t(1), AT));
        told(&home, &["reindex"], |_| ());
        // Known to nobody yet: a child of the first thread, and a fork of the second by reference.
        let (first, second) = (all.ids()[0].clone(), all.ids()[1].clone());
        let fork = json!({"forked_from_id": second, "history_base": {"thread_id": second, "end_ordinal_exclusive": 1, "end_byte_offset": 10}});
        home.put(&Log::new(&t(2), AT).sub(&first).user("a").agent("b"));
        home.put(&Log::paginated(&t(3), AT).ordinal(1).meta_with(fork).turn("c", "d"));
        let mut compared = 0;
        for id in all.ids().iter().chain(&[t(1), t(2), t(3)]) {
            for args in
                [&["delete", "--cascade"][..], &["delete"], &["archive", "--cascade"], &["unarchive"], &["detach"]]
            {
                let args = [args, &[id.as_str(), "--dry-run"]].concat();
                let with = change(&home, &args);
                let without = change_with(&home, &args, |c| {
                    c.arg("--no-index");
                });
                assert_eq!((with.code, &with.json), (without.code, &without.json), "{version}: {args:?}");
                compared += 1;
            }
        }
        assert!(compared > 50, "{compared}");
        let refused = change(&home, &["delete", &second, "--dry-run"]);
        assert!(
            refused.code == 3 && refused.error()["message"].as_str().is_some_and(|m| m.contains(&t(3))),
            "{refused:?}"
        );
    }
}
