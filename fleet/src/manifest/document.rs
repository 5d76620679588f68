//! The text of a manifest as a JSON value: YAML without its surprises.
//!
//! Two equal keys, tags, numbers that are not finite and texts that grow when their aliases are followed are refused.

use std::{
    cell::Cell,
    fmt::{self, Write as _},
};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The most values in one manifest, aliases followed.
const NODES_MAX: usize = 5_000;

/// Reads one document. The error says where in the text.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let read = |text: &str| {
        let nodes = Cell::new(0);
        Node { nodes: &nodes }.deserialize(yaml_serde::Deserializer::from_str(text))
    };
    let read =
        read(text).or_else(|error| without_pairs(text).map_or(Err(error), |text| read(&text)));
    read.map_err(|error| explain(&error.to_string(), text))
}

/// JSON in which an escape of two halves, as JSON has it for what is beyond U+FFFF, is the one that YAML has. `None`: it is no JSON, or has
/// none.
fn without_pairs(text: &str) -> Option<String> {
    // In JSON a backslash is nowhere but in a text, and there it is an escape.
    serde_json::from_str::<IgnoredAny>(text).ok()?;
    let half = |at: &str| {
        let digits = at.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut plain, mut rest, mut found) = (String::with_capacity(text.len()), text, false);
    while let Some(place) = rest.find('\\') {
        plain.push_str(&rest[..place]);
        rest = &rest[place..];
        let halves = [half(rest), rest.get(6..).and_then(half)];
        if let [Some(first), Some(second)] = halves
            && let Some(Ok(whole)) = char::decode_utf16([first, second]).next()
            && whole > '\u{ffff}'
        {
            write!(plain, "\\U{:08x}", u32::from(whole)).ok()?;
            (rest, found) = (&rest[12..], true);
        } else {
            // The backslash and what it escapes, which may be another.
            plain.push_str(&rest[..2]);
            rest = &rest[2..];
        }
    }
    plain.push_str(rest);
    found.then_some(plain)
}

/// The parser's error, and the advice where one is known.
fn explain(error: &str, text: &str) -> String {
    let tab = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        line[..indent].contains('\t')
    };
    let tabbed = text.lines().position(tab).map(|line| line + 1);
    if let Some(line) = tabbed.filter(|_| error.contains("cannot start any token")) {
        return format!(
            "line {line} is indented with a tab, which YAML does not allow; write spaces"
        );
    }
    if error.contains("more than one document") {
        return "there is more than one manifest in the file, with --- between them; write a file for each".to_owned();
    }
    let is_ours = error.contains("; ");
    let advice = if is_ours {
        ""
    } else {
        "; close what is open there, and put a text with : # , or brackets in quotes"
    };
    format!("this is not a manifest in YAML or JSON: {error}{advice}")
}

#[derive(Clone, Copy)]
struct Node<'n> {
    nodes: &'n Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.nodes.set(self.nodes.get() + 1);
        if self.nodes.get() > NODES_MAX {
            return Err(D::Error::custom(format!(
                "there are more than {NODES_MAX} values, aliases followed"
            )));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value without a tag")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i128<E: Error>(self, value: i128) -> Result<Value, E> {
        Err(E::custom(format!(
            "the number {value} does not fit into 64 bits; write it as a text"
        )))
    }

    fn visit_u128<E: Error>(self, value: u128) -> Result<Value, E> {
        Err(E::custom(format!(
            "the number {value} does not fit into 64 bits; write it as a text"
        )))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        let number = Number::from_f64(value)
            .ok_or_else(|| E::custom("a number must be finite; write it as a text"))?;
        Ok(Value::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        if text.contains('\0') {
            return Err(E::custom("a text holds the character U+0000; leave it out"));
        }
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!(
                    "the key {key:?} stands twice; keep one"
                )));
            }
            // serde_json writes numbers and raw values as objects with these keys.
            if key.contains('\0') || key.starts_with("$serde_json::private::") {
                return Err(A::Error::custom(format!(
                    "the key {key:?} is reserved; use another one"
                )));
            }
            let value = entries.next_value_seed(self)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_is_read_however_it_writes_what_is_beyond_the_first_plane() {
        for text in [
            r#"{"a": "\ud83d\ude00 \u00e9"}"#,
            r#"{"\uDB40\uDC41": ["\\ud83d \ud83d\ude00", 1]}"#,
            r#"{"a": "\\\ud83d\ude00\n", "b": "\"\ud83d\ude00"}"#,
            r#"{"a": "\\\\\ud83d\ude00é\ud83d\ude00"}"#,
        ] {
            let expected: Value = serde_json::from_str(text).unwrap();
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
        for broken in [
            r#"{"a": "\ud83d"}"#,
            r#"{"a": "\\ud83d\ude00"}"#,
            r#"{"a": "\ude00\ud83d"}"#,
            r#"{"a": "\ud83d\ude00", "a": 1}"#,
            r#"{a: "\ud83d\ude00"}"#,
        ] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn yaml_and_json_become_the_same_value() {
        let yaml = "a: [1, -2, 0.5, 9007199254740993, yes, true, null, '3']\nb: &x {c: d}\ne: *x\n";
        let json = r#"{"a": [1, -2, 0.5, 9007199254740993, "yes", true, null, "3"], "b": {"c": "d"}, "e": {"c": "d"}}"#;
        let expected = json!({
            "a": [1, -2, 0.5, 9007199254740993_u64, "yes", true, null, "3"], "b": {"c": "d"}, "e": {"c": "d"}
        });
        assert_eq!(read(yaml).unwrap(), expected);
        assert_eq!(read(json).unwrap(), expected);
    }

    #[test]
    fn surprises_are_refused() {
        let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..9 {
            let list = vec![format!("*a{}", n - 1); 10].join(", ");
            bomb += &format!("a{n}: &a{n} [{list}]\n");
        }
        for (text, why) in [
            ("a: 1\nb: 2\na: 3\n", "stands twice"),
            (r#"{"a": {"b": 1, "b": 1}}"#, "stands twice"),
            ("a: !tag 1\n", "without a tag"),
            ("a: .inf\n", "finite"),
            ("a: 340282366920938463463374607431768211455\n", "64 bits"),
            ("a: \"\\0\"\n", "U+0000"),
            ("a: 1\n---\nb: 2\n", "more than one manifest"),
            ("a: *nowhere\n", "unknown anchor"),
            ("a: [\n", "line 2"),
            ("a:\n\tb: 1\n", "line 2 is indented with a tab"),
            ("a: &a [*a]\n", "recursion limit"),
            ("\"$serde_json::private::Number\": \"1\"\n", "reserved"),
            (bomb.as_str(), "aliases followed"),
            (&"[".repeat(10_000), "line 1"),
            (
                &format!("{}{}", "[".repeat(200), "]".repeat(200)),
                "recursion limit",
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }
}
