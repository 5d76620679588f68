//! The request of a call: what is fixed over the caller's body over the defaults, and what is refused of it. Pure.

use fleet::{
    manifest::ChatSpec,
    outcome::ToolFailure,
    said,
    wire::{code::Code, message::Message},
};
use serde_json::{Map, Value};

use super::dialect::Dialect;

/// The member that makes a vendor count the tokens of a stream.
const COUNTS: &str = "stream_options";

/// The request without its model, which is its route's.
///
/// # Errors
///
/// `invalid_arguments`: it asks for what would make another call of it than a read that is over when it is answered.
pub(super) fn request(
    spec: &ChatSpec,
    dialect: &dyn Dialect,
    sent: &Map<String, Value>,
) -> Result<Map<String, Value>, ToolFailure> {
    let mut request = spec.defaults.clone();
    for (name, value) in sent.iter().chain(&spec.fixed) {
        request.insert(name.clone(), value.clone());
    }
    let is_left_out = |members: &Map<String, Value>| members.get(COUNTS) == Some(&Value::Null);
    if is_left_out(sent) && !is_left_out(&spec.fixed) {
        // Whether a vendor counts is for who pays to say.
        request.remove(COUNTS);
    }
    if let Some(why) = refusal(&spec.hosted_tools, dialect, &request) {
        return Err(ToolFailure::new(Code::InvalidArguments, why));
    }
    if is_streamed(&request) {
        dialect.ask_for_stream(&mut request);
    }
    Ok(request)
}

/// Whether it asks for a stream.
pub(super) fn is_streamed(request: &Map<String, Value>) -> bool {
    request.get("stream") == Some(&Value::Bool(true))
}

/// The refusal of a stream that nobody would hear.
pub(super) fn unheard() -> ToolFailure {
    let what = Message::fixed(
        "a stream is told to the session of its call, and this call has none that hears it: send the header Toolfleet-Session, or leave `stream` out; the result is the same",
        "流式内容会发送给调用所属的会话，而这次调用没有可接收的会话：请发送 Toolfleet-Session 头，或去掉 `stream`；结果相同",
    );
    ToolFailure::new(Code::InvalidArguments, what)
}

/// The refusal of a stream of a tool with sensitive values.
pub(super) fn sensitive() -> ToolFailure {
    let what = Message::fixed(
        "this tool has sensitive values, which cannot be found in the pieces of a stream: leave `stream` out; the result is the same",
        "这个工具含有敏感值，在流的片段中无法识别它们：请去掉 `stream`；结果相同",
    );
    ToolFailure::new(Code::InvalidArguments, what)
}

/// The request on a route. Numbers are kept as decimal text, so they are sent as they came.
pub(super) fn on_route(request: &Map<String, Value>, model: &str) -> Vec<u8> {
    let mut request = request.clone();
    request.insert("model".to_owned(), Value::from(model));
    Value::Object(request).to_string().into_bytes()
}

fn refusal(
    allowed: &[String],
    dialect: &dyn Dialect,
    request: &Map<String, Value>,
) -> Option<Message> {
    let is_on = |name: &str| {
        let value = request.get(name);
        value.is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
    };
    if is_on("stream") && !is_streamed(request) {
        return Some(Message::fixed(
            "`stream` is true or false",
            "`stream` 只能是 true 或 false",
        ));
    }
    if is_on("background") {
        return Some(Message::fixed(
            "a call is over when its model has answered: leave `background` out, and submit the call without waiting for it",
            "模型回答之后调用就结束了：请去掉 `background`，并以不等待的方式提交调用",
        ));
    }
    let kept = ["previous_response_id", "conversation"];
    if let Some(name) = kept.into_iter().find(|name| is_on(name)) {
        return Some(said!(
            "`{name}` refers to what the vendor keeps, which the fleet cannot see: send the conversation itself",
            "`{name}` 指向供应商保存的内容，集群无法看到：请直接发送对话内容"
        ));
    }
    if dialect.refers_to_kept(request) {
        return Some(Message::fixed(
            "an item of `input` refers to what the vendor keeps, which the fleet cannot see: send the item itself, or begin with {\"$call\": call_id}",
            "`input` 中有一项指向供应商保存的内容，集群无法看到：请直接发送该项，或以 {\"$call\": call_id} 开头",
        ));
    }
    let hosted = hosted(dialect, request).find(|kind| !is_named(allowed, kind))?;
    Some(said!(
        "the vendor would run {hosted:?} by itself, and hosted_tools of this tool does not name it: leave it out",
        "供应商会自行运行 {hosted:?}，而这个工具的 hosted_tools 没有列出它：请去掉"
    ))
}

/// The types of all tools that the vendor would run.
fn hosted<'r>(
    dialect: &'r dyn Dialect,
    request: &'r Map<String, Value>,
) -> impl Iterator<Item = &'r str> {
    let none = &[][..];
    let (tools, is_list) = match request.get("tools") {
        None | Some(Value::Null) => (none, true),
        Some(Value::Array(tools)) => (tools.as_slice(), true),
        Some(_other) => (none, false),
    };
    let no_list = (!is_list).then_some("tools that are no list");
    let of_tools = tools.iter().filter_map(|tool| {
        let Some(tool) = tool.as_object() else {
            return Some("a tool that is no object");
        };
        let kind = tool.get("type").and_then(Value::as_str);
        (!dialect.runs_at_the_caller(tool)).then_some(kind.unwrap_or("a tool without a type"))
    });
    let members = dialect.hosting().iter().filter_map(|(member, kind)| {
        let value = request.get(*member)?;
        let is_set = match value {
            Value::Null => false,
            Value::Array(items) => !items.is_empty(),
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => true,
        };
        is_set.then_some(*kind)
    });
    no_list.into_iter().chain(of_tools).chain(members)
}

/// Whether a tool of this type is named: by the type, or by it without the date, or the word preview, that vendors put behind it.
fn is_named(allowed: &[String], kind: &str) -> bool {
    allowed.iter().any(|name| {
        let Some(rest) = kind.strip_prefix(name.as_str()) else {
            return false;
        };
        let rest = rest.strip_prefix("_preview").unwrap_or(rest);
        rest.bytes()
            .all(|byte| byte == b'_' || byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests;
