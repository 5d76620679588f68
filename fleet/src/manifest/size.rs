//! A size: a number of bytes, or a text such as `64KiB` or `1MiB`.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use serde_json::Value;

pub(super) fn serialize<S: Serializer>(bytes: &usize, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(*bytes as u64)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let bytes = match &value {
        Value::Number(number) => number.as_u64().and_then(|n| usize::try_from(n).ok()),
        Value::String(text) => parse(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    bytes.ok_or_else(|| {
        D::Error::custom("a size is a number of bytes or a text such as 64KiB or 1MiB")
    })
}

/// Reads `64KiB`.
pub(super) fn parse(text: &str) -> Option<usize> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit = match unit {
        "B" => 1,
        "KiB" => 1024,
        "MiB" => 1024 * 1024,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}
