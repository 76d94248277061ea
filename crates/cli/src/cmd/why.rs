//! `threadkeep why`: where a thread is, what each source says of it, what hides it, what is damaged.

use serde::Serialize;
use threadkeep_local::why::{CodexStateSays, LookedAt, PlaceReport};
use threadkeep_local::{Why, WhyOptions};
use threadkeep_record::UtcMillis;

use crate::args::{Global, WhyArgs};
use crate::fail::Done;
use crate::human::{count, directory, fit, many, pad, size, visible_line, when};
use crate::out::{Out, bold, dim, say};
use crate::progress::Progress;

/// As JSON.
#[derive(Serialize)]
struct WhyJson<'a> {
    format: u32,
    #[serde(flatten)]
    why: &'a Why,
}

pub fn run(global: &Global, args: &WhyArgs, out: &mut Out) -> Done {
    let store = global.indexed_store()?;
    let why = {
        let _progress = Progress::start("reading the thread");
        store.why(&args.thread, WhyOptions { damage_shown: args.limit })?
    };
    let code = match (why.found, why.damage_total) {
        (false, _) => 1,
        (true, 0) => 0,
        (true, _) => 4,
    };
    if out.is_json() {
        out.json(&WhyJson { format: 1, why: &why })?;
        return Ok(code);
    }
    for note in &why.notes {
        say(&format!("note: {}", visible_line(note)));
    }
    human(&why, out)?;
    Ok(code)
}

/// Longest text of a message that is shown.
const TEXT: usize = 70;

fn human(why: &Why, out: &mut Out) -> std::io::Result<()> {
    head(why, out)?;
    if !why.places.is_empty() {
        section("where it is", out)?;
        for place in &why.places {
            out.line(&place_line(place))?;
        }
    }
    if why.lineage.len() > 1 {
        section("its history, oldest part first", out)?;
        for step in &why.lineage {
            let path = step.path.as_deref().map_or_else(|| "missing".to_owned(), visible_line);
            let until = step.until_ordinal.map_or_else(|| "to its end".to_owned(), |n| format!("up to ordinal {n}"));
            let of = step.thread_id.filter(|_| step.inherited).map(|id| format!(" · of thread {id}"));
            out.line(&format!("  {path}  {}", dim(&format!("{until}{}", of.unwrap_or_default()))))?;
        }
    }
    section("what each source says", out)?;
    sources(why, out)?;
    for d in &why.disagreements {
        // A path that is cut tells nothing.
        let what = |text: &str| if d.fact == "path" { visible_line(text) } else { short(text) };
        let says: Vec<String> = d.says.iter().map(|(source, text)| format!("{source} {}", what(text))).collect();
        out.line(&format!("  differs: {}: {}; {} ({})", d.fact, says.join(", "), counts(d.counts), d.because))?;
    }
    if why.thread.is_some() {
        section("the default list", out)?;
        if why.hidden_by.is_empty() {
            out.line("  shows it")?;
        }
        for h in &why.hidden_by {
            let with = h.shown_with.as_ref().map_or_else(String::new, |w| dim(&format!("  list {w} shows it")));
            out.line(&format!("  leaves it out: {}: {}{with}", h.filter, visible_line(&h.because)))?;
        }
        out.line(&dim(&format!("  it leaves out nothing but {}", why.list_filters.join(", "))))?;
    }
    if !why.trash.is_empty() {
        section("in the trash", out)?;
        for t in &why.trash {
            let files = many(t.files, "file", "files");
            let facts = format!("deleted {} · {files} · {}", when(t.deleted_at), size(t.bytes));
            out.line(&format!("  {}  {}", visible_line(&t.id), dim(&facts)))?;
        }
        out.line(&format!("  `threadkeep restore {}` brings it back", why.trash[0].thread_id))?;
    }
    if why.found {
        damage(why, out)?;
    } else {
        missing(why, out)?;
    }
    Ok(())
}

fn section(title: &str, out: &mut Out) -> std::io::Result<()> {
    out.line("")?;
    out.line(&bold(title))
}

fn counts(source: &str) -> String {
    format!("{source} {}", if source == "files" { "count" } else { "counts" })
}

fn short(text: &str) -> String {
    fit(&visible_line(text), TEXT)
}

fn head(why: &Why, out: &mut Out) -> std::io::Result<()> {
    let Some(t) = &why.thread else {
        return out.line(&format!("no thread {} is here", bold(&visible_line(&why.query))));
    };
    let key = t.id.map_or_else(|| visible_line(&why.query), |id| id.to_string());
    let title = t.name.as_ref().or(t.preview.as_ref()).map(|s| short(s)).unwrap_or_default();
    out.line(&format!("{}  {title}", bold(&key)))?;
    let mut facts: Vec<String> = Vec::new();
    facts.extend(why.home.as_deref().map(|h| format!("home {}", directory(h))));
    facts.extend(t.cwd.as_deref().map(directory));
    facts.extend(t.cli_version.as_ref().map(|v| format!("codex {}", visible_line(v))));
    facts.extend(t.turns.map(|n| many(n, "turn", "turns")));
    facts.push(size(t.bytes));
    facts.extend(t.live.is_some().then(|| "being written now".to_owned()));
    out.line(&dim(&facts.join(" · ")))?;
    if !why.found {
        out.line("its file is gone: only Codex's database knows it")?;
    }
    Ok(())
}

fn place_line(p: &PlaceReport) -> String {
    let mut facts: Vec<String> = Vec::new();
    facts.extend(p.role.map(str::to_owned));
    facts.extend(p.records.map(|n| many(n, "record", "records")));
    facts.extend(p.bytes.map(size));
    facts.extend((p.damaged > 0).then(|| format!("{} damaged", count(p.damaged))));
    facts.extend(p.home.as_deref().map(|h| format!("home {}", directory(h))));
    facts.extend(p.because.as_deref().map(visible_line));
    format!("  {}  {}  {}", pad(p.state, 10), visible_line(&p.path), dim(&facts.join(" · ")))
}

fn sources(why: &Why, out: &mut Out) -> std::io::Result<()> {
    let s = &why.sources;
    let mut line = |name: &str, facts: Vec<String>| out.line(&format!("  {}  {}", pad(name, 11), facts.join(" · ")));
    let time = |what: &str, t: Option<UtcMillis>| t.map(|t| format!("{what} {}", when(t)));
    let flag = |archived: Option<bool>| archived.map(|a| if a { "archived" } else { "not archived" }.to_owned());
    let mut facts = vec![s.files.state.to_owned()];
    facts.extend(flag(s.files.archived));
    facts.extend(time("created", s.files.created_at));
    facts.extend(time("updated", s.files.updated_at));
    line("files", facts)?;
    line("index", vec![s.index.state.to_owned(), s.index.reason.clone()])?;
    line("codex_state", codex_state(&s.codex_state, &time, &flag))?;
    let n = &s.name_index;
    let mut facts = vec![state_words(n.state).to_owned()];
    facts.extend(n.name.as_deref().map(|name| format!("name {}", short(name))));
    facts.extend(n.line.map(|l| format!("line {l} of {}", n.path)));
    facts.extend(n.reason.as_deref().map(visible_line));
    line("name_index", facts)
}

fn codex_state(
    s: &CodexStateSays,
    time: &dyn Fn(&str, Option<UtcMillis>) -> Option<String>,
    flag: &dyn Fn(Option<bool>) -> Option<String>,
) -> Vec<String> {
    let mut facts = vec![state_words(s.state).to_owned()];
    facts.extend(s.database.as_deref().map(visible_line));
    facts.extend(flag(s.archived));
    facts.extend(s.name.as_deref().map(|n| format!("name {}", short(n))));
    facts.extend(s.title.as_deref().filter(|_| s.name.is_none()).map(|t| format!("title {}", short(t))));
    facts.extend(time("updated", s.updated_at));
    facts.extend(s.path.as_deref().map(|p| {
        let there = if s.path_exists == Some(true) { "" } else { " (nothing is there)" };
        format!("file {}{there}", visible_line(p))
    }));
    facts
}

fn state_words(state: &str) -> &str {
    match state {
        "no_row" => "no row",
        "no_entry" => "no entry",
        "none" => "not there",
        other => other,
    }
}

fn damage(why: &Why, out: &mut Out) -> std::io::Result<()> {
    section("damage", out)?;
    if why.damage_total == 0 {
        return out.line("  none; every record was checked");
    }
    out.line(&format!("  {}", many(why.damage_total, "damaged place", "damaged places")))?;
    for d in &why.damage {
        let place = match d.line {
            Some(line) => format!("line {line}, byte {}", d.offset),
            None if d.offset > 0 => format!("byte {}", d.offset),
            None => "the file".to_owned(),
        };
        out.line(&format!("  {}: {place}: {}", visible_line(&d.path), visible_line(&d.reason)))?;
    }
    let more = why.damage_total.saturating_sub(why.damage.len() as u64);
    if more > 0 {
        out.line(&dim(&format!("  and {} more (--limit N tells more)", count(more))))?;
    }
    Ok(())
}

fn missing(why: &Why, out: &mut Out) -> std::io::Result<()> {
    if !why.similar.is_empty() {
        section("files that are not taken for it", out)?;
        for s in &why.similar {
            out.line(&format!("  {}  {}", visible_line(&s.path), dim(s.because)))?;
        }
    }
    if !why.mentions.is_empty() {
        section("threads that speak of it", out)?;
        for m in &why.mentions {
            let who = m.thread_id.map_or_else(|| m.path.clone().unwrap_or_default(), |id| id.to_string());
            out.line(&format!("  {}  as its {}", visible_line(&who), m.says.replace('_', " ")))?;
        }
    }
    section("what was looked at", out)?;
    for home in &why.looked_at {
        looked_at(home, out)?;
    }
    Ok(())
}

fn looked_at(l: &LookedAt, out: &mut Out) -> std::io::Result<()> {
    out.line(&format!("  {}", directory(&l.home)))?;
    for f in &l.folders {
        let files = many(f.files, "rollout", "rollouts");
        out.line(&format!("    {}  {}, {files}", pad(f.path, 17), f.state))?;
    }
    let names = many(l.name_index.names, "name", "names");
    out.line(&format!("    {}  {}, {names}", pad("session_index", 17), l.name_index.state))?;
    for d in &l.databases {
        let reason = d.reason.as_deref().map_or_else(String::new, |r| format!(": {}", visible_line(r)));
        let name = d.path.to_string_lossy();
        out.line(&format!("    {}  {}{reason}", visible_line(&name), d.state.replace('_', " ")))?;
    }
    if l.databases.is_empty() {
        out.line(&format!(
            "    no database of Codex in {}",
            many(l.database_folders.len() as u64, "folder", "folders")
        ))?;
    }
    for u in &l.unreadable {
        out.line(&format!("    cannot read {}: {}", visible_line(&u.path), visible_line(&u.reason)))?;
    }
    if l.links_not_followed > 0 {
        let links: Vec<String> = l.links.iter().map(|p| visible_line(p)).collect();
        let n = many(l.links_not_followed, "link", "links");
        out.line(&format!("    {n} not followed: {}", links.join(", ")))?;
    }
    Ok(())
}
