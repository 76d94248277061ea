//! A tiny agent on `LiveThread`: it answers each line that it reads with the same line. Killed at any moment, it goes
//! on where it was:
//!
//! `cargo run -p threadkeep-local --example echo_agent -- HOME [THREAD]`

use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};
use std::sync::Arc;

use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::{HistoryMode, ItemPlace, NewItem, ThreadId};
use threadkeep_store::{
    Archived, Clock, CreateThread, HostMetadata, LiveThread, ResumeThread, SystemClock, ThreadStore,
};

/// Runs the agent on a home until its input ends; `thread` is one to go on with.
pub async fn run(home: &str, thread: Option<&str>) -> Result<(), Box<dyn Error>> {
    let store: Arc<dyn ThreadStore> = Arc::new(LocalThreadStore::open(LocalOptions::new(home)));
    let clock = Arc::new(SystemClock);
    let cwd = std::env::current_dir()?;
    let live = match thread {
        None => {
            let params = CreateThread::new(ThreadId::new_v7(), cwd, "echo_agent");
            LiveThread::create(store, params, clock.clone()).await?
        }
        Some(id) => {
            let metadata = HostMetadata { cwd: Some(cwd), ..HostMetadata::default() };
            let (thread_id, archived) = (ThreadId::parse(id)?, Archived::Excluded);
            let params = ResumeThread { thread_id, rollout_path: None, archived, metadata };
            LiveThread::resume(store, params, clock.clone()).await?
        }
    };
    let (id, mode) = (live.thread_id(), live.history_mode());
    writeln!(stdout(), "thread {id}")?;
    for line in stdin().lock().lines() {
        let said = line?;
        let turn = ThreadId::new_v7().to_string();
        let place = ItemPlace { thread_id: id, turn_id: &turn, item_id: &turn, at: clock.now() };
        live.append(&question(mode, &place, &said)).await?;
        // Here a real agent asks its model, with the context that `load_latest_model_context` gives it.
        let reply = said.clone();
        live.append(&answer(mode, &place, &reply)).await?;
        // From here on the turn survives the power, too; what was appended survives a kill without it.
        live.flush().await?;
        writeln!(stdout(), "{reply}")?;
    }
    Ok(live.shutdown().await?)
}

/// What a turn begins with: for the reader the message as an event, for the model the same as a message.
fn question(mode: HistoryMode, place: &ItemPlace<'_>, text: &str) -> [NewItem; 3] {
    let started = NewItem::turn_started(place.turn_id, place.at);
    [started, NewItem::model_message("user", text), NewItem::user_message(mode, place, text)]
}

fn answer(mode: HistoryMode, place: &ItemPlace<'_>, text: &str) -> [NewItem; 3] {
    let done = NewItem::turn_completed(place.turn_id, Some(text), place.at);
    [NewItem::model_message("assistant", text), NewItem::agent_message(mode, place, text), done]
}

#[allow(dead_code, reason = "a test runs the agent without it")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let home = args.next().ok_or("usage: echo_agent HOME [THREAD]")?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(run(&home, args.next().as_deref()))
}
