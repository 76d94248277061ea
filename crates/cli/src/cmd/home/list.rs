//! `threadkeep home list` and `threadkeep home show`.

use serde_json::{Value, json};
use threadkeep_agent_home::inventory::{Look, StoreFacts, facts, namespaces, stores};
use threadkeep_agent_home::plan::last_use;
use threadkeep_agent_home::platform::{flock_table, program};
use threadkeep_agent_home::shared::STORES;
use threadkeep_agent_home::{HomeError, StoreKey};

use super::args::{KeyArgs, ListArgs};
use crate::cmd::now;
use crate::fail::Done;
use crate::human::visible_line;
use crate::out::Out;

pub fn run(args: &ListArgs, out: &mut Out) -> Done {
    let shared = args.place.shared()?;
    let wanted = match &args.place.profile {
        Some(profile) => vec![StoreKey::namespace_of(profile)],
        None => namespaces(&shared)?,
    };
    let mut all = Vec::new();
    for namespace in wanted {
        all.extend(stores(&shared, &namespace, Look::List)?);
    }
    print(&all, out)
}

pub fn show(args: &KeyArgs, out: &mut Out) -> Done {
    let shared = args.place.shared()?;
    let key = args.key()?;
    let path = format!("{STORES}/{}", key.path());
    let Some(dir) = shared.part(&path)? else {
        return Err(HomeError::Missing { what: "there is no store of this key", path: shared.dir.shown(path) }.into());
    };
    print(&[facts(&shared, &dir, key.path(), Look::Closely, &flock_table())], out)
}

fn print(all: &[StoreFacts], out: &mut Out) -> Done {
    if out.is_json() {
        out.json(&json!({"format": 1, "stores": all.iter().map(as_json).collect::<Vec<_>>()}))?;
        return Ok(0);
    }
    for s in all {
        let who = s.key.as_ref().map_or_else(
            || s.path.clone(),
            |k| {
                let profile = if k.profile.is_empty() { String::new() } else { format!(", profile {}", k.profile) };
                format!("{}{profile}", k.shown())
            },
        );
        let mut marks = Vec::new();
        if s.pin.is_some() {
            marks.push("pinned".to_owned());
        }
        if !s.held_by.is_empty() {
            marks.push(format!("held by {}", s.held_by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")));
        }
        marks.extend(s.problems.iter().map(|p| format!("not certain: {p}")));
        let used = last_use(s, now()).map_or_else(|| "never".to_owned(), |t| t.to_string());
        out.line(&format!(
            "{}  {} threads  {} bytes  used {used}  {}",
            visible_line(&who),
            s.threads.len(),
            s.bytes,
            visible_line(&marks.join("; "))
        ))?;
        for (id, name) in s.threads.iter().filter(|_| all.len() == 1) {
            out.line(&format!("  {id}  {}", visible_line(name.as_deref().unwrap_or(""))))?;
        }
    }
    Ok(0)
}

fn as_json(s: &StoreFacts) -> Value {
    let threads: Vec<Value> = s.threads.iter().map(|(id, name)| json!({"id": id, "name": name})).collect();
    let held: Vec<Value> = s.held_by.iter().map(|pid| json!({"pid": pid, "program": program(*pid)})).collect();
    json!({
        "store": s.shown,
        "profile": s.key.as_ref().map(|k| &k.profile),
        "agent": s.key.as_ref().map(|k| &k.agent),
        "kind": s.key.as_ref().map(|k| k.kind),
        "id": s.key.as_ref().map(|k| &k.id),
        "bytes": s.bytes,
        "threads": threads,
        "held_by": held,
        "last_used": s.last_used,
        "pinned": s.pin.is_some(),
        "pin_reason": s.pin.as_ref().and_then(|p| p.why.clone()),
        "problems": s.problems,
    })
}
