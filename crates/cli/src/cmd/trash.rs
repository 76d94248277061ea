//! `threadkeep trash`: what is in it, and emptying it.

use std::collections::HashSet;

use serde_json::json;
use threadkeep_local::change::trash::{Manifest, Trash, go_on_emptying};
use threadkeep_rollout::Home;
use threadkeep_rollout::seam::RealDisk;

use super::change_many::{Meaning, changer, failure, finish_first, in_trash, told};
use super::confirm::ask;
use super::now;
use crate::args::{EmptyArgs, Global, TrashArgs, TrashCommand};
use crate::fail::{Done, Failure, Kind};
use crate::human::{age, many, size, visible_line};
use crate::out::{Out, dim, say};

pub fn run(global: &Global, args: &TrashArgs, out: &mut Out) -> Done {
    match &args.command {
        TrashCommand::List => list(global, out),
        TrashCommand::Empty(args) => remove(global, args, out),
    }
}

/// The trash of a home; what is odd in it is told.
pub fn entries(home: &Home) -> Result<Trash, Failure> {
    let read = Trash::read(&RealDisk, home.path());
    let trash =
        read.map_err(|e| Failure::new(Kind::Failed, format!("cannot read the trash: {e}")).path(home.path()))?;
    for (path, why) in &trash.odd {
        say(&format!("note: {} is left alone: {}", visible_line(&path.to_string_lossy()), visible_line(why)));
    }
    Ok(trash)
}

fn list(global: &Global, out: &mut Out) -> Done {
    let mut total = 0;
    let mut n = 0;
    for home in global.homes()? {
        let entries = entries(&home)?.entries;
        if out.is_json() {
            let rows: Vec<_> = entries
                .iter()
                .map(|e| {
                    json!({
                        "id": e.entry, "thread_id": e.thread_id, "name": e.name, "preview": e.preview,
                        "deleted_at": e.deleted_at, "bytes": e.bytes(), "files": e.files.len(),
                    })
                })
                .collect();
            out.json(&json!({"format": 1, "home": home.path().to_string_lossy(), "entries": rows}))?;
            continue;
        }
        for e in &entries {
            total += e.bytes();
            n += 1;
            let title = e.name.as_deref().or(e.preview.as_deref()).unwrap_or_default();
            let facts = format!("{}  {:>9}  ", age(e.deleted_at, now()), size(e.bytes()));
            out.line(&format!("{}  {}{}", e.entry, dim(&facts), visible_line(title)))?;
        }
    }
    if !out.is_json() {
        let what = format!("{} in the trash, {}", many(n, "thread", "threads"), size(total));
        out.line(&dim(&what))?;
    }
    Ok(0)
}

fn remove(global: &Global, args: &EmptyArgs, out: &mut Out) -> Done {
    let reader = global.store()?;
    let mut goes: Vec<(usize, Manifest)> = Vec::new();
    let mut half: Vec<(usize, std::path::PathBuf)> = Vec::new();
    let mut missing = Vec::new();
    if !args.dry_run {
        // What is on its way is not emptied from under it.
        (0..reader.homes().len()).for_each(|home| finish_first(&changer(global, &reader, home)));
    }
    if args.threads.is_empty() {
        for (i, home) in reader.homes().iter().enumerate() {
            let trash = entries(home)?;
            goes.extend(trash.entries.into_iter().map(|e| (i, e)));
            half.extend(trash.emptying.into_iter().map(|path| (i, path)));
        }
    } else {
        (goes, missing) = in_trash(&reader, &args.threads, Meaning::Entry)?;
    }
    let mut seen = HashSet::new();
    goes.retain(|(home, e)| seen.insert((*home, e.entry.clone())));
    goes.retain(|(_, e)| args.older_than.is_none_or(|t| e.deleted_at < t));
    let bytes: u64 = goes.iter().map(|(_, e)| e.bytes()).sum();
    let threads = many(goes.len() as u64, "thread", "threads");
    let lines: Vec<String> = goes
        .iter()
        .map(|(_, e)| {
            let title = e.name.as_deref().or(e.preview.as_deref()).unwrap_or_default();
            format!("remove  {}  {}  {}", e.entry, size(e.bytes()), visible_line(title))
        })
        .collect();
    if !out.is_json() {
        for line in &lines {
            out.line(line)?;
        }
        out.flush()?;
    }
    if !args.dry_run && !args.yes && !goes.is_empty() {
        let shown = if out.is_json() { lines } else { vec![] };
        ask(
            &shown,
            &format!("Remove {threads} ({}) for good?", size(bytes)),
            &format!("{threads} would be removed for good"),
            "nothing was removed",
        )?;
    }
    let mut results: Vec<serde_json::Value> = Vec::new();
    let mut freed = 0;
    let mut failed = 0;
    for (query, failure) in &missing {
        failed += 1;
        say(&format!("threadkeep: {}: {}", visible_line(query), failure.message()));
        results.push(json!({"thread_id": query, "ok": false, "error": failure.message()}));
    }
    if !args.dry_run {
        let home = |i: usize| reader.homes()[i].path();
        let done = goes.iter().map(|(i, e)| {
            let done = changer(global, &reader, *i).empty(e);
            (e.thread_id.to_string(), done.map_err(|e| (told(&e), Some(failure(&e)))))
        });
        let rest = half.iter().map(|(i, path)| {
            let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let done = go_on_emptying(&RealDisk, home(*i), path);
            (name, done.map_err(|e| (format!("cannot be removed whole, and can be emptied again: {e}"), None)))
        });
        for (id, done) in done.chain(rest) {
            let (done, error) = match done {
                // One that cannot be removed is a failure like any other.
                Err((_, Some(failure))) if goes.len() == 1 && missing.is_empty() => return Err(failure),
                Err((error, _)) => (None, Some(error)),
                Ok(bytes) => (Some(bytes), None),
            };
            freed += done.unwrap_or(0);
            if let Some(error) = &error {
                failed += 1;
                say(&format!("threadkeep: {id}: {}", visible_line(error)));
            }
            results.push(json!({"thread_id": id, "ok": error.is_none(), "error": error}));
        }
    }
    let code = match (failed, results.len()) {
        (0, _) => 0,
        (n, all) if n == all && missing.len() == n => 1,
        _ => Kind::Failed.code(),
    };
    if out.is_json() {
        let plan: Vec<_> = goes
            .iter()
            .map(|(i, e)| {
                let path = threadkeep_local::change::trash::folder(reader.homes()[*i].path(), &e.entry);
                json!({"thread_id": e.thread_id, "action": "remove", "path": path.to_string_lossy(), "because": format!("deleted {}", e.deleted_at)})
            })
            .collect();
        out.json(
            &json!({"format": 1, "plan": plan, "applied": !args.dry_run, "results": results, "freed_bytes": freed}),
        )?;
        return Ok(code);
    }
    out.line(&if args.dry_run {
        format!("{threads}, {} would be removed; nothing was changed (--dry-run)", size(bytes))
    } else {
        format!("removed {threads}, {} freed", size(freed))
    })?;
    Ok(code)
}
