//! Arguments, outputs and patches, as a person reads them.

use serde_json::Value;

use super::{FileChange, Image, ItemBody, text_of};

/// Size of what `len` base64 characters decode to.
#[must_use]
pub fn decoded_len(len: usize) -> u64 {
    (len as u64) / 4 * 3
}

/// All texts of a list: of its strings, and of the `text` of its objects.
#[must_use]
pub fn texts(list: Option<&Value>) -> Vec<String> {
    let Some(Value::Array(list)) = list else { return vec![] };
    list.iter().filter_map(|v| v.as_str().or_else(|| text_of(v, "text"))).map(str::to_owned).collect()
}

/// The text of message content: a string, or the texts of its parts.
#[must_use]
pub fn content_text(content: Option<&Value>) -> String {
    match content {
        Some(Value::String(s)) => s.clone(),
        Some(list) => texts(Some(list)).join("\n"),
        None => String::new(),
    }
}

/// The picture that a content part holds, if it is one.
#[must_use]
pub fn image(part: &Value) -> Option<Image> {
    let url = match part.get("image_url") {
        Some(Value::String(s)) => Some(s.as_str()),
        Some(o) => text_of(o, "url"),
        None => None,
    };
    if let Some(url) = url {
        return Some(image_from_url(url));
    }
    match text_of(part, "type") {
        Some("local_image" | "image" | "input_image") => {
            let label = text_of(part, "path").or_else(|| text_of(part, "url")).unwrap_or("image");
            Some(image_from_url(label))
        }
        _ => None,
    }
}

/// A picture from its URL or path; of a data URL only type and size are kept.
#[must_use]
pub fn image_from_url(url: &str) -> Image {
    match url.strip_prefix("data:").and_then(|u| u.split_once(',')) {
        Some((kind, data)) => {
            Image { label: kind.split(';').next().unwrap_or("image").to_owned(), bytes: Some(decoded_len(data.len())) }
        }
        None => Image { label: url.chars().take(300).collect(), bytes: None },
    }
}

/// A command as a person types it: the script of `bash -lc SCRIPT`, else the words.
#[must_use]
pub fn command_text(command: &Value) -> Option<String> {
    match command {
        Value::String(s) => Some(s.clone()),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            let shell = words
                .first()
                .is_some_and(|w| matches!(w.rsplit(['/', '\\']).next(), Some("bash" | "sh" | "zsh" | "dash")));
            match words.as_slice() {
                [_, "-lc" | "-c", script] if shell => Some((*script).to_owned()),
                [] => None,
                _ => Some(words.join(" ")),
            }
        }
        _ => None,
    }
}

/// A tool call from its arguments: JSON, or a string that holds JSON.
#[must_use]
pub fn call(name: &str, arguments: Option<&Value>) -> ItemBody {
    let parsed;
    let arguments = match arguments {
        Some(Value::String(s)) => match serde_json::from_str::<Value>(s) {
            Ok(v) if v.is_object() || v.is_array() => {
                parsed = v;
                &parsed
            }
            _ => return ItemBody::ToolCall { name: name.to_owned(), text: s.clone(), values: vec![s.clone()] },
        },
        Some(v) => v,
        None => &Value::Null,
    };
    if name == "update_plan"
        && let Some(plan) = plan_text(arguments)
    {
        return ItemBody::Plan { text: plan };
    }
    if name == "apply_patch"
        && let Some(patch) = text_of(arguments, "input").or_else(|| text_of(arguments, "patch"))
    {
        return ItemBody::Patch { changes: envelope_changes(patch), status: None };
    }
    let mut values = Vec::new();
    collect_strings(arguments, &mut values);
    let command = ["cmd", "command", "script"].iter().find_map(|k| command_text(arguments.get(k)?));
    let text = match command {
        Some(command) => {
            // The words of an array are searchable as the line that a person reads.
            values.push(command.clone());
            values.dedup();
            command
        }
        None => readable(arguments),
    };
    ItemBody::ToolCall { name: name.to_owned(), text, values }
}

/// A custom tool call: free text, a patch when the tool is `apply_patch`.
#[must_use]
pub fn custom_call(name: &str, input: &str) -> ItemBody {
    if name == "apply_patch" {
        return ItemBody::Patch { changes: envelope_changes(input), status: None };
    }
    ItemBody::ToolCall { name: name.to_owned(), text: input.to_owned(), values: vec![input.to_owned()] }
}

fn plan_text(arguments: &Value) -> Option<String> {
    let mut lines: Vec<String> =
        text_of(arguments, "explanation").filter(|s| !s.is_empty()).map(str::to_owned).into_iter().collect();
    for step in arguments.get("plan")?.as_array()? {
        let mark = match text_of(step, "status") {
            Some("completed") => "x",
            Some("in_progress") => "~",
            _ => " ",
        };
        lines.push(format!("[{mark}] {}", text_of(step, "step").unwrap_or("")));
    }
    Some(lines.join("\n"))
}

fn collect_strings(v: &Value, into: &mut Vec<String>) {
    match v {
        Value::String(s) if is_data(s) => {}
        Value::String(s) => into.push(s.clone()),
        Value::Number(n) => into.push(n.to_string()),
        Value::Array(a) => a.iter().for_each(|v| collect_strings(v, into)),
        Value::Object(o) => o.values().for_each(|v| collect_strings(v, into)),
        _ => {}
    }
}

/// Whether a string is binary data spelt as text: a data URL, or a long run of base64.
fn is_data(s: &str) -> bool {
    let base64 = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_');
    s.starts_with("data:") && s.contains(";base64,") || s.len() >= 1024 && s.bytes().all(base64)
}

fn readable(v: &Value) -> String {
    match v {
        Value::Null => String::new(),
        Value::String(s) => s.clone(),
        Value::Object(o) => o.iter().map(|(k, v)| format!("{k}: {}", readable_value(v))).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    }
}

fn readable_value(v: &Value) -> String {
    match v.as_str() {
        Some(s) if is_data(s) => format!("({} bytes of data)", decoded_len(s.len())),
        Some(s) => s.to_owned(),
        None => v.to_string(),
    }
}

/// A web search: its query, and all queries of its action.
#[must_use]
pub fn web_search(p: &Value) -> ItemBody {
    let mut values: Vec<String> =
        text_of(p, "query").filter(|q| !q.is_empty()).map(str::to_owned).into_iter().collect();
    collect_strings(p.get("action").unwrap_or(&Value::Null), &mut values);
    values.dedup();
    let text = values.first().cloned().unwrap_or_default();
    ItemBody::ToolCall { name: "web_search".into(), text, values }
}

/// A text, and below it what else is said in a value (the answers of other agents).
#[must_use]
pub fn joined(text: &str, more: Option<&Value>) -> String {
    let mut lines: Vec<String> = Some(text.to_owned()).filter(|t| !t.is_empty()).into_iter().collect();
    collect_strings(more.unwrap_or(&Value::Null), &mut lines);
    lines.join("\n")
}

/// A call as one line: its name and the texts of its arguments.
#[must_use]
pub fn call_line(name: &str, arguments: Option<&Value>) -> Option<String> {
    let mut values = Vec::new();
    collect_strings(arguments?, &mut values);
    Some(format!("{name} {}", values.join(" ")))
}

/// An answer together with the call that it tells, too.
#[must_use]
pub fn with_command(answer: ItemBody, line: Option<String>) -> ItemBody {
    match answer {
        ItemBody::ToolOutput { text, exit_code, images, .. } => {
            ItemBody::ToolOutput { text, exit_code, images, command: line }
        }
        other => other,
    }
}

/// A tool's answer: a string, a string that holds `{"output", "metadata"}`, content parts, or any other JSON.
#[must_use]
pub fn output(v: Option<&Value>) -> ItemBody {
    let v = v.unwrap_or(&Value::Null);
    match v {
        Value::String(s) => {
            if s.starts_with('{')
                && let Ok(o) = serde_json::from_str::<Value>(s)
                && let Some(text) = text_of(&o, "output")
                // The shell tools' own wrapper; any other JSON is the answer itself.
                && o.as_object().is_some_and(|o| o.keys().all(|k| k == "output" || k == "metadata"))
            {
                let exit_code = o.get("metadata").and_then(|m| m.get("exit_code")).and_then(Value::as_i64);
                return ItemBody::ToolOutput { text: text.to_owned(), exit_code, images: vec![], command: None };
            }
            let (text, exit_code) = strip_header(s);
            ItemBody::ToolOutput { text: text.to_owned(), exit_code, images: vec![], command: None }
        }
        Value::Array(parts) => parts_output(parts),
        Value::Object(o) => {
            if let Some(Value::Array(parts)) = o.get("content") {
                return parts_output(parts);
            }
            if let Some(text) = text_of(v, "content").or_else(|| text_of(v, "output")) {
                return output(Some(&Value::String(text.to_owned())));
            }
            let mut strings = Vec::new();
            collect_strings(v, &mut strings);
            ItemBody::ToolOutput { text: strings.join("\n"), exit_code: None, images: vec![], command: None }
        }
        Value::Null => ItemBody::ToolOutput { text: String::new(), exit_code: None, images: vec![], command: None },
        other => ItemBody::ToolOutput { text: other.to_string(), exit_code: None, images: vec![], command: None },
    }
}

fn parts_output(parts: &[Value]) -> ItemBody {
    let mut exit_code = None;
    let mut text = Vec::new();
    let mut images = Vec::new();
    for part in parts {
        if let Some(image) = image(part) {
            images.push(image);
        } else if let Some(t) = part.as_str().or_else(|| text_of(part, "text")) {
            let (t, code) = strip_header(t);
            exit_code = exit_code.or(code);
            text.push(t.to_owned());
        } else {
            let mut strings = Vec::new();
            collect_strings(part, &mut strings);
            text.extend(strings);
        }
    }
    ItemBody::ToolOutput { text: text.join("\n"), exit_code, images, command: None }
}

/// Takes the lines that the shell tools put before the output (`Exit code: 0`, `Wall time: …`, `Chunk ID: …`) off,
/// and the exit code out of them. A text without such lines is left whole.
#[must_use]
pub fn strip_header(text: &str) -> (&str, Option<i64>) {
    const LINES: &[&str] = &[
        "Exit code:",
        "Wall time:",
        "Chunk ID:",
        "Process exited with code",
        "Process running with session ID",
        "Original token count:",
        "Total output lines:",
        "Command:",
    ];
    let mut rest = text;
    let mut code = None;
    let mut any = false;
    while let Some((line, after)) = rest.split_once('\n') {
        if line == "Output:" && any {
            rest = after;
            // The shell inside the unified tool writes its own header under the first.
            if LINES[..2].iter().any(|l| after.starts_with(l)) {
                continue;
            }
            return (rest, code);
        }
        if line.starts_with("Command:") && !any && !after.starts_with("Chunk ID:") {
            break;
        }
        let Some(known) = LINES.iter().find(|l| line.starts_with(**l)) else { break };
        any = true;
        if matches!(*known, "Exit code:" | "Process exited with code") {
            code = line[known.len()..].trim().parse().ok().or(code);
        }
        rest = after;
    }
    if any && code.is_some() { (rest, code) } else { (text, code) }
}

/// File changes of `patch_apply_end` and `FileChange`, in both of their forms.
#[must_use]
pub fn file_changes(v: Option<&Value>) -> Vec<FileChange> {
    let Some(Value::Object(files)) = v else { return vec![] };
    files
        .iter()
        .map(|(path, change)| {
            let (kind, body) = match text_of(change, "type") {
                Some(kind) => (kind.to_owned(), change),
                None => change
                    .as_object()
                    .and_then(|o| o.iter().next())
                    .map_or(("update".into(), change), |(k, v)| (k.clone(), v)),
            };
            let content = text_of(body, "content").unwrap_or("");
            let diff = match kind.as_str() {
                "add" => prefixed('+', content),
                "delete" => prefixed('-', content),
                _ => text_of(body, "unified_diff").unwrap_or(content).to_owned(),
            };
            let path = match text_of(body, "move_path") {
                Some(to) => format!("{path} -> {to}"),
                None => path.clone(),
            };
            FileChange { path, kind, diff }
        })
        .collect()
}

fn prefixed(mark: char, content: &str) -> String {
    content.lines().map(|l| format!("{mark}{l}\n")).collect()
}

/// The files of a `*** Begin Patch` text. Anything before the first file header is kept with no path.
#[must_use]
pub fn envelope_changes(patch: &str) -> Vec<FileChange> {
    let mut changes: Vec<FileChange> = Vec::new();
    for line in patch.lines() {
        let header = [("*** Add File: ", "add"), ("*** Update File: ", "update"), ("*** Delete File: ", "delete")];
        if let Some((path, kind)) = header.iter().find_map(|(h, k)| Some((line.strip_prefix(h)?, *k))) {
            changes.push(FileChange { path: path.to_owned(), kind: kind.to_owned(), diff: String::new() });
        } else if let (Some(to), Some(last)) = (line.strip_prefix("*** Move to: "), changes.last_mut()) {
            last.path = format!("{} -> {to}", last.path);
        } else if matches!(line, "*** Begin Patch" | "*** End Patch" | "*** End of File") {
        } else {
            if changes.is_empty() {
                changes.push(FileChange { path: String::new(), kind: "update".into(), diff: String::new() });
            }
            if let Some(last) = changes.last_mut() {
                last.diff.push_str(line);
                last.diff.push('\n');
            }
        }
    }
    changes
}

/// A review's verdict and findings.
#[must_use]
pub fn review_text(v: Option<&Value>) -> String {
    let Some(v) = v else { return String::new() };
    if let Some(s) = v.as_str() {
        return s.to_owned();
    }
    let mut lines: Vec<String> = ["overall_correctness", "overall_explanation"]
        .iter()
        .filter_map(|k| text_of(v, k))
        .filter(|s| !s.is_empty())
        .map(str::to_owned)
        .collect();
    for finding in v.get("findings").and_then(Value::as_array).into_iter().flatten() {
        let parts: Vec<&str> =
            ["title", "body", "absolute_file_path"].iter().filter_map(|k| text_of(finding, k)).collect();
        lines.push(format!("- {}", parts.join(": ")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_json_within_json() {
        let ItemBody::ToolCall { text, values, .. } =
            call("exec_command", Some(&json!(r#"{"cmd":"rg -n \"foo\" src","workdir":"/w"}"#)))
        else {
            panic!()
        };
        assert_eq!(text, "rg -n \"foo\" src");
        assert!(values.contains(&"/w".to_owned()) && values.contains(&text));
        let ItemBody::ToolCall { text, .. } = call("shell", Some(&json!({"command":["bash","-lc","ls | wc"]}))) else {
            panic!()
        };
        assert_eq!(text, "ls | wc");
    }

    #[test]
    fn outputs_lose_their_header_and_nothing_else() {
        assert_eq!(
            strip_header(
                "Chunk ID: 2d\nWall time: 0.18 seconds\nProcess exited with code 3\nOriginal token count: 2\nOutput:\nhi\n"
            ),
            ("hi\n", Some(3))
        );
        assert_eq!(
            strip_header("Wall time: 0.0 seconds\nOutput:\nExit code: 0\nWall time: 0 seconds\nOutput:\nok\n"),
            ("ok\n", Some(0))
        );
        assert_eq!(strip_header("Output:\nx"), ("Output:\nx", None));
        assert_eq!(strip_header("Command: make\nfailed"), ("Command: make\nfailed", None));
        let ItemBody::ToolOutput { text, exit_code, .. } =
            output(Some(&json!("{\"output\":\"A\\n\",\"metadata\":{\"exit_code\":1}}")))
        else {
            panic!()
        };
        assert_eq!((text.as_str(), exit_code), ("A\n", Some(1)));
        let ItemBody::ToolOutput { text, images, .. } = output(Some(
            &json!([{"type":"input_text","text":"a"},{"type":"input_image","image_url":"data:image/png;base64,AAAA"}]),
        )) else {
            panic!()
        };
        assert_eq!((text.as_str(), images[0].bytes, images[0].label.as_str()), ("a", Some(3), "image/png"));
    }

    #[test]
    fn patches_in_three_forms() {
        let c = envelope_changes(
            "*** Begin Patch\n*** Update File: a.rs\n*** Move to: b.rs\n@@\n-x\n+y\n*** Add File: n\n+z\n*** End Patch\n",
        );
        assert_eq!(
            (c[0].path.as_str(), c[0].diff.as_str(), c[1].kind.as_str()),
            ("a.rs -> b.rs", "@@\n-x\n+y\n", "add")
        );
        let c = file_changes(Some(
            &json!({"f":{"add":{"content":"a\nb\n"}},"g":{"type":"update","unified_diff":"@@","move_path":null}}),
        ));
        assert_eq!((c[0].diff.as_str(), c[1].diff.as_str()), ("+a\n+b\n", "@@"));
    }
}
