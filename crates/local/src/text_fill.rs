//! Reading what was said into the text hint, newest first, as long as there is time.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use threadkeep_index::Index;
use threadkeep_index::text::{MAX_UNITS, ReadFrom, ReadUnits, Segment, SegmentWriter, Unit, UnitBuilder, read_units};
use threadkeep_index::texts::{NewSegment, TextFile, TextFiles};
use threadkeep_rollout::name::Form;
use threadkeep_rollout::par;
use threadkeep_rollout::source::open_file;
use threadkeep_rollout::walk::FileEntry;

use crate::catalog::Catalog;
use crate::fill::{FillError, Until};
use crate::kept::is_racy;
use crate::row::follow;

/// Bytes of files that are read between two looks at the clock.
const BATCH: u64 = 32 << 20;

/// So many segments of less than half their size are put together.
const SMALL_SEGMENTS: usize = 8;

/// Bytes at the beginning of a file, and before the place up to which it is known, that tell whether it was only
/// appended to.
const CHECKED: u64 = 4 << 10;

/// Reads the text of files that are not known yet. The caller is the index's one writer. Returns whether all are known
/// now.
///
/// # Errors
///
/// As [`FillError`] says. Whatever was kept before stays.
pub(crate) fn fill(catalog: &Catalog, index: &Index, until: Until) -> Result<bool, FillError> {
    if !index.texts_are_sound()? {
        // What cannot be asked is read again from the files.
        index.forget_texts()?;
    }
    let known = index.text_files()?;
    let files: Vec<(&FileEntry, u64)> = catalog.files.iter().map(|f| (f, f.print())).collect();
    let mut todo: Vec<(&FileEntry, u64)> = files
        .iter()
        .copied()
        .filter(|(f, print)| f.problem.is_none() && known.get(*print).is_none() && !is_racy(f, catalog.looked_ns))
        .collect();
    if todo.is_empty() && (!catalog.complete || known.len() <= catalog.files.len()) {
        return Ok(true);
    }
    todo.sort_unstable_by_key(|(f, _)| std::cmp::Reverse(f.mtime_ns));
    let mut filler = Filler {
        catalog,
        index,
        known: &known,
        next: index.next_text_owner()?,
        alive: files.iter().map(|(_, print)| *print).collect(),
        writer: SegmentWriter::new(),
        waiting: Vec::new(),
    };
    let mut rest = todo.as_slice();
    while !rest.is_empty() && !until.is_over() {
        let mut bytes = 0;
        let end = rest.iter().position(|(f, _)| {
            bytes += f.size;
            bytes > BATCH
        });
        let (batch, behind) = rest.split_at(end.map_or(rest.len(), |end| end.max(1)));
        rest = behind;
        filler.batch(batch)?;
    }
    filler.flush()?;
    if rest.is_empty() && catalog.complete {
        forget_gone(index, &filler.alive)?;
    }
    merge(index)?;
    Ok(rest.is_empty())
}

/// Forgets files that are not there any more.
fn forget_gone(index: &Index, here: &HashSet<u64>) -> Result<(), FillError> {
    let gone: Vec<u64> = index.text_files()?.iter().filter(|f| !here.contains(&f.print)).map(|f| f.owner).collect();
    if !gone.is_empty() {
        index.keep_text(None, &[], &gone)?;
    }
    Ok(())
}

struct Filler<'c> {
    catalog: &'c Catalog,
    index: &'c Index,
    /// What was known before.
    known: &'c TextFiles,
    next: u64,
    /// Prints of the files that are there.
    alive: HashSet<u64>,
    writer: SegmentWriter,
    /// Files that were read whole and are kept with the segment under way, which has the last of their units.
    waiting: Vec<TextFile>,
}

/// What was read of a file.
struct FileUnits {
    file: TextFile,
    units: Vec<Unit>,
}

impl Filler<'_> {
    fn batch(&mut self, files: &[(&FileEntry, u64)]) -> Result<(), FillError> {
        let start = || (UnitBuilder::new(), Vec::new());
        let read = par::map_with(files, start, |(builder, buffer), (f, print)| self.read(f, *print, builder, buffer));
        for FileUnits { mut file, units } in read.into_iter().flatten() {
            if file.owner == 0 {
                file.owner = self.next;
                self.next += 1;
            }
            for unit in units {
                if let Err(unit) = self.writer.push(file.owner, unit) {
                    self.finish_segment()?;
                    // An empty segment takes any unit.
                    let _ = self.writer.push(file.owner, unit);
                }
            }
            self.waiting.push(file);
        }
        Ok(())
    }

    /// `None` for a file that cannot be read: it is scanned each time, which also says why.
    fn read(&self, f: &FileEntry, print: u64, builder: &mut UnitBuilder, buffer: &mut Vec<u8>) -> Option<FileUnits> {
        let path = f.path_in(self.catalog.home.path());
        // A second name of a file is another file here.
        let before = grown(self.known, f, &path, |b| !self.alive.contains(&b.print));
        let from = before.as_ref().map_or(ReadFrom::Start, |b| ReadFrom::Offset(b.read_to));
        let ReadUnits { units, end } = read_units(&path, f.name.form, follow(f), from, builder, buffer).ok()?;
        let known_to = before.as_ref().map_or(0, |b| b.read_to);
        let read_to = units.last().map_or(known_to, |u| u.end);
        let check = match f.name.form {
            Form::Plain => check(&path, f, read_to)?,
            Form::Zstd | Form::Json => u64::from(end == read_to),
        };
        let owner = before.map_or(0, |b| b.owner);
        Some(FileUnits { file: TextFile { owner, print, identity: f.identity, read_to, check }, units })
    }

    fn finish_segment(&mut self) -> Result<(), FillError> {
        let writer = std::mem::take(&mut self.writer);
        let units = writer.len();
        let bytes = writer.finish();
        // The file that is being added is not among those waiting.
        let files = std::mem::take(&mut self.waiting);
        Ok(self.index.keep_text(Some(NewSegment { bytes: &bytes, units }), &files, &[])?)
    }

    fn flush(&mut self) -> Result<(), FillError> {
        if self.writer.is_empty() {
            return Ok(self.index.keep_text(None, &self.waiting, &[])?);
        }
        self.finish_segment()
    }
}

/// What is known of a plain file that was only appended to since, among what passes.
pub(crate) fn grown(
    known: &TextFiles,
    f: &FileEntry,
    path: &Path,
    passes: impl Fn(&TextFile) -> bool,
) -> Option<TextFile> {
    if f.name.form != Form::Plain || f.identity == (0, 0) {
        return None;
    }
    let same = |b: &TextFile| passes(b) && b.read_to <= f.size && check(path, f, b.read_to) == Some(b.check);
    known.of(f.identity).filter(|b| same(b)).max_by_key(|b| b.read_to).cloned()
}

/// A hash of the beginning of a file and of the bytes before a place in it.
fn check(path: &Path, f: &FileEntry, at: u64) -> Option<u64> {
    let mut file = open_file(path, follow(f)).ok()?;
    let mut bytes = vec![0; usize::try_from(CHECKED.min(at)).ok()?];
    file.read_exact(&mut bytes).ok()?;
    let mut last = vec![0; bytes.len()];
    seek(&mut file, at - last.len() as u64)?;
    file.read_exact(&mut last).ok()?;
    bytes.extend_from_slice(&last);
    Some(threadkeep_rollout::walk::hash(&bytes))
}

fn seek(file: &mut File, to: u64) -> Option<u64> {
    std::io::Seek::seek(file, std::io::SeekFrom::Start(to)).ok()
}

/// Puts small segments together, without the units of files that are forgotten.
fn merge(index: &Index) -> Result<(), FillError> {
    let small = index.small_text_segments(MAX_UNITS / 2)?;
    if small.len() <= SMALL_SEGMENTS {
        return Ok(());
    }
    let owners: HashSet<u64> = index.text_files()?.iter().map(|f| f.owner).collect();
    let mut writer = SegmentWriter::new();
    let mut done: Vec<(Vec<u8>, usize)> = Vec::new();
    for (_, bytes) in &small {
        let Ok(units) = Segment::open(bytes).and_then(|s| s.units()) else {
            // A damaged one says nothing any more; all of it is read again.
            return Ok(index.forget_texts()?);
        };
        for (owner, unit) in units.into_iter().filter(|(owner, _)| owners.contains(owner)) {
            if let Err(unit) = writer.push(owner, unit) {
                let full = std::mem::take(&mut writer);
                let units = full.len();
                done.push((full.finish(), units));
                let _ = writer.push(owner, unit);
            }
        }
    }
    if !writer.is_empty() {
        let units = writer.len();
        done.push((writer.finish(), units));
    }
    let old: Vec<i64> = small.into_iter().map(|(number, _)| number).collect();
    let new: Vec<NewSegment<'_>> = done.iter().map(|(bytes, units)| NewSegment { bytes, units: *units }).collect();
    Ok(index.replace_text_segments(&old, &new)?)
}
