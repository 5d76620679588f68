//! Whole calls in the formats of model APIs, where the arguments alone were to be sent.

use serde_json::{Map, Value, json};

use super::{Change, Damage, Source};
use crate::{pointer::under, random::Chance};

/// A call of this tool.
pub(super) fn of_this_tool(source: &Source<'_>, chance: &mut Chance) -> Option<Damage> {
    let args = inside(source, chance);
    let envelope = match chance.below(10) {
        0 => json!({"type": "tool_use", "id": "t1", "name": source.tool, "input": args}),
        1 => json!({"name": source.tool, "arguments": args, "id": 1}),
        2 => json!({"tool": source.tool, "arguments": args}),
        3 => json!({"tool_name": source.tool, "tool_input": args, "tool_use_id": "t1"}),
        4 => json!({"function": source.tool, "parameters": args}),
        5 => json!({
            "type": "function_call",
            "id": "f1",
            "call_id": "c1",
            "name": source.tool,
            "arguments": args,
            "status": "completed",
        }),
        6 => json!({
            "type": "tool_use",
            "id": "t1",
            "name": source.tool,
            "input": args,
            "caller": {"type": "direct"},
        }),
        7 => json!({"functionCall": {"id": "c1", "name": source.tool, "args": args}}),
        8 => json!({
            "functionCall": {"name": source.tool, "args": args},
            "thoughtSignature": "c2ln",
        }),
        _ => json!({
            "id": "c1",
            "type": "function",
            "function": {"name": source.tool, "arguments": args},
        }),
    };
    put_into(envelope, source)
}

/// The same as others publish it, with what these have beside it.
pub(super) fn of_others(source: &Source<'_>, chance: &mut Chance) -> Option<Damage> {
    let args = inside(source, chance);
    let envelope = match chance.below(8) {
        0 => json!({"name": source.tool, "arguments": args, "_meta": {"progressToken": 1}}),
        1 => json!({
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": source.tool, "arguments": args},
        }),
        2 => json!({"toolUse": {"toolUseId": "t1", "name": source.tool, "input": args}}),
        3 => json!({"recipient_name": format!("functions.{}", source.tool), "parameters": args}),
        4 => json!({"action": source.tool, "action_input": args}),
        5 => json!({
            "type": "tool-call",
            "toolCallId": "c1",
            "toolName": source.tool,
            "args": args,
        }),
        6 => json!({"id": "c1", "function": {"name": source.tool, "arguments": args}, "index": 0}),
        _ => json!({
            "name": source.tool,
            "args": args,
            "id": "c1",
            "type": "tool_call",
            "error": null,
        }),
    };
    put_into(envelope, source)
}

/// A call with something beside it that no format has.
pub(super) fn with_more(source: &Source<'_>, chance: &mut Chance) -> Option<Damage> {
    let args = inside(source, chance);
    let envelope = match chance.below(4) {
        0 => json!({"thought": "so", "action": source.tool, "action_input": args}),
        1 => json!({"type": "mcp_call", "name": source.tool, "arguments": args, "label": "x"}),
        2 => json!({"name": source.tool, "description": "so", "parameters": args}),
        _ => json!({"tool_calls": [{"name": source.tool, "arguments": args}]}),
    };
    put_into(envelope, source)
}

/// A call of this tool, where the tool declares a name that is the format's, too.
pub(super) fn with_own_key(source: &Source<'_>, chance: &mut Chance) -> Option<Damage> {
    put_over(typed(source, source.tool, chance), source)
}

/// The same of another tool.
pub(super) fn of_other_tool_with_own_key(
    source: &Source<'_>,
    chance: &mut Chance,
) -> Option<Damage> {
    put_over(
        typed(source, &format!("other_{}", source.tool), chance),
        source,
    )
}

fn typed(source: &Source<'_>, tool: &str, chance: &mut Chance) -> Value {
    let args = inside(source, chance);
    match chance.below(4) {
        0 => json!({"type": "tool_use", "id": "t1", "name": tool, "input": args}),
        1 => json!({
            "type": "function_call",
            "id": "f1",
            "call_id": "c1",
            "name": tool,
            "arguments": args,
        }),
        2 => json!({"name": tool, "args": args, "id": "c1", "type": "tool_call"}),
        _ => json!({
            "id": "c1",
            "type": "function",
            "function": {"name": tool, "arguments": args},
        }),
    }
}

/// A wrapper around one that is none of ours.
pub(super) fn around_unknown(source: &Source<'_>, chance: &mut Chance) -> Option<Damage> {
    let inner = *chance.of(&["data", "payload", "properties", "request", "body"]);
    let is_empty = source.gold.args.as_object()?.is_empty();
    (!is_empty && !is_known(source, inner)).then_some(())?;
    let outer = *chance.of(&[
        "arguments",
        "args",
        "parameters",
        "params",
        "input",
        "kwargs",
    ]);
    put_into(json!({outer: {inner: inside(source, chance)}}), source)
}

/// A call of another tool, or one of which it is not certain what is called with what.
pub(super) fn in_doubt(source: &Source<'_>, chance: &mut Chance) -> Option<Damage> {
    let args = inside(source, chance);
    let other = format!("other_{}", source.tool);
    let envelope = match chance.below(10) {
        0 => json!({"type": "tool_use", "id": "t1", "name": other, "input": args}),
        1 => json!({"type": "tool_result", "name": source.tool, "input": args}),
        2 => json!({"name": null, "arguments": args, "id": 1}),
        3 => json!({"name": 5, "arguments": args}),
        4 => json!({"Arguments": args}),
        5 => json!({"id": 7, "arguments": args}),
        6 => json!({"function": args}),
        7 => json!({
            "type": "function_call",
            "call_id": "c1",
            "name": source.tool,
            "arguments": args,
            "status": "incomplete",
        }),
        8 => json!({"functionCall": {"name": other, "args": args}}),
        _ => json!({"type": "function", "function": {"name": other, "arguments": args}}),
    };
    put_into(envelope, source)
}

fn inside(source: &Source<'_>, chance: &mut Chance) -> Value {
    match chance.percent(25) {
        true => json!(source.gold.args.to_string()),
        false => source.gold.args.clone(),
    }
}

/// Not where the tool knows one of the names: then it is that property that was sent.
fn put_into(envelope: Value, source: &Source<'_>) -> Option<Damage> {
    let envelope = entries(envelope);
    let may_be = !is_map(source) && !envelope.keys().any(|name| is_known(source, name));
    may_be.then(|| replaced(source, envelope))?
}

/// Where the tool knows one of the names, and it is not one that holds arguments.
fn put_over(envelope: Value, source: &Source<'_>) -> Option<Damage> {
    let envelope = entries(envelope);
    let as_text = source.gold.args.to_string();
    let mut holders = envelope
        .iter()
        .filter(|(_, value)| value.is_object() || value.as_str() == Some(&*as_text));
    let may_be = !is_map(source)
        && !holders.any(|(name, _)| is_known(source, name))
        && envelope.keys().any(|name| is_known(source, name));
    may_be.then(|| replaced(source, envelope))?
}

fn is_map(source: &Source<'_>) -> bool {
    source.gold.sites.maps.iter().any(String::is_empty)
}

fn is_known(source: &Source<'_>, name: &str) -> bool {
    let mut absent = source.gold.sites.absent.iter();
    source.gold.args.get(name).is_some()
        || absent.any(|(at, absent, _)| at.is_empty() && absent == name)
}

fn entries(envelope: Value) -> Map<String, Value> {
    let Value::Object(entries) = envelope else {
        panic!("an envelope is an object");
    };
    entries
}

fn replaced(source: &Source<'_>, envelope: Map<String, Value>) -> Option<Damage> {
    let args = source.gold.args.as_object()?;
    let removed = args.keys().map(|name| Change::Remove(under("", name)));
    let added = envelope
        .into_iter()
        .map(|(name, value)| Change::Add(String::new(), name, value));
    Some(Damage::of(removed.chain(added).collect()))
}
