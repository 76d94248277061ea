//! Forks: a legacy history is copied, a paginated one is referred to, a spawned agent gets a part of its parent's
//! context (`thread-store.md` section 7).

use serde_json::Value;
use threadkeep_record::turns::TurnStatus;
use threadkeep_record::{
    Envelope, HistoryBase, HistoryMode, Kind, LineState, NewItem, SessionMeta, ThreadId, UtcMillis, check_line, sniff,
};
use threadkeep_rollout::appender::Durability;
use threadkeep_rollout::facts::Depth;
use threadkeep_rollout::name::Form;
use threadkeep_rollout::records::{BUFFER, LineReader};
use threadkeep_rollout::seam::OpenMode;
use threadkeep_store::fork::{BEFORE_TURN, LAST_TURN, in_progress, interrupted, standing, subagent_context};
use threadkeep_store::{Archived, CreateThread, ForkRange, ForkThread, StoreResult, selected_roots};

use super::model_context::header_record;
use super::{Inner, internal, invalid};
use crate::lookup::OpenThread;
use crate::turn_index::TurnEntry;

/// Copied records are written in parts of about this size.
const PART: usize = 1 << 20;

/// Where a history is cut.
pub struct Cut {
    /// Index of the span, and the offset in it: what stands there and behind is left out. `None` takes all.
    pub at: Option<(usize, u64)>,
    /// The id of a turn that still runs in what is taken.
    pub running: Option<String>,
}

impl Inner {
    pub fn fork(&self, p: ForkThread) -> StoreResult<()> {
        let source = p.source;
        if self.live.get(source).is_some() {
            self.persist(source)?;
        }
        let open = self.fork_source(source, p.archived)?;
        let record = open.history.spans.iter().rfind(|s| !s.inherited).and_then(header_record);
        let header = record.as_deref().and_then(SessionMeta::parse);
        let mode = forked_mode(source, header.as_ref())?;
        let mut child = p.child;
        if let Some(record) = &record {
            take_over(&mut child, record);
        }
        child.history_mode = mode;
        let explicit = Some(std::mem::take(&mut child.selected_capability_roots)).filter(|roots| !roots.is_empty());
        // Before anything is left out: a bounded fork has them, too.
        child.selected_capability_roots = selected_roots(explicit, header.as_ref());
        match (&p.range, mode) {
            (ForkRange::Subagent { last_turns }, _) => {
                let history = match mode {
                    HistoryMode::Paginated => self.latest_model_context(source, Archived::Included)?,
                    HistoryMode::Legacy | HistoryMode::Unknown => self.load_history(source, Archived::Included)?,
                };
                let items: Vec<NewItem> = subagent_context(&history, *last_turns)
                    .into_iter()
                    .filter_map(|i| history.records.get(i)?.envelope())
                    .filter_map(|e| NewItem::from_json(e.type_name.as_ref(), e.payload).ok())
                    .filter(|item| item.is_kept(mode))
                    .collect();
                child.parent_thread_id = child.parent_thread_id.or(Some(source));
                if mode == HistoryMode::Paginated {
                    child.subagent_history_start_ordinal = Some(items.len() as u64 + 1);
                }
                let id = child.thread_id;
                self.create(child)?;
                self.or_discard(id, self.append(id, &items).and_then(|_| self.persist(id)))
            }
            (range, HistoryMode::Legacy | HistoryMode::Unknown) => {
                let cut = cut(&open, range)?;
                child.forked_from_id = Some(source);
                let id = child.thread_id;
                self.create(child)?;
                let done = self.copy(id, &open, &cut).and_then(|()| self.finish(id, &cut));
                self.or_discard(id, done)
            }
            (range, HistoryMode::Paginated) => {
                let cut = cut(&open, range)?;
                let (base, last) = base(&open, &cut)?;
                self.sync_bases(&open, &cut)?;
                child.forked_from_id = Some(source);
                let id = child.thread_id;
                self.create_at(child, Some((base, last)))?;
                self.or_discard(id, self.finish(id, &cut))
            }
        }
    }

    /// Whether a range of a thread can be taken, without making anything.
    pub fn check_fork(&self, source: ThreadId, archived: Archived, range: &ForkRange) -> StoreResult<()> {
        let open = self.fork_source(source, archived)?;
        let header = open.history.spans.iter().rfind(|s| !s.inherited).and_then(header_record);
        let header = header.as_deref().and_then(SessionMeta::parse);
        let cut = cut(&open, range)?;
        match forked_mode(source, header.as_ref())? {
            HistoryMode::Paginated => base(&open, &cut).map(|_| ()),
            HistoryMode::Legacy | HistoryMode::Unknown => Ok(()),
        }
    }

    /// The thread that is forked.
    fn fork_source(&self, source: ThreadId, archived: Archived) -> StoreResult<OpenThread> {
        let open = self.open_made(source, archived, Depth::Head)?;
        match open.history.spans.iter().find(|s| s.form == Form::Json) {
            Some(span) => {
                Err(invalid(format!("{} is a file of the TypeScript command, which is only read", span.path.display())))
            }
            None => Ok(open),
        }
    }

    /// Makes durable what a fork by reference will need: whoever wrote it may not have come to it, and a fork that is
    /// durable behind a prefix that is not would lose its history with the power.
    pub fn sync_bases(&self, open: &OpenThread, cut: &Cut) -> StoreResult<()> {
        if self.durability == Durability::None {
            return Ok(());
        }
        let last = cut.at.map_or(usize::MAX, |(span, _)| span);
        for span in open.history.spans.iter().take(last.saturating_add(1)).filter(|s| s.form == Form::Plain) {
            let failed = |e| internal(format!("cannot make {} durable: {e}", span.path.display()));
            self.disk.open(&span.path, OpenMode::Existing).and_then(|mut f| f.sync_data()).map_err(failed)?;
            if let Some(folder) = span.path.parent() {
                self.disk.sync_dir(folder).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// A fork that failed leaves neither a writer nor a part of a history, which would be listed as a thread. (A crash
    /// in the middle of a copy can leave that part: whole records of a thread that nobody was told of.)
    fn or_discard(&self, id: ThreadId, result: StoreResult<()>) -> StoreResult<()> {
        if result.is_err()
            && let Ok(live) = self.live(id)
        {
            // The first failure is the one to tell. Its lock is held until the file, which is new and ours, is gone.
            if live.lock().writer.is_made() {
                let _ = self.disk.remove(&live.path());
            }
            let _ = self.discard(id);
        }
        result
    }

    /// Copies every record up to the cut, byte for byte.
    fn copy(&self, id: ThreadId, open: &OpenThread, cut: &Cut) -> StoreResult<()> {
        let live = self.live(id)?;
        let mut part: Vec<Vec<u8>> = Vec::new();
        let mut bytes = 0;
        let write = |part: &mut Vec<Vec<u8>>| {
            let records = std::mem::take(part);
            self.with_writer(id, &live, |writer, now| writer.copy(records, now))
        };
        for (i, span) in open.history.spans.iter().enumerate() {
            if cut.at.is_some_and(|(last, _)| i > last) {
                break;
            }
            let mut lines = LineReader::open(&span.path, span.form, span.follow, BUFFER)
                .map_err(|e| internal(format!("cannot copy {}: {e}", span.path.display())))?
                .with_limit(usize::MAX);
            while let Some(line) = lines.next_line() {
                if span.is_past(&line) || cut.at.is_some_and(|(last, offset)| i == last && line.offset >= offset) {
                    break;
                }
                // A torn tail is no record; damaged lines before it are copied as they are.
                let whole = line.terminated || matches!(check_line(line.bytes), LineState::Record(_));
                if whole && !line.bytes.is_empty() {
                    bytes += line.bytes.len();
                    part.push(line.bytes.to_vec());
                }
                if bytes >= PART {
                    write(&mut part)?;
                    bytes = 0;
                }
            }
            if let Some(e) = lines.error() {
                return Err(internal(format!("cannot copy all of {}: {e}", span.path.display())));
            }
        }
        write(&mut part)?;
        // What was copied did not begin through this writer.
        let mut state = live.lock();
        state.opened_at = state.writer.end();
        Ok(())
    }

    /// Ends a turn that still ran, and makes the fork durable.
    fn finish(&self, id: ThreadId, cut: &Cut) -> StoreResult<()> {
        if let Some(turn) = &cut.running {
            self.append(id, &interrupted(turn))?;
        }
        self.persist(id)
    }
}

/// What a fork's header takes over from its source's where the caller says nothing: the prompt, tools, provider, and
/// fields of newer releases.
fn take_over(child: &mut CreateThread, header: &[u8]) {
    const OWN: &[&str] = &[
        "session_id",
        "id",
        "forked_from_id",
        "forked_from_ordinal_exclusive",
        "parent_thread_id",
        "timestamp",
        "cwd",
        "originator",
        "cli_version",
        "source",
        "thread_source",
        "agent_nickname",
        "agent_role",
        "agent_type",
        "agent_path",
        "model_provider",
        "base_instructions",
        "instructions",
        "dynamic_tools",
        "selected_capability_roots",
        "memory_mode",
        "history_mode",
        "history_base",
        "subagent_history_start_ordinal",
        "multi_agent_version",
        "context_window",
        "git",
    ];
    let Some(envelope) = Envelope::parse(header) else { return };
    let Ok(Value::Object(payload)) = serde_json::from_str::<Value>(envelope.payload) else { return };
    let text = |key: &str| payload.get(key).and_then(Value::as_str).map(str::to_owned);
    let prompt = payload.get("base_instructions").and_then(|b| b.get("text")).and_then(Value::as_str);
    child.base_instructions = child.base_instructions.take().or_else(|| prompt.map(str::to_owned));
    child.metadata.model_provider = child.metadata.model_provider.take().or_else(|| text("model_provider"));
    child.multi_agent_version = child.multi_agent_version.take().or_else(|| text("multi_agent_version"));
    if child.dynamic_tools.is_empty() {
        child.dynamic_tools = payload.get("dynamic_tools").and_then(Value::as_array).cloned().unwrap_or_default();
    }
    for (key, value) in payload.iter().filter(|(key, _)| !OWN.contains(&key.as_str())) {
        child.extra.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

/// The history mode of a thread that is forked.
fn forked_mode(source: ThreadId, header: Option<&SessionMeta>) -> StoreResult<HistoryMode> {
    match header.and_then(|h| h.history_mode).unwrap_or(HistoryMode::Legacy) {
        HistoryMode::Unknown => Err(invalid(format!(
            "thread {source} is kept in a history mode that this version does not know; it is not forked"
        ))),
        mode => Ok(mode),
    }
}

/// What a turn is called.
pub fn turn_id(turn: &TurnEntry) -> String {
    turn.id.clone().unwrap_or_else(|| format!("rollout-{}", turn.record))
}

/// Finds where a range ends.
fn cut(open: &OpenThread, range: &ForkRange) -> StoreResult<Cut> {
    let index = open.turn_index();
    let find = |parameter: &str, wanted: &str| {
        let named = index.turns.iter().enumerate().filter(|(_, turn)| turn_id(turn) == wanted);
        standing(named.map(|(i, turn)| (i, turn.taken_back)), parameter, wanted)
    };
    let running = |i: usize| index.turns[i].status == TurnStatus::InProgress;
    match range {
        ForkRange::Whole | ForkRange::Subagent { .. } => {
            let last = index.turns.len().checked_sub(1).filter(|i| running(*i) && !index.turns[*i].taken_back);
            Ok(Cut { at: None, running: last.map(|i| turn_id(&index.turns[i])) })
        }
        ForkRange::ThroughTurn(turn) => {
            let i = find(LAST_TURN, turn)?;
            if running(i) {
                return Err(in_progress(turn));
            }
            Ok(Cut { at: index.turns.get(i + 1).map(|next| before(open, next)), running: None })
        }
        ForkRange::BeforeTurn(turn) => {
            let i = find(BEFORE_TURN, turn)?;
            Ok(Cut { at: Some(before(open, &index.turns[i])), running: None })
        }
    }
}

/// Where the records of a turn begin. Where turns are not marked, what the model was given stands before the event that
/// begins the turn: settings, context, and the person's message itself.
pub fn before(open: &OpenThread, turn: &TurnEntry) -> (usize, u64) {
    let here = (turn.span, turn.offset);
    let Some(span) = open.history.spans.get(turn.span) else { return here };
    let Ok(mut lines) = LineReader::open(&span.path, span.form, span.follow, BUFFER) else { return here };
    let mut run = None;
    while let Some(line) = lines.next_line().filter(|l| l.offset < turn.offset) {
        let belongs = sniff::sniff(line.bytes).is_some_and(|s| match s.kind {
            Kind::TurnContext => true,
            Kind::ResponseItem if s.payload_type == b"message" => {
                let head = &line.bytes[..line.bytes.len().min(600)];
                let role = |role: &[u8]| memchr::memmem::find(head, role).is_some();
                role(b"\"role\":\"user\"") || role(b"\"role\":\"developer\"")
            }
            _ => false,
        });
        run = if belongs { run.or(Some(line.offset)) } else { None };
    }
    (turn.span, run.unwrap_or(turn.offset))
}

/// The prefix that a fork or a revert refers to, and when its last record was written.
pub fn base(open: &OpenThread, cut: &Cut) -> StoreResult<(HistoryBase, UtcMillis)> {
    let spans = &open.history.spans;
    let (i, at) = cut.at.map_or((spans.len().saturating_sub(1), None), |(i, offset)| (i, Some(offset)));
    let Some(span) = spans.get(i) else { return Err(internal("the source thread has no rollout")) };
    // A base names a rollout: a later segment by its own id.
    let Some(thread_id) = span.rollout_id else { return Err(internal("the source thread has no id")) };
    let unreadable = |e: std::io::Error| internal(format!("cannot read {}: {e}", span.path.display()));
    let mut lines = LineReader::open(&span.path, span.form, span.follow, BUFFER).map_err(unreadable)?;
    let (mut end_ordinal, mut end_byte, mut last) = (0, 0, UtcMillis(0));
    while let Some(line) = lines.next_line() {
        if span.is_past(&line) || at.is_some_and(|offset| line.offset >= offset) {
            break;
        }
        let quick = sniff::sniff(line.bytes);
        let time = quick.and_then(|s| UtcMillis::parse(std::str::from_utf8(s.timestamp).ok()?));
        last = time.unwrap_or(last).max(last);
        let ordinal = quick.map_or_else(
            || (!line.long).then(|| Envelope::parse(line.bytes).and_then(|e| e.ordinal)).flatten(),
            |s| s.ordinal,
        );
        if let Some(ordinal) = ordinal.filter(|_| line.terminated) {
            end_ordinal = end_ordinal.max(ordinal + 1);
        }
        if line.terminated {
            let (offset, long) = (line.offset, line.long);
            let length = line.bytes.len() as u64;
            let length = if long { lines.stream_long(|_| {}).0 } else { length };
            end_byte = offset + length + 1;
        }
    }
    if end_ordinal == 0 {
        return Err(internal(format!("{} has no record with an ordinal", span.path.display())));
    }
    Ok((HistoryBase { thread_id, end_ordinal_exclusive: end_ordinal, end_byte_offset: end_byte }, last))
}
