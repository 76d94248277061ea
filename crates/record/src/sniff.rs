//! Telling a record's kind from its first bytes, without parsing it.
//!
//! Every release since 0.35 writes the envelope in one order, so most lines can be told by their prefix at memory
//! speed. A line that does not fit is not damaged: the caller parses it with [`Envelope`](crate::Envelope) instead.

use crate::envelope::Kind;

/// What the prefix of a line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sniffed<'a> {
    /// The timestamp's text.
    pub timestamp: &'a [u8],
    /// Position in a paginated thread.
    pub ordinal: Option<u64>,
    /// The kind.
    pub kind: Kind,
    /// The payload's `type`, when it is the payload's first key; else empty.
    pub payload_type: &'a [u8],
    /// Where the payload begins in the line.
    pub payload_at: usize,
}

/// Reads the prefix of a line; `None` when it has another form.
#[must_use]
pub fn sniff(line: &[u8]) -> Option<Sniffed<'_>> {
    let rest = line.strip_prefix(b"{\"timestamp\":\"")?;
    // The time is 24 bytes nearly always; otherwise look for its end nearby.
    let end = if rest.get(24) == Some(&b'"') { 24 } else { rest.iter().take(40).position(|b| *b == b'"')? };
    let timestamp = &rest[..end];
    let mut rest = rest[end + 1..].strip_prefix(b",\"")?;
    let mut ordinal = None;
    if let Some(after) = rest.strip_prefix(b"ordinal\":") {
        let digits = after.iter().take(20).take_while(|b| b.is_ascii_digit()).count();
        ordinal = Some(std::str::from_utf8(&after[..digits]).ok()?.parse().ok()?);
        rest = after[digits..].strip_prefix(b",\"")?;
    }
    let rest = rest.strip_prefix(b"type\":\"")?;
    let end = rest.iter().take(48).position(|b| *b == b'"')?;
    let kind = Kind::from_type(std::str::from_utf8(&rest[..end]).ok()?);
    let rest = rest[end + 1..].strip_prefix(b",\"payload\":")?;
    let payload_at = line.len() - rest.len();
    let payload_type = rest
        .strip_prefix(b"{\"type\":\"")
        .and_then(|r| Some(&r[..r.iter().take(48).position(|b| *b == b'"')?]))
        .unwrap_or(b"");
    Some(Sniffed { timestamp, ordinal, kind, payload_type, payload_at })
}

/// The `type` of the item inside an `item_completed` payload, when it stands in its usual place near the front.
#[must_use]
pub fn item_type(payload: &[u8]) -> Option<&[u8]> {
    let head = &payload[..payload.len().min(400)];
    let at = memchr::memmem::find(head, b"\"item\":{\"type\":\"")? + 16;
    let end = head[at..].iter().position(|b| *b == b'"')?;
    Some(&head[at..at + end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_both_history_modes() {
        let line = br#"{"timestamp":"2026-11-30T12:27:12.794Z","ordinal":7,"type":"event_msg","payload":{"type":"task_started","turn_id":"x"}}"#;
        let s = sniff(line).unwrap();
        assert_eq!((s.ordinal, s.kind, s.payload_type), (Some(7), Kind::EventMsg, &b"task_started"[..]));
        assert_eq!(&line[s.payload_at..s.payload_at + 7], b"{\"type\"");
        let s = sniff(br#"{"timestamp":"2026-11-30T12:27:12Z","type":"session_meta","payload":{"id":"x"}}"#).unwrap();
        assert_eq!((s.ordinal, s.kind, s.payload_type), (None, Kind::SessionMeta, &b""[..]));
    }

    #[test]
    fn leaves_other_forms_to_the_parser() {
        for line in [
            &b"{}"[..],
            br#"{ "timestamp":"t"}"#,
            br#"{"type":"event_msg"}"#,
            br#"{"timestamp":"2026","type":"a""#,
            b"",
            br#"{"timestamp":"2026-11-30T12:27:12.794Z","ordinal":99999999999999999999,"type":"a","payload":{}}"#,
        ] {
            assert_eq!(sniff(line), None, "{:?}", String::from_utf8_lossy(line));
        }
    }
}
