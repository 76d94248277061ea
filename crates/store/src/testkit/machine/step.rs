//! What the machine does, one step at a time.

use threadkeep_record::HistoryMode;

/// A step of the machine. It is decoded from bytes, so that whoever makes random steps needs nothing of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Makes a thread.
    Create(u32, HistoryMode),
    /// Appends a whole turn.
    Turn(u32),
    /// Appends a turn that still runs.
    Begin(u32),
    /// Appends only what is not kept.
    Nothing(u32),
    /// Takes turns back.
    RollBack(u32, u64),
    /// Makes durable.
    Flush(u32),
    /// Makes a thread without items.
    Persist(u32),
    /// Closes.
    Shutdown(u32),
    /// Closes without writing.
    Discard(u32),
    /// Continues.
    Resume(u32),
    /// Another process tries to continue it.
    Intrude(u32),
    /// Gives a name, or takes it away.
    Rename(u32, Option<u8>),
    /// Observes something.
    Observe(u32),
    /// Forks one thread into another.
    Fork(u32, u32),
    /// Forks through one of its turns.
    ForkThrough(u32, u32, usize),
    /// Forks before one of its turns.
    ForkBefore(u32, u32, usize),
    /// Takes back one of its turns and what is behind it.
    Revert(u32, usize),
    /// Puts it away.
    Archive(u32),
    /// Takes it out again.
    Unarchive(u32),
    /// Removes it.
    Delete(u32),
    /// The process ends and another begins.
    Reopen,
    /// The clock moves, in either direction.
    Clock(i8),
}

impl Step {
    /// The step that four bytes stand for: what, on which thread, and with what.
    #[must_use]
    pub fn decode([what, on, with, and]: [u8; 4]) -> Self {
        let n = u32::from(on % 4) + 1;
        let other = u32::from(with % 4) + 1;
        match what % 32 {
            0 | 1 => Self::Create(n, if with % 2 == 0 { HistoryMode::Legacy } else { HistoryMode::Paginated }),
            2..=6 => Self::Turn(n),
            7 => Self::Begin(n),
            8 => Self::Nothing(n),
            9 => Self::RollBack(n, u64::from(with % 3)),
            10 => Self::Flush(n),
            11 => Self::Persist(n),
            12 => Self::Shutdown(n),
            13 => Self::Discard(n),
            14 | 15 => Self::Resume(n),
            16 => Self::Intrude(n),
            17 => Self::Rename(n, (with % 4 != 0).then_some(and)),
            18 => Self::Observe(n),
            19 => Self::Fork(n, other),
            20 => Self::ForkThrough(n, other, usize::from(and)),
            21 => Self::ForkBefore(n, other, usize::from(and)),
            22 => Self::Reopen,
            23..=25 => Self::Revert(n, usize::from(and)),
            26 | 27 => Self::Archive(n),
            28 | 29 => Self::Unarchive(n),
            30 => Self::Delete(n),
            _ => Self::Clock(with.cast_signed()),
        }
    }
}
