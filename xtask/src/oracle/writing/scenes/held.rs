//! A thread that Codex has open is not changed here, and one that is being changed here is not opened there.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use threadkeep_record::HistoryMode;
use threadkeep_rollout::name_index::NameLock;

use crate::oracle::writing::Extent;
use crate::oracle::writing::databases::How;
use crate::oracle::writing::stage::{Checks, Home, Stage};
use crate::oracle::writing::talk::Talk;

pub fn run(stage: &Stage, _: Extent, checks: &mut Checks) -> Result<()> {
    let threadkeep = stage.threadkeep()?;
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        let home = Home::fresh(stage, &format!("held-{mode:?}"))?;
        let mut theirs = home.theirs()?;
        let mut talk = theirs.create(checks, mode, &home.cwd, "held there")?;
        theirs.turn(checks, "held", &mut talk, "a second turn")?;
        let id = talk.id.to_string();
        let mut subject = vec![talk];
        if mode == HistoryMode::Paginated {
            let mut fork = theirs.fork(&subject[0], None)?;
            theirs.turn(checks, "held", &mut fork, "a fork")?;
            subject.push(fork);
        }
        let before = stored(&home)?;
        for talk in &subject {
            for words in refused(&home.ours(), talk)? {
                let what = format!("{mode:?}, held there: {}", words.join(" "));
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                let output = threadkeep.on(&home.path, &words).output()?;
                let told = String::from_utf8_lossy(&output.stderr).into_owned();
                checks.same(format!("{what}, exit"), output.status.code(), Some(3));
                checks.holds(&what, told.contains("already has an active writer"), &told);
                let pid = format!("pid {}", theirs.server.pid());
                checks.holds(format!("{what}, the holder"), told.contains(&pid), (&told, &pid));
            }
        }
        checks.holds(format!("{mode:?}: files afterwards"), before == stored(&home)?, "not as before");
        for talk in &mut subject {
            theirs.turn(checks, "after the refusals", talk, "it goes on there")?;
        }
        drop(theirs);

        // Then the command has it, and waits for the name index with the thread's lock in its hand.
        let last = subject.last_mut().context("no thread")?;
        let id = if mode == HistoryMode::Paginated { last.id.to_string() } else { id };
        let mut theirs = home.theirs()?;
        theirs.list(false)?;
        let names = NameLock::acquire(&home.path, Duration::from_secs(3))?;
        let mut deleting = threadkeep.on(&home.path, &["delete", &id, "-y"]);
        let mut deleting = deleting.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let (lock, begun) = (home.path.join(format!("thread-writer-locks/{id}.lock")), Instant::now());
        while !lock.exists() {
            if begun.elapsed() > Duration::from_secs(2) {
                bail!("the command took no lock");
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        for method in ["thread/resume", "thread/archive", "thread/delete"] {
            let refusal = theirs.server.refused(method, json!({"threadId": id}));
            if let Some(refusal) = checks.works(format!("{mode:?}: {method} while it is deleted here"), refusal) {
                let told = refusal.message.contains("already has an active writer");
                checks.holds(format!("{mode:?}: how {method} is refused"), told, refusal);
            }
        }
        drop(names);
        let status = deleting.wait()?;
        checks.holds(format!("{mode:?}: the deletion comes to its end"), status.success(), status);
        checks.holds(format!("{mode:?}: it is gone there"), theirs.row(last.id, false).is_err(), "it is listed");
        drop(theirs);
        let restored = threadkeep.json(threadkeep.on(&home.path, &["restore", &id]), &[0]);
        checks.works(format!("{mode:?}: restore"), restored);
        let mut theirs = home.theirs()?;
        theirs.check(checks, "restored", last);
        theirs.turn(checks, "restored", last, "on again")?;
        drop(theirs);
        let before = home.databases()?;
        let archived = threadkeep.json(threadkeep.on(&home.path, &["archive", &id]), &[0]);
        checks.works(format!("{mode:?}: archive after the server ended"), archived);
        let changed = before.differences(&home.databases()?);
        checks.holds(
            format!("{mode:?}: rows"),
            changed.len() == 3 && changed.iter().all(|d| d.how == How::Changed && d.row.contains(&id)),
            &changed,
        );
    }
    Ok(())
}

/// Commands that must be refused while someone has the thread open.
fn refused(ours: &crate::oracle::writing::ours::Ours<'_>, talk: &Talk) -> Result<Vec<Vec<String>>> {
    let id = talk.id.to_string();
    let turn = ours.turn_ids(talk.id)?.pop().context("no turn")?;
    let words = |all: &[&str]| all.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
    let mut all =
        vec![words(&["archive", &id]), words(&["delete", &id, "-y"]), words(&["revert", &id, "--before-turn", &turn])];
    if talk.turns.len() > 2 {
        all.push(words(&["detach", &id, "-y"]));
    }
    Ok(all)
}

/// Rollouts and names; the rest of a home Codex writes to while it runs.
fn stored(home: &Home<'_>) -> Result<BTreeMap<PathBuf, (Vec<u8>, SystemTime)>> {
    let mut files = home.files()?;
    files.retain(|path, _| {
        ["sessions", "archived_sessions", "session_index.jsonl"].iter().any(|place| path.starts_with(place))
    });
    Ok(files)
}
