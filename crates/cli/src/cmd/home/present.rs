//! `threadkeep home present`.

use serde_json::json;
use threadkeep_agent_home::ResumeId;
use threadkeep_agent_home::find::Presence;
use threadkeep_agent_home::present::present;
use threadkeep_agent_home::shared::STORES;

use super::args::PresentArgs;
use crate::fail::{Done, Failure, Kind};
use crate::human::visible_line;
use crate::out::Out;

pub fn run(args: &PresentArgs, out: &mut Out) -> Done {
    let shared = args.place.shared_path()?;
    let text = args.thread.as_ref().or(args.thread_option.as_ref()).map_or("", String::as_str);
    let id = ResumeId::parse(text).map_err(|e| Failure::new(Kind::Usage, e.to_string()))?;
    let place = match (&args.task_home, args.conversation.key(args.place.profile())) {
        (Some(home), _) => home.clone(),
        (None, Some(key)) => shared.join(STORES).join(key.path()),
        (None, None) => {
            return Err(Failure::new(Kind::Usage, "no place to look in is given")
                .hint("give --task-home, or a conversation with --issue, --chat, --quick or --autopilot"));
        }
    };
    let found = present(&place, &shared, &id)?;
    if out.is_json() {
        out.json(&json!({"format": 1, "thread_id": id, "state": found.state, "path": found.path}))?;
    } else {
        let word = match found.state {
            Presence::Absent => "absent",
            Presence::Present => "present",
            Presence::PresentUnverified => "present, unverified",
        };
        let path = found.path.map_or_else(String::new, |p| format!("  {}", visible_line(&p.to_string_lossy())));
        out.line(&format!("{word}{path}"))?;
    }
    Ok(u8::from(found.state == Presence::Absent))
}
