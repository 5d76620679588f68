//! One value and what is wanted instead of it.

use serde_json::json;

use super::{super::*, NO, check, check_x, fit};

#[test]
fn text_becomes_the_number_it_is() {
    check_x(
        Level::Safe,
        json!({"type": "integer"}),
        &[
            (r#""5""#, "5", "string_to_integer"),
            (r#"" -7 ""#, "-7", "string_to_integer"),
            (
                r#""9007199254740993""#,
                "9007199254740993",
                "string_to_integer",
            ),
            (r#""5.0""#, "5", "string_to_integer"),
            (r#""5e0""#, "5", "string_to_integer"),
            (r#""1.000""#, NO.0, ""),
            (r#""-12.000""#, NO.0, ""),
            (r#""1.0000""#, "1", "string_to_integer"),
            ("5.0", "5.0", ""),
            (r#""5.5""#, NO.0, ""),
            ("5.5", NO.0, ""),
            (r#""+5""#, NO.0, ""),
            (r#""05""#, NO.0, ""),
            (r#""1,000""#, NO.0, ""),
            (r#""0x10""#, NO.0, ""),
            (r#""""#, NO.0, ""),
            (r#""five""#, NO.0, ""),
            ("true", NO.0, ""),
            ("null", NO.0, ""),
            ("[5]", NO.0, ""),
            (r#""[5]""#, NO.0, ""),
        ],
    );
    check_x(
        Level::Safe,
        json!({"type": "number"}),
        &[
            (r#""0.50""#, "0.50", "string_to_number"),
            (r#""1e3""#, "1e3", "string_to_number"),
            (r#""1.177""#, "1.177", "string_to_number"),
            (r#""NaN""#, NO.0, ""),
            (r#""50%""#, NO.0, ""),
        ],
    );
}

#[test]
fn text_becomes_the_boolean_it_is() {
    check_x(
        Level::Read,
        json!({"type": "boolean"}),
        &[
            (r#""true""#, "true", "string_to_boolean"),
            (r#"" FALSE ""#, "false", "string_to_boolean"),
            (r#""True""#, "true", "string_to_boolean"),
            (r#""yes""#, NO.0, ""),
            (r#""1""#, NO.0, ""),
            (r#""""#, NO.0, ""),
            ("1", NO.0, ""),
            ("0", NO.0, ""),
            ("null", NO.0, ""),
        ],
    );
}

#[test]
fn text_becomes_the_array_or_object_it_is() {
    check_x(
        Level::Safe,
        json!({"type": "array", "items": {"type": "integer"}}),
        &[
            (r#""[1, 2]""#, "[1,2]", "string_to_array"),
            (
                r#""[\"1\"]""#,
                "[1]",
                "string_to_array, /x/0 string_to_integer",
            ),
            (r#""[]""#, "[]", "string_to_array"),
            (r#""1""#, NO.0, ""),
            (r#""1,2""#, NO.0, ""),
            (r#""[1,2""#, NO.0, ""),
            (r#""[1,2,]""#, NO.0, ""),
            (r#""{}""#, NO.0, ""),
            (r#""\"[1]\"""#, NO.0, ""),
            ("1", NO.0, ""),
        ],
    );
    check_x(
        Level::Safe,
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": false}),
        &[
            (
                r#""{\"a\": \"9007199254740993\"}""#,
                r#"{"a":9007199254740993}"#,
                "string_to_object, /x/a string_to_integer",
            ),
            (r#""{\"a\":1,\"a\":1}""#, NO.0, ""),
            (r#""{'a': 1}""#, NO.0, ""),
            (r#""{\"a\":1,\"b\":1}""#, NO.0, ""),
            (r#""```json\n{\"a\":1}\n```""#, NO.0, ""),
        ],
    );
}

#[test]
fn scalars_become_the_text_they_are() {
    check_x(
        Level::Safe,
        json!({"type": "string"}),
        &[
            ("5", r#""5""#, "integer_to_string"),
            (
                "18446744073709551615",
                r#""18446744073709551615""#,
                "integer_to_string",
            ),
            ("true", NO.0, ""),
            ("5.0", NO.0, ""),
            ("1e3", NO.0, ""),
            ("null", NO.0, ""),
            (r#"["a"]"#, NO.0, ""),
            ("{}", NO.0, ""),
            (r#""{\"a\":1}""#, r#""{\"a\":1}""#, ""),
        ],
    );
}

#[test]
fn an_allowed_word_is_known_in_any_case() {
    check_x(
        Level::Safe,
        json!({"enum": ["celsius", "Kelvin", "5", "true"]}),
        &[
            (r#"" Celsius ""#, r#""celsius""#, "enum_match"),
            (r#""KELVIN""#, r#""Kelvin""#, "enum_match"),
            ("5", r#""5""#, "integer_to_string"),
            ("true", r#""true""#, "boolean_to_string"),
            ("false", NO.0, ""),
            ("6", NO.0, ""),
            (r#""celcius""#, NO.0, ""),
            (r#""C""#, NO.0, ""),
            (r#""""#, NO.0, ""),
        ],
    );
    check_x(
        Level::Safe,
        json!({"type": "string", "enum": ["a", "A", "b"]}),
        &[
            (r#"" a""#, r#""a""#, "enum_match"),
            (r#"" B ""#, r#""b""#, "enum_match"),
            ("\"\u{a0}b\"", NO.0, ""),
        ],
    );
    check_x(
        Level::Safe,
        json!({"enum": ["Ä", "ä", 1, "1", 1000]}),
        &[
            (r#""ä ""#, r#""ä""#, "enum_match"),
            (r#"" 1""#, NO.0, ""),
            (r#""1000""#, "1000", "string_to_integer"),
            (r#""1.000""#, NO.0, ""),
        ],
    );
    check_x(
        Level::Safe,
        json!({"enum": [1, 2, true]}),
        &[
            (r#""1""#, "1", "string_to_integer"),
            (r#""2.0""#, "2", "string_to_integer"),
            (r#""True""#, "true", "string_to_boolean"),
            (r#""3""#, NO.0, ""),
            (r#""false""#, NO.0, ""),
        ],
    );
    check_x(
        Level::Safe,
        json!({"type": "string", "const": "fast"}),
        &[
            (r#""FAST""#, r#""fast""#, "enum_match"),
            (r#""slow""#, NO.0, ""),
        ],
    );
}

#[test]
fn relaxed_text_is_read_for_read_tools_alone() {
    let x = json!({"type": "object"});
    let rows = [
        (r#""```json\n{\"a\": 1}\n```""#, r#"{"a":1}"#),
        (r#""{'a': True, 'b': None}""#, r#"{"a":true,"b":null}"#),
        (
            r#""{a: 1.10, /* c */ b: [1, 2,],}""#,
            r#"{"a":1.10,"b":[1,2]}"#,
        ),
    ];
    let read: Vec<_> = rows.map(|(sent, made)| (sent, made, "relaxed_json")).into();
    check_x(Level::Read, x.clone(), &read);
    let safe: Vec<_> = rows.map(|(sent, _)| (sent, NO.0, "")).into();
    check_x(Level::Safe, x, &safe);
}

#[test]
fn an_optional_integer_that_was_sent_as_nothing_gets_its_default() {
    check(
        Level::Safe,
        json!({"type": "object", "properties": {"cents": {"type": "integer", "default": 5}}}),
        &[
            (
                r#"{"cents":null}"#,
                (r#"{"cents":5}"#, "/cents null_removed, /cents default"),
            ),
            (
                r#"{"cents":""}"#,
                (r#"{"cents":5}"#, "/cents empty_removed, /cents default"),
            ),
        ],
    );
}

#[test]
fn nothing_is_left_out_where_the_tool_has_a_word_for_it() {
    let schema = json!({
        "type": "object",
        "properties": {
            "share": {"enum": ["all", "externalOnly", "none"], "default": "all"},
            "mode": {"enum": ["fast", "not_specified"]},
            "level": {"enum": ["none", "high"], "default": "none"},
            "unit": {"enum": ["mm", "inch"], "default": "mm"},
            "verbose": {"type": "boolean", "default": true},
            "quiet": {"type": "boolean", "default": false},
            "either": {"anyOf": [{"type": "boolean", "default": true}, {"type": "integer"}]},
            "word": {"enum": ["True", "False"]},
            "said": {"enum": ["True", "False"], "default": "True"},
        },
    });
    let filled = |more: &str| {
        format!(
            r#"{{{more}"level":"none","quiet":false,"said":"True","share":"all","unit":"mm","verbose":true}}"#
        )
    };
    for sent in ["null", "\"\""] {
        let send = |name: &str| fit(&schema, Level::Safe, &format!(r#"{{"{name}":{sent}}}"#));
        for refused in ["share", "mode", "verbose", "either", "said"] {
            assert_eq!(send(refused), None, "{refused}: {sent}");
        }
        for left_out in ["level", "unit", "quiet", "word"] {
            assert_eq!(send(left_out).unwrap().0, filled(""), "{left_out}: {sent}");
        }
    }
}

#[test]
fn an_integer_is_no_text_like_those_that_the_schema_shows() {
    for shown in [
        json!({"type": "string", "default": "miles"}),
        json!({"type": "string", "examples": ["5", "2 hours"]}),
        json!({"allOf": [{"type": "string"}, {"examples": ["2026-01-31"]}]}),
    ] {
        check_x(Level::Safe, shown, &[("5", NO.0, "")]);
    }
    check_x(
        Level::Safe,
        json!({"type": "string", "default": "1", "examples": ["12"]}),
        &[("5", r#""5""#, "integer_to_string")],
    );
}

#[test]
fn an_object_in_its_own_name_is_not_what_was_to_stand_there() {
    let x = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    check_x(
        Level::Read,
        x,
        &[
            (r#""{\"x\":{\"a\":1}}""#, NO.0, ""),
            (r#""{\"arguments\":{\"a\":1}}""#, NO.0, ""),
            (r#""{'x': {'a': 1}}""#, NO.0, ""),
            (r#""{\"y\":1}""#, r#"{"y":1}"#, "string_to_object"),
            (
                r#""{\"x\":1,\"a\":1}""#,
                r#"{"a":1,"x":1}"#,
                "string_to_object",
            ),
        ],
    );
    let own = json!({"type": "object", "properties": {"x": {"type": "integer"}, "input": {}}});
    check_x(
        Level::Safe,
        own,
        &[
            (r#""{\"x\":1}""#, r#"{"x":1}"#, "string_to_object"),
            (r#""{\"input\":1}""#, r#"{"input":1}"#, "string_to_object"),
        ],
    );
}

#[test]
fn a_backslash_that_was_to_stay_is_not_read() {
    let texts = json!({"type": "array", "items": {"type": "string"}});
    check_x(
        Level::Read,
        texts,
        &[
            (r#""[\"C:\\new\\table\"]""#, NO.0, ""),
            (r#""[\"see C:\\temp\"]""#, NO.0, ""),
            (r#""['C:\\run']""#, NO.0, ""),
            (r#""[\"\\bfoo\\b\"]""#, NO.0, ""),
            (r#""[\"\\f\"]""#, NO.0, ""),
            (r#""[\"C:\\\\new\"]""#, r#"["C:\\new"]"#, "string_to_array"),
            (
                r#""[\"Note:\\nmore\"]""#,
                r#"["Note:\nmore"]"#,
                "string_to_array",
            ),
        ],
    );
}

#[test]
fn a_word_of_a_list_has_no_part_that_says_otherwise() {
    let words = json!({"type": "array", "items": {"type": "string"}});
    for text in [
        "no_preference",
        "not_specified",
        "NotSpecified",
        "all_of_them",
        "anyColor",
        "redAndBlue",
        "redOrBlue",
        "red_and_blue",
        "rot_und_blau",
        "redTo",
        "string",
        "array",
        "object",
        "list",
        "0",
        "dontcare",
        "wildcard",
        "红色",
        "red丶blue",
        "すべて",
        "все",
        "redᅠblue",
        "red²blue",
    ] {
        check_x(
            Level::Read,
            words.clone(),
            &[(&json!(text).to_string(), NO.0, "")],
        );
    }
    for text in [
        "vegan", "order_id", "noteBook", "Toronto", "handball", "USB2", "x",
    ] {
        let sent = json!(text).to_string();
        check_x(
            Level::Read,
            words.clone(),
            &[(&sent, &format!("[{sent}]"), "value_to_array")],
        );
    }
    check_x(
        Level::Read,
        json!({"type": "array", "items": {"enum": ["红色", "蓝色", "redAndBlue"]}}),
        &[
            (r#""红色""#, r#"["红色"]"#, "value_to_array"),
            (r#""redAndBlue""#, r#"["redAndBlue"]"#, "value_to_array"),
        ],
    );
    check_x(
        Level::Read,
        json!({"type": "array", "items": {"type": "integer"}}),
        &[
            ("0", NO.0, ""),
            ("-1", NO.0, ""),
            ("7", "[7]", "value_to_array"),
        ],
    );
    check_x(
        Level::Safe,
        json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
        &[
            ("0", NO.0, ""),
            ("-1", NO.0, ""),
            ("7", r#""7""#, "integer_to_string"),
        ],
    );
}

#[test]
fn brackets_of_a_text_that_holds_json_are_left() {
    for keyword in ["contentMediaType", "contentSchema"] {
        let content = match keyword {
            "contentSchema" => json!({"type": "array"}),
            _ => json!("application/json"),
        };
        check_x(
            Level::Read,
            json!({"type": "string", keyword: content}),
            &[(r#"["a"]"#, NO.0, "")],
        );
    }
}
