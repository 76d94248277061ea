//! A simulated disk that knows what would survive a power loss, and fails when told to.
//!
//! For each file it keeps what is visible and what is durable, with the writes between the two; for each folder the
//! names that are visible and those that are durable, with the steps between. From these it can rebuild the disk as it
//! might be after a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::seam::{Disk, DiskFile, FileState, Looked, OpenMode, ReadAt};

/// Number of a file's contents, which several names may share.
type Inode = usize;

#[derive(Debug, Clone, Default)]
struct Contents {
    visible: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync, in order.
    pending: Vec<Change>,
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Size(usize),
}

impl Change {
    /// Bytes that it writes.
    fn length(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len(),
            Self::Size(_) => 0,
        }
    }

    /// Applies the change to some contents; of a write only the first `part` bytes.
    fn apply(&self, to: &mut Vec<u8>, part: usize) {
        match self {
            Self::Write { offset, bytes } => {
                let bytes = &bytes[..part.min(bytes.len())];
                if to.len() < offset + bytes.len() {
                    to.resize(offset + bytes.len(), 0);
                }
                to[*offset..offset + bytes.len()].copy_from_slice(bytes);
            }
            Self::Size(size) => to.resize(*size, 0),
        }
    }
}

/// A step in a folder: a name set to a file, or removed.
type NameChange = (PathBuf, Option<Inode>);

#[derive(Debug, Default)]
struct State {
    files: Vec<Contents>,
    visible: BTreeMap<PathBuf, Inode>,
    durable: BTreeMap<PathBuf, Inode>,
    /// Steps since the last sync of their folder, oldest first. A rename is one entry of two changes: it is never torn.
    pending: Vec<Vec<NameChange>>,
    calls: usize,
    fail_at: Vec<(usize, Failure)>,
    /// From this call on the power is gone.
    off_at: Option<usize>,
    lie: Option<Lie>,
}

/// A call that says it was done and does nothing: for tests of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// [`DiskFile::sync_data`].
    SyncData,
    /// [`Disk::sync_dir`].
    SyncDir,
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Nothing happens.
    Clean,
    /// A write leaves half of its bytes. Other calls fail clean.
    Torn,
    /// A sync says that it failed, and what it should have kept is gone from the durable side for good: the kernel
    /// drops the mark that the pages have to be written. Other calls fail clean.
    Dropped,
    /// As `Dropped`, and the pages themselves go, too: the file reads as it is on the disk, NULs where nothing is.
    Evicted,
}

/// A simulated disk. Clones are the same disk.
#[derive(Debug, Clone, Default)]
pub struct SimDisk(Arc<Mutex<State>>);

/// What of the pending changes a crash leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// Only what was synced.
    Durable,
    /// Everything, as if it had just been written out.
    Everything,
    /// Names as synced, contents written out.
    NamesOnlyDurable,
    /// Names written out, contents as synced: files are there and empty or short.
    ContentsOnlyDurable,
    /// Everything but the last write of each file, which is torn in the middle.
    LastWriteTorn,
    /// Chosen by a seed: of each file's writes and of the names' steps the first so many, the next write torn at any
    /// byte. As on a file system that keeps their order.
    InOrder(u64),
    /// Chosen by a seed: each write and each step of a name by itself is kept, torn at any byte, or gone; what is gone may
    /// leave the file as long as it was, with NULs in its place. As on a file system that keeps no order.
    AnyOrder(u64),
}

impl Crash {
    /// All that need no seed.
    pub const ALL: [Self; 5] =
        [Self::Durable, Self::Everything, Self::NamesOnlyDurable, Self::ContentsOnlyDurable, Self::LastWriteTorn];
}

impl SimDisk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls made so far.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.state().calls
    }

    /// Makes the `n`-th call from now (from 0) fail; may be said for several.
    pub fn fail_call(&self, n: usize, failure: Failure) {
        let mut state = self.state();
        let at = state.calls + n;
        state.fail_at.push((at, failure));
    }

    /// Ends the power at the `n`-th call from now: it and all later ones fail and change nothing.
    pub fn power_off_at(&self, n: usize) {
        let mut state = self.state();
        state.off_at = Some(state.calls + n);
    }

    /// Makes a kind of call a lie from now on.
    pub fn lie(&self, lie: Lie) {
        self.state().lie = Some(lie);
    }

    /// Whether the power is gone.
    #[must_use]
    pub fn is_off(&self) -> bool {
        let state = self.state();
        state.off_at.is_some_and(|off| state.calls > off)
    }

    /// Puts a whole, durable file there, as a step of someone else's that succeeded; `None` takes the name away.
    pub fn put(&self, path: &Path, bytes: Option<&[u8]>) {
        let mut state = self.state();
        let inode = bytes.map(|bytes| {
            state.files.push(Contents { visible: bytes.to_vec(), durable: bytes.to_vec(), pending: vec![] });
            state.files.len() - 1
        });
        let change = (path.to_owned(), inode);
        state.pending.iter_mut().for_each(|step| step.retain(|(p, _)| p != path));
        let State { visible, durable, .. } = &mut *state;
        set_name(visible, &change);
        set_name(durable, &change);
    }

    /// The visible contents of a file.
    #[must_use]
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        state.visible.get(path).map(|i| state.files[*i].visible.clone())
    }

    /// The visible names.
    #[must_use]
    pub fn names(&self) -> Vec<PathBuf> {
        self.state().visible.keys().cloned().collect()
    }

    /// The disk as it may be after a power loss now: another disk, on which everything is durable.
    #[must_use]
    pub fn crashed(&self, crash: Crash) -> Self {
        let state = self.state();
        let mut dice = Dice(match crash {
            Crash::InOrder(seed) | Crash::AnyOrder(seed) => seed,
            _ => 0,
        });
        let names = match crash {
            Crash::Durable | Crash::NamesOnlyDurable => state.durable.clone(),
            Crash::Everything | Crash::ContentsOnlyDurable | Crash::LastWriteTorn => state.visible.clone(),
            Crash::InOrder(_) | Crash::AnyOrder(_) => {
                let mut names = state.durable.clone();
                let first = dice.below(state.pending.len() + 1);
                for (i, step) in state.pending.iter().enumerate() {
                    let kept = if matches!(crash, Crash::InOrder(_)) { i < first } else { dice.below(2) == 0 };
                    step.iter().filter(|_| kept).for_each(|change| set_name(&mut names, change));
                }
                names
            }
        };
        let files: Vec<Contents> = state
            .files
            .iter()
            .map(|f| {
                let kept = f.crashed(crash, &mut dice);
                Contents { visible: kept.clone(), durable: kept, pending: vec![] }
            })
            .collect();
        let new = State { files, visible: names.clone(), durable: names, ..State::default() };
        Self(Arc::new(Mutex::new(new)))
    }
}

impl Contents {
    /// What of the contents a crash leaves.
    fn crashed(&self, crash: Crash, dice: &mut Dice) -> Vec<u8> {
        let mut kept = self.durable.clone();
        let last = self.pending.len().checked_sub(1);
        match crash {
            Crash::Durable | Crash::ContentsOnlyDurable => {}
            Crash::Everything | Crash::NamesOnlyDurable => kept.clone_from(&self.visible),
            Crash::LastWriteTorn => {
                for (i, change) in self.pending.iter().enumerate() {
                    let length = change.length();
                    change.apply(&mut kept, if Some(i) == last { length / 2 } else { length });
                }
            }
            Crash::InOrder(_) => {
                let first = dice.below(self.pending.len() + 1);
                for change in &self.pending[..first] {
                    change.apply(&mut kept, change.length());
                }
                if let Some(change @ Change::Write { .. }) = self.pending.get(first) {
                    change.apply(&mut kept, dice.below(change.length() + 1));
                }
            }
            Crash::AnyOrder(_) => {
                for change in &self.pending {
                    let length = change.length();
                    match (dice.below(5), change) {
                        (0 | 1, _) => change.apply(&mut kept, length),
                        (2, Change::Write { .. }) => change.apply(&mut kept, dice.below(length + 1)),
                        (3, Change::Write { offset, .. }) => {
                            let size = (offset + length).max(kept.len());
                            kept.resize(size, 0);
                        }
                        _ => {}
                    }
                }
            }
        }
        kept
    }
}

/// Choices that follow from a seed (`SplitMix64`).
struct Dice(u64);

impl Dice {
    /// A number in `0..n`.
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

fn set_name(names: &mut BTreeMap<PathBuf, Inode>, (path, inode): &NameChange) {
    match inode {
        Some(inode) => names.insert(path.clone(), *inode),
        None => names.remove(path),
    };
}

impl State {
    /// Counts a call; tells whether and how it fails.
    fn call(&mut self) -> Option<Failure> {
        let now = self.calls;
        self.calls += 1;
        if self.off_at.is_some_and(|off| now >= off) {
            return Some(Failure::Clean);
        }
        self.fail_at.iter().find(|(at, _)| *at == now).map(|(_, failure)| *failure)
    }

    fn find(&self, path: &Path) -> io::Result<Inode> {
        self.visible.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change_names(&mut self, step: Vec<NameChange>) {
        step.iter().for_each(|change| set_name(&mut self.visible, change));
        self.pending.push(step);
    }
}

fn injected() -> io::Error {
    io::Error::other("simulated failure")
}

impl Disk for SimDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        if state.call().is_some() {
            return Err(injected());
        }
        let inode = match (state.find(path), mode) {
            (Ok(_), OpenMode::New) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Ok(inode), _) => inode,
            (Err(e), OpenMode::Existing) => return Err(e),
            (Err(_), _) => {
                state.files.push(Contents::default());
                let inode = state.files.len() - 1;
                state.change_names(vec![(path.to_owned(), Some(inode))]);
                inode
            }
        };
        Ok(Box::new(SimFile { disk: self.clone(), inode }))
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        // Folders are implied by the names below them.
        if self.state().call().is_some() { Err(injected()) } else { Ok(()) }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.call().is_some() {
            return Err(injected());
        }
        let inode = state.find(from)?;
        state.change_names(vec![(from.to_owned(), None), (to.to_owned(), Some(inode))]);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.call().is_some() {
            return Err(injected());
        }
        let inode = state.find(from)?;
        if state.find(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.change_names(vec![(to.to_owned(), Some(inode))]);
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.call().is_some() {
            return Err(injected());
        }
        let inode = state.find(from)?;
        if state.find(to).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.change_names(vec![(from.to_owned(), None), (to.to_owned(), Some(inode))]);
        Ok(())
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        // As with making them.
        if self.state().call().is_some() { Err(injected()) } else { Ok(()) }
    }

    fn look(&self, path: &Path) -> io::Result<Option<Looked>> {
        let state = self.state();
        let found = state.visible.get(path).copied();
        Ok(found.map(|i| Looked { identity: (1, i as u64), size: state.files[i].visible.len() as u64 }))
    }

    fn names_in(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let state = self.state();
        // Folders are implied by the names below them.
        let below = state.visible.keys().filter_map(|name| name.strip_prefix(path).ok());
        let first = below.filter_map(|rest| rest.components().next().map(|c| c.as_os_str().to_owned()));
        Ok(first.collect::<BTreeSet<OsString>>().into_iter().collect())
    }

    fn copy_mode(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        if self.state().call().is_some() { Err(injected()) } else { Ok(()) }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.call().is_some() {
            return Err(injected());
        }
        state.find(path)?;
        state.change_names(vec![(path.to_owned(), None)]);
        Ok(())
    }

    fn sync_all(&self, _path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.call().is_some() {
            return Err(injected());
        }
        let steps = std::mem::take(&mut state.pending);
        steps.iter().flatten().for_each(|change| set_name(&mut state.durable, change));
        for file in &mut state.files {
            for change in std::mem::take(&mut file.pending) {
                change.apply(&mut file.durable, change.length());
            }
        }
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.call().is_some() {
            return Err(injected());
        }
        if state.lie == Some(Lie::SyncDir) {
            return Ok(());
        }
        let here = |p: &Path| p.parent() == Some(path);
        let (done, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut state.pending).into_iter().partition(|step| step.iter().any(|(p, _)| here(p)));
        state.pending = rest;
        done.iter().flatten().for_each(|change| set_name(&mut state.durable, change));
        Ok(())
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    inode: Inode,
}

impl SimFile {
    fn change(&mut self, change: Change, part: usize) {
        let mut state = self.disk.state();
        let file = &mut state.files[self.inode];
        change.apply(&mut file.visible, part);
        let kept = match change {
            Change::Write { offset, bytes } => Change::Write { offset, bytes: bytes[..part].to_vec() },
            size @ Change::Size(_) => size,
        };
        file.pending.push(kept);
    }
}

impl ReadAt for SimFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let all = &state.files[self.inode].visible;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
        let n = into.len().min(all.len() - from);
        into[..n].copy_from_slice(&all[from..from + n]);
        Ok(n)
    }
}

impl DiskFile for SimFile {
    fn state(&self) -> io::Result<FileState> {
        let state = self.disk.state();
        let linked = state.visible.values().any(|i| *i == self.inode);
        Ok(FileState { size: state.files[self.inode].visible.len() as u64, linked })
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let failure = self.disk.state().call();
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        let change = Change::Write { offset, bytes: bytes.to_vec() };
        match failure {
            None => {
                self.change(change, bytes.len());
                Ok(bytes.len())
            }
            Some(Failure::Torn) => {
                self.change(change, bytes.len() / 2);
                Err(injected())
            }
            Some(Failure::Clean | Failure::Dropped | Failure::Evicted) => Err(injected()),
        }
    }

    fn set_size(&mut self, size: u64) -> io::Result<()> {
        if self.disk.state().call().is_some() {
            return Err(injected());
        }
        self.change(Change::Size(usize::try_from(size).map_err(io::Error::other)?), 0);
        Ok(())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let mut state = self.disk.state();
        let failure = state.call();
        if failure.is_none() && state.lie == Some(Lie::SyncData) {
            return Ok(());
        }
        let file = &mut state.files[self.inode];
        match failure {
            None => {
                // Only what is marked as pending is written out: see `Dropped`.
                for change in std::mem::take(&mut file.pending) {
                    change.apply(&mut file.durable, change.length());
                }
                Ok(())
            }
            Some(Failure::Dropped) => {
                file.pending.clear();
                Err(injected())
            }
            Some(Failure::Evicted) => {
                file.pending.clear();
                let size = file.visible.len();
                file.visible.clone_from(&file.durable);
                file.visible.resize(size, 0);
                Err(injected())
            }
            Some(Failure::Clean | Failure::Torn) => Err(injected()),
        }
    }
}
