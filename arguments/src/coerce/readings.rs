//! The one thing that a value can mean where another kind is wanted.

use jsonschema::JsonType;
use serde_json::{Number, Value};

use super::{relaxed, rule::Rule};
use crate::{decimal, kind, limits::Limits, parse::parse_any};

/// A value, and the rule that made it.
pub(super) type Reading = (Value, Rule);

/// The value as one of the wanted type; text is read under these limits.
pub(super) fn to_type(value: &Value, wanted: JsonType, limits: &Limits) -> Option<Reading> {
    match (value, wanted) {
        (Value::String(text), JsonType::Integer) => string_to_integer(text),
        (Value::String(text), JsonType::Number) => string_to_number(text),
        (Value::String(text), JsonType::Boolean) => string_to_boolean(text),
        (Value::String(text), JsonType::Object) => text_to_container(text, wanted, limits),
        (Value::String(text), JsonType::Array) => {
            text_to_container(text, wanted, limits).or_else(|| value_to_array(value))
        }
        (Value::Number(number), JsonType::String) => integer_to_string(number),
        // This reading is never the result; it only makes another one uncertain.
        (Value::Bool(boolean), JsonType::String) => {
            Some((boolean.to_string().into(), Rule::BooleanToString))
        }
        (Value::Number(_) | Value::Bool(_) | Value::Object(_), JsonType::Array) => {
            value_to_array(value)
        }
        (Value::Array(_), _) => array_to_value(value).filter(|(item, _)| kind::is(item, wanted)),
        _means_nothing_certain => None,
    }
}

/// The allowed values that this one can mean.
pub(super) fn to_option(value: &Value, options: &[Value]) -> Vec<Reading> {
    if let Some((item, rule)) = array_to_value(value) {
        let found = options.contains(&item).then_some((item, rule));
        return found.into_iter().collect();
    }
    let is_allowed = |word: &str| options.iter().any(|option| option.as_str() == Some(word));
    let same = |option: &Value| {
        let rule = match (value, option) {
            (Value::String(text), Value::String(word)) => {
                let text = text.trim_ascii();
                let is_it = text == word || (!is_allowed(text) && is_same_word(text, word));
                is_it.then_some(Rule::EnumMatch)
            }
            (Value::String(text), Value::Number(wanted)) => {
                let (number, rule) = match decimal::is_integer(wanted) {
                    true => (integer_of(text), Rule::StringToInteger),
                    false => (number_of(text), Rule::StringToNumber),
                };
                number
                    .is_some_and(|number| decimal::equal(&number, wanted))
                    .then_some(rule)
            }
            (Value::String(text), Value::Bool(_)) => string_to_boolean(text)
                .filter(|(read, _)| read == option)
                .map(|(_, rule)| rule),
            (Value::Number(number), Value::Number(wanted)) => {
                (number != wanted && decimal::equal(number, wanted)).then_some(Rule::FloatToInteger)
            }
            (Value::Number(number), Value::String(_)) => integer_to_string(number)
                .filter(|(text, _)| text == option)
                .map(|(_, rule)| rule),
            // With two words for it there are two values, and neither is taken.
            (Value::Bool(_), Value::String(word)) => string_to_boolean(word)
                .filter(|(read, _)| read == value)
                .map(|_| Rule::BooleanToString),
            _means_nothing_certain => None,
        };
        rule.map(|rule| (option.clone(), rule))
    };
    options.iter().filter_map(same).collect()
}

fn string_to_integer(text: &str) -> Option<Reading> {
    Some((Value::Number(integer_of(text)?), Rule::StringToInteger))
}

/// Not of `1.000`, which in half of the world is a thousand.
fn integer_of(text: &str) -> Option<Number> {
    let number = decimal::number(text)?;
    (!decimal::may_be_grouped(&number))
        .then(|| decimal::integer(&number))
        .flatten()
}

fn string_to_number(text: &str) -> Option<Reading> {
    Some((Value::Number(number_of(text)?), Rule::StringToNumber))
}

/// Not of `10.000`: hardly anybody writes ten with so many zeros, and in half of the world it is ten thousand.
fn number_of(text: &str) -> Option<Number> {
    let number = decimal::number(text)?;
    let is_rounded = number.as_str().ends_with('0');
    (!(is_rounded && decimal::may_be_grouped(&number))).then_some(number)
}

fn string_to_boolean(text: &str) -> Option<Reading> {
    let word = text.trim_ascii();
    let is = |wanted: &str| word.eq_ignore_ascii_case(wanted);
    (is("true") || is("false")).then(|| (Value::Bool(is("true")), Rule::StringToBoolean))
}

/// Whether a value is the text of a number or a boolean.
pub(super) fn is_scalar(value: &Value) -> bool {
    value.as_str().is_some_and(|text| scalar(text).is_some())
}

/// The number or the boolean in this text.
pub(super) fn scalar(text: &str) -> Option<Value> {
    let boolean = || string_to_boolean(text).map(|(boolean, _)| boolean);
    decimal::number(text).map(Value::Number).or_else(boolean)
}

/// Whether a text is an integer in its usual form.
pub(super) fn is_integer_text(text: &str) -> bool {
    decimal::number(text).is_some_and(|number| decimal::is_integer(&number))
}

/// A float does not become a string, for its intended form is not known.
fn integer_to_string(number: &Number) -> Option<Reading> {
    decimal::is_integer(number).then(|| (number.as_str().into(), Rule::IntegerToString))
}

/// The array or object in a text: by strict JSON, else by relaxed reading.
fn text_to_container(text: &str, wanted: JsonType, limits: &Limits) -> Option<Reading> {
    let (value, rule) = match parse_any(text.as_bytes(), limits) {
        Ok(value) if wanted == JsonType::Array => (value, Rule::StringToArray),
        Ok(value) => (value, Rule::StringToObject),
        Err(_) => {
            let value = parse_any(relaxed::to_json(text)?.as_bytes(), limits).ok()?;
            (value, Rule::RelaxedJson)
        }
    };
    (kind::is(&value, wanted) && !is_under_escaped(&value)).then_some((value, rule))
}

/// Whether a text has characters that hardly occur except where a backslash was meant as such: `\b` and `\f`, or the end of a
/// line or a tab after a drive, as in `C:\new`.
fn is_under_escaped(value: &Value) -> bool {
    match value {
        Value::String(text) => {
            text.contains(['\u{8}', '\u{c}'])
                || text.match_indices(":").any(|(at, _)| is_drive(text, at))
        }
        Value::Array(items) => items.iter().any(is_under_escaped),
        Value::Object(entries) => entries.values().any(is_under_escaped),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Whether a single letter stands before the colon at `at`, and after it what `\n`, `\r` or `\t` became.
fn is_drive(text: &str, at: usize) -> bool {
    let mut before = text[..at].chars().rev();
    let is_letter = before.next().is_some_and(|c| c.is_ascii_alphabetic());
    let is_alone = !before.next().is_some_and(char::is_alphanumeric);
    is_letter && is_alone && text[at + 1..].starts_with(['\n', '\r', '\t'])
}

fn value_to_array(value: &Value) -> Option<Reading> {
    let is_single = match value {
        Value::String(text) => !text.is_empty(),
        Value::Number(_) | Value::Bool(_) | Value::Object(_) => true,
        Value::Null | Value::Array(_) => false,
    };
    is_single.then(|| (Value::Array(vec![value.clone()]), Rule::ValueToArray))
}

fn array_to_value(value: &Value) -> Option<Reading> {
    match value.as_array()?.as_slice() {
        [Value::Null | Value::Array(_)] => None,
        [Value::String(text)] if text.is_empty() => None,
        [item] => Some((item.clone(), Rule::ArrayToValue)),
        _none_or_several => None,
    }
}

/// Whether two words differ only in case.
fn is_same_word(text: &str, word: &str) -> bool {
    let folded = |text: &'_ str| -> String { text.chars().flat_map(char::to_lowercase).collect() };
    !text.is_empty() && folded(text) == folded(word.trim_ascii())
}
