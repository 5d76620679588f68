//! The document and the schemas that it refers to, as one: `batch.json#/x` becomes `#/components/schemas/batch/x`, so that programs that
//! read it need no second file.

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
    point_inside(&mut document, "");
    for (name, written) in SCHEMAS {
        let mut schema = read(written);
        if let Some(keywords) = schema.as_object_mut() {
            // The document says it for all of them.
            keywords.remove("$schema");
        }
        point_inside(&mut schema, &place(name));
        document["components"]["schemas"][name] = schema;
    }
    document
}

/// Has every reference lead into the document. `own`: where this part of it stands there.
fn point_inside(part: &mut Value, own: &str) {
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

fn inside(target: &str, own: &str) -> String {
    let (file, pointer) = target.split_once('#').unwrap_or((target, ""));
    match file.strip_suffix(".json") {
        Some(name) => format!("#{}{pointer}", place(name)),
        None => format!("#{own}{pointer}"),
    }
}

fn place(name: &str) -> String {
    format!("/components/schemas/{name}")
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
            ("#/components/x", "", "#/components/x"),
            ("batch.json", "", "#/components/schemas/batch"),
            ("a.json#/$defs/b", "", "#/components/schemas/a/$defs/b"),
            (
                "#/$defs/b",
                "/components/schemas/a",
                "#/components/schemas/a/$defs/b",
            ),
        ] {
            assert_eq!(inside(target, own), led);
        }
    }
}
