//! `threadkeep reindex`.

use serde_json::json;
use threadkeep_local::fill::{Apply, FillError, Rebuilt, rebuild};

use crate::args::{Global, ReindexArgs};
use crate::fail::{Done, Failure, Kind};
use crate::human::visible_line;
use crate::out::{Out, say};
use crate::progress::Progress;

pub fn run(global: &Global, args: &ReindexArgs, out: &mut Out) -> Done {
    if global.no_index {
        return Err(Failure::new(Kind::Usage, "there is nothing to build with --no-index"));
    }
    let store = global.indexed_store()?;
    let apply = if args.dry_run { Apply::No } else { Apply::Yes };
    for catalog in store.catalogs() {
        let home = catalog.home.path();
        let rebuilt = {
            let _progress = Progress::start("reading rollouts");
            rebuild(&catalog, apply).map_err(|e| failure(&e).path(home))?
        };
        for note in catalog.notes.iter().cloned().chain(aside(&rebuilt)) {
            say(&format!("note: {}", visible_line(&note)));
        }
        let changed = rebuilt.changed;
        if out.is_json() {
            out.json(&json!({
                "format": 1,
                "home": home.to_string_lossy(),
                "added": changed.added,
                "fixed": changed.fixed,
                "dropped": changed.dropped,
                "damaged": rebuilt.damaged,
                "applied": apply == Apply::Yes,
            }))?;
            continue;
        }
        out.line(&format!(
            "{}: {} added, {} fixed, {} dropped; {} damaged{}",
            visible_line(&home.to_string_lossy()),
            changed.added,
            changed.fixed,
            changed.dropped,
            rebuilt.damaged,
            if args.dry_run { " (nothing was written: --dry-run)" } else { "" }
        ))?;
    }
    Ok(0)
}

fn aside(rebuilt: &Rebuilt) -> Option<String> {
    let path = rebuilt.aside.as_ref()?;
    Some(format!("the index was damaged; it is now {} and can be removed", path.display()))
}

fn failure(e: &FillError) -> Failure {
    match e {
        FillError::Busy => Failure::new(Kind::Refused, e.to_string()).hint("wait for it, or end it"),
        FillError::NoIndex(_) | FillError::Index(_) => {
            Failure::new(Kind::Failed, format!("cannot build the index: {e}"))
                .hint("lists and searches work without one; --index-dir DIR keeps it elsewhere")
        }
    }
}
