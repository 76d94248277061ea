//! A Codex home in a temporary folder, and the command run on it.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use assert_cmd::Command;
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{db::StateDb, log::Log};

/// No command may take longer than this on any home of these tests.
const PATIENCE: Duration = Duration::from_secs(30);

pub struct Home {
    dir: TempDir,
}

impl Home {
    pub fn new() -> Home {
        let dir = tempfile::Builder::new().prefix("threadkeep-home-").tempdir().expect("a temporary folder");
        fs::create_dir(dir.path().join("codex")).expect("the home");
        Home { dir }
    }

    /// A copy of the home at `from`.
    pub fn copy_of(from: &Path) -> Home {
        fn copy(from: &Path, to: &Path) {
            fs::create_dir_all(to).expect("folders");
            for entry in fs::read_dir(from).expect("a folder") {
                let path = entry.expect("an entry").path();
                let target = to.join(path.file_name().expect("a name"));
                if path.is_dir() {
                    copy(&path, &target);
                } else {
                    fs::copy(&path, target).expect("a copy");
                }
            }
        }
        let home = Home::new();
        copy(from, &home.path());
        home
    }

    /// The home itself.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("codex")
    }

    /// A place beside the home.
    pub fn outside(&self, rel: &str) -> PathBuf {
        self.dir.path().join(rel)
    }

    pub fn file(&self, rel: &str) -> PathBuf {
        self.path().join(rel)
    }

    /// Writes `bytes` to `rel`, making the folders on the way.
    pub fn write(&self, rel: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.file(rel);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(&path, bytes).expect("a file");
        path
    }

    /// Writes a rollout at `rel` with the modification time of its last record.
    pub fn put_at(&self, rel: &str, log: &Log) -> PathBuf {
        self.put_bytes(rel, &log.bytes(), log.last())
    }

    pub fn put_bytes(&self, rel: &str, bytes: &[u8], mtime: Timestamp) -> PathBuf {
        let path = self.write(rel, bytes);
        touch(&path, mtime);
        path
    }

    /// `R(T, ts)`.
    pub fn put(&self, log: &Log) -> PathBuf {
        self.put_at(&log.active_path(), log)
    }

    /// `A(T, ts)`.
    pub fn put_archived(&self, log: &Log) -> PathBuf {
        self.put_at(&log.archived_path(), log)
    }

    /// `R(T, ts).zst` with the given bytes as its whole content.
    pub fn put_zst(&self, log: &Log, compressed: &[u8]) -> PathBuf {
        self.put_bytes(&format!("{}.zst", log.active_path()), compressed, log.last())
    }

    /// `IDX(T, name, ts)`: one more line of the name index.
    pub fn idx(&self, thread: &str, name: &str, at: &str) {
        let path = self.file("session_index.jsonl");
        let mut bytes = fs::read(&path).unwrap_or_default();
        bytes.extend_from_slice(json!({"id": thread, "thread_name": name, "updated_at": at}).to_string().as_bytes());
        bytes.push(b'\n');
        fs::write(path, bytes).expect("the name index");
    }

    /// A new `state_5.sqlite` in the home.
    pub fn state(&self) -> StateDb {
        StateDb::create(&self.file("state_5.sqlite"))
    }

    /// Runs the command with `--home H --json` and reads what it prints as one object.
    #[track_caller]
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Out {
        let mut all: Vec<OsString> = vec!["--json".into()];
        all.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        let mut out = self.human(&all);
        out.json =
            serde_json::from_slice(&out.bytes).unwrap_or_else(|error| panic!("not one object: {error}\n{out:?}"));
        assert_eq!(out.json["format"], 1, "{out:?}");
        crate::agree::with_an_index(self, &out);
        out
    }

    /// Runs the command with `--home H`; the home must not change by it.
    #[track_caller]
    pub fn human<S: AsRef<OsStr>>(&self, args: &[S]) -> Out {
        self.spawn(args, |_| ())
    }

    /// As [`Home::human`], with a last word on how the process is started.
    #[track_caller]
    pub fn spawn<S: AsRef<OsStr>>(&self, args: &[S], with: impl FnOnce(&mut Command)) -> Out {
        let before = self.stamps();
        let mut command = Command::cargo_bin("threadkeep").expect("the command is built");
        command.arg("--home").arg(self.path()).args(args).timeout(PATIENCE);
        clean(&mut command, self.dir.path());
        // From the files alone; `agree` asks again with an index.
        command.env("THREADKEEP_NO_INDEX", "1");
        with(&mut command);
        let out = Out::of(command, args.iter().map(|arg| arg.as_ref().to_string_lossy().into_owned()).collect());
        let after = self.stamps();
        let changed: Vec<_> = before.iter().filter(|was| !after.contains(was)).collect();
        let made: Vec<_> = after.iter().filter(|is| !before.contains(is)).collect();
        assert!(before == after, "a reading command changed the home: {:?}\nwas {changed:?}\nis {made:?}", out.args);
        out
    }

    /// A page of `list`.
    #[track_caller]
    pub fn list(&self, args: &[&str]) -> Out {
        let out = self.run(&[&["list"], args].concat());
        assert_eq!(out.code, 0, "{out:?}");
        out
    }

    /// A page of `search`; exit 0 with a hit and 1 without.
    #[track_caller]
    pub fn search(&self, args: &[&str]) -> Out {
        let out = self.run(&[&["search"], args].concat());
        assert!(out.json["hits"].is_array(), "{out:?}");
        assert_eq!(out.code, i32::from(out.hits().is_empty()), "{out:?}");
        out
    }

    /// A page of `show`.
    #[track_caller]
    pub fn show(&self, args: &[&str]) -> Out {
        let out = self.run(&[&["show"], args].concat());
        assert_eq!(out.code, 0, "{out:?}");
        out
    }

    /// Every page of a `list`, by its cursors, as ids in the order they came.
    #[track_caller]
    pub fn walk(&self, args: &[&str]) -> Vec<String> {
        let mut ids = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..2_000 {
            let mut page: Vec<&str> = args.to_vec();
            if let Some(cursor) = &cursor {
                page.extend(["--cursor", cursor]);
            }
            let out = self.list(&page);
            ids.extend(out.ids());
            cursor = out.json["next_cursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                assert_eq!(out.json["complete"], true, "the last page says so: {out:?}");
                return ids;
            }
        }
        panic!("the pages do not end");
    }

    /// Names, kinds, sizes, modes and times of everything in the home.
    pub fn stamps(&self) -> Vec<(PathBuf, String)> {
        let mut all = Vec::new();
        collect(self.dir.path(), &mut all, false);
        all
    }

    /// The same with every byte.
    pub fn snapshot(&self) -> BTreeMap<PathBuf, String> {
        let mut all = Vec::new();
        collect(self.dir.path(), &mut all, true);
        all.into_iter().collect()
    }
}

/// The command without anything of the surroundings: no home, no colours, UTC.
pub fn clean(command: &mut Command, fake_home: &Path) {
    for name in
        ["CODEX_HOME", "CODEX_SQLITE_HOME", "THREADKEEP_INDEX_DIR", "THREADKEEP_NO_INDEX", "CLICOLOR_FORCE", "PAGER"]
    {
        command.env_remove(name);
    }
    command.env("NO_COLOR", "1").env("TZ", "UTC").env("HOME", fake_home);
}

fn collect(dir: &Path, all: &mut Vec<(PathBuf, String)>, contents: bool) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let mut entries: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        let meta = fs::symlink_metadata(&path).expect("a file that stays");
        let mut stamp = format!("{:?} {:?} {:?}", meta.file_type(), meta.permissions(), meta.modified().ok());
        if meta.is_file() {
            stamp += &format!(" {}", meta.len());
            if contents {
                stamp += &format!(" {:?}", fs::read(&path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()));
            }
        }
        let deeper = meta.is_dir();
        all.push((path.clone(), stamp));
        if deeper {
            collect(&path, all, contents);
        }
    }
}

/// Sets the modification time of a file.
pub fn touch(path: &Path, at: Timestamp) {
    let file = fs::File::options().append(true).open(path).expect("the file to touch");
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at.as_millisecond().try_into().expect("after 1970"));
    file.set_times(fs::FileTimes::new().set_modified(at)).expect("a modification time");
}

/// What a run of the command gave.
pub struct Out {
    pub args: Vec<String>,
    pub code: i32,
    /// Standard output, byte for byte.
    pub bytes: Vec<u8>,
    pub stdout: String,
    pub stderr: String,
    /// What `--json` printed.
    pub json: Value,
}

impl std::fmt::Debug for Out {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let short: String = self.stdout.chars().take(4_000).collect();
        write!(f, "{:?} exit {}\nstdout: {short}\nstderr: {}", self.args, self.code, self.stderr)
    }
}

impl Out {
    #[track_caller]
    fn of(mut command: Command, args: Vec<String>) -> Out {
        let output = command.output().expect("the command starts");
        let bytes = output.stdout;
        let stdout = String::from_utf8_lossy(&bytes).into_owned();
        let stderr = String::from_utf8(output.stderr).expect("what is printed is UTF-8");
        let code = output.status.code().unwrap_or_else(|| panic!("hung or killed: {args:?}\n{stderr}"));
        assert!(code <= 5, "exit {code} of {args:?}\n{stderr}");
        assert!(!stderr.contains("panicked at"), "{args:?}\n{stderr}");
        Out { args, code, bytes, stdout, stderr, json: Value::Null }
    }

    /// The ids of the threads of a list, in order.
    #[track_caller]
    pub fn ids(&self) -> Vec<String> {
        let threads = self.json["threads"].as_array().unwrap_or_else(|| panic!("no threads: {self:?}"));
        threads.iter().map(|thread| thread["id"].as_str().expect("an id").to_owned()).collect()
    }

    /// The ids of a list, sorted, for comparisons as a set.
    #[track_caller]
    pub fn set(&self) -> Vec<String> {
        let mut ids = self.ids();
        ids.sort();
        ids
    }

    /// The row of a thread.
    #[track_caller]
    pub fn thread(&self, id: &str) -> &Value {
        let threads = self.json["threads"].as_array().unwrap_or_else(|| panic!("no threads: {self:?}"));
        threads.iter().find(|thread| thread["id"] == id).unwrap_or_else(|| panic!("{id} is not listed: {self:?}"))
    }

    /// How many threads a filter or default hid.
    #[track_caller]
    pub fn hidden(&self, key: &str) -> u64 {
        self.json["hidden"][key].as_u64().unwrap_or_else(|| panic!("hidden.{key} is not told: {}", self.json["hidden"]))
    }

    #[track_caller]
    pub fn hits(&self) -> &Vec<Value> {
        self.json["hits"].as_array().unwrap_or_else(|| panic!("no hits: {self:?}"))
    }

    /// `thread_id` of each hit.
    #[track_caller]
    pub fn hit_threads(&self) -> Vec<String> {
        self.hits().iter().map(|hit| hit["thread_id"].as_str().expect("a thread").to_owned()).collect()
    }

    /// The speaker of each hit.
    #[track_caller]
    pub fn speakers(&self) -> Vec<&str> {
        self.hits().iter().map(|hit| hit["speaker"].as_str().expect("a speaker")).collect()
    }

    #[track_caller]
    pub fn turns(&self) -> &Vec<Value> {
        self.json["turns"].as_array().unwrap_or_else(|| panic!("no turns: {self:?}"))
    }

    /// Everything that `show` says, as one text.
    #[track_caller]
    pub fn said(&self) -> String {
        self.turns().iter().map(said).collect::<Vec<_>>().join("\n")
    }

    /// The error object of a failure.
    #[track_caller]
    pub fn error(&self) -> &Value {
        assert!(self.json["error"]["kind"].is_string(), "a failure says what it is: {self:?}");
        assert!(!self.stderr.trim().is_empty(), "a failure is also told to people: {self:?}");
        &self.json["error"]
    }
}

/// The texts of one turn.
pub fn said(turn: &Value) -> String {
    fn texts(value: &Value, all: &mut Vec<String>) {
        match value {
            Value::String(text) => all.push(text.clone()),
            Value::Array(values) => values.iter().for_each(|value| texts(value, all)),
            Value::Object(fields) => fields.values().for_each(|value| texts(value, all)),
            Value::Null | Value::Bool(_) | Value::Number(_) => (),
        }
    }
    let mut all = Vec::new();
    texts(&turn["items"], &mut all);
    all.join("\n")
}

/// The number of damaged records that a thread is marked with.
pub fn damage(thread: &Value) -> u64 {
    match &thread["damage"] {
        Value::Null => 0,
        damage => damage["records"].as_u64().unwrap_or_else(|| panic!("damage without a count: {damage}")),
    }
}

/// Sorted ids of the threads with these numbers.
pub fn ids(numbers: impl IntoIterator<Item = u32>) -> Vec<String> {
    let mut ids: Vec<String> = numbers.into_iter().map(crate::log::t).collect();
    ids.sort();
    ids
}
