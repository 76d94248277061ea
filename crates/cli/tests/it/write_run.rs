//! Runs of the commands that change a home, and what they changed: every file of the home with its bytes, mode and time,
//! before and after.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, SystemTime},
};

use assert_cmd::Command;
use rusqlite::{Connection, OpenFlags, types::Value as Cell};
use serde_json::Value;

use crate::home::{Home, Out, clean};

/// What the changing commands may leave beside what their plan says.
pub const ALLOWED: [&str; 2] = ["thread-writer-locks/.coordination.lock", "session_index.jsonl.lock"];

/// No change takes longer, whatever another program does.
const PATIENCE: Duration = Duration::from_secs(40);

/// Runs the command with `--home H --json`; the home may change.
#[track_caller]
pub fn change<S: AsRef<OsStr>>(home: &Home, args: &[S]) -> Out {
    change_with(home, args, |_| ())
}

/// As [`change`], with a last word on how the process is started.
#[track_caller]
pub fn change_with<S: AsRef<OsStr>>(home: &Home, args: &[S], with: impl FnOnce(&mut Command)) -> Out {
    let mut all: Vec<OsString> = vec!["--json".into()];
    all.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
    let mut out = told(home, &all, with);
    out.json = serde_json::from_str(&out.stdout).unwrap_or_else(|error| panic!("not one object: {error}\n{out:?}"));
    assert_eq!(out.json["format"], 1, "{out:?}");
    out
}

/// Runs the command with `--home H` as a person does; the home may change.
#[track_caller]
pub fn told<S: AsRef<OsStr>>(home: &Home, args: &[S], with: impl FnOnce(&mut Command)) -> Out {
    let mut command = Command::cargo_bin("threadkeep").expect("the command is built");
    command.arg("--home").arg(home.path()).args(args).timeout(PATIENCE);
    clean(&mut command, &home.outside(""));
    with(&mut command);
    let output = command.output().expect("the command starts");
    let args: Vec<String> = args.iter().map(|arg| arg.as_ref().to_string_lossy().into_owned()).collect();
    let stdout = String::from_utf8(output.stdout.clone()).expect("what is printed is UTF-8");
    let stderr = String::from_utf8(output.stderr).expect("what is printed is UTF-8");
    let code = output.status.code().unwrap_or_else(|| panic!("hung or killed: {args:?}\n{stderr}"));
    assert!(!stderr.contains("panicked at"), "{args:?}\n{stderr}");
    Out { args, code, bytes: output.stdout, stdout, stderr, json: Value::Null }
}

/// A change that is done: exit 0, a plan, `applied`, one good result a thread.
#[track_caller]
pub fn done<S: AsRef<OsStr>>(home: &Home, args: &[S]) -> Out {
    let out = change(home, args);
    assert_eq!(out.code, 0, "{out:?}");
    check_shape(&out, true);
    out
}

/// A change of several threads that is done to each that it takes.
#[track_caller]
pub fn done_all(home: &Home, args: &[&str]) -> Out {
    let out = change(home, args);
    assert_eq!((out.code, &out.json["applied"]), (0, &Value::Bool(true)), "{out:?}");
    assert!(out.json["results"].as_array().is_some_and(|r| r.iter().all(|r| r["ok"] == true)), "{out:?}");
    out
}

/// The files of a home without our own folder.
pub fn files_of_codex(home: &Home) -> Files {
    files(home).without("threadkeep/")
}

/// A change that is only planned, with `--dry-run`: nothing in the home moves, not even a time. Gives what was planned.
#[track_caller]
pub fn dry(home: &Home, args: &[&str]) -> Out {
    let args = [args, &["--dry-run"]].concat();
    let out = home.run(&args);
    assert_eq!(out.code, 0, "{out:?}");
    check_shape(&out, false);
    // A person sees the same plan, and that it was only one.
    let told = home.human(&args);
    assert!(told.code == 0 && told.stdout.contains("nothing was changed"), "{told:?}");
    out
}

/// A change that is refused or fails, with this exit code and kind, with and without `--dry-run`: nothing moves.
#[track_caller]
pub fn refused<S: AsRef<OsStr>>(home: &Home, args: &[S], code: i32, kind: &str) -> Out {
    let mut dry: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
    dry.insert(1, OsStr::new("--dry-run"));
    for args in [dry.as_slice(), &args.iter().map(AsRef::as_ref).collect::<Vec<_>>()] {
        let before = home.snapshot();
        let out = home.run(args);
        assert_eq!((out.code, out.error()["kind"].as_str()), (code, Some(kind)), "{out:?}");
        assert!(before == home.snapshot(), "{args:?} changed the home");
    }
    home.run(args)
}

/// The shape of `cli-json.md`, exactly.
#[track_caller]
fn check_shape(out: &Out, applied: bool) {
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<BTreeSet<_>>();
    let are = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(keys(&out.json), are(&["format", "plan", "applied", "results"]), "{out:?}");
    assert_eq!(out.json["applied"], applied, "{out:?}");
    let plan = out.json["plan"].as_array().expect("a plan");
    assert!(!plan.is_empty(), "{out:?}");
    for step in plan {
        assert_eq!(keys(step), are(&["thread_id", "action", "path", "because"]), "{out:?}");
        assert!(step.as_object().expect("an object").values().all(|v| v.as_str().is_some_and(|s| !s.is_empty())));
    }
    let results = out.json["results"].as_array().expect("results");
    assert_eq!(results.len(), usize::from(applied), "{out:?}");
    for result in results {
        assert_eq!(keys(result), are(&["thread_id", "ok", "error"]), "{out:?}");
        assert_eq!((&result["ok"], &result["error"]), (&Value::Bool(true), &Value::Null), "{out:?}");
        assert!(plan.iter().any(|step| step["thread_id"] == result["thread_id"]), "{out:?}");
    }
}

/// The actions of a plan with their paths relative to the home.
#[track_caller]
pub fn plan(home: &Home, out: &Out) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let steps = out.json["plan"].as_array().unwrap_or_else(|| panic!("no plan: {out:?}"));
    let root = home.path();
    steps
        .iter()
        .map(|step| {
            let path = text(&step["path"]);
            let path = Path::new(&path).strip_prefix(&root).map_or(path.clone(), |p| p.to_string_lossy().into_owned());
            (text(&step["action"]), path)
        })
        .collect()
}

/// A file as it was: mode, time, bytes.
type Was = (u32, SystemTime, Vec<u8>);

/// Every file of a home.
pub struct Files(BTreeMap<String, Was>, &'static str);

pub fn files(home: &Home) -> Files {
    let mut all = BTreeMap::new();
    gather(&home.path(), &home.path(), &mut all);
    Files(all, "\0")
}

fn gather(root: &Path, dir: &Path, all: &mut BTreeMap<String, Was>) {
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        let meta = fs::symlink_metadata(&path).expect("a file that stays");
        let rel = path.strip_prefix(root).expect("below").to_string_lossy().into_owned();
        if meta.is_dir() {
            gather(root, &path, all);
        } else {
            // Reading a database here would take away the locks that this process holds on it.
            let read = meta.is_file() && !rel.contains(".sqlite");
            let bytes = if read { fs::read(&path).expect("the file") } else { vec![] };
            all.insert(rel, (meta.permissions().mode() & 0o777, meta.modified().expect("a time"), bytes));
        }
    }
}

impl Files {
    /// Leaves a folder out, now and later.
    pub fn without(mut self, folder: &'static str) -> Files {
        self.0.retain(|name, _| !name.starts_with(folder));
        Files(self.0, folder)
    }

    /// The names of files that were made since, without those that are always allowed.
    #[track_caller]
    pub fn made(&self, home: &Home) -> Vec<String> {
        let now = files(home);
        let ours = |f: &str| ALLOWED.contains(&f) || f.starts_with(self.1);
        now.0.keys().filter(|f| !self.0.contains_key(*f) && !ours(f)).cloned().collect()
    }

    /// The names of files that are not as they were, or gone. A database is compared by what it holds elsewhere.
    #[track_caller]
    pub fn changed(&self, home: &Home) -> Vec<String> {
        let now = files(home);
        let same = |name: &str, was: &Was| now.0.get(name).is_some_and(|is| is == was);
        let not_told = |name: &str| ALLOWED.contains(&name) || name.contains(".sqlite");
        self.0.iter().filter(|(name, was)| !not_told(name) && !same(name, was)).map(|(name, _)| name.clone()).collect()
    }
}

/// Everything that a database holds, a row a line; opened without writing to it.
#[track_caller]
pub fn dump(path: &Path) -> Vec<String> {
    let copy = tempfile::tempdir().expect("a folder");
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", path.display());
        if Path::new(&from).exists() {
            fs::copy(&from, copy.path().join(format!("copy{suffix}"))).expect("a copy");
        }
    }
    let conn = Connection::open_with_flags(copy.path().join("copy"), OpenFlags::SQLITE_OPEN_READ_WRITE).expect("opens");
    let check: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
    assert_eq!(check, "ok");
    let mut tables = conn.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").expect("tables");
    let tables: Vec<String> =
        tables.query_map([], |row| row.get(0)).expect("tables").map(|name| name.expect("a name")).collect();
    let mut all = Vec::new();
    for table in tables {
        let mut rows = conn.prepare(&format!("SELECT * FROM {table} ORDER BY 1")).expect("a table");
        let names: Vec<String> = rows.column_names().map(str::to_owned).collect();
        let mut rows = rows.query([]).expect("rows");
        while let Some(row) = rows.next().expect("a row") {
            for (i, name) in names.iter().enumerate() {
                let cell: Cell = row.get(i).expect("a cell");
                let key: Cell = row.get(0).expect("a key");
                all.push(format!("{table} {key:?} {name} = {cell:?}"));
            }
        }
    }
    all
}

/// The cells of a database that differ: `(was, is)`.
#[track_caller]
pub fn cells_changed(before: &[String], path: &Path) -> Vec<(String, String)> {
    let after = dump(path);
    assert_eq!(before.len(), after.len(), "no row and no table is made or removed");
    before.iter().zip(&after).filter(|(was, is)| was != is).map(|(was, is)| (was.clone(), is.clone())).collect()
}

/// The lines of the name index, as (id, name).
#[track_caller]
pub fn index_lines(home: &Home) -> Vec<(String, String)> {
    let bytes = fs::read(home.file("session_index.jsonl")).unwrap_or_default();
    let parse = |line: &[u8]| serde_json::from_slice::<Value>(line).ok();
    let text = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
    bytes
        .split(|b| *b == b'\n')
        .filter_map(|line| parse(line).and_then(|v| Some((text(&v, "id")?, text(&v, "thread_name")?))))
        .collect()
}

/// Waits for a command, looking at the most memory that it used, in kB. Seen from outside, so it may miss the very last
/// moment.
#[cfg(target_os = "linux")]
pub fn watch(child: &mut std::process::Child) -> (u64, std::process::ExitStatus) {
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    loop {
        if let Some(code) = child.try_wait().expect("a child") {
            return (peak, code);
        }
        let told = std::fs::read_to_string(&status).unwrap_or_default();
        let line = told.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
        peak = peak.max(line.split_whitespace().next().and_then(|kb| kb.parse().ok()).unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
