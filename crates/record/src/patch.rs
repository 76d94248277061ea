//! What is known of a thread beside its history, and changes of it: patches whose fields may be left, cleared or set
//! (`thread-store.md` 3.2, 6.8).

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{TokenUsage, UtcMillis};

/// A field of a patch that can also be cleared. In JSON: not there, `null`, or a value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Field<T> {
    /// Stays as it is.
    #[default]
    Keep,
    /// Is taken away.
    Clear,
    /// Gets this value.
    Set(T),
}

impl<T> Field<T> {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_keep(&self) -> bool {
        matches!(self, Self::Keep)
    }

    /// Applies it to a value.
    pub fn apply(self, to: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Clear => *to = None,
            Self::Set(value) => *to = Some(value),
        }
    }

    /// Takes over a later change of the same field.
    pub fn merge(&mut self, later: Self) {
        if !later.is_keep() {
            *self = later;
        }
    }

    /// The value it sets, if it does.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Set(value) => Some(value),
            Self::Keep | Self::Clear => None,
        }
    }
}

impl<T> From<Option<T>> for Field<T> {
    /// `None` clears.
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Clear, Self::Set)
    }
}

impl<T: Serialize> Serialize for Field<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(to)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::<T>::deserialize(from).map(Self::from)
    }
}

/// A change of git facts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GitPatch {
    /// Commit hash.
    #[serde(skip_serializing_if = "Field::is_keep")]
    pub sha: Field<String>,
    /// Branch name.
    #[serde(skip_serializing_if = "Field::is_keep")]
    pub branch: Field<String>,
    /// URL of the remote.
    #[serde(skip_serializing_if = "Field::is_keep")]
    pub origin_url: Field<String>,
}

impl GitPatch {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sha.is_keep() && self.branch.is_keep() && self.origin_url.is_keep()
    }
}

macro_rules! metadata {
    ($( $(#[$doc:meta])* $kind:ident $name:ident : $type:ty, )*) => {
        /// A change of a thread's metadata. A later patch replaces what it has.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct MetadataPatch {
            $( $(#[$doc])* #[serde(skip_serializing_if = "skip")] pub $name: metadata!(@patch $kind $type), )*
            /// Git facts.
            #[serde(rename = "git_info", skip_serializing_if = "GitPatch::is_empty")]
            pub git: GitPatch,
            /// A turn started at this time: the recency moves there, or just behind where it is.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub advance_recency_at: Option<UtcMillis>,
        }

        /// What is known of a thread beside its history.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct ThreadMetadata {
            $( $(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<$type>, )*
            /// Commit hash.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub git_sha: Option<String>,
            /// Branch name.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub git_branch: Option<String>,
            /// URL of the remote.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub git_origin_url: Option<String>,
            /// Start of the last turn.
            #[serde(skip_serializing_if = "Option::is_none")]
            pub recency_at: Option<UtcMillis>,
        }

        impl MetadataPatch {
            /// Takes over a later patch: what it has replaces what is here.
            pub fn merge(&mut self, later: Self) {
                $( metadata!(@merge $kind self.$name, later.$name); )*
                self.git.sha.merge(later.git.sha);
                self.git.branch.merge(later.git.branch);
                self.git.origin_url.merge(later.git.origin_url);
                self.advance_recency_at = later.advance_recency_at.max(self.advance_recency_at);
            }
        }

        impl ThreadMetadata {
            /// Applies a patch.
            pub fn apply(&mut self, patch: MetadataPatch) {
                $( metadata!(@apply $kind self.$name, patch.$name); )*
                patch.git.sha.apply(&mut self.git_sha);
                patch.git.branch.apply(&mut self.git_branch);
                patch.git.origin_url.apply(&mut self.git_origin_url);
                if let Some(at) = patch.advance_recency_at {
                    let behind = self.recency_at.map(|r| UtcMillis(r.0.saturating_add(1)));
                    self.recency_at = Some(at).max(behind);
                }
            }
        }
    };
    (@patch clearable $type:ty) => { Field<$type> };
    (@patch plain $type:ty) => { Option<$type> };
    (@merge clearable $to:expr, $from:expr) => { $to.merge($from) };
    (@merge plain $to:expr, $from:expr) => { if $from.is_some() { $to = $from } };
    (@apply clearable $to:expr, $from:expr) => { $from.apply(&mut $to) };
    (@apply plain $to:expr, $from:expr) => { if $from.is_some() { $to = $from } };
}

metadata! {
    /// The name that a person gave.
    clearable name: String,
    /// Reasoning effort of the model.
    clearable reasoning_effort: String,
    /// `thread_source`: what kind of work started the thread.
    clearable thread_source: String,
    /// Name of a spawned agent.
    clearable agent_nickname: String,
    /// Role of a spawned agent.
    clearable agent_role: String,
    /// Path of a spawned agent.
    clearable agent_path: String,
    /// Its rollout, as a path.
    plain rollout_path: String,
    /// What stands for it in a list.
    plain preview: String,
    /// Title: the first message, or in older releases a name.
    plain title: String,
    /// Model provider.
    plain model_provider: String,
    /// Model.
    plain model: String,
    /// When it was created.
    plain created_at: UtcMillis,
    /// Last output.
    plain updated_at: UtcMillis,
    /// `source` as in the header.
    plain source: Value,
    /// Working directory.
    plain cwd: String,
    /// Version text of the writer.
    plain cli_version: String,
    /// Approval policy, as in a turn's settings.
    plain approval_mode: Value,
    /// Permission profile or sandbox policy, as in a turn's settings.
    plain permission_profile: Value,
    /// Tokens used in all.
    plain token_usage: TokenUsage,
    /// The first message of a person with text.
    plain first_user_message: String,
    /// `enabled` or `disabled`.
    plain memory_mode: String,
}

/// Whether a field of a patch is left out when it is written.
fn skip<T: Skip>(field: &T) -> bool {
    field.skip()
}

trait Skip {
    fn skip(&self) -> bool;
}

impl<T> Skip for Field<T> {
    fn skip(&self) -> bool {
        self.is_keep()
    }
}

impl<T> Skip for Option<T> {
    fn skip(&self) -> bool {
        self.is_none()
    }
}

/// What a patch is, which decides where it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// It changes nothing.
    Empty,
    /// It says only that there was output.
    Touch,
    /// Facts derived from the history: whoever loses them can derive them again.
    Observed,
    /// What a person or program decided: a name, memory mode, git facts and nothing derived.
    Explicit,
}

impl MetadataPatch {
    /// What kind of patch it is (`thread-store.md` 6.8).
    #[must_use]
    pub fn kind(&self) -> PatchKind {
        if *self == Self::default() {
            return PatchKind::Empty;
        }
        if *self == (Self { updated_at: self.updated_at, ..Self::default() }) {
            return PatchKind::Touch;
        }
        let decided = Self {
            name: self.name.clone(),
            memory_mode: self.memory_mode.clone(),
            git: self.git.clone(),
            ..Self::default()
        };
        if *self == decided { PatchKind::Explicit } else { PatchKind::Observed }
    }

    /// Only the time of the last output.
    #[must_use]
    pub fn touch(at: UtcMillis) -> Self {
        Self { updated_at: Some(at), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_tell_left_cleared_and_set_apart_in_json() {
        let all = json!({"name": null, "agent_role": "r", "git_info": {"sha": null, "branch": "b"}, "preview": "p"});
        let patch: MetadataPatch = serde_json::from_value(all.clone()).unwrap();
        assert_eq!(patch.name, Field::Clear);
        assert_eq!(patch.reasoning_effort, Field::Keep);
        assert_eq!(patch.agent_role, Field::Set("r".into()));
        assert_eq!(patch.git.sha, Field::Clear);
        assert_eq!(patch.git.origin_url, Field::Keep);
        assert_eq!(serde_json::to_value(&patch).unwrap(), all);
        assert_eq!(serde_json::from_value::<MetadataPatch>(json!({})).unwrap(), MetadataPatch::default());
    }

    #[test]
    fn a_later_patch_replaces_only_what_it_has() {
        let set = |name: &str| Field::Set(name.to_owned());
        let mut patch = MetadataPatch { name: set("a"), preview: Some("p".into()), ..MetadataPatch::default() };
        patch.merge(MetadataPatch { name: Field::Clear, agent_role: set("r"), ..MetadataPatch::default() });
        assert_eq!((&patch.name, &patch.agent_role, patch.preview.as_deref()), (&Field::Clear, &set("r"), Some("p")));
        let mut known = ThreadMetadata { name: Some("old".into()), ..ThreadMetadata::default() };
        known.apply(patch);
        assert_eq!((known.name, known.agent_role, known.preview), (None, Some("r".into()), Some("p".into())));
    }

    #[test]
    fn recency_only_goes_forwards() {
        let mut known = ThreadMetadata::default();
        for (at, want) in [(5, 5), (3, 6), (6, 7), (100, 100)] {
            known.apply(MetadataPatch { advance_recency_at: Some(UtcMillis(at)), ..MetadataPatch::default() });
            assert_eq!(known.recency_at, Some(UtcMillis(want)));
        }
    }

    #[test]
    fn kinds() {
        let git = GitPatch { sha: Field::Clear, ..GitPatch::default() };
        for (patch, kind) in [
            (MetadataPatch::default(), PatchKind::Empty),
            (MetadataPatch::touch(UtcMillis(1)), PatchKind::Touch),
            (MetadataPatch { name: Field::Clear, ..MetadataPatch::default() }, PatchKind::Explicit),
            (MetadataPatch { git: git.clone(), ..MetadataPatch::default() }, PatchKind::Explicit),
            (MetadataPatch { git, model: Some("m".into()), ..MetadataPatch::default() }, PatchKind::Observed),
            (MetadataPatch { preview: Some("p".into()), ..MetadataPatch::default() }, PatchKind::Observed),
        ] {
            assert_eq!(patch.kind(), kind, "{patch:?}");
        }
    }
}
