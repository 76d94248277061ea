//! `threadkeep revert`: the last turns of a thread no longer count.

use threadkeep_local::RevertedFile;

use super::change::{Change, Planned, target, wait};
use super::fork;
use crate::args::{Global, RevertArgs};
use crate::fail::Done;
use crate::out::Out;

pub fn run(global: &Global, args: &RevertArgs, out: &mut Out) -> Done {
    let (store, open, id) = target(global, &args.thread)?;
    let turn = fork::turn(&open, &args.before_turn)?;
    // What would be refused is refused before anything is done, and by a dry run, too.
    let plan = store.plan_revert(id, &turn)?;
    let turns = if plan.turns == 1 { "1 turn is".to_owned() } else { format!("{} turns are", plan.turns) };
    let from = index_of(&open, &turn).map_or_else(String::new, |n| format!(" from number {n} on"));
    let (action, path, how) = match &plan.file {
        RevertedFile::Appended(path) => ("append_revert", path, "a record says so, and every record stays"),
        RevertedFile::Made(path) => ("create_segment", path, "the thread goes on in this file, and every record stays"),
    };
    let mut steps = vec![Planned {
        thread_id: id,
        action,
        path: path.to_string_lossy().into_owned(),
        because: format!("{turns} taken back{from}; {how}"),
    }];
    steps.extend(plan.database.as_ref().map(|database| Planned {
        thread_id: id,
        action: "set_codex_rollout_path",
        path: database.to_string_lossy().into_owned(),
        because: "Codex reads the file that a thread goes on in from threads.rollout_path".to_owned(),
    }));
    let mut change = Change::new(steps);
    change.show(store.home(), out)?;
    if !args.dry_run {
        wait(store.revert_as_planned(plan))??;
        change.applied(id);
    }
    if out.is_json() {
        out.json(&change)?;
        return Ok(0);
    }
    out.line(&if args.dry_run {
        "nothing was changed (--dry-run)".to_owned()
    } else {
        format!("{turns} taken back of {id}")
    })?;
    Ok(0)
}

/// The number of a turn that stands.
fn index_of(open: &threadkeep_local::OpenThread, id: &str) -> Option<u64> {
    let index = open.turn_index();
    index.turns.iter().find(|t| !t.taken_back && fork::id_of(t) == id).map(|t| t.number)
}
