//! What a query says to threads that the index keeps, without a look at their files.

use std::collections::{HashMap, HashSet};

use threadkeep_index::listed::Listed;
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_store::ListQuery;

use crate::catalog::Catalog;
use crate::filter::{Filter, Reason};

/// Whether a query keeps a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    In,
    Out(Reason),
    /// Its row has to be looked at.
    Unclear,
}

/// A query, prepared for the threads that the indexes of some homes keep.
pub(crate) struct KeptFilter<'q> {
    catalogs: &'q [Catalog],
    query: &'q ListQuery,
    filter: &'q Filter<'q>,
    homes: Vec<HomeFilter>,
}

struct HomeFilter {
    /// What each facet says: reasons before and behind time and texts.
    facets: HashMap<i64, (Option<Reason>, Option<Reason>)>,
    texts: Option<Texts>,
}

/// What is asked that a thread's kind and time do not tell.
struct Texts {
    /// Threads that may have a name, where names are asked about.
    named: HashSet<ThreadId>,
    /// Rows whose preview holds the text, and those of which only the beginning is known, where a text is asked for;
    /// `None` inside where the index cannot tell.
    previews: Option<Option<(HashSet<i64>, HashSet<i64>)>>,
    /// Facets of the branch, where one is asked for.
    branch: Option<HashSet<i64>>,
    /// Facets of threads whose branch may have been changed beside their files.
    edited: HashSet<i64>,
    /// Rows of threads that changed the file, where one is asked for; `None` inside where the index cannot tell.
    file: Option<Option<HashSet<i64>>>,
}

impl<'q> KeptFilter<'q> {
    pub fn new(catalogs: &'q [Catalog], query: &'q ListQuery, filter: &'q Filter<'q>) -> Self {
        let home = |catalog: &Catalog| HomeFilter {
            facets: catalog.kept.facets().map(|(id, facet)| (id, filter.leaves_out_kind(facet))).collect(),
            texts: filter.asks_texts().then(|| Texts::new(catalog, query, filter)),
        };
        Self { catalogs, query, filter, homes: catalogs.iter().map(home).collect() }
    }

    pub fn verdict(&self, home: usize, listed: &Listed) -> Verdict {
        let catalog = &self.catalogs[home];
        let home = &self.homes[home];
        let Some((before, behind)) = home.facets.get(&listed.facet).copied() else { return Verdict::Unclear };
        if let Some(reason) = before.or_else(|| self.filter.leaves_out_time(UtcMillis(listed.updated_at))) {
            return Verdict::Out(reason);
        }
        match home.texts.as_ref().map_or(Verdict::In, |texts| texts.verdict(listed, self.query)) {
            // One whose parent was taken away without it stands for itself.
            Verdict::In if behind == Some("subagents") && listed.parent.is_some_and(|p| catalog.stands_apart(p)) => {
                Verdict::Unclear
            }
            Verdict::In => behind.map_or(Verdict::In, Verdict::Out),
            other => other,
        }
    }
}

impl Texts {
    fn new(catalog: &Catalog, query: &ListQuery, filter: &Filter<'_>) -> Self {
        let mut named: HashSet<ThreadId> = HashSet::new();
        if query.named || query.matching.is_some() {
            named.extend(catalog.db_named().into_iter().map(|(id, _)| id));
            named.extend(catalog.names.named().into_iter().map(|(id, _)| id));
        }
        let previews = query.matching.as_ref().map(|_| catalog.kept.previews(|p| filter.text_matches(p)));
        let branch: Option<HashSet<i64>> = query.branch.as_ref().map(|want| {
            let facets = catalog.kept.facets();
            facets.filter(|(_, f)| f.branch.as_ref() == Some(want)).map(|(id, _)| id).collect()
        });
        // Codex keeps a paginated thread's branch in its database where it was changed later.
        let edited = branch.is_some() && catalog.has_db();
        Self {
            named,
            previews,
            branch,
            edited: catalog.kept.facets().filter(|(_, f)| edited && f.paginated).map(|(id, _)| id).collect(),
            file: query.file.as_ref().map(|_| catalog.kept.touching(|path| filter.is_file(path))),
        }
    }

    fn verdict(&self, listed: &Listed, query: &ListQuery) -> Verdict {
        if self.named.contains(&listed.thread) || self.edited.contains(&listed.facet) {
            return Verdict::Unclear;
        }
        if query.named {
            return Verdict::Out("named");
        }
        match &self.previews {
            Some(Some((hits, _))) if hits.contains(&listed.row) => {}
            Some(Some((_, open))) if open.contains(&listed.row) => return Verdict::Unclear,
            Some(None) => return Verdict::Unclear,
            Some(Some(_)) => return Verdict::Out("match"),
            None => {}
        }
        if self.branch.as_ref().is_some_and(|facets| !facets.contains(&listed.facet)) {
            return Verdict::Out("branch");
        }
        match &self.file {
            Some(Some(rows)) if !rows.contains(&listed.row) => Verdict::Out("file"),
            Some(None) => Verdict::Unclear,
            Some(Some(_)) | None => Verdict::In,
        }
    }
}
