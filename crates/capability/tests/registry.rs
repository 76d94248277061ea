//! The registry: identity, states, who may report what, and what is told.

use std::sync::{Arc, Mutex};

use threadkeep_capability::{
    CapabilityError, Completion, EnvironmentEventKind, EnvironmentHandle, EnvironmentId, EnvironmentRegistry,
    EnvironmentState, MAX_CONTRIBUTED_ROOTS, PathUri, RootCache, SelectedCapabilityRoot, Start, StartupAttempt,
};

/// A handle that may declare who it is only later, as a connection does.
#[derive(Clone, Default)]
struct Handle(Arc<std::sync::OnceLock<&'static str>>);

impl EnvironmentHandle for Handle {
    fn declared_id(&self) -> Option<&str> {
        self.0.get().copied()
    }
}

fn silent() -> Handle {
    Handle::default()
}

fn declaring(id: &'static str) -> Handle {
    Handle(Arc::new(id.into()))
}

type Attempts = Arc<Mutex<Vec<StartupAttempt<Handle>>>>;
type Events = Arc<Mutex<Vec<String>>>;

fn world() -> (EnvironmentRegistry<Handle>, Attempts, Events) {
    let (attempts, events) = (Attempts::default(), Events::default());
    let (kept, heard) = (attempts.clone(), events.clone());
    let registry = EnvironmentRegistry::with_observer(
        move |attempt| kept.lock().unwrap().push(attempt),
        move |event| {
            let kind = match &event.kind {
                EnvironmentEventKind::Registered => "registered".to_owned(),
                EnvironmentEventKind::Replaced => "replaced".to_owned(),
                EnvironmentEventKind::Ready => "ready".to_owned(),
                EnvironmentEventKind::Failed { reason } => format!("failed: {reason}"),
            };
            heard.lock().unwrap().push(format!("{} {kind}", event.environment_id));
        },
    );
    (registry, attempts, events)
}

fn next(attempts: &Attempts) -> StartupAttempt<Handle> {
    attempts.lock().unwrap().remove(0)
}

fn id(name: &str) -> EnvironmentId {
    name.into()
}

fn root(id: &str, environment: &str) -> SelectedCapabilityRoot {
    SelectedCapabilityRoot::new(id, environment, PathUri::parse("/opt/x").unwrap())
}

#[test]
fn a_handle_that_declares_another_identity_is_refused_wherever_it_comes() {
    let (registry, attempts, events) = world();
    let mismatch =
        |at: &str| CapabilityError::IdentityMismatch { environment_id: id(at), declared: "other".to_owned() };
    assert_eq!(registry.register_local("local", declaring("other")), Err(mismatch("local")));
    assert_eq!(registry.register_remote("worker", declaring("other"), Start::Now), Err(mismatch("worker")));
    assert_eq!(registry.state(&id("worker")), None);

    // Given in place of a good one: that one stays.
    let first = registry.register_remote("worker", declaring("worker"), Start::Now).unwrap();
    assert_eq!(next(&attempts).ready(), Ok(Completion::Recorded));
    assert_eq!(registry.replace(&id("worker"), declaring("other")), Err(mismatch("worker")));
    assert_eq!(registry.ready(&id("worker")).unwrap().handle_id(), first);

    // Declared only once it is connected: it is never ready.
    let late = silent();
    registry.replace(&id("worker"), late.clone()).unwrap();
    late.0.set("other").unwrap();
    assert_eq!(next(&attempts).ready(), Err(mismatch("worker")));
    let failed = "a handle given for environment `worker` declares to be `other`";
    assert_eq!(registry.state(&id("worker")), Some(EnvironmentState::Failed { reason: failed.into() }));
    let told = events.lock().unwrap().join(", ");
    assert_eq!(told, format!("worker registered, worker ready, worker replaced, worker failed: {failed}"));
}

#[test]
fn ids_are_registered_once_and_must_be_known() {
    let (registry, _, events) = world();
    registry.register_local("local", silent()).unwrap();
    let again = CapabilityError::AlreadyRegistered { environment_id: id("local") };
    assert_eq!(registry.register_local("local", silent()), Err(again.clone()));
    assert_eq!(registry.register_remote("local", silent(), Start::Now), Err(again));
    let unknown = CapabilityError::UnknownEnvironment { environment_id: id("nobody") };
    assert_eq!(registry.replace(&id("nobody"), silent()), Err(unknown.clone()));
    assert_eq!(registry.start(&id("nobody")), Err(unknown));
    assert_eq!(*events.lock().unwrap(), ["local registered", "local ready"]);
}

#[test]
fn a_local_environment_is_always_ready() {
    let (registry, attempts, events) = world();
    let first = registry.register_local("local", silent()).unwrap();
    let second = registry.replace(&id("local"), silent()).unwrap();
    assert!(second > first);
    assert_eq!(registry.ready(&id("local")).unwrap().handle_id(), second);
    assert_eq!(registry.start(&id("local")), Ok(EnvironmentState::Ready));
    assert!(attempts.lock().unwrap().is_empty());
    assert_eq!(*events.lock().unwrap(), ["local registered", "local ready", "local replaced", "local ready"]);
}

#[test]
fn only_the_current_attempt_counts_and_only_once() {
    let (registry, attempts, events) = world();
    let worker = id("worker");
    registry.register_remote("worker", silent(), Start::Now).unwrap();
    let first = next(&attempts);
    assert!(first.is_current());
    assert_eq!(first.failed("no route"), Completion::Recorded);
    assert_eq!(first.ready(), Ok(Completion::Stale));

    // Another attempt of the same handle, then another handle.
    assert_eq!(registry.start(&worker), Ok(EnvironmentState::Failed { reason: "no route".into() }));
    let second = next(&attempts);
    assert_eq!((second.handle_id(), second.is_current()), (first.handle_id(), true));
    assert_eq!((first.ready(), first.failed("late")), (Ok(Completion::Stale), Completion::Stale));
    assert_eq!(registry.start(&worker), Ok(EnvironmentState::Starting), "which goes on");
    registry.replace(&worker, silent()).unwrap();
    let third = next(&attempts);
    assert!(!second.is_current());
    assert_eq!((second.ready(), first.ready()), (Ok(Completion::Stale), Ok(Completion::Stale)));
    drop((first, second));
    assert_eq!(registry.state(&worker), Some(EnvironmentState::Starting));
    assert_eq!(third.ready(), Ok(Completion::Recorded));
    assert_eq!(registry.ready(&worker).unwrap().handle_id(), third.handle_id());
    drop(third);
    assert_eq!(registry.state(&worker), Some(EnvironmentState::Ready));
    assert_eq!(
        *events.lock().unwrap(),
        ["worker registered", "worker failed: no route", "worker replaced", "worker ready"]
    );
}

#[test]
fn an_attempt_dropped_without_a_report_has_failed() {
    let (registry, attempts, _) = world();
    registry.register_remote("worker", silent(), Start::Now).unwrap();
    drop(next(&attempts));
    let state = registry.state(&id("worker")).unwrap();
    assert_eq!(state, EnvironmentState::Failed { reason: "its start-up ended without a report".into() });

    // So has one whose starter panicked.
    let registry = EnvironmentRegistry::new(|_: StartupAttempt<Handle>| panic!("no such transport"));
    let registering = || registry.register_remote("worker", silent(), Start::Now);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(registering)).is_err());
    assert!(matches!(registry.state(&id("worker")), Some(EnvironmentState::Failed { .. })));

    // An attempt that outlives its registry has nobody to report to.
    let (registry, attempts, _) = world();
    registry.register_remote("worker", silent(), Start::Now).unwrap();
    let attempt = next(&attempts);
    drop(registry);
    assert_eq!((attempt.ready(), attempt.is_current()), (Ok(Completion::Stale), false));
}

#[test]
fn a_lazy_environment_waits_to_be_asked_for() {
    let (registry, attempts, _) = world();
    let worker = id("worker");
    registry.register_remote("worker", silent(), Start::WhenAsked).unwrap();
    assert!(registry.passive_snapshot([&worker]).get(&worker).is_none());
    let second = registry.replace(&worker, silent()).unwrap();
    assert_eq!(registry.state(&worker), Some(EnvironmentState::NotStarted));
    assert!(attempts.lock().unwrap().is_empty());
    assert!(matches!(registry.snapshot([&worker, &worker]).get(&worker), Some(None)));
    let attempt = next(&attempts);
    assert_eq!(attempt.handle_id(), second);
    assert!(attempts.lock().unwrap().is_empty());
    assert_eq!(attempt.ready(), Ok(Completion::Recorded));
    assert!(matches!(registry.snapshot([&worker]).get(&worker), Some(Some(_))));
    // Once asked for it is in use: a reconnect starts it.
    registry.replace(&worker, silent()).unwrap();
    assert_eq!(registry.state(&worker), Some(EnvironmentState::Starting));
}

#[test]
fn a_starter_and_an_observer_may_use_the_registry() {
    let own: Arc<std::sync::OnceLock<EnvironmentRegistry<Handle>>> = Arc::default();
    let (starting, observing) = (own.clone(), own.clone());
    let registry = EnvironmentRegistry::with_observer(
        move |attempt: StartupAttempt<Handle>| {
            let registry = starting.get().unwrap();
            assert_eq!(registry.state(attempt.environment_id()), Some(EnvironmentState::Starting));
            assert_eq!(attempt.ready(), Ok(Completion::Recorded));
        },
        move |event| {
            let registry = observing.get().unwrap();
            if event.environment_id == id("first") && event.kind == EnvironmentEventKind::Ready {
                registry.register_local("second", silent()).unwrap();
            }
        },
    );
    own.set(registry.clone()).unwrap();
    registry.register_remote("first", silent(), Start::Now).unwrap();
    assert_eq!(registry.state(&id("second")), Some(EnvironmentState::Ready));
}

#[test]
fn contributed_roots_are_checked_whole() {
    let (registry, attempts, _) = world();
    registry.register_remote("worker", silent(), Start::Now).unwrap();
    let attempt = next(&attempts);
    let many = |n: usize| (0..n).map(|at| root(&at.to_string(), "worker")).collect::<Vec<_>>();
    for (roots, text) in [
        (many(MAX_CONTRIBUTED_ROOTS + 1), "contributes 257 capability roots, at most 256 are taken"),
        (vec![root("a", "worker"), root("", "worker")], "with an empty id, at place 2"),
        (vec![root("a", "worker"), root("b", "worker"), root("a", "worker")], "two capability roots with the id `a`"),
        (vec![root("a", "elsewhere")], "contributes root `a`, which is in environment `elsewhere`"),
    ] {
        let error = attempt.ready_with(roots.clone()).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert!(attempt.is_current(), "nothing was reported");
        let _ = roots;
    }
    assert_eq!(attempt.ready_with(many(MAX_CONTRIBUTED_ROOTS)), Ok(Completion::Recorded));
    let ready = registry.ready(&id("worker")).unwrap();
    assert_eq!(ready.contributed().roots().len(), 256);
    assert!(registry.contribute(&ready, vec![root("a", "elsewhere")]).is_err());
    assert_eq!(registry.ready(&id("worker")).unwrap().contributed().roots().len(), 256);

    // They belong to the handle: what the old one brings after a replacement is not the new one's.
    registry.replace(&id("worker"), silent()).unwrap();
    assert_eq!(registry.contribute(&ready, many(1)), Ok(Completion::Stale));
    assert_eq!(next(&attempts).ready(), Ok(Completion::Recorded));
    assert_eq!(registry.contribute(&ready, many(1)), Ok(Completion::Stale));
    assert_eq!(registry.ready(&id("worker")).unwrap().contributed().roots().len(), 0);
}

#[test]
fn what_was_derived_from_a_root_survives_a_replacement() {
    let (registry, attempts, _) = world();
    registry.register_remote("worker", silent(), Start::Now).unwrap();
    let cache = RootCache::new();
    let (a, b) = (root("a", "worker"), root("a", "local"));
    assert_eq!(*cache.get_or_derive(&a, || "through the first"), "through the first");
    assert_eq!(*cache.get_or_derive(&b, || "of local"), "of local");
    next(&attempts).ready().map(drop).unwrap();
    registry.replace(&id("worker"), silent()).unwrap();
    assert_eq!(*cache.get_or_derive(&a, || "through the second"), "through the first");
    // Another path is another root.
    let moved = SelectedCapabilityRoot::new("a", "worker", PathUri::parse("/elsewhere").unwrap());
    assert_eq!(cache.get(&moved), None);
    assert_eq!(cache.get_or_try_derive(&moved, || Err("unreadable")), Err("unreadable"));
    assert_eq!((cache.len(), cache.get(&moved)), (2, None));
    assert_eq!(cache.remove_environment(&id("worker")), 1);
    assert_eq!((cache.get(&a), cache.get(&b).as_deref()), (None, Some(&"of local")));
    assert_eq!(cache.remove(&b).as_deref(), Some(&"of local"));
    assert!(cache.is_empty());
}
