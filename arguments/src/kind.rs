//! The JSON Schema type of a value.

use jsonschema::JsonType;
use serde_json::Value;

use crate::decimal;

/// The narrowest type of a value: `5.0` is an integer.
pub(crate) fn kind_of(value: &Value) -> JsonType {
    match value {
        Value::Null => JsonType::Null,
        Value::Bool(_) => JsonType::Boolean,
        Value::Number(number) => match decimal::integer(number) {
            Some(_) => JsonType::Integer,
            None => JsonType::Number,
        },
        Value::String(_) => JsonType::String,
        Value::Array(_) => JsonType::Array,
        Value::Object(_) => JsonType::Object,
    }
}

/// Whether every value of type `inner` is of type `outer`.
pub(crate) fn includes(outer: JsonType, inner: JsonType) -> bool {
    outer == inner || (outer, inner) == (JsonType::Number, JsonType::Integer)
}

/// Whether a value is of a type.
pub(crate) fn is(value: &Value, kind: JsonType) -> bool {
    includes(kind, kind_of(value))
}

/// Whether a value is of a type, or is a number where the type is a number: 5.5 is like an integer.
pub(crate) fn is_alike(kind: JsonType, value: &Value) -> bool {
    is(value, kind) || (kind == JsonType::Integer && value.is_number())
}
