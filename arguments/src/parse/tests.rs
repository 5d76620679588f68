use super::*;
use crate::message::Language;

fn refusal(body: impl AsRef<[u8]>) -> (ParseCode, String) {
    let error = parse(body.as_ref(), &Limits::DEFAULT).expect_err("this body must be refused");
    for language in [Language::En, Language::Zh] {
        let length = error.message.told(language).len();
        assert!(length > 0 && length <= 512, "{error:?}");
    }
    assert!(error.path.len() <= Limits::PATH_BYTES, "{error:?}");
    (error.code, error.path)
}

fn accepted(body: impl AsRef<[u8]>) -> Value {
    parse(body.as_ref(), &Limits::DEFAULT).expect("this body must be accepted")
}

#[test]
fn every_malformed_body_is_refused_with_its_code_and_place() {
    use ParseCode::*;
    let rows: &[(&[u8], ParseCode, &str)] = &[
        (b"", MalformedJson, ""),
        (b"  \n", MalformedJson, ""),
        (br#"{"a":1"#, TruncatedArguments, "/a"),
        (br#"{"a":1,"#, TruncatedArguments, ""),
        (br#"{"a":"#, TruncatedArguments, "/a"),
        (br#"{"a""#, TruncatedArguments, "/a"),
        (br#"{"a":[1,{"b":tr"#, TruncatedArguments, "/a/1/b"),
        (br#"{"a":"x"#, TruncatedArguments, "/a"),
        (br#"{"a":"x\"#, TruncatedArguments, "/a"),
        (br#"{"a":"\u12"#, TruncatedArguments, "/a"),
        (br#"{"a":"\ud83d"#, TruncatedArguments, "/a"),
        (b"{\"a\":\"\xe2\x82", TruncatedArguments, "/a"),
        (br#"{"a":-"#, TruncatedArguments, "/a"),
        (br#"{"a":1e"#, TruncatedArguments, "/a"),
        (b"{", TruncatedArguments, ""),
        (b"[1,", TruncatedArguments, "/1"),
        (b"{}{}", MalformedJson, ""),
        (b"{} x", MalformedJson, ""),
        (b"\xef\xbb\xbf{}", MalformedJson, ""),
        (b"{\"a\":1 /* no */}", MalformedJson, ""),
        (b"// no\n{}", MalformedJson, ""),
        (br#"{"a":1,}"#, MalformedJson, ""),
        (br#"{"a":[1,]}"#, MalformedJson, "/a/1"),
        (br#"{'a':1}"#, MalformedJson, ""),
        (br#"{"a":'x'}"#, MalformedJson, "/a"),
        (br#"{a:1}"#, MalformedJson, ""),
        (br#"{"a" 1}"#, MalformedJson, "/a"),
        (br#"{"a":1 "b":2}"#, MalformedJson, ""),
        (br#"{"a":[1}"#, MalformedJson, "/a"),
        (br#"{"a":NaN}"#, MalformedJson, "/a"),
        (br#"{"a":Infinity}"#, MalformedJson, "/a"),
        (br#"{"a":-Infinity}"#, MalformedJson, "/a"),
        (br#"{"a":True}"#, MalformedJson, "/a"),
        (br#"{"a":nil}"#, MalformedJson, "/a"),
        (br#"{"a":01}"#, MalformedJson, "/a"),
        (br#"{"a":-01}"#, MalformedJson, "/a"),
        (br#"{"a":+1}"#, MalformedJson, "/a"),
        (br#"{"a":.5}"#, MalformedJson, "/a"),
        (br#"{"a":1.}"#, MalformedJson, "/a"),
        (br#"{"a":1.e5}"#, MalformedJson, "/a"),
        (br#"{"a":1e}"#, MalformedJson, "/a"),
        (br#"{"a":1e+}"#, MalformedJson, "/a"),
        (br#"{"a":1-2}"#, MalformedJson, "/a"),
        (br#"{"a":0x10}"#, MalformedJson, ""),
        (b"{\"a\":\"x\ny\"}", MalformedJson, "/a"),
        (br#"{"a":"\x41"}"#, MalformedJson, "/a"),
        (br#"{"a":"\u00g0"}"#, MalformedJson, "/a"),
        (b"{\"a\":\0}", MalformedJson, "/a"),
        (b"{\"a\":\"\0\"}", MalformedJson, "/a"),
        (b"\xff", InvalidUnicode, ""),
        (b"{\"a\":\"\xff\"}", InvalidUnicode, "/a"),
        (b"{\"a\":\"\xc0\xaf\"}", InvalidUnicode, "/a"),
        (b"{\"a\":\"\xe2\x82\"}", InvalidUnicode, "/a"),
        (b"{\"a\":\"\xed\xa0\x80\"}", InvalidUnicode, "/a"),
        (b"{\"\xff\":1}", InvalidUnicode, ""),
        (br#"{"a":"\ud800"}"#, InvalidUnicode, "/a"),
        (br#"{"a":"\ud800x"}"#, InvalidUnicode, "/a"),
        (br#"{"a":"\ud800\n"}"#, InvalidUnicode, "/a"),
        (br#"{"a":"\udc00"}"#, InvalidUnicode, "/a"),
        (br#"{"a":"\udc00\ud800"}"#, InvalidUnicode, "/a"),
        (br#"{"a":"\ud800\ud800"}"#, InvalidUnicode, "/a"),
        (br#"{"a":"\u0000"}"#, NulNotAllowed, "/a"),
        (br#"{"\u0000":1}"#, NulNotAllowed, ""),
        (br#"{"a":1,"a":2}"#, DuplicateKey, "/a"),
        (br#"{"x":[{"a":1,"\u0061":2}]}"#, DuplicateKey, "/x/0/a"),
        (br#"{"a/b~":1,"a/b~":2}"#, DuplicateKey, "/a~1b~0"),
        (br#"{"a":18446744073709551616}"#, NumberOutOfRange, "/a"),
        (br#"{"a":-9223372036854775809}"#, NumberOutOfRange, "/a"),
        (
            br#"{"a":1000000000000000000000000000000}"#,
            NumberOutOfRange,
            "/a",
        ),
        (br#"{"a":1e400}"#, NumberOutOfRange, "/a"),
        (br#"{"a":1e131071}"#, NumberOutOfRange, "/a"),
        (br#"{"a":1e-309}"#, NumberOutOfRange, "/a"),
        (br#"{"a":9e308}"#, NumberOutOfRange, "/a"),
        (br#"{"a":1e99999999999999999999}"#, NumberOutOfRange, "/a"),
        (
            br#"{"$serde_json::private::Number":"1"}"#,
            InvalidArguments,
            "/$serde_json::private::Number",
        ),
        (b"[]", InvalidArguments, ""),
        (b"\"x\"", InvalidArguments, ""),
        (b"null", InvalidArguments, ""),
        (b"12", InvalidArguments, ""),
    ];
    for (body, code, path) in rows {
        assert_eq!(
            refusal(body),
            (*code, (*path).to_owned()),
            "{:?}",
            String::from_utf8_lossy(body)
        );
    }
}

#[test]
fn numbers_are_kept_as_sent() {
    for token in [
        "0",
        "-0",
        "1",
        "1.0",
        "1e2",
        "1E+2",
        "0.10",
        "9007199254740993",
        "18446744073709551615",
        "-9223372036854775808",
        "0.1234567890123456789012345678901234567890",
        "1e308",
        "1e-308",
        "0e0308",
    ] {
        let value = accepted(format!(r#"{{"a":{token}}}"#));
        assert_eq!(value["a"].as_number().unwrap().as_str(), token);
    }
}

#[test]
fn text_is_unescaped_and_kept() {
    let value =
        accepted(r#" {"\u0061\n" : "\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00é😀\u001b\u202e" } "#);
    assert_eq!(value["a\n"], "\"\\/\u{8}\u{c}\n\r\té😀é😀\u{1b}\u{202e}");
    let value = accepted("{\"\u{e9}\":1,\"e\u{301}\":2,\"__proto__\":{},\"\":[]}");
    assert_eq!(value.as_object().unwrap().len(), 4);
}

#[test]
fn each_limit_admits_its_last_and_refuses_the_next() {
    let nested = |depth: usize| format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
    accepted(nested(64));
    let (code, path) = refusal(nested(65));
    assert_eq!((code, path), (ParseCode::DepthExceeded, "/a".repeat(64)));

    let items = |count: usize| format!(r#"{{"a":[{}]}}"#, vec!["1"; count].join(","));
    accepted(items(9_998));
    assert_eq!(
        refusal(items(9_999)),
        (ParseCode::TooManyNodes, "/a/9998".to_owned())
    );

    let keys = |count: usize| {
        let entries: Vec<_> = (0..count).map(|n| format!(r#""k{n}":1"#)).collect();
        format!("{{{}}}", entries.join(","))
    };
    accepted(keys(1_000));
    assert_eq!(
        refusal(keys(1_001)),
        (ParseCode::TooManyNodes, String::new())
    );

    let key = |length: usize| format!(r#"{{"{}":1}}"#, "k".repeat(length));
    accepted(key(256));
    assert_eq!(refusal(key(257)), (ParseCode::KeyTooLong, String::new()));

    let string = |length: usize| format!(r#"{{"a":"{}"}}"#, "x".repeat(length));
    accepted(string(128 * 1024));
    assert_eq!(
        refusal(string(128 * 1024 + 1)),
        (ParseCode::StringTooLong, "/a".to_owned())
    );
    let escaped = format!(r#"{{"a":"{}\n"}}"#, "x".repeat(128 * 1024));
    assert_eq!(
        refusal(escaped),
        (ParseCode::StringTooLong, "/a".to_owned())
    );

    let number = |length: usize| format!(r#"{{"a":0.{}}}"#, "1".repeat(length - 2));
    accepted(number(64));
    assert_eq!(
        refusal(number(65)),
        (ParseCode::NumberTooLong, "/a".to_owned())
    );
    assert_eq!(refusal(number(10_000)).0, ParseCode::NumberTooLong);

    let body = |length: usize| format!("{{}}{}", " ".repeat(length - 2));
    accepted(body(256 * 1024));
    assert_eq!(
        refusal(body(256 * 1024 + 1)),
        (ParseCode::PayloadTooLarge, String::new())
    );
}

#[test]
fn a_body_of_brackets_is_refused_without_reading_on() {
    assert_eq!(
        refusal("[".repeat(100_000)),
        (ParseCode::DepthExceeded, "/0".repeat(64))
    );
    assert_eq!(
        refusal(r#"{"a":"#.repeat(50_000)),
        (ParseCode::DepthExceeded, "/a".repeat(64))
    );
}

#[test]
fn any_value_is_read_where_no_object_is_needed() {
    assert_eq!(
        parse_any(b" [1, null] ", &Limits::DEFAULT).unwrap(),
        serde_json::json!([1, null])
    );
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_it_panic(body in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let read = parse_any(&body, &Limits::DEFAULT);
        proptest::prop_assert!(read.is_err() || serde_json::from_slice::<Value>(&body).is_ok());
    }

    #[test]
    fn what_it_accepts_serde_json_reads_the_same(body in r#"[\[\]{}",:0-9a-e.\\u \-]{0,40}"#) {
        if let Ok(value) = parse_any(body.as_bytes(), &Limits::DEFAULT) {
            let text = value.to_string();
            proptest::prop_assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), serde_json::from_str::<Value>(&text).unwrap());
        }
    }
}
