//! The keywords of one schema object, as they are written.

use jsonschema::paths::Location;
use serde_json::Value;

/// References followed to find out what something is.
const REFERENCES_MAX: usize = 8;

/// The types that it names.
pub fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _not_named => Vec::new(),
    }
}

/// The only values that it takes, if it lists them.
pub fn values(schema: &Value) -> Option<Vec<&Value>> {
    match (schema.get("const"), schema.get("enum")) {
        (Some(only), _) => Some(vec![only]),
        (None, Some(Value::Array(options))) => Some(options.iter().collect()),
        (None, _) => None,
    }
}

/// The properties that it requires.
pub fn required(schema: &Value) -> Vec<&str> {
    let names = schema.get("required").and_then(Value::as_array);
    let names = names.into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}

/// The schema that its local reference leads to; itself where it has none.
pub fn resolve<'v>(mut schema: &'v Value, root: &'v Value) -> &'v Value {
    for _ in 0..REFERENCES_MAX {
        let pointer = schema.get("$ref").and_then(Value::as_str);
        match pointer.and_then(|pointer| root.pointer(pointer.strip_prefix('#')?)) {
            Some(target) => schema = target,
            None => break,
        }
    }
    schema
}

/// Another keyword of the schema in which this keyword stands.
pub(crate) fn beside<'v>(
    keyword_path: &Location,
    root: Option<&'v Value>,
    keyword: &str,
) -> Option<&'v Value> {
    let (parent, _) = keyword_path.as_str().rsplit_once('/')?;
    root?.pointer(parent)?.get(keyword)
}
