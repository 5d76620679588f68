//! The sensitive values of a call, and their places.
//!
//! This file decides what the ledger keeps of arguments and answers. `toolfleet.veiled` in the migrations decides what the
//! views show, and what the ledger keeps of a result that a person or a transaction gave; it reads pointers as this file does.

use serde_json::Value;

use crate::manifest::{Sensitive, SensitiveMode};

/// Replaces a sensitive value in a message.
pub const MASKED: &str = "[masked]";
/// Replaces a value that is not kept.
const OMITTED: &str = "[omitted]";
/// Shorter texts are not searched for in messages: they would be found everywhere.
const TELLING: usize = 4;

impl Sensitive {
    /// Whether the value at this JSON pointer is sensitive, lies in a sensitive value, or contains one.
    pub fn touches(&self, path: &str) -> bool {
        self.pointers.iter().any(|pointer| {
            let both = pointer.split('/').zip(path.split('/'));
            both.skip(1)
                .all(|(wanted, segment)| wanted == "*" || wanted == segment)
        })
    }

    /// What the ledger may keep of arguments or an answer once their call is over; `None` where that is everything. JSON text;
    /// numbers stay as they are written.
    pub fn kept(&self, text: &str) -> Option<String> {
        match self.mode {
            SensitiveMode::Mask => None,
            SensitiveMode::Omit => Some(self.without(text, OMITTED)),
        }
    }

    /// What people may see of arguments or an answer. JSON text; numbers stay as they are written.
    pub fn masked(&self, text: &str) -> String {
        self.without(text, MASKED)
    }

    /// The JSON with this text in the place of each sensitive value.
    fn without(&self, text: &str, mark: &str) -> String {
        // The places of sensitive values in it are unknown.
        let Ok(mut value) = serde_json::from_str::<Value>(text) else {
            return Value::from(mark).to_string();
        };
        for pointer in &self.pointers {
            let segments: Vec<String> = pointer.split('/').skip(1).map(unescaped).collect();
            put_mark(&mut value, &segments, mark);
        }
        // Where many small values are left out, the marks for them could be many times larger.
        let kept = value.to_string();
        if kept.len() > 2 * text.len() + mark.len() {
            Value::from(mark).to_string()
        } else {
            kept
        }
    }

    /// The sensitive texts and numbers in a value that are long enough to be recognised elsewhere, the longest first.
    pub fn texts(&self, value: &Value) -> Vec<String> {
        let mut texts = Vec::new();
        for pointer in &self.pointers {
            let segments: Vec<String> = pointer.split('/').skip(1).map(unescaped).collect();
            find(value, &segments, &mut texts);
        }
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        texts.dedup();
        texts
    }
}

/// The text with each of these masked; `None` where it contains none.
pub fn masked(text: &str, hidden: &[String]) -> Option<String> {
    let found: Vec<&String> = hidden
        .iter()
        .filter(|value| text.contains(*value))
        .collect();
    let mask = |text: String, value: &&String| text.replace(value.as_str(), MASKED);
    (!found.is_empty()).then(|| found.iter().fold(text.to_owned(), mask))
}

fn unescaped(segment: &str) -> String {
    segment.replace("~1", "/").replace("~0", "~")
}

fn find(value: &Value, segments: &[String], texts: &mut Vec<String>) {
    let Some((first, rest)) = segments.split_first() else {
        collect(value, texts);
        return;
    };
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(name, _)| first == "*" || first == *name)
            .for_each(|(_, member)| find(member, rest, texts)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .filter(|(index, _)| first == "*" || *first == index.to_string())
            .for_each(|(_, item)| find(item, rest, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn put_mark(value: &mut Value, segments: &[String], mark: &str) {
    let Some((first, rest)) = segments.split_first() else {
        *value = Value::from(mark);
        return;
    };
    match value {
        Value::Object(members) => members
            .iter_mut()
            .filter(|(name, _)| first == "*" || first == *name)
            .for_each(|(_, member)| put_mark(member, rest, mark)),
        Value::Array(items) => items
            .iter_mut()
            .enumerate()
            .filter(|(index, _)| first == "*" || *first == index.to_string())
            .for_each(|(_, item)| put_mark(item, rest, mark)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn collect(value: &Value, texts: &mut Vec<String>) {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Array(items) => return items.iter().for_each(|item| collect(item, texts)),
        Value::Object(members) => return members.values().for_each(|item| collect(item, texts)),
        Value::Null | Value::Bool(_) => return,
    };
    if text.len() >= TELLING {
        texts.push(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(pointers: &[&str]) -> Sensitive {
        Sensitive {
            pointers: pointers.iter().map(ToString::to_string).collect(),
            mode: SensitiveMode::Mask,
        }
    }

    #[test]
    fn a_place_is_touched_by_what_is_above_and_below_it() {
        let sensitive = at(&["/card/number", "/people/*/name"]);
        for path in [
            "",
            "/card",
            "/card/number",
            "/card/number/0",
            "/people",
            "/people/7/name",
        ] {
            assert!(sensitive.touches(path), "{path}");
        }
        for path in ["/card/year", "/cards", "/people/7/age", "/x"] {
            assert!(!sensitive.touches(path), "{path}");
        }
    }

    #[test]
    fn what_is_not_kept_is_omitted_and_all_else_keeps_its_text() {
        let omitting = Sensitive {
            mode: SensitiveMode::Omit,
            ..at(&["/card/number", "/people/*/name", "/list/1"])
        };
        let text = r#"{"amount":9007199254740993.10,"card":{"number":[4111],"year":27},"list":[1,2,3],"people":[{"name":"Ada"},{"name":{}},7]}"#;
        assert_eq!(
            omitting.kept(text).unwrap(),
            r#"{"amount":9007199254740993.10,"card":{"number":"[omitted]","year":27},"list":[1,"[omitted]",3],"people":[{"name":"[omitted]"},{"name":"[omitted]"},7]}"#
        );
        let many = format!("{{\"people\":[{}{{}}]}}", "{\"name\":1},".repeat(100));
        assert!(omitting.kept(&many).unwrap().len() <= 2 * many.len());
        let pairs = Sensitive {
            pointers: vec!["/*".to_owned()],
            ..omitting.clone()
        };
        assert_eq!(pairs.kept("[1,1,1,1,1,1,1,1]").unwrap(), r#""[omitted]""#);
        assert_eq!(omitting.kept("[1"), Some(r#""[omitted]""#.to_owned()));
        let card = at(&["/card"]);
        let masked = card.masked(r#"{"amount":1.50,"card":[4111]}"#);
        assert_eq!(masked, r#"{"amount":1.50,"card":"[masked]"}"#);
        assert_eq!(at(&["/card"]).kept(text), None);
    }

    #[test]
    fn every_text_at_a_pointer_is_masked_in_a_message() {
        let value = r#"{"card": {"number": "4111-1111", "code": 123}, "a/b": {"~": 12345.60}, "people": [{"name": ["Ada L."]}]}"#;
        let value = serde_json::from_str(value).unwrap();
        let texts = at(&["/card", "/a~1b/~0", "/people/*/name", "/absent/x"]).texts(&value);
        let message = masked("4111-1111 of Ada L. paid 12345.60, code 123", &texts).unwrap();
        // Three digits are found in any text, so they are not masked.
        assert_eq!(message, "[masked] of [masked] paid [masked], code 123");
        assert_eq!(masked("nothing", &texts), None);
    }
}
