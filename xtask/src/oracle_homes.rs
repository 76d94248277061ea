//! `oracle-homes`: the real Codex runs in task homes that threadkeep prepared, with a stand-in for the model.
//!
//! A task says something, the next one goes on in a home of its own; the person's list stays as it was; two homes cannot
//! write one thread at once; what a task archives and names stays with its conversation.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Value, json};

use crate::codex::{self, AppServer, Codex, Model, SOURCE_KINDS};
use crate::threadkeep::Threadkeep;

#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Released version to run, from npm
    #[arg(long, default_value = "0.171.0")]
    codex: String,
    /// threadkeep binary to test, instead of building the workspace's
    #[arg(long, value_name = "PATH")]
    bin: Option<PathBuf>,
}

struct Stage {
    codex: Codex,
    threadkeep: Threadkeep,
    model: Model,
    work: PathBuf,
}

pub fn run(options: &Options) -> Result<()> {
    let threadkeep = Threadkeep::find_or_build(options.bin.as_deref())?;
    let codex = Codex::install(&options.codex)?;
    let work = codex::peer_dir()?.join(format!("homes-{}", std::process::id()));
    let stage = Stage { codex, threadkeep, model: Model::start()?, work };
    fs::create_dir_all(stage.shared()).context("cannot make the shared home")?;
    codex::write_config_for(&stage.shared(), &stage.model.base_url())?;
    println!("Codex {} in homes of {}", stage.codex.version, stage.threadkeep.version()?);
    let person = stage.person()?;
    let thread = stage.first_task(&person)?;
    stage.next_task(&thread, &person)?;
    stage.one_writer(&thread)?;
    stage.names(&thread)?;
    stage.a_fork(&person)?;
    stage.a_fork_of_a_reverted_thread()?;
    stage.persons_thread(&person)?;
    println!("all as it should be");
    fs::remove_dir_all(&stage.work).with_context(|| format!("cannot remove {}", stage.work.display()))
}

fn expect(what: &str, right: bool, seen: impl std::fmt::Display) -> Result<()> {
    if !right {
        bail!("{what}: {seen}");
    }
    println!("- {what}");
    Ok(())
}

impl Stage {
    fn shared(&self) -> PathBuf {
        self.work.join("shared")
    }

    fn task(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    fn prepare(&self, task: &str, issue: &str, resume: Option<&str>) -> Result<Value> {
        let mut command = self.threadkeep.command();
        command.args(["--json", "home", "prepare", "--issue", issue, "--agent", "a"]);
        command.arg("--task-home").arg(self.task(task)).arg("--shared-home").arg(self.shared());
        if let Some(id) = resume {
            command.args(["--resume", id]);
        }
        self.threadkeep.json(command, &[0])
    }

    fn list(&self, home: &Path) -> Result<Vec<String>> {
        let mut server = AppServer::start(&self.codex, home)?;
        ids(&mut server)
    }

    /// The person says something in their own home.
    fn person(&self) -> Result<String> {
        let mut server = AppServer::start(&self.codex, &self.shared())?;
        let id = started(&mut server, &self.work)?;
        server.turn(&id, "the person's own")?;
        drop(server);
        expect("the person has one thread", self.list(&self.shared())? == [id.clone()], "another list")?;
        Ok(id)
    }

    fn first_task(&self, person: &str) -> Result<String> {
        let prepared = self.prepare("one", "i1", None)?;
        expect("a fresh home", prepared["outcome"] == "fresh", &prepared)?;
        let mut server = AppServer::start(&self.codex, &self.task("one"))?;
        let seen = ids(&mut server)?;
        expect(
            "it does not see the person's history",
            !seen.contains(&person.to_owned()) && seen.is_empty(),
            format!("{seen:?}"),
        )?;
        let id = started(&mut server, &self.work)?;
        server.turn(&id, "the first task")?;
        drop(server);
        let _ = fs::remove_dir_all(self.task("one"));
        Ok(id)
    }

    fn next_task(&self, thread: &str, person: &str) -> Result<()> {
        let prepared = self.prepare("two", "i1", Some(thread))?;
        expect("the next task resumes in a home of its own", prepared["outcome"] == "resumed", &prepared)?;
        let mut server = AppServer::start(&self.codex, &self.task("two"))?;
        let seen = ids(&mut server)?;
        expect("it sees that thread alone", seen == [thread.to_owned()], format!("{seen:?}"))?;
        server.request("thread/resume", json!({"threadId": thread}))?;
        server.turn(thread, "the second task")?;
        let read = server.request("thread/read", json!({"threadId": thread, "includeTurns": true}))?;
        let turns = read["thread"]["turns"].as_array().map_or(0, Vec::len);
        expect("the conversation goes on: two turns", turns == 2, &read)?;
        server.request("thread/name/set", json!({"threadId": thread, "name": "named in a task"}))?;
        let store = PathBuf::from(prepared["store"].as_str().context("no store")?);
        for (method, folder) in [("thread/archive", "archived_sessions"), ("thread/unarchive", "sessions")] {
            server.request(method, json!({"threadId": thread}))?;
            let there = files(&store.join(folder));
            expect(&format!("{method} keeps the rollout in the store"), there == 1, there)?;
        }
        drop(server);
        let seen = self.list(&self.shared())?;
        expect("the person's list is as it was", seen == [person.to_owned()], format!("{seen:?}"))
    }

    fn one_writer(&self, thread: &str) -> Result<()> {
        let prepared = self.prepare("two", "i1", Some(thread))?;
        expect("a name given in a task is told", prepared["names"][0]["name"] == "named in a task", &prepared)?;
        self.prepare("three", "i1", Some(thread))?;
        let mut first = AppServer::start(&self.codex, &self.task("two"))?;
        let mut second = AppServer::start(&self.codex, &self.task("three"))?;
        first.request("thread/resume", json!({"threadId": thread}))?;
        first.turn(thread, "the writer")?;
        let refused = match second.request("thread/resume", json!({"threadId": thread})) {
            Err(error) => error.to_string(),
            // Some versions take the lock with the first write.
            Ok(_) => second.turn(thread, "a second writer").map_or_else(|e| e.to_string(), |_| String::new()),
        };
        expect("a second home is refused", refused.contains("active writer"), &refused)?;
        drop(first);
        drop(second);
        let mut second = AppServer::start(&self.codex, &self.task("three"))?;
        second.request("thread/resume", json!({"threadId": thread}))?;
        second.turn(thread, "now alone")?;
        let read = second.request("thread/read", json!({"threadId": thread, "includeTurns": true}))?;
        let turns = read["thread"]["turns"].as_array().map_or(0, Vec::len);
        expect("and writes when the first is done: four turns", turns == 4, &read)
    }

    /// Codex reads the name of a paginated thread from its database alone, and makes that without names.
    fn names(&self, thread: &str) -> Result<()> {
        let shown = |task: &str| -> Result<Value> {
            let mut server = AppServer::start(&self.codex, &self.task(task))?;
            let read = server.request("thread/read", json!({"threadId": thread}))?;
            Ok(read["thread"]["name"].clone())
        };
        self.prepare("seven", "i1", Some(thread))?;
        let seen = shown("seven")?;
        expect("a new home's Codex does not know a paginated thread's name", seen.is_null(), &seen)?;
        let prepared = self.prepare("seven", "i1", Some(thread))?;
        let seen = shown("seven")?;
        expect("it does when its home was prepared again", seen == "named in a task", format!("{seen} {prepared}"))?;
        let prepared = self.prepare("seven", "i1", Some(thread))?;
        expect("which is done once", prepared["repaired"] == json!([]), &prepared)?;

        self.prepare("eight", "i1", Some(thread))?;
        let mut run = self.threadkeep.command();
        run.args(["home", "run", "--task-home"]).arg(self.task("eight"));
        run.arg("--shared-home").arg(self.shared()).arg("--");
        let agent = self.codex.app_server_command(&self.task("eight"));
        run.arg(agent.get_program()).args(agent.get_args());
        for (name, value) in agent.get_envs() {
            value.map(|value| run.env(name, value));
        }
        let output = run.stdin(Stdio::null()).output().context("cannot run threadkeep")?;
        let seen = shown("eight")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        expect("or when a run has ended in it", seen == "named in a task", format!("{seen} {said}"))?;

        let mut server = AppServer::start(&self.codex, &self.task("eight"))?;
        server.request("thread/resume", json!({"threadId": thread}))?;
        server.request("thread/name/set", json!({"threadId": thread, "name": "named again"}))?;
        drop(server);
        for task in ["eight", "seven", "seven"] {
            let prepared = self.prepare(task, "i1", Some(thread))?;
            let told = &prepared["names"][0]["name"];
            expect("a newer name stays the name", told == "named again", &prepared)?;
        }
        let seen = shown("seven")?;
        expect("and is shown where an older one was", seen == "named again", &seen)
    }

    /// A fork refers to its parent's records instead of copying them.
    fn a_fork(&self, person: &str) -> Result<()> {
        let mut server = AppServer::start(&self.codex, &self.shared())?;
        server.request("thread/resume", json!({"threadId": person}))?;
        let answer = server.request("thread/fork", json!({"threadId": person}))?;
        let fork = answer["thread"]["id"].as_str().context("a fork without an id")?.to_owned();
        server.turn(&fork, "in the fork")?;
        drop(server);
        let prepared = self.prepare("six", "i4", Some(&fork))?;
        let bases = prepared["bases"].as_array().map_or(0, Vec::len);
        expect("a fork comes with its base", prepared["outcome"] == "resumed" && bases == 1, &prepared)?;
        let mut server = AppServer::start(&self.codex, &self.task("six"))?;
        server.request("thread/resume", json!({"threadId": fork}))?;
        server.turn(&fork, "the fork goes on in a task")?;
        let read = server.request("thread/read", json!({"threadId": fork, "includeTurns": true}))?;
        let turns = read["thread"]["turns"].as_array().map_or(0, Vec::len);
        // What it inherited, Codex 0.171 shows only in a home whose own history database has read the parent.
        expect("and goes on in the task: two turns of its own", turns >= 2, &read)
    }

    /// The base of such a fork is a segment of its parent, which the header names by the segment's own id.
    fn a_fork_of_a_reverted_thread(&self) -> Result<()> {
        let mut server = AppServer::start(&self.codex, &self.shared())?;
        let thread = started(&mut server, &self.work)?;
        server.turn(&thread, "stays from the beginning")?;
        for (taken, stays) in [("taken back first", "stays from the middle"), ("taken back second", "stays to the end")]
        {
            let turn = server.turn(&thread, taken)?;
            server.request("thread/revert", json!({"threadId": thread, "beforeTurnId": turn["id"]}))?;
            server.turn(&thread, stays)?;
        }
        let answer = server.request("thread/fork", json!({"threadId": thread}))?;
        let fork = answer["thread"]["id"].as_str().context("a fork without an id")?.to_owned();
        server.turn(&fork, "in the fork of the reverted")?;
        drop(server);
        for (task, issue, resumed, bases) in [("nine", "i5", &thread, json!([])), ("ten", "i6", &fork, json!([thread]))]
        {
            let prepared = self.prepare(task, issue, Some(resumed))?;
            let right = prepared["outcome"] == "resumed" && prepared["bases"] == bases;
            expect("a reverted thread, and a fork of it, come with all segments", right, &prepared)?;
            let mut server = AppServer::start(&self.codex, &self.task(task))?;
            server.request("thread/resume", json!({"threadId": resumed}))?;
            self.model.take();
            server.turn(resumed, "and on in a task")?;
            let given = self.model.take().pop().unwrap_or_default();
            let texts: Vec<&str> = given.iter().filter(|s| s.role == "user").map(|s| s.text.as_str()).collect();
            let stays = texts.iter().filter(|t| t.contains("stays")).count();
            let gone = texts.iter().filter(|t| t.contains("taken back")).count();
            expect(
                "the model is given what stayed of it, and nothing that was taken back",
                stays == 3 && gone == 0,
                format!("{texts:?}"),
            )?;
        }
        Ok(())
    }

    fn persons_thread(&self, person: &str) -> Result<()> {
        let prepared = self.prepare("four", "i2", Some(person))?;
        let shares = prepared["exposed"][0]["shares_appends"] == true;
        expect("a thread of the person's is exposed", prepared["outcome"] == "resumed" && shares, &prepared)?;
        let mut server = AppServer::start(&self.codex, &self.task("four"))?;
        server.request("thread/resume", json!({"threadId": person}))?;
        server.turn(person, "a task's turn")?;
        drop(server);
        let mut server = AppServer::start(&self.codex, &self.shared())?;
        server.request("thread/resume", json!({"threadId": person}))?;
        let read = server.request("thread/read", json!({"threadId": person, "includeTurns": true}))?;
        let turns = read["thread"]["turns"].as_array().map_or(0, Vec::len);
        expect("its turn is the person's history too", turns == 2, &read)?;
        server.request("thread/archive", json!({"threadId": person}))?;
        let refused = server.request("thread/resume", json!({"threadId": person})).err().map(|e| e.to_string());
        expect("Codex does not resume an archived thread", refused.is_some(), "it did")?;
        drop(server);
        let prepared = self.prepare("five", "i3", Some(person))?;
        // The store of i2 still shows it.
        println!("- an archived thread in another task: {} {}", prepared["outcome"], prepared["migrated"]);
        Ok(())
    }
}

fn started(server: &mut AppServer, cwd: &Path) -> Result<String> {
    let answer = server.request("thread/start", json!({"cwd": cwd}))?;
    Ok(answer["thread"]["id"].as_str().context("a thread without an id")?.to_owned())
}

fn ids(server: &mut AppServer) -> Result<Vec<String>> {
    let rows =
        server.all_pages("thread/list", json!({"sourceKinds": SOURCE_KINDS, "modelProviders": [], "limit": 100}))?;
    rows.iter().map(|r| Ok(r["id"].as_str().context("a thread without an id")?.to_owned())).collect()
}

fn files(at: &Path) -> usize {
    let mut n = 0;
    for entry in fs::read_dir(at).into_iter().flatten().flatten() {
        let path = entry.path();
        n += if path.is_dir() { files(&path) } else { 1 };
    }
    n
}
