//! Random sequences of what a program does with its threads.

use threadkeep_record::HistoryMode;
use threadkeep_rollout::appender::Durability;

use crate::gen_home::rng::Rng;

/// One step. Threads are numbered as they are made; a number is taken modulo their count.
#[derive(Debug, Clone)]
pub enum Step {
    /// A new thread, whose file waits for its first record.
    Create,
    /// Items with padding of these lengths, in one append.
    Append(usize, Vec<usize>),
    Flush(usize),
    Persist(usize),
    /// Flush, and close if that went well.
    Shutdown(usize),
    /// The writer goes without a word, as with its process.
    Kill(usize),
    /// Opens a closed thread again; a compressed one is written out first.
    Resume(usize),
    /// Compresses a closed thread, as Codex does with old ones.
    Compress(usize),
    /// Forks a thread: a copy in so many parts, or a reference in the paginated mode.
    Fork(usize, usize),
    /// Sets a name.
    Name,
}

impl Step {
    pub const KINDS: [&'static str; 10] =
        ["create", "append", "flush", "persist", "shutdown", "kill", "resume", "compress", "fork", "name"];

    /// Index in [`KINDS`](Self::KINDS).
    pub fn kind(&self) -> usize {
        match self {
            Self::Create => 0,
            Self::Append(..) => 1,
            Self::Flush(_) => 2,
            Self::Persist(_) => 3,
            Self::Shutdown(_) => 4,
            Self::Kill(_) => 5,
            Self::Resume(_) => 6,
            Self::Compress(_) => 7,
            Self::Fork(..) => 8,
            Self::Name => 9,
        }
    }
}

/// A sequence of steps under one history mode and durability policy.
#[derive(Debug, Clone)]
pub struct Plan {
    pub mode: HistoryMode,
    pub durability: Durability,
    pub steps: Vec<Step>,
}

impl Plan {
    pub fn random(seed: u64) -> Self {
        let mut rng = Rng::stream(seed, 0);
        // By turns, so that a short sweep has all of them, too.
        let mode = if seed.is_multiple_of(2) { HistoryMode::Legacy } else { HistoryMode::Paginated };
        let policies = [Durability::OnFlush, Durability::EachAppend, Durability::OnFlush, Durability::None];
        let durability = policies[(seed / 2 % 4) as usize];
        let mut steps = vec![Step::Create];
        for _ in 0..rng.range(2, 13) {
            let thread = rng.below(3) as usize;
            match rng.below(20) {
                0..8 => steps.push(Step::Append(thread, lengths(&mut rng))),
                8 | 9 => steps.push(Step::Flush(thread)),
                10 => steps.push(Step::Persist(thread)),
                11 | 12 => steps.extend([Step::Shutdown(thread), Step::Resume(thread)]),
                13 | 14 => steps.extend([Step::Kill(thread), Step::Resume(thread)]),
                15 => steps.extend([Step::Shutdown(thread), Step::Compress(thread), Step::Resume(thread)]),
                16 => steps.push(Step::Fork(thread, rng.range(1, 4) as usize)),
                17 => steps.push(Step::Create),
                18 => steps.push(Step::Name),
                _ => steps.push([Step::Shutdown, Step::Kill, Step::Resume][rng.below(3) as usize](thread)),
            }
        }
        Self { mode, durability, steps }
    }
}

fn lengths(rng: &mut Rng) -> Vec<usize> {
    let length = |rng: &mut Rng| match rng.below(40) {
        0 => rng.below(60_000),
        1..5 => rng.below(6_000),
        _ => rng.below(200),
    };
    (0..rng.range(1, 4)).map(|_| length(rng) as usize).collect()
}
