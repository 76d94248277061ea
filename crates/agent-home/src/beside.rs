//! A store's rollout beside the person's of the same path: one file once, until something writes one of them anew (Codex
//! compresses and unpacks rollouts, people restore them), and then two that go on apart.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};

use threadkeep_rollout::name::Form;

use crate::dir::Dir;
use crate::find::Found;
use crate::id::NamedRollout;
use crate::platform::Kind;

/// So much of both ends is compared: a rollout may have gigabytes, and its records carry times and ordinals.
const PROBE: u64 = 64 << 10;

/// How two files of one rollout stand to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beside {
    /// They say the same.
    Same,
    /// The person's has what the store's has, and more behind it.
    PersonAhead,
    /// The store's has what the person's has, and more behind it.
    StoreAhead,
    /// Each has something that the other has not.
    Apart,
}

/// Compares two plain rollouts by both ends of what they have in common.
pub fn compare(store: &File, person: &File) -> io::Result<Beside> {
    let (ours, theirs) = (store.metadata()?.len(), person.metadata()?.len());
    let common = ours.min(theirs);
    let probe = common.min(PROBE);
    let same = part(store, 0, probe)? == part(person, 0, probe)?
        && part(store, common - probe, probe)? == part(person, common - probe, probe)?;
    Ok(match (same, ours.cmp(&theirs)) {
        (false, _) => Beside::Apart,
        (true, std::cmp::Ordering::Equal) => Beside::Same,
        (true, std::cmp::Ordering::Less) => Beside::PersonAhead,
        (true, std::cmp::Ordering::Greater) => Beside::StoreAhead,
    })
}

/// Whether a compressed rollout begins as a plain one does.
pub fn begins_alike(compressed: File, plain: &File) -> io::Result<bool> {
    let mut head = Vec::new();
    zstd::stream::read::Decoder::new(compressed)?.take(PROBE.min(plain.metadata()?.len())).read_to_end(&mut head)?;
    Ok(!head.is_empty() && part(plain, 0, head.len() as u64)? == head)
}

fn part(file: &File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut file = file;
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The person's plain file at the path that a store's file has below its home. `None` where there is none, or none that
/// can be looked at: the store's own is what counts then.
#[must_use]
pub fn persons(sessions: &Dir, of: &Found) -> Option<Found> {
    let below = of.path.strip_prefix("sessions").ok()?;
    let parent = below.parent()?;
    let dir = if parent.as_os_str().is_empty() {
        sessions.clone()
    } else {
        sessions.folder_if_there(parent).ok().flatten()?
    };
    let name = of.name.to_str()?;
    let name = if of.named.form == Form::Zstd { name.strip_suffix(".zst")? } else { name };
    let stat = dir.stat(name).ok().flatten().filter(|s| s.kind == Kind::File)?;
    let named = NamedRollout::parse(name)?;
    Some(Found { dir, path: of.path.with_file_name(name), name: name.into(), named, kind: stat.kind })
}
