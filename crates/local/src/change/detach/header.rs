//! The two records of a detached rollout that are made anew: its header, and what stands where other headers stood.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use threadkeep_record::{Envelope, ThreadId, UtcMillis, sniff};

/// The members of a JSON object in their order, each value as it is spelt.
struct Members<'a>(Vec<(String, Cow<'a, str>)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    all.push((key, Cow::Borrowed(value.get())));
                }
                Ok(Members(all))
            }
        }
        from.deserialize_map(Object)
    }
}

impl Members<'_> {
    fn set(&mut self, key: &str, value: String) {
        match self.0.iter_mut().find(|(k, _)| k == key) {
            Some((_, old)) => *old = Cow::Owned(value),
            None => self.0.push((key.into(), Cow::Owned(value))),
        }
    }

    fn text(&self) -> String {
        let members = self.0.iter().map(|(key, value)| format!("{}:{value}", Value::from(key.as_str())));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

/// What a header gets that it does not say itself.
#[derive(Debug, Default)]
pub struct Changes {
    /// The ordinal where the history begins, if its records have any.
    pub ordinal: Option<u64>,
    /// Where the context of a parent agent ends that the history begins with.
    pub context_end: Option<u64>,
    /// When the thread was made.
    pub made: Option<UtcMillis>,
}

/// A header record that begins a history: without a base, and with some changes. All other fields stay as they are
/// spelt. `None` where the record has no payload.
pub fn beginning(record: &[u8], changes: &Changes) -> Option<Vec<u8>> {
    let mut line: Members<'_> = serde_json::from_slice(record).ok()?;
    let mut payloads = 0;
    for (key, value) in &mut line.0 {
        match (key.as_str(), changes.ordinal) {
            ("ordinal", Some(ordinal)) => *value = Cow::Owned(ordinal.to_string()),
            ("payload", _) => {
                let mut payload: Members<'_> = serde_json::from_str(value).ok()?;
                payload.0.retain(|(key, _)| key != "history_base");
                if let Some(end) = changes.context_end {
                    payload.set("subagent_history_start_ordinal", end.to_string());
                }
                if let Some(made) = changes.made {
                    payload.set("timestamp", Value::from(made.to_string()).to_string());
                }
                let text = payload.text();
                *value = Cow::Owned(text);
                payloads += 1;
            }
            _ => {}
        }
    }
    (payloads > 0).then(|| line.text().into_bytes())
}

/// What stands where another header stood. A second header in a rollout hides everything before it from the model
/// (0.156 and 0.171 read a rollout backwards until they meet one), and a gap in the ordinals is damage to strict
/// readers. So the place is held by a token count without counts, which all releases know and none makes anything of;
/// `header_of` says whose header it was.
pub fn placeholder(header: &[u8], owner: Option<ThreadId>) -> Vec<u8> {
    let (time, ordinal) = match sniff::sniff(header) {
        Some(s) => (Some(String::from_utf8_lossy(s.timestamp).into_owned()), s.ordinal),
        None => Envelope::parse(header).map_or((None, None), |e| (e.timestamp.map(Cow::into_owned), e.ordinal)),
    };
    let time = Value::from(time.unwrap_or_else(|| "1970-01-01T00:00:00.000Z".into()));
    let ordinal = ordinal.map_or_else(String::new, |n| format!("\"ordinal\":{n},"));
    let owner = owner.map_or_else(String::new, |id| format!(",\"header_of\":\"{id}\""));
    format!(
        "{{\"timestamp\":{time},{ordinal}\"type\":\"event_msg\",\"payload\":{{\"type\":\"token_count\",\"info\":null,\
         \"rate_limits\":null{owner}}}}}"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_keeps_the_spelling_of_what_is_not_its_base() {
        let was = br#"{ "timestamp":"t", "ordinal": 83,"novel":1.50, "type":"session_meta","payload":{"id":"a","forked_from_id":"b","n":10000000000000000000001.0e1,"history_base": {"x":[1]},"s":"\u00e9\/","o":{ "k" : 1 }}}"#;
        let zero = Changes { ordinal: Some(0), ..Changes::default() };
        let is = beginning(was, &zero).expect("a header");
        assert_eq!(
            String::from_utf8_lossy(&is),
            r#"{"timestamp":"t","ordinal":0,"novel":1.50,"type":"session_meta","payload":{"id":"a","forked_from_id":"b","n":10000000000000000000001.0e1,"s":"\u00e9\/","o":{ "k" : 1 }}}"#
        );
        let changes = Changes { ordinal: Some(0), context_end: Some(12), made: Some(UtcMillis(0)) };
        let is =
            beginning(br#"{"type":"session_meta","payload":{"timestamp":"t","id":"a"}}"#, &changes).expect("a header");
        assert_eq!(
            String::from_utf8_lossy(&is),
            r#"{"type":"session_meta","payload":{"timestamp":"1970-01-01T00:00:00.000Z","id":"a","subagent_history_start_ordinal":12}}"#
        );
        for odd in [&b"[]"[..], b"{}", br#"{"payload":1}"#, b"\xff", b""] {
            assert_eq!(beginning(odd, &zero), None, "{}", String::from_utf8_lossy(odd));
        }
    }

    #[test]
    fn a_place_is_held_with_time_and_ordinal() {
        let id = ThreadId::parse("01990000-0000-7000-8000-000000000001").expect("an id");
        let header = br#"{"timestamp":"2026-01-01T00:00:00.000Z","ordinal":53,"type":"session_meta","payload":{}}"#;
        let expected = format!(
            r#"{{"timestamp":"2026-01-01T00:00:00.000Z","ordinal":53,"type":"event_msg","payload":{{"type":"token_count","info":null,"rate_limits":null,"header_of":"{id}"}}}}"#
        );
        assert_eq!(String::from_utf8_lossy(&placeholder(header, Some(id))), expected);
        let spaced = br#"{ "ordinal":53, "type":"session_meta","payload":{}, "timestamp":"2026-01-01T00:00:00.000Z"}"#;
        assert_eq!(String::from_utf8_lossy(&placeholder(spaced, Some(id))), expected);
        assert!(Envelope::parse(&placeholder(b"x", None)).is_some());
    }
}
