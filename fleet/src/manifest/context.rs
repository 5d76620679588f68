//! How the conversation of a chat tool is kept within a number of tokens.

use serde::{Deserialize, Serialize};

use super::{executor::ExecutorSpec, problem::Problems};
use crate::{call::words, ids::ToolName};

words! {
    /// What becomes of the older part of a conversation that is too long.
    ContextStrategy {
        /// The first messages and the last ones stay.
        Trim = "trim",
        /// The last turns of the user stay.
        SlidingWindow = "sliding_window",
        /// A summary stands for what is older than about half of what may stay.
        Summarize = "summarize",
        /// A summary stands for what is older than the last turns of the user.
        Hybrid = "hybrid",
    }
}

impl ContextStrategy {
    /// Whether a model is asked for summaries.
    pub const fn has_summary(self) -> bool {
        match self {
            Self::Trim | Self::SlidingWindow => false,
            Self::Summarize | Self::Hybrid => true,
        }
    }
}

/// The longest conversation that a model is sent, and what is left out of a longer one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ContextSpec {
    /// What becomes of the older part.
    pub strategy: ContextStrategy,
    /// How many tokens a request may have at most, its tools included and its answer not. A route with less room has less.
    #[serde(default = "ContextSpec::default_max_tokens")]
    pub max_tokens: u64,
    /// How many messages behind the system's stay at the beginning, with `trim`.
    #[serde(default = "ContextSpec::default_keep_first")]
    pub keep_first: u32,
    /// How many messages stay at the end, with `trim`.
    #[serde(default = "ContextSpec::default_keep_last")]
    pub keep_last: u32,
    /// How many turns of the user stay at the end, with `sliding_window` and `hybrid`.
    #[serde(default = "ContextSpec::default_keep_turns")]
    pub keep_turns: u32,
    /// From how many tokens on a summary stands for the older part, with `summarize`.
    #[serde(default = "ContextSpec::default_summarize_above")]
    pub summarize_above: u64,
    /// The chat tool on whose routes summaries are written. `None`: on the tool's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary_tool: Option<ToolName>,
    /// When old results of tools are left out. `None`: never by themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clear_tool_results: Option<ClearToolResults>,
}

/// When old results of tools are left out of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClearToolResults {
    /// From how many tokens of the request on.
    pub above: u64,
    /// How many of the newest stay.
    #[serde(default = "ClearToolResults::default_keep")]
    pub keep: u32,
}

impl ClearToolResults {
    const fn default_keep() -> u32 {
        3
    }
}

impl ContextSpec {
    const fn default_max_tokens() -> u64 {
        8_000
    }

    const fn default_keep_first() -> u32 {
        2
    }

    const fn default_keep_last() -> u32 {
        10
    }

    const fn default_keep_turns() -> u32 {
        6
    }

    const fn default_summarize_above() -> u64 {
        4_000
    }

    /// Everything that is wrong with it for a tool that is run so.
    pub(super) fn check(
        &self,
        executor: &ExecutorSpec,
        is_sensitive: bool,
        problems: &mut Problems,
    ) {
        if !matches!(executor, ExecutorSpec::Chat(_)) {
            problems.add(
                "/context",
                "only a model has a conversation, and this is no chat tool; leave context out",
            );
        }
        let has_summary = self.strategy.has_summary();
        if has_summary && is_sensitive {
            problems.add(
                "/context/strategy",
                "summaries are kept, and sensitive values in them are not known; write trim or sliding_window",
            );
        }
        if self.strategy == ContextStrategy::Summarize && self.summarize_above > self.max_tokens {
            problems.add(
                "/context/summarize_above",
                format!(
                    "a request has at most max_tokens, which is {}; write less than that",
                    self.max_tokens
                ),
            );
        }
        if !has_summary && self.summary_tool.is_some() {
            problems.add(
                "/context/summary_tool",
                "this strategy writes no summaries; leave summary_tool out, or write summarize or hybrid",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::manifest::parse;

    const CHAT: &str = r#"{"chat": {"protocol": "openai_chat", "routes": [{"name": "a", "url": "https://x/", "model": "m"}]}}"#;
    const HTTP: &str = r#"{"http": {"method": "GET", "url": "https://x/"}}"#;

    fn read(executor: &str, context: &Value, more: &Value) -> Result<ContextSpec, Vec<String>> {
        let executor: Value = serde_json::from_str(executor).unwrap();
        let mut manifest = json!({
            "name": "ask", "version": 1, "description": "Answers.", "effect": "read",
            "executor": executor, "context": context,
        });
        for (name, value) in more.as_object().unwrap() {
            manifest[name] = value.clone();
        }
        let say = |problem: &crate::manifest::ManifestProblem| {
            format!("{} {}", problem.path, problem.message)
        };
        match parse(&manifest.to_string()) {
            Ok(manifest) => Ok(manifest.context.unwrap()),
            Err(problems) => Err(problems.iter().map(say).collect()),
        }
    }

    #[test]
    fn what_need_not_be_said_has_defaults() {
        let read = read(CHAT, &json!({"strategy": "hybrid"}), &json!({})).unwrap();
        let all = json!({
            "strategy": "hybrid", "max_tokens": 8000, "keep_first": 2, "keep_last": 10, "keep_turns": 6, "summarize_above": 4000,
        });
        assert_eq!(serde_json::to_value(&read).unwrap(), all);
        let clear: ClearToolResults = serde_json::from_value(json!({"above": 2000})).unwrap();
        assert_eq!(clear.keep, 3);
    }

    #[test]
    fn what_does_not_fit_is_refused_where_it_stands() {
        let schema = json!({
            "type": "object",
            "properties": {"messages": {"type": "array", "items": {"type": "object"}}, "card": {"type": "string"}},
        });
        let sensitive = json!({"input_schema": schema, "sensitive": {"pointers": ["/card"]}});
        let none = json!({});
        let plain =
            json!({"input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}});
        for (executor, context, more, begins) in [
            (
                HTTP,
                json!({"strategy": "trim"}),
                &plain,
                "/context only a model",
            ),
            (CHAT, json!({"strategy": "all"}), &none, "/context/strategy"),
            (CHAT, json!({}), &none, "/context"),
            (
                CHAT,
                json!({"strategy": "trim", "max_tokens": 99}),
                &none,
                "/context/max_tokens",
            ),
            (
                CHAT,
                json!({"strategy": "trim", "keep_last": 0}),
                &none,
                "/context/keep_last",
            ),
            (
                CHAT,
                json!({"strategy": "trim", "clear_tool_results": {}}),
                &none,
                "/context/clear_tool_results",
            ),
            (
                CHAT,
                json!({"strategy": "summarize", "summarize_above": 9000}),
                &none,
                "/context/summarize_above a request has at most max_tokens, which is 8000",
            ),
            (
                CHAT,
                json!({"strategy": "trim", "summary_tool": "sum_up"}),
                &none,
                "/context/summary_tool this strategy writes no summaries",
            ),
            (
                CHAT,
                json!({"strategy": "hybrid"}),
                &sensitive,
                "/context/strategy summaries are kept",
            ),
        ] {
            let found = read(executor, &context, more).unwrap_err();
            assert!(
                found.iter().any(|problem| problem.starts_with(begins)),
                "{context}: {found:?}"
            );
        }
        assert!(read(CHAT, &json!({"strategy": "trim"}), &sensitive).is_ok());
        // Summaries are no calls of the tool, so its own name is one.
        let own = json!({"strategy": "hybrid", "summary_tool": "ask"});
        assert!(read(CHAT, &own, &none).is_ok());
    }
}
