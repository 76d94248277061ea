//! One disk as a crash left it: what it holds, and whether writing goes on there.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use threadkeep_record::UtcMillis;
use threadkeep_rollout::appender::Durability;
use threadkeep_rollout::name_index;
use threadkeep_rollout::sim::{Crash, SimDisk};

use super::records::{Given, Order};
use super::world::{HOME, Thread, World, item, open};

/// Later than anything a world does, and numbers that it does not use.
const LATER: UtcMillis = UtcMillis(1_800_000_000_000);
const NEW_ITEMS: u64 = 1_000_000;

pub fn check(world: &World, crash: Crash) -> Result<()> {
    let image = world.disk.crashed(crash);
    for thread in &world.threads {
        check_thread(world, thread, &image, crash).with_context(|| format!("thread {}", thread.id))?;
    }
    check_names(world, &image)
}

fn check_thread(world: &World, thread: &Thread, image: &SimDisk, crash: Crash) -> Result<()> {
    let order = match crash {
        Crash::AnyOrder(_) => Order::Free(thread.durable),
        _ => Order::Kept,
    };
    // With everything visible kept, this is the death of the process alone: then what was acknowledged is there, too.
    let kept = if crash == Crash::Everything { thread.acknowledged } else { thread.durable };
    let found = thread.found(image, world.mode, order)?;
    let n = found.matched.len();
    ensure!(n >= kept, "{n} records are left; {kept} were promised");
    let promised = thread.made || kept > 0;
    let mut writer = match open(image, thread, Durability::OnFlush) {
        Ok(writer) => writer,
        // A file without a whole header is no thread.
        Err(_) if !promised => return Ok(()),
        Err(e) => return Err(e.context("it cannot be resumed")),
    };
    ensure!(found.header, "it was resumed without its header");
    let new = [item(NEW_ITEMS, 10)?, item(NEW_ITEMS + 1, 0)?];
    writer.append(&new, LATER).context("it cannot be appended to")?;
    writer.flush(LATER).context("it cannot be flushed")?;
    drop(writer);
    // What was given now is what was found, and the two behind it.
    let given = found.matched.iter().map(|i| thread.given[*i].clone()).chain(new.iter().map(Given::item)).collect();
    let after = Thread { given, ..thread.as_found() };
    let gaps = matches!(crash, Crash::AnyOrder(_));
    let order = if gaps { Order::Free(n + 2) } else { Order::Kept };
    for disk in [image, &image.crashed(Crash::Durable)] {
        let found = after.found(disk, world.mode, order).context("after going on")?;
        ensure!(found.matched.len() == n + 2, "after going on there are {} records, not {n} + 2", found.matched.len());
        ensure!(open(disk, &after, Durability::OnFlush).is_ok(), "after going on it cannot be resumed");
    }
    Ok(())
}

fn check_names(world: &World, image: &SimDisk) -> Result<()> {
    let Some(thread) = world.threads.first() else { return Ok(()) };
    let mut want = world.names.clone();
    ensure_names(image, &want)?;
    let home = Path::new(HOME);
    name_index::append(image, home, thread.id, "after the crash", LATER).context("a name cannot be set")?;
    want.push("after the crash".into());
    ensure_names(&image.crashed(Crash::Durable), &want)
}

/// The names that were set are there in their order; others may stand between them, whose setting failed.
fn ensure_names(disk: &SimDisk, want: &[String]) -> Result<()> {
    let bytes = disk.contents(&Path::new(HOME).join(name_index::FILE)).unwrap_or_default();
    let lines = bytes.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice::<serde_json::Value>(l).ok());
    let found: Vec<String> = lines.filter_map(|v| Some(v["thread_name"].as_str()?.to_owned())).collect();
    let mut rest = found.iter();
    let missing = want.iter().find(|name| !rest.any(|f| f == *name));
    ensure!(missing.is_none(), "the name {missing:?} is lost: {found:?}");
    Ok(())
}
