//! A selected capability root: the choice that a thread keeps.

use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::ser::SerializeStruct;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::json::{Members, on_one_line};
use crate::{CapabilityError, PathUri};

/// Names one logical executor, always the same. Any text, as Codex takes any. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnvironmentId(Arc<str>);

impl EnvironmentId {
    /// The id as a text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for EnvironmentId {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl Borrow<str> for EnvironmentId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EnvironmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EnvironmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Serialize for EnvironmentId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EnvironmentId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// Where a capability root is. The wire form is tagged by `type`; `environment` is the only one there is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CapabilityRootLocation {
    /// A path in an environment.
    Environment {
        /// The environment.
        environment_id: EnvironmentId,
        /// The path there, in that system's terms.
        path: PathUri,
    },
}

/// A capability root that a thread has selected (`thread-store.md` 1.6).
///
/// In JSON `{"id": …, "location": {"type": "environment", "environmentId": …, "path": …}}`, in requests and in headers
/// alike. Of a root that was read, fields that are not known, their order and their spelling are written again as they
/// were; a legacy absolute path is written as a URI. Two roots are equal if id and location are.
#[derive(Clone)]
pub struct SelectedCapabilityRoot {
    id: Arc<str>,
    location: CapabilityRootLocation,
    /// How it was spelt, where that differs from the plain form. On one line.
    spelt: Option<Arc<RawValue>>,
}

impl SelectedCapabilityRoot {
    /// A root of a caller's choice.
    pub fn new(id: impl Into<Arc<str>>, environment_id: impl Into<EnvironmentId>, path: PathUri) -> Self {
        let location = CapabilityRootLocation::Environment { environment_id: environment_id.into(), path };
        Self { id: id.into(), location, spelt: None }
    }

    /// Reads a root from its JSON.
    ///
    /// # Errors
    ///
    /// [`CapabilityError::InvalidRoot`] if a field is missing, repeated or of another type, or the location's type is
    /// not known; the errors of [`PathUri::parse`].
    pub fn from_json(text: &str) -> Result<Self, CapabilityError> {
        let invalid = |reason: String| CapabilityError::InvalidRoot { reason };
        let mut root: Members = serde_json::from_str(text).map_err(|e| invalid(e.to_string()))?;
        let id = string(&root, "id")?;
        let location_at = one(&root, "location")?;
        let mut location: Members = serde_json::from_str(root.0[location_at].1.get())
            .map_err(|e| invalid(format!("invalid field `location`: {e}")))?;
        let kind = string(&location, "type")?;
        if kind != "environment" {
            return Err(invalid(format!("unknown location type `{kind}`")));
        }
        let environment_id = string(&location, "environmentId")?;
        let spelt_path = string(&location, "path")?;
        let path = PathUri::parse(&spelt_path)?;
        if path.as_str() != spelt_path {
            let at = one(&location, "path")?;
            location.0[at].1 = raw(&path)?;
        }
        root.0[location_at].1 = raw(&location)?;
        let mut read = Self::new(id, environment_id, path);
        let spelt = on_one_line(raw(&root)?);
        if spelt.get() != raw(&read)?.get() {
            read.spelt = Some(spelt.into());
        }
        Ok(read)
    }

    /// What the thread calls it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where it is.
    #[must_use]
    pub fn location(&self) -> &CapabilityRootLocation {
        &self.location
    }

    /// The environment it is in.
    #[must_use]
    pub fn environment_id(&self) -> &EnvironmentId {
        let CapabilityRootLocation::Environment { environment_id, .. } = &self.location;
        environment_id
    }

    /// Its path in that environment.
    #[must_use]
    pub fn path(&self) -> &PathUri {
        let CapabilityRootLocation::Environment { path, .. } = &self.location;
        path
    }

    pub(crate) fn shared_id(&self) -> &Arc<str> {
        &self.id
    }
}

fn raw<T: Serialize>(value: &T) -> Result<Box<RawValue>, CapabilityError> {
    serde_json::value::to_raw_value(value).map_err(|e| CapabilityError::InvalidRoot { reason: e.to_string() })
}

/// The place of a member that must stand once.
fn one(members: &Members, key: &str) -> Result<usize, CapabilityError> {
    let invalid = |what: &str| CapabilityError::InvalidRoot { reason: format!("{what} field `{key}`") };
    let mut places = members.0.iter().enumerate().filter(|(_, (k, _))| k == key).map(|(at, _)| at);
    match (places.next(), places.next()) {
        (Some(at), None) => Ok(at),
        (Some(_), Some(_)) => Err(invalid("duplicate")),
        (None, _) => Err(invalid("missing")),
    }
}

fn string(members: &Members, key: &str) -> Result<String, CapabilityError> {
    serde_json::from_str(members.0[one(members, key)?].1.get())
        .map_err(|e| CapabilityError::InvalidRoot { reason: format!("invalid field `{key}`: {e}") })
}

impl PartialEq for SelectedCapabilityRoot {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.location == other.location
    }
}

impl Eq for SelectedCapabilityRoot {}

impl Hash for SelectedCapabilityRoot {
    fn hash<S: Hasher>(&self, state: &mut S) {
        self.id.hash(state);
        self.location.hash(state);
    }
}

impl fmt::Debug for SelectedCapabilityRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {} in {:?}", self.id, self.path(), self.environment_id())
    }
}

impl Serialize for SelectedCapabilityRoot {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
        enum Location<'a> {
            Environment { environment_id: &'a EnvironmentId, path: &'a PathUri },
        }
        if let Some(spelt) = &self.spelt {
            return spelt.serialize(serializer);
        }
        let location = Location::Environment { environment_id: self.environment_id(), path: self.path() };
        let mut root = serializer.serialize_struct("SelectedCapabilityRoot", 2)?;
        root.serialize_field("id", self.id())?;
        root.serialize_field("location", &location)?;
        root.end()
    }
}

/// From JSON only (`serde_json`), because fields that are not known are kept as they are spelt.
impl<'de> Deserialize<'de> for SelectedCapabilityRoot {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_json(Box::<RawValue>::deserialize(deserializer)?.get()).map_err(serde::de::Error::custom)
    }
}
