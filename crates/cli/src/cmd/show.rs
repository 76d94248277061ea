//! `threadkeep show`: a conversation as a person reads it.

use serde_json::{Value, json};
use threadkeep_local::OpenThread;
use threadkeep_local::show::Detail;
use threadkeep_local::turn_index::TurnIndex;
use threadkeep_record::fold::Check;
use threadkeep_rollout::Depth;
use threadkeep_store::cursor::TurnCursor;

use super::list::{marks, thread_json};
use crate::args::{Global, ShowArgs};
use crate::fail::{Done, Failure, Kind};
use crate::human::{directory, size, visible_line, when};
use crate::out::{Out, bold, dim, say};
use crate::progress::Progress;

mod render;

/// Turns of a JSON page.
const PAGE: usize = 50;

pub fn run(global: &Global, args: &ShowArgs, out: &mut Out) -> Done {
    let store = global.store()?;
    let progress = Progress::start("reading the thread");
    let depth = if out.is_json() && !args.raw { Depth::Whole(Check::Whole) } else { Depth::Head };
    let open = store.open_thread(&args.thread, depth)?;
    if args.raw {
        drop(progress);
        let mut raw = out.raw()?;
        open.write_raw(&mut raw).map_err(|e| {
            if e.kind() == std::io::ErrorKind::BrokenPipe {
                Failure::from(e)
            } else {
                Failure::new(Kind::Failed, format!("cannot read the thread: {e}"))
            }
        })?;
        std::io::Write::flush(&mut raw)?;
        return Ok(0);
    }
    let index = open.turn_index();
    drop(progress);
    let wanted = choose(&open, &index, args)?;
    let detail = if args.full { Detail::Full } else { Detail::Readable };
    if out.is_json() {
        json_out(global, args, &store, &open, &index, &wanted, detail, out)
    } else {
        human(&open, &index, &wanted, detail, out)
    }
}

/// Places in the index of the turns that are wanted.
fn choose(open: &OpenThread, index: &TurnIndex, args: &ShowArgs) -> Result<Vec<usize>, Failure> {
    let alive: Vec<usize> = (0..index.turns.len()).filter(|i| !index.turns[*i].taken_back).collect();
    if let Some(n) = args.turn {
        let place = alive.iter().copied().find(|i| index.turns[*i].number == n);
        return place.map(|p| vec![p]).ok_or_else(|| {
            Failure::new(Kind::NotFound, format!("the thread has no turn {n}; it has {}", alive.len()))
        });
    }
    if let Some(n) = args.last {
        return Ok(alive[alive.len().saturating_sub(n)..].to_vec());
    }
    if let Some(text) = &args.cursor {
        let cursor = TurnCursor::decode(text)
            .map_err(|e| Failure::new(Kind::Usage, e.to_string()).hint("a cursor comes from next_cursor of a page"))?;
        if cursor.thread != open.row.key {
            return Err(Failure::new(Kind::Usage, "the cursor belongs to another thread"));
        }
        return Ok(alive.into_iter().filter(|i| index.turns[*i].number >= cursor.next).collect());
    }
    Ok(alive)
}

#[allow(clippy::too_many_arguments, reason = "one call site, all of them facts of one request")]
fn json_out(
    global: &Global,
    args: &ShowArgs,
    store: &threadkeep_local::LocalStore,
    open: &OpenThread,
    index: &TurnIndex,
    wanted: &[usize],
    detail: Detail,
    out: &mut Out,
) -> Done {
    let limit = args.limit.unwrap_or(if global.jsonl || args.last.is_some() { usize::MAX } else { PAGE }).max(1);
    let (now, later) = wanted.split_at(wanted.len().min(limit));
    let next = later.first().map(|i| TurnCursor::new(open.row.key.clone(), index.turns[*i].number).encode());
    let mut row = open.row.clone();
    row.thread.turns =
        open.history.missing.is_empty().then(|| index.turns.iter().filter(|t| !t.taken_back).count() as u64);
    row.thread.children = open.children();
    let thread = thread_json(&row, (store.homes().len() > 1).then(|| &store.homes()[open.home]));
    let mut failed = None;
    if global.jsonl {
        open.read_turns(index, now, detail, &mut |turn| {
            failed = out.json(&turn).and_then(|()| out.flush()).err();
            failed.is_none()
        });
        if let Some(e) = failed {
            return Err(e.into());
        }
        out.json(&json!({"format": 1, "thread": thread, "next_cursor": next}))?;
        return Ok(0);
    }
    let mut turns: Vec<Value> = Vec::new();
    open.read_turns(index, now, detail, &mut |turn| {
        turns.push(serde_json::to_value(&turn).unwrap_or_default());
        true
    });
    out.json(&json!({"format": 1, "thread": thread, "turns": turns, "next_cursor": next}))?;
    Ok(0)
}

fn human(open: &OpenThread, index: &TurnIndex, wanted: &[usize], detail: Detail, out: &mut Out) -> Done {
    let t = &open.row.thread;
    for reason in &open.history.missing {
        say(&format!("note: {}", visible_line(&reason.to_string())));
    }
    let title = t
        .name
        .as_ref()
        .or(t.preview.as_ref())
        .map(|s| visible_line(s).chars().take(120).collect::<String>())
        .unwrap_or_default();
    out.line(&format!("{}  {}", bold(&visible_line(&open.row.key)), title))?;
    let mut facts: Vec<String> = Vec::new();
    facts.extend(t.cwd.as_deref().map(directory));
    facts.extend(t.created_at.map(|c| format!("created {}", when(c))));
    facts.extend(t.source.as_ref().map(|s| format!("source {}", visible_line(s.as_str().unwrap_or(&s.to_string())))));
    facts.extend(t.cli_version.as_ref().map(|v| format!("codex {}", visible_line(v))));
    facts.push(size(t.bytes));
    facts.extend(marks(&open.row).into_iter().map(str::to_owned));
    out.line(&dim(&facts.join(" · ")))?;
    if let Some(parent) = t.forked_from_id {
        out.line(&dim(&format!("forked from {parent}")))?;
    } else if let Some(parent) = t.parent_id {
        out.line(&dim(&format!("started by {parent}")))?;
    }
    let mut failed: Option<std::io::Error> = None;
    open.read_turns(index, wanted, detail, &mut |turn| {
        failed = render::turn(&turn, detail, out).and_then(|()| out.flush()).err();
        failed.is_none()
    });
    if let Some(e) = failed {
        return Err(e.into());
    }
    if wanted.is_empty() {
        out.line("")?;
        out.line(&dim("(no turns)"))?;
    }
    let back = index.turns.iter().filter(|t| t.taken_back).count();
    if back > 0 {
        out.line(&dim(&format!("{back} turns were taken back later and are not shown; --raw has them")))?;
    }
    Ok(0)
}
