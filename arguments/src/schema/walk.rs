//! The schemas inside a schema, as it is written: references are not followed, so each is met once.

use serde_json::Value;

use crate::pointer::pointer_segment;

/// A schema that stands in another one.
pub struct Inner<'v> {
    /// The keyword under which it stands.
    pub keyword: &'v str,
    /// The property, pattern or definition, where the keyword has names.
    pub name: Option<&'v str>,
    /// JSON pointer from the outer schema.
    pub place: String,
    /// The schema itself.
    pub schema: &'v Value,
}

/// The schemas directly inside this one.
pub fn inner(schema: &Value) -> Vec<Inner<'_>> {
    let mut found = Vec::new();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let mut add = |name, place, schema| {
            found.push(Inner {
                keyword,
                name,
                place,
                schema,
            });
        };
        match (keyword.as_str(), value) {
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                Value::Object(named),
            ) => {
                for (name, schema) in named {
                    let place = format!("/{keyword}/{}", pointer_segment(name));
                    add(Some(name), place, schema);
                }
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(listed)) => {
                for (index, schema) in listed.iter().enumerate() {
                    add(None, format!("/{keyword}/{index}"), schema);
                }
            }
            (
                "items"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "unevaluatedItems"
                | "contains"
                | "propertyNames"
                | "not"
                | "if"
                | "then"
                | "else",
                schema @ Value::Object(_),
            ) => add(None, format!("/{keyword}"), schema),
            (_other, _) => {}
        }
    }
    found
}
