//! For any sequence of registry events: a snapshot says what was so when it was taken, resolving inside it is a
//! function of it alone, and what lies outside is looked at once per step.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use threadkeep_capability::{
    CapabilityRootSelection, Completion, EnvironmentHandle, EnvironmentId, EnvironmentRegistry, EnvironmentSnapshot,
    HandleId, PathUri, RootOrigin, SelectedCapabilityRoot, Start, StartupAttempt, StepRoots,
};

const ENVIRONMENTS: usize = 5;

struct Handle;

impl EnvironmentHandle for Handle {
    fn declared_id(&self) -> Option<&str> {
        None
    }
}

fn id(n: usize) -> EnvironmentId {
    format!("e{n}").into()
}

fn root(name: usize, environment: usize) -> SelectedCapabilityRoot {
    SelectedCapabilityRoot::new(format!("r{name}"), id(environment), PathUri::parse(&format!("/{name}")).unwrap())
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Local(usize),
    Remote(usize),
    Lazy(usize),
    Replace(usize),
    Start(usize),
    /// Reports on one of all attempts there ever were, current or not.
    Ready(prop::sample::Index),
    Failed(prop::sample::Index),
    Contribute(usize, usize),
}

fn event() -> impl Strategy<Value = Event> {
    let e = 0..ENVIRONMENTS;
    prop_oneof![
        1 => e.clone().prop_map(Event::Local),
        1 => e.clone().prop_map(Event::Remote),
        1 => e.clone().prop_map(Event::Lazy),
        3 => e.clone().prop_map(Event::Replace),
        1 => e.clone().prop_map(Event::Start),
        6 => any::<prop::sample::Index>().prop_map(Event::Ready),
        2 => any::<prop::sample::Index>().prop_map(Event::Failed),
        2 => (e, 0..8usize).prop_map(|(e, n)| Event::Contribute(e, n)),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(event(), 0..30)
}

fn selection() -> impl Strategy<Value = Vec<SelectedCapabilityRoot>> {
    prop::collection::vec((0..8usize, 0..ENVIRONMENTS).prop_map(|(name, e)| root(name, e)), 0..12)
}

/// What the rules say, kept beside the registry.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Model {
    Waiting(HandleId),
    Starting(HandleId, usize),
    Ready(HandleId),
    Failed(HandleId),
}

struct World {
    registry: EnvironmentRegistry<Handle>,
    attempts: Arc<Mutex<Vec<StartupAttempt<Handle>>>>,
    model: BTreeMap<usize, (bool, Model)>,
}

impl World {
    fn new() -> Self {
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let kept = attempts.clone();
        Self {
            registry: EnvironmentRegistry::new(move |attempt| kept.lock().unwrap().push(attempt)),
            attempts,
            model: BTreeMap::new(),
        }
    }

    fn last_attempt(&self) -> usize {
        self.attempts.lock().unwrap().len().wrapping_sub(1)
    }

    fn apply(&mut self, event: Event) {
        let World { registry, attempts, model } = self;
        match event {
            Event::Local(e) => match registry.register_local(id(e), Handle) {
                Ok(handle) => drop(model.insert(e, (true, Model::Ready(handle)))),
                Err(_) => assert!(model.contains_key(&e)),
            },
            Event::Remote(e) => {
                if let Ok(handle) = registry.register_remote(id(e), Handle, Start::Now) {
                    let last = self.last_attempt();
                    self.model.insert(e, (false, Model::Starting(handle, last)));
                }
            }
            Event::Lazy(e) => {
                if let Ok(handle) = registry.register_remote(id(e), Handle, Start::WhenAsked) {
                    model.insert(e, (false, Model::Waiting(handle)));
                }
            }
            Event::Replace(e) => {
                if let Ok(handle) = registry.replace(&id(e), Handle) {
                    let last = self.last_attempt();
                    let (local, now) = self.model.get_mut(&e).unwrap();
                    *now = match (*local, *now) {
                        (true, _) => Model::Ready(handle),
                        (false, Model::Waiting(_)) => Model::Waiting(handle),
                        (false, Model::Starting(..) | Model::Ready(_) | Model::Failed(_)) => {
                            Model::Starting(handle, last)
                        }
                    };
                }
            }
            Event::Start(e) => {
                if registry.start(&id(e)).is_ok() {
                    self.asked(e, true);
                }
            }
            Event::Ready(which) => {
                let attempts = attempts.lock().unwrap();
                if !attempts.is_empty() {
                    let n = which.index(attempts.len());
                    let counted = attempts[n].ready().unwrap();
                    assert_eq!(counted, reported(model, n, Model::Ready));
                }
            }
            Event::Failed(which) => {
                let attempts = attempts.lock().unwrap();
                if !attempts.is_empty() {
                    let n = which.index(attempts.len());
                    let counted = attempts[n].failed("no");
                    assert_eq!(counted, reported(model, n, Model::Failed));
                }
            }
            Event::Contribute(e, count) => {
                if let Some(ready) = registry.ready(&id(e)) {
                    let roots = (0..count).map(|name| root(name, e)).collect();
                    assert_eq!(registry.contribute(&ready, roots), Ok(Completion::Recorded));
                }
            }
        }
    }

    fn asked(&mut self, e: usize, retry: bool) {
        let last = self.last_attempt();
        if let Some((_, now)) = self.model.get_mut(&e) {
            match *now {
                Model::Waiting(handle) => *now = Model::Starting(handle, last),
                Model::Failed(handle) if retry => *now = Model::Starting(handle, last),
                Model::Failed(_) | Model::Starting(..) | Model::Ready(_) => {}
            }
        }
    }

    /// A snapshot, checked against the model.
    fn snapshot(&mut self, turn: &[usize]) -> EnvironmentSnapshot<Handle> {
        let ids: Vec<_> = turn.iter().map(|&e| id(e)).collect();
        let before = self.attempts.lock().unwrap().len();
        let snapshot = self.registry.snapshot(&ids);
        let mut started = before;
        for &e in turn {
            let says = snapshot.get(&id(e)).map(|ready| ready.map(|ready| ready.handle_id()));
            let (expected, next) = match self.model.get(&e).map(|m| m.1) {
                None | Some(Model::Failed(_)) => (None, None),
                Some(Model::Ready(handle)) => (Some(Some(handle)), None),
                Some(Model::Starting(..)) => (Some(None), None),
                Some(Model::Waiting(handle)) => (Some(None), Some(Model::Starting(handle, started))),
            };
            assert_eq!(says, expected);
            if let Some(next) = next {
                started += 1;
                self.model.get_mut(&e).unwrap().1 = next;
            }
        }
        assert_eq!(self.attempts.lock().unwrap().len(), started);
        snapshot
    }
}

fn reported(model: &mut BTreeMap<usize, (bool, Model)>, attempt: usize, to: fn(HandleId) -> Model) -> Completion {
    for (_, now) in model.values_mut() {
        if let Model::Starting(handle, awaited) = *now
            && awaited == attempt
        {
            *now = to(handle);
            return Completion::Recorded;
        }
    }
    Completion::Stale
}

type Seen = Vec<(String, EnvironmentId, HandleId, RootOrigin)>;

fn seen(step: &StepRoots<Handle>) -> Seen {
    step.roots()
        .map(|r| {
            assert_eq!(r.root.environment_id(), r.environment.environment_id());
            (r.root.id().to_owned(), r.root.environment_id().clone(), r.environment.handle_id(), r.origin)
        })
        .collect()
}

/// Resolution inside a snapshot, said once more from the snapshot alone.
fn from_snapshot(selection: &CapabilityRootSelection, snapshot: &EnvironmentSnapshot<Handle>) -> Seen {
    let mut seen = Seen::new();
    for root in selection.roots() {
        if let Some(Some(ready)) = snapshot.get(root.environment_id()) {
            seen.push((root.id().into(), root.environment_id().clone(), ready.handle_id(), RootOrigin::Thread));
        }
    }
    for (environment, ready) in snapshot.iter() {
        for root in ready.map(|ready| ready.contributed().roots()).unwrap_or_default() {
            let taken = seen.iter().any(|s| s.0 == root.id()) || selection.get(root.id()).is_some();
            if let (false, Some(ready)) = (taken, ready) {
                seen.push((root.id().into(), environment.clone(), ready.handle_id(), RootOrigin::Environment));
            }
        }
    }
    seen
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn inside_a_snapshot_only_the_snapshot_counts(
        before in events(), between in events(), after in events(),
        turn in prop::collection::vec(0..ENVIRONMENTS, 0..8), roots in selection(),
    ) {
        let mut world = World::new();
        before.into_iter().for_each(|event| world.apply(event));
        let snapshot = world.snapshot(&turn);
        let inside: CapabilityRootSelection =
            roots.into_iter().filter(|root| snapshot.get(root.environment_id()).is_some()).collect();
        let expected = from_snapshot(&inside, &snapshot);

        let at_once = StepRoots::resolve(&inside, &snapshot, &world.registry);
        prop_assert_eq!(seen(&at_once), expected.clone());
        between.into_iter().for_each(|event| world.apply(event));
        let started = world.attempts.lock().unwrap().len();
        let later = StepRoots::resolve(&inside, &snapshot, &world.registry);
        prop_assert_eq!(seen(&later), expected.clone());
        prop_assert_eq!(later.warnings(), at_once.warnings());
        prop_assert_eq!(world.attempts.lock().unwrap().len(), started, "nothing is asked of the registry");
        after.into_iter().for_each(|event| world.apply(event));
        for step in [&at_once, &later] {
            prop_assert_eq!(seen(step), expected.clone());
        }
        // Not even which registry it is matters.
        prop_assert_eq!(seen(&StepRoots::resolve(&inside, &snapshot, &World::new().registry)), expected);
    }

    #[test]
    fn outside_a_snapshot_one_step_looks_once(
        before in events(), between in events(),
        turn in prop::collection::vec(0..ENVIRONMENTS, 0..3), roots in selection(), more in selection(),
    ) {
        let mut world = World::new();
        before.into_iter().for_each(|event| world.apply(event));
        let snapshot = world.snapshot(&turn);
        let selection: CapabilityRootSelection = roots.into();
        let step = StepRoots::resolve(&selection, &snapshot, &world.registry);
        let first = seen(&step);
        for root in selection.roots() {
            let e: usize = root.environment_id().as_str()[1..].parse().unwrap();
            let ready = step.roots().find(|r| r.root == root).map(|r| r.environment.handle_id());
            match (snapshot.get(root.environment_id()), world.model.get(&e).map(|m| m.1)) {
                (Some(captured), _) => prop_assert_eq!(ready, captured.map(|ready| ready.handle_id())),
                (None, Some(Model::Ready(handle))) => prop_assert_eq!(ready, Some(handle)),
                (None, None | Some(Model::Waiting(_) | Model::Starting(..) | Model::Failed(_))) => {
                    prop_assert_eq!(ready, None);
                }
            }
        }
        // The order in which those that waited were started is the selection's.
        let mut at = world.last_attempt();
        for id in selection.environments().iter().rev() {
            let e: usize = id.as_str()[1..].parse().unwrap();
            if snapshot.get(id).is_none()
                && let Some((_, now)) = world.model.get_mut(&e)
                && let Model::Waiting(handle) = *now
            {
                *now = Model::Starting(handle, at);
                at = at.wrapping_sub(1);
            }
        }
        between.into_iter().for_each(|event| world.apply(event));
        prop_assert_eq!(seen(&step), first.clone());
        prop_assert_eq!(seen(&step.with_selection(&selection, &world.registry)), first.clone());
        // A wider selection in the same step agrees on all environments that were looked at.
        let wider: CapabilityRootSelection = selection.roots().cloned().chain(more).collect();
        let wider = step.with_selection(&wider, &world.registry);
        for root in wider.roots() {
            if root.origin == RootOrigin::Thread && selection.environments().contains(root.root.environment_id()) {
                let known = first.iter().find(|s| &s.1 == root.root.environment_id() && s.3 == RootOrigin::Thread);
                prop_assert_eq!(known.map(|s| s.2), Some(root.environment.handle_id()));
            }
        }
    }
}
