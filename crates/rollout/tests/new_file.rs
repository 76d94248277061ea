//! A new file is there whole or not at all, after every crash and every failing call.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use threadkeep_rollout::new_file::NewFile;
use threadkeep_rollout::seam::{Disk, DiskFile, Looked, OpenMode};
use threadkeep_rollout::sim::{Crash, Failure, Lie, SimDisk};

const HOME: &str = "/home";
const PATH: &str = "/home/sessions/2026/11/30/rollout-x.jsonl";

fn contents() -> Vec<u8> {
    (0..5000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect()
}

fn make(disk: &dyn Disk) -> bool {
    NewFile::write(disk, Path::new(PATH), ".new.tmp", Path::new(HOME), &contents()).and_then(NewFile::publish).is_ok()
}

fn crashes() -> impl Iterator<Item = Crash> {
    Crash::ALL.into_iter().chain((0..20).flat_map(|seed| [Crash::InOrder(seed), Crash::AnyOrder(seed)]))
}

#[test]
fn it_is_whole_or_not_there() {
    let failures = [Failure::Clean, Failure::Torn, Failure::Dropped, Failure::Evicted];
    for failure in [None].into_iter().chain(failures.map(Some)) {
        let mut made = 0;
        for at in 0..16 {
            let disk = SimDisk::default();
            if let Some(failure) = failure {
                disk.fail_call(at, failure);
            }
            let done = make(&disk);
            made += usize::from(done);
            for crash in crashes() {
                let image = disk.crashed(crash);
                let found = image.contents(Path::new(PATH));
                assert!(found.as_ref().is_none_or(|f| *f == contents()), "{failure:?} at {at}, {crash:?}: a part");
                assert!(found.is_some() || !done, "{failure:?} at {at}, {crash:?}: it was made and is gone");
            }
            let visible = disk.contents(Path::new(PATH));
            assert_eq!(visible.is_some(), done, "{failure:?} at {at}: what failed has no name");
            if done && failure.is_none() {
                assert_eq!(disk.names(), [Path::new(PATH)], "nothing is left behind");
            }
        }
        assert!(made > 3 && (failure.is_none() || made < 16), "{failure:?}: {made}");
    }
}

#[test]
fn the_power_may_go_at_any_call() {
    for at in 0..16 {
        let disk = SimDisk::default();
        disk.power_off_at(at);
        let done = make(&disk);
        for crash in crashes() {
            let found = disk.crashed(crash).contents(Path::new(PATH));
            assert!(found.as_ref().is_none_or(|f| *f == contents()), "off at {at}, {crash:?}");
            assert!(found.is_some() || !done, "off at {at}, {crash:?}");
        }
    }
}

/// These tests see a disk that does not do what it says.
#[test]
fn a_lying_disk_is_noticed() {
    for lie in [Lie::SyncData, Lie::SyncDir] {
        let disk = SimDisk::default();
        disk.lie(lie);
        assert!(make(&disk));
        let whole = |crash| disk.crashed(crash).contents(Path::new(PATH)).is_some_and(|f| f == contents());
        assert!(!crashes().all(whole), "{lie:?}");
    }
}

#[test]
fn a_file_that_has_the_name_keeps_it() {
    let disk = SimDisk::default();
    disk.put(Path::new(PATH), Some(b"mine"));
    assert!(!make(&disk));
    assert_eq!(disk.contents(Path::new(PATH)).as_deref(), Some(&b"mine"[..]));
    assert_eq!(disk.names(), [Path::new(PATH)]);
    // Neither is another's temporary file touched.
    let disk = SimDisk::default();
    let temporary = Path::new("/home/sessions/2026/11/30/.new.tmp");
    disk.put(temporary, Some(b"mine"));
    assert!(!make(&disk));
    assert_eq!(disk.names(), [temporary]);
}

/// A disk without second names.
#[derive(Debug)]
struct NoLinks(SimDisk);

impl Disk for NoLinks {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn DiskFile>> {
        self.0.open(path, mode)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn link(&self, _: &Path, _: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.rename_new(from, to)
    }
    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.remove_dir(path)
    }
    fn look(&self, path: &Path) -> io::Result<Option<Looked>> {
        self.0.look(path)
    }
    fn names_in(&self, path: &Path) -> io::Result<Vec<OsString>> {
        self.0.names_in(path)
    }
    fn copy_mode(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.copy_mode(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.0.remove(path)
    }
    fn sync_all(&self, path: &Path) -> io::Result<()> {
        self.0.sync_all(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.sync_dir(path)
    }
}

#[test]
fn a_disk_without_links_gets_it_too() {
    let disk = NoLinks(SimDisk::default());
    assert!(make(&disk));
    assert_eq!(disk.0.names(), [Path::new(PATH)]);
    assert!(!make(&disk), "and still nothing is replaced");
    disk.0.put(Path::new(PATH), Some(b"mine"));
    assert!(!make(&disk));
    assert_eq!(disk.0.contents(Path::new(PATH)).as_deref(), Some(&b"mine"[..]));
}
