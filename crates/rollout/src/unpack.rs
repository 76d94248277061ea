//! Writing a compressed rollout out again, before it is appended to (`thread-store.md` 2.1).
//!
//! What a crash may leave: a temporary file beside it (never named like a rollout), or both forms with the same
//! records. At no point is neither there.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::seam::{Disk, DiskFile, OpenMode};

/// Why a rollout was not written out.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {}: {source}", path.display())]
pub struct UnpackError {
    /// What was tried.
    pub what: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Writes `packed` (`….jsonl.zst`) out to its plain form and removes it. A plain file that is there already stays and
/// counts. Returns the plain path.
pub fn unpack(disk: &dyn Disk, packed: &Path) -> Result<PathBuf, UnpackError> {
    let plain = packed.with_extension("");
    let failed = |what: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| UnpackError { what, path, source }
    };
    let folder = packed.parent().unwrap_or(Path::new("")).to_owned();
    match disk.open(&plain, OpenMode::Existing) {
        Ok(_) => return Ok(plain),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed("open", &plain)(e)),
    }
    let mut name = plain.file_name().unwrap_or_default().to_owned();
    name.push(format!(".decompress.{}.tmp", std::process::id()));
    let temporary = folder.join(name);
    let source = disk.open(packed, OpenMode::Existing).map_err(failed("open", packed))?;
    {
        let mut target = disk.open(&temporary, OpenMode::Any).map_err(failed("make", &temporary))?;
        target.set_size(0).map_err(failed("empty", &temporary))?;
        let mut from =
            zstd::stream::read::Decoder::new(Stream { file: &*source, at: 0 }).map_err(failed("decompress", packed))?;
        let mut part = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            let n = match from.read(&mut part) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    // The half-written form is of no use to anyone.
                    let _ = disk.remove(&temporary);
                    return Err(failed("decompress", packed)(e));
                }
            };
            target.write_all_at(&part[..n], at).map_err(failed("write", &temporary))?;
            at += n as u64;
        }
        target.sync_data().map_err(failed("make durable", &temporary))?;
    }
    match disk.link(&temporary, &plain) {
        Ok(()) => {}
        // Someone else wrote it out meanwhile.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(failed("link", &plain)(e)),
    }
    disk.sync_dir(&folder).map_err(failed("make durable", &folder))?;
    disk.remove(&temporary).map_err(failed("remove", &temporary))?;
    disk.remove(packed).map_err(failed("remove", packed))?;
    disk.sync_dir(&folder).map_err(failed("make durable", &folder))?;
    Ok(plain)
}

struct Stream<'f> {
    file: &'f dyn DiskFile,
    at: u64,
}

impl Read for Stream<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(into, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}
