//! The environments of a process: which handle each has now, and what has become of its start-up.
//!
//! One lock guards all of it and is held for looks and assignments alone. What belongs to others runs after it was let
//! go: the starter, the observer, the drop of a handle ([`After`]).

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::mem;
use std::sync::Arc;

use crate::environment::{
    EnvironmentEvent, EnvironmentEventKind, EnvironmentHandle, EnvironmentState, HandleId, ReadyEnvironment, Start,
};
use crate::snapshot::EnvironmentSnapshot;
use crate::startup::{Completion, StartupAttempt, check_identity};
use crate::sync::Mutex;
use crate::{CapabilityError, ContributedRoots, EnvironmentId, SelectedCapabilityRoot};

/// The environments that this process knows, shared by its clones.
///
/// An id always names the same logical executor; the handle on it may be replaced. The registry moves no bytes and
/// keeps no connection alive: a *starter* given by the caller starts a handle however it likes, and reports back
/// through the
/// [`StartupAttempt`] it was given. No async runtime is needed, and none is in the way.
pub struct EnvironmentRegistry<H>(Arc<Shared<H>>);

type Starter<H> = Box<dyn Fn(StartupAttempt<H>) + Send + Sync>;
type Observer = Box<dyn Fn(&EnvironmentEvent) + Send + Sync>;

pub(crate) struct Shared<H> {
    state: Mutex<State<H>>,
    starter: Starter<H>,
    observer: Observer,
}

struct State<H> {
    environments: HashMap<EnvironmentId, Entry<H>>,
    /// Numbers handles and attempts alike; no number is given twice.
    numbers: u64,
    events: VecDeque<EnvironmentEvent>,
    delivery: Delivery,
}

/// Events are delivered by one thread at a time, so that they arrive in order; it takes along what others add.
#[derive(PartialEq, Eq)]
enum Delivery {
    Idle,
    Running,
}

struct Entry<H> {
    place: Place,
    handle_id: HandleId,
    handle: Arc<H>,
    /// The attempt whose report counts; no attempt has the number of another handle's.
    attempt: u64,
    startup: Startup<H>,
}

enum Place {
    Local,
    Remote,
}

enum Startup<H> {
    NotStarted,
    Starting,
    Ready(Arc<ReadyEnvironment<H>>),
    Failed(Arc<str>),
}

/// How a start-up ended.
pub(crate) enum Outcome {
    Ready(ContributedRoots),
    Failed(Arc<str>),
}

/// What a look at an environment found.
pub(crate) enum Look<H> {
    Unknown,
    NotStarted,
    Starting,
    Ready(Arc<ReadyEnvironment<H>>),
    Failed(Arc<str>),
}

/// Whether a look starts what waits to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Start,
    Passive,
}

/// What is to be done once the lock is let go.
#[must_use]
pub(crate) struct After<H> {
    start: Vec<StartupAttempt<H>>,
    replaced: Vec<Entry<H>>,
    outdated: Vec<Startup<H>>,
}

impl<H> After<H> {
    fn nothing() -> Self {
        Self { start: Vec::new(), replaced: Vec::new(), outdated: Vec::new() }
    }
}

impl<H: EnvironmentHandle> EnvironmentRegistry<H> {
    /// A registry without environments and without an observer of events. For `starter` see [`Self::with_observer`].
    pub fn new(starter: impl Fn(StartupAttempt<H>) + Send + Sync + 'static) -> Self {
        Self::with_observer(starter, |_| {})
    }

    /// A registry without environments.
    ///
    /// `starter` is called once for each attempt, on the thread that asked for the environment and without any lock; it
    /// should hand the attempt to whatever does the work and return. It may report at once.
    ///
    /// `observer` is called for each event, in the order of the changes, one at a time and without any lock, by one of
    /// the threads that make changes; it may use the registry, and the events of that follow after its return.
    pub fn with_observer(
        starter: impl Fn(StartupAttempt<H>) + Send + Sync + 'static,
        observer: impl Fn(&EnvironmentEvent) + Send + Sync + 'static,
    ) -> Self {
        let state =
            State { environments: HashMap::new(), numbers: 0, events: VecDeque::new(), delivery: Delivery::Idle };
        Self(Arc::new(Shared { state: Mutex::new(state), starter: Box::new(starter), observer: Box::new(observer) }))
    }

    /// Registers an environment of this machine, which needs no start-up and is always ready.
    ///
    /// # Errors
    ///
    /// [`CapabilityError::AlreadyRegistered`], [`CapabilityError::IdentityMismatch`].
    pub fn register_local(
        &self,
        environment_id: impl Into<EnvironmentId>,
        handle: H,
    ) -> Result<HandleId, CapabilityError> {
        self.register(environment_id.into(), handle, Place::Local, Start::Now)
    }

    /// Registers an environment that is reached through a handle which has to start.
    ///
    /// # Errors
    ///
    /// [`CapabilityError::AlreadyRegistered`], [`CapabilityError::IdentityMismatch`].
    pub fn register_remote(
        &self,
        environment_id: impl Into<EnvironmentId>,
        handle: H,
        start: Start,
    ) -> Result<HandleId, CapabilityError> {
        self.register(environment_id.into(), handle, Place::Remote, start)
    }

    fn register(
        &self,
        environment_id: EnvironmentId,
        handle: H,
        place: Place,
        start: Start,
    ) -> Result<HandleId, CapabilityError> {
        check_identity(&environment_id, &handle)?;
        // Kept beyond the lock, so that a refused handle is not dropped under it.
        let handle = Arc::new(handle);
        self.0.change(|state, after| {
            if state.environments.contains_key(&environment_id) {
                return Err(CapabilityError::AlreadyRegistered { environment_id: environment_id.clone() });
            }
            let number = state.next_number();
            let handle_id = HandleId(number);
            let handle = handle.clone();
            let entry = Entry { place, handle_id, handle, attempt: number, startup: Startup::NotStarted };
            state.tell(&environment_id, handle_id, EnvironmentEventKind::Registered);
            let entry = state.environments.entry(environment_id.clone()).insert_entry(entry).into_mut();
            let begun = entry.begin(&self.0, &environment_id, start, after);
            state.tell_ready(&environment_id, handle_id, begun);
            Ok(handle_id)
        })
    }

    /// Replaces the handle of an environment, as on a reconnect. The new one starts now (a local one is ready at once;
    /// one that was never asked for goes on waiting to be), and reports on the old one do not count any more. Snapshots
    /// that captured the old one keep it.
    ///
    /// # Errors
    ///
    /// [`CapabilityError::UnknownEnvironment`], [`CapabilityError::IdentityMismatch`]; the old handle then stays.
    pub fn replace(&self, environment_id: &EnvironmentId, handle: H) -> Result<HandleId, CapabilityError> {
        check_identity(environment_id, &handle)?;
        let handle = Arc::new(handle);
        self.0.change(|state, after| {
            let number = state.next_number();
            let handle_id = HandleId(number);
            let Some(entry) = state.environments.get_mut(environment_id) else {
                return Err(CapabilityError::UnknownEnvironment { environment_id: environment_id.clone() });
            };
            let start = match entry.startup {
                Startup::NotStarted => Start::WhenAsked,
                Startup::Starting | Startup::Ready(_) | Startup::Failed(_) => Start::Now,
            };
            let place = mem::replace(&mut entry.place, Place::Remote);
            let new = Entry { place, handle_id, handle: handle.clone(), attempt: number, startup: Startup::NotStarted };
            after.replaced.push(mem::replace(entry, new));
            let begun = entry.begin(&self.0, environment_id, start, after);
            state.tell(environment_id, handle_id, EnvironmentEventKind::Replaced);
            state.tell_ready(environment_id, handle_id, begun);
            Ok(handle_id)
        })
    }

    /// Starts an environment that waits to be asked for, or whose start-up failed; leaves one that is starting or ready
    /// alone. Says what its state was before.
    ///
    /// # Errors
    ///
    /// [`CapabilityError::UnknownEnvironment`].
    pub fn start(&self, environment_id: &EnvironmentId) -> Result<EnvironmentState, CapabilityError> {
        self.0.change(|state, after| {
            let number = state.next_number();
            let Some(entry) = state.environments.get_mut(environment_id) else {
                return Err(CapabilityError::UnknownEnvironment { environment_id: environment_id.clone() });
            };
            let before = entry.startup.state();
            match entry.startup {
                Startup::NotStarted | Startup::Failed(_) => {
                    entry.attempt = number;
                    // A local one is never in these states.
                    let _ = entry.begin(&self.0, environment_id, Start::Now, after);
                }
                Startup::Starting | Startup::Ready(_) => {}
            }
            Ok(before)
        })
    }

    /// Sets the roots that a ready environment contributes, in place of those it contributed before. Snapshots that
    /// were taken keep what they have. [`Completion::Stale`] if its handle has been replaced meanwhile.
    ///
    /// # Errors
    ///
    /// What is wrong with the roots ([`ContributedRoots`]); nothing is changed then.
    pub fn contribute(
        &self,
        ready: &ReadyEnvironment<H>,
        roots: Vec<SelectedCapabilityRoot>,
    ) -> Result<Completion, CapabilityError> {
        let contributed = ContributedRoots::check(&ready.environment_id, roots)?;
        Ok(self.0.change(|state, after| {
            let Some(entry) = state.environments.get_mut(&ready.environment_id) else { return Completion::Stale };
            if entry.handle_id != ready.handle_id || !matches!(entry.startup, Startup::Ready(_)) {
                return Completion::Stale;
            }
            let now_ready = entry.ready(&ready.environment_id, contributed);
            after.outdated.push(mem::replace(&mut entry.startup, now_ready));
            Completion::Recorded
        }))
    }

    /// What has become of an environment's start-up; `None` if it is not known. Starts nothing.
    #[must_use]
    pub fn state(&self, environment_id: &EnvironmentId) -> Option<EnvironmentState> {
        self.0.state.lock().environments.get(environment_id).map(|entry| entry.startup.state())
    }

    /// An environment if it is ready now. Starts nothing. For use outside of steps; a step has its snapshot.
    #[must_use]
    pub fn ready(&self, environment_id: &EnvironmentId) -> Option<Arc<ReadyEnvironment<H>>> {
        match &self.0.state.lock().environments.get(environment_id)?.startup {
            Startup::Ready(ready) => Some(ready.clone()),
            Startup::NotStarted | Startup::Starting | Startup::Failed(_) => None,
        }
    }

    /// Takes the snapshot of a step, over the environments of its turn, in one look. Those that wait to be asked for
    /// are started and stand in it as starting; those that failed or are not known do not stand in it.
    pub fn snapshot<'a>(&self, turn: impl IntoIterator<Item = &'a EnvironmentId>) -> EnvironmentSnapshot<H> {
        self.take_snapshot(turn, Ask::Start)
    }

    /// As [`Self::snapshot`], but starts nothing: what nobody asked for yet does not stand in it.
    pub fn passive_snapshot<'a>(&self, turn: impl IntoIterator<Item = &'a EnvironmentId>) -> EnvironmentSnapshot<H> {
        self.take_snapshot(turn, Ask::Passive)
    }

    fn take_snapshot<'a>(&self, turn: impl IntoIterator<Item = &'a EnvironmentId>, ask: Ask) -> EnvironmentSnapshot<H> {
        let turn: Vec<&EnvironmentId> = turn.into_iter().collect();
        let (looks, after) = self.look(&turn, ask);
        let snapshot = EnvironmentSnapshot::new(turn.into_iter().cloned().zip(looks));
        self.run(after);
        snapshot
    }

    /// One look at several environments. The caller runs what comes after, without any lock.
    pub(crate) fn look(&self, ids: &[&EnvironmentId], ask: Ask) -> (Vec<Look<H>>, After<H>) {
        let mut after = After::nothing();
        let mut state = self.0.state.lock();
        let looks = ids.iter().map(|id| state.look(&self.0, id, ask, &mut after)).collect();
        drop(state);
        (looks, after)
    }

    pub(crate) fn run(&self, after: After<H>) {
        self.0.run(after);
    }
}

impl<H> Shared<H> {
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut State<H>, &mut After<H>) -> R) -> R {
        let mut after = After::nothing();
        let mut state = self.state.lock();
        let result = change(&mut state, &mut after);
        drop(state);
        self.run(after);
        result
    }

    /// Runs what must not run under the lock; events first, so that a start-up is told after what led to it.
    fn run(&self, after: After<H>) {
        self.deliver();
        let After { start, replaced, outdated } = after;
        for attempt in start {
            (self.starter)(attempt);
        }
        drop((replaced, outdated));
    }

    fn deliver(&self) {
        /// Lets others deliver again, even if the observer panics.
        struct Turn<'a, H>(&'a Shared<H>);
        impl<H> Drop for Turn<'_, H> {
            fn drop(&mut self) {
                self.0.state.lock().delivery = Delivery::Idle;
            }
        }
        let mut turn = None;
        loop {
            let mut state = self.state.lock();
            if turn.is_none() && state.delivery == Delivery::Running {
                return;
            }
            let Some(event) = state.events.pop_front() else {
                // Idle under the same lock that saw the queue empty, so nothing can be left behind.
                state.delivery = Delivery::Idle;
                drop(state);
                mem::forget(turn.take());
                return;
            };
            state.delivery = Delivery::Running;
            drop(state);
            turn.get_or_insert_with(|| Turn(self));
            (self.observer)(&event);
        }
    }

    pub(crate) fn is_current(&self, environment_id: &EnvironmentId, attempt: u64) -> bool {
        let state = self.state.lock();
        state.environments.get(environment_id).is_some_and(|entry| entry.awaits(attempt))
    }

    pub(crate) fn finish(self: &Arc<Self>, attempt: &StartupAttempt<H>, outcome: Outcome) -> Completion {
        self.change(|state, after| {
            let id = &attempt.environment_id;
            let Some(entry) = state.environments.get_mut(id) else { return Completion::Stale };
            if !entry.awaits(attempt.number) {
                return Completion::Stale;
            }
            let (startup, kind) = match outcome {
                Outcome::Ready(contributed) => (entry.ready(id, contributed), EnvironmentEventKind::Ready),
                Outcome::Failed(reason) => (Startup::Failed(reason.clone()), EnvironmentEventKind::Failed { reason }),
            };
            after.outdated.push(mem::replace(&mut entry.startup, startup));
            state.tell(id, attempt.handle_id, kind);
            Completion::Recorded
        })
    }
}

impl<H> State<H> {
    fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn tell(&mut self, environment_id: &EnvironmentId, handle_id: HandleId, kind: EnvironmentEventKind) {
        self.events.push_back(EnvironmentEvent { environment_id: environment_id.clone(), handle_id, kind });
    }

    fn tell_ready(&mut self, environment_id: &EnvironmentId, handle_id: HandleId, begun: Begun) {
        match begun {
            Begun::Ready => self.tell(environment_id, handle_id, EnvironmentEventKind::Ready),
            Begun::Starting | Begun::Waiting => {}
        }
    }

    fn look(&mut self, shared: &Arc<Shared<H>>, id: &EnvironmentId, ask: Ask, after: &mut After<H>) -> Look<H> {
        let Some(entry) = self.environments.get_mut(id) else { return Look::Unknown };
        match (&entry.startup, ask) {
            (Startup::Ready(ready), _) => Look::Ready(ready.clone()),
            (Startup::Failed(reason), _) => Look::Failed(reason.clone()),
            (Startup::Starting, _) => Look::Starting,
            (Startup::NotStarted, Ask::Passive) => Look::NotStarted,
            (Startup::NotStarted, Ask::Start) => {
                // Remote, so it is not ready at once; its registration's number is still unused as an attempt.
                let _ = entry.begin(shared, id, Start::Now, after);
                Look::Starting
            }
        }
    }
}

/// What `Entry::begin` led to.
enum Begun {
    Ready,
    Starting,
    Waiting,
}

impl<H> Entry<H> {
    /// Begins the start-up, as attempt `self.attempt`.
    fn begin(&mut self, shared: &Arc<Shared<H>>, id: &EnvironmentId, start: Start, after: &mut After<H>) -> Begun {
        let (startup, begun) = match (&self.place, start) {
            (Place::Local, _) => (self.ready(id, ContributedRoots::default()), Begun::Ready),
            (Place::Remote, Start::WhenAsked) => (Startup::NotStarted, Begun::Waiting),
            (Place::Remote, Start::Now) => {
                after.start.push(StartupAttempt {
                    shared: Arc::downgrade(shared),
                    environment_id: id.clone(),
                    handle_id: self.handle_id,
                    handle: self.handle.clone(),
                    number: self.attempt,
                });
                (Startup::Starting, Begun::Starting)
            }
        };
        after.outdated.push(mem::replace(&mut self.startup, startup));
        begun
    }

    fn ready(&self, id: &EnvironmentId, contributed: ContributedRoots) -> Startup<H> {
        Startup::Ready(Arc::new(ReadyEnvironment {
            environment_id: id.clone(),
            handle_id: self.handle_id,
            handle: self.handle.clone(),
            contributed,
        }))
    }

    fn awaits(&self, attempt: u64) -> bool {
        self.attempt == attempt && matches!(self.startup, Startup::Starting)
    }
}

impl<H> Startup<H> {
    fn state(&self) -> EnvironmentState {
        match self {
            Self::NotStarted => EnvironmentState::NotStarted,
            Self::Starting => EnvironmentState::Starting,
            Self::Ready(_) => EnvironmentState::Ready,
            Self::Failed(reason) => EnvironmentState::Failed { reason: reason.clone() },
        }
    }
}

impl<H> Clone for EnvironmentRegistry<H> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<H> fmt::Debug for EnvironmentRegistry<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        f.debug_map().entries(state.environments.iter().map(|(id, entry)| (id, entry.startup.state()))).finish()
    }
}
