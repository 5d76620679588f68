//! The top level of an input schema, as it is written.

use serde_json::{Map, Value};

use crate::arguments::keywords;

/// The top-level properties of an input schema.
pub(super) fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(Map::iter)
}

/// Whether a caller must give this top-level property.
pub(super) fn is_required(schema: &Value, name: &str) -> bool {
    keywords::required(schema).contains(&name)
}
