//! Counting the records of a file by their kind.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use threadkeep_record::damage::{DamageReason, LineState, check_line, trim};
use threadkeep_record::{Envelope, Kind, long, sniff};
use threadkeep_rollout::facts::{Judged, Observer};
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::RawLine;

use super::repeats::{ContentHash, Repeats, Seen};

/// Records of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct KindTally {
    /// How many.
    pub records: u64,
    /// Bytes of their lines, line feeds included, decompressed.
    pub bytes: u64,
}

/// Lines that are no records, and what stands beside a record that was recovered from its line.
pub(super) const DAMAGED: &str = "(damaged)";
/// Blank lines, and in a file that is one JSON object what stands between its items.
const BETWEEN: &str = "(between)";
/// Records of kinds beyond the first [`MOST_KINDS`].
const OTHER: &str = "(other)";

/// There are about a hundred kinds; a file of noise must not make more of them than memory is given for.
const MOST_KINDS: usize = 1000;
/// Longer names of kinds are cut.
const LONGEST_KIND: usize = 100;

/// Adds the kinds of a file to those of all.
pub(super) fn add(all: &mut BTreeMap<String, KindTally>, kinds: HashMap<String, KindTally>) {
    for (kind, tally) in kinds {
        let room = all.len() < MOST_KINDS || all.contains_key(&kind) || kind.starts_with('(');
        let sum = all.entry(if room { kind } else { OTHER.to_owned() }).or_default();
        sum.records += tally.records;
        sum.bytes += tally.bytes;
    }
}

/// Looks at the lines of one file.
pub(super) struct Counter<'r> {
    repeats: &'r Repeats,
    file: u32,
    form: Form,
    kinds: HashMap<String, KindTally>,
    seen: Vec<Seen>,
    /// The name of a kind, made in one place.
    name: String,
    /// The long line under way: where its payload begins, and the hash so far.
    long: Option<(u64, u64, ContentHash)>,
}

impl<'r> Counter<'r> {
    /// `file` is the file's place in the order of all.
    pub(super) fn new(repeats: &'r Repeats, file: u32, form: Form) -> Self {
        Self { repeats, file, form, kinds: HashMap::new(), seen: Vec::new(), name: String::new(), long: None }
    }

    /// What was counted. Of a JSON file the rest of its `size` bytes is what stands between the items.
    pub(super) fn finish(mut self, size: u64, damaged: Judged) -> HashMap<String, KindTally> {
        self.repeats.add(self.file, &mut self.seen);
        if self.form == Form::Json {
            let items: u64 = self.kinds.values().map(|k| k.bytes).sum();
            self.name.clear();
            self.name.push_str(if damaged == Judged::Doubtful { DAMAGED } else { BETWEEN });
            self.tally(0, size.saturating_sub(items));
        }
        self.kinds.retain(|_, k| *k != KindTally::default());
        self.kinds
    }

    /// Adds to the kind that `name` holds.
    fn tally(&mut self, records: u64, bytes: u64) {
        if !self.kinds.contains_key(&self.name) {
            let room = self.kinds.len() < MOST_KINDS || self.name.starts_with('(');
            if !room {
                self.name = OTHER.to_owned();
            }
            self.kinds.entry(self.name.clone()).or_default();
        }
        if let Some(tally) = self.kinds.get_mut(&self.name) {
            tally.records += records;
            tally.bytes += bytes;
        }
    }

    fn named(&mut self, name: &str, records: u64, bytes: u64) {
        self.name.clear();
        self.name.push_str(name);
        self.tally(records, bytes);
    }

    /// A whole record, which takes up so many bytes.
    fn record(&mut self, record: &[u8], bytes: u64) {
        let content = name_of(record, &mut self.name);
        self.tally(1, bytes);
        self.see(content);
    }

    fn see(&mut self, content: &[u8]) {
        const AT_ONCE: usize = 4096;
        let size = content.len() as u64;
        if size < self.repeats.least() {
            return;
        }
        let mut hash = ContentHash::default();
        hash.write(content);
        self.seen.push(Seen { key: hash.finish(), size });
        if self.seen.len() >= AT_ONCE {
            self.repeats.add(self.file, &mut self.seen);
        }
    }

    /// A line of which something was noted.
    fn doubtful(&mut self, line: &RawLine<'_>, bytes: u64) {
        match check_line(line.bytes) {
            LineState::Blank => self.named(BETWEEN, 0, bytes),
            LineState::Record(record) => self.record(record, bytes),
            LineState::Recovered(records, DamageReason::InvalidUtf8(_)) => {
                // The repaired text has other bytes than the line; the line is what takes up room.
                records.iter().for_each(|record| self.record(record, bytes));
            }
            LineState::Recovered(records, _) => {
                let mut rest = bytes;
                for record in &records {
                    rest = rest.saturating_sub(record.len() as u64);
                    self.record(record, record.len() as u64);
                }
                self.named(DAMAGED, 0, rest);
            }
            LineState::Damaged(_) => self.named(DAMAGED, 1, bytes),
        }
    }
}

impl Observer for Counter<'_> {
    fn line(&mut self, line: &RawLine<'_>, judged: Judged) {
        if line.long {
            let head = trim(line.bytes);
            let at = match sniff::sniff(head) {
                Some(s) => {
                    name_of_sniffed(&s, head, &mut self.name);
                    s.payload_at
                }
                None if head.starts_with(b"{") => {
                    let (outer, inner) = long::types(head);
                    set_name(&mut self.name, outer.as_deref().unwrap_or("(unknown)"), inner.as_deref());
                    0
                }
                None => {
                    set_name(&mut self.name, DAMAGED, None);
                    0
                }
            };
            self.tally(1, 0);
            let skipped = (line.bytes.len() - line.bytes.trim_ascii_start().len() + at) as u64;
            self.long = Some((skipped, 0, ContentHash::default()));
            return;
        }
        // The items of a JSON file have no line feeds.
        let line_feed = line.terminated && self.form != Form::Json;
        let bytes = line.bytes.len() as u64 + u64::from(line_feed);
        if judged == Judged::Doubtful {
            return self.doubtful(line, bytes);
        }
        let text = trim(line.bytes);
        if text.is_empty() { self.named(BETWEEN, 0, bytes) } else { self.record(text, bytes) }
    }

    fn long_part(&mut self, part: &[u8]) {
        let Some((skip, size, hash)) = &mut self.long else { return };
        let skipped = (*skip).min(part.len() as u64);
        *skip -= skipped;
        let content = &part[usize::try_from(skipped).unwrap_or(part.len())..];
        *size += content.len() as u64;
        hash.write(content);
    }

    fn long_end(&mut self, length: u64, terminated: bool) {
        // Its kind is still in `name`: no other line came between.
        self.tally(0, length + u64::from(terminated));
        if let Some((_, size, hash)) = self.long.take()
            && size >= self.repeats.least()
        {
            self.seen.push(Seen { key: hash.finish(), size });
        }
    }
}

/// The name of a record's kind: its type, and behind a stroke that of its payload. Returns the record's content, which
/// is what is left of it without time and ordinal: a copy has its own.
fn name_of<'a>(record: &'a [u8], name: &mut String) -> &'a [u8] {
    if let Some(s) = sniff::sniff(record) {
        name_of_sniffed(&s, record, name);
        return &record[s.payload_at..];
    }
    let Some(envelope) = Envelope::parse(record) else {
        set_name(name, "(unknown)", None);
        return record;
    };
    match envelope.kind {
        Kind::BareMeta => set_name(name, "bare_header", None),
        Kind::BareState => set_name(name, "bare_state", None),
        Kind::BareItem => set_name(name, "bare_item", Some(&envelope.type_name)),
        Kind::Other if envelope.type_name.is_empty() => set_name(name, "(unknown)", None),
        _ => set_name(name, &envelope.type_name, envelope.payload_type().as_deref()),
    }
    // Of a bare record that is all of it.
    envelope.payload.as_bytes()
}

fn name_of_sniffed(s: &sniff::Sniffed<'_>, record: &[u8], name: &mut String) {
    let plain = |t: &[u8]| !t.is_empty() && !t.contains(&b'\\');
    if let (Some(outer), Ok(inner), true) =
        (s.kind.type_name(), std::str::from_utf8(s.payload_type), plain(s.payload_type))
    {
        return set_name(name, outer, Some(inner));
    }
    match Envelope::parse(record) {
        Some(e) => set_name(name, &e.type_name, e.payload_type().as_deref()),
        // The head of a long record cannot be parsed.
        None => {
            let (outer, inner) = long::types(record);
            set_name(name, outer.as_deref().unwrap_or("(unknown)"), inner.as_deref());
        }
    }
}

fn set_name(name: &mut String, outer: &str, inner: Option<&str>) {
    name.clear();
    let inner = inner.filter(|i| !i.is_empty());
    for c in outer.chars().chain(inner.map(|_| '/')).chain(inner.unwrap_or_default().chars()).take(LONGEST_KIND) {
        name.push(c);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(record: &str) -> String {
        let mut name = String::new();
        name_of(record.as_bytes(), &mut name);
        name
    }

    #[test]
    fn kinds_are_named_by_type_and_payload_type() {
        let head = r#"{"timestamp":"2026-11-30T12:27:12.794Z","#;
        assert_eq!(
            name(&format!(r#"{head}"type":"event_msg","payload":{{"type":"token_count"}}}}"#)),
            "event_msg/token_count"
        );
        assert_eq!(name(&format!(r#"{head}"type":"turn_context","payload":{{"cwd":"/"}}}}"#)), "turn_context");
        assert_eq!(name(&format!(r#"{head}"type":"later","payload":{{"a":1,"type":"x"}}}}"#)), "later/x");
        assert_eq!(name(r#"{"payload":{"b":1,"type":"y"},"type":"event_msg"}"#), "event_msg/y");
        assert_eq!(name(r#"{"record_type":"state"}"#), "bare_state");
        assert_eq!(name(r#"{"type":"message","role":"user"}"#), "bare_item/message");
        assert_eq!(name(r#"{"id":"a","timestamp":"t"}"#), "bare_header");
        assert_eq!(name("{}"), "(unknown)");
    }

    #[test]
    fn kinds_are_bounded() {
        let mut all = BTreeMap::new();
        for n in 0..3000 {
            add(&mut all, HashMap::from([(format!("k{n}"), KindTally { records: 1, bytes: 2 })]));
        }
        assert_eq!(all.len(), MOST_KINDS + 1);
        assert_eq!(all.values().map(|k| k.records).sum::<u64>(), 3000);
        assert_eq!(all[OTHER].bytes, 4000);
    }
}
