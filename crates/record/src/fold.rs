//! Folding the records of one rollout, in order, into what a list says of it.
//!
//! Most records are told by their prefix alone; only the few that carry something a list shows are parsed.

use std::collections::BTreeSet;

use crate::UtcMillis;
use crate::damage::{DamageReason, LineState, check_line, trim};
use crate::envelope::{Envelope, Kind};
use crate::item::{FileChange, Item, ItemBody, Origin};
use crate::meta::SessionMeta;
use crate::preview;
use crate::sniff::{self, Sniffed};
use crate::tokens::TokenUsage;
use crate::turns::{Accounts, Signal, Step, TurnTracker};

/// How closely lines are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// Every line is parsed, so every damage is found (about 1.5 GB/s).
    Whole,
    /// A line that begins and ends as a record is taken for one (about 3.5 GB/s).
    Ends,
}

/// A damaged place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Line number, from 1; `None` where only the offset is known.
    pub line: Option<u64>,
    /// Offset of the line.
    pub offset: u64,
    /// What is wrong.
    pub reason: DamageReason,
}

/// A line to fold.
#[derive(Debug, Clone, Copy)]
pub struct FoldLine<'a> {
    /// Bytes without the line feed; of a long line its head.
    pub bytes: &'a [u8],
    /// Offset in the (decompressed) file.
    pub offset: u64,
    /// Line number, from 1.
    pub number: u64,
    /// Whether a line feed ends it.
    pub terminated: bool,
    /// Whether `bytes` is only the head.
    pub long: bool,
}

/// How many damaged places are kept with their place; the rest is only counted.
pub const DAMAGE_SHOWN: usize = 5;

/// So many files are kept of one rollout.
const TOUCHED: usize = 10_000;

/// The state of the fold, and its result.
#[derive(Debug, Clone)]
pub struct Fold {
    check: Check,
    /// How many damaged places keep their place.
    kept: usize,
    /// The first header.
    pub header: Option<SessionMeta>,
    /// Damaged lines stood before the header, so it may be a copy of another thread's.
    pub header_after_damage: bool,
    /// Which accounts the file has.
    pub accounts: Accounts,
    /// Records read, damaged ones not counted.
    pub records: u64,
    /// Damaged places.
    pub damaged: u64,
    /// The first of them.
    pub damage: Vec<Damage>,
    /// Time of the last record after the header that has one.
    pub last_time: Option<UtcMillis>,
    /// The last model that a record of another form than usual set.
    model: Option<String>,
    /// The last settings of a turn.
    settings_line: Vec<u8>,
    /// Some text of a person, in any account.
    pub has_user: bool,
    /// Some text of the agent.
    pub has_agent: bool,
    /// Some tool call.
    pub has_tool: bool,
    /// A goal.
    pub has_goal: bool,
    /// First and last ordinal.
    pub ordinals: Option<(u64, u64)>,
    /// The last token counts.
    tokens_line: Vec<u8>,
    event: Account,
    response: Account,
    agent_first: Option<String>,
    /// Files that it says were changed, as it names them; only with [`Check::Whole`].
    pub touched: BTreeSet<String>,
}

/// What one account tells: previews and turns.
#[derive(Debug, Clone, Default)]
struct Account {
    preview: Option<String>,
    first_user: Option<String>,
    turns: TurnTracker,
    turn_started: Option<UtcMillis>,
    /// Time of a message that may begin a turn.
    held: Option<UtcMillis>,
}

impl Fold {
    /// A fold that has seen nothing.
    #[must_use]
    pub fn new(check: Check) -> Self {
        Self::keeping(check, DAMAGE_SHOWN)
    }

    /// The same, with another number of damaged places kept with their place.
    #[must_use]
    pub fn keeping(check: Check, kept: usize) -> Self {
        Self {
            check,
            kept,
            header: None,
            header_after_damage: false,
            accounts: Accounts::default(),
            records: 0,
            damaged: 0,
            damage: Vec::new(),
            last_time: None,
            model: None,
            settings_line: Vec::new(),
            has_user: false,
            has_agent: false,
            has_tool: false,
            has_goal: false,
            ordinals: None,
            tokens_line: Vec::new(),
            event: Account::default(),
            response: Account::default(),
            agent_first: None,
            touched: BTreeSet::new(),
        }
    }

    /// Whether everything that the head of a list row needs is known.
    #[must_use]
    pub fn head_is_known(&self) -> bool {
        self.header.is_some() && self.accounts.user_events && self.event.preview.is_some()
    }

    fn account(&self) -> &Account {
        if self.accounts.user_events { &self.event } else { &self.response }
    }

    /// The preview by the rules of `thread-store.md` 1.9; where no person spoke and no goal was set, the agent's
    /// first text.
    #[must_use]
    pub fn preview(&self) -> Option<&str> {
        self.account().preview.as_deref().or(self.agent_first.as_deref())
    }

    /// The first message of a person that has text.
    #[must_use]
    pub fn first_user_message(&self) -> Option<&str> {
        self.account().first_user.as_deref()
    }

    /// Turns, those taken back not counted.
    #[must_use]
    pub fn turns(&self) -> u64 {
        let mut turns = self.account().turns.clone();
        turns.finish();
        turns.count()
    }

    /// When the last turn started.
    #[must_use]
    pub fn turn_started(&self) -> Option<UtcMillis> {
        self.account().turn_started
    }

    /// The last model a turn was set to.
    #[must_use]
    pub fn model(&self) -> Option<String> {
        match parse(&self.settings_line) {
            Some(Item { body: ItemBody::Settings { model: Some(model), .. }, .. }) => Some(model),
            _ => self.model.clone(),
        }
    }

    /// The last token counts.
    #[must_use]
    pub fn tokens(&self) -> Option<TokenUsage> {
        let payload: serde_json::Value = serde_json::from_str(Envelope::parse(&self.tokens_line)?.payload).ok()?;
        TokenUsage::from_token_count(&payload)
    }

    /// Nothing that anyone said or did.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !(self.has_user || self.has_agent || self.has_tool || self.has_goal)
    }

    /// Notes a damaged place.
    pub fn note(&mut self, line: Option<u64>, offset: u64, reason: DamageReason) {
        self.damaged += 1;
        if self.damage.len() < self.kept {
            self.damage.push(Damage { line, offset, reason });
        }
    }

    /// Takes the next line.
    pub fn line(&mut self, line: FoldLine<'_>) {
        if line.long {
            // Only its head is here, which says what it is and how its text begins.
            let (time, ordinal) = crate::long::envelope(line.bytes);
            if let Some(item) = crate::long::item(line.bytes) {
                self.count(ordinal, &line);
                self.time(time);
                self.take(&item, time.map(|t| t.to_string()).unwrap_or_default().as_bytes());
            } else if trim(line.bytes).starts_with(b"{") {
                self.records += 1;
            } else {
                self.note(Some(line.number), line.offset, DamageReason::NotAnObject);
            }
            return;
        }
        let text = trim(line.bytes);
        let sniffed = sniff::sniff(text);
        if self.check == Check::Ends && sniffed.is_some() && text.ends_with(b"}") {
            self.record(text, sniffed, &line);
            return;
        }
        match check_line(line.bytes) {
            LineState::Blank => {}
            LineState::Record(record) => self.record(record, sniff::sniff(record), &line),
            LineState::Recovered(record, reason) => {
                self.note(Some(line.number), line.offset, reason);
                for record in record {
                    self.record(&record, sniff::sniff(&record), &line);
                }
            }
            LineState::Damaged(reason) => {
                let torn =
                    !line.terminated && matches!(reason, DamageReason::NotJson(_) | DamageReason::InvalidUtf8(_));
                self.note(Some(line.number), line.offset, if torn { DamageReason::TornTail } else { reason });
            }
        }
    }

    fn record(&mut self, record: &[u8], sniffed: Option<Sniffed<'_>>, line: &FoldLine<'_>) {
        let Some(s) = sniffed else {
            self.slow(record, line);
            return;
        };
        self.count(s.ordinal, line);
        match s.kind {
            Kind::SessionMeta => return self.header(record, s.timestamp, line),
            _ if self.is_context(s.ordinal) => {}
            Kind::EventMsg | Kind::ResponseItem if self.check == Check::Whole && may_change_files(record, &s) => {
                if let Some(item) = parse(record) {
                    self.touch(&item.body);
                }
                if s.kind == Kind::EventMsg { self.event(record, &s) } else { self.response(record, &s) }
            }
            Kind::TurnContext => {
                self.settings_line.clear();
                self.settings_line.extend_from_slice(record);
            }
            Kind::EventMsg => self.event(record, &s),
            Kind::ResponseItem => self.response(record, &s),
            Kind::InterAgent => self.has_agent = true,
            Kind::Compacted | Kind::WorldState | Kind::TokenUsageRecord | Kind::InterAgentMetadata => {}
            Kind::BareMeta | Kind::BareState | Kind::BareItem | Kind::Other => {}
        }
        self.time_text(s.timestamp);
    }

    fn header(&mut self, record: &[u8], timestamp: &[u8], line: &FoldLine<'_>) {
        if self.header.is_none() {
            self.header = SessionMeta::parse(record);
            // A header is worth a close look: the next one may be a copy of another thread's.
            if self.header.is_none()
                && let LineState::Damaged(reason) = check_line(record)
            {
                self.note(Some(line.number), line.offset, reason);
                return;
            }
            self.header_after_damage = self.damaged > 0;
            if self.records > 1 {
                self.time_text(timestamp);
            }
        } else {
            self.time_text(timestamp);
        }
    }

    /// Whether a record is context that a spawned agent got from its parent.
    fn is_context(&self, ordinal: Option<u64>) -> bool {
        let end = self.header.as_ref().and_then(|h| h.subagent_history_start_ordinal);
        matches!((ordinal, end), (Some(n), Some(end)) if n < end)
    }

    fn time_text(&mut self, text: &[u8]) {
        if let Some(time) = std::str::from_utf8(text).ok().and_then(UtcMillis::parse) {
            self.time(Some(time));
        }
    }

    fn time(&mut self, time: Option<UtcMillis>) {
        if self.records > 1 {
            self.last_time = time.or(self.last_time);
        }
    }

    fn count(&mut self, ordinal: Option<u64>, line: &FoldLine<'_>) {
        self.records += 1;
        let Some(found) = ordinal else { return };
        if let Some((_, last)) = self.ordinals {
            if found <= last {
                self.note(Some(line.number), line.offset, DamageReason::OrdinalRepeated(found));
            } else if found != last + 1 {
                self.note(Some(line.number), line.offset, DamageReason::OrdinalGap { expected: last + 1, found });
            }
        }
        self.ordinals = Some(match self.ordinals {
            Some((first, last)) => (first, last.max(found)),
            None => (found, found),
        });
    }

    fn event(&mut self, record: &[u8], s: &Sniffed<'_>) {
        match s.payload_type {
            b"token_count" => self.keep_tokens(record),
            // Few enough to be parsed: the prefix of a broken record must not begin a turn.
            b"task_started" | b"turn_started" if parse(record).is_some() => {
                self.signal_both(Signal::Started, s.timestamp)
            }
            b"task_complete" | b"turn_complete" => self.signal_both(Signal::Completed { failed: false }, s.timestamp),
            b"turn_aborted" => self.signal_both(Signal::Aborted, s.timestamp),
            b"agent_message" => {
                self.accounts.agent_events = true;
                self.has_agent = true;
                if self.agent_first.is_none() {
                    self.item(record, s.timestamp);
                } else {
                    self.signal_both(Signal::Content, s.timestamp);
                }
            }
            b"agent_reasoning" => self.signal_both(Signal::Content, s.timestamp),
            // Once the first message is known, later ones only begin turns; that they are whole is all that matters.
            b"user_message" if self.known() && is_whole(record) => self.signal_both(Signal::UserMessage, s.timestamp),
            b"item_completed" => match sniff::item_type(&record[s.payload_at..]) {
                Some(b"UserMessage") if self.known() && is_whole(record) => {
                    self.signal_both(Signal::UserMessage, s.timestamp);
                }
                Some(b"AgentMessage") if self.accounts.agent_events && self.agent_first.is_some() => {
                    self.signal_both(Signal::Content, s.timestamp);
                }
                Some(b"CommandExecution" | b"FileChange" | b"McpToolCall") => {
                    self.has_tool = true;
                    self.signal_both(Signal::Content, s.timestamp);
                }
                Some(b"Reasoning") => self.signal_both(Signal::Content, s.timestamp),
                _ => self.item(record, s.timestamp),
            },
            b"context_compacted" | b"patch_apply_end" | b"exec_command_end" | b"mcp_tool_call_end" => {}
            _ => self.item(record, s.timestamp),
        }
    }

    fn response(&mut self, record: &[u8], s: &Sniffed<'_>) {
        match s.payload_type {
            b"function_call" | b"custom_tool_call" | b"local_shell_call" => {
                self.has_tool = true;
                self.signal_both(Signal::Content, s.timestamp);
            }
            b"function_call_output" | b"custom_tool_call_output" | b"reasoning" => {
                self.signal_both(Signal::Content, s.timestamp)
            }
            // Long, in every head, and nothing that a list shows; whole, since another record may be glued to it.
            b"message" if record[s.payload_at..].starts_with(DEVELOPER) && is_whole(record) => {}
            b"message" | b""
                if !(self.accounts.user_events && self.accounts.agent_events) || self.may_begin(record) =>
            {
                self.item(record, s.timestamp)
            }
            _ => {}
        }
    }

    /// Whether the first message of a person is known, in the account that counts.
    fn known(&self) -> bool {
        self.accounts.user_events && self.event.preview.is_some() && self.event.first_user.is_some()
    }

    /// Whether a message of the model's account may begin a turn whose event is missing: only where turns are not
    /// marked, and only a person's.
    fn may_begin(&self, record: &[u8]) -> bool {
        let head = &record[..record.len().min(400)];
        !self.event.turns.is_marked() && memchr::memmem::find(head, b"\"role\":\"user\"").is_some()
    }

    fn keep_tokens(&mut self, record: &[u8]) {
        if memchr::memmem::find(record, b"\"total_token_usage\"").is_some() {
            self.tokens_line.clear();
            self.tokens_line.extend_from_slice(record);
        }
    }

    /// A record whose prefix has another form.
    fn slow(&mut self, record: &[u8], line: &FoldLine<'_>) {
        let Some(envelope) = Envelope::parse(record) else {
            self.records += 1;
            return;
        };
        self.count(envelope.ordinal, line);
        match envelope.kind {
            Kind::SessionMeta | Kind::BareMeta => {
                let first = self.header.is_none();
                if first {
                    self.header = SessionMeta::parse(record);
                    self.header_after_damage = self.damaged > 0;
                }
                if !first {
                    self.time(envelope.time());
                }
                return;
            }
            Kind::EventMsg if envelope.payload_type().as_deref() == Some("token_count") => self.keep_tokens(record),
            Kind::BareState => return,
            _ => {
                let item = Item::parse(&envelope);
                let timestamp = envelope.timestamp.clone().unwrap_or_default();
                self.take(&item, timestamp.as_bytes());
            }
        }
        self.time(envelope.time());
    }

    fn item(&mut self, record: &[u8], timestamp: &[u8]) {
        if let Some(item) = parse(record) {
            return self.take(&item, timestamp);
        }
        // Its ends looked whole; it may be several records glued together.
        if let LineState::Recovered(records, _) = check_line(record) {
            records.iter().filter_map(|r| parse(r)).for_each(|item| self.take(&item, timestamp));
        }
    }

    /// Keeps the files that a patch changes.
    fn touch(&mut self, body: &ItemBody) {
        let ItemBody::Patch { changes, .. } = body else { return };
        for file in changes.iter().flat_map(FileChange::files) {
            if self.touched.len() < TOUCHED && !self.touched.contains(file) {
                self.touched.insert(file.to_owned());
            }
        }
    }

    fn take(&mut self, item: &Item, timestamp: &[u8]) {
        if self.check == Check::Whole {
            self.touch(&item.body);
        }
        match &item.body {
            ItemBody::UserMessage { text, images } => {
                self.has_user = true;
                let event = item.origin != Origin::Response;
                self.accounts.user_events |= event;
                let account = if event { &mut self.event } else { &mut self.response };
                if account.preview.is_none() {
                    account.preview = preview::message_preview(text, !images.is_empty()).map(str::to_owned);
                }
                if account.first_user.is_none() {
                    account.first_user =
                        Some(preview::strip_request_prefix(text)).filter(|t| !t.is_empty()).map(str::to_owned);
                }
            }
            ItemBody::AgentMessage { text, .. } => {
                let text = text.trim();
                self.has_agent |= !text.is_empty();
                self.accounts.agent_events |= item.origin != Origin::Response;
                if self.agent_first.is_none() && !text.is_empty() {
                    self.agent_first = Some(text.to_owned());
                }
            }
            ItemBody::Goal { objective, .. } => {
                let objective = objective.trim();
                if !objective.is_empty() {
                    self.has_goal = true;
                    for account in [&mut self.event, &mut self.response] {
                        account.preview.get_or_insert_with(|| objective.to_owned());
                    }
                }
            }
            ItemBody::ToolCall { .. }
            | ItemBody::Patch { .. }
            | ItemBody::Plan { .. }
            | ItemBody::ToolOutput { .. } => {
                self.has_tool = true;
            }
            ItemBody::Settings { model: Some(model), .. } => {
                self.settings_line.clear();
                self.model = Some(model.clone());
            }
            _ => {}
        }
        // Each account has its own view of which messages begin turns.
        let with_events = Accounts { user_events: true, agent_events: true }.signal(item);
        let without = Accounts::default().signal(item);
        let without = if item.origin != Origin::Response && matches!(item.body, ItemBody::UserMessage { .. }) {
            Signal::None
        } else {
            without
        };
        step(&mut self.event, with_events, timestamp);
        if !self.accounts.user_events {
            step(&mut self.response, without, timestamp);
        }
    }

    fn signal_both(&mut self, signal: Signal, timestamp: &[u8]) {
        step(&mut self.event, signal, timestamp);
        if !self.accounts.user_events {
            step(&mut self.response, signal, timestamp);
        }
    }
}

/// How a message of the program's own begins.
const DEVELOPER: &[u8] = br#"{"type":"message","role":"developer""#;

fn is_whole(record: &[u8]) -> bool {
    matches!(check_line(record), LineState::Record(_))
}

fn parse(record: &[u8]) -> Option<Item> {
    Some(Item::parse(&Envelope::parse(record)?))
}

fn step(account: &mut Account, signal: Signal, timestamp: &[u8]) {
    let time = || std::str::from_utf8(timestamp).ok().and_then(UtcMillis::parse);
    match account.turns.step(signal) {
        Step::Begin(_) => account.turn_started = time().or(account.turn_started),
        Step::Hold => account.held = time(),
        Step::BeginHeld(_) => account.turn_started = account.held.or(account.turn_started),
        Step::Stay | Step::End(_) | Step::RollBack(_) => {}
    }
}

/// Whether a record is one of those that tell of changed files.
fn may_change_files(record: &[u8], s: &Sniffed<'_>) -> bool {
    match s.payload_type {
        b"patch_apply_end" => true,
        b"item_completed" => sniff::item_type(&record[s.payload_at..]) == Some(b"FileChange"),
        b"function_call" | b"custom_tool_call" | b"local_shell_call" => {
            memchr::memmem::find(record, b"*** Begin Patch").is_some()
        }
        _ => false,
    }
}
