//! Opening a rollout as a stream of its records' bytes, whatever form it has.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::name::Form;

/// A stream of bytes that can go to another thread.
pub type Stream = Box<dyn Read + Send>;

/// Opens the file for reading. The last component may be a link only where `follow` says so (a path that a person
/// gave); below a home no link is followed.
pub fn open_file(path: &Path, follow: Follow) -> io::Result<File> {
    let file = match follow {
        Follow::Links => File::open(path)?,
        // The walk took only regular files; one call for each of 10,000 files is worth saving.
        Follow::Nothing => return open_nofollow(path),
    };
    let kind = file.metadata()?;
    if !kind.is_file() {
        let what = if kind.is_dir() { "path is a directory" } else { "not a file" };
        return Err(io::Error::other(what));
    }
    Ok(file)
}

/// Whether a link as the last component is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// It is.
    Links,
    /// It is refused.
    Nothing,
}

#[cfg(unix)]
fn open_nofollow(path: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    // NONBLOCK so that a pipe put in a rollout's place cannot hold us; it means nothing for files.
    let fd = open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK, Mode::empty())?;
    Ok(File::from(fd))
}

#[cfg(not(unix))]
fn open_nofollow(path: &Path) -> io::Result<File> {
    if std::fs::symlink_metadata(path)?.file_type().is_symlink() {
        return Err(io::Error::other("a link below the home is not followed"));
    }
    File::open(path)
}

/// The decoded bytes of a rollout: as they are, or out of any number of zstd frames.
pub fn open_stream(path: &Path, form: Form, follow: Follow) -> io::Result<Stream> {
    let file = open_file(path, follow)?;
    Ok(match form {
        Form::Plain | Form::Json => Box::new(file),
        Form::Zstd => Box::new(zstd::stream::read::Decoder::new(file)?),
    })
}
