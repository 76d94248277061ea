//! Resolution of 100 roots in 20 environments, which happens at each model step. Goal: under 5 µs.
//!
//! `cargo bench -p threadkeep-capability`

use divan::{Bencher, black_box};
use threadkeep_capability::{
    CapabilityRootSelection, Completion, EnvironmentHandle, EnvironmentId, EnvironmentRegistry, PathUri,
    SelectedCapabilityRoot, Start, StepRoots,
};

const ROOTS: usize = 100;
const ENVIRONMENTS: usize = 20;

struct Handle;

impl EnvironmentHandle for Handle {
    fn declared_id(&self) -> Option<&str> {
        None
    }
}

fn id(n: usize) -> EnvironmentId {
    EnvironmentId::from(format!("environment-{n:03}"))
}

fn root(name: &str, n: usize, environment: usize) -> SelectedCapabilityRoot {
    let path = PathUri::parse(&format!("/opt/capabilities/{name}-{n}")).expect("an absolute path");
    SelectedCapabilityRoot::new(format!("{name}-{n}"), id(environment), path)
}

fn selection() -> CapabilityRootSelection {
    (0..ROOTS).map(|n| root("root", n, n % ENVIRONMENTS)).collect()
}

/// All environments, every fourth still starting.
fn registry() -> EnvironmentRegistry<Handle> {
    let registry = EnvironmentRegistry::new(|attempt| {
        let number: usize = attempt.environment_id().as_str()["environment-".len()..].parse().expect("a number");
        if number % 4 == 3 {
            std::mem::forget(attempt);
        } else {
            assert_eq!(attempt.ready(), Ok(Completion::Recorded));
        }
    });
    for n in 0..ENVIRONMENTS {
        registry.register_remote(id(n), Handle, Start::Now).expect("new");
    }
    registry
}

fn turn() -> Vec<EnvironmentId> {
    (0..ENVIRONMENTS).map(id).collect()
}

/// Everything stands in the snapshot; resolving and walking over what came out.
#[divan::bench]
fn in_the_snapshot(bencher: Bencher<'_, '_>) {
    let (selection, registry) = (selection(), registry());
    let snapshot = registry.snapshot(&turn());
    assert_eq!(StepRoots::resolve(&selection, &snapshot, &registry).roots().count(), ROOTS * 3 / 4);
    bencher.bench_local(|| {
        let step = StepRoots::resolve(black_box(&selection), black_box(&snapshot), &registry);
        step.roots().map(|r| r.root.id().len()).sum::<usize>()
    });
}

/// Nothing stands in the snapshot: every environment is looked at in the registry.
#[divan::bench]
fn outside_the_snapshot(bencher: Bencher<'_, '_>) {
    let (selection, registry) = (selection(), registry());
    let snapshot = registry.snapshot([]);
    assert_eq!(StepRoots::resolve(&selection, &snapshot, &registry).roots().count(), ROOTS * 3 / 4);
    bencher.bench_local(|| {
        let step = StepRoots::resolve(black_box(&selection), black_box(&snapshot), &registry);
        step.roots().map(|r| r.root.id().len()).sum::<usize>()
    });
}

/// In the snapshot, and five environments contribute ten roots each.
#[divan::bench]
fn with_contributed_roots(bencher: Bencher<'_, '_>) {
    let (selection, registry) = (selection(), registry());
    for n in [0, 4, 8, 12, 16] {
        let ready = registry.ready(&id(n)).expect("ready");
        let roots = (0..10).map(|at| root("own", 10 * n + at, n)).collect();
        let _ = registry.contribute(&ready, roots).expect("valid");
    }
    let snapshot = registry.snapshot(&turn());
    assert_eq!(StepRoots::resolve(&selection, &snapshot, &registry).roots().count(), ROOTS * 3 / 4 + 50);
    bencher.bench_local(|| {
        let step = StepRoots::resolve(black_box(&selection), black_box(&snapshot), &registry);
        step.roots().map(|r| r.root.id().len()).sum::<usize>()
    });
}

/// The snapshot itself, also once a step.
#[divan::bench]
fn snapshot(bencher: Bencher<'_, '_>) {
    let (registry, turn) = (registry(), turn());
    bencher.bench_local(|| registry.snapshot(black_box(&turn)));
}

fn main() {
    divan::main();
}
