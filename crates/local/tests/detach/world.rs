//! Homes made line by line, and the swap as whoever detaches a thread makes it.

use std::fs;
use std::path::{Path, PathBuf};

use threadkeep_local::change::detach::{DetachError, Staged, Subject, stage, verify};
use threadkeep_local::turn_index::TurnIndex;
use threadkeep_local::{LocalStore, OpenThread};
use threadkeep_record::{ThreadId, UtcMillis};
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::home::Home;
use threadkeep_rollout::seam::RealDisk;
use threadkeep_store::TestClock;

pub fn id(n: u64) -> ThreadId {
    ThreadId::parse(&format!("01990000-0000-7000-8000-{n:012}")).expect("an id")
}

/// A line without its line feed.
pub fn line(ordinal: u64, kind: &str, payload: &str) -> Vec<u8> {
    let at = UtcMillis(1_772_359_200_000 + i64::try_from(ordinal).unwrap_or(0) * 1_000);
    format!(r#"{{"timestamp":"{at}","ordinal":{ordinal},"type":"{kind}","payload":{payload}}}"#).into_bytes()
}

/// A turn with a question in it: three lines.
pub fn turn(ordinal: u64, thread: ThreadId, text: &str) -> Vec<Vec<u8>> {
    let item = format!(r#"{{"type":"UserMessage","id":"i{ordinal}","content":[{{"type":"text","text":"{text}"}}]}}"#);
    vec![
        line(ordinal, "event_msg", &format!(r#"{{"type":"task_started","turn_id":"t{ordinal}"}}"#)),
        line(
            ordinal + 1,
            "event_msg",
            &format!(
                r#"{{"type":"item_completed","thread_id":"{thread}","turn_id":"t{ordinal}","item":{item},"completed_at_ms":1}}"#
            ),
        ),
        line(ordinal + 2, "event_msg", &format!(r#"{{"type":"task_complete","turn_id":"t{ordinal}"}}"#)),
    ]
}

/// A base: the rollout, the ordinal and the offset where its part ends.
pub type Base = (ThreadId, u64, u64);

/// A header. `more` are further fields (`"key":value,…,`).
pub fn header(thread: ThreadId, ordinal: u64, base: Option<Base>, more: &str) -> Vec<u8> {
    let base = base.map_or_else(String::new, |(rollout, end, offset)| {
        format!(
            r#","history_base":{{"thread_id":"{rollout}","end_ordinal_exclusive":{end},"end_byte_offset":{offset}}}"#
        )
    });
    let payload = format!(
        r#"{{"session_id":"{thread}","id":"{thread}",{more}"timestamp":"2026-03-01T10:00:00.000Z","cwd":"/w/p","originator":"o","cli_version":"0.171.0","source":"cli","model_provider":"p","history_mode":"paginated"{base}}}"#
    );
    line(ordinal, "session_meta", &payload)
}

/// The placeholder that is expected where a header stood.
pub fn held(ordinal: u64, thread: ThreadId) -> Vec<u8> {
    let payload = format!(r#"{{"type":"token_count","info":null,"rate_limits":null,"header_of":"{thread}"}}"#);
    line(ordinal, "event_msg", &payload)
}

pub fn joined<'a>(lines: impl IntoIterator<Item = &'a Vec<u8>>) -> Vec<u8> {
    lines.into_iter().flat_map(|l| l.iter().copied().chain([b'\n'])).collect()
}

pub fn of(open: &OpenThread) -> Subject<'_> {
    Subject::of(open).expect("a thread")
}

pub struct World {
    dir: tempfile::TempDir,
    pub home: Home,
}

impl World {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("threadkeep-detach-").tempdir().expect("a folder");
        let home = Home::new(dir.path().join("codex"));
        Self { dir, home }
    }

    pub fn day(&self) -> PathBuf {
        self.home.path().join("sessions/2026/03/01")
    }

    /// The place of a rollout; `segment` for a later one of the thread.
    pub fn place(&self, thread: ThreadId, segment: Option<ThreadId>) -> PathBuf {
        let segment = segment.map_or_else(String::new, |s| format!("_{s}"));
        self.day().join(format!("rollout-2026-03-01T10-00-00-{thread}{segment}.jsonl"))
    }

    /// Writes a rollout; what a base that ends with it says of it.
    pub fn put(&self, thread: ThreadId, segment: Option<ThreadId>, bytes: &[u8]) -> PathBuf {
        let path = self.place(thread, segment);
        fs::create_dir_all(self.day()).expect("its folder");
        fs::write(&path, bytes).expect("a rollout");
        path
    }

    pub fn reader(&self) -> LocalStore {
        LocalStore::new(vec![self.home.clone()], None)
    }

    pub fn open(&self, thread: ThreadId) -> OpenThread {
        self.reader().open_id(thread, Depth::Whole(threadkeep_record::fold::Check::Whole)).expect("it is found")
    }

    /// What of a thread does not depend on how many files it has. (Its first message is then that of its whole history,
    /// and so are its damage and its tokens.)
    pub fn told(&self, thread: ThreadId) -> (serde_json::Value, Vec<String>) {
        let open = self.open(thread);
        assert!(open.history.missing.is_empty(), "{:?}", open.history.missing);
        let mut row = serde_json::to_value(&open.row.thread).expect("JSON");
        for of_files in ["files", "bytes", "records", "first_user_message", "damage", "tokens"] {
            row.as_object_mut().expect("an object").remove(of_files);
        }
        let turns = TurnIndex::build(&open.history).turns;
        let turns =
            turns.into_iter().map(|t| format!("{:?}", (t.id, t.number, t.status, t.started_at, t.completed_at)));
        (row, turns.collect())
    }

    pub fn stage(&self, thread: ThreadId) -> Result<Staged, DetachError> {
        let open = self.open(thread);
        let subject = of(&open);
        stage(&RealDisk, &self.home, &subject, &TestClock::new(UtcMillis(1_772_400_000_000)))
    }

    /// Detaches a thread: its old rollouts leave the home.
    pub fn detach(&self, thread: ThreadId) -> PathBuf {
        let staged = self.stage(thread).expect("staged");
        let open = self.open(thread);
        let verified = verify(&of(&open), &staged.temporary).expect("it says the same");
        assert_eq!(verified, staged.flattened);
        for member in &open.row.members {
            self.trash(&member.entry.path_in(self.home.path()));
        }
        assert!(!staged.target.exists());
        fs::rename(&staged.temporary, &staged.target).expect("the swap");
        staged.target
    }

    pub fn trash(&self, path: &Path) {
        let trash = self.dir.path().join("trash");
        fs::create_dir_all(&trash).expect("the trash");
        fs::rename(path, trash.join(path.file_name().expect("a name"))).expect("moved");
    }

    /// Every name in the day's folder.
    pub fn names(&self) -> Vec<String> {
        let all = fs::read_dir(self.day()).expect("the folder");
        let mut names: Vec<String> = all.map(|e| e.expect("a name").file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    }
}

/// Three threads, each continuing the one before, with what is odd in them: the lines that a detached third one has.
pub fn chain(world: &World) -> Vec<Vec<u8>> {
    let first: Vec<Vec<u8>> = [
        vec![header(id(1), 0, None, "\"git\":{\"branch\":\"one\"},")],
        turn(1, id(1), "one"),
        vec![
            br#"{ "ordinal": 4,"type":"event_msg" , "timestamp":"2026-03-01T10:00:04.000Z","payload":{"type":"token_count","info":null,"x":1.0e2}}"#.to_vec(),
            line(5, "kind_of_tomorrow", r#"{"a":"\u00e9\/"}"#),
            b"not json at all".to_vec(),
            b"{\"timestamp\":\"2026-03-01T10:00:05.000Z\",\"ordinal\":6,\"type\":\"event_msg\",\"payload\":{\"type\":\"x\",\"b\":\"\xff\"}}".to_vec(),
            b"{\"timestamp\":\"2026-03-01T10:00:05.000Z\",\"ordinal\":7,\"type\":\"event_msg\",\"payload\":{\"type\":\"x\",\"b\":\"\0\"}}".to_vec(),
            [line(8, "event_msg", r#"{"type":"y"}"#), b"\r".to_vec()].concat(),
            Vec::new(),
        ],
    ]
    .concat();
    let end = joined(&first).len() as u64;
    let behind = [joined(&first), joined(&turn(9, id(1), "not inherited")), b"{\"torn".to_vec()].concat();
    world.put(id(1), None, &behind);

    let fork =
        |n: u64, more: u64| format!("\"forked_from_id\":\"{}\",\"forked_from_ordinal_exclusive\":{more},", id(n));
    let second = [vec![header(id(2), 9, Some((id(1), 9, end)), &fork(1, 9))], turn(10, id(2), "two")].concat();
    world.put(id(2), None, &joined(&second));
    let base = (id(2), 13, joined(&second).len() as u64);
    let third = [vec![header(id(3), 13, Some(base), &fork(2, 13))], turn(14, id(3), "three")].concat();
    world.put(id(3), None, &joined(&third));
    [
        vec![header(id(3), 0, None, &fork(2, 13))].into_iter().map(|h| retimed(&h)).collect(),
        first[1..].to_vec(),
        vec![held(9, id(2))],
        second[1..].to_vec(),
        vec![held(13, id(3))],
        third[1..].to_vec(),
    ]
    .concat()
}

/// The detached thread's header keeps the time at which its own was written (ordinal 13 in [`chain`]).
fn retimed(header: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(header).replacen("10:00:00.000Z", "10:00:13.000Z", 1).into_bytes()
}
