//! What each record says about its thread's metadata (`thread-store.md` 3.3): the rules by which a live thread observes
//! what is appended, and by which the same is derived again from a file.

use serde_json::Value;

use crate::item::{ItemBody, text_of};
use crate::patch::{Field, GitPatch, MetadataPatch};
use crate::preview::{message_preview, strip_request_prefix};
use crate::{Item, Kind, ThreadId, TokenUsage, UtcMillis};

/// Observes the records of one thread in order. What is only set once (first message, preview, title, directory) is
/// remembered here.
#[derive(Debug, Clone)]
pub struct Observer {
    thread: ThreadId,
    has_preview: bool,
    has_first_message: bool,
    has_cwd: bool,
}

/// What was known before observing began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// A preview is there.
    pub preview: Fact,
    /// A first message is there.
    pub first_message: Fact,
    /// A directory is there.
    pub cwd: Fact,
}

/// Whether a fact is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fact {
    /// It is not.
    #[default]
    No,
    /// It is.
    Yes,
}

impl Observer {
    /// An observer of a thread.
    #[must_use]
    pub fn new(thread: ThreadId, known: Known) -> Self {
        Self {
            thread,
            has_preview: known.preview == Fact::Yes,
            has_first_message: known.first_message == Fact::Yes,
            has_cwd: known.cwd == Fact::Yes,
        }
    }

    /// Whether records of a kind can say anything, so that the payloads of others need not be read.
    #[must_use]
    pub fn listens_to(kind: Kind) -> bool {
        matches!(kind, Kind::SessionMeta | Kind::BareMeta | Kind::TurnContext | Kind::EventMsg)
    }

    /// What a record says of the thread, without the time of its writing: the caller adds that
    /// ([`MetadataPatch::touch`]), since only output moves it. `time` is when the record was written.
    pub fn observe(&mut self, kind: Kind, payload: &Value, time: UtcMillis) -> MetadataPatch {
        match kind {
            Kind::SessionMeta | Kind::BareMeta => self.header(payload),
            Kind::TurnContext => self.settings(payload, Directory::OnlyFirst),
            Kind::EventMsg => self.event(payload, time),
            Kind::ResponseItem
            | Kind::InterAgent
            | Kind::InterAgentMetadata
            | Kind::Compacted
            | Kind::WorldState
            | Kind::TokenUsageRecord
            | Kind::BareState
            | Kind::BareItem
            | Kind::Other => MetadataPatch::default(),
        }
    }

    fn event(&mut self, payload: &Value, time: UtcMillis) -> MetadataPatch {
        let mut patch = MetadataPatch::default();
        match text_of(payload, "type").unwrap_or("") {
            "task_started" | "turn_started" => patch.advance_recency_at = Some(time),
            "user_message" | "item_completed" => {
                if let ItemBody::UserMessage { text, images } =
                    Item::from_value(Kind::EventMsg, "event_msg", payload).body
                {
                    return self.message(&text, !images.is_empty());
                }
            }
            "token_count" => patch.token_usage = TokenUsage::from_token_count(payload),
            "thread_goal_updated" => {
                let objective = payload.get("goal").and_then(|g| text_of(g, "objective")).unwrap_or("").trim();
                if !self.has_preview && !objective.is_empty() {
                    self.has_preview = true;
                    patch.preview = Some(objective.to_owned());
                }
            }
            "thread_settings_applied" => {
                if let Some(settings) = payload.get("thread_settings") {
                    return self.settings(settings, Directory::Always);
                }
            }
            _ => {}
        }
        patch
    }

    fn message(&mut self, text: &str, has_images: bool) -> MetadataPatch {
        let mut patch = MetadataPatch::default();
        if !self.has_preview
            && let Some(preview) = message_preview(text, has_images)
        {
            self.has_preview = true;
            patch.preview = Some(preview.to_owned());
        }
        let own = strip_request_prefix(text);
        if !self.has_first_message && !own.is_empty() {
            self.has_first_message = true;
            patch.first_user_message = Some(own.to_owned());
            patch.title = Some(own.to_owned());
        }
        patch
    }

    fn settings(&mut self, v: &Value, directory: Directory) -> MetadataPatch {
        let text = |key: &str| text_of(v, key).filter(|s| !s.is_empty()).map(str::to_owned);
        let there = |key: &str| v.get(key).filter(|v| !v.is_null()).cloned();
        let effort = ["effort", "reasoning_effort"].iter().find_map(|k| v.get(*k));
        let mut patch = MetadataPatch {
            model: text("model"),
            model_provider: text("model_provider_id"),
            // Settings tell the whole state: an effort that they do not have is none.
            reasoning_effort: effort.and_then(Value::as_str).map(str::to_owned).into(),
            approval_mode: there("approval_policy"),
            permission_profile: there("permission_profile").or_else(|| there("sandbox_policy")),
            ..MetadataPatch::default()
        };
        if directory == Directory::Always || !self.has_cwd {
            patch.cwd = text("cwd");
            self.has_cwd |= patch.cwd.is_some();
        }
        patch
    }

    fn header(&mut self, v: &Value) -> MetadataPatch {
        let text = |key: &str| text_of(v, key).filter(|s| !s.is_empty()).map(str::to_owned);
        // The header of another thread came with a fork's copied history.
        if text_of(v, "id").and_then(|id| ThreadId::parse(id).ok()) != Some(self.thread) {
            return MetadataPatch::default();
        }
        let some = |key: &str| text(key).map_or(Field::Keep, Field::Set);
        let git = v.get("git");
        // Git facts come together: one that a header with others does not have is none.
        let fact = |key: &str| {
            git.filter(|g| g.is_object()).map_or(Field::Keep, |g| text_of(g, key).map(str::to_owned).into())
        };
        let cwd = text("cwd");
        self.has_cwd |= cwd.is_some();
        MetadataPatch {
            created_at: text("timestamp").as_deref().and_then(UtcMillis::parse),
            source: v.get("source").filter(|s| !s.is_null()).cloned(),
            thread_source: some("thread_source"),
            agent_nickname: some("agent_nickname"),
            agent_role: text("agent_role").or_else(|| text("agent_type")).map_or(Field::Keep, Field::Set),
            agent_path: some("agent_path"),
            model_provider: text("model_provider"),
            cli_version: text("cli_version"),
            cwd,
            memory_mode: text("memory_mode"),
            git: GitPatch { sha: fact("commit_hash"), branch: fact("branch"), origin_url: fact("repository_url") },
            ..MetadataPatch::default()
        }
    }
}

/// Whether settings replace a directory that is known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Directory {
    /// Only where none is known: a turn's context.
    OnlyFirst,
    /// Always: settings of the thread itself.
    Always,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "01990000-0000-7000-8000-000000000001";

    fn observer() -> Observer {
        Observer::new(ThreadId::parse(ID).unwrap(), Known::default())
    }

    fn see(o: &mut Observer, kind: Kind, payload: Value) -> MetadataPatch {
        o.observe(kind, &payload, UtcMillis(7))
    }

    fn user(text: &str) -> Value {
        json!({"type": "user_message", "message": text, "images": []})
    }

    #[test]
    fn a_message_is_first_only_once() {
        let mut o = observer();
        let patch = see(&mut o, Kind::EventMsg, user("first"));
        assert_eq!((patch.preview.as_deref(), patch.title.as_deref()), (Some("first"), Some("first")));
        assert_eq!(see(&mut o, Kind::EventMsg, user("later")), MetadataPatch::default());
    }

    #[test]
    fn a_completed_message_item_counts_as_one() {
        let item = json!({"type": "item_completed", "thread_id": ID, "turn_id": "t",
            "item": {"type": "UserMessage", "id": "i", "content": [{"type": "text", "text": "hi"}]}});
        assert_eq!(see(&mut observer(), Kind::EventMsg, item).first_user_message.as_deref(), Some("hi"));
    }

    #[test]
    fn images_alone_and_blanks() {
        let images = json!({"type": "user_message", "message": " ", "images": ["data:image/png;base64,AA=="]});
        let mut o = observer();
        let patch = see(&mut o, Kind::EventMsg, images);
        assert_eq!((patch.preview.as_deref(), patch.first_user_message), (Some("[Image]"), None));
        assert_eq!(see(&mut o, Kind::EventMsg, user(" ")), MetadataPatch::default());
        let patch = see(&mut o, Kind::EventMsg, user("text"));
        assert_eq!((patch.preview, patch.first_user_message.as_deref()), (None, Some("text")));
    }

    #[test]
    fn a_goal_is_a_preview_only_where_there_is_none() {
        let goal = json!({"type": "thread_goal_updated", "threadId": ID, "goal": {"objective": "win"}});
        let mut o = observer();
        assert_eq!(see(&mut o, Kind::EventMsg, goal.clone()).preview.as_deref(), Some("win"));
        let patch = see(&mut o, Kind::EventMsg, user("hello"));
        assert_eq!((patch.preview, patch.title.as_deref()), (None, Some("hello")));
        let mut o = observer();
        see(&mut o, Kind::EventMsg, user("hello"));
        assert_eq!(see(&mut o, Kind::EventMsg, goal), MetadataPatch::default());
    }

    #[test]
    fn settings_of_a_turn_and_of_the_thread() {
        let mut o = observer();
        see(&mut o, Kind::SessionMeta, json!({"id": ID, "cwd": "/own"}));
        let turn = json!({"cwd": "/turn", "model": "m", "effort": "high", "approval_policy": "never"});
        let patch = see(&mut o, Kind::TurnContext, turn);
        assert_eq!((patch.cwd, patch.model.as_deref()), (None, Some("m")));
        assert_eq!(patch.reasoning_effort, Field::Set("high".into()));
        let applied = json!({"type": "thread_settings_applied", "thread_settings":
            {"cwd": "/new", "model": "n", "model_provider_id": "p", "permission_profile": {"type": "disabled"}}});
        let patch = see(&mut o, Kind::EventMsg, applied);
        assert_eq!((patch.cwd.as_deref(), patch.model_provider.as_deref()), (Some("/new"), Some("p")));
        assert_eq!(patch.reasoning_effort, Field::Clear);
        let mut o = observer();
        assert_eq!(see(&mut o, Kind::TurnContext, json!({"cwd": "/t", "model": "m"})).cwd.as_deref(), Some("/t"));
    }

    #[test]
    fn a_foreign_header_says_nothing() {
        let other = json!({"id": "01990000-0000-7000-8000-000000000002", "cwd": "/x", "cli_version": "9"});
        assert_eq!(see(&mut observer(), Kind::SessionMeta, other), MetadataPatch::default());
    }

    #[test]
    fn output_of_the_model_is_only_output() {
        for kind in [Kind::ResponseItem, Kind::Compacted, Kind::WorldState, Kind::InterAgent] {
            let said = json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]});
            assert_eq!(see(&mut observer(), kind, said), MetadataPatch::default());
        }
        let started = see(&mut observer(), Kind::EventMsg, json!({"type": "task_started", "turn_id": "t"}));
        assert_eq!(started.advance_recency_at, Some(UtcMillis(7)));
    }
}
