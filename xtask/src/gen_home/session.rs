//! One session as Codex writes it: the records of a legacy (0.44 to 0.142) or a paginated (0.156, 0.171) rollout.

use std::fmt::Arguments;
use std::io::Write as _;

use clap::ValueEnum;
use jiff::Timestamp;

use crate::gen_home::pools::{Pools, escape};
use crate::gen_home::rng::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Legacy,
    Paginated,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Paginated => "paginated",
        }
    }
}

/// What is settled about a session before its text is written.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seq: usize,
    pub start_ms: u64,
    pub format: Format,
    /// Turns are added until the rollout has this many bytes.
    pub target_bytes: u64,
    pub cwd: String,
    pub source: &'static str,
    pub provider: String,
    /// The first user message without the needle.
    pub first: String,
}

impl Plan {
    /// The word that stands in this session and in no other.
    pub fn needle(&self) -> String {
        format!("ndl{}q", self.seq)
    }

    pub fn has_zebracorn(&self) -> bool {
        self.seq % 100 == 7
    }
}

/// What became of a plan.
pub struct Written {
    pub id: String,
    pub version: &'static str,
    pub turns: usize,
    /// The time of the last record.
    pub end_ms: u64,
}

/// How much past its target the last turn may carry a rollout.
const OVERSHOOT: u64 = 200_000;

pub fn timestamp(ms: u64) -> Timestamp {
    Timestamp::from_millisecond(ms as i64).expect("the plan keeps to the years that rollouts are from")
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    rng: Rng,
    pools: &'a Pools,
    plan: &'a Plan,
    id: String,
    version: &'static str,
    clock_ms: u64,
    last_ms: u64,
    ordinal: u64,
    total_tokens: u64,
}

/// Appends the records of `plan` to `out`.
pub fn write(out: &mut Vec<u8>, rng: Rng, pools: &Pools, plan: &Plan) -> Written {
    let mut w = Writer {
        out,
        rng,
        pools,
        plan,
        id: String::new(),
        version: "",
        clock_ms: plan.start_ms,
        last_ms: plan.start_ms,
        ordinal: 0,
        total_tokens: 0,
    };
    w.id = w.rng.uuid7(plan.start_ms);
    w.version = match plan.format {
        Format::Legacy => w.rng.pick::<str>(&["0.44.0", "0.63.0", "0.98.0", "0.118.0", "0.142.0"]),
        Format::Paginated => w.rng.pick::<str>(&["0.156.0", "0.171.0"]),
    };
    w.header();
    let mut turns = 0;
    while turns == 0 || w.size() < plan.target_bytes {
        w.turn(turns);
        turns += 1;
    }
    Written { id: w.id, version: w.version, turns, end_ms: w.last_ms }
}

impl Writer<'_> {
    fn size(&self) -> u64 {
        self.out.len() as u64
    }

    fn paginated(&self) -> bool {
        self.plan.format == Format::Paginated
    }

    /// Turn ids and the events at the start and end of a turn came with 0.105.
    fn has_turn_events(&self) -> bool {
        !matches!(self.version, "0.44.0" | "0.63.0" | "0.98.0")
    }

    /// One line. The clock goes on a little after it.
    fn record(&mut self, kind: &str, payload: Arguments<'_>) {
        let at = timestamp(self.clock_ms);
        let written = if self.paginated() {
            let ordinal = self.ordinal;
            writeln!(self.out, r#"{{"timestamp":"{at:.3}","ordinal":{ordinal},"type":"{kind}","payload":{payload}}}"#)
        } else {
            writeln!(self.out, r#"{{"timestamp":"{at:.3}","type":"{kind}","payload":{payload}}}"#)
        };
        written.expect("writing to memory does not fail");
        self.last_ms = self.clock_ms;
        self.ordinal += 1;
        self.clock_ms += self.rng.range(2, 900);
    }

    fn event(&mut self, payload: Arguments<'_>) {
        self.record("event_msg", payload);
    }

    fn response(&mut self, payload: Arguments<'_>) {
        self.record("response_item", payload);
    }

    /// The visible form of an item in a paginated rollout.
    fn item(&mut self, turn: &str, duration_ms: u64, item: Arguments<'_>) {
        let (id, start) = (self.id.clone(), self.clock_ms);
        let end = start + duration_ms;
        self.event(format_args!(
            r#"{{"type":"item_completed","thread_id":"{id}","turn_id":"{turn}","item":{item},"started_at_ms":{start},"completed_at_ms":{end}}}"#
        ));
    }

    fn header(&mut self) {
        let Plan { cwd, source, provider, start_ms, .. } = self.plan;
        let (id, version, base) = (self.id.clone(), self.version, &self.pools.base_instructions);
        let at = timestamp(*start_ms);
        let originator = if *source == "exec" { "codex_exec" } else { "codex_cli_rs" };
        let (before, thread_source, after) = if self.paginated() {
            (
                format!(r#""account_scoped":true,"session_id":"{id}","#),
                r#""thread_source":"user","#,
                format!(
                    r#""history_mode":"paginated","context_window":{{"window_id":"{}"}},"#,
                    self.rng.uuid7(start_ms + 2)
                ),
            )
        } else {
            (String::new(), "", String::new())
        };
        let (commit, repository) = (self.rng.hex(40), cwd.rsplit('/').next().unwrap_or_default());
        self.record("session_meta", format_args!(
            r#"{{{before}"id":"{id}","timestamp":"{at:.3}","cwd":"{cwd}","originator":"{originator}","cli_version":"{version}","source":"{source}",{thread_source}"model_provider":"{provider}","base_instructions":{{"text":"{base}"}},{after}"git":{{"commit_hash":"{commit}","branch":"main","repository_url":"https://example.invalid/o/{repository}.git"}}}}"#
        ));
    }

    fn turn(&mut self, number: usize) {
        let (pools, plan) = (self.pools, self.plan);
        let turn = self.rng.uuid7(self.clock_ms);
        let started_ms = self.clock_ms;
        let started = started_ms / 1000;
        if self.paginated() {
            self.event(format_args!(
                r#"{{"type":"task_started","turn_id":"{turn}","root_turn_id":"{turn}","started_at":{started},"model_context_window":258400,"collaboration_mode_kind":"default"}}"#
            ));
        } else if self.has_turn_events() {
            self.event(format_args!(
                r#"{{"type":"task_started","turn_id":"{turn}","model_context_window":258400,"collaboration_mode_kind":"default"}}"#
            ));
        }
        if number == 0 {
            self.injected_context();
        }
        let turn_id = if self.has_turn_events() { format!(r#""turn_id":"{turn}","#) } else { String::new() };
        let cwd = &plan.cwd;
        self.record("turn_context", format_args!(
            r#"{{{turn_id}"cwd":"{cwd}","approval_policy":"never","sandbox_policy":{{"type":"danger-full-access"}},"model":"gpt-5.1-codex","summary":"auto"}}"#
        ));
        if number == 0 {
            let first = escape(&format!("{} {}", plan.first, plan.needle()));
            self.user_message(&turn, &first);
        } else {
            let message = self.rng.pick::<str>(&pools.users_json);
            self.user_message(&turn, message);
        }
        let steps = [0, 1, 1, 2, 3, 5, 8][self.rng.below(7) as usize];
        for _ in 0..steps {
            if self.rng.chance(0.5) {
                self.reasoning(&turn);
            }
            self.command(&turn);
            self.token_count();
            if self.size() > plan.target_bytes + OVERSHOOT {
                break;
            }
        }
        let mut answer = self.rng.pick::<str>(&pools.answers).to_owned();
        if number == 0 && plan.has_zebracorn() {
            answer.push_str(" zebracorn");
        }
        self.agent_message(&turn, &answer);
        if self.paginated() {
            let (completed, duration) = (self.clock_ms / 1000, self.clock_ms - started * 1000);
            self.event(format_args!(
                r#"{{"type":"task_complete","root_turn_id":"{turn}","turn_id":"{turn}","last_agent_message":"{answer}","started_at":{started},"completed_at":{completed},"duration_ms":{duration}}}"#
            ));
        } else if self.has_turn_events() {
            self.event(format_args!(
                r#"{{"type":"task_complete","turn_id":"{turn}","last_agent_message":"{answer}"}}"#
            ));
        }
        self.clock_ms += self.rng.range(5000, 400_000);
    }

    /// What Codex says to the model before the first user message; no person wrote it.
    fn injected_context(&mut self) {
        let (developer, cwd) = (&self.pools.developer, &self.plan.cwd);
        self.response(format_args!(
            r#"{{"type":"message","role":"developer","content":[{{"type":"input_text","text":"{developer}"}}]}}"#
        ));
        self.response(format_args!(
            r#"{{"type":"message","role":"user","content":[{{"type":"input_text","text":"<environment_context>\n  <cwd>{cwd}</cwd>\n  <shell>bash</shell>\n</environment_context>"}}]}}"#
        ));
    }

    /// `"id":"…",` on response items: paginated rollouts have it.
    fn item_id(&self, id: &str) -> String {
        if self.paginated() { format!(r#""id":"{id}","#) } else { String::new() }
    }

    fn user_message(&mut self, turn: &str, text: &str) {
        let id = format!("msg_{}", self.rng.uuid7(self.clock_ms));
        let id = self.item_id(&id);
        let passthrough = if self.paginated() {
            format!(r#","internal_chat_message_metadata_passthrough":{{"turn_id":"{turn}"}}"#)
        } else {
            String::new()
        };
        self.response(format_args!(
            r#"{{"type":"message",{id}"role":"user","content":[{{"type":"input_text","text":"{text}"}}]{passthrough}}}"#
        ));
        if self.paginated() {
            let id = self.rng.uuid7(self.clock_ms);
            self.item(turn, 0, format_args!(
                r#"{{"type":"UserMessage","id":"{id}","content":[{{"type":"text","text":"{text}","text_elements":[]}}]}}"#
            ));
        } else {
            self.event(format_args!(
                r#"{{"type":"user_message","message":"{text}","images":[],"local_images":[],"text_elements":[]}}"#
            ));
        }
    }

    fn reasoning(&mut self, turn: &str) {
        let pools = self.pools;
        let (text, encrypted) = (self.rng.pick::<str>(&pools.users_json), self.rng.pick::<str>(&pools.encrypted));
        let id = format!("rs_{}", self.rng.hex(50));
        if self.paginated() {
            self.item(
                turn,
                5,
                format_args!(r#"{{"type":"Reasoning","id":"{id}","summary_text":["{text}"],"raw_content":[]}}"#),
            );
        } else {
            self.event(format_args!(r#"{{"type":"agent_reasoning","text":"{text}"}}"#));
        }
        let id = self.item_id(&id);
        self.response(format_args!(
            r#"{{"type":"reasoning",{id}"summary":[{{"type":"summary_text","text":"{text}"}}],"content":null,"encrypted_content":"{encrypted}"}}"#
        ));
    }

    fn command(&mut self, turn: &str) {
        let (pools, cwd) = (self.pools, &self.plan.cwd);
        let call = format!("call_{}", self.rng.hex(24));
        let word = self.rng.pick::<str>(&pools.words);
        let command = match self.rng.below(4) {
            0 => format!("rg -n {word} src"),
            1 => format!("cat src/{word}.rs"),
            2 => format!("cargo test {word}"),
            _ => format!("git diff -- {word}"),
        };
        let output = self.rng.pick::<str>(&pools.outputs);
        let alert = if self.rng.chance(0.05) { r"\nquuxalert found\n" } else { "" };
        let id = format!("fc_{}", self.rng.hex(32));
        let id = self.item_id(&id);
        self.response(format_args!(
            r#"{{"type":"function_call",{id}"name":"exec_command","arguments":"{{\"cmd\":\"{command}\"}}","call_id":"{call}"}}"#
        ));
        if self.paginated() {
            let process = self.rng.below(99_999);
            self.item(turn, 30, format_args!(
                r#"{{"type":"CommandExecution","id":"{call}","process_id":"{process}","command":["/bin/bash","-lc","{command}"],"cwd":"file://{cwd}","parsed_cmd":[{{"type":"unknown","cmd":"{command}"}}],"source":"unified_exec_startup","status":"completed","aggregated_output":"{output}{alert}","exit_code":0,"duration":{{"secs":0,"nanos":31417421}}}}"#
            ));
        }
        let id = format!("fco_{}", self.rng.uuid7(self.clock_ms));
        let (id, chunk) = (self.item_id(&id), self.rng.hex(6));
        self.response(format_args!(
            r#"{{"type":"function_call_output",{id}"call_id":"{call}","output":"Chunk ID: {chunk}\nWall time: 0.0317 seconds\nProcess exited with code 0\nOriginal token count: 4\nOutput:\n{output}{alert}"}}"#
        ));
    }

    fn token_count(&mut self) {
        self.total_tokens += self.rng.range(500, 5000);
        let (total, last) = (usage(self.total_tokens), usage(900));
        self.event(format_args!(
            r#"{{"type":"token_count","info":{{"total_token_usage":{total},"last_token_usage":{last},"model_context_window":258400}},"rate_limits":null}}"#
        ));
    }

    fn agent_message(&mut self, turn: &str, text: &str) {
        let id = format!("msg_{}", self.rng.hex(32));
        if self.paginated() {
            self.item(
                turn,
                0,
                format_args!(r#"{{"type":"AgentMessage","id":"{id}","content":[{{"type":"Text","text":"{text}"}}]}}"#),
            );
        } else {
            self.event(format_args!(r#"{{"type":"agent_message","message":"{text}"}}"#));
        }
        let id = self.item_id(&id);
        self.response(format_args!(
            r#"{{"type":"message",{id}"role":"assistant","content":[{{"type":"output_text","text":"{text}"}}]}}"#
        ));
    }
}

fn usage(input: u64) -> String {
    let (cached, output, reasoning, total) = (input / 2, input / 20, input / 50, input + input / 20);
    format!(
        r#"{{"input_tokens":{input},"cached_input_tokens":{cached},"output_tokens":{output},"reasoning_output_tokens":{reasoning},"total_tokens":{total}}}"#
    )
}
