//! Why a thread is where it is, or is not: what was looked at, what each source says, what hides it, what is damaged.

use std::path::{Path, PathBuf};

use serde::Serialize;
use threadkeep_record::ThreadId;
use threadkeep_record::damage::DamageReason;
use threadkeep_record::fold::Check;
use threadkeep_rollout::facts::{Depth, Observer};
use threadkeep_rollout::name::RolloutName;
use threadkeep_store::thread::{DamageReport, Thread};

use crate::catalog::Catalog;
use crate::list::{LocalStore, add_names};
use crate::lookup::{LookupError, OpenThread, find, row_by_id};
use crate::row::{self, Row, shown};

mod hidden;
mod missing;
mod places;
mod sources;

pub use hidden::HiddenBy;
pub use missing::{FolderLook, LookedAt, Mention, NameIndexLook, Similar, Trashed, UnreadableFolder};
pub use places::{LineageStep, PlaceReport, WhyDamage};
pub use sources::{CodexStateSays, Disagreement, FilesSay, IndexSays, NameIndexSays, Sources};

/// How much is told.
#[derive(Debug, Clone, Copy)]
pub struct WhyOptions {
    /// Damaged places that are told one by one, for each file and in all; the rest is counted.
    pub damage_shown: usize,
}

impl Default for WhyOptions {
    fn default() -> Self {
        Self { damage_shown: 100 }
    }
}

/// All there is to say of one thread.
#[derive(Debug, Serialize)]
pub struct Why {
    /// What was asked for.
    pub query: String,
    /// Whether a file of the thread is there.
    pub found: bool,
    /// The home it is in.
    pub home: Option<String>,
    /// The thread as a list would show it; also where only a row of Codex's database is left of it.
    pub thread: Option<Thread>,
    /// Its files, and paths where one should be.
    pub places: Vec<PlaceReport>,
    /// The parts of its history, oldest first.
    pub lineage: Vec<LineageStep>,
    /// What each source says of it.
    pub sources: Sources,
    /// Where sources say different things, and which of them counts.
    pub disagreements: Vec<Disagreement>,
    /// Why the default list leaves it out; all reasons that apply.
    pub hidden_by: Vec<HiddenBy>,
    /// All that the default list leaves threads out by.
    pub list_filters: [&'static str; 4],
    /// Damaged places, the first of them.
    pub damage: Vec<WhyDamage>,
    /// Damaged places in all.
    pub damage_total: u64,
    /// What was looked at, home by home.
    pub looked_at: Vec<LookedAt>,
    /// What the trash holds of it, newest first.
    pub trash: Vec<Trashed>,
    /// Where no file of the thread is there: others in the home whose name holds its id.
    pub similar: Vec<Similar>,
    /// Where no file of the thread is there: threads that still speak of it.
    pub mentions: Vec<Mention>,
    /// What a person should know.
    pub notes: Vec<String>,
}

impl LocalStore {
    /// Tells all there is to say of the thread that a query means, or of why there is none. Reads its files whole,
    /// one after the other, and never holds more of one than a record.
    ///
    /// # Errors
    ///
    /// A query that fits several threads, and a path that is there and is no file. A thread that is not there is an
    /// answer.
    pub fn why(&self, query: &str, options: WhyOptions) -> Result<Why, LookupError> {
        let catalogs = self.catalogs();
        let mut moved_from = None;
        let found = match find(&catalogs, query, Depth::Head) {
            Err(LookupError::Path { path, source }) if source.kind() == std::io::ErrorKind::NotFound => {
                // A file that was moved is still known by the id in its name.
                let by_name = id_in(&path).and_then(|id| row_by_id(&catalogs, id, Depth::Head).ok());
                moved_from = by_name.as_ref().map(|_| path.clone());
                by_name.ok_or(LookupError::Path { path, source })
            }
            other => other,
        };
        match found {
            Ok((home, row)) => Ok(there(catalogs, home, row, query, moved_from, options)),
            Err(LookupError::NotFound { dangling, .. }) => {
                Ok(missing::not_there(&catalogs, query, ThreadId::parse(query.trim()).ok(), &dangling))
            }
            Err(LookupError::Gone { id, .. }) => Ok(missing::not_there(&catalogs, query, Some(id), &[])),
            Err(LookupError::Path { path, source }) if source.kind() == std::io::ErrorKind::NotFound => {
                let mut why = missing::not_there(&catalogs, query, id_in(&path), &[]);
                why.places.insert(0, PlaceReport::missing(shown(&path), "the path that was asked for"));
                Ok(why)
            }
            Err(other) => Err(other),
        }
    }
}

/// The id in a rollout's file name.
fn id_in(path: &Path) -> Option<ThreadId> {
    RolloutName::parse(&path.file_name()?.to_string_lossy())?.id
}

/// Keeps more damaged places than a list shows.
struct Keeping(usize);

impl Observer for Keeping {
    fn damage_kept(&self) -> usize {
        self.0
    }
}

fn there(
    catalogs: Vec<Catalog>,
    home: usize,
    found: Row,
    query: &str,
    moved_from: Option<PathBuf>,
    options: WhyOptions,
) -> Why {
    let depth = Depth::Whole(Check::Whole);
    let catalog = &catalogs[home];
    let name_id = found.members.first().and_then(|m| m.entry.name.id);
    let mut keeping = Keeping(options.damage_shown.max(1));
    let members = found.members.iter().map(|m| row::member_observed(catalog, &m.entry, depth, &mut keeping)).collect();
    let row = row::build(catalog, name_id, members, depth);
    // What only the files say, before the other sources are joined to it.
    let files = row.thread.clone();
    let mut rows = [(home, row)];
    add_names(&catalogs, &mut rows);
    let [(_, row)] = rows;
    let head = row.assembly.as_ref().map_or(0, |a| a.head);
    let history = row::history(catalog, row.thread.id, &row.members, head);
    let mut open = OpenThread { catalogs, home, row, history };
    open.row.thread.children = open.children();
    let OpenThread { catalogs, row, history, .. } = open;
    let catalog = &catalogs[home];

    let mut report = match &row.assembly {
        Some(assembly) => row::damage(&row.members, assembly, name_id),
        None => DamageReport::default(),
    };
    if let Some(head) = row.members.get(head) {
        history.missing.iter().for_each(|reason| row::note(&mut report, &head.entry.path(), reason));
    }
    let mut damage = places::Damages::of(report, row.thread.id);
    for span in &history.spans {
        damage.add_span(span, options.damage_shown);
    }
    let mut places = places::of(&row, &damage);
    if let Some(path) = moved_from {
        places.push(PlaceReport::missing(shown(&path), "the path that was asked for; the thread is known by its id"));
    }
    places.extend(places::elsewhere(&catalogs, home, row.thread.id));
    let lineage = places::lineage(catalog, &history);
    let (sources, disagreements) = sources::of(&catalogs, home, &row, &files);
    if let Some(missing) = places::row_without_file(&sources.codex_state) {
        places.push(missing);
    }
    let hidden_by = hidden::by(&catalogs, home, &row, query);
    let looked_at = catalogs.iter().map(missing::looked_at).collect();
    let trash = row.thread.id.map(|id| missing::trashed(&catalogs, id)).unwrap_or_default();
    let notes = notes(&catalogs);
    let (damage, damage_total) = damage.finish(options.damage_shown);
    Why {
        query: query.to_owned(),
        found: true,
        home: Some(shown(catalog.home.path())),
        thread: Some(row.thread),
        places,
        lineage,
        sources,
        disagreements,
        hidden_by,
        list_filters: hidden::kinds().map(|(kind, _)| kind),
        damage,
        damage_total,
        looked_at,
        trash,
        similar: vec![],
        mentions: vec![],
        notes,
    }
}

fn notes(catalogs: &[Catalog]) -> Vec<String> {
    catalogs.iter().flat_map(|c| c.notes.iter().cloned().chain(c.late_notes())).collect()
}

/// Whether a reason says that a file is another form or copy of one that is read, which is no fault of its content.
fn is_copy(reason: &DamageReason) -> bool {
    matches!(reason, DamageReason::Duplicate(_))
}
