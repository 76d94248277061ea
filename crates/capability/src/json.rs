//! JSON objects whose members keep their order and spelling.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;

/// The members of an object, in order, each value as it was spelt.
#[derive(Debug, Clone)]
pub(crate) struct Members(pub(crate) Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Members;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// The same value on one line. A rollout's record is a line, so a value that came from a request over several lines
/// cannot be written as it is spelt; nothing else about the spelling changes.
pub(crate) fn on_one_line(raw: Box<RawValue>) -> Box<RawValue> {
    // Within JSON strings line breaks are always escaped, so any that stand here are between tokens.
    if !raw.get().contains(['\n', '\r']) {
        return raw;
    }
    let (mut in_string, mut escaped) = (false, false);
    let text: String = raw
        .get()
        .chars()
        .filter(|&c| {
            if in_string {
                in_string = escaped || c != '"';
                escaped = !escaped && c == '\\';
                return true;
            }
            in_string = c == '"';
            !matches!(c, ' ' | '\t' | '\n' | '\r')
        })
        .collect();
    RawValue::from_string(text).unwrap_or(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            "[ \"\\\\\n\ta-c]{0,6}".prop_map(Into::into),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                proptest::collection::vec(("[ \"\\\\\na-c]{0,3}", inner), 0..4)
                    .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn one_line_says_the_same(value in any_json()) {
            let pretty = serde_json::to_string_pretty(&value).unwrap();
            let raw = on_one_line(RawValue::from_string(pretty).unwrap());
            prop_assert!(!raw.get().contains(['\n', '\r']));
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(raw.get()).unwrap(), value);
        }
    }
}
