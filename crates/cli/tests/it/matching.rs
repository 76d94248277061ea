//! Literal substrings in decoded text: escapes, Unicode case, JSON within JSON, long records, the edges of buffers.

use serde_json::{Value, json};

use crate::{
    home::{Home, ids},
    log::{Log, t},
};

const AT: &str = "2026-03-01T10:00:00Z";

/// A home whose T1 has one message of the user, its JSON spelt as given.
fn spelt(text: &str) -> Home {
    let home = Home::new();
    home.put(
        &Log::new(&t(1), AT)
            .meta()
            .record_text("event_msg", &format!("{{\"type\":\"user_message\",\"message\":\"{text}\"}}")),
    );
    home
}

#[track_caller]
fn hit(home: &Home, needle: &str) {
    let out = home.search(&[needle]);
    let mut threads = out.hit_threads();
    threads.dedup();
    assert_eq!(threads, ids([1]), "{needle:?}");
    let hit = &out.hits()[0];
    let snippet: Vec<char> = hit["snippet"].as_str().expect("a snippet").chars().collect();
    let place = |n: usize| usize::try_from(hit["match"][n].as_u64().expect("a place")).expect("a size");
    assert!(place(0) < place(1) && place(1) <= snippet.len(), "{hit}");
    if !needle.contains(char::is_whitespace) {
        let found: String = snippet[place(0)..place(1)].iter().collect();
        assert_eq!(found.chars().count(), needle.chars().count(), "{hit}");
    }
}

#[track_caller]
fn miss(home: &Home, needle: &str) {
    assert_eq!(home.search(&[needle]).code, 1, "{needle:?}");
}

/// Characters that JSON escapes are found as they were said.
#[test]
fn escaped_characters_are_found_as_said() {
    let home = Home::new();
    let text = "say \"quoted words\" in C:\\temp\\new\nsecond line\tafter a tab \u{1} control";
    home.put(&Log::new(&t(1), AT).meta().user(text));
    for needle in
        ["\"quoted words\"", "words\" in", "C:\\temp\\new", "\\new\nsecond", "line\tafter", "\u{1} control", "\\"]
    {
        hit(&home, needle);
    }
    for needle in ["\\nsecond", "\\\"", "\\\\", "\\u0001", "temp\\\\new"] {
        miss(&home, needle);
    }
}

/// Other writers escape more than they must.
#[test]
fn text_that_is_escaped_without_need() {
    let home =
        spelt("caf\\u00e9 in src\\/main.rs, n\\u0065edle, \\ud83d\\ude00 smile, \\u0022quotes\\u0022, \\u005cback");
    for needle in
        ["café", "CAFÉ", "src/main.rs", "needle", "NEEDLE", "😀", "😀 smile", "\"quotes\"", "\\back", "in src/"]
    {
        hit(&home, needle);
    }
    for needle in ["u00e9", "\\u00e9", "\\/", "ud83d", "u0065"] {
        miss(&home, needle);
    }
}

/// Half a surrogate pair is one bad character, not a bad thread.
#[test]
fn lone_surrogates_cost_at_most_their_record() {
    let home = Home::new();
    let bad = "{\"type\":\"agent_message\",\"message\":\"torn \\ud83d emoji\"}";
    home.put(&Log::new(&t(1), AT).meta().user("before it").record_text("event_msg", bad).agent("after it"));
    hit(&home, "before it");
    hit(&home, "after it");
    assert!(home.show(&[&t(1)]).said().contains("after it"));
}

/// Case is that of Unicode, in both directions.
#[test]
fn unicode_case() {
    let home = Home::new();
    let text = "École élan; Straße; ПРИВЕТ мир; 300 \u{212a}elvin; ΑΒΓδ; ǅ; Ünïcode; Ångström \u{17f}o";
    home.put(&Log::new(&t(1), AT).meta().user(text));
    for needle in [
        "école",
        "ÉCOLE",
        "ÉLAN",
        "straße",
        "STRAßE",
        "привет МИР",
        "300 kelvin",
        "KELVIN",
        "αβγΔ",
        "üNÏCODE",
        "ångström",
        "so",
    ] {
        hit(&home, needle);
    }
    for needle in ["strasse", "STRASSE", "ecole", "unicode"] {
        miss(&home, needle);
    }
}

/// The other way: plain letters in the text, a sign of the same letter in the needle.
#[test]
fn unicode_case_of_the_needle() {
    let home = Home::new();
    home.put(&Log::new(&t(1), AT).meta().user("kelvin and strange"));
    hit(&home, "\u{212a}elvin");
    hit(&home, "KELVIN");
    hit(&home, "\u{17f}trange");
}

/// `--case-sensitive` takes the needle at its word.
#[test]
fn case_sensitive() {
    let home = Home::new();
    home.put(&Log::new(&t(1), AT).meta().user("Fix the Parser, \u{c9}cole"));
    hit(&home, "fix the parser");
    for (needle, code) in
        [("Fix the Parser", 0), ("fix the parser", 1), ("PARSER", 1), ("École", 0), ("école", 1), ("P", 0), ("p", 1)]
    {
        assert_eq!(home.search(&[needle, "--case-sensitive"]).code, code, "{needle}");
    }
}

/// Nothing in a needle is a pattern, and a needle may look like a flag.
#[test]
fn needles_are_literal() {
    let home = Home::new();
    home.put(&Log::new(&t(1), AT).meta().user("a.b*c [x] 100% $HOME ^start {} --flag \\d+ (|) ?"));
    for needle in ["a.b*c", "[x]", "100%", "$HOME", "^start", "{}", "\\d+", "(|)", "c [x] 1", "?"] {
        hit(&home, needle);
    }
    for needle in ["a.*c", "a?b", "[a-z]", "aXb"] {
        miss(&home, needle);
    }
    assert_eq!(home.run(&["search", "--", "--flag"]).code, 0);
    for name in ["101%", "_"] {
        assert!(home.list(&["--match", name]).ids().is_empty());
    }
}

/// The arguments of a call are JSON within JSON.
#[test]
fn arguments_are_decoded_twice() {
    let home = Home::new();
    let log = Log::new(&t(1), AT).meta().call("c1", "grep \"quoted needle\" C:\\dir | awk '{print $1}'\nsecond café");
    home.put(&log.response(
        json!({"type": "function_call", "name": "patch", "call_id": "c2", "arguments": "not JSON \"at all\""}),
    ));
    for needle in
        ["\"quoted needle\"", "C:\\dir", "needle\" C:", "{print $1}", "second café", "CAFÉ", "not JSON \"at all\""]
    {
        let out = home.search(&[needle]);
        assert_eq!(out.speakers(), ["tool_call"], "{needle}");
    }
    miss(&home, "\\\"quoted");
    miss(&home, "\\nsecond");
}

/// Arguments with escapes in the inner JSON, as an object, as nothing.
#[test]
fn arguments_of_other_shapes() {
    let home = Home::new();
    let call = |log: Log, arguments: Value| {
        log.response(json!({"type": "function_call", "name": "x", "call_id": "c", "arguments": arguments}))
    };
    let log = call(Log::new(&t(1), AT).meta(), json!("{\"cmd\":\"caf\\u00e9 src\\/lib.rs\"}"));
    let log = call(log, json!({"cmd": "object needle"}));
    home.put(&call(log, Value::Null).agent("and after"));
    for needle in ["café src/lib.rs", "object needle", "and after"] {
        hit(&home, needle);
    }
}

/// Tool output in its many shapes: text, JSON in a string, a list of parts.
#[test]
fn outputs_of_every_shape() {
    let home = Home::new();
    let out = |log: Log, output: Value| {
        log.response(json!({"type": "function_call_output", "call_id": "c", "output": output}))
    };
    let log = out(Log::new(&t(1), AT).meta(), json!("Exit code: 0\nWall time: 1 seconds\nOutput:\nplain \"needle\""));
    let log = out(log, json!("{\"output\":\"inner \\\"needle\\\"\\nline two\",\"metadata\":{\"exit_code\":0}}"));
    let log = out(
        log,
        json!([{"type": "input_text", "text": "part needle"}, {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]),
    );
    home.put(&out(log, json!({"content": "object needle", "success": true})));
    for needle in ["plain \"needle\"", "inner \"needle\"", "part needle", "object needle"] {
        let found = home.search(&[needle]);
        assert_eq!(found.speakers(), ["tool_output"], "{needle}");
    }
}

/// A needle that lies over the edge of a read buffer.
#[test]
fn needles_over_the_edges_of_buffers() {
    let needle = "the-needle-itself";
    for edge in [8_192, 65_536, 131_072, 262_144] {
        let home = Home::new();
        for (n, back) in (1..).zip([0, 1, 2, 8, 16, 17]) {
            let log = Log::new(&t(n), AT).meta();
            let head = log.clone().user("").len() - "\"}}\n".len();
            home.put(&log.user(&format!("{}{needle}{}", "x".repeat(edge - head - back), "y".repeat(40))));
        }
        let mut found = home.search(&[needle]).hit_threads();
        found.sort();
        assert_eq!(found, ids(1..=6), "{edge}");
    }
}

/// Text beyond 8 MiB within one record, at several depths, and what is no text there.
#[test]
fn text_beyond_eight_mebibytes_of_a_record() {
    let home = Home::new();
    let mib = "x".repeat(1 << 20);
    let mut text = String::new();
    for n in 0..12 {
        text += &format!("<depth-{n}-é\"q\">{mib}");
    }
    let secret = format!("{}deep-secret{}", "A".repeat(9 << 20), "B".repeat(64));
    let log = Log::new(&t(1), AT).meta().user("small").call("c1", "cat big").out("c1", &text);
    let log = log.response(json!({"type": "reasoning", "summary": [], "encrypted_content": secret}));
    home.put(&log.agent("after both"));
    for n in [0, 7, 8, 11] {
        let out = home.search(&[&format!("<depth-{n}-É\"q\">")]);
        assert_eq!(out.speakers(), ["tool_output"], "{n}");
    }
    miss(&home, "deep-secret");
    hit(&home, "after both");
    hit(&home, "small");
    assert_eq!(home.list(&[]).thread(&t(1))["preview"], "small");
}

/// A long message of the user, of a patch and of arguments is text as well.
#[test]
fn long_records_of_other_kinds() {
    let home = Home::new();
    let long = "y".repeat(9 << 20);
    let log = Log::new(&t(1), AT).meta().user(&format!("begin {long} deep-user"));
    let log = log.call("c1", &format!("{long} \"deep-call\""));
    let log = log.response(json!({"type": "custom_tool_call", "name": "apply_patch", "call_id": "c2", "input": format!("*** Begin Patch\n+{long} deep-patch\n*** End Patch")}));
    home.put(&log.agent(&format!("{long} deep-agent")));
    for (needle, speaker) in
        [("deep-user", "user"), ("\"deep-call\"", "tool_call"), ("deep-patch", "patch"), ("deep-agent", "agent")]
    {
        assert_eq!(home.search(&[needle]).speakers(), [speaker]);
    }
    let out = home.list(&[]);
    let preview = &out.thread(&t(1))["preview"];
    assert!(preview.as_str().is_none_or(|preview| preview.starts_with("begin yyy")), "cut or left open, never guessed");
}

/// Snippets stay short, on one line, and keep the match.
#[test]
fn snippets_are_short() {
    let home = Home::new();
    let around = "word\n ".repeat(5_000);
    home.put(&Log::new(&t(1), AT).meta().user(&format!("{around}the-match{around}")));
    let out = home.search(&["the-match"]);
    let snippet = out.hits()[0]["snippet"].as_str().expect("a snippet");
    assert!(snippet.contains("the-match") && snippet.chars().count() < 600, "{}", snippet.len());
    hit(&home, "the-match");
    let human = home.human(&["search", "the-match"]);
    assert!(human.stdout.contains("the-match") && human.stdout.lines().count() < 12, "{}", human.stdout);
}
