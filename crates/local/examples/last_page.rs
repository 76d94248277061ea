//! Times the latest model context and the last page of turns of one thread: `last_page HOME THREAD`.
#![allow(clippy::print_stdout, reason = "the figures are what it is run for")]

use std::time::Instant;

use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::ThreadId;
use threadkeep_store::{Archived, Direction, ListTurns, ThreadStore};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let home = words.next().ok_or("a home is needed")?;
    let id = ThreadId::parse(&words.next().ok_or("a thread is needed")?)?;
    let store = LocalThreadStore::open(LocalOptions { index: None, ..LocalOptions::new(home) });
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    for round in 0..3 {
        let begun = Instant::now();
        let context = runtime.block_on(store.load_latest_model_context(id, Archived::Included))?;
        let context_ms = begun.elapsed().as_secs_f64() * 1000.0;
        let begun = Instant::now();
        let params = ListTurns {
            thread_id: id,
            page_size: 20,
            cursor: None,
            direction: Direction::Descending,
            archived: Archived::Included,
        };
        let page = runtime.block_on(store.list_turns(params))?;
        let page_ms = begun.elapsed().as_secs_f64() * 1000.0;
        println!(
            "{round}: latest model context {context_ms:.1} ms ({} records), last page {page_ms:.1} ms ({} turns)",
            context.records.len(),
            page.turns.len()
        );
    }
    Ok(())
}
