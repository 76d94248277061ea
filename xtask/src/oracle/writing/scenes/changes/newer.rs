//! An older release in the home of a newer one: of its legacy thread it sees where the command put it.

use anyhow::Result;
use threadkeep_record::ThreadId;

use super::cast::Actor;
use super::{Place, When};
use crate::oracle::writing::stage::{Checks, Home, Stage};

/// A legacy thread of 0.171.
const LEGACY: &str = "01a22c6c-8e85-7d30-9683-62f7285fc43c";

pub fn play(stage: &Stage, when: When, checks: &mut Checks) -> Result<()> {
    let home = Home::of_fixture(stage, &format!("changes-newer-{when:?}"), "0.171.0")?;
    let copy = Home::of_fixture(stage, &format!("changes-newer-{when:?}-copy"), "0.171.0")?;
    let mut theirs = copy.theirs()?;
    let row = theirs.row(ThreadId::parse(LEGACY)?, false)?;
    let talk = theirs.adopt(&row)?;
    drop(theirs);
    let name = row["name"].as_str().map(str::to_owned);
    let mut actor = Actor { talk, name, compressed: false, needed: false, refers: 0, parent: None };
    let place = Place { threadkeep: stage.threadkeep()?, home, when, place: format!("0.171.0's home, {when:?}") };

    let mut theirs = place.then_there(|| place.moved("archive", &actor, checks))?;
    place.archived_there(&mut theirs, &actor, checks)?;
    drop(theirs);
    let mut theirs = place.then_there(|| place.moved("unarchive", &actor, checks))?;
    place.active_there(&mut theirs, &mut actor, checks)?;
    drop(theirs);
    place.there_and_back("in a newer home", &[&actor], &["restore", LEGACY], checks)?;
    let mut theirs = place.then_there(|| place.deleted(&actor, checks))?;
    place.gone_there(&mut theirs, &actor, checks)?;
    drop(theirs);
    let mut theirs = place.then_there(|| {
        checks.works(format!("{}: restore", place.place), place.command(&["restore"], &[&actor]));
        Ok(())
    })?;
    place.active_there(&mut theirs, &mut actor, checks)
}
