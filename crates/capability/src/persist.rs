//! Where a thread's selection comes from and how it is kept: pure functions over requests and headers
//! (`thread-store.md` 7.2). Only ids and paths are ever written, never a handle or whether it was ready.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::{CapabilityError, CapabilityRootSelection, SelectedCapabilityRoot};

/// The field of `thread/start` and its like.
pub const REQUEST_FIELD: &str = "selectedCapabilityRoots";

/// The field of a `session_meta` payload.
pub const SESSION_META_FIELD: &str = "selected_capability_roots";

/// The explicit list of a request's `params`: `None` where the field is absent or null. An empty list is explicit, too.
///
/// # Errors
///
/// [`CapabilityError::InvalidList`] if the field is not a list; what [`SelectedCapabilityRoot::from_json`] says of a
/// member that is not a root. A request is refused whole, as Codex does.
pub fn selection_from_request(params: &str) -> Result<Option<CapabilityRootSelection>, CapabilityError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        #[serde(borrow, default)]
        selected_capability_roots: Option<&'a RawValue>,
    }
    let invalid = |e: serde_json::Error| CapabilityError::InvalidList { field: REQUEST_FIELD, reason: e.to_string() };
    let params: Params<'_> = serde_json::from_str(params).map_err(invalid)?;
    let Some(list) = params.selected_capability_roots else { return Ok(None) };
    let members: Option<Vec<&RawValue>> = serde_json::from_str(list.get()).map_err(invalid)?;
    let Some(members) = members else { return Ok(None) };
    members.into_iter().map(|raw| SelectedCapabilityRoot::from_json(raw.get())).collect::<Result<_, _>>().map(Some)
}

/// What a header says: `payload` is the JSON of a `session_meta` record's payload. Absent or null is none. A member
/// that is not a root is kept beside the others.
///
/// # Errors
///
/// [`CapabilityError::InvalidList`] if the field is there and not a list, or the payload is no object.
pub fn selection_from_session_meta(payload: &str) -> Result<CapabilityRootSelection, CapabilityError> {
    #[derive(Deserialize)]
    struct Payload {
        #[serde(default)]
        selected_capability_roots: Option<CapabilityRootSelection>,
    }
    match serde_json::from_str::<Payload>(payload) {
        Ok(payload) => Ok(payload.selected_capability_roots.unwrap_or_default()),
        Err(e) => Err(CapabilityError::InvalidList { field: SESSION_META_FIELD, reason: e.to_string() }),
    }
}

/// The selection of a new thread: the request's, unset is none.
#[must_use]
pub fn selection_for_new_thread(explicit: Option<CapabilityRootSelection>) -> CapabilityRootSelection {
    explicit.unwrap_or_default()
}

/// The selection of a resumed thread: an explicit list (an empty one, too), else what the **first** of the history's
/// `session_meta` payloads says; without either none. Later ones are copies of a fork's source or updates, and not
/// read.
///
/// # Errors
///
/// As [`selection_from_session_meta`], if that is what decides.
pub fn selection_for_resume<'a>(
    explicit: Option<CapabilityRootSelection>,
    session_metas: impl IntoIterator<Item = &'a str>,
) -> Result<CapabilityRootSelection, CapabilityError> {
    match explicit {
        Some(explicit) => Ok(explicit),
        None => session_metas.into_iter().next().map_or_else(|| Ok(Default::default()), selection_from_session_meta),
    }
}

/// The selection of a fork, of a person's and of a sub-agent's alike: an explicit list, else what the source's first
/// header says. It takes that header and not the history that is copied, so a fork of the last turns alone inherits as
/// a whole one does: read it **before** anything is cut off. `None` is a source without a header: no roots.
///
/// # Errors
///
/// As [`selection_from_session_meta`], if that is what decides.
pub fn selection_for_fork(
    explicit: Option<CapabilityRootSelection>,
    source_session_meta: Option<&str>,
) -> Result<CapabilityRootSelection, CapabilityError> {
    selection_for_resume(explicit, source_session_meta)
}

/// The JSON to write as [`SESSION_META_FIELD`]; `None` for an empty selection, whose field is left out.
#[must_use]
pub fn session_meta_field(selection: &CapabilityRootSelection) -> Option<Box<RawValue>> {
    if selection.is_empty() {
        return None;
    }
    serde_json::value::to_raw_value(selection).ok()
}

/// Sets or removes the field in a parsed payload. For callers that build one as a `Value`; numbers in fields that are
/// not known are then spelt as `serde_json` spells them ([`session_meta_field`] keeps them).
///
/// # Errors
///
/// [`CapabilityError::InvalidList`] if such a number does not fit into a `Value`; the payload is then unchanged.
pub fn put_in_session_meta(
    selection: &CapabilityRootSelection,
    payload: &mut Map<String, Value>,
) -> Result<(), CapabilityError> {
    if selection.is_empty() {
        payload.shift_remove(SESSION_META_FIELD);
        return Ok(());
    }
    let value = serde_json::to_value(selection)
        .map_err(|e| CapabilityError::InvalidList { field: SESSION_META_FIELD, reason: e.to_string() })?;
    payload.insert(SESSION_META_FIELD.to_owned(), value);
    Ok(())
}
