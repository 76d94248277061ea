//! `threadkeep revert`: the last turns of a thread no longer count.

use threadkeep_local::{LocalThreadStore, RevertedFile, UnrevertedFile};
use threadkeep_record::ThreadId;

use super::change::{Change, Planned, target, wait};
use super::fork;
use crate::args::{Global, RevertArgs};
use crate::fail::{Done, Failure};
use crate::out::Out;

pub fn run(global: &Global, args: &RevertArgs, out: &mut Out) -> Done {
    let (store, open, id) = target(global, &args.thread)?;
    let Some(before_turn) = &args.before_turn else { return undo(&store, id, args.dry_run, out) };
    let turn = fork::turn(&open, before_turn)?;
    // What would be refused is refused before anything is done, and by a dry run, too.
    let plan = store.plan_revert(id, &turn)?;
    let turns = counted(plan.turns, "is", "are");
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
    let change = Change::new(steps);
    let apply = || wait(store.revert_as_planned(plan))?.map(drop).map_err(Into::into);
    carry_out(change, &store, id, args.dry_run, apply, &format!("{turns} taken back of {id}"), out)
}

fn undo(store: &LocalThreadStore, id: ThreadId, dry_run: bool, out: &mut Out) -> Done {
    let plan = store.plan_unrevert(id)?;
    let turns = counted(plan.turns, "counts", "count");
    let (action, path, how) = match &plan.file {
        UnrevertedFile::Shortened { path, .. } => ("remove_revert", path, "the record that takes them back goes"),
        UnrevertedFile::Removed(path) => ("remove_segment", path, "nothing was said in this file, and it goes"),
    };
    let mut steps = vec![Planned {
        thread_id: id,
        action,
        path: path.to_string_lossy().into_owned(),
        because: format!("{turns} again; {how}"),
    }];
    steps.extend(plan.database.as_ref().map(|(database, _)| Planned {
        thread_id: id,
        action: "set_codex_rollout_path",
        path: database.to_string_lossy().into_owned(),
        because: "Codex reads the file that a thread goes on in from threads.rollout_path".to_owned(),
    }));
    let apply = || wait(store.unrevert_as_planned(plan))?.map(drop).map_err(Into::into);
    carry_out(Change::new(steps), store, id, dry_run, apply, &format!("{turns} again in {id}"), out)
}

/// Shows a plan, does it, and tells what came of it.
fn carry_out(
    mut change: Change,
    store: &LocalThreadStore,
    id: ThreadId,
    dry_run: bool,
    apply: impl FnOnce() -> Result<(), Failure>,
    done: &str,
    out: &mut Out,
) -> Done {
    change.show(store.home(), out)?;
    if !dry_run {
        apply()?;
        change.applied(id);
    }
    if out.is_json() {
        out.json(&change)?;
        return Ok(0);
    }
    out.line(if dry_run { "nothing was changed (--dry-run)" } else { done })?;
    Ok(0)
}

fn counted(turns: u64, one: &str, several: &str) -> String {
    if turns == 1 { format!("1 turn {one}") } else { format!("{turns} turns {several}") }
}

/// The number of a turn that stands.
fn index_of(open: &threadkeep_local::OpenThread, id: &str) -> Option<u64> {
    let index = open.turn_index();
    index.turns.iter().find(|t| !t.taken_back && fork::id_of(t) == id).map(|t| t.number)
}
