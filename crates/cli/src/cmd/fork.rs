//! `threadkeep fork`: a new thread with the history of another.

use threadkeep_local::turn_index::TurnEntry;
use threadkeep_local::{LocalThreadStore, OpenThread};
use threadkeep_record::meta::source_class;
use threadkeep_record::{Field, HistoryMode, MetadataPatch, SourceClass, ThreadId};
use threadkeep_store::{Archived, Clock as _, CreateThread, ForkRange, ForkThread, SystemClock, ThreadStore as _};

use super::change::{Change, Planned, target, wait};
use crate::args::{ForkArgs, Global};
use crate::fail::{Done, Failure, Kind};
use crate::out::Out;

pub fn run(global: &Global, args: &ForkArgs, out: &mut Out) -> Done {
    let (store, open, source) = target(global, &args.thread)?;
    let range = match (&args.through_turn, &args.before_turn) {
        (Some(t), _) => ForkRange::ThroughTurn(turn(&open, t)?),
        (None, Some(t)) => ForkRange::BeforeTurn(turn(&open, t)?),
        (None, None) => ForkRange::Whole,
    };
    // What would be refused is refused before anything is made, and by a dry run, too.
    let name = args.name.as_deref().map(LocalThreadStore::check_name).transpose()?;
    store.check_fork(source, Archived::Included, &range)?;
    let (id, child) = child(&open);
    let path = store.new_rollout_path(id, child.created_at.unwrap_or_else(|| SystemClock.now()));
    let how = match open.row.thread.history_mode.unwrap_or(HistoryMode::Legacy) {
        HistoryMode::Paginated => "refers to the records of its source, which is then needed",
        HistoryMode::Legacy | HistoryMode::Unknown => "copies the records of its source",
    };
    let mut plan = vec![Planned {
        thread_id: id,
        action: "create_fork",
        path: path.to_string_lossy().into_owned(),
        because: format!("{how} ({source})"),
    }];
    plan.extend(name.map(|name| Planned {
        thread_id: id,
        action: "add_name",
        path: store.name_index_path().to_string_lossy().into_owned(),
        because: format!("the fork is to be named {name:?}"),
    }));
    let mut change = Change::new(plan);
    change.show(store.home(), out)?;
    if !args.dry_run {
        wait(async {
            store.fork_thread(ForkThread { source, archived: Archived::Included, range, child }).await?;
            store.shutdown_thread(id).await
        })??;
        if let Some(name) = name {
            let patch = MetadataPatch { name: Field::Set(name.to_owned()), ..MetadataPatch::default() };
            wait(store.update_thread_metadata(id, patch, Archived::Included))?
                .map_err(|e| Failure::from(e).behind(&format!("made {id}, but it has no name")))?;
        }
        change.applied(id);
    }
    if out.is_json() {
        out.json(&change)?;
        return Ok(0);
    }
    out.line(&if args.dry_run { "nothing was changed (--dry-run)".to_owned() } else { format!("made {id}") })?;
    Ok(0)
}

/// What a turn is called.
pub fn id_of(turn: &TurnEntry) -> String {
    turn.id.clone().unwrap_or_else(|| format!("rollout-{}", turn.record))
}

/// The id of a turn that is given by number or id.
pub fn turn(open: &OpenThread, given: &str) -> Result<String, Failure> {
    let index = open.turn_index();
    let by_number = given.parse::<u64>().ok();
    let numbered = index.turns.iter().find(|t| Some(t.number) == by_number && !t.taken_back);
    match numbered.or_else(|| index.turns.iter().find(|t| id_of(t) == given)) {
        Some(found) => Ok(id_of(found)),
        None => Err(Failure::new(Kind::NotFound, format!("the thread has no turn {given}"))
            .hint("`threadkeep show` numbers the turns of a thread")),
    }
}

/// The new thread. Whatever program or agent the source came from, the fork is a person's; what editors look for stays.
fn child(open: &OpenThread) -> (ThreadId, CreateThread) {
    let t = &open.row.thread;
    let id = ThreadId::new_v7();
    let mut child = CreateThread::new(id, t.cwd.clone().unwrap_or_else(|| "/".into()), "threadkeep");
    child.created_at = Some(SystemClock.now());
    if source_class(t.source.as_ref(), t.thread_source.as_deref()) == SourceClass::Person {
        child.source = t.source.clone().unwrap_or(child.source);
        child.thread_source = t.thread_source.clone();
    }
    (id, child)
}
