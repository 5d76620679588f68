//! Anthropic's Messages.

use serde_json::{Map, Value, json};

use super::{
    anthropic_stream::AnthropicStream,
    assembler::Assembler,
    form::{Dialect, Finish, TokenUsage},
    members::{
        call, chosen, count, counted, is_filled, is_there, items, text_of, texts, tool, word,
    },
    message::{OfferedTool, Speaker, ToolCall, ToolResult},
};

pub(super) struct Anthropic;

/// How long the answer to a question of ours may be, in tokens, where the tool says nothing: the vendor wants it said.
const ANSWER_TOKENS: u32 = 1_024;

/// Tools that the caller's program runs although the vendor defines them; a date follows.
const OF_THE_CALLER: [&str; 4] = ["bash", "text_editor", "computer", "memory"];

impl Dialect for Anthropic {
    fn said(&self) -> &'static [&'static str] {
        &["messages", "system", "tools"]
    }

    fn said_by_model(&self, reply: &Map<String, Value>) -> Vec<Value> {
        let content = items(reply.get("content"));
        // A message without content is refused, as it stands in a reply that is a refusal.
        let message =
            (!content.is_empty()).then(|| json!({"role": "assistant", "content": content}));
        message.into_iter().collect()
    }

    fn speaker(&self, message: &Value) -> Speaker {
        match word(message, "role") {
            "assistant" => Speaker::Model,
            "system" => Speaker::System,
            _user if blocks(message, "tool_result").next().is_some() => Speaker::Tool,
            _user => Speaker::User,
        }
    }

    fn calls<'m>(&self, message: &'m Value) -> Vec<ToolCall<'m>> {
        let made = blocks(message, "tool_use");
        made.map(|block| call(block.get("id"), block.get("name")))
            .collect()
    }

    fn results<'m>(&self, message: &'m mut Value) -> Vec<ToolResult<'m>> {
        let content = message.get_mut("content").and_then(Value::as_array_mut);
        let results = content
            .into_iter()
            .flatten()
            .filter(|block| word(block, "type") == "tool_result");
        let results = results.filter_map(|block| {
            let call = word(block, "tool_use_id").to_owned();
            Some(ToolResult {
                call,
                content: block.get_mut("content")?,
            })
        });
        results.collect()
    }

    fn answered<'m>(&self, message: &'m Value) -> Vec<&'m str> {
        let results = blocks(message, "tool_result");
        results.map(|block| word(block, "tool_use_id")).collect()
    }

    fn user_texts<'m>(&self, message: &'m Value) -> Vec<&'m str> {
        match self.speaker(message) {
            // What stands behind results is the user's own.
            Speaker::User | Speaker::Tool => texts(message.get("content")).collect(),
            Speaker::System | Speaker::Model => Vec::new(),
        }
    }

    fn joined(&self, messages: Vec<Value>) -> Vec<Value> {
        let mut joined: Vec<Value> = Vec::with_capacity(messages.len());
        for mut message in messages {
            match joined.last_mut() {
                Some(before)
                    if word(before, "role") == "user" && word(&message, "role") == "user" =>
                {
                    if let (Value::String(first), Value::String(next)) =
                        (&mut before["content"], &message["content"])
                    {
                        first.push_str("\n\n");
                        first.push_str(next);
                        continue;
                    }
                    let mut content = content_blocks(before);
                    content.extend(content_blocks(&mut message));
                    before["content"] = Value::Array(content);
                }
                _others => joined.push(message),
            }
        }
        joined
    }

    fn question(&self, system: &str, text: &str) -> Map<String, Value> {
        let mut request = Map::new();
        request.insert("system".to_owned(), json!(system));
        request.insert("max_tokens".to_owned(), json!(ANSWER_TOKENS));
        request.insert("messages".to_owned(), json!([self.user_message(text)]));
        request
    }

    fn note(&self, request: &mut Map<String, Value>, text: &str) {
        let block = json!({"type": "text", "text": text});
        let messages = request.get_mut("messages").and_then(Value::as_array_mut);
        match messages.and_then(|messages| messages.last_mut()) {
            // Behind what was said, so that the vendor finds the beginning among what it has kept.
            Some(last) if word(last, "role") == "user" => {
                let mut content = content_blocks(last);
                content.push(block);
                last["content"] = Value::Array(content);
            }
            _begun => {
                let mut system = match request.remove("system") {
                    Some(Value::Array(blocks)) => blocks,
                    Some(Value::String(text)) => vec![json!({"type": "text", "text": text})],
                    _none => Vec::new(),
                };
                system.push(block);
                request.insert("system".to_owned(), Value::Array(system));
            }
        }
    }

    fn offered<'t>(&self, definition: &'t Value) -> OfferedTool<'t> {
        tool(definition)
    }

    fn chosen<'r>(&self, request: &'r Map<String, Value>) -> Vec<&'r str> {
        chosen(request)
    }

    fn own_texts<'r>(&self, reply: &'r mut Map<String, Value>) -> Vec<&'r mut String> {
        let blocks = reply.get_mut("content").and_then(Value::as_array_mut);
        let blocks = blocks
            .into_iter()
            .flatten()
            .filter(|block| word(block, "type") == "text");
        blocks.filter_map(|block| text_of(block)).collect()
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

    fn assembler(&self) -> Box<dyn Assembler> {
        Box::new(AnthropicStream::default())
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
        let usage = counted(reply, ["input_tokens", "output_tokens"])?;
        // The three counts of what was read are apart from each other.
        let cached_input = count(usage, "/cache_read_input_tokens")?;
        let cache_write = count(usage, "/cache_creation_input_tokens")?;
        Some(TokenUsage {
            input: count(usage, "/input_tokens")? + cached_input + cache_write,
            cached_input,
            cache_write,
            output: count(usage, "/output_tokens")?,
            reasoning: 0,
            estimated: false,
        })
    }
}

/// The blocks of a message of this type.
fn blocks<'m>(message: &'m Value, kind: &'static str) -> impl Iterator<Item = &'m Value> {
    items(message.get("content"))
        .iter()
        .filter(move |block| word(block, "type") == kind)
}

/// What a message says, as blocks; it is taken out.
fn content_blocks(message: &mut Value) -> Vec<Value> {
    match message.get_mut("content").map(Value::take) {
        Some(Value::Array(blocks)) => blocks,
        Some(Value::String(text)) => vec![json!({"type": "text", "text": text})],
        _none => Vec::new(),
    }
}
