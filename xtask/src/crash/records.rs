//! What a rollout holds, compared with what was given to its writer.

use anyhow::{Result, bail, ensure};
use threadkeep_record::{Envelope, LineState, NewItem, SessionMeta, ThreadId, check_line};

/// What was given to a writer.
#[derive(Debug, Clone)]
pub enum Given {
    /// An item: its record ends so; time and ordinal stand before.
    Ending(Vec<u8>),
    /// A record that is copied byte for byte.
    Whole(Vec<u8>),
}

impl Given {
    pub fn item(item: &NewItem) -> Self {
        let type_name = serde_json::Value::from(item.type_name());
        Self::Ending(format!(",\"type\":{type_name},\"payload\":{}}}", item.payload()).into_bytes())
    }

    fn is(&self, record: &[u8]) -> bool {
        match self {
            Self::Ending(end) => record.starts_with(b"{\"timestamp\":\"") && record.ends_with(end),
            Self::Whole(all) => record == all,
        }
    }
}

/// What may have become of records that were not durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// They are there up to some point: the prefix property.
    Kept,
    /// Any of them may be missing; those before this number were durable and may not.
    Free(usize),
}

/// The records of a rollout.
#[derive(Debug)]
pub struct Found {
    pub header: bool,
    /// For each record behind the header: which of the given it is.
    pub matched: Vec<usize>,
    /// All records, with the header.
    pub lines: Vec<Vec<u8>>,
    pub last_ordinal: Option<u64>,
}

/// Reads a rollout as a reader does, passing over damage. An error tells of a record that nobody gave, that stands
/// twice, out of order, or behind a gap, and of ordinals that do.
pub fn read(bytes: &[u8], given: &[Given], id: ThreadId, first_ordinal: Option<u64>, order: Order) -> Result<Found> {
    let mut found = Found { header: false, matched: vec![], lines: vec![], last_ordinal: None };
    for line in bytes.split(|b| *b == b'\n') {
        let records: Vec<Vec<u8>> = match check_line(line) {
            LineState::Record(record) => vec![record.to_vec()],
            LineState::Recovered(records, _) => records.into_iter().map(|r| r.into_owned()).collect(),
            LineState::Blank | LineState::Damaged(_) => continue,
        };
        for record in records {
            let Some(envelope) = Envelope::parse(&record) else { bail!("a record without an envelope") };
            let shown = String::from_utf8_lossy(&record[..record.len().min(120)]).into_owned();
            if let Some(first) = first_ordinal {
                let Some(ordinal) = envelope.ordinal else { bail!("a record without an ordinal: {shown}") };
                let next = found.last_ordinal.map_or(first, |last| last + 1);
                let fits = if order == Order::Kept { ordinal == next } else { ordinal >= next };
                ensure!(fits, "ordinal {ordinal} stands where {next} is due: {shown}");
                found.last_ordinal = Some(ordinal);
            }
            let is_own_header = || SessionMeta::parse(&record).is_some_and(|h| h.id == Some(id));
            if found.lines.is_empty() && is_own_header() {
                found.header = true;
            } else {
                let due = found.matched.last().map_or(0, |last| last + 1);
                let reach = match order {
                    Order::Kept => due + 1,
                    Order::Free(durable) => {
                        if due < durable {
                            due + 1
                        } else {
                            given.len()
                        }
                    }
                };
                let at = (due..reach.min(given.len())).find(|i| given[*i].is(&record));
                let Some(at) = at else { bail!("not the record that is due, number {due}: {shown}") };
                found.matched.push(at);
            }
            found.lines.push(record);
        }
    }
    Ok(found)
}
