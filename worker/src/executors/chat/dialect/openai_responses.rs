//! OpenAI's Responses.

use serde_json::{Map, Value, json};

use super::{
    assembler::Assembler,
    form::{Dialect, Finish, TokenUsage},
    members::{
        call, chosen, count, counted, is_filled, is_there, items, own_texts_of, push, tool, word,
    },
    message::{OfferedTool, Speaker, ToolCall, ToolResult},
    openai_responses_stream::OpenaiResponsesStream,
};

pub(super) struct OpenaiResponses;

impl Dialect for OpenaiResponses {
    fn said(&self) -> &'static [&'static str] {
        &["input", "instructions", "tools", "text"]
    }

    fn messages(&self) -> &'static str {
        "input"
    }

    fn said_by_model(&self, reply: &Map<String, Value>) -> Vec<Value> {
        output(reply).to_vec()
    }

    fn speaker(&self, item: &Value) -> Speaker {
        match (word(item, "type"), word(item, "role")) {
            ("message" | "", "system" | "developer") => Speaker::System,
            ("message" | "", "assistant") => Speaker::Model,
            ("message" | "", _user) => Speaker::User,
            (kind, _) if is_result(kind) => Speaker::Tool,
            _made => Speaker::Model,
        }
    }

    fn calls<'m>(&self, item: &'m Value) -> Vec<ToolCall<'m>> {
        let has_result = match word(item, "type") {
            "mcp_approval_request" => Some(item.get("id")),
            _others if is_call(item) => Some(item.get("call_id")),
            _others => None,
        };
        let called = has_result.map(|id| call(id, item.get("name")));
        called.into_iter().collect()
    }

    fn results<'m>(&self, item: &'m mut Value) -> Vec<ToolResult<'m>> {
        let id = self.answered(item).concat();
        // Of other tools the vendor has forms of its own.
        let content = match word(item, "type") {
            "function_call_output" | "custom_tool_call_output" => item.get_mut("output"),
            _others => None,
        };
        content
            .into_iter()
            .map(|content| ToolResult {
                call: id.clone(),
                content,
            })
            .collect()
    }

    fn answered<'m>(&self, item: &'m Value) -> Vec<&'m str> {
        match word(item, "type") {
            "mcp_approval_response" => vec![word(item, "approval_request_id")],
            kind if is_result(kind) => vec![word(item, "call_id")],
            _others => Vec::new(),
        }
    }

    fn question(&self, system: &str, text: &str) -> Map<String, Value> {
        let mut request = Map::new();
        request.insert("instructions".to_owned(), json!(system));
        request.insert("input".to_owned(), json!([self.user_message(text)]));
        request
    }

    fn note(&self, request: &mut Map<String, Value>, text: &str) {
        push(
            request,
            "input",
            json!({"role": "developer", "content": text}),
        );
    }

    fn offered<'t>(&self, definition: &'t Value) -> OfferedTool<'t> {
        tool(definition)
    }

    fn chosen<'r>(&self, request: &'r Map<String, Value>) -> Vec<&'r str> {
        chosen(request)
    }

    fn own_texts<'r>(&self, reply: &'r mut Map<String, Value>) -> Vec<&'r mut String> {
        let items = reply.get_mut("output").and_then(Value::as_array_mut);
        let messages = items
            .into_iter()
            .flatten()
            .filter(|item| word(item, "type") == "message");
        own_texts_of(messages, "output_text")
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

    fn refers_to_kept(&self, request: &Map<String, Value>) -> bool {
        let is_reference = |item: &Value| match item.get("type").and_then(Value::as_str) {
            Some(kind) => kind == "item_reference",
            // The type may be left out. A message has a role.
            None => is_there(item.get("id")) && !is_there(item.get("role")),
        };
        items(request.get("input")).iter().any(is_reference)
    }

    fn hosting(&self) -> &'static [(&'static str, &'static str)] {
        // A request that is kept at the vendor may name tools that nobody here sees.
        &[("prompt", "prompt")]
    }

    fn assembler(&self) -> Box<dyn Assembler> {
        Box::new(OpenaiResponsesStream::default())
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
        let usage = counted(reply, ["input_tokens", "output_tokens"])?;
        Some(TokenUsage {
            input: count(usage, "/input_tokens")?,
            cached_input: count(usage, "/input_tokens_details/cached_tokens")?,
            cache_write: count(usage, "/input_tokens_details/cache_write_tokens")?,
            output: count(usage, "/output_tokens")?,
            reasoning: count(usage, "/output_tokens_details/reasoning_tokens")?,
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

/// Whether an item of this type is what somebody answered to a call of the model.
fn is_result(kind: &str) -> bool {
    kind.ends_with("_call_output") || kind == "mcp_approval_response"
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
