//! Appending records to a rollout so that what was acknowledged is kept.
//!
//! Before each append the file must end where this writer left it; otherwise another program wrote to it, and nothing
//! is written. After an error the file is looked at: what landed is counted, what is torn is cut off, so a record is
//! never written twice. A sync that failed is not trusted again: the range since the last good one is written again,
//! same bytes at the same offsets, and synced; if that fails too, the writer only refuses.

use std::io;
use std::path::{Path, PathBuf};

use crate::seam::{Disk, DiskFile, FileState, OpenMode};

/// When data is made durable against power loss. Against the death of the process it always is, once `append` returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Never by this writer.
    None,
    /// On `flush` and `persist`.
    #[default]
    OnFlush,
    /// Before each append returns.
    EachAppend,
}

/// Why records were not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The file does not end where this writer left it. Nothing was written.
    #[error("{} was written to by another program: it has {found} bytes, not {expected}", path.display())]
    Conflict {
        /// The file.
        path: PathBuf,
        /// Where this writer left it.
        expected: u64,
        /// Where it ends.
        found: u64,
    },
    /// The file was removed, or the folder it was in: what is written to it would go with it. Nothing was written.
    #[error("{} was removed while it was written to", path.display())]
    Unlinked {
        /// Where the file was.
        path: PathBuf,
    },
    /// A write failed. Of the records given, the first `kept` are in the file, whole; the others are not.
    #[error("cannot write to {} at byte {offset}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Where the write began.
        offset: u64,
        /// Records that are in the file.
        kept: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A sync failed, and so did the second try. The writer refuses from now on.
    #[error("cannot make {} durable: {source}", path.display())]
    Sync {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An earlier failure left the end of the file unknown, or not durable.
    #[error("{} is read-only since an earlier failure: {reason}", path.display())]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What happened.
        reason: String,
    },
    /// The file cannot be opened or read.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Bytes that a writer keeps in memory until they are synced: enough for any turn but one with large pictures.
const REMEMBERED: usize = 1 << 20;

/// Writes at the end of one rollout. The caller holds the thread's writer lock.
#[derive(Debug)]
pub struct Appender {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    /// Where the file ends.
    end: u64,
    /// Up to where it was synced.
    synced: u64,
    /// What was appended since the last sync, as far as it is no more than [`REMEMBERED`]: the last bytes of the file.
    recent: Vec<u8>,
    /// From where on the file holds what this writer appended.
    begun: u64,
    durability: Durability,
    read_only: Option<String>,
    /// The file ended in the middle of a record when it was opened.
    torn: bool,
}

impl Appender {
    /// Opens a rollout. A record that was cut off at its end is closed with a line feed before the first append, so
    /// that it stays a line of its own; [`found_torn`](Self::found_torn) tells.
    pub fn open(disk: &dyn Disk, path: &Path, mode: OpenMode, durability: Durability) -> Result<Self, AppendError> {
        let failed = |source| AppendError::Open { path: path.to_owned(), source };
        let file = disk.open(path, mode).map_err(failed)?;
        let end = file.state().map_err(failed)?.size;
        let mut last = [b'\n'];
        if end > 0 {
            file.read_exact_at(&mut last, end - 1).map_err(failed)?;
        }
        // What was there before may have been written by a process that died before it synced; the first flush covers
        // it, too.
        let torn = last != *b"\n";
        let (path, recent) = (path.to_owned(), Vec::new());
        Ok(Self { file, path, end, synced: 0, recent, begun: end, durability, read_only: None, torn })
    }

    /// Whether the file ended in the middle of a record when it was opened.
    #[must_use]
    pub fn found_torn(&self) -> bool {
        self.torn
    }

    /// The open file, for reading.
    #[must_use]
    pub fn file(&self) -> &dyn DiskFile {
        &*self.file
    }

    /// Takes the file as it is now, after another program wrote to it: the next append goes behind what it wrote.
    pub fn follow(&mut self) -> Result<(), AppendError> {
        let failed = |source| AppendError::Open { path: self.path.clone(), source };
        let end = self.file.state().map_err(failed)?.size;
        let mut last = [b'\n'];
        if end > 0 {
            self.file.read_exact_at(&mut last, end - 1).map_err(failed)?;
        }
        self.torn = last != *b"\n";
        self.synced = self.synced.min(end);
        self.end = end;
        self.begun = end;
        self.recent.clear();
        Ok(())
    }

    /// Where the file ends.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Appends records, each without its line feed, in one write. Returns where the first one begins.
    pub fn append(&mut self, records: &[&[u8]]) -> Result<u64, AppendError> {
        self.check()?;
        let mut bytes = Vec::with_capacity(records.iter().map(|r| r.len() + 1).sum::<usize>() + 1);
        let close = usize::from(self.torn && !records.is_empty());
        if close == 1 {
            bytes.push(b'\n');
        }
        for record in records {
            debug_assert!(!record.contains(&b'\n'), "a record is one line");
            bytes.extend_from_slice(record);
            bytes.push(b'\n');
        }
        let begin = self.end;
        if let Err(source) = self.file.write_all_at(&bytes, begin) {
            return Err(self.settle(&bytes, close, source));
        }
        self.grow(&bytes);
        self.torn &= records.is_empty();
        if self.durability == Durability::EachAppend {
            self.sync()?;
        }
        Ok(begin + close as u64)
    }

    /// Makes everything appended so far durable, unless the policy is [`Durability::None`]. A file that was removed
    /// keeps nothing, however well it is synced: that is an error under every policy.
    pub fn flush(&mut self) -> Result<(), AppendError> {
        self.state()?;
        if self.durability == Durability::None {
            return self.usable();
        }
        self.sync()
    }

    fn usable(&self) -> Result<(), AppendError> {
        match &self.read_only {
            None => Ok(()),
            Some(reason) => Err(AppendError::ReadOnly { path: self.path.clone(), reason: reason.clone() }),
        }
    }

    fn check(&self) -> Result<(), AppendError> {
        self.usable()?;
        let found = self.state()?.size;
        if found == self.end {
            return Ok(());
        }
        Err(AppendError::Conflict { path: self.path.clone(), expected: self.end, found })
    }

    /// The file in passing, which must still have a name.
    fn state(&self) -> Result<FileState, AppendError> {
        let state = self.file.state().map_err(|source| AppendError::Open { path: self.path.clone(), source })?;
        if state.linked { Ok(state) } else { Err(AppendError::Unlinked { path: self.path.clone() }) }
    }

    /// The file ends behind these bytes now.
    fn grow(&mut self, bytes: &[u8]) {
        let gap = self.recent.is_empty() && self.synced.max(self.begun) < self.end;
        self.end += bytes.len() as u64;
        if self.durability == Durability::None || gap {
            return;
        }
        if self.recent.len() + bytes.len() > REMEMBERED {
            self.recent = Vec::new();
        } else {
            self.recent.extend_from_slice(bytes);
        }
    }

    /// After a failed write: keeps the whole records that landed, cuts off the rest.
    fn settle(&mut self, bytes: &[u8], close: usize, source: io::Error) -> AppendError {
        let begin = self.end;
        let landed = self.landed(bytes, begin);
        let whole = memchr::memrchr(b'\n', &bytes[..landed]).map_or(0, |i| i + 1);
        let end = begin + whole as u64;
        let cut = self.file.state().and_then(|s| if s.size > end { self.file.set_size(end) } else { Ok(()) });
        if let Err(e) = cut {
            self.read_only = Some(format!("a torn record could not be cut off: {e}"));
        }
        self.grow(&bytes[..whole]);
        self.torn &= whole == 0;
        let kept = memchr::memchr_iter(b'\n', &bytes[..whole]).count().saturating_sub(close);
        AppendError::Write { path: self.path.clone(), offset: begin, kept, source }
    }

    /// How many of the bytes are in the file at `begin`.
    fn landed(&self, bytes: &[u8], begin: u64) -> usize {
        let mut there = vec![0; bytes.len()];
        let mut n = 0;
        while n < there.len() {
            match self.file.read_at(&mut there[n..], begin + n as u64) {
                Ok(0) | Err(_) => break,
                Ok(k) => n += k,
            }
        }
        there[..n].iter().zip(bytes).take_while(|(a, b)| a == b).count()
    }

    fn sync(&mut self) -> Result<(), AppendError> {
        self.usable()?;
        if self.synced == self.end {
            return Ok(());
        }
        if self.file.sync_data().is_err() {
            // The kernel may take the pages for written now and show what is not on disk: write them again.
            if let Err(source) = self.write_again().and_then(|()| self.file.sync_data()) {
                self.read_only = Some(format!("what was appended may not be on disk: {source}"));
                return Err(AppendError::Sync { path: self.path.clone(), source });
            }
        }
        self.synced = self.end;
        self.recent.clear();
        Ok(())
    }

    /// Writes everything since the last good sync again: what is remembered from memory, the rest as the file shows it,
    /// if it still does.
    fn write_again(&mut self) -> io::Result<()> {
        const PART: u64 = 1 << 20;
        let mut at = self.synced;
        let remembered = self.end - self.recent.len() as u64;
        while at < remembered {
            let mut bytes = vec![0; usize::try_from((remembered - at).min(PART)).map_err(io::Error::other)?];
            self.file.read_exact_at(&mut bytes, at)?;
            // No record of ours holds a NUL. Where one stands the system has let go of what it was given.
            let ours = usize::try_from(self.begun.saturating_sub(at)).unwrap_or(usize::MAX).min(bytes.len());
            if bytes[ours..].contains(&0) {
                return Err(io::Error::other("the system no longer has what was written to it"));
            }
            self.file.write_all_at(&bytes, at)?;
            at += bytes.len() as u64;
        }
        let recent = std::mem::take(&mut self.recent);
        self.file.write_all_at(&recent, remembered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seam::RealDisk;
    use crate::sim::{Crash, Failure, SimDisk};

    const PATH: &str = "/home/sessions/r.jsonl";

    fn whole_lines(bytes: &[u8]) -> Vec<&[u8]> {
        bytes.split_inclusive(|b| *b == b'\n').filter(|l| l.ends_with(b"\n")).collect()
    }

    /// Every call of a session is made to fail once, in every way. Whatever happens, no record stands twice, none that
    /// was acknowledged is missing, and after a crash everything that was flushed is there.
    #[test]
    fn any_one_failure_neither_doubles_nor_loses_a_record() {
        let path = Path::new(PATH);
        for failure in [Failure::Clean, Failure::Torn, Failure::Dropped, Failure::Evicted] {
            for at in 0..24 {
                for durability in [Durability::OnFlush, Durability::EachAppend] {
                    let disk = SimDisk::default();
                    let mut a = Appender::open(&disk, path, OpenMode::New, durability).unwrap();
                    disk.sync_dir(path.parent().unwrap()).unwrap();
                    disk.fail_call(at, failure);
                    let mut given = Vec::new();
                    let mut flushed = 0;
                    for n in 0..6 {
                        let records: Vec<String> = (0..=n % 3).map(|k| format!("record {n}.{k}")).collect();
                        let mut left: Vec<&[u8]> = records.iter().map(String::as_bytes).collect();
                        // A caller that is told how many were kept tries the rest again, once.
                        for _ in 0..2 {
                            match a.append(&left) {
                                Ok(_) => {
                                    given.extend(left.drain(..).map(<[u8]>::to_vec));
                                    break;
                                }
                                Err(AppendError::Write { kept, .. }) => {
                                    given.extend(left.drain(..kept).map(<[u8]>::to_vec))
                                }
                                Err(AppendError::Sync { .. } | AppendError::ReadOnly { .. }) => {
                                    given.extend(left.drain(..).map(<[u8]>::to_vec));
                                    break;
                                }
                                Err(e) => panic!("{e}"),
                            }
                        }
                        if n % 2 == 1 && a.flush().is_ok() {
                            flushed = given.len();
                        }
                    }
                    let seen = disk.contents(path).unwrap();
                    let lines: Vec<Vec<u8>> = whole_lines(&seen).iter().map(|l| l[..l.len() - 1].to_vec()).collect();
                    assert_eq!(lines, given, "call {at} {failure:?} {durability:?}");
                    for crash in Crash::ALL {
                        let after = disk.crashed(crash).contents(path).unwrap();
                        let lines = whole_lines(&after);
                        assert!(
                            lines.len() >= flushed,
                            "call {at} {failure:?} {durability:?} {crash:?}: a flushed record is gone"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_torn_tail_is_closed_before_the_first_append() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        std::fs::write(&path, b"{\"a\":1}\n{\"b\":").unwrap();
        let mut a = Appender::open(&RealDisk, &path, OpenMode::Existing, Durability::OnFlush).unwrap();
        assert!(a.found_torn());
        assert_eq!(a.append(&[b"{\"c\":3}"]).unwrap(), 14);
        a.append(&[b"{\"d\":4}", b"{\"e\":5}"]).unwrap();
        a.flush().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"a\":1}\n{\"b\":\n{\"c\":3}\n{\"d\":4}\n{\"e\":5}\n");
    }

    #[test]
    fn another_writer_is_noticed_and_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let mut a = Appender::open(&RealDisk, &path, OpenMode::New, Durability::None).unwrap();
        a.append(&[b"ours"]).unwrap();
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut f| io::Write::write_all(&mut f, b"theirs half"))
            .unwrap();
        assert!(matches!(a.append(&[b"more"]), Err(AppendError::Conflict { expected: 5, found: 16, .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"ours\ntheirs half");
    }

    /// More than a writer remembers may be lost to a failed sync, but not silently.
    #[test]
    fn what_the_system_let_go_is_written_again_or_told() {
        let path = Path::new(PATH);
        let record = |n: u64| format!("{n} {}", "x".repeat(400_000)).into_bytes();
        for count in 1..6 {
            let disk = SimDisk::default();
            disk.put(path, Some(b"before\n"));
            let mut a = Appender::open(&disk, path, OpenMode::Existing, Durability::OnFlush).unwrap();
            for n in 0..count {
                a.append(&[&record(n)]).unwrap();
            }
            let given = disk.contents(path).unwrap();
            disk.fail_call(0, Failure::Evicted);
            match a.flush() {
                Ok(()) => {
                    assert!(count <= 2, "{count} records are more than is remembered");
                    assert!(disk.crashed(Crash::Durable).contents(path).unwrap() == given);
                }
                Err(AppendError::Sync { .. }) => {
                    assert!(count > 2, "{count} records are remembered");
                    assert!(matches!(a.append(&[b"more"]), Err(AppendError::ReadOnly { .. })));
                }
                Err(e) => panic!("{e}"),
            }
        }
    }

    #[test]
    fn a_sync_that_fails_twice_is_the_end_of_the_writer() {
        let disk = SimDisk::default();
        let mut a = Appender::open(&disk, Path::new(PATH), OpenMode::New, Durability::OnFlush).unwrap();
        a.append(&[b"one"]).unwrap();
        disk.fail_call(0, Failure::Dropped);
        a.flush().unwrap();
        assert_eq!(
            disk.crashed(Crash::ContentsOnlyDurable).contents(Path::new(PATH)).unwrap(),
            b"one\n",
            "written again"
        );
        a.append(&[b"two"]).unwrap();
        // The sync, and after the second writing (call 1) the sync again.
        disk.fail_call(0, Failure::Dropped);
        disk.fail_call(2, Failure::Dropped);
        assert!(matches!(a.flush(), Err(AppendError::Sync { .. })));
        assert!(matches!(a.append(&[b"three"]), Err(AppendError::ReadOnly { .. })));
        assert!(matches!(a.flush(), Err(AppendError::ReadOnly { .. })));
        assert_eq!(disk.contents(Path::new(PATH)).unwrap(), b"one\ntwo\n", "what was appended is still seen");
    }
}
