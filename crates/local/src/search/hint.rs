//! What the text hint says of files: which have to be scanned for a term, and where.

use std::sync::atomic::{AtomicUsize, Ordering};

use threadkeep_index::text::Query;
use threadkeep_index::texts::{TextCandidates, TextFiles};
use threadkeep_rollout::name::Form;
use threadkeep_rollout::walk::FileEntry;

use crate::catalog::Catalog;
use crate::text_fill::grown;

/// A file that was appended to is looked up by its identity from this size on: smaller ones are scanned as quickly.
const LARGE: u64 = 1 << 20;

/// Where a file may hold a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Look {
    /// Anywhere.
    All,
    /// Nowhere.
    Nowhere,
    /// In these byte ranges of whole records, if anywhere.
    Ranges(Vec<(u64, u64)>),
}

/// The hints of some homes for one term.
pub(super) struct Hints<'c> {
    /// `None` until they are asked.
    homes: Option<Vec<Option<Hint<'c>>>>,
    /// As many files are known as there are.
    full: bool,
    /// Files that were asked about and are not known.
    unknown: AtomicUsize,
}

struct Hint<'c> {
    catalog: &'c Catalog,
    files: TextFiles,
    candidates: TextCandidates,
}

impl<'c> Hints<'c> {
    /// Nothing is known yet: everything is scanned.
    pub fn unasked(catalogs: &[Catalog]) -> Self {
        let full = |c: &Catalog| {
            let known = c.kept.index().and_then(|index| index.count_text_files().ok());
            known.is_some_and(|known| known == c.files.len() as u64)
        };
        Self { homes: None, full: catalogs.iter().all(full), unknown: AtomicUsize::new(0) }
    }

    /// Asks the indexes of the homes, once. Whatever they cannot tell is scanned.
    pub fn ask(&mut self, catalogs: &'c [Catalog], term: &str) {
        if self.homes.is_some() {
            return;
        }
        let query = Query::new(term);
        let hint = |catalog: &'c Catalog| {
            let bytes: u64 = catalog.files.iter().map(|f| f.size).sum();
            let index = catalog.kept.index()?;
            let candidates = index.text_candidates(query.as_ref()?).ok()??;
            // Where most of the home is left, going through it in order costs less than picking.
            if candidates.bytes > bytes / 2 {
                return None;
            }
            let files = index.text_files().ok().filter(|files| !files.is_empty())?;
            Some(Hint { catalog, files, candidates })
        };
        self.homes = Some(catalogs.iter().map(hint).collect());
    }

    /// Whether nothing was met that the hint does not know yet.
    pub fn is_full(&self) -> bool {
        self.full && self.unknown.load(Ordering::Relaxed) == 0
    }

    /// Where a file of a home may hold the term.
    pub fn look(&self, home: usize, file: &FileEntry) -> Look {
        let Some(hint) = self.homes.as_ref().and_then(|h| h.get(home)?.as_ref()) else { return Look::All };
        let plain = file.name.form == Form::Plain;
        let (owner, read_to) = match hint.files.get(file.print()) {
            Some((owner, read_to, _)) if plain => (owner, read_to),
            Some((owner, read_to, 1)) => (owner, read_to),
            Some(_) => return Look::All,
            None => {
                self.unknown.fetch_add(1, Ordering::Relaxed);
                match hint.grown(file) {
                    Some(known) => known,
                    None => return Look::All,
                }
            }
        };
        let mut ranges = hint.candidates.of(owner).to_vec();
        if plain && file.size > read_to {
            // What came since, and a last line without its end, are in no unit.
            ranges.push((read_to, file.size));
        }
        match (ranges.is_empty(), plain) {
            (true, _) => Look::Nowhere,
            (false, true) => Look::Ranges(ranges),
            (false, false) => Look::All,
        }
    }
}

impl Hint<'_> {
    /// What is known of a large file that was only appended to.
    fn grown(&self, file: &FileEntry) -> Option<(u64, u64)> {
        if file.size < LARGE {
            return None;
        }
        let path = file.path_in(self.catalog.home.path());
        grown(self.catalog.kept.index()?, file, &path, |_| true).map(|k| (k.owner, k.read_to))
    }
}
