//! Schemas without what has clients repeat an argument in a header.

use serde_json::Value;

/// The keyword with which a schema has clients repeat an argument in a header, which nobody reads here.
pub(super) const IN_HEADER: &str = "x-mcp-header";
/// The keywords whose members are schemas by name.
const BY_NAME: [&str; 5] = [
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
    "dependentSchemas",
];
/// The keywords whose values are data.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

/// Takes the keyword out of a schema, and leaves properties alone that are named like it.
pub(super) fn unmirrored(schema: &mut Value) {
    match schema {
        Value::Object(keywords) => {
            keywords.remove(IN_HEADER);
            for (keyword, value) in keywords {
                if DATA.contains(&keyword.as_str()) {
                    continue;
                }
                match value {
                    Value::Object(named) if BY_NAME.contains(&keyword.as_str()) => {
                        named.values_mut().for_each(unmirrored);
                    }
                    other => unmirrored(other),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(unmirrored),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
