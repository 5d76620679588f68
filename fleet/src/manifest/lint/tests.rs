mod approval;
mod hidden;
mod keys;
mod models;
mod rates;
mod sandbox;
mod size;

use serde_json::{Map, Value, json};

use super::*;
use crate::manifest::parse;

fn manifest(changes: &Value) -> Manifest {
    let mut manifest = json!({
        "name": "get_weather", "version": 1, "description": "The weather of a city for the next days.", "effect": "read",
        "input_schema": {"type": "object"}, "executor": {"native": {"handler": "weather"}},
    });
    let fields = manifest.as_object_mut().unwrap();
    fields.extend(changes.as_object().unwrap().clone());
    parse(&manifest.to_string()).unwrap_or_else(|problems| panic!("{changes}: {problems:?}"))
}

fn warned(changes: &Value) -> Vec<(String, String)> {
    let warnings = lint(&manifest(changes));
    let pair = |warning: ManifestProblem| (warning.path, warning.message);
    warnings.into_iter().map(pair).collect()
}

/// The warnings about one property of a tool with this effect.
fn about(property: Value, required: bool, effect: &str) -> Vec<(String, String)> {
    let required: &[&str] = if required { &["a"] } else { &[] };
    warned(&json!({"effect": effect, "input_schema": {
        "type": "object", "properties": {"a": property}, "required": required, "additionalProperties": false,
    }}))
}

const GOOD: &str = "What is looked for, such as rain";

#[test]
fn a_clear_manifest_is_not_warned_of() {
    assert_eq!(warned(&json!({})), []);
    for effect in ["read", "once"] {
        let input = json!({
            "type": "object",
            "properties": {
                "account": {"type": "string", "minLength": 1, "description": "The account to charge"},
                "amount_cents": {"type": "integer", "minimum": 1, "maximum": 100_000, "description": "In cents: 4200 is 42.00"},
                "lines": {"type": "array", "maxItems": 9, "description": "What is paid for", "items": {"$ref": "#/$defs/line"}},
                "mode": {"enum": ["now", "later"], "description": "When it is charged"},
                "on": {"type": "string", "format": "date", "description": "The day of the booking", "examples": ["2026-01-31"]},
                "labels": {"type": "object", "description": "Free words of the caller", "additionalProperties": {"type": "string"}},
            },
            "required": ["account", "amount_cents"],
            "additionalProperties": false,
            "$defs": {"line": {
                "type": "object",
                "properties": {"sku": {"type": "string", "minLength": 1, "description": "The article, such as A-17"}},
                "required": ["sku"],
                "additionalProperties": false,
            }},
        });
        assert_eq!(
            warned(&json!({"effect": effect, "input_schema": input})),
            []
        );
    }
}

#[test]
fn a_tool_is_warned_of_what_a_model_chooses_by() {
    for (changes, path, says) in [
        (json!({"description": "Pays."}), "/description", "when"),
        (
            json!({"name": "the_long_weather_report", "description": "The long weather report."}),
            "/description",
            "when",
        ),
        (json!({"description": "查天气"}), "/description", "when"),
        (
            json!({"description": "x".repeat(1_025)}),
            "/description",
            "1024",
        ),
        (json!({"name": "run"}), "/name", "get_weather"),
        (json!({"key": "from_arguments"}), "/key", "leave key out"),
        (
            json!({"key": "from_arguments", "effect": "once", "input_schema": {
                "type": "object", "additionalProperties": false,
                "properties": {"unit": {"enum": ["metric", "imperial"], "default": "metric", "description": GOOD}},
            }}),
            "/key",
            "another default",
        ),
        (
            json!({"input_schema": {"type": "object", "anyOf": [{"required": ["a"]}], "properties": {}}}),
            "/input_schema/anyOf",
            "one property",
        ),
    ] {
        let found = warned(&changes);
        assert!(
            matches!(&found[..], [(at, message)] if at == path && message.contains(says)),
            "{changes}: {found:?}"
        );
    }
    assert_eq!(
        warned(&json!({"description": "查询一个城市未来几天的天气"})),
        []
    );
}

#[test]
fn a_statement_that_writes_is_asked_how_many_rows_it_expects() {
    let sql = |effect: &str, rows: Option<Value>| {
        let mut spec = json!({"database": "fleet", "statement": "UPDATE a.b SET c = 1"});
        if effect == "read" {
            spec["statement"] = "SELECT 1".into();
        }
        if let Some(rows) = rows {
            spec["rows"] = rows;
        }
        let input = json!({"type": "object", "properties": {}, "additionalProperties": false});
        warned(&json!({"effect": effect, "input_schema": input, "executor": {"sql": spec}}))
    };
    for effect in ["once", "idempotent", "transaction"] {
        let found = sql(effect, None);
        assert!(
            matches!(&found[..], [(at, message)] if at == "/executor/sql/rows" && message.contains("rows: {min: 1, max: 1}")),
            "{effect}: {found:?}"
        );
        assert_eq!(sql(effect, Some(json!({"max": 1}))), []);
    }
    assert_eq!(sql("read", None), []);
}

#[test]
fn a_property_is_warned_of_what_a_model_gets_wrong() {
    let at = "/input_schema/properties/a";
    for (property, required, effect, path, says) in [
        (
            json!({"type": "string"}),
            false,
            "read",
            at,
            "no description",
        ),
        (
            json!({"type": "string", "description": "A."}),
            false,
            "read",
            "/input_schema/properties/a/description",
            "hardly says more",
        ),
        (
            json!({"type": "string", "description": "The a"}),
            false,
            "read",
            "/input_schema/properties/a/description",
            "hardly",
        ),
        (
            json!({"type": "string", "description": GOOD}),
            true,
            "read",
            at,
            "minLength: 1",
        ),
        (
            json!({"type": "string", "minLength": 1, "default": "x", "description": GOOD}),
            true,
            "read",
            at,
            "default is never used",
        ),
        (
            json!({"description": GOOD}),
            false,
            "read",
            at,
            "write its type",
        ),
        (
            json!({"type": "integer", "description": GOOD}),
            false,
            "once",
            at,
            "minimum and maximum",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "description": GOOD}),
            false,
            "once",
            at,
            "maxItems",
        ),
        (
            json!({"type": "array", "description": GOOD}),
            false,
            "read",
            at,
            "say with items",
        ),
        (
            json!({"type": "object", "description": GOOD}),
            false,
            "read",
            at,
            "declare its properties",
        ),
        (
            json!({"type": "object", "properties": {}, "description": GOOD}),
            false,
            "once",
            at,
            "additionalProperties: false",
        ),
        (
            json!({"type": "string", "format": "date", "description": "The day of arrival"}),
            true,
            "read",
            at,
            "examples",
        ),
        (
            json!({"type": "string", "pattern": "^a", "description": "The code of it"}),
            true,
            "read",
            at,
            "examples",
        ),
        (
            json!({"enum": ["on", "On"], "description": GOOD}),
            false,
            "read",
            "/input_schema/properties/a/enum",
            "only in case or space",
        ),
        (
            json!({"type": "string", "enum": ["on", 5], "description": GOOD}),
            false,
            "read",
            "/input_schema/properties/a/enum",
            "5 is no string",
        ),
    ] {
        let found = about(property.clone(), required, effect);
        assert!(
            matches!(&found[..], [(at, message)] if at == path && message.contains(says)),
            "{property}: {found:?}"
        );
    }
    for effect in ["read", "once"] {
        let found = about(
            json!({"type": "string", "description": GOOD}),
            false,
            effect,
        );
        assert_eq!(found, []);
    }
    assert_eq!(
        about(
            json!({"type": "integer", "description": GOOD}),
            false,
            "read"
        ),
        []
    );
}

#[test]
fn required_texts_that_may_be_empty_are_warned_of_once() {
    let text = json!({"type": "string", "description": GOOD});
    let input = |names: &[&str]| {
        let all = names.iter().map(|name| ((*name).to_owned(), text.clone()));
        let properties: Map<String, Value> = all.collect();
        json!({"type": "object", "properties": properties, "required": names})
    };
    let schema = input(&["city", "street", "zip"]);
    let place = |name: &str| format!("/input_schema/properties/{name}");
    let found = warned(&json!({"input_schema": schema}));
    let told = format!(
        "the property is required but may be empty, and so are {} and 1 more; add minLength: 1 where it has to say something",
        place("street")
    );
    assert_eq!(found, [(place("city"), told)]);
    let mut many = input(&["city", "street", "zip"]);
    many["properties"]["days"] = json!({"type": "integer"});
    let found = warned(&json!({"input_schema": many}));
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(paths, [place("days"), place("city")], "{found:?}");
}

#[test]
fn booleans_in_words_and_wrappers_are_warned_of_for_reads_and_writes() {
    for effect in ["read", "once"] {
        for options in [json!(["True", "False"]), json!(["true", "false", "auto"])] {
            let found = about(
                json!({"type": "string", "enum": options, "description": GOOD}),
                false,
                effect,
            );
            assert!(
                matches!(&found[..], [(at, message)] if at.ends_with("/a/enum") && message.contains("type: boolean")),
                "{found:?}"
            );
        }
        let input = json!({
            "type": "object", "additionalProperties": false,
            "properties": {"params": {"type": "boolean", "description": GOOD}},
        });
        let found = warned(&json!({"effect": effect, "input_schema": input}));
        assert!(
            matches!(&found[..], [(at, message)] if at.ends_with("/params") && message.contains("by mistake")),
            "{found:?}"
        );
    }
}

#[test]
fn what_has_problems_is_warned_of_as_far_as_it_can_be_read() {
    let text = |changes: &Value| {
        let mut manifest = json!({
            "name": "get_weather", "version": 1, "description": "Weather.", "effect": "once",
            "input_schema": {"type": "object", "additionalProperties": false, "properties": {"a": {"type": "integer"}}},
            "executor": {"process": {"command": ["/bin/cat"]}},
        });
        let fields = manifest.as_object_mut().unwrap();
        fields.extend(changes.as_object().unwrap().clone());
        let text = manifest.to_string();
        assert!(parse(&text).is_err(), "{text}");
        let warnings = lint_text(&text).into_iter();
        warnings.map(|warning| warning.path).collect::<Vec<_>>()
    };
    let (tool, program, a) = (
        "/description",
        "/executor/process",
        "/input_schema/properties/a",
    );
    assert_eq!(text(&json!({"timeout": 30})), [tool, program, a, a]);
    assert_eq!(text(&json!({"retries": 5})), [tool, program, a, a]);
    assert_eq!(text(&json!({"timeout": "48h"})), [tool, program, a, a]);
    assert_eq!(
        text(&json!({"effect": "maybe"})),
        [tool, a],
        "whether it writes is not known"
    );
    assert_eq!(text(&json!({"input_schema": 5})), [tool, program]);
    assert_eq!(lint_text("name: ["), []);
    let good = manifest(&json!({"name": "run"}));
    assert_eq!(
        lint_text(&serde_json::to_string(&good).unwrap()),
        lint(&good)
    );
}

#[test]
fn names_that_models_stumble_over_are_warned_of() {
    let named = |names: &[&str]| {
        let properties: Map<String, Value> = names
            .iter()
            .map(|name| {
                (
                    (*name).to_owned(),
                    json!({"type": "boolean", "description": GOOD}),
                )
            })
            .collect();
        warned(&json!({"input_schema": {"type": "object", "properties": properties}}))
    };
    for (names, path, says) in [
        (&["args"][..], "/args", "by mistake"),
        (&["get_weather"], "/get_weather", "by mistake"),
        (&["user id"], "/user id", "\"user_id\""),
        (&["user.id"], "/user.id", "\"user_id\""),
        (&["user-id"], "/user-id", "\"user_id\""),
        (&["2nd"], "/2nd", "\"n_2nd\""),
        (&["城市"], "/城市", "letters, digits and _"),
        (&["userId", "userid"], "/userid", "differs from \"userId\""),
        (&["user_id", "orderNumber"], "", "two ways"),
    ] {
        let found = named(names);
        let place = format!("/input_schema/properties{path}");
        assert!(
            matches!(&found[..], [(at, message)] if *at == place && message.contains(says)),
            "{names:?}: {found:?}"
        );
    }
    assert_eq!(named(&["userId", "orderNumber"]), []);
    assert_eq!(named(&["user_id", "order"]), []);
    let nested = json!({"type": "object", "properties": {"query": {
        "type": "object", "description": GOOD, "properties": {"input": {"type": "boolean", "description": GOOD}},
    }}});
    assert_eq!(
        warned(&json!({"input_schema": nested})),
        [],
        "only the arguments themselves are wrapped"
    );
}

#[test]
fn every_level_is_looked_at() {
    let bad = json!({"type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"]});
    let input = json!({
        "type": "object",
        "properties": {
            "one": {"$ref": "#/$defs/bad"},
            "list": {"type": "array", "maxItems": 3, "items": bad, "description": GOOD},
            "either": {"anyOf": [bad, {"type": "null"}], "description": GOOD},
            "whole": {"$ref": "#/$defs/whole"},
        },
        "additionalProperties": false,
        "$defs": {
            "bad": bad,
            "whole": {"allOf": [{"$ref": "#/$defs/half"}], "unevaluatedProperties": false, "type": "object"},
            "half": {"type": "object", "properties": {"h": {"type": "boolean", "description": GOOD}}},
        },
    });
    let found = warned(&json!({"effect": "once", "input_schema": input}));
    let places = |says: &str| -> Vec<&str> {
        let with = found.iter().filter(|(_, message)| message.contains(says));
        with.map(|(path, _)| path.as_str()).collect()
    };
    let at = |end: &str| {
        [
            "$defs/bad",
            "properties/either/anyOf/0",
            "properties/list/items",
        ]
        .map(|place| format!("/input_schema/{place}{end}"))
    };
    assert_eq!(places("additionalProperties: false"), at(""));
    assert_eq!(places("no description"), at("/properties/n"));
    assert_eq!(places("minLength"), [&at("/properties/n")[0]]);
    let once = found
        .iter()
        .find(|(_, message)| message.contains("minLength"));
    let others = format!("and so are {} and 1 more", at("/properties/n")[1]);
    assert!(
        once.is_some_and(|(_, message)| message.contains(&others)),
        "{once:?}"
    );
    assert_eq!(found.len(), 7, "{found:?}");
}

#[test]
fn a_default_that_does_not_fit_is_refused() {
    let input = json!({"type": "object", "properties": {"a": {"type": "integer", "default": "5", "description": GOOD}}});
    let text = json!({
        "name": "t", "version": 1, "description": "d", "effect": "read", "input_schema": input,
        "executor": {"process": {"command": ["/bin/cat"]}},
    });
    let problems = parse(&text.to_string()).unwrap_err();
    assert_eq!(problems[0].path, "/input_schema/properties/a/default");
    assert!(
        problems[0]
            .message
            .contains("expected integer, found string"),
        "{problems:?}"
    );
}

#[test]
fn a_write_whose_properties_stand_in_parts_is_not_told_to_refuse_them() {
    let closing = |parts: Value| {
        let mut schema = json!({
            "type": "object", "properties": {"a": {"type": "boolean", "description": "Whether it is sent at night."}},
            "$defs": {"base": {"properties": {"b": {"type": "boolean", "description": "Whether it is sent by air."}}}},
        });
        let keywords = schema.as_object_mut().unwrap();
        keywords.extend(parts.as_object().unwrap().clone());
        let warnings = warned(&json!({"effect": "once", "input_schema": schema}));
        let about_all = warnings
            .into_iter()
            .filter(|(path, _)| path == "/input_schema");
        about_all.map(|(_, told)| told).collect::<Vec<_>>()
    };
    let told =
        |keyword: &str| format!("a write accepts undeclared properties; add {keyword}: false");
    assert_eq!(closing(json!({})), [told("additionalProperties")]);
    assert_eq!(
        closing(json!({"allOf": [{"$ref": "#/$defs/base"}]})),
        [told("unevaluatedProperties")]
    );
}

#[test]
fn answers_that_may_hold_secrets_are_warned_of() {
    let warned = warned(&json!({"redact_results": false}));
    assert_eq!(warned[0].0, "/redact_results");
}
