//! **A schema of an older dialect in that of the fleet.** Pure.
//!
//! Many servers make their schemas in draft-07, which most tools of TypeScript write; the door knows JSON Schema 2020-12. What changed its
//! name or place between the two is moved, and then both mean the same. A schema of another dialect is left as it is: the door says why it
//! cannot hold it.
//!
//! | before | 2020-12 |
//! |---|---|
//! | `items`: a list, `additionalItems` | `prefixItems`, `items` |
//! | `additionalItems` beside other `items` | – : it means nothing |
//! | `dependencies` | `dependentRequired`, `dependentSchemas` |
//! | `definitions` at the top | `$defs` |
//! | what stands beside `$ref` (draft-07 and before) | – : it means nothing |
//!
//! Source: JSON Schema, "Migrating from older drafts".

use serde_json::{Map, Value};

/// Dialects as they are named, without what may stand around them.
const DRAFT_6: &str = "json-schema.org/draft-06/schema";
const DRAFT_7: &str = "json-schema.org/draft-07/schema";
const OF_2019: &str = "json-schema.org/draft/2019-09/schema";
const OF_2020: &str = "json-schema.org/draft/2020-12/schema";

/// Keywords whose value is a schema, a list of schemas, or schemas by name.
const SCHEMAS: [&str; 9] = [
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
const NAMED: [&str; 4] = [
    "properties",
    "patternProperties",
    "$defs",
    "dependentSchemas",
];
/// What may stand beside a reference and means the same: words for people, and what references lead to.
const BESIDE_REFERENCES: [&str; 8] = [
    "$ref",
    "$defs",
    "title",
    "description",
    "default",
    "examples",
    "$comment",
    "deprecated",
];

/// This schema of a tool in JSON Schema 2020-12, where it is of a dialect that can be moved.
pub(super) fn in_2020(schema: &Value) -> Value {
    let named = schema.get("$schema").and_then(Value::as_str);
    let Some(named) = named else {
        return schema.clone();
    };
    let name = named.trim_end_matches('#');
    let name = name
        .strip_prefix("https://")
        .or_else(|| name.strip_prefix("http://"));
    let mut moved = schema.clone();
    match name {
        Some(DRAFT_6 | DRAFT_7) => moved_of(&mut moved, true),
        Some(OF_2019) => moved_of(&mut moved, false),
        Some(OF_2020) => {}
        Some(_) | None => return moved,
    }
    if let Value::Object(fields) = &mut moved {
        fields.remove("$schema");
    }
    moved
}

fn moved_of(schema: &mut Value, references_stand_alone: bool) {
    if let Value::Object(fields) = schema
        && !fields.contains_key("$defs")
        && let Some(definitions) = fields.remove("definitions")
    {
        fields.insert("$defs".to_owned(), definitions);
    }
    subschema(schema, references_stand_alone);
}

fn subschema(schema: &mut Value, references_stand_alone: bool) {
    let Value::Object(fields) = schema else {
        return;
    };
    if references_stand_alone && fields.contains_key("$ref") {
        fields.retain(|name, _| BESIDE_REFERENCES.contains(&name.as_str()));
    }
    if let Some(Value::String(reference)) = fields.get_mut("$ref")
        && let Some(rest) = reference.strip_prefix("#/definitions/")
    {
        *reference = format!("#/$defs/{rest}");
    }
    items(fields);
    dependencies(fields);
    for (name, value) in fields.iter_mut() {
        let name = name.as_str();
        match value {
            Value::Array(list) if LISTS.contains(&name) => {
                for one in list {
                    subschema(one, references_stand_alone);
                }
            }
            Value::Object(named) if NAMED.contains(&name) => {
                for one in named.values_mut() {
                    subschema(one, references_stand_alone);
                }
            }
            one if SCHEMAS.contains(&name) || name == "items" => {
                subschema(one, references_stand_alone);
            }
            _other => {}
        }
    }
}

fn items(fields: &mut Map<String, Value>) {
    let further = fields.remove("additionalItems");
    if !fields.get("items").is_some_and(Value::is_array) {
        return;
    }
    if let Some(first) = fields.remove("items") {
        fields.insert("prefixItems".to_owned(), first);
    }
    if let Some(further) = further {
        fields.insert("items".to_owned(), further);
    }
}

fn dependencies(fields: &mut Map<String, Value>) {
    let Some(Value::Object(dependencies)) = fields.remove("dependencies") else {
        return;
    };
    for (name, needed) in dependencies {
        let keyword = match &needed {
            Value::Array(_) => "dependentRequired",
            _schema => "dependentSchemas",
        };
        let of_keyword = fields
            .entry(keyword)
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(of_keyword) = of_keyword {
            of_keyword.insert(name, needed);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_has_moved_is_moved_and_means_the_same() {
        let old = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "items": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": false},
                "free": {"type": "array", "items": {"type": "string"}, "additionalItems": false},
                "who": {"$ref": "#/definitions/person", "description": "Who.", "minLength": 3},
                "definitions": {"type": "string"},
            },
            "dependencies": {"free": ["who"], "who": {"required": ["items"]}},
            "definitions": {"person": {"type": "string", "maxLength": 9}},
        });
        let moved = in_2020(&old);
        assert_eq!(
            moved,
            json!({
                "type": "object",
                "properties": {
                    "items": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false},
                    "free": {"type": "array", "items": {"type": "string"}},
                    "who": {"$ref": "#/$defs/person", "description": "Who."},
                    "definitions": {"type": "string"},
                },
                "dependentRequired": {"free": ["who"]},
                "dependentSchemas": {"who": {"required": ["items"]}},
                "$defs": {"person": {"type": "string", "maxLength": 9}},
            })
        );
        let before = jsonschema::draft7::new(&old).unwrap();
        let now = jsonschema::draft202012::new(&moved).unwrap();
        for example in [
            json!({}),
            json!({"items": ["a", 1]}),
            json!({"items": ["a", 1, 2]}),
            json!({"items": [1]}),
            json!({"free": ["a"]}),
            json!({"free": ["a"], "who": "b", "items": []}),
            json!({"who": "b"}),
            json!({"who": "b", "items": ["a"]}),
            json!({"who": "much too long", "items": []}),
        ] {
            assert_eq!(
                before.is_valid(&example),
                now.is_valid(&example),
                "{example}"
            );
        }
    }

    #[test]
    fn schemas_of_the_fleets_dialect_and_of_unknown_ones_stay() {
        for schema in [
            json!({"type": "object", "items": [{}]}),
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object"}),
            json!({"$schema": 1}),
            json!(true),
        ] {
            assert_eq!(in_2020(&schema), schema);
        }
        let named =
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"});
        assert_eq!(in_2020(&named), json!({"type": "object"}));
        let older = json!({"$schema": "https://json-schema.org/draft/2019-09/schema", "$ref": "#/definitions/a", "type": "object", "definitions": {"a": {}}});
        let moved = json!({"$ref": "#/$defs/a", "type": "object", "$defs": {"a": {}}});
        assert_eq!(in_2020(&older), moved);
    }
}
