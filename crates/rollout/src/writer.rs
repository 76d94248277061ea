//! Writing one thread's rollout: made when the first record comes, continued where it ends, ordinals and times given out
//! once. The caller holds the thread's writer lock.
//!
//! What a crash may leave: a file without a whole header (nothing of it was acknowledged), or whole records up to some
//! point behind the last acknowledged one, and then a part of one. Opening it again closes that part off.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use threadkeep_record::{Envelope, HistoryMode, LineState, NewItem, SessionMeta, UtcMillis, check_line, sniff};

use crate::appender::{AppendError, Appender, Durability};
use crate::reverse::ReverseReader;
use crate::seam::{Disk, DiskFile, OpenMode};

/// Why a rollout cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// See [`AppendError`].
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Something other than the file itself failed: its folder, or the names in it.
    #[error("cannot {what} {}: {source}", path.display())]
    Folder {
        /// What was tried.
        what: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The rollout cannot be continued as it is (`thread-store.md` 4.5).
    #[error("{message}")]
    NotContinued {
        /// The file.
        path: PathBuf,
        /// Why, with the file.
        message: String,
    },
}

impl WriteError {
    /// Another program wrote to the file; nothing was written.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Append(AppendError::Conflict { .. }))
    }
}

/// A record that is not in the file yet. Its ordinal is given when it is written.
#[derive(Debug)]
enum Queued {
    Item(NewItem, UtcMillis),
    /// Bytes of another rollout's record, copied as they are.
    Copy(Vec<u8>),
}

/// A writer of one rollout.
#[derive(Debug)]
pub struct RolloutWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    mode: HistoryMode,
    durability: Durability,
    /// `None` before the file is made.
    appender: Option<Appender>,
    /// Folders whose names are not durable yet.
    folders: Vec<PathBuf>,
    /// The header, until it is queued.
    header: Option<NewItem>,
    queue: VecDeque<Queued>,
    next_ordinal: u64,
    last_time: UtcMillis,
    torn: bool,
}

/// Where a new rollout goes.
#[derive(Debug, Clone)]
pub struct NewRollout {
    /// The file, which must not be there.
    pub path: PathBuf,
    /// The folder from which on folders are made, and made durable: the home.
    pub root: PathBuf,
    /// How the history is kept.
    pub mode: HistoryMode,
    /// The header.
    pub header: NewItem,
    /// Ordinal of the header: 0, or where a history continues another.
    pub first_ordinal: u64,
}

impl RolloutWriter {
    /// A writer of a rollout that is not there yet. Nothing is made before the first record or
    /// [`persist`](Self::persist).
    #[must_use]
    pub fn create(disk: Arc<dyn Disk>, new: NewRollout, durability: Durability) -> Self {
        let folders = folders(&new.path, &new.root);
        Self {
            disk,
            path: new.path,
            mode: new.mode,
            durability,
            appender: None,
            folders,
            header: Some(new.header),
            queue: VecDeque::new(),
            next_ordinal: new.first_ordinal,
            last_time: UtcMillis(0),
            torn: false,
        }
    }

    /// Continues a plain rollout that is there. `root` is the folder from which on the names that lead to it are made
    /// durable with the first flush (the home): whoever made it may have died before doing so.
    pub fn resume(disk: Arc<dyn Disk>, path: &Path, root: &Path, durability: Durability) -> Result<Self, WriteError> {
        let appender = Appender::open(&*disk, path, OpenMode::Existing, durability)?;
        let torn = appender.found_torn();
        let refused = |message: String| WriteError::NotContinued { path: path.to_owned(), message };
        let header = first_header(appender.file(), appender.end(), path)?;
        let mode = header.history_mode.unwrap_or(HistoryMode::Legacy);
        if mode == HistoryMode::Unknown {
            return Err(refused(format!(
                "invalid session metadata history_mode: {} is kept in a way that this version does not know",
                path.display()
            )));
        }
        let mut writer = Self {
            disk,
            path: path.to_owned(),
            mode,
            durability,
            appender: Some(appender),
            folders: folders(path, root),
            header: None,
            queue: VecDeque::new(),
            next_ordinal: 0,
            last_time: UtcMillis(0),
            torn,
        };
        writer.read_end()?;
        if let Some(start) = header.subagent_history_start_ordinal
            && writer.next_ordinal < start
        {
            return Err(refused(format!(
                "{} is incomplete: expected inherited prefix through ordinal {}",
                path.display(),
                start.saturating_sub(1)
            )));
        }
        Ok(writer)
    }

    /// Later records are behind `time`: where a history continues another, its times go on, too.
    #[must_use]
    pub fn behind(mut self, time: UtcMillis) -> Self {
        self.last_time = self.last_time.max(time);
        self
    }

    /// Reads from the file's end where ordinals and times go on. Damaged records are passed over; an ordinal that
    /// stands twice does not make the next one stand twice, too.
    fn read_end(&mut self) -> Result<(), WriteError> {
        /// Records that are looked at from the end: repeated ordinals are few and near.
        const LOOKED_AT: usize = 64;
        let Some(appender) = &self.appender else { return Ok(()) };
        let failed = |source| WriteError::Append(AppendError::Open { path: self.path.clone(), source });
        let mut reader = ReverseReader::new(appender.file(), appender.end(), 16 << 10);
        let (mut found, mut ordinal, mut time) = (0, None, None);
        while found < LOOKED_AT {
            let Some(line) = reader.next_line().map_err(failed)? else { break };
            if line.long {
                let Some(s) = sniff::sniff(line.bytes) else { continue };
                time = time.max(std::str::from_utf8(s.timestamp).ok().and_then(UtcMillis::parse));
                ordinal = ordinal.max(s.ordinal);
            } else {
                // What readers recover from a damaged line counts, too: its ordinals are taken.
                let records = match check_line(line.bytes) {
                    LineState::Record(record) => vec![Cow::Borrowed(record)],
                    LineState::Recovered(records, _) => records,
                    LineState::Blank | LineState::Damaged(_) => continue,
                };
                let envelopes = || records.iter().filter_map(|record| Envelope::parse(record));
                if envelopes().next().is_none() {
                    continue;
                }
                time = time.max(envelopes().filter_map(|e| e.time()).max());
                ordinal = ordinal.max(envelopes().filter_map(|e| e.ordinal).max());
            }
            found += 1;
            if self.mode != HistoryMode::Paginated && time.is_some() {
                break;
            }
        }
        self.last_time = self.last_time.max(time.unwrap_or(UtcMillis(0)));
        if self.mode == HistoryMode::Paginated {
            let message = |what: &str| format!("{what}, in {}", self.path.display());
            let refused = |what: &str| WriteError::NotContinued { path: self.path.clone(), message: message(what) };
            let last = match (found, ordinal) {
                (0, _) => return Err(refused("paginated rollout contains no valid records")),
                (_, None) => return Err(refused("final paginated rollout record is missing an ordinal")),
                (_, Some(last)) => last,
            };
            self.next_ordinal =
                last.checked_add(1).ok_or_else(|| refused("paginated rollout record ordinal overflow"))?;
        }
        Ok(())
    }

    /// The file, also before it is there.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How the history is kept.
    #[must_use]
    pub fn mode(&self) -> HistoryMode {
        self.mode
    }

    /// Whether the file is there.
    #[must_use]
    pub fn is_made(&self) -> bool {
        self.appender.is_some()
    }

    /// Whether the rollout ended in the middle of a record when it was resumed.
    #[must_use]
    pub fn found_torn(&self) -> bool {
        self.torn
    }

    /// Records that are accepted and not in the file.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Ordinal of the next record, in a paginated rollout.
    #[must_use]
    pub fn next_ordinal(&self) -> u64 {
        self.next_ordinal
    }

    /// Where the file ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.appender.as_ref().map_or(0, Appender::end)
    }

    /// Appends items, each at `now` or a millisecond behind the record before it, so that times of a thread only grow.
    /// Returns the time of each item that is kept.
    ///
    /// After an error the items stay accepted and are written with the next call, in order and once; except after a
    /// conflict, when they are dropped and the file is looked at again.
    pub fn append(&mut self, items: &[NewItem], now: UtcMillis) -> Result<Vec<Option<UtcMillis>>, WriteError> {
        let (before, former) = (self.queue.len(), self.last_time);
        let header = usize::from(self.header.is_some());
        let times = self.accept(items, now);
        if times.iter().all(Option::is_none) {
            return Ok(times);
        }
        match self.drain(now) {
            Ok(()) => Ok(times),
            Err(e) if e.is_conflict() => {
                self.queue.truncate(before + header);
                self.last_time = former;
                self.catch_up()?;
                Err(e)
            }
            Err(e) => Err(e),
        }
    }

    /// As [`append`](Self::append), but after an error what is not in the file is not written later, either.
    pub fn append_or_drop(&mut self, items: &[NewItem], now: UtcMillis) -> Result<Vec<Option<UtcMillis>>, WriteError> {
        self.drain(now)?;
        let times = self.append(items, now);
        if times.is_err() {
            // Nothing was queued before, so what is left are these items.
            self.queue.clear();
        }
        times
    }

    /// Accepts items without writing them, as if an append had failed: the next call writes them.
    pub fn accept(&mut self, items: &[NewItem], now: UtcMillis) -> Vec<Option<UtcMillis>> {
        if !items.iter().any(|item| item.is_kept(self.mode)) {
            return vec![None; items.len()];
        }
        self.queue_header(now);
        let mut times = Vec::with_capacity(items.len());
        for item in items {
            let time = item.is_kept(self.mode).then(|| self.next_time(now));
            times.push(time);
            if let Some(time) = time {
                self.queue.push_back(Queued::Item(item.clone(), time));
            }
        }
        times
    }

    fn next_time(&mut self, now: UtcMillis) -> UtcMillis {
        self.last_time = now.max(UtcMillis(self.last_time.0.saturating_add(1)));
        self.last_time
    }

    /// Puts the header in front of everything, if that was not done yet.
    fn queue_header(&mut self, now: UtcMillis) {
        if let Some(header) = self.header.take() {
            let time = self.next_time(now);
            self.queue.push_front(Queued::Item(header, time));
        }
    }

    /// Appends records of another rollout as they are; for legacy rollouts, whose records have no ordinals.
    pub fn copy(&mut self, records: Vec<Vec<u8>>, now: UtcMillis) -> Result<(), WriteError> {
        self.queue_header(now);
        let times = records.iter().filter_map(|r| std::str::from_utf8(sniff::sniff(r)?.timestamp).ok());
        self.last_time = times.filter_map(UtcMillis::parse).fold(self.last_time, UtcMillis::max);
        self.queue.extend(records.into_iter().map(Queued::Copy));
        self.drain(now)
    }

    /// After a conflict: goes on behind what the other program wrote.
    fn catch_up(&mut self) -> Result<(), WriteError> {
        if let Some(appender) = &mut self.appender {
            appender.follow()?;
        }
        self.read_end()
    }

    /// Writes what is queued, in one write.
    fn drain(&mut self, now: UtcMillis) -> Result<(), WriteError> {
        self.make(now)?;
        if self.queue.is_empty() {
            return Ok(());
        }
        let Some(appender) = &mut self.appender else { return Ok(()) };
        let ordinal = |i: usize| (self.mode == HistoryMode::Paginated).then_some(self.next_ordinal + i as u64);
        let records: Vec<Cow<'_, [u8]>> = self
            .queue
            .iter()
            .enumerate()
            .map(|(i, q)| match q {
                Queued::Item(item, time) => item.record(*time, ordinal(i)).into(),
                Queued::Copy(bytes) => bytes.as_slice().into(),
            })
            .collect();
        let slices: Vec<&[u8]> = records.iter().map(AsRef::as_ref).collect();
        let result = appender.append(&slices);
        drop(slices);
        drop(records);
        let written = match &result {
            // A failed sync behind the write: the records are in the file.
            Ok(_) | Err(AppendError::Sync { .. }) => self.queue.len(),
            Err(AppendError::Write { kept, .. }) => *kept,
            Err(
                AppendError::Conflict { .. }
                | AppendError::Unlinked { .. }
                | AppendError::ReadOnly { .. }
                | AppendError::Open { .. },
            ) => 0,
        };
        self.queue.drain(..written);
        self.next_ordinal += written as u64;
        result?;
        if self.durability == Durability::EachAppend {
            self.sync_folders()?;
        }
        Ok(())
    }

    /// Makes the file, with its header queued in front.
    fn make(&mut self, now: UtcMillis) -> Result<(), WriteError> {
        self.queue_header(now);
        if self.appender.is_none() {
            if let Some(folder) = self.path.parent() {
                let failed = |source| WriteError::Folder { what: "make", path: folder.to_owned(), source };
                self.disk.create_dir_all(folder).map_err(failed)?;
            }
            self.appender = Some(Appender::open(&*self.disk, &self.path, OpenMode::New, self.durability)?);
        }
        Ok(())
    }

    /// Makes the file exist, whole and durable (unless the policy is [`Durability::None`]).
    pub fn persist(&mut self, now: UtcMillis) -> Result<(), WriteError> {
        self.drain(now)?;
        self.sync()
    }

    /// Writes what is queued and makes it durable. A rollout without records stays unmade.
    pub fn flush(&mut self, now: UtcMillis) -> Result<(), WriteError> {
        if self.appender.is_none() && self.queue.is_empty() {
            return Ok(());
        }
        self.persist(now)
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        if let Some(appender) = &mut self.appender {
            appender.flush()?;
        }
        if self.durability != Durability::None { self.sync_folders() } else { Ok(()) }
    }

    fn sync_folders(&mut self) -> Result<(), WriteError> {
        while let Some(folder) = self.folders.last() {
            let failed = |source| WriteError::Folder { what: "make durable", path: folder.clone(), source };
            self.disk.sync_dir(folder).map_err(failed)?;
            self.folders.pop();
        }
        Ok(())
    }
}

/// The folders that lead to a file, from its own up to `root`; of a file elsewhere only its own.
fn folders(path: &Path, root: &Path) -> Vec<PathBuf> {
    let within = |p: &&Path| p.starts_with(root);
    let own = path.parent().map(Path::to_owned);
    own.into_iter().chain(path.ancestors().skip(2).take_while(within).map(Path::to_owned)).collect()
}

/// The first record of a rollout, which has to be a header.
fn first_header(file: &dyn DiskFile, size: u64, path: &Path) -> Result<SessionMeta, WriteError> {
    /// Longer headers are not continued: released writers make at most some hundred KB.
    const MOST: u64 = 64 << 20;
    let refused = |message: String| WriteError::NotContinued { path: path.to_owned(), message };
    let mut held = Vec::new();
    let mut step = 64 << 10;
    loop {
        // Blank lines before the header count for nothing.
        let start = held.iter().position(|b: &u8| !b.is_ascii_whitespace()).unwrap_or(held.len());
        let end = memchr::memchr(b'\n', &held[start..]).map(|i| start + i);
        let whole = held.len() as u64 == size;
        if let Some(end) = end.or(whole.then_some(held.len())) {
            let line = &held[start..end];
            if line.is_empty() {
                return Err(refused(format!("empty session file: {}", path.display())));
            }
            return match SessionMeta::parse(line) {
                Some(header) => Ok(header),
                None if Envelope::parse(line).is_some() => {
                    Err(refused(format!("rollout at {} does not start with session metadata", path.display())))
                }
                None => Err(refused(format!("failed to parse first rollout record of {}", path.display()))),
            };
        }
        if held.len() as u64 > MOST {
            return Err(refused(format!("the first record of {} is too long", path.display())));
        }
        let from = held.len();
        let more = usize::try_from(size - from as u64).unwrap_or(step).min(step);
        held.resize(from + more, 0);
        file.read_exact_at(&mut held[from..], from as u64)
            .map_err(|source| AppendError::Open { path: path.to_owned(), source })?;
        step *= 2;
    }
}
