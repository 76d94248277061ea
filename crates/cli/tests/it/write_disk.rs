//! B85 for `rename` and `fork`: on a full disk they fail, say so, and leave nothing half done.
//!
//! The disk is a small `tmpfs`. Where that cannot be mounted the test says so and does nothing.

#![cfg(target_os = "linux")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    home::Home,
    log::{Log, Shape, t},
    write_run::{change, done, files, index_lines},
};

const AT: &str = "2026-03-01T10:00:00Z";

/// A disk of half a megabyte at the home's place. Dropping it takes it away again.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"]).arg(at).output();
        match output {
            Ok(output) if output.status.success() => return Some(Self(at.to_owned())),
            Ok(output) => eprintln!("SKIPPED: no tmpfs here: {}", String::from_utf8_lossy(&output.stderr).trim()),
            Err(e) => eprintln!("SKIPPED: no tmpfs here: {e}"),
        }
        None
    }

    /// Takes all room but some.
    fn fill(&self, left: u64) {
        let mut file = OpenOptions::new().create(true).append(true).open(self.0.join("balloon")).expect("the balloon");
        while file.write_all(&[0; 4_096]).is_ok() {}
        let size = file.metadata().expect("its size").len();
        file.set_len(size.saturating_sub(left)).expect("room");
    }

    fn free(&self) {
        fs::write(self.0.join("balloon"), "").expect("room");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn b85_a_full_disk_leaves_no_half_of_a_change() {
    for shape in [Shape::Legacy, Shape::Paginated] {
        let home = Home::new();
        let Some(disk) = SmallDisk::mount(&home.path()) else { return };
        let mut log = Log::shaped(shape, &t(1), AT).meta();
        for n in 0..40 {
            log = log.task_started().user(&format!("question {n}")).out("c", &"y".repeat(2 << 10)).task_complete("x");
        }
        home.put(&log);
        // The name index ends exactly at a page, so that one more byte needs another.
        let line = format!("{{\"id\":\"{}\",\"thread_name\":\"kept\",\"updated_at\":\"{AT}\"}}\n", t(1));
        home.write("session_index.jsonl", format!("{}\n{line}", " ".repeat(4_095 - line.len())));
        // What both commands make once, and what is allowed to stay.
        done(&home, &["fork", &t(1), "--before-turn", "1", "--name", "first"]);
        let index = fs::read(home.file("session_index.jsonl")).expect("the index");
        let index = [&index[..], &vec![b' '; 8_191 - index.len()], b"\n"].concat();
        home.write("session_index.jsonl", &index);
        for left in [0, 4_096, 16_384] {
            disk.free();
            disk.fill(left);
            let (were, names) = (files(&home), index_lines(&home));
            // A fork by reference is small; a copy does not fit.
            if shape == Shape::Legacy || left == 0 {
                let out = change(&home, &["fork", &t(1)]);
                assert_eq!((out.code, out.error()["kind"].as_str()), (5, Some("failed")), "{shape:?} {left} {out:?}");
                assert!(out.stderr.contains("sessions/"), "it names the file: {out:?}");
                assert!(were.made(&home).is_empty(), "{shape:?} {left}: {:?}", were.made(&home));
            }
            if left == 0 {
                let out = change(&home, &["rename", &t(1), "new"]);
                assert_eq!((out.code, out.error()["kind"].as_str()), (5, Some("failed")), "{out:?}");
                assert!(out.stderr.contains("session_index.jsonl"), "it names the file: {out:?}");
                assert_eq!(index_lines(&home), names);
            }
            // The time of the name index moves with the try.
            assert!(fs::read(home.file("session_index.jsonl")).expect("it") == index, "{shape:?} {left}");
            let others = were.changed(&home).into_iter().filter(|f| f != "session_index.jsonl").collect::<Vec<_>>();
            assert!(others.is_empty(), "{shape:?} {left}: {others:?}");
        }
        disk.free();
        done(&home, &["rename", &t(1), "new"]);
        let out = done(&home, &["fork", "new"]);
        let fork = out.json["results"][0]["thread_id"].as_str().expect("an id");
        assert_eq!(home.show(&[fork]).json["thread"]["turns"], home.show(&["new"]).json["thread"]["turns"]);
    }
}
