//! Names for a sentence: a value and its place, a quoted text, a list, a number of items.

use std::fmt::Write;

use serde_json::Value;

use crate::{
    message::{Language, Message, said},
    shorten::shorten,
};

/// Bytes of one `found`; the value itself is never shown longer than this.
pub(super) const FOUND_BYTES_MAX: usize = 64;
/// Bytes of one allowed value or name.
pub(super) const VALUE_BYTES_MAX: usize = 60;

/// What is counted: one of it, several, and its measure word.
pub(super) struct Noun(&'static str, &'static str, &'static str);

pub(super) const CHARACTERS: Noun = Noun("character", "characters", "个字符");
pub(super) const ITEMS: Noun = Noun("item", "items", "项");
pub(super) const KEYS: Noun = Noun("key", "keys", "个键");

impl Noun {
    pub(super) fn counted(&self, count: u64) -> Message {
        let (noun, measure) = (if count == 1 { self.0 } else { self.1 }, self.2);
        said!("{count} {noun}", "{count} {measure}")
    }
}

/// Both languages by one rule.
pub(super) fn each(tell: impl Fn(Language) -> String) -> Message {
    Message::new(tell(Language::En), tell(Language::Zh))
}

/// With a space before it where a letter, a digit or a quote would follow a Chinese character.
pub(super) fn spaced(text: &str) -> String {
    let gap = if text.starts_with(|first: char| first.is_ascii()) {
        " "
    } else {
        ""
    };
    format!("{gap}{text}")
}

/// A value's kind and the beginning of it, in at most 64 bytes of either language.
pub(crate) fn describe(value: &Value) -> Message {
    let kind = kind(value);
    let told = match value {
        Value::Bool(value) => Message::verbatim(format!("{kind} {value}")),
        Value::Number(value) => Message::verbatim(format!("{kind} {value}")),
        Value::String(text) => {
            let text = quoted(text, FOUND_BYTES_MAX - "string ".len());
            Message::verbatim(format!("{kind} {text}"))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => describe_kind(value),
    };
    told.map(|text| shorten(&text, FOUND_BYTES_MAX).into_owned())
}

/// A value's kind, and of a container how large it is.
pub(super) fn describe_kind(value: &Value) -> Message {
    let kind = kind(value);
    let (size, with, noun) = match value {
        Value::Array(items) => (items.len(), "of", ITEMS),
        Value::Object(entries) => (entries.len(), "with", KEYS),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Message::verbatim(kind);
        }
    };
    let size = noun.counted(size as u64);
    each(|language| match language {
        Language::En => format!("{kind} {with} {}", size.told(language)),
        Language::Zh => format!("含 {}的 {kind}", size.told(language)),
    })
}

/// JSON Schema's word for the type of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.as_str().contains(['.', 'e', 'E']) => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// One of several words.
pub(super) fn any_of(words: &[&str]) -> Message {
    each(|language| match language {
        Language::En => words.join(" or "),
        Language::Zh => words.join(" 或 "),
    })
}

/// An allowed value as JSON, shortened.
pub(super) fn quoted_value(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text, VALUE_BYTES_MAX),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(_) | Value::Object(_) => {
            shorten(&value.to_string(), VALUE_BYTES_MAX).into_owned()
        }
    }
}

/// A text in double quotes, escaped, in at most `bytes_max` bytes.
pub(super) fn quoted(text: &str, bytes_max: usize) -> String {
    let escaped = Value::String(shorten(text, bytes_max).into_owned()).to_string();
    if escaped.len() <= bytes_max {
        return escaped;
    }
    let mut cut = shorten(&escaped, bytes_max - 1).into_owned();
    cut.push('"');
    cut
}

/// One of several allowed values.
pub(super) fn one_of(options: &[Value]) -> Message {
    let options = listed(options.iter().map(quoted_value));
    each(|language| match language {
        Language::En => format!("one of {}", options.told(language)),
        Language::Zh => format!("{} 之一", options.told(language)),
    })
}

/// The first twelve, in at most 220 bytes, and how many more there are.
pub(super) fn listed(all: impl Iterator<Item = String>) -> Message {
    let mut shown: Vec<String> = Vec::new();
    let (mut bytes, mut left_out) = (0, 0);
    for one in all {
        if left_out > 0 || shown.len() == 12 || bytes + one.len() > 220 {
            left_out += 1;
        } else {
            bytes += one.len() + ", ".len();
            shown.push(one);
        }
    }
    each(|language| {
        let (comma, more) = match language {
            Language::En => (", ", format!(" and {left_out} more")),
            Language::Zh => ("、", format!(" 等，另有 {left_out} 个")),
        };
        let mut text = shown.join(comma);
        if left_out > 0 {
            write!(text, "{more}").expect("writing to a string does not fail");
        }
        text
    })
}
