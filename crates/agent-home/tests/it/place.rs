//! A shared home and task homes in a temporary folder.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use threadkeep_agent_home::{ConversationKind, Options, Prepared, ResumeId, StoreKey, World, prepare};
use threadkeep_record::UtcMillis;

/// 2026-11-30T12:00:00Z.
pub const NOW: UtcMillis = UtcMillis(1_796_040_000_000);
pub const DAY: i64 = 24 * 3600 * 1000;

/// The id of thread `n`.
pub fn t(n: u32) -> String {
    format!("01990000-0000-7000-8000-{n:012}")
}

pub fn id(n: u32) -> ResumeId {
    ResumeId::parse(&t(n)).unwrap()
}

pub struct Place {
    pub dir: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("threadkeep-agent-home-").tempdir().unwrap();
        fs::create_dir(dir.path().join("shared")).unwrap();
        Self { dir }
    }

    /// In memory where the system has such a place: for tests that make hundreds of homes.
    pub fn quick() -> Self {
        let memory = Path::new("/dev/shm");
        if !memory.is_dir() {
            return Self::new();
        }
        let dir = tempfile::Builder::new().prefix("threadkeep-agent-home-").tempdir_in(memory).unwrap();
        fs::create_dir(dir.path().join("shared")).unwrap();
        Self { dir }
    }

    pub fn shared(&self) -> PathBuf {
        self.dir.path().join("shared")
    }

    pub fn task(&self, name: &str) -> PathBuf {
        self.dir.path().join("tasks").join(name)
    }

    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A rollout of thread `n` in the shared home's `sessions`, nested.
    pub fn rollout(&self, n: u32) -> PathBuf {
        self.write(format!("shared/sessions/2026/11/29/{}", name(n)), log(n))
    }

    pub fn options(&self, task: &str) -> Options {
        Options::new(self.task(task), self.shared())
    }

    /// Options for an issue.
    pub fn issue(&self, task: &str, issue: &str) -> Options {
        Options { key: Some(key("", "a1", issue)), ..self.options(task) }
    }

    pub fn store(&self, key: &StoreKey) -> PathBuf {
        self.shared().join("threadkeep/stores").join(key.path())
    }

    /// Everything below a folder: what it is, and its bytes or target. Directories' times are not part of it.
    pub fn snapshot(&self, below: &Path) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        walk(below, below, &mut all);
        all
    }
}

fn walk(root: &Path, at: &Path, all: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let key = path.strip_prefix(root).unwrap().to_owned();
        let mode = meta.permissions().mode() & 0o7777;
        if meta.is_symlink() {
            all.insert(key, format!("link {}", fs::read_link(&path).unwrap().display()));
        } else if meta.is_dir() {
            all.insert(key, format!("folder {mode:o}"));
            walk(root, &path, all);
        } else {
            let bytes = fs::read(&path).unwrap();
            all.insert(
                key,
                format!("file {mode:o} {} {} {}", meta.ino(), meta.mtime_nsec(), String::from_utf8_lossy(&bytes)),
            );
        }
    }
}

pub fn key(profile: &str, agent: &str, issue: &str) -> StoreKey {
    StoreKey { profile: profile.into(), agent: agent.into(), kind: ConversationKind::Issue, id: issue.into() }
}

/// The name of a rollout of thread `n`.
pub fn name(n: u32) -> String {
    format!("rollout-2026-11-29T10-00-00-{}.jsonl", t(n))
}

/// Its records.
pub fn log(n: u32) -> String {
    record(n, "2026-11-29T10:00:00.000Z", "")
}

pub fn record(n: u32, time: &str, more: &str) -> String {
    let id = t(n);
    format!(
        "{{\"timestamp\":\"{time}\",\"type\":\"session_meta\",\"payload\":{{\"id\":\"{id}\",\"timestamp\":\"{time}\",\
         \"cwd\":\"/w\",\"originator\":\"x\",\"cli_version\":\"1\"{more}}}}}\n\
         {{\"timestamp\":\"{time}\",\"type\":\"event_msg\",\"payload\":{{\"type\":\"user_message\",\"message\":\"hello {n}\"}}}}\n"
    )
}

/// A fork by reference of thread `base`.
pub fn fork(n: u32, base: u32, bytes: usize) -> String {
    let more = format!(
        ",\"history_mode\":\"paginated\",\"forked_from_id\":\"{0}\",\"history_base\":{{\"thread_id\":\"{0}\",\
         \"end_ordinal_exclusive\":2,\"end_byte_offset\":{bytes}}}",
        t(base)
    );
    record(n, "2026-11-29T11:00:00.000Z", &more)
}

pub fn run(options: &Options) -> Prepared {
    run_at(options, NOW)
}

pub fn run_at(options: &Options, now: UtcMillis) -> Prepared {
    prepare(options, &World::at(now)).unwrap_or_else(|e| panic!("{e}"))
}

pub fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

pub fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Rollouts visible below a home's `sessions`, links followed.
pub fn visible(home: &Path) -> Vec<String> {
    fn go(at: &Path, all: &mut Vec<String>) {
        for entry in fs::read_dir(at).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                go(&path, all)
            } else {
                all.push(path.file_name().unwrap().to_string_lossy().into_owned())
            }
        }
    }
    let mut all = Vec::new();
    go(&home.join("sessions"), &mut all);
    all.sort();
    all
}

/// Sets a modification time.
pub fn touch(path: &Path, at: UtcMillis) {
    let time = if at.0 >= 0 {
        std::time::UNIX_EPOCH + std::time::Duration::from_millis(at.0.unsigned_abs())
    } else {
        std::time::UNIX_EPOCH
    };
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}
