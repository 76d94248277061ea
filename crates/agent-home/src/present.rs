//! Whether a thread's rollout is in a task home or a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::dir::Dir;
use crate::error::{Attempt as _, HomeError};
use crate::find::{Head, Presence, Scan, Want, presence, scan};
use crate::id::ResumeId;
use crate::shared::SharedHome;
use crate::watch::Unwatched;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Present {
    /// Whether it is there.
    pub state: Presence,
    /// By which file, relative to the place that was asked.
    pub path: Option<PathBuf>,
}

/// Looks for a thread among the active rollouts of a task home or store. Reads names and heads, takes no lock.
pub fn present(place: &Path, shared_home: &Path, id: &ResumeId) -> Result<Present, HomeError> {
    let watch = Arc::new(Unwatched);
    let place = std::path::absolute(place).attempt("resolve", place)?;
    let none = Present { state: Presence::Absent, path: None };
    let Some(home) = crate::dir::absent(Dir::open(&place, watch.clone())).attempt("open", &place)? else {
        return Ok(none);
    };
    let Some(sessions) =
        crate::dir::absent(home.followed("sessions")).attempt("open folder", home.shown("sessions"))?
    else {
        return Ok(none);
    };
    // Links below the sessions may lead to the shared history; without a shared home they lead nowhere.
    let within = match SharedHome::open(shared_home, watch) {
        Ok(shared) => shared.within(),
        Err(HomeError::Missing { .. }) => vec![],
        Err(e) => return Err(e),
    };
    let mut found = Scan::default();
    scan(&sessions, Path::new("sessions"), Want::Thread(id), &mut found);
    let (state, by) = presence(&found.found, &within);
    let path = by.map(|f| f.path.clone());
    if state == Presence::Absent && !found.problems.is_empty() {
        let (path, why) = found.problems.swap_remove(0);
        return Err(HomeError::Refused { why: format!("cannot be looked into ({why})"), path: home.shown(path) });
    }
    if state == Presence::Absent {
        for file in &found.found {
            if let Head::Closed(why) = file.head(&within) {
                return Err(HomeError::Refused {
                    why: format!("cannot be opened ({why})"),
                    path: home.shown(&file.path),
                });
            }
        }
    }
    Ok(Present { state, path })
}
