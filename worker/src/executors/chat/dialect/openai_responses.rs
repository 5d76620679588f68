//! OpenAI's Responses.

use serde_json::{Map, Value};

use super::form::{Dialect, Finish, TokenUsage, count, counted, is_filled, is_there, items, word};

pub(super) struct OpenaiResponses;

impl Dialect for OpenaiResponses {
    fn said(&self) -> &'static [&'static str] {
        &["input", "instructions", "tools", "text"]
    }

    fn answer_limits(&self) -> &'static [&'static str] {
        &["max_output_tokens"]
    }

    fn has_schema(&self, request: &Map<String, Value>) -> bool {
        let format = request.get("text").and_then(|text| text.get("format"));
        format.is_some_and(|format| word(format, "type") == "json_schema")
    }

    fn images(&self) -> &'static [&'static str] {
        &["input_image"]
    }

    fn runs_at_the_caller(&self, tool: &Map<String, Value>) -> bool {
        match tool.get("type").and_then(Value::as_str) {
            Some(
                "function"
                | "custom"
                | "local_shell"
                | "apply_patch"
                | "computer"
                | "computer_use_preview",
            ) => true,
            // Otherwise it is a container of the vendor's.
            Some("shell") => {
                let place = tool.get("environment");
                place.is_some_and(|place| word(place, "type") == "local")
            }
            Some(_) | None => false,
        }
    }

    fn hosting(&self) -> &'static [(&'static str, &'static str)] {
        // A request that is kept at the vendor may name tools that nobody here sees.
        &[("prompt", "prompt")]
    }

    fn has_failed(&self, reply: &Map<String, Value>) -> bool {
        is_there(reply.get("error"))
            || reply.get("object").is_some_and(|object| object == "error")
            || matches!(status(reply), "failed" | "cancelled")
    }

    fn answer<'r>(&self, reply: &'r Map<String, Value>) -> Option<&'r Value> {
        reply.get("output").filter(|output| output.is_array())
    }

    fn finish(&self, reply: &Map<String, Value>) -> Finish {
        let why = || {
            let details = reply.get("incomplete_details");
            details
                .map(|details| word(details, "reason"))
                .unwrap_or_default()
        };
        match status(reply) {
            "incomplete" => match why() {
                "max_output_tokens" => Finish::Length,
                "content_filter" => Finish::Refusal,
                _unknown => Finish::Other,
            },
            // Servers that speak this protocol leave it out.
            "completed" | "" if output(reply).iter().any(is_call) => Finish::ToolCalls,
            "completed" | "" if parts(reply).any(|part| word(part, "type") == "refusal") => {
                Finish::Refusal
            }
            "completed" | "" => Finish::Stop,
            _unknown => Finish::Other,
        }
    }

    fn is_empty(&self, reply: &Map<String, Value>) -> bool {
        let is_message = |item: &Value| matches!(word(item, "type"), "message" | "reasoning");
        let says = |part: &Value| {
            ["text", "refusal"]
                .iter()
                .any(|member| is_filled(part.get(*member)))
                || !matches!(word(part, "type"), "output_text" | "refusal")
        };
        output(reply).iter().all(is_message) && !parts(reply).any(says)
    }

    fn usage(&self, reply: &Map<String, Value>) -> Option<TokenUsage> {
        let usage = counted(reply, "input_tokens")?;
        Some(TokenUsage {
            input: count(usage, "/input_tokens"),
            cached_input: count(usage, "/input_tokens_details/cached_tokens"),
            cache_write: count(usage, "/input_tokens_details/cache_write_tokens"),
            output: count(usage, "/output_tokens"),
            reasoning: count(usage, "/output_tokens_details/reasoning_tokens"),
            estimated: false,
        })
    }
}

fn status(reply: &Map<String, Value>) -> &str {
    reply
        .get("status")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn output(reply: &Map<String, Value>) -> &[Value] {
    items(reply.get("output"))
}

/// Whether somebody has to do something for the item: a call of a tool that the vendor does not run is not done.
fn is_call(item: &Value) -> bool {
    matches!(
        word(item, "type"),
        "function_call"
            | "custom_tool_call"
            | "local_shell_call"
            | "shell_call"
            | "apply_patch_call"
            | "computer_call"
            | "mcp_approval_request"
    )
}

/// The parts of all messages.
fn parts(reply: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let messages = output(reply)
        .iter()
        .filter(|item| word(item, "type") == "message");
    messages.flat_map(|message| items(message.get("content")))
}
