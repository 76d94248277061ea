//! What the text hint says of files: which have to be scanned for a term, and where.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use threadkeep_index::text::Query;
use threadkeep_index::texts::{TextFiles, TextHint};
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
    catalogs: &'c [Catalog],
    /// `None` for a home whose index cannot tell.
    homes: Vec<Option<TextHint>>,
    /// Files that were asked about and are not known.
    unknown: AtomicUsize,
}

impl<'c> Hints<'c> {
    /// Nothing is known yet: everything is scanned.
    pub fn unasked(catalogs: &'c [Catalog]) -> Self {
        Self { catalogs, homes: vec![], unknown: AtomicUsize::new(0) }
    }

    /// Asks the indexes of the homes. Whatever they cannot tell is scanned. Nobody wants to know any more once `stop` is
    /// set.
    pub fn ask(catalogs: &'c [Catalog], term: &str, stop: &AtomicBool) -> Self {
        let query = Query::new(term);
        let hint = |catalog: &'c Catalog| {
            let bytes: u64 = catalog.files.iter().map(|f| f.size).sum();
            // Where most of the home is left, going through it in order costs less than picking.
            let hint = catalog.kept.index()?.text_hint(query.as_ref()?, bytes / 2, stop).ok()??;
            (!hint.files.is_empty()).then_some(hint)
        };
        Self { homes: catalogs.iter().map(hint).collect(), ..Self::unasked(catalogs) }
    }

    /// Whether the index knows as many files as there are, and nothing was met that it does not know yet.
    pub fn is_full(&self) -> bool {
        let full = |c: &Catalog| {
            let known = c.kept.index().and_then(|index| index.count_text_files().ok());
            known.is_some_and(|known| known == c.files.len() as u64)
        };
        self.unknown.load(Ordering::Relaxed) == 0 && self.catalogs.iter().all(full)
    }

    /// Where a file of a home may hold the term.
    pub fn look(&self, home: usize, file: &FileEntry) -> Look {
        let Some(hint) = self.homes.get(home).and_then(Option::as_ref) else { return Look::All };
        let plain = file.name.form == Form::Plain;
        let (owner, read_to) = match hint.files.get(file.print()) {
            Some(known) if plain || known.check == 1 => (known.owner, known.read_to),
            Some(_) => return Look::All,
            None => {
                self.unknown.fetch_add(1, Ordering::Relaxed);
                match self.grown(home, &hint.files, file) {
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

    /// What is known of a large file that was only appended to.
    fn grown(&self, home: usize, files: &TextFiles, file: &FileEntry) -> Option<(u64, u64)> {
        if file.size < LARGE {
            return None;
        }
        let path = file.path_in(self.catalogs.get(home)?.home.path());
        grown(files, file, &path, |_| true).map(|k| (k.owner, k.read_to))
    }
}
