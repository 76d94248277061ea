//! Threads that were archived or deleted here. The threads they started may have stayed, and are listed as roots then.
//!
//! One id a line, appended; a line that is none is passed over. Without the file those threads are listed as what their
//! headers say: threads that another started.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use threadkeep_record::ThreadId;
use threadkeep_rollout::seam::{Disk, OpenMode};

use super::journal::make_folder;

/// The file, in a home.
pub const FILE: &str = "threadkeep/apart";

/// The threads; none where there is no such file, or it cannot be read.
#[must_use]
pub fn read(home: &Path) -> HashSet<ThreadId> {
    let text = std::fs::read(home.join(FILE)).unwrap_or_default();
    let lines = text.split(|b| *b == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| ThreadId::parse(line.trim()).ok()).collect()
}

/// Adds threads.
///
/// # Errors
///
/// What the system says; then a part of them may be there.
pub fn add(disk: &dyn Disk, home: &Path, ids: &[ThreadId]) -> io::Result<()> {
    make_folder(disk, home, Path::new("threadkeep"))?;
    let mut file = disk.open(&home.join(FILE), OpenMode::Any)?;
    // A line that a crash tore is closed off first.
    let text: String = ids.iter().map(|id| format!("\n{id}\n")).collect();
    let end = file.state()?.size;
    file.write_all_at(text.as_bytes(), end)
}
