//! The threads of a scene: those of a release that wrote the home, and new ones.

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::json;
use threadkeep_record::{HistoryMode, ThreadId};

use crate::oracle::writing::Extent;
use crate::oracle::writing::stage::{Checks, Home, Stage};
use crate::oracle::writing::talk::Talk;

/// A thread, and what must stay of it wherever it goes.
pub struct Actor {
    pub talk: Talk,
    pub name: Option<String>,
    /// Its rollout was compressed.
    pub compressed: bool,
    /// Another of them continues its history.
    pub needed: bool,
    /// So many of its turns may stand in rollouts that it refers to.
    pub refers: usize,
    /// The thread that started it.
    pub parent: Option<ThreadId>,
}

/// What is taken of a release's home: threads with a role.
struct Cast {
    fixture: &'static str,
    /// Legacy, paginated, named, two segments, whatever the release has.
    others: &'static [&'static str],
    /// One of the others, whose history a fork continues.
    needed: &'static str,
    /// Those of the others that refer to other rollouts: a fork, a thread of two segments.
    referring: &'static [&'static str],
    compressed: &'static str,
    /// A thread and one that it started.
    family: [&'static str; 2],
}

const CASTS: [Cast; 3] = [
    Cast {
        fixture: "0.142.0",
        others: &[
            "01a22c13-765f-7712-845c-36a9ed3482d7",
            "01a22c13-6860-7a83-bb86-a65c50c71c9a",
            "01a22c13-6cb7-7483-8b7e-ff99104cce52",
        ],
        needed: "",
        referring: &[],
        compressed: "01a22c22-92ea-7043-962c-ed9223e79fe1",
        family: ["01a22c13-59c4-7fd0-a2f8-2ff74a120c3c", "01a22c13-5a5e-78d3-b42c-b3927eb0df80"],
    },
    Cast {
        fixture: "0.156.0",
        others: &[
            "01a22c6c-56ba-7ac0-b9f7-f31bfca68360",
            "01a22c6c-58ae-7202-aec9-8ac114e3e8fa",
            "01a22c6c-4acf-7710-9a6d-8b9df0363559",
            "01a22c6c-4da6-7a42-a5c6-1537d1e03ef6",
            "01a22c6c-5a85-7c30-8ddb-b03cf5e80bd5",
        ],
        needed: "01a22c6c-4acf-7710-9a6d-8b9df0363559",
        referring: &["01a22c6c-4da6-7a42-a5c6-1537d1e03ef6", "01a22c6c-5a85-7c30-8ddb-b03cf5e80bd5"],
        compressed: "01a22c6c-483e-77a0-b45f-5ab61f3659f0",
        family: ["01a22c6c-3f42-7de3-a637-2a2fab8e1041", "01a22c6c-3ff0-7f50-930c-6b33080ba82a"],
    },
    Cast {
        fixture: "0.171.0",
        others: &[
            "01a22c6c-8e85-7d30-9683-62f7285fc43c",
            "01a22c6c-9098-7ae3-8f62-627928199782",
            "01a22c6c-8309-73d2-8930-95f079718be7",
            "01a22c6c-8554-7553-b768-5cd145db85fb",
            "01a22c6c-9309-71c0-a353-e00ef6691e22",
        ],
        needed: "01a22c6c-8309-73d2-8930-95f079718be7",
        referring: &["01a22c6c-8554-7553-b768-5cd145db85fb", "01a22c6c-9309-71c0-a353-e00ef6691e22"],
        compressed: "01a22c6c-80c8-77b0-9c52-706fc5a92037",
        family: ["01a22c6c-78a2-71b0-bb83-d81bf24ae33b", "01a22c6c-793d-7eb1-98f9-98209d5b040a"],
    },
];

/// Everybody, sources before their forks, all but the compressed one with a turn of their own words.
pub fn of(stage: &Stage, home: &Home<'_>, fixture: &str, extent: Extent, checks: &mut Checks) -> Result<Vec<Actor>> {
    let cast = CASTS.iter().find(|c| c.fixture == fixture).context("a home without a cast")?;
    // What was said is learnt from a copy: a resume here would write a compressed rollout out.
    let name = format!("{}-copy", home.path.file_name().unwrap_or_default().to_string_lossy());
    let copy = Home::of_fixture(stage, &name, fixture)?;
    let mut actors = Vec::new();
    let mut theirs = copy.theirs()?;
    // A child comes before who started it: Codex moves it with that one, and then it is there already.
    let others = if extent == Extent::Short { &cast.others[..1] } else { cast.others };
    for id in others.iter().chain([&cast.compressed]).chain(cast.family.iter().rev()) {
        let row = theirs.row(ThreadId::parse(id)?, false)?;
        let talk = theirs.adopt(&row)?;
        let parent = (*id == cast.family[1]).then(|| ThreadId::parse(cast.family[0])).transpose()?;
        let name = row["name"].as_str().map(str::to_owned);
        let (compressed, needed) = (*id == cast.compressed, *id == cast.needed);
        let refers = if cast.referring.contains(id) { talk.known_from } else { 0 };
        actors.push(Actor { talk, name, compressed, needed, refers, parent });
    }
    drop(theirs);

    let mut theirs = home.theirs()?;
    let ours = home.ours();
    for actor in actors.iter_mut().filter(|a| !a.compressed) {
        theirs.resume(actor.talk.id)?;
        theirs.turn(checks, "before", &mut actor.talk, "in words of its own")?;
    }
    let mut own = theirs.create(checks, HistoryMode::Legacy, &home.cwd, "a thread of this run")?;
    if stage.codex.version != "0.142.0" {
        let source = theirs.create(checks, HistoryMode::Paginated, &home.cwd, "a source of forks")?;
        let mut fork = theirs.fork(&source, None)?;
        theirs.turn(checks, "before", &mut fork, "said in the fork")?;
        let mut again = theirs.fork(&fork, None)?;
        theirs.turn(checks, "before", &mut again, "said in the fork of the fork")?;
        for (refers, (talk, name, needed)) in
            [(source, None, true), (fork, Some("The fork ü"), true), (again, None, false)].into_iter().enumerate()
        {
            // Releases differ in what a fork's preview is; it must stay.
            let old_preview = theirs.row(talk.id, false)?["preview"].as_str().map(str::to_owned);
            let talk = Talk { old_preview, ..talk };
            if let Some(name) = name {
                theirs.server.request("thread/name/set", json!({"threadId": talk.id, "name": name}))?;
            }
            let name = name.map(str::to_owned);
            actors.push(Actor { talk, name, compressed: false, needed, refers, parent: None });
        }
    }
    theirs.turn(checks, "before", &mut own, "and named")?;
    theirs.server.request("thread/name/set", json!({"threadId": own.id, "name": "Named in this run"}))?;
    let name = Some("Named in this run".to_owned());
    actors.push(Actor { talk: own, name, compressed: false, needed: false, refers: 0, parent: None });
    drop(theirs);
    // The two sides may tell old turns in other words.
    for actor in &mut actors {
        ours.adopt(&mut actor.talk)?;
    }
    tie(home, &actors)?;
    Ok(actors)
}

/// Rows of the tables that the schema ties to threads: none of these threads has any.
fn tie(home: &Home<'_>, actors: &[Actor]) -> Result<()> {
    let db = rusqlite::Connection::open(home.path.join("state_5.sqlite"))?;
    let tables = "SELECT count(*) FROM sqlite_master WHERE name = 'thread_attachments'";
    let attachments: i64 = db.query_row(tables, [], |row| row.get(0))?;
    for actor in actors {
        let id = actor.talk.id.to_string();
        for position in 0..2 {
            db.execute(
                "INSERT INTO thread_dynamic_tools (thread_id, position, name, description, input_schema) \
                 VALUES (?1, ?2, 'tool', 'what it does', '{}')",
                rusqlite::params![id, position],
            )?;
        }
        if attachments > 0 {
            let sql = "INSERT INTO thread_attachments VALUES (?1, ?2, 'kind', 'key', '{}', 1)";
            db.execute(sql, [format!("attachment of {id}"), id])?;
        }
    }
    Ok(())
}

/// Compresses a thread's rollout as Codex does.
pub fn compress(home: &Home<'_>, id: ThreadId) -> Result<()> {
    let plain = home.ours().read(id)?.rollout_path.context("a thread without a rollout")?;
    let modified = fs::metadata(&plain)?.modified()?;
    let packed = plain.with_extension("jsonl.zst");
    fs::write(&packed, zstd::bulk::compress(&fs::read(&plain)?, 3)?)?;
    fs::File::options().write(true).open(&packed)?.set_modified(modified)?;
    fs::remove_file(&plain)?;
    Ok(())
}

/// The forms in which the thread's rollout is there.
pub fn forms(home: &Home<'_>, id: ThreadId) -> Result<Vec<&'static str>> {
    let id = id.to_string();
    let names: Vec<String> = home.rollouts()?.iter().map(|p| p.to_string_lossy().into_owned()).collect();
    let of_thread = names.iter().filter(|name| name.contains(&id));
    Ok(of_thread.map(|name| if name.ends_with(".zst") { "jsonl.zst" } else { "jsonl" }).collect())
}
