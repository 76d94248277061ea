//! `threadkeep restore`.

use std::collections::BTreeMap;

use threadkeep_local::change::{Cascade, ChangeKind, Changer};
use threadkeep_record::ThreadId;

use super::change_many::{Asking, Meaning, Plans, carry_out, changer, finish_first, ids_of_file, in_trash};
use crate::args::{Global, RestoreArgs};
use crate::fail::{Done, Failure, Kind};
use crate::out::{Out, say};

pub fn run(global: &Global, args: &RestoreArgs, out: &mut Out) -> Done {
    let reader = global.indexed_store()?;
    let mut queries = args.threads.clone();
    queries.extend(args.ids_file.as_deref().map(ids_of_file).transpose()?.unwrap_or_default());
    if queries.is_empty() && !args.all && args.ids_file.is_none() {
        return Err(Failure::new(Kind::Usage, "no thread was named").hint("name threads, or give --all"));
    }
    if !args.dry_run {
        (0..reader.homes().len()).for_each(|home| finish_first(&changer(global, &reader, home)));
    }
    let (mut entries, missing) = in_trash(&reader, &queries, Meaning::Thread)?;
    if args.all {
        for (i, home) in reader.homes().iter().enumerate() {
            entries.extend(super::trash::entries(home)?.entries.into_iter().map(|e| (i, e)));
        }
    }
    // What was deleted last comes back first, so that everything stands again as it stood.
    let mut by_home: BTreeMap<usize, (Vec<ThreadId>, BTreeMap<ThreadId, String>)> = BTreeMap::new();
    for (home, entry) in entries {
        let (ids, meant) = by_home.entry(home).or_default();
        match meant.get(&entry.thread_id) {
            None => {
                ids.push(entry.thread_id);
                meant.insert(entry.thread_id, entry.entry);
            }
            Some(other) if *other != entry.entry => {
                say(&format!("note: {} stays in the trash: {other} is of the same thread", entry.entry));
            }
            Some(_) => {}
        }
    }
    let plans: Plans = by_home
        .into_iter()
        .map(|(home, (ids, entries))| {
            let changer = Changer { entries, ..changer(global, &reader, home) };
            let plan = changer.plan(ChangeKind::Restore, &ids, Cascade::Alone);
            (changer, plan)
        })
        .collect();
    carry_out(ChangeKind::Restore, plans, missing, Asking { dry_run: args.dry_run, asks: false }, out)
}
