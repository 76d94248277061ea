//! Why the default list leaves a thread out.

use std::path::Path;

use serde::Serialize;
use threadkeep_store::{Include, ListQuery};

use super::places::is_of_the_home;
use crate::catalog::Catalog;
use crate::filter::Filter;
use crate::list::{Candidate, candidates};
use crate::row::{Row, shown};

/// A reason why the default list does not show a thread. Nothing else hides one: not the directory, the provider, its
/// age, nor what Codex's database says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HiddenBy {
    /// `archived`, `subagents`, `exec`, `empty`: the kinds that `--include` shows; `unnamed` for a row without a file;
    /// `place`, `name` or `link` for a file that is no rollout of the home; `other_home` where another home's copy
    /// stands for both.
    pub filter: &'static str,
    /// What about the thread makes it so.
    pub because: String,
    /// What to add to `list` to see it, where something does.
    pub shown_with: Option<String>,
}

fn reason(filter: &'static str, because: impl Into<String>) -> HiddenBy {
    HiddenBy { filter, because: because.into(), shown_with: None }
}

/// The kinds that the default list leaves out, each with the query that leaves out nothing else.
pub(super) fn kinds() -> [(&'static str, Include); 4] {
    [
        ("archived", Include { archived: false, ..Include::ALL }),
        ("subagents", Include { subagents: false, ..Include::ALL }),
        ("exec", Include { exec: false, ..Include::ALL }),
        ("empty", Include { empty: false, ..Include::ALL }),
    ]
}

/// All reasons that apply. The list's own filter decides, so the two cannot disagree.
pub(super) fn by(catalogs: &[Catalog], home: usize, row: &Row, query: &str) -> Vec<HiddenBy> {
    let mut hidden = Vec::new();
    for (kind, include) in kinds() {
        let only = ListQuery { include, ..ListQuery::default() };
        if Filter::new(&only).leaves_out(row) == Some(kind) {
            hidden.push(HiddenBy { shown_with: Some(format!("--include {kind}")), ..reason(kind, because(kind, row)) });
        }
    }
    if !row.members.is_empty() && !is_of_the_home(row) {
        hidden.extend(outside(catalogs, row, query));
    } else if let Some(id) = row.thread.id
        && !candidates(catalogs).iter().any(|c| match c {
            Candidate::Group { home: h, group } => *h == home && is_group_of(&catalogs[*h], *group, row),
            Candidate::Ghost { home: h, id: ghost } => *h == home && *ghost == id,
        })
    {
        hidden.push(if row.members.is_empty() {
            reason("unnamed", "a database row without a file is listed only if it has a name or title")
        } else {
            reason("other_home", "a file of the same thread in another home was written later and stands for both")
        });
    }
    hidden
}

fn is_group_of(catalog: &Catalog, group: usize, row: &Row) -> bool {
    let files = &catalog.groups[group].files;
    files.iter().any(|i| row.members.iter().any(|m| m.entry.path() == catalog.files[*i as usize].path()))
}

fn because(kind: &str, row: &Row) -> String {
    let t = &row.thread;
    match kind {
        "archived" if row.members.is_empty() => "Codex's database marks it as archived".into(),
        "archived" => "its file is in archived_sessions".into(),
        "subagents" => match (t.parent_id, &t.source, &t.thread_source) {
            (Some(parent), ..) => format!("thread {parent} started it"),
            (None, _, Some(word)) => format!("its thread_source is {word}: another thread started it"),
            (None, source, None) => {
                format!("its source is {}: another thread started it", source.clone().unwrap_or_default())
            }
        },
        "exec" => format!("its source is {}: a program started it", t.source.clone().unwrap_or_default()),
        _ => "no one said anything in it, there is no goal, and no tool was called".into(),
    }
}

/// A file that was named by its path and that no list looks at.
fn outside(catalogs: &[Catalog], row: &Row, query: &str) -> Vec<HiddenBy> {
    let mut hidden = Vec::new();
    let given = catalogs.iter().map(|c| c.home.absolute(Path::new(query))).chain([Path::new(query).to_owned()]);
    let is_link = |p: &Path| std::fs::symlink_metadata(p).is_ok_and(|m| m.file_type().is_symlink());
    if given.into_iter().any(|p| is_link(&p)) {
        hidden.push(reason("link", "the path is a link; below sessions and archived_sessions none is followed"));
    }
    for member in &row.members {
        let path = member.entry.path();
        let name = path.file_name().map(|n| n.as_encoded_bytes().to_vec()).unwrap_or_default();
        if !threadkeep_rollout::RolloutName::may_be(&name) {
            hidden.push(reason(
                "name",
                "its name is not a rollout's: those begin with rollout- and end with .jsonl, .jsonl.zst or .json",
            ));
        }
        let below = |c: &Catalog| {
            ["sessions", "archived_sessions"].iter().any(|folder| {
                std::fs::canonicalize(c.home.path().join(folder)).is_ok_and(|folder| path.starts_with(folder))
            })
        };
        if !catalogs.iter().any(below) {
            let homes: Vec<String> = catalogs.iter().map(|c| shown(c.home.path())).collect();
            hidden.push(reason(
                "place",
                format!("it is not below sessions or archived_sessions of {}", homes.join(" or ")),
            ));
        }
    }
    hidden
}
