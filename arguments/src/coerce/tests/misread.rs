//! Arguments that were once changed into something else than they meant, or run as they were.

use serde_json::json;

use super::{super::*, NO, check, check_x, fit};

/// As in catalogues: flat, and nearly all of it optional.
fn restaurants(closed: bool) -> Value {
    let mut schema = json!({
        "type": "object",
        "properties": {
            "cuisine": {"type": "string"},
            "max_distance": {"type": "number"},
            "price": {"enum": ["low", "high"]},
            "open_now": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "limit": {"type": "integer", "default": 10},
        },
    });
    if closed {
        schema["additionalProperties"] = json!(false);
    }
    schema
}

#[test]
fn nothing_is_left_out_beside_a_name_that_is_not_known() {
    let two = json!({
        "type": "object",
        "properties": {"cuisine": {"type": "string"}, "max_distance": {"type": "number"}},
        "additionalProperties": false,
    });
    let sent = r#"{"cuisine":"Thai","arg0":10.0,"max_distance":null}"#;
    check(Level::Read, two, &[(sent, NO)]);
    for closed in [true, false] {
        for level in [Level::Safe, Level::Read] {
            check(
                level,
                restaurants(closed),
                &[
                    (r#"{"cuisine":"Thai","arg0":10.0,"max_distance":null}"#, NO),
                    (r#"{"cuisine":"Thai","arg0":10.0,"max_distance":""}"#, NO),
                    (
                        r#"{"cuisine":"Thai","distance":"10","max_distance":null}"#,
                        NO,
                    ),
                    (
                        r#"{"cuisine":"Thai","max_distance":null}"#,
                        (
                            r#"{"cuisine":"Thai","limit":10}"#,
                            "/limit default, /max_distance null_removed",
                        ),
                    ),
                ],
            );
        }
    }
}

#[test]
fn a_property_that_is_not_known_is_never_dropped() {
    check(
        Level::Read,
        restaurants(true),
        &[
            (r#"{"cuisine":"Thai","reasoning":"They like it hot."}"#, NO),
            (
                r#"{"cuisine":"Thai","max_distance":1,"price":"low","open_now":true,"tags":[],"limit":1,"vegan":true}"#,
                NO,
            ),
        ],
    );
}

#[test]
fn values_may_be_swapped_across_levels() {
    let ticket = json!({
        "type": "object",
        "properties": {
            "ticket_id": {"type": "integer"},
            "updates": {
                "type": "object",
                "properties": {"status": {"type": "string"}, "value": {"type": ["string", "number"]}},
            },
        },
        "required": ["ticket_id"],
    });
    for level in [Level::Safe, Level::Read] {
        check(
            level,
            ticket.clone(),
            &[
                (r#"{"ticket_id":"94704","updates":{"status":5}}"#, NO),
                (r#"{"ticket_id":"94704","updates":{"value":5}}"#, NO),
                (
                    r#"{"ticket_id":"94704","updates":{"status":"open"}}"#,
                    (
                        r#"{"ticket_id":94704,"updates":{"status":"open"}}"#,
                        "/ticket_id string_to_integer",
                    ),
                ),
            ],
        );
    }
    check(
        Level::Safe,
        json!({"type": "object", "properties": {"count": {"type": "integer"}}}),
        &[(r#"{"count":"5","other":[{"deep":7}]}"#, NO)],
    );
}

#[test]
fn a_boolean_is_no_text() {
    let schema = json!({
        "type": "object",
        "properties": {"topic": {"type": "string"}, "subtopic": {"type": "string"}},
        "required": ["topic"],
    });
    for level in [Level::Safe, Level::Read] {
        check(
            level,
            schema.clone(),
            &[
                (r#"{"topic":"birds","subtopic":true}"#, NO),
                (r#"{"topic":true}"#, NO),
            ],
        );
    }
    for options in [
        json!(["True", "False"]),
        json!(["true", "no"]),
        json!(["TRUE ", "off"]),
    ] {
        let word = options[0].as_str().unwrap().to_owned();
        check_x(
            Level::Safe,
            json!({"type": "string", "enum": options}),
            &[("true", &format!("{word:?}"), "boolean_to_string")],
        );
    }
    check_x(
        Level::Safe,
        json!({"type": "string", "enum": ["True", "true", "False"]}),
        &[
            ("true", NO.0, ""),
            ("false", r#""False""#, "boolean_to_string"),
        ],
    );
}

#[test]
fn an_integer_becomes_a_text_only_where_nothing_speaks_against_it() {
    let schema = |required: Value| {
        json!({
            "type": "object",
            "properties": {
                "order": {"type": "string"},
                "note": {"type": "string"},
                "day": {"type": "string", "format": "date"},
                "span": {"type": "string", "format": "span"},
                "code": {"type": "string", "pattern": "^[0-9]+$"},
                "ids": {"type": "array", "items": {"type": "string"}},
                "count": {"type": "integer"},
            },
            "required": required,
        })
    };
    check(
        Level::Safe,
        schema(json!(["order"])),
        &[
            (
                r#"{"order":7}"#,
                (r#"{"order":"7"}"#, "/order integer_to_string"),
            ),
            (r#"{"order":7,"count":"5"}"#, NO),
            (r#"{"order":7,"count":null}"#, NO),
            // It may be the count that is missing.
            (r#"{"order":"a","note":7}"#, NO),
            (r#"{"order":"a","code":7}"#, NO),
            (
                r#"{"order":"a","note":7,"count":1}"#,
                (
                    r#"{"count":1,"note":"7","order":"a"}"#,
                    "/note integer_to_string",
                ),
            ),
            (
                r#"{"order":1,"ids":[2,3]}"#,
                (
                    r#"{"ids":["2","3"],"order":"1"}"#,
                    "/ids/0 integer_to_string, /ids/1 integer_to_string, /order integer_to_string",
                ),
            ),
            (r#"{"order":"a","day":20260131,"count":1}"#, NO),
            (r#"{"order":"a","span":5,"count":1}"#, NO),
        ],
    );
    let mut any_one = schema(json!([]));
    any_one["minProperties"] = json!(1);
    check(Level::Safe, any_one, &[(r#"{"order":7}"#, NO)]);
}

#[test]
fn three_decimals_that_end_in_zero_may_be_thousands() {
    check_x(
        Level::Read,
        json!({"type": "number"}),
        &[
            (r#""10.000""#, NO.0, ""),
            (r#""-1.230""#, NO.0, ""),
            (r#""1.177""#, "1.177", "string_to_number"),
            (r#""0.500""#, "0.500", "string_to_number"),
            (r#""10.00""#, "10.00", "string_to_number"),
        ],
    );
    check_x(
        Level::Read,
        json!({"enum": [1.23, 10]}),
        &[(r#""1.230""#, NO.0, ""), (r#""10.000""#, NO.0, "")],
    );
}

#[test]
fn a_text_with_a_separator_or_for_nothing_is_no_item() {
    let words = json!({"type": "array", "items": {"type": "string"}});
    for text in [
        "a,b",
        "a; b",
        "a/b",
        "a|b",
        "a\nb",
        "a and b",
        "a-b",
        "a.b",
        "a~b",
        "红和蓝",
        "红与蓝",
        "红及蓝",
        "红、蓝",
        "红，蓝",
        "红；蓝",
        "红或蓝",
        "unknown",
        "Default",
        "ALL",
        "none",
        "any",
        "n/a",
        "everything",
        "无",
        "全部",
        "所有",
        "默认",
        "任何",
        "不限",
    ] {
        check_x(
            Level::Read,
            words.clone(),
            &[(&json!(text).to_string(), NO.0, "")],
        );
    }
    check_x(
        Level::Read,
        words,
        &[
            (r#""vegan""#, r#"["vegan"]"#, "value_to_array"),
            (r#""order_id""#, r#"["order_id"]"#, "value_to_array"),
            // Other scripts have no space between words.
            (r#""北京""#, NO.0, ""),
        ],
    );
    check_x(
        Level::Read,
        json!({"type": "array", "items": {"enum": ["north", "east", "north-east", "train station"]}}),
        &[
            (
                r#""train station""#,
                r#"["train station"]"#,
                "value_to_array",
            ),
            (r#""north-east""#, NO.0, ""),
            (r#""north""#, r#"["north"]"#, "value_to_array"),
        ],
    );
    check_x(
        Level::Read,
        json!({"type": "array", "items": {"type": "string", "format": "date"}}),
        &[(r#""2026-01-31""#, r#"["2026-01-31"]"#, "value_to_array")],
    );
}

#[test]
fn a_wrapper_never_runs_as_it_is() {
    let open = restaurants(false);
    for level in [Level::Safe, Level::Read] {
        check(
            level,
            open.clone(),
            &[
                (
                    r#"{"arguments":{"cuisine":"Thai"}}"#,
                    (
                        r#"{"cuisine":"Thai","limit":10}"#,
                        " unwrap, /limit default",
                    ),
                ),
                (
                    r#"{"get_weather":"{\"cuisine\":\"Thai\"}"}"#,
                    (
                        r#"{"cuisine":"Thai","limit":10}"#,
                        " unwrap, /limit default",
                    ),
                ),
                (
                    r#"{"args":{"limit":"5"}}"#,
                    (r#"{"limit":5}"#, " unwrap, /limit string_to_integer"),
                ),
                (
                    r#"{"input":{}}"#,
                    (r#"{"limit":10}"#, " unwrap, /limit default"),
                ),
                (r#"{"params":"Thai"}"#, NO),
                (r#"{"kwargs":[1]}"#, NO),
                (r#"{"arguments":{"limit":"many","open_now":"perhaps"}}"#, NO),
                (
                    r#"{"name":"get_weather","arguments":{"cuisine":"Thai"}}"#,
                    (
                        r#"{"cuisine":"Thai","limit":10}"#,
                        " unwrap, /limit default",
                    ),
                ),
                (
                    r#"{"name":"get_weather","parameters":"{\"cuisine\":\"Thai\"}"}"#,
                    (
                        r#"{"cuisine":"Thai","limit":10}"#,
                        " unwrap, /limit default",
                    ),
                ),
                (r#"{"name":"get_time","arguments":{"cuisine":"Thai"}}"#, NO),
            ],
        );
    }
    let sent = r#"{"arguments":{"cuisine":"Thai"}}"#;
    check(Level::Off, open, &[(sent, NO)]);
    check(
        Level::Safe,
        restaurants(true),
        &[(
            r#"{"name":"get_weather","arguments":{"cuisine":"Thai"}}"#,
            (
                r#"{"cuisine":"Thai","limit":10}"#,
                " unwrap, /limit default",
            ),
        )],
    );
    // The schema says what such names mean.
    let map = json!({"type": "object", "additionalProperties": {"type": "string"}});
    check(
        Level::Safe,
        map,
        &[(r#"{"input":"x"}"#, (r#"{"input":"x"}"#, ""))],
    );
    let declared = json!({"type": "object", "properties": {"input": {"type": "object"}}});
    check(
        Level::Safe,
        declared,
        &[(r#"{"input":{"a":1}}"#, (r#"{"input":{"a":1}}"#, ""))],
    );
}

#[test]
fn a_wrapper_is_taken_off_if_no_more_is_wrong_inside() {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": false,
    });
    check(
        Level::Safe,
        schema,
        &[(
            r#"{"args":{"city":"Oslo","days":"5"}}"#,
            (
                r#"{"city":"Oslo","days":5}"#,
                " unwrap, /days string_to_integer",
            ),
        )],
    );
}

#[test]
fn an_empty_text_for_an_optional_word_is_left_out() {
    check(
        Level::Safe,
        restaurants(true),
        &[(
            r#"{"cuisine":"Thai","price":""}"#,
            (
                r#"{"cuisine":"Thai","limit":10}"#,
                "/limit default, /price empty_removed",
            ),
        )],
    );
}

#[test]
fn a_wrapper_that_stays_is_named() {
    let told = |schema: &Value, sent: Value| {
        let schema = Schema::compile_input(schema).unwrap();
        let how = Coercing {
            level: Level::Safe,
            tool: "get_weather",
        };
        let violations = schema.fit(sent, how).unwrap_err();
        let items = violations.items().iter().map(ToString::to_string);
        items.collect::<Vec<_>>()
    };
    assert_eq!(
        told(
            &restaurants(false),
            json!({"arguments": {"limit": "many", "open_now": "perhaps"}})
        ),
        [
            r#"/arguments: expected the arguments themselves, not inside "arguments", found object with 2 keys"#
        ]
    );
    assert_eq!(
        told(
            &restaurants(true),
            json!({"params": {"cuisine": "Thai"}, "limit": "5"})
        ),
        [
            r#"/limit: expected integer, found string "5""#,
            r#"/params: expected the arguments themselves, not inside "params", found object with 1 key"#,
        ]
    );
    assert!(
        fit(
            &restaurants(true),
            Level::Safe,
            r#"{"params":{"cuisine":"Thai"},"limit":"5"}"#
        )
        .is_none()
    );
}

#[test]
fn brackets_of_items_and_boxes_around_lists_are_left() {
    let matrix = json!({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}});
    check_x(
        Level::Read,
        matrix,
        &[("[[[5],[6]]]", NO.0, ""), ("[[[5],6]]", NO.0, "")],
    );
    let item = json!({"type": "object", "properties": {"items": {"type": "array"}, "n": {}}});
    check_x(
        Level::Read,
        json!({"type": "array", "items": item}),
        &[
            (r#"{"items":[]}"#, NO.0, ""),
            (
                r#"{"items":[],"n":1}"#,
                r#"[{"items":[],"n":1}]"#,
                "value_to_array",
            ),
        ],
    );
}

#[test]
fn words_that_choose_a_branch_may_be_swapped() {
    let branch = |kind: &str, n: &str| json!({"type": "object", "properties": {"kind": {"const": kind}, "n": {"type": n}}, "required": ["kind"]});
    let shapes = json!({"type": "array", "items": {"oneOf": [branch("a", "integer"), branch("b", "string")]}});
    check_x(
        Level::Safe,
        shapes,
        &[
            (r#"[{"kind":"a","n":"7"},{"kind":"b"}]"#, NO.0, ""),
            (
                r#"[{"kind":"a","n":"7"},{"kind":"a"}]"#,
                r#"[{"kind":"a","n":7},{"kind":"a"}]"#,
                "/x/0/n string_to_integer",
            ),
        ],
    );
}
