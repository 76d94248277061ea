//! Capability roots of a thread: which are selected, and through which environment handle each model step reads them.
//!
//! A thread keeps only a stable choice, "root R at this path in environment E". What an environment's name means in
//! this process, and whether it can be used just now, is the [`EnvironmentRegistry`]'s; a model step takes one
//! [`EnvironmentSnapshot`] of it and pairs the choice with the handles captured there ([`StepRoots`]). Nothing here
//! scans files, talks to an environment or changes a selection (`thread-store.md` 7.2 and 7.4).
//!
//! ```
//! use threadkeep_capability::*;
//!
//! struct Connection;
//! impl EnvironmentHandle for Connection {
//!     fn declared_id(&self) -> Option<&str> {
//!         Some("worker")
//!     }
//! }
//!
//! // A starter hands the attempt to whatever connects, which reports the end; this one is done at once.
//! let registry = EnvironmentRegistry::new(|attempt: StartupAttempt<Connection>| drop(attempt.ready()));
//! registry.register_remote("worker", Connection, Start::WhenAsked)?;
//!
//! let header = r#"{"selected_capability_roots": [{"id": "build",
//!     "location": {"type": "environment", "environmentId": "worker", "path": "C:\\build"}}]}"#;
//! let selection = selection_from_session_meta(header)?;
//! let step = || StepRoots::resolve(&selection, &registry.snapshot([]), &registry);
//!
//! assert_eq!(step().roots().count(), 0); // the first step asks for the environment
//! let later = step();
//! let build = later.roots().next().expect("ready now");
//! assert_eq!(build.root.path().as_str(), "file:///C:/build");
//! # Ok::<(), CapabilityError>(())
//! ```

mod cache;
mod contributed;
mod environment;
mod error;
#[cfg(test)]
mod interleavings;
mod json;
mod path_uri;
mod persist;
mod registry;
mod root;
mod selection;
mod snapshot;
mod startup;
mod step;
mod sync;
mod warning;

pub use cache::RootCache;
pub use contributed::{ContributedRoots, MAX_CONTRIBUTED_ROOTS};
pub use environment::{
    EnvironmentEvent, EnvironmentEventKind, EnvironmentHandle, EnvironmentState, HandleId, ReadyEnvironment, Start,
};
pub use error::CapabilityError;
pub use path_uri::{PathStyle, PathUri};
pub use persist::{
    REQUEST_FIELD, SESSION_META_FIELD, put_in_session_meta, selection_for_fork, selection_for_new_thread,
    selection_for_resume, selection_from_request, selection_from_session_meta, session_meta_field,
};
pub use registry::EnvironmentRegistry;
pub use root::{CapabilityRootLocation, EnvironmentId, SelectedCapabilityRoot};
pub use selection::{CapabilityRootSelection, SelectionEntry, UnreadRoot};
pub use snapshot::EnvironmentSnapshot;
pub use startup::{Completion, StartupAttempt};
pub use step::{Omission, OmittedRoot, ResolvedRoot, RootOrigin, StepRoots};
pub use warning::CapabilityWarning;
