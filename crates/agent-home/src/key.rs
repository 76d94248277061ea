//! Which conversation a store belongs to, and the name of its folder.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a conversation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationKind {
    /// An issue.
    Issue,
    /// A chat.
    Chat,
    /// A quick request, which ends when something else is made of it: a resume takes its store over.
    Quick,
    /// A run that nobody asked for by hand.
    Autopilot,
}

impl ConversationKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Issue, Self::Chat, Self::Quick, Self::Autopilot];

    /// Its word, in names of folders and in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Issue => "issue",
            Self::Chat => "chat",
            Self::Quick => "quick",
            Self::Autopilot => "autopilot",
        }
    }

    /// The kind of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.word() == word)
    }
}

/// The key of a store. Two keys that differ in anything have different stores.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StoreKey {
    /// The daemon's profile; empty is the default one.
    #[serde(default)]
    pub profile: String,
    /// The agent; empty where the caller names none.
    #[serde(default)]
    pub agent: String,
    /// What it is about.
    pub kind: ConversationKind,
    /// The id of that, any text but an empty one.
    pub id: String,
}

/// A segment that is spelt as it is has at most this many bytes; others carry a digest.
const VERBATIM: usize = 120;

/// As much of a name as a digest is shown with.
const SLUG: usize = 40;

impl StoreKey {
    /// The folder of all stores of a profile.
    #[must_use]
    pub fn namespace_of(profile: &str) -> String {
        segment("default", "p", profile)
    }

    /// The three folders: namespace, agent, conversation. Each is one segment of at most 255 bytes that every file
    /// system takes, and two keys share all three only if they are equal, also where case does not count.
    #[must_use]
    pub fn segments(&self) -> [String; 3] {
        [
            Self::namespace_of(&self.profile),
            segment("none", "a", &self.agent),
            // An empty id is refused before; it still has a name of its own.
            segment(self.kind.word(), self.kind.word(), &self.id),
        ]
    }

    /// The path below the folder of stores.
    #[must_use]
    pub fn path(&self) -> String {
        self.segments().join("/")
    }

    /// How a person reads it.
    #[must_use]
    pub fn shown(&self) -> String {
        let agent = if self.agent.is_empty() { String::new() } else { format!(" of agent {}", self.agent) };
        format!("{} {}{agent}", self.kind.word(), self.id)
    }

    /// Where the store of this key would be in `multica-sessions`, if its name there can mean nothing else. Names there
    /// drop characters (`agent-homes.md` 2.4), so only keys that lose none are looked for.
    #[must_use]
    pub fn multica_path(&self) -> Option<[String; 3]> {
        let plain = |text: &str| {
            !text.is_empty()
                && text.len() <= 200
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b))
        };
        let namespace = if self.profile.is_empty() {
            "default".to_owned()
        } else {
            format!("p_{}", hex(&Sha256::digest(self.profile.as_bytes())))
        };
        let agent = match self.agent.as_str() {
            "" => "_".to_owned(),
            "_" => return None,
            agent if plain(agent) => agent.to_owned(),
            _ => return None,
        };
        let conversation = match self.kind {
            _ if !plain(&self.id) => return None,
            ConversationKind::Issue if self.id.starts_with("chat_") => return None,
            ConversationKind::Issue => self.id.clone(),
            ConversationKind::Chat => format!("chat_{}", self.id),
            ConversationKind::Quick | ConversationKind::Autopilot => return None,
        };
        Some([namespace, agent, conversation])
    }
}

/// A text as a folder name: `empty` for an empty one, `prefix-text` where the text is short, lower-case and plain, and
/// else `prefix=slug=digest`. A plain text holds no `=`, so the three never meet.
fn segment(empty: &str, prefix: &str, text: &str) -> String {
    if text.is_empty() {
        return empty.to_owned();
    }
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    if text.len() <= VERBATIM && text.bytes().all(plain) {
        return format!("{prefix}-{text}");
    }
    let slug: String = text
        .chars()
        .map(|c| c.to_ascii_lowercase())
        .filter(|c| plain(u8::try_from(*c).unwrap_or(0)))
        .take(SLUG)
        .collect();
    format!("{prefix}={slug}={}", hex(&Sha256::digest(text.as_bytes())))
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The digest of some bytes, as text.
pub fn digest(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
