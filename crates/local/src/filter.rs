//! Which threads a query keeps, and why it leaves the others out.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use threadkeep_record::{SourceClass, UtcMillis, meta};
use threadkeep_store::ListQuery;

use crate::kept::Facet;
use crate::row::Row;

/// A reason to leave a thread out; each thread is counted under the first that applies.
pub type Reason = &'static str;

/// A query with its directory resolved.
pub struct Filter<'q> {
    query: &'q ListQuery,
    cwd: Option<PathBuf>,
    matching: Option<String>,
    resolved: Mutex<HashMap<String, PathBuf>>,
}

/// What filters ask of a thread.
struct Asked<'t> {
    /// Its parent was taken away without it: it counts as one that a person started.
    apart: bool,
    archived: bool,
    class: SourceClass,
    empty: bool,
    cwd: Option<&'t str>,
    source: Option<&'t Value>,
    provider: Option<&'t str>,
    originator: Option<&'t str>,
    model: Option<&'t str>,
}

impl<'q> Filter<'q> {
    /// Prepares a query.
    #[must_use]
    pub fn new(query: &'q ListQuery) -> Self {
        let cwd = query.cwd.as_deref().map(resolve);
        Self {
            query,
            cwd,
            matching: query.matching.as_deref().map(str::to_lowercase),
            resolved: Mutex::new(HashMap::new()),
        }
    }

    /// The reasons that may be counted, in the order in which they are tried.
    #[must_use]
    pub fn reasons(&self) -> Vec<Reason> {
        let q = self.query;
        let mut reasons = vec!["archived"];
        reasons.extend(q.archived_only.then_some("not_archived"));
        let given = [
            ("cwd", q.cwd.is_some()),
            ("source", !q.sources.is_empty()),
            ("provider", !q.providers.is_empty()),
            ("originator", !q.originators.is_empty()),
            ("model", !q.models.is_empty()),
            ("since", q.since.is_some()),
            ("until", q.until.is_some()),
            ("named", q.named),
            ("match", q.matching.is_some()),
            ("branch", q.branch.is_some()),
            ("file", q.file.is_some()),
        ];
        reasons.extend(given.iter().filter(|(_, given)| *given).map(|(reason, _)| *reason));
        reasons.extend(["subagents", "exec", "empty"]);
        reasons
    }

    /// Whether the place alone leaves a thread out.
    #[must_use]
    pub fn place(&self, archived: bool) -> Option<Reason> {
        match (self.query.archived_only, archived) {
            (true, false) => Some("not_archived"),
            (false, true) if !self.query.include.archived => Some("archived"),
            _ => None,
        }
    }

    /// Why a thread is left out for what it is, in the order of reasons: those that come before its time and texts are
    /// looked at, and those that come behind.
    pub(crate) fn leaves_out_kind(&self, t: &Facet) -> (Option<Reason>, Option<Reason>) {
        let asked = Asked {
            apart: false,
            archived: t.archived,
            class: t.class,
            empty: t.empty,
            cwd: t.cwd.as_deref(),
            source: t.source.as_ref(),
            provider: t.provider.as_deref(),
            originator: t.originator.as_deref(),
            model: t.model.as_deref(),
        };
        (self.before(&asked), self.behind(&asked))
    }

    /// Whether the time of its last record leaves a thread out.
    pub(crate) fn leaves_out_time(&self, updated: UtcMillis) -> Option<Reason> {
        let q = self.query;
        if q.since.is_some_and(|since| updated < since) {
            return Some("since");
        }
        q.until.is_some_and(|until| updated >= until).then_some("until")
    }

    fn before(&self, t: &Asked<'_>) -> Option<Reason> {
        let q = self.query;
        if let Some(reason) = self.place(t.archived) {
            return Some(reason);
        }
        let one_of = |wanted: &[String], value: Option<&str>| {
            wanted.is_empty() || wanted.iter().any(|w| w == value.unwrap_or("unknown"))
        };
        let source = meta::source_word(t.source);
        if self.cwd.as_ref().is_some_and(|want| !t.cwd.is_some_and(|c| self.is_cwd(c, want))) {
            return Some("cwd");
        }
        if !q.sources.is_empty() && !q.sources.iter().any(|w| source_fits(w, &source, t.source)) {
            return Some("source");
        }
        if !one_of(&q.providers, t.provider) {
            return Some("provider");
        }
        if !one_of(&q.originators, t.originator) {
            return Some("originator");
        }
        (!one_of(&q.models, t.model)).then_some("model")
    }

    fn behind(&self, t: &Asked<'_>) -> Option<Reason> {
        let q = self.query;
        // A source that was asked for by name is not hidden for its kind.
        let asked = !q.sources.is_empty();
        match t.class {
            SourceClass::Subagent if !q.include.subagents && !asked && !t.apart => return Some("subagents"),
            SourceClass::Exec if !q.include.exec && !asked => return Some("exec"),
            _ => {}
        }
        (t.empty && !q.include.empty).then_some("empty")
    }

    /// Why the thread is left out; `None` keeps it.
    #[must_use]
    pub fn leaves_out(&self, row: &Row) -> Option<Reason> {
        let q = self.query;
        let t = &row.thread;
        let asked = Asked {
            apart: row.apart,
            archived: t.archived,
            class: row.class,
            empty: row.empty,
            cwd: t.cwd.as_deref(),
            source: t.source.as_ref(),
            provider: t.model_provider.as_deref(),
            originator: t.originator.as_deref(),
            model: t.model.as_deref(),
        };
        if let Some(reason) = self.before(&asked).or_else(|| self.leaves_out_time(row.updated())) {
            return Some(reason);
        }
        if q.named && t.name.is_none() {
            return Some("named");
        }
        if let Some(text) = &self.matching
            && !row.preview_matches
            && !self.preview_matches(row)
            && !t.name.as_ref().is_some_and(|n| n.to_lowercase().contains(text))
        {
            return Some("match");
        }
        let branch = t.git.as_ref().and_then(|g| g.branch.as_deref());
        if q.branch.as_deref().is_some_and(|want| branch != Some(want)) {
            return Some("branch");
        }
        if q.file.is_some() && !row.touches && !self.touches(row) {
            return Some("file");
        }
        self.behind(&asked)
    }

    /// Whether something is asked that a thread's kind and time do not tell.
    pub(crate) fn asks_texts(&self) -> bool {
        let q = self.query;
        q.named || self.matching.is_some() || q.branch.is_some() || q.file.is_some()
    }

    /// Whether a thread changed the file that is asked for.
    pub(crate) fn touches(&self, row: &Row) -> bool {
        row.touched.iter().any(|path| self.is_file(path))
    }

    /// Whether a changed file is the one that is asked for: the same path, or, where only the end of one is asked for
    /// (`src/main.rs`), a path that ends so.
    pub(crate) fn is_file(&self, path: &str) -> bool {
        let Some(wanted) = &self.query.file else { return false };
        let path = Path::new(path);
        if Path::new(wanted).is_absolute() { path == tidy(Path::new(wanted)) } else { path.ends_with(wanted) }
    }

    /// Whether a preview holds the text that is asked for.
    pub(crate) fn text_matches(&self, preview: &str) -> bool {
        self.matching.as_ref().is_some_and(|text| preview.to_lowercase().contains(text))
    }

    /// Whether the preview holds the text that is asked for.
    #[must_use]
    pub fn preview_matches(&self, row: &Row) -> bool {
        row.thread.preview.as_ref().is_some_and(|p| self.text_matches(p))
    }

    fn is_cwd(&self, cwd: &str, want: &Path) -> bool {
        let mut resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        resolved.entry(cwd.to_owned()).or_insert_with(|| resolve(cwd)) == want
    }
}

fn source_fits(wanted: &str, word: &str, source: Option<&serde_json::Value>) -> bool {
    let wanted = if wanted == "subagents" { "subagent" } else { wanted };
    if wanted == word || wanted == "editor" && word == "vscode" {
        return true;
    }
    // `review`, `thread_spawn`, `atlas`: the inner word of an object form.
    match source.and_then(|s| s.as_object()).and_then(|o| o.values().next()) {
        Some(serde_json::Value::String(inner)) => inner == wanted,
        Some(serde_json::Value::Object(inner)) => {
            inner.keys().any(|k| k == wanted) || inner.values().any(|v| v == wanted)
        }
        _ => false,
    }
}

/// A directory as it is compared: links resolved where it still exists, else tidied as text. Paths of other systems
/// are opaque texts.
#[must_use]
pub fn resolve(path: &str) -> PathBuf {
    if !path.starts_with('/') {
        let trimmed = path.trim_end_matches(['/', '\\']);
        return PathBuf::from(if trimmed.is_empty() { path } else { trimmed });
    }
    std::fs::canonicalize(path).unwrap_or_else(|_| tidy(Path::new(path)))
}

/// A path without `.` and `..`, told by its text alone.
pub(crate) fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                tidy.pop();
            }
            other => tidy.push(other),
        }
    }
    tidy
}
