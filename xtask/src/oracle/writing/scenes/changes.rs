//! Threads that the command archives, unarchives, deletes and restores, and what Codex makes of it; and the other way
//! round. Row by row and byte by byte.

mod cast;
mod family;
mod newer;

use anyhow::Result;
use serde_json::{Value, json};

use self::cast::{Actor, compress, forms};
use crate::oracle::writing::Extent;
use crate::oracle::writing::databases::{Databases, Difference, How};
use crate::oracle::writing::stage::{Checks, Home, Stage};
use crate::oracle::writing::theirs::Theirs;
use crate::threadkeep::Threadkeep;

/// When the command runs, and what Codex knows then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// Between runs of the server.
    Between,
    /// While a server has the home open.
    Running,
    /// Between runs of the server, each time without any database.
    NoDatabases,
}

pub fn run(stage: &Stage, extent: Extent, checks: &mut Checks) -> Result<()> {
    let (fixtures, all): (&[&str], &[When]) = match extent {
        Extent::Short => (&["0.171.0"], &[When::Between]),
        Extent::Full => (&["0.171.0", "0.142.0"], &[When::Between, When::Running, When::NoDatabases]),
    };
    for fixture in fixtures {
        for when in all {
            play(stage, fixture, *when, extent, checks)?;
        }
    }
    Ok(())
}

/// A home that the older release wrote, with that release.
pub fn run_older(stage: &Stage, extent: Extent, checks: &mut Checks) -> Result<()> {
    let version = stage.codex.version.clone();
    if !["0.142.0", "0.156.0"].contains(&version.as_str()) {
        checks.holds("not played", true, "");
        checks.note("not played with this release");
        return Ok(());
    }
    for when in [When::Between, When::Running, When::NoDatabases] {
        play(stage, &version, when, extent, checks)?;
        newer::play(stage, when, checks)?;
    }
    Ok(())
}

fn play(stage: &Stage, fixture: &str, when: When, extent: Extent, checks: &mut Checks) -> Result<()> {
    let home = Home::of_fixture(stage, &format!("changes-{fixture}-{when:?}"), fixture)?;
    let mut actors = cast::of(stage, &home, fixture, extent, checks)?;
    let place = format!("{fixture}, {when:?}");
    let mut scene = Place { threadkeep: stage.threadkeep()?, home, when, place };
    scene.archive(&mut actors, checks)?;
    scene.delete(&mut actors, checks)?;
    scene.of_codex(&mut actors, checks)?;
    family::play(&mut scene, &mut actors, checks)
}

/// The home of a scene.
struct Place<'s> {
    threadkeep: Threadkeep,
    home: Home<'s>,
    when: When,
    /// Which it is, for the checks.
    place: String,
}

impl<'s> Place<'s> {
    /// Runs the command over threads; each must be changed.
    fn command(&self, words: &[&str], actors: &[&Actor]) -> Result<Value> {
        let ids: Vec<String> = actors.iter().map(|a| a.talk.id.to_string()).collect();
        let mut args: Vec<&str> = words.to_vec();
        args.extend(ids.iter().map(String::as_str));
        args.push("-y");
        self.threadkeep.json(self.threadkeep.on(&self.home.path, &args), &[0])
    }

    /// Does something with the command, and then asks a server: one that ran already, or one that starts then.
    fn then_there(&self, does: impl FnOnce() -> Result<()>) -> Result<Theirs<'s>> {
        if self.when == When::Running {
            let mut theirs = self.home.theirs()?;
            theirs.list(false)?;
            theirs.list(true)?;
            does()?;
            return Ok(theirs);
        }
        if self.when == When::NoDatabases {
            self.home.lose_databases()?;
        }
        does()?;
        if self.when == When::NoDatabases {
            self.home.lose_databases()?;
        }
        self.home.theirs()
    }

    /// Codex's databases; while it runs, without its log, and again where it wrote just then.
    fn databases(&self) -> Result<Databases> {
        let mut tries = 5;
        loop {
            match self.home.databases() {
                Err(_) if self.when == When::Running && tries > 0 => tries -= 1,
                read => return read,
            }
        }
    }

    fn differences(&self, before: &Databases, after: &Databases) -> Vec<Difference> {
        let all = before.differences(after);
        all.into_iter().filter(|d| self.when != When::Running || !d.place.starts_with("logs_")).collect()
    }

    /// One command over one thread between the two folders: nothing but the three columns of its row changes.
    fn moved(&self, verb: &str, actor: &Actor, checks: &mut Checks) -> Result<()> {
        let what = format!("{}: {verb} of {}", self.place, actor.talk.id);
        let before = self.databases()?;
        checks.works(&what, self.command(&[verb], &[actor]));
        let after = self.databases()?;
        let row = format!("'{}'", actor.talk.id);
        let columns = ["archived", "archived_at", "rollout_path"].map(|c| format!("state_5.sqlite threads.{c}"));
        let known = !before.rows_of(actor.talk.id).is_empty();
        let expected: Vec<Difference> = columns
            .into_iter()
            .filter(|_| known)
            .map(|place| Difference { place, row: row.clone(), how: How::Changed })
            .collect();
        checks.same(format!("{what}, rows"), self.differences(&before, &after), expected);
        Ok(())
    }

    /// Codex lists the thread as archived and nowhere else, by its name, and does not resume it.
    fn archived_there(&self, theirs: &mut Theirs<'_>, actor: &Actor, checks: &mut Checks) -> Result<()> {
        let id = actor.talk.id;
        let what = format!("{}: {id}, archived,", self.place);
        checks.holds(format!("{what} in the list there"), theirs.row(id, false).is_err(), "it is listed");
        if let Some(row) = checks.works(format!("{what} in the archive there"), theirs.row(id, true)) {
            self.named(&what, &row, actor, checks);
        }
        if let Some(refusal) =
            checks.works(format!("{what} resume"), theirs.server.refused("thread/resume", json!({"threadId": id})))
        {
            let told = refusal.message.contains(&format!("session {id} is archived"));
            if told {
                checks.holds(format!("{what} how resume is refused"), refusal.code == -32600, &refusal);
            } else {
                let text = refusal.message.replace(&id.to_string(), "ID");
                let cut = text.split('/').next().unwrap_or_default();
                let old = self.home.stage.codex.version != "0.171.0";
                checks.holds(format!("{what} how resume is refused"), old, &refusal);
                checks.note(format!("it refuses to resume an archived thread with: {cut}"));
            }
        }
        Ok(())
    }

    /// Codex lists it among those that are not archived and nowhere else, by its name, resumes it and goes on.
    fn active_there(&self, theirs: &mut Theirs<'_>, actor: &mut Actor, checks: &mut Checks) -> Result<()> {
        let id = actor.talk.id;
        let what = format!("{}: {id}, active,", self.place);
        checks.holds(format!("{what} in the archive there"), theirs.row(id, true).is_err(), "it is listed");
        if let Some(row) = checks.works(format!("{what} in the list there"), theirs.row(id, false)) {
            self.named(&what, &row, actor, checks);
        }
        if self.when == When::NoDatabases && actor.refers > 0 {
            // What it refers to is shown once that was opened since; the model is given all of it.
            let own = &actor.talk.turns[actor.refers..];
            if let Some(shown) = checks.works(format!("{what} resume"), theirs.resume(id)) {
                let mut all = actor.talk.turns.iter();
                let in_order = shown.iter().all(|turn| all.any(|t| t == turn));
                checks.holds(format!("{what} turns"), in_order && shown.ends_with(own), &shown);
                if shown.len() < actor.talk.turns.len() {
                    checks
                        .note("without databases it shows turns that a thread refers to once their thread was opened");
                }
            }
        } else {
            theirs.check(checks, &what, &actor.talk);
        }
        let turn = theirs.turn(checks, &what, &mut actor.talk, "asked where it stands now");
        checks.works(format!("{what} turn"), turn);
        Ok(())
    }

    /// Codex lists it nowhere, and knows nothing that could be opened.
    fn gone_there(&self, theirs: &mut Theirs<'_>, actor: &Actor, checks: &mut Checks) -> Result<()> {
        let id = actor.talk.id;
        let what = format!("{}: {id}, deleted,", self.place);
        for archived in [false, true] {
            let listed = theirs.row(id, archived).is_ok();
            checks.same(format!("{what} listed there, archived {archived}"), listed, false);
        }
        for method in ["thread/resume", "thread/archive", "thread/unarchive", "thread/delete"] {
            let refusal =
                checks.works(format!("{what} {method}"), theirs.server.refused(method, json!({"threadId": id})));
            if let Some(refusal) = refusal {
                let text = refusal.message.replace(&id.to_string(), "ID");
                let none = text.contains("rollout found for thread id ID");
                checks.holds(format!("{what} how {method} is refused"), none, &text);
            }
        }
        let read = theirs.server.refused("thread/read", json!({"threadId": id}));
        checks.works(format!("{what} thread/read"), read);
        Ok(())
    }

    fn named(&self, what: &str, row: &Value, actor: &Actor, checks: &mut Checks) {
        // Its name stands in the row alone.
        if self.when == When::NoDatabases && row["historyMode"] == "paginated" {
            return;
        }
        checks.same(format!("{what} name there"), row["name"].as_str(), actor.name.as_deref());
    }

    /// Archived and unarchived here, and by Codex what was archived here.
    fn archive(&mut self, actors: &mut [Actor], checks: &mut Checks) -> Result<()> {
        let mut theirs = self.then_there(|| actors.iter().try_for_each(|a| self.moved("archive", a, checks)))?;
        for actor in &*actors {
            self.archived_there(&mut theirs, actor, checks)?;
            self.home.ours().check(checks, "archived here", &actor.talk);
        }
        // Every second one comes back there.
        for actor in actors.iter().step_by(2) {
            let back = theirs.server.request("thread/unarchive", json!({"threadId": actor.talk.id}));
            checks.works(format!("{}: thread/unarchive of {}", self.place, actor.talk.id), back);
        }
        for actor in actors.iter_mut().step_by(2) {
            self.active_there(&mut theirs, actor, checks)?;
        }
        drop(theirs);
        let mut theirs =
            self.then_there(|| actors.iter().skip(1).step_by(2).try_for_each(|a| self.moved("unarchive", a, checks)))?;
        for actor in actors.iter_mut().skip(1).step_by(2) {
            self.active_there(&mut theirs, actor, checks)?;
        }
        drop(theirs);
        // What came back here is archived there, and all of it comes back by one command.
        let mut theirs = self.home.theirs()?;
        for actor in &*actors {
            let done = theirs.server.request("thread/archive", json!({"threadId": actor.talk.id}));
            checks.works(format!("{}: thread/archive of {}", self.place, actor.talk.id), done);
        }
        drop(theirs);
        let mut theirs = self.then_there(|| {
            let all: Vec<&Actor> = actors.iter().collect();
            checks.works(format!("{}: unarchive of all", self.place), self.command(&["unarchive"], &all));
            Ok(())
        })?;
        for actor in actors {
            self.active_there(&mut theirs, actor, checks)?;
        }
        Ok(())
    }

    /// Deleted and restored here, all at once and one by one; every second one is archived before.
    fn delete(&mut self, actors: &mut [Actor], checks: &mut Checks) -> Result<()> {
        for actor in actors.iter().filter(|a| a.compressed) {
            compress(&self.home, actor.talk.id)?;
            checks.same(
                format!("{}: forms of {}", self.place, actor.talk.id),
                forms(&self.home, actor.talk.id)?,
                ["jsonl.zst"].to_vec(),
            );
        }
        for actor in actors.iter().step_by(2) {
            self.moved("archive", actor, checks)?;
        }
        let all: Vec<&Actor> = actors.iter().collect();
        self.there_and_back("all at once", &all, &["restore", "--all"], checks)?;
        // What needs another's history goes first; what was deleted last comes back first.
        for actor in actors.iter().rev() {
            if actor.needed {
                self.needed(actor, checks)?;
            } else {
                self.there_and_back("one by one", &[actor], &["restore", &actor.talk.id.to_string()], checks)?;
            }
        }
        let mut theirs = self.then_there(|| actors.iter().rev().try_for_each(|a| self.deleted(a, checks)))?;
        for actor in &*actors {
            self.gone_there(&mut theirs, actor, checks)?;
        }
        drop(theirs);
        let names = std::fs::read_to_string(self.home.path.join("session_index.jsonl")).unwrap_or_default();
        for actor in &*actors {
            let lines = names.matches(&actor.talk.id.to_string()).count();
            checks.same(format!("{}: name lines of {} after Codex looked", self.place, actor.talk.id), lines, 0);
        }
        let mut theirs = self.then_there(|| {
            for actor in &*actors {
                checks.works(
                    format!("{}: restore of {}", self.place, actor.talk.id),
                    self.command(&["restore"], &[actor]),
                );
            }
            Ok(())
        })?;
        for (n, actor) in actors.iter_mut().enumerate() {
            if n % 2 == 0 {
                self.archived_there(&mut theirs, actor, checks)?;
            } else {
                self.active_there(&mut theirs, actor, checks)?;
            }
            self.home.ours().check(checks, "restored", &actor.talk);
        }
        drop(theirs);
        let mut theirs =
            self.then_there(|| actors.iter().step_by(2).try_for_each(|a| self.moved("unarchive", a, checks)))?;
        for actor in actors.iter_mut().step_by(2) {
            self.active_there(&mut theirs, actor, checks)?;
        }
        Ok(())
    }

    /// One thread is deleted: its rows go, and no other.
    fn deleted(&self, actor: &Actor, checks: &mut Checks) -> Result<()> {
        let what = format!("{}: delete of {}", self.place, actor.talk.id);
        let before = self.databases()?;
        checks.works(&what, self.command(&["delete"], &[actor]));
        let gone = self.differences(&before, &self.databases()?);
        checks.same(format!("{what}, rows"), gone, before.rows_of(actor.talk.id));
        let id = actor.talk.id.to_string();
        let names = std::fs::read_to_string(self.home.path.join("session_index.jsonl")).unwrap_or_default();
        checks.same(format!("{what}, its lines in the name index"), names.matches(&id).count(), 0);
        let files = self.home.files()?.keys().filter(|p| p.to_string_lossy().contains(&id)).count();
        checks.same(format!("{what}, its files"), files, 0);
        Ok(())
    }

    /// A thread whose files another's history needs stays, here and there.
    fn needed(&self, actor: &Actor, checks: &mut Checks) -> Result<()> {
        let id = actor.talk.id.to_string();
        let what = format!("{}: delete of {id}, which a fork needs", self.place);
        let before = (self.databases()?, self.home.files()?);
        let output = self.threadkeep.on(&self.home.path, &["delete", &id, "-y"]).output()?;
        let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let text = format!("cannot delete thread {id}: forked history still references it");
        checks.holds(&what, output.status.code() == Some(3) && told.contains(&text), &told);
        checks.same(format!("{what}, rows"), self.differences(&before.0, &self.databases()?), vec![]);
        checks.holds(format!("{what}, files"), before.1 == self.home.files()?, "not as before");
        let mut theirs = self.home.theirs()?;
        let refusal = theirs.server.refused("thread/delete", json!({"threadId": id}));
        if let Some(refusal) = checks.works(format!("{what}, there"), refusal) {
            checks.holds(format!("{what}, there"), refusal.message.contains(&text), &refusal);
        }
        Ok(())
    }

    /// Threads are deleted and restored without anybody looking: everything is as it was.
    fn there_and_back(&self, how: &str, actors: &[&Actor], restore: &[&str], checks: &mut Checks) -> Result<()> {
        let what = format!("{}: {how}, {}", self.place, actors[0].talk.id);
        let (rows, files) = (self.databases()?, self.home.files()?);
        let mut expected: Vec<Difference> = actors.iter().flat_map(|a| rows.rows_of(a.talk.id)).collect();
        expected.sort();
        expected.dedup();
        checks.works(format!("{what}: delete"), self.command(&["delete"], actors));
        let mut gone = self.differences(&rows, &self.databases()?);
        gone.sort();
        checks.same(format!("{what}: rows that went"), gone, expected);
        let left = self.home.files()?;
        let kept =
            left.iter().all(|(path, data)| path.ends_with("session_index.jsonl") || files.get(path) == Some(data));
        checks.holds(format!("{what}: other files"), kept && left.len() < files.len(), left.keys());
        let back = self.threadkeep.json(self.threadkeep.on(&self.home.path, restore), &[0]);
        checks.works(format!("{what}: restore"), back);
        checks.same(format!("{what}: rows afterwards"), self.differences(&rows, &self.databases()?), vec![]);
        let now = self.home.files()?;
        let other: Vec<_> = files
            .iter()
            .filter(|(path, data)| now.get(*path).is_none_or(|n| n.0 != data.0 || is_rollout(path) && n.1 != data.1))
            .map(|(path, _)| path)
            .chain(now.keys().filter(|path| !files.contains_key(*path)))
            .collect();
        checks.same(format!("{what}: files that are not as they were"), other, vec![]);
        Ok(())
    }

    /// What Codex archived is deleted and restored here, and comes back there.
    fn of_codex(&mut self, actors: &mut [Actor], checks: &mut Checks) -> Result<()> {
        let mut theirs = self.home.theirs()?;
        for actor in &*actors {
            let done = theirs.server.request("thread/archive", json!({"threadId": actor.talk.id}));
            checks.works(format!("{}: thread/archive of {}", self.place, actor.talk.id), done);
        }
        drop(theirs);
        let mut theirs = self.then_there(|| actors.iter().rev().try_for_each(|a| self.deleted(a, checks)))?;
        for actor in &*actors {
            self.gone_there(&mut theirs, actor, checks)?;
        }
        drop(theirs);
        let mut theirs = self.then_there(|| {
            let all: Vec<&Actor> = actors.iter().collect();
            checks.works(format!("{}: restore of what Codex archived", self.place), self.command(&["restore"], &all));
            Ok(())
        })?;
        for actor in actors {
            self.archived_there(&mut theirs, actor, checks)?;
            let back = theirs.server.request("thread/unarchive", json!({"threadId": actor.talk.id}));
            checks.works(format!("{}: thread/unarchive of {}", self.place, actor.talk.id), back);
            self.active_there(&mut theirs, actor, checks)?;
        }
        Ok(())
    }
}

fn is_rollout(path: &std::path::Path) -> bool {
    path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("rollout-"))
}
