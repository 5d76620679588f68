//! What a schema wants and what stood there instead, in words that a model can act on.

use std::fmt::Write;

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind as Kind},
    paths::Location,
};
use serde_json::Value;

use super::{nearest::nearest, shorten};

/// Bytes of one `found`; the value itself is never shown longer than this.
pub(super) const FOUND_BYTES_MAX: usize = 64;

/// What stands before a guess at what was meant, made from the value that was found.
pub(super) const NEAREST: &str = "; the nearest is ";

/// A value's kind and the beginning of it, in at most 64 bytes.
pub(super) fn describe(value: &Value) -> String {
    let text = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("boolean {value}"),
        Value::Number(number) if number.as_str().contains(['.', 'e', 'E']) => {
            format!("number {number}")
        }
        Value::Number(number) => format!("integer {number}"),
        Value::String(text) => {
            format!("string {}", quoted(text, FOUND_BYTES_MAX - "string ".len()))
        }
        Value::Array(items) => format!("array of {}", plural(items.len(), "item", "items")),
        Value::Object(entries) => format!("object with {}", plural(entries.len(), "key", "keys")),
    };
    shorten(&text, FOUND_BYTES_MAX).into_owned()
}

/// What an error's schema wants, to be read after "expected".
pub(super) fn expected(error: &ValidationError<'_>) -> String {
    let number = |limit: &Value| limit.to_string();
    match error.kind() {
        Kind::Type { kind } => types(kind).join(" or "),
        Kind::Enum { options } => one_of(options, error.instance()),
        Kind::Constant { expected_value } => quoted_value(expected_value),
        Kind::Required { property } => format!("the property {property}"),
        Kind::Minimum { limit } => format!("at least {}", number(limit)),
        Kind::Maximum { limit } => format!("at most {}", number(limit)),
        Kind::ExclusiveMinimum { limit } => format!("more than {}", number(limit)),
        Kind::ExclusiveMaximum { limit } => format!("less than {}", number(limit)),
        Kind::MultipleOf { multiple_of } => format!("a multiple of {}", number(multiple_of)),
        Kind::MinLength { limit } => format!(
            "a string of at least {}",
            many(*limit, "character", "characters")
        ),
        Kind::MaxLength { limit } => format!(
            "a string of at most {}",
            many(*limit, "character", "characters")
        ),
        Kind::MinItems { limit } => {
            format!("an array of at least {}", many(*limit, "item", "items"))
        }
        Kind::MaxItems { limit } => {
            format!("an array of at most {}", many(*limit, "item", "items"))
        }
        Kind::AdditionalItems { limit } => {
            format!("an array of at most {}", plural(*limit, "item", "items"))
        }
        Kind::MinProperties { limit } => {
            format!("an object with at least {}", many(*limit, "key", "keys"))
        }
        Kind::MaxProperties { limit } => {
            format!("an object with at most {}", many(*limit, "key", "keys"))
        }
        Kind::UniqueItems => "an array without equal items".to_owned(),
        Kind::UnevaluatedItems { .. } => "an array without further items".to_owned(),
        Kind::Contains => "an array with the right number of items that fit `contains`".to_owned(),
        Kind::Pattern { pattern } => format!("a string that matches {}", quoted(pattern, 200)),
        Kind::Format { format } => format!("a string in the format {}", format_example(format)),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => alternatives(error, context),
        Kind::OneOfMultipleValid { .. } => {
            "a value that fits exactly one of the alternatives, not several".to_owned()
        }
        Kind::FalseSchema => "no value here at all".to_owned(),
        Kind::Not { .. } => "a value that does not fit the `not` part of the schema".to_owned(),
        Kind::PropertyNames { .. } => "keys that fit `propertyNames`".to_owned(),
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            "no other properties".to_owned()
        }
        Kind::ContentEncoding { content_encoding } => {
            format!("text encoded as {}", quoted(content_encoding, 40))
        }
        Kind::ContentMediaType { content_media_type } => {
            format!("text that is {}", quoted(content_media_type, 40))
        }
        Kind::BacktrackLimitExceeded { .. }
        | Kind::RegexEngineFailure { .. }
        | Kind::FromUtf8 { .. } => {
            format!(
                "a string that can be checked against `{}`",
                error.kind().keyword()
            )
        }
        Kind::Custom { message, .. } => shorten(message, 200).into_owned(),
        Kind::Referencing(_) => "a schema that refers only to itself".to_owned(),
    }
}

fn types(kind: &TypeKind) -> Vec<&'static str> {
    match kind {
        TypeKind::Single(kind) => vec![kind.as_str()],
        TypeKind::Multiple(kinds) => kinds.iter().map(|kind| kind.as_str()).collect(),
    }
}

/// What a union wants: its types when those are all that is wrong, else what its nearest alternative wants.
fn alternatives(error: &ValidationError<'_>, branches: &[Vec<ValidationError<'static>>]) -> String {
    let here = error.instance_path();
    let only_type = |branch: &Vec<ValidationError<'static>>| match branch.as_slice() {
        [only] if only.instance_path() == here => match only.kind() {
            Kind::Type { kind } => Some(types(kind)),
            _other => None,
        },
        _several => None,
    };
    if let Some(kinds) = branches.iter().map(only_type).collect::<Option<Vec<_>>>() {
        let mut kinds: Vec<_> = kinds.into_iter().flatten().collect();
        kinds.sort_unstable();
        kinds.dedup();
        return kinds.join(" or ");
    }
    // Another kind of value, or another value of a discriminator, means that the branch was hardly meant.
    let distance = |branch: &&Vec<ValidationError<'static>>| {
        let other_kind = branch
            .iter()
            .any(|e| matches!(e.kind(), Kind::Type { .. }) && e.instance_path() == here);
        let other_word = branch
            .iter()
            .filter(|e| matches!(e.kind(), Kind::Constant { .. } | Kind::Enum { .. }))
            .count();
        (other_kind, other_word, branch.len())
    };
    let nearest = branches
        .iter()
        .min_by_key(distance)
        .and_then(|branch| branch.first());
    let several = format!("one of {} alternatives", branches.len());
    match nearest {
        Some(first) => {
            let wanted = shorten(&expected(first), 200).into_owned();
            format!(
                "{several}; the nearest one wants {wanted}{}",
                place(first.instance_path(), here)
            )
        }
        None => several,
    }
}

fn place(inner: &Location, outer: &Location) -> String {
    let below = inner
        .as_str()
        .strip_prefix(outer.as_str())
        .unwrap_or_default();
    if below.is_empty() {
        String::new()
    } else {
        format!(" at {}", shorten(inner.as_str(), 80))
    }
}

fn one_of(options: &Value, found: &Value) -> String {
    let options: &[Value] = options.as_array().map_or(&[], Vec::as_slice);
    let mut text = format!("one of {}", listed(options.iter().map(quoted_value)));
    let names = options.iter().filter_map(Value::as_str);
    if let Some(nearest) = found.as_str().and_then(|found| nearest(found, names)) {
        write!(text, "{NEAREST}{}", quoted(nearest, 60))
            .expect("writing to a string does not fail");
    }
    text
}

/// What may stand where an unexpected property stands.
pub(super) fn no_such_property(
    name: &str,
    keyword_path: &Location,
    source: Option<&Value>,
) -> String {
    let Some(properties) = sibling(keyword_path, source, "properties").and_then(Value::as_object)
    else {
        return "no such property".to_owned();
    };
    let mut text = match properties.len() {
        0 => "no properties at all".to_owned(),
        _ => format!(
            "only the properties {}",
            listed(properties.keys().map(|key| quoted(key, 60)))
        ),
    };
    if let Some(nearest) = nearest(name, properties.keys().map(String::as_str)) {
        write!(text, "{NEAREST}{}", quoted(nearest, 60))
            .expect("writing to a string does not fail");
    }
    text
}

/// What a missing property should be.
pub(super) fn required(property: &str, keyword_path: &Location, source: Option<&Value>) -> String {
    let kind = sibling(keyword_path, source, "properties")
        .and_then(|all| all.get(property)?.get("type")?.as_str());
    match kind {
        Some(kind) => format!("the required property, of type {}", shorten(kind, 20)),
        None => "the required property".to_owned(),
    }
}

/// Another keyword of the schema in which this keyword stands.
fn sibling<'v>(
    keyword_path: &Location,
    source: Option<&'v Value>,
    keyword: &str,
) -> Option<&'v Value> {
    let (parent, _) = keyword_path.as_str().rsplit_once('/')?;
    source?.pointer(parent)?.get(keyword)
}

fn quoted_value(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text, 60),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Array(_) | Value::Object(_) => shorten(&value.to_string(), 60).into_owned(),
    }
}

/// A text in double quotes, escaped, in at most `bytes_max` bytes.
fn quoted(text: &str, bytes_max: usize) -> String {
    let escaped = Value::String(shorten(text, bytes_max).into_owned()).to_string();
    if escaped.len() <= bytes_max {
        return escaped;
    }
    let mut cut = shorten(&escaped, bytes_max - 1).into_owned();
    cut.push('"');
    cut
}

fn listed(all: impl Iterator<Item = String>) -> String {
    let mut text = String::new();
    let mut left_out = 0;
    for (index, one) in all.enumerate() {
        if left_out > 0 || index >= 12 || text.len() + one.len() > 220 {
            left_out += 1;
            continue;
        }
        text.push_str(if index == 0 { "" } else { ", " });
        text.push_str(&one);
    }
    if left_out > 0 {
        write!(text, " and {left_out} more").expect("writing to a string does not fail");
    }
    text
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn many(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn format_example(format: &str) -> String {
    let example = match format {
        "date" => "2026-01-31",
        "date-time" => "2026-01-31T12:00:00Z",
        "time" => "12:00:00Z",
        "duration" => "P1DT2H",
        "email" => "name@example.com",
        "hostname" => "www.example.com",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uri" => "https://example.com/path",
        "uuid" => "0193a1b2-0000-7000-8000-000000000000",
        _other => return shorten(format, 60).into_owned(),
    };
    format!("{format} such as {example}")
}
