//! `threadkeep resume`: what to run to continue a thread.

use std::path::Path;

use serde_json::json;
use threadkeep_rollout::Depth;
use threadkeep_rollout::name::Form;

use crate::args::{Global, ResumeArgs, default_home};
use crate::fail::Done;
use crate::human::{shell_word, visible_line};
use crate::out::{Out, dim};

pub fn run(global: &Global, args: &ResumeArgs, out: &mut Out) -> Done {
    let store = global.store()?;
    let open = super::open_thread(&store, &args.thread, Depth::Head)?;
    let home = store.homes()[open.home].path().to_owned();
    let t = &open.row.thread;
    let id = open.row.key.clone();
    let command = vec!["codex".to_owned(), "resume".to_owned(), id.clone()];
    let bare =
        open.row.members.iter().any(|m| m.entry.name.form == Form::Json) || t.cli_version.is_none() && t.cwd.is_none();
    let obstacle = if bare {
        Some("it was written before Codex could resume threads; it can be read, not continued")
    } else {
        None
    };
    let gone = t.cwd.as_deref().filter(|c| !Path::new(c).is_dir());
    if out.is_json() {
        out.json(&json!({
            "format": 1,
            "thread_id": t.id,
            "home": home.to_string_lossy(),
            "cwd": t.cwd,
            "cwd_exists": t.cwd.as_ref().map(|_| gone.is_none()),
            "command": command,
            "archived": t.archived,
            "live": t.live,
            "obstacle": obstacle,
        }))?;
        return Ok(0);
    }
    let default = default_home().ok().and_then(|d| std::path::absolute(d).ok());
    let elsewhere = default.as_deref() != Some(&home) || !global.home.is_empty();
    let prefix = if elsewhere { format!("CODEX_HOME={} ", shell_word(&home.to_string_lossy())) } else { String::new() };
    if t.archived {
        out.line(&format!("This thread is archived. First run: {prefix}codex unarchive {id}"))?;
    }
    if let Some(holder) = &t.live {
        let pid =
            holder.get("pid").and_then(serde_json::Value::as_u64).map_or_else(String::new, |p| format!(" (pid {p})"));
        out.line(&format!("This thread is being written now{pid}; Codex will refuse a second writer."))?;
    }
    if let Some(why) = obstacle {
        out.line(&format!("Codex will not continue this thread: {why}."))?;
    }
    if let Some(cwd) = gone {
        out.line(&format!("Its directory is not there: {}", visible_line(cwd)))?;
    }
    let mut line = String::new();
    if let Some(cwd) = t.cwd.as_deref().filter(|_| gone.is_none()) {
        line.push_str(&format!("cd {} && ", shell_word(cwd)));
    }
    line.push_str(&prefix);
    line.push_str(&command.join(" "));
    out.line(&line)?;
    if let Some(what) = t.name.as_ref().or(t.preview.as_ref()) {
        out.line(&dim(&format!("# {}", visible_line(what).chars().take(100).collect::<String>())))?;
    }
    Ok(0)
}
