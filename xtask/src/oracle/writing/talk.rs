//! What must be read of a thread, whoever reads it.

use serde_json::Value;
use threadkeep_record::{HistoryMode, ThreadId};

/// Longer texts are compared by their beginning: the store's pages cut what is very long.
const COMPARED: usize = 300;

/// A text of a turn and who said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    pub by: By,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Person,
    Agent,
}

impl Said {
    pub fn new(by: By, text: &str) -> Self {
        Self { by, text: text.trim().chars().take(COMPARED).collect() }
    }
}

/// The texts of a turn, in order.
pub type Turn = Vec<Said>;

/// A thread and its conversation so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Talk {
    pub id: ThreadId,
    pub mode: HistoryMode,
    pub turns: Vec<Turn>,
    /// The turns as the store tells them, where that is in other words: of old threads the two readers tell compactions
    /// and reviews apart.
    pub here: Option<Vec<Turn>>,
    /// What an old thread's preview was: for a fork it depends on the release that made it.
    pub old_preview: Option<String>,
    /// The first turn that stands in the thread's own rollout: what is before it is referred to.
    pub own_from: usize,
    /// From this turn on the model is given every text of a person and of the agent, word for word.
    pub known_from: usize,
}

impl Talk {
    pub fn new(id: ThreadId, mode: HistoryMode) -> Self {
        Self { id, mode, turns: vec![], here: None, old_preview: None, own_from: 0, known_from: 0 }
    }

    pub fn add(&mut self, user: &str, answer: &str) {
        let turn = vec![Said::new(By::Person, user), Said::new(By::Agent, answer)];
        if let Some(here) = &mut self.here {
            here.push(turn.clone());
        }
        self.turns.push(turn);
    }

    /// The first thing a person said, in the thread's own rollout.
    pub fn preview(&self) -> Option<&str> {
        let said = self.turns[self.own_from..].iter().flatten().find(|s| s.by == By::Person);
        self.old_preview.as_deref().or(said.map(|s| s.text.as_str()))
    }

    /// Takes the last turns back. The preview stays: it stands in Codex's database.
    pub fn take_back(&mut self, turns: usize) {
        self.old_preview = self.preview().map(str::to_owned);
        for all in [Some(&mut self.turns), self.here.as_mut()].into_iter().flatten() {
            all.truncate(all.len().saturating_sub(turns));
        }
        self.own_from = 0;
        self.known_from = self.known_from.min(self.turns.len());
    }

    /// The same conversation up to and with a turn, as another thread.
    pub fn fork(&self, id: ThreadId, turns: usize) -> Self {
        let first = |all: &Vec<Turn>| all[..turns.min(all.len())].to_vec();
        let here = self.here.as_ref().map(first);
        Self {
            id,
            turns: first(&self.turns),
            here,
            old_preview: None,
            known_from: self.known_from.min(turns),
            ..self.clone()
        }
    }
}

/// Turns as Codex tells them (`Turn` of its app-server), oldest first.
pub fn of_codex(turns: &Value) -> Vec<Turn> {
    let array = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let said = |item: Value| match item["type"].as_str() {
        Some("userMessage") => {
            let parts: Vec<String> =
                array(&item["content"]).iter().filter_map(|p| p["text"].as_str().map(str::to_owned)).collect();
            Some(Said::new(By::Person, &parts.join("\n")))
        }
        Some("agentMessage") => Some(Said::new(By::Agent, item["text"].as_str().unwrap_or_default())),
        _ => None,
    };
    array(turns).into_iter().map(|turn| array(&turn["items"]).into_iter().filter_map(said).collect()).collect()
}
