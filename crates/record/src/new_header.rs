//! The header of a rollout that is to be made (`thread-store.md` 1.3).

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::{Envelope, GitInfo, HistoryBase, HistoryMode, Kind, NewItem, ThreadId, UtcMillis};

/// What a new thread's header says. Absent facts are left out of it, as released writers do.
#[derive(Debug, Clone)]
pub struct NewHeader {
    /// The session: for a root thread its own id.
    pub session_id: ThreadId,
    /// The thread.
    pub thread_id: ThreadId,
    /// The thread it was forked from.
    pub forked_from_id: Option<ThreadId>,
    /// The thread that spawned it.
    pub parent_thread_id: Option<ThreadId>,
    /// When the thread was created.
    pub created_at: UtcMillis,
    /// Working directory.
    pub cwd: String,
    /// The program that made the thread.
    pub originator: String,
    /// Its version.
    pub cli_version: String,
    /// `source` in its wire form (`thread-store.md` 1.4).
    pub source: Value,
    /// What kind of work started it: `user`, `subagent`, or a feature's name.
    pub thread_source: Option<String>,
    /// Model provider; `None` is written as `null`.
    pub model_provider: Option<String>,
    /// The prompt it started with.
    pub base_instructions: Option<String>,
    /// Tools that its client adds, in their wire form.
    pub dynamic_tools: Vec<Value>,
    /// Selected capability roots, in their wire form.
    pub capability_roots: Vec<Value>,
    /// `enabled` is not written.
    pub memory_mode: Option<String>,
    /// How the history is kept.
    pub history_mode: HistoryMode,
    /// The prefix of another rollout that the history continues, with the ordinal of this header.
    pub history_base: Option<HistoryBase>,
    /// Records below this ordinal are context copied from a parent agent.
    pub subagent_history_start_ordinal: Option<u64>,
    /// `disabled`, `v1` or `v2`.
    pub multi_agent_version: Option<String>,
    /// Id of the first context window.
    pub initial_window_id: Option<String>,
    /// Git facts at this time.
    pub git: Option<GitInfo>,
    /// Further fields of the payload, as they are: those of newer releases.
    pub extra: Map<String, Value>,
}

impl NewHeader {
    /// The header as an item.
    #[must_use]
    pub fn item(&self) -> NewItem {
        let mut o = Map::new();
        let mut put = |key: &str, value: Value| {
            o.insert(key.to_owned(), value);
        };
        let id = |id: ThreadId| Value::String(id.to_string());
        put("session_id", id(self.session_id));
        put("id", id(self.thread_id));
        if let Some(from) = self.forked_from_id {
            put("forked_from_id", id(from));
        }
        if let (Some(_), Some(base)) = (self.forked_from_id, &self.history_base) {
            put("forked_from_ordinal_exclusive", base.end_ordinal_exclusive.into());
        }
        if let Some(parent) = self.parent_thread_id {
            put("parent_thread_id", id(parent));
        }
        put("timestamp", self.created_at.to_string().into());
        put("cwd", self.cwd.clone().into());
        put("originator", self.originator.clone().into());
        put("cli_version", self.cli_version.clone().into());
        put("source", self.source.clone());
        if let Some(source) = &self.thread_source {
            put("thread_source", source.clone().into());
        }
        let spawn = self.source.get("subagent").and_then(|s| s.get("thread_spawn"));
        for key in ["agent_nickname", "agent_role", "agent_path"] {
            if let Some(text) = spawn.and_then(|s| s.get(key)).filter(|v| v.is_string()) {
                put(key, text.clone());
            }
        }
        put("model_provider", self.model_provider.clone().into());
        put("base_instructions", self.base_instructions.as_ref().map_or(Value::Null, |text| json!({ "text": text })));
        if !self.dynamic_tools.is_empty() {
            put("dynamic_tools", self.dynamic_tools.clone().into());
        }
        if !self.capability_roots.is_empty() {
            put("selected_capability_roots", self.capability_roots.clone().into());
        }
        if let Some(mode) = self.memory_mode.as_ref().filter(|m| *m != "enabled") {
            put("memory_mode", mode.clone().into());
        }
        let mode = if self.history_mode == HistoryMode::Paginated { "paginated" } else { "legacy" };
        put("history_mode", mode.into());
        if let Some(base) = &self.history_base {
            put("history_base", base.to_json());
        }
        if let Some(start) = self.subagent_history_start_ordinal {
            put("subagent_history_start_ordinal", start.into());
        }
        if let Some(version) = &self.multi_agent_version {
            put("multi_agent_version", version.clone().into());
        }
        if let Some(window) = &self.initial_window_id {
            put("context_window", json!({ "window_id": window }));
        }
        if let Some(git) = &self.git {
            put("git", git_json(git));
        }
        for (key, value) in &self.extra {
            o.entry(key.clone()).or_insert_with(|| value.clone());
        }
        NewItem::own("session_meta", &Value::Object(o))
    }
}

/// The header of another rollout of a thread, which goes on behind `base`: what its latest header says, byte for byte
/// and in its order, but for the time and the base. `None` where `record` is no header.
#[must_use]
pub fn continued_header(record: &[u8], base: &HistoryBase, at: UtcMillis) -> Option<NewItem> {
    let envelope = Envelope::parse(record).filter(|e| e.kind == Kind::SessionMeta)?;
    let Fields(mut fields) = serde_json::from_str(envelope.payload).ok()?;
    let raw = |value: Value| RawValue::from_string(value.to_string()).ok();
    let (time, base) = (raw(at.to_string().into())?, raw(base.to_json())?);
    let of = |fields: &[(String, Box<RawValue>)], key: &str| fields.iter().position(|(k, _)| k == key);
    match of(&fields, "timestamp") {
        Some(i) => fields[i].1 = time,
        None => fields.push(("timestamp".into(), time)),
    }
    match (of(&fields, "history_base"), of(&fields, "history_mode")) {
        (Some(i), _) => fields[i].1 = base,
        // Where released writers have it.
        (None, Some(i)) => fields.insert(i + 1, ("history_base".into(), base)),
        (None, None) => fields.push(("history_base".into(), base)),
    }
    let text = fields.iter().map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), value.get()));
    NewItem::from_json("session_meta", &format!("{{{}}}", text.collect::<Vec<_>>().join(","))).ok()
}

/// The fields of an object in their order, each in its own bytes; of a field that stands twice the last one counts.
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields: Vec<(String, Box<RawValue>)> = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    match fields.iter_mut().find(|(k, _)| *k == key) {
                        Some(field) => field.1 = value,
                        None => fields.push((key, value)),
                    }
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(Object)
    }
}

/// Git facts as a header holds them.
#[must_use]
pub fn git_json(git: &GitInfo) -> Value {
    let facts = [("commit_hash", &git.sha), ("branch", &git.branch), ("repository_url", &git.origin_url)];
    facts.into_iter().filter_map(|(k, v)| Some((k.to_owned(), v.clone()?.into()))).collect::<Map<_, _>>().into()
}

impl HistoryBase {
    /// The wire form.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({"thread_id": self.thread_id, "end_ordinal_exclusive": self.end_ordinal_exclusive,
            "end_byte_offset": self.end_byte_offset})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SessionMeta;

    #[test]
    fn a_continued_header_says_the_same_but_for_time_and_base() {
        let id = ThreadId::parse("01990000-0000-7000-8000-000000000001").unwrap();
        let base = HistoryBase { thread_id: id, end_ordinal_exclusive: 14, end_byte_offset: 35_249 };
        let at = UtcMillis(1_700_000_000_123);
        let cases = [
            (
                r#"{"id":"x", "timestamp" : "t","n":1.50e+01,"u":"\u00e9\/","history_mode":"paginated","of_tomorrow":{"b":1e400,"a":2}}"#,
                r#"{"id":"x","timestamp":"2023-11-14T22:13:20.123Z","n":1.50e+01,"u":"\u00e9\/","history_mode":"paginated","history_base":BASE,"of_tomorrow":{"b":1e400,"a":2}}"#,
            ),
            (
                r#"{"history_base":{"thread_id":"y","end_ordinal_exclusive":3,"end_byte_offset":9},"id":"x","id":"z"}"#,
                r#"{"history_base":BASE,"id":"z","timestamp":"2023-11-14T22:13:20.123Z"}"#,
            ),
        ];
        for (payload, want) in cases {
            let record = format!("{{\"timestamp\":\"t\",\"type\":\"session_meta\",\"payload\":{payload}}}");
            let item = continued_header(record.as_bytes(), &base, at).unwrap();
            let want = want.replace("BASE", &base.to_json().to_string());
            assert_eq!((item.type_name(), item.payload()), ("session_meta", want.as_str()));
        }
        let other = br#"{"timestamp":"t","type":"event_msg","payload":{"type":"x"}}"#;
        assert!(continued_header(other, &base, at).is_none() && continued_header(b"no", &base, at).is_none());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let id = |n: u8| ThreadId::parse(&format!("01990000-0000-7000-8000-0000000000{n:02}")).unwrap();
        let root =
            json!({"id": "r", "location": {"type": "environment", "environmentId": "w", "path": "file:///r"}, "x": 1});
        let header = NewHeader {
            session_id: id(1),
            thread_id: id(2),
            forked_from_id: Some(id(3)),
            parent_thread_id: Some(id(1)),
            created_at: UtcMillis(1_700_000_000_123),
            cwd: "/w".into(),
            originator: "o".into(),
            cli_version: "1".into(),
            source: json!({"subagent": {"thread_spawn": {"parent_thread_id": id(1), "depth": 1, "agent_path": null,
                "agent_nickname": "Ada", "agent_role": "scout"}}}),
            thread_source: Some("subagent".into()),
            model_provider: None,
            base_instructions: Some("be\nkind".into()),
            dynamic_tools: vec![json!({"type": "function", "name": "f"})],
            capability_roots: vec![root.clone()],
            memory_mode: Some("disabled".into()),
            history_mode: HistoryMode::Paginated,
            history_base: Some(HistoryBase { thread_id: id(3), end_ordinal_exclusive: 9, end_byte_offset: 77 }),
            subagent_history_start_ordinal: Some(4),
            multi_agent_version: Some("v1".into()),
            initial_window_id: Some("w1".into()),
            git: Some(GitInfo { sha: Some("s".into()), branch: None, origin_url: Some("u".into()) }),
            extra: Map::from_iter([("creator_user_id".to_owned(), json!("c")), ("id".to_owned(), json!("no"))]),
        };
        let record = header.item().record(UtcMillis(1_700_000_000_200), Some(9));
        let meta = SessionMeta::parse(&record).unwrap();
        assert_eq!((meta.id, meta.session_id, meta.parent()), (Some(id(2)), Some(id(1)), Some(id(1))));
        assert_eq!((meta.forked_from_id, meta.created_at), (Some(id(3)), Some(header.created_at)));
        assert_eq!((meta.ordinal, meta.history_base.as_ref()), (Some(9), header.history_base.as_ref()));
        assert_eq!((meta.capability_roots, meta.git), (vec![root], header.git.clone()));
        assert_eq!((meta.agent_nickname.as_deref(), meta.agent_role.as_deref()), (Some("Ada"), Some("scout")));
        assert_eq!((meta.history_mode, meta.model_provider), (Some(HistoryMode::Paginated), None));
        let payload: Value = serde_json::from_str(header.item().payload()).unwrap();
        assert_eq!(payload["forked_from_ordinal_exclusive"], 9);
        assert_eq!((&payload["creator_user_id"], &payload["model_provider"]), (&json!("c"), &Value::Null));
        assert_eq!(payload["context_window"], json!({"window_id": "w1"}));
        assert_eq!(payload["id"], json!(id(2)), "extra fields never replace known ones");
    }
}
