//! Members of a vendor's object that are moved out of it, and objects that are put together as text: a long reply is there once. Pure.

use serde_json::Value;

/// A member, which is no longer there.
pub(super) fn taken(object: &mut Value, name: &str) -> Option<Value> {
    object.as_object_mut()?.remove(name)
}

/// The items of a list, which is no longer there; none of what is no list.
pub(super) fn list(object: &mut Value, name: &str) -> Vec<Value> {
    match taken(object, name) {
        Some(Value::Array(items)) => items,
        _other => Vec::new(),
    }
}

/// A member that is a text.
pub(super) fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

/// As JSON; `null` where there is nothing.
pub(super) fn json(value: Option<&Value>) -> String {
    value.map_or_else(|| "null".to_owned(), Value::to_string)
}

/// A text as JSON.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The JSON of an object with these members, whose names are plain words, each with its JSON.
pub(super) fn object(members: &[(&str, &str)]) -> String {
    around("{}", members)
}

/// The JSON of this object with these members besides, none of which it has.
pub(super) fn around(object: &str, members: &[(&str, &str)]) -> String {
    let inner = object
        .strip_prefix('{')
        .and_then(|open| open.strip_suffix('}'));
    let inner = inner.unwrap_or_default();
    let more: usize = members
        .iter()
        .map(|(name, json)| name.len() + json.len() + 4)
        .sum();
    let mut text = String::with_capacity(inner.len() + more + 2);
    text.push('{');
    text.push_str(inner);
    for (name, json) in members {
        if text.len() > 1 {
            text.push(',');
        }
        for piece in ["\"", name, "\":", json] {
            text.push_str(piece);
        }
    }
    text.push('}');
    text
}
