//! Where a thread is: its files, the parts of its history, and what is damaged in them.

use std::collections::HashSet;

use serde::Serialize;
use threadkeep_record::damage::DamageReason;
use threadkeep_record::fold::{Check, Damage, Fold};
use threadkeep_record::{HistoryBase, ThreadId};
use threadkeep_rollout::facts::{self, Depth};
use threadkeep_rollout::lineage::{History, Role, Span};
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_rollout::walk::Place;
use threadkeep_store::thread::DamageReport;

use super::sources::CodexStateSays;
use crate::catalog::Catalog;
use crate::row::{Row, shown};

/// A file of a thread, or a path where one should be.
#[derive(Debug, Clone, Serialize)]
pub struct PlaceReport {
    /// Path, relative to the home where under it.
    pub path: String,
    /// `healthy`; `compressed` (healthy too); `damaged`; `duplicate` (another file of the thread is read instead);
    /// `empty` (no bytes); `unreadable`; `missing` (no file there).
    pub state: &'static str,
    /// Records; `None` where there is no file to read.
    pub records: Option<u64>,
    /// Bytes on disk.
    pub bytes: Option<u64>,
    /// `head`, `segment` or `copy`.
    pub role: Option<&'static str>,
    /// `plain`, `zstd` or `json`.
    pub kind: Option<&'static str>,
    /// Damaged places in it.
    pub damaged: u64,
    /// The home, where it is another than the thread's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home: Option<String>,
    /// Why it is told.
    pub because: Option<String>,
}

impl PlaceReport {
    /// A path where no file is.
    pub(super) fn missing(path: String, because: &str) -> Self {
        Self {
            path,
            state: "missing",
            records: None,
            bytes: None,
            role: None,
            kind: None,
            damaged: 0,
            home: None,
            because: Some(because.to_owned()),
        }
    }
}

/// A part of a history.
#[derive(Debug, Clone, Serialize)]
pub struct LineageStep {
    /// The thread whose file it is.
    pub thread_id: Option<ThreadId>,
    /// The file; `None` where it is missing.
    pub path: Option<String>,
    /// Records from this ordinal on are not part of it; `None` for the newest part, which goes to its end.
    pub until_ordinal: Option<u64>,
    /// Bytes from here on are not part of it, where the base says so.
    pub until_offset: Option<u64>,
    /// `there` or `missing`.
    pub state: &'static str,
    /// Whether it belongs to another thread.
    pub inherited: bool,
}

/// A damaged place of a thread's history.
#[derive(Debug, Clone, Serialize)]
pub struct WhyDamage {
    /// The file, relative to the home where under it.
    pub path: String,
    /// Line number, from 1; `None` where the file as a whole is meant.
    pub line: Option<u64>,
    /// Offset of the line, in the decompressed file.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
    /// The thread whose file it is.
    pub thread_id: Option<ThreadId>,
}

/// Damage, gathered file by file.
pub(super) struct Damages {
    total: u64,
    first: Vec<WhyDamage>,
}

impl Damages {
    /// That of the thread's own files.
    pub(super) fn of(report: DamageReport, thread_id: Option<ThreadId>) -> Self {
        let first = report
            .first
            .into_iter()
            .map(|d| WhyDamage { path: d.path, line: d.line, offset: d.offset, reason: d.reason, thread_id })
            .collect();
        Self { total: report.records, first }
    }

    /// Adds what a part of the history has beside it: a base that ends too early, and in the files of other threads
    /// what is damaged before the base's end.
    pub(super) fn add_span(&mut self, span: &Span, kept: usize) {
        let Some(end) = span.end else { return };
        let mut fold = Fold::keeping(Check::Whole, if span.inherited { kept } else { 0 });
        let mut passed = false;
        match LineReader::open(&span.path, span.form, span.follow, BUFFER) {
            Err(e) => fold.note(None, 0, DamageReason::Unreadable(e.to_string())),
            Ok(mut lines) => {
                while let Some(line) = lines.next_line() {
                    if span.is_past(&line) {
                        passed = true;
                        break;
                    }
                    fold.line(line.into());
                }
                if let Some(e) = lines.error() {
                    let reason = match span.form {
                        Form::Zstd => DamageReason::Compressed(e.to_string()),
                        Form::Plain | Form::Json => DamageReason::Unreadable(e.to_string()),
                    };
                    fold.note(None, 0, reason);
                }
            }
        }
        if span.inherited {
            self.total += fold.damaged;
            self.first.extend(fold.damage.into_iter().map(|d| entry(span, d)));
        }
        // The records below the end are whole only if the last of them is there.
        if let Some((_, last)) = fold.ordinals
            && !passed
            && last + 1 < end.ordinal
        {
            let reason = DamageReason::BaseMissing(format!(
                "a history goes on behind ordinal {} of this file, which ends with ordinal {last}",
                end.ordinal.saturating_sub(1)
            ));
            self.total += 1;
            self.first.push(entry(span, Damage { line: None, offset: 0, reason }));
        }
    }

    /// Whether a file has any.
    fn has(&self, path: &str) -> bool {
        self.first.iter().any(|d| d.path == path)
    }

    /// The first places, and how many there are.
    pub(super) fn finish(mut self, shown: usize) -> (Vec<WhyDamage>, u64) {
        self.first.truncate(shown);
        (self.first, self.total)
    }
}

fn entry(span: &Span, d: Damage) -> WhyDamage {
    let thread_id = span.thread_id;
    WhyDamage { path: shown(&span.shown), line: d.line, offset: d.offset, reason: d.reason.to_string(), thread_id }
}

/// The files of a row.
pub(super) fn of(row: &Row, damage: &Damages) -> Vec<PlaceReport> {
    let Some(assembly) = &row.assembly else { return vec![] };
    let mut places: Vec<(Role, PlaceReport)> = row
        .members
        .iter()
        .enumerate()
        .map(|(i, m)| {
            let path = shown(&m.entry.path());
            let copy = assembly.notes.iter().find(|(at, reason)| *at == i && super::is_copy(reason));
            let unreadable = m.facts.damage.iter().any(|d| matches!(d.reason, DamageReason::Unreadable(_)));
            let state = match m.entry.name.form {
                _ if unreadable => "unreadable",
                _ if m.entry.size == 0 => "empty",
                _ if m.facts.damaged > 0 => "damaged",
                _ if copy.is_some() => "duplicate",
                _ if damage.has(&path) => "damaged",
                Form::Zstd => "compressed",
                Form::Plain | Form::Json => "healthy",
            };
            let (role, form) = (assembly.roles[i], m.entry.name.form);
            let report = PlaceReport {
                path,
                state,
                records: m.facts.whole.as_ref().map(|w| w.records).filter(|_| !unreadable),
                bytes: Some(m.entry.size),
                role: Some(match role {
                    Role::Head => "head",
                    Role::Segment => "segment",
                    Role::Copy => "copy",
                }),
                kind: Some(match form {
                    Form::Plain => "plain",
                    Form::Zstd => "zstd",
                    Form::Json => "json",
                }),
                damaged: m.facts.damaged,
                home: None,
                because: copy.map(|(_, reason)| reason.to_string()),
            };
            (role, report)
        })
        .collect();
    places.sort_by(|(a, x), (b, y)| (a, &x.path).cmp(&(b, &y.path)));
    places.into_iter().map(|(_, place)| place).collect()
}

/// Files of the same thread in other homes; a file that both homes show is told once.
pub(super) fn elsewhere(catalogs: &[Catalog], home: usize, id: Option<ThreadId>) -> Vec<PlaceReport> {
    let Some(id) = id else { return vec![] };
    let files = |c: &Catalog| c.group(id).map(|g| g.files.to_vec()).unwrap_or_default();
    let own: HashSet<(u64, u64)> =
        files(&catalogs[home]).iter().map(|i| catalogs[home].files[*i as usize].identity).collect();
    let mut places = Vec::new();
    for (i, catalog) in catalogs.iter().enumerate().filter(|(i, _)| *i != home) {
        for file in files(catalog) {
            let entry = &catalog.files[file as usize];
            let same = i != home && own.contains(&entry.identity);
            places.push(PlaceReport {
                path: shown(&entry.path()),
                state: if entry.size == 0 { "empty" } else { "duplicate" },
                records: None,
                bytes: Some(entry.size),
                role: None,
                kind: None,
                damaged: 0,
                home: Some(shown(catalog.home.path())),
                because: Some(if same { "the same file in another home" } else { "in another home" }.to_owned()),
            });
        }
    }
    places
}

/// The place where Codex's database has the thread's file, if nothing is there.
pub(super) fn row_without_file(says: &CodexStateSays) -> Option<PlaceReport> {
    let path = says.path.as_ref().filter(|_| says.path_exists == Some(false))?;
    Some(PlaceReport::missing(path.clone(), "where Codex's database says that it is"))
}

/// The parts of a history, with the part that is missing before them.
pub(super) fn lineage(catalog: &Catalog, history: &History) -> Vec<LineageStep> {
    let mut steps: Vec<LineageStep> = history
        .spans
        .iter()
        .map(|span| LineageStep {
            thread_id: span.thread_id,
            path: Some(shown(&span.shown)),
            until_ordinal: span.end.map(|e| e.ordinal),
            until_offset: span.end.map(|e| e.offset).filter(|o| *o > 0),
            state: "there",
            inherited: span.inherited,
        })
        .collect();
    if let (false, Some(oldest)) = (history.missing.is_empty(), history.spans.first())
        && let Some(base) = base_of(oldest)
    {
        steps.insert(
            0,
            LineageStep {
                thread_id: Some(base.thread_id),
                path: None,
                until_ordinal: Some(base.end_ordinal_exclusive),
                until_offset: Some(base.end_byte_offset).filter(|o| *o > 0),
                state: "missing",
                inherited: catalog.group_of_rollout(base.thread_id).is_none_or(|g| g.id != oldest.thread_id),
            },
        );
    }
    steps
}

fn base_of(span: &Span) -> Option<HistoryBase> {
    let size = std::fs::metadata(&span.path).ok()?.len();
    facts::read(&span.path, span.form, size, span.follow, Depth::Head).header?.history_base
}

/// Whether a file is one that lists look at.
pub(super) fn is_of_the_home(row: &Row) -> bool {
    row.members.iter().all(|m| m.entry.place != Place::Outside && !m.entry.path().is_absolute())
}
