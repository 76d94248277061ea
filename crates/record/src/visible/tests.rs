//! Whatever search finds in a line stands in a text that is given for it: in every line of the fixtures, in lines of
//! all kinds and spellings, and in damaged ones.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// What search looks in, by its own way.
fn pieces(line: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    parsed(line, &mut |t| all.push(t.to_owned()));
    all
}

fn given(line: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    texts(line, &mut Scratch::default(), &mut |t| all.push(t.to_owned()));
    all
}

/// The first piece that stands in no text that is given.
fn missing(line: &[u8]) -> Option<String> {
    let given = given(line);
    pieces(line).into_iter().find(|p| !given.iter().any(|g| g.contains(p.as_str())))
}

fn walked(line: &[u8]) -> bool {
    let Some(s) = sniff::sniff(line) else { return false };
    match Rules::of(&s, line) {
        Rules::Keys(family) => {
            let payload = std::str::from_utf8(&line[s.payload_at..]).unwrap();
            Walk::new(payload, family, &mut String::new(), &mut |_: &str| {}).run().is_some()
        }
        Rules::Nothing => true,
        Rules::Parse => false,
    }
}

fn files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { files(&path, into) } else { into.push(path) }
    }
}

#[test]
fn nothing_is_missing_in_the_fixtures_and_little_of_them_is_parsed() {
    let mut all = Vec::new();
    files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/homes"), &mut all);
    let (mut lines, mut bytes, mut walked_bytes) = (0, 0, 0);
    for file in all.iter().filter(|f| f.extension().is_some_and(|e| e == "jsonl")) {
        let text = fs::read(file).unwrap();
        for line in text.split(|b| *b == b'\n') {
            assert_eq!(missing(line), None, "{} {}", file.display(), String::from_utf8_lossy(line));
            lines += 1;
            bytes += line.len();
            walked_bytes += if walked(line) { line.len() } else { 0 };
        }
    }
    assert!(lines > 3000, "{lines}");
    // The rest is calls, records without an envelope, and a few of many kinds.
    assert!(walked_bytes * 10 > bytes * 8, "{walked_bytes} of {bytes}");
}

#[test]
fn lines_that_seem_common_and_are_not() {
    let all = [
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"one"},{"type":"input_text","text":"two"}]}"#,
        r#"{"type":"message","role":"user","content":[{"type":"image"}]}"#,
        r#"{"type":"message","role":"user","content":[{"type":"\u0069mage"}]}"#,
        r#"{"type":"message","content":[{"type":"input_text","text":"late role"}],"role":"user"}"#,
        r#"{"type":"message","role":"developer","role":"user","content":"said twice"}"#,
        r#"{"type":"message","role":"developer","content":"said twice","type":"reasoning","summary":["x y z"]}"#,
        r#"{"type":"message","role":"developer","content":[{"text":"said twice"}],"type":"reasoning"}"#,
        r#"{"type":"message","role":"assistant","content":"","tool_calls":[{"function":{"name":"n","arguments":"{\"a\":\"b c\"}"}}]}"#,
        r#"{"type":"message","role":"tool","content":"an answer"}"#,
        r#"{"type":"function_call_output","output":"{\"output\":\"a\\nb\",\"metadata\":{\"exit_code\":1}}"}"#,
        r#"{"type":"function_call_output","output":"{\"other\":\"a\\nb\"}"}"#,
        r#"{"type":"function_call_output","output":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}"#,
        r#"{"type":"function_call_output","output":{"content":"c","success":true}}"#,
        r#"{"type":"function_call_output","output":"Exit code: 0\nWall time: 1\nOutput:\nhello"}"#,
        r#"{"type":"reasoning","summary":["a b","c d"],"content":[{"type":"reasoning_text","text":"e f"}]}"#,
        r#"{"type":"function_call","name":"shell","arguments":"{\"command\":[\"ls\",\"-l\",\"a b\"],\"n\":1234}"}"#,
    ];
    for payload in all {
        let line = format!(r#"{{"timestamp":"2026-01-01T00:00:00.000Z","type":"response_item","payload":{payload}}}"#);
        assert_eq!(missing(line.as_bytes()), None, "{line}");
        for at in [40, line.len() / 2, line.len() - 3] {
            let glued = format!("{}{line}", &line[..at]);
            assert_eq!(missing(glued.as_bytes()), None, "{glued}");
        }
    }
    let all = [
        r#"{"type":"task_complete","error":"it broke"}"#,
        r#"{"type":"task_complete","error":{"message":"it broke"},"last_agent_message":"x"}"#,
        r#"{"type":"task_complete","error":123456}"#,
        r#"{"type":"user_message","message":"hi","images":["/a/b.png"],"local_images":[{"path":"c d"}]}"#,
        r#"{"type":"exec_command_end","command":["ls","-l","a"],"stdout":"out","aggregated_output":""}"#,
        r#"{"type":"exec_command_end","command":["bash","-lc","a | b"],"formatted_output":"out"}"#,
        r#"{"type":"item_completed","item":{"type":"AgentMessage","content":[{"type":"Text","text":"a"},{"type":"Text","text":"b"}]}}"#,
        r#"{"type":"item_completed","item":{"type":"AgentMessage","type":"Plan","text":"a plan"}}"#,
        r#"{"type":"item_completed","item":{"type":"CommandExecution","command":["x",1,"y"],"stdout":"out"}}"#,
        r#"{"type":"item_completed","x":{"item":{"type":"Reasoning"}},"item":{"type":"Plan","text":"a plan"}}"#,
        r#"{"type":"agent_message","message":"a\/b \u0041\ud83c\udf0d \"q\" \\ \b\f\n\r\t"}"#,
        r#"{"type":"agent_message","message":"half \ud83c"}"#,
        r#"{"type":"token_count","info":null}{"timestamp":"2026-01-01T00:00:00.000Z","type":"event_msg","payload":{"type":"agent_message","message":"glued"}}"#,
    ];
    for payload in all {
        let line = format!(r#"{{"timestamp":"2026-01-01T00:00:00.000Z","type":"event_msg","payload":{payload}}}"#);
        assert_eq!(missing(line.as_bytes()), None, "{line}");
    }
    let silent = br#"{"timestamp":"2026-01-01T00:00:00.000Z","type":"session_meta","payload":{"x":{"y":{"timestamp":"2026-01-01T00:00:00.000Z","type":"event_msg","payload":{"type":"agent_message","message":"behind a torn header"}}"#;
    assert_eq!(given(silent), pieces(silent));
    assert_eq!(given(silent), ["behind a torn header"]);
}

/// Text as people and tools write it, with what JSON has to escape.
fn any_text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[a-zA-Z0-9 ]{1,12}",
        Just("\"\\/\n\t\u{8}\u{7f}\u{2028}".to_owned()),
        Just("{\"timestamp\":\"x\",\"type\":\"y\"}".to_owned()),
        Just("Exit code: 0\nOutput:\n".to_owned()),
        Just("<environment_context>".to_owned()),
        Just("## My request for Codex:".to_owned()),
        Just("{\"output\":\"a\",\"metadata\":{}}".to_owned()),
        Just("data:image/png;base64,AAAA".to_owned()),
        "\\PC{0,6}",
        any::<String>(),
    ];
    proptest::collection::vec(part, 0..4).prop_map(|p| p.concat())
}

fn any_key() -> impl Strategy<Value = String> {
    const KEYS: &[&str] = &[
        "type",
        "text",
        "message",
        "content",
        "output",
        "role",
        "item",
        "command",
        "summary",
        "images",
        "error",
        "arguments",
        "name",
        "stdout",
        "aggregated_output",
        "formatted_output",
        "summary_text",
        "raw_content",
        "call_id",
        "status",
        "phase",
        "image_url",
        "path",
        "timestamp",
        "payload",
        "other",
        "tool_calls",
        "result",
        "query",
        "action",
        "changes",
        "review_output",
        "objective",
        "goal",
        "prompt",
        "text_elements",
    ];
    const TYPES: &[&str] = &["user", "assistant", "developer", "image", "input_text", "Text", "null"];
    proptest::sample::select([KEYS, TYPES].concat()).prop_map(str::to_owned)
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => any_text().prop_map(Value::String),
        1 => any_key().prop_map(Value::String),
        1 => any::<i32>().prop_map(|n| json!(n)),
        1 => Just(Value::Null),
        // Arguments are JSON within JSON.
        1 => any_text().prop_map(|t| Value::String(json!({"cmd": t, "output": t, "n": 12345}).to_string())),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            proptest::collection::vec((any_key(), inner), 0..3).prop_map(|o| Value::Object(o.into_iter().collect())),
        ]
    })
}

/// Payloads near to those that are walked.
fn any_payload() -> impl Strategy<Value = (&'static str, Value)> {
    let t = any_text;
    let common = prop_oneof![
        (t(), t()).prop_map(|(a, b)| ("response_item", json!({"type":"message","role":"user","content":[{"type":"input_text","text":a},{"type":"input_text","text":b}]}))),
        t().prop_map(|a| ("response_item", json!({"type":"message","role":"assistant","content":[{"type":"output_text","text":a}]}))),
        t().prop_map(|a| ("response_item", json!({"type":"message","role":"developer","content":[{"type":"input_text","text":a}]}))),
        (t(), t()).prop_map(|(a, b)| ("response_item", json!({"type":"reasoning","summary":[{"type":"summary_text","text":a}],"content":[b],"encrypted_content":"zzz"}))),
        t().prop_map(|a| ("response_item", json!({"type":"function_call_output","call_id":"c","output":a}))),
        (t(), t()).prop_map(|(a, b)| ("response_item", json!({"type":"function_call","name":b,"arguments":json!({"command":["bash","-lc",a]}).to_string()}))),
        t().prop_map(|a| ("event_msg", json!({"type":"agent_message","message":a}))),
        t().prop_map(|a| ("event_msg", json!({"type":"user_message","message":a,"images":[],"kind":"plain"}))),
        t().prop_map(|a| ("event_msg", json!({"type":"agent_reasoning","text":a}))),
        (t(), t()).prop_map(|(a, b)| ("event_msg", json!({"type":"exec_command_end","command":[a, b],"aggregated_output":a,"exit_code":1}))),
        (t(), t()).prop_map(|(a, b)| ("event_msg", json!({"type":"item_completed","item":{"type":"CommandExecution","command":["bash","-lc",a],"aggregated_output":b,"parsed_cmd":[{"cmd":b}]}}))),
        (t(), t()).prop_map(|(a, b)| ("event_msg", json!({"type":"item_completed","item":{"type":"AgentMessage","content":[{"type":"Text","text":a},{"type":"Text","text":b}]}}))),
        (t(), t()).prop_map(|(a, b)| ("event_msg", json!({"type":"item_completed","item":{"type":"Reasoning","summary_text":[a],"raw_content":[b]}}))),
        t().prop_map(|a| ("event_msg", json!({"type":"task_complete","last_agent_message":a,"error":null}))),
        t().prop_map(|a| ("session_meta", json!({"id":"x","base_instructions":{"text":a}}))),
    ];
    let changes = proptest::collection::vec((any_key(), any_value()), 0..3);
    (common, changes, 0usize..4).prop_map(|((kind, mut payload), changes, place)| {
        for (key, value) in changes {
            let inner = match place {
                0 => payload.get_mut("item"),
                1 => payload.get_mut("content").and_then(|c| c.get_mut(0)),
                _ => None,
            };
            let target = match inner {
                Some(v) if v.is_object() => v,
                _ => &mut payload,
            };
            // The type stays, so that the line is taken for one of its kind.
            if key != "type" || place == 3 {
                target[key] = value;
            }
        }
        (kind, payload)
    })
}

/// Spells a JSON text otherwise: escapes for plain characters, `\/`.
fn respelt(json: &str, every: usize) -> String {
    let mut out = String::new();
    let mut in_string = false;
    let mut escaped = false;
    for (n, c) in json.chars().enumerate() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => in_string = !in_string,
            '/' if in_string && n % 2 == 0 => out.push('\\'),
            c if in_string && every > 0 && n % every == 0 => {
                let mut units = [0; 2];
                c.encode_utf16(&mut units).iter().for_each(|u| out.push_str(&format!("\\u{u:04X}")));
                continue;
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

fn any_line() -> impl Strategy<Value = String> {
    (any_payload(), any::<bool>(), 0usize..30, any::<bool>()).prop_map(|((kind, payload), ordinal, every, respell)| {
        let payload = if respell { respelt(&payload.to_string(), every) } else { payload.to_string() };
        let ordinal = if ordinal { ",\"ordinal\":7" } else { "" };
        format!(r#"{{"timestamp":"2026-01-01T00:00:00.000Z"{ordinal},"type":"{kind}","payload":{payload}}}"#)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nothing_is_missing_in_any_line(line in any_line()) {
        prop_assert_eq!(missing(line.as_bytes()), None, "{}", line);
    }

    #[test]
    fn nothing_is_missing_in_glued_and_damaged_lines(
        first in any_line(), second in any_line(), cut: prop::sample::Index, damage in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
    ) {
        let mut line = first.into_bytes();
        line.truncate(cut.index(line.len() + 1));
        line.extend(second.into_bytes());
        if let Some((at, byte)) = damage {
            let at = at.index(line.len());
            line[at] = byte;
        }
        line.retain(|b| *b != b'\n');
        prop_assert_eq!(missing(&line), None, "{}", String::from_utf8_lossy(&line));
    }
}
