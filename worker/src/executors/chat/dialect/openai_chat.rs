//! OpenAI's Chat Completions, and the many servers that speak it.

use serde_json::{Map, Value, json};

use super::{
    assembler::Assembler,
    form::{Dialect, Finish, TokenUsage},
    members::{call, chosen, count, counted, is_filled, is_there, items, push, tool, word},
    message::{OfferedTool, Speaker, ToolCall, ToolResult},
    openai_chat_stream::OpenaiChatStream,
};

pub(super) struct OpenaiChat;

impl Dialect for OpenaiChat {
    fn said(&self) -> &'static [&'static str] {
        &["messages", "tools", "functions", "response_format"]
    }

    fn said_by_model(&self, reply: &Map<String, Value>) -> Vec<Value> {
        let first = items(reply.get("choices")).first();
        let message = first.and_then(|choice| choice.get("message"));
        message.cloned().into_iter().collect()
    }

    fn speaker(&self, message: &Value) -> Speaker {
        match word(message, "role") {
            "system" | "developer" => Speaker::System,
            "assistant" => Speaker::Model,
            "tool" | "function" => Speaker::Tool,
            _user => Speaker::User,
        }
    }

    fn calls<'m>(&self, message: &'m Value) -> Vec<ToolCall<'m>> {
        let calls = items(message.get("tool_calls")).iter();
        let named = calls.map(|made| {
            let kind = ["function", "custom"]
                .iter()
                .find_map(|kind| made.get(*kind));
            call(made.get("id"), kind.and_then(|kind| kind.get("name")))
        });
        let old = message.get("function_call");
        let old = old.map(|made| call(made.get("name"), made.get("name")));
        named.chain(old).collect()
    }

    fn results<'m>(&self, message: &'m mut Value) -> Vec<ToolResult<'m>> {
        let is_result = self.speaker(message) == Speaker::Tool;
        let id = self.answered(message).concat();
        let content = message.get_mut("content").filter(|_| is_result);
        content
            .into_iter()
            .map(|content| ToolResult {
                call: id.clone(),
                content,
            })
            .collect()
    }

    fn answered<'m>(&self, message: &'m Value) -> Vec<&'m str> {
        match word(message, "role") {
            "tool" => vec![word(message, "tool_call_id")],
            "function" => vec![word(message, "name")],
            _others => Vec::new(),
        }
    }

    fn note(&self, request: &mut Map<String, Value>, text: &str) {
        // Not `developer`, which many servers that speak this protocol do not know.
        push(
            request,
            "messages",
            json!({"role": "system", "content": text}),
        );
    }

    fn offered<'t>(&self, definition: &'t Value) -> OfferedTool<'t> {
        let inner = ["function", "custom"]
            .iter()
            .find_map(|kind| definition.get(*kind));
        inner.map(tool).unwrap_or_default()
    }

    fn chosen<'r>(&self, request: &'r Map<String, Value>) -> Vec<&'r str> {
        chosen(request)
    }

    fn own_texts<'r>(&self, reply: &'r mut Map<String, Value>) -> Vec<&'r mut String> {
        let choices = reply.get_mut("choices").and_then(Value::as_array_mut);
        let messages = choices
            .into_iter()
            .flatten()
            .filter_map(|choice| choice.get_mut("message"));
        let texts = messages.filter_map(|message| match message.get_mut("content") {
            Some(Value::String(text)) => Some(text),
            _none => None,
        });
        texts.collect()
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

    fn ask_for_stream(&self, request: &mut Map<String, Value>) {
        request.insert("stream".to_owned(), Value::Bool(true));
        match request.get_mut("stream_options") {
            Some(Value::Object(options)) => {
                options.insert("include_usage".to_owned(), Value::Bool(true));
            }
            // Who says so has a server that does not know it.
            Some(Value::Null) => {
                request.remove("stream_options");
            }
            _none => {
                let options = json!({"include_usage": true});
                request.insert("stream_options".to_owned(), options);
            }
        }
    }

    fn assembler(&self) -> Box<dyn Assembler> {
        Box::new(OpenaiChatStream::default())
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
        let usage = counted(reply, ["prompt_tokens", "completion_tokens"])?;
        let cached = count(usage, "/prompt_tokens_details/cached_tokens")?;
        Some(TokenUsage {
            input: count(usage, "/prompt_tokens")?,
            cached_input: cached.max(count(usage, "/prompt_cache_hit_tokens")?),
            cache_write: count(usage, "/prompt_tokens_details/cache_write_tokens")?,
            output: count(usage, "/completion_tokens")?,
            reasoning: count(usage, "/completion_tokens_details/reasoning_tokens")?,
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
