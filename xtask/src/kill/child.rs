//! The writers that are killed. They say each step on standard output once it is acknowledged.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::{Field, HistoryMode, MetadataPatch, NewItem, ThreadId, UtcMillis};
use threadkeep_rollout::appender::Durability;
use threadkeep_store::{Archived, CreateThread, LiveThread, ResumeThread, SystemClock, ThreadStore, ThreadStoreError};

use crate::gen_home::rng::Rng;

#[derive(Clone, Copy, ValueEnum)]
pub enum Work {
    /// Creates a thread and appends to it without end
    Create,
    /// Continues a thread and appends to it without end
    Resume,
    /// Opens a thread, appends a few records, closes it, without end
    Fight,
}

#[derive(Args)]
pub struct Options {
    #[arg(long)]
    home: PathBuf,
    #[arg(long)]
    thread: String,
    #[arg(long)]
    work: Work,
    /// Of a thread that is created
    #[arg(long)]
    paginated: bool,
    /// Sync each append
    #[arg(long)]
    each: bool,
    /// Number of the first item, or of the writer in a fight
    #[arg(long)]
    first: u64,
    #[arg(long)]
    seed: u64,
}

pub fn run(options: &Options) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_time().build()?;
    runtime.block_on(async {
        match options.work {
            Work::Create | Work::Resume => write(options).await,
            Work::Fight => fight(options).await,
        }
    })
}

/// Says a line at once: the pipe has it before the next step begins.
fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    Ok(out.flush()?)
}

struct Writer {
    store: Arc<dyn ThreadStore>,
    id: ThreadId,
}

impl Writer {
    fn new(options: &Options) -> Result<Self> {
        let mut local = LocalOptions::new(&options.home);
        local.durability = if options.each { Durability::EachAppend } else { Durability::OnFlush };
        let id = ThreadId::parse(&options.thread)?;
        Ok(Self { store: Arc::new(LocalThreadStore::open(local)), id })
    }

    async fn resume(&self) -> Result<LiveThread, ThreadStoreError> {
        let params = ResumeThread {
            thread_id: self.id,
            rollout_path: None,
            archived: Archived::Excluded,
            metadata: super::host(),
        };
        LiveThread::resume(Arc::clone(&self.store), params, Arc::new(SystemClock)).await
    }

    async fn create(&self, mode: HistoryMode) -> Result<LiveThread, ThreadStoreError> {
        let mut params = CreateThread::new(self.id, "/", "threadkeep_kill");
        params.history_mode = mode;
        LiveThread::create(Arc::clone(&self.store), params, Arc::new(SystemClock)).await
    }
}

/// An item with a number; now and then one that takes the kernel long enough to be killed in.
fn item(n: u64, rng: &mut Rng) -> Result<NewItem> {
    let length = match rng.below(100) {
        0 => 3_000_000,
        1..4 => 100_000,
        _ => rng.below(2_000) as usize,
    };
    let payload = json!({"type": "message", "role": "user", "n": n, "content": [], "pad": "x".repeat(length)});
    Ok(NewItem::from_value("response_item", &payload)?)
}

async fn write(options: &Options) -> Result<()> {
    let mut rng = Rng::stream(options.seed, 1);
    let writer = Writer::new(options)?;
    let mode = if options.paginated { HistoryMode::Paginated } else { HistoryMode::Legacy };
    let mut live = match options.work {
        Work::Create => writer.create(mode).await?,
        Work::Resume | Work::Fight => writer.resume().await?,
    };
    say("open")?;
    let mut next = options.first;
    let mut turn = 0;
    loop {
        let count = rng.range(1, 5);
        let mut items = (next..next + count).map(|n| item(n, &mut rng)).collect::<Result<Vec<_>>>()?;
        if rng.chance(0.1) {
            turn += 1;
            items.push(NewItem::turn_started(&format!("turn {turn}"), UtcMillis(0)));
        }
        live.append(&items).await?;
        next += count;
        // Numbers below this one are acknowledged.
        say(&format!("a {next}"))?;
        match rng.below(60) {
            0..10 => live.flush().await?,
            10 => live.persist().await?,
            11 => {
                let name = Field::Set(format!("name {next}"));
                live.update_metadata(MetadataPatch { name, ..MetadataPatch::default() }).await?;
                say(&format!("n name {next}"))?;
            }
            12 => {
                live.shutdown().await?;
                live = writer.resume().await?;
            }
            _ => {}
        }
    }
}

async fn fight(options: &Options) -> Result<()> {
    let mut rng = Rng::stream(options.seed, 2);
    let writer = Writer::new(options)?;
    let who = options.first;
    let mut session = 0u64;
    say("open")?;
    loop {
        match writer.resume().await {
            Ok(live) => {
                let mut at = 0u64;
                for _ in 0..rng.range(1, 4) {
                    let count = rng.range(1, 4);
                    let items = (at..at + count)
                        .map(|i| {
                            let payload = json!({"type": "message", "role": "user", "content": [],
                                "who": who, "session": session, "i": i});
                            NewItem::from_value("response_item", &payload)
                        })
                        .collect::<Result<Vec<_>, _>>()?;
                    live.append(&items).await.context("an append of the holder")?;
                    at += count;
                    say(&format!("a {session} {at}"))?;
                }
                live.shutdown().await?;
                session += 1;
            }
            Err(ThreadStoreError::Conflict { message }) => say(&format!("c {message}"))?,
            Err(other) => bail!("{other}"),
        }
        tokio::time::sleep(Duration::from_micros(rng.below(1_500))).await;
    }
}
