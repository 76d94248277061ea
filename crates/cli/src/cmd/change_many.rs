//! What commands that move threads share: which threads, a plan, a question, what became of each.

use std::collections::{BTreeMap, HashSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use threadkeep_local::change::codex::Told;
use threadkeep_local::change::trash::{Manifest, Trash};
use threadkeep_local::change::{
    Cascade, ChangeError, ChangeKind, Changer, Decision, Outcome, Plan, PlannedThread, Unfinished,
};
use threadkeep_local::{ListOptions, LocalStore, LookupError};
use threadkeep_record::ThreadId;
use threadkeep_rollout::seam::RealDisk;
use threadkeep_rollout::writer_lock::LockError;
use threadkeep_store::Archived;

use super::confirm::ask;
use super::now;
use crate::args::{ChangeArgs, Global};
use crate::fail::{Done, Failure, Kind, kind_of};
use crate::human::{count, many, size, visible_line};
use crate::out::{Out, dim, say};
use crate::progress::Progress;

/// The words of a kind of change.
pub struct Words {
    /// What is done.
    pub verb: &'static str,
    /// What was done.
    pub done: &'static str,
}

pub fn words(kind: ChangeKind) -> Words {
    let (verb, done) = match kind {
        ChangeKind::Archive => ("archive", "archived"),
        ChangeKind::Unarchive => ("unarchive", "unarchived"),
        ChangeKind::Delete => ("delete", "deleted"),
        ChangeKind::Restore => ("restore", "restored"),
        ChangeKind::Detach => ("detach", "detached"),
    };
    Words { verb, done }
}

/// The threads of each home that are meant, and what was not found.
#[derive(Default)]
pub struct Chosen {
    pub by_home: BTreeMap<usize, Vec<ThreadId>>,
    pub missing: Missing,
}

/// What was asked for and not found, with why.
pub type Missing = Vec<(String, Failure)>;

/// A plan for each home, with who carries it out.
pub type Plans = Vec<(Changer, Plan)>;

pub fn run(global: &Global, kind: ChangeKind, args: &ChangeArgs, out: &mut Out) -> Done {
    let reader = global.indexed_store()?;
    let chosen = choose(&reader, kind, args)?;
    let cascade = if args.cascade { Cascade::Descendants } else { Cascade::Alone };
    let plans: Plans = chosen
        .by_home
        .iter()
        .map(|(home, ids)| {
            let changer = changer(global, &reader, *home);
            if !args.dry_run {
                finish_first(&changer);
            }
            let plan = changer.plan(kind, ids, cascade);
            (changer, plan)
        })
        .collect();
    // What is moved can be moved back; what a filter chose was not named by anybody.
    let asks = kind == ChangeKind::Delete || args.is_filtered();
    carry_out(kind, plans, chosen.missing, Asking { dry_run: args.dry_run, asks: asks && !args.yes }, out)
}

/// Whether anything is done, and whether it is asked for first.
#[derive(Clone, Copy)]
pub struct Asking {
    pub dry_run: bool,
    pub asks: bool,
}

pub fn changer(global: &Global, reader: &LocalStore, home: usize) -> Changer {
    let index = (!global.no_index).then(|| global.index_place());
    Changer::new(reader.homes()[home].clone(), global.sqlite_home.clone(), index)
}

/// Ends what another command began and did not end, so that a plan is made from what is. What cannot be ended now is
/// told; what is being done right now is not.
pub fn finish_first(changer: &Changer) {
    for Unfinished { path, outcome } in changer.finish() {
        let failed: Vec<String> = match outcome {
            Err(ChangeError::Lock(LockError::Held { .. })) => vec![],
            Err(e) => vec![e.to_string()],
            Ok(outcomes) => {
                let errors = outcomes.iter().filter_map(|o| Some((o.id, o.result.as_ref().err()?)));
                errors.map(|(id, e)| format!("thread {id}: {e}")).collect()
            }
        };
        for why in failed {
            let path = visible_line(&path.to_string_lossy());
            say(&format!("note: an earlier change was not finished ({path}): {}", visible_line(&why)));
        }
    }
}

/// The lines of a file of ids.
pub fn ids_of_file(path: &Path) -> Result<Vec<String>, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().read_to_string(&mut text).map(|_| ())
    } else {
        std::fs::read_to_string(path).map(|t| text = t)
    };
    read.map_err(|e| Failure::new(Kind::Usage, format!("cannot read the file of ids: {e}")).path(path))?;
    // Some editors begin a file with a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

fn choose(reader: &LocalStore, kind: ChangeKind, args: &ChangeArgs) -> Result<Chosen, Failure> {
    let mut queries = args.threads.clone();
    queries.extend(args.ids_file.as_deref().map(ids_of_file).transpose()?.unwrap_or_default());
    let mut chosen = Chosen::default();
    let named = !args.threads.is_empty() || args.ids_file.is_some();
    match (named, args.is_filtered()) {
        (false, false) => {
            return Err(Failure::new(Kind::Usage, "no thread was named")
                .hint("name threads, or choose them with the filters of `threadkeep list`"));
        }
        (true, true) => return Err(Failure::new(Kind::Usage, "threads are either named or chosen with filters")),
        (true, false) => {
            for (query, found) in queries.iter().zip(reader.resolve(&queries)) {
                match found {
                    Ok((home, id)) => chosen.by_home.entry(home).or_default().push(id),
                    Err(e) => chosen.missing.push((query.clone(), e.into())),
                }
            }
        }
        (false, true) => {
            let mut query = args.query();
            query.archived_only |= kind == ChangeKind::Unarchive;
            // What is archived already has no place in an archive's list of work.
            query.include.archived &= kind != ChangeKind::Archive;
            let options = ListOptions { limit: usize::MAX / 4, exact: true, ..ListOptions::default() };
            let page = reader.list(&query, None, options, now());
            let page = page.map_err(|e| Failure::new(Kind::Failed, e.to_string()))?;
            if !page.complete {
                let why = "not every folder could be read, so the filters may miss threads";
                say(&format!("note: {why}"));
            }
            for (home, row) in page.rows {
                chosen.by_home.entry(home).or_default().extend(row.thread.id);
            }
        }
    }
    Ok(chosen)
}

/// Shows the plans, asks, carries them out, and tells what became of each thread.
pub fn carry_out(kind: ChangeKind, plans: Plans, mut missing: Missing, asking: Asking, out: &mut Out) -> Done {
    let Words { verb, done } = words(kind);
    for (_, plan) in &plans {
        for note in &plan.notes {
            say(&format!("note: {}", visible_line(note)));
        }
    }
    // One thread that cannot be changed is a failure like any other.
    let asked = missing.len() + plans.iter().map(|(_, p)| p.threads.len()).sum::<usize>();
    if asked == 1 {
        if let Some((_, failure)) = missing.into_iter().next() {
            return Err(failure);
        }
        let first = plans.iter().find_map(|(changer, p)| Some((changer, p.threads.first()?)));
        if let Some((changer, PlannedThread { id, decision: Decision::Refuse(e), .. })) = first {
            let hint = matches!(e, ChangeError::NotFound { archived: Archived::Excluded, .. })
                .then(|| super::trash_hint([&changer.home], &id.to_string()));
            return Err(match hint.flatten() {
                Some(hint) => failure(e).hint(hint),
                None => failure(e),
            });
        }
        missing = vec![];
    }
    let lines = described(kind, &plans);
    let taken: usize = plans.iter().map(|(_, p)| p.taken().count()).sum();
    let threads = many(taken as u64, "thread", "threads");
    if !out.is_json() {
        for line in &lines {
            out.line(line)?;
        }
        out.flush()?;
    }
    if asking.asks && !asking.dry_run && taken > 0 {
        let question = format!("{}{} {threads}?", verb[..1].to_uppercase(), &verb[1..]);
        // In the JSON form the plan is not printed before the answer; whoever is asked sees it all the same.
        let shown = if out.is_json() { lines } else { vec![] };
        ask(&shown, &question, &format!("{threads} would be {done}"), &format!("nothing was {done}"))?;
    }
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut refused: Vec<(String, u8, String)> = Vec::new();
    for (query, failure) in &missing {
        refused.push((query.clone(), failure.kind().code(), failure.message().to_owned()));
    }
    for (_, plan) in &plans {
        for t in &plan.threads {
            if let Decision::Refuse(e) = &t.decision {
                refused.push((t.id.to_string(), kind_of(e).code(), told(e)));
            }
        }
    }
    if !asking.dry_run {
        let _progress = Progress::start(verb);
        for (changer, plan) in &plans {
            let ids: Vec<ThreadId> = plan.taken().map(|t| t.id).collect();
            outcomes.extend(changer.apply(kind, &ids));
        }
    }
    let mut went_wrong = refused.iter().map(|(_, code, _)| *code).collect::<Vec<_>>();
    went_wrong.extend(outcomes.iter().filter_map(|o| o.result.as_ref().err()).map(|e| kind_of(e).code()));
    let went_well = if asking.dry_run { taken } else { outcomes.iter().filter(|o| o.result.is_ok()).count() };
    let code = match went_wrong.first() {
        None => 0,
        // Some of it was done: what remains is told below.
        Some(_) if went_well > 0 => Kind::Failed.code(),
        Some(first) => *first,
    };
    if let ([Outcome { result: Err(e), .. }], 1) = (outcomes.as_slice(), asked) {
        return Err(failure(e));
    }
    for (id, what) in outcomes.iter().filter_map(|o| Some((o.id, codex_note(*o.result.as_ref().ok()?)?))) {
        say(&format!("note: {id}: {what}"));
    }
    if out.is_json() {
        out.json(&object(kind, &plans, &outcomes, &refused, !asking.dry_run))?;
        return Ok(code);
    }
    for (what, _, why) in &refused {
        say(&format!("threadkeep: {}: {}", visible_line(what), visible_line(why)));
    }
    for o in &outcomes {
        if let Err(e) = &o.result {
            say(&format!("threadkeep: {}: {}", o.id, visible_line(&told(e))));
        }
    }
    let left = went_wrong.len();
    let not = if left == 0 { String::new() } else { format!(", {} not", count(left as u64)) };
    out.line(&if asking.dry_run {
        format!("{threads} would be {done}{not}; nothing was changed (--dry-run)")
    } else {
        format!("{done} {}{not}", many(went_well as u64, "thread", "threads"))
    })?;
    if kind == ChangeKind::Delete && went_well > 0 && !asking.dry_run {
        out.line(&dim("`threadkeep restore` brings them back; `threadkeep trash empty` frees the space"))?;
    }
    Ok(code)
}

/// What a person should know of Codex's database behind a change that was done.
fn codex_note(told: Told) -> Option<&'static str> {
    match told {
        Told::Changed | Told::NoRow => None,
        Told::NoColumn => Some("Codex's database lacks columns for this and was left; Codex settles it from the files"),
        Told::NotTaken => Some("Codex's database does not take this and was left; Codex settles it from the files"),
    }
}

/// A thread that was not changed, as the failure of the whole command.
pub fn failure(e: &ChangeError) -> Failure {
    let failure = Failure::new(kind_of(e), told(e));
    match e {
        ChangeError::NotFound { .. } | ChangeError::NotArchived { .. } => {
            failure.hint("`threadkeep list --all` shows every thread; other homes are given with --home")
        }
        ChangeError::Lock(LockError::Held { .. }) => failure.hint("end that program, or its thread, first"),
        _ => failure,
    }
}

/// An error with what to do about it.
pub fn told(e: &ChangeError) -> String {
    match e {
        ChangeError::Needed { by, .. } => {
            let by: Vec<String> = by.iter().map(ToString::to_string).collect();
            format!("{e}: {}; detach these first, or delete them with it", by.join(", "))
        }
        ChangeError::Lock(LockError::Held { holder: Some(holder), .. }) => {
            format!("{e} ({holder})")
        }
        ChangeError::NotFound { archived: Archived::Included, .. } => format!("{e} that is not archived already"),
        ChangeError::NoTime { .. } => format!("{e}: its folder in sessions cannot be told"),
        ChangeError::TranscriptGone { .. } => format!("{e}; `threadkeep delete` forgets it"),
        other => other.to_string(),
    }
}

/// The plan as a person reads it.
fn described(kind: ChangeKind, plans: &Plans) -> Vec<String> {
    const FILES_SHOWN: usize = 40;
    let Words { verb, .. } = words(kind);
    let mut lines = Vec::new();
    let all = plans.iter().flat_map(|(_, p)| &p.threads);
    let files: usize = all.clone().map(|t| t.files.len()).sum();
    for t in all {
        let title = t.title.as_deref().map(|t| visible_line(t).chars().take(60).collect::<String>());
        let bytes: u64 = t
            .files
            .iter()
            .filter(|f| f.to.is_some() || matches!(kind, ChangeKind::Delete | ChangeKind::Detach))
            .map(|f| f.bytes)
            .sum();
        let word = match &t.decision {
            Decision::Take => verb,
            Decision::Stay => "keep",
            Decision::Refuse(_) => "refuse",
        };
        let facts = format!("{}, {}", many(t.files.len() as u64, "file", "files"), size(bytes));
        let because = because(kind, t);
        lines.push(format!("{word}  {}  {}  {}", t.id, title.unwrap_or_default(), dim(&format!("{facts}; {because}"))));
        for f in t.files.iter().filter(|_| files <= FILES_SHOWN) {
            let to = f.to.as_ref().map(|to| format!(" → {}", visible_line(&to.to_string_lossy())));
            lines.push(dim(&format!("      {}{}", visible_line(&f.from.to_string_lossy()), to.unwrap_or_default())));
        }
    }
    lines
}

/// Why a thread is in a plan.
fn because(kind: ChangeKind, t: &PlannedThread) -> String {
    match (&t.decision, t.because_of) {
        (Decision::Refuse(e), _) => told(e),
        (Decision::Stay, Some(of)) => format!("{of} started it; --cascade would {} it, too", words(kind).verb),
        (Decision::Stay, None) => "it needs no other thread".to_owned(),
        (Decision::Take, Some(of)) => format!("{of} started it"),
        (Decision::Take, None) if kind == ChangeKind::Detach && t.files.is_empty() => {
            "asked for; its old files stay, since another fork refers to them".to_owned()
        }
        (Decision::Take, None) if kind == ChangeKind::Detach => "asked for; its old files go to the trash".to_owned(),
        (Decision::Take, None) => "asked for".to_owned(),
    }
}

/// The object of `cli-json.md`.
fn object(
    kind: ChangeKind,
    plans: &Plans,
    outcomes: &[Outcome],
    refused: &[(String, u8, String)],
    applied: bool,
) -> Value {
    let mut plan = Vec::new();
    for (changer, p) in plans {
        for t in &p.threads {
            let action = match &t.decision {
                Decision::Take => words(kind).verb,
                Decision::Stay => "keep",
                Decision::Refuse(_) => "refuse",
            };
            let because = because(kind, t);
            let row = |path: &PathBuf, to: Option<&PathBuf>, bytes: u64| {
                let whole = |p: &PathBuf| changer.home.absolute(p).to_string_lossy().into_owned();
                let needed_by: Vec<ThreadId> = match &t.decision {
                    Decision::Refuse(ChangeError::Needed { by, .. }) => by.clone(),
                    _ => vec![],
                };
                json!({
                    "thread_id": t.id, "action": action, "path": whole(path), "because": because,
                    "to": to.map(whole), "bytes": bytes, "descendant_of": t.because_of, "needed_by": needed_by,
                })
            };
            // Where no file is left, what is left stands in the home.
            if t.files.is_empty() {
                plan.push(row(&PathBuf::new(), None, 0));
            }
            plan.extend(t.files.iter().map(|f| row(&f.from, f.to.as_ref(), f.bytes)));
        }
    }
    let mut results: Vec<Value> =
        refused.iter().map(|(id, _, why)| json!({"thread_id": id, "ok": false, "error": why})).collect();
    results.extend(outcomes.iter().map(|o| {
        let error = o.result.as_ref().err().map(told);
        json!({"thread_id": o.id, "ok": error.is_none(), "error": error})
    }));
    json!({"format": 1, "plan": plan, "applied": applied, "results": results})
}

/// What an id means that several entries of the trash hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The thread: what was deleted last.
    Thread,
    /// The entry of exactly this name.
    Entry,
}

/// Entries of the trash that queries mean, by home.
pub fn in_trash(
    reader: &LocalStore,
    queries: &[String],
    meaning: Meaning,
) -> Result<(Vec<(usize, Manifest)>, Missing), Failure> {
    let mut all = Vec::new();
    for (i, home) in reader.homes().iter().enumerate() {
        let trash = Trash::read(&RealDisk, home.path());
        let trash =
            trash.map_err(|e| Failure::new(Kind::Failed, format!("cannot read the trash: {e}")).path(home.path()))?;
        all.extend(trash.entries.into_iter().map(|e| (i, e)));
    }
    let mut found = Vec::new();
    let mut missing = Vec::new();
    for query in queries {
        let id = ThreadId::parse(query).ok();
        let named = |e: &Manifest| e.entry == *query && (meaning == Meaning::Entry || id.is_none());
        let exact = |e: &Manifest| e.name.as_deref() == Some(query) || id == Some(e.thread_id);
        let fits = |fit: &dyn Fn(&Manifest) -> bool| all.iter().filter(|(_, e)| fit(e)).collect::<Vec<_>>();
        let mut fits_query = fits(&named);
        if fits_query.is_empty() {
            fits_query = fits(&exact);
        }
        if fits_query.is_empty() && query.len() >= 4 {
            let prefix = query.to_ascii_lowercase();
            fits_query = fits(&|e| e.entry.starts_with(&prefix));
        }
        let threads: HashSet<ThreadId> = fits_query.iter().map(|(_, e)| e.thread_id).collect();
        match (fits_query.first(), threads.len()) {
            (Some(first), 1) => found.push((*first).clone()),
            (None, _) => missing.push((
                query.clone(),
                Failure::new(Kind::NotFound, "nothing of this id, prefix or name is in the trash")
                    .hint("`threadkeep trash list` shows what is there"),
            )),
            (Some(_), _) => {
                let what = |e: &Manifest| e.name.clone().or_else(|| e.preview.clone()).unwrap_or_default();
                let candidates = fits_query.iter().map(|(_, e)| (e.entry.clone(), what(e))).collect();
                missing.push((query.clone(), LookupError::Ambiguous { query: query.clone(), candidates }.into()));
            }
        }
    }
    Ok((found, missing))
}
