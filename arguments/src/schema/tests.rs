use serde_json::json;

use super::*;
use crate::{limits::Limits, message::Language, parse::parse_any};

fn compile(schema: Value) -> Schema {
    Schema::compile(&schema).expect("this schema must compile")
}

fn problems(schema: Value) -> Vec<(String, String)> {
    let problems = Schema::compile_input(&schema).expect_err("this schema must be refused");
    problems
        .into_iter()
        .map(|problem| (problem.path, problem.message))
        .collect()
}

fn read(text: &str) -> Value {
    parse_any(text.as_bytes(), &Limits::DEFAULT).unwrap()
}

fn said(schema: &Schema, value: &Value) -> Vec<String> {
    schema
        .validate(value)
        .items()
        .iter()
        .map(ToString::to_string)
        .collect()
}

fn weather() -> Schema {
    compile(json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "minLength": 1},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "on": {"type": "string", "format": "date"},
            "near": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["city"],
        "additionalProperties": false,
    }))
}

#[test]
fn a_model_is_told_everything_at_once_and_in_order() {
    let value =
        json!({"days": "5", "unit": "Celcius", "on": "tomorrow", "near": 7, "cty": "Paris"});
    assert_eq!(
        said(&weather(), &value),
        [
            r#"/city: expected the required property "city" (string), found nothing"#,
            r#"/cty: expected only the properties "city", "days", "near", "on", "unit"; the nearest is "city", found string "Paris""#,
            r#"/days: expected integer, found string "5""#,
            r#"/near: expected null or string, found integer 7"#,
            r#"/on: expected a string in the format date such as 2026-01-31, found string "tomorrow""#,
            r#"/unit: expected one of "celsius", "fahrenheit"; the nearest is "celsius", found string "Celcius""#,
        ]
    );
    assert!(
        weather()
            .validate(&json!({"city": "Paris", "days": 3}))
            .is_empty()
    );
}

#[test]
fn every_keyword_is_worded() {
    let rows = [
        (
            json!({"const": "a"}),
            json!(["b"]),
            r#"expected "a", found array of 1 item"#,
        ),
        (
            json!({"exclusiveMinimum": 1}),
            json!(1),
            "expected more than 1, found integer 1",
        ),
        (
            json!({"exclusiveMaximum": 1}),
            json!(1),
            "expected less than 1, found integer 1",
        ),
        (
            json!({"multipleOf": 5}),
            json!(7),
            "expected a multiple of 5, found integer 7",
        ),
        (
            json!({"minLength": 2}),
            json!("a"),
            r#"expected a string of at least 2 characters, found string "a""#,
        ),
        (
            json!({"maxLength": 1}),
            json!("ab"),
            r#"expected a string of at most 1 character, found string "ab""#,
        ),
        (
            json!({"minItems": 1}),
            json!([]),
            "expected an array of at least 1 item, found array of 0 items",
        ),
        (
            json!({"maxItems": 1}),
            json!([1, 2]),
            "expected an array of at most 1 item, found array of 2 items",
        ),
        (
            json!({"minProperties": 1}),
            json!({}),
            "expected an object with at least 1 key, found object with 0 keys",
        ),
        (
            json!({"maxProperties": 0}),
            json!({"a": 1}),
            "expected an object with at most 0 keys, found object with 1 key",
        ),
        (
            json!({"uniqueItems": true}),
            json!([1, 1]),
            "expected an array without equal items, found array of 2 items",
        ),
        (
            json!({"pattern": "^a+$"}),
            json!("b"),
            r#"expected a string that matches "^a+$", found string "b""#,
        ),
        (
            json!({"contains": {"type": "null"}}),
            json!([1]),
            "expected an array with the right number of items that fit `contains`, found array of 1 item",
        ),
        (
            json!({"not": {"type": "null"}}),
            json!(null),
            "expected a value that does not fit the `not` part of the schema, found null",
        ),
        (
            json!(false),
            json!(true),
            "expected no value here at all; leave it out, found boolean true",
        ),
        (
            json!({"type": ["integer", "null"]}),
            json!(1.5),
            "expected null or integer, found number 1.5",
        ),
        (
            json!({"propertyNames": {"maxLength": 1}}),
            json!({"ab": 1}),
            r#"expected every key to be a string of at most 1 character, found key string "ab""#,
        ),
        (
            json!({"oneOf": [{"type": "integer"}, {"minimum": 1}]}),
            json!(2),
            "expected a value that fits exactly one of the alternatives, not several, found integer 2",
        ),
    ];
    for (schema, value, expected) in rows {
        assert_eq!(
            said(&compile(schema.clone()), &value),
            [format!("the arguments: {expected}")],
            "{schema}"
        );
    }
}

#[test]
fn a_union_names_what_its_nearest_alternative_wants() {
    let schema = compile(json!({
        "properties": {"shape": {"oneOf": [
            {"type": "object", "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}}, "required": ["kind", "radius"]},
            {"type": "object", "properties": {"kind": {"const": "square"}, "side": {"type": "number"}}, "required": ["kind", "side"]},
        ]}},
    }));
    assert_eq!(
        said(&schema, &json!({"shape": {"kind": "square", "side": "2"}})),
        [
            r#"/shape: expected one of 2 alternatives; the nearest one wants number at /shape/side, found object with 2 keys"#
        ]
    );
}

#[test]
fn what_is_shown_stays_small() {
    let schema = compile(json!({"type": "object", "additionalProperties": {"type": "integer"}}));
    let entries = (0..900).map(|n| {
        (
            format!("{n:03}/~{}", "k".repeat(240)),
            json!("secret ".repeat(1_000)),
        )
    });
    let violations = schema.validate(&Value::Object(entries.collect()));
    assert_eq!(violations.total(), 900);
    assert!(!violations.items().is_empty() && violations.items().len() <= 16);
    for language in Language::ALL {
        let details = violations.details(*language).to_string();
        assert!(details.len() <= 2 * 1024, "{details}");
        let summary = violations.summary();
        assert!(summary.told(*language).len() <= 480, "{summary:?}");
        assert!(summary.told(*language).contains(&(900 - 1).to_string()));
    }
    let quotes = json!({"a": "\"".repeat(500), "b": "\u{1}".repeat(500), "c": "é".repeat(500)});
    for violation in violations
        .items()
        .iter()
        .chain(schema.validate(&quotes).items())
    {
        for language in Language::ALL {
            let found = violation.found.told(*language);
            assert!(found.len() <= 64, "{found}");
        }
    }
}

#[test]
fn the_order_is_by_path_then_keyword() {
    let schema = compile(json!({"properties": {
        "b": {"minLength": 3, "pattern": "^x", "format": "date"}, "a": {"type": "null"}, "a~b": {"type": "null"},
    }}));
    let violations = schema.validate(&json!({"b": "y", "a": 1, "a~b": 1}));
    let order: Vec<_> = violations
        .items()
        .iter()
        .map(|v| (v.path.as_str(), v.keyword.as_str()))
        .collect();
    assert_eq!(
        order,
        [
            ("/a", "type"),
            ("/a~0b", "type"),
            ("/b", "format"),
            ("/b", "minLength"),
            ("/b", "pattern")
        ]
    );
}

#[test]
fn numbers_are_compared_as_the_decimals_they_are() {
    let rows = [
        (json!({"type": "integer"}), "9007199254740993", true),
        (json!({"type": "integer"}), "18446744073709551615", true),
        (json!({"type": "integer"}), "1.0", true),
        (json!({"type": "integer"}), "1e2", true),
        (json!({"type": "integer"}), "1.5", false),
        (json!({"type": "integer"}), "-0", true),
        (json!({"type": "number"}), "1e308", true),
        (json!({"type": "string"}), "1", false),
        (
            read(r#"{"maximum":9007199254740992}"#),
            "9007199254740993",
            false,
        ),
        (
            read(r#"{"maximum":9007199254740993}"#),
            "9007199254740993",
            true,
        ),
        (
            read(r#"{"minimum":9007199254740993}"#),
            "9007199254740992",
            false,
        ),
        (
            read(r#"{"exclusiveMaximum":18446744073709551615}"#),
            "18446744073709551614",
            true,
        ),
        (
            read(r#"{"exclusiveMaximum":18446744073709551615}"#),
            "18446744073709551615",
            false,
        ),
        (read(r#"{"multipleOf":0.01}"#), "19.99", true),
        (read(r#"{"multipleOf":0.01}"#), "19.995", false),
        (read(r#"{"multipleOf":0.1}"#), "0.3", true),
        (read(r#"{"multipleOf":2}"#), "9007199254740993", false),
        (read(r#"{"multipleOf":2}"#), "1e308", true),
        (read(r#"{"minimum":0.1}"#), "0.1", true),
        (read(r#"{"const":1}"#), "1.0", true),
        (
            read(r#"{"enum":[9007199254740993]}"#),
            "9007199254740992",
            false,
        ),
        (
            read(r#"{"enum":[9007199254740993]}"#),
            "9007199254740993",
            true,
        ),
        (
            read(r#"{"uniqueItems":true}"#),
            "[9007199254740992,9007199254740993]",
            true,
        ),
        (read(r#"{"uniqueItems":true}"#), "[1,1.0]", false),
    ];
    for (schema, value, fits) in rows {
        let schema = compile(schema);
        assert_eq!(
            schema.is_valid(&read(value)),
            fits,
            "{value} against {}",
            schema.source()
        );
        assert_eq!(schema.validate(&read(value)).is_empty(), fits);
    }
}

#[test]
fn formats_are_asserted() {
    for (format, good, bad) in [
        ("date", "2026-02-28", "2026-02-30"),
        ("date-time", "2026-02-28T12:00:00Z", "2026-02-28 12:00"),
        ("email", "a@example.com", "a"),
        ("uuid", "0193a1b2-0000-7000-8000-000000000000", "0193"),
        ("uri", "https://example.com/", "not a uri"),
        ("ipv4", "192.0.2.1", "192.0.2.256"),
    ] {
        let schema = compile(json!({"format": format}));
        assert!(schema.is_valid(&json!(good)), "{format}");
        assert!(!schema.is_valid(&json!(bad)), "{format}");
    }
}

#[test]
fn unsafe_schemas_are_refused_with_their_place() {
    let object = |extra: Value| {
        let mut schema = json!({"type": "object"});
        schema
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        schema
    };
    let property = |schema: Value| object(json!({"properties": {"a": schema}}));
    let rows = [
        (json!({}), "/type"),
        (json!({"type": "array"}), "/type"),
        (json!(true), "/type"),
        (
            property(json!({"$ref": "https://example.com/a.json"})),
            "/properties/a/$ref",
        ),
        (
            property(json!({"$ref": "file:///etc/passwd"})),
            "/properties/a/$ref",
        ),
        (property(json!({"$ref": "//host/a"})), "/properties/a/$ref"),
        (
            property(json!({"$ref": "other.json"})),
            "/properties/a/$ref",
        ),
        (
            property(json!({"$ref": "#/$defs/none"})),
            "/properties/a/$ref",
        ),
        (property(json!({"$ref": "#name"})), "/properties/a/$ref"),
        (property(json!({"$ref": 1})), "/properties/a/$ref"),
        (
            property(json!({"$dynamicRef": "#a"})),
            "/properties/a/$dynamicRef",
        ),
        (property(json!({"$id": "a"})), "/properties/a/$id"),
        (object(json!({"$id": "https://example.com/a"})), "/$id"),
        (
            object(json!({"$schema": "http://json-schema.org/draft-07/schema#"})),
            "/$schema",
        ),
        (property(json!({"type": "strin"})), "/properties/a/type"),
        (
            property(json!({"minLength": "1"})),
            "/properties/a/minLength",
        ),
        (property(json!({"enum": 1})), "/properties/a/enum"),
        (property(json!(7)), "/properties/a"),
        (
            property(json!({"pattern": "(?=a)b"})),
            "/properties/a/pattern",
        ),
        (
            property(json!({"pattern": r"(a)\1"})),
            "/properties/a/pattern",
        ),
        (
            property(json!({"pattern": "((a{1000}){1000}){1000}"})),
            "/properties/a/pattern",
        ),
        (property(json!({"pattern": "("})), "/properties/a/pattern"),
        (
            property(json!({"pattern": "a".repeat(513)})),
            "/properties/a/pattern",
        ),
        (
            object(json!({"patternProperties": {"(": {}}})),
            "/patternProperties/(",
        ),
        (object(json!({"$ref": "#"})), ""),
        (property(json!({"description": "x".repeat(64 * 1024)})), ""),
        (object(json!({"examples": vec![1; 2_000]})), ""),
    ];
    for (schema, path) in rows {
        let found = problems(schema.clone());
        assert_eq!(found[0].0, path, "{schema}: {found:?}");
        assert!(found[0].1.len() <= 500, "{found:?}");
    }
    let both = problems(property(json!({"type": "strin", "minLength": -1})));
    assert_eq!(both.len(), 2, "{both:?}");
}

#[test]
fn schemas_that_repeat_themselves_without_bound_are_refused() {
    let endless = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}});
    assert!(problems(endless)[0].1.contains("without end"));

    let mut chain = json!({"d99": {}});
    for n in 0..99 {
        chain[format!("d{n}")] = json!({"$ref": format!("#/$defs/d{}", n + 1)});
    }
    let chain =
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": chain});
    assert!(problems(chain)[0].1.contains("one inside the other"));

    let mut doubled = json!({"d7": {}});
    for n in 0..7 {
        let next = json!({"$ref": format!("#/$defs/d{}", n + 1)});
        doubled[format!("d{n}")] = json!({"allOf": [next, next, next, next, next, next]});
    }
    let doubled =
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": doubled});
    assert!(problems(doubled)[0].1.contains("steps"));

    let overlapping = json!({"type": "object", "oneOf": [
        {"properties": {"left": {"$ref": "#"}, "op": {"const": "add"}}},
        {"properties": {"left": {"$ref": "#"}, "op": {"const": "sub"}}},
    ]});
    assert!(problems(overlapping)[0].1.contains("steps"));
}

#[test]
fn recursive_schemas_that_end_are_accepted() {
    let tree = compile(json!({"type": "object", "properties": {
        "left": {"$ref": "#"}, "right": {"$ref": "#"}, "all": {"type": "array", "items": {"$ref": "#"}},
        "not": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}, "additionalProperties": {"type": "integer"}}));
    assert!(tree.is_valid(&json!({"left": {"right": {"all": [{"x": 1}]}}})));
    assert_eq!(
        said(&tree, &json!({"left": {"x": "1"}})),
        [r#"/left/x: expected integer, found string "1""#]
    );
}

/// The deepest input against the most nested recursive schema, on the stack of a test thread (2 MiB).
#[test]
fn the_deepest_input_does_not_exhaust_the_stack() {
    let mut defs = json!({"d13": {"properties": {"a": {"$ref": "#/$defs/d0"}}, "unevaluatedProperties": false}});
    for n in 0..13 {
        defs[format!("d{n}")] = json!({"type": "object", "$ref": format!("#/$defs/d{}", n + 1)});
    }
    let schema = compile(json!({"$defs": defs, "$ref": "#/$defs/d0"}));
    let deep = |leaf: &str| {
        read(&format!(
            "{}{leaf}{}",
            r#"{"a":"#.repeat(63),
            "}".repeat(63)
        ))
    };
    assert!(schema.is_valid(&deep("{}")));
    assert!(!schema.validate(&deep("1")).is_empty());
}

#[test]
fn patterns_run_in_linear_time() {
    let schema = compile(json!({"pattern": "^(a+)+$"}));
    let started = std::time::Instant::now();
    assert!(!schema.is_valid(&json!(format!("{}!", "a".repeat(50_000)))));
    assert!(
        started.elapsed() < std::time::Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn saying_no_to_a_very_large_value_stays_cheap() {
    let branches: Vec<_> = (0..20).map(|n| json!({"const": n})).collect();
    let schema = compile(json!({"items": {"anyOf": branches}}));
    let violations = schema.validate(&json!(vec!["x"; 9_999]));
    assert_eq!(violations.items().len(), 1);
}
