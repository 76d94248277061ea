//! Token usage as `token_count` tells it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Cumulative token counts of a thread, or the difference of two of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUsage {
    /// Tokens sent, cached ones included.
    pub input: i64,
    /// Of those, served from a cache.
    pub cached_input: i64,
    /// Tokens produced, reasoning included.
    pub output: i64,
    /// Of those, reasoning.
    pub reasoning_output: i64,
    /// Input and output together, as recorded.
    pub total: i64,
}

impl TokenUsage {
    /// Reads `info.total_token_usage` of a `token_count` payload; `None` where it has none (`info: null`).
    #[must_use]
    pub fn from_token_count(payload: &Value) -> Option<Self> {
        Self::from_usage(payload.get("info")?.get("total_token_usage")?)
    }

    /// Reads one usage object; missing numbers are 0.
    #[must_use]
    pub fn from_usage(usage: &Value) -> Option<Self> {
        let object = usage.as_object()?;
        let n = |key: &str| object.get(key).and_then(Value::as_i64).unwrap_or(0);
        Some(Self {
            input: n("input_tokens"),
            cached_input: n("cached_input_tokens"),
            output: n("output_tokens"),
            reasoning_output: n("reasoning_output_tokens"),
            total: n("total_tokens"),
        })
    }

    /// What is in `self` and not in `inherited`, never below zero.
    #[must_use]
    pub fn without(self, inherited: Self) -> Self {
        let d = |a: i64, b: i64| (a - b).max(0);
        Self {
            input: d(self.input, inherited.input),
            cached_input: d(self.cached_input, inherited.cached_input),
            output: d(self.output, inherited.output),
            reasoning_output: d(self.reasoning_output, inherited.reasoning_output),
            total: d(self.total, inherited.total),
        }
    }
}
