//! Replacement, start-up and resolution in every order: these tests run under `shuttle`, which switches threads
//! wherever a lock is taken, and notices a lock that is taken twice.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use shuttle::thread;

use crate::*;

/// A handle that knows whether its own start-up has ended well.
struct Handle {
    number: usize,
    started: AtomicBool,
}

impl EnvironmentHandle for Handle {
    fn declared_id(&self) -> Option<&str> {
        Some("worker")
    }
}

fn handle(number: usize) -> Handle {
    Handle { number, started: AtomicBool::new(false) }
}

fn worker() -> EnvironmentId {
    "worker".into()
}

fn selection() -> CapabilityRootSelection {
    let root = |id: &str| SelectedCapabilityRoot::new(id, worker(), PathUri::parse("/opt/x").unwrap());
    [root("a"), root("b")].into_iter().collect()
}

/// Starts each handle on a thread of its own; every third one fails.
fn start_in_background(attempt: StartupAttempt<Handle>) {
    thread::spawn(move || {
        thread::yield_now();
        if attempt.handle().number % 3 == 2 {
            let _ = attempt.failed("refused");
        } else {
            attempt.handle().started.store(true, Ordering::SeqCst);
            let _ = attempt.ready().unwrap();
        }
    });
}

/// No step may have an environment through a handle that is not ready itself, nor through two handles at once.
fn check(step: &StepRoots<Handle>) -> Option<usize> {
    let numbers: Vec<usize> = step
        .roots()
        .map(|r| {
            let handle = r.environment.handle();
            assert!(handle.started.load(Ordering::SeqCst), "handle {} is used and not ready", handle.number);
            handle.number
        })
        .collect();
    assert!(numbers.is_empty() || numbers == [numbers[0]; 2], "{numbers:?}");
    assert_eq!(numbers.len() + step.omitted().count(), 2);
    numbers.first().copied()
}

fn in_every_order(scenario: impl Fn() + Send + Sync + 'static) {
    let scenario = Arc::new(scenario);
    let again = scenario.clone();
    shuttle::check_random(move || again(), 3_000);
    shuttle::check_pct(move || scenario(), 1_500, 3);
}

fn steps_beside_replacements(start: Start, turn: Vec<EnvironmentId>) {
    let registry = EnvironmentRegistry::new(start_in_background);
    registry.register_remote("worker", handle(0), start).unwrap();
    let replacing = {
        let registry = registry.clone();
        thread::spawn(move || {
            for number in 1..4 {
                registry.replace(&worker(), handle(number)).unwrap();
            }
        })
    };
    let stepping = {
        let registry = registry.clone();
        thread::spawn(move || {
            let mut last = 0;
            for _ in 0..3 {
                let snapshot = registry.snapshot(&turn);
                let step = StepRoots::resolve(&selection(), &snapshot, &registry);
                let through = check(&step);
                thread::yield_now();
                // The same step, later: nothing of it has changed.
                let again = step.with_selection(&selection(), &registry);
                assert_eq!(check(&again), through);
                if let Some(Some(ready)) = snapshot.get(&worker()) {
                    assert_eq!(through, Some(ready.handle().number));
                }
                // Later steps never go back to an older handle.
                if let Some(through) = through {
                    assert!(through >= last, "{through} after {last}");
                    last = through;
                }
            }
        })
    };
    replacing.join().unwrap();
    stepping.join().unwrap();
}

#[test]
fn a_step_has_a_ready_handle_or_none_inside_its_snapshot() {
    in_every_order(|| steps_beside_replacements(Start::Now, vec![worker()]));
    in_every_order(|| steps_beside_replacements(Start::WhenAsked, vec![worker()]));
}

#[test]
fn a_step_has_a_ready_handle_or_none_outside_its_snapshot() {
    in_every_order(|| steps_beside_replacements(Start::Now, vec![]));
    in_every_order(|| steps_beside_replacements(Start::WhenAsked, vec![]));
}

#[test]
fn a_late_report_of_an_older_attempt_changes_nothing() {
    in_every_order(|| {
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let kept = attempts.clone();
        let registry = EnvironmentRegistry::new(move |attempt| kept.lock().unwrap().push(Arc::new(attempt)));
        registry.register_remote("worker", handle(0), Start::Now).unwrap();
        let old: Arc<StartupAttempt<Handle>> = attempts.lock().unwrap()[0].clone();
        let reporting = thread::spawn(move || {
            old.handle().started.store(true, Ordering::SeqCst);
            old.ready().unwrap()
        });
        registry.replace(&worker(), handle(1)).unwrap();
        let step = StepRoots::resolve(&selection(), &registry.snapshot(&[worker()]), &registry);
        assert_eq!(check(&step), None, "the new handle has not reported");
        let _ = reporting.join().unwrap();
        assert_eq!(registry.state(&worker()), Some(EnvironmentState::Starting));
    });
}

#[test]
fn a_lazy_environment_starts_once_however_many_ask() {
    in_every_order(|| {
        let starts = Arc::new(AtomicUsize::new(0));
        let counted = starts.clone();
        let registry = EnvironmentRegistry::new(move |attempt| {
            counted.fetch_add(1, Ordering::SeqCst);
            start_in_background(attempt);
        });
        registry.register_remote("worker", handle(0), Start::WhenAsked).unwrap();
        let askers: Vec<_> = (0..3)
            .map(|n| {
                let registry = registry.clone();
                thread::spawn(move || match n {
                    0 => drop(registry.snapshot(&[worker()])),
                    1 => drop(StepRoots::resolve(&selection(), &registry.snapshot([]), &registry)),
                    _ => drop(registry.start(&worker()).unwrap()),
                })
            })
            .collect();
        askers.into_iter().for_each(|asker| asker.join().unwrap());
        assert_eq!(starts.load(Ordering::SeqCst), 1);
    });
}

/// A start-up that uses all that has a lock: were one held meanwhile, shuttle would report it.
#[test]
fn no_lock_is_held_while_a_startup_runs_or_an_event_is_told() {
    in_every_order(|| {
        type Both = (EnvironmentRegistry<Handle>, StepRoots<Handle>);
        let world: Arc<Mutex<Option<Arc<Both>>>> = Arc::default();
        let use_all = |world: &Mutex<Option<Arc<Both>>>| {
            let both = world.lock().unwrap().clone();
            if let Some((registry, step)) = both.as_deref() {
                let _ = (registry.state(&worker()), registry.passive_snapshot(&[worker()]));
                let _ = step.with_selection(&selection(), registry);
            }
        };
        let (starting, observing) = (world.clone(), world.clone());
        let registry = EnvironmentRegistry::with_observer(
            move |attempt| {
                use_all(&starting);
                start_in_background(attempt);
            },
            move |_| use_all(&observing),
        );
        let step = StepRoots::resolve(&CapabilityRootSelection::default(), &registry.snapshot([]), &registry);
        let both = Arc::new((registry, step));
        *world.lock().unwrap() = Some(both.clone());
        let (registry, step) = &*both;
        registry.register_remote("worker", handle(0), Start::WhenAsked).unwrap();
        let other = both.clone();
        let asking = thread::spawn(move || drop(other.1.with_selection(&selection(), &other.0)));
        let _ = step.with_selection(&selection(), registry);
        registry.replace(&worker(), handle(1)).unwrap();
        asking.join().unwrap();
        // What keeps itself alive is let go, for the next run.
        *world.lock().unwrap() = None;
    });
}

#[test]
fn one_step_of_several_threads_does_not_contradict_itself() {
    in_every_order(|| {
        let registry = EnvironmentRegistry::new(start_in_background);
        registry.register_remote("worker", handle(0), Start::Now).unwrap();
        let empty = CapabilityRootSelection::default();
        let step = Arc::new(StepRoots::resolve(&empty, &registry.snapshot([]), &registry));
        let replacing = {
            let registry = registry.clone();
            thread::spawn(move || registry.replace(&worker(), handle(1)).unwrap())
        };
        let views: Vec<_> = (0..2)
            .map(|_| {
                let (step, registry) = (step.clone(), registry.clone());
                thread::spawn(move || check(&step.with_selection(&selection(), &registry)))
            })
            .collect();
        let views: Vec<_> = views.into_iter().map(|view| view.join().unwrap()).collect();
        replacing.join().unwrap();
        assert_eq!(views[0], views[1]);
    });
}

#[test]
fn events_come_in_the_order_of_the_changes() {
    in_every_order(|| {
        let events = Arc::new(Mutex::new(Vec::new()));
        let heard = events.clone();
        let registry = EnvironmentRegistry::with_observer(start_in_background, move |event| {
            heard.lock().unwrap().push((event.handle_id, event.kind.clone()));
            // Whoever delivers may be interrupted at any place.
            thread::yield_now();
        });
        let first = registry.register_remote("worker", handle(0), Start::Now).unwrap();
        let other = registry.clone();
        let replacing = thread::spawn(move || other.replace(&worker(), handle(1)).unwrap());
        let last = registry.replace(&worker(), handle(3)).unwrap().max(replacing.join().unwrap());
        while registry.state(&worker()) == Some(EnvironmentState::Starting) {
            thread::yield_now();
        }
        // A change is visible before it is told.
        while !matches!(events.lock().unwrap().last(), Some((id, EnvironmentEventKind::Ready)) if *id == last) {
            thread::yield_now();
        }
        let events = events.lock().unwrap();
        assert_eq!(events[0], (first, EnvironmentEventKind::Registered));
        let mut current = first;
        for (id, kind) in &events[1..] {
            match kind {
                EnvironmentEventKind::Registered => panic!("twice"),
                EnvironmentEventKind::Replaced => {
                    assert!(*id > current);
                    current = *id;
                }
                EnvironmentEventKind::Ready | EnvironmentEventKind::Failed { .. } => assert_eq!(*id, current),
            }
        }
    });
}

#[test]
fn threads_that_derive_at_once_share_what_came_first() {
    in_every_order(|| {
        let cache = Arc::new(RootCache::new());
        let deriving: Vec<_> = (0..3)
            .map(|n| {
                let cache = cache.clone();
                thread::spawn(move || {
                    cache.get_or_derive(selection().get("a").unwrap(), || {
                        // Using the cache in here would hang if its lock were held.
                        let _ = cache.len();
                        n
                    })
                })
            })
            .collect();
        let got: Vec<_> = deriving.into_iter().map(|derived| *derived.join().unwrap()).collect();
        assert_eq!(got, [got[0]; 3]);
        assert_eq!(cache.len(), 1);
    });
}
