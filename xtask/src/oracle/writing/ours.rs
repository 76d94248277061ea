//! Our side: threads written and continued with the store, turn by turn as an agent does.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::json;
use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::new_item::ItemPlace;
use threadkeep_record::{Field, HistoryMode, MetadataPatch, NewItem, ThreadId, UtcMillis};
use threadkeep_store::clock::new_thread_id;
use threadkeep_store::{
    Archived, Clock as _, CreateThread, Direction, ForkRange, ForkThread, HostMetadata, ListThreads, ListTurns,
    LiveThread, ResumeThread, StoreResult, StoredThread, SystemClock, ThreadStore, WithHistory,
};

use super::stage::{Checks, Stage};
use super::talk::{By, Said, Talk, Turn};

/// Whether turns carry what Codex itself writes for each: the settings they ran with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Context {
    Written,
    Left,
}

/// A store over the home.
pub struct Ours<'s> {
    stage: &'s Stage,
    store: Arc<LocalThreadStore>,
    cwd: PathBuf,
}

impl<'s> Ours<'s> {
    pub fn open(stage: &'s Stage, home: &Path, cwd: &Path) -> Self {
        let store = Arc::new(LocalThreadStore::open(LocalOptions::new(home)));
        Self { stage, store, cwd: cwd.to_owned() }
    }

    fn shared(&self) -> Arc<dyn ThreadStore> {
        Arc::<LocalThreadStore>::clone(&self.store)
    }

    pub fn wait<T>(&self, work: impl Future<Output = StoreResult<T>>) -> StoreResult<T> {
        self.stage.runtime.block_on(work)
    }

    /// What a new thread is made with: the provider is the one that Codex is set up with, so that it lists the thread.
    pub fn params(&self, id: ThreadId, mode: HistoryMode) -> CreateThread {
        let mut params = CreateThread::new(id, &self.cwd, "threadkeep_oracle");
        params.history_mode = mode;
        params.metadata.model_provider = Some("mock".to_owned());
        params
    }

    pub fn create(&self, mode: HistoryMode) -> Result<(LiveThread, Talk)> {
        let id = new_thread_id();
        let live = self.wait(LiveThread::create(self.shared(), self.params(id, mode), Arc::new(SystemClock)))?;
        Ok((live, Talk::new(id, mode)))
    }

    pub fn resume(&self, id: ThreadId) -> StoreResult<LiveThread> {
        let metadata = HostMetadata { cwd: Some(self.cwd.clone()), ..HostMetadata::default() };
        let params = ResumeThread { thread_id: id, rollout_path: None, archived: Archived::Excluded, metadata };
        self.wait(LiveThread::resume(self.shared(), params, Arc::new(SystemClock)))
    }

    /// A whole turn, made durable.
    pub fn turn(&self, live: &LiveThread, talk: &mut Talk, context: Context, user: &str) -> Result<()> {
        let answer = format!("We answer: {user}");
        let (turn_id, now) = (new_thread_id().to_string(), SystemClock.now());
        let items = turn_items(live, &turn_id, now, context, &self.cwd, user, &answer)?;
        let appended = self.wait(live.append(&items)).context("append")?;
        let kept = appended.times.iter().filter(|t| t.is_some()).count();
        anyhow::ensure!(kept == items.len(), "{kept} of {} items were kept", items.len());
        self.wait(live.flush()).context("flush")?;
        talk.add(user, &answer);
        Ok(())
    }

    /// Resumes a thread, adds a turn, closes it.
    pub fn continued(&self, talk: &mut Talk, user: &str) -> Result<()> {
        let live = self.resume(talk.id).context("resume")?;
        self.turn(&live, talk, Context::Left, user)?;
        self.wait(live.shutdown()).context("shutdown")?;
        Ok(())
    }

    /// A fork that was made whole and closed again.
    pub fn fork(&self, source: ThreadId, range: ForkRange) -> Result<ThreadId> {
        let id = new_thread_id();
        let child = self.params(id, HistoryMode::Legacy);
        self.wait(self.store.fork_thread(ForkThread { source, archived: Archived::Excluded, range, child }))?;
        self.wait(self.store.shutdown_thread(id))?;
        Ok(id)
    }

    /// Takes a turn back, and what is behind it.
    pub fn revert(&self, id: ThreadId, before_turn: &str) -> StoreResult<StoredThread> {
        self.wait(self.store.revert_thread(id, before_turn.to_owned()))
    }

    /// Takes the last revert back.
    pub fn unrevert(&self, id: ThreadId) -> StoreResult<StoredThread> {
        let plan = self.store.plan_unrevert(id)?;
        self.wait(self.store.unrevert_as_planned(plan))
    }

    pub fn rename(&self, id: ThreadId, name: Option<&str>) -> StoreResult<StoredThread> {
        let name = name.map_or(Field::Clear, |n| Field::Set(n.to_owned()));
        let patch = MetadataPatch { name, ..MetadataPatch::default() };
        self.wait(self.store.update_thread_metadata(id, patch, Archived::Included))
    }

    pub fn read(&self, id: ThreadId) -> StoreResult<StoredThread> {
        self.wait(self.store.read_thread(id, Archived::Included, WithHistory::No))
    }

    /// Takes the turns of an old thread as they are told here; whether Codex tells them in the same words.
    pub fn adopt(&self, talk: &mut Talk) -> Result<bool> {
        let turns: Vec<Turn> = self.turns(talk.id)?.into_iter().map(|t| t.1).collect();
        let same = turns == talk.turns;
        talk.here = (!same).then_some(turns);
        Ok(same)
    }

    /// The ids of the turns, oldest first.
    pub fn turn_ids(&self, id: ThreadId) -> StoreResult<Vec<String>> {
        self.turns(id).map(|turns| turns.into_iter().map(|t| t.0).collect())
    }

    fn turns(&self, id: ThreadId) -> StoreResult<Vec<(String, Turn)>> {
        let (mut turns, mut cursor) = (vec![], None);
        loop {
            let params = ListTurns {
                thread_id: id,
                page_size: 3,
                cursor,
                direction: Direction::Ascending,
                archived: Archived::Included,
            };
            let page = self.wait(self.store.list_turns(params))?;
            for turn in page.turns {
                let said = turn.items.iter().filter_map(|item| match item.kind {
                    "user_message" => Some(Said::new(By::Person, &item.text)),
                    "agent_message" => Some(Said::new(By::Agent, &item.text)),
                    _ => None,
                });
                turns.push((turn.id.clone(), said.collect()));
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(turns);
            }
        }
    }

    /// Ids of all threads that are listed, archived or not.
    pub fn listed(&self, archived: bool) -> StoreResult<Vec<ThreadId>> {
        let (mut ids, mut cursor) = (vec![], None);
        loop {
            let params = ListThreads { page_size: 50, cursor, archived, ..ListThreads::default() };
            let page = self.wait(self.store.list_threads(params))?;
            ids.extend(page.threads.iter().map(|t| t.thread_id));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(ids);
            }
        }
    }

    /// The thread is read here as it must be.
    pub fn check(&self, checks: &mut Checks, when: &str, talk: &Talk) {
        let what = format!("{when}: {} here", talk.id);
        if let Some(thread) = checks.works(&what, self.read(talk.id).map_err(Into::into)) {
            checks.same(format!("{what}, history mode"), thread.history_mode, talk.mode);
        }
        if let Some(turns) = checks.works(format!("{what}, turns"), self.turns(talk.id).map_err(Into::into)) {
            let turns: Vec<Turn> = turns.into_iter().map(|t| t.1).collect();
            checks.same(format!("{what}, turns"), &turns, talk.here.as_ref().unwrap_or(&talk.turns));
        }
    }
}

fn turn_items(
    live: &LiveThread,
    turn_id: &str,
    now: UtcMillis,
    context: Context,
    cwd: &Path,
    user: &str,
    answer: &str,
) -> Result<Vec<NewItem>> {
    let (mode, thread_id) = (live.history_mode(), live.thread_id());
    let (first, second) = (new_thread_id().to_string(), new_thread_id().to_string());
    let place = |item_id| ItemPlace { thread_id, turn_id, item_id, at: now };
    let mut items = vec![NewItem::turn_started(turn_id, now)];
    if context == Context::Written {
        items.push(NewItem::from_value(
            "turn_context",
            &json!({"turn_id": turn_id, "cwd": cwd, "approval_policy": "never",
                "sandbox_policy": {"type": "danger-full-access"}, "model": "gpt-5.1-codex", "summary": "auto"}),
        )?);
    }
    items.extend([
        NewItem::model_message("user", user),
        NewItem::user_message(mode, &place(&first), user),
        NewItem::agent_message(mode, &place(&second), answer),
        NewItem::model_message("assistant", answer),
        NewItem::turn_completed(turn_id, Some(answer), now),
    ]);
    Ok(items)
}
