//! The demands of a schema, in words that a model can act on.

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind as Kind},
    paths::Location,
};
use serde_json::Value;

use super::{
    naming::{
        CHARACTERS, ITEMS, KEYS, Noun, VALUE_BYTES_MAX, any_of, each, one_of, quoted, quoted_value,
        spaced,
    },
    property::missing,
};
use crate::{
    message::{Language, Message, said},
    nearest::nearest,
    number::NumberShape,
    schema::keywords::beside,
    shorten::shorten,
};

/// What an error's schema wants, to be read after "expected". Nothing of the value that was found is in it.
pub(super) fn expected(error: &ValidationError<'_>, source: Option<&Value>) -> Message {
    match error.kind() {
        Kind::Type { kind } => wanted_type(&types(kind), error.instance()),
        Kind::Enum { options } => {
            let options = options.as_array().map_or(&[][..], Vec::as_slice);
            one_of(options)
        }
        Kind::Constant { expected_value } => Message::verbatim(quoted_value(expected_value)),
        Kind::Required { property } => missing(
            property.as_str().unwrap_or_default(),
            error.schema_path(),
            source,
        ),
        Kind::Minimum { limit } => said!("at least {limit}", "不小于 {limit} 的数"),
        Kind::Maximum { limit } => said!("at most {limit}", "不大于 {limit} 的数"),
        Kind::ExclusiveMinimum { limit } => said!("more than {limit}", "大于 {limit} 的数"),
        Kind::ExclusiveMaximum { limit } => said!("less than {limit}", "小于 {limit} 的数"),
        Kind::MultipleOf { multiple_of } => {
            said!("a multiple of {multiple_of}", "{multiple_of} 的倍数")
        }
        Kind::MinLength { limit } => sized(Bound::Least, "string", *limit, &CHARACTERS),
        Kind::MaxLength { limit } => sized(Bound::Most, "string", *limit, &CHARACTERS),
        Kind::MinItems { limit } => sized(Bound::Least, "array", *limit, &ITEMS),
        Kind::MaxItems { limit } => sized(Bound::Most, "array", *limit, &ITEMS),
        Kind::AdditionalItems { limit } => sized(Bound::Most, "array", *limit as u64, &ITEMS),
        Kind::MinProperties { limit } => sized(Bound::Least, "object", *limit, &KEYS),
        Kind::MaxProperties { limit } => sized(Bound::Most, "object", *limit, &KEYS),
        Kind::UniqueItems => Message::fixed("an array without equal items", "各项互不相同的 array"),
        Kind::UnevaluatedItems { .. } => {
            Message::fixed("an array without further items", "没有多余项的 array")
        }
        Kind::Contains => Message::fixed(
            "an array with the right number of items that fit `contains`",
            "符合 `contains` 的项数正确的 array",
        ),
        Kind::Pattern { pattern } => matching(pattern, error.schema_path(), source),
        Kind::Format { format } => in_format(format),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            alternatives(error, context, source)
        }
        Kind::OneOfMultipleValid { .. } => Message::fixed(
            "a value that fits exactly one of the alternatives, not several",
            "只符合备选之一（而非多个）的值",
        ),
        Kind::FalseSchema => Message::fixed("no value here at all; leave it out", "空缺（请删去）"),
        Kind::Not { .. } => Message::fixed(
            "a value that does not fit the `not` part of the schema",
            "不符合模式中 `not` 部分的值",
        ),
        Kind::PropertyNames { error } => {
            let wanted = expected(error, source);
            each(|language| match language {
                Language::En => format!("every key to be {}", wanted.told(language)),
                Language::Zh => format!("每个键都是{}", spaced(wanted.told(language))),
            })
        }
        Kind::AdditionalProperties { .. } | Kind::UnevaluatedProperties { .. } => {
            Message::fixed("no other properties", "没有其他属性的 object")
        }
        Kind::ContentEncoding { content_encoding } => {
            let name = quoted(content_encoding, 40);
            said!("text encoded as {name}", "以 {name} 编码的文本")
        }
        Kind::ContentMediaType { content_media_type } => {
            let name = quoted(content_media_type, 40);
            said!("text that is {name}", "类型为 {name} 的文本")
        }
        Kind::BacktrackLimitExceeded { .. }
        | Kind::RegexEngineFailure { .. }
        | Kind::FromUtf8 { .. } => {
            let keyword = error.kind().keyword();
            said!(
                "a string that can be checked against `{keyword}`",
                "可以用 `{keyword}` 检查的 string"
            )
        }
        Kind::Custom { message, .. } => Message::verbatim(shorten(message, 200).into_owned()),
        Kind::Referencing(_) => {
            Message::fixed("a schema that refers only to itself", "只引用自身的模式")
        }
    }
}

/// The allowed value that was probably meant: the nearest of an enum, or the only one there is.
pub(super) fn nearest_value(error: &ValidationError<'_>) -> Option<Value> {
    let found = error.instance().as_ref();
    match error.kind() {
        Kind::Constant { expected_value } => {
            short(expected_value).then(|| Value::clone(expected_value))
        }
        Kind::Enum { options } => {
            let options = options.as_array()?;
            let texts: Vec<String> = options.iter().map(text).collect();
            let meant = nearest(&text(found), texts.iter().map(String::as_str))?;
            let at = texts.iter().position(|text| text == meant)?;
            short(&options[at]).then(|| options[at].clone())
        }
        Kind::PropertyNames { error } => nearest_value(error),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            let meant = likeliest(error, context)?;
            (meant.instance_path() == error.instance_path())
                .then(|| nearest_value(meant))
                .flatten()
        }
        _not_a_choice => None,
    }
}

/// What is compared to find out what was meant; empty for what has no near neighbour.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
    }
}

/// Whether a value can be repeated in full.
fn short(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_)) && text(value).len() <= VALUE_BYTES_MAX
}

fn types(kind: &TypeKind) -> Vec<&'static str> {
    match kind {
        TypeKind::Single(kind) => vec![kind.as_str()],
        TypeKind::Multiple(kinds) => kinds.iter().map(|kind| kind.as_str()).collect(),
    }
}

fn wanted_type(types: &[&str], found: &Value) -> Message {
    let wanted = any_of(types);
    let as_text = |open: char, kind: &str| {
        types.contains(&kind)
            && found
                .as_str()
                .is_some_and(|text| text.trim_start().starts_with(open))
    };
    let is_number = ["integer", "number"]
        .iter()
        .any(|kind| types.contains(kind));
    if is_number && found.as_str().is_some_and(is_too_large) {
        return each(|language| match language {
            Language::En => format!("{} (of at most 64 bits, or 1e308)", wanted.told(language)),
            Language::Zh => format!(
                "{}（整数不超过 64 位，小数不超过 1e308）",
                wanted.told(language)
            ),
        });
    }
    if as_text('{', "object") || as_text('[', "array") {
        return each(|language| match language {
            Language::En => format!("{} (the value itself, not its text)", wanted.told(language)),
            Language::Zh => format!("{}（值本身，而不是它的文本）", wanted.told(language)),
        });
    }
    wanted
}

/// Whether a text is a number that would be refused as one, too.
fn is_too_large(text: &str) -> bool {
    let token = text.trim_ascii();
    NumberShape::of(token).is_some_and(|shape| !shape.is_kept_exactly(token))
}

enum Bound {
    Least,
    Most,
}

fn sized(bound: Bound, kind: &str, limit: u64, noun: &Noun) -> Message {
    let count = noun.counted(limit);
    let article = if kind == "string" { "a" } else { "an" };
    let joined = if kind == "object" { "with" } else { "of" };
    each(|language| match (language, &bound) {
        (Language::En, Bound::Least) => {
            format!(
                "{article} {kind} {joined} at least {}",
                count.told(language)
            )
        }
        (Language::En, Bound::Most) => {
            format!("{article} {kind} {joined} at most {}", count.told(language))
        }
        (Language::Zh, Bound::Least) => format!("至少含 {}的 {kind}", count.told(language)),
        (Language::Zh, Bound::Most) => format!("至多含 {}的 {kind}", count.told(language)),
    })
}

fn matching(pattern: &str, keyword_path: &Location, source: Option<&Value>) -> Message {
    let pattern = quoted(pattern, 200);
    let example = beside(keyword_path, source, "examples")
        .and_then(|examples| examples.get(0)?.as_str())
        .map(|example| quoted(example, VALUE_BYTES_MAX));
    match example {
        Some(example) => said!(
            "a string that matches {pattern}, such as {example}",
            "匹配 {pattern} 的 string，例如 {example}"
        ),
        None => said!(
            "a string that matches {pattern}",
            "匹配 {pattern} 的 string"
        ),
    }
}

fn in_format(format: &str) -> Message {
    match format_example(format) {
        Some(example) => said!(
            "a string in the format {format} such as {example}",
            "格式为 {format} 的 string，例如 {example}"
        ),
        None => {
            let format = shorten(format, VALUE_BYTES_MAX);
            said!(
                "a string in the format {format}",
                "格式为 {format} 的 string"
            )
        }
    }
}

/// A text that has this format.
fn format_example(format: &str) -> Option<&'static str> {
    Some(match format {
        "date" => "2026-01-31",
        "date-time" => "2026-01-31T12:00:00Z",
        "time" => "12:00:00Z",
        "duration" => "P1DT2H",
        "email" | "idn-email" => "name@example.com",
        "hostname" | "idn-hostname" => "www.example.com",
        "ipv4" => "192.0.2.1",
        "ipv6" => "2001:db8::1",
        "uri" | "iri" => "https://example.com/path",
        "uri-reference" | "iri-reference" => "/path?page=2",
        "uri-template" => "/users/{id}",
        "json-pointer" => "/items/0",
        "relative-json-pointer" => "1/items",
        "regex" => "^[a-z]+$",
        "uuid" => "0193a1b2-0000-7000-8000-000000000000",
        _other => return None,
    })
}

/// What a union wants: its types when those are all that is wrong, else what its nearest alternative wants.
fn alternatives(
    error: &ValidationError<'_>,
    branches: &[Vec<ValidationError<'static>>],
    source: Option<&Value>,
) -> Message {
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
        return wanted_type(&kinds, error.instance());
    }
    let count = branches.len();
    let Some(first) = likeliest(error, branches) else {
        return said!("one of {count} alternatives", "{count} 种备选之一");
    };
    let wanted = expected(first, source).map(|text| shorten(&text, 200).into_owned());
    let at = place(first, here);
    each(|language| match language {
        Language::En => {
            let at = at
                .as_ref()
                .map_or_else(String::new, |at| format!(" at {at}"));
            let wanted = wanted.told(language);
            format!("one of {count} alternatives; the nearest one wants {wanted}{at}")
        }
        Language::Zh => {
            let at = at
                .as_ref()
                .map_or_else(String::new, |at| format!("在 {at} 处"));
            let wanted = spaced(wanted.told(language));
            format!("{count} 种备选之一；最接近的一种{at}要求{wanted}")
        }
    })
}

/// The first thing that is wrong with the alternative that was probably meant.
fn likeliest<'b>(
    error: &ValidationError<'_>,
    branches: &'b [Vec<ValidationError<'static>>],
) -> Option<&'b ValidationError<'static>> {
    // Another kind of value, or another value of a discriminator, means that the branch was hardly meant.
    let here = error.instance_path();
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
    branches
        .iter()
        .min_by_key(distance)
        .and_then(|branch| branch.first())
}

fn place(error: &ValidationError<'_>, outer: &Location) -> Option<String> {
    let inner = error.instance_path().as_str();
    let below = inner.strip_prefix(outer.as_str()).unwrap_or_default();
    (!below.is_empty()).then(|| shorten(inner, 80).into_owned())
}
