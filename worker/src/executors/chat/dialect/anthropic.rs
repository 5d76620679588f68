//! Anthropic's Messages.

use serde_json::{Map, Value};

use super::form::{Dialect, Finish, TokenUsage, count, counted, is_filled, is_there, items, word};

pub(super) struct Anthropic;

/// Tools that the caller's program runs although the vendor defines them; a date follows.
const OF_THE_CALLER: [&str; 4] = ["bash", "text_editor", "computer", "memory"];

impl Dialect for Anthropic {
    fn said(&self) -> &'static [&'static str] {
        &["messages", "system", "tools"]
    }

    fn answer_limits(&self) -> &'static [&'static str] {
        &["max_tokens"]
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[("anthropic-version", "2023-06-01")]
    }

    fn has_schema(&self, request: &Map<String, Value>) -> bool {
        let of_config = request
            .get("output_config")
            .and_then(|config| config.get("format"));
        [of_config, request.get("output_format")]
            .into_iter()
            .flatten()
            .any(|format| word(format, "type") == "json_schema")
    }

    fn images(&self) -> &'static [&'static str] {
        &["image"]
    }

    fn runs_at_the_caller(&self, tool: &Map<String, Value>) -> bool {
        match tool.get("type") {
            None => true,
            Some(Value::String(kind)) => {
                let dated = |name: &&str| {
                    let date = kind
                        .strip_prefix(*name)
                        .and_then(|rest| rest.strip_prefix('_'));
                    date.is_some_and(|date| date.bytes().all(|byte| byte.is_ascii_digit()))
                };
                kind == "custom" || OF_THE_CALLER.iter().any(dated)
            }
            Some(_) => false,
        }
    }

    fn hosting(&self) -> &'static [(&'static str, &'static str)] {
        &[("mcp_servers", "mcp")]
    }

    fn has_failed(&self, reply: &Map<String, Value>) -> bool {
        is_there(reply.get("error")) || reply.get("type").is_some_and(|kind| kind == "error")
    }

    fn answer<'r>(&self, reply: &'r Map<String, Value>) -> Option<&'r Value> {
        reply.get("content").filter(|content| content.is_array())
    }

    fn finish(&self, reply: &Map<String, Value>) -> Finish {
        let why = reply.get("stop_reason").and_then(Value::as_str);
        match why.unwrap_or_default() {
            "end_turn" | "stop_sequence" => Finish::Stop,
            "tool_use" => Finish::ToolCalls,
            "max_tokens" | "model_context_window_exceeded" => Finish::Length,
            "refusal" => Finish::Refusal,
            _unknown => Finish::Other,
        }
    }

    fn is_empty(&self, reply: &Map<String, Value>) -> bool {
        items(reply.get("content"))
            .iter()
            .all(|block| match word(block, "type") {
                "text" => !is_filled(block.get("text")),
                "thinking" | "redacted_thinking" => true,
                _others => false,
            })
    }

    fn usage(&self, reply: &Map<String, Value>) -> Option<TokenUsage> {
        let usage = counted(reply, "input_tokens")?;
        // The three counts of what was read are apart from each other.
        let cached_input = count(usage, "/cache_read_input_tokens");
        let cache_write = count(usage, "/cache_creation_input_tokens");
        Some(TokenUsage {
            input: count(usage, "/input_tokens") + cached_input + cache_write,
            cached_input,
            cache_write,
            output: count(usage, "/output_tokens"),
            reasoning: 0,
            estimated: false,
        })
    }
}
