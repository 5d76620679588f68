//! Reads a tool's output as one JSON value that every later reader accepts.

use std::borrow::Cow;

use fleet::{arguments::has_reserved_key, outcome::ToolFailure, said, wire::message::Message};
use serde_json::value::{RawValue, to_raw_value};

/// How deep a tool's answer may be nested: readers usually stop at 128, and envelopes are put around it.
pub const DEPTH_MAX: usize = 100;

/// The most bytes that are kept of a too large answer.
const BEGINNING_MAX: usize = 16 * 1024;

/// One JSON value, with numbers and all else exactly as sent, and a flaw if characters had to be replaced.
///
/// Bytes that are not UTF-8 and raw NULs become U+FFFD, and so do the escapes `\u0000` and of half a surrogate pair: Postgres
/// stores those as `json` and then fails every query that reads the text.
///
/// # Errors
///
/// A sentence: not JSON, more than one value, or nested too deep. It quotes nothing.
pub fn json(bytes: &[u8]) -> Result<(Box<RawValue>, Option<ToolFailure>), Message> {
    let (value, flaw) = json_of_any_depth(bytes)?;
    match unreadable(value.get(), DEPTH_MAX) {
        Some(why) => Err(why),
        None => Ok((value, flaw)),
    }
}

/// The same, however deep it is nested: who keeps a part of it asks [`unreadable`] about that. Reading it costs no stack.
///
/// # Errors
///
/// A sentence: not JSON, or more than one value. It quotes nothing.
pub fn json_of_any_depth(bytes: &[u8]) -> Result<(Box<RawValue>, Option<ToolFailure>), Message> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Message::fixed("it is empty", "它是空的"));
    }
    let (text, replaced) = text(bytes);
    let value: Box<RawValue> = serde_json::from_str(&text).map_err(|err| {
        let (line, column) = (err.line(), err.column());
        said!(
            "it is not one JSON value (line {line}, column {column})",
            "它不是单个 JSON 值（第 {line} 行，第 {column} 列）"
        )
    })?;
    match mend(value.get()) {
        None => Ok((value, replaced.then(ToolFailure::mended))),
        Some(text) => {
            let value = RawValue::from_string(text)
                .expect("an escape was replaced by another of the same length");
            Ok((value, Some(ToolFailure::mended())))
        }
    }
}

/// Why valid JSON is read as no value here: it is nested deeper than so many levels, or has a key that `serde_json` reads as JSON
/// of its own, which no count of levels bounds. `None`: it may be read.
pub fn unreadable(json: &str, levels: usize) -> Option<Message> {
    if depth(json) > levels {
        return Some(said!(
            "it is nested deeper than {levels} levels",
            "它的嵌套超过 {levels} 层"
        ));
    }
    has_reserved_key(json.as_bytes()).then(|| {
        Message::fixed(
            "it has a key that begins with $serde_json::private::, which is reserved",
            "它有一个以 $serde_json::private:: 开头的键，这是保留的",
        )
    })
}

/// A tool's output as text without NUL; `true` if characters had to be replaced.
pub fn text(bytes: &[u8]) -> (Cow<'_, str>, bool) {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) if !text.contains('\0') => (Cow::Borrowed(text), false),
        text => (Cow::Owned(text.replace('\0', "\u{fffd}")), true),
    }
}

/// The beginning of an answer that is larger than `limit`, as one string that ends in `… [cut]`.
///
/// For a write it may be the only trace of what was done.
pub fn beginning(bytes: &[u8], limit: usize) -> Box<RawValue> {
    let kept = &bytes[..bytes.len().min(limit).min(BEGINNING_MAX)];
    // A character that the cut divides is left out; one that was invalid before is replaced.
    let whole = match std::str::from_utf8(kept) {
        Err(error) if error.error_len().is_none() => error.valid_up_to(),
        Ok(_) | Err(_) => kept.len(),
    };
    let (text, _replaced) = text(&kept[..whole]);
    to_raw_value(&format!("{text}… [cut]")).expect("a text is always JSON")
}

/// The deepest nesting of arrays and objects in valid JSON.
fn depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0_usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth -= 1,
            _ => {}
        }
    }
    deepest
}

/// Valid JSON without the escapes that Postgres cannot read as text; `None` if there are none.
fn mend(text: &str) -> Option<String> {
    const REPLACEMENT: &str = "\\ufffd";
    let mut mended = String::new();
    let mut copied = 0;
    let mut at = 0;
    // In valid JSON a backslash starts an escape and stands nowhere else.
    while let Some(offset) = text[at..].find('\\') {
        at += offset;
        let (bad, len) = match unit(text, at) {
            None => (false, 2),
            Some(0) => (true, 6),
            Some(0xd800..=0xdbff) => match unit(text, at + 6) {
                Some(0xdc00..=0xdfff) => (false, 12),
                _ => (true, 6),
            },
            Some(0xdc00..=0xdfff) => (true, 6),
            Some(_) => (false, 6),
        };
        if bad {
            mended.push_str(&text[copied..at]);
            mended.push_str(REPLACEMENT);
            copied = at + len;
        }
        at += len;
    }
    (copied > 0).then(|| mended + &text[copied..])
}

/// The UTF-16 unit of the escape `\uXXXX` at `at`, if there is one.
fn unit(text: &str, at: usize) -> Option<u32> {
    let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn read(text: &str) -> (String, bool) {
        let (value, mended) = json(text.as_bytes()).unwrap();
        (value.get().to_owned(), mended.is_some())
    }

    #[test]
    fn a_value_is_kept_to_the_byte() {
        let exact = r#"{"b":9007199254740993, "a":1e131071,"a":-0.10, "t":"\\u0000 \u00e9 \ud83d\ude00 {["}"#;
        assert_eq!(read(&format!(" \n{exact}\n")), (exact.to_owned(), false));
        for plain in ["null", "0", "\"\"", "[]", "true"] {
            assert_eq!(read(plain), (plain.to_owned(), false));
        }
    }

    #[test]
    fn what_postgres_cannot_read_is_replaced_and_said_so() {
        for (sent, kept) in [
            (r#""\u0000""#, r#""\ufffd""#),
            (r#"{"\u0000k":1}"#, r#"{"\ufffdk":1}"#),
            (r#""\\\u0000""#, r#""\\\ufffd""#),
            (r#""\ud800""#, r#""\ufffd""#),
            (r#""\uDFFFx""#, r#""\ufffdx""#),
            (r#""\ud800\ud800\udc00""#, r#""\ufffd\ud800\udc00""#),
            (r#""\ud800\n""#, r#""\ufffd\n""#),
            (r#""\ud800\u0041""#, r#""\ufffd\u0041""#),
            (r#""\udc00\ud800""#, r#""\ufffd\ufffd""#),
            (r#""é\u0000é""#, r#""é\ufffdé""#),
        ] {
            assert_eq!(read(sent), (kept.to_owned(), true), "{sent}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_and_said_so() {
        let cases: [(&[u8], &str); 4] = [
            (b"\"a\xffb\"", "\"a\u{fffd}b\""),
            (b"{\"caf\xe9\":\"\xe9\"}", "{\"caf\u{fffd}\":\"\u{fffd}\"}"),
            (b"[\"\0\"]", "[\"\u{fffd}\"]"),
            (b"\"\xc3\xa9\xc3\"", "\"\u{e9}\u{fffd}\""),
        ];
        for (sent, kept) in cases {
            let (value, mark) = json(sent).unwrap();
            assert_eq!(value.get(), kept);
            assert!(mark.is_some_and(|mark| mark.is_mended()), "{kept}");
        }
    }

    #[test]
    fn a_beginning_is_a_string_that_says_that_it_was_cut() {
        let read = |bytes: &[u8], limit| -> String {
            serde_json::from_str(beginning(bytes, limit).get()).unwrap()
        };
        assert_eq!(read(b"{\"a\":[1,2", 100), "{\"a\":[1,2… [cut]");
        assert_eq!(read("xxé".as_bytes(), 3), "xx… [cut]");
        assert_eq!(read(b"a\0\xff.", 100), "a\u{fffd}\u{fffd}.… [cut]");
        let long = read(&[b'x'; 1 << 20], 1 << 20);
        assert!(long.len() < BEGINNING_MAX + 20 && long.ends_with("x… [cut]"));
    }

    #[test]
    fn what_is_not_one_value_is_refused() {
        let cases: [&[u8]; 9] = [
            b"",
            b" \n",
            b"{",
            b"{} {}",
            b"nope",
            b"\0",
            b"\xff",
            b"\"\\u00\"",
            b"\xef\xbb\xbf{}",
        ];
        for bytes in cases {
            assert!(json(bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn nesting_has_a_limit_that_every_reader_can_bear() {
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        let (deepest, _) = read(&nested(DEPTH_MAX));
        serde_json::from_str::<Value>(&deepest).unwrap();
        assert!(json(nested(DEPTH_MAX + 1).as_bytes()).is_err());
        assert!(json(nested(1_000_000).as_bytes()).is_err());
        let (deep, _) = json_of_any_depth(nested(1_000_000).as_bytes()).unwrap();
        assert!(unreadable(deep.get(), 999_999).is_some());
        assert!(unreadable(deep.get(), 1_000_000).is_none());
    }

    /// Sixty texts within one another, each nested as deep as may be: read as a value, it takes more stack than a thread has.
    #[test]
    fn json_within_a_reserved_key_is_not_read() {
        let mut json = "1".to_owned();
        for _layer in 0..60 {
            let text = json.replace('\\', "\\u005c").replace('"', "\\u0022");
            let (open, close) = ("[".repeat(80), "]".repeat(80));
            json = format!(r#"{open}{{"$serde_json::private::RawValue":"{text}"}}{close}"#);
        }
        let why = super::json(json.as_bytes()).unwrap_err();
        assert!(why.english().contains("reserved"), "{}", why.english());
        let escaped = r#"{"\u0024serde_json::private::Number":"x"}"#;
        assert!(super::json(escaped.as_bytes()).is_err());
        assert!(super::json(br#"{"a":"$serde_json::private::Number"}"#).is_ok());
    }

    proptest! {
        #[test]
        fn whatever_comes_out_is_json_without_nul(escapes in proptest::collection::vec(
            prop_oneof!["\\\\u[0-9a-fA-F]{4}", "\\\\ud[89a-f][0-9a-f]{2}", Just("\\u0000".to_owned()),
                        Just("\\\\".to_owned()), Just("\\\"".to_owned()), "[a-zé{}\\[\\]]"], 0..12)) {
            let (value, _) = json(format!("\"{}\"", escapes.concat()).as_bytes()).unwrap();
            // serde_json refuses half a surrogate pair when it builds the text.
            let text: String = serde_json::from_str(value.get()).unwrap();
            prop_assert!(!text.contains('\0'));
        }
    }
}
