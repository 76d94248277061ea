//! `threadkeep home prune` where the system refuses to show something: another user's command, as these tests may be run by
//! one who may see everything.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::homes::{Operator, name, text};
use crate::log::{Log, t};

const NOBODY: u32 = 65_534;
const LONG_AGO: &str = "2025-01-01T10:00:00.000Z";

/// A place with a store that would go, whose only thread is 1.
struct Idle {
    op: Operator,
    base: PathBuf,
}

impl Idle {
    fn new() -> Self {
        let op = Operator::new();
        let base = op.shared().join("threadkeep/stores/default/none/issue-i1/sessions/2025/01/01").join(name(1));
        let idle = Self { op, base };
        idle.store(1, &Log::healthy(&t(1), LONG_AGO));
        idle
    }

    /// A store of issue `i<n>` that was last used long ago, with a rollout.
    fn store(&self, n: u32, log: &Log) -> PathBuf {
        self.op.prepare(&format!("t{n}"), &["--issue", &format!("i{n}")]);
        let store = self.op.shared().join(format!("threadkeep/stores/default/none/issue-i{n}"));
        fs::create_dir_all(store.join("sessions/2025/01/01")).expect("folders");
        fs::write(store.join("sessions/2025/01/01").join(name(n)), log.bytes()).expect("a rollout");
        let mut manifest: Value =
            serde_json::from_slice(&fs::read(store.join("store.json")).expect("a manifest")).expect("JSON");
        manifest["created_at"] = LONG_AGO.into();
        fs::write(store.join("store.json"), manifest.to_string()).expect("a manifest");
        fs::write(store.join("last-used"), LONG_AGO).expect("a stamp");
        let old = Command::new("find").arg(&store).args(["-exec", "touch", "-d", "2025-01-01", "{}", "+"]).status();
        assert!(old.expect("find").success());
        store
    }

    /// A fork of thread 1 in the shared home.
    fn fork(&self, n: u32) -> PathBuf {
        let folder = self.op.shared().join("sessions/2026/11/20");
        fs::create_dir_all(&folder).expect("folders");
        let file = folder.join(name(n));
        fs::write(&file, fork(n)).expect("a fork");
        file
    }

    /// Runs clean-up as someone who may see only what modes allow, with these modes in force.
    fn prune(&self, modes: &[(&Path, u32)]) -> Value {
        let root = self.op.shared();
        let root = root.parent().expect("a folder");
        let me = fs::metadata(root).expect("the place").uid();
        let mut command = self.op.command(&["prune", "--retention", "14d", "--yes", "--json"]);
        if me == 0 {
            give(root, NOBODY);
            let program = reachable(root);
            let words: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
            command = Command::new(program);
            command.args(words).env_remove("CODEX_HOME").current_dir(root).uid(NOBODY).gid(NOBODY);
        }
        let before: Vec<u32> = modes.iter().map(|(path, _)| fs::metadata(path).expect("a place").mode()).collect();
        for (path, mode) in modes {
            fs::set_permissions(path, fs::Permissions::from_mode(*mode)).expect("a mode");
        }
        let output = command.output().expect("the command");
        for ((path, _), mode) in modes.iter().zip(before) {
            // A place that was removed has no mode any more.
            let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
        }
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn because(&self, done: &Value) -> String {
        let plan = done["plan"].as_array().expect("a plan");
        let one = plan.iter().find(|d| text(&d["store"]).ends_with("issue-i1")).expect("the store");
        assert_eq!(one["action"], "keep", "{done}");
        assert!(self.base.exists(), "{done}");
        text(&one["because"]).to_owned()
    }
}

fn fork(n: u32) -> String {
    let (id, base) = (t(n), t(1));
    format!(
        "{{\"timestamp\":\"{LONG_AGO}\",\"type\":\"session_meta\",\"payload\":{{\"id\":\"{id}\",\"timestamp\":\"{LONG_AGO}\",\
         \"cwd\":\"/w\",\"originator\":\"x\",\"cli_version\":\"1\",\"history_mode\":\"paginated\",\"forked_from_id\":\"{base}\",\
         \"history_base\":{{\"thread_id\":\"{base}\",\"end_ordinal_exclusive\":1,\"end_byte_offset\":10}}}}}}\n"
    )
}

fn give(at: &Path, to: u32) {
    lchown(at, Some(to), Some(to)).expect("a new owner");
    if at.is_dir() && !at.is_symlink() {
        for entry in fs::read_dir(at).expect("a folder") {
            give(&entry.expect("an entry").path(), to);
        }
    }
}

/// The command, where another user can reach it.
fn reachable(root: &Path) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_threadkeep"));
    if program.ancestors().all(|p| fs::metadata(p).is_ok_and(|m| m.mode() & 0o005 == 0o005)) {
        return program.to_owned();
    }
    let copy = root.join("threadkeep");
    if !copy.exists() {
        fs::copy(program, &copy).expect("a copy of the command");
    }
    copy
}

#[test]
fn an_idle_store_goes_when_everything_can_be_seen() {
    let idle = Idle::new();
    assert_eq!(idle.prune(&[])["removed"], 1);
    assert!(!idle.base.exists());
}

#[test]
fn a_fork_in_a_folder_or_file_that_may_not_be_read_keeps_its_base() {
    for (what, mode) in [("the folder", 0), ("the folder", 0o100), ("the folder", 0o400), ("the file", 0)] {
        let idle = Idle::new();
        let file = idle.fork(9);
        let hidden = if what == "the file" { &*file } else { file.parent().expect("a folder") };
        let because = idle.because(&idle.prune(&[(hidden, mode)]));
        assert!(because.contains("not known") && because.contains(hidden.to_str().expect("text")), "{because}");
    }
}

#[test]
fn a_fork_in_a_store_that_may_not_be_read_keeps_its_base() {
    for hidden in ["sessions", "sessions/2025/01"] {
        let idle = Idle::new();
        let other = idle.store(2, &Log::healthy(&t(2), LONG_AGO));
        fs::write(other.join("sessions/2025/01/01").join(name(9)), fork(9)).expect("a fork");
        let because = idle.because(&idle.prune(&[(&other.join(hidden), 0)]));
        assert!(because.contains("not known") && because.contains("issue-i2"), "{hidden}: {because}");
    }
}

#[test]
fn writer_locks_that_may_not_be_read_keep_what_may_be_written() {
    for mode in [0, 0o100, 0o400] {
        let idle = Idle::new();
        let locks = idle.op.shared().join("thread-writer-locks");
        let lock = locks.join(format!("{}.lock", t(1)));
        let file = fs::File::create(&lock).expect("a lock");
        file.lock().expect("held");
        let because = idle.because(&idle.prune(&[(&locks, mode)]));
        assert!(because.starts_with("not certain: "), "{mode:o}: {because}");
        assert!(because.contains("writ") && because.contains("thread-writer-locks"), "{mode:o}: {because}");
    }
}

#[test]
fn a_store_that_cannot_be_deleted_whole_is_told_as_what_it_is() {
    let idle = Idle::new();
    let store = idle.op.shared().join("threadkeep/stores/default/none/issue-i1");
    let day = idle.base.parent().expect("a folder").to_owned();
    let done = idle.prune(&[(&day, 0o555)]);
    assert_eq!((&done["removed"], &done["plan"][0]["action"]), (&1.into(), &"remove".into()), "{done}");
    assert!(!store.exists());
    let left = text(&done["left"][0]);
    assert!(left.contains("tombstones/") && left.contains("the next clean-up tries again"), "{left}");
    for grave in fs::read_dir(idle.op.shared().join("threadkeep/tombstones")).expect("tombstones") {
        let day = grave.expect("one").path().join("sessions/2025/01/01");
        fs::set_permissions(day, fs::Permissions::from_mode(0o700)).expect("a mode");
    }
    let done = idle.prune(&[]);
    assert_eq!((done["swept"].as_array().map(Vec::len), done["left"].as_array().map(Vec::len)), (Some(1), Some(0)));
}
