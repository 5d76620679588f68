//! One text for one value: the form that is stored, and that defines "the same arguments".
//!
//! Keys sorted by the code points of their names, numbers as the exact decimal text that was sent, the fewest escapes,
//! no white space. Not JCS (RFC 8785), which rounds numbers to doubles: it turns 9007199254740993 into …992.
//! A promise: later versions compare their hashes with stored ones. `docs/canonical.md` specifies the form for every language,
//! `schemas/canonical.json` has test vectors.

use std::fmt::Write;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::plain;

/// Enough for most texts.
const USUAL_BYTES: usize = 512;

/// The canonical text of a value.
pub fn to_text(value: &Value) -> String {
    let mut text = String::with_capacity(USUAL_BYTES);
    write_value(&mut text, value);
    text
}

/// SHA-256 of the canonical text of a value.
///
/// Only for a value that came from [`crate::parse()`] or from the program's own code. `serde_json` rewrites exponents when it
/// reads (`1E2` becomes `1e+2`), so a value that it read from canonical text may hash differently. Where the text is at hand,
/// use [`hash_text`].
pub fn hash(value: &Value) -> [u8; 32] {
    hash_text(&to_text(value))
}

/// SHA-256 of a text that is canonical already, such as stored arguments.
pub fn hash_text(canonical: &str) -> [u8; 32] {
    Sha256::digest(canonical).into()
}

fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(true) => text.push_str("true"),
        Value::Bool(false) => text.push_str("false"),
        Value::Number(number) => text.push_str(number.as_str()),
        Value::String(string) => write_string(text, string),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_value(text, item);
            }
            text.push(']');
        }
        Value::Object(entries) => write_object(text, entries),
    }
}

fn write_object(text: &mut String, entries: &Map<String, Value>) {
    // The map may keep another order, depending on features that other crates switch on.
    if entries.keys().is_sorted() {
        return write_entries(text, entries.iter());
    }
    let mut entries: Vec<_> = entries.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    write_entries(text, entries.into_iter());
}

fn write_entries<'v>(text: &mut String, entries: impl Iterator<Item = (&'v String, &'v Value)>) {
    text.push('{');
    for (index, (key, value)) in entries.enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_string(text, key);
        text.push(':');
        write_value(text, value);
    }
    text.push('}');
}

fn write_string(text: &mut String, string: &str) {
    text.push('"');
    let mut rest = string;
    loop {
        let (run, special) = rest.split_at(plain::length(rest.as_bytes()));
        text.push_str(run);
        let Some(&byte) = special.as_bytes().first() else {
            break;
        };
        write_escape(text, byte);
        rest = &special[1..];
    }
    text.push('"');
}

fn write_escape(text: &mut String, byte: u8) {
    match byte {
        b'"' => text.push_str("\\\""),
        b'\\' => text.push_str("\\\\"),
        0x08 => text.push_str("\\b"),
        0x0c => text.push_str("\\f"),
        b'\n' => text.push_str("\\n"),
        b'\r' => text.push_str("\\r"),
        b'\t' => text.push_str("\\t"),
        control => write!(text, "\\u{control:04x}").expect("writing to a string does not fail"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Number, json};

    use super::*;
    use crate::{limits::Limits, parse::parse_any};

    fn read(text: &str) -> Value {
        parse_any(text.as_bytes(), &Limits::DEFAULT).unwrap()
    }

    #[test]
    fn keys_are_sorted_by_code_point_and_space_is_left_out() {
        let text = to_text(&read(
            r#" { "b" : [ 1 , { } ] , "é":null, "a":true, "":false, "\uff5e":0, "😀":1 } "#,
        ));
        assert_eq!(
            text,
            r#"{"":false,"a":true,"b":[1,{}],"é":null,"～":0,"😀":1}"#
        );
    }

    #[test]
    fn only_what_must_be_escaped_is_escaped() {
        let text = to_text(&json!("\"\\/\u{8}\u{c}\n\r\t\u{1f}\u{7f}\u{2028}é"));
        assert_eq!(text, "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u001f\u{7f}\u{2028}é\"");
    }

    #[test]
    fn values_that_differ_in_a_digit_or_a_kind_differ() {
        let texts = [
            "9007199254740992",
            "9007199254740993",
            "1",
            "1.0",
            "\"1\"",
            "1e0",
            "-0",
            "0",
            "[1]",
            "true",
            "\"true\"",
        ];
        let hashes: std::collections::BTreeSet<_> =
            texts.iter().map(|text| hash(&read(text))).collect();
        assert_eq!(hashes.len(), texts.len());
        assert_eq!(
            to_text(&read("[9007199254740993,1.0,0.10,1E+2]")),
            "[9007199254740993,1.0,0.10,1E+2]"
        );
    }

    #[test]
    fn the_hash_is_the_one_promised() {
        let digest = hash(&read(r#"{"days":5,"city":"Paris"}"#));
        let expected = Sha256::digest(br#"{"city":"Paris","days":5}"#);
        assert_eq!(digest, <[u8; 32]>::from(expected));
        assert_eq!(digest, hash_text(r#"{"city":"Paris","days":5}"#));
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let number = prop_oneof![
            any::<i64>().prop_map(|n| n.to_string()),
            any::<u64>().prop_map(|n| n.to_string()),
            "-?(0|[1-9][0-9]{0,5})\\.[0-9]{1,8}([eE][+-]?[0-9]{1,2})?",
        ];
        let text = any::<String>().prop_map(|text| text.replace('\0', ""));
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            number.prop_map(|token| Value::Number(Number::from_string_unchecked(token))),
            text.clone().prop_map(Value::String),
        ];
        leaf.prop_recursive(4, 40, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                prop::collection::btree_map(text.clone(), inner, 0..6)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    /// The same value written with its keys in the opposite order and with white space.
    fn reversed(value: &Value) -> String {
        match value {
            Value::Object(entries) => {
                let entries: Vec<_> = entries
                    .iter()
                    .rev()
                    .map(|(key, value)| format!("{} : {}", json!(key), reversed(value)))
                    .collect();
                format!("{{ {} }}", entries.join(" , "))
            }
            Value::Array(items) => format!(
                "[ {} ]",
                items.iter().map(reversed).collect::<Vec<_>>().join(" ,\n")
            ),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(value in any_value()) {
            let text = to_text(&value);
            prop_assert_eq!(&read(&text), &value);
            prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
            prop_assert_eq!(to_text(&read(&text)), text);
        }

        #[test]
        fn the_order_of_keys_does_not_matter(value in any_value()) {
            prop_assert_eq!(hash(&read(&reversed(&value))), hash(&value));
        }
    }
}
