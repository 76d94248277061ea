//! Names of stores: one for each key, and a folder name on every file system.

use std::collections::BTreeMap;

use proptest::prelude::*;
use threadkeep_agent_home::{ConversationKind, StoreKey};

use crate::place::{Place, key, log, name, run, visible};

#[test]
fn codex_session_store_namespace_injective() {
    let profiles = [
        "",
        "default",
        "staging.prod",
        "stagingprod",
        "a-b",
        "a_b",
        "prod",
        "Prod",
        "PROD",
        "p_default",
        "p-default",
        "p=",
        " prod",
        "prod ",
        "prod/",
        "../prod",
        ".",
        "..",
        "é",
        "e\u{301}",
        "con",
        "nul",
        "a\0b",
        "日本",
    ];
    let mut seen = BTreeMap::new();
    for profile in profiles {
        let name = StoreKey::namespace_of(profile);
        let other = seen.insert(name.to_lowercase(), profile);
        assert_eq!(other, None, "{profile:?} and {other:?} share {name}");
        assert_eq!(name, StoreKey::namespace_of(profile));
    }
}

#[test]
fn codex_session_store_namespace_fits_directory_segment() {
    let place = Place::new();
    for length in [1, 119, 120, 121, 127, 255, 4096] {
        for letter in ["x", "X", "é"] {
            let key = key(&letter.repeat(length), &letter.repeat(length), &letter.repeat(length));
            for segment in key.segments() {
                assert!(segment.len() <= 255, "{length} of {letter}: {segment}");
            }
            std::fs::create_dir_all(place.dir.path().join(key.path())).unwrap();
        }
    }
}

#[test]
fn plain_ids_are_readable() {
    let key =
        StoreKey { kind: ConversationKind::Chat, ..key("team", "agent-7", "01990000-0000-7000-8000-000000000001") };
    assert_eq!(key.path(), "p-team/a-agent-7/chat-01990000-0000-7000-8000-000000000001");
}

#[test]
fn issues_and_chats_of_one_id_do_not_meet() {
    let place = Place::new();
    let issue = place.issue("one", "x");
    let mut chat = place.issue("two", "x");
    chat.key.as_mut().unwrap().kind = ConversationKind::Chat;
    let prefixed = place.issue("three", "chat_x");
    drop(run(&issue));
    place.write(format!("tasks/one/sessions/{}", name(1)), log(1));
    for (options, task) in [(chat, "two"), (prefixed, "three")] {
        drop(run(&options));
        assert!(visible(&place.task(task)).is_empty());
    }
}

fn any_key() -> impl Strategy<Value = StoreKey> {
    let text = prop_oneof![
        "[a-zA-Z0-9_.=/ -]{0,6}",
        "[a-z]{118,124}",
        any::<String>(),
        Just("default".to_owned()),
        Just("none".to_owned()),
        Just("issue".to_owned()),
    ];
    let kind = prop::sample::select(&ConversationKind::ALL[..]);
    (text.clone(), text.clone(), kind, text).prop_map(|(profile, agent, kind, id)| StoreKey {
        profile,
        agent,
        kind,
        id,
    })
}

proptest! {
    #[test]
    fn invariant_8_distinct_keys_have_distinct_stores(a in any_key(), b in any_key()) {
        let fold = |k: &StoreKey| k.path().to_lowercase();
        prop_assert_eq!(a == b, fold(&a) == fold(&b), "{:?} {:?}", a, b);
        for segment in a.segments() {
            prop_assert!((1..=255).contains(&segment.len()));
            prop_assert!(segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_=".contains(&b)));
        }
    }

    #[test]
    fn keys_that_differ_by_case_or_one_character_differ(id in "[a-zA-Z0-9_.-]{1,12}", at in 0usize..12) {
        let one = key("", "a", &id);
        let mut other = id.clone().into_bytes();
        let at = at % other.len();
        other[at] = if other[at].is_ascii_lowercase() { other[at].to_ascii_uppercase() } else { b'#' };
        let other = key("", "a", &String::from_utf8(other).unwrap());
        prop_assert_ne!(one.path().to_lowercase(), other.path().to_lowercase());
    }
}
