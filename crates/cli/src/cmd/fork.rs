//! `threadkeep fork`: a new thread with the history of another.

use threadkeep_record::{Field, HistoryMode, MetadataPatch, ThreadId};
use threadkeep_store::{Archived, Clock as _, CreateThread, ForkRange, ForkThread, SystemClock, ThreadStore as _};

use super::change::{Change, Planned, target, wait};
use crate::args::{ForkArgs, Global};
use crate::fail::{Done, Failure, Kind};
use crate::out::Out;

pub fn run(global: &Global, args: &ForkArgs, out: &mut Out) -> Done {
    let (store, open, source) = target(global, &args.thread)?;
    let turn = |given: &str| -> Result<String, Failure> {
        let Ok(number) = given.parse::<u64>() else { return Ok(given.to_owned()) };
        let index = open.turn_index();
        let found = index.turns.iter().find(|t| t.number == number && !t.taken_back);
        let found = found.ok_or_else(|| Failure::new(Kind::NotFound, format!("the thread has no turn {number}")))?;
        Ok(found.id.clone().unwrap_or_else(|| format!("rollout-{}", found.record)))
    };
    let range = match (&args.through_turn, &args.before_turn) {
        (Some(t), _) => ForkRange::ThroughTurn(turn(t)?),
        (None, Some(t)) => ForkRange::BeforeTurn(turn(t)?),
        (None, None) => ForkRange::Whole,
    };
    let t = &open.row.thread;
    let id = ThreadId::new_v7();
    let mut child = CreateThread::new(id, t.cwd.clone().unwrap_or_else(|| "/".into()), "threadkeep");
    child.created_at = Some(SystemClock.now());
    child.source = t.source.clone().unwrap_or_else(|| "cli".into());
    child.thread_source = t.thread_source.clone();
    let how = match t.history_mode.unwrap_or(HistoryMode::Legacy) {
        HistoryMode::Paginated => "refers to the records of its source, which is then needed",
        HistoryMode::Legacy | HistoryMode::Unknown => "copies the records of its source",
    };
    let path = store.new_rollout_path(id, child.created_at.unwrap_or_else(|| SystemClock.now()));
    let plan = Planned {
        thread_id: id,
        action: "create_fork",
        path: path.to_string_lossy().into_owned(),
        because: format!("{how} ({source})"),
    };
    let mut change = Change::new(vec![plan]);
    change.show(store.home(), out)?;
    if !args.dry_run {
        let name = args.name.clone();
        wait(async {
            store.fork_thread(ForkThread { source, archived: Archived::Included, range, child }).await?;
            store.shutdown_thread(id).await?;
            if let Some(name) = name {
                let patch = MetadataPatch { name: Field::Set(name), ..MetadataPatch::default() };
                store.update_thread_metadata(id, patch, Archived::Included).await?;
            }
            Ok::<(), threadkeep_store::ThreadStoreError>(())
        })??;
        change.applied(id);
    }
    if out.is_json() {
        out.json(&change)?;
        return Ok(0);
    }
    out.line(&if args.dry_run { "nothing was changed (--dry-run)".to_owned() } else { format!("made {id}") })?;
    Ok(0)
}
