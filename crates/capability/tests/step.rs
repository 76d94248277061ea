//! Steps of a thread: which roots each has, through which handle, and what is told of the others.

use std::sync::{Arc, Mutex};

use threadkeep_capability::{
    CapabilityRootSelection, CapabilityWarning, Completion, EnvironmentHandle, EnvironmentId, EnvironmentRegistry,
    EnvironmentState, Omission, PathUri, RootOrigin, SelectedCapabilityRoot, Start, StartupAttempt, StepRoots,
};

#[derive(Debug)]
struct Handle(&'static str);

impl EnvironmentHandle for Handle {
    fn declared_id(&self) -> Option<&str> {
        None
    }
}

type Attempts = Arc<Mutex<Vec<StartupAttempt<Handle>>>>;

/// A registry whose start-ups wait for the test.
fn world() -> (EnvironmentRegistry<Handle>, Attempts) {
    let attempts = Attempts::default();
    let kept = attempts.clone();
    (EnvironmentRegistry::new(move |attempt| kept.lock().unwrap().push(attempt)), attempts)
}

fn next(attempts: &Attempts) -> StartupAttempt<Handle> {
    attempts.lock().unwrap().remove(0)
}

fn root(id: &str, environment: &str) -> SelectedCapabilityRoot {
    root_at(id, environment, "/opt/x")
}

fn root_at(id: &str, environment: &str, path: &str) -> SelectedCapabilityRoot {
    SelectedCapabilityRoot::new(id, environment, PathUri::parse(path).unwrap())
}

fn ids(names: &[&str]) -> Vec<EnvironmentId> {
    names.iter().map(|&name| name.into()).collect()
}

/// `root=handle` for each root of a step.
fn seen(step: &StepRoots<Handle>) -> Vec<String> {
    step.roots().map(|r| format!("{}={}", r.root.id(), r.environment.handle().0)).collect()
}

fn warnings(step: &StepRoots<Handle>) -> Vec<String> {
    step.warnings().iter().map(ToString::to_string).collect()
}

/// A thread says "use this capability root from environment `worker`"; steps pair it with what was ready.
#[test]
fn a_root_through_starting_ready_replaced() {
    let (registry, attempts) = world();
    registry.register_remote("worker", Handle("first"), Start::Now).unwrap();
    let selection: CapabilityRootSelection = vec![root("skills", "worker")].into();
    let written = serde_json::to_string(&selection).unwrap();
    let turn = ids(&["worker"]);
    let begin = || {
        let snapshot = registry.snapshot(&turn);
        let step = StepRoots::resolve(&selection, &snapshot, &registry);
        (snapshot, step)
    };

    // Starting: unavailable, and so for the whole step, even when the start-up ends meanwhile.
    let (starting, step_1) = begin();
    assert!(matches!(starting.get(&turn[0]), Some(None)));
    assert_eq!(seen(&step_1), [""; 0]);
    assert_eq!(step_1.omitted().map(|o| o.reason.clone()).collect::<Vec<_>>(), [Omission::Starting]);
    assert_eq!(next(&attempts).ready(), Ok(Completion::Recorded));
    assert_eq!(seen(&step_1.with_selection(&selection, &registry)), [""; 0]);
    assert_eq!(seen(&StepRoots::resolve(&selection, &starting, &registry)), [""; 0]);

    // Ready: a later step resolves through the handle.
    let (ready, step_2) = begin();
    assert_eq!(seen(&step_2), ["skills=first"]);

    // Replaced: the current step stays pinned, whatever becomes of the new handle.
    registry.replace(&turn[0], Handle("second")).unwrap();
    assert_eq!(seen(&StepRoots::resolve(&selection, &ready, &registry)), ["skills=first"]);
    let (_, step_3) = begin();
    assert_eq!(seen(&step_3), [""; 0], "the new handle is not ready because the old one was");
    assert_eq!(next(&attempts).ready(), Ok(Completion::Recorded));
    assert_eq!(seen(&step_2.with_selection(&selection, &registry)), ["skills=first"]);
    assert_eq!(seen(&step_2), ["skills=first"]);

    // A later step sees its own.
    let (_, step_4) = begin();
    assert_eq!(seen(&step_4), ["skills=second"]);

    // Nothing of this is in what the thread keeps.
    assert_eq!(serde_json::to_string(step_4.selection()).unwrap(), written);
}

/// The table of `thread-store.md` 7.4, row by row, in one step.
#[test]
fn every_row_of_the_table() {
    let (registry, attempts) = world();
    for name in ["in-ready", "in-starting", "out-ready", "out-starting", "out-failed"] {
        registry.register_remote(name, Handle(name), Start::Now).unwrap();
    }
    registry.register_remote("out-lazy", Handle("out-lazy"), Start::WhenAsked).unwrap();
    registry.register_local("out-local", Handle("out-local")).unwrap();
    let mut waiting = Vec::new();
    for attempt in attempts.lock().unwrap().drain(..) {
        match attempt.environment_id().as_str() {
            "in-ready" | "out-ready" => assert_eq!(attempt.ready(), Ok(Completion::Recorded)),
            "out-failed" => assert_eq!(attempt.failed("connection refused"), Completion::Recorded),
            _ => waiting.push(attempt),
        }
    }
    let all =
        ["out-failed", "out-lazy", "unknown", "out-local", "in-starting", "out-starting", "out-ready", "in-ready"];
    // Two roots of each, apart from each other, to see order and agreement.
    let selection: CapabilityRootSelection = all.iter().chain(&all).map(|name| root(name, name)).collect();
    let snapshot = registry.snapshot(&ids(&["in-starting", "in-ready", "out-failed", "unknown"]));
    assert_eq!(snapshot.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["in-starting", "in-ready"]);

    let passive = StepRoots::inspect(&selection, &snapshot, &registry);
    assert_eq!(registry.state(&"out-lazy".into()), Some(EnvironmentState::NotStarted));
    assert_eq!(attempts.lock().unwrap().len(), 0, "a look starts nothing");
    let half = ["out-local=out-local", "out-ready=out-ready", "in-ready=in-ready"];
    assert_eq!(seen(&passive), [half, half].concat());
    let told = [
        "selected capability environment `out-failed` is unavailable: connection refused",
        "selected capability environment `out-lazy` is unavailable: its start-up has not begun",
        "selected capability root `unknown` references unavailable environment `unknown`",
        "selected capability environment `in-starting` is unavailable: its start-up is in progress",
        "selected capability environment `out-starting` is unavailable: its start-up is in progress",
        "selected capability root `unknown` references unavailable environment `unknown`",
    ];
    assert_eq!(warnings(&passive), told);

    let step = StepRoots::resolve(&selection, &snapshot, &registry);
    assert_eq!(seen(&step), [half, half].concat());
    let without = [
        ("out-failed", Omission::Failed { reason: "connection refused".into() }),
        ("out-lazy", Omission::Starting),
        ("unknown", Omission::Unknown),
        ("in-starting", Omission::Starting),
        ("out-starting", Omission::Starting),
    ];
    let got: Vec<_> = step.omitted().map(|o| (o.root.id(), o.reason.clone())).collect();
    assert_eq!(got, [without.clone(), without].concat());
    // Asked for, the lazy one starts, once; the failed one is left alone.
    assert_eq!(attempts.lock().unwrap().len(), 1);
    assert_eq!(next(&attempts).ready(), Ok(Completion::Recorded));
    for attempt in waiting {
        assert_eq!(attempt.ready(), Ok(Completion::Recorded));
    }
    assert!(matches!(registry.state(&"out-failed".into()), Some(EnvironmentState::Failed { .. })));

    // All of it is ready now. This step is as it was; the next has it.
    assert_eq!(seen(&step.with_selection(&selection, &registry)), [half, half].concat());
    let later = StepRoots::resolve(&selection, &registry.snapshot(&ids(&["in-starting", "in-ready"])), &registry);
    assert_eq!(later.roots().count(), 12);
    // Another selection in the old step: what it has not looked at before is looked at now.
    registry.register_local("new", Handle("new")).unwrap();
    let other: CapabilityRootSelection = vec![root("n", "new"), root("u", "unknown"), root("s", "out-starting")].into();
    let wider = step.with_selection(&other, &registry);
    assert_eq!(seen(&wider), ["n=new"]);
    registry.replace(&"new".into(), Handle("newer")).unwrap();
    assert_eq!(seen(&step.with_selection(&other, &registry)), ["n=new"]);
}

#[test]
fn a_root_comes_back_without_anyone_selecting_it_again() {
    let (registry, attempts) = world();
    registry.register_remote("worker", Handle("1"), Start::Now).unwrap();
    let selection: CapabilityRootSelection = vec![root("a", "worker")].into();
    let step = || seen(&StepRoots::resolve(&selection, &registry.snapshot(&ids(&["worker"])), &registry));
    assert_eq!(next(&attempts).failed("no route"), Completion::Recorded);
    assert_eq!((step(), step()), (vec![], vec![]));
    assert!(attempts.lock().unwrap().is_empty(), "steps never retry");
    registry.start(&"worker".into()).unwrap();
    assert_eq!(next(&attempts).ready(), Ok(Completion::Recorded));
    assert_eq!(step(), ["a=1"]);
}

#[test]
fn contributed_roots_come_after_the_threads() {
    let (registry, attempts) = world();
    registry.register_local("local", Handle("local")).unwrap();
    registry.register_remote("worker", Handle("worker"), Start::Now).unwrap();
    registry.register_remote("slow", Handle("slow"), Start::Now).unwrap();
    let worker = next(&attempts);
    let own = vec![
        root("w1", "worker"),
        root_at("mine", "worker", "/theirs"),
        root_at("same", "worker", "/same"),
        root("away", "worker"),
    ];
    assert_eq!(worker.ready_with(own), Ok(Completion::Recorded));
    let local = registry.ready(&"local".into()).unwrap();
    let own = vec![root("l1", "local"), root("w1", "local")];
    assert_eq!(registry.contribute(&local, own), Ok(Completion::Recorded));

    let selection: CapabilityRootSelection =
        vec![root_at("mine", "worker", "/mine"), root_at("same", "worker", "/same"), root("away", "slow")].into();
    let turn = ids(&["worker", "local", "slow"]);
    let step = StepRoots::resolve(&selection, &registry.snapshot(&turn), &registry);
    let got: Vec<_> = step.roots().map(|r| (r.root.id(), r.root.path().as_str(), r.origin)).collect();
    assert_eq!(
        got,
        [
            ("mine", "file:///mine", RootOrigin::Thread),
            ("same", "file:///same", RootOrigin::Thread),
            ("w1", "file:///opt/x", RootOrigin::Environment),
            ("l1", "file:///opt/x", RootOrigin::Environment),
        ]
    );
    // `away` is the thread's although its environment is not there: the environment's does not take its place.
    let ignored = |root: &str, by: &str, kept: &str| CapabilityWarning::ContributedRootIgnored {
        root_id: root.into(),
        environment_id: by.into(),
        kept_in: kept.into(),
    };
    let expected =
        [ignored("mine", "worker", "worker"), ignored("away", "worker", "slow"), ignored("w1", "local", "worker")];
    assert_eq!(step.warnings()[1..], expected);
    assert!(step.warnings()[1].to_string().contains("`mine`"));

    // Only ready environments of the step's snapshot contribute, and what they did when it was taken.
    let snapshot = registry.snapshot(&turn);
    assert_eq!(registry.contribute(&local, vec![]), Ok(Completion::Recorded));
    assert_eq!(StepRoots::resolve(&selection, &snapshot, &registry).roots().count(), 4);
    assert_eq!(StepRoots::resolve(&selection, &registry.snapshot(&turn), &registry).roots().count(), 3);
    assert_eq!(StepRoots::resolve(&selection, &registry.snapshot([]), &registry).roots().count(), 2);
    assert_eq!(selection.roots().count(), 3, "nothing contributed is ever selected");
}

#[test]
fn a_stored_root_that_is_not_understood_is_told() {
    let (registry, _) = world();
    registry.register_local("local", Handle("local")).unwrap();
    let good = serde_json::to_string(&root("a", "local")).unwrap();
    let selection: CapabilityRootSelection =
        serde_json::from_str(&format!("[{good},{{\"id\":\"b\"}},{good}]")).unwrap();
    let step = StepRoots::inspect(&selection, &registry.snapshot([]), &registry);
    assert_eq!(seen(&step), ["a=local", "a=local"]);
    assert_eq!(
        warnings(&step),
        ["selected capability root number 2 is not understood and not used: \
          not a selected capability root: missing field `location`"]
    );
}
