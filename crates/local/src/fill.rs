//! Filling the index from the files: what changed first, newest first, as long as there is time.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use threadkeep_index::listed::{Changed, Finished, Keep, Known};
use threadkeep_index::{Index, IndexError, IndexOptions, IndexPlace, WhyMemory};
use threadkeep_record::ThreadId;
use threadkeep_record::fold::Check;
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::par;
use threadkeep_rollout::seam::{Disk, OpenMode, RealDisk};
use threadkeep_rollout::walk::FolderNames;

use crate::catalog::{Catalog, Group};
use crate::kept;
use crate::list::SMALL_HOME;
use crate::row;
use crate::text_fill;

/// How long building the index anew waits for others at its file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Threads that are read and kept at once: what a kill loses, and what is held in memory.
const BATCH: usize = 2_048;

/// Bytes of files that are read whole between two looks at the clock.
const BATCH_BYTES: u64 = 64 << 20;

/// A thread larger than this is only read whole when there is no hurry, or when it is merely shown on a page.
const LARGE: u64 = 256 << 20;
const LARGE_ON_PAGE: u64 = 8 << 20;

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Stop at this moment; the next command goes on.
    Then(Instant),
    /// Everything.
    Done,
}

impl Until {
    pub(crate) fn is_over(self) -> bool {
        match self {
            Self::Then(moment) => Instant::now() >= moment,
            Self::Done => false,
        }
    }
}

/// Whether a home that has no index gets one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Where it saves a noticeable time: with more than 100 rollouts, or 64 MB of them.
    IfWorth,
    /// In any case.
    Always,
}

/// Rollouts and their bytes above which a home gets an index by itself.
const WORTH: (usize, u64) = (100, 64 << 20);

/// Of which threads all records are read. The others' heads and tails are enough for the usual order and filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whole<'t> {
    /// Of all.
    All,
    /// Of these, as far as they are not large: the threads of a page that somebody looks at.
    These(&'t [ThreadId]),
}

/// What filling did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filled {
    /// What changed in the index.
    pub changed: Changed,
    /// Threads that were read.
    pub read: u64,
    /// Everything is known now.
    pub finished: bool,
}

/// What building the index anew did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// What changed in the index.
    pub changed: Changed,
    /// Threads in which something is damaged.
    pub damaged: u64,
    /// A damaged index was moved here first.
    pub aside: Option<std::path::PathBuf>,
}

/// Whether something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Apply {
    /// It is.
    Yes,
    /// It is only looked what would be done.
    No,
}

/// Reads every file of a home whole, and makes the index say what they say.
///
/// # Errors
///
/// As [`FillError`] says. Whatever was kept before stays.
pub fn rebuild(catalog: &Catalog, apply: Apply) -> Result<Rebuilt, FillError> {
    let mut report = Rebuilt::default();
    let mut begun = None;
    if let (None, Some(place), Apply::Yes) = (catalog.kept.index(), catalog.kept.place(), apply) {
        let opened = kept::open(&catalog.home, place, PATIENCE);
        begun = match opened {
            Ok(index) => Some(index),
            Err(WhyMemory::Damaged { path, .. }) => {
                let moved = Index::set_aside(&path);
                report.aside = Some(moved.map_err(|e| {
                    FillError::NoIndex(format!(
                        "the index {} is damaged and cannot be moved aside: {e}",
                        path.display()
                    ))
                })?);
                Some(kept::open(&catalog.home, place, PATIENCE).map_err(|why| FillError::NoIndex(why.to_string()))?)
            }
            Err(why) => return Err(FillError::NoIndex(why.to_string())),
        };
    }
    let index = catalog.kept.index().or(begun.as_ref());
    let Some(index) = index else {
        if apply == Apply::Yes {
            return Err(FillError::NoIndex(catalog.kept.why_none().unwrap_or_default().to_owned()));
        }
        // Without an index all would be new.
        let memory = IndexOptions { home: catalog.home.clone(), place: IndexPlace::Memory, busy: Duration::ZERO };
        return rebuild_in(catalog, &Index::open(memory)?, apply, report);
    };
    rebuild_in(catalog, index, apply, report)
}

fn rebuild_in(catalog: &Catalog, index: &Index, apply: Apply, mut report: Rebuilt) -> Result<Rebuilt, FillError> {
    let _writer = if apply == Apply::Yes { Some(Writer::lock(index)?) } else { None };
    let mut filler =
        Filler { catalog, index, until: Until::Done, large: u64::MAX, apply, filled: Filled::default(), damaged: 0 };
    if apply == Apply::Yes {
        index.keep_folders(filler.folders().into_iter())?;
    }
    // What is kept now: the index may have been opened only now, or written by others since.
    let kept = index.listing()?.threads.into_iter().map(|l| l.thread);
    let gone: Vec<ThreadId> = kept.filter(|id| catalog.complete && catalog.group(*id).is_none()).collect();
    filler.keep(&gone, Finished::NotYet)?;
    let all = filler.newest_first(|_| true);
    filler.each(&all, Known::Whole)?;
    // Files without an id in their names are not kept, and looked at for damage alone.
    let nameless: Vec<&Group> = catalog.groups.iter().filter(|g| g.id.is_none()).collect();
    let damaged = par::map(&nameless, |g| row::row(catalog, g, Depth::Whole(Check::Whole)).thread.damage.records > 0);
    filler.damaged += damaged.into_iter().filter(|d| *d).count() as u64;
    if catalog.complete {
        filler.keep(&[], Finished::Yes)?;
    }
    if apply == Apply::Yes {
        text_fill::fill(catalog, index, Until::Done)?;
    }
    write_back(index);
    report.changed = filler.filled.changed;
    report.damaged = filler.damaged;
    Ok(report)
}

/// Bytes of rollouts above which a search is helped by a text hint.
const TEXT_WORTH: u64 = 128 << 20;

/// Reads what was said in the files of a home into the text hint of its index, newest first. Returns whether all is in
/// it.
///
/// # Errors
///
/// As [`FillError`] says. Whatever was kept before stays.
pub fn fill_text(catalog: &Catalog, begin: Begin, until: Until) -> Result<bool, FillError> {
    let Some(index) = catalog.kept.index() else {
        return Err(FillError::NoIndex(catalog.kept.why_none().unwrap_or_default().to_owned()));
    };
    let packed = catalog.files.iter().any(|f| f.name.form == Form::Zstd);
    if begin == Begin::IfWorth && !packed && catalog.files.iter().map(|f| f.size).sum::<u64>() < TEXT_WORTH {
        return Ok(true);
    }
    let _writer = Writer::lock(index)?;
    let done = text_fill::fill(catalog, index, until)?;
    write_back(index);
    Ok(done)
}

/// Whatever was written is kept either way.
fn write_back(index: &Index) {
    let _ = index.write_back();
}

/// Why nothing was filled.
#[derive(Debug, thiserror::Error)]
pub enum FillError {
    /// There is no index to write to.
    #[error("{0}")]
    NoIndex(String),
    /// Another process fills it.
    #[error("another process is writing the index")]
    Busy,
    /// The index refused.
    #[error(transparent)]
    Index(#[from] IndexError),
}

/// Brings the index of a home up to what one look at the home saw: heads and tails of all that changed, then what
/// `whole` asks for.
///
/// # Errors
///
/// As [`FillError`] says. Whatever was kept before stays.
pub fn fill(catalog: &Catalog, begin: Begin, whole: Whole<'_>, until: Until) -> Result<Filled, FillError> {
    let kept = &catalog.kept;
    let begun;
    let index = match (kept.index(), kept.place()) {
        (Some(index), _) => index,
        (None, None) => return Err(FillError::NoIndex(kept.why_none().unwrap_or_default().to_owned())),
        (None, Some(place)) => {
            let bytes = || catalog.files.iter().map(|f| f.size).sum::<u64>();
            if begin == Begin::IfWorth && catalog.files.len() <= WORTH.0 && bytes() <= WORTH.1 {
                return Err(FillError::NoIndex("the home is so small that it needs none".into()));
            }
            begun =
                kept::open(&catalog.home, place, kept::PATIENCE).map_err(|why| FillError::NoIndex(why.to_string()))?;
            &begun
        }
    };
    let large = match (whole, until) {
        (Whole::These(_), Until::Then(_)) => LARGE_ON_PAGE,
        (Whole::All, Until::Then(_)) => LARGE,
        (_, Until::Done) => u64::MAX,
    };
    let mut filler = Filler { catalog, index, until, large, apply: Apply::Yes, filled: Filled::default(), damaged: 0 };
    let heads = filler.newest_first(|i| kept.get(i, Known::Ends).is_none());
    // Rows of threads that are not in the home any more; where a folder could not be read, they may be.
    let gone: Vec<ThreadId> = if catalog.complete { kept.gone().to_vec() } else { vec![] };
    let small = catalog.groups.len() <= SMALL_HOME;
    let unread = |i: usize| kept.get(i, Known::Whole).is_none();
    let whole = match whole {
        _ if small => filler.newest_first(unread),
        Whole::All => filler.newest_first(unread),
        Whole::These(ids) => {
            filler.newest_first(|i| catalog.groups[i].id.is_some_and(|id| ids.contains(&id)) && unread(i))
        }
    };
    let folders = filler.folders();
    let nothing = heads.is_empty() && whole.is_empty() && gone.is_empty() && folders.is_empty();
    if nothing && (kept.is_whole() || !catalog.complete) {
        return Ok(Filled { finished: true, ..Filled::default() });
    }
    let _writer = Writer::lock(index)?;
    if !folders.is_empty() {
        index.keep_folders(folders.into_iter())?;
    }
    filler.keep(&gone, Finished::NotYet)?;
    // The few files of a small home are read whole at once.
    if !small {
        filler.each(&heads, Known::Ends)?;
    }
    if !small && !filler.until.is_over() && catalog.complete && !kept.is_whole() {
        filler.keep(&[], Finished::Yes)?;
    }
    filler.each(&whole, Known::Whole)?;
    let finished = !filler.until.is_over();
    if finished && catalog.complete && !kept.is_whole() {
        filler.keep(&[], Finished::Yes)?;
    }
    write_back(index);
    Ok(Filled { finished, ..filler.filled })
}

struct Filler<'c> {
    catalog: &'c Catalog,
    index: &'c Index,
    until: Until,
    /// Threads larger than this are not read whole.
    large: u64,
    apply: Apply,
    filled: Filled,
    /// Threads in which something is damaged, of those read.
    damaged: u64,
}

impl Filler<'_> {
    fn newest_first(&self, wanted: impl Fn(usize) -> bool) -> Vec<usize> {
        let groups = &self.catalog.groups;
        let mut found: Vec<usize> = (0..groups.len()).filter(|i| groups[*i].id.is_some() && wanted(*i)).collect();
        found.sort_unstable_by_key(|i| std::cmp::Reverse(groups[*i].mtime_ns));
        found
    }

    /// Folders that are to be remembered: not those that may be changing just now.
    fn folders(&self) -> Vec<&(PathBuf, FolderNames)> {
        let settled = |mark| kept::is_settled(mark, self.catalog.looked_ns);
        self.catalog.kept.new_folders.iter().filter(|(_, names)| settled(&names.mark)).collect()
    }

    fn bytes(&self, group: &Group) -> u64 {
        group.files.iter().map(|i| self.catalog.files[*i as usize].size).sum()
    }

    /// Reads groups and keeps them, batch by batch. While one batch is written, the next is read.
    fn each(&mut self, groups: &[usize], known: Known) -> Result<(), FillError> {
        let mut rest = groups;
        let mut ready = Batch::default();
        while !rest.is_empty() && !self.until.is_over() {
            let (batch, behind) = rest.split_at(self.batch(rest, known));
            rest = behind;
            let (written, next) = par::both(|| self.write(&ready, Finished::NotYet), || self.read_all(batch, known));
            self.filled.changed += written?;
            self.filled.read += batch.len() as u64;
            self.damaged += next.damaged;
            ready = next;
        }
        self.filled.changed += self.write(&ready, Finished::NotYet)?;
        Ok(())
    }

    /// How many of the groups are read at once.
    fn batch(&self, groups: &[usize], known: Known) -> usize {
        let mut bytes = 0;
        let fits = |i: &&usize| {
            let before = bytes;
            bytes += self.bytes(&self.catalog.groups[**i]);
            before == 0 || known == Known::Ends || before < BATCH_BYTES
        };
        groups.iter().take(BATCH).take_while(fits).count()
    }

    fn read_all(&self, groups: &[usize], known: Known) -> Batch {
        let read = par::map(groups, |i| self.read(&self.catalog.groups[*i], known));
        let mut batch = Batch::default();
        for ((read, damaged), i) in read.into_iter().zip(groups) {
            batch.damaged += u64::from(damaged);
            match read {
                Read::Keep(k) => batch.keep.push(*k),
                // What does not stand for itself is read from its files every time.
                Read::Odd => batch.forget.extend(self.catalog.groups[*i].id),
                Read::Later => {}
            }
        }
        batch
    }

    /// What is to be kept of a group, and whether something is damaged in it.
    fn read(&self, group: &Group, known: Known) -> (Read, bool) {
        let large = self.bytes(group) > self.large;
        let (depth, known) = match known {
            Known::Whole if large => return (Read::Later, false),
            Known::Whole => (Depth::Whole(Check::Whole), Known::Whole),
            Known::Ends => (Depth::HeadAndTail, Known::Ends),
        };
        let row = row::row(self.catalog, group, depth);
        let read = match kept::keep(group, &self.catalog.files, &row, known, self.catalog.looked_ns) {
            Some(keep) => Read::Keep(Box::new(keep)),
            None => Read::Odd,
        };
        (read, row.thread.damage.records > 0)
    }

    /// Forgets threads, and says whether the whole home was read.
    fn keep(&mut self, forget: &[ThreadId], finished: Finished) -> Result<(), FillError> {
        let batch = Batch { forget: forget.to_vec(), ..Batch::default() };
        self.filled.changed += self.write(&batch, finished)?;
        Ok(())
    }

    fn write(&self, batch: &Batch, finished: Finished) -> Result<Changed, IndexError> {
        if batch.keep.is_empty() && batch.forget.is_empty() && finished == Finished::NotYet {
            return Ok(Changed::default());
        }
        match self.apply {
            Apply::Yes => self.index.keep(&batch.keep, &batch.forget, finished),
            Apply::No => {
                let mut changed = self.index.compare(&batch.keep)?;
                changed.dropped = self.index.count_listed(&batch.forget)?;
                Ok(changed)
            }
        }
    }
}

/// What was read and is to be written.
#[derive(Default)]
struct Batch {
    keep: Vec<Keep>,
    /// Threads that are not kept any more.
    forget: Vec<ThreadId>,
    /// Threads in which something is damaged.
    damaged: u64,
}

enum Read {
    Keep(Box<Keep>),
    /// It is not kept.
    Odd,
    /// There is no time for it now.
    Later,
}

/// Held by the one process that fills an index; the system takes it back when that ends, however it ends.
pub(crate) struct Writer(#[allow(dead_code, reason = "it is held, not used")] Option<File>);

impl Writer {
    pub(crate) fn lock(index: &Index) -> Result<Self, FillError> {
        let Some(path) = index.writer_lock_path() else { return Ok(Self(None)) };
        let no = |e: std::io::Error| FillError::NoIndex(format!("cannot lock {}: {e}", path.display()));
        // Made through the seam, so that it is the user's own; held through the system.
        match RealDisk.open(&path, OpenMode::New) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => return Err(no(e)),
            Ok(_) | Err(_) => {}
        }
        if !std::fs::symlink_metadata(&path).map_err(no)?.is_file() {
            return Err(FillError::NoIndex(format!("{} is no file", path.display())));
        }
        let file = File::options().read(true).write(true).open(&path).map_err(no)?;
        match file.try_lock() {
            Ok(()) => Ok(Self(Some(file))),
            Err(std::fs::TryLockError::WouldBlock) => Err(FillError::Busy),
            Err(std::fs::TryLockError::Error(e)) => Err(no(e)),
        }
    }
}
