//! What the schema of a manifest says of each place.

use serde_json::Value;

use crate::arguments::pointer_segment;

/// What the schema says of a place.
pub(super) fn node<'s>(schema: &'s Value, path: &str) -> Option<&'s Value> {
    let mut at = schema;
    for segment in path.split('/').skip(1) {
        at = follow(schema, at);
        let inside = at["properties"].get(segment.replace("~1", "/").replace("~0", "~"));
        let inside = inside.or_else(|| at["prefixItems"].get(segment.parse::<usize>().ok()?));
        at = inside
            .or_else(|| segment.parse::<usize>().ok().and_then(|_| at.get("items")))
            .or_else(|| at.get("additionalProperties").filter(|it| it.is_object()))?;
    }
    Some(follow(schema, at))
}

/// The target of a reference; our schema has no references with other keywords beside them.
pub(super) fn follow<'s>(schema: &'s Value, node: &'s Value) -> &'s Value {
    let target = node["$ref"].as_str().and_then(|at| at.strip_prefix('#'));
    target.and_then(|at| schema.pointer(at)).unwrap_or(node)
}

pub(super) fn properties<'s>(
    schema: &'s Value,
    node: &'s Value,
) -> Option<&'s serde_json::Map<String, Value>> {
    follow(schema, node)["properties"].as_object()
}

pub(super) fn types(node: &Value) -> Vec<&str> {
    match &node["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _any => Vec::new(),
    }
}

/// An example that the schema gives, or a value that it allows.
pub(super) fn example(schema: &Value, node: &Value) -> Option<Value> {
    let node = follow(schema, node);
    let given = node["examples"].get(0).or_else(|| node.get("default"));
    let given = given.or_else(|| node["enum"].get(0));
    given.cloned().or_else(|| match types(node).first()? {
        &"boolean" => Some(Value::Bool(true)),
        &"integer" | &"number" => Some(node.get("minimum")?.clone()),
        _structured => None,
    })
}

/// Other places where the schema has a field of this name.
pub(super) fn homes_of(
    name: &str,
    schema: &Value,
    node: &Value,
    path: &str,
    homes: &mut Vec<String>,
) {
    let Some(properties) = properties(schema, node) else {
        return;
    };
    if properties.contains_key(name) {
        homes.push(path.to_owned());
    }
    for (inner, node) in properties {
        let path = format!("{path}/{}", pointer_segment(inner));
        homes_of(name, schema, node, &path, homes);
    }
}
