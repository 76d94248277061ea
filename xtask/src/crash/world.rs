//! A few threads on a simulated disk, with what was promised of each.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use serde_json::json;
use threadkeep_record::{HistoryMode, NewItem, ThreadId, UtcMillis};
use threadkeep_rollout::appender::Durability;
use threadkeep_rollout::name_index;
use threadkeep_rollout::sim::SimDisk;
use threadkeep_rollout::unpack::unpack;
use threadkeep_rollout::writer::{NewRollout, RolloutWriter};

use super::plan::Step;
use super::records::{Found, Given, Order, read};

pub const HOME: &str = "/home";
/// More threads than this are not made.
const MOST: usize = 3;

/// What goes wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    None,
    /// The n-th call fails.
    Fail(usize, threadkeep_rollout::sim::Failure),
    /// All calls from the n-th on fail: the power went between two calls.
    PowerOff(usize),
}

/// A thread with what was promised of it.
#[derive(Debug)]
pub struct Thread {
    pub id: ThreadId,
    pub path: PathBuf,
    pub first_ordinal: u64,
    writer: Option<RolloutWriter>,
    /// Everything that may be in its file, behind the header.
    pub given: Vec<Given>,
    /// How many of them were acknowledged: with the kernel.
    pub acknowledged: usize,
    /// How many of them were made durable.
    pub durable: usize,
    /// Whether the thread was made durable, if only with its header.
    pub made: bool,
}

impl Thread {
    pub fn packed(&self) -> PathBuf {
        self.path.with_extension("jsonl.zst")
    }

    /// Its records on a disk.
    pub fn found(&self, disk: &SimDisk, mode: HistoryMode, order: Order) -> Result<Found> {
        let bytes = match (disk.contents(&self.path), disk.contents(&self.packed())) {
            (Some(plain), _) => plain,
            (None, Some(packed)) => zstd::decode_all(&packed[..])?,
            (None, None) => vec![],
        };
        let first = (mode == HistoryMode::Paginated).then_some(self.first_ordinal);
        read(&bytes, &self.given, self.id, first, order)
    }

    /// The same thread without its writer and promises.
    pub fn as_found(&self) -> Self {
        let (id, path, first_ordinal) = (self.id, self.path.clone(), self.first_ordinal);
        Self { id, path, first_ordinal, writer: None, given: vec![], acknowledged: 0, durable: 0, made: false }
    }

    /// The writer goes: what it still held goes with it.
    fn close(&mut self, disk: &SimDisk, mode: HistoryMode) -> Result<()> {
        self.writer = None;
        let there = self.found(disk, mode, Order::Kept)?.matched.len();
        ensure!(there >= self.acknowledged, "{there} records are left of {} acknowledged ones", self.acknowledged);
        self.given.truncate(there);
        Ok(())
    }
}

#[derive(Debug)]
pub struct World {
    pub disk: SimDisk,
    pub mode: HistoryMode,
    durability: Durability,
    pub threads: Vec<Thread>,
    /// Names that were set, in order.
    pub names: Vec<String>,
    next_item: u64,
    next_thread: u64,
    now: i64,
    trouble: Trouble,
}

/// An item that no other equals.
pub fn item(n: u64, length: usize) -> Result<NewItem> {
    let payload = json!({"type": "message", "role": "user", "n": n, "pad": "é".repeat(length / 2)});
    Ok(NewItem::from_value("response_item", &payload)?)
}

impl World {
    pub fn new(mode: HistoryMode, durability: Durability, trouble: Trouble) -> Self {
        let disk = SimDisk::default();
        match trouble {
            Trouble::None => {}
            Trouble::Fail(n, failure) => disk.fail_call(n, failure),
            Trouble::PowerOff(n) => disk.power_off_at(n),
        }
        Self {
            disk,
            mode,
            durability,
            threads: vec![],
            names: vec![],
            next_item: 0,
            next_thread: 0,
            now: 1_790_000_000_000,
            trouble,
        }
    }

    /// Whether a failure has happened.
    pub fn is_struck(&self) -> bool {
        match self.trouble {
            Trouble::None => false,
            Trouble::Fail(n, _) => self.disk.calls() > n,
            Trouble::PowerOff(_) => self.disk.is_off(),
        }
    }

    /// Whether a failure may be met from now on.
    fn may_fail(&self) -> bool {
        match self.trouble {
            Trouble::None => false,
            Trouble::Fail(..) => !self.is_struck(),
            Trouble::PowerOff(_) => true,
        }
    }

    fn at(&mut self) -> UtcMillis {
        self.now += 1;
        UtcMillis(self.now)
    }

    fn new_items(&mut self, lengths: &[usize]) -> Result<Vec<NewItem>> {
        let first = self.next_item;
        self.next_item += lengths.len() as u64;
        lengths.iter().zip(first..).map(|(length, n)| item(n, *length)).collect()
    }

    fn new_thread(&mut self, first_ordinal: u64, extra: &serde_json::Value) -> Result<Thread> {
        self.next_thread += 1;
        let n = self.next_thread;
        let id = ThreadId::parse(&format!("01990000-0000-7000-8000-{n:012}"))?;
        let path =
            PathBuf::from(format!("{HOME}/sessions/2026/11/{:02}/rollout-2026-11-30T12-00-00-{id}.jsonl", 28 + n % 2));
        let mode = if self.mode == HistoryMode::Paginated { "paginated" } else { "legacy" };
        let mut payload = json!({"id": id, "timestamp": UtcMillis(self.now), "cwd": "/", "history_mode": mode});
        if let (Some(payload), Some(extra)) = (payload.as_object_mut(), extra.as_object()) {
            payload.extend(extra.clone());
        }
        let header = NewItem::from_value("session_meta", &payload)?;
        let new = NewRollout { path: path.clone(), root: HOME.into(), mode: self.mode, header, first_ordinal };
        let writer = Some(RolloutWriter::create(Arc::new(self.disk.clone()), new, self.durability));
        Ok(Thread { id, path, first_ordinal, writer, given: vec![], acknowledged: 0, durable: 0, made: false })
    }

    /// Takes one step. An error is a broken promise; what the disk refuses is none.
    pub fn step(&mut self, step: &Step) -> Result<()> {
        let may_fail = self.may_fail();
        let count = self.threads.len();
        let at = self.at();
        let policy = self.durability;
        let refused = match step {
            Step::Create => {
                if count < MOST {
                    let thread = self.new_thread(0, &json!({}))?;
                    self.threads.push(thread);
                }
                None
            }
            Step::Append(n, lengths) => {
                let items = self.new_items(lengths)?;
                let thread = &mut self.threads[n % count];
                let Some(writer) = &mut thread.writer else { return Ok(()) };
                thread.given.extend(items.iter().map(Given::item));
                let result = writer.append(&items, at);
                if result.is_ok() {
                    thread.acknowledge(policy == Durability::EachAppend);
                }
                result.err().map(|e| e.to_string())
            }
            Step::Flush(n) | Step::Persist(n) | Step::Shutdown(n) => {
                let (disk, mode) = (self.disk.clone(), self.mode);
                let thread = &mut self.threads[n % count];
                let Some(writer) = &mut thread.writer else { return Ok(()) };
                let result = if matches!(step, Step::Persist(_)) { writer.persist(at) } else { writer.flush(at) };
                if result.is_ok() && writer.is_made() {
                    thread.acknowledge(policy != Durability::None);
                }
                if result.is_ok() && matches!(step, Step::Shutdown(_)) {
                    thread.close(&disk, mode)?;
                }
                result.err().map(|e| e.to_string())
            }
            Step::Kill(n) => {
                let (disk, mode) = (self.disk.clone(), self.mode);
                self.threads[n % count].close(&disk, mode)?;
                None
            }
            Step::Resume(n) => self.resume(n % count),
            Step::Compress(n) => {
                self.compress(n % count)?;
                None
            }
            Step::Fork(n, parts) => {
                if count == MOST {
                    return Ok(());
                }
                self.fork(n % count, *parts)?
            }
            Step::Name => {
                let name = format!("name {}", self.now);
                let result = name_index::append(&self.disk, Path::new(HOME), self.threads[0].id, &name, at);
                if result.is_ok() {
                    self.names.push(name);
                }
                result.err().map(|e| e.to_string())
            }
        };
        match refused {
            // A writer that a failure made read-only goes on refusing.
            Some(why) if !may_fail && !why.contains("read-only since") => bail!("refused without a failure: {why}"),
            Some(_) | None => Ok(()),
        }
    }

    fn resume(&mut self, n: usize) -> Option<String> {
        let thread = &mut self.threads[n];
        if thread.writer.is_some() {
            return None;
        }
        let result = open(&self.disk, thread, self.durability);
        match result {
            Ok(writer) => {
                thread.writer = Some(writer);
                None
            }
            // Nothing of it was ever acknowledged.
            Err(_) if thread.acknowledged == 0 && !thread.made => None,
            Err(e) => Some(e.to_string()),
        }
    }

    /// Puts the compressed form of a closed thread in place of the plain one.
    fn compress(&mut self, n: usize) -> Result<()> {
        let thread = &mut self.threads[n];
        let Some(plain) = self.disk.contents(&thread.path) else { return Ok(()) };
        let found = thread.found(&self.disk, self.mode, Order::Kept)?;
        if thread.writer.is_some() || !found.header || self.disk.is_off() {
            return Ok(());
        }
        self.disk.put(&thread.packed(), Some(&zstd::encode_all(&plain[..], 1)?));
        self.disk.put(&thread.path, None);
        thread.given.truncate(found.matched.len());
        thread.acknowledge(true);
        Ok(())
    }

    fn fork(&mut self, n: usize, parts: usize) -> Result<Option<String>> {
        let at = self.at();
        let found = self.threads[n].found(&self.disk, self.mode, Order::Kept)?;
        if !found.header {
            return Ok(None);
        }
        let lines = found.lines;
        let source = self.threads[n].id;
        let mut child = match self.mode {
            HistoryMode::Paginated => {
                let first = self.threads[n].first_ordinal + lines.len() as u64;
                let base = json!({"thread_id": source, "end_ordinal_exclusive": first, "end_byte_offset": 1});
                self.new_thread(first, &json!({"forked_from_id": source, "history_base": base}))?
            }
            HistoryMode::Legacy | HistoryMode::Unknown => self.new_thread(0, &json!({"forked_from_id": source}))?,
        };
        let mut result = Ok(());
        if let (Some(writer), HistoryMode::Legacy) = (&mut child.writer, self.mode) {
            for part in lines.chunks(lines.len().div_ceil(parts)) {
                child.given.extend(part.iter().map(|line| Given::Whole(line.clone())));
                result = writer.copy(part.to_vec(), at);
                if result.is_err() {
                    break;
                }
                child.acknowledged = child.given.len();
            }
        }
        if let (Some(writer), Ok(())) = (&mut child.writer, &result) {
            result = writer.persist(at);
        }
        let refused = match result {
            Ok(()) => {
                child.acknowledge(self.durability != Durability::None);
                None
            }
            Err(e) => {
                child.close(&self.disk, self.mode)?;
                Some(e.to_string())
            }
        };
        self.threads.push(child);
        Ok(refused)
    }

    /// What is visible now: nothing may be missing that was acknowledged, nothing stand twice.
    pub fn check_visible(&self) -> Result<()> {
        for thread in &self.threads {
            let found = thread.found(&self.disk, self.mode, Order::Kept)?.matched.len();
            let acknowledged = thread.acknowledged;
            ensure!(
                found >= acknowledged,
                "{}: {found} records are seen of {acknowledged} acknowledged ones",
                thread.id
            );
        }
        Ok(())
    }
}

impl Thread {
    /// Everything given so far is with the kernel, and durable if `synced`.
    fn acknowledge(&mut self, synced: bool) {
        self.acknowledged = self.given.len();
        if synced {
            self.durable = self.given.len();
            self.made = true;
        }
    }
}

/// Opens a thread on a disk as a store does.
pub fn open(disk: &SimDisk, thread: &Thread, durability: Durability) -> Result<RolloutWriter> {
    if disk.contents(&thread.path).is_none() && disk.contents(&thread.packed()).is_some() {
        unpack(disk, &thread.packed())?;
    }
    Ok(RolloutWriter::resume(Arc::new(disk.clone()), &thread.path, Path::new(HOME), durability)?)
}
