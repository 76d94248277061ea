//! What a home holds: threads and bytes, by kind of record, version, source, model and month; what is stored more than
//! once, what is largest, what is damaged.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use threadkeep_record::damage::DamageReason;
use threadkeep_record::fold::Check;
use threadkeep_record::{ThreadId, TokenUsage, UtcMillis, meta};
use threadkeep_rollout::facts::{Depth, Judged};
use threadkeep_rollout::lineage::Member;
use threadkeep_rollout::par;
use threadkeep_rollout::seam::RealDisk;

use crate::catalog::Catalog;
use crate::change::trash;
use crate::list::{Candidate, LocalStore, add_names, candidates};
use crate::row::{self, Row, shown};

mod kinds;
mod repeats;

pub use kinds::KindTally;
pub use repeats::Repeated;

use kinds::Counter;
use repeats::Repeats;

/// How many of the largest threads are told.
const LARGEST: usize = 10;

/// What stands for a fact that a thread does not have.
const NONE: &str = "(none)";

/// What the homes hold. Bytes are bytes on disk, except where it says otherwise.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stats {
    /// Threads that have a file; one that several homes show counts once.
    pub threads: u64,
    /// Those of them whose file stands in the archive.
    pub archived: u64,
    /// Threads of which only a row of Codex's database is left.
    pub without_file: u64,
    /// Rollout files; one that several homes show counts once.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Their bytes as records, decompressed: the sum of `by_kind`.
    pub record_bytes: u64,
    /// Records.
    pub records: u64,
    /// By kind of record.
    pub by_kind: BTreeMap<String, KindTally>,
    /// Bytes of records whose content an earlier file has too.
    pub repeated_bytes: u64,
    /// The same with what is behind it.
    pub repeated: Repeated,
    /// Tokens used, each thread's own, without what a fork repeats.
    pub tokens: TokenUsage,
    /// By the version that made the thread.
    pub by_version: BTreeMap<String, Group>,
    /// By source, in the word that `--source` takes.
    pub by_source: BTreeMap<String, Group>,
    /// By the last model.
    pub by_model: BTreeMap<String, Group>,
    /// By the month, in UTC, in which the thread was created.
    pub by_month: BTreeMap<String, Group>,
    /// The largest threads, the largest first.
    pub largest: Vec<Large>,
    /// What is damaged.
    pub damage: DamageTally,
    /// What the trash takes, beside all of the above.
    pub trash: TrashTally,
    /// Whether every folder could be read.
    pub complete: bool,
    /// What a person should know.
    pub notes: Vec<String>,
}

/// Threads that have something in common.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// How many.
    pub threads: u64,
    /// Bytes of their files on disk.
    pub bytes: u64,
    /// Tokens in all, their own.
    pub tokens: i64,
}

/// A large thread.
#[derive(Debug, Clone, Serialize)]
pub struct Large {
    /// The thread; `None` for a file that names none.
    pub id: Option<ThreadId>,
    /// Name.
    pub name: Option<String>,
    /// What stands for it in a list.
    pub preview: Option<String>,
    /// The file that a writer appends to, relative to the home where under it.
    pub path: String,
    /// Bytes of all its files on disk.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// Records.
    pub records: Option<u64>,
    /// Tokens in all, its own.
    pub tokens: Option<i64>,
    /// Time of the last record.
    pub updated_at: Option<UtcMillis>,
    /// Whether it is archived.
    pub archived: bool,
}

/// How much is damaged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct DamageTally {
    /// Threads with a damaged place.
    pub threads: u64,
    /// Files with one.
    pub files: u64,
    /// Damaged places.
    pub records: u64,
}

/// What the trash takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct TrashTally {
    /// Threads that can be restored.
    pub threads: u64,
    /// Bytes of everything in it, on disk.
    pub bytes: u64,
}

/// What is kept of a thread once its files were read.
struct One {
    home: usize,
    group: usize,
    id: Option<ThreadId>,
    key: String,
    archived: bool,
    bytes: u64,
    tokens: Option<TokenUsage>,
    version: String,
    source: String,
    model: String,
    month: String,
    damaged_files: u64,
    damaged: u64,
    /// The group is a thread of its own, and not one that another home shows too.
    is_thread: bool,
}

impl LocalStore {
    /// Reads every rollout of the homes once, in parallel. Memory follows the number of threads, not their size.
    #[must_use]
    pub fn stats(&self) -> Stats {
        stats(&self.catalogs())
    }
}

fn stats(catalogs: &[Catalog]) -> Stats {
    let listed = candidates(catalogs);
    let own: HashSet<(usize, usize)> = listed.iter().filter_map(|c| group_of(*c)).collect();
    let all: Vec<(usize, usize)> =
        catalogs.iter().enumerate().flat_map(|(home, c)| (0..c.groups.len()).map(move |g| (home, g))).collect();
    let files = Files::of(catalogs);
    let repeats = Repeats::default();
    let total = Mutex::new(Stats::default());
    let read = par::map(&all, |(home, group)| {
        let is_thread = own.contains(&(*home, *group));
        one(catalogs, (*home, *group), is_thread, &files, &repeats, &total)
    });
    let mut stats = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut threads = Vec::with_capacity(read.len());
    for one in read {
        stats.damage.files += one.damaged_files;
        stats.damage.records += one.damaged;
        stats.damage.threads += u64::from(one.damaged > 0);
        if one.is_thread {
            threads.push(one);
        }
    }
    let mut threads = merged(catalogs, threads);
    for one in &threads {
        add_thread(&mut stats, one);
    }
    stats.without_file = without_file(catalogs);
    stats.records = stats.by_kind.values().map(|k| k.records).sum();
    stats.records -= stats.by_kind.get(kinds::DAMAGED).map_or(0, |k| k.records);
    stats.record_bytes = stats.by_kind.values().map(|k| k.bytes).sum();
    stats.repeated = repeats.finish();
    stats.repeated_bytes = stats.repeated.bytes;
    threads.sort_unstable_by(|a, b| (b.bytes, &a.key).cmp(&(a.bytes, &b.key)));
    threads.truncate(LARGEST);
    stats.largest = largest(catalogs, &threads);
    for (threads, bytes) in catalogs.iter().map(|c| trash::size(&RealDisk, c.home.path())) {
        stats.trash.threads += threads;
        stats.trash.bytes += bytes;
    }
    stats.complete = catalogs.iter().all(|c| c.complete);
    stats.notes = catalogs.iter().flat_map(|c| c.notes.iter().cloned().chain(c.late_notes())).collect();
    stats
}

fn group_of(candidate: Candidate) -> Option<(usize, usize)> {
    match candidate {
        Candidate::Group { home, group } => Some((home, group)),
        Candidate::Ghost { .. } => None,
    }
}

fn without_file(catalogs: &[Catalog]) -> u64 {
    let here = |id: &ThreadId| catalogs.iter().any(|c| c.group(*id).is_some());
    let gone: HashSet<ThreadId> =
        catalogs.iter().flat_map(|c| c.ghosts.keys()).filter(|id| !here(id)).copied().collect();
    gone.len() as u64
}

/// The files of all homes in one order: by the time in their names, as they were made.
struct Files {
    /// For each home and file its place in the order; `None` where an earlier home shows the same file.
    ranks: Vec<Vec<Option<u32>>>,
}

impl Files {
    fn of(catalogs: &[Catalog]) -> Self {
        let mut ranks: Vec<Vec<Option<u32>>> = catalogs.iter().map(|c| vec![None; c.files.len()]).collect();
        let mut order: Vec<_> = Vec::new();
        let mut seen: HashSet<(u64, u64)> = HashSet::new();
        for (home, catalog) in catalogs.iter().enumerate() {
            let mut here = Vec::new();
            for (i, file) in catalog.files.iter().enumerate() {
                // Where the system tells no identity, every file is its own.
                let told = catalogs.len() > 1 && file.identity != (0, 0);
                if !told || !seen.contains(&file.identity) {
                    order.push((file.name.stamp, home, file.path(), i));
                }
                here.extend(told.then_some(file.identity));
            }
            // Two names of one file in one home are two files, as everywhere.
            seen.extend(here);
        }
        order.sort_unstable();
        for (rank, (_, home, _, i)) in order.into_iter().enumerate() {
            ranks[home][i] = u32::try_from(rank).ok();
        }
        Self { ranks }
    }
}

/// Reads the files of a group and adds what they hold to the total.
fn one(
    catalogs: &[Catalog],
    (home, group): (usize, usize),
    is_thread: bool,
    files: &Files,
    repeats: &Repeats,
    total: &Mutex<Stats>,
) -> One {
    let catalog = &catalogs[home];
    let depth = Depth::Whole(Check::Whole);
    let mut order = catalog.groups[group].files.to_vec();
    order.sort_by_cached_key(|i| catalog.files[*i as usize].path());
    let mut members: Vec<Member> = Vec::with_capacity(order.len());
    let mut first_here = Vec::with_capacity(order.len());
    for i in order {
        let entry = &catalog.files[i as usize];
        let rank = files.ranks[home][i as usize];
        first_here.push(rank.is_some());
        let Some(rank) = rank else {
            members.push(row::member(catalog, entry, depth));
            continue;
        };
        let mut counter = Counter::new(repeats, rank, entry.name.form);
        let member = row::member_observed(catalog, entry, depth, &mut counter);
        let kinds = counter.finish(entry.size, if member.facts.damaged > 0 { Judged::Doubtful } else { Judged::Sound });
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.files += 1;
        total.bytes += entry.size;
        kinds::add(&mut total.by_kind, kinds);
        members.push(member);
    }
    let row = row::build(catalog, catalog.groups[group].id, members, depth);
    // What an earlier home shows too was counted there.
    let counted = first_here.iter().any(|here| *here);
    summary(home, group, row, is_thread, if counted { Damaged::Counts } else { Damaged::Elsewhere })
}

/// Whether the damage of a group is counted with it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Damaged {
    Counts,
    Elsewhere,
}

fn summary(home: usize, group: usize, row: Row, is_thread: bool, damaged: Damaged) -> One {
    let t = &row.thread;
    let noted = |i: usize| {
        let notes = row.assembly.as_ref().map(|a| a.notes.as_slice()).unwrap_or_default();
        notes.iter().any(|(at, reason)| *at == i && !matches!(reason, DamageReason::BaseMissing(_)))
    };
    let files = row.members.iter().enumerate().filter(|(i, m)| m.facts.damaged > 0 || noted(*i)).count() as u64;
    // Damage that is of no one file (an id that does not fit, a base that is missing) is the head's.
    let files = if files == 0 { u64::from(t.damage.records > 0) } else { files };
    let counts = damaged == Damaged::Counts;
    let source = row.members.iter().any(|m| m.facts.header.is_some()) && t.source.is_some();
    One {
        home,
        group,
        id: t.id,
        archived: t.archived,
        bytes: t.bytes,
        tokens: t.tokens,
        version: t.cli_version.clone().unwrap_or_else(|| NONE.into()),
        source: if source { meta::source_word(t.source.as_ref()) } else { NONE.into() },
        model: t.model.clone().unwrap_or_else(|| NONE.into()),
        month: t.created_at.map_or_else(|| NONE.into(), |c| c.to_string().chars().take(7).collect()),
        damaged_files: if counts { files } else { 0 },
        damaged: if counts { t.damage.records } else { 0 },
        is_thread,
        key: row.key,
    }
}

/// Files whose names hold different ids may be one thread by their headers, as in a list.
fn merged(catalogs: &[Catalog], threads: Vec<One>) -> Vec<One> {
    let mut by_id: HashMap<(usize, ThreadId), usize> = HashMap::new();
    let mut kept: Vec<One> = Vec::with_capacity(threads.len());
    for one in threads {
        let Some(id) = one.id else {
            kept.push(one);
            continue;
        };
        match by_id.get(&(one.home, id)) {
            Some(at) => {
                let first = &mut kept[*at];
                let depth = Depth::Whole(Check::Ends);
                let catalog = &catalogs[one.home];
                let groups = [first.group, one.group];
                let members = groups.iter().flat_map(|g| row::members(catalog, &catalog.groups[*g], depth)).collect();
                let both = row::build(catalog, Some(id), members, depth);
                *first = summary(one.home, first.group, both, true, Damaged::Elsewhere);
            }
            None => {
                by_id.insert((one.home, id), kept.len());
                kept.push(one);
            }
        }
    }
    kept
}

fn add_thread(stats: &mut Stats, one: &One) {
    stats.threads += 1;
    stats.archived += u64::from(one.archived);
    let tokens = one.tokens.unwrap_or_default();
    stats.tokens.input += tokens.input;
    stats.tokens.cached_input += tokens.cached_input;
    stats.tokens.output += tokens.output;
    stats.tokens.reasoning_output += tokens.reasoning_output;
    stats.tokens.total += tokens.total;
    let groups = [
        (&mut stats.by_version, &one.version),
        (&mut stats.by_source, &one.source),
        (&mut stats.by_model, &one.model),
        (&mut stats.by_month, &one.month),
    ];
    for (groups, key) in groups {
        let group = groups.entry(key.clone()).or_default();
        group.threads += 1;
        group.bytes += one.bytes;
        group.tokens += tokens.total;
    }
}

fn largest(catalogs: &[Catalog], threads: &[One]) -> Vec<Large> {
    threads
        .iter()
        .map(|one| {
            let catalog = &catalogs[one.home];
            let mut rows = [(one.home, row::row(catalog, &catalog.groups[one.group], Depth::Whole(Check::Ends)))];
            add_names(catalogs, &mut rows);
            let [(_, row)] = rows;
            let head = row.assembly.as_ref().and_then(|a| row.members.get(a.head));
            Large {
                id: one.id,
                name: row.thread.name.clone(),
                preview: row.thread.preview.clone(),
                path: head.map(|m| shown(&m.entry.path())).unwrap_or_default(),
                bytes: one.bytes,
                files: row.members.len() as u64,
                records: row.thread.records,
                tokens: one.tokens.map(|t| t.total),
                updated_at: row.thread.updated_at,
                archived: one.archived,
            }
        })
        .collect()
}
