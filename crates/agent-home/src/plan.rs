//! What clean-up would do: a function of what is known of the stores, the policy and the clock. Any doubt means keep.

use std::time::Duration;

use serde::Serialize;
use threadkeep_record::UtcMillis;

use crate::inventory::StoreFacts;

/// What the operator asks for. Nothing asked for removes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    /// A store that was not used for longer than this goes. `None` and zero remove nothing.
    pub retention: Option<Duration>,
    /// The stores of the profile together may take this many bytes; the least recently used go first. `None` and zero
    /// remove nothing.
    pub max_bytes: Option<u64>,
}

/// A store without a manifest waits at least this long: it may be one that is being made.
pub const ORPHAN: Duration = Duration::from_secs(72 * 3600);

/// A store that was used within this time is not removed for its size: it is just being worked with.
pub const GRACE: Duration = Duration::from_secs(3600);

/// Clocks of machines that share a home differ by no more than this; a later time says nothing.
pub const SKEW: Duration = Duration::from_secs(300);

/// What is done with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It goes.
    Remove,
    /// It stays.
    Keep,
}

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// Not used for longer than the retention.
    Idle,
    /// The least recently used, and the stores take more than they may.
    OverBudget,
    /// Neither a retention nor a budget was given.
    NothingAsked,
    /// Used within the retention.
    Recent,
    /// Within the budget.
    WithinBudget,
    /// Processes hold it.
    Held(Vec<u32>),
    /// A Codex writes these threads now.
    Written(Vec<String>),
    /// The operator pinned it.
    Pinned(Option<String>),
    /// A person named these threads.
    Named(Vec<String>),
    /// A person or an agent archived these threads, which are only here.
    Archived(Vec<String>),
    /// A thread elsewhere refers to one that is only here: by, and to.
    Referenced(String, String),
    /// It could not be looked at.
    Uncertain(String),
    /// No time that can be believed says when it was used; its clock starts now.
    ClockStarts,
    /// It changed between the plan and its execution.
    Changed,
}

impl Because {
    /// For a person and for JSON.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Idle => "not used for longer than the retention".into(),
            Self::OverBudget => "least recently used, and the stores take more than --max-bytes".into(),
            Self::NothingAsked => "neither a retention nor a budget was given".into(),
            Self::Recent => "used recently".into(),
            Self::WithinBudget => "within the budget".into(),
            Self::Held(by) if by.is_empty() => "held".into(),
            Self::Held(by) => format!("held by process {}", list(by.iter().map(ToString::to_string))),
            Self::Written(ids) => format!("being written: {}", list(ids.iter().cloned())),
            Self::Pinned(None) => "pinned".into(),
            Self::Pinned(Some(why)) => format!("pinned: {why}"),
            Self::Named(names) => format!("named: {}", list(names.iter().cloned())),
            Self::Archived(ids) => format!("archived: {}", list(ids.iter().cloned())),
            Self::Referenced(by, to) => format!("thread {by} elsewhere refers to thread {to}, which is only here"),
            Self::Uncertain(why) => format!("not certain: {why}"),
            Self::ClockStarts => "no time says when it was used; its clock starts now".into(),
            Self::Changed => "changed since the plan was made".into(),
        }
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    items.collect::<Vec<_>>().join(", ")
}

/// What is decided of one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Its path below the folder of stores.
    pub store: String,
    /// Bytes that go with it.
    pub bytes: u64,
    /// When it was last used, as far as that can be believed.
    pub idle_since: Option<UtcMillis>,
    /// What is done.
    pub action: Action,
    /// Why.
    pub because: Because,
}

/// When a store was last used: the newest time that does not lie in the future.
#[must_use]
pub fn last_use(facts: &StoreFacts, now: UtcMillis) -> Option<UtcMillis> {
    let latest = UtcMillis(now.0.saturating_add(millis(SKEW)));
    facts.times.iter().copied().filter(|t| *t <= latest).max()
}

fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}

/// What keeps a store whatever its age.
#[must_use]
pub fn protection(facts: &StoreFacts) -> Option<Because> {
    if let Some(why) = facts.problems.first() {
        return Some(Because::Uncertain(why.clone()));
    }
    if !facts.held_by.is_empty() {
        return Some(Because::Held(facts.held_by.clone()));
    }
    if !facts.written.is_empty() {
        return Some(Because::Written(facts.written.clone()));
    }
    if let Some(pin) = &facts.pin {
        return Some(Because::Pinned(pin.why.clone()));
    }
    let named: Vec<String> = facts.threads.values().flatten().cloned().collect();
    if !named.is_empty() {
        return Some(Because::Named(named));
    }
    if !facts.archived.is_empty() {
        return Some(Because::Archived(facts.archived.clone()));
    }
    facts.referenced.first().map(|(by, to)| Because::Referenced(by.clone(), to.clone()))
}

/// Makes the plan.
#[must_use]
pub fn plan(stores: &[StoreFacts], policy: Policy, now: UtcMillis) -> Vec<Decision> {
    let retention = policy.retention.filter(|r| !r.is_zero());
    let budget = policy.max_bytes.filter(|b| *b > 0);
    let mut all: Vec<Decision> = stores.iter().map(|facts| by_age(facts, retention, budget.is_some(), now)).collect();
    if let Some(budget) = budget {
        let mut total: u64 = all.iter().filter(|d| d.action == Action::Keep).map(|d| d.bytes).sum();
        let mut candidates: Vec<usize> = (0..all.len())
            .filter(|i| matches!(all[*i].because, Because::Recent | Because::WithinBudget))
            .filter(|i| all[*i].idle_since.is_some_and(|t| now.0.saturating_sub(t.0) > millis(GRACE)))
            .filter(|i| stores[*i].key.is_some() && all[*i].bytes > 0)
            .collect();
        candidates.sort_by_key(|i| (all[*i].idle_since, all[*i].store.clone()));
        for i in candidates {
            if total <= budget {
                break;
            }
            total -= all[i].bytes;
            all[i].action = Action::Remove;
            all[i].because = Because::OverBudget;
        }
    }
    all
}

fn by_age(facts: &StoreFacts, retention: Option<Duration>, budgeted: bool, now: UtcMillis) -> Decision {
    let idle_since = last_use(facts, now);
    let decide =
        |action, because| Decision { store: facts.path.clone(), bytes: facts.bytes, idle_since, action, because };
    if let Some(because) = protection(facts) {
        return decide(Action::Keep, because);
    }
    let Some(since) = idle_since else { return decide(Action::Keep, Because::ClockStarts) };
    let Some(retention) = retention else {
        let because = if budgeted { Because::WithinBudget } else { Because::NothingAsked };
        return decide(Action::Keep, because);
    };
    // Without a manifest nobody knows whose it is; it may be one that is being made.
    let wait = if facts.key.is_some() { retention } else { retention.max(ORPHAN) };
    if now.0.saturating_sub(since.0) > millis(wait) {
        decide(Action::Remove, Because::Idle)
    } else {
        decide(Action::Keep, Because::Recent)
    }
}
