//! `threadkeep list`.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use threadkeep_local::fill::Whole;
use threadkeep_local::row::Row;
use threadkeep_local::{ListOptions, ListPage, LocalStore, RowsFrom};
use threadkeep_record::UtcMillis;
use threadkeep_rollout::Home;
use threadkeep_store::{Cursor, ListQuery, SortKey, Thread};

use super::{Behind, again, index_behind, now};
use crate::args::{Global, ListArgs};
use crate::fail::{Done, Failure, Kind};
use crate::human::{age, directory, fit, fit_left, pad, size, visible_line};
use crate::out::{Out, bold, dim, say};
use crate::progress::Progress;

pub fn run(global: &Global, args: &ListArgs, out: &mut Out) -> Done {
    let store = global.indexed_store()?;
    let query = args.query();
    let sort = check_cursor(args, &query)?;
    let options = ListOptions { limit: args.limit, exact: args.exact, count: args.count, rows: RowsFrom::Index };
    let page = {
        let _progress = Progress::start("reading rollouts");
        store
            .list(&query, args.cursor.as_deref(), options, now())
            .map_err(|e| Failure::new(Kind::Usage, e.to_string()).hint("a cursor comes from next_cursor of a page"))?
    };
    // The system takes the memory of a large home back faster at the end of the process than we could here.
    let page = std::mem::ManuallyDrop::new(page);
    show(global, &store, &page, sort, out)?;
    // What a page shows as unknown is looked up for the next time.
    let shown: Vec<_> = page.rows.iter().filter_map(|(_, row)| row.thread.id).collect();
    let needs_whole = sort == SortKey::Recency || !query.models.is_empty() || query.file.is_some();
    let whole = if needs_whole { Whole::All } else { Whole::These(&shown) };
    index_behind(&page.catalogs, Behind::List(whole), out)?;
    Ok(0)
}

fn show(global: &Global, store: &LocalStore, page: &ListPage, sort: SortKey, out: &mut Out) -> Result<(), Failure> {
    if !out.is_json() {
        return human(page, sort, out);
    }
    let several = store.homes().len() > 1;
    let rows: Vec<ThreadJson<'_>> = page
        .rows
        .iter()
        .map(|(home, row)| ThreadJson::new(&row.thread, several.then(|| &store.homes()[*home])))
        .collect();
    let home = store.homes()[0].path().to_string_lossy();
    if global.jsonl {
        for row in &rows {
            out.json(row)?;
        }
        out.json(&PageJson::new(home, page, None))?;
    } else {
        out.json(&PageJson::new(home, page, Some(rows)))?;
    }
    Ok(())
}

/// A cursor carries its own sort and filters; others beside it must be the same.
fn check_cursor(args: &ListArgs, query: &ListQuery) -> Result<SortKey, Failure> {
    let Some(text) = &args.cursor else { return Ok(query.sort) };
    let cursor = Cursor::decode(text)
        .map_err(|e| Failure::new(Kind::Usage, e.to_string()).hint("a cursor comes from next_cursor of a page"))?;
    if *query != ListQuery::default() && *query != cursor.query {
        return Err(Failure::new(Kind::Usage, "the cursor belongs to other filters or another order")
            .hint("give --cursor alone, or with the options of the page it came from"));
    }
    Ok(cursor.query.sort)
}

/// A thread as JSON; its home only where there are several.
#[derive(Serialize)]
pub struct ThreadJson<'a> {
    #[serde(flatten)]
    pub thread: &'a Thread,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<Cow<'a, str>>,
}

impl<'a> ThreadJson<'a> {
    pub fn new(thread: &'a Thread, home: Option<&'a Home>) -> Self {
        Self { thread, home: home.map(|h| h.path().to_string_lossy()) }
    }
}

/// A page as JSON; its threads stand on lines of their own with `--jsonl`.
#[derive(Serialize)]
struct PageJson<'a> {
    format: u32,
    home: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threads: Option<Vec<ThreadJson<'a>>>,
    next_cursor: Option<&'a str>,
    complete: bool,
    total: Option<u64>,
    #[serde(serialize_with = "in_order")]
    hidden: &'a [(&'static str, Option<u64>)],
    index: IndexJson<'a>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct IndexJson<'a> {
    state: &'static str,
    reason: &'a str,
}

impl<'a> PageJson<'a> {
    fn new(home: Cow<'a, str>, page: &'a ListPage, threads: Option<Vec<ThreadJson<'a>>>) -> Self {
        Self {
            format: 1,
            home,
            threads,
            next_cursor: page.next_cursor.as_deref(),
            complete: page.complete,
            total: page.total,
            hidden: &page.hidden,
            index: IndexJson { state: page.index.state.as_str(), reason: &page.index.reason },
            notes: &page.notes,
        }
    }
}

/// Pairs as an object, in their order.
fn in_order<S: Serializer>(pairs: &[(&'static str, Option<u64>)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(pairs.iter().map(|(k, n)| (*k, *n)))
}

fn human(page: &ListPage, sort: SortKey, out: &mut Out) -> Result<(), Failure> {
    for note in &page.notes {
        say(&format!("note: {}", visible_line(note)));
    }
    let clock = now();
    let width = out.width();
    let id_width = page.short_id;
    if !page.rows.is_empty() {
        let head = match sort {
            SortKey::Created => "CREATED",
            SortKey::Updated => "UPDATED",
            SortKey::Recency => "TURN",
        };
        out.line(&dim(&format!(
            "{}  {}  {}  TURNS  {}  WHAT",
            pad("ID", id_width),
            pad(head, 7),
            pad("DIRECTORY", 24),
            pad("SIZE", 7)
        )))?;
    }
    for (_, row) in &page.rows {
        out.line(&line(row, sort, clock, id_width, width))?;
    }
    out.line(&dim(&footer(page)))?;
    if let Some(cursor) = &page.next_cursor {
        out.line(&dim(&format!("more: {}", again(cursor))))?;
    }
    Ok(())
}

/// Columns of the directory.
const DIR: usize = 22;

fn line(row: &Row, sort: SortKey, clock: UtcMillis, id_width: usize, out_width: Option<usize>) -> String {
    let t = &row.thread;
    let id: String = row.key.chars().take(if t.id.is_some() { id_width } else { 200 }).collect();
    let time = match sort {
        SortKey::Created => row.created(),
        SortKey::Updated => row.updated(),
        SortKey::Recency => row.recency(),
    };
    let dir = t.cwd.as_deref().map_or_else(|| "…".to_owned(), directory);
    let turns = t.turns.map_or_else(|| "…".to_owned(), |n| n.to_string());
    let marks = marks(row);
    let marks = if marks.is_empty() { String::new() } else { format!("  [{}]", marks.join(", ")) };
    // In a terminal a row is a line; in a pipe a text is cut only where it would drown the rest.
    let room = out_width.map_or(160, |w| w.saturating_sub(id_width + DIR + 27 + marks.chars().count()).max(12));
    let what = match (&t.name, &t.preview) {
        (Some(name), _) => bold(&fit(&visible_line(name), room)),
        (None, Some(preview)) => fit(&visible_line(preview), room),
        (None, None) => dim("(no messages)"),
    };
    format!(
        "{}  {}  {}  {turns:>5}  {:>7}  {what}{}",
        pad(&id, id_width),
        pad(&age(time, clock), 7),
        pad(&fit_left(&dir, DIR), DIR),
        size(t.bytes),
        dim(&marks)
    )
}

/// What is special about a thread.
pub fn marks(row: &Row) -> Vec<&'static str> {
    let t = &row.thread;
    let mut marks = Vec::new();
    if t.live.is_some() {
        marks.push("live");
    }
    if t.archived {
        marks.push("archived");
    }
    if t.files.is_empty() {
        marks.push("transcript missing");
    }
    if t.files.iter().any(|f| f.kind == "zstd" && f.role == "head") {
        marks.push("compressed");
    }
    if t.damage.records > 0 {
        marks.push("damaged");
    }
    marks
}

fn footer(page: &ListPage) -> String {
    let shown = page.rows.len();
    let mut text = match page.total {
        Some(total) if total != shown as u64 => format!("{shown} of {total} threads"),
        _ if shown == 1 => "1 thread".to_owned(),
        _ => format!("{shown} threads"),
    };
    let hidden: Vec<String> = page
        .hidden
        .iter()
        .filter_map(|(reason, n)| match n {
            Some(0) => None,
            Some(n) => Some(format!("{n} {}", reason_words(reason, *n))),
            // Not counted on this page.
            None => matches!(*reason, "exec" | "subagents" | "empty").then(|| format!("… {}", reason_words(reason, 2))),
        })
        .collect();
    if !hidden.is_empty() {
        text.push_str(&format!("; left out: {}", hidden.join(", ")));
        if page.hidden.iter().any(|(r, n)| matches!(*r, "archived" | "exec" | "subagents" | "empty") && *n != Some(0)) {
            text.push_str(" (--all shows them)");
        }
    }
    if page.index.reason.contains("modification") {
        text.push_str("; ordered by modification time (--exact reads every file, --count counts)");
    }
    text
}

fn reason_words(reason: &str, n: u64) -> String {
    match reason {
        "archived" | "exec" | "empty" => reason.to_owned(),
        "subagents" if n == 1 => "sub-agent".into(),
        "subagents" => "sub-agents".into(),
        "not_archived" => "not archived".into(),
        other => format!("by --{other}"),
    }
}
