//! A thread as a row: what its files say, joined with its name and with what only Codex's database has.

use std::path::Path;

use threadkeep_index::listed::Known;
use threadkeep_record::damage::DamageReason;
use threadkeep_record::fold::{Check, DAMAGE_SHOWN, Fold};
use threadkeep_record::{GitInfo, HistoryMode, SourceClass, ThreadId, TokenUsage, UtcMillis, meta};
use threadkeep_rollout::facts::{self, Depth, FileFacts, Nobody, Observer};
use threadkeep_rollout::lineage::{self, Assembly, History, Member, Role};
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_rollout::source::Follow;
use threadkeep_rollout::walk::{FileEntry, Place};
use threadkeep_store::thread::{DamageEntry, DamageReport, Thread, ThreadFile};

use crate::catalog::{Catalog, Group};
use crate::codex_state::DbRow;
use crate::inherited;

/// A thread with what ordering and filtering need.
#[derive(Debug, Clone)]
pub struct Row {
    /// The thread as it is given out.
    pub thread: Thread,
    /// Its files.
    pub members: Vec<Member>,
    /// How they belong together.
    pub assembly: Option<Assembly>,
    /// Who started it.
    pub class: SourceClass,
    /// Nothing was said or done in it.
    pub empty: bool,
    /// Id or, for a file without one, its path: the last word in every order.
    pub key: String,
    /// Newest modification time of its files.
    pub mtime: UtcMillis,
    /// Its preview was found to hold what a query asks for.
    pub preview_matches: bool,
    /// It was found to change the file that a query asks for.
    pub touches: bool,
    /// Long texts were cut, since only the rows of a page need them whole.
    pub lightened: bool,
    /// The thread that started it was taken away without it, so it stands for itself.
    pub apart: bool,
    /// Its history begins in another thread, which it refers to.
    pub by_reference: bool,
    /// Files that it changed, absolute where its directory is known; only where every record was parsed.
    pub touched: Vec<String>,
    /// Threads and rollouts that it says something of, beside its own.
    pub depends: Vec<ThreadId>,
    /// It was kept in the index, with so much known of it; its files were not read now.
    pub kept: Option<Known>,
}

/// Texts of rows that are not on the page are cut here.
const LIGHT: usize = 512;

impl Row {
    /// Cuts long texts, so that choosing a page does not take memory for every message of a home.
    pub fn lighten(&mut self) {
        let facts = self.members.iter_mut().flat_map(|m| [&mut m.facts.preview, &mut m.facts.first_user_message]);
        for text in [&mut self.thread.preview, &mut self.thread.first_user_message].into_iter().chain(facts) {
            if let Some(text) = text.as_mut().filter(|t| t.len() > LIGHT) {
                let end = (0..=LIGHT).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
                *text = text[..end].to_owned();
                self.lightened = true;
            }
        }
    }

    /// Only a row of Codex's database is left of it.
    #[must_use]
    pub fn is_ghost(&self) -> bool {
        self.thread.files.is_empty()
    }

    /// Facts are missing that only whole files tell, or texts are cut.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        let unread = match self.kept {
            Some(known) => known == Known::Ends,
            None => {
                self.members.iter().any(|m| m.facts.whole.is_none())
                    || self.members.len() > 1 && self.thread.turns.is_none()
            }
        };
        unread || self.lightened
    }

    /// The time that a sort key orders by; never absent, so that the order is total.
    #[must_use]
    pub fn updated(&self) -> UtcMillis {
        self.thread.updated_at.unwrap_or(self.mtime)
    }

    /// See [`updated`](Self::updated).
    #[must_use]
    pub fn created(&self) -> UtcMillis {
        self.thread.created_at.unwrap_or(self.mtime)
    }

    /// See [`updated`](Self::updated). A thread without turns is ordered by its creation.
    #[must_use]
    pub fn recency(&self) -> UtcMillis {
        self.thread.recency_at.unwrap_or_else(|| self.created())
    }
}

/// Reads one file of a home.
#[must_use]
pub fn member(catalog: &Catalog, entry: &FileEntry, depth: Depth) -> Member {
    member_observed(catalog, entry, depth, &mut Nobody)
}

/// Reads one file of a home while another looks at its lines.
pub fn member_observed<O: Observer>(catalog: &Catalog, entry: &FileEntry, depth: Depth, observer: &mut O) -> Member {
    let facts = match &entry.problem {
        Some(why) => FileFacts {
            damaged: 1,
            damage: vec![threadkeep_record::fold::Damage {
                line: None,
                offset: 0,
                reason: DamageReason::Unreadable(why.to_string()),
            }],
            ..FileFacts::default()
        },
        None => {
            let path = entry.path_in(catalog.home.path());
            facts::read_observed(&path, entry.name.form, entry.size, follow(entry), depth, observer)
        }
    };
    Member { entry: entry.clone(), facts }
}

/// Below a home no link is followed; a path that the caller gave is the caller's word.
#[must_use]
pub fn follow(entry: &FileEntry) -> Follow {
    if entry.place == Place::Outside || entry.path().is_absolute() { Follow::Links } else { Follow::Nothing }
}

/// Files of a group.
#[must_use]
pub fn members(catalog: &Catalog, group: &Group, depth: Depth) -> Vec<Member> {
    let mut members: Vec<Member> =
        group.files.iter().map(|i| member(catalog, &catalog.files[*i as usize], depth)).collect();
    if members.len() > 1 {
        members.sort_by_cached_key(|m| m.entry.path());
    }
    members
}

/// Builds the row of a group.
#[must_use]
pub fn row(catalog: &Catalog, group: &Group, depth: Depth) -> Row {
    build(catalog, group.id, members(catalog, group, depth), depth)
}

/// Builds a row from files that were read. The first header names the thread; the file name only where there is none.
#[must_use]
pub fn build(catalog: &Catalog, name_id: Option<ThreadId>, mut members: Vec<Member>, depth: Depth) -> Row {
    for m in &mut members {
        // Where a fork's own header is damaged, the next one is the copy of its parent's.
        let other = m.facts.header.as_ref().is_some_and(|h| h.id.is_some() && h.id != m.entry.name.id);
        if m.facts.header_after_damage && other && m.entry.name.id.is_some() {
            m.facts.header = None;
            m.facts.damaged += 1;
            m.facts.damage.push(threadkeep_record::fold::Damage {
                line: None,
                offset: 0,
                reason: DamageReason::NoHeader,
            });
        }
    }
    let assembly = lineage::assemble(&catalog.home, name_id, &members);
    let head = &members[assembly.head];
    let root = root_of(&members, &assembly);
    let header = root.facts.header.as_ref();
    let header_id = header.and_then(|h| h.id);
    // A header that names a thread which has a file of its own is a copy of that thread's: the file name counts then,
    // or one of the two would be hidden behind the other.
    let taken = header_id.filter(|h| Some(*h) != name_id).is_some_and(|h| catalog.group(h).is_some());
    let id = if taken { name_id.or(header_id) } else { header_id.or(name_id) };
    let mut damage = damage(&members, &assembly, name_id);
    let own = |role: Role| role != Role::Copy;
    let counted: Vec<&Member> = members.iter().zip(&assembly.roles).filter(|(_, r)| own(**r)).map(|(m, _)| m).collect();
    let records = counted.iter().map(|m| m.facts.whole.as_ref().map(|w| w.records)).sum::<Option<u64>>();
    let forks_other = header.is_some_and(|_| continues_another(root, id));
    let mut preview = root.facts.preview.clone();
    let mut turns = counted
        .first()
        .filter(|_| counted.len() == 1 && head.facts.header.as_ref().is_none_or(|h| h.history_base.is_none()))
        .and_then(|m| m.facts.whole.as_ref())
        .map(|w| w.turns);
    let mut tokens = head.facts.whole.as_ref().and_then(|w| w.tokens);
    let mut model = head.facts.model.clone();
    let mut depends = Vec::new();
    let continues = head.facts.header.as_ref().is_some_and(|h| h.history_base.is_some());
    if counted.len() > 1 || continues {
        let history = history(catalog, id, &members, assembly.head);
        depends.extend(&history.asked);
        for reason in &history.missing {
            note(&mut damage, &head.entry.path(), reason);
        }
        match depth {
            Depth::Whole(check) => {
                let whole = fold_history(&history, check);
                preview = whole.fold.preview().map(str::to_owned).or(preview);
                turns = history.missing.is_empty().then(|| whole.fold.turns());
                tokens = whole.fold.tokens().map(|t| t.without(whole.inherited_tokens));
                model = whole.fold.model().or(model);
            }
            Depth::Head | Depth::HeadAndTail => preview = history_preview(&history).or(preview),
        }
    } else if let (Depth::Whole(_), Some(total), Some(h)) = (depth, tokens, header)
        && let Some(parent) = h.forked_from_id.or_else(|| h.parent())
    {
        tokens =
            Some(total.without(inherited::copied_from(catalog, root, parent).map(|p| p.tokens).unwrap_or_default()));
    }
    let last_time = head.facts.last_time.or_else(|| {
        // A segment's own header is a record of the thread like any other.
        let again = head.facts.header.as_ref().filter(|_| !std::ptr::eq(head, root)).and_then(|h| h.record_time);
        again.or_else(|| counted.iter().filter_map(|m| m.facts.last_time).max())
    });
    let mtime = members.iter().map(|m| m.entry.mtime()).max().unwrap_or(UtcMillis(0));
    let empty = counted.iter().all(|m| m.facts.empty) && !forks_other;
    let mut files: Vec<ThreadFile> = members
        .iter()
        .zip(&assembly.roles)
        .map(|(m, role)| ThreadFile {
            path: shown(&m.entry.path()),
            kind: match m.entry.name.form {
                Form::Plain => "plain",
                Form::Zstd => "zstd",
                Form::Json => "json",
            },
            role: match role {
                Role::Head => "head",
                Role::Segment => "segment",
                Role::Copy => "copy",
            },
            bytes: m.entry.size,
            records: m.facts.whole.as_ref().map(|w| w.records),
        })
        .collect();
    // A walk meets files in no order.
    let rank = |f: &ThreadFile| ["head", "segment", "copy"].iter().position(|r| *r == f.role);
    files.sort_by(|a, b| (rank(a), &a.path).cmp(&(rank(b), &b.path)));
    damage.first.truncate(DAMAGE_SHOWN);
    let created =
        header.and_then(|h| h.created_at.or(h.record_time)).or_else(|| id.and_then(|i| i.v7_millis()).map(UtcMillis));
    let thread = Thread {
        id,
        session_id: header.and_then(|h| h.session_id).or(id),
        name: None,
        preview,
        first_user_message: root.facts.first_user_message.clone(),
        cwd: header.and_then(|h| h.cwd.clone()),
        source: header.and_then(|h| h.source.clone()),
        thread_source: header.and_then(|h| h.thread_source.clone()),
        originator: header.and_then(|h| h.originator.clone()),
        model_provider: header.and_then(|h| h.model_provider.clone()),
        model,
        cli_version: header.and_then(|h| h.cli_version.clone()),
        created_at: created,
        updated_at: last_time.or(Some(mtime)),
        recency_at: head
            .facts
            .whole
            .as_ref()
            .and_then(|w| w.turn_started)
            .or_else(|| counted.iter().filter_map(|m| m.facts.whole.as_ref()?.turn_started).max()),
        archived: head.entry.place == Place::Archived,
        archived_at: None,
        parent_id: header.and_then(|h| h.parent()),
        forked_from_id: header.and_then(|h| h.forked_from_id),
        children: None,
        history_mode: header.map(|h| h.history_mode.unwrap_or(HistoryMode::Legacy)),
        turns,
        records,
        bytes: members.iter().map(|m| m.entry.size).sum(),
        files,
        git: header.and_then(|h| h.git.clone()),
        tokens,
        capability_roots: header.map(|h| h.capability_roots.clone()).unwrap_or_default(),
        live: None,
        damage,
    };
    let class = header.map_or(SourceClass::Person, |h| h.source_class());
    let cwd = header.and_then(|h| h.cwd.as_deref());
    let named = counted.iter().filter_map(|m| m.facts.whole.as_ref()).flat_map(|w| &w.touched);
    let touched: Vec<String> = named.map(|path| absolute(cwd, path)).collect();
    let by_reference = members.iter().any(|m| continues_another(m, id));
    let apart = thread.parent_id.is_some_and(|parent| !thread.archived && catalog.stands_apart(parent));
    depends.extend(header_id.filter(|h| Some(*h) != name_id));
    depends.extend(header.and_then(|h| h.forked_from_id.or_else(|| h.parent())));
    let key = id.map_or_else(|| shown(&members[assembly.head].entry.path()), |i| i.to_string());
    Row {
        thread,
        members,
        assembly: Some(assembly),
        class,
        empty,
        key,
        mtime,
        preview_matches: false,
        touches: false,
        lightened: false,
        apart,
        by_reference,
        touched,
        depends,
        kept: None,
    }
}

/// Every damaged place that the files of a thread told when they were read, as far as they were kept.
#[must_use]
pub fn damage(members: &[Member], assembly: &Assembly, name_id: Option<ThreadId>) -> DamageReport {
    let mut damage = DamageReport::default();
    for m in members {
        damage.records += m.facts.damaged;
        damage.first.extend(m.facts.damage.iter().map(|d| DamageEntry {
            path: shown(&m.entry.path()),
            line: d.line,
            offset: d.offset,
            reason: d.reason.to_string(),
        }));
    }
    for (i, reason) in &assembly.notes {
        note(&mut damage, &members[*i].entry.path(), reason);
    }
    let root = root_of(members, assembly);
    if let (Some(h), Some(n)) = (root.facts.header.as_ref().and_then(|h| h.id), name_id)
        && h != n
    {
        note(&mut damage, &root.entry.path(), &DamageReason::IdMismatch { name: n.to_string(), header: h.to_string() });
    }
    damage
}

/// A row for a thread of which only Codex's database row is left.
#[must_use]
pub fn ghost(id: ThreadId, row: &DbRow) -> Row {
    let some = |s: &str| Some(s.to_owned()).filter(|s| !s.is_empty());
    let source = serde_json::from_str(&row.source).ok().or_else(|| some(&row.source).map(serde_json::Value::String));
    let class = meta::source_class(source.as_ref(), None);
    let thread = Thread {
        id: Some(id),
        session_id: None,
        name: row.explicit_name(None).map(str::to_owned).or_else(|| some(row.title.trim())),
        preview: some(&row.preview).or_else(|| some(&row.title)),
        first_user_message: some(&row.first_user_message),
        cwd: some(&row.cwd),
        source,
        thread_source: None,
        originator: None,
        model_provider: some(&row.model_provider),
        model: None,
        cli_version: some(&row.cli_version),
        created_at: row.created_at,
        updated_at: row.updated_at,
        recency_at: None,
        archived: row.archived,
        archived_at: row.archived_at,
        parent_id: None,
        forked_from_id: None,
        children: None,
        history_mode: None,
        turns: None,
        records: None,
        bytes: 0,
        files: vec![],
        git: Some(row.git.clone()).filter(|g| *g != GitInfo::default()),
        tokens: None,
        capability_roots: vec![],
        live: None,
        damage: DamageReport::default(),
    };
    Row {
        mtime: row.updated_at.or(row.created_at).unwrap_or(UtcMillis(0)),
        thread,
        members: vec![],
        assembly: None,
        class,
        empty: false,
        key: id.to_string(),
        preview_matches: false,
        touches: false,
        lightened: false,
        apart: false,
        by_reference: false,
        touched: vec![],
        depends: vec![],
        kept: None,
    }
}

/// Adds what is only in the name index and in Codex's database.
pub fn add_names(catalog: &Catalog, row: &mut Row, db: Option<&DbRow>) {
    let Some(id) = row.thread.id else { return };
    if row.is_ghost() {
        if let Some(name) = catalog.names.entry(id).filter(|n| !n.is_empty()) {
            row.thread.name = Some(name.to_owned());
        }
        return;
    }
    let paginated = row.thread.history_mode == Some(HistoryMode::Paginated);
    let index = catalog.names.entry(id);
    let first = row.thread.first_user_message.clone().or_else(|| row.thread.preview.clone());
    let from_db = db.and_then(|d| d.explicit_name(first.as_deref())).map(str::to_owned);
    let own_column = db.and_then(|d| d.name.clone()).filter(|n| !n.trim().is_empty());
    row.thread.name = match (paginated, own_column, index) {
        // Codex tells a paginated thread's name from its own column alone; the index may lag behind it.
        (true, Some(name), _) => Some(name),
        (_, _, Some("")) => None,
        (_, _, Some(name)) => Some(name.to_owned()),
        (_, _, None) => from_db,
    };
    if let Some(d) = db {
        if row.thread.archived {
            row.thread.archived_at = d.archived_at;
        }
        if paginated && d.git != GitInfo::default() {
            row.thread.git = Some(d.git.clone());
        }
        // A fork by reference has no first message in its own file; what Codex shows for it depends on the release
        // that made it, and only its database keeps that.
        if row.by_reference && !d.preview.trim().is_empty() {
            row.thread.preview = Some(d.preview.clone());
        }
    }
    row.thread.live = catalog.locks.holder(id).and_then(|h| serde_json::to_value(h).ok());
}

/// A file as it can be compared: below the thread's directory where it is not absolute. Paths of other systems are
/// taken as they are.
fn absolute(cwd: Option<&str>, path: &str) -> String {
    match cwd {
        Some(cwd) if cwd.starts_with('/') && !path.starts_with('/') => tidy(&Path::new(cwd).join(path)),
        _ if path.starts_with('/') => tidy(Path::new(path)),
        _ => path.to_owned(),
    }
}

fn tidy(path: &Path) -> String {
    shown(&crate::filter::tidy(path))
}

/// The oldest own file: its header names the thread.
fn root_of<'m>(members: &'m [Member], assembly: &Assembly) -> &'m Member {
    let head = &members[assembly.head];
    let oldest = members
        .iter()
        .zip(&assembly.roles)
        .filter(|(m, r)| **r == Role::Segment && m.facts.header.is_some() && m.entry.name.segment.is_none())
        .map(|(m, _)| m)
        .next();
    oldest.unwrap_or(head)
}

/// Whether a rollout's history begins in another thread. A segment's base is an earlier rollout of its own thread,
/// which it names by that rollout's id.
fn continues_another(m: &Member, id: Option<ThreadId>) -> bool {
    let base = m.facts.header.as_ref().and_then(|h| h.history_base.as_ref());
    m.entry.name.segment.is_none() && base.is_some_and(|b| Some(b.thread_id) != id)
}

/// The history of a thread through its lineage.
#[must_use]
pub fn history(catalog: &Catalog, id: Option<ThreadId>, own: &[Member], head: usize) -> History {
    lineage::history(&catalog.home, id, own, head, &mut |base| match catalog.group_of_rollout(base) {
        Some(group) => members(catalog, group, Depth::Head),
        None => vec![],
    })
}

/// A history folded from its first span to its last.
pub struct FoldedHistory {
    /// The fold.
    pub fold: Fold,
    /// Token counts where the inherited part ends.
    pub inherited_tokens: TokenUsage,
}

/// Folds every record of a history.
#[must_use]
pub fn fold_history(history: &History, check: Check) -> FoldedHistory {
    let mut fold = Fold::new(check);
    let mut inherited_tokens = TokenUsage::default();
    for span in &history.spans {
        let Ok(mut lines) = LineReader::open(&span.path, span.form, span.follow, BUFFER) else { continue };
        while let Some(line) = lines.next_line() {
            if span.is_past(&line) {
                break;
            }
            fold.line(line.into());
        }
        if span.inherited {
            inherited_tokens = fold.tokens().unwrap_or_default();
        }
    }
    FoldedHistory { fold, inherited_tokens }
}

/// The preview of a history, from its oldest part on.
fn history_preview(history: &History) -> Option<String> {
    history.spans.iter().find_map(|span| facts::read(&span.path, span.form, 1, span.follow, Depth::Head).preview)
}

/// Adds a place that is a whole file.
pub(crate) fn note(damage: &mut DamageReport, path: &Path, reason: &DamageReason) {
    damage.records += 1;
    damage.first.push(DamageEntry { path: shown(path), line: None, offset: 0, reason: reason.to_string() });
}

/// A path as text for output; what is not UTF-8 is shown with replacement characters.
#[must_use]
pub fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
