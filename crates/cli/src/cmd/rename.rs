//! `threadkeep rename`: names a thread, where Codex looks for names.

use threadkeep_local::LocalThreadStore;
use threadkeep_record::{Field, MetadataPatch};
use threadkeep_store::{Archived, ThreadStore as _};

use super::change::{Change, Planned, target, wait};
use crate::args::{Global, RenameArgs};
use crate::fail::{Done, Failure};
use crate::human::visible_line;
use crate::out::Out;

pub fn run(global: &Global, args: &RenameArgs, out: &mut Out) -> Done {
    let (store, open, id) = target(global, &args.thread)?;
    // What would be refused is refused before anything is done, and by a dry run, too.
    let check = |name| LocalThreadStore::check_name(name).map_err(Failure::from);
    let name = args.name.as_deref().map(check).transpose().map_err(|f| f.hint("--clear takes the name away"))?;
    let old = open.row.thread.name.as_deref();
    let because = match (old, name) {
        (Some(old), _) => format!("its name is {old:?}"),
        (None, _) => "it has no name".to_owned(),
    };
    let step = |place: threadkeep_local::NamePlace| Planned {
        thread_id: id,
        action: match (place.column, name) {
            (Some(_), Some(_)) => "set_codex_name",
            (Some(_), None) => "clear_codex_name",
            (None, Some(_)) => "add_name",
            (None, None) => "add_cleared_name",
        },
        path: place.path.to_string_lossy().into_owned(),
        because: match place.column {
            Some(column) => format!("Codex reads the name from threads.{column}"),
            None => because.clone(),
        },
    };
    let mut change = Change::new(store.name_places(id)?.into_iter().map(step).collect());
    change.show(store.home(), out)?;
    if !args.dry_run {
        let name = name.map_or(Field::Clear, |n| Field::Set(n.to_owned()));
        let patch = MetadataPatch { name, ..MetadataPatch::default() };
        wait(store.update_thread_metadata(id, patch, Archived::Included))??;
        change.applied(id);
    }
    if out.is_json() {
        out.json(&change)?;
        return Ok(0);
    }
    out.line(&match (args.dry_run, name) {
        (true, _) => "nothing was changed (--dry-run)".to_owned(),
        (false, Some(name)) => format!("{id} is now {}", visible_line(name)),
        (false, None) => format!("{id} has no name now"),
    })?;
    Ok(0)
}
