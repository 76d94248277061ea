//! What stands for a thread in a list: preview, title, first message; and which text was never typed by a person.

/// Everything up to and including this marker was put before the person's text by an editor.
pub const REQUEST_MARKER: &str = "## My request for Codex:";

/// Preview of a message that holds only images.
pub const IMAGE_PREVIEW: &str = "[Image]";

/// The person's own text in a user message: what follows the marker, trimmed (`thread-store.md` 1.9).
#[must_use]
pub fn strip_request_prefix(message: &str) -> &str {
    match message.find(REQUEST_MARKER) {
        Some(at) => message[at + REQUEST_MARKER.len()..].trim(),
        None => message.trim(),
    }
}

/// The preview that a user message gives: its own text, else `[Image]` if it holds images, else nothing.
#[must_use]
pub fn message_preview(message: &str, has_images: bool) -> Option<&str> {
    match strip_request_prefix(message) {
        "" if has_images => Some(IMAGE_PREVIEW),
        "" => None,
        text => Some(text),
    }
}

/// Whether a piece of a `user` message in the model's input was put there by a program rather than typed
/// (environment, instructions, notices). Only needed where a file has no `user_message` events to tell it.
#[must_use]
pub fn is_injected(text: &str) -> bool {
    let text = text.trim_start();
    if text.starts_with("# AGENTS.md instructions") || text.starts_with("<INSTRUCTIONS>") {
        return true;
    }
    let Some(rest) = text.strip_prefix('<') else { return false };
    let Some(end) = rest.bytes().take(48).position(|b| b == b'>' || b == b' ') else { return false };
    let tag = &rest[..end];
    const TAGS: &[&str] = &[
        "environment_context",
        "environments",
        "user_instructions",
        "user_action",
        "user_shell_command",
        "permissions",
        "skill",
        "skills",
        "skills_instructions",
        "turn_aborted",
        "subagent_notification",
        "collaboration_mode",
        "personality_spec",
        "model_switch",
        "apps_instructions",
        "plugins_instructions",
        "realtime_conversation",
        "image",
        "hook_prompt",
        "goal_context",
    ];
    if TAGS.contains(&tag) {
        // `<image name=[Image #1]>` is a label beside an attached picture; `<image>` may be typed.
        return tag != "image" || rest[end..].starts_with(" name=");
    }
    const SUFFIXES: &[&str] = &["_instructions", "_context", "_notification", "_spec"];
    SUFFIXES.iter().any(|s| tag.ends_with(s)) && text.trim_end().ends_with(&format!("</{tag}>"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marker_rules() {
        assert_eq!(message_preview("# Context\nfile\n## My request for Codex:\n fix it \n", false), Some("fix it"));
        assert_eq!(message_preview("## My request for Codex:\n\n", false), None);
        assert_eq!(message_preview("  ", true), Some("[Image]"));
        assert_eq!(
            message_preview("a ## My request for Codex: b ## My request for Codex: c", false),
            Some("b ## My request for Codex: c")
        );
    }

    #[test]
    fn injected_and_typed() {
        for text in [
            "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>",
            "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>",
            "<permissions instructions>x",
            "<new_agent_instructions>a</new_agent_instructions>",
            "<image name=[Image #1]>",
        ] {
            assert!(is_injected(text), "{text}");
        }
        for text in [
            "fix the parser",
            "<div>why?</div>",
            "<my_tag>look</my_tag>",
            "# AGENTS.md is wrong",
            "< 3",
            "<",
            "<image>",
            "<config_context>unclosed",
        ] {
            assert!(!is_injected(text), "{text}");
        }
    }
}
