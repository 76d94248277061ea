//! A short version of `cargo xtask kill`, with real processes.

use std::process::Command;

#[test]
fn what_killed_writers_acknowledged_is_kept() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["kill", "--rounds", "16", "--fights", "2", "--seed", "7"])
        .output()
        .expect("the tool runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("16 writers killed") && out.contains("2 fights"), "{out}");
}
