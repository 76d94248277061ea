//! `threadkeep stats`: what a home holds.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Serialize;
use threadkeep_local::Stats;
use threadkeep_local::stats::Group;

use super::now;
use crate::args::Global;
use crate::fail::Done;
use crate::human::{age, count, fit, many, pad, size, visible_line};
use crate::out::{Out, bold, dim, say};
use crate::progress::Progress;

/// As JSON.
#[derive(Serialize)]
struct StatsJson<'a> {
    format: u32,
    home: Cow<'a, str>,
    homes: Vec<Cow<'a, str>>,
    #[serde(flatten)]
    stats: &'a Stats,
}

pub fn run(global: &Global, out: &mut Out) -> Done {
    let store = global.store()?;
    let stats = {
        let _progress = Progress::start("reading every rollout");
        store.stats()
    };
    if out.is_json() {
        let homes: Vec<Cow<'_, str>> = store.homes().iter().map(|h| h.path().to_string_lossy()).collect();
        out.json(&StatsJson { format: 1, home: homes[0].clone(), homes, stats: &stats })?;
        return Ok(0);
    }
    for note in &stats.notes {
        say(&format!("note: {}", visible_line(note)));
    }
    human(&stats, out)?;
    Ok(0)
}

/// Rows of a table; the rest is told in one.
const ROWS: usize = 15;

fn human(s: &Stats, out: &mut Out) -> std::io::Result<()> {
    let mut line = |what: &str, text: String| out.line(&format!("{}  {text}", pad(what, 8)));
    let mut threads = vec![count(s.threads)];
    threads.extend((s.archived > 0).then(|| format!("{} archived", count(s.archived))));
    threads.extend((s.without_file > 0).then(|| format!("{} more without a file", count(s.without_file))));
    line("threads", threads.join(" · "))?;
    let records = format!("{} in {}", size(s.record_bytes), many(s.records, "record", "records"));
    line("files", format!("{} · {} on disk · {records}", count(s.files), size(s.bytes)))?;
    let t = &s.tokens;
    let n = |n: i64| count(n.unsigned_abs());
    line(
        "tokens",
        format!("{} · input {} ({} cached) · output {}", n(t.total), n(t.input), n(t.cached_input), n(t.output)),
    )?;
    let r = &s.repeated;
    let bound = if r.least_bytes > 0 { "at least " } else { "" };
    line(
        "repeated",
        format!(
            "{bound}{} ({}) in {} that an earlier file has too",
            size(r.bytes),
            share(r.bytes, s.record_bytes),
            many(r.records, "record", "records")
        ),
    )?;
    let d = &s.damage;
    let damage = format!(
        "{} in {} · `threadkeep why ID` tells them",
        many(d.records, "place", "places"),
        many(d.files, "file", "files")
    );
    line("damage", if d.records == 0 { "none".to_owned() } else { damage })?;

    if s.trash.threads > 0 || s.trash.bytes > 0 {
        let threads = many(s.trash.threads, "thread", "threads");
        line("trash", format!("{threads} · {} · `threadkeep trash empty` frees it", size(s.trash.bytes)))?;
    }

    let mut kinds: Vec<(&str, [String; 3], u64)> = s
        .by_kind
        .iter()
        .map(|(kind, k)| (kind.as_str(), [count(k.records), size(k.bytes), share(k.bytes, s.record_bytes)], k.bytes))
        .collect();
    kinds.sort_by(|a, b| (b.2, a.0).cmp(&(a.2, b.0)));
    table("KIND", ["RECORDS", "BYTES", "SHARE"], &kinds, out)?;
    for (title, groups) in
        [("VERSION", &s.by_version), ("SOURCE", &s.by_source), ("MODEL", &s.by_model), ("MONTH", &s.by_month)]
    {
        let mut rows = rows(groups);
        match title {
            // Time goes on downwards, and the last months are the ones to see.
            "MONTH" => rows.reverse(),
            _ => rows.sort_by(|a, b| (b.2, a.0).cmp(&(a.2, b.0))),
        }
        table(title, ["THREADS", "BYTES", "TOKENS"], &rows, out)?;
    }
    largest(s, out)
}

fn rows(groups: &BTreeMap<String, Group>) -> Vec<(&str, [String; 3], u64)> {
    let row = |g: &Group| [count(g.threads), size(g.bytes), count(g.tokens.unsigned_abs())];
    groups.iter().map(|(key, g)| (key.as_str(), row(g), g.bytes)).collect()
}

fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "0 %".into();
    }
    let percent = part as f64 * 100.0 / whole as f64;
    if part > 0 && percent < 0.1 {
        return "<0.1 %".into();
    }
    if percent > 0.0 && percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

fn table(title: &str, heads: [&str; 3], rows: &[(&str, [String; 3], u64)], out: &mut Out) -> std::io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = rows.iter().take(ROWS).map(|(name, ..)| fit(&visible_line(name), 48)).collect();
    let width = names.iter().map(|n| n.chars().count()).max().unwrap_or(0).max(title.len());
    let columns: [usize; 3] = std::array::from_fn(|i| {
        rows.iter().take(ROWS).map(|(_, cells, _)| cells[i].len()).max().unwrap_or(0).max(heads[i].len())
    });
    let line = |name: &str, cells: [&str; 3]| {
        let [a, b, c] = columns;
        format!("{}  {:>a$}  {:>b$}  {:>c$}", pad(name, width), cells[0], cells[1], cells[2])
    };
    out.line("")?;
    out.line(&dim(&line(title, heads)))?;
    for (name, (_, cells, _)) in names.iter().zip(rows) {
        out.line(&line(name, [&cells[0], &cells[1], &cells[2]]))?;
    }
    if rows.len() > ROWS {
        let bytes = rows[ROWS..].iter().map(|(.., bytes)| bytes).sum();
        out.line(&dim(&format!("and {} more, {} (--json has them)", rows.len() - ROWS, size(bytes))))?;
    }
    Ok(())
}

fn largest(s: &Stats, out: &mut Out) -> std::io::Result<()> {
    if s.largest.is_empty() {
        return Ok(());
    }
    let clock = now();
    out.line("")?;
    out.line(&dim(&format!("{}  {:>7}  {}  WHAT", pad("LARGEST", 36), "SIZE", pad("UPDATED", 7))))?;
    for l in &s.largest {
        let id = l.id.map_or_else(|| visible_line(&l.path), |id| id.to_string());
        let updated = l.updated_at.map_or_else(String::new, |t| age(t, clock));
        let room = out.width().map_or(100, |w| w.saturating_sub(56).max(12));
        let what = match (&l.name, &l.preview) {
            (Some(name), _) => bold(&fit(&visible_line(name), room)),
            (None, Some(preview)) => fit(&visible_line(preview), room),
            (None, None) => dim("(no messages)"),
        };
        out.line(&format!("{}  {:>7}  {}  {what}", pad(&id, 36), size(l.bytes), pad(&updated, 7)))?;
    }
    Ok(())
}
