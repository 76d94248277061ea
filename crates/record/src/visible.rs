//! The searchable text of a line, for an index: everything that [`text::pieces`] gives, and little more, without
//! parsing most lines.
//!
//! What an index leaves out is never found again, so the one rule here is that nothing is missing. Lines of the common
//! kinds are walked once, by a list of the keys that each kind is known to have; a line that has any other key, or is
//! not one well-formed object, goes the way that search itself goes: [`check_line`], [`Item::parse`], [`text::pieces`].

mod rules;
mod walk;

use serde_json::Value;

use crate::envelope::{Envelope, Kind};
use crate::item::{Item, ItemBody, tool};
use crate::{LineState, check_line, damage, sniff, text};
use rules::Rules;
use walk::Walk;

/// Memory that is used again from line to line.
#[derive(Debug, Default)]
pub struct Scratch {
    decoded: String,
}

/// Gives each searchable text of a line (without its line feed) to `sink`.
///
/// A text is decoded, in its own case, and given whole: a search term stands in a text of the line only if it stands
/// in one that was given. Texts may be given more than once. Lines that are no records have none.
pub fn texts(line: &[u8], scratch: &mut Scratch, sink: &mut impl FnMut(&str)) {
    let trimmed = damage::trim(line);
    // A torn line may go on with another record in what the sniffer takes for the time.
    let sniffed = sniff::sniff(trimmed).filter(|s| memchr::memchr2(b'"', b'\\', s.timestamp).is_none());
    match sniffed.map(|s| (Rules::of(&s, trimmed), s.payload_at)) {
        Some((Rules::Nothing, at)) if !holds_another_record(&trimmed[at..]) => return,
        Some((Rules::Keys(rules), at)) => {
            if let Ok(all) = std::str::from_utf8(trimmed)
                && let Some(payload) = all.get(at..)
                && Walk::new(payload, rules, &mut scratch.decoded, sink).run().is_some()
            {
                return;
            }
        }
        _ => {}
    }
    parsed(line, sink);
}

/// The texts of a line by the way that search goes.
fn parsed(line: &[u8], sink: &mut impl FnMut(&str)) {
    let mut record = |record: &[u8]| {
        let Some(envelope) = Envelope::parse(record) else { return };
        text::pieces(&Item::parse(&envelope)).iter().for_each(|(_, piece)| sink(piece));
    };
    match check_line(line) {
        LineState::Record(whole) => record(whole),
        LineState::Recovered(records, _) => records.iter().for_each(|r| record(r)),
        LineState::Blank | LineState::Damaged(_) => {}
    }
}

/// Whether a record may stand behind the beginning of this one: an append was glued onto a torn line. Inside a string
/// its quotes would be escaped.
fn holds_another_record(payload: &[u8]) -> bool {
    memchr::memmem::find(payload, b"{\"timestamp\"").is_some()
}

/// Whether every record of this kind is without searchable text.
fn is_silent(kind: Kind) -> bool {
    match kind {
        Kind::SessionMeta
        | Kind::TurnContext
        | Kind::WorldState
        | Kind::TokenUsageRecord
        | Kind::Compacted
        | Kind::InterAgentMetadata => true,
        Kind::ResponseItem
        | Kind::EventMsg
        | Kind::InterAgent
        | Kind::BareMeta
        | Kind::BareState
        | Kind::BareItem
        | Kind::Other => false,
    }
}

/// A tool's answer that was given as a string, without what its tool put around it.
fn answer(output: &str, sink: &mut impl FnMut(&str)) {
    if !output.starts_with('{') {
        return sink(tool::strip_header(output).0);
    }
    if let ItemBody::ToolOutput { text, .. } = tool::output(Some(&Value::String(output.to_owned()))) {
        sink(&text);
    }
}

#[cfg(test)]
mod tests;
