//! How a vendor's object is looked into.

use serde_json::{Map, Value};

use super::message::{OfferedTool, ToolCall};

/// A count that the vendor gives; absent ones are none. `None`: it is no count, as what is more than 10^12.
pub(super) fn count(usage: &Value, path: &str) -> Option<u64> {
    match usage.pointer(path) {
        None | Some(Value::Null) => Some(0),
        Some(counted) => counted
            .as_u64()
            .filter(|tokens| *tokens <= 1_000_000_000_000),
    }
}

/// The object with the vendor's count, if it has these members.
pub(super) fn counted<'r>(reply: &'r Map<String, Value>, members: [&str; 2]) -> Option<&'r Value> {
    let usage = reply.get("usage")?;
    let has = |member: &str| is_there(usage.get(member));
    members.into_iter().all(has).then_some(usage)
}

pub(super) fn is_there(value: Option<&Value>) -> bool {
    value.is_some_and(|value| !value.is_null())
}

/// Whether it is a text, a list or an object with something in it.
pub(super) fn is_filled(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::Object(members)) => !members.is_empty(),
    }
}

/// The text of a member.
pub(super) fn word<'v>(value: &'v Value, member: &str) -> &'v str {
    value
        .get(member)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The items of a list; none of what is no list.
pub(super) fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts of a content: itself, or those of its parts.
pub(super) fn texts(content: Option<&Value>) -> impl Iterator<Item = &str> {
    let whole = content.and_then(Value::as_str);
    let parts = items(content)
        .iter()
        .filter_map(|part| part.get("text")?.as_str());
    whole.into_iter().chain(parts)
}

/// What is called, by a member with its id and one with its name.
pub(super) fn call<'m>(id: Option<&'m Value>, name: Option<&'m Value>) -> ToolCall<'m> {
    let text = |value: Option<&'m Value>| value.and_then(Value::as_str).unwrap_or_default();
    ToolCall {
        id: text(id),
        name: text(name),
    }
}

/// A definition with these members.
pub(super) fn tool(definition: &Value) -> OfferedTool<'_> {
    OfferedTool {
        name: definition.get("name").and_then(Value::as_str),
        description: word(definition, "description"),
    }
}

/// The names of the tools that `tool_choice` asks for, where it is an object.
pub(super) fn chosen(request: &Map<String, Value>) -> Vec<&str> {
    let Some(choice) = request.get("tool_choice").filter(|it| it.is_object()) else {
        return Vec::new();
    };
    let mut open = vec![choice];
    let mut names = Vec::new();
    while let Some(value) = open.pop() {
        match value {
            Value::Object(members) => {
                names.extend(members.get("name").and_then(Value::as_str));
                open.extend(members.values());
            }
            Value::Array(items) => open.extend(items),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    names
}

/// Adds a message at the end of a list.
pub(super) fn push(request: &mut Map<String, Value>, member: &str, message: Value) {
    match request.get_mut(member) {
        Some(Value::Array(messages)) => messages.push(message),
        Some(Value::String(text)) => {
            let said = serde_json::json!({"role": "user", "content": text.as_str()});
            request.insert(member.to_owned(), Value::Array(vec![said, message]));
        }
        _none => {}
    }
}

/// The text of a part.
pub(super) fn text_of(part: &mut Value) -> Option<&mut String> {
    match part.get_mut("text") {
        Some(Value::String(text)) => Some(text),
        _none => None,
    }
}

/// The texts of the parts of this type in messages.
pub(super) fn own_texts_of<'m>(
    messages: impl Iterator<Item = &'m mut Value>,
    kind: &str,
) -> Vec<&'m mut String> {
    let parts = messages.filter_map(|message| message.get_mut("content")?.as_array_mut());
    let parts = parts.flatten().filter(|part| word(part, "type") == kind);
    parts.filter_map(text_of).collect()
}
