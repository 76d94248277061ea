//! `threadkeep restore`.

use std::collections::BTreeMap;

use threadkeep_local::change::{Cascade, ChangeKind};
use threadkeep_record::ThreadId;

use super::change_many::{Asking, Plans, carry_out, changer, ids_of_file, in_trash};
use crate::args::{Global, RestoreArgs};
use crate::fail::{Done, Failure, Kind};
use crate::out::Out;

pub fn run(global: &Global, args: &RestoreArgs, out: &mut Out) -> Done {
    let reader = global.indexed_store()?;
    let mut queries = args.threads.clone();
    queries.extend(args.ids_file.as_deref().map(ids_of_file).transpose()?.unwrap_or_default());
    if args.all {
        for home in reader.homes() {
            let (_, all) = super::trash::entries(home)?;
            queries.extend(all.into_iter().map(|e| e.entry));
        }
    }
    if queries.is_empty() && !args.all && args.ids_file.is_none() {
        return Err(Failure::new(Kind::Usage, "no thread was named").hint("name threads, or give --all"));
    }
    let (entries, missing) = in_trash(&reader, &queries)?;
    let mut by_home: BTreeMap<usize, Vec<ThreadId>> = BTreeMap::new();
    // What was deleted last comes back first, so that everything stands again as it stood.
    for (home, entry) in entries {
        let ids = by_home.entry(home).or_default();
        if !ids.contains(&entry.thread_id) {
            ids.push(entry.thread_id);
        }
    }
    let plans: Plans = by_home
        .into_iter()
        .map(|(home, ids)| {
            let changer = changer(global, &reader, home);
            let plan = changer.plan(ChangeKind::Restore, &ids, Cascade::Alone);
            (changer, plan)
        })
        .collect();
    carry_out(ChangeKind::Restore, plans, missing, Asking { dry_run: args.dry_run, asks: false }, out)
}
