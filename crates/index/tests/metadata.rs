//! Patches kept in the index against `ThreadMetadata::apply`, which says what they mean.
#![allow(missing_docs, reason = "tests")]

mod common;

use std::collections::HashMap;

use common::{home, id, memory, open};
use proptest::prelude::*;
use serde_json::{Value, json};
use threadkeep_index::{Index, Placed};
use threadkeep_record::{Field, GitPatch, MetadataPatch, ThreadId, ThreadMetadata, TokenUsage, UtcMillis};

/// Boxed, as all parts of a patch: in one piece the strategy is too large for a test's stack.
fn word() -> BoxedStrategy<String> {
    prop_oneof![Just(String::new()), "[a-z]{1,6}", any::<String>(), Just("it's; DROP TABLE threads\0--".to_owned())]
        .boxed()
}

fn field() -> BoxedStrategy<Field<String>> {
    prop_oneof![3 => Just(Field::Keep), 1 => Just(Field::Clear), 2 => word().prop_map(Field::Set)].boxed()
}

fn maybe<T: std::fmt::Debug + Clone + 'static>(of: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Option<T>> {
    proptest::option::weighted(0.3, of).boxed()
}

fn time() -> impl Strategy<Value = UtcMillis> {
    prop_oneof![
        4 => (0i64..50).prop_map(UtcMillis),
        1 => any::<i64>().prop_map(UtcMillis),
        1 => Just(UtcMillis(i64::MAX)),
        1 => Just(UtcMillis(i64::MAX - 1)),
        1 => Just(UtcMillis(i64::MIN)),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        word().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (word(), word()).prop_map(|(k, v)| json!({"z": 1, k: {"deep": [v, null, true]}, "a": 2})),
    ]
}

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("/the/home/sessions/2026/01/02/rollout-x.jsonl".to_owned()),
        Just("/the/home".to_owned()),
        Just("/the/homes/other".to_owned()),
        Just("/the/home//x".to_owned()),
        "/[a-z/. ]{0,12}",
    ]
}

fn patch() -> BoxedStrategy<MetadataPatch> {
    let agents = (field(), field(), field(), field(), field(), field()).boxed();
    let git =
        (field(), field(), field()).prop_map(|(sha, branch, origin_url)| GitPatch { sha, branch, origin_url }).boxed();
    let texts = (
        maybe(path()),
        maybe(word()),
        maybe(word()),
        maybe(word()),
        maybe(word()),
        maybe(word()),
        maybe(word()),
        maybe(word()),
        maybe(word()),
    )
        .boxed();
    let tokens = any::<[i64; 5]>().prop_map(|[input, cached_input, output, reasoning_output, total]| TokenUsage {
        input,
        cached_input,
        output,
        reasoning_output,
        total,
    });
    let rest =
        (maybe(time()), maybe(time()), maybe(time()), maybe(value()), maybe(value()), maybe(value()), maybe(tokens))
            .boxed();
    let patch = (agents, git, texts, rest).prop_map(|(a, git, t, r)| MetadataPatch {
        name: a.0,
        reasoning_effort: a.1,
        thread_source: a.2,
        agent_nickname: a.3,
        agent_role: a.4,
        agent_path: a.5,
        rollout_path: t.0,
        preview: t.1,
        title: t.2,
        model_provider: t.3,
        model: t.4,
        cwd: t.5,
        cli_version: t.6,
        first_user_message: t.7,
        memory_mode: t.8,
        created_at: r.0,
        updated_at: r.1,
        advance_recency_at: r.2,
        source: r.3,
        approval_mode: r.4,
        permission_profile: r.5,
        token_usage: r.6,
        git,
    });
    patch.boxed()
}

/// What the rules say is known: the metadata, and what of it was decided.
#[derive(Default)]
struct Model {
    known: HashMap<ThreadId, (ThreadMetadata, bool, bool)>,
}

impl Model {
    fn decided(&mut self, id: ThreadId, patch: MetadataPatch) {
        if patch != MetadataPatch::default() {
            let (known, name, mode) = self.known.entry(id).or_default();
            *name |= !patch.name.is_keep();
            *mode |= patch.memory_mode.is_some();
            known.apply(patch);
        }
    }

    fn observed(&mut self, id: ThreadId, mut patch: MetadataPatch) {
        if patch != MetadataPatch::default() {
            let (known, name, mode) = self.known.entry(id).or_default();
            if *name {
                patch.name = Field::Keep;
            }
            if *mode {
                patch.memory_mode = None;
            }
            known.apply(patch);
        }
    }

    fn agrees(&self, index: &Index) {
        for n in 0..4 {
            assert_eq!(index.get(id(n)).unwrap().as_ref(), self.known.get(&id(n)).map(|(known, ..)| known), "{n}");
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Patch(u8, Box<MetadataPatch>),
    Observe(Vec<(u8, MetadataPatch)>),
    Remove(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..4, patch()).prop_map(|(n, p)| Step::Patch(n, Box::new(p))),
        4 => proptest::collection::vec((0u8..4, patch()), 0..4).prop_map(Step::Observe),
        1 => (0u8..4).prop_map(Step::Remove),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_row_is_what_applying_its_patches_gives(steps in proptest::collection::vec(step(), 1..12)) {
        let index = memory("/the/home");
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Patch(n, patch) => {
                    index.patch(id(n), &patch).unwrap();
                    model.decided(id(n), *patch);
                }
                Step::Observe(all) => {
                    let all: Vec<_> = all.into_iter().map(|(n, p)| (id(n), p)).collect();
                    index.observe(&all).unwrap();
                    all.into_iter().for_each(|(id, p)| model.observed(id, p));
                }
                Step::Remove(n) => {
                    index.remove(id(n)).unwrap();
                    model.known.remove(&id(n));
                }
            }
            model.agrees(&index);
        }
    }
}

#[test]
fn what_was_said_is_there_after_closing() {
    let home = home();
    let mut model = Model::default();
    let patch = MetadataPatch {
        name: Field::Set("n".into()),
        source: Some(json!({"subagent": "review"})),
        advance_recency_at: Some(UtcMillis(7)),
        rollout_path: Some(home.path().join("sessions/a.jsonl").display().to_string()),
        ..MetadataPatch::default()
    };
    for _ in 0..3 {
        let index = open(home.path());
        model.agrees(&index);
        index.patch(id(1), &patch).unwrap();
        model.decided(id(1), patch.clone());
        index.observe(&[(id(1), MetadataPatch { name: Field::Clear, ..patch.clone() })]).unwrap();
        model.observed(id(1), patch.clone());
        model.agrees(&index);
    }
    assert_eq!(model.known[&id(1)].0.recency_at, Some(UtcMillis(12)));
}

#[test]
fn a_moved_home_takes_its_paths_along() {
    let above = home();
    let (before, after) = (above.path().join("before"), above.path().join("after"));
    std::fs::create_dir(&before).unwrap();
    let path = |home: &std::path::Path| Some(home.join("sessions/2026/a.jsonl").display().to_string());
    let outside = Some("/elsewhere/b.jsonl".to_owned());
    let relative = Some("archived_sessions/c.jsonl".to_owned());
    let index = open(&before);
    for (n, rollout_path) in [(1, path(&before)), (2, outside.clone()), (3, relative)] {
        index.patch(id(n), &MetadataPatch { rollout_path, ..MetadataPatch::default() }).unwrap();
    }
    drop(index);
    std::fs::rename(&before, &after).unwrap();
    let index = open(&after);
    let found = |n| index.get(id(n)).unwrap().unwrap().rollout_path;
    assert_eq!(found(1), path(&after));
    assert_eq!(found(2), outside);
    assert_eq!(found(3), Some(after.join("archived_sessions/c.jsonl").display().to_string()));
}

#[test]
fn a_failed_observation_keeps_none_of_it() {
    let home = home();
    let index = open(home.path());
    let Placed::File { path, .. } = index.place() else { panic!("in memory") };
    let other = common::raw(&path);
    other
        .execute_batch("CREATE TEMP TABLE x (a)")
        .and_then(|()| {
            other.execute_batch(
                "CREATE TRIGGER no BEFORE INSERT ON threads WHEN NEW.title = 'bad' BEGIN SELECT RAISE(FAIL, 'no'); END",
            )
        })
        .unwrap();
    let title = |t: &str| MetadataPatch { title: Some(t.into()), ..MetadataPatch::default() };
    assert!(index.observe(&[(id(1), title("good")), (id(2), title("bad"))]).is_err());
    assert_eq!(index.get(id(1)).unwrap(), None);
    index.observe(&[(id(1), title("good"))]).unwrap();
    assert!(index.get(id(1)).unwrap().is_some());
}

#[test]
fn a_row_that_cannot_be_read_costs_only_itself() {
    let home = home();
    let index = open(home.path());
    let source = Some(json!("cli"));
    let patch = MetadataPatch { source, ..MetadataPatch::default() };
    index.observe(&[(id(1), patch.clone()), (id(2), patch)]).unwrap();
    let Placed::File { path, .. } = index.place() else { panic!("in memory") };
    common::raw(&path).execute("UPDATE threads SET source = '{torn' WHERE id = ?1", [id(1).as_bytes()]).unwrap();
    let error = index.get(id(1)).unwrap_err();
    assert!(matches!(&error, threadkeep_index::IndexError::Row { column: "source", .. }), "{error}");
    assert!(index.get(id(2)).unwrap().is_some());
    index.patch(id(1), &MetadataPatch { source: Some(json!("exec")), ..MetadataPatch::default() }).unwrap();
    assert!(index.get(id(1)).unwrap().is_some());
}
