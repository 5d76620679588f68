//! One value and what is wanted instead of it.

use serde_json::json;

use super::{super::*, NO, check, check_x};

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
