//! Names of rollout files, parsed exactly (`thread-store.md` section 2).

use std::path::{Path, PathBuf};

use threadkeep_record::ThreadId;

/// How a file holds its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// One record a line.
    Plain,
    /// The same, in one or more zstd frames.
    Zstd,
    /// One JSON object with all items (the TypeScript command).
    Json,
}

impl Form {
    /// How a file name of this form ends.
    #[must_use]
    pub fn ending(self) -> &'static str {
        match self {
            Self::Plain => ".jsonl",
            Self::Zstd => ".jsonl.zst",
            Self::Json => ".json",
        }
    }
}

/// A parsed rollout name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RolloutName {
    /// The thread.
    pub id: Option<ThreadId>,
    /// The segment, for later rollouts of the same thread.
    pub segment: Option<ThreadId>,
    /// How the records are held.
    pub form: Form,
    /// The time in the name, as text (`2026-11-30T12-27-18`, the writer's local time).
    pub stamp: Option<[u8; 19]>,
    /// Whether the name is spelt as Codex spells it. Others (` (1)` of a copy) are read and never preferred.
    pub canonical: bool,
}

impl RolloutName {
    /// Parses a file name; `None` for anything that is not a rollout. A rollout begins with `rollout-` and ends with
    /// `.jsonl`, `.jsonl.zst` or `.json`; its id is the UUID after the time, or else the last UUID in the name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix("rollout-")?;
        let (stem, form) = if let Some(s) = rest.strip_suffix(".jsonl") {
            (s, Form::Plain)
        } else if let Some(s) = rest.strip_suffix(".jsonl.zst") {
            (s, Form::Zstd)
        } else {
            (rest.strip_suffix(".json")?, Form::Json)
        };
        let stamp_len = if form == Form::Json && !is_stamp(stem.get(..19).unwrap_or("")) { 10 } else { 19 };
        if let (Some(stamp), Some(tail)) = (stem.get(..stamp_len), stem.get(stamp_len + 1..))
            && stem.as_bytes()[stamp_len] == b'-'
            && (is_stamp(stamp) || stamp_len == 10 && is_date(stamp))
        {
            let stamp = stamp.as_bytes().try_into().ok();
            if let Ok(id) = ThreadId::parse(tail) {
                return Some(Self { id: Some(id), segment: None, form, stamp, canonical: true });
            }
            if tail.len() == 73
                && tail.as_bytes()[36] == b'_'
                && let (Some(Ok(id)), Some(Ok(segment))) =
                    (tail.get(..36).map(ThreadId::parse), tail.get(37..).map(ThreadId::parse))
            {
                return Some(Self { id: Some(id), segment: Some(segment), form, stamp, canonical: true });
            }
        }
        Some(Self { id: last_uuid(stem), segment: None, form, stamp: None, canonical: false })
    }

    /// The file name that says this; `None` where no such name was read (no time, no id).
    #[must_use]
    pub fn file_name(&self) -> Option<String> {
        let mut text = String::with_capacity(112);
        self.push_to(&mut text).then_some(text)
    }

    /// Appends the file name to a text, if there is one.
    fn push_to(&self, text: &mut String) -> bool {
        let stamp = self.stamp.as_ref().and_then(|s| std::str::from_utf8(s).ok());
        let (Some(stamp), Some(id)) = (stamp, self.id) else { return false };
        text.push_str("rollout-");
        text.push_str(stamp);
        text.push('-');
        id.push_to(text);
        if let Some(segment) = self.segment {
            text.push('_');
            segment.push_to(text);
        }
        text.push_str(self.form.ending());
        true
    }

    /// The path of the file of this name in a folder of a home.
    pub(crate) fn path_below(&self, home: &Path, folder: &Path) -> PathBuf {
        let mut path = PathBuf::with_capacity(home.as_os_str().len() + folder.as_os_str().len() + 120);
        path.push(home);
        path.push(folder);
        path.push(self.file_name().unwrap_or_default());
        path
    }

    /// Whether [`file_name`](Self::file_name) spells exactly `name`, from which this was parsed.
    #[must_use]
    pub fn is_spelt(&self, name: &[u8]) -> bool {
        // An id reads in either case and is written in lower case; the letters before it are the prefix and the `T`.
        self.canonical && self.stamp.is_some() && !name[27.min(name.len())..].iter().any(u8::is_ascii_uppercase)
    }

    /// Whether a name may be a rollout's, from its beginning and end alone: what a walk asks of every entry.
    #[must_use]
    pub fn may_be(name: &[u8]) -> bool {
        name.starts_with(b"rollout-")
            && (name.ends_with(b".jsonl") || name.ends_with(b".jsonl.zst") || name.ends_with(b".json"))
    }
}

/// Whether a text has the form of a name's time. The numbers may be out of range (such names exist and are read).
fn is_stamp(s: &str) -> bool {
    s.len() == 19
        && s.bytes().enumerate().all(|(i, b)| match i {
            4 | 7 | 13 | 16 => b == b'-',
            10 => b == b'T',
            _ => b.is_ascii_digit(),
        })
}

fn is_date(s: &str) -> bool {
    s.len() == 10 && s.bytes().enumerate().all(|(i, b)| if i == 4 || i == 7 { b == b'-' } else { b.is_ascii_digit() })
}

fn last_uuid(stem: &str) -> Option<ThreadId> {
    let last = stem.len().checked_sub(36)?;
    (0..=last).rev().find_map(|i| ThreadId::parse(stem.get(i..i + 36)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01990000-0000-7000-8000-000000000001";

    fn parse(name: String) -> Option<(bool, bool, Form, bool)> {
        RolloutName::parse(&name).map(|n| (n.id.is_some(), n.segment.is_some(), n.form, n.canonical))
    }

    #[test]
    fn names_that_exist() {
        assert_eq!(parse(format!("rollout-2026-11-30T12-27-18-{ID}.jsonl")), Some((true, false, Form::Plain, true)));
        assert_eq!(parse(format!("rollout-2026-11-30T12-27-18-{ID}.jsonl.zst")), Some((true, false, Form::Zstd, true)));
        assert_eq!(
            parse(format!("rollout-2026-11-30T12-27-18-{ID}_{ID}.jsonl")),
            Some((true, true, Form::Plain, true))
        );
        assert_eq!(parse(format!("rollout-2025-08-01-{ID}.json")), Some((true, false, Form::Json, true)));
        assert_eq!(parse(format!("rollout-2026-13-45T99-00-00-{ID}.jsonl")), Some((true, false, Form::Plain, true)));
        assert_eq!(
            parse(format!("rollout-2026-11-30T12-27-18-{ID} (1).jsonl")),
            Some((true, false, Form::Plain, false))
        );
        assert_eq!(parse("rollout-2026-11-30T12-27-18-x.jsonl".into()), Some((false, false, Form::Plain, false)));
    }

    #[test]
    fn names_are_spelt_again_as_they_were() {
        let upper = ID.to_uppercase().replace('0', "A");
        for name in [
            format!("rollout-2026-11-30T12-27-18-{ID}.jsonl"),
            format!("rollout-2026-11-30T12-27-18-{ID}_{ID}.jsonl.zst"),
            format!("rollout-2026-13-45T99-00-00-{ID}.json"),
            format!("rollout-2025-08-01-{ID}.json"),
            format!("rollout-2026-11-30T12-27-18-{upper}.jsonl"),
            format!("rollout-2026-11-30T12-27-18-{ID} (1).jsonl"),
        ] {
            let parsed = RolloutName::parse(&name).unwrap();
            let spelt = parsed.is_spelt(name.as_bytes());
            assert_eq!(spelt, parsed.file_name().as_deref() == Some(&*name), "{name}");
        }
    }

    #[test]
    fn names_that_are_something_else() {
        for name in [
            format!("foo-{ID}.jsonl"),
            "rollout-compress-1.tmp".into(),
            format!("rollout-2026-11-30T12-27-18-{ID}.jsonl.decompress.1.2.tmp"),
            format!("{ID}.jsonl"),
            "session_index.jsonl".into(),
        ] {
            assert_eq!(parse(name.clone()), None, "{name}");
        }
    }

    #[test]
    fn odd_texts_do_not_panic() {
        for name in [
            "rollout-é.jsonl",
            "rollout-.jsonl",
            "rollout-2026-11-30T12-27-1é-.jsonl",
            "rollout-日本語日本語日本語日本語日本語日本語日本語日本語日本語.json",
        ] {
            let _ = RolloutName::parse(name);
        }
    }
}
