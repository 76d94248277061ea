//! Roots, selections and where they come from: the wire form, what survives reading and writing, the rule of keeping.

use serde_json::{Value, json};
use threadkeep_capability::{
    CapabilityError, CapabilityRootSelection, PathUri, SelectedCapabilityRoot, SelectionEntry, put_in_session_meta,
    selection_for_fork, selection_for_new_thread, selection_for_resume, selection_from_request,
    selection_from_session_meta, session_meta_field,
};

fn root(id: &str, environment: &str, path: &str) -> SelectedCapabilityRoot {
    SelectedCapabilityRoot::new(id, environment, PathUri::parse(path).unwrap())
}

fn to_json<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap()
}

#[test]
fn the_wire_form() {
    let text = r#"{"id":"a","location":{"type":"environment","environmentId":"worker","path":"file:///opt/a%20b"}}"#;
    assert_eq!(to_json(&root("a", "worker", "/opt/a b")), text);
    let read: SelectedCapabilityRoot = serde_json::from_str(text).unwrap();
    assert_eq!(read, root("a", "worker", "/opt/a b"));
    assert_eq!(to_json(&read), text);
    assert_eq!(serde_json::from_value::<SelectedCapabilityRoot>(serde_json::from_str(text).unwrap()).unwrap(), read);
}

#[test]
fn what_is_not_known_of_a_root_survives_in_place_and_spelling() {
    for text in [
        r#"{"id":"a","location":{"type":"environment","environmentId":"w","path":"file:///a"},"x":1}"#,
        r#"{"x":{"deep":[1.50,1e400,-0.0,18446744073709551616]},"location":{"y":null,"path":"file:///a","environmentId":"w","type":"environment"},"id":"a"}"#,
        r#"{"id":"\u0061\/","location":{"type":"environment","environmentId":"w","path":"file:///a","z":"\u00e9\\n"}}"#,
    ] {
        let read: SelectedCapabilityRoot = serde_json::from_str(text).unwrap();
        assert_eq!(to_json(&read), text);
        assert_eq!(read.environment_id().as_str(), "w");
        let list: CapabilityRootSelection = serde_json::from_str(&format!("[{text}]")).unwrap();
        assert_eq!(to_json(&list), format!("[{text}]"));
    }
}

#[test]
fn a_legacy_path_is_converted_and_the_rest_stays() {
    let text =
        r#"{"x":1.50,"id":"a","location":{"k":[],"path":"C:\\Users\\me","type":"environment","environmentId":"w"}}"#;
    let read: SelectedCapabilityRoot = serde_json::from_str(text).unwrap();
    assert_eq!(
        to_json(&read),
        r#"{"x":1.50,"id":"a","location":{"k":[],"path":"file:///C:/Users/me","type":"environment","environmentId":"w"}}"#
    );
}

#[test]
fn a_root_over_several_lines_is_written_on_one() {
    let pretty = serde_json::to_string_pretty(&json!([
        {"id": "a b", "location": {"type": "environment", "environmentId": "w", "path": "file:///a"}, "x": [1, {"y": "\n"}]},
        {"other": [1, 2]},
    ]))
    .unwrap();
    let list: CapabilityRootSelection = serde_json::from_str(&pretty).unwrap();
    let written = to_json(&list);
    assert!(!written.contains('\n'), "{written}");
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), serde_json::from_str::<Value>(&pretty).unwrap());
}

#[test]
fn what_is_not_a_root_is_refused_with_a_reason() {
    for (text, reason) in [
        (r#"{"location":{"type":"environment","environmentId":"w","path":"/a"}}"#, "missing field `id`"),
        (r#"{"id":"a"}"#, "missing field `location`"),
        (
            r#"{"id":"a","id":"a","location":{"type":"environment","environmentId":"w","path":"/a"}}"#,
            "duplicate field `id`",
        ),
        (r#"{"id":7,"location":{"type":"environment","environmentId":"w","path":"/a"}}"#, "invalid field `id`"),
        (r#"{"id":"a","location":"/a"}"#, "invalid field `location`"),
        (r#"{"id":"a","location":{"type":"later","environmentId":"w","path":"/a"}}"#, "unknown location type `later`"),
        (r#"{"id":"a","location":{"type":"environment","path":"/a"}}"#, "missing field `environmentId`"),
        (r#"{"id":"a","location":{"type":"environment","environmentId":"w","path":"a"}}"#, "path `a` is not absolute"),
        ("[]", "an object"),
        ("null", "an object"),
    ] {
        let error = serde_json::from_str::<SelectedCapabilityRoot>(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn one_member_that_is_no_root_costs_no_other() {
    let text = r#"[{"id":"a","location":{"type":"environment","environmentId":"w","path":"file:///a"}},{"id":"b","location":{"type":"later","at":1.0}},7,{"id":"c","location":{"type":"environment","environmentId":"w","path":"file:///c"}}]"#;
    let list: CapabilityRootSelection = serde_json::from_str(text).unwrap();
    assert_eq!(list.roots().map(SelectedCapabilityRoot::id).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(list.unread().count(), 2);
    assert!(matches!(&list.entries()[1], SelectionEntry::Unread(u) if u.reason().to_string().contains("`later`")));
    assert_eq!(to_json(&list), text);
    assert_eq!(list.environments().len(), 1);
}

#[test]
fn order_and_repeats_are_kept() {
    let list: CapabilityRootSelection =
        [root("b", "w", "/1"), root("a", "x", "/2"), root("b", "w", "/3"), root("b", "w", "/1")].into_iter().collect();
    let again: CapabilityRootSelection = serde_json::from_str(&to_json(&list)).unwrap();
    assert_eq!(again, list);
    assert_eq!(
        again.roots().map(|r| r.path().as_str()).collect::<Vec<_>>(),
        ["file:///1", "file:///2", "file:///3", "file:///1"]
    );
    assert_eq!(again.get("b").unwrap().path().as_str(), "file:///1");
    assert_eq!(again.get("c"), None);
}

#[test]
fn requests_say_none_nothing_or_a_list() {
    let read = |params: &str| selection_from_request(params);
    assert_eq!(read("{}"), Ok(None));
    assert_eq!(read(r#"{"selectedCapabilityRoots":null}"#), Ok(None));
    assert_eq!(read(r#"{"selectedCapabilityRoots":[]}"#), Ok(Some(CapabilityRootSelection::default())));
    let one = r#"{"cwd":"/x","selectedCapabilityRoots":[{"id":"a","location":{"type":"environment","environmentId":"w","path":"/a"}}]}"#;
    assert_eq!(read(one), Ok(Some(vec![root("a", "w", "/a")].into())));
    assert!(matches!(read(r#"{"selectedCapabilityRoots":"x"}"#), Err(CapabilityError::InvalidList { .. })));
    assert!(matches!(read("7"), Err(CapabilityError::InvalidList { .. })));
    // One bad member refuses a request, unlike a stored list.
    assert!(matches!(read(r#"{"selectedCapabilityRoots":[7]}"#), Err(CapabilityError::InvalidRoot { .. })));
}

fn meta(id: &str, roots: Option<&CapabilityRootSelection>) -> String {
    let mut payload = json!({"id": id, "cwd": "/x", "history_mode": "legacy"});
    if let Some(roots) = roots {
        put_in_session_meta(roots, payload.as_object_mut().unwrap()).unwrap();
    }
    payload.to_string()
}

#[test]
fn headers_without_the_field_say_none() {
    let none = Ok(CapabilityRootSelection::default());
    assert_eq!(selection_from_session_meta(&meta("t", None)), none);
    assert_eq!(selection_from_session_meta(r#"{"selected_capability_roots":null}"#), none);
    assert_eq!(selection_from_session_meta(r#"{"selected_capability_roots":[]}"#), none);
    assert!(matches!(
        selection_from_session_meta(r#"{"selected_capability_roots":{}}"#),
        Err(CapabilityError::InvalidList { .. })
    ));
}

#[test]
fn an_empty_selection_is_left_out_of_a_header() {
    let empty = CapabilityRootSelection::default();
    assert!(session_meta_field(&empty).is_none());
    let mut payload = json!({"a": 1, "selected_capability_roots": [7], "b": 2});
    put_in_session_meta(&empty, payload.as_object_mut().unwrap()).unwrap();
    assert_eq!(payload.to_string(), r#"{"a":1,"b":2}"#);
}

#[test]
fn a_header_keeps_what_is_not_known() {
    let text = r#"[{"id":"a","location":{"type":"environment","environmentId":"w","path":"file:///a"},"later":1e400}]"#;
    let header = format!(r#"{{"id":"t","selected_capability_roots":{text}}}"#);
    let selection = selection_from_session_meta(&header).unwrap();
    assert_eq!(session_meta_field(&selection).unwrap().get(), text);
    // A `Value` cannot hold that number; nothing is written half.
    let mut payload = json!({"id": "t"});
    assert!(put_in_session_meta(&selection, payload.as_object_mut().unwrap()).is_err());
    assert_eq!(payload, json!({"id": "t"}));
}

#[test]
fn an_explicit_list_wins_else_the_first_header_says() {
    let kept: CapabilityRootSelection = vec![root("kept", "w", "/kept")].into();
    let copied: CapabilityRootSelection = vec![root("copied", "w", "/copied")].into();
    let explicit: CapabilityRootSelection = vec![root("explicit", "w", "/explicit")].into();
    let empty = CapabilityRootSelection::default();
    let metas = [meta("t", Some(&kept)), meta("source", Some(&copied))];
    let history = || metas.iter().map(String::as_str);

    assert_eq!(selection_for_new_thread(None), empty);
    assert_eq!(selection_for_new_thread(Some(explicit.clone())), explicit);

    assert_eq!(selection_for_resume(None, history()), Ok(kept.clone()));
    assert_eq!(selection_for_resume(Some(explicit.clone()), history()), Ok(explicit.clone()));
    assert_eq!(selection_for_resume(Some(empty.clone()), history()), Ok(empty.clone()), "an empty list is explicit");
    assert_eq!(selection_for_resume(None, []), Ok(empty.clone()));
    // A later header never adds what the first does not say.
    let later = [meta("t", None), meta("source", Some(&copied))];
    assert_eq!(selection_for_resume(None, later.iter().map(String::as_str)), Ok(empty.clone()));
    // What is not needed is not read.
    assert_eq!(selection_for_resume(Some(explicit.clone()), ["damaged"]), Ok(explicit.clone()));
    assert!(selection_for_resume(None, ["damaged"]).is_err());

    assert_eq!(selection_for_fork(None, Some(&metas[0])), Ok(kept));
    assert_eq!(selection_for_fork(None, None), Ok(empty));
    assert_eq!(selection_for_fork(Some(explicit.clone()), Some(&metas[0])), Ok(explicit));
}
