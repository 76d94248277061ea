//! Rollout paths as they are kept: relative to the home where they are in it, so that a moved home just works.

use std::path::{MAIN_SEPARATOR, Path};

/// Turns paths of a home into the form that is kept, and back.
#[derive(Debug)]
pub(crate) struct Paths {
    /// The home with a separator behind it, as it was given. `None` where it is no text: then nothing is in it.
    given: Option<String>,
    /// The same with links resolved.
    real: Option<String>,
}

impl Paths {
    /// `home` is absolute.
    pub fn new(home: &Path) -> Self {
        let base = |p: &Path| p.to_str().map(|t| format!("{}{MAIN_SEPARATOR}", t.trim_end_matches(MAIN_SEPARATOR)));
        Self { given: base(home), real: std::fs::canonicalize(home).ok().as_deref().and_then(base) }
    }

    /// The form that is kept.
    pub fn kept(&self, path: &str) -> String {
        let inside = [&self.given, &self.real].into_iter().flatten().find_map(|base| path.strip_prefix(base.as_str()));
        match inside {
            // What is left must not look absolute by itself, or it would come back as another path.
            Some(rest) if !rest.is_empty() && Path::new(rest).is_relative() => {
                if MAIN_SEPARATOR == '/' {
                    rest.to_owned()
                } else {
                    rest.replace(MAIN_SEPARATOR, "/")
                }
            }
            Some(_) | None => path.to_owned(),
        }
    }

    /// The path as it can be opened.
    pub fn whole(&self, kept: String) -> String {
        match &self.given {
            Some(base) if Path::new(&kept).is_relative() => {
                let rest = if MAIN_SEPARATOR == '/' { kept } else { kept.replace('/', std::path::MAIN_SEPARATOR_STR) };
                format!("{base}{rest}")
            }
            Some(_) | None => kept,
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_the_home_is_kept_without_it_and_comes_back_whole() {
        for home in ["/home/a/.codex", "/home/a/.codex/", "/"] {
            let paths = Paths::new(Path::new(home));
            let base = home.trim_end_matches('/');
            for rest in ["sessions/2026/x.jsonl", "a//b", "a/", "../a", "."] {
                let whole = format!("{base}/{rest}");
                assert_eq!(paths.kept(&whole), rest);
                assert_eq!(paths.whole(rest.to_owned()), whole);
            }
        }
    }

    #[test]
    fn other_paths_stay_as_they_are() {
        let paths = Paths::new(Path::new("/h"));
        for other in ["/x/a.jsonl", "/ha/b", "/h/", "/h", "/h//abs"] {
            assert_eq!(paths.whole(paths.kept(other)), other);
            assert_eq!(paths.kept(other), other);
        }
    }

    #[test]
    fn a_home_reached_by_a_link_is_the_same_home() {
        let folder = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(folder.path()).unwrap().join("real");
        let link = folder.path().join("link");
        std::fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let paths = Paths::new(&link);
        assert_eq!(paths.kept(&format!("{}/sessions/a", real.display())), "sessions/a");
        assert_eq!(paths.whole("sessions/a".into()), format!("{}/sessions/a", link.display()));
    }
}
