//! `threadkeep show`: a conversation as a person reads it.

use serde_json::{Value, json};
use threadkeep_local::show::Detail;
use threadkeep_local::turn_index::{TurnIndex, has_roll_back};
use threadkeep_local::{LocalStore, OpenThread};
use threadkeep_record::HistoryMode;
use threadkeep_record::fold::Check;
use threadkeep_rollout::Depth;
use threadkeep_store::cursor::TurnCursor;
use threadkeep_store::turns::Turn;

use super::list::{ThreadJson, marks};
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
    // A stream begins at once; what only a whole reading tells comes after it.
    let stream = (!out.is_json() || global.jsonl)
        && args.turn.is_none()
        && args.last.is_none()
        && args.cursor.is_none()
        && args.limit.is_none();
    let whole = Depth::Whole(Check::Whole);
    let depth = if out.is_json() && !args.raw && !stream { whole } else { Depth::Head };
    let open = super::open_thread(&store, &args.thread, depth)?;
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
    let detail = if args.full { Detail::Full } else { Detail::Readable };
    let paginated = open.row.thread.history_mode == Some(HistoryMode::Paginated);
    if stream && (paginated || !has_roll_back(&open.history)) {
        drop(progress);
        if !out.is_json() {
            return human(&open, Source::Stream, detail, out);
        }
        write_turns(&open, Source::Stream, detail, &mut |turn| out.json(&turn).and_then(|()| out.flush()))?;
        let open = super::open_thread(&store, &args.thread, whole)?;
        let thread = thread_facts(&store, &open, open.row.thread.turns);
        out.json(&json!({"format": 1, "thread": thread, "next_cursor": null}))?;
        return Ok(0);
    }
    let open = if out.is_json() && stream { super::open_thread(&store, &args.thread, whole)? } else { open };
    let index = open.turn_index();
    drop(progress);
    let wanted = choose(&open, &index, args)?;
    if !out.is_json() {
        return human(&open, Source::Chosen(&index, &wanted), detail, out);
    }
    let pageless = global.jsonl || args.last.is_some();
    let limit = args.limit.unwrap_or(if pageless { usize::MAX } else { PAGE }).max(1);
    let (now, later) = wanted.split_at(wanted.len().min(limit));
    let next = later.first().map(|i| TurnCursor::new(open.row.key.clone(), index.turns[*i].number).encode());
    let alive = index.turns.iter().filter(|t| !t.taken_back).count() as u64;
    let thread = thread_facts(&store, &open, open.history.missing.is_empty().then_some(alive));
    if global.jsonl {
        let source = Source::Chosen(&index, now);
        write_turns(&open, source, detail, &mut |turn| out.json(&turn).and_then(|()| out.flush()))?;
        out.json(&json!({"format": 1, "thread": thread, "next_cursor": next}))?;
        return Ok(0);
    }
    let mut turns: Vec<Value> = Vec::new();
    write_turns(&open, Source::Chosen(&index, now), detail, &mut |turn| {
        turns.push(serde_json::to_value(&turn).unwrap_or_default());
        Ok(())
    })?;
    out.json(&json!({"format": 1, "thread": thread, "turns": turns, "next_cursor": next}))?;
    Ok(0)
}

/// Where the turns come from.
#[derive(Clone, Copy)]
enum Source<'i> {
    /// All of them, as they are read.
    Stream,
    /// These places of an index.
    Chosen(&'i TurnIndex, &'i [usize]),
}

/// Hands turns to `write` until it fails; tells how many there were.
fn write_turns(
    open: &OpenThread,
    source: Source<'_>,
    detail: Detail,
    write: &mut dyn FnMut(Turn) -> std::io::Result<()>,
) -> Result<u64, Failure> {
    let mut failed = None;
    let mut turns = 0;
    let mut sink = |turn| {
        turns += 1;
        failed = write(turn).err();
        failed.is_none()
    };
    match source {
        Source::Stream => open.stream_turns(detail, &mut sink),
        Source::Chosen(index, wanted) => open.read_turns(index, wanted, detail, &mut sink),
    }
    failed.map_or(Ok(turns), |e| Err(e.into()))
}

fn thread_facts(store: &LocalStore, open: &OpenThread, turns: Option<u64>) -> Value {
    let mut row = open.row.clone();
    row.thread.turns = turns;
    row.thread.children = open.children();
    serde_json::to_value(ThreadJson::new(&row.thread, (store.homes().len() > 1).then(|| &store.homes()[open.home])))
        .unwrap_or_default()
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

fn human(open: &OpenThread, source: Source<'_>, detail: Detail, out: &mut Out) -> Done {
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
    let turns =
        write_turns(open, source, detail, &mut |turn| render::turn(&turn, detail, out).and_then(|()| out.flush()))?;
    if turns == 0 {
        out.line("")?;
        out.line(&dim("(no turns)"))?;
    }
    if let Source::Chosen(index, _) = source {
        let back = index.turns.iter().filter(|t| t.taken_back).count();
        if back > 0 {
            out.line(&dim(&format!("{back} turns were taken back later and are not shown; --raw has them")))?;
        }
    }
    Ok(0)
}
