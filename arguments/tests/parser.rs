//! The parser at the door against the grammar of JSON: what must be accepted, what must be refused, and what each parser
//! decides for itself. And every way to cut a body off.

use std::fmt::Write;

use arguments::{Limits, ParseCode, parse, parse_any};
use proptest::prelude::*;
use serde_json::Value;

/// The code with which it is refused; `None` where it is accepted.
fn refused(text: &[u8]) -> Option<ParseCode> {
    parse_any(text, &Limits::DEFAULT)
        .err()
        .map(|error| error.code)
}

fn told(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[test]
fn what_the_grammar_allows_is_accepted() {
    let texts: &[&str] = &[
        // Values at the top, with and without space around them.
        "{}",
        "[]",
        "null",
        "true",
        "false",
        "0",
        "-1",
        "\"\"",
        "\"a\"",
        " \t\r\n{} \t\r\n",
        "[\n]",
        // Structure.
        "[[]]",
        "[[],[[]]]",
        "[{}]",
        r#"{"":0}"#,
        r#"{"a":{}}"#,
        r#"{"a":[]}"#,
        r#"{"a":"b","c":null}"#,
        "[1 , 2\t,\n3]",
        r#"{ "a" : [ true , false ] }"#,
        "[null,1,\"1\",{}]",
        "{\n\"a\": \"b\"\n}",
        // Numbers.
        "[0]",
        "[-0]",
        "[0.0]",
        "[-0.0]",
        "[0e1]",
        "[0e+1]",
        "[0E-1]",
        "[1e1]",
        "[1E22]",
        "[1E+2]",
        "[1e-2]",
        "[123.456]",
        "[123.456e78]",
        "[1.000]",
        "[-123]",
        "[20e1]",
        "[0.4e006]",
        "[123e65]",
        "[1e308]",
        "[-1e-308]",
        "[9223372036854775807]",
        "[18446744073709551615]",
        "[-9223372036854775808]",
        "[9007199254740993]",
        "[0.1000000000000000055511151231257827021181583404541015625]",
        "[123123123123123123123.5]",
        // Strings and their escapes.
        r#"["\"\\\/\b\f\n\r\t"]"#,
        r#"["\u0061\u00e9\u20AC"]"#,
        r#"["\uD834\uDd1e"]"#,
        r#"["\ud83d\ude00\ud83d\ude00"]"#,
        r#"["\uFFFF"]"#,
        r#"["\uFDD0\uFFFE"]"#,
        r#"["\u0001"]"#,
        r#"["\u007f"]"#,
        r#"["\u2028\u2029"]"#,
        r#"["\\u0000"]"#,
        r#"["\\n"]"#,
        r#"["a/*b*/c//d#e"]"#,
        r#"["new\u000Aline"]"#,
        r#"["\u200b\u202e"]"#,
        "[\"\u{7f}\"]",
        "[\"é€😀\u{10ffff}\"]",
        "[\"\u{2028}\u{2029}\u{200b}\u{feff}\"]",
        // Keys.
        r#"{"a":1,"b":1}"#,
        r#"{"a":1,"A":1}"#,
        r#"{"\u0041":1,"a":1}"#,
        r#"{"__proto__":{},"constructor":1}"#,
        r#"{"min":-1.0e+28,"max":1.0e+28}"#,
        r#"{"x":[{"id":"aaaa"}],"id":"a"}"#,
        "{\"\u{e9}\":1,\"e\u{301}\":1}",
    ];
    for text in texts {
        assert_eq!(refused(text.as_bytes()), None, "{text}");
        let read = parse_any(text.as_bytes(), &Limits::DEFAULT).unwrap();
        let theirs: Value = serde_json::from_str(text).unwrap();
        // serde_json respells exponents, so both are read by it once more.
        let again: Value = serde_json::from_str(&read.to_string()).unwrap();
        assert_eq!(again, theirs, "{text}");
    }
}

#[test]
fn what_the_grammar_does_not_allow_is_refused() {
    use ParseCode::{InvalidUnicode, MalformedJson, TruncatedArguments};
    let malformed: &[&[u8]] = &[
        // Nothing, or more than one value.
        b"",
        b" ",
        b"\n",
        b"{}{}",
        b"[][]",
        b"1 2",
        b"{} true",
        b"[1]x",
        b"{}}",
        b"[]]",
        b"]",
        b"}",
        b",",
        b":",
        b"{},",
        b"\"a\"\"b\"",
        b"{}#",
        b"{}//",
        b"{}/**/",
        b"[]\0",
        b"\0",
        b"\xef\xbb\xbf",
        b"\xef\xbb\xbf{}",
        b"<.>",
        b"[<null>]",
        // Arrays.
        b"[,]",
        b"[1,]",
        b"[,1]",
        b"[1,,2]",
        b"[1 2]",
        b"[1:2]",
        b"[\"\": 1]",
        b"[1}",
        b"[x",
        b"[a",
        b"[*]",
        b"[1,\n}",
        b"[\x0b]",
        b"[\x0c]",
        b"[\xc2\xa0]",
        b"[\xe2\x81\xa0]",
        // Objects.
        b"{,}",
        b"{\"a\":1,}",
        b"{\"a\":1,,\"b\":2}",
        b"{\"a\"}",
        b"{\"a\",1}",
        b"{\"a\" 1}",
        b"{\"a\"::1}",
        b"{:1}",
        b"{1:1}",
        b"{a:1}",
        b"{'a':1}",
        b"{null:1}",
        b"{[]:1}",
        b"{\"a\":1]",
        b"{\"a\":}",
        b"{\"a\":1 \"b\":2}",
        b"{\"a\":1;}",
        b"{\"a\":/**/1}",
        b"{//\n}",
        b"{#\n}",
        b"{\"a\":\"b\"}#{}",
        b"{\"a\":1}}",
        b"{\"a\"=>1}",
        b"{[",
        b"{*}",
        // Literals.
        b"[True]",
        b"[NULL]",
        b"[nul]",
        b"[tru]",
        b"[truee]",
        b"[nulll]",
        b"[None]",
        b"[undefined]",
        b"[NaN]",
        b"[-NaN]",
        b"[Infinity]",
        b"[-Infinity]",
        b"[+Inf]",
        b"[Inf]",
        b"[fals e]",
        // Numbers.
        b"[+1]",
        b"[01]",
        b"[-01]",
        b"[00]",
        b"[-]",
        b"[--1]",
        b"[- 1]",
        b"[-a]",
        b"[1.]",
        b"[.5]",
        b"[-.5]",
        b"[1.e1]",
        b"[0.e1]",
        b"[1e]",
        b"[1E+]",
        b"[1e-]",
        b"[1ee2]",
        b"[1e1.5]",
        b"[1.2.3]",
        b"[1+2]",
        b"[1-2]",
        b"[0x1]",
        b"[1_000]",
        b"[1,5e]",
        b"[1a]",
        b"[1 000]",
        b"[0e]",
        b"[.e1]",
        b"[-2.]",
        b"[++1]",
        b"[1e+-2]",
        b"[\xef\xbc\x91]",
        b"[9.e+]",
        // Strings.
        b"['a']",
        b"[\"a\nb\"]",
        b"[\"a\tb\"]",
        b"[\"\x00\"]",
        b"[\"\x1f\"]",
        b"[\"\\x41\"]",
        b"[\"\\a\"]",
        b"[\"\\'\"]",
        b"[\"\\u00g0\"]",
        b"[\"\\u 061\"]",
        b"[\"\\U0041\"]",
        b"[\"\\u+041\"]",
        b"[\"\\\x00\"]",
        b"[\"\\\xe2\x82\xac\"]",
        b"[\\n]",
        b"[\"a\"b]",
        b"[\"\\0\"]",
        b"[\"\x1b\"]",
        b"[\"\\ud800\\u\"]",
        b"[\xe2\x80\x9ca\xe2\x80\x9d]",
        b"```json\n{}\n```",
        b"\"\\u{41}\"",
        b"\\",
    ];
    for text in malformed {
        assert_eq!(refused(text), Some(MalformedJson), "{}", told(text));
    }
    let cut: &[&[u8]] = &[
        b"[",
        b"{",
        b"[1",
        b"[1,",
        b"[[",
        b"{\"a",
        b"{\"a\"",
        b"{\"a\":",
        b"{\"a\":1",
        b"{\"a\":1,",
        b"\"",
        b"\"a",
        b"\"\\",
        b"\"\\u",
        b"\"\\u00",
        b"\"\\ud800",
        b"\"\\ud800\\",
        b"\"\\ud800\\u",
        b"\"\\ud800\\udc",
        b"t",
        b"[fals",
        b"[n",
        b"-",
        b"[-",
        b"[1.",
        b"[1e",
        b"[1e+",
        b"[{\"a\":[\"",
        b"[\"\xe2\x82",
        b"{\"\xf0\x9f",
        b"[1234567890123456789012345",
    ];
    for text in cut {
        assert_eq!(refused(text), Some(TruncatedArguments), "{}", told(text));
    }
    let broken: &[&[u8]] = &[
        b"\xff",
        b"[\xff]",
        b"{\"\xff\":1}",
        b"[\"\xff\"]",
        b"[\"\xc0\xaf\"]",
        b"[\"\xe0\x80\xaf\"]",
        b"[\"\xf4\x90\x80\x80\"]",
        b"[\"\xfc\x80\x80\x80\x80\x80\"]",
        b"[\"\xed\xa0\x80\"]",
        b"[\"\x80\"]",
        b"[\"\xe2\x82\"]",
        b"[\"\xe2\"]",
        b"[1\xff]",
        b"[]\xff",
        b"{}\xe2\x82",
        b"[1,\xc3",
        b"tru\xff",
        b"\xff\xfe[\0]\0",
        b"[\"\\\xff\"]",
        b"[\"\\u\xff\"]",
        b"[\"\\ud800\"]",
        b"[\"\\udc00\"]",
        b"[\"\\ud800\\ud800\"]",
        b"[\"\\udc00\\ud800\"]",
        b"[\"\\ud800x\"]",
        b"[\"\\ud800\\n\"]",
        b"[\"\\ud800\\u0041\"]",
    ];
    for text in broken {
        assert_eq!(refused(text), Some(InvalidUnicode), "{}", told(text));
    }
}

/// What the grammar allows but we do not, or what it leaves to each parser.
#[test]
fn what_is_left_to_us_is_decided() {
    use ParseCode::{
        DepthExceeded, DuplicateKey, InvalidArguments, NulNotAllowed, NumberOutOfRange,
        NumberTooLong,
    };
    let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
    let rows: &[(&str, ParseCode)] = &[
        (r#"{"a":1,"a":1}"#, DuplicateKey),
        (r#"{"a":1,"\u0061":1}"#, DuplicateKey),
        (r#"[{"a":{"b":1,"c":2,"b":1}}]"#, DuplicateKey),
        (r#"["\u0000"]"#, NulNotAllowed),
        (r#"{"\u0000":1}"#, NulNotAllowed),
        ("[1e309]", NumberOutOfRange),
        ("[-1e309]", NumberOutOfRange),
        ("[1.5e+9999]", NumberOutOfRange),
        ("[0e999]", NumberOutOfRange),
        ("[123.456e-789]", NumberOutOfRange),
        ("[10.5e308]", NumberOutOfRange),
        ("[18446744073709551616]", NumberOutOfRange),
        ("[-9223372036854775809]", NumberOutOfRange),
        ("[100000000000000000000]", NumberOutOfRange),
        (
            r#"{"$serde_json::private::RawValue":"1"}"#,
            InvalidArguments,
        ),
    ];
    for (text, code) in rows {
        assert_eq!(refused(text.as_bytes()), Some(*code), "{text}");
    }
    assert_eq!(refused(nested(64).as_bytes()), None);
    assert_eq!(refused(nested(65).as_bytes()), Some(DepthExceeded));
    assert_eq!(refused("[".repeat(262_144).as_bytes()), Some(DepthExceeded));
    let digits = format!("[0.{}]", "3".repeat(63));
    assert_eq!(refused(digits.as_bytes()), Some(NumberTooLong));
}

/// Holds that each proper beginning of an object is cut off, and nothing else.
fn cut_everywhere(text: &str) -> Result<(), TestCaseError> {
    let bytes = text.as_bytes();
    prop_assert!(parse(bytes, &Limits::DEFAULT).is_ok(), "{}", text);
    let whole = text.trim_end().len();
    for end in 0..whole {
        let code = parse(&bytes[..end], &Limits::DEFAULT)
            .expect_err("it is cut off")
            .code;
        let expected = if bytes[..end].trim_ascii().is_empty() {
            ParseCode::MalformedJson
        } else {
            ParseCode::TruncatedArguments
        };
        prop_assert_eq!(code, expected, "{} of {}", told(&bytes[..end]), text);
    }
    for end in whole..bytes.len() {
        prop_assert!(parse(&bytes[..end], &Limits::DEFAULT).is_ok());
    }
    Ok(())
}

#[test]
fn a_body_cut_off_anywhere_is_truncated_and_not_malformed() {
    for text in [
        "{}",
        " {\t}\n ",
        r#"{"a":-12.50e+3,"b":[true,false,null,{}],"c":{"d":"\u00e9\ud83d\ude00\\\""}}"#,
        "{\"é\":\"调😀\",\"\\ud83d\\ude00\":[[],[[]],\"\"]}",
        // The beginning of an exact decimal that would, as an integer, be too large.
        r#"{"a":[123456789012345678901.5,0.1e0300]}"#,
        " { \"a\" : [ 1 , 2 ] , \"b\" : -0 } ",
    ] {
        cut_everywhere(text).unwrap();
    }
}

/// A value as JSON text, its strings escaped in several ways.
fn any_text() -> impl Strategy<Value = String> {
    let string = any::<Vec<(char, bool)>>().prop_map(|letters| {
        let mut text = String::from('"');
        for (letter, escaped) in letters.into_iter().filter(|(letter, _)| *letter != '\0') {
            if escaped || letter < ' ' || letter == '"' || letter == '\\' {
                for unit in letter.encode_utf16(&mut [0; 2]) {
                    write!(text, "\\u{unit:04x}").expect("writing to a string does not fail");
                }
            } else {
                text.push(letter);
            }
        }
        text + "\""
    });
    let number = "-?(0|[1-9][0-9]{0,16})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?";
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("false".to_owned()),
        number,
        string.boxed(),
    ];
    leaf.prop_recursive(4, 30, 5, |inner| {
        let space = "[ \t\r\n]{0,2}";
        prop_oneof![
            (proptest::collection::vec(inner.clone(), 0..5), space).prop_map(|(items, space)| {
                format!("[{space}{}{space}]", items.join(&format!("{space},")))
            }),
            (proptest::collection::vec(inner, 0..5), space).prop_map(|(values, space)| {
                let entries: Vec<String> = values
                    .iter()
                    .enumerate()
                    .map(|(at, value)| format!("\"k{at}é\"{space}:{value}"))
                    .collect();
                format!("{{{}{space}}}", entries.join(&format!(",{space}")))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_object_cut_off_anywhere_is_truncated(values in proptest::collection::vec(any_text(), 1..4)) {
        let entries: Vec<String> = values.iter().enumerate().map(|(at, value)| format!("\"{at}\":{value}")).collect();
        cut_everywhere(&format!("{{{}}}", entries.join(",")))?;
    }

    #[test]
    fn one_byte_changed_is_read_as_serde_json_reads_it_or_refused(
        text in any_text(), at in any::<proptest::sample::Index>(), byte in any::<u8>()
    ) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let theirs = serde_json::from_slice::<Value>(&bytes);
        match parse_any(&bytes, &Limits::DEFAULT) {
            Ok(ours) => {
                let again: Value = serde_json::from_str(&ours.to_string()).unwrap();
                prop_assert_eq!(again, theirs.unwrap());
            }
            // Everything else that we refuse is refused for what serde_json does not look at.
            Err(error) if error.code == ParseCode::MalformedJson || error.code == ParseCode::TruncatedArguments => {
                prop_assert!(theirs.is_err(), "{:?}: {}", error, told(&bytes));
            }
            Err(_for_a_limit) => {}
        }
    }
}
