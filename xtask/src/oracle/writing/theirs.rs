//! Codex's side: a running app-server, asked for what it sees, and made to go on.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use threadkeep_record::{HistoryMode, ThreadId};

use super::stage::{Checks, Stage};
use super::talk::{self, By, Said, Talk, Turn};
use crate::codex::{AppServer, Given, SOURCE_KINDS, reply_to};

/// A running Codex on the home.
pub struct Theirs<'s> {
    stage: &'s Stage,
    pub server: AppServer,
}

impl<'s> Theirs<'s> {
    pub fn start(stage: &'s Stage, home: &Path) -> Result<Self> {
        Ok(Self { stage, server: AppServer::start(&stage.codex, home)? })
    }

    /// All rows of its list.
    pub fn list(&mut self, archived: bool) -> Result<Vec<Value>> {
        let params = json!({
            "sourceKinds": SOURCE_KINDS, "modelProviders": [], "archived": archived, "limit": 100,
        });
        self.server.all_pages("thread/list", params)
    }

    /// The one row of a thread in its list.
    pub fn row(&mut self, id: ThreadId, archived: bool) -> Result<Value> {
        let text = id.to_string();
        let mut rows: Vec<Value> = self.list(archived)?.into_iter().filter(|row| row["id"] == text.as_str()).collect();
        match (rows.pop(), rows.len()) {
            (Some(row), 0) => Ok(row),
            (None, _) => bail!("it does not list {id}"),
            (Some(_), more) => bail!("it lists {id} {} times", more + 1),
        }
    }

    /// The turns of `thread/read`.
    pub fn read(&mut self, id: ThreadId) -> Result<Vec<Turn>> {
        let answer = self.server.request("thread/read", json!({"threadId": id, "includeTurns": true}))?;
        Ok(talk::of_codex(&answer["thread"]["turns"]))
    }

    /// The turns of `thread/turns/list`, oldest first.
    pub fn turns(&mut self, id: ThreadId) -> Result<Vec<Turn>> {
        let params = json!({"threadId": id, "itemsView": "full", "sortDirection": "asc", "limit": 100});
        let rows = self.server.all_pages("thread/turns/list", params)?;
        Ok(talk::of_codex(&rows.into()))
    }

    /// Opens the thread for going on; its turns.
    pub fn resume(&mut self, id: ThreadId) -> Result<Vec<Turn>> {
        let answer = self.server.request("thread/resume", json!({"threadId": id}))?;
        Ok(talk::of_codex(&answer["thread"]["turns"]))
    }

    /// A fork of the thread, whole or through a turn.
    pub fn fork(&mut self, talk: &Talk, through: Option<(&str, usize)>) -> Result<Talk> {
        let mut params = json!({"threadId": talk.id});
        if let Some((turn, _)) = through {
            params["lastTurnId"] = turn.into();
        }
        let answer = self.server.request("thread/fork", params)?;
        let id = answer["thread"]["id"].as_str().context("a fork without an id")?;
        Ok(talk.fork(ThreadId::parse(id)?, through.map_or(talk.turns.len(), |(_, turns)| turns)))
    }

    /// A thread of its own with a turn.
    pub fn create(&mut self, checks: &mut Checks, mode: HistoryMode, cwd: &Path, user: &str) -> Result<Talk> {
        let word = if mode == HistoryMode::Paginated { "paginated" } else { "legacy" };
        let answer = self.server.request("thread/start", json!({"cwd": cwd, "historyMode": word}))?;
        let id = answer["thread"]["id"].as_str().context("a thread without an id")?;
        let mut talk = Talk::new(ThreadId::parse(id)?, mode);
        self.turn(checks, "a thread of Codex's", &mut talk, user)?;
        Ok(talk)
    }

    /// A thread that it has, as it reads it after a resume.
    pub fn adopt(&mut self, row: &Value) -> Result<Talk> {
        let id = ThreadId::parse(row["id"].as_str().context("a row without an id")?)?;
        let mode = if row["historyMode"] == "paginated" { HistoryMode::Paginated } else { HistoryMode::Legacy };
        let turns = self.resume(id)?;
        let known_from = turns.len();
        let old_preview = row["preview"].as_str().map(|text| Said::new(By::Person, text).text);
        Ok(Talk { turns, known_from, old_preview, ..Talk::new(id, mode) })
    }

    /// A turn with the stand-in model, which must have been given the conversation so far.
    pub fn turn(&mut self, checks: &mut Checks, when: &str, talk: &mut Talk, user: &str) -> Result<()> {
        let what = format!("{when}: turn of {} there", talk.id);
        self.stage.model.take();
        let turn = self.server.turn(&talk.id.to_string(), user).context("turn/start")?;
        checks.same(format!("{what}, status"), turn["status"].as_str(), Some("completed"));
        talk.add(user, &reply_to(user));
        let given = self.stage.model.take();
        let missing = given.last().map(|given| not_given(given, talk));
        checks.same(format!("{what}, texts that the model was not given"), missing, Some(vec![]));
        Ok(())
    }

    /// It lists the thread once, and reads its conversation in every way, after a resume.
    pub fn check(&mut self, checks: &mut Checks, when: &str, talk: &Talk) {
        let what = format!("{when}: {} there", talk.id);
        if talk.turns.len() == talk.own_from && talk.own_from > 0 {
            // As with a fork of its own whose row in the database was lost.
            let listed = self.row(talk.id, false).is_ok();
            checks.same(format!("{what}, a fork by reference in which nothing was said is listed"), listed, false);
        } else if let Some(row) = checks.works(format!("{what}, list"), self.row(talk.id, false)) {
            let mode = if talk.mode == HistoryMode::Paginated { "paginated" } else { "legacy" };
            // Releases that know one mode only do not tell it.
            if self.stage.codex.version != "0.142.0" {
                checks.same(format!("{what}, historyMode"), row["historyMode"].as_str(), Some(mode));
            }
            let preview = row["preview"].as_str().unwrap_or_default().trim().chars().take(300).collect::<String>();
            let expected = talk.preview().filter(|p| !p.is_empty()).unwrap_or(&preview);
            checks.same(format!("{what}, preview"), preview.as_str(), expected);
        }
        // A paginated thread is read from a database, which follows the rollout when the thread is resumed.
        if talk.mode == HistoryMode::Legacy
            && let Some(turns) = checks.works(format!("{what}, read before resume"), self.read(talk.id))
        {
            checks.same(format!("{what}, read before resume"), &turns, &talk.turns);
        }
        for (name, turns) in
            [("resume", self.resume(talk.id)), ("read", self.read(talk.id)), ("turns", self.turns(talk.id))]
        {
            if let Some(turns) = checks.works(format!("{what}, {name}"), turns) {
                checks.same(format!("{what}, {name}"), &turns, &talk.turns);
            }
        }
    }
}

/// Which texts of the conversation the model was not given, in this order, each as a message of its own.
fn not_given(given: &Given, talk: &Talk) -> Vec<String> {
    let mut messages = given.iter();
    let mut expected: Vec<_> = talk.turns[talk.known_from..].iter().flatten().collect();
    // The answer to this very request.
    expected.pop();
    expected
        .into_iter()
        .filter(|said| {
            let role = if said.by == By::Person { "user" } else { "assistant" };
            !messages.any(|m| m.role == role && m.text.trim().starts_with(&said.text))
        })
        .map(|said| said.text.clone())
        .collect()
}
