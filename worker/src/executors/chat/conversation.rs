//! A conversation by reference: the first item of a request may be `{"$call": id}`, which stands for all that another call asked and
//! was answered. Pure.
//!
//! What is stored, hashed and told is the reference. The vendor gets the messages of all calls, in their order.

use fleet::{
    arguments::{Limits, parse_any},
    ids::CallId,
    manifest::ChatProtocol,
    outcome::ToolFailure,
    references::CALL,
    said,
    store::conversations::ConversationTurn,
    wire::{code::Code, message::Message},
};
use serde_json::{Map, Value, json};

use super::dialect;

/// The most values of the messages that a reference stands for, as arguments may have: each is held while the model is waited for, and a
/// small one takes hundreds of bytes.
const VALUES_MAX: usize = 100_000;

/// Why messages were not put together.
const UNREADABLE: Message = Message::fixed(
    "the conversation that the request goes on from cannot be read any more",
    "该请求所接续的对话已无法读取",
);

/// Whether arguments in canonical form may go on from another call.
pub(crate) fn may_refer(stored: &str) -> bool {
    stored.contains("\"$call\"")
}

/// The member of a request that has its messages.
pub(crate) fn member(protocol: ChatProtocol) -> &'static str {
    dialect::of(protocol).messages()
}

/// The call that a request goes on from; `None`: it has all of its messages.
///
/// # Errors
///
/// `invalid_arguments`: something has the form of a reference, and is none.
pub(crate) fn earlier(protocol: ChatProtocol, args: &Value) -> Result<Option<CallId>, ToolFailure> {
    let items = args.get(member(protocol)).and_then(Value::as_array);
    let items = items.map_or(&[][..], Vec::as_slice);
    let is_reference = |item: &Value| item.get(CALL).is_some();
    if items.iter().skip(1).any(is_reference) {
        let what = Message::fixed(
            "a $call stands for the beginning of the conversation: send it as the first message, once",
            "$call 代表对话的开头：请把它作为第一条消息发送，且只发送一次",
        );
        return Err(ToolFailure::new(Code::InvalidArguments, what));
    }
    let Some(first) = items.first().filter(|item| is_reference(item)) else {
        return Ok(None);
    };
    let is_alone = first.as_object().is_some_and(|item| item.len() == 1);
    let id = first.get(CALL).and_then(Value::as_str);
    match id.and_then(|id| id.parse().ok()) {
        Some(call) if is_alone => Ok(Some(call)),
        _malformed => {
            let what = Message::fixed(
                "a message that goes on from a call has $call, the call_id, and nothing else",
                "接续某次调用的消息只含 $call（即 call_id），不能有其他字段",
            );
            Err(ToolFailure::new(Code::InvalidArguments, what))
        }
    }
}

/// The request with the messages of these calls, the first one first, in the place of its reference.
///
/// # Errors
///
/// `not_found`: what is stored of a call cannot be read. `payload_too_large`: there are more than 100,000 values.
pub(crate) fn joined(
    protocol: ChatProtocol,
    mut args: Value,
    turns: &[ConversationTurn],
) -> Result<Value, ToolFailure> {
    let mut messages = Vec::new();
    let mut room = VALUES_MAX;
    for turn in turns {
        let (asked, answered) = (read(&turn.args), read(&turn.result));
        let (Some(mut asked), Some(answered)) = (asked, answered) else {
            return Err(ToolFailure::new(Code::NotFound, UNREADABLE));
        };
        let said = own(protocol, &mut asked);
        let reply = answered.get("reply").and_then(Value::as_object);
        let none = Map::new();
        let reply = dialect::of(protocol).said_by_model(reply.unwrap_or(&none));
        for message in said.into_iter().chain(reply) {
            room = room.checked_sub(values(&message)).ok_or_else(too_many)?;
            messages.push(message);
        }
    }
    messages.extend(own(protocol, &mut args));
    if let Some(place) = args.get_mut(member(protocol)) {
        *place = Value::Array(messages);
    }
    Ok(args)
}

/// How many values a message has, itself and all within it.
fn values(message: &Value) -> usize {
    let mut open = vec![message];
    let mut count = 0;
    while let Some(value) = open.pop() {
        count += 1;
        match value {
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    count
}

fn too_many() -> ToolFailure {
    let what = said!(
        "the conversation that $call stands for has more than {VALUES_MAX} JSON values: begin a new one with what matters of it",
        "$call 所代表的对话超过 {VALUES_MAX} 个 JSON 值：请用其中重要的内容开始新的对话"
    );
    ToolFailure::new(Code::PayloadTooLarge, what)
}

/// The messages of a request, without its reference.
fn own(protocol: ChatProtocol, args: &mut Value) -> Vec<Value> {
    match args.get_mut(member(protocol)).map(Value::take) {
        Some(Value::Array(items)) => {
            let is_message = |item: &Value| item.get(CALL).is_none();
            items.into_iter().filter(is_message).collect()
        }
        // OpenAI's Responses take a text for a message of the user.
        Some(Value::String(text)) => vec![json!({"role": "user", "content": text})],
        _none => Vec::new(),
    }
}

fn read(stored: &str) -> Option<Value> {
    parse_any(stored.as_bytes(), &Limits::ANSWER).ok()
}

#[cfg(test)]
mod tests;
