//! Kinds of values and lists of words, as they stand in a sentence.

use serde_json::Value;

pub(super) fn dotted(path: &str) -> String {
    path.trim_start_matches('/').replace('/', ".")
}

pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a yes or no",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

pub(super) fn a(kind: &str) -> &'static str {
    match kind {
        "integer" => "a whole number",
        "number" => "a number",
        "string" => "a text",
        "array" => "a list",
        "object" => "an object",
        "boolean" => "true or false",
        _other => "what is meant",
    }
}

pub(super) fn one_of(words: &[String]) -> String {
    joined(words, "or")
}

pub(super) fn all_of(words: &[String]) -> String {
    joined(words, "and")
}

fn joined(words: &[String], last: &str) -> String {
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [all @ .., end] => format!("{} {last} {end}", all.join(", ")),
    }
}
