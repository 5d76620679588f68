//! OpenAI's Chat Completions, and the many servers that speak it.

use serde_json::{Map, Value};

use super::form::{Dialect, Finish, TokenUsage, count, counted, is_filled, is_there, items, word};

pub(super) struct OpenaiChat;

impl Dialect for OpenaiChat {
    fn said(&self) -> &'static [&'static str] {
        &["messages", "tools", "functions", "response_format"]
    }

    fn answer_limits(&self) -> &'static [&'static str] {
        &["max_completion_tokens", "max_tokens"]
    }

    fn has_tools(&self, request: &Map<String, Value>) -> bool {
        is_filled(request.get("tools")) || is_filled(request.get("functions"))
    }

    fn has_schema(&self, request: &Map<String, Value>) -> bool {
        let format = request.get("response_format");
        format.is_some_and(|format| word(format, "type") == "json_schema")
    }

    fn images(&self) -> &'static [&'static str] {
        &["image_url"]
    }

    fn runs_at_the_caller(&self, tool: &Map<String, Value>) -> bool {
        // Servers that speak this protocol let the type be left out.
        let kind = tool
            .get("type")
            .map(|kind| kind.as_str().unwrap_or_default());
        matches!(kind, None | Some("function" | "custom"))
    }

    fn hosting(&self) -> &'static [(&'static str, &'static str)] {
        &[("web_search_options", "web_search")]
    }

    fn has_failed(&self, reply: &Map<String, Value>) -> bool {
        is_there(reply.get("error"))
            || reply.get("object").is_some_and(|object| object == "error")
            || choices(reply)
                .iter()
                .any(|choice| word(choice, "finish_reason") == "error")
    }

    fn answer<'r>(&self, reply: &'r Map<String, Value>) -> Option<&'r Value> {
        let first = choices(reply).first()?;
        first.get("message")?.as_object()?;
        reply.get("choices")
    }

    fn finish(&self, reply: &Map<String, Value>) -> Finish {
        let Some(choice) = choices(reply).first() else {
            return Finish::Other;
        };
        let message = &choice["message"];
        match word(choice, "finish_reason") {
            "stop" if is_filled(message.get("refusal")) => Finish::Refusal,
            // Some servers say stop, and want tools to be called.
            "stop" if calls(message) => Finish::ToolCalls,
            "stop" => Finish::Stop,
            "tool_calls" | "function_call" => Finish::ToolCalls,
            "length" => Finish::Length,
            "content_filter" => Finish::Refusal,
            _unknown => Finish::Other,
        }
    }

    fn is_empty(&self, reply: &Map<String, Value>) -> bool {
        choices(reply).iter().all(|choice| {
            let message = &choice["message"];
            let says = ["content", "refusal", "audio", "images"]
                .iter()
                .any(|member| is_filled(message.get(*member)));
            !says && !calls(message)
        })
    }

    fn usage(&self, reply: &Map<String, Value>) -> Option<TokenUsage> {
        let usage = counted(reply, "prompt_tokens")?;
        let cached = count(usage, "/prompt_tokens_details/cached_tokens");
        Some(TokenUsage {
            input: count(usage, "/prompt_tokens"),
            cached_input: cached.max(count(usage, "/prompt_cache_hit_tokens")),
            cache_write: count(usage, "/prompt_tokens_details/cache_write_tokens"),
            output: count(usage, "/completion_tokens"),
            reasoning: count(usage, "/completion_tokens_details/reasoning_tokens"),
            estimated: false,
        })
    }
}

fn choices(reply: &Map<String, Value>) -> &[Value] {
    items(reply.get("choices"))
}

fn calls(message: &Value) -> bool {
    is_filled(message.get("tool_calls")) || is_filled(message.get("function_call"))
}
