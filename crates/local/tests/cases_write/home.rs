//! Homes made record by record, and a store over them whose clock the test sets.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use threadkeep_local::{LocalOptions, LocalThreadStore};
use threadkeep_record::{HistoryMode, NewItem, ThreadId, UtcMillis};
use threadkeep_store::{
    Archived, Clock, CreateThread, HostMetadata, LiveThread, ResumeThread, StoreResult, TestClock, ThreadStore as _,
};

/// Both ways of keeping a history.
pub const MODES: [HistoryMode; 2] = [HistoryMode::Legacy, HistoryMode::Paginated];

/// When rollouts of these tests begin.
const BEGIN: &str = "2026-03-01T10:00:00.000Z";

/// Now, long after.
const NOW: &str = "2026-03-05T10:00:00.000Z";

pub fn id(n: u32) -> ThreadId {
    ThreadId::parse(&format!("01990000-0000-7000-8000-{n:012}")).expect("an id")
}

pub fn time(text: &str) -> UtcMillis {
    UtcMillis::parse(text).expect("a time")
}

/// A record of a rollout at a second of its day, with its line feed.
pub fn record(mode: HistoryMode, second: u32, ordinal: u64, kind: &str, payload: &str) -> Vec<u8> {
    let at = time(BEGIN).0 + i64::from(second) * 1_000;
    let ordinal = if mode == HistoryMode::Paginated { format!("\"ordinal\":{ordinal},") } else { String::new() };
    format!("{{\"timestamp\":\"{}\",{ordinal}\"type\":\"{kind}\",\"payload\":{payload}}}\n", UtcMillis(at)).into_bytes()
}

pub fn header(mode: HistoryMode, thread: ThreadId) -> Vec<u8> {
    header_with(mode, thread, "")
}

/// A header with further fields (`"key":value,…,`).
pub fn header_with(mode: HistoryMode, thread: ThreadId, more: &str) -> Vec<u8> {
    let kept = if mode == HistoryMode::Paginated { ",\"history_mode\":\"paginated\"" } else { "" };
    let payload = format!(
        "{{\"id\":\"{thread}\",\"timestamp\":\"{BEGIN}\",\"cwd\":\"/w/p\",\"originator\":\"codex_cli_rs\",\
         {more}\"cli_version\":\"0.171.0\",\"source\":\"cli\",\"model_provider\":\"openai\"{kept}}}"
    );
    record(mode, 0, 0, "session_meta", &payload)
}

/// What a person said, in the way of the mode.
pub fn said(mode: HistoryMode, n: u32, text: &str) -> Vec<u8> {
    let text = Value::from(text);
    let payload = match mode {
        HistoryMode::Paginated => format!(
            "{{\"type\":\"item_completed\",\"thread_id\":\"{}\",\"turn_id\":\"turn-{n}\",\"item\":{{\"type\":\
             \"UserMessage\",\"id\":\"i{n}\",\"content\":[{{\"type\":\"text\",\"text\":{text},\"text_elements\":[]}}]}},\
             \"started_at_ms\":1,\"completed_at_ms\":1}}",
            id(1)
        ),
        HistoryMode::Legacy | HistoryMode::Unknown => format!("{{\"type\":\"user_message\",\"message\":{text}}}"),
    };
    record(mode, n, n.into(), "event_msg", &payload)
}

/// A healthy rollout: a header and messages `said 1` to `said N`, as its lines.
pub fn rollout(mode: HistoryMode, thread: ThreadId, messages: u32) -> Vec<Vec<u8>> {
    let all = (1..=messages).map(|n| said(mode, n, &format!("said {n}")));
    std::iter::once(header(mode, thread)).chain(all).collect()
}

/// A home in a temporary folder.
pub struct Home {
    dir: tempfile::TempDir,
    pub clock: Arc<TestClock>,
}

impl Home {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("threadkeep-cases-").tempdir().expect("a folder");
        let home = Self { dir, clock: Arc::new(TestClock::new(time(NOW))) };
        fs::create_dir(home.path()).expect("the home");
        home
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("codex")
    }

    pub fn outside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Where the rollout of a thread is.
    pub fn place(&self, thread: ThreadId) -> PathBuf {
        self.path().join(format!("sessions/2026/03/01/rollout-2026-03-01T10-00-00-{thread}.jsonl"))
    }

    /// Writes the rollout of a thread.
    pub fn put(&self, thread: ThreadId, bytes: &[u8]) -> PathBuf {
        write(&self.place(thread), bytes)
    }

    pub fn store(&self) -> LocalThreadStore {
        self.store_with(|_| ())
    }

    pub fn store_with(&self, with: impl FnOnce(&mut LocalOptions)) -> LocalThreadStore {
        let mut options = LocalOptions::new(self.path());
        with(&mut options);
        LocalThreadStore::open_with(options, Arc::clone(&self.clock) as Arc<dyn Clock>)
    }

    /// Resumes a thread in a new store.
    pub async fn resume(&self, thread: ThreadId) -> StoreResult<LiveThread> {
        self.resume_in(&self.store(), thread, None).await
    }

    pub async fn resume_in(
        &self,
        store: &LocalThreadStore,
        thread: ThreadId,
        path: Option<&Path>,
    ) -> StoreResult<LiveThread> {
        let params = resume_params(thread, path);
        LiveThread::resume(Arc::new(store.clone()), params, Arc::clone(&self.clock) as Arc<dyn Clock>).await
    }

    pub async fn create(&self, store: &LocalThreadStore, thread: ThreadId, mode: HistoryMode) -> LiveThread {
        let params = CreateThread { history_mode: mode, ..CreateThread::new(thread, "/w/p", "test") };
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        LiveThread::create(Arc::new(store.clone()), params, clock).await.expect("a thread")
    }

    /// The records of a thread as a new store reads them, and how many lines of it are damaged.
    pub async fn history(&self, thread: ThreadId) -> (Vec<Vec<u8>>, u64) {
        let history = self.store().load_history(thread, Archived::Included).await.expect("a history");
        (history.records.into_iter().map(|r| r.0).collect(), history.damaged)
    }

    /// Every file of the home with its bytes and modification time, without the index and locks that threadkeep keeps.
    pub fn files(&self) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
        let mut all = BTreeMap::new();
        gather(&self.path(), &mut all);
        let root = self.path();
        all.retain(|path, _| {
            let rel = path.strip_prefix(&root).unwrap_or(path);
            !(rel.starts_with("threadkeep") || rel.ends_with(".coordination.lock"))
        });
        all
    }
}

pub fn resume_params(thread: ThreadId, path: Option<&Path>) -> ResumeThread {
    ResumeThread {
        thread_id: thread,
        rollout_path: path.map(Path::to_owned),
        archived: Archived::Included,
        metadata: HostMetadata { cwd: Some("/w/p".into()), ..HostMetadata::default() },
    }
}

pub fn write(path: &Path, bytes: &[u8]) -> PathBuf {
    fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
    fs::write(path, bytes).expect("a file");
    path.to_owned()
}

fn gather(dir: &Path, all: &mut BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)>) {
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            gather(&path, all);
        } else {
            let modified = fs::metadata(&path).and_then(|m| m.modified()).expect("a time");
            all.insert(path.clone(), (fs::read(&path).expect("bytes"), modified));
        }
    }
}

/// A message to append, in the way of the mode.
pub fn message(mode: HistoryMode, text: &str) -> NewItem {
    let line = said(mode, 1, text);
    let value: Value = serde_json::from_slice(&line).expect("a record");
    NewItem::from_value("event_msg", &value["payload"]).expect("an item")
}

/// A file is what it was with exactly one more line: a torn end is closed off, the line is a record that says `text`.
/// Gives the record.
#[track_caller]
pub fn one_more(path: &Path, was: &[u8], text: &str) -> Value {
    let is = fs::read(path).expect("the rollout");
    let torn = was.last().is_some_and(|b| *b != b'\n');
    let closed = if torn { [was, b"\n"].concat() } else { was.to_vec() };
    assert!(is.starts_with(&closed), "what was there has changed");
    let added = &is[closed.len()..];
    assert!(added.ends_with(b"\n"), "a whole line: {}", String::from_utf8_lossy(added));
    assert_eq!(added.iter().filter(|b| **b == b'\n').count(), 1, "one line: {}", String::from_utf8_lossy(added));
    let value: Value = serde_json::from_slice(added).expect("a record");
    assert!(value.to_string().contains(&Value::from(text).to_string()), "{value}");
    value
}
