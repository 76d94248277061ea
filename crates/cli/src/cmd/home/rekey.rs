//! `threadkeep home rekey`.

use serde_json::json;
use threadkeep_agent_home::StoreKey;
use threadkeep_agent_home::rekey::rekey;
use threadkeep_agent_home::reservation::PATIENCE;

use super::args::RekeyArgs;
use crate::cmd::now;
use crate::fail::Done;
use crate::human::visible_line;
use crate::out::Out;

pub fn run(args: &RekeyArgs, out: &mut Out) -> Done {
    let profile = args.place.profile();
    let agent = args.agent.clone().unwrap_or_default();
    let to_agent = args.to_agent.clone().unwrap_or_else(|| agent.clone());
    let key = |agent: String, (kind, id): &(_, String)| StoreKey {
        profile: profile.clone(),
        agent,
        kind: *kind,
        id: id.clone(),
    };
    let (from, to) = (key(agent, &args.from), key(to_agent, &args.to));
    let done = rekey(&args.place.shared()?, &from, &to, now(), PATIENCE)?;
    if out.is_json() {
        out.json(&json!({"format": 1, "from": from, "to": to, "store": done.store, "moved": done.moved, "notes": done.notes}))?;
    } else {
        out.line(&format!("{} is now {}", visible_line(&from.shown()), visible_line(&to.shown())))?;
        for what in &done.moved {
            out.line(&format!("  moved     {}", visible_line(what)))?;
        }
        for note in &done.notes {
            out.line(&format!("  note      {}", visible_line(note)))?;
        }
    }
    Ok(0)
}
