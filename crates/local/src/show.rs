//! Reading a conversation, turn by turn.

use std::io::{self, Write};

use threadkeep_record::fold::FoldLine;
use threadkeep_rollout::lineage::Role;
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_store::turn_builder::TurnBuilder;
pub use threadkeep_store::turn_builder::{Detail, MAX_TEXT};
use threadkeep_store::turns::Turn;

use crate::lookup::OpenThread;
use crate::row::shown;
use crate::turn_index::{TurnEntry, TurnIndex, TurnIndexer};

impl OpenThread {
    /// The turns of the thread.
    #[must_use]
    pub fn turn_index(&self) -> TurnIndex {
        TurnIndex::build(&self.history)
    }

    /// Reads the turns at the given places of the index, in order, handing each to `sink` until it returns false.
    pub fn read_turns(&self, index: &TurnIndex, wanted: &[usize], detail: Detail, sink: &mut dyn FnMut(Turn) -> bool) {
        let mut reader = None;
        for place in wanted {
            let Some(entry) = index.turns.get(*place) else { continue };
            let next = index.turns.get(place + 1);
            if !sink(self.read_turn(index, entry, next, detail, &mut reader)) {
                return;
            }
        }
    }

    /// Reads all turns in order, handing out the first ones while the rest is not read yet.
    pub fn stream_turns(&self, detail: Detail, sink: &mut dyn FnMut(Turn) -> bool) {
        const STEP: usize = 32;
        let mut indexer = TurnIndexer::new(&self.history);
        let mut given = 0;
        loop {
            // A turn can be given once the next one has begun.
            indexer.run(given + STEP + 1);
            let known = indexer.index.turns.len() - usize::from(!indexer.done && !indexer.index.turns.is_empty());
            let wanted: Vec<usize> = (given..known).collect();
            let mut stopped = false;
            self.read_turns(&indexer.index, &wanted, detail, &mut |turn| {
                stopped = !sink(turn);
                !stopped
            });
            given = known;
            if indexer.done || stopped {
                return;
            }
        }
    }

    /// Reads one turn. `reader` is what the turn before left: of turns that follow each other each line is read once,
    /// which matters where a file cannot be entered in the middle.
    fn read_turn(
        &self,
        index: &TurnIndex,
        entry: &TurnEntry,
        next: Option<&TurnEntry>,
        detail: Detail,
        reader: &mut Option<Reader>,
    ) -> Turn {
        let mut builder = TurnBuilder::new(index.accounts, detail);
        let stop = next.map(|n| (n.span, n.offset)).or(index.end);
        for (i, span) in self.history.spans.iter().enumerate().skip(entry.span) {
            if stop.is_some_and(|(last, _)| last < i) {
                break;
            }
            let (offset, line) = if i == entry.span { (entry.offset, entry.line) } else { (0, 1) };
            let left = reader.take().filter(|r| (r.span, r.offset) == (i, offset)).map(|r| r.lines);
            let open = || LineReader::open_at(&span.path, span.form, span.follow, BUFFER, offset, line).ok();
            let Some(mut lines) = left.or_else(open) else { continue };
            let shown = shown(&span.shown);
            while let Some(line) = lines.next_line() {
                if span.is_past(&line) {
                    break;
                }
                if stop.is_some_and(|(last, end)| last == i && line.offset >= end) {
                    let (offset, long) = (line.offset, line.long);
                    if !long {
                        lines.step_back();
                        *reader = Some(Reader { span: i, offset, lines });
                    }
                    break;
                }
                let mut line = FoldLine::from(line);
                if !index.counted {
                    line.number = 0;
                }
                builder.line(&line, &shown);
            }
        }
        Turn {
            id: entry.id.clone().unwrap_or_else(|| format!("rollout-{}", entry.record)),
            number: index.counted.then_some(entry.number),
            status: entry.status,
            started_at: entry.started_at,
            completed_at: entry.completed_at,
            items: builder.finish(),
        }
    }

    /// Writes the exact bytes of the thread's own files, oldest part first.
    pub fn write_raw(&self, out: &mut dyn Write) -> io::Result<()> {
        let Some(assembly) = &self.row.assembly else { return Ok(()) };
        let catalog = &self.catalogs[self.home];
        let mut own: Vec<usize> = (0..self.row.members.len()).filter(|i| assembly.roles[*i] != Role::Copy).collect();
        own.sort_by_key(|i| {
            let h = self.row.members[*i].facts.header.as_ref();
            (assembly.roles[*i] == Role::Head, h.and_then(|h| h.record_time))
        });
        for i in own {
            let entry = &self.row.members[i].entry;
            let mut stream = threadkeep_rollout::source::open_stream(
                &entry.path_in(catalog.home.path()),
                entry.name.form,
                crate::row::follow(entry),
            )?;
            io::copy(&mut stream, out)?;
        }
        Ok(())
    }
}

/// An open file, at the beginning of a turn.
struct Reader {
    span: usize,
    offset: u64,
    lines: LineReader,
}
