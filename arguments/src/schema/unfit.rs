//! Whether the defaults of a schema fit it.
//!
//! All defaults of a call are filled in or none, so one that does not fit takes the others away with it.

use std::collections::BTreeMap;

use jsonschema::{Draft, PatternOptions};
use serde_json::{Map, Value, json};

use super::{bounds::PATTERN_COMPILED_MAX, keywords, problem::SchemaProblem, walk::inner};
use crate::violations::Violations;

/// Where the whole schema stands in the document that is checked.
const ROOT: &str = "#/$defs/root";

/// Every default that its own schema refuses, in a schema that compiles.
pub fn unfit_defaults(schema: &Value) -> Vec<SchemaProblem> {
    let mut found = Vec::new();
    find(schema, String::new(), &mut found);
    if found.is_empty() {
        return Vec::new();
    }
    // Compiled once, for all of them.
    let (mut properties, mut defaults) = (Map::new(), Map::new());
    for (index, (_, schema)) in found.iter().enumerate() {
        properties.insert(index.to_string(), moved(schema));
        defaults.insert(index.to_string(), schema["default"].clone());
    }
    let document = json!({"$defs": {"root": moved(schema)}, "properties": properties});
    let validator = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        .should_validate_formats(true)
        .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_COMPILED_MAX))
        .build(&document);
    let Ok(validator) = validator else {
        // The schema itself compiles, so nothing is known against its defaults.
        return Vec::new();
    };
    let defaults = Value::Object(defaults);
    let mut unfit = BTreeMap::new();
    for error in validator.iter_errors(&defaults) {
        let index = error.instance_path().as_str().split('/').nth(1);
        if let Some(index) = index.and_then(|index| index.parse::<usize>().ok()) {
            unfit.entry(index).or_insert(error);
        }
    }
    let problem = |(index, error): (usize, _)| {
        let violations = Violations::collect(std::iter::once(error), None);
        let wanted = violations.items().first().map(|item| item.sentence());
        let wanted = wanted.as_ref().map_or("", |wanted| wanted.english());
        let (place, own) = &found[index];
        let message = match &own["default"] {
            Value::Null => null_instead(keywords::resolve(own, schema)),
            _a_value => format!(
                "the default does not fit its own schema, and with it no default of a call could be filled in: {wanted}"
            ),
        };
        SchemaProblem::new(format!("{place}/default"), message)
    };
    unfit.into_iter().map(problem).collect()
}

/// What to write instead of a default of null, with which most authors mean that there is none.
fn null_instead(schema: &Value) -> String {
    let nullable = match (&keywords::types(schema)[..], schema.get("enum")) {
        (_, Some(_)) => "add null to enum, and to type where there is one".to_owned(),
        ([], None) => "let its schema take null".to_owned(),
        (types, None) => format!("write type: [{}, \"null\"]", types.join(", ")),
    };
    format!(
        "null does not fit here; leave default out if the property may just be missing, or {nullable} if the tool is to get null"
    )
}

/// Every schema with a default, and where it stands.
fn find<'v>(schema: &'v Value, place: String, found: &mut Vec<(String, &'v Value)>) {
    for below in inner(schema) {
        find(below.schema, format!("{place}{}", below.place), found);
    }
    if schema.get("default").is_some() {
        found.push((place, schema));
    }
}

/// With every reference leading to the same schema in the document that is checked.
fn moved(schema: &Value) -> Value {
    match schema {
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| {
                let target = value.as_str().and_then(|target| target.strip_prefix('#'));
                let value = match (key.as_str(), target) {
                    ("$ref", Some(target)) => Value::from(format!("{ROOT}{target}")),
                    ("$id" | "$schema", _) => return None,
                    // Values, not schemas.
                    ("enum" | "const" | "default" | "examples", _) => value.clone(),
                    (_, _) => moved(value),
                };
                Some((key.clone(), value))
            };
            Value::Object(entries.iter().filter_map(entry).collect())
        }
        Value::Array(items) => items.iter().map(moved).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unfit(schema: Value) -> Vec<String> {
        crate::schema::Schema::compile(&schema).unwrap();
        let problems = unfit_defaults(&schema);
        problems.into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn a_default_is_held_against_its_own_schema() {
        let schema = json!({
            "type": "object",
            "properties": {
                "good": {"type": "integer", "default": 5},
                "bad": {"type": "integer", "default": "5"},
                "null": {"type": "string", "default": null},
                "ref": {"$ref": "#/$defs/unit", "default": "kelvin"},
                "fine": {"$ref": "#/$defs/unit", "default": "c"},
                "城 市": {"type": "object", "properties": {"deep": {"enum": [1, 2], "default": 3}}},
                "list": {"type": "array", "items": {"type": "string", "format": "date", "default": "today"}},
                "$ref": {"type": "string", "default": "#/$defs/unit"},
                "known": {"const": {"default": 1, "type": "string"}, "examples": [{"default": 1, "type": "string"}]},
            },
            "$defs": {"unit": {"enum": ["c", "f"]}, "deep": {"minLength": 2, "default": "x"}},
            "$id": "defaults",
        });
        assert_eq!(
            unfit(schema),
            [
                "/$defs/deep/default",
                "/properties/bad/default",
                "/properties/list/items/default",
                "/properties/null/default",
                "/properties/ref/default",
                "/properties/城 市/properties/deep/default",
            ]
        );
        assert_eq!(unfit(json!({"type": "object"})), [""; 0]);
    }

    #[test]
    fn a_default_of_null_is_told_what_to_write() {
        let rows = [
            (json!({"type": "string"}), r#"write type: [string, "null"]"#),
            (
                json!({"type": ["integer", "string"]}),
                r#"write type: [integer, string, "null"]"#,
            ),
            (
                json!({"type": "string", "enum": ["a"]}),
                "add null to enum, and to type where there is one",
            ),
            (
                json!({"$ref": "#/$defs/word"}),
                r#"write type: [string, "null"]"#,
            ),
            (
                json!({"anyOf": [{"type": "string"}]}),
                "let its schema take null",
            ),
        ];
        for (mut property, instead) in rows {
            property["default"] = Value::Null;
            let schema = json!({"type": "object", "properties": {"a": property}, "$defs": {"word": {"type": "string"}}});
            let told: Vec<String> = unfit_defaults(&schema)
                .into_iter()
                .map(|problem| problem.message)
                .collect();
            let expected = format!(
                "null does not fit here; leave default out if the property may just be missing, or {instead} if the tool is \
                 to get null"
            );
            assert_eq!(told, [expected], "{schema}");
        }
    }

    #[test]
    fn a_recursive_schema_may_have_defaults() {
        let schema = json!({"type": "object", "properties": {
            "below": {"$ref": "#", "default": {"below": {"n": "x"}}}, "n": {"type": "integer", "default": 1},
        }});
        assert_eq!(unfit(schema), ["/properties/below/default"]);
    }
}
