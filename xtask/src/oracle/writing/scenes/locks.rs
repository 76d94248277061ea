//! One writer for each thread, whichever program it is, while both run.

use anyhow::Result;
use serde_json::json;
use threadkeep_record::HistoryMode;
use threadkeep_store::ThreadStoreError;

use crate::oracle::writing::Extent;
use crate::oracle::writing::ours::{Context, Ours};
use crate::oracle::writing::stage::{Checks, Home, Stage};
use crate::oracle::writing::talk::Talk;
use crate::oracle::writing::theirs::Theirs;

pub fn run(stage: &Stage, _: Extent, checks: &mut Checks) -> Result<()> {
    let home = Home::fresh(stage, "locks")?;
    for mode in [HistoryMode::Legacy, HistoryMode::Paginated] {
        let ours = home.ours();
        let (live, mut talk) = ours.create(mode)?;
        ours.turn(&live, &mut talk, Context::Left, "written here, and still held")?;
        let mut theirs = home.theirs()?;

        // Ours has it: Codex reads, and may not write.
        refused_there(&mut theirs, &talk, checks)?;
        ours.turn(&live, &mut talk, Context::Left, "still ours after the refusals")?;
        refused_there(&mut theirs, &talk, checks)?;
        ours.wait(live.shutdown())?;
        drop(live);

        // Released: Codex goes on, and has it.
        theirs.check(checks, "released here", &talk);
        theirs.turn(checks, "released here", &mut talk, "now Codex has it")?;
        refused_here(&ours, &theirs, &talk, checks);
        theirs.turn(checks, "after the refusal here", &mut talk, "Codex still has it")?;
        ours.check(checks, "held there", &talk);

        // A name is no record of the thread: setting it needs no writer.
        checks.works("rename here while held there", ours.rename(talk.id, Some("held")).map_err(Into::into));

        // Released by the end of the process; a second process takes it, while a third is refused.
        drop(theirs);
        checks.works("continued here after Codex ended", ours.continued(&mut talk, "ours again"));
        let mut theirs = home.theirs()?;
        theirs.check(checks, "ours, then theirs", &talk);
        theirs.turn(checks, "ours, then theirs", &mut talk, "and theirs")?;
        refused_here(&ours, &theirs, &talk, checks);

        // A killed holder blocks nobody: neither its lock file nor its half-open thread is in the way.
        theirs.server.kill()?;
        checks.works("continued here after Codex was killed", ours.continued(&mut talk, "after the kill"));
        drop(theirs);
        let mut theirs = home.theirs()?;
        theirs.check(checks, "after the kill", &talk);
        theirs.turn(checks, "after the kill", &mut talk, "the last word")?;
        drop(theirs);
        ours.check(checks, "at the end", &talk);
        let left: Vec<_> = std::fs::read_dir(home.path.join("thread-writer-locks"))?
            .filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned()))
            .filter(|name| name != ".coordination.lock")
            .collect();
        checks.same("lock files that are left", left, vec![]);
    }
    Ok(())
}

/// While our writer is open, Codex reads the thread and is refused to write it.
fn refused_there(theirs: &mut Theirs<'_>, talk: &Talk, checks: &mut Checks) -> Result<()> {
    let refusal = theirs.server.refused("thread/resume", json!({"threadId": talk.id}))?;
    let expected = format!("thread {} already has an active writer", talk.id);
    checks.same("thread/resume there while held here", (refusal.code, refusal.message), (-32600, expected));
    let row = theirs.row(talk.id, false);
    checks.works("thread/list there while held here", row);
    for method in ["thread/archive", "thread/delete"] {
        let refusal = theirs.server.refused(method, json!({"threadId": talk.id}))?;
        let told = refusal.message.contains("already has an active writer");
        checks.holds(format!("{method} there while held here"), told && refusal.code == -32600, refusal);
    }
    if talk.mode == HistoryMode::Legacy
        && let Some(turns) = checks.works("thread/read there while held here", theirs.read(talk.id))
    {
        checks.same("thread/read there while held here", &turns, &talk.turns);
    }
    Ok(())
}

/// While Codex has the thread open, we read it and are refused to write it, and told who has it.
fn refused_here(ours: &Ours<'_>, theirs: &Theirs<'_>, talk: &Talk, checks: &mut Checks) {
    let pid = format!("pid {}", theirs.server.pid());
    match ours.resume(talk.id) {
        Err(ThreadStoreError::Conflict { message }) => {
            let expected = format!("thread {} already has an active writer", talk.id);
            checks.holds("resume here while held there", message.starts_with(&expected), &message);
            checks.holds("the holder is named", message.contains(&pid), (&message, &pid));
        }
        other => {
            checks.holds("resume here while held there is a conflict", false, other.map(|live| live.thread_id()));
        }
    }
    ours.check(checks, "held there", talk);
}
