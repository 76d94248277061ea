//! What was said and done in a turn, made from its records.

use std::collections::HashSet;

use serde_json::{Map, Value, json};
use threadkeep_record::fold::FoldLine;
use threadkeep_record::item::{Image, Item, ItemBody, Origin};
use threadkeep_record::{Accounts, Envelope, LineState, Speaker, check_line, long, preview};

use crate::turns::TurnItem;

/// How much of long texts is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Texts are cut at [`MAX_TEXT`], and what programs put into the model's input is left out.
    Readable,
    /// Everything.
    Full,
}

/// Longer texts are cut, with their real size beside them.
pub const MAX_TEXT: usize = 64 << 10;

/// Collects the items of one turn from its lines, given in order.
#[derive(Debug)]
pub struct TurnBuilder {
    accounts: Accounts,
    detail: Detail,
    items: Vec<(Origin, TurnItem)>,
    /// Places of messages of the model's account.
    second: Vec<usize>,
    calls: HashSet<String>,
    reasoning: HashSet<String>,
}

impl TurnBuilder {
    /// A turn without items, in a history that has these accounts.
    #[must_use]
    pub fn new(accounts: Accounts, detail: Detail) -> Self {
        Self {
            accounts,
            detail,
            items: Vec::new(),
            second: Vec::new(),
            calls: HashSet::new(),
            reasoning: HashSet::new(),
        }
    }

    /// Takes the next line; `path` is the file it stands in, as it is shown.
    pub fn line(&mut self, line: &FoldLine<'_>, path: &str) {
        if line.long {
            let Some(item) = long::item(line.bytes) else {
                let mut unknown = blank("long_record", None, path, line);
                unknown.text = "a record too long to be shown; --raw gives its bytes".into();
                self.items.push((Origin::Other, unknown));
                return;
            };
            if !self.accounts.is_second_account(&item)
                && let Some(mut shown) = self.item(&item, line, path)
            {
                shown
                    .extra
                    .insert("cut".into(), json!("a record over 8 MiB; this is its beginning, --raw gives its bytes"));
                self.items.push((item.origin, shown));
            }
            return;
        }
        match check_line(line.bytes) {
            LineState::Blank => {}
            LineState::Record(record) => self.record(record, line, path),
            LineState::Recovered(record, reason) => {
                record.iter().for_each(|r| self.record(r, line, path));
                if let Some((_, item)) = self.items.last_mut() {
                    item.extra.insert("damage".into(), json!(reason.to_string()));
                }
            }
            LineState::Damaged(reason) => {
                let mut item = blank("damaged", None, path, line);
                item.text = reason.to_string();
                self.items.push((Origin::Other, item));
            }
        }
    }

    fn record(&mut self, record: &[u8], line: &FoldLine<'_>, path: &str) {
        let Some(envelope) = Envelope::parse(record) else { return };
        let mut item = Item::parse(&envelope);
        // A message of the model's account is kept for now: what no event tells is shown in the end.
        let second = self.accounts.is_second_account(&item);
        let time = envelope.time();
        if let ItemBody::Reasoning { parts } = &mut item.body {
            // The model's account repeats what events told before.
            parts.retain(|p| !p.trim().is_empty() && (item.origin != Origin::Response || !self.reasoning.contains(p)));
            self.reasoning.extend(parts.iter().cloned());
            if parts.is_empty() {
                return;
            }
        }
        let of_known_call = item.call_id.as_ref().is_some_and(|c| self.calls.contains(c));
        if item.origin == Origin::Response
            && let Some(call) = &item.call_id
        {
            self.calls.insert(call.clone());
        }
        // The output of a call that the model made stands in its own record.
        if of_known_call
            && item.origin != Origin::Response
            && matches!(item.body, ItemBody::ToolOutput { .. } | ItemBody::ToolCall { .. })
        {
            return;
        }
        if let ItemBody::ToolOutput { command: Some(command), .. } = &item.body {
            // A command that a person ran: the call has no record of its own.
            let mut call = blank("tool_call", Some(Speaker::ToolCall), path, line);
            call.id = item.call_id.clone();
            call.text = command.clone();
            call.time = time;
            call.extra.insert("name".into(), json!("shell"));
            self.items.push((item.origin, call));
        }
        if let Some(mut shown) = self.item(&item, line, path) {
            shown.time = time;
            if second {
                self.second.push(self.items.len());
            }
            self.items.push((item.origin, shown));
        }
    }

    fn item(&self, item: &Item, line: &FoldLine<'_>, path: &str) -> Option<TurnItem> {
        let mut extra = Map::new();
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                extra.insert(key.to_owned(), value);
            }
        };
        let (kind, speaker, text) = match &item.body {
            ItemBody::UserMessage { text, images } => {
                put("images", images_json(images));
                let own = preview::strip_request_prefix(text);
                let text = if self.detail == Detail::Full { text.as_str() } else { own };
                ("user_message", Some(Speaker::User), text.to_owned())
            }
            ItemBody::AgentMessage { text, phase } => {
                put("phase", json!(phase));
                ("agent_message", Some(Speaker::Agent), text.clone())
            }
            ItemBody::Reasoning { parts } => ("reasoning", Some(Speaker::Reasoning), parts.join("\n\n")),
            ItemBody::Plan { text } => ("plan", Some(Speaker::Plan), text.clone()),
            ItemBody::ToolCall { name, text, .. } => {
                put("name", json!(name));
                ("tool_call", Some(Speaker::ToolCall), text.clone())
            }
            ItemBody::ToolOutput { text, exit_code, images, .. } => {
                put("exit_code", json!(exit_code));
                put("images", images_json(images));
                ("tool_output", Some(Speaker::ToolOutput), text.clone())
            }
            ItemBody::Patch { changes, status } => {
                put("status", json!(status));
                put(
                    "changes",
                    Value::Array(
                        changes
                            .iter()
                            .map(|c| json!({"path": c.path, "kind": c.kind, "diff": self.cut(&c.diff).0}))
                            .collect(),
                    ),
                );
                (
                    "patch",
                    Some(Speaker::Patch),
                    changes.iter().map(|c| format!("{} {}", c.kind, c.path)).collect::<Vec<_>>().join("\n"),
                )
            }
            ItemBody::SubAgent { action, text, threads } => {
                put("action", json!(action));
                put("threads", json!(threads));
                ("sub_agent", Some(Speaker::Agent), text.clone())
            }
            ItemBody::Picture { image, prompt } => {
                put("bytes", json!(image.bytes));
                put("prompt", json!(prompt));
                ("image", None, image.label.clone())
            }
            ItemBody::Compaction { summary } => ("compaction", None, summary.clone().unwrap_or_default()),
            ItemBody::Goal { objective, status } => {
                put("status", json!(status));
                ("goal", Some(Speaker::User), objective.clone())
            }
            ItemBody::Review { finished, text } => {
                put("finished", json!(finished));
                ("review", Some(if *finished { Speaker::Agent } else { Speaker::User }), text.clone())
            }
            ItemBody::Error { message } => ("error", Some(Speaker::Agent), message.clone()),
            ItemBody::TurnCompleted { error: Some(message), .. } => ("error", Some(Speaker::Agent), message.clone()),
            ItemBody::TurnAborted { reason, .. } => ("aborted", None, reason.clone()),
            ItemBody::Named { name } => ("named", Some(Speaker::Name), name.clone()),
            ItemBody::Injected { role, text } if self.detail == Detail::Full && !text.is_empty() => {
                put("role", json!(role));
                ("injected", None, text.clone())
            }
            ItemBody::Unknown { kind, reason } => {
                put("record", json!(kind));
                ("unknown", None, (*reason).to_owned())
            }
            ItemBody::Injected { .. }
            | ItemBody::TurnStarted { .. }
            | ItemBody::TurnCompleted { .. }
            | ItemBody::RolledBack { .. }
            | ItemBody::Tokens(_)
            | ItemBody::Settings { .. }
            | ItemBody::Silent => return None,
        };
        let (text, cut) = self.cut(&text);
        if let Some(bytes) = cut {
            extra.insert("text_bytes".into(), json!(bytes));
        }
        if let Some(call) = &item.call_id {
            extra.insert("call_id".into(), json!(call));
        }
        Some(TurnItem {
            extra,
            text,
            id: item.id.clone().or_else(|| item.call_id.clone()),
            ..blank(kind, speaker, path, line)
        })
    }

    /// A text within the limit, and its real size if it was cut.
    fn cut(&self, text: &str) -> (String, Option<usize>) {
        if self.detail == Detail::Full || text.len() <= MAX_TEXT {
            return (text.to_owned(), None);
        }
        let end = (0..=MAX_TEXT).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        (text[..end].to_owned(), Some(text.len()))
    }

    /// The items, without the calls that another item tells better.
    #[must_use]
    pub fn finish(self) -> Vec<TurnItem> {
        let call = |i: &TurnItem| i.extra.get("call_id").and_then(Value::as_str).map(str::to_owned);
        let told: HashSet<(String, &str)> = self
            .items
            .iter()
            .filter(|(origin, i)| *origin != Origin::Response && matches!(i.kind, "patch" | "sub_agent" | "image"))
            .filter_map(|(_, i)| Some((call(i)?, i.kind)))
            .collect();
        let doubled = |origin: Origin, i: &TurnItem| {
            origin == Origin::Response
                && call(i).is_some_and(|c| match i.kind {
                    "patch" => told.contains(&(c, "patch")),
                    "tool_call" => told.contains(&(c.clone(), "sub_agent")) || told.contains(&(c, "image")),
                    _ => false,
                })
        };
        let mut keep: Vec<bool> = self.items.iter().map(|(o, i)| !doubled(*o, i)).collect();
        // An agent's message that no event repeats is shown; a person's only in a turn without any event of one, since
        // beside events it was put there by a program.
        let event = |kind: &'static str| {
            let second = &self.second;
            self.items.iter().enumerate().filter(move |(n, (_, i))| i.kind == kind && !second.contains(n))
        };
        let said: HashSet<&str> = event("agent_message").map(|(_, (_, i))| i.text.trim()).collect();
        let by_person = event("user_message").next().is_some();
        for n in &self.second {
            let item = &self.items[*n].1;
            let told = if item.kind == "user_message" { by_person } else { said.contains(item.text.trim()) };
            keep[*n] &= !told;
        }
        self.items.into_iter().zip(keep).filter(|(_, keep)| *keep).map(|((_, i), _)| i).collect()
    }
}

fn blank(kind: &'static str, speaker: Option<Speaker>, path: &str, line: &FoldLine<'_>) -> TurnItem {
    TurnItem {
        id: None,
        kind,
        speaker,
        text: String::new(),
        time: None,
        extra: Map::new(),
        path: path.to_owned(),
        // Lines of a file that is read from its end are not counted.
        line: (line.number > 0).then_some(line.number),
        offset: line.offset,
    }
}

fn images_json(images: &[Image]) -> Value {
    if images.is_empty() {
        return Value::Null;
    }
    Value::Array(images.iter().map(|i| json!({"label": i.label, "bytes": i.bytes})).collect())
}
