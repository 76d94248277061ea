//! Paths in every form, with the URI that Codex 0.171 writes for each (asked by `thread/start` on Linux).

use proptest::prelude::*;
use threadkeep_capability::{CapabilityError, PathStyle, PathUri};

/// What was given, and what Codex wrote to the header.
const CODEX: &[(&str, &str)] = &[
    // Unix paths.
    ("/opt/a", "file:///opt/a"),
    ("/", "file:///"),
    ("/opt/a b/ü%20?#x", "file:///opt/a%20b/%C3%BC%2520%3F%23x"),
    ("/opt/a/", "file:///opt/a/"),
    ("/opt/a/../b/./c", "file:///opt/b/c"),
    ("/a//b", "file:///a/b"),
    ("/a///", "file:///a/"),
    ("/../..", "file:///"),
    ("/a/b/../../..", "file:///"),
    ("/a/.", "file:///a"),
    ("/a/..", "file:///"),
    ("/.", "file:///"),
    ("/./", "file:///"),
    ("/..a", "file:///..a"),
    ("/opt/\\x", "file:///opt/%5Cx"),
    ("/opt/\u{7f}\u{1}", "file:///opt/%7F%01"),
    ("/opt/😀", "file:///opt/%F0%9F%98%80"),
    ("/file:///x", "file:///file:/x"),
    ("/C%3A/x", "file:///C%253A/x"),
    ("/C:x", "file:///C:x"),
    ("/c:x", "file:///c:x"),
    (
        "/opt/a:b|c^d`{e}[f]<g>\"h\\i'j~k!l$m&n*o(p)q;r,s=t@u+v-w_x.y",
        "file:///opt/a:b|c^d%60%7Be%7D[f]%3Cg%3E%22h%5Ci'j~k!l$m&n*o(p)q;r,s=t@u+v-w_x.y",
    ),
    // Unix paths that a URI cannot say.
    ("/C:/x", "file:///%00/bad/path/L0M6L3g"),
    ("/C:", "file:///%00/bad/path/L0M6"),
    ("/c:/", "file:///%00/bad/path/L2M6Lw"),
    ("/C|/x", "file:///%00/bad/path/L0N8L3g"),
    ("/a\0b", "file:///%00/bad/path/L2EAYg"),
    ("/a\0/../b", "file:///%00/bad/path/L2EALy4uL2I"),
    // Windows drives.
    ("C:\\", "file:///C:/"),
    ("c:\\", "file:///C:/"),
    ("C:\\Users\\x y", "file:///C:/Users/x%20y"),
    ("c:/Users/x", "file:///C:/Users/x"),
    ("C:\\a\\..\\b\\.\\c", "file:///C:/b/c"),
    ("C:\\a/b", "file:///C:/a/b"),
    ("C:\\a\\", "file:///C:/a/"),
    ("C:/a|b", "file:///C:/a|b"),
    ("C:\\^x|y", "file:///C:/^x|y"),
    ("C:\\a%b", "file:///C:/a%25b"),
    ("C:\\x?y#z", "file:///C:/x%3Fy%23z"),
    ("C:\\..\\..\\x", "file:///C:/x"),
    ("C:\\..", "file:///C:/"),
    ("C:\\a\\\\b", "file:///C:/a/b"),
    ("C:\\a.\\b ", "file:///C:/a./b%20"),
    ("\\\\?\\C:\\x", "file:///C:/x"),
    ("\\\\?\\C:\\", "file:///C:/"),
    ("\\\\?\\C:/x", "file:///C:/x"),
    ("\\\\?\\C:\\a/b", "file:///C:/a/b"),
    ("\\\\?\\c:\\x\\..\\y", "file:///C:/y"),
    ("\\\\.\\C:\\x", "file:///C:/x"),
    // Windows shares.
    ("\\\\srv\\share", "file://srv/share"),
    ("\\\\srv\\share\\d", "file://srv/share/d"),
    ("\\\\srv\\share\\a/b", "file://srv/share/a/b"),
    ("\\\\srv\\share\\..\\..\\x", "file://srv/share/x"),
    ("\\/srv/share", "file://srv/share"),
    ("/\\srv\\share", "file://srv/share"),
    ("//srv/x", "file://srv/x"),
    ("//srv/share/", "file://srv/share/"),
    ("//srv/share/../x", "file://srv/share/x"),
    ("//SRV/Share", "file://srv/Share"),
    ("//s_rv/x", "file://s_rv/x"),
    ("\\\\srv.\\x", "file://srv./x"),
    ("//[::1]/x", "file://[::1]/x"),
    ("\\\\?\\UNC\\srv\\share\\x", "file://srv/share/x"),
    ("\\\\.\\UNC\\srv\\s", "file://srv/s"),
    // Windows paths that a URI cannot say.
    ("\\\\.\\pipe\\x", "file:///%00/bad/path/XABcAC4AXABwAGkAcABlAFwAeAA"),
    ("\\\\?\\Volume{ab}\\x", "file:///%00/bad/path/XABcAD8AXABWAG8AbAB1AG0AZQB7AGEAYgB9AFwAeAA"),
    ("\\\\?\\C:", "file:///%00/bad/path/XABcAD8AXABDADoA"),
    ("\\\\?\\UNC\\srv", "file:///%00/bad/path/XABcAD8AXABVAE4AQwBcAHMAcgB2AA"),
    ("\\\\?\\unc\\srv\\s", "file:///%00/bad/path/XABcAD8AXAB1AG4AYwBcAHMAcgB2AFwAcwA"),
    ("//./C:/x", "file:///%00/bad/path/LwAvAC4ALwBDADoALwB4AA"),
    ("//?/C:/x", "file:///%00/bad/path/LwAvAD8ALwBDADoALwB4AA"),
    ("//s rv/x", "file:///%00/bad/path/LwAvAHMAIAByAHYALwB4AA"),
    ("//ü/x", "file:///%00/bad/path/LwAvAPwALwB4AA"),
    ("//1.2/x", "file:///%00/bad/path/LwAvADEALgAyAC8AeAA"),
    ("//SRV:80/x", "file:///%00/bad/path/LwAvAFMAUgBWADoAOAAwAC8AeAA"),
    ("//localhost/x", "file:///%00/bad/path/LwAvAGwAbwBjAGEAbABoAG8AcwB0AC8AeAA"),
    ("\\\\C:\\x", "file:///%00/bad/path/XABcAEMAOgBcAHgA"),
    ("//srv/./x", "file:///%00/bad/path/LwAvAHMAcgB2AC8ALgAvAHgA"),
    ("//srv/../x/y", "file:///%00/bad/path/LwAvAHMAcgB2AC8ALgAuAC8AeAAvAHkA"),
    ("C:\\x\0", "file:///%00/bad/path/QwA6AFwAeAAAAA"),
    ("C:\\..\0", "file:///%00/bad/path/QwA6AFwALgAuAAAA"),
    // URIs.
    ("file:///C:/Users/x%20y", "file:///C:/Users/x%20y"),
    ("file:///c:/Users", "file:///C:/Users"),
    ("file:///c:", "file:///C:"),
    ("file:///c:x", "file:///c:x"),
    ("file:///c%3a/x", "file:///C%3a/x"),
    ("file:///c%3ax", "file:///c%3ax"),
    ("file:///c|/x", "file:///c|/x"),
    ("file:///c%7c/x", "file:///c%7c/x"),
    ("file:/C|/x", "file:///C:/x"),
    ("file://srv/c:/x", "file:///C:/x"),
    ("file:///C:/a/../../..", "file:///C:/"),
    ("file:///C:\\x\\y", "file:///C:/x/y"),
    ("file:\\\\\\C:\\x", "file:///C:/x"),
    ("file://srv/share/d", "file://srv/share/d"),
    ("file://SRV/x", "file://srv/x"),
    ("file://1.2/x", "file://1.0.0.2/x"),
    ("file:///opt/a%2Fb", "file:///opt/a%2Fb"),
    ("file:///opt/%41", "file:///opt/%41"),
    ("file:///opt/a%20b/", "file:///opt/a%20b/"),
    ("file:///opt/a%zz", "file:///opt/a%zz"),
    ("file:///opt/ü", "file:///opt/%C3%BC"),
    ("file:///opt/../x", "file:///x"),
    ("file:///opt/%2e%2e/x", "file:///x"),
    ("file:///a//b", "file:///a//b"),
    ("file:////srv/x", "file:///srv/x"),
    ("FILE:///C:/X", "file:///C:/X"),
    ("file:/opt/a", "file:///opt/a"),
    ("file:opt", "file:///opt"),
    ("file://localhost/opt/a", "file:///opt/a"),
    (" file:///x", "file:///x"),
    ("file:///%00/bad/path/L2EAYg", "file:///%00/bad/path/L2EAYg"),
    ("file:///%00/bad/path/L29wdA", "file:///%00/bad/path/L29wdA"),
];

/// What Codex refuses as `not absolute`.
const REFUSED: &[&str] = &[
    "",
    "relative/x",
    "~/x",
    "  /opt",
    "C:",
    "C:x",
    "1:\\x",
    "é:\\x",
    "\\foo",
    "http://x/y",
    "vscode-remote://ssh/x",
    "file:///opt/a?q=1",
    "file:///opt/a#f",
    "file:///opt/%00",
    "file:///%00",
    "file:///a/%00b",
    "file:///%00/bad/path/",
    "file:///%00/bad/path/!!",
    "file:///%00/bad/path/L2EAYg==",
    "file:///%00/bad/path/L2EAYh",
    "file:///%00/bad/path/L2EAYg/x",
    "file://h/%00/bad/path/L2EAYg",
    "file://user@host/x",
    "file://host:80/x",
];

#[test]
fn every_form_becomes_the_uri_that_codex_writes() {
    let wrong: Vec<_> = CODEX
        .iter()
        .map(|&(given, uri)| (given, uri, PathUri::parse(given).map(|p| p.to_string())))
        .filter(|(_, uri, got)| got.as_deref() != Ok(*uri))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_codex_writes_stays_as_it_is() {
    for (_, uri) in CODEX {
        assert_eq!(PathUri::parse(uri).unwrap().as_str(), *uri);
    }
}

#[test]
fn what_is_not_absolute_is_refused_with_its_text() {
    for &given in REFUSED {
        let error = PathUri::parse(given).unwrap_err();
        assert_eq!(error, CapabilityError::PathNotAbsolute { path: given.to_owned() });
        assert_eq!(error.to_string(), format!("path `{given}` is not absolute"));
    }
    for given in ["\\\\srv", "//srv", "//srv/", "//srv//share", "\\\\srv\\\\share", "///a"] {
        let error = PathUri::parse(given).unwrap_err();
        assert_eq!(error.to_string(), format!("path `{given}` is not absolute using Windows path syntax"));
    }
}

#[test]
fn tabs_and_line_breaks_stay_part_of_a_path() {
    assert_eq!(PathUri::parse("/opt/\t\n x").unwrap().as_str(), "file:///opt/%09%0A%20x");
}

#[test]
fn a_path_comes_back_as_its_system_writes_it() {
    for (given, style, native) in [
        ("/opt/a b/ü%20", PathStyle::Unix, Some("/opt/a b/ü%20")),
        ("/", PathStyle::Unix, Some("/")),
        ("/opt/a/", PathStyle::Unix, Some("/opt/a/")),
        ("/C:/x", PathStyle::Unix, Some("/C:/x")),
        ("/a\0b", PathStyle::Unix, Some("/a\0b")),
        ("file:///opt/a%2Fb", PathStyle::Unix, None),
        ("file:///opt/%ff", PathStyle::Unix, None),
        ("c:/Users/x y", PathStyle::Windows, Some("C:\\Users\\x y")),
        ("file:///c:", PathStyle::Windows, Some("C:\\")),
        ("file:///C%3A/x", PathStyle::Windows, Some("C:\\x")),
        ("C:\\", PathStyle::Windows, Some("C:\\")),
        ("file:///C|/x|y", PathStyle::Windows, Some("C:\\x|y")),
        ("file:///C:/a%5Cb", PathStyle::Windows, None),
        ("//srv/Share/d", PathStyle::Windows, Some("\\\\srv\\Share\\d")),
        ("\\\\.\\pipe\\x", PathStyle::Windows, Some("\\\\.\\pipe\\x")),
        ("C:\\x\0", PathStyle::Windows, Some("C:\\x\0")),
    ] {
        let path = PathUri::parse(given).unwrap();
        assert_eq!((path.style(), path.to_native().as_deref()), (style, native), "{given}");
    }
}

/// A tab hid a drive from the rule that drops a host before one, and a dot from the one that drops dots.
#[test]
fn tabs_hide_nothing() {
    for text in [
        "file:\\/.\\a:\t%",
        "file://./a:\t/x",
        "file://srv/c:\t/x",
        "file://srv/c|\t/x",
        "file://srv/c:/x",
        "file:a:\t%2e",
        "file:\\\\.\\a|",
    ] {
        if let Ok(path) = PathUri::parse(text) {
            assert_eq!(PathUri::parse(path.as_str()), Ok(path.clone()), "{text:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_panics_and_a_uri_is_read_as_itself(text in "(file:)?[/\\\\.]{0,4}([a-zC:|%0-3é?#\0\t /\\\\.]|%00|%2e){0,12}") {
        if let Ok(path) = PathUri::parse(&text) {
            prop_assert_eq!(PathUri::parse(path.as_str()), Ok(path.clone()));
            let _ = (path.style(), path.to_native());
        }
    }

    /// Every Unix path in plain form comes back, whatever it is made of.
    #[test]
    fn unix_paths_come_back(segments in proptest::collection::vec("[^/]{1,6}", 1..5)) {
        prop_assume!(segments.iter().all(|s| s != "." && s != ".."));
        prop_assume!(!segments[0].starts_with('\\'));
        let path = format!("/{}", segments.join("/"));
        // In bytes this is also a Windows path in UTF-16, and Codex's spelling of both is one.
        prop_assume!(!path.starts_with("/\0/\0") && !path.starts_with("/\0\\\0"));
        let uri = PathUri::parse(&path).unwrap();
        prop_assert_eq!(uri.to_native(), Some(path));
        prop_assert_eq!(uri.style(), PathStyle::Unix);
    }

    #[test]
    fn windows_paths_come_back(letter in "[A-Z]", segments in proptest::collection::vec("[^/\\\\]{1,6}", 1..5)) {
        prop_assume!(segments.iter().all(|s| s != "." && s != ".."));
        let path = format!("{letter}:\\{}", segments.join("\\"));
        let uri = PathUri::parse(&path).unwrap();
        prop_assert_eq!(uri.to_native(), Some(path));
        prop_assert_eq!(uri.style(), PathStyle::Windows);
    }
}
