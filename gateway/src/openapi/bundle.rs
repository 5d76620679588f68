//! The document and the schemas that it refers to, as one: `batch.json#/$defs/x` becomes `#/components/schemas/batch.x`, so that programs
//! that read it need no second file.

use std::sync::LazyLock;

use bytes::Bytes;
use serde_json::Value;

/// As it is written.
const WRITTEN: &str = include_str!("../../../schemas/openapi.json");
/// What it refers to, by the name of the file.
const SCHEMAS: [(&str, &str); 2] = [
    ("batch", include_str!("../../../schemas/batch.json")),
    ("envelopes", include_str!("../../../schemas/envelopes.json")),
];

/// Where a file has its parts.
const PARTS: &str = "/$defs/";
/// Where the document has its schemas.
const SHARED: &str = "/components/schemas/";

static DOCUMENT: LazyLock<Value> = LazyLock::new(bundled);
static TEXT: LazyLock<Bytes> = LazyLock::new(|| DOCUMENT.to_string().into());

/// The document, bundled.
pub(crate) fn document() -> &'static Value {
    &DOCUMENT
}

/// Its text.
pub(crate) fn text() -> Bytes {
    TEXT.clone()
}

fn bundled() -> Value {
    let mut document = read(WRITTEN);
    point_inside(&mut document, None);
    for (name, written) in SCHEMAS {
        let mut schema = read(written);
        point_inside(&mut schema, Some(name));
        let Value::Object(keywords) = &mut schema else {
            continue;
        };
        // The document says it for all of them.
        keywords.remove("$schema");
        let parts = keywords.remove(PARTS.trim_matches('/'));
        let schemas = &mut document["components"]["schemas"];
        for (part, described) in parts
            .as_ref()
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            schemas[format!("{name}.{part}")] = described.clone();
        }
        schemas[name] = schema;
    }
    document
}

/// Has every reference lead into the document. `own`: the file that this is a part of, where it is not the document.
fn point_inside(part: &mut Value, own: Option<&str>) {
    match part {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(target) if name == "$ref" => *target = inside(target, own),
                    other => point_inside(other, own),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                point_inside(item, own);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Makers of clients look up a schema by its one name and not by a path through another, so the parts of a file stand beside it.
fn inside(target: &str, own: Option<&str>) -> String {
    let (file, pointer) = target.split_once('#').unwrap_or((target, ""));
    let Some(file) = file.strip_suffix(".json").or(own) else {
        return format!("#{pointer}");
    };
    match pointer.strip_prefix(PARTS) {
        Some(part) => format!("#{SHARED}{file}.{part}"),
        None => format!("#{SHARED}{file}{pointer}"),
    }
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).expect("a schema of this project is JSON")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Every reference in a document, and whether it leads somewhere in it.
    pub(in crate::openapi) fn references(part: &Value, root: &Value) -> Vec<(String, bool)> {
        let inner: Vec<&Value> = match part {
            Value::Object(fields) => fields.values().collect(),
            Value::Array(items) => items.iter().collect(),
            _scalar => Vec::new(),
        };
        let mut found: Vec<_> = inner
            .into_iter()
            .flat_map(|part| references(part, root))
            .collect();
        if let Some(Value::String(target)) = part.get("$ref") {
            let pointer = target.strip_prefix('#');
            let leads = pointer.is_some_and(|pointer| root.pointer(pointer).is_some());
            found.push((target.clone(), leads));
        }
        found
    }

    #[test]
    fn every_reference_leads_to_a_part_of_the_document() {
        let found = references(document(), document());
        assert!(found.len() > 100, "{}", found.len());
        let dangling: Vec<_> = found.iter().filter(|(_, leads)| !leads).collect();
        assert!(dangling.is_empty(), "{dangling:?}");
    }

    #[test]
    fn a_reference_leads_into_the_document_wherever_it_stands() {
        for (target, own, led) in [
            ("#/components/x", None, "#/components/x"),
            ("batch.json", None, "#/components/schemas/batch"),
            ("a.json#/$defs/b", None, "#/components/schemas/a.b"),
            (
                "a.json#/$defs/b/items",
                None,
                "#/components/schemas/a.b/items",
            ),
            ("#/$defs/b", Some("a"), "#/components/schemas/a.b"),
            (
                "#/properties/c",
                Some("a"),
                "#/components/schemas/a/properties/c",
            ),
        ] {
            assert_eq!(inside(target, own), led);
        }
    }
}
