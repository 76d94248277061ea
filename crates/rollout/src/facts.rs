//! What one rollout file tells of itself, read as deeply as asked.

use std::io;
use std::path::Path;
use std::sync::Arc;

use threadkeep_record::damage::DamageReason;
use threadkeep_record::fold::{Check, DAMAGE_SHOWN, Damage, Fold};
use threadkeep_record::{SessionMeta, TokenUsage, UtcMillis};

use crate::name::Form;
use crate::records::{BUFFER, LineReader, RawLine};
use crate::source::{Follow, open_file};
use crate::tail::tail_of;

/// How deeply a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// From the head until preview and header are known.
    Head,
    /// The head, and the last record for its time.
    HeadAndTail,
    /// Every record; the check says how closely.
    Whole(Check),
}

/// A head is looked for in so many bytes at most; beyond that a preview may stay unknown, never the thread.
const HEAD_LIMIT: u64 = 256 << 20;

/// Read size for heads.
const HEAD_BUFFER: usize = 32 << 10;

/// What a file tells.
#[derive(Debug, Clone, Default)]
pub struct FileFacts {
    /// The first header.
    pub header: Option<SessionMeta>,
    /// Damaged lines stood before the header.
    pub header_after_damage: bool,
    /// Preview.
    pub preview: Option<String>,
    /// First message with text.
    pub first_user_message: Option<String>,
    /// The last model seen.
    pub model: Option<String>,
    /// Time of the last record after the header; `None` where there is none or the tail was not read.
    pub last_time: Option<UtcMillis>,
    /// No one said or did anything (only told when that is certain).
    pub empty: bool,
    /// The rest, when the whole file was read.
    pub whole: Option<WholeFacts>,
    /// Damaged places met so far.
    pub damaged: u64,
    /// The first of them.
    pub damage: Vec<Damage>,
}

/// What only a reading of the whole file tells.
#[derive(Debug, Clone, Default)]
pub struct WholeFacts {
    /// Records.
    pub records: u64,
    /// Turns, those taken back not counted.
    pub turns: u64,
    /// Start of the last turn.
    pub turn_started: Option<UtcMillis>,
    /// Last token counts.
    pub tokens: Option<TokenUsage>,
    /// First and last ordinal.
    pub ordinals: Option<(u64, u64)>,
    /// Decoded bytes.
    pub bytes: u64,
    /// Files that its records say were changed, as they name them; only where every record was parsed.
    pub touched: Vec<String>,
}

/// How the fold found a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// A record, or blank.
    Sound,
    /// Something was noted of it: damage, or an ordinal out of order.
    Doubtful,
}

/// Looks at the lines of a file while its facts are read, so that both cost one reading.
pub trait Observer {
    /// How many damaged places are kept with their place; the rest is only counted.
    fn damage_kept(&self) -> usize {
        DAMAGE_SHOWN
    }

    /// The next line; of a long one its head.
    fn line(&mut self, _line: &RawLine<'_>, _judged: Judged) {}

    /// A part of the long line whose head was given last, from its first byte on. Only where the whole file is read.
    fn long_part(&mut self, _part: &[u8]) {}

    /// The end of that line: its length in bytes, and whether a line feed (not counted) ended it.
    fn long_end(&mut self, _length: u64, _terminated: bool) {}
}

/// Looks at nothing.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl Observer for Nobody {}

/// Reads a file. Never fails: what cannot be read is damage.
#[must_use]
pub fn read(path: &Path, form: Form, size: u64, follow: Follow, depth: Depth) -> FileFacts {
    read_observed(path, form, size, follow, depth, &mut Nobody)
}

/// Reads a file while another looks on.
pub fn read_observed<O: Observer>(
    path: &Path,
    form: Form,
    size: u64,
    follow: Follow,
    depth: Depth,
    observer: &mut O,
) -> FileFacts {
    let (check, whole) = match depth {
        Depth::Head | Depth::HeadAndTail => (Check::Ends, false),
        Depth::Whole(check) => (check, true),
    };
    let mut fold = Fold::keeping(check, observer.damage_kept());
    let mut bytes = 0;
    let mut reached_end = false;
    if size == 0 && form != Form::Zstd {
        fold.note(None, 0, DamageReason::Empty);
        return finish(fold, true, true, 0);
    }
    let buffer = if whole { BUFFER } else { HEAD_BUFFER };
    // Head and tail of a plain file come from one opening.
    let plain = (form == Form::Plain).then(|| open_file(path, follow).map(Arc::new));
    let lines = match &plain {
        Some(Ok(file)) => Ok(LineReader::over(Box::new(Arc::clone(file)), buffer)),
        Some(Err(e)) => Err(io::Error::new(e.kind(), e.to_string())),
        None => LineReader::open(path, form, follow, buffer),
    };
    match lines {
        Ok(mut lines) => {
            loop {
                let Some(line) = lines.next_line() else {
                    reached_end = true;
                    break;
                };
                bytes = line.offset + line.bytes.len() as u64 + u64::from(line.terminated);
                let long = line.long;
                let damaged = fold.damaged;
                fold.line(line.into());
                observer.line(&line, if fold.damaged > damaged { Judged::Doubtful } else { Judged::Sound });
                if long && whole {
                    let (offset, number) = (line.offset, line.number);
                    let mut last = b' ';
                    let (length, terminated) = lines.stream_long(|part| {
                        last = part.iter().rev().find(|b| !b.is_ascii_whitespace()).copied().unwrap_or(last);
                        observer.long_part(part);
                    });
                    observer.long_end(length, terminated);
                    bytes = offset + length + u64::from(terminated);
                    if !terminated && last != b'}' {
                        fold.note(Some(number), offset, DamageReason::TornTail);
                    }
                }
                if !whole && (fold.head_is_known() || bytes > HEAD_LIMIT) {
                    break;
                }
            }
            if let Some(e) = lines.error() {
                let reason = if form == Form::Plain {
                    DamageReason::Unreadable(e.to_string())
                } else {
                    DamageReason::Compressed(e.to_string())
                };
                let reason = if form == Form::Json { DamageReason::NotJson(e.to_string()) } else { reason };
                fold.note(None, bytes, reason);
            }
        }
        Err(e) => {
            fold.note(None, 0, DamageReason::Unreadable(e.to_string()));
            reached_end = true;
        }
    }
    if fold.header.is_none()
        && reached_end
        && !fold.damage.iter().any(|d| matches!(d.reason, DamageReason::Unreadable(_)))
    {
        fold.note(None, 0, DamageReason::NoHeader);
    }
    let mut facts = finish(fold, whole, reached_end, bytes);
    if depth == Depth::HeadAndTail && !reached_end {
        match plain.as_ref().and_then(|file| file.as_ref().ok()).map(|file| tail_of(file)) {
            Some(Ok(found)) => {
                facts.last_time = found.last_time;
                for (offset, reason) in found.damage {
                    // Damage that the head met as well is not counted twice.
                    if offset >= bytes {
                        facts.damaged += 1;
                        facts.damage.push(Damage { line: None, offset, reason });
                    }
                }
            }
            // The end of a compressed file is behind all the rest of it.
            None => return read_observed(path, form, size, follow, Depth::Whole(Check::Ends), observer),
            Some(Err(_)) => {}
        }
    }
    facts
}

fn finish(mut fold: Fold, whole: bool, reached_end: bool, bytes: u64) -> FileFacts {
    let whole = (whole || reached_end).then(|| WholeFacts {
        records: fold.records,
        turns: fold.turns(),
        turn_started: fold.turn_started(),
        tokens: fold.tokens(),
        ordinals: fold.ordinals,
        bytes,
        touched: std::mem::take(&mut fold.touched).into_iter().collect(),
    });
    let model = fold.model();
    FileFacts {
        preview: fold.preview().map(str::to_owned),
        first_user_message: fold.first_user_message().map(str::to_owned),
        last_time: fold.last_time.filter(|_| whole.is_some()),
        empty: whole.is_some() && fold.is_empty(),
        header_after_damage: fold.header_after_damage,
        header: fold.header,
        model,
        whole,
        damaged: fold.damaged,
        damage: fold.damage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Lines {
        lines: Vec<(u64, u64, Judged)>,
        long: u64,
        ended: Option<(u64, bool)>,
    }

    impl Observer for Lines {
        fn damage_kept(&self) -> usize {
            1
        }

        fn line(&mut self, line: &RawLine<'_>, judged: Judged) {
            self.lines.push((line.number, line.offset, judged));
        }

        fn long_part(&mut self, part: &[u8]) {
            self.long += part.len() as u64;
        }

        fn long_end(&mut self, length: u64, terminated: bool) {
            self.ended = Some((length, terminated));
        }
    }

    #[test]
    fn an_observer_sees_every_line_and_what_was_noted_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rollout-x.jsonl");
        let long = format!("{{\"type\":\"later\",\"payload\":\"{}\"}}", "x".repeat(9 << 20));
        let text = format!("{{\"a\":1}}\n%%%\n\n{long}\n%%%\n");
        std::fs::write(&path, &text).unwrap();
        let mut seen = Lines::default();
        let depth = Depth::Whole(Check::Whole);
        let facts = read_observed(&path, Form::Plain, text.len() as u64, Follow::Links, depth, &mut seen);
        let judged: Vec<Judged> = seen.lines.iter().map(|(.., judged)| *judged).collect();
        use Judged::{Doubtful, Sound};
        assert_eq!(judged, [Sound, Doubtful, Sound, Sound, Doubtful]);
        assert_eq!(
            seen.lines.iter().map(|(n, at, _)| (*n, *at)).collect::<Vec<_>>()[..4],
            [(1, 0), (2, 8), (3, 12), (4, 13)]
        );
        assert_eq!((seen.long, seen.ended), (long.len() as u64, Some((long.len() as u64, true))));
        // Two bad lines and no header; one place is kept.
        assert_eq!((facts.damaged, facts.damage.len()), (3, 1));
    }
}
