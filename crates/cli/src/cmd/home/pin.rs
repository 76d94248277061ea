//! `threadkeep home pin` and `threadkeep home unpin`.

use serde_json::json;
use threadkeep_agent_home::manifest::Pin;
use threadkeep_agent_home::prune;
use threadkeep_agent_home::reservation::PATIENCE;

use super::args::{KeyArgs, PinArgs};
use crate::cmd::now;
use crate::fail::Done;
use crate::human::visible_line;
use crate::out::Out;

pub fn pin(args: &PinArgs, out: &mut Out) -> Done {
    set(&args.key, Some(Pin { at: now(), why: args.why.clone() }), out)
}

pub fn unpin(args: &KeyArgs, out: &mut Out) -> Done {
    set(args, None, out)
}

fn set(args: &KeyArgs, pin: Option<Pin>, out: &mut Out) -> Done {
    let key = args.key()?;
    let pinned = pin.is_some();
    let changed = prune::pin(&args.place.shared()?, &key, pin, now(), PATIENCE)?;
    if out.is_json() {
        out.json(&json!({"format": 1, "store": key.path(), "pinned": pinned, "changed": changed}))?;
    } else {
        let word = if pinned { "pinned" } else { "not pinned" };
        let before = if changed { "" } else { ", as before" };
        out.line(&format!("{}: {word}{before}", visible_line(&key.shown())))?;
    }
    Ok(0)
}
