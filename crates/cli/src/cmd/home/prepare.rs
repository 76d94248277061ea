//! `threadkeep home prepare`.

use std::io::Read as _;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Value, json};
use threadkeep_agent_home::config::Patch;
use threadkeep_agent_home::expose::{Exposure, Sharing};
use threadkeep_agent_home::find::Presence;
use threadkeep_agent_home::options::Work;
use threadkeep_agent_home::outcome::{Outcome, Report};
use threadkeep_agent_home::store::Adopt;
use threadkeep_agent_home::{Options, ResumeId, World, prepare};
use threadkeep_local::IndexPlace;
use threadkeep_local::look_up::rollouts_named;
use threadkeep_rollout::Home;

use super::args::{Conversation, Expose, Place, PrepareArgs};
use crate::cmd::now;
use crate::fail::{Done, Failure, Kind};
use crate::human::visible_line;
use crate::out::{Out, dim};

/// The request as JSON: one name for each option.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    task_home: PathBuf,
    shared_home: Option<PathBuf>,
    profile: Option<String>,
    agent: Option<String>,
    issue: Option<String>,
    chat: Option<String>,
    quick: Option<String>,
    autopilot: Option<String>,
    resume: Option<String>,
    local_directory: Option<bool>,
    expose: Option<String>,
    allow_copy: Option<u64>,
    adopt: Option<bool>,
    /// Values by dotted key.
    config: Option<serde_json::Map<String, Value>>,
}

/// A request is small; anything larger is not one.
const MAX_REQUEST: u64 = 4 << 20;

pub fn run(args: &PrepareArgs, out: &mut Out) -> Done {
    let options = if args.stdin { from_stdin(&args.place)? } else { from_args(args)? };
    // The reservation of this process ends with it; `home run` takes its own.
    let shared = Home::new(&options.shared_home);
    // Without an index, or where that knows nothing, the shared home is walked.
    let look_up = |id: &ResumeId| rollouts_named(&shared, &IndexPlace::Home, id.as_str());
    let world = World { look_up: Some(&look_up), ..World::at(now()) };
    let report = prepare(&options, &world)?.report;
    if out.is_json() {
        out.json(&as_json(&report))?;
    } else {
        human(&report, out)?;
    }
    Ok(0)
}

fn from_args(args: &PrepareArgs) -> Result<Options, Failure> {
    let task_home = args.task_home.clone().ok_or_else(|| Failure::new(Kind::Usage, "no task home is given"))?;
    let mut options = Options::new(task_home, args.place.shared_path()?);
    options.key = args.conversation.key(args.place.profile());
    options.resume = resume(args.resume.as_deref())?;
    options.work = work(args.local_directory);
    options.exposure = exposure(args.expose, args.allow_copy);
    options.adopt = adopt(args.adopt);
    options.config = args.config.iter().map(|c| patch(c)).collect::<Result<_, _>>()?;
    Ok(options)
}

fn from_stdin(place: &Place) -> Result<Options, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .take(MAX_REQUEST)
        .read_to_string(&mut text)
        .map_err(|e| Failure::new(Kind::Usage, format!("cannot read the request: {e}")))?;
    let request: Request = serde_json::from_str(&text)
        .map_err(|e| Failure::new(Kind::Usage, format!("the request is not understood: {e}")))?;
    let mut place =
        Place { shared_home: place.shared_home.clone(), profile: request.profile.or_else(|| place.profile.clone()) };
    if let Some(home) = request.shared_home.filter(|p| !p.as_os_str().is_empty()) {
        place.take_shared(&home, "shared_home in the request")?;
    }
    let conversation = Conversation {
        agent: request.agent,
        issue: request.issue,
        chat: request.chat,
        quick: request.quick,
        autopilot: request.autopilot,
    };
    let mut options = Options::new(request.task_home, place.shared_path()?);
    options.key = conversation.key(place.profile());
    options.resume = resume(request.resume.as_deref())?;
    options.work = work(request.local_directory.unwrap_or_default());
    let expose = match request.expose.as_deref() {
        None => None,
        Some("shared") => Some(Expose::Shared),
        Some("isolated") => Some(Expose::Isolated),
        Some(other) => return Err(Failure::new(Kind::Usage, format!("expose is shared or isolated, not {other:?}"))),
    };
    options.exposure = exposure(expose, request.allow_copy);
    options.adopt = adopt(request.adopt.unwrap_or_default());
    for (key, value) in request.config.iter().flatten() {
        // Scalars of JSON are values of TOML; a list or object goes in as an inline one.
        options.config.push(patch(&format!("{key}={}", toml(value)?))?);
    }
    Ok(options)
}

fn toml(value: &Value) -> Result<String, Failure> {
    Ok(match value {
        Value::Null => return Err(Failure::new(Kind::Usage, "a config value cannot be null")),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(toml).collect::<Result<Vec<_>, _>>()?.join(", "))
        }
        Value::Object(map) => {
            let pairs: Result<Vec<String>, Failure> =
                map.iter().map(|(k, v)| Ok(format!("{} = {}", Value::from(k.as_str()), toml(v)?))).collect();
            format!("{{ {} }}", pairs?.join(", "))
        }
    })
}

/// An empty id is none: a daemon that has none may well send it so.
fn resume(text: Option<&str>) -> Result<Option<ResumeId>, Failure> {
    text.filter(|t| !t.is_empty())
        .map(ResumeId::parse)
        .transpose()
        .map_err(|e| Failure::new(Kind::Usage, e.to_string()))
}

fn work(local: bool) -> Work {
    if local { Work::LocalDirectory } else { Work::Managed }
}

fn adopt(yes: bool) -> Adopt {
    if yes { Adopt::Move } else { Adopt::Leave }
}

fn exposure(expose: Option<Expose>, allow_copy: Option<u64>) -> Exposure {
    let sharing = match expose {
        None | Some(Expose::Shared) => Sharing::Shared,
        Some(Expose::Isolated) => Sharing::Isolated,
    };
    Exposure { sharing, allow_copy: allow_copy.unwrap_or(0) }
}

fn patch(text: &str) -> Result<Patch, Failure> {
    Patch::parse(text).map_err(|e| Failure::new(Kind::Usage, e))
}

fn words(outcome: &Outcome) -> (&'static str, Option<&'static str>, Option<String>) {
    match outcome {
        Outcome::Fresh => ("fresh", None, None),
        Outcome::Resumed(Presence::PresentUnverified) => {
            ("resumed", Some("unverified"), Some("the rollout's header could not be read".into()))
        }
        Outcome::Resumed(Presence::Present | Presence::Absent) => ("resumed", None, None),
        Outcome::Unavailable(why) => ("resume_unavailable", Some(why.word()), Some(why.message())),
    }
}

fn as_json(r: &Report) -> Value {
    let (outcome, reason, message) = words(&r.outcome);
    json!({
        "format": 1,
        "task_home": r.task_home,
        "store": r.store,
        "outcome": outcome,
        "reason": reason,
        "message": message,
        "thread_id": r.thread_id,
        "exposed": r.exposed,
        "bases": r.bases,
        "migrated": r.migrated,
        "repaired": r.repaired,
        "linked": r.linked,
        "copied": r.copied,
        "kept": r.kept,
        "names": r.names,
        "notes": r.notes,
    })
}

fn human(r: &Report, out: &mut Out) -> Result<(), Failure> {
    let (outcome, reason, message) = words(&r.outcome);
    let thread = r.thread_id.as_ref().map_or_else(String::new, |id| format!("  {id}"));
    let reason = reason.map_or_else(String::new, |w| format!(" ({w})"));
    out.line(&format!("{}{reason}{thread}", outcome.replace('_', " ")))?;
    if let Some(message) = message {
        out.line(&format!("  {}", visible_line(&message)))?;
    }
    if let Some(store) = &r.store {
        out.line(&dim(&format!("  store     {}", visible_line(&store.to_string_lossy()))))?;
    }
    for file in &r.exposed {
        let how = serde_json::to_value(file.how).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        out.line(&format!("  exposed   {} ({})", visible_line(&file.path.to_string_lossy()), how.replace('_', " ")))?;
    }
    for base in &r.bases {
        out.line(&format!("  base      {base}"))?;
    }
    for name in &r.names {
        out.line(&format!("  name      {}  {}", name.thread_id, visible_line(&name.name)))?;
    }
    let lists = [
        ("migrated", &r.migrated),
        ("repaired", &r.repaired),
        ("linked", &r.linked),
        ("copied", &r.copied),
        ("kept", &r.kept),
        ("note", &r.notes),
    ];
    for (word, list) in lists {
        for item in list {
            out.line(&format!("  {word:<9} {}", visible_line(item)))?;
        }
    }
    Ok(())
}
