//! Arguments that could be mended, but may have been meant otherwise.

use serde_json::json;

use super::{super::*, NO, check, check_x};

#[test]
fn text_that_is_almost_what_is_wanted_is_nothing_else() {
    let date_or_number =
        json!({"anyOf": [{"type": "string", "format": "date"}, {"type": "number"}]});
    check_x(
        Level::Safe,
        date_or_number,
        &[(r#""20260131""#, NO.0, ""), ("true", NO.0, "")],
    );
    let word_or_number = json!({"anyOf": [{"enum": ["auto"]}, {"type": "integer"}]});
    check_x(
        Level::Safe,
        word_or_number,
        &[
            (r#""5""#, "5", "string_to_integer"),
            (r#""five""#, NO.0, ""),
            (r#""AUTO""#, r#""auto""#, "enum_match"),
        ],
    );
}

#[test]
fn a_value_and_a_list_of_it_are_not_taken_for_each_other() {
    let list_or_text =
        json!({"anyOf": [{"type": "array", "items": {"type": "boolean"}}, {"type": "string"}]});
    check_x(
        Level::Read,
        list_or_text,
        &[("true", NO.0, ""), ("5", r#""5""#, "integer_to_string")],
    );
    let list_or_integer =
        json!({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "integer"}]});
    check_x(
        Level::Read,
        list_or_integer,
        &[("[5]", NO.0, ""), (r#""5""#, NO.0, "")],
    );
    let nullable = json!({"type": ["array", "null"], "items": {"type": "string"}});
    check_x(
        Level::Read,
        nullable,
        &[(r#""nobody""#, NO.0, ""), ("5", NO.0, "")],
    );
    let lists = json!({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}});
    check_x(Level::Read, lists, &[("[1, 2]", NO.0, ""), ("1", NO.0, "")]);
    let of_texts = json!({"type": "array", "items": {"type": "string"}});
    check_x(
        Level::Read,
        of_texts,
        &[
            (r#""[1]""#, NO.0, ""),
            (r#""[\"a\"]""#, r#"["a"]"#, "string_to_array"),
        ],
    );
    let of_objects = json!({"type": "array", "items": {"type": "object", "properties": {"a": {}}}});
    check_x(
        Level::Read,
        of_objects,
        &[
            (r#"{"a":1}"#, r#"[{"a":1}]"#, "value_to_array"),
            (r#"{"items":[{"a":1}]}"#, NO.0, ""),
            (r#"{"0":{"a":1}}"#, NO.0, ""),
            ("{}", NO.0, ""),
        ],
    );
}

#[test]
fn lists_may_be_swapped() {
    let schema = json!({
        "type": "object",
        "properties": {
            "names": {"type": "array", "items": {"type": "string"}},
            "flags": {"type": "array", "items": {"type": "boolean"}},
        },
    });
    check(
        Level::Safe,
        schema,
        &[
            (r#"{"names":[true],"flags":[]}"#, NO),
            (
                r#"{"names":[5],"flags":[true]}"#,
                (
                    r#"{"flags":[true],"names":["5"]}"#,
                    "/names/0 integer_to_string",
                ),
            ),
        ],
    );
}

#[test]
fn what_may_be_swapped_is_not_mended() {
    let schema = json!({
        "type": "object",
        "properties": {
            "count": {"type": "integer"},
            "text": {"type": "string"},
            "word": {"enum": ["a", "b"]},
            "other": {"enum": ["c", "d"]},
            "value": {"type": ["string", "boolean", "null"]},
        },
    });
    check(
        Level::Safe,
        schema,
        &[
            (r#"{"count":"5","text":7}"#, NO),
            (r#"{"count":null,"value":7}"#, NO),
            (r#"{"count":"","text":7}"#, NO),
            (r#"{"text":true,"value":"x"}"#, NO),
            (r#"{"text":7,"value":"x"}"#, NO),
            (
                r#"{"text":7,"value":"x","count":1}"#,
                (
                    r#"{"count":1,"text":"7","value":"x"}"#,
                    "/text integer_to_string",
                ),
            ),
            (
                r#"{"word":"A","other":" C"}"#,
                (
                    r#"{"other":"c","word":"a"}"#,
                    "/other enum_match, /word enum_match",
                ),
            ),
        ],
    );
}

#[test]
fn what_was_sent_in_each_others_place_is_left_there() {
    check(
        Level::Read,
        json!({
            "type": "object",
            "properties": {
                "count": {"type": "integer"},
                "text": {"type": "string"},
                "ids": {"type": "array", "items": {"type": "integer"}},
                "words": {"type": "array", "items": {"type": "string"}},
            },
        }),
        &[
            (r#"{"count":"5","text":199}"#, NO),
            (r#"{"ids":["5"],"words":[]}"#, NO),
            (
                r#"{"count":"5","text":"199"}"#,
                (r#"{"count":5,"text":"199"}"#, "/count string_to_integer"),
            ),
            (
                r#"{"ids":["5"],"words":["a"]}"#,
                (r#"{"ids":[5],"words":["a"]}"#, "/ids/0 string_to_integer"),
            ),
        ],
    );
}

#[test]
fn a_union_is_mended_in_the_branches_that_take_such_a_value() {
    let x = json!({"anyOf": [{"type": "string", "pattern": "^[0-9]+[sm]$"}, {"type": "integer"}]});
    check_x(
        Level::Read,
        x,
        &[(r#""5""#, NO.0, ""), (r#""5m""#, r#""5m""#, "")],
    );
    let x = json!({"oneOf": [{"type": "array", "items": {"type": "string"}}, {"type": "boolean"}]});
    check_x(
        Level::Read,
        x,
        &[
            ("1", NO.0, ""),
            (r#""true""#, NO.0, ""),
            ("[5]", r#"["5"]"#, "/x/0 integer_to_string"),
            // It may be the boolean in brackets.
            ("[true]", NO.0, ""),
        ],
    );
    // A reading that only `read` tools may use makes the value uncertain for every tool.
    let x = json!({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "integer"}]});
    check_x(Level::Safe, x, &[(r#""5""#, NO.0, "")]);
    let x = json!({"type": ["integer", "array"]});
    check_x(Level::Read, x, &[("5.5", NO.0, "")]);
}

#[test]
fn objects_get_and_lose_brackets_if_all_in_them_is_known() {
    let item = json!({"type": "object", "properties": {"id": {"type": "integer"}}});
    let list = json!({"type": "array", "items": item});
    check_x(
        Level::Read,
        list.clone(),
        &[
            (r#"{"id":1}"#, r#"[{"id":1}]"#, "value_to_array"),
            (r#"{"0":{"id":1}}"#, NO.0, ""),
            ("{}", NO.0, ""),
            (r#"{"id":"1"}"#, NO.0, ""),
        ],
    );
    check_x(
        Level::Read,
        item,
        &[
            (r#"[{"id":1}]"#, r#"{"id":1}"#, "array_to_value"),
            (r#"[{"key":"id","value":1}]"#, NO.0, ""),
            ("[{}]", NO.0, ""),
        ],
    );
    let matrix = json!({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}});
    check_x(Level::Read, matrix, &[("[785,839]", NO.0, "")]);
}

#[test]
fn a_scalar_may_be_sent_for_the_object_that_holds_it() {
    let x = json!({"anyOf": [{"type": "object", "properties": {"id": {"type": "string"}}}, {"type": "number"}]});
    check_x(Level::Safe, x, &[(r#""5""#, NO.0, "")]);
}

#[test]
fn a_number_may_belong_under_any_name_that_takes_one() {
    let map = |required: Value| {
        json!({
            "type": "object",
            "properties": {"filter": {"type": "string"}},
            "required": required,
            "additionalProperties": {"type": "number"},
        })
    };
    let sent = r#"{"filter":85,"x":1}"#;
    check(Level::Safe, map(json!([])), &[(sent, NO)]);
    let text = (r#"{"filter":"85","x":1}"#, "/filter integer_to_string");
    check(Level::Safe, map(json!(["filter"])), &[(sent, text)]);
}

#[test]
fn a_text_that_is_left_in_quotes_says_that_all_were_written_so() {
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "note": {},
        },
    });
    for level in [Level::Safe, Level::Read] {
        check(
            level,
            schema.clone(),
            &[
                (r#"{"city":"\"Paris\"","days":"5"}"#, NO),
                (r#"{"city":"'Paris'","days":"5"}"#, NO),
                (r#"{"city":"\"Pa\\\"ris\"","tags":"[\"a\"]"}"#, NO),
                (r#"{"city":"a","tags":"[\"'a'\"]"}"#, NO),
                (
                    r#"{"city":"'Oslo' or 'Bergen'","days":"5"}"#,
                    (
                        r#"{"city":"'Oslo' or 'Bergen'","days":5}"#,
                        "/days string_to_integer",
                    ),
                ),
            ],
        );
    }
    check(
        Level::Read,
        schema,
        &[
            (r#"{"city":["Paris"],"note":["a"],"days":1}"#, NO),
            (r#"{"city":"[\"Paris\"]","days":[5]}"#, NO),
            (
                r#"{"city":["Paris"],"note":["a","b"],"tags":["c"]}"#,
                (
                    r#"{"city":"Paris","note":["a","b"],"tags":["c"]}"#,
                    "/city array_to_value",
                ),
            ),
        ],
    );
}

#[test]
fn a_scalar_that_is_left_as_its_text_says_that_all_were_written_so() {
    let schema = json!({
        "type": "object",
        "properties": {
            "days": {"type": "integer"},
            "code": {"type": ["string", "integer"]},
            "name": {"type": ["string", "null"]},
            "rows": {"type": "array"},
        },
    });
    let mended = "/days string_to_integer";
    check(
        Level::Safe,
        schema,
        &[
            (r#"{"days":"5","code":"7"}"#, NO),
            (r#"{"days":"5","name":"null"}"#, NO),
            (r#"{"days":"5","rows":["true"]}"#, NO),
            (
                r#"{"days":"5","code":"7a","name":"7","rows":["x"]}"#,
                (r#"{"code":"7a","days":5,"name":"7","rows":["x"]}"#, mended),
            ),
        ],
    );
}

#[test]
fn what_was_sent_as_nothing_may_be_where_another_value_belongs() {
    let schema = |required: Value| {
        json!({
            "type": "object",
            "properties": {
                "zip": {"type": "string"},
                "radius": {"type": "integer"},
                "names": {"type": "array", "items": {"type": "string"}},
                "ids": {"type": "array", "items": {"type": "integer"}},
                "filter": {"type": "object", "properties": {"flag": {"type": ["boolean", "string"]}}},
                "other": {"type": "object", "properties": {"flag": {"type": "boolean"}}},
            },
            "required": required,
        })
    };
    for level in [Level::Safe, Level::Read] {
        check(
            level,
            schema(json!([])),
            &[
                (r#"{"zip":null,"radius":"94704"}"#, NO),
                (r#"{"zip":null,"other":{"flag":"true"}}"#, NO),
                (r#"{"names":"","ids":["7"]}"#, NO),
                (r#"{"filter":null,"other":{"flag":"true"}}"#, NO),
                // A number is no such text, and the text of an object is no other text.
                (
                    r#"{"radius":null,"ids":["7"]}"#,
                    (
                        r#"{"ids":[7]}"#,
                        "/ids/0 string_to_integer, /radius null_removed",
                    ),
                ),
                (
                    r#"{"zip":null,"filter":"{\"flag\":true}"}"#,
                    (
                        r#"{"filter":{"flag":true}}"#,
                        "/filter string_to_object, /zip null_removed",
                    ),
                ),
            ],
        );
        // Without it, this would not be a call.
        check(
            level,
            schema(json!(["radius"])),
            &[(
                r#"{"zip":null,"radius":"94704"}"#,
                (
                    r#"{"radius":94704}"#,
                    "/radius string_to_integer, /zip null_removed",
                ),
            )],
        );
    }
    check(
        Level::Read,
        schema(json!([])),
        &[(r#"{"names":null,"zip":["x"]}"#, NO)],
    );
}

#[test]
fn a_list_may_be_swapped_as_its_text_and_across_levels() {
    let schema = json!({
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}},
            "name": {"type": "string"},
            "n": {"type": "number"},
            "odd": {"type": "array", "contains": {"const": 7}},
            "filter": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "ids": {"type": "array", "items": {"type": "integer"}},
                },
            },
        },
    });
    check(
        Level::Read,
        schema,
        &[
            (r#"{"tags":"bob","name":"[\"urgent\"]"}"#, NO),
            (r#"{"tags":"bob","filter":{"name":"[\"urgent\"]"}}"#, NO),
            (r#"{"tags":"bob","filter":{"name":["urgent"]}}"#, NO),
            (r#"{"n":[7],"filter":{"ids":5}}"#, NO),
            // `contains` says nothing of its other items.
            (r#"{"name":null,"odd":[7,"x"]}"#, NO),
            (
                r#"{"tags":"bob","name":"[urgent]"}"#,
                (
                    r#"{"name":"[urgent]","tags":["bob"]}"#,
                    "/tags value_to_array",
                ),
            ),
        ],
    );
}
