use serde_json::{Value, json};

use super::*;

mod bounds;
mod doubts;
mod envelopes;
mod laws;
mod misread;
mod values;

/// The result for `sent` as JSON text, and the changes as `path rule`.
fn fit(schema: &Value, level: Level, sent: &str) -> Option<(String, String)> {
    let schema = Schema::compile_input(schema).unwrap();
    let args: Value = serde_json::from_str(sent).unwrap();
    let how = Coercing {
        level,
        tool: "get_weather",
    };
    let before = args.clone();
    let fitted = match schema.fit(args, how) {
        Ok(fitted) => fitted,
        Err(violations) => {
            let is_wrapped = violations.items().iter().any(|v| v.keyword == "wrapper");
            let original = schema.validate(&before);
            assert!(is_wrapped || violations == original, "not of the original");
            assert!(!violations.is_empty());
            return None;
        }
    };
    assert!(schema.is_valid(&fitted.args));
    let again = schema.fit(fitted.args.clone(), how).unwrap();
    assert_eq!((&again.args, again.coercions.len()), (&fitted.args, 0));
    assert_eq!(fitted.coercions.is_empty(), fitted.args == before);
    let told: Vec<String> = fitted
        .coercions
        .iter()
        .map(|coercion| format!("{} {}", coercion.path, coercion.rule.as_str()))
        .collect();
    Some((fitted.args.to_string(), told.join(", ")))
}

const NO: (&str, &str) = ("refused", "");

/// Rows of what is sent, what the tool gets and what was changed; `NO` means refused.
fn check(level: Level, schema: Value, rows: &[(&str, (&str, &str))]) {
    for (sent, expected) in rows {
        let found = fit(&schema, level, sent);
        let found = found.unwrap_or((NO.0.to_owned(), String::new()));
        assert_eq!(
            (found.0.as_str(), found.1.as_str()),
            *expected,
            "{sent} for {schema}"
        );
    }
}

/// The same for one property `x`, written without the object around it.
fn check_x(level: Level, x: Value, rows: &[(&str, &str, &str)]) {
    let schema = json!({"type": "object", "properties": {"x": x}, "required": ["x"]});
    for (sent, expected, rule) in rows {
        let found = fit(&schema, level, &format!(r#"{{"x":{sent}}}"#));
        let (args, told) = found.unwrap_or((NO.0.to_owned(), String::new()));
        let args = args
            .strip_prefix(r#"{"x":"#)
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or(&args);
        let wanted: Vec<String> = rule
            .split(", ")
            .filter(|rule| !rule.is_empty())
            .map(|rule| match rule.starts_with('/') {
                true => rule.to_owned(),
                false => format!("/x {rule}"),
            })
            .collect();
        assert_eq!(
            (args, told),
            (*expected, wanted.join(", ")),
            "{sent} for {schema}"
        );
    }
}

fn optional(x: Value) -> Value {
    json!({"type": "object", "properties": {"x": x}, "additionalProperties": {"type": "integer"}})
}

#[test]
fn null_and_nothing_are_left_out_where_they_may_not_be() {
    let rows = &[
        (r#"{"x":null}"#, ("{}", "/x null_removed")),
        (r#"{"x":""}"#, ("{}", "/x empty_removed")),
        (r#"{"x":" "}"#, NO),
        (r#"{"other":null}"#, NO),
        (r#"{"other":""}"#, NO),
    ];
    check(Level::Safe, optional(json!({"type": "integer"})), rows);
    check(
        Level::Safe,
        optional(json!({"anyOf": [{"type": "boolean"}, {"type": "array"}]})),
        rows,
    );
    check(Level::Safe, optional(json!({"enum": [1, 2]})), rows);
    check(Level::Safe, optional(json!({"enum": ["a", "b"]})), rows);
    check(
        Level::Safe,
        optional(json!({"enum": ["a", null]})),
        &[(r#"{"x":""}"#, NO)],
    );
    check(
        Level::Safe,
        optional(json!({"type": "string", "minLength": 1})),
        &[
            (r#"{"x":null}"#, ("{}", "/x null_removed")),
            (r#"{"x":""}"#, NO),
        ],
    );
    check(
        Level::Safe,
        optional(json!({"type": ["integer", "null"]})),
        &[
            (r#"{"x":""}"#, NO),
            (r#"{"x":null}"#, (r#"{"x":null}"#, "")),
        ],
    );
    check(
        Level::Safe,
        json!({"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}),
        &[(r#"{"x":null}"#, NO), (r#"{"x":""}"#, NO)],
    );
}

#[test]
fn brackets_are_put_and_taken_for_read_tools_alone() {
    let rows = [
        (r#""a""#, r#"["a"]"#, "value_to_array"),
        ("5", NO.0, ""),
        (r#""a,b""#, NO.0, ""),
        (r#""a b""#, NO.0, ""),
        (r#""a/b""#, NO.0, ""),
        (r#""a\\nb""#, NO.0, ""),
        (r#""甲、乙""#, NO.0, ""),
        (r#""None""#, NO.0, ""),
        (r#""""#, NO.0, ""),
        ("null", NO.0, ""),
        ("5.5", NO.0, ""),
    ];
    let x = json!({"type": "array", "items": {"type": "string"}});
    check_x(Level::Read, x.clone(), &rows);
    check_x(Level::Safe, x, &rows.map(|(sent, _, _)| (sent, NO.0, "")));
    let rows = [
        ("[5]", "5", "array_to_value"),
        (r#"["5"]"#, NO.0, ""),
        ("[]", NO.0, ""),
        ("[1,2]", NO.0, ""),
        ("[[5]]", NO.0, ""),
        ("[null]", NO.0, ""),
        (r#"[""]"#, NO.0, ""),
        (r#""[5]""#, NO.0, ""),
    ];
    let x = json!({"type": "integer"});
    check_x(Level::Read, x.clone(), &rows);
    check_x(Level::Safe, x, &rows.map(|(sent, _, _)| (sent, NO.0, "")));
}

#[test]
fn a_wrapper_is_taken_off() {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "input": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": false,
    });
    check(
        Level::Read,
        schema,
        &[
            (
                r#"{"arguments":{"city":"a"}}"#,
                (r#"{"city":"a"}"#, " unwrap"),
            ),
            (
                r#"{"get_weather":{"city":"a"}}"#,
                (r#"{"city":"a"}"#, " unwrap"),
            ),
            (
                r#"{"args":"{\"city\":\"a\",\"days\":\"3\"}"}"#,
                (
                    r#"{"city":"a","days":3}"#,
                    " unwrap, /days string_to_integer",
                ),
            ),
            (
                r#"{"kwargs":{"params":{"city":"a"}}}"#,
                (r#"{"city":"a"}"#, " unwrap,  unwrap"),
            ),
            (r#"{"kwargs":{"params":{"args":{"city":"a"}}}}"#, NO),
            (r#"{"input":{"city":"a"}}"#, NO),
            (r#"{"arguments":{"city":"a"},"days":1}"#, NO),
            (r#"{"arguments":{"city":"a","verbose":true}}"#, NO),
            (r#"{"arguments":{"town":"a"}}"#, NO),
            (r#"{"arguments":[{"city":"a"}]}"#, NO),
            (r#"{"Arguments":{"city":"a"}}"#, NO),
            (r#"{"data":{"city":"a"}}"#, NO),
        ],
    );
    check(
        Level::Safe,
        json!({"type": "object", "properties": {"city": {"type": "string"}}}),
        &[
            (
                r#"{"arguments":{"city":"a"},"city":"b"}"#,
                (r#"{"arguments":{"city":"a"},"city":"b"}"#, ""),
            ),
            (r#"{"arguments":{"city":"a"},"city":5}"#, NO),
        ],
    );
}

#[test]
fn a_union_is_mended_if_one_value_comes_of_it() {
    check_x(
        Level::Safe,
        json!({"anyOf": [{"type": "integer"}, {"type": "boolean"}, {"type": "null"}]}),
        &[
            (r#""5""#, "5", "string_to_integer"),
            (r#""true""#, "true", "string_to_boolean"),
            (r#""null""#, NO.0, ""),
            (r#""x""#, NO.0, ""),
        ],
    );
    check_x(
        Level::Safe,
        json!({"type": ["integer", "number", "boolean"]}),
        &[(r#""5.0""#, "5.0", "string_to_number")],
    );
    check_x(
        Level::Safe,
        json!({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 100}]}),
        &[(r#""5""#, "5", "string_to_integer"), (r#""500""#, NO.0, "")],
    );
    let shape = json!({"oneOf": [
        {"type": "object", "properties": {"kind": {"const": "a"}, "n": {"type": "integer"}}, "required": ["kind", "n"]},
        {"type": "object", "properties": {"kind": {"const": "b"}, "n": {"type": "string"}}, "required": ["kind", "n"]},
    ]});
    check_x(
        Level::Safe,
        shape,
        &[
            (
                r#"{"kind":"a","n":"5"}"#,
                r#"{"kind":"a","n":5}"#,
                "/x/n string_to_integer",
            ),
            (
                r#"{"kind":"B","n":"5"}"#,
                r#"{"kind":"b","n":"5"}"#,
                "/x/kind enum_match",
            ),
            (r#"{"kind":"B","n":5}"#, NO.0, ""),
            (
                r#""{\"kind\":\"A\",\"n\":\"5\"}""#,
                r#"{"kind":"a","n":5}"#,
                "string_to_object, /x/kind enum_match, /x/n string_to_integer",
            ),
            (r#"{"n":"5"}"#, NO.0, ""),
            (r#"{"kind":"c","n":"5"}"#, NO.0, ""),
        ],
    );
    // Either could be meant.
    let mirrored = json!({"anyOf": [
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
    ]});
    check_x(Level::Safe, mirrored, &[(r#"{"a":"1","b":"2"}"#, NO.0, "")]);
}

#[test]
fn mending_reaches_through_references_and_all_of() {
    check(
        Level::Safe,
        json!({
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/node"}},
            "$defs": {
                "size": {"allOf": [{"type": "integer"}, {"minimum": 2}]},
                "node": {
                    "type": "object",
                    "properties": {
                        "size": {"$ref": "#/$defs/size"},
                        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                    },
                },
            },
        }),
        &[
            (
                r#"{"tree":{"children":[{"size":"2"},{"children":"[{\"size\":null}]"}]}}"#,
                (
                    r#"{"tree":{"children":[{"size":2},{"children":[{}]}]}}"#,
                    "/tree/children/0/size string_to_integer, /tree/children/1/children string_to_array, \
                     /tree/children/1/children/0/size null_removed",
                ),
            ),
            (r#"{"tree":{"size":"1"}}"#, NO),
        ],
    );
}

#[test]
fn defaults_are_filled_in_where_the_place_is_certain() {
    let schema = json!({
        "type": "object",
        "properties": {
            "days": {"type": "integer", "default": 3},
            "unit": {"$ref": "#/$defs/unit"},
            "where": {"type": "object", "properties": {"zoom": {"type": "integer", "default": 9}}},
            "stops": {"type": "array", "items": {"allOf": [{"properties": {"n": {"type": "boolean", "default": true}}}]}},
            "some": {"anyOf": [{"type": "object", "properties": {"n": {"default": 1}}}]},
            "plan": {"type": "object", "properties": {"depth": {"default": 1}}, "default": {"a": 1}},
        },
        "$defs": {"unit": {"enum": ["c", "f"], "default": "c"}},
    });
    check(
        Level::Safe,
        schema.clone(),
        &[(
            r#"{"where":{},"stops":[{},{"n":false}],"some":{},"days":null}"#,
            (
                r#"{"days":3,"plan":{"a":1,"depth":1},"some":{},"stops":[{"n":true},{"n":false}],"unit":"c","where":{"zoom":9}}"#,
                "/days null_removed, /days default, /plan default, /plan/depth default, /stops/0/n default, \
                     /unit default, /where/zoom default",
            ),
        )],
    );
    check(
        Level::Off,
        schema,
        &[("{}", ("{}", "")), (r#"{"days":"3"}"#, NO)],
    );
    // None where the whole would not be valid, where there would be no end, and where two defaults differ.
    let none = |schema| check(Level::Safe, schema, &[("{}", ("{}", ""))]);
    none(
        json!({"type": "object", "properties": {"a": {"type": "integer", "default": "x"}, "b": {"default": 1}}}),
    );
    none(json!({"type": "object", "properties": {"child": {"$ref": "#", "default": {}}}}));
    none(json!({"type": "object", "allOf": [
        {"properties": {"a": {"default": 1}}}, {"properties": {"a": {"default": 2}}},
    ]}));
}
