//! One writer, killed again and again; each next one goes on where it was.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use threadkeep_record::{HistoryMode, NewItem, ThreadId};
use threadkeep_rollout::name_index::NameIndex;
use threadkeep_store::{Archived, ResumeThread, ThreadStore};

use super::running::Running;
use super::{Options, Times, host, mode_of, store, strict};
use crate::gen_home::rng::Rng;

/// A thread is given up for a new one after so many rounds.
const OF_A_THREAD: u64 = 8;

#[derive(Debug, Default)]
struct Tally {
    records: u64,
    torn: u64,
    early: u64,
    threads: u64,
    names: u64,
    unacknowledged: u64,
    lock: Times,
}

/// What is known of the thread that is written now.
struct Current {
    id: ThreadId,
    mode: HistoryMode,
    /// Numbers below this are in the file.
    next: u64,
    made: bool,
    name: Option<String>,
}

pub fn run(scratch: &Path, options: &Options) -> Result<String> {
    let home = scratch.join("rounds");
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut rng = Rng::stream(options.seed, 0);
    let mut tally = Tally::default();
    let mut current = None;
    for round in 0..options.rounds {
        if round % OF_A_THREAD == 0 {
            current = None;
        }
        let thread = current.get_or_insert_with(|| {
            tally.threads += 1;
            let mode = mode_of(tally.threads);
            Current { id: ThreadId::new_v7(), mode, next: 0, made: false, name: None }
        });
        let seed = options.seed.wrapping_mul(1_000_000) + round;
        runtime
            .block_on(one(&home, thread, seed, &mut rng, &mut tally))
            .with_context(|| format!("round {round} of seed {}; its home is kept: {}", options.seed, home.display()))?;
    }
    let Tally { records, torn, early, threads, names, unacknowledged, lock } = &tally;
    Ok(format!(
        "{} writers killed with -9 on {threads} threads: {records} records acknowledged, none lost, none twice\n\
         killed before the first record {early} times; {torn} torn records closed off; {unacknowledged} records were in the \
         file and not acknowledged yet\n{names} names set and kept; lock and thread taken again after the kill: {}",
        options.rounds,
        lock.text()
    ))
}

async fn one(home: &Path, thread: &mut Current, seed: u64, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    let work = if thread.made { "resume" } else { "create" };
    let mut args: Vec<String> =
        ["--work", work, "--thread", &thread.id.to_string(), "--home"].iter().map(|s| (*s).into()).collect();
    args.push(home.to_string_lossy().into_owned());
    args.extend([format!("--first={}", thread.next), format!("--seed={seed}")]);
    args.extend((thread.mode == HistoryMode::Paginated).then(|| "--paginated".to_owned()));
    args.extend(rng.chance(0.25).then(|| "--each".to_owned()));
    let mut child = Running::start(&args)?;
    // Some are killed while they start or open the thread, the others while they write.
    match rng.below(8) {
        0 => {}
        1 => child.wait_for("open")?,
        _ => child.wait_for("a ")?,
    }
    std::thread::sleep(Duration::from_micros(rng.below(40_000)));
    let said = child.kill()?;

    let acknowledged =
        said.iter().rev().find_map(|l| l.strip_prefix("a ")).map_or(Ok(thread.next), str::parse).context("a number")?;
    let named = said.iter().rev().find_map(|l| l.strip_prefix("n "));
    thread.name = named.map(str::to_owned).or(thread.name.take());
    tally.names += said.iter().filter(|l| l.starts_with("n ")).count() as u64;
    tally.records += acknowledged - thread.next;
    tally.early += u64::from(acknowledged == thread.next);
    look(home, thread, acknowledged, tally).await
}

/// Looks for everything that was acknowledged, takes the thread and writes on.
async fn look(home: &Path, thread: &mut Current, acknowledged: u64, tally: &mut Tally) -> Result<()> {
    let id = thread.id;
    let Some(lines) = strict(home, id, thread.mode)? else {
        ensure!(acknowledged == 0 && !thread.made, "the thread is gone");
        // Nothing was made of it: a next writer creates it.
        return Ok(());
    };
    if lines.records.is_empty() {
        ensure!(acknowledged == 0 && !thread.made, "the thread is empty");
        // A torn header is no thread, and its id is not used again.
        *thread = Current { id: ThreadId::new_v7(), mode: thread.mode, next: 0, made: false, name: None };
        return Ok(());
    }
    let numbers: Vec<u64> = lines.records.iter().filter_map(|r| r["payload"]["n"].as_u64()).collect();
    let count = numbers.len() as u64;
    ensure!(numbers.iter().copied().eq(0..count), "the numbers are no prefix");
    ensure!(count >= acknowledged, "{count} records are left of {acknowledged} acknowledged ones");
    tally.unacknowledged += count - acknowledged;

    let store = store(home);
    let begun = Instant::now();
    let params = ResumeThread { thread_id: id, rollout_path: None, archived: Archived::Excluded, metadata: host() };
    let resumed = store.resume_thread(params).await.context("the thread of a dead writer is not free")?;
    tally.lock.0.push(begun.elapsed());
    ensure!(resumed.torn_tail == lines.torn, "a torn tail is not told");
    tally.torn += u64::from(lines.torn);
    let payload = serde_json::json!({"type": "message", "role": "user", "n": count, "content": []});
    store.append_items(id, &[NewItem::from_value("response_item", &payload)?]).await?;
    store.shutdown_thread(id).await?;

    let history = store.load_history(id, Archived::Excluded).await?;
    let read = history.records.iter().filter_map(|r| {
        let record: serde_json::Value = serde_json::from_slice(&r.0).ok()?;
        record["payload"]["n"].as_u64()
    });
    ensure!(read.eq(0..=count), "the store does not read what is in the file");
    if let Some(name) = &thread.name {
        // A name may have been set and its writer killed before it could say so.
        let number = |name: &str| name.rsplit(' ').next().and_then(|n| n.parse::<u64>().ok());
        let kept = NameIndex::read(home)?.entry(id).map(str::to_owned).unwrap_or_default();
        ensure!(number(&kept) >= number(name), "the name {name:?} is lost, it is {kept:?}");
        thread.name = Some(kept);
    }
    thread.next = count + 1;
    thread.made = true;
    Ok(())
}
