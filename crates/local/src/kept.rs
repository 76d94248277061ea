//! What the index keeps of the threads of a home, held against the files as they are now.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use threadkeep_index::listed::{Cut, Keep, Known, Listed, Listing};
use threadkeep_index::{Index, IndexError, IndexOptions, IndexPlace, Placed, WhyMemory};
use threadkeep_record::{SourceClass, ThreadId, UtcMillis};
use threadkeep_rollout::home::Home;
use threadkeep_rollout::par;
use threadkeep_rollout::sight;
use threadkeep_rollout::walk::{FileEntry, FolderMark, FolderNames};
use threadkeep_store::Thread;

use crate::catalog::{Catalog, Group};
use crate::row::Row;

/// How long a reading command waits for others at the index.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// A folder that changed so shortly before the look may change again without another time.
pub(crate) fn is_settled(mark: &FolderMark, looked_ns: i64) -> bool {
    !sight::is_racy(mark.mtime_ns, mark.ctime_ns, looked_ns)
}

/// The same of a file that was looked at.
pub(crate) fn is_racy(file: &FileEntry, looked_ns: i64) -> bool {
    sight::is_racy(file.mtime_ns, file.ctime_ns, looked_ns)
}

/// Previews are kept up to so many bytes.
const PREVIEW: usize = 64 << 10;

/// For very many ids that are asked for very often.
pub(crate) type IdHashing = BuildHasherDefault<IdHasher>;

/// Takes the end of an id for its hash: the part that was chosen at random. Ids that were chosen to collide cost time.
#[derive(Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(end) = bytes.last_chunk::<8>() {
            self.0 ^= u64::from_le_bytes(*end);
        }
    }

    fn finish(&self) -> u64 {
        // The table takes its place from the lowest bits and a mark from the highest.
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// No row.
const NONE: u32 = u32::MAX;

/// So many groups are held against the files on one core at once.
const SETTLED_AT_ONCE: usize = 4096;

/// What came of holding the rows of some groups against the files.
#[derive(Debug, Default)]
struct Settled {
    /// For each group its place in the listing.
    at: Vec<u32>,
    /// Threads that are kept and not in the home.
    gone: Vec<ThreadId>,
    /// Threads and rollouts that are not as they were.
    changed: Vec<ThreadId>,
}

/// The rows of the index for one look at a home.
#[derive(Debug)]
pub struct Kept {
    /// Where it is to be; `None` where none is wanted.
    place: Option<IndexPlace>,
    index: Option<Index>,
    /// Why there is none.
    why_none: String,
    listing: Listing,
    /// Who started whom, where only some threads are in the listing.
    parents: Option<Vec<(ThreadId, ThreadId)>>,
    facets: HashMap<i64, Facet>,
    /// For each group of the catalog its place in the listing; `NONE` where its files are not those it was made from.
    at: Vec<u32>,
    /// Threads that are kept and not in the home.
    gone: Vec<ThreadId>,
    /// Folders that are to be remembered.
    pub(crate) new_folders: Vec<(PathBuf, FolderNames)>,
}

/// What filters ask of a thread. Few differ, so they are kept once for many threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Facet {
    pub archived: bool,
    pub class: SourceClass,
    pub empty: bool,
    pub paginated: bool,
    pub cwd: Option<String>,
    pub source: Option<Value>,
    pub provider: Option<String>,
    pub originator: Option<String>,
    pub model: Option<String>,
    pub branch: Option<String>,
}

/// A row as it is kept. The preview stands beside it.
#[derive(Debug, Serialize, Deserialize)]
struct KeptRow {
    thread: Thread,
    by_reference: bool,
    /// The first message is the preview.
    first_is_preview: bool,
    /// Texts were cut.
    lightened: bool,
}

impl Kept {
    /// Without an index.
    #[must_use]
    pub fn none(why: impl Into<String>) -> Self {
        Self {
            place: None,
            index: None,
            why_none: why.into(),
            listing: Listing::default(),
            parents: None,
            facets: HashMap::new(),
            at: Vec::new(),
            gone: Vec::new(),
            new_folders: Vec::new(),
        }
    }

    /// Opens the index of a home, if it has one. Never fails: what cannot be used is as if it were not there.
    #[must_use]
    pub fn open(home: &Home, place: &IndexPlace) -> Self {
        let wanted = |why: String| Self { place: Some(place.clone()), ..Self::none(why) };
        if !Index::is_there(home, place) {
            return wanted("there is no index yet".into());
        }
        let index = match open(home, place, PATIENCE) {
            Ok(index) => index,
            Err(why) => return wanted(why.to_string()),
        };
        Self { index: Some(index), ..wanted(String::new()) }
    }

    /// Reads what lists need.
    pub(crate) fn listing(&self) -> Option<Result<Listing, IndexError>> {
        self.index.as_ref().map(Index::listing)
    }

    /// Takes what was read.
    pub(crate) fn load(&mut self, listing: Option<Result<Listing, IndexError>>) {
        match listing {
            None => {}
            Some(Ok(listing)) => {
                let facets = listing.facets.iter();
                self.facets = facets.filter_map(|(id, text)| Some((*id, serde_json::from_str(text).ok()?))).collect();
                self.listing = listing;
            }
            // Another process may be making it: it can be written to later, and tells nothing now.
            Some(Err(e)) => self.why_none = e.to_string(),
        }
    }

    /// Reads what is needed of some threads, where who started whom was read of all.
    pub(crate) fn load_some(&mut self, ids: &[ThreadId], parents: Vec<(ThreadId, ThreadId)>) {
        let listing = self.index.as_ref().map(|index| index.listing_of(ids));
        self.load(listing);
        self.parents = Some(parents);
    }

    /// Where it is to be; `None` where none is wanted.
    #[must_use]
    pub fn place(&self) -> Option<&IndexPlace> {
        self.place.as_ref()
    }

    /// The folders whose names are remembered; `None` where none are to be.
    pub(crate) fn folders(&self) -> Option<HashMap<PathBuf, FolderNames>> {
        self.place.as_ref()?;
        Some(self.index.as_ref().and_then(|index| index.folders().ok()).unwrap_or_default())
    }

    /// Holds the rows against the files: only those whose files are as they were are used.
    pub(crate) fn settle(&mut self, groups: &[Group], files: &[FileEntry]) {
        self.at = vec![NONE; groups.len()];
        if self.listing.threads.is_empty() {
            return;
        }
        // Groups without an id come last, and are not kept.
        let groups = &groups[..groups.partition_point(|g| g.id.is_some())];
        let starts: Vec<usize> = (0..groups.len().max(1)).step_by(SETTLED_AT_ONCE).collect();
        let parts = par::map(&starts, |from| self.settle_part(groups, *from, files));
        let mut changed: Vec<ThreadId> = Vec::new();
        for (part, from) in parts.into_iter().zip(starts) {
            self.at[from..from + part.at.len()].copy_from_slice(&part.at);
            self.gone.extend(part.gone);
            changed.extend(part.changed);
        }
        changed.extend(&self.gone);
        if !changed.is_empty() {
            self.drop_dependents(&changed);
        }
    }

    /// As [`settle`](Self::settle), where only some threads of the home were looked at.
    pub(crate) fn settle_some(&mut self, groups: &[Group], files: &[FileEntry]) {
        let threads = &self.listing.threads;
        let mut changed: Vec<ThreadId> = Vec::new();
        let mut at_of = |group: &Group| {
            let at = group.id.and_then(|id| threads.binary_search_by(|l| l.thread.cmp(&id)).ok());
            let same =
                at.filter(|i| threads[*i].print == print(group, files) && self.facets.contains_key(&threads[*i].facet));
            if same.is_none() {
                changed.extend(group.id);
                changed.extend(group.files.iter().filter_map(|f| files[*f as usize].name.segment));
            }
            same.and_then(|i| u32::try_from(i).ok()).unwrap_or(NONE)
        };
        self.at = groups.iter().map(&mut at_of).collect();
        if !changed.is_empty() {
            self.drop_dependents(&changed);
        }
    }

    /// Who started whom, by the headers that were read; also of threads that are gone since.
    pub(crate) fn parents(&self) -> impl Iterator<Item = (ThreadId, ThreadId)> + '_ {
        let listed = self.listing.threads.iter().filter(|_| self.parents.is_none());
        let listed = listed.filter_map(|l| Some((l.thread, l.parent?)));
        self.parents.iter().flatten().copied().chain(listed)
    }

    /// Holds the rows of some neighbouring groups against the files.
    fn settle_part(&self, groups: &[Group], from: usize, files: &[FileEntry]) -> Settled {
        let to = (from + SETTLED_AT_ONCE).min(groups.len());
        let threads = &self.listing.threads;
        // What is kept of threads between two groups goes with the first of them.
        let before =
            |at: usize| groups.get(at).map_or(threads.len(), |g| threads.partition_point(|l| Some(l.thread) < g.id));
        let first = if from == 0 { 0 } else { before(from) };
        let mut kept = threads[..before(to)].iter().zip(0u32..).skip(first).peekable();
        let mut part = Settled { at: vec![NONE; to - from], ..Settled::default() };
        for (group, at) in groups[from..to].iter().zip(&mut part.at) {
            let Some(id) = group.id else { break };
            while let Some((l, _)) = kept.next_if(|(l, _)| l.thread < id) {
                part.gone.push(l.thread);
            }
            let same = kept.next_if(|(l, _)| l.thread == id);
            match same {
                Some((l, i)) if l.print == print(group, files) && self.facets.contains_key(&l.facet) => *at = i,
                Some(_) | None => {
                    part.changed.push(id);
                    part.changed.extend(group.files.iter().filter_map(|f| files[*f as usize].name.segment));
                }
            }
        }
        part.gone.extend(kept.map(|(l, _)| l.thread));
        part
    }

    /// A row that says something of another thread is made again when that thread's files change.
    fn drop_dependents(&mut self, changed: &[ThreadId]) {
        let rows = self.index.as_ref().map_or(Ok(vec![]), |index| index.dependents(changed));
        match rows {
            Ok(rows) => {
                let rows: HashSet<i64> = rows.into_iter().collect();
                if !rows.is_empty() {
                    let threads = &self.listing.threads;
                    let stale = |at: u32| threads.get(at as usize).is_some_and(|l| rows.contains(&l.row));
                    self.at.iter_mut().filter(|at| stale(**at)).for_each(|at| *at = NONE);
                }
            }
            Err(e) => {
                *self = Self {
                    at: vec![NONE; self.at.len()],
                    index: self.index.take(),
                    place: self.place.take(),
                    ..Self::none(e.to_string())
                }
            }
        }
    }

    /// The threads of which some row says something of these, beside its own; `None` where that cannot be told.
    pub(crate) fn dependents(&self, of: &[ThreadId]) -> Option<Vec<ThreadId>> {
        #[derive(Deserialize)]
        struct Of {
            thread: Id,
        }
        #[derive(Deserialize)]
        struct Id {
            id: Option<ThreadId>,
        }
        let Some(index) = &self.index else { return Some(vec![]) };
        // A row that is gone meanwhile has another number now.
        let rows = index.rows(&index.dependents(of).ok()?).ok()?;
        let id = |row: Option<(String, _)>| serde_json::from_str::<Of>(&row?.0).ok()?.thread.id;
        rows.into_iter().map(id).collect()
    }

    /// The row of a group, where its files are as they were and enough of them was read for it.
    pub(crate) fn get(&self, group: usize, enough: Known) -> Option<&Listed> {
        let at = *self.at.get(group)?;
        self.listing.threads.get(at as usize).filter(|l| l.known >= enough)
    }

    /// The row of a thread, and whether its files are as they were when it was made.
    pub(crate) fn find(&self, catalog: &Catalog, id: ThreadId) -> Option<(Row, bool)> {
        let at = self.listing.threads.binary_search_by(|l| l.thread.cmp(&id)).ok()?;
        let listed = self.listing.threads.get(at)?;
        let fresh = catalog.group_index(id).is_some_and(|group| self.get(group, Known::Ends).is_some());
        self.rows(&[listed]).pop().flatten().map(|row| (row, fresh))
    }

    /// What filters ask of it.
    pub(crate) fn facet(&self, listed: &Listed) -> Option<&Facet> {
        self.facets.get(&listed.facet)
    }

    /// All facets.
    pub(crate) fn facets(&self) -> impl Iterator<Item = (i64, &Facet)> {
        self.facets.iter().map(|(id, facet)| (*id, facet))
    }

    /// Why there is no index to read from.
    #[must_use]
    pub fn why_none(&self) -> Option<&str> {
        (self.index.is_none() || !self.why_none.is_empty()).then_some(&self.why_none)
    }

    /// The index itself.
    #[must_use]
    pub fn index(&self) -> Option<&Index> {
        self.index.as_ref()
    }

    /// Threads that are kept and not in the home.
    #[must_use]
    pub fn gone(&self) -> &[ThreadId] {
        &self.gone
    }

    /// The whole home was read into the index once.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.listing.whole
    }

    /// Rows as they were made, in the order asked for; `None` where one cannot be had any more.
    pub(crate) fn rows(&self, listed: &[&Listed]) -> Vec<Option<Row>> {
        let numbers: Vec<i64> = listed.iter().map(|l| l.row).collect();
        let texts = self.index.as_ref().and_then(|index| index.rows(&numbers).ok());
        let Some(texts) = texts else { return listed.iter().map(|_| None).collect() };
        texts.into_iter().zip(listed).map(|(text, l)| self.row(text?, l)).collect()
    }

    fn row(&self, (text, preview): (String, Option<String>), l: &Listed) -> Option<Row> {
        let facet = self.facet(l)?;
        let KeptRow { mut thread, by_reference, first_is_preview, lightened } = serde_json::from_str(&text).ok()?;
        // Another row took the number meanwhile.
        if thread.id != Some(l.thread) {
            return None;
        }
        if first_is_preview {
            thread.first_user_message.clone_from(&preview);
        }
        thread.preview = preview;
        thread.cwd.clone_from(&facet.cwd);
        thread.source.clone_from(&facet.source);
        thread.model_provider.clone_from(&facet.provider);
        thread.originator.clone_from(&facet.originator);
        thread.model.clone_from(&facet.model);
        Some(Row {
            class: facet.class,
            empty: facet.empty,
            key: l.thread.to_string(),
            mtime: UtcMillis(l.mtime),
            thread,
            members: vec![],
            assembly: None,
            preview_matches: false,
            touches: false,
            lightened,
            // Told by lists before they take a row as it is kept.
            apart: false,
            by_reference,
            touched: vec![],
            depends: vec![],
            kept: Some(l.known),
        })
    }

    /// The rows of threads that changed a file that passes. `None` where they cannot be told.
    pub(crate) fn touching(&self, passes: impl Fn(&str) -> bool) -> Option<HashSet<i64>> {
        Some(self.index.as_ref()?.touching(passes).ok()?.into_iter().collect())
    }

    /// The rows whose preview passes, and those of which only the beginning is known. `None` where they cannot be told.
    pub(crate) fn previews(&self, passes: impl Fn(&str) -> bool) -> Option<(HashSet<i64>, HashSet<i64>)> {
        let (mut hits, mut open) = (HashSet::new(), HashSet::new());
        let read = self.index.as_ref()?.previews(|row, text, cut| {
            if passes(text) {
                hits.insert(row);
            } else if cut == Cut::Yes {
                open.insert(row);
            }
        });
        read.ok().map(|()| (hits, open))
    }
}

/// Opens the index of a home, or begins it.
pub(crate) fn open(home: &Home, place: &IndexPlace, busy: Duration) -> Result<Index, WhyMemory> {
    let opened = Index::open(IndexOptions { home: home.clone(), place: place.clone(), busy });
    let busy = |e: IndexError| WhyMemory::NotWritable { path: home.path().to_owned(), problem: e.to_string() };
    let index = opened.map_err(busy)?;
    match index.place() {
        Placed::File { .. } => Ok(index),
        Placed::Memory { why } => Err(why),
    }
}

/// A number for the files of a group, as they are; never 0.
pub(crate) fn print(group: &Group, files: &[FileEntry]) -> u64 {
    let each = |i: &u32| files[*i as usize].print();
    // The order in which a walk met them says nothing.
    group.files.iter().map(each).fold(0, u64::wrapping_add).max(1)
}

/// What is kept of a thread. `None` for one that does not stand for itself: its files' names and headers disagree, or
/// something in its place cannot be read.
pub(crate) fn keep(group: &Group, files: &[FileEntry], row: &Row, known: Known, looked_ns: i64) -> Option<Keep> {
    let id = group.id.filter(|id| row.thread.id == Some(*id))?;
    let mine = || group.files.iter().map(|i| &files[*i as usize]);
    if mine().any(|f| f.problem.is_some()) {
        return None;
    }
    let racy = mine().any(|f| is_racy(f, looked_ns));
    let t = &row.thread;
    let facet = Facet {
        archived: t.archived,
        class: row.class,
        empty: row.empty,
        paginated: t.history_mode == Some(threadkeep_record::HistoryMode::Paginated),
        cwd: t.cwd.clone(),
        source: t.source.clone(),
        provider: t.model_provider.clone(),
        originator: t.originator.clone(),
        model: t.model.clone(),
        branch: t.git.as_ref().and_then(|g| g.branch.clone()),
    };
    let mut thread = t.clone();
    // What stands beside the files is read when it is shown.
    thread.live = None;
    thread.children = None;
    // What the facet says is not said again.
    thread.cwd = None;
    thread.source = None;
    thread.model_provider = None;
    thread.originator = None;
    thread.model = None;
    let preview = thread.preview.take();
    let first_is_preview = thread.first_user_message == preview;
    let long = |text: &Option<String>| text.as_ref().is_some_and(|t| t.len() > PREVIEW);
    let cut = if long(&preview) || row.lightened { Cut::Yes } else { Cut::No };
    let lightened = cut == Cut::Yes || long(&thread.first_user_message);
    if first_is_preview {
        thread.first_user_message = None;
    }
    thread.first_user_message = thread.first_user_message.map(beginning);
    let kept = KeptRow { thread, by_reference: row.by_reference, first_is_preview, lightened };
    Some(Keep {
        listed: Listed {
            thread: id,
            print: if racy { 0 } else { print(group, files) },
            known,
            updated_at: row.updated().0,
            created_at: row.created().0,
            recency_at: row.recency().0,
            mtime: row.mtime.0,
            facet: 0,
            row: 0,
            parent: t.parent_id,
        },
        facet: serde_json::to_string(&facet).ok()?,
        row: without_nulls(&kept)?,
        preview: preview.map(beginning),
        cut,
        depends: row.depends.clone(),
        touched: row.touched.clone(),
    })
}

/// A row as text. What is not known is left out: it is read as that.
fn without_nulls(row: &KeptRow) -> Option<String> {
    let mut value = serde_json::to_value(row).ok()?;
    value.get_mut("thread")?.as_object_mut()?.retain(|_, fact| !fact.is_null());
    serde_json::to_string(&value).ok()
}

/// The beginning of a text that is too long to keep.
fn beginning(text: String) -> String {
    if text.len() <= PREVIEW {
        return text;
    }
    let end = (0..=PREVIEW).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    text[..end].to_owned()
}
