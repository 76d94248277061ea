//! Ids of threads as callers give them, and the names of the files that hold them.

use std::fmt;

use serde::Serialize;
use threadkeep_record::ThreadId;
use threadkeep_rollout::RolloutName;
use threadkeep_rollout::name::Form;

/// The id of a thread to resume: `[A-Za-z0-9-]{1,128}`. It is compared with what names and headers say; it never becomes
/// part of a pattern or a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ResumeId(String);

/// A text that is no such id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a thread id: {0:?} (letters, digits and dashes, 1 to 128 of them)")]
pub struct InvalidResumeId(pub String);

impl ResumeId {
    /// Checks the text. A UUID is kept in lower case.
    pub fn parse(text: &str) -> Result<Self, InvalidResumeId> {
        let fits = (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !fits {
            return Err(InvalidResumeId(text.chars().take(80).collect()));
        }
        Ok(Self(ThreadId::parse(text).map_or_else(|_| text.to_owned(), |id| id.to_string())))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As the id of a thread, if it is a UUID.
    #[must_use]
    pub fn thread(&self) -> Option<ThreadId> {
        ThreadId::parse(&self.0).ok()
    }
}

impl From<ThreadId> for ResumeId {
    fn from(id: ThreadId) -> Self {
        Self(id.to_string())
    }
}

impl fmt::Display for ResumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the name of a rollout says of its thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRollout {
    /// The thread.
    pub id: ResumeId,
    /// Its segment, for later rollouts of the thread.
    pub segment: Option<ThreadId>,
    /// How it holds its records: plain or zstd.
    pub form: Form,
}

impl NamedRollout {
    /// Parses a file name, exactly: `rollout-<time>-<id>[_<segment>].jsonl[.zst]`. Anything else (partial files, copies
    /// with ` (1)`, the JSON files of the TypeScript command) is not a rollout that Codex resumes.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        if !RolloutName::may_be(name.as_bytes()) {
            return None;
        }
        if let Some(RolloutName { id: Some(id), segment, form, stamp: Some(_), canonical: true }) =
            RolloutName::parse(name)
        {
            return (form != Form::Json).then(|| Self { id: id.into(), segment, form });
        }
        let (stem, form) = match name.strip_suffix(".jsonl") {
            Some(stem) => (stem, Form::Plain),
            None => (name.strip_suffix(".jsonl.zst")?, Form::Zstd),
        };
        let rest = stem.strip_prefix("rollout-")?;
        let (stamp, id) = (rest.get(..19)?, rest.get(19..)?.strip_prefix('-')?);
        let shape = stamp.bytes().enumerate().all(|(i, b)| match i {
            4 | 7 | 13 | 16 => b == b'-',
            10 => b == b'T',
            _ => b.is_ascii_digit(),
        });
        if !shape {
            return None;
        }
        Some(Self { id: ResumeId::parse(id).ok()?, segment: None, form })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_letters_digits_and_dashes() {
        for good in ["a", "01990000-0000-7000-8000-000000000001", "abc-DEF-9", &"x".repeat(128)] {
            assert!(ResumeId::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "*", "a/b", "../x", "a b", "a_b", "é", "a.b", "x/../../secret", "a\0b", "[a]", &"x".repeat(129)]
        {
            assert!(ResumeId::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_compared_whole() {
        let id = |name: &str| NamedRollout::parse(name).map(|n| n.id.0);
        let uuid = "01990000-0000-7000-8000-00000000000a";
        assert_eq!(id("rollout-2026-01-02T03-04-05-aaa-bbb.jsonl").as_deref(), Some("aaa-bbb"));
        assert_eq!(id(&format!("rollout-2026-01-02T03-04-05-{uuid}.jsonl.zst")).as_deref(), Some(uuid));
        assert_eq!(id(&format!("rollout-2026-01-02T03-04-05-{}.jsonl", uuid.to_uppercase())).as_deref(), Some(uuid));
        assert_eq!(id(&format!("rollout-2026-01-02T03-04-05-{uuid}_{uuid}.jsonl")).as_deref(), Some(uuid));
        for other in [
            format!("rollout-2026-01-02T03-04-05-{uuid}.jsonl.zst.partial"),
            format!("rollout-2026-01-02T03-04-05-{uuid} (1).jsonl"),
            format!("rollout-2026-01-02-{uuid}.json"),
            format!("rollout-{uuid}.jsonl"),
            "rollout-2026-01-02T03-04-05-a.b.jsonl".into(),
            "rollout-2026-01-02T03-04-05-.jsonl".into(),
            "rollout-2026-01-02T03-04-0é-a.jsonl".into(),
        ] {
            assert_eq!(id(&other), None, "{other}");
        }
    }
}
