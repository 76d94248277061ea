//! One turn as text.

use std::io;

use anstyle::AnsiColor;
use serde_json::Value;
use threadkeep_local::show::Detail;
use threadkeep_record::turns::TurnStatus;
use threadkeep_store::turns::{Turn, TurnItem};

use crate::human::{size, visible, visible_line, when};
use crate::out::{Out, bold, colour, dim};

/// Lines of an output that are shown when it is folded: the first ones and the last.
const FIRST: usize = 4;
const LAST: usize = 2;

/// Lines of a diff that are shown when it is folded.
const DIFF: usize = 60;

pub fn turn(turn: &Turn, detail: Detail, out: &mut Out) -> io::Result<()> {
    let status = match turn.status {
        TurnStatus::Completed => "",
        TurnStatus::Interrupted => " · interrupted",
        TurnStatus::Failed => " · failed",
        TurnStatus::InProgress => " · in progress",
    };
    let time = turn.started_at.map(|t| format!(" · {}", when(t))).unwrap_or_default();
    out.line("")?;
    out.line(&dim(&format!("── turn {}{time}{status}", count(turn.number))))?;
    for (i, it) in turn.items.iter().enumerate() {
        // An output right behind its call needs no heading.
        let after_call = it.kind == "tool_output"
            && i > 0
            && matches!(turn.items[i - 1].kind, "tool_call" | "patch" | "tool_output");
        item(it, detail, after_call, out)?;
    }
    Ok(())
}

fn item(it: &TurnItem, detail: Detail, after_call: bool, out: &mut Out) -> io::Result<()> {
    let extra = |key: &str| it.extra.get(key).and_then(Value::as_str).map(visible_line);
    match it.kind {
        "user_message" => {
            heading(out, &colour(AnsiColor::Green, "you"))?;
            block(out, &it.text, "  ", usize::MAX)?;
            images(out, it)?;
        }
        "agent_message" => {
            heading(out, &colour(AnsiColor::Cyan, "agent"))?;
            block(out, &it.text, "  ", usize::MAX)?;
        }
        "reasoning" => {
            heading(out, &dim("reasoning"))?;
            block_dim(out, &it.text, if detail == Detail::Full { usize::MAX } else { 12 })?;
        }
        "plan" => {
            heading(out, &colour(AnsiColor::Magenta, "plan"))?;
            block(out, &it.text, "  ", usize::MAX)?;
        }
        "tool_call" => {
            let name = extra("name").unwrap_or_default();
            heading(out, &format!("{} {}", colour(AnsiColor::Yellow, "tool"), bold(&name)))?;
            block(out, &it.text, "  $ ", if detail == Detail::Full { usize::MAX } else { 12 })?;
        }
        "tool_output" => {
            if !after_call {
                heading(out, &colour(AnsiColor::Yellow, "tool output"))?;
            }
            folded(out, &it.text, detail)?;
            images(out, it)?;
            if let Some(code) = it.extra.get("exit_code").and_then(Value::as_i64) {
                out.line(&dim(&format!("    exit {code}")))?;
            }
        }
        "patch" => patch(out, it, detail)?,
        "sub_agent" => {
            let threads: Vec<String> = it
                .extra
                .get("threads")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(visible_line)
                .collect();
            let text: String = visible_line(&it.text).chars().take(160).collect();
            out.line(&format!(
                "{} {} {}  {text}",
                colour(AnsiColor::Yellow, "sub-agent"),
                extra("action").unwrap_or_default(),
                dim(&threads.join(" "))
            ))?;
        }
        "image" => {
            let bytes =
                it.extra.get("bytes").and_then(Value::as_u64).map(|b| format!(" ({})", size(b))).unwrap_or_default();
            let prompt = extra("prompt").map(|p| format!(": {p}")).unwrap_or_default();
            out.line(&format!("{} {}{bytes}{prompt}", dim("image"), visible_line(&it.text)))?;
        }
        "compaction" => {
            out.line(&dim("·· the context was compacted here"))?;
            if detail == Detail::Full {
                block_dim(out, &it.text, usize::MAX)?;
            }
        }
        "goal" => out.line(&format!(
            "{} ({}) {}",
            colour(AnsiColor::Magenta, "goal"),
            extra("status").unwrap_or_default(),
            visible_line(&it.text)
        ))?,
        "review" => {
            let what =
                if it.extra.get("finished") == Some(&Value::Bool(true)) { "review finished" } else { "review started" };
            heading(out, &colour(AnsiColor::Magenta, what))?;
            block(out, &it.text, "  ", usize::MAX)?;
        }
        "error" => out.line(&format!("{} {}", colour(AnsiColor::Red, "error"), visible_line(&it.text)))?,
        "aborted" => out.line(&dim(&format!("·· the turn was ended: {}", visible_line(&it.text))))?,
        "damaged" => out.line(&colour(
            AnsiColor::Red,
            &format!(
                "·· damaged record, {} line {} byte {}: {}",
                visible_line(&it.path),
                count(it.line),
                it.offset,
                visible_line(&it.text)
            ),
        ))?,
        "injected" => {
            heading(out, &dim(&format!("put in by a program ({})", extra("role").unwrap_or_default())))?;
            block_dim(out, &it.text, usize::MAX)?;
        }
        "unknown" => {
            out.line(&dim(&format!("·· {} ({})", extra("record").unwrap_or_default(), visible_line(&it.text))))?
        }
        other => {
            out.line(&dim(&format!("·· {}: {}", other.replace('_', " "), visible_line(&it.text))))?;
        }
    }
    if let Some(bytes) = it.extra.get("text_bytes").and_then(Value::as_u64) {
        out.line(&dim(&format!("    … cut here, {} in all (--full)", size(bytes))))?;
    }
    if let Some(cut) = extra("cut") {
        out.line(&dim(&format!("    … {cut}")))?;
    }
    if let Some(damage) = extra("damage") {
        out.line(&colour(AnsiColor::Red, &format!("    line {} byte {}: {damage}", count(it.line), it.offset)))?;
    }
    Ok(())
}

fn heading(out: &mut Out, text: &str) -> io::Result<()> {
    out.line(text)
}

fn block(out: &mut Out, text: &str, indent: &str, most: usize) -> io::Result<()> {
    let text = visible(text.trim_end());
    let lines: Vec<&str> = text.split('\n').collect();
    for (i, line) in lines.iter().take(most).enumerate() {
        let lead = if i == 0 || indent.trim().is_empty() { indent.to_owned() } else { " ".repeat(indent.len()) };
        out.line(&format!("{lead}{line}"))?;
    }
    if lines.len() > most {
        out.line(&dim(&format!("    … {} more lines", lines.len() - most)))?;
    }
    Ok(())
}

fn block_dim(out: &mut Out, text: &str, most: usize) -> io::Result<()> {
    let text = visible(text.trim_end());
    let lines: Vec<&str> = text.split('\n').collect();
    for line in lines.iter().take(most) {
        out.line(&dim(&format!("  {line}")))?;
    }
    if lines.len() > most {
        out.line(&dim(&format!("    … {} more lines", lines.len() - most)))?;
    }
    Ok(())
}

/// An output folded to a few lines.
fn folded(out: &mut Out, text: &str, detail: Detail) -> io::Result<()> {
    let text = visible(text.trim_end());
    if text.is_empty() {
        return Ok(());
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let show = |out: &mut Out, line: &str| {
        let cut: String = if detail == Detail::Full { line.to_owned() } else { line.chars().take(300).collect() };
        out.line(&format!("  {} {cut}", dim("│")))
    };
    if detail == Detail::Full || lines.len() <= FIRST + LAST + 1 {
        for line in &lines {
            show(out, line)?;
        }
        return Ok(());
    }
    for line in &lines[..FIRST] {
        show(out, line)?;
    }
    out.line(&dim(&format!("  │ … {} more lines", lines.len() - FIRST - LAST)))?;
    for line in &lines[lines.len() - LAST..] {
        show(out, line)?;
    }
    Ok(())
}

fn patch(out: &mut Out, it: &TurnItem, detail: Detail) -> io::Result<()> {
    let status = it
        .extra
        .get("status")
        .and_then(Value::as_str)
        .filter(|s| *s != "completed")
        .map(|s| format!(" ({})", visible_line(s)))
        .unwrap_or_default();
    for change in it.extra.get("changes").and_then(Value::as_array).into_iter().flatten() {
        let text = |key: &str| change.get(key).and_then(Value::as_str).unwrap_or("");
        out.line(&format!(
            "{} {} {}{status}",
            colour(AnsiColor::Yellow, "patch"),
            visible_line(text("kind")),
            bold(&visible_line(text("path")))
        ))?;
        let diff = visible(text("diff"));
        let lines: Vec<&str> = diff.lines().collect();
        let most = if detail == Detail::Full { usize::MAX } else { DIFF };
        for line in lines.iter().take(most) {
            let painted = match line.as_bytes().first() {
                Some(b'+') => colour(AnsiColor::Green, line),
                Some(b'-') => colour(AnsiColor::Red, line),
                Some(b'@') => dim(line),
                _ => (*line).to_owned(),
            };
            out.line(&format!("  {painted}"))?;
        }
        if lines.len() > most {
            out.line(&dim(&format!("  … {} more lines", lines.len() - most)))?;
        }
    }
    Ok(())
}

fn images(out: &mut Out, it: &TurnItem) -> io::Result<()> {
    for image in it.extra.get("images").and_then(Value::as_array).into_iter().flatten() {
        let bytes = image.get("bytes").and_then(Value::as_u64).map(|b| format!(", {}", size(b))).unwrap_or_default();
        let label = image.get("label").and_then(Value::as_str).unwrap_or("image");
        out.line(&dim(&format!("  [image {}{bytes}]", visible_line(label))))?;
    }
    Ok(())
}

/// A number that may not have been counted.
fn count(number: Option<u64>) -> String {
    number.map_or_else(|| "…".to_owned(), |n| n.to_string())
}
