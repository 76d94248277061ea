//! The units of a rollout's file.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use threadkeep_rollout::block::{Block, BlockReader};
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_rollout::source::{Follow, Stream, open_file, open_stream};

use super::unit::{Unit, UnitBuilder};

/// From where on a rollout is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFrom {
    /// All of it.
    Start,
    /// From this byte of the decompressed stream on, which is the end of a unit.
    Offset(u64),
}

/// What was read of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadUnits {
    /// Its units.
    pub units: Vec<Unit>,
    /// Where the decompressed rollout ends. What stands between the last unit and this is in no unit.
    pub end: u64,
}

/// Reads a rollout and makes its units. `buffer` is used again from file to file.
///
/// A file of the TypeScript command is one JSON text: its units say between which offsets its items begin, and it is
/// read from its start whatever `from` says.
///
/// # Errors
///
/// The file cannot be opened or read to its end. It has no units then: what could be read of it must be scanned, and
/// told to be incomplete.
pub fn read_units(
    path: &Path,
    form: Form,
    follow: Follow,
    from: ReadFrom,
    builder: &mut UnitBuilder,
    buffer: &mut Vec<u8>,
) -> io::Result<ReadUnits> {
    let start = match from {
        ReadFrom::Offset(offset) if form != Form::Json => offset,
        ReadFrom::Offset(_) | ReadFrom::Start => 0,
    };
    builder.begin(start);
    if form == Form::Json {
        let mut lines = LineReader::open(path, form, follow, BUFFER)?;
        while let Some(line) = lines.next_line() {
            builder.record(line.offset, line.bytes, 0);
        }
        return match lines.error() {
            Some(e) => Err(again(e)),
            None => {
                let units = builder.finish();
                let end = units.last().map_or(0, |u| u.end);
                Ok(ReadUnits { units, end })
            }
        };
    }
    let stream = match form {
        Form::Plain if start > 0 => {
            let mut file = open_file(path, follow)?;
            file.seek(SeekFrom::Start(start))?;
            Box::new(file) as Stream
        }
        _ => {
            let mut stream = open_stream(path, form, follow)?;
            io::copy(&mut (&mut stream).take(start), &mut io::sink())?;
            stream
        }
    };
    if buffer.len() < BUFFER {
        buffer.resize(BUFFER, 0);
    }
    let mut blocks = BlockReader::with_buffer(stream, std::mem::take(buffer)).at(start);
    let mut end = start;
    while let Some(block) = blocks.next_block() {
        match block {
            Block::Lines(range) => {
                end = blocks.offset(range.end);
                builder.lines(blocks.offset(range.start), blocks.bytes(range));
            }
            Block::LongHead(range) => {
                let offset = blocks.offset(range.start);
                // A long line that is still being written is no record yet.
                let (length, whole) = blocks.stream_long(|_| {});
                end = offset + length + u64::from(whole);
                if whole {
                    builder.long_record(offset, length + 1);
                }
            }
        }
    }
    let error = blocks.error().map(again);
    *buffer = blocks.into_buffer();
    match error {
        Some(e) => Err(e),
        None => Ok(ReadUnits { units: builder.finish(), end }),
    }
}

/// The reader keeps its error.
fn again(e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), e.to_string())
}
