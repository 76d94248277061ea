//! Paths as URIs, of this system or of another, and the older form: absolute paths.
//!
//! The forms and spellings here are those of Codex 0.171, found by starting threads with each of them (the table in
//! `tests/path_uri.rs`). One differs on purpose: Codex drops tabs and line breaks from a plain path, which would name
//! another directory; here they are kept, escaped.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use url::{Host, Url};

use crate::CapabilityError;

/// What is escaped in one segment of a plain path.
const SEGMENT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// Where a path is kept that no `file:` URI can spell: base64 of its bytes (Windows: of its UTF-16, low byte first).
const UNSPELLABLE: &str = "/%00/bad/path/";

/// How the colon of a drive may stand in a URI.
const DRIVE_COLONS: &[&str] = &[":", "|", "%3A", "%7C"];

/// How a system writes paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathStyle {
    /// `/a/b`.
    Unix,
    /// `C:\a\b` and `\\server\share\a`.
    Windows,
}

/// An absolute path as a `file:` URI, of any system; this one's rules are never applied to it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathUri(Arc<str>);

impl PathUri {
    /// Reads a `file:` URI or an absolute path of Unix or Windows, and converts it to the URI that Codex writes
    /// (`thread-store.md` 1.6). `.` and `..` are resolved by their text.
    ///
    /// # Errors
    ///
    /// [`CapabilityError::PathNotAbsolute`] for anything else: relative paths, other schemes, URIs with a query, a
    /// fragment or an escaped NUL. [`CapabilityError::ShareNotNamed`] for `\\server` alone.
    pub fn parse(text: &str) -> Result<Self, CapabilityError> {
        let not_absolute = || CapabilityError::PathNotAbsolute { path: text.to_owned() };
        if let Some(path) = WindowsPath::parse(text)? {
            return Ok(path.to_uri().unwrap_or_else(|| unspellable(text.encode_utf16().flat_map(u16::to_le_bytes))));
        }
        if text.starts_with('/') {
            return Ok(from_unix(text).unwrap_or_else(|| unspellable(text.bytes())));
        }
        // Tabs and line ends mean nothing in a URI, but hide a drive or a dot from the rules for those; and a host that is
        // dropped before a drive may be seen only in what the first reading left. So it is read until it stays the same.
        let read = |text: &str| Url::parse(text).ok().and_then(|url| from_url(&url));
        let plain: String = text.chars().filter(|c| !matches!(c, '\t' | '\n' | '\r')).collect();
        let mut uri = read(&plain).ok_or_else(not_absolute)?;
        for _ in 0..4 {
            match read(&uri.0) {
                Some(again) if again == uri => return Ok(uri),
                Some(again) => uri = again,
                None => break,
            }
        }
        Err(not_absolute())
    }

    /// The URI.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How the system writes paths that this one is of, by its form: a drive or a server is Windows.
    #[must_use]
    pub fn style(&self) -> PathStyle {
        match self.unspellable_bytes() {
            Some(bytes) if utf16(&bytes).is_some_and(|text| matches!(WindowsPath::parse(&text), Ok(Some(_)))) => {
                PathStyle::Windows
            }
            Some(_) => PathStyle::Unix,
            None if !self.host().is_empty() || starts_with_drive(self.path(), DRIVE_COLONS) => PathStyle::Windows,
            None => PathStyle::Unix,
        }
    }

    /// The path as the system writes it that it is of: [`Self::style`]. `None` where it is not UTF-8, or where no path
    /// can be what the URI says (an escaped separator).
    #[must_use]
    pub fn to_native(&self) -> Option<String> {
        let style = self.style();
        if let Some(bytes) = self.unspellable_bytes() {
            return match style {
                PathStyle::Unix => String::from_utf8(bytes).ok(),
                PathStyle::Windows => utf16(&bytes),
            };
        }
        let mut segments = Vec::new();
        for segment in self.path().split('/').skip(1) {
            let segment = percent_decode_str(segment).decode_utf8().ok()?;
            if segment.contains('/') || (style == PathStyle::Windows && segment.contains('\\')) {
                return None;
            }
            segments.push(segment);
        }
        Some(match style {
            PathStyle::Unix => format!("/{}", segments.join("/")),
            PathStyle::Windows if self.host().is_empty() => {
                // `C|` is an older way to write a drive in a URI.
                let drive = segments[0].replace('|', ":");
                format!("{drive}\\{}", segments[1..].join("\\"))
            }
            PathStyle::Windows => format!("\\\\{}\\{}", self.host(), segments.join("\\")),
        })
    }

    fn after_scheme(&self) -> &str {
        self.0.strip_prefix("file://").unwrap_or(&self.0)
    }

    fn host(&self) -> &str {
        self.after_scheme().split('/').next().unwrap_or("")
    }

    fn path(&self) -> &str {
        &self.after_scheme()[self.host().len()..]
    }

    fn unspellable_bytes(&self) -> Option<Vec<u8>> {
        URL_SAFE_NO_PAD.decode(self.after_scheme().strip_prefix(UNSPELLABLE)?).ok()
    }
}

fn unspellable(bytes: impl Iterator<Item = u8>) -> PathUri {
    PathUri(format!("file://{UNSPELLABLE}{}", URL_SAFE_NO_PAD.encode(bytes.collect::<Vec<_>>())).into())
}

fn utf16(bytes: &[u8]) -> Option<String> {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
    String::from_utf16(&units).ok().filter(|_| bytes.len().is_multiple_of(2))
}

/// A `file:` URI without what a path cannot have, its drive letter in upper case.
fn from_url(url: &Url) -> Option<PathUri> {
    if url.scheme() != "file" || url.query().is_some() || url.fragment().is_some() {
        return None;
    }
    let (host, path) = (url.host_str().unwrap_or(""), url.path());
    if path.contains("%00") {
        let kept = path.strip_prefix(UNSPELLABLE)?;
        if !host.is_empty() || kept.is_empty() || URL_SAFE_NO_PAD.decode(kept).is_err() {
            return None;
        }
    }
    let mut uri = format!("file://{host}{path}");
    if host.is_empty() && starts_with_drive(path, &[":", "%3A"]) {
        let letter = "file:///".len();
        uri[letter..=letter].make_ascii_uppercase();
    }
    Some(PathUri(uri.into()))
}

/// `None` where a URI cannot spell the path.
fn from_unix(path: &str) -> Option<PathUri> {
    if path.contains('\0') {
        return None;
    }
    let mut uri = String::from("file:///");
    push_segments(&mut uri, path.split('/'));
    // `/C:/x` on Unix is a directory named `C:`, but its URI would say a drive.
    (!starts_with_drive(&uri["file://".len()..], &[":", "|"])).then(|| PathUri(uri.into()))
}

/// Appends segments to a URI that ends with a slash: empty ones and `.` are dropped, `..` takes the one before it, and
/// a separator at the end stays.
fn push_segments<'a>(uri: &mut String, segments: impl Iterator<Item = &'a str>) {
    let mut kept: Vec<&str> = Vec::new();
    let mut last = "";
    for segment in segments {
        last = segment;
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            _ => kept.push(segment),
        }
    }
    for (at, segment) in kept.iter().enumerate() {
        if at > 0 {
            uri.push('/');
        }
        uri.extend(utf8_percent_encode(segment, SEGMENT));
    }
    if last.is_empty() && !kept.is_empty() {
        uri.push('/');
    }
}

/// A path in the syntax of Windows.
enum WindowsPath<'a> {
    Drive {
        letter: char,
        rest: &'a str,
    },
    Share {
        server: &'a str,
        share: &'a str,
        rest: &'a str,
    },
    /// Devices, volumes by id, and what else has no URI.
    Other,
}

impl<'a> WindowsPath<'a> {
    /// `None` where the text is not in this syntax.
    fn parse(text: &'a str) -> Result<Option<Self>, CapabilityError> {
        if let Some(device) = text.strip_prefix(r"\\?\").or_else(|| text.strip_prefix(r"\\.\")) {
            return Ok(Some(
                Self::drive(device)
                    .or_else(|| Self::share(device.strip_prefix(r"UNC\")?, |c| c == '\\'))
                    .unwrap_or(Self::Other),
            ));
        }
        if let [b'\\' | b'/', b'\\' | b'/', ..] = text.as_bytes() {
            let share = Self::share(&text[2..], is_separator);
            return share.map(Some).ok_or_else(|| CapabilityError::ShareNotNamed { path: text.to_owned() });
        }
        Ok(Self::drive(text))
    }

    fn drive(text: &'a str) -> Option<Self> {
        match text.as_bytes() {
            [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic() => {
                Some(Self::Drive { letter: char::from(letter.to_ascii_uppercase()), rest: &text[3..] })
            }
            _ => None,
        }
    }

    fn share(text: &'a str, separator: fn(char) -> bool) -> Option<Self> {
        let (server, after) = text.split_once(separator)?;
        let (share, rest) = match after.find(separator) {
            Some(at) => after.split_at(at),
            None => (after, ""),
        };
        (!server.is_empty() && !share.is_empty()).then_some(Self::Share { server, share, rest })
    }

    /// `None` where a URI cannot spell it.
    fn to_uri(&self) -> Option<PathUri> {
        let (mut uri, rest) = match self {
            Self::Drive { letter, rest } => (format!("file:///{letter}:/"), *rest),
            Self::Share { server, share, rest } => {
                // A server whose name a URI would change (or drop: localhost) is another server.
                let host = Host::parse(server).ok()?.to_string();
                if !host.eq_ignore_ascii_case(server)
                    || matches!(&*host, "localhost" | "." | "..")
                    || matches!(*share, "." | "..")
                {
                    return None;
                }
                let mut uri = format!("file://{host}/");
                uri.extend(utf8_percent_encode(share, SEGMENT));
                if !rest.is_empty() {
                    uri.push('/');
                }
                (uri, rest.get(1..).unwrap_or(""))
            }
            Self::Other => return None,
        };
        if rest.contains('\0') || uri.contains("%00") {
            return None;
        }
        push_segments(&mut uri, rest.split(is_separator));
        Some(PathUri(uri.into()))
    }
}

fn is_separator(c: char) -> bool {
    matches!(c, '\\' | '/')
}

/// `/C:` or `/C:/…`, with one of these spellings of the colon.
fn starts_with_drive(path: &str, colons: &[&str]) -> bool {
    let Some(rest) = path.strip_prefix('/').and_then(|p| p.strip_prefix(|c: char| c.is_ascii_alphabetic())) else {
        return false;
    };
    let segment = rest.split('/').next().unwrap_or("");
    colons.iter().any(|colon| segment.eq_ignore_ascii_case(colon))
}

impl fmt::Display for PathUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PathUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for PathUri {
    type Err = CapabilityError;
    fn from_str(text: &str) -> Result<Self, CapabilityError> {
        Self::parse(text)
    }
}

impl Serialize for PathUri {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for PathUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}
