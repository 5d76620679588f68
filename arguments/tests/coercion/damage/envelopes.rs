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
    let (sites, args) = (&source.gold.sites, source.gold.args.as_object()?);
    let Value::Object(envelope) = envelope else {
        panic!("an envelope is an object");
    };
    let is_map = sites.maps.iter().any(String::is_empty);
    let is_known = |name: &String| {
        let mut absent = sites.absent.iter();
        args.contains_key(name) || absent.any(|(at, absent, _)| at.is_empty() && absent == name)
    };
    let may_be = !is_map && !envelope.keys().any(is_known);
    may_be.then(|| Damage::of(replaced(args, envelope)))
}

fn replaced(args: &Map<String, Value>, envelope: Map<String, Value>) -> Vec<Change> {
    let removed = args.keys().map(|name| Change::Remove(under("", name)));
    let added = envelope
        .into_iter()
        .map(|(name, value)| Change::Add(String::new(), name, value));
    removed.chain(added).collect()
}
