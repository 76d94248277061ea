//! `threadkeep home prune`.

use serde_json::json;
use threadkeep_agent_home::plan::{Action, Decision, Policy};
use threadkeep_agent_home::prune::{Carry, prune};

use super::args::PruneArgs;
use crate::cmd::confirm::ask;
use crate::cmd::now;
use crate::fail::{Done, Failure};
use crate::human::visible_line;
use crate::out::{Out, dim};

pub fn run(args: &PruneArgs, out: &mut Out) -> Done {
    let shared = args.place.shared()?;
    let policy = Policy { retention: args.retention, max_bytes: args.max_bytes };
    let profile = args.place.profile();
    if !args.dry_run && !args.yes {
        let plan = prune(&shared, &profile, policy, now(), Carry::Out)?.plan;
        let goes: Vec<&Decision> = plan.iter().filter(|d| d.action == Action::Remove).collect();
        if !goes.is_empty() {
            confirm(&goes)?;
        }
    }
    let carry = if args.dry_run { Carry::Out } else { Carry::Through };
    let done = prune(&shared, &profile, policy, now(), carry)?;
    if out.is_json() {
        let plan: Vec<_> = done
            .plan
            .iter()
            .map(|d| json!({"store": d.store, "bytes": d.bytes, "idle_since": d.idle_since, "action": d.action, "because": d.because.text()}))
            .collect();
        out.json(&json!({
            "format": 1,
            "plan": plan,
            "applied": done.applied,
            "removed": done.removed,
            "freed_bytes": done.freed_bytes,
            "out_of_scope": done.out_of_scope,
            "swept": done.swept,
            "left": done.left,
        }))?;
        return Ok(0);
    }
    for d in &done.plan {
        let word = match (d.action, done.applied) {
            (Action::Remove, true) => "removed",
            (Action::Remove, false) => "would remove",
            (Action::Keep, _) => "kept",
        };
        out.line(&format!("{word}  {}", line(d)))?;
    }
    for name in &done.swept {
        out.line(&dim(&format!("swept  {}", visible_line(name))))?;
    }
    for what in &done.left {
        out.line(&visible_line(what))?;
    }
    for name in &done.out_of_scope {
        out.line(&dim(&format!("not looked at, another profile's: {}", visible_line(name))))?;
    }
    if done.applied {
        out.line(&format!("{} stores removed, {} bytes freed", done.removed, done.freed_bytes))?;
    }
    Ok(0)
}

/// Asks whether these stores may go. Where nobody can be asked, they may not.
fn confirm(goes: &[&Decision]) -> Result<(), Failure> {
    let stores = if goes.len() == 1 { "1 store".to_owned() } else { format!("{} stores", goes.len()) };
    let lines: Vec<String> = goes.iter().map(|d| format!("remove  {}", line(d))).collect();
    ask(&lines, &format!("Remove {stores}?"), &format!("{stores} would be removed"), "nothing was removed")
}

fn line(d: &Decision) -> String {
    let since = d.idle_since.map_or_else(|| "never used".to_owned(), |t| format!("used {t}"));
    visible_line(&format!("{}  {} bytes  {since}  {}", d.store, d.bytes, d.because.text()))
}
