//! `threadkeep search`.

use anstyle::AnsiColor;
use serde_json::{Value, json};
use threadkeep_local::{LocalStore, SearchError, SearchOptions, SearchPage};
use threadkeep_record::{SourceClass, Speaker};
use threadkeep_store::cursor::SearchCursor;
use threadkeep_store::{ListQuery, SearchHit, SearchQuery};

use super::{Behind, again, index_behind, now};
use crate::args::{Global, SearchArgs};
use crate::fail::{Done, Failure, Kind};
use crate::human::{fit, visible_line, when};
use crate::out::{Out, bold, colour, dim, say};
use crate::progress::Progress;

pub fn run(global: &Global, args: &SearchArgs, out: &mut Out) -> Done {
    let store = global.indexed_store()?;
    let mut search = SearchQuery {
        term: args.term.clone().unwrap_or_default(),
        speakers: args
            .speakers
            .iter()
            .map(|s| s.parse::<Speaker>().map(|k| k.word().to_owned()))
            .collect::<Result<_, _>>()
            .map_err(|e| {
                let known: Vec<&str> = Speaker::ALL.iter().map(|s| s.word()).collect();
                Failure::new(Kind::Usage, e).hint(format!("speakers are {}", known.join(", ")))
            })?,
        threads: vec![],
        case_sensitive: args.case_sensitive,
    };
    for thread in &args.thread {
        search.threads.push(store.thread_key(thread)?);
    }
    let query = args.filter.query();
    check_cursor(args, &query, &search)?;
    let options = SearchOptions { limit: args.limit, count: args.count, ..SearchOptions::default() };
    let began = std::time::Instant::now();
    let page = {
        let _progress = Progress::start("searching");
        store.search(&query, &search, args.cursor.as_deref(), options, now()).map_err(|e| match e {
            SearchError::EmptyTerm => Failure::new(Kind::Usage, "nothing to search for").hint("threadkeep search TERM"),
            other => Failure::new(Kind::Usage, other.to_string()),
        })?
    };
    let took = began.elapsed();
    let page = std::mem::ManuallyDrop::new(page);
    show(global, args, &store, &page, out)?;
    index_behind(&page.catalogs, Behind::Search((!page.text_is_known).then_some(took)), out)?;
    Ok(u8::from(page.hits.is_empty()))
}

fn show(
    global: &Global,
    args: &SearchArgs,
    store: &LocalStore,
    page: &SearchPage,
    out: &mut Out,
) -> Result<(), Failure> {
    if !out.is_json() {
        return human(page, args, out);
    }
    let several = store.homes().len() > 1;
    let hits: Vec<Value> = page
        .hits
        .iter()
        .map(|row| {
            let mut v = serde_json::to_value(&row.hit).unwrap_or_default();
            if let Some(o) = v.as_object_mut() {
                o.insert("archived".into(), json!(row.archived));
                o.insert("started_by".into(), json!(row.class));
                if several {
                    o.insert("home".into(), json!(store.homes()[row.home].path().to_string_lossy()));
                }
            }
            v
        })
        .collect();
    let mut tail = json!({
        "format": 1,
        "home": store.homes()[0].path(),
        "threads": page.threads,
        "next_cursor": page.next_cursor,
        "complete": page.complete,
        "index": {"state": page.index.state.as_str(), "reason": page.index.reason},
        "notes": page.notes,
    });
    if global.jsonl {
        for hit in &hits {
            out.json(hit)?;
        }
    } else if let Some(o) = tail.as_object_mut() {
        o.shift_insert(2, "hits".into(), Value::Array(hits));
    }
    out.json(&tail)?;
    Ok(())
}

/// A cursor carries its own term and filters; others beside it must be the same.
fn check_cursor(args: &SearchArgs, query: &ListQuery, search: &SearchQuery) -> Result<(), Failure> {
    let Some(text) = &args.cursor else { return Ok(()) };
    let cursor = SearchCursor::decode(text)
        .map_err(|e| Failure::new(Kind::Usage, e.to_string()).hint("a cursor comes from next_cursor of a page"))?;
    let mut own = cursor.query.clone();
    own.include = query.include;
    let same_query = *query == ListQuery::default() || *query == own;
    let same_search = (search.term.is_empty() || search.term == cursor.search.term)
        && (search.speakers.is_empty() || search.speakers == cursor.search.speakers)
        && (search.threads.is_empty() || search.threads == cursor.search.threads)
        && (!search.case_sensitive || cursor.search.case_sensitive);
    if same_query && same_search {
        return Ok(());
    }
    Err(Failure::new(Kind::Usage, "the cursor belongs to another search")
        .hint("give --cursor alone, or with the options of the page it came from"))
}

fn human(page: &SearchPage, args: &SearchArgs, out: &mut Out) -> Result<(), Failure> {
    for note in &page.notes {
        say(&format!("note: {}", visible_line(note)));
    }
    let mut last = None;
    for row in &page.hits {
        let hit = &row.hit;
        let key = hit.thread_id.map_or_else(|| hit.path.clone().unwrap_or_default(), |id| id.to_string());
        if last.as_ref() != Some(&key) {
            if last.is_some() {
                out.line("")?;
            }
            let title = match page.titles.get(&key) {
                Some((Some(name), _)) => format!("  {}", bold(&visible_line(name))),
                Some((None, Some(preview))) => format!("  {}", fit(&visible_line(preview), 60)),
                _ => String::new(),
            };
            let class = match row.class {
                SourceClass::Person => None,
                SourceClass::Exec => Some("exec"),
                SourceClass::Subagent => Some("sub-agent"),
            };
            let marks: Vec<&str> = class.into_iter().chain(row.archived.then_some("archived")).collect();
            let mark = if marks.is_empty() { String::new() } else { dim(&format!("  [{}]", marks.join(", "))) };
            out.line(&format!("{}{title}{mark}", colour(AnsiColor::Cyan, &visible_line(&key))))?;
            last = Some(key);
        }
        out.line(&line(hit))?;
    }
    let shown = page.hits.len();
    let hits = if shown == 1 { "1 hit".to_owned() } else { format!("{shown} hits") };
    let total = match page.threads {
        Some(1) => " in 1 thread".to_owned(),
        Some(n) => format!(" in {n} threads"),
        None => String::new(),
    };
    if shown == 0 {
        let term = args.term.as_deref().unwrap_or("");
        out.line(&dim(&format!("no hit for {}", visible_line(term))))?;
    } else {
        out.line("")?;
        out.line(&dim(&format!("{hits}{total}")))?;
        if let Some(cursor) = &page.next_cursor {
            out.line(&dim(&format!("more: {}", again(cursor))))?;
        }
    }
    Ok(())
}

fn line(hit: &SearchHit) -> String {
    let turn = hit.turn_number.map_or_else(|| "turn –".to_owned(), |n| format!("turn {n}"));
    let time = hit.time.map(|t| format!("  {}", when(t))).unwrap_or_default();
    let [from, to] = hit.matched;
    let part = |a: usize, b: usize| hit.snippet.chars().skip(a).take(b.saturating_sub(a)).collect::<String>();
    // Each part is made safe by itself, so that the mark stays where the match is.
    let safe = |s: &str| crate::human::visible(s).replace(['\n', '\t'], " ");
    let marked = format!(
        "{}{}{}",
        safe(&part(0, from)),
        bold(&colour(AnsiColor::Red, &safe(&part(from, to)))),
        safe(&part(to, usize::MAX))
    );
    let head = if hit.speaker == Speaker::Name {
        "name".to_owned()
    } else {
        format!("{turn}  {}{time}", hit.speaker.word().replace('_', " "))
    };
    format!("  {}\n    {marked}", dim(&head))
}
