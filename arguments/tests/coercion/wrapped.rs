//! Which arguments stand in a wrapper or in the envelope of a call, by words that are written down a second time here.

use arguments::{Limits, Schema, parse_any};
use serde_json::{Map, Value};

/// Whether all that was sent stands in a wrapper, or is a call in a format of some API, of which the schema knows no name:
/// it must not run as it is, even if it fits.
pub(crate) fn is_wrapped(schema: &Schema, sent: &Value, tool: &str) -> bool {
    const WRAPPERS: [&str; 8] = [
        "arguments",
        "args",
        "parameters",
        "params",
        "input",
        "tool_input",
        "action_input",
        "kwargs",
    ];
    const COMPANIONS: [&str; 17] = [
        "tool_use",
        "tooluse",
        "toolcall",
        "tool_call",
        "toolcallid",
        "tooluseid",
        "functioncall",
        "function_call",
        "id",
        "type",
        "name",
        "tool",
        "tool_name",
        "function",
        "call_id",
        "tool_call_id",
        "tool_use_id",
    ];
    let root = schema.source();
    let mut open = vec![root];
    let (mut names, mut is_map) = (Vec::new(), false);
    while let Some(schema) = open.pop() {
        names.extend(
            schema["properties"]
                .as_object()
                .into_iter()
                .flat_map(Map::keys),
        );
        is_map |= ["additionalProperties", "patternProperties"]
            .iter()
            .any(|word| schema[word].is_object());
        let unions = ["allOf", "anyOf", "oneOf"]
            .iter()
            .filter_map(|word| schema[word].as_array());
        open.extend(unions.flatten());
        open.extend(
            ["if", "then", "else"]
                .iter()
                .filter_map(|word| schema.get(word)),
        );
        let target = schema["$ref"]
            .as_str()
            .map(|target| target.trim_start_matches('#'));
        open.extend(target.and_then(|target| root.pointer(target)));
    }
    let declared = |name: &str| names.iter().any(|known| *known == name);
    let Some(entries) = sent.as_object() else {
        return false;
    };
    let is_one_of = |names: &[&str], name: &str| names.contains(&&*name.to_ascii_lowercase());
    let wrapper = |name: &str| is_one_of(&WRAPPERS, name) || name == tool;
    let known = |name: &str, value: &Value| declared(name) && !(name == "name" && value == tool);
    // What a vendor publishes beside the arguments, where it is that vendor's format.
    let beside: &[&str] = match entries.get("type").and_then(Value::as_str) {
        _ if entries.contains_key("functionCall") => &["thought", "thoughtsignature"],
        Some("function") => &["index"],
        Some("function_call") => &["status", "namespace", "caller", "created_by"],
        Some("tool_use") => &["caller", "toolset_name", "cache_control"],
        _other => &[],
    };
    let foreign = |(name, value): (&String, &Value)| {
        (wrapper(name) || is_one_of(&COMPANIONS, name) || is_one_of(beside, name))
            && !known(name, value)
    };
    if let Some((name, _)) = holder_of_call(sent, tool, &WRAPPERS, 3)
        && !declared(name)
        && !(is_map && schema.is_valid(sent))
    {
        return true;
    }
    if !entries.iter().all(foreign) || (is_map && schema.is_valid(sent)) {
        return false;
    }
    let holds = |value: &Value| object(value).is_some();
    let holder = |(name, value): (&String, &Value)| {
        (wrapper(name)
            || is_one_of(
                &[
                    "function",
                    "functioncall",
                    "function_call",
                    "tooluse",
                    "tool_use",
                    "toolcall",
                    "tool_call",
                ],
                name,
            ))
            && holds(value)
    };
    let mut beside = entries.keys().filter(|name| !wrapper(name));
    let wrappers = entries.keys().filter(|name| wrapper(name)).count();
    let alone = beside.all(|name| name == "name") && wrappers == 1;
    alone || entries.iter().any(holder)
}

/// What holds the arguments of a call that names the tool, or of a type of a call that names any, whatever stands beside.
fn holder_of_call<'a>(
    sent: &'a Value,
    tool: &str,
    wrappers: &[&str],
    levels: usize,
) -> Option<(&'a String, &'a Value)> {
    const CALLS: [&str; 9] = [
        "function",
        "functioncall",
        "function_call",
        "tooluse",
        "tool_use",
        "toolcall",
        "tool_call",
        "tool_calls",
        "toolcalls",
    ];
    const NAMES: [&str; 8] = [
        "name",
        "tool",
        "tool_name",
        "function",
        "toolname",
        "function_name",
        "recipient_name",
        "action",
    ];
    const TYPES: [&str; 5] = [
        "function",
        "tool_use",
        "tool_call",
        "tool-call",
        "function_call",
    ];
    let entries = sent.as_object().filter(|_| levels > 0)?;
    let is_one_of = |names: &[&str], name: &str| names.contains(&&*name.to_ascii_lowercase());
    let is_typed = entries
        .get("type")
        .and_then(Value::as_str)
        .is_some_and(|kind| TYPES.contains(&kind));
    let is_named = entries.iter().any(|(name, value)| {
        let value = value
            .as_str()
            .map(|value| value.trim_start_matches("functions."));
        (is_one_of(&NAMES, name) && value == Some(tool))
            || (is_typed && is_one_of(&NAMES[..4], name) && value.is_some())
    });
    let is_call = |value: &Value| {
        (is_typed && value.get("name").is_some())
            || holder_of_call(value, tool, wrappers, levels - 1).is_some()
    };
    entries.iter().find(|(name, value)| {
        let may_hold = is_one_of(wrappers, name) || is_one_of(&CALLS, name) || *name == tool;
        may_hold
            && match value {
                Value::Array(calls) => calls.iter().any(is_call),
                value => object(value).is_some_and(|inside| is_named || is_call(&inside)),
            }
    })
}

/// An object, or the one that a text is of.
fn object(value: &Value) -> Option<Value> {
    let object = match value {
        Value::String(text) => parse_any(text.as_bytes(), &Limits::DEFAULT).ok()?,
        other => other.clone(),
    };
    object.is_object().then_some(object)
}
